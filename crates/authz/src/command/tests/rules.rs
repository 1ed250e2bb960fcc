use std::path::PathBuf;

use ringfence_types::PolicyLayer;

use super::*;
use crate::command::{
    CommandPattern, CommandPatternError, CommandRule, CommandRules, Manifest, ManifestCommand, ManifestError,
    Restriction, RuleConditions,
};
use crate::judgement::{RuleLocation, RuleSource};

fn source(layer: PolicyLayer) -> RuleSource {
    RuleSource { layer, origin: None, reason: None }
}

fn words(line: &str, decision: Decision) -> CommandRule {
    CommandRule {
        pattern: CommandPattern::words(line).unwrap(),
        decision,
        here: None,
        given: RuleConditions::default(),
        source: source(PolicyLayer::Operator),
    }
}

fn exact(argv: &[&str], decision: Decision) -> CommandRule {
    let pattern = CommandPattern::Exact(argv.iter().map(|word| (*word).to_owned()).collect());
    CommandRule {
        pattern,
        decision,
        here: None,
        given: RuleConditions::default(),
        source: source(PolicyLayer::Operator),
    }
}

fn bench(profile: Profile, rules: Vec<CommandRule>) -> Bench {
    let mut bench = Bench::new(profile);
    bench.policy.rules.commands = CommandRules::new(rules).unwrap();
    bench
}

pub(super) fn with_rules(rules: &[(&str, Decision)]) -> Bench {
    bench(Profile::Guarded, rules.iter().map(|(line, decision)| words(line, *decision)).collect())
}

#[test]
fn deny_beats_ask_beats_allow_beats_the_list() {
    let bench = with_rules(&[
        ("mytool", ALLOW),
        ("mytool run", ASK),
        ("mytool run hard", DENY),
        ("ls", ASK),
        ("cat", DENY),
    ]);
    bench.lines(ALLOW, &["mytool", "mytool x", "mytool --run"]);
    bench.lines(ASK, &["mytool run", "mytool run x", "ls", "ls -l"]);
    bench.lines(DENY, &["mytool run hard", "mytool run hard x", "cat a", "env cat a", "sh -c cat"]);
    assert_eq!(rule(&bench.line("mytool")), "commands.allow");
    assert_eq!(rule(&bench.line("ls")), "commands.ask");
    assert_eq!(rule(&bench.line("cat a")), "commands.deny");
}

#[test]
fn narrowing_patterns_see_through_order_and_spelling() {
    let bench = bench(
        Profile::Workspace,
        vec![
            words("git push --force", DENY),
            words("npm publish", ASK),
            words("kubectl delete", DENY),
            words("docker run --privileged", DENY),
        ],
    );
    bench.lines(
        DENY,
        &[
            "git push --force",
            "git push origin -f",
            "git -C x push origin -f",
            "git -c a=b --no-pager push -uf",
            "git push --forc",
            "git push origin +main",
            "git push --force-with-lease",
            "/usr/bin/git push -f",
            "env A=1 git push -f",
            "./git push -f",
            "timeout 5 sh -c git\tpush\t-f",
            "kubectl --context prod delete pod x",
            "kubectl -n x delete pod",
            "docker run -it --privileged x",
            "docker --host x run --privileged=true x",
        ],
    );
    bench.lines(
        ALLOW,
        &[
            "git push",
            "git log --force",
            "npm run publish",
            "kubectl get delete",
            "docker run x",
            "rm -rf x",
            "curl x",
            "bash",
            "cat /etc/passwd",
        ],
    );
    bench.lines(ASK, &["npm publish", "npm --silent publish", "npm publish --tag x"]);
    assert_eq!(rule(&bench.line("ls")), "profile.workspace");
    bench.scripts(
        DENY,
        &[
            "ls; git push -f",
            "x=$(git push -f)",
            "if a; then git push -f; fi",
            "sudo git push -f",
            "xargs git push -f",
        ],
    );
    bench.scripts(ALLOW, &["rm -rf $x > /etc/y", "eval \"$x\"", "PATH=x ls"]);
}

#[test]
fn letters_that_stand_together_are_each_of_them() {
    let bench = bench(Profile::Workspace, vec![words("rm -rf", DENY), words("ls -R", DENY)]);
    bench.lines(
        DENY,
        &[
            "rm -rf x",
            "rm -fr x",
            "rm -fR x",
            "rm -r -f x",
            "rm -r --force x",
            "rm --recursive -f x",
            "rm --recursive --force x",
            "rm --rec --forc x",
            "rm x -Rvf",
            "/bin/rm -f --recursive x",
            "busybox rm -fr x",
            "ls -lR",
        ],
    );
    bench.lines(
        ALLOW,
        &["rm -r x", "rm -f x", "rm --recursive x", "rm --force x", "rm x", "ls -r", "cp -rf x y"],
    );
}

