//! Reads a secret value from a prompt without echo on the controlling terminal, or from standard input. Every
//! buffer is wiped.

use std::fs::File;
use std::io::{self, IsTerminal as _};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use ringfence_runtime::secrets::MAX_VALUE;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::termios::{
    InputModes, LocalModes, OptionalActions, QueueSelector, SpecialCodeIndex, Termios, tcflush, tcgetattr,
    tcgetpgrp, tcsetattr,
};
use signal_hook::SigId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use zeroize::Zeroizing;

/// Why there is no value.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InputError {
    #[error("the value cannot be read from standard input")]
    Stream(#[source] Errno),
    #[error("there is no terminal to ask on")]
    NoTerminal(#[source] io::Error),
    #[error("nothing was kept: the prompt was left")]
    Left,
}

impl InputError {
    pub(crate) fn hint(&self) -> Option<&'static str> {
        match self {
            Self::NoTerminal(_) => Some("pipe the value into the command"),
            Self::Stream(_) | Self::Left => None,
        }
    }
}

type SecretBytes = Zeroizing<Vec<u8>>;

/// One byte above the limit, and a newline: enough to detect a value that is too long.
const ROOM: usize = MAX_VALUE + 2;

/// Prompts for `what` if a person is at the terminal.
pub(crate) fn read(what: &str) -> Result<SecretBytes, InputError> {
    if is_asked() {
        return SecretPrompt::open().map_err(InputError::NoTerminal)?.ask(what);
    }
    stream(rustix::stdio::stdin()).map_err(InputError::Stream)
}

/// Whether a person types the value, not another program.
pub(crate) fn is_asked() -> bool {
    std::io::stdin().is_terminal()
}

fn stream(input: impl AsFd) -> Result<SecretBytes, Errno> {
    let mut bytes = Zeroizing::new(Vec::with_capacity(ROOM));
    let mut chunk = Zeroizing::new([0_u8; 4096]);
    while bytes.len() < ROOM {
        let length = match rustix::io::read(&input, chunk.as_mut_slice()) {
            Ok(0) => break,
            Ok(length) => length,
            Err(Errno::INTR) => continue,
            Err(errno) => return Err(errno),
        };
        let taken = length.min(ROOM - bytes.len());
        bytes.extend_from_slice(chunk.get(..taken).unwrap_or_default());
    }
    Ok(bytes)
}

/// The controlling terminal without echo. Dropping it restores the previous mode.
struct SecretPrompt {
    terminal: File,
    before: Termios,
    signals: UnixStream,
    registered: Vec<SigId>,
}

/// The effect of one key on the line.
enum KeyPress {
    Enter,
    Leave,
    Erase,
    EraseAll,
    Byte(u8),
}

impl KeyPress {
    fn of(byte: u8) -> Self {
        match byte {
            b'\r' | b'\n' => Self::Enter,
            // Control-C, Control-D, Control-\.
            0x03 | 0x04 | 0x1c => Self::Leave,
            0x08 | 0x7f => Self::Erase,
            0x15 => Self::EraseAll,
            byte => Self::Byte(byte),
        }
    }
}

impl SecretPrompt {
    fn open() -> io::Result<Self> {
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let terminal = File::from(rustix::fs::open("/dev/tty", flags, Mode::empty())?);
        // In the background every access would stop this process.
        if tcgetpgrp(&terminal)? != rustix::process::getpgrp() {
            return Err(io::Error::other("this process is not in the foreground of its terminal"));
        }
        let before = tcgetattr(&terminal)?;
        let (signals, theirs) = UnixStream::pair()?;
        let mut registered = Vec::new();
        for signal in [SIGHUP, SIGINT, SIGQUIT, SIGTERM] {
            registered.push(signal_hook::low_level::pipe::register(signal, theirs.try_clone()?)?);
        }
        let prompt = Self { terminal, before, signals, registered };
        tcsetattr(&prompt.terminal, OptionalActions::Flush, &unseen(&prompt.before))?;
        Ok(prompt)
    }

