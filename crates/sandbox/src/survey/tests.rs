use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::process::Command;

use super::*;

mod protected_paths;

struct TestRules;

impl SurveyRules for TestRules {
    fn judge(&self, relative: &Path) -> PathDecision {
        let name = relative.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.ends_with(".example") {
            PathDecision::Open
        } else if name == ".env" || name.starts_with(".env.") || name.ends_with(".key") {
            PathDecision::Hidden
        } else if name.ends_with(".pem") {
            PathDecision::HiddenUnlessPublic
        } else {
            PathDecision::Open
        }
    }

    fn protected_at_root(&self) -> &[&str] {
        &[".git", ".gitmodules", ".ringfence", ".envrc"]
    }

    fn protected_anywhere(&self) -> &[&str] {
        &[".claude", ".mcp.json"]
    }

    fn is_protected(&self, _relative: &Path) -> bool {
        false
    }
}

struct Bench {
    dir: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn root(&self) -> PathBuf {
        fs::canonicalize(self.dir.path()).unwrap()
    }

    fn write(&self, path: &str, content: &str) -> &Self {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
        self
    }

    fn link(&self, link: &str, target: &str) -> &Self {
        symlink(target, self.root().join(link)).unwrap();
        self
    }

    fn survey_at(&self, path: &str) -> WorkspaceSurvey {
        super::survey(&self.root().join(path), &TestRules).unwrap()
    }

    fn survey(&self) -> SurveyedRoot {
        self.survey_at("").roots.remove(0)
    }

