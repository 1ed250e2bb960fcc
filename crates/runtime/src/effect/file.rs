//! The file effect: in-process file tools with the same pipeline and the same answers as a shell inside the
//! fence.

use std::path::{Path, PathBuf};

use memchr::memmem;
use ringfence_authz::{Authorization, CallPermissions, FilesystemView};
use ringfence_egress::FetchResponse;
use ringfence_sandbox::files::{FileError, FileRefusal, FileStat, FileTree, ListedEntry};
use ringfence_sandbox::{CommandIo, FilterAction, StdinSource, StreamFilter as _};
use ringfence_types::{ByteString, Call, FileCall, PolicyLayer, Refusal, RefusalCode, RuleId};
use sha2::{Digest as _, Sha256};

use super::{Effect, Perform, held_changes};
use crate::layer::LandingOutcome;
use crate::leaks::{OutputFilter, SinkActions};
use crate::pipeline::{Admitted, CallEnd, Running, Settled, chain};
use crate::quota::Room;
use crate::sandbox_rules::{HostFiles, SandboxRules};
use crate::session::AgentSession;

/// Limit of bytes in one read (S002-15).
const MAX_READ: u64 = 25 * 1024 * 1024;

/// Rule for listing a directory: completely or not at all.
pub const TOO_MANY: RuleId = RuleId::PathTooMany;

/// Prefix of every redaction mark.
const MARK: &[u8] = b"[redacted:";

/// Result of an in-process operation.
#[derive(Debug)]
pub enum EffectOutput {
    Read(Vec<u8>),
    Written,
    Listed(Vec<ListedEntry>),
    Linked,
    Looked(FileStat),
    Moved,
    Removed,
    /// Every file of a proposal was applied.
    Applied,
    /// The changes of a layer are in the roots, or out of them.
    Landed(LandingOutcome),
    Fetched(FetchResponse),
}

#[derive(Debug)]
pub struct FileEffect;

impl Effect for FileEffect {
    fn can_become(call: &Call) -> bool {
        matches!(call, Call::File(_))
    }
}

impl Perform for FileEffect {
    fn perform(admitted: Admitted<Self>, session: &mut AgentSession<'_>, io: CommandIo<'_>) -> Settled {
        let running = match admitted.start(session) {
            Ok(running) => running,
            Err(settled) => return settled,
        };
        let Call::File(call) = running.call() else {
            let what = "the call is not one about a file".to_owned();
            return running.settling.failed(session, what, None);
        };
        if let Some(refusal) = over_quota(running.grant(), session) {
            return running.settling.refused(session, refusal);
        }
        let before = match held_changes::before(running.grant(), session) {
            Ok(before) => before,
            Err(ended) => return running.settling.touched(session, Err(ended)),
        };
        let done = touch(&running, call, session, io);
        let (changes, looked) = held_changes::after(before, session);
        let done = done.and_then(|touched| looked.map(|()| touched));
        let done = done.and_then(|touched| readable(touched, call, session));
        running.settling.touched(session, done).with_held(&changes, &session.leaks)
    }
}

fn touch(
    running: &Running<FileEffect>,
    call: &FileCall,
    session: &AgentSession<'_>,
    io: CommandIo<'_>,
) -> Result<EffectOutput, CallEnd> {
    let grant = running.grant();
    let rules = SandboxRules::of_call(&session.policy, grant).host(HostFiles::of(&session.runtime.setup));
    let permissions = grant.permissions();
    let opened = match permissions.view {
        FilesystemView::Constructed => FileTree::open(&permissions.roots, &rules),
        FilesystemView::WholeMachine => FileTree::machine(&permissions.roots, &closed(permissions, session)),
    };
    let tree = opened
        .map_err(|error| CallEnd::Failed { what: chain(&error), hint: None })?
        .leaving(session.left.paths.clone());
    let cwd = &session.workspace.path;
    let absolute = |path: &Path| cwd.join(path);
    let done = match call {
        FileCall::Read { path } | FileCall::Send { path } => {
            let room = |bytes| session.reserve_memory(bytes);
            tree.read_with_room(&absolute(path.as_path()), MAX_READ, room).map(EffectOutput::Read)
        }
        FileCall::List { path } => tree.list(&absolute(path.as_path())).map(EffectOutput::Listed),
        FileCall::Symlink { path, target } => {
            tree.symlink(&absolute(path.as_path()), target.as_path()).map(|()| EffectOutput::Linked)
        }
        FileCall::Stat { path } => tree.stat(&absolute(path.as_path())).map(EffectOutput::Looked),
        FileCall::Move { path, to } => {
            tree.rename(&absolute(path.as_path()), &absolute(to.as_path())).map(|()| EffectOutput::Moved)
        }
        FileCall::Remove { path } => tree.remove(&absolute(path.as_path())).map(|()| EffectOutput::Removed),
        FileCall::Write { path, sha256, .. } => {
            let content = judged_content(io, sha256)?;
            refuse_loss(content, &tree, &absolute(path.as_path()), session)?;
            tree.write(&absolute(path.as_path()), content).map(|()| EffectOutput::Written)
        }
    };
    done.map_err(ended)
}