#[test]
fn allowing_patterns_are_strict() {
    let bench = with_rules(&[("git commit", ALLOW), ("cargo test", ALLOW), ("git diff --output", ALLOW)]);
    bench.lines(
        ALLOW,
        &[
            "git commit -m x",
            "git commit",
            "git -C src commit -m x",
            "git --no-pager commit",
            "cargo test",
            "cargo test --release foo",
            "git diff --output=x",
        ],
    );
    bench.lines(
        ASK,
        &[
            "git -c core.editor=./x commit",
            "git --git-dir=x commit",
            "git --exec-path=x commit",
            "cargo --config x test",
            "cargo +nightly test",
            "cargo build",
            "./cargo test",
            "git commit --gpg-sign=x",
            "git commit-tree x",
            "git diff --output=x --ext-diff",
        ],
    );
    bench.lines(DENY, &["git commit -F /etc/passwd", "cargo test /etc/passwd", "git diff --output=/etc/x"]);
    bench.scripts(ASK, &["cargo test $x", "cargo test > out", "PATH=x cargo test", "f=cargo; $f test"]);
}

#[test]
fn b_c29_a_bare_name_never_covers_code() {
    let bench = with_rules(&[
        ("python", ALLOW),
        ("python3", ALLOW),
        ("node", ALLOW),
        ("bash", ALLOW),
        ("sh", ALLOW),
        ("perl", ALLOW),
        ("awk", ALLOW),
        ("npx", ALLOW),
        ("env", ALLOW),
        ("xargs", ALLOW),
        ("sudo", ALLOW),
        ("vi", ALLOW),
        ("find", ALLOW),
        ("git", ALLOW),
    ]);
    bench.lines(
        ASK,
        &[
            "python -c 1",
            "python -Bc 1",
            "python -m http.server",
            "python",
            "python3 -",
            "node -e 1",
            "node --eval=1",
            "node --ev 1",
            "perl -ne 1 x",
            "perl -pi -e 1 x",
            "awk {} x",
            "npx x",
            "env mytool",
            "sudo mytool",
            "xargs mytool",
            "vi -c :q x",
            "vi +q x",
            "find . -exec ls ;",
            "git bisect run ./x",
            "git rebase -x ./x main",
            "git difftool",
            "git config alias.x y",
        ],
    );
    bench.lines(DENY, &["bash script.sh", "bash", "bash -s", "env rm x", "sudo rm x", "git push"]);
    bench.lines(
        ALLOW,
        &[
            "python script.py",
            "python -u script.py -c x",
            "node app.js",
            "vi x",
            "git commit -m x",
            "bash -c ls",
        ],
    );
    with_rules(&[("bash scripts/build.sh", ALLOW), ("npx eslint", ALLOW), ("git bisect", ALLOW)])
        .lines(ALLOW, &["bash scripts/build.sh x", "npx eslint .", "git bisect good"]);
}

#[test]
fn exact_rules_match_to_the_letter_and_cover_options() {
    let bench = bench(
        Profile::Guarded,
        vec![
            exact(&["sort", "-o", "out", "a"], ALLOW),
            exact(&["python", "-c", "print(1)"], ALLOW),
            exact(&["rm", "x"], ALLOW),
            exact(&["make", "deploy"], DENY),
            exact(&["./gradlew", "build"], ALLOW),
        ],
    );
    bench.lines(ALLOW, &["sort -o out a", "python -c print(1)", "./gradlew build"]);
    bench.lines(
        ASK,
        &[
            "sort -o out b",
            "sort -o out a b",
            "python -c print(2)",
            "make",
            "./gradlew test",
            "sub/gradlew build",
        ],
    );
    bench.lines(DENY, &["rm x", "make deploy"]);
}

#[test]
fn only_the_operator_opens() {
    for layer in [PolicyLayer::Workspace, PolicyLayer::Session, PolicyLayer::Call] {
        let rules = vec![
            CommandRule { source: source(layer), ..words("mytool", ALLOW) },
            CommandRule { source: source(layer), ..words("other", DENY) },
        ];
        let bench = bench(Profile::Guarded, rules);
        bench.lines(ASK, &["mytool"]);
        bench.lines(DENY, &["other"]);
    }
}

