use ringfence_authz::{PathRules, Policy};
use ringfence_ledger::{Lifecycle, TransactionStatus};
use ringfence_sandbox::files::{FileEdit, FileTree};
use ringfence_types::{
    Access, ActionFingerprint, Call, Decision, Limits, Patch, PatchedFile, PolicyLayer, Principal, Profile,
    Root, RuleId, WorkspaceId,
};

use super::super::content_vault::{FileVersions, sha256};
use super::*;
use crate::sandbox_rules::SandboxRules;

const OLD: &[u8] = b"old";
const NEW: &[u8] = b"new";

/// A process that died while applying: `a` is changed, `b` is created.
struct Dead {
    dir: tempfile::TempDir,
    ledger: Ledger,
    vault: ContentVault,
    id: TransactionId,
    changes: ChangeSet,
    journal: LandingJournal,
}

impl Dead {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(dir.path()).unwrap();
        fs::create_dir(root.join("w")).unwrap();
        fs::write(root.join("w/a"), OLD).unwrap();
        let ledger = Ledger::open(&root.join("state/ledger.db")).unwrap();
        let vault = ContentVault::new(&root.join("state"));
        let (id, session) = (TransactionId::random().unwrap(), SessionId::random().unwrap());
        let patch = Patch { files: vec![file("a", Some(OLD)), file("b", None)] };
        vault
            .keep(
                &id,
                &patch.files.iter().map(|file| (file.clone(), FileVersions::default())).collect::<Vec<_>>(),
            )
            .unwrap();
        for event in begun(&id, &session, &patch, &root.join("w")) {
            let _receipt = ledger.append(&event).unwrap();
        }
        let paths = PathRules::default();
        let rules = SandboxRules::new(&paths);
        let roots = [Root { path: ByteString::from(root.join("w")), access: Access::Write }];
        let edits = crate::pipeline::edits(&patch);
        let edits: Vec<FileEdit<'_>> = edits.into_iter().collect();
        let changes =
            FileTree::open(&roots, &rules).unwrap().plan(&root.join("w"), &edits, id.as_str()).unwrap();
        let journal = LandingJournal::begin(&vault, &id, &session).unwrap();
        Self { dir, ledger, vault, id, changes, journal }
    }

    fn enter(&mut self, phase: JournalPhase) {
        self.journal.enter(phase, Some(&self.changes)).unwrap();
    }

    fn stage(&mut self) {
        self.enter(JournalPhase::Staging);
        self.changes.stage(&[Some(NEW), Some(NEW)]).unwrap();
    }

    fn recover(&self) -> Vec<RecoveryOutcome> {
        let recovered = recover(&self.ledger, &self.dir.path().join("state"));
        recovered.into_iter().map(|one| one.unwrap().outcome).collect()
    }

    fn status(&self) -> TransactionStatus {
        let records = self.ledger.reader().unwrap().about(self.id.as_str()).unwrap();
        Lifecycle::of(records.iter().map(|record| &record.event)).unwrap().status()
    }

    fn files(&self) -> Vec<(String, Vec<u8>)> {
        let entries = fs::read_dir(self.dir.path().join("w")).unwrap().map(|entry| entry.unwrap().path());
        let mut files: Vec<_> = entries
            .map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read(&path).unwrap()))
            .collect();
        files.sort();
        files
    }

    #[track_caller]
    fn ends(&self, outcome: RecoveryOutcome, status: TransactionStatus) {
        assert_eq!(self.recover(), [outcome]);
        assert_eq!(self.status(), status);
        assert_eq!(self.recover(), [], "once");
        assert_eq!(fs::read_dir(self.vault.journals()).unwrap().count(), 0);
    }

    fn is_old(&self) {
        assert_eq!(self.files(), [("a".to_owned(), OLD.to_vec())]);
    }

    fn is_new(&self) {
        assert_eq!(self.files(), [("a".to_owned(), NEW.to_vec()), ("b".to_owned(), NEW.to_vec())]);
        assert!(!self.vault.contents(&self.id).exists());
    }
}