    fn git(&self, directory: &str, arguments: &[&str]) -> String {
        let output = Command::new("git")
            .current_dir(self.root().join(directory))
            .env_clear()
            .envs([
                ("PATH", "/usr/bin:/bin"),
                ("GIT_CONFIG_NOSYSTEM", "1"),
                ("GIT_CONFIG_GLOBAL", "/dev/null"),
            ])
            .args(["-c", "user.name=t", "-c", "user.email=t@t", "-c", "protocol.file.allow=always"])
            .args(arguments)
            .output()
            .unwrap();
        assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn repository(&self, directory: &str) -> &Self {
        fs::create_dir_all(self.root().join(directory)).unwrap();
        self.git(directory, &["init", "-q", "-b", "main"]);
        fs::write(self.root().join(directory).join("file"), "x\n").unwrap();
        self.git(directory, &["add", "."]);
        self.git(directory, &["commit", "-qm", "first"]);
        self
    }
}

fn paths(names: &[&str]) -> Vec<PathBuf> {
    names.iter().map(PathBuf::from).collect()
}

fn has(list: &[PathBuf], path: &str) -> bool {
    list.contains(&PathBuf::from(path))
}

fn placeholder(root: &SurveyedRoot, path: &str) -> Option<PlaceholderKind> {
    root.absent.iter().find(|absent| absent.path == Path::new(path)).map(|absent| absent.placeholder)
}

const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";

#[test]
fn hidden_files_are_masked_at_any_depth_and_public_ones_are_not() {
    let bench = Bench::new();
    bench
        .write(".env", "A")
        .write(".env.example", "A")
        .write("a/b c/d\n/.env.local", "A")
        .write("x/tls.key", "A");
    bench
        .write("x/cert.pem", CERTIFICATE)
        .write("x/key.pem", "-----BEGIN PRIVATE KEY-----\n")
        .write("x/main.rs", "");
    let masks = bench.survey().masks;
    assert_eq!(masks, paths(&[".env", "x/key.pem", "x/tls.key", "a/b c/d\n/.env.local"]));
}

#[test]
fn names_that_are_not_utf8_are_kept() {
    let bench = Bench::new();
    let odd = bench.root().join(OsStr::from_bytes(b"\xff\xfe dir"));
    fs::create_dir(&odd).unwrap();
    fs::write(odd.join(".env"), "A").unwrap();
    let expected = PathBuf::from(OsStr::from_bytes(b"\xff\xfe dir/.env"));
    assert_eq!(bench.survey().masks, [expected]);
}

#[test]
fn large_or_unterminated_pem_files_are_hidden() {
    let bench = Bench::new();
    bench
        .write("big.pem", &CERTIFICATE.repeat(48_000))
        .write("cut.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n");
    assert_eq!(bench.survey().masks, paths(&["big.pem", "cut.pem"]));
}

#[test]
fn what_a_hidden_link_leads_to_is_masked() {
    let bench = Bench::new();
    bench.write("config/real.txt", "A").link(".env", "config/middle").link("config/middle", "real.txt");
    bench.write("public.txt", CERTIFICATE).link("c.pem", "public.txt");
    fs::create_dir(bench.root().join("venv")).unwrap();
    bench.link("venv.key", "venv").link("gone.key", "nowhere").link("out.key", "/etc/hostname");
    assert_eq!(bench.survey().masks, paths(&["config/real.txt"]));
}

#[test]
fn hard_links_to_hidden_files_are_masked() {
    let bench = Bench::new();
    bench.write(".env", "A").write("other", "B").write("deep/x", "").write("plain", "C");
    fs::hard_link(bench.root().join(".env"), bench.root().join("deep/alias")).unwrap();
    fs::hard_link(bench.root().join("other"), bench.root().join("deep/other alias")).unwrap();
    fs::hard_link(bench.root().join("plain"), bench.root().join("deep/plain")).unwrap();
    bench.link("b.key", "other");
    assert_eq!(bench.survey().masks, paths(&[".env", "other", "deep/alias", "deep/other alias"]));
}

#[test]
fn sockets_are_masked() {
    let bench = Bench::new();
    bench.write("run/x", "");
    let _listener = UnixListener::bind(bench.root().join("run/agent.sock")).unwrap();
    assert_eq!(bench.survey().masks, paths(&["run/agent.sock"]));
}

#[test]
fn protected_names_are_protected_or_held() {
    let bench = Bench::new();
    bench
        .write(".ringfence/policy.toml", "")
        .write("a/b/.claude/x", "")
        .write("a/.ringfence/x", "")
        .write(".mcp.json", "");
    let root = bench.survey();
    assert_eq!(root.protected, paths(&[".mcp.json", ".ringfence", "a/b/.claude"]));
    let absent: Vec<_> =
        root.absent.iter().map(|absent| (absent.path.to_str().unwrap(), absent.placeholder)).collect();
    let directory = PlaceholderKind::Directory;
    assert_eq!(absent, [(".envrc", directory), (".git", directory), (".gitmodules", directory)]);
    assert_eq!(root.pins, paths(&["a", "a/b"]));
}

#[test]
fn nothing_inside_a_protected_directory_needs_more_than_its_masks() {
    let bench = Bench::new();
    bench.write(".claude/.claude/x", "").write(".claude/.env", "A").repository(".claude/plugin");
    let root = bench.survey();
    assert_eq!(root.protected, paths(&[".claude"]));
    assert_eq!(root.masks, paths(&[".claude/.env"]));
    assert!(root.pins.is_empty() && root.rewritten.is_empty(), "{root:?}");
}

#[test]
fn a_name_that_is_hidden_and_protected_is_masked_and_its_directory_held() {
    let bench = Bench::new();
    bench.write("a/.mcp.json", "token");
    let hide = Hide(".mcp.json");
    let root = super::survey(&bench.root(), &hide).unwrap().roots.remove(0);
    assert_eq!((root.masks, root.protected, root.pins), (paths(&["a/.mcp.json"]), Vec::new(), paths(&["a"])));
}

/// Hides one name and protects it too.
struct Hide(&'static str);

impl SurveyRules for Hide {
    fn judge(&self, relative: &Path) -> PathDecision {
        if relative.ends_with(self.0) { PathDecision::Hidden } else { PathDecision::Open }
    }

    fn protected_at_root(&self) -> &[&str] {
        &[]
    }

    fn protected_anywhere(&self) -> &[&str] {
        std::slice::from_ref(&self.0)
    }

    fn is_protected(&self, _relative: &Path) -> bool {
        false
    }
}

#[test]
fn protected_links_that_lead_out_are_covered_and_links_that_lead_in_are_held_with_their_target() {
    let bench = Bench::new();
    bench.link(".claude", "/etc").link(".ringfence", "/nonexistent/x");
    let root = bench.survey();
    assert_eq!(root.protected_links, paths(&[".claude", ".ringfence"]));

    for target in ["notes", "missing/deep", "../{name}/notes", "chain"] {
        let bench = Bench::new();
        bench.write("notes", "").link("chain", "notes");
        let name = bench.root().file_name().unwrap().to_string_lossy().into_owned();
        bench.link(".claude", &target.replace("{name}", &name));
        let survey = super::survey(&bench.root(), &TestRules).unwrap();
        let root = &survey.roots[0];
        assert!(has(&root.held_links, ".claude"), "{target}");
        assert_eq!(has(&root.held_links, "chain"), target == "chain");
        let held = has(&root.protected, "notes") || placeholder(root, "missing/deep").is_some();
        assert!(held, "{target}: {root:?}");
        assert!(survey.notes[0].contains("read-only, too"), "{:?}", survey.notes);
    }
}

/// Held with its target, such a link would make everything read-only.
#[test]
fn a_protected_link_to_what_is_around_it_is_covered() {
    for target in [".", "..", "../sub", ".claude"] {
        let bench = Bench::new();
        bench.write("sub/x", "").link("sub/.claude", target);
        let survey = super::survey(&bench.root(), &TestRules).unwrap();
        assert!(has(&survey.roots[0].protected_links, "sub/.claude"), "{target}: {survey:?}");
        assert!(!survey.roots[0].held && !has(&survey.roots[0].protected, "sub"), "{target}");
    }
}

#[test]
fn no_name_in_a_git_file_is_an_error() {
    for name in [&b"\xff\0"[..], b"a\0b", "x".repeat(300).as_bytes(), "y/".repeat(3000).as_bytes()] {
        let bench = Bench::new();
        fs::create_dir(bench.root().join("sub")).unwrap();
        fs::write(bench.root().join("sub/.git"), [b"gitdir: ", name, b"\n"].concat()).unwrap();
        super::survey(&bench.root(), &TestRules).unwrap();
    }
}

#[test]
fn a_protected_link_to_something_protected_is_fine() {
    let bench = Bench::new();
    bench.write(".ringfence/x", "").link(".claude", ".ringfence");
    assert_eq!(bench.survey().protected_links, paths(&[".claude"]));

    let bench = Bench::new();
    bench.write(".ringfence/x", "").link(".claude", "hop").link("hop", ".ringfence");
    assert_eq!(bench.survey().held_links, paths(&[".claude", "hop"]));
}

#[test]
fn a_plain_repository() {
    let bench = Bench::new();
    bench.repository("");
    let root = bench.survey();
    assert!(has(&root.protected, ".git/hooks") && has(&root.protected, ".git/config"), "{root:?}");
    assert_eq!(placeholder(&root, ".git/commondir"), Some(PlaceholderKind::File(b".\n")));
    assert_eq!(placeholder(&root, ".git/config.worktree"), Some(PlaceholderKind::File(b"")));
    assert_eq!(placeholder(&root, ".git/modules"), Some(PlaceholderKind::Directory));
    assert_eq!(root.pins, paths(&[".git"]));
    for writable in [".git", ".git/objects", ".git/refs", ".git/index", ".git/HEAD", ".git/logs"] {
        assert!(!has(&root.protected, writable), "{writable}");
    }
    assert!(bench.survey_at("").notes.is_empty());
}

#[test]
fn repositories_at_any_depth() {
    let bench = Bench::new();
    bench.repository("").repository("vendor/deep er/inner");
    fs::remove_dir_all(bench.root().join("vendor/deep er/inner/.git/hooks")).unwrap();
    let root = bench.survey();
    assert!(has(&root.protected, "vendor/deep er/inner/.git/config"));
    assert_eq!(placeholder(&root, "vendor/deep er/inner/.git/hooks"), Some(PlaceholderKind::Directory));
    for pin in ["vendor", "vendor/deep er", "vendor/deep er/inner", "vendor/deep er/inner/.git"] {
        assert!(has(&root.pins, pin), "{pin}");
    }
}

/// The placeholders, made by hand, change nothing for git: commit, branch, worktree, gc.
#[test]
fn git_works_with_the_placeholders_in_place() {
    let bench = Bench::new();
    bench.repository("");
    let before = bench.git("", &["status", "--porcelain"]);
    hold(&bench.survey_at(""));
    assert_eq!(bench.git("", &["status", "--porcelain"]), before);
    bench.write("new", "n");
    bench.git("", &["add", "new"]);
    bench.git("", &["commit", "-qm", "second"]);
    bench.git("", &["branch", "topic"]);
    bench.git("", &["worktree", "add", "-q", "wt", "topic"]);
    bench.git("", &["gc", "-q"]);
    assert_eq!(bench.git("wt", &["rev-parse", "HEAD"]), bench.git("", &["rev-parse", "main"]));
    assert_eq!(bench.git("", &["rev-list", "--count", "HEAD"]), "2\n");
}

#[test]
fn git_works_with_the_placeholders_in_a_worktree_and_in_a_submodule() {
    let bench = Bench::new();
    bench.repository("lib").repository("super");
    bench.git("super", &["submodule", "add", "-q", "../lib", "sub"]);
    bench.git("super", &["commit", "-qm", "module"]);
    bench.git("super", &["worktree", "add", "-q", "../wt"]);
    for checkout in ["super/sub", "wt"] {
        hold(&bench.survey_at(checkout));
        bench.write(&format!("{checkout}/new"), "n");
        bench.git(checkout, &["add", "new"]);
        bench.git(checkout, &["commit", "-qm", "inside"]);
        bench.git(checkout, &["branch", "topic"]);
        assert_eq!(bench.git(checkout, &["status", "--porcelain"]), "", "{checkout}");
        assert_eq!(bench.git(checkout, &["log", "-1", "--format=%s"]), "inside\n");
    }
    assert_eq!(bench.git("super", &["log", "-1", "--format=%s", "wt"]), "inside\n");
    assert_eq!(bench.git("super", &["status", "--porcelain"]), " M sub\n");
}

/// Makes the placeholders of a survey by hand.
fn hold(survey: &WorkspaceSurvey) {
    for root in &survey.roots {
        for absent in &root.absent {
            match absent.placeholder {
                PlaceholderKind::Directory | PlaceholderKind::Way => {
                    fs::create_dir(root.path.join(&absent.path)).unwrap()
                }
                PlaceholderKind::File(content) => fs::write(root.path.join(&absent.path), content).unwrap(),
            }
        }
    }
}

#[test]
fn submodules_and_worktrees_of_a_repository() {
    let bench = Bench::new();
    bench.repository("lib").repository("super");
    bench.git("super", &["submodule", "add", "-q", "../lib", "third/party"]);
    bench.git("super", &["commit", "-qm", "module"]);
    bench.git("super", &["worktree", "add", "-q", "../wt"]);
    bench.git("wt", &["submodule", "update", "--init", "-q"]);
    let root = bench.survey_at("super").roots.remove(0);
    for path in [
        ".gitmodules",
        "third/party/.git",
        ".git/modules/third/party/hooks",
        ".git/modules/third/party/config",
        ".git/worktrees/wt/gitdir",
        ".git/worktrees/wt/commondir",
        ".git/worktrees/wt/modules/third/party/config",
    ] {
        assert!(has(&root.protected, path), "{path}: {root:?}");
    }
    for path in [".git/modules/third/party/commondir", ".git/worktrees/wt/config.worktree"] {
        assert!(placeholder(&root, path).is_some(), "{path}: {root:?}");
    }
    for pin in ["third", "third/party", ".git/modules", ".git/modules/third/party", ".git/worktrees/wt"] {
        assert!(has(&root.pins, pin), "{pin}");
    }
}

#[test]
fn modules_nobody_initialised_are_held() {
    let bench = Bench::new();
    bench
        .repository("")
        .write(".gitmodules", "[submodule \"a/b\"]\n\tpath = b\n[submodule \"../../x\"]\n\tpath = c\n");
    bench.write(".git/modules/other/HEAD", "x");
    let root = bench.survey();
    assert_eq!(placeholder(&root, ".git/modules/a"), Some(PlaceholderKind::Directory));
    assert!(!root.absent.iter().any(|absent| absent.path.starts_with("x")));
}

#[test]
fn a_git_directory_that_a_file_points_at_counts() {
    let bench = Bench::new();
    bench.repository("");
    fs::rename(bench.root().join(".git"), bench.root().join("store")).unwrap();
    bench.write(".git", "gitdir: ./store\n");
    bench.write("sub/.git", "gitdir: ../not yet\n");
    let root = bench.survey();
    assert!(
        has(&root.protected, ".git")
            && has(&root.protected, "store/config")
            && has(&root.protected, "store/hooks")
    );
    assert!(has(&root.pins, "store"));
    assert_eq!(placeholder(&root, "not yet"), Some(PlaceholderKind::Directory));
}

#[test]
fn a_commondir_that_leads_inside_counts() {
    let bench = Bench::new();
    bench.repository("").repository("other").write(".git/commondir", "../store\n");
    fs::rename(bench.root().join("other/.git"), bench.root().join("store")).unwrap();
    let root = bench.survey();
    assert!(has(&root.protected, ".git/commondir") && has(&root.protected, "store/config"), "{root:?}");
}

#[test]
fn what_the_configuration_leads_to_is_covered() {
    let bench = Bench::new();
    bench.repository("").write(".husky/_/x", "");
    bench.git("", &["config", "core.hooksPath", ".husky/_"]);
    bench.git("", &["config", "include.path", "../team.gitconfig"]);
    let root = bench.survey();
    assert!(has(&root.protected, ".husky"), "{root:?}");
    assert_eq!(placeholder(&root, "team.gitconfig"), Some(PlaceholderKind::File(b"")));

    bench.git("", &["config", "core.hooksPath", "/usr/share/hooks"]);
    bench.write("team.gitconfig", "[core]\n\thooksPath = my hooks\n[http]\n\textraHeader = secret\n");
    let root = bench.survey();
    assert!(!has(&root.protected, ".husky"));
    assert_eq!(placeholder(&root, "my hooks"), Some(PlaceholderKind::Directory));
    assert!(root.rewritten.iter().any(|(path, _)| path == Path::new("team.gitconfig")));
}

#[test]
fn credentials_in_a_configuration_are_not_shown() {
    let bench = Bench::new();
    bench.repository("");
    bench.git("", &["remote", "add", "origin", "https://me:hunter2@example.com/r.git"]);
    let root = bench.survey();
    assert!(!has(&root.protected, ".git/config") && !has(&root.masks, ".git/config"));
    let (path, content) = root.rewritten.first().unwrap();
    assert_eq!(path, Path::new(".git/config"));
    let text = String::from_utf8(content.clone()).unwrap();
    assert!(!text.contains("hunter2") && text.contains("https://redacted@example.com/r.git"), "{text}");

    let copy = bench.root().join("copy");
    fs::write(&copy, content).unwrap();
    let url = bench.git("", &["config", "--file", copy.to_str().unwrap(), "remote.origin.url"]);
    assert_eq!(url, "https://redacted@example.com/r.git\n");
    assert!(has(&root.pins, ".git"));
}

#[test]
fn a_configuration_too_large_to_judge_is_masked() {
    let bench = Bench::new();
    bench.repository("").write(".git/config", &"# filler filler filler\n".repeat(60_000));
    let root = bench.survey();
    assert!(has(&root.masks, ".git/config") && has(&root.pins, ".git"), "{:?}", root.masks);
}

#[test]
fn a_linked_worktree_brings_its_repository() {
    let bench = Bench::new();
    bench.repository("main repo");
    bench.git("main repo", &["worktree", "add", "-q", "../wt"]);
    bench.git("main repo", &["config", "core.hooksPath", "tools/hooks"]);
    let survey = bench.survey_at("wt");
    assert!(survey.notes.is_empty(), "{:?}", survey.notes);
    let [workspace, common] = &survey.roots[..] else { panic!("{survey:?}") };
    assert_eq!(common.path, bench.root().join("main repo/.git"));
    assert!(has(&workspace.protected, ".git"));
    assert_eq!(placeholder(workspace, "tools"), Some(PlaceholderKind::Directory));
    for path in ["hooks", "config", "worktrees/wt/gitdir", "worktrees/wt/commondir"] {
        assert!(has(&common.protected, path), "{path}: {common:?}");
    }
    assert!(placeholder(common, "commondir").is_some() && placeholder(common, "config.worktree").is_some());
    assert_eq!(common.pins, paths(&["worktrees", "worktrees/wt"]));
    assert!(placeholder(common, ".gitmodules").is_none());
}

#[test]
fn a_submodule_checkout_brings_its_module() {
    let bench = Bench::new();
    bench.repository("lib").repository("super");
    bench.git("super", &["submodule", "add", "-q", "../lib", "third/party"]);
    let survey = bench.survey_at("super/third/party");
    assert!(survey.notes.is_empty(), "{:?}", survey.notes);
    let module = survey.roots.get(1).unwrap();
    assert_eq!(module.path, bench.root().join("super/.git/modules/third/party"));
    assert!(has(&module.protected, "hooks") && has(&module.protected, "config"));
}

#[test]
fn a_pointer_that_is_not_answered_gives_nothing() {
    let bench = Bench::new();
    bench.repository("victim").write("ws/file", "");
    bench.git("victim", &["worktree", "add", "-q", "../wt"]);
    let victim = bench.root().join("victim/.git");
    for (pointer, why) in [
        (victim.clone(), "neither a worktree nor a module"),
        (victim.join("worktrees/wt"), "names another worktree"),
        (victim.join("worktrees/none"), "does not exist"),
    ] {
        bench.write("ws/.git", &format!("gitdir: {}\n", pointer.display()));
        let survey = bench.survey_at("ws");
        assert_eq!(survey.roots.len(), 1);
        assert!(survey.notes[0].contains(why), "{:?}", survey.notes);
        assert!(has(&survey.roots[0].protected, ".git"));
    }
}

#[test]
fn a_worktree_whose_repository_is_forged_gives_nothing() {
    let bench = Bench::new();
    bench.repository("victim").write("ws/file", "");
    let ws = bench.root().join("ws");
    bench.write("fake/.git/worktrees/w/gitdir", &format!("{}\n", ws.join(".git").display()));
    bench.write(
        "fake/.git/worktrees/w/commondir",
        &format!("{}\n", bench.root().join("victim/.git").display()),
    );
    bench.write("ws/.git", "gitdir: ../fake/.git/worktrees/w\n");
    let survey = bench.survey_at("ws");
    assert_eq!(survey.roots.len(), 1);
    assert!(survey.notes[0].contains("not in the `worktrees`"), "{:?}", survey.notes);
    bench.write("fake/.git/worktrees/w/commondir", "../..\n");
    assert!(bench.survey_at("ws").notes[0].contains("not a complete repository"));
}

#[test]
fn a_module_that_names_another_checkout_gives_nothing() {
    let bench = Bench::new();
    bench.repository("lib").repository("super").write("ws/file", "");
    bench.git("super", &["submodule", "add", "-q", "../lib", "sub"]);
    bench.write("ws/.git", "gitdir: ../super/.git/modules/sub\n");
    let survey = bench.survey_at("ws");
    assert_eq!(survey.roots.len(), 1);
    assert!(survey.notes[0].contains("core.worktree"), "{:?}", survey.notes);
}

fn open<'p>(paths: &[&'p Path]) -> SurveyRoots<'p> {
    SurveyRoots { open: paths.to_vec(), ..SurveyRoots::default() }
}

