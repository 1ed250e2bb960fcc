use super::*;

#[test]
fn s001_20_listed_commands_are_quiet() {
    Bench::guarded().lines(
        ALLOW,
        &[
            "ls",
            "ls -la",
            "ls -lah --color=auto src",
            "ls --sort=time -w 80 -I *.o src",
            "dir",
            "pwd",
            "pwd -P",
            "echo hello",
            "cat README.md",
            "cat -n src/lib.rs",
            "cat -",
            "type README.md",
            "head -20 src/lib.rs",
            "head -n 5 a b",
            "head -n5 a",
            "head --lines=5 a",
            "tail -n +10 a",
            "tail -c 100 a",
            "wc -l src/lib.rs",
            "grep -rn foo src",
            "grep -E a|b README.md",
            "grep --include=*.rs -r foo .",
            "grep -A3 -B 3 -m1 foo a",
            "grep -e foo -e bar a",
            "grep -5 foo a",
            "grep -- -x a",
            "rg foo",
            "rg -n -i --type rust foo src",
            "rg --files src",
            "rg -uuu --hidden -g !target foo",
            "true",
            "false",
            "test -f README.md",
            "[ -d src ]",
            "printf %s\\n hello",
            "ls inside",
            "cat ./src/../README.md",
            "ls /w/src",
        ],
    );
}

#[test]
fn s001_20_the_python_snippet_is_allowed_to_the_letter() {
    let bench = Bench::guarded();
    let snippet = "import os; print('\\n'.join(sorted(os.listdir('.'))))";
    check("python", &bench.argv(&["python", "-c", snippet]), ALLOW);
    for argv in [
        &["python", "-c", "import os; print('\\n'.join(sorted(os.listdir('..'))))"][..],
        &["python", "-c", &format!("{snippet} ")],
        &["python", "-c", snippet, "x"],
        &["python3", "-c", snippet],
        &["pythonX", "-c", snippet],
        &["/w/python", "-c", snippet],
        &["./python", "-c", snippet],
    ] {
        check(&argv.join(" "), &bench.argv(argv), ASK);
    }
}

#[test]
fn text_is_only_text() {
    let bench = Bench::guarded();
    for argv in [
        &["echo", "rm -rf /"][..],
        &["echo", "https://example.com", "-n", "--output=x"],
        &["printf", "%s", "curl http://x | sh"],
        &["grep", "-r", "https://example.com/a", "src"],
        &["grep", "-e", "http://x", "a"],
        &["rg", "http://x"],
        &["git", "log", "--grep=http://x"],
        &["git", "grep", "http://x"],
    ] {
        check(&argv.join(" "), &bench.argv(argv), ALLOW);
    }
    bench.scripts(ALLOW, &["echo 'rm -rf /'", "echo \"curl http://x | sh\"", "printf '%s\\n' 'sudo rm'"]);
    check("commit", &bench.argv(&["git", "commit", "-m", "see http://x"]), ASK);
}

#[test]
fn s001_21_the_deny_list() {
    let bench = Bench::guarded();
    bench.lines(
        DENY,
        &[
            "rm x",
            "rm -rf /",
            "/bin/rm x",
            "rmdir d",
            "unlink x",
            "shred x",
            "del x",
            "erase x",
            "curl example.com",
            "wget -q x",
            "ssh host ls",
            "scp a host:b",
            "sftp host",
            "nc -l 80",
            "nc.openbsd x",
            "ncat x",
            "netcat x",
            "telnet x",
            "socat - TCP:x",
            "dig x",
            "ping x",
            "rsync -a src host:dst",
            "bash",
            "sh",
            "zsh -i",
            "bash -s",
            "fish -c ls",
            "csh -c ls",
            "bash script.sh",
            "zsh ./script.zsh",
            "bash -c",
            "powershell -Command ls",
            "pwsh -c ls",
            "cmd /c dir",
            "cmd.exe /c dir",
            "find . -delete",
            "find . -name x -delete",
            "git clean -f",
            "git clean",
            "tar --delete -f a.tar x",
        ],
    );
    assert_eq!(rule(&bench.line("rm x")), "deny-list.deletion");
    assert_eq!(rule(&bench.line("curl x")), "offline.network-tool");
    assert_eq!(rule(&bench.line("bash")), "deny-list.shell");
}

#[test]
fn s001_9_the_flag_turns_the_deny_list_into_a_question() {
    let mut bench = Bench::guarded();
    bench.policy.net = NetMode::Full;
    bench.lines(DENY, &["curl x", "rm x", "bash"]);
    assert_eq!(rule(&bench.line("curl x")), "deny-list.network");
    bench.policy.danger.danger = true;
    bench.policy.danger.allow_denylisted_commands = true;
    bench.lines(ASK, &["curl x", "rm x", "bash", "find . -delete", "git clean -n"]);
    bench.lines(DENY, &["git push --force", "git reset --hard", "git clean -fd"]);
    bench.policy.net = NetMode::None;
    bench.lines(DENY, &["curl x"]);
}

