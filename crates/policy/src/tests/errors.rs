use super::*;

/// The problems of an operator file, each in one line.
fn wrong(text: &str) -> Vec<String> {
    lines(&operator(text).expect_err(text))
}

#[test]
fn an_error_shows_the_place_and_the_fix() {
    let error = operator("schema = 1\n\n[limits]\nmemory = \"512m\"\nprocessses = 5\n").unwrap_err();
    let expected = "\
config.toml:5:1: unknown key `processses`
  |
5 | processses = 5
  | ^^^^^^^^^^
  = did you mean `processes`?";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn all_mistakes_are_shown_in_the_order_of_the_text() {
    let text = "\
profile = \"gaurded\"
net = 1
[limits]
memory = \"much\"
cpus = true
[[path]]
deny = []
[[path]]
allow = \"[a\"
[[host]]
allow = \"https://example.com\"
[[tool]]
deny = \"a*b\"
[nonsense]
";
    assert_eq!(
        wrong(text),
        [
            "1:11: unknown profile `gaurded` | did you mean `guarded`?",
            "2:7: `net` is a network mode, not an integer | write a network mode",
            "4:10: `much` is not a size | write for example 512m or 2g",
            "5:8: `cpus` is a number of cores such as 0.5, not a boolean | write a number of cores such as 0.5",
            "7:8: `deny` is an empty list, which could mean all or nothing | leave it out if nothing is meant, or name what is meant",
            "9:9: `[a` is not a pattern: unclosed character class; missing ']' | put a backslash before a character that stands for itself",
            "11:9: host `https://example.com` contains `/` | give a host name, not a URL",
            "13:8: tool `a*b` has a `*` that is not at its end | write a name, or its beginning and `*`",
            "14:2: unknown key `nonsense` | known: schema, extends, profile, minimum_profile, agents, workspaces, approvals, daemon, telemetry, commands, approval, workspace_access, net, unlisted_hosts, backend, container, required_controls, danger_required_controls, limits, leaks, root, path, command, tool, env, host",
        ]
    );
}

