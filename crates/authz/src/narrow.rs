//! A command that asks to have less than its session.
//!
//! INVARIANT: nothing in [`CallBounds`] is more than the policy and the roots it was made from. What would be more is refused and
//! never lowered: the caller would believe to have what it named.

use std::path::{Component, Path, PathBuf};

use ringfence_types::{
    Access, Backend, ByteString, Call, CallCeiling, Control, ExecCall, LimitCeilings, Limits, NetCeiling,
    PolicyLayer, Profile, Refusal, RefusalCode, Root, RuleId,
};

use crate::hosts::is_open;
use crate::policy::Policy;
use crate::refusal_ext::{RefusalExt as _, refuse};

/// The policy and the roots of one command. The first root is the workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallBounds {
    pub policy: Policy,
    pub roots: Vec<Root>,
}

/// What a session with this policy and these roots leaves to a command with this ceiling.
pub fn narrow(policy: &Policy, roots: &[Root], ceiling: &CallCeiling) -> Result<CallBounds, Refusal> {
    ceiling.check_form().map_err(|error| malformed(error.to_string()))?;
    let mut narrowed = policy.clone();
    narrowed.backend = backend(policy.backend, ceiling.backend)?;
    check_enforceable(&narrowed, ceiling)?;
    if let Some(net) = &ceiling.net {
        check_net(policy, net)?;
        narrowed.net = net.mode();
    }
    narrowed.limits = limits(&policy.limits, &ceiling.limits)?;
    let roots = match &ceiling.roots {
        None => roots.to_vec(),
        Some(wanted) => narrowed_roots(roots, wanted)?,
    };
    narrowed.access = roots.first().map_or(Access::None, |workspace| workspace.access);
    narrowed.floor = floor(&policy.floor, ceiling);
    Ok(CallBounds { policy: narrowed, roots })
}

/// The call with the paths of its ceiling as they are judged and recorded: absolute.
pub fn with_resolved_ceiling(call: Call, roots: &[Root]) -> Call {
    let Call::Exec(ExecCall { ceiling: Some(ceiling), .. }) = &call else { return call };
    let workspace = roots.first().map_or(Path::new("/"), |root| root.path.as_path());
    let resolved = ceiling.map_paths(|path| absolute(workspace, path).unwrap_or_else(|| path.clone()));
    match call {
        Call::Exec(exec) => Call::Exec(ExecCall { ceiling: Some(Box::new(resolved)), ..exec }),
        other => other,
    }
}

fn malformed(message: String) -> Refusal {
    refuse(RefusalCode::Malformed, RuleId::CeilingForm, message).at(PolicyLayer::Call)
}

/// Higher is stronger. An engine's container is neither stronger nor weaker than the others: it has another system in it.
fn strength(backend: Backend) -> Option<u8> {
    match backend {
        Backend::None => Some(0),
        Backend::External => Some(1),
        Backend::Landlock => Some(2),
        Backend::Bubblewrap => Some(3),
        Backend::Native => Some(4),
        Backend::Container => None,
    }
}

fn backend(session: Option<Backend>, asked: Option<Backend>) -> Result<Option<Backend>, Refusal> {
    let Some(asked) = asked else { return Ok(session) };
    let is_within = match session {
        Some(session) if session == asked => true,
        Some(session) => {
            strength(session).zip(strength(asked)).is_some_and(|(session, asked)| asked > session)
        }
        // The session has the strongest that this machine can make.
        None => asked == Backend::Native,
    };
    if is_within {
        return Ok(Some(asked));
    }
    let has = session.map_or_else(|| "the strongest of this machine".to_owned(), |own| format!("`{own}`"));
    let message = format!("backend `{asked}` is not stricter than what the session has, which is {has}");
    Err(wider(RefusalCode::Profile, RuleId::CeilingBackend, message))
}

/// A ceiling that no kernel holds would be a promise.
fn check_enforceable(policy: &Policy, ceiling: &CallCeiling) -> Result<(), Refusal> {
    let contains_nothing = matches!(policy.backend, Some(Backend::None | Backend::External));
    let asks = ceiling.roots.is_some() || ceiling.net.is_some() || !ceiling.limits.is_empty();
    if contains_nothing && asks {
        let message = "the backend of the session contains nothing, so it cannot hold a command to less";
        return Err(refuse(RefusalCode::Floor, RuleId::CeilingBackend, message)
            .at(PolicyLayer::Session)
            .hint("name a backend that contains in the ceiling, such as `native`"));
    }
    if policy.profile == Profile::Danger && ceiling.roots.is_some() {
        let message = "profile `danger` shows the whole machine, so it cannot hold a command to some roots";
        return Err(refuse(RefusalCode::Profile, RuleId::CeilingRoots, message)
            .at(PolicyLayer::Session)
            .hint("use a session with another profile"));
    }
    Ok(())
}

