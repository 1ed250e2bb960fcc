//! The corpus of the policy engine through the real binary, in a real workspace with real links: what `ringfence check`
//! answers is what the judge says on the table that the corpus is written for.

#[path = "../../../authz/tests/machine/mod.rs"]
mod machine;

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use ringfence_authz::{Action, HostFacts as _, Policy, judge};
use ringfence_policy::test_cases::{self, CaseSubject, ExpectedDecision, PolicyCase};
use ringfence_types::{
    ByteString, Call, Decision, ExecCall, FileCall, NetMode, Profile, Root, StandardInput,
};

use crate::testkit::{Done, World, finish};
use machine::{HOME, Machine, WORKSPACE};

/// Enough of it to have every kind of case; the rest is asked in process.
const EVERY: usize = 7;

#[test]
fn check_answers_for_real_files_and_links_as_the_judge_does_on_the_table() {
    let world = stage();
    let mut asked = 0;
    let mut wrong = Vec::new();
    for case in corpus().iter().step_by(EVERY).filter(|case| is_possible(&world, case)) {
        asked += 1;
        let (found, expected) = (answer(&world, case), on_the_table(case));
        if found != expected || !case.expect.accepts(found) {
            wrong.push(format!(
                "{}: {found:?}, on the table {expected:?}, in the corpus {}",
                case.subject, case.expect
            ));
        }
    }
    assert!(wrong.is_empty(), "{} of {asked} differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(asked > 300, "{asked}");
}

#[test]
fn links_and_hostile_repositories_are_seen_on_the_real_disk() {
    let world = stage();
    for (text, expected) in [
        ("cat README.md", Decision::Allow),
        ("cat link-in", Decision::Allow),
        ("cat link-to-shadow", Decision::Deny),
        ("cat link-to-env", Decision::Deny),
        ("cat linkdir/passwd", Decision::Deny),
        ("cat linkdeep/../passwd", Decision::Deny),
        ("cat sub/deep/link-up/../../etc/passwd", Decision::Deny),
        ("ls > dangling", Decision::Deny),
        ("./git status", Decision::Ask),
        ("bin/git status", Decision::Ask),
        ("cd sub && cat ../README.md", Decision::Allow),
    ] {
        let case = case_of(CaseSubject::Shell(text.to_owned()));
        assert_eq!(answer(&world, &case), expected, "{text}");
    }
}

#[test]
fn policy_test_runs_a_file_of_cases() {
    let world = stage();
    let right = "profile = 'guarded'\n[[case]]\nshell = 'ls && pwd'\nexpect = 'allow'\n[[case]]\nread = '.env'\nexpect = 'deny'\n";
    let file = world.beside("cases").join("right.toml");
    fs::write(&file, right).unwrap();
    finish(world.ringfence().args(["policy", "test"]).arg(&file), b"").expect(0);
    fs::write(&file, right.replace("'deny'", "'allow'")).unwrap();
    assert_ne!(finish(world.ringfence().args(["policy", "test"]).arg(&file), b"").code, Some(0));
    fs::write(&file, right.replace("'deny'", "'denied'")).unwrap();
    let done = finish(world.ringfence().args(["policy", "test"]).arg(&file), b"");
    assert_ne!(done.code, Some(0));
    assert!(format!("{}{}", done.text(), done.err).contains("7:10"), "{done:?}");
}

/// What the binary says, by its exit code and in its JSON.
fn answer(world: &World, case: &PolicyCase) -> Decision {
    let profile = case.profile.unwrap_or(Profile::Guarded);
    let mut command = world.ringfence();
    command.args(["check", "--json", "--profile", profile.word()]).arg("--workspace").arg(&world.workspace);
    if !case.allow_hosts.is_empty() {
        command.args(["--net", "filtered"]);
    }
    case.allow_hosts.iter().for_each(|host| {
        command.args(["--allow-host", host]);
    });
    if let Some(cwd) = &case.cwd {
        command.current_dir(world.workspace.join(cwd.as_path()));
    }
    let real = |text: &[u8]| ByteString::from(moved(world, text)).as_os_str().to_owned();
    let given = |flag: &str, text: &[u8]| {
        let mut argument = OsString::from(flag);
        argument.push(real(text));
        argument
    };
    match &case.subject {
        CaseSubject::Shell(text) => command.arg(given("--shell=", text.as_bytes())),
        CaseSubject::Argv(argv) => command.arg("--").args(argv.iter().map(|word| real(word.as_slice()))),
        CaseSubject::Read(path) => command.arg(given("--read=", path.as_slice())),
        CaseSubject::Write(path) => command.arg(given("--write=", path.as_slice())),
        CaseSubject::Url { url, method } => {
            command.arg(given("--url=", url.as_bytes())).arg(format!("--method={method}"))
        }
        CaseSubject::Tool(name) => command.arg(given("--tool=", name.as_bytes())),
    };
    said(&finish(&mut command, b""))
}

fn said(done: &Done) -> Decision {
    let decision = match done.code {
        Some(0) => Decision::Allow,
        Some(10) => Decision::Ask,
        Some(11) => Decision::Deny,
        _ => panic!("{done:?}"),
    };
    assert_eq!(done.json()["decision"], serde_json::to_value(decision).unwrap(), "{done:?}");
    decision
}

fn on_the_table(case: &PolicyCase) -> Decision {
    let mut policy = Policy::new(case.profile.unwrap_or(Profile::Guarded));
    policy.home = Some(ByteString::from(HOME));
    let roots = vec![Root { path: ByteString::from(WORKSPACE), access: policy.access }];
    let cwd = Path::new(WORKSPACE).join(case.cwd.as_ref().map_or(Path::new(""), |cwd| cwd.as_path()));
    let exec = |argv: Vec<ByteString>| {
        Call::Exec(ExecCall {
            argv,
            cwd: ByteString::from(cwd),
            env: Vec::new(),
            ceiling: None,
            net: NetMode::None,
            stdin: StandardInput::None,
        })
    };
    let call = match &case.subject {
        CaseSubject::Shell(text) => exec(["sh", "-c", text].map(ByteString::from).to_vec()),
        CaseSubject::Argv(argv) => exec(argv.clone()),
        CaseSubject::Read(path) => Call::File(FileCall::Read { path: path.clone() }),
        CaseSubject::Write(path) => {
            Call::File(FileCall::Write { path: path.clone(), sha256: String::new(), bytes: 0 })
        }
        // Nothing of a machine is asked about these: what the corpus says is what the judge says.
        CaseSubject::Url { .. } | CaseSubject::Tool(_) => return written(case.expect),
    };
    judge(&policy, &Action::new(call, roots), &Machine)
        .map_or(Decision::Deny, |judgement| judgement.decision())
}

fn written(expect: ExpectedDecision) -> Decision {
    match expect {
        ExpectedDecision::Allow => Decision::Allow,
        ExpectedDecision::Ask => Decision::Ask,
        ExpectedDecision::Deny | ExpectedDecision::NotAllow => Decision::Deny,
    }
}

fn corpus() -> Vec<PolicyCase> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../policy/tests/corpus");
    let mut files: Vec<PathBuf> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
        .iter()
        .flat_map(|file| test_cases::parse(&fs::read_to_string(file).unwrap()).unwrap().cases)
        .collect()
}

