use super::*;

fn short(world: &World) -> MintedCredential {
    let new =
        NewToken { lifetime: TokenLifetime::For(SignedDuration::from_secs(100)), ..token(Rights::all()) };
    world.identities.mint(&root(), new).unwrap()
}

#[test]
fn a_token_ends_when_it_should() {
    let world = World::new();
    let minted = short(&world);
    world.clock.pass(99);
    let known = world.known(&minted);
    world.clock.pass(1);
    assert_eq!(denied(world.authenticate(&minted)), AuthError::Expired);
    assert_eq!(world.identities.standing(&known).unwrap(), Some(AuthError::Expired));
    assert!(known.expires_at <= Some(world.identities.moment().unwrap().now));
}

#[test]
fn a_clock_that_is_set_back_makes_no_token_good_again() {
    let world = World::new();
    let minted = short(&world);
    world.clock.set_back(1_000_000);
    world.clock.pass(100);
    assert_eq!(denied(world.authenticate(&minted)), AuthError::Expired, "the time that passed counts");
    let restarted = world.reopened();
    let still = restarted.authenticate(&minted.text.reveal(), &HERE);
    assert!(still.is_ok(), "after a restart only what is stored is known, and nothing was stored at its end");
    let world = World::new();
    let minted = short(&world);
    world.clock.pass(100);
    world.mint(&[], None);
    world.clock.set_back(1_000_000);
    assert_eq!(denied(world.reopened().authenticate(&minted.text.reveal(), &HERE)), AuthError::Expired);
}

#[test]
fn a_token_does_not_outlive_its_maker() {
    let world = World::new();
    let known = world.known(&short(&world));
    let by = Authority::Token(&known);
    let long =
        NewToken { lifetime: TokenLifetime::For(SignedDuration::from_secs(101)), ..token(Rights::all()) };
    assert_eq!(denied(world.identities.mint(&by, long)), AuthError::Lifetime);
    let unlimited = world.identities.mint(&by, token(Rights::all())).unwrap();
    assert_eq!(unlimited.meta.expires_at, known.expires_at);
    for never in [SignedDuration::ZERO, SignedDuration::from_secs(-1), SignedDuration::MAX] {
        let new = NewToken { lifetime: TokenLifetime::For(never), ..token(Rights::all()) };
        assert!(matches!(world.identities.mint(&root(), new), Err(IdentityError::End)));
    }
}
