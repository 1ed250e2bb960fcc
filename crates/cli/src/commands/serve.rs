//! `ringfence serve`: assembles and runs the daemon.

use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use ringfence_authz::env::ApproverPresence;
use ringfence_authz::{DangerFlags, check_flags};
use ringfence_daemon::{
    DaemonLimits, PolicyProvider as _, SessionPolicyRequest, TcpListenerConfig, UnixListenerGuard,
    check_directory, check_socket_path, check_telemetry, doors_of, is_locked,
};
use ringfence_policy::DaemonSettings;
use ringfence_runtime::tls::LoadTlsError;
use ringfence_runtime::{HostSetup, Runtime, close_on_exec, tls};
use ringfence_types::BindScope;
use ringfence_web::{Certificate, ListenerName, OriginGuard};
use rustix::process::{PidfdFlags, PidfdGetfdFlags};

use crate::approval::{self, OperatorRequirement};
use crate::args::ServeArgs;
use crate::commands::run;
use crate::daemon_client::DaemonAddressFile;
use crate::daemon_policy::HostPolicyProvider;
use crate::environment::{self, Environment};
use crate::error;
use crate::host;
use crate::output::note;
use crate::policy_resolution;

/// The first descriptor that a service manager passes.
const FIRST: i32 = 3;

pub(crate) fn run(arguments: &ServeArgs) -> ExitCode {
    served(arguments).unwrap_or_else(|code| code)
}

