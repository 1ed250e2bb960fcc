//! What somebody may ask for when they make a session, and who may have more than policy gives by itself.
//!
//! INVARIANT: whoever was let in with a credential asks for less, never for more. A flag of `ringfence run` goes beyond a default,
//! because whoever types it is the operator; a request is no flag, and a default is its ceiling. Only the owner of the socket, by
//! what the kernel says of them, is who starts Ringfence.

use std::cmp::Ordering;
use std::path::Path;

use ringfence_api::{Caller, SessionLimits, TokenKind};
use ringfence_runtime::Asked;
use ringfence_runtime::authz::Policy;
use ringfence_runtime::secrets::NamedBy;
use ringfence_types::{Bytes, Layer, Refusal, RefusalCode};

use crate::Wanted;

/// What is asked for is held to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chooses {
    /// What the operator's files forbid, as a flag of `ringfence run` is.
    Freely,
    /// What the operator's files give to whoever says nothing.
    WithinGiven,
}

impl Chooses {
    pub(crate) fn of(caller: &Caller) -> Self {
        if caller.kind == TokenKind::Socket { Self::Freely } else { Self::WithinGiven }
    }

    /// In a session whose agent is called so.
    pub(crate) fn names_secrets(self, agent: Option<&str>) -> NamedBy<'_> {
        match self {
            Self::Freely => NamedBy::Operator { agent },
            Self::WithinGiven => NamedBy::Guest,
        }
    }
}

/// The same session without anything that was asked for beyond where it is and who asks; `None`: nothing was.
pub(crate) fn without_wishes(wanted: &Wanted) -> Option<Wanted> {
    let given = Wanted { profile: None, net: None, limits: SessionLimits::default(), ..wanted.clone() };
    Value::ALL.iter().any(|value| value.is_wanted(wanted)).then_some(given)
}

/// Whoever asks for more than policy gives is told so. What a stricter profile has more of by itself nobody asked for: it is held,
/// and no reason to say no.
pub(crate) fn check(wanted: &Wanted, asked: &Asked, given: &Asked) -> Result<(), Refusal> {
    let (asked, given) = (&asked.policy, &given.policy);
    let beyond = |value: &&Value| value.is_wanted(wanted) && value.is_more(asked, given);
    match Value::ALL.iter().find(beyond) {
        None => Ok(()),
        Some(value) => Err(Refusal { hint: Some(value.hint()), ..refusal(value.told(asked, given)) }),
    }
}

/// The first value of which a part would have more than its whole.
pub(crate) fn more_than(part: &Asked, whole: &Asked) -> Option<&'static str> {
    let more = Value::ALL.iter().find(|value| value.is_more(&part.policy, &whole.policy));
    more.map(|value| value.word())
}

/// A place where files would be had by the policy of another place. `told`: the other one, to whoever may know of it.
pub(crate) fn overlap(told: Option<&Path>) -> Refusal {
    let message = "the operator's policy has a part of its own for a workspace around this one or within it, which would not be heard here";
    let name = match told {
        Some(place) => format!("name that workspace, `{}`", Bytes::from(place).display()),
        None => "name that workspace".to_owned(),
    };
    let hint =
        format!("{name}; the owner of the machine starts sessions elsewhere, at the socket without a token");
    Refusal { hint: Some(hint), ..refusal(message.to_owned()) }
}

/// A directory that is another one by now, or was replaced by a link: what was said of it is not said of the other.
pub(crate) fn moved() -> Refusal {
    let message = "the workspace is not where it was when its policy was read";
    let hint = "name it by a path without links, and start the session again";
    Refusal { hint: Some(hint.to_owned()), ..refusal(message.to_owned()) }
}

pub(crate) fn refusal(message: String) -> Refusal {
    Refusal {
        code: RefusalCode::Profile,
        layer: Layer::Session,
        rule: "session.ceiling".to_owned(),
        message,
        hint: None,
    }
}

/// What one can have more or less of, and ask for.
#[derive(Clone, Copy, Debug)]
enum Value {
    Profile,
    Network,
    Memory,
    Processes,
    CpuTime,
    OpenFiles,
    FileSize,
}

impl Value {
    const ALL: [Self; 7] = [
        Self::Profile,
        Self::Network,
        Self::Memory,
        Self::Processes,
        Self::CpuTime,
        Self::OpenFiles,
        Self::FileSize,
    ];

    fn is_wanted(self, wanted: &Wanted) -> bool {
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

    /// In a file of the operator.
    fn key(self) -> &'static str {
        match self {
            Self::Profile => "profile",
            Self::Network => "net",
            Self::Memory => "limits.memory",
            Self::Processes => "limits.processes",
            Self::CpuTime => "limits.cpu_time",
            Self::OpenFiles => "limits.open_files",
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