/// In every root that it would be reached through, with the other names of what is in it.
#[test]
fn a_closed_part_is_masked_as_a_whole() {
    let bench = Bench::new();
    bench.write("w/part/deep/file", "A").write("w/part/.env", "B").write("w/one", "C").write("w/x", "");
    fs::hard_link(bench.root().join("w/part/deep/file"), bench.root().join("w/alias")).unwrap();
    let (outer, inner) = (bench.root().join("w"), bench.root().join("w/part"));
    let (deep, one) = (inner.join("deep"), outer.join("one"));
    let places =
        SurveyRoots { open: vec![&inner, &outer], closed: vec![&deep, &one], view: RootView::Direct };
    let survey = super::survey_all(&places, &TestRules).unwrap();
    let [first, second] = &survey.roots[..] else { panic!("{survey:?}") };
    assert_eq!((&first.path, &first.masks), (&inner, &paths(&[".env", "deep"])));
    assert_eq!((&second.path, &second.masks), (&outer, &paths(&["alias", "one", "part/.env", "part/deep"])));
    assert!(second.pins.contains(&PathBuf::from("part")), "{:?}", second.pins);
}

#[test]
fn several_roots_are_surveyed_as_one() {
    let bench = Bench::new();
    bench.write("a/.env", "A").write("a/x", "").write("b/real", "B").write("b/y", "");
    fs::hard_link(bench.root().join("a/.env"), bench.root().join("b/alias")).unwrap();
    bench.link("a/link.key", "../b/real");
    let (a, b) = (bench.root().join("a"), bench.root().join("b"));
    let survey = super::survey_all(&open(&[&a, &b, &a]), &TestRules).unwrap();
    let [first, second] = &survey.roots[..] else { panic!("{survey:?}") };
    assert_eq!((&first.path, &first.masks), (&a, &paths(&[".env"])));
    assert_eq!((&second.path, &second.masks), (&b, &paths(&["alias", "real"])));
    assert!(placeholder(first, ".ringfence").is_some() && placeholder(second, ".ringfence").is_some());

    bench.link("a/.claude", "../b/y");
    let survey = super::survey_all(&open(&[&a, &b]), &TestRules).unwrap();
    assert!(
        has(&survey.roots[0].held_links, ".claude") && has(&survey.roots[1].protected, "y"),
        "{survey:?}"
    );
}

