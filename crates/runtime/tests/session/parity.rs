//! One answer: the judge, the file tools and a shell inside the fence agree about every file of generated workspaces under
//! generated rules. What the shell did is told by the host: by what it gave away and by what is in the files afterwards.
//!
//! Where they differ on purpose:
//! - a file with two names may not be written by the file tools, and the judge says so; a shell may, if both names are open;
//! - a path through a link to a directory is judged by both its names, and the kernel knows only the real one;
//! - a wildcard, and a hidden name, hold what exists at the start; what has no wildcard is held while absent, too.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use proptest::prelude::{Just, Strategy, any, prop_oneof};
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use ringfence_authz::env::ApproverPresence;
use ringfence_authz::{PathOperation, PathRule, PathRules, Policy, RuleSource, protected_names};
use ringfence_runtime::approvals::{ApprovalWait, OperatorDecision, OperatorReply};
use ringfence_runtime::{
    AgentSession, Approver, ApproverReply, CallEnd, CommandIo, DryRunSubject, EffectOutput, HostSetup,
    OutputTarget, Runtime, SessionSpec, StdinSource, consider, local_operator,
};
use ringfence_types::{
    Backend, ByteString, Call, Decision, ExecCall, FileCall, NetMode, PolicyLayer, Profile, ProtectionExtent,
    StandardInput,
};
use sha2::{Digest as _, Sha256};

const PUBLIC: &str = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n# TOKEN\n";
const PRIVATE: &str = "-----BEGIN PRIVATE KEY-----\nMIIB\n-----END PRIVATE KEY-----\n# TOKEN\n";

/// A workspace that can be thrown away, with everything a session needs.
struct World {
    dir: tempfile::TempDir,
    /// In memory: every call is on disk before it happens, and there are thousands.
    state: tempfile::TempDir,
    rules: PathRules,
}

impl World {
    fn new(rules: Vec<PathRule>) -> Self {
        let state = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let world = Self { dir: tempfile::tempdir().unwrap(), state, rules: PathRules::new(rules).unwrap() };
        for directory in ["w", "home", "config"] {
            fs::create_dir(world.beside(directory)).unwrap();
        }
        world
    }

    fn beside(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    fn path(&self, relative: &str) -> PathBuf {
        self.beside("w").join(relative)
    }

    fn setup(&self) -> HostSetup {
        HostSetup {
            state_dir: self.state.path().canonicalize().unwrap(),
            config_dir: self.beside("config"),
            home: Some(self.beside("home")),
            host_env: Vec::new(),
            attendance: ApproverPresence::Unattended,
            toolchains: Vec::new(),
            files: Vec::new(),
            sweeper: None,
            own: Vec::new(),
        }
    }

    fn asked(&self, backend: Option<Backend>) -> SessionSpec {
        let mut policy = Policy {
            backend,
            home: Some(ByteString::from(self.beside("home"))),
            ..Policy::new(Profile::Workspace)
        };
        policy.rules.paths = self.rules.clone();
        SessionSpec::new(self.beside("w"), policy)
    }

    fn judged(&self, subject: DryRunSubject) -> Decision {
        consider(&self.setup(), &self.asked(None), None, subject)
            .map_or(Decision::Deny, |judged| judged.decision())
    }

    fn judged_read(&self, path: &str) -> bool {
        self.judged(DryRunSubject::Read(ByteString::from(path))) == Decision::Allow
    }

    fn judged_write(&self, path: &str) -> bool {
        self.judged(DryRunSubject::Write(ByteString::from(path))) == Decision::Allow
    }

    /// Runs a script inside and returns what it said.
    fn inside(&self, backend: Option<Backend>, script: &str) -> Result<String, CallEnd> {
        let runtime = Runtime::open(self.setup()).unwrap();
        let mut session = runtime.session(self.asked(backend)).unwrap().unwrap();
        let argv = ["sh", "-c", script].map(ByteString::from).to_vec();
        let exec = ExecCall {
            argv,
            cwd: ByteString::from(self.beside("w")),
            env: Vec::new(),
            ceiling: None,
            net: NetMode::None,
            stdin: StandardInput::None,
        };
        let mut out = Vec::new();
        let settled = session.call(Call::Exec(exec), io(StdinSource::Empty, OutputTarget::Buffer(&mut out)));
        match settled.ended {
            CallEnd::Executed(_) => Ok(String::from_utf8_lossy(&out).into_owned()),
            other => Err(other),
        }
    }
}

/// The file tools in one session.
struct Tools<'r> {
    session: AgentSession<'r>,
    workspace: PathBuf,
    /// What became of each call.
    said: Vec<String>,
}

