//! Follows `cd` through a script.
//!
//! As long as the text is a flat list (`a && b; (c | d)`) it is known which `cd` has happened when a command runs. Beyond
//! that every directory on the way stays possible, and a path is judged from each of them.

use super::place::Place;
use crate::facts::Facts;
use crate::shell::Simple;

/// How many subshells are followed into.
const MAX_SUBSHELLS: usize = 8;

pub(super) struct Walk<'t> {
    /// What is left of a flat list; `None` once it is not one.
    rest: Option<&'t [u8]>,
    here: Level,
    /// The shells that wait for the subshell: nothing that happens there happens to them.
    outer: Vec<Level>,
}

/// One shell, in the middle of a list.
#[derive(Clone)]
struct Level {
    place: Place,
    /// Where the current `&&` list began.
    origin: Place,
    moves: Moves,
    order: Order,
    pipe: Pipe,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Moves {
    None,
    /// To a directory that exists.
    Certain,
    /// More than one, or to a directory that may not exist.
    Uncertain,
}

/// Whether something before it in the list can keep a `cd` from happening.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    First,
    Conditional,
}

/// Whether the command before it is in the same pipe.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pipe {
    No,
    Yes,
}

/// What follows a command.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Link {
    And,
    Then,
    Pipe,
    Close,
    Lost,
}

impl<'t> Walk<'t> {
    pub(super) fn new(place: &Place, text: &'t [u8]) -> Self {
        let rest = (!has_background(text)).then_some(text);
        Self { rest, here: Level::new(place.clone()), outer: Vec::new() }
    }

    /// Where the next command runs.
    pub(super) fn place(&self) -> &Place {
        &self.here.place
    }

    pub(super) fn into_place(self) -> Place {
        self.here.place
    }

    /// Past one command, which moved its shell or did not.
    pub(super) fn pass(&mut self, simple: &Simple, moved: Option<Place>, facts: &dyn Facts) {
        let Some(mut after) = self.enter(simple) else {
            self.lose();
            if let Some(there) = moved {
                self.here.place = there.or(self.here.place.clone());
            }
            return;
        };
        let mut moved = moved.map(|place| Move::of(place, simple, facts));
        loop {
            let (link, next) = link(after);
            self.here.step(moved.take(), link);
            match (link, self.outer.pop()) {
                (Link::Close, Some(outer)) => self.here = outer,
                (Link::Close | Link::Lost, outer) => {
                    self.outer.extend(outer);
                    return self.lose();
                }
                (Link::And | Link::Then | Link::Pipe, outer) => {
                    self.outer.extend(outer);
                    self.rest = Some(next);
                    return;
                }
            }
            after = next;
        }
    }

    /// Into the subshells that open before a command, and past its text.
    fn enter(&mut self, simple: &Simple) -> Option<&'t [u8]> {
        let mut rest = self.rest?.trim_ascii_start();
        while let [b'(', inside @ ..] = rest {
            if inside.first() == Some(&b'(') || self.outer.len() >= MAX_SUBSHELLS {
                return None;
            }
            let inner = Level::new(self.here.place.clone());
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
        self.here.end(Link::Lost);
        for outer in std::mem::take(&mut self.outer) {
            self.here.place = self.here.place.clone().or(outer.place).or(outer.origin);
        }
    }
}

struct Move {
    place: Place,
    moves: Moves,
}

impl Move {
    /// A redirection that fails keeps it from happening.
    fn of(place: Place, simple: &Simple, facts: &dyn Facts) -> Self {
        let certain = simple.redirections.is_empty() && place.is_certain(facts);
        Self { place, moves: if certain { Moves::Certain } else { Moves::Uncertain } }
    }
}

impl Level {
    fn new(place: Place) -> Self {
        Self { origin: place.clone(), place, moves: Moves::None, order: Order::First, pipe: Pipe::No }
    }

    fn step(&mut self, moved: Option<Move>, link: Link) {
        let next = if link == Link::Pipe { Pipe::Yes } else { Pipe::No };
        let piped = std::mem::replace(&mut self.pipe, next) == Pipe::Yes || next == Pipe::Yes;
        match moved {
            // In a pipe it happens to another shell, or not.
            Some(moved) if piped => {
                self.place = moved.place.or(self.place.clone());
                self.moves = Moves::Uncertain;
            }
            Some(moved) => {
                let second = self.moves != Moves::None;
                self.moves = if second { Moves::Uncertain } else { moved.moves };
                self.place = moved.place;
            }
            None if link == Link::And => self.order = Order::Conditional,
            None => {}
        }
        if !matches!(link, Link::And | Link::Pipe) {
            self.end(link);
        }
    }

    fn end(&mut self, link: Link) {
        let stays = self.moves == Moves::Certain && self.order == Order::First && link != Link::Lost;
        if self.moves != Moves::None && !stays {
            self.place = self.place.clone().or(self.origin.clone());
        }
        (self.origin, self.moves, self.order) = (self.place.clone(), Moves::None, Order::First);
    }
}

fn link(after: &[u8]) -> (Link, &[u8]) {
    let blanks = after.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    match after.get(blanks..).unwrap_or_default() {
        [] => (Link::Then, b""),
        [b'&', b'&', next @ ..] => (Link::And, next),
        [b'|', b'|' | b'&', ..] | [b';', b';' | b'&' | b'|', ..] => (Link::Lost, b""),
        [b'|', next @ ..] => (Link::Pipe, next),
        [b';' | b'\n', next @ ..] => (Link::Then, next),
        [b')', next @ ..] => (Link::Close, next),
        _ => (Link::Lost, b""),
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