/// More directories than one walker takes on alone, so that several share them.
#[test]
fn large_trees_are_walked_whole() {
    let bench = Bench::new();
    for number in 0..900 {
        let directory = bench.root().join(format!("d{}/e{number}", number % 30));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join(".env"), "A").unwrap();
    }
    fs::hard_link(bench.root().join("d7/e7/.env"), bench.root().join("d9/alias")).unwrap();
    let root = bench.survey();
    assert_eq!(root.masks.len(), 901);
    assert!(has(&root.masks, "d9/alias"));
}

#[test]
fn a_bare_repository_called_git_is_noted() {
    let bench = Bench::new();
    bench.repository("");
    bench.git("", &["config", "core.bare", "true"]);
    assert!(bench.survey_at("").notes[0].contains("bare repository"));
}

#[test]
fn depth_hides_nothing_and_what_cannot_be_mounted_on_is_held_by_what_is_above_it() {
    let bench = Bench::new();
    let mut directory = fs::File::open(bench.root()).unwrap();
    let name = "d".repeat(200);
    for _ in 0..30 {
        rustix::fs::mkdirat(&directory, &*name, rustix::fs::Mode::RWXU).unwrap();
        let flags = rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
        directory = rustix::fs::openat(&directory, &*name, flags, rustix::fs::Mode::empty()).unwrap().into();
    }
    assert!(bench.survey().masks.is_empty());
    let flags = rustix::fs::OFlags::CREATE | rustix::fs::OFlags::WRONLY;
    rustix::fs::openat(&directory, ".env", flags, rustix::fs::Mode::RUSR).unwrap();
    let survey = super::survey(&bench.root(), &TestRules).unwrap();
    let [mask] = &survey.roots[0].masks[..] else { panic!("{survey:?}") };
    let length = bench.root().join(mask).as_os_str().len();
    assert!((3800..=4095).contains(&length), "{length}");
    assert!(survey.notes[0].contains("too deep"), "{:?}", survey.notes);
    rustix::fs::unlinkat(&directory, ".env", rustix::fs::AtFlags::empty()).unwrap();
    rustix::fs::mkdirat(&directory, ".claude", rustix::fs::Mode::RWXU).unwrap();
    let survey = super::survey(&bench.root(), &TestRules).unwrap();
    let long = |path: &&PathBuf| path.as_os_str().len() > 3000;
    assert_eq!(survey.roots[0].protected.iter().filter(long).count(), 1, "{survey:?}");
}

