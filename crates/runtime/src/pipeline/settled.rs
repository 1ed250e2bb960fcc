use ringfence_ledger::{AppendError, ApprovalDecision, Event, RecordedFinding};
use ringfence_sandbox::{CommandRunError, ExaminationError};
use ringfence_types::{
    ActionFingerprint, ByteString, Call, ExecCall, FetchCall, FileCall, FlowCall, HeldChange, LandedEntry,
    Landing, Outcome, Posture, Refusal, StandardInput, ToolCall, TransactionId,
};

use super::context::CallContext;
use super::decided::{chain, describe};
use crate::approvals::{PresenceLock, PromptRedactor, STOPPED, outcome_of};
use crate::effect::EffectOutput;
use crate::leaks::{LeakScanner, LeakSummary};
use crate::observer::PipelineStage;
use crate::proxy::FlowSummary;
use crate::session::{AgentSession, STOPPED_LOOP};

/// The recorded end of a call.
#[derive(Debug)]
pub struct Settled {
    pub transaction: Option<TransactionId>,
    pub ended: CallEnd,
    /// The posture that the sandbox reported.
    pub posture: Option<Posture>,
    /// The flows of the filtered network, allowed and refused.
    pub network: Option<FlowSummary>,
    /// A note for the caller, for example that the call repeats in a loop.
    pub notice: Option<String>,
    /// Leaks that were found, and what policy did about them.
    pub leaks: Vec<LeakSummary>,
    /// Changes that a host program would have executed, and that were held.
    pub held: Vec<HeldChange>,
    /// Why the end is not recorded. The intent may be missing too: a refusal has none, and a failing ledger
    /// may have lost it.
    pub record_error: Option<String>,
}

impl Settled {
    /// Without any text of the caller.
    pub(super) fn log(&self) {
        let transaction = self.transaction.as_ref().map(tracing::field::display);
        match &self.ended {
            CallEnd::Executed(outcome) => {
                tracing::info!(transaction, exit = outcome.exit.code(), ms = outcome.duration_ms, "executed");
            }
            CallEnd::Touched(_) => tracing::info!(transaction, "file touched"),
            CallEnd::Refused(refusal) => {
                tracing::warn!(transaction, rule = %refusal.rule, layer = ?refusal.layer, "refused");
            }
            CallEnd::Failed { what, .. } => tracing::error!(transaction, what = %what, "failed"),
        }
        if let Some(why) = &self.record_error {
            tracing::error!(transaction, error = %why, "cannot record the outcome");
        }
    }
}

#[derive(Debug)]
pub enum CallEnd {
    /// A command ran to its end.
    Executed(Outcome),
    /// A file operation completed.
    Touched(EffectOutput),
    Refused(Refusal),
    /// An internal error. Nothing is running.
    Failed {
        what: String,
        hint: Option<String>,
    },
}

/// A call that was refused before it had an effect.
#[derive(Debug)]
pub(crate) struct RefusedCall {
    pub(super) call: Call,
    pub(crate) refusal: Refusal,
    /// Set if the transaction began before the refusal.
    pub(crate) transaction: Option<TransactionId>,
}

impl RefusedCall {
    pub(crate) fn settle_before_start(call: Call, refusal: Refusal) -> Self {
        Self { call, refusal, transaction: None }
    }

    /// Adds the reason the operator gave.
    pub(super) fn because(mut self, decision: &ApprovalDecision) -> Self {
        if let Some(reason) = &decision.reason {
            self.refusal.message.push_str(&format!(
                " ({}: {})",
                decision.actor,
                ByteString::from(reason.as_str()).display()
            ));
        }
        self
    }

