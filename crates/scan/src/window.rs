//! Scan of one window: keywords, shapes, decoding, and the same again in decoded bytes.

use std::ops::Range;
use std::sync::Arc;

use regex_automata::{Anchored, Input};

use crate::decode::{self, DecodeBudget, DecodedPiece, StripState};
use crate::finding::{Confidence, Encoding, EncodingLayers, Finding};
use crate::matcher::Matcher;
use crate::registered_secrets::SecretForm;
use crate::rules::{CompiledRules, RuleEdges, RulePattern, RuleShape, RuleStrength, ScanRule, is_reference};
use crate::scanner::{KeywordTarget, ScanEngine};

/// Nesting depth of encodings. Removed separators do not count.
const DEEPEST: usize = 3;
/// Decoded bytes per byte of a window, and at least so many.
const DECODED: usize = 16;
const DECODED_AT_LEAST: usize = 8 << 20;
/// Bytes that shapes are compared with, per byte of a window, and at least so many.
const COMPARED: usize = 64;
const COMPARED_AT_LEAST: usize = 1 << 20;
/// What a comparison costs that ends after a few bytes, and how long one is that may not.
const NEAR: usize = 64;
const FAR: usize = 512;
/// Finding the groups of a match costs more than finding its end.
const GROUPS: usize = 4;
/// What a line must begin with to go on with a secret that already was complete.
const FEWEST_LETTERS: usize = 6;
const LONGEST_WORD: usize = 12;

/// What was found in a window, unsorted and with overlaps.
#[derive(Debug)]
pub(crate) struct WindowFindings {
    pub(crate) findings: Vec<Finding>,
    /// How often a limit stopped the search.
    pub(crate) refused: u64,
}

pub(crate) fn look(engine: &ScanEngine, window: &[u8]) -> WindowFindings {
    let decoded = window.len().saturating_mul(DECODED).max(DECODED_AT_LEAST);
    let compared = window.len().saturating_mul(COMPARED).max(COMPARED_AT_LEAST);
    let mut search =
        WindowSearch { engine, decoded: DecodeBudget::new(decoded), compared: DecodeBudget::new(compared) };
    let findings = search.layer(DecodedBytes::outermost(window));
    WindowFindings { findings, refused: search.decoded.refused + search.compared.refused }
}

/// Bytes, how they were come by, and what was found in them.
struct DecodedBytes<'b> {
    bytes: &'b [u8],
    layers: EncodingLayers,
    depth: usize,
    joined: StripState,
    findings: Vec<Finding>,
}

impl<'b> DecodedBytes<'b> {
    fn outermost(bytes: &'b [u8]) -> Self {
        Self {
            bytes,
            layers: EncodingLayers::default(),
            depth: 0,
            joined: StripState::No,
            findings: Vec::new(),
        }
    }

    fn inside(&self, piece: &'b DecodedPiece) -> Self {
        let joined = piece.joined();
        let depth = self.depth + usize::from(joined == StripState::No);
        let layers = piece.encodings.iter().fold(self.layers, |layers, encoding| layers.inside(*encoding));
        Self { bytes: &piece.bytes, layers, depth, joined, findings: Vec::new() }
    }

    fn found(&mut self, rule: &Arc<str>, range: Range<usize>, confidence: Confidence) -> &mut Finding {
        self.findings.push_mut(Finding {
            rule: rule.clone(),
            start: range.start,
            end: range.end,
            layers: self.layers,
            confidence,
            fingerprint: None,
        })
    }
}

struct WindowSearch<'e> {
    engine: &'e ScanEngine,
    decoded: DecodeBudget,
    compared: DecodeBudget,
}

