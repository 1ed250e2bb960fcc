//! `cargo xtask test`: the one command.
//!
//! To add a step (a database, a container runtime, a browser), add a line to `STEPS` and a function that gets the
//! [`World`]; to add a system package, add a line in `packages.rs`.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::passes::{self, As, Tally};
use crate::stage::Stage;
use crate::steps::{self, Ran, Step, Strictness};
use crate::{Result, agents, command, deny, layers, names, packages, requirements, unsteady};

const STEPS: &[Step<World>] = &[
    Step { name: "packages", run: |_| packages::ensure() },
    Step { name: "toolchain", run: toolchain },
    Step { name: "agents", run: install_agents },
    Step { name: "fmt", run: fmt },
    Step { name: "clippy", run: clippy },
    Step { name: "layers", run: |world| layers::run(&world.root).map(|()| Ran::Done(String::new())) },
    Step { name: "names", run: |world| names::run(&world.root, &[]).map(|()| Ran::Done(String::new())) },
    Step { name: "deny", run: |world| deny::run(&world.root).map(Ran::Done) },
    Step {
        name: "requirements",
        run: |world| requirements::run(&world.root).map(|()| Ran::Done(String::new())),
    },
    Step { name: "build tests", run: build_tests },
    Step { name: "build release", run: build_release },
    Step { name: "doctests", run: doctests },
    Step { name: "tests as root", run: |world| pass(world, As::Root) },
    Step { name: "tests as user", run: |world| pass(world, As::User) },
];

/// With `--only`: the shortest way from an edit to the result of some tests.
const ONLY_STEPS: &[Step<World>] = &[
    Step { name: "packages", run: |_| packages::ensure() },
    Step { name: "agents", run: install_agents },
    Step { name: "build tests", run: build_tests },
    Step { name: "build program", run: build_development },
    Step { name: "tests as root", run: |world| pass(world, As::Root) },
    Step { name: "tests as user", run: |world| pass(world, As::User) },
];

/// What the steps share.
pub(crate) struct World {
    root: PathBuf,
    chosen: Choice,
    executables: Vec<TestExecutable>,
    /// The program under test, once it is built.
    binary: Option<PathBuf>,
    stage: Option<Stage>,
    /// Where the programs of agents are, once they are installed.
    agents: Option<PathBuf>,
    tally: Tally,
}

/// Which part of the tests the developer wants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Choice {
    /// Empty: the whole workspace.
    packages: Vec<String>,
    /// `None`: both passes.
    pass: Option<As>,
    /// Part of the names of the tests; `None`: all tests.
    only: Option<String>,
}

/// One compiled test program.
pub(crate) struct TestExecutable {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    /// The crate's directory, relative to the repository: tests run there, as under cargo.
    pub(crate) directory: PathBuf,
}

impl TestExecutable {
    /// End-to-end tests wait for other programs a third of their time. All others keep to two, also the attacks: some count the
    /// processes of a user.
    pub(crate) fn threads(&self) -> u8 {
        if self.name.ends_with("(test e2e)") { 3 } else { 2 }
    }
}

pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    let chosen = parse(arguments)?;
    let steps = if chosen.only.is_some() { ONLY_STEPS } else { STEPS };
    let mut world = World {
        root: root.to_path_buf(),
        chosen,
        executables: Vec::new(),
        binary: None,
        stage: None,
        agents: None,
        tally: Tally::default(),
    };
    let in_ci = std::env::var("CI").is_ok_and(|value| value == "true");
    let strictness = if in_ci { Strictness::Ci } else { Strictness::Developer };
    let well = steps::run_all(steps, &mut world, strictness);
    summary(&world);
    if well { Ok(()) } else { Err("not everything passed".into()) }
}

fn parse(arguments: &[String]) -> Result<Choice> {
    let mut chosen = Choice::default();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let mut value = || rest.next().cloned().ok_or_else(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--package" | "-p" => chosen.packages.push(value()?),
            "--as" => chosen.pass = Some(As::parse(&value()?)?),
            "--only" => chosen.only = Some(value()?),
            other => return Err(format!("unknown argument `{other}`").into()),
        }
    }
    Ok(chosen)
}

