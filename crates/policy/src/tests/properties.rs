//! For random stacks: a layer without authority never gives more, and a second, naive reading of all layers agrees with the
//! merged policy.

use proptest::prelude::*;
use ringfence_authz::env::{self, ApproverPresence};
use ringfence_authz::hosts::judge_url;
use ringfence_authz::tools::judge_tool_of;
use ringfence_authz::{Action, HostFacts, PathKind, PathRules, PolicyRules, judge, roots_held_to};
use ringfence_types::{Call, Decision, ExecCall, FetchCall, FileCall, Root, StandardInput, ToolCall};

use super::super::limits::{LimitAmount, LimitKey};
use super::*;

const COMMANDS: [&str; 7] = ["ls", "cat x", "git status", "git push", "npm test", "make all", "rm x"];
const ARGVS: [&[&str]; 12] = [
    &["ls", "-l"],
    &["cat", "x"],
    &["git", "status"],
    &["git", "-C", "sub", "push", "-f"],
    &["npm", "test", "a"],
    &["make", "all"],
    &["make"],
    &["rm", "x"],
    &["go", "build", "./x"],
    &["go", "install"],
    &["sh", "-c", "ls; make all"],
    &["env", "npm", "test"],
];
const PATHS: [&str; 6] = ["*.log", "a/**", "a/x.log", "./c", "*secret*", ".env"];
const FILES: [&str; 9] = ["a/x.log", "a/y", "b.log", "c", "d/c", "my-secret.txt", ".env", "d/.env", "z"];
const TOOLS: [&str; 4] = ["exec", "mcp__*", "mcp__x", "search"];
const CALLED: [&str; 5] = ["exec", "mcp__x", "mcp__y", "search", "zzz"];
const HOSTS: [&str; 3] = ["a.example", "*.example", "b.example:443"];
const URLS: [&str; 5] = [
    "https://a.example/",
    "https://b.example/",
    "http://b.example/",
    "https://c.d.example/x",
    "https://z.test/",
];
const VARIABLES: [&str; 3] = ["FOO", "CI_*", "*_MODE"];
const NAMES: [&str; 4] = ["FOO", "CI_MODE", "CI_X", "BAR"];
const ROOTS: [&str; 4] = ["sub", "sub/deep", "/srv/data", "/srv/data/in"];
const PLACES: [&str; 6] = [
    "/home/ann/web/x",
    "/home/ann/web/sub/x",
    "/home/ann/web/sub/deep/x",
    "/srv/data/x",
    "/srv/data/in/x",
    "/srv/x",
];
const SIZES: [&str; 3] = ["1g", "2g", "8g"];

/// What one part of one file says.
#[derive(Clone, Debug, Default)]
struct Part {
    profile: Option<Profile>,
    minimum: Option<Profile>,
    commands: Option<CommandMode>,
    approval: Option<ApprovalMode>,
    access: Option<Access>,
    net: Option<NetMode>,
    backend: Option<Backend>,
    memory: Option<usize>,
    processes: Option<u64>,
    floor: Option<Control>,
    roots: Vec<Option<Access>>,
    command_rules: Vec<Option<Decision>>,
    go: Option<bool>,
    path_rules: Vec<Option<(Decision, bool)>>,
    tool_rules: Vec<Option<Decision>>,
    host_rules: Vec<Option<Decision>>,
    /// Denied or passed.
    variable_rules: Vec<Option<bool>>,
}

/// Where a part stands.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Operator,
    Workspace,
    Session,
    Agent,
    /// An agent's part of a workspace file.
    AgentOfWorkspace,
}

impl Kind {
    fn opens(self) -> bool {
        matches!(self, Self::Operator | Self::Workspace)
    }
}

fn rarely<T: std::fmt::Debug + Clone + 'static>(choices: &'static [T]) -> impl Strategy<Value = Option<T>> {
    prop_oneof![4 => Just(None), 1 => proptest::sample::select(choices).prop_map(Some)]
}

