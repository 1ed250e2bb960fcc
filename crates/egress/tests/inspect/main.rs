//! Inspected HTTP: what passes, what is given a credential, what is stopped. Every server is on the loopback.

mod flow;
mod inject;
mod leak;
mod names;
mod smuggle;
mod upstream;
mod world;
