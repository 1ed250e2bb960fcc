//! The binding of an approval: the action, and the state of everything it refers to when the prompt is shown.
//!
//! An answer permits nothing else. Ringfence reads the bound objects when it asks and again before it uses
//! the answer. If they differ, the answer is void.
//!
//! Not covered: files that no argument names, such as the Makefile that `make` reads by itself, and what a
//! program loads while it runs. A file that the command changes and then executes is bound as it is before the command
//! starts; the prompt says so ([`super::rewritten`]).

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use ringfence_authz::{ApprovalNeeded, PartKind};
use ringfence_ledger::{BoundObject, BoundObjectKind};
use ringfence_sandbox::{ApprovedFiles, FilePlace};
use ringfence_types::{ByteString, Call, ExecCall, Principal, hex};
use sha2::{Digest as _, Sha256};

use super::absent::{self, NamedIn};
use super::rewritten;

/// Larger files are identified by their metadata, because hashing them would delay the prompt.
const LARGEST: u64 = 16 << 20;
/// Total of bytes read. Beyond it, files are identified by their metadata.
const MOST_BYTES: u64 = 256 << 20;
/// Limit of candidate paths for the files that a command names: each name in each named directory.
const MOST_PLACES: usize = 50_000;

/// What an approval is bound to besides the action.
#[derive(Clone, Debug)]
pub(crate) struct BindingContext<'a> {
    pub(crate) policy: &'a str,
    pub(crate) policy_files: &'a [PathBuf],
    pub(crate) session: &'a str,
    /// The requester, with the name of its agent.
    pub(crate) requester: String,
    /// What the session was given of secrets. `None`: it cannot be said, and no stored answer covers it.
    pub(crate) secrets: Option<Vec<String>>,
    /// The digest of the image, where the programs come from an image and not from this machine.
    pub(crate) image: Option<&'a str>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApprovalBinding {
    pub(crate) digest: String,
    pub(crate) approved: ApprovedObjects,
}

/// The bound objects of an approval that can change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ApprovedObjects {
    pub(crate) bound: Vec<BoundObject>,
    /// Candidate paths without a file when the prompt was shown. A file that appears at one of them voids the
    /// answer.
    candidates: CandidatePaths,
    /// Files that the command changes before it executes them.
    rewritten: BTreeSet<PathBuf>,
    /// Files that the command executes and that do not exist.
    absent: BTreeSet<PathBuf>,
}

impl ApprovedObjects {
    pub(crate) fn new(bound: Vec<BoundObject>) -> Self {
        Self { bound, ..Self::default() }
    }

    /// Files that the command changes before it executes them: the answer is not bound to what they have then.
    pub(crate) fn rewritten(&self) -> &BTreeSet<PathBuf> {
        &self.rewritten
    }

    /// Files that the command executes and that do not exist: the answer is not bound to what is there by then.
    pub(crate) fn absent(&self) -> &BTreeSet<PathBuf> {
        &self.absent
    }

    /// Number of candidate paths beyond the limit, which the answer is not bound to.
    pub(crate) fn unbound(&self) -> usize {
        self.candidates.left_out
    }

    /// The first object that changed or appeared.
    pub(crate) fn changed(&self) -> Option<BoundObject> {
        changed(&self.bound).cloned().or_else(|| self.appeared())
    }

    /// Like [`Self::changed`] for a command, and copies each file that `places` finds from the very bytes it
    /// checked.
    pub(crate) fn copies(
        &self,
        places: impl Fn(&Path) -> Option<FilePlace>,
    ) -> Result<ApprovedFiles, NoCopies> {
        let mut left = MOST_BYTES;
        let mut files = ApprovedFiles::default();
        for bound in self.bound.iter().filter(|bound| bound.kind != BoundObjectKind::Image) {
            let path = bound.path.as_path();
            let FileState { state, bytes } = look(bound.kind, path, &mut left);
            if state != bound.sha256 {
                return Err(NoCopies::Changed(bound.clone()));
            }
            let bytes =
                bytes.filter(|_| matches!(bound.kind, BoundObjectKind::Program | BoundObjectKind::Operand));
            if let Some((place, bytes)) = places(path).zip(bytes) {
                files.add(path, place, &bytes).map_err(NoCopies::Failed)?;
            } else if bound.kind == BoundObjectKind::Directory {
                files.remember(path);
            }
        }
        self.appeared().map_or(Ok(files), |new| Err(NoCopies::Changed(new)))
    }