#[test]
fn s001_22_offline_there_are_no_urls_and_no_remotes() {
    let mut bench = Bench::guarded();
    bench.lines(
        DENY,
        &[
            "git clone x",
            "git fetch",
            "git pull",
            "git push",
            "git submodule update",
            "git ls-remote",
            "git remote update",
            "git remote show origin",
            "git -C src fetch",
            "git-fetch",
            "git lfs pull",
            "git archive --remote=x HEAD",
            "pip install http://x/y.whl",
            "python x.py HTTPS://x",
            "npm install --registry=http://x",
            "cat http://x",
            "find . -name http://x",
        ],
    );
    assert_eq!(rule(&bench.line("npm i http://x")), "offline.url");
    bench.policy.net = NetMode::Full;
    bench.lines(ASK, &["git fetch", "git push", "git clone x", "npm install --registry=http://x"]);
}

#[test]
fn everything_else_is_asked_about() {
    Bench::guarded().lines(
        ASK,
        &[
            "cargo test",
            "npm test",
            "just build",
            "fest status",
            "make",
            "python script.py",
            "python -c 1",
            "python",
            "perl -e 1",
            "node -e 1",
            "awk 1 README.md",
            "sed -n 1p README.md",
            "sort README.md",
            "cut -f1 README.md",
            "uniq README.md",
            "diff a b",
            "file a",
            "stat a",
            "which ls",
            "find . -name x",
            "touch a",
            "mkdir d",
            "cp a b",
            "mv a b",
            "tee a",
            "vim a",
            "less a",
            "git commit -m x",
            "git add .",
            "git rm x",
            "git stash",
            "git checkout main",
            "git --version",
            "git",
            "git frobnicate",
            "egrep x a",
            "cd src",
            "eval ls",
            "no-such-program",
            "sleep 1",
            "bash --version",
        ],
    );
}

#[test]
fn options_that_act_turn_a_listed_command_into_a_question() {
    let bench = Bench::guarded();
    bench.lines(
        ASK,
        &[
            "ls --frobnicate",
            "ls -@",
            "ls --colo=always",
            "tail -f log",
            "tail -F log",
            "tail --follow=name log",
            "tail -20f log",
            "wc --files0-from=list",
            "rg --pre ./x foo",
            "rg --pre=./x foo",
            "rg --hostname-bin ./x foo",
            "rg -z foo",
            "rg --search-zip foo",
            "rg -nz foo",
            "rg --pr ./x foo",
            "grep --colr x a",
            "cat --frob a",
        ],
    );
    assert_eq!(rule(&bench.line("rg --pre ./x foo")), "option.rg");
    // A value is not an option, and what follows `--` is none either.
    bench.lines(ALLOW, &["grep -m 1 foo a", "rg -- --pre", "grep -e --pre a", "rg -e --pre src", "ls -- -@"]);
}

#[test]
fn s000_13_every_path_argument_is_judged() {
    let bench = Bench::guarded();
    bench.lines(
        DENY,
        &[
            "cat /etc/passwd",
            "cat ../x",
            "cat ../../etc/passwd",
            "cat src/../../x",
            "ls /",
            "ls ..",
            "ls /home/u/.ssh",
            "head -5 /etc/passwd",
            "grep -r x /etc",
            "grep -f /etc/passwd a",
            "grep --file=/etc/passwd a",
            "grep -rf /etc/passwd a",
            "grep --exclude-from /etc/x -r y",
            "rg -f /etc/passwd a",
            "rg foo /etc",
            "rg --ignore-file=/etc/x y",
            "cat outside/passwd",
            "ls outside",
            "cat .env",
            "cat sub/.env.local",
            "head .env",
            "grep x .env",
            "rg x id_rsa",
            "cat server.key",
            "test -f /etc/passwd",
            "[ -e /etc/passwd ]",
            "cp /etc/passwd x",
            "cp x /etc/passwd",
            "sort -o /etc/x a",
            "dd if=/etc/passwd",
            "dd of=/dev/sda if=a",
            "python /etc/x.py",
            "mytool --config=/etc/x",
            "mytool if=/etc/passwd",
            "mytool ../x",
            "mytool .env",
            "make -C / all",
            "tar -C / -tf a.tar",
            "find / -name x",
            "find .. -name x",
            "find . -newer /etc/passwd",
            "tee /etc/x",
            "vim /etc/passwd",
            "bash /etc/x.sh",
            "sed -n 1p /etc/passwd",
            "jq . /etc/x",
        ],
    );
    bench.lines(
        ALLOW,
        &[
            "cat /dev/null",
            "cat /dev/stdin",
            "cat .env.example",
            "ls .env",
            "grep -r x secrets",
            "cat /w/README.md",
            "ls .",
            "cat /dev/fd/3",
        ],
    );
    bench.lines(ASK, &["cat /tmp/x", "ls /tmp", "go test ./..."]);
    bench.lines(
        ASK,
        &["head -c 10 /dev/zero", "cat /dev/tty", "wc /dev/full", "cat /dev/fd/1", "grep x /dev/pts/0"],
    );
    bench.scripts(ASK, &["cat </dev/tty", "cat </dev/zero"]);
}

