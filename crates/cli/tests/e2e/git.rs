//! Git works inside; what git on the host would run later cannot be planted.

use std::fs;
use std::path::Path;

use crate::testkit::{World, finish};

/// Everyday git, each step of which must succeed.
const EVERYDAY: &str = r#"
set -e
git status
echo two >>readme; git add readme; git commit -q -m second
git checkout -q -b feature; echo f >feature; git add feature; git commit -q -m feature
git checkout -q main; echo three >other; git add other; git commit -q -m other
git merge -q --no-edit feature
git checkout -q -b rebased HEAD~1; echo r >rebased; git add rebased; git commit -q -m rebased; git rebase -q main
git checkout -q main
echo dirty >>readme; git stash -q; git stash pop -q; git checkout -q -- readme
git tag v1; git log --oneline --all >/dev/null; git diff HEAD~1 >/dev/null; git branch -d feature
git gc -q; git fsck
git rev-parse HEAD
"#;

fn identity(world: &World) {
    fs::write(
        world.home.join(".gitconfig"),
        "[user]\n\tname = Op Erator\n\temail = op@example.test\n[alias]\n\tx = !touch pwned\n",
    )
    .unwrap();
}

fn everyday(world: &World, directory: &Path) {
    let mut command = world.ringfence();
    command.args(["run", "--", "sh", "-c", EVERYDAY]).current_dir(directory);
    let done = finish(&mut command, b"").expect(0);
    let inside = done.text().lines().last().unwrap().to_owned();
    assert_eq!(world.git(directory, &["rev-parse", "HEAD"]).trim(), inside, "the host sees the same commit");
    let log = world.git(directory, &["log", "--format=%s %an", "main"]);
    assert!(log.contains("second Op Erator"), "{log}");
    assert_eq!(world.git(directory, &["status", "--porcelain"]), "");
    world.git(directory, &["fsck"]);
}

#[test]
fn everyday_git_works_in_a_repository() {
    let world = World::new();
    identity(&world);
    world.repository();
    everyday(&world, &world.workspace);
}

#[test]
fn everyday_git_works_in_a_linked_worktree() {
    let world = World::new();
    identity(&world);
    let main = world.beside("main");
    fs::write(main.join("readme"), "one\n").unwrap();
    world.git(&main, &["init", "-q", "-b", "trunk", "."]);
    world.git(&main, &["add", "readme"]);
    world.git(&main, &["commit", "-q", "-m", "first"]);
    let linked = world.home.parent().unwrap().join("linked");
    world.git(&main, &["worktree", "add", "-q", "-b", "main", linked.to_str().unwrap()]);
    everyday(&world, &linked);
    let before = fs::read_to_string(main.join(".git/config")).unwrap();
    let script = format!(
        "g=$(git rev-parse --git-common-dir); d=$(git rev-parse --git-dir); echo evil >$g/config; echo evil >$g/hooks/pre-commit; \
         echo evil >$d/commondir; echo evil >$d/config.worktree; echo evil >$d/gitdir; git config core.pager evil; cat {}/readme; exit 0",
        main.display()
    );
    let mut command = world.ringfence();
    let done = finish(command.args(["run", "--", "sh", "-c", &script]).current_dir(&linked), b"").expect(0);
    assert_eq!(done.text(), "", "the other worktree's files are not there: {}", done.err);
    assert_eq!(fs::read_to_string(main.join(".git/config")).unwrap(), before);
    let found = finish(world.host("grep").args(["-rl", "evil"]).arg(main.join(".git")), b"");
    assert_eq!(found.text(), "");
}

#[test]
fn everyday_git_works_in_a_submodule() {
    let world = World::new();
    identity(&world);
    let library = world.beside("library");
    fs::write(library.join("readme"), "one\n").unwrap();
    world.git(&library, &["init", "-q", "-b", "main", "."]);
    world.git(&library, &["add", "readme"]);
    world.git(&library, &["commit", "-q", "-m", "first"]);
    world.repository();
    world.git(&world.workspace, &["submodule", "--quiet", "add", library.to_str().unwrap(), "lib"]);
    world.git(&world.workspace, &["commit", "-q", "-m", "with a library"]);
    let module = world.workspace.join("lib");
    everyday(&world, &module);
    let config = world.workspace.join(".git/modules/lib/config");
    let before = fs::read_to_string(&config).unwrap();
    let mut command = world.ringfence();
    let script = "echo evil >$(git rev-parse --git-dir)/config; echo evil >$(git rev-parse --git-dir)/hooks/pre-commit; exit 0";
    finish(command.args(["run", "--", "sh", "-c", script]).current_dir(&module), b"").expect(0);
    assert_eq!(fs::read_to_string(&config).unwrap(), before);
    world.sh("git status --porcelain && git submodule status && git -C lib log --oneline").expect(0);
}

