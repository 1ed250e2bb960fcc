//! What `cargo xtask bench` measures of the scanner. Durations in nanoseconds, one per line:
//!
//! - `bench_scan scan FILE N`: N times the whole scanner over the file in memory;
//! - `bench_scan automaton FILE N`: one Aho-Corasick pass with the same keywords;
//! - `bench_scan rules K FILE N`: a scanner with K rules;
//! - `bench_scan load N`: reading the built-in rules and building the scanner.
//!
//! And besides: `bench_scan text BYTES FILE` writes text without secrets, `bench_scan corpus DIR` one secret per line and
//! encoding, `bench_scan memory FILE` streams the file and prints the most memory it took, in kB.
#![expect(clippy::print_stdout, reason = "the numbers are the program's output")]

use std::error::Error;
use std::fs::{self, File};
use std::hint::black_box;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ringfence_scan::rules::{self, ScanRule, expand};
use ringfence_scan::{ScanOutput, Scanner};

type Any<T> = Result<T, Box<dyn Error>>;

const NEGATIVES: &[&str] = &[
    include_str!("../tests/corpus/code.txt"),
    include_str!("../tests/corpus/config.txt"),
    include_str!("../tests/corpus/lockfiles.txt"),
    include_str!("../tests/corpus/logs.txt"),
    include_str!("../tests/corpus/prose.txt"),
];

fn main() -> Any<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["scan", file, rounds] => {
            let scanner = Scanner::built_in();
            timed(rounds, &fs::read(file)?, |text| scanner.scan(text).len())
        }
        ["automaton", file, rounds] => {
            let automaton = automaton(rules::built_in())?;
            timed(rounds, &fs::read(file)?, |text| automaton.find_iter(text).count())
        }
        ["rules", count, file, rounds] => {
            let scanner = Scanner::builder().rules(some_rules(count.parse()?)?).build();
            timed(rounds, &fs::read(file)?, |text| scanner.scan(text).len())
        }
        ["load", rounds] => timed(rounds, &[], |_| {
            rules::load().map_or(0, |rules| Scanner::builder().rules(rules).build().rules().len())
        }),
        ["text", bytes, file] => text(bytes.parse()?, Path::new(file)),
        ["corpus", directory] => corpus(Path::new(directory)),
        ["memory", file] => memory(Path::new(file)),
        other => Err(format!("not a benchmark: {other:?}").into()),
    }
}

fn timed(rounds: &str, text: &[u8], work: impl Fn(&[u8]) -> usize) -> Any<()> {
    for _ in 0..rounds.parse::<usize>()? {
        let start = Instant::now();
        black_box(work(black_box(text)));
        let took: Duration = start.elapsed();
        println!("{}", took.as_nanos());
    }
    Ok(())
}

fn automaton(rules: &[Arc<ScanRule>]) -> Any<AhoCorasick> {
    let keywords = rules.iter().flat_map(|rule| rule.keywords());
    Ok(AhoCorasick::builder()
        .ascii_case_insensitive(true)
        .kind(Some(AhoCorasickKind::DFA))
        .build(keywords)?)
}

/// The first of the built-in ones, and made-up ones of the same kind where there are not enough.
fn some_rules(count: usize) -> Any<Vec<Arc<ScanRule>>> {
    let mut all: Vec<Arc<ScanRule>> = rules::built_in().iter().take(count).cloned().collect();
    let made_up: String = (all.len()..count)
        .map(|number| {
            format!("[[rule]]\nid = \"made-up-{number}\"\nabout = \"x\"\nkeywords = [\"zq{number}_\"]\nshape = 'zq{number}_[a-f0-9]{{32}}'\nmatch = ['zq{number}_{{hex:32}}']\n")
        })
        .collect();
    if !made_up.is_empty() {
        all.extend(rules::parse(&made_up)?.into_iter().map(Arc::new));
    }
    Ok(all)
}

