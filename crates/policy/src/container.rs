//! What makes no sense in `[container]`.

use super::check::is_place;
use super::file::PolicyFileRole;
use super::format::ContainerTable;
use super::problem::FileProblems;
use super::toml_reader::shorten;

/// Where an engine listens and how many containers wait is no policy, so that only an operator says it.
pub(super) fn check(role: PolicyFileRole, table: &ContainerTable, problems: &mut FileProblems<'_>) {
    if let Some(engine) = &table.engine_socket
        && !is_place(&engine.value)
    {
        let message = format!("`{}` is not the absolute path of a socket", shorten(&engine.value));
        problems.add(engine.span, message, "write `/…`, or `~/…` for the home");
    }
    if role == PolicyFileRole::Operator {
        return;
    }
    let engine = table.engine_socket.as_ref().map(|given| given.span);
    let pool = table.warm_containers.as_ref().map(|given| given.span);
    for (span, key) in [(engine, "engine_socket"), (pool, "warm_containers")] {
        if let Some(span) = span {
            let message = format!("{} says nothing about `container.{key}`", role.noun());
            problems.add(span, message, "write it in `config.toml` of the operator");
        }
    }
}
