//! The real agents as providers of sessions of the daemon, with their model in a test's own internet and their key outside.

use std::fs;
use std::path::{Path, PathBuf};

use ringfence_api::{SessionInfo, SessionState, ShowSession};
use ringfence_runtime::proxy::provider_url;
use serde_json::{Value, json};

use crate::agents::{agent, bash};
use crate::agents_whole::{Provider, attempts, held, key, with_key};
use crate::daemon_fixture::ASK;
use crate::internet::Internet;
use crate::internet::daemon::Daemon;
use crate::testkit::{Done, contains, eventually};

/// Lets sessions reach the model and see the program of the agent.
fn serve<'a>(internet: &'a Internet, program: &Path) -> Daemon<'a> {
    let directory = program.parent().unwrap().display();
    internet.operator(&format!(
        "net = \"filtered\"\n[[host]]\nallow = [\"git.test:9443\"]\n[[host]]\ndeny = [\"web.test\"]\n[[root]]\npath = \"{directory}\"\naccess = \"read\"\n"
    ));
    Daemon::new(internet)
}

/// `ringfence session create … -- PROVIDER`, as an operator types it.
fn create(daemon: &Daemon<'_>, flags: &[&str], provider: &[&str]) -> (Done, SessionInfo) {
    let create = ["session", "create", "--json", "--net", "filtered"];
    let done = daemon.ringfence(&[&create, flags, &["--"], provider].concat()).expect(0);
    let session = serde_json::from_slice(&done.out).unwrap();
    (done, session)
}

fn show(daemon: &Daemon<'_>, session: &SessionInfo) -> SessionInfo {
    daemon.client().call(&ShowSession { session: session.session.clone() }).unwrap()
}

fn over(daemon: &Daemon<'_>, session: &SessionInfo) -> SessionInfo {
    eventually("the session ends with its agent", || show(daemon, session).state == SessionState::Ended);
    show(daemon, session)
}

/// Works, and waits until somebody has looked at it from outside; then says so at the door of its session.
fn looked_at() -> [String; 2] {
    let report = r#"ask POST $S/activity '{"activity":"tool","claim":"all of it is done"}'"#;
    ["touch ready; until [ -e go ]; do sleep 0.02; done".to_owned(), format!("{ASK}{report}")]
}

/// Arguments and variables of every process of the host that can be read, while the agent runs.
fn seen_from_outside(internet: &Internet) -> Vec<u8> {
    let processes: Vec<PathBuf> =
        fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path()).collect();
    let of =
        |path: &PathBuf| ["cmdline", "environ"].map(|file| fs::read(path.join(file)).unwrap_or_default());
    let all: Vec<Vec<u8>> = processes.iter().flat_map(of).collect();
    internet.world.write("go", "");
    all.concat()
}

/// Files of the world that have the key in them.
fn with_the_key(internet: &Internet) -> Vec<PathBuf> {
    let mut places = vec![
        internet.world.state.clone(),
        internet.world.workspace.clone(),
        internet.world.home.clone(),
        internet.world.beside("r"),
    ];
    let mut found = Vec::new();
    while let Some(place) = places.pop() {
        for entry in fs::read_dir(place).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => places.push(entry.path()),
                Ok(kind) if kind.is_file() => {
                    let content = fs::read(entry.path()).unwrap_or_default();
                    found.extend(contains(&content, key().as_bytes()).then(|| entry.path()));
                }
                _ => {}
            }
        }
    }
    found
}

/// Everything is in the ledger: the session and its end, the agent as a call, its key by name, where it went and did not get, and
/// what it said of itself.
fn written_down(internet: &Internet, session: &SessionInfo, outputs: &[String]) {
    let records = internet.world.all_records();
    let events: Vec<&Value> = records.iter().map(|record| &record["event"]).collect();
    let of = |kind: &str| {
        let own =
            |event: &&&Value| event["kind"] == kind && event.to_string().contains(session.session.as_str());
        events.iter().filter(own).copied().collect::<Vec<_>>()
    };
    assert_eq!((of("session-started").len(), of("session-ended").len()), (1, 1), "{records:?}");
    let intents = of("call-intended");
    assert_eq!(intents.iter().filter(|event| event["call"]["kind"] == "exec").count(), 1, "{intents:?}");
    assert_eq!(of("activity-reported").len(), 1, "{outputs:?}");
    assert!(of("activity-reported")[0].to_string().contains("all of it is done"));
    assert!(!of("secret-released").is_empty() && !of("call-settled").is_empty(), "{records:?}");
    let text = format!("{events:?}");
    assert!(text.contains("git.test") && text.contains("web.test"), "{text}");
}

