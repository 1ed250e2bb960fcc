//! The approval prompt: what would happen, why Ringfence asks, and what each answer means. All channels show
//! the same text.
//!
//! INVARIANT: text of an agent is escaped, secrets are redacted, and every omission is counted.

use std::path::Path;
use std::time::Duration;

use ringfence_authz::{GrantCandidate, Judgement, JudgementPart, PartKind};
use ringfence_ledger::ReasonRequirement;
use ringfence_types::{
    Access, ApprovalPrompt, ByteString, Call, Decision, ExecCall, FetchCall, FetchOrigin, FileCall, FlowCall,
    GrantOffer, Landing, LandingAction, NetMode, OfferScope, PolicyLayer, Principal, Quorum, Risk, Root,
    SecretReach, SecretUse, StandardInput,
};

use super::prompt_content::{PromptContent, script_line};
use crate::host_facts::IN_IMAGE;
use crate::images::ImageEntry;
use crate::leaks::LeakScanner;

/// Limit of entries in a list (files, hosts, reasons); the rest is counted.
const ENTRIES: usize = 40;
/// Limit of characters in an entry; the rest is counted.
const SHOWN: usize = 400;
/// Limit of characters of a name in the sentence, which some channels wrap. The fields below show the full
/// name.
const IN_A_SENTENCE: usize = 60;

/// What the prompt says besides the action.
#[derive(Clone, Debug)]
pub(crate) struct PromptContext<'a> {
    pub(crate) id: &'a str,
    pub(crate) requester: &'a Principal,
    /// The principal that started the session.
    pub(crate) owner: &'a Principal,
    /// The agent's stated reason; shown as untrusted.
    pub(crate) stated: Option<&'a str>,
    pub(crate) patience: Duration,
    pub(crate) quorum: Quorum,
    pub(crate) reason_rule: ReasonRequirement,
    pub(crate) offers: &'a [GrantOffer],
    /// Lifetime of an "always here" grant.
    pub(crate) grant_lifetime: Duration,
    /// The image whose programs would run.
    pub(crate) image: Option<&'a ImageEntry>,
    pub(crate) roots: &'a [Root],
    /// What the session was given.
    pub(crate) secrets: &'a [SecretUse],
    /// The visible part of the call, and the risk of the hidden part.
    pub(crate) content: &'a PromptContent,
}

/// Redacts known secrets from every text made from a call.
#[derive(Clone, Debug)]
pub(crate) struct PromptRedactor<'a> {
    /// Secrets found in the call.
    found: Vec<String>,
    /// Finds further secrets, including the stored ones.
    leaks: Option<&'a LeakScanner>,
}

impl<'a> PromptRedactor<'a> {
    pub(crate) fn new(found: &[Vec<u8>], leaks: Option<&'a LeakScanner>) -> Self {
        let spellings = found.iter().flat_map(|secret| {
            let bytes = ByteString::from(secret.as_slice());
            [
                String::from_utf8_lossy(secret).into_owned(),
                bytes.display(),
                bytes.quoted(),
                script_line(secret),
            ]
        });
        Self { found: spellings.filter(|spelling| !spelling.is_empty()).collect(), leaks }
    }

    pub(crate) fn clean(&self, text: &str) -> String {
        let known =
            self.found.iter().fold(text.to_owned(), |text, secret| text.replace(secret, "[redacted]"));
        let clean = || String::from_utf8_lossy(&ringfence_scan::redact(known.as_bytes()).clean).into_owned();
        self.leaks.map_or_else(clean, |leaks| leaks.text(&known))
    }
}

