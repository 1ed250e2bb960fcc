//! Waiting for questions in a terminal that somebody leaves open, and answering them there.

use std::os::fd::AsFd as _;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use ringfence_runtime::Heard;
use ringfence_runtime::approval::{Awaited, watching};
use ringfence_runtime::ledger::ApprovalDecision;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;

use super::place::Asked;
use super::{Desk, Form, GONE, Question};
use crate::approval::{Need, Terminal};
use crate::args::FAILED;
use crate::commands::run::print_json;
use crate::error;
use crate::host;
use crate::output::{note, say};

const LOOK: Duration = Duration::from_millis(200);

pub(super) fn run(desk: Desk, form: Form) -> Result<ExitCode, ExitCode> {
    let need = if form == Form::Json { Need::Nothing } else { Need::Terminal };
    let _operator = desk.operator(need, "watch for questions")?;
    // Also where a daemon runs: commands that are not its own ask whether somebody watches.
    let state_dir = host::state_dir(&desk.environment).map_err(|error| error::failed(&error, None))?;
    let held = watching(&state_dir)
        .map_err(|error| error::failed_text(&format!("cannot say that somebody watches: {error}"), None))?;
    if form == Form::People {
        say!("waiting for questions; Ctrl-C ends it");
    }
    let mut watch = Watch { desk, form, open: Vec::new() };
    while is_read() {
        watch.look()?;
        thread::sleep(LOOK);
    }
    // Until here somebody was there.
    drop(held);
    Ok(ExitCode::SUCCESS)
}

/// Whether anybody is at the other end of standard output: a stream that nobody reads reaches nobody.
fn is_read() -> bool {
    let out = std::io::stdout();
    let mut ready = [PollFd::from_borrowed_fd(out.as_fd(), PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let polled = poll(&mut ready, Some(&now));
    let [out] = ready;
    polled.is_err() || !out.revents().intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL)
}

struct Watch {
    desk: Desk,
    form: Form,
    /// What was shown and not answered yet.
    open: Vec<Asked>,
}

impl Watch {
    fn look(&mut self) -> Result<(), ExitCode> {
        let pending = match self.desk.place.pending() {
            // The next look is at whoever is there by then: another daemon, or the ledger itself.
            Err(error) if error.is_gone() => {
                self.desk = Desk::open()?;
                return Ok(());
            }
            pending => pending.map_err(|error| error.told(FAILED))?,
        };
        let is_open = |id: &str| pending.iter().any(|question| question.request.transaction.as_str() == id);
        let (still, closed): (Vec<Asked>, Vec<Asked>) = std::mem::take(&mut self.open)
            .into_iter()
            .partition(|question| is_open(question.request.transaction.as_str()));
        self.open = still;
        closed.iter().for_each(|question| self.closed(question));
        let is = |one: &Asked, other: &Asked| one.request.transaction == other.request.transaction;
        // Once nobody waits for the answer, it is another question.
        let known = |question: &Asked| {
            self.open.iter().any(|open| is(open, question) && open.awaited == question.awaited)
        };
        let fresh: Vec<Asked> = pending.iter().filter(|question| !known(question)).cloned().collect();
        for question in fresh {
            self.asked(&question);
            self.open.retain(|open| !is(open, &question));
            self.open.push(question);
        }
        Ok(())
    }

    fn asked(&self, question: &Asked) {
        if self.form == Form::Json {
            return print_json(&Line {
                schema: 1,
                event: "asked",
                question: Question::of(question),
                decision: None,
            });
        }
        let Ok(waiting) = self.desk.place.wait(&question.request) else { return };
        if question.awaited == Awaited::ByNobody {
            say!("{GONE}");
        }
        match Terminal::new(&self.desk.environment).asked(waiting.as_ref()) {
            Heard::Reply(reply) => {
                // What came of it was said.
                let _said = self.desk.answered(question, reply);
            }
            Heard::Elsewhere => {}
            Heard::Silence => note!("nobody answered in time: the answer is no"),
            Heard::Interrupted | Heard::Left => note!("not answered here"),
        }
    }

    fn closed(&self, question: &Asked) {
        if self.form == Form::People {
            return;
        }
        let found = self.desk.place.find(question.request.transaction.as_str()).ok();
        let decision = found.and_then(|found| found.decision);
        let question = Question::of(question);
        print_json(&Line { schema: 1, event: "closed", question, decision: decision.as_ref() });
    }
}

/// What `approvals watch --json` prints, schema 1.
#[derive(Serialize)]
struct Line<'a> {
    schema: u32,
    /// `asked` or `closed`.
    event: &'static str,
    #[serde(flatten)]
    question: Question<'a>,
    decision: Option<&'a ApprovalDecision>,
}