/// Runs the survey as an ordinary user where the test runs as root, because root can list every directory.
#[test]
fn a_directory_its_owner_cannot_list_is_held_shut() {
    let bench = Bench::new();
    bench.write("shut/.env", "A").write("open/.env", "A");
    let shut =
        rustix::fs::open(bench.root().join("shut"), rustix::fs::OFlags::PATH, rustix::fs::Mode::empty())
            .unwrap();
    let set =
        |mode| rustix::fs::chmod(bench.root().join("shut"), rustix::fs::Mode::from_raw_mode(mode)).unwrap();
    set(0o000);
    let root = as_ordinary_user(&bench.root(), || bench.survey());
    set(0o700);
    drop(shut);
    assert_eq!(root.masks, paths(&["shut", "open/.env"]));
}

/// Root hands the tree to `nobody` and gives up its power over files on one thread.
fn as_ordinary_user<T: Send>(tree: &Path, work: impl FnOnce() -> T + Send) -> T {
    use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
    if !rustix::process::geteuid().is_root() {
        return work();
    }
    assert!(fs::metadata(tree).unwrap().uid() == 0);
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let none = CapabilitySet::empty();
            set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
                .unwrap();
            work()
        });
        worker.join().unwrap()
    })
}

/// Small deterministic generator: the same trees in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit as u64).unwrap()
    }
}

