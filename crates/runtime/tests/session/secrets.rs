//! Which secrets a session may have.

use std::fs;
use std::path::PathBuf;

use ringfence_authz::Policy;
use ringfence_authz::env::ApproverPresence;
use ringfence_runtime::secrets::{NamedBy, NewSecret, SecretScope, SecretStore, SecretValue};
use ringfence_runtime::{HostSetup, Runtime, SessionSpec};
use ringfence_types::{Backend, ByteString, Delivery, NetMode, Profile, SecretClass, StandardInput};
use tempfile::TempDir;

struct World {
    #[expect(dead_code, reason = "held for its drop")]
    root: TempDir,
    path: PathBuf,
    runtime: Runtime,
}

impl World {
    fn new(secrets: Vec<NewSecret>) -> Self {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().canonicalize().unwrap();
        for directory in ["w", "v", "home", "config"] {
            fs::create_dir(path.join(directory)).unwrap();
        }
        let runtime = Runtime::open(HostSetup {
            state_dir: path.join("state"),
            config_dir: path.join("config"),
            home: Some(path.join("home")),
            host_env: Vec::new(),
            attendance: ApproverPresence::Unattended,
            toolchains: Vec::new(),
            files: Vec::new(),
            sweeper: None,
            own: Vec::new(),
        })
        .unwrap();
        SecretStore::new(&path.join("state")).add(secrets).unwrap().make().unwrap();
        Self { root, path, runtime }
    }

    fn asked(&self, workspace: &str, change: impl FnOnce(&mut Policy)) -> SessionSpec {
        let mut policy = Policy::new(Profile::Workspace);
        change(&mut policy);
        SessionSpec::new(self.path.join(workspace), policy)
    }

    /// The rule that refused, or `given`.
    fn release(&self, asked: SessionSpec, name: &str, agent: Option<&str>) -> String {
        let mut session = self.runtime.session(asked).unwrap().unwrap();
        match session.release(&[name.to_owned()], NamedBy::Operator { agent }).unwrap() {
            Ok(()) => "given".to_owned(),
            Err(refusal) => refusal.rule.into(),
        }
    }
}

fn secret(name: &str, class: SecretClass, deliver: Option<Delivery>) -> NewSecret {
    NewSecret {
        name: name.parse().unwrap(),
        class,
        scope: SecretScope::default(),
        deliver,
        variable: None,
        hosts: Vec::new(),
        credential_locations: Vec::new(),
        value: SecretValue::new(format!("value-of-{name}").into_bytes().into()).unwrap(),
    }
}

fn tool(name: &str) -> NewSecret {
    secret(name, SecretClass::Tool, None)
}

#[test]
fn a_secret_is_given_only_where_its_scope_says() {
    let world = World::new(vec![tool("ANY"), NewSecret { scope: agent("claude"), ..tool("AGENT") }]);
    let here = SecretScope { workspace: Some(ByteString::from(world.path.join("w"))), agent: None };
    SecretStore::new(&world.path.join("state"))
        .add(vec![NewSecret { scope: here, ..tool("HERE") }])
        .unwrap()
        .make()
        .unwrap();
    for (workspace, name, agent, expected) in [
        ("w", "ANY", None, "given"),
        ("w", "HERE", None, "given"),
        ("v", "HERE", None, "secret.scope"),
        ("w", "AGENT", Some("claude"), "given"),
        ("w", "AGENT", Some("codex"), "secret.scope"),
        ("w", "AGENT", None, "secret.scope"),
        ("w", "ANYY", None, "secret.unknown"),
        ("w", "../x", None, "secret.unknown"),
        ("w", "", None, "secret.unknown"),
    ] {
        let asked = world.asked(workspace, |_| {});
        assert_eq!(world.release(asked, name, agent), expected, "{name} in {workspace} for {agent:?}");
    }
}

fn agent(name: &str) -> SecretScope {
    SecretScope { workspace: None, agent: Some(name.to_owned()) }
}