fn served(arguments: &ServeArgs) -> Result<ExitCode, ExitCode> {
    let environment = Environment::read();
    // A daemon inside a session would have the agent as its owner.
    approval::require(&environment, OperatorRequirement::Nothing, "serve")?;
    check_flags(arguments.danger.into()).map_err(|refusal| error::refused(&refusal))?;
    let socket = socket(arguments.socket.as_deref(), &environment)?;
    let directory = socket.parent().unwrap_or(Path::new("/")).to_owned();
    if arguments.check {
        return checked(arguments, &environment, &socket, &directory);
    }
    let listening = listening(&socket)?;
    let socket = listening.address().unwrap_or(socket);
    let runtime = run::runtime(&environment, ApproverPresence::Unattended)?;
    let governor = governor(arguments, environment, runtime.setup())?;
    tell_danger(arguments.danger.into(), &governor, &runtime)?;
    let settings = DaemonLimits {
        sessions: arguments.max_sessions,
        calls: arguments.max_calls,
        drain: std::time::Duration::from_millis(arguments.drain_timeout.0),
        ..DaemonLimits::default()
    };
    let network = network(governor.settings(), governor.setup())?;
    let _posted = DaemonAddressFile::new(&runtime.setup().state_dir, &socket).map_err(|error| {
        error::failed_text(&format!("the state directory cannot be written: {error}"), None)
    })?;
    note!("ringfence: serving at {}", ringfence_types::ByteString::from(socket.as_path()).display());
    let serve = ringfence_daemon::DaemonConfig {
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

fn governor(
    arguments: &ServeArgs,
    environment: Environment,
    setup: &HostSetup,
) -> Result<HostPolicyProvider, ExitCode> {
    let (named, danger) = (arguments.policy.clone(), arguments.danger.into());
    HostPolicyProvider::new(named, environment, setup.clone(), danger)
}

/// Logs what the danger flags open, and records it before any client can use it.
fn tell_danger(
    danger: DangerFlags,
    governor: &HostPolicyProvider,
    runtime: &Runtime,
) -> Result<(), ExitCode> {
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
            "`--allow-denylisted-commands`: commands on the deny list ask for approval in every session",
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

/// The TCP listener of `[daemon]` in the operator's file.
fn network(settings: DaemonSettings, setup: &HostSetup) -> Result<Option<TcpListenerConfig>, ExitCode> {
    let Some(network) = listener(settings, setup, tls::certificate)? else { return Ok(None) };
    let bind = network.bind();
    note!("ringfence: serving at {bind}");
    if let Some(fingerprint) = network.fingerprint() {
        note!("  certificate SHA-256 {fingerprint}");
    }
    if bind.reach() == BindScope::Network {
        note!("ringfence: warning: other machines can reach this address; tokens work from anywhere");
    }
    Ok(Some(network))
}

fn listener(
    settings: DaemonSettings,
    setup: &HostSetup,
    certificate: impl FnOnce(&DaemonSettings, &Path) -> Result<Option<Certificate>, LoadTlsError>,
) -> Result<Option<TcpListenerConfig>, ExitCode> {
    let Some(bind) = settings.listen else { return Ok(None) };
    let certificate = certificate(&settings, &setup.state_dir)
        .map_err(|error| error::failed(&error, error.hint().as_deref()))?;
    let sites = settings.hosts.iter().map(|host| ListenerName::parse(host));
    let sites: Vec<ListenerName> =
        sites.collect::<Result<_, _>>().map_err(|error| error::failed(&error, None))?;
    let guard = |bind| OriginGuard::new(bind, sites, settings.origins);
    TcpListenerConfig::listen(bind, guard, certificate).map(Some).map_err(|error| error::failed(&error, None))
}

/// The daemon's socket, for the daemon and its clients.
pub(crate) fn socket(named: Option<&Path>, environment: &Environment) -> Result<PathBuf, ExitCode> {
    if let Some(named) = named {
        let here = policy_resolution::current_dir()?;
        return Ok(here.join(named));
    }
    let default = match &environment.runtime_dir {
        Some(directory) => directory.join("ringfence"),
        None => host::state_dir(environment).map_err(|error| error::failed(&error, None))?.join("run"),
    };
    Ok(default.join("daemon.sock"))
}

fn listening(socket: &Path) -> Result<UnixListenerGuard, ExitCode> {
    if environment::handed_over() == 0 {
        return UnixListenerGuard::at(socket).map_err(|error| error::failed(&error, error.hint()));
    }
    let listener =
        inherited().map_err(|error| error::failed(&error, Some("LISTEN_FDS has to be one socket")))?;
    UnixListenerGuard::inherited(listener).map_err(|error| error::failed(&error, error.hint()))
}

/// Duplicates our own descriptor 3 without `unsafe`. The original stays open and becomes close-on-exec: a
/// process that inherited it could accept operators' connections.
fn inherited() -> std::io::Result<UnixListener> {
    let own = rustix::process::pidfd_open(rustix::process::getpid(), PidfdFlags::empty())?;
    let socket = rustix::process::pidfd_getfd(own, FIRST, PidfdGetfdFlags::empty())?;
    close_on_exec(FIRST)?;
    Ok(UnixListener::from(socket))
}

/// Checks the configuration without changing anything.
fn checked(
    arguments: &ServeArgs,
    environment: &Environment,
    socket: &Path,
    directory: &Path,
) -> Result<ExitCode, ExitCode> {
    check_socket_path(socket).map_err(|error| error::failed(&error, error.hint()))?;
    if directory.exists() {
        check_directory(directory).map_err(|error| error::failed(&error, error.hint()))?;
    }
    let setup = host::setup(environment, ApproverPresence::Unattended)
        .map_err(|error| error::failed(&error, None))?;
    if setup.state_dir.exists() {
        let runtime = run::runtime(environment, ApproverPresence::Unattended)?;
        runtime.identities().map_err(|error| error::failed(&error, error.hint().as_deref()))?;
    }
    let governor = governor(arguments, environment.clone(), &setup)?;
    let wanted = SessionPolicyRequest {
        // Any directory without the operator's files.
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
        // A running daemon uses the address, so a trial would fail.
        note!("ringfence: a daemon is running, so the address of `[daemon]` was not tested");
    } else {
        listener(settings, governor.setup(), tls::trial)?;
    }
    note!(
        "ringfence: the configuration is valid; the daemon would listen on {}",
        ringfence_types::ByteString::from(socket).display()
    );
    Ok(ExitCode::SUCCESS)
}
