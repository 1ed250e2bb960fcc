//! The real agents inside the fence, with their provider in a test's own internet and their key outside.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Stdio};

use serde_json::{Value, json};

use crate::agents::{agent, bash, source};
use crate::internet::Internet;
use crate::test_timeouts::{Patient, end};
use crate::testkit::{Done, contains, finish};

/// A provider at `git.test:9443`; it ends when this is dropped.
pub(crate) struct Provider {
    child: Child,
    log: PathBuf,
}

impl Provider {
    pub(crate) fn new(internet: &Internet, steps: &Value) -> Self {
        let (script, log) = (internet.place.join("steps.json"), internet.place.join("log.jsonl"));
        fs::write(&script, steps.to_string()).unwrap();
        let line = format!(
            "exec python3 {} {} {} --serve 30.0.0.30 {}",
            source("fake_model.py").display(),
            script.display(),
            log.display(),
            internet.place.join("server.pem").display()
        );
        let mut command = internet.beside_servers(&line);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut ready = String::new();
        BufReader::new(Patient(child.stdout.take().unwrap())).read_line(&mut ready).unwrap();
        assert_eq!(ready, "ready\n");
        Self { child, log }
    }

    pub(crate) fn outputs(&self) -> Vec<String> {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["output"].to_string()).collect()
    }

    fn keys(&self) -> String {
        fs::read_to_string(format!("{}.keys", self.log.display())).unwrap_or_default()
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// What a provider's key looks like, made up of parts.
pub(crate) fn key() -> String {
    format!("{}-{}", "provider", "k3y".repeat(9))
}

pub(crate) fn with_key(internet: &Internet, name: &str, variable: &str) {
    let mut command = internet.ringfence();
    command.args([
        "secret",
        "set",
        name,
        "--class",
        "provider",
        "--host",
        "git.test:9443",
        "--env-name",
        variable,
    ]);
    finish(&mut command, key().as_bytes()).expect(0);
}

/// What every agent is made to try: work, a key of the person, a host that nobody allowed, and its own key.
pub(crate) fn attempts(internet: &Internet) -> Vec<String> {
    let home = &internet.world.home;
    fs::create_dir(home.join(".ssh")).unwrap();
    fs::write(home.join(".ssh/id_ed25519"), "the secret of the person").unwrap();
    vec![
        "echo worked >worked; cat worked".to_owned(),
        format!("cat {}/.ssh/id_ed25519; ls -a {}; echo looked", home.display(), home.display()),
        "curl -sS -m 10 https://web.test/echo; echo tried".to_owned(),
        // Not the token of a session of the daemon: what looks like a credential does not leave, also not to the model.
        "(env; cat /proc/*/environ | tr '\\0' '\\n') | grep -av SESSION_TOKEN; echo searched".to_owned(),
    ]
}

pub(crate) fn held(internet: &Internet, provider: &Provider, done: &Done) {
    let outputs = provider.outputs();
    assert_eq!(internet.world.read("worked").as_deref(), Some("worked\n"), "{outputs:?} {done:?}");
    let all = outputs.join("\n");
    for word in ["looked", "tried", "searched"] {
        assert!(all.contains(word), "{word}: {outputs:?}");
    }
    assert!(!all.contains("the secret of the person"), "{outputs:?}");
    assert!(internet.visits().iter().all(|visit| visit["at"] != "30.0.0.10"), "{:?}", internet.visits());
    assert!(!all.contains(&key()) && !contains(&done.out, key().as_bytes()), "the key is not inside");
    assert!(all.contains("rf_placeholder_"), "what stands for it is: {outputs:?}");
    assert!(provider.keys().contains(&key()), "the provider got the key itself: {}", provider.keys());
    let records = format!("{:?}", internet.world.all_records());
    assert!(!records.contains(&key()) && records.contains("secret-released"));
}

#[test]
fn claude_code_lives_inside_and_its_key_does_not() {
    let internet = Internet::new();
    let claude = agent("claude");
    let run =
        ["run", "--agent", "claude", "--", claude.to_str().unwrap(), "-p", "go", "--allowedTools", "Bash"];
    finish(internet.ringfence().args(run), b"")
        .expect(125)
        .says("no key for claude-code")
        .says("ringfence secret set");
    with_key(&internet, "anthropic", "ANTHROPIC_API_KEY");
    let mut steps: Vec<Value> = attempts(&internet).iter().map(|command| bash(command)).collect();
    steps.push(json!("finished"));
    let provider = Provider::new(&internet, &Value::Array(steps));
    let done = finish(internet.ringfence().args(run), b"");
    assert_eq!(done.text().trim(), "finished", "{done:?} {:?}", provider.outputs());
    held(&internet, &provider, &done);
}

#[test]
fn codex_lives_inside_and_its_key_does_not() {
    let internet = Internet::new();
    with_key(&internet, "openai", "CODEX_API_KEY");
    let step = |command: &String| json!({ "name": "exec_command", "input": { "cmd": command } });
    let mut steps: Vec<Value> = attempts(&internet).iter().map(step).collect();
    steps.push(json!("finished"));
    let provider = Provider::new(&internet, &Value::Array(steps));
    let codex = agent("codex");
    let mut run = internet.ringfence();
    run.args(["run", "--agent", "codex", "--"]).arg(codex);
    run.args(["exec", "--skip-git-repo-check", "-c", "sandbox_mode=\"danger-full-access\"", "go"]);
    let done = finish(&mut run, b"");
    held(&internet, &provider, &done);
}
