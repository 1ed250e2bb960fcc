use ringfence_runtime::ledger::Timestamp;
use ringfence_types::{
    Bytes, Call, Card, FileCall, Fingerprint, Layer, Offer, OfferScope, Principal, Quorum, WorkspaceId,
};

use super::*;
use crate::explain::{Glyphs, Ink};

const PLAIN: Style = Style { ink: Ink::Plain, glyphs: Glyphs::Unicode };
const ASCII: Style = Style { ink: Ink::Plain, glyphs: Glyphs::Ascii };

/// A question with this card and so many offers.
pub(in crate::approval) fn request(lines: &[&str], offers: usize, risk: Risk) -> ApprovalRequest {
    let call = Call::File(FileCall::Read { path: Bytes::from("x") });
    let session: ringfence_types::SessionId = serde_json::from_str("\"ses_1\"").unwrap();
    let field = |label: &str, text: &str| (label.to_owned(), text.to_owned());
    let mut fields = vec![field("in", "/w/app"), field("because", "one"), field("because", "two")];
    fields.push(field("risk", "it depends"));
    fields.extend((0..offers).map(|n| field("always here", &format!("{}. rule", n + 1))));
    ApprovalRequest {
        transaction: serde_json::from_str("\"tx_1\"").unwrap(),
        requester: Principal::Agent { session: session.clone(), name: None },
        session,
        workspace: WorkspaceId::of_canonical_path(std::path::Path::new("/w")),
        fingerprint: Fingerprint::of(&call, &[]),
        call,
        roots: Vec::new(),
        binding: String::new(),
        next: None,
        bound: Vec::new(),
        rule: String::new(),
        layer: Layer::Floor,
        reason: String::new(),
        risk,
        expires: Timestamp::MAX,
        quorum: Quorum::default(),
        reason_rule: ReasonRule::Optional,
        offers: (0..offers)
            .map(|n| Offer { scope: OfferScope::Exact, permits: n.to_string(), stored: n.to_string() })
            .collect(),
        by: None,
        card: Card {
            sentence: "May `it` run?".to_owned(),
            blocks: vec![Block { title: None, lines: lines.iter().map(|line| (*line).to_owned()).collect() }],
            fields,
        },
    }
}

fn page(request: &ApprovalRequest, width: usize, style: Style) -> Page {
    Prompt::new(request, Duration::from_secs(59), Explains::Yes).page(width, style)
}

#[test]
fn the_card_is_shown_whole_with_what_each_key_does() {
    let page = page(&request(&["it --now"], 1, Risk::Medium), 100, PLAIN);
    let expected = "\
ringfence asks
May `it` run?

│ it --now
in           /w/app
because      one
             two
risk         it depends
always here  1. rule
time left    59 seconds

             Enter, Ctrl-C and the end of input are a no
";
    assert_eq!(page.text, expected);
    assert_eq!(page.choices, "[o]nce  [s]ession  [a]lways here  [d]eny  [e]xplain > ");
    assert_eq!((page.manner, page.hidden), (Manner::Key, 0));
}

#[test]
fn what_is_not_offered_has_no_key() {
    let none = request(&["it"], 0, Risk::Medium);
    assert_eq!(page(&none, 80, PLAIN).choices, "[o]nce  [s]ession  [d]eny  [e]xplain > ");
    let quorum = ApprovalRequest { quorum: Quorum { approve: 2, deny: 1 }, ..none.clone() };
    assert_eq!(page(&quorum, 80, PLAIN).choices, "[o]nce  [d]eny  [e]xplain > ");
    let elsewhere = Prompt::new(&none, Duration::from_secs(1), Explains::No).page(80, PLAIN);
    assert_eq!(elsewhere.choices, "[o]nce  [s]ession  [d]eny > ");
}

#[test]
fn much_at_stake_takes_a_word() {
    for risk in [Risk::High, Risk::Critical] {
        let page = page(&request(&["it"], 0, risk), 80, PLAIN);
        assert_eq!(page.manner, Manner::Word);
        assert_eq!(page.choices, "type yes, or anything else for no  (`explain` shows more) > ");
        assert!(page.text.contains("yes          the whole word and Enter: allows it this time\n"));
    }
}

#[test]
fn nothing_is_left_out_in_silence() {
    let long = "x".repeat(1_000_000);
    let question = request(&[&long], 0, Risk::Low);
    let page = page(&question, 82, PLAIN);
    let shown = page.text.lines().filter(|line| line.starts_with(['│', '┆'])).count();
    assert_eq!((shown, page.hidden), (100, 1_000_000 - 100 * 80));
    assert!(page.text.contains("... 992000 more bytes are not shown; `view` shows them\n"));
    assert_eq!(page.manner, Manner::Word, "who has not seen everything types a word");
    assert!(page.choices.contains("`view`"));
    let prompt = Prompt::new(&question, Duration::from_secs(1), Explains::No);
    assert_eq!(prompt.whole(82, PLAIN).matches('x').count(), 1_000_000);
    assert_eq!(prompt.card(82, PLAIN).matches('x').count(), 1_000_000);
}

#[test]
fn every_line_fits_and_begins_with_something_of_ours() {
    let words = "日本語 and some more words than fit into a line of a narrow terminal";
    let question = request(&[words, "", words], 3, Risk::Low);
    for width in [0, 20, 30, 47, 48, 80, 200, 10_000] {
        let page = page(&question, width, PLAIN);
        for line in page.text.lines() {
            assert!(line.width() <= width.clamp(20, 200), "{width}: {line}");
        }
        let blocks = page.text.lines().filter(|line| line.contains("日本") || line.contains("terminal"));
        assert!(blocks.clone().count() > 0);
        assert!(blocks.into_iter().all(|line| line.starts_with(['│', '┆'])), "{}", page.text);
    }
    let ascii = page(&question, 80, ASCII);
    assert!(ascii.text.is_ascii() && ascii.text.contains("| \\u{65e5}"), "{}", ascii.text);
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
