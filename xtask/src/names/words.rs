//! Words that are no names, and words that are no subject.

/// The states of the pipeline are what a call is at that moment: the only names that are participles.
const STATES: &[&str] = &["received", "authenticated", "decided", "admitted", "running", "settled"];

/// Nouns that end as participles do.
const NOUNS: &[&str] = &[
    "billing", "binding", "ceiling", "embed", "encoding", "feed", "finding", "heading", "keyring", "landing",
    "listing", "logging", "mapping", "pairing", "ping", "pruning", "ring", "ruling", "seed", "setting",
    "speed", "spelling", "string", "thing", "timing", "tracing", "warning",
];

/// Past participles that do not end in `ed`.
const IRREGULAR: &[&str] = &[
    "begun",
    "bound",
    "broken",
    "built",
    "chosen",
    "done",
    "drawn",
    "fallen",
    "found",
    "given",
    "gone",
    "heard",
    "held",
    "hidden",
    "kept",
    "known",
    "left",
    "lost",
    "made",
    "meant",
    "met",
    "overtaken",
    "paid",
    "said",
    "seen",
    "sent",
    "shown",
    "sought",
    "spent",
    "spoken",
    "stolen",
    "taken",
    "thought",
    "told",
    "unmade",
    "unseen",
    "withdrawn",
    "written",
];

/// Actors without a name. Text in backticks is a name of something else, such as the user `nobody`.
const SUBJECTLESS: &[&str] = &["whoever", "somebody", "nobody", "anybody"];

/// Whether a type or a module is called by a participle alone. Before a noun it is an adjective, which is fine.
pub(super) fn is_participle(name: &str) -> bool {
    let one_word = !name.contains('_') && name.chars().skip(1).all(|c| !c.is_ascii_uppercase());
    let word = name.to_ascii_lowercase();
    if !one_word || STATES.contains(&word.as_str()) || NOUNS.contains(&word.as_str()) {
        return false;
    }
    let ending = |end: &str| word.len() > end.len() + 2 && word.ends_with(end);
    ending("ed") || ending("ing") || IRREGULAR.contains(&word.as_str())
}

/// The words of a comment that stand where a subject should.
pub(super) fn subjectless(comment: &str) -> Vec<&'static str> {
    let prose: String = comment.split('`').step_by(2).collect::<Vec<_>>().join(" ");
    let lower = prose.to_ascii_lowercase();
    let said: Vec<&str> = lower.split(|c: char| !c.is_alphanumeric()).collect();
    SUBJECTLESS
        .iter()
        .copied()
        .flat_map(|word| said.iter().filter(move |said| **said == word).map(move |_| word))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn participles_are_told_from_nouns_and_adjectives() {
        for name in ["Asked", "Held", "Told", "Waiting", "launching", "found", "Begun"] {
            assert!(is_participle(name), "{name}");
        }
        for name in [
            "Settled",
            "running",
            "Finding",
            "HeldChange",
            "held_change",
            "Seed",
            "String",
            "Red",
            "Question",
            "Ring",
        ] {
            assert!(!is_participle(name), "{name}");
        }
    }

    #[test]
    fn a_comment_names_its_actor() {
        assert_eq!(subjectless("// Whoever asks, nobody answers."), ["whoever", "nobody"]);
        assert_eq!(subjectless("// The user `nobody` owns it; an operator answers."), Vec::<&str>::new());
    }
}
