use super::*;
use crate::{CredentialId, NewOperator, of_browser};

fn password() -> String {
    ["correct", "horse", "battery", "staple"].join("-")
}

fn operator(world: &World, name: &str, scopes: &[Scope]) {
    let password = password();
    let new =
        NewOperator { name: name.to_owned(), rights: rights(scopes, None), password: password.as_bytes() };
    world.identities.add_operator(&root(), new).unwrap();
}

/// S003-19.
#[test]
fn s003_19_a_password_opens_a_web_session_with_its_operators_rights() {
    let world = World::new();
    operator(&world, "ann", &[Scope::Read, Scope::Approve]);
    let session = world.identities.login("ann", password().as_bytes(), &ELSEWHERE).unwrap();
    let cookie = session.cookie.reveal();
    let shown = of_browser(&cookie, Some(&session.csrf));
    let known = world.identities.authenticate(&shown, &ELSEWHERE).unwrap();
    assert_eq!(known.rights, rights(&[Scope::Read, Scope::Approve], None));
    assert_eq!(known.principal.identity(), "account:ann@node");
    let second = world.identities.login("ann", password().as_bytes(), &ELSEWHERE).unwrap();
    for wrong in [None, Some(""), Some(second.csrf.as_str()), Some(cookie.as_str())] {
        let answer = world.identities.authenticate(&of_browser(&cookie, wrong), &ELSEWHERE);
        assert_eq!(denied(answer), AuthError::Csrf, "{wrong:?}");
    }
    assert_eq!(*of_browser(&shown, None), "", "a cookie with both halves is none");
    world.clock.pass(12 * 3600);
    assert_eq!(denied(world.identities.authenticate(&shown, &ELSEWHERE)), AuthError::Expired);
}

/// S003-28: failures are recorded, without the typed text.
#[test]
fn a_wrong_name_and_a_wrong_password_look_the_same() {
    let world = World::new();
    operator(&world, "ann", &[Scope::Read]);
    let secret = "my-password-in-the-wrong-field";
    let answers = [("ann", secret), (secret, secret)]
        .map(|(name, word)| denied(world.identities.login(name, word.as_bytes(), &ELSEWHERE)));
    assert_eq!(answers, [AuthError::Unknown, AuthError::Unknown]);
    let lines = world.notes.lines.lock().unwrap().join("\n");
    assert!(lines.contains("may not (identity.unknown) come in as operator ann with a password"), "{lines}");
    assert!(!lines.contains(secret), "{lines}");
}

#[test]
fn who_guesses_a_password_waits_longer_and_longer_and_a_right_guess_does_not_help() {
    let world = World::new();
    operator(&world, "ann", &[Scope::Read]);
    operator(&world, "bob", &[Scope::Read]);
    let login = |name: &str, word: &str, source| world.identities.login(name, word.as_bytes(), source);
    for _ in 0..6 {
        assert_eq!(denied(login("ann", "not the right one", &ELSEWHERE)), AuthError::Unknown);
    }
    let count = world.notes.count();
    for _ in 0..10 {
        assert_eq!(denied(login("ann", &password(), &ELSEWHERE)), AuthError::Wait { seconds: 1 });
    }
    assert_eq!(world.notes.count(), count + 1, "one wait is one record");
    login("bob", &password(), &ELSEWHERE).unwrap();
    login("ann", &password(), &HERE).unwrap();
    for _ in 0..6 {
        assert_eq!(denied(login("bob", "not the right one", &ELSEWHERE)), AuthError::Unknown);
    }
    world.clock.pass(1);
    assert_eq!(denied(login("bob", "not the right one", &ELSEWHERE)), AuthError::Unknown);
    assert_eq!(denied(login("bob", &password(), &ELSEWHERE)), AuthError::Wait { seconds: 2 });
}

/// Wrong tokens from an address do not throttle other clients at the same address.
#[test]
fn wrong_tokens_keep_neither_a_good_one_out_nor_a_password() {
    let world = World::new();
    operator(&world, "ann", &[Scope::Read]);
    let text = world.mint(&[Scope::Read], None).text.reveal();
    for _ in 0..20 {
        assert!(world.identities.authenticate("rf_x", &ELSEWHERE).is_err());
    }
    assert!(matches!(denied(world.identities.authenticate("rf_x", &ELSEWHERE)), AuthError::Wait { .. }));
    world.identities.authenticate(&text, &ELSEWHERE).unwrap();
    world.identities.login("ann", password().as_bytes(), &ELSEWHERE).unwrap();
}

/// One user runs many programs, and one session socket serves many parts of an agent.
#[test]
fn wrong_tokens_on_a_socket_keep_no_good_one_out() {
    let world = World::new();
    let text = world.mint(&[Scope::Read], None).text.reveal();
    for _ in 0..6 {
        assert_eq!(denied(world.identities.authenticate("rf_x", &HERE)), AuthError::NoToken);
    }
    let count = world.notes.count();
    for _ in 0..10 {
        assert!(matches!(denied(world.identities.authenticate("rf_x", &HERE)), AuthError::Wait { .. }));
    }
    assert_eq!(world.notes.count(), count + 1, "one wait is one record");
    world.identities.authenticate(&text, &HERE).unwrap();
}