    fn appeared(&self) -> Option<BoundObject> {
        let known: BTreeSet<&Path> = self.bound.iter().map(|bound| bound.path.as_path()).collect();
        let now = self.candidates.found().into_iter().chain(self.candidates.found_in_new_directories());
        let new = now.into_iter().find(|path| !known.contains(path.as_path()))?;
        Some(BoundObject {
            kind: BoundObjectKind::Operand,
            path: ByteString::from(new.as_path()),
            sha256: "none".to_owned(),
        })
    }
}

/// Why a command gets no copies of its approved files.
#[derive(Debug)]
pub(crate) enum NoCopies {
    /// This object changed.
    Changed(BoundObject),
    Failed(io::Error),
}

impl ApprovalBinding {
    /// Reads the current state of the machine.
    pub(crate) fn of(question: &ApprovalNeeded, ground: &BindingContext<'_>) -> Self {
        let mut looked = BoundFiles { bound: Vec::new(), left: MOST_BYTES };
        let mut candidates = CandidatePaths::default();
        let (mut rewritten, mut absent) = (BTreeSet::new(), BTreeSet::new());
        ground.policy_files.iter().for_each(|path| looked.at(BoundObjectKind::Policy, path));
        let parts = question.judgement().parts();
        let roots = question.action().roots();
        // With an image, only the roots come from this machine.
        let ours = |path: &Path| {
            ground.image.is_none() || roots.iter().any(|root| path.starts_with(root.path.as_path()))
        };
        for path in parts.iter().filter_map(|part| part.program.as_deref()) {
            match ground.image {
                Some(image) if !ours(path) => looked.in_image(path, image),
                _ => looked.at(BoundObjectKind::Program, path),
            }
        }
        let paths = |aspect| {
            let parts = parts.iter().filter(move |part| part.aspect == aspect);
            parts.filter_map(|part| part.path.as_ref()).map(ByteString::as_path)
        };
        paths(PartKind::Read).filter(|path| ours(path)).for_each(|path| looked.at_file(path));
        // A file that a single command replaces does not influence what it does. In a list, a later command may execute it.
        let is_list = parts.iter().filter(|part| part.aspect == PartKind::Command).nth(1).is_some();
        let written: BTreeSet<&Path> = paths(PartKind::Write).filter(|_| !is_list).collect();
        if let Call::Exec(exec) = question.action().call() {
            let cwd = exec.cwd.as_path();
            looked.at(BoundObjectKind::Directory, cwd);
            let words: Vec<&ByteString> =
                said(exec).chain(parts.iter().flat_map(|part| &part.argv)).collect();
            candidates = CandidatePaths::by(cwd, &words);
            candidates.places.retain(|path| !written.contains(path.as_path()) && ours(path));
            candidates.found().iter().for_each(|path| looked.at_file(path));
            rewritten = rewritten::files(parts, &candidates.directories);
            let place = NamedIn { cwd, directories: &candidates.directories, roots };
            absent = absent::files(parts, place);
            absent.retain(|path| !rewritten.contains(path));
        }
        let fingerprint = question.action().fingerprint().as_str();
        let digest = digest("ringfence binding v2", fingerprint, ground, &looked.bound);
        Self { digest, approved: ApprovedObjects { bound: looked.bound, candidates, rewritten, absent } }
    }
}

