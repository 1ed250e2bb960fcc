use ringfence_ledger::Timestamp;
use ringfence_types::{
    ActionFingerprint, ApprovalPrompt, ByteString, Call, FileCall, GrantOffer, OfferScope, PolicyLayer,
    Principal, Quorum, RuleId, WorkspaceId,
};

use super::*;
use crate::explain::{Glyphs, TextColor};

const PLAIN: TextStyle = TextStyle { ink: TextColor::Plain, glyphs: Glyphs::Unicode };
const ASCII: TextStyle = TextStyle { ink: TextColor::Plain, glyphs: Glyphs::Ascii };

/// An approval with this text and number of offers.
pub(in crate::approval) fn request(lines: &[&str], offers: usize, risk: Risk) -> ApprovalRequest {
    let call = Call::File(FileCall::Read { path: ByteString::from("x") });
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
        fingerprint: ActionFingerprint::of(&call, &[]),
        call,
        roots: Vec::new(),
        binding: String::new(),
        binding_without_session: None,
        bound_objects: Vec::new(),
        rule: RuleId::PathRule.into(),
        layer: PolicyLayer::Floor,
        reason: String::new(),
        risk,
        expires_at: Timestamp::MAX,
        quorum: Quorum::default(),
        reason_requirement: ReasonRequirement::Optional,
        grant_offers: (0..offers)
            .map(|n| GrantOffer { scope: OfferScope::Exact, permits: n.to_string(), stored: n.to_string() })
            .collect(),
        call_origin: None,
        prompt: ApprovalPrompt {
            sentence: "May `it` run?".to_owned(),
            blocks: vec![QuotedText {
                title: None,
                lines: lines.iter().map(|line| (*line).to_owned()).collect(),
            }],
            fields,
        },
    }
}

fn page(request: &ApprovalRequest, width: usize, style: TextStyle) -> ScreenPage {
    ApprovalScreen::new(request, Duration::from_secs(59), ExplainSupport::Yes).page(width, style)
}

#[test]
fn the_prompt_is_shown_whole_with_what_each_key_does() {
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

             Enter, Ctrl-C and end of input deny
";
    assert_eq!(page.text, expected);
    assert_eq!(page.choices, "[o]nce  [s]ession  [a]lways here  [d]eny  [e]xplain > ");
    assert_eq!(page.manner, ConfirmationMode::Key);
}

#[test]
fn what_is_not_offered_has_no_key() {
    let none = request(&["it"], 0, Risk::Medium);
    assert_eq!(page(&none, 80, PLAIN).choices, "[o]nce  [s]ession  [d]eny  [e]xplain > ");
    let quorum = ApprovalRequest { quorum: Quorum { approve: 2, deny: 1 }, ..none.clone() };
    assert_eq!(page(&quorum, 80, PLAIN).choices, "[o]nce  [d]eny  [e]xplain > ");
    let elsewhere = ApprovalScreen::new(&none, Duration::from_secs(1), ExplainSupport::No).page(80, PLAIN);
    assert_eq!(elsewhere.choices, "[o]nce  [s]ession  [d]eny > ");
}

#[test]
fn much_at_stake_takes_a_word() {
    for risk in [Risk::High, Risk::Critical] {
        let page = page(&request(&["it"], 0, risk), 80, PLAIN);
        assert_eq!(page.manner, ConfirmationMode::Word);
        assert_eq!(page.choices, "type yes to approve, anything else denies  (`explain` shows more) > ");
        assert!(page.text.contains("yes          the whole word and Enter: allows this call once\n"));
    }
}

#[test]
fn nothing_is_left_out_and_much_to_read_takes_a_word() {
    let long = "x".repeat(1_000_000);
    let question = request(&[&long], 0, Risk::Low);
    let page = page(&question, 82, PLAIN);
    assert_eq!(page.text.matches('x').count(), 1_000_000);
    assert_eq!(page.manner, ConfirmationMode::Word);
    let prompt = ApprovalScreen::new(&question, Duration::from_secs(1), ExplainSupport::No);
    assert_eq!(prompt.render(82, PLAIN).matches('x').count(), 1_000_000);
}

/// Wrapped text of an agent at the beginning of a line would read as a field of the prompt.
#[test]
fn a_sentence_that_is_broken_keeps_text_of_an_agent_behind_a_bar() {
    let mut question = request(&["it"], 0, Risk::Low);
    let forged = format!("{}risk         low: nothing happens", "./a ".repeat(40));
    question.prompt.sentence = format!("May `{forged}` run?");
    for width in [14, 20, 40, 47, 48, 79, 80, 100, 200] {
        for style in [PLAIN, ASCII] {
            let page = page(&question, width, style);
            let bar = style.pick("┆ ", ": ");
            let sentence: Vec<&str> = page.text.lines().skip(1).take_while(|line| !line.is_empty()).collect();
            assert!(sentence.len() > 1 || width == 200, "{width}");
            assert!(sentence.iter().skip(1).all(|line| line.starts_with(bar)), "{width}: {}", page.text);
        }
    }
}

#[test]
fn every_line_fits_and_begins_with_something_of_ours() {
    let words = "日本語 and some more words than fit into a line of a narrow terminal";
    let question = request(&[words, "", words], 3, Risk::Low);
    for width in [0, 14, 20, 30, 47, 48, 80, 200, 10_000] {
        let page = page(&question, width, PLAIN);
        for line in page.text.lines() {
            assert!(line.width() <= width.clamp(NARROWEST, 200), "{width}: {line}");
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
