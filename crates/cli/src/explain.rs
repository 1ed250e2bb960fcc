//! A judgement for people (a small tree) and for programs (JSON, schema 1).
//!
//! INVARIANT: whatever comes from an agent or a file is escaped here once more, so that no caller can forget it.

use std::fmt::Write as _;
use std::io::IsTerminal;

use ringfence_runtime::authz::{Aspect, Candidate, Judgement, Origin, Part, Scope};
use ringfence_types::{Bytes, Decision, Layer, Refusal, Risk};
use serde::Serialize;

/// More parts than this are counted, not listed. The one that decides is always named.
const LISTED: usize = 200;
/// Characters of one subject or reason; the rest is counted.
const SHOWN: usize = 400;
/// Deeper parts are listed at this level.
const DEEPEST: usize = 12;

/// How text looks on the stream it goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Style {
    pub(crate) ink: Ink,
    pub(crate) glyphs: Glyphs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ink {
    Plain,
    Colour,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Glyphs {
    Ascii,
    Unicode,
}

impl Style {
    /// Colour only on a terminal that wants it (`NO_COLOR`, `TERM=dumb`); beyond ASCII only in a UTF-8 locale.
    pub(crate) fn of(variables: &[(Bytes, Bytes)], stream: &impl IsTerminal) -> Self {
        let value = |name: &str| {
            let found = variables.iter().find(|(known, _)| known.as_slice() == name.as_bytes());
            found.map(|(_, value)| value.as_slice()).filter(|value| !value.is_empty())
        };
        let plain = value("NO_COLOR").is_some() || value("TERM").is_none_or(|term| term == b"dumb");
        let locale = value("LC_ALL").or_else(|| value("LC_CTYPE")).or_else(|| value("LANG"));
        Self {
            ink: if stream.is_terminal() && !plain { Ink::Colour } else { Ink::Plain },
            glyphs: if locale.is_some_and(is_utf8) { Glyphs::Unicode } else { Glyphs::Ascii },
        }
    }

    pub(crate) fn decision(self, decision: Decision, text: &str) -> String {
        match decision {
            Decision::Allow => self.inked("32", text),
            Decision::Ask => self.inked("33", text),
            Decision::Deny => self.inked("31", text),
        }
    }

    pub(crate) fn strong(self, text: &str) -> String {
        self.inked("1", text)
    }

    /// A terminal that does not read UTF-8 may take a byte inside a letter for a control character.
    pub(crate) fn spelled(self, text: String) -> String {
        if self.glyphs == Glyphs::Unicode || text.is_ascii() {
            return text;
        }
        let mut out = String::with_capacity(text.len());
        for c in text.chars() {
            if c.is_ascii() { out.push(c) } else { out.extend(c.escape_unicode()) }
        }
        out
    }

    fn inked(self, code: &str, text: &str) -> String {
        match self.ink {
            Ink::Plain => text.to_owned(),
            Ink::Colour => format!("\x1b[{code}m{text}\x1b[0m"),
        }
    }

    fn mark(self, decision: Decision) -> &'static str {
        match (self.glyphs, decision) {
            (Glyphs::Unicode, Decision::Allow) => "✓",
            (Glyphs::Unicode, Decision::Deny) => "✗",
            (Glyphs::Ascii, Decision::Allow) => "+",
            (Glyphs::Ascii, Decision::Deny) => "x",
            (_, Decision::Ask) => "?",
        }
    }

    pub(crate) fn pick(self, unicode: &'static str, ascii: &'static str) -> &'static str {
        match self.glyphs {
            Glyphs::Unicode => unicode,
            Glyphs::Ascii => ascii,
        }
    }
}

fn is_utf8(locale: &[u8]) -> bool {
    let locale = locale.to_ascii_lowercase();
    locale.ends_with(b".utf-8") || locale.ends_with(b".utf8")
}

