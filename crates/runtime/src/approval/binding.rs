//! What an answer is for: the action, and what it meant when the question was asked.
//!
//! An answer permits nothing else. What it was given for is looked at when the question is asked and again when the answer
//! is about to be used; where the two differ the answer is for something that does not exist any more.
//!
//! What is not seen: files that no argument names, such as the Makefile that `make` reads by itself, and what a program loads
//! while it runs.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use ringfence_authz::{Aspect, Question};
use ringfence_ledger::{Bound, BoundKind};
use ringfence_types::{Bytes, Call, hex};
use sha2::{Digest as _, Sha256};

/// Larger files are known by what the kernel says of them: reading them would take longer than the answer.
const LARGEST: u64 = 16 << 20;
/// Read in all; beyond this files are known by what the kernel says of them.
const MOST_BYTES: u64 = 256 << 20;
/// Directories in which a relative name is looked for.
const MOST_DIRECTORIES: usize = 8;

/// What a question is bound to besides the action.
#[derive(Clone, Debug)]
pub(crate) struct Ground<'a> {
    pub(crate) policy: &'a str,
    pub(crate) policy_files: &'a [PathBuf],
    pub(crate) session: &'a str,
    pub(crate) requester: String,
    /// The digest of the image whose programs run, where those of this machine do not.
    pub(crate) image: Option<&'a str>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Binding {
    pub(crate) digest: String,
    pub(crate) bound: Vec<Bound>,
}

impl Binding {
    /// Looks at the machine as it is now.
    pub(crate) fn of(question: &Question, ground: &Ground<'_>) -> Self {
        let mut looked = Looked { bound: Vec::new(), left: MOST_BYTES };
        ground.policy_files.iter().for_each(|path| looked.at(BoundKind::Policy, path));
        let parts = question.judgement().parts();
        let roots = question.action().roots();
        // Outside the roots there is nothing of this machine in an image.
        let ours = |path: &Path| {
            ground.image.is_none() || roots.iter().any(|root| path.starts_with(root.path.as_path()))
        };
        for path in parts.iter().filter_map(|part| part.program.as_deref()) {
            match ground.image {
                Some(image) if !ours(path) => looked.in_image(path, image),
                _ => looked.at(BoundKind::Program, path),
            }
        }
        let paths = |aspect| {
            let parts = parts.iter().filter(move |part| part.aspect == aspect);
            parts.filter_map(|part| part.path.as_ref()).map(Bytes::as_path)
        };
        paths(Aspect::Read).filter(|path| ours(path)).for_each(|path| looked.at_file(path));
        // What is replaced does not decide what happens.
        let written: BTreeSet<&Path> = paths(Aspect::Write).collect();
        if let Call::Exec(exec) = question.action().call() {
            let cwd = exec.cwd.as_path();
            looked.at(BoundKind::Directory, cwd);
            let words: Vec<&Bytes> =
                exec.argv.iter().chain(parts.iter().flat_map(|part| &part.argv)).collect();
            let named = operands(cwd, &words);
            named
                .iter()
                .filter(|path| !written.contains(path.as_path()) && ours(path))
                .for_each(|path| looked.at_file(path));
        }
        let fingerprint = question.action().fingerprint().as_str();
        let digest = digest(("ringfence binding v1", fingerprint), ground, &looked.bound);
        Self { digest, bound: looked.bound }
    }
}

/// What a yes is for once whoever asked is gone: all of it but the session, and whoever asks the same then. `same` is who that
/// is and what the call is given, in words that hold from one session to the next.
pub(crate) fn of_next(question: &Question, ground: &Ground<'_>, bound: &[Bound], same: &[String]) -> String {
    let mut hash = Sha256::new();
    same.iter().for_each(|words| field(&mut hash, words.as_bytes()));
    let ground = Ground { session: "any", requester: hex(hash.finalize()), ..ground.clone() };
    digest(("ringfence next v1", question.action().fingerprint().as_str()), &ground, bound)
}

/// What a call names that nobody has judged yet: the files among its words, and where it runs.
pub(crate) fn of_call(call: &Call) -> Vec<Bound> {
    let Call::Exec(exec) = call else { return Vec::new() };
    let mut looked = Looked { bound: Vec::new(), left: MOST_BYTES };
    looked.at(BoundKind::Directory, exec.cwd.as_path());
    let words: Vec<&Bytes> = exec.argv.iter().collect();
    operands(exec.cwd.as_path(), &words).iter().for_each(|path| looked.at_file(path));
    looked.bound
}

/// The first thing that is not what it was.
pub(crate) fn changed(bound: &[Bound]) -> Option<&Bound> {
    let mut left = MOST_BYTES;
    // The digest of an image is part of the policy that an answer is bound to.
    let mut here = bound.iter().filter(|bound| bound.what != BoundKind::Image);
    here.find(|bound| state(bound.what, bound.path.as_path(), &mut left) != bound.sha256)
}

/// What it is, for people.
pub(crate) fn noun(what: BoundKind) -> &'static str {
    match what {
        BoundKind::Program => "the program",
        BoundKind::Image => "the program of an image",
        BoundKind::Operand => "the file",
        BoundKind::Directory => "the directory",
        BoundKind::Policy => "the policy",
    }
}