/// `call` is the redacted call.
pub(crate) fn prompt(
    call: &Call,
    judgement: &Judgement,
    context: &PromptContext<'_>,
    redactor: &PromptRedactor<'_>,
) -> ApprovalPrompt {
    let mut fields = PromptFields { redactor, fields: Vec::new() };
    let risk = context.content.risk(judgement.risk());
    fields.one("id", context.id);
    fields.one("asked by", &asker(context));
    facts(&mut fields, call, judgement, context);
    context.content.hidden.iter().for_each(|hidden| fields.one("not shown", hidden));
    let unbound =
        |(path, why): &(String, &'static str)| format!("what `{path}` has when it is executed: {why}");
    fields.list("not bound", context.content.unbound_content.iter().map(unbound));
    reasons(&mut fields, judgement, context.content);
    if let Some(stated) = context.stated {
        fields.one("claim", &format!("the agent says (untrusted): {}", shown(stated)));
    }
    answers(&mut fields, call, risk, context);
    ApprovalPrompt {
        sentence: redactor.clean(&sentence(call)),
        blocks: context.content.blocks.clone(),
        fields: fields.fields,
    }
}

/// The prompt as plain lines.
pub fn render_prompt(prompt: &ApprovalPrompt) -> String {
    let mut text = format!("{}\n", prompt.sentence);
    for block in &prompt.blocks {
        block.title.iter().for_each(|title| text.push_str(&format!("{title}\n")));
        block.lines.iter().for_each(|line| text.push_str(&format!("| {line}\n")));
    }
    let mut last = "";
    for (label, value) in &prompt.fields {
        let label = if label == last {
            ""
        } else {
            last = label;
            label
        };
        text.push_str(format!("{label:<13}{value}").trim_end());
        text.push('\n');
    }
    text
}

/// Rules that "always here" could store. None for high risk or a quorum: a lasting answer is too wide there.
pub(crate) fn offers(candidates: &[GrantCandidate], risk: Risk, quorum: Quorum) -> Vec<GrantOffer> {
    if risk >= Risk::High || quorum.approve > 1 {
        return Vec::new();
    }
    let scope = |scope| match scope {
        ringfence_authz::CandidateScope::Exact => OfferScope::Exact,
        ringfence_authz::CandidateScope::Here => OfferScope::Here,
        ringfence_authz::CandidateScope::Prefix => OfferScope::Prefix,
    };
    let offer = |candidate: &GrantCandidate| GrantOffer {
        scope: scope(candidate.scope),
        permits: candidate.permits.clone(),
        stored: candidate.stored.clone(),
    };
    candidates.iter().map(offer).collect()
}

fn asker(context: &PromptContext<'_>) -> String {
    let who = match context.requester {
        Principal::Agent { session, name: Some(name) } => {
            format!("agent `{}` in session {session}", shown(name))
        }
        Principal::Agent { session, name: None } => format!("an agent in session {session}"),
        other => other.to_string(),
    };
    format!("{who}, started by {}", context.owner)
}

struct PromptFields<'a> {
    redactor: &'a PromptRedactor<'a>,
    fields: Vec<(String, String)>,
}

impl PromptFields<'_> {
    fn one(&mut self, label: &str, text: &str) {
        self.fields.push((label.to_owned(), self.redactor.clean(text)));
    }

    /// One label with several texts; nothing if there are none.
    fn list(&mut self, label: &str, entries: impl IntoIterator<Item = String>) {
        let mut listed: Vec<String> = Vec::new();
        let mut more = 0;
        for entry in entries {
            match listed.len() {
                _ if listed.contains(&entry) => {}
                ENTRIES => more += 1,
                _ => listed.push(entry),
            }
        }
        listed.iter().for_each(|entry| self.one(label, entry));
        if more > 0 {
            self.one(label, &format!("and {more} more"));
        }
    }
}

