//! Inspected HTTP: what passes, what is given a credential, what is stopped. Every server is on the loopback.

mod inject;
mod world;
