//! The contract between `ringfence-sandbox` and the launcher: plan format and control messages.
//!
//! Both halves are in this crate so that they are read and changed together. The launcher itself is `main.rs`; it shares these
//! modules and nothing else.
//!
//! What it is not: it knows no policy. The sandbox chooses every operation of a plan before the launch.
#![no_std]

#[cfg(feature = "encode")]
extern crate alloc;

pub mod command;
pub mod plan;
pub mod step;
pub mod wire;
