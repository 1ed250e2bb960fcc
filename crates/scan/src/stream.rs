//! Streaming: takes chunks and returns clean bytes and findings.
//!
//! The input is scanned in windows at fixed positions, each with some bytes before and after it. So the result does not depend on
//! chunk boundaries, a secret is found at any position, and memory does not grow.

use std::ops::Range;

use crate::finding::{Finding, mark, merge};
use crate::matcher::private_key_continues;
use crate::parallel_windows::{InputRange, MOST_WINDOWS, ParallelScan, WindowTask, WindowWork};
use crate::partial_secret;
use crate::repeat;
use crate::scanner::Scanner;
use crate::window::{WindowFindings, is_private_key};

/// Bytes that a window decides about.
const WINDOW: usize = 256 << 10;
/// Bytes after the window that it reads: the longest secret, in its longest encoding, that is always found.
const AHEAD: usize = 16 << 10;
/// Bytes before the window that it reads: the name of a value, the start of an encoding.
const BEHIND: usize = 4 << 10;
/// Maximum length of a private key that spans windows.
const MOST_CONTINUED: usize = 1 << 20;

/// One input on its way.
#[derive(Debug)]
pub struct ScanStream {
    scanner: Scanner,
    buffer: Vec<u8>,
    /// Where in the input the buffer begins.
    base: usize,
    /// Where the next window begins.
    next: usize,
    /// Everything before this was returned.
    given: usize,
    /// Known findings that end after the last window.
    pending: Vec<Finding>,
    /// Where the last finding ends that was reported and kept.
    kept: usize,
    /// A private key without an end, and where it was last seen.
    open: Option<OpenFinding>,
    /// A finding that reached the end of the input in a pause and may continue.
    begun: Option<Finding>,
    /// Period of the last window, if it repeated itself without findings.
    quiet: Option<usize>,
    refused: u64,
    /// Windows scanned by other threads, between `next` and the end of the buffer.
    ahead: Option<ParallelScan>,
}

/// What is known of a window.
enum WindowState {
    /// It goes on as the one before it did, and nothing was in that.
    Repeated,
    Looked(WindowFindings),
}

/// Length of a pause in the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PauseLength {
    /// Holds back every possible beginning of a secret.
    Short,
    /// A reader may be waiting: holds back only beginnings of registered secrets and private keys.
    Long,
    /// A reader is waiting, such as a person at a prompt: holds nothing back. A long enough prefix of a registered secret, and an
    /// unfinished private key, count as the whole.
    TooLong,
}

#[derive(Debug)]
struct OpenFinding {
    finding: Finding,
    since: usize,
}

/// What has come out so far. Reuse it and take what is in it, or let it grow.
#[derive(Debug, Default)]
pub struct ScanOutput {
    /// The input with `[redacted:RULE]` in place of each finding.
    pub clean: Vec<u8>,
    pub findings: Vec<Finding>,
    wanted: ScanMode,
    judge: Option<FindingPolicy>,
}

/// What happens to a finding. Depends on the finding, not on its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FindingAction {
    /// Replaced by `[redacted:RULE]`.
    Redact,
    /// Reported and kept.
    Keep,
    /// Replaced by `[redacted:RULE]`, and the output ends.
    Stop,
}

struct FindingPolicy(Box<dyn Fn(&Finding) -> FindingAction + Send + Sync>);

impl std::fmt::Debug for FindingPolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Judge")
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ScanMode {
    #[default]
    Everything,
    Findings,
    /// A finding ended the output.
    NoMore,
}

impl ScanOutput {
    /// `clean` stays empty.
    pub fn findings_only() -> Self {
        Self { wanted: ScanMode::Findings, ..Self::default() }
    }

    /// `judge` decides about each finding.
    pub fn judged_by(judge: impl Fn(&Finding) -> FindingAction + Send + Sync + 'static) -> Self {
        Self { judge: Some(FindingPolicy(Box::new(judge))), ..Self::default() }
    }

    /// Whether a finding ended the output.
    pub fn is_stopped(&self) -> bool {
        self.wanted == ScanMode::NoMore
    }

    fn treatment(&self, finding: &Finding) -> FindingAction {
        self.judge.as_ref().map_or(FindingAction::Redact, |judge| judge.0(finding))
    }

