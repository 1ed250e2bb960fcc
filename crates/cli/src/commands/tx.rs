//! `ringfence tx`: proposals of sessions that write nothing, and what an operator makes of them.

mod shown;

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::ExitCode;

use ringfence_runtime::authz::env::Attendance;
use ringfence_runtime::authz::policy::Flags;
use ringfence_runtime::proposal::{
    Applied, Draft, FindError, Input, Proposal, Recovered, RecoveryError, RegisterError,
};
use ringfence_runtime::{AgentSession, Ended, Io, Runtime, Source, Target};
use ringfence_types::{Bytes, Principal};

use crate::approval::{self, Need, Terminal};
use crate::args::{FAILED, Place, Propose, TxCommand};
use crate::asked::{self, Ungoverned};
use crate::commands::run;
use crate::environment::Environment;
use crate::error;
use crate::explain::Style;
use crate::output::{note, say};

/// What more than this is on standard input is no proposal.
const LARGEST: u64 = 64 * 1024 * 1024;

pub(crate) fn run(command: TxCommand) -> ExitCode {
    let environment = Environment::read();
    if matches!(command, TxCommand::Apply { .. } | TxCommand::Discard { .. })
        && let Err(code) = approval::require(&environment, Need::Nothing, "apply or discard a proposal")
    {
        return code;
    }
    let done = run::runtime(&environment, Attendance::Unattended).and_then(|runtime| match command {
        TxCommand::Propose(asked) => propose(&asked, &runtime, &environment),
        TxCommand::List { all, workspace, json } => {
            let proposals = runtime.proposals().map_err(|error| not_found(&error))?;
            let wanted =
                |proposal: &&Proposal| (all || !proposal.is_over()) && is_for(proposal, workspace.as_deref());
            shown::list(
                &proposals.iter().filter(wanted).collect::<Vec<_>>(),
                if json { Form::Json } else { Form::Text },
            );
            Ok(ExitCode::SUCCESS)
        }
        TxCommand::Show { id, json } => {
            let proposal = find(&runtime, &id)?;
            shown::one(
                &proposal,
                runtime.proposal_contents(&proposal),
                if json { Form::Json } else { Form::Text },
            );
            Ok(ExitCode::SUCCESS)
        }
        TxCommand::Diff { id, raw } => {
            diff(&runtime, &environment, &id, if raw { Form::Raw } else { Form::Text })
        }
        TxCommand::Apply { place, id } => apply(place, &runtime, &environment, &id),
        TxCommand::Discard { id, reason } => discard(&runtime, &id, reason),
    });
    done.unwrap_or_else(|code| code)
}

