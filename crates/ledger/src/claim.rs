//! Claims: keys for events that may happen once. A store grants each key once, to the first commit.

use ringfence_types::{GrantId, SessionId, TransactionId};

use crate::event::{Event, Kind};
use crate::lifecycle::{LifecycleError, LifecycleStep};
use crate::store::OpenTableChange;

/// The parts of an event that matter for its order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClaimSubject<'a> {
    pub(crate) kind: Kind,
    pub(crate) transaction: Option<&'a str>,
    pub(crate) session: Option<&'a str>,
    pub(crate) grant: Option<&'a str>,
    /// Who voted.
    pub(crate) voter: Option<String>,
}

impl<'a> ClaimSubject<'a> {
    pub(crate) fn of(event: &'a Event) -> Self {
        let voter = match event {
            Event::ApprovalVoted(vote) => Some(vote.actor.identity()),
            _ => None,
        };
        Self {
            kind: event.kind(),
            transaction: event.transaction().map(TransactionId::as_str),
            session: event.session().map(SessionId::as_str),
            grant: event.grant().map(GrantId::as_str),
            voter,
        }
    }

    /// Reads the subject from the ids alone, for a record without a body.
    pub(crate) fn of_ids(kind: Kind, ids: &'a str) -> Self {
        let id = |prefix: &str| ids.split_ascii_whitespace().find(|id| id.starts_with(prefix));
        Self { kind, transaction: id("tx_"), session: id("ses_"), grant: id("gr_"), voter: None }
    }

    /// The claim key of the event.
    pub(crate) fn claim(&self) -> Option<String> {
        let (what, id) = match self.kind {
            Kind::SessionStarted => ("session", self.session?),
            Kind::SessionEnded => ("ended", self.session?),
            Kind::ProposalCreated => ("proposed", self.transaction?),
            Kind::ApprovalRequested => ("asked", self.transaction?),
            Kind::ApprovalVoted => {
                return Some(format!("voted {} {}", self.transaction?, self.voter.as_ref()?));
            }
            Kind::ApprovalDecided => ("decided", self.transaction?),
            Kind::GrantCreated => ("granted", self.grant?),
            Kind::GrantRevoked => ("revoked", self.grant?),
            Kind::CallIntended => ("intended", self.transaction?),
            kind if closes(kind) => ("closed", self.transaction?),
            _ => return None,
        };
        Some(format!("{what} {id}"))
    }

    pub(crate) fn life_change(&self) -> Option<OpenTableChange> {
        let transaction = self.transaction?.to_owned();
        Some(if closes(self.kind) {
            OpenTableChange::Closes(transaction)
        } else {
            OpenTableChange::Opens(transaction)
        })
    }
}

/// Whether this event ends a transaction.
pub(crate) fn closes(kind: Kind) -> bool {
    LifecycleStep::of_kind(kind).is_end()
}

/// The error for a claim that another commit took.
pub(crate) fn taken(key: &str) -> (String, LifecycleError) {
    let mut words = key.split(' ');
    let (what, id) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let why = match what {
        "session" => LifecycleError::StartedTwice,
        "ended" => LifecycleError::EndedTwice,
        "proposed" => LifecycleError::ProposedTwice,
        "asked" => LifecycleError::AskedTwice,
        "voted" => LifecycleError::VotedTwice,
        "decided" => LifecycleError::AnsweredTwice,
        "granted" => LifecycleError::GrantedTwice,
        "revoked" => LifecycleError::RevokedTwice,
        "intended" => LifecycleError::IntendedTwice,
        _ => LifecycleError::Closed,
    };
    (id.to_owned(), why)
}
