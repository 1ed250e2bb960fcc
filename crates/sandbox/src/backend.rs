//! How a sandbox is made: one module per backend, all through the same launcher.
//!
//! `seatbelt` is no backend yet: it builds the text and arguments for macOS, and nothing starts it.

pub(crate) mod bubblewrap;
pub(crate) mod container;
pub(crate) mod external_and_none;
pub(crate) mod landlock;
pub(crate) mod native;
pub mod seatbelt;