#[test]
fn no_hidden_inode_is_left_unmasked_in_random_trees() {
    let mut masked = 0;
    for seed in 1..=60 {
        let bench = Bench::new();
        grow(&bench.root(), &mut Random(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed)));
        let root = bench.survey();
        let inodes: BTreeSet<(u64, u64)> = root
            .masks
            .iter()
            .map(|path| fs::symlink_metadata(bench.root().join(path)).unwrap())
            .map(|meta| (meta.dev(), meta.ino()))
            .collect();
        let names: BTreeSet<PathBuf> = root.masks.iter().map(|path| bench.root().join(path)).collect();
        let mut all = Vec::new();
        naive(&bench.root(), &mut all);
        let hidden: BTreeSet<(u64, u64)> =
            all.iter().filter(|path| name_is_hidden(path)).filter_map(|path| file_id(path)).collect();
        assert_eq!(inodes, hidden, "seed {seed}");
        for path in all.iter().filter(|path| !fs::symlink_metadata(path).unwrap().is_symlink()) {
            let expected = file_id(path).is_some_and(|id| hidden.contains(&id));
            assert_eq!(names.contains(path), expected, "seed {seed}: {path:?}");
        }
        masked += names.len();
    }
    assert!(masked > 200, "the trees are too tame: {masked}");
}

