//! Bounded records of calls: limits the bytes of a call in the ledger, whatever an agent sends. The fingerprint covers the whole
//! call.

use sha2::{Digest as _, Sha256};

use crate::{ByteString, Call, CallCeiling, ExecCall, FileCall, NetCeiling, StandardInput, ToolCall, hex};

/// Limit of one argument, value or path.
const WORD: usize = 4 << 10;
/// Limit of all arguments together, and of all variables together.
const RECORDED: usize = 16 << 10;
/// Maximum number of arguments, and of variables.
const WORDS: usize = 256;
/// Limit of standard input.
const INPUT: usize = 2 << 10;

impl Call {
    /// Replaces omitted parts by their length and digest.
    #[must_use]
    pub fn bounded(self) -> Self {
        match self {
            Self::Exec(exec) => Self::Exec(bounded_exec(exec)),
            Self::File(file) => Self::File(bounded_file(file)),
            Self::Fetch(mut fetch) => {
                fetch.url = bounded_text(&fetch.url);
                fetch.method = bounded_text(&fetch.method);
                Self::Fetch(fetch)
            }
            Self::Flow(mut flow) => {
                if let Some(request) = &mut flow.request {
                    request.url = bounded_text(&request.url);
                    request.method = bounded_text(&request.method);
                }
                Self::Flow(flow)
            }
            Self::Tool(tool) => Self::Tool(ToolCall {
                name: bounded_text(&tool.name),
                input: ToolCall::shortened(&tool.input),
                ..tool
            }),
            // Proposals and landings have their own limits.
            Self::Apply(patch) => Self::Apply(patch),
            Self::Land(landing) => Self::Land(landing),
        }
    }
}

fn bounded_exec(exec: ExecCall) -> ExecCall {
    let pairs = exec.env.iter().map(|(name, value)| name.as_slice().len() + value.as_slice().len());
    let kept = kept(pairs);
    let left_out = exec.env.get(kept..).unwrap_or_default();
    let mut env: Vec<(ByteString, ByteString)> =
        exec.env.iter().take(kept).map(|(name, value)| (bounded(name), bounded(value))).collect();
    if !left_out.is_empty() {
        let words = left_out.iter().flat_map(|(name, value)| [name, value]);
        env.push((ByteString::from(rest("variables", left_out.len(), words).as_str()), ByteString::from("")));
    }
    let stdin = match exec.stdin {
        StandardInput::Bytes { sha256, bytes, head } => {
            let head = ByteString::from(head.as_slice().get(..INPUT).unwrap_or(head.as_slice()));
            StandardInput::Bytes { sha256, bytes, head }
        }
        other => other,
    };
    // A ceiling has at most `CallCeiling::MOST` of each, or the call is refused.
    let ceiling = exec.ceiling.map(|ceiling| Box::new(bounded_ceiling(&ceiling)));
    ExecCall { argv: bounded_words(&exec.argv), cwd: bounded(&exec.cwd), env, ceiling, net: exec.net, stdin }
}

fn bounded_ceiling(ceiling: &CallCeiling) -> CallCeiling {
    let mut short = ceiling.map_paths(bounded);
    short.roots.iter_mut().for_each(|roots| roots.truncate(CallCeiling::MOST));
    if let Some(NetCeiling::Hosts(hosts)) = &mut short.net {
        hosts.truncate(CallCeiling::MOST);
    }
    short
}

fn bounded_words(words: &[ByteString]) -> Vec<ByteString> {
    let kept = kept(words.iter().map(|word| word.as_slice().len()));
    let mut short: Vec<ByteString> = words.iter().take(kept).map(bounded).collect();
    let left_out = words.get(kept..).unwrap_or_default();
    if !left_out.is_empty() {
        short.push(ByteString::from(rest("arguments", left_out.len(), left_out.iter()).as_str()));
    }
    short
}

/// Number of words of these lengths that are kept.
fn kept(lengths: impl Iterator<Item = usize>) -> usize {
    let mut room = RECORDED;
    let fits = |length: usize| {
        let taken = length.min(WORD);
        let fits = taken <= room;
        room = room.saturating_sub(taken);
        fits
    };
    lengths.take(WORDS).map(fits).take_while(|fits| *fits).count()
}

