//! Scans a call before it is executed.

use ringfence_authz::LeakPolicy;
use ringfence_ledger::RecordedFinding;
use ringfence_types::{
    ByteString, Call, FileCall, IntroducedSecret, Landing, LandingAction, LeakAction, PolicyLayer, Refusal,
    RefusalCode, RuleId,
};

use super::{FindingTally, LeakScanner, SinkActions};
use crate::session::AgentSession;

/// Bytes that a call brings along.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CallContent<'c> {
    /// Content of a file write.
    File { path: &'c ByteString, bytes: &'c [u8] },
    /// Standard input of a command.
    Input(&'c [u8]),
}

/// A refused call, with its findings.
#[derive(Debug)]
pub(crate) struct CallLeak {
    pub(crate) refusal: Refusal,
    pub(crate) tally: FindingTally,
    pub(crate) action: LeakAction,
}

/// Refuses a call that would leak a secret. Also collects the findings of content that may pass.
pub(crate) fn judge(
    call: &Call,
    content: Option<CallContent<'_>>,
    session: &AgentSession<'_>,
) -> Result<FindingTally, Box<CallLeak>> {
    let leaks = &session.leaks;
    let rules = &session.policy.leaks;
    let mut judging = LeakJudge { leaks, tally: FindingTally::default(), worst: None };
    judging.arguments(call, SinkActions::arguments(rules));
    match content {
        Some(CallContent::File { path, bytes }) => judging.content(path, bytes, SinkActions::files(rules)),
        Some(CallContent::Input(bytes)) => judging.bytes(bytes, "stdin", SinkActions::arguments(rules)),
        None => {}
    }
    match call {
        Call::Apply(patch) => patch
            .files
            .iter()
            .for_each(|file| judging.introduced(&file.path, &file.secrets, SinkActions::files(rules))),
        Call::Land(Landing { action: LandingAction::Commit, entries, .. }) => entries
            .iter()
            .for_each(|entry| judging.introduced(&entry.path, &entry.secrets, SinkActions::files(rules))),
        _ => {}
    }
    judging.verdict()
}

struct LeakJudge<'s> {
    leaks: &'s LeakScanner,
    tally: FindingTally,
    worst: Option<(LeakAction, RecordedFinding, CallSink)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum CallSink {
    Arguments,
    Files,
}