#[test]
fn the_floor_is_not_opened_by_a_file() {
    with_rules(&[
        ("rm", ALLOW),
        ("curl", ALLOW),
        ("git push", ALLOW),
        ("git push --force", ALLOW),
        ("bash", ALLOW),
        ("cat", ALLOW),
    ])
    .lines(DENY, &["rm x", "curl x", "git push", "git push --force", "bash", "cat .env", "cat /etc/passwd"]);
}

#[test]
fn rules_can_hold_in_one_directory() {
    let here = |decision| CommandRule { here: Some(PathBuf::from("sub")), ..words("mytool", decision) };
    let allowed = bench(Profile::Guarded, vec![here(ALLOW)]);
    allowed.lines(ASK, &["mytool"]);
    allowed.scripts(ALLOW, &["cd sub && mytool", "cd sub/deep && mytool"]);
    allowed.scripts(ASK, &["cd src && mytool", "true || cd sub; mytool"]);
    let denied = bench(Profile::Guarded, vec![here(DENY)]);
    denied.lines(ASK, &["mytool"]);
    denied.scripts(DENY, &["cd sub && mytool", "cd $x; mytool", "true || cd sub; mytool"]);
}

#[test]
fn a_ruling_says_where_it_comes_from() {
    let origin = RuleLocation { file: PathBuf::from("/etc/policy.toml"), line: 3, column: 5 };
    let source = RuleSource {
        layer: PolicyLayer::Operator,
        origin: Some(origin.clone()),
        reason: Some("not here".to_owned()),
    };
    let bench = bench(Profile::Guarded, vec![CommandRule { source, ..words("mytool", DENY) }]);
    let parts = bench.line("mytool");
    let part = decisive(&parts);
    assert_eq!(
        (part.layer, part.origin.as_ref(), &*part.reason),
        (PolicyLayer::Operator, Some(&origin), "not here")
    );
    assert!(part.fix.as_ref().unwrap().contains("/etc/policy.toml:3:5"));
}

#[test]
fn s000_24_restrictions_of_document_000() {
    let mut bench = Bench::guarded();
    let restriction = |program: &str, allowed: Option<&[&str]>, blocked: &[&str]| Restriction {
        program: program.to_owned(),
        allowed: allowed.map(|all| all.iter().map(|word| (*word).to_owned()).collect()),
        blocked: blocked.iter().map(|word| (*word).to_owned()).collect(),
        source: source(PolicyLayer::Operator),
    };
    let mut rules = CommandRules::default();
    for entry in [
        restriction("fest", None, &[]),
        restriction("just", None, &[]),
        restriction("git", None, &["push --force", "reset --hard", "clean -fd"]),
        restriction("go", Some(&["build", "test", "vet", "mod"]), &["install"]),
        restriction("npm", Some(&["install", "test", "run", "build"]), &[]),
        restriction("make", None, &[]),
    ] {
        rules.restrict(entry).unwrap();
    }
    bench.policy.rules.commands = rules.clone();
    bench.lines(
        ALLOW,
        &[
            "fest status",
            "just build",
            "git commit -m x",
            "go test ./...",
            "go build",
            "npm run build",
            "make all",
        ],
    );
    bench.lines(
        DENY,
        &["go install x", "go run .", "npm publish", "git reset --hard", "rm x", "go", "go -C .. test"],
    );
    bench.lines(ASK, &["cargo build"]);
    let mut contained = Bench::new(Profile::Workspace);
    contained.policy.rules.commands = rules;
    contained.lines(DENY, &["go install x", "npm publish", "git push origin -f", "env git reset --hard"]);
    contained.lines(ALLOW, &["go test", "cargo build", "rm x", "git push"]);
    let nothing = CommandRules::default().restrict(restriction("x", Some(&[]), &[]));
    assert_eq!(nothing, Err(CommandPatternError::NothingAllowed("x".to_owned())));
}