/// An agent, how it is started, and what its model says.
struct Started<'a> {
    program: &'a Path,
    arguments: &'a [&'a str],
    /// Of `ringfence session create`.
    flags: &'a [&'a str],
    steps: Vec<Value>,
}

fn works(internet: &Internet, started: Started<'_>) {
    let model = Provider::new(internet, &Value::Array(started.steps));
    let daemon = serve(internet, started.program);
    let provider = [&[started.program.to_str().unwrap()], started.arguments].concat();
    let (done, session) = create(&daemon, started.flags, &provider);
    let works = || internet.world.read("ready").is_some();
    let is_over = || show(&daemon, &session).state == SessionState::Ended;
    eventually("the agent works, or cannot", || works() || is_over());
    let why =
        || format!("{:?} {:?} {:?}", show(&daemon, &session), model.outputs(), internet.world.all_records());
    assert!(works(), "{}", why());
    let seen = seen_from_outside(internet);
    let program = started.program.as_os_str().as_encoded_bytes();
    assert!(contains(&seen, program), "the control: the agent is seen");
    assert!(!contains(&seen, key().as_bytes()), "no process has the key in its arguments or variables");
    let over = over(&daemon, &session);
    let ended = over.agent_process.unwrap();
    assert_eq!(
        (ended.exit_code, over.end_reason.as_deref()),
        (Some(0), Some("its provider ended")),
        "{:?}",
        model.outputs()
    );
    held(internet, &model, &done);
    written_down(internet, &session, &model.outputs());
    let kept = with_the_key(internet);
    assert!(
        kept.iter().all(|path| path.starts_with(internet.world.state.join("ringfence/secrets"))),
        "the key is where the operator keeps it, and nowhere else: {kept:?}"
    );
}

/// C-2 under the daemon: Claude Code works in a session, by a placeholder; only its model has seen the key.
#[test]
fn claude_code_is_the_provider_of_a_session_and_its_key_is_not_there() {
    let internet = Internet::new();
    with_key(&internet, "anthropic", "ANTHROPIC_API_KEY");
    let mut commands = attempts(&internet);
    commands.extend(looked_at());
    let steps = commands.iter().map(|command| bash(command)).chain([json!("finished")]).collect();
    let program = agent("claude").canonicalize().unwrap();
    let url = format!("ANTHROPIC_BASE_URL={}", provider_url("anthropic"));
    let quiet = ["CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_AUTOUPDATER=1"];
    let flags = ["--secret", "anthropic", "--env", &url, "--env", quiet[0], "--env", quiet[1]];
    let arguments = ["-p", "go", "--allowedTools", "Bash"];
    works(&internet, Started { program: &program, arguments: &arguments, flags: &flags, steps });
}

/// The same of Codex.
#[test]
fn codex_is_the_provider_of_a_session_and_its_key_is_not_there() {
    let internet = Internet::new();
    with_key(&internet, "openai", "CODEX_API_KEY");
    let mut commands = attempts(&internet);
    commands.extend(looked_at());
    let step = |command: &String| json!({ "name": "exec_command", "input": { "cmd": command } });
    let steps = commands.iter().map(step).chain([json!("finished")]).collect();
    let program = agent("codex").canonicalize().unwrap();
    let url = format!("openai_base_url=\"{}/v1\"", provider_url("openai"));
    let arguments =
        ["-c", &url, "exec", "--skip-git-repo-check", "-c", "sandbox_mode=\"danger-full-access\"", "go"];
    let flags = ["--secret", "openai"];
    works(&internet, Started { program: &program, arguments: &arguments, flags: &flags, steps });
}
