use ringfence_types::{Attenuation, CommandPrefix, CredentialKind, HostLimit, HostRule, SessionId};

use super::*;
use crate::Grantee;

fn session(world: &World) -> (SessionId, Minted) {
    let id = SessionId::random().unwrap();
    let grantee = Grantee {
        session: id.clone(),
        agent: Some("claude".to_owned()),
        workspace: Path::new("/w"),
        lifetime: SignedDuration::from_hours(1),
    };
    let minted = world.identities.session_token(grantee).unwrap();
    (id, minted)
}

fn narrowed(calls: Option<u64>) -> Attenuation {
    Attenuation {
        paths: Within::of(Some([Subtree::new(Path::new("/w/src")).unwrap()])),
        hosts: Within::of(Some([HostLimit::new(&HostRule::parse("a.example").unwrap())])),
        commands: Within::of(Some([CommandPrefix::parse("cargo test").unwrap()])),
        calls,
    }
}

/// S000-55, C-28: a session has no scope at all.
#[test]
fn s000_55_the_token_of_a_session_has_no_scope_and_ends_with_it() {
    let world = World::new();
    let (id, minted) = session(&world);
    let known = world.known(&minted);
    assert_eq!(known.kind, CredentialKind::Session);
    assert_eq!(known.session(), Some(&id));
    assert!(Scope::ALL.iter().all(|scope| !known.rights.scopes.contains(*scope)));
    assert!(!known.principal.is_person(), "and never answers a question");
    let by = Authority::Token(&known);
    assert_eq!(
        denied(world.identities.mint(&by, token(rights(&[], Some(&["/w"]))))),
        Denied::Scope(Scope::Admin)
    );
    let (_, other) = session(&world);
    world.identities.end_session(&id).unwrap();
    assert_eq!(denied(world.authenticate(&minted)), Denied::Revoked);
    world.known(&other);
}

#[test]
fn what_a_session_hands_on_only_narrows_and_dies_with_it() {
    let world = World::new();
    let (id, minted) = session(&world);
    let own = world.known(&minted);
    let child = world.identities.attenuate(&own, "tests", (narrowed(None), Lifetime::Unlimited)).unwrap();
    let child_known = world.known(&child);
    assert_eq!(child_known.attenuation, narrowed(None));
    assert_eq!(child_known.session(), Some(&id));
    for wider in [
        Attenuation::none(),
        Attenuation { paths: Within::Any, ..narrowed(None) },
        Attenuation { hosts: Within::Any, ..narrowed(None) },
        Attenuation {
            commands: Within::of(Some([CommandPrefix::parse("cargo").unwrap()])),
            ..narrowed(None)
        },
    ] {
        let made = world.identities.attenuate(&child_known, "up", (wider, Lifetime::Unlimited));
        assert!(matches!(denied(made), Denied::Wider(_)));
    }
    let long = Lifetime::For(SignedDuration::from_hours(2));
    let made = world.identities.attenuate(&own, "long", (Attenuation::none(), long));
    assert_eq!(denied(made), Denied::Lifetime);
    world.identities.revoke(&root(), &minted.meta.id).unwrap();
    assert_eq!(denied(world.authenticate(&child)), Denied::Revoked);
    let api = world.known(&world.mint(&[Scope::Admin], None));
    let made = world.identities.attenuate(&api, "x", (Attenuation::none(), Lifetime::Unlimited));
    assert_eq!(denied(made), Denied::Kind);
}

#[test]
fn a_budget_counts_for_everybody_above() {
    let world = World::new();
    let (_, minted) = session(&world);
    let own = world.known(&minted);
    let make = |by: &Known, calls: u64| {
        world.identities.attenuate(by, "x", (narrowed(Some(calls)), Lifetime::Unlimited))
    };
    let parent = make(&own, 5).unwrap();
    let parent_known = world.known(&parent);
    let child = make(&parent_known, 3).unwrap();
    let child_known = world.known(&child);
    for _ in 0..3 {
        world.identities.spend(&child_known).unwrap();
    }
    assert_eq!(denied(world.identities.spend(&child_known)), Denied::Spent);
    assert_eq!(world.known(&parent).attenuation.calls, Some(2));
    assert!(matches!(denied(make(&parent_known, 3)), Denied::Wider(_)), "what is left, not what was");
    let unlimited = Attenuation { calls: None, ..narrowed(None) };
    let made = world.identities.attenuate(&parent_known, "x", (unlimited, Lifetime::Unlimited));
    assert!(matches!(denied(made), Denied::Wider(_)));
    world.identities.spend(&own).unwrap();
}

/// D9: of many at once exactly as many as there are.
#[test]
fn d9_a_budget_holds_when_many_spend_at_once() {
    let world = World::new();
    let (_, minted) = session(&world);
    let own = world.known(&minted);
    let child = world.identities.attenuate(&own, "x", (narrowed(Some(10)), Lifetime::Unlimited)).unwrap();
    let known = world.known(&child);
    let spent: usize = std::thread::scope(|scope| {
        let spend = || {
            let own = world.reopened();
            (0..10).filter(|_| own.spend(&known).is_ok()).count()
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(spend)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(spent, 10);
}

#[test]
fn a_session_hands_on_only_so_many_and_so_deep() {
    let world = World::new();
    let (_, minted) = session(&world);
    let own = world.known(&minted);
    let make = |by: &Known| world.identities.attenuate(by, "x", (narrowed(None), Lifetime::Unlimited));
    for _ in 0..64 {
        make(&own).unwrap();
    }
    assert!(matches!(make(&own), Err(IdentityError::Full(_))));
    let (_, minted) = session(&world);
    let mut last = world.known(&minted);
    let mut depth = 1;
    while let Ok(child) = make(&last) {
        last = world.known(&child);
        depth += 1;
    }
    assert_eq!(depth, 16);
}

/// What has expired takes no place.
#[test]
fn tokens_that_are_over_make_place_for_others() {
    let world = World::new();
    let (_, minted) = session(&world);
    let own = world.known(&minted);
    let make = |lifetime| world.identities.attenuate(&own, "x", (narrowed(None), lifetime));
    for _ in 0..64 {
        make(Lifetime::For(SignedDuration::from_secs(60))).unwrap();
    }
    assert!(matches!(make(Lifetime::Unlimited), Err(IdentityError::Full(_))));
    world.clock.pass(60);
    make(Lifetime::Unlimited).unwrap();
}
