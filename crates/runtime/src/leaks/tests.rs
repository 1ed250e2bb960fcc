use base64::Engine as _;
use proptest::prelude::*;
use ringfence_sandbox::{FilterAction, IdleSpan, StreamFilter as _};
use ringfence_types::{PolicyLayer, RefusalCode, RuleId};
use zeroize::Zeroizing;

use super::*;
use crate::secrets::{NewSecret, SecretScope, SecretStore, SecretValue};

const VALUE: &str = "hunter2-hunter2";

fn token() -> String {
    format!("{}{}x", concat!("gh", "p_"), "A1b2".repeat(9))
}

fn known(state: &Path, secrets: &[(&str, &str)]) -> LeakScanner {
    let store = SecretStore::new(state);
    let secret = |(name, value): &(&str, &str)| NewSecret {
        name: name.parse().unwrap(),
        value: SecretValue::new(Zeroizing::new(value.as_bytes().to_vec())).unwrap(),
        class: ringfence_types::SecretClass::Tool,
        deliver: None,
        scope: SecretScope::default(),
        variable: None,
        hosts: Vec::new(),
        credential_locations: Vec::new(),
    };
    if !secrets.is_empty() {
        store.add(secrets.iter().map(secret).collect()).unwrap().make().unwrap();
    }
    LeakScanner::of_state(&store.read().unwrap(), state)
}

fn actions(stored: LeakAction, shapes: LeakAction) -> SinkActions {
    SinkActions { stored, shapes }
}

/// The filter's output for these chunks, with a pause after each if `quiet` is set.
fn filtered(filter: &mut OutputFilter, chunks: &[&[u8]], quiet: Option<IdleSpan>) -> (Vec<u8>, FilterAction) {
    let mut out = Vec::new();
    for chunk in chunks {
        let mut flow = filter.push(chunk, &mut out);
        if let (FilterAction::On, Some(quiet)) = (flow, quiet) {
            flow = filter.pause(quiet, &mut out);
        }
        if flow != FilterAction::On {
            return (out, flow);
        }
    }
    let flow = filter.finish(&mut out);
    (out, flow)
}

#[test]
fn s000_36_values_are_replaced_by_the_name_of_their_secret() {
    let state = tempfile::tempdir().unwrap();
    let leaks = known(state.path(), &[("LONG", "abcdefgh-1234"), ("PART", "abcdefgh"), ("TINY", "ab")]);
    assert_eq!(leaks.text("x abcdefgh-1234 y"), "x [redacted:secret/LONG] y");
    assert_eq!(leaks.text("abcdefghabcdefgh"), "[redacted:secret/PART]".repeat(2));
    assert_eq!(leaks.text("abc ABCDEFGH"), "abc ABCDEFGH");
    let nothing = tempfile::tempdir().unwrap();
    assert_eq!(known(nothing.path(), &[]).text("abcdefgh"), "abcdefgh");
    let encoded = base64::engine::general_purpose::STANDARD.encode("so abcdefgh-1234 it is");
    assert!(leaks.text(&format!("see {encoded}")).contains("[redacted:secret/LONG]"));
}

#[test]
fn a_refusal_has_no_value_in_it() {
    let state = tempfile::tempdir().unwrap();
    let leaks = known(state.path(), &[("ONE", VALUE)]);
    let refusal = leaks.refusal(&Refusal {
        code: RefusalCode::Path,
        layer: PolicyLayer::Floor,
        rule: RuleId::PathRule.into(),
        message: format!("`{VALUE}`"),
        hint: Some(format!("not {VALUE}")),
    });
    assert!(!refusal.message.contains("hunter2") && !refusal.hint.unwrap().contains("hunter2"));
}

#[test]
fn each_kind_has_its_own_action() {
    let state = tempfile::tempdir().unwrap();
    let leaks = known(state.path(), &[("ONE", VALUE)]);
    let text = format!("a {VALUE} b {} c\n", token());
    let mut filter = OutputFilter::new(&leaks, actions(LeakAction::Redact, LeakAction::Flag), "stdout");
    let (out, flow) = filtered(&mut filter, &[text.as_bytes()], None);
    assert_eq!(String::from_utf8(out).unwrap(), format!("a [redacted:secret/ONE] b {} c\n", token()));
    assert_eq!(flow, FilterAction::On);
    let leaked = filter.tally().leaked();
    let kinds: Vec<_> =
        leaked.iter().map(|leaked| (leaked.action, leaked.findings[0].rule.as_str())).collect();
    assert_eq!(kinds, [(LeakAction::Flag, "github-token"), (LeakAction::Redact, "secret/ONE")]);
    assert_eq!(leaked[1].findings[0].location, "stdout:2");
}

