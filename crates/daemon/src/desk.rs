//! Who is asked about calls of a session: operators who reach the daemon, through the ledger.

use std::sync::Arc;
use std::time::Duration;

use ringfence_runtime::approval::Waiting;
use ringfence_runtime::{Approver, Heard};

use crate::call::{Cancelled, Ending};

/// How often whoever waits looks for the answer.
const LOOK: Duration = Duration::from_millis(40);

/// Waits for an answer from anywhere. The question itself is pushed to operators by the events of the ledger.
#[derive(Clone, Debug)]
pub(crate) struct Desk {
    pub(crate) cancelled: Arc<Cancelled>,
}

impl Approver for Desk {
    /// The daemon itself is where an answer can be given.
    fn is_there(&mut self) -> bool {
        true
    }

    fn ask(&mut self, question: &Waiting<'_>) -> Heard {
        loop {
            if question.decided().is_some() {
                return Heard::Elsewhere;
            }
            let left = question.left();
            if left.is_zero() {
                return Heard::Silence;
            }
            match self.cancelled.within(left.min(LOOK)) {
                Some(Ending::Cancelled) => return Heard::Interrupted,
                Some(Ending::WithDaemon) => return Heard::Left,
                None => {}
            }
        }
    }
}