fn facts(fields: &mut PromptFields<'_>, call: &Call, judgement: &Judgement, context: &PromptContext<'_>) {
    match call {
        Call::Exec(exec) => exec_facts(fields, exec, judgement, context),
        Call::File(FileCall::Write { bytes, sha256, .. }) => {
            fields.one("content", &format!("{bytes} bytes, sha256 {}", shown(sha256)));
        }
        Call::Flow(flow) => {
            fields.one("host", &shown(&flow.host));
            fields.one("port", &flow.port.to_string());
            fields.one("way", &format!("{}, from something that runs inside the fence", flow.way));
        }
        Call::Tool(tool) => {
            fields.one("input", &format!("{} bytes, sha256 {}", tool.bytes, shown(&tool.sha256)));
        }
        Call::Land(landing) => fields.one("layer", landing.layer.as_str()),
        Call::File(_) | Call::Apply(_) | Call::Fetch(_) => {}
    }
    for (label, aspect) in [("writes", PartKind::Write), ("reads", PartKind::Read), ("hosts", PartKind::Host)]
    {
        let parts = judgement.parts().iter().filter(|part| part.aspect == aspect);
        fields.list(label, parts.map(|part| shown(&part.subject)));
    }
    let letters = &context.content.letters;
    if !letters.is_empty() {
        fields.one("letters", &format!("not ASCII, and maybe not what they look like: {letters}"));
    }
}

fn exec_facts(
    fields: &mut PromptFields<'_>,
    exec: &ExecCall,
    judgement: &Judgement,
    context: &PromptContext<'_>,
) {
    fields.one("in", &exec.cwd.display());
    let programs = judgement.parts().iter().filter_map(|part| part.program.as_deref());
    fields.list("program", programs.map(|path| program(path, context)));
    fields.one("input", &input(&exec.stdin));
    fields.one(
        "network",
        match exec.net {
            NetMode::None => "none",
            NetMode::Filtered => "the hosts that the policy names",
            NetMode::Full => "everything that this machine reaches",
        },
    );
    fields.list("roots", context.roots.iter().enumerate().filter_map(|(index, given)| root(index, given)));
    fields.list("secrets", context.secrets.iter().map(secret));
    if let Some(ceiling) = &exec.ceiling {
        fields.list("held to", ceiling.lines().iter().map(|line| shown(line)));
    }
}

/// Each but a workspace that may be written, which is what is expected.
fn root(index: usize, root: &Root) -> Option<String> {
    match (index, root.access) {
        (0, Access::Write) => None,
        (0, access) => Some(format!("{access} {} (the workspace)", root.path.display())),
        (_, access) => Some(format!("{access} {}", root.path.display())),
    }
}

fn secret(secret: &SecretUse) -> String {
    let reach = match secret.reach {
        SecretReach::Inside => "the command can read its value",
        SecretReach::Proxy => {
            "the command gets a placeholder; the proxy sends the value to the hosts of the secret"
        }
    };
    format!("`{}`: {reach}", shown(&secret.name))
}

/// Describes the standard input of a command.
fn input(stdin: &StandardInput) -> String {
    match stdin {
        StandardInput::None => "no standard input".to_owned(),
        StandardInput::Bytes { bytes, sha256, .. } => {
            format!("standard input: {bytes} bytes, shown above, sha256 {}", shown(sha256))
        }
        StandardInput::Terminal => {
            "standard input: not known yet, connected to the terminal of the caller".to_owned()
        }
        StandardInput::Stream => {
            "standard input: not known yet, sent while the command runs; no grant covers it".to_owned()
        }
    }
}

/// Shows a program. For one of an image it adds the image, because Ringfence does not resolve `PATH` inside
/// an image.
fn program(path: &Path, context: &PromptContext<'_>) -> String {
    let shown = |path: &Path| ByteString::from(path).display();
    match context.image {
        Some(image) if !context.roots.iter().any(|root| path.starts_with(root.path.as_path())) => {
            let inside = path.strip_prefix(IN_IMAGE).unwrap_or(path);
            format!("{} of the image `{}`, {}", shown(inside), image.name, image.id)
        }
        _ => shown(path),
    }
}