    pub(super) fn settle(self, session: &mut AgentSession<'_>) -> Settled {
        // The call never started, so its findings belong to no transaction.
        let (leaks, mut events) = found(session, None);
        events.push(refused(session, self.transaction.clone(), &self.call, &self.refusal));
        let fingerprint = ActionFingerprint::of(&self.call, &session.all_roots());
        let ended = CallEnd::Refused(session.leaks.refusal(&self.refusal));
        let transaction = self.transaction;
        CallConclusion { transaction, fingerprint, ended, posture: None, leaks, events }.record(session)
    }
}

/// The redacted refusal record: its text may quote the call.
pub(super) fn refused(
    session: &impl CallContext,
    transaction: Option<TransactionId>,
    call: &Call,
    refusal: &Refusal,
) -> Event {
    let recorded = for_the_record(call, session.leaks());
    let redactor = PromptRedactor::new(&recorded.secrets, Some(session.leaks()));
    let refusal = Refusal {
        message: redactor.clean(&refusal.message),
        hint: refusal.hint.as_deref().map(|hint| redactor.clean(hint)),
        ..refusal.clone()
    };
    let id = Some(session.session_id().clone());
    let by = session.made_by().cloned().map(Box::new);
    let call = Some(recorded.call.bounded());
    Event::CallRefused { transaction, session: id, call, refusal, call_origin: by }
}

/// The end of a call and its consequences.
struct CallConclusion {
    transaction: Option<TransactionId>,
    fingerprint: ActionFingerprint,
    ended: CallEnd,
    posture: Option<Posture>,
    leaks: Vec<LeakSummary>,
    events: Vec<Event>,
}

impl CallConclusion {
    /// Records all of it in one append.
    fn record(self, session: &mut AgentSession<'_>) -> Settled {
        let Self { transaction, fingerprint, ended, posture, leaks, mut events } = self;
        session.reached(PipelineStage::Settle);
        let stopped = matches!(&ended, CallEnd::Refused(refusal) if refusal.rule == STOPPED_LOOP);
        // A call stopped by the loop guard does not count as another repetition.
        let repeats = if stopped {
            None
        } else {
            session.common.memory().memory().loops.note(&fingerprint, outcome_of(&ended))
        };
        if let Some(repeats) = repeats {
            events.push(Event::LoopDetected {
                session: session.id.clone(),
                fingerprint,
                repeats: u32::try_from(repeats).unwrap_or(u32::MAX),
                stopped: false,
            });
        }
        events.extend(session.ending());
        let record_error = session.append(events).err().map(|error: AppendError| describe(&error));
        Settled {
            transaction,
            ended,
            posture,
            network: None,
            notice: repeats.map(loop_warning),
            leaks,
            held: Vec::new(),
            record_error,
        }
    }
}

/// The leaks found in this call, and their records.
fn found(
    session: &mut AgentSession<'_>,
    transaction: Option<&TransactionId>,
) -> (Vec<LeakSummary>, Vec<Event>) {
    let leaks = std::mem::take(&mut session.found).leaked();
    let event = |leaked: &LeakSummary| Event::SecretsFound {
        transaction: transaction.cloned(),
        session: session.id.clone(),
        action: leaked.action,
        findings: leaked.findings.clone(),
        omitted: leaked.omitted,
    };
    let events = leaks.iter().map(event).collect();
    (leaks, events)
}

fn loop_warning(repeats: usize) -> String {
    format!("the same came {repeats} times in a row with the same outcome; at {STOPPED} it is stopped")
}

/// The posture of a command, and the stronger backends that could not be used.
struct RecordedPosture {
    posture: Posture,
    skipped_backends: Vec<String>,
}

