//! A question as text: what would happen, why it is asked, and what each answer means. The same in every channel.
//!
//! INVARIANT: every character of an agent is escaped, no secret is in it, and nothing is left out without a count.

use std::path::Path;
use std::time::Duration;

use ringfence_authz::{Aspect, Candidate, Judgement, Part};
use ringfence_ledger::ReasonRule;
use ringfence_types::{
    Bytes, Call, Card, Decision, Exec, Fetch, Fetcher, FileCall, FlowCall, Layer, NetMode, Offer, OfferScope,
    Principal, Quorum, Risk, Root, StandardInput,
};

use super::seen::Sight;
use crate::facts::IN_IMAGE;
use crate::images::Listed;
use crate::leaks::LeakScanner;

/// Entries of a list (files, hosts, reasons); the rest is counted.
const ENTRIES: usize = 40;
/// Letters that are named; of more it is said that there are more.
const LETTERS: usize = 10;
/// Characters of one entry; the rest is counted.
const SHOWN: usize = 400;

/// What a card says besides the action.
#[derive(Clone, Debug)]
pub(crate) struct Context<'a> {
    pub(crate) id: &'a str,
    pub(crate) requester: &'a Principal,
    /// Who started the session.
    pub(crate) owner: &'a Principal,
    /// What the agent says about it: an allegation, shown as one.
    pub(crate) stated: Option<&'a str>,
    pub(crate) patience: Duration,
    pub(crate) quorum: Quorum,
    pub(crate) reason_rule: ReasonRule,
    pub(crate) offers: &'a [Offer],
    /// How long "always here" holds.
    pub(crate) grant_expiry: Duration,
    /// The image whose programs would run.
    pub(crate) image: Option<&'a Listed>,
    pub(crate) roots: &'a [Root],
    /// What is shown of the call, and how bad it is by what is not.
    pub(crate) sight: &'a Sight,
}

/// What is known to be secret, to take it out of every text that is made from a call.
#[derive(Clone, Debug)]
pub(crate) struct Redactor<'a> {
    /// What was found in the call.
    found: Vec<String>,
    /// What finds others, and what the operator has stored.
    leaks: Option<&'a LeakScanner>,
}

