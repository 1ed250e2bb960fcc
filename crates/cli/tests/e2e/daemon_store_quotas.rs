//! Whoever asks for as much as they can fills neither the store of identities nor the ledger, and keeps nobody out.

use ringfence_api::{ApiError, CreateToken, ErrorCode, Method};
use ringfence_client::{Client, ClientError};
use ringfence_types::{AllOrOnly, Rights, Scope};
use serde_json::{Value, json};

use crate::daemon_fixture::Served;
use crate::daemon_rights::token_of;

fn refused(answer: Result<Value, ClientError>) -> ApiError {
    match answer {
        Err(ClientError::Api(error)) => error,
        other => panic!("{other:?}"),
    }
}

fn owner_mints(served: &Served) -> String {
    let rights = Rights { scopes: [Scope::Read].into_iter().collect(), workspaces: AllOrOnly::Any };
    let new = CreateToken { label: "t".to_owned(), rights, lifetime_s: None, operator: None };
    served.client().call(&new).unwrap().secret
}

/// One agent hands on as many tokens as it can, and with each of them as many again.
#[test]
fn tokens_that_tokens_hand_on_end_at_64_in_all() {
    let served = Served::new();
    let session = served.session();
    let left = json!({ "paths": "any", "hosts": "any", "commands": "any", "calls": null });
    let hand = json!({ "session": session.session, "label": "x", "attenuation": left, "lifetime_s": 1 });
    let make = |client: &mut Client| client.raw(Method::TokenAttenuate, hand.clone());
    let own = token_of(&served, &session);
    let mut makers = vec![served.client_with(&own)];
    let hand_long = json!({ "session": session.session, "label": "x", "attenuation": left });
    // Deep at first: each of these could have 64 for itself.
    for _ in 0..3 {
        let made = makers.last_mut().unwrap().raw(Method::TokenAttenuate, hand_long.clone()).unwrap();
        makers.push(served.client_with(made["secret"].as_str().unwrap()));
    }
    let mut made = makers.len() - 1;
    for maker in &mut makers {
        while make(maker).is_ok() {
            made += 1;
            assert!(made <= 64, "it does not end");
        }
        assert_eq!(refused(make(maker)).code, ErrorCode::ResourceExhausted);
    }
    assert_eq!(made, 64);
    // Nobody else is kept out.
    let other = served.session();
    let hand = json!({ "session": other.session, "label": "x", "attenuation": left });
    let mut agent = served.client_with(&token_of(&served, &other));
    agent.raw(Method::TokenAttenuate, hand).unwrap();
    owner_mints(&served);
    // With the session all of them end, in one record.
    let revoked = |served: &Served| {
        let records = served.records("identity-changed");
        records.iter().filter(|record| record["event"]["change"]["verb"] == "revoked").count()
    };
    let before = revoked(&served);
    served.client().raw(Method::SessionStop, json!({ "session": session.session, "grace_ms": 0 })).unwrap();
    assert_eq!(revoked(&served), before + 1);
    for maker in &mut makers {
        assert_eq!(refused(maker.raw(Method::WhoAmI, json!({}))).code, ErrorCode::Unauthenticated);
    }
}

/// Whoever shows the right secret of a token that was revoked does not guess, and so does not wait.
#[test]
fn a_revoked_token_is_in_the_ledger_once() {
    let served = Served::new();
    let secret = owner_mints(&served);
    let mut client = served.client_with(&secret);
    client.raw(Method::WhoAmI, json!({})).unwrap();
    let id = secret.split('_').nth(2).unwrap();
    served.client().raw(Method::TokenRevoke, json!({ "id": id })).unwrap();
    for _ in 0..1000 {
        let why = refused(client.raw(Method::WhoAmI, json!({})));
        assert_eq!(why.rule.as_deref(), Some("identity.revoked"), "{why:?}");
    }
    let written = served.records("authentication-attempted");
    let written = written.iter().filter(|record| record["event"]["refusal"]["rule"] == "identity.revoked");
    assert_eq!(written.count(), 1);
}

/// An agent that asks for what it may not have is told no each time, and written down until there is enough of it.
#[test]
fn what_an_agent_is_refused_does_not_fill_the_ledger() {
    let served = Served::new();
    let (one, other) = (served.session(), served.session());
    let [mut agent, mut another] =
        [&one, &other].map(|session| served.client_with(&token_of(&served, session)));
    for _ in 0..1200 {
        assert_eq!(refused(agent.raw(Method::TokenList, json!({}))).code, ErrorCode::Forbidden);
    }
    assert_eq!(refused(agent.raw(Method::OperatorList, json!({}))).code, ErrorCode::Forbidden);
    assert_eq!(refused(another.raw(Method::TokenList, json!({}))).code, ErrorCode::Forbidden);
    let written = served.records("authentication-attempted");
    let of = |session: &str| -> Vec<&Value> {
        let events = written.iter().map(|record| &record["event"]);
        events
            .filter(|event| event["principal"]["session"] == session && !event["refusal"].is_null())
            .collect()
    };
    let its = of(one.session.as_str());
    assert!((1024..1150).contains(&its.len()), "{}", its.len());
    let says_so =
        |event: &&Value| event["refusal"]["message"].to_string().contains("the next are not written down");
    assert!(its.iter().any(says_so), "{its:?}");
    let hidden = its.iter().filter(|event| event["purpose"] == Method::OperatorList.name()).count();
    assert_eq!(hidden, 1, "what is new is not hidden behind what is old");
    assert_eq!(of(other.session.as_str()).len(), 1, "and of others as before");
}

/// What an agent says of itself has a bound in bytes, each for itself; it does not hold for operators.
#[test]
fn what_an_agent_reports_does_not_fill_the_ledger() {
    let served = Served::new();
    let (one, other) = (served.session(), served.session());
    let report = |client: &mut Client, session: &str| {
        let request = json!({ "session": session, "activity": "k", "claim": "word ".repeat(3200) });
        client.raw(Method::SessionReportActivity, request)
    };
    let mut agent = served.client_with(&token_of(&served, &one));
    let mut kept = 0;
    let why = loop {
        match report(&mut agent, one.session.as_str()) {
            Ok(_) => kept += 1,
            error => break refused(error),
        }
        assert!(kept < 1000, "it does not end");
    };
    assert_eq!(why.code, ErrorCode::ResourceExhausted);
    assert!(kept >= 200, "the first are kept: {kept}");
    assert!(report(&mut served.client_with(&token_of(&served, &other)), other.session.as_str()).is_ok());
    assert!(report(&mut served.client(), one.session.as_str()).is_ok());
}
