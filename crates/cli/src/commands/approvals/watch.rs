//! `ringfence approvals watch`: waits for approvals in an open terminal and answers them there.

use std::os::fd::AsFd as _;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use ringfence_api::{Approval, ListApprovals, ShowApproval};
use ringfence_ledger::ApprovalDecision;
use ringfence_runtime::ApproverReply;
use ringfence_runtime::approvals::watching;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;

use super::reply::ShownApproval;
use super::{ApprovalClient, ApprovalEntryJson, GONE, OutputFormat};
use crate::approval::{ControllingTerminal, OperatorRequirement};
use crate::args::FAILED;
use crate::commands::run::print_json;
use crate::error;
use crate::host;
use crate::output::{note, say};

const LOOK: Duration = Duration::from_millis(200);

pub(super) fn run(desk: ApprovalClient, form: OutputFormat) -> Result<ExitCode, ExitCode> {
    let need =
        if form == OutputFormat::Json { OperatorRequirement::Nothing } else { OperatorRequirement::Terminal };
    let _operator = desk.operator(need, "watch for questions")?;
    // Also with a daemon: commands outside the daemon check whether an operator watches.
    let state_dir = host::state_dir(&desk.environment).map_err(|error| error::failed(&error, None))?;
    let held = watching(&state_dir)
        .map_err(|error| error::failed_text(&format!("cannot announce this approver: {error}"), None))?;
    if form == OutputFormat::Text {
        say!("waiting for questions; Ctrl-C ends it");
    }
    let mut watch = ApprovalWatcher { desk, form, open: Vec::new() };
    while is_read() {
        watch.look()?;
        thread::sleep(LOOK);
    }
    // The operator counts as watching until here.
    drop(held);
    Ok(ExitCode::SUCCESS)
}

/// Whether standard output still has a reader; otherwise no person sees the approvals.
fn is_read() -> bool {
    let out = std::io::stdout();
    let mut ready = [PollFd::from_borrowed_fd(out.as_fd(), PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let polled = poll(&mut ready, Some(&now));
    let [out] = ready;
    polled.is_err() || !out.revents().intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL)
}

struct ApprovalWatcher {
    desk: ApprovalClient,
    form: OutputFormat,
    /// Shown and not decided yet.
    open: Vec<Approval>,
}

impl ApprovalWatcher {
    fn look(&mut self) -> Result<(), ExitCode> {
        let pending = match self.desk.api.call(ListApprovals {}) {
            // The next look uses whatever runs then: another daemon, or the ledger itself.
            Err(error) if error.is_gone() => {
                self.desk = ApprovalClient::open()?;
                return Ok(());
            }
            pending => pending.map_err(|error| error.told(FAILED))?.approvals,
        };
        let is_open = |id: &str| pending.iter().any(|question| question.id == id);
        let (still, closed): (Vec<Approval>, Vec<Approval>) =
            std::mem::take(&mut self.open).into_iter().partition(|question| is_open(&question.id));
        self.open = still;
        closed.iter().for_each(|question| self.closed(question));
        let is = |one: &Approval, other: &Approval| one.id == other.id;
        // An approval that was orphaned since is shown again.
        let known = |question: &Approval| {
            self.open.iter().any(|open| is(open, question) && open.orphaned == question.orphaned)
        };
        let fresh: Vec<Approval> = pending.iter().filter(|question| !known(question)).cloned().collect();
        for question in fresh {
            self.asked(&question);
            self.open.retain(|open| !is(open, &question));
            self.open.push(question);
        }
        Ok(())
    }

    fn asked(&self, question: &Approval) {
        if self.form == OutputFormat::Json {
            return print_json(&WatchLineJson {
                schema: 1,
                event: "requested",
                question: ApprovalEntryJson::of(question),
                decision: None,
            });
        }
        let waiting = ShownApproval::new(&self.desk.api, &question.request);
        if question.orphaned {
            say!("{GONE}");
        }
        match ControllingTerminal::new(&self.desk.environment).asked(&waiting) {
            ApproverReply::Reply(reply) => {
                // The result is already printed.
                let _said = self.desk.answered(question, reply);
            }
            ApproverReply::Elsewhere => {}
            ApproverReply::Silence => note!("no answer in time: denied"),
            ApproverReply::Interrupted | ApproverReply::Left => note!("not answered here"),
        }
    }

    fn closed(&self, question: &Approval) {
        if self.form == OutputFormat::Text {
            return;
        }
        let found = self.desk.api.call(ShowApproval { id: question.id.clone() });
        let decision = found.ok().and_then(|found| found.decision);
        let question = ApprovalEntryJson::of(question);
        print_json(&WatchLineJson { schema: 1, event: "closed", question, decision: decision.as_ref() });
    }
}

/// What `approvals watch --json` prints, schema 1.
#[derive(Serialize)]
struct WatchLineJson<'a> {
    schema: u32,
    /// `requested` or `closed`.
    event: &'static str,
    #[serde(flatten)]
    question: ApprovalEntryJson<'a>,
    decision: Option<&'a ApprovalDecision>,
}
