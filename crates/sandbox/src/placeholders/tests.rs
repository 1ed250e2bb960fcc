use std::fs;

use super::*;

struct Bench {
    dir: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("ws/.git")).unwrap();
        Self { dir }
    }

    fn registry(&self) -> PathBuf {
        self.dir.path().join("state/placeholders")
    }

    fn ws(&self) -> PathBuf {
        self.dir.path().join("ws")
    }

    fn create(&self) -> PlaceholderSet {
        self.create_with(&absent()).0
    }

    fn create_with(&self, absent: &[AbsentName]) -> (PlaceholderSet, PlaceholderOutcome) {
        let mut placeholders = PlaceholderSet::join(&self.registry(), &[self.ws()]).unwrap();
        let outcome = placeholders.fill(&mut surveyed(&self.ws(), absent)).unwrap();
        (placeholders, outcome)
    }

    fn names(&self) -> Vec<String> {
        let list = |path: &str| {
            let entries = fs::read_dir(self.ws().join(path)).unwrap();
            entries
                .map(|e| e.unwrap().path().strip_prefix(self.ws()).unwrap().display().to_string())
                .collect()
        };
        let mut names: Vec<String> = list("");
        names.extend::<Vec<String>>(list(".git"));
        names.sort();
        names
    }

    /// A session that was killed: its placeholders exist, its list too, its lock is free.
    fn crash(&self) {
        // What another session could see is neither removed nor struck from the list.
        let other = WatchMark::mark(&self.ws()).unwrap();
        drop(self.create());
        drop(other);
    }

    /// What there is to remove. Until it becomes another program, a child that a neighbouring test starts holds the lock.
    fn swept(&self) -> usize {
        let swept = |_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            Some(sweep(&self.registry()).unwrap()).filter(|removed| *removed > 0)
        };
        (0..1000).find_map(swept).unwrap_or(0)
    }
}

fn absent() -> Vec<AbsentName> {
    let new = |path: &str, placeholder| AbsentName { path: PathBuf::from(path), placeholder };
    vec![
        new(".vscode", PlaceholderKind::Directory),
        new(".git/commondir", PlaceholderKind::File(b".\n")),
        new(".git/config.worktree", PlaceholderKind::File(b"")),
    ]
}

fn surveyed(path: &Path, absent: &[AbsentName]) -> SurveyedRoot {
    SurveyedRoot { path: path.to_owned(), absent: absent.to_vec(), ..SurveyedRoot::default() }
}

const ALL: [&str; 4] = [".git", ".git/commondir", ".git/config.worktree", ".vscode"];

#[test]
fn they_exist_for_the_life_of_the_session() {
    let bench = Bench::new();
    let (placeholders, outcome) = bench.create_with(&absent());
    assert_eq!(bench.names(), ALL);
    assert_eq!(fs::read(bench.ws().join(".git/commondir")).unwrap(), b".\n");
    assert_eq!(outcome.held.len(), 3);
    assert!(outcome.taken.is_empty() && outcome.impossible.is_empty());
    drop(placeholders);
    assert_eq!(bench.names(), [".git"]);
}

#[test]
fn the_last_of_several_sessions_removes_them() {
    let bench = Bench::new();
    let first = bench.create();
    let (second, outcome) = bench.create_with(&absent());
    assert_eq!(outcome.held.len(), 3);
    drop(first);
    assert_eq!(bench.names(), ALL);
    assert_eq!(sweep(&bench.registry()).unwrap(), 0);
    assert_eq!(bench.names(), ALL);
    drop(second);
    assert_eq!(bench.names(), [".git"]);
}

#[test]
fn a_later_session_may_need_more() {
    let bench = Bench::new();
    let first = bench.create();
    let more = vec![AbsentName { path: PathBuf::from(".idea"), placeholder: PlaceholderKind::Directory }];
    drop(bench.create_with(&more));
    assert!(bench.ws().join(".idea").exists());
    drop(first);
    assert_eq!(bench.names(), [".git"]);
}

