use super::*;

#[test]
fn b_c27_c5_a_program_in_a_writable_place_is_not_what_it_is_called() {
    let bench = Bench::guarded();
    bench.lines(
        ASK,
        &[
            "./ls",
            "./git status",
            "/w/bin/git status",
            "/w/bin/ls",
            "/tmp/ws/git status",
            "/tmp/bash -c ls",
            "sub/../ls",
            "/proc/self/root/usr/bin/ls",
            "/proc/self/exe",
            "/dev/fd/3",
            "/home/u/bin/ls",
            "/usr/bin/../../w/ls",
        ],
    );
    for line in ["./ls", "/tmp/bash -c ls"] {
        assert_eq!(rule(&bench.line(line)), "guarded.untrusted-program", "{line}");
    }
    bench.lines(
        ALLOW,
        &["/usr/bin/ls", "/bin/ls", "/usr/bin/../bin/ls", "//usr//bin/ls", "/usr/local/bin/rg x"],
    );
    // Where `..` leads is a matter of links, which may be others when it runs.
    for line in [
        "/tmp/x/../../usr/bin/ls",
        "/proc/self/cwd/../../usr/bin/ls",
        "sub/../../usr/bin/ls",
        "/home/u/../../bin/ls",
    ] {
        assert_eq!(rule(&bench.line(line)), "guarded.untrusted-program", "{line}");
        assert_eq!(decision(&bench.line(line)), ASK, "{line}");
    }
    bench.scripts(ASK, &["cd inside && ../../usr/bin/ls"]);
    bench.lines(DENY, &["./ls /etc/passwd", "/usr/bin/rm x", "/usr/bin/../bin/rm x"]);
}

#[test]
fn a_read_only_workspace_is_no_place_for_programs_either() {
    let mut bench = Bench::guarded();
    bench.access = Access::Read;
    bench.lines(ASK, &["./ls", "/w/git status"]);
    bench.lines(ALLOW, &["ls", "cat a"]);
}

#[test]
fn a_program_from_path_that_lies_in_the_workspace_is_doubted() {
    let mut bench = Bench::guarded();
    bench.facts.programs = vec![("git", "/w/bin/git"), ("ls", "/tmp/ls")];
    bench.lines(ASK, &["git status", "ls"]);
}

#[test]
fn the_stricter_of_two_names_counts() {
    let mut bench = Bench::guarded();
    bench.facts.programs = vec![
        ("ls", "/usr/bin/rm"),
        ("cat", "/usr/bin/python3"),
        ("head", "/usr/bin/busybox"),
        ("tail", "/usr/bin/something"),
        ("wc", "/usr/bin/bash"),
        ("grep", "/usr/bin/coreutils"),
        ("vi", "/usr/bin/vim.basic"),
    ];
    bench.lines(DENY, &["ls a", "wc a"]);
    bench.lines(ASK, &["cat a", "tail a", "vi a"]);
    bench.lines(ALLOW, &["head a", "grep x a"]);
    bench.facts.links = vec![("/w/x", "/usr/bin/rm")];
    bench.lines(ASK, &["./x a"]);
}

#[test]
fn what_does_not_exist_fails_harmlessly() {
    let mut bench = Bench::guarded();
    bench.facts.programs = Vec::new();
    bench.lines(ALLOW, &["ls", "rg foo", "dir"]);
    bench.lines(DENY, &["rm x", "curl x"]);
    bench.lines(ASK, &["mytool"]);
}

#[test]
fn names_with_versions_and_suffixes_are_seen_through() {
    let bench = Bench::guarded();
    bench.lines(DENY, &["nc.traditional x", "bash-5.2", "rm.real x", "CMD.EXE /c dir"]);
    bench.lines(ASK, &["python3.11 -c 1", "perl5.36.0 -e 1", "lua5.4 -e 1", "ls9", "git2.50 status"]);
}

#[test]
fn deceptive_names_are_not_on_the_list() {
    let bench = Bench::guarded();
    bench.lines(ASK, &["LS", "Git status", "\u{0455}h -c ls", "l\u{200b}s", "git\u{200b} status"]);
    check("invalid UTF-8", &bench.call(vec![ByteString::from(&b"l\xffs"[..])], &[]), ASK);
    check("empty", &bench.argv(&["", "x"]), ASK);
}
