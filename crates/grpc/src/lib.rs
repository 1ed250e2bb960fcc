//! The daemon's methods as gRPC: the messages of `proto/`, what each of them asks the table of methods for, and a client.
//!
//! Start reading at [`table`]: one line there is a method of gRPC. It is made of a message that says which request of
//! [`ringfence_api`] it stands for, so that there is none without a method of the table behind it.
//!
//! INVARIANT: nothing here does anything. No socket is touched and nobody is let in; that is for whoever has a [`Rpc`].
//!
//! What the attacker controls here: every byte of a message.

mod answers;
mod fields;
mod requests;
mod status;
mod table;

/// The messages, and a client for each service. Made from `proto/` (`tests/generated.rs`).
#[expect(clippy::allow_attributes_without_reason, reason = "made by a program")]
pub mod v1 {
    include!("../generated/ringfence.v1.rs");
}

/// `proto/` in the form that programs read: a `google.protobuf.FileDescriptorSet`.
pub const DESCRIPTORS: &[u8] = include_bytes!("../generated/ringfence.v1.bin");

pub use status::{code, status};
pub use table::{Flow, Place, Rpc, place};
