//! `ringfence try`, `changes`, `commit`, `discard` and `undo`: layers, and how an operator lets them land.

mod show;

use std::io::{self, BufRead as _, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use ringfence_authz::env::ApproverPresence;
use ringfence_policy::StartupFlags;
use ringfence_runtime::layer::{
    DiscardExtent, JudgedChanges, LandError, LandingOutcome, LandingRequest, LayerLookupError, LayerQuery,
    LayerState, LayerSummary, OpenLayer, WantedLayer,
};
use ringfence_runtime::{
    AgentSession, CallEnd, CallObserver, CommandIo, EffectOutput, OutputTarget, PipelineStage, Runtime,
    SessionSpec, Settled, StdinSource,
};
use ringfence_types::{
    Access, ByteString, Decision, LandingAction, PolicyLayer, Refusal, RefusalCode, Root, RuleId,
    TransactionId, chain,
};
use rustix::termios::{QueueSelector, tcflush};

use crate::approval::{self, ControllingTerminal, OperatorRequirement};
use crate::args::{ChangesArgs, CommitArgs, DiscardArgs, FAILED, PolicyArgs, UndoArgs};
use crate::commands::run;
use crate::environment::Environment;
use crate::error;
use crate::explain::TextStyle;
use crate::output::{OutputFormat, aside, note, say};
use crate::policy_resolution::{self, PolicyResolutionError};
pub(crate) use show::TriedJson;

pub(crate) fn changes(arguments: ChangesArgs) -> Result<ExitCode, ExitCode> {
    let environment = Environment::read();
    let runtime = run::runtime(&environment, ApproverPresence::Unattended)?;
    let format = OutputFormat::from(arguments.json);
    if arguments.all {
        let layers = runtime.layers().map_err(|error| not_found(&error))?;
        show::list(&layers, format);
        return Ok(ExitCode::SUCCESS);
    }
    let wanted = if arguments.id.is_some() { WantedLayer::Any } else { WantedLayer::Pending };
    let place = &arguments.place;
    let found = find(&runtime, &environment, place, arguments.id.as_deref(), wanted)?;
    let layer = runtime.open_layer(&found).map_err(|error| not_found(&error))?;
    layer.check_roots().map_err(|error| not_landed(&error, &found.id))?;
    let session = session(place, &runtime, &environment, &layer)?;
    let judged = judged(&session, &layer)?;
    let scene = show::LayerScene { found: &found, layer: &layer, session: &session, judged: &judged };
    match (format, arguments.patch) {
        (OutputFormat::Json, _) => show::json(&scene)?,
        (OutputFormat::Text, true) => show::patch(&scene, style(&environment))?,
        (OutputFormat::Text, false) => {
            show::stat(&scene, style(&environment))?;
            if arguments.id.is_none() {
                tell_others(&runtime, &found);
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Other layers of the same roots wait too.
fn tell_others(runtime: &Runtime, shown: &LayerSummary) {
    let same = |layer: &LayerSummary| {
        layer.id != shown.id && layer.state != LayerState::Landed && layer.roots == shown.roots
    };
    let count = runtime.layers().map_or(0, |layers| layers.iter().filter(|layer| same(layer)).count());
    if count > 0 {
        note!("ringfence: {count} more here; `ringfence changes --all` lists them");
    }
}

pub(crate) fn commit(arguments: CommitArgs) -> Result<ExitCode, ExitCode> {
    let environment = Environment::read();
    approval::require(&environment, OperatorRequirement::Nothing, "commit changes of a layer")?;
    let runtime = run::runtime(&environment, ApproverPresence::Unattended)?;
    let (id, paths) = id_and_paths(&arguments.words);
    let cwd = policy_resolution::current_dir()?;
    let absolute = |path: &PathBuf| absolute(&cwd, path);
    let only: Vec<PathBuf> = paths.iter().map(absolute).collect();
    let except: Vec<PathBuf> = arguments.except.iter().map(absolute).collect();
    let found = find(&runtime, &environment, &arguments.place, id.as_deref(), WantedLayer::Pending)?;
    let layer = runtime.open_layer(&found).map_err(|error| not_found(&error))?;
    layer.check_roots().map_err(|error| not_landed(&error, &found.id))?;
    let mut session = session(&arguments.place, &runtime, &environment, &layer)?;
    let request = LandingRequest { action: LandingAction::Commit, only: &only, except: &except };
    land(&mut session, &environment, layer, &request)
}

pub(crate) fn undo(arguments: UndoArgs) -> Result<ExitCode, ExitCode> {
    let environment = Environment::read();
    approval::require(&environment, OperatorRequirement::Nothing, "take back changes of a layer")?;
    let runtime = run::runtime(&environment, ApproverPresence::Unattended)?;
    let place = &arguments.place;
    let found = find(&runtime, &environment, place, arguments.id.as_deref(), WantedLayer::Landed)?;
    let layer = runtime.open_layer(&found).map_err(|error| not_found(&error))?;
    layer.check_roots().map_err(|error| not_landed(&error, &found.id))?;
    if layer.landed().map_err(|error| not_landed(&error.into(), &found.id))?.is_empty() {
        return Err(not_found(&LayerLookupError::NotLanded { id: found.id }));
    }
    let mut session = session(place, &runtime, &environment, &layer)?;
    let action = if arguments.force { LandingAction::ForcedUndo } else { LandingAction::Undo };
    land(&mut session, &environment, layer, &LandingRequest { action, only: &[], except: &[] })
}

pub(crate) fn discard(arguments: DiscardArgs) -> Result<ExitCode, ExitCode> {
    let environment = Environment::read();
    approval::require(&environment, OperatorRequirement::Nothing, "discard changes of a layer")?;
    let runtime = run::runtime(&environment, ApproverPresence::Unattended)?;
    let place = &arguments.place;
    let (wanted, extent) = match arguments.force {
        true => (WantedLayer::Any, DiscardExtent::Everything),
        false => (WantedLayer::Pending, DiscardExtent::Waiting),
    };
    let found = find(&runtime, &environment, place, arguments.id.as_deref(), wanted)?;
    let layer = runtime.open_layer_to_discard(&found).map_err(|error| not_found(&error))?;
    drop_layer(&runtime, layer, extent)
}

fn drop_layer(runtime: &Runtime, layer: OpenLayer, extent: DiscardExtent) -> Result<ExitCode, ExitCode> {
    let id = layer.id().clone();
    let dropped =
        runtime.discard_layer(layer, approval::here(), extent).map_err(|error| not_found(&error))?;
    say!("{id} discarded: {}", counted(dropped.changes, "change"));
    if dropped.keeps_landed {
        note!("  what landed stays; it can be taken back: ringfence undo {id}");
    }
    Ok(ExitCode::SUCCESS)
}

/// A first word that begins like an id is one. A file of such a name is `./tx_…`.
fn id_and_paths(words: &[PathBuf]) -> (Option<String>, &[PathBuf]) {
    match words.split_first() {
        Some((first, rest)) if first.to_str().is_some_and(|word| word.starts_with("tx_")) => {
            (Some(first.to_string_lossy().into_owned()), rest)
        }
        _ => (None, words),
    }
}

/// With the links above the last name resolved, as far as they exist: a change may be of a link itself.
fn absolute(cwd: &Path, path: &Path) -> PathBuf {
    let path = cwd.join(path);
    let plain: PathBuf = path.components().collect();
    match (plain.parent(), plain.file_name()) {
        (Some(above), Some(name)) => {
            let known = above.ancestors().find_map(|known| Some((known, std::fs::canonicalize(known).ok()?)));
            match known {
                Some((known, real)) => {
                    real.join(above.strip_prefix(known).unwrap_or(Path::new(""))).join(name)
                }
                None => plain,
            }
        }
        // `.`, `..` and `/` name a directory that exists.
        _ => std::fs::canonicalize(&plain).unwrap_or(plain),
    }
}

fn find(
    runtime: &Runtime,
    environment: &Environment,
    place: &PolicyArgs,
    id: Option<&str>,
    wanted: WantedLayer,
) -> Result<LayerSummary, ExitCode> {
    let workspace = policy_resolution::workspace(place, environment)?;
    let query = LayerQuery { id, workspace: &workspace, wanted };
    runtime.layer(&query).map_err(|error| not_found(&error))
}

fn not_found(error: &LayerLookupError) -> ExitCode {
    error::failed(error, error.hint().as_deref())
}

fn not_landed(error: &LandError, id: &str) -> ExitCode {
    let hint = error.hint().map(|hint| hint.replace(" ID", &format!(" {id}")));
    match error.refusal() {
        Some(refusal) => error::refused(&Refusal { hint, ..refusal }),
        None => error::failed(error, hint.as_deref()),
    }
}

/// The session of the workspace that the layer is of, whatever the current directory.
fn session<'r>(
    place: &PolicyArgs,
    runtime: &'r Runtime,
    environment: &Environment,
    layer: &OpenLayer,
) -> Result<AgentSession<'r>, ExitCode> {
    let own = runtime.workspace_of(layer).map_err(|error| not_found(&error))?;
    let place = PolicyArgs { workspace: place.workspace.clone().or(own), ..place.clone() };
    let resolved = policy_resolution::resolve(&place, environment, runtime.setup(), StartupFlags::default());
    let governed = match resolved {
        Ok(governed) => governed,
        Err(PolicyResolutionError::Failed(code)) => return Err(code),
        Err(PolicyResolutionError::Refused(refusal)) => {
            return Err(match runtime.refuse(&refusal) {
                Ok(()) => error::refused(&refusal),
                Err(error) => error::failed(&error, None),
            });
        }
    };
    session_on(runtime, governed.session_spec(), layer)
}

/// The roots of the layer are those that its command was admitted with. Where policy knows a root, policy says what may be written
/// in it: the operator may have narrowed it since.
fn session_on<'r>(
    runtime: &'r Runtime,
    mut spec: SessionSpec,
    layer: &OpenLayer,
) -> Result<AgentSession<'r>, ExitCode> {
    let workspace = policy_resolution::real(&spec.workspace);
    for root in layer.roots().into_iter().filter(|root| *root != workspace) {
        if spec.roots.iter().any(|known| policy_resolution::real(known.path.as_path()) == root) {
            continue;
        }
        spec.roots.push(Root { path: ByteString::from(root.as_path()), access: Access::Write });
    }
    // A session by name belongs to the agent; this one is the operator's.
    spec.name = None;
    match runtime.session(spec) {
        Ok(Ok(session)) => Ok(session),
        Ok(Err(refusal)) => Err(error::refused(&refusal)),
        Err(error) => Err(error::failed(&error, error.hint().as_deref())),
    }
}

fn judged(session: &AgentSession<'_>, layer: &OpenLayer) -> Result<JudgedChanges, ExitCode> {
    session.judged_changes(layer).map_err(|error| not_landed(&error.into(), layer.id().as_str()))
}

fn land(
    session: &mut AgentSession<'_>,
    environment: &Environment,
    layer: OpenLayer,
    request: &LandingRequest<'_>,
) -> Result<ExitCode, ExitCode> {
    let id = layer.id().to_string();
    session.set_approver(ControllingTerminal::new(environment));
    if io::stderr().is_terminal() {
        session.set_observer(Arc::new(LandingLine));
    }
    let io = CommandIo {
        stdin: StdinSource::Empty,
        stdout: OutputTarget::Discard,
        stderr: OutputTarget::Discard,
        interrupts: &[],
        timeout: None,
        output_bytes: 0,
    };
    let settled = session.land(layer, request, io).map_err(|error| not_landed(&error, &id))?;
    Ok(tell_landed(&settled, &id, request.action))
}

/// Says on a terminal that changes are landing, until they have.
#[derive(Debug)]
struct LandingLine;

impl CallObserver for LandingLine {
    fn reached(&self, stage: PipelineStage) {
        match stage {
            PipelineStage::Run => aside(format_args!("\rlanding...")),
            PipelineStage::Settle => aside(format_args!("\r\x1b[K")),
            _ => {}
        }
    }

    fn decided(&self, _decision: Decision) {}

    fn begun(&self, _transaction: &TransactionId) {}
}

fn tell_landed(settled: &Settled, id: &str, action: LandingAction) -> ExitCode {
    run::warn_unrecorded(settled);
    run::tell_held(settled);
    match &settled.ended {
        CallEnd::Touched(EffectOutput::Landed(outcome)) => landed(outcome, id, action),
        CallEnd::Refused(refusal) => {
            let mut hint = refusal.hint.as_ref().map(|hint| hint.replace(" ID", &format!(" {id}")));
            if let Some(hint) = &mut hint
                && action == LandingAction::Commit
                && refusal.code == RefusalCode::Approval
            {
                hint.push_str(&format!("; or leave it out: `ringfence commit {id} --except PATH`"));
            }
            error::refused(&Refusal { hint, ..refusal.clone() })
        }
        CallEnd::Failed { what, hint } => error::failed_text(what, hint.as_deref()),
        CallEnd::Executed(_) | CallEnd::Touched(_) => ExitCode::from(FAILED),
    }
}

fn landed(outcome: &LandingOutcome, id: &str, action: LandingAction) -> ExitCode {
    let count = counted(outcome.landed, "change");
    match action {
        LandingAction::Commit => {
            say!("{id} committed: {count} landed");
            if outcome.landed > 0 {
                note!("  undo     ringfence undo {id}");
            }
        }
        LandingAction::Undo | LandingAction::ForcedUndo => say!("{id} undone: {count} taken back"),
    }
    for (path, kept) in &outcome.set_aside {
        note!(
            "ringfence: what `{}` had since is kept as `{}`",
            ByteString::from(path.as_path()).display(),
            ByteString::from(kept.as_path()).display()
        );
    }
    for entry in &outcome.refused {
        note!("ringfence: `{}` never lands: {}", entry.path.display(), entry.reason);
    }
    if outcome.conflicts.is_empty() {
        return ExitCode::SUCCESS;
    }
    error::refused(&conflict(outcome, id, action))
}

fn conflict(outcome: &LandingOutcome, id: &str, action: LandingAction) -> Refusal {
    const NAMED: usize = 20;
    let name =
        |entry: &ringfence_types::UnlandedEntry| format!("`{}`: {}", entry.path.display(), entry.reason);
    let mut named: Vec<String> = outcome.conflicts.iter().take(NAMED).map(name).collect();
    let more = outcome.conflicts.len().saturating_sub(NAMED);
    named.extend((more > 0).then(|| format!("and {more} more")));
    let message =
        format!("{} left as it is: {}", counted(outcome.conflicts.len(), "change"), named.join("; "));
    let hint = match action {
        LandingAction::Commit => format!(
            "both versions are kept: `ringfence changes {id} --patch` shows the layer's; move yours away and commit again, or \
             `ringfence discard {id}` drops what has not landed"
        ),
        LandingAction::Undo | LandingAction::ForcedUndo => {
            "both versions are kept: yours is where it was, the one from before the landing is in `aside` of the layer's \
             directory"
                .to_owned()
        }
    };
    let (code, rule) = (RefusalCode::Conflict, RuleId::LandingConflict.into());
    Refusal { code, layer: PolicyLayer::Floor, rule, message, hint: Some(hint) }
}

fn counted(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

fn style(environment: &Environment) -> TextStyle {
    TextStyle::of(&environment.all, &io::stdout())
}

/// What waits after `try --json`.
pub(crate) fn tried(runtime: &Runtime, spec: SessionSpec, settled: &Settled) -> Option<TriedJson> {
    let layer = layer_of(runtime, settled)?;
    let session = session_on(runtime, spec, &layer).ok()?;
    let judged = judged(&session, &layer).ok()?;
    Some(TriedJson::of(&layer, &judged))
}

/// The layer of the command that has just ended; `None`: nothing waits.
fn layer_of(runtime: &Runtime, settled: &Settled) -> Option<OpenLayer> {
    let id = settled.transaction.as_ref()?.as_str();
    let query = LayerQuery { id: Some(id), workspace: Path::new("/"), wanted: WantedLayer::Any };
    let found = match runtime.layer(&query) {
        Ok(found) => found,
        Err(LayerLookupError::NotOne { .. }) => return None,
        Err(error) => {
            not_found(&error);
            return None;
        }
    };
    runtime.open_layer(&found).map_err(|error| not_found(&error)).ok()
}

/// Says what waits and how to go on; at a terminal, asks.
pub(crate) fn after_try(runtime: &Runtime, environment: &Environment, spec: SessionSpec, settled: &Settled) {
    let Some(layer) = layer_of(runtime, settled) else {
        if let CallEnd::Executed(_) = &settled.ended {
            note!("ringfence: nothing changed");
        }
        return;
    };
    let Ok(mut session) = session_on(runtime, spec, &layer) else { return };
    let Ok(judged) = judged(&session, &layer) else { return };
    let workspace = session.workspace().path.clone();
    note!("ringfence: {}", show::summary(&judged, &workspace));
    for root in layer.roots_elsewhere().unwrap_or_default() {
        note!(
            "ringfence: `{}` is on another file system than the state directory: while changes land, other programs can \
             open them under their temporary names beside their targets",
            ByteString::from(root.as_path()).display()
        );
    }
    let id = layer.id().clone();
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        show::next_steps(id.as_str());
        return;
    }
    loop {
        match asked() {
            TryAnswer::Diff => {
                if show::diffs(&layer, &judged, &workspace, style(environment)).is_err() {
                    return;
                }
            }
            TryAnswer::Commit => {
                let request = LandingRequest { action: LandingAction::Commit, only: &[], except: &[] };
                // The exit code stays that of the command; what went wrong is on standard error.
                let _told = land(&mut session, environment, layer, &request);
                return;
            }
            TryAnswer::Discard => {
                let _told = drop_layer(runtime, layer, DiscardExtent::Waiting);
                return;
            }
            TryAnswer::Later => {
                show::next_steps(id.as_str());
                return;
            }
        }
    }
}

enum TryAnswer {
    Commit,
    Diff,
    Discard,
    Later,
}

/// Without an answer everything stays as it is.
fn asked() -> TryAnswer {
    aside(format_args!("[c]ommit, show the [d]iff, discard [x], or [L]ater? "));
    // Keys that were typed for the command are no answer.
    let _flushed = tcflush(io::stdin(), QueueSelector::IFlush);
    let mut line = String::new();
    if io::stdin().lock().read_line(&mut line).is_err() {
        return TryAnswer::Later;
    }
    match line.trim() {
        "c" | "commit" => TryAnswer::Commit,
        "d" | "diff" => TryAnswer::Diff,
        "x" | "discard" => TryAnswer::Discard,
        _ => TryAnswer::Later,
    }
}

/// Prints how this start ended interrupted landings.
pub(crate) fn tell_recovered(runtime: &Runtime) {
    for recovered in runtime.recovered_landings() {
        match recovered {
            Ok(recovered) => {
                let what = match (recovered.action, &recovered.outcome) {
                    (_, None) => "was interrupted before anything landed; nothing was changed".to_owned(),
                    (LandingAction::Commit, Some(outcome)) => format!(
                        "was interrupted while it landed; it is complete now: {}",
                        counted(outcome.landed, "change")
                    ),
                    (_, Some(outcome)) => format!(
                        "was interrupted while it was taken back; it is complete now: {}",
                        counted(outcome.landed, "change")
                    ),
                };
                note!("ringfence: {} {what}", recovered.layer);
                let left = recovered.outcome.iter().flat_map(LandingOutcome::unlanded);
                for entry in left {
                    note!("ringfence: `{}` is left as it is: {}", entry.path.display(), entry.reason);
                }
            }
            Err(error) => {
                note!("ringfence: cannot finish an interrupted landing: {}", chain(error));
                note!(
                    "  hint: `ringfence changes --all` shows which; the next start tries again. If its directory is gone for \
                     good, `ringfence discard ID` removes it"
                );
            }
        }
    }
}