impl<'a> Redactor<'a> {
    pub(crate) fn new(found: &[Vec<u8>], leaks: Option<&'a LeakScanner>) -> Self {
        let spellings = found.iter().flat_map(|secret| {
            let bytes = Bytes::from(secret.as_slice());
            [String::from_utf8_lossy(secret).into_owned(), bytes.display(), bytes.quoted()]
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

/// `call` is the call as it may be written down.
pub(crate) fn card(
    call: &Call,
    judgement: &Judgement,
    context: &Context<'_>,
    redactor: &Redactor<'_>,
) -> Card {
    let mut fields = Fields { redactor, fields: Vec::new() };
    let risk = context.sight.risk(judgement.risk());
    fields.one("id", context.id);
    fields.one("asked by", &asker(context));
    facts(&mut fields, call, (judgement, context));
    context.sight.hidden.iter().for_each(|hidden| fields.one("not shown", hidden));
    reasons(&mut fields, judgement, context.sight);
    if let Some(stated) = context.stated {
        fields.one("claim", &format!("the agent says (untrusted): {}", shown(stated)));
    }
    answers(&mut fields, call, risk, context);
    Card {
        sentence: redactor.clean(&sentence(call)),
        blocks: context.sight.blocks.clone(),
        fields: fields.fields,
    }
}

/// A card as plain lines.
pub fn card_text(card: &Card) -> String {
    let mut text = format!("{}\n", card.sentence);
    for block in &card.blocks {
        block.title.iter().for_each(|title| text.push_str(&format!("{title}\n")));
        block.lines.iter().for_each(|line| text.push_str(&format!("| {line}\n")));
    }
    let mut last = "";
    for (label, value) in &card.fields {
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

/// What "always here" could store, as it is written down. None where too much is at stake for a standing answer.
pub(crate) fn offers(candidates: &[Candidate], risk: Risk, quorum: Quorum) -> Vec<Offer> {
    if risk >= Risk::High || quorum.approve > 1 {
        return Vec::new();
    }
    let scope = |scope| match scope {
        ringfence_authz::Scope::Exact => OfferScope::Exact,
        ringfence_authz::Scope::Here => OfferScope::Here,
        ringfence_authz::Scope::Prefix => OfferScope::Prefix,
    };
    let offer = |candidate: &Candidate| Offer {
        scope: scope(candidate.scope),
        permits: candidate.permits.clone(),
        stored: candidate.stored.clone(),
    };
    candidates.iter().map(offer).collect()
}

fn asker(context: &Context<'_>) -> String {
    let who = match context.requester {
        Principal::Agent { session, name: Some(name) } => {
            format!("agent `{}` in session {session}", shown(name))
        }
        Principal::Agent { session, name: None } => format!("an agent in session {session}"),
        other => other.to_string(),
    };
    format!("{who}, started by {}", context.owner)
}

struct Fields<'a> {
    redactor: &'a Redactor<'a>,
    fields: Vec<(String, String)>,
}

impl Fields<'_> {
    fn one(&mut self, label: &str, text: &str) {
        self.fields.push((label.to_owned(), self.redactor.clean(text)));
    }

    /// One label with several texts; without any, none.
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

fn facts(fields: &mut Fields<'_>, call: &Call, (judgement, context): (&Judgement, &Context<'_>)) {
    match call {
        Call::Exec(exec) => exec_facts(fields, exec, (judgement, context)),
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
        Call::File(_) | Call::Apply(_) | Call::Fetch(_) => {}
    }
    for (label, aspect) in [("writes", Aspect::Write), ("reads", Aspect::Read), ("hosts", Aspect::Host)] {
        let parts = judgement.parts().iter().filter(|part| part.aspect == aspect);
        fields.list(label, parts.map(|part| shown(&part.subject)));
    }
    let foreign = foreign(call);
    if !foreign.is_empty() {
        fields.one("letters", &format!("not ASCII, and maybe not what they look like: {foreign}"));
    }
}

fn exec_facts(fields: &mut Fields<'_>, exec: &Exec, (judgement, context): (&Judgement, &Context<'_>)) {
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
}

/// What the command has as its standard input.
fn input(stdin: &StandardInput) -> String {
    match stdin {
        StandardInput::None => "no standard input".to_owned(),
        StandardInput::Bytes { bytes, sha256, .. } => {
            format!("standard input: {bytes} bytes, shown above, sha256 {}", shown(sha256))
        }
        StandardInput::Terminal => {
            "standard input: not known yet, connected to the terminal of whoever started it".to_owned()
        }
        StandardInput::Stream => {
            "standard input: not known yet, whatever is sent to it while it runs; no stored answer covers it"
                .to_owned()
        }
    }
}

/// Of an image, with what makes it the one that was meant. Where in it `PATH` leads nobody has looked.
fn program(path: &Path, context: &Context<'_>) -> String {
    let shown = |path: &Path| Bytes::from(path).display();
    match context.image {
        Some(image) if !context.roots.iter().any(|root| path.starts_with(root.path.as_path())) => {
            let inside = path.strip_prefix(IN_IMAGE).unwrap_or(path);
            format!("{} of the image `{}`, {}", shown(inside), image.name, image.id)
        }
        _ => shown(path),
    }
}

/// Why it is asked, and how bad it would be.
fn reasons(fields: &mut Fields<'_>, judgement: &Judgement, sight: &Sight) {
    let asked: Vec<&Part> = judgement.parts().iter().filter(|part| part.decision == Decision::Ask).collect();
    let reason = |part: &&Part| match asked.as_slice() {
        [_] => basis(part),
        _ => format!("{}: {}", shown(&part.subject), basis(part)),
    };
    fields.list("because", asked.iter().map(reason));
    let risk = judgement.risk();
    if let Some((lifted, why)) = sight.lift.filter(|(lifted, _)| *lifted > risk) {
        return fields.one("risk", &format!("{lifted}: {why}"));
    }
    let riskiest = judgement.parts().iter().find(|part| part.risk == risk);
    let why = riskiest.map(|part| format!(": {}", shown(why(part)))).unwrap_or_default();
    fields.one("risk", &format!("{risk}{why}"));
}

/// What each answer would mean, who may give it, and what happens without one.
fn answers(fields: &mut Fields<'_>, call: &Call, risk: Risk, context: &Context<'_>) {
    fields.one("once", "allows it this time, as it is now");
    if risk < Risk::High && context.quorum.approve == 1 {
        fields.one("session", &format!("{}, until the session ends; stores a digest of these", same(call)));
    }
    if context.offers.is_empty() {
        fields.one("always here", "not offered: no rule should stand for this");
    }
    for (index, offer) in context.offers.iter().enumerate() {
        let number = if context.offers.len() > 1 { format!("{}. ", index + 1) } else { String::new() };
        let expiry = span(context.grant_expiry);
        fields.one("always here", &format!("{number}{}, for {expiry}", offer.permits));
        let stored: Vec<&str> = offer.stored.lines().collect();
        fields.one("always here", &format!("stores {}", Bytes::from(stored.join(" ").as_str()).display()));
    }
    fields.one("deny", "the same is then not asked again in this session");
    fields.one("no answer", &format!("in {} is a no", span(context.patience)));
    fields.one("who", &who(context));
}

fn who(context: &Context<'_>) -> String {
    let people =
        |count: u8| if count == 1 { "one operator".to_owned() } else { format!("{count} operators") };
    let quorum = match context.quorum {
        Quorum { approve: 1, deny: 1 } => "any operator may answer".to_owned(),
        Quorum { approve, deny } => format!("{} to allow, {} to deny", people(approve), people(deny)),
    };
    let reason = match context.reason_rule {
        ReasonRule::Optional => "",
        ReasonRule::Required => ", with a reason",
    };
    format!("{quorum}{reason}; elsewhere with `ringfence approvals show {}`", context.id)
}

/// What counts as the same action.
fn same(call: &Call) -> &'static str {
    match call {
        Call::Exec(_) => {
            "the same arguments, variables, standard input, programs, named files, directory, network and policy"
        }
        Call::File(FileCall::Write { .. }) => "the same file with the same content",
        Call::File(_) => "the same operation on the same path",
        Call::Apply(_) => "the same changes to the same files",
        Call::Flow(FlowCall { request: None, .. }) => "every connection to the same host and port",
        Call::Flow(_) | Call::Fetch(_) => "the same request",
        Call::Tool(_) => "the same tool with the same input",
    }
}

fn sentence(call: &Call) -> String {
    let name = |bytes: &Bytes| shown(&bytes.display());
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
            format!("May the file `{}` be sent to somebody outside?", name(path))
        }
        Call::Apply(patch) => format!("May {} files be changed as proposed?", patch.files.len()),
        Call::Flow(flow) => {
            format!("May something inside the fence reach `{}` at port {}?", shown(&flow.host), flow.port)
        }
        Call::Fetch(Fetch { by: Fetcher::Agent, .. }) => {
            "May the agent fetch this itself, outside the fence?".to_owned()
        }
        Call::Fetch(_) => "May this be fetched for the agent?".to_owned(),
        Call::Tool(tool) => {
            format!("May the agent call the tool `{}`, outside the fence?", shown(&tool.name))
        }
    }
}