/// Binding of an orphaned approval: everything except the session, plus the identity of the requester. `same`
/// describes that identity and what the call is given, in a form that is stable across sessions.
pub(crate) fn of_next(
    question: &ApprovalNeeded,
    ground: &BindingContext<'_>,
    bound: &[BoundObject],
    same: &[String],
) -> String {
    let mut hash = Sha256::new();
    same.iter().for_each(|words| field(&mut hash, words.as_bytes()));
    let ground = BindingContext { session: "any", requester: hex(hash.finalize()), ..ground.clone() };
    digest("ringfence next v2", question.action().fingerprint().as_str(), &ground, bound)
}

/// The identity of a requester. Two agents differ, also in one session.
pub(crate) fn requester(who: &Principal) -> String {
    match who {
        Principal::Agent { name: Some(name), .. } => format!("{}\0{name}", who.identity()),
        _ => who.identity(),
    }
}

/// Objects that a call names before policy has evaluated it: the files among its arguments, and its
/// directory.
pub(crate) fn of_call(call: &Call) -> Vec<BoundObject> {
    let Call::Exec(exec) = call else { return Vec::new() };
    let mut looked = BoundFiles { bound: Vec::new(), left: MOST_BYTES };
    looked.at(BoundObjectKind::Directory, exec.cwd.as_path());
    let words: Vec<&ByteString> = said(exec).collect();
    CandidatePaths::by(exec.cwd.as_path(), &words).found().iter().for_each(|path| looked.at_file(path));
    looked.bound
}

/// All that a command is given in which a file can be named: a variable names one as an argument does (`BASH_ENV`).
fn said(exec: &ExecCall) -> impl Iterator<Item = &ByteString> {
    exec.argv.iter().chain(exec.env.iter().map(|(_, value)| value))
}

/// The first object that changed.
pub(crate) fn changed(bound: &[BoundObject]) -> Option<&BoundObject> {
    let mut left = MOST_BYTES;
    // The image digest is part of the policy that the answer is bound to.
    let mut here = bound.iter().filter(|bound| bound.kind != BoundObjectKind::Image);
    here.find(|bound| state(bound.kind, bound.path.as_path(), &mut left) != bound.sha256)
}

/// The name of the kind in prompts.
pub(crate) fn noun(what: BoundObjectKind) -> &'static str {
    match what {
        BoundObjectKind::Program => "the program",
        BoundObjectKind::Image => "the program of an image",
        BoundObjectKind::Operand => "the file",
        BoundObjectKind::Directory => "the directory",
        BoundObjectKind::Policy => "the policy",
    }
}

fn digest(domain: &str, fingerprint: &str, ground: &BindingContext<'_>, bound: &[BoundObject]) -> String {
    let mut hash = Sha256::new();
    for text in [domain, fingerprint, ground.policy, ground.session, &ground.requester] {
        field(&mut hash, text.as_bytes());
    }
    let secrets = ground.secrets.as_deref().unwrap_or_default();
    field(&mut hash, &(secrets.len() as u64).to_le_bytes());
    secrets.iter().for_each(|secret| field(&mut hash, secret.as_bytes()));
    for bound in bound {
        field(&mut hash, &[bound.kind as u8]);
        field(&mut hash, bound.path.as_slice());
        field(&mut hash, bound.sha256.as_bytes());
    }
    hex(hash.finalize())
}

/// Prefixes the length, so that two fields never hash like one.
fn field(hash: &mut Sha256, bytes: &[u8]) {
    hash.update((bytes.len() as u64).to_le_bytes());
    hash.update(bytes);
}

struct BoundFiles {
    bound: Vec<BoundObject>,
    left: u64,
}

impl BoundFiles {
    fn at(&mut self, what: BoundObjectKind, path: &Path) {
        let path = ByteString::from(path);
        if self.bound.iter().any(|bound| bound.kind == what && bound.path == path) {
            return;
        }
        let sha256 = state(what, path.as_path(), &mut self.left);
        self.bound.push(BoundObject { kind: what, path, sha256 });
    }

