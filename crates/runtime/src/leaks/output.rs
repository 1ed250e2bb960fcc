//! What a command prints, looked at on its way to whoever reads it.

use ringfence_sandbox::{Filter, Flow, Quiet};
use ringfence_scan::{LazyStream, Output, Pause, Treatment};
use ringfence_types::LeakAction;

use super::{Actions, LIMIT, LeakScanner, Tally};

/// One output stream.
#[derive(Debug)]
pub(crate) struct OutputFilter {
    leaks: LeakScanner,
    actions: Actions,
    /// `stdout`, or the file that is read.
    place: String,
    stream: Option<LazyStream>,
    output: Output,
    tally: Tally,
    stopped: Option<LeakAction>,
}

impl OutputFilter {
    pub(crate) fn new(leaks: &LeakScanner, actions: Actions, place: &str) -> Self {
        let (known, path) = (leaks.clone(), place.to_owned());
        let judge = move |found: &ringfence_scan::Finding| match known.action(found, (actions, &path)) {
            None | Some(LeakAction::Flag) => Treatment::Keep,
            Some(LeakAction::Redact) => Treatment::Redact,
            Some(LeakAction::Block | LeakAction::Terminate) => Treatment::Stop,
        };
        Self {
            leaks: leaks.clone(),
            actions,
            place: place.to_owned(),
            stream: Some(leaks.scanner().stream_with_threads()),
            output: Output::judged_by(judge),
            tally: Tally::default(),
            stopped: None,
        }
    }

    pub(crate) fn tally(self) -> Tally {
        self.tally
    }

    fn give(&mut self, out: &mut Vec<u8>) -> Flow {
        if out.is_empty() {
            std::mem::swap(out, &mut self.output.clean);
        } else {
            out.append(&mut self.output.clean);
        }
        for found in std::mem::take(&mut self.output.findings) {
            let Some(action) = self.leaks.action(&found, (self.actions, &self.place)) else { continue };
            let place = || format!("{}:{}", self.place, found.start);
            self.tally.add(action, || self.leaks.finding(&found, place()));
            if action >= LeakAction::Block && self.stopped.is_none() {
                self.stopped = Some(action);
                out.extend_from_slice(format!("\n[ringfence: {} ends here]\n", self.place).as_bytes());
            }
        }
        match self.stopped {
            Some(LeakAction::Terminate) => Flow::Kill,
            Some(_) => Flow::Shut,
            None => Flow::On,
        }
    }
}

impl Filter for OutputFilter {
    fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Flow {
        if let Some(stream) = &mut self.stream {
            stream.push(bytes, &mut self.output);
        }
        self.give(out)
    }

    fn pause(&mut self, quiet: Quiet, out: &mut Vec<u8>) -> Flow {
        let pause = match quiet {
            Quiet::Briefly => Pause::Short,
            Quiet::Long => Pause::TooLong,
        };
        if let Some(stream) = &mut self.stream {
            stream.settle(pause, &mut self.output);
        }
        self.give(out)
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Flow {
        let refused = self.stream.take().map_or(0, |stream| stream.finish(&mut self.output));
        let flow = self.give(out);
        if refused > 0 {
            let (rule, place) = (LIMIT.to_owned(), self.place.clone());
            let limit =
                || ringfence_ledger::Finding { rule, place, fingerprint: String::new(), encoding: None };
            self.tally.add(LeakAction::Flag, limit);
        }
        flow
    }
}
