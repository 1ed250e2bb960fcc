//! The environment of a command: cleared, a short allowlist, fixed values, and additions that were judged by name.
//!
//! A variable is an order to some program: what to load, what to run, whom to trust. So the host's variables do not
//! pass (C-14), and a caller may add only names that no known program obeys in that way (S002-7).
//! The same rules hold in every backend, `none` included.

mod families;
mod rules;
mod steering_names;

use std::path::Path;

use ringfence_types::{
    ByteString, CommandMode, Refusal, RefusalCode, RuleFamily, RuleId, RuleName, SessionId, WorkspaceId,
};

use crate::policy::Policy;
use crate::refusal_ext::{RefusalExt as _, refuse};
pub use families::{EnvFamily, EnvNamePattern, FAMILIES, FamilyOverride};
pub use rules::{EnvEffect, EnvPattern, EnvPatternError, EnvRule, EnvRuleError, EnvRules};
pub(crate) use steering_names::{is_foreign_character_set, is_harmless, steers};

/// Passed on from the host where it is set (S000-28). `LC_*` as well.
pub const INHERITED: &[&str] =
    &["USER", "LOGNAME", "LANG", "LANGUAGE", "TERM", "COLORTERM", "NO_COLOR", "FORCE_COLOR", "TZ"];

/// Set to these values whatever the host has. HOME, the XDG directories and TMPDIR are set by the sandbox, which
/// alone knows where they are.
pub const FIXED: &[(&str, &str)] = &[
    ("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"),
    ("SHELL", "/bin/sh"),
    // git asks on the controlling terminal itself, behind the back of the agent that drives the command.
    ("GIT_TERMINAL_PROMPT", "0"),
];

/// Set where no person sits at a terminal, so that a question ends the command instead of hanging it.
///
/// WHY NOT always: `CI` makes terminal programs stop drawing, and a person who runs `git log` wants a pager.
pub const UNATTENDED: &[(&str, &str)] = &[
    ("CI", "true"),
    ("DEBIAN_FRONTEND", "noninteractive"),
    ("PAGER", "cat"),
    ("GIT_PAGER", "cat"),
    ("EDITOR", "true"),
    ("GIT_EDITOR", "true"),
    ("PIP_NO_INPUT", "1"),
];

/// The most a value may have, in bytes.
pub const MAX_VALUE: usize = 32_768;

const RESERVED_PREFIX: &str = "RINGFENCE_";

/// Whether a person can answer a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApproverPresence {
    Terminal,
    Unattended,
}

type EnvVars = Vec<(ByteString, ByteString)>;

/// What every command starts from. `host` is the environment that Ringfence was started with.
pub fn base(host: &[(ByteString, ByteString)], attendance: ApproverPresence, rules: &EnvRules) -> EnvVars {
    let mut variables: EnvVars =
        host.iter().filter(|(name, value)| is_passed_on(name, value, rules)).cloned().collect();
    set(&mut variables, FIXED);
    if attendance == ApproverPresence::Unattended {
        set(&mut variables, UNATTENDED);
    }
    if !variables.iter().any(|(name, _)| name.as_slice() == b"LANG") {
        set(&mut variables, &[("LANG", "C.UTF-8")]);
    }
    variables
}

/// What the host says about its character set, left out where a command is judged by its text and the set could make a shell
/// read that in another way.
#[must_use]
pub fn without_foreign_character_sets(mut variables: EnvVars, policy: &Policy) -> EnvVars {
    if policy.all().any(|policy| policy.commands == CommandMode::Listed) {
        variables.retain(|(name, value)| !is_foreign_character_set(name.as_slice(), value.as_slice()));
        if !variables.iter().any(|(name, _)| name.as_slice() == b"LANG") {
            set(&mut variables, &[("LANG", "C.UTF-8")]);
        }
    }
    variables
}

/// The reserved variables that tell a command where it runs (S000-29).
pub fn injected(session: &SessionId, workspace: &WorkspaceId, dir: &Path) -> EnvVars {
    vec![
        (ByteString::from("RINGFENCE_SESSION_ID"), ByteString::from(session.as_str())),
        (ByteString::from("RINGFENCE_WORKSPACE_ID"), ByteString::from(workspace.as_str())),
        (ByteString::from("RINGFENCE_WORKSPACE_DIR"), ByteString::from(dir)),
    ]
}

/// `variables` with `additions` over it; the last of several with one name wins.
pub fn merge(mut variables: EnvVars, additions: &[(ByteString, ByteString)]) -> EnvVars {
    for (name, value) in additions {
        variables.retain(|(known, _)| known != name);
        variables.push((name.clone(), value.clone()));
    }
    variables
}

/// Judges what a caller asks for on top of [`base`].
pub fn check_additions(additions: &[(ByteString, ByteString)], rules: &EnvRules) -> Result<(), Refusal> {
    additions.iter().try_for_each(|(name, value)| check_addition(name, value, rules))
}