impl<'r> Tools<'r> {
    /// With a person who answers every question as given.
    fn new(world: &World, runtime: &'r Runtime, answer: Option<OperatorDecision>) -> Self {
        let mut session = runtime.session(world.asked(None)).unwrap().unwrap();
        if let Some(answer) = answer {
            session.set_approver(Person(answer));
        }
        Self { session, workspace: world.beside("w"), said: Vec::new() }
    }

    fn touch(&mut self, call: FileCall, content: &[u8]) -> CallEnd {
        let ended =
            self.session.call(Call::File(call), io(StdinSource::Bytes(content), OutputTarget::Discard)).ended;
        self.said.push(format!("{ended:?}"));
        ended
    }

    fn read(&mut self, path: &str) -> bool {
        let ended = self.touch(FileCall::Read { path: ByteString::from(path) }, b"");
        matches!(ended, CallEnd::Touched(EffectOutput::Read(_)))
    }

    /// Writes what is there already.
    fn write(&mut self, path: &str) -> bool {
        let content = fs::read(self.workspace.join(path)).unwrap_or_default();
        matches!(self.touch(write_call(path, &content), &content), CallEnd::Touched(EffectOutput::Written))
    }
}

#[derive(Debug)]
struct Person(OperatorDecision);

impl Approver for Person {
    fn is_there(&mut self) -> bool {
        true
    }

    fn ask(&mut self, _question: &ApprovalWait<'_>) -> ApproverReply {
        ApproverReply::Reply(OperatorReply { by: local_operator(), say: self.0.clone(), reason: None })
    }
}

fn io<'a>(stdin: StdinSource<'a>, stdout: OutputTarget<'a>) -> CommandIo<'a> {
    CommandIo {
        stdin,
        stdout,
        stderr: OutputTarget::Discard,
        interrupts: &[],
        timeout: None,
        output_bytes: u64::MAX,
    }
}

fn write_call(path: &str, content: &[u8]) -> FileCall {
    let sha256 = Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect();
    FileCall::Write { path: ByteString::from(path), sha256, bytes: content.len() as u64 }
}

fn quoted(path: &str) -> String {
    format!("'{}'", path.replace('\'', "'\\''"))
}

/// Tries to read every path, then to append to every path that exists, then to make every one that does not.
fn script(existing: &[String], free: &[String]) -> String {
    let mut script = String::new();
    for (number, path) in existing.iter().enumerate() {
        script += &format!("echo \"@{number}\"; cat -- {} 2>/dev/null; echo\n", quoted(&format!("./{path}")));
    }
    for path in existing {
        script += &format!("{{ printf '#w' >> {}; }} 2>/dev/null\n", quoted(&format!("./{path}")));
    }
    for path in free {
        let path = quoted(&format!("./{path}"));
        script +=
            &format!("mkdir -p \"$(dirname {path})\" 2>/dev/null; {{ echo made > {path}; }} 2>/dev/null\n");
    }
    script + "true\n"
}

/// Which paths were read, by what came out.
fn read_by(output: &str, count: usize) -> Vec<bool> {
    let mut read = vec![false; count];
    let mut current = None;
    for line in output.lines() {
        if let Some(number) = line.strip_prefix('@').and_then(|number| number.parse::<usize>().ok()) {
            current = Some(number);
        } else if line.contains("TOKEN")
            && let Some(slot) = current.and_then(|number| read.get_mut(number))
        {
            *slot = true;
        }
    }
    read
}

