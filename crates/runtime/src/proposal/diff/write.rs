//! Writes a unified diff that [`super::read`] reads back exactly.

use imara_diff::{Algorithm, Diff, InternedInput};
use ringfence_types::ByteString;

/// Context lines around each change.
const CONTEXT: u32 = 3;

/// The section of one file in git's format. `None`: no file.
pub(crate) fn write(path: &ByteString, base: Option<&[u8]>, result: Option<&[u8]>) -> Vec<u8> {
    let (old, new) = (quoted_name(b"a/", path), quoted_name(b"b/", path));
    let mut out = [b"diff --git ", old.as_slice(), b" ", &new, b"\n"].concat();
    match (base, result) {
        (None, Some(_)) => out.extend_from_slice(b"new file mode 100644\n"),
        (Some(_), None) => out.extend_from_slice(b"deleted file mode 100644\n"),
        _ => {}
    }
    let (before, after) = (lines(base), lines(result));
    if before.is_empty() && after.is_empty() {
        return out;
    }
    let side = |name: Vec<u8>, there: bool| if there { name } else { b"/dev/null".to_vec() };
    out.extend_from_slice(&[b"--- ", side(old, base.is_some()).as_slice(), b"\n"].concat());
    out.extend_from_slice(&[b"+++ ", side(new, result.is_some()).as_slice(), b"\n"].concat());
    write_hunks(&before, &after, &mut out);
    out
}

/// The hunks between two contents, without a header.
pub(crate) fn hunks(base: &[u8], result: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    write_hunks(&lines(Some(base)), &lines(Some(result)), &mut out);
    out
}

fn write_hunks(before: &[&[u8]], after: &[&[u8]], out: &mut Vec<u8>) {
    for group in groups(before, after) {
        group.write(before, after, out);
    }
}

fn lines(content: Option<&[u8]>) -> Vec<&[u8]> {
    content.unwrap_or_default().split_inclusive(|byte| *byte == b'\n').collect()
}

/// Changes with shared context.
struct HunkGroup {
    changes: Vec<imara_diff::Hunk>,
}

fn groups(before: &[&[u8]], after: &[&[u8]]) -> Vec<HunkGroup> {
    let mut input = InternedInput::default();
    input.update_before(before.iter().copied());
    input.update_after(after.iter().copied());
    let mut diff = Diff::compute(Algorithm::Histogram, &input);
    diff.postprocess_lines(&input);
    let mut groups: Vec<HunkGroup> = Vec::new();
    for change in diff.hunks() {
        let near = |group: &&mut HunkGroup| {
            group.changes.last().is_some_and(|last| change.before.start <= last.before.end + 2 * CONTEXT)
        };
        match groups.last_mut().filter(near) {
            Some(group) => group.changes.push(change),
            None => groups.push(HunkGroup { changes: vec![change] }),
        }
    }
    groups
}

impl HunkGroup {
    fn write(&self, before: &[&[u8]], after: &[&[u8]], out: &mut Vec<u8>) {
        let (Some(first), Some(last)) = (self.changes.first(), self.changes.last()) else { return };
        let lead = first.before.start.min(CONTEXT);
        let length = u32::try_from(before.len()).unwrap_or(u32::MAX);
        let trail = (length - last.before.end).min(CONTEXT);
        let old = first.before.start - lead..last.before.end + trail;
        let new = first.after.start - lead..last.after.end + trail;
        out.extend_from_slice(format!("@@ -{} +{} @@\n", numbers(&old), numbers(&new)).as_bytes());
        let mut at = old.start;
        for change in &self.changes {
            push(b' ', part(before, at, change.before.start), out);
            push(b'-', part(before, change.before.start, change.before.end), out);
            push(b'+', part(after, change.after.start, change.after.end), out);
            at = change.before.end;
        }
        push(b' ', part(before, at, old.end), out);
    }
}

fn numbers(range: &std::ops::Range<u32>) -> String {
    match range.end - range.start {
        0 => format!("{},0", range.start),
        1 => (range.start + 1).to_string(),
        count => format!("{},{count}", range.start + 1),
    }
}

fn part<'l>(lines: &'l [&'l [u8]], from: u32, to: u32) -> &'l [&'l [u8]] {
    lines.get(from as usize..to as usize).unwrap_or_default()
}

fn push(sign: u8, lines: &[&[u8]], out: &mut Vec<u8>) {
    for line in lines {
        out.push(sign);
        out.extend_from_slice(line);
        if !line.ends_with(b"\n") {
            out.extend_from_slice(b"\n\\ No newline at end of file\n");
        }
    }
}

/// A name in git's format, quoted if it contains special bytes.
pub(crate) fn quoted_name(prefix: &[u8], path: &ByteString) -> Vec<u8> {
    let plain = |byte: &u8| byte.is_ascii() && !byte.is_ascii_control() && *byte != b'"' && *byte != b'\\';
    if path.as_slice().iter().all(plain) {
        return [prefix, path.as_slice()].concat();
    }
    let mut out = [b"\"", prefix].concat();
    for byte in path.as_slice() {
        match byte {
            b'"' | b'\\' => out.extend([b'\\', *byte]),
            byte if plain(byte) => out.push(*byte),
            byte => out.extend_from_slice(format!("\\{byte:03o}").as_bytes()),
        }
    }
    out.push(b'"');
    out
}
