//! From what went wrong below to what a client is told.

use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ringfence_api::{ApiError, ErrorCode};
pub(crate) use ringfence_types::chain;
use ringfence_types::{Layer, Refusal, RefusalCode};

/// The answer of policy or of a person.
pub(crate) fn refused(refusal: &Refusal) -> ApiError {
    let mut error =
        ApiError::new(ErrorCode::Refused, refusal.message.clone()).with_rule(refusal.rule.clone());
    error.refusal = Some(Box::new(refusal.clone()));
    match &refusal.hint {
        Some(hint) => error.with_hint(hint.clone()),
        None => error,
    }
}

/// What is written down of somebody who may not, and what agents are told of it: the answer that it is, or one for who they are.
pub(crate) fn refusal_of(error: &ApiError) -> Refusal {
    if let Some(refusal) = &error.refusal {
        return refusal.as_ref().clone();
    }
    Refusal {
        code: RefusalCode::Identity,
        layer: Layer::Floor,
        rule: error.rule.clone().unwrap_or_default(),
        message: error.message.clone(),
        hint: error.hint.clone(),
    }
}

/// We broke. What exactly is for whoever reads the log: who asks may be an agent, and has the number to ask about.
pub(crate) fn internal(error: &dyn Error) -> ApiError {
    static INCIDENTS: AtomicU64 = AtomicU64::new(1);
    let incident = INCIDENTS.fetch_add(1, Ordering::Relaxed);
    tracing::error!(incident, why = %chain(error), "internal");
    ApiError::new(ErrorCode::Internal, format!("ringfence broke (incident {incident})"))
        .with_hint("the log of the daemon says what broke, under the number of the incident")
}

/// The same where only an operator can have asked, who is told all of it.
pub(crate) fn broken_for_operator(error: &dyn Error) -> ApiError {
    let mut told = internal(error);
    told.message = format!("{}: {}", told.message, chain(error));
    told
}

/// Something that this takes cannot be had now. Whoever asks hears what, and the log has why: once, and not for every request that
/// comes meanwhile.
pub(crate) fn unavailable(error: &dyn Error) -> ApiError {
    static LOGGED: Mutex<Logged> = Mutex::new(Logged(Vec::new()));
    let why = chain(error);
    if LOGGED.lock().unwrap_or_else(PoisonError::into_inner).is_news(&why, Instant::now()) {
        tracing::error!(%why, "unavailable");
    }
    ApiError::new(ErrorCode::Unavailable, error.to_string())
}

/// What was said in the log a short while ago.
struct Logged(Vec<(String, Instant)>);

impl Logged {
    /// After so long without the same it is said again.
    const QUIET: Duration = Duration::from_secs(60);
    /// So many different causes at once; the oldest makes place.
    const MOST: usize = 16;

    /// Whether it is to be said now. One that goes on is said once: each time counts as the last.
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
        format!("there is no {what} `{}`", ringfence_types::Bytes::from(id).display()),
    )
}

pub(crate) fn malformed(message: impl Into<String>) -> ApiError {
    ApiError::new(ErrorCode::Malformed, message)
}

pub(crate) fn unauthenticated(message: &str, rule: &str) -> ApiError {
    ApiError::new(ErrorCode::Unauthenticated, message).with_rule(rule)
}

pub(crate) fn exhausted(message: impl Into<String>) -> ApiError {
    ApiError::new(ErrorCode::Exhausted, message).with_hint("try again when others are done")
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
    fn whoever_asks_hears_no_cause() {
        assert_eq!(unavailable(&outer()).message, "cannot write");
        let told = internal(&outer());
        assert!(told.message.starts_with("ringfence broke (incident "), "{told:?}");
        assert!(!format!("{told:?}").contains("/home") && told.hint.is_some());
        assert!(
            broken_for_operator(&outer()).message.ends_with("cannot write: /home/ann/.local/state: no space")
        );
    }

    #[test]
    fn what_goes_on_is_logged_once() {
        let (mut logged, begin) = (Logged(Vec::new()), Instant::now());
        let at = |seconds| begin + Duration::from_secs(seconds);
        assert!(logged.is_news("full", at(0)) && logged.is_news("busy", at(1)));
        for second in 2..200 {
            assert!(!logged.is_news("full", at(second)), "{second}");
        }
        assert!(logged.is_news("busy", at(200)), "it was over for a while");
        for other in 0..100 {
            assert!(logged.is_news(&format!("{other}"), at(200)));
        }
        assert_eq!(logged.0.len(), Logged::MOST);
    }
}
