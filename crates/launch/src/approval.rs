//! Commands with an approval bound to files: the command gets the approved bytes, even if other files have these names by now.
//!
//! The launcher executes the program from its sealed copy. For every file that the command opens, the kernel asks the supervisor,
//! which answers with the sealed copy of an approved file.

use core::ffi::CStr;

use ringfence_launch::command::{SEALED_PROGRAM, WireCommand};
use ringfence_launch::wire::ControlMessage;

use crate::CONTROL;
use crate::sys::{self, Errno};

/// KERNEL: `BINPRM_BUF_SIZE`; the kernel reads no longer interpreter line.
const LINE: usize = 256;

/// The sealed copy of an approved program.
pub(crate) struct SealedProgram {
    pub(crate) fd: i32,
    name: &'static CStr,
    content: &'static [u8],
}

/// Splits the descriptors of a request into standard streams and approved program.
pub(crate) fn split<'a>(
    command: &WireCommand<'_>,
    passed: &'a [i32],
) -> Result<(&'a [i32], Option<i32>), Errno> {
    if command.flags & SEALED_PROGRAM == 0 {
        return Ok((passed, None));
    }
    let (program, streams) = passed.split_last().ok_or(Errno(libc::EPROTO))?;
    Ok((streams, Some(*program)))
}

/// Installs the filter: from here on the kernel asks the supervisor about every file that this process and its descendants open.
pub(crate) fn listen(id: u64, command: &WireCommand<'_>) -> Result<(), Errno> {
    let Some(approved) = command.approved else { return Ok(()) };
    let listener = sys::seccomp_listener(approved.filter)?;
    let sent = sys::send(CONTROL, &ControlMessage::Listener { id }.encode(), Some(listener));
    sys::close(listener);
    sent
}

impl SealedProgram {
    pub(crate) fn open(command: &WireCommand<'static>, fd: i32) -> Result<Self, Errno> {
        let approved = command.approved.ok_or(Errno(libc::EPROTO))?;
        let content = match approved.program_length as usize {
            0 => &[],
            length => sys::map(fd, length)?,
        };
        Ok(Self { fd, name: approved.program, content })
    }

    /// The same copy at a descriptor of at least `least`.
    pub(crate) fn above(self, least: i32) -> Result<Self, Errno> {
        Ok(Self { fd: sys::duplicate_above(self.fd, least + 1)?, ..self })
    }

    /// Executes the approved file as execve(2) would.
    pub(crate) fn execute(&self, arguments: &'static [usize], environment: &'static [usize]) -> Errno {
        match self.content.strip_prefix(b"#!") {
            None => sys::execute_descriptor(self.fd, arguments, environment),
            Some(rest) => self.interpret(rest, arguments, environment),
        }
    }

    /// KERNEL: a script that is executed by descriptor does not know its own name. So the launcher executes its interpreter with
    /// that name; the interpreter opens it and gets the sealed copy.
    fn interpret(&self, rest: &[u8], arguments: &'static [usize], environment: &'static [usize]) -> Errno {
        let mut texts = [0_u8; LINE + 2];
        let Some((interpreter, option)) = interpreter_line(rest, &mut texts) else {
            return Errno(libc::ENOEXEC);
        };
        let count = arguments.len() + 2;
        let Ok(words) = sys::allocate_words(count) else { return Errno(libc::ENOMEM) };
        let head = [Some(interpreter), option, Some(self.name)];
        let head = head.into_iter().flatten().map(|text| text.as_ptr() as usize);
        // The remaining arguments end in NULL; one more word may follow it.
        let all = head.chain(arguments.iter().skip(1).copied());
        let mut used = 0;
        for (slot, word) in words.iter_mut().zip(all) {
            *slot = word;
            used += 1;
        }
        sys::execute(interpreter, words.get(..used).unwrap_or_default(), environment)
    }
}

/// Parses the text after `#!`: the interpreter, and the rest of the line as one argument.
fn interpreter_line<'a>(rest: &[u8], texts: &'a mut [u8]) -> Option<(&'a CStr, Option<&'a CStr>)> {
    let rest = rest.get(..LINE - 2).unwrap_or(rest);
    let line = rest.split(|byte| *byte == b'\n').next()?.trim_ascii();
    let end = line.iter().position(|byte| matches!(byte, b' ' | b'\t')).unwrap_or(line.len());
    let (interpreter, option) = line.split_at_checked(end)?;
    let option = option.trim_ascii();
    if interpreter.is_empty() || line.contains(&0) {
        return None;
    }
    let (first, second) = texts.split_at_mut_checked(interpreter.len() + 1)?;
    for (slot, byte) in first.iter_mut().zip(interpreter).chain(second.iter_mut().zip(option)) {
        *slot = *byte;
    }
    let option = if option.is_empty() { None } else { CStr::from_bytes_until_nul(second).ok() };
    Some((CStr::from_bytes_until_nul(first).ok()?, option))
}
