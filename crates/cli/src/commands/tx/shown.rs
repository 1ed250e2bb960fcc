//! Proposals for people and for programs (JSON, schema 1).
//!
//! INVARIANT: whatever comes from an agent is escaped here.

use ringfence_runtime::proposal::{Contents, Proposal, Proposed};
use ringfence_types::{Bytes, Decision, PatchedFile, Principal};
use serde::Serialize;

use super::Form;
use crate::commands::run::print_json;
use crate::explain::Style;
use crate::output::{note, say};

/// What `tx list --json` prints, schema 1. Fields are added, never renamed or removed.
#[derive(Serialize)]
struct List<'a> {
    schema: u32,
    proposals: Vec<Entry<'a>>,
}

/// What `tx show --json` prints: one entry with its files.
#[derive(Serialize)]
struct Entry<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    schema: Option<u32>,
    id: &'a str,
    status: &'static str,
    time: &'a str,
    workspace: &'a Bytes,
    title: Option<&'a str>,
    by: &'a Principal,
    /// Length of everything that will be there.
    bytes: u64,
    files: Vec<FileEntry<'a>>,
    findings: Vec<FindingEntry<'a>>,
    /// Files that stood in the way when somebody last wanted to apply it.
    conflicts: &'a [Bytes],
    /// Why it ended, where that needs words.
    end: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    contents: Option<&'static str>,
}

#[derive(Serialize)]
struct FileEntry<'a> {
    path: &'a Bytes,
    change: &'static str,
    base: Option<&'a str>,
    result: Option<&'a str>,
    bytes: u64,
}

#[derive(Serialize)]
struct FindingEntry<'a> {
    rule: &'a str,
    place: &'a str,
}

impl<'a> Entry<'a> {
    fn of(proposal: &'a Proposal) -> Self {
        Self {
            schema: None,
            id: proposal.transaction.as_str(),
            status: proposal.state(),
            time: &proposal.time,
            workspace: &proposal.workspace,
            title: proposal.title.as_deref(),
            by: &proposal.by,
            bytes: proposal.patch.files.iter().map(|file| file.bytes).sum(),
            files: proposal.patch.files.iter().map(FileEntry::of).collect(),
            findings: proposal
                .findings
                .iter()
                .map(|finding| FindingEntry { rule: &finding.rule, place: &finding.place })
                .collect(),
            conflicts: &proposal.conflicts,
            end: proposal.end.as_deref(),
            contents: None,
        }
    }
}

impl<'a> FileEntry<'a> {
    fn of(file: &'a PatchedFile) -> Self {
        Self {
            path: &file.path,
            change: change(file),
            base: file.base.as_deref(),
            result: file.result.as_deref(),
            bytes: file.bytes,
        }
    }
}

fn change(file: &PatchedFile) -> &'static str {
    match (&file.base, &file.result) {
        (None, _) => "create",
        (Some(_), None) => "delete",
        (Some(_), Some(_)) => "modify",
    }
}

pub(super) fn list(proposals: &[&Proposal], form: Form) {
    if form == Form::Json {
        let proposals = proposals.iter().map(|proposal| Entry::of(proposal)).collect();
        return print_json(&List { schema: 1, proposals });
    }
    if proposals.is_empty() {
        note!("nothing is proposed (`--all` shows what was)");
    }
    for proposal in proposals {
        let title = proposal.title.as_deref().map(|title| format!("  {}", text(title))).unwrap_or_default();
        let status = proposal.state();
        let (id, time) = (&proposal.transaction, &proposal.time);
        say!("{id}  {time}  {status:<11}  {}  in {}{title}", count(proposal), proposal.workspace.display());
    }
}

pub(super) fn one(proposal: &Proposal, contents: Contents, form: Form) {
    let word = match contents {
        Contents::Kept => "kept",
        Contents::Gone => "gone",
    };
    if form == Form::Json {
        return print_json(&Entry { schema: Some(1), contents: Some(word), ..Entry::of(proposal) });
    }
    say!("{}  {}", proposal.transaction, proposal.state());
    if let Some(title) = &proposal.title {
        say!("  title      the agent says (untrusted): {}", text(title));
    }
    say!("  proposed   {} by {}", proposal.time, proposal.by);
    say!("  workspace  {}", proposal.workspace.display());
    for file in &proposal.patch.files {
        say!("  {}     {} ({} bytes)", change(file), file.path.display(), file.bytes);
    }
    for finding in &proposal.findings {
        say!("  secret     {} ({}): applying it asks for that", text(&finding.place), text(&finding.rule));
    }
    for file in &proposal.conflicts {
        say!("  conflict   {} was not what it was made for", file.display());
    }
    if let Some(end) = &proposal.end {
        say!("  because    {}", text(end));
    }
    if contents == Contents::Gone && proposal.is_open() {
        say!("  contents   gone: it cannot be applied; discard it, and let it be proposed again");
    }
    if contents == Contents::Kept && proposal.is_open() {
        let id = &proposal.transaction;
        say!("  next       ringfence tx diff {id} | ringfence tx apply {id} | ringfence tx discard {id}");
    }
}

/// What `tx propose --json` prints, schema 1.
#[derive(Serialize)]
struct ProposedEntry<'a> {
    schema: u32,
    id: &'a str,
    files: Vec<FileEntry<'a>>,
    findings: Vec<FindingEntry<'a>>,
    asks: &'a [String],
}

pub(super) fn proposed(proposed: &Proposed, form: Form) {
    let id = proposed.transaction.as_str();
    if form == Form::Json {
        let findings = proposed.findings.iter();
        return print_json(&ProposedEntry {
            schema: 1,
            id,
            files: proposed.patch.files.iter().map(FileEntry::of).collect(),
            findings: findings.map(|found| FindingEntry { rule: &found.rule, place: &found.place }).collect(),
            asks: &proposed.asks,
        });
    }
    say!("{id}");
    for finding in &proposed.findings {
        note!("ringfence: {} looks like a secret ({})", text(&finding.place), text(&finding.rule));
    }
    if !proposed.findings.is_empty() {
        note!(
            "  hint: whoever applies it is asked about that; take it out and propose again if it is not meant"
        );
    }
    for ask in &proposed.asks {
        note!("ringfence: whoever applies it is asked: {}", text(ask));
    }
    note!("ringfence: {} proposed; `ringfence tx diff {id}` shows it", of_files(&proposed.patch.files));
}

/// `3 files, 120 bytes`.
pub(super) fn count(proposal: &Proposal) -> String {
    of_files(&proposal.patch.files)
}

fn of_files(files: &[PatchedFile]) -> String {
    let bytes: u64 = files.iter().map(|file| file.bytes).sum();
    format!("{} {}, {bytes} bytes", files.len(), if files.len() == 1 { "file" } else { "files" })
}

/// Line by line, with everything that a terminal would act upon as a visible escape.
pub(super) fn diff(diff: &[u8], style: Style) {
    for line in diff.split_inclusive(|byte| *byte == b'\n') {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let shown = style.spelled(Bytes::from(line).display());
        match line.first() {
            Some(b'+') => say!("{}", style.decision(Decision::Allow, &shown)),
            Some(b'-') => say!("{}", style.decision(Decision::Deny, &shown)),
            Some(b'd' | b'@') => say!("{}", style.strong(&shown)),
            _ => say!("{shown}"),
        }
    }
}

fn text(text: &str) -> String {
    Bytes::from(text).display()
}