impl WindowSearch<'_> {
    fn layer(&mut self, mut layer: DecodedBytes<'_>) -> Vec<Finding> {
        self.announced(&mut layer);
        if layer.depth < DEEPEST {
            for piece in decode::pieces(layer.bytes, layer.joined, &mut self.decoded) {
                self.piece(&piece, &mut layer);
            }
        }
        layer.findings
    }

    fn announced(&mut self, layer: &mut DecodedBytes<'_>) {
        let engine = self.engine;
        engine.keywords.each(layer.bytes, |keyword, hit| {
            for target in engine.targets.get(keyword).into_iter().flatten() {
                match *target {
                    KeywordTarget::Rule(at) => {
                        engine.rules.get(at).map(|rule| self.by_rule(rule, hit.clone(), layer))
                    }
                    KeywordTarget::Form(at) => {
                        engine.forms.get(at).map(|form| self.by_form(form, hit.start, layer))
                    }
                };
            }
        });
    }

    fn by_form(&self, form: &SecretForm, start: usize, layer: &mut DecodedBytes<'_>) {
        if !form.is_at(layer.bytes, start) {
            return;
        }
        let found = form.found(start..start + form.bytes.len(), self.engine.salt.as_ref());
        let layers = form.encoding.map_or(layer.layers, |encoding| layer.layers.inside(encoding));
        layer.findings.push(Finding { layers, ..found });
    }

    fn by_rule(&mut self, rule: &ScanRule, hit: Range<usize>, layer: &mut DecodedBytes<'_>) {
        let known =
            |finding: &Finding| (finding.start..finding.end).contains(&hit.start) && finding.rule == rule.id;
        if layer.findings.last().is_some_and(known) {
            return;
        }
        let Some((range, edged)) = self.matched(rule, layer.bytes, hit) else { return };
        let Some(value) = layer.bytes.get(range.clone()) else { return };
        let checked = rule.checksum.is_some_and(|checksum| checksum.is_right(value));
        if !checked && (!edged || !admits(rule, value)) {
            return;
        }
        let confidence = match (checked, rule.strength) {
            (true, _) => Confidence::Checksum,
            (false, RuleStrength::Shape) => Confidence::Shape,
            (false, RuleStrength::Context) => Confidence::Context,
        };
        let fingerprint = self.engine.salt.as_ref().map(|salt| salt.fingerprint(value));
        layer.found(&rule.id, range, confidence).fingerprint = fingerprint;
    }

    /// The secret, and whether it stands alone.
    fn matched(&mut self, rule: &ScanRule, bytes: &[u8], hit: Range<usize>) -> Option<(Range<usize>, bool)> {
        match &rule.shape {
            RuleShape::Built(matcher) => Some((matcher.find(bytes, hit)?, true)),
            RuleShape::Pattern(pattern) => self.patterned(rule, pattern, bytes, hit),
        }
    }

    fn patterned(
        &mut self,
        rule: &ScanRule,
        pattern: &RulePattern,
        bytes: &[u8],
        hit: Range<usize>,
    ) -> Option<(Range<usize>, bool)> {
        let from = hit.start.saturating_sub(pattern.before);
        let to = (hit.end + pattern.reach).min(bytes.len());
        let CompiledRules { regex, shortest } = pattern.compiled()?;
        if pattern.before == 0 && !may_begin(rule, pattern, *shortest, bytes.get(..to)?, hit.start) {
            return None;
        }
        // Most end after a few bytes. Those that may go far pay for all of it.
        let near = (hit.start - from + 1) * NEAR;
        if !self.compared.take(if pattern.reach > FAR { near + to - from } else { near }) {
            return None;
        }
        // A match begins at or before its keyword. Searching from there to the end of its reach instead would look at
        // everything behind each keyword.
        let input = |start: usize| Input::new(bytes).span(start..to).anchored(Anchored::Yes);
        let matched = |start: usize| Some((start, regex.search_half(&input(start))?.offset()));
        let (start, end) = (from..=hit.start).find_map(matched)?;
        if !self.compared.take((end - start) * GROUPS) {
            return None;
        }
        let mut captures = regex.create_captures();
        regex.search_captures(&input(start), &mut captures);
        let whole = captures.get_match()?;
        let secret = captures.get_group(1).unwrap_or_else(|| whole.span());
        let edged = pattern.edges == RuleEdges::Anything || stands_alone(bytes, whole.range());
        Some((secret.start..secret.end, edged))
    }

    fn piece(&mut self, piece: &DecodedPiece, layer: &mut DecodedBytes<'_>) {
        let direct = layer.findings.len();
        for mut found in self.layer(layer.inside(piece)) {
            let Some(mut source) = piece.places.source(found.start..found.end) else { continue };
            if piece.is_joint() && source.len() == found.end - found.start {
                continue;
            }
            if found.layers.iter().last() == Some(Encoding::Lines) {
                source.end = without_next_word(layer.bytes, &source);
            }
            let known = layer.findings.get(..direct).unwrap_or_default();
            if !piece.is_joint() || is_really_joined(layer.bytes, &source, &found, known) {
                (found.start, found.end) = (source.start, source.end);
                layer.findings.push(found);
            }
        }
    }
}

