//! `ringfence session`: sessions of the daemon, and sessions with a name.

use std::process::ExitCode;

use ringfence_api::{
    CallInfo, CallState, Chunk, Data, Exec, ListSessions, RunCommand, SessionInfo, ShowSession, StopSession,
};
use ringfence_client::Client;
use ringfence_runtime::authz::env::Attendance;
use ringfence_runtime::end_session;
use ringfence_types::{Bytes, SessionId, WorkspaceId};

use crate::approval::{self, Need};
use crate::args::{AtDaemon, CreateSession, FAILED, Place, SessionCommand, SessionRun};
use crate::asked;
use crate::commands::run::{self, print_json};
use crate::commands::serve;
use crate::daemon::{failed, posted_at};
use crate::environment::Environment;
use crate::error;
use crate::host;
use crate::output::{bytes_out, say};

pub(crate) fn run(command: SessionCommand) -> ExitCode {
    let done = match command {
        SessionCommand::Create(create) => self::create(&create),
        SessionCommand::List { daemon, all } => list(&daemon, &ListSessions { all }),
        SessionCommand::Show { daemon, id } => show(&daemon, &id),
        SessionCommand::Stop { daemon, id } => stop(&daemon, &id),
        SessionCommand::Run(run) => run_in(&run),
        SessionCommand::End { place, name } => end(&place, &name),
    };
    done.unwrap_or_else(|code| code)
}

/// The daemon that is named; else the one that works on the state directory of this user, as every other command finds it.
fn connect(at: &AtDaemon) -> Result<Client, ExitCode> {
    let environment = Environment::read();
    let posted = posted_at(&environment).filter(|_| at.socket.is_none());
    // What was left by one that was killed leads nowhere.
    if let Some(client) = posted.and_then(|socket| Client::connect(&socket, None).ok()) {
        return Ok(client);
    }
    let socket = serve::socket(at.socket.as_deref(), &environment)?;
    Client::connect(&socket, None).map_err(|error| failed(&error))
}

fn id(text: &str) -> Result<SessionId, ExitCode> {
    serde_json::from_value(text.into()).map_err(|error| error::failed(&error, None))
}

fn create(wanted: &CreateSession) -> Result<ExitCode, ExitCode> {
    let environment = Environment::read();
    let here = asked::current_dir()?;
    let default = || host::default_workspace(&here, environment.home.as_deref());
    let workspace = wanted.workspace.as_ref().map_or_else(default, |named| here.join(named));
    let text = |bytes: &Bytes| String::from_utf8_lossy(bytes.as_slice()).into_owned();
    let request = ringfence_api::CreateSession {
        workspace: asked::real(&workspace),
        agent: wanted.agent.clone(),
        provider: (!wanted.provider.is_empty()).then(|| wanted.provider.clone()),
        profile: wanted.profile,
        net: wanted.net,
        environment: wanted.env.iter().map(|variable| (text(&variable.0), text(&variable.1))).collect(),
        timeout_s: wanted.timeout.map(|time| time.whole_seconds()),
        idle_timeout_s: wanted.idle_timeout.map(|time| time.whole_seconds()),
        limits: ringfence_api::SessionLimits::default(),
        secrets: wanted.secrets.clone(),
        parent: wanted.parent.as_deref().map(id).transpose()?,
        label: wanted.label.clone(),
    };
    let info = connect(&wanted.daemon)?.call(&request).map_err(|error| failed(&error))?;
    if wanted.daemon.json {
        print_json(&info);
    } else {
        say!("{}", info.session);
    }
    Ok(ExitCode::SUCCESS)
}

fn list(daemon: &AtDaemon, wanted: &ListSessions) -> Result<ExitCode, ExitCode> {
    let found = connect(daemon)?.call(wanted).map_err(|error| failed(&error))?;
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
    let shown = |text: &str| Bytes::from(text).display();
    let what = info.provider.as_ref().and_then(|provider| provider.argv.first()).map(|word| shown(word));
    let label = info.label.as_deref().map(shown).unwrap_or_default();
    let state = info.state.word();
    let workspace = Bytes::from(info.workspace.as_path()).display();
    say!(
        "{}  {state:<8}  {:<10}  {workspace}  {}  {label}",
        info.session,
        info.profile,
        what.unwrap_or_default()
    );
}

fn show(daemon: &AtDaemon, text: &str) -> Result<ExitCode, ExitCode> {
    let info = connect(daemon)?.call(&ShowSession { session: id(text)? }).map_err(|error| failed(&error))?;
    tell(daemon, &info);
    Ok(ExitCode::SUCCESS)
}

fn stop(daemon: &AtDaemon, text: &str) -> Result<ExitCode, ExitCode> {
    let request = StopSession { session: id(text)?, grace_ms: None };
    let info = connect(daemon)?.call(&request).map_err(|error| failed(&error))?;
    tell(daemon, &info);
    Ok(ExitCode::SUCCESS)
}

fn tell(daemon: &AtDaemon, info: &SessionInfo) {
    if daemon.json {
        return print_json(info);
    }
    line(info);
    if let Some(why) = &info.ended {
        say!("ended: {}", Bytes::from(why.as_str()).display());
    }
}

fn run_in(run: &SessionRun) -> Result<ExitCode, ExitCode> {
    let request = RunCommand(Exec {
        session: id(&run.id)?,
        argv: run.command.clone(),
        cwd: None,
        environment: Default::default(),
        stdin: None,
        timeout_ms: None,
        background: false,
        interactive: false,
        terminal: None,
        reason: None,
    });
    let mut client = connect(&run.daemon)?;
    for chunk in client.run(&request).map_err(|error| failed(&error))? {
        match chunk.map_err(|error| failed(&error))? {
            Chunk::Stdout { data, .. } => bytes_out(&mut std::io::stdout(), &bytes(data)?),
            Chunk::Stderr { data, .. } => bytes_out(&mut std::io::stderr(), &bytes(data)?),
            Chunk::Lost { .. } => {}
            Chunk::Ended { call, .. } => return Ok(ended(&call)),
            Chunk::Cut { error } => return Err(failed(&(*error).into())),
        }
    }
    Err(error::failed_text("the daemon went away before the command ended", None))
}

fn bytes(data: Data) -> Result<Vec<u8>, ExitCode> {
    data.bytes().map_err(|error| failed(&error.into()))
}

fn ended(call: &CallInfo) -> ExitCode {
    match (call.state, &call.refusal) {
        (CallState::Refused, Some(refusal)) => error::refused(refusal),
        (CallState::Done, _) => ExitCode::from(call.exit_code.unwrap_or(FAILED)),
        _ => error::failed_text(call.failure.as_deref().unwrap_or("the call did not come to its end"), None),
    }
}

fn end(place: &Place, name: &str) -> Result<ExitCode, ExitCode> {
    let environment = Environment::read();
    approval::require(&environment, Need::Nothing, "end a session")?;
    let runtime = run::runtime(&environment, Attendance::Unattended)?;
    let workspace = WorkspaceId::of_canonical_path(&asked::workspace(place, &environment)?);
    let ended =
        end_session(runtime.ledger(), &workspace, name).map_err(|error| error::failed(&error, None))?;
    let shown = Bytes::from(name).display();
    match ended {
        Some(id) => say!("`{shown}` ({id}) is over"),
        None => say!("no session `{shown}` goes on in this workspace"),
    }
    Ok(ExitCode::SUCCESS)
}
