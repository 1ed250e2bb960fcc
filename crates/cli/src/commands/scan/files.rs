//! Scans files, directories and standard input.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use ignore::{DirEntry, WalkBuilder, WalkState};
use ringfence_scan::ScanOutput;

use super::line_map::LineBuffer;
use super::report::ScanReporter;
use super::{ScanError, ScanSettings};
use crate::args::ScanArgs;
use crate::host;

const CHUNK: usize = 256 << 10;

pub(super) fn scan(scan: &ScanArgs, lens: &ScanSettings, report: &ScanReporter) {
    for path in &scan.paths {
        if path.as_os_str() == "-" {
            outcome(report, standard_input(lens, report));
        } else if path.is_dir() {
            directory(path, scan, lens, report);
        } else {
            outcome(report, file(path, lens, report));
        }
    }
}

fn outcome(report: &ScanReporter, result: Result<(), ScanError>) {
    if let Err(error) = result {
        report.failure(&error);
    }
}

fn standard_input(lens: &ScanSettings, report: &ScanReporter) -> Result<(), ScanError> {
    read(&mut io::stdin().lock(), Path::new("-"), lens, report).map_err(ScanError::Input)
}

/// What is named can be a pipe.
fn file(path: &Path, lens: &ScanSettings, report: &ScanReporter) -> Result<(), ScanError> {
    opened(File::open(path), path, lens, report)
}

fn opened(
    file: io::Result<File>,
    path: &Path,
    lens: &ScanSettings,
    report: &ScanReporter,
) -> Result<(), ScanError> {
    let fault = |source| ScanError::Read { path: path.to_owned(), source };
    read(&mut file.map_err(fault)?, path, lens, report).map_err(fault)
}

fn directory(path: &Path, scan: &ScanArgs, lens: &ScanSettings, report: &ScanReporter) {
    let mut walk = WalkBuilder::new(path);
    walk.hidden(false).follow_links(false).require_git(false).standard_filters(!scan.no_ignore).hidden(false);
    walk.filter_entry(|entry| entry.file_name() != ".git");
    walk.build_parallel().run(|| {
        Box::new(|entry| {
            match entry {
                Ok(entry) if is_file(&entry) => {
                    let file = host::open_regular(entry.path());
                    outcome(report, opened(file, entry.path(), lens, report));
                }
                Ok(_) => {}
                Err(error) => report.failure(&unreadable(path, error)),
            }
            WalkState::Continue
        })
    });
}

fn unreadable(path: &Path, error: ignore::Error) -> ScanError {
    let named = match &error {
        ignore::Error::WithPath { path, .. } => path.clone(),
        _ => PathBuf::from(path),
    };
    let source = error.into_io_error().unwrap_or_else(|| io::Error::other("it cannot be walked"));
    ScanError::Read { path: named, source }
}

/// Sockets, devices and links have no content.
fn is_file(entry: &DirEntry) -> bool {
    entry.file_type().is_some_and(|kind| kind.is_file())
}

fn read(input: &mut dyn Read, path: &Path, lens: &ScanSettings, report: &ScanReporter) -> io::Result<()> {
    let mut stream = lens.scanner.stream();
    let mut output = ScanOutput::findings_only();
    let mut trail = LineBuffer::new();
    let mut chunk = vec![0; CHUNK];
    loop {
        let count = match input.read(&mut chunk) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let bytes = chunk.get(..count).unwrap_or_default();
        trail.follow(bytes);
        stream.push(bytes, &mut output);
        tell(path, &mut output, &mut trail, lens, report);
        report.read(count as u64);
    }
    let refused = stream.finish(&mut output);
    tell(path, &mut output, &mut trail, lens, report);
    if refused > 0 {
        report.incomplete(path);
    }
    report.file_done();
    Ok(())
}

fn tell(
    path: &Path,
    output: &mut ScanOutput,
    trail: &mut LineBuffer,
    lens: &ScanSettings,
    report: &ScanReporter,
) {
    for finding in output.findings.drain(..) {
        let place = trail.place(finding.start, finding.end);
        report.finding(lens, path, &finding, &place);
    }
}
