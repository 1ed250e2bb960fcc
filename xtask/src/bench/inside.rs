//! Real work bare and behind the fence, start-up subtracted.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::arena::{Arena, fill, git};
use super::measure::{Contender, interleave, named};
use super::report::{Bound, Report};
use super::start::process;
use crate::{Result, command};

/// A script in `bench/workloads` and the kind of workspace it runs in.
struct Workload {
    script: &'static str,
    place: Place,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// A committed repository of 20 000 files.
    Repository,
    /// A few sources and a Rust toolchain.
    Project,
}

const WORKLOADS: &[Workload] = &[
    Workload { script: "git-status.sh", place: Place::Repository },
    Workload { script: "find-grep.sh", place: Place::Repository },
    Workload { script: "gcc-loop.sh", place: Place::Project },
    Workload { script: "cargo-build.sh", place: Place::Project },
    Workload { script: "python-start.sh", place: Place::Project },
    Workload { script: "shell-loop.sh", place: Place::Project },
];

pub(super) fn run(arena: &Arena, report: &mut Report) -> Result<()> {
    let ringfence = arena.ringfence()?;
    for (place, workspace) in [(Place::Repository, repository(arena)?), (Place::Project, project(arena)?)] {
        let workloads: Vec<&Workload> = WORKLOADS.iter().filter(|workload| workload.place == place).collect();
        copy_scripts(arena, &workspace, &workloads)?;
        compare(&Comparison { arena, ringfence: &ringfence, workspace: &workspace }, &workloads, report)?;
    }
    Ok(())
}

struct Comparison<'a> {
    arena: &'a Arena,
    ringfence: &'a Path,
    workspace: &'a Path,
}

impl Comparison<'_> {
    fn pair(&self, name: &str, argv: &[&str]) -> [Contender; 2] {
        let bare = self.arena.invocation(Path::new(argv[0]), &argv[1..], self.workspace);
        let fenced: Vec<&str> = ["run", "--"].iter().chain(argv).copied().collect();
        let fenced = self.arena.invocation(self.ringfence, &fenced, self.workspace);
        [process(&format!("{name} bare"), bare), process(&format!("{name} inside"), fenced)]
    }
}

fn compare(comparison: &Comparison<'_>, workloads: &[&Workload], report: &mut Report) -> Result<()> {
    let mut contenders = Vec::from(comparison.pair("start", &["/bin/true"]));
    for workload in workloads {
        let script = format!("{}/{}", comparison.workspace.display(), workload.script);
        contenders.extend(comparison.pair(workload.script, &["/bin/sh", &script]));
    }
    let times = interleave(&contenders, comparison.arena.effort.rounds(30))?;
    report.table("real work, bare and inside", &times, &[]);
    let median = |name: String| named(&times, &name).map(|times| times.median());
    let start_up = median("start inside".into())? - median("start bare".into())?;
    for workload in workloads {
        let bare = median(format!("{} bare", workload.script))?;
        let inside = median(format!("{} inside", workload.script))? - start_up;
        report.target(
            &format!("inside: {} / bare", workload.script),
            inside / bare,
            Bound::AtMost(1.03),
            "x",
        );
    }
    Ok(())
}

fn copy_scripts(arena: &Arena, workspace: &Path, workloads: &[&Workload]) -> Result<()> {
    for workload in workloads {
        fs::copy(arena.root.join("bench/workloads").join(workload.script), workspace.join(workload.script))?;
    }
    Ok(())
}

fn repository(arena: &Arena) -> Result<PathBuf> {
    let path = arena.workspace("repository")?;
    fill(&path, 20_000)?;
    git(&path, &["add", "."])?;
    git(&path, &["commit", "--quiet", "-m", "files"])?;
    Ok(path)
}

fn project(arena: &Arena) -> Result<PathBuf> {
    let path = arena.workspace("project")?;
    fs::create_dir_all(path.join("crate/src"))?;
    fs::write(
        path.join("crate/Cargo.toml"),
        "[package]\nname = \"tiny\"\nversion = \"0.1.0\"\nedition = \"2021\"\n",
    )?;
    fs::write(
        path.join("crate/src/main.rs"),
        "fn main() { println!(\"{}\", (1..100u64).product::<u64>() % 7); }\n",
    )?;
    fs::write(
        path.join("unit.c"),
        "#include <stdio.h>\n#include <stdlib.h>\nint main(void) { return puts(\"x\") < 0; }\n",
    )?;
    link_toolchain(arena, &path.join("toolchain"))?;
    Ok(path)
}

/// The toolchain lives in a home that is absent behind the fence, so both sides use links to it here.
fn link_toolchain(arena: &Arena, to: &Path) -> Result<()> {
    let sysroot =
        command::output_of(Command::new("rustc").args(["--print", "sysroot"]).current_dir(&arena.root))?;
    fs::create_dir(to)?;
    for part in ["bin", "lib"] {
        let from = Path::new(sysroot.trim()).join(part);
        let linked = Command::new("cp").arg("-al").arg(&from).arg(to).output()?;
        if !linked.status.success() {
            command::must_succeed(Command::new("cp").arg("-a").arg(&from).arg(to))?;
        }
    }
    Ok(())
}
