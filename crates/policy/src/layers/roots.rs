//! The directories of a policy. In one layer the nearest one around a path decides about it; of all layers the strictest.
//!
//! WHY NOT one list: a layer that says "read all, write `out`" and one that says "read all" would together let `out` be
//! written, which the second alone does not.

use std::path::{Path, PathBuf};

use ringfence_authz::credential_stores;
use ringfence_types::{Access, ByteString, Root};

use super::super::format::RootTable;
use super::super::problem::PolicyProblem;
use super::setting_slot::{MergeReport, SettingAuthor, SettingSlot};
use super::{EffectiveSetting, LayerStep, SectionAuthority, StartupFlags};

pub(super) struct RootLayers<'a> {
    flags: &'a StartupFlags,
    resolve: &'a dyn Fn(&Path) -> PathBuf,
    /// What operator and flags say, without the workspace itself.
    held: Vec<RootEntry>,
    /// What each part without authority leaves of it.
    caps: Vec<Vec<RootEntry>>,
    /// The same of parts that were written for a directory around the workspace.
    around: Vec<Vec<RootEntry>>,
}

#[derive(Clone)]
struct RootEntry {
    path: PathBuf,
    access: SettingSlot<Access>,
}

impl<'a> RootLayers<'a> {
    pub(super) fn new(flags: &'a StartupFlags, resolve: &'a dyn Fn(&Path) -> PathBuf) -> Self {
        Self { flags, resolve, held: Vec::new(), caps: Vec::new(), around: Vec::new() }
    }

    /// `workspace` is what operator and flags let the workspace itself give; `own` is what this part says about the directory that
    /// it was written for. What it says about the workspace is returned.
    pub(super) fn apply(
        &mut self,
        step: &LayerStep<'_>,
        workspace: &SettingSlot<Access>,
        own: Option<SettingSlot<Access>>,
        report: &mut MergeReport,
    ) -> Option<SettingSlot<Access>> {
        let entries = step.section.body.root.iter().flatten();
        let offered: Vec<RootEntry> = entries.filter_map(|entry| self.offered(step, entry, report)).collect();
        match step.standing {
            SectionAuthority::Authority => offered.into_iter().for_each(|root| self.hold(root)),
            SectionAuthority::Around => return self.apply_around(step, offered, own),
            SectionAuthority::Asks | SectionAuthority::Narrows => {
                let mut cap: Vec<RootEntry> =
                    offered.into_iter().filter(|root| self.is_less(root, workspace, step, report)).collect();
                cap.extend(own.clone().map(|access| self.of_workspace(access)));
                self.caps.push(cap);
            }
        }
        own
    }

    /// The workspace is one of its directories: the nearest one around it decides.
    fn apply_around(
        &mut self,
        step: &LayerStep<'_>,
        mut cap: Vec<RootEntry>,
        own: Option<SettingSlot<Access>>,
    ) -> Option<SettingSlot<Access>> {
        let path = self.flags.above(step.distance).to_owned();
        cap.extend(
            own.map(|access| RootEntry { path, access: SettingSlot { key: "workspace_access", ..access } }),
        );
        let left = nearest(cap.iter(), &self.flags.workspace).cloned();
        self.around.push(cap);
        left.map(|access| SettingSlot { key: "workspace_access", ..access })
    }

    fn is_less(
        &self,
        root: &RootEntry,
        workspace: &SettingSlot<Access>,
        step: &LayerStep<'_>,
        report: &mut MergeReport,
    ) -> bool {
        let around = self.at(&root.path, workspace);
        let exceeds = root.access.value > around.as_ref().map_or(Access::None, |access| access.value);
        if exceeds {
            let limit = around.map_or("what there is".to_owned(), |access| access.named());
            let what =
                format!("root `{}` ({})", ByteString::from(root.path.as_path()).display(), root.access.shown);
            report.excess(&what, &root.access.by, &limit, step.standing);
        }
        !exceeds
    }

    /// A profile that narrows closes the whole workspace.
    pub(super) fn cap_workspace(&mut self, access: SettingSlot<Access>) {
        let cap = self.of_workspace(access);
        self.caps.push(vec![cap]);
    }

    fn of_workspace(&self, access: SettingSlot<Access>) -> RootEntry {
        RootEntry { path: self.flags.workspace.clone(), access }
    }

