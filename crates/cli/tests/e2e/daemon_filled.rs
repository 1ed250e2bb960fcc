//! Whoever asks for as much as they can fills neither the store of identities nor the ledger, and keeps nobody out.

use ringfence_api::{ApiError, CreateToken, ErrorCode, Method};
use ringfence_client::{Client, ClientError};
use ringfence_types::{Rights, Scope, Within};
use serde_json::{Value, json};

use crate::daemon_rights::token_of;
use crate::served::Served;

fn refused(answer: Result<Value, ClientError>) -> ApiError {
    match answer {
        Err(ClientError::Api(error)) => error,
        other => panic!("{other:?}"),
    }
}

fn owner_mints(served: &Served) -> String {
    let rights = Rights { scopes: [Scope::Read].into_iter().collect(), workspaces: Within::Any };
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
        assert_eq!(refused(make(maker)).code, ErrorCode::Exhausted);
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
