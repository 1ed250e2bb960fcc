//! A no that a model can use: what was stopped, by what, what it can do instead, and what only the person can do.

use std::path::Path;

use serde::Serialize;

use crate::{Bytes, Layer, Refusal, RefusalCode};

/// One structured block per refused call.
#[derive(Debug, Serialize)]
pub struct Denial {
    pub what: String,
    pub why: String,
    pub rule: String,
    pub layer: Layer,
    pub instead: String,
    pub the_user_can: Option<String>,
}

impl Denial {
    pub fn of(what: &str, refusal: &Refusal, workspace: Option<&Path>) -> Self {
        // These know what the agent can do instead, and nobody else can do anything.
        let own = refusal.rule.starts_with("hook.");
        let instead = refusal.hint.clone().filter(|_| own).unwrap_or_else(|| instead(refusal, workspace));
        let the_user_can = match refusal.rule.as_str() {
            "path.boundary" => Some("add a `[[root]]` entry for it to the operator's policy file".to_owned()),
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

fn instead(refusal: &Refusal, workspace: Option<&Path>) -> String {
    let below = workspace.map(|path| format!(" below `{}`", Bytes::from(path).display())).unwrap_or_default();
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
