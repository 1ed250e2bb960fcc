//! What the source text itself must and must not contain.

use std::fs;
use std::path::Path;

use crate::{Result, lexer, tree};

/// The only modules that may contain `unsafe`, with what is below them.
const UNSAFE_MODULES: &[&str] =
    &["crates/launch/src/sys", "crates/sandbox/src/sys", "crates/battery/src/sys"];
/// Calls that make an effect, each with the folder it is looked for in and the one file that may have it. Only there does the
/// function take a value that the pipeline admitted.
const ONE_DOOR: &[(&str, &str, &str)] = &[
    ("TcpStream::connect", "crates/egress/src/", "crates/egress/src/dial.rs"),
    ("TcpSocket", "crates/egress/src/", "crates/egress/src/dial.rs"),
    ("DialPermit for", "crates/egress/src/", "nowhere"),
    ("DialPermit for", "crates/runtime/src/", "crates/runtime/src/effect/flow/permit.rs"),
    ("run_filtered(", "crates/runtime/src/", "crates/runtime/src/effect/exec.rs"),
    ("start_from(", "crates/runtime/src/", "crates/runtime/src/effect/exec/start.rs"),
];
const MAX_LINES: usize = 1000;
/// Data: written by a program, or a list of cases that is as long as it is.
const DATA: &[&str] = &[
    "Cargo.lock",
    "fuzz/Cargo.lock",
    "fuzz/artifacts/",
    "fuzz/corpus/",
    "schema/",
    "crates/policy/tests/corpus/",
    "crates/grpc/generated/",
    "crates/scan/tests/corpus/",
];
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Spelt in two halves, so that this file does not contain them.
const FORBIDDEN_TEXT: &[&str] = &[
    concat!("/wo", "rk/"),
    concat!("/root/", ".cargo"),
    concat!("/root/", ".rustup"),
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("Co-autho", "red-by"),
];

const NOTE: &str = concat!("TO", "DO");

pub(crate) fn violations(root: &Path) -> Result<Vec<String>> {
    let mut violations = Vec::new();
    for path in tree::files(root)? {
        let bytes = fs::read(root.join(&path))?;
        let Ok(text) = String::from_utf8(bytes) else { continue };
        let name = path.to_string_lossy();
        violations.extend(file_violations(&name, &text));
    }
    Ok(violations)
}

fn file_violations(name: &str, text: &str) -> Vec<String> {
    let mut violations = Vec::new();
    let data = DATA.iter().any(|data| name.starts_with(data));
    if !data && text.lines().count() > MAX_LINES {
        violations.push(format!("{name}: more than {MAX_LINES} lines"));
    }
    // What an agent would look for with `grep` is no note of ours.
    let searched = |word: &str| data && word == NOTE;
    for word in FORBIDDEN_TEXT.iter().filter(|word| text.contains(**word) && !searched(word)) {
        violations.push(format!("{name}: contains `{word}`"));
    }
    if name.ends_with(".rs") {
        violations.extend(code_violations(name, &lexer::code_only(text)));
    }
    violations.extend(registry_violations(name, text));
    violations
}

fn code_violations(name: &str, code: &str) -> Vec<String> {
    let mut violations = Vec::new();
    for (line, word) in lexer::words(code) {
        if word == "unsafe" && !may_be_unsafe(name) {
            violations.push(format!("{name}:{line}: `unsafe` belongs in {}", UNSAFE_MODULES.join(" or ")));
        }
    }
    for (line, text) in code.lines().enumerate() {
        for (effect, folder, only) in ONE_DOOR {
            if text.contains(effect) && name.starts_with(folder) && name != *only {
                violations.push(format!("{name}:{}: `{effect}` belongs in {only}", line + 1));
            }
        }
        for stub in ["todo!", "unimplemented!"].iter().filter(|stub| text.contains(**stub)) {
            violations.push(format!("{name}:{}: `{stub}`", line + 1));
        }
        if name.starts_with("crates/") && name.contains("/src/") && has_text_error(text) {
            violations.push(format!("{name}:{}: an error is an enum of its own, not a `String`", line + 1));
        }
    }
    for (line, inside) in lexer::attributes(code) {
        if lexer::words(inside).any(|(_, word)| word == "ignore") {
            violations.push(format!("{name}:{line}: a test that is ignored tests nothing"));
        }
    }
    violations
}

/// Whether it says `Result<_, String>`.
fn has_text_error(line: &str) -> bool {
    line.split("Result<").skip(1).any(|rest| last_argument(rest) == Some("String"))
}

/// The last of several arguments, up to the bracket that closes them.
fn last_argument(arguments: &str) -> Option<&str> {
    let (mut depth, mut last, mut before) = (1_usize, None, ' ');
    for (at, c) in arguments.char_indices() {
        match c {
            '<' | '(' | '[' => depth += 1,
            // An arrow closes nothing.
            '>' if before == '-' => {}
            '>' | ')' | ']' => depth -= 1,
            ',' if depth == 1 => last = Some(at + 1),
            _ => {}
        }
        if depth == 0 {
            return arguments.get(last?..at).map(str::trim);
        }
        before = c;
    }
    None
}

