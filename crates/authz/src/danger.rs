//! Startup flags that weaken a guarantee, and what is refused without them.

use ringfence_types::{Backend, PolicyLayer, Profile, Refusal, RefusalCode, RuleId};

use crate::refusal_ext::{RefusalExt as _, refuse};

/// Startup flags that weaken a guarantee (S001-7, S001-8). Only the person who starts Ringfence sets them; nothing
/// in a call, a workspace or a session can.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DangerFlags {
    /// `--danger`: the profile `danger` and the backends `none` and `external` may be selected.
    pub danger: bool,
    /// `--allow-sensitive-roots`: the credential stores of the home directory are not hidden.
    pub allow_sensitive_roots: bool,
    /// `--allow-denylisted-commands`: the built-in deny list of `listed` asks instead (S001-9).
    pub allow_denylisted_commands: bool,
}

impl DangerFlags {
    /// What both open.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            danger: self.danger && other.danger,
            allow_sensitive_roots: self.allow_sensitive_roots && other.allow_sensitive_roots,
            allow_denylisted_commands: self.allow_denylisted_commands && other.allow_denylisted_commands,
        }
    }
}

/// Everything that startup flags alone decide.
pub fn check_flags(flags: DangerFlags) -> Result<(), Refusal> {
    if flags.allow_sensitive_roots && !flags.danger {
        return Err(missing_flag(
            RuleId::FlagsAllowSensitiveRoots,
            "`--allow-sensitive-roots` needs `--danger`",
        )
        .hint("add `--danger`, or leave `--allow-sensitive-roots` out"));
    }
    if flags.allow_denylisted_commands && !flags.danger {
        return Err(missing_flag(
            RuleId::FlagsAllowDenylistedCommands,
            "`--allow-denylisted-commands` needs `--danger`",
        )
        .hint("add `--danger`, or leave `--allow-denylisted-commands` out"));
    }
    Ok(())
}

pub fn check_profile(profile: Profile, flags: DangerFlags) -> Result<(), Refusal> {
    if profile == Profile::Danger && !flags.danger {
        return Err(missing_flag(
            RuleId::ProfileDanger,
            "profile `danger` needs the startup flag `--danger`",
        )
        .hint("use profile `workspace`, or start with `--danger` and accept that the machine is open"));
    }
    Ok(())
}

/// Whether a backend may be selected at all; whether it works on this machine is for the sandbox to find out.
pub fn check_backend(backend: Backend, flags: DangerFlags) -> Result<(), Refusal> {
    if backend == Backend::External && !flags.danger {
        let message =
            "backend `external` relies on a boundary that Ringfence cannot check and needs `--danger`";
        return Err(missing_flag(RuleId::BackendExternal, message)
            .hint("leave `--backend` out to get the strongest backend this machine has"));
    }
    if backend != Backend::None {
        return Ok(());
    }
    if !flags.danger {
        return Err(missing_flag(
            RuleId::BackendNone,
            "backend `none` enforces nothing and needs `--danger`",
        )
        .hint("leave `--backend` out to get the strongest backend this machine has"));
    }
    Ok(())
}

fn missing_flag(rule: RuleId, message: &str) -> Refusal {
    refuse(RefusalCode::Danger, rule, message).at(PolicyLayer::Flags)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: DangerFlags =
        DangerFlags { danger: true, allow_sensitive_roots: true, allow_denylisted_commands: false };
    const DANGER: DangerFlags =
        DangerFlags { danger: true, allow_sensitive_roots: false, allow_denylisted_commands: false };

    #[test]
    fn s001_7_danger_needs_its_flag() {
        let refusal = check_profile(Profile::Danger, DangerFlags::default()).unwrap_err();
        assert_eq!((refusal.code, refusal.layer), (RefusalCode::Danger, PolicyLayer::Flags));
        assert_eq!(check_profile(Profile::Danger, DANGER), Ok(()));
        for profile in [Profile::Review, Profile::Workspace] {
            assert_eq!(check_profile(profile, DangerFlags::default()), Ok(()));
        }
    }

    #[test]
    fn c37_backend_none_needs_its_flag() {
        assert!(check_backend(Backend::None, DangerFlags::default()).is_err());
        assert_eq!(
            check_backend(Backend::None, DANGER),
            Ok(()),
            "the sandbox hides the sensitive roots or refuses"
        );
        assert_eq!(check_backend(Backend::None, BOTH), Ok(()));
        assert!(check_backend(Backend::External, DangerFlags::default()).is_err());
        assert_eq!(check_backend(Backend::External, DANGER), Ok(()));
        for backend in [Backend::Native, Backend::Bubblewrap, Backend::Landlock] {
            assert_eq!(check_backend(backend, DangerFlags::default()), Ok(()), "{backend}");
        }
    }

    #[test]
    fn s001_8_sensitive_roots_need_danger_too() {
        let alone = DangerFlags { allow_sensitive_roots: true, ..DangerFlags::default() };
        assert!(check_flags(alone).is_err());
        assert_eq!(check_flags(BOTH), Ok(()));
        assert_eq!(check_flags(DangerFlags::default()), Ok(()));
    }

    #[test]
    fn s001_9_denylisted_commands_need_danger_too() {
        let alone = DangerFlags { allow_denylisted_commands: true, ..DangerFlags::default() };
        assert!(check_flags(alone).is_err());
        assert_eq!(check_flags(DangerFlags { danger: true, ..alone }), Ok(()));
    }
}