#[test]
fn a_worktree_can_be_added_inside() {
    let world = World::new();
    identity(&world);
    world.repository();
    let script = "git worktree add -q -b side side && cd side && echo s >s && git add s && git commit -q -m side && git log --oneline";
    world.sh(script).expect(0);
    assert!(world.git(&world.workspace, &["log", "--format=%s", "side", "--"]).contains("side"));
    assert!(world.git(&world.workspace, &["worktree", "list"]).contains("side"));
}

#[test]
fn a_new_repository_can_be_made_below_the_workspace() {
    let world = World::new();
    identity(&world);
    world
        .sh("mkdir new && cd new && git init -q . && echo x >x && git add x && git commit -q -m x")
        .expect(0);
    assert!(world.git(&world.workspace.join("new"), &["log", "--format=%s"]).contains('x'));
}

/// The token is for the host's git; inside there is no network to use it on.
#[test]
fn credentials_in_the_git_config_are_redacted_inside() {
    let world = World::new();
    world.repository();
    let token = "ghp_a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8";
    world.git(
        &world.workspace,
        &["remote", "add", "origin", &format!("https://me:{token}@example.test/x.git")],
    );
    let before = world.read(".git/config").unwrap();
    for backend in ["native", "bubblewrap"] {
        let done = world.sh_with(
            &["--backend", backend],
            "cat .git/config; git remote -v; git config -l; grep -r ghp_ .git; exit 0",
        );
        let done = done.expect(0);
        assert!(done.text().contains("[remote \"origin\"]"), "{backend}: {}", done.text());
        assert!(!done.text().contains(token), "{backend}: {}", done.text());
        assert_eq!(world.read(".git/config").unwrap(), before, "{backend}");
    }
    let control = finish(world.host("git").args(["remote", "-v"]), b"").expect(0);
    assert!(control.text().contains(token));
}

/// A bare repository has a configuration as well. The verdict is a digest: output is scanned for tokens by itself.
#[test]
fn credentials_in_bare_repositories_are_redacted_inside() {
    let world = World::new();
    world.repository();
    world.git(&world.workspace, &["clone", "-q", "--mirror", ".", "mirror.git"]);
    let token = "ghp_a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8";
    let mirror = world.workspace.join("mirror.git");
    let url = format!("https://me:{token}@example.test/x.git");
    world.git(&mirror, &["config", "remote.origin.url", &url]);
    let before = world.read("mirror.git/config").unwrap();
    assert!(before.contains(token), "control");
    for backend in ["native", "bubblewrap"] {
        let look = "grep -c 1L2m3N4o5 mirror.git/config; echo x >> mirror.git/config; git -C mirror.git log --format=%s -1";
        let done = world.sh_with(&["--backend", backend], look).expect(0);
        assert_eq!(done.text().lines().next(), Some("0"), "{backend}: {}", done.text());
        assert_eq!(world.read("mirror.git/config").unwrap(), before, "{backend}");
    }
}

/// What the user's own configuration, or a `~` in that of the repository, leads to in the workspace is as good as that configuration.
#[test]
fn files_that_host_settings_lead_to_are_held() {
    const HOOK: &str = "mkdir -p .githooks; printf '#!/bin/sh\\ntouch mark\\n' > .githooks/pre-commit; chmod +x .githooks/pre-commit";
    const SHARED: &str = "printf '[core]\\n\\tfsmonitor = \"touch $PWD/mark; false\"\\n' > shared.cfg";
    for (setting, value, plant) in [
        ("--local core.hooksPath", "~/proj/.githooks", HOOK),
        ("--local include.path", "~/proj/shared.cfg", SHARED),
        ("--global core.hooksPath", ".githooks", HOOK),
        ("--global core.hooksPath", "~/proj/.githooks", HOOK),
        ("--global include.path", "~/proj/shared.cfg", SHARED),
        ("--global includeIf.gitdir:~/proj/.path", "~/proj/shared.cfg", SHARED),
    ] {
        let mut world = World::new();
        world.workspace = world.home.canonicalize().unwrap().join("proj");
        fs::create_dir_all(&world.workspace).unwrap();
        world.repository();
        let on_host = |command: &str| finish(world.host("sh").args(["-c", command]), b"");
        on_host(&format!("git config {setting} '{value}'")).expect(0);
        let commit = "git -c user.name=a -c user.email=a commit -q --allow-empty -m x";
        let mark = world.workspace.join("mark");
        let done = world.sh(plant);
        on_host(commit);
        assert!(!mark.exists(), "{setting} {value}: {}", done.err);
        on_host(plant).expect(0);
        on_host(commit);
        assert!(mark.exists(), "control: {setting} {value}");
    }
}

