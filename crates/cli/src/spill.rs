//! Buffers captured output on disk until it is printed, so that memory stays bounded.

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use base64::Engine as _;
use serde::ser::{Serialize, SerializeMap as _, Serializer};

/// Divisible by three, so that the base64 of the parts is the base64 of the whole.
const PART: usize = 3 << 14;

/// An unnamed file, which disappears with this process.
#[derive(Debug)]
pub(crate) struct Spill {
    file: File,
}

impl Spill {
    pub(crate) fn create(state_dir: &Path) -> io::Result<Self> {
        tempfile::tempfile_in(state_dir).map(|file| Self { file })
    }

    /// Reads it once to determine whether it is text.
    pub(crate) fn finish(self) -> SpilledOutput {
        let mut check = Text::default();
        let read = parts(&self.file, |part| check.push(part, &mut |_| Ok(())).map_err(|NotText| fmt::Error));
        let form = if read.is_ok() && check.is_whole() { Form::Text } else { Form::Base64 };
        SpilledOutput { file: self.file, form }
    }
}

impl AsFd for Spill {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Text if it is UTF-8, otherwise an object with base64.
#[derive(Debug)]
pub(crate) struct SpilledOutput {
    file: File,
    form: Form,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Text,
    Base64,
}

impl Serialize for SpilledOutput {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.form {
            Form::Text => serializer.collect_str(&AsText(&self.file)),
            Form::Base64 => {
                let mut object = serializer.serialize_map(Some(1))?;
                object.serialize_entry("base64", &AsBase64(&self.file))?;
                object.end()
            }
        }
    }
}

struct AsText<'a>(&'a File);

impl fmt::Display for AsText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = Text::default();
        parts(self.0, |part| text.push(part, &mut |whole| f.write_str(whole)).map_err(|NotText| fmt::Error))
    }
}

struct AsBase64<'a>(&'a File);

impl Serialize for AsBase64<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl fmt::Display for AsBase64<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        parts(self.0, |part| f.write_str(&base64::engine::general_purpose::STANDARD.encode(part)))
    }
}

/// Passes the file to `each` in parts; all but the last are full.
fn parts(file: &File, mut each: impl FnMut(&[u8]) -> fmt::Result) -> fmt::Result {
    let mut part = vec![0_u8; PART];
    let mut at = 0;
    loop {
        let length = read_full(file, &mut part, at).map_err(|_unreadable| fmt::Error)?;
        each(part.get(..length).unwrap_or_default())?;
        at += length as u64;
        if length < part.len() {
            return Ok(());
        }
    }
}

fn read_full(file: &File, part: &mut [u8], at: u64) -> io::Result<usize> {
    let mut length = 0;
    while let Some(rest) = part.get_mut(length..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, at + length as u64) {
            Ok(0) => break,
            Ok(more) => length += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(length)
}

/// Checks UTF-8 across parts.
#[derive(Debug, Default)]
struct Text {
    /// The beginning of a character that continues in the next part.
    begun: Vec<u8>,
}

#[derive(Debug)]
struct NotText;

impl Text {
    fn push(&mut self, part: &[u8], each: &mut dyn FnMut(&str) -> fmt::Result) -> Result<(), NotText> {
        let joined;
        let bytes = if self.begun.is_empty() {
            part
        } else {
            joined = [self.begun.as_slice(), part].concat();
            &joined
        };
        let (whole, rest) = match std::str::from_utf8(bytes) {
            Ok(whole) => (whole, Vec::new()),
            Err(error) if error.error_len().is_none() => {
                let (whole, rest) = bytes.split_at_checked(error.valid_up_to()).unwrap_or_default();
                (std::str::from_utf8(whole).map_err(|_invalid| NotText)?, rest.to_vec())
            }
            Err(_) => return Err(NotText),
        };
        each(whole).map_err(|_unwritten| NotText)?;
        self.begun = rest;
        Ok(())
    }

    fn is_whole(&self) -> bool {
        self.begun.is_empty()
    }
}

/// Writes JSON without characters that a terminal would interpret; see [`crate::output::plain_json`].
pub(crate) struct Plain<W> {
    out: W,
}

impl<W: Write> Plain<W> {
    pub(crate) fn new(out: W) -> Self {
        Self { out }
    }
}

impl<W: Write> Write for Plain<W> {
    /// INVARIANT: the JSON writer passes whole characters.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.iter().all(|byte| matches!(byte, b' '..=b'~')) {
            return self.out.write_all(bytes).map(|()| bytes.len());
        }
        let text = std::str::from_utf8(bytes).map_err(io::Error::other)?;
        self.out.write_all(crate::output::plain_json(text).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(content: &[u8]) -> String {
        let directory = tempfile::tempdir().unwrap();
        let spill = Spill::create(directory.path()).unwrap();
        (&spill.file).write_all(content).unwrap();
        let mut out = Vec::new();
        serde_json::to_writer(Plain::new(&mut out), &spill.finish()).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn plain(content: &str) -> String {
        crate::output::plain_json(&serde_json::to_string(content).unwrap())
    }

    #[test]
    fn text_is_what_it_would_be_as_a_string() {
        for text in ["", "a", "\u{0}\"\\\n\u{1b}[2J", "é\u{202e}\u{1f600}"] {
            assert_eq!(json(text.as_bytes()), plain(text));
        }
    }

    #[test]
    fn a_character_may_lie_across_two_parts() {
        for before in PART - 4..=PART {
            let text = format!("{}\u{1f600}é", "x".repeat(before));
            assert_eq!(json(text.as_bytes()), plain(&text), "{before}");
        }
    }

    #[test]
    fn what_is_no_text_is_base64_of_the_whole() {
        let cut = [&vec![b'x'; PART][..], "é".as_bytes().get(..1).unwrap()].concat();
        for bytes in [vec![0xff; 2 * PART + 1], vec![0xc3], cut] {
            let encoded = base64::engine::general_purpose::STANDARD.encode(&bytes);
            assert_eq!(json(&bytes), format!("{{\"base64\":\"{encoded}\"}}"));
        }
    }
}