    /// The image digest determines the content.
    fn in_image(&mut self, path: &Path, image: &str) {
        let bound = BoundObject {
            kind: BoundObjectKind::Image,
            path: ByteString::from(path),
            sha256: image.to_owned(),
        };
        if !self.bound.contains(&bound) {
            self.bound.push(bound);
        }
    }

    fn at_file(&mut self, path: &Path) {
        if fs::metadata(path).is_ok_and(|metadata| metadata.is_file()) {
            self.at(BoundObjectKind::Operand, path);
        }
    }
}

/// Candidate paths of the files a command names, in its directory and in the directories it names: `cd sub &&
/// sh run.sh`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct CandidatePaths {
    directories: BTreeSet<PathBuf>,
    places: BTreeSet<PathBuf>,
    /// Number of candidates beyond the limit.
    left_out: usize,
    /// The directory of the command, and the relative names.
    cwd: PathBuf,
    names: BTreeSet<PathBuf>,
}

impl CandidatePaths {
    fn by(cwd: &Path, words: &[&ByteString]) -> Self {
        let names: BTreeSet<&Path> = words.iter().flat_map(|word| names(word)).collect();
        let named = names.iter().map(|name| cwd.join(name)).filter(|path| path.is_dir());
        let directories: BTreeSet<PathBuf> = std::iter::once(cwd.to_owned()).chain(named).collect();
        let all = directories.len().saturating_mul(names.len());
        let places = directories.iter().flat_map(|directory| names.iter().map(|name| directory.join(name)));
        let places = places.take(MOST_PLACES).collect();
        let relative = names.iter().filter(|name| name.is_relative()).map(|name| name.to_path_buf());
        let (names, left_out) = (relative.collect(), all.saturating_sub(MOST_PLACES));
        Self { places, directories, left_out, cwd: cwd.to_owned(), names }
    }

    /// Files in named directories that did not exist before.
    fn found_in_new_directories(&self) -> Vec<PathBuf> {
        let named = self.names.iter().map(|name| self.cwd.join(name));
        let new = named.filter(|path| !self.directories.contains(path) && path.is_dir());
        let places = new.flat_map(|directory| self.names.iter().map(move |name| directory.join(name)));
        places.take(MOST_PLACES).filter(|path| path.is_file()).collect()
    }

    /// Candidates where a file exists now.
    fn found(&self) -> Vec<PathBuf> {
        self.places.iter().filter(|path| path.is_file()).cloned().collect()
    }
}

/// The argument itself, the text after a `=` or an `@`, and the words of a possible script.
pub(super) fn names(word: &ByteString) -> Vec<&Path> {
    let bytes = word.as_slice();
    let path = |bytes| Path::new(std::ffi::OsStr::from_bytes(bytes));
    let mut names = vec![path(bytes)];
    let separators = |byte: &u8| byte.is_ascii_whitespace() || b"=@;&|<>()'\"".contains(byte);
    names.extend(
        bytes.split(separators).filter(|part| !part.is_empty() && part.len() < bytes.len()).map(path),
    );
    names.retain(|name| !name.as_os_str().is_empty() && name.as_os_str().len() < 4096);
    names
}

/// The state of the file at a path.
struct FileState {
    /// SHA-256 of the content; `none` where the path does not exist.
    state: String,
    /// The hashed bytes, if the digest is of a file's content.
    bytes: Option<Vec<u8>>,
}

impl FileState {
    fn known_by(state: String) -> Self {
        Self { state, bytes: None }
    }
}

fn state(what: BoundObjectKind, path: &Path, left: &mut u64) -> String {
    look(what, path, left).state
}

fn look(what: BoundObjectKind, path: &Path, left: &mut u64) -> FileState {
    let looked = match what {
        BoundObjectKind::Directory => directory(path).map(FileState::known_by),
        BoundObjectKind::Program
        | BoundObjectKind::Image
        | BoundObjectKind::Operand
        | BoundObjectKind::Policy => content(path, left),
    };
    looked.unwrap_or_else(|error| match error.kind() {
        io::ErrorKind::NotFound => FileState::known_by("none".to_owned()),
        _ => FileState::known_by(format!("unreadable: {error}")),
    })
}

