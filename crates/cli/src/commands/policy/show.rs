//! The policy in force, with the origin of each value.

use std::process::ExitCode;

use ringfence_runtime::authz::Part;
use ringfence_runtime::authz::env::Attendance;
use ringfence_runtime::authz::policy::{Flags, PolicyFile, Request, Setting, Trust, trust};
use ringfence_runtime::authz::tools::effective;
use ringfence_types::{Bytes, Decision, Layer};
use serde::Serialize;

use super::Form;
use crate::args::{Network, Place};
use crate::asked::{self, Governed, Ungoverned};
use crate::commands::run::print_json;
use crate::environment::Environment;
use crate::error;
use crate::explain;
use crate::host;
use crate::output::say;

pub(super) fn run(place: &Place, network: &Network, form: Form) -> Result<ExitCode, ExitCode> {
    let environment = Environment::read();
    let setup =
        host::setup(&environment, Attendance::Unattended).map_err(|error| error::failed(&error, None))?;
    let flags = Flags { net: network.net, hosts: asked::hosts(network)?, ..Flags::default() };
    let governed = match asked::governed(place, &environment, &setup, flags) {
        Ok(governed) => governed,
        Err(Ungoverned::Failed(code)) => return Err(code),
        Err(Ungoverned::Refused(refusal)) => return Err(error::refused(&refusal)),
    };
    match form {
        Form::Json => print_json(&report(&governed)),
        Form::People => print(&governed),
    }
    Ok(ExitCode::SUCCESS)
}

fn print(governed: &Governed) {
    say!("workspace  {}", Bytes::from(governed.flags.workspace.as_path()).display());
    for file in &governed.files {
        let standing = standing(governed, file);
        say!("file       {}  ({standing})", Bytes::from(file.path()).display());
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

/// Those that are not simply there.
fn print_tools(governed: &Governed) {
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

/// What holds for the agent of this session (S003-14).
fn tools(governed: &Governed) -> Vec<Part> {
    let policy = &governed.effective.policy;
    effective(policy, policy.agent.as_deref())
}

fn shown(text: &str) -> String {
    Bytes::from(text).display()
}

fn origin(setting: &Setting) -> String {
    match (&setting.origin, setting.layer) {
        (Some(origin), layer) => format!("{} ({origin})", word(layer)),
        (None, Layer::Floor) => "built in".to_owned(),
        (None, layer) => word(layer),
    }
}

/// As in JSON: one vocabulary for both.
fn word(layer: Layer) -> String {
    match layer {
        Layer::Floor => "floor",
        Layer::Flags => "flags",
        Layer::Operator => "operator",
        Layer::Workspace => "workspace",
        Layer::Session => "session",
        Layer::Call => "call",
    }
    .to_owned()
}

fn standing(governed: &Governed, file: &PolicyFile) -> &'static str {
    match trust(&governed.flags, &governed.files, file) {
        Trust::Operator => "of the operator",
        Trust::Approved => "of the workspace, approved",
        Trust::Unapproved => "of the workspace: it only narrows",
    }
}

/// What `policy show --json` prints, schema 1.
#[derive(Serialize)]
struct Report<'a> {
    schema: u32,
    workspace: Bytes,
    files: Vec<FileReport>,
    settings: Vec<SettingReport<'a>>,
    /// What holds for the agent of this session.
    tools: Vec<ToolReport>,
    /// What an unapproved workspace file asks for. It has no effect.
    requests: Vec<RequestReport<'a>>,
}

#[derive(Serialize)]
struct FileReport {
    path: Bytes,
    /// `operator`, `approved` or `unapproved`.
    trust: &'static str,
    /// What `policy approve --sha256` takes.
    seal: String,
}

#[derive(Serialize)]
struct SettingReport<'a> {
    key: &'a str,
    value: &'a str,
    layer: Layer,
    /// `FILE:LINE:COLUMN`; none for a flag, a profile or a default.
    origin: Option<String>,
}

#[derive(Serialize)]
struct ToolReport {
    tool: String,
    decision: Decision,
    rule: String,
    layer: Layer,
    origin: Option<String>,
}

#[derive(Serialize)]
struct RequestReport<'a> {
    what: &'a str,
    why: &'a str,
    origin: String,
}

fn report(governed: &Governed) -> Report<'_> {
    Report {
        schema: 1,
        workspace: Bytes::from(governed.flags.workspace.as_path()),
        files: governed.files.iter().map(|file| file_report(governed, file)).collect(),
        settings: governed.effective.settings.iter().map(setting_report).collect(),
        tools: tools(governed).into_iter().map(tool_report).collect(),
        requests: governed.effective.requests.iter().map(request_report).collect(),
    }
}

fn file_report(governed: &Governed, file: &PolicyFile) -> FileReport {
    let trust = match trust(&governed.flags, &governed.files, file) {
        Trust::Operator => "operator",
        Trust::Approved => "approved",
        Trust::Unapproved => "unapproved",
    };
    FileReport { path: Bytes::from(file.path()), trust, seal: file.seal() }
}

fn setting_report(setting: &Setting) -> SettingReport<'_> {
    SettingReport {
        key: &setting.key,
        value: &setting.value,
        layer: setting.layer,
        origin: setting.origin.as_ref().map(ToString::to_string),
    }
}

fn tool_report(tool: Part) -> ToolReport {
    ToolReport {
        tool: tool.subject,
        decision: tool.decision,
        rule: tool.rule.into_owned(),
        layer: tool.layer,
        origin: tool.origin.as_ref().map(ToString::to_string),
    }
}

fn request_report(request: &Request) -> RequestReport<'_> {
    RequestReport { what: &request.what, why: &request.why, origin: request.origin.to_string() }
}
