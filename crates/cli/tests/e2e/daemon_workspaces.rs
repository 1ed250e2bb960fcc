//! A credential for some workspaces: what it may do there, and that there is nothing else for it.

use std::fs;
use std::path::PathBuf;

use ringfence_api::{
    CreateSession, CreateToken, EventMessage, ExecRequest, ListApprovals, ListSessions, Method, MethodAccess,
    ReportActivity, ShowSession, Subscribe, TextOrBase64, WriteFile,
};
use ringfence_client::ClientError;
use ringfence_types::{AllOrOnly, Profile, Rights, Scope, Subtree};
use serde_json::{Value, json};

use crate::approvals::configure;
use crate::daemon_authorization_matrix::{Place, Said, bearer, request};
use crate::daemon_fixture::{Served, exec};
use crate::testkit::{World, eventually, names};

/// With every scope there is, for this directory alone.
fn limited(served: &Served, workspace: &std::path::Path) -> String {
    let rights = Rights {
        scopes: Scope::ALL.iter().copied().collect(),
        workspaces: AllOrOnly::of(Some([Subtree::new(workspace).unwrap()])),
    };
    let new = CreateToken { label: "t".to_owned(), rights, lifetime_s: Some(600), operator: None };
    served.client().call(&new).unwrap().secret
}

/// What a method is about, for somebody with all scopes in another workspace. A method that is not named here is about the
/// whole machine, and so for nobody who is let in for a part of it.
fn expected(method: Method, own: Own) -> Said {
    match (method.access(), method) {
        (MethodAccess::Anyone | MethodAccess::Known, _) => Said::LetIn,
        // Only an agent does, in its own session.
        (_, Method::TokenAttenuate) => Said::Forbidden,
        (MethodAccess::Session(_), _) | (_, Method::SessionCreate | Method::SessionStop) => match own {
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
        // Last of all whoever may: the session has ended then.
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
    let written = served.records("authentication-attempted");
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
    served.client().call(&ExecRequest { background: true, argv, ..exec(&session, "") }).unwrap();
    let questions = |token: &str| served.client_with(token).call(&ListApprovals {}).unwrap().approvals;
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
        let report =
            ReportActivity { session: one.session.clone(), activity: "last".to_owned(), claim: text };
        served.client().call(&report).unwrap();
    }
    let told = |token: &str| {
        let mut client = served.client_with(token);
        let events = client.events(&Subscribe { after: Some(0), session: None }).unwrap().map(Result::unwrap);
        let mut told: Vec<EventMessage> = Vec::new();
        for event in events {
            let last = event.kind == "activity-reported";
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
        let sessions =
            served.client_with(token).call(&ListSessions { include_ended: true }).unwrap().sessions;
        assert_eq!(sessions.len(), 1);
        served.client_with(token).call(&ShowSession { session: own.session.clone() }).unwrap();
    }
    assert!(
        told(&this).iter().any(|event| event.kind == "approval-requested"),
        "the control: who may is told"
    );
    served.client().raw(Method::ApprovalAnswer, json!({ "id": id, "answer": "deny" })).unwrap();
}

/// A session is bound to a directory. A command of another session that makes a directory above it a link sends it nowhere else:
/// neither its commands, nor the file tools, nor what Ringfence itself makes in a workspace.
#[test]
fn a_link_that_comes_above_a_workspace_leads_nowhere() {
    for backend in ["native", "bubblewrap"] {
        let world = World::new();
        configure(&world, &format!("backend = \"{backend}\"\n"));
        let served = Served::with(world, &[]);
        let (workspace, elsewhere) = (served.world.workspace.clone(), served.world.beside("elsewhere"));
        let victim = elsewhere.join("inner");
        fs::create_dir(&victim).unwrap();
        fs::write(victim.join("secret"), "secret").unwrap();
        fs::create_dir_all(workspace.join("above/inner")).unwrap();
        let mut client = served.client_with(&limited(&served, &workspace));
        let mut session =
            |path: PathBuf| client.call(&CreateSession { workspace: path, ..served.wanted() }).unwrap();
        let (inner, outer) = (session(workspace.join("above/inner")), session(workspace.clone()));
        let swapped = format!("mv above aside && ln -s {} above", elsewhere.display());
        assert_eq!(served.sh(&outer, &swapped).exit_code, Some(0), "{backend}");
        assert!(workspace.join("above/inner/secret").exists(), "control: the path leads there");
        let call = served.sh(&inner, "cat secret; echo x >planted");
        assert_eq!((call.exit_code, call.posture.is_some()), (None, false), "{backend}: {call:?}");
        let content = TextOrBase64::Text("x".to_owned());
        let write = WriteFile { session: inner.session.clone(), path: "planted".into(), content };
        assert!(served.client().call(&write).is_err(), "{backend}");
        assert_eq!(names(&victim), ["secret"], "{backend}: nothing was made there");
        assert_eq!(served.sh(&outer, "rm above && mv aside above").exit_code, Some(0));
        assert_eq!(served.sh(&inner, "echo x >planted").exit_code, Some(0), "{backend}");
        assert!(workspace.join("above/inner/planted").exists(), "it works on in its own place");
    }
}