/// `(text, what the one problem says)`.
const MISTAKES: &[(&str, &str)] = &[
    // Not TOML, or not a text.
    ("profile = guarded", "1:11: not TOML: string values must be quoted, expected literal string"),
    ("a = 1\na = 2", "2:1: not TOML: duplicate key"),
    ("x = [[[[", "not TOML"),
    // Keys and words.
    ("schema = 2", "1:10: `2` is not a version of this format that is known | write 1"),
    (
        "commands = []",
        "1:12: `commands` is a command mode, not a list | write one of `contained` and `listed`; rules about commands are written as `[[command]]`",
    ),
    ("[[commands]]\nallow = \"x\"", "rules about commands are written as `[[command]]`"),
    ("workspace_access = \"nothing\"", "1:20: unknown access `nothing` | known: none, read, write"),
    ("net = \"\"", "1:7: `net` is empty | write a value, or leave the key out"),
    ("profile = \"a\\u0000b\"", "1:11: `a\\u{0}b` contains a character that cannot be seen"),
    ("[[command]]\ndeny = \"git \\u202e push\"", "contains a character that cannot be seen"),
    ("[agents.\"a\\u200bb\"]", "contains a character that cannot be seen"),
    ("required_controls = []", "leave it out to require every control, or name the controls"),
    (
        "required_controls = [\"fs-read\", \"fs-raed\"]",
        "1:33: unknown control `fs-raed` | did you mean `fs-read`?",
    ),
    ("limits = 5", "1:10: `limits` is a table, not an integer | write `[limits]` and its keys below it"),
    ("[path]\ndeny = \"x\"", "`path` is a list of entries, not a table | write `[[path]]` before each entry"),
    ("agents = 1", "`agents` holds tables by name, not an integer | write `[agents.NAME]`"),
    // Numbers.
    (
        "leaks.stored_secrets.output = \"hide\"",
        "unknown action `hide` | known: flag, redact, block, terminate",
    ),
    (
        "leaks.patterns.files = \"redact\"",
        "it is done as it was judged, or not | write `flag`, `block` or `terminate`",
    ),
    ("leaks.network = \"flag\"", "unknown key `network` | known: stored_secrets, patterns"),
    ("limits.memory = \"1m\"", "`1m` is too little memory to start anything | the least is 8m"),
    ("limits.memory = -1", "`-1` is not a size"),
    ("limits.memory = 0x10", "is a size such as \"512m\", not an integer"),
    ("limits.processes = 0", "`0` is not a number of processes | write a number from 1 to 4000000"),
    ("limits.processes = \"5\"", "is a number of processes, not a string"),
    (
        "limits.max_open_files = 99999999999999999999999",
        "is not a number of files | write a number from 16 to 1048576",
    ),
    ("limits.timeout = \"soon\"", "`soon` is not a time | write for example 30s, 5m or 7d"),
    ("limits.cpus = 1e300", "is not a number of cores"),
    ("limits.cpus = nan", "is not a number of cores"),
    // Profiles.
    (
        "profile = \"workspace\"\nminimum_profile = \"guarded\"",
        "profile `workspace` is below the `minimum_profile` of this file | write `guarded` or a stricter one",
    ),
    (
        "profile = \"guarded\"\ncommands = \"contained\"",
        "`commands = \"contained\"` is more than profile `guarded` gives",
    ),
    ("profile = \"strict\"\napproval = \"ask\"", "`approval = \"ask\"` is more than profile `strict` gives"),
    (
        "profile = \"strict\"\nworkspace_access = \"write\"",
        "`workspace_access = \"write\"` is more than profile `strict` gives",
    ),
    (
        "profile = \"strict\"\nlimits.memory = \"1g\"",
        "`limits.memory = 1g` is more than profile `strict` gives | leave it out, or choose another profile; `strict` gives 512m",
    ),
    ("profile = \"air-gapped\"\nnet = \"filtered\"", "is more than profile `air-gapped` gives"),
    // Roots.
    ("[[root]]\naccess = \"read\"", "1:1: a root without a `path`"),
    ("[[root]]\npath = \"/x\"", "a root without an `access`"),
    ("[[root]]\npath = \"../x\"\naccess = \"read\"", "root `../x` leads upwards"),
    ("[[root]]\npath = \"/\"\naccess = \"read\"", "root `/` is too wide to be one"),
    ("[[root]]\npath = \"~\"\naccess = \"read\"", "root `~` is too wide to be one"),
    ("[[root]]\npath = \"~bob/x\"\naccess = \"read\"", "`~bob/x` is not a path"),
    ("[[root]]\npath = \"/srv/*\"\naccess = \"read\"", "root `/srv/*` is a pattern"),
    (
        "[[root]]\npath = \"/x/\"\naccess = \"read\"\n[[root]]\npath = \"/x\"\naccess = \"write\"",
        "5:8: root `/x` is already at 2:8",
    ),
    // Rules about files.
    (
        "[[path]]\ndeny = \"a\"\nallow = \"b\"",
        "1:1: `deny` and `allow` in one rule about files | write one entry for each",
    ),
    (
        "[[path]]\ndeny = \"a\"\n[[path]]\nallow = \"a\"",
        "4:9: `a` is in `allow` here and in `deny` at 2:8 | keep one of them",
    ),
    ("[[path]]\ndeny = [\"a\", \"b/\", \"b\"]", "2:20: `b` is already in `deny` at 2:14"),
    ("[[path]]\ndeny = \"/etc/passwd\"", "`/etc/passwd` is absolute"),
    ("[[path]]\ndeny = \"a/../b\"", "leads upwards"),
    ("[[path]]\ndeny = \"a**b\"", "`**` stands alone between slashes"),
    (
        "[[path]]\ndeny = \"*.log\"\noperation = \"write\"",
        "`*.log` cannot be kept from being written: it may name files that do not exist yet | write a path from the root (`./.log`)",
    ),
    ("[[path]]\ndeny = \"Cargo.lock\"\noperation = \"write\"", "write a path from the root (`./Cargo.lock`)"),
    ("[[path]]\ndeny = \"a/*/b\"\noperation = \"write\"", "cannot be kept from being written"),
    ("[[path]]\ndeny = \"x\"\noperation = \"read\"", "unknown operation `read` | known: all, write"),
    (
        "[[path]]\nallow = \".git/hooks/**\"",
        "`.git/hooks/**` cannot be opened: it is protected, because git on the host runs the hooks in it",
    ),
    ("[[path]]\nallow = \".ringfence/policy.toml\"", "cannot be opened: it is protected"),
    (
        "[[path]]\nallow = \".envrc\"\noperation = \"write\"",
        "`.envrc` cannot be opened for writing by any rule",
    ),
    ("[[path]]\nallow = \"~/.ssh/id_rsa\"", "cannot be opened: `~/.ssh` is a sensitive root"),
    (
        "[[path]]\ndeny = \"*.bin\"\nmatch = \"a.txt\"",
        "3:9: the rule does not match its example `a.txt` | correct the rule, or the example",
    ),
    (
        "[[path]]\ndeny = \"*.bin\"\nnot_match = [\"a.txt\", \"b.bin\"]",
        "3:23: the rule matches its counterexample `b.bin`",
    ),
    (
        "[[path]]\ndeny = \"*.bin\"\nexcept = \"b.bin\"\nmatch = \"x/b.bin\"",
        "does not match its example `x/b.bin`",
    ),
    // Rules about commands.
    (
        "[[command]]\nreason = \"why\"",
        "1:1: a rule about commands that decides nothing | write one of `deny`, `ask`, `allow`, `program`, `manifest`",
    ),
    ("[[command]]\ndeny = \"git push $REMOTE\"", "a rule is literal, and this has"),
    ("[[command]]\ndeny = \"ls *\"", "a rule is literal, and this has a file name pattern in it"),
    ("[[command]]\ndeny = \"cat ~/x\"", "a rule is literal, and this has `~` in it"),
    ("[[command]]\ndeny = \"a; b\"", "these are 2 commands | write one entry for each"),
    ("[[command]]\ndeny = \"a | b\"", "these are 2 commands"),
    ("[[command]]\ndeny = \"a > b\"", "a rule is about a command, not about its redirections"),
    ("[[command]]\ndeny = \"A=1 b\"", "a rule is about a command, not about its variables"),
    ("[[command]]\ndeny = \"git 'x\"", "this is not one command"),
    ("[[command]]\ndeny = \"   \"", "there is no program in it"),
    ("[[command]]\ndeny = \"# git\"", "there is no program in it"),
    (
        "[[command]]\ndeny = [\"git\", \"status\"]",
        "2:8: this list could be one command or several | write \"git status\" for one command, [[\"git\"], [\"status\"]] for several",
    ),
    ("[[command]]\ndeny = []", "`deny` is an empty list"),
    ("[[command]]\ndeny = [[]]", "`deny` is an empty list"),
    ("[[command]]\ndeny = \"--force\"", "`--force` is not the name of a program"),
    ("[[command]]\ndeny = [[\"git push\", \"x\"]]", "`git push` is not the name of a program"),
    ("[[command]]\ndeny = 5", "`deny` is a command, not an integer"),
    (
        "[[command]]\nallow = [\"a b\", \"c d\"]\n[[command]]\ndeny = \"c  d\"",
        "4:8: `c d` is in `deny` here and in `allow` at 2:17",
    ),
    (
        "[[command]]\nallow = \"a\"\nallow_subcommands = [\"b\"]",
        "`allow_subcommands` means nothing in this entry | it belongs to an entry with `program`",
    ),
    ("[[command]]\nprogram = \"go\"\nexact = true", "`exact` means nothing in this entry"),
    (
        "[[command]]\nprogram = \"go\"\nallow_subcommands = []",
        "leave `allow_subcommands` out for every subcommand, or write `deny` for none",
    ),
    ("[[command]]\nprogram = \"go build\"", "`go build` is not the name of a program"),
    ("[[command]]\nprogram = \"go\"\n[[command]]\nprogram = \"go\"", "`go` is already in `program` at 2:11"),
    ("[[command]]\nallow = \"a\"\nwithin = \"/etc\"", "`/etc` is not a directory of the workspace"),
    ("[[command]]\nallow = \"a\"\nwithin = \"../x\"", "`../x` is not a directory of the workspace"),
    ("[[command]]\nmanifest = \"x.json\"", "`x.json` cannot be read: entity not found"),
    ("[[command]]\ndeny = \"git push\"\nmatch = \"git pull\"", "does not match its example `git pull`"),
    ("[[command]]\ndeny = \"git push\"\nmatch = \"git $X\"", "a rule is literal"),
    (
        "[[command]]\nprogram = \"git\"\ndeny_subcommands = \"push --force\"\nmatch = \"git push --force\"",
        "does not match its example `git push --force`",
    ),
    // Tools, variables, hosts.
    ("[[tool]]\nallow = \"*\"", "tool `*` means every tool | name them, or the beginning of their names"),
    ("[[tool]]\nallow = \"x\"\n[[tool]]\ndeny = \"x\"", "`x` is in `deny` here and in `allow` at 2:9"),
    ("[[env]]\ninherit = \"*\"", "`*` means every variable | name them, or how their names begin or end"),
    ("[[env]]\ninherit = \"A-B\"", "`A-B` is not a variable name"),
    ("[[env]]\nallow = \"LD_PRELOAD\"", "`LD_PRELOAD` cannot be opened"),
    ("[[env]]\ninherit = \"RINGFENCE_X\"", "`RINGFENCE_X` cannot be opened: it is reserved for Ringfence"),
    (
        "[[env]]\ninherit = \"*_TOKEN\"",
        "`*_TOKEN` would open variables that steer other programs or carry credentials | give their whole names",
    ),
    (
        "[[env]]\ninherit = \"FOO\"\n[[env]]\ndeny = \"foo\"",
        "`foo` is in `deny` here and in `inherit` at 2:11",
    ),
    ("[[host]]\nallow = \"127.1\"", "host `127.1` is an unusual spelling of `127.0.0.1` | write `127.0.0.1`"),
    ("[[host]]\nallow = \"169.254.169.254\"", "is the metadata service of a cloud"),
    (
        "[[host]]\nallow = \"x.example\"\nmethods = []",
        "leave `methods` out for every method, or write `deny` for none",
    ),
    (
        "[[host]]\nallow = \"x.example\"\nmethods = \"get\"",
        "methods are written in capitals, and `get` is not | write `GET`",
    ),
    ("[[host]]\nallow = \"x.example\"\npath = \"v1\"", "path `v1` does not begin with `/`"),
    ("[[host]]\nallow = \"x.example\"\nscheme = \"ftp\"", "unknown scheme `ftp`"),
    (
        "[[host]]\nallow = \"x.example\"\n[[host]]\ndeny = \"X.Example.\"",
        "4:8: `x.example` is in `deny` here and in `allow` at 2:9",
    ),
    ("net = \"full\"\n[[host]]\ndeny = \"x.example\"", "2:1: with `net = \"full\"` nothing holds this rule"),
    // Agents and workspaces.
    ("[agents.x]\nprofile = \"guarded\"", "unknown key `profile`"),
    ("[agents.x]\ndanger_required_controls = \"net\"", "cannot lower the floor"),
    ("[[agents.x.command]]\nallow = \"ls\"", "a part for an agent only narrows, and `allow` opens something"),
    (
        "[[agents.x.env]]\ninherit = \"FOO\"",
        "a part for an agent only narrows, and `inherit` opens something",
    ),
    ("[workspaces.web]\nnet = \"none\"", "`web` is not the absolute path of a workspace"),
    ("[workspaces.\"/a/../b\"]\nnet = \"none\"", "is not the absolute path of a workspace"),
    ("[workspaces.\"/a\"]\napproved_digests = \"123\"", "`123` is not a digest"),
    (
        "[workspaces.\"/a\"]\napproved_digests = []",
        "leave `approved_digests` out to approve nothing, or name the digests",
    ),
    ("extends = \"missing.toml\"", "1:11: `missing.toml` cannot be read"),
];