#[test]
fn whoever_shows_a_token_that_is_over_does_not_guess() {
    let world = World::new();
    let minted = world.mint(&[Scope::Read], None);
    world.identities.revoke(&root(), &minted.meta.id).unwrap();
    for _ in 0..20 {
        assert_eq!(denied(world.authenticate(&minted)), AuthError::Revoked);
    }
}

#[test]
fn a_network_of_ipv6_is_one_source() {
    let world = World::new();
    for host in 1..=6_u16 {
        let address = std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 0, 0, 0, host);
        assert_eq!(
            denied(world.identities.authenticate("x", &LoginSource::Address(address.into()))),
            AuthError::NoToken
        );
    }
    let next = LoginSource::Address("2001:db8:0:1:ffff::1".parse().unwrap());
    assert!(matches!(denied(world.identities.authenticate("x", &next)), AuthError::Wait { .. }));
    let other = LoginSource::Address("2001:db8:0:2::1".parse().unwrap());
    assert_eq!(denied(world.identities.authenticate("x", &other)), AuthError::NoToken);
}

#[test]
fn another_password_ends_the_web_sessions_and_an_operator_who_is_gone_has_nothing() {
    let world = World::new();
    operator(&world, "ann", &[Scope::Read]);
    let web = world.identities.login("ann", password().as_bytes(), &HERE).unwrap();
    let web = of_browser(&web.cookie.reveal(), Some(&web.csrf));
    let new = NewToken { operator: Some("ann".to_owned()), ..token(rights(&[Scope::Read], None)) };
    let api = world.identities.mint(&root(), new.clone()).unwrap();
    let wide = NewToken { rights: Rights::all(), ..new };
    assert!(
        matches!(denied(world.identities.mint(&root(), wide)), AuthError::Wider(_)),
        "not more than the operator"
    );
    let fresh = ["another", "long", "password"].join(" ");
    world.identities.set_password(&root(), "ann", fresh.as_bytes()).unwrap();
    assert_eq!(denied(world.identities.authenticate(&web, &HERE)), AuthError::Revoked);
    world.known(&api);
    assert_eq!(denied(world.identities.login("ann", password().as_bytes(), &HERE)), AuthError::Unknown);
    world.identities.login("ann", fresh.as_bytes(), &HERE).unwrap();
    world.identities.remove_operator(&root(), "ann").unwrap();
    assert_eq!(denied(world.authenticate(&api)), AuthError::Revoked);
    operator(&world, "ann", &[Scope::Read]);
    assert_eq!(denied(world.authenticate(&api)), AuthError::Revoked, "a new one of the same name is another");
}

/// Permission to set a password is a way to log in.
#[test]
fn setting_the_password_of_somebody_with_more_rights_is_no_way_up() {
    let world = World::new();
    operator(&world, "ann", &[Scope::Approve]);
    operator(&world, "eve", &[Scope::Admin]);
    let eve = world.identities.login("eve", password().as_bytes(), &HERE).unwrap().known;
    let by = Authority::Token(&eve);
    let fresh = ["another", "long", "password"].join(" ");
    let set = world.identities.set_password(&by, "ann", fresh.as_bytes());
    assert!(matches!(denied(set), AuthError::Wider(_)));
    let new = NewOperator { name: "mal".to_owned(), rights: Rights::all(), password: fresh.as_bytes() };
    assert!(matches!(denied(world.identities.add_operator(&by, new)), AuthError::Wider(_)));
    world.identities.set_password(&by, "eve", fresh.as_bytes()).unwrap();
    let ann = world.identities.login("ann", password().as_bytes(), &HERE).unwrap().known;
    let set = world.identities.set_password(&Authority::Token(&ann), "eve", fresh.as_bytes());
    assert_eq!(denied(set), AuthError::Scope(Scope::Admin));
}

/// Only an authorized caller learns that a password is too short: it is not examined before.
#[test]
fn no_password_is_hashed_for_somebody_who_may_not_set_it() {
    let world = World::new();
    operator(&world, "ann", &[Scope::Approve]);
    let admin = world.known(&world.mint(&[Scope::Admin], None));
    let by = Authority::Token(&admin);
    assert!(matches!(denied(world.identities.set_password(&by, "ann", b"short")), AuthError::Wider(_)));
    let nobody = world.identities.set_password(&by, "nobody", b"short");
    assert!(matches!(nobody, Err(IdentityError::NoSuch { .. })), "{nobody:?}");
    let again = NewOperator { name: "ann".to_owned(), rights: rights(&[], None), password: b"short" };
    assert!(matches!(world.identities.add_operator(&by, again), Err(IdentityError::Exists { .. })));
    let set = world.identities.set_password(&root(), "ann", b"short");
    assert!(matches!(set, Err(IdentityError::Password(_))), "{set:?}");
}

