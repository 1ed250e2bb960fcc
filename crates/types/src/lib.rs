//! The shared vocabulary of all crates: ids, calls, limits, postures, outcomes.
//!
//! INVARIANT: this crate touches no file, process, socket, clock or policy, so every layer may depend on it.

mod address;
mod approval;
mod bind_address;
mod byte_string;
mod call;
mod ceiling;
mod consent;
mod container;
mod credential_location;
mod endpoint;
mod entry;
mod escape;
mod fingerprint;
mod held_change;
mod host;
mod id;
mod identity;
mod image;
mod landing;
mod limits;
mod outcome;
mod path_decision;
mod posture;
mod record;
mod refusal_notice;
mod rights;
mod rule;
mod secret;
mod stdin;
mod text;
pub mod units;
mod workspace;

pub use address::{SpecialAddress, special_address, special_name};
pub use approval::{
    ApprovalPrompt, CallOrigin, CredentialRef, GrantOffer, OfferScope, Principal, Quorum, QuotedText,
};
pub use bind_address::{BindAddress, BindError, BindScope, BindTransport};
pub use byte_string::ByteString;
pub use call::{
    Call, Decision, ExecCall, FetchCall, FetchOrigin, FileCall, FlowCall, IntroducedSecret, Patch,
    PatchedFile, PolicyLayer, Refusal, RefusalCode, ToolCall, Way,
};
pub use ceiling::{CallCeiling, CeilingFormError, LimitCeilings, NetCeiling};
pub use consent::{ApprovalMode, CommandMode, LeakAction, Risk, UnlistedHosts};
pub use container::{BindMount, ContainerRequest, ContainerSpec};
pub use credential_location::{CredentialLocation, CredentialLocationError};
pub use endpoint::{Endpoint, EndpointBase, EndpointError};
pub use entry::EntryKind;
pub use fingerprint::ActionFingerprint;
pub use held_change::HeldChange;
pub use host::{Host, HostPattern, HostPatternError};
pub use id::{ChainId, GrantId, SessionId, TransactionId, WorkspaceId};
pub use identity::{IdentityChange, IdentityVerb};
pub use image::{ImageId, ImageName, NotAnImageId, NotAnImageName, OciRuntime};
pub use landing::{LandedEntry, LandedState, Landing, LandingAction, UnlandedEntry};
pub use limits::{LimitName, Limits};
pub use outcome::{ExitReason, Outcome, OutputStream, StreamSummary};
pub use path_decision::{PathDecision, ProtectionExtent};
pub use posture::{Backend, Control, ControlLevel, Gap, Posture};
pub use refusal_notice::RefusalNotice;
pub use rights::{
    AllOrOnly, Attenuation, CommandPrefix, ContainsAll, CredentialKind, HostRestriction, RelativePathError,
    Rights, Scope, ScopeSet, Subtree, WiderThanParent,
};
pub use rule::{RuleFamily, RuleId, RuleName};
pub use secret::{Delivery, SecretClass, SecretReach, SecretUse};
pub use stdin::StandardInput;
pub use text::{chain, hex};
pub use workspace::{Access, HOME_INSIDE, NetMode, PROXY_PORT, Profile, Root, UnknownKeyword, nearest};