    fn offered(
        &self,
        step: &LayerStep<'_>,
        entry: &RootTable,
        report: &mut MergeReport,
    ) -> Option<RootEntry> {
        let (path, access) = (entry.path.as_ref()?, entry.access.as_ref()?);
        let mut refuse = |message: String, fix: &str| {
            let problem = PolicyProblem::new(message).fix(fix).in_source(&step.document.source, path.span);
            report.problems.add(problem);
            None
        };
        let from = self.flags.above(step.distance);
        let Some(expanded) = self.flags.expanded_from(from, &path.value) else {
            let message = format!("root `{}` is below the home, which is not known", path.value);
            return refuse(message, "name it absolutely");
        };
        let resolved = (self.resolve)(&expanded);
        if resolved == from {
            return refuse(
                "this root is the workspace itself".to_owned(),
                "write `workspace_access`, not a root",
            );
        }
        if let Some(store) = self.sensitive(&expanded).or_else(|| self.sensitive(&resolved)) {
            let message = format!(
                "root `{}` is in the sensitive root `{}`",
                path.value,
                ByteString::from(store).display()
            );
            return refuse(message, "name another directory; no file opens a credential store");
        }
        let access =
            SettingSlot::new("root", access.value, access.value, SettingAuthor::file(step, path.span));
        Some(RootEntry { path: resolved, access })
    }

    fn sensitive(&self, path: &Path) -> Option<PathBuf> {
        let home = self.flags.home.as_ref().filter(|_| !self.flags.danger.allow_sensitive_roots)?;
        credential_stores::around(home.as_path(), path)
    }

    pub(super) fn apply_flags(&mut self, workspace: &SettingSlot<Access>, report: &mut MergeReport) {
        for root in &self.flags.roots {
            let path = root.path.as_path();
            let by = SettingAuthor::Flag(format!("--{} {}", root.access, root.path.display()));
            let nothing = || SettingSlot::new("root", Access::None, Access::None, SettingAuthor::Default);
            let mut access = self.at(path, workspace).unwrap_or_else(nothing);
            access.choose(SettingSlot::new("root", root.access, root.access, by), report);
            self.hold(RootEntry { path: path.to_owned(), access });
        }
    }

    /// What there is at a path; `None`: nothing, because no root holds it.
    fn at(&self, path: &Path, workspace: &SettingSlot<Access>) -> Option<SettingSlot<Access>> {
        let own = self.of_workspace(workspace.clone());
        let given = nearest(self.held.iter().chain([&own]), path)?.clone();
        let caps = self.caps.iter().chain(&self.around).filter_map(|cap| nearest(cap.iter(), path));
        Some(caps.fold(given, |least, cap| if cap.value < least.value { cap.clone() } else { least }))
    }

    fn hold(&mut self, root: RootEntry) {
        self.held.retain(|held| held.path != root.path);
        self.held.push(root);
    }

    /// Every directory that any layer named, with what is left of it.
    pub(super) fn finish(&self, workspace: &SettingSlot<Access>) -> (Vec<Root>, Vec<EffectiveSetting>) {
        let mut named: Vec<&RootEntry> = Vec::new();
        let below = |held: &&RootEntry| held.path.starts_with(&self.flags.workspace);
        let around = self.around.iter().flatten().filter(below);
        for held in self.held.iter().chain(self.caps.iter().flatten()).chain(around) {
            if held.path != self.flags.workspace && !named.iter().any(|known| known.path == held.path) {
                named.push(held);
            }
        }
        let left = |held: &RootEntry| RootEntry {
            path: held.path.clone(),
            access: self.at(&held.path, workspace).unwrap_or_else(|| held.access.clone()),
        };
        let left: Vec<RootEntry> = named.into_iter().map(left).collect();
        (left.iter().map(RootEntry::root).collect(), left.iter().map(RootEntry::setting).collect())
    }
}

impl RootEntry {
    fn root(&self) -> Root {
        Root { path: ByteString::from(self.path.as_path()), access: self.access.value }
    }

    fn setting(&self) -> EffectiveSetting {
        let value = format!("{} ({})", ByteString::from(self.path.as_path()).display(), self.access.shown);
        EffectiveSetting { key: "root".to_owned(), value, ..self.access.setting() }
    }
}

fn nearest<'h>(held: impl Iterator<Item = &'h RootEntry>, path: &Path) -> Option<&'h SettingSlot<Access>> {
    let around = held.filter(|root| path.starts_with(&root.path));
    around.max_by_key(|root| root.path.as_os_str().len()).map(|root| &root.access)
}