/// A session that needs nothing itself still keeps what it may have seen.
#[test]
fn joining_is_enough_to_keep_them() {
    let bench = Bench::new();
    let first = bench.create();
    let second = PlaceholderSet::join(&bench.registry(), &[bench.ws()]).unwrap();
    drop(first);
    assert_eq!(bench.names(), ALL);
    drop(second);
    assert_eq!(bench.names(), [".git"]);
}

#[test]
fn what_a_killed_session_left_is_removed_by_the_next_or_by_a_sweep() {
    let bench = Bench::new();
    bench.crash();
    assert_eq!(bench.names(), ALL);
    assert_eq!(bench.swept(), 3);
    assert_eq!(bench.names(), [".git"]);
    assert_eq!(sweep(&bench.registry()).unwrap(), 0);

    bench.crash();
    let next = PlaceholderSet::join(&bench.registry(), &[bench.ws()]).unwrap();
    assert_eq!(bench.names(), ALL);
    drop(next);
    assert_eq!(bench.names(), [".git"]);
}

#[test]
fn nothing_of_a_user_is_removed() {
    let bench = Bench::new();
    bench.crash();
    fs::write(bench.ws().join(".vscode/settings.json"), "{}").unwrap();
    fs::write(bench.ws().join(".git/commondir"), "../elsewhere\n").unwrap();
    assert_eq!(bench.swept(), 1);
    assert!(bench.ws().join(".vscode/settings.json").exists());
    assert_eq!(fs::read(bench.ws().join(".git/commondir")).unwrap(), b"../elsewhere\n");
}

#[test]
fn a_name_that_exists_meanwhile_is_taken_and_stays() {
    let bench = Bench::new();
    fs::create_dir(bench.ws().join(".vscode")).unwrap();
    let (placeholders, outcome) = bench.create_with(&absent());
    assert_eq!(outcome.taken, [PathBuf::from(".vscode")]);
    drop(placeholders);
    assert_eq!(bench.names(), [".git", ".vscode"]);
}

/// A directory of another user's, where nothing can be made from inside either. Root gives up its power over
/// files for it, on one thread.
#[test]
fn a_place_where_nothing_can_be_made_needs_none() {
    let bench = Bench::new();
    let is_root = rustix::process::geteuid().is_root();
    let place = if is_root { bench.ws() } else { PathBuf::from("/usr") };
    if is_root {
        std::os::unix::fs::chown(&place, Some(65534), Some(65534)).unwrap();
    }
    let name = PathBuf::from("ringfence-placeholder-test");
    let absent = [AbsentName { path: name.clone(), placeholder: PlaceholderKind::Directory }];
    let mut root = surveyed(&place, &absent);
    let registry = bench.registry();
    let outcome = std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            powerless();
            PlaceholderSet::join(&registry, &[]).unwrap().fill(&mut root).unwrap()
        });
        worker.join().unwrap()
    });
    assert_eq!(outcome.impossible, [name]);
    assert!(root.absent.is_empty() && outcome.held.is_empty());
}

#[test]
fn a_link_in_the_way_is_not_followed() {
    let bench = Bench::new();
    fs::remove_dir(bench.ws().join(".git")).unwrap();
    fs::create_dir(bench.dir.path().join("outside")).unwrap();
    std::os::unix::fs::symlink("../outside", bench.ws().join(".git")).unwrap();
    let mut placeholders = PlaceholderSet::join(&bench.registry(), &[bench.ws()]).unwrap();
    placeholders.fill(&mut surveyed(&bench.ws(), &absent())).unwrap_err();
    drop(placeholders);
    assert_eq!(fs::read_dir(bench.dir.path().join("outside")).unwrap().count(), 0);
    assert!(!bench.ws().join(".vscode").exists());
}

#[test]
fn a_dangling_link_with_the_name_is_taken() {
    let bench = Bench::new();
    std::os::unix::fs::symlink("/nonexistent/x", bench.ws().join(".vscode")).unwrap();
    assert_eq!(bench.create_with(&absent()).1.taken, [PathBuf::from(".vscode")]);
}

