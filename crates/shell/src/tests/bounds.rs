use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::{gaps, lines};
use crate::{ShellWord, parse};

#[test]
fn text_is_cut() {
    let script = parse(format!("echo {}", "é".repeat(5000)).as_bytes());
    assert!(script.commands[0].text.len() < 4200 && script.commands[0].text.ends_with('…'));
    let ShellWord::Literal(word) = &script.commands[0].words[1] else { panic!("not a literal") };
    assert_eq!(word.len(), 10_000);
}

#[test]
fn nesting_is_bounded() {
    for open in
        ["a $(", "( ", "{ ", "a \"$(", "a ${x:-", "a <(", "if ", "a=(x $(", "case $(", "while ", "a() { "]
    {
        let why = gaps(&open.repeat(10_000));
        assert!(why.contains(&"nested deeper than 64"), "{open}: {why:?}");
    }
    let text = |depth: usize| format!("{}a{}", "( ".repeat(depth), " )".repeat(depth));
    assert_eq!(gaps(&text(64)), Vec::<&str>::new());
    assert_eq!(gaps(&text(65)), ["nested deeper than 64"]);
}

#[test]
fn counts_are_bounded() {
    assert_eq!(gaps(&"a;".repeat(4_001)), ["more than 4000 commands"]);
    assert_eq!(gaps(&"a ".repeat(100_001)), ["more than 100000 words"]);
    assert_eq!(gaps(&format!("a {}", "<<E ".repeat(1001))), ["more than 1000 here-documents in a line"]);
    assert_eq!(parse("a ".repeat(100_000).as_bytes()).commands[0].words.len(), 100_000);
}

/// Whatever one would use to make a parser slow. The bound is for an unoptimised build on a busy machine;
/// what grows with the square takes minutes.
#[test]
fn a_long_text_is_read_at_once() {
    const SIZE: usize = 1 << 18;
    for piece in [
        "a ",
        "a;",
        "a\n",
        "$(",
        "`",
        "\\`",
        "\"",
        "'",
        "${",
        "${x:-",
        "<<E ",
        "<<E\n",
        "<<E\n`",
        "a=",
        "=",
        "~",
        ":~",
        "{",
        "}",
        "{a,",
        "[",
        "(",
        ")",
        "((",
        "$((",
        "#",
        "\\\n",
        "\\",
        "\n",
        "a|",
        "a&",
        ">a",
        "2",
        "12>",
        "<1-",
        "a=(",
        "if ",
        "case a in ",
        "$",
        "$'",
        "é",
        "\t",
        "a\\\n",
        "&>a ",
        "a $(a) ",
        "a `a` ",
        "! ",
        "time ",
        "\"$(a)\"",
        "$x",
        "E\\\n",
        "x() {",
        "[[ ",
        "-eq ",
    ] {
        let text = piece.repeat(SIZE / piece.len());
        let start = Instant::now();
        parse(text.as_bytes());
        assert!(start.elapsed() < Duration::from_secs(60), "{piece:?} took {:?}", start.elapsed());
        let start = Instant::now();
        parse(format!("a <<E\n{text}\nE\nb=aaaa{text}").as_bytes());
        assert!(start.elapsed() < Duration::from_secs(60), "{piece:?} took {:?}", start.elapsed());
    }
}

const TOKENS: &[&str] = &[
    "a",
    "b",
    " ",
    "\n",
    ";",
    "&",
    "|",
    "(",
    ")",
    "{",
    "}",
    "<",
    ">",
    "'",
    "\"",
    "\\",
    "`",
    "$",
    "$(",
    "${",
    "$((",
    "=",
    "!",
    "#",
    "~",
    "*",
    "[",
    "]",
    "E",
    "<<E\n",
    "\nE\n",
    "if ",
    "; then ",
    "; fi",
    "for x in ",
    "; do ",
    "; done",
    "case a in ",
    ") ",
    ";; esac",
    "2>",
    "&>",
    ">&",
    "<(",
    "x=(",
    "\\\n",
    "time ",
    "[[ ",
    " ]]",
    "-eq",
    "\u{e9}",
    ",",
    "..",
    "1",
];

/// Whole commands, and now and then a token that may break them.
fn nearly_a_script() -> impl Strategy<Value = Vec<u8>> {
    let whole = prop::sample::select(
        &[
            "a",
            "a b;",
            "x=1 a",
            "a | b",
            "a && b",
            "(a)",
            "{ a; }",
            "a $(b)",
            "a `b`",
            "a \"$x\"",
            "a > b",
            "if a; then b; fi",
            "a <<E\n$(b)\nE\n",
            "a <<'E'\n'\nE\n",
            "for x in a; do b; done",
            "case a in a) b;; esac",
            "# a\n",
            "a 'b'",
            "! a &",
        ][..],
    );
    let piece = prop_oneof![3 => whole, 1 => prop::sample::select(TOKENS), 2 => Just("\n"), 1 => Just(" ")];
    prop::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat().into_bytes())
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        max_global_rejects: 100_000,
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_bytes_are_read(text in prop::collection::vec(any::<u8>(), 0..400)) {
        let script = parse(&text);
        prop_assert!(script.gaps.iter().all(|gap| gap.at <= text.len()));
    }

    #[test]
    fn any_tokens_are_read(tokens in prop::collection::vec(prop::sample::select(TOKENS), 0..60)) {
        let text = tokens.concat();
        let script = parse(text.as_bytes());
        prop_assert!(script.gaps.iter().all(|gap| gap.at <= text.len()));
    }

    /// A script without a gap is complete: what stands behind it is read as if it stood alone.
    #[test]
    fn scripts_stand_side_by_side(first in nearly_a_script(), second in nearly_a_script()) {
        let (one, two) = (parse(&first), parse(&second));
        prop_assume!(one.gaps.is_empty() && two.gaps.is_empty());
        let both = parse(&[first, b"\n".to_vec(), second].concat());
        prop_assert!(both.gaps.is_empty());
        prop_assert_eq!(both.commands, [one.commands, two.commands].concat());
    }

    /// In a subshell the same commands run, one level deeper.
    #[test]
    fn a_subshell_changes_nothing_but_the_depth(text in nearly_a_script()) {
        let script = parse(&text);
        prop_assume!(script.gaps.is_empty() && !script.commands.is_empty());
        let inside = parse(&[b"( ".to_vec(), text, b"\n)".to_vec()].concat());
        prop_assert!(inside.gaps.is_empty());
        prop_assert_eq!(lines(&inside), lines(&script));
    }

    #[test]
    fn quoted_bytes_are_those_bytes(bytes in prop::collection::vec(1_u8..=255, 0..40)) {
        let single: Vec<u8> = bytes.iter().flat_map(|byte| match byte {
            b'\'' => b"'\\''".to_vec(),
            byte => vec![*byte],
        }).collect();
        let double: Vec<u8> = bytes.iter().flat_map(|byte| match byte {
            b'"' | b'$' | b'`' | b'\\' => vec![b'\\', *byte],
            byte => vec![*byte],
        }).collect();
        let script = parse(&[b"a '".to_vec(), single, b"' \"".to_vec(), double, b"\"".to_vec()].concat());
        prop_assert!(script.gaps.is_empty());
        let word = ShellWord::Literal(bytes);
        prop_assert_eq!(&script.commands[0].words[1..], &[word.clone(), word][..]);
    }
}
