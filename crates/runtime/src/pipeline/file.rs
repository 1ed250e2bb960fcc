//! The in-process file tools: the same pipeline, the same answers as a shell inside the fence.

use std::path::{Path, PathBuf};

use memchr::memmem;
use ringfence_authz::{Grant, Permissions, View};
use ringfence_egress::FetchResponse;
use ringfence_sandbox::files::{FileError, FileRefusal, Listed, Status, Tree};
use ringfence_sandbox::{Filter as _, Flow, Io, Source};
use ringfence_types::{Bytes, FileCall, Layer, Refusal, RefusalCode};
use sha2::{Digest as _, Sha256};

use super::decided::chain;
use super::settled::Ended;
use crate::leaks::{Actions, OutputFilter};
use crate::rules::WorkspaceRules;
use crate::session::AgentSession;

/// The most that one read returns (S002-15).
const MAX_READ: u64 = 25 * 1024 * 1024;

/// The rule that a directory is listed as a whole or not at all.
pub const TOO_MANY: &str = "path.too-many";

/// How every mark begins that stands for a secret.
const MARK: &[u8] = b"[redacted:";

/// What an operation of the tools of this process gave.
#[derive(Debug)]
pub enum Touched {
    Read(Vec<u8>),
    Written,
    Listed(Vec<Listed>),
    Linked,
    Looked(Status),
    Moved,
    Removed,
    /// Every file of a proposal.
    Applied,
    /// A page.
    Fetched(FetchResponse),
}

pub(super) fn perform(
    call: &FileCall,
    grant: &Grant,
    session: &AgentSession<'_>,
    io: Io<'_>,
) -> Result<Touched, Ended> {
    let rules = WorkspaceRules::of_call(&session.policy, grant).own(&session.runtime.setup.own);
    let permissions = grant.permissions();
    let opened = match permissions.view {
        View::Constructed => Tree::open(&permissions.roots, &rules),
        View::WholeMachine => Tree::machine(&permissions.roots, &closed(permissions, session)),
    };
    let tree = opened
        .map_err(|error| Ended::Failed { what: chain(&error), hint: None })?
        .leaving(session.left.paths.clone());
    let cwd = &session.workspace.path;
    let absolute = |path: &Path| cwd.join(path);
    let done = match call {
        FileCall::Read { path } | FileCall::Send { path } => {
            let room = |bytes| session.weigh(bytes);
            tree.read_with_room(&absolute(path.as_path()), MAX_READ, room).map(Touched::Read)
        }
        FileCall::List { path } => tree.list(&absolute(path.as_path())).map(Touched::Listed),
        FileCall::Symlink { path, target } => {
            tree.symlink(&absolute(path.as_path()), target.as_path()).map(|()| Touched::Linked)
        }
        FileCall::Stat { path } => tree.stat(&absolute(path.as_path())).map(Touched::Looked),
        FileCall::Move { path, to } => {
            tree.rename(&absolute(path.as_path()), &absolute(to.as_path())).map(|()| Touched::Moved)
        }
        FileCall::Remove { path } => tree.remove(&absolute(path.as_path())).map(|()| Touched::Removed),
        FileCall::Write { path, sha256, .. } => {
            let content = judged_content(io, sha256)?;
            refuse_loss(content, (&tree, &absolute(path.as_path())), session)?;
            tree.write(&absolute(path.as_path()), content).map(|()| Touched::Written)
        }
    };
    done.map_err(ended)
}

/// What no profile opens to a tool of this process: credential stores, and what Ringfence itself keeps.
fn closed(permissions: &Permissions, session: &AgentSession<'_>) -> Vec<PathBuf> {
    let setup = session.runtime.setup();
    let hidden = permissions.hidden.iter().map(|path| path.as_path().to_owned());
    hidden.chain([setup.state_dir.clone(), setup.config_dir.clone()]).collect()
}

/// What is written is what was judged: the digest in the call is the digest of these bytes.
fn judged_content<'a>(io: Io<'a>, sha256: &str) -> Result<&'a [u8], Ended> {
    let content = match io.stdin {
        Source::Bytes(bytes) => bytes,
        Source::Empty | Source::Fd(_) | Source::Terminal(_) | Source::Begun { .. } => &[],
    };
    let digest: String = ringfence_types::hex(Sha256::digest(content));
    if digest == sha256 {
        return Ok(content);
    }
    let what = "the content is not the content that was judged".to_owned();
    Err(Ended::Failed { what, hint: None })
}

/// Whoever reads a file gets it with marks where secrets are. Written back, the marks would be what is left of the secrets.
fn refuse_loss(
    content: &[u8],
    (tree, path): (&Tree<'_>, &Path),
    session: &AgentSession<'_>,
) -> Result<(), Ended> {
    let marks = |text: &[u8]| memmem::find_iter(text, MARK).count();
    if marks(content) == 0 {
        return Ok(());
    }
    // From what is not there, or not for whoever asks, nothing was taken out.
    let Ok(before) = tree.read(path, MAX_READ) else { return Ok(()) };
    let marked = marks(&before);
    if marks(content) <= marked || marks(&as_read(&before, session)) <= marked {
        return Ok(());
    }
    let place = session.leaks.text(&Bytes::from(path).display());
    Err(Ended::Refused(Refusal {
        code: RefusalCode::Secret,
        layer: Layer::Floor,
        rule: "leaks.marks".to_owned(),
        message: format!("`{place}` has a secret where this has `[redacted:…]`, and would lose it"),
        hint: Some("change it with a command inside the fence, such as `sed -i` or `patch`".to_owned()),
    }))
}

fn as_read(content: &[u8], session: &AgentSession<'_>) -> Vec<u8> {
    let mut filter = OutputFilter::new(&session.leaks, Actions::output(&session.policy.leaks), "");
    let mut clean = Vec::new();
    if filter.push(content, &mut clean) == Flow::On {
        // What is cut off where it ends has no more marks.
        let _cut_off = filter.finish(&mut clean);
    }
    clean
}

pub(super) fn ended(error: FileError) -> Ended {
    match &error {
        FileError::Refused { refusal, .. } => {
            Ended::Refused(Refusal { message: error.to_string(), ..refusal_of(*refusal) })
        }
        FileError::Io { .. } => Ended::Failed { what: chain(&error), hint: None },
    }
}

/// A no of the file tools as the answer to a call, without the path.
pub(crate) fn refusal_of(refusal: FileRefusal) -> Refusal {
    Refusal {
        code: RefusalCode::Path,
        layer: Layer::Floor,
        rule: rule_of(refusal).to_owned(),
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

fn rule_of(refusal: FileRefusal) -> &'static str {
    match refusal {
        FileRefusal::Outside => "path.outside",
        FileRefusal::NotLeft => "path.not-left",
        FileRefusal::Hidden => "path.hidden",
        FileRefusal::Protected => "path.protected",
        FileRefusal::ReadOnly => "path.read-only",
        FileRefusal::HardLinked => "path.hard-linked",
        FileRefusal::DanglingLink => "path.dangling-link",
        FileRefusal::Link => "path.link",
        FileRefusal::NotRegular => "path.not-regular",
        FileRefusal::NotDirectory => "path.not-directory",
        FileRefusal::TooLarge => "path.too-large",
        FileRefusal::TooMany => TOO_MANY,
        FileRefusal::Exists => "path.exists",
        FileRefusal::Malformed => "path.malformed",
    }
}