fn digest((domain, fingerprint): (&str, &str), ground: &Ground<'_>, bound: &[Bound]) -> String {
    let mut hash = Sha256::new();
    for text in [domain, fingerprint, ground.policy, ground.session, &ground.requester] {
        field(&mut hash, text.as_bytes());
    }
    for bound in bound {
        field(&mut hash, &[bound.what as u8]);
        field(&mut hash, bound.path.as_slice());
        field(&mut hash, bound.sha256.as_bytes());
    }
    hex(hash.finalize())
}

/// With its length: two fields are never one that reads the same.
fn field(hash: &mut Sha256, bytes: &[u8]) {
    hash.update((bytes.len() as u64).to_le_bytes());
    hash.update(bytes);
}

struct Looked {
    bound: Vec<Bound>,
    left: u64,
}

impl Looked {
    fn at(&mut self, what: BoundKind, path: &Path) {
        let path = Bytes::from(path);
        if self.bound.iter().any(|bound| bound.what == what && bound.path == path) {
            return;
        }
        let sha256 = state(what, path.as_path(), &mut self.left);
        self.bound.push(Bound { what, path, sha256 });
    }

    /// Its content is what the image's digest says.
    fn in_image(&mut self, path: &Path, image: &str) {
        let bound = Bound { what: BoundKind::Image, path: Bytes::from(path), sha256: image.to_owned() };
        if !self.bound.contains(&bound) {
            self.bound.push(bound);
        }
    }

    fn at_file(&mut self, path: &Path) {
        if fs::metadata(path).is_ok_and(|metadata| metadata.is_file()) {
            self.at(BoundKind::Operand, path);
        }
    }
}

/// Files that the words of a command name, in its directory and in those that it names: `cd sub && sh run.sh`.
fn operands(cwd: &Path, words: &[&Bytes]) -> Vec<PathBuf> {
    let names: BTreeSet<&Path> = words.iter().flat_map(|word| names(word)).collect();
    let mut directories = vec![cwd.to_owned()];
    for name in &names {
        let directory = cwd.join(name);
        if directories.len() < MOST_DIRECTORIES && !directories.contains(&directory) && directory.is_dir() {
            directories.push(directory);
        }
    }
    let places = directories.iter().flat_map(|directory| names.iter().map(move |name| directory.join(name)));
    let found: BTreeSet<PathBuf> = places.filter(|path| path.is_file()).collect();
    found.into_iter().collect()
}

/// The word itself, what follows a `=` or an `@` in it, and the words of what could be a script.
fn names(word: &Bytes) -> Vec<&Path> {
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

/// SHA-256 of what is there; `none` where nothing is.
fn state(what: BoundKind, path: &Path, left: &mut u64) -> String {
    let looked = match what {
        BoundKind::Directory => directory(path),
        BoundKind::Program | BoundKind::Image | BoundKind::Operand | BoundKind::Policy => content(path, left),
    };
    looked.unwrap_or_else(|error| match error.kind() {
        io::ErrorKind::NotFound => "none".to_owned(),
        _ => format!("unreadable: {error}"),
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

fn content(path: &Path, left: &mut u64) -> io::Result<String> {
    // A FIFO in its place must not make us wait.
    let flags = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or_default();
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    let metadata = file.metadata()?;
    let size = metadata.len();
    if !metadata.is_file() || size > LARGEST || size > *left {
        let times = (metadata.mtime(), metadata.mtime_nsec(), metadata.ctime(), metadata.ctime_nsec());
        let identity = format!("{} {} {size} {times:?}", metadata.dev(), metadata.ino());
        return Ok(hex(Sha256::digest(identity)));
    }
    *left -= size;
    let mut bytes = Vec::new();
    file.take(LARGEST + 1).read_to_end(&mut bytes)?;
    Ok(hex(Sha256::digest(&bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(directory: &Path, words: &[&str]) -> Vec<String> {
        let words: Vec<Bytes> = words.iter().map(|word| Bytes::from(*word)).collect();
        let found = operands(directory, &words.iter().collect::<Vec<_>>());
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
    fn what_changed_is_seen_by_content_and_for_large_files_by_what_the_kernel_says() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("script");
        let look = |what| Bound {
            what,
            path: Bytes::from(path.as_path()),
            sha256: state(what, &path, &mut { MOST_BYTES }),
        };
        assert_eq!(look(BoundKind::Operand).sha256, "none");
        fs::write(&path, "one").unwrap();
        let bound = [look(BoundKind::Operand)];
        assert_eq!(changed(&bound), None);
        fs::write(&path, "two").unwrap();
        assert_eq!(changed(&bound), Some(&bound[0]));
        File::create(&path).unwrap().set_len(LARGEST + 1).unwrap();
        let large = [look(BoundKind::Operand)];
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
        let bound = [Bound {
            what: BoundKind::Directory,
            path: Bytes::from(a.as_path()),
            sha256: state(BoundKind::Directory, &a, &mut 0),
        }];
        assert_eq!(changed(&bound), None);
        fs::rename(&a, place.path().join("old")).unwrap();
        std::os::unix::fs::symlink(&b, &a).unwrap();
        assert!(changed(&bound).is_some());
    }
}
