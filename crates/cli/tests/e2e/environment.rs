//! A command's environment starts from nothing, in every backend.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use crate::testkit::{Done, LANDLOCK, World, finish};

const SECRETS: &[&str] = &[
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_PROFILE",
    "GITHUB_TOKEN",
    "NPM_TOKEN",
    "ANTHROPIC_API_KEY",
    "OPENAI_API_KEY",
    "DATABASE_URL",
    "PGPASSWORD",
    "SSH_AUTH_SOCK",
    "GPG_AGENT_INFO",
    "KUBECONFIG",
    "RINGFENCE_X",
    "LD_PRELOAD_X",
    "BASH_ENV",
    "ENV",
    "NODE_OPTIONS",
    "PYTHONPATH",
    "GIT_DIR_X",
    "HTTP_PROXY",
    "MY_VARIABLE",
    "DBUS_SESSION_BUS_ADDRESS",
];

const VALUE: &str = "canary-7f3a91";

/// Every way to run a command, weakest last.
const BACKENDS: [&[&str]; 4] = [
    &["--backend", "native"],
    &["--backend", "bubblewrap"],
    LANDLOCK,
    &["--backend", "none", "--danger", "--allow-sensitive-roots", "--danger-required-controls", "limits,env"],
];

const EXTERNAL: &[&str] = &["--backend", "external", "--danger", "--danger-required-controls", "limits,env"];

fn with_secrets(mut command: Command) -> Command {
    command.envs(SECRETS.iter().map(|name| (*name, VALUE)));
    command
}

fn run(world: &World, flags: &[&str], script: &str) -> Done {
    let mut command = with_secrets(world.ringfence());
    finish(command.arg("run").args(flags).args(["--", "sh", "-c", script]), b"")
}

/// S000-30, S000-32, S004-11, S004-15: whatever contains the command, no secret of the caller is in its environment.
#[test]
fn provider_keys_are_absent() {
    let world = World::new();
    let control = finish(with_secrets(world.host("sh")).args(["-c", "env"]), b"").expect(0);
    assert_eq!(control.text().matches(VALUE).count(), SECRETS.len(), "without ringfence all are inherited");
    for flags in BACKENDS {
        let done = run(&world, flags, "env; cat /proc/self/environ").expect(0);
        assert!(!done.text().contains(VALUE), "{flags:?}: {}", done.text());
        assert!(done.text().contains("RINGFENCE_SESSION_ID="), "{flags:?}: {}", done.text());
    }
}

/// S002-36: also not in that of the processes around it, which a command could look at.
#[test]
fn own_environ_has_no_secret() {
    let world = World::new();
    let script = "for p in /proc/[0-9]*; do cat $p/environ $p/cmdline 2>/dev/null; done; echo; ls /proc | grep -c '^[0-9]'";
    for flags in &BACKENDS[..2] {
        let done = run(&world, flags, script).expect(0);
        assert!(!done.text().contains(VALUE), "{flags:?}: {}", done.text());
    }
}

/// C-14, S000-32, S004-16, S16: two hundred variables of every kind, and none of them arrives anywhere.
#[test]
fn c14_nothing_of_two_hundred_variables_arrives_in_any_backend() {
    const KINDS: [&str; 10] = [
        "AWS_{}",
        "{}_TOKEN",
        "{}_API_KEY",
        "APIKEY_{}",
        "{}_SECRET",
        "{}_PASSWORD",
        "GCP_{}",
        "LD_{}",
        "GIT_{}",
        "V{}",
    ];
    let world = World::new();
    let variables: Vec<String> =
        (0..200).map(|number| KINDS[number % 10].replace("{}", &format!("N{number}"))).collect();
    let dressed = |mut command: Command| {
        command.envs(variables.iter().map(|name| (name, VALUE)));
        command
    };
    let script = "env; cat /proc/self/environ";
    let control = finish(dressed(world.host("sh")).args(["-c", script]), b"").expect(0);
    assert_eq!(control.text().matches(VALUE).count(), 400, "without ringfence all are inherited, seen twice");
    for flags in BACKENDS.into_iter().chain([EXTERNAL]) {
        let mut command = dressed(world.ringfence());
        let done = finish(command.arg("run").args(flags).args(["--", "sh", "-c", script]), b"").expect(0);
        let text = done.text();
        assert!(!text.contains(VALUE), "{flags:?}: {text}");
        let arrived = variables.iter().filter(|name| text.contains(&format!("{name}="))).count();
        assert_eq!(arrived, 0, "{flags:?}: {text}");
        assert!(text.contains("RINGFENCE_SESSION_ID="), "{flags:?}: {text}");
    }
}

