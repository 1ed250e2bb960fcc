use ringfence_ledger::{AppendError, ApprovalDecision, Event, Finding};
use ringfence_sandbox::RunError;
use ringfence_types::{
    Bytes, Call, Exec, Fetch, FileCall, Fingerprint, FlowCall, HeldChange, Outcome, Posture, Refusal,
    StandardInput, ToolCall, TransactionId,
};

use super::decided::{chain, describe};
use super::file::Touched;
use crate::approval::{Held, Redactor, STOPPED, STOPPED_LOOP, outcome_of};
use crate::leaks::{LeakScanner, Leaked};
use crate::network::Seen;
use crate::observe::Stage;
use crate::session::AgentSession;

/// What became of a call, and that it is written down.
#[derive(Debug)]
pub struct Settled {
    pub transaction: Option<TransactionId>,
    pub ended: Ended,
    /// What was enforced while it ran, as the sandbox reported it.
    pub posture: Option<Posture>,
    /// What went through the filtered network, and what did not.
    pub network: Option<Seen>,
    /// What whoever asked should know besides: that it goes round in circles.
    pub note: Option<String>,
    /// Secrets that were on their way out, and what became of them.
    pub leaks: Vec<Leaked>,
    /// What would have made a program of the host execute something, and was made ineffective.
    pub held: Vec<HeldChange>,
    /// Why the end could not be written down. Nothing is known of the intent either: a refusal has none, and a ledger that takes
    /// no record may have lost it.
    pub unrecorded: Option<String>,
}

#[derive(Debug)]
pub enum Ended {
    /// A command ran to its end.
    Executed(Outcome),
    /// A file operation was done.
    Touched(Touched),
    /// The answer was no.
    Refused(Refusal),
    /// We broke. Nothing is running.
    Failed { what: String, hint: Option<String> },
}

/// A call that was refused before anything happened.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) call: Call,
    pub(super) refusal: Refusal,
    /// Where a transaction was begun before the answer was no.
    pub(super) transaction: Option<TransactionId>,
}

impl Refused {
    pub(super) fn early(call: Call, refusal: Refusal) -> Self {
        Self { call, refusal, transaction: None }
    }

    /// With what was said about the no.
    pub(super) fn because(mut self, decision: &ApprovalDecision) -> Self {
        if let Some(reason) = &decision.reason {
            self.refusal.message.push_str(&format!(
                " ({}: {})",
                decision.by,
                Bytes::from(reason.as_str()).display()
            ));
        }
        self
    }

    pub(super) fn settle(self, session: &mut AgentSession<'_>) -> Settled {
        // It was never begun, so that what was found in it has no life to belong to.
        let (leaks, mut events) = found(session, None);
        events.push(refused(session, self.transaction.clone(), (&self.call, &self.refusal)));
        let fingerprint = Fingerprint::of(&self.call, &session.all_roots());
        let ended = Ended::Refused(session.leaks.refusal(&self.refusal));
        conclude(session, (events, leaks, self.transaction), (fingerprint, ended, None))
    }
}

/// A no as it may be written down: its words can hold what the call holds.
pub(super) fn refused(
    session: &AgentSession<'_>,
    transaction: Option<TransactionId>,
    (call, refusal): (&Call, &Refusal),
) -> Event {
    let recorded = for_the_record(call, &session.leaks);
    let redactor = Redactor::new(&recorded.secrets, Some(&session.leaks));
    let refusal = Refusal {
        message: redactor.clean(&refusal.message),
        hint: refusal.hint.as_deref().map(|hint| redactor.clean(hint)),
        ..refusal.clone()
    };
    let (id, by) = (Some(session.id.clone()), session.made_by.clone());
    let call = Some(recorded.call.bounded());
    Event::Refused { transaction, session: id, call, refusal, by }
}

