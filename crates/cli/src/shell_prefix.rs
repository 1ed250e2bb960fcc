//! `CLAUDE_CODE_SHELL_PREFIX="…/ringfence --shell-prefix"`: Claude Code passes every shell line to this
//! program as one argument. It becomes a `ringfence run`; Ringfence's own hook and server stay outside the
//! fence, where they work.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode};

use crate::args::AgentKind;
use crate::environment::Environment;
use crate::error;
use crate::hook::{quoted, shell};
use crate::init;

/// The flag. Claude Code splits the variable at its last ` -`.
pub(crate) const WORD: &str = "--shell-prefix";

/// The arguments for `ringfence` instead; an exit code if the line was passed to a shell or could not be.
pub(crate) fn arguments(program: &OsStr, line: &OsStr) -> Result<Vec<OsString>, ExitCode> {
    let Some(line) = line.to_str() else {
        return Err(error::failed_text("the line of the shell is no text", None));
    };
    if is_ours(line) {
        return Err(handed_on(line));
    }
    let mut arguments: Vec<OsString> = vec![program.to_owned()];
    arguments.extend(["run", "--agent=claude-code", "--"].map(OsString::from));
    arguments.extend(shell(line).iter().map(|word| word.as_os_str().to_owned()));
    Ok(arguments)
}

/// Matches the exact hook that `init` writes, or Ringfence's server without shell syntax.
fn is_ours(line: &str) -> bool {
    let hook = init::command(AgentKind::ClaudeCode, &Environment::read());
    if hook.is_ok_and(|hook| hook == line) {
        return true;
    }
    let own = std::env::current_exe().ok();
    let names: Vec<String> = own.iter().flat_map(|own| spellings(own)).collect();
    let rest = names.iter().find_map(|name| line.strip_prefix(name.as_str())?.strip_prefix(" mcp"));
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b" -_./=:".contains(&byte);
    rest.is_some_and(|rest| (rest.is_empty() || rest.starts_with(' ')) && rest.bytes().all(plain))
}

fn spellings(program: &Path) -> Vec<String> {
    let plain = program.to_str().map(str::to_owned);
    plain.into_iter().chain(quoted(program.as_os_str())).collect()
}

/// Replaces this process by the shell; returns only on failure.
fn handed_on(line: &str) -> ExitCode {
    let failed = Command::new("/bin/sh").args(["-c", line]).exec();
    error::failed_text(&format!("there is no shell: {failed}"), None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_lines_stay_outside() {
        let own = std::env::current_exe().unwrap().display().to_string();
        for line in [format!("{own} mcp"), format!("'{own}' mcp --agent claude-code --workspace=/a/b")] {
            assert!(is_ours(&line), "{line}");
        }
        for line in [
            format!("{own} mcp; id"),
            format!("{own} mcp $(id)"),
            format!("{own} mcp >x"),
            format!("{own} mcpx"),
            format!("{own} run -- id"),
            format!("x {own} mcp"),
            "/usr/bin/other mcp".to_owned(),
            String::new(),
        ] {
            assert!(!is_ours(&line), "{line}");
        }
        let hook = init::command(AgentKind::ClaudeCode, &Environment::read()).unwrap();
        assert!(is_ours(&hook) && !is_ours(&format!("{hook}; id")));
    }
}
