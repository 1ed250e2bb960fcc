use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use ringfence_ledger::{ApprovalRequest, ReasonRequirement};
use ringfence_types::Risk;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{
    LocalModes, OptionalActions, OutputModes, Termios, Winsize, tcgetattr, tcsetattr, tcsetwinsize,
};

use super::*;
use crate::explain::{Glyphs, TextColor};

const STYLE: TextStyle = TextStyle { ink: TextColor::Plain, glyphs: Glyphs::Unicode };
const READY: &str = "[e]xplain > ";

/// A terminal with a reader of its output.
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
        let slave = tty::open(&path).unwrap();
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

    /// Asks on it in its own thread, like the product.
    fn ask(
        &self,
        world: World,
        patience: Duration,
    ) -> thread::JoinHandle<Result<OperatorDecision, NoAnswer>> {
        let path = self.path.clone();
        thread::spawn(move || {
            let mut device = PromptTty::on(tty::open(&path).unwrap(), patience, NOBODY_ELSE).unwrap();
            asked(&mut device, &world)
        })
    }

    /// Types each of `keys` when the prompt (again) waits for an answer.
    fn answer(&self, world: World, ready: &str, keys: &[&[u8]]) -> OperatorDecision {
        let before = self.mode();
        let asking = self.ask(world, Duration::from_secs(60));
        for (index, keys) in keys.iter().enumerate() {
            self.wait_for(index + 1, ready);
            self.type_in(keys);
        }
        let answer = asking.join().unwrap().unwrap();
        same_mode(&before, &self.mode());
        answer
    }
}

fn same_mode(before: &Termios, after: &Termios) {
    assert_eq!(before.local_modes, after.local_modes);
    assert_eq!(before.input_modes, after.input_modes);
    assert_eq!(before.output_modes, after.output_modes);
}

/// An approval of which only the text matters.
#[derive(Clone)]
struct World {
    request: ApprovalRequest,
}

impl World {
    fn new(lines: &[&str], risk: Risk) -> Self {
        Self { request: approval_screen::tests::request(lines, 1, risk) }
    }

    fn make() -> Self {
        Self::new(&["make test"], Risk::Medium)
    }

    fn offering(offers: usize) -> Self {
        Self { request: approval_screen::tests::request(&["cargo test"], offers, Risk::Medium) }
    }

    fn prompt(&self, patience: Duration) -> ApprovalScreen<'_> {
        ApprovalScreen::new(&self.request, patience, ExplainSupport::Yes)
    }
}

const NOBODY_ELSE: tty::RemoteAnswerCheck<'static> = &|| false;
const PATIENCE: Duration = Duration::from_secs(60);

fn asked(device: &mut PromptTty<'_>, world: &World) -> Result<OperatorDecision, NoAnswer> {
    let conversation = ApprovalDialog { prompt: world.prompt(PATIENCE), question: None };
    answer(device, &conversation, STYLE).map(|(say, _)| say)
}

#[test]
fn each_key_gives_its_answer() {
    let keys: &[(&[u8], OperatorDecision)] = &[
        (b"o", OperatorDecision::Once),
        (b"s", OperatorDecision::Session(GrantTerms::default())),
        (b"d", OperatorDecision::Deny),
        (b"n", OperatorDecision::Deny),
        (b"o\r", OperatorDecision::Once),
        (b"\r", OperatorDecision::Deny),
        (b"\n", OperatorDecision::Deny),
        (b"\x03", OperatorDecision::Deny),
        (b"\x04", OperatorDecision::Deny),
    ];
    for (key, expected) in keys {
        let pty = Pty::new();
        assert_eq!(&pty.answer(World::make(), READY, &[key]), expected, "{key:?}");
    }
    let pty = Pty::new();
    assert_eq!(pty.answer(World::make(), READY, &[b"a"]), always(0));
    pty.wait_for(1, "always allowed here");
}

fn always(offer: usize) -> OperatorDecision {
    OperatorDecision::AlwaysHere { offer, terms: GrantTerms::default() }
}

#[test]
fn always_lets_choose_among_several_rules() {
    let cargo = || World::offering(3);
    for (number, offer) in [(b"1", 0), (b"2", 1), (b"3", 2)] {
        let pty = Pty::new();
        let asking = pty.ask(cargo(), Duration::from_secs(60));
        pty.wait_for(1, READY);
        pty.type_in(b"a");
        pty.wait_for(1, "which one? [1-3]");
        pty.type_in(number);
        assert_eq!(asking.join().unwrap(), Ok(always(offer)));
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
        assert_eq!(asking.join().unwrap(), Ok(OperatorDecision::Deny), "{back:?}");
    }
}