fn directory(path: &Path) -> io::Result<String> {
    let real = fs::canonicalize(path)?;
    let metadata = fs::metadata(&real)?;
    let mut hash = Sha256::new();
    hash.update(real.as_os_str().as_bytes());
    hash.update(format!("\0{} {}", metadata.dev(), metadata.ino()));
    Ok(hex(hash.finalize()))
}

fn content(path: &Path, left: &mut u64) -> io::Result<FileState> {
    // A FIFO in place of the file must not block this process.
    let flags = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or_default();
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    let metadata = file.metadata()?;
    let size = metadata.len();
    if !metadata.is_file() || size > LARGEST || size > *left {
        let times = (metadata.mtime(), metadata.mtime_nsec(), metadata.ctime(), metadata.ctime_nsec());
        let identity = format!("{} {} {size} {times:?}", metadata.dev(), metadata.ino());
        return Ok(FileState::known_by(hex(Sha256::digest(identity))));
    }
    *left -= size;
    let mut bytes = Vec::new();
    file.take(LARGEST + 1).read_to_end(&mut bytes)?;
    Ok(FileState { state: hex(Sha256::digest(&bytes)), bytes: Some(bytes) })
}

#[cfg(test)]
mod tests {
    use ringfence_types::{NetMode, StandardInput};

    use super::*;

    fn files(directory: &Path, words: &[&str]) -> Vec<String> {
        let words: Vec<ByteString> = words.iter().map(|word| ByteString::from(*word)).collect();
        let found = CandidatePaths::by(directory, &words.iter().collect::<Vec<_>>()).found();
        found.iter().map(|path| path.strip_prefix(directory).unwrap().to_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn files_are_found_wherever_an_argument_names_them() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path();
        fs::create_dir(root.join("sub")).unwrap();
        for name in ["run.sh", "sub/run.sh", "data.json"] {
            fs::write(root.join(name), name).unwrap();
        }
        assert_eq!(files(root, &["sh", "run.sh"]), ["run.sh"]);
        assert_eq!(files(root, &["curl", "-d@data.json", "--file=run.sh"]), ["data.json", "run.sh"]);
        assert_eq!(files(root, &["sh", "-c", "cd sub && sh run.sh"]), ["run.sh", "sub/run.sh"]);
        assert!(files(root, &["sub", "none", "/", ""]).is_empty());
    }

    #[test]
    fn files_are_found_in_every_directory_that_is_named_and_where_they_come_to_be() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path();
        let mut script = "true".to_owned();
        for number in 0..40 {
            fs::create_dir(root.join(format!("d{number:02}"))).unwrap();
            script.push_str(&format!("; cd d{number:02} && sh run.sh"));
        }
        fs::write(root.join("d39/run.sh"), "true").unwrap();
        assert_eq!(files(root, &["sh", "-c", &script]), ["d39/run.sh"]);
        let words = [ByteString::from("sh"), ByteString::from("-c"), ByteString::from(script.as_str())];
        let candidates = CandidatePaths::by(root, &words.iter().collect::<Vec<_>>());
        assert_eq!(candidates.left_out, 0);
        let mut looked = BoundFiles { bound: Vec::new(), left: MOST_BYTES };
        candidates.found().iter().for_each(|path| looked.at_file(path));
        let approved = ApprovedObjects { bound: looked.bound, candidates, ..ApprovedObjects::default() };
        assert_eq!(approved.changed(), None);
        fs::write(root.join("d20/run.sh"), "evil").unwrap();
        let appeared = approved.changed().unwrap();
        assert_eq!((appeared.path.as_path(), appeared.sha256.as_str()), (&*root.join("d20/run.sh"), "none"));
    }