/// Refuses a write that would exceed the disk quota.
pub(super) fn over_quota(grant: &Authorization, session: &AgentSession<'_>) -> Option<Refusal> {
    let bytes = match grant.action().call() {
        Call::File(FileCall::Write { bytes, .. }) => *bytes,
        Call::Apply(patch) => patch.files.iter().fold(0, |sum: u64, file| sum.saturating_add(file.bytes)),
        Call::Land(landing) => landing.bytes(),
        _ => return None,
    };
    Room::of(session, grant.permissions(), None)?.refuse(bytes)
}

/// File content read for an agent is scanned like command output.
fn readable(
    touched: EffectOutput,
    call: &FileCall,
    session: &mut AgentSession<'_>,
) -> Result<EffectOutput, CallEnd> {
    let EffectOutput::Read(content) = touched else { return Ok(touched) };
    let place = session.leaks.text(&call.path().display());
    let actions = match call {
        FileCall::Send { .. } => SinkActions::sent(&session.policy.leaks),
        _ => SinkActions::output(&session.policy.leaks),
    };
    cleaned(&content, &place, session, actions).map(EffectOutput::Read)
}

pub(super) fn cleaned(
    content: &[u8],
    place: &str,
    session: &mut AgentSession<'_>,
    actions: SinkActions,
) -> Result<Vec<u8>, CallEnd> {
    let mut filter = OutputFilter::new(&session.leaks, actions, place);
    let mut clean = Vec::new();
    let flow = match filter.push(content, &mut clean) {
        FilterAction::On => filter.finish(&mut clean),
        stopped => stopped,
    };
    session.found.merge(filter.tally());
    match flow {
        FilterAction::On => Ok(clean),
        FilterAction::Shut | FilterAction::Kill => Err(CallEnd::Refused(unreadable(place))),
    }
}

fn unreadable(place: &str) -> Refusal {
    Refusal {
        code: RefusalCode::Secret,
        layer: PolicyLayer::Operator,
        rule: RuleId::LeaksOutput.into(),
        message: format!("`{place}` has a secret in it, and the policy blocks that"),
        hint: Some("`ringfence policy show` says where; `ringfence scan` shows what was found".to_owned()),
    }
}

/// Paths that no profile opens to in-process tools: credential stores and Ringfence's own state.
fn closed(permissions: &CallPermissions, session: &AgentSession<'_>) -> Vec<PathBuf> {
    let setup = session.runtime.setup();
    let hidden = permissions.hidden.iter().map(|path| path.as_path().to_owned());
    hidden.chain([setup.state_dir.clone(), setup.config_dir.clone()]).collect()
}

/// Checks that the bytes match the digest in the evaluated call.
fn judged_content<'a>(io: CommandIo<'a>, sha256: &str) -> Result<&'a [u8], CallEnd> {
    let content = match io.stdin {
        StdinSource::Bytes(bytes) => bytes,
        StdinSource::Empty | StdinSource::Fd(_) | StdinSource::Terminal(_) | StdinSource::Begun { .. } => &[],
    };
    let digest: String = ringfence_types::hex(Sha256::digest(content));
    if digest == sha256 {
        return Ok(content);
    }
    let what = "the content is not the content that was judged".to_owned();
    Err(CallEnd::Failed { what, hint: None })
}

