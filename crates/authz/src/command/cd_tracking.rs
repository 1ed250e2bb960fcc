//! Follows `cd` through a script.
//!
//! As long as the text is a flat list (`a && b; (c | d)`) it is known which `cd` has happened when a command runs. Beyond
//! that every directory on the way stays possible, and a path is judged from each of them.

use super::working_dirs::WorkingDirs;
use crate::host_facts::HostFacts;
use ringfence_shell::SimpleCommand;

/// How many subshells are followed into.
const MAX_SUBSHELLS: usize = 8;

pub(super) struct CdTracker<'t> {
    /// What is left of a flat list; `None` once it is not one.
    rest: Option<&'t [u8]>,
    here: SubshellFrame,
    /// The shells that wait for the subshell: nothing that happens there happens to them.
    outer: Vec<SubshellFrame>,
}

/// One shell, in the middle of a list.
#[derive(Clone)]
struct SubshellFrame {
    place: WorkingDirs,
    /// Where the current `&&` list began, and where it was before each further `cd`: a list ends early where one fails.
    origin: WorkingDirs,
    moves: CdCertainty,
    order: ListPosition,
    pipe: PipePosition,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum CdCertainty {
    None,
    /// To a directory that exists.
    Certain,
    /// More than one, or to a directory that may not exist.
    Uncertain,
}

/// Whether something before it in the list can keep a `cd` from happening.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ListPosition {
    First,
    Conditional,
}

/// Whether the command before it is in the same pipe.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PipePosition {
    No,
    Yes,
}

/// What follows a command.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ListOperator {
    And,
    Then,
    Pipe,
    Close,
    Lost,
}

impl<'t> CdTracker<'t> {
    pub(super) fn new(place: &WorkingDirs, text: &'t [u8]) -> Self {
        let rest = (!has_background(text)).then_some(text);
        Self { rest, here: SubshellFrame::new(place.clone()), outer: Vec::new() }
    }

    /// Where the next command runs.
    pub(super) fn place(&self) -> &WorkingDirs {
        &self.here.place
    }

    pub(super) fn into_place(self) -> WorkingDirs {
        self.here.place
    }

    /// Past one command, which moved its shell or did not.
    pub(super) fn pass(&mut self, simple: &SimpleCommand, moved: Option<WorkingDirs>, facts: &dyn HostFacts) {
        let Some(mut after) = self.enter(simple) else {
            self.lose();
            if let Some(there) = moved {
                self.here.place = there.or(self.here.place.clone());
            }
            return;
        };
        let mut moved = moved.map(|place| DirectoryChange::of(place, simple, facts));
        loop {
            let (link, next) = link(after);
            self.here.step(moved.take(), link);
            match (link, self.outer.pop()) {
                (ListOperator::Close, Some(outer)) => self.here = outer,
                (ListOperator::Close | ListOperator::Lost, outer) => {
                    self.outer.extend(outer);
                    return self.lose();
                }
                (ListOperator::And | ListOperator::Then | ListOperator::Pipe, outer) => {
                    self.outer.extend(outer);
                    self.rest = Some(next);
                    return;
                }
            }
            after = next;
        }
    }

    /// Into the subshells that open before a command, and past its text.
    fn enter(&mut self, simple: &SimpleCommand) -> Option<&'t [u8]> {
        let mut rest = self.rest?.trim_ascii_start();
        while let [b'(', inside @ ..] = rest {
            if inside.first() == Some(&b'(') || self.outer.len() >= MAX_SUBSHELLS {
                return None;
            }
            let inner = SubshellFrame::new(self.here.place.clone());
            self.outer.push(std::mem::replace(&mut self.here, inner));
            rest = inside.trim_ascii_start();
        }
        (usize::from(simple.depth) == self.outer.len())
            .then(|| rest.strip_prefix(simple.text.as_bytes()))
            .flatten()
    }

    /// No flat list from here on.
    fn lose(&mut self) {
        self.rest = None;
        self.here.end(ListOperator::Lost);
        for outer in std::mem::take(&mut self.outer) {
            self.here.place = self.here.place.clone().or(outer.place).or(outer.origin);
        }
    }
}

struct DirectoryChange {
    place: WorkingDirs,
    moves: CdCertainty,
}

impl DirectoryChange {
    /// A redirection that fails keeps it from happening.
    fn of(place: WorkingDirs, simple: &SimpleCommand, facts: &dyn HostFacts) -> Self {
        let certain = simple.redirections.is_empty() && place.is_certain(facts);
        Self { place, moves: if certain { CdCertainty::Certain } else { CdCertainty::Uncertain } }
    }
}

impl SubshellFrame {
    fn new(place: WorkingDirs) -> Self {
        Self {
            origin: place.clone(),
            place,
            moves: CdCertainty::None,
            order: ListPosition::First,
            pipe: PipePosition::No,
        }
    }

    fn step(&mut self, moved: Option<DirectoryChange>, link: ListOperator) {
        let next = if link == ListOperator::Pipe { PipePosition::Yes } else { PipePosition::No };
        let piped = std::mem::replace(&mut self.pipe, next) == PipePosition::Yes || next == PipePosition::Yes;
        match moved {
            // In a pipe it happens to another shell, or not.
            Some(moved) if piped => {
                self.place = moved.place.or(self.place.clone());
                self.moves = CdCertainty::Uncertain;
            }
            Some(moved) => {
                let second = self.moves != CdCertainty::None;
                if second {
                    self.origin = self.origin.clone().or(self.place.clone());
                }
                self.moves = if second { CdCertainty::Uncertain } else { moved.moves };
                self.place = moved.place;
            }
            None if link == ListOperator::And => self.order = ListPosition::Conditional,
            None => {}
        }
        if !matches!(link, ListOperator::And | ListOperator::Pipe) {
            self.end(link);
        }
    }

    fn end(&mut self, link: ListOperator) {
        let stays = self.moves == CdCertainty::Certain
            && self.order == ListPosition::First
            && link != ListOperator::Lost;
        if self.moves != CdCertainty::None && !stays {
            self.place = self.place.clone().or(self.origin.clone());
        }
        (self.origin, self.moves, self.order) = (self.place.clone(), CdCertainty::None, ListPosition::First);
    }
}

fn link(after: &[u8]) -> (ListOperator, &[u8]) {
    let blanks = after.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    match after.get(blanks..).unwrap_or_default() {
        [] => (ListOperator::Then, b""),
        [b'&', b'&', next @ ..] => (ListOperator::And, next),
        [b'|', b'|' | b'&', ..] | [b';', b';' | b'&' | b'|', ..] => (ListOperator::Lost, b""),
        [b'|', next @ ..] => (ListOperator::Pipe, next),
        [b';' | b'\n', next @ ..] => (ListOperator::Then, next),
        [b')', next @ ..] => (ListOperator::Close, next),
        _ => (ListOperator::Lost, b""),
    }
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
