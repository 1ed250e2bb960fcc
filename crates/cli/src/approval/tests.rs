use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use ringfence_runtime::authz::{Action, Aspect, Candidate, Judgement, Part, Place, Scope, candidates};
use ringfence_types::{Access, Call, Exec, NetMode, Risk, Root};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{
    LocalModes, OptionalActions, OutputModes, Termios, Winsize, tcgetattr, tcsetattr, tcsetwinsize,
};

use super::*;
use crate::explain::{Glyphs, Ink};

const STYLE: Style = Style { ink: Ink::Plain, glyphs: Glyphs::Unicode };
const READY: &str = "[e]xplain > ";

/// A terminal with somebody reading what appears on it.
struct Pty {
    master: Arc<File>,
    path: PathBuf,
    /// Keeps the terminal from hanging up between two openings.
    slave: File,
    seen: Arc<Mutex<Vec<u8>>>,
}

impl Pty {
    fn new() -> Self {
        let (master, path) = pair();
        let slave = device::open(&path).unwrap();
        let master = Arc::new(master);
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (reader, target) = (Arc::clone(&master), Arc::clone(&seen));
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = (&*reader).read(&mut buffer) {
                target.lock().unwrap().extend_from_slice(&buffer[..length]);
            }
        });
        let pty = Self { master, path, slave, seen };
        pty.resize(24, 80);
        pty
    }

    fn resize(&self, rows: u16, columns: u16) {
        tcsetwinsize(&self.slave, Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 })
            .unwrap();
    }

    fn mode(&self) -> Termios {
        tcgetattr(&self.slave).unwrap()
    }

    fn seen(&self) -> String {
        String::from_utf8_lossy(&self.seen.lock().unwrap()).into_owned()
    }

    fn wait_for(&self, times: usize, text: &str) {
        let end = Instant::now() + Duration::from_secs(60);
        while self.seen().matches(text).count() < times {
            assert!(Instant::now() < end, "`{text}` did not appear {times} times in\n{}", self.seen());
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn type_in(&self, keys: &[u8]) {
        (&*self.master).write_all(keys).unwrap();
    }

    /// Asks on it in a thread of its own, as the product does.
    fn ask(&self, world: World, patience: Duration) -> thread::JoinHandle<Answer> {
        let path = self.path.clone();
        thread::spawn(move || {
            let mut device = Device::on(device::open(&path).unwrap(), patience).unwrap();
            answer(&mut device, &world.prompt(patience), STYLE)
        })
    }

    /// Types each of `keys` when the question (again) waits for an answer.
    fn answer(&self, world: World, ready: &str, keys: &[&[u8]]) -> Answer {
        let before = self.mode();
        let asking = self.ask(world, Duration::from_secs(60));
        for (index, keys) in keys.iter().enumerate() {
            self.wait_for(index + 1, ready);
            self.type_in(keys);
        }
        let answer = asking.join().unwrap();
        same_mode(&before, &self.mode());
        answer
    }
}

fn same_mode(before: &Termios, after: &Termios) {
    assert_eq!(before.local_modes, after.local_modes);
    assert_eq!(before.input_modes, after.input_modes);
    assert_eq!(before.output_modes, after.output_modes);
}

struct World {
    action: Action,
    judgement: Judgement,
    candidates: Vec<Candidate>,
}

impl World {
    fn new(argv: &[&str], risk: Risk) -> Self {
        let argv: Vec<Bytes> = argv.iter().map(|word| Bytes::from(*word)).collect();
        let mut part = Part::new(Aspect::Command, "it", "guarded.unlisted")
            .because("it is not on the list")
            .ask(risk, "a rule");
        part.argv.clone_from(&argv);
        let judgement = Judgement::new(vec![part.clone()], part);
        let exec = Exec { argv, cwd: Bytes::from("/w/app"), env: Vec::new(), net: NetMode::None };
        let roots = vec![Root { path: Bytes::from("/w"), access: Access::Write }];
        let place = Place { workspace: Path::new("/w"), cwd: Path::new("/w/app") };
        let candidates = candidates(&judgement, place);
        Self { action: Action::new(Call::Exec(exec), roots), judgement, candidates }
    }

    fn make() -> Self {
        Self::new(&["make", "test"], Risk::Medium)
    }

    fn prompt(&self, patience: Duration) -> Prompt<'_> {
        Prompt {
            action: &self.action,
            judgement: &self.judgement,
            candidates: self.candidates.clone(),
            stated: None,
            patience,
        }
    }
}

