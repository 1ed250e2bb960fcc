//! Files through the daemon: looked at, moved, removed, sent as they are, by the rules of every other way to a file.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use ringfence_api::{
    ApiError, CreateSession, DownloadFile, ErrorCode, MOST_SENT, MoveFile, RemoveFile, SendFile, SessionInfo,
    StatFile, TextOrBase64, UploadFile, WriteFile,
};
use ringfence_client::{Client, ClientError};
use ringfence_types::Profile;
use serde_json::{Value, json};

use crate::daemon_fixture::{ASK, Served, stdout};
use crate::testkit::{World, finish};

fn refused<T: std::fmt::Debug>(answer: Result<T, ClientError>) -> ApiError {
    match answer {
        Err(ClientError::Api(error)) => error,
        other => panic!("{other:?}"),
    }
}

/// Every way to touch a file of a session.
struct Hand {
    client: Client,
    session: SessionInfo,
}

impl Hand {
    fn of(served: &Served, session: SessionInfo) -> Self {
        Self { client: served.client(), session }
    }

    fn stat(&mut self, path: &str) -> Result<ringfence_api::FileInfo, ClientError> {
        self.client.call(&StatFile { session: self.session.session.clone(), path: path.into() })
    }

    fn rename(&mut self, path: &str, to: &str) -> Result<ringfence_api::FileChangeResult, ClientError> {
        let session = self.session.session.clone();
        self.client.call(&MoveFile { session, path: path.into(), to: to.into() })
    }

    fn remove(&mut self, path: &str) -> Result<ringfence_api::FileChangeResult, ClientError> {
        self.client.call(&RemoveFile { session: self.session.session.clone(), path: path.into() })
    }

    fn upload(&mut self, path: &str, content: Vec<u8>) -> Result<ringfence_api::WriteResult, ClientError> {
        let session = self.session.session.clone();
        self.client.upload(&UploadFile { session, path: path.into() }, content)
    }

    fn write(&mut self, path: &str, text: &str) -> Result<ringfence_api::WriteResult, ClientError> {
        let (session, content) = (self.session.session.clone(), TextOrBase64::Text(text.to_owned()));
        self.client.call(&WriteFile { session, path: path.into(), content })
    }

    fn send(&mut self, path: &str) -> Result<ringfence_api::Attachment, ClientError> {
        self.client.call(&SendFile { session: self.session.session.clone(), path: path.into() })
    }

    fn download(&mut self, path: &str) -> Result<Vec<u8>, ClientError> {
        let session = self.session.session.clone();
        Ok(self.client.download(&DownloadFile { session, path: path.into() })?.to_vec())
    }
}

fn operator_file(world: &World, text: &str) {
    let directory = world.home.join(".config/ringfence");
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join("config.toml"), text).unwrap();
}

/// S000-11, S000-12: each is one transaction with an intent before it and an end after it.
#[test]
fn files_are_looked_at_moved_removed_and_written_down() {
    let served = Served::new();
    served.world.write("a file", "text");
    fs::create_dir(served.world.workspace.join("empty")).unwrap();
    symlink("a file", served.world.workspace.join("link")).unwrap();
    let mut hand = Hand::of(&served, served.session());
    let seen = hand.stat("a file").unwrap();
    assert_eq!((seen.kind.word(), seen.bytes), ("file", 4));
    assert_eq!(hand.stat("empty").unwrap().kind.word(), "directory");
    assert_eq!(hand.stat("link").unwrap().bytes, 4, "what it leads to");
    let mut done: Vec<Option<String>> = vec![seen.transaction];
    done.push(hand.rename("a file", "empty/other").unwrap().transaction);
    assert_eq!(served.world.read("empty/other").as_deref(), Some("text"));
    served.world.write("over", "old");
    done.push(hand.rename("empty/other", "over").unwrap().transaction);
    assert_eq!(served.world.read("over").as_deref(), Some("text"));
    for path in ["empty", "link", "over"] {
        done.push(hand.remove(path).unwrap().transaction);
        assert!(fs::symlink_metadata(served.world.workspace.join(path)).is_err(), "{path}");
    }
    assert_eq!(refused(hand.remove("over")).code, ErrorCode::FailedPrecondition);
    let of_kind = |kind: &str| served.records(kind);
    let (intents, ends) = (of_kind("call-intended"), of_kind("call-settled"));
    for transaction in done {
        let transaction = json!(transaction.unwrap());
        let has = |record: &&Value| record["event"]["transaction"] == transaction;
        assert_eq!(intents.iter().filter(has).count(), 1, "{transaction}");
        assert_eq!(ends.iter().filter(has).count(), 1, "{transaction}");
    }
    let operations: Vec<&str> =
        intents.iter().filter_map(|record| record["event"]["call"]["operation"].as_str()).collect();
    assert!(["stat", "move", "remove"].iter().all(|word| operations.contains(word)), "{operations:?}");
}