#[test]
fn c27_every_mistake_is_named_with_its_fix() {
    for (text, expected) in MISTAKES {
        let found = wrong(text);
        assert!(
            found.iter().any(|line| line.contains(expected)),
            "{text}\nexpected: {expected}\nfound: {found:#?}"
        );
        let error = operator(text).unwrap_err();
        let silent = error.problems().iter().find(|problem| problem.fix.is_none());
        assert_eq!(silent, None, "a problem without a fix");
        assert!(error.problems().iter().all(|problem| problem.excerpt.is_some()), "{error}");
        assert!(!error.to_string().contains('\u{1b}'), "no colour unless asked");
    }
}

#[test]
fn what_only_an_operator_says_is_an_error_elsewhere() {
    for (text, expected) in [
        ("profile = \"danger\"", "cannot choose profile `danger`"),
        ("backend = \"none\"", "cannot choose backend `none`"),
        ("backend = \"external\"", "cannot choose backend `external`"),
        ("danger_required_controls = [\"env\"]", "cannot lower the floor"),
        ("[workspaces.\"/a\"]\nnet = \"none\"", "says nothing about workspaces"),
        ("[agents.x]\nbackend = \"none\"", "cannot choose backend `none`"),
        ("[[agents.x.tool]]\nallow = \"exec\"", "does not choose the tools of an agent"),
    ] {
        for error in [workspace(text).unwrap_err(), session(text).unwrap_err()] {
            assert!(error.to_string().contains(expected), "{error}");
        }
    }
    for text in [
        "[[command]]\nallow = \"ls\"",
        "[[path]]\nallow = \"x\"",
        "[[tool]]\nallow = \"exec\"",
        "[[host]]\nallow = \"x.example\"",
        "[[env]]\ninherit = \"FOO\"",
        "[[command]]\nprogram = \"go\"",
    ] {
        let error = session(text).unwrap_err();
        assert!(error.to_string().contains("a session file only narrows"), "{error}");
        assert!(workspace(text).is_ok(), "{text}: there it is a request");
    }
}

