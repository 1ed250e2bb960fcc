//! The policy files that are shipped for documents 000 and 001 say what the documents say, row by row.

#[cfg(test)]
#[path = "../../authz/tests/machine/mod.rs"]
mod machine;

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use ringfence_authz::{Action, judge};
    use ringfence_policy::{EffectivePolicy, PolicyFile, PolicyFileRole, StartupFlags, effective};
    use ringfence_types::{ByteString, Call, Decision, ExecCall, NetMode, Root, StandardInput};

    use crate::machine::{HOME, Machine, WORKSPACE};

    /// `.campaign/sandbox.yaml` of document 000, in the format of Ringfence.
    const EXTENSION: &str = r#"
        [[command]]
        program = "go"
        allow_subcommands = ["build", "test", "vet", "mod"]
        deny_subcommands = ["install"]
        reason = "Go toolchain"

        [[command]]
        program = "npm"
        allow_subcommands = ["install", "test", "run", "build"]
        reason = "Node package manager"

        [[command]]
        program = "make"
        reason = "Make build system"
    "#;

    #[test]
    fn s000_20_21_the_default_list_runs_and_nothing_else() {
        let policy = load(&[shipped("document-000.toml")]);
        for command in
            ["fest list", "camp status", "just", "just build release", "git commit -m x", "git add ."]
        {
            assert_eq!(decision(&policy, command), Decision::Allow, "{command}");
        }
        for command in [
            "go test ./...",
            "npm test",
            "make",
            "python x.py",
            "touch x",
            "fest2",
            "festival list",
            "./fest",
        ] {
            assert_eq!(decision(&policy, command), Decision::Deny, "{command}");
        }
    }

    #[test]
    fn s000_21_what_is_blocked_is_blocked_in_every_spelling() {
        let policy = load(&[shipped("document-000.toml")]);
        for command in [
            "git push --force",
            "git push -f",
            "git push origin main --force",
            "git -C sub push -f",
            "git push --force-with-lease",
            "git push origin +main",
            "git reset --hard",
            "git reset HEAD~1 --hard",
            "git reset --har",
            "git clean -fd",
            "git clean -df",
            "git clean -f -d",
            "git clean -xdf",
            "git clean --force -d",
        ] {
            assert_eq!(decision(&policy, command), Decision::Deny, "{command}");
        }
        for command in ["git reset", "git reset --soft HEAD~1", "git clean -n"] {
            assert_eq!(decision(&policy, command), Decision::Allow, "{command}");
        }
    }

    #[test]
    fn s000_24_the_flow_of_document_000() {
        let policy = load(&[shipped("document-000.toml"), (PolicyFileRole::Operator, EXTENSION.to_owned())]);
        for command in [
            "go test ./...",
            "go build",
            "go vet",
            "go mod tidy",
            "npm install",
            "npm test",
            "npm run x",
            "make",
            "make all",
        ] {
            assert_eq!(decision(&policy, command), Decision::Allow, "{command}");
        }
        for command in [
            "rm x",
            "go install",
            "go install ./...",
            "go run .",
            "go",
            "npm publish",
            "npm exec x",
            "npx x",
            "cat .env",
            "cat ../x",
        ] {
            assert_eq!(decision(&policy, command), Decision::Deny, "{command}");
        }
    }

    #[test]
    fn s000_23_a_file_in_the_workspace_only_asks_for_it() {
        let loaded = load(&[shipped("document-000.toml"), (PolicyFileRole::Workspace, EXTENSION.to_owned())]);
        for command in ["go test ./...", "npm test", "make"] {
            assert_eq!(decision(&loaded, command), Decision::Deny, "{command}");
        }
        assert!(!loaded.requests.is_empty());
    }

    #[test]
    fn s001_20_to_26_with_the_file_of_document_001() {
        let policy = load(&[shipped("document-001.toml")]);
        for command in [
            "ls",
            "git status",
            "git diff",
            "git log",
            "git rev-parse HEAD",
            "git branch",
            "git show",
            "cat README.md",
        ] {
            assert_eq!(decision(&policy, command), Decision::Allow, "{command}");
        }
        for command in [
            "curl x",
            "wget x",
            "ssh h",
            "bash",
            "sh",
            "rm x",
            "rmdir x",
            "git clone x",
            "git fetch",
            "git pull",
        ] {
            assert_eq!(decision(&policy, command), Decision::Deny, "{command}");
        }
        for command in ["make", "npm test", "touch x", "git commit -m x"] {
            assert_eq!(decision(&policy, command), Decision::Ask, "{command}");
        }
    }

    fn shipped(name: &str) -> (PolicyFileRole, String) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/policies").join(name);
        (PolicyFileRole::Operator, std::fs::read_to_string(path).unwrap())
    }

    fn load(files: &[(PolicyFileRole, String)]) -> EffectivePolicy {
        let read = |(role, text): &(PolicyFileRole, String)| {
            PolicyFile::parse(*role, Path::new("/policy.toml"), text.as_bytes()).unwrap()
        };
        let files: Vec<PolicyFile> = files.iter().map(read).collect();
        let flags = StartupFlags {
            workspace: PathBuf::from(WORKSPACE),
            home: Some(ByteString::from(HOME)),
            ..StartupFlags::default()
        };
        effective(&flags, &files, &|path| path.to_owned()).unwrap()
    }

    fn decision(loaded: &EffectivePolicy, command: &str) -> Decision {
        let argv = command.split(' ').map(ByteString::from).collect();
        let cwd = ByteString::from(WORKSPACE);
        let call = Call::Exec(ExecCall {
            argv,
            cwd,
            env: Vec::new(),
            ceiling: None,
            net: NetMode::None,
            stdin: StandardInput::None,
        });
        let roots = vec![Root { path: ByteString::from(WORKSPACE), access: loaded.policy.access }];
        let judged = judge(&loaded.policy, &Action::new(call, roots), &Machine);
        judged.map_or(Decision::Deny, |judgement| judgement.decision())
    }
}