fn decisions(count: usize) -> impl Strategy<Value = Vec<Option<Decision>>> {
    proptest::collection::vec(rarely(&[Decision::Allow, Decision::Ask, Decision::Deny]), count)
}

fn part() -> impl Strategy<Value = Part> {
    const PROFILES: &[Profile] =
        &[Profile::Workspace, Profile::Guarded, Profile::Strict, Profile::AirGapped, Profile::Review];
    let words = (
        rarely(PROFILES),
        rarely(&[Profile::Workspace, Profile::Guarded]),
        rarely(CommandMode::ALL),
        rarely(ApprovalMode::ALL),
        rarely(&[Access::Read, Access::Write]),
        rarely(&[NetMode::None, NetMode::Filtered]),
        rarely(&[Backend::Native, Backend::Bubblewrap, Backend::Landlock, Backend::Container]),
    );
    let numbers = (
        rarely(&[0_usize, 1, 2]),
        rarely(&[5_u64, 40, 100]),
        rarely(Control::ALL),
        proptest::collection::vec(rarely(Access::ALL), ROOTS.len()),
    );
    let rules = (
        decisions(COMMANDS.len()),
        rarely(&[true, false]),
        proptest::collection::vec(
            (rarely(&[Decision::Allow, Decision::Ask, Decision::Deny]), any::<bool>())
                .prop_map(|(decision, write)| decision.map(|decision| (decision, write))),
            PATHS.len(),
        ),
        decisions(TOOLS.len()),
        decisions(HOSTS.len()),
        proptest::collection::vec(rarely(&[true, false]), VARIABLES.len()),
    );
    (words, numbers, rules).prop_map(|(words, numbers, rules)| {
        let (profile, minimum, commands, approval, access, net, backend) = words;
        let (memory, processes, floor, roots) = numbers;
        let (command_rules, go, path_rules, tool_rules, host_rules, variable_rules) = rules;
        Part {
            profile,
            minimum,
            commands,
            approval,
            access,
            net,
            backend,
            memory,
            processes,
            floor,
            roots,
            command_rules,
            go,
            path_rules,
            tool_rules,
            host_rules,
            variable_rules,
        }
    })
}

/// A part that mostly narrows, so that most stacks have no error.
fn narrow() -> impl Strategy<Value = Part> {
    let words = (
        rarely(&[Profile::Strict, Profile::Review]),
        rarely(&[ApprovalMode::Never]),
        rarely(&[Access::Read]),
    );
    (part(), words).prop_map(|(part, (profile, approval, access))| Part {
        profile,
        commands: part.commands.filter(|mode| *mode == CommandMode::Listed),
        approval,
        access,
        net: part.net.filter(|net| *net == NetMode::None),
        backend: part.backend.filter(|backend| matches!(backend, Backend::Native | Backend::Container)),
        memory: part.memory.filter(|size| *size == 0),
        processes: part.processes.filter(|count| *count == 5),
        roots: part.roots.into_iter().map(|access| access.filter(|access| *access == Access::None)).collect(),
        ..part
    })
}

fn below() -> impl Strategy<Value = (Kind, Part)> {
    let only_narrows = proptest::sample::select(&[Kind::Session, Kind::Agent][..]);
    prop_oneof![
        2 => part().prop_map(|part| (Kind::Workspace, part)),
        3 => (only_narrows.clone(), narrow()),
        1 => (only_narrows, part()),
        2 => part().prop_map(|part| (Kind::AgentOfWorkspace, part)),
    ]
}

