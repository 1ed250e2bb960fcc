use proptest::prelude::*;

use super::*;
use crate::{
    Access, Backend, ByteString, EntryKind, HostRestriction, IntroducedSecret, LandingAction, LimitCeilings,
    NetMode, PatchedFile, ToolCall, TransactionId, Way,
};

fn exec(argv: &[&str]) -> Call {
    Call::Exec(ExecCall {
        argv: argv.iter().map(|a| ByteString::from(*a)).collect(),
        cwd: ByteString::from("/w"),
        env: Vec::new(),
        ceiling: None,
        net: NetMode::None,
        stdin: StandardInput::None,
    })
}

#[test]
fn fingerprint_separates_fields() {
    let roots = [Root { path: ByteString::from("/w"), access: Access::Write }];
    let joined = ActionFingerprint::of(&exec(&["a b"]), &roots);
    assert_ne!(joined, ActionFingerprint::of(&exec(&["a", "b"]), &roots));
    assert_eq!(joined, ActionFingerprint::of(&exec(&["a b"]), &roots));
}

#[test]
fn standard_input_is_part_of_the_fingerprint() {
    let with = |stdin: StandardInput| match exec(&["patch", "-p1"]) {
        Call::Exec(exec) => ActionFingerprint::of(&Call::Exec(ExecCall { stdin, ..exec }), &[]),
        other => ActionFingerprint::of(&other, &[]),
    };
    let kinds = [
        StandardInput::None,
        StandardInput::Terminal,
        StandardInput::Stream,
        StandardInput::of_bytes(b"one"),
        StandardInput::of_bytes(b"two"),
    ];
    let prints: std::collections::HashSet<ActionFingerprint> = kinds.iter().cloned().map(with).collect();
    assert_eq!(prints.len(), kinds.len());
}

/// An argument that is moved to the variables makes another call.
#[test]
fn what_is_moved_from_one_list_to_the_next_is_another_call() {
    let all = |argv: &[&str], env: &[(&str, &str)], cwd: &str| match exec(argv) {
        Call::Exec(exec) => ActionFingerprint::of(
            &Call::Exec(ExecCall {
                cwd: ByteString::from(cwd),
                env: env
                    .iter()
                    .map(|(name, value)| (ByteString::from(*name), ByteString::from(*value)))
                    .collect(),
                ..exec
            }),
            &[],
        ),
        other => ActionFingerprint::of(&other, &[]),
    };
    let one = all(&["tar", "cwd", "/w"], &[("A", "B")], "x");
    let other = all(&["tar"], &[("x", "A"), ("B", "/w")], "cwd");
    assert_ne!(one, other);
    // An earlier encoding had the same bytes for these two.
    let long = all(&["tar", "cwd", "/w", "TAR_OPTIONS"], &[], "v");
    let moved = all(&["tar"], &[("TAR_OPTIONS", "cwd"), ("v", "x")], "/w");
    assert_ne!(long, moved);
}

/// Few words, some of them used by the encoding itself, so that collisions are likely if possible.
fn word() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        "",
        "a",
        "cwd",
        "none",
        "exec",
        "read",
        "sha256",
        "agent",
        "a\0",
        "\u{1}\0\0\0\0\0\0\0a",
    ])
    .prop_map(str::to_owned)
}

fn bytes() -> impl Strategy<Value = ByteString> {
    word().prop_map(|word| ByteString::from(word.as_str()))
}

fn few<T: std::fmt::Debug>(item: impl Strategy<Value = T>) -> impl Strategy<Value = Vec<T>> {
    prop::collection::vec(item, 0..3)
}

fn stdin() -> impl Strategy<Value = StandardInput> {
    prop_oneof![
        Just(StandardInput::None),
        Just(StandardInput::Terminal),
        Just(StandardInput::Stream),
        word().prop_map(|sha256| StandardInput::Bytes { sha256, bytes: 1, head: ByteString::from("x") }),
    ]
}

fn execs() -> impl Strategy<Value = Call> {
    let net = prop::sample::select(vec![NetMode::None, NetMode::Filtered]);
    let ceiling = prop::option::of(ceilings().prop_map(Box::new));
    (few(bytes()), bytes(), few((bytes(), bytes())), ceiling, net, stdin()).prop_map(
        |(argv, cwd, env, ceiling, net, stdin)| Call::Exec(ExecCall { argv, cwd, env, ceiling, net, stdin }),
    )
}

fn roots() -> impl Strategy<Value = Vec<Root>> {
    let access = prop::sample::select(vec![Access::Read, Access::Write]);
    few((bytes(), access).prop_map(|(path, access)| Root { path, access }))
}

