//! Scripts of three kinds: by the grammar, by the grammar and then damaged, and from a bag of tokens.
//!
//! No token has a slash: whatever a shell makes of them, files are written in the directory of the run.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

const NAMES: &[&str] = &["alpha", "beta", "gamma", "rm", "x", "y", "a", "b"];

const TOKENS: &[&str] = &[
    "alpha",
    "beta",
    "gamma",
    "rm",
    "x",
    "y",
    "a",
    "b",
    "E",
    "1",
    "2",
    "12",
    "cat",
    " ",
    " ",
    " ",
    " ",
    " ",
    "\n",
    "\n",
    ";",
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
    "))",
    "((",
    "=",
    "!",
    "#",
    "~",
    "*",
    "?",
    "[",
    "]",
    "-",
    "+",
    "^",
    ":",
    "%",
    "@",
    ",",
    "..",
    ".",
    "\t",
    "\r",
    "\\\n",
    "[[",
    "]]",
    "time",
    "if",
    "then",
    "else",
    "elif",
    "fi",
    "do",
    "done",
    "case",
    "esac",
    "in",
    "for",
    "while",
    "until",
    "select",
    "function",
    "coproc",
    "repeat",
    "foreach",
    "end",
    "noglob",
    "always",
    "&&",
    "||",
    "|&",
    "&>",
    ">&",
    "<&",
    "<<",
    "<<-",
    "<<<",
    "<>",
    ">|",
    ">>",
    "&>>",
    ";;",
    ";&",
    "2>&1",
    "<<E\n",
    "\nE\n",
    "<<'E'\n",
    "<(",
    ">(",
    "x=1 ",
    "x=",
    "x+=",
    "x=(",
    "=(",
    "$x",
    "\"$x\"",
    "${x:-a}",
    "$'",
    "$\"",
    "$(a)",
    "`a`",
    "$((1))",
    "{a,b}",
    "{}",
    "()",
    "; ",
    "& ",
    " | ",
    "\u{e9}",
    "\u{1}",
    "\u{7f}",
    "-eq",
    "-v",
    "test",
    "printf",
    "%d",
    "path=",
    "\u{81}",
    "\u{88}",
    "\u{ff}",
    "export ",
    "declare -a ",
    "[$(alpha)]",
    "'path[$(alpha)]'",
    "'($(alpha))'",
];

/// A script that at least one shell should accept.
pub(crate) fn by_grammar() -> impl Strategy<Value = String> {
    vec(statement(), 1..4).prop_map(|statements| statements.concat())
}

/// The same with a few tokens put in, taken out or exchanged.
pub(crate) fn damaged() -> impl Strategy<Value = String> {
    (by_grammar(), vec((any::<Index>(), 0..4_u8, select(TOKENS)), 1..4)).prop_map(|(script, edits)| {
        edits.into_iter().fold(script, |script, (at, edit, token)| damage(&script, &at, edit, token))
    })
}

/// A given text with a few tokens put in, taken out or exchanged.
pub(crate) fn damaged_text(texts: &'static [&'static str]) -> impl Strategy<Value = String> {
    (select(texts), vec((any::<Index>(), 0..4_u8, select(TOKENS)), 1..3)).prop_map(|(text, edits)| {
        edits.into_iter().fold(text.to_owned(), |text, (at, edit, token)| damage(&text, &at, edit, token))
    })
}

/// A script of the grammar inside a substitution, where shells read it in their own ways.
pub(crate) fn inside() -> impl Strategy<Value = String> {
    let around = &[
        ("alpha $(", ")"),
        ("alpha \"$(", ")\""),
        ("alpha <(", ")"),
        ("x=$(", ") beta"),
        ("alpha ${x:-$(", ")}"),
        ("alpha <<E\n$(", ")\nE\n"),
        ("(", ")"),
        ("{ ", "\n}"),
        ("alpha $(beta $(", "))"),
        ("if beta; then ", "\nfi"),
    ][..];
    (by_grammar(), select(around)).prop_map(|(script, (before, after))| format!("{before}{script}{after}"))
}

/// Builtins with words that run something where they are evaluated.
pub(crate) fn builtins() -> impl Strategy<Value = String> {
    let command = vec(select(OPERANDS), 0..5);
    let commands = vec((select(BUILTINS), command), 1..4).prop_map(|commands| {
        commands
            .into_iter()
            .map(|(name, operands)| format!("{name} {}; ", operands.join(" ")))
            .collect::<String>()
    });
    // No literal has all of it, so that only the evaluation of `z` counts.
    commands.prop_map(|commands| format!("x='path['; y='$(alpha)]'; z=$x$y; {commands}beta"))
}

