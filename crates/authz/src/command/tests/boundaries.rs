use proptest::prelude::*;

use super::*;

/// Words that attacks are made of.
const WORDS: &[&str] = &[
    "rm",
    "ls",
    "git",
    "env",
    "sh",
    "-c",
    "cat",
    "push",
    "--force",
    "xargs",
    "find",
    "-exec",
    "{}",
    ";",
    "+",
    "--",
    "-",
    "A=1",
    "PATH=x",
    "timeout",
    "5",
    "-S",
    "busybox",
    ".env",
    "../x",
    "/etc/passwd",
    "src",
    "*",
    "nice",
    "-n",
    "grep",
    "-f",
    "status",
    "diff",
    "--output=x",
    "",
    "echo",
    "command",
    "sudo",
    "-i",
    "$x",
    "'",
    "\"",
    "\n",
    "&&",
    "|",
    "$(",
    ")",
    "`",
    "\\",
    "cd",
    "eval",
    "trap",
    "EXIT",
    "<",
    ">",
];

fn words() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(
        prop_oneof![prop::sample::select(WORDS).prop_map(str::to_owned), "\\PC{0,8}"],
        1..12,
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    /// Whatever is judged, every question and refusal says how it could be otherwise.
    #[test]
    fn any_words_get_a_judgement(words in words()) {
        let bench = Bench::guarded();
        let argv: Vec<&str> = words.iter().map(String::as_str).collect();
        let parts = bench.argv(&argv);
        check(&argv.join(" "), &parts, decision(&parts));
        let text = words.join(" ");
        for part in bench.script(&text) {
            prop_assert_eq!(part.fix.is_some(), part.decision > ALLOW);
        }
    }

    /// A wrapper never makes anything better.
    #[test]
    fn wrapping_never_allows_more(words in words(), wrapper in prop::sample::select(&["env", "nice", "timeout 5", "sudo", "nohup"][..])) {
        let bench = Bench::guarded();
        let inner: Vec<&str> = words.iter().map(String::as_str).collect();
        // An option or an assignment in front is the wrapper's own.
        prop_assume!(!inner[0].starts_with('-') && !inner[0].contains('=') && !inner[0].is_empty());
        let outer: Vec<&str> = wrapper.split(' ').chain(inner.iter().copied()).collect();
        prop_assert!(decision(&bench.argv(&outer)) >= decision(&bench.argv(&inner)), "{:?}", outer);
    }

    /// One more command in a list never allows more.
    #[test]
    fn a_list_is_as_strict_as_its_parts(a in prop::sample::select(&["ls", "cat .env", "mytool", "rm x", "echo x > a"][..]),
                                        b in prop::sample::select(&["ls", "cat .env", "mytool", "rm x", "echo x > a"][..]),
                                        link in prop::sample::select(&["; ", " && ", " || ", " | ", "\n", " & "][..])) {
        let bench = Bench::guarded();
        let whole = decision(&bench.script(&format!("{a}{link}{b}")));
        prop_assert_eq!(whole, decision(&bench.script(a)).max(decision(&bench.script(b))));
    }
}
