//! `ringfence fetch`: a page for an agent, through the pipeline.

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use ringfence_runtime::authz::env::Attendance;
use ringfence_runtime::authz::policy::Flags;
use ringfence_runtime::{Ended, FetchResponse, Io, Settled, Source, Target, Touched};
use ringfence_types::{Bytes, Call, Fetch as Wanted};
use serde::Serialize;

use crate::approval::Terminal;
use crate::args::{FAILED, Fetch};
use crate::asked::{self, Ungoverned};
use crate::commands::run::{self, Text};
use crate::environment::Environment;
use crate::error;
use crate::leaks;
use crate::output::note;

/// The server says that there is no such page.
const NO_PAGE: u8 = 1;

pub(crate) fn run(fetch: &Fetch) -> ExitCode {
    match settled(fetch) {
        Ok(settled) => told(fetch, settled),
        Err(code) => code,
    }
}

fn settled(fetch: &Fetch) -> Result<Settled, ExitCode> {
    let environment = Environment::read();
    let runtime = run::runtime(&environment, Attendance::Unattended)?;
    let flags = Flags { net: fetch.network.net, hosts: asked::hosts(&fetch.network)?, ..Flags::default() };
    let governed = match asked::governed(&fetch.place, &environment, runtime.setup(), flags) {
        Ok(governed) => governed,
        Err(Ungoverned::Failed(code)) => return Err(code),
        Err(Ungoverned::Refused(refusal)) => {
            return Err(match runtime.refuse(&refusal) {
                Ok(()) => error::refused(&refusal),
                Err(error) => error::failed(&error, None),
            });
        }
    };
    let opened = runtime.session(governed.asked());
    let opened = opened.map_err(|error| error::failed(&error, error.hint().as_deref()))?;
    let mut session = opened.map_err(|refusal| error::refused(&refusal))?;
    session.set_approver(Terminal::new(&environment));
    session.set_flow_approver(Terminal::new(&environment));
    let io = Io {
        stdin: Source::Empty,
        stdout: Target::Discard,
        stderr: Target::Discard,
        interrupts: &[],
        timeout: None,
        output_bytes: 0,
    };
    let call = Call::Fetch(Wanted::new(fetch.method.clone(), fetch.url.clone()));
    Ok(session.last_call(call, io))
}

fn told(fetch: &Fetch, settled: Settled) -> ExitCode {
    run::warn_unrecorded(&settled);
    if !matches!(settled.ended, Ended::Refused(_)) {
        leaks::tell(&settled.leaks);
    }
    match settled.ended {
        Ended::Touched(Touched::Fetched(page)) => shown(fetch, page),
        Ended::Refused(refusal) => error::refused(&refusal),
        Ended::Failed { what, hint } => {
            error::failed_text(&Bytes::from(what.as_str()).display(), hint.as_deref())
        }
        Ended::Touched(_) | Ended::Executed(_) => ExitCode::from(FAILED),
    }
}

/// The result of `fetch --json`, schema 1.
#[derive(Serialize)]
struct Report {
    schema: u32,
    status: u16,
    /// Where it came from in the end.
    url: String,
    redirects: usize,
    headers: Vec<(String, Text)>,
    body: Text,
}

fn shown(fetch: &Fetch, page: FetchResponse) -> ExitCode {
    let code = if page.status < 400 { ExitCode::SUCCESS } else { ExitCode::from(NO_PAGE) };
    if fetch.json {
        let headers = page.headers.into_iter().map(|(name, value)| (name, Text::from(value))).collect();
        let FetchResponse { status, url, redirects, body, .. } =
            FetchResponse { headers: Vec::new(), ..page };
        run::print_json(&Report { schema: 1, status, url, redirects, headers, body: body.into() });
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

/// Lines and tabs as they are; whatever else a terminal would act upon or hide as an escape.
fn on_terminal(page: &[u8]) -> String {
    let mut text = String::new();
    for part in page.split_inclusive(|byte| matches!(byte, b'\n' | b'\t')) {
        let (words, end) = match part {
            [words @ .., b'\r', b'\n'] | [words @ .., b'\n'] => (words, "\n"),
            [words @ .., b'\t'] => (words, "\t"),
            words => (words, ""),
        };
        text.push_str(&Bytes::from(words).display());
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
