//! The judge as tables: what must be quiet, what must ask, what must be refused.

mod boundaries;
mod commands;
mod git;
mod names;
mod rules;
mod scripts;
mod wrappers;

use std::path::Path;

use ringfence_types::{
    Access, ByteString, Decision, ExecCall, Limits, NetMode, Profile, Root, StandardInput,
};

use super::judge_exec;
use crate::decide::{CallPermissions, FilesystemView, WorkspaceRuleMode};
use crate::eval_context::EvalContext;
use crate::host_facts::FakeHost;
use crate::judgement::{JudgementPart, PartKind};
use crate::policy::Policy;

const ALLOW: Decision = Decision::Allow;
const ASK: Decision = Decision::Ask;
const DENY: Decision = Decision::Deny;

/// A machine with a workspace `/w`, and a policy to judge by.
struct Bench {
    policy: Policy,
    facts: FakeHost,
    access: Access,
    cwd: &'static str,
}

impl Bench {
    fn new(profile: Profile) -> Self {
        let mut policy = Policy::new(profile);
        policy.home = Some(ByteString::from("/home/u"));
        Self { policy, facts: machine(), access: Access::Write, cwd: "/w" }
    }

    fn guarded() -> Self {
        Self::new(Profile::Guarded)
    }

    fn argv(&self, argv: &[&str]) -> Vec<JudgementPart> {
        self.call(argv.iter().map(|word| ByteString::from(*word)).collect(), &[])
    }

    /// A command with variables that come with its call.
    fn call(&self, argv: Vec<ByteString>, variables: &[(&str, &str)]) -> Vec<JudgementPart> {
        let env = variables
            .iter()
            .map(|(name, value)| (ByteString::from(*name), ByteString::from(*value)))
            .collect();
        let exec = ExecCall {
            argv,
            cwd: ByteString::from(self.cwd),
            env,
            ceiling: None,
            net: NetMode::None,
            stdin: StandardInput::None,
        };
        self.with_scene(|scene| judge_exec(scene, &exec))
    }

    fn script(&self, text: &str) -> Vec<JudgementPart> {
        self.argv(&["sh", "-c", text])
    }

    fn with_scene<T>(&self, judge: impl Fn(&EvalContext<'_>) -> T) -> T {
        let permissions = CallPermissions {
            view: FilesystemView::Constructed,
            roots: vec![Root { path: ByteString::from("/w"), access: self.access }],
            hidden: Vec::new(),
            rules: WorkspaceRuleMode::Enforced,
            net: NetMode::None,
            limits: Limits::default(),
            floor: Vec::new(),
        };
        let cwd = Path::new(self.cwd);
        judge(&EvalContext {
            policy: &self.policy,
            permissions: &permissions,
            facts: &self.facts,
            cwd,
            exec: None,
        })
    }

    /// Words cut at blanks; for arguments with blanks in them use [`Bench::argv`].
    fn line(&self, line: &str) -> Vec<JudgementPart> {
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

fn machine() -> FakeHost {
    FakeHost {
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
        ..FakeHost::default()
    }
}

fn decision(parts: &[JudgementPart]) -> Decision {
    parts.iter().map(|part| part.decision).max().expect("something is judged")
}

/// The first of the strictest parts.
fn decisive(parts: &[JudgementPart]) -> &JudgementPart {
    let strictest = decision(parts);
    parts.iter().find(|part| part.decision == strictest).unwrap()
}

fn check(what: &str, parts: &[JudgementPart], expected: Decision) {
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

fn rule(parts: &[JudgementPart]) -> &str {
    &decisive(parts).rule
}