fn summary(world: &World) {
    let Choice { packages, pass, only } = &world.chosen;
    if !packages.is_empty() {
        println!("\nonly {} was tested", packages.join(", "));
    }
    if let Some(pass) = pass {
        println!("\nthe tests ran only as {}", pass.word());
    }
    if let Some(only) = only {
        println!("\nonly tests with `{only}` in their names ran, with the development build of ringfence");
    }
    if !passes::is_root() {
        println!("\nthe tests did not run as root: run this as root to have both passes");
    }
    println!("\n{} passed, {} failed", world.tally.passed, world.tally.failed);
}

/// `-p a -p b`, or the whole workspace.
fn selection(world: &World) -> Vec<String> {
    if world.chosen.packages.is_empty() {
        return vec!["--workspace".into()];
    }
    world.chosen.packages.iter().flat_map(|name| ["--package".into(), name.clone()]).collect()
}

/// A minimal toolchain has no rustfmt and no clippy; rustup can add them.
fn toolchain(world: &mut World) -> Result<Ran> {
    let has = |tool: &str| {
        command::cargo(&world.root).args([tool, "--version"]).output().is_ok_and(|o| o.status.success())
    };
    let missing: Vec<&str> = [("fmt", "rustfmt"), ("clippy", "clippy")]
        .iter()
        .filter(|(tool, _)| !has(tool))
        .map(|(_, c)| *c)
        .collect();
    if !missing.is_empty() {
        command::must_succeed(Command::new("rustup").args(["component", "add"]).args(&missing))?;
    }
    let version = command::output_of(Command::new("rustc").arg("--version").current_dir(&world.root))?;
    Ok(Ran::Done(version.trim().into()))
}

fn install_agents(world: &mut World) -> Result<Ran> {
    world.agents = Some(agents::ensure(&world.root)?);
    Ok(Ran::Done(String::new()))
}

fn fmt(world: &mut World) -> Result<Ran> {
    command::must_succeed(command::cargo(&world.root).args(["fmt", "--all", "--check"]))?;
    Ok(Ran::Done(String::new()))
}

fn clippy(world: &mut World) -> Result<Ran> {
    let strict = ["--", "-D", "warnings"];
    command::must_succeed(
        command::cargo(&world.root).args(["clippy", "--all-targets"]).args(selection(world)).args(strict),
    )?;
    // The launcher is a program without standard library: no other build of the workspace sees its code.
    let launcher = ["clippy", "-p", "ringfence-launch", "--features", "bin", "--bin", "ringfence-launch"];
    command::must_succeed(
        command::cargo(&world.root).args(launcher).args(["--profile", "launcher"]).args(strict),
    )?;
    Ok(Ran::Done(String::new()))
}

fn build_tests(world: &mut World) -> Result<Ran> {
    let mut cargo = command::cargo(&world.root);
    cargo.args(["test", "--no-run", "--message-format=json-render-diagnostics"]).args(selection(world));
    let messages = command::output_of(&mut cargo)?;
    for message in messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        collect(world, &message);
    }
    if world.executables.is_empty() {
        return Err("cargo built no test executable".into());
    }
    world.executables.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(Ran::Done(format!("{} executables", world.executables.len())))
}

fn collect(world: &mut World, message: &Value) {
    let Some(path) = message["executable"].as_str().map(PathBuf::from) else { return };
    let target = message["target"]["name"].as_str().unwrap_or_default();
    let kind = message["target"]["kind"][0].as_str().unwrap_or_default();
    if message["profile"]["test"] != Value::Bool(true) {
        return;
    }
    let manifest = Path::new(message["manifest_path"].as_str().unwrap_or_default());
    let directory =
        manifest.parent().and_then(|dir| dir.strip_prefix(&world.root).ok()).unwrap_or(Path::new(""));
    let name = format!("{} ({kind} {target})", directory.display());
    world.executables.push(TestExecutable { name, path, directory: directory.to_path_buf() });
}

/// What users run is what is tested, and it is the quicker one.
fn build_release(world: &mut World) -> Result<Ran> {
    build_program(world, "release")
}

/// Its code is slower, but a change is compiled in a fraction of the time.
fn build_development(world: &mut World) -> Result<Ran> {
    build_program(world, "dev")
}

fn build_program(world: &mut World, profile: &str) -> Result<Ran> {
    let mut cargo = command::cargo(&world.root);
    cargo.args(["build", "--package", "ringfence", "--message-format=json-render-diagnostics"]);
    cargo.args(["--profile", profile]);
    let messages = command::output_of(&mut cargo)?;
    let mut messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    world.binary = Some(messages.find_map(program).ok_or("cargo built no `ringfence`")?);
    Ok(Ran::Done(String::new()))
}

