use super::{assert_commands, assert_gaps, commands, lines};
use crate::{CommandInput, Script, parse};

#[test]
fn nothing_is_no_command_and_no_gap() {
    for text in ["", " ", "\n\n", "# note", " \t# note\n", "\\\n", "#!/bin/sh\n"] {
        assert_eq!(parse(text.as_bytes()), Script::default(), "{text:?}");
    }
}

#[test]
fn every_command_of_a_list_is_listed() {
    assert_commands(&[
        ("git status", &["git|status"]),
        ("git status && rm -rf x", &["git|status", "rm|-rf|x"]),
        ("a; b & c && d || e | f\ng", &["a", "b", "c", "d", "e", "f", "g"]),
        ("cd x && git diff | head -20", &["cd|x", "git|diff", "head|-20"]),
        ("a |& b", &["a", "b"]),
        ("a &&\n\n# note\nb |\nc", &["a", "b", "c"]),
        ("! a; ! ! b; time c; time -p d | e; time", &["a", "b", "c", "d", "e", "time"]),
        ("\\time a", &["time|a"]),
        ("a # b; c\nd", &["a", "d"]),
        ("a;#b\nc", &["a", "c"]),
        ("a#b c#d", &["a#b|c#d"]),
        ("a \\\n  b \\\n  && c", &["a|b", "c"]),
        ("a\r\nb\r\n", &["a\r", "b\r"]),
    ]);
}

#[test]
fn every_command_of_a_compound_is_listed() {
    assert_commands(&[
        ("(a; (b))", &["a", "b"]),
        ("{ a; b; }", &["a", "b"]),
        ("if a; then b; elif c; then d; else e; fi", &["a", "b", "c", "d", "e"]),
        ("while a; do b; done; until c\ndo d\ndone", &["a", "b", "c", "d"]),
        ("for x in a b; do c $x; done", &["x=<one of several words>", "c|<a variable>"]),
        ("for PATH in /tmp; do ls; done", &["PATH=/tmp", "ls"]),
        ("for x; do a; done", &["x=<an argument of the script>", "a"]),
        ("for x in $(a) `b`; do c; done", &["x=<one of several words>", "a", "b", "c"]),
        ("case $(a) in $(b)|c) d;; (`e`) f;; *) g\nesac", &["a", "b", "d", "e", "f", "g"]),
        ("case a in esac; b", &["b"]),
        ("{ a; } > x 2>&1", &["a", ">x|>&"]),
        ("while a; do b; done < x", &["a", "b", "<x"]),
        ("[[ -f x ]] 2>/dev/null || a", &["[[|-f|x|]]|>/dev/null", "a"]),
    ]);
}

#[test]
fn every_command_of_a_substitution_is_listed() {
    assert_commands(&[
        ("a $(b)", &["a|<a command substitution>", "b"]),
        ("a \"x $(b) y\"", &["a|<a command substitution>", "b"]),
        ("a `b`", &["a|<a command substitution>", "b"]),
        ("a \"`b`\"", &["a|<a command substitution>", "b"]),
        ("a $(b $(c; d))", &["a|<a command substitution>", "b|<a command substitution>", "c", "d"]),
        (
            "a ${x:-$(b)} ${x#`c`} \"${x/$(d)/y}\"",
            &["a|<a variable>|<a variable>|<a variable>", "b", "c", "d"],
        ),
        ("a ${x:-${y:-$(b)}}", &["a|<a variable>", "b"]),
        ("a ${PATH:=$(b)}", &["a|<a variable>", "PATH=<a default value>", "b"]),
        (
            "a <(b) >(c) > >(d)",
            &["a|<a process substitution>|<a process substitution>|><a process substitution>", "b", "c", "d"],
        ),
        ("a=$(b) c", &["a=<a command substitution>|c", "b"]),
        ("a=(x $(b) `c`)", &["a=<an array>", "b", "c"]),
        ("a > $(b) <<< $(c)", &["a|><a command substitution>|<text", "b", "c"]),
        ("a $(case x in x) b;; esac)", &["a|<a command substitution>", "b"]),
        ("[[ -n $(b) ]]", &["[[|-n|<a command substitution>|]]", "b"]),
        ("a $() ``", &["a|<a command substitution>|<a command substitution>"]),
        ("a $((1 + 2))", &["a|<arithmetic>"]),
    ]);
}

#[test]
fn assignments_are_told_from_words() {
    assert_commands(&[
        ("A=1 B='x y' c D=2", &["A=1|B=x y|c|D=2"]),
        ("A=1", &["A=1"]),
        ("A= b", &["A=''|b"]),
        (
            "A=*.c B=~/x C={a,b} D==ls E=$x",
            &["A=*.c|B=<a tilde prefix>|C=<a brace expansion>|D=<a leading `=`>|E=<a variable>"],
        ),
        ("PATH=/tmp/bad:$PATH cat <<EOF > /tmp/bad/x\nEOF\n", &["PATH=<a variable>|cat|<text|>/tmp/bad/x"]),
        ("export A=1 B=$(c)", &["export|A=1|<a command substitution>", "c"]),
        ("a-b=1 c", &["a-b=1|c"]),
    ]);
}

