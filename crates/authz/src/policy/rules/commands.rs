//! `[[command]]`.

use std::path::{Component, Path, PathBuf};

use ringfence_types::Decision;

use super::super::format::CommandTable;
use super::super::read::{Many, shorten};
use super::super::text::{At, Span};
use super::super::words::split;
use super::manifest::Manifest;
use super::paths::examples;
use super::{Converting, Seen, decision};
use crate::command::{CommandPattern, CommandRule};
use crate::judgement::RuleSource;

/// What one entry is about.
enum Entry<'t> {
    Commands(&'static str, &'t super::super::format::Commands),
    Program(&'t At<String>),
    Manifest(&'t At<String>),
}

impl Converting<'_, '_> {
    pub(super) fn commands(&mut self, tables: &[CommandTable]) -> Vec<CommandRule> {
        let mut seen = Seen::default();
        let mut rules = Vec::new();
        for table in tables {
            let Some(entry) = self.command_entry(table) else { continue };
            let here = table.here.as_ref().and_then(|here| self.here(here));
            let made = match entry {
                Entry::Commands(key, _) => self.listed(key, table, here, &mut seen),
                Entry::Program(program) => self.restricted(program, table, here, &mut seen),
                Entry::Manifest(file) => self.manifest(file, table, here, &mut seen),
            };
            self.command_examples(table, &made);
            rules.extend(made);
        }
        rules
    }
}