/// Writes the end of a call down, in one step with what follows from it.
fn conclude(
    session: &mut AgentSession<'_>,
    (mut events, leaks, transaction): (Vec<Event>, Vec<Leaked>, Option<TransactionId>),
    (fingerprint, ended, posture): (Fingerprint, Ended, Option<Posture>),
) -> Settled {
    session.reach(Stage::Settle);
    let stopped = matches!(&ended, Ended::Refused(refusal) if refusal.rule == STOPPED_LOOP);
    // What was not done is no further round.
    let repeats =
        if stopped { None } else { session.common.memory().loops.note(&fingerprint, outcome_of(&ended)) };
    if let Some(repeats) = repeats {
        events.push(Event::LoopFound {
            session: session.id.clone(),
            fingerprint,
            repeats: u32::try_from(repeats).unwrap_or(u32::MAX),
            stopped: false,
        });
    }
    events.extend(session.ending());
    let unrecorded = session.append(events).err().map(|error: AppendError| describe(&error));
    let note = repeats.map(going_round);
    Settled { transaction, ended, posture, network: None, note, leaks, held: Vec::new(), unrecorded }
}

/// What was on its way out, and as it is written down.
fn found(session: &mut AgentSession<'_>, transaction: Option<&TransactionId>) -> (Vec<Leaked>, Vec<Event>) {
    let leaks = std::mem::take(&mut session.found).leaked();
    let event = |leaked: &Leaked| Event::Found {
        transaction: transaction.cloned(),
        session: session.id.clone(),
        action: leaked.action,
        findings: leaked.findings.clone(),
        more: leaked.more,
    };
    let events = leaks.iter().map(event).collect();
    (leaks, events)
}

fn going_round(repeats: usize) -> String {
    format!("the same came {repeats} times in a row with the same outcome; at {STOPPED} it is stopped")
}

/// What held a command in, and the stronger backends that could not be used for it.
struct Fenced {
    posture: Posture,
    passed_over: Vec<String>,
}

/// The fence of the session as it is recorded, and what is told of it.
fn fenced(session: &AgentSession<'_>) -> (Option<Fenced>, Option<String>) {
    let mut fence = session.common.fence();
    let (told, reasons) = (fence.tell_passed_over(), fence.passed_over.clone());
    let posture = fence.sandbox.as_ref().map(|sandbox| sandbox.posture().clone());
    drop(fence);
    let passed_over = reasons.iter().map(|reason| session.leaks.text(reason)).collect();
    let told = told.map(|told| session.leaks.text(&told));
    (posture.map(|posture| Fenced { posture, passed_over }), told)
}

/// A transaction whose intent is written and whose end is not yet.
#[derive(Debug)]
pub(super) struct Settling {
    pub(super) transaction: TransactionId,
    pub(super) fingerprint: Fingerprint,
    /// Says that this process works on it, where the session alone does not say which process that is.
    pub(super) held: Option<Held>,
}

impl Settling {
    pub(super) fn executed(
        self,
        session: &mut AgentSession<'_>,
        answer: Result<Outcome, &RunError>,
    ) -> Settled {
        let (fenced, told) = fenced(session);
        let ended = match answer {
            Ok(outcome) => Ended::Executed(outcome),
            Err(error) => Ended::Failed { what: chain(error), hint: None },
        };
        let mut settled = self.close(session, ended, fenced);
        let notes: Vec<String> = told.into_iter().chain(settled.note.take()).collect();
        settled.note = (!notes.is_empty()).then(|| notes.join("; "));
        settled
    }

    pub(super) fn touched(self, session: &mut AgentSession<'_>, done: Result<Touched, Ended>) -> Settled {
        let ended = match done {
            Ok(touched) => Ended::Touched(touched),
            Err(ended) => ended,
        };
        self.close(session, ended, None)
    }

    pub(super) fn refused(self, session: &mut AgentSession<'_>, refusal: Refusal) -> Settled {
        self.close(session, Ended::Refused(refusal), None)
    }

    pub(super) fn failed(
        self,
        session: &mut AgentSession<'_>,
        what: String,
        hint: Option<String>,
    ) -> Settled {
        self.close(session, Ended::Failed { what, hint }, None)
    }