fn ceilings() -> impl Strategy<Value = CallCeiling> {
    let hosts = prop::sample::select(vec!["a.example", "b.example:1", "*.b.example"]);
    let hosts = few(hosts.prop_map(|host| HostRestriction::try_from(host.to_owned()).unwrap()));
    let net =
        prop_oneof![Just(NetCeiling::None), Just(NetCeiling::Filtered), hosts.prop_map(NetCeiling::Hosts)];
    let backend = prop::sample::select(vec![Backend::Native, Backend::Landlock]);
    let limits =
        (prop::option::of(0..2_u64), prop::option::of(0..2_u64)).prop_map(|(processes, open_files)| {
            LimitCeilings { processes, open_files, ..LimitCeilings::default() }
        });
    (prop::option::of(roots()), prop::option::of(net), prop::option::of(backend), limits)
        .prop_map(|(roots, net, backend, limits)| CallCeiling { roots, net, backend, limits })
}

fn files() -> impl Strategy<Value = Call> {
    prop_oneof![
        bytes().prop_map(|path| FileCall::Read { path }),
        (bytes(), word()).prop_map(|(path, sha256)| FileCall::Write { path, sha256, bytes: 1 }),
        bytes().prop_map(|path| FileCall::List { path }),
        (bytes(), bytes()).prop_map(|(path, target)| FileCall::Symlink { path, target }),
        (bytes(), bytes()).prop_map(|(path, to)| FileCall::Move { path, to }),
        bytes().prop_map(|path| FileCall::Remove { path }),
    ]
    .prop_map(Call::File)
}

fn patches() -> impl Strategy<Value = Call> {
    let secret = (word(), 0..2_u64).prop_map(|(rule, line)| IntroducedSecret { rule, line });
    let digest = || prop::option::of(word());
    let file = (bytes(), digest(), digest(), few(secret))
        .prop_map(|(path, base, result, secrets)| PatchedFile { path, base, result, bytes: 1, secrets });
    few(file).prop_map(|files| Call::Apply(Patch { files }))
}

fn landings() -> impl Strategy<Value = Call> {
    let kind = prop::sample::select(vec![EntryKind::File, EntryKind::Directory]);
    let state =
        || {
            let digest = prop::option::of(word());
            prop::option::of(
                (kind.clone(), 0..2_u32, digest, 0..2_u64)
                    .prop_map(|(kind, mode, sha256, bytes)| LandedState { kind, mode, sha256, bytes }),
            )
        };
    let secret = (word(), 0..2_u64).prop_map(|(rule, line)| IntroducedSecret { rule, line });
    let entry = (bytes(), state(), state(), prop::option::of(bytes()), few(secret)).prop_map(
        |(path, before, after, repository, secrets)| LandedEntry { path, before, after, repository, secrets },
    );
    let layer = prop::sample::select(vec!['0', '1'])
        .prop_map(|digit| TransactionId::parse(&format!("tx_{}", digit.to_string().repeat(24))).unwrap());
    let action = prop::sample::select(LandingAction::ALL);
    (layer, action, few(entry))
        .prop_map(|(layer, action, entries)| Call::Land(Landing { layer, action, entries }))
}

fn fetches() -> impl Strategy<Value = FetchCall> {
    let by = prop::sample::select(vec![FetchOrigin::Ringfence, FetchOrigin::Agent]);
    (word(), word(), by).prop_map(|(method, url, by)| FetchCall { method, url, by })
}

fn others() -> impl Strategy<Value = Call> {
    prop_oneof![
        (word(), 0..2_u16, prop::option::of(fetches())).prop_map(|(host, port, request)| {
            Call::Flow(FlowCall { way: Way::Connect, host, port, request, address: None })
        }),
        fetches().prop_map(Call::Fetch),
        (word(), word()).prop_map(|(name, sha256)| {
            Call::Tool(ToolCall { name, sha256, bytes: 1, input: String::new() })
        }),
    ]
}

fn acts() -> impl Strategy<Value = (Call, Vec<Root>)> {
    (prop_oneof![4 => execs(), 1 => files(), 1 => patches(), 1 => landings(), 1 => others()], roots())
}

fn encoded(call: &Call, roots: &[Root]) -> Vec<u8> {
    let mut all = Vec::new();
    encode(call, roots, &mut |bytes| all.extend_from_slice(bytes));
    all
}

proptest! {
    /// Different calls have different bytes, and none is a prefix of another.
    #[test]
    fn different_calls_have_different_encodings(one in acts(), other in acts()) {
        let (first, second) = (encoded(&one.0, &one.1), encoded(&other.0, &other.1));
        prop_assert_eq!(one == other, first == second);
        prop_assert!(one == other || !second.starts_with(&first));
    }
}