fn grow(root: &Path, random: &mut Random) {
    let mut directories = vec![root.to_owned()];
    let mut files: Vec<PathBuf> = Vec::new();
    for step in 0..60 {
        let directory = directories[random.below(directories.len())].clone();
        let name = [".env".to_owned(), format!("{step}.key"), format!("f{step}"), format!("f {step}\n")]
            [random.below(4)]
        .clone();
        let path = directory.join(&name);
        match random.below(5) {
            0 => {
                let path = directory.join(format!("d{step}"));
                fs::create_dir(&path).unwrap();
                directories.push(path);
            }
            1 if !files.is_empty() => {
                let _ = symlink(&files[random.below(files.len())], &path);
            }
            2 if !files.is_empty() => {
                let _ = fs::hard_link(&files[random.below(files.len())], &path);
            }
            _ => {
                if !path.is_symlink() {
                    fs::write(&path, name).unwrap();
                    files.push(path);
                }
            }
        }
    }
}

fn naive(directory: &Path, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            naive(&entry.path(), out);
        } else {
            out.push(entry.path());
        }
    }
}

fn name_is_hidden(path: &Path) -> bool {
    TestRules.judge(path) != PathDecision::Open
}

/// Device and inode of what a path leads to.
fn file_id(path: &Path) -> Option<(u64, u64)> {
    fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()))
}

