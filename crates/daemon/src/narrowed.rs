//! What was taken away from a token before it was handed on.
//!
//! INVARIANT: what a method is held to is said in the table of methods. A request that does not show what its method is held to is
//! refused to whoever does not have all of it.

use std::path::Path;

use ringfence_api::{ApiError, Explain, ExplainSubject, Reach, Request};
use ringfence_runtime::authz::hosts::sought;
use ringfence_types::{Attenuation, Bytes, Call, CommandPrefix, Fetch, HostLimit, Subtree};

use crate::authenticate::forbidden;

pub(crate) const RULE: &str = "identity.attenuated";

/// Of a request that a token was let in with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spends {
    OneCall,
    Nothing,
}

/// Whether a token may still ask this, in a session whose workspace is here. By name, and so before anybody is asked: where a link
/// or a redirect leads is known to whoever follows it, who looks again.
pub(crate) fn hold(request: &Request, left: &Attenuation, root: Option<&Path>) -> Result<Spends, ApiError> {
    let missing = match request.method().reach() {
        Reach::Nothing(_) => return Ok(Spends::Nothing),
        // No token of an agent comes this far, and no other is handed on.
        Reach::Machine | Reach::Workspaces if left.is_none() => return Ok(Spends::Nothing),
        Reach::Machine | Reach::Workspaces => Some("method"),
        Reach::Path => path_beyond(left, root, &paths(request)),
        Reach::Host => host_beyond(left, url(request)),
        Reach::Command => command_beyond(left, argv(request)),
        // A shell that others have started would do for it what it may not do itself, and what they have read would be read by it.
        Reach::Call => (!left.is_none()).then_some("call"),
    };
    match missing {
        Some(what) => Err(forbidden(RULE, &without(what))),
        None => Ok(Spends::OneCall),
    }
}

/// Why what is only asked about would be refused for who asks.
pub(crate) fn would_refuse(asked: &Explain, left: &Attenuation, root: &Path) -> Option<String> {
    let missing = match &asked.subject {
        ExplainSubject::Argv(argv) => command_beyond(left, Some(argv)),
        ExplainSubject::Shell(text) => {
            let argv = ["sh", "-c", text].map(str::to_owned);
            command_beyond(left, Some(&argv))
        }
        ExplainSubject::Read(path) | ExplainSubject::Write(path) => {
            path_beyond(left, Some(root), &[Some(path.as_ref())])
        }
        ExplainSubject::Url(url) => host_beyond(left, Some(url)),
        ExplainSubject::Tool(_) => None,
    };
    missing.map(without)
}

fn without(what: &str) -> String {
    format!("the token was handed on without this {what}")
}

/// The files that a request names; `None` is the workspace.
fn paths(request: &Request) -> Vec<Option<&Path>> {
    match request {
        Request::FileRead(read) => vec![Some(&read.path)],
        Request::FileWrite(write) => vec![Some(&write.path)],
        Request::FileList(list) => vec![list.path.as_deref()],
        Request::FileStat(stat) => vec![Some(&stat.path)],
        Request::FileMove(moved) => vec![Some(&moved.path), Some(&moved.to)],
        Request::FileRemove(removed) => vec![Some(&removed.path)],
        Request::FileUpload(upload) => vec![Some(&upload.path)],
        Request::FileDownload(download) => vec![Some(&download.path)],
        Request::FileSend(send) => vec![Some(&send.path)],
        _ => Vec::new(),
    }
}

fn url(request: &Request) -> Option<&str> {
    match request {
        Request::Fetch(fetch) => Some(&fetch.url),
        _ => None,
    }
}

fn argv(request: &Request) -> Option<&[String]> {
    match request {
        Request::CallExec(exec) | Request::CallRun(ringfence_api::RunCommand(exec)) => Some(&exec.argv),
        _ => None,
    }
}

fn path_beyond(left: &Attenuation, root: Option<&Path>, paths: &[Option<&Path>]) -> Option<&'static str> {
    let is_left = |path: &Option<&Path>| {
        let whole = root.map(|root| path.map_or_else(|| root.to_owned(), |path| root.join(path)));
        whole.and_then(|path| Subtree::new(&path).ok()).is_some_and(|path| left.paths.has(&path))
    };
    let are_left = !paths.is_empty() && paths.iter().all(is_left);
    (!left.paths.is_any() && !are_left).then_some("path")
}

fn host_beyond(left: &Attenuation, url: Option<&str>) -> Option<&'static str> {
    let is_left = |url: &str| {
        let call = Call::Fetch(Fetch::new("GET".to_owned(), url.to_owned()));
        sought(&call).is_some_and(|host| left.hosts.has(&HostLimit::new(&host)))
    };
    (!left.hosts.is_any() && !url.is_some_and(is_left)).then_some("host")
}

/// What runs can open any file that the fence shows and reach any host that it leaves, so that a token for some of them runs
/// nothing.
fn command_beyond(left: &Attenuation, argv: Option<&[String]>) -> Option<&'static str> {
    let is_left = |argv: &[String]| {
        let argv: Vec<_> = argv.iter().map(|word| Bytes::from(word.as_str())).collect();
        left.commands.has(&CommandPrefix::of_argv(&argv))
    };
    if !left.commands.is_any() && !argv.is_some_and(is_left) {
        return Some("command");
    }
    if !left.paths.is_any() {
        return Some("path");
    }
    (!left.hosts.is_any()).then_some("host")
}
