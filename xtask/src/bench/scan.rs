//! The leak scanner: in process by the example `bench_scan` of `ringfence-scan`, and as a whole program beside scanners that
//! others use, on the same files.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::Effort;
use super::arena::Arena;
use super::measure::{Contender, Invocation, Probe, interleave, named};
use super::report::{Bound, Report};
use super::start::process;
use crate::{Result, command};

const DETECT_SECRETS: &str = "detect-secrets==1.5.0";
const RIPSECRETS: &str = "0.1.11";
const SECRETLINT: &[&str] = &["secretlint@13.0.6", "@secretlint/secretlint-rule-preset-recommend@13.0.6"];
const SECRETLINT_CONFIG: &str = r#"{"rules":[{"id":"@secretlint/secretlint-rule-preset-recommend"}]}"#;
/// Files of the corpus, each with one secret per line; the last has none.
const CORPUS: &[&str] = &["plain.txt", "base64.txt", "url.txt", "hex.txt", "clean.txt"];

pub(super) fn run(arena: &Arena, report: &mut Report) -> Result<()> {
    let program = arena.example("ringfence-scan", "bench_scan")?;
    let bytes = if arena.effort == Effort::Full { "100000000" } else { "4000000" };
    let text = arena.path("scan.txt").display().to_string();
    let home = arena.path("home");
    let call = |arguments: &[&str]| arena.invocation(&program, arguments, &home);
    command::must_succeed(&mut call(&["text", bytes, &text]).command())?;
    let contender = |name: &str, arguments: &[&str]| Contender {
        name: name.to_owned(),
        probe: Probe::Reports(call(arguments)),
    };
    let contenders = [
        contender("one aho-corasick pass", &["automaton", &text, "1"]),
        contender("scan", &["scan", &text, "1"]),
        contender("scan, 50 rules", &["rules", "50", &text, "1"]),
        contender("scan, 500 rules", &["rules", "500", &text, "1"]),
        contender("loading rules", &["load", "1"]),
    ];
    let times = interleave(&contenders, arena.effort.rounds(10))?;
    report.table("scanning text without secrets", &times, &["one aho-corasick pass"]);
    let median = |name: &str| named(&times, name).map(|times| times.median());
    let pass = median("one aho-corasick pass")?;
    report.target("scan / one aho-corasick pass", median("scan")? / pass, Bound::AtMost(2.0), "x");
    let growth = median("scan, 500 rules")? / median("scan, 50 rules")?;
    report.target("scan with 500 rules / 50 rules", growth, Bound::AtMost(1.5), "x");
    report.target("loading rules", median("loading rules")?, Bound::AtMost(50.0), "ms");
    let memory = command::output_of(call(&["memory", &text]).command().stdout(Stdio::piped()))?;
    report.target("memory of a stream", memory.trim().parse::<f64>()? / 1024.0, Bound::AtMost(32.0), "MB");
    Ok(())
}

/// Public scanners, installed into the arena.
pub(super) fn peers(arena: &Arena, report: &mut Report) -> Result<()> {
    let corpus = arena.path("scan-corpus");
    fs::create_dir(&corpus)?;
    let example = arena.example("ringfence-scan", "bench_scan")?;
    let text = arena.path("scan-peers.txt").display().to_string();
    let bytes = if arena.effort == Effort::Full { "20000000" } else { "1000000" };
    let home = arena.path("home");
    let make = [vec!["corpus", utf8(&corpus)?], vec!["text", bytes, &text]];
    for arguments in make {
        command::must_succeed(&mut arena.invocation(&example, &arguments, &home).command())?;
    }
    let scanners = [ringfence(arena)?, detect_secrets(arena)?, secretlint(arena)?, ripsecrets(arena)?];
    // A program that looks at nothing is fast.
    for scanner in &scanners {
        if scanner.found(arena, &corpus.join("plain.txt"))? == 0 {
            return Err(format!("{} finds nothing at all", scanner.name).into());
        }
    }
    let contenders: Vec<Contender> =
        scanners.iter().map(|scanner| process(scanner.name, scanner.on(arena, &text))).collect();
    let times = interleave(&contenders, arena.effort.rounds(10))?;
    report.table("a file without secrets", &times, &["ringfence scan"]);
    let own = named(&times, "ringfence scan")?.median();
    for peer in ["detect-secrets", "secretlint", "ripsecrets"] {
        report.target(
            &format!("{peer} / ringfence scan"),
            named(&times, peer)?.median() / own,
            Bound::AtLeast(5.0),
            "x",
        );
    }
    compare(arena, &corpus, &scanners)
}

struct Peer {
    name: &'static str,
    program: PathBuf,
    before: Vec<String>,
    lines: fn(&str) -> Result<BTreeSet<u64>>,
}

