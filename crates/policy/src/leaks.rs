//! `[leaks]`.

use ringfence_authz::LeakPolicy;
use ringfence_types::LeakAction;

use super::format::{LeaksTable, SinksTable};
use super::problem::FileProblems;
use super::source_text::WithSpan;

/// One value of [`LeakPolicy`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LeakSetting {
    kind: SecretKnowledge,
    sink: LeakSink,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SecretKnowledge {
    Stored,
    Shapes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LeakSink {
    Arguments,
    Output,
    Files,
}

impl LeakSetting {
    pub(super) const ALL: [Self; 6] = [
        Self { kind: SecretKnowledge::Stored, sink: LeakSink::Arguments },
        Self { kind: SecretKnowledge::Stored, sink: LeakSink::Output },
        Self { kind: SecretKnowledge::Stored, sink: LeakSink::Files },
        Self { kind: SecretKnowledge::Shapes, sink: LeakSink::Arguments },
        Self { kind: SecretKnowledge::Shapes, sink: LeakSink::Output },
        Self { kind: SecretKnowledge::Shapes, sink: LeakSink::Files },
    ];

    /// In a file.
    pub(super) fn key(self) -> &'static str {
        match (self.kind, self.sink) {
            (SecretKnowledge::Stored, LeakSink::Arguments) => "leaks.stored_secrets.arguments",
            (SecretKnowledge::Stored, LeakSink::Output) => "leaks.stored_secrets.output",
            (SecretKnowledge::Stored, LeakSink::Files) => "leaks.stored_secrets.files",
            (SecretKnowledge::Shapes, LeakSink::Arguments) => "leaks.patterns.arguments",
            (SecretKnowledge::Shapes, LeakSink::Output) => "leaks.patterns.output",
            (SecretKnowledge::Shapes, LeakSink::Files) => "leaks.patterns.files",
        }
    }

    pub(super) fn of(self, leaks: &mut LeakPolicy) -> &mut LeakAction {
        let sinks = match self.kind {
            SecretKnowledge::Stored => &mut leaks.stored_secrets,
            SecretKnowledge::Shapes => &mut leaks.patterns,
        };
        match self.sink {
            LeakSink::Arguments => &mut sinks.arguments,
            LeakSink::Output => &mut sinks.output,
            LeakSink::Files => &mut sinks.files,
        }
    }

    pub(super) fn in_table(self, table: &LeaksTable) -> Option<&WithSpan<LeakAction>> {
        let sinks: &SinksTable = match self.kind {
            SecretKnowledge::Stored => table.stored_secrets.as_ref()?,
            SecretKnowledge::Shapes => table.patterns.as_ref()?,
        };
        match self.sink {
            LeakSink::Arguments => sinks.arguments.as_ref(),
            LeakSink::Output => sinks.output.as_ref(),
            LeakSink::Files => sinks.files.as_ref(),
        }
    }
}

/// What is done is what was judged, so that nothing can be taken out of it.
pub(super) fn check(table: &LeaksTable, problems: &mut FileProblems<'_>) {
    let fixed = LeakSetting::ALL.iter().filter(|leak| leak.sink != LeakSink::Output);
    for given in fixed.filter_map(|leak| leak.in_table(table)) {
        if given.value == LeakAction::Redact {
            let message = "nothing is taken out of what is to be done: it is done as it was judged, or not";
            problems.add(given.span, message, "write `flag`, `block` or `terminate`");
        }
    }
}
