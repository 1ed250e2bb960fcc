//! The judge as tables: what must be quiet, what must ask, what must be refused.

mod boundaries;
mod commands;
mod git;
mod names;
mod rules;
mod scripts;
mod wrappers;

use std::path::Path;

use ringfence_types::{Access, Bytes, Decision, Exec, Limits, NetMode, Profile, Root, StandardInput};

use super::judge_exec;
use crate::decide::{Permissions, View, WorkspaceRules};
use crate::facts::Table;
use crate::judgement::{Aspect, Part};
use crate::policy::Policy;
use crate::scene::Scene;

const ALLOW: Decision = Decision::Allow;
const ASK: Decision = Decision::Ask;
const DENY: Decision = Decision::Deny;

/// A machine with a workspace `/w`, and a policy to judge by.
struct Bench {
    policy: Policy,
    facts: Table,
    access: Access,
    cwd: &'static str,
}

impl Bench {
    fn new(profile: Profile) -> Self {
        let mut policy = Policy::new(profile);
        policy.home = Some(Bytes::from("/home/u"));
        Self { policy, facts: machine(), access: Access::Write, cwd: "/w" }
    }

    fn guarded() -> Self {
        Self::new(Profile::Guarded)
    }

    fn argv(&self, argv: &[&str]) -> Vec<Part> {
        self.call(argv.iter().map(|word| Bytes::from(*word)).collect(), &[])
    }

    /// A command with variables that come with its call.
    fn call(&self, argv: Vec<Bytes>, variables: &[(&str, &str)]) -> Vec<Part> {
        let env = variables.iter().map(|(name, value)| (Bytes::from(*name), Bytes::from(*value))).collect();
        let exec =
            Exec { argv, cwd: Bytes::from(self.cwd), env, net: NetMode::None, stdin: StandardInput::None };
        self.with_scene(|scene| judge_exec(scene, &exec))
    }

    fn script(&self, text: &str) -> Vec<Part> {
        self.argv(&["sh", "-c", text])
    }

    fn with_scene<T>(&self, judge: impl Fn(&Scene<'_>) -> T) -> T {
        let permissions = Permissions {
            view: View::Constructed,
            roots: vec![Root { path: Bytes::from("/w"), access: self.access }],
            hidden: Vec::new(),
            rules: WorkspaceRules::Enforced,
            net: NetMode::None,
            limits: Limits::default(),
            floor: Vec::new(),
        };
        let cwd = Path::new(self.cwd);
        judge(&Scene { policy: &self.policy, permissions: &permissions, facts: &self.facts, cwd, exec: None })
    }

    /// Words cut at blanks; for arguments with blanks in them use [`Bench::argv`].
    fn line(&self, line: &str) -> Vec<Part> {
        self.argv(&line.split(' ').collect::<Vec<_>>())
    }

    fn lines(&self, expected: Decision, lines: &[&str]) {
        for line in lines {
            check(line, &self.line(line), expected);
        }
    }

    fn scripts(&self, expected: Decision, texts: &[&str]) {
        for text in texts {
            check(text, &self.script(text), expected);
        }
    }
}

fn machine() -> Table {
    Table {
        programs: vec![
            ("ls", "/usr/bin/ls"),
            ("cat", "/usr/bin/cat"),
            ("grep", "/usr/bin/grep"),
            ("git", "/usr/bin/git"),
            ("sh", "/usr/bin/dash"),
            ("bash", "/usr/bin/bash"),
            ("vi", "/usr/bin/vim.basic"),
            ("python", "/usr/bin/python3.11"),
            ("python3", "/usr/bin/python3.11"),
            ("awk", "/usr/bin/mawk"),
            ("env", "/usr/bin/env"),
            ("rm", "/usr/bin/rm"),
        ],
        links: vec![("/w/outside", "/etc"), ("/w/inside", "/w/src")],
        directories: vec!["/w", "/w/src", "/w/sub", "/w/sub/deep", "/w/secrets"],
        ..Table::default()
    }
}

fn decision(parts: &[Part]) -> Decision {
    parts.iter().map(|part| part.decision).max().expect("something is judged")
}

/// The first of the strictest parts.
fn decisive(parts: &[Part]) -> &Part {
    let strictest = decision(parts);
    parts.iter().find(|part| part.decision == strictest).unwrap()
}

fn check(what: &str, parts: &[Part], expected: Decision) {
    let part = decisive(parts);
    assert_eq!(part.decision, expected, "`{what}`: {} ({}, {})", part.subject, part.rule, part.reason);
    for part in parts {
        assert!(
            !part.rule.is_empty() && !part.subject.is_empty() && !part.reason.is_empty(),
            "`{what}`: {part:?}"
        );
        assert_eq!(
            part.fix.as_ref().is_some_and(|fix| !fix.is_empty()),
            part.decision > ALLOW,
            "`{what}`: {part:?}"
        );
    }
}

fn rule(parts: &[Part]) -> &str {
    &decisive(parts).rule
}
