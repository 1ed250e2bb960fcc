//! Unwraps a command that Ringfence's own hook has rewritten to a `ringfence run`. The exec server already
//! runs it inside the fence, so it is evaluated, approved and recorded only once.
//!
//! Forging such a command gains nothing: the unwrapped command is evaluated and contained like any other.

use std::path::Path;

use ringfence_authz::git_keys;
use ringfence_types::ByteString;

use crate::hook::unquoted;

/// Flags that the hook puts before a command.
const FLAGS: [&str; 5] = ["--agent=", "--session=", "--workspace=", "--agent-in=", "--reason="];
const PLACES: [&str; 3] = ["HOME=", "XDG_CONFIG_HOME=", "XDG_STATE_HOME="];

/// The original command. `program` is the path of this Ringfence.
pub(super) fn meant(argv: Vec<String>, program: &Path) -> Vec<String> {
    match argv.as_slice() {
        [_shell, flag, line] if matches!(flag.as_str(), "-c" | "-lc") => inner(line, program).unwrap_or(argv),
        _ => argv,
    }
}

fn inner(line: &str, program: &Path) -> Option<Vec<String>> {
    let begins = |word: &String, with: &[&str]| with.iter().any(|start| word.starts_with(start));
    let words = unquoted(line)?;
    if let Some(argv) = evaluated(&words) {
        return Some(argv);
    }
    let mut words = words.into_iter().skip_while(|word| begins(word, &PLACES));
    let is_ours = Path::new(&words.next()?) == program && words.next()? == "run";
    let mut words = words.skip_while(|word| begins(word, &FLAGS));
    let is_ours = is_ours && words.next()? == "--";
    let meant: Vec<String> = words.collect();
    (is_ours && !meant.is_empty()).then_some(meant)
}

/// What the hook leaves to the sandbox of Codex: the argv that it evaluated, with or without the variables for git, which a
/// command of the exec server gets anyway.
fn evaluated(words: &[String]) -> Option<Vec<String>> {
    let variables = git_keys::environment();
    let is_variable = |(word, (name, value)): (&String, &(ByteString, ByteString))| {
        *word == format!("{}={}", name.display(), value.display())
    };
    let argv = match words.split_at_checked(variables.len()) {
        Some((first, argv)) if first.iter().zip(&variables).all(is_variable) => argv,
        _ => words,
    };
    match argv {
        [shell, flag, text] if [shell.as_str(), flag, text] == ringfence_mcp::shell(text) => {
            Some(argv.to_vec())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Vec<String> {
        let argv = ["/bin/bash", "-lc", line].map(str::to_owned).to_vec();
        meant(argv, Path::new("/opt/it's/ringfence"))
    }

    #[test]
    fn what_the_hook_wrote_is_taken_out_of_it() {
        let line = r"HOME='/h' XDG_STATE_HOME='/s p' '/opt/it'\''s/ringfence' 'run' '--agent=codex' '--session=x' '--workspace=/w' '--agent-in=/w' '--' '/bin/bash' '-c' 'echo '\''a  b'\'' && cat '\\'n'";
        assert_eq!(of(line), ["/bin/bash", "-c", r"echo 'a  b' && cat \n"]);
    }

    #[test]
    fn what_the_hook_left_to_codex_is_taken_out_of_it() {
        let words = ringfence_mcp::shell("echo it's");
        let quoted = words.map(|word| crate::hook::quoted(word.as_ref()).unwrap()).join(" ");
        assert_eq!(of(&quoted), words);
        let variable = |(name, value): &(ByteString, ByteString)| {
            format!("{}={} ", name.display(), crate::hook::quoted(value.as_os_str()).unwrap())
        };
        let variables: String = git_keys::environment().iter().map(variable).collect();
        assert_eq!(of(&format!("{variables}{quoted}")), words);
        let other = variables.replace("GIT_PAGER='cat'", "GIT_PAGER='evil'");
        assert_ne!(other, variables);
        let line = format!("{other}{quoted}");
        assert_eq!(of(&line), ["/bin/bash", "-lc", &line]);
    }

    #[test]
    fn what_the_hook_did_not_write_stays_as_it_is() {
        for line in [
            "echo hi",
            "",
            "'/opt/it'\\''s/ringfence' 'run' '--'",
            "'/opt/it'\\''s/ringfence' 'run' '--profile=danger' '--' 'id'",
            "'/opt/it'\\''s/ringfence' 'hook' '--' 'id'",
            "'/elsewhere/ringfence' 'run' '--' 'id'",
            "PATH='/x' '/opt/it'\\''s/ringfence' 'run' '--' 'id'",
            "'/opt/it'\\''s/ringfence' 'run' '--' 'id'; id",
            "'/opt/it'\\''s/ringfence' 'run' '--' 'id' $(id)",
            "'/opt/it'\\''s/ringfence' 'run' '--' 'id",
        ] {
            assert_eq!(of(line), ["/bin/bash", "-lc", line], "{line}");
        }
    }
}
