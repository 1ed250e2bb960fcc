//! Enforcement of attenuated tokens.
//!
//! INVARIANT: the table of methods says what each method is held to. A request that does not show its target is refused
//! to every attenuated token.

use std::path::Path;

use ringfence_api::{ApiError, ExplainRequest, ExplainSubject, MethodTarget, Request};
use ringfence_authz::hosts::sought;
use ringfence_types::{
    Attenuation, ByteString, Call, CommandPrefix, FetchCall, HostRestriction, RuleId, Subtree,
};

use crate::admit::authenticate::forbidden;

pub(crate) const RULE: RuleId = RuleId::IdentityAttenuated;

/// What a request costs of the call budget of its token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BudgetCharge {
    OneCall,
    Nothing,
}

/// Checks a request against the attenuation of its token, by name and before any approval. Links and redirects are
/// checked again by the code that follows them.
pub(crate) fn hold(
    request: &Request,
    left: &Attenuation,
    root: Option<&Path>,
) -> Result<BudgetCharge, ApiError> {
    let missing = match request.method().reach() {
        MethodTarget::Nothing(_) => return Ok(BudgetCharge::Nothing),
        // Session tokens never get this far, and no other kind is attenuated.
        MethodTarget::Machine | MethodTarget::Workspaces if left.is_none() => {
            return Ok(BudgetCharge::Nothing);
        }
        MethodTarget::Machine | MethodTarget::Workspaces => Some("method"),
        MethodTarget::Path => path_beyond(left, root, &paths(request)),
        MethodTarget::Host => host_beyond(left, url(request)),
        MethodTarget::Command => command_beyond(left, argv(request)),
        // The call of another token may have more rights: its shell would act for this token, and its output would be
        // readable.
        MethodTarget::Call => (!left.is_none()).then_some("call"),
    };
    match missing {
        Some(what) => Err(forbidden(RULE, &without(what))),
        None => Ok(BudgetCharge::OneCall),
    }
}

/// Why an `explain` request would be refused for this token.
pub(crate) fn would_refuse(asked: &ExplainRequest, left: &Attenuation, root: &Path) -> Option<String> {
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

/// The paths a request names. `None` is the workspace.
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
        Request::CallFetch(fetch) => Some(&fetch.url),
        _ => None,
    }
}

fn argv(request: &Request) -> Option<&[String]> {
    match request {
        Request::CallExec(exec) | Request::CallExecStream(ringfence_api::ExecStreamRequest(exec)) => {
            Some(&exec.argv)
        }
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
        let call = Call::Fetch(FetchCall::new("GET".to_owned(), url.to_owned()));
        sought(&call).is_some_and(|host| left.hosts.has(&HostRestriction::new(&host)))
    };
    (!left.hosts.is_any() && !url.is_some_and(is_left)).then_some("host")
}

/// A command can open every visible file and reach every allowed host. A token limited to some paths or hosts therefore
/// runs no command.
fn command_beyond(left: &Attenuation, argv: Option<&[String]>) -> Option<&'static str> {
    let is_left = |argv: &[String]| {
        let argv: Vec<_> = argv.iter().map(|word| ByteString::from(word.as_str())).collect();
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