fn admits(rule: &ScanRule, value: &[u8]) -> bool {
    // Matchers decide by themselves.
    let is_named = rule.strength == RuleStrength::Context && is_reference(value);
    matches!(rule.shape, RuleShape::Built(_)) || (!is_named && rule.gate.admits(value))
}

/// Decided before anything is compared: a keyword in the middle of a word, and one that begins a short word, are most of
/// all keywords in a text, and a run of one letter may be full of them.
fn may_begin(rule: &ScanRule, pattern: &RulePattern, shortest: usize, bytes: &[u8], start: usize) -> bool {
    if pattern.edges == RuleEdges::Anything {
        return true;
    }
    let is_whole = || {
        let word = bytes.get(start..start + shortest);
        word.is_some_and(|word| !word.iter().any(u8::is_ascii_whitespace))
    };
    let stands = rule.checksum.is_some() || starts_alone(bytes, start);
    stands && (rule.strength == RuleStrength::Context || is_whole())
}

/// Neither a letter nor a digit on either side.
fn stands_alone(bytes: &[u8], range: Range<usize>) -> bool {
    let right = bytes.get(range.end).is_none_or(|byte| !byte.is_ascii_alphanumeric());
    right && starts_alone(bytes, range.start)
}

/// The letter of a written-out line break (`\n`) does not count.
fn starts_alone(bytes: &[u8], start: usize) -> bool {
    let before = start.checked_sub(1).and_then(|at| bytes.get(at));
    let slash = start.checked_sub(2).and_then(|at| bytes.get(at));
    let is_break = slash == Some(&b'\\') && matches!(before, Some(b'n' | b'r' | b't'));
    is_break || before.is_none_or(|byte| !byte.is_ascii_alphanumeric())
}

/// A secret that a break cuts, as opposed to one that ends at the end of its line, and to words that happen to meet.
fn is_really_joined(bytes: &[u8], source: &Range<usize>, found: &Finding, known: &[Finding]) -> bool {
    let overlapping = known.iter().filter(|other| (other.start..other.end).contains(&source.start));
    let before = overlapping.map(|other| other.end).max();
    // A list of secrets, one per line.
    let another = |before| known.iter().any(|other| (before..source.end).contains(&other.start));
    if before.is_some_and(another) {
        return false;
    }
    let last = found.layers.iter().last();
    let decoded = !matches!(last, Some(Encoding::Lines | Encoding::Ansi));
    if decoded || found.confidence >= Confidence::Checksum {
        return true;
    }
    if found.confidence == Confidence::Context {
        return last == Some(Encoding::Ansi);
    }
    let Some(before) = before else { return true };
    // It is already known up to the break. What follows belongs to it only if it is no word.
    let rest = bytes.get(before..source.end).unwrap_or_default();
    let letters = rest.iter().filter(|byte| byte.is_ascii_alphanumeric()).count();
    letters >= FEWEST_LETTERS
        && rest.iter().any(u8::is_ascii_digit)
        && rest.iter().any(u8::is_ascii_alphabetic)
}

/// Shapes without an end take the first word of the next line. Random letters are hardly ever all small.
fn without_next_word(bytes: &[u8], source: &Range<usize>) -> usize {
    let text = bytes.get(source.clone()).unwrap_or_default();
    let Some(at) = memchr::memrchr(b'\n', text) else { return source.end };
    let last = text.get(at + 1..).unwrap_or_default();
    let is_word = last.len() < LONGEST_WORD && last.iter().all(u8::is_ascii_lowercase);
    let line = text.get(..at).unwrap_or_default();
    if is_word { source.start + line.strip_suffix(b"\r").unwrap_or(line).len() } else { source.end }
}

/// Whether a finding that ends with its window may go on in the next one.
pub(crate) fn is_private_key(engine: &ScanEngine, finding: &Finding) -> bool {
    let is_armoured = |rule: &Arc<ScanRule>| matches!(rule.shape, RuleShape::Built(Matcher::PrivateKey));
    engine.rules.iter().any(|rule| rule.id == finding.rule && is_armoured(rule))
}
