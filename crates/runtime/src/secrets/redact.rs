//! The values of stored secrets, taken out of whatever is written down.

use memchr::memmem;
use ringfence_scan::SHORTEST_SECRET;
use ringfence_types::{Bytes, Call, Exec, FileCall, Refusal};

use super::entry::Meta;
use super::store::Secrets;

/// Text without the values, and whose they were.
pub(crate) struct Redacted<'s> {
    pub(crate) clean: Vec<u8>,
    pub(crate) found: Vec<&'s Meta>,
}

impl Secrets {
    /// `text` with each value replaced by the name of its secret. Longest first: one value can be part of another.
    pub(crate) fn redact(&self, text: &[u8]) -> Redacted<'_> {
        let mut redacted = Redacted { clean: text.to_vec(), found: Vec::new() };
        if self.is_empty() || text.len() < SHORTEST_SECRET {
            return redacted;
        }
        let mut known: Vec<_> =
            self.values().filter(|(_, value)| value.as_slice().len() >= SHORTEST_SECRET).collect();
        known.sort_by_key(|(_, value)| std::cmp::Reverse(value.as_slice().len()));
        for (meta, value) in known {
            if let Some(clean) = replaced(&redacted.clean, value.as_slice(), meta) {
                redacted.clean = clean;
                redacted.found.push(meta);
            }
        }
        redacted
    }

    pub(crate) fn text(&self, text: &str) -> String {
        String::from_utf8_lossy(&self.redact(text.as_bytes()).clean).into_owned()
    }

    pub(crate) fn refusal(&self, refusal: &Refusal) -> Refusal {
        if self.is_empty() {
            return refusal.clone();
        }
        let hint = refusal.hint.as_deref().map(|hint| self.text(hint));
        Refusal { message: self.text(&refusal.message), hint, ..refusal.clone() }
    }

    /// A call without the values, and where they were.
    pub(crate) fn call(&self, call: &Call) -> (Call, Vec<(String, &Meta)>) {
        let mut found = Vec::new();
        if self.is_empty() {
            return (call.clone(), found);
        }
        let mut clean = |bytes: &Bytes, place: String| {
            let redacted = self.redact(bytes.as_slice());
            found.extend(redacted.found.into_iter().map(|meta| (place.clone(), meta)));
            Bytes::from(redacted.clean)
        };
        let call = match call {
            Call::Exec(exec) => Call::Exec(Exec {
                argv: exec
                    .argv
                    .iter()
                    .enumerate()
                    .map(|(at, arg)| clean(arg, format!("argv[{at}]")))
                    .collect(),
                cwd: clean(&exec.cwd, "cwd".to_owned()),
                env: exec
                    .env
                    .iter()
                    .map(|(name, value)| (name.clone(), clean(value, format!("env {}", name.display()))))
                    .collect(),
                net: exec.net,
            }),
            Call::File(file) => Call::File(match file {
                FileCall::Read { path } => FileCall::Read { path: clean(path, "path".to_owned()) },
                FileCall::List { path } => FileCall::List { path: clean(path, "path".to_owned()) },
                FileCall::Write { path, sha256, bytes } => FileCall::Write {
                    path: clean(path, "path".to_owned()),
                    sha256: sha256.clone(),
                    bytes: *bytes,
                },
                FileCall::Symlink { path, target } => FileCall::Symlink {
                    path: clean(path, "path".to_owned()),
                    target: clean(target, "target".to_owned()),
                },
            }),
            Call::Apply(patch) => Call::Apply(patch.clone()),
        };
        (call, found)
    }
}

fn replaced(text: &[u8], value: &[u8], meta: &Meta) -> Option<Vec<u8>> {
    let finder = memmem::Finder::new(value);
    finder.find(text)?;
    let mut clean = Vec::with_capacity(text.len());
    let mut from = 0;
    for at in finder.find_iter(text) {
        clean.extend_from_slice(text.get(from..at).unwrap_or_default());
        clean.extend_from_slice(format!("[redacted:{}]", rule(meta)).as_bytes());
        from = at + value.len();
    }
    clean.extend_from_slice(text.get(from..).unwrap_or_default());
    Some(clean)
}

/// What the ledger calls a value of this secret.
pub(crate) fn rule(meta: &Meta) -> String {
    format!("secret/{}", meta.name)
}