/// The recorded posture of the session's fence, and the note about it.
fn fenced(session: &AgentSession<'_>) -> (Option<RecordedPosture>, Option<String>) {
    if let Some(own) = &session.own {
        let ceiling = Some(Box::new(own.ceiling.clone()));
        let skipped_backends =
            own.fence.skipped_backends.iter().map(|reason| session.leaks.text(reason)).collect();
        let posture =
            own.fence.sandbox.as_ref().map(|sandbox| Posture { ceiling, ..sandbox.posture().clone() });
        return (posture.map(|posture| RecordedPosture { posture, skipped_backends }), None);
    }
    let mut fence = session.common.fence();
    let (told, reasons) = (fence.report_skipped_backends(), fence.skipped_backends.clone());
    let posture = fence.sandbox.as_ref().map(|sandbox| sandbox.posture().clone());
    drop(fence);
    let skipped_backends = reasons.iter().map(|reason| session.leaks.text(reason)).collect();
    let told = told.map(|told| session.leaks.text(&told));
    (posture.map(|posture| RecordedPosture { posture, skipped_backends }), told)
}

/// A transaction with an intent and without an outcome.
#[derive(Debug)]
pub(crate) struct OpenTransaction {
    pub(crate) transaction: TransactionId,
    pub(super) fingerprint: ActionFingerprint,
    /// Marks the transaction as this process's, where the session spans several processes.
    pub(super) held: Option<PresenceLock>,
}

impl OpenTransaction {
    pub(crate) fn executed(
        self,
        session: &mut AgentSession<'_>,
        answer: Result<Outcome, &CommandRunError>,
    ) -> Settled {
        let (fenced, told) = fenced(session);
        let ended = match answer {
            Ok(outcome) => CallEnd::Executed(outcome),
            Err(error) => CallEnd::Failed { what: chain(error), hint: hint(error) },
        };
        let mut settled = self.close(session, ended, fenced);
        let notes: Vec<String> = told.into_iter().chain(settled.notice.take()).collect();
        settled.notice = (!notes.is_empty()).then(|| notes.join("; "));
        settled
    }

    pub(crate) fn touched(
        self,
        session: &mut AgentSession<'_>,
        done: Result<EffectOutput, CallEnd>,
    ) -> Settled {
        let ended = match done {
            Ok(touched) => CallEnd::Touched(touched),
            Err(ended) => ended,
        };
        self.close(session, ended, None)
    }

    pub(crate) fn refused(self, session: &mut AgentSession<'_>, refusal: Refusal) -> Settled {
        self.close(session, CallEnd::Refused(refusal), None)
    }

    pub(crate) fn failed(
        self,
        session: &mut AgentSession<'_>,
        what: String,
        hint: Option<String>,
    ) -> Settled {
        self.close(session, CallEnd::Failed { what, hint }, None)
    }

    fn close(
        self,
        session: &mut AgentSession<'_>,
        ended: CallEnd,
        fenced: Option<RecordedPosture>,
    ) -> Settled {
        let ended = clean(ended, &session.leaks);
        let mut events = Vec::new();
        let ids = || (self.transaction.clone(), session.id.clone());
        let posture = fenced.as_ref().map(|fenced| fenced.posture.clone());
        if let Some(RecordedPosture { posture, skipped_backends }) = fenced {
            let (transaction, session) = ids();
            events.push(Event::SandboxStarted { transaction, session, posture, skipped_backends });
        }
        if let CallEnd::Executed(Outcome { limit_hit: Some(limit), .. }) = &ended {
            let (transaction, session) = ids();
            events.push(Event::LimitReached { transaction, session, limit: *limit });
        }
        let (leaks, found) = found(session, Some(&self.transaction));
        events.extend(found);
        let notes = match &ended {
            // A refusal settles nothing: the notes go with the next settled call.
            CallEnd::Refused(_) => Vec::new(),
            _ => session.common.take_notes().iter().map(|note| session.leaks.text(note)).collect(),
        };
        events.push(self.event(session, &ended, &notes));
        let (transaction, fingerprint) = (Some(self.transaction), self.fingerprint);
        let conclusion = CallConclusion { transaction, fingerprint, ended, posture, leaks, events };
        let mut settled = conclusion.record(session);
        if !notes.is_empty() {
            settled.notice = Some(settled.notice.into_iter().chain(notes).collect::<Vec<_>>().join("; "));
        }
        drop(self.held);
        settled
    }

