//! What makes no sense in a file, or not in this one, apart from its rules.

use std::path::{Component, Path};

use ringfence_authz::{Policy, net_ceiling};
use ringfence_types::{Backend, NetMode, Profile};

use super::container;
use super::file::PolicyFileRole;
use super::format::{Body, Top, WorkspaceTable};
use super::leaks;
use super::limits::LimitKey;
use super::problem::FileProblems;
use super::settings;
use super::source_text::{TextSpan, WithSpan};
use super::toml_reader::{ReadStatus, shorten};

pub(super) fn top(role: PolicyFileRole, top: &Top, problems: &mut FileProblems<'_>) {
    body(role, &top.body, problems);
    profiles(role, top.profile.as_ref(), top.minimum_profile.as_ref(), problems);
    knobs(top.profile.as_ref(), &top.body, problems);
    for (_, agent) in top.agents.iter().flat_map(|named| &named.0) {
        body(PolicyFileRole::Session, agent, problems);
    }
    for (path, table) in top.workspaces.iter().flat_map(|named| &named.0) {
        workspace(role, path, table, problems);
    }
    if let Some(approvals) = top.approvals.as_ref().filter(|_| role != PolicyFileRole::Operator) {
        let message = format!("{} says nothing about `approvals`", role.noun());
        problems.add(approvals.head.span, message, "write it in `config.toml` of the operator");
    }
    if let Some(daemon) = top.daemon.as_ref().filter(|_| role != PolicyFileRole::Operator) {
        let message = format!("{} says nothing about `daemon`", role.noun());
        problems.add(daemon.head.span, message, "write it in `config.toml` of the operator");
    }
    if let Some(telemetry) = top.telemetry.as_ref().filter(|_| role != PolicyFileRole::Operator) {
        let message = format!("{} says nothing about `telemetry`", role.noun());
        problems.add(telemetry.head.span, message, "write it in `config.toml` of the operator");
    }
    settings::check(top, problems);
}

fn workspace(
    role: PolicyFileRole,
    path: &WithSpan<String>,
    table: &WorkspaceTable,
    problems: &mut FileProblems<'_>,
) {
    if role != PolicyFileRole::Operator {
        let fix = "write it in `config.toml` of the operator";
        problems.add(path.span, format!("{} says nothing about workspaces", role.noun()), fix);
        return;
    }
    if !is_place(&path.value) {
        let message = format!("`{}` is not the absolute path of a workspace", shorten(&path.value));
        problems.add(
            path.span,
            message,
            "write `[workspaces.\"/absolute/path\"]` or `[workspaces.\"~/path\"]`",
        );
    }
    body(role, &table.body, problems);
    profiles(role, table.profile.as_ref(), table.minimum_profile.as_ref(), problems);
    knobs(table.profile.as_ref(), &table.body, problems);
}

/// Absolute or below the home, without `..`.
pub(super) fn is_place(text: &str) -> bool {
    let path = Path::new(text.strip_prefix("~/").map_or(text, |_| text.trim_start_matches('~')));
    path.is_absolute()
        && path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)))
}

fn body(role: PolicyFileRole, body: &Body, problems: &mut FileProblems<'_>) {
    if role != PolicyFileRole::Operator {
        only_for_operators(role, body, problems);
    }
    roots(body, problems);
    body.leaks.iter().for_each(|table| leaks::check(table, problems));
    body.container.iter().for_each(|table| container::check(role, table, problems));
    if let (Some(net), Some(host)) = (&body.net, body.host.iter().flatten().next())
        && net.value == NetMode::Full
    {
        let message = "with `net = \"full\"` nothing holds this rule";
        problems.add(host.head.span, message, "write `net = \"filtered\"`, or leave the rule out");
    }
}

fn only_for_operators(role: PolicyFileRole, body: &Body, problems: &mut FileProblems<'_>) {
    if let Some(floor) = &body.danger_required_controls {
        let message = format!("{} cannot lower the floor", role.noun());
        problems.add(floor.span, message, "leave `danger_required_controls` out");
    }
    if let Some(WithSpan { value: backend @ (Backend::None | Backend::External), span }) = body.backend {
        let message = format!("{} cannot choose backend `{backend}`", role.noun());
        problems.add(span, message, "leave `backend` out");
    }
}

