//! Any bytes are a policy file or an error in it; what a workspace says never allows more.
#![no_main]

mod machine;

use std::path::{Path, PathBuf};

use libfuzzer_sys::fuzz_target;
use ringfence_authz::Policy;
use ringfence_policy::{PolicyFile, PolicyFileRole, StartupFlags, effective};
use ringfence_types::{ByteString, Profile};

const ACTIONS: &[&[&[u8]]] =
    &[&[b"ls"], &[b"rm", b"x"], &[b"make", b"a"], &[b"git", b"push", b"--force"], &[b"git", b"log"], &[b"npm", b"test"]];

fuzz_target!(|text: &[u8]| {
    for role in [PolicyFileRole::Operator, PolicyFileRole::Workspace, PolicyFileRole::Session] {
        let file = match PolicyFile::parse(role, Path::new("/policy.toml"), text) {
            Ok(file) => file,
            Err(error) => {
                assert!(!error.problems().is_empty());
                let broken = |c: char| c.is_control() && c != '\n';
                assert!(!error.to_string().contains(broken), "{error:?}");
                continue;
            }
        };
        let (Some(before), Some(after)) = (load(&[]), load(&[file])) else { continue };
        if role == PolicyFileRole::Operator || after.profile != before.profile {
            continue;
        }
        for argv in ACTIONS {
            let (before, after) = (machine::decision(&before, argv), machine::decision(&after, argv));
            assert!(after >= before, "{role:?} made {argv:?} {after:?} after {before:?}");
        }
    }
});

fn load(files: &[PolicyFile]) -> Option<Policy> {
    let flags = StartupFlags {
        workspace: PathBuf::from("/w"),
        profile: Some(Profile::Guarded),
        home: Some(ByteString::from("/home/u")),
        ..StartupFlags::default()
    };
    effective(&flags, files, &|path| path.to_owned()).ok().map(|effective| effective.policy)
}