fn rest<'a>(what: &str, count: usize, words: impl Iterator<Item = &'a ByteString>) -> String {
    let (mut hash, mut bytes) = (Sha256::new(), 0_u64);
    for word in words {
        let word = word.as_slice();
        hash.update((word.len() as u64).to_le_bytes());
        hash.update(word);
        bytes += word.len() as u64;
    }
    format!("[{count} more {what}, {bytes} bytes, sha256 {}]", hex(hash.finalize()))
}

fn bounded_file(file: FileCall) -> FileCall {
    match file {
        FileCall::Read { path } => FileCall::Read { path: bounded(&path) },
        FileCall::Write { path, sha256, bytes } => FileCall::Write { path: bounded(&path), sha256, bytes },
        FileCall::List { path } => FileCall::List { path: bounded(&path) },
        FileCall::Symlink { path, target } => {
            FileCall::Symlink { path: bounded(&path), target: bounded(&target) }
        }
        FileCall::Stat { path } => FileCall::Stat { path: bounded(&path) },
        FileCall::Move { path, to } => FileCall::Move { path: bounded(&path), to: bounded(&to) },
        FileCall::Remove { path } => FileCall::Remove { path: bounded(&path) },
        FileCall::Send { path } => FileCall::Send { path: bounded(&path) },
    }
}

fn bounded(word: &ByteString) -> ByteString {
    excerpt(word.as_slice(), WORD).map_or_else(|| word.clone(), ByteString::from)
}

fn bounded_text(text: &str) -> String {
    excerpt(text.as_bytes(), WORD)
        .map_or_else(|| text.to_owned(), |short| String::from_utf8_lossy(&short).into_owned())
}

/// Start and end of `bytes`, with the length and digest of the whole in between. `None`: within `most`.
fn excerpt(bytes: &[u8], most: usize) -> Option<Vec<u8>> {
    if bytes.len() <= most {
        return None;
    }
    let (head, tail) = (most / 4 * 3, most / 4);
    let digest = hex(Sha256::digest(bytes));
    let between = format!("...[{} bytes in all, sha256 {digest}]...", bytes.len());
    let head = bytes.get(..head).unwrap_or_default();
    let tail = bytes.get(bytes.len().saturating_sub(tail)..).unwrap_or_default();
    Some([head, between.as_bytes(), tail].concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NetMode;

    fn exec(argv: Vec<ByteString>, env: Vec<(ByteString, ByteString)>) -> ExecCall {
        let stdin = StandardInput::of_bytes(&vec![b'x'; 1 << 20]);
        ExecCall { argv, cwd: ByteString::from("/w"), env, ceiling: None, net: NetMode::None, stdin }
    }

    fn size(call: &Call) -> usize {
        serde_json::to_vec(call).unwrap().len()
    }

    #[test]
    fn a_record_has_a_bounded_number_of_bytes() {
        let long = ByteString::from(vec![b'a'; 2 << 20]);
        let many: Vec<ByteString> =
            (0..100_000).map(|n| ByteString::from(format!("word{n}").as_str())).collect();
        let variables: Vec<(ByteString, ByteString)> =
            many.iter().map(|word| (word.clone(), word.clone())).collect();
        for call in [
            Call::Exec(exec(vec![long.clone(); 3], Vec::new())),
            Call::Exec(exec(many, Vec::new())),
            Call::Exec(exec(vec![ByteString::from("a")], variables)),
            Call::Exec(exec(vec![ByteString::from("a")], vec![(ByteString::from("A"), long.clone()); 20])),
            Call::File(FileCall::Read { path: long }),
        ] {
            let recorded = call.clone().bounded();
            assert!(size(&recorded) < 60_000, "{}", size(&recorded));
            assert_ne!(recorded, call);
        }
    }

    #[test]
    fn what_is_left_out_has_its_length_and_digest_and_what_is_short_stays() {
        let whole = Call::Exec(ExecCall {
            stdin: StandardInput::None,
            ..exec(vec![ByteString::from("ls")], Vec::new())
        });
        assert_eq!(whole.clone().bounded(), whole);
        let mut text = vec![b'a'; WORD];
        text.extend_from_slice(b"the end");
        let short = excerpt(&text, WORD).unwrap();
        let short = String::from_utf8(short).unwrap();
        let digest = hex(Sha256::digest(&text));
        assert!(short.contains(&format!("[{} bytes in all, sha256 {digest}]", text.len())), "{short}");
        assert!(short.starts_with("aaa") && short.ends_with("the end"));
    }
}