/// S000-3…5, S000-17, S000-42, S000-44, S002-15: what cannot be read or written cannot be looked at, sent, moved, moved over or removed.
#[test]
fn hidden_protected_and_foreign_files_stay_where_they_are() {
    let served = Served::new();
    let world = &served.world;
    let outside = world.beside("outside");
    fs::create_dir_all(&outside).unwrap();
    let foreign = outside.join("foreign");
    fs::write(&foreign, "foreign").unwrap();
    world.write(".env", "KEY=1");
    world.write(".claude/settings.json", "{}");
    world.write("plain", "plain");
    fs::hard_link(world.workspace.join(".env"), world.workspace.join("alias")).unwrap();
    symlink(&outside, world.workspace.join("way")).unwrap();
    symlink(&foreign, world.workspace.join("out")).unwrap();
    let mut hand = Hand::of(&served, served.session());
    let foreign = foreign.to_str().unwrap();
    for path in [".env", "alias", "way/foreign", "../outside/foreign", foreign] {
        for error in [
            refused(hand.stat(path)),
            refused(hand.download(path)),
            refused(hand.send(path)),
            refused(hand.remove(path)),
            refused(hand.rename(path, "taken")),
            refused(hand.rename("plain", path)),
            refused(hand.upload(path, b"mine".to_vec())),
        ] {
            assert_eq!(error.code, ErrorCode::Refused, "{path}: {error:?}");
            assert!(error.rule.is_some_and(|rule| rule.starts_with("path.")), "{path}");
        }
    }
    for path in [".claude/settings.json", ".claude", ".git/hooks/pre-commit", ".ringfence/policy.toml"] {
        let error = refused(hand.rename("plain", path));
        assert_eq!(error.code, ErrorCode::Refused, "{path}: {error:?}");
    }
    for path in [".claude/settings.json", ".claude"] {
        assert_eq!(refused(hand.remove(path)).code, ErrorCode::Refused, "{path}");
        assert_eq!(refused(hand.rename(path, "taken")).code, ErrorCode::Refused, "{path}");
    }
    assert_eq!(refused(hand.rename("out", "taken")).code, ErrorCode::Refused, "a link is nobody's file");
    assert_eq!(refused(hand.rename("plain", "out")).code, ErrorCode::Refused, "nor a place for one");
    assert_eq!(world.read("taken"), None);
    for (path, content) in [(".env", "KEY=1"), ("plain", "plain"), (".claude/settings.json", "{}")] {
        assert_eq!(world.read(path).as_deref(), Some(content), "{path}");
    }
    assert_eq!(fs::read_to_string(foreign).unwrap(), "foreign");
    // Control: the same without the fence.
    let control = "mv .env taken && mv plain .claude/settings.json && rm alias way/foreign && mv out plain";
    finish(world.host("sh").args(["-c", control]), b"").expect(0);
    assert_eq!(world.read("taken").as_deref(), Some("KEY=1"));
}

