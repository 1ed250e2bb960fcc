use super::{assert_gap_lists, assert_gaps, commands};
use crate::shell::parse;

#[test]
fn grammar_of_zsh_is_a_gap() {
    assert_gaps(&[
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
        "a ${(e)x}",
        "a ${${x}}",
        "a ${:-$(b)}",
        "a ${=x}",
        "histchars=x\na",
        "a ${x:s/a/b}",
        "a ${x:#b}",
        "a ${x::=b}",
    ]);
}

#[test]
fn grammar_of_bash_is_a_gap() {
    assert_gaps(&[
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
    ]);
}

#[test]
fn a_line_that_is_continued_in_an_odd_place_is_a_gap() {
    assert_gaps(&[
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
    ]);
}

#[test]
fn quotes_that_shells_match_differently_are_a_gap() {
    assert_gaps(&[
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
        "RANDOM=x$?",
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
        "declare -a x='($(rm))'",
        "readonly 'x=(`rm`)'",
        "x=(); typeset x='(<(rm))'",
        "PS4='$(rm)'; set -x; ls",
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

#[test]
fn a_gap_knows_its_place() {
    assert_eq!(parse(b"a; b 'c").gaps[0].at, 7);
    assert_eq!(parse(b"a `b; c $[1]`").gaps[0].at, 8);
    assert_eq!(parse(b"a <<E\nx ${!y}\nE\n").gaps[0].at, 11);
}
