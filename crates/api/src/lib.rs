//! The API of the daemon: one table of methods, their types, and the access to each.
//!
//! Start reading at `methods.rs`: one line there is a method on every transport, with its types, its access and its audit rule. A
//! method cannot exist without them.
//!
//! INVARIANT: this crate executes nothing. It touches no socket, file, clock or policy, so clients, the identity store and the
//! daemon share its types.

mod approval;
mod call;
mod caller;
mod error;
mod event;
mod file;
mod health;
mod identity;
pub mod methods;
mod openapi;
mod schema;
mod session;
mod text_or_base64;

pub use approval::*;
pub use call::*;
pub use caller::{Caller, TokenKind};
pub use error::{ApiError, ErrorCode};
pub use event::*;
pub use file::*;
pub use health::*;
pub use identity::*;
pub use methods::{
    Api, AuditRule, DrainBehavior, HttpVerb, Method, MethodAccess, MethodTarget, Request, RequestBodyKind,
    Response, ResponseKind, Route,
};
pub use openapi::openapi;
pub use ringfence_types::{Scope, ScopeSet};
pub use session::*;
pub use text_or_base64::TextOrBase64;
