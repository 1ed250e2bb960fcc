//! The units in `packaging/`: systemd takes them, and they do not take away what sandboxes are made of.

use std::fs;

use crate::testkit::{World, binary, finish};

pub(crate) const SERVICE: &str = include_str!("../../../../packaging/systemd/ringfence.service");
pub(crate) const SOCKET: &str = include_str!("../../../../packaging/systemd/ringfence.socket");

fn settings(unit: &str) -> Vec<(&str, &str)> {
    let lines = unit.lines().filter(|line| !line.starts_with(['#', '[']) && !line.is_empty());
    lines.map(|line| line.split_once('=').unwrap()).collect()
}

#[test]
fn systemd_takes_the_units() {
    let world = World::new();
    let directory = world.beside("units");
    let service = SERVICE.replace("/usr/bin/ringfence", binary().to_str().unwrap());
    fs::write(directory.join("ringfence.service"), service).unwrap();
    fs::write(directory.join("ringfence.socket"), SOCKET).unwrap();
    let verify = |names: &[&str]| {
        let mut command = world.host("systemd-analyze");
        command.args(["verify", "--user", "--man=no"]).args(names.iter().map(|name| directory.join(name)));
        command.env("XDG_RUNTIME_DIR", world.beside("runtime"));
        finish(&mut command, b"")
    };
    let done = verify(&["ringfence.service", "ringfence.socket"]).expect(0);
    assert!(!done.err.contains("ringfence"), "{}", done.err);
    // The control: the same check finds a mistake.
    fs::write(directory.join("broken.service"), "[Service]\nNoNewPrivilege=yes\n").unwrap();
    let broken = verify(&["broken.service"]);
    assert!(broken.err.contains("NoNewPrivilege") || broken.code != Some(0), "{}", broken.err);
}

/// D1: the socket is for its owner alone; and a unit that hardens by what sandboxes need would stop all of them.
#[test]
fn d1_the_units_are_closed_and_leave_sandboxes_their_means() {
    let socket = settings(SOCKET);
    for wanted in
        [("SocketMode", "0600"), ("DirectoryMode", "0700"), ("ListenStream", "%t/ringfence/daemon.sock")]
    {
        assert!(socket.contains(&wanted), "{wanted:?}");
    }
    let service = settings(SERVICE);
    for wanted in [
        ("UMask", "0077"),
        ("TimeoutStopSec", "60s"),
        ("LimitCORE", "0"),
        ("Delegate", "yes"),
        ("KillMode", "mixed"),
    ] {
        assert!(service.contains(&wanted), "{wanted:?}");
    }
    const HARMFUL: [&str; 18] = [
        "CapabilityBoundingSet",
        "NoNewPrivileges",
        "SystemCallFilter",
        "SystemCallArchitectures",
        "RestrictNamespaces",
        "RestrictAddressFamilies",
        "RestrictRealtime",
        "RestrictSUIDSGID",
        "MemoryDenyWriteExecute",
        "LockPersonality",
        "ProtectProc",
        "ProcSubset",
        "ProtectKernelTunables",
        "ProtectKernelModules",
        "ProtectControlGroups",
        "ProtectClock",
        "ProtectHostname",
        "PrivateUsers",
    ];
    let found: Vec<&str> = service.iter().map(|(key, _)| *key).filter(|key| HARMFUL.contains(key)).collect();
    assert_eq!(found, Vec::<&str>::new());
}
