//! `ringfence config`: checks and shows the operator's file.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::ExitCode;

use ringfence_authz::env::ApproverPresence;
use ringfence_daemon::check_telemetry;
use ringfence_policy::{
    ApprovalSettings, DaemonSettings, HeaderSource, OperatorSettings, TelemetrySettings, TlsSettings,
};
use ringfence_runtime::HostSetup;
use ringfence_types::ByteString;
use serde::Serialize;

use crate::args::ConfigCommand;
use crate::commands::run::print_json;
use crate::environment::Environment;
use crate::error;
use crate::host;
use crate::output::{self, OutputFormat, note, say};
use crate::policy_resolution;

pub(crate) fn run(command: ConfigCommand) -> ExitCode {
    let done = match command {
        ConfigCommand::Check { file } => check(file.as_deref()),
        ConfigCommand::Show { json } => show(json.into()),
    };
    done.unwrap_or_else(|code| code)
}

/// The checks of a start: owner, permissions, content.
fn check(named: Option<&Path>) -> Result<ExitCode, ExitCode> {
    let (environment, setup) = surroundings()?;
    let settings = policy_resolution::settings(&environment, &setup, named)?;
    if let Some(telemetry) = &settings.telemetry {
        check_telemetry(&setup.state_dir, telemetry)
            .map_err(|error| error::failed(&error, error.hint().as_deref()))?;
    }
    let default = setup.config_dir.join("config.toml");
    let path = named.unwrap_or(&default);
    match fs::metadata(path) {
        Ok(_) => {
            secrets_are_private(path)?;
            say!("{}: ok", ByteString::from(path).display());
        }
        Err(_) => {
            note!(
                "ringfence: `{}` does not exist; the built-in profiles apply",
                ByteString::from(path).display()
            )
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn surroundings() -> Result<(Environment, HostSetup), ExitCode> {
    let environment = Environment::read();
    let setup = host::setup(&environment, ApproverPresence::Unattended)
        .map_err(|error| error::failed(&error, None))?;
    Ok((environment, setup))
}

/// Secrets belong in `ringfence secret`. A file that contains one must at least be private.
fn secrets_are_private(path: &Path) -> Result<(), ExitCode> {
    const OTHERS: u32 = 0o077;
    // An unreadable file must not pass the check.
    let text = fs::read_to_string(path).map_err(|error| error::failed(&error, None))?;
    let open = fs::metadata(path).is_ok_and(|found| found.mode() & OTHERS != 0);
    if open && output::clean(&text) != text {
        let shown = ByteString::from(path).display();
        let hint = format!("`chmod 600 {shown}`, and keep it with `ringfence secret set` instead");
        let what = format!("`{shown}` holds what looks like a secret, and others may read it");
        return Err(error::failed_text(&what, Some(&hint)));
    }
    Ok(())
}

/// Schema 1.
#[derive(Serialize)]
struct ConfigJson {
    schema: u32,
    settings: Vec<(&'static str, String)>,
}

fn show(form: OutputFormat) -> Result<ExitCode, ExitCode> {
    let (environment, setup) = surroundings()?;
    let OperatorSettings { approvals, daemon, telemetry } =
        policy_resolution::settings(&environment, &setup, None)?;
    let mut lines = of_approvals(&approvals);
    lines.extend(of_daemon(&daemon));
    lines.extend(of_telemetry(telemetry.as_ref()));
    let settings: Vec<(&'static str, String)> =
        lines.into_iter().map(|(key, value)| (key, output::clean(&value))).collect();
    match form {
        OutputFormat::Json => print_json(&ConfigJson { schema: 1, settings }),
        OutputFormat::Text => settings
            .iter()
            .for_each(|(key, value)| say!("{key} = {}", ByteString::from(value.as_str()).display())),
    }
    Ok(ExitCode::SUCCESS)
}

fn of_approvals(approvals: &ApprovalSettings) -> Vec<(&'static str, String)> {
    let by_default = |value: Option<String>, default: &str| value.unwrap_or_else(|| format!("({default})"));
    let words: Vec<&str> = approvals.notify.iter().map(|channel| channel.word()).collect();
    let mut lines = vec![
        ("approvals.timeout", by_default(approvals.timeout.map(|time| time.to_string()), "by risk")),
        ("approvals.quorum.approve", approvals.quorum.approve.to_string()),
        ("approvals.quorum.deny", approvals.quorum.deny.to_string()),
        ("approvals.require_reason", approvals.reason_required.to_string()),
        (
            "approvals.grant_lifetime",
            by_default(approvals.grant_lifetime.map(|time| time.to_string()), "30d"),
        ),
        ("approvals.notify", words.join(" ")),
    ];
    if let Some(webhook) = &approvals.webhook {
        lines.push(("approvals.webhook.url", masked(&webhook.url)));
        lines.push((
            "approvals.webhook.secret_file",
            ByteString::from(webhook.secret_file.as_path()).display(),
        ));
    }
    lines
}

/// Many services authenticate a webhook by its path alone.
fn masked(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if host.len() == rest.len() { url.to_owned() } else { format!("{scheme}://{host}/…") }
}

fn of_daemon(daemon: &DaemonSettings) -> Vec<(&'static str, String)> {
    let Some(listen) = daemon.listen else { return vec![("daemon.listen", "(off)".to_owned())] };
    let mut lines = vec![
        ("daemon.listen", listen.to_string()),
        ("daemon.hosts", daemon.hosts.join(" ")),
        ("daemon.origins", daemon.origins.join(" ")),
    ];
    match &daemon.tls {
        TlsSettings::Off => lines.push(("daemon.tls", "off".to_owned())),
        TlsSettings::Generated => lines.push(("daemon.tls", "generated".to_owned())),
        TlsSettings::Files { certificate, key } => {
            lines.push(("daemon.tls", "files".to_owned()));
            lines.push(("daemon.certificate", ByteString::from(certificate.as_path()).display()));
            lines.push(("daemon.key", ByteString::from(key.as_path()).display()));
        }
    }
    lines
}

fn of_telemetry(telemetry: Option<&TelemetrySettings>) -> Vec<(&'static str, String)> {
    let Some(telemetry) = telemetry else { return vec![("telemetry.endpoint", "(off)".to_owned())] };
    let signals: Vec<&str> = telemetry.signals.iter().map(|signal| signal.word()).collect();
    let mut lines = vec![
        ("telemetry.endpoint", telemetry.endpoint.to_string()),
        ("telemetry.signals", signals.join(" ")),
        ("telemetry.content", telemetry.content.word().to_owned()),
        ("telemetry.timeout", telemetry.timeout.to_string()),
        ("telemetry.queue", telemetry.queue.to_string()),
    ];
    if let Some(authority) = &telemetry.authority {
        lines.push(("telemetry.authority", ByteString::from(authority.as_path()).display()));
    }
    for header in &telemetry.headers {
        // The source of the value, never the value.
        let from = match &header.source {
            HeaderSource::Secret(name) => format!("secret `{name}`"),
            HeaderSource::File(path) => format!("file `{}`", ByteString::from(path.as_path()).display()),
        };
        lines.push(("telemetry.headers", format!("{} from {from}", header.name)));
    }
    let said = telemetry.resource.iter().map(|(name, value)| format!("{name}={value}"));
    lines.extend(said.map(|said| ("telemetry.resource", said)));
    lines
}