impl Part {
    fn text(&self, kind: Kind) -> String {
        let for_agent = matches!(kind, Kind::Agent | Kind::AgentOfWorkspace);
        let prefix = if for_agent { "agents.a." } else { "" };
        let mut text = String::new();
        let mut line = |key: &str, value: Option<String>| {
            if let Some(value) = value {
                text.push_str(&format!("{prefix}{key} = {value}\n"));
            }
        };
        let quoted = |word: &str| format!("\"{word}\"");
        if !for_agent {
            line("profile", self.profile.map(|word| quoted(word.word())));
            line("minimum_profile", self.minimum.map(|word| quoted(word.word())));
        }
        line("commands", self.commands.map(|word| quoted(word.word())));
        line("approval", self.approval.map(|word| quoted(word.word())));
        line("access", self.access.map(|word| quoted(word.word())));
        line("net", self.net.map(|word| quoted(word.word())));
        line("backend", self.backend.map(|word| quoted(word.word())));
        line("limits.memory", self.memory.map(|size| quoted(SIZES[size])));
        line("limits.processes", self.processes.map(|count| count.to_string()));
        line("floor", self.floor.map(|word| quoted(word.word())));
        text + &self.rules(kind, prefix)
    }

    fn rules(&self, kind: Kind, prefix: &str) -> String {
        let mut text = String::new();
        let word = |decision: Decision| ["allow", "ask", "deny"][decision as usize];
        let mut entry = |table: &str, decision: Option<Decision>, pattern: &str, more: &str| {
            if let Some(decision) = decision.filter(|decision| kind.opens() || *decision != Decision::Allow) {
                text.push_str(&format!("[[{prefix}{table}]]\n{} = \"{pattern}\"\n{more}", word(decision)));
            }
        };
        for (pattern, decision) in COMMANDS.iter().zip(&self.command_rules) {
            entry("command", *decision, pattern, "");
        }
        for (pattern, rule) in PATHS.iter().zip(&self.path_rules) {
            let write = matches!(rule, Some((_, true))) && matches!(*pattern, "a/**" | "./c" | "a/x.log");
            entry(
                "path",
                rule.map(|rule| rule.0),
                pattern,
                if write { "operation = \"write\"\n" } else { "" },
            );
        }
        for (pattern, decision) in TOOLS.iter().zip(&self.tool_rules) {
            entry("tool", *decision, pattern, "");
        }
        for (pattern, decision) in HOSTS.iter().zip(&self.host_rules) {
            entry("host", *decision, pattern, "");
        }
        for (pattern, denied) in VARIABLES.iter().zip(&self.variable_rules) {
            match denied {
                Some(true) => text.push_str(&format!("[[{prefix}env]]\ndeny = \"{pattern}\"\n")),
                Some(false) if kind.opens() => {
                    text.push_str(&format!("[[{prefix}env]]\ninherit = \"{pattern}\"\n"))
                }
                _ => {}
            }
        }
        for (path, access) in ROOTS.iter().zip(&self.roots) {
            if let Some(access) = access {
                text.push_str(&format!("[[{prefix}root]]\npath = \"{path}\"\naccess = \"{access}\"\n"));
            }
        }
        match self.go.filter(|_| kind.opens()) {
            Some(true) => text.push_str("[[command]]\nprogram = \"go\"\nallow_subcommands = \"build\"\n"),
            Some(false) => text.push_str("[[command]]\nprogram = \"go\"\ndeny_subcommands = \"install\"\n"),
            None => {}
        }
        text
    }

    /// `None`: it contradicts itself.
    fn file(&self, kind: Kind) -> Option<PolicyFile> {
        let text = self.text(kind);
        match kind {
            Kind::Operator | Kind::Agent => operator(&text).ok(),
            Kind::Workspace | Kind::AgentOfWorkspace => workspace(&text).ok(),
            Kind::Session => session(&text).ok(),
        }
    }
}

fn for_agent() -> StartupFlags {
    StartupFlags { agent: Some("a".to_owned()), ..flags() }
}

/// A machine with these programs and no links.
struct Installed;

const PROGRAMS: [&str; 9] = ["ls", "cat", "git", "npm", "make", "rm", "go", "sh", "env"];

impl HostFacts for Installed {
    fn program(&self, name: &[u8], _cwd: &Path) -> Option<PathBuf> {
        let known = PROGRAMS.iter().find(|known| known.as_bytes() == name)?;
        Some(Path::new("/usr/bin").join(known))
    }

