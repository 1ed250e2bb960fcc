use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::Ordering;

use proptest::prelude::*;

use super::*;
use crate::TokenText;

/// S003-15, S003-39.
#[test]
fn s003_15_a_token_lets_in_whoever_has_it_and_nobody_else() {
    let world = World::new();
    let minted = world.mint(&[Scope::Read], None);
    let text = minted.text.reveal();
    assert!(text.starts_with("rf_api_") && text.split('_').count() == 4, "{text:?}");
    let known = world.known(&minted);
    assert_eq!(known.rights, rights(&[Scope::Read], None));
    assert_eq!(
        known.principal.identity(),
        "operator:7@node",
        "whoever made it at this machine is one person"
    );
    let mut wrong = text.to_string();
    let last = if wrong.pop() == Some('0') { '1' } else { '0' };
    wrong.push(last);
    assert_eq!(denied(world.identities.authenticate(&wrong, &HERE)), AuthError::Unknown);
    let other_kind = text.replace("rf_api_", "rf_device_");
    assert_eq!(denied(world.identities.authenticate(&other_kind, &HERE)), AuthError::Unknown);
    for none in
        ["", "rf_api__", "Bearer x", &text.to_uppercase(), &format!("{}x", text.as_str()), &"_".repeat(500)]
    {
        assert_eq!(denied(world.reopened().authenticate(none, &HERE)), AuthError::NoToken, "{none}");
    }
}

/// C-33: the secret is in no file and in no record.
#[test]
fn c33_what_is_kept_is_not_the_secret() {
    let world = World::new();
    let minted = world.mint(&[Scope::Admin], None);
    let rotated = world.identities.rotate(&root(), &minted.meta.id).unwrap();
    world.known(&rotated);
    let mut everything = format!("{:?} {:?}", minted, world.notes).into_bytes();
    let directory = world.directory.path().join("identity");
    for entry in fs::read_dir(&directory).unwrap() {
        everything.extend(fs::read(entry.unwrap().path()).unwrap());
    }
    let has = |part: &str| everything.windows(part.len()).any(|window| window == part.as_bytes());
    for text in [&minted.text, &rotated.text] {
        let secret = text.reveal().rsplit('_').next().unwrap().to_owned();
        assert!(!has(&secret));
        assert!(has(&text.digest()), "the search finds what is there");
    }
}

/// D3: the error names the missing scope, and an empty set grants nothing.
#[test]
fn d3_what_is_missing_is_named() {
    let world = World::new();
    let known = world.known(&world.mint(&[Scope::Read], Some(&["/w/a"])));
    assert_eq!(Authority::Token(&known).require(Scope::Read), Ok(()));
    let error = Authority::Token(&known).require(Scope::Approve).unwrap_err();
    assert_eq!(error.to_string(), "scope `approve` is required");
    assert_eq!(error.refusal().rule, "identity.scope");
    assert!(error.hint().unwrap().contains("--scope approve"));
    let nothing = world.known(&world.mint(&[], None));
    assert!(Scope::ALL.iter().all(|scope| Authority::Token(&nothing).require(*scope).is_err()));
}

#[test]
fn only_admins_make_tokens_and_only_up_to_their_own_rights() {
    let world = World::new();
    let runner = world.known(&world.mint(&[Scope::Run, Scope::Approve], None));
    let made = world.identities.mint(&Authority::Token(&runner), token(rights(&[Scope::Run], None)));
    assert_eq!(denied(made), AuthError::Scope(Scope::Admin));
    let admin = world.known(&world.mint(&[Scope::Admin, Scope::Run], Some(&["/w/a"])));
    for (wanted, why) in [
        (rights(&[Scope::Approve], Some(&["/w/a"])), "scope `approve`"),
        (rights(&[Scope::Run], None), "workspaces"),
        (rights(&[Scope::Run], Some(&["/w/a", "/w/b"])), "workspaces"),
    ] {
        let made = world.identities.mint(&Authority::Token(&admin), token(wanted));
        assert!(denied(made).to_string().contains(why));
    }
    world
        .identities
        .mint(&Authority::Token(&admin), token(rights(&[Scope::Run], Some(&["/w/a/b"]))))
        .unwrap();
}

/// A credential becomes invalid with the credential it was created with, of any kind.
#[test]
fn nothing_outlives_what_it_was_made_with() {
    let world = World::new();
    let password = ["correct", "horse", "battery"].join("-");
    let new = crate::NewOperator {
        name: "ann".to_owned(),
        rights: rights(&[Scope::Admin, Scope::Read], None),
        password: password.as_bytes(),
    };
    world.identities.add_operator(&root(), new).unwrap();
    let web = world.identities.login("ann", password.as_bytes(), &HERE).unwrap();
    let make = |by: &KnownIdentity| {
        world.identities.mint(&Authority::Token(by), token(rights(&[Scope::Read], None)))
    };
    let [by_web, by_api] = [
        make(&web.known).unwrap(),
        make(&world.known(&world.mint(&[Scope::Admin, Scope::Read], None))).unwrap(),
    ];
    assert_eq!(by_web.meta.expires_at, web.known.expires_at);
    world.identities.set_password(&root(), "ann", ["another", "long", "one"].join("-").as_bytes()).unwrap();
    assert_eq!(denied(world.authenticate(&by_web)), AuthError::Revoked);
    world.known(&by_api);
}

