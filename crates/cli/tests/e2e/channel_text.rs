//! Text of an agent in everything that an operator reads: each channel and each field that an agent fills, one table.

use std::fs;

use crate::approval::session;
use crate::approval_notifications::{Server, secret};
use crate::approvals::{Watcher, approvals, configure, one_waiting};
use crate::terminal::Terminal;
use crate::testkit::{World, collect, eventually, finish, script};

/// What would move, hide, colour, break or reverse text, or talk to a terminal. NUL cannot be in an argument.
const HOSTILE: &str = "\u{202e}r\u{2066}i\u{200b}z\u{200d}j\u{2028}l\u{2029}p\tt\rc\u{c}f\u{b}v\u{8}b\u{7f}d\x1b[2J\x1b]0;t\x07\x1bPq\x1b\\\u{9b}1mx\u{85}n\u{a0}s\u{3164}h\u{feff}m\u{e0041}g\u{fe0f}o\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{430}";

/// Characters of [`HOSTILE`] that no channel may pass on as they are. Marks and Cyrillic letters may be shown.
fn raw(text: &str) -> Vec<char> {
    let deceptive =
        |c: &char| HOSTILE.contains(*c) && !c.is_alphanumeric() && *c != '\u{301}' && !c.is_ascii_graphic();
    text.chars().filter(deceptive).collect()
}

/// Each field by a word of its own that stands right before the text.
const FIELDS: [&str; 6] = ["argument", "directory", "variable", "input", "agentname", "claim"];

fn hostile(field: &str) -> String {
    format!("{field}{HOSTILE}")
}

fn lay_out(world: &World, port: u16) -> String {
    let told = world.beside("told");
    script(
        &world.beside("programs").join("notify-send"),
        &format!(
            "#!/bin/sh\nfor word; do printf '%s\\n' \"$word\"; done >{0}/new; mv {0}/new {0}/all\n",
            told.display()
        ),
    );
    secret(world, 0o600);
    configure(
        world,
        &format!(
            "[approvals]\nnotify = [\"webhook\", \"desktop\"]\nwebhook = {{ url = \"http://127.0.0.1:{port}/ask\", secret_file = \"~/secret\" }}\n"
        ),
    );
    fs::create_dir(world.workspace.join(hostile("directory"))).unwrap();
    world.write("input", hostile("input"));
    for (name, text) in FIELDS.map(|field| (field, hostile(field))) {
        fs::write(world.beside("words").join(name), text).unwrap();
    }
    let word = |name: &str| format!("\"$(cat {}/{name})\"", world.beside("words").display());
    format!(
        "export NO_COLOR=1 PATH={}:$PATH; input=$PWD/input; cd {}; exec \"$RINGFENCE\" run --profile guarded --workspace .. --agent {} --reason {} --env V={} -- touch {} <$input",
        world.beside("programs").display(),
        word("directory"),
        word("agentname"),
        word("claim"),
        word("variable"),
        word("argument"),
    )
}

/// What stands on a screen after the question began, without the line breaks of a terminal.
fn question(terminal: &Terminal) -> String {
    let seen = terminal.seen();
    seen.rsplit_once("ringfence asks").unwrap().1.replace("\r\n", "\n")
}

#[test]
fn no_channel_passes_text_of_an_agent_on_as_it_is() {
    let world = World::new();
    let server = Server::new("200 OK");
    let ask = lay_out(&world, server.port);
    let watcher = Watcher::at(&world, Terminal::new(300, 200));
    let terminal = Terminal::new(300, 200);
    let child = session(&world, &terminal, &ask);
    terminal.wait_for_question(1);
    watcher.terminal.wait_for_question(1);
    let id = one_waiting(&world);
    let told = world.beside("told").join("all");
    eventually("the desktop was told", || told.exists());
    let list = |arguments: &[&str]| approvals(&world, arguments).expect(0).text();
    let prompts = [
        ("terminal", question(&terminal)),
        ("watch", question(&watcher.terminal)),
        ("webhook", server.next().body),
        ("desktop", fs::read_to_string(told).unwrap()),
        ("show", list(&["show", &id])),
        ("show --json", list(&["show", &id, "--json"])),
    ];
    let lists = [
        ("list", list(&["list"])),
        ("list --json", list(&["list", "--json"])),
        ("ledger", finish(world.ringfence().args(["ledger", "tail"]), b"").expect(0).text()),
        ("ledger --json", finish(world.ringfence().args(["ledger", "tail", "--json"]), b"").expect(0).text()),
    ];
    for (channel, text) in &prompts {
        for field in FIELDS {
            assert!(text.contains(field), "{field} is shown in {channel}: {text}");
        }
    }
    for (channel, text) in prompts.iter().chain(&lists) {
        let found = raw(&text.replace('\n', ""));
        assert!(found.is_empty(), "{channel} passes {found:?} on: {text:?}");
        assert!(!text.contains(&"\u{301}".repeat(5)), "{channel}: marks flood their neighbours");
    }
    assert!(!raw(&hostile("control")).is_empty(), "control: the text has what is looked for");
    terminal.type_in(b"d");
    collect(child).expect(126);
}

#[test]
fn titles_and_names_of_proposals_are_text() {
    let world = World::new();
    let title = hostile("title");
    let arguments =
        ["proposal", "create", "--title", &title, "--agent", &hostile("agentname"), "--file", "notes"];
    let done = finish(world.ringfence().args(arguments), hostile("content").as_bytes()).expect(0);
    let id = done.text().trim().to_owned();
    for arguments in [
        &["proposal", "list"][..],
        &["proposal", "list", "--json"],
        &["proposal", "show", &id],
        &["proposal", "show", &id, "--json"],
        &["proposal", "diff", &id],
    ] {
        let text = finish(world.ringfence().args(arguments), b"").expect(0).text();
        let found = raw(&text.replace('\n', ""));
        assert!(found.is_empty(), "{arguments:?} passes {found:?} on: {text:?}");
    }
    let raw_diff = finish(world.ringfence().args(["proposal", "diff", "--raw", &id]), b"").expect(0).text();
    assert!(!raw(&raw_diff).is_empty(), "control: raw is as it is");
}