#[test]
fn what_was_typed_before_the_question_answers_nothing() {
    for (before, meanwhile) in [(&b"o"[..], &b""[..]), (b"", b"o"), (b"o\ryes\rooo", b"oooo"), (b"o\n", b"s")]
    {
        let pty = Pty::new();
        pty.type_in(before);
        let asking = pty.ask(World::make(), Duration::from_secs(60));
        pty.wait_for(1, "end of input deny");
        pty.type_in(meanwhile);
        pty.wait_for(1, READY);
        thread::sleep(Duration::from_millis(100));
        assert!(!asking.is_finished(), "{before:?} {meanwhile:?} {}", pty.seen());
        pty.type_in(b"d");
        assert_eq!(asking.join().unwrap(), Ok(OperatorDecision::Deny));
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
        assert_eq!(answer, OperatorDecision::Session(GrantTerms::default()), "{junk:?}");
    }
    let pty = Pty::new();
    let junk: Vec<&[u8]> = vec![b"x"; 20];
    assert_eq!(pty.answer(World::make(), READY, &junk), OperatorDecision::Deny, "nobody waits for ever");
}

#[test]
fn explain_shows_every_part_and_asks_again() {
    let pty = Pty::new();
    assert_eq!(pty.answer(World::make(), READY, &[b"e", b"o"]), OperatorDecision::Once);
    pty.wait_for(2, READY);
}

#[test]
fn high_risk_takes_nothing_but_the_word() {
    let ready = "shows more) > ";
    let risky = || World::new(&["make test"], Risk::High);
    let lines: &[(&[u8], OperatorDecision)] = &[
        (b"yes\r", OperatorDecision::Once),
        (b"yed\x7fs\r", OperatorDecision::Once),
        (b"y\r", OperatorDecision::Deny),
        (b"o\r", OperatorDecision::Deny),
        (b"YES\r", OperatorDecision::Deny),
        (b"yes please\r", OperatorDecision::Deny),
        (b"yes\xff\r", OperatorDecision::Deny),
        (b"\r", OperatorDecision::Deny),
        (b"yes\x03", OperatorDecision::Deny),
        (b"yes\x04", OperatorDecision::Deny),
        (b"\x1b", OperatorDecision::Deny),
        (b"yesyesyesyesyesyesyesyesyesyesyesyesyesyesyesyes\r", OperatorDecision::Deny),
    ];
    for (line, expected) in lines {
        let pty = Pty::new();
        assert_eq!(&pty.answer(risky(), ready, &[line]), expected, "{line:?}");
    }
    let pty = Pty::new();
    assert_eq!(pty.answer(risky(), ready, &[b"explain\r", b"yes\r"]), OperatorDecision::Once);
    let pty = Pty::new();
    assert_eq!(pty.answer(World::new(&["make"], Risk::Critical), ready, &[b"a\r"]), OperatorDecision::Deny);
}

#[test]
fn silence_is_a_no() {
    let pty = Pty::new();
    let before = pty.mode();
    let start = Instant::now();
    assert_eq!(pty.ask(World::make(), Duration::from_secs(1)).join().unwrap(), Err(NoAnswer::TimedOut));
    assert!(start.elapsed() < Duration::from_secs(30));
    pty.wait_for(1, "no answer: denied");
    same_mode(&before, &pty.mode());
}

#[test]
fn a_terminal_that_goes_away_is_a_no() {
    let (mut master, path) = pair();
    let asking = thread::spawn(move || {
        let mut device = PromptTty::on(tty::open(&path).unwrap(), PATIENCE, NOBODY_ELSE).unwrap();
        asked(&mut device, &World::make())
    });
    let (mut seen, mut buffer) = (Vec::new(), [0; 4096]);
    while !String::from_utf8_lossy(&seen).contains(READY) {
        let length = master.read(&mut buffer).unwrap();
        seen.extend_from_slice(&buffer[..length]);
    }
    let start = Instant::now();
    drop(master);
    assert_eq!(asking.join().unwrap(), Err(NoAnswer::Gone));
    assert!(start.elapsed() < Duration::from_secs(30), "it was the end of the terminal, not of patience");
}