#[test]
fn a_listed_tool_of_the_project_runs_what_the_project_says_and_nothing_else() {
    let exactly = bench(Profile::Guarded, vec![exact(&["make", "CC=clang"], ALLOW)]);
    let bench = with_rules(&[
        ("go test", ALLOW),
        ("npm run build", ALLOW),
        ("cargo test", ALLOW),
        ("cargo build --config", ALLOW),
        ("just test", ALLOW),
        ("make", ALLOW),
    ]);
    bench.lines(
        ALLOW,
        &[
            "go test ./...",
            "npm run build --silent",
            "cargo test --release",
            "cargo build --config x",
            "just test",
            "make -j4 all",
            "make V=1 DEBUG=yes",
        ],
    );
    bench.lines(
        ASK,
        &[
            "go test -exec rm",
            "go test --exec=rm",
            "npm run build --script-shell=./x",
            "npm run build -C sub",
            "cargo test --config build.rustc=x",
            "cargo test -Zx",
            "just test --justfile x",
            "just test -fx",
            "make SHELL=./x",
            "make CC=x",
            "make X!=id",
            "make X!=1",
            "env make SHELL=./x",
        ],
    );
    exactly.lines(ALLOW, &["make CC=clang"]);
    exactly.lines(ASK, &["make CC=gcc"]);
}

#[test]
fn s000_22_what_a_manifest_does_not_name_is_denied() {
    let command = |path: &str, agent_allowed, interactive| ManifestCommand {
        path: path.to_owned(),
        agent_allowed,
        reason: None,
        interactive,
    };
    let manifest = Manifest {
        version: 2,
        cli: "camp".to_owned(),
        commands: vec![
            command("list", true, false),
            command("camp project", true, false),
            command("project list", true, false),
            command("project delete", false, false),
            command("init", true, true),
        ],
        source: source(PolicyLayer::Operator),
    };
    for profile in [Profile::Guarded, Profile::Workspace] {
        let mut bench = Bench::new(profile);
        bench.policy.rules.commands.manifest(manifest.clone()).unwrap();
        bench.lines(
            ALLOW,
            &["camp list", "camp list --all x", "camp project list", "camp project", "env camp list"],
        );
        bench.lines(
            DENY,
            &[
                "camp project delete x",
                "camp secret",
                "camp project hidden",
                "camp project --x hidden",
                "camp --x y list",
                "sh -c camp\tsecret",
            ],
        );
        bench.lines(ASK, &["camp init", "camp", "camp --version"]);
        // With a value for its option the first is `project delete`.
        bench.lines(ASK, &["camp --root list project delete x", "camp -v list"]);
        bench.lines(ALLOW, &["camp --root=x list"]);
    }
    let wrong = Manifest { version: 1, ..manifest.clone() };
    assert!(matches!(
        CommandRules::default().manifest(wrong),
        Err(ManifestError::Version { version: 1, .. })
    ));
    let empty = Manifest { commands: Vec::new(), ..manifest };
    assert!(matches!(CommandRules::default().manifest(empty), Err(ManifestError::NoCommands(_))));
}

#[test]
fn patterns_are_checked() {
    for (line, expected) in [
        ("", CommandPatternError::Empty),
        ("-x", CommandPatternError::NoProgram("-x".to_owned())),
        ("git $x", CommandPatternError::Dynamic { pattern: "git $x".to_owned(), word: "$x".to_owned() }),
        ("git *", CommandPatternError::Dynamic { pattern: "git *".to_owned(), word: "*".to_owned() }),
        ("a; b", CommandPatternError::Dynamic { pattern: "a; b".to_owned(), word: "a;".to_owned() }),
    ] {
        assert_eq!(CommandPattern::words(line), Err(expected), "{line}");
    }
    let rule = CommandRule { pattern: CommandPattern::Words(Vec::new()), ..words("x", DENY) };
    assert_eq!(CommandRules::new(vec![rule]), Err(CommandPatternError::Empty));
    assert!(
        CommandPattern::Exact(vec!["sh".to_owned(), "-c".to_owned(), "echo $x | y".to_owned()])
            .check()
            .is_ok()
    );
}

#[test]
fn examples_ask_one_rule_alone() {
    let argv = |line: &str| line.split(' ').map(ByteString::from).collect::<Vec<_>>();
    for (pattern, decision, line, expected) in [
        ("git push --force", DENY, "git -C x push -f", true),
        ("git push --force", DENY, "git push", false),
        ("git push --force", DENY, "echo git push --force", false),
        ("sort", ALLOW, "sort a", true),
        ("sort", ALLOW, "sort -o x a", false),
        ("sort -o", ALLOW, "sort -o x a", true),
        ("git diff", ALLOW, "git diff --stat", true),
        ("git diff", ALLOW, "git diff --ext-diff", false),
        ("git diff", ALLOW, "git -c a=b diff", false),
        ("python", ALLOW, "python x.py", true),
        ("python", ALLOW, "python -c x", false),
        ("bash", ALLOW, "bash -c ls", false),
        ("find", ALLOW, "find . -exec x ;", false),
        ("cargo test", ALLOW, "cargo test -- x", true),
        ("cargo test", ALLOW, "cargo bench", false),
    ] {
        assert_eq!(words(pattern, decision).matches(&argv(line)), expected, "{pattern} / {line}");
    }
    assert!(!words("x", DENY).matches(&[]));
}