/// S002-9: files that say who the agent is, as an operator wants them, and as `guarded` has them.
#[test]
fn identity_files_are_not_written_moved_over_or_removed() {
    let world = World::new();
    operator_file(&world, "[[path]]\ndeny = \"./SOUL.md\"\noperation = \"write\"\n");
    world.write("SOUL.md", "me");
    world.write("USER.md", "you");
    world.write("other", "other");
    let served = Served::with(world, &[]);
    let mut hand = Hand::of(&served, served.session());
    for error in [
        refused(hand.remove("SOUL.md")),
        refused(hand.rename("SOUL.md", "x")),
        refused(hand.rename("other", "SOUL.md")),
        refused(hand.rename("other", "soul.md")),
        refused(hand.write("SOUL.md", "somebody else")),
        refused(hand.upload("SOUL.md", b"somebody else".to_vec())),
    ] {
        assert!(error.rule.as_ref().is_some_and(|rule| rule.starts_with("path.rule ")), "{error:?}");
    }
    assert_eq!(hand.download("SOUL.md").unwrap(), b"me", "it can be read");
    // Without a rule of the operator, in any letter case and in every profile that writes.
    for profile in [Profile::Workspace, Profile::Guarded] {
        let wanted = CreateSession { profile: Some(profile), ..served.wanted() };
        let mut hand = Hand::of(&served, served.client().call(&wanted).unwrap());
        for error in [
            refused(hand.remove("USER.md")),
            refused(hand.write("USER.md", "somebody else")),
            refused(hand.write("sub/identity.MD", "somebody else")),
            refused(hand.rename("other", "uSeR.md")),
        ] {
            assert_eq!(error.rule.as_deref(), Some("path.identity"), "{error:?}");
        }
    }
    for (path, content) in [("SOUL.md", "me"), ("USER.md", "you")] {
        assert_eq!(served.world.read(path).as_deref(), Some(content));
    }
    // By a shell whose words do not say what it is about.
    let session = hand.session.clone();
    let by_shell = |name: &str| {
        let script = format!(
            "n={name}; for try in 'echo shell >$n.md' 'echo shell | tee $n.md' 'truncate -s 0 $n.md' 'cp other $n.md' \
             'mv -f other $n.md' 'rm -f $n.md' 'ln -f other $n.md' 'chmod 777 $n.md'; do eval \"$try\"; done; true"
        );
        served.sh(&session, &script)
    };
    by_shell("SOUL");
    assert_eq!(served.world.read("SOUL.md").as_deref(), Some("me"));
    assert_eq!(served.world.read("other").as_deref(), Some("other"), "nor was it moved away");
    // Controls: what nobody protects is written, sent, and gone, by the same hands.
    hand.write("PLAIN.md", "written").unwrap();
    assert_eq!(served.world.read("PLAIN.md").as_deref(), Some("written"));
    hand.upload("PLAIN.md", b"sent".to_vec()).unwrap();
    assert_eq!(served.world.read("PLAIN.md").as_deref(), Some("sent"));
    by_shell("PLAIN");
    assert_ne!(served.world.read("PLAIN.md").as_deref(), Some("sent"));
    served.world.write("PLAIN.md", "you");
    hand.remove("PLAIN.md").unwrap();
    assert_eq!(served.world.read("PLAIN.md"), None);
}

/// S002-15: as large as it may be and no larger, byte for byte, and without secrets.
#[test]
fn files_go_up_and_down_as_they_are() {
    let served = Served::new();
    let mut hand = Hand::of(&served, served.session());
    let name = "a name with % and +\u{e9}";
    let content: Vec<u8> = (0..MOST_SENT).map(|at| (at * 7 % 251) as u8).collect();
    assert_eq!(hand.upload(name, content.clone()).unwrap().bytes, MOST_SENT);
    assert!(fs::read(served.world.workspace.join(name)).unwrap() == content);
    assert!(hand.download(name).unwrap() == content);
    let large = hand.upload("large", vec![b'x'; content.len() + 1]);
    assert_eq!(refused(large).code, ErrorCode::TooLarge);
    assert_eq!(served.world.read("large"), None);
    served.world.write("large", vec![b'x'; content.len() + 1]);
    assert_eq!(refused(hand.download("large")).rule.as_deref(), Some("path.too-large"));
    let secret = ["ghp", "_", "aB3dE5fG7hJ9kL2mN4", "pQ6rS8tU1vW0xY3zA5"].concat();
    served.world.write("leaky", format!("key {secret} end"));
    let clean = String::from_utf8(hand.download("leaky").unwrap()).unwrap();
    assert!(clean.starts_with("key ") && !clean.contains(&secret), "{clean}");
    assert!(served.world.read("leaky").unwrap().contains(&secret), "only what is sent is without it");
    let sent = hand.send(name).unwrap();
    assert_eq!((sent.bytes, sent.content.bytes().unwrap() == content), (MOST_SENT, true));
    assert_eq!(refused(hand.send("large")).rule.as_deref(), Some("path.too-large"));
    // To somebody outside it goes whole or not at all (C-15).
    assert_eq!(refused(hand.send("leaky")).rule.as_deref(), Some("leaks.output"));
}

