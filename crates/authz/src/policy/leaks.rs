//! What becomes of secrets where they would leave.

use ringfence_types::LeakAction;

use super::format::{LeaksTable, SinksTable};
use super::problem::Problems;
use super::text::At;

/// For secrets that the operator has stored, and for what only looks like one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaks {
    pub stored: Sinks,
    pub shapes: Sinks,
}

/// The places where a secret would leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sinks {
    /// What a call is made of, before it is made.
    pub arguments: LeakAction,
    /// What a command prints, and what is read for an agent.
    pub output: LeakAction,
    /// What is written for an agent: files and proposals.
    pub files: LeakAction,
}

/// C-15: stored values leave nowhere; what looks like a secret is taken out of what is shown.
impl Default for Leaks {
    fn default() -> Self {
        let stored =
            Sinks { arguments: LeakAction::Block, output: LeakAction::Redact, files: LeakAction::Block };
        let shapes =
            Sinks { arguments: LeakAction::Flag, output: LeakAction::Redact, files: LeakAction::Flag };
        Self { stored, shapes }
    }
}

/// One value of [`Leaks`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Leak {
    kind: Kind,
    sink: Sink,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Stored,
    Shapes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sink {
    Arguments,
    Output,
    Files,
}

impl Leak {
    pub(super) const ALL: [Self; 6] = [
        Self { kind: Kind::Stored, sink: Sink::Arguments },
        Self { kind: Kind::Stored, sink: Sink::Output },
        Self { kind: Kind::Stored, sink: Sink::Files },
        Self { kind: Kind::Shapes, sink: Sink::Arguments },
        Self { kind: Kind::Shapes, sink: Sink::Output },
        Self { kind: Kind::Shapes, sink: Sink::Files },
    ];

    /// In a file.
    pub(super) fn key(self) -> &'static str {
        match (self.kind, self.sink) {
            (Kind::Stored, Sink::Arguments) => "leaks.stored.arguments",
            (Kind::Stored, Sink::Output) => "leaks.stored.output",
            (Kind::Stored, Sink::Files) => "leaks.stored.files",
            (Kind::Shapes, Sink::Arguments) => "leaks.shapes.arguments",
            (Kind::Shapes, Sink::Output) => "leaks.shapes.output",
            (Kind::Shapes, Sink::Files) => "leaks.shapes.files",
        }
    }

    pub(super) fn of(self, leaks: &mut Leaks) -> &mut LeakAction {
        let sinks = match self.kind {
            Kind::Stored => &mut leaks.stored,
            Kind::Shapes => &mut leaks.shapes,
        };
        match self.sink {
            Sink::Arguments => &mut sinks.arguments,
            Sink::Output => &mut sinks.output,
            Sink::Files => &mut sinks.files,
        }
    }

    pub(super) fn in_table(self, table: &LeaksTable) -> Option<&At<LeakAction>> {
        let sinks: &SinksTable = match self.kind {
            Kind::Stored => table.stored.as_ref()?,
            Kind::Shapes => table.shapes.as_ref()?,
        };
        match self.sink {
            Sink::Arguments => sinks.arguments.as_ref(),
            Sink::Output => sinks.output.as_ref(),
            Sink::Files => sinks.files.as_ref(),
        }
    }
}

/// What is done is what was judged, so that nothing can be taken out of it.
pub(super) fn check(table: &LeaksTable, problems: &mut Problems<'_>) {
    let fixed = Leak::ALL.iter().filter(|leak| leak.sink != Sink::Output);
    for given in fixed.filter_map(|leak| leak.in_table(table)) {
        if given.value == LeakAction::Redact {
            let message = "nothing is taken out of what is to be done: it is done as it was judged, or not";
            problems.add(given.span, message, "write `flag`, `block` or `terminate`");
        }
    }
}
