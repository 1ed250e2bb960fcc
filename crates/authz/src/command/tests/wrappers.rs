use super::*;

#[test]
fn transparent_wrappers_have_the_judgement_of_what_they_run() {
    let bench = Bench::guarded();
    for wrapper in [
        "env",
        "env -i",
        "env TZ=UTC",
        "env -u FOO",
        "env -C src",
        "env TZ=UTC NO_COLOR=2",
        "env --",
        "nice",
        "nice -n 5",
        "nice -5",
        "ionice -c3",
        "ionice -c 3 -n 2",
        "timeout 5",
        "timeout -k 1 -s KILL 5s",
        "timeout --signal=KILL 5",
        "stdbuf -oL",
        "stdbuf -o 0",
        "setsid",
        "setsid -w",
        "taskset 1",
        "taskset -c 0,1",
        "chrt -b 0",
        "prlimit --nofile=10",
        "setarch x86_64 -R",
        "setarch -R",
        "linux32",
        "time",
        "time -p",
        "busybox",
        "toybox",
        "coreutils",
        "coreutils --coreutils-prog=env",
        "env nice timeout 5",
    ] {
        for (line, expected) in [
            ("ls -l src", ALLOW),
            ("rm -rf x", DENY),
            ("mytool", ASK),
            ("cat /etc/passwd", DENY),
            ("git push --force", DENY),
        ] {
            let line = format!("{wrapper} {line}");
            check(&line, &bench.line(&line), expected);
        }
    }
}

#[test]
fn wrappers_that_do_more_are_asked_about() {
    let bench = Bench::guarded();
    for wrapper in [
        "nohup",
        "sudo",
        "sudo -u root",
        "sudo -n A=1",
        "doas",
        "pkexec x",
        "runuser -u x --",
        "chroot sub",
        "unshare -r",
        "nsenter -t 1 -m",
        "strace -f",
        "strace -o log",
        "ltrace",
        "gdb --args",
        "watch -n1",
        "parallel",
        "flock lock",
        "fakeroot",
        "xvfb-run",
        "/lib64/ld-linux-x86-64.so.2",
        "/lib/ld-musl-x86_64.so.1",
        "valgrind",
        "time -o out",
        "env -S ls",
        "proxychains",
    ] {
        for (line, expected) in [("ls", ASK), ("rm x", DENY)] {
            let line = format!("{wrapper} {line}");
            let expected = if line == "env -S ls ls" { ALLOW } else { expected };
            let expected = if line == "env -S ls rm x" { ALLOW } else { expected };
            check(&line, &bench.line(&line), expected);
        }
    }
    for argv in [
        &["su", "-c", "ls"][..],
        &["su", "root", "-c", "ls"],
        &["script", "-qc", "ls", "out"],
        &["flock", "lock", "-c", "ls"],
        &["runuser", "-c", "ls", "x"],
    ] {
        check(&argv.join(" "), &bench.argv(argv), ASK);
    }
    for argv in [
        &["su", "-c", "rm x"][..],
        &["su", "root", "-c", "rm x"],
        &["script", "-qc", "rm x", "/dev/null"],
        &["flock", "lock", "-c", "rm x"],
        &["watch", "rm x"],
        &["parallel", "rm", ":::", "a"],
    ] {
        check(&argv.join(" "), &bench.argv(argv), DENY);
    }
}

#[test]
fn b_8_env_split_is_read_as_env_does_or_not_at_all() {
    let bench = Bench::guarded();
    for (argv, expected) in [
        (&["env", "-S", "ls -l"][..], ALLOW),
        (&["env", "-Sls -l"], ALLOW),
        (&["env", "--split-string=ls -l"], ALLOW),
        (&["env", "-S", "rm -rf x"], DENY),
        (&["env", "-S", "-i A=1 rm x"], DENY),
        (&["env", "-S", "env -S rm"], DENY),
        (&["env", "-S", "ls ${X}"], ASK),
        (&["env", "-S", "ls\\_-l"], ASK),
        (&["env", "-S", "'ls' x"], ASK),
        (&["env", "-S", "PATH=x ls"], ASK),
        (&["env", "-S", "rm x", "-S", "ls"], DENY),
        (&["env", "-S", "rm x", "ls"], DENY),
        (&["env", "-S", "ls", "-u", "X"], ALLOW),
        (&["env", "-S", "-C src", "cat", "../../x"], DENY),
        (&["env", "-iSls", "x"], ALLOW),
    ] {
        check(&argv.join(" "), &bench.argv(argv), expected);
    }
}

