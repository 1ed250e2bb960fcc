//! The one place where text for a shell is made: agents take a command only as such.

use std::ffi::OsStr;

/// One word of a POSIX shell. `None`: no text can stand for it.
pub(crate) fn quoted(word: &OsStr) -> Option<String> {
    let text = word.to_str().filter(|text| !text.contains('\0'))?;
    Some(format!("'{}'", text.replace('\'', r"'\''")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_back_what_was_quoted() {
        let words = ["", "a b", "it's", "$HOME `id` \"x\" \\", "a\nb", "''", "-n", "é\u{202e}", "!history"];
        for word in words {
            let line = format!("printf %s {}", quoted(OsStr::new(word)).unwrap());
            for shell in ["sh", "bash"] {
                let out = std::process::Command::new(shell).arg("-c").arg(&line).output().unwrap();
                assert_eq!(String::from_utf8(out.stdout).unwrap(), word, "{shell}: {line}");
            }
        }
        assert_eq!(quoted(OsStr::new("a\0b")), None);
    }
}
