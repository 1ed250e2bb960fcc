//! Both halves of the contract: what the encoder writes the launcher's parser reads, and nothing else.
#![expect(clippy::unwrap_used, reason = "the helpers of a test fail like the test")]

use std::ffi::CStr;

use proptest::prelude::*;
use ringfence_launch::command::{APPROVED, TERMINAL_IN, WireCommand};
use ringfence_launch::plan::{
    Encoder, FileIdentity, MAGIC, MalformedPlan, MountAccess, NulInside, Plan, PlanOp, Writer,
};
use ringfence_launch::step::LaunchStep;
use ringfence_launch::wire::{ControlMessage, LaunchReport, MESSAGE_SIZE};

const A: &CStr = c"a path/with 'quotes'\n";
const B: &CStr = c"\xff\xfe";

fn every_operation() -> Vec<PlanOp<'static>> {
    vec![
        PlanOp::Hostname { name: A },
        PlanOp::Loopback,
        PlanOp::Netlink { protocol: 12, messages: b"messages\0with zeros\0" },
        PlanOp::NetNamespace,
        PlanOp::Door { kind: 1, address: &[2, 0, 0, 53, 127, 0, 0, 1] },
        PlanOp::Stage,
        PlanOp::WholeMachine,
        PlanOp::Directory { path: A, mode: 0o755 },
        PlanOp::Symlink { path: A, target: B },
        PlanOp::File { path: A, mode: 0o400, content: b"content\0with zero" },
        PlanOp::Bind { source: A, target: B },
        PlanOp::Seal,
        PlanOp::Tmpfs { target: A, bytes: u64::MAX, mode: 0o1777 },
        PlanOp::Device { source: A, target: B },
        PlanOp::Proc { target: A },
        PlanOp::Devpts { target: A },
        PlanOp::ReadOnly { target: A },
        PlanOp::Expect { path: A, identity: FileIdentity { device: 7, inode: 8 } },
        PlanOp::Root {
            source: A,
            target: B,
            access: MountAccess::Write,
            identity: FileIdentity { device: 5, inode: 6 },
        },
        PlanOp::Root {
            source: A,
            target: B,
            access: MountAccess::Read,
            identity: FileIdentity { device: 7, inode: u64::MAX },
        },
        PlanOp::Root {
            source: A,
            target: B,
            access: MountAccess::System,
            identity: FileIdentity { device: 8, inode: 9 },
        },
        layered_root(),
        PlanOp::Beneath { target: A },
        PlanOp::Pin { path: A },
        PlanOp::Freeze { path: A },
        PlanOp::Protect { path: A },
        PlanOp::Replace { path: A, source: B },
        PlanOp::Mask { path: A },
        PlanOp::MaskVisible { path: A },
        PlanOp::Hide { path: A },
        PlanOp::Pivot,
        PlanOp::Rlimit { resource: 7, soft: 1, hard: 2 },
        PlanOp::LandlockRuleset { fs: 1, net: 2, scoped: 3 },
        PlanOp::LandlockAllow { path: A, access: 4 },
        PlanOp::Seccomp { program: &[1, 2, 3, 4, 5, 6, 7, 8] },
    ]
}

fn layered_root() -> PlanOp<'static> {
    let identity = FileIdentity { device: 10, inode: 11 };
    PlanOp::LayeredRoot { source: A, target: B, identity, upper: c"upper, with \\ and :", work: c"work" }
}

