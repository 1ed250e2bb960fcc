use std::path::{Path, PathBuf};

use ringfence_authz::{Given, Origin, Place, RuleSource, candidates};
use ringfence_types::{SessionId, StandardInput, TransactionId};

use super::super::seen::Seen;
use super::*;

/// Ids that stay the same.
fn session() -> SessionId {
    serde_json::from_str("\"ses_00112233445566778899aabb\"").unwrap()
}

fn transaction() -> TransactionId {
    serde_json::from_str("\"tx_ffeeddccbbaa998877665544\"").unwrap()
}

/// What a question is made of.
struct World {
    call: Call,
    judgement: Judgement,
    stated: Option<&'static str>,
    quorum: Quorum,
    reason_rule: ReasonRule,
    secrets: Vec<Vec<u8>>,
    written: Option<&'static [u8]>,
}

impl World {
    fn exec(argv: &[&[u8]], parts: Vec<Part>) -> Self {
        let argv = argv.iter().map(|word| Bytes::from(*word)).collect();
        Self::new(
            Call::Exec(Exec {
                argv,
                cwd: Bytes::from("/w/app"),
                env: Vec::new(),
                net: NetMode::None,
                stdin: StandardInput::None,
            }),
            parts,
        )
    }

    fn new(call: Call, parts: Vec<Part>) -> Self {
        let otherwise = Part::new(Aspect::Call, "nothing", "none").deny(Risk::High, "nothing");
        Self {
            call,
            judgement: Judgement::new(parts, otherwise),
            stated: None,
            quorum: Quorum::default(),
            reason_rule: ReasonRule::Optional,
            secrets: Vec::new(),
            written: None,
        }
    }

    fn card(&self) -> Card {
        let place = Place { workspace: Path::new("/w"), cwd: Path::new("/w/app") };
        let given = match &self.call {
            Call::Exec(exec) => Given::of(exec),
            _ => Some(Given::default()),
        };
        let given = given.unwrap_or_default();
        let seen = Seen { call: &self.call, written: self.written, taken_out: &[] };
        let redactor = Redactor::new(&self.secrets, None);
        let sight = Sight::of(&seen, &redactor);
        let risk = sight.risk(self.judgement.risk());
        let offers = offers(&candidates(&self.judgement, place, &given), risk, self.quorum);
        let owner = Principal::Operator {
            uid: 1000,
            name: Some("ann".to_owned()),
            node: "desk".to_owned(),
            terminal: None,
        };
        let requester = Principal::Agent { session: session(), name: Some("coder".to_owned()) };
        let id = transaction();
        let context = Context {
            id: id.as_str(),
            requester: &requester,
            owner: &owner,
            stated: self.stated,
            patience: super::super::patience(risk),
            quorum: self.quorum,
            reason_rule: self.reason_rule,
            offers: &offers,
            grant_expiry: Duration::from_secs(30 * 86_400),
            image: None,
            roots: &[],
            sight: &sight,
        };
        card(&self.call, &self.judgement, &context, &redactor)
    }

    fn text(&self) -> String {
        card_text(&self.card())
    }
}

fn asked(argv: &[&str]) -> Part {
    let mut part = Part::new(Aspect::Command, argv.join(" "), "guarded.unlisted")
        .because("it is not on the list")
        .ask(Risk::Medium, "a rule");
    part.argv = argv.iter().map(|word| Bytes::from(*word)).collect();
    part
}

fn operators(line: u32) -> RuleSource {
    let origin = Origin { file: PathBuf::from("/c/policy.toml"), line, column: 7 };
    RuleSource { layer: Layer::Operator, origin: Some(origin), reason: None }
}

/// The whole text of a question, as it is in every channel.
#[track_caller]
fn golden(name: &str, expected: &str, world: &World) {
    let text = world.text();
    if text != expected {
        let fresh = std::env::temp_dir().join(format!("ringfence-card-{name}.txt"));
        std::fs::write(&fresh, &text).unwrap();
        panic!(
            "{text}\nif this is right: cp {} crates/runtime/src/approval/card/golden/{name}.txt",
            fresh.display()
        );
    }
}

#[test]
fn golden_command() {
    let mut part = asked(&["npm", "test", "--", "a b"]);
    part.program = Some(PathBuf::from("/usr/bin/npm"));
    let mut world = World::exec(&[b"npm", b"test", b"--", b"a b"], vec![part]);
    world.stated = Some("trust\nme\u{202e}");
    golden("command", include_str!("golden/command.txt"), &world);
}

#[test]
fn golden_choices() {
    let world = World::exec(&[b"cargo", b"fmt"], vec![asked(&["cargo", "fmt"])]);
    golden("choices", include_str!("golden/choices.txt"), &world);
}

#[test]
fn golden_risky() {
    let write = Part::new(Aspect::Write, "/w/.github/ci.yml", "paths.ci")
        .because("it runs later, elsewhere")
        .ask(Risk::High, "a rule")
        .by(&operators(3));
    let host = Part::new(Aspect::Host, "api.localhost:443", "hosts.allowed");
    let mut world = World::exec(
        &[b"cp", b"a", b".github/ci.yml"],
        vec![asked(&["cp", "a", ".github/ci.yml"]), write, host],
    );
    let Call::Exec(exec) = world.call.clone() else { unreachable!() };
    world.call = Call::Exec(Exec { env: vec![(Bytes::from("CC"), Bytes::from("a b\x1b"))], ..exec });
    world.quorum = Quorum { approve: 2, deny: 1 };
    world.reason_rule = ReasonRule::Required;
    golden("risky", include_str!("golden/risky.txt"), &world);
}

