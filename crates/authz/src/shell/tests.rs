use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::{Direction, Input, Redirection, Script, Simple, Target, Word, parse};

fn word(word: &Word) -> String {
    match word {
        Word::Literal(bytes) if bytes.is_empty() => "''".to_owned(),
        Word::Literal(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Word::Glob { prefix, pattern } => {
            format!("glob:{}:{}", String::from_utf8_lossy(prefix), String::from_utf8_lossy(pattern))
        }
        Word::Home(rest) => format!("home:{}", String::from_utf8_lossy(rest)),
        Word::Dynamic { why } => format!("<{why}>"),
    }
}

fn redirection(redirection: &Redirection) -> String {
    let sign = match redirection.direction {
        Direction::Read => "<",
        Direction::Write => ">",
        Direction::ReadWrite => "<>",
    };
    match &redirection.target {
        Target::File(target) => format!("{sign}{}", word(target)),
        Target::Descriptor => format!("{sign}&"),
        Target::Text => format!("{sign}text"),
    }
}

/// A command in one line, words separated by `|`.
fn line(simple: &Simple) -> String {
    let assignments = simple.assignments.iter().map(|assignment| {
        format!("{}={}", String::from_utf8_lossy(&assignment.name), word(&assignment.value))
    });
    let words = simple.words.iter().map(word);
    let redirections = simple.redirections.iter().map(redirection);
    assignments.chain(words).chain(redirections).collect::<Vec<_>>().join("|")
}

fn lines(script: &Script) -> Vec<String> {
    script.commands.iter().map(line).collect()
}

/// The commands of a text that must not have a gap.
fn commands(text: &str) -> Vec<String> {
    let script = parse(text.as_bytes());
    assert!(script.gaps.is_empty(), "{text:?}: {:?}", script.gaps);
    lines(&script)
}

fn assert_commands(table: &[(&str, &[&str])]) {
    for (text, expected) in table {
        assert_eq!(commands(text), *expected, "{text:?}");
    }
}

fn gaps(text: &str) -> Vec<&'static str> {
    parse(text.as_bytes()).gaps.iter().map(|gap| gap.why).collect()
}

fn assert_gaps(texts: &[&str]) {
    for text in texts {
        assert!(!gaps(text).is_empty(), "{text:?} has no gap: {:?}", lines(&parse(text.as_bytes())));
    }
}

/// Gaps, and still the command is there for whoever has a rule about it.
fn assert_gap_lists(table: &[(&str, &str)]) {
    for (text, expected) in table {
        let script = parse(text.as_bytes());
        assert!(!script.gaps.is_empty(), "{text:?} has no gap");
        assert!(lines(&script).iter().any(|line| line == expected), "{text:?}: {:?}", lines(&script));
    }
}

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
        (
            "a `b \\`c \\\\\\`d\\\\\\`\\``",
            &["a|<a command substitution>", "b|<a command substitution>", "c|<a command substitution>", "d"],
        ),
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
fn words_are_what_is_left_of_the_quotes() {
    assert_commands(&[
        ("r''m; \"r\"m; \\rm; 'rm'; r\\m; r\\\nm", &["rm", "rm", "rm", "rm", "rm", "rm"]),
        ("a 'b c' \"d e\" f\\ g ''", &["a|b c|d e|f g|''"]),
        ("echo 'rm -rf /' \"; rm\"", &["echo|rm -rf /|; rm"]),
        ("a \"\\$x \\` \\\" \\\\ \\x \\\ny\"", &["a|$x ` \" \\ \\x y"]),
        ("a '$x `y` \\z \"'", &["a|$x `y` \\z \""]),
        ("a x$ \"x$\" $, \"$|\" 50%", &["a|x$|x$|$,|$||50%"]),
        ("a '*' \"?\" \\[x] \"~\" \\~ '{a,b}' \"#\"", &["a|*|?|[x]|~|~|{a,b}|#"]),
        ("git show HEAD~1 HEAD^ stash@{0} @{u}", &["git|show|HEAD~1|HEAD^|stash@{0}|@{u}"]),
        ("find . -exec grep x {} \\;", &["find|.|-exec|grep|x|{}|;"]),
        (
            "[ a = b ]; [ a == b ]; [[ a == b ]]; [[ a =~ b ]]",
            &["[|a|=|b|]", "[|a|==|b|]", "[[|a|==|b|]]", "[[|a|=~|b|]]"],
        ),
        ("a \u{e9}\u{a0}b", &["a|\u{e9}\u{a0}b"]),
        ("\"if\" x; \\while y; 'A'=1", &["if|x", "while|y", "A=1"]),
        ("dd if=/x of=y; a --b=c d=e", &["dd|if=/x|of=y", "a|--b=c|d=e"]),
    ]);
}

