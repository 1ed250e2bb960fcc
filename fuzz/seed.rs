//! Writes one file per case of the corpus for every target that can read it.

use std::error::Error;
use std::fs;
use std::path::Path;

use ringfence_policy::test_cases::{self, CaseSubject};
use ringfence_scan::rules::{self, expand};

fn main() -> Result<(), Box<dyn Error>> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut number = 0;
    for entry in fs::read_dir(here.join("../crates/policy/tests/corpus"))? {
        let text = fs::read_to_string(entry?.path())?;
        for case in test_cases::parse(&text)?.cases {
            number += 1;
            seed(here, number, &case.subject)?;
        }
        for (part, case) in text.split("\n[[case]]").skip(1).take(40).enumerate() {
            number += 1;
            write(here, "cases", number * 1000 + part, format!("[[case]]{case}").as_bytes())?;
        }
    }
    for entry in fs::read_dir(here.join("../docs/policies")).into_iter().flatten() {
        number += 1;
        write(here, "policy", number, &fs::read(entry?.path())?)?;
    }
    secrets(here)
}

/// Every kind of credential, plain and encoded. The first bytes are the size of a chunk and how often all of it comes again.
fn secrets(here: &Path) -> Result<(), Box<dyn Error>> {
    let examples = rules::built_in().iter().flat_map(|rule| rule.examples());
    for (number, example) in examples.enumerate() {
        let plain = expand(example, 1)?;
        let hex: Vec<u8> = plain.iter().flat_map(|byte| format!("{byte:02x}").into_bytes()).collect();
        let url: Vec<u8> = plain.iter().flat_map(|byte| format!("%{byte:02X}").into_bytes()).collect();
        for (form, bytes) in [plain, hex, url].into_iter().enumerate() {
            let size = u8::try_from(number % 256)?;
            write(here, "scan", number * 10 + form, &[&[size, size / 3], bytes.as_slice()].concat())?;
        }
    }
    Ok(())
}

fn seed(here: &Path, number: usize, subject: &CaseSubject) -> Result<(), Box<dyn Error>> {
    match subject {
        CaseSubject::Shell(text) => {
            write(here, "shell", number, text.as_bytes())?;
            write(here, "command", number, text.as_bytes())
        }
        CaseSubject::Argv(argv) => {
            let lines: Vec<u8> = argv.iter().flat_map(|word| [b"\n", word.as_slice()].concat()).collect();
            write(here, "command", number, &lines)
        }
        CaseSubject::Url { url, .. } => write(here, "url", number, url.as_bytes()),
        CaseSubject::Read(_) | CaseSubject::Write(_) | CaseSubject::Tool(_) => Ok(()),
    }
}

fn write(here: &Path, target: &str, number: usize, bytes: &[u8]) -> Result<(), Box<dyn Error>> {
    let directory = here.join("corpus").join(target);
    fs::create_dir_all(&directory)?;
    Ok(fs::write(directory.join(format!("case-{number}")), bytes)?)
}
