use super::*;

#[test]
fn every_key_is_read() {
    let file = operator(EVERYTHING).unwrap_or_else(|error| panic!("{error}"));
    let flags = StartupFlags { agent: Some("claude-code".to_owned()), ..flags() };
    let effective = merged(&flags, &[file]).unwrap_or_else(|error| panic!("{error}"));
    let policy = &effective.policy;
    assert_eq!(
        (policy.profile, policy.commands, policy.approval),
        (Profile::Guarded, CommandMode::Listed, ApprovalMode::Ask)
    );
    assert_eq!(
        (policy.access, policy.net, policy.backend),
        (Access::Read, NetMode::Filtered, Some(Backend::Native))
    );
    assert_eq!(policy.limits.memory_bytes, 1 << 30, "the part for the workspace is nearer");
    assert_eq!(policy.limits.processes, 20, "the part for the agent narrows");
    assert_eq!((policy.limits.millicpus, policy.limits.wall_ms), (Some(500), Some(30_000)));
    assert_eq!((policy.limits.cpu_seconds, policy.limits.open_files), (3600, 128));
    assert_eq!(policy.floor, Control::ALL);
    assert_eq!(effective.roots.len(), 2);
    assert_eq!(policy.rules.paths.rules().len(), 3);
    assert!(!policy.rules.hosts.is_empty() && !policy.rules.env.is_empty() && !policy.rules.tools.is_empty());
    assert_eq!(effective.requests, []);
}

const EVERYTHING: &str = r#"
schema = 1
profile = "guarded"
minimum_profile = "workspace"
commands = "listed"
approval = "ask"
workspace_access = "read"
net = "filtered"
backend = "native"
required_controls = ["fs-read", "net"]

[limits]
memory = "512m"
processes = 50
cpus = 0.5
cpu_time = "1h"
max_open_files = 128
file_size = "100m"
tmp_size = 1048576
timeout = "30s"
max_output = "1m"

[[root]]
path = "/srv/data"
access = "read"
reason = "shared fixtures"

[[root]]
path = "vendor"
access = "none"

[[path]]
deny = ["*.sqlite", "private/**"]
except = ["fixtures.sqlite"]
reason = "customer data"
match = ["db/live.sqlite", "private/a/b"]
not_match = ["db/fixtures.sqlite", "public/a"]

[[path]]
deny = "dist/**"
operation = "write"
match = "dist/main.js"

[[command]]
allow = ["npm test", "npm run 'build all'"]
match = "npm test -- --watch"
not_match = "npm install"

[[command]]
deny = ["git", "push", "--force"]

[[command]]
ask = [["git", "commit"]]
exact = true
within = "web"

[[command]]
program = "go"
allow_subcommands = ["build", "test"]
deny_subcommands = "install"
match = ["go build ./...", "go test"]
not_match = ["go install x", "go get y"]

[[tool]]
allow = ["mcp__github__*"]

[[env]]
inherit = ["NODE_ENV", "CI_*"]

[[env]]
deny = "*_TOKEN"

[[host]]
allow = "api.example.com:443"
methods = ["GET"]
path = "/v1/"
scheme = "https"

[agents.claude-code]
limits.processes = 20

[[agents.claude-code.tool]]
allow = "read_file"

[workspaces."~/web"]
limits.memory = "1g"
approved_digests = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

[workspaces."/elsewhere"]
profile = "strict"
minimum_profile = "strict"
"#;

#[test]
fn nothing_is_a_policy_too() {
    for text in ["", "\n", "# only a comment", "\u{feff}schema = 1"] {
        let effective = merged(&flags(), &[operator(text).unwrap()]).unwrap();
        assert_eq!(effective.policy, Policy { home: flags().home, ..Policy::new(Profile::Workspace) });
        assert_eq!(effective.roots, []);
    }
}

#[test]
fn a_rule_knows_where_it_is_and_why() {
    let text = "[[path]]\nreason = \"müll\"\ndeny = [\n  \"a.bin\",\n  \"ü\", \"b.bin\",\n]\n";
    let effective = merged(&flags(), &[operator(text).unwrap()]).unwrap();
    let places: Vec<String> = effective
        .policy
        .rules
        .paths
        .rules()
        .iter()
        .map(|rule| rule.source.origin.clone().unwrap().to_string())
        .collect();
    assert_eq!(places, ["config.toml:4:3", "config.toml:5:3", "config.toml:5:8"]);
    assert_eq!(effective.policy.rules.paths.rules()[0].source.reason.as_deref(), Some("müll"));
}

#[test]
fn extended_files_are_the_base() {
    let files = disk(&[
        (
            "/etc/rf/team.toml",
            "profile = \"guarded\"\nnet = \"none\"\nextends = \"../org.toml\"\n[[command]]\nask = \"make\"\n",
        ),
        ("/etc/rf/../org.toml", "approval = \"never\"\nnet = \"full\"\nlimits.processes = 7\n"),
    ]);
    let own = "extends = [\"team.toml\"]\nprofile = \"workspace\"\n[[command]]\nallow = \"make all\"\n";
    let file =
        PolicyFile::load(PolicyFileRole::Operator, Path::new("/etc/rf/config.toml"), own.as_bytes(), &files)
            .unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(file.digests().len(), 3);
    let effective = merged(&flags(), &[file]).unwrap();
    assert_eq!(effective.policy.profile, Profile::Workspace, "itself before its base");
    assert_eq!(effective.policy.net, NetMode::None, "the near base before the far one");
    assert_eq!(effective.policy.approval, ApprovalMode::Never);
    assert_eq!(effective.policy.limits.processes, 7);
    let place = |key: &str| {
        effective.settings.iter().find(|setting| setting.key == key).unwrap().origin.clone().unwrap()
    };
    assert_eq!(place("limits.processes").file, Path::new("/etc/rf/../org.toml"));
    assert_eq!(place("command.ask").to_string(), "/etc/rf/team.toml:5:7");
}

