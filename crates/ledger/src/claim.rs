//! What may happen once. Each is a key that a store gives away once, to whoever commits first.

use ringfence_types::{GrantId, SessionId, TransactionId};

use crate::event::{Event, Kind};
use crate::life::OutOfOrder;
use crate::store::LifeChange;

/// What an event is about, as far as order goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Subject<'a> {
    pub(crate) kind: Kind,
    pub(crate) transaction: Option<&'a str>,
    pub(crate) session: Option<&'a str>,
    pub(crate) grant: Option<&'a str>,
    /// Who voted.
    pub(crate) voter: Option<String>,
}

impl<'a> Subject<'a> {
    pub(crate) fn of(event: &'a Event) -> Self {
        let voter = match event {
            Event::ApprovalVoted(vote) => Some(vote.by.identity()),
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

    /// All that is left of a record without its body.
    pub(crate) fn of_ids(kind: Kind, ids: &'a str) -> Self {
        let id = |prefix: &str| ids.split_ascii_whitespace().find(|id| id.starts_with(prefix));
        Self { kind, transaction: id("tx_"), session: id("ses_"), grant: id("gr_"), voter: None }
    }

    /// What it lays claim to.
    pub(crate) fn claim(&self) -> Option<String> {
        let (what, id) = match self.kind {
            Kind::SessionStarted => ("session", self.session?),
            Kind::SessionEnded => ("ended", self.session?),
            Kind::Proposed => ("proposed", self.transaction?),
            Kind::ApprovalRequested => ("asked", self.transaction?),
            Kind::ApprovalVoted => {
                return Some(format!("voted {} {}", self.transaction?, self.voter.as_ref()?));
            }
            Kind::ApprovalDecided => ("decided", self.transaction?),
            Kind::GrantMade => ("granted", self.grant?),
            Kind::GrantRevoked => ("revoked", self.grant?),
            Kind::Intent => ("intended", self.transaction?),
            kind if closes(kind) => ("closed", self.transaction?),
            _ => return None,
        };
        Some(format!("{what} {id}"))
    }

    pub(crate) fn life_change(&self) -> Option<LifeChange> {
        let transaction = self.transaction?.to_owned();
        Some(if closes(self.kind) { LifeChange::Closes(transaction) } else { LifeChange::Opens(transaction) })
    }
}

/// Whether a transaction ends with this.
pub(crate) fn closes(kind: Kind) -> bool {
    matches!(kind, Kind::Settled | Kind::FlowEnded | Kind::Interrupted | Kind::Discarded | Kind::Refused)
}

/// What it means that somebody else was first.
pub(crate) fn taken(key: &str) -> (String, OutOfOrder) {
    let mut words = key.split(' ');
    let (what, id) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let why = match what {
        "session" => OutOfOrder::StartedTwice,
        "ended" => OutOfOrder::EndedTwice,
        "proposed" => OutOfOrder::ProposedTwice,
        "asked" => OutOfOrder::AskedTwice,
        "voted" => OutOfOrder::VotedTwice,
        "decided" => OutOfOrder::AnsweredTwice,
        "granted" => OutOfOrder::GrantedTwice,
        "revoked" => OutOfOrder::RevokedTwice,
        "intended" => OutOfOrder::IntendedTwice,
        _ => OutOfOrder::Closed,
    };
    (id.to_owned(), why)
}
