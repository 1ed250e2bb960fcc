//! Shell text: every simple command in it, with its redirections and assignments, and where each of them runs.

use ringfence_types::{Decision, Profile, Risk};

use super::arg::{Arg, shorten};
use super::opinion::Opinion;
use super::place::Place;
use super::{Frame, Judge};
use crate::judgement::{Aspect, Part};
use crate::paths::Intent;
use crate::shell::{self, Direction, Redirection, Simple, Target};

impl Judge<'_> {
    /// Text that was asked for as such: a shell would run it.
    pub(super) fn script_of_shell(&mut self, frame: &Frame, text: &[u8]) {
        if let Some(opinion) = self.no_shell() {
            self.push(frame, opinion.part(shorten(text)));
        }
        self.script(frame, text);
    }

    /// Document 004: no shell at all.
    pub(super) fn no_shell(&self) -> Option<Opinion> {
        (self.scene.policy.profile == Profile::AirGapped).then(|| {
            Opinion::deny("profile.air-gapped", "profile `air-gapped` has no shell", Risk::High)
                .fix("give the command as arguments, without a shell")
        })
    }

    /// Judges text; the answer is where the shell would be after it.
    pub(super) fn script(&mut self, frame: &Frame, text: &[u8]) -> Place {
        let script = shell::parse(text);
        let mut walk = Walk::new(&frame.place, text);
        for simple in &script.commands {
            let inside = Frame {
                depth: frame.depth.saturating_add(simple.depth),
                place: walk.place.clone(),
                input: if simple.depth == 0 && simple.input == shell::Input::Inherited {
                    frame.input
                } else {
                    simple.input
                },
                ..frame.clone()
            };
            self.simple(&inside, simple);
            let moved = self.moved.take();
            walk.pass(simple, moved, self.scene.facts);
        }
        if let Some(gap) = script.gaps.first()
            && self.is_listed()
        {
            let reason = format!("the text cannot be read: {} (byte {})", gap.why, gap.at);
            let opinion = Opinion::miss("guarded.unreadable-text", reason, Risk::High).never();
            self.push(frame, opinion.part(shorten(text)));
        }
        walk.place
    }

    fn simple(&mut self, frame: &Frame, simple: &Simple) {
        for assignment in &simple.assignments {
            self.variable(frame, &assignment.name);
        }
        let args: Vec<Arg<'_>> = simple.words.iter().map(Arg::from).collect();
        self.command(frame, &args, Some(&simple.text));
        for redirection in &simple.redirections {
            self.redirection(frame, redirection);
        }
    }

    fn redirection(&mut self, frame: &Frame, redirection: &Redirection) {
        let Target::File(word) = &redirection.target else { return };
        if !self.is_listed() {
            return;
        }
        match (redirection.direction, Arg::from(word)) {
            (_, Arg::Unknown(why)) => {
                let reason = format!("which file it opens is known only when it runs ({why})");
                let opinion = Opinion::miss("guarded.redirection", reason, Risk::Medium).never();
                self.push(frame, opinion.part("a redirection".to_owned()));
            }
            (Direction::Read, file) => self.path(frame, file, Intent::Read),
            (Direction::Write | Direction::ReadWrite, file) => self.written(frame, file),
        }
    }

    /// A file that a redirection writes: where it may be written, somebody is asked.
    fn written(&mut self, frame: &Frame, file: Arg<'_>) {
        let at = self.parts.len();
        self.path(frame, file, Intent::Write);
        for part in self
            .parts
            .iter_mut()
            .skip(at)
            .filter(|part| part.decision == Decision::Allow && part.rule != "path.device")
        {
            let asked = Part::new(Aspect::Write, std::mem::take(&mut part.subject), "guarded.redirection")
                .because("a redirection writes it")
                .ask(Risk::Medium, "say yes to this one, or write it with a file tool");
            *part = asked.at_depth(part.depth);
        }
    }
}

