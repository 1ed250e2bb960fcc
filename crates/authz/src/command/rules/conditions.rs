//! What a command has to be given for a rule that allows it to hold: variables, standard input and what its session has
//! decide what it does as much as its arguments.

use ringfence_types::{ByteString, ExecCall, StandardInput};

use super::{SessionTerms, Standpoint};

/// Conditions of a rule. Without any it holds whatever is given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleConditions {
    /// Exactly these, each `NAME=value`, sorted.
    pub variables: Option<Vec<String>>,
    /// As [`StandardInput::word`] has it.
    pub stdin: Option<String>,
    /// In a session that has no more than this, and no secret.
    pub session: Option<SessionTerms>,
}

impl RuleConditions {
    /// What an answer was given for that says nothing of it: no variables, nothing to read, nothing but the workspace.
    pub(crate) fn nothing() -> Self {
        Self {
            variables: Some(Vec::new()),
            stdin: StandardInput::None.word(),
            session: Some(SessionTerms::least()),
        }
    }

    /// As the condition of a stored answer: what it does not say was not there when it was given.
    #[must_use]
    pub fn of_answer(self) -> Self {
        let nothing = Self::nothing();
        Self {
            variables: self.variables.or(nothing.variables),
            stdin: self.stdin.or(nothing.stdin),
            session: self.session.or(nothing.session),
        }
    }

    /// What this call is given in a session. `None`: a rule cannot say it, so that none should stand for it.
    pub fn of(exec: &ExecCall, session: SessionTerms) -> Option<Self> {
        // A stored rule would hold for the same command without its ceiling.
        if exec.ceiling.is_some() {
            return None;
        }
        let variables: Option<Vec<String>> = variables(exec).iter().map(readable).collect();
        session.words()?;
        Some(Self { variables: Some(variables?), stdin: Some(exec.stdin.word()?), session: Some(session) })
    }

    /// Whether the call is given what the rule is about.
    pub(super) fn holds(&self, at: &Standpoint<'_>) -> bool {
        *self == Self::default() || self.is_given(at.exec) && self.is_session_of(at)
    }

    /// Whether its session has no more than the rule is about.
    fn is_session_of(&self, at: &Standpoint<'_>) -> bool {
        let Some(terms) = &self.session else { return true };
        let Some(scene) = at.scene else { return false };
        scene.facts.session().secrets.is_empty() && terms.cover(&SessionTerms::of_scene(scene), at.workspace)
    }

    /// `None`: what it is given is not known.
    fn is_given(&self, exec: Option<&ExecCall>) -> bool {
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
fn variables(exec: &ExecCall) -> Vec<ByteString> {
    let merged = crate::env::merge(Vec::new(), &exec.env);
    let mut words: Vec<ByteString> = merged
        .iter()
        .map(|(name, value)| ByteString::from([name.as_slice(), b"=", value.as_slice()].concat()))
        .collect();
    words.sort_by(|one, other| one.as_slice().cmp(other.as_slice()));
    words
}

fn readable(word: &ByteString) -> Option<String> {
    let text = std::str::from_utf8(word.as_slice()).ok()?;
    (word.display() == text).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use ringfence_types::NetMode;

    use super::*;

    fn of(exec: &ExecCall) -> Option<RuleConditions> {
        RuleConditions::of(exec, SessionTerms::least())
    }

    fn exec(env: &[(&str, &str)], stdin: StandardInput) -> ExecCall {
        let env =
            env.iter().map(|(name, value)| (ByteString::from(*name), ByteString::from(*value))).collect();
        ExecCall {
            argv: vec![ByteString::from("tar")],
            cwd: ByteString::from("/w"),
            env,
            ceiling: None,
            net: NetMode::None,
            stdin,
        }
    }

    #[test]
    fn a_stored_answer_holds_for_what_it_was_given_for_and_nothing_else() {
        let plain = exec(&[], StandardInput::None);
        let steered = exec(&[("TAR_OPTIONS", "--checkpoint-action=exec=x")], StandardInput::None);
        let fed = exec(&[], StandardInput::of_bytes(b"--- a\n"));
        let streamed = exec(&[], StandardInput::Stream);
        assert!(RuleConditions::nothing().is_given(Some(&plain)));
        for other in [&steered, &fed, &streamed, &exec(&[], StandardInput::Terminal)] {
            assert!(!RuleConditions::nothing().is_given(Some(other)), "{other:?}");
        }
        assert!(!RuleConditions::nothing().is_given(None));
        assert!(of(&steered).unwrap().is_given(Some(&steered)));
        assert!(!of(&steered).unwrap().is_given(Some(&plain)));
        assert!(of(&fed).unwrap().is_given(Some(&fed)) && !of(&fed).unwrap().is_given(Some(&plain)));
        assert_eq!(of(&streamed), None);
        assert_eq!(of(&exec(&[("A", "\u{202e}")], StandardInput::None)), None);
        let (one, two) = ([("B", "2"), ("A", "1")], [("A", "0"), ("A", "1"), ("B", "2")]);
        assert!(
            of(&exec(&one, StandardInput::None)).unwrap().is_given(Some(&exec(&two, StandardInput::None)))
        );
    }
}
