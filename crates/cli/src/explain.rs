//! Shows a judgement to people (a small tree) and to programs (JSON, schema 1).
//!
//! INVARIANT: text of an agent or a file is escaped here once more, so that no caller can forget it.

use std::fmt::Write as _;
use std::io::IsTerminal;

use ringfence_authz::{CandidateScope, GrantCandidate, Judgement, JudgementPart, PartKind, RuleLocation};
use ringfence_types::{ByteString, Decision, PolicyLayer, Refusal, Risk};
use serde::Serialize;

/// Further parts are counted, not listed. The decisive part is always named.
const LISTED: usize = 200;
/// Limit of characters in a subject or reason; the rest is counted.
const SHOWN: usize = 400;
/// Deeper parts are listed at this level.
const DEEPEST: usize = 12;

/// How text looks on its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TextStyle {
    pub(crate) ink: TextColor,
    pub(crate) glyphs: Glyphs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextColor {
    Plain,
    Colour,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Glyphs {
    Ascii,
    Unicode,
}

impl TextStyle {
    /// Colour only on a terminal that wants it (`NO_COLOR`, `TERM=dumb`); beyond ASCII only in a UTF-8
    /// locale.
    pub(crate) fn of(variables: &[(ByteString, ByteString)], stream: &impl IsTerminal) -> Self {
        let value = |name: &str| {
            let found = variables.iter().find(|(known, _)| known.as_slice() == name.as_bytes());
            found.map(|(_, value)| value.as_slice()).filter(|value| !value.is_empty())
        };
        let plain = value("NO_COLOR").is_some() || value("TERM").is_none_or(|term| term == b"dumb");
        let locale = value("LC_ALL").or_else(|| value("LC_CTYPE")).or_else(|| value("LANG"));
        Self {
            ink: if stream.is_terminal() && !plain { TextColor::Colour } else { TextColor::Plain },
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

    /// Escapes non-ASCII: a terminal without UTF-8 may take a byte inside a letter for a control character.
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
            TextColor::Plain => text.to_owned(),
            TextColor::Colour => format!("\x1b[{code}m{text}\x1b[0m"),
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

/// The decision, every part with its rule, and what would change it. A refusal concerns the call as a whole.
pub(crate) fn tree(judged: Result<&Judgement, &Refusal>, style: TextStyle) -> String {
    style.spelled(match judged {
        Ok(judgement) => judgement_tree(judgement, style),
        Err(refusal) => refusal_tree(refusal, style),
    })
}

fn judgement_tree(judgement: &Judgement, style: TextStyle) -> String {
    let mut out = headline(judgement.decision(), judgement.risk(), style);
    let decisive = judgement.decisive();
    let parts = judgement.parts();
    for (part, place) in parts.iter().zip(places(parts)).take(LISTED) {
        // A single part needs no mark.
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

fn refusal_tree(refusal: &Refusal, style: TextStyle) -> String {
    let mut out = headline(Decision::Deny, REFUSED_RISK, style);
    let mark = style.decision(Decision::Deny, style.mark(Decision::Deny));
    push_line(&mut out, &format!("{}{mark} call  {}", style.pick("└─ ", "`- "), shown(&refusal.message)));
    push_line(&mut out, &format!("       {} ({})", shown(&refusal.rule), layer_word(refusal.layer)));
    if let Some(hint) = &refusal.hint {
        push_line(&mut out, &format!("{}: {}", style.strong("fix"), shown(hint)));
    }
    out
}

fn headline(decision: Decision, risk: Risk, style: TextStyle) -> String {
    let meaning = match decision {
        Decision::Allow => "no approval is needed",
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

fn push_part(
    out: &mut String,
    part: &JudgementPart,
    place: TreePosition,
    decides: Option<&str>,
    style: TextStyle,
) {
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

/// The rule, its layer, its origin and its reason.
pub(crate) fn basis(part: &JudgementPart) -> String {
    let origin = part.origin.as_ref().map(|origin| format!(", {origin}")).unwrap_or_default();
    let mut text = format!("{} ({}{origin})", shown(&part.rule), layer_word(part.layer));
    if !part.reason.is_empty() {
        let _infallible = write!(text, ": {}", shown(&part.reason));
    }
    text
}

fn push_rest(out: &mut String, parts: &[JudgementPart], decisive: Option<&JudgementPart>) {
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

/// The fixes of the decisive parts, in order, without repetition.
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

/// The position of a part in the tree.
#[derive(Clone, Copy)]
struct TreePosition {
    level: usize,
    /// Bit n: another part follows at level n, under the same parent.
    follows: u32,
    /// The next part is below this one.
    parent: bool,
}

impl TreePosition {
    fn last(self) -> bool {
        self.follows & (1 << self.level) == 0
    }

    fn bars(self, levels: usize, style: TextStyle) -> String {
        let bar =
            |level: usize| if self.follows & (1 << level) == 0 { "   " } else { style.pick("│  ", "|  ") };
        (0..levels).map(bar).collect()
    }
}

fn places(parts: &[JudgementPart]) -> Vec<TreePosition> {
    let levels = levels(parts);
    let mut follows = 0_u32;
    let mut next = 0;
    let mut places: Vec<TreePosition> = Vec::with_capacity(levels.len());
    for level in levels.into_iter().rev() {
        places.push(TreePosition { level, follows, parent: next > level });
        // The parts below a part end with it.
        follows = (follows & ((1 << level) - 1)) | (1 << level);
        next = level;
    }
    places.reverse();
    places
}

/// Depths may skip a step; levels do not.
fn levels(parts: &[JudgementPart]) -> Vec<usize> {
    let mut open: Vec<u8> = Vec::new();
    let mut level = |part: &JudgementPart| {
        while open.last().is_some_and(|depth| *depth >= part.depth) {
            open.pop();
        }
        let level = open.len().min(DEEPEST);
        open.push(part.depth);
        level
    };
    parts.iter().map(&mut level).collect()
}

/// Escapes a text to one line; every omission is marked.
pub(crate) fn shown(text: &str) -> String {
    let escaped = ByteString::from(text).display();
    let Some((end, _)) = escaped.char_indices().nth(SHOWN) else { return escaped };
    let (head, tail) = escaped.split_at(end);
    format!("{head}... ({} more characters)", tail.chars().count())
}

fn aspect_word(aspect: PartKind) -> &'static str {
    match aspect {
        PartKind::Command => "command",
        PartKind::Read => "read",
        PartKind::Write => "write",
        PartKind::Variable => "variable",
        PartKind::Host => "host",
        PartKind::Tool => "tool",
        PartKind::Call => "call",
    }
}

fn layer_word(layer: PolicyLayer) -> &'static str {
    match layer {
        PolicyLayer::Floor => "floor",
        PolicyLayer::Flags => "flags",
        PolicyLayer::Operator => "operator",
        PolicyLayer::Workspace => "workspace",
        PolicyLayer::Session => "session",
        PolicyLayer::Call => "call",
    }
}

/// A call refused as a whole was not analysed, so its risk counts as high.
const REFUSED_RISK: Risk = Risk::High;

/// What `check --json` and `policy explain --json` print, schema 1. Fields are added, never renamed or
/// removed.
#[derive(Debug, Serialize)]
pub(crate) struct Explanation<'a> {
    schema: u32,
    decision: Decision,
    risk: Risk,
    rule: &'a str,
    layer: PolicyLayer,
    origin: Option<OriginJson>,
    reason: &'a str,
    fix: Option<&'a str>,
    /// Empty if the call was refused as a whole.
    parts: Vec<PartJson<'a>>,
    /// What the answer "always here" could store, narrow first.
    candidates: Vec<CandidateJson<'a>>,
}

#[derive(Debug, Serialize)]
struct CandidateJson<'a> {
    scope: &'static str,
    permits: &'a str,
    stored: &'a str,
}

#[derive(Debug, Serialize)]
struct PartJson<'a> {
    aspect: PartKind,
    subject: &'a str,
    decision: Decision,
    /// Marks the part that the fields above describe.
    decides: bool,
    risk: Risk,
    rule: &'a str,
    layer: PolicyLayer,
    origin: Option<OriginJson>,
    reason: &'a str,
    fix: Option<&'a str>,
    /// The arguments of a command, if all of them are known.
    argv: &'a [ByteString],
    /// The file that would be executed, if it was found.
    program: Option<ByteString>,
    depth: u8,
}

#[derive(Debug, Serialize)]
struct OriginJson {
    file: ByteString,
    line: u32,
    column: u32,
}

pub(crate) fn json<'a>(
    judged: Result<&'a Judgement, &'a Refusal>,
    candidates: &'a [GrantCandidate],
) -> Explanation<'a> {
    let explanation = match judged {
        Ok(judgement) => judgement_json(judgement),
        Err(refusal) => refusal_json(refusal),
    };
    Explanation { candidates: candidates.iter().map(candidate_json).collect(), ..explanation }
}

fn candidate_json(candidate: &GrantCandidate) -> CandidateJson<'_> {
    let scope = match candidate.scope {
        CandidateScope::Exact => "exact",
        CandidateScope::Here => "here",
        CandidateScope::Prefix => "prefix",
    };
    CandidateJson { scope, permits: &candidate.permits, stored: &candidate.stored }
}

fn judgement_json(judgement: &Judgement) -> Explanation<'_> {
    let decisive = judgement.decisive();
    Explanation {
        schema: 1,
        decision: judgement.decision(),
        risk: judgement.risk(),
        rule: decisive.map_or("", |part| &part.rule),
        layer: decisive.map_or(PolicyLayer::Floor, |part| part.layer),
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

fn part_json<'a>(part: &'a JudgementPart, decisive: Option<&JudgementPart>) -> PartJson<'a> {
    PartJson {
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
        program: part.program.as_deref().map(ByteString::from),
        depth: part.depth,
    }
}

fn origin_json(origin: &RuleLocation) -> OriginJson {
    OriginJson { file: ByteString::from(origin.file.as_path()), line: origin.line, column: origin.column }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use ringfence_authz::RuleSource;
    use ringfence_types::{RefusalCode, RuleFamily, RuleId, RuleName};
    use serde_json::Value;

    use super::*;

    const PLAIN: TextStyle = TextStyle { ink: TextColor::Plain, glyphs: Glyphs::Unicode };

    fn allowed(subject: &str) -> JudgementPart {
        JudgementPart::new(PartKind::Command, subject, RuleFamily::Guarded.member("listed"))
            .because("on the list")
    }

    fn asked(subject: &str) -> JudgementPart {
        JudgementPart::new(PartKind::Command, subject, RuleId::GuardedUnlisted)
            .because("not on the list")
            .ask(Risk::Medium, format!("`allow = [\"{subject}\"]`"))
    }

    fn denied(subject: &str) -> JudgementPart {
        let origin = RuleLocation { file: PathBuf::from("/etc/ringfence/policy.toml"), line: 12, column: 3 };
        let source = RuleSource { layer: PolicyLayer::Operator, origin: Some(origin), reason: None };
        JudgementPart::new(PartKind::Write, subject, RuleId::PathRule)
            .because("keys stay where they are")
            .deny(Risk::High, "write somewhere else")
            .by(&source)
    }

    fn judgement(parts: Vec<JudgementPart>) -> Judgement {
        Judgement::new(parts, denied("nothing"))
    }

    fn refusal() -> Refusal {
        Refusal {
            code: RefusalCode::Profile,
            layer: PolicyLayer::Flags,
            rule: RuleId::ProfileReview.into(),
            message: "profile `review` runs no commands".to_owned(),
            hint: Some("use `--profile workspace`".to_owned()),
        }
    }

    #[test]
    fn one_part_is_three_lines() {
        let text = tree(Ok(&judgement(vec![allowed("ls -la")])), PLAIN);
        assert_eq!(
            text,
            "allow: no approval is needed\n\
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
│  │   guarded.unlisted (floor): not on the list
│  ├─ ? command  npm test
│  │  │   guarded.unlisted (floor): not on the list
│  │  └─ ✗ write  /w/key  ← decides
│  │         path.rule (operator, /etc/ringfence/policy.toml:12:3): keys stay where they are
│  └─ ✓ command  wc
│         guarded.listed (floor): on the list
└─ ✓ command  true
       guarded.listed (floor): on the list
fix: write somewhere else
";
        assert_eq!(tree(Ok(&judgement(parts.clone())), PLAIN), expected);
        parts.push(allowed("\u{c3}\u{db}"));
        let ascii = tree(Ok(&judgement(parts)), TextStyle { glyphs: Glyphs::Ascii, ..PLAIN });
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
        part.rule = RuleName::of_scanner(evil);
        part.reason = evil.into();
        let text = tree(Ok(&judgement(vec![part])), PLAIN);
        assert!(!text.contains(['\x1b', '\r', '\u{202e}']), "{text:?}");
        assert_eq!(text.lines().count(), 4, "{text}");
    }

    #[test]
    fn colour_is_only_added() {
        let parts = judgement(vec![allowed("ls"), asked("npm test"), denied("/w/k")]);
        let colour = tree(Ok(&parts), TextStyle { ink: TextColor::Colour, ..PLAIN });
        let mut bare = colour.clone();
        for code in ["\x1b[0m", "\x1b[1m", "\x1b[31m", "\x1b[32m", "\x1b[33m"] {
            assert!(bare.contains(code), "{code:?}");
            bare = bare.replace(code, "");
        }
        assert_eq!(bare, tree(Ok(&parts), PLAIN));
    }

    #[test]
    fn large_judgements_stay_readable_and_hide_nothing_in_silence() {
        let mut parts: Vec<JudgementPart> =
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
        let variables = |pairs: &[(&str, &str)]| -> Vec<(ByteString, ByteString)> {
            pairs.iter().map(|(name, value)| (ByteString::from(*name), ByteString::from(*value))).collect()
        };
        let file = tempfile::tempfile().unwrap();
        let utf8 = TextStyle { ink: TextColor::Plain, glyphs: Glyphs::Unicode };
        let ascii = TextStyle { ink: TextColor::Plain, glyphs: Glyphs::Ascii };
        assert_eq!(TextStyle::of(&variables(&[("TERM", "xterm"), ("LANG", "de_DE.UTF-8")]), &file), utf8);
        assert_eq!(TextStyle::of(&variables(&[("LC_ALL", "C"), ("LANG", "de_DE.UTF-8")]), &file), ascii);
        assert_eq!(TextStyle::of(&variables(&[("LC_ALL", ""), ("LANG", "C.utf8")]), &file), utf8);
        assert_eq!(TextStyle::of(&[], &file), ascii);
    }

    #[test]
    fn json_has_every_field_always() {
        let value =
            serde_json::to_value(json(Ok(&judgement(vec![allowed("ls"), denied("/w/k")])), &[])).unwrap();
        let origin = serde_json::json!({"file": "/etc/ringfence/policy.toml", "line": 12, "column": 3});
        assert_eq!(
            value,
            serde_json::json!({
                "schema": 1, "decision": "deny", "risk": "high", "rule": "path.rule", "layer": "operator",
                "origin": origin, "reason": "keys stay where they are", "fix": "write somewhere else",
                "parts": [
                    {"aspect": "command", "subject": "ls", "decision": "allow", "decides": false, "risk": "low",
                     "rule": "guarded.listed", "layer": "floor", "origin": null, "reason": "on the list",
                     "fix": null, "argv": [], "program": null, "depth": 0},
                    {"aspect": "write", "subject": "/w/k", "decision": "deny", "decides": true, "risk": "high",
                     "rule": "path.rule", "layer": "operator", "origin": origin,
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