/// Follows `cd` through a script. As long as the text is a flat list (`a && b; c`) it is known which `cd` has happened;
/// beyond that every directory on the way stays possible.
struct Walk<'t> {
    place: Place,
    /// What is left of a flat list; `None` once it is not one.
    rest: Option<&'t [u8]>,
    /// Where the current `&&` list began.
    origin: Place,
    moves: Moves,
    /// Something before it in the list can keep a `cd` from happening.
    conditional: bool,
    /// The command before it is in the same pipe.
    piped: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Moves {
    None,
    /// To a directory that exists.
    Certain,
    /// More than one, or to a directory that may not exist.
    Uncertain,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Link {
    And,
    Then,
    Pipe,
    Lost,
}

impl<'t> Walk<'t> {
    fn new(place: &Place, text: &'t [u8]) -> Self {
        let rest = (!has_background(text)).then_some(text);
        Self {
            place: place.clone(),
            rest,
            origin: place.clone(),
            moves: Moves::None,
            conditional: false,
            piped: false,
        }
    }

    fn pass(&mut self, simple: &Simple, moved: Option<Place>, facts: &dyn crate::facts::Facts) {
        let Some(link) = self.link(simple) else {
            if let Some(there) = moved {
                self.place = there.or(self.place.clone());
            }
            return;
        };
        let piped = std::mem::replace(&mut self.piped, link == Link::Pipe) || link == Link::Pipe;
        match moved {
            // In a pipe it happens to another shell, or not.
            Some(there) if piped => {
                self.place = there.or(self.place.clone());
                self.moves = Moves::Uncertain;
            }
            Some(there) => {
                let certain = self.moves == Moves::None && there.is_certain(facts);
                self.moves = if certain { Moves::Certain } else { Moves::Uncertain };
                self.place = there;
            }
            None => self.conditional |= link == Link::And,
        }
        if !matches!(link, Link::And | Link::Pipe) {
            self.end_list(link);
        }
    }

    fn end_list(&mut self, link: Link) {
        let stays = self.moves == Moves::Certain && !self.conditional && link == Link::Then;
        if self.moves != Moves::None && !stays {
            self.place = std::mem::replace(&mut self.place, Place::unknown()).or(self.origin.clone());
        }
        self.origin = self.place.clone();
        (self.moves, self.conditional) = (Moves::None, false);
    }

    /// How the next command follows this one; `None` where the text is no flat list (any more).
    fn link(&mut self, simple: &Simple) -> Option<Link> {
        let rest = self.rest?;
        if simple.depth > 0 {
            return self.lose();
        }
        let Some(after) = trim(rest).strip_prefix(simple.text.as_bytes()) else { return self.lose() };
        let after = trim_blanks(after);
        let (link, next) = match after {
            [] => (Link::Then, after),
            [b'&', b'&', next @ ..] => (Link::And, next),
            [b';', b';', ..] | [b'|', b'|' | b'&', ..] => (Link::Lost, after),
            [b'|', next @ ..] => (Link::Pipe, next),
            [b';' | b'\n', next @ ..] => (Link::Then, next),
            _ => (Link::Lost, after),
        };
        self.rest = (link != Link::Lost).then_some(next);
        Some(link)
    }

    fn lose(&mut self) -> Option<Link> {
        self.rest = None;
        if self.moves != Moves::None {
            self.end_list(Link::Lost);
        }
        None
    }
}

fn trim(text: &[u8]) -> &[u8] {
    text.trim_ascii_start()
}

fn trim_blanks(text: &[u8]) -> &[u8] {
    let end = text.iter().position(|byte| !matches!(byte, b' ' | b'\t')).unwrap_or(text.len());
    text.get(end..).unwrap_or_default()
}

/// A single `&` that is no redirection puts what is before it into a subshell.
fn has_background(text: &[u8]) -> bool {
    let mut at = 0;
    while let Some(found) = text.get(at..).and_then(|rest| rest.iter().position(|byte| *byte == b'&')) {
        let here = at + found;
        let before = here.checked_sub(1).and_then(|index| text.get(index));
        match (before, text.get(here + 1)) {
            (_, Some(b'&')) => at = here + 2,
            (Some(b'>' | b'<'), _) | (_, Some(b'>')) => at = here + 1,
            _ => return true,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_background_list_is_told_from_other_ampersands() {
        for text in ["a && b", "a 2>&1", "a &> f", "a >&- <&3", "a"] {
            assert!(!has_background(text.as_bytes()), "{text}");
        }
        for text in ["a & b", "a&", "a && b &", "a |& b"] {
            assert!(has_background(text.as_bytes()), "{text}");
        }
    }
}
