use proptest::prelude::*;
use ringfence_types::{RuleFamily, RuleId};

use super::*;
use crate::judgement::RuleLocation;

fn at(cwd: &'static str) -> ActionLocation<'static> {
    ActionLocation { workspace: Path::new("/w"), cwd: Path::new(cwd) }
}

fn root() -> ActionLocation<'static> {
    at("/w")
}

fn below() -> ActionLocation<'static> {
    at("/w/app")
}

fn words(line: &str) -> Vec<ByteString> {
    line.split(' ').map(ByteString::from).collect()
}

fn asked_argv(argv: Vec<ByteString>) -> JudgementPart {
    let subject = argv.iter().map(ByteString::display).collect::<Vec<_>>().join(" ");
    let mut part = JudgementPart::new(PartKind::Command, subject, RuleId::GuardedUnlisted)
        .because("not on the list")
        .ask(Risk::Medium, "a rule that allows it");
    part.argv = argv;
    part
}

fn asked(line: &str) -> JudgementPart {
    asked_argv(words(line))
}

fn allowed(line: &str) -> JudgementPart {
    let mut part = JudgementPart::new(PartKind::Command, line, RuleFamily::Guarded.member("listed"));
    part.argv = words(line);
    part
}

fn judgement(parts: Vec<JudgementPart>) -> Judgement {
    Judgement::new(
        parts,
        JudgementPart::new(PartKind::Call, "nothing", RuleId::CallEmpty).deny(Risk::High, "nothing"),
    )
}

fn of(parts: Vec<JudgementPart>, place: ActionLocation<'_>) -> Vec<GrantCandidate> {
    candidates(&judgement(parts), place, &RuleConditions::nothing())
}

/// Scope, pattern, `here` and words of each candidate, for one asked command.
fn shown(line: &str, place: ActionLocation<'_>) -> Vec<String> {
    of(vec![asked(line)], place).iter().map(described).collect()
}

fn described(candidate: &GrantCandidate) -> String {
    let rules: Vec<String> = candidate
        .rules
        .iter()
        .map(|rule| {
            let (kind, words) = match &rule.pattern {
                CommandPattern::Exact(words) => ("=", words),
                CommandPattern::Words(words) => ("^", words),
            };
            let here = rule.here.as_ref().map(|here| format!(" @{}", here.display())).unwrap_or_default();
            format!("{kind}{}{here}", words.join(" "))
        })
        .collect();
    format!("{:?} {} | {}", candidate.scope, rules.join(", "), candidate.permits)
}

#[test]
fn most_commands_are_stored_exactly_as_they_were_asked() {
    for line in [
        "make test",
        "npm test",
        "npm run build",
        "npm install left-pad",
        "pip install -r r.txt",
        "tar xf a.tgz",
    ] {
        let expected = format!("Exact ={line} | exactly `{line}`, in any directory of this workspace");
        assert_eq!(shown(line, root()), std::slice::from_ref(&expected));
        assert_eq!(shown(line, below()), [expected], "the directory makes no difference to the arguments");
    }
}

#[test]
fn some_programs_have_a_prefix_that_is_worth_a_rule() {
    assert_eq!(
        shown("cargo test --lib paths", below()),
        [
            "Exact =cargo test --lib paths | exactly `cargo test --lib paths`, in any directory of this workspace",
            "Here ^cargo test @app | every command that begins with `cargo test`, with any further arguments, in `app` and below",
            "Prefix ^cargo test | every command that begins with `cargo test`, with any further arguments, in any directory of this workspace",
        ]
    );
    let scopes = |line, place| of(vec![asked(line)], place).iter().map(|c| c.scope).collect::<Vec<_>>();
    assert_eq!(
        scopes("mkdir -p a/b", root()),
        [CandidateScope::Exact, CandidateScope::Prefix],
        "here is everywhere at the top"
    );
    assert_eq!(scopes("git commit -m x", root()), [CandidateScope::Exact, CandidateScope::Prefix]);
    for line in ["git", "git gc", "cargo run", "cargo install x", "cargo +nightly test", "/usr/bin/git add x"]
    {
        assert_eq!(scopes(line, below()), [CandidateScope::Exact], "{line}");
    }
}

#[test]
fn a_script_is_bound_to_its_directory_and_its_changes_are_spelled_out() {
    assert_eq!(
        shown("python3 build.py", below()),
        [
            "Exact =python3 build.py @app | exactly `python3 build.py`, in `app` and below, whatever `build.py` contains by then"
        ]
    );
    assert_eq!(
        shown("./gradlew test", root()),
        [
            "Exact =./gradlew test | exactly `./gradlew test`, in any directory of this workspace, whatever `./gradlew` contains by then"
        ]
    );
    for line in
        ["python -m pytest", "bash run.sh", "deno run x.ts", "timeout 5 python a.py", "uv run python a.py"]
    {
        assert_eq!(of(vec![asked(line)], below()).len(), 1, "{line}");
        assert_eq!(of(vec![asked(line)], at("/other")), [], "{line}: no rule can name a directory outside");
    }
}