fn file(path: &str, base: Option<&[u8]>) -> PatchedFile {
    let result = Some(sha256(NEW));
    PatchedFile {
        path: ByteString::from(path),
        base: base.map(sha256),
        result,
        bytes: 3,
        secrets: Vec::new(),
    }
}

fn begun(id: &TransactionId, session: &SessionId, patch: &Patch, root: &Path) -> [Event; 2] {
    let call = Call::Apply(patch.clone());
    let policy = Policy::new(Profile::Workspace);
    let limits: Limits = policy.limits;
    [
        Event::ProposalCreated {
            transaction: id.clone(),
            session: session.clone(),
            workspace_id: WorkspaceId::of_canonical_path(root),
            workspace: ByteString::from(root),
            patch: patch.clone(),
            title: None,
            findings: Vec::new(),
            actor: Principal::System,
        },
        Event::CallIntended {
            transaction: id.clone(),
            session: session.clone(),
            fingerprint: ActionFingerprint::of(&call, &[]),
            call,
            decision: Decision::Allow,
            layer: PolicyLayer::Floor,
            rule: RuleId::PathOpen.into(),
            grant: None,
            profile: Profile::Workspace,
            policy_digest: String::new(),
            roots: Vec::new(),
            limits,
            findings: Vec::new(),
            call_origin: None,
        },
    ]
}

#[test]
fn before_the_exchange_everything_is_undone() {
    let dead = Dead::new();
    dead.ends(RecoveryOutcome::Undone, TransactionStatus::Interrupted);
    dead.is_old();
    let mut dead = Dead::new();
    dead.enter(JournalPhase::Staging);
    dead.ends(RecoveryOutcome::Undone, TransactionStatus::Interrupted);
    dead.is_old();
    let mut dead = Dead::new();
    dead.stage();
    assert_eq!(dead.files().len(), 3, "prepared files are there");
    dead.ends(RecoveryOutcome::Undone, TransactionStatus::Interrupted);
    dead.is_old();
    assert!(dead.vault.contents(&dead.id).exists(), "it can be proposed again");
}

#[test]
fn from_the_exchange_on_everything_is_finished() {
    let mut dead = Dead::new();
    dead.stage();
    dead.enter(JournalPhase::Swapping);
    dead.ends(RecoveryOutcome::Finished, TransactionStatus::Completed);
    dead.is_new();
    for phase in [JournalPhase::Swapping, JournalPhase::Done] {
        let mut dead = Dead::new();
        dead.stage();
        dead.enter(JournalPhase::Swapping);
        dead.changes.swap().unwrap();
        dead.enter(phase);
        dead.ends(RecoveryOutcome::Finished, TransactionStatus::Completed);
        dead.is_new();
    }
}

#[test]
fn an_undoing_that_was_cut_off_is_undone() {
    for swap in [JournalPhase::Staging, JournalPhase::Swapping] {
        let mut dead = Dead::new();
        dead.stage();
        if swap == JournalPhase::Swapping {
            dead.changes.swap().unwrap();
        }
        dead.enter(JournalPhase::Undoing);
        dead.ends(RecoveryOutcome::Undone, TransactionStatus::Interrupted);
        dead.is_old();
    }
}

#[test]
fn what_the_ledger_knows_is_not_said_twice() {
    let mut dead = Dead::new();
    dead.stage();
    dead.enter(JournalPhase::Swapping);
    dead.changes.swap().unwrap();
    dead.enter(JournalPhase::Done);
    let session = dead.journal.entry.session.clone();
    let settled = Event::CallSettled {
        transaction: dead.id.clone(),
        session,
        outcome: None,
        failure: None,
        delegated_to: None,
        notes: Vec::new(),
    };
    let _receipt = dead.ledger.append(&settled).unwrap();
    dead.ends(RecoveryOutcome::Finished, TransactionStatus::Completed);
    dead.is_new();
}

