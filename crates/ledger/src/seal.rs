//! Seals: signatures of a node besides its checkpoints, over the head of its chain and over setting a chain aside.

use ringfence_types::ChainId;

use crate::chain::ChainHead;
use crate::event::Event;
use crate::key;

/// Statement about the head of a chain. It covers every earlier record through the hashes.
pub(crate) fn end(chain: &ChainId, head: &ChainHead) -> Vec<u8> {
    key::statement(b"ringfence end v1\0", &[chain.as_str(), &head.seq.to_string(), &head.hash])
}

/// Statement that `new` continues the chain `old` with the content `digest`.
pub(crate) fn aside(old: &ChainId, digest: &str, new: &ChainId) -> Vec<u8> {
    key::statement(b"ringfence set aside v1\0", &[old.as_str(), digest, new.as_str()])
}

/// The keys of a chain in order, newest last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyLine {
    pub(crate) chain: ChainId,
    pub(crate) keys: Vec<String>,
}

impl KeyLine {
    /// Adds the next key if `event` is a rotation that both keys have signed.
    pub(crate) fn follow(&mut self, event: &Event) {
        let Event::LedgerKeyRotated { old, new, by_old, by_new } = event else { return };
        let statement = key::hand_over(&self.chain, old, new);
        let is_signed = key::is_signed(old, &statement, by_old) && key::is_signed(new, &statement, by_new);
        if is_signed && self.keys.last() == Some(old) {
            self.keys.push(new.clone());
        }
    }
}