fn program(message: Value) -> Option<PathBuf> {
    let target = &message["target"];
    let is_ours = target["name"] == "ringfence" && target["kind"][0] == "bin";
    message["executable"].as_str().filter(|_| is_ours).map(PathBuf::from)
}

/// Once: what documentation shows does not depend on who runs it.
fn doctests(world: &mut World) -> Result<Ran> {
    if !world.chosen.packages.is_empty() {
        return Ok(Ran::NotRun("only part of the workspace is tested".into()));
    }
    let output =
        command::output_of(command::cargo(&world.root).args(["test", "--doc", "--quiet", "--workspace"]));
    let tally = passes::tally_of(output.as_deref().unwrap_or_default());
    world.tally.add(tally);
    output?;
    Ok(Ran::Done(tally.to_string()))
}

fn pass(world: &mut World, who: As) -> Result<Ran> {
    if world.chosen.pass.is_some_and(|pass| pass != who) {
        return Ok(Ran::NotRun("not asked for".into()));
    }
    if who == As::Root && !passes::is_root() {
        return Ok(Ran::NotRun("not root".into()));
    }
    if world.executables.is_empty() {
        return Err("there are no test executables".into());
    }
    if world.stage.is_none() {
        let binary = world.binary.as_deref().ok_or("there is no program to test")?;
        let mut stage = Stage::new(&world.root, &world.executables, binary)?;
        if let Some(agents) = &world.agents {
            stage.add_agents(agents)?;
        }
        world.stage = Some(stage);
    }
    let stage = world.stage.as_ref().ok_or("no stage")?;
    let tally = passes::run(stage, &world.executables, who, world.chosen.only.as_deref())?;
    world.tally.add(tally);
    match tally {
        Tally { failed: 0, passed: 1.., ignored: 0, unsteady: 0..=unsteady::MOST } => {
            Ok(Ran::Done(tally.to_string()))
        }
        Tally { failed: 0, passed: 0, .. } => Err("not one test ran".into()),
        _ => Err(tally.to_string().into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn world() -> World {
        World {
            root: "/r".into(),
            chosen: Choice::default(),
            executables: Vec::new(),
            binary: None,
            stage: None,
            agents: None,
            tally: Tally::default(),
        }
    }

    fn artifact(kind: &str, name: &str) -> Value {
        json!({
            "executable": format!("/t/{name}"), "manifest_path": "/r/crates/cli/Cargo.toml",
            "target": { "name": name, "kind": [kind] }, "profile": { "test": kind == "test" },
        })
    }

    #[test]
    fn test_programs_and_the_binary_are_told_apart() {
        let mut world = world();
        collect(&mut world, &artifact("bin", "ringfence"));
        collect(&mut world, &artifact("example", "bench_session"));
        collect(&mut world, &artifact("test", "run"));
        collect(&mut world, &json!({ "reason": "build-finished" }));
        let programs = ["bin", "test", "example"].map(|kind| program(artifact(kind, "ringfence")));
        assert_eq!(programs, [Some(PathBuf::from("/t/ringfence")), None, None]);
        assert_eq!(program(artifact("bin", "ringfence-launch")), None);
        let found: Vec<_> =
            world.executables.iter().map(|test| (test.name.as_str(), test.directory.as_path())).collect();
        assert_eq!(found, [("crates/cli (test run)", Path::new("crates/cli"))]);
    }

    #[test]
    fn a_pass_without_programs_is_a_failure() {
        assert!(pass(&mut world(), As::User).is_err());
    }

    #[test]
    fn packages_are_named_or_the_whole_workspace_is_taken() {
        let words = |list: &[&str]| list.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        assert_eq!(selection(&world()), ["--workspace"]);
        assert_eq!(parse(&words(&["-p", "a", "--package", "b"])).unwrap().packages, ["a", "b"]);
        let chosen = parse(&words(&["--as", "user", "--only", "held::"])).unwrap();
        assert_eq!((chosen.pass, chosen.only.as_deref()), (Some(As::User), Some("held::")));
        assert!(parse(&words(&["--as", "operator"])).is_err());
        assert!(parse(&words(&["--package"])).is_err());
        assert!(parse(&words(&["--fast"])).is_err());
    }
}