    fn close(self, session: &mut AgentSession<'_>, ended: Ended, fenced: Option<Fenced>) -> Settled {
        let ended = clean(ended, &session.leaks);
        let mut events = Vec::new();
        let ids = || (self.transaction.clone(), session.id.clone());
        let posture = fenced.as_ref().map(|fenced| fenced.posture.clone());
        if let Some(Fenced { posture, passed_over }) = fenced {
            let (transaction, session) = ids();
            events.push(Event::Launched { transaction, session, posture, passed_over });
        }
        if let Ended::Executed(Outcome { limit_hit: Some(limit), .. }) = &ended {
            let (transaction, session) = ids();
            events.push(Event::LimitHit { transaction, session, limit: *limit });
        }
        let (leaks, found) = found(session, Some(&self.transaction));
        events.extend(found);
        let notes = match &ended {
            // Nothing is settled by it: they are told and written down with what is.
            Ended::Refused(_) => Vec::new(),
            _ => session.common.take_notes().iter().map(|note| session.leaks.text(note)).collect(),
        };
        events.push(self.event(session, &ended, &notes));
        let recorded = (events, leaks, Some(self.transaction));
        let mut settled = conclude(session, recorded, (self.fingerprint, ended, posture));
        if !notes.is_empty() {
            settled.note = Some(settled.note.into_iter().chain(notes).collect::<Vec<_>>().join("; "));
        }
        drop(self.held);
        settled
    }

    fn event(&self, session: &AgentSession<'_>, ended: &Ended, notes: &[String]) -> Event {
        let transaction = self.transaction.clone();
        let (outcome, failure) = match ended {
            Ended::Refused(refusal) => {
                return Event::Refused {
                    transaction: Some(transaction),
                    session: Some(session.id.clone()),
                    call: None,
                    refusal: refusal.clone(),
                    by: session.made_by.clone(),
                };
            }
            Ended::Executed(outcome) => (Some(outcome.clone()), None),
            Ended::Touched(_) => (None, None),
            Ended::Failed { what, .. } => (None, Some(what.clone())),
        };
        let (session, notes) = (session.id.clone(), notes.to_vec());
        Event::Settled { transaction, session, outcome, failure, left_to: None, notes }
    }
}

/// Words can hold what a call, a path or another program's error holds.
fn clean(ended: Ended, leaks: &LeakScanner) -> Ended {
    match ended {
        Ended::Refused(refusal) => Ended::Refused(leaks.refusal(&refusal)),
        Ended::Failed { what, hint } => {
            Ended::Failed { what: leaks.text(&what), hint: hint.map(|hint| leaks.text(&hint)) }
        }
        done @ (Ended::Executed(_) | Ended::Touched(_)) => done,
    }
}

/// A call as it may be written down.
#[derive(Debug)]
pub(crate) struct Recorded {
    /// Without secrets.
    pub(crate) call: Call,
    pub(crate) findings: Vec<Finding>,
    /// What was taken out. It stays in memory.
    pub(crate) secrets: Vec<Vec<u8>>,
}

/// Something that was taken out of a call, as it may be told.
#[derive(Debug)]
pub(crate) struct TakenOut {
    pub(crate) place: String,
    pub(crate) rule: String,
    pub(crate) bytes: usize,
    /// Tells two of them apart, and nothing else.
    pub(crate) fingerprint: String,
}

impl Recorded {
    /// What is not in the record, each with its length: a person who is asked has to know that there is more.
    pub(crate) fn taken_out(&self) -> Vec<TakenOut> {
        let taken = |(finding, secret): (&Finding, &Vec<u8>)| TakenOut {
            place: finding.place.clone(),
            rule: finding.rule.clone(),
            bytes: secret.len(),
            fingerprint: finding.fingerprint.clone(),
        };
        self.findings.iter().zip(&self.secrets).map(taken).collect()
    }

    /// What would be written to a file, as it may be shown.
    pub(crate) fn content(&mut self, content: &[u8], leaks: &LeakScanner) -> Vec<u8> {
        let mut taken = Taken { leaks, findings: Vec::new(), secrets: Vec::new() };
        let head = content.get(..StandardInput::HEAD).unwrap_or(content);
        let clean = taken.text(&Bytes::from(head), || "content".to_owned());
        self.findings.extend(taken.findings);
        self.secrets.extend(taken.secrets);
        clean.as_slice().to_vec()
    }
}

pub(crate) fn for_the_record(call: &Call, leaks: &LeakScanner) -> Recorded {
    let mut taken = Taken { leaks, findings: Vec::new(), secrets: Vec::new() };
    let call = match call {
        Call::Exec(exec) => Call::Exec(taken.exec(exec)),
        Call::File(file) => Call::File(taken.file(file)),
        // Names of files with a secret in them are not proposed.
        Call::Apply(patch) => Call::Apply(patch.clone()),
        Call::Flow(flow) => Call::Flow(FlowCall {
            host: taken.host(&flow.host),
            request: flow.request.as_ref().map(|request| taken.request_to(request, &flow.host)),
            ..flow.clone()
        }),
        Call::Fetch(fetch) => Call::Fetch(taken.fetch(fetch)),
        Call::Tool(tool) => Call::Tool(taken.tool(tool)),
    };
    Recorded { call, findings: taken.findings, secrets: taken.secrets }
}

