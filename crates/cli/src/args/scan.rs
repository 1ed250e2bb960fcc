//! What the user typed behind `ringfence scan`.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
#[command(after_help = "\
Looks for credentials of some three hundred kinds in plain text and inside URL encoding, base64, hex, escapes, gzip,
UTF-16, terminal codes and wrapped lines. What it prints never contains the secret; docs/scan.md has the details.

Directories are read in parallel. What .gitignore excludes is left out; a file that is named is always read.

Exit code: 0 nothing found, 1 something found, 125 Ringfence failed (a file could not be read, a bad option).

Examples:
  ringfence scan .                                   everything in this directory
  ringfence scan config/ .env                        some of it
  git log -p | ringfence scan -                      what comes on standard input
  ringfence scan --staged                            what the next commit would add
  ringfence scan --git-diff main...HEAD --sarif      what a branch adds, for a code review
  ringfence scan --json . | jq -r .rule              one object per finding and line

As a pre-commit hook, in .git/hooks/pre-commit:
  #!/bin/sh
  exec ringfence scan --staged")]
pub(crate) struct ScanArgs {
    /// One JSON object per finding and line: rule, file, line, column, start, end, encoding, confidence, fingerprint
    #[arg(long, conflicts_with = "sarif")]
    pub(crate) json: bool,
    /// One SARIF 2.1.0 document
    #[arg(long)]
    pub(crate) sarif: bool,
    /// Lines that this range of commits adds: main...HEAD, HEAD~3
    #[arg(long, value_name = "RANGE", conflicts_with_all = ["staged", "paths"])]
    pub(crate) git_diff: Option<String>,
    /// Lines that the next commit adds
    #[arg(long, conflicts_with = "paths")]
    pub(crate) staged: bool,
    /// Findings that a person has reviewed, with reasons and dates (docs/scan.md)
    #[arg(long, value_name = "FILE")]
    pub(crate) allowlist: Option<PathBuf>,
    /// Rules besides the built-in ones (docs/scan.md); may be given more than once
    #[arg(long = "rules", value_name = "FILE")]
    pub(crate) rules: Vec<PathBuf>,
    /// Read also what .gitignore excludes
    #[arg(long)]
    pub(crate) no_ignore: bool,
    /// Files and directories; `-` is standard input
    #[arg(value_name = "PATH", required_unless_present_any = ["git_diff", "staged"])]
    pub(crate) paths: Vec<PathBuf>,
}