#[test]
fn redirections_are_files_descriptors_or_text() {
    assert_commands(&[
        ("a > x >> y 2> z >| w", &["a|>x|>y|>z|>w"]),
        ("a < x <> y", &["a|<x|<>y"]),
        ("a 2>&1 >&2 <&3 >&- 2>&-", &["a|>&|>&|<&|>&|>&"]),
        ("a &> x; a &>> x; a >& x; a >&x b", &["a|>x", "a|>x", "a|>x", "a|b|>x"]),
        ("a <<< 'x'", &["a|<text"]),
        ("a > \"x y\" > $z > ~/w > *.c", &["a|>x y|><a variable>|>home:/w|>glob::*.c"]),
        ("a > /dev/null 2>&1 < /dev/null", &["a|>/dev/null|>&|</dev/null"]),
        (">x a b", &["a|b|>x"]),
        ("a b2>x \\2>y", &["a|b2|2|>x|>y"]),
        ("[[ -n x > y ]]", &["[[|-n|x|]]|>y"]),
    ]);
}

#[test]
fn here_documents_end_where_every_shell_ends_them() {
    assert_commands(&[
        ("a <<E\nx\nE\nb", &["a|<text", "b"]),
        ("a <<E\n$(b) `c` ${x:-$(d)} \\$(e) \\`f\\` \\\\$(g)\nE\n", &["a|<text", "b", "c", "d", "g"]),
        ("a <<'E'\n$(b) `c` ${\nE\nd", &["a|<text", "d"]),
        ("a <<\"E\"\n$(b)\nE\nd", &["a|<text", "d"]),
        ("a <<\\E\n$(b)\nE\nd", &["a|<text", "d"]),
        ("a <<-E\n\t\tx\n\tE\nb", &["a|<text", "b"]),
        ("a <<E <<F; b <<G\n$(c)\nE\nx\nF\n$(d)\nG\ne", &["a|<text|<text", "b|<text", "c", "d", "e"]),
        ("a <<E | b\nx\nE\n", &["a|<text", "b"]),
        ("a <<E > f\nx\nE", &["a|<text|>f"]),
        ("(a <<E)\nx\nE\nb", &["a|<text", "b"]),
        (
            "git commit -m \"$(cat <<'EOF'\nIt's (a) \"b\" `c` $(d)\nEOF\n)\"",
            &["git|commit|-m|<a command substitution>", "cat|<text"],
        ),
        ("a `b <<E\n$(c)\nE\n`", &["a|<a command substitution>", "b|<text", "c"]),
    ]);
    assert_gaps(&[
        "a <<E\nx",
        "a <<E",
        "a <<E\nx\nE ",
        "a <<E\nx\\\nE\nb\nE\n",
        "a <<E\nE\\\n\nb\nE\n",
        "a <<$x\n$x\nb",
        "a <<`x`\n`x`\nb",
        "a <<''\n\nb",
        "a <<E \"\nx\"\nE\nb",
        "a <<E $(b\nc)\nE\nd",
        "a $(b <<E)\nx\nE\n",
        "a $(b <<E\nx\nE)\nc\nE\n)",
        "a $(b <<E\nx\nE\nc; d)",
        "a <<E\n$(b\nE\n)\nc",
        "a <<E\n${x:-'$(b)'}\nE\n",
    ]);
}

/// What agents send every day has no gap.
#[test]
fn ordinary_commands_have_no_gap() {
    for text in [
        "ls -la",
        "pwd && ls",
        "cat src/main.rs | head -n 20",
        "git log --oneline -5 --pretty=format:\"%h %s\"",
        "git diff HEAD~1 -- src/ | grep '^+' | wc -l",
        "cd /x/y && cargo build 2>&1 | tail -5",
        "echo \"exit: $?\"",
        "grep -rn \"foo\\|bar\" --include='*.rs' . | sort | uniq -c",
        "rg -n 'fn main\\(' -g '!target' src",
        "find . -name '*.rs' -not -path './target/*' -exec grep -l foo {} +",
        "sed -n '1,5p' file",
        "awk '{print $1}' x",
        "[ -f x ] && cat x || echo none",
        "if [ -d x ]; then ls x; else echo no; fi",
        "test -e x; echo $?",
        "for f in *.rs; do wc -l \"$f\"; done",
        "while read -r line; do echo \"$line\"; done < x",
        "FOO=bar make -j$(nproc)",
        "cat > x <<'EOF'\nfn main() { println!(\"it's\"); }\nEOF",
        "cat <<EOF | wc -l\na $HOME\nEOF\n",
        "ls *.txt 2>/dev/null",
        "git commit -m \"$(cat <<'EOF'\nSubject (x)\n\n- it's\nEOF\n)\"",
        "(cd x && ls)",
        "{ echo a; echo b; } > x",
        "true",
        "diff <(sort a) <(sort b)",
        "[[ $x == y* ]] && echo z",
        "curl -s http://localhost:80/x?y=1",
        "which rg &>/dev/null",
        "pip install 'foo>=1.0' bar==2",
        "python3 -c 'print(\"a; b\")'",
        "set -euo pipefail\nls\n# don't\npwd",
        "echo a>b",
        "x=$(git rev-parse HEAD); echo \"$x\"",
        "timeout 5 cargo test -- --nocapture 2>&1 | tee log",
        "echo $((1 + 2))",
        "command -v rg >/dev/null || echo missing",
        "echo 'a' >> x; cat x",
        "tar czf - x | ssh h 'tar xzf -'",
        "sleep 1 & wait",
        "case \"$1\" in start) run;; *) echo usage;; esac",
        "time cargo build",
        "! grep -q x y",
        "arr=(a b c)",
        "ls ~/x ~",
        "export PATH=\"$HOME/bin:$PATH\"",
        "git stash show -p stash@{0}",
        "echo \"a\" | tr -d '\\n'",
        "jq '.a[] | {b}' x",
    ] {
        commands(text);
    }
}