/// Says what this start made of applications that were cut off.
pub(crate) fn tell_recovered(runtime: &Runtime) {
    for recovery in runtime.recovered() {
        match recovery {
            Ok(recovery) => match &recovery.outcome {
                Recovered::Finished => {
                    note!(
                        "ringfence: {} was cut off while it was applied; it is finished now",
                        recovery.transaction
                    );
                }
                Recovered::Undone => {
                    note!(
                        "ringfence: {} was cut off before it was applied; nothing was changed",
                        recovery.transaction
                    );
                }
                Recovered::FinishedBut(left) => {
                    let left: Vec<String> =
                        left.iter().map(|path| Bytes::from(path.as_path()).display()).collect();
                    note!(
                        "ringfence: {} was cut off while it was applied; it is finished now, except for what was changed meanwhile: {}",
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
    note!("ringfence: an application that was cut off cannot be cleaned up: {}", error::chain(error));
    note!("  hint: `ringfence tx list --all` shows which; the next start tries again");
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
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

fn not_found(error: &FindError) -> ExitCode {
    error::failed(error, Some("`ringfence tx list --all` shows every proposal"))
}

fn session<'r>(
    place: &Place,
    runtime: &'r Runtime,
    environment: &Environment,
) -> Result<AgentSession<'r>, ExitCode> {
    let governed = match asked::governed(place, environment, runtime.setup(), Flags::default()) {
        Ok(governed) => governed,
        Err(Ungoverned::Failed(code)) => return Err(code),
        Err(Ungoverned::Refused(refusal)) => {
            return Err(match runtime.refuse(&refusal) {
                Ok(()) => error::refused(&refusal),
                Err(error) => error::failed(&error, None),
            });
        }
    };
    match runtime.session(governed.asked()) {
        Ok(Ok(session)) => Ok(session),
        Ok(Err(refusal)) => Err(error::refused(&refusal)),
        Err(error) => Err(error::failed(&error, None)),
    }
}

fn propose(asked: &Propose, runtime: &Runtime, environment: &Environment) -> Result<ExitCode, ExitCode> {
    let session = session(&asked.place, runtime, environment)?;
    let mut handed = Vec::new();
    if let Err(error) = std::io::stdin().lock().take(LARGEST).read_to_end(&mut handed) {
        return Err(error::failed_text(&format!("cannot read standard input: {error}"), None));
    }
    let input = match &asked.file {
        Some(path) => Input::File { path: relative(&session, path), content: &handed },
        None => Input::Diff(&handed),
    };
    let draft = Draft { input, title: asked.title.clone(), agent: asked.place.agent.clone() };
    match session.propose(&draft) {
        Ok(Ok(proposed)) => {
            shown::proposed(&proposed, if asked.json { Form::Json } else { Form::Text });
            Ok(ExitCode::SUCCESS)
        }
        Ok(Err(refusal)) => Err(error::refused(&refusal)),
        Err(error) => Err(error::failed(&error, error.hint())),
    }
}

/// An absolute path inside the workspace means the same file.
fn relative(session: &AgentSession<'_>, path: &Path) -> Bytes {
    Bytes::from(path.strip_prefix(&session.workspace().path).unwrap_or(path))
}

fn diff(runtime: &Runtime, environment: &Environment, id: &str, form: Form) -> Result<ExitCode, ExitCode> {
    let proposal = find(runtime, id)?;
    let diff = runtime.proposal_diff(&proposal).map_err(|error| error::failed(&error, error.hint()))?;
    let out = std::io::stdout();
    if form == Form::Text {
        shown::diff(&diff, Style::of(&environment.all, &out));
        return Ok(ExitCode::SUCCESS);
    }
    match out.lock().write_all(&diff) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(error::failed_text(&format!("cannot write to standard output: {error}"), None))
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}

fn apply(place: Place, runtime: &Runtime, environment: &Environment, id: &str) -> Result<ExitCode, ExitCode> {
    let proposal = find(runtime, id)?;
    // Where it is for, not where we are.
    let workspace = place.workspace.unwrap_or_else(|| proposal.workspace.as_path().to_owned());
    let place = Place { workspace: Some(workspace), ..place };
    let mut session = session(&place, runtime, environment)?;
    session.set_approver(Terminal::new(environment));
    let io = Io {
        stdin: Source::Empty,
        stdout: Target::Discard,
        stderr: Target::Discard,
        interrupts: &[],
        timeout: None,
        output_bytes: 0,
    };
    let applied = session.apply(&proposal, io).map_err(|error| not_applied(&error))?;
    let settled = match applied {
        Applied::Refused(refusal) => return Err(error::refused(&refusal)),
        Applied::Settled(settled) => settled,
    };
    run::warn_unrecorded(&settled);
    run::tell_held(&settled);
    match settled.ended {
        Ended::Touched(_) => {
            say!("{} applied: {}", proposal.transaction, shown::count(&proposal));
            Ok(ExitCode::SUCCESS)
        }
        Ended::Refused(refusal) => Err(error::refused(&refusal)),
        Ended::Failed { what, hint } => Err(error::failed_text(&what, hint.as_deref())),
        Ended::Executed(_) => Err(ExitCode::from(FAILED)),
    }
}

fn not_applied(error: &RegisterError) -> ExitCode {
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

/// Whoever runs this.
fn operator() -> Principal {
    let system = rustix::system::uname();
    Principal::Operator {
        uid: rustix::process::getuid().as_raw(),
        name: None,
        node: system.nodename().to_string_lossy().into_owned(),
        terminal: None,
    }
}
