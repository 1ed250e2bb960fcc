//! What a call is made of, before it is made.

use ringfence_authz::policy::Leaks;
use ringfence_ledger::Finding;
use ringfence_types::{Bytes, Call, FileCall, Layer, LeakAction, Patch, Refusal, RefusalCode};

use super::{Actions, LeakScanner, Tally};
use crate::session::AgentSession;

/// Bytes that a call brings along, where they are known before it is made.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Content<'c> {
    /// What will be in a file.
    File { path: &'c Bytes, bytes: &'c [u8] },
    /// What a command will read.
    Input(&'c [u8]),
}

/// A call that must not be made, with what was found in it.
#[derive(Debug)]
pub(crate) struct Leak {
    pub(crate) refusal: Refusal,
    pub(crate) tally: Tally,
    pub(crate) action: LeakAction,
}

/// Whether a secret would leave with this call. What is in its content and may pass is told as well.
pub(crate) fn judge(
    call: &Call,
    content: Option<Content<'_>>,
    session: &AgentSession<'_>,
) -> Result<Tally, Box<Leak>> {
    let leaks = &session.leaks;
    let rules = &session.policy.leaks;
    let mut judging = Judging { leaks, tally: Tally::default(), worst: None };
    judging.arguments(call, Actions::arguments(rules));
    match content {
        Some(Content::File { path, bytes }) => judging.content(path, bytes, Actions::files(rules)),
        Some(Content::Input(bytes)) => judging.bytes(bytes, "stdin", Actions::arguments(rules)),
        None => {}
    }
    if let Call::Apply(patch) = call {
        judging.patch(patch, Actions::files(rules));
    }
    judging.verdict()
}

struct Judging<'s> {
    leaks: &'s LeakScanner,
    tally: Tally,
    worst: Option<(LeakAction, Finding, Sink)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sink {
    Arguments,
    Files,
}

impl Judging<'_> {
    fn arguments(&mut self, call: &Call, actions: Actions) {
        match call {
            Call::Exec(exec) => {
                let arguments: Vec<&[u8]> = exec.argv.iter().map(Bytes::as_slice).collect();
                for (at, found) in self.leaks.scanner().redact_argv(&arguments).1 {
                    self.found(&found, (format!("argv[{at}]"), Sink::Arguments), actions);
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
            Call::Flow(flow) => self.text(&Bytes::from(flow.host.as_str()), "host", actions),
            Call::Fetch(fetch) => self.text(&Bytes::from(fetch.url.as_str()), "url", actions),
            Call::Tool(tool) => {
                self.bytes(tool.name.as_bytes(), "the name of a tool", actions);
                self.bytes(tool.input.as_bytes(), "input", actions);
            }
        }
    }

    fn text(&mut self, text: &Bytes, place: &str, actions: Actions) {
        self.bytes(text.as_slice(), place, actions);
    }

    fn bytes(&mut self, bytes: &[u8], place: &str, actions: Actions) {
        for found in self.leaks.scanner().search(bytes).findings {
            self.found(&found, (place.to_owned(), Sink::Arguments), actions);
        }
    }

    fn content(&mut self, path: &Bytes, bytes: &[u8], actions: Actions) {
        for found in self.leaks.scanner().search(bytes).findings {
            let above = bytes.get(..found.start).unwrap_or_default();
            let line = 1 + above.iter().filter(|byte| **byte == b'\n').count();
            self.found(&found, (format!("{}:{line}", path.display()), Sink::Files), actions);
        }
    }

    /// What it brings in was looked for when it was taken up; whoever applies it is asked about what may pass.
    fn patch(&mut self, patch: &Patch, actions: Actions) {
        for file in &patch.files {
            for brought in &file.secrets {
                let action = actions.by_rule(&brought.rule);
                let finding = Finding {
                    rule: brought.rule.clone(),
                    place: self.leaks.text(&format!("{}:{}", file.path.display(), brought.line)),
                    fingerprint: String::new(),
                    encoding: None,
                };
                if action >= LeakAction::Block {
                    self.note(action, finding, Sink::Files);
                }
            }
        }
    }

    fn found(&mut self, found: &ringfence_scan::Finding, (place, sink): (String, Sink), actions: Actions) {
        let path = if sink == Sink::Files { place.rsplit_once(':').map_or("", |(path, _)| path) } else { "" };
        let Some(action) = self.leaks.action(found, (actions, path)) else { return };
        let finding = self.leaks.finding(found, self.leaks.text(&place));
        self.note(action, finding, sink);
    }

    fn note(&mut self, action: LeakAction, finding: Finding, sink: Sink) {
        if self.worst.as_ref().is_none_or(|(worst, ..)| action > *worst) {
            self.worst = Some((action, finding.clone(), sink));
        }
        // What passes is written down with the call itself.
        if sink == Sink::Files || action >= LeakAction::Block {
            self.tally.add(action, || finding);
        }
    }

    fn verdict(self) -> Result<Tally, Box<Leak>> {
        match self.worst {
            Some((action, finding, sink)) if action >= LeakAction::Block => {
                let refusal = refusal(&finding, (action, sink));
                Err(Box::new(Leak { refusal, tally: self.tally, action }))
            }
            _ => Ok(self.tally),
        }
    }
}

/// The answer where what a proposal brings in must not be written.
pub(crate) fn judge_introduced(findings: &[Finding], leaks: &Leaks) -> Option<Refusal> {
    let actions = Actions::files(leaks);
    let worst = findings.iter().max_by_key(|finding| actions.by_rule(&finding.rule))?;
    let blocks = actions.by_rule(&worst.rule) >= LeakAction::Block;
    blocks.then(|| refusal(worst, (LeakAction::Block, Sink::Files)))
}

fn refusal(finding: &Finding, (action, sink): (LeakAction, Sink)) -> Refusal {
    let rule = match sink {
        Sink::Arguments => "leaks.arguments",
        Sink::Files => "leaks.files",
    };
    let encoded =
        finding.encoding.as_ref().map(|layers| format!(", encoded as {layers}")).unwrap_or_default();
    let (what, hint) = match (finding.rule.strip_prefix("secret/"), sink) {
        (Some(name), Sink::Arguments) => (
            format!("the value of the secret `{name}`{encoded}"),
            format!(
                "leave the value out: `ringfence run --secret {name}` gives it to the command, and a variable says where"
            ),
        ),
        (Some(name), Sink::Files) => (
            format!("the value of the secret `{name}`{encoded}"),
            "write a reference to it instead: the program that needs it gets it with `--secret`".to_owned(),
        ),
        (None, _) => (
            format!("what looks like a secret ({}{encoded})", finding.rule),
            "leave it out; `ringfence secret set` keeps one, `ringfence run --secret` gives it to a command"
                .to_owned(),
        ),
    };
    let ended = if action == LeakAction::Terminate { ", and the session is over" } else { "" };
    Refusal {
        code: RefusalCode::Secret,
        layer: Layer::Floor,
        rule: rule.to_owned(),
        message: format!("{what} is in `{}`, so it was not done{ended}", finding.place),
        hint: Some(hint),
    }
}