fn may_be_unsafe(name: &str) -> bool {
    let mut rests = UNSAFE_MODULES.iter().filter_map(|module| name.strip_prefix(module));
    rests.any(|rest| rest == ".rs" || rest.starts_with('/'))
}

/// Dependencies come from the public registry under its public name, never from a mirror of one machine.
fn registry_violations(name: &str, text: &str) -> Vec<String> {
    let bad = |line: &str| match name {
        "Cargo.lock" => line.starts_with("source = ") && line != format!("source = \"{REGISTRY}\""),
        ".cargo/config.toml" => line.starts_with("[source") || line.starts_with("[registries"),
        _ => false,
    };
    text.lines()
        .enumerate()
        .filter(|(_, line)| bad(line.trim()))
        .map(|(at, line)| format!("{name}:{}: private registry: {line}", at + 1))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_no_text() {
        for text in ["fn f() -> Result<(), String> {", "fn f() -> Result<Vec<(u8, u8)>, String>;"] {
            assert_eq!(file_violations("crates/cli/src/x.rs", text).len(), 1, "{text}");
            assert_eq!(file_violations("crates/cli/tests/x.rs", text), Vec::<String>::new());
        }
        for text in [
            "fn f() -> Result<String, E> {",
            "fn f() -> Result<BTreeMap<String, String>, E> {",
            "fn f() -> Result<(Option<String>, Way), ApiError> {",
            "fn f() -> io::Result<String> {",
            "fn f() -> Option<(Result<(), E>, String)> {",
        ] {
            assert_eq!(file_violations("crates/cli/src/x.rs", text), Vec::<String>::new(), "{text}");
        }
    }

    #[test]
    fn unsafe_is_confined_to_modules_of_system_calls() {
        let source = "fn f() { unsafe { g() } }";
        for allowed in [
            "crates/launch/src/sys.rs",
            "crates/launch/src/sys/files.rs",
            "crates/sandbox/src/sys.rs",
            "crates/battery/src/sys.rs",
        ] {
            assert_eq!(file_violations(allowed, source), Vec::<String>::new(), "{allowed}");
        }
        for elsewhere in [
            "crates/launch/src/main.rs",
            "crates/launch/src/system.rs",
            "crates/cli/src/sys.rs",
            "crates/cli/tests/x.rs",
            "xtask/src/main.rs",
        ] {
            assert_eq!(file_violations(elsewhere, source).len(), 1, "{elsewhere}");
        }
        assert_eq!(file_violations("crates/x/src/lib.rs", "// unsafe\n"), Vec::<String>::new());
    }

    #[test]
    fn an_effect_is_made_in_one_file_alone() {
        let source = "async fn f() { TcpStream::connect(address).await }";
        assert_eq!(file_violations("crates/egress/src/tunnel.rs", source).len(), 1);
        assert_eq!(file_violations("crates/egress/src/dial.rs", source), Vec::<String>::new());
        assert_eq!(file_violations("crates/egress/tests/x.rs", source), Vec::<String>::new());
        let source = "impl DialPermit for Anything {";
        assert_eq!(file_violations("crates/egress/src/dial.rs", source).len(), 1);
        assert_eq!(file_violations("crates/runtime/src/proxy.rs", source).len(), 1);
    }

    #[test]
    fn stubs_and_ignored_tests_are_found() {
        assert_eq!(file_violations("a.rs", "fn f() { todo!() }").len(), 1);
        assert_eq!(file_violations("a.rs", "fn f() { unimplemented!() }").len(), 1);
        assert_eq!(file_violations("a.rs", "#[test]\n#[ignore = \"slow\"]\nfn f() {}").len(), 1);
        assert_eq!(file_violations("a.rs", "#[cfg_attr(miri, ignore)]\nfn f() {}").len(), 1);
        assert_eq!(file_violations("a.rs", "let ignore = \"#[ignore]\";"), Vec::<String>::new());
    }

    #[test]
    fn long_files_are_found() {
        assert_eq!(file_violations("a.rs", &"x\n".repeat(1001)).len(), 1);
        assert_eq!(file_violations("a.rs", &"x\n".repeat(1000)), Vec::<String>::new());
        assert_eq!(file_violations("Cargo.lock", &"x\n".repeat(5000)), Vec::<String>::new());
    }

    #[test]
    fn forbidden_text_is_found_in_any_file() {
        for word in FORBIDDEN_TEXT {
            assert_eq!(file_violations("docs/a.md", &format!("see {word}x")).len(), 1, "{word}");
        }
    }

    #[test]
    fn private_registries_are_found() {
        assert_eq!(
            file_violations("Cargo.lock", &format!("source = \"{REGISTRY}\"\n")),
            Vec::<String>::new()
        );
        assert_eq!(file_violations("Cargo.lock", "source = \"sparse+https://mirror.example/\"\n").len(), 1);
        assert_eq!(file_violations(".cargo/config.toml", "[source.crates-io]\n").len(), 1);
    }
}
