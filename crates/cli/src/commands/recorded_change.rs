//! Changes of the operator's files: recorded first, then made. What sessions may use is never more than the ledger shows.

use std::error::Error;
use std::process::ExitCode;

use ringfence_runtime::Runtime;
use ringfence_runtime::operator_file::OperatorFileUpdate;

use crate::error;

/// A prepared change as the ledger shows it.
pub(crate) struct RecordedChange {
    pub(crate) before: OperatorFileUpdate,
    pub(crate) after: OperatorFileUpdate,
    /// One record for each.
    pub(crate) words: Vec<String>,
}

impl RecordedChange {
    /// Records the change and makes it. A change that cannot be made is recorded as such.
    pub(crate) fn make<E: Error + 'static>(
        &self,
        runtime: &Runtime,
        make: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), RecordedChangeError<E>> {
        runtime.policy_changes(&self.after, &self.words).map_err(RecordedChangeError::Record)?;
        make().map_err(|error| {
            let words = self.words.iter().map(|word| format!("not {word}: the file could not be written"));
            match runtime.policy_changes(&self.before, &words.collect::<Vec<_>>()) {
                Ok(()) => RecordedChangeError::Make(error),
                Err(error) => RecordedChangeError::Record(error),
            }
        })
    }
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum RecordedChangeError<E: Error + 'static> {
    #[error("nothing was changed: the change cannot be recorded")]
    Record(#[source] ringfence_ledger::AppendError),
    #[error(transparent)]
    Make(E),
}

impl<E: Error + 'static> RecordedChangeError<E> {
    pub(crate) fn report(&self, hint: impl FnOnce(&E) -> Option<String>) -> ExitCode {
        match self {
            Self::Record(source) => error::failed(self, source.hint()),
            Self::Make(source) => error::failed(self, hint(source).as_deref()),
        }
    }
}