#[test]
fn nothing_is_offered_for_code_other_users_other_machines_and_standard_input() {
    let lines = [
        "sh",
        "bash -s",
        "bash -c ls",
        "sh -lc ls",
        "zsh -c x",
        "/tmp/bash -c ls",
        "fish -c x",
        "busybox sh",
        "python",
        "python3.11 -c 1",
        "python -",
        "python -u x.py",
        "pypy3 -c 1",
        "node",
        "node -e 1",
        "node --eval 1",
        "nodejs -p 1",
        "perl -e 1",
        "perl5.36 -ne 1",
        "ruby -e 1",
        "php -r 1",
        "lua5.4 -e 1",
        "deno eval 1",
        "bun -e 1",
        "osascript -e x",
        "awk {print}",
        "gawk -f x",
        "eval ls",
        "source x",
        ". ./x",
        "xargs rm",
        "parallel ls",
        "sudo ls",
        "sudo -u x ls",
        "doas ls",
        "su -c ls",
        "pkexec ls",
        "run0 ls",
        "curl http://localhost",
        "wget x",
        "ssh host",
        "scp a b",
        "rsync a b",
        "nc -l 1",
        "git push",
        "git -C x pull",
        "git fetch",
        "git clone x",
        "git -c a=b submodule update",
        "docker ps",
        "kubectl get x",
        "gh pr list",
        "env bash -c ls",
        "env A=1 python -c 1",
        "timeout 5 sh",
        "nice -n 5 node -e 1",
        "nohup bash",
        "npx -c ls",
        "npm exec -c ls",
        "find . -exec sh -c x ;",
        "uv run python -c 1",
        "time curl x",
        "PYTHON -c 1",
        "python.exe -c 1",
    ];
    for line in lines {
        assert_eq!(shown(line, below()), [] as [String; 0], "{line}");
    }
    assert_eq!(of(vec![asked("git stash push")], root()).len(), 2, "not every push goes out");
}

#[test]
fn only_what_was_asked_is_stored() {
    let parts =
        vec![allowed("ls"), asked("npm test"), allowed("cat x"), asked("cargo fmt"), asked("npm test")];
    assert_eq!(
        of(parts, root()).iter().map(described).collect::<Vec<_>>(),
        [
            "Exact =npm test, =cargo fmt | exactly `npm test`, in any directory of this workspace; and exactly `cargo fmt`, in any directory of this workspace",
            "Prefix =npm test, ^cargo fmt | exactly `npm test`, in any directory of this workspace; and every command that begins with `cargo fmt`, with any further arguments, in any directory of this workspace",
        ]
    );
}

#[test]
fn one_part_that_no_rule_covers_leaves_nothing_to_offer() {
    let ask = |part: JudgementPart| part.ask(Risk::Medium, "a rule");
    let mut by_rule = asked("make");
    by_rule.origin = Some(RuleLocation { file: "/c/policy.toml".into(), line: 1, column: 1 });
    let others = [
        ask(JudgementPart::new(PartKind::Write, "/w/.github/workflows/ci.yml", RuleId::PathCi)),
        ask(JudgementPart::new(PartKind::Read, "/w/my-secret", RuleId::PathNamedSecret)),
        ask(JudgementPart::new(PartKind::Variable, "CC", RuleId::EnvSteering)),
        ask(JudgementPart::new(PartKind::Host, "h", RuleId::HostUnlisted)),
        ask(JudgementPart::new(PartKind::Command, "$X", RuleId::GuardedDynamic)),
        asked("bash -c $x"),
        asked_argv(vec![ByteString::from("make"), ByteString::from(&b"\xff"[..])]),
        asked_argv(vec![ByteString::from("make"), ByteString::from("a\u{202e}b")]),
        asked_argv(vec![ByteString::from("make"), ByteString::from("x".repeat(2000).as_str())]),
        JudgementPart::new(PartKind::Command, "rm", RuleFamily::Guarded.member("rm"))
            .deny(Risk::High, "nothing"),
        by_rule,
    ];
    for other in others {
        assert_eq!(of(vec![asked("npm test"), other.clone()], root()), [], "{other:?}");
    }
    let many = (0..6).map(|n| asked(&format!("make t{n}"))).collect();
    assert_eq!(of(many, root()), [], "six rules at once are read by nobody");
    assert_eq!(of(vec![allowed("ls")], root()), [], "nothing was asked");
}

#[test]
fn risk_narrows_what_is_offered() {
    let scopes = |risk| -> Vec<CandidateScope> {
        let part = asked("cargo test").ask(risk, "x");
        of(vec![part], root()).iter().map(|candidate| candidate.scope).collect()
    };
    assert_eq!(scopes(Risk::Medium), [CandidateScope::Exact, CandidateScope::Prefix]);
    assert_eq!(scopes(Risk::High), [CandidateScope::Exact]);
    assert_eq!(scopes(Risk::Critical), []);
    let mut steered = asked("git commit -C x");
    steered.rule = RuleFamily::Option.member("git");
    assert_eq!(
        of(vec![steered], root()).len(),
        1,
        "what an option made dangerous is stored with the option only"
    );
}

