//! Policy reload: notices that the sources of a policy changed, and keeps the policy for the next flow.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringfence_authz::Policy;
use ringfence_ledger::{Kind, Ledger, LedgerReader};
use ringfence_policy::ApprovalSettings;
use ringfence_types::{NetMode, PolicyLayer, Refusal, RefusalCode, Root, RuleId};

use crate::pipeline::chain;
use crate::session::{PolicySource, SessionSpec};

/// Number of retries when the policy changes while it is read.
const TRIES: usize = 8;

/// The policy that decides about a flow.
#[derive(Clone, Debug)]
pub(crate) struct CurrentPolicy {
    pub(crate) policy: Policy,
    pub(crate) digest: String,
    pub(crate) files: Vec<PathBuf>,
    pub(crate) settings: ApprovalSettings,
    pub(crate) roots: Vec<Root>,
}

impl CurrentPolicy {
    /// A session keeps its initial network mode, whatever a file says later.
    pub(crate) fn new(asked: SessionSpec, roots: Vec<Root>) -> Self {
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
pub(crate) struct PolicyCache {
    source: Option<Arc<dyn PolicySource + Send + Sync>>,
    current: Mutex<CachedPolicy>,
}

#[derive(Debug)]
struct CachedPolicy {
    current: Arc<CurrentPolicy>,
    stamp: PolicyStamp,
    reader: Option<LedgerReader>,
}

/// The state of files, also of missing ones. Equal stamps mean that no file changed.
///
/// One `stat` per file works on every file system. It also sees a file that is replaced, linked elsewhere or missing so
/// far, which a watch of a directory entry does not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileStamps(Vec<Option<[i64; 6]>>);

impl FileStamps {
    pub fn of<P: AsRef<Path>>(paths: impl IntoIterator<Item = P>) -> Self {
        let stamp = |path: P| {
            let metadata = fs::metadata(path).ok()?;
            let [inode, size] = [metadata.ino(), metadata.size()].map(u64::cast_signed);
            Some([
                inode,
                size,
                metadata.mtime(),
                metadata.mtime_nsec(),
                metadata.ctime(),
                metadata.ctime_nsec(),
            ])
        };
        Self(paths.into_iter().map(stamp).collect())
    }
}

/// The state of a policy's sources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct PolicyStamp {
    files: FileStamps,
    /// Sequence number of the last grant record.
    grants: Option<u64>,
}

impl PolicyCache {
    /// Starts without a stamp, so that the first look notices a change since `current` was read.
    pub(crate) fn new(current: CurrentPolicy, source: Option<Arc<dyn PolicySource + Send + Sync>>) -> Self {
        let current =
            CachedPolicy { current: Arc::new(current), stamp: PolicyStamp::default(), reader: None };
        Self { source, current: Mutex::new(current) }
    }

    /// The policy of the last look.
    pub(crate) fn last(&self) -> Arc<CurrentPolicy> {
        Arc::clone(&locked(&self.current).current)
    }

    pub(crate) fn now(&self, ledger: &Ledger) -> Result<Arc<CurrentPolicy>, Refusal> {
        let mut current = locked(&self.current);
        let Some(source) = &self.source else { return Ok(Arc::clone(&current.current)) };
        for _ in 0..TRIES {
            let stamp = current.stamp(ledger)?;
            if stamp == current.stamp {
                return Ok(Arc::clone(&current.current));
            }
            let asked = source.read()?;
            let roots = current.current.roots.clone();
            current.current = Arc::new(CurrentPolicy::new(asked, roots));
            // The stamp from before the read, so that a concurrent change is noticed in the next round.
            current.stamp = stamp;
        }
        Err(restless())
    }
}

fn restless() -> Refusal {
    Refusal {
        code: RefusalCode::Profile,
        layer: PolicyLayer::Operator,
        rule: RuleId::PolicyUnreadable.into(),
        message: "the policy changes faster than it can be read".to_owned(),
        hint: Some("try again when the policy files no longer change".to_owned()),
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl CachedPolicy {
    fn stamp(&mut self, ledger: &Ledger) -> Result<PolicyStamp, Refusal> {
        let unreadable = |why: String| Refusal {
            code: RefusalCode::Ledger,
            layer: PolicyLayer::Floor,
            rule: RuleId::LedgerWrittenBeforeDone.into(),
            message: format!("stored answers could not be read from the ledger: {why}"),
            hint: None,
        };
        if self.reader.is_none() {
            self.reader = Some(ledger.reader().map_err(|error| unreadable(chain(&error)))?);
        }
        let reader = self.reader.as_ref().ok_or_else(|| unreadable("there is no ledger".to_owned()))?;
        let grants = reader
            .of_kinds(&[Kind::GrantCreated, Kind::GrantRevoked], 1)
            .map_err(|error| unreadable(chain(&error)))?
            .last()
            .map(|record| record.seq);
        Ok(PolicyStamp { files: FileStamps::of(&self.current.files), grants })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence_types::Profile;

    /// A source that changes the policy file right after each read, `writes` times.
    #[derive(Debug)]
    struct Busy {
        file: PathBuf,
        writes: Mutex<usize>,
    }

    impl PolicySource for Busy {
        fn read(&self) -> Result<SessionSpec, Refusal> {
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

    fn asked(file: &std::path::Path) -> SessionSpec {
        let policy_files = vec![file.to_owned()];
        SessionSpec { policy_files, ..SessionSpec::new(PathBuf::from("/"), Policy::new(Profile::Workspace)) }
    }

    fn after(writes: usize) -> Result<(String, String), Refusal> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("policy.toml");
        fs::write(&file, "x").unwrap();
        let ledger = Ledger::open(&dir.path().join("ledger.db")).unwrap();
        let source = Busy { file: file.clone(), writes: Mutex::new(writes) };
        let standing = PolicyCache::new(CurrentPolicy::new(asked(&file), Vec::new()), Some(Arc::new(source)));
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
