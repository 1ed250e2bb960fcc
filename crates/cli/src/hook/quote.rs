//! Shell quoting. The only place that builds shell text, because agents accept a command only as text.

use std::ffi::OsStr;

/// Quotes one word. A backslash stands outside the single quotes, because fish interprets it inside them. A single quote
/// stands between double quotes, and so does every character that PowerShell takes for one: Codex starts PowerShell for a
/// command if the model names it, and to PowerShell a backslash before a quote is no escape. `None`: the word cannot be
/// quoted.
pub(crate) fn quoted(word: &OsStr) -> Option<String> {
    let text = word.to_str().filter(|text| !text.contains('\0'))?;
    let escaped = |c: char| match c {
        quote if is_quote(quote) => format!("'\"{quote}\"'"),
        '\\' => r"'\\'".to_owned(),
        other => other.to_string(),
    };
    Some(format!("'{}'", text.chars().map(escaped).collect::<String>()))
}

fn is_quote(c: char) -> bool {
    matches!(c, '\'' | '\u{2018}'..='\u{201b}')
}

/// The words of a line that consists only of [`quoted`] words, each optionally after a name and `=`.
pub(crate) fn unquoted(line: &str) -> Option<Vec<String>> {
    let (mut words, mut word) = (Vec::new(), String::new());
    let mut rest = line.chars();
    while let Some(c) = rest.next() {
        match c {
            ' ' => words.push(std::mem::take(&mut word)),
            '\\' => word.push(rest.next().filter(|c| matches!(c, '\'' | '\\'))?),
            '"' => loop {
                match rest.next()? {
                    '"' => break,
                    inside => word.push(Some(inside).filter(|c| is_quote(*c))?),
                }
            },
            '\'' => loop {
                match rest.next()? {
                    '\'' => break,
                    inside => word.push(inside),
                }
            },
            'A'..='Z' | '0'..='9' | '_' | '=' => word.push(c),
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
        assert_eq!(quoted(OsStr::new(r"a\'; id")).unwrap(), r#"'a'\\''"'"'; id'"#);
    }

    /// What PowerShell would read outside of strings. A string ends with any kind of its quote, and doubled quotes stand for one.
    fn outside_of_strings(line: &str) -> String {
        let single = |c: char| matches!(c, '\'' | '\u{2018}'..='\u{201b}');
        let double = |c: char| matches!(c, '"' | '\u{201c}'..='\u{201e}');
        let (mut outside, mut rest) = (String::new(), line.chars().peekable());
        while let Some(c) = rest.next() {
            let kind: &dyn Fn(char) -> bool = match c {
                c if single(c) => &single,
                c if double(c) => &double,
                other => {
                    outside.push(other);
                    continue;
                }
            };
            while let Some(inside) = rest.next() {
                if kind(inside) && rest.next_if(|next| kind(*next)).is_none() {
                    break;
                }
            }
        }
        outside
    }

    #[test]
    fn no_text_of_an_agent_is_code_to_powershell() {
        for text in [
            "a'; id; 'b",
            "a\u{2019}; id; \u{2018}b",
            "a\u{201b}; id #",
            "'\"'; id; \"'\"",
            "'",
            "\u{2019}'; id '",
        ] {
            let line = quoted(OsStr::new(text)).unwrap();
            assert!(outside_of_strings(&line).chars().all(|c| c == '\\'), "{line}");
            assert_eq!(unquoted(&line).unwrap(), [text]);
        }
        assert_eq!(outside_of_strings(r"'a'\''; id; '\''b'"), r"\; id; ", "the test can fail");
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
