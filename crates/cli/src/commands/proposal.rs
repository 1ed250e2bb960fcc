//! `ringfence proposal`: proposals of sessions, and how an operator handles them.

mod json;

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::ExitCode;

use ringfence_authz::env::ApproverPresence;
use ringfence_policy::StartupFlags;
use ringfence_runtime::proposal::{
    ApplyOutcome, Proposal, ProposalDraft, ProposalError, ProposalInput, ProposalLookupError, RecoveryError,
    RecoveryOutcome,
};
use ringfence_runtime::{AgentSession, CallEnd, CommandIo, OutputTarget, Runtime, StdinSource};
use ringfence_types::{ByteString, Principal};

use crate::approval::{self, ControllingTerminal, OperatorRequirement};
use crate::args::{FAILED, PolicyArgs, ProposalCommand, ProposalCreateArgs};
use crate::commands::run;
use crate::environment::Environment;
use crate::error;
use crate::explain::TextStyle;
use crate::output::{note, say};
use crate::policy_resolution::{self, PolicyResolutionError};
pub(super) use json::diff as print_diff;

/// Limit of bytes on standard input.
const LARGEST: u64 = 64 * 1024 * 1024;

pub(crate) fn run(command: ProposalCommand) -> ExitCode {
    let environment = Environment::read();
    if matches!(command, ProposalCommand::Apply { .. } | ProposalCommand::Discard { .. })
        && let Err(code) =
            approval::require(&environment, OperatorRequirement::Nothing, "apply or discard a proposal")
    {
        return code;
    }
    let done = run::runtime(&environment, ApproverPresence::Unattended).and_then(|runtime| match command {
        ProposalCommand::Create(asked) => propose(&asked, &runtime, &environment),
        ProposalCommand::List { all, workspace, json } => {
            let proposals = runtime.proposals().map_err(|error| not_found(&error))?;
            let wanted =
                |proposal: &&Proposal| (all || !proposal.is_over()) && is_for(proposal, workspace.as_deref());
            json::list(
                &proposals.iter().filter(wanted).collect::<Vec<_>>(),
                if json { ProposalOutputFormat::Json } else { ProposalOutputFormat::Text },
            );
            Ok(ExitCode::SUCCESS)
        }
        ProposalCommand::Show { id, json } => {
            let proposal = find(&runtime, &id)?;
            json::one(
                &proposal,
                runtime.proposal_contents(&proposal),
                if json { ProposalOutputFormat::Json } else { ProposalOutputFormat::Text },
            );
            Ok(ExitCode::SUCCESS)
        }
        ProposalCommand::Diff { id, raw } => diff(
            &runtime,
            &environment,
            &id,
            if raw { ProposalOutputFormat::Raw } else { ProposalOutputFormat::Text },
        ),
        ProposalCommand::Apply { place, id } => apply(place, &runtime, &environment, &id),
        ProposalCommand::Discard { id, reason } => discard(&runtime, &id, reason),
    });
    done.unwrap_or_else(|code| code)
}

/// Prints how this start recovered interrupted applications.
pub(crate) fn tell_recovered(runtime: &Runtime) {
    for recovery in runtime.recovered() {
        match recovery {
            Ok(recovery) => match &recovery.outcome {
                RecoveryOutcome::Finished => {
                    note!(
                        "ringfence: {} was interrupted while it was applied; it is now applied",
                        recovery.transaction
                    );
                }
                RecoveryOutcome::Undone => {
                    note!(
                        "ringfence: {} was interrupted before it was applied; nothing was changed",
                        recovery.transaction
                    );
                }
                RecoveryOutcome::FinishedBut(left) => {
                    let left: Vec<String> =
                        left.iter().map(|path| ByteString::from(path.as_path()).display()).collect();
                    note!(
                        "ringfence: {} was interrupted while it was applied; it is now applied, except for files that changed since: {}",
                        recovery.transaction,
                        left.join(", ")
                    );
                }
            },
            Err(error) => unrecovered(error),
        }
    }
}

fn unrecovered(error: &RecoveryError) {
    note!("ringfence: cannot finish an interrupted application: {}", error::chain(error));
    note!("  hint: `ringfence proposal list --all` shows which; the next start tries again");
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProposalOutputFormat {
    Text,
    Json,
    Raw,
}

fn is_for(proposal: &Proposal, workspace: Option<&Path>) -> bool {
    let real = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    workspace.is_none_or(|workspace| proposal.workspace.as_path() == real(workspace))
}

fn find(runtime: &Runtime, id: &str) -> Result<Proposal, ExitCode> {
    runtime.proposal(id).map_err(|error| not_found(&error))
}

fn not_found(error: &ProposalLookupError) -> ExitCode {
    error::failed(error, Some("`ringfence proposal list --all` shows every proposal"))
}

fn session<'r>(
    place: &PolicyArgs,
    runtime: &'r Runtime,
    environment: &Environment,
) -> Result<AgentSession<'r>, ExitCode> {
    let governed =
        match policy_resolution::resolve(place, environment, runtime.setup(), StartupFlags::default()) {
            Ok(governed) => governed,
            Err(PolicyResolutionError::Failed(code)) => return Err(code),
            Err(PolicyResolutionError::Refused(refusal)) => {
                return Err(match runtime.refuse(&refusal) {
                    Ok(()) => error::refused(&refusal),
                    Err(error) => error::failed(&error, None),
                });
            }
        };
    match runtime.session(governed.session_spec()) {
        Ok(Ok(session)) => Ok(session),
        Ok(Err(refusal)) => Err(error::refused(&refusal)),
        Err(error) => Err(error::failed(&error, None)),
    }
}

