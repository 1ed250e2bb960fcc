use super::*;
use crate::{Challenge, DeviceKey, DeviceSignature, NewPairing, PairingOffer, ProofPurpose, code_of};

struct Device(DeviceKey);

impl Device {
    fn new(seed: u8) -> Self {
        Self(DeviceKey::parse(&format!("{seed:02x}").repeat(32)).unwrap())
    }

    fn key(&self) -> String {
        self.0.public()
    }

    fn sign(&self, purpose: ProofPurpose, challenge: &Challenge) -> DeviceSignature {
        self.0.sign(purpose, challenge)
    }

    fn ask(&self, world: &World, wants: Rights) -> PairingOffer {
        let new = NewPairing { label: "phone".to_owned(), key: self.key(), wants };
        world.identities.ask_to_pair(&new, &ELSEWHERE).unwrap()
    }

    fn asks(&self, world: &World, wants: Rights) -> PairingOffer {
        let offered = self.ask(world, wants);
        let signature = self.sign(ProofPurpose::Pair, &offered.challenge);
        world.identities.prove_pairing(&offered.challenge, &signature).unwrap();
        offered
    }

    fn collect(&self, world: &World, offered: &PairingOffer) -> Result<MintedCredential, IdentityError> {
        let challenge = world.identities.challenge(&offered.pairing.id, &ELSEWHERE)?;
        world.identities.collect(&challenge, &self.sign(ProofPurpose::Claim, &challenge))
    }

    fn refresh(&self, world: &World, minted: &MintedCredential) -> Result<MintedCredential, IdentityError> {
        let challenge = world.identities.challenge(&minted.meta.id, &ELSEWHERE)?;
        world.identities.refresh(&challenge, &self.sign(ProofPurpose::Refresh, &challenge))
    }
}

/// S003-18.
#[test]
fn s003_18_a_device_is_paired_refreshed_and_revoked() {
    let world = World::new();
    let device = Device::new(1);
    let offered = device.asks(&world, rights(&[Scope::Read, Scope::Approve], None));
    let waiting = world.identities.pairings().unwrap();
    assert_eq!(waiting.len(), 1);
    assert_eq!(waiting[0].code, code_of(&device.key()), "both sides show the same");
    assert_eq!(denied(device.collect(&world, &offered)), AuthError::NotApproved);
    let narrowed = rights(&[Scope::Approve], None);
    world.identities.approve_pairing(&root(), &offered.pairing.id, Some(narrowed.clone())).unwrap();
    let minted = device.collect(&world, &offered).unwrap();
    assert!(minted.text.reveal().starts_with("rf_device_"));
    assert_eq!(world.known(&minted).rights, narrowed);
    assert!(device.collect(&world, &offered).is_err(), "once");
    world.clock.pass(3600);
    assert_eq!(denied(world.authenticate(&minted)), AuthError::Expired, "a stolen token is worth an hour");
    let fresh = device.refresh(&world, &minted).unwrap();
    assert_eq!(fresh.meta.rights, narrowed);
    assert_eq!(world.known(&fresh).id, minted.meta.id);
    let again = device.refresh(&world, &fresh).unwrap();
    assert_eq!(denied(world.authenticate(&fresh)), AuthError::Unknown, "the one before is worth nothing");
    world.known(&again);
    world.identities.revoke(&root(), &minted.meta.id).unwrap();
    assert_eq!(denied(world.authenticate(&again)), AuthError::Revoked);
    assert_eq!(denied(device.refresh(&world, &again)), AuthError::Revoked);
}

#[test]
fn a_device_has_to_be_paired_again_after_ninety_days() {
    let world = World::new();
    let device = Device::new(1);
    let offered = device.asks(&world, rights(&[Scope::Read], None));
    world.identities.approve_pairing(&root(), &offered.pairing.id, None).unwrap();
    let minted = device.collect(&world, &offered).unwrap();
    world.clock.pass(90 * 24 * 3600 - 10);
    let last = device.refresh(&world, &minted).unwrap();
    world.known(&last);
    world.clock.pass(10);
    assert_eq!(denied(world.authenticate(&last)), AuthError::Expired);
    assert_eq!(denied(device.refresh(&world, &last)), AuthError::Expired);
}

#[test]
fn a_signature_is_good_for_one_challenge_one_purpose_and_one_key() {
    let world = World::new();
    let (device, thief) = (Device::new(1), Device::new(2));
    let offered = device.ask(&world, rights(&[Scope::Read], None));
    assert_eq!(world.identities.pairings().unwrap(), [], "what is not proven is shown to nobody");
    let forged = thief.sign(ProofPurpose::Pair, &offered.challenge);
    assert_eq!(denied(world.identities.prove_pairing(&offered.challenge, &forged)), AuthError::Proof);
    let right = device.sign(ProofPurpose::Pair, &offered.challenge);
    let again = world.identities.prove_pairing(&offered.challenge, &right);
    assert_eq!(denied(again), AuthError::Proof, "it was used up by the attempt");
    let offered = device.asks(&world, rights(&[Scope::Read], None));
    world.identities.approve_pairing(&root(), &offered.pairing.id, None).unwrap();
    let challenge = world.identities.challenge(&offered.pairing.id, &ELSEWHERE).unwrap();
    for wrong in [
        thief.sign(ProofPurpose::Claim, &challenge),
        device.sign(ProofPurpose::Refresh, &challenge),
        DeviceSignature(String::new()),
        DeviceSignature("zz".repeat(64)),
    ] {
        let challenge = world.identities.challenge(&offered.pairing.id, &ELSEWHERE).unwrap();
        assert_eq!(denied(world.identities.collect(&challenge, &wrong)), AuthError::Proof);
    }
    let minted = device.collect(&world, &offered).unwrap();
    let challenge = world.identities.challenge(&minted.meta.id, &ELSEWHERE).unwrap();
    let signature = device.sign(ProofPurpose::Refresh, &challenge);
    world.clock.pass(120);
    assert_eq!(denied(world.identities.refresh(&challenge, &signature)), AuthError::Proof, "too old");
}

