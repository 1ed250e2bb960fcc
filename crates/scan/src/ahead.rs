//! Windows that other threads look at while the input goes on. What is found in a window depends on its bytes alone, so
//! the order in which windows are done changes nothing; they are taken back in the order in which they were handed out.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use crate::layer::Looked;
use crate::scanner::Scanner;

/// More threads than this are not worth their memory: whoever reads the output is slower.
const MOST_WORKERS: usize = 2;
/// Windows on their way. Their bytes are kept.
pub(crate) const MOST_WINDOWS: usize = 4;

/// A part of the input.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// What is decided about.
    pub(crate) window: Range<usize>,
    /// What is looked at for that.
    pub(crate) seen: Range<usize>,
}

/// A window that is on its way.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) place: Place,
    pub(crate) work: Work,
}

#[derive(Debug)]
pub(crate) enum Work {
    /// It goes on as the window before it did, which repeated itself after so many bytes.
    Repeats(usize),
    Handed(Handed),
}

/// What a worker owes.
#[derive(Debug)]
pub(crate) struct Handed {
    worker: usize,
    /// Nobody waits for this lock. It is there because a body of the proxy, which holds a stream, must be `Sync`.
    answer: Mutex<Receiver<Looked>>,
}

impl Handed {
    /// `None` if the worker is gone.
    pub(crate) fn wait(self) -> Option<Looked> {
        self.answer.into_inner().unwrap_or_else(PoisonError::into_inner).recv().ok()
    }

    fn done(&self) -> Option<Looked> {
        self.answer.lock().unwrap_or_else(PoisonError::into_inner).try_recv().ok()
    }
}

#[derive(Debug, Default)]
pub(crate) struct Ahead {
    workers: Vec<Worker>,
    pub(crate) tasks: VecDeque<Task>,
    /// After how many bytes the last window came again.
    pub(crate) period: Option<usize>,
}

#[derive(Debug)]
struct Worker {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

struct Job {
    bytes: Vec<u8>,
    answer: SyncSender<Looked>,
}

impl Ahead {
    /// Gives a window to whoever has least to do. `None` if there is nobody.
    pub(crate) fn hand(&mut self, scanner: &Scanner, bytes: &[u8]) -> Option<Handed> {
        let worker = self.worker(scanner)?;
        // One place, so that a worker never waits for whoever takes the answer.
        let (give, answer) = sync_channel(1);
        let jobs = self.workers.get(worker)?.jobs.as_ref()?;
        jobs.send(Job { bytes: bytes.to_vec(), answer: give }).ok()?;
        Some(Handed { worker, answer: Mutex::new(answer) })
    }

    fn worker(&mut self, scanner: &Scanner) -> Option<usize> {
        let burden = |worker: usize| {
            let is_his = |task: &&Task| matches!(&task.work, Work::Handed(handed) if handed.worker == worker);
            self.tasks.iter().filter(is_his).count()
        };
        let idlest = (0..self.workers.len()).min_by_key(|worker| burden(*worker));
        let most = thread::available_parallelism().map_or(1, usize::from).min(MOST_WORKERS);
        if idlest.is_none_or(|idlest| burden(idlest) > 0) && self.workers.len() < most {
            self.workers.extend(Worker::start(scanner.clone()));
            return self.workers.len().checked_sub(1);
        }
        idlest
    }

    /// If the first window on its way is done: what was found, `None` where nobody had to look.
    pub(crate) fn first_done(&self) -> Option<Option<Looked>> {
        match &self.tasks.front()?.work {
            Work::Repeats(_) => Some(None),
            Work::Handed(handed) => handed.done().map(Some),
        }
    }
}

impl Worker {
    fn start(scanner: Scanner) -> Option<Self> {
        let (jobs, queue) = channel::<Job>();
        let work = move || {
            for job in queue {
                // Whoever does not want the answer any more has gone.
                let _unwanted = job.answer.send(scanner.look(&job.bytes));
            }
        };
        let thread = thread::Builder::new().name("scan".to_owned()).spawn(work).ok()?;
        Some(Self { jobs: Some(jobs), thread: Some(thread) })
    }
}

/// No thread outlives the stream that it works for.
impl Drop for Worker {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // It has panicked, and the panic was reported.
            let _panicked = thread.join();
        }
    }
}
