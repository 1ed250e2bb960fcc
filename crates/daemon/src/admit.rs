//! Admission of requests: authentication, authorization, attenuation, revocation, and what of it is recorded.

pub(crate) mod attenuation;
pub(crate) mod authenticate;
pub(crate) mod ceiling;
pub(crate) mod dispatch;
pub(crate) mod identity_methods;
pub(crate) mod peer;
pub(crate) mod revocation;
pub(crate) mod unauthenticated_log;