    fn event(&self, session: &AgentSession<'_>, ended: &CallEnd, notes: &[String]) -> Event {
        let transaction = self.transaction.clone();
        let (outcome, failure) = match ended {
            CallEnd::Refused(refusal) => {
                return Event::CallRefused {
                    transaction: Some(transaction),
                    session: Some(session.id.clone()),
                    call: None,
                    refusal: refusal.clone(),
                    call_origin: session.made_by.clone(),
                };
            }
            CallEnd::Executed(outcome) => (Some(outcome.clone()), None),
            CallEnd::Touched(_) => (None, None),
            CallEnd::Failed { what, .. } => (None, Some(what.clone())),
        };
        let (session, notes) = (session.id.clone(), notes.to_vec());
        Event::CallSettled { transaction, session, outcome, failure, delegated_to: None, notes }
    }
}

fn hint(error: &CommandRunError) -> Option<String> {
    matches!(error, CommandRunError::Unfinished(_)).then(|| ExaminationError::HINT.to_owned())
}

/// Redacts texts that may quote a call, a path or an error of another program.
fn clean(ended: CallEnd, leaks: &LeakScanner) -> CallEnd {
    match ended {
        CallEnd::Refused(refusal) => CallEnd::Refused(leaks.refusal(&refusal)),
        CallEnd::Failed { what, hint } => {
            CallEnd::Failed { what: leaks.text(&what), hint: hint.map(|hint| leaks.text(&hint)) }
        }
        done @ (CallEnd::Executed(_) | CallEnd::Touched(_)) => done,
    }
}

/// A call in the form the ledger may hold.
#[derive(Debug)]
pub(crate) struct RecordedCall {
    /// The redacted call.
    pub(crate) call: Call,
    pub(crate) findings: Vec<RecordedFinding>,
    /// The redacted secrets. They stay in memory.
    pub(crate) secrets: Vec<Vec<u8>>,
}

/// A redacted secret in the form a prompt may show.
#[derive(Debug)]
pub(crate) struct TakenOut {
    pub(crate) place: String,
    pub(crate) rule: String,
    pub(crate) bytes: usize,
    /// Only distinguishes secrets from each other.
    pub(crate) fingerprint: String,
}

impl RecordedCall {
    /// The redacted secrets with their lengths, so that the approver knows what the prompt omits.
    pub(crate) fn taken_out(&self) -> Vec<TakenOut> {
        let taken = |(finding, secret): (&RecordedFinding, &Vec<u8>)| TakenOut {
            place: finding.location.clone(),
            rule: finding.rule.clone(),
            bytes: secret.len(),
            fingerprint: finding.fingerprint.clone(),
        };
        self.findings.iter().zip(&self.secrets).map(taken).collect()
    }

    /// The content of a file write, redacted.
    pub(crate) fn content(&mut self, content: &[u8], leaks: &LeakScanner) -> Vec<u8> {
        let mut taken = RecordRedaction { leaks, findings: Vec::new(), secrets: Vec::new() };
        let head = content.get(..StandardInput::HEAD).unwrap_or(content);
        let clean = taken.text(&ByteString::from(head), || "content".to_owned());
        self.findings.extend(taken.findings);
        self.secrets.extend(taken.secrets);
        clean.as_slice().to_vec()
    }
}

