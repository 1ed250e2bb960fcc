//! `ringfence approvals`: pending approvals, from any terminal.

mod grants;
mod reply;
mod watch;

use std::process::ExitCode;

use ringfence_api::{Approval, ListApprovals, ReplyResult, ShowApproval};
use ringfence_ledger::{ApprovalDecision, ApprovalRequest, Timestamp};
use ringfence_runtime::approvals::{GrantTerms, OperatorDecision, OperatorReply, ReplyError};
use ringfence_runtime::operator_api::MethodError;
use ringfence_types::{ByteString, Call, Principal};
use serde::Serialize;

use crate::approval::{
    self, ApprovalScreen, ControllingTerminal, ExplainSupport, OperatorRequirement, PromptSource as _, span,
};
use crate::args::{ApprovalsCommand, ApproveArgs, FAILED, GrantsCommand};
use crate::commands::run::print_json;
use crate::environment::Environment;
use crate::error;
use crate::explain::TextStyle;
use crate::operator_api::{OperatorApi, OperatorApiError};
use crate::output::{OutputFormat, say};
use reply::ShownApproval;

/// Note for an orphaned approval.
const GONE: &str = "orphaned: the requester is gone; an approval counts once, for the next identical call";
/// The answer did not count, or there was no approval.
const NOT_COUNTED: u8 = 1;

pub(crate) fn run(command: ApprovalsCommand) -> ExitCode {
    let desk = match ApprovalClient::open() {
        Ok(desk) => desk,
        Err(code) => return code,
    };
    let done = match command {
        ApprovalsCommand::List { json } => desk.list(json.into()),
        ApprovalsCommand::Show { id, json } => desk.show(&id, json.into()),
        ApprovalsCommand::Approve(approve) => desk.approve(&approve),
        ApprovalsCommand::Deny { id, reason } => desk.deny(&id, reason),
        ApprovalsCommand::Watch { json } => watch::run(desk, json.into()),
    };
    done.unwrap_or_else(|code| code)
}

pub(crate) fn run_grants(command: GrantsCommand) -> ExitCode {
    let done = ApprovalClient::open().and_then(|desk| match command {
        GrantsCommand::List { json } => grants::list(&desk, json.into()),
        GrantsCommand::Revoke(revoke) => grants::revoke(&desk, &revoke),
    });
    done.unwrap_or_else(|code| code)
}

/// An operator's access to approvals.
struct ApprovalClient {
    environment: Environment,
    api: OperatorApi,
}

impl ApprovalClient {
    fn open() -> Result<Self, ExitCode> {
        let environment = Environment::read();
        let operator = approval::require(&environment, OperatorRequirement::Nothing, "list approvals")?;
        let api = OperatorApi::open(&environment, operator)?;
        Ok(Self { environment, api })
    }

    /// The acting operator. The ledger records a refusal.
    fn operator(&self, need: OperatorRequirement, purpose: &str) -> Result<Principal, ExitCode> {
        match &self.api {
            OperatorApi::Daemon(_) => approval::require(&self.environment, need, purpose),
            OperatorApi::Here(owner) => approval::authenticate(&self.environment, need).map_err(|refusal| {
                approval::record(owner.runtime(), &refusal, purpose);
                error::refused(&refusal)
            }),
        }
    }

