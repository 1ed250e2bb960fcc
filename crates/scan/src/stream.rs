//! Chunks in, clean bytes and findings out.
//!
//! The input is looked at in windows that lie at fixed places, each with some bytes before and behind it. So the result does
//! not depend on how the input was cut into chunks, a secret is found wherever it lies, and memory does not grow.

use std::ops::Range;

use crate::ahead::{Ahead, MOST_WINDOWS, Place, Task, Work};
use crate::finding::{Finding, mark, merge};
use crate::layer::{Looked, is_private_key};
use crate::matcher::private_key_continues;
use crate::repeat;
use crate::scanner::Scanner;
use crate::tail;

/// What a window decides about.
const WINDOW: usize = 256 << 10;
/// What it sees behind that: the longest secret, in its longest encoding, that is found for certain.
const AHEAD: usize = 16 << 10;
/// What it sees before: the name of a value, the beginning of an encoding.
const BEHIND: usize = 4 << 10;
/// A private key that goes on from window to window ends here at the latest.
const MOST_CONTINUED: usize = 1 << 20;

/// One input on its way.
#[derive(Debug)]
pub struct Stream {
    scanner: Scanner,
    buffer: Vec<u8>,
    /// Where in the input the buffer begins.
    base: usize,
    /// Where the next window begins.
    next: usize,
    /// Everything before this has been given out.
    given: usize,
    /// Known, not yet given out: something that ends behind the last window.
    pending: Vec<Finding>,
    /// Where the last finding ends that was reported and kept.
    kept: usize,
    /// A private key without an end, and where it was last seen.
    open: Option<Open>,
    /// What reached to the end of the input when it was given in a pause: it may go on.
    begun: Option<Finding>,
    /// The last window repeated itself after so many bytes, and nothing was in it.
    quiet: Option<usize>,
    refused: u64,
    /// Windows that other threads look at; they lie between `next` and the end of the buffer.
    ahead: Option<Ahead>,
}

/// What is known of a window.
enum Sight {
    /// It goes on as the one before it did, and nothing was in that.
    Repeated,
    Looked(Looked),
}

/// How long nothing has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// Whatever may be the beginning of a secret is held back.
    Short,
    /// Somebody may be waiting for what is there: only what a registered secret or a private key begins with is held back.
    Long,
    /// Somebody is waiting, such as a person before a prompt: nothing is held back. Enough letters that a registered
    /// secret begins with, and a private key that has begun, are taken for the whole.
    TooLong,
}

#[derive(Debug)]
struct Open {
    finding: Finding,
    since: usize,
}

/// What has come out so far. Reuse it and take what is in it, or let it grow.
#[derive(Debug, Default)]
pub struct Output {
    /// The input with `[redacted:RULE]` in place of each finding.
    pub clean: Vec<u8>,
    pub findings: Vec<Finding>,
    wanted: Wanted,
    judge: Option<Judge>,
}

/// What becomes of a finding. It depends on what was found, not on where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// `[redacted:RULE]` takes its place.
    Redact,
    /// It is reported and stays.
    Keep,
    /// `[redacted:RULE]` takes its place and nothing follows.
    Stop,
}

struct Judge(Box<dyn Fn(&Finding) -> Treatment + Send + Sync>);

impl std::fmt::Debug for Judge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Judge")
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Wanted {
    #[default]
    Everything,
    Findings,
    /// Something was found after which nothing follows.
    NoMore,
}

impl Output {
    /// `clean` stays empty.
    pub fn findings_only() -> Self {
        Self { wanted: Wanted::Findings, ..Self::default() }
    }

    /// `judge` says what becomes of each finding.
    pub fn judged_by(judge: impl Fn(&Finding) -> Treatment + Send + Sync + 'static) -> Self {
        Self { judge: Some(Judge(Box::new(judge))), ..Self::default() }
    }

    /// Whether something was found after which nothing follows.
    pub fn is_stopped(&self) -> bool {
        self.wanted == Wanted::NoMore
    }