fn check_net(policy: &Policy, net: &NetCeiling) -> Result<(), Refusal> {
    let (asked, has) = (net.mode(), policy.net);
    if asked > has {
        let message = format!("network mode `{asked}` is more than the session has, which is `{has}`");
        return Err(wider(RefusalCode::Network, RuleId::CeilingNet, message));
    }
    let NetCeiling::Hosts(hosts) = net else { return Ok(()) };
    match hosts.iter().find(|host| !is_open(policy, host)) {
        None => Ok(()),
        Some(host) => {
            let message = format!("`{host}` is a host that the session cannot reach");
            Err(wider(RefusalCode::Network, RuleId::CeilingHosts, message))
        }
    }
}

fn limits(session: &Limits, asked: &LimitCeilings) -> Result<Limits, Refusal> {
    let mut limits = session.clone();
    let fields = [
        &mut limits.memory_bytes,
        &mut limits.processes,
        &mut limits.cpu_seconds,
        &mut limits.open_files,
        &mut limits.file_size_bytes,
    ];
    for (has, (name, asked)) in fields.into_iter().zip(asked.all()) {
        let Some(asked) = asked else { continue };
        if asked > *has {
            let message = format!("`{name}` {asked} is more than the session has, which is {has}");
            return Err(wider(RefusalCode::Profile, RuleId::CeilingLimits, message));
        }
        *has = asked;
    }
    Ok(limits)
}

/// Every root of the session, closed where it was not named: also one that lies where something else is shown stays closed.
fn narrowed_roots(session: &[Root], wanted: &[Root]) -> Result<Vec<Root>, Refusal> {
    let workspace = session.first().map_or(Path::new("/"), |root| root.path.as_path());
    let mut roots: Vec<Root> =
        session.iter().map(|root| Root { path: root.path.clone(), access: Access::None }).collect();
    let mut named: Vec<ByteString> = Vec::new();
    for root in wanted {
        let path = absolute(workspace, &root.path)
            .ok_or_else(|| malformed(format!("`{}` is empty, or has `..` in it", root.path.display())))?;
        if named.contains(&path) {
            return Err(malformed(format!("the root `{}` is named twice", path.display())));
        }
        let known = session.iter().zip(&mut roots).find(|(own, _)| own.path == path);
        let Some((own, narrowed)) = known else { return Err(no_root(&path)) };
        if root.access > own.access {
            let (asked, has, path) = (root.access, own.access, path.display());
            let message =
                format!("access `{asked}` to `{path}` is more than the session has, which is `{has}`");
            return Err(wider(RefusalCode::Path, RuleId::CeilingRoots, message));
        }
        narrowed.access = root.access;
        named.push(path);
    }
    Ok(roots)
}

/// A directory below a root is no root: what runs in the session could put a link in its place.
fn no_root(path: &ByteString) -> Refusal {
    let message = format!("`{}` is not a root of the session", path.display());
    let refusal = wider(RefusalCode::Path, RuleId::CeilingRoots, message);
    refusal.hint("name roots of the session: `.` is its workspace")
}

/// By its text alone: it is only compared with the roots of the session.
fn absolute(workspace: &Path, path: &ByteString) -> Option<ByteString> {
    if path.as_slice().is_empty() || path.as_slice().contains(&0) {
        return None;
    }
    let mut clean = PathBuf::new();
    for component in workspace.join(path.as_path()).components() {
        match component {
            Component::ParentDir => return None,
            Component::CurDir => {}
            other => clean.push(other),
        }
    }
    Some(ByteString::from(clean))
}

/// What holds the command to its ceiling must be enforced, also where the policy does not require it.
fn floor(policy: &[Control], ceiling: &CallCeiling) -> Vec<Control> {
    let is_needed = |control: Control| match control {
        Control::FsRead | Control::FsWrite => ceiling.roots.is_some(),
        Control::Net => ceiling.net.is_some(),
        Control::Limits => !ceiling.limits.is_empty(),
        Control::Pid | Control::Ipc | Control::Syscalls | Control::Env => false,
    };
    Control::ALL.iter().copied().filter(|control| policy.contains(control) || is_needed(*control)).collect()
}

fn wider(code: RefusalCode, rule: RuleId, message: String) -> Refusal {
    refuse(code, rule, message)
        .at(PolicyLayer::Session)
        .hint("a ceiling of a call only takes away: leave it out to have what the session has")
}

#[cfg(test)]
mod tests {
    use ringfence_types::{HostRestriction, NetMode, UnlistedHosts};

    use super::*;

    fn roots() -> Vec<Root> {
        [("/w", Access::Write), ("/data", Access::Read)]
            .map(|(path, access)| Root { path: ByteString::from(path), access })
            .to_vec()
    }

    fn policy() -> Policy {
        Policy { net: NetMode::Filtered, ..Policy::new(Profile::Workspace) }
    }