/// A generated workspace: files, links, hard links, and names at which there is nothing.
#[derive(Clone, Debug)]
struct Plan {
    files: Vec<(String, bool)>,
    links: Vec<(String, usize)>,
    hard_links: Vec<(String, usize)>,
    directory_links: Vec<(String, usize)>,
    free: Vec<String>,
    rules: Vec<PathRule>,
}

const DIRECTORIES: &[&str] =
    &["", "src/", "deploy/", "deploy/stage/", "data/", ".env.d/", "secret/", "a/b/", ".github/workflows/"];
const NAMES: &[&str] = &[
    ".env",
    ".env.local",
    ".env.example",
    "id_rsa",
    "server.key",
    "ca.pem",
    "secret.txt",
    "password_reset.rs",
    "password.json",
    "main.rs",
    "notes.md",
    "Makefile",
    "x.lock",
    "UPPER.TXT",
    "credentials.json",
    "secret",
    "CLAUDE.md",
    "it's",
    "wei\u{df} r\u{fc}be",
    ".vimrc",
    "-dash",
    "open.txt",
];
const PATTERNS: &[&str] = &[
    "deploy/",
    "deploy/**",
    "deploy/stage",
    "data/**",
    "src/main.rs",
    "*.lock",
    "**/*.md",
    "notes.md",
    "a/b/open.txt",
    ".env.local",
    "secret/",
    "open.txt",
    "data/open.txt",
    "*.TXT",
    "a/",
    "**/stage/**",
    "src/*",
    "deploy/new/prod.toml",
    "**",
    "src/",
    "late/file",
    "[mn]*",
    "free.cfg",
    "data/id_rsa",
    "a/*/secret.txt",
];

fn name() -> impl Strategy<Value = String> {
    const FEW: &[&str] = &["open.txt", "notes.md", "main.rs", ".env", "secret.txt", "x.lock"];
    let name = prop_oneof![proptest::sample::select(NAMES), proptest::sample::select(FEW)];
    (proptest::sample::select(DIRECTORIES), name).prop_map(|(directory, name)| format!("{directory}{name}"))
}

fn rule() -> impl Strategy<Value = PathRule> {
    let patterns = || proptest::sample::select(PATTERNS).prop_map(str::to_owned);
    (
        prop_oneof![3 => Just(Decision::Deny), 1 => Just(Decision::Ask), 2 => Just(Decision::Allow)],
        proptest::collection::vec(patterns(), 1..3),
        proptest::collection::vec(patterns(), 0..2),
        any::<bool>(),
        prop_oneof![3 => Just(PolicyLayer::Operator), 1 => Just(PolicyLayer::Workspace)],
    )
        .prop_map(|(decision, patterns, except, write, layer)| PathRule {
            decision,
            patterns,
            except,
            operation: if write { PathOperation::Write } else { PathOperation::All },
            group: 0,
            source: RuleSource { layer, origin: None, reason: None },
        })
}

/// A directory that is closed but for something in it.
fn tree_with_exceptions() -> impl Strategy<Value = PathRule> {
    const TREES: &[&str] = &["deploy/", "a/", "data/", "src/", "**", "deploy/stage/"];
    const EXCEPT: &[&str] =
        &["open.txt", "*.md", "deploy/stage/", "a/b/", "**/main.rs", "src/", "data/open.txt"];
    let except = proptest::collection::vec(proptest::sample::select(EXCEPT).prop_map(str::to_owned), 1..3);
    (proptest::sample::select(TREES), except, any::<bool>()).prop_map(|(tree, except, write)| PathRule {
        decision: Decision::Deny,
        patterns: vec![tree.to_owned()],
        except,
        operation: if write { PathOperation::Write } else { PathOperation::All },
        group: 0,
        source: RuleSource { layer: PolicyLayer::Operator, origin: None, reason: None },
    })
}