#[test]
fn extending_ends() {
    let circle = disk(&[("/a.toml", "extends = \"b.toml\""), ("/b.toml", "extends = \"./c/../a.toml\"")]);
    let error =
        PolicyFile::load(PolicyFileRole::Operator, Path::new("/a.toml"), b"extends = \"b.toml\"", &circle)
            .unwrap_err();
    assert_eq!(lines(&error), ["1:11: `/a.toml` extends itself | leave it out"]);

    let chain: Vec<(String, String)> =
        (1..20).map(|at| (format!("/{at}.toml"), format!("extends = \"{}.toml\"", at + 1))).collect();
    let chain: Vec<(&str, &str)> = chain.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let error = PolicyFile::load(
        PolicyFileRole::Operator,
        Path::new("/0.toml"),
        b"extends = \"1.toml\"",
        &disk(&chain),
    )
    .unwrap_err();
    assert_eq!(lines(&error), ["1:11: `/9.toml` is extended through more than 8 files | leave it out"]);

    let diamond = disk(&[
        ("/b.toml", "extends = \"d.toml\""),
        ("/c.toml", "extends = [\"d.toml\", \"./d.toml\"]"),
        ("/d.toml", "[[command]]\nask = \"make\"\n"),
    ]);
    let file = PolicyFile::load(
        PolicyFileRole::Operator,
        Path::new("/a.toml"),
        b"extends = [\"b.toml\", \"c.toml\"]",
        &diamond,
    )
    .unwrap();
    assert_eq!(file.digests().len(), 4, "a base of two is read once");

    let read = std::cell::Cell::new(0);
    let everything = |path: &Path| {
        read.set(read.get() + 1);
        let name = path.file_stem().unwrap().display();
        Ok(format!("extends = [\"{name}a.toml\", \"{name}b.toml\", \"{name}c.toml\"]").into_bytes())
    };
    let error = PolicyFile::load(
        PolicyFileRole::Operator,
        Path::new("/a.toml"),
        b"extends = \"b.toml\"",
        &everything,
    )
    .unwrap_err();
    assert_eq!(read.get(), 63, "{error}");
}

#[test]
fn s000_22_a_manifest_lists_what_may_run() {
    let manifest = r#"{"version": 2, "cli": "camp", "commands": [
        {"path": "project", "agent_allowed": true},
        {"path": "project list", "agent_allowed": true, "interactive": false},
        {"path": "project delete", "agent_allowed": false, "reason": "it deletes"},
        {"path": "status", "agent_allowed": true}]}"#;
    let text = "[[command]]\nmanifest = \"camp.json\"\n\
        match = [\"camp status --short\", \"camp project\", \"camp project list --all\"]\n\
        not_match = [\"camp project delete x\", \"camp project secret\", \"camp hidden\", \"camp\"]\n";
    let files = disk(&[("/p/camp.json", manifest)]);
    let file =
        PolicyFile::load(PolicyFileRole::Operator, Path::new("/p/config.toml"), text.as_bytes(), &files)
            .unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(file.digests().len(), 2, "what is approved covers the manifest");
    let settings = merged(&flags(), &[file]).unwrap().settings;
    assert!(settings.iter().any(|setting| setting.key == "command.manifest" && setting.value == "camp"));
    for (manifest, expected) in [
        ("{", "the manifest is not readable"),
        (r#"{"version": 1, "cli": "camp", "commands": []}"#, "has version 1"),
        (r#"{"version": 2, "cli": "camp", "commands": []}"#, "names no command"),
        (
            r#"{"version": 2, "cli": "a b", "commands": [{"path": "x", "agent_allowed": true}]}"#,
            "`a b` is not the name of a program",
        ),
    ] {
        let files = disk(&[("/p/camp.json", manifest)]);
        let error =
            PolicyFile::load(PolicyFileRole::Operator, Path::new("/p/config.toml"), text.as_bytes(), &files)
                .unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn c10_only_an_operator_names_files_elsewhere() {
    let everywhere = |_: &Path| Ok(b"profile = \"strict\"".to_vec());
    for name in ["/etc/shadow", "../x.toml", "a/../../x.toml"] {
        let text = format!("extends = \"{name}\"\n[[command]]\nmanifest = \"{name}\"\n");
        let load =
            |role| PolicyFile::load(role, Path::new(".ringfence/policy.toml"), text.as_bytes(), &everywhere);
        let error = load(PolicyFileRole::Workspace).unwrap_err();
        assert_eq!(error.problems().len(), 2, "{error}");
        assert!(error.to_string().contains("is not below the directory of this file"), "{error}");
        let error = load(PolicyFileRole::Operator).unwrap_err();
        assert!(!error.to_string().contains("is not below"), "{error}");
    }
}

#[test]
fn decisions_are_kept() {
    let text = "[[command]]\ndeny = \"a\"\n[[command]]\nask = \"b\"\n[[command]]\nallow = \"c\"\n";
    let file = operator(text).unwrap();
    let settings = merged(&flags(), &[file]).unwrap().settings;
    let commands: Vec<(&str, &str)> = settings
        .iter()
        .filter(|setting| setting.key.starts_with("command."))
        .map(|setting| (setting.key.as_str(), setting.value.as_str()))
        .collect();
    assert_eq!(commands, [("command.deny", "a"), ("command.ask", "b"), ("command.allow", "c")]);
}
