//! The ceiling of requests for a session.
//!
//! INVARIANT: a caller with a credential asks for less than policy gives, never for more. A flag of `ringfence run` may
//! exceed a default, because the operator types it. For a request the default is the ceiling. Only the owner of the
//! socket, as the kernel identifies it, counts as the operator.

use std::cmp::Ordering;
use std::path::Path;

use ringfence_api::{Caller, SessionLimits, TokenKind};
use ringfence_authz::Policy;
use ringfence_runtime::SessionSpec;
use ringfence_runtime::secrets::NamedBy;
use ringfence_types::{ByteString, PolicyLayer, Refusal, RefusalCode, RuleId};

use crate::SessionPolicyRequest;

/// What the wishes of a request are held to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CeilingKind {
    /// Only to what the operator's files forbid, like a flag of `ringfence run`.
    Freely,
    /// To what the operator's files give to a request without wishes.
    WithinGiven,
}

impl CeilingKind {
    pub(crate) fn of(caller: &Caller) -> Self {
        if caller.kind == TokenKind::Socket { Self::Freely } else { Self::WithinGiven }
    }

    /// How a session with this agent name may name secrets.
    pub(crate) fn names_secrets(self, agent: Option<&str>) -> NamedBy<'_> {
        match self {
            Self::Freely => NamedBy::Operator { agent },
            Self::WithinGiven => NamedBy::Guest,
        }
    }
}

/// The same request without its wishes. `None`: it has none.
pub(crate) fn without_wishes(wanted: &SessionPolicyRequest) -> Option<SessionPolicyRequest> {
    let given =
        SessionPolicyRequest { profile: None, net: None, limits: SessionLimits::default(), ..wanted.clone() };
    CeilingValue::ALL.iter().any(|value| value.is_wanted(wanted)).then_some(given)
}

/// Refuses wishes beyond the ceiling. Values that only a stricter profile raises are capped, not refused: the request
/// did not ask for them.
pub(crate) fn check(
    wanted: &SessionPolicyRequest,
    asked: &SessionSpec,
    given: &SessionSpec,
) -> Result<(), Refusal> {
    let (asked, given) = (&asked.policy, &given.policy);
    let beyond = |value: &&CeilingValue| value.is_wanted(wanted) && value.is_more(asked, given);
    match CeilingValue::ALL.iter().find(beyond) {
        None => Ok(()),
        Some(value) => Err(Refusal { hint: Some(value.hint()), ..refusal(value.told(asked, given)) }),
    }
}

/// The first value of which a child session would have more than its parent.
pub(crate) fn more_than(part: &SessionSpec, whole: &SessionSpec) -> Option<&'static str> {
    let more = CeilingValue::ALL.iter().find(|value| value.is_more(&part.policy, &whole.policy));
    more.map(|value| value.word())
}

/// Refuses a workspace that overlaps one with a policy of its own. `told`: the other one, if the caller may know it.
pub(crate) fn overlap(told: Option<&Path>) -> Refusal {
    let message = "the operator's policy has a section for a workspace above or below this one, which would not apply here";
    let name = match told {
        Some(place) => format!("name that workspace, `{}`", ByteString::from(place).display()),
        None => "name that workspace".to_owned(),
    };
    let hint =
        format!("{name}; the owner of the machine starts sessions elsewhere, at the socket without a token");
    Refusal { hint: Some(hint), ..refusal(message.to_owned()) }
}

/// The directory was replaced, perhaps by a link, after its policy was read: the policy does not apply to it.
pub(crate) fn moved() -> Refusal {
    let message = "the workspace is not where it was when its policy was read";
    let hint = "name it by a path without links, and start the session again";
    Refusal { hint: Some(hint.to_owned()), ..refusal(message.to_owned()) }
}

pub(crate) fn refusal(message: String) -> Refusal {
    Refusal {
        code: RefusalCode::Profile,
        layer: PolicyLayer::Session,
        rule: RuleId::SessionCeiling.into(),
        message,
        hint: None,
    }
}

/// A value that has a ceiling and that a request may ask for.
#[derive(Clone, Copy, Debug)]
enum CeilingValue {
    Profile,
    Network,
    Memory,
    Processes,
    CpuTime,
    OpenFiles,
    FileSize,
}

impl CeilingValue {
    const ALL: [Self; 7] = [
        Self::Profile,
        Self::Network,
        Self::Memory,
        Self::Processes,
        Self::CpuTime,
        Self::OpenFiles,
        Self::FileSize,
    ];

    fn is_wanted(self, wanted: &SessionPolicyRequest) -> bool {
        let limits = &wanted.limits;
        match self {
            Self::Profile => wanted.profile.is_some(),
            Self::Network => wanted.net.is_some(),
            Self::Memory => limits.memory_bytes.is_some(),
            Self::Processes => limits.processes.is_some(),
            Self::CpuTime => limits.cpu_seconds.is_some(),
            Self::OpenFiles => limits.open_files.is_some(),
            Self::FileSize => limits.file_size_bytes.is_some(),
        }
    }

    fn is_more(self, one: &Policy, other: &Policy) -> bool {
        let order = match self {
            Self::Profile => other.profile.strictness().cmp(&one.profile.strictness()),
            Self::Network => one.net.cmp(&other.net),
            Self::Memory => one.limits.memory_bytes.cmp(&other.limits.memory_bytes),
            Self::Processes => one.limits.processes.cmp(&other.limits.processes),
            Self::CpuTime => one.limits.cpu_seconds.cmp(&other.limits.cpu_seconds),
            Self::OpenFiles => one.limits.open_files.cmp(&other.limits.open_files),
            Self::FileSize => one.limits.file_size_bytes.cmp(&other.limits.file_size_bytes),
        };
        order == Ordering::Greater
    }

    fn word(self) -> &'static str {
        match self {
            Self::Profile => "profile",
            Self::Network => "network",
            Self::Memory => "memory",
            Self::Processes => "processes",
            Self::CpuTime => "processor time",
            Self::OpenFiles => "open files",
            Self::FileSize => "file size",
        }
    }

    /// The key in the operator's configuration.
    fn key(self) -> &'static str {
        match self {
            Self::Profile => "profile",
            Self::Network => "net",
            Self::Memory => "limits.memory",
            Self::Processes => "limits.processes",
            Self::CpuTime => "limits.cpu_time",
            Self::OpenFiles => "limits.max_open_files",
            Self::FileSize => "limits.file_size",
        }
    }

    fn shown(self, policy: &Policy) -> String {
        let limits = &policy.limits;
        match self {
            Self::Profile => policy.profile.to_string(),
            Self::Network => policy.net.to_string(),
            Self::Memory => format!("{} bytes", limits.memory_bytes),
            Self::Processes => limits.processes.to_string(),
            Self::CpuTime => format!("{} seconds", limits.cpu_seconds),
            Self::OpenFiles => limits.open_files.to_string(),
            Self::FileSize => format!("{} bytes", limits.file_size_bytes),
        }
    }

    fn told(self, asked: &Policy, given: &Policy) -> String {
        let (what, wanted, most) = (self.word(), self.shown(asked), self.shown(given));
        format!("the {what} `{wanted}` is more than the operator's policy gives, which is `{most}`")
    }

    fn hint(self) -> String {
        let key = self.key();
        format!(
            "ask for at most that, or leave it out; the operator gives more to all sessions with `{key}` in \
             the configuration, or to one by making it at the socket without a token"
        )
    }
}
