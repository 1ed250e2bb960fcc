//! Passwords: argon2id, at most two at once. Unknown names take as long as known ones.

use std::sync::{Condvar, Mutex, PoisonError};

use argon2::Argon2;
use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher as _, PasswordVerifier as _};

/// In characters. Length is the only requirement.
const SHORTEST: usize = 12;
const LONGEST: usize = 1024;
/// Each hash takes 19 MiB while it runs.
const AT_ONCE: usize = 2;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PasswordError {
    #[error("the password has less than {SHORTEST} characters")]
    Short,
    #[error("the password has more than {LONGEST} bytes")]
    Long,
    #[error("the password is not UTF-8, or has a line break in it")]
    NotText,
    #[error("the password cannot be hashed: {0}")]
    Hash(argon2::password_hash::Error),
}

/// Checks the form of a new password and hashes it.
pub(crate) fn hashed(password: &[u8]) -> Result<String, PasswordError> {
    let text = std::str::from_utf8(password).map_err(|_not_text| PasswordError::NotText)?;
    if text.contains(['\n', '\r', '\0']) {
        return Err(PasswordError::NotText);
    }
    match text.chars().count() {
        _ if text.len() > LONGEST => Err(PasswordError::Long),
        length if length < SHORTEST => Err(PasswordError::Short),
        _ => in_turn(|| Argon2::default().hash_password(password))
            .map(|hash| hash.to_string())
            .map_err(PasswordError::Hash),
    }
}

/// `known` is the stored hash. `None`: the name is unknown, and the check takes as long, so that timing does not reveal
/// it.
pub(crate) fn is_right(password: &[u8], known: Option<&str>) -> bool {
    if password.len() > LONGEST {
        return false;
    }
    let parsed = known.and_then(|known| PasswordHash::new(known).ok());
    in_turn(|| match parsed {
        Some(parsed) => Argon2::default().verify_password(password, &parsed).is_ok(),
        None => {
            let mut wasted = [0_u8; 32];
            // Only the time matters.
            let _time = Argon2::default().hash_password_into(password, b"no such operator", &mut wasted);
            false
        }
    })
}

static RUNNING: Mutex<usize> = Mutex::new(0);
static ENDED: Condvar = Condvar::new();

/// Bounds concurrent hashes, which would otherwise exhaust the daemon's memory.
fn in_turn<T>(work: impl FnOnce() -> T) -> T {
    let running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    let mut running =
        ENDED.wait_while(running, |count| *count >= AT_ONCE).unwrap_or_else(PoisonError::into_inner);
    *running += 1;
    drop(running);
    let turn = HashSlot;
    let done = work();
    drop(turn);
    done
}

struct HashSlot;

impl Drop for HashSlot {
    fn drop(&mut self) {
        let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        *running = running.saturating_sub(1);
        ENDED.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S003-16.
    #[test]
    fn s003_16_a_password_is_kept_as_argon2id_with_a_salt_of_its_own() {
        let password = ["correct", "horse", "battery"].join(" ");
        let [one, two] = [hashed(password.as_bytes()).unwrap(), hashed(password.as_bytes()).unwrap()];
        assert!(one.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{one}");
        assert_ne!(one, two);
        assert!(is_right(password.as_bytes(), Some(&one)));
        assert!(!is_right(b"correct horse staple", Some(&one)));
        assert!(!is_right(password.as_bytes(), None));
        assert!(!is_right(password.as_bytes(), Some("not a hash")));
    }

    #[test]
    fn what_is_no_password_is_refused() {
        assert!(matches!(hashed("ä".repeat(11).as_bytes()), Err(PasswordError::Short)));
        assert!(matches!(hashed(&[b'x'; 1025]), Err(PasswordError::Long)));
        assert!(matches!(hashed(b"\xff\xffxxxxxxxxxxxxxxx"), Err(PasswordError::NotText)));
        assert!(matches!(hashed(b"two lines of it\nare none"), Err(PasswordError::NotText)));
    }
}
