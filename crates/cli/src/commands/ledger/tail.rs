use std::io::{IsTerminal as _, stdout};
use std::os::fd::AsFd as _;
use std::process::ExitCode;
use std::time::Duration;

use ringfence_runtime::ledger::{Filter, LedgerReader, Listed, Reading, Timestamp};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{Form, LedgerError, Place, line, noted};
use crate::args::Wanted;
use crate::commands::run::print_json;
use crate::output::{self, say};

/// How often `-f` looks for more.
const LOOK: Duration = Duration::from_millis(100);

pub(super) struct Asked {
    pub(super) count: u32,
    pub(super) wanted: Wanted,
    pub(super) since: Option<Timestamp>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    Stop,
    Follow,
}

pub(super) fn run(place: &Place, asked: &Asked, form: Form, then: Then) -> Result<ExitCode, LedgerError> {
    let reader = place.reader()?;
    let mut filter = filter(&reader, &asked.wanted)?;
    filter.since = asked.since;
    // Before reading: what is appended in between is found by the first look.
    let version = reader.version()?;
    let end = reader.head()?.map_or(0, |head| head.seq);
    let found = reader.list(&filter, asked.count)?;
    found.iter().for_each(|listed| print(listed, form));
    noted::reading(place, Reading::Tail, found.len());
    if then == Then::Follow {
        filter.after = found.last().map_or(end, Listed::seq);
        follow(&reader, filter, version, form)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What was asked for, with ids in full.
pub(super) fn filter(reader: &LedgerReader, wanted: &Wanted) -> Result<Filter, LedgerError> {
    let about = wanted.session.as_deref().map(|session| reader.full_id(session)).transpose()?;
    Ok(Filter { kinds: wanted.kinds.clone(), about, ..Filter::default() })
}

/// Until nobody reads what we write.
fn follow(reader: &LedgerReader, mut filter: Filter, mut seen: i64, form: Form) -> Result<(), LedgerError> {
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

/// Waits a little; `false`: the other end of the pipe is closed.
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

fn print(listed: &Listed, form: Form) {
    match form {
        Form::Json => print_json(listed),
        Form::Text => say!("{}", line(listed)),
    }
}
