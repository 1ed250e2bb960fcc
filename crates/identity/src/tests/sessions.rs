use ringfence_types::{Attenuation, CommandPrefix, CredentialKind, HostPattern, HostRestriction, SessionId};

use super::*;
use crate::SessionTokenSpec;

fn session(world: &World) -> (SessionId, MintedCredential) {
    let id = SessionId::random().unwrap();
    let grantee = SessionTokenSpec {
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
        paths: AllOrOnly::of(Some([Subtree::new(Path::new("/w/src")).unwrap()])),
        hosts: AllOrOnly::of(Some([HostRestriction::new(&HostPattern::parse("a.example").unwrap())])),
        commands: AllOrOnly::of(Some([CommandPrefix::parse("cargo test").unwrap()])),
        calls,
    }
}

/// S000-55, C-28: a session token has no scope.
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
        AuthError::Scope(Scope::Admin)
    );
    let (_, other) = session(&world);
    world.identities.end_session(&id).unwrap();
    assert_eq!(denied(world.authenticate(&minted)), AuthError::Revoked);
    world.known(&other);
}

#[test]
fn what_a_session_hands_on_only_narrows_and_dies_with_it() {
    let world = World::new();
    let (id, minted) = session(&world);
    let own = world.known(&minted);
    let child = world.identities.attenuate(&own, "tests", narrowed(None), TokenLifetime::Unlimited).unwrap();
    let child_known = world.known(&child);
    assert_eq!(child_known.attenuation, narrowed(None));
    assert_eq!(child_known.session(), Some(&id));
    for wider in [
        Attenuation::none(),
        Attenuation { paths: AllOrOnly::Any, ..narrowed(None) },
        Attenuation { hosts: AllOrOnly::Any, ..narrowed(None) },
        Attenuation {
            commands: AllOrOnly::of(Some([CommandPrefix::parse("cargo").unwrap()])),
            ..narrowed(None)
        },
    ] {
        let made = world.identities.attenuate(&child_known, "up", wider, TokenLifetime::Unlimited);
        assert!(matches!(denied(made), AuthError::Wider(_)));
    }
    let long = TokenLifetime::For(SignedDuration::from_hours(2));
    let made = world.identities.attenuate(&own, "long", Attenuation::none(), long);
    assert_eq!(denied(made), AuthError::Lifetime);
    world.identities.revoke(&root(), &minted.meta.id).unwrap();
    assert_eq!(denied(world.authenticate(&child)), AuthError::Revoked);
    let api = world.known(&world.mint(&[Scope::Admin], None));
    let made = world.identities.attenuate(&api, "x", Attenuation::none(), TokenLifetime::Unlimited);
    assert_eq!(denied(made), AuthError::Kind);
}

#[test]
fn a_budget_counts_for_everybody_above() {
    let world = World::new();
    let (_, minted) = session(&world);
    let own = world.known(&minted);
    let make = |by: &KnownIdentity, calls: u64| {
        world.identities.attenuate(by, "x", narrowed(Some(calls)), TokenLifetime::Unlimited)
    };
    let parent = make(&own, 5).unwrap();
    let parent_known = world.known(&parent);
    let child = make(&parent_known, 3).unwrap();
    let child_known = world.known(&child);
    for _ in 0..3 {
        world.identities.spend(&child_known).unwrap();
    }
    assert_eq!(denied(world.identities.spend(&child_known)), AuthError::Spent);
    assert_eq!(world.known(&parent).attenuation.calls, Some(2));
    assert!(matches!(denied(make(&parent_known, 3)), AuthError::Wider(_)), "what is left, not what was");
    let unlimited = Attenuation { calls: None, ..narrowed(None) };
    let made = world.identities.attenuate(&parent_known, "x", unlimited, TokenLifetime::Unlimited);
    assert!(matches!(denied(made), AuthError::Wider(_)));
    world.identities.spend(&own).unwrap();
}

/// D9: of many concurrent calls exactly the budgeted number succeeds.
#[test]
fn d9_a_budget_holds_when_many_spend_at_once() {
    let world = World::new();
    let (_, minted) = session(&world);
    let own = world.known(&minted);
    let child = world.identities.attenuate(&own, "x", narrowed(Some(10)), TokenLifetime::Unlimited).unwrap();
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
    let make =
        |by: &KnownIdentity| world.identities.attenuate(by, "x", narrowed(None), TokenLifetime::Unlimited);
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

/// Expired tokens do not count.
#[test]
fn tokens_that_are_over_make_place_for_others() {
    let world = World::new();
    let (_, minted) = session(&world);
    let own = world.known(&minted);
    let make = |lifetime| world.identities.attenuate(&own, "x", narrowed(None), lifetime);
    for _ in 0..64 {
        make(TokenLifetime::For(SignedDuration::from_secs(60))).unwrap();
    }
    assert!(matches!(make(TokenLifetime::Unlimited), Err(IdentityError::Full(_))));
    world.clock.pass(60);
    make(TokenLifetime::Unlimited).unwrap();
}
