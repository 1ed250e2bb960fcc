//! Shell text: every simple command in it, with its redirections and assignments, and where each of them runs.

use ringfence_types::{Decision, Profile, Risk};

use super::arg::{Arg, shorten};
use super::opinion::Opinion;
use super::place::Place;
use super::walk::Walk;
use super::{Frame, Judge, MAX_ARGS, Opens};
use crate::judgement::{Aspect, Part};
use crate::paths::Intent;
use crate::shell::{self, Direction, Redirection, Simple, Target};

impl Judge<'_> {
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
                place: walk.place().clone(),
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
        walk.into_place()
    }

    fn simple(&mut self, frame: &Frame, simple: &Simple) {
        let many = simple.assignments.len() + simple.redirections.len() > MAX_ARGS;
        if many {
            let part =
                self.limited("it sets and opens more than is judged").part(shorten(simple.text.as_bytes()));
            self.push(frame, part);
        }
        for assignment in simple.assignments.iter().filter(|_| !many) {
            self.variable(frame, &assignment.name);
        }
        let args: Vec<Arg<'_>> = simple.words.iter().map(Arg::from).collect();
        self.command(frame, &args, Some(&simple.text));
        for redirection in simple.redirections.iter().filter(|_| !many) {
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
            (Direction::Read, file) => {
                self.opens = Opens::File;
                self.path(frame, file, Intent::Read);
            }
            (Direction::Write | Direction::ReadWrite, file) => self.written(frame, file),
        }
    }

    /// To open `/dev/stdout` is to open again what the descriptor stands for, and `1<file` makes that a file: it would
    /// be emptied and written although it was opened to be read.
    pub(super) fn reopened(&mut self) {
        let device = |part: &&mut Part| part.rule == "path.device" && part.aspect == Aspect::Write;
        let null = |part: &Part| part.path.as_ref().is_some_and(|path| path.as_slice() == b"/dev/null");
        if self.opens == Opens::Nothing {
            return;
        }
        for part in self.parts.iter_mut().filter(device).filter(|part| !null(part)) {
            *part = reopening(std::mem::take(&mut part.subject)).at_depth(part.depth);
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

fn reopening(subject: String) -> Part {
    Part::new(Aspect::Write, subject, "guarded.redirection")
        .because("it may stand for a file that another redirection opened")
        .ask(Risk::Medium, "say yes to this one, or write `>&1` or `>&2`")
}