/// Why Ringfence asks, and the risk.
fn reasons(fields: &mut PromptFields<'_>, judgement: &Judgement, content: &PromptContent) {
    let asked: Vec<&JudgementPart> =
        judgement.parts().iter().filter(|part| part.decision == Decision::Ask).collect();
    let reason = |part: &&JudgementPart| match asked.as_slice() {
        [_] => basis(part),
        _ => format!("{}: {}", shown(&part.subject), basis(part)),
    };
    fields.list("because", asked.iter().map(reason));
    let risk = judgement.risk();
    if let Some((lifted, why)) = content.lift.filter(|(lifted, _)| *lifted > risk) {
        return fields.one("risk", &format!("{lifted}: {why}"));
    }
    let riskiest = judgement.parts().iter().find(|part| part.risk == risk);
    let why = riskiest.map(|part| format!(": {}", shown(why(part)))).unwrap_or_default();
    fields.one("risk", &format!("{risk}{why}"));
}

/// What each answer means, which approvers may give it, and what happens without one.
fn answers(fields: &mut PromptFields<'_>, call: &Call, risk: Risk, context: &PromptContext<'_>) {
    fields.one("once", "allows this call once, unchanged");
    if risk < Risk::High && context.quorum.approve == 1 {
        fields.one("session", &format!("{}, until the session ends; stores a digest of these", same(call)));
    }
    if context.offers.is_empty() {
        let why = if context.secrets.is_empty() { "no rule is safe for this" } else { "it has a secret" };
        fields.one("always here", &format!("not offered: {why}"));
    }
    for (index, offer) in context.offers.iter().enumerate() {
        let number = if context.offers.len() > 1 { format!("{}. ", index + 1) } else { String::new() };
        let expiry = span(context.grant_lifetime);
        fields.one("always here", &format!("{number}{}, for {expiry}", offer.permits));
        let stored: Vec<&str> = offer.stored.lines().collect();
        fields
            .one("always here", &format!("stores {}", ByteString::from(stored.join(" ").as_str()).display()));
    }
    fields.one("deny", "refuses it, and the same action for the rest of this session without asking");
    fields.one("no answer", &format!("denied after {}", span(context.patience)));
    fields.one("who", &who(context));
}

fn who(context: &PromptContext<'_>) -> String {
    let people =
        |count: u8| if count == 1 { "one operator".to_owned() } else { format!("{count} operators") };
    let quorum = match context.quorum {
        Quorum { approve: 1, deny: 1 } => "any operator may answer".to_owned(),
        Quorum { approve, deny } => format!("{} to allow, {} to deny", people(approve), people(deny)),
    };
    let reason = match context.reason_rule {
        ReasonRequirement::Optional => "",
        ReasonRequirement::Required => ", with a reason",
    };
    format!("{quorum}{reason}; elsewhere with `ringfence approvals show {}`", context.id)
}

/// What "the same action" means for a session grant.
fn same(call: &Call) -> &'static str {
    match call {
        Call::Exec(_) => {
            "the same arguments, variables, standard input, programs, named files, directory, network, roots, secrets, agent and policy"
        }
        Call::File(FileCall::Write { .. }) => "the same file with the same content",
        Call::File(_) => "the same operation on the same path",
        Call::Apply(_) => "the same changes to the same files",
        Call::Land(_) => "the same changes of the same layer",
        Call::Flow(FlowCall { request: None, .. }) => "every connection to the same host and port",
        Call::Flow(_) | Call::Fetch(_) => "the same request",
        Call::Tool(_) => "the same tool with the same input",
    }
}