/// Letters that are not ASCII, by number: some look like others, some are read from right to left.
fn foreign(call: &Call) -> String {
    let mut seen: Vec<char> = Vec::new();
    let texts: Vec<&[u8]> = match call {
        Call::Exec(exec) => exec_texts(exec),
        Call::File(FileCall::Move { path, to }) => vec![path.as_slice(), to.as_slice()],
        Call::File(file) => vec![file.path().as_slice()],
        Call::Apply(patch) => patch.files.iter().map(|file| file.path.as_slice()).collect(),
        Call::Tool(tool) => vec![tool.name.as_bytes(), tool.input.as_bytes()],
        // Host and URL are ASCII, or they are no such.
        Call::Flow(_) | Call::Fetch(_) => Vec::new(),
    };
    for chunk in texts.iter().flat_map(|text| text.utf8_chunks()) {
        for c in chunk.valid().chars().filter(|c| !c.is_ascii()) {
            if !seen.contains(&c) && seen.len() <= LETTERS {
                seen.push(c);
            }
        }
    }
    let more = if seen.len() > LETTERS { " and more" } else { "" };
    let named = seen.iter().take(LETTERS).map(|c| {
        let shown = Bytes::from(c.to_string().as_str()).display();
        format!("`{shown}` U+{:04X}", u32::from(*c))
    });
    let named = named.collect::<Vec<_>>().join(", ");
    format!("{named}{more}")
}

/// Everything of a command that an agent has written.
fn exec_texts(exec: &Exec) -> Vec<&[u8]> {
    let variables = exec.env.iter().flat_map(|(name, value)| [name, value]);
    let mut texts: Vec<&[u8]> =
        exec.argv.iter().chain(variables).chain([&exec.cwd]).map(Bytes::as_slice).collect();
    if let StandardInput::Bytes { head, .. } = &exec.stdin {
        texts.push(head.as_slice());
    }
    texts
}

fn why(part: &Part) -> &str {
    if part.reason.is_empty() { &part.rule } else { &part.reason }
}

/// By which rule, of which layer, written where, and why.
fn basis(part: &Part) -> String {
    let origin = part.origin.as_ref().map(|origin| format!(", {origin}")).unwrap_or_default();
    let text = format!("{} ({}{origin})", shown(&part.rule), layer(part.layer));
    if part.reason.is_empty() { text } else { format!("{text}: {}", shown(&part.reason)) }
}

fn layer(layer: Layer) -> &'static str {
    match layer {
        Layer::Floor => "floor",
        Layer::Flags => "flags",
        Layer::Operator => "operator",
        Layer::Workspace => "workspace",
        Layer::Session => "session",
        Layer::Call => "call",
    }
}

/// Escaped, on one line, and never shortened in silence.
fn shown(text: &str) -> String {
    let escaped = Bytes::from(text).display();
    let Some((end, _)) = escaped.char_indices().nth(SHOWN) else { return escaped };
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