#[test]
fn each_key_gives_its_answer() {
    let keys: &[(&[u8], Answer)] = &[
        (b"o", Answer::Once),
        (b"s", Answer::Session),
        (b"d", Answer::Deny),
        (b"n", Answer::Deny),
        (b"o\r", Answer::Once),
        (b"\r", Answer::Deny),
        (b"\n", Answer::Deny),
        (b"\x03", Answer::Deny),
        (b"\x04", Answer::Deny),
    ];
    for (key, expected) in keys {
        let pty = Pty::new();
        assert_eq!(&pty.answer(World::make(), READY, &[key]), expected, "{key:?}");
    }
    let pty = Pty::new();
    let Answer::AlwaysHere(candidate) = pty.answer(World::make(), READY, &[b"a"]) else { panic!() };
    assert_eq!((candidate.scope, candidate.rules.len()), (Scope::Exact, 1));
    pty.wait_for(1, "always allowed here");
}

#[test]
fn always_lets_choose_among_several_rules() {
    let cargo = || World::new(&["cargo", "test"], Risk::Medium);
    for (number, scope) in [(b"1", Scope::Exact), (b"2", Scope::Here), (b"3", Scope::Prefix)] {
        let pty = Pty::new();
        let asking = pty.ask(cargo(), Duration::from_secs(60));
        pty.wait_for(1, READY);
        pty.type_in(b"a");
        pty.wait_for(1, "which one? [1-3]");
        pty.type_in(number);
        let Answer::AlwaysHere(candidate) = asking.join().unwrap() else { panic!() };
        assert_eq!(candidate.scope, scope);
    }
    for back in [&b"4"[..], b"0", b"\r", b"a", b"11", b"\x1b[A"] {
        let pty = Pty::new();
        let asking = pty.ask(cargo(), Duration::from_secs(60));
        pty.wait_for(1, READY);
        pty.type_in(b"a");
        pty.wait_for(1, "goes back > ");
        pty.type_in(back);
        pty.wait_for(2, READY);
        pty.type_in(b"d");
        assert_eq!(asking.join().unwrap(), Answer::Deny, "{back:?}");
    }
}

#[test]
fn what_was_typed_before_the_question_answers_nothing() {
    for (before, meanwhile) in [(&b"o"[..], &b""[..]), (b"", b"o"), (b"o\ryes\rooo", b"oooo"), (b"o\n", b"s")]
    {
        let pty = Pty::new();
        pty.type_in(before);
        let asking = pty.ask(World::make(), Duration::from_secs(60));
        pty.wait_for(1, "no answer in");
        pty.type_in(meanwhile);
        pty.wait_for(1, READY);
        thread::sleep(Duration::from_millis(100));
        assert!(!asking.is_finished(), "{before:?} {meanwhile:?} {}", pty.seen());
        pty.type_in(b"d");
        assert_eq!(asking.join().unwrap(), Answer::Deny);
    }
}

#[test]
fn keys_without_a_letter_pastes_and_garbage_are_no_answers() {
    for junk in [
        &b"\x1b[Z"[..],
        b"\x1b[<0;10;5M",
        b"\x1bOA",
        b"ooo",
        b"so",
        b"O",
        b"A",
        b"\xff",
        "ö".as_bytes(),
        b"\0",
    ] {
        let pty = Pty::new();
        let answer = pty.answer(World::make(), READY, &[junk, b"s"]);
        assert_eq!(answer, Answer::Session, "{junk:?}");
    }
    let pty = Pty::new();
    let junk: Vec<&[u8]> = vec![b"x"; 20];
    assert_eq!(pty.answer(World::make(), READY, &junk), Answer::Deny, "nobody waits for ever");
}

#[test]
fn explain_shows_every_part_and_asks_again() {
    let pty = Pty::new();
    assert_eq!(pty.answer(World::make(), READY, &[b"e", b"o"]), Answer::Once);
    assert!(pty.seen().contains("└─ ? command  it\r\n"), "{}", pty.seen());
}

#[test]
fn high_risk_takes_nothing_but_the_word() {
    let ready = "shows more) > ";
    let risky = || World::new(&["make", "test"], Risk::High);
    let lines: &[(&[u8], Answer)] = &[
        (b"yes\r", Answer::Once),
        (b"yed\x7fs\r", Answer::Once),
        (b"y\r", Answer::Deny),
        (b"o\r", Answer::Deny),
        (b"YES\r", Answer::Deny),
        (b"yes please\r", Answer::Deny),
        (b"yes\xff\r", Answer::Deny),
        (b"\r", Answer::Deny),
        (b"yes\x03", Answer::Deny),
        (b"yes\x04", Answer::Deny),
        (b"\x1b", Answer::Deny),
        (b"yesyesyesyesyesyesyesyesyesyesyesyesyesyesyesyes\r", Answer::Deny),
    ];
    for (line, expected) in lines {
        let pty = Pty::new();
        assert_eq!(&pty.answer(risky(), ready, &[line]), expected, "{line:?}");
    }
    let pty = Pty::new();
    assert_eq!(pty.answer(risky(), ready, &[b"explain\r", b"yes\r"]), Answer::Once);
    let pty = Pty::new();
    assert_eq!(pty.answer(World::new(&["make"], Risk::Critical), ready, &[b"a\r"]), Answer::Deny);
}