/// The planned name of the fallback's row: S004-11.
#[test]
fn landlock_backend_clears_the_environment() {
    let world = World::new();
    let done = run(&world, BACKENDS[2], "env").expect(0);
    let names: Vec<String> = done
        .text()
        .lines()
        .filter_map(|line| line.split_once('='))
        .map(|(name, _)| name.to_owned())
        .collect();
    for name in SECRETS {
        assert!(!names.iter().any(|found| found == name), "{name}");
    }
    assert!(names.iter().any(|name| name == "RINGFENCE_WORKSPACE_ID"), "{names:?}");
}

/// S000-28, S000-29: what passes, and what is put in.
#[test]
fn the_allowlist_passes_and_the_place_is_told() {
    let world = World::new();
    let mut command = with_secrets(world.ringfence());
    command.env("LC_ALL", "C.UTF-8").env("TZ", "UTC").env("NO_COLOR", "1").env("TERM", "xterm-256color");
    let done = finish(command.args(["run", "--", "env"]), b"").expect(0);
    let text = done.text();
    let workspace = world.workspace.to_str().unwrap();
    for line in [
        "LC_ALL=C.UTF-8",
        "TZ=UTC",
        "NO_COLOR=1",
        "TERM=xterm-256color",
        "HOME=/home/ringfence",
        "TMPDIR=/tmp",
        "CI=true",
        "GIT_TERMINAL_PROMPT=0",
        &format!("RINGFENCE_WORKSPACE_DIR={workspace}"),
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in:\n{text}");
    }
    let value = |name: &str| {
        let prefix = format!("{name}=");
        text.lines()
            .find_map(|line| line.strip_prefix(&prefix))
            .unwrap_or_else(|| panic!("{name}: {text}"))
            .to_owned()
    };
    assert!(value("RINGFENCE_SESSION_ID").starts_with("ses_"));
    assert!(value("RINGFENCE_WORKSPACE_ID").starts_with("ws_"));
    let again = world.run(&[], &["env"]).expect(0).text();
    assert!(again.contains(&value("RINGFENCE_WORKSPACE_ID")), "the same in every run");
    assert!(!again.contains(&value("RINGFENCE_SESSION_ID")), "another session");
}

/// S002-5: the search path is the sandbox's, not the caller's.
#[test]
fn path_is_set_by_the_sandbox() {
    let world = World::new();
    crate::testkit::script(&world.write("bin/git", ""), "#!/bin/sh\necho planted\n");
    let mut command = world.ringfence();
    command.env("PATH", format!("{}/bin:/usr/bin", world.workspace.display()));
    let done = finish(command.args(["run", "--", "sh", "-c", "echo $PATH; git --version"]), b"").expect(0);
    assert!(
        !done.text().contains("planted") && !done.text().contains(world.workspace.to_str().unwrap()),
        "{}",
        done.text()
    );
    assert!(done.text().starts_with("/usr/local/bin:/usr/bin:/bin"), "{}", done.text());
}