#[test]
fn arguments_from_elsewhere_are_unknown() {
    let bench = Bench::guarded();
    bench.lines(
        DENY,
        &[
            "xargs rm",
            "xargs -0 rm -f",
            "xargs -n 1 -P 4 rm",
            "xargs -I {} rm {}",
            "xargs env rm",
            "xargs -a list rm",
            "xargs sh",
            "xargs bash -c",
            "xargs curl",
            "xargs -I{} sh -c {}",
            "find . -exec rm {} ;",
            "find . -exec rm {} +",
            "find . -execdir rm -rf {} ;",
            "find . -ok rm {} ;",
            "find . -exec env rm {} ;",
            "find . -exec sh {} ;",
            "find . -exec cat /etc/passwd ;",
            "find . -name x -o -delete",
            "find . -fprint /etc/x",
        ],
    );
    bench.lines(
        ASK,
        &[
            "xargs -I {} -n 1 cat a",
            "xargs cat",
            "xargs",
            "xargs -I {} cat {}",
            "xargs echo",
            "find . -exec cat {} +",
            "find . -exec grep x {} ;",
        ],
    );
    for argv in [
        &["xargs", "-I{}", "sh", "-c", "rm {}"][..],
        &["xargs", "sh", "-c", "rm \"$@\"", "_"],
        &["find", ".", "-exec", "sh", "-c", "rm {}", ";"],
    ] {
        check(&argv.join(" "), &bench.argv(argv), DENY);
    }
}

#[test]
fn shells_are_judged_by_their_text() {
    let bench = Bench::guarded();
    for shell in [
        &["sh", "-c"][..],
        &["bash", "-c"],
        &["bash", "-lc"],
        &["bash", "-ec"],
        &["bash", "-euxc"],
        &["bash", "-e", "-o", "pipefail", "-c"],
        &["bash", "-eo", "pipefail", "-c"],
        &["bash", "--norc", "--noprofile", "-c"],
        &["bash", "--login", "-c"],
        &["bash", "-c", "--"],
        &["zsh", "-c"],
        &["dash", "-c"],
        &["ksh", "-c"],
        &["/bin/sh", "-c"],
        &["busybox", "sh", "-c"],
        &["env", "TZ=UTC", "sh", "-c"],
        &["timeout", "5", "bash", "-c"],
    ] {
        for (text, expected) in
            [("ls -l", ALLOW), ("rm x", DENY), ("mytool", ASK), ("cat /etc/passwd", DENY), ("cat .env", DENY)]
        {
            let argv: Vec<&str> = shell.iter().copied().chain([text]).collect();
            check(&argv.join(" "), &bench.argv(&argv), expected);
        }
    }
    for argv in [&["sh", "-c", "ls", "name", "arg"][..], &["sh", "-c", "echo 'a b'", "x"]] {
        check(&argv.join(" "), &bench.argv(argv), ALLOW);
    }
    for argv in [
        &["sh", "-c", "cat $1", "x", "/etc/passwd"][..],
        &["bash", "--rcfile", "x", "-c", "ls"],
        &["bash", "--init-file", "x", "-c", "ls"],
        &["bash", "-O", "extglob", "-c", "ls"],
        &["bash", "-o", "vi", "-c", "ls"],
        &["bash", "-kc", "ls"],
        &["bash", "--frob", "-c", "ls"],
        &["bash", "-ic", "ls"],
        &["sh", "-c", ""],
        &["sh", "-c", "# nothing"],
    ] {
        check(&argv.join(" "), &bench.argv(argv), ASK);
    }
    for argv in [
        &["sh", "-s", "x"][..],
        &["sh", "-"],
        &["fish", "-c", "ls; rm x"],
        &["csh", "-c", "ls `x`"],
        &["nu", "-c", "ls"],
        &["bash", "-i"],
    ] {
        check(&argv.join(" "), &bench.argv(argv), DENY);
    }
}

#[test]
fn b_c23_c6_what_is_wrapped_too_deep_is_not_allowed() {
    let bench = Bench::guarded();
    let deep = |count: usize, line: &str| format!("{}{line}", "env ".repeat(count));
    check("8 env", &bench.line(&deep(8, "ls")), ALLOW);
    check("8 env", &bench.line(&deep(8, "rm x")), DENY);
    for count in [9, 10, 100, 3_000] {
        check("deep", &bench.line(&deep(count, "ls")), ASK);
        check("deep", &bench.line(&deep(count, "rm x")), ASK);
    }
    let mut nested = "ls".to_owned();
    for _ in 0..10 {
        nested = format!("sh -c {}", quoted(&nested));
    }
    check("nested", &bench.script(&nested), ASK);
    let split = "-S ".repeat(50);
    check("split", &bench.argv(&["env", "-S", &split, "ls"]), ASK);
    check("command", &bench.script(&format!("{}ls", "command -p ".repeat(200))), ASK);
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[test]
fn long_commands_are_judged_quickly_and_never_allowed() {
    let bench = Bench::guarded();
    let many: Vec<&str> = std::iter::once("cat").chain(std::iter::repeat_n("a", 100_000)).collect();
    check("cat a …", &bench.argv(&many), ASK);
    let many: Vec<&str> = std::iter::once("rm").chain(std::iter::repeat_n("a", 100_000)).collect();
    check("rm a …", &bench.argv(&many), DENY);
    let big = "a".repeat(1 << 20);
    check("echo", &bench.argv(&["echo", &big]), ALLOW);
    check("big name", &bench.argv(&[&big]), ASK);
    let lines = "ls\n".repeat(30_000);
    check("ls …", &bench.script(&lines), ASK);
}
