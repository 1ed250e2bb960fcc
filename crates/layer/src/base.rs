//! What the host had when the view was open: the third side of the comparison that finds conflicts.

use std::os::fd::AsFd as _;
use std::path::Path;

use rustix::io::Errno;
use rustix::time::ClockId;

use crate::attributes::OverlayMarks;
use crate::beneath::HeldTree;
use crate::change::EntryTime;
use crate::landing::ConflictReason;
use crate::record::BaseEntry;
use crate::stamp::Stamp;
use crate::walk::UpperCandidate;

/// Before a view is mounted. KERNEL: a change right after it may have an earlier time, by one tick; it is also before the first look
/// of the call, which then works on its result.
pub(crate) fn now() -> EntryTime {
    let now = rustix::time::clock_gettime(ClockId::Realtime);
    EntryTime { seconds: now.tv_sec, nanos: u32::try_from(now.tv_nsec).unwrap_or_default() }
}

/// Judges one entry when the view is closed.
pub(crate) fn of(
    candidate: &UpperCandidate,
    opened: EntryTime,
    upper: &HeldTree,
    host: &HeldTree,
) -> BaseEntry {
    let Some(found) = &candidate.host else { return of_nothing(candidate, opened, upper, host) };
    let merged =
        found.is_directory() && candidate.upper.as_ref().is_some_and(|upper| upper.stamp.is_directory());
    if !merged && found.changed > opened {
        return BaseEntry::Changed(ConflictReason::ChangedOnHost);
    }
    BaseEntry::Present(found.clone())
}

/// An entry that was copied up and is missing on the host: either it was renamed inside, or the host removed it or a directory
/// above it. The times of what is left above tell.
fn of_nothing(candidate: &UpperCandidate, opened: EntryTime, upper: &HeldTree, host: &HeldTree) -> BaseEntry {
    let mut missing = candidate.path.as_path();
    loop {
        let above = missing.parent().unwrap_or(Path::new(""));
        match host.stat(above) {
            Ok(Some(stat)) if Stamp::of(&stat).modified <= opened => return BaseEntry::Absent,
            Ok(None) if !above.as_os_str().is_empty() => missing = above,
            _ => break,
        }
    }
    match is_copied_up(missing, upper) {
        true => BaseEntry::Changed(ConflictReason::RemovedOnHost),
        false => BaseEntry::Absent,
    }
}

fn is_copied_up(path: &Path, upper: &HeldTree) -> bool {
    let opened = match upper.directory(path) {
        Err(Errno::NOTDIR) => upper.file(path),
        opened => opened,
    };
    opened.and_then(|fd| OverlayMarks::of(fd.as_fd())).is_ok_and(|marks| marks.origin)
}

/// Why an entry of the host is not what the call worked on. `None`: it is.
pub(crate) fn conflict(base: Option<&BaseEntry>, host: Option<&Stamp>) -> Option<ConflictReason> {
    match (base, host) {
        (Some(BaseEntry::Changed(reason)), _) => Some(*reason),
        (Some(BaseEntry::Absent), None) => None,
        // An entry of the host that was not there when the view was closed.
        (Some(BaseEntry::Absent) | None, Some(_)) => Some(ConflictReason::CreatedOnHost),
        (Some(BaseEntry::Present(_)) | None, None) => Some(ConflictReason::RemovedOnHost),
        (Some(BaseEntry::Present(base)), Some(host)) => {
            (!base.is_untouched(host)).then_some(ConflictReason::ChangedOnHost)
        }
    }
}
