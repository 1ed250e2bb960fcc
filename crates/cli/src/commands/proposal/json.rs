//! Shows proposals to people and to programs (JSON, schema 1).
//!
//! INVARIANT: text of an agent is escaped here.

use ringfence_runtime::proposal::{ContentAvailability, NewProposal, Proposal};
use ringfence_types::{ByteString, Decision, PatchedFile, Principal};
use serde::Serialize;

use super::ProposalOutputFormat;
use crate::commands::run::print_json;
use crate::explain::TextStyle;
use crate::output::{note, say};

/// What `proposal list --json` prints, schema 1. Fields are added, never renamed or removed.
#[derive(Serialize)]
struct ProposalListJson<'a> {
    schema: u32,
    proposals: Vec<ProposalJson<'a>>,
}

/// What `proposal show --json` prints: one entry with its files.
#[derive(Serialize)]
struct ProposalJson<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    schema: Option<u32>,
    id: &'a str,
    status: &'static str,
    time: &'a str,
    workspace: &'a ByteString,
    title: Option<&'a str>,
    by: &'a Principal,
    /// Total length of the results.
    bytes: u64,
    files: Vec<ProposalFileJson<'a>>,
    findings: Vec<ProposalFindingJson<'a>>,
    /// Conflicting files of the last attempt to apply it.
    conflicts: &'a [ByteString],
    /// Why it ended, if that needs an explanation.
    end: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    contents: Option<&'static str>,
}

#[derive(Serialize)]
struct ProposalFileJson<'a> {
    path: &'a ByteString,
    change: &'static str,
    base: Option<&'a str>,
    result: Option<&'a str>,
    bytes: u64,
}

#[derive(Serialize)]
struct ProposalFindingJson<'a> {
    rule: &'a str,
    place: &'a str,
}

impl<'a> ProposalJson<'a> {
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
            files: proposal.patch.files.iter().map(ProposalFileJson::of).collect(),
            findings: proposal
                .findings
                .iter()
                .map(|finding| ProposalFindingJson { rule: &finding.rule, place: &finding.location })
                .collect(),
            conflicts: &proposal.conflicts,
            end: proposal.end.as_deref(),
            contents: None,
        }
    }
}

impl<'a> ProposalFileJson<'a> {
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

pub(super) fn list(proposals: &[&Proposal], form: ProposalOutputFormat) {
    if form == ProposalOutputFormat::Json {
        let proposals = proposals.iter().map(|proposal| ProposalJson::of(proposal)).collect();
        return print_json(&ProposalListJson { schema: 1, proposals });
    }
    if proposals.is_empty() {
        note!("no open proposals (`--all` shows closed ones)");
    }
    for proposal in proposals {
        let title = proposal.title.as_deref().map(|title| format!("  {}", text(title))).unwrap_or_default();
        let status = proposal.state();
        let (id, time) = (&proposal.transaction, &proposal.time);
        say!("{id}  {time}  {status:<11}  {}  in {}{title}", count(proposal), proposal.workspace.display());
    }
}

pub(super) fn one(proposal: &Proposal, contents: ContentAvailability, form: ProposalOutputFormat) {
    let word = match contents {
        ContentAvailability::Kept => "kept",
        ContentAvailability::Gone => "gone",
    };
    if form == ProposalOutputFormat::Json {
        return print_json(&ProposalJson {
            schema: Some(1),
            contents: Some(word),
            ..ProposalJson::of(proposal)
        });
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
        say!("  secret     {} ({}): applying it asks for that", text(&finding.location), text(&finding.rule));
    }
    for file in &proposal.conflicts {
        say!("  conflict   {} was not what it was made for", file.display());
    }
    if let Some(end) = &proposal.end {
        say!("  because    {}", text(end));
    }
    if contents == ContentAvailability::Gone && proposal.is_open() {
        say!("  contents   gone: it cannot be applied; discard it, and let it be proposed again");
    }
    if contents == ContentAvailability::Kept && proposal.is_open() {
        let id = &proposal.transaction;
        say!(
            "  next       ringfence proposal diff {id} | ringfence proposal apply {id} | ringfence proposal discard {id}"
        );
    }
}

/// What `proposal create --json` prints, schema 1.
#[derive(Serialize)]
struct NewProposalJson<'a> {
    schema: u32,
    id: &'a str,
    files: Vec<ProposalFileJson<'a>>,
    findings: Vec<ProposalFindingJson<'a>>,
    asks: &'a [String],
}

pub(super) fn proposed(proposed: &NewProposal, form: ProposalOutputFormat) {
    let id = proposed.transaction.as_str();
    if form == ProposalOutputFormat::Json {
        let findings = proposed.findings.iter();
        return print_json(&NewProposalJson {
            schema: 1,
            id,
            files: proposed.patch.files.iter().map(ProposalFileJson::of).collect(),
            findings: findings
                .map(|found| ProposalFindingJson { rule: &found.rule, place: &found.location })
                .collect(),
            asks: &proposed.asks,
        });
    }
    say!("{id}");
    for finding in &proposed.findings {
        note!("ringfence: {} looks like a secret ({})", text(&finding.location), text(&finding.rule));
    }
    if !proposed.findings.is_empty() {
        note!(
            "  hint: applying it needs an approval for this; remove it and submit the proposal again if it is a mistake"
        );
    }
    for ask in &proposed.asks {
        note!("ringfence: applying it needs an approval: {}", text(ask));
    }
    note!("ringfence: {} proposed; `ringfence proposal diff {id}` shows it", of_files(&proposed.patch.files));
}

/// `3 files, 120 bytes`.
pub(super) fn count(proposal: &Proposal) -> String {
    of_files(&proposal.patch.files)
}

fn of_files(files: &[PatchedFile]) -> String {
    let bytes: u64 = files.iter().map(|file| file.bytes).sum();
    format!("{} {}, {bytes} bytes", files.len(), if files.len() == 1 { "file" } else { "files" })
}

/// Line by line, with everything that a terminal would interpret as a visible escape.
pub(crate) fn diff(diff: &[u8], style: TextStyle) {
    for line in diff.split_inclusive(|byte| *byte == b'\n') {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let shown = style.spelled(ByteString::from(line).display());
        match line.first() {
            Some(b'+') => say!("{}", style.decision(Decision::Allow, &shown)),
            Some(b'-') => say!("{}", style.decision(Decision::Deny, &shown)),
            Some(b'd' | b'@') => say!("{}", style.strong(&shown)),
            _ => say!("{shown}"),
        }
    }
}

fn text(text: &str) -> String {
    ByteString::from(text).display()
}