#[test]
fn a_root_that_vanished_is_forgotten() {
    let bench = Bench::new();
    bench.crash();
    fs::remove_dir_all(bench.ws()).unwrap();
    assert_eq!(sweep(&bench.registry()).unwrap(), 0);
    let lists = fs::read_dir(bench.registry()).unwrap();
    assert!(!lists.flatten().any(|entry| entry.path().extension() == Some(OsStr::new("list"))));
}

#[test]
fn a_sweep_of_nothing_is_nothing() {
    assert_eq!(sweep(Path::new("/nonexistent/registry")).unwrap(), 0);
}

impl Bench {
    /// A session with a state directory of its own, which surveys as a session does: after it has joined.
    fn of_state(&self, state: &str, root: &str) -> PlaceholderSet {
        let (registry, root) = (self.dir.path().join(state).join("placeholders"), self.ws().join(root));
        let mut placeholders = PlaceholderSet::join(&registry, std::slice::from_ref(&root)).unwrap();
        let (there, absent): (Vec<AbsentName>, Vec<AbsentName>) =
            absent().into_iter().partition(|absent| root.join(&absent.path).exists());
        let protected = there.into_iter().map(|absent| absent.path).collect();
        let mut surveyed = SurveyedRoot { protected, ..surveyed(&root, &absent) };
        placeholders.fill(&mut surveyed).unwrap();
        placeholders
    }
}

#[test]
fn the_last_session_of_any_state_directory_removes_them() {
    let bench = Bench::new();
    let first = bench.of_state("one", "");
    let second = bench.of_state("two", "");
    drop(first);
    assert_eq!(bench.names(), ALL, "the second session needs them");
    drop(second);
    assert_eq!(bench.names(), [".git"]);
    // A stale list names nothing that a later session of the first directory could lose.
    fs::create_dir(bench.ws().join(".idea")).unwrap();
    drop(bench.of_state("one", ""));
    assert_eq!(bench.names(), [".git", ".idea"]);
}

/// Where there is no repository, `.git` itself is a placeholder, and the next session holds names in it.
#[test]
fn names_in_a_placeholder_of_another_session_go_with_it() {
    let bench = Bench::new();
    fs::remove_dir(bench.ws().join(".git")).unwrap();
    let one = [AbsentName { path: PathBuf::from(".git"), placeholder: PlaceholderKind::Directory }];
    let first = bench.create_with(&one).0;
    let mut second = PlaceholderSet::join(&bench.dir.path().join("two"), &[bench.ws()]).unwrap();
    let pins = vec![PathBuf::from(".git")];
    second.fill(&mut SurveyedRoot { pins, ..surveyed(&bench.ws(), &absent()) }).unwrap();
    drop(first);
    assert!(bench.ws().join(".git/commondir").exists());
    drop(second);
    assert_eq!(fs::read_dir(bench.ws()).unwrap().count(), 0);
    // And the other way round: the first session knows nothing of what the second one has made in it.
    let first = bench.create_with(&one).0;
    let mut second = PlaceholderSet::join(&bench.dir.path().join("two"), &[bench.ws()]).unwrap();
    second.fill(&mut surveyed(&bench.ws(), &absent())).unwrap();
    drop(second);
    drop(first);
    assert_eq!(fs::read_dir(bench.ws()).unwrap().count(), 0);
}

#[test]
fn a_sweep_leaves_what_a_session_of_another_state_directory_needs() {
    let bench = Bench::new();
    bench.crash();
    let other = bench.of_state("two", "");
    assert_eq!(sweep(&bench.registry()).unwrap(), 0);
    assert_eq!(bench.names(), ALL);
    drop(other);
    assert_eq!(bench.names(), [".git"]);
}