/// C-2: nothing of class `provider` is given; where there is a proxy, a placeholder for its hosts is.
#[test]
fn c2_a_provider_secret_becomes_a_placeholder_or_nothing() {
    let hosts = vec!["host.test".to_owned()];
    let provider = NewSecret { hosts, ..secret("KEY", SecretClass::Provider, None) };
    let world = World::new(vec![provider, secret("PROXY", SecretClass::Tool, Some(Delivery::ProxyOnly))]);
    assert_eq!(world.release(world.asked("w", |_| {}), "KEY", None), "secret.provider");
    assert_eq!(world.release(world.asked("w", |_| {}), "PROXY", None), "secret.proxy-only");
    let filtered = || world.asked("w", |policy| policy.net = NetMode::Filtered);
    assert_eq!(world.release(filtered(), "KEY", None), "given");
    assert_eq!(world.release(filtered(), "PROXY", None), "secret.nowhere");
}

#[test]
fn where_nothing_is_kept_apart_no_secret_is_given() {
    let world = World::new(vec![tool("FILE"), secret("VARIABLE", SecretClass::Tool, Some(Delivery::Env))]);
    for (backend, file, env) in [
        (None, "given", "given"),
        (Some(Backend::Native), "given", "given"),
        (Some(Backend::Bubblewrap), "given", "given"),
        (Some(Backend::Landlock), "secret.backend", "given"),
        (Some(Backend::External), "secret.backend", "secret.backend"),
        (Some(Backend::None), "secret.backend", "secret.backend"),
    ] {
        for (name, expected) in [("FILE", file), ("VARIABLE", env)] {
            let asked = world.asked("w", |policy| policy.backend = backend);
            assert_eq!(world.release(asked, name, None), expected, "{name} with {backend:?}");
        }
    }
    let danger = world.asked("w", |policy| policy.profile = Profile::Danger);
    assert_eq!(world.release(danger, "VARIABLE", None), "secret.backend");
}

#[test]
fn two_secrets_do_not_share_a_variable() {
    let world =
        World::new(vec![tool("ONE"), NewSecret { variable: Some("ONE_FILE".to_owned()), ..tool("TWO") }]);
    let mut session = world.runtime.session(world.asked("w", |_| {})).unwrap().unwrap();
    let names = ["ONE", "TWO"].map(str::to_owned);
    assert_eq!(
        session.release(&names, NamedBy::Operator { agent: None }).unwrap().unwrap_err().rule,
        "secret.variable"
    );
    let twice = ["ONE", "ONE"].map(str::to_owned);
    assert!(
        session.release(&twice, NamedBy::Operator { agent: None }).unwrap().is_ok(),
        "the same twice is one"
    );
}

/// S002-12: what a command would read is part of the call, where it is known whole.
#[test]
fn s002_12_a_secret_in_the_input_of_a_command_is_held() {
    use ringfence_runtime::{CallEnd, CommandIo, OutputTarget, StdinSource};
    use ringfence_types::{Call, ExecCall};
    let world = World::new(vec![tool("ANY")]);
    let exec = ExecCall {
        argv: vec![ByteString::from("sh"), ByteString::from("-c"), ByteString::from("cat >read")],
        cwd: ByteString::from(world.path.join("w")),
        env: Vec::new(),
        ceiling: None,
        net: NetMode::None,
        stdin: StandardInput::None,
    };
    let run = |input: &[u8]| {
        let mut session = world.runtime.session(world.asked("w", |_| {})).unwrap().unwrap();
        let io = CommandIo {
            stdin: StdinSource::Bytes(input),
            stdout: OutputTarget::Discard,
            stderr: OutputTarget::Discard,
            interrupts: &[],
            timeout: None,
            output_bytes: 0,
        };
        session.call(Call::Exec(exec.clone()), io)
    };
    let settled = run(b"so value-of-ANY it is");
    assert!(
        matches!(&settled.ended, CallEnd::Refused(refusal) if refusal.rule == "leaks.arguments"),
        "{settled:?}"
    );
    assert_eq!(settled.leaks[0].findings[0].location, "stdin");
    assert!(!world.path.join("w/read").exists());
    assert!(matches!(run(b"so it is").ended, CallEnd::Executed(_)), "the control");
    assert_eq!(fs::read_to_string(world.path.join("w/read")).unwrap(), "so it is");
}
