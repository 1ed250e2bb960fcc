//! The directories that an index says git has listed. Git trusts that list: it opens each directory that is named there, also where
//! a link stands for it, and writes what it finds into the index again.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use super::git_paths::{is_plain_name, is_plain_path, offset};

/// The bytes of all paths of the list. A name stands there once, and its path can be as long as those of all above it.
const MOST_PATHS: usize = 64 * 1024 * 1024;

/// The paths of these directories, from the checkout. `None` where git could read one that it would not have put there. `hash`: the
/// bytes of a digest.
pub(super) fn listed_directories(data: &[u8], hash: usize) -> Option<Vec<PathBuf>> {
    // Two times what the kernel says about a file, and a number.
    const STATS: usize = 2 * 36 + 4;
    let mut at = 0;
    let environment = offset(data, &mut at)?;
    at = at.checked_add(environment)?.checked_add(STATS + 2 * hash)?;
    if text(data, &mut at)? != b".gitignore" {
        return None;
    }
    let count = offset(data, &mut at)?;
    let mut tree = DirectoryTree::default();
    for _ in 0..count {
        let (names, below) = (offset(data, &mut at)?, offset(data, &mut at)?);
        tree.enter(text(data, &mut at)?, below)?;
        for _ in 0..names {
            let name = text(data, &mut at)?;
            if name.is_empty() || !is_plain_path(name) {
                return None;
            }
        }
    }
    tree.ahead.is_empty().then_some(tree.found)
}

/// Directories in the order of the list: each before those in it.
#[derive(Default)]
struct DirectoryTree {
    found: Vec<PathBuf>,
    bytes: usize,
    path: Vec<u8>,
    /// How long the path of a directory above is, and how many directories in it are still to come.
    ahead: Vec<(usize, usize)>,
}

impl DirectoryTree {
    fn enter(&mut self, name: &[u8], below: usize) -> Option<()> {
        if self.found.is_empty() {
            // The checkout itself.
            name.is_empty().then_some(())?;
        } else {
            let (length, left) = self.ahead.pop().filter(|_| is_plain_name(name) && !name.contains(&b'/'))?;
            self.ahead.extend((left > 1).then(|| (length, left - 1)));
            self.path.truncate(length);
            self.path.extend_from_slice(name);
            self.path.push(b'/');
        }
        self.ahead.extend((below > 0).then_some((self.path.len(), below)));
        self.bytes += self.path.len();
        let path = self.path.strip_suffix(b"/").unwrap_or_default();
        self.found.push(PathBuf::from(OsStr::from_bytes(path)));
        (self.bytes <= MOST_PATHS).then_some(())
    }
}

/// Up to the next zero byte.
fn text<'d>(data: &'d [u8], at: &mut usize) -> Option<&'d [u8]> {
    let rest = data.get(*at..)?;
    let length = rest.iter().position(|byte| *byte == 0)?;
    *at += length + 1;
    rest.get(..length)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: usize = 20;

    /// A list with these directories: the number of names, of directories in it, its name, and the names.
    fn list(directories: &[(u8, u8, &str, &str)]) -> Vec<u8> {
        let mut out = b"\x02x\0".to_vec();
        out.extend([0; 76 + 2 * HASH]);
        out.extend(b".gitignore\0");
        out.push(u8::try_from(directories.len()).unwrap());
        for (names, below, name, texts) in directories {
            out.extend([*names, *below]);
            out.extend([name.as_bytes(), b"\0", texts.as_bytes()].concat());
        }
        out
    }

    fn listed(directories: &[(u8, u8, &str, &str)]) -> Option<Vec<PathBuf>> {
        listed_directories(&list(directories), HASH)
    }

    #[test]
    fn directories_of_the_checkout_are_listed() {
        let found =
            listed(&[(1, 2, "", "f\0"), (0, 1, "a", ""), (0, 0, "b", ""), (2, 0, "c.d", "x\0new/\0")]);
        assert_eq!(found.unwrap(), ["", "a", "a/b", "c.d"].map(PathBuf::from));
        assert_eq!(listed(&[]).unwrap(), Vec::<PathBuf>::new());
    }

    #[test]
    fn other_directories_are_refused() {
        for name in ["..", ".", "/etc", "a/b", "../x", ".git", ".GIT", ""] {
            assert_eq!(listed(&[(0, 1, "", ""), (0, 0, name, "")]), None, "{name}");
        }
        for name in ["../x\0", "/x\0", "\0", "a/../b\0", ".git\0"] {
            assert_eq!(listed(&[(1, 0, "", name)]), None, "{name}");
        }
        assert_eq!(listed(&[(0, 0, "/etc", "")]), None, "another top");
        assert_eq!(listed(&[(0, 2, "", ""), (0, 0, "a", "")]), None, "too few");
        assert_eq!(listed(&[(0, 0, "", ""), (0, 0, "a", "")]), None, "too many");
        let whole = list(&[(0, 1, "", ""), (0, 0, "a", "")]);
        assert!(listed_directories(&whole, HASH).is_some(), "control");
        assert_eq!(listed_directories(&whole[..whole.len() - 1], HASH), None, "cut off");
        assert_eq!(listed_directories(&[0xff; 40], HASH), None);
    }

    #[test]
    fn a_short_list_with_long_paths_is_refused() {
        let mut out = list(&[]);
        out.pop();
        // 16384 directories, each in the one before.
        out.extend([0xff, 0x80 - 1, 0]);
        out.truncate(out.len() - 1);
        for depth in 0..16511_usize {
            let name = if depth == 0 { String::new() } else { "a".repeat(200) };
            out.extend([&[0, u8::from(depth < 16510)], name.as_bytes(), b"\0"].concat());
        }
        assert_eq!(listed_directories(&out, HASH), None);
    }
}
