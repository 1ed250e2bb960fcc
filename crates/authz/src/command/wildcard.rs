//! Patterns of file names: could one match a name that must not be read?

/// Whether a pattern of one component (`*`, `?`, `[…]`, `\x`) matches a name. Letter case does not matter: this is only
/// used to be strict. Linear in both for patterns with one `*`; never worse than their product.
pub(super) fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut on) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while on < name.len() {
        if pattern.get(at) == Some(&b'*') {
            star = Some((at + 1, on));
            at += 1;
            continue;
        }
        if let Some(next) = name.get(on).and_then(|byte| one(pattern, at, *byte)) {
            (at, on) = (next, on + 1);
            continue;
        }
        let Some((after, from)) = star else { return false };
        star = Some((after, from + 1));
        (at, on) = (after, from + 1);
    }
    pattern.get(at..).is_some_and(|rest| rest.iter().all(|byte| *byte == b'*'))
}

/// The position after one element of the pattern that matches `byte`.
fn one(pattern: &[u8], at: usize, byte: u8) -> Option<usize> {
    match pattern.get(at)? {
        b'?' => Some(at + 1),
        b'[' => {
            let inside = pattern.get(at + 2..).unwrap_or_default();
            let close = inside.iter().position(|byte| *byte == b']').map(|end| at + 2 + end);
            // What a bracket excludes is not read: one that could match counts as matching.
            close.map(|close| close + 1).or((byte == b'[').then_some(at + 1))
        }
        b'\\' => (pattern.get(at + 1)?.eq_ignore_ascii_case(&byte)).then_some(at + 2),
        literal => literal.eq_ignore_ascii_case(&byte).then_some(at + 1),
    }
}

pub(super) fn is_wild(text: &[u8]) -> bool {
    text.iter().any(|byte| matches!(byte, b'*' | b'?' | b'['))
}

/// A name that the pattern surely matches: each `*` is nothing, each `?` and bracket a letter.
pub(super) fn example(pattern: &[u8]) -> Vec<u8> {
    let mut name = Vec::with_capacity(pattern.len());
    let mut at = 0;
    while let Some(byte) = pattern.get(at) {
        at = match byte {
            b'*' => at + 1,
            b'[' => match one(pattern, at, b'x') {
                Some(next) => {
                    name.push(b'x');
                    next
                }
                None => at + 1,
            },
            b'?' => {
                name.push(b'x');
                at + 1
            }
            b'\\' => {
                name.extend(pattern.get(at + 1));
                at + 2
            }
            _ => {
                name.push(*byte);
                at + 1
            }
        };
    }
    name
}

/// Whether the pattern says enough of `name` to mean it: `id_*` and `*_rsa` mean `id_rsa`, `*` and `*.json` mean files
/// in general.
pub(super) fn means(pattern: &[u8], name: &[u8]) -> bool {
    let wild = |byte: &u8| matches!(byte, b'*' | b'?' | b'[');
    let before = pattern.iter().position(wild).unwrap_or(pattern.len());
    let after =
        pattern.iter().rposition(|byte| wild(byte) || *byte == b']').map_or(0, |at| pattern.len() - at - 1);
    let end = pattern.get(pattern.len() - after..).unwrap_or_default();
    let speaks = before >= 2 || pattern.starts_with(b".") || after >= 3 && !end.starts_with(b".");
    speaks && matches(pattern, name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_names() {
        for (pattern, name) in [
            ("*", "id_rsa"),
            (".en*", ".env"),
            (".en?", ".env"),
            (".[e]nv", ".ENV"),
            ("*.pem", "server.pem"),
            ("a*b*c", "axxbyyc"),
            ("\\*x", "*x"),
            ("[", "["),
        ] {
            assert!(matches(pattern.as_bytes(), name.as_bytes()), "{pattern} {name}");
        }
        for (pattern, name) in [(".en", ".env"), ("*.rs", ".env"), ("a?", "a"), ("", "a"), ("\\*", "a")] {
            assert!(!matches(pattern.as_bytes(), name.as_bytes()), "{pattern} {name}");
        }
    }

    #[test]
    fn a_pattern_means_a_name_when_it_says_enough_of_it() {
        for pattern in ["id_*", "*_rsa", "id_r?a", "*rsa"] {
            assert!(means(pattern.as_bytes(), b"id_rsa"), "{pattern}");
        }
        for pattern in ["*", "i*", "*a", "??????"] {
            assert!(!means(pattern.as_bytes(), b"id_rsa"), "{pattern}");
        }
        assert!(!means(b"*.json", b"credentials.json"));
        assert!(means(b".e*", b".env") && means(b".[e]nv", b".env"));
    }

    #[test]
    fn hostile_patterns_do_not_take_exponential_time() {
        let pattern = "*a".repeat(2_000);
        let name = "a".repeat(4_000) + "b";
        assert!(!matches(pattern.as_bytes(), name.as_bytes()));
    }

    #[test]
    fn examples_are_matched_by_their_pattern() {
        for pattern in ["*.key", "a?c", "[ab].rs", "x*", "\\*y"] {
            let name = example(pattern.as_bytes());
            assert!(matches(pattern.as_bytes(), &name), "{pattern}");
        }
    }
}
