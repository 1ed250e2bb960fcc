//! Merkle trees as in RFC 6962, section 2.1, over the hashes of records.

use sha2::{Digest as _, Sha256};

pub(crate) type MerkleHash = [u8; 32];

/// The root of a tree that grows at its end. Keeps one hash per level.
#[derive(Clone, Debug, Default)]
pub(crate) struct MerkleFrontier {
    /// Complete subtrees with the number of levels below them, largest first.
    peaks: Vec<(u32, MerkleHash)>,
}

impl MerkleFrontier {
    pub(crate) fn push(&mut self, record: &MerkleHash) {
        let mut new = (0, leaf(record));
        while let Some(&(height, left)) = self.peaks.last()
            && height == new.0
        {
            self.peaks.pop();
            new = (height + 1, node(&left, &new.1));
        }
        self.peaks.push(new);
    }

    pub(crate) fn root(&self) -> MerkleHash {
        let mut peaks = self.peaks.iter().rev().map(|(_, hash)| *hash);
        let Some(last) = peaks.next() else { return Sha256::digest([]).into() };
        peaks.fold(last, |right, left| node(&left, &right))
    }
}

/// The hashes that lead from record `at` to the root, lowest first.
pub(crate) fn path(records: &[MerkleHash], at: usize) -> Vec<MerkleHash> {
    let Some((left, right)) = split(records) else { return Vec::new() };
    let (mut path, sibling) = if at < left.len() {
        (self::path(left, at), right)
    } else {
        (self::path(right, at - left.len()), left)
    };
    path.push(root(sibling));
    path
}

/// The root of a tree of `count` records that has `record` at `at`, if `path` is right. `None`: it cannot be a path.
pub(crate) fn root_by_path(
    record: &MerkleHash,
    at: u64,
    count: u64,
    path: &[MerkleHash],
) -> Option<MerkleHash> {
    if at >= count {
        return None;
    }
    if count == 1 {
        return path.is_empty().then(|| leaf(record));
    }
    let (sibling, below) = path.split_last()?;
    let left = largest_power_below(count);
    if at < left {
        Some(node(&root_by_path(record, at, left, below)?, sibling))
    } else {
        Some(node(sibling, &root_by_path(record, at - left, count - left, below)?))
    }
}

fn root(records: &[MerkleHash]) -> MerkleHash {
    let mut tree = MerkleFrontier::default();
    records.iter().for_each(|record| tree.push(record));
    tree.root()
}

/// The left part is the largest power of two that leaves something for the right.
fn split(records: &[MerkleHash]) -> Option<(&[MerkleHash], &[MerkleHash])> {
    let count = u64::try_from(records.len()).ok().filter(|count| *count > 1)?;
    records.split_at_checked(usize::try_from(largest_power_below(count)).ok()?)
}

fn largest_power_below(count: u64) -> u64 {
    count.next_power_of_two() / 2
}

fn leaf(record: &MerkleHash) -> MerkleHash {
    let mut bytes = [0; 33];
    let [prefix, rest @ ..] = &mut bytes;
    *prefix = 0;
    *rest = *record;
    Sha256::digest(bytes).into()
}

fn node(left: &MerkleHash, right: &MerkleHash) -> MerkleHash {
    let mut hash = Sha256::new();
    hash.update([1]);
    hash.update(left);
    hash.update(right);
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use ct_merkle::mem_backed_tree::MemoryBackedTree;

    use super::*;

    fn records(count: u8) -> Vec<MerkleHash> {
        (0..count).map(|number| Sha256::digest([number]).into()).collect()
    }

    #[test]
    fn the_empty_tree_is_that_of_the_rfc() {
        let expected = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(crate::chain::HexDigest::encode(MerkleFrontier::default().root()).to_string(), expected);
    }

    /// Against another implementation, for every size and place up to 70.
    #[test]
    fn roots_and_paths_are_those_of_the_rfc() {
        for count in 1..=70_u8 {
            let ours = records(count);
            let mut theirs = MemoryBackedTree::<Sha256, Vec<u8>>::new();
            ours.iter().for_each(|record| theirs.push(record.to_vec()));
            let root = root(&ours);
            assert_eq!(root.as_slice(), theirs.root().as_bytes().as_slice(), "{count}");
            for at in 0..usize::from(count) {
                let path = path(&ours, at);
                assert_eq!(path.concat(), theirs.prove_inclusion(at).as_bytes(), "{at} of {count}");
                let root_at = root_by_path(&ours[at], at as u64, u64::from(count), &path);
                assert_eq!(root_at, Some(root));
            }
        }
    }

    #[test]
    fn a_wrong_path_leads_elsewhere() {
        let records = records(11);
        let root = root(&records);
        let good = path(&records, 6);
        assert_eq!(root_by_path(&records[6], 6, 11, &good), Some(root), "control");
        assert_ne!(root_by_path(&records[7], 6, 11, &good), Some(root), "another record");
        assert_ne!(root_by_path(&records[6], 5, 11, &good), Some(root), "another place");
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at][0] ^= 1;
            assert_ne!(root_by_path(&records[6], 6, 11, &bad), Some(root));
        }
        assert_eq!(root_by_path(&records[6], 6, 11, &good[1..]), None, "too short");
        assert_eq!(root_by_path(&records[6], 11, 11, &good), None, "beyond the end");
        assert_eq!(root_by_path(&records[6], 0, 0, &[]), None);
    }
}