/// S000-53, S000-54: an agent has all of it at its own door, for its own session and no other, and not with less than the path it was
/// handed on with.
#[test]
fn an_agent_touches_files_at_its_own_door() {
    let served = Served::new();
    let other = served.session();
    let own = served.session();
    served.world.write("one", "1");
    served.world.write("kept/two", "2");
    let script = format!(
        r#"{ASK}
        up() {{ curl -s -o answer -w '%{{http_code}}\n' --unix-socket "$RINGFENCE_SESSION_SOCKET" \
          -H "Authorization: Bearer $1" --data-binary @one "http://door$2"; }}
        O=/v1/sessions/{other}
        ask POST $S/files/stat '{{"path":"one"}}'
        ask POST $S/files/move '{{"path":"one","to":"moved"}}'
        ask GET "$S/files/download?path=moved"
        ask POST $S/files/move '{{"path":"moved","to":"one"}}'
        up "$RINGFENCE_SESSION_TOKEN" "$S/files/upload?path=up"
        echo other
        ask POST $O/files/stat '{{"path":"one"}}'
        ask POST $O/files/remove '{{"path":"one"}}'
        ask GET "$O/files/download?path=one"
        up "$RINGFENCE_SESSION_TOKEN" "$O/files/upload?path=crossed"
        echo nobody
        up rf_session_0000000000000000_0000 "$S/files/upload?path=crossed"
        "#,
        other = other.session,
    );
    let said = stdout(&served.sh(&own, &script));
    assert_eq!(said, "200\n200\n200\n200\n200\nother\n403\n403\n403\n403\nnobody\n401\n");
    assert_eq!(served.world.read("up").as_deref(), Some("1"));
    assert_eq!((served.world.read("crossed"), served.world.read("one").as_deref()), (None, Some("1")));
}

/// A token for a part of the workspace moves nothing out of it and nothing into it.
#[test]
fn a_narrowed_token_stays_in_its_part_of_the_workspace() {
    let served = Served::new();
    let session = served.session();
    served.world.write("kept/two", "2");
    served.world.write("one", "1");
    let kept: PathBuf = served.world.workspace.join("kept");
    let limits = json!({ "paths": { "only": [kept] }, "hosts": "any", "commands": "any", "calls": null });
    let request = json!({ "label": "part", "attenuation": limits });
    let script = format!(
        r#"{ASK}
        ask POST $S/tokens '{request}' > made
        RINGFENCE_SESSION_TOKEN=$(sed 's/.*"secret":"\([^"]*\)".*/\1/' answer)
        ask POST $S/files/stat '{{"path":"one"}}'
        ask POST $S/files/move '{{"path":"kept/two","to":"two"}}'
        ask POST $S/files/move '{{"path":"one","to":"kept/one"}}'
        ask POST $S/files/remove '{{"path":"one"}}'
        ask GET "$S/files/download?path=one"
        ask POST "$S/files/upload?path=three"
        echo own
        ask POST $S/files/stat '{{"path":"kept/two"}}'
        ask POST $S/files/move '{{"path":"kept/two","to":"kept/three"}}'
        rm -f answer
        "#
    );
    let said = stdout(&served.sh(&session, &script));
    let made = served.world.read("made").unwrap_or_default();
    assert_eq!(said, "403\n403\n403\n403\n403\n403\nown\n200\n200\n", "token: {made}");
    assert_eq!(served.world.read("kept/three").as_deref(), Some("2"));
    assert_eq!((served.world.read("one").as_deref(), served.world.read("three")), (Some("1"), None));
}
