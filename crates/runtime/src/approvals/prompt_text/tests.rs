use std::path::{Path, PathBuf};

use ringfence_authz::{ActionLocation, RuleConditions, RuleLocation, RuleSource, SessionTerms, candidates};
use ringfence_types::{
    Access, RuleFamily, RuleId, RuleName, SecretReach, SecretUse, SessionId, StandardInput, TransactionId,
};

use super::super::prompt_content::{Excerpt, PromptCall, WrittenContent};
use super::*;

/// Fixed ids.
fn session() -> SessionId {
    serde_json::from_str("\"ses_00112233445566778899aabb\"").unwrap()
}

fn transaction() -> TransactionId {
    serde_json::from_str("\"tx_ffeeddccbbaa998877665544\"").unwrap()
}

/// Input of a prompt.
struct World {
    call: Call,
    judgement: Judgement,
    stated: Option<&'static str>,
    quorum: Quorum,
    reason_rule: ReasonRequirement,
    secrets: Vec<Vec<u8>>,
    written: Option<WrittenContent<'static>>,
    roots: Vec<Root>,
    /// Secrets that the session was given.
    given: Vec<SecretUse>,
}

impl World {
    fn exec(argv: &[&[u8]], parts: Vec<JudgementPart>) -> Self {
        let argv = argv.iter().map(|word| ByteString::from(*word)).collect();
        Self::new(
            Call::Exec(ExecCall {
                argv,
                cwd: ByteString::from("/w/app"),
                env: Vec::new(),
                ceiling: None,
                net: NetMode::None,
                stdin: StandardInput::None,
            }),
            parts,
        )
    }

    fn new(call: Call, parts: Vec<JudgementPart>) -> Self {
        let otherwise =
            JudgementPart::new(PartKind::Call, "nothing", RuleId::CallEmpty).deny(Risk::High, "nothing");
        Self {
            call,
            judgement: Judgement::new(parts, otherwise),
            stated: None,
            quorum: Quorum::default(),
            reason_rule: ReasonRequirement::Optional,
            secrets: Vec::new(),
            written: None,
            roots: Vec::new(),
            given: Vec::new(),
        }
    }

    fn terms(&self) -> SessionTerms {
        SessionTerms {
            net: NetMode::None,
            hosts: Vec::new(),
            workspace: Access::Write,
            roots: self.roots.iter().skip(1).cloned().collect(),
            agent: None,
            image: None,
        }
    }

    fn prompt(&self) -> ApprovalPrompt {
        let place = ActionLocation { workspace: Path::new("/w"), cwd: Path::new("/w/app") };
        let given = match &self.call {
            Call::Exec(exec) => RuleConditions::of(exec, self.terms()),
            _ => Some(RuleConditions::default()),
        };
        let given = given.unwrap_or_default();
        let seen = PromptCall {
            call: &self.call,
            written: self.written,
            taken_out: &[],
            unbound: 0,
            rewritten: &std::collections::BTreeSet::new(),
            absent: &std::collections::BTreeSet::new(),
            secrets: &self.given,
            stated: self.stated,
        };
        let redactor = PromptRedactor::new(&self.secrets, None);
        let content = PromptContent::of(&seen, &redactor);
        let risk = content.risk(self.judgement.risk());
        let offers = offers(&candidates(&self.judgement, place, &given), risk, self.quorum);
        let owner = Principal::Operator {
            uid: 1000,
            name: Some("ann".to_owned()),
            node: "desk".to_owned(),
            terminal: None,
        };
        let requester = Principal::Agent { session: session(), name: Some("coder".to_owned()) };
        let id = transaction();
        let context = PromptContext {
            id: id.as_str(),
            requester: &requester,
            owner: &owner,
            stated: self.stated,
            patience: super::super::patience(risk),
            quorum: self.quorum,
            reason_rule: self.reason_rule,
            offers: &offers,
            grant_lifetime: Duration::from_secs(30 * 86_400),
            image: None,
            roots: &self.roots,
            secrets: &self.given,
            content: &content,
        };
        prompt(&self.call, &self.judgement, &context, &redactor)
    }

