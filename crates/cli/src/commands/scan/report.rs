//! Reports findings to people, as JSON lines and as SARIF, never with the secret.

use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ringfence_scan::{Finding, Scanner};
use ringfence_types::ByteString;
use serde_json::{Value, json};

use super::ScanSettings;
use super::line_map::FindingLocation;
use crate::args::ScanArgs;
use crate::commands::run::print_json;
use crate::error::chain;
use crate::output::{note, say};

/// The version of the objects on standard output.
const SCHEMA: u32 = 1;
const SARIF_SCHEMA: &str = "https://json.schemastore.org/sarif-2.1.0.json";
const OFTEN: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, PartialEq, Eq)]
enum ScanFormat {
    Human,
    Json,
    Sarif,
}

pub(super) enum ScanVerdict {
    Clean,
    Found,
    /// Not everything could be scanned.
    Failed,
}

pub(super) struct ScanReporter {
    format: ScanFormat,
    scanner: Scanner,
    found: AtomicU64,
    allowed: AtomicU64,
    files: AtomicU64,
    bytes: AtomicU64,
    failed: AtomicBool,
    incomplete: AtomicBool,
    results: Mutex<Vec<Value>>,
    /// When progress was last shown; none without a terminal.
    progress: Option<Mutex<Instant>>,
}

impl ScanReporter {
    pub(super) fn new(scan: &ScanArgs, lens: &ScanSettings) -> Self {
        let format = match (scan.json, scan.sarif) {
            (true, _) => ScanFormat::Json,
            (_, true) => ScanFormat::Sarif,
            _ => ScanFormat::Human,
        };
        Self {
            format,
            scanner: lens.scanner.clone(),
            found: AtomicU64::new(0),
            allowed: AtomicU64::new(0),
            files: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            failed: AtomicBool::new(false),
            incomplete: AtomicBool::new(false),
            results: Mutex::new(Vec::new()),
            progress: std::io::stderr().is_terminal().then(|| Mutex::new(Instant::now())),
        }
    }

    /// Reports one finding, unless it is allowlisted.
    pub(super) fn finding(
        &self,
        lens: &ScanSettings,
        file: &Path,
        finding: &Finding,
        place: &FindingLocation,
    ) {
        let name = shown(file);
        let allowed = lens.allowlist.as_ref().and_then(|list| list.allows(finding, &name, lens.today));
        if allowed.is_some() {
            self.allowed.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.found.fetch_add(1, Ordering::Relaxed);
        match self.format {
            ScanFormat::Human => self.human(&name, finding, place),
            ScanFormat::Json => print_json(&object(&name, finding, place)),
            ScanFormat::Sarif => self.keep(result(&name, finding, place)),
        }
    }

    pub(super) fn failure(&self, error: &dyn std::error::Error) {
        self.clear_progress();
        note!("ringfence: {}", chain(error));
        self.failed.store(true, Ordering::Relaxed);
    }

    /// Reports a file that was not scanned completely because of a limit.
    pub(super) fn incomplete(&self, file: &Path) {
        self.clear_progress();
        note!("ringfence: {}: too many compressed or encoded parts; not all were scanned", shown(file));
        self.incomplete.store(true, Ordering::Relaxed);
    }

    pub(super) fn read(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.show_progress();
    }

    pub(super) fn file_done(&self) {
        self.files.fetch_add(1, Ordering::Relaxed);
        self.show_progress();
    }

    pub(super) fn finish(self) -> ScanVerdict {
        self.clear_progress();
        let found = self.found.load(Ordering::Relaxed);
        match self.format {
            ScanFormat::Sarif => print_json(&self.sarif()),
            ScanFormat::Human => self.summary(found),
            ScanFormat::Json => {}
        }
        match (self.failed.load(Ordering::Relaxed), found) {
            (true, _) => ScanVerdict::Failed,
            (false, 0) if self.incomplete.load(Ordering::Relaxed) => ScanVerdict::Failed,
            (false, 0) => ScanVerdict::Clean,
            (false, _) => ScanVerdict::Found,
        }
    }

    fn human(&self, name: &str, finding: &Finding, place: &FindingLocation) {
        self.clear_progress();
        let encoding =
            if finding.layers.is_plain() { String::new() } else { format!(" in {}", finding.layers) };
        let fingerprint = finding.fingerprint.map(|print| format!("  {print}")).unwrap_or_default();
        let before = ByteString::from(place.before.as_slice());
        say!(
            "{name}:{}:{}: {}{encoding}{fingerprint}\n    {}[redacted:{}]",
            place.line,
            place.column,
            finding.rule,
            before.display(),
            finding.rule
        );
    }

    fn summary(&self, found: u64) {
        let (files, bytes) = (self.files.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed));
        let allowed = match self.allowed.load(Ordering::Relaxed) {
            0 => String::new(),
            count => format!(", {count} more allowed"),
        };
        note!("{}{allowed} in {} ({bytes} bytes)", counted(found, "finding"), counted(files, "file"));
    }

