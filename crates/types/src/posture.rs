//! Postures: backends, controls, and how far each control is enforced.

use std::collections::BTreeMap;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::workspace::words;
use crate::{CallCeiling, UnknownKeyword};

words! {
    /// How a sandbox is made. A later one is weaker, and policy layers compare them by this order. Only `container` is compared
    /// apart from it, because it has another system around it.
    Backend("backend") {
        Native = "native",
        Bubblewrap = "bubblewrap",
        Landlock = "landlock",
        Container = "container",
        External = "external",
        None = "none",
    }
}

words! {
    /// One property that can be enforced.
    Control("control") {
        FsRead = "fs-read",
        FsWrite = "fs-write",
        Net = "net",
        Pid = "pid",
        Ipc = "ipc",
        Syscalls = "syscalls",
        Limits = "limits",
        Env = "env",
    }
}

words! {
    /// What it takes to get past a control that is enforced in part.
    Gap("gap") {
        /// Nothing but the command inside.
        Open = "open",
        /// A program of the host that offers something during the session, or no more than the text says.
        Bounded = "bounded",
    }
}

/// How far one control is enforced by the sandbox that is running.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "level", rename_all = "kebab-case")]
pub enum ControlLevel {
    /// The kernel stops it; `by` names the layers.
    Enforced { by: String },
    /// Some of it is stopped; `missing` says what is not.
    Partial {
        by: String,
        missing: String,
        #[serde(default = "open_gap")]
        gap: Gap,
    },
    /// An operator declared that something outside enforces it.
    Declared { by: String },
    /// Nothing stops it; `reason` and what would change that.
    Absent { reason: String, fix: String },
}

impl ControlLevel {
    pub fn word(&self) -> &'static str {
        match self {
            Self::Enforced { .. } => "enforced",
            Self::Partial { .. } => "partial",
            Self::Declared { .. } => "declared",
            Self::Absent { .. } => "absent",
        }
    }

    /// Whether a floor with this control is met: a command inside cannot bypass it alone.
    pub fn meets_floor(&self) -> bool {
        matches!(
            self,
            Self::Enforced { .. } | Self::Declared { .. } | Self::Partial { gap: Gap::Bounded, .. }
        )
    }
}

/// Default for records without a gap: such a control met no floor.
fn open_gap() -> Gap {
    Gap::Open
}

/// The enforced controls, as reported by the running sandbox, never as configured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Posture {
    pub backend: Backend,
    pub controls: BTreeMap<Control, ControlLevel>,
    /// The Landlock ABI in use, if any.
    pub landlock_abi: Option<u32>,
    /// Ceiling of one call, if the sandbox was made for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling: Option<Box<CallCeiling>>,
}

impl Posture {
    /// The controls of `floor` that this posture does not meet.
    pub fn below<'a>(
        &'a self,
        floor: &'a [Control],
    ) -> impl Iterator<Item = (Control, Option<&'a ControlLevel>)> {
        floor.iter().filter_map(|control| match self.controls.get(control) {
            Some(level) if level.meets_floor() => None,
            other => Some((*control, other)),
        })
    }
}
