//! Whether the key file has the key that the chain names.

use super::{Keyring, SigningState, signature_state};
use crate::chain::{ChainBreak, ChainFlaw, ChainHead};
use crate::key::LedgerKeyError;
use crate::store::{ChainRows, ChainSelection, ChainStoreError};

/// Whether the key file matches the chain. Otherwise a replaced key would only show at the next checkpoint, and many processes exit
/// before that. `None`: a store with several chains has checked this at open.
pub(super) fn check_key(
    rows: &dyn ChainRows,
    head: &ChainHead,
    keyring: &Keyring,
) -> Result<Result<Option<SigningState>, ChainBreak>, ChainStoreError> {
    let broken = |error: &LedgerKeyError| {
        let why = ringfence_types::chain(error);
        Ok(Err(ChainBreak { seq: head.seq, what: ChainFlaw::Key { why } }))
    };
    if !keyring.is_there() {
        return broken(&LedgerKeyError::Missing { path: keyring.path.clone() });
    }
    if rows.chains() != ChainSelection::This {
        return Ok(Ok(None));
    }
    let mut before: Option<String> = None;
    loop {
        let state = match signature_state(rows)? {
            Ok(state) => state,
            Err(found) => return Ok(Err(found)),
        };
        match keyring.find(&state.key) {
            // Another process has rotated the key between the look at the chain and the look at the file.
            Err(LedgerKeyError::Other { .. }) if before.as_ref() != Some(&state.key) => {
                before = Some(state.key);
            }
            Err(
                error @ (LedgerKeyError::Missing { .. }
                | LedgerKeyError::NotAKey { .. }
                | LedgerKeyError::Other { .. }),
            ) => return broken(&error),
            // An error that an operator can fix without a new chain is reported by the next checkpoint.
            _ => return Ok(Ok(Some(state))),
        }
    }
}

/// Whether the key that the chain names last is not in its file. Changes nothing, unlike [`check_key`]. Not for a snapshot: a
/// rotation changes the file meanwhile.
pub(crate) fn lost_key(
    rows: &dyn ChainRows,
    keyring: &Keyring,
) -> Result<Option<ChainBreak>, ChainStoreError> {
    let mut before: Option<String> = None;
    loop {
        let state = match signature_state(rows)? {
            Ok(state) => state,
            Err(found) => return Ok(Some(found)),
        };
        match keyring.look_for(&state.key) {
            Ok(()) => return Ok(None),
            Err(error) if before.as_ref() == Some(&state.key) => {
                let why = ringfence_types::chain(&error);
                return Ok(Some(ChainBreak { seq: state.upto, what: ChainFlaw::Key { why } }));
            }
            // Another process may have rotated the key between the two looks.
            Err(_) => before = Some(state.key),
        }
    }
}