    /// What was found, without what became of it.
    fn report(&mut self, finding: Finding) {
        if !self.is_stopped() {
            self.findings.push(finding);
        }
    }

    pub(crate) fn copy(&mut self, bytes: &[u8]) {
        if self.wanted == ScanMode::Everything {
            self.clean.extend_from_slice(bytes);
        }
    }
}

impl ScanStream {
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

    /// Scans long input on other threads, so that output is relayed meanwhile. The result is the same.
    pub fn with_threads(mut self) -> Self {
        self.ahead = Some(ParallelScan::default());
        self
    }

    /// After `seen`, the beginning of the input, of which the first `given` bytes were given out. It is not longer than
    /// what a window sees before itself.
    pub(crate) fn after(scanner: Scanner, seen: Vec<u8>, given: usize) -> Self {
        Self { buffer: seen, given, ..Self::new(scanner) }
    }

    /// Takes a chunk and returns what is decided.
    pub fn push(&mut self, mut chunk: &[u8], output: &mut ScanOutput) {
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

    /// Handles a pause: returns everything except possible beginnings of a secret, as far as the pause permits. With this call the
    /// result depends on the pauses too.
    pub fn settle(&mut self, pause: PauseLength, output: &mut ScanOutput) {
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
            PauseLength::Short | PauseLength::Long => {
                self.end() - partial_secret::undecided(&self.scanner.0, self.bytes(seen), pause)
            }
            PauseLength::TooLong => self.at_last(seen, &mut found, output),
        };
        let held = std::mem::take(&mut self.pending);
        self.pending = merge(held.iter().cloned().chain(found).collect());
        self.give(limit, output);
        // What was not given is found again, with what follows it.
        self.pending = held.into_iter().filter(|finding| finding.end > self.given).collect();
    }

    /// Treats a begun registered secret as the whole. If the policy does more than redact it, it is held back until it is complete.
    fn at_last(&self, seen: Range<usize>, found: &mut Vec<Finding>, output: &ScanOutput) -> usize {
        let engine = &self.scanner.0;
        let Some(started) = partial_secret::started_form(engine, self.bytes(seen), PauseLength::TooLong)
        else {
            return self.end();
        };
        let start = self.end() - started.length;
        let finding = started.form.found(start..self.end(), engine.salt.as_ref());
        match output.treatment(&finding) {
            FindingAction::Stop => return start,
            FindingAction::Redact => found.push(finding),
            // Told when it is whole.
            FindingAction::Keep => {}
        }
        self.end()
    }

    /// Ends the input: returns the rest, and how often a limit stopped the search, as [`ScanStream::refused`].
    pub fn finish(mut self, output: &mut ScanOutput) -> u64 {
        self.take_back(0, output);
        while self.next < self.end() {
            self.window(output);
        }
        self.give(self.end(), output);
        self.refused
    }

    /// How often a limit stopped the search (decompression bombs, unbounded shapes). If not 0, the rest may contain secrets.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// How much of the input is decided: clean except for the returned findings.
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

    /// Start of the first window that no thread scans.
    fn unseen(&self) -> usize {
        let last = self.ahead.as_ref().and_then(|ahead| ahead.tasks.back());
        last.map_or(self.next, |task| task.place.window.end)
    }

    fn place(&self, start: usize) -> InputRange {
        let window = start..(start + WINDOW).min(self.end());
        let seen = window.start.saturating_sub(BEHIND).max(self.base)..(window.end + AHEAD).min(self.end());
        InputRange { window, seen }
    }

    fn window(&mut self, output: &mut ScanOutput) {
        let place = self.place(self.next);
        let seen = self.bytes(place.seen.clone());
        // Where the last window repeated itself and this one goes on with that, everything in it was in the last one.
        let sight = match self.quiet.is_some_and(|period| repeat::repeats(seen, period)) {
            true => WindowState::Repeated,
            false => WindowState::Looked(self.scanner.look(seen)),
        };
        self.decide(place, sight, output);
    }