    fn keep(&self, result: Value) {
        if let Ok(mut results) = self.results.lock() {
            results.push(result);
        }
    }

    fn sarif(&self) -> Value {
        let rules: Vec<Value> = self
            .scanner
            .rules()
            .iter()
            .map(|rule| json!({ "id": rule.id(), "shortDescription": { "text": rule.about() } }))
            .collect();
        let results = self.results.lock().map(|results| results.clone()).unwrap_or_default();
        let driver = json!({ "name": "ringfence", "version": env!("CARGO_PKG_VERSION"), "rules": rules });
        let run = json!({ "tool": { "driver": driver }, "results": results, "columnKind": "utf16CodeUnits" });
        json!({ "$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [run] })
    }

    fn show_progress(&self) {
        let Some(last) = &self.progress else { return };
        let Ok(mut last) = last.try_lock() else { return };
        if last.elapsed() >= OFTEN {
            *last = Instant::now();
            let (files, bytes) = (self.files.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed));
            let found = self.found.load(Ordering::Relaxed);
            // Progress is best effort.
            let _closed = write!(
                std::io::stderr(),
                "\r\x1b[K{}, {} MB, {}",
                counted(files, "file"),
                bytes >> 20,
                counted(found, "finding")
            );
        }
    }

    fn clear_progress(&self) {
        if self.progress.is_some() {
            let _closed = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

fn counted(number: u64, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// The path for display: escaped, and without a leading `./`.
fn shown(file: &Path) -> String {
    let plain = file.strip_prefix(".").unwrap_or(file);
    ByteString::from(plain).display().to_string()
}

fn object(name: &str, finding: &Finding, place: &FindingLocation) -> Value {
    json!({
        "schema": SCHEMA,
        "rule": &*finding.rule,
        "file": name,
        "line": place.line,
        "column": place.column,
        "start": finding.start,
        "end": finding.end,
        "encoding": finding.layers.to_string(),
        "confidence": finding.confidence.name(),
        "fingerprint": finding.fingerprint.map(|print| print.to_string()),
    })
}

fn result(name: &str, finding: &Finding, place: &FindingLocation) -> Value {
    let region = json!({
        "startLine": place.line, "startColumn": place.column,
        "byteOffset": finding.start, "byteLength": finding.end - finding.start,
    });
    let location =
        json!({ "physicalLocation": { "artifactLocation": { "uri": uri(name) }, "region": region } });
    let fingerprint = finding.fingerprint.map(|print| json!({ "secret/v1": print.to_string() }));
    json!({
        "ruleId": &*finding.rule,
        "level": "error",
        "message": { "text": format!("a secret ({}, {})", finding.rule, finding.layers) },
        "locations": [location],
        "partialFingerprints": fingerprint,
    })
}

/// A relative URI, percent-encoded.
fn uri(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'.' | b'-' | b'_' | b'~');
    name.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}