/// A new secret is valid as long as its token.
#[test]
fn a_token_is_rotated_by_nobody_it_would_outlive() {
    let world = World::new();
    let [mine, other] = [world.mint(&[Scope::Admin], None), world.mint(&[Scope::Admin], None)];
    let known = world.known(&mine);
    let by = Authority::Token(&known);
    assert_eq!(denied(world.identities.rotate(&by, &other.meta.id)), AuthError::NotTheirs);
    world.known(&other);
    let child = world.identities.mint(&by, token(rights(&[Scope::Admin], None))).unwrap();
    let rotated = world.identities.rotate(&by, &child.meta.id).unwrap();
    let below = world.known(&rotated);
    assert_eq!(
        denied(world.identities.rotate(&Authority::Token(&below), &mine.meta.id)),
        AuthError::NotTheirs
    );
}

/// A token that could read another token's secret would have its rights.
#[test]
fn rotating_a_wider_token_is_no_way_up() {
    let world = World::new();
    let wide = world.mint(&[Scope::Approve, Scope::Admin], None);
    let admin = world.known(&world.mint(&[Scope::Admin], None));
    let rotated = world.identities.rotate(&Authority::Token(&admin), &wide.meta.id);
    assert!(matches!(denied(rotated), AuthError::Wider(_)));
    world.known(&wide);
    // The holder may rotate, with any scopes.
    let reader = world.mint(&[Scope::Read], None);
    let known = world.known(&reader);
    let fresh = world.identities.rotate(&Authority::Token(&known), &reader.meta.id).unwrap();
    assert_eq!(denied(world.authenticate(&reader)), AuthError::Unknown);
    world.known(&fresh);
}

#[test]
fn what_was_revoked_is_revoked_for_every_process_at_once() {
    let world = World::new();
    let daemon = world.reopened();
    let parent = world.mint(&[Scope::Admin, Scope::Read], None);
    let known = world.known(&parent);
    let child = daemon.mint(&Authority::Token(&known), token(rights(&[Scope::Read], None))).unwrap();
    let other = world.mint(&[Scope::Read], None);
    let [whole, part, beside] = [&parent, &child, &other].map(|minted| world.known(minted));
    let before = daemon.moment().unwrap().generation;
    world.identities.revoke(&root(), &parent.meta.id).unwrap();
    assert_ne!(daemon.moment().unwrap().generation, before);
    for known in [whole, part] {
        assert_eq!(daemon.standing(&known).unwrap(), Some(AuthError::Revoked));
    }
    assert_eq!(daemon.standing(&beside).unwrap(), None);
    assert_eq!(denied(daemon.authenticate(&parent.text.reveal(), &HERE)), AuthError::Revoked);
    assert_eq!(
        denied(daemon.authenticate(&child.text.reveal(), &HERE)),
        AuthError::Revoked,
        "with its maker"
    );
    assert_eq!(denied(world.identities.rotate(&root(), &parent.meta.id)), AuthError::Revoked);
}

#[test]
fn another_secret_ends_what_came_with_the_old_one() {
    let world = World::new();
    let minted = world.mint(&[Scope::Read], None);
    let before = world.known(&minted);
    assert_eq!(world.identities.standing(&before).unwrap(), None);
    let rotated = world.identities.rotate(&root(), &minted.meta.id).unwrap();
    assert_eq!(world.identities.standing(&before).unwrap(), Some(AuthError::Revoked));
    assert_eq!(world.identities.standing(&world.known(&rotated)).unwrap(), None);
}

#[test]
fn without_admin_one_revokes_ones_own_token_and_no_other() {
    let world = World::new();
    let [own, other] = [world.mint(&[Scope::Read], None), world.mint(&[Scope::Read], None)];
    let known = world.known(&own);
    let revoked = world.identities.revoke(&Authority::Token(&known), &other.meta.id);
    assert_eq!(denied(revoked), AuthError::Scope(Scope::Admin));
    world.identities.revoke(&Authority::Token(&known), &own.meta.id).unwrap();
    assert_eq!(denied(world.authenticate(&own)), AuthError::Revoked);
    world.known(&other);
}

