//! The memory of everything inside, searched from the host: a provider key that a client uses is in none of it.

use std::fs;
use std::process::Child;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::filtered_secrets::{FLAGS, key, with_key};
use crate::internet::Internet;
use crate::testkit::{collect, eventually, finish, is_root, marker, processes_with};

/// Reads every mapping of each process that can be read at all, and says in how many parts of them a word is: as it is, and in the
/// base64 of something that it is part of, which may begin at three places. The words come on standard input.
const SEARCH: &str = r#"
import base64, json, sys
words = sys.stdin.buffer.read().split(b'\n')
def encoded(word):
    for before in range(3):
        text = base64.b64encode(b'x' * before + word)
        # What stands at either end depends on the neighbours.
        yield text[4 if before else 0:-4]
found, unread = {word.decode(): {'plain': 0, 'encoded': 0} for word in words}, []
for process in sys.argv[1:]:
    once = 0
    try:
        memory = open(f'/proc/{process}/mem', 'rb', 0)
    except PermissionError:
        unread.append(process)
        continue
    with memory:
        for line in open(f'/proc/{process}/maps'):
            span, rights = line.split()[:2]
            if rights[0] != 'r' or line.rstrip().endswith(('[vvar]', '[vvar_vclock]', '[vsyscall]')):
                continue
            start, end = (int(part, 16) for part in span.split('-'))
            tail = b''
            while start < end:
                memory.seek(start)
                try:
                    part = memory.read(min(end - start, 1 << 24))
                except OSError:
                    break
                if not part:
                    break
                start, once = start + len(part), once + len(part)
                whole = tail + part
                for word in words:
                    found[word.decode()]['plain'] += word in whole
                    found[word.decode()]['encoded'] += any(form in whole for form in encoded(word))
                tail = whole[-4096:]
    if not once:
        unread.append(process)
print(json.dumps({'found': found, 'unread': unread}))
"#;

fn search(internet: &Internet, processes: &[String], words: &[&str]) -> Value {
    let mut command = internet.world.host("python3");
    command.args(["-c", SEARCH]).args(processes);
    finish(&mut command, words.join("\n").as_bytes()).expect(0).json()
}

fn is_in(found: &Value, word: &str, form: &str) -> bool {
    found["found"][word][form].as_u64().unwrap() > 0
}

/// Uses what is in the variable as a key, keeps the answer, and stays.
const PYTHON: &str = r#"
import base64, os, sys, time, urllib.request
key = os.environ['MODEL_API_KEY']
basic = base64.b64encode(('user:' + key).encode()).decode()
kept = []
for header in ['Bearer ' + key, 'Basic ' + basic]:
    request = urllib.request.Request('https://web.test/echo', headers={'Authorization': header})
    kept.append(urllib.request.urlopen(request, timeout=20).read())
open(sys.argv[1], 'w').close()
while not os.path.exists('go'): time.sleep(0.05)
"#;

/// The same by another program with another HTTP client.
const NODE: &str = r#"
const key = process.env.MODEL_API_KEY, fs = require('fs');
fetch('https://web.test/echo', { headers: { 'x-api-key': key } }).then(r => r.text()).then(kept => {
  fs.writeFileSync(process.argv[2], '');
  setInterval(() => { if (fs.existsSync('go')) process.exit(kept.length ? 0 : 9) }, 50);
});
"#;

/// All processes in the pid namespace of one of them.
fn neighbours(process: &str) -> Vec<String> {
    let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/pid")).ok();
    let own = namespace(process).expect("the namespace of a process of ours can be read");
    let all = fs::read_dir("/proc").unwrap().flatten();
    let all = all.map(|entry| entry.file_name().to_string_lossy().into_owned());
    all.filter(|name| namespace(name).as_ref() == Some(&own)).collect()
}