    fn treatment(&self, finding: &Finding) -> Treatment {
        self.judge.as_ref().map_or(Treatment::Redact, |judge| judge.0(finding))
    }

    /// What was found, without what became of it.
    fn report(&mut self, finding: Finding) {
        if !self.is_stopped() {
            self.findings.push(finding);
        }
    }

    pub(crate) fn copy(&mut self, bytes: &[u8]) {
        if self.wanted == Wanted::Everything {
            self.clean.extend_from_slice(bytes);
        }
    }
}

impl Stream {
    pub(crate) fn new(scanner: Scanner) -> Self {
        Self {
            scanner,
            buffer: Vec::new(),
            base: 0,
            next: 0,
            given: 0,
            kept: 0,
            pending: Vec::new(),
            open: None,
            begun: None,
            quiet: None,
            refused: 0,
            ahead: None,
        }
    }

    /// Other threads look at what is long: what a command prints is read and passed on meanwhile. The result is the same.
    pub fn with_threads(mut self) -> Self {
        self.ahead = Some(Ahead::default());
        self
    }

    /// After `seen`, the beginning of the input, of which the first `given` bytes were given out. It is not longer than
    /// what a window sees before itself.
    pub(crate) fn after(scanner: Scanner, seen: Vec<u8>, given: usize) -> Self {
        Self { buffer: seen, given, ..Self::new(scanner) }
    }

    /// Takes a chunk; gives what is decided.
    pub fn push(&mut self, mut chunk: &[u8], output: &mut Output) {
        while !chunk.is_empty() {
            let full = self.unseen() + WINDOW + AHEAD;
            let room = full.saturating_sub(self.end());
            let (now, later) = chunk.split_at_checked(room).unwrap_or((chunk, &[]));
            self.buffer.extend_from_slice(now);
            chunk = later;
            if self.end() < full {
                continue;
            }
            match self.ahead.take() {
                None => self.window(output),
                Some(ahead) => self.hand_out(ahead, output),
            }
        }
        self.take_done(output);
    }

    /// The input is quiet: gives everything but what may be the beginning of a secret, as far as the pause allows. Without a
    /// call to this, what is given depends on the bytes alone; with it, on the pauses as well.
    pub fn settle(&mut self, pause: Pause, output: &mut Output) {
        self.take_back(0, output);
        if self.open.is_some() || self.given >= self.end() {
            return;
        }
        let behind = self.given.saturating_sub(BEHIND);
        let from = self.base.max(self.begun.as_ref().map_or(behind, |begun| begun.start.min(behind)));
        // What began before may end now: its beginning is out, its rest is not.
        let seen = from..self.end();
        let looked = self.scanner.look(self.bytes(seen.clone()));
        let mut found = self.located(looked, &seen, &(self.next.min(self.given).min(from)..self.end()));
        let limit = match pause {
            Pause::Short | Pause::Long => {
                self.end() - tail::undecided(&self.scanner.0, self.bytes(seen), pause)
            }
            Pause::TooLong => self.at_last(seen, &mut found, output),
        };
        let held = std::mem::take(&mut self.pending);
        self.pending = merge(held.iter().cloned().chain(found).collect());
        self.give(limit, output);
        // What was not given is found again, with what follows it.
        self.pending = held.into_iter().filter(|finding| finding.end > self.given).collect();
    }

    /// Takes a registered secret that has begun for the whole; where the answer to one would be more than a mark, it is held
    /// back until it is one.
    fn at_last(&self, seen: Range<usize>, found: &mut Vec<Finding>, output: &Output) -> usize {
        let engine = &self.scanner.0;
        let Some(started) = tail::started_form(engine, self.bytes(seen), Pause::TooLong) else {
            return self.end();
        };
        let start = self.end() - started.length;
        let finding = started.form.found(start..self.end(), engine.salt.as_ref());
        match output.treatment(&finding) {
            Treatment::Stop => return start,
            Treatment::Redact => found.push(finding),
            // Told when it is whole.
            Treatment::Keep => {}
        }
        self.end()
    }

