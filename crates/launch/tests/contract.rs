//! Both halves of the contract: what the encoder writes the launcher's parser reads, and nothing else.
#![expect(clippy::unwrap_used, reason = "the helpers of a test fail like the test")]

use std::ffi::CStr;

use proptest::prelude::*;
use ringfence_launch::command::{Command, TERMINAL_IN};
use ringfence_launch::plan::{Access, Encoder, Identity, MAGIC, Malformed, NulInside, Op, Plan, Writer};
use ringfence_launch::step::Step;
use ringfence_launch::wire::{Achieved, MESSAGE_SIZE, Message};

const A: &CStr = c"a path/with 'quotes'\n";
const B: &CStr = c"\xff\xfe";

fn every_operation() -> Vec<Op<'static>> {
    vec![
        Op::Hostname { name: A },
        Op::Loopback,
        Op::Netlink { protocol: 12, messages: b"messages\0with zeros\0" },
        Op::NetNamespace,
        Op::Door { kind: 1, address: &[2, 0, 0, 53, 127, 0, 0, 1] },
        Op::Stage,
        Op::WholeMachine,
        Op::Directory { path: A, mode: 0o755 },
        Op::Symlink { path: A, target: B },
        Op::File { path: A, mode: 0o400, content: b"content\0with zero" },
        Op::Bind { source: A, target: B },
        Op::Seal,
        Op::Tmpfs { target: A, bytes: u64::MAX, mode: 0o1777 },
        Op::Device { source: A, target: B },
        Op::Proc { target: A },
        Op::Devpts { target: A },
        Op::ReadOnly { target: A },
        Op::Root { source: A, target: B, access: Access::Write, identity: Identity { device: 5, inode: 6 } },
        Op::Root {
            source: A,
            target: B,
            access: Access::Read,
            identity: Identity { device: 7, inode: u64::MAX },
        },
        Op::Root { source: A, target: B, access: Access::System, identity: Identity { device: 8, inode: 9 } },
        Op::Beneath { target: A },
        Op::Pin { path: A },
        Op::Freeze { path: A },
        Op::Protect { path: A },
        Op::Replace { path: A, source: B },
        Op::Mask { path: A },
        Op::Hide { path: A },
        Op::Pivot,
        Op::Rlimit { resource: 7, soft: 1, hard: 2 },
        Op::LandlockRuleset { fs: 1, net: 2, scoped: 3 },
        Op::LandlockAllow { path: A, access: 4 },
        Op::Seccomp { program: &[1, 2, 3, 4, 5, 6, 7, 8] },
    ]
}

