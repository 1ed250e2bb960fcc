//! Recall on every kind in every encoding, and silence on what only looks like a secret. Both are made of templates: the
//! repository holds no credential.

use std::collections::BTreeMap;
use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
use ringfence_scan::Scanner;
use ringfence_scan::rules::{built_in, expand};

type Encode = fn(&[u8]) -> Vec<u8>;

/// Each encoding that the scanner promises, and nests of them.
const ENCODINGS: &[(&str, Encode)] = &[
    ("url", url),
    ("url, every byte", url_all),
    ("base64", |text| STANDARD.encode(text).into_bytes()),
    ("base64, no padding", |text| STANDARD_NO_PAD.encode(text).into_bytes()),
    ("base64, URL-safe", |text| URL_SAFE.encode(text).into_bytes()),
    ("base64, URL-safe, no padding", |text| URL_SAFE_NO_PAD.encode(text).into_bytes()),
    ("base64, second phase", |text| STANDARD.encode([b"#", text].concat()).into_bytes()),
    ("base64, third phase", |text| STANDARD.encode([b"##", text].concat()).into_bytes()),
    ("base64, wrapped", |text| wrapped(&STANDARD.encode(text).into_bytes(), 64, "\n")),
    ("base64, wrapped with CRLF", |text| wrapped(&STANDARD.encode(text).into_bytes(), 76, "\r\n")),
    ("base64, wrapped in JSON", |text| wrapped(&STANDARD.encode(text).into_bytes(), 76, "\\n")),
    ("hex", hex),
    ("hex, capitals", |text| hex(text).to_ascii_uppercase()),
    ("hex, blanks", |text| spaced(text, "", " ")),
    ("hex, colons", |text| spaced(text, "", ":")),
    ("hex, lines of sixteen", |text| wrapped(&spaced(text, "", " "), 48, "\n")),
    ("hex, groups of two", |text| wrapped(&hex(text), 4, " ")),
    ("hex, array", |text| spaced(text, "0x", ", ")),
    ("hex, tight array", |text| spaced(text, "0x", ",").to_ascii_uppercase()),
    ("base64 of hex with blanks", |text| STANDARD.encode(spaced(text, "", " ")).into_bytes()),
    ("unicode escapes", |text| text.iter().flat_map(|byte| format!("\\u{byte:04x}").into_bytes()).collect()),
    ("hex escapes", |text| text.iter().flat_map(|byte| format!("\\x{byte:02x}").into_bytes()).collect()),
    ("gzip in base64", |text| STANDARD.encode(gzip(text)).into_bytes()),
    ("UTF-16 LE", |text| text.iter().flat_map(|byte| [*byte, 0]).collect()),
    ("UTF-16 BE", |text| text.iter().flat_map(|byte| [0, *byte]).collect()),
    ("terminal codes inside", ansi),
    ("base64 of UTF-16", |text| {
        STANDARD.encode(text.iter().flat_map(|byte| [*byte, 0]).collect::<Vec<u8>>()).into_bytes()
    }),
    ("URL of base64", |text| url(&STANDARD.encode(text).into_bytes())),
    ("base64 of base64 of base64", |text| {
        STANDARD.encode(STANDARD.encode(STANDARD.encode(text))).into_bytes()
    }),
    ("hex of base64", |text| hex(&STANDARD.encode(text).into_bytes())),
    ("base64 of hex of URL", |text| STANDARD.encode(hex(&url_all(text))).into_bytes()),
];

const VARIANTS: u64 = 4;

fn url(text: &[u8]) -> Vec<u8> {
    let encoded = |byte: &u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'.' | b'~' => vec![*byte],
        _ => format!("%{byte:02X}").into_bytes(),
    };
    text.iter().flat_map(encoded).collect()
}

fn url_all(text: &[u8]) -> Vec<u8> {
    text.iter().flat_map(|byte| format!("%{byte:02x}").into_bytes()).collect()
}

fn hex(text: &[u8]) -> Vec<u8> {
    text.iter().flat_map(|byte| format!("{byte:02x}").into_bytes()).collect()
}

fn spaced(text: &[u8], before: &str, between: &str) -> Vec<u8> {
    text.iter().map(|byte| format!("{before}{byte:02x}")).collect::<Vec<_>>().join(between).into_bytes()
}

