//! What a command has to be given for a rule that allows it to hold: variables and standard input decide what it does as
//! much as its arguments.

use ringfence_types::{Bytes, Exec, StandardInput};

/// Conditions of a rule. Without any it holds whatever is given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Given {
    /// Exactly these, each `NAME=value`, sorted.
    pub variables: Option<Vec<String>>,
    /// As [`StandardInput::word`] has it.
    pub stdin: Option<String>,
}

impl Given {
    /// What an answer was given for that says nothing of either: no variables and nothing to read.
    pub(crate) fn nothing() -> Self {
        Self { variables: Some(Vec::new()), stdin: StandardInput::None.word() }
    }

    /// As the condition of a stored answer: what it does not say was not there when it was given.
    pub(crate) fn of_answer(self) -> Self {
        let nothing = Self::nothing();
        Self { variables: self.variables.or(nothing.variables), stdin: self.stdin.or(nothing.stdin) }
    }

    /// What this call is given. `None`: a rule cannot say it, so that none should stand for it.
    pub fn of(exec: &Exec) -> Option<Self> {
        let variables: Option<Vec<String>> = variables(exec).iter().map(readable).collect();
        Some(Self { variables: Some(variables?), stdin: Some(exec.stdin.word()?) })
    }

    /// Whether the call is given what the rule is about. `None`: what it is given is not known.
    pub(super) fn holds(&self, exec: Option<&Exec>) -> bool {
        if *self == Self::default() {
            return true;
        }
        let Some(exec) = exec else { return false };
        let wanted = |wanted: &Vec<String>| {
            let given = variables(exec);
            wanted.len() == given.len()
                && wanted.iter().zip(&given).all(|(text, word)| text.as_bytes() == word.as_slice())
        };
        self.variables.as_ref().is_none_or(wanted)
            && self.stdin.as_ref().is_none_or(|word| exec.stdin.is_covered_by(word))
    }
}

/// As the command gets them: the last of several with one name, in the order of their bytes.
fn variables(exec: &Exec) -> Vec<Bytes> {
    let merged = crate::env::merge(Vec::new(), &exec.env);
    let mut words: Vec<Bytes> = merged
        .iter()
        .map(|(name, value)| Bytes::from([name.as_slice(), b"=", value.as_slice()].concat()))
        .collect();
    words.sort_by(|one, other| one.as_slice().cmp(other.as_slice()));
    words
}

fn readable(word: &Bytes) -> Option<String> {
    let text = std::str::from_utf8(word.as_slice()).ok()?;
    (word.display() == text).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use ringfence_types::NetMode;

    use super::*;

    fn exec(env: &[(&str, &str)], stdin: StandardInput) -> Exec {
        let env = env.iter().map(|(name, value)| (Bytes::from(*name), Bytes::from(*value))).collect();
        Exec { argv: vec![Bytes::from("tar")], cwd: Bytes::from("/w"), env, net: NetMode::None, stdin }
    }

    #[test]
    fn a_stored_answer_holds_for_what_it_was_given_for_and_nothing_else() {
        let plain = exec(&[], StandardInput::None);
        let steered = exec(&[("TAR_OPTIONS", "--checkpoint-action=exec=x")], StandardInput::None);
        let fed = exec(&[], StandardInput::of_bytes(b"--- a\n"));
        let streamed = exec(&[], StandardInput::Stream);
        assert!(Given::nothing().holds(Some(&plain)));
        for other in [&steered, &fed, &streamed, &exec(&[], StandardInput::Terminal)] {
            assert!(!Given::nothing().holds(Some(other)), "{other:?}");
        }
        assert!(!Given::nothing().holds(None));
        assert!(Given::of(&steered).unwrap().holds(Some(&steered)));
        assert!(!Given::of(&steered).unwrap().holds(Some(&plain)));
        assert!(Given::of(&fed).unwrap().holds(Some(&fed)) && !Given::of(&fed).unwrap().holds(Some(&plain)));
        assert_eq!(Given::of(&streamed), None);
        assert_eq!(Given::of(&exec(&[("A", "\u{202e}")], StandardInput::None)), None);
        let (one, two) = ([("B", "2"), ("A", "1")], [("A", "0"), ("A", "1"), ("B", "2")]);
        assert!(
            Given::of(&exec(&one, StandardInput::None))
                .unwrap()
                .holds(Some(&exec(&two, StandardInput::None)))
        );
        assert!(Given::default().holds(None) && Given::default().holds(Some(&steered)));
    }
}