fn encoded(operations: &[Op<'_>]) -> Vec<u8> {
    let mut encoder = Encoder::default();
    operations.iter().for_each(|op| encoder.push(op));
    encoder.finish()
}

#[test]
fn every_operation_comes_back_as_it_went() {
    let bytes = encoded(&every_operation());
    let plan = Plan::parse(&bytes).unwrap();
    let mut operations = plan.operations();
    for expected in every_operation() {
        assert_eq!(operations.next_op().unwrap(), Some(expected));
    }
    assert_eq!(operations.next_op(), Ok(None));
}

#[test]
fn a_plan_that_is_cut_anywhere_is_refused_whole() {
    let whole = encoded(&every_operation());
    let ends: Vec<usize> =
        (1..=every_operation().len()).map(|n| encoded(&every_operation()[..n]).len()).collect();
    for length in 0..whole.len() {
        let cut = Plan::parse(&whole[..length]);
        let at_a_boundary = length == 8 || ends.contains(&length);
        assert_eq!(cut.is_ok(), at_a_boundary, "{length}");
    }
}

#[test]
fn steps_never_go_backwards() {
    for backwards in [
        [Op::Seal, Op::Bind { source: A, target: A }],
        [Op::Pivot, Op::Mask { path: A }],
        [Op::Pivot, Op::Beneath { target: A }],
        [Op::Seccomp { program: &[] }, Op::LandlockAllow { path: A, access: 1 }],
        [Op::LandlockRuleset { fs: 1, net: 0, scoped: 0 }, Op::Rlimit { resource: 0, soft: 0, hard: 0 }],
        [Op::Pivot, Op::File { path: A, mode: 0, content: b"" }],
        [Op::Door { kind: 1, address: b"" }, Op::Netlink { protocol: 0, messages: b"" }],
        [Op::Stage, Op::Door { kind: 1, address: b"" }],
    ] {
        assert_eq!(Plan::parse(&encoded(&backwards)).err(), Some(Malformed), "{backwards:?}");
    }
    let next_root =
        [Op::Beneath { target: A }, Op::Mask { path: A }, Op::Beneath { target: B }, Op::Pin { path: B }];
    assert!(Plan::parse(&encoded(&next_root)).is_ok());
}

#[test]
fn unknown_tags_and_trailing_bytes_are_refused() {
    let mut unknown = Writer::default();
    unknown.number(MAGIC);
    unknown.short(9999);
    unknown.blob(b"");
    assert!(Plan::parse(&unknown.bytes).is_err());

    let mut trailing = Writer::default();
    trailing.number(MAGIC);
    trailing.short(2); // Loopback takes no payload
    trailing.blob(b"x");
    assert!(Plan::parse(&trailing.bytes).is_err());

    assert!(Plan::parse(b"rfplan0\0").is_err());
    assert_eq!(Writer::default().string_bytes(b"a\0b"), Err(NulInside));
}

#[test]
fn every_message_comes_back_as_it_went() {
    let achieved =
        Achieved { no_new_privs: 1, seccomp_mode: 2, capabilities_empty: 1, landlock: 1, cgroups: 3 };
    for message in [
        Message::Start { namespaces: 1, uid: 2, gid: 3, cgroups: 4 },
        Message::Plan { length: 5 },
        Message::Run { id: 6, length: 7 },
        Message::Signal { id: 8, signal: 9 },
        Message::Kill { id: 10 },
        Message::Started { pid: 11 },
        Message::Ready(achieved),
        Message::Failed { step: 12, operation: 13, errno: 14 },
        Message::Terminal { id: 15 },
        Message::NotExecuted { id: 16, errno: 17 },
        Message::Exited { id: 18, status: 19, user_us: 20, system_us: 21, max_rss_kib: 22, tmp_full: 1 },
        Message::LeaderLost { id: 23 },
        Message::UserNamespace,
        Message::MountNamespace,
        Message::Repair { length: 24 },
        Message::Repaired,
        Message::NetNamespace,
        Message::Door,
        Message::Outfit { length: 25 },
        Message::Outfitted,
    ] {
        assert_eq!(Message::decode(&message.encode()), Some(message));
    }
    assert_eq!(Message::decode(&[0; MESSAGE_SIZE]), None);
    assert_eq!(Message::decode(&[1; MESSAGE_SIZE - 1]), None);
}

#[test]
fn every_step_has_a_number_and_words() {
    for step in Step::ALL {
        assert_eq!(Step::from_wire(step as u32), Some(step));
        assert!(!step.describe().is_empty());
    }
    assert_eq!(Step::from_wire(0), None);
    assert!(Step::ALL.is_sorted());
}

fn command(flags: u32, argc: u32, strings: &[&[u8]]) -> Vec<u8> {
    let mut out = Writer::default();
    [flags, 24, 80, argc, u32::try_from(strings.len()).unwrap() - argc]
        .into_iter()
        .for_each(|word| out.short(word));
    out.string(c"/");
    strings.iter().for_each(|string| out.string_bytes(string).unwrap());
    out.bytes
}

#[test]
fn a_command_is_checked_whole() {
    let good = command(TERMINAL_IN, 2, &[b"sh", b"-c", b"A=b"]);
    let parsed = Command::parse(&good).unwrap();
    assert_eq!((parsed.argc, parsed.envc, parsed.cwd), (2, 1, c"/"));
    assert!(Command::parse(&good[..good.len() - 1]).is_err());
    assert!(Command::parse(&[good.clone(), vec![0]].concat()).is_err());
    assert!(Command::parse(&command(8, 1, &[b"sh"])).is_err(), "an unknown flag");
    assert!(Command::parse(&command(0, 0, &[b"A=b"])).is_err(), "no command");
}

proptest! {
    #[test]
    fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = Plan::parse(&bytes);
        let _ = Command::parse(&bytes);
        let _ = Message::decode(&bytes);
        let _ = Plan::parse(&[&MAGIC.to_le_bytes()[..], &bytes].concat());
    }
}
