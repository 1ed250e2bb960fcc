//! The policies in `docs/policies` in use: quiet for what people do all day, and no more open than they say.

use ringfence_authz::{Action, HostFacts, PathKind, judge, known_programs};
use ringfence_types::{Call, Decision, ExecCall, Root, StandardInput};

use super::*;

/// A machine on which every program is installed.
struct Everything;

impl HostFacts for Everything {
    fn program(&self, name: &[u8], _cwd: &Path) -> Option<PathBuf> {
        Some(Path::new("/usr/bin").join(ByteString::from(name).as_path()))
    }

    fn real_path(&self, path: &Path) -> PathBuf {
        path.to_owned()
    }

    fn kind(&self, _path: &Path) -> PathKind {
        PathKind::File
    }

    fn git_programs(&self, _dir: &Path) -> Vec<String> {
        Vec::new()
    }
}

fn decided(policy: &str, command: &str) -> Decision {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/policies").join(policy);
    let file = PolicyFile::parse(PolicyFileRole::Operator, &path, &std::fs::read(&path).unwrap()).unwrap();
    let policy = merged(&flags(), &[file]).unwrap().policy;
    let words = super::super::command_words::split(command).unwrap();
    let argv = words.iter().map(|word| ByteString::from(word.as_str())).collect();
    let call = Call::Exec(ExecCall {
        argv,
        cwd: ByteString::from(WORKSPACE),
        env: Vec::new(),
        ceiling: None,
        net: NetMode::None,
        stdin: StandardInput::None,
    });
    let roots = vec![Root { path: ByteString::from(WORKSPACE), access: policy.access }];
    judge(&policy, &Action::new(call, roots), &Everything)
        .map_or(Decision::Deny, |judgement| judgement.decision())
}

fn check(policy: &str, expected: Decision, commands: &[&str]) {
    for command in commands {
        assert_eq!(decided(policy, command), expected, "{policy}: {command}");
    }
}

#[test]
fn s000_20_s000_21_document_000_runs_four_tools_and_asks_nobody() {
    let policy = "document-000.toml";
    check(
        policy,
        Decision::Allow,
        &[
            "fest list",
            "camp status",
            "just test",
            "git status",
            "git commit -m x",
            "git add .",
            "git checkout -b x",
        ],
    );
    check(
        policy,
        Decision::Deny,
        &[
            "git push --force",
            "git push -f",
            "git -C sub push --force",
            "git reset --hard",
            "git clean -fd",
            "git clean -d -f",
            "rm x",
            "make",
            "go build",
            "npm test",
            "bash -c 'make'",
            "env git push --force",
            "ls",
            "cat README.md",
            "sh -c ls",
            "sh -c 'git status'",
            "env git status",
        ],
    );
}

/// S000-20: whatever else is known to be harmless, alone, with a command to run and with a shell's option.
#[test]
fn document_000_runs_nothing_besides_its_four_tools() {
    for name in known_programs() {
        for arguments in ["", " git status", " ls", " -c ls", " README.md"] {
            let expected = matches!(name, "git" | "just");
            let command = format!("{name}{arguments}");
            if !expected {
                assert_eq!(decided("document-000.toml", &command), Decision::Deny, "{command}");
            }
        }
    }
    let snippet = "python3 -c \"import os; print('\\n'.join(sorted(os.listdir('.'))))\"";
    check("document-000.toml", Decision::Deny, &[snippet, "xyz", "git-status", "./git status"]);
}

#[test]
fn s001_20_s001_23_document_001_lists_and_asks() {
    let policy = "document-001.toml";
    check(
        policy,
        Decision::Allow,
        &["ls", "git status", "git diff", "git log", "cat README.md", "git grep x"],
    );
    check(policy, Decision::Ask, &["make", "npm test", "git commit -m x"]);
    check(policy, Decision::Deny, &["git push", "curl https://x.example", "rm x", "git fetch", "wget x"]);
}

#[test]
fn a_node_project_is_quiet() {
    let policy = "node.toml";
    check(
        policy,
        Decision::Allow,
        &[
            "npm test",
            "npm run build",
            "npm run lint",
            "pnpm test",
            "yarn test",
            "git status",
            "tsc --noEmit",
        ],
    );
    check(
        policy,
        Decision::Ask,
        &["npm install", "npm install vite", "npm ci", "npx cowsay", "node x.js", "npm run deploy"],
    );
    check(policy, Decision::Deny, &["npm publish", "npm login", "npm token create"]);
}

#[test]
fn a_rust_project_is_quiet() {
    let policy = "rust.toml";
    check(
        policy,
        Decision::Allow,
        &[
            "cargo build",
            "cargo test",
            "cargo test -p web",
            "cargo clippy --all-targets",
            "cargo fmt",
            "cargo check",
            "cargo doc",
            "git diff",
        ],
    );
    check(policy, Decision::Ask, &["cargo add serde", "cargo update", "cargo run", "git commit -m x"]);
    check(policy, Decision::Deny, &["cargo publish", "cargo install ripgrep", "cargo login x"]);
}

#[test]
fn a_python_project_is_quiet() {
    let policy = "python.toml";
    check(
        policy,
        Decision::Allow,
        &[
            "pytest",
            "pytest -q tests",
            "python -m pytest",
            "ruff check",
            "ruff format",
            "mypy src",
            "pip list",
            "python --version",
            "git log",
        ],
    );
    check(
        policy,
        Decision::Ask,
        &["pip install requests", "python x.py", "python -m http.server", "uv add httpx"],
    );
    check(policy, Decision::Deny, &["twine upload dist/x.whl", "uv publish", "poetry publish"]);
}
