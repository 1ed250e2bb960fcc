//! `ringfence serve`: what the daemon needs of this machine, put together.

use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use ringfence_daemon::{
    Governor as _, Listening, Network, Settings, Wanted, check_directory, check_telemetry, doors_of,
    is_locked,
};
use ringfence_runtime::authz::env::Attendance;
use ringfence_runtime::authz::policy::DaemonSettings;
use ringfence_runtime::authz::{DangerFlags, check_flags};
use ringfence_runtime::tls::LoadTlsError;
use ringfence_runtime::web::{Certificate, Guard, Site};
use ringfence_runtime::{Runtime, Setup, close_on_exec, tls};
use ringfence_types::Reach;
use rustix::process::{PidfdFlags, PidfdGetfdFlags};

use crate::approval::{self, Need};
use crate::args::Serve;
use crate::asked;
use crate::commands::run;
use crate::daemon::Posted;
use crate::environment::{self, Environment};
use crate::error;
use crate::governor::HostGovernor;
use crate::host;
use crate::output::note;

/// The first descriptor that whoever starts services hands over.
const FIRST: i32 = 3;

pub(crate) fn run(arguments: &Serve) -> ExitCode {
    served(arguments).unwrap_or_else(|code| code)
}

fn served(arguments: &Serve) -> Result<ExitCode, ExitCode> {
    let environment = Environment::read();
    // A daemon inside a session would be one whose owner is an agent.
    approval::require(&environment, Need::Nothing, "serve")?;
    check_flags(arguments.danger.into()).map_err(|refusal| error::refused(&refusal))?;
    let socket = socket(arguments.socket.as_deref(), &environment)?;
    let directory = socket.parent().unwrap_or(Path::new("/")).to_owned();
    if arguments.check {
        return checked(arguments, &environment, (&socket, &directory));
    }
    let listening = listening(&socket)?;
    let socket = listening.address().unwrap_or(socket);
    let runtime = run::runtime(&environment, Attendance::Unattended)?;
    let governor = governor(arguments, environment, runtime.setup())?;
    tell_danger(arguments.danger.into(), &governor, &runtime)?;
    let settings = Settings {
        sessions: arguments.max_sessions,
        calls: arguments.max_calls,
        drain: std::time::Duration::from_millis(arguments.drain.0),
        ..Settings::default()
    };
    let network = network(governor.settings(), governor.setup())?;
    let _posted = Posted::new(&runtime.setup().state_dir, &socket).map_err(|error| {
        error::failed_text(&format!("the state directory cannot be written: {error}"), None)
    })?;
    note!("ringfence: serving at {}", ringfence_types::Bytes::from(socket.as_path()).display());
    let serve = ringfence_daemon::Serve {
        runtime,
        governor: Arc::new(governor),
        listening,
        network,
        doors: doors_of(&socket),
        settings,
    };
    ringfence_daemon::serve(serve).map_err(|error| error::failed(&error, error.hint().as_deref()))?;
    Ok(ExitCode::SUCCESS)
}

fn governor(arguments: &Serve, environment: Environment, setup: &Setup) -> Result<HostGovernor, ExitCode> {
    let (named, danger) = (arguments.policy.clone(), arguments.danger.into());
    HostGovernor::new(named, environment, setup.clone(), danger)
}

/// What the flags open is said where the daemon writes its words, and written down before anybody can use it.
fn tell_danger(danger: DangerFlags, governor: &HostGovernor, runtime: &Runtime) -> Result<(), ExitCode> {
    let opened = [
        (
            danger.danger,
            "`--danger`: sessions may have profile `danger`, in which the machine is open, and all have the backend `none` or \
             `external`, which contain nothing by themselves, where the configuration names it",
        ),
        (
            danger.allow_sensitive_roots,
            "`--allow-sensitive-roots`: those of profile `danger` and of backend `none` see keys and credentials of this user",
        ),
        (
            danger.allow_denylisted_commands,
            "`--allow-denylisted-commands`: what is on the deny list is asked about in every session",
        ),
    ];
    let opened: Vec<&str> = opened.into_iter().filter(|(is, _)| *is).map(|(_, what)| what).collect();
    if opened.is_empty() {
        return Ok(());
    }
    for what in &opened {
        note!("ringfence: warning: started with {what}");
    }
    let change = format!("serving with {}", opened.join("; "));
    runtime.policy_changed(&governor.stored(), &change).map_err(|error| error::failed(&error, None))
}