struct Taken<'a> {
    leaks: &'a LeakScanner,
    findings: Vec<Finding>,
    secrets: Vec<Vec<u8>>,
}

impl Taken<'_> {
    fn exec(&mut self, exec: &Exec) -> Exec {
        let arguments: Vec<&[u8]> = exec.argv.iter().map(Bytes::as_slice).collect();
        let (argv, found) = self.leaks.redact_argv(&arguments);
        for (at, finding) in found {
            self.out(format!("argv[{at}]"), &finding, arguments.get(at).copied().unwrap_or_default());
        }
        let cwd = self.text(&exec.cwd, || "cwd".to_owned());
        let mut env = Vec::with_capacity(exec.env.len());
        for (name, value) in &exec.env {
            let name = self.text(name, || "the name of a variable".to_owned());
            let value = self.text(value, || format!("env {}", name.display()));
            env.push((name, value));
        }
        let stdin = match &exec.stdin {
            StandardInput::Bytes { sha256, bytes, head } => StandardInput::Bytes {
                sha256: sha256.clone(),
                bytes: *bytes,
                head: self.text(head, || "stdin".to_owned()),
            },
            other => other.clone(),
        };
        Exec { argv: argv.into_iter().map(Bytes::from).collect(), cwd, env, net: exec.net, stdin }
    }

    fn file(&mut self, file: &FileCall) -> FileCall {
        let mut path = |path: &Bytes| self.text(path, || "path".to_owned());
        match file {
            FileCall::Read { path: read } => FileCall::Read { path: path(read) },
            FileCall::List { path: listed } => FileCall::List { path: path(listed) },
            FileCall::Write { path: written, sha256, bytes } => {
                FileCall::Write { path: path(written), sha256: sha256.clone(), bytes: *bytes }
            }
            FileCall::Stat { path: seen } => FileCall::Stat { path: path(seen) },
            FileCall::Send { path: sent } => FileCall::Send { path: path(sent) },
            FileCall::Remove { path: removed } => FileCall::Remove { path: path(removed) },
            FileCall::Move { path: from, to } => {
                FileCall::Move { path: path(from), to: self.text(to, || "to".to_owned()) }
            }
            FileCall::Symlink { path: link, target } => {
                FileCall::Symlink { path: path(link), target: self.text(target, || "target".to_owned()) }
            }
        }
    }

    fn fetch(&mut self, fetch: &Fetch) -> Fetch {
        Fetch { method: self.word(&fetch.method, "method"), url: self.word(&fetch.url, "url"), by: fetch.by }
    }

    fn tool(&mut self, tool: &ToolCall) -> ToolCall {
        let input = self.word(&tool.input, "input");
        ToolCall { name: self.word(&tool.name, "the name of a tool"), input, ..tool.clone() }
    }

    /// Searched as names are, beside what every text is searched for.
    fn host(&mut self, host: &str) -> String {
        let clean = self.word(host, "host");
        if clean == host { self.leaks.name(host) } else { self.leaks.name(&clean) }
    }

    fn request_to(&mut self, request: &Fetch, host: &str) -> Fetch {
        let url = self.leaks.text_about(&request.url, host);
        Fetch { url, ..self.fetch(request) }
    }

    fn word(&mut self, word: &str, place: &str) -> String {
        let clean = self.text(&Bytes::from(word), || place.to_owned());
        String::from_utf8_lossy(clean.as_slice()).into_owned()
    }

    fn text(&mut self, text: &Bytes, place: impl Fn() -> String) -> Bytes {
        let redacted = self.leaks.redact(text.as_slice());
        for finding in &redacted.findings {
            self.out(place(), finding, text.as_slice());
        }
        Bytes::from(redacted.clean)
    }

    fn out(&mut self, place: String, finding: &ringfence_scan::Finding, text: &[u8]) {
        let secret = text.get(finding.start..finding.end).unwrap_or_default();
        self.findings.push(self.leaks.finding(finding, place));
        self.secrets.push(secret.to_vec());
    }
}
