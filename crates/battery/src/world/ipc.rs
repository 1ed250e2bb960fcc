use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use crate::arena::Ipc;
use crate::sys::{self, CreateQueue};

/// The value of the host's semaphore.
pub(super) const SEMAPHORE: i32 = 1207;

/// System V and POSIX objects of the host, each with a secret in it.
#[derive(Debug)]
pub(crate) struct HostQueues {
    pub(super) ids: Ipc,
    name: CString,
    _queue: Option<OwnedFd>,
}

impl HostQueues {
    pub(super) fn make(nonce: &str, secret: &str) -> io::Result<Self> {
        let name = CString::new(format!("ringfence-mq-{nonce}"))?;
        let queue = sys::mq_open(&name, CreateQueue::Yes).ok();
        if let Some(queue) = &queue {
            sys::mq_send(queue.as_fd(), secret.as_bytes())?;
        }
        let ids = Ipc {
            shm: sys::shm_make(secret.as_bytes())?,
            sem: sys::sem_make(SEMAPHORE)?,
            msg: sys::msg_make(secret.as_bytes())?,
        };
        Ok(Self { ids, name, _queue: queue })
    }

    pub(crate) fn semaphore_word() -> String {
        format!("semaphore={SEMAPHORE}")
    }
}

impl Drop for HostQueues {
    fn drop(&mut self) {
        sys::shm_remove(self.ids.shm);
        sys::sem_remove(self.ids.sem);
        sys::msg_remove(self.ids.msg);
        sys::mq_unlink(&self.name);
    }
}