/// What is in files: prose, programs, logs, tables.
const ORDINARY: &[&str] = &[
    "The {lower:4} of the {lower:7} was {lower:5} by a {lower:6} that nobody had {lower:4} before, and the {lower:9} went on.",
    "    let {lower:6} = {lower:8}.{lower:5}({lower:4}, {digit:2})?;",
    "    if {lower:5} > {digit:3} && !{lower:7}.is_empty() {(}",
    "        return Err({alpha:9}::{alpha:7} {(} {lower:5}: {lower:6}.clone() {)});",
    "    {)}",
    "def {lower:8}({lower:5}, {lower:4}=None):",
    "    for {lower:1}, {lower:5} in enumerate(self.{lower:7}):",
    "2026-05-{digit:2}T{digit:2}:{digit:2}:{digit:2}.{digit:3}Z INFO {lower:7}: {lower:6} {lower:9} in {digit:3} ms",
    "{digit:5},{lower:6},{digit:3}.{digit:2},{lower:9},{digit:4},{lower:5}",
    "| {lower:9} | {lower:7} | {digit:4} | {lower:12} |",
    "<div class=\"{lower:6} {lower:5}-{lower:4}\"><span>{lower:8}</span></div>",
    "  \"{lower:7}\": {(}\"{lower:5}\": {digit:4}, \"{lower:6}\": [\"{lower:8}\", \"{lower:5}\"]{)},",
    "import {(} {alpha:8}, {lower:7} {)} from '../{lower:6}/{lower:8}';",
    "// {lower:5} {lower:3} {lower:7} {lower:2} {lower:8} {lower:4} {lower:6}",
    "{lower:8}:{lower:6} {lower:3} {lower:9} ({lower:5}) - {lower:4} {lower:7}.",
    "",
];

/// Ordinary lines, each time with other words in them, and after every sixteen one of the hard negatives.
fn text(bytes: usize, file: &Path) -> Any<()> {
    let mut out = std::io::BufWriter::new(File::create(file)?);
    let mut written = 0;
    for variant in 0.. {
        let hard = NEGATIVES.iter().flat_map(|text| text.lines());
        for line in hard.flat_map(|line| ORDINARY.iter().copied().chain([line])) {
            let line = expand(line, variant ^ written as u64)?;
            out.write_all(&line)?;
            out.write_all(b"\n")?;
            written += line.len() + 1;
            if written >= bytes {
                return Ok(out.flush()?);
            }
        }
    }
    Ok(())
}

fn corpus(directory: &Path) -> Any<()> {
    let mut plain = Vec::new();
    for rule in rules::built_in() {
        for example in rule.examples() {
            plain.push(expand(example, 7)?);
        }
    }
    // One line each: keys in several lines are left to the tests.
    plain.retain(|secret| !secret.contains(&b'\n'));
    let encoded = |encode: fn(&Vec<u8>) -> Vec<u8>| plain.iter().map(encode).collect::<Vec<_>>().join(&b'\n');
    fs::write(directory.join("plain.txt"), encoded(Vec::clone))?;
    fs::write(directory.join("base64.txt"), encoded(|secret| STANDARD.encode(secret).into_bytes()))?;
    let hex = |secret: &Vec<u8>| secret.iter().flat_map(|byte| format!("{byte:02x}").into_bytes()).collect();
    fs::write(directory.join("hex.txt"), encoded(hex))?;
    let url = |secret: &Vec<u8>| secret.iter().flat_map(|byte| format!("%{byte:02X}").into_bytes()).collect();
    fs::write(directory.join("url.txt"), encoded(url))?;
    text(200_000, &directory.join("clean.txt"))
}

fn memory(file: &Path) -> Any<()> {
    let (mut stream, mut output) = (Scanner::built_in().stream(), ScanOutput::default());
    let (mut file, mut chunk) = (File::open(file)?, vec![0; 1 << 16]);
    loop {
        let count = file.read(&mut chunk)?;
        let Some(bytes) = chunk.get(..count).filter(|bytes| !bytes.is_empty()) else { break };
        stream.push(bytes, &mut output);
        output.clean.clear();
        output.findings.clear();
    }
    stream.finish(&mut output);
    let status = fs::read_to_string("/proc/self/status")?;
    let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("no VmHWM")?;
    println!("{}", most.trim().trim_end_matches(" kB"));
    Ok(())
}