    fn ask(&self, what: &str) -> Result<SecretBytes, InputError> {
        self.say(&format!("{what} (it is not shown; Enter ends it): "))?;
        let line = self.line();
        self.say("\n")?;
        line
    }

    fn say(&self, text: &str) -> Result<(), InputError> {
        let written = rustix::io::write(&self.terminal, text.as_bytes());
        written.map(drop).map_err(|errno| InputError::NoTerminal(errno.into()))
    }

    fn line(&self) -> Result<SecretBytes, InputError> {
        let mut line = Zeroizing::new(Vec::with_capacity(ROOM));
        loop {
            match KeyPress::of(self.byte()?) {
                KeyPress::Enter => return Ok(line),
                KeyPress::Leave => return Err(InputError::Left),
                KeyPress::Erase => erase(&mut line),
                KeyPress::EraseAll => line.clear(),
                KeyPress::Byte(byte) if line.len() < ROOM => line.push(byte),
                KeyPress::Byte(_) => {}
            }
        }
    }

    fn byte(&self) -> Result<u8, InputError> {
        let mut byte = [0];
        loop {
            self.wait()?;
            match rustix::io::read(&self.terminal, &mut byte) {
                Ok(0) => return Err(InputError::Left),
                Ok(_) => return Ok(byte[0]),
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(errno) => return Err(InputError::NoTerminal(errno.into())),
            }
        }
    }

    fn wait(&self) -> Result<(), InputError> {
        loop {
            let terminal = PollFd::new(&self.terminal, PollFlags::IN);
            let signals = PollFd::new(&self.signals, PollFlags::IN);
            let mut ready = [terminal, signals];
            match poll(&mut ready, None) {
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(InputError::NoTerminal(errno.into())),
                Ok(_) => {}
            }
            let [terminal, signals] = ready;
            if !signals.revents().is_empty() {
                return Err(InputError::Left);
            }
            if !terminal.revents().is_empty() {
                return Ok(());
            }
        }
    }
}

/// Erases one UTF-8 character.
fn erase(line: &mut Vec<u8>) {
    while line.pop().is_some_and(|byte| byte & 0xc0 == 0x80) {}
}

impl Drop for SecretPrompt {
    fn drop(&mut self) {
        for id in self.registered.drain(..) {
            signal_hook::low_level::unregister(id);
        }
        // A closed terminal needs neither. Unread input must not reach the shell.
        let _flushed = tcflush(&self.terminal, QueueSelector::IFlush);
        let _restored = tcsetattr(&self.terminal, OptionalActions::Now, &self.before);
    }
}

/// Delivers keys one by one, without echo and without signals, which would leave the terminal in this mode.
fn unseen(before: &Termios) -> Termios {
    let mut mode = before.clone();
    mode.local_modes -=
        LocalModes::ICANON | LocalModes::ECHO | LocalModes::ECHONL | LocalModes::ISIG | LocalModes::IEXTEN;
    mode.input_modes -= InputModes::IXON | InputModes::ISTRIP;
    mode.special_codes[SpecialCodeIndex::VMIN] = 1;
    mode.special_codes[SpecialCodeIndex::VTIME] = 0;
    mode
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn erasing_takes_whole_characters() {
        let mut line = "aé€".as_bytes().to_vec();
        erase(&mut line);
        assert_eq!(line, "aé".as_bytes());
        erase(&mut line);
        assert_eq!(line, b"a");
        erase(&mut line);
        erase(&mut line);
        assert!(line.is_empty());
    }

    #[test]
    fn a_stream_is_read_to_its_end_or_until_it_is_too_long() {
        let file = tempfile::tempfile().unwrap();
        rustix::io::write(&file, &vec![b'x'; MAX_VALUE + 100]).unwrap();
        rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(0)).unwrap();
        assert_eq!(stream(&file).unwrap().len(), ROOM);
    }
}
