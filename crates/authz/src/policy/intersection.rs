//! A policy that is read again while a session runs: it takes away from what the session began with, and adds nothing. A part of
//! a session is held to the policy of the whole in the same way.
//!
//! INVARIANT: what is decided under `new.held_to(began)` is at most what is decided under either. Values are the smaller of the
//! two; for rules both are asked, and the strictest part decides (`crate::decide`).

use std::collections::BTreeSet;

use ringfence_types::{Access, ByteString, Control, Limits, Profile, Root};

use super::{LeakPolicy, LeakSinks, Policy};

impl Policy {
    /// This policy for a session that began with `began`. What the session is for life stays as it was.
    #[must_use]
    pub fn held_to(self, began: &Self) -> Self {
        // Without `..`: each kind of rule is either intersected here or asked of both policies.
        let super::PolicyRules { paths, commands, env, hosts, tools } = self.rules;
        let paths = paths.held_to(&began.rules.paths);
        let rules = super::PolicyRules { paths, commands, env, hosts, tools };
        Self {
            profile: stricter(self.profile, began.profile),
            access: self.access.min(began.access),
            danger: self.danger.and(began.danger),
            net: self.net.min(began.net),
            backend: began.backend,
            container: began.container.clone(),
            limits: least(&self.limits, &began.limits),
            floor: either(&self.floor, &began.floor),
            leaks: severest(self.leaks, began.leaks),
            home: began.home.clone(),
            rules,
            began: Some(Box::new(match self.began {
                Some(own) => own.held_to(began),
                None => began.clone(),
            })),
            ..self
        }
    }

    /// This one and all that it is held to: what the session began with, and the same of the session it is a part of.
    pub fn all(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |policy| policy.began.as_deref())
    }
}

/// The roots of a session that began with others: at every place the smaller access of both. Also what is not a root any more
/// counts, where it gave less than what is around it. All of them are given, and the workspace is the first.
pub fn roots_held_to(new: &[Root], began: &[Root]) -> Vec<Root> {
    let paths: BTreeSet<&ByteString> = new.iter().chain(began).map(|root| &root.path).collect();
    let least = |path: &ByteString| access_at(new, path).min(access_at(began, path));
    let closed = |path: &&&ByteString| least(path) == Access::None;
    let apart = |path: &ByteString| !paths.iter().any(|around| *around != path && is_in(path, around));
    // What a sandbox shows of the system is closed by name, in no root at all.
    let named = |path: &ByteString| {
        new.iter().chain(began).any(|root| root.path == *path && root.access == Access::None)
    };
    // The first stays the first; one that is open in one of them alone, and in no other root, is none.
    let gone = |path: &&&ByteString| closed(path) && apart(path) && !named(path);
    let first = new.first().map(|root| &root.path);
    let others = paths.iter().filter(|path| Some(**path) != first && !gone(path));
    let kept = first.into_iter().chain(others.copied());
    kept.map(|path| Root { path: path.clone(), access: least(path) }).collect()
}

/// The innermost root decides.
fn access_at(roots: &[Root], path: &ByteString) -> Access {
    let around = roots.iter().filter(|root| is_in(path, &root.path));
    around.max_by_key(|root| root.path.as_slice().len()).map_or(Access::None, |root| root.access)
}

fn is_in(path: &ByteString, root: &ByteString) -> bool {
    path.as_path().starts_with(root.as_path())
}

fn either(one: &[Control], other: &[Control]) -> Vec<Control> {
    Control::ALL.iter().filter(|control| one.contains(control) || other.contains(control)).copied().collect()
}

fn stricter(one: Profile, other: Profile) -> Profile {
    if one.strictness() < other.strictness() { other } else { one }
}

fn least(new: &Limits, began: &Limits) -> Limits {
    let either = |one: Option<u64>, other: Option<u64>| match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    };
    Limits {
        memory_bytes: new.memory_bytes.min(began.memory_bytes),
        processes: new.processes.min(began.processes),
        millicpus: either(new.millicpus, began.millicpus),
        cpu_seconds: new.cpu_seconds.min(began.cpu_seconds),
        open_files: new.open_files.min(began.open_files),
        file_size_bytes: new.file_size_bytes.min(began.file_size_bytes),
        tmp_bytes: new.tmp_bytes.min(began.tmp_bytes),
        disk_bytes: either(new.disk_bytes, began.disk_bytes),
        wall_ms: either(new.wall_ms, began.wall_ms),
        output_bytes: new.output_bytes.min(began.output_bytes),
        max_flows: new.max_flows.min(began.max_flows),
        max_flow_rate: new.max_flow_rate.min(began.max_flow_rate),
        max_bytes_out: new.max_bytes_out.min(began.max_bytes_out),
        max_bytes_in: new.max_bytes_in.min(began.max_bytes_in),
    }
}

fn severest(new: LeakPolicy, began: LeakPolicy) -> LeakPolicy {
    let sinks = |new: LeakSinks, began: LeakSinks| LeakSinks {
        arguments: new.arguments.max(began.arguments),
        output: new.output.max(began.output),
        files: new.files.max(began.files),
    };
    LeakPolicy {
        stored_secrets: sinks(new.stored_secrets, began.stored_secrets),
        patterns: sinks(new.patterns, began.patterns),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roots(all: &[(&str, Access)]) -> Vec<Root> {
        all.iter().map(|(path, access)| Root { path: ByteString::from(*path), access: *access }).collect()
    }

    #[test]
    fn what_was_closed_by_name_stays_closed_also_in_no_root() {
        let work = ("/w", Access::Write);
        let closed = ("/opt/keys", Access::None);
        let (with, without) = (roots(&[work, closed]), roots(&[work]));
        for (new, began) in [(&with, &with), (&without, &with), (&with, &without)] {
            assert_eq!(roots_held_to(new, began), with);
        }
        let open = roots(&[work, ("/opt/keys", Access::Read)]);
        assert_eq!(roots_held_to(&open, &with), with, "what is opened now was closed");
        assert_eq!(roots_held_to(&without, &open), without, "what is left out now is no root");
    }
}
