//! What a session is given when somebody asks for more: with a token never, at the socket as `ringfence run` would.

use std::net::TcpListener;

use ringfence_api::{ApiError, CallState, CreateSession, SessionInfo, SessionLimits};
use ringfence_client::{Client, ClientError};
use ringfence_types::{NetMode, Profile, Scope};

use crate::approvals::configure;
use crate::daemon_cli::posted;
use crate::daemon_fixture::{Served, stdout};
use crate::daemon_reload::change;
use crate::daemon_rights::minted;
use crate::testkit::World;

fn serving(policy: &str) -> Served {
    let world = World::new();
    configure(&world, policy);
    Served::with(world, &[])
}

fn refused(client: &mut Client, wanted: &CreateSession) -> ApiError {
    match client.call(wanted) {
        Err(ClientError::Api(error)) => error,
        other => panic!("{wanted:?}: {other:?}"),
    }
}

/// More of each than any default has, by the word that tells it and the key that gives it.
fn limits() -> [(SessionLimits, &'static str, &'static str); 5] {
    let none = SessionLimits::default();
    [
        (SessionLimits { memory_bytes: Some(1 << 50), ..none.clone() }, "memory", "limits.memory"),
        (SessionLimits { processes: Some(1_000_000), ..none.clone() }, "processes", "limits.processes"),
        (SessionLimits { cpu_seconds: Some(1_000_000), ..none.clone() }, "processor time", "limits.cpu_time"),
        (SessionLimits { open_files: Some(100_000), ..none.clone() }, "open files", "limits.max_open_files"),
        (SessionLimits { file_size_bytes: Some(1 << 50), ..none }, "file size", "limits.file_size"),
    ]
}

/// Whether a session reaches a listener of the host, by what the listener heard.
fn reaches(served: &Served, session: &SessionInfo, listener: &TcpListener) -> bool {
    let port = listener.local_addr().unwrap().port();
    let call = served.sh(session, &format!("bash -c 'echo x > /dev/tcp/127.0.0.1/{port}'; true"));
    assert_eq!(call.state, CallState::Done, "{call:?}");
    listener.set_nonblocking(true).unwrap();
    listener.accept().is_ok()
}

/// S000-41: a default is the ceiling of whoever comes with a token, in each of its parts, whatever the scope of the token.
#[test]
fn a_token_asks_for_less_and_never_for_more() {
    let served = serving("");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    for scope in [Scope::Run, Scope::Admin] {
        let name = format!("and-{scope}");
        let flags = ["token", "create", &name, "--scope", &format!("run,{scope}"), "--json"];
        let token = served.ringfence(&flags).expect(0).json()["secret"].as_str().unwrap().to_owned();
        let mut client = served.client_with(&token);
        for net in [NetMode::Filtered, NetMode::Full] {
            let error = refused(&mut client, &CreateSession { net: Some(net), ..served.wanted() });
            assert_eq!(error.rule.as_deref(), Some("session.ceiling"), "{error:?}");
            assert!(error.message.contains("network") && error.message.contains("`none`"), "{error:?}");
            assert!(error.hint.unwrap().contains("`net`"));
        }
        for (limits, word, key) in limits() {
            let error = refused(&mut client, &CreateSession { limits, ..served.wanted() });
            assert_eq!(error.rule.as_deref(), Some("session.ceiling"), "{error:?}");
            assert!(error.message.contains(word) && error.hint.unwrap().contains(key), "{}", error.message);
        }
        let danger = CreateSession { profile: Some(Profile::Danger), ..served.wanted() };
        assert_eq!(refused(&mut client, &danger).rule.as_deref(), Some("session.ceiling"));
    }
    assert_eq!(served.sessions().len(), 0, "nobody got anything");
    assert_eq!(served.records("call-refused").len(), 16, "and it is written down");
    let token = minted(&served, Scope::Run);
    let plain = served.client_with(&token).call(&served.wanted()).unwrap();
    assert!(!reaches(&served, &plain, &listener));
    // The control: the owner of the socket chooses, as whoever types `ringfence run` does.
    let open = CreateSession { net: Some(NetMode::Full), ..served.wanted() };
    let open = served.client().call(&open).unwrap();
    assert!(reaches(&served, &open, &listener));
    for (limits, word, _) in limits() {
        let more = served.client().call(&CreateSession { limits, ..served.wanted() });
        assert!(more.is_ok(), "{word}: {more:?}");
    }
}

/// What the operator's file chooses for everybody is what a token is held to, also where it is only a default for flags.
#[test]
fn a_profile_of_the_file_is_the_ceiling_of_a_token() {
    let served = serving("profile = \"strict\"\n");
    let token = minted(&served, Scope::Run);
    let mut client = served.client_with(&token);
    for profile in [Profile::Workspace, Profile::Guarded] {
        let wanted = CreateSession { profile: Some(profile), ..served.wanted() };
        let error = refused(&mut client, &wanted);
        assert_eq!(error.rule.as_deref(), Some("session.ceiling"), "{error:?}");
        assert!(error.message.contains("`strict`") && error.hint.is_some(), "{error:?}");
        // The control.
        assert_eq!(served.client().call(&wanted).unwrap().profile, profile);
    }
    for (limits, ..) in limits() {
        let error = refused(&mut client, &CreateSession { limits, ..served.wanted() });
        assert!(error.hint.is_some(), "{error:?}");
    }
    refused(&mut client, &CreateSession { net: Some(NetMode::Full), ..served.wanted() });
    let stricter = CreateSession { profile: Some(Profile::Review), ..served.wanted() };
    let review = client.call(&stricter).unwrap();
    assert_eq!(review.profile, Profile::Review);
    assert_eq!(
        review.limits.memory_bytes,
        512 << 20,
        "what `review` has more of by itself is held to `strict`"
    );
}

