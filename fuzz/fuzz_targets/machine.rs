//! A judge for the targets: profile `guarded`, on the machine of the corpus.

#[path = "../../crates/authz/tests/machine/mod.rs"]
mod table;

use ringfence_authz::{Action, Judgement, Policy, judge};
use ringfence_types::{StandardInput, Bytes, Call, Decision, Exec, NetMode, Profile, Refusal, Root};

pub fn policy() -> Policy {
    let mut policy = Policy::new(Profile::Guarded);
    policy.home = Some(Bytes::from(table::HOME));
    policy
}

pub fn judged(policy: &Policy, argv: &[&[u8]]) -> Result<Judgement, Refusal> {
    let argv = argv.iter().map(|word| Bytes::from(*word)).collect();
    let call = Call::Exec(Exec { argv, cwd: Bytes::from(table::WORKSPACE), env: Vec::new(), net: NetMode::None, stdin: StandardInput::None });
    let roots = vec![Root { path: Bytes::from(table::WORKSPACE), access: policy.access }];
    judge(policy, &Action::new(call, roots), &table::Machine)
}

pub fn decision(policy: &Policy, argv: &[&[u8]]) -> Decision {
    judged(policy, argv).map_or(Decision::Deny, |judgement| judgement.decision())
}
