//! A credential for some workspaces: what it may do there, and that there is nothing else for it.

use ringfence_api::{
    Access, CreateSession, CreateToken, Exec, Happened, ListApprovals, ListSessions, Method, ReportActivity,
    ShowSession, Subscribe,
};
use ringfence_client::ClientError;
use ringfence_types::{Profile, Rights, Scope, Subtree, Within};
use serde_json::{Value, json};

use crate::daemon_matrix::{Place, Said, bearer, request};
use crate::served::{Served, exec};
use crate::testkit::eventually;

/// With every scope there is, for this directory alone.
fn limited(served: &Served, workspace: &std::path::Path) -> String {
    let rights = Rights {
        scopes: Scope::ALL.iter().copied().collect(),
        workspaces: Within::of(Some([Subtree::new(workspace).unwrap()])),
    };
    let new = CreateToken { label: "t".to_owned(), rights, lifetime_s: Some(600), operator: None };
    served.client().call(&new).unwrap().secret
}

/// What a method is about, for somebody with all scopes in another workspace. A method that is not named here is about the
/// whole machine, and so for nobody who is let in for a part of it.
fn expected(method: Method, own: Own) -> Said {
    match (method.access(), method) {
        (Access::Anyone | Access::Known, _) => Said::LetIn,
        // Only an agent does, in its own session.
        (_, Method::TokenAttenuate) => Said::Forbidden,
        (Access::Session(_), _) | (_, Method::SessionCreate | Method::SessionStop) => match own {
            Own::This => Said::LetIn,
            Own::Other => Said::Forbidden,
        },
        // They are told of what they may know of, which is nothing.
        (
            _,
            Method::SessionList
            | Method::ApprovalList
            | Method::ApprovalWatch
            | Method::ApprovalShow
            | Method::ApprovalAnswer
            | Method::GrantList
            | Method::GrantRevoke
            | Method::GrantRevokeAll
            | Method::Events
            | Method::TokenCreate,
        ) => Said::LetIn,
        _ => Said::Forbidden,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Own {
    This,
    Other,
}

/// Every method, with a token for this workspace and with one for another; each no is in the ledger.
#[test]
fn every_method_is_closed_beyond_the_workspaces_of_a_token() {
    let place = Place::new();
    let served = &place.served;
    let session = served.session();
    let workspace = served.world.workspace.to_str().unwrap().to_owned();
    let this = limited(served, &served.world.workspace);
    let other = limited(served, &served.world.beside("other"));
    let mut refused = Vec::new();
    let last = [Method::SessionStop];
    let (first, _) = Method::ALL.iter().partition::<Vec<Method>, _>(|method| !last.contains(method));
    for method in first.into_iter().chain(last) {
        // Last of all whoever may: the session is over then.
        for (own, token) in [(Own::Other, &other), (Own::This, &this)] {
            let visitor = bearer(ringfence_api::TokenKind::Api, Scope::ALL.to_vec(), token);
            let mut wanted = request(method, session.session.as_str(), &workspace);
            if method == Method::TokenAttenuate {
                let all = json!({ "paths": "any", "hosts": "any", "commands": "any", "calls": null });
                (wanted["label"], wanted["attenuation"]) = (json!("x"), all);
            }
            let said = place.ask(&visitor, method, &wanted);
            assert_eq!(said, expected(method, own), "{} {own:?}", method.name());
            if said == Said::Forbidden {
                refused.push(method.name());
            }
        }
    }
    let written = served.records("authenticated");
    let written = written.iter().map(|record| &record["event"]);
    let rules: Vec<&Value> = written.clone().map(|event| &event["refusal"]["rule"]).collect();
    let mut written: Vec<&str> = written
        .filter(|event| !event["refusal"].is_null())
        .map(|event| event["purpose"].as_str().unwrap())
        .collect();
    let others = rules.iter().filter(|rule| !rule.is_null() && ***rule != "identity.workspace");
    assert_eq!(others.collect::<Vec<_>>(), [&"identity.kind"], "an operator hands on nothing of a session");
    written.sort_unstable();
    refused.sort_unstable();
    assert_eq!(written, refused, "each no is written down, once");
}

/// What there is beyond the workspaces of a token is not told by how it fails.
#[test]
fn a_token_for_a_workspace_learns_nothing_of_others() {
    let served = Served::new();
    let other = limited(&served, &served.world.beside("other"));
    served.world.write(".ringfence/policy.toml", "this is no policy");
    let nowhere = served.world.workspace.join("none");
    let answers = [served.world.workspace.clone(), nowhere].map(|workspace| {
        let wanted = CreateSession { workspace, ..served.wanted() };
        match served.client_with(&other).call(&wanted) {
            Err(ClientError::Api(error)) => (error.code, error.message, error.hint),
            answer => panic!("{answer:?}"),
        }
    });
    assert_eq!(answers[0], answers[1]);
    // The control: whoever may is told what is wrong there.
    let this = limited(&served, &served.world.workspace);
    match served.client_with(&this).call(&served.wanted()) {
        Err(ClientError::Api(error)) => assert_ne!(error.message, answers[0].1),
        answer => panic!("{answer:?}"),
    }
}

/// Events, questions and sessions of other workspaces are nobody's business.
#[test]
fn what_happens_elsewhere_is_not_told() {
    let served = Served::new();
    let beside = served.world.beside("other");
    let [this, other] = [served.world.workspace.clone(), beside.clone()].map(|at| limited(&served, &at));
    let guarded = CreateSession { profile: Some(Profile::Guarded), ..served.wanted() };
    let session = served.client().call(&guarded).unwrap();
    let elsewhere = served.client().call(&CreateSession { workspace: beside, ..served.wanted() }).unwrap();
    let argv = vec!["mkdir".to_owned(), "made".to_owned()];
    served.client().call(&Exec { background: true, argv, ..exec(&session, "") }).unwrap();
    let questions = |token: &str| served.client_with(token).call(&ListApprovals {}).unwrap().questions;
    eventually("a question waits", || questions(&this).len() == 1);
    let id = questions(&this).remove(0).id;
    assert!(questions(&other).is_empty());
    for method in [Method::ApprovalShow, Method::ApprovalAnswer] {
        let answer = if method == Method::ApprovalAnswer { json!("once") } else { Value::Null };
        let mut request = json!({ "id": id, "answer": answer });
        request.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        match served.client_with(&other).raw(method, request) {
            Err(ClientError::Api(error)) => assert_eq!(error.code, ringfence_api::ErrorCode::NotFound),
            answer => panic!("{answer:?}"),
        }
    }
    assert!(!served.world.workspace.join("made").exists());
    // Both are told up to the last thing that happened, and each of its own.
    for one in [&session, &elsewhere] {
        let text = one.session.to_string();
        let report = ReportActivity { session: one.session.clone(), kind: "last".to_owned(), text };
        served.client().call(&report).unwrap();
    }
    let told = |token: &str| {
        let mut client = served.client_with(token);
        let events = client.events(&Subscribe { after: Some(0), session: None }).unwrap().map(Result::unwrap);
        let mut told: Vec<Happened> = Vec::new();
        for event in events {
            let last = event.kind == "activity";
            told.push(event);
            if last {
                break;
            }
        }
        told
    };
    for (token, own) in [(&this, &session), (&other, &elsewhere)] {
        let told = told(token);
        assert!(told.iter().all(|event| event.session.as_ref() == Some(&own.session)), "{told:?}");
        let sessions = served.client_with(token).call(&ListSessions { all: true }).unwrap().sessions;
        assert_eq!(sessions.len(), 1);
        served.client_with(token).call(&ShowSession { session: own.session.clone() }).unwrap();
    }
    assert!(
        told(&this).iter().any(|event| event.kind == "approval-requested"),
        "the control: who may is told"
    );
    served.client().raw(Method::ApprovalAnswer, json!({ "id": id, "answer": "deny" })).unwrap();
}