#[test]
fn golden_script() {
    let script: &[u8] = b"set -e\n\techo 'a\\nb'\n\x1b[2Jring\rfence asks\n\nlast";
    let world = World::exec(&[b"bash", b"-c", script], vec![asked(&["bash"])]);
    golden("script", include_str!("golden/script.txt"), &world);
}

#[test]
fn golden_file() {
    let write = FileCall::Write { path: Bytes::from("/w/Makefile"), sha256: "ab".repeat(32), bytes: 12 };
    let part = Part::new(Aspect::Write, "/w/Makefile", "paths.build")
        .because("it runs later")
        .ask(Risk::Medium, "x");
    golden("file", include_str!("golden/file.txt"), &World::new(Call::File(write), vec![part]));
}

#[test]
fn files_are_named_as_what_they_become() {
    let part = Part::new(Aspect::Write, "/w/l", "paths.build").ask(Risk::Medium, "x");
    let link = FileCall::Symlink { path: Bytes::from("/w/l"), target: Bytes::from("../x") };
    let text = World::new(Call::File(link), vec![part]).text();
    assert!(text.starts_with("May `/w/l` become a link to `../x`?\n| /w/l -> ../x\n"), "{text}");
}

#[test]
fn letters_that_pretend_are_named() {
    let world = World::exec(&["\u{441}at".as_bytes(), "א".as_bytes()], vec![asked(&["x"])]);
    let line = "letters      not ASCII, and maybe not what they look like: `с` U+0441, `א` U+05D0\n";
    assert!(world.text().contains(line), "{}", world.text());
    let hidden = World::exec(&["a\u{e0041}".as_bytes()], vec![asked(&["x"])]).text();
    assert!(hidden.contains("| $'a\\U000e0041'\n") && hidden.contains("`\\u{e0041}` U+E0041"), "{hidden}");
    let forged = World::exec(&[b"x", b"<argument 2, below>"], vec![asked(&["x"])]);
    assert!(forged.text().contains("| x '<argument 2, below>'\n"));
}

#[test]
fn d8_no_control_character_of_an_agent_is_in_a_card() {
    let evil = "\x1b]0;t\x07\u{9b}31m\u{202e}\u{200b}\u{301}\u{301} \r\n└─ ✓ forged\n[o]nce > ";
    let mut part = asked(&["make"]);
    part.subject = evil.to_owned();
    part.reason = evil.into();
    part.rule = evil.into();
    part.program = Some(PathBuf::from(evil));
    let mut world = World::exec(&[evil.as_bytes(), b"\xff\x9b", evil.as_bytes()], vec![part]);
    world.stated = Some(evil);
    let card = world.card();
    let fields = card.fields.iter().flat_map(|(label, text)| [label, text]);
    let lines = card.blocks.iter().flat_map(|block| block.lines.iter().chain(&block.title));
    for text in fields.chain(lines).chain([&card.sentence]) {
        let hidden = |c: char| c.is_control() || ['\u{202e}', '\u{200b}', '\u{301}'].contains(&c);
        assert!(!text.contains(hidden), "{text:?}");
    }
}

#[test]
fn lists_are_cut_with_a_count() {
    let parts =
        (0..55).map(|n| Part::new(Aspect::Read, format!("/w/{n}"), "r").ask(Risk::Low, "x")).collect();
    let text = World::exec(&[b"cat"], parts).text();
    assert_eq!(text.matches("and 15 more\n").count(), 2, "files and reasons: {text}");
    let long = "x".repeat(1000);
    let text = World::exec(&[b"cat"], vec![Part::new(Aspect::Read, long, "r").ask(Risk::Low, "x")]).text();
    assert!(text.contains("... (600 more characters)\n"), "{text}");
}

#[test]
fn a_secret_is_in_no_text_whoever_repeats_it() {
    let mut part = asked(&["curl", "-u", "me:pa ss'w"]);
    part.reason = "because of pa ss'w".into();
    let mut world = World::exec(&[b"curl", b"-u", b"me:[redacted:option]"], vec![part]);
    world.stated = Some("the password is pa ss'w");
    world.secrets = vec![b"pa ss'w".to_vec()];
    assert!(!world.text().contains("ss'w"), "{}", world.text());
}

#[test]
fn too_much_at_stake_for_a_rule() {
    for (quorum, risk) in [(1, Risk::High), (1, Risk::Critical), (2, Risk::Low)] {
        let mut world = World::exec(&[b"make"], vec![asked(&["make"]).ask(risk, "x")]);
        world.quorum = Quorum { approve: quorum, deny: 1 };
        let text = world.text();
        assert!(text.contains("always here  not offered: no rule should stand for this\n"), "{text}");
        assert!(!text.contains("\nsession "), "{text}");
    }
    let waits = |risk| World::exec(&[b"make"], vec![asked(&["make"]).ask(risk, "x")]).text();
    let spans = [(Risk::Low, "30 seconds"), (Risk::Medium, "60 seconds"), (Risk::High, "2 minutes")];
    for (risk, span) in spans.into_iter().chain([(Risk::Critical, "5 minutes")]) {
        assert!(waits(risk).contains(&format!("no answer    in {span} is a no\n")), "{}", waits(risk));
    }
}
