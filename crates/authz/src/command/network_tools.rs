//! The network in command lines (S001-21, S001-22). Names and URLs are only what can be seen: the network namespace is
//! what holds.

use ringfence_types::{NetMode, Risk, RuleFamily, RuleId};

use super::arg::Arg;
use super::builtin_verdict::BuiltinVerdict;
use crate::policy::Policy;

const OPEN: &str = "start with `--net full` if the command needs the network";

pub(super) fn network_tool(policy: &Policy) -> BuiltinVerdict {
    let why = "it is a network tool";
    if policy.net == NetMode::None {
        let fix =
            "start with `--net full --danger --allow-denylisted-commands` if the command needs the network";
        return BuiltinVerdict::deny(
            RuleId::OfflineNetworkTool,
            "it is a network tool, and the network is off",
            Risk::High,
        )
        .fix(fix);
    }
    if policy.danger.allow_denylisted_commands {
        return BuiltinVerdict::miss(RuleFamily::DenyList.member("network"), why, Risk::High);
    }
    let fix = "nothing in a policy file: only `--danger --allow-denylisted-commands` at startup lifts the deny list";
    BuiltinVerdict::deny(RuleFamily::DenyList.member("network"), why, Risk::High).fix(fix)
}

/// A subcommand that talks to another machine: a question where there is a network, a no where there is none.
pub(super) fn reaches_out(policy: &Policy, what: &'static str) -> BuiltinVerdict {
    if policy.net == NetMode::None {
        return BuiltinVerdict::deny(
            RuleId::OfflineGit,
            format!("{what} needs the network, which is off"),
            Risk::High,
        )
        .fix(OPEN);
    }
    BuiltinVerdict::miss(RuleId::GuardedUnlisted, format!("{what} talks to another machine"), Risk::High)
}

/// An argument with a URL in it, while the network is off.
pub(super) fn url(policy: &Policy, args: &[Arg<'_>]) -> Option<BuiltinVerdict> {
    if policy.net != NetMode::None {
        return None;
    }
    args.iter().find(|arg| is_remote(**arg)).map(|_| {
        BuiltinVerdict::deny(RuleId::OfflineUrl, "an argument is a URL, and the network is off", Risk::High)
            .fix(OPEN)
    })
}

fn is_remote(arg: Arg<'_>) -> bool {
    let text = match arg {
        Arg::Text(text) | Arg::Home(text) => text,
        Arg::Glob { pattern, .. } => pattern,
        Arg::Unknown(_) => return false,
    };
    // `http` is rare, `://` is rarer still: find the cheap one first.
    text.windows(3).enumerate().any(|(at, part)| part == b"://" && text.get(..at).is_some_and(is_web))
}

fn is_web(before: &[u8]) -> bool {
    let ends = |word: &[u8]| {
        let cut = before.len().checked_sub(word.len());
        cut.and_then(|cut| before.get(cut..)).is_some_and(|end| end.eq_ignore_ascii_case(word))
    };
    ends(b"http") || ends(b"https")
}
