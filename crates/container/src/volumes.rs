//! Volumes that an image declares. An engine makes a writable directory for each, with execution, although the session asked for none.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use ringfence_types::BindMount;

use crate::create_request::{PRIVATE, speakable};

/// A place that is not the image's to give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RefusedVolume(pub(crate) PathBuf);

/// Where something empty and read-only goes instead: an engine that is told of something else at a place makes no volume there.
pub(crate) fn covered(volumes: &[String], bound: &[BindMount]) -> Result<Vec<String>, RefusedVolume> {
    let mut covered = BTreeSet::new();
    for volume in volumes {
        let path = plain(volume).ok_or_else(|| RefusedVolume(volume.into()))?;
        if is_ours(&path, bound) {
            continue;
        }
        if meets_ours(&path, bound) {
            return Err(RefusedVolume(path));
        }
        // Told as `PATH:OPTIONS`.
        let text = speakable(&path).ok().filter(|text| !text.contains(':'));
        covered.insert(text.ok_or(RefusedVolume(path))?);
    }
    Ok(covered.into_iter().collect())
}

/// An absolute path that says where it is, without `.` at its end and without `..`.
fn plain(volume: &str) -> Option<PathBuf> {
    let mut components = Path::new(volume).components();
    let absolute = components.next() == Some(Component::RootDir);
    let below: Vec<Component<'_>> = components.collect();
    let named = below.iter().all(|part| matches!(part, Component::Normal(_))) && !below.is_empty();
    (absolute && named).then(|| Path::new("/").join(below.iter().collect::<PathBuf>()))
}

/// What we bind or mount there is what is there.
fn is_ours(path: &Path, bound: &[BindMount]) -> bool {
    PRIVATE.iter().any(|place| path == Path::new(place)) || bound.iter().any(|bound| bound.target == path)
}

/// Around what we bind it would hide it; inside, the engine would make a directory for it on the host.
fn meets_ours(path: &Path, bound: &[BindMount]) -> bool {
    const SYSTEM: [&str; 3] = ["/dev", "/proc", "/sys"];
    let around = |place: &Path| place.starts_with(path);
    SYSTEM.iter().any(|system| path.starts_with(system))
        || PRIVATE.iter().any(|place| around(Path::new(place)))
        || bound.iter().any(|bound| around(&bound.target) || path.starts_with(&bound.target))
}

#[cfg(test)]
mod tests {
    use ringfence_types::Access;

    use super::*;

    fn cover(volumes: &[&str]) -> Result<Vec<String>, RefusedVolume> {
        let target =
            |path: &str| BindMount { source: "/s".into(), target: path.into(), access: Access::Write };
        let bound =
            [target("/.ringfence"), target("/home/ringfence"), target("/srv/w"), target("/etc/passwd")];
        let volumes: Vec<String> = volumes.iter().map(|volume| (*volume).to_owned()).collect();
        covered(&volumes, &bound)
    }

    #[test]
    fn a_volume_of_an_image_is_covered() {
        let volumes = ["/data", "/data/", "//data/.", "/var/lib/db", "/tmp", "/tmp/cache", "/run", "/srv/w"];
        assert_eq!(cover(&volumes).unwrap(), ["/data", "/tmp/cache", "/var/lib/db"]);
        assert_eq!(cover(&[]).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn a_volume_that_meets_what_is_ours_is_refused() {
        for volume in [
            "",
            "/",
            "data",
            "/data/../etc",
            "/etc",
            "/home",
            "/srv",
            "/srv/w/data",
            "/var",
            "/.ringfence/x",
            "/dev/shm",
            "/proc/sys",
            "/sys/fs/cgroup",
            "/a,exec",
            "/a:exec",
            "/a\nb",
        ] {
            assert!(cover(&["/fine", volume]).is_err(), "{volume}");
        }
    }
}