/// The listener on TCP that `[daemon]` of the operator's file asks for.
fn network(settings: DaemonSettings, setup: &Setup) -> Result<Option<Network>, ExitCode> {
    let Some(network) = listener(settings, setup, tls::certificate)? else { return Ok(None) };
    let bind = network.bind();
    note!("ringfence: serving at {bind}");
    if let Some(fingerprint) = network.fingerprint() {
        note!("  certificate SHA-256 {fingerprint}");
    }
    if bind.reach() == Reach::Network {
        note!(
            "ringfence: warning: others can reach this address; every token is worth what its scopes say, from anywhere"
        );
    }
    Ok(Some(network))
}

fn listener(
    settings: DaemonSettings,
    setup: &Setup,
    certificate: impl FnOnce(&DaemonSettings, &Path) -> Result<Option<Certificate>, LoadTlsError>,
) -> Result<Option<Network>, ExitCode> {
    let Some(bind) = settings.listen else { return Ok(None) };
    let certificate = certificate(&settings, &setup.state_dir)
        .map_err(|error| error::failed(&error, error.hint().as_deref()))?;
    let sites = settings.hosts.iter().map(|host| Site::parse(host));
    let sites: Vec<Site> = sites.collect::<Result<_, _>>().map_err(|error| error::failed(&error, None))?;
    let guard = |bind| Guard::new(bind, sites, settings.origins);
    Network::listen(bind, guard, certificate).map(Some).map_err(|error| error::failed(&error, None))
}

/// Where the daemon listens, and where its clients look for it.
pub(crate) fn socket(named: Option<&Path>, environment: &Environment) -> Result<PathBuf, ExitCode> {
    if let Some(named) = named {
        let here = asked::current_dir()?;
        return Ok(here.join(named));
    }
    let default = match &environment.runtime_dir {
        Some(directory) => directory.join("ringfence"),
        None => host::state_dir(environment).map_err(|error| error::failed(&error, None))?.join("run"),
    };
    Ok(default.join("daemon.sock"))
}

fn listening(socket: &Path) -> Result<Listening, ExitCode> {
    if environment::handed_over() == 0 {
        return Listening::at(socket).map_err(|error| error::failed(&error, error.hint()));
    }
    let listener =
        inherited().map_err(|error| error::failed(&error, Some("LISTEN_FDS has to be one socket")))?;
    Listening::inherited(listener).map_err(|error| error::failed(&error, error.hint()))
}

/// A copy of our own descriptor 3, by the way that needs no promise about it. The first one stays open, and is nobody's else:
/// whoever had it could accept what operators say.
fn inherited() -> std::io::Result<UnixListener> {
    let own = rustix::process::pidfd_open(rustix::process::getpid(), PidfdFlags::empty())?;
    let socket = rustix::process::pidfd_getfd(own, FIRST, PidfdGetfdFlags::empty())?;
    let _done = close_on_exec(FIRST)?;
    Ok(UnixListener::from(socket))
}

/// Looks, and leaves everything as it is.
fn checked(
    arguments: &Serve,
    environment: &Environment,
    (socket, directory): (&Path, &Path),
) -> Result<ExitCode, ExitCode> {
    if directory.exists() {
        check_directory(directory).map_err(|error| error::failed(&error, error.hint()))?;
    }
    let setup =
        host::setup(environment, Attendance::Unattended).map_err(|error| error::failed(&error, None))?;
    if setup.state_dir.exists() {
        let runtime = run::runtime(environment, Attendance::Unattended)?;
        runtime.identities().map_err(|error| error::failed(&error, error.hint().as_deref()))?;
    }
    let governor = governor(arguments, environment.clone(), &setup)?;
    let wanted = Wanted {
        // Any that the operator's files are not in.
        workspace: directory.to_owned(),
        agent: None,
        profile: None,
        net: None,
        limits: ringfence_api::SessionLimits::default(),
    };
    governor.govern(&wanted).map_err(|refusal| error::refused(&refusal))?;
    if let Some(telemetry) = governor.telemetry() {
        check_telemetry(&setup.state_dir, &telemetry)
            .map_err(|error| error::failed(&error, error.hint().as_deref()))?;
    }
    let settings = governor.settings();
    if settings.listen.is_some() && is_locked(socket) {
        // The address is its own, and tells nothing while it has it.
        note!("ringfence: a daemon serves already, so the address of `[daemon]` was not tried");
    } else {
        listener(settings, governor.setup(), tls::trial)?;
    }
    note!("ringfence: it could serve at {}", ringfence_types::Bytes::from(socket).display());
    Ok(ExitCode::SUCCESS)
}
