//! The policy that holds for the next flow: read again when something it is made from has changed.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use ringfence_authz::Policy;
use ringfence_authz::policy::ApprovalSettings;
use ringfence_ledger::{Kind, Ledger, LedgerReader};
use ringfence_types::{Layer, NetMode, Refusal, RefusalCode, Root};

use super::gate::{locked, unwritable};
use crate::pipeline::chain;
use crate::session::{Asked, PolicySource};

/// How often a policy that changes while it is read is read again.
const TRIES: usize = 8;

/// What decides about a flow.
#[derive(Clone, Debug)]
pub(super) struct InForce {
    pub(super) policy: Policy,
    pub(super) digest: String,
    pub(super) files: Vec<PathBuf>,
    pub(super) settings: ApprovalSettings,
    pub(super) roots: Vec<Root>,
}

impl InForce {
    /// A session has the network it began with, whatever a file says later.
    pub(super) fn new(asked: Asked, roots: Vec<Root>) -> Self {
        let mut policy = asked.policy;
        policy.net = policy.net.min(NetMode::Filtered);
        Self {
            policy,
            digest: asked.policy_digest,
            files: asked.policy_files,
            settings: asked.settings,
            roots,
        }
    }
}

#[derive(Debug)]
pub(super) struct Standing {
    source: Option<Arc<dyn PolicySource + Send + Sync>>,
    current: Mutex<Current>,
}

#[derive(Debug)]
struct Current {
    in_force: Arc<InForce>,
    stamp: Stamp,
    reader: Option<LedgerReader>,
}

/// What a policy was made from, as far as it tells two of them apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Stamp {
    files: Vec<Option<[i64; 5]>>,
    /// The last stored answer that was given or taken back.
    grants: Option<u64>,
}

impl Standing {
    /// `in_force` was read before `ledger` was looked at: what changes from now on is seen.
    pub(super) fn new(in_force: InForce, source: Option<Arc<dyn PolicySource + Send + Sync>>) -> Self {
        let current = Current { in_force: Arc::new(in_force), stamp: Stamp::default(), reader: None };
        Self { source, current: Mutex::new(current) }
    }

    pub(super) fn now(&self, ledger: &Ledger) -> Result<Arc<InForce>, Refusal> {
        let mut current = locked(&self.current);
        let Some(source) = &self.source else { return Ok(Arc::clone(&current.in_force)) };
        for _ in 0..TRIES {
            let stamp = current.stamp(ledger)?;
            if stamp == current.stamp {
                return Ok(Arc::clone(&current.in_force));
            }
            let asked = source.read()?;
            let roots = current.in_force.roots.clone();
            current.in_force = Arc::new(InForce::new(asked, roots));
            // From before it was read: what changed meanwhile is seen in the next round.
            current.stamp = stamp;
        }
        Err(restless())
    }
}

fn restless() -> Refusal {
    Refusal {
        code: RefusalCode::Profile,
        layer: Layer::Operator,
        rule: "policy.unreadable".to_owned(),
        message: "the policy changes faster than it can be read".to_owned(),
        hint: Some("try again when nobody writes to the policy files".to_owned()),
    }
}

impl Current {
    fn stamp(&mut self, ledger: &Ledger) -> Result<Stamp, Refusal> {
        let unreadable = |why: String| unwritable(&why, None);
        if self.reader.is_none() {
            self.reader = Some(ledger.reader().map_err(|error| unreadable(chain(&error)))?);
        }
        let reader = self.reader.as_ref().ok_or_else(|| unreadable("there is no ledger".to_owned()))?;
        let grants = reader
            .of_kinds(&[Kind::GrantMade, Kind::GrantRevoked], 1)
            .map_err(|error| unreadable(chain(&error)))?
            .last()
            .map(|record| record.seq);
        let file = |path: &PathBuf| {
            let metadata = fs::metadata(path).ok()?;
            let size = i64::try_from(metadata.size()).unwrap_or(i64::MAX);
            let inode = metadata.ino().cast_signed();
            Some([inode, size, metadata.mtime(), metadata.mtime_nsec(), metadata.ctime_nsec()])
        };
        Ok(Stamp { files: self.in_force.files.iter().map(file).collect(), grants })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence_types::Profile;

    /// Somebody who writes to the policy file right after it was read, so many times.
    #[derive(Debug)]
    struct Busy {
        file: PathBuf,
        writes: Mutex<usize>,
    }

    impl PolicySource for Busy {
        fn read(&self) -> Result<Asked, Refusal> {
            let mut asked = asked(&self.file);
            asked.policy_digest = fs::read_to_string(&self.file).unwrap();
            let mut writes = locked(&self.writes);
            if *writes > 0 {
                *writes -= 1;
                fs::write(&self.file, "x".repeat(asked.policy_digest.len() + 1)).unwrap();
            }
            Ok(asked)
        }
    }

    fn asked(file: &std::path::Path) -> Asked {
        let policy_files = vec![file.to_owned()];
        Asked { policy_files, ..Asked::new(PathBuf::from("/"), Policy::new(Profile::Workspace)) }
    }

    fn after(writes: usize) -> Result<(String, String), Refusal> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("policy.toml");
        fs::write(&file, "x").unwrap();
        let ledger = Ledger::open(&dir.path().join("ledger.db")).unwrap();
        let source = Busy { file: file.clone(), writes: Mutex::new(writes) };
        let standing = Standing::new(InForce::new(asked(&file), Vec::new()), Some(Arc::new(source)));
        let now = standing.now(&ledger)?;
        Ok((now.digest.clone(), fs::read_to_string(&file).unwrap()))
    }

    #[test]
    fn a_change_while_the_policy_is_read_is_seen() {
        let (held, written) = after(3).unwrap();
        assert_eq!((held.as_str(), written.as_str()), ("xxxx", "xxxx"));
    }

    #[test]
    fn a_policy_that_never_rests_decides_nothing() {
        assert_eq!(after(usize::MAX).unwrap_err().rule, "policy.unreadable");
    }
}