    fn real_path(&self, path: &Path) -> PathBuf {
        path.to_owned()
    }

    fn kind(&self, _path: &Path) -> PathKind {
        PathKind::File
    }

    fn git_programs(&self, _dir: &Path) -> Vec<String> {
        Vec::new()
    }

    fn git_tracked(&self, _dir: &Path) -> Option<Vec<PathBuf>> {
        Some(Vec::new())
    }
}

/// Everything that can be asked of a policy, as numbers: the higher, the stricter.
fn strictness(effective: &EffectivePolicy) -> Vec<(String, u64)> {
    let policy = &effective.policy;
    let mut seen: Vec<(String, u64)> = Vec::new();
    let mut see = |what: String, strict: u64| seen.push((what, strict));
    for argv in ARGVS {
        see(format!("{argv:?}"), decided(effective, exec(argv)) as u64);
    }
    for file in FILES {
        see(
            format!("read {file}"),
            decided(effective, Call::File(FileCall::Read { path: ByteString::from(file) })) as u64,
        );
        let write = FileCall::Write { path: ByteString::from(file), sha256: String::new(), bytes: 0 };
        see(format!("write {file}"), decided(effective, Call::File(write)) as u64);
    }
    for place in PLACES {
        see(place.to_owned(), 2 - access_at(effective, place) as u64);
    }
    for tool in CALLED {
        see(tool.to_owned(), judge_tool_of(policy, Some("a"), tool).decision as u64);
    }
    for url in URLS {
        see(url.to_owned(), judge_url(policy, url.as_bytes(), None).decision as u64);
    }
    for name in NAMES {
        see(format!("set {name}"), u64::from(!is_settable(policy, name)));
        see(format!("pass {name}"), u64::from(!is_passed(policy, name)));
    }
    for limit in LimitKey::ALL {
        let amount = if let LimitAmount::Of(amount) = limit.of(&policy.limits) { amount } else { u64::MAX };
        see(limit.key().to_owned(), u64::MAX - amount);
    }
    for control in Control::ALL {
        see(control.to_string(), u64::from(policy.floor.contains(control)));
    }
    see("net".to_owned(), 2 - policy.net as u64);
    see("approval".to_owned(), policy.approval as u64);
    see("commands".to_owned(), policy.commands as u64);
    let backend = match policy.backend {
        Some(Backend::Container) => 2,
        Some(Backend::Native) => 1,
        _ => 0,
    };
    see("backend".to_owned(), backend);
    seen
}

fn exec(argv: &[&str]) -> Call {
    let argv = argv.iter().map(|arg| ByteString::from(*arg)).collect();
    Call::Exec(ExecCall {
        argv,
        cwd: ByteString::from(WORKSPACE),
        env: Vec::new(),
        ceiling: None,
        net: NetMode::None,
        stdin: StandardInput::None,
    })
}

fn decided(effective: &EffectivePolicy, call: Call) -> Decision {
    // Whether a network mode can be had at all is not what is asked here.
    let policy = Policy { net: NetMode::None, ..effective.policy.clone() };
    let mut roots = vec![Root { path: ByteString::from(WORKSPACE), access: policy.access }];
    roots.extend(effective.roots.clone());
    judge(&policy, &Action::new(call, roots), &Installed)
        .map_or(Decision::Deny, |judgement| judgement.decision())
}

fn access_at(effective: &EffectivePolicy, place: &str) -> Access {
    let own = Root { path: ByteString::from(WORKSPACE), access: effective.policy.access };
    let all = effective.roots.iter().chain([&own]);
    let around = all.filter(|root| Path::new(place).starts_with(root.path.as_path()));
    around.max_by_key(|root| root.path.as_slice().len()).map_or(Access::None, |root| root.access)
}

fn is_settable(policy: &Policy, name: &str) -> bool {
    env::check_addition(&ByteString::from(name), &ByteString::from("1"), &policy.rules.env).is_ok()
}