    /// Hands the full window to another thread.
    fn hand_out(&mut self, mut ahead: ParallelScan, output: &mut ScanOutput) {
        let start = ahead.tasks.back().map_or(self.next, |task| task.place.window.end);
        let place = self.place(start);
        let seen = self.bytes(place.seen.clone());
        let again = ahead.period.filter(|period| repeat::repeats(seen, *period));
        ahead.period = again.or_else(|| repeat::period(seen));
        let work = again
            .map(WindowWork::Repeats)
            .or_else(|| ahead.hand(&self.scanner, seen).map(WindowWork::Handed));
        let is_on_its_way = work.is_some();
        ahead.tasks.extend(work.map(|work| WindowTask { place, work }));
        self.ahead = Some(ahead);
        if is_on_its_way {
            return self.take_back(MOST_WINDOWS, output);
        }
        // No threads are available.
        self.take_back(0, output);
        self.window(output);
    }

    /// Takes what is done, without waiting.
    fn take_done(&mut self, output: &mut ScanOutput) {
        while let Some(looked) = self.ahead.as_ref().and_then(ParallelScan::first_done) {
            self.take_first(looked, output);
        }
    }

    /// Waits until no more than `most` windows are on their way.
    fn take_back(&mut self, most: usize, output: &mut ScanOutput) {
        while self.ahead.as_ref().is_some_and(|ahead| ahead.tasks.len() > most) {
            self.take_first(None, output);
        }
    }

    fn take_first(&mut self, looked: Option<WindowFindings>, output: &mut ScanOutput) {
        let Some(WindowTask { place, work }) = self.ahead.as_mut().and_then(|ahead| ahead.tasks.pop_front())
        else {
            return;
        };
        let own = |stream: &Self| stream.scanner.look(stream.bytes(place.seen.clone()));
        let sight = match (looked, work) {
            (Some(looked), _) => WindowState::Looked(looked),
            (None, WindowWork::Repeats(period)) if self.quiet == Some(period) => WindowState::Repeated,
            (None, WindowWork::Repeats(_)) => WindowState::Looked(own(self)),
            (None, WindowWork::Handed(handed)) => {
                WindowState::Looked(handed.wait().unwrap_or_else(|| own(self)))
            }
        };
        self.decide(place, sight, output);
    }

    /// Windows are decided one after the other.
    fn decide(
        &mut self,
        InputRange { window, seen }: InputRange,
        sight: WindowState,
        output: &mut ScanOutput,
    ) {
        self.continue_open(&window, seen.end);
        let found = match sight {
            WindowState::Repeated => Vec::new(),
            WindowState::Looked(looked) => {
                let is_quiet = looked.findings.is_empty() && looked.refused == 0 && self.open.is_none();
                self.quiet = if is_quiet { repeat::period(self.bytes(seen.clone())) } else { None };
                self.located(looked, &seen, &window)
            }
        };
        let cut =
            found.iter().find(|finding| finding.end == seen.end && is_private_key(&self.scanner.0, finding));
        if let Some(finding) = cut {
            self.open = Some(OpenFinding { finding: finding.clone(), since: seen.end });
        }
        self.pending.extend(found);
        self.pending = merge(std::mem::take(&mut self.pending));
        self.next = window.end;
        self.give(window.end, output);
        self.forget();
    }

    /// Findings of `seen` that begin in `window`.
    fn located(
        &mut self,
        looked: WindowFindings,
        seen: &Range<usize>,
        window: &Range<usize>,
    ) -> Vec<Finding> {
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
            self.open = Some(OpenFinding { since: seen, ..open });
        }
    }

    /// Gives everything before `limit` but what a finding covers that ends behind it.
    fn give(&mut self, limit: usize, output: &mut ScanOutput) {
        let pending = std::mem::take(&mut self.pending);
        for finding in pending {
            let treatment = output.treatment(&finding);
            if treatment == FindingAction::Keep {
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
            if treatment == FindingAction::Stop {
                output.wanted = ScanMode::NoMore;
            }
        }
        if self.pending.is_empty() {
            self.give_plain(limit, output);
        }
    }

    /// Reports what stays where it is, once: a pause and a window may both see it.
    fn keep(&mut self, finding: Finding, output: &mut ScanOutput) {
        if finding.start >= self.kept && finding.end > self.given {
            self.kept = finding.end;
            output.report(finding);
        }
    }

    fn give_plain(&mut self, to: usize, output: &mut ScanOutput) {
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