#[test]
fn sessions_in_and_around_a_root_keep_what_they_see() {
    let bench = Bench::new();
    fs::create_dir_all(bench.ws().join("sub/.git")).unwrap();
    let below = bench.of_state("one", "sub");
    let around = WatchMark::mark(&bench.ws()).unwrap();
    drop(below);
    assert!(bench.ws().join("sub/.vscode").exists(), "the session around it may have mounted on it");
    drop(around);
    sweep(&bench.dir.path().join("one/placeholders")).unwrap();
    assert!(!bench.ws().join("sub/.vscode").exists(), "control: without it they go");
    let around = bench.of_state("one", "");
    let below = WatchMark::mark(&bench.ws().join("sub")).unwrap();
    drop(around);
    assert!(!bench.ws().join(".vscode").exists(), "a session below does not see it");
    drop(below);
}

/// A child that another thread forks has a copy of every descriptor until it executes another program.
#[test]
fn a_child_of_another_thread_is_not_taken_for_a_session() {
    let bench = Bench::new();
    let ending = bench.create();
    let copies: Vec<OwnedFd> = ending.roots.iter().flat_map(descriptors).collect();
    assert_eq!(copies.len(), 2, "control: it holds a lock and a mark");
    drop(ending);
    assert_eq!(bench.names(), [".git"]);
    let (first, second) = (bench.create(), bench.create());
    let of_first: Vec<OwnedFd> = first.roots.iter().flat_map(descriptors).collect();
    drop(first);
    assert_eq!(bench.names(), ALL, "control: the second session needs them");
    drop(second);
    assert_eq!(bench.names(), [".git"]);
    drop((copies, of_first));
}

fn descriptors(lease: &RegistryLease) -> Vec<OwnedFd> {
    let mark = lease.watched.as_ref().map(|watched| &watched.mark.directory);
    let held = mark.into_iter().chain([&lease.lock.file]);
    held.map(|fd| rustix::io::fcntl_dupfd_cloexec(fd, 0).unwrap()).collect()
}

/// Neither may leave the work to the other.
#[test]
fn of_two_sessions_that_end_together_one_removes_them() {
    for round in 0..100 {
        let bench = Bench::new();
        let sessions = [bench.create(), bench.create()];
        let together = std::sync::Barrier::new(sessions.len());
        std::thread::scope(|scope| {
            for session in sessions {
                let together = &together;
                scope.spawn(move || {
                    together.wait();
                    drop(session);
                });
            }
        });
        assert_eq!(bench.names(), [".git"], "round {round}");
    }
}

/// A command can close a directory of its own. The list is for the next session.
#[test]
fn what_cannot_be_removed_now_stays_listed() {
    let bench = Bench::new();
    let session = bench.create();
    let git = bench.ws().join(".git");
    let close = |mode| fs::set_permissions(&git, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    std::thread::scope(|scope| {
        let ended = scope.spawn(|| {
            powerless();
            close(0);
            drop(session);
        });
        ended.join().unwrap();
    });
    close(0o755);
    assert_eq!(bench.names(), [".git", ".git/commondir", ".git/config.worktree"]);
    assert_eq!(bench.swept(), 2);
    assert_eq!(bench.names(), [".git"]);
}

/// Gives up root's power over files, on this thread.
fn powerless() {
    use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    set_capabilities(None, sets).unwrap();
}

#[test]
fn an_empty_directory_of_a_user_stays() {
    let bench = Bench::new();
    fs::create_dir(bench.ws().join(".vscode")).unwrap();
    drop(bench.of_state("one", ""));
    assert!(bench.ws().join(".vscode").is_dir());
}

#[test]
fn a_process_that_clears_without_end_is_named() {
    let bench = Bench::new();
    let mut clearing = ClearingMarks::default();
    assert!(!clearing.is_seen(&bench.ws(), Path::new(".vscode")));
    let error = PlaceholderSet::join(&bench.registry(), &[bench.ws()]).unwrap_err();
    assert!(matches!(&error, PlaceholderError::Cleared { path } if *path == bench.ws()), "{error}");
    drop(clearing);
    PlaceholderSet::join(&bench.registry(), &[bench.ws()]).unwrap();
}

#[test]
fn many_sessions_of_several_state_directories_keep_theirs_and_leave_nothing() {
    let bench = Bench::new();
    std::thread::scope(|scope| {
        for state in ["one", "two", "three", "four"] {
            let bench = &bench;
            scope.spawn(move || {
                for _ in 0..100 {
                    let placeholders = bench.of_state(state, "");
                    for absent in absent() {
                        let path = bench.ws().join(&absent.path);
                        assert!(path.exists(), "{} is gone", path.display());
                    }
                    drop(placeholders);
                }
            });
        }
    });
    for state in ["one", "two", "three", "four"] {
        drop(bench.of_state(state, ""));
    }
    assert_eq!(bench.names(), [".git"]);
}

#[test]
fn many_sessions_at_once_leave_nothing() {
    let bench = Bench::new();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..25 {
                    let (_placeholders, outcome) = bench.create_with(&absent());
                    assert_eq!(outcome.held.len(), 3, "{outcome:?}");
                    assert!(bench.ws().join(".git/commondir").exists());
                }
            });
        }
    });
    assert_eq!(bench.names(), [".git"]);
}

