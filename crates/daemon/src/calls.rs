//! Admitted requests: commands, their output, files, transfers and approvals.

pub(crate) mod approvals;
pub(crate) mod exec;
pub(crate) mod files;
pub(crate) mod handle;
pub(crate) mod ledger_approver;
pub(crate) mod live_call;
pub(crate) mod output_buffer;
pub(crate) mod output_channel;
pub(crate) mod request_scope;
pub(crate) mod transfer;
