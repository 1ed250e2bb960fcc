//! Prints how long decisions take, one duration in nanoseconds per line: `bench_check typical|shell|script|huge N`,
//! `bench_check rules K N`, `bench_check load K N`. Called in small rounds by `cargo xtask bench`.
#![expect(clippy::print_stdout, reason = "the numbers are the program's output")]

use std::error::Error;
use std::fmt::Write as _;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ringfence_authz::{Action, HostFacts, PathKind, Policy, judge};
use ringfence_policy::{PolicyFile, PolicyFileRole, StartupFlags, effective};
use ringfence_types::{Access, ByteString, Call, Decision, ExecCall, NetMode, Profile, Root, StandardInput};

/// A machine that answers at once: what is measured is the judge.
struct Instantly;

impl HostFacts for Instantly {
    fn program(&self, name: &[u8], _cwd: &Path) -> Option<PathBuf> {
        Some(Path::new("/usr/bin").join(std::str::from_utf8(name).ok()?))
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
}

type Durations = Result<Vec<Duration>, Box<dyn Error>>;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let durations = match arguments.as_slice() {
        ["typical", rounds] => allowed(&guarded(0)?, &["git", "status"], rounds)?,
        ["shell", rounds] => allowed(&guarded(0)?, &["sh", "-c", SHORT], rounds)?,
        ["script", rounds] => allowed(&guarded(0)?, &["sh", "-c", &script(10_000)], rounds)?,
        // Too long to be read: a question, but a quick one.
        ["huge", rounds] => decisions(&guarded(0)?, &action(&["sh", "-c", &script(1_000_000)]), rounds)?,
        ["rules", rules, rounds] => allowed(&guarded(rules.parse()?)?, &["git", "status"], rounds)?,
        ["load", rules, rounds] => loads(rules.parse()?, rounds)?,
        other => return Err(format!("not a benchmark: {other:?}").into()),
    };
    durations.iter().for_each(|duration| println!("{}", duration.as_nanos()));
    Ok(())
}

const SHORT: &str = "cd src && git status --short | grep -v '^??' | head -n 20; git log --oneline -n 5";

/// Honest commands of every listed kind, about `bytes` of them.
fn script(bytes: usize) -> String {
    let mut text = String::new();
    for number in 0.. {
        if text.len() >= bytes {
            break;
        }
        let _ = writeln!(
            text,
            "git log --oneline -n {number} | grep -n 'fix {number}' | head -n 3 && ls -la src/part{number}"
        );
    }
    text
}

/// A judge that says no to everything is fast: honest commands must be allowed.
fn allowed(policy: &Policy, argv: &[&str], rounds: &str) -> Durations {
    let action = action(argv);
    let decision = judge(policy, &action, &Instantly)?.decision();
    if decision != Decision::Allow {
        return Err(format!("the decision about an honest command is {decision:?}").into());
    }
    decisions(policy, &action, rounds)
}

fn decisions(policy: &Policy, action: &Action, rounds: &str) -> Durations {
    let rounds: usize = rounds.parse()?;
    let once = || {
        let start = Instant::now();
        let judged = black_box(judge(black_box(policy), black_box(action), &Instantly));
        let took = start.elapsed();
        drop(judged);
        took
    };
    Ok((0..rounds).map(|_| once()).collect())
}

fn action(argv: &[&str]) -> Action {
    let workspace = ByteString::from("/srv/project");
    let exec = ExecCall {
        argv: argv.iter().map(|word| ByteString::from(*word)).collect(),
        cwd: workspace.clone(),
        env: Vec::new(),
        ceiling: None,
        net: NetMode::None,
        stdin: StandardInput::None,
    };
    Action::new(Call::Exec(exec), vec![Root { path: workspace, access: Access::Write }])
}

/// The profile `guarded` with this many rules of an operator.
fn guarded(rules: usize) -> Result<Policy, Box<dyn Error>> {
    if rules == 0 {
        return Ok(Policy::new(Profile::Guarded));
    }
    made(&text(rules))
}

fn loads(rules: usize, rounds: &str) -> Durations {
    let text = text(rules);
    let rounds: usize = rounds.parse()?;
    (0..rounds)
        .map(|_| {
            let start = Instant::now();
            let policy = black_box(made(black_box(&text))?);
            let took = start.elapsed();
            drop(policy);
            Ok(took)
        })
        .collect()
}

fn made(text: &str) -> Result<Policy, Box<dyn Error>> {
    let file =
        PolicyFile::parse(PolicyFileRole::Operator, Path::new("/etc/ringfence.toml"), text.as_bytes())?;
    let flags = StartupFlags {
        workspace: "/srv/project".into(),
        profile: Some(Profile::Guarded),
        ..StartupFlags::default()
    };
    Ok(effective(&flags, &[file], &Path::to_owned)?.policy)
}

fn text(rules: usize) -> String {
    let mut text = String::from("schema = 1\n");
    for number in 0..rules {
        let decision = ["allow", "ask", "deny"].get(number % 3).copied().unwrap_or("deny");
        let _ = write!(text, "\n[[command]]\n{decision} = \"tool{number} sub --flag{number}\"\n");
    }
    text
}
