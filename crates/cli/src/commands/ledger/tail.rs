use std::io::{IsTerminal as _, stdout};
use std::os::fd::AsFd as _;
use std::process::ExitCode;
use std::time::Duration;

use ringfence_ledger::{LedgerReadKind, LedgerReader, RecordFilter, RecordOrPruned, Timestamp};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{LedgerCommandError, LedgerSource, OutputFormat, audit_read, line};
use crate::args::RecordFilterArgs;
use crate::commands::run::print_json;
use crate::output::{self, say};

/// Poll interval of `-f`.
const LOOK: Duration = Duration::from_millis(100);

pub(super) struct TailOptions {
    pub(super) count: u32,
    pub(super) wanted: RecordFilterArgs,
    pub(super) since: Option<Timestamp>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum FollowMode {
    Stop,
    Follow,
}

pub(super) fn run(
    place: &LedgerSource,
    asked: &TailOptions,
    form: OutputFormat,
    then: FollowMode,
) -> Result<ExitCode, LedgerCommandError> {
    let reader = place.reader()?;
    let mut filter = filter(&reader, &asked.wanted)?;
    filter.since = asked.since;
    // Before the read, so that records appended meanwhile are found by the first poll.
    let version = reader.version()?;
    let end = reader.head()?.map_or(0, |head| head.seq);
    let found = reader.list(&filter, asked.count)?;
    found.iter().for_each(|listed| print(listed, form));
    audit_read::reading(place, LedgerReadKind::Tail, found.len());
    if then == FollowMode::Follow {
        filter.after = found.last().map_or(end, RecordOrPruned::seq);
        follow(&reader, filter, version, form)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The requested filter, with full ids.
pub(super) fn filter(
    reader: &LedgerReader,
    wanted: &RecordFilterArgs,
) -> Result<RecordFilter, LedgerCommandError> {
    let about = wanted.session.as_deref().map(|session| reader.full_id(session)).transpose()?;
    Ok(RecordFilter { kinds: wanted.kinds.clone(), about, ..RecordFilter::default() })
}

/// Follows until the reader of standard output is gone.
fn follow(
    reader: &LedgerReader,
    mut filter: RecordFilter,
    mut seen: i64,
    form: OutputFormat,
) -> Result<(), LedgerCommandError> {
    while is_read() && !output::is_closed() {
        let version = reader.version()?;
        if version == seen {
            continue;
        }
        seen = version;
        reader.each(&filter.clone(), |listed| {
            filter.after = listed.seq();
            print(&listed, form);
            std::ops::ControlFlow::Continue(())
        })?;
    }
    Ok(())
}

/// Waits for the interval; `false`: the reader is gone.
fn is_read() -> bool {
    let out = stdout();
    if out.is_terminal() {
        std::thread::sleep(LOOK);
        return true;
    }
    let mut descriptors = [PollFd::from_borrowed_fd(out.as_fd(), PollFlags::empty())];
    let limit = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
    match poll(&mut descriptors, Some(&limit)) {
        Ok(_) => !descriptors.iter().any(|descriptor| descriptor.revents().contains(PollFlags::ERR)),
        Err(_) => true,
    }
}

fn print(listed: &RecordOrPruned, form: OutputFormat) {
    match form {
        OutputFormat::Json => print_json(listed),
        OutputFormat::Text => say!("{}", line(listed)),
    }
}
