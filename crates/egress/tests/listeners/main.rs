//! The doors of the proxy, with servers, name servers and liars on the loopback.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "the helpers of a test fail like the test"
)]

mod bytes;
mod clerk;
mod connect;
mod dns;
mod gate;
mod limits;
mod plain;
mod resolving;
mod socks;
mod transparent;
mod tunnel;
mod world;