/// Everything may be changed in a copy-on-write view, and nothing that is hidden may be read.
#[test]
fn a_layered_root_needs_mounts_for_what_is_hidden_alone() {
    let bench = Bench::new();
    bench.repository("").write("conf/.env", "A").write(".envrc", "x");
    bench.git("", &["config", "remote.origin.url", "https://user:hunter2@example.invalid/x"]);
    let root = bench.root();
    let places = SurveyRoots { open: vec![&root], ..SurveyRoots::default() };
    let direct = survey_all(&places, &TestRules).unwrap().roots.remove(0);
    let held = [&direct.protected, &direct.pins];
    assert!(held.iter().all(|list| !list.is_empty()) && !direct.absent.is_empty());
    let places = SurveyRoots { view: RootView::Layered, ..places };
    let layered = survey_all(&places, &TestRules).unwrap().roots.remove(0);
    assert_eq!((&layered.masks, &layered.rewritten), (&direct.masks, &direct.rewritten));
    assert_eq!(layered.rewritten.len(), 1);
    let only = SurveyedRoot {
        path: layered.path.clone(),
        masks: paths(&["conf/.env"]),
        rewritten: layered.rewritten.clone(),
        view: RootView::Layered,
        ..SurveyedRoot::default()
    };
    assert_eq!(layered, only);
}