/// The probes of the research (C1, C2, B-8, B-C21 … B-C24): each is listed or a gap.
#[test]
fn probes_are_listed_or_gaps() {
    for text in [
        "git status && rm -rf x",
        "git status; rm -rf x",
        "git status | rm -rf x",
        "git status & rm -rf x",
        "git status || rm -rf x",
        "git status\nrm -rf x",
        "git status $(rm -rf x)",
        "git status `rm -rf x`",
        "git status <(rm -rf x)",
        "git status ${x:-$(rm -rf x)}",
        "git status <<E\n$(rm -rf x)\nE",
        "time rm -rf x",
        "git status <<< $(rm -rf x)",
        "! rm -rf x",
        "{ rm -rf x;}",
        "(rm -rf x)",
        "case x in x) rm -rf x;; esac",
        "for i in 1; do rm -rf x; done",
        "while rm -rf x; do :; done",
        "f() { rm -rf x; }; f",
        "coproc rm -rf x",
        "cat <<E\n`rm -rf x`\nE",
        "(( a[$(rm -rf x)] ))",
        "[[ -n $(rm -rf x) ]]",
        "a=( $(rm -rf x) )",
        "\"r\"m -rf x",
        "r''m -rf x",
        "\\rm -rf x",
        "echo \"${a#$(rm -rf x)}\"",
        "echo `echo \\`rm -rf x\\``",
        "x=$((`rm -rf x`))",
        "if :; then :; elif rm -rf x; then :; fi",
        "> f rm -rf x",
        "A=1 rm -rf x",
        "rm\\\n -rf x",
        "ls |& rm -rf x",
    ] {
        let listed = lines(&parse(text.as_bytes()));
        assert!(listed.iter().any(|line| line.contains("rm|-rf|x")), "{text:?}: {listed:?}");
    }
    for (text, first) in [
        ("eval 'rm x'", "eval|rm x"),
        ("source x", "source|x"),
        (". x", ".|x"),
        ("trap 'rm -rf x' EXIT", "trap|rm -rf x|EXIT"),
        ("g\\it status", "git|status"),
        ("/bin/r? x", "glob:/bin/r:/bin/r?|x"),
        ("command rm x", "command|rm|x"),
        ("env -S 'rm x'", "env|-S|rm x"),
        ("IFS=x; rm", "IFS=x"),
        ("xargs rm", "xargs|rm"),
    ] {
        assert_eq!(commands(text).first().map(String::as_str), Some(first), "{text:?}");
    }
    assert_gaps(&["{rm,-rf,x}", "$'\\x72m' $'\\''"]);
}

#[test]
fn a_command_knows_its_text_its_depth_and_its_input() {
    let script = parse(b"a x | b; (c > y <<E; d $(e)) | { f; } ; while g; do h; done < z\nE\n");
    let facts: Vec<_> =
        script.commands.iter().map(|simple| (simple.text.as_str(), simple.depth, simple.input)).collect();
    assert_eq!(
        facts,
        [
            ("a x", 0, CommandInput::Inherited),
            ("b", 0, CommandInput::Pipe),
            ("c > y <<E", 1, CommandInput::Redirected),
            ("d $(e)", 1, CommandInput::Inherited),
            ("e", 2, CommandInput::Inherited),
            ("f", 0, CommandInput::Pipe),
            ("g", 0, CommandInput::Redirected),
            ("h", 0, CommandInput::Redirected),
            ("< z", 0, CommandInput::Redirected),
        ]
    );
    let inputs: Vec<_> = parse(b"a | b $(c) `d` <<E\n$(e)\nE\nf 3<x; g 0<x")
        .commands
        .iter()
        .map(|simple| simple.input)
        .collect();
    use CommandInput::{Inherited, Pipe, Redirected};
    assert_eq!(inputs, [Inherited, Redirected, Pipe, Pipe, Inherited, Inherited, Redirected]);
}