#[test]
fn variables_can_be_added_and_dangerous_ones_are_refused_by_name() {
    let world = World::new();
    let flags = ["--env", "GREETING=a=b c", "--env", "RUST_BACKTRACE=1", "--env", "CI="];
    let done = world.sh_with(&flags, "echo \"$GREETING|$RUST_BACKTRACE|$CI\"").expect(0);
    assert_eq!(done.text(), "a=b c|1||\n".replace("||", "|"));
    let families = [
        "LD_PRELOAD=/x",
        "ld_preload=/x",
        "BASH_ENV=/x",
        "BASH_FUNC_ls%%=() { :; }",
        "PYTHONPATH=/x",
        "NODE_OPTIONS=-r /x",
        "PYTEST_ADDOPTS=-p /x",
        "KRB5CCNAME=/x",
        "GIT_DIR=/x",
        "GIT_CONFIG_COUNT=1",
        "EDITOR=/x",
        "HTTPS_PROXY=http://127.0.0.1:1",
        "SSL_CERT_FILE=/x",
        "CC=/x",
        "RUSTC_WRAPPER=/x",
        "PIP_INDEX_URL=http://127.0.0.1",
        "DOCKER_HOST=x",
        "HOME=/x",
        "PATH=/x",
        "TMPDIR=/x",
        "AWS_SECRET_ACCESS_KEY=x",
        "MY_API_KEY=x",
        "GITHUB_TOKEN=x",
        "RINGFENCE_SESSION_ID=x",
        "ringfence_y=x",
        "1A=x",
        "A-B=x",
        "=x",
        "A B=x",
    ];
    for variable in families {
        let done = world.run(&["--env", variable], &["touch", "made"]).expect(126);
        let name = variable.split('=').next().unwrap();
        assert!(done.err.contains(name) && done.err.contains("rule: "), "{variable}: {}", done.err);
        assert!(!done.err.contains("/x"), "the value is not repeated: {}", done.err);
    }
    assert!(!world.workspace.join("made").exists());
}

/// S000-36: what a variable holds is the command's business; in the ledger a credential is taken out.
#[test]
fn values_of_variables_are_not_in_the_ledger() {
    let world = World::new();
    let token = format!("ghp_{}", "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8");
    world.sh_with(&["--env", &format!("NOTE={token}")], "printf %s $NOTE >note").expect(0);
    assert_eq!(world.read("note"), Some(token.clone()), "the command has it");
    let ledger = world.ledger_tool(&["tail", "--json"]).expect(0).text();
    assert!(!ledger.contains(&token), "{ledger}");
    assert!(ledger.contains("NOTE"), "{ledger}");
}

/// S000-35: nothing of the caller's environment or home is left in the workspace.
#[test]
fn no_secret_reaches_the_workspace() {
    let world = World::new();
    std::fs::write(world.home.join(".netrc"), VALUE).unwrap();
    run(&world, &[], "env >env.txt; cp -r ~ home-copy 2>/dev/null; cat ~/.netrc >netrc 2>/dev/null; exit 0")
        .expect(0);
    let found = finish(world.host("grep").args(["-r", VALUE, "."]), b"");
    assert_eq!(found.code, Some(1), "{}", found.text());
}

/// S002-5, S002-29: programs that the operator keeps for one agent are first on its `PATH`, and it cannot change them.
#[test]
fn s002_5_tools_of_an_agent_are_first_on_its_path() {
    let world = World::new();
    let tools = world.home.join(".config/ringfence/agents/a/tools/bin");
    fs::create_dir_all(&tools).unwrap();
    for name in ["greet", "uptime"] {
        fs::write(tools.join(name), "#!/bin/sh\necho kept\n").unwrap();
        fs::set_permissions(tools.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    for backend in [&["--backend", "native"][..], &["--backend", "bubblewrap"], LANDLOCK] {
        let flags = [backend, &["--agent", "a"]].concat();
        assert_eq!(world.sh_with(&flags, "greet; uptime").expect(0).text(), "kept\nkept\n", "{backend:?}");
        let dir = tools.display();
        let change =
            format!("echo x >{dir}/greet; echo x >{dir}/new; rm -f {dir}/uptime; mv {dir} {dir}2; true");
        world.sh_with(&flags, &change).expect(0);
        assert_eq!(fs::read_dir(&tools).unwrap().count(), 2, "{backend:?}");
        assert_eq!(fs::read_to_string(tools.join("greet")).unwrap(), "#!/bin/sh\necho kept\n");
    }
    // The control, and names that are no name of a directory.
    for other in [&["--agent", "b"][..], &["--agent", "../agents/a"], &["--agent", ".."], &[]] {
        assert_eq!(world.sh_with(other, "greet").code, Some(127), "{other:?}");
    }
    // The configuration around it stays out of sight.
    fs::write(world.home.join(".config/ringfence/config.toml"), "# operator\n").unwrap();
    let around =
        world.sh_with(&["--agent", "a"], &format!("cat {}/../../../../config.toml", tools.display()));
    assert_eq!((around.code, around.text().as_str()), (Some(1), ""));
}
