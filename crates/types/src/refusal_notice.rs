//! Refusal notice: a refusal in a form that a model can use. It says what was stopped, by which rule, what the agent can do
//! instead, and what only the user can do.

use std::path::Path;

use serde::Serialize;

use crate::{ByteString, PolicyLayer, Refusal, RefusalCode, RuleId, RuleName};

/// One structured block per refused call.
#[derive(Debug, Serialize)]
pub struct RefusalNotice {
    pub what: String,
    pub why: String,
    pub rule: RuleName,
    pub layer: PolicyLayer,
    pub instead: String,
    pub the_user_can: Option<String>,
}

impl RefusalNotice {
    pub fn of(what: &str, refusal: &Refusal, workspace: Option<&Path>) -> Self {
        // These rules say what the agent can do instead, and a user cannot change the result.
        let own = is_of_hooks(&refusal.rule);
        let instead = refusal.hint.clone().filter(|_| own).unwrap_or_else(|| instead(refusal, workspace));
        let the_user_can = match refusal.rule.id() {
            Some(RuleId::PathBoundary) => {
                Some("add a `[[root]]` entry for it to the operator's policy file".to_owned())
            }
            _ => refusal.hint.clone().filter(|_| !own),
        };
        Self {
            what: what.to_owned(),
            why: refusal.message.clone(),
            rule: refusal.rule.clone(),
            layer: refusal.layer,
            instead,
            the_user_can,
        }
    }

    pub fn text(&self) -> String {
        let mut lines = vec![
            "Ringfence stopped this; nothing was done.".to_owned(),
            format!("what: {}: {}", self.what, self.why),
            format!("rule: {} ({} layer)", self.rule, self.layer),
            format!("instead: {}", self.instead),
        ];
        lines.extend(self.the_user_can.as_ref().map(|hint| format!("the user can: {hint}")));
        lines.push("Do not try another way to the same effect; tell the user if it is needed.".to_owned());
        lines.join("\n")
    }
}

fn is_of_hooks(rule: &RuleName) -> bool {
    use RuleId::{HookCannotRewrite, HookDisabled, HookMalformed, HookSearch, HookUnrecorded};
    matches!(rule.id(), Some(HookCannotRewrite | HookDisabled | HookMalformed | HookSearch | HookUnrecorded))
}

fn instead(refusal: &Refusal, workspace: Option<&Path>) -> String {
    let below =
        workspace.map(|path| format!(" below `{}`", ByteString::from(path).display())).unwrap_or_default();
    match refusal.code {
        RefusalCode::Path => format!("ordinary files{below} can be read and written"),
        RefusalCode::Network => "work without the network, with what is in the workspace".to_owned(),
        RefusalCode::Approval => {
            "do what needs no approval; the user can answer with `ringfence approvals watch` in another terminal"
                .to_owned()
        }
        RefusalCode::Tool => "use the shell or the file tools on the workspace".to_owned(),
        RefusalCode::Loop => "do something else: repeating it does not change the outcome".to_owned(),
        RefusalCode::Malformed => "correct the input of the tool".to_owned(),
        _ => format!("commands that stay inside the fence and files{below}"),
    }
}