pub(crate) fn for_the_record(call: &Call, leaks: &LeakScanner) -> RecordedCall {
    let mut taken = RecordRedaction { leaks, findings: Vec::new(), secrets: Vec::new() };
    let call = match call {
        Call::Exec(exec) => Call::Exec(taken.exec(exec)),
        Call::File(file) => Call::File(taken.file(file)),
        // Proposals with a secret in a file name are refused earlier.
        Call::Apply(patch) => Call::Apply(patch.clone()),
        Call::Land(landing) => Call::Land(taken.landing(landing)),
        Call::Flow(flow) => Call::Flow(FlowCall {
            host: taken.host(&flow.host),
            request: flow.request.as_ref().map(|request| taken.request_to(request, &flow.host)),
            ..flow.clone()
        }),
        Call::Fetch(fetch) => Call::Fetch(taken.fetch(fetch)),
        Call::Tool(tool) => Call::Tool(taken.tool(tool)),
    };
    RecordedCall { call, findings: taken.findings, secrets: taken.secrets }
}

struct RecordRedaction<'a> {
    leaks: &'a LeakScanner,
    findings: Vec<RecordedFinding>,
    secrets: Vec<Vec<u8>>,
}

impl RecordRedaction<'_> {
    fn exec(&mut self, exec: &ExecCall) -> ExecCall {
        let arguments: Vec<&[u8]> = exec.argv.iter().map(ByteString::as_slice).collect();
        let (argv, found) = self.leaks.redact_argv(&arguments);
        for (at, finding) in found {
            self.redact_record(
                format!("argv[{at}]"),
                &finding,
                arguments.get(at).copied().unwrap_or_default(),
            );
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
        let ceiling = exec.ceiling.as_deref();
        let ceiling =
            ceiling.map(|ceiling| ceiling.map_paths(|path| self.text(path, || "ceiling".to_owned())));
        let ceiling = ceiling.map(Box::new);
        ExecCall {
            argv: argv.into_iter().map(ByteString::from).collect(),
            cwd,
            env,
            ceiling,
            net: exec.net,
            stdin,
        }
    }

    fn file(&mut self, file: &FileCall) -> FileCall {
        let mut path = |path: &ByteString| self.text(path, || "path".to_owned());
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

    fn landing(&mut self, landing: &Landing) -> Landing {
        let entries = landing.entries.iter().map(|entry| LandedEntry {
            path: self.text(&entry.path, || "path".to_owned()),
            repository: entry.repository.as_ref().map(|path| self.text(path, || "path".to_owned())),
            ..entry.clone()
        });
        Landing { entries: entries.collect(), ..landing.clone() }
    }

    fn fetch(&mut self, fetch: &FetchCall) -> FetchCall {
        FetchCall {
            method: self.word(&fetch.method, "method"),
            url: self.word(&fetch.url, "url"),
            by: fetch.by,
        }
    }

    fn tool(&mut self, tool: &ToolCall) -> ToolCall {
        let input = self.word(&tool.input, "input");
        ToolCall { name: self.word(&tool.name, "the name of a tool"), input, ..tool.clone() }
    }

    /// Scans the host as a name, besides the usual text scan.
    fn host(&mut self, host: &str) -> String {
        let clean = self.word(host, "host");
        if clean == host { self.leaks.name(host) } else { self.leaks.name(&clean) }
    }

    fn request_to(&mut self, request: &FetchCall, host: &str) -> FetchCall {
        let url = self.leaks.text_about(&request.url, host);
        FetchCall { url, ..self.fetch(request) }
    }

    fn word(&mut self, word: &str, place: &str) -> String {
        let clean = self.text(&ByteString::from(word), || place.to_owned());
        String::from_utf8_lossy(clean.as_slice()).into_owned()
    }

    fn text(&mut self, text: &ByteString, place: impl Fn() -> String) -> ByteString {
        let redacted = self.leaks.redact(text.as_slice());
        for finding in &redacted.findings {
            self.redact_record(place(), finding, text.as_slice());
        }
        ByteString::from(redacted.clean)
    }

    fn redact_record(&mut self, place: String, finding: &ringfence_scan::Finding, text: &[u8]) {
        let secret = text.get(finding.start..finding.end).unwrap_or_default();
        self.findings.push(self.leaks.finding(finding, place));
        self.secrets.push(secret.to_vec());
    }
}
