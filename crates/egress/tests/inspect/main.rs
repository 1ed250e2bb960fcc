//! Inspected HTTP: what passes, what is given a credential, what is stopped. Every server is on the loopback.

mod echo;
mod flow;
mod inject;
mod leak;
mod names;
mod sign;
mod smuggle;
mod upstream;
mod ways;
mod world;