#[test]
fn names_that_could_be_taken_for_others_are_refused() {
    let world = World::new();
    let password = password();
    for bad in ["", "Ann", "a b", "аnn", "ann\n", "../x", &"a".repeat(65), "1ann"] {
        let new = NewOperator { name: bad.to_owned(), rights: Rights::all(), password: password.as_bytes() };
        let added = world.identities.add_operator(&root(), new);
        assert!(matches!(added, Err(IdentityError::Name { .. })), "{bad:?}");
    }
    operator(&world, "ann", &[]);
    let again = NewOperator { name: "ann".to_owned(), rights: Rights::all(), password: password.as_bytes() };
    assert!(matches!(world.identities.add_operator(&root(), again), Err(IdentityError::Exists { .. })));
    let short = NewOperator { name: "bob".to_owned(), rights: Rights::all(), password: b"hunter2" };
    assert!(matches!(world.identities.add_operator(&root(), short), Err(IdentityError::Password(_))));
}

fn come_in(world: &World, name: &str, word: &str) -> KnownIdentity {
    world.identities.login(name, word.as_bytes(), &HERE).unwrap().known
}

/// The credential that sets a password could log in with it.
#[test]
fn a_password_goes_back_to_what_it_was_given_with() {
    let world = World::new();
    let kin =
        |one: &KnownIdentity, other: &KnownIdentity| world.identities.are_kin(&one.id, &other.id).unwrap();
    let (maker, other) = (world.mint(&[Scope::Admin], None), world.mint(&[Scope::Admin], None));
    let (maker, other) = (world.known(&maker), world.known(&other));
    let by = Authority::Token(&maker);
    let admin = || rights(&[Scope::Admin], None);
    let add = |by: &Authority<'_>, name: &str| {
        let word = password();
        let new = NewOperator { name: name.to_owned(), rights: admin(), password: word.as_bytes() };
        world.identities.add_operator(by, new).unwrap();
    };
    add(&by, "eve");
    operator(&world, "ann", &[Scope::Admin]);
    let (eve, ann) = (come_in(&world, "eve", &password()), come_in(&world, "ann", &password()));
    assert!(kin(&maker, &eve) && kin(&eve, &maker) && !kin(&other, &eve));
    assert!(!kin(&maker, &ann), "the owner gave her one");
    // Through an operator that it created, and through that operator's token.
    add(&Authority::Token(&eve), "mal");
    let mal = come_in(&world, "mal", &password());
    let token = world.identities.mint(&Authority::Token(&mal), token(admin())).unwrap();
    assert!(kin(&maker, &mal) && kin(&world.known(&token), &maker) && !kin(&mal, &other));
    // A password that an operator sets for itself keeps the origins. One set by another credential replaces them.
    let fresh = ["another", "long", "password"].join(" ");
    world.identities.set_password(&Authority::Token(&eve), "eve", fresh.as_bytes()).unwrap();
    assert!(kin(&come_in(&world, "eve", &fresh), &maker));
    world.identities.set_password(&by, "ann", fresh.as_bytes()).unwrap();
    assert!(kin(&come_in(&world, "ann", &fresh), &maker) && !kin(&ann, &maker), "what came before is hers");
    // A password set by the owner has no origins. Earlier logins keep theirs, also after their operator is removed.
    world.identities.set_password(&root(), "eve", password().as_bytes()).unwrap();
    assert!(!kin(&come_in(&world, "eve", &password()), &maker));
    world.identities.remove_operator(&root(), "mal").unwrap();
    assert!(kin(&mal, &maker));
    let forgotten = CredentialId::parse("0000000000000000").unwrap();
    assert!(world.identities.are_kin(&forgotten, &maker.id).unwrap(), "it could be anybody's");
}

/// Guesses from many sources throttle only sources that have never logged in. Attack and control in one test.
#[test]
fn guesses_from_elsewhere_keep_nobody_out_who_was_in_before() {
    let world = World::new();
    operator(&world, "ann", &[Scope::Read]);
    let from = |last: u8| LoginSource::Address(std::net::Ipv4Addr::new(192, 0, 2, last).into());
    let login = |word: &str, last: u8| world.identities.login("ann", word.as_bytes(), &from(last));
    login(&password(), 1).unwrap();
    for guess in 0..14 {
        assert_eq!(denied(login("not the right one", 10 + guess / 5)), AuthError::Unknown);
        world.clock.pass(10);
    }
    assert!(matches!(denied(login("not the right one", 20)), AuthError::Unknown | AuthError::Wait { .. }));
    assert!(matches!(denied(login(&password(), 2)), AuthError::Wait { .. }), "the name waits");
    assert!(world.identities.is_known_source("ann", &from(1)).unwrap());
    for _ in 0..5 {
        assert_eq!(denied(login("not the right one", 1)), AuthError::Unknown, "mistyped");
    }
    login(&password(), 1).unwrap();
}
