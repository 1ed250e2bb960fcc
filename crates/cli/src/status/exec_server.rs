//! Whether Codex uses `ringfence exec-server` for everything.

use std::path::Path;
use std::process::Command;

use super::bounded_query::answer;
use super::hook_switches::table;
use crate::args::AgentKind;
use crate::environment::Environment;
use crate::init::directory;

const WORD: &str = "exec-server";

/// Ringfence in Codex's `environments.toml`.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ExecServerStatus {
    /// Not mentioned.
    No,
    /// The only environment of Codex, and the program exists.
    In,
    /// Mentioned, but Codex may work without it or not at all.
    Wrong(String),
}

pub(super) fn plugged(environment: &Environment) -> ExecServerStatus {
    let Some(directory) = directory(AgentKind::Codex, environment) else { return ExecServerStatus::No };
    let file = directory.join("environments.toml");
    match table(&file) {
        Ok(table) => read(&table, &answers),
        Err(why) => ExecServerStatus::Wrong(why.to_string()),
    }
}

fn read(table: &toml::Table, answers: &dyn Fn(&Path) -> bool) -> ExecServerStatus {
    let text =
        |value: &toml::Value, key: &str| value.get(key).and_then(toml::Value::as_str).map(str::to_owned);
    let all = table.get("environments").and_then(toml::Value::as_array);
    let is_ours = |entry: &&toml::Value| {
        let first = entry.get("args").and_then(toml::Value::as_array).and_then(|args| args.first());
        first.and_then(toml::Value::as_str) == Some(WORD)
    };
    let Some(ours) = all.and_then(|all| all.iter().find(is_ours)) else { return ExecServerStatus::No };
    let default = table.get("default").and_then(toml::Value::as_str);
    if default.is_none() || default != text(ours, "id").as_deref() {
        return ExecServerStatus::Wrong("`default` in environments.toml is another environment".to_owned());
    }
    if table.get("include_local").and_then(toml::Value::as_bool) != Some(false) {
        return ExecServerStatus::Wrong(
            "environments.toml lacks `include_local = false`: Codex may work without Ringfence".to_owned(),
        );
    }
    if all.is_some_and(|all| all.len() > 1) {
        return ExecServerStatus::Wrong(
            "environments.toml names other environments besides Ringfence".to_owned(),
        );
    }
    match text(ours, "program") {
        Some(program) if answers(Path::new(&program)) => ExecServerStatus::In,
        _ => ExecServerStatus::Wrong(
            "the program in environments.toml is not ringfence: give its whole path".to_owned(),
        ),
    }
}

/// Whether a program is Ringfence, by its version output.
fn answers(program: &Path) -> bool {
    let asked = answer(Command::new(program).arg("--version"), b"");
    asked.is_ok_and(|said| said.status.success() && said.stdout.starts_with(b"ringfence "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> ExecServerStatus {
        read(&text.parse().unwrap(), &|program| program == Path::new("/bin/ringfence"))
    }

    const OURS: &str =
        "[[environments]]\nid = \"r\"\nprogram = \"/bin/ringfence\"\nargs = [\"exec-server\"]\n";

    #[test]
    fn codex_is_plugged_in_only_where_it_can_work_nowhere_else() {
        let head = "default = \"r\"\ninclude_local = false\n";
        assert_eq!(of(&format!("{head}{OURS}")), ExecServerStatus::In);
        assert_eq!(of(""), ExecServerStatus::No);
        assert_eq!(of("[[environments]]\nid = \"x\"\nurl = \"ws://127.0.0.1:1\"\n"), ExecServerStatus::No);
        for wrong in [
            OURS.to_owned(),
            format!("default = \"r\"\n{OURS}"),
            format!("default = \"local\"\ninclude_local = false\n{OURS}"),
            format!("{head}{OURS}[[environments]]\nid = \"x\"\nurl = \"ws://127.0.0.1:1\"\n"),
            format!("{head}{}", OURS.replace("/bin/ringfence", "/bin/other")),
        ] {
            assert!(matches!(of(&wrong), ExecServerStatus::Wrong(_)), "{wrong}");
        }
    }
}