fn plan() -> impl Strategy<Value = Plan> {
    let free = || {
        (
            proptest::sample::select(DIRECTORIES),
            proptest::sample::select(&["fresh.txt", "free.cfg", "new/prod.toml", "new.lock", "open.txt"][..]),
        )
    };
    (
        proptest::collection::vec((name(), any::<bool>()), 6..24),
        proptest::collection::vec((name(), any::<usize>()), 0..4),
        proptest::collection::vec((name(), any::<usize>()), 0..3),
        proptest::collection::vec(
            (proptest::sample::select(&["way", "data", "deploy", "src/lib"][..]), any::<usize>()),
            0..2,
        ),
        proptest::collection::vec(free().prop_map(|(d, n)| format!("{d}{n}")), 2..8),
        proptest::collection::vec(prop_oneof![2 => rule(), 1 => tree_with_exceptions()], 0..5),
    )
        .prop_map(|(files, links, hard_links, directory_links, free, rules)| Plan {
            files,
            links,
            hard_links,
            directory_links: directory_links.into_iter().map(|(name, to)| (name.to_owned(), to)).collect(),
            free: free
                .into_iter()
                .chain(["late/file".to_owned(), "deploy/new/other.toml".to_owned()])
                .collect(),
            rules,
        })
}

/// What came to be: every path at which a file can be reached.
fn build(world: &World, plan: &Plan) -> Vec<String> {
    let mut made = BTreeSet::new();
    for (path, private) in &plan.files {
        let content = match path.ends_with(".pem") {
            true if *private => PRIVATE,
            true => PUBLIC,
            false => "TOKEN\n",
        };
        if fs::create_dir_all(world.path(path).parent().unwrap()).is_ok()
            && fs::write(world.path(path), content).is_ok()
        {
            made.insert(path.clone());
        }
    }
    let files: Vec<String> = made.iter().cloned().collect();
    let target = |to: usize| &files[to % files.len()];
    // A start is refused where a protected name is a link.
    let free = |(path, _): &&(String, usize)| protected_names::is_protected(Path::new(path)).is_none();
    for (path, to) in plan.links.iter().filter(free) {
        let place = world.path(path);
        let up = "../".repeat(path.matches('/').count());
        if fs::create_dir_all(place.parent().unwrap()).is_ok()
            && symlink(format!("{up}{}", target(*to)), place).is_ok()
        {
            made.insert(path.clone());
        }
    }
    for (path, to) in &plan.hard_links {
        let place = world.path(path);
        if fs::create_dir_all(place.parent().unwrap()).is_ok()
            && fs::hard_link(world.path(target(*to)), place).is_ok()
        {
            made.insert(path.clone());
        }
    }
    for (path, to) in &plan.directory_links {
        let Some((directory, name)) = target(*to).rsplit_once('/') else { continue };
        let up = "../".repeat(path.matches('/').count());
        let place = world.path(path);
        if fs::create_dir_all(place.parent().unwrap()).is_ok()
            && symlink(format!("{up}{directory}"), place).is_ok()
        {
            made.insert(format!("{path}/{name}"));
        }
    }
    made.into_iter().collect()
}