/// Refuses to write back redaction marks. An agent reads marks in place of secrets; written back, they would
/// destroy the secrets.
fn refuse_loss(
    content: &[u8],
    tree: &FileTree<'_>,
    path: &Path,
    session: &AgentSession<'_>,
) -> Result<(), CallEnd> {
    let marks = |text: &[u8]| memmem::find_iter(text, MARK).count();
    if marks(content) == 0 {
        return Ok(());
    }
    // A file that is missing or unreadable had nothing redacted.
    let Ok(before) = tree.read(path, MAX_READ) else { return Ok(()) };
    let marked = marks(&before);
    if marks(content) <= marked || marks(&as_read(&before, session)) <= marked {
        return Ok(());
    }
    let place = session.leaks.text(&ByteString::from(path).display());
    Err(CallEnd::Refused(Refusal {
        code: RefusalCode::Secret,
        layer: PolicyLayer::Floor,
        rule: RuleId::LeaksMarks.into(),
        message: format!("`{place}` has a secret where this has `[redacted:…]`, and would lose it"),
        hint: Some("change it with a command inside the fence, such as `sed -i` or `patch`".to_owned()),
    }))
}

fn as_read(content: &[u8], session: &AgentSession<'_>) -> Vec<u8> {
    let mut filter = OutputFilter::new(&session.leaks, SinkActions::output(&session.policy.leaks), "");
    let mut clean = Vec::new();
    if filter.push(content, &mut clean) == FilterAction::On {
        // A truncated end adds no marks.
        let _cut_off = filter.finish(&mut clean);
    }
    clean
}

pub(super) fn ended(error: FileError) -> CallEnd {
    match &error {
        FileError::Refused { refusal, .. } => {
            CallEnd::Refused(Refusal { message: error.to_string(), ..refusal_of(*refusal) })
        }
        FileError::Io { .. } => CallEnd::Failed { what: chain(&error), hint: None },
    }
}

/// Converts a refusal of the file tools, without the path.
pub(crate) fn refusal_of(refusal: FileRefusal) -> Refusal {
    Refusal {
        code: RefusalCode::Path,
        layer: PolicyLayer::Floor,
        rule: rule_of(refusal).into(),
        message: refusal.to_string(),
        hint: hint_of(refusal).map(str::to_owned),
    }
}

fn hint_of(refusal: FileRefusal) -> Option<&'static str> {
    match refusal {
        FileRefusal::Outside => Some("stay inside the workspace, or declare another root at startup"),
        FileRefusal::NotLeft => Some("stay inside the paths that the token was handed on with"),
        FileRefusal::Hidden => {
            Some("another name of it, a link to it or what is in it is hidden: look there")
        }
        FileRefusal::Protected => Some("edit it outside Ringfence"),
        FileRefusal::ReadOnly => Some("declare its root writable at startup"),
        FileRefusal::HardLinked => Some("make a copy of it and change that"),
        FileRefusal::DanglingLink | FileRefusal::Link => Some("name the file that it leads to"),
        FileRefusal::TooMany => Some("list a part of it with a command inside the fence, such as `find`"),
        FileRefusal::NotRegular
        | FileRefusal::NotDirectory
        | FileRefusal::TooLarge
        | FileRefusal::Exists
        | FileRefusal::Malformed => None,
    }
}

fn rule_of(refusal: FileRefusal) -> RuleId {
    match refusal {
        FileRefusal::Outside => RuleId::PathOutside,
        FileRefusal::NotLeft => RuleId::PathNotLeft,
        FileRefusal::Hidden => RuleId::PathHidden,
        FileRefusal::Protected => RuleId::PathProtected,
        FileRefusal::ReadOnly => RuleId::PathReadOnly,
        FileRefusal::HardLinked => RuleId::PathHardLinked,
        FileRefusal::DanglingLink => RuleId::PathDanglingLink,
        FileRefusal::Link => RuleId::PathLink,
        FileRefusal::NotRegular => RuleId::PathNotRegular,
        FileRefusal::NotDirectory => RuleId::PathNotDirectory,
        FileRefusal::TooLarge => RuleId::PathTooLarge,
        FileRefusal::TooMany => TOO_MANY,
        FileRefusal::Exists => RuleId::PathExists,
        FileRefusal::Malformed => RuleId::PathMalformed,
    }
}
