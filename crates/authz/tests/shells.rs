//! The shells themselves as judges of the judge: texts are run by bash, dash and zsh among programs that only write down
//! how they were called. What a shell ran must have been seen.
//!
//! INVARIANT: no text here names an absolute path or goes up further than the directory it runs in lies deep, no name is
//! found outside the directory of stubs, and every loop and function ends.

#[cfg(test)]
mod machine;

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::ffi::OsStr;
    use std::fs;
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::{Path, PathBuf};
    use std::process::{Child, Command, Stdio};
    use std::time::{Duration, Instant};

    use proptest::prelude::*;
    use ringfence_authz::{Action, Policy, judge};
    use ringfence_shell::{Script, ShellWord, SimpleCommand, parse};
    use ringfence_types::{ByteString, Call, Decision, ExecCall, NetMode, Profile, Root, StandardInput};
    use tempfile::TempDir;

    use crate::machine::{HOME, Machine, WORKSPACE};

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 100, max_global_rejects: 1_000_000, failure_persistence: None, ..ProptestConfig::default()
        })]

        /// Either the parser says that it does not know, or it saw every command that any shell ran.
        #[test]
        fn no_shell_runs_a_command_that_the_parser_did_not_see(text in syntax()) {
            let script = parse(text.as_bytes());
            prop_assume!(script.gaps.is_empty());
            for (shell, run) in everywhere(&text) {
                for call in &run.calls {
                    prop_assert!(saw(&script, call), "{shell} ran {call:?} of {text:?}\n{script:#?}");
                }
            }
        }

        /// What is allowed runs only what is allowed by itself, where it runs, and changes no file.
        #[test]
        fn what_is_allowed_runs_only_what_is_allowed(text in commands()) {
            prop_assume!(decision(&["sh", "-c", &text].map(ByteString::from), Path::new("")) == Decision::Allow);
            for (shell, run) in everywhere(&text) {
                for call in &run.calls {
                    let decision = decision(&call.argv, &call.cwd);
                    prop_assert_eq!(decision, Decision::Allow, "{} ran {:?} of {:?}", shell, call, text);
                }
                prop_assert!(run.untouched, "{} changed a file with {:?}", shell, text);
            }
        }
    }

    #[test]
    fn the_oracle_sees_what_runs() {
        let (_, run) = everywhere("rm 'a b'; cd sub && ls > f | cat").swap_remove(0);
        let seen: Vec<String> = run.calls.iter().map(|call| format!("{call:?}")).collect();
        let call = |cwd: &str, argv: &[&str]| {
            format!(
                "{:?}",
                Ran {
                    cwd: PathBuf::from(cwd),
                    argv: argv.iter().map(|word| ByteString::from(*word)).collect()
                }
            )
        };
        assert!(seen.contains(&call("", &["rm", "a b"])), "{seen:?}");
        assert!(seen.contains(&call("sub", &["ls"])) && seen.contains(&call("sub", &["cat"])), "{seen:?}");
        assert!(!run.untouched);
        assert!(everywhere("ls").swap_remove(0).1.untouched);
    }

    const SYNTAX: &[&str] = &[
        "ls",
        "rm",
        "cat f",
        "rm a",
        "ls b",
        " ",
        " ",
        " ",
        ";",
        "\n",
        "&",
        "|",
        "&&",
        "||",
        "|&",
        "!",
        "(",
        ")",
        "{ ",
        "; }",
        "$(",
        ")",
        "`",
        "`",
        "\"",
        "\"",
        "'",
        "'",
        "$'",
        "\\",
        "\\\n",
        "#",
        " # ",
        "<<A\n",
        "\nA\n",
        "<<'A'\n",
        "<<-A\n",
        "\tA\n",
        "<<<",
        ">f",
        "2>&1",
        "&>f",
        ">&f",
        "<f",
        ">>f",
        "<(",
        ">(",
        "if ",
        "; then ",
        "; else ",
        "; fi",
        "for i in ",
        "; do ",
        "; done",
        "case a in ",
        "a) ",
        ";; ",
        " esac",
        "((",
        "))",
        "[[ ",
        " ]]",
        "$((",
        "${x:-",
        "}",
        "$x",
        "$@",
        "a=",
        "a=1 ",
        "a=(",
        "{a,b}",
        "*",
        "?",
        "~",
        "time ",
        "rm() { ls c; }",
        "f() { rm d; }; f",
        "while false; do ",
        "until true; do ",
        "\r",
        "\t",
        "$\"",
        "=ls",
        "[a]",
        "a[",
        "]",
        "-n",
        "%",
        "^",
        "\u{a0}",
        "é",
    ];

    /// Listed ones, and a few that are not.
    const COMMANDS: &[&str] = &[
        "ls",
        "ls -la sub",
        "cat README.md",
        "cat f",
        "cat ../f",
        "cat ../../f",
        "cat sub/../f",
        "cd sub",
        "cd sub/deep",
        "cd ..",
        "cd nosuch",
        "cd sub/nosuch",
        "pwd",
        "echo hi",
        "echo 'rm x'",
        "echo \"rm x\"",
        "git status",
        "git -C sub log",
        "head -1 f",
        "rg a sub",
        "test -f f",
        "[ -f nosuch ]",
        "true",
        "false",
        ":",
        "env ls",
        "command ls",
        "printf a",
        "cat <<A\nrm x\nA\n",
        "cat <<'A'\n$(rm x)\nA\n",
        "ls # rm x\n",
        "ls > /dev/null",
        "ls 2>&1",
        "cat < f",
        "cat < nosuch",
        "sh -c 'ls'",
        "eval ls",
        "exec ls",
        "A=1",
        "rm x",
        "cat .env",
        "ls > f",
        "export A=1",
        "alias ls=rm",
        "ls() { rm x; }",
        "cd() { :; }",
        "trap 'rm x' EXIT",
        "set -e",
    ];

    const SEPARATORS: &[&str] = &["; ", "\n", " && ", " || ", " | ", " & ", ";", "&&", "|", " |& ", " &! "];

    /// What one character can change.
    const ODD: &[&str] = &[
        "'", "\"", "\\", "`", "$", "(", ")", "{", "}", "#", ";", "&", "|", "\n", " ", "<", ">", "!", "*",
        "=", "~", "$(", "$'", "\\\n", "&>", ">&", "<<A\n", "\nA\n", "((", "))", "[[", "]]", "time ", "-",
        "--", "\r", "\t", ",", "%", "^", "[", "]",
    ];

    fn syntax() -> impl Strategy<Value = String> {
        texts(SYNTAX)
    }

    /// Texts that mean something, with a few odd characters put in.
    fn commands() -> impl Strategy<Value = String> {
        let command = prop::sample::select(COMMANDS).prop_map(str::to_owned);
        let nested = command.prop_recursive(3, 12, 3, |inner| {
            let list = (inner.clone(), prop::sample::select(SEPARATORS), inner.clone());
            let choice = (inner.clone(), inner.clone());
            prop_oneof![
                4 => list.prop_map(|(one, separator, other)| format!("{one}{separator}{other}")),
                1 => inner.clone().prop_map(|inside| format!("({inside})")),
                1 => inner.clone().prop_map(|inside| format!("{{ {inside}; }}")),
                1 => inner.clone().prop_map(|inside| format!("! {inside}")),
                1 => inner.clone().prop_map(|inside| format!("echo '{inside}'")),
                1 => choice.clone().prop_map(|(one, other)| format!("if {one}; then {other}; fi")),
                1 => choice.prop_map(|(one, other)| format!("case a in a) {one};; *) {other};; esac")),
                1 => inner.prop_map(|inside| format!("for i in a b; do {inside}; done")),
            ]
        });
        let odd = prop::collection::vec((any::<prop::sample::Index>(), prop::sample::select(ODD)), 0..3);
        (nested, odd).prop_map(|(mut text, odd)| {
            for (place, what) in odd {
                let places: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
                text.insert_str(places[place.index(places.len())], what);
            }
            text
        })
    }

    fn texts(alphabet: &'static [&'static str]) -> impl Strategy<Value = String> {
        prop::collection::vec(prop::sample::select(alphabet), 1..14).prop_map(|tokens| tokens.concat())
    }

    fn saw(script: &Script, call: &Ran) -> bool {
        script.commands.iter().any(|simple| covers(simple, &call.argv))
    }

    fn covers(simple: &SimpleCommand, argv: &[ByteString]) -> bool {
        words_cover(&simple.words, argv)
    }

    /// A literal word is one argument; any other may become any number of them.
    fn words_cover(words: &[ShellWord], argv: &[ByteString]) -> bool {
        match words.split_first() {
            None => argv.is_empty(),
            Some((ShellWord::Literal(bytes), words)) => argv
                .split_first()
                .is_some_and(|(first, rest)| first.as_slice() == bytes && words_cover(words, rest)),
            Some((_, words)) => (0..=argv.len()).any(|taken| words_cover(words, &argv[taken..])),
        }
    }

    fn decision(argv: &[ByteString], cwd: &Path) -> Decision {
        let mut policy = Policy::new(Profile::Guarded);
        policy.home = Some(ByteString::from(HOME));
        let roots = vec![Root { path: ByteString::from(WORKSPACE), access: policy.access }];
        let cwd = ByteString::from(Path::new(WORKSPACE).join(cwd));
        let call = Call::Exec(ExecCall {
            argv: argv.to_vec(),
            cwd,
            env: Vec::new(),
            ceiling: None,
            net: NetMode::None,
            stdin: StandardInput::None,
        });
        judge(&policy, &Action::new(call, roots), &Machine)
            .map_or(Decision::Deny, |judgement| judgement.decision())
    }

    /// One call of a stub: where, relative to the workspace, and with what.
    #[derive(Debug)]
    struct Ran {
        cwd: PathBuf,
        argv: Vec<ByteString>,
    }

    struct Run {
        calls: Vec<Ran>,
        untouched: bool,
    }

    fn everywhere(text: &str) -> Vec<(&'static str, Run)> {
        thread_local! {
            static STAGE: RefCell<Option<Stage>> = const { RefCell::new(None) };
        }
        let shells = [("bash", "--norc"), ("bash", "--posix"), ("dash", "+e"), ("zsh", "-f")];
        let installed = shells.into_iter().filter(|(shell, _)| Path::new("/bin").join(shell).exists());
        let on_stage = |(shell, option)| {
            STAGE.with_borrow_mut(|stage| {
                let mut run = stage.get_or_insert_with(Stage::new).run(shell, option, text);
                // It may have been what an earlier text left in the background: a new stage knows.
                if !run.untouched {
                    run = stage.insert(Stage::new()).run(shell, option, text);
                    *stage = None;
                }
                (shell, run)
            })
        };
        let runs: Vec<_> = installed.map(on_stage).collect();
        assert!(!runs.is_empty(), "there is no shell to ask");
        runs
    }

    /// Where texts are run. As good as new until one changes it.
    struct Stage {
        directory: TempDir,
        stubs: PathBuf,
        workspace: PathBuf,
        before: Vec<String>,
        /// One log per run: what was started in the background may write after its text has ended.
        logs: TempDir,
        runs: Cell<usize>,
    }

    impl Stage {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let stubs = directory.path().join("stubs");
            let workspace = directory.path().join(DEEP.repeat(30)).join("w");
            set_up(&stubs, &workspace);
            let before = snapshot(directory.path());
            Self {
                directory,
                stubs,
                workspace,
                before,
                logs: tempfile::tempdir().unwrap(),
                runs: Cell::new(0),
            }
        }

        fn run(&self, shell: &str, option: &str, text: &str) -> Run {
            self.runs.update(|runs| runs + 1);
            let log = self.logs.path().join(self.runs.get().to_string());
            let mut command = Command::new(Path::new("/bin").join(shell));
            command.args([option, "-c"]).arg(text).current_dir(&self.workspace).env_clear();
            command.env("PATH", &self.stubs).env("LOG", &log).env("HOME", self.directory.path());
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            attend(command.spawn().unwrap());
            let calls = read_log(&log, &self.workspace);
            Run { calls, untouched: snapshot(self.directory.path()) == self.before }
        }
    }

    const DEEP: &str = "d/";
    const STUBS: &[&str] = &["ls", "rm", "cat", "git", "head", "rg", "env", "sh", "f"];

    fn set_up(stubs: &Path, workspace: &Path) {
        fs::create_dir_all(stubs).unwrap();
        for name in STUBS {
            let stub = stubs.join(name);
            fs::write(
                &stub,
                "#!/bin/dash\nprintf '%s\\0' \"$PWD\" \"${0##*/}\" \"$@\" '<end>' >> \"$LOG\"\n",
            )
            .unwrap();
            fs::set_permissions(&stub, fs::Permissions::from_mode(0o755)).unwrap();
        }
        fs::create_dir_all(workspace.join("sub/deep")).unwrap();
        fs::write(workspace.join("f"), "f").unwrap();
        fs::write(workspace.join("README.md"), "r").unwrap();
        fs::write(workspace.join(".env"), "e").unwrap();
    }

    /// Names, lengths and times of everything on the stage.
    fn snapshot(directory: &Path) -> Vec<String> {
        let mut found = Vec::new();
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            if metadata.is_dir() {
                found.push(path.display().to_string());
                found.extend(snapshot(&path));
            } else {
                found.push(format!(
                    "{} {} {:?}",
                    path.display(),
                    metadata.len(),
                    metadata.modified().unwrap()
                ));
            }
        }
        found.sort();
        found
    }

    /// Nothing here takes long. What was started in the background gets a moment to write itself down.
    fn attend(mut child: Child) {
        let deadline = Instant::now() + Duration::from_secs(5);
        while child.try_wait().unwrap().is_none() {
            if Instant::now() > deadline {
                child.kill().unwrap();
                child.wait().unwrap();
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(5));
    }

    fn read_log(log: &Path, workspace: &Path) -> Vec<Ran> {
        let bytes = fs::read(log).unwrap_or_default();
        let fields: Vec<&[u8]> = bytes.split(|byte| *byte == 0).collect();
        let calls = fields.split(|field| *field == b"<end>").filter(|call| call.len() > 1);
        calls
            .map(|call| {
                let cwd = Path::new(OsStr::from_bytes(call[0]));
                let cwd = cwd.strip_prefix(workspace).map_or(PathBuf::from(".."), Path::to_owned);
                Ran { cwd, argv: call[1..].iter().map(|word| ByteString::from(*word)).collect() }
            })
            .collect()
    }
}
