//! What the daemon can be asked: one table of methods, their types, and who may call them.
//!
//! Start reading at [`methods`]: one line there is a method on every transport, with its types, its right and what of it is
//! written down. There is no way to have a method without them.
//!
//! INVARIANT: nothing here does anything. No socket, file, clock or policy is touched, so that clients, the store of
//! identities and the daemon speak the same types.

mod approval;
mod call;
mod caller;
mod data;
mod error;
mod event;
mod file;
mod health;
mod identity;
pub mod methods;
mod openapi;
mod session;
mod shape;

pub use approval::*;
pub use call::*;
pub use caller::{Caller, TokenKind};
pub use data::Data;
pub use error::{ApiError, ErrorCode};
pub use event::*;
pub use file::*;
pub use health::*;
pub use identity::*;
pub use methods::{Access, Audit, Brings, Course, Method, Reach, Reply, Request, Route, Verb};
pub use openapi::openapi;
pub use ringfence_types::{Scope, ScopeSet};
pub use session::*;
