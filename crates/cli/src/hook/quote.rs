//! Shell quoting. The only place that builds shell text, because agents accept a command only as text.

use std::ffi::OsStr;

/// Quotes one word. A backslash stands outside the single quotes, because fish interprets it inside them.
/// `None`: the word cannot be quoted.
pub(crate) fn quoted(word: &OsStr) -> Option<String> {
    let text = word.to_str().filter(|text| !text.contains('\0'))?;
    let escaped = |c: char| match c {
        '\'' => r"'\''".to_owned(),
        '\\' => r"'\\'".to_owned(),
        other => other.to_string(),
    };
    Some(format!("'{}'", text.chars().map(escaped).collect::<String>()))
}

/// The words of a line that consists only of [`quoted`] words, each optionally after a name and `=`.
pub(crate) fn unquoted(line: &str) -> Option<Vec<String>> {
    let (mut words, mut word) = (Vec::new(), String::new());
    let mut rest = line.chars();
    while let Some(c) = rest.next() {
        match c {
            ' ' => words.push(std::mem::take(&mut word)),
            '\\' => word.push(rest.next().filter(|c| matches!(c, '\'' | '\\'))?),
            '\'' => loop {
                match rest.next()? {
                    '\'' => break,
                    inside => word.push(inside),
                }
            },
            'A'..='Z' | '_' | '=' => word.push(c),
            _ => return None,
        }
    }
    words.push(word);
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Inside single quotes fish treats a backslash before a quote or backslash as an escape.
    #[test]
    fn no_backslash_is_inside_quotes() {
        assert_eq!(quoted(OsStr::new(r"a\'; id")).unwrap(), r"'a'\\''\''; id'");
    }

    #[test]
    fn a_shell_reads_back_what_was_quoted() {
        let words = [
            "",
            "a b",
            "it's",
            "$HOME `id` \"x\" \\",
            "a\nb",
            "''",
            "-n",
            "\\'; id",
            "\\\\",
            "é\u{202e}",
            "!history",
        ];
        for word in words {
            let line = format!("printf %s {}", quoted(OsStr::new(word)).unwrap());
            for shell in ["sh", "bash"] {
                let out = std::process::Command::new(shell).arg("-c").arg(&line).output().unwrap();
                assert_eq!(String::from_utf8(out.stdout).unwrap(), word, "{shell}: {line}");
            }
        }
        assert_eq!(quoted(OsStr::new("a\0b")), None);
        let line: Vec<String> = words.iter().map(|word| quoted(OsStr::new(word)).unwrap()).collect();
        assert_eq!(
            unquoted(&format!("HOME={}", line.join(" "))).unwrap(),
            [&["HOME="], &words[1..]].concat()
        );
    }
}
