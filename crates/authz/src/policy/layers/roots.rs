//! The directories of a policy besides the workspace. The nearest one around a path decides about it.

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
    held: Vec<Held>,
}

struct Held {
    path: PathBuf,
    access: Slot<Access>,
}

impl<'a> Roots<'a> {
    pub(super) fn new(flags: &'a Flags, resolve: &'a dyn Fn(&Path) -> PathBuf) -> Self {
        Self { flags, resolve, held: Vec::new() }
    }

    /// `workspace` is what the workspace itself gives before this part is heard.
    pub(super) fn apply(&mut self, step: &Step<'_>, workspace: &Slot<Access>, report: &mut Report) {
        let entries = step.section.body.root.iter().flatten();
        let offered: Vec<Held> = entries.filter_map(|entry| self.offered(step, entry, report)).collect();
        let mut granted = Vec::new();
        for offer in offered {
            let around = self.around(&offer.path, workspace);
            let exceeds = offer.access.value > around.map_or(Access::None, |held| held.value);
            if step.standing != Standing::Authority && exceeds {
                let limit = around.map_or("what there is".to_owned(), |held| held.named());
                let what = format!("root `{}` ({})", Bytes::from(offer.path.as_path()).display(), offer.access.shown);
                report.excess(&what, &offer.access.by, &limit, step.standing);
            } else {
                granted.push(offer);
            }
        }
        granted.into_iter().for_each(|root| self.hold(root));
    }

    fn offered(&self, step: &Step<'_>, entry: &RootTable, report: &mut Report) -> Option<Held> {
        let (path, access) = (entry.path.as_ref()?, entry.access.as_ref()?);
        let by = By::file(step, path.span);
        let mut refuse = |message: String, fix: &str| {
            let problem = Problem::new(message).fix(fix).in_source(&step.document.source, path.span);
            report.problems.add(problem);
            None
        };
        let Some(expanded) = self.flags.expanded(&path.value) else {
            let message = format!("root `{}` is below the home, which is not known", path.value);
            return refuse(message, "name it absolutely");
        };
        let resolved = (self.resolve)(&expanded);
        if resolved == self.flags.workspace {
            return refuse("this root is the workspace itself".to_owned(), "write `access`, not a root");
        }
        if let Some(store) = self.sensitive(&expanded).or_else(|| self.sensitive(&resolved)) {
            let message = format!("root `{}` is in the sensitive root `{}`", path.value, Bytes::from(store).display());
            return refuse(message, "name another directory; no file opens a credential store");
        }
        Some(Held { path: resolved, access: Slot::new("root", access.value, access.value, by) })
    }

    fn sensitive(&self, path: &Path) -> Option<PathBuf> {
        let home = self.flags.home.as_ref().filter(|_| !self.flags.danger.allow_sensitive_roots)?;
        sensitive::around(home.as_path(), path)
    }

    pub(super) fn apply_flags(&mut self, workspace: &Slot<Access>, report: &mut Report) {
        for root in &self.flags.roots {
            let path = root.path.as_path();
            let by = By::Flag(format!("--{} {}", root.access, root.path.display()));
            let mut access = self.around(path, workspace).cloned().unwrap_or_else(|| Slot::new("root", Access::None, Access::None, By::Default));
            access.choose(Slot::new("root", root.access, root.access, by), report);
            self.hold(Held { path: path.to_owned(), access });
        }
    }

    /// Of the nearest directory that holds `path`.
    fn around<'s>(&'s self, path: &Path, workspace: &'s Slot<Access>) -> Option<&'s Slot<Access>> {
        let held = self.held.iter().map(|held| (held.path.as_path(), &held.access));
        let all = held.chain([(self.flags.workspace.as_path(), workspace)]);
        all.filter(|(root, _)| path.starts_with(root)).max_by_key(|(root, _)| root.as_os_str().len()).map(|(_, access)| access)
    }

    fn hold(&mut self, root: Held) {
        self.held.retain(|held| held.path != root.path);
        self.held.push(root);
    }

    pub(super) fn settings(&self) -> Vec<Setting> {
        let shown = |held: &Held| Setting {
            value: format!("{} ({})", Bytes::from(held.path.as_path()).display(), held.access.shown),
            ..held.access.setting()
        };
        self.held.iter().map(shown).collect()
    }

    pub(super) fn finish(self) -> Vec<Root> {
        let root = |held: Held| Root { path: Bytes::from(held.path), access: held.access.value };
        self.held.into_iter().map(root).collect()
    }
}
