//! The directories of a policy. In one layer the nearest one around a path decides about it; of all layers the strictest.
//!
//! WHY NOT one list: a layer that says "read all, write `out`" and one that says "read all" would together let `out` be
//! written, which the second alone does not.

use std::path::{Path, PathBuf};

use ringfence_types::{Access, Bytes, Root};

use super::super::format::RootTable;
use super::super::problem::Problem;
use super::slot::{By, Report, Slot};
use super::{Flags, Setting, Standing, Step};
use crate::sensitive;

pub(super) struct Roots<'a> {
    flags: &'a Flags,
    resolve: &'a dyn Fn(&Path) -> PathBuf,
    /// What operator and flags say, without the workspace itself.
    held: Vec<Held>,
    /// What each part without authority leaves of it.
    caps: Vec<Vec<Held>>,
    /// The same of parts that were written for a directory around the workspace.
    around: Vec<Vec<Held>>,
}

#[derive(Clone)]
struct Held {
    path: PathBuf,
    access: Slot<Access>,
}

impl<'a> Roots<'a> {
    pub(super) fn new(flags: &'a Flags, resolve: &'a dyn Fn(&Path) -> PathBuf) -> Self {
        Self { flags, resolve, held: Vec::new(), caps: Vec::new(), around: Vec::new() }
    }

    /// `workspace` is what operator and flags let the workspace itself give; `own` is what this part says about the directory that
    /// it was written for. What it says about the workspace is returned.
    pub(super) fn apply(
        &mut self,
        step: &Step<'_>,
        workspace: &Slot<Access>,
        own: Option<Slot<Access>>,
        report: &mut Report,
    ) -> Option<Slot<Access>> {
        let entries = step.section.body.root.iter().flatten();
        let offered: Vec<Held> = entries.filter_map(|entry| self.offered(step, entry, report)).collect();
        match step.standing {
            Standing::Authority => offered.into_iter().for_each(|root| self.hold(root)),
            Standing::Around => return self.apply_around(step, offered, own),
            Standing::Asks | Standing::Narrows => {
                let mut cap: Vec<Held> =
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
        step: &Step<'_>,
        mut cap: Vec<Held>,
        own: Option<Slot<Access>>,
    ) -> Option<Slot<Access>> {
        let path = self.flags.above(step.distance).to_owned();
        cap.extend(own.map(|access| Held { path, access: Slot { key: "access", ..access } }));
        let left = nearest(cap.iter(), &self.flags.workspace).cloned();
        self.around.push(cap);
        left.map(|access| Slot { key: "access", ..access })
    }

    fn is_less(&self, root: &Held, workspace: &Slot<Access>, step: &Step<'_>, report: &mut Report) -> bool {
        let around = self.at(&root.path, workspace);
        let exceeds = root.access.value > around.as_ref().map_or(Access::None, |access| access.value);
        if exceeds {
            let limit = around.map_or("what there is".to_owned(), |access| access.named());
            let what =
                format!("root `{}` ({})", Bytes::from(root.path.as_path()).display(), root.access.shown);
            report.excess(&what, &root.access.by, &limit, step.standing);
        }
        !exceeds
    }

    /// A profile that narrows closes the whole workspace.
    pub(super) fn cap_workspace(&mut self, access: Slot<Access>) {
        let cap = self.of_workspace(access);
        self.caps.push(vec![cap]);
    }

    fn of_workspace(&self, access: Slot<Access>) -> Held {
        Held { path: self.flags.workspace.clone(), access }
    }

    fn offered(&self, step: &Step<'_>, entry: &RootTable, report: &mut Report) -> Option<Held> {
        let (path, access) = (entry.path.as_ref()?, entry.access.as_ref()?);
        let mut refuse = |message: String, fix: &str| {
            let problem = Problem::new(message).fix(fix).in_source(&step.document.source, path.span);
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
            return refuse("this root is the workspace itself".to_owned(), "write `access`, not a root");
        }
        if let Some(store) = self.sensitive(&expanded).or_else(|| self.sensitive(&resolved)) {
            let message =
                format!("root `{}` is in the sensitive root `{}`", path.value, Bytes::from(store).display());
            return refuse(message, "name another directory; no file opens a credential store");
        }
        let access = Slot::new("root", access.value, access.value, By::file(step, path.span));
        Some(Held { path: resolved, access })
    }

    fn sensitive(&self, path: &Path) -> Option<PathBuf> {
        let home = self.flags.home.as_ref().filter(|_| !self.flags.danger.allow_sensitive_roots)?;
        sensitive::around(home.as_path(), path)
    }

    pub(super) fn apply_flags(&mut self, workspace: &Slot<Access>, report: &mut Report) {
        for root in &self.flags.roots {
            let path = root.path.as_path();
            let by = By::Flag(format!("--{} {}", root.access, root.path.display()));
            let nothing = || Slot::new("root", Access::None, Access::None, By::Default);
            let mut access = self.at(path, workspace).unwrap_or_else(nothing);
            access.choose(Slot::new("root", root.access, root.access, by), report);
            self.hold(Held { path: path.to_owned(), access });
        }
    }

    /// What there is at a path; `None`: nothing, because no root holds it.
    fn at(&self, path: &Path, workspace: &Slot<Access>) -> Option<Slot<Access>> {
        let own = self.of_workspace(workspace.clone());
        let given = nearest(self.held.iter().chain([&own]), path)?.clone();
        let caps = self.caps.iter().chain(&self.around).filter_map(|cap| nearest(cap.iter(), path));
        Some(caps.fold(given, |least, cap| if cap.value < least.value { cap.clone() } else { least }))
    }

    fn hold(&mut self, root: Held) {
        self.held.retain(|held| held.path != root.path);
        self.held.push(root);
    }

    /// Every directory that any layer named, with what is left of it.
    pub(super) fn finish(&self, workspace: &Slot<Access>) -> (Vec<Root>, Vec<Setting>) {
        let mut named: Vec<&Held> = Vec::new();
        let below = |held: &&Held| held.path.starts_with(&self.flags.workspace);
        let around = self.around.iter().flatten().filter(below);
        for held in self.held.iter().chain(self.caps.iter().flatten()).chain(around) {
            if held.path != self.flags.workspace && !named.iter().any(|known| known.path == held.path) {
                named.push(held);
            }
        }
        let left = |held: &Held| Held {
            path: held.path.clone(),
            access: self.at(&held.path, workspace).unwrap_or_else(|| held.access.clone()),
        };
        let left: Vec<Held> = named.into_iter().map(left).collect();
        (left.iter().map(Held::root).collect(), left.iter().map(Held::setting).collect())
    }
}

impl Held {
    fn root(&self) -> Root {
        Root { path: Bytes::from(self.path.as_path()), access: self.access.value }
    }

    fn setting(&self) -> Setting {
        let value = format!("{} ({})", Bytes::from(self.path.as_path()).display(), self.access.shown);
        Setting { key: "root".to_owned(), value, ..self.access.setting() }
    }
}

fn nearest<'h>(held: impl Iterator<Item = &'h Held>, path: &Path) -> Option<&'h Slot<Access>> {
    let around = held.filter(|root| path.starts_with(&root.path));
    around.max_by_key(|root| root.path.as_os_str().len()).map(|root| &root.access)
}
