//! Input that is only there to break the judge: huge, deep, not text. It never panics, never runs out of stack or time,
//! and never says yes by accident.

#[cfg(test)]
mod machine;

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::mpsc;
    use std::time::Duration;

    use ringfence_authz::{Action, Policy, judge};
    use ringfence_types::{
        ByteString, Call, Decision, ExecCall, FileCall, NetMode, Profile, Root, StandardInput,
    };

    use crate::machine::{HOME, Machine, WORKSPACE};

    const MEGABYTE: usize = 1 << 20;
    const DEEP: usize = 10_000;
    const MANY: usize = 100_000;

    /// A hang is a failure; how long it takes is for the benchmark to say. Code that is not optimised is slow, not hanging.
    const PATIENCE: Duration = Duration::from_secs(if cfg!(debug_assertions) { 60 } else { 5 });
    const SMALL_STACK: usize = 512 * 1024;

    #[test]
    fn huge_commands_hide_nothing() {
        let padding = "a".repeat(MEGABYTE);
        let not_allowed = [
            format!("echo {padding}; rm x"),
            format!("echo '{padding}'\nrm x"),
            format!("echo \"{padding}\" && rm x"),
            format!("{padding}; ls"),
            format!("{padding}=1 rm x"),
            format!("# {padding}\nrm x"),
            format!("cat <<EOF\n{padding}\nEOF\nrm x"),
            format!("cat <<{padding}\nfoo\n{padding}\nrm x"),
            format!("echo {padding}$(rm x)"),
            format!("ls > {padding}"),
            format!("git -c {padding} status"),
            format!("cat {}etc/passwd", "../".repeat(MEGABYTE / 3)),
            format!("cat {}.env", "./".repeat(MEGABYTE / 2)),
            format!("ls{};rm x", " ".repeat(MEGABYTE)),
            format!("ls{}rm x", "\n".repeat(MEGABYTE)),
            format!("{}rm x", "ls;".repeat(MEGABYTE / 3)),
            format!("{}rm x", "ls\n".repeat(MEGABYTE / 3)),
            format!("ls{}|rm x", "|cat".repeat(MEGABYTE / 4)),
            format!("ls{}&& rm x", "&& ls ".repeat(MEGABYTE / 6)),
            format!("{}rm x", "A=1 ".repeat(MEGABYTE / 4)),
            format!("rm x{}", " ".repeat(MEGABYTE)),
            format!("ls{}; rm x", " 2>&1".repeat(MEGABYTE / 5)),
            format!("ls{} > x", " >/dev/null".repeat(MEGABYTE / 11)),
            format!("cat{}; rm x", " <<A".repeat(1000)),
            format!("echo {};rm x", "''".repeat(MEGABYTE / 2)),
            format!("{}rm x", "\\\n".repeat(MEGABYTE / 2)),
            format!("echo {}", "$(rm x)".repeat(MEGABYTE / 7)),
            "\\".repeat(MEGABYTE),
            "'".repeat(MEGABYTE | 1),
            "\"".repeat(MEGABYTE | 1),
            "`".repeat(MEGABYTE | 1),
            "$".repeat(MEGABYTE),
            "&".repeat(MEGABYTE),
            ">".repeat(MEGABYTE),
            "<".repeat(MEGABYTE),
            "!".repeat(MEGABYTE),
            "=".repeat(MEGABYTE),
            padding,
        ];
        not_allowed.iter().for_each(|text| refused(text.as_bytes()));
    }

    #[test]
    fn no_bracket_is_followed_without_a_bound() {
        let brackets = [
            ("(", ")"),
            ("{ ", "; }"),
            ("$(", ")"),
            ("\"$(", ")\""),
            ("echo $(", ")"),
            ("echo \"$(", ")\""),
            ("echo ${x:-", "}"),
            ("echo $((", "))"),
            ("echo ${x:-$(", ")}"),
            ("<(", ")"),
            ("cat <(", ")"),
            ("if ", "; then :; fi"),
            ("if :; then ", "; fi"),
            ("while ", "; do :; done"),
            ("until :; do ", "; done"),
            ("for i in a; do ", "; done"),
            ("case x in x) ", ";; esac"),
            ("f() { ", "; }"),
            ("f() ( ", ")"),
            ("! ", ""),
            ("time ", ""),
            ("( ( ", ") )"),
            ("[[ ( ", " ) ]]"),
            ("((", "))"),
            ("echo `", "`"),
            ("A=$(", ")"),
            ("A=(", ")"),
            ("ls | (", ")"),
            ("ls && { ", "; }"),
            ("cat <<EOF\n$(", ")\nEOF\n"),
            ("trap '", "' EXIT"),
            ("coproc ", ""),
            ("function f { ", "; }"),
        ];
        for (open, close) in brackets {
            refused_at_depth(open, "rm x", close);
            refused(open.repeat(DEEP).as_bytes());
            // Even what is listed is out of sight so far down; what does not nest may be seen.
            if !close.is_empty() {
                refused(close.repeat(DEEP).as_bytes());
                refused(format!("{}ls", open.repeat(DEEP)).as_bytes());
            }
            if !close.is_empty() && close != "' EXIT" {
                refused_at_depth(open, "ls", close);
            }
        }
    }

    #[test]
    fn no_wrapper_is_followed_without_a_bound() {
        let wrappers = [
            "env ",
            "env -i ",
            "env A=1 ",
            "nice ",
            "nice -n 5 ",
            "nohup ",
            "timeout 5 ",
            "stdbuf -oL ",
            "setsid ",
            "flock f ",
            "xargs ",
            "find . -exec ",
            "sudo ",
            "busybox ",
            "command ",
            "exec ",
            "builtin ",
            "eval ",
            "time ",
            "! ",
            "sh -c ",
            "bash -c ",
            "env sh -c ",
            "env nice timeout 5 ",
            "su -c ",
            "watch ",
            "script -c ",
            "chroot . ",
            "unshare ",
            "env -S ",
            "git -C sub -c a.b=c ",
        ];
        for wrapper in wrappers {
            refused_at_depth(wrapper, "rm x", "");
            if !matches!(wrapper, "time " | "! " | "sh -c " | "bash -c " | "env sh -c ") {
                refused_at_depth(wrapper, "ls", "");
            }
        }
        refused_argv(std::iter::repeat_n("env", MANY).chain(["rm", "x"]));
        refused_argv(std::iter::repeat_n("env", MANY).chain(["ls"]));
        refused_argv(std::iter::repeat_n("env", MANY));
        refused_argv(std::iter::repeat_n("xargs", MANY).chain(["ls"]));
        refused_argv(std::iter::repeat_n("timeout", MANY).chain(["5", "ls"]));
        refused_argv(["sh", "-c"].into_iter().cycle().take(MANY));
    }

    /// Quotes grow with the depth, so this goes as deep as a megabyte does.
    #[test]
    fn shells_in_shells_are_found_or_refused() {
        for innermost in ["rm x", "cat .env", "ls; rm x", "curl x"] {
            let mut text = innermost.to_owned();
            while text.len() < MEGABYTE / 8 {
                text = format!("sh -c '{}'", text.replace('\'', "'\\''"));
                refused(text.as_bytes());
            }
            let mut text = innermost.to_owned();
            while text.len() < MEGABYTE / 8 {
                text = format!("bash -c \"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
                refused(text.as_bytes());
            }
        }
    }

    #[test]
    fn many_arguments_hide_nothing() {
        let many = |word: &'static str| std::iter::repeat_n(word, MANY);
        refused_argv(["ls"].into_iter().chain(many("a")).chain([".."]));
        refused_argv(["cat"].into_iter().chain(many("README.md")).chain([".env"]));
        refused_argv(["cat", ".env"].into_iter().chain(many("README.md")));
        refused_argv(["git", "log"].into_iter().chain(many("-p")).chain(["--output=x"]));
        refused_argv(["git"].into_iter().chain(many("--no-pager")).chain(["push", "--force"]));
        refused_argv(["git"].into_iter().chain(many("-C")).chain(["status"]));
        refused_argv(["git", "-C"].into_iter().chain(many("..")));
        refused_argv(["git", "push"].into_iter().chain(many("-q")).chain(["--force"]));
        refused_argv(["git", "clean"].into_iter().chain(many("-f")).chain(["-d"]));
        refused_argv(["rg", "x"].into_iter().chain(many("-n")).chain(["--pre=./evil.sh"]));
        refused_argv(["grep"].into_iter().chain(many("-e")).chain(["x", "/etc/passwd"]));
        refused_argv(["env"].into_iter().chain(many("A=1")).chain(["rm", "x"]));
        refused_argv(["xargs"].into_iter().chain(many("-r")).chain(["rm"]));
        refused_argv(["find", "."].into_iter().chain(many("-print")).chain(["-delete"]));
        refused_argv(["sh", "-c", "rm x"].into_iter().chain(many("a")));
        refused_argv(["rm"].into_iter().chain(many("a")));
        refused_argv(many(""));
        refused_argv(many("a"));
        refused_argv(many("--"));
        refused_argv(many("-"));
    }

    #[test]
    fn bytes_that_are_no_text_are_no_listed_command() {
        for text in [
            &b"\xff"[..],
            b"ls\xff",
            b"\xffls",
            b"l\xc3s",
            b"git\xff status",
            b"git status\xff",
            b"ls\x00",
            b"\x00",
            b"ls\x00;rm x",
            b"rm\xff x; rm x",
            b"\xff\xfe\x00l\x00s",
            b"\xef\xbb\xbfls",
            b"l\xc0\xb3s",
            b"\xe2\x80\x8bls",
            b"ls\xe2\x80\xa8rm x",
            b"\xed\xa0\x80ls",
            b"\xf4\x90\x80\x80",
            b"ls \xff; rm x",
            b"echo '\xff'; rm x",
            b"echo \"\xff\"; rm x",
            b"ls # \xff\nrm x",
            b"cat .e\xffnv; cat .env",
            b"cat <<\xff\nfoo\n\xff\nrm x",
            b"\x80\x81=1 rm x",
            b"ls > \xff",
            b"git\xc2\xa0status",
        ] {
            refused(text);
            refused_bytes(vec![ByteString::from(text)]);
        }
        refused_bytes(vec![ByteString::from("ls"), ByteString::from(&b"a\x00b"[..])]);
        refused_bytes(vec![ByteString::from("cat"), ByteString::from(&b"../\xff"[..])]);
        refused_bytes(vec![ByteString::from("git"), ByteString::from(&b"stat\xffus"[..])]);
        refused_bytes(vec![ByteString::from("git"), ByteString::from(&b"--output=\xff"[..])]);
    }

    #[test]
    fn bad_paths_are_refused() {
        let deep = "a/".repeat(MEGABYTE / 2);
        let up = "../".repeat(MEGABYTE / 3);
        for path in [
            ByteString::from(format!("{up}etc/passwd").as_str()),
            ByteString::from(format!("{deep}{up}x").as_str()),
            ByteString::from(format!("{}.env", "./".repeat(MEGABYTE / 2)).as_str()),
            ByteString::from(format!("{deep}.env").as_str()),
            ByteString::from("/".repeat(MEGABYTE).as_str()),
            ByteString::from(&b"a\x00b"[..]),
            ByteString::from(&b"\x00"[..]),
            ByteString::from(&b"../\xff"[..]),
            ByteString::from(""),
        ] {
            let write = FileCall::Write { path: path.clone(), sha256: String::new(), bytes: 0 };
            for call in [FileCall::Read { path: path.clone() }, FileCall::List { path: path.clone() }, write]
            {
                // A directory may have any name: listing what would be a secret file is not reading it.
                let listed = matches!(call, FileCall::List { .. }) && path.display().ends_with(".env");
                let decision = decision(&shown(path.as_slice()), Call::File(call));
                assert!(listed || decision != Decision::Allow, "{}", shown(path.as_slice()));
            }
        }
    }

    fn refused_at_depth(open: &str, inside: &str, close: &str) {
        refused(format!("{}{inside}{}", open.repeat(DEEP), close.repeat(DEEP)).as_bytes());
    }

    fn refused(text: &[u8]) {
        let argv = vec![ByteString::from("sh"), ByteString::from("-c"), ByteString::from(text)];
        let name = shown(text);
        assert_ne!(decision(&name, exec(argv)), Decision::Allow, "{name}");
    }

    fn refused_argv<'a>(argv: impl IntoIterator<Item = &'a str>) {
        refused_bytes(argv.into_iter().map(ByteString::from).collect());
    }

    fn refused_bytes(argv: Vec<ByteString>) {
        let name = format!("{:?}", &argv[..argv.len().min(4)]);
        assert_ne!(decision(&name, exec(argv)), Decision::Allow, "{name}");
    }

    fn exec(argv: Vec<ByteString>) -> Call {
        Call::Exec(ExecCall {
            argv,
            cwd: ByteString::from(WORKSPACE),
            env: Vec::new(),
            ceiling: None,
            net: NetMode::None,
            stdin: StandardInput::None,
        })
    }

    fn decision(what: &str, call: Call) -> Decision {
        attended(what, move || {
            let mut policy = Policy::new(Profile::Guarded);
            policy.home = Some(ByteString::from(Path::new(HOME)));
            let roots = vec![Root { path: ByteString::from(WORKSPACE), access: policy.access }];
            let judged = judge(&policy, &Action::new(call, roots), &Machine);
            judged.map_or(Decision::Deny, |judgement| judgement.decision())
        })
    }

    /// On a small stack, and not for ever.
    fn attended<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
        let (done, answer) = mpsc::channel();
        let worker = std::thread::Builder::new().stack_size(SMALL_STACK);
        let worker = worker.spawn(move || {
            let before = spent();
            let answer = work();
            done.send((answer, spent() - before)).unwrap();
        });
        let worker = worker.unwrap();
        let (answer, taken) = match answer.recv_timeout(PATIENCE) {
            Ok(answer) => answer,
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("{what} takes more than {PATIENCE:?}"),
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                std::panic::resume_unwind(worker.join().unwrap_err());
            }
        };
        if taken > Duration::from_millis(50) {
            println!("{what}: {taken:?}");
        }
        answer
    }

    /// Processor time of this thread: other programs on the machine do not count.
    fn spent() -> Duration {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
        Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
    }

    fn shown(text: &[u8]) -> String {
        let start = &text[..text.len().min(60)];
        let end = &text[text.len().saturating_sub(30)..];
        format!(
            "{} … {} ({} bytes)",
            ByteString::from(start).display(),
            ByteString::from(end).display(),
            text.len()
        )
    }
}
