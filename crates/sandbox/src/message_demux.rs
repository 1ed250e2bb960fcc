//! Sorts the messages of PID 1 by command: commands that run at once share one control socket, and the thread that reads a
//! message may attend another command than the one it is about.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringfence_launch::wire::ControlMessage;
use rustix::event::{EventfdFlags, eventfd};

pub(crate) type InitMessage = (ControlMessage, Option<OwnedFd>);

/// The messages that were read and not yet collected.
#[derive(Debug, Default)]
pub(crate) struct MessageDemux {
    queues: Mutex<HashMap<u64, CommandQueue>>,
    /// Held from reading a message until it is in its queue: a thread that finds the socket at its end has missed nothing.
    reading: Mutex<()>,
}

#[derive(Debug)]
struct CommandQueue {
    messages: VecDeque<InitMessage>,
    wakeup: Arc<OwnedFd>,
}

/// The messages for one command.
#[derive(Debug)]
pub(crate) struct CommandMessages<'p> {
    demux: &'p MessageDemux,
    id: u64,
    wakeup: Arc<OwnedFd>,
}

impl MessageDemux {
    /// Opens the queue of a command. Called before the command is started: another thread may read its first message.
    pub(crate) fn open(&self, id: u64) -> io::Result<CommandMessages<'_>> {
        let wakeup = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let queue = CommandQueue { messages: VecDeque::new(), wakeup: Arc::clone(&wakeup) };
        let _none = self.queues().insert(id, queue);
        Ok(CommandMessages { demux: self, id, wakeup })
    }

    pub(crate) fn reading(&self) -> MutexGuard<'_, ()> {
        self.reading.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a message into the queue of its command, and drops it if the command has ended.
    pub(crate) fn deliver(&self, id: u64, message: InitMessage) {
        if let Some(queue) = self.queues().get_mut(&id) {
            queue.messages.push_back(message);
            // KERNEL: a write to an eventfd fails only when its counter is full, and then it is readable already.
            let _full = rustix::io::write(&*queue.wakeup, &1_u64.to_ne_bytes());
        }
    }

    fn queues(&self) -> MutexGuard<'_, HashMap<u64, CommandQueue>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CommandMessages<'_> {
    pub(crate) fn wakeup(&self) -> BorrowedFd<'_> {
        self.wakeup.as_fd()
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn collect(&self) -> Option<InitMessage> {
        let mut queues = self.demux.queues();
        let message = queues.get_mut(&self.id)?.messages.pop_front();
        if message.is_none() {
            let mut count = [0; 8];
            // An eventfd at zero is no error.
            let _quiet = rustix::io::read(&*self.wakeup, &mut count);
        }
        message
    }
}

impl Drop for CommandMessages<'_> {
    fn drop(&mut self) {
        let _closed = self.demux.queues().remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_wait_for_their_own_command() {
        let demux = MessageDemux::default();
        let (one, two) = (demux.open(1).unwrap(), demux.open(2).unwrap());
        demux.deliver(2, (ControlMessage::Kill { id: 2 }, None));
        assert!(one.collect().is_none());
        assert!(matches!(two.collect(), Some((ControlMessage::Kill { id: 2 }, None))));
        assert!(two.collect().is_none());
        drop(two);
        demux.deliver(2, (ControlMessage::Kill { id: 2 }, None));
        assert!(demux.queues().len() == 1, "nothing is kept for a command that has ended");
    }
}
