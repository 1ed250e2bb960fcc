//! Just enough of Rust's lexical structure to tell code from comments and literals.

/// The source with every comment and every string or character literal blanked, newlines kept: what is left is
/// code, on the same lines.
pub(crate) fn code_only(source: &str) -> String {
    let bytes = source.as_bytes();
    let mut out = String::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let end = blank_until(bytes, at);
        if end > at {
            blank(&bytes[at..end], &mut out);
            at = end;
        } else {
            out.push(if bytes[at].is_ascii() { char::from(bytes[at]) } else { ' ' });
            at += 1;
        }
    }
    out
}

/// Every comment with the line that it begins on.
pub(crate) fn comments(source: &str) -> Vec<(usize, &str)> {
    let bytes = source.as_bytes();
    let (mut found, mut at, mut line) = (Vec::new(), 0, 1);
    while at < bytes.len() {
        let end = blank_until(bytes, at).max(at + 1);
        if matches!(&bytes[at..end], [b'/', b'/' | b'*', ..]) {
            found.extend(source.get(at..end).map(|comment| (line, comment)));
        }
        line += bytes[at..end].iter().filter(|byte| **byte == b'\n').count();
        at = end;
    }
    found
}

/// Identifiers and keywords of a blanked source with their line numbers.
pub(crate) fn words(code: &str) -> impl Iterator<Item = (usize, &str)> {
    code.lines().enumerate().flat_map(|(line, text)| {
        text.split(|c: char| !c.is_alphanumeric() && c != '_')
            .filter(|word| !word.is_empty())
            .map(move |word| (line + 1, word))
    })
}

/// The inside of every attribute (`#[…]`, `#![…]`) of a blanked source with its line number.
pub(crate) fn attributes(code: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (start, _) in code.match_indices('#') {
        let rest = code[start + 1..].trim_start().trim_start_matches('!').trim_start();
        if let Some(body) = rest.strip_prefix('[') {
            let line = code[..start].matches('\n').count() + 1;
            found.push((line, &body[..closing_bracket(body)]));
        }
    }
    found
}

fn closing_bracket(body: &str) -> usize {
    let mut depth = 1;
    for (at, c) in body.char_indices() {
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at;
        }
    }
    body.len()
}

/// Where the comment or literal that starts at `at` ends; `at` itself when none does.
fn blank_until(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at..];
    match rest {
        [b'/', b'/', ..] => at + rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len()),
        [b'/', b'*', ..] => at + block_comment(rest),
        [b'"', ..] => at + quoted(rest),
        [b'\'', ..] => at + character(rest),
        [b'r' | b'b' | b'c', ..] if !follows_word(bytes, at) => at + prefixed(rest),
        _ => at,
    }
}

fn follows_word(bytes: &[u8], at: usize) -> bool {
    at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_')
}

fn block_comment(rest: &[u8]) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < rest.len() {
        match rest[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

/// A literal in double quotes with escapes.
fn quoted(rest: &[u8]) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// A character literal, or nothing when the quote starts a lifetime.
fn character(rest: &[u8]) -> usize {
    match rest {
        [_, b'\\', ..] => rest.iter().skip(3).position(|b| *b == b'\'').map_or(rest.len(), |p| p + 4),
        [_, first, ..] => {
            let width = match first {
                0xf0.. => 4,
                0xe0.. => 3,
                0xc0.. => 2,
                _ => 1,
            };
            if rest.get(1 + width) == Some(&b'\'') { width + 2 } else { 0 }
        }
        _ => 0,
    }
}

/// Literals with a prefix: `b"…"`, `c"…"`, `b'…'`, `r"…"`, `br#"…"#`.
fn prefixed(rest: &[u8]) -> usize {
    let letters = rest.iter().take(2).take_while(|b| matches!(b, b'r' | b'b' | b'c')).count();
    let raw = rest[..letters].contains(&b'r');
    let hashes = rest[letters..].iter().take_while(|b| **b == b'#').count();
    match rest.get(letters + hashes) {
        Some(b'"') if raw => letters + raw_string(&rest[letters..], hashes),
        Some(b'"') if hashes == 0 => letters + quoted(&rest[letters..]),
        Some(b'\'') if hashes == 0 && rest[0] == b'b' && letters == 1 => {
            letters + character(&rest[letters..])
        }
        _ => 0,
    }
}

fn raw_string(rest: &[u8], hashes: usize) -> usize {
    let body = &rest[hashes + 1..];
    let closes = |window: &[u8]| window[0] == b'"' && window[1..].iter().all(|b| *b == b'#');
    match body.windows(hashes + 1).position(closes) {
        Some(at) => hashes + 1 + at + hashes + 1,
        None => rest.len(),
    }
}

fn blank(bytes: &[u8], out: &mut String) {
    out.extend(bytes.iter().map(|b| if *b == b'\n' { '\n' } else { ' ' }));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has_unsafe(source: &str) -> bool {
        words(&code_only(source)).any(|(_, word)| word == "unsafe")
    }

    #[test]
    fn code_is_kept() {
        assert!(has_unsafe("fn f() { unsafe { g() } }"));
        assert!(has_unsafe("/* a /* nested */ comment */ unsafe fn f() {}"));
        assert!(has_unsafe("let c = '\"'; unsafe { }"));
        assert!(has_unsafe("let c = '\\''; unsafe { }"));
        assert!(has_unsafe("fn f<'a>(x: &'a str) { unsafe {} }"));
        assert!(has_unsafe("let s = r#\"text\"#; unsafe {}"));
        assert!(has_unsafe("let s = b\"\\\"\"; unsafe {}"));
        assert!(has_unsafe("for r in xs { unsafe {} }"));
        assert!(has_unsafe("let c = 'ä'; unsafe {}"));
    }

    #[test]
    fn comments_and_literals_are_not_code() {
        assert!(!has_unsafe("// unsafe"));
        assert!(!has_unsafe("/* /* */ unsafe */ fn f() {}"));
        assert!(!has_unsafe("let s = \"a \\\" unsafe\";"));
        assert!(!has_unsafe("let s = r##\"a \"# unsafe \"##;"));
        assert!(!has_unsafe("let s = br\"unsafe\"; let c = c\"unsafe\";"));
        assert!(!has_unsafe("#![expect(unsafe_code, reason = \"x\")]"));
    }

    #[test]
    fn comments_are_found_with_their_lines() {
        let source = "/// One.\nlet a = \"// no\n\"; // two\n/* three\n*/";
        assert_eq!(comments(source), [(1, "/// One."), (3, "// two"), (4, "/* three\n*/")]);
    }

    #[test]
    fn lines_stay_where_they_were() {
        let code = code_only("/* one\ntwo */\n\"a\nb\" unsafe");
        assert_eq!(words(&code).collect::<Vec<_>>(), [(4, "unsafe")]);
    }

    #[test]
    fn attributes_are_found_with_their_inside() {
        let code = code_only("#![deny(x)]\n#[cfg_attr(a, b([c]))]\nfn f() {}");
        assert_eq!(attributes(&code), [(1, "deny(x)"), (2, "cfg_attr(a, b([c]))")]);
    }
}