/// Git of the host copies the templates of its user into every new repository.
#[test]
fn templates_and_attributes_of_the_user_are_held() {
    const TEMPLATE: &str = "mkdir -p tpl/hooks; printf '#!/bin/sh\\ntouch mark\\n' > tpl/hooks/pre-commit; chmod +x tpl/hooks/pre-commit";
    const ATTRIBUTES: &str = "echo '* filter=own' > attributes";
    let commit = "rm -rf new; git init -q new; cd new; echo x > x; git add x; \
                  git -c user.name=a -c user.email=a commit -q -m x; ! test -e mark || cp mark ..";
    for (setting, value, plant) in [
        ("init.templateDir", "~/proj/tpl", TEMPLATE),
        ("core.attributesFile", "~/proj/attributes", ATTRIBUTES),
    ] {
        for exists in [false, true] {
            let mut world = World::new();
            world.workspace = world.home.canonicalize().unwrap().join("proj");
            fs::create_dir_all(&world.workspace).unwrap();
            world.repository();
            if exists {
                fs::create_dir_all(world.workspace.join("tpl/hooks")).unwrap();
                fs::write(world.workspace.join("attributes"), "").unwrap();
            }
            let on_host = |command: &str| finish(world.host("sh").args(["-c", command]), b"");
            on_host(&format!("git config --global {setting} '{value}'")).expect(0);
            on_host("git config --global filter.own.clean 'touch mark; cat'").expect(0);
            let mark = world.workspace.join("mark");
            let done = world.sh(plant);
            on_host(commit);
            assert!(!mark.exists(), "{setting} {exists}: {}", done.err);
            on_host(plant).expect(0);
            on_host(commit);
            assert!(mark.exists(), "control: {setting} {exists}");
        }
    }
}

/// Git of the host reads files that only a variable of the user's shell names, also one that is not there yet.
#[test]
fn configurations_that_variables_name_are_held() {
    const EVIL: &str = "[core]\n\tfsmonitor = \"touch $PWD/mark; false\"\n";
    for (variable, value, file) in [
        ("GIT_CONFIG_GLOBAL", "settings", "settings"),
        ("GIT_CONFIG_SYSTEM", "settings", "settings"),
        ("XDG_CONFIG_HOME", "etc", "etc/git/config"),
    ] {
        let world = World::new();
        world.repository();
        let value = world.workspace.canonicalize().unwrap().join(value);
        let plant = format!("mkdir -p etc/git; printf '{EVIL}' > {file}");
        let mark = world.workspace.join("mark");
        let status = || finish(world.host("sh").args(["-c", "git status"]).env(variable, &value), b"");
        let mut fenced = world.ringfence();
        fenced.env(variable, &value).args(["run", "--", "sh", "-c", &plant]);
        let done = finish(&mut fenced, b"");
        status();
        assert!(!mark.exists(), "{variable}: {}", done.err);
        let content = EVIL.replace("$PWD", &world.workspace.display().to_string()).replace("\\", "");
        let mut written = world.ringfence();
        written.env(variable, &value).args(["file", "write", file]);
        let done = finish(&mut written, content.as_bytes());
        status();
        assert!(!mark.exists(), "file tool: {variable}: {}", done.err);
        finish(world.host("sh").args(["-c", &plant]), b"").expect(0);
        status();
        assert!(mark.exists(), "control: {variable}");
    }
}

/// A user whose git takes hooks from every checkout takes none from a repository that a command has made.
#[test]
fn hooks_that_the_user_takes_from_every_checkout_are_held_in_new_repositories() {
    const PLANT: &str = "git init -q lib; mkdir lib/.githooks; printf '#!/bin/sh\ntouch mark\n' > lib/.githooks/pre-commit; \
                         chmod +x lib/.githooks/pre-commit; echo x > lib/.githooks/readme";
    let world = World::new();
    world.repository();
    let on_host = |command: &str| finish(world.host("sh").args(["-c", command]), b"");
    on_host("git config --global core.hooksPath .githooks").expect(0);
    let commit = "git -C lib -c user.name=a -c user.email=a commit -q --allow-empty -m x";
    let mark = world.workspace.join("lib/mark");
    let done = world.sh(PLANT).expect(0).says("held.git-hook");
    on_host(commit).expect(0);
    assert!(!mark.exists(), "{}", done.err);
    assert!(world.workspace.join("lib/.githooks/readme").exists(), "what is no hook stays");
    on_host("rm -r lib").expect(0);
    on_host(PLANT).expect(0);
    on_host(commit).expect(0);
    assert!(mark.exists(), "control");
}

/// A hook of the workspace runs inside with everything else, and aliases of the host's user do not exist there.
#[test]
fn hooks_run_inside_the_fence_and_the_operators_aliases_do_not() {
    let world = World::new();
    identity(&world);
    world.repository();
    let outside = world.beside("outside").join("made");
    fs::create_dir_all(world.workspace.join(".git/hooks")).unwrap();
    crate::testkit::script(
        &world.workspace.join(".git/hooks/pre-commit"),
        &format!("#!/bin/sh\ntouch hooked; touch {}; exit 0\n", outside.display()),
    );
    world.sh("echo x >x; git add x; git commit -q -m x").expect(0);
    assert!(world.workspace.join("hooked").exists());
    assert!(!outside.exists());
    assert_ne!(world.sh("git x").code, Some(0));
    assert!(!world.workspace.join("pwned").exists());
}