/// Whose arguments begin with this.
fn pid_of(marker: &str, beginning: &str) -> String {
    let found = processes_with(marker);
    let line = found
        .iter()
        .find(|line| line.contains(&format!(": {beginning}")))
        .unwrap_or_else(|| panic!("{found:?}"));
    line.split(':').next().unwrap().to_owned()
}

fn sent_keys(internet: &Internet) -> usize {
    let visits = internet.visits();
    let key = key();
    let basic = STANDARD.encode(format!("user:{key}"));
    let headers = visits.iter().map(|visit| visit["headers"].to_string());
    headers.filter(|headers| headers.contains(&key) || headers.contains(&basic)).count()
}

/// C-2, S000-30: two clients use a key while every byte of every process inside, PID 1 of the sandbox among them, is searched for
/// it. That the search would find it is shown by the placeholder, which is there, by Ringfence itself, which has the key, and by
/// the same client on the host with the real one.
#[test]
fn s000_30_a_provider_key_is_in_no_memory_inside() {
    let internet = Internet::new();
    let world = &internet.world;
    with_key(&internet);
    let marker = marker(world);
    world.write("use.py", PYTHON);
    world.write("use.js", NODE);
    let script = format!(
        ": {marker}; echo \"$MODEL_API_KEY\" >placeholder; node use.js used-node {marker} & python3 use.py used-python {marker}; wait $!"
    );
    let child = internet.start(FLAGS, &script);
    let used = ["used-python", "used-node"].map(|name| world.workspace.join(name));
    eventually("both have used the key", || used.iter().all(|path| path.exists()));
    assert_eq!(sent_keys(&internet), 3, "the server was given the key: {:?}", internet.visits());
    let placeholder = world.read("placeholder").unwrap().trim().to_owned();
    let inside = neighbours(&pid_of(&marker, "python3 use.py used-python"));
    assert!(inside.len() >= 4, "PID 1, a shell and two clients: {inside:?}");
    let found = search(&internet, &inside, &[&key(), &placeholder]);
    assert_all_read(&found, &marker);
    assert_eq!(found["found"][key()], json!({ "plain": 0, "encoded": 0 }), "{found}");
    assert!(is_in(&found, &placeholder, "plain") && is_in(&found, &placeholder, "encoded"), "{found}");
    let supervisor = internet.pid_of_ringfence(&child).as_raw_nonzero().to_string();
    let found = search(&internet, &[supervisor], &[&key()]);
    assert!(is_in(&found, &key(), "plain"), "ringfence has it: {found}");
    world.write("go", "");
    let done = collect(child).expect(0);
    assert!(!done.text().contains(&key()) && !done.err.contains(&key()));
    fs::remove_file(world.workspace.join("go")).unwrap();
    assert_control(&internet, &marker);
}

/// PID 1 of the sandbox and what it forks to attend to a command are not dumpable: nobody but root reads them. They are not the
/// programs that ran inside.
fn assert_all_read(found: &Value, marker: &str) {
    let unread = found["unread"].as_array().unwrap();
    assert!(!is_root() || unread.is_empty(), "{found}");
    let programs = processes_with(marker);
    for process in unread {
        let line = format!("{}: ", process.as_str().unwrap());
        assert!(!programs.iter().any(|program| program.starts_with(&line)), "{found} {programs:?}");
    }
}

/// A client on the host with the key in its hands.
fn assert_control(internet: &Internet, marker: &str) {
    let world = &internet.world;
    let child: Child = internet
        .host("python3")
        .args(["use.py", "used-outside", marker])
        .env("MODEL_API_KEY", key())
        .spawn()
        .unwrap();
    eventually("it was used outside", || world.workspace.join("used-outside").exists());
    let found = search(internet, &[pid_of(marker, "python3 use.py used-outside")], &[&key()]);
    world.write("go", "");
    collect(child).expect(0);
    assert!(is_in(&found, &key(), "plain") && is_in(&found, &key(), "encoded"), "the control: {found}");
}