/// Whether a call may set a variable without a question. An agent that hands over its whole environment with each call
/// gets the variables for which this holds, and no question about the rest.
pub fn is_unquestioned(name: &ByteString, value: &ByteString, policy: &Policy) -> bool {
    policy.all().all(|policy| {
        let rules = &policy.rules.env;
        let is_listed = policy.commands == CommandMode::Listed;
        let asks = is_listed && !is_harmless(name.as_slice(), value.as_slice());
        check_addition(name, value, rules).is_ok() && (!asks || rules.opens(name.as_slice()))
    })
}

pub fn check_addition(name: &ByteString, value: &ByteString, rules: &EnvRules) -> Result<(), Refusal> {
    check_name(name)?;
    if let Some(rule) = rules.denying(name.as_slice()) {
        return Err(rule.refusal(name));
    }
    if let Some(family) = family_of(name)
        && !rules.allows(name.as_slice(), family)
    {
        return Err(steering(name, family));
    }
    check_value(name, value)
}

fn check_name(name: &ByteString) -> Result<(), Refusal> {
    if !is_name(name.as_slice()) {
        let message = format!("`{}` is not a variable name", name.display());
        return Err(environment(RuleId::EnvName, message)
            .hint("use letters, digits and `_`, not starting with a digit"));
    }
    if starts_with(name.as_slice(), RESERVED_PREFIX) {
        return Err(environment(
            RuleId::EnvReserved,
            format!("`{}` is reserved for Ringfence", name.display()),
        ));
    }
    Ok(())
}

/// Judges the name of a variable through which the operator releases a secret. Naming the secret opens a name as an
/// `allow` of the operator would; what nothing opens stays closed.
pub fn check_released(name: &ByteString, rules: &EnvRules) -> Result<(), Refusal> {
    if let Some(rule) = rules.denying(name.as_slice()) {
        return Err(rule.refusal(name));
    }
    match family_of(name) {
        Some(family) if matches!(family.opening, FamilyOverride::Never) => Err(steering(name, family)),
        _ => check_name(name),
    }
}

fn steering(name: &ByteString, family: &EnvFamily) -> Refusal {
    let message = format!("variable `{}` may not be set: {}", name.display(), family.reason);
    let refusal = environment(RuleFamily::Env.member(family.name), message);
    match family.opening {
        FamilyOverride::Never => refusal.hint("leave it out; nothing allows it"),
        FamilyOverride::ByName => {
            refusal.hint("leave it out, or let the operator's policy allow exactly this name")
        }
    }
}

/// The family of steering variables that a name belongs to.
pub fn family_of(name: &ByteString) -> Option<&'static EnvFamily> {
    FAMILIES.iter().find(|family| family.names.iter().any(|rule| rule.matches(name.as_slice())))
}

/// Whether a known program takes orders from a variable of this name.
pub fn is_steering(name: &ByteString) -> bool {
    family_of(name).is_some() || steers(name.as_slice())
}

fn check_value(name: &ByteString, value: &ByteString) -> Result<(), Refusal> {
    if value.as_slice().contains(&0) {
        let message = format!("the value of `{}` contains a NUL byte", name.display());
        return Err(environment(RuleId::EnvValue, message));
    }
    if value.as_slice().len() > MAX_VALUE {
        let message = format!("the value of `{}` is longer than {MAX_VALUE} bytes", name.display());
        return Err(environment(RuleId::EnvValue, message).hint("put it in a file of the workspace"));
    }
    Ok(())
}

fn is_name(name: &[u8]) -> bool {
    let word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    name.first().is_some_and(|first| !first.is_ascii_digit()) && name.iter().all(word)
}

fn is_inherited(name: &ByteString) -> bool {
    let name = name.as_slice();
    name.starts_with(b"LC_") && is_name(name) || INHERITED.iter().any(|known| known.as_bytes() == name)
}

fn is_passed_on(name: &ByteString, value: &ByteString, rules: &EnvRules) -> bool {
    if rules.denying(name.as_slice()).is_some() {
        return false;
    }
    is_inherited(name) && is_sane(value) || rules.passes(name) && value.as_slice().len() <= MAX_VALUE
}

/// A value of the host that a terminal or a log could not show is not passed on.
fn is_sane(value: &ByteString) -> bool {
    value.as_slice().len() <= 256 && !value.as_slice().iter().any(u8::is_ascii_control)
}

fn set(variables: &mut EnvVars, fixed: &[(&str, &str)]) {
    for (name, value) in fixed {
        variables.retain(|(known, _)| known.as_slice() != name.as_bytes());
        variables.push((ByteString::from(*name), ByteString::from(*value)));
    }
}

fn starts_with(name: &[u8], prefix: &str) -> bool {
    name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix.as_bytes()))
}

fn environment(rule: impl Into<RuleName>, message: String) -> Refusal {
    refuse(RefusalCode::Environment, rule, message)
}

#[cfg(test)]
mod tests;
