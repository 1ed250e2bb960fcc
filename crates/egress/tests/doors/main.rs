//! The doors of the proxy, with servers, name servers and liars on the loopback.

mod bytes;
mod clerk;
mod connect;
mod dns;
mod gate;
mod limits;
mod resolving;
mod socks;
mod transparent;
mod tunnel;
mod world;
