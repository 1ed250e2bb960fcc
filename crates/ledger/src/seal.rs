//! What a node signs besides its checkpoints: the end of its chain, and that a chain is set aside.

use ringfence_types::ChainId;

use crate::chain::Head;
use crate::event::Event;
use crate::key;

/// The end of a chain. It covers every record before it through their hashes.
pub(crate) fn end(chain: &ChainId, head: &Head) -> Vec<u8> {
    key::statement(b"ringfence end v1\0", &[chain.as_str(), &head.seq.to_string(), &head.hash])
}

/// That the chain `old`, with exactly the rows of `digest`, is continued by `new`.
pub(crate) fn aside(old: &ChainId, digest: &str, new: &ChainId) -> Vec<u8> {
    key::statement(b"ringfence set aside v1\0", &[old.as_str(), digest, new.as_str()])
}

/// The keys that vouch for a chain one after the other, newest last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyLine {
    pub(crate) chain: ChainId,
    pub(crate) keys: Vec<String>,
}

impl KeyLine {
    /// Takes the next key if `event` is a hand-over that both keys have signed.
    pub(crate) fn follow(&mut self, event: &Event) {
        let Event::KeyRotated { old, new, by_old, by_new } = event else { return };
        let statement = key::hand_over(&self.chain, old, new);
        let is_signed = key::is_signed(old, &statement, by_old) && key::is_signed(new, &statement, by_new);
        if is_signed && self.keys.last() == Some(old) {
            self.keys.push(new.clone());
        }
    }
}
