//! Limits on what one client may use: memory, threads, connections, call slots and request rates.

pub(crate) mod audit_rate;
pub(crate) mod budget;
pub(crate) mod call_slots;
pub(crate) mod event_budget;
pub(crate) mod json_size;
pub(crate) mod min_body_rate;
pub(crate) mod rate_clock;
pub(crate) mod request_memory;
pub(crate) mod request_rate;
pub(crate) mod response_memory;
pub(crate) mod threads;
pub(crate) mod worker_permits;