fn encoded(operations: &[PlanOp<'_>]) -> Vec<u8> {
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
        [PlanOp::Seal, PlanOp::Bind { source: A, target: A }],
        [PlanOp::Pivot, PlanOp::Mask { path: A }],
        [PlanOp::Pivot, PlanOp::Beneath { target: A }],
        [PlanOp::Mask { path: A }, layered_root()],
        [PlanOp::Pivot, layered_root()],
        [PlanOp::Pivot, PlanOp::MaskVisible { path: A }],
        [PlanOp::Seccomp { program: &[] }, PlanOp::LandlockAllow { path: A, access: 1 }],
        [
            PlanOp::LandlockRuleset { fs: 1, net: 0, scoped: 0 },
            PlanOp::Rlimit { resource: 0, soft: 0, hard: 0 },
        ],
        [PlanOp::Pivot, PlanOp::File { path: A, mode: 0, content: b"" }],
        [PlanOp::Door { kind: 1, address: b"" }, PlanOp::Netlink { protocol: 0, messages: b"" }],
        [PlanOp::Stage, PlanOp::Door { kind: 1, address: b"" }],
    ] {
        assert_eq!(Plan::parse(&encoded(&backwards)).err(), Some(MalformedPlan), "{backwards:?}");
    }
    let next_root = [
        PlanOp::Beneath { target: A },
        PlanOp::Mask { path: A },
        PlanOp::Beneath { target: B },
        PlanOp::Pin { path: B },
    ];
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
    let achieved = LaunchReport {
        no_new_privs: 1,
        seccomp_mode: 2,
        capabilities_empty: 1,
        landlock: 1,
        cgroups: 3,
        socket_bytes: 4,
    };
    for message in [
        ControlMessage::Start { namespaces: 1, uid: 2, gid: 3, cgroups: 4 },
        ControlMessage::Plan { length: 5 },
        ControlMessage::Run { id: 6, length: 7 },
        ControlMessage::Signal { id: 8, signal: 9 },
        ControlMessage::Kill { id: 10 },
        ControlMessage::Started { pid: 11 },
        ControlMessage::Ready(achieved),
        ControlMessage::Failed { step: 12, operation: 13, errno: 14 },
        ControlMessage::Terminal { id: 15 },
        ControlMessage::NotExecuted { id: 16, errno: 17 },
        ControlMessage::Exited {
            id: 18,
            status: 19,
            user_us: 20,
            system_us: 21,
            max_rss_kib: 22,
            tmp_full: 1,
        },
        ControlMessage::LeaderLost { id: 23 },
        ControlMessage::UserNamespace,
        ControlMessage::MountNamespace,
        ControlMessage::Repair { length: 24 },
        ControlMessage::Repaired,
        ControlMessage::NetNamespace,
        ControlMessage::Door,
        ControlMessage::Outfit { length: 25 },
        ControlMessage::Outfitted,
        ControlMessage::Listener { id: 26 },
    ] {
        assert_eq!(ControlMessage::decode(&message.encode()), Some(message));
    }
    assert_eq!(ControlMessage::decode(&[0; MESSAGE_SIZE]), None);
    assert_eq!(ControlMessage::decode(&[1; MESSAGE_SIZE - 1]), None);
}

#[test]
fn every_step_has_a_number_and_words() {
    for step in LaunchStep::ALL {
        assert_eq!(LaunchStep::from_wire(step as u32), Some(step));
        assert!(!step.describe().is_empty());
    }
    assert_eq!(LaunchStep::from_wire(0), None);
    assert!(LaunchStep::ALL.is_sorted());
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
    let parsed = WireCommand::parse(&good).unwrap();
    assert_eq!((parsed.argc, parsed.envc, parsed.cwd), (2, 1, c"/"));
    assert!(WireCommand::parse(&good[..good.len() - 1]).is_err());
    assert!(WireCommand::parse(&[good.clone(), vec![0]].concat()).is_err());
    assert!(WireCommand::parse(&command(32, 1, &[b"sh"])).is_err(), "an unknown flag");
    assert!(WireCommand::parse(&command(0, 0, &[b"A=b"])).is_err(), "no command");
}

#[test]
fn an_approved_command_says_what_was_approved() {
    let mut out = Writer::default();
    [APPROVED, 24, 80, 1, 0].into_iter().for_each(|word| out.short(word));
    out.string(c"/");
    out.blob(b"filter");
    out.string(c"/w/run.sh");
    out.number(9);
    out.string(c"./run.sh");
    let approved = WireCommand::parse(&out.bytes).unwrap().approved.unwrap();
    assert_eq!((approved.filter, approved.program), (&b"filter"[..], c"/w/run.sh"));
    assert_eq!(approved.program_length, 9);
    assert!(WireCommand::parse(&command(APPROVED, 1, &[b"sh"])).is_err(), "nothing says what was approved");
}

proptest! {
    #[test]
    fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = Plan::parse(&bytes);
        let _ = WireCommand::parse(&bytes);
        let _ = ControlMessage::decode(&bytes);
        let _ = Plan::parse(&[&MAGIC.to_le_bytes()[..], &bytes].concat());
    }

    /// What the parser accepts can be read to its end, also where a valid plan was changed in one place.
    #[test]
    fn a_changed_plan_is_refused_or_read_whole(place in any::<proptest::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = encoded(&every_operation());
        let place = place.index(bytes.len());
        bytes[place] = byte;
        if let Ok(plan) = Plan::parse(&bytes) {
            let mut operations = plan.operations();
            while operations.next_op().unwrap().is_some() {}
        }
    }
}
