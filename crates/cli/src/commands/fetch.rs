//! `ringfence fetch`: a page for an agent, through the pipeline.

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use ringfence_authz::env::ApproverPresence;
use ringfence_policy::StartupFlags;
use ringfence_runtime::{
    CallEnd, CommandIo, EffectOutput, FetchResponse, OutputTarget, Settled, StdinSource,
};
use ringfence_types::{ByteString, Call, FetchCall as Wanted};
use serde::Serialize;

use crate::approval::ControllingTerminal;
use crate::args::{FAILED, FetchArgs};
use crate::commands::run::{self, OutputText};
use crate::environment::Environment;
use crate::error;
use crate::leaks;
use crate::output::note;
use crate::policy_resolution::{self, PolicyResolutionError};

/// The server returned an error status.
const NO_PAGE: u8 = 1;

pub(crate) fn run(fetch: &FetchArgs) -> ExitCode {
    match settled(fetch) {
        Ok(settled) => told(fetch, settled),
        Err(code) => code,
    }
}

fn settled(fetch: &FetchArgs) -> Result<Settled, ExitCode> {
    let environment = Environment::read();
    let runtime = run::runtime(&environment, ApproverPresence::Unattended)?;
    let flags = StartupFlags {
        net: fetch.network.net,
        hosts: policy_resolution::hosts(&fetch.network)?,
        ..StartupFlags::default()
    };
    let governed = match policy_resolution::resolve(&fetch.place, &environment, runtime.setup(), flags) {
        Ok(governed) => governed,
        Err(PolicyResolutionError::Failed(code)) => return Err(code),
        Err(PolicyResolutionError::Refused(refusal)) => {
            return Err(match runtime.refuse(&refusal) {
                Ok(()) => error::refused(&refusal),
                Err(error) => error::failed(&error, None),
            });
        }
    };
    let opened = runtime.session(governed.session_spec());
    let opened = opened.map_err(|error| error::failed(&error, error.hint().as_deref()))?;
    let mut session = opened.map_err(|refusal| error::refused(&refusal))?;
    session.set_approver(ControllingTerminal::new(&environment));
    session.set_flow_approver(ControllingTerminal::new(&environment));
    let io = CommandIo {
        stdin: StdinSource::Empty,
        stdout: OutputTarget::Discard,
        stderr: OutputTarget::Discard,
        interrupts: &[],
        timeout: None,
        output_bytes: 0,
    };
    let call = Call::Fetch(Wanted::new(fetch.method.clone(), fetch.url.clone()));
    Ok(session.last_call(call, io))
}

fn told(fetch: &FetchArgs, settled: Settled) -> ExitCode {
    run::warn_unrecorded(&settled);
    if !matches!(settled.ended, CallEnd::Refused(_)) {
        leaks::tell(&settled.leaks);
    }
    match settled.ended {
        CallEnd::Touched(EffectOutput::Fetched(page)) => shown(fetch, page),
        CallEnd::Refused(refusal) => error::refused(&refusal),
        CallEnd::Failed { what, hint } => {
            error::failed_text(&ByteString::from(what.as_str()).display(), hint.as_deref())
        }
        CallEnd::Touched(_) | CallEnd::Executed(_) => ExitCode::from(FAILED),
    }
}

/// The result of `fetch --json`, schema 1.
#[derive(Serialize)]
struct FetchJson {
    schema: u32,
    status: u16,
    /// The final URL.
    url: String,
    redirects: usize,
    headers: Vec<(String, OutputText)>,
    body: OutputText,
}

fn shown(fetch: &FetchArgs, page: FetchResponse) -> ExitCode {
    let code = if page.status < 400 { ExitCode::SUCCESS } else { ExitCode::from(NO_PAGE) };
    if fetch.json {
        let headers = page.headers.into_iter().map(|(name, value)| (name, OutputText::from(value))).collect();
        let FetchResponse { status, url, redirects, body, .. } =
            FetchResponse { headers: Vec::new(), ..page };
        run::print_json(&FetchJson { schema: 1, status, url, redirects, headers, body: body.into() });
        return code;
    }
    if page.status >= 400 {
        note!("ringfence: the server answered with {}", page.status);
    }
    let stdout = std::io::stdout();
    let shown = if stdout.is_terminal() { on_terminal(&page.body).into_bytes() } else { page.body };
    match stdout.lock().write_all(&shown) {
        Ok(()) => code,
        Err(error) => error::failed_text(&format!("cannot write: {error}"), None),
    }
}

/// Keeps lines and tabs; escapes everything else that a terminal would interpret or hide.
fn on_terminal(page: &[u8]) -> String {
    let mut text = String::new();
    for part in page.split_inclusive(|byte| matches!(byte, b'\n' | b'\t')) {
        let (words, end) = match part {
            [words @ .., b'\r', b'\n'] | [words @ .., b'\n'] => (words, "\n"),
            [words @ .., b'\t'] => (words, "\t"),
            words => (words, ""),
        };
        text.push_str(&ByteString::from(words).display());
        text.push_str(end);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_does_nothing_to_a_terminal() {
        let page = b"one\ttwo\r\n\x1b]0;title\x07\n\xff\xe2\x80\xaethree\r";
        assert_eq!(on_terminal(page), "one\ttwo\n\\u{1b}]0;title\\u{7}\n\\xff\\u{202e}three\\r");
    }
}