/// The decision, every part with its rule, and what would change it. A refusal is a no to the call as a whole.
pub(crate) fn tree(judged: Result<&Judgement, &Refusal>, style: Style) -> String {
    style.spelled(match judged {
        Ok(judgement) => judgement_tree(judgement, style),
        Err(refusal) => refusal_tree(refusal, style),
    })
}

fn judgement_tree(judgement: &Judgement, style: Style) -> String {
    let mut out = headline(judgement.decision(), judgement.risk(), style);
    let decisive = judgement.decisive();
    let parts = judgement.parts();
    for (part, place) in parts.iter().zip(places(parts)).take(LISTED) {
        // Of one part there is nothing to tell apart.
        let decides = parts.len() > 1 && decisive.is_some_and(|decisive| std::ptr::eq(decisive, part));
        push_part(&mut out, part, place, decides.then_some(style.pick("← decides", "<- decides")), style);
    }
    push_rest(&mut out, parts, decisive);
    for (index, fix) in fixes(judgement).iter().enumerate() {
        let word = if index == 0 { "fix" } else { "and" };
        push_line(&mut out, &format!("{}: {}", style.strong(word), shown(fix)));
    }
    out
}

fn refusal_tree(refusal: &Refusal, style: Style) -> String {
    let mut out = headline(Decision::Deny, REFUSED_RISK, style);
    let mark = style.decision(Decision::Deny, style.mark(Decision::Deny));
    push_line(&mut out, &format!("{}{mark} call  {}", style.pick("└─ ", "`- "), shown(&refusal.message)));
    push_line(&mut out, &format!("       {} ({})", shown(&refusal.rule), layer_word(refusal.layer)));
    if let Some(hint) = &refusal.hint {
        push_line(&mut out, &format!("{}: {}", style.strong("fix"), shown(hint)));
    }
    out
}

fn headline(decision: Decision, risk: Risk, style: Style) -> String {
    let meaning = match decision {
        Decision::Allow => "no question is asked",
        Decision::Ask => "a person has to decide",
        Decision::Deny => "it is refused",
    };
    let risk = if decision == Decision::Allow { String::new() } else { format!(" (risk: {risk})") };
    format!("{}: {meaning}{risk}\n", style.decision(decision, decision_word(decision)))
}

pub(crate) fn decision_word(decision: Decision) -> &'static str {
    match decision {
        Decision::Allow => "allow",
        Decision::Ask => "ask",
        Decision::Deny => "deny",
    }
}

fn push_part(out: &mut String, part: &Part, place: Place, decides: Option<&str>, style: Style) {
    let mark = style.decision(part.decision, style.mark(part.decision));
    let aspect = aspect_word(part.aspect);
    let note = decides.map(|note| format!("  {}", style.strong(note))).unwrap_or_default();
    let branch = if place.last() { style.pick("└─ ", "`- ") } else { style.pick("├─ ", "|- ") };
    let above = place.bars(place.level, style);
    push_line(out, &format!("{above}{branch}{mark} {aspect}  {}{note}", shown(&part.subject)));
    let own = place.bars(place.level + 1, style);
    let below = if place.parent { style.pick("│", "|") } else { " " };
    push_line(out, &format!("{own}{below}   {}", basis(part)));
}

/// By which rule, of which layer, written where, and why.
pub(crate) fn basis(part: &Part) -> String {
    let origin = part.origin.as_ref().map(|origin| format!(", {origin}")).unwrap_or_default();
    let mut text = format!("{} ({}{origin})", shown(&part.rule), layer_word(part.layer));
    if !part.reason.is_empty() {
        let _infallible = write!(text, ": {}", shown(&part.reason));
    }
    text
}

fn push_rest(out: &mut String, parts: &[Part], decisive: Option<&Part>) {
    let Some(rest) = parts.get(LISTED..).filter(|rest| !rest.is_empty()) else { return };
    let count = |decision| rest.iter().filter(|part| part.decision == decision).count();
    let [allow, ask, deny] = [Decision::Allow, Decision::Ask, Decision::Deny].map(count);
    push_line(out, &format!("and {} more parts: {allow} allow, {ask} ask, {deny} deny", rest.len()));
    if let Some(part) = decisive.filter(|part| rest.iter().any(|hidden| std::ptr::eq(*part, hidden))) {
        push_line(out, &format!("decided by {} {}", aspect_word(part.aspect), shown(&part.subject)));
        push_line(out, &format!("   {}", basis(part)));
    }
}

