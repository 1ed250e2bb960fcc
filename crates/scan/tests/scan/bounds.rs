//! Hostile input: time grows with its length and no faster, memory does not grow at all.

use std::io::Write as _;
use std::process::Command;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ringfence_scan::rules::expand;
use ringfence_scan::{ScanOutput, Scanner};
use rustix::time::{ClockId, clock_gettime};

fn token(variant: u64) -> Vec<u8> {
    expand("ghp_{alnum:30}{github}", variant).unwrap()
}

fn repeated(pattern: &[u8], length: usize) -> Vec<u8> {
    pattern.iter().copied().cycle().take(length).collect()
}

/// What this thread has used of a processor. Whatever else the machine does is not in it.
fn used() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap()
}

fn cost(input: &[u8]) -> Duration {
    let before = used();
    std::hint::black_box(Scanner::built_in().search(input).findings.len());
    used() - before
}

/// Four times as much takes four times as long, or twice that where caches overflow; what is quadratic takes sixteen times as
/// long. Only noise makes it slower, so the best of a few counts.
#[track_caller]
fn is_linear(name: &str, input: impl Fn(usize) -> Vec<u8>) {
    const SMALL: usize = 1 << 19;
    let (small, large) = (input(SMALL), input(4 * SMALL));
    let mut least = (Duration::MAX, Duration::MAX);
    for _ in 0..10 {
        least = (least.0.min(cost(&small)), least.1.min(cost(&large)));
        if least.1 < least.0 * 8 {
            return;
        }
    }
    panic!("{name}: {:?}, four times the input: {:?}", least.0, least.1);
}

const HOSTILE: &[(&str, &[u8])] = &[
    ("one line", b"a"),
    ("zeros", b"\0"),
    ("invalid UTF-8", b"\xff\xfe\x80"),
    ("keywords", b"token"),
    ("keywords and blanks", b"token = secret: password="),
    ("beginnings of tokens", b"-eyJ-eyJabcdefgh"),
    ("bearers", b"bearer bearer "),
    ("schemes", b"a://a:"),
    ("headers of keys", b"-----BEGIN PRIVATE KEY-----\n"),
    ("escapes", b"\\u0041"),
    ("percent", b"%41"),
    ("percent of percent", b"%2525"),
    ("terminal codes", b"\x1b[1m"),
    ("half terminal codes", b"\x1b["),
    ("lines of letters", b"abcdefghijklmnopqrstuvwxyz012345\n"),
    ("capital A in base64", b"AAAA"),
    ("base64 of text", b"dG9rZW4g"),
    ("hex of text", b"746f6b656e20"),
    ("options", b"--token --password "),
    ("quotes", b"password=\""),
    ("puTTY", b"PuTTY-User-Key-File-2: "),
    ("kty", b"\"kty\":\"d\":"),
    ("dollars", b"$6$a$"),
    ("beginnings of gzip", b"\x1f\x8b\x08"),
];

#[test]
fn hostile_input_takes_linear_time() {
    for (name, pattern) in HOSTILE {
        is_linear(name, |length| repeated(pattern, length));
    }
}

#[test]
fn bombs_take_linear_time() {
    let bomb = STANDARD.encode(gzip(&vec![b' '; 64 << 20])) + "\n";
    is_linear("bombs", |length| repeated(bomb.as_bytes(), length));
    let nested = STANDARD.encode(gzip(STANDARD.encode(gzip(&vec![b'a'; 64 << 20])).as_bytes())) + "\n";
    is_linear("nested bombs", |length| repeated(nested.as_bytes(), length));
}

#[test]
fn a_million_matches_are_a_million_findings() {
    let line = [b"x ".as_slice(), &token(1), b"\n"].concat();
    let mut stream = Scanner::built_in().stream();
    let mut output = ScanOutput::findings_only();
    let block = line.repeat(1000);
    let mut count = 0;
    for _ in 0..1000 {
        stream.push(&block, &mut output);
        count += output.findings.len();
        output.findings.clear();
    }
    stream.finish(&mut output);
    assert_eq!(count + output.findings.len(), 1_000_000);
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn bombs_are_read_up_to_a_limit_and_say_so() {
    let bomb = STANDARD.encode(gzip(&vec![b' '; 64 << 20]));
    let mut stream = Scanner::built_in().stream();
    let mut output = ScanOutput::default();
    for _ in 0..8 {
        stream.push(bomb.as_bytes(), &mut output);
        stream.push(b"\n", &mut output);
    }
    stream.push(&token(1), &mut output);
    assert!(stream.finish(&mut output) > 0, "a limit was reached");
    assert_eq!(output.findings.len(), 1, "what is beside the bomb is found");
}

const VICTIM: &str = "bounds::streams_what_it_is_told_to";
const WHICH: &str = "RINGFENCE_TEST_STREAMS";
/// A secret is at the end of this much, all in one line.
const MUCH: usize = 100 << 20;
/// The test program itself takes some of it.
const MOST_MEMORY_KB: u64 = 32 << 10;

#[expect(clippy::disallowed_methods, reason = "a test that starts itself again says so in a variable")]
fn told() -> Option<usize> {
    std::env::var_os(WHICH)?.to_str()?.parse().ok()
}

/// Does nothing unless another test starts it as a process of its own.
#[test]
fn streams_what_it_is_told_to() {
    let Some((_, pattern)) = told().and_then(|which| HOSTILE.get(which)) else { return };
    let chunk = repeated(pattern, pattern.len() * (60_000 / pattern.len()));
    let (mut stream, mut output) = (Scanner::built_in().stream().with_threads(), ScanOutput::default());
    let mut found = 0;
    let mut given = 0;
    while given < MUCH {
        stream.push(&chunk, &mut output);
        given += chunk.len();
        found += output.findings.len();
        output.clean.clear();
        output.findings.clear();
    }
    stream.push(&[b"\n ".as_slice(), &token(1), b"\n"].concat(), &mut output);
    stream.finish(&mut output);
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let last = output.findings.last().map(|finding| finding.rule.to_string());
    println!("most {} found {found} last {last:?}", most.trim().trim_end_matches(" kB"));
}

#[test]
fn a_hundred_megabytes_of_one_line_take_no_more_memory_than_any_stream() {
    let wanted = ["one line", "invalid UTF-8", "keywords and blanks", "base64 of text", "percent of percent"];
    for name in wanted {
        let which = HOSTILE.iter().position(|(known, _)| *known == name).unwrap();
        let done = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", VICTIM, "--nocapture", "--test-threads", "1"])
            .env(WHICH, which.to_string())
            .output()
            .unwrap();
        let said = String::from_utf8(done.stdout).unwrap();
        let line = said.lines().find_map(|line| Some(line.split_once("most ")?.1)).unwrap();
        let (most, rest) = line.split_once(' ').unwrap();
        assert!(most.parse::<u64>().unwrap() <= MOST_MEMORY_KB, "{name}: {line}");
        assert!(rest.contains("github-token"), "{name}: what follows is found: {line}");
    }
}
