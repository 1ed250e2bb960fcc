//! The real agents for the tests: packages of exact versions, kept in the target directory.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Result, command};

struct Agent {
    package: &'static str,
    version: &'static str,
    /// In the directory of the package for this machine.
    program: &'static str,
    name: &'static str,
}

const AGENTS: &[Agent] = &[
    Agent {
        package: "@anthropic-ai/claude-code",
        version: "2.1.325",
        program: "@anthropic-ai/claude-code-linux-x64/claude",
        name: "claude",
    },
    Agent {
        package: "@openai/codex",
        version: "0.166.0",
        program: "@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex",
        name: "codex",
    },
];

/// Packages for the Python of the system, which the tests run them with.
struct Python {
    /// Beside the programs.
    name: &'static str,
    packages: &'static [&'static str],
    needs: Needs,
}

/// Whether what the packages need is named as well.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Needs {
    Found,
    Named,
}

const PYTHONS: &[Python] = &[
    // The official client of the Model Context Protocol.
    Python { name: "python", packages: &["mcp==2.3.0"], needs: Needs::Found },
    // The official client of gRPC that most languages are built on (C-core).
    Python { name: "grpc", packages: &["grpcio==1.85.1", "typing-extensions==4.16.0"], needs: Needs::Named },
    // What tries the daemon by its own description. Each version is named: another one makes other requests.
    Python {
        name: "schemathesis",
        packages: &[
            "schemathesis==4.32.5",
            "hypothesis==6.170.15",
            "hypothesis-graphql==0.13.5",
            "jsonschema-rs==0.60.3",
            "anyio==4.16.0",
            "certifi==2026.10.18",
            "charset-normalizer==3.5.2",
            "click==8.5.1",
            "graphql-core==3.3.2",
            "harfile==0.6.0",
            "idna==3.20",
            "iniconfig==2.3.1",
            "markdown-it-py==4.3.0",
            "markupsafe==3.0.4",
            "mdurl==0.1.2",
            "packaging==26.3",
            "pluggy==1.7.0",
            "pygments==2.21.0",
            "pyrate-limiter==4.5.1",
            "pytest==9.2.0",
            "pyyaml==6.0.3",
            "requests==2.34.2",
            "rich==15.0.0",
            "sortedcontainers==2.4.0",
            "typing-extensions==4.16.0",
            "urllib3==2.8.0",
            "werkzeug==3.1.9",
        ],
        needs: Needs::Named,
    },
];

/// The official clients of the Model Context Protocol for TypeScript that programs have today (which begins with a handshake)
/// and will have (which speaks both eras), and the official client of gRPC for JavaScript.
const PACKAGES_OF_NODE: &[&str] =
    &["@modelcontextprotocol/sdk@1.32.2", "@modelcontextprotocol/client@2.4.0", "@grpc/grpc-js@1.14.7"];
const NODE: &str = "node";
/// What is installed runs in tests alone: no script of a package does.
const QUIET: [&str; 5] = ["--no-audit", "--no-fund", "--ignore-scripts", "--loglevel", "error"];

/// Installs what is missing. The directory has a program per agent.
pub(crate) fn ensure(root: &Path) -> Result<PathBuf> {
    let directory = command::target_directory(root)?.join("agents");
    PYTHONS.iter().try_for_each(|python| ensure_python(&directory, python))?;
    ensure_node(&directory)?;
    let bin = directory.join("bin");
    fs::create_dir_all(&bin)?;
    let wanted: Vec<String> =
        AGENTS.iter().map(|agent| format!("{}@{}", agent.package, agent.version)).collect();
    let marker = directory.join("installed");
    let is_there = AGENTS.iter().all(|agent| bin.join(agent.name).exists());
    if is_there && fs::read_to_string(&marker).is_ok_and(|text| text == wanted.join("\n")) {
        return Ok(bin);
    }
    let packages = directory.join("packages");
    fs::create_dir_all(&packages)?;
    fs::write(packages.join("package.json"), "{}")?;
    command::must_succeed(
        Command::new("npm").arg("install").args(QUIET).args(&wanted).current_dir(&packages),
    )?;
    for agent in AGENTS {
        let program = bin.join(agent.name);
        fs::rename(packages.join("node_modules").join(agent.program), &program)?;
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    }
    fs::remove_dir_all(&packages)?;
    fs::write(&marker, wanted.join("\n"))?;
    Ok(bin)
}

fn ensure_python(directory: &Path, python: &Python) -> Result<()> {
    let packages = directory.join(python.name);
    let marker = directory.join(format!("installed-{}", python.name));
    let wanted = python.packages.join("\n");
    if packages.exists() && fs::read_to_string(&marker).is_ok_and(|text| text == wanted) {
        return Ok(());
    }
    fs::create_dir_all(directory)?;
    if packages.exists() {
        fs::remove_dir_all(&packages)?;
    }
    // What is installed runs in tests alone: no script of a package does.
    let quiet = ["-m", "pip", "install", "--quiet", "--root-user-action=ignore", "--only-binary", ":all:"];
    let mut pip = Command::new("/usr/bin/python3");
    let _pip = pip.args(quiet).arg("--target").arg(&packages).args(python.packages);
    if python.needs == Needs::Named {
        let _pip = pip.arg("--no-deps");
    }
    command::must_succeed(&mut pip)?;
    Ok(fs::write(&marker, wanted)?)
}

fn ensure_node(directory: &Path) -> Result<()> {
    let (packages, marker) = (directory.join(NODE), directory.join("installed-node"));
    let wanted = PACKAGES_OF_NODE.join("\n");
    if packages.exists() && fs::read_to_string(&marker).is_ok_and(|text| text == wanted) {
        return Ok(());
    }
    if packages.exists() {
        fs::remove_dir_all(&packages)?;
    }
    fs::create_dir_all(&packages)?;
    fs::write(packages.join("package.json"), "{}")?;
    let install = ["install", "--no-bin-links"];
    command::must_succeed(
        Command::new("npm").args(install).args(QUIET).args(PACKAGES_OF_NODE).current_dir(&packages),
    )?;
    Ok(fs::write(&marker, wanted)?)
}

/// Where everybody can run them: links where that is possible, copies elsewhere.
pub(crate) fn stage(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    fs::set_permissions(to, fs::Permissions::from_mode(0o755))?;
    for name in PYTHONS.iter().map(|python| python.name).chain([NODE]) {
        let (packages, staged) = (from.with_file_name(name), to.with_file_name(name));
        command::must_succeed(Command::new("cp").arg("-rT").arg(&packages).arg(&staged))?;
    }
    for agent in AGENTS {
        let (program, staged) = (from.join(agent.name), to.join(agent.name));
        if fs::hard_link(&program, &staged).is_err() {
            fs::copy(&program, &staged)?;
        }
    }
    Ok(())
}