#[test]
fn nothing_follows_what_is_blocked() {
    let state = tempfile::tempdir().unwrap();
    let leaks = known(state.path(), &[("ONE", VALUE)]);
    for (action, expected) in
        [(LeakAction::Block, FilterAction::Shut), (LeakAction::Terminate, FilterAction::Kill)]
    {
        let mut filter = OutputFilter::new(&leaks, actions(action, LeakAction::Flag), "stdout");
        let text = format!("before {VALUE} after {VALUE}");
        let (out, flow) = filtered(&mut filter, &[text.as_bytes()], Some(IdleSpan::Briefly));
        let out = String::from_utf8(out).unwrap();
        assert_eq!(out, "before [redacted:secret/ONE]\n[ringfence: stdout ends here]\n");
        assert_eq!(flow, expected);
        assert_eq!(filter.tally().leaked()[0].findings.len(), 1);
    }
}

#[test]
fn a_prompt_is_given_out_after_a_long_pause_and_most_of_a_stored_value_is_not() {
    let state = tempfile::tempdir().unwrap();
    let leaks = known(state.path(), &[("ONE", VALUE)]);
    let redact = actions(LeakAction::Redact, LeakAction::Redact);
    for prompt in ["api_key=", "see aGVsbG8gd29ybGQgaGVs", "Password:", "ghp_"] {
        let mut filter = OutputFilter::new(&leaks, redact, "stdout");
        let mut out = Vec::new();
        filter.push(prompt.as_bytes(), &mut out);
        filter.pause(IdleSpan::Briefly, &mut out);
        filter.pause(IdleSpan::Long, &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), prompt);
    }
    let mut filter = OutputFilter::new(&leaks, redact, "stdout");
    let bytes: Vec<&[u8]> = VALUE.as_bytes().chunks(1).collect();
    let (out, _) = filtered(&mut filter, &bytes, Some(IdleSpan::Long));
    assert_eq!(String::from_utf8(out).unwrap(), "hunter2[redacted:secret/ONE]", "a letter at a time");
}

#[test]
fn what_is_allowed_passes_and_what_is_stored_cannot_be() {
    let state = tempfile::tempdir().unwrap();
    let list = "version = 1\nsalt = \"a salt of this test\"\n[[allow]]\npath = \"**\"\nreason = \"x\"\nexpires = \"9999-01-01\"\n";
    let store = SecretStore::new(state.path());
    drop(known(state.path(), &[("ONE", VALUE)]));
    let allowed =
        AllowlistState { list: Allowlist::parse(list).unwrap(), today: jiff::civil::date(2026, 1, 1) };
    let leaks = LeakScanner::new(&store.read().unwrap(), state.path(), Some(allowed));
    let mut filter = OutputFilter::new(&leaks, actions(LeakAction::Redact, LeakAction::Redact), "stdout");
    let text = format!("{} {VALUE}\n", token());
    let (out, _) = filtered(&mut filter, &[text.as_bytes()], None);
    assert_eq!(String::from_utf8(out).unwrap(), format!("{} [redacted:secret/ONE]\n", token()));
    assert_eq!(filter.tally().leaked().len(), 1);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn any_chunking_gives_what_the_whole_gives(
        parts in proptest::collection::vec(prop_oneof![
            Just(VALUE.as_bytes().to_vec()),
            Just(token().into_bytes()),
            Just(base64::engine::general_purpose::STANDARD.encode(VALUE).into_bytes()),
            proptest::collection::vec(any::<u8>(), 0..300),
            Just(b" some words of prose\n".repeat(200)),
        ], 0..8),
        sizes in proptest::collection::vec(1_usize..5000, 1..20),
        flagged in any::<bool>(),
    ) {
        let state = tempfile::tempdir().unwrap();
        let leaks = known(state.path(), &[("ONE", VALUE)]);
        let input = parts.join(&b' ');
        let shapes = if flagged { LeakAction::Flag } else { LeakAction::Redact };
        let filter = || OutputFilter::new(&leaks, actions(LeakAction::Redact, shapes), "stdout");
        let mut whole = filter();
        let expected = filtered(&mut whole, &[&input], None).0;
        let mut rest = input.as_slice();
        let mut chunks = Vec::new();
        for size in sizes.iter().cycle() {
            if rest.is_empty() { break }
            let (chunk, later) = rest.split_at((*size).min(rest.len()));
            chunks.push(chunk);
            rest = later;
        }
        let mut cut = filter();
        prop_assert_eq!(&filtered(&mut cut, &chunks, None).0, &expected);
        prop_assert_eq!(whole.tally().leaked(), cut.tally().leaked());
        let mut paused = filter();
        let out = filtered(&mut paused, &chunks, Some(IdleSpan::Briefly)).0;
        prop_assert!(memchr::memmem::find(&out, VALUE.as_bytes()).is_none());
    }
}
