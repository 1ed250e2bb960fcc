//! Text that shows what it is: nothing invisible, nothing that moves or covers its neighbours.

use unicode_width::UnicodeWidthChar as _;

/// Marks above and below one letter: real words have up to four, floods cover the lines around them.
const MARKS: u8 = 4;

/// Text with every deceptive character and every invalid byte as a visible escape: `\n`, `\u{202e}`, `\xff`.
pub(crate) fn escaped(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    each(bytes, |piece| match piece {
        EscapedChar::Shown(c) => out.push(c),
        EscapedChar::Hidden(c) => out.extend(c.escape_default()),
        EscapedChar::Invalid(byte) => out.push_str(&format!("\\x{byte:02x}")),
    });
    out
}

/// One word as a shell reads it back. Unlike [`escaped`] it has one reading only: a backslash is a backslash.
pub(crate) fn quoted(bytes: &[u8]) -> String {
    let mut plain = !bytes.is_empty();
    let mut hidden = false;
    each(bytes, |piece| match piece {
        EscapedChar::Shown(c) => plain &= c.is_ascii_alphanumeric() || "_@%+=:,./-^".contains(c),
        EscapedChar::Hidden(_) | EscapedChar::Invalid(_) => hidden = true,
    });
    if hidden {
        return ansi_quoted(bytes);
    }
    let text = String::from_utf8_lossy(bytes).into_owned();
    match text {
        text if plain => text,
        text if !text.contains('\'') => format!("'{text}'"),
        text if !text.contains(['"', '$', '`', '\\', '!']) => format!("\"{text}\""),
        text => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

fn ansi_quoted(bytes: &[u8]) -> String {
    let mut out = "$'".to_owned();
    each(bytes, |piece| match piece {
        EscapedChar::Shown(c @ ('\\' | '\'')) => out.extend(['\\', c]),
        EscapedChar::Shown(c) => out.push(c),
        EscapedChar::Hidden('\n') => out.push_str("\\n"),
        EscapedChar::Hidden('\r') => out.push_str("\\r"),
        EscapedChar::Hidden('\t') => out.push_str("\\t"),
        EscapedChar::Hidden(c) if c.is_ascii() => out.push_str(&format!("\\x{:02x}", u32::from(c))),
        EscapedChar::Hidden(c) => out.push_str(&format!("\\U{:08x}", u32::from(c))),
        EscapedChar::Invalid(byte) => out.push_str(&format!("\\x{byte:02x}")),
    });
    out.push('\'');
    out
}

enum EscapedChar {
    Shown(char),
    Hidden(char),
    Invalid(u8),
}

fn each(bytes: &[u8], mut take: impl FnMut(EscapedChar)) {
    // Nothing to sit on at the beginning.
    let mut marks = MARKS;
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            let shown = is_shown(c, &mut marks);
            take(if shown { EscapedChar::Shown(c) } else { EscapedChar::Hidden(c) });
        }
        for byte in chunk.invalid() {
            marks = MARKS;
            take(EscapedChar::Invalid(*byte));
        }
    }
}

/// `marks` counts what already sits on the last letter.
fn is_shown(c: char, marks: &mut u8) -> bool {
    if c.is_ascii() {
        *marks = if c.is_ascii_alphanumeric() { 0 } else { MARKS };
        return !c.is_ascii_control();
    }
    if is_deceptive(c) {
        *marks = MARKS;
        return false;
    }
    match c.width() {
        Some(0) if *marks < MARKS => *marks += 1,
        Some(0) | None => return false,
        Some(_) => *marks = 0,
    }
    true
}

