//! A full store locks out neither the owner nor new sessions.

use ringfence_types::{Attenuation, CredentialKind, SessionId};

use super::*;
use crate::record::{CredentialId, CredentialRecord};
use crate::store::{self, IdentityStore as _, RecordTable, TransactionEnd};
use crate::{NewOperator, SessionTokenSpec, of_browser};

/// Inserts `count` copies of the row `like`, as if other clients had created them.
fn fill(world: &World, like: &CredentialId, count: usize) {
    let store = SqliteIdentityStore::open(world.directory.path()).unwrap();
    store
        .change(&mut |rows| {
            let one: CredentialRecord =
                store::get(rows, RecordTable::Credential, like.as_str()).unwrap().unwrap();
            for _ in 0..count {
                let id = CredentialId::random().unwrap();
                store::put(
                    rows,
                    RecordTable::Credential,
                    id.as_str(),
                    &CredentialRecord { id: id.clone(), ..one.clone() },
                )
                .unwrap();
            }
            TransactionEnd::Keep
        })
        .unwrap();
}

fn begin(world: &World) -> Result<MintedCredential, IdentityError> {
    world.identities.session_token(SessionTokenSpec {
        session: SessionId::random().unwrap(),
        agent: None,
        workspace: Path::new("/w"),
        lifetime: SignedDuration::from_hours(1),
    })
}

#[test]
fn tokens_made_through_children_count_for_their_session() {
    let world = World::new();
    let own = world.known(&begin(&world).unwrap());
    let make = |by: &KnownIdentity| {
        world.identities.attenuate(
            by,
            "x",
            Attenuation::none(),
            TokenLifetime::For(SignedDuration::from_secs(1)),
        )
    };
    let mut makers = vec![own.clone()];
    while let Ok(made) = make(makers.last().unwrap()) {
        makers.push(world.known(&made));
    }
    let through: usize = makers.iter().map(|by| std::iter::from_fn(|| make(by).ok()).count()).sum();
    assert_eq!(makers.len() - 1 + through, 64);
    world.clock.pass(59);
    assert!(matches!(make(&own), Err(IdentityError::Full(_))), "short ones are no way round it");
    world.clock.pass(1);
    make(&own).unwrap();
    let other = world.known(&begin(&world).unwrap());
    make(&other).unwrap();
}

#[test]
fn the_end_of_a_session_is_one_record() {
    let world = World::new();
    let own = world.known(&begin(&world).unwrap());
    let hand = |by: &KnownIdentity| {
        let made =
            world.identities.attenuate(by, "x", Attenuation::none(), TokenLifetime::Unlimited).unwrap();
        world.known(&made)
    };
    let child = hand(&own);
    let deeper = hand(&child);
    let before = world.notes.count();
    world.identities.end_session(own.session().unwrap()).unwrap();
    assert_eq!(world.notes.count(), before + 1);
    assert!(world.notes.last().contains("and 2 that were handed on"), "{}", world.notes.last());
    let revoked =
        |known: &KnownIdentity| world.identities.credential(&known.id).unwrap().revoked_at.is_some();
    assert!([&own, &child, &deeper].into_iter().all(revoked));
    world.identities.end_session(own.session().unwrap()).unwrap();
    assert_eq!(world.notes.count(), before + 1, "what is over does not end again");
}

#[test]
fn a_full_store_keeps_neither_the_owner_nor_a_session_out() {
    let world = World::new();
    let minted = world.mint(&[Scope::Admin], None);
    let admin = world.known(&minted);
    fill(&world, &minted.meta.id, 10_000);
    let by = Authority::Token(&admin);
    let made = world.identities.mint(&by, token(rights(&[Scope::Admin], None)));
    assert!(matches!(made, Err(IdentityError::Full(_))), "the attack itself");
    let own = world.known(&begin(&world).unwrap());
    let made = world.identities.attenuate(&own, "x", Attenuation::none(), TokenLifetime::Unlimited);
    assert!(matches!(made, Err(IdentityError::Full(_))));
    world.mint(&[Scope::Admin], None);
}

#[test]
fn an_operator_has_so_many_browsers_and_the_oldest_goes() {
    let world = World::new();
    let password = ["correct", "horse", "battery", "staple"].join("-");
    for name in ["ann", "bob"] {
        let (name, rights) = (name.to_owned(), rights(&[Scope::Read], None));
        world
            .identities
            .add_operator(&root(), NewOperator { name, rights, password: password.as_bytes() })
            .unwrap();
    }
    let login = |name: &str| world.identities.login(name, password.as_bytes(), &ELSEWHERE).unwrap();
    let (bob, oldest) = (login("bob"), login("ann"));
    let comes = |session: &crate::WebSession| {
        let shown = of_browser(&session.cookie.reveal(), Some(&session.csrf));
        world.identities.authenticate(&shown, &ELSEWHERE)
    };
    world.clock.pass(1);
    let next = login("ann");
    fill(&world, &next.known.id, 62);
    assert!(comes(&oldest).is_ok(), "control: 64 of them");
    login("ann");
    assert_eq!(denied(comes(&oldest)), AuthError::Revoked);
    assert!(comes(&next).is_ok() && comes(&bob).is_ok());
    let live = world.identities.credentials().unwrap();
    let live = live.iter().filter(|one| one.kind == CredentialKind::Web && one.revoked_at.is_none());
    assert_eq!(live.count(), 64 + 1);
}