#[test]
fn b_c26_what_sed_does_depends_on_its_program() {
    let bench = allowing("sed");
    for argv in [
        &["sed", "-n", "1,20p", "a"][..],
        &["sed", "s/a/b/g", "a"],
        &["sed", "-e", "1d", "-E", "-e", "p", "a"],
    ] {
        check(&argv.join(" "), &bench.argv(argv), ALLOW);
    }
    for argv in [
        &["sed", "-i", "s/a/b/", "a"][..],
        &["sed", "-i.bak", "s/a/b/", "a"],
        &["sed", "-ni", "p", "a"],
        &["sed", "--in-place", "p", "a"],
        &["sed", "1e id", "a"],
        &["sed", "s/a/b/e", "a"],
        &["sed", "w out", "a"],
        &["sed", "r b", "a"],
        &["sed", "-f", "prog", "a"],
        &["sed", "-n", "-e", "p", "-e", "w x", "a"],
    ] {
        check(&argv.join(" "), &bench.argv(argv), ASK);
    }
}

#[test]
fn a_rule_about_a_program_does_not_cover_its_options_that_act() {
    for (program, covered, asked) in [
        (
            "sort",
            &["sort a", "sort -k2 -t, a", "sort -u"][..],
            &[
                "sort -o out a",
                "sort --output=out a",
                "sort --outp=b a",
                "sort --compress-program=./x a",
                "sort --frob",
                "sort -T d a",
                "sort -uo out a",
            ][..],
        ),
        ("uniq", &["uniq -c a"], &["uniq a out"]),
        (
            "tar",
            &["tar -tf a.tar", "tar -tzvf a.tar"],
            &[
                "tar -xf a.tar",
                "tar xf a.tar",
                "tar -tf a.tar --to-command=./x",
                "tar -cf a.tar b",
                "tar -tf a.tar -I ./x",
                "tar -tf a.tar --checkpoint-action=exec=x",
                "tar -tf a.tar --use-compress-program ./x",
            ],
        ),
        (
            "find",
            &["find . -name x", "find src -type f -print0"],
            &[
                "find . -exec ls ;",
                "find . -fprint out",
                "find . -fls out",
                "find . -ok ls ;",
                "find . -execdir ls ;",
                "find -files0-from x",
            ],
        ),
        ("man", &["man ls"], &["man -P ./x ls", "man --pager=./x ls", "man -H./x ls"]),
        ("file", &["file a"], &["file -f names", "file -z a", "file -C -m a"]),
        ("diff", &["diff -u a b"], &["diff -l a b"]),
        ("du", &["du -sh ."], &["du --files0-from=x"]),
        ("date", &["date -u +%F"], &["date -s now"]),
        ("make", &["make test"], &["make -f other", "make --eval=x", "make --file=x"]),
        ("cp", &["cp a b"], &[]),
        ("jq", &["jq .a b"], &["jq --slurpfile a b ."]),
    ] {
        let bench = allowing(program);
        bench.lines(ALLOW, covered);
        bench.lines(ASK, asked);
    }
}

#[test]
fn risks_are_told_apart() {
    use ringfence_types::Risk;
    let bench = Bench::guarded();
    for (line, risk) in [
        ("ls", Risk::Low),
        ("mytool", Risk::Medium),
        ("python x.py", Risk::High),
        ("npm install", Risk::High),
        ("docker ps", Risk::High),
        ("curl x", Risk::High),
        ("git rebase main", Risk::High),
        ("sudo ls", Risk::Critical),
        ("mkfs.ext4 x", Risk::Critical),
        ("find . -delete", Risk::Critical),
        ("git push -f", Risk::Critical),
    ] {
        assert_eq!(decisive(&bench.line(line)).risk, risk, "{line}");
    }
    assert_eq!(decisive(&bench.script("cat x | sh")).risk, Risk::Critical);
}

#[test]
fn a_command_says_what_it_is_made_of() {
    let parts = Bench::guarded().argv(&["timeout", "5", "cat", "-n", "a b"]);
    let commands: Vec<_> = parts.iter().filter(|part| part.aspect == PartKind::Command).collect();
    assert_eq!(commands.len(), 2);
    assert_eq!((commands[0].depth, commands[1].depth), (0, 1));
    assert_eq!(commands[1].argv, ["cat", "-n", "a b"].map(ByteString::from));
    assert_eq!(commands[1].program.as_deref(), Some(Path::new("/usr/bin/cat")));
    assert_eq!(commands[0].subject, "timeout 5 cat -n 'a b'");
    let read = parts.iter().find(|part| part.aspect == PartKind::Read).unwrap();
    assert_eq!((read.subject.as_str(), read.depth), ("/w/a b", 1));
}

pub(super) fn allowing(program: &str) -> Bench {
    super::rules::with_rules(&[(program, ALLOW)])
}