/// Controls, what Unicode calls default-ignorable, what steers direction, and what looks like a space or like nothing.
fn is_deceptive(c: char) -> bool {
    let noncharacter = matches!(u32::from(c) & 0xffff, 0xfffe | 0xffff);
    c.is_control()
        || c.is_whitespace()
        || noncharacter
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{70f}'
            // Fillers of Hangul and Khmer, selectors of Mongolian.
            | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}'
            // Zero width, marks, embeddings, overrides, isolates, invisible operators.
            | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            // Blank Braille, Hangul filler, variation selectors, byte order mark, half-width filler, annotations.
            | '\u{2800}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
            // Private use: whatever a font makes of it.
            | '\u{e000}'..='\u{f8ff}' | '\u{f0000}'..='\u{10ffff}' | '\u{fdd0}'..='\u{fdef}'
            // Format controls of Egyptian, shorthand and musical notation.
            | '\u{13430}'..='\u{1345f}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d159}' | '\u{1d173}'..='\u{1d17a}'
            // Tags and more variation selectors.
            | '\u{16fe4}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_a_terminal_would_hide_or_move_is_escaped() {
        let hidden = [
            "\0",
            "\x07",
            "\x08",
            "\t",
            "\n",
            "\x0b",
            "\r",
            "\x1b",
            "\x7f",
            "\u{80}",
            "\u{85}",
            "\u{9b}",
            "\u{a0}",
            "\u{ad}",
            "\u{34f}",
            "\u{61c}",
            "\u{115f}",
            "\u{1160}",
            "\u{1680}",
            "\u{17b4}",
            "\u{180e}",
            "\u{2003}",
            "\u{200b}",
            "\u{200d}",
            "\u{200e}",
            "\u{200f}",
            "\u{2028}",
            "\u{2029}",
            "\u{202a}",
            "\u{202e}",
            "\u{202f}",
            "\u{205f}",
            "\u{2060}",
            "\u{2062}",
            "\u{2066}",
            "\u{2069}",
            "\u{206f}",
            "\u{2800}",
            "\u{3000}",
            "\u{3164}",
            "\u{e000}",
            "\u{fdd0}",
            "\u{fe00}",
            "\u{fe0f}",
            "\u{feff}",
            "\u{ffa0}",
            "\u{fff9}",
            "\u{ffff}",
            "\u{1d173}",
            "\u{e0001}",
            "\u{e0020}",
            "\u{e007f}",
            "\u{e01ef}",
            "\u{f0000}",
            "\u{10fffd}",
        ];
        for text in hidden {
            let shown = escaped(format!("a{text}b").as_bytes());
            assert!(!shown.contains(text) && shown.is_ascii(), "{text:?} is shown as {shown}");
            assert!(shown.starts_with("a\\") && shown.ends_with('b'), "{text:?} is shown as {shown}");
            let word = quoted(format!("a{text}b").as_bytes());
            assert!(word.starts_with("$'a\\") && word.is_ascii(), "{text:?} is quoted as {word}");
        }
    }

    #[test]
    fn words_of_real_languages_stay_readable() {
        for text in
            ["naïve", "Ångström", "日本語", "한국어", "हिन्दी", "ภาษาไทย", "שָׁלוֹם", "e\u{301}", "ñ", "😀", "→"]
        {
            assert_eq!(escaped(text.as_bytes()), text);
        }
    }

    #[test]
    fn marks_do_not_flood_and_sit_on_nothing_but_letters() {
        let flood = format!("a{}", "\u{301}".repeat(1000));
        let shown = escaped(flood.as_bytes());
        assert_eq!(shown.chars().filter(|c| *c == '\u{301}').count(), 4);
        assert_eq!(shown.matches("\\u{301}").count(), 996);
        for alone in ["\u{20dd}x", "`\u{20e0}`", " \u{338}=", "\n\u{301}", "\u{202e}\u{301}"] {
            let shown = escaped(alone.as_bytes());
            assert!(shown.is_ascii(), "{shown}");
        }
    }

    #[test]
    fn quoting_has_one_reading() {
        let words: &[(&[u8], &str)] = &[
            (b"", "''"),
            (b"npm", "npm"),
            (b"--a=b/c.d", "--a=b/c.d"),
            (b"a b", "'a b'"),
            (b"$(id)", "'$(id)'"),
            (b"it's", "\"it's\""),
            (b"it's $x", "'it'\\''s $x'"),
            (b"a\\nb", "'a\\nb'"),
            (b"a\nb", "$'a\\nb'"),
            (b"a\\\n'", "$'a\\\\\\n\\''"),
            (b"\xff\x1b", "$'\\xff\\x1b'"),
            ("\u{202e}é".as_bytes(), "$'\\U0000202eé'"),
            (b"~", "'~'"),
            (b"a;b", "'a;b'"),
        ];
        for (word, expected) in words {
            assert_eq!(&quoted(word), expected);
        }
    }

    proptest! {
        #[test]
        fn nothing_deceptive_survives(bytes in prop::collection::vec(any::<u8>(), 0..200), text in any::<String>()) {
            for input in [&bytes[..], text.as_bytes()] {
                for shown in [escaped(input), quoted(input)] {
                    prop_assert!(!shown.chars().any(|c| c != ' ' && is_deceptive(c)));
                    prop_assert_eq!(escaped(shown.as_bytes()), shown.clone(), "escaping twice changes nothing");
                }
            }
        }

        #[test]
        fn different_words_are_quoted_differently(a in "[\\\\'\"n$ \n\u{202e}]{0,6}", b in "[\\\\'\"n$ \n\u{202e}]{0,6}") {
            prop_assert_eq!(a == b, quoted(a.as_bytes()) == quoted(b.as_bytes()));
        }
    }
}
