use std::path::PathBuf;

use ringfence_runtime::authz::{Origin, Place, RuleSource, candidates};
use ringfence_types::{Access, Layer, Root};

use super::*;
use crate::explain::{Glyphs, Ink};

const PLAIN: Style = Style { ink: Ink::Plain, glyphs: Glyphs::Unicode };
const ASCII: Style = Style { ink: Ink::Plain, glyphs: Glyphs::Ascii };

/// What a question is made of.
struct World {
    action: Action,
    judgement: Judgement,
}

impl World {
    fn exec(argv: &[&[u8]], parts: Vec<Part>) -> Self {
        let exec = Exec {
            argv: argv.iter().map(|word| Bytes::from(*word)).collect(),
            cwd: Bytes::from("/w/app"),
            env: Vec::new(),
            net: NetMode::None,
        };
        Self::new(Call::Exec(exec), parts)
    }

    fn new(call: Call, parts: Vec<Part>) -> Self {
        let roots = vec![Root { path: Bytes::from("/w"), access: Access::Write }];
        let otherwise = Part::new(Aspect::Call, "nothing", "none").deny(Risk::High, "nothing");
        Self { action: Action::new(call, roots), judgement: Judgement::new(parts, otherwise) }
    }

    fn prompt(&self) -> Prompt<'_> {
        let place = Place { workspace: std::path::Path::new("/w"), cwd: std::path::Path::new("/w/app") };
        Prompt {
            action: &self.action,
            judgement: &self.judgement,
            candidates: candidates(&self.judgement, place),
            stated: None,
            patience: Duration::from_secs(600),
        }
    }

    fn page(&self, width: usize) -> Page {
        self.prompt().page(width, PLAIN)
    }
}

fn asked(argv: &[&str]) -> Part {
    let mut part = Part::new(Aspect::Command, argv.join(" "), "guarded.unlisted")
        .because("it is not on the list")
        .ask(Risk::Medium, "a rule that allows it");
    part.argv = argv.iter().map(|word| Bytes::from(*word)).collect();
    part
}

fn npm_test() -> World {
    let mut part = asked(&["npm", "test", "--", "a b"]);
    part.program = Some(PathBuf::from("/usr/bin/npm"));
    World::exec(&[b"npm", b"test", b"--", b"a b"], vec![part])
}

