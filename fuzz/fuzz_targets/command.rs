//! Any bytes are judged, every answer is explained, and no text hides what stands before or behind it.
#![no_main]

mod machine;

use libfuzzer_sys::fuzz_target;
use ringfence_types::Decision;

fuzz_target!(|input: &[u8]| {
    let policy = machine::policy();
    if let Some(lines) = input.strip_prefix(b"\n") {
        let argv: Vec<&[u8]> = lines.split(|byte| *byte == b'\n').collect();
        explained(&policy, &argv);
        return;
    }
    explained(&policy, &[b"sh", b"-c", input]);
    let decision = |text: &[u8]| machine::decision(&policy, &[b"sh", b"-c", text]);
    // A backslash at the end takes the line break with it.
    if decision(input) == Decision::Allow && !input.ends_with(b"\\") {
        for text in [[input, b"\nrm x"].concat(), [b"rm x\n", input].concat(), [b"(", input, b"\n); rm x"].concat()] {
            assert_ne!(decision(&text), Decision::Allow, "{}", text.escape_ascii());
        }
    }
});

fn explained(policy: &ringfence_authz::Policy, argv: &[&[u8]]) {
    let Ok(judgement) = machine::judged(policy, argv) else { return };
    for part in judgement.parts() {
        assert!(!part.subject.contains(char::is_control), "{}", part.subject.escape_debug());
        assert!(!part.reason.contains(char::is_control), "{}", part.reason.escape_debug());
        let explained = part.fix.as_ref().is_some_and(|fix| !fix.is_empty()) && !part.reason.is_empty();
        assert!(part.decision == Decision::Allow || explained, "{part:?}");
    }
}