    fn list(&self, form: OutputFormat) -> Result<ExitCode, ExitCode> {
        let pending = self.api.call(ListApprovals {}).map_err(|error| error.told(FAILED))?.approvals;
        if form == OutputFormat::Json {
            print_json(&ApprovalListJson {
                schema: 1,
                approvals: pending.iter().map(ApprovalEntryJson::of).collect(),
            });
            return Ok(ExitCode::SUCCESS);
        }
        if pending.is_empty() {
            say!("no pending approvals");
        }
        for question in &pending {
            let request = &question.request;
            say!(
                "{}  {:<8}  {:<12}  {}",
                request.transaction,
                request.risk,
                span(left(request)),
                summary(request)
            );
            if question.orphaned {
                say!("  {}", GONE);
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    fn find(&self, id: &str) -> Result<Approval, ExitCode> {
        // An empty id would lead to another URL.
        if id.is_empty() {
            return Err(not_counted(ReplyError::Unknown { id: String::new() }));
        }
        self.api.call(ShowApproval { id: id.to_owned() }).map_err(|error| error.told(NOT_COUNTED))
    }

    fn show(&self, id: &str, form: OutputFormat) -> Result<ExitCode, ExitCode> {
        let question = self.find(id)?;
        if form == OutputFormat::Json {
            let decision = question.decision.as_ref();
            print_json(&ApprovalJson { schema: 1, question: ApprovalEntryJson::of(&question), decision });
            return Ok(ExitCode::SUCCESS);
        }
        let style = TextStyle::of(&self.environment.all, &std::io::stdout());
        let prompt = ApprovalScreen::new(&question.request, left(&question.request), ExplainSupport::No);
        say!("{}", prompt.render(100, style).trim_end());
        for vote in &question.votes {
            say!("voted        {} by {}", vote.vote.word(), vote.actor);
        }
        match &question.decision {
            Some(decision) => {
                say!("answered     {} by {}", approval::word(decision.answer), decision.actor);
                if let Some(reason) = &decision.reason {
                    say!("reason       {}", shown(reason));
                }
            }
            None if question.orphaned => say!("answered     not yet; {GONE}"),
            None => say!("answered     not yet"),
        }
        Ok(ExitCode::SUCCESS)
    }

    fn approve(&self, approve: &ApproveArgs) -> Result<ExitCode, ExitCode> {
        let by = self.operator(OperatorRequirement::Terminal, &format!("approve {}", shown(&approve.id)))?;
        let question = self.find(&approve.id)?;
        if let Some(decision) = &question.decision {
            let by = Box::new(decision.actor.clone());
            return Err(not_counted(ReplyError::AnsweredBefore { answer: decision.answer, by }));
        }
        let say = meant(approve, &question.request)?;
        let waiting = ShownApproval::new(&self.api, &question.request);
        let confirmed =
            ControllingTerminal::new(&self.environment).confirmed(&waiting, &meaning(&say, &question));
        if let Some(decision) = waiting.decided() {
            return Err(not_counted_text(&approval::told(&decision)));
        }
        if confirmed != Some(true) {
            return Err(not_counted_text("nothing was answered"));
        }
        self.answered(&question, OperatorReply { by, say, reason: approve.reason.clone() })
    }

    fn deny(&self, id: &str, reason: Option<String>) -> Result<ExitCode, ExitCode> {
        let by = self.operator(OperatorRequirement::Nothing, &format!("deny {}", shown(id)))?;
        self.answered(&self.find(id)?, OperatorReply { by, say: OperatorDecision::Deny, reason })
    }

    /// Answers an approval as it was shown, and prints the result.
    fn answered(&self, question: &Approval, reply: OperatorReply) -> Result<ExitCode, ExitCode> {
        let answered = self.api.call(self.request(question, reply)?);
        let request = &question.request;
        match answered.map_err(|error| error.told(NOT_COUNTED))? {
            ReplyResult::Decided { answer, grant } => {
                say!("{}: {}", request.transaction, approval::word(answer));
                grant.iter().for_each(|grant| grants::stored(grant));
            }
            ReplyResult::VoteCounted { approvals: approve, denials: deny } => {
                let quorum = request.quorum;
                say!("vote counted: {approve} of {} approve, {deny} of {} deny", quorum.approve, quorum.deny);
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The answer that the arguments mean.
fn meant(approve: &ApproveArgs, request: &ApprovalRequest) -> Result<OperatorDecision, ExitCode> {
    let time = approve.expires.map(|time| std::time::Duration::from_millis(time.0));
    let terms = GrantTerms::within(time, approve.uses).map_err(not_counted)?;
    if approve.replace {
        let argv = approve.replacement.iter().map(|word| ByteString::from(word.as_os_str()));
        return OperatorDecision::instead(request, argv.collect()).map_err(not_counted);
    }
    if approve.session {
        return Ok(OperatorDecision::Session(terms));
    }
    match approve.always {
        Some(number) => Ok(OperatorDecision::AlwaysHere { offer: number.saturating_sub(1), terms }),
        None if terms != GrantTerms::default() => Err(error::failed_text(
            "`--expires` and `--uses` apply to a grant",
            Some("add `--session` or `--always`"),
        )),
        None => Ok(OperatorDecision::Once),
    }
}

fn shown(text: &str) -> String {
    ByteString::from(text).display()
}

fn meaning(say: &OperatorDecision, question: &Approval) -> String {
    match say {
        OperatorDecision::Once if question.orphaned => {
            "the requester is gone: allow the next identical call, once".to_owned()
        }
        OperatorDecision::Once => "allow this call once".to_owned(),
        OperatorDecision::Edited(call) => match call.as_ref() {
            Call::Exec(exec) => {
                let words: Vec<String> = exec.argv.iter().map(ByteString::quoted).collect();
                format!("run this instead, once: {}", words.join(" "))
            }
            _ => "allow a replacement, once".to_owned(),
        },
        OperatorDecision::Session(_) => "allow the same for the rest of the session".to_owned(),
        OperatorDecision::AlwaysHere { offer, .. } => {
            format!("always allow number {} of `always here`", offer + 1)
        }
        OperatorDecision::Deny => "deny it".to_owned(),
    }
}

fn left(request: &ApprovalRequest) -> std::time::Duration {
    request.expires_at.duration_since(Timestamp::now()).try_into().unwrap_or_default()
}

/// The first line of the action.
fn summary(request: &ApprovalRequest) -> String {
    let line =
        request.prompt.blocks.first().and_then(|block| block.lines.first()).cloned().unwrap_or_default();
    match line.char_indices().nth(100) {
        Some((end, _)) => format!("{}...", line.split_at(end).0),
        None => line,
    }
}

fn not_counted(error: ReplyError) -> ExitCode {
    OperatorApiError::from(MethodError::from(error)).told(NOT_COUNTED)
}

fn not_counted_text(text: &str) -> ExitCode {
    let _failed = error::failed_text(text, None);
    ExitCode::from(NOT_COUNTED)
}

/// What `approvals list --json` prints, schema 1.
#[derive(Serialize)]
struct ApprovalListJson<'a> {
    schema: u32,
    approvals: Vec<ApprovalEntryJson<'a>>,
}

/// What `approvals show --json` prints, schema 1.
#[derive(Serialize)]
struct ApprovalJson<'a> {
    schema: u32,
    #[serde(flatten)]
    question: ApprovalEntryJson<'a>,
    /// `null` while it is pending.
    decision: Option<&'a ApprovalDecision>,
}

/// One approval.
#[derive(Serialize)]
struct ApprovalEntryJson<'a> {
    id: &'a str,
    requested_at: &'a str,
    seconds_left: u64,
    request: &'a ApprovalRequest,
    votes: usize,
    orphaned: bool,
}

impl<'a> ApprovalEntryJson<'a> {
    fn of(question: &'a Approval) -> Self {
        Self {
            id: &question.id,
            requested_at: &question.requested_at,
            seconds_left: left(&question.request).as_secs(),
            request: &question.request,
            votes: question.votes.len(),
            orphaned: question.orphaned,
        }
    }
}