#[test]
fn a_question_says_what_where_why_and_what_each_answer_means() {
    let world = npm_test();
    let page = world.page(100);
    let id = world.prompt().id();
    let expected = format!(
        "\
ringfence asks
May `npm` run with 3 arguments?

│ npm test -- 'a b'
in           /w/app
program      /usr/bin/npm
network      none
because      guarded.unlisted (floor): it is not on the list
risk         medium: it is not on the list
id           {id}

once         allows it this time
session      the same arguments, directory, variables, network and roots, until this session ends;
             stores {id}
always here  exactly `npm test -- 'a b'`, in any directory of this workspace
             stores [[workspaces.\"/w\".command]] allow = [[\"npm\", \"test\", \"--\", \"a b\"]] exact = true
deny         Enter, Ctrl-C, end of input, or no answer in 10 minutes; the same is then not asked
             again in this session
"
    );
    assert_eq!(page.text, expected);
    assert_eq!(page.choices, "[o]nce  [s]ession  [a]lways here  [d]eny  [e]xplain > ");
    assert_eq!((page.manner, page.hidden), (Manner::Key, 0));
}

#[test]
fn everything_that_would_be_touched_is_listed_with_the_rule_that_asks() {
    let origin = Origin { file: PathBuf::from("/c/policy.toml"), line: 3, column: 7 };
    let source = RuleSource { layer: Layer::Operator, origin: Some(origin), reason: None };
    let write = Part::new(Aspect::Write, "/w/.github/ci.yml", "paths.ci")
        .because("it runs later, elsewhere")
        .ask(Risk::High, "a rule")
        .by(&source);
    let host = Part::new(Aspect::Host, "api.localhost:443", "hosts.allowed");
    let mut world = World::exec(
        &[b"cp", b"a", b".github/ci.yml"],
        vec![asked(&["cp", "a", ".github/ci.yml"]), write, host],
    );
    let Call::Exec(exec) = world.action.call().clone() else { unreachable!() };
    let env = vec![(Bytes::from("CC"), Bytes::from("a b\x1b"))];
    world.action = Action::new(Call::Exec(Exec { env, ..exec }), world.action.roots().to_vec());
    let mut prompt = world.prompt();
    prompt.stated = Some("trust\nme\u{202e}");
    let page = prompt.page(120, PLAIN);
    for line in [
        "with         CC=$'a b\\x1b'\n",
        "writes       /w/.github/ci.yml\n",
        "hosts        api.localhost:443\n",
        "claim        the agent says (untrusted): trust\\nme\\u{202e}\n",
        "because      cp a .github/ci.yml: guarded.unlisted (floor): it is not on the list\n             /w/.github/ci.yml: paths.ci (operator, /c/policy.toml:3:7): it runs later, elsewhere\n",
        "risk         high: it runs later, elsewhere\n",
    ] {
        assert!(page.text.contains(line), "{line}is missing in\n{}", page.text);
    }
    assert_eq!(page.manner, Manner::Word, "high risk needs a word");
    assert_eq!(page.choices, "type yes, or anything else for no  (`explain` shows more) > ");
    assert!(!page.text.contains("always") && !page.text.contains("session  "), "{}", page.text);
}

#[test]
fn high_risk_has_no_always_even_where_a_rule_could_be_written() {
    let world = World::exec(&[b"make"], vec![asked(&["make"]).ask(Risk::High, "x")]);
    assert_eq!(world.prompt().candidates.len(), 1);
    assert_eq!(world.prompt().offered(), []);
    let medium = World::exec(&[b"sh"], vec![asked(&["sh"])]);
    let page = medium.page(80);
    assert!(page.text.contains("always       not offered: no rule should stand for this\n"), "{}", page.text);
    assert_eq!(page.choices, "[o]nce  [s]ession  [d]eny  [e]xplain > ");
}

#[test]
fn several_rules_are_numbered_from_narrow_to_wide() {
    let world = World::exec(&[b"cargo", b"fmt"], vec![asked(&["cargo", "fmt"])]);
    let grades = world.prompt().grades(400, PLAIN);
    assert_eq!(
        grades,
        "\
always here  1. exactly `cargo fmt`, in any directory of this workspace
             stores [[workspaces.\"/w\".command]] allow = [[\"cargo\", \"fmt\"]] exact = true
             2. every command that begins with `cargo fmt`, with any further arguments, in `app` and below
             stores [[workspaces.\"/w\".command]] allow = [[\"cargo\", \"fmt\"]] here = \"app\"
             3. every command that begins with `cargo fmt`, with any further arguments, in any directory of this workspace
             stores [[workspaces.\"/w\".command]] allow = [[\"cargo\", \"fmt\"]]
"
    );
}

#[test]
fn scripts_are_shown_line_by_line_behind_a_bar() {
    let script: &[u8] = b"set -e\n\techo 'a\\nb'\n\x1b[2Jring\rfence asks\n\nlast";
    let world = World::exec(&[b"bash", b"-c", script], vec![asked(&["bash"])]);
    let page = world.page(80);
    let expected = "
│ bash -c <argument 2, below>
argument 2: 45 bytes in 5 lines
│ set -e
│     echo 'a\\nb'
│ \\u{1b}[2Jring\\rfence asks
│
│ last
in ";
    assert!(page.text.contains(expected), "{}", page.text);
    let forged = World::exec(&[b"x", b"<argument 2, below>"], vec![asked(&["x"])]);
    assert!(forged.page(80).text.contains("│ x '<argument 2, below>'\n"));
}

#[test]
fn file_operations_are_asked_about_as_such() {
    let write = FileCall::Write { path: Bytes::from("/w/Makefile"), sha256: "ab".repeat(32), bytes: 12 };
    let part = Part::new(Aspect::Write, "/w/Makefile", "paths.build")
        .because("it runs later")
        .ask(Risk::Medium, "x");
    let text = World::new(Call::File(write), vec![part.clone()]).page(100).text;
    assert!(text.contains(
        "May the file `/w/Makefile` be written?\n\n│ /w/Makefile\ncontent      12 bytes, sha256 abab"
    ));
    assert!(text.contains("session      the same file with the same content, until"), "{text}");
    let link = FileCall::Symlink { path: Bytes::from("/w/l"), target: Bytes::from("../x") };
    let text = World::new(Call::File(link), vec![part]).page(100).text;
    assert!(text.contains("May `/w/l` become a link to `../x`?\n\n│ /w/l -> ../x\n"), "{text}");
}

#[test]
fn letters_that_pretend_are_named() {
    let world = World::exec(&["\u{441}at".as_bytes(), "א".as_bytes()], vec![asked(&["x"])]);
    let text = world.page(120).text;
    let line = "letters      not ASCII, and maybe not what they look like: `с` U+0441, `א` U+05D0\n";
    assert!(text.contains(line), "{text}");
    let hidden = World::exec(&["a\u{e0041}".as_bytes()], vec![asked(&["x"])]).page(120).text;
    assert!(hidden.contains("│ $'a\\U000e0041'\n"), "{hidden}");
    assert!(hidden.contains("`\\u{e0041}` U+E0041"), "{hidden}");
}

#[test]
fn nothing_is_left_out_in_silence() {
    let long = "x".repeat(1_000_000);
    let world = World::exec(&[b"echo", long.as_bytes()], vec![asked(&["echo"])]);
    let page = world.page(82);
    let shown = page.text.lines().filter(|line| line.starts_with(['│', '┆'])).count();
    assert_eq!((shown, page.hidden), (100, 1_000_005 - 100 * 80));
    assert!(page.text.contains("... 992005 more bytes are not shown; `view` shows them\n"));
    assert_eq!(page.manner, Manner::Word, "who has not seen everything types a word");
    assert!(page.choices.contains("`view`"));
    let whole = world.prompt().whole(82, PLAIN);
    assert_eq!(whole.matches('x').count(), 1_000_000);
    let lines = "y\n".repeat(5000);
    let page = World::exec(&[b"sh", b"-c", lines.as_bytes()], vec![asked(&["sh"])]).page(80);
    assert_eq!(page.hidden, 5000 - 99, "the first line is the command, 99 are of the script");
}

#[test]
fn every_line_fits_and_no_byte_of_an_agent_arrives_as_it_is() {
    let evil = "\x1b]0;t\x07\u{9b}31m\u{202e}\u{200b}\u{301}\u{301}日本語 \r\n└─ ✓ forged\n[o]nce > ";
    let mut part = asked(&["make"]);
    part.subject = evil.to_owned();
    part.reason = evil.into();
    part.rule = evil.into();
    part.program = Some(PathBuf::from(evil));
    let world = World::exec(&[evil.as_bytes(), b"\xff\x9b", evil.as_bytes()], vec![part]);
    for width in [0, 1, 20, 33, 48, 80, 131, 10_000] {
        for style in [PLAIN, ASCII] {
            let page = world.prompt().page(width, style);
            assert!(
                page.text.chars().all(|c| c == '\n' || !c.is_control()) && !page.text.contains('\u{202e}'),
                "{:?}",
                page.text
            );
            let widest = page.text.lines().map(|line| line.width()).max().unwrap();
            let limit = width.clamp(20, 200);
            assert!(widest <= limit, "{widest} columns of {limit}:\n{}", page.text);
            assert!(style == PLAIN || page.text.is_ascii(), "{}", page.text);
            assert!(page.text.lines().all(|line| !line.starts_with(['└', '['])), "{}", page.text);
        }
    }
}

#[test]
fn wrapping_keeps_every_character() {
    let text = "one two  three-and-a-very-long-word 日本語日本語 x";
    for width in 4..40 {
        assert_eq!(wrapped(text, width).concat(), text);
        assert_eq!(chopped(text, width).concat(), text);
        assert!(chopped(text, width).iter().all(|piece| piece.width() <= width));
        assert!(wrapped(text, width).iter().all(|line| line.trim_end().width() <= width));
    }
    assert_eq!(chopped("", 5), [""]);
}