/// The other half: less is given as it is asked for, and so is what the operator's file gives.
#[test]
fn a_token_narrows_and_has_what_the_file_gives() {
    let served = serving("net = \"full\"\n[limits]\nmemory = \"6g\"\n");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let token = minted(&served, Scope::Run);
    let mut client = served.client_with(&token);
    let given = SessionLimits { memory_bytes: Some(5 << 30), ..SessionLimits::default() };
    let given = CreateSession { limits: given, net: Some(NetMode::Full), ..served.wanted() };
    let given = client.call(&given).unwrap();
    assert_eq!((given.limits.memory_bytes, given.net), (5 << 30, NetMode::Full));
    assert!(reaches(&served, &given, &listener));
    let less = SessionLimits { processes: Some(20), open_files: Some(64), ..SessionLimits::default() };
    let less = CreateSession {
        profile: Some(Profile::Guarded),
        net: Some(NetMode::None),
        limits: less,
        ..served.wanted()
    };
    let less = client.call(&less).unwrap();
    assert_eq!((less.profile, less.net), (Profile::Guarded, NetMode::None));
    assert_eq!((less.limits.processes, less.limits.open_files), (20, 64));
    assert_eq!(less.limits.memory_bytes, 6 << 30, "what was not asked for is as the file says");
    let part = CreateSession {
        parent: Some(less.session.clone()),
        net: Some(NetMode::Full),
        profile: Some(Profile::Guarded),
        ..served.wanted()
    };
    assert!(
        refused(&mut client, &part).message.contains("exceed that of its parent"),
        "a part is held to its whole as ever"
    );
    // What the file does not give any more is gone for a session that asked for it, whether or not a flag could have it.
    let own = CreateSession { net: Some(NetMode::Full), ..served.wanted() };
    let own = served.client().call(&own).unwrap();
    change(&served, "[limits]\nmemory = \"6g\"\n");
    assert!(!reaches(&served, &given, &listener));
    assert!(reaches(&served, &own, &listener), "the control: a choice of the owner stands beside a default");
}

/// S000-41, by the words of `ringfence run`: the limits of a session hold for what runs in it.
#[test]
fn limits_of_a_session_hold() {
    let served = posted(Served::new());
    served.world.write(
        "hog.py",
        "kept = []\nwhile len(kept) < 300:\n    kept.append(bytearray(b'x') * (1 << 20))\nprint('kept', len(kept))\n",
    );
    let swarm = "i=0; while [ $i -lt 60 ]; do sleep 5 & i=$((i+1)); done 2>/dev/null; jobs -p | wc -l; kill $(jobs -p)";
    let made = |flags: &[&str]| {
        let id = served.ringfence(&[&["session", "create"], flags].concat()).expect(0).text();
        id.trim_end().to_owned()
    };
    let run = |id: &str, argv: &[&str]| served.ringfence(&[&["session", "run", id, "--"], argv].concat());
    let limits = [
        "--memory",
        "150m",
        "--pids",
        "20",
        "--max-open-files",
        "32",
        "--file-size",
        "1m",
        "--cpu-time",
        "77s",
    ];
    let (held, free) = (made(&limits), made(&["--pids", "200"]));
    assert_eq!(run(&free, &["python3", "hog.py"]).expect(0).text(), "kept 300\n", "the control");
    let hog = run(&held, &["python3", "hog.py"]);
    assert!(hog.code != Some(0) && !hog.text().contains("kept"), "{:?} {}", hog.code, hog.text());
    let free_swarm = run(&free, &["bash", "-c", swarm]).text();
    assert_eq!(free_swarm.lines().next().map(str::trim), Some("60"), "the control: {free_swarm}");
    let swarmed = run(&held, &["bash", "-c", swarm]);
    let started: u64 = swarmed.text().lines().next().and_then(|line| line.trim().parse().ok()).unwrap_or(0);
    assert!(started < 20, "{started} {}", swarmed.err);
    let told = run(&held, &["sh", "-c", "ulimit -n; ulimit -f; ulimit -t"]).expect(0).text();
    assert_eq!(told, format!("32\n{}\n77\n", (1 << 20) / 512));
    let file = |id: &str, name: &str| run(id, &["sh", "-c", &format!("head -c 2000000 /dev/zero > {name}")]);
    file(&free, "large").expect(0);
    file(&held, "cut");
    let length = |name: &str| std::fs::metadata(served.world.workspace.join(name)).unwrap().len();
    assert!(length("large") == 2_000_000 && length("cut") <= 1 << 20);
    let shown = served.ringfence(&["session", "show", "--json", &held]).expect(0).json();
    assert_eq!(
        (&shown["limits"]["memory_bytes"], &shown["limits"]["processes"]),
        (&(150 << 20).into(), &20.into())
    );
    assert_eq!(stdout(&served.sh(&served.session(), "echo on")), "on\n");
}