fn push_line(out: &mut String, line: &str) {
    out.push_str(line.trim_end());
    out.push('\n');
}

/// What each of the parts that decide would need, in their order, without repetition.
fn fixes(judgement: &Judgement) -> Vec<&str> {
    const AT_MOST: usize = 5;
    let decision = judgement.decision();
    let strictest = judgement.parts().iter().filter(|part| part.decision == decision);
    let mut fixes: Vec<&str> = Vec::new();
    for fix in strictest.filter_map(|part| part.fix.as_deref()) {
        if !fixes.contains(&fix) && fixes.len() < AT_MOST {
            fixes.push(fix);
        }
    }
    fixes
}

/// Where a part is in the tree.
#[derive(Clone, Copy)]
struct Place {
    level: usize,
    /// Bit n: another part follows at level n, under the same parent.
    follows: u32,
    /// The next part is below this one.
    parent: bool,
}

impl Place {
    fn last(self) -> bool {
        self.follows & (1 << self.level) == 0
    }

    fn bars(self, levels: usize, style: Style) -> String {
        let bar =
            |level: usize| if self.follows & (1 << level) == 0 { "   " } else { style.pick("│  ", "|  ") };
        (0..levels).map(bar).collect()
    }
}

fn places(parts: &[Part]) -> Vec<Place> {
    let levels = levels(parts);
    let mut follows = 0_u32;
    let mut next = 0;
    let mut places: Vec<Place> = Vec::with_capacity(levels.len());
    for level in levels.into_iter().rev() {
        places.push(Place { level, follows, parent: next > level });
        // What is below a part ends with it.
        follows = (follows & ((1 << level) - 1)) | (1 << level);
        next = level;
    }
    places.reverse();
    places
}

/// Depths may skip a step; levels do not.
fn levels(parts: &[Part]) -> Vec<usize> {
    let mut open: Vec<u8> = Vec::new();
    let mut level = |part: &Part| {
        while open.last().is_some_and(|depth| *depth >= part.depth) {
            open.pop();
        }
        let level = open.len().min(DEEPEST);
        open.push(part.depth);
        level
    };
    parts.iter().map(&mut level).collect()
}

/// Escaped, on one line, and never shortened in silence.
pub(crate) fn shown(text: &str) -> String {
    let escaped = Bytes::from(text).display();
    let Some((end, _)) = escaped.char_indices().nth(SHOWN) else { return escaped };
    let (head, tail) = escaped.split_at(end);
    format!("{head}... ({} more characters)", tail.chars().count())
}

fn aspect_word(aspect: Aspect) -> &'static str {
    match aspect {
        Aspect::Command => "command",
        Aspect::Read => "read",
        Aspect::Write => "write",
        Aspect::Variable => "variable",
        Aspect::Host => "host",
        Aspect::Tool => "tool",
        Aspect::Call => "call",
    }
}

fn layer_word(layer: Layer) -> &'static str {
    match layer {
        Layer::Floor => "floor",
        Layer::Flags => "flags",
        Layer::Operator => "operator",
        Layer::Workspace => "workspace",
        Layer::Session => "session",
        Layer::Call => "call",
    }
}

/// A call that is refused as a whole was not looked into.
const REFUSED_RISK: Risk = Risk::High;

/// What `check --json` and `policy explain --json` print, schema 1. Fields are added, never renamed or removed.
#[derive(Debug, Serialize)]
pub(crate) struct Explanation<'a> {
    schema: u32,
    decision: Decision,
    risk: Risk,
    rule: &'a str,
    layer: Layer,
    origin: Option<Origin1>,
    reason: &'a str,
    fix: Option<&'a str>,
    /// Empty where the call was refused as a whole.
    parts: Vec<Part1<'a>>,
    /// What the answer "always here" could store, narrow first.
    candidates: Vec<Candidate1<'a>>,
}