/// What cannot be recorded is not done.
#[test]
fn without_a_record_nothing_changes_and_nobody_comes_in() {
    let world = World::new();
    let minted = world.mint(&[Scope::Admin], None);
    let before = (world.identities.credentials().unwrap(), world.identities.moment().unwrap().generation);
    world.notes.broken.store(true, Ordering::Relaxed);
    let failures = [
        world.identities.mint(&root(), token(Rights::all())).map(drop),
        world.identities.rotate(&root(), &minted.meta.id).map(drop),
        world.authenticate(&minted).map(drop),
        world.identities.authenticate("nonsense", &HERE).map(drop),
    ];
    for failure in failures {
        assert!(matches!(failure, Err(IdentityError::Unwitnessed(_))), "{failure:?}");
    }
    assert_eq!(
        (world.identities.credentials().unwrap(), world.identities.moment().unwrap().generation),
        before
    );
    world.notes.broken.store(false, Ordering::Relaxed);
    world.known(&minted);
}

/// What only takes away happens in any case, and its record follows.
#[test]
fn a_token_is_revoked_also_without_a_record() {
    let world = World::new();
    let [one, other] = [0, 1].map(|_| world.mint(&[Scope::Admin], None));
    world.known(&one);
    world.notes.broken.store(true, Ordering::Relaxed);
    world.identities.revoke(&root(), &one.meta.id).unwrap();
    assert_eq!(world.notes.late.lock().unwrap().len(), 1, "it waits to be written");
    world.notes.broken.store(false, Ordering::Relaxed);
    assert_eq!(denied(world.authenticate(&one)), AuthError::Revoked);
    world.known(&other);
}

/// S003-28.
#[test]
fn s003_28_who_came_and_who_failed_is_written_down_once_per_visit() {
    let world = World::new();
    let minted = world.mint(&[Scope::Read], None);
    let count = world.notes.count();
    for _ in 0..3 {
        world.known(&minted);
    }
    assert_eq!(world.notes.count(), count + 1);
    assert!(
        world.notes.last().contains(&format!("may come in with api token {} from user 0", minted.meta.id))
    );
    world.identities.authenticate(&minted.text.reveal(), &ELSEWHERE).unwrap();
    assert!(world.notes.last().ends_with("from 127.0.0.1"), "another place is another visit");
    assert_eq!(denied(world.identities.authenticate("x", &ELSEWHERE)), AuthError::NoToken);
    assert_eq!(
        world.notes.last(),
        "a client from 127.0.0.1 may not (identity.no-token) come in with something"
    );
}

#[test]
fn a_store_that_others_could_touch_is_refused() {
    let world = World::new();
    let directory = world.directory.path().join("identity");
    let file = directory.join("identity.db");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    for (path, mode) in [(&directory, 0o750), (&file, 0o640)] {
        let before = fs::metadata(path).unwrap().permissions();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        let error = SqliteIdentityStore::open(world.directory.path()).unwrap_err();
        assert!(error.to_string().contains("others may open it") && error.hint().is_some(), "{error}");
        fs::set_permissions(path, before).unwrap();
    }
    fs::rename(&file, directory.join("moved")).unwrap();
    std::os::unix::fs::symlink(directory.join("moved"), &file).unwrap();
    assert!(SqliteIdentityStore::open(world.directory.path()).unwrap_err().to_string().contains("a link"));
}

#[test]
fn threads_and_processes_do_not_lose_each_others_changes() {
    let world = World::new();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let own = world.reopened();
                for _ in 0..5 {
                    own.mint(&root(), token(Rights::all())).unwrap();
                }
            });
        }
    });
    assert_eq!(world.identities.credentials().unwrap().len(), 20);
    assert_eq!(world.identities.moment().unwrap().generation, 20);
}

fn some_rights() -> impl Strategy<Value = Rights> {
    let scopes = prop::collection::vec(prop::sample::select(Scope::ALL.to_vec()), 0..5);
    let paths = prop::option::of(prop::collection::vec(prop::sample::select(vec!["/w", "/w/a", "/x"]), 0..3));
    (scopes, paths).prop_map(|(scopes, paths)| rights(&scopes, paths.as_deref()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Over any chain of tokens, rights stay within those of the first, and rotation changes only the secret.
    #[test]
    fn minted_is_within_its_maker_and_rotation_never_widens(chain in prop::collection::vec(some_rights(), 1..6)) {
        let world = World::new();
        let mut maker: Option<KnownIdentity> = None;
        for wanted in chain {
            let by = maker.as_ref().map_or_else(|| root(), Authority::Token);
            let Ok(minted) = world.identities.mint(&by, token(wanted.clone())) else { continue };
            if let Some(maker) = &maker {
                prop_assert!(maker.rights.may_give(&minted.meta.rights).is_ok());
                prop_assert!(maker.rights.scopes.contains(Scope::Admin));
            }
            prop_assert_eq!(&minted.meta.rights, &wanted);
            let rotated = world.identities.rotate(&root(), &minted.meta.id).unwrap();
            prop_assert_eq!(crate::CredentialSummary { renewed_at: None, ..rotated.meta.clone() }, minted.meta);
            maker = Some(world.known(&rotated));
        }
    }

    #[test]
    fn no_text_makes_the_reader_of_tokens_panic(text in ".{0,200}") {
        prop_assert!(TokenText::parse(&text).is_none());
    }
}