fn case_of(subject: CaseSubject) -> PolicyCase {
    let text = "[[case]]\nshell = ''\nexpect = 'allow'";
    PolicyCase { subject, ..test_cases::parse(text).unwrap().cases.remove(0) }
}

/// A case that can be given on a command line, and whose programs this machine has.
fn is_possible(world: &World, case: &PolicyCase) -> bool {
    // With a filtered network this profile asks about an unlisted host. On the table there is no one to ask.
    if matches!(case.subject, CaseSubject::Url { .. }) && case.profile == Some(Profile::Workspace) {
        return false;
    }
    let text = match &case.subject {
        CaseSubject::Shell(text) | CaseSubject::Tool(text) => text.as_bytes().to_vec(),
        CaseSubject::Argv(argv) => argv.iter().map(ByteString::as_slice).collect::<Vec<_>>().join(&b' '),
        CaseSubject::Read(path) | CaseSubject::Write(path) => path.as_slice().to_vec(),
        CaseSubject::Url { url, method } => format!("{url} {method}").into_bytes(),
    };
    let real = String::from_utf8(moved(world, &text)).unwrap();
    let left = real.replace(&*world.root.path().to_string_lossy(), "");
    let elsewhere = ["/w", "/tmp", "/opt", "/home"].iter().any(|place| left.contains(place));
    let word = |c: char| !c.is_alphanumeric() && !"-_./".contains(c);
    !text.is_empty() && !text.contains(&0) && !elsewhere && left.split(word).all(is_installed)
}

/// What the table has and this machine has not would be judged by its absence.
fn is_installed(word: &str) -> bool {
    let known = Machine.program(word.as_bytes(), Path::new(WORKSPACE)).is_some();
    let system = ["/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"];
    let inside = word.contains('/') && !word.starts_with('/');
    !known || inside || system.iter().any(|directory| Path::new(directory).join(word).exists())
}

/// The places of the table are elsewhere on the real disk.
fn moved(world: &World, text: &[u8]) -> Vec<u8> {
    let text = String::from_utf8(text.to_vec()).unwrap();
    let (home, workspace) = (world.home.to_string_lossy(), world.workspace.to_string_lossy());
    text.replace("/home/u/", &format!("{home}/")).replace("/w/", &format!("{workspace}/")).into_bytes()
}

/// The workspace of the table on a real disk.
fn stage() -> World {
    // Not below /tmp: what is there is the private /tmp of the fence for the judge.
    let world = World::below(Path::new("/var/tmp"));
    world.git(&world.workspace, &["init", "-q", "-b", "main", "."]);
    for path in machine::FILES.iter().chain(machine::PROGRAMS) {
        if let Some(path) = path.strip_prefix("/w/").filter(|path| !path.contains(".git/")) {
            let file = world.write(path, "");
            fs::set_permissions(file, fs::Permissions::from_mode(0o755)).unwrap();
        }
    }
    for path in machine::DIRECTORIES.iter().filter_map(|path| path.strip_prefix("/w/")) {
        fs::create_dir_all(world.workspace.join(path)).unwrap();
    }
    for (from, to) in machine::LINKS {
        let Some(from) = from.strip_prefix("/w/") else { continue };
        let to = if *to == "/home/u/.ssh" { world.home.join(".ssh") } else { PathBuf::from(to) };
        let to = to.strip_prefix("/w").map_or(to.clone(), |inside| world.workspace.join(inside));
        symlink(to, world.workspace.join(from)).unwrap();
    }
    fs::create_dir_all(world.home.join(".ssh")).unwrap();
    fs::write(world.home.join(".ssh/id_rsa"), "key").unwrap();
    let hostile = world.workspace.join("hostile");
    fs::remove_dir_all(hostile.join(".git")).unwrap();
    world.git(&hostile, &["init", "-q", "."]);
    world.git(&hostile, &["config", "core.fsmonitor", "./evil.sh"]);
    world.git(&hostile, &["config", "diff.z.command", "./evil.sh"]);
    world
}
