//! What a session gives to each of its commands: an answer that was given for less is not one for more.

use std::path::Path;

use ringfence_types::{Access, ByteString, NetMode, Root};

use crate::eval_context::EvalContext;
use crate::host_facts::SessionFacts;
use crate::policy::Policy;

/// Network, roots, agent and image of a session. Secrets are not among them: no stored answer is for a command with one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionTerms {
    pub net: NetMode,
    /// Hosts that the command line opens, sorted.
    pub hosts: Vec<String>,
    /// Of the workspace itself.
    pub workspace: Access,
    /// All roots but the workspace.
    pub roots: Vec<Root>,
    pub agent: Option<String>,
    pub image: Option<String>,
}

/// A word of `with` that means nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is nothing that a session has", ByteString::from(self.0.as_str()).display())]
pub struct SessionTermError(pub String);

impl SessionTerms {
    /// What an answer that states nothing was given for.
    pub(crate) fn least() -> Self {
        Self {
            net: NetMode::None,
            hosts: Vec::new(),
            workspace: Access::Write,
            roots: Vec::new(),
            agent: None,
            image: None,
        }
    }

    pub(crate) fn of(policy: &Policy, net: NetMode, roots: &[Root], session: &SessionFacts) -> Self {
        let (workspace, others) = match roots {
            [workspace, others @ ..] => (workspace.access, others.to_vec()),
            [] => (Access::None, Vec::new()),
        };
        let hosts = if net == NetMode::Filtered { policy.rules.hosts.of_flags() } else { Vec::new() };
        let (agent, image) = (session.agent.clone(), session.image.clone());
        Self { net, hosts, workspace, roots: others, agent, image }
    }

    pub(super) fn of_scene(scene: &EvalContext<'_>) -> Self {
        let permissions = scene.permissions;
        Self::of(scene.policy, permissions.net, &permissions.roots, &scene.facts.session())
    }

    /// Whether an answer for these terms is one for `actual`, which may be less.
    pub(super) fn cover(&self, actual: &Self, workspace: &Path) -> bool {
        let paths = self.roots.iter().chain(&actual.roots).map(|root| root.path.as_path());
        let mut places = paths.chain([workspace]);
        actual.net <= self.net
            && (self.net == NetMode::Full || actual.hosts.iter().all(|host| self.hosts.contains(host)))
            && places.all(|path| actual.access_at(path, workspace) <= self.access_at(path, workspace))
            && actual.agent == self.agent
            && actual.image == self.image
    }

    /// The nearest root above decides.
    fn access_at(&self, path: &Path, workspace: &Path) -> Access {
        let own = (workspace, self.workspace);
        let roots = self.roots.iter().map(|root| (root.path.as_path(), root.access));
        let around = std::iter::once(own).chain(roots).filter(|(root, _)| path.starts_with(root));
        let nearest = around.max_by_key(|(root, _)| root.components().count());
        nearest.map_or(Access::None, |(_, access)| access)
    }

    /// As a stored rule has them; empty where there is nothing to state. `None`: a person could not read them.
    pub(crate) fn words(&self) -> Option<Vec<String>> {
        let least = Self::least();
        let mut words = Vec::new();
        if self.net != least.net {
            words.push(format!("net {}", self.net));
        }
        words.extend(self.hosts.iter().map(|host| format!("host {host}")));
        if self.workspace != least.workspace {
            words.push(format!("workspace {}", self.workspace));
        }
        for root in &self.roots {
            words.push(format!("{} {}", root.access, std::str::from_utf8(root.path.as_slice()).ok()?));
        }
        words.extend(self.agent.iter().map(|agent| format!("agent {agent}")));
        words.extend(self.image.iter().map(|image| format!("image {image}")));
        let readable = |word: &String| ByteString::from(word.as_str()).display() == *word;
        words.iter().all(readable).then_some(words)
    }

    /// The reverse of [`SessionTerms::words`].
    pub fn read<'w>(words: impl Iterator<Item = &'w str>) -> Result<Self, SessionTermError> {
        let mut terms = Self::least();
        for word in words {
            terms.add(word).ok_or_else(|| SessionTermError(word.to_owned()))?;
        }
        terms.hosts.sort();
        Ok(terms)
    }

    fn add(&mut self, word: &str) -> Option<()> {
        let (kind, value) = word.split_once(' ').filter(|(_, value)| !value.is_empty())?;
        match kind {
            "net" => self.net = value.parse().ok()?,
            "host" => self.hosts.push(value.to_owned()),
            "workspace" => self.workspace = value.parse().ok()?,
            "agent" => self.agent = Some(value.to_owned()),
            "image" => self.image = Some(value.to_owned()),
            _ => {
                let access = kind.parse().ok().filter(|_| value.starts_with('/'))?;
                self.roots.push(Root { path: ByteString::from(value), access });
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(words: &[&str]) -> SessionTerms {
        SessionTerms::read(words.iter().copied()).unwrap()
    }

    #[test]
    fn terms_cover_what_is_less_and_nothing_that_is_more() {
        let workspace = Path::new("/w");
        let rows: &[(&[&str], &[&str], bool)] = &[
            (&[], &[], true),
            (&[], &["net filtered"], false),
            (&[], &["net full"], false),
            (&["net full"], &["net filtered", "host a.example"], true),
            (&["net filtered"], &[], true),
            (&["net filtered"], &["net filtered", "host a.example"], false),
            (&["net filtered", "host a.example"], &["net filtered"], true),
            (&[], &["read /data"], false),
            (&[], &["write /data"], false),
            (&["write /data"], &["read /data"], true),
            (&["read /data"], &["write /data"], false),
            (&["read /data"], &[], true),
            (&["read /data"], &["read /data/inner"], true),
            (&["none /w/closed"], &[], false),
            (&[], &["none /w/closed"], true),
            (&["workspace read"], &[], false),
            (&[], &["workspace read"], true),
            (&[], &["agent other"], false),
            (&["agent coder"], &[], false),
            (&["agent coder"], &["agent coder"], true),
            (&[], &["image sha256:1"], false),
            (&["image sha256:1"], &["image sha256:2"], false),
        ];
        for (answered, actual, covered) in rows {
            let covers = terms(answered).cover(&terms(actual), workspace);
            assert_eq!(covers, *covered, "{answered:?} for {actual:?}");
        }
    }

    #[test]
    fn terms_are_read_as_they_are_written() {
        let words =
            ["net filtered", "host a.example", "workspace read", "write /d a", "agent x y", "image i"];
        assert_eq!(terms(&words).words().unwrap(), words);
        assert_eq!(SessionTerms::least().words(), Some(Vec::new()));
        for wrong in ["net", "net all", "secret tok", "write data", "agent ", ""] {
            assert!(SessionTerms::read([wrong].into_iter()).is_err(), "{wrong}");
        }
        let hidden = SessionTerms { agent: Some("a\u{202e}".to_owned()), ..SessionTerms::least() };
        assert_eq!(hidden.words(), None);
    }
}