#[test]
fn the_work_of_a_living_process_is_left_alone() {
    let mut dead = Dead::new();
    dead.stage();
    let lock = File::open(dead.vault.contents(&dead.id)).unwrap();
    lock.lock().unwrap();
    assert_eq!(dead.recover(), []);
    assert_eq!((dead.files().len(), dead.status()), (3, TransactionStatus::InProgress));
    drop(lock);
    dead.ends(RecoveryOutcome::Undone, TransactionStatus::Interrupted);
}

/// A second process must wait, and must not report the outcome as unknown.
#[test]
fn the_work_of_another_start_is_waited_for() {
    let mut dead = Dead::new();
    let own = ProcessId::own().unwrap();
    dead.journal.entry.process = Some(ProcessId { start_time: own.start_time + 1, ..own });
    dead.stage();
    let lock = File::open(dead.vault.contents(&dead.id)).unwrap();
    lock.lock().unwrap();
    let released = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(std::time::Duration::from_millis(200));
            released.store(true, std::sync::atomic::Ordering::SeqCst);
            drop(lock);
        });
        dead.ends(RecoveryOutcome::Undone, TransactionStatus::Interrupted);
        assert!(released.load(std::sync::atomic::Ordering::SeqCst));
    });
    dead.is_old();
}

#[test]
fn what_somebody_changed_meanwhile_is_theirs() {
    let mut dead = Dead::new();
    dead.stage();
    dead.enter(JournalPhase::Swapping);
    fs::write(dead.dir.path().join("w/a"), "theirs").unwrap();
    dead.ends(RecoveryOutcome::FinishedBut(vec![PathBuf::from("a")]), TransactionStatus::Interrupted);
    assert_eq!(dead.files(), [("a".to_owned(), b"theirs".to_vec()), ("b".to_owned(), NEW.to_vec())]);
}

#[test]
fn a_workspace_that_is_gone_ends_it() {
    for (phase, outcome, status) in [
        (JournalPhase::Staging, RecoveryOutcome::Undone, TransactionStatus::Interrupted),
        (JournalPhase::Done, RecoveryOutcome::Finished, TransactionStatus::Completed),
    ] {
        let mut dead = Dead::new();
        dead.stage();
        dead.enter(phase);
        fs::remove_dir_all(dead.dir.path().join("w")).unwrap();
        dead.ends(outcome, status);
    }
}

#[test]
fn a_journal_that_is_not_what_the_ledger_says_is_not_acted_on() {
    type Forge = fn(&mut serde_json::Value, &Path);
    let forgeries: [Forge; 4] = [
        |changes, elsewhere| changes["root"] = serde_json::json!(elsewhere),
        |changes, _| changes["entries"][0]["spare"] = "../other".into(),
        |changes, _| changes["entries"][0]["name"] = "other".into(),
        |changes, _| changes["directories"] = serde_json::json!(["../other"]),
    ];
    for (number, forge) in forgeries.into_iter().enumerate() {
        let mut dead = Dead::new();
        dead.stage();
        let before = dead.files();
        let own = fs::read(&dead.journal.path).unwrap();
        let mut text: serde_json::Value = serde_json::from_slice(&own).unwrap();
        forge(&mut text["changes"], dead.dir.path());
        fs::write(&dead.journal.path, text.to_string()).unwrap();
        let recovered = recover(&dead.ledger, &dead.dir.path().join("state"));
        let refused =
            matches!(recovered.as_slice(), [Err(RecoveryError::Journal(JournalError::Unreadable { .. }))]);
        assert!(refused, "{number}: {recovered:?}");
        assert_eq!(dead.files(), before);
        fs::write(&dead.journal.path, own).unwrap();
        dead.ends(RecoveryOutcome::Undone, TransactionStatus::Interrupted);
    }
}

#[test]
fn a_journal_nobody_can_read_is_kept_and_told() {
    let dead = Dead::new();
    fs::write(&dead.journal.path, "{").unwrap();
    for _start in 0..2 {
        let recovered = recover(&dead.ledger, &dead.dir.path().join("state"));
        assert!(matches!(
            recovered.as_slice(),
            [Err(RecoveryError::Journal(JournalError::Unreadable { .. }))]
        ));
    }
    dead.is_old();
}
