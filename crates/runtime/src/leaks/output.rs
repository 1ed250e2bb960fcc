//! Scans command output on its way to the reader.

use ringfence_sandbox::{FilterAction, IdleSpan, StreamFilter};
use ringfence_scan::{FindingAction, LazyStream, PauseLength, ScanOutput};
use ringfence_types::LeakAction;

use super::{FindingTally, LIMIT, LeakScanner, SinkActions};

/// One output stream.
#[derive(Debug)]
pub(crate) struct OutputFilter {
    leaks: LeakScanner,
    actions: SinkActions,
    /// `stdout`, or the file that is read.
    place: String,
    stream: Option<LazyStream>,
    output: ScanOutput,
    tally: FindingTally,
    stopped: Option<LeakAction>,
}

impl OutputFilter {
    pub(crate) fn new(leaks: &LeakScanner, actions: SinkActions, place: &str) -> Self {
        let (known, path) = (leaks.clone(), place.to_owned());
        let judge = move |found: &ringfence_scan::Finding| match known.action(found, actions, &path) {
            None | Some(LeakAction::Flag) => FindingAction::Keep,
            Some(LeakAction::Redact) => FindingAction::Redact,
            Some(LeakAction::Block | LeakAction::Terminate) => FindingAction::Stop,
        };
        Self {
            leaks: leaks.clone(),
            actions,
            place: place.to_owned(),
            stream: Some(leaks.scanner().stream_with_threads()),
            output: ScanOutput::judged_by(judge),
            tally: FindingTally::default(),
            stopped: None,
        }
    }

    pub(crate) fn tally(self) -> FindingTally {
        self.tally
    }

    fn give(&mut self, out: &mut Vec<u8>) -> FilterAction {
        if out.is_empty() {
            std::mem::swap(out, &mut self.output.clean);
        } else {
            out.append(&mut self.output.clean);
        }
        for found in std::mem::take(&mut self.output.findings) {
            let Some(action) = self.leaks.action(&found, self.actions, &self.place) else { continue };
            let place = || format!("{}:{}", self.place, found.start);
            self.tally.add(action, || self.leaks.finding(&found, place()));
            if action >= LeakAction::Block && self.stopped.is_none() {
                self.stopped = Some(action);
                out.extend_from_slice(format!("\n[ringfence: {} ends here]\n", self.place).as_bytes());
            }
        }
        match self.stopped {
            Some(LeakAction::Terminate) => FilterAction::Kill,
            Some(_) => FilterAction::Shut,
            None => FilterAction::On,
        }
    }
}

impl StreamFilter for OutputFilter {
    fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> FilterAction {
        if let Some(stream) = &mut self.stream {
            stream.push(bytes, &mut self.output);
        }
        self.give(out)
    }

    fn pause(&mut self, quiet: IdleSpan, out: &mut Vec<u8>) -> FilterAction {
        let pause = match quiet {
            IdleSpan::Briefly => PauseLength::Short,
            IdleSpan::Long => PauseLength::TooLong,
        };
        if let Some(stream) = &mut self.stream {
            stream.settle(pause, &mut self.output);
        }
        self.give(out)
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> FilterAction {
        let refused = self.stream.take().map_or(0, |stream| stream.finish(&mut self.output));
        let flow = self.give(out);
        if refused > 0 {
            let (rule, place) = (LIMIT.to_owned(), self.place.clone());
            let limit = || ringfence_ledger::RecordedFinding {
                rule,
                location: place,
                fingerprint: String::new(),
                encoding: None,
            };
            self.tally.add(LeakAction::Flag, limit);
        }
        flow
    }
}
