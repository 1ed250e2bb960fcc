//! `ringfence session`: daemon sessions and named local sessions.

mod calls;
mod exec;

use std::collections::BTreeMap;
use std::process::ExitCode;

use ringfence_api::methods::ApiRequest;
use ringfence_api::{ListSessions, ReportActivity, SessionInfo, ShowSession, StopSession};
use ringfence_authz::env::ApproverPresence;
use ringfence_client::Client;
use ringfence_runtime::end_session;
use ringfence_types::{ByteString, SessionId, WorkspaceId};
use serde::Serialize;

use crate::approval::{self, OperatorRequirement};
use crate::args::{DaemonArgs, EnvArg, PolicyArgs, SessionCommand, SessionCreateArgs};
use crate::commands::run::{self, print_json};
use crate::commands::serve;
use crate::daemon_client::{failed, posted_at};
use crate::environment::Environment;
use crate::error;
use crate::output::say;
use crate::policy_resolution;
use crate::surroundings::Surroundings;

pub(crate) fn run(command: SessionCommand) -> ExitCode {
    done(command).unwrap_or_else(|code| code)
}

fn done(command: SessionCommand) -> Result<ExitCode, ExitCode> {
    match command {
        SessionCommand::Create(create) => self::create(&create),
        SessionCommand::List { daemon, all } => list(&daemon, &ListSessions { include_ended: all }),
        SessionCommand::Show { daemon, id } => show(&daemon, &id),
        SessionCommand::Stop { daemon, id } => stop(&daemon, &id),
        SessionCommand::Run(run) => exec::run(&run),
        SessionCommand::Calls { daemon, id } => calls::list(&daemon, &id),
        SessionCommand::Logs { call, after } => calls::logs(&call, after),
        SessionCommand::Signal { call, signal } => calls::signal(&call, signal.0),
        SessionCommand::Input { call, keep_open } => calls::input(
            &call,
            if keep_open { calls::StdinEofMode::KeepOpen } else { calls::StdinEofMode::Close },
        ),
        SessionCommand::Cancel { call } => calls::cancel(&call),
        SessionCommand::Activity { daemon, id, after } => calls::activity(&daemon, &id, after),
        SessionCommand::ReportActivity { daemon, id, activity, claim } => {
            calls::report(&daemon, ReportActivity { session: self::id(&id)?, activity, claim })
        }
        SessionCommand::End { place, name } => end(&place, &name),
    }
}

/// Connects to the named daemon, else to that of this user's state directory, like every other command.
fn connect(at: &DaemonArgs) -> Result<Client, ExitCode> {
    let environment = Environment::read();
    let posted = posted_at(&environment).filter(|_| at.socket.is_none());
    // A file left by a killed daemon leads nowhere.
    if let Some(client) = posted.and_then(|socket| Client::connect(&socket, None).ok()) {
        return Ok(client);
    }
    let socket = serve::socket(at.socket.as_deref(), &environment)?;
    Client::connect(&socket, None).map_err(|error| failed(&error))
}

fn ask<T: ApiRequest + Serialize>(at: &DaemonArgs, request: &T) -> Result<T::Answer, ExitCode> {
    connect(at)?.call(request).map_err(|error| failed(&error))
}

fn id(text: &str) -> Result<SessionId, ExitCode> {
    serde_json::from_value(text.into()).map_err(|error| error::failed(&error, None))
}

/// The API carries variables as text, so a value that is not UTF-8 is refused, not changed.
fn variables(typed: &[EnvArg]) -> Result<BTreeMap<String, String>, ExitCode> {
    let text = |bytes: &ByteString| String::from_utf8(bytes.as_slice().to_vec()).ok();
    let pair = |EnvArg(name, value): &EnvArg| {
        text(name).zip(text(value)).ok_or_else(|| {
            let what =
                format!("the variable `{}` is not UTF-8, and the daemon takes nothing else", name.display());
            error::failed_text(&what, Some("put the bytes into a file of the workspace, and name that"))
        })
    };
    typed.iter().map(pair).collect()
}

