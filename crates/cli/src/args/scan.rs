//! What the user typed behind `ringfence scan`.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
#[command(after_help = "\
Finds about three hundred kinds of credentials in plain text and inside URL encoding, base64, hex, escapes, gzip,
UTF-16, terminal codes and wrapped lines. The output never contains a secret; docs/scan.md has the details.

Directories are read in parallel, without files that .gitignore excludes. A file that you name is always read.

Exit code: 0 no findings, 1 findings, 125 Ringfence failed (a file could not be read, an option is wrong).

Examples:
  ringfence scan .                                   everything in this directory
  ringfence scan config/ .env                        these files
  git log -p | ringfence scan -                      standard input
  ringfence scan --staged                            what the next commit adds
  ringfence scan --git-diff main...HEAD --sarif      what a branch adds, for a code review
  ringfence scan --json . | jq -r .rule              one object per finding and line

As a pre-commit hook, in .git/hooks/pre-commit:
  #!/bin/sh
  exec ringfence scan --staged")]
pub(crate) struct ScanArgs {
    /// Print findings as JSON lines: rule, file, line, column, start, end, encoding, confidence, fingerprint
    #[arg(long, conflicts_with = "sarif")]
    pub(crate) json: bool,
    /// Print one SARIF 2.1.0 document
    #[arg(long)]
    pub(crate) sarif: bool,
    /// Scan the lines that this range of commits adds: main...HEAD, HEAD~3
    #[arg(long, value_name = "RANGE", conflicts_with_all = ["staged", "paths"])]
    pub(crate) git_diff: Option<String>,
    /// Scan the lines that the next commit adds
    #[arg(long, conflicts_with = "paths")]
    pub(crate) staged: bool,
    /// File of reviewed findings, with reasons and dates (docs/scan.md)
    #[arg(long, value_name = "FILE")]
    pub(crate) allowlist: Option<PathBuf>,
    /// File of further rules (docs/scan.md); repeatable
    #[arg(long = "rules", value_name = "FILE")]
    pub(crate) rules: Vec<PathBuf>,
    /// Also read files that .gitignore excludes
    #[arg(long)]
    pub(crate) no_ignore: bool,
    /// Files and directories; `-` is standard input
    #[arg(value_name = "PATH", required_unless_present_any = ["git_diff", "staged"])]
    pub(crate) paths: Vec<PathBuf>,
}
