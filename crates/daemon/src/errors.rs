//! Maps errors of lower layers to errors for clients.

use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ringfence_api::{ApiError, ErrorCode};
use ringfence_types::RuleId;
pub(crate) use ringfence_types::chain;

/// Hides the cause from the client, which may be an agent, and logs it under an incident number.
pub(crate) fn internal(error: &dyn Error) -> ApiError {
    static INCIDENTS: AtomicU64 = AtomicU64::new(1);
    let incident = INCIDENTS.fetch_add(1, Ordering::Relaxed);
    tracing::error!(incident, error = %chain(error), "internal");
    ApiError::new(ErrorCode::Internal, format!("internal error (incident {incident})"))
        .with_hint("the log of the daemon has the cause under the incident number")
}

/// The same where only an operator can be the client: the message has the cause.
pub(crate) fn broken_for_operator(error: &dyn Error) -> ApiError {
    let mut told = internal(error);
    told.message = format!("{}: {}", told.message, chain(error));
    told
}

/// A dependency is unavailable. The client gets the message, the log gets the cause: once, not for every request
/// meanwhile.
pub(crate) fn unavailable(error: &dyn Error) -> ApiError {
    static LOGGED: Mutex<LogDedup> = Mutex::new(LogDedup(Vec::new()));
    let why = chain(error);
    if LOGGED.lock().unwrap_or_else(PoisonError::into_inner).is_news(&why, Instant::now()) {
        tracing::error!(error = %why, "unavailable");
    }
    ApiError::new(ErrorCode::Unavailable, error.to_string())
}

/// Causes logged recently.
struct LogDedup(Vec<(String, Instant)>);

impl LogDedup {
    /// A cause is logged again after this long without an occurrence.
    const QUIET: Duration = Duration::from_secs(60);
    /// Remembered causes. The oldest is evicted.
    const MOST: usize = 16;

    /// Whether to log the cause. Each occurrence restarts the quiet time, so a lasting failure is logged once.
    fn is_news(&mut self, why: &str, now: Instant) -> bool {
        self.0.retain(|(_, last)| now.saturating_duration_since(*last) < Self::QUIET);
        if let Some(at) = self.0.iter().position(|(said, _)| said == why) {
            let (said, _) = self.0.remove(at);
            self.0.push((said, now));
            return false;
        }
        if self.0.len() == Self::MOST {
            let _oldest = self.0.remove(0);
        }
        self.0.push((why.to_owned(), now));
        true
    }
}

pub(crate) fn not_found(what: &str, id: &str) -> ApiError {
    ApiError::new(
        ErrorCode::NotFound,
        format!("there is no {what} `{}`", ringfence_types::ByteString::from(id).display()),
    )
}

pub(crate) fn malformed(message: impl Into<String>) -> ApiError {
    ApiError::new(ErrorCode::InvalidArgument, message)
}

pub(crate) fn unauthenticated(message: &str, rule: RuleId) -> ApiError {
    ApiError::new(ErrorCode::Unauthenticated, message).with_rule(rule)
}

pub(crate) fn exhausted(message: impl Into<String>) -> ApiError {
    ApiError::new(ErrorCode::ResourceExhausted, message).with_hint("try again when others are done")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot write")]
    struct Outer(#[source] std::io::Error);

    fn outer() -> Outer {
        Outer(std::io::Error::other("/home/ann/.local/state: no space"))
    }

    #[test]
    fn the_cause_of_an_internal_error_is_not_sent() {
        assert_eq!(unavailable(&outer()).message, "cannot write");
        let told = internal(&outer());
        assert!(told.message.starts_with("internal error (incident "), "{told:?}");
        assert!(!format!("{told:?}").contains("/home") && told.hint.is_some());
        assert!(
            broken_for_operator(&outer()).message.ends_with("cannot write: /home/ann/.local/state: no space")
        );
    }

    #[test]
    fn what_goes_on_is_logged_once() {
        let (mut logged, begin) = (LogDedup(Vec::new()), Instant::now());
        let at = |seconds| begin + Duration::from_secs(seconds);
        assert!(logged.is_news("full", at(0)) && logged.is_news("busy", at(1)));
        for second in 2..200 {
            assert!(!logged.is_news("full", at(second)), "{second}");
        }
        assert!(logged.is_news("busy", at(200)), "it was over for a while");
        for other in 0..100 {
            assert!(logged.is_news(&format!("{other}"), at(200)));
        }
        assert_eq!(logged.0.len(), LogDedup::MOST);
    }
}