fn create(wanted: &SessionCreateArgs) -> Result<ExitCode, ExitCode> {
    let environment = Environment::read();
    let here = policy_resolution::current_dir()?;
    let default = || Surroundings::new(None, &environment).workspace(&here);
    let workspace = wanted.workspace.as_ref().map_or_else(default, |named| here.join(named));
    let request = ringfence_api::CreateSession {
        workspace: policy_resolution::real(&workspace),
        agent_name: wanted.agent.clone(),
        agent_argv: (!wanted.agent_argv.is_empty()).then(|| wanted.agent_argv.clone()),
        profile: wanted.profile,
        net: wanted.net,
        environment: variables(&wanted.env)?,
        timeout_s: wanted.timeout.map(|time| time.whole_seconds()),
        idle_timeout_s: wanted.idle_timeout.map(|time| time.whole_seconds()),
        limits: (&wanted.limits).into(),
        secrets: wanted.secrets.clone(),
        parent: wanted.parent.as_deref().map(id).transpose()?,
        label: wanted.label.clone(),
    };
    let info = ask(&wanted.daemon, &request)?;
    if wanted.daemon.json {
        print_json(&info);
    } else {
        say!("{}", info.session);
    }
    Ok(ExitCode::SUCCESS)
}

fn list(daemon: &DaemonArgs, wanted: &ListSessions) -> Result<ExitCode, ExitCode> {
    let found = ask(daemon, wanted)?;
    if daemon.json {
        print_json(&found);
        return Ok(ExitCode::SUCCESS);
    }
    if found.sessions.is_empty() {
        say!("no session is under way");
    }
    found.sessions.iter().for_each(line);
    Ok(ExitCode::SUCCESS)
}

fn line(info: &SessionInfo) {
    let shown = |text: &str| ByteString::from(text).display();
    let what = info.agent_process.as_ref().and_then(|provider| provider.argv.first()).map(|word| shown(word));
    let label = info.label.as_deref().map(shown).unwrap_or_default();
    let state = info.state.word();
    let workspace = ByteString::from(info.workspace.as_path()).display();
    say!(
        "{}  {state:<8}  {:<10}  {workspace}  {}  {label}",
        info.session,
        info.profile,
        what.unwrap_or_default()
    );
}

fn show(daemon: &DaemonArgs, text: &str) -> Result<ExitCode, ExitCode> {
    let info = ask(daemon, &ShowSession { session: id(text)? })?;
    tell(daemon, &info);
    Ok(ExitCode::SUCCESS)
}

fn stop(daemon: &DaemonArgs, text: &str) -> Result<ExitCode, ExitCode> {
    let request = StopSession { session: id(text)?, grace_ms: None };
    let info = ask(daemon, &request)?;
    tell(daemon, &info);
    Ok(ExitCode::SUCCESS)
}

fn tell(daemon: &DaemonArgs, info: &SessionInfo) {
    if daemon.json {
        return print_json(info);
    }
    line(info);
    if let Some(why) = &info.end_reason {
        say!("ended: {}", ByteString::from(why.as_str()).display());
    }
}

fn end(place: &PolicyArgs, name: &str) -> Result<ExitCode, ExitCode> {
    let environment = Environment::read();
    approval::require(&environment, OperatorRequirement::Nothing, "end a session")?;
    let runtime = run::runtime(&environment, ApproverPresence::Unattended)?;
    let workspace = WorkspaceId::of_canonical_path(&policy_resolution::workspace(place, &environment)?);
    let ended =
        end_session(runtime.ledger(), &workspace, name).map_err(|error| error::failed(&error, None))?;
    let shown = ByteString::from(name).display();
    match ended {
        Some(id) => say!("`{shown}` ({id}) has ended"),
        None => say!("no open session `{shown}` in this workspace"),
    }
    Ok(ExitCode::SUCCESS)
}
