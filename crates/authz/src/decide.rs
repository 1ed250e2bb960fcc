//! One action in, one verdict out. Every error on the way is a denial; the strictest part wins.

mod call;

use std::path::{Path, PathBuf};

use ringfence_types::{
    Access, Backend, Bytes, Call, Control, Fingerprint, Layer, Limits, NetMode, Profile, Refusal,
    RefusalCode, Root,
};

use crate::danger::{DangerFlags, check_backend, check_flags, check_net, check_profile};
use crate::refuse::{Refuse as _, refuse};
use crate::sensitive;
use call::{is_plain_absolute, judge_exec, judge_file};

/// What the operator allows. Built from startup flags and configuration, never from a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    pub profile: Profile,
    pub danger: DangerFlags,
    /// The most network a call may ask for.
    pub net: NetMode,
    /// The backend that was asked for; `None` is the strongest this machine has.
    pub backend: Option<Backend>,
    pub limits: Limits,
    /// Controls without which nothing runs.
    pub floor: Vec<Control>,
    /// The home directory of the person who started Ringfence: where the sensitive roots are.
    pub home: Option<Bytes>,
}

impl Policy {
    /// The profile with nothing opened: no flag, no network, every control required.
    pub fn new(profile: Profile) -> Self {
        Self {
            profile,
            danger: DangerFlags::default(),
            net: NetMode::None,
            backend: None,
            limits: Limits::default(),
            floor: Control::ALL.to_vec(),
            home: None,
        }
    }
}

/// A call with the roots it may touch: what is judged, recorded and executed. The first root is the workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    call: Call,
    roots: Vec<Root>,
    fingerprint: Fingerprint,
}

impl Action {
    pub fn new(call: Call, roots: Vec<Root>) -> Self {
        let fingerprint = Fingerprint::of(&call, &roots);
        Self { call, roots, fingerprint }
    }

    pub fn call(&self) -> &Call {
        &self.call
    }

    pub fn roots(&self) -> &[Root] {
        &self.roots
    }

    pub fn fingerprint(&self) -> &Fingerprint {
        &self.fingerprint
    }
}

#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    Allow(Box<Grant>),
    Deny(Refusal),
}

/// Proof that an action was judged and allowed, with all that the sandbox may give it.
#[derive(Debug, PartialEq, Eq)]
pub struct Grant {
    action: Action,
    permissions: Permissions,
    rule: String,
    layer: Layer,
}

impl Grant {
    pub fn action(&self) -> &Action {
        &self.action
    }

    /// The rule that allowed it, as a person would look it up.
    pub fn rule(&self) -> &str {
        &self.rule
    }

    pub fn layer(&self) -> Layer {
        self.layer
    }

    pub fn permissions(&self) -> &Permissions {
        &self.permissions
    }
}

/// What the sandbox may give one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permissions {
    pub view: View,
    pub roots: Vec<Root>,
    /// Sensitive roots that must not be visible inside, absolute.
    pub hidden: Vec<Bytes>,
    pub rules: WorkspaceRules,
    pub net: NetMode,
    pub limits: Limits,
    /// Controls that must be enforced. What the policy gives away on purpose is not in it.
    pub floor: Vec<Control>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// The read-only system runtime and the roots, nothing else.
    Constructed,
    /// The machine as it is, without the hidden roots.
    WholeMachine,
}

/// Whether hidden and protected paths hold inside the roots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkspaceRules {
    Enforced,
    /// Profile `danger`: whoever may write the whole machine is not stopped by a read-only `.git/hooks`.
    Waived,
}

pub fn decide(policy: &Policy, action: Action) -> Verdict {
    match judge(policy, &action) {
        Ok(permissions) => {
            let rule = format!("profile.{}", policy.profile);
            let layer = if policy.profile == Profile::Danger { Layer::Flags } else { Layer::Floor };
            Verdict::Allow(Box::new(Grant { action, permissions, rule, layer }))
        }
        Err(refusal) => Verdict::Deny(refusal),
    }
}

fn judge(policy: &Policy, action: &Action) -> Result<Permissions, Refusal> {
    check_policy(policy)?;
    check_roots(policy, &action.roots)?;
    let permissions = ceiling(policy, action)?;
    match &action.call {
        Call::Exec(exec) => judge_exec(policy, exec, &permissions)?,
        Call::File(file) => judge_file(policy, file, &permissions)?,
    }
    Ok(permissions)
}

fn check_policy(policy: &Policy) -> Result<(), Refusal> {
    check_flags(policy.danger)?;
    check_profile(policy.profile, policy.danger)?;
    check_net(policy.net)?;
    policy.backend.map_or(Ok(()), |backend| check_backend(backend, policy.danger))
}