fn is_passed(policy: &Policy, name: &str) -> bool {
    let host = [(ByteString::from(name), ByteString::from("1"))];
    env::base(&host, ApproverPresence::Terminal, &policy.rules.env)
        .iter()
        .any(|(passed, _)| *passed == ByteString::from(name))
}

fn all_roots(effective: &EffectivePolicy) -> Vec<Root> {
    let own = Root { path: ByteString::from(WORKSPACE), access: effective.policy.access };
    [&[own], effective.roots.as_slice()].concat()
}

/// Of whichever file.
fn any_part() -> impl Strategy<Value = (Kind, Part)> {
    prop_oneof![part().prop_map(|part| (Kind::Operator, part)).boxed(), below().boxed()]
}

/// What a session may do by everything that it is judged by, as numbers: the higher, the stricter.
fn judged(effective: &EffectivePolicy) -> Vec<(String, u64)> {
    let mut seen: Vec<(String, u64)> = Vec::new();
    let mut see = |what: String, strict: u64| seen.push((what, strict));
    for argv in ARGVS {
        see(format!("{argv:?}"), decided(effective, exec(argv)) as u64);
    }
    for name in NAMES {
        let Call::Exec(plain) = exec(ARGVS[0]) else { continue };
        let env = vec![(ByteString::from(name), ByteString::from("1"))];
        see(format!("set {name}"), decided(effective, Call::Exec(ExecCall { env, ..plain })) as u64);
    }
    for file in FILES {
        let read = FileCall::Read { path: ByteString::from(file) };
        see(format!("read {file}"), decided(effective, Call::File(read)) as u64);
        let write = FileCall::Write { path: ByteString::from(file), sha256: String::new(), bytes: 0 };
        see(format!("write {file}"), decided(effective, Call::File(write)) as u64);
    }
    for place in PLACES {
        see(place.to_owned(), 2 - access_at(effective, place) as u64);
    }
    for tool in CALLED {
        let (name, sha256, input) = (tool.to_owned(), String::new(), String::new());
        see(
            tool.to_owned(),
            decided(effective, Call::Tool(ToolCall { name, sha256, bytes: 0, input })) as u64,
        );
    }
    for url in URLS {
        let action = Action::new(
            Call::Fetch(FetchCall::new("GET".to_owned(), url.to_owned())),
            // An action without any root is refused, and a session has its workspace at least.
            all_roots(effective),
        );
        let judgement = judge(&effective.policy, &action, &Installed);
        let decision = judgement.map_or(Decision::Deny, |judgement| judgement.decision());
        see(url.to_owned(), decision as u64);
    }
    for limit in LimitKey::ALL {
        let amount =
            if let LimitAmount::Of(amount) = limit.of(&effective.policy.limits) { amount } else { u64::MAX };
        see(limit.key().to_owned(), u64::MAX - amount);
    }
    for control in Control::ALL {
        see(control.to_string(), u64::from(effective.policy.floor.contains(control)));
    }
    see("net".to_owned(), 2 - effective.policy.net as u64);
    seen
}