const BUILTINS: &[&str] = &[
    ":",
    "[",
    "[[",
    "test",
    "printf",
    "echo",
    "exit",
    "return",
    "shift",
    "break",
    "continue",
    "read",
    "unset",
    "export",
    "declare",
    "typeset",
    "local",
    "readonly",
    "cd",
    "pwd",
    "pushd",
    "popd",
    "dirs",
    "umask",
    "wait",
    "jobs",
    "type",
    "times",
    "true",
    "false",
    "command",
    "builtin",
    "set",
    "shopt -s",
    "x=1",
    "for q in",
    "case z in",
    "q=(",
    "rm",
    "! test",
    "{ [",
];

const OPERANDS: &[&str] = &[
    "z",
    "z",
    "q",
    "path",
    "$z",
    "\"$z\"",
    "$?",
    "1",
    "-1",
    "+1",
    "''",
    "'path[z]'",
    "'path[$(alpha)]'",
    "'($(alpha))'",
    "'([z]=1)'",
    "q=z",
    "q=$z",
    "path=z",
    "RANDOM=z",
    "SECONDS=1",
    "'q=$(alpha)'",
    "'q=(z)'",
    "'`alpha`'",
    "-a",
    "-A",
    "-i",
    "-v",
    "-t",
    "-n",
    "-r",
    "-x",
    "-p",
    "-f",
    "-u",
    "-F",
    "-o",
    "-eq",
    "-lt",
    "-nt",
    "=",
    "==",
    "!=",
    "]]",
    "]",
    "!",
    "--",
    "-",
    "%d",
    "%s",
    "'%s %d'",
    "%b",
    "'%*d'",
    "%%",
    "$((1))",
    "${z}",
    "${z:-1}",
    "${#z}",
    "${q:=z}",
    "${z:1}",
    "$(( z ))",
    "\"${z}[z]\"",
    "; do",
    "; done",
    ")",
    "; }",
    "<<< z",
    "< ab",
    "&& alpha",
    "| read q",
    "nullglob",
];

pub(crate) fn from_a_bag() -> impl Strategy<Value = String> {
    vec(select(TOKENS), 1..14).prop_map(|tokens| tokens.concat())
}

fn damage(script: &str, at: &Index, edit: u8, token: &str) -> String {
    let places: Vec<usize> = script.char_indices().map(|(at, _)| at).chain([script.len()]).collect();
    let at = at.index(places.len());
    let (head, tail) = script.split_at(places[at]);
    let next = places.get(at + 1).map_or("", |next| &script[*next..]);
    match edit {
        0 => format!("{head}{token}{tail}"),
        1 => format!("{head}{next}"),
        2 => format!("{head}{token}{next}"),
        _ => format!("{head}{tail}{token}"),
    }
}

fn statement() -> impl Strategy<Value = String> {
    let end = select(&[";", "\n", "&", " ;\n", " & ", "; ", "\n\n", " # note\n", "\n# a;b\n"][..]);
    (list(), end).prop_map(|(list, end)| format!("{list}{end}"))
}

fn list() -> impl Strategy<Value = String> {
    simple().prop_recursive(3, 12, 3, |inner| {
        let list = vec(inner.clone(), 1..3).prop_map(|commands| commands.join("; "));
        prop_oneof![
            4 => inner.clone(),
            2 => (inner.clone(), joint(), inner.clone()).prop_map(|(a, joint, b)| format!("{a}{joint}{b}")),
            2 => (list.clone(), list.clone(), list.clone(), 0..FORMS.len(), redirection())
                .prop_map(|(a, b, c, form, redirection)| fill(FORMS[form], &a, &b, &c) + &redirection),
            1 => (simple(), select(&["$", "\"$", "x=$"][..]), list.clone()).prop_map(|(a, dollar, b)| {
                let end = if dollar.starts_with('"') { ")\"" } else { ")" };
                format!("{a} {dollar}({b}{end}")
            }),
            1 => (simple(), list.clone(), select(&["<(", ">("][..]))
                .prop_map(|(a, b, open)| format!("{a} {open}{b})")),
            1 => (simple(), list).prop_map(|(a, b)| {
                let b = b.replace('\\', "\\\\").replace('`', "\\`").replace('$', "\\$");
                format!("{a} `{b}`")
            }),
            1 => (simple(), document()).prop_map(|(a, document)| format!("{a} {document}")),
        ]
    })
}

fn joint() -> impl Strategy<Value = &'static str> {
    select(&[" && ", " || ", " | ", "; ", "\n", " & ", "|", "&&", " |\n", " && \\\n", " |& ", ";", "&"][..])
}