#[test]
fn what_is_stored_is_text_of_a_policy_file() {
    let argv = ["make", "say=\"a\\b\"", "it's"].map(ByteString::from).to_vec();
    assert_eq!(
        of(vec![asked_argv(argv)], below())[0].stored,
        "[[workspaces.\"/w\".command]]\nallow = [[\"make\", \"say=\\\"a\\\\b\\\"\", \"it's\"]]\nexact = true\n"
    );
    let offered = of(vec![asked("cargo fmt"), asked("python a.py")], below());
    assert_eq!(
        offered[1].stored,
        "[[workspaces.\"/w\".command]]\nallow = [[\"cargo\", \"fmt\"]]\nwithin = \"app\"\n\
         [[workspaces.\"/w\".command]]\nallow = [[\"python\", \"a.py\"]]\nexact = true\nwithin = \"app\"\n"
    );
    let unwritable = ActionLocation { workspace: Path::new("/w\n"), cwd: Path::new("/w\n") };
    assert_eq!(of(vec![asked("make")], unwritable), [], "no rule for a workspace that no file can name");
}

/// The words of every table, of ordinary arguments, and versions of them.
fn word() -> impl Strategy<Value = String> {
    let known: Vec<&str> = [INTERPRETERS, WRAPPERS, NEVER, GIT_NETWORK].concat();
    let wider: Vec<&str> = WIDER.iter().flat_map(|(name, words)| [&[*name], *words].concat()).collect();
    prop_oneof![
        prop::sample::select(known).prop_map(str::to_owned),
        prop::sample::select(wider).prop_map(str::to_owned),
        prop::sample::select(INTERPRETERS).prop_map(|name| format!("/usr/bin/{name}3.1")),
        prop::sample::select(vec!["-c", "-e", "-m", "-", "--", "x.py", "a=b", "", "run", "eval"])
            .prop_map(str::to_owned),
        "[ -~]{0,6}",
    ]
}

fn pattern_matches(rule: &CommandRule, argv: &[String]) -> bool {
    match &rule.pattern {
        CommandPattern::Exact(words) => words == argv,
        CommandPattern::Words(words) => argv.starts_with(words),
    }
}

proptest! {
    #[test]
    fn a_candidate_permits_what_was_asked_and_never_an_interpreter(
        argv in prop::collection::vec(word(), 1..6), other in prop::collection::vec(word(), 1..6)
    ) {
        let bytes: Vec<ByteString> = argv.iter().map(|word| ByteString::from(word.as_str())).collect();
        for candidate in of(vec![asked_argv(bytes)], below()) {
            prop_assert_eq!(candidate.rules.len(), 1);
            let rule = &candidate.rules[0];
            prop_assert_eq!(rule.decision, Decision::Allow);
            prop_assert!(pattern_matches(rule, &argv), "{:?} does not match {:?}", rule, argv);
            prop_assert!(!is_one_of(NEVER, &argv[0]));
            if candidate.scope != CandidateScope::Exact {
                let wide = [INTERPRETERS, WRAPPERS, NEVER].iter().any(|names| is_one_of(names, &other[0]));
                prop_assert!(!(wide && pattern_matches(rule, &other)), "{:?} matches {:?}", rule, other);
            }
        }
    }
}

#[test]
fn no_table_contradicts_another() {
    for (name, _) in WIDER {
        assert!(![INTERPRETERS, WRAPPERS, NEVER].concat().contains(name), "{name}");
    }
    for names in [INTERPRETERS, WRAPPERS, NEVER, GIT_NETWORK] {
        assert!(names.is_sorted(), "{names:?}");
    }
    assert!(WIDER.is_sorted());
}

#[test]
fn the_file_that_a_command_executes_is_told_from_its_code() {
    let words = |line: &str| {
        let argv: Vec<ByteString> = line.split(' ').map(ByteString::from).collect();
        executed_words(&argv).iter().map(|word| word.display()).collect::<Vec<_>>().join(" ")
    };
    for (line, expected) in [
        ("./tool x", "./tool"),
        ("sh run", "run"),
        ("sh -e run.sh", "run.sh"),
        ("python3 -u run.py out.json", "run.py out.json"),
        ("bash -c ./run.sh", ""),
        ("python3.11 -c ./x", ""),
        ("node --eval=x.y z.js", ""),
        ("perl -e x.y", ""),
        ("python3 -m a.b", ""),
        ("/usr/bin/tool x.sh", ""),
        ("cp a.sh b.sh", ""),
    ] {
        assert_eq!(words(line), expected, "{line}");
    }
}