    fn with_roots(wanted: &[(&str, Access)]) -> CallCeiling {
        let wanted =
            wanted.iter().map(|(path, access)| Root { path: ByteString::from(*path), access: *access });
        CallCeiling { roots: Some(wanted.collect()), ..CallCeiling::default() }
    }

    fn with_hosts(hosts: &[&str]) -> CallCeiling {
        let hosts = hosts.iter().map(|host| HostRestriction::try_from((*host).to_owned()).unwrap()).collect();
        CallCeiling { net: Some(NetCeiling::Hosts(hosts)), ..CallCeiling::default() }
    }

    fn access(ceiling: &CallCeiling) -> Vec<Access> {
        let bounds = narrow(&policy(), &roots(), ceiling).unwrap();
        assert_eq!(bounds.roots.first().unwrap().access, bounds.policy.access);
        bounds.roots.iter().map(|root| root.access).collect()
    }

    fn rule(policy: &Policy, ceiling: &CallCeiling) -> String {
        narrow(policy, &roots(), ceiling).unwrap_err().rule.into()
    }

    #[test]
    fn roots_that_are_not_named_are_closed() {
        use Access::{None, Read, Write};
        assert_eq!(access(&CallCeiling::default()), [Write, Read]);
        assert_eq!(access(&with_roots(&[])), [None, None]);
        assert_eq!(access(&with_roots(&[(".", Read)])), [Read, None]);
        assert_eq!(access(&with_roots(&[("/w/", Write), ("/data/.", Read)])), [Write, Read]);
        assert_eq!(access(&with_roots(&[("/data", None)])), [None, None]);
    }

    #[test]
    fn more_than_the_session_has_is_refused() {
        let limit = |processes| LimitCeilings { processes: Some(processes), ..LimitCeilings::default() };
        let limits = |processes| CallCeiling { limits: limit(processes), ..CallCeiling::default() };
        let backend = |backend| CallCeiling { backend: Some(backend), ..CallCeiling::default() };
        let offline = Policy::new(Profile::Workspace);
        for (policy, ceiling, expected) in [
            (policy(), with_roots(&[("/data", Access::Write)]), "ceiling.roots"),
            (policy(), with_roots(&[("/", Access::Read)]), "ceiling.roots"),
            (policy(), with_roots(&[("src", Access::Read)]), "ceiling.roots"),
            (policy(), with_roots(&[("../data", Access::Read)]), "ceiling.form"),
            (policy(), with_roots(&[(".", Access::Read), ("/w", Access::Write)]), "ceiling.form"),
            (offline.clone(), with_hosts(&[]), "ceiling.net"),
            (policy(), limits(51), "ceiling.limits"),
            (policy(), limits(0), "ceiling.form"),
            (policy(), backend(Backend::Landlock), "ceiling.backend"),
            (policy(), backend(Backend::None), "ceiling.backend"),
            (policy(), backend(Backend::Container), "ceiling.backend"),
            (
                Policy { backend: Some(Backend::Native), ..policy() },
                backend(Backend::Bubblewrap),
                "ceiling.backend",
            ),
            (Policy { backend: Some(Backend::None), ..policy() }, limits(3), "ceiling.backend"),
            (Policy::new(Profile::Danger), with_roots(&[]), "ceiling.roots"),
        ] {
            assert_eq!(rule(&policy, &ceiling), expected, "{ceiling:?}");
        }
        assert_eq!(narrow(&policy(), &roots(), &limits(3)).unwrap().policy.limits.processes, 3);
        let weak = Policy { backend: Some(Backend::Landlock), ..policy() };
        let strong = narrow(&weak, &roots(), &backend(Backend::Native)).unwrap();
        assert_eq!(strong.policy.backend, Some(Backend::Native));
    }

    #[test]
    fn hosts_are_some_of_those_that_the_session_may_ask_for() {
        let asks = Policy { unlisted_hosts: UnlistedHosts::Ask, ..policy() };
        let denies = Policy { unlisted_hosts: UnlistedHosts::Deny, ..policy() };
        assert_eq!(
            narrow(&asks, &roots(), &with_hosts(&["a.example:443"])).unwrap().policy.net,
            NetMode::Filtered
        );
        assert_eq!(rule(&denies, &with_hosts(&["a.example:443"])), "ceiling.hosts");
        assert_eq!(rule(&denies, &with_hosts(&["*.a.example"])), "ceiling.hosts");
        assert!(narrow(&denies, &roots(), &with_hosts(&[])).is_ok());
    }

    #[test]
    fn what_holds_the_command_must_be_enforced() {
        let lowered = Policy { floor: Vec::new(), ..policy() };
        let floor = |ceiling: &CallCeiling| narrow(&lowered, &roots(), ceiling).unwrap().policy.floor;
        assert_eq!(floor(&with_roots(&[])), [Control::FsRead, Control::FsWrite]);
        assert_eq!(floor(&with_hosts(&[])), [Control::Net]);
        assert_eq!(floor(&CallCeiling::default()), []);
    }
}