fn check_roots(policy: &Policy, roots: &[Root]) -> Result<(), Refusal> {
    if roots.is_empty() {
        return Err(refuse(RefusalCode::Workspace, "roots.empty", "the action names no root"));
    }
    for root in roots {
        let path = root.path.as_path();
        if !is_plain_absolute(path) {
            let message = format!("root `{}` is not an absolute canonical path", root.path.display());
            return Err(refuse(RefusalCode::Workspace, "roots.absolute", message));
        }
        let store = sensitive_around(policy, path);
        if let Some(store) = store {
            return Err(sensitive_refusal(path, &store));
        }
    }
    Ok(())
}

fn sensitive_around(policy: &Policy, path: &Path) -> Option<PathBuf> {
    let home = policy.home.as_ref().filter(|_| !policy.danger.allow_sensitive_roots)?;
    sensitive::around(home.as_path(), path)
}

fn sensitive_refusal(path: &Path, store: &Path) -> Refusal {
    let message = format!(
        "`{}` is in the sensitive root `{}`",
        Bytes::from(path).display(),
        Bytes::from(store).display()
    );
    refuse(RefusalCode::Danger, "sensitive-roots", message)
        .hint("`--danger --allow-sensitive-roots` at startup opens it; nothing else does")
}

/// The most this policy gives to any call on these roots.
fn ceiling(policy: &Policy, action: &Action) -> Result<Permissions, Refusal> {
    // A backend that contains nothing shows a command the machine; the file tools keep their own guard (C-37).
    let bare = policy.backend == Some(Backend::None) && matches!(action.call, Call::Exec(_));
    let (view, rules) = match policy.profile {
        Profile::Review | Profile::Workspace if !bare => (View::Constructed, WorkspaceRules::Enforced),
        Profile::Review | Profile::Workspace | Profile::Danger => {
            (View::WholeMachine, WorkspaceRules::Waived)
        }
    };
    let net = match &action.call {
        Call::Exec(exec) => exec.net,
        Call::File(_) => NetMode::None,
    };
    Ok(Permissions {
        view,
        roots: action.roots.iter().map(|root| narrowed(policy.profile, root)).collect(),
        hidden: hidden_roots(policy, view, &action.roots)?,
        rules,
        net,
        limits: policy.limits.clone(),
        floor: floor(policy, net),
    })
}

/// `review` reads: roots that the operator declared writable are read-only under it.
fn narrowed(profile: Profile, root: &Root) -> Root {
    let access = match profile {
        Profile::Review => root.access.min(Access::Read),
        Profile::Workspace | Profile::Danger => root.access,
    };
    Root { path: root.path.clone(), access }
}

fn hidden_roots(policy: &Policy, view: View, roots: &[Root]) -> Result<Vec<Bytes>, Refusal> {
    if policy.danger.allow_sensitive_roots {
        return Ok(Vec::new());
    }
    match (&policy.home, view) {
        (Some(home), View::WholeMachine) => Ok(sensitive::roots(home.as_path()).map(Bytes::from).collect()),
        (Some(home), View::Constructed) => Ok(sensitive::roots(home.as_path())
            .filter(|hidden| roots.iter().any(|root| hidden.starts_with(root.path.as_path())))
            .map(Bytes::from)
            .collect()),
        (None, View::Constructed) => Ok(Vec::new()),
        (None, View::WholeMachine) => {
            let message = "the home directory is not known, so the sensitive roots cannot be hidden";
            Err(refuse(RefusalCode::Danger, "sensitive-roots", message)
                .hint("set HOME to the real home directory"))
        }
    }
}

/// Controls that still have something to enforce. One that the operator gave away (the network of the host, a backend
/// that is none) cannot be missing.
fn floor(policy: &Policy, net: NetMode) -> Vec<Control> {
    let given_away = |control: Control| match control {
        Control::Env => false,
        _ if policy.backend == Some(Backend::None) => true,
        Control::Net => net == NetMode::Full,
        Control::FsRead | Control::FsWrite => {
            policy.profile == Profile::Danger && policy.danger.allow_sensitive_roots
        }
        // The sockets in /run are part of the machine that `danger` opens.
        Control::Ipc => policy.profile == Profile::Danger,
        // Whoever declares an outer boundary answers for its /tmp as well.
        Control::Limits => policy.backend == Some(Backend::External),
        Control::Pid | Control::Syscalls => false,
    };
    policy.floor.iter().copied().filter(|control| !given_away(*control)).collect()
}

#[cfg(test)]
mod tests;