const FORMS: &[&str] = &[
    "if A; then B; else C; fi",
    "if A\nthen\nB\nelif B; then C; fi",
    "while A; do B; break; done",
    "until A; do B; break; done",
    "for x in a b; do A; done",
    "for x in a; do\nA\ndone",
    "for x; do A; done",
    "case a in a) A;; *) B;; esac",
    "case a in (a|b) A\n;;\n* ) B\nesac",
    "{ A; B; }",
    "{ A\n}",
    "(A; B)",
    "( A )",
    "! A",
    "time A",
    "{ A; } | { B; }",
    "(A) && (B)",
    "x=$(A) beta",
    "if [ -n x ]; then A; fi",
    "[[ -n x ]] && A",
];

fn fill(form: &str, a: &str, b: &str, c: &str) -> String {
    form.chars().fold(String::new(), |mut text, letter| {
        match letter {
            'A' => text.push_str(a),
            'B' => text.push_str(b),
            'C' => text.push_str(c),
            other => text.push(other),
        }
        text
    })
}

fn simple() -> impl Strategy<Value = String> {
    let assignments =
        prop_oneof![4 => Just(String::new()), 1 => word().prop_map(|word| format!("x={word} "))];
    (assignments, name(), vec(word(), 0..4), redirection()).prop_map(
        |(assignments, name, words, redirection)| {
            let words: String = words.iter().map(|word| format!(" {word}")).collect();
            format!("{assignments}{name}{words}{redirection}")
        },
    )
}

/// A name, written in many ways.
fn name() -> impl Strategy<Value = String> {
    (select(NAMES), 0..8_u8).prop_map(|(name, way)| {
        let (first, rest) = name.split_at(1);
        match way {
            0 => format!("\\{name}"),
            1 => format!("'{first}'{rest}"),
            2 => format!("\"{first}\"{rest}"),
            3 => format!("{first}\\\n{rest}"),
            4 => format!("{first}''{rest}"),
            _ => name.to_owned(),
        }
    })
}

fn word() -> impl Strategy<Value = String> {
    vec(piece(), 1..4).prop_map(|pieces| pieces.concat())
}

fn piece() -> impl Strategy<Value = String> {
    let byte =
        select(&["a", " ", "$", "`", "\\", "\"", "'", "*", "~", "{", "}", ",", "=", "#", "!", ";", ")"][..]);
    let text = vec(byte, 0..4).prop_map(|bytes| bytes.concat());
    let plain = &[
        "a",
        "b",
        "rm",
        "x",
        "1",
        "-",
        "=",
        ":",
        "~",
        "*",
        "?",
        "[a]",
        "{a,b}",
        "{}",
        "{a}",
        "#",
        "!",
        "^",
        "%",
        "@",
        "+",
        ",",
        ".",
        "..",
        "]",
        "\u{e9}",
        "$x",
        "${x}",
        "${x:-a}",
        "${x#a}",
        "$?",
        "$((1+2))",
        "$",
        "\\ ",
        "\\;",
        "\\$",
        "\\`",
        "\\\\",
        "\\\"",
        "\\'",
        "\\*",
        "\\~",
        "\\{",
        "\\=",
        "\\\n",
        "$(alpha a)",
        "`beta b`",
        "\"$(rm)\"",
        "\"${x:-$(rm a)}\"",
        "$'a'",
        "$\"a\"",
        "a=~",
        "a:~",
        "\"`rm`\"",
    ][..];
    prop_oneof![
        4 => select(NAMES).prop_map(str::to_owned),
        6 => select(plain).prop_map(str::to_owned),
        2 => text.clone().prop_map(|text| format!("'{}'", text.replace('\'', ""))),
        2 => text.prop_map(|text| {
            let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('`', "\\`");
            format!("\"{text}\"")
        }),
    ]
}

fn redirection() -> impl Strategy<Value = String> {
    let operator = &[">", ">>", "2>", " > ", ">|", "<>", "<", "<<< ", "&>", ">&", "&>>", "2>>"][..];
    prop_oneof![
        6 => Just(String::new()),
        1 => Just(" 2>&1".to_owned()),
        1 => Just(" >&-".to_owned()),
        1 => Just(" <&0".to_owned()),
        2 => (select(operator), word()).prop_map(|(operator, word)| format!(" {operator}{word}")),
    ]
}

fn document() -> impl Strategy<Value = String> {
    let start = &["<<E", "<<-E", "<<'E'", "<<\"E\"", "<<\\E", "<< E"][..];
    let line = &[
        "a",
        "$(alpha a)",
        "`beta b`",
        "\\$(rm)",
        "\\`rm\\`",
        "'",
        "\"",
        "E a",
        " E",
        "$x",
        "${x:-$(rm)}",
        "\ta",
        "\\",
        "# rm",
        "$((1))",
        "\\\\$(rm a)",
        ")",
        "EE",
        "a\\",
    ][..];
    (select(start), vec(select(line), 0..4)).prop_map(|(start, lines)| {
        let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
        format!("{start}\n{lines}E\n")
    })
}