/// What only looks like a placeholder of another session belongs to a user: a file with the same times, a copy.
#[test]
fn what_a_user_has_made_is_not_taken_for_a_placeholder() {
    let bench = Bench::new();
    let elsewhere = bench.dir.path().join("other/placeholders");
    let mut first = PlaceholderSet::join(&elsewhere, &[bench.ws()]).unwrap();
    first.fill(&mut surveyed(&bench.ws(), &absent())).unwrap();
    let last = bench.create();
    drop(first);
    assert_eq!(bench.names(), ALL, "the session that still runs sees them");
    let marked = fs::metadata(bench.ws().join(".git/commondir")).unwrap().modified().unwrap();
    let times = fs::FileTimes::new().set_modified(marked);
    fs::create_dir(bench.ws().join("empty")).unwrap();
    fs::write(bench.ws().join("copy"), ".\n").unwrap();
    fs::write(bench.ws().join("note"), "mine").unwrap();
    for name in ["empty", "copy", "note"] {
        File::open(bench.ws().join(name)).unwrap().set_times(times).unwrap();
    }
    drop(last);
    assert_eq!(bench.names(), [".git", "copy", "empty", "note"], "only the placeholders are gone");
}

/// A session that is killed at any moment leaves no file that lacks its content, and so is a file of the user to all others.
#[test]
fn a_file_has_its_content_as_soon_as_it_has_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let parent = rustix::fs::open(dir.path(), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    let place = |number: u32| dir.path().join(format!("f{number}"));
    let rounds = 4000;
    let torn = |make: &(dyn Fn(u32) + Sync)| {
        done.store(false, std::sync::atomic::Ordering::Relaxed);
        std::thread::scope(|scope| {
            let looks = scope.spawn(|| {
                let mut torn = 0;
                for number in 0..rounds {
                    let content = loop {
                        match fs::read(place(number)) {
                            Ok(content) => break content,
                            Err(_) if done.load(std::sync::atomic::Ordering::Relaxed) => return torn,
                            Err(_) => {}
                        }
                    };
                    torn += u32::from(content.is_empty());
                }
                torn
            });
            (0..rounds).for_each(make);
            let torn = looks.join().unwrap();
            (0..rounds).for_each(|number| fs::remove_file(place(number)).unwrap());
            torn
        })
    };
    let in_two_steps = |number| {
        let mut file = File::create(place(number)).unwrap();
        file.write_all(b".\n").unwrap();
    };
    // With one processor the look seldom comes in between.
    let is_seen = (0..100).any(|_| torn(&in_two_steps) > 0);
    assert!(is_seen, "control: it is seen without its content");
    let entry = |number| PlaceholderEntry {
        path: PathBuf::from(format!("f{number}")),
        content: Some(b".\n".to_vec()),
    };
    let made = |number| {
        let entry = entry(number);
        entry.make_plain(&parent, entry.path.as_os_str(), None).unwrap();
        assert_eq!(entry.make_plain(&parent, entry.path.as_os_str(), None), Err(Errno::EXIST));
    };
    assert_eq!(torn(&made), 0);
}