proptest! {
    /// A policy that is read again while a session runs gives it nothing that it did not have, and nothing that the new one does
    /// not give.
    #[test]
    fn what_is_held_to_its_beginning_never_gives_more(
        before in proptest::collection::vec(any_part(), 0..3),
        after in proptest::collection::vec(any_part(), 0..3),
    ) {
        let read = |parts: &[(Kind, Part)]| {
            let files: Vec<PolicyFile> = parts.iter().filter_map(|(kind, part)| part.file(*kind)).collect();
            merged(&for_agent(), &files).ok()
        };
        let (Some(began), Some(now)) = (read(&before), read(&after)) else { return Ok(()) };
        let held = EffectivePolicy {
            policy: now.policy.clone().held_to(&began.policy),
            roots: roots_held_to(&all_roots(&now), &all_roots(&began)).split_off(1),
            ..now.clone()
        };
        let either = judged(&began).into_iter().zip(judged(&now));
        for (((what, began), (_, now)), (_, held)) in either.zip(judged(&held)) {
            prop_assert!(held >= began && held >= now, "{}: {} and {} became {}", what, began, now, held);
        }
    }

    /// C-10: whatever a part without authority says, nothing more is allowed. An error gives nothing at all.
    #[test]
    fn c10_a_layer_without_authority_never_gives_more(
        operators in proptest::collection::vec(part(), 0..3),
        others in proptest::collection::vec(below().prop_filter("one file of the workspace", |(kind, _)| *kind != Kind::Workspace), 0..3),
        added in below(),
    ) {
        let mut files: Vec<PolicyFile> = operators.iter().filter_map(|part| part.file(Kind::Operator)).collect();
        files.extend(others.iter().filter_map(|(kind, part)| part.file(*kind)));
        let Ok(before) = merged(&for_agent(), &files) else { return Ok(()) };
        let Some(added) = added.1.file(added.0) else { return Ok(()) };
        files.push(added);
        let Ok(after) = merged(&for_agent(), &files) else { return Ok(()) };
        for ((what, before), (_, after)) in strictness(&before).into_iter().zip(strictness(&after)) {
            prop_assert!(after >= before, "{}: {} became {}", what, before, after);
        }
    }

    /// The same for a file that is there already: to take its approval away never gives more.
    #[test]
    fn c10_an_approval_is_all_that_a_workspace_file_gains(operator_part in part(), file in part()) {
        let (Some(operator_file), Some(file)) = (operator_part.file(Kind::Operator), file.file(Kind::Workspace)) else { return Ok(()) };
        let approving = operator(&format!("[workspaces.\"{WORKSPACE}\"]\napproved_digests = \"{}\"", file.seal())).unwrap();
        let alone = merged(&for_agent(), std::slice::from_ref(&operator_file));
        let unapproved = merged(&for_agent(), &[operator_file.clone(), file.clone()]);
        let approved = merged(&for_agent(), &[operator_file, approving, file]);
        let (Ok(alone), Ok(unapproved)) = (alone, unapproved) else { return Ok(()) };
        let Ok(approved) = approved else { return Ok(()) };
        prop_assert!(approved.requests.is_empty());
        for (((what, alone), (_, unapproved)), (_, approved)) in
            strictness(&alone).into_iter().zip(strictness(&unapproved)).zip(strictness(&approved))
        {
            prop_assert!(unapproved >= alone, "{what}");
            prop_assert!(approved <= unapproved || approved >= alone, "{what}: {alone} {unapproved} {approved}");
        }
    }

    #[test]
    fn a_naive_reading_agrees(
        operator in part(),
        workspace in part(),
        session in narrow(),
        agent in narrow(),
    ) {
        let parts = [(Kind::Operator, operator), (Kind::Workspace, workspace), (Kind::Session, session), (Kind::Agent, agent)];
        let parts: Vec<(Kind, Part, PolicyFile)> =
            parts.into_iter().filter_map(|(kind, part)| Some((kind, part.clone(), part.file(kind)?))).collect();
        let files: Vec<PolicyFile> = parts.iter().map(|(_, _, file)| file.clone()).collect();
        let Ok(effective) = merged(&for_agent(), &files) else { return Ok(()) };
        let naive = Naive { parts: parts.iter().map(|(kind, part, _)| (*kind, part)).collect() };
        naive.compare(&effective)?;
    }
}

/// All parts, asked one after the other.
struct Naive<'a> {
    parts: Vec<(Kind, &'a Part)>,
}

