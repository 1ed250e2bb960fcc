//! The ceiling of one command, below that of its session.

use serde::{Deserialize, Serialize};

use crate::{Backend, ByteString, HostRestriction, NetMode, Root};

/// What one command is limited to. It only narrows: more than the session has is refused. A missing field means the value of the
/// session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallCeiling {
    /// The roots of the session that the command has, each with at most the session's access. The others are closed; an
    /// empty list closes all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roots: Option<Vec<Root>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub net: Option<NetCeiling>,
    /// A backend that is at least as strong as the session's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<Backend>,
    #[serde(default, skip_serializing_if = "LimitCeilings::is_empty")]
    pub limits: LimitCeilings,
}

/// The most network that one command may have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NetCeiling {
    None,
    /// The filtered network, in a session that has the network of the host.
    Filtered,
    /// The filtered network, and of its hosts only these.
    Hosts(Vec<HostRestriction>),
}

impl NetCeiling {
    pub fn mode(&self) -> NetMode {
        match self {
            Self::None => NetMode::None,
            Self::Filtered | Self::Hosts(_) => NetMode::Filtered,
        }
    }
}

/// Limits of one command; what is absent is as the session has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitCeilings {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_seconds: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_files: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_size_bytes: Option<u64>,
}

impl LimitCeilings {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Each with its name, in a fixed order.
    pub fn all(&self) -> [(&'static str, Option<u64>); 5] {
        [
            ("memory_bytes", self.memory_bytes),
            ("processes", self.processes),
            ("cpu_seconds", self.cpu_seconds),
            ("open_files", self.open_files),
            ("file_size_bytes", self.file_size_bytes),
        ]
    }
}

/// Reason why a ceiling is invalid in any session.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CeilingFormError {
    #[error("a ceiling names at most {} roots and as many hosts", CallCeiling::MOST)]
    TooMany,
    #[error("the path of a root is empty")]
    EmptyPath,
    #[error("`{0}` is 0, with which nothing can run")]
    Zero(&'static str),
}

impl CallCeiling {
    /// Maximum of roots and of hosts in one ceiling. Each is shown to an operator and recorded.
    pub const MOST: usize = 64;

    /// Whether it limits nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Checks the form, independent of the session.
    pub fn check_form(&self) -> Result<(), CeilingFormError> {
        let roots = self.roots.as_deref().unwrap_or_default();
        let hosts = match &self.net {
            Some(NetCeiling::Hosts(hosts)) => hosts.len(),
            Some(NetCeiling::None | NetCeiling::Filtered) | None => 0,
        };
        if roots.len().max(hosts) > Self::MOST {
            return Err(CeilingFormError::TooMany);
        }
        if roots.iter().any(|root| root.path.as_slice().is_empty()) {
            return Err(CeilingFormError::EmptyPath);
        }
        match self.limits.all().into_iter().find(|(_, limit)| *limit == Some(0)) {
            Some((name, _)) => Err(CeilingFormError::Zero(name)),
            None => Ok(()),
        }
    }

    /// One line for each limitation.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(roots) = &self.roots {
            let named: Vec<String> =
                roots.iter().map(|root| format!("{} ({})", root.path.display(), root.access)).collect();
            lines.push(format!("files: {}", only(&named)));
        }
        match &self.net {
            None => {}
            Some(NetCeiling::None) => lines.push("network: none".to_owned()),
            Some(NetCeiling::Filtered) => lines.push("network: filtered".to_owned()),
            Some(NetCeiling::Hosts(hosts)) => {
                let named: Vec<String> = hosts.iter().map(ToString::to_string).collect();
                lines.push(format!("network: {}", only(&named)));
            }
        }
        lines.extend(self.backend.map(|backend| format!("backend: {backend}")));
        let limits = self.limits.all().into_iter();
        lines.extend(limits.filter_map(|(name, limit)| Some(format!("{name}: at most {}", limit?))));
        lines
    }

    /// The same ceiling with mapped paths.
    #[must_use]
    pub fn map_paths(&self, mut each: impl FnMut(&ByteString) -> ByteString) -> Self {
        let roots = self.roots.as_ref().map(|roots| {
            roots.iter().map(|root| Root { path: each(&root.path), access: root.access }).collect()
        });
        Self { roots, ..self.clone() }
    }
}

fn only(named: &[String]) -> String {
    if named.is_empty() { "none".to_owned() } else { format!("only {}", named.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Access;

    fn read(text: &str) -> Result<CallCeiling, serde_json::Error> {
        serde_json::from_str(text)
    }

    #[test]
    fn an_empty_list_is_none_and_not_everything() {
        let none = read(r#"{"roots": [], "net": {"hosts": []}}"#).unwrap();
        assert_eq!(none.lines(), ["files: none", "network: none"]);
        assert!(!none.is_empty() && read("{}").unwrap().is_empty());
    }

    #[test]
    fn an_unknown_word_is_an_error() {
        for text in [
            r#"{"rots": []}"#,
            r#"{"net": "full"}"#,
            r#"{"net": {"hosts": ["a b"]}}"#,
            r#"{"backend": "weak"}"#,
            r#"{"limits": {"wall_ms": 1}}"#,
            r#"{"roots": [{"path": ".", "access": "all"}]}"#,
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn it_is_read_back_as_it_was_written() {
        let whole = CallCeiling {
            roots: Some(vec![Root { path: ByteString::from("/w"), access: Access::Read }]),
            net: Some(NetCeiling::Hosts(vec!["a.example:443".to_owned().try_into().unwrap()])),
            backend: Some(Backend::Native),
            limits: LimitCeilings { processes: Some(3), ..LimitCeilings::default() },
        };
        assert_eq!(read(&serde_json::to_string(&whole).unwrap()).unwrap(), whole);
        let lines = [
            "files: only /w (read)",
            "network: only a.example:443",
            "backend: native",
            "processes: at most 3",
        ];
        assert_eq!(whole.lines(), lines);
    }
}