/// Everything that can be reached can be read and written by somebody outside: whatever does not work inside is the fence.
fn control(world: &World, existing: &[String]) {
    let output = Command::new("sh")
        .arg("-c")
        .arg(script(existing, &[]))
        .current_dir(world.beside("w"))
        .output()
        .unwrap();
    let read = read_by(&String::from_utf8_lossy(&output.stdout), existing.len());
    for (path, read) in existing.iter().zip(read) {
        let content = fs::read_to_string(world.path(path)).unwrap();
        assert!(read && content.contains("#w"), "outside, `{path}` can be read and written");
    }
    // Without the marks again, so that what is written inside can be told.
    for path in existing {
        let content = fs::read_to_string(world.path(path)).unwrap();
        fs::write(world.path(path), content.replace("#w", "")).unwrap();
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Answers {
    read: bool,
    write: bool,
}

fn is_linked(world: &World, path: &str) -> bool {
    fs::metadata(world.path(path)).is_ok_and(|metadata| metadata.nlink() > 1)
}

/// The path without links, from the workspace.
fn real(world: &World, path: &str) -> String {
    let real = fs::canonicalize(world.path(path)).unwrap();
    real.strip_prefix(world.beside("w")).unwrap().to_str().unwrap().to_owned()
}

fn is_link(world: &World, path: &str) -> bool {
    fs::symlink_metadata(world.path(path)).is_ok_and(|metadata| metadata.is_symlink())
}

fn agree(plan: &Plan, backend: Option<Backend>) {
    let world = World::new(plan.rules.clone());
    let existing = build(&world, plan);
    control(&world, &existing);
    let free: Vec<String> = plan.free.iter().filter(|path| is_free(&world, path)).cloned().collect();
    let judged: Vec<Answers> = existing
        .iter()
        .map(|path| Answers { read: world.judged_read(path), write: world.judged_write(path) })
        .collect();
    let may_make: BTreeMap<&String, bool> =
        free.iter().map(|path| (path, world.judged_write(path))).collect();
    let output = match world.inside(backend, &script(&existing, &free)) {
        Ok(output) => output,
        // bubblewrap cannot hold a link, and says so.
        Err(CallEnd::Refused(refusal))
            if backend == Some(Backend::Bubblewrap) && refusal.rule == "path.held-link" =>
        {
            return;
        }
        Err(other) => panic!("{other:?}\n{plan:#?}"),
    };
    let read = read_by(&output, existing.len());
    for ((path, judged), read) in existing.iter().zip(&judged).zip(read) {
        let written = fs::read_to_string(world.path(path)).unwrap().contains("#w");
        let shell = Answers { read, write: written };
        check_shell(&world, plan, path, *judged, shell);
    }
    for (path, may) in may_make {
        let decision = if may { Decision::Allow } else { Decision::Deny };
        check_made(&world, plan, path, decision);
    }
    let runtime = Runtime::open(world.setup()).unwrap();
    let mut tools = Tools::new(&world, &runtime, None);
    for path in &existing {
        let judged = Answers { read: world.judged_read(path), write: world.judged_write(path) };
        let tool = Answers { read: tools.read(path), write: tools.write(path) };
        let said = tools.said.split_off(tools.said.len() - 2);
        assert_eq!(judged, tool, "the judge and the file tools about `{path}`: {said:#?}\n{plan:#?}");
    }
}

fn check_shell(world: &World, plan: &Plan, path: &str, judged: Answers, shell: Answers) {
    let real = real(world, path);
    // Somebody else's name for the same file.
    let by_real_name = !is_link(world, path) && real != path;
    if by_real_name && !judged.read && shell.read {
        assert!(world.judged_read(&real), "`{path}` was read as `{real}`\n{plan:#?}");
    } else {
        assert_eq!(judged.read, shell.read, "reading `{path}`: the judge and a shell inside\n{plan:#?}");
    }
    if is_linked(world, path) {
        assert!(!judged.write, "two names: {path}");
    } else if (by_real_name || is_link(world, path)) && !judged.write && shell.write {
        assert!(world.judged_write(&real), "`{path}` was written as `{real}`\n{plan:#?}");
    } else {
        // Another path to the same file may have written it.
        let by_other_name =
            shell.write && plan.paths().any(|other| other != path && reaches(world, other, &real));
        assert!(
            judged.write == shell.write || by_other_name,
            "writing `{path}`: the judge says {}, a shell inside {}\n{plan:#?}",
            judged.write,
            shell.write
        );
    }
}

/// Nothing is there, and something could be.
fn is_free(world: &World, path: &str) -> bool {
    let above = Path::new(path).ancestors().skip(1).filter_map(|above| above.to_str());
    let in_the_way = |above: &str| fs::metadata(world.path(above)).is_ok_and(|metadata| !metadata.is_dir());
    fs::symlink_metadata(world.path(path)).is_err() && !above.into_iter().any(in_the_way)
}

fn reaches(world: &World, other: &str, real_path: &str) -> bool {
    fs::canonicalize(world.path(other)).is_ok_and(|path| path == world.path(real_path))
}

impl Plan {
    fn paths(&self) -> impl Iterator<Item = &str> {
        let files = self.files.iter().map(|(path, _)| path.as_str());
        files.chain(self.links.iter().chain(&self.hard_links).map(|(path, _)| path.as_str()))
    }
}

/// A new file: what may be made can be made, and what a rule names without a wildcard cannot.
fn check_made(world: &World, plan: &Plan, path: &str, decision: Decision) {
    let may = decision == Decision::Allow;
    let made = fs::read_to_string(world.path(path)).is_ok_and(|content| content == "made\n");
    let relative = Path::new(path);
    let held = world.rules.held_while_absent();
    let named = held.iter().any(|held| relative.starts_with(held))
        || protected_names::is_protected(relative).is_some();
    if !may && named {
        assert!(!made, "`{path}` was made\n{plan:#?}");
    }
    // An exception that does not exist in a held directory stays closed: nothing can be made there.
    let missing = |above: &&Path| !world.path(above.to_str().unwrap()).is_dir();
    let mut around: Vec<&Path> = relative.ancestors().skip(1).take_while(missing).collect();
    around.extend(relative.ancestors().skip(1).find(|above| !missing(above)));
    let held = |above: &&Path| {
        world.rules.holds_in(above) != ProtectionExtent::Nothing || through_link(world, above)
    };
    let in_held = around.iter().any(held);
    if may && !in_held {
        assert!(made, "`{path}` could not be made\n{plan:#?}");
    }
}

fn through_link(world: &World, path: &Path) -> bool {
    path.ancestors().filter_map(Path::to_str).any(|above| is_link(world, above))
}

fn generated(count: usize, seed: u8, backend: Option<Backend>) {
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    for _ in 0..count {
        agree(&plan().new_tree(&mut runner).unwrap().current(), backend);
    }
}

#[test]
fn the_judge_the_file_tools_and_a_shell_inside_agree() {
    generated(40, 7, None);
}

#[test]
fn they_agree_in_bubblewrap_as_well_or_it_does_not_start() {
    generated(15, 11, Some(Backend::Bubblewrap));
}

fn ask(patterns: &[&str], operation: PathOperation) -> PathRule {
    PathRule {
        decision: Decision::Ask,
        patterns: patterns.iter().map(|text| (*text).to_owned()).collect(),
        except: Vec::new(),
        operation,
        group: 0,
        source: RuleSource { layer: PolicyLayer::Operator, origin: None, reason: None },
    }
}

/// C-12: what is asked about can be opened by a person, for that one call, and nothing else with it.
#[test]
fn what_a_person_approves_the_file_tools_do() {
    let world =
        World::new(vec![ask(&["drafts/"], PathOperation::All), ask(&["deploy/"], PathOperation::Write)]);
    for path in ["my-secret", "drafts/a", "drafts/b", "deploy/x", ".env", "v1/secret.txt", "twin-secret"] {
        fs::create_dir_all(world.path(path).parent().unwrap()).unwrap();
        fs::write(world.path(path), "TOKEN\n").unwrap();
    }
    symlink("v1", world.path("current")).unwrap();
    fs::hard_link(world.path("twin-secret"), world.path("plain")).unwrap();
    let runtime = Runtime::open(world.setup()).unwrap();
    let mut approved = Tools::new(&world, &runtime, Some(OperatorDecision::Once));
    let mut refused = Tools::new(&world, &runtime, Some(OperatorDecision::Deny));
    for path in ["my-secret", "drafts/a", "v1/secret.txt", "current/secret.txt", "twin-secret"] {
        assert!(approved.read(path), "approved: {path}");
        assert!(!refused.read(path), "refused: {path}");
    }
    for path in ["deploy/x", "deploy/new", "drafts/new"] {
        assert!(!refused.write(path), "refused: {path}");
        assert!(approved.write(path), "approved: {path}");
    }
    for path in [".env", "plain"] {
        assert!(!approved.read(path), "nobody is asked about `{path}`");
    }
    assert!(
        !world.inside(None, "cat my-secret drafts/a").unwrap().contains("TOKEN"),
        "inside it stays hidden"
    );
    assert!(world.judged_read("deploy/x") && !world.judged_write("deploy/x"));
}