#[test]
fn only_who_may_pair_lets_a_device_in_and_with_no_more_than_they_have() {
    let world = World::new();
    let device = Device::new(1);
    let offered = device.asks(&world, rights(&[Scope::Read, Scope::Run], None));
    let id = &offered.pairing.id;
    let admin = world.known(&world.mint(&[Scope::Admin, Scope::Read, Scope::Run], None));
    let refused = world.identities.approve_pairing(&Authority::Token(&admin), id, None);
    assert_eq!(denied(refused), AuthError::Scope(Scope::Pair));
    let pairer = world.known(&world.mint(&[Scope::Pair, Scope::Read], None));
    let by = Authority::Token(&pairer);
    assert!(matches!(denied(world.identities.approve_pairing(&by, id, None)), AuthError::Wider(_)));
    let more = rights(&[Scope::Read, Scope::Pair], None);
    let unasked = world.identities.approve_pairing(&by, id, Some(more));
    assert!(matches!(denied(unasked), AuthError::Wider(_)), "nor with more than it wants");
    world.identities.approve_pairing(&by, id, Some(rights(&[Scope::Read], None))).unwrap();
    assert!(world.identities.approve_pairing(&by, id, None).is_err(), "once");
    let other = Device::new(2).asks(&world, rights(&[Scope::Read], None));
    world.identities.refuse_pairing(&by, &other.pairing.id).unwrap();
    assert_eq!(denied(Device::new(2).collect(&world, &other)), AuthError::PairingRefused);
}

#[test]
fn requests_of_strangers_are_few_and_short_lived() {
    let world = World::new();
    let ask = |seed: u8, source: LoginSource| {
        let new = NewPairing { label: "x".to_owned(), key: Device::new(seed).key(), wants: Rights::all() };
        world.identities.ask_to_pair(&new, &source)
    };
    for seed in 0..4 {
        ask(seed, ELSEWHERE).unwrap();
    }
    assert!(matches!(ask(9, ELSEWHERE), Err(IdentityError::Full(_))));
    ask(9, HERE).unwrap();
    let mut taken = 0;
    for last in 1..=100 {
        taken += usize::from(ask(9, LoginSource::Address([127, 0, 1, last].into())).is_ok());
    }
    assert_eq!(taken, 27, "32 in all");
    world.clock.pass(601);
    ask(9, ELSEWHERE).unwrap();
    let label = "\u{1b}[2J".to_owned();
    let bad = NewPairing { label, key: Device::new(1).key(), wants: Rights::all() };
    assert!(matches!(world.identities.ask_to_pair(&bad, &HERE), Err(IdentityError::Name { .. })));
    for key in [String::new(), "00".repeat(32), "zz".repeat(32), "11".repeat(31)] {
        let bad = NewPairing { label: "x".to_owned(), key, wants: Rights::all() };
        assert!(matches!(world.identities.ask_to_pair(&bad, &HERE), Err(IdentityError::Key)));
    }
}

/// A device becomes invalid with its approver's credential, and expires at the latest with it.
#[test]
fn a_device_ends_with_whoever_let_it_in() {
    let world = World::new();
    let new = NewToken {
        lifetime: TokenLifetime::For(SignedDuration::from_mins(10)),
        ..token(rights(&[Scope::Pair, Scope::Read], None))
    };
    let [kept, revoked] = [1, 2].map(|seed| {
        let pairer = world.identities.mint(&root(), new.clone()).unwrap();
        let device = Device::new(seed);
        let offered = device.asks(&world, rights(&[Scope::Read], None));
        let known = world.known(&pairer);
        world.identities.approve_pairing(&Authority::Token(&known), &offered.pairing.id, None).unwrap();
        (device, offered, pairer)
    });
    world.identities.revoke(&root(), &revoked.2.meta.id).unwrap();
    assert_eq!(
        denied(revoked.0.collect(&world, &revoked.1)),
        AuthError::Revoked,
        "approved by nobody any more"
    );
    let minted = kept.0.collect(&world, &kept.1).unwrap();
    assert_eq!(minted.meta.parent.as_ref(), Some(&kept.2.meta.id));
    let fresh = kept.0.refresh(&world, &minted).unwrap();
    assert_eq!(fresh.meta.expires_at, kept.2.meta.expires_at);
    world.identities.revoke(&root(), &kept.2.meta.id).unwrap();
    assert_eq!(denied(world.authenticate(&fresh)), AuthError::Revoked);
    assert_eq!(denied(kept.0.refresh(&world, &fresh)), AuthError::Revoked);
}

/// One source cannot use up the challenges that need no authentication.
#[test]
fn one_source_does_not_keep_others_from_signing() {
    let world = World::new();
    let nobody = world.mint(&[], None).meta.id;
    for _ in 0..16 {
        world.identities.challenge(&nobody, &ELSEWHERE).unwrap();
    }
    assert!(matches!(world.identities.challenge(&nobody, &ELSEWHERE), Err(IdentityError::Full(_))));
    world.identities.challenge(&nobody, &HERE).unwrap();
}
