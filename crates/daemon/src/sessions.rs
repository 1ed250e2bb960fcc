//! Sessions of the daemon from start to end, with their child sessions, sockets and policy.

pub(crate) mod child_session;
pub(crate) mod live_session;
pub(crate) mod policy_reload;
pub(crate) mod registry;
pub(crate) mod session_socket;
