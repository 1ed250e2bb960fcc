//! The contract between `ringfence-sandbox` and the launcher: what the plan says and what is said over the
//! control socket.
//!
//! Both halves of the contract live in this crate so that they are read and changed together. The launcher
//! itself is `main.rs`; it shares these modules and nothing else.
#![no_std]

#[cfg(feature = "encode")]
extern crate alloc;

pub mod command;
pub mod plan;
pub mod step;
pub mod wire;