#[derive(Debug, Serialize)]
struct Candidate1<'a> {
    scope: &'static str,
    permits: &'a str,
    stored: &'a str,
}

#[derive(Debug, Serialize)]
struct Part1<'a> {
    aspect: Aspect,
    subject: &'a str,
    decision: Decision,
    /// This is the part that the fields above are about.
    decides: bool,
    risk: Risk,
    rule: &'a str,
    layer: Layer,
    origin: Option<Origin1>,
    reason: &'a str,
    fix: Option<&'a str>,
    /// The arguments of a command, where every one of them is known.
    argv: &'a [Bytes],
    /// The file that would be executed, where it was found.
    program: Option<Bytes>,
    depth: u8,
}

#[derive(Debug, Serialize)]
struct Origin1 {
    file: Bytes,
    line: u32,
    column: u32,
}

pub(crate) fn json<'a>(
    judged: Result<&'a Judgement, &'a Refusal>,
    candidates: &'a [Candidate],
) -> Explanation<'a> {
    let explanation = match judged {
        Ok(judgement) => judgement_json(judgement),
        Err(refusal) => refusal_json(refusal),
    };
    Explanation { candidates: candidates.iter().map(candidate_json).collect(), ..explanation }
}

fn candidate_json(candidate: &Candidate) -> Candidate1<'_> {
    let scope = match candidate.scope {
        Scope::Exact => "exact",
        Scope::Here => "here",
        Scope::Prefix => "prefix",
    };
    Candidate1 { scope, permits: &candidate.permits, stored: &candidate.stored }
}

fn judgement_json(judgement: &Judgement) -> Explanation<'_> {
    let decisive = judgement.decisive();
    Explanation {
        schema: 1,
        decision: judgement.decision(),
        risk: judgement.risk(),
        rule: decisive.map_or("", |part| &part.rule),
        layer: decisive.map_or(Layer::Floor, |part| part.layer),
        origin: decisive.and_then(|part| part.origin.as_ref()).map(origin_json),
        reason: decisive.map_or("", |part| &part.reason),
        fix: decisive.and_then(|part| part.fix.as_deref()),
        parts: judgement.parts().iter().map(|part| part_json(part, decisive)).collect(),
        candidates: Vec::new(),
    }
}

fn refusal_json(refusal: &Refusal) -> Explanation<'_> {
    Explanation {
        schema: 1,
        decision: Decision::Deny,
        risk: REFUSED_RISK,
        rule: &refusal.rule,
        layer: refusal.layer,
        origin: None,
        reason: &refusal.message,
        fix: refusal.hint.as_deref(),
        parts: Vec::new(),
        candidates: Vec::new(),
    }
}

fn part_json<'a>(part: &'a Part, decisive: Option<&Part>) -> Part1<'a> {
    Part1 {
        aspect: part.aspect,
        subject: &part.subject,
        decision: part.decision,
        decides: decisive.is_some_and(|decisive| std::ptr::eq(decisive, part)),
        risk: part.risk,
        rule: &part.rule,
        layer: part.layer,
        origin: part.origin.as_ref().map(origin_json),
        reason: &part.reason,
        fix: part.fix.as_deref(),
        argv: &part.argv,
        program: part.program.as_deref().map(Bytes::from),
        depth: part.depth,
    }
}