impl Naive<'_> {
    fn compare(&self, effective: &EffectivePolicy) -> Result<(), TestCaseError> {
        let policy = &effective.policy;
        for file in FILES {
            let merged = policy.rules.paths.reading(Path::new(file)).decision();
            prop_assert_eq!(self.reading(file), merged, "{}", file);
        }
        for tool in CALLED {
            let merged = judge_tool_of(policy, Some("a"), tool).decision;
            prop_assert_eq!(self.tool(policy, tool), merged, "{}", tool);
        }
        for (at, url) in URLS.iter().enumerate() {
            let merged = judge_url(policy, url.as_bytes(), None).decision;
            prop_assert_eq!(self.host(policy, at), merged, "{}", url);
        }
        for name in NAMES {
            let all = [Kind::Operator, Kind::Workspace, Kind::Session, Kind::Agent];
            let denied = self.variables(&all, name).contains(&true);
            let passed = self.variables(&[Kind::Operator], name).contains(&false);
            prop_assert_eq!(!denied, is_settable(policy, name), "{}", name);
            prop_assert_eq!(passed && !denied, is_passed(policy, name), "{}", name);
        }
        let (memory, processes) = self.limits();
        prop_assert_eq!((policy.limits.memory_bytes, policy.limits.processes), (memory, processes));
        Ok(())
    }

    fn of(&self, kind: Kind) -> impl Iterator<Item = &Part> {
        self.parts.iter().filter(move |(own, _)| *own == kind).map(|(_, part)| *part)
    }

    /// In operator and workspace files the first rule counts, elsewhere every one; of all layers the strictest.
    fn reading(&self, file: &str) -> Decision {
        let speaks = |part: &Part| -> Vec<Decision> {
            let rules = PATHS.iter().zip(&part.path_rules);
            let writes = |pattern: &str, write: bool| write && matches!(pattern, "a/**" | "./c" | "a/x.log");
            rules
                .filter_map(|(pattern, rule)| rule.map(|(decision, write)| (*pattern, decision, write)))
                .filter(|(pattern, _, write)| !writes(pattern, *write) && covers(pattern, file))
                .map(|(_, decision, _)| decision)
                .collect()
        };
        let built_in = PathRules::default().reading(Path::new(file)).decision();
        let operator =
            self.of(Kind::Operator).find_map(|part| speaks(part).first().copied()).unwrap_or(built_in);
        let workspace = self
            .of(Kind::Workspace)
            .find_map(|part| speaks(part).first().copied())
            .unwrap_or(Decision::Allow);
        let narrowing = self
            .of(Kind::Session)
            .chain(self.of(Kind::Agent))
            .flat_map(speaks)
            .max()
            .unwrap_or(Decision::Allow);
        operator.max(workspace).max(narrowing)
    }

    fn rules<'p>(part: &'p Part, matches: impl Fn(&str) -> bool + 'p) -> impl Iterator<Item = Decision> + 'p {
        TOOLS
            .iter()
            .zip(&part.tool_rules)
            .filter(move |(pattern, _)| matches(pattern))
            .filter_map(|(_, decision)| *decision)
    }

    fn tool(&self, policy: &Policy, tool: &str) -> Decision {
        let matches = |pattern: &str| {
            pattern == tool || pattern.strip_suffix('*').is_some_and(|start| tool.starts_with(start))
        };
        let bare = Policy { rules: PolicyRules::default(), approval: ApprovalMode::Ask, ..policy.clone() };
        let given = judge_tool_of(&bare, None, tool);
        let known = !given.rule.starts_with("tools.");
        let by = |kind: Kind| self.of(kind).flat_map(|part| Self::rules(part, matches)).collect::<Vec<_>>();
        let everybody = [by(Kind::Operator), by(Kind::Workspace), by(Kind::Session)].concat();
        let opened = known || by(Kind::Operator).iter().any(|decision| *decision != Decision::Deny);
        let closing = everybody.into_iter().filter(|decision| *decision != Decision::Allow).max();
        let own = by(Kind::Agent)
            .into_iter()
            .filter(|decision| *decision != Decision::Allow)
            .max()
            .unwrap_or(Decision::Allow);
        let decision = match closing {
            _ if known && given.decision == Decision::Deny => Decision::Deny,
            Some(Decision::Deny) => Decision::Deny,
            _ if !opened => Decision::Deny,
            Some(closing) => closing,
            None => Decision::Allow,
        };
        without_questions(policy, decision.max(own))
    }

    fn host(&self, policy: &Policy, url: usize) -> Decision {
        const COVERED: [[bool; 5]; 3] = [
            [true, false, false, false, false],
            [true, true, true, true, false],
            [false, true, false, false, false],
        ];
        let by = |kind: Kind| -> Vec<Decision> {
            let rules = self.of(kind).flat_map(|part| part.host_rules.iter().zip(&COVERED));
            rules.filter(|(_, covered)| covered[url]).filter_map(|(decision, _)| *decision).collect()
        };
        let all: Vec<Decision> =
            [Kind::Operator, Kind::Workspace, Kind::Session, Kind::Agent].into_iter().flat_map(by).collect();
        let operator = by(Kind::Operator);
        let decision = if policy.net == NetMode::None || all.contains(&Decision::Deny) {
            Decision::Deny
        } else if operator.contains(&Decision::Allow) {
            if all.contains(&Decision::Ask) { Decision::Ask } else { Decision::Allow }
        } else if operator.contains(&Decision::Ask) {
            Decision::Ask
        } else {
            Decision::Deny
        };
        without_questions(policy, decision)
    }

    /// What is said about a name: denied or passed.
    fn variables(&self, kinds: &[Kind], name: &str) -> Vec<bool> {
        let parts = self.parts.iter().filter(|(kind, _)| kinds.contains(kind));
        let rules = parts.flat_map(|(_, part)| VARIABLES.iter().zip(&part.variable_rules));
        rules.filter(|(pattern, _)| names(pattern, name)).filter_map(|(_, rule)| *rule).collect()
    }

    /// The operator's number or the default, then never more.
    fn limits(&self) -> (u64, u64) {
        let own = self.of(Kind::Operator).find_map(|part| part.profile).unwrap_or(Profile::Workspace);
        let minimum =
            self.parts.iter().filter(|(kind, _)| *kind != Kind::Agent).filter_map(|(_, part)| part.minimum);
        let chosen = minimum.chain([own]).max_by_key(|profile| profile.strictness()).unwrap();
        let size = |at: usize| SIZES[at].parse::<ringfence_types::units::ByteSize>().unwrap().0;
        let start = Policy::new(chosen).limits;
        let mut memory =
            self.of(Kind::Operator).find_map(|part| part.memory).map_or(start.memory_bytes, size);
        let mut processes =
            self.of(Kind::Operator).find_map(|part| part.processes).unwrap_or(start.processes);
        let mut profiles = vec![chosen];
        for (_, part) in self.parts.iter().filter(|(kind, _)| matches!(kind, Kind::Workspace | Kind::Session))
        {
            profiles.extend(
                part.profile.filter(|profile| profile.strictness() > profiles.last().unwrap().strictness()),
            );
        }
        for profile in
            profiles.into_iter().filter(|profile| matches!(profile, Profile::Strict | Profile::AirGapped))
        {
            memory = memory.min(Policy::new(profile).limits.memory_bytes);
            processes = processes.min(Policy::new(profile).limits.processes);
        }
        for (_, part) in self.parts.iter().filter(|(kind, _)| *kind != Kind::Operator) {
            memory = part.memory.map_or(memory, |at| memory.min(size(at)));
            processes = part.processes.map_or(processes, |count| processes.min(count));
        }
        (memory, processes)
    }
}

fn without_questions(policy: &Policy, decision: Decision) -> Decision {
    match (policy.approval, decision) {
        (ApprovalMode::Never, Decision::Ask) => Decision::Deny,
        _ => decision,
    }
}

fn covers(pattern: &str, file: &str) -> bool {
    let name = file.rsplit('/').next().unwrap();
    match pattern {
        "*.log" => name.ends_with(".log"),
        "a/**" => file.starts_with("a/"),
        "./c" => file == "c",
        "*secret*" => name.contains("secret"),
        ".env" => name == ".env",
        exact => exact == file,
    }
}

fn names(pattern: &str, name: &str) -> bool {
    match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        (Some(end), _) => name.ends_with(end),
        (_, Some(start)) => name.starts_with(start),
        _ => pattern == name,
    }
}