impl LeakJudge<'_> {
    fn arguments(&mut self, call: &Call, actions: SinkActions) {
        match call {
            Call::Exec(exec) => {
                let arguments: Vec<&[u8]> = exec.argv.iter().map(ByteString::as_slice).collect();
                for (at, found) in self.leaks.scanner().redact_argv(&arguments).1 {
                    self.found(&found, format!("argv[{at}]"), CallSink::Arguments, actions);
                }
                self.text(&exec.cwd, "cwd", actions);
                for (name, value) in &exec.env {
                    self.text(name, "the name of a variable", actions);
                    self.text(value, &format!("env {}", name.display()), actions);
                }
            }
            Call::File(FileCall::Symlink { path, target }) => {
                self.text(path, "path", actions);
                self.text(target, "target", actions);
            }
            Call::File(FileCall::Move { path, to }) => {
                self.text(path, "path", actions);
                self.text(to, "to", actions);
            }
            Call::File(file) => self.text(file.path(), "path", actions),
            Call::Apply(patch) => patch.files.iter().for_each(|file| self.text(&file.path, "path", actions)),
            Call::Land(landing) => {
                landing.entries.iter().for_each(|entry| self.text(&entry.path, "path", actions));
            }
            Call::Flow(flow) => self.text(&ByteString::from(flow.host.as_str()), "host", actions),
            Call::Fetch(fetch) => self.text(&ByteString::from(fetch.url.as_str()), "url", actions),
            Call::Tool(tool) => {
                self.bytes(tool.name.as_bytes(), "the name of a tool", actions);
                self.bytes(tool.input.as_bytes(), "input", actions);
            }
        }
    }

    fn text(&mut self, text: &ByteString, place: &str, actions: SinkActions) {
        self.bytes(text.as_slice(), place, actions);
    }

    fn bytes(&mut self, bytes: &[u8], place: &str, actions: SinkActions) {
        for found in self.leaks.scanner().search(bytes).findings {
            self.found(&found, place.to_owned(), CallSink::Arguments, actions);
        }
    }

    fn content(&mut self, path: &ByteString, bytes: &[u8], actions: SinkActions) {
        for found in self.leaks.scanner().search(bytes).findings {
            let above = bytes.get(..found.start).unwrap_or_default();
            let line = 1 + above.iter().filter(|byte| **byte == b'\n').count();
            self.found(&found, format!("{}:{line}", path.display()), CallSink::Files, actions);
        }
    }

    /// Uses the findings that a proposal or a landing was made with. Its approver sees those that may pass.
    fn introduced(&mut self, path: &ByteString, secrets: &[IntroducedSecret], actions: SinkActions) {
        for brought in secrets {
            let action = actions.by_rule(&brought.rule);
            let finding = RecordedFinding {
                rule: brought.rule.clone(),
                location: self.leaks.text(&format!("{}:{}", path.display(), brought.line)),
                fingerprint: String::new(),
                encoding: None,
            };
            if action >= LeakAction::Block {
                self.note(action, finding, CallSink::Files);
            }
        }
    }

    fn found(
        &mut self,
        found: &ringfence_scan::Finding,
        place: String,
        sink: CallSink,
        actions: SinkActions,
    ) {
        let path =
            if sink == CallSink::Files { place.rsplit_once(':').map_or("", |(path, _)| path) } else { "" };
        let Some(action) = self.leaks.action(found, actions, path) else { return };
        let finding = self.leaks.finding(found, self.leaks.text(&place));
        self.note(action, finding, sink);
    }

    fn note(&mut self, action: LeakAction, finding: RecordedFinding, sink: CallSink) {
        if self.worst.as_ref().is_none_or(|(worst, ..)| action > *worst) {
            self.worst = Some((action, finding.clone(), sink));
        }
        // Other passing findings are recorded with the call itself.
        if sink == CallSink::Files || action >= LeakAction::Block {
            self.tally.add(action, || finding);
        }
    }

    fn verdict(self) -> Result<FindingTally, Box<CallLeak>> {
        match self.worst {
            Some((action, finding, sink)) if action >= LeakAction::Block => {
                let refusal = refusal(&finding, action, sink);
                Err(Box::new(CallLeak { refusal, tally: self.tally, action }))
            }
            _ => Ok(self.tally),
        }
    }
}

/// The refusal if policy blocks what a proposal introduces.
pub(crate) fn judge_introduced(findings: &[RecordedFinding], leaks: &LeakPolicy) -> Option<Refusal> {
    let actions = SinkActions::files(leaks);
    let worst = findings.iter().max_by_key(|finding| actions.by_rule(&finding.rule))?;
    let blocks = actions.by_rule(&worst.rule) >= LeakAction::Block;
    blocks.then(|| refusal(worst, LeakAction::Block, CallSink::Files))
}

fn refusal(finding: &RecordedFinding, action: LeakAction, sink: CallSink) -> Refusal {
    let rule = match sink {
        CallSink::Arguments => RuleId::LeaksArguments,
        CallSink::Files => RuleId::LeaksFiles,
    };
    let encoded =
        finding.encoding.as_ref().map(|layers| format!(", encoded as {layers}")).unwrap_or_default();
    let (what, hint) = match (finding.rule.strip_prefix("secret/"), sink) {
        (Some(name), CallSink::Arguments) => (
            format!("the value of the secret `{name}`{encoded}"),
            format!(
                "leave the value out: `ringfence run --secret {name}` gives it to the command, and a variable says where"
            ),
        ),
        (Some(name), CallSink::Files) => (
            format!("the value of the secret `{name}`{encoded}"),
            "write a reference to it instead: the program that needs it gets it with `--secret`".to_owned(),
        ),
        (None, _) => (
            format!("what looks like a secret ({}{encoded})", finding.rule),
            "leave it out; `ringfence secret set` keeps one, `ringfence run --secret` gives it to a command"
                .to_owned(),
        ),
    };
    let ended = if action == LeakAction::Terminate { ", and the session has ended" } else { "" };
    Refusal {
        code: RefusalCode::Secret,
        layer: PolicyLayer::Floor,
        rule: rule.into(),
        message: format!("{what} is in `{}`, so it was not done{ended}", finding.location),
        hint: Some(hint),
    }
}
