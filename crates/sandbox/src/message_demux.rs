//! What PID 1 says, for whom: commands that run at once share one control socket, and whoever reads from it first may read
//! what is meant for another.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringfence_launch::wire::ControlMessage;
use rustix::event::{EventfdFlags, eventfd};

pub(crate) type InitMessage = (ControlMessage, Option<OwnedFd>);

/// The letters that were read and not yet collected.
#[derive(Debug, Default)]
pub(crate) struct MessageDemux {
    boxes: Mutex<HashMap<u64, CommandQueue>>,
    /// Held from reading a message until it is where it belongs: whoever finds the socket at its end has then missed nothing.
    reading: Mutex<()>,
}

#[derive(Debug)]
struct CommandQueue {
    letters: VecDeque<InitMessage>,
    bell: Arc<OwnedFd>,
}

/// The letters for one command.
#[derive(Debug)]
pub(crate) struct CommandMessages<'p> {
    post: &'p MessageDemux,
    id: u64,
    bell: Arc<OwnedFd>,
}

impl MessageDemux {
    /// Before the command is asked for: its first word may be read by another.
    pub(crate) fn open(&self, id: u64) -> io::Result<CommandMessages<'_>> {
        let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let slot = CommandQueue { letters: VecDeque::new(), bell: Arc::clone(&bell) };
        let _none = self.boxes().insert(id, slot);
        Ok(CommandMessages { post: self, id, bell })
    }

    pub(crate) fn reading(&self) -> MutexGuard<'_, ()> {
        self.reading.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a letter where its command finds it. Nobody waits for one of a command that is over.
    pub(crate) fn deliver(&self, id: u64, letter: InitMessage) {
        if let Some(slot) = self.boxes().get_mut(&id) {
            slot.letters.push_back(letter);
            // One that rings already does not ring louder.
            let _full = rustix::io::write(&*slot.bell, &1_u64.to_ne_bytes());
        }
    }

    fn boxes(&self) -> MutexGuard<'_, HashMap<u64, CommandQueue>> {
        self.boxes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CommandMessages<'_> {
    pub(crate) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn collect(&self) -> Option<InitMessage> {
        let mut boxes = self.post.boxes();
        let letter = boxes.get_mut(&self.id)?.letters.pop_front();
        if letter.is_none() {
            let mut rung = [0; 8];
            // Not rung is no error.
            let _quiet = rustix::io::read(&*self.bell, &mut rung);
        }
        letter
    }
}

impl Drop for CommandMessages<'_> {
    fn drop(&mut self) {
        let _closed = self.post.boxes().remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_wait_for_their_own_command() {
        let post = MessageDemux::default();
        let (one, two) = (post.open(1).unwrap(), post.open(2).unwrap());
        post.deliver(2, (ControlMessage::Kill { id: 2 }, None));
        assert!(one.collect().is_none());
        assert!(matches!(two.collect(), Some((ControlMessage::Kill { id: 2 }, None))));
        assert!(two.collect().is_none());
        drop(two);
        post.deliver(2, (ControlMessage::Kill { id: 2 }, None));
        assert!(post.boxes().len() == 1, "nothing is kept for a command that is over");
    }
}
