//! What this machine enforces, found out by starting sandboxes on it.
