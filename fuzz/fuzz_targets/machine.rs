//! A judge for the targets: profile `guarded`, on the machine of the corpus.

#[path = "../../crates/authz/tests/machine/mod.rs"]
mod table;

use ringfence_authz::{Action, Judgement, Policy, judge};
use ringfence_types::{ByteString, Call, Decision, ExecCall, NetMode, Profile, Refusal, Root, StandardInput};

pub fn policy() -> Policy {
    let mut policy = Policy::new(Profile::Guarded);
    policy.home = Some(ByteString::from(table::HOME));
    policy
}

pub fn judged(policy: &Policy, argv: &[&[u8]]) -> Result<Judgement, Refusal> {
    let argv = argv.iter().map(|word| ByteString::from(*word)).collect();
    let call = Call::Exec(ExecCall { argv, cwd: ByteString::from(table::WORKSPACE), env: Vec::new(), ceiling: None, net: NetMode::None, stdin: StandardInput::None });
    let roots = vec![Root { path: ByteString::from(table::WORKSPACE), access: policy.access }];
    judge(policy, &Action::new(call, roots), &table::Machine)
}

pub fn decision(policy: &Policy, argv: &[&[u8]]) -> Decision {
    judged(policy, argv).map_or(Decision::Deny, |judgement| judgement.decision())
}
