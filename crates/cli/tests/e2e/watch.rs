//! Somebody who looks at the arguments and variables of every process of the machine, as anybody can.

use std::collections::BTreeSet;
use std::fs;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::test_timeouts::joined;
use crate::testkit::contains;

/// Looks again and again, until it is told to stop.
pub(crate) struct Watch {
    stop: mpsc::Sender<()>,
    watching: thread::JoinHandle<Seen>,
}

#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Where the text was.
    pub(crate) shown: Vec<String>,
    /// The names of all processes that were looked at.
    pub(crate) programs: BTreeSet<String>,
}

impl Watch {
    pub(crate) fn begin(text: &str) -> Self {
        let (stop, stopped) = mpsc::channel();
        let text = text.to_owned();
        let watching = thread::spawn(move || {
            let mut seen = Seen::default();
            while stopped.try_recv().is_err() {
                seen.look_for(&text);
                thread::sleep(Duration::from_millis(1));
            }
            seen
        });
        Self { stop, watching }
    }

    pub(crate) fn end(self) -> Seen {
        self.stop.send(()).unwrap();
        joined("it has stopped to watch", self.watching)
    }
}

impl Seen {
    fn look_for(&mut self, text: &str) {
        for process in fs::read_dir("/proc").unwrap().flatten() {
            // Those of others cannot be read, and those that ended neither.
            let read = |file: &str| fs::read(process.path().join(file)).unwrap_or_default();
            for file in ["cmdline", "environ"] {
                let bytes = read(file);
                if contains(&bytes, text.as_bytes()) {
                    self.shown.push(format!("{} {file}", process.path().display()));
                }
                if file == "environ" && !bytes.is_empty() {
                    self.programs.insert(String::from_utf8_lossy(&read("comm")).trim().to_owned());
                }
            }
        }
    }
}