    #[test]
    fn a_directory_that_comes_to_be_brings_no_file_with_it() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path();
        fs::write(root.join("run.sh"), "good").unwrap();
        let words = ["sh", "-c", "cd sub && sh run.sh"].map(ByteString::from);
        let candidates = CandidatePaths::by(root, &words.iter().collect::<Vec<_>>());
        let mut looked = BoundFiles { bound: Vec::new(), left: MOST_BYTES };
        candidates.found().iter().for_each(|path| looked.at_file(path));
        let approved = ApprovedObjects { bound: looked.bound, candidates, ..ApprovedObjects::default() };
        fs::create_dir(root.join("sub")).unwrap();
        assert_eq!(approved.changed(), None, "an empty one is no other file");
        fs::write(root.join("sub/run.sh"), "evil").unwrap();
        assert_eq!(approved.changed().unwrap().path.as_path(), root.join("sub/run.sh"));
    }

    #[test]
    fn files_that_a_variable_names_are_bound() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("rgrc");
        fs::write(&file, "--hidden").unwrap();
        let call = Call::Exec(ExecCall {
            argv: vec![ByteString::from("rg"), ByteString::from("x")],
            cwd: ByteString::from(place.path()),
            env: vec![(ByteString::from("RIPGREP_CONFIG_PATH"), ByteString::from("rgrc"))],
            ceiling: None,
            net: NetMode::None,
            stdin: StandardInput::None,
        });
        let bound = of_call(&call);
        assert_eq!(changed(&bound), None);
        fs::write(&file, "--pre=evil").unwrap();
        assert_eq!(changed(&bound).unwrap().path.as_path(), file);
    }

    #[test]
    fn places_that_are_too_many_are_counted() {
        let place = tempfile::tempdir().unwrap();
        let words: Vec<ByteString> =
            (0..300).map(|number| ByteString::from(format!("d{number}").as_str())).collect();
        for word in &words {
            fs::create_dir(place.path().join(word.as_path())).unwrap();
        }
        let candidates = CandidatePaths::by(place.path(), &words.iter().collect::<Vec<_>>());
        assert_eq!(candidates.left_out, 301 * 300 - MOST_PLACES);
    }

    #[test]
    fn what_changed_is_seen_by_content_and_for_large_files_by_what_the_kernel_says() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("script");
        let look = |what| BoundObject {
            kind: what,
            path: ByteString::from(path.as_path()),
            sha256: state(what, &path, &mut { MOST_BYTES }),
        };
        assert_eq!(look(BoundObjectKind::Operand).sha256, "none");
        fs::write(&path, "one").unwrap();
        let bound = [look(BoundObjectKind::Operand)];
        assert_eq!(changed(&bound), None);
        fs::write(&path, "two").unwrap();
        assert_eq!(changed(&bound), Some(&bound[0]));
        File::create(&path).unwrap().set_len(LARGEST + 1).unwrap();
        let large = [look(BoundObjectKind::Operand)];
        assert_eq!(changed(&large), None);
        let other = place.path().join("other");
        File::create(&other).unwrap().set_len(LARGEST + 1).unwrap();
        fs::rename(&other, &path).unwrap();
        assert_eq!(changed(&large), Some(&large[0]), "another file of the same size");
    }

    #[test]
    fn a_directory_is_the_same_only_where_it_is_the_same_one() {
        let place = tempfile::tempdir().unwrap();
        let [a, b] = ["a", "b"].map(|name| place.path().join(name));
        fs::create_dir(&a).unwrap();
        fs::create_dir(&b).unwrap();
        let bound = [BoundObject {
            kind: BoundObjectKind::Directory,
            path: ByteString::from(a.as_path()),
            sha256: state(BoundObjectKind::Directory, &a, &mut 0),
        }];
        assert_eq!(changed(&bound), None);
        fs::rename(&a, place.path().join("old")).unwrap();
        std::os::unix::fs::symlink(&b, &a).unwrap();
        assert!(changed(&bound).is_some());
    }
}