fn wrapped(text: &[u8], width: usize, with: &str) -> Vec<u8> {
    text.chunks(width).collect::<Vec<_>>().join(with.as_bytes())
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

fn ansi(text: &[u8]) -> Vec<u8> {
    text.chunks(5).collect::<Vec<_>>().join(b"\x1b[1;32m".as_slice())
}

/// Every example of every rule, some variants each.
fn secrets() -> Vec<(&'static str, Vec<u8>)> {
    let mut secrets = Vec::new();
    for rule in built_in() {
        for example in rule.examples() {
            for variant in 0..VARIANTS {
                secrets.push((rule.id(), expand(example, 1000 + variant).unwrap()));
            }
        }
    }
    secrets
}

struct Recall {
    found: usize,
    named: usize,
    of: usize,
    missed: Vec<String>,
}

fn recall(encode: Encode) -> Recall {
    let scanner = Scanner::built_in();
    let mut recall = Recall { found: 0, named: 0, of: 0, missed: Vec::new() };
    for (rule, secret) in secrets() {
        let text = [b"log: ".as_slice(), &encode(&secret), b" done\n"].concat();
        let redacted = scanner.redact(&text);
        let findings = redacted.findings;
        assert!(
            scanner.scan(&redacted.clean).is_empty(),
            "{rule}: something is left of {}",
            String::from_utf8_lossy(&text)
        );
        recall.of += 1;
        recall.found += usize::from(!findings.is_empty());
        recall.named += usize::from(findings.iter().any(|finding| &*finding.rule == rule));
        if findings.is_empty() {
            recall.missed.push(format!("{rule}: {}", String::from_utf8_lossy(&secret)));
        }
    }
    recall
}

#[test]
fn plain_secrets_of_every_kind_are_found() {
    let plain = recall(<[u8]>::to_vec);
    println!("plain: {} of {}, by their own name {}", plain.found, plain.of, plain.named);
    assert!(plain.found * 100 >= plain.of * 99, "{}", plain.missed.join("\n"));
    assert!(plain.named * 100 >= plain.of * 90, "{} of {}", plain.named, plain.of);
    assert!(plain.of >= 150 * VARIANTS as usize);
}

#[test]
fn s002_11_encoded_secrets_of_every_kind_are_found() {
    let (mut found, mut of) = (0, 0);
    for (name, encode) in ENCODINGS {
        let recall = recall(*encode);
        println!("{name}: {} of {}", recall.found, recall.of);
        assert!(
            recall.found * 100 >= recall.of * 90,
            "{name}: {} of {}\n{}",
            recall.found,
            recall.of,
            recall.missed.join("\n")
        );
        found += recall.found;
        of += recall.of;
    }
    println!("encoded: {found} of {of}");
    assert!(found * 100 >= of * 95, "{found} of {of}");
}

/// Lines of `tests/corpus`, each template made into some lines.
fn negatives() -> Vec<(String, Vec<u8>)> {
    let mut lines = Vec::new();
    for (name, text) in [
        ("code", include_str!("../corpus/code.txt")),
        ("config", include_str!("../corpus/config.txt")),
        ("lockfiles", include_str!("../corpus/lockfiles.txt")),
        ("logs", include_str!("../corpus/logs.txt")),
        ("prose", include_str!("../corpus/prose.txt")),
    ] {
        for line in text.lines().filter(|line| !line.is_empty()) {
            let variants = if line.contains('{') { 6 } else { 1 };
            for variant in 0..variants {
                lines.push((
                    name.to_owned(),
                    expand(line, variant).unwrap_or_else(|error| panic!("{line}: {error}")),
                ));
            }
        }
    }
    lines
}

#[test]
fn hard_negatives_are_left_alone() {
    let lines = negatives();
    assert!(lines.len() >= 1000, "{}", lines.len());
    let scanner = Scanner::built_in();
    let mut hits = Vec::new();
    for (file, line) in &lines {
        for finding in scanner.scan(line) {
            hits.push(format!("{file}: {}: {}", finding.rule, String::from_utf8_lossy(line)));
        }
    }
    println!("false findings: {} in {} lines", hits.len(), lines.len());
    assert!(hits.len() * 1000 <= lines.len(), "{}", hits.join("\n"));
}

#[test]
fn hard_negatives_in_one_text_are_left_alone() {
    let mut by_file: BTreeMap<String, Vec<Vec<u8>>> = BTreeMap::new();
    for (file, line) in negatives() {
        by_file.entry(file).or_default().push(line);
    }
    for (file, lines) in by_file {
        let findings = Scanner::built_in().scan(&lines.join(&b'\n'));
        assert!(findings.len() * 1000 <= lines.len(), "{file}: {findings:?}");
    }
}