#[test]
fn silence_is_a_no() {
    let pty = Pty::new();
    let before = pty.mode();
    let start = Instant::now();
    assert_eq!(pty.ask(World::make(), Duration::from_secs(1)).join().unwrap(), Answer::Deny);
    assert!(start.elapsed() < Duration::from_secs(30));
    pty.wait_for(1, "no answer: denied");
    same_mode(&before, &pty.mode());
}

#[test]
fn a_terminal_that_goes_away_is_a_no() {
    let (mut master, path) = pair();
    let mut device = Device::on(device::open(&path).unwrap(), Duration::from_secs(60)).unwrap();
    let asking = thread::spawn(move || answer(&mut device, &World::make().prompt(PATIENCE), STYLE));
    let (mut seen, mut buffer) = (Vec::new(), [0; 4096]);
    while !String::from_utf8_lossy(&seen).contains(READY) {
        let length = master.read(&mut buffer).unwrap();
        seen.extend_from_slice(&buffer[..length]);
    }
    let start = Instant::now();
    drop(master);
    assert_eq!(asking.join().unwrap(), Answer::Deny);
    assert!(start.elapsed() < Duration::from_secs(30), "it was the end of the terminal, not of patience");
}

#[test]
fn a_terminal_that_nobody_reads_is_a_no() {
    let (master, path) = pair();
    let mut device = Device::on(device::open(&path).unwrap(), Duration::from_secs(1)).unwrap();
    let words = "x".repeat(1_000_000);
    let world = World::new(&["echo", "\n", &words], Risk::Medium);
    assert_eq!(device.write(&world.prompt(PATIENCE).whole(80, STYLE)), Err(Silence::TimedOut));
    assert_eq!(answer(&mut device, &world.prompt(PATIENCE), STYLE), Answer::Deny);
    drop(master);
}

#[test]
fn a_raw_terminal_is_asked_properly_and_stays_raw() {
    let pty = Pty::new();
    let mut raw = pty.mode();
    raw.make_raw();
    tcsetattr(&pty.slave, OptionalActions::Now, &raw).unwrap();
    assert_eq!(pty.answer(World::make(), READY, &[b"o"]), Answer::Once);
    assert!(!pty.mode().output_modes.contains(OutputModes::OPOST));
    pty.wait_for(1, "> allowed once\r\n");
    assert!(pty.seen().split_inclusive('\n').all(|line| line.ends_with("\r\n")), "{:?}", pty.seen());
}

#[test]
fn nothing_is_echoed_and_no_key_is_a_signal_while_it_asks() {
    let pty = Pty::new();
    let asking = pty.ask(World::make(), Duration::from_secs(60));
    pty.wait_for(1, READY);
    let unwanted = LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG;
    assert!(!pty.mode().local_modes.intersects(unwanted));
    pty.type_in(b"\x03");
    assert_eq!(asking.join().unwrap(), Answer::Deny);
    assert!(pty.mode().local_modes.contains(unwanted), "and back afterwards");
    pty.wait_for(1, "> denied\r\n");
}

#[test]
fn a_change_of_size_is_no_answer() {
    let pty = Pty::new();
    let caught = Arc::new(std::sync::atomic::AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGWINCH, Arc::clone(&caught)).unwrap();
    pty.resize(24, 40);
    let asking = pty.ask(World::make(), Duration::from_secs(60));
    pty.wait_for(1, READY);
    assert!(pty.seen().contains("\r\nnetwork\r\n  none\r\n"), "narrow terminals wrap: {}", pty.seen());
    pty.resize(50, 132);
    for _ in 0..20 {
        let own = rustix::process::getpid();
        rustix::process::kill_process(own, rustix::process::Signal::WINCH).unwrap();
    }
    thread::sleep(Duration::from_millis(100));
    assert!(!asking.is_finished(), "{}", pty.seen());
    pty.type_in(b"e");
    pty.wait_for(2, READY);
    pty.type_in(b"o");
    assert_eq!(asking.join().unwrap(), Answer::Once);
}

#[test]
fn a_megabyte_can_be_seen_whole_and_takes_the_word() {
    let words = "x".repeat(1_000_000);
    let big = || World::new(&["echo", &words], Risk::Low);
    let ready = "`view` show more) > ";
    let pty = Pty::new();
    assert_eq!(pty.answer(big(), ready, &[b"view\r", b"yes\r"]), Answer::Once);
    assert!(pty.seen().matches('x').count() >= 1_000_000);
    let pty = Pty::new();
    assert_eq!(pty.answer(big(), ready, &[b"o\r"]), Answer::Deny);
}

#[test]
fn without_a_terminal_nobody_is_asked() {
    let not_a_terminal = tempfile::tempfile().unwrap();
    assert!(Device::on(not_a_terminal, PATIENCE).is_err());
}

fn pair() -> (File, PathBuf) {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let path = PathBuf::from(ptsname(&master, Vec::new()).unwrap().to_str().unwrap());
    (File::from(master), path)
}