#[test]
fn a_terminal_that_nobody_reads_is_a_no() {
    let (master, path) = pair();
    let mut device = PromptTty::on(tty::open(&path).unwrap(), Duration::from_secs(1), NOBODY_ELSE).unwrap();
    let words = "x".repeat(1_000_000);
    let world = World::new(&["echo", &words], Risk::Medium);
    assert_eq!(device.write(&world.prompt(PATIENCE).render(80, STYLE)), Err(NoAnswer::TimedOut));
    assert_eq!(asked(&mut device, &world), Err(NoAnswer::TimedOut));
    drop(master);
}

#[test]
fn a_raw_terminal_is_asked_properly_and_stays_raw() {
    let pty = Pty::new();
    let mut raw = pty.mode();
    raw.make_raw();
    tcsetattr(&pty.slave, OptionalActions::Now, &raw).unwrap();
    assert_eq!(pty.answer(World::make(), READY, &[b"o"]), OperatorDecision::Once);
    assert!(!pty.mode().output_modes.contains(OutputModes::OPOST));
    pty.wait_for(1, "> allowed once\r\n");
    let seen = pty.seen();
    assert_eq!(seen.matches('\n').count(), seen.matches("\r\n").count(), "{seen:?}");
}

#[test]
fn nothing_is_echoed_and_no_key_is_a_signal_while_it_asks() {
    let pty = Pty::new();
    let asking = pty.ask(World::make(), Duration::from_secs(60));
    pty.wait_for(1, READY);
    let unwanted = LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG;
    assert!(!pty.mode().local_modes.intersects(unwanted));
    pty.type_in(b"\x03");
    assert_eq!(asking.join().unwrap(), Ok(OperatorDecision::Deny));
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
    assert!(pty.seen().contains("\r\nin\r\n  /w/app\r\n"), "narrow terminals wrap: {}", pty.seen());
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
    assert_eq!(asking.join().unwrap(), Ok(OperatorDecision::Once));
}

const MORE: &str = "[d]eny --";

/// 60 lines do not fit into 24 rows.
fn long() -> World {
    let lines: Vec<String> = (0..60).map(|n| format!("echo {n}")).collect();
    World::new(&lines.iter().map(String::as_str).collect::<Vec<_>>(), Risk::Medium)
}

#[test]
fn a_question_longer_than_the_screen_is_answered_behind_its_last_line_alone() {
    let pty = Pty::new();
    let asking = pty.ask(long(), PATIENCE);
    for (index, early) in [&b"o"[..], b"s", b"a", b"o\r", b"e", b"yes\r", b"x"].iter().enumerate() {
        pty.wait_for(index + 1, MORE);
        pty.type_in(early);
        pty.wait_for(index + 1, "not yet: there is more below");
    }
    assert!(!asking.is_finished() && !pty.seen().contains("echo 59"), "{}", pty.seen());
    for screenful in 0..3 {
        pty.wait_for(8 + screenful, MORE);
        assert!(!pty.seen().contains(READY));
        pty.type_in(b" ");
    }
    pty.wait_for(1, READY);
    assert!(pty.seen().contains("echo 59"), "{}", pty.seen());
    pty.type_in(b"o");
    assert_eq!(asking.join().unwrap(), Ok(OperatorDecision::Once));
}

#[test]
fn a_no_is_taken_on_every_screenful() {
    for no in [&b"d"[..], b"n", b"\r", b"\x03", b"\x04"] {
        let pty = Pty::new();
        assert_eq!(pty.answer(long(), MORE, &[b" ", no]), OperatorDecision::Deny, "{no:?}");
        assert!(!pty.seen().contains(READY));
    }
    let pty = Pty::new();
    let junk: Vec<&[u8]> = vec![b"x"; 20];
    assert_eq!(pty.answer(long(), MORE, &junk), OperatorDecision::Deny, "nobody waits for ever");
}

#[test]
fn a_yes_on_the_command_line_is_confirmed_behind_the_last_line_alone() {
    for (keys, expected) in [(&[&b"y"[..], b" ", b" ", b" "][..], true), (&[b"d"], false)] {
        let pty = Pty::new();
        let path = pty.path.clone();
        let asking = thread::spawn(move || {
            let mut device = PromptTty::on(tty::open(&path).unwrap(), PATIENCE, NOBODY_ELSE).unwrap();
            confirm(&mut device, &long().prompt(PATIENCE), "allow it once", STYLE).unwrap()
        });
        for (index, keys) in keys.iter().enumerate() {
            pty.wait_for(index + 1, MORE);
            pty.type_in(keys);
        }
        if expected {
            pty.wait_for(1, "anything else denies > ");
            pty.type_in(b"y");
        }
        assert_eq!(asking.join().unwrap(), expected);
    }
}