#[test]
fn bytes_need_not_be_text() {
    let script = parse(b"a \xff'\xfe'\\\xc3");
    assert_eq!(script.commands[0].words[1], Word::Literal(b"\xff\xfe\xc3".to_vec()));
    assert!(script.gaps.is_empty());
    assert_eq!(gaps("a\0b"), ["a NUL byte"]);
}

#[test]
fn words_that_are_known_only_when_they_run_say_why() {
    assert_commands(&[
        (
            "a $x \"$x\" ${x} $1 $@ x$y \"$HOME/x\" r$@m",
            &[
                "a|<a variable>|<a variable>|<a variable>|<a variable>|<a variable>|<a variable>|<a variable>|<a variable>",
            ],
        ),
        ("a $? \"x $?\" \"$? $x\"", &["a|<an exit status>|<text with an exit status>|<a variable>"]),
        (
            "a ~ ~/x ~x ~+ ''~ ~\"/x\" ~/*",
            &[
                "a|home:|home:/x|<a tilde prefix>|<a tilde prefix>|<a tilde prefix>|<a tilde prefix>|<a tilde prefix>",
            ],
        ),
        ("a b=~/x b:~ HEAD:~", &["a|<a tilde prefix>|b:~|HEAD:~"]),
        (
            "a {b,c} {1..3} x{a,b}y {a','b}",
            &["a|<a brace expansion>|<a brace expansion>|<a brace expansion>|<a brace expansion>"],
        ),
        ("=ls; a =b ''=b = b=c", &["<a leading `=`>", "a|<a leading `=`>|<a leading `=`>|=|b=c"]),
        ("$'rm' $'\\x72m'", &["<`$'…'`, which dash does not know>|<`$'…'`, which dash does not know>"]),
        ("$\"rm\"", &["<a translated string>"]),
        (
            "/bin/r? x*.rs [ab]c 'a*'b*\"c]\"",
            &["glob:/bin/r:/bin/r?|glob:x:x*.rs|glob::[ab]c|glob:a*b:a\\*b*c\\]"],
        ),
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
        ("a `b <<E\n\\$(c)\nE\n`", &["a|<a command substitution>", "b|<text", "c"]),
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

#[test]
fn what_shells_read_differently_is_a_gap() {
    assert_gaps(&[
        // Grammar of zsh.
        "a &! b",
        "a &| b",
        "{ a }",
        "{ a } ; b; }",
        "{a; }",
        "if a { b }",
        "if (a) b",
        "for x (a b) c",
        "for x in a; b",
        "for x in a; { b; }",
        "foreach x (a) b; end",
        "repeat 2 a",
        "repeat 2; do a; done",
        "() { a; }",
        "noglob a *",
        "- a",
        "nocorrect a",
        "while (a) { b; }",
        "case a { a) b;; }",
        "{ a; } always { b; }",
        "a =(b)",
        "a >! b",
        "a >>| b",
        "a &>! b",
        "a *(e:'b':)",
        "a (b|c)",
        "a b(c)",
        "a <1-5>",
        "a b<->",
        "<a",
        ">a",
        "é=1 a",
        "1=a b",
        "a {x}>y",
        "a {x} >y",
        "a 2&>x",
        "path=x a",
        "for path in x; do a; done",
        "functions=(ls 'rm x'); ls",
        "x=1 if a",
        "a $=x",
        "a $~x",
        "a $^x",
        "a $+x",
        "a $é",
        "a $x[b]",
        "a \"$x[$(b)]\"",
        "a ${x}[b]",
        "a ${(e)x}",
        "a ${${x}}",
        "a ${:-$(b)}",
        "a ${=x}",
        "histchars=x\na",
        "a ${x:s/a/b}",
        "a ${x:#b}",
        "a ${x::=b}",
        // Grammar of bash.
        "((a))",
        "for ((;;)); do a; done",
        "a 12>b",
        "a+=1 b",
        "a[0]=b c",
        "a=([x]=1)",
        "a $[1]",
        "a ${!x}",
        "a ${x@P}",
        "a ${x[y]}",
        "a ${x:y}",
        "a ${ b; }",
        "coproc a",
        "select x in a; do b; done",
        "function a { b; }",
        "a &>b c",
        "{ a; } &>b",
        "cd a &>b",
        "a >&'$(b)'",
        "a >&\"b\"",
        "a >&-b",
        "a >&$x",
        "a <&b",
        "case a in a) b;& c) d;; esac",
        "case a in a) b;;& *) c;; esac",
        "[[ a && b ]]",
        "[[ a || b ]]",
        "[[ ( a ) ]]",
        "[[ a\nb ]]",
        "[[ a ]] b",
        "[[ a",
        "[[ a =~ (b) ]]",
        "export a=(b)",
        "a b=(c)",
        "!(a)",
        "a @(b|c)",
        "time -o a b",
        "time -- a",
        "$'a\\'b'",
        // Where a line ends.
        "a &\\\n& b",
        "a <\\\n(b)",
        "a $\\\n(b)",
        "a $x\\\ny",
        "i\\\nf a; then b; fi",
        "A\\\n=1 b",
        "a 2\\\n>b",
        "a \\\n#b",
        "a ~\\\n/b",
        "a \\",
        // Quotes in quotes.
        "a \"${x:-'b'}\"",
        "a \"${x:-\"b\"}\"",
        "a \"`b \\\"c\\\"`\"",
        "a ${x:-\\}}",
        "a ${x:-{b}}",
        "a ${x:-<(b)}",
        "a `b # c'`",
        "a $(b # c)\n)",
        "a <(b)c",
        "a b<(c)",
        "a {b",
        "a b}",
        "a }",
    ]);
}

#[test]
fn what_no_shell_accepts_is_a_gap() {
    assert_gaps(&[
        "'",
        "\"",
        "`",
        "$(",
        "${",
        "a $((1",
        "(",
        "a)",
        ")",
        "{ a",
        "}",
        "a && && b",
        "a;;b",
        "; a",
        "& a",
        "a ; ; b",
        "a |",
        "a &&",
        "|| a",
        "if a; then b",
        "if a; fi",
        "if; then a; fi",
        "while a; done",
        "do a; done",
        "done",
        "fi",
        "then a",
        "esac",
        "case a in b",
        "case a in b c) d;; esac",
        "for",
        "for 1 in a; do b; done",
        "a >",
        "a > > b",
        "a <",
        "a >&",
        "a <<",
        "( )",
        "{ }",
        "a (b)",
        "a () b c (",
        "! ",
        "a b=(c",
        "a $(b",
        "a <(b",
        "if a; then fi",
    ]);
}

/// A function is never the program of its name, and its body is listed.
#[test]
fn functions_and_aliases_are_gaps() {
    assert_gap_lists(&[
        ("ls() { rm x; }; ls", "rm|x"),
        ("ls () { rm x; }; ls", "ls"),
        ("function ls { rm x; }; ls", "rm|x"),
        ("function ls() ( rm x )", "rm|x"),
        ("ls() rm x", "rm|x"),
        ("alias ls='rm -rf'; ls", "alias|ls=rm -rf"),
    ]);
}

#[test]
fn behind_a_gap_commands_are_still_listed() {
    assert_gap_lists(&[
        ("((a[$(rm x)]))", "rm|x"),
        ("a $((b[$(rm x)]))", "a|<arithmetic>"),
        ("a $((b[$(rm x)]))", "rm|x"),
        ("a $((`rm x`))", "rm|x"),
        ("a[$(rm x)]=1", "rm|x"),
        ("a ${x[$(rm x)]}", "rm|x"),
        ("coproc rm x", "rm|x"),
        ("select x in a; do rm x; done", "rm|x"),
        ("a; rm x; 'unterminated", "rm|x"),
        ("rm x $(", "rm|x"),
        ("a $[ $(rm x) ]", "rm|x"),
        ("repeat 2 rm x", "repeat|2|rm|x"),
        ("for ((x=$(rm x);;)); do b; done", "rm|x"),
    ]);
}

/// Builtins evaluate words, and `a[$(…)]` in such a word runs.
#[test]
fn words_that_a_builtin_evaluates_are_gaps() {
    assert_gaps(&[
        "x='a[$(rm y)]'",
        "x='a[`rm y`]' ls",
        "RANDOM=x",
        "SECONDS=$x",
        "for RANDOM in x; do a; done",
        "OPTIND=x a",
        "test -v 'a[$(rm)]'",
        "[ -v \"$x\" ]",
        "[ 'a[$(rm)]' -eq 1 ]",
        "[[ x -eq 1 ]]",
        "[[ $x -lt 1 ]]",
        "[ -t x ]",
        "printf %d x",
        "printf '%s %d' a \"$x\"",
        "printf -v PATH /tmp",
        "printf '%*s' x y",
        "printf %n x",
        "exit x",
        "shift $x",
        "return 'a[$(rm)]'",
        "break x",
        "command printf -v x y",
        "builtin [ x -eq 1 ]",
        "let 'a[$(rm)]'",
        "unset 'a[$(rm)]'",
        "read 'a[$(rm)]'",
        "export 'path[$(rm)]=1'",
        "a $((x))",
        "a ${x:y}",
        "LC_ALL=x; a é",
    ]);
    for text in [
        "[ 1 -eq 2 ]",
        "[ $? -ne 0 ]",
        "[[ -n x ]]",
        "[ -v x ]",
        "printf '%s\\n' 'a[$(b)]'",
        "printf '100%%d' x",
        "printf %d 12",
        "printf -- %s x",
        "printf '%-10s|%5b' x y",
        "exit 1",
        "exit $?",
        "break; continue 2",
        "LC_ALL=C ls",
        "grep 'a[$(b)]' c",
        "x='$(rm)'",
        "RANDOM=1",
        "a $((1 << 2))",
        "a ${x:1:2}",
        "a ${x[@]} ${x[0]}",
    ] {
        commands(text);
    }
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
            ("a x", 0, Input::Inherited),
            ("b", 0, Input::Pipe),
            ("c > y <<E", 1, Input::Redirected),
            ("d $(e)", 1, Input::Inherited),
            ("e", 2, Input::Inherited),
            ("f", 0, Input::Pipe),
            ("g", 0, Input::Redirected),
            ("h", 0, Input::Redirected),
            ("< z", 0, Input::Redirected),
        ]
    );
}

#[test]
fn a_gap_knows_its_place() {
    assert_eq!(parse(b"a; b 'c").gaps[0].at, 7);
    assert_eq!(parse(b"a `b; c $[1]`").gaps[0].at, 8);
    assert_eq!(parse(b"a <<E\nx ${!y}\nE\n").gaps[0].at, 11);
}

#[test]
fn text_is_cut() {
    let script = parse(format!("echo {}", "é".repeat(5000)).as_bytes());
    assert!(script.commands[0].text.len() < 4200 && script.commands[0].text.ends_with('…'));
    let Word::Literal(word) = &script.commands[0].words[1] else { panic!("not a literal") };
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
    assert_eq!(gaps(&"a;".repeat(10_001)), ["more than 10000 commands"]);
    assert_eq!(gaps(&"a ".repeat(200_001)), ["more than 200000 words"]);
    assert_eq!(parse("a ".repeat(100_000).as_bytes()).commands[0].words.len(), 100_000);
}

/// A megabyte of whatever one would use to make a parser slow. The bound is for an unoptimised build on a busy machine;
/// what grows with the square takes minutes.
#[test]
fn a_megabyte_of_anything_is_read_at_once() {
    const SIZE: usize = 1 << 20;
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
        assert!(start.elapsed() < Duration::from_secs(5), "{piece:?} took {:?}", start.elapsed());
        let start = Instant::now();
        parse(format!("a <<E\n{text}\nE\nb=aaaa{text}").as_bytes());
        assert!(start.elapsed() < Duration::from_secs(5), "{piece:?} took {:?}", start.elapsed());
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
        let word = Word::Literal(bytes);
        prop_assert_eq!(&script.commands[0].words[1..], &[word.clone(), word][..]);
    }
}
