//! Action fingerprints: the digest that identifies a call and its roots.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::{
    Call, CallCeiling, ExecCall, FetchCall, FetchOrigin, FileCall, FlowCall, IntroducedSecret, LandedEntry,
    LandedState, Landing, NetCeiling, Patch, PatchedFile, Root, StandardInput, hex,
};

/// Digest of a call with the roots it may touch: the key of approvals and denials.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ActionFingerprint(String);

impl ActionFingerprint {
    pub fn of(call: &Call, roots: &[Root]) -> Self {
        let mut hash = Sha256::new();
        hash.update(b"ringfence action v3\0");
        encode(call, roots, &mut |bytes| hash.update(bytes));
        Self(hex(hash.finalize()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// INVARIANT: two calls that differ in anything a person approves have different bytes. Each kind of call begins with its own word
/// and has the same fields in the same order. A text is preceded by its length, a list by the number of its elements, and an
/// optional field by its presence.
fn encode(call: &Call, roots: &[Root], sink: &mut dyn FnMut(&[u8])) {
    let mut to = Encoder { sink };
    match call {
        Call::Exec(exec) => to.exec(exec),
        Call::File(file) => to.file(file),
        Call::Apply(patch) => to.patch(patch),
        Call::Land(landing) => to.landing(landing),
        Call::Flow(flow) => to.flow(flow),
        Call::Fetch(fetch) => {
            to.text(b"fetch");
            to.fetch(fetch);
        }
        Call::Tool(tool) => {
            to.text(b"tool");
            to.text(tool.name.as_bytes());
            to.text(tool.sha256.as_bytes());
        }
    }
    to.list(roots, Encoder::root);
}

struct Encoder<'s> {
    sink: &'s mut dyn FnMut(&[u8]),
}

impl Encoder<'_> {
    fn number(&mut self, number: u64) {
        (self.sink)(&number.to_le_bytes());
    }

    fn text(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        (self.sink)(bytes);
    }

    fn list<T>(&mut self, items: &[T], mut each: impl FnMut(&mut Self, &T)) {
        self.number(items.len() as u64);
        items.iter().for_each(|item| each(self, item));
    }

    fn maybe<T>(&mut self, item: Option<&T>, each: impl FnMut(&mut Self, &T)) {
        self.list(item.map_or(&[], std::slice::from_ref), each);
    }

    fn exec(&mut self, exec: &ExecCall) {
        self.text(b"exec");
        self.list(&exec.argv, |to, word| to.text(word.as_slice()));
        self.text(exec.cwd.as_slice());
        self.list(&exec.env, |to, (name, value)| {
            to.text(name.as_slice());
            to.text(value.as_slice());
        });
        self.text(exec.net.word().as_bytes());
        self.stdin(&exec.stdin);
        self.maybe(exec.ceiling.as_deref(), Self::ceiling);
    }

    fn ceiling(&mut self, ceiling: &CallCeiling) {
        self.maybe(ceiling.roots.as_ref(), |to, roots| to.list(roots, Self::root));
        self.maybe(ceiling.net.as_ref(), |to, net| {
            to.text(net.mode().word().as_bytes());
            let hosts = match net {
                NetCeiling::Hosts(hosts) => Some(hosts),
                NetCeiling::None | NetCeiling::Filtered => None,
            };
            to.maybe(hosts, |to, hosts| to.list(hosts, |to, host| to.text(host.to_string().as_bytes())));
        });
        self.maybe(ceiling.backend.as_ref(), |to, backend| to.text(backend.word().as_bytes()));
        for (_, limit) in ceiling.limits.all() {
            self.maybe(limit.as_ref(), |to, limit| to.number(*limit));
        }
    }

    fn root(&mut self, root: &Root) {
        self.text(root.path.as_slice());
        self.text(root.access.word().as_bytes());
    }

    /// Encodes the digest, which covers the whole input, not the excerpt.
    fn stdin(&mut self, stdin: &StandardInput) {
        match stdin {
            StandardInput::None => self.text(b"none"),
            StandardInput::Terminal => self.text(b"terminal"),
            StandardInput::Stream => self.text(b"stream"),
            StandardInput::Bytes { sha256, .. } => {
                self.text(b"sha256");
                self.text(sha256.as_bytes());
            }
        }
    }

    fn file(&mut self, file: &FileCall) {
        let (word, more) = match file {
            FileCall::Read { .. } => ("read", None),
            FileCall::Write { sha256, .. } => ("write", Some(sha256.as_bytes())),
            FileCall::List { .. } => ("list", None),
            FileCall::Symlink { target, .. } => ("symlink", Some(target.as_slice())),
            FileCall::Stat { .. } => ("stat", None),
            FileCall::Move { to, .. } => ("move", Some(to.as_slice())),
            FileCall::Remove { .. } => ("remove", None),
            FileCall::Send { .. } => ("send", None),
        };
        self.text(b"file");
        self.text(word.as_bytes());
        self.text(file.path().as_slice());
        self.maybe(more.as_ref(), |to, more| to.text(more));
    }

    fn patch(&mut self, patch: &Patch) {
        self.text(b"apply");
        self.list(&patch.files, Self::patched);
    }

    fn patched(&mut self, file: &PatchedFile) {
        self.text(file.path.as_slice());
        for digest in [&file.base, &file.result] {
            self.maybe(digest.as_ref(), |to, digest| to.text(digest.as_bytes()));
        }
        self.secrets(&file.secrets);
    }

    fn secrets(&mut self, secrets: &[IntroducedSecret]) {
        self.list(secrets, |to, secret| {
            to.text(secret.rule.as_bytes());
            to.number(secret.line);
        });
    }

    fn landing(&mut self, landing: &Landing) {
        self.text(b"land");
        self.text(landing.layer.as_str().as_bytes());
        self.text(landing.action.word().as_bytes());
        self.list(&landing.entries, Self::landed);
    }

    fn landed(&mut self, entry: &LandedEntry) {
        self.text(entry.path.as_slice());
        for state in [&entry.before, &entry.after] {
            self.maybe(state.as_ref(), Self::state);
        }
        self.maybe(entry.repository.as_ref(), |to, path| to.text(path.as_slice()));
        self.secrets(&entry.secrets);
    }

    fn state(&mut self, state: &LandedState) {
        self.text(state.kind.word().as_bytes());
        self.number(u64::from(state.mode));
        self.maybe(state.sha256.as_ref(), |to, digest| to.text(digest.as_bytes()));
        self.number(state.bytes);
    }

    /// Omits the ingress: a host that may be reached may be reached on every one.
    fn flow(&mut self, flow: &FlowCall) {
        self.text(b"flow");
        self.text(flow.host.as_bytes());
        self.number(u64::from(flow.port));
        self.maybe(flow.request.as_ref(), Self::fetch);
    }

    fn fetch(&mut self, fetch: &FetchCall) {
        self.text(fetch.method.as_bytes());
        self.text(fetch.url.as_bytes());
        let by: &[u8] = match fetch.by {
            FetchOrigin::Ringfence => b"ringfence",
            FetchOrigin::Agent => b"agent",
        };
        self.text(by);
    }
}

#[cfg(test)]
mod tests;
