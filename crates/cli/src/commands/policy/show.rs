//! The policy in force, with the origin of each value.

use std::process::ExitCode;

use ringfence_authz::JudgementPart;
use ringfence_authz::env::ApproverPresence;
use ringfence_authz::tools::effective;
use ringfence_policy::{EffectiveSetting, FileAuthority, PolicyFile, StartupFlags, WideningRequest, trust};
use ringfence_types::{ByteString, Decision, PolicyLayer};
use serde::Serialize;

use super::OutputFormat;
use crate::args::{NetworkArgs, PolicyArgs};
use crate::commands::run::print_json;
use crate::environment::Environment;
use crate::error;
use crate::explain;
use crate::host;
use crate::output::say;
use crate::policy_resolution::{self, PolicyResolutionError, ResolvedPolicy};

pub(super) fn run(
    place: &PolicyArgs,
    network: &NetworkArgs,
    form: OutputFormat,
) -> Result<ExitCode, ExitCode> {
    let environment = Environment::read();
    let setup = host::setup(&environment, ApproverPresence::Unattended)
        .map_err(|error| error::failed(&error, None))?;
    let flags = StartupFlags {
        net: network.net,
        hosts: policy_resolution::hosts(network)?,
        ..StartupFlags::default()
    };
    let governed = match policy_resolution::resolve(place, &environment, &setup, flags) {
        Ok(governed) => governed,
        Err(PolicyResolutionError::Failed(code)) => return Err(code),
        Err(PolicyResolutionError::Refused(refusal)) => return Err(error::refused(&refusal)),
    };
    match form {
        OutputFormat::Json => print_json(&report(&governed)),
        OutputFormat::Text => print(&governed),
    }
    Ok(ExitCode::SUCCESS)
}

fn print(governed: &ResolvedPolicy) {
    say!("workspace  {}", ByteString::from(governed.flags.workspace.as_path()).display());
    for file in &governed.files {
        let standing = standing(governed, file);
        say!("file       {}  ({standing})", ByteString::from(file.path()).display());
    }
    say!("");
    let settings = &governed.effective.settings;
    let key = settings.iter().map(|setting| setting.key.len()).max().unwrap_or_default();
    let value =
        settings.iter().map(|setting| setting.value.chars().count()).max().unwrap_or_default().min(48);
    for setting in settings {
        say!("{:key$}  {:value$}  {}", setting.key, shown(&setting.value), origin(setting));
    }
    print_tools(governed);
    let requests = &governed.effective.requests;
    if requests.is_empty() {
        return;
    }
    say!("\nThe workspace asks for more. None of this has an effect:");
    for request in requests {
        say!("  {}  {}: {}", request.origin, shown(&request.what), shown(&request.why));
    }
    say!("`ringfence policy approve` grants it, as the file is now.");
}

/// Prints the tools that a rule restricts or names.
fn print_tools(governed: &ResolvedPolicy) {
    let mut tools = tools(governed);
    tools.retain(|tool| tool.decision != Decision::Allow || tool.origin.is_some());
    if tools.is_empty() {
        return;
    }
    let name = tools.iter().map(|tool| tool.subject.chars().count()).max().unwrap_or_default().min(48);
    say!("");
    for tool in &tools {
        say!(
            "tool {:name$}  {:5}  {}",
            shown(&tool.subject),
            explain::decision_word(tool.decision),
            explain::basis(tool)
        );
    }
}

/// The tool rules for this session's agent (S003-14).
fn tools(governed: &ResolvedPolicy) -> Vec<JudgementPart> {
    let policy = &governed.effective.policy;
    effective(policy, policy.agent.as_deref())
}

fn shown(text: &str) -> String {
    ByteString::from(text).display()
}

fn origin(setting: &EffectiveSetting) -> String {
    match (&setting.origin, setting.layer) {
        (Some(origin), layer) => format!("{} ({origin})", word(layer)),
        (None, PolicyLayer::Floor) => "built in".to_owned(),
        (None, layer) => word(layer),
    }
}

/// The same words as in JSON.
fn word(layer: PolicyLayer) -> String {
    match layer {
        PolicyLayer::Floor => "floor",
        PolicyLayer::Flags => "flags",
        PolicyLayer::Operator => "operator",
        PolicyLayer::Workspace => "workspace",
        PolicyLayer::Session => "session",
        PolicyLayer::Call => "call",
    }
    .to_owned()
}

fn standing(governed: &ResolvedPolicy, file: &PolicyFile) -> &'static str {
    match trust(&governed.flags, &governed.files, file) {
        FileAuthority::Operator => "of the operator",
        FileAuthority::Approved => "of the workspace, approved",
        FileAuthority::Unapproved => "of the workspace: it only narrows",
    }
}

/// What `policy show --json` prints, schema 1.
#[derive(Serialize)]
struct PolicyJson<'a> {
    schema: u32,
    workspace: ByteString,
    files: Vec<PolicyFileJson>,
    settings: Vec<SettingJson<'a>>,
    /// The tool rules for this session's agent.
    tools: Vec<ToolJson>,
    /// What an unapproved workspace file requests. It has no effect.
    requests: Vec<WideningRequestJson<'a>>,
}

#[derive(Serialize)]
struct PolicyFileJson {
    path: ByteString,
    /// `operator`, `approved` or `unapproved`.
    trust: &'static str,
    /// What `policy approve --sha256` takes.
    seal: String,
}

#[derive(Serialize)]
struct SettingJson<'a> {
    key: &'a str,
    value: &'a str,
    layer: PolicyLayer,
    /// `FILE:LINE:COLUMN`; none for a flag, a profile or a default.
    origin: Option<String>,
}

#[derive(Serialize)]
struct ToolJson {
    tool: String,
    decision: Decision,
    rule: String,
    layer: PolicyLayer,
    origin: Option<String>,
}

#[derive(Serialize)]
struct WideningRequestJson<'a> {
    what: &'a str,
    why: &'a str,
    origin: String,
}

fn report(governed: &ResolvedPolicy) -> PolicyJson<'_> {
    PolicyJson {
        schema: 1,
        workspace: ByteString::from(governed.flags.workspace.as_path()),
        files: governed.files.iter().map(|file| file_report(governed, file)).collect(),
        settings: governed.effective.settings.iter().map(setting_report).collect(),
        tools: tools(governed).into_iter().map(tool_report).collect(),
        requests: governed.effective.requests.iter().map(request_report).collect(),
    }
}

fn file_report(governed: &ResolvedPolicy, file: &PolicyFile) -> PolicyFileJson {
    let trust = match trust(&governed.flags, &governed.files, file) {
        FileAuthority::Operator => "operator",
        FileAuthority::Approved => "approved",
        FileAuthority::Unapproved => "unapproved",
    };
    PolicyFileJson { path: ByteString::from(file.path()), trust, seal: file.seal() }
}

fn setting_report(setting: &EffectiveSetting) -> SettingJson<'_> {
    SettingJson {
        key: &setting.key,
        value: &setting.value,
        layer: setting.layer,
        origin: setting.origin.as_ref().map(ToString::to_string),
    }
}

fn tool_report(tool: JudgementPart) -> ToolJson {
    ToolJson {
        tool: tool.subject,
        decision: tool.decision,
        rule: tool.rule.into(),
        layer: tool.layer,
        origin: tool.origin.as_ref().map(ToString::to_string),
    }
}

fn request_report(request: &WideningRequest) -> WideningRequestJson<'_> {
    WideningRequestJson { what: &request.what, why: &request.why, origin: request.origin.to_string() }
}
