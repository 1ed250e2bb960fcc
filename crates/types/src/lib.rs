//! The vocabulary every other crate speaks: ids, calls, limits, postures, outcomes.
//!
//! INVARIANT: nothing here knows a mechanism. No file, process, socket, clock or policy is touched from this
//! crate, so that any layer may depend on it.

mod address;
mod approval;
mod bind;
mod bytes;
mod call;
mod consent;
mod denial;
mod endpoint;
mod entry;
mod held;
mod host;
mod id;
mod identity;
mod image;
mod key_place;
mod limits;
mod outcome;
mod path_verdict;
mod posture;
mod record;
mod scope;
mod secret;
mod stdin;
mod text;
pub mod units;
mod visible;
mod workspace;

pub use address::{Special, special_address, special_name};
pub use approval::{Block, Card, MadeBy, Offer, OfferScope, Principal, Quorum, ShownCredential};
pub use bind::{Bind, BindError, Reach, Transport};
pub use bytes::Bytes;
pub use call::{
    Call, Decision, Exec, Fetch, Fetcher, FileCall, Fingerprint, FlowCall, Introduced, Layer, Patch,
    PatchedFile, Refusal, RefusalCode, ToolCall, Way,
};
pub use consent::{ApprovalMode, CommandMode, LeakAction, Risk, UnknownHosts};
pub use denial::Denial;
pub use endpoint::{Endpoint, EndpointError, Site};
pub use entry::EntryKind;
pub use held::HeldChange;
pub use host::{Host, HostRule, HostRuleError};
pub use id::{ChainId, GrantId, SessionId, TransactionId, WorkspaceId};
pub use identity::{IdentityChange, IdentityVerb};
pub use image::{ImageName, NotAnImageName, OciRuntime};
pub use key_place::{KeyPlace, KeyPlaceError};
pub use limits::{LimitName, Limits};
pub use outcome::{Exit, Outcome, Stream, StreamSummary};
pub use path_verdict::{Extent, PathVerdict};
pub use posture::{Backend, Control, Gap, Level, Posture};
pub use scope::{
    Attenuation, CommandPrefix, Covers, CredentialKind, HostLimit, NotAbsolute, Rights, Scope, ScopeSet,
    Subtree, Wider, Within,
};
pub use secret::{Delivery, SecretClass};
pub use stdin::StandardInput;
pub use text::{chain, hex};
pub use workspace::{Access, HOME_INSIDE, NetMode, Profile, Root, UnknownWord, nearest};