    fn text(&self) -> String {
        render_prompt(&self.prompt())
    }
}

fn asked(argv: &[&str]) -> JudgementPart {
    let mut part = JudgementPart::new(PartKind::Command, argv.join(" "), RuleId::GuardedUnlisted)
        .because("it is not on the list")
        .ask(Risk::Medium, "a rule");
    part.argv = argv.iter().map(|word| ByteString::from(*word)).collect();
    part
}

fn operators(line: u32) -> RuleSource {
    let origin = RuleLocation { file: PathBuf::from("/c/policy.toml"), line, column: 7 };
    RuleSource { layer: PolicyLayer::Operator, origin: Some(origin), reason: None }
}

/// Compares the full text of a prompt.
#[track_caller]
fn golden(name: &str, expected: &str, world: &World) {
    let text = world.text();
    if text != expected {
        let fresh = std::env::temp_dir().join(format!("ringfence-prompt-{name}.txt"));
        std::fs::write(&fresh, &text).unwrap();
        panic!(
            "{text}\nif this is right: cp {} crates/runtime/src/approvals/prompt_text/golden/{name}.txt",
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
    let write = JudgementPart::new(PartKind::Write, "/w/.github/ci.yml", RuleId::PathCi)
        .because("it runs later, elsewhere")
        .ask(Risk::High, "a rule")
        .by(&operators(3));
    let host = JudgementPart::new(PartKind::Host, "api.localhost:443", RuleFamily::Hosts.member("allowed"));
    let mut world = World::exec(
        &[b"cp", b"a", b".github/ci.yml"],
        vec![asked(&["cp", "a", ".github/ci.yml"]), write, host],
    );
    let Call::Exec(exec) = world.call.clone() else { unreachable!() };
    world.call =
        Call::Exec(ExecCall { env: vec![(ByteString::from("CC"), ByteString::from("a b\x1b"))], ..exec });
    world.quorum = Quorum { approve: 2, deny: 1 };
    world.reason_rule = ReasonRequirement::Required;
    golden("risky", include_str!("golden/risky.txt"), &world);
}

#[test]
fn golden_script() {
    let script: &[u8] = b"set -e\n\techo 'a\\nb'\n\x1b[2Jring\rfence asks\n\nlast";
    let world = World::exec(&[b"bash", b"-c", script], vec![asked(&["bash"])]);
    golden("script", include_str!("golden/script.txt"), &world);
}

#[test]
fn golden_secret() {
    let mut world = World::exec(&[b"make", b"all"], vec![asked(&["make", "all"])]);
    let root = |path: &str, access| Root { path: ByteString::from(path), access };
    world.roots = vec![root("/w", Access::Read), root("/other", Access::Write)];
    world.given = vec![
        SecretUse { name: "tok".to_owned(), reach: SecretReach::Inside },
        SecretUse { name: "key".to_owned(), reach: SecretReach::Proxy },
    ];
    golden("secret", include_str!("golden/secret.txt"), &world);
}

#[test]
fn golden_roots() {
    let mut world = World::exec(&[b"make", b"all"], vec![asked(&["make", "all"])]);
    let root = |path: &str| Root { path: ByteString::from(path), access: Access::Write };
    world.roots = vec![root("/w"), root("/other")];
    golden("roots", include_str!("golden/roots.txt"), &world);
}

#[test]
fn two_programs_never_look_the_same() {
    let lines: &[&[u8]] = &[
        b"true <<-E\n    E\ntouch x\nE\n",
        b"true <<-E   \n    E\ntouch x\nE\n",
        b"true <<-E\n\tE\ntouch x\nE\n",
        b"true <<-E   \n\tE\ntouch x\nE\n",
        "true <<-E\n\u{21e5}   E\ntouch x\nE\n".as_bytes(),
        "true <<-E\u{b7}\u{b7}\u{b7}\n    E\ntouch x\nE\n".as_bytes(),
        b"a\n\x1b",
        b"a\n\\u{1b}",
        b"a\n\\\\u{1b}",
        b"a\n\r",
        b"a\n\\r",
        b"a\n\\",
        b"a\n\\\\",
        b"a\n\xff",
        b"a\n\\xff",
    ];
    let shown = |line: &[u8]| {
        let text = World::exec(&[b"perl", b"-e", line], vec![asked(&["perl"])]).text();
        // Without what says how long it is: the lines themselves differ.
        let body = text.lines().filter(|line| line.starts_with('|')).map(str::trim_end);
        body.collect::<Vec<_>>().join("\n")
    };
    for (index, one) in lines.iter().enumerate() {
        for other in lines.iter().skip(index + 1) {
            assert_ne!(shown(one), shown(other), "{one:?} {other:?}");
        }
    }
}

#[test]
fn golden_file() {
    let write = FileCall::Write { path: ByteString::from("/w/Makefile"), sha256: "ab".repeat(32), bytes: 12 };
    let part = JudgementPart::new(PartKind::Write, "/w/Makefile", RuleId::PathBuildScript)
        .because("it runs later")
        .ask(Risk::Medium, "x");
    golden("file", include_str!("golden/file.txt"), &World::new(Call::File(write), vec![part]));
}

#[test]
fn files_are_named_as_what_they_become() {
    let part = JudgementPart::new(PartKind::Write, "/w/l", RuleId::PathBuildScript).ask(Risk::Medium, "x");
    let link = FileCall::Symlink { path: ByteString::from("/w/l"), target: ByteString::from("../x") };
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
fn d8_no_control_character_of_an_agent_is_in_a_prompt() {
    let evil = "\x1b]0;t\x07\u{9b}31m\u{202e}\u{200b}\u{301}\u{301} \r\n└─ ✓ forged\n[o]nce > ";
    let mut part = asked(&["make"]);
    part.subject = evil.to_owned();
    part.reason = evil.into();
    part.rule = RuleName::of_scanner(evil);
    part.program = Some(PathBuf::from(evil));
    let mut world = World::exec(&[evil.as_bytes(), b"\xff\x9b", evil.as_bytes()], vec![part]);
    world.stated = Some(evil);
    let prompt = world.prompt();
    let fields = prompt.fields.iter().flat_map(|(label, text)| [label, text]);
    let lines = prompt.blocks.iter().flat_map(|block| block.lines.iter().chain(&block.title));
    for text in fields.chain(lines).chain([&prompt.sentence]) {
        let hidden = |c: char| c.is_control() || ['\u{202e}', '\u{200b}', '\u{301}'].contains(&c);
        assert!(!text.contains(hidden), "{text:?}");
    }
}

#[test]
fn lists_are_cut_with_a_count() {
    let parts = (0..55)
        .map(|n| JudgementPart::new(PartKind::Read, format!("/w/{n}"), RuleId::PathRule).ask(Risk::Low, "x"))
        .collect();
    let text = World::exec(&[b"cat"], parts).text();
    assert_eq!(text.matches("and 15 more\n").count(), 2, "files and reasons: {text}");
    let long = "x".repeat(1000);
    let text = World::exec(
        &[b"cat"],
        vec![JudgementPart::new(PartKind::Read, long, RuleId::PathRule).ask(Risk::Low, "x")],
    )
    .text();
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
        assert!(text.contains("always here  not offered: no rule is safe for this\n"), "{text}");
        assert!(!text.contains("\nsession "), "{text}");
    }
    let waits = |risk| World::exec(&[b"make"], vec![asked(&["make"]).ask(risk, "x")]).text();
    let spans = [(Risk::Low, "30 seconds"), (Risk::Medium, "60 seconds"), (Risk::High, "2 minutes")];
    for (risk, span) in spans.into_iter().chain([(Risk::Critical, "5 minutes")]) {
        assert!(waits(risk).contains(&format!("no answer    denied after {span}\n")), "{}", waits(risk));
    }
}

/// Redaction shortens the head. The content behind the head is still hidden.
#[test]
fn a_head_that_redaction_made_shorter_hides_nothing_in_silence() {
    let whole = (StandardInput::HEAD + 10) as u64;
    let mut world = World::exec(&[b"patch"], vec![asked(&["patch"])]);
    let Call::Exec(exec) = world.call.clone() else { unreachable!() };
    let stdin = |bytes| StandardInput::Bytes {
        sha256: "ab".repeat(32),
        bytes,
        head: ByteString::from("token=[redacted]\nrm"),
    };
    world.call = Call::Exec(ExecCall { stdin: stdin(whole), ..exec.clone() });
    let text = world.text();
    assert!(text.contains("not shown    standard input: only the first 19 of 65546 bytes"), "{text}");
    assert!(text.contains("risk         critical"), "{text}");
    world.call = Call::Exec(ExecCall { stdin: stdin(19), ..exec });
    assert!(!world.text().contains("not shown"), "control: {}", world.text());
}

#[test]
fn lines_without_anything_in_them_take_room_as_well() {
    let empty = vec![b'\n'; 300_000];
    let script = [b"true".as_slice(), &empty, b"rm -rf precious"].concat();
    let prompt = World::exec(&[b"sh", b"-c", &script], vec![asked(&["sh"])]).prompt();
    let lines: usize = prompt.blocks.iter().map(|block| block.lines.len()).sum();
    assert!(lines < 60_000, "{lines}");
    let text = render_prompt(&prompt);
    assert!(text.contains("not shown") && text.contains("risk         critical"), "the end is not there");
    let many: Vec<&[u8]> = std::iter::repeat_n(&b"a\nb"[..], 20_000).collect();
    let prompt = World::exec(&many, vec![asked(&["a"])]).prompt();
    assert!(
        prompt.blocks.len() < 3000 && prompt.fields.len() < 100,
        "{} {}",
        prompt.blocks.len(),
        prompt.fields.len()
    );
}

#[test]
fn a_name_in_the_sentence_is_short_and_whole_below_it() {
    let forged = format!("./{} risk         low: nothing", "a".repeat(200));
    let world = World::exec(&[forged.as_bytes()], vec![asked(&["x"])]);
    let prompt = world.prompt();
    assert!(
        prompt.sentence.len() < 120 && prompt.sentence.contains("more characters)"),
        "{}",
        prompt.sentence
    );
    assert!(prompt.blocks[0].lines[0].contains(&forged), "{:?}", prompt.blocks[0]);
}

#[test]
fn a_proposal_is_shown_as_what_it_changes() {
    let file = ringfence_types::PatchedFile {
        path: ByteString::from(".github/ci.yml"),
        base: None,
        result: Some("cd".repeat(32)),
        bytes: 6,
        secrets: Vec::new(),
    };
    let part =
        JudgementPart::new(PartKind::Write, "/w/.github/ci.yml", RuleId::PathCi).ask(Risk::Medium, "x");
    let mut world = World::new(Call::Apply(ringfence_types::Patch { files: vec![file] }), vec![part]);
    let sha256: &'static str = "0011";
    let head: &'static [u8] = b"+++ b/.github/ci.yml\n+run: \x1b[2Jevil\xd0\xb0\n";
    world.written = Some(WrittenContent::Changes(Excerpt { head, bytes: head.len() as u64, sha256 }));
    let text = world.text();
    assert!(text.contains("| .github/ci.yml\nchanges: "), "{text}");
    assert!(text.contains("sha256 0011\n| +++ b/.github/ci.yml\n| +run: \\u{1b}[2Jevil\u{430}\n"), "{text}");
    assert!(text.contains("U+0430") && !text.contains("not shown"), "{text}");
    world.written = Some(WrittenContent::Changes(Excerpt { head, bytes: 1 << 20, sha256 }));
    let text = world.text();
    assert!(text.contains("of 1048576 bytes are shown; sha256 of all: 0011"), "{text}");
    assert!(text.contains("risk         critical"), "{text}");
    world.written = Some(WrittenContent::Unknown("it is gone"));
    let text = world.text();
    assert!(text.contains("cannot be read: it is gone") && text.contains("risk         critical"), "{text}");
}