fn origin_json(origin: &Origin) -> Origin1 {
    Origin1 { file: Bytes::from(origin.file.as_path()), line: origin.line, column: origin.column }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use ringfence_runtime::authz::RuleSource;
    use ringfence_types::RefusalCode;
    use serde_json::Value;

    use super::*;

    const PLAIN: Style = Style { ink: Ink::Plain, glyphs: Glyphs::Unicode };

    fn allowed(subject: &str) -> Part {
        Part::new(Aspect::Command, subject, "guarded.listed").because("on the list")
    }

    fn asked(subject: &str) -> Part {
        Part::new(Aspect::Command, subject, "guarded.miss")
            .because("not on the list")
            .ask(Risk::Medium, format!("`allow = [\"{subject}\"]`"))
    }

    fn denied(subject: &str) -> Part {
        let origin = Origin { file: PathBuf::from("/etc/ringfence/policy.toml"), line: 12, column: 3 };
        let source = RuleSource { layer: Layer::Operator, origin: Some(origin), reason: None };
        Part::new(Aspect::Write, subject, "paths.deny")
            .because("keys stay where they are")
            .deny(Risk::High, "write somewhere else")
            .by(&source)
    }

    fn judgement(parts: Vec<Part>) -> Judgement {
        Judgement::new(parts, denied("nothing"))
    }

    fn refusal() -> Refusal {
        Refusal {
            code: RefusalCode::Profile,
            layer: Layer::Flags,
            rule: "profile.review".to_owned(),
            message: "profile `review` runs no commands".to_owned(),
            hint: Some("use `--profile workspace`".to_owned()),
        }
    }

    #[test]
    fn one_part_is_three_lines() {
        let text = tree(Ok(&judgement(vec![allowed("ls -la")])), PLAIN);
        assert_eq!(
            text,
            "allow: no question is asked\n\
             └─ ✓ command  ls -la\n\
             \x20      guarded.listed (floor): on the list\n"
        );
    }

    #[test]
    fn parts_hang_below_what_runs_them() {
        let mut parts = vec![
            allowed("ls"),
            asked("timeout 5 npm test"),
            asked("npm test").at_depth(2),
            denied("/w/key").at_depth(3),
            allowed("wc").at_depth(2),
            allowed("true"),
        ];
        let expected = "\
deny: it is refused (risk: high)
├─ ✓ command  ls
│      guarded.listed (floor): on the list
├─ ? command  timeout 5 npm test
│  │   guarded.miss (floor): not on the list
│  ├─ ? command  npm test
│  │  │   guarded.miss (floor): not on the list
│  │  └─ ✗ write  /w/key  ← decides
│  │         paths.deny (operator, /etc/ringfence/policy.toml:12:3): keys stay where they are
│  └─ ✓ command  wc
│         guarded.listed (floor): on the list
└─ ✓ command  true
       guarded.listed (floor): on the list
fix: write somewhere else
";
        assert_eq!(tree(Ok(&judgement(parts.clone())), PLAIN), expected);
        parts.push(allowed("\u{c3}\u{db}"));
        let ascii = tree(Ok(&judgement(parts)), Style { glyphs: Glyphs::Ascii, ..PLAIN });
        assert!(ascii.is_ascii(), "{ascii}");
        assert!(ascii.contains("|  |  `- x write  /w/key  <- decides\n"), "{ascii}");
    }

    #[test]
    fn every_asked_part_has_its_fix_once() {
        let text = tree(Ok(&judgement(vec![asked("a"), asked("b"), asked("a"), allowed("ls")])), PLAIN);
        assert!(text.ends_with("fix: `allow = [\"a\"]`\nand: `allow = [\"b\"]`\n"), "{text}");
    }

    #[test]
    fn a_refusal_of_the_whole_call_is_a_tree_too() {
        let text = tree(Err(&refusal()), PLAIN);
        assert_eq!(
            text,
            "deny: it is refused (risk: high)\n\
             └─ ✗ call  profile `review` runs no commands\n\
             \x20      profile.review (flags)\n\
             fix: use `--profile workspace`\n"
        );
    }

    #[test]
    fn nothing_from_an_agent_reaches_the_terminal_as_it_is() {
        let evil = "a\x1b[2J\n└─ ✓ forged\u{202e}\r";
        let mut part = asked(evil);
        part.rule = evil.into();
        part.reason = evil.into();
        let text = tree(Ok(&judgement(vec![part])), PLAIN);
        assert!(!text.contains(['\x1b', '\r', '\u{202e}']), "{text:?}");
        assert_eq!(text.lines().count(), 4, "{text}");
    }

    #[test]
    fn colour_is_only_added() {
        let parts = judgement(vec![allowed("ls"), asked("npm test"), denied("/w/k")]);
        let colour = tree(Ok(&parts), Style { ink: Ink::Colour, ..PLAIN });
        let mut bare = colour.clone();
        for code in ["\x1b[0m", "\x1b[1m", "\x1b[31m", "\x1b[32m", "\x1b[33m"] {
            assert!(bare.contains(code), "{code:?}");
            bare = bare.replace(code, "");
        }
        assert_eq!(bare, tree(Ok(&parts), PLAIN));
    }

    #[test]
    fn large_judgements_stay_readable_and_hide_nothing_in_silence() {
        let mut parts: Vec<Part> =
            (0..100_000_u32).map(|n| allowed("ls").at_depth(n.to_le_bytes()[0])).collect();
        parts.push(denied(&"k".repeat(1_000_000)));
        let text = tree(Ok(&judgement(parts)), PLAIN);
        assert!(text.len() < 100_000, "{}", text.len());
        assert!(text.contains("and 99801 more parts: 99800 allow, 0 ask, 1 deny\n"), "{text}");
        assert!(text.contains("decided by write kkk"), "{text}");
        assert!(text.contains("... (999600 more characters)"), "{text}");
    }

    #[test]
    fn the_style_follows_the_stream_and_the_locale() {
        let variables = |pairs: &[(&str, &str)]| -> Vec<(Bytes, Bytes)> {
            pairs.iter().map(|(name, value)| (Bytes::from(*name), Bytes::from(*value))).collect()
        };
        let file = tempfile::tempfile().unwrap();
        let utf8 = Style { ink: Ink::Plain, glyphs: Glyphs::Unicode };
        let ascii = Style { ink: Ink::Plain, glyphs: Glyphs::Ascii };
        assert_eq!(Style::of(&variables(&[("TERM", "xterm"), ("LANG", "de_DE.UTF-8")]), &file), utf8);
        assert_eq!(Style::of(&variables(&[("LC_ALL", "C"), ("LANG", "de_DE.UTF-8")]), &file), ascii);
        assert_eq!(Style::of(&variables(&[("LC_ALL", ""), ("LANG", "C.utf8")]), &file), utf8);
        assert_eq!(Style::of(&[], &file), ascii);
    }

    #[test]
    fn json_has_every_field_always() {
        let value =
            serde_json::to_value(json(Ok(&judgement(vec![allowed("ls"), denied("/w/k")])), &[])).unwrap();
        let origin = serde_json::json!({"file": "/etc/ringfence/policy.toml", "line": 12, "column": 3});
        assert_eq!(
            value,
            serde_json::json!({
                "schema": 1, "decision": "deny", "risk": "high", "rule": "paths.deny", "layer": "operator",
                "origin": origin, "reason": "keys stay where they are", "fix": "write somewhere else",
                "parts": [
                    {"aspect": "command", "subject": "ls", "decision": "allow", "decides": false, "risk": "low",
                     "rule": "guarded.listed", "layer": "floor", "origin": null, "reason": "on the list",
                     "fix": null, "argv": [], "program": null, "depth": 0},
                    {"aspect": "write", "subject": "/w/k", "decision": "deny", "decides": true, "risk": "high",
                     "rule": "paths.deny", "layer": "operator", "origin": origin,
                     "reason": "keys stay where they are", "fix": "write somewhere else", "argv": [], "program": null, "depth": 0},
                ],
                "candidates": [],
            })
        );
        let refused = serde_json::to_value(json(Err(&refusal()), &[])).unwrap();
        let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(keys(&refused), keys(&value), "the same fields for a refusal");
        assert_eq!(refused["rule"], "profile.review");
        assert_eq!(refused["decision"], "deny");
    }
}