fn sentence(call: &Call) -> String {
    let name = |bytes: &ByteString| shortened(bytes.display(), IN_A_SENTENCE);
    let word = |text: &str| shortened(ByteString::from(text).display(), IN_A_SENTENCE);
    match call {
        Call::Exec(exec) => {
            let program = exec.argv.first().map(name).unwrap_or_default();
            let arguments = exec.argv.len().saturating_sub(1);
            let more = match arguments {
                0 => String::new(),
                1 => " with 1 argument".to_owned(),
                _ => format!(" with {arguments} arguments"),
            };
            format!("May `{program}` run{more}?")
        }
        Call::File(FileCall::Read { path }) => format!("May the file `{}` be read?", name(path)),
        Call::File(FileCall::Write { path, .. }) => format!("May the file `{}` be written?", name(path)),
        Call::File(FileCall::List { path }) => format!("May the directory `{}` be listed?", name(path)),
        Call::File(FileCall::Symlink { path, target }) => {
            format!("May `{}` become a link to `{}`?", name(path), name(target))
        }
        Call::File(FileCall::Stat { path }) => format!("May `{}` be looked at?", name(path)),
        Call::File(FileCall::Move { path, to }) => {
            format!("May the file `{}` be moved to `{}`?", name(path), name(to))
        }
        Call::File(FileCall::Remove { path }) => format!("May `{}` be removed?", name(path)),
        Call::File(FileCall::Send { path }) => {
            format!("May the file `{}` be sent out of the session?", name(path))
        }
        Call::Apply(patch) => format!("May {} files be changed as proposed?", patch.files.len()),
        Call::Land(landing) => land_sentence(landing),
        Call::Flow(flow) => {
            format!("May something inside the fence reach `{}` at port {}?", word(&flow.host), flow.port)
        }
        Call::Fetch(FetchCall { by: FetchOrigin::Agent, .. }) => {
            "May the agent fetch this itself, outside the fence?".to_owned()
        }
        Call::Fetch(_) => "May this be fetched for the agent?".to_owned(),
        Call::Tool(tool) => {
            format!("May the agent call the tool `{}`, outside the fence?", word(&tool.name))
        }
    }
}

fn land_sentence(landing: &Landing) -> String {
    let count = match landing.entries.len() {
        1 => "1 change".to_owned(),
        count => format!("{count} changes"),
    };
    match landing.action {
        LandingAction::Commit => format!("May {count} of a layer land in the workspace?"),
        LandingAction::Undo | LandingAction::ForcedUndo => {
            format!("May {count} be taken back from the workspace?")
        }
    }
}

fn why(part: &JudgementPart) -> &str {
    if part.reason.is_empty() { &part.rule } else { &part.reason }
}

/// The rule, its layer, its origin and its reason.
fn basis(part: &JudgementPart) -> String {
    let origin = part.origin.as_ref().map(|origin| format!(", {origin}")).unwrap_or_default();
    let text = format!("{} ({}{origin})", shown(&part.rule), layer(part.layer));
    if part.reason.is_empty() { text } else { format!("{text}: {}", shown(&part.reason)) }
}

fn layer(layer: PolicyLayer) -> &'static str {
    match layer {
        PolicyLayer::Floor => "floor",
        PolicyLayer::Flags => "flags",
        PolicyLayer::Operator => "operator",
        PolicyLayer::Workspace => "workspace",
        PolicyLayer::Session => "session",
        PolicyLayer::Call => "call",
    }
}

/// Escapes a text to one line; every omission is marked.
fn shown(text: &str) -> String {
    shortened(ByteString::from(text).display(), SHOWN)
}

fn shortened(escaped: String, most: usize) -> String {
    let Some((end, _)) = escaped.char_indices().nth(most) else { return escaped };
    let (head, tail) = escaped.split_at(end);
    format!("{head}... ({} more characters)", tail.chars().count())
}

fn span(time: Duration) -> String {
    let seconds = time.as_secs();
    let unit =
        |count: u64, word: &str| if count == 1 { format!("1 {word}") } else { format!("{count} {word}s") };
    match seconds {
        _ if seconds >= 172_800 && seconds.is_multiple_of(86_400) => unit(seconds / 86_400, "day"),
        _ if seconds >= 7200 && seconds.is_multiple_of(3600) => unit(seconds / 3600, "hour"),
        _ if seconds >= 120 && seconds.is_multiple_of(60) => unit(seconds / 60, "minute"),
        _ => unit(seconds, "second"),
    }
}

#[cfg(test)]
mod tests;