fn propose(
    asked: &ProposalCreateArgs,
    runtime: &Runtime,
    environment: &Environment,
) -> Result<ExitCode, ExitCode> {
    let session = session(&asked.place, runtime, environment)?;
    let mut handed = Vec::new();
    if let Err(error) = std::io::stdin().lock().take(LARGEST).read_to_end(&mut handed) {
        return Err(error::failed_text(&format!("cannot read standard input: {error}"), None));
    }
    let input = match &asked.file {
        Some(path) => ProposalInput::File { path: relative(&session, path), content: &handed },
        None => ProposalInput::Diff(&handed),
    };
    let draft = ProposalDraft { input, title: asked.title.clone(), agent: asked.place.agent.clone() };
    match session.propose(&draft) {
        Ok(Ok(proposed)) => {
            json::proposed(
                &proposed,
                if asked.json { ProposalOutputFormat::Json } else { ProposalOutputFormat::Text },
            );
            Ok(ExitCode::SUCCESS)
        }
        Ok(Err(refusal)) => Err(error::refused(&refusal)),
        Err(error) => Err(error::failed(&error, error.hint())),
    }
}

/// An absolute path inside the workspace means the same file.
fn relative(session: &AgentSession<'_>, path: &Path) -> ByteString {
    ByteString::from(path.strip_prefix(&session.workspace().path).unwrap_or(path))
}

fn diff(
    runtime: &Runtime,
    environment: &Environment,
    id: &str,
    form: ProposalOutputFormat,
) -> Result<ExitCode, ExitCode> {
    let proposal = find(runtime, id)?;
    let diff = runtime.proposal_diff(&proposal).map_err(|error| error::failed(&error, error.hint()))?;
    let out = std::io::stdout();
    if form == ProposalOutputFormat::Text {
        json::diff(&diff, TextStyle::of(&environment.all, &out));
        return Ok(ExitCode::SUCCESS);
    }
    match out.lock().write_all(&diff) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(error::failed_text(&format!("cannot write to standard output: {error}"), None))
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}

fn apply(
    place: PolicyArgs,
    runtime: &Runtime,
    environment: &Environment,
    id: &str,
) -> Result<ExitCode, ExitCode> {
    let proposal = find(runtime, id)?;
    // The proposal's workspace, not the current directory.
    let workspace = place.workspace.unwrap_or_else(|| proposal.workspace.as_path().to_owned());
    let place = PolicyArgs { workspace: Some(workspace), ..place };
    let mut session = session(&place, runtime, environment)?;
    session.set_approver(ControllingTerminal::new(environment));
    let io = CommandIo {
        stdin: StdinSource::Empty,
        stdout: OutputTarget::Discard,
        stderr: OutputTarget::Discard,
        interrupts: &[],
        timeout: None,
        output_bytes: 0,
    };
    let applied = session.apply(&proposal, io).map_err(|error| not_applied(&error))?;
    let settled = match applied {
        ApplyOutcome::Refused(refusal) => return Err(error::refused(&refusal)),
        ApplyOutcome::Settled(settled) => settled,
    };
    run::warn_unrecorded(&settled);
    run::tell_held(&settled);
    match settled.ended {
        CallEnd::Touched(_) => {
            say!("{} applied: {}", proposal.transaction, json::count(&proposal));
            Ok(ExitCode::SUCCESS)
        }
        CallEnd::Refused(refusal) => Err(error::refused(&refusal)),
        CallEnd::Failed { what, hint } => Err(error::failed_text(&what, hint.as_deref())),
        CallEnd::Executed(_) => Err(ExitCode::from(FAILED)),
    }
}

fn not_applied(error: &ProposalError) -> ExitCode {
    match error.refusal() {
        Some(refusal) => error::refused(&refusal),
        None => error::failed(error, error.hint().as_deref()),
    }
}

fn discard(runtime: &Runtime, id: &str, reason: Option<String>) -> Result<ExitCode, ExitCode> {
    let proposal = find(runtime, id)?;
    runtime.discard(&proposal, operator(), reason).map_err(|error| not_applied(&error))?;
    say!("{} discarded", proposal.transaction);
    Ok(ExitCode::SUCCESS)
}

/// The user of this process.
fn operator() -> Principal {
    let system = rustix::system::uname();
    Principal::Operator {
        uid: rustix::process::getuid().as_raw(),
        name: None,
        node: system.nodename().to_string_lossy().into_owned(),
        terminal: None,
    }
}