#[test]
fn an_answer_after_the_screen_changed_its_size_is_asked_for_again() {
    let pty = Pty::new();
    let asking = pty.ask(World::make(), PATIENCE);
    pty.wait_for(1, READY);
    pty.resize(24, 60);
    pty.type_in(b"o");
    pty.wait_for(2, "ringfence asks");
    pty.wait_for(2, READY);
    assert!(!asking.is_finished());
    pty.type_in(b"o");
    assert_eq!(asking.join().unwrap(), Ok(OperatorDecision::Once));
    let pty = Pty::new();
    let asking = pty.ask(World::make(), PATIENCE);
    pty.wait_for(1, READY);
    pty.resize(24, 60);
    pty.type_in(b"d");
    assert_eq!(asking.join().unwrap(), Ok(OperatorDecision::Deny), "a no is one all the same");
}

#[test]
fn no_line_is_left_for_the_terminal_to_break() {
    let tree = format!("ask: a person\n`- x\n{}\n", "ringfence asks ".repeat(30));
    for line in pages::fitted(&tree, 40).lines().skip(3) {
        assert!(line.starts_with(": ") && line.len() <= 40, "{line}");
    }
}

#[test]
fn without_a_terminal_nobody_is_asked() {
    let not_a_terminal = tempfile::tempfile().unwrap();
    assert!(PromptTty::on(not_a_terminal, PATIENCE, NOBODY_ELSE).is_err());
}

#[test]
fn an_answer_from_elsewhere_ends_the_question() {
    let pty = Pty::new();
    let before = pty.mode();
    let answered = Arc::new(AtomicBool::new(false));
    let (path, flag) = (pty.path.clone(), Arc::clone(&answered));
    let asking = thread::spawn(move || {
        let elsewhere = || flag.load(Ordering::Relaxed);
        let mut device = PromptTty::on(tty::open(&path).unwrap(), PATIENCE, &elsewhere).unwrap();
        asked(&mut device, &World::make())
    });
    pty.wait_for(1, READY);
    answered.store(true, Ordering::Relaxed);
    assert_eq!(asking.join().unwrap(), Err(NoAnswer::Elsewhere));
    same_mode(&before, &pty.mode());
}

#[test]
fn a_reason_is_asked_for_where_it_has_to_be_given() {
    for (typed, expected) in [(&b"it is needed\r"[..], "it is needed"), (b"\r", ""), (b"x\x03", "")] {
        let pty = Pty::new();
        let mut world = World::make();
        world.request.reason_requirement = ReasonRequirement::Required;
        let path = pty.path.clone();
        let asking = thread::spawn(move || {
            let mut device = PromptTty::on(tty::open(&path).unwrap(), PATIENCE, NOBODY_ELSE).unwrap();
            let conversation = ApprovalDialog { prompt: world.prompt(PATIENCE), question: None };
            answer(&mut device, &conversation, STYLE).unwrap()
        });
        pty.wait_for(1, READY);
        pty.type_in(b"o");
        pty.wait_for(1, "why? > ");
        pty.type_in(typed);
        let (say, reason) = asking.join().unwrap();
        match expected {
            "" => assert_eq!((say, reason.as_deref()), (OperatorDecision::Deny, Some("none given"))),
            given => assert_eq!((say, reason.as_deref()), (OperatorDecision::Once, Some(given))),
        }
    }
}

#[test]
fn a_yes_of_the_command_line_is_confirmed_after_everything_was_shown() {
    for (risk, keys, expected) in [
        (Risk::Low, &b"y"[..], true),
        (Risk::Low, b"o", false),
        (Risk::Low, b"\r", false),
        (Risk::Low, b"\x03", false),
        (Risk::High, b"yes\r", true),
        (Risk::High, b"y\r", false),
    ] {
        let pty = Pty::new();
        let path = pty.path.clone();
        let asking = thread::spawn(move || {
            let mut device = PromptTty::on(tty::open(&path).unwrap(), PATIENCE, NOBODY_ELSE).unwrap();
            confirm(&mut device, &World::new(&["it"], risk).prompt(PATIENCE), "allow it once", STYLE).unwrap()
        });
        pty.wait_for(1, "anything else denies > ");
        pty.type_in(keys);
        assert_eq!(asking.join().unwrap(), expected, "{risk} {keys:?}");
        assert!(pty.seen().contains("│ it") && pty.seen().contains("allow it once?"), "{}", pty.seen());
    }
}

fn pair() -> (File, PathBuf) {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let path = PathBuf::from(ptsname(&master, Vec::new()).unwrap().to_str().unwrap());
    (File::from(master), path)
}
