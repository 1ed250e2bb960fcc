//! The fetch effect: this process fetches a page for the agent. Each hop is a flow: evaluated, approved and
//! admitted as one.

use ringfence_egress::{FetchError, FetchResponse};
use ringfence_sandbox::CommandIo;
use ringfence_types::Call;

use super::file::cleaned;
use super::{Effect, EffectOutput, FlowSummary, Perform};
use crate::leaks::SinkActions;
use crate::pipeline::{Admitted, CallEnd, Running, Settled, chain};
use crate::proxy;
use crate::session::AgentSession;

#[derive(Debug)]
pub struct FetchEffect;

impl Effect for FetchEffect {
    fn can_become(call: &Call) -> bool {
        matches!(call, Call::Fetch(_))
    }
}

impl Perform for FetchEffect {
    fn perform(admitted: Admitted<Self>, session: &mut AgentSession<'_>, _io: CommandIo<'_>) -> Settled {
        let running = match admitted.start(session) {
            Ok(running) => running,
            Err(settled) => return settled,
        };
        let (done, seen) = fetch(&running, session);
        Settled { network: seen, ..running.settling.touched(session, done) }
    }
}

/// Fetches a page and redacts it.
fn fetch(
    running: &Running<FetchEffect>,
    session: &mut AgentSession<'_>,
) -> (Result<EffectOutput, CallEnd>, Option<FlowSummary>) {
    let failed = |what: String| CallEnd::Failed { what, hint: None };
    let (fetched, seen) = match proxy::fetch(session, running) {
        Ok(answer) => answer,
        Err(error) => return (Err(failed(chain(&error))), None),
    };
    let done = match fetched {
        Ok(page) => clean_page(page, session).map(EffectOutput::Fetched),
        Err(FetchError::Refused(refusal)) => Err(CallEnd::Refused(refusal)),
        Err(error) => Err(failed(error.to_string())),
    };
    (done, Some(seen))
}

/// Redacts everything the server wrote, including the final URL and the headers.
fn clean_page(page: FetchResponse, session: &mut AgentSession<'_>) -> Result<FetchResponse, CallEnd> {
    let place = session.leaks.text(&page.url);
    let url = clean(page.url.as_bytes(), &place, session)?;
    let mut headers = Vec::new();
    for (name, value) in &page.headers {
        let name = session.leaks.text(name);
        let value = clean(value, &format!("header {name} of {place}"), session)?;
        headers.push((name, value));
    }
    let body = clean(&page.body, &place, session)?;
    Ok(FetchResponse { url: String::from_utf8_lossy(&url).into_owned(), headers, body, ..page })
}

fn clean(content: &[u8], place: &str, session: &mut AgentSession<'_>) -> Result<Vec<u8>, CallEnd> {
    let actions = SinkActions::output(&session.policy.leaks);
    cleaned(content, place, session, actions)
}