    /// The input has ended: gives the rest, and how often a limit stopped the search, as [`Stream::refused`].
    pub fn finish(mut self, output: &mut Output) -> u64 {
        self.take_back(0, output);
        while self.next < self.end() {
            self.window(output);
        }
        self.give(self.end(), output);
        self.refused
    }

    /// How often a limit stopped the search (compressed bombs, shapes without end). Not 0: do not take the rest for clean.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// How much of the input is decided: it is clean, but for the findings that have been given out.
    pub fn decided(&self) -> usize {
        self.given
    }

    fn end(&self) -> usize {
        self.base + self.buffer.len()
    }

    fn bytes(&self, range: Range<usize>) -> &[u8] {
        let (start, end) = (range.start.saturating_sub(self.base), range.end.saturating_sub(self.base));
        self.buffer.get(start..end).unwrap_or_default()
    }

    /// Where the first window begins that nobody looks at.
    fn unseen(&self) -> usize {
        let last = self.ahead.as_ref().and_then(|ahead| ahead.tasks.back());
        last.map_or(self.next, |task| task.place.window.end)
    }

    fn place(&self, start: usize) -> Place {
        let window = start..(start + WINDOW).min(self.end());
        let seen = window.start.saturating_sub(BEHIND).max(self.base)..(window.end + AHEAD).min(self.end());
        Place { window, seen }
    }

    fn window(&mut self, output: &mut Output) {
        let place = self.place(self.next);
        let seen = self.bytes(place.seen.clone());
        // Where the last window repeated itself and this one goes on with that, everything in it was in the last one.
        let sight = match self.quiet.is_some_and(|period| repeat::repeats(seen, period)) {
            true => Sight::Repeated,
            false => Sight::Looked(self.scanner.look(seen)),
        };
        self.decide(place, sight, output);
    }

    /// Gives the window that is full to another thread.
    fn hand_out(&mut self, mut ahead: Ahead, output: &mut Output) {
        let start = ahead.tasks.back().map_or(self.next, |task| task.place.window.end);
        let place = self.place(start);
        let seen = self.bytes(place.seen.clone());
        let again = ahead.period.filter(|period| repeat::repeats(seen, *period));
        ahead.period = again.or_else(|| repeat::period(seen));
        let work = again.map(Work::Repeats).or_else(|| ahead.hand(&self.scanner, seen).map(Work::Handed));
        let is_on_its_way = work.is_some();
        ahead.tasks.extend(work.map(|work| Task { place, work }));
        self.ahead = Some(ahead);
        if is_on_its_way {
            return self.take_back(MOST_WINDOWS, output);
        }
        // There are no threads to be had.
        self.take_back(0, output);
        self.window(output);
    }

    /// Takes what is done, without waiting.
    fn take_done(&mut self, output: &mut Output) {
        while let Some(looked) = self.ahead.as_ref().and_then(Ahead::first_done) {
            self.take_first(looked, output);
        }
    }

    /// Waits until no more than `most` windows are on their way.
    fn take_back(&mut self, most: usize, output: &mut Output) {
        while self.ahead.as_ref().is_some_and(|ahead| ahead.tasks.len() > most) {
            self.take_first(None, output);
        }
    }

    fn take_first(&mut self, looked: Option<Looked>, output: &mut Output) {
        let Some(Task { place, work }) = self.ahead.as_mut().and_then(|ahead| ahead.tasks.pop_front()) else {
            return;
        };
        let own = |stream: &Self| stream.scanner.look(stream.bytes(place.seen.clone()));
        let sight = match (looked, work) {
            (Some(looked), _) => Sight::Looked(looked),
            (None, Work::Repeats(period)) if self.quiet == Some(period) => Sight::Repeated,
            (None, Work::Repeats(_)) => Sight::Looked(own(self)),
            (None, Work::Handed(handed)) => Sight::Looked(handed.wait().unwrap_or_else(|| own(self))),
        };
        self.decide(place, sight, output);
    }

