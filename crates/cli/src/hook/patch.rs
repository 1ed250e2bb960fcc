//! Patches in Codex's format, and the only form of a shell command that is exactly one such patch.

use std::path::PathBuf;

use super::request::HookRequest;
use crate::args::AgentKind;

/// Codex recognises this form of a command and applies the patch itself. A shell would do the same: one
/// program with one literal text and nothing after it. `None` for any other command.
pub(super) fn of_command(command: &str) -> Option<&str> {
    let rest = command.trim_start().strip_prefix("apply_patch <<")?;
    let (word, text) = rest.split_once('\n')?;
    let quoted = ['\'', '"'].iter().find_map(|quote| word.strip_prefix(*quote)?.strip_suffix(*quote));
    let delimiter = quoted.unwrap_or(word);
    if delimiter.is_empty() || !delimiter.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        return None;
    }
    let text = text.strip_suffix('\n').unwrap_or(text);
    let patch = text.strip_suffix(delimiter)?.strip_suffix('\n')?;
    // The first delimiter line ends the text: anything after it would be a command.
    let ends_before = patch.split('\n').any(|line| line == delimiter);
    let expands = quoted.is_none() && patch.contains(['$', '`', '\\']);
    (!ends_before && !expands && patch.starts_with("*** Begin Patch")).then_some(patch)
}

/// Every file in the patches; `None` if there is none, or one is ambiguous.
pub(super) fn files(request: &HookRequest, patches: &[&str]) -> Option<Vec<PathBuf>> {
    let lines = patches.iter().flat_map(|text| text.lines());
    let paths: Vec<PathBuf> = lines.filter_map(|line| header(request, line)).collect::<Option<_>>()?;
    (!paths.is_empty()).then_some(paths)
}

/// The file of a header line; `None` for every other line, `Some(None)` where agents may disagree about the file.
fn header(request: &HookRequest, line: &str) -> Option<Option<PathBuf>> {
    const FILES: [&str; 4] = ["*** Add File:", "*** Update File:", "*** Delete File:", "*** Move to:"];
    const OTHERS: [&str; 3] = ["*** Begin Patch", "*** End Patch", "*** End of File"];
    let Some(name) = FILES.iter().find_map(|head| line.trim_start().strip_prefix(head)) else {
        // A header that is not known here may name a file, or another machine.
        let is_unknown = line.starts_with("***") && !OTHERS.contains(&line.trim_end());
        return is_unknown.then_some(None);
    };
    // Codex wants one space, opencode none; more of them would be a part of the name to Codex alone.
    let name = name.strip_prefix(' ').unwrap_or(name).trim_end_matches([' ', '\t', '\r']);
    // Older versions of opencode end the name at a colon.
    let ends_early = request.agent == AgentKind::Opencode && name.contains(':');
    Some(request.path(name).filter(|_| !ends_early && !name.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATCH: &str = "*** Begin Patch\n*** Add File: a\n+$x\n*** End Patch";

    #[test]
    fn only_a_command_that_is_nothing_but_a_patch_is_one() {
        for word in ["'E'", "\"PATCH\"", "'EOF'"] {
            let end = word.trim_matches(['\'', '"']);
            for after in ["", "\n"] {
                assert_eq!(of_command(&format!("apply_patch <<{word}\n{PATCH}\n{end}{after}")), Some(PATCH));
            }
        }
        let plain = PATCH.replace('$', "");
        assert_eq!(of_command(&format!("apply_patch <<E\n{plain}\nE\n")), Some(plain.as_str()));
        for command in [
            format!("apply_patch <<E\n{PATCH}\nE\n"),
            format!("apply_patch <<'E'\n{PATCH}\nE\nrm x"),
            format!("apply_patch <<'E'\n{PATCH}\nE\nrm x\nE\n"),
            format!("apply_patch <<'E'\nE\nrm x\n{PATCH}\nE\n"),
            format!("apply_patch <<'E'; rm x\n{PATCH}\nE\n"),
            format!("apply_patch <<'E' >x\n{PATCH}\nE\n"),
            format!("apply_patch <<'E\n{PATCH}\nE\n"),
            format!("apply_patch <<''\n{PATCH}\n\n"),
            format!("apply_patch <<-'E'\n{PATCH}\nE\n"),
            format!("x; apply_patch <<'E'\n{PATCH}\nE\n"),
            format!("cd / && apply_patch <<'E'\n{PATCH}\nE\n"),
            "apply_patch <<'E'\nrm x\nE\n".to_owned(),
            "apply_patch".to_owned(),
        ] {
            assert_eq!(of_command(&command), None, "{command}");
        }
    }
}