#[test]
fn ten_thousand_rules_cost_as_much_as_a_hundred() {
    let rules = (0..3_333).flat_map(|n| {
        [
            words(&format!("git sub{n} --x"), ASK),
            words(&format!("tool{n} run"), DENY),
            exact(&["git", &format!("a{n}")], ALLOW),
        ]
    });
    let bench = bench(Profile::Guarded, rules.chain([words("git log --x", ASK)]).collect());
    assert_eq!(bench.policy.rules.commands.looked_at(&["git", "log", "--oneline"]), 1);
    assert_eq!(bench.policy.rules.commands.looked_at(&["git", "a7"]), 1);
    assert_eq!(bench.policy.rules.commands.looked_at(&["ls"]), 0);
    bench.lines(ASK, &["git log --x", "git sub7 --x"]);
    bench.lines(DENY, &["tool3000 run"]);
}

#[test]
fn a_rule_about_a_bare_name_covers_no_option_that_runs_a_program() {
    let programs =
        ["make", "less", "rsync", "fd", "gcc", "rustc", "bat", "sqlite3", "git archive", "git cat-file"];
    let rules: Vec<(&str, Decision)> =
        programs.iter().chain(&["git reflog"]).map(|program| (*program, ALLOW)).collect();
    let mut bench = with_rules(&rules);
    bench.lines(
        ASK,
        &[
            "make -E zz:;touch zz",
            "less +!id a.txt",
            "rsync -ae ./x a b",
            "rsync --rs=./x a b",
            "rsync --rsyn=./x a b",
            "rsync --password-command=id a b",
            "fd -x id",
            "fd --exec-batch id",
            "gcc -wrapper ./x a.c",
            "gcc -fplugin=./x a.c",
            "rustc -C linker=./x a.rs",
            "rustc -Clinker=./x a.rs",
            "bat --pager=./x a.txt",
        ],
    );
    assert_eq!(decision(&bench.argv(&["sqlite3", "x", ".shell id"])), ASK);
    bench.lines(
        ALLOW,
        &["make all", "less a.txt", "rsync -a a b", "fd x", "gcc a.c", "rustc a.rs", "bat a.txt"],
    );
    bench.facts.missing = vec!["/w/HEAD"];
    bench.facts.tracked = vec!["/w/conf/.env", "/w/readme"];
    bench.lines(ASK, &["git archive HEAD", "git reflog -p", "git cat-file --batch"]);
    bench.lines(ALLOW, &["git reflog"]);
}

/// What a prefix covers is still judged by its paths, and prints no more than its files.
#[test]
fn a_rule_about_a_bare_name_covers_no_file_of_another_name() {
    let programs = ["cp", "mv", "ln", "install", "git mv", "git commit", "git restore", "git add"];
    let rules: Vec<(&str, Decision)> = programs.iter().map(|program| (*program, ALLOW)).collect();
    let mut bench = with_rules(&rules);
    bench.facts.missing = vec!["/w/.github/workflows/ci.yml", "/w/CLAUDE.md", "/w/new.rs"];
    bench.lines(
        ASK,
        &[
            "cp -b -S file y Make",
            "cp --suffix=file y Make",
            "mv -b --suf=.md y CLAUDE",
            "ln -b x y",
            "install --backup=simple x y",
            "git mv evil.yml .github/workflows/ci.yml",
            "git mv e2 CLAUDE.md",
        ],
    );
    bench.lines(ALLOW, &["cp a.rs new.rs", "mv a.rs new.rs", "git mv a.rs new.rs"]);
    let shown = [
        "git commit --dry-run -v",
        "git commit --amend --dry-run --verbose",
        "git restore --staged -p",
        "git add -i",
    ];
    bench.lines(ALLOW, &shown);
    bench.facts.tracked = vec!["/w/conf/.env", "/w/readme"];
    bench.lines(ASK, &shown);
    bench.lines(ALLOW, &["git commit -m words", "git commit --dry-run", "git add readme"]);
}