fn profiles(
    role: PolicyFileRole,
    profile: Option<&WithSpan<Profile>>,
    minimum: Option<&WithSpan<Profile>>,
    problems: &mut FileProblems<'_>,
) {
    let Some(profile) = profile else { return };
    if profile.value == Profile::Danger && role != PolicyFileRole::Operator {
        let message = format!("{} cannot choose profile `danger`", role.noun());
        problems.add(profile.span, message, "leave `profile` out");
    }
    if let Some(minimum) = minimum
        && profile.value.strictness() < minimum.value.strictness()
    {
        let message = format!("profile `{}` is below the `minimum_profile` of this file", profile.value);
        problems.add(profile.span, message, format!("write `{}` or a stricter one", minimum.value));
    }
}

/// A file whose own profile does not give what it says says two things.
fn knobs(profile: Option<&WithSpan<Profile>>, body: &Body, problems: &mut FileProblems<'_>) {
    let Some(profile) = profile.map(|profile| profile.value) else { return };
    let most = Policy::new(profile);
    let mut beyond = |span: TextSpan, what: String, most: String| {
        let fix = format!("leave it out, or choose another profile; `{profile}` gives {most}");
        problems.add(span, format!("{what} is more than profile `{profile}` gives"), fix);
    };
    if let Some(given) = &body.commands
        && given.value < most.commands
    {
        beyond(given.span, format!("`commands = \"{}\"`", given.value), format!("`{}`", most.commands));
    }
    if let Some(given) = &body.approval
        && given.value < most.approval
    {
        beyond(given.span, format!("`approval = \"{}\"`", given.value), format!("`{}`", most.approval));
    }
    if let Some(given) = &body.workspace_access
        && given.value > most.access
    {
        beyond(given.span, format!("`workspace_access = \"{}\"`", given.value), format!("`{}`", most.access));
    }
    if let Some(given) = &body.net
        && given.value > net_ceiling(profile)
    {
        beyond(given.span, format!("`net = \"{}\"`", given.value), format!("`{}`", net_ceiling(profile)));
    }
    if !matches!(profile, Profile::Strict | Profile::AirGapped) {
        return;
    }
    for limit in LimitKey::ALL {
        let most = limit.of(&most.limits);
        let given = body.limits.as_ref().and_then(|table| limit.in_table(table));
        if let Some(given) = given.filter(|given| given.value > most) {
            beyond(given.span, format!("`{} = {}`", limit.key(), limit.show(given.value)), limit.show(most));
        }
    }
}

fn roots(body: &Body, problems: &mut FileProblems<'_>) {
    let mut seen: Vec<(&str, TextSpan)> = Vec::new();
    for root in body.root.iter().flatten() {
        let whole = root.head.reading == ReadStatus::Whole;
        let Some(path) = &root.path else {
            if whole {
                problems.add(root.head.span, "a root without a `path`", "write `path = \"/absolute/path\"`");
            }
            continue;
        };
        if root.access.is_none() && whole {
            problems.add(
                root.head.span,
                "a root without an `access`",
                "write `access = \"read\"`, `\"write\"` or `\"none\"`",
            );
        }
        root_path(path, problems);
        let plain = path.value.trim_end_matches('/');
        if let Some((_, first)) = seen.iter().find(|(known, _)| *known == plain) {
            let first = problems.source().origin(*first);
            let message = format!("root `{}` is already at {}:{}", shorten(plain), first.line, first.column);
            problems.add(path.span, message, "keep one of them");
        }
        seen.push((plain, path.span));
    }
}

fn root_path(path: &WithSpan<String>, problems: &mut FileProblems<'_>) {
    let shown = shorten(&path.value);
    if Path::new(&path.value).components().any(|part| part == Component::ParentDir) {
        problems.add(path.span, format!("root `{shown}` leads upwards"), "name the directory without `..`");
    }
    if path.value.contains(['*', '?', '[']) {
        let fix = "name a directory; patterns are for rules about files (`[[path]]`)";
        problems.add(path.span, format!("root `{shown}` is a pattern"), fix);
    }
    let whole = matches!(path.value.trim_end_matches('/'), "" | "~" | ".");
    if whole {
        let fix = "name a narrower directory; for the workspace itself write `workspace_access`";
        problems.add(path.span, format!("root `{shown}` is too wide to be one"), fix);
    }
    if path.value.starts_with('~') && !path.value.starts_with("~/") {
        problems.add(
            path.span,
            format!("`{shown}` is not a path"),
            "write `~/…` for the home, or an absolute path",
        );
    }
}