    /// Windows are decided one after the other.
    fn decide(&mut self, Place { window, seen }: Place, sight: Sight, output: &mut Output) {
        self.continue_open(&window, seen.end);
        let found = match sight {
            Sight::Repeated => Vec::new(),
            Sight::Looked(looked) => {
                let is_quiet = looked.findings.is_empty() && looked.refused == 0 && self.open.is_none();
                self.quiet = if is_quiet { repeat::period(self.bytes(seen.clone())) } else { None };
                self.located(looked, &seen, &window)
            }
        };
        let cut =
            found.iter().find(|finding| finding.end == seen.end && is_private_key(&self.scanner.0, finding));
        if let Some(finding) = cut {
            self.open = Some(Open { finding: finding.clone(), since: seen.end });
        }
        self.pending.extend(found);
        self.pending = merge(std::mem::take(&mut self.pending));
        self.next = window.end;
        self.give(window.end, output);
        self.forget();
    }

    /// Findings of `seen` that begin in `window`.
    fn located(&mut self, looked: Looked, seen: &Range<usize>, window: &Range<usize>) -> Vec<Finding> {
        self.refused += looked.refused;
        let mut findings = looked.findings;
        for finding in &mut findings {
            finding.start += seen.start;
            finding.end += seen.start;
        }
        findings.retain(|finding| window.contains(&finding.start));
        findings
    }

    /// A private key that filled everything seen so far goes on in this window.
    fn continue_open(&mut self, window: &Range<usize>, seen: usize) {
        let Some(mut open) = self.open.take() else { return };
        let more = private_key_continues(self.bytes(open.since..seen));
        open.finding.end = open.since + more;
        self.pending.push(Finding { start: window.start.min(open.since), ..open.finding.clone() });
        let whole = open.finding.end - open.finding.start;
        if open.finding.end == seen && whole < MOST_CONTINUED {
            self.open = Some(Open { since: seen, ..open });
        }
    }

    /// Gives everything before `limit` but what a finding covers that ends behind it.
    fn give(&mut self, limit: usize, output: &mut Output) {
        let pending = std::mem::take(&mut self.pending);
        for finding in pending {
            let treatment = output.treatment(&finding);
            if treatment == Treatment::Keep {
                self.keep(finding, output);
                continue;
            }
            if finding.end > limit {
                self.give_plain(finding.start.min(limit), output);
                self.pending.push(finding);
                continue;
            }
            if !self.pending.is_empty() || finding.end <= self.given {
                continue;
            }
            self.give_plain(finding.start, output);
            self.given = finding.end;
            let goes_on = self.begun.as_ref().is_some_and(|begun| begun.is_part_of(&finding));
            if !goes_on {
                output.copy(mark(&finding.rule).as_bytes());
                output.report(finding.clone());
            }
            self.begun = (finding.end == self.end()).then_some(finding);
            if treatment == Treatment::Stop {
                output.wanted = Wanted::NoMore;
            }
        }
        if self.pending.is_empty() {
            self.give_plain(limit, output);
        }
    }

    /// Reports what stays where it is, once: a pause and a window may both see it.
    fn keep(&mut self, finding: Finding, output: &mut Output) {
        if finding.start >= self.kept && finding.end > self.given {
            self.kept = finding.end;
            output.report(finding);
        }
    }

    fn give_plain(&mut self, to: usize, output: &mut Output) {
        if to > self.given {
            output.copy(self.bytes(self.given..to));
            self.given = to;
        }
    }

    /// Keeps what the next window sees before itself, and what has not been given.
    fn forget(&mut self) {
        let held = self.pending.first().map_or(self.given, |_| self.next);
        let keep = self.next.saturating_sub(BEHIND).min(held.max(self.given)).max(self.base);
        let past = (keep - self.base).min(self.buffer.len());
        // What is kept is moved; not for every window, if it is much.
        if past * 2 >= self.buffer.len() {
            self.buffer.drain(..past);
            self.base += past;
        }
    }
}