#[test]
fn a_file_that_is_no_text_says_where() {
    let error = PolicyFile::parse(PolicyFileRole::Operator, Path::new("c.toml"), b"a = 1\n\nb = \"\xff\"")
        .unwrap_err();
    assert_eq!(error.to_string(), "c.toml:3:1: the file is not UTF-8\n  = save it as UTF-8");
    let error = PolicyFile::parse(PolicyFileRole::Operator, Path::new("c.toml"), &vec![b'#'; MAX_BYTES + 1])
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "c.toml:1:1: the file has 1048577 bytes; the most is 1048576\n  = split it, and name the parts in `extends`"
    );
    assert!(PolicyFile::parse(PolicyFileRole::Operator, Path::new("c.toml"), &vec![b'#'; MAX_BYTES]).is_ok());
}

#[test]
fn bombs_are_errors_soon() {
    let deep = 50_000;
    let bombs = [
        format!("{}=1", vec!["a"; deep].join(".")),
        format!("[{}]", vec!["a"; deep].join(".")),
        format!("a={}", "[".repeat(deep)),
        format!("a={}", "{a=".repeat(deep)),
        "=\n".repeat(deep),
        "a = 1\n".repeat(deep / 2),
        format!("{} = 1", "a".repeat(deep)),
        format!("profile = \"{}\"", "a".repeat(deep)),
        format!("[[command]]\ndeny = \"{}\"", "a$".repeat(deep)),
        format!("[[command]]\ndeny = \"{}\"", "$(".repeat(deep)),
        format!("[[path]]\ndeny = \"{}\"", "{a,".repeat(deep)),
        format!("[[path]]\ndeny = \"{}x\"", "*/".repeat(deep)),
        format!("[[path]]\ndeny = \"{}\"", "[a-z]*".repeat(deep / 2)),
        format!("[[host]]\ndeny = \"{}\"", "a.".repeat(deep)),
    ];
    for bomb in bombs {
        let start = std::time::Instant::now();
        let name: String = bomb.chars().take(40).collect();
        let error = operator(&bomb).err();
        let text = error.map(|error| error.to_string());
        assert!(
            text.as_ref().is_some_and(|text| text.len() < 100_000),
            "{name}: {:?}",
            text.map(|text| text.len())
        );
        assert!(start.elapsed().as_secs() < 5, "{name}: {:?}", start.elapsed());
    }
}

#[test]
fn many_mistakes_are_counted_not_shown() {
    let error = operator("x = 1\n").unwrap_err();
    assert!(error.problems().len() == 1 && !error.to_string().contains("more"), "{error}");
    let text: String = (0..1000).map(|at| format!("unknown{at} = 1\n")).collect();
    let error = operator(&text).unwrap_err();
    assert_eq!(error.problems().len(), 50);
    assert!(error.to_string().ends_with("and 950 more"));
}

#[test]
fn an_excerpt_never_reaches_a_terminal_raw() {
    let error = operator("# \u{1b}[2J\n").unwrap_err();
    assert!(!error.to_string().contains('\u{1b}'), "{error}");
    let error = operator("profile = \"x\" # \u{202e}gnp\n").unwrap_err();
    assert!(error.to_string().contains("\\u{202e}"), "{error}");
    let wide = format!("profile = \"x\" # {}", "y".repeat(10_000));
    assert!(operator(&wide).unwrap_err().to_string().len() < 500);
    let numbers: String = (0..2000).map(|at| format!("{at}, ")).collect();
    let error = operator(&format!("required_controls = [{numbers}]")).unwrap_err().to_string();
    assert!(error.lines().all(|line| line.chars().count() < 200), "{error}");
}
