use super::{assert_commands, gaps};
use crate::{ShellWord, parse};

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
    assert_eq!(script.commands[0].words[1], ShellWord::Literal(b"\xff\xfe\xc3".to_vec()));
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
