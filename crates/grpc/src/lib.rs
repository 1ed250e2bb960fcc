//! The daemon's methods as gRPC: the messages of `proto/`, their mapping to the table of methods, and a client.
//!
//! Start reading at `methods.rs`: one line there is a gRPC method. It names a message that maps to a request of [`ringfence_api`],
//! so every gRPC method has a method of the table behind it.
//!
//! INVARIANT: this crate executes nothing. It opens no socket and authenticates no client; the user of an [`Rpc`] does.
//!
//! The attacker controls every byte of a message.

mod known_fields;
mod methods;
mod requests;
mod responses;
mod status;

/// Messages, and a client for each service. Generated from `proto/` (`tests/generated.rs`).
#[expect(clippy::allow_attributes_without_reason, reason = "made by a program")]
pub mod v1 {
    include!("../generated/ringfence.v1.rs");
}

/// `proto/` as a `google.protobuf.FileDescriptorSet`.
pub const DESCRIPTORS: &[u8] = include_bytes!("../generated/ringfence.v1.bin");

pub use methods::{GrpcExposure, Rpc, RpcStreaming, place};
pub use status::{code, status};
