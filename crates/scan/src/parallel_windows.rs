//! Windows scanned by other threads while the input continues. The findings of a window depend on its bytes alone, and results are
//! collected in the order of the windows, so threads do not change the result.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use crate::scanner::Scanner;
use crate::window::WindowFindings;

/// More threads would not help, because the reader of the output is slower.
const MOST_WORKERS: usize = 2;
/// Maximum of windows in progress. Their bytes are kept.
pub(crate) const MOST_WINDOWS: usize = 4;

/// A part of the input.
#[derive(Clone, Debug)]
pub(crate) struct InputRange {
    /// Range that the window decides about.
    pub(crate) window: Range<usize>,
    /// Range that the window reads for that.
    pub(crate) seen: Range<usize>,
}

/// A window in progress.
#[derive(Debug)]
pub(crate) struct WindowTask {
    pub(crate) place: InputRange,
    pub(crate) work: WindowWork,
}

#[derive(Debug)]
pub(crate) enum WindowWork {
    /// Continues a repetition of the previous window, with this period.
    Repeats(usize),
    Handed(WorkerHandoff),
}

/// Pending result of a worker.
#[derive(Debug)]
pub(crate) struct WorkerHandoff {
    worker: usize,
    /// Never contended. A body of the proxy holds a stream and must be `Sync`.
    answer: Mutex<Receiver<WindowFindings>>,
}

impl WorkerHandoff {
    /// `None` if the worker is gone.
    pub(crate) fn wait(self) -> Option<WindowFindings> {
        self.answer.into_inner().unwrap_or_else(PoisonError::into_inner).recv().ok()
    }

    fn done(&self) -> Option<WindowFindings> {
        self.answer.lock().unwrap_or_else(PoisonError::into_inner).try_recv().ok()
    }
}

#[derive(Debug, Default)]
pub(crate) struct ParallelScan {
    workers: Vec<ScanWorker>,
    pub(crate) tasks: VecDeque<WindowTask>,
    /// Period of the last window.
    pub(crate) period: Option<usize>,
}

#[derive(Debug)]
struct ScanWorker {
    jobs: Option<Sender<ScanJob>>,
    thread: Option<JoinHandle<()>>,
}

struct ScanJob {
    bytes: Vec<u8>,
    answer: SyncSender<WindowFindings>,
}

impl ParallelScan {
    /// Hands a window to the least busy worker. `None`: there is none.
    pub(crate) fn hand(&mut self, scanner: &Scanner, bytes: &[u8]) -> Option<WorkerHandoff> {
        let worker = self.worker(scanner)?;
        // Capacity one, so that a worker never blocks on its result.
        let (give, answer) = sync_channel(1);
        let jobs = self.workers.get(worker)?.jobs.as_ref()?;
        jobs.send(ScanJob { bytes: bytes.to_vec(), answer: give }).ok()?;
        Some(WorkerHandoff { worker, answer: Mutex::new(answer) })
    }

    fn worker(&mut self, scanner: &Scanner) -> Option<usize> {
        let burden = |worker: usize| {
            let is_his = |task: &&WindowTask| matches!(&task.work, WindowWork::Handed(handed) if handed.worker == worker);
            self.tasks.iter().filter(is_his).count()
        };
        let idlest = (0..self.workers.len()).min_by_key(|worker| burden(*worker));
        let most = thread::available_parallelism().map_or(1, usize::from).min(MOST_WORKERS);
        if idlest.is_none_or(|idlest| burden(idlest) > 0) && self.workers.len() < most {
            self.workers.extend(ScanWorker::start(scanner.clone()));
            return self.workers.len().checked_sub(1);
        }
        idlest
    }

    /// Result of the first window in progress, if it is done; `None` inside if no scan was needed.
    pub(crate) fn first_done(&self) -> Option<Option<WindowFindings>> {
        match &self.tasks.front()?.work {
            WindowWork::Repeats(_) => Some(None),
            WindowWork::Handed(handed) => handed.done().map(Some),
        }
    }
}

impl ScanWorker {
    fn start(scanner: Scanner) -> Option<Self> {
        let (jobs, queue) = channel::<ScanJob>();
        let work = move || {
            for job in queue {
                // The receiver is gone and does not need the result.
                let _unwanted = job.answer.send(scanner.look(&job.bytes));
            }
        };
        let thread = thread::Builder::new().name("scan".to_owned()).spawn(work).ok()?;
        Some(Self { jobs: Some(jobs), thread: Some(thread) })
    }
}

/// No thread outlives its stream.
impl Drop for ScanWorker {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // It has panicked, and the panic was reported.
            let _panicked = thread.join();
        }
    }
}
