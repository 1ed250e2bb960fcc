//! A second evaluator, slow and plain: every rule is looked at, in the words of the documentation. Random stacks of policy
//! files are loaded by the product and judged by both; they must agree. What a layer adds must never allow more.

#[cfg(test)]
#[path = "../../authz/tests/machine/mod.rs"]
mod machine;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fmt::Write as _;
    use std::path::{Path, PathBuf};

    use proptest::prelude::*;
    use ringfence_authz::hosts::judge_url;
    use ringfence_authz::tools::judge_tool;
    use ringfence_authz::{Action, Policy, judge};
    use ringfence_policy::{PolicyError, PolicyFile, PolicyFileRole, StartupFlags, effective};
    use ringfence_types::{
        ByteString, Call, Decision, ExecCall, FileCall, NetMode, Profile, Root, StandardInput,
    };

    use crate::machine::{HOME, Machine, WORKSPACE};

    proptest! {
        #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn both_evaluators_agree(stack in stacks(), action in actions()) {
            let policy = stack.load(&action).map_err(|error| TestCaseError::fail(format!("{error}\n{stack}")))?;
            let (found, expected) = (found(&policy, &action), expected(&stack, &action));
            prop_assert_eq!(found, expected, "{:?} under\n{}", action, stack);
        }

        #[test]
        fn no_layer_allows_more(stack in stacks(), action in actions()) {
            let whole = found(&stack.load(&action).unwrap(), &action);
            for fewer in [stack.without(PolicyFileRole::Session), stack.without(PolicyFileRole::Workspace)] {
                let before = found(&fewer.load(&action).unwrap(), &action);
                prop_assert!(whole >= before, "{action:?} was {before:?} and is {whole:?} under\n{stack}");
            }
        }
    }

    #[test]
    fn the_naive_globs_mean_what_the_documentation_says() {
        for (pattern, path, expected) in [
            ("a.md", "a.md", true),
            ("a.md", "x/a.md", true),
            ("src", "src/deep/x", true),
            ("./src", "x/src/y", false),
            ("*.md", "x/a.md", true),
            ("*.md", "a.md/x", false),
            ("docs/*", "docs/a", true),
            ("docs/*", "docs/a/b", false),
            ("docs/**", "docs/a/b", true),
            ("docs/**", "docs", false),
            ("**/a.md", "a.md", true),
            ("**/a.md", "x/y/a.md", true),
            ("src/a.md", "x/src/a.md", false),
            ("A.MD", "a.md", true),
        ] {
            assert_eq!(speaks(pattern, path, Case::Folded), expected, "{pattern} {path}");
        }
    }

    const ROLES: [PolicyFileRole; 3] =
        [PolicyFileRole::Operator, PolicyFileRole::Workspace, PolicyFileRole::Session];

    // What the files say.

    #[derive(Clone, Debug)]
    struct Stack {
        profile: Profile,
        layers: BTreeMap<PolicyFileRole, Layer>,
    }

    /// One file. A thing is named once per file: twice is an error.
    #[derive(Clone, Debug, Default)]
    struct Layer {
        commands: BTreeMap<&'static str, CommandRule>,
        paths: Vec<PathRule>,
        hosts: BTreeMap<&'static str, Decision>,
        tools: BTreeMap<&'static str, Decision>,
        denied_variables: Vec<&'static str>,
        opened_variables: Vec<&'static str>,
    }

    #[derive(Clone, Debug)]
    struct CommandRule {
        decision: Decision,
        exact: Exactness,
        here: Option<&'static str>,
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Exactness {
        Exact,
        Open,
    }

    #[derive(Clone, Debug)]
    struct PathRule {
        decision: Decision,
        pattern: &'static str,
        except: Option<&'static str>,
    }

    #[derive(Clone, Debug)]
    enum Asked {
        Run { argv: Vec<&'static str>, cwd: &'static str },
        With { variable: &'static str },
        Read(&'static str),
        Url(&'static str),
        Tool(&'static str),
    }

    // The second evaluator.

    fn expected(stack: &Stack, action: &Asked) -> Decision {
        match action {
            // A call is a call of a tool as well.
            Asked::Run { argv, cwd } => run(stack, argv, cwd).max(tool(stack, "exec")),
            Asked::With { variable } => with(stack, variable).max(tool(stack, "exec")),
            Asked::Read(path) => read(stack, path).max(tool(stack, "read_file")),
            Asked::Url(url) => fetch(stack, url),
            Asked::Tool(name) => tool(stack, name),
        }
    }

    fn run(stack: &Stack, argv: &[&str], cwd: &str) -> Decision {
        let spoken = |role: PolicyFileRole, decision: Decision| {
            stack.layer(role).commands.iter().any(|(pattern, rule)| {
                rule.decision == decision && here(rule.here, cwd) && matches(pattern, rule, argv)
            })
        };
        let any = |decision| ROLES.iter().any(|role| spoken(*role, decision));
        let listed = stack.profile == Profile::Guarded;
        // An option that nobody knows is no part of what is listed.
        let known = argv[0] == "ls" && !argv.iter().any(|word| word.starts_with('-'));
        if any(Decision::Deny) || listed && argv[0] == "rm" {
            Decision::Deny
        } else if any(Decision::Ask) {
            Decision::Ask
        } else if spoken(PolicyFileRole::Operator, Decision::Allow) || !listed || known {
            Decision::Allow
        } else {
            Decision::Ask
        }
    }

    fn here(here: Option<&str>, cwd: &str) -> bool {
        here.is_none_or(|here| Path::new(cwd).starts_with(here))
    }

    /// Program and subcommands in order, options anywhere. Whether an option takes the word behind it is not known: a rule
    /// that closes speaks if it does under any reading, one that opens counts the words before the first option alone.
    fn matches(pattern: &str, rule: &CommandRule, argv: &[&str]) -> bool {
        let words: Vec<&str> = pattern.split(' ').collect();
        if rule.exact == Exactness::Exact {
            return words == argv;
        }
        let (options, plain): (Vec<&str>, Vec<&str>) = words.iter().partition(|word| word.starts_with('-'));
        let mut certain = argv.iter().copied().take_while(|word| !word.starts_with('-'));
        // Of a program whose options are known, an unknown one is opened by its name alone.
        let unnamed =
            argv[0] == "ls" && argv.iter().any(|word| word.starts_with('-') && !options.contains(word));
        let subcommands = match rule.decision {
            Decision::Allow => !unnamed && plain.iter().all(|word| certain.next() == Some(word)),
            Decision::Ask | Decision::Deny => readings(argv).iter().any(|read| read.starts_with(&plain)),
        };
        subcommands && options.iter().all(|option| argv.contains(option))
    }

    /// The words that are no options and no values of options, in every way to read it.
    fn readings<'a>(argv: &[&'a str]) -> Vec<Vec<&'a str>> {
        match argv {
            [] => vec![Vec::new()],
            [option, value, rest @ ..] if option.starts_with('-') && !value.starts_with('-') => {
                let mut ways = readings(rest);
                ways.extend(readings(&argv[1..]));
                ways
            }
            [option, rest @ ..] if option.starts_with('-') => readings(rest),
            [word, rest @ ..] => {
                let mut ways = readings(rest);
                ways.iter_mut().for_each(|way| way.insert(0, word));
                ways
            }
        }
    }

    fn with(stack: &Stack, variable: &str) -> Decision {
        let named = |patterns: &[&str]| patterns.iter().any(|pattern| glob(pattern, variable));
        let denied = ROLES.iter().any(|role| named(&stack.layer(*role).denied_variables));
        let opened = stack.layer(PolicyFileRole::Operator).opened_variables.contains(&variable);
        let steers = ["LD_PRELOAD", "GIT_PAGER", "PYTHONPATH", "PERL5LIB"].contains(&variable);
        // Where commands are listed, so are variables.
        let listed = stack.profile == Profile::Guarded;
        match opened {
            _ if denied => Decision::Deny,
            true => Decision::Allow,
            false if steers => Decision::Deny,
            false if listed => Decision::Ask,
            false => Decision::Allow,
        }
    }

    /// In one file the first that speaks; of several the strictest; where the operator is silent, what is built in.
    fn read(stack: &Stack, path: &str) -> Decision {
        let first = |role: PolicyFileRole| {
            let layer = stack.layer(role);
            let mut rules = layer.paths.iter();
            let matching = |rule: &&PathRule| {
                let (named, excepted) = match rule.decision {
                    Decision::Allow => (Case::Exact, Case::Folded),
                    Decision::Ask | Decision::Deny => (Case::Folded, Case::Exact),
                };
                let except = rule.except.is_some_and(|except| speaks(except, path, excepted));
                speaks(rule.pattern, path, named) && !except
            };
            // Parts that only narrow share a layer, so that their order means nothing.
            match role {
                PolicyFileRole::Session => rules.filter(matching).map(|rule| rule.decision).max(),
                PolicyFileRole::Operator | PolicyFileRole::Workspace => {
                    rules.find(matching).map(|rule| rule.decision)
                }
            }
        };
        let operator = first(PolicyFileRole::Operator).unwrap_or(built_in(path));
        [PolicyFileRole::Workspace, PolicyFileRole::Session]
            .into_iter()
            .filter_map(first)
            .fold(operator, Decision::max)
    }

    fn built_in(path: &str) -> Decision {
        match path.rsplit('/').next() {
            Some(".env" | "server.key") => Decision::Deny,
            Some("secrets.txt") => Decision::Ask,
            _ => Decision::Allow,
        }
    }

    /// What closes is compared without letter case, what opens is exactly what was written.
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Case {
        Exact,
        Folded,
    }

    fn speaks(pattern: &str, path: &str, case: Case) -> bool {
        let folded = |text: &str| if case == Case::Folded { text.to_lowercase() } else { text.to_owned() };
        let (pattern, path) = (folded(pattern), folded(path));
        let names: Vec<&str> = path.split('/').collect();
        let parts: Vec<&str> = pattern.split('/').filter(|part| *part != ".").collect();
        let whole_tree = !parts.last().is_some_and(|last| last.contains('*'));
        if !pattern.contains('/') {
            let (name, above) = names.split_last().unwrap();
            return glob(&pattern, name) || whole_tree && above.iter().any(|name| glob(&pattern, name));
        }
        let ends = 1..=names.len();
        ends.rev().any(|end| (end == names.len() || whole_tree) && walk(&parts, &names[..end]))
    }

    fn walk(parts: &[&str], names: &[&str]) -> bool {
        match (parts, names) {
            ([], []) => true,
            (["**"], names) => !names.is_empty(),
            (["**", rest @ ..], names) => (0..=names.len()).any(|skipped| walk(rest, &names[skipped..])),
            ([part, rest @ ..], [name, below @ ..]) => glob(part, name) && walk(rest, below),
            _ => false,
        }
    }

    fn glob(pattern: &str, name: &str) -> bool {
        match pattern.split_once('*') {
            None => pattern == name,
            Some((start, rest)) => {
                let tails = name
                    .strip_prefix(start)
                    .map(|left| (0..=left.len()).filter_map(move |at| left.get(at..)));
                tails.is_some_and(|mut tails| tails.any(|tail| glob(rest, tail)))
            }
        }
    }

    fn fetch(stack: &Stack, url: &str) -> Decision {
        let host = url.trim_start_matches("https://").trim_end_matches('/');
        let spoken = |role: PolicyFileRole, decision: Decision| {
            let about = |pattern: &str| match pattern.strip_prefix("*.") {
                Some(above) => host.ends_with(&format!(".{above}")),
                None => host == pattern,
            };
            stack.layer(role).hosts.iter().any(|(pattern, said)| *said == decision && about(pattern))
        };
        strictest(spoken, Decision::Deny)
    }

    fn tool(stack: &Stack, name: &str) -> Decision {
        let spoken = |role: PolicyFileRole, decision: Decision| {
            let tools = &stack.layer(role).tools;
            tools.iter().any(|(pattern, said)| *said == decision && glob(pattern, name))
        };
        let built_in = ["exec", "read_file"].contains(&name);
        let otherwise = if built_in { Decision::Allow } else { Decision::Deny };
        strictest(spoken, otherwise)
    }

    /// Everybody closes, only the operator opens. What the operator asks about is opened that far.
    fn strictest(spoken: impl Fn(PolicyFileRole, Decision) -> bool, otherwise: Decision) -> Decision {
        let any = |decision| ROLES.iter().any(|role| spoken(*role, decision));
        let opened = spoken(PolicyFileRole::Operator, Decision::Allow)
            || spoken(PolicyFileRole::Operator, Decision::Ask);
        let base = if opened { Decision::Allow } else { otherwise };
        if any(Decision::Deny) {
            Decision::Deny
        } else if any(Decision::Ask) {
            base.max(Decision::Ask)
        } else {
            base
        }
    }

    // The product.

    fn found(policy: &Policy, action: &Asked) -> Decision {
        let exec = |argv: &[&str], cwd: &str, env: Vec<(ByteString, ByteString)>| {
            let argv = argv.iter().map(|word| ByteString::from(*word)).collect();
            let cwd = ByteString::from(Path::new(WORKSPACE).join(cwd));
            Call::Exec(ExecCall {
                argv,
                cwd,
                env,
                ceiling: None,
                net: NetMode::None,
                stdin: StandardInput::None,
            })
        };
        let call = match action {
            Asked::Run { argv, cwd } => exec(argv, cwd, Vec::new()),
            Asked::With { variable } => {
                exec(&["true"], "", vec![(ByteString::from(*variable), ByteString::from("x"))])
            }
            Asked::Read(path) => Call::File(FileCall::Read { path: ByteString::from(*path) }),
            Asked::Url(url) => return judge_url(policy, url.as_bytes(), None).decision,
            Asked::Tool(name) => return judge_tool(policy, name).decision,
        };
        let roots = vec![Root { path: ByteString::from(WORKSPACE), access: policy.access }];
        judge(policy, &Action::new(call, roots), &Machine)
            .map_or(Decision::Deny, |judgement| judgement.decision())
    }

    impl Stack {
        fn layer(&self, role: PolicyFileRole) -> Layer {
            self.layers.get(&role).cloned().unwrap_or_default()
        }

        fn without(&self, role: PolicyFileRole) -> Self {
            let mut fewer = self.clone();
            fewer.layers.remove(&role);
            fewer
        }

        fn load(&self, action: &Asked) -> Result<Policy, PolicyError> {
            let read = |(role, layer): (&PolicyFileRole, &Layer)| {
                PolicyFile::parse(*role, Path::new("/policy.toml"), layer.text().as_bytes())
            };
            let files: Result<Vec<PolicyFile>, PolicyError> = self.layers.iter().map(read).collect();
            let flags = StartupFlags {
                workspace: PathBuf::from(WORKSPACE),
                profile: Some(self.profile),
                net: matches!(action, Asked::Url(_)).then_some(NetMode::Filtered),
                home: Some(ByteString::from(HOME)),
                ..StartupFlags::default()
            };
            Ok(effective(&flags, &files?, &|path| path.to_owned())?.policy)
        }
    }

    impl std::fmt::Display for Stack {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            writeln!(f, "profile {}", self.profile)?;
            self.layers.iter().try_for_each(|(role, layer)| writeln!(f, "-- {role:?}\n{}", layer.text()))
        }
    }

    impl Layer {
        fn text(&self) -> String {
            let mut text = String::new();
            for (pattern, rule) in &self.commands {
                let key = word(rule.decision);
                writeln!(text, "[[command]]\n{key} = [{pattern:?}]").unwrap();
                if rule.exact == Exactness::Exact {
                    text.push_str("exact = true\n");
                }
                if let Some(here) = rule.here {
                    writeln!(text, "within = {here:?}").unwrap();
                }
            }
            for rule in &self.paths {
                writeln!(text, "[[path]]\n{} = [{:?}]", word(rule.decision), rule.pattern).unwrap();
                if let Some(except) = rule.except {
                    writeln!(text, "except = [{except:?}]").unwrap();
                }
            }
            for (host, decision) in &self.hosts {
                writeln!(text, "[[host]]\n{} = [{host:?}]", word(*decision)).unwrap();
            }
            for (tool, decision) in &self.tools {
                writeln!(text, "[[tool]]\n{} = [{tool:?}]", word(*decision)).unwrap();
            }
            for name in &self.denied_variables {
                writeln!(text, "[[env]]\ndeny = [{name:?}]").unwrap();
            }
            for name in &self.opened_variables {
                writeln!(text, "[[env]]\nallow = [{name:?}]").unwrap();
            }
            text
        }
    }

    fn word(decision: Decision) -> &'static str {
        match decision {
            Decision::Allow => "allow",
            Decision::Ask => "ask",
            Decision::Deny => "deny",
        }
    }

    // What is made up.

    fn stacks() -> impl Strategy<Value = Stack> {
        let profile = prop::sample::select(vec![Profile::Guarded, Profile::Workspace]);
        let layers = (
            layers(PolicyFileRole::Operator),
            layers(PolicyFileRole::Workspace),
            layers(PolicyFileRole::Session),
        );
        (profile, layers).prop_map(|(profile, (operator, workspace, session))| Stack {
            profile,
            layers: [
                (PolicyFileRole::Operator, operator),
                (PolicyFileRole::Workspace, workspace),
                (PolicyFileRole::Session, session),
            ]
            .into(),
        })
    }

    /// A session file that would give more is an error; that of a workspace only asks for it.
    fn layers(role: PolicyFileRole) -> impl Strategy<Value = Layer> {
        let closing = vec![Decision::Ask, Decision::Deny];
        let all = vec![Decision::Allow, Decision::Ask, Decision::Deny];
        let decisions = if role == PolicyFileRole::Session { closing.clone() } else { all };
        let decision = || prop::sample::select(decisions.clone());
        let commands =
            prop::collection::btree_map(prop::sample::select(PATTERNS), command_rules(decision()), 0..4);
        let paths = prop::collection::vec(path_rules(decision()), 0..4);
        let hosts = prop::collection::btree_map(prop::sample::select(HOSTS), decision(), 0..4);
        let tools = prop::collection::btree_map(prop::sample::select(TOOLS), decision(), 0..4);
        let denied = prop::sample::subsequence(vec!["MY_*", "LD_PRELOAD", "*_VAR", "GIT_PAGER"], 0..3);
        let opened = prop::sample::subsequence(vec!["PERL5LIB", "PYTHONPATH"], 0..2);
        (commands, paths, hosts, tools, denied, opened).prop_map(
            move |(commands, paths, hosts, tools, denied_variables, opened)| Layer {
                commands,
                paths: distinct(paths),
                hosts,
                tools,
                opened_variables: opened
                    .into_iter()
                    .filter(|name| role == PolicyFileRole::Operator && !denied_variables.contains(name))
                    .collect(),
                denied_variables,
            },
        )
    }

    fn distinct(mut rules: Vec<PathRule>) -> Vec<PathRule> {
        let mut seen = Vec::new();
        rules.retain(|rule| {
            !seen.contains(&rule.pattern) && {
                seen.push(rule.pattern);
                true
            }
        });
        rules
    }

    fn command_rules(decision: impl Strategy<Value = Decision>) -> impl Strategy<Value = CommandRule> {
        let exact = prop::sample::select(vec![Exactness::Open, Exactness::Open, Exactness::Exact]);
        let here = prop::sample::select(vec![None, None, Some("sub"), Some("sub/deep")]);
        (decision, exact, here).prop_map(|(decision, exact, here)| CommandRule { decision, exact, here })
    }

    fn path_rules(decision: impl Strategy<Value = Decision>) -> impl Strategy<Value = PathRule> {
        let except = prop::option::of(prop::sample::select(GLOBS));
        (decision, prop::sample::select(GLOBS), except).prop_map(|(decision, pattern, except)| PathRule {
            decision,
            pattern,
            except,
        })
    }

    fn actions() -> impl Strategy<Value = Asked> {
        let words = prop::sample::select(vec!["a", "b", "--xx", "--yy"]);
        let program = prop::sample::select(vec!["make", "npm", "rm", "ls", "cargo"]);
        let cwd = prop::sample::select(vec!["", "sub", "sub/deep"]);
        let run = (program, prop::collection::vec(words, 0..4), cwd).prop_map(|(program, rest, cwd)| {
            Asked::Run { argv: std::iter::once(program).chain(rest).collect(), cwd }
        });
        prop_oneof![
            4 => run,
            1 => prop::sample::select(VARIABLES).prop_map(|variable| Asked::With { variable }),
            3 => prop::sample::select(PATHS).prop_map(Asked::Read),
            2 => prop::sample::select(URLS).prop_map(Asked::Url),
            2 => prop::sample::select(NAMES).prop_map(Asked::Tool),
        ]
    }

    const PATTERNS: &[&str] = &[
        "make",
        "make a",
        "make a b",
        "make --xx",
        "make a --xx",
        "make --xx --yy",
        "npm",
        "npm b",
        "npm b a",
        "npm --yy",
        "rm",
        "rm a",
        "ls",
        "ls a",
        "ls --xx",
        "cargo",
    ];
    const GLOBS: &[&str] = &[
        "*.rs",
        "*.md",
        "src",
        "src/**",
        "src/*",
        "./README.md",
        "docs/*",
        "docs/**",
        "**/*.rs",
        "secrets.txt",
        "server.key",
        "README.md",
        "docs/a/x.md",
        "SRC/main.rs",
        "d*",
    ];
    const PATHS: &[&str] = &[
        "src/main.rs",
        "src/deep/x.rs",
        "README.md",
        "docs/README.md",
        "docs/a/x.md",
        "secrets.txt",
        "docs/secrets.txt",
        "sub/.env",
        "server.key",
        "src/server.key",
        "x",
        "main.rs",
    ];
    const HOSTS: &[&str] = &["a.test", "*.a.test", "b.a.test", "*.b.a.test", "c.test"];
    const URLS: &[&str] = &[
        "https://a.test/",
        "https://b.a.test/",
        "https://c.b.a.test/",
        "https://c.test/",
        "https://d.test/",
    ];
    const TOOLS: &[&str] = &["exec", "read_file", "other", "mcp__*", "mcp__x__*", "mcp__x__y", "o*"];
    const NAMES: &[&str] = &["exec", "read_file", "other", "mcp__x__y", "mcp__z", "nobody"];
    const VARIABLES: &[&str] = &["MY_VAR", "OTHER", "LD_PRELOAD", "GIT_PAGER", "PYTHONPATH", "A_VAR"];
}
