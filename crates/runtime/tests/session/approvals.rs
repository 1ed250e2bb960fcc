//! Questions in a session: who is asked, how often, and what an answer is good for.

use std::cell::Cell;
use std::fs;
use std::rc::Rc;

use ringfence_runtime::authz::env::Attendance;
use ringfence_runtime::authz::{Answer, Policy, Question};
use ringfence_runtime::{Approver, Asked, Ended, Io, Runtime, Settled, Setup, Source, Target};
use ringfence_types::{Call, FileCall, Profile};
use sha2::{Digest as _, Sha256};

/// Says the same to everything, and counts.
#[derive(Debug)]
struct Same {
    answer: Answer,
    asked: Rc<Cell<u32>>,
}

impl Approver for Same {
    fn ask(&mut self, _question: &Question) -> Answer {
        self.asked.set(self.asked.get() + 1);
        self.answer.clone()
    }
}

fn write(path: &str, content: &[u8]) -> Call {
    let sha256 = Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect();
    Call::File(FileCall::Write { path: path.into(), sha256, bytes: content.len() as u64 })
}

fn rule(settled: &Settled) -> String {
    match &settled.ended {
        Ended::Refused(refusal) => refusal.rule.clone(),
        Ended::Touched(_) => "done".to_owned(),
        other => panic!("{other:?}"),
    }
}

/// What becomes of the same write twice and of another one, and how often somebody was asked.
fn twice(answer: Answer) -> ([String; 3], u32) {
    let world = tempfile::tempdir().unwrap();
    let root = world.path().canonicalize().unwrap();
    for directory in ["w", "home", "config"] {
        fs::create_dir(root.join(directory)).unwrap();
    }
    let runtime = Runtime::open(Setup {
        state_dir: root.join("state"),
        config_dir: root.join("config"),
        home: Some(root.join("home")),
        host_env: Vec::new(),
        attendance: Attendance::Unattended,
        toolchains: Vec::new(),
        files: Vec::new(),
    })
    .unwrap();
    let policy = Policy::new(Profile::Guarded);
    let asked = Asked { workspace: root.join("w"), policy, roots: Vec::new(), operator_file: None };
    let mut session = runtime.session(asked).unwrap().unwrap();
    let count = Rc::new(Cell::new(0));
    session.set_approver(Same { answer, asked: Rc::clone(&count) });
    let mut call = |content: &[u8]| {
        let io = Io {
            stdin: Source::Bytes(content),
            stdout: Target::Discard,
            stderr: Target::Discard,
            interrupts: &[],
            timeout: None,
            output_bytes: 0,
        };
        rule(&session.call(write("Makefile", content), io))
    };
    let ends = [call(b"all:\n"), call(b"all:\n"), call(b"other:\n")];
    (ends, count.get())
}

#[test]
fn s001_25_a_no_is_kept_for_the_session() {
    let (ends, asked) = twice(Answer::Deny);
    assert!(ends[0].starts_with("approval.denied: path.build-script"), "{ends:?}");
    assert_eq!(ends[1], "approval.denied-before");
    assert!(ends[2].starts_with("approval.denied: "), "other content is another question");
    assert_eq!(asked, 2);
}

#[test]
fn once_is_for_one_call_and_session_for_the_same_content() {
    assert_eq!(twice(Answer::Once), (["done", "done", "done"].map(str::to_owned), 3));
    assert_eq!(twice(Answer::Session), (["done", "done", "done"].map(str::to_owned), 2));
}

#[test]
fn nobody_is_not_a_no_for_later() {
    let (ends, asked) = twice(Answer::Unreachable);
    assert!(ends.iter().all(|end| end.starts_with("approval.unreachable")), "{ends:?}");
    assert_eq!(asked, 3);
}
