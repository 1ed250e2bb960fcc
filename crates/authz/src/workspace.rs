use std::path::Path;

use ringfence_types::{ByteString, Refusal, RefusalCode, RuleId};

use crate::refusal_ext::{RefusalExt as _, refuse};

/// What the directory asked for as a workspace really is. Gathered by the runtime, which may touch the file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkspaceFacts {
    /// As the person wrote it.
    pub requested: ByteString,
    /// After every link was resolved; `requested` again where it does not exist.
    pub canonical: ByteString,
    pub kind: WorkspaceFileKind,
    pub owner_uid: u32,
    /// Who asks.
    pub uid: u32,
    pub is_home: bool,
    /// It is an ancestor of the home directory.
    pub contains_home: bool,
    /// It is, is inside, or contains one of the sensitive roots of the home directory.
    pub is_sensitive: bool,
    pub contains_state_dir: bool,
    pub inside_state_dir: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkspaceFileKind {
    Missing,
    /// It exists, but the caller may not look at it.
    Unreadable,
    Directory,
    Other,
}

/// Directories that hold a machine, not a person's work. With [`PathCoverage::Below`] everything under them as well.
const SYSTEM: &[(&str, PathCoverage)] = &[
    ("/bin", PathCoverage::Below),
    ("/boot", PathCoverage::Below),
    ("/dev", PathCoverage::Below),
    ("/etc", PathCoverage::Below),
    ("/lib", PathCoverage::Below),
    ("/lib32", PathCoverage::Below),
    ("/lib64", PathCoverage::Below),
    ("/proc", PathCoverage::Below),
    ("/run", PathCoverage::Below),
    ("/sbin", PathCoverage::Below),
    ("/sys", PathCoverage::Below),
    ("/usr/bin", PathCoverage::Below),
    ("/usr/lib", PathCoverage::Below),
    ("/usr/lib64", PathCoverage::Below),
    ("/usr/sbin", PathCoverage::Below),
    ("/System", PathCoverage::Below),
    ("/Library", PathCoverage::Below),
    ("/private/etc", PathCoverage::Below),
    ("/var/run", PathCoverage::Below),
    ("/var/lib/docker", PathCoverage::Below),
    ("/home", PathCoverage::Itself),
    ("/root", PathCoverage::Itself),
    ("/Users", PathCoverage::Itself),
    ("/Applications", PathCoverage::Itself),
    ("/private", PathCoverage::Itself),
    ("/private/tmp", PathCoverage::Itself),
    ("/private/var", PathCoverage::Itself),
    ("/lost+found", PathCoverage::Itself),
    ("/media", PathCoverage::Itself),
    ("/mnt", PathCoverage::Itself),
    ("/nix", PathCoverage::Itself),
    ("/opt", PathCoverage::Itself),
    ("/snap", PathCoverage::Itself),
    ("/srv", PathCoverage::Itself),
    ("/tmp", PathCoverage::Itself),
    ("/usr", PathCoverage::Itself),
    ("/usr/include", PathCoverage::Itself),
    ("/usr/libexec", PathCoverage::Itself),
    ("/usr/local", PathCoverage::Itself),
    ("/usr/share", PathCoverage::Itself),
    ("/usr/src", PathCoverage::Itself),
    ("/var", PathCoverage::Itself),
    ("/var/cache", PathCoverage::Itself),
    ("/var/lib", PathCoverage::Itself),
    ("/var/log", PathCoverage::Itself),
    ("/var/spool", PathCoverage::Itself),
    ("/var/tmp", PathCoverage::Itself),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum PathCoverage {
    Itself,
    Below,
}

pub fn judge_workspace(facts: &WorkspaceFacts) -> Result<(), Refusal> {
    judge_kind(facts)?;
    judge_place(facts)?;
    if facts.owner_uid != facts.uid {
        let why = format!("is not owned by you (owner uid {}, you are uid {})", facts.owner_uid, facts.uid);
        return Err(
            no(facts, RuleId::WorkspaceOwner, &why).hint("run as its owner, or use a copy that you own")
        );
    }
    Ok(())
}

/// A root besides the workspace: it may lie anywhere, but must not open what a workspace must not.
pub fn judge_root(facts: &WorkspaceFacts) -> Result<(), Refusal> {
    const NARROWER: &str = "name a narrower directory";
    let refused = if facts.kind == WorkspaceFileKind::Missing {
        Some((RuleId::RootMissing, "does not exist"))
    } else if facts.canonical.as_path().parent().is_none() {
        Some((RuleId::RootRootDir, "is the root of the file system"))
    } else if facts.is_home || facts.contains_home {
        Some((RuleId::RootHome, "is or contains the home directory"))
    } else if facts.is_sensitive {
        Some((RuleId::RootSensitive, "is, is in, or contains a credential store"))
    } else if facts.contains_state_dir || facts.inside_state_dir {
        Some((RuleId::RootOwnState, "reaches the state or configuration of Ringfence"))
    } else {
        None
    };
    refused.map_or(Ok(()), |(rule, why)| {
        let message = format!("root `{}` {why}", facts.requested.display());
        Err(refuse(RefusalCode::Workspace, rule, message).hint(NARROWER))
    })
}

fn judge_kind(facts: &WorkspaceFacts) -> Result<(), Refusal> {
    match facts.kind {
        WorkspaceFileKind::Directory => Ok(()),
        WorkspaceFileKind::Missing => Err(no(facts, RuleId::WorkspaceMissing, "does not exist")
            .hint("create it first, or name another directory with `--workspace`")),
        WorkspaceFileKind::Unreadable => Err(no(facts, RuleId::WorkspaceUnreadable, "cannot be read").hint(
            "`chmod u+rwx` gives its owner the permissions back; look at the directories above it as well",
        )),
        WorkspaceFileKind::Other => Err(no(facts, RuleId::WorkspaceKind, "is not a directory")
            .hint("name the directory that holds it with `--workspace`")),
    }
}

fn judge_place(facts: &WorkspaceFacts) -> Result<(), Refusal> {
    const PROJECT: &str = "name the directory of one project with `--workspace`";
    let path = facts.canonical.as_path();
    let refused = if !path.is_absolute() {
        Some((RuleId::WorkspaceAbsolute, "is not an absolute path"))
    } else if path.parent().is_none() {
        Some((RuleId::WorkspaceRootDir, "is the root of the file system"))
    } else if facts.is_home {
        Some((
            RuleId::WorkspaceHome,
            "is the home directory itself: keys and shell start-up files live in it",
        ))
    } else if facts.contains_home {
        Some((RuleId::WorkspaceHome, "contains the home directory"))
    } else if is_system_dir(path) {
        Some((RuleId::WorkspaceSystemDir, "is a system directory"))
    } else if facts.is_sensitive {
        Some((RuleId::WorkspaceSensitiveRoot, "is a credential store"))
    } else if facts.contains_state_dir {
        Some((RuleId::WorkspaceOwnState, "contains the state or configuration of Ringfence"))
    } else if facts.inside_state_dir {
        Some((RuleId::WorkspaceOwnState, "is inside the state or configuration of Ringfence"))
    } else {
        None
    };
    refused.map_or(Ok(()), |(rule, why)| Err(no(facts, rule, why).hint(PROJECT)))
}

/// Whether a directory belongs to the system and not to a user's work.
pub fn is_system_dir(path: &Path) -> bool {
    SYSTEM.iter().any(|(dir, reach)| match reach {
        PathCoverage::Itself => path.as_os_str() == *dir,
        PathCoverage::Below => path.starts_with(dir),
    })
}

fn no(facts: &WorkspaceFacts, rule: RuleId, why: &str) -> Refusal {
    let resolved = if facts.requested == facts.canonical {
        String::new()
    } else {
        format!(" (`{}`)", facts.canonical.display())
    };
    refuse(RefusalCode::Workspace, rule, format!("workspace `{}`{resolved} {why}", facts.requested.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(path: &str) -> WorkspaceFacts {
        WorkspaceFacts {
            requested: ByteString::from(path),
            canonical: ByteString::from(path),
            kind: WorkspaceFileKind::Directory,
            owner_uid: 1000,
            uid: 1000,
            is_home: false,
            contains_home: false,
            is_sensitive: false,
            contains_state_dir: false,
            inside_state_dir: false,
        }
    }

    fn rule(facts: &WorkspaceFacts) -> String {
        let refusal = judge_workspace(facts).unwrap_err();
        assert_eq!(refusal.code, RefusalCode::Workspace);
        assert!(refusal.hint.is_some(), "{refusal}");
        refusal.rule.into()
    }

    #[test]
    fn ordinary_projects_are_workspaces() {
        for path in
            ["/home/u/project", "/srv/app", "/tmp/x", "/data/project", "/usr/src/app", "/var/www", "/root/p"]
        {
            assert_eq!(judge_workspace(&facts(path)), Ok(()), "{path}");
        }
    }

    #[test]
    fn what_is_not_a_readable_directory_is_refused() {
        for (kind, expected) in [
            (WorkspaceFileKind::Missing, "workspace.missing"),
            (WorkspaceFileKind::Other, "workspace.kind"),
            (WorkspaceFileKind::Unreadable, "workspace.unreadable"),
        ] {
            assert_eq!(rule(&WorkspaceFacts { kind, ..facts("/home/u/p") }), expected);
        }
    }

    #[test]
    fn the_machine_is_not_a_workspace() {
        assert_eq!(rule(&facts("/")), "workspace.root-dir");
        assert_eq!(rule(&facts("relative")), "workspace.absolute");
        for path in [
            "/etc",
            "/etc/nginx",
            "/usr",
            "/proc/1",
            "/sys",
            "/dev/shm",
            "/run/user/1000",
            "/var",
            "/boot",
            "/tmp",
        ] {
            assert_eq!(rule(&facts(path)), "workspace.system-dir", "{path}");
        }
    }

    #[test]
    fn the_home_and_our_own_state_are_not_workspaces() {
        let ok = facts("/home/u/p");
        assert_eq!(rule(&WorkspaceFacts { is_home: true, ..ok.clone() }), "workspace.home");
        assert_eq!(rule(&WorkspaceFacts { contains_home: true, ..ok.clone() }), "workspace.home");
        assert_eq!(rule(&WorkspaceFacts { is_sensitive: true, ..ok.clone() }), "workspace.sensitive-root");
        assert_eq!(rule(&WorkspaceFacts { contains_state_dir: true, ..ok.clone() }), "workspace.own-state");
        assert_eq!(rule(&WorkspaceFacts { inside_state_dir: true, ..ok }), "workspace.own-state");
    }

    #[test]
    fn a_root_may_be_a_system_directory_but_not_open_the_home_or_the_ledger() {
        assert_eq!(judge_root(&facts("/var/log")), Ok(()));
        assert_eq!(judge_root(&WorkspaceFacts { owner_uid: 0, ..facts("/srv/data") }), Ok(()));
        let ok = facts("/home/u/p");
        for wrong in [
            facts("/"),
            WorkspaceFacts { kind: WorkspaceFileKind::Missing, ..ok.clone() },
            WorkspaceFacts { is_home: true, ..ok.clone() },
            WorkspaceFacts { contains_home: true, ..ok.clone() },
            WorkspaceFacts { is_sensitive: true, ..ok.clone() },
            WorkspaceFacts { contains_state_dir: true, ..ok.clone() },
            WorkspaceFacts { inside_state_dir: true, ..ok },
        ] {
            assert!(judge_root(&wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn somebody_elses_directory_is_refused_for_root_as_well() {
        assert_eq!(rule(&WorkspaceFacts { owner_uid: 0, ..facts("/home/u/p") }), "workspace.owner");
        assert_eq!(rule(&WorkspaceFacts { uid: 0, ..facts("/home/u/p") }), "workspace.owner");
    }

    #[test]
    fn the_message_names_both_the_given_and_the_real_path() {
        let linked = WorkspaceFacts { canonical: ByteString::from("/etc"), ..facts("/home/u/link\n") };
        let message = judge_workspace(&linked).unwrap_err().message;
        assert_eq!(message, "workspace `/home/u/link\\n` (`/etc`) is a system directory");
    }
}