impl Peer {
    /// A finding is no failure: all are asked through a shell that forgets the exit code.
    fn on(&self, arena: &Arena, file: &str) -> Invocation {
        let mut arguments = vec!["-c", "\"$0\" \"$@\" || true", self.program.to_str().unwrap_or_default()];
        arguments.extend(self.before.iter().map(String::as_str));
        // Some look only at what is below the working directory.
        let file = Path::new(file);
        arguments.extend(file.file_name().and_then(|name| name.to_str()));
        arena.invocation(Path::new("/bin/sh"), &arguments, file.parent().unwrap_or(Path::new("/")))
    }

    /// In how many lines.
    fn found(&self, arena: &Arena, file: &Path) -> Result<usize> {
        let mut invocation = self.on(arena, utf8(file)?).command();
        let said = command::output_of(invocation.stdout(Stdio::piped()))?;
        Ok(if said.trim().is_empty() { 0 } else { (self.lines)(&said)?.len() })
    }
}

fn compare(arena: &Arena, corpus: &Path, scanners: &[Peer]) -> Result<()> {
    println!(
        "\n{:<16}{}",
        "lines found",
        CORPUS.iter().map(|name| format!("{name:>14}")).collect::<String>()
    );
    for scanner in scanners {
        let mut row = format!("{:<16}", scanner.name);
        for name in CORPUS {
            let file = corpus.join(name);
            let of = fs::read_to_string(&file)?.lines().count();
            row.push_str(&format!("{:>14}", format!("{}/{of}", scanner.found(arena, &file)?)));
        }
        println!("{row}");
    }
    Ok(())
}

fn ringfence(arena: &Arena) -> Result<Peer> {
    let lines = |said: &str| {
        let lines = said.lines().map(|line| Ok(serde_json::from_str::<Value>(line)?["line"].as_u64()));
        lines.filter_map(|line: Result<Option<u64>>| line.transpose()).collect()
    };
    let before = vec!["scan".into(), "--json".into()];
    Ok(Peer { name: "ringfence scan", program: arena.ringfence()?, before, lines })
}

fn detect_secrets(arena: &Arena) -> Result<Peer> {
    let environment = arena.path("detect-secrets");
    command::must_succeed(Command::new("python3").args(["-m", "venv"]).arg(&environment))?;
    command::must_succeed(Command::new(environment.join("bin/pip")).args([
        "install",
        "--quiet",
        DETECT_SECRETS,
    ]))?;
    let lines = |said: &str| {
        let answer: Value = serde_json::from_str(said)?;
        let results = answer["results"].as_object().ok_or("no results")?;
        let found = results.values().filter_map(Value::as_array).flatten();
        Ok(found.filter_map(|finding| finding["line_number"].as_u64()).collect())
    };
    let before = vec!["scan".into(), "--all-files".into(), "--no-verify".into()];
    Ok(Peer { name: "detect-secrets", program: environment.join("bin/detect-secrets"), before, lines })
}

fn secretlint(arena: &Arena) -> Result<Peer> {
    let prefix = arena.path("secretlint");
    fs::create_dir(&prefix)?;
    let install = ["install", "--no-save", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"];
    command::must_succeed(Command::new("npm").arg("--prefix").arg(&prefix).args(install).args(SECRETLINT))?;
    let config = prefix.join("secretlintrc.json");
    fs::write(&config, SECRETLINT_CONFIG)?;
    let lines = |said: &str| {
        let answer: Value = serde_json::from_str(said)?;
        let files = answer.as_array().ok_or("no files")?;
        let messages = files.iter().filter_map(|file| file["messages"].as_array()).flatten();
        Ok(messages.filter_map(|message| message["loc"]["start"]["line"].as_u64()).collect())
    };
    let before = ["--format", "json", "--secretlintrc", utf8(&config)?].map(str::to_owned).to_vec();
    Ok(Peer { name: "secretlint", program: prefix.join("node_modules/.bin/secretlint"), before, lines })
}

fn ripsecrets(arena: &Arena) -> Result<Peer> {
    let prefix = arena.path("ripsecrets");
    let install = ["install", "--quiet", "--locked", "--version", RIPSECRETS, "ripsecrets", "--root"];
    command::must_succeed(Command::new("cargo").args(install).arg(&prefix))?;
    // FILE:LINE:what was found
    let lines = |said: &str| {
        let number = |line: &str| line.split(':').nth(1).and_then(|number| number.parse().ok());
        Ok(said.lines().filter_map(number).collect())
    };
    Ok(Peer { name: "ripsecrets", program: prefix.join("bin/ripsecrets"), before: Vec::new(), lines })
}

fn utf8(path: &Path) -> Result<&str> {
    path.to_str().ok_or_else(|| "a path that is not text".into())
}
