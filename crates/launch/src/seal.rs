//! The second half of a launch, in order: limits, capabilities, no_new_privs, Landlock, seccomp. After it the
//! process has no right that a command inside does not have.

use ringfence_launch::plan::{Op, Plan};
use ringfence_launch::step::Step;
use ringfence_launch::wire::Achieved;

use crate::sys::{self, Attribute, Errno};
use crate::{Failure, Prepared};

// PRIVILEGE: falls from "everything inside the namespaces" to "nothing" in this function.
pub(crate) fn seal(plan: &Plan<'_>) -> Result<(), Failure> {
    set_limits(plan)?;
    drop_capabilities().map_err(Failure::at(Step::Capabilities))?;
    sys::prctl(Attribute::SetNoNewPrivileges, 1).map_err(Failure::at(Step::NoNewPrivileges))?;
    enforce_landlock(plan)?;
    install_filters(plan)
}

/// What the kernel says about this process, asked after the fact.
pub(crate) fn achieved(plan: &Plan<'_>, prepared: &Prepared) -> Result<Achieved, Failure> {
    let failed = Failure::at(Step::Report);
    let no_new_privs = sys::prctl(Attribute::NoNewPrivileges, 0).map_err(&failed)? as u64;
    let seccomp_mode = sys::prctl(Attribute::SeccompMode, 0).map_err(&failed)? as u64;
    let empty = sys::capabilities_empty().map_err(&failed)? && !any_capability_left();
    let landlock = u64::from(first_ruleset(plan).is_some());
    Ok(Achieved {
        no_new_privs,
        seccomp_mode,
        capabilities_empty: u64::from(empty),
        landlock,
        cgroups: prepared.cgroups,
    })
}

fn set_limits(plan: &Plan<'_>) -> Result<(), Failure> {
    let mut operations = plan.operations();
    while let Ok(Some(op)) = operations.next_op() {
        if let Op::Rlimit { resource, soft, hard } = op {
            sys::set_limit(resource, soft, hard).map_err(|errno| Failure {
                step: Step::Limits,
                operation: resource,
                errno: errno.0,
            })?;
        }
    }
    Ok(())
}

/// KERNEL: numbers above the last capability answer EINVAL; 63 is the most the interface can name.
fn drop_capabilities() -> Result<(), Errno> {
    sys::prctl(Attribute::Ambient, libc::PR_CAP_AMBIENT_CLEAR_ALL as usize)?;
    for capability in 0..64 {
        match sys::prctl(Attribute::DropBounding, capability) {
            Ok(_) => {}
            Err(Errno(libc::EINVAL)) => break,
            // Without namespaces and without CAP_SETPCAP the set cannot be lowered; `achieved` reads it back and
            // no_new_privs makes it moot.
            Err(Errno(libc::EPERM)) => break,
            Err(errno) => return Err(errno),
        }
    }
    sys::clear_capabilities()
}

fn any_capability_left() -> bool {
    let mut known = (0..64).map_while(|capability| sys::prctl(Attribute::Bounding, capability).ok());
    known.any(|present| present == 1)
}

fn first_ruleset(plan: &Plan<'_>) -> Option<(u64, u64, u64)> {
    let mut operations = plan.operations();
    while let Ok(Some(op)) = operations.next_op() {
        if let Op::LandlockRuleset { fs, net, scoped } = op {
            return Some((fs, net, scoped));
        }
    }
    None
}

fn enforce_landlock(plan: &Plan<'_>) -> Result<(), Failure> {
    let Some((fs, net, scoped)) = first_ruleset(plan) else { return Ok(()) };
    let failed = Failure::at(Step::Landlock);
    let ruleset = sys::landlock_create(fs, net, scoped).map_err(&failed)?;
    let mut operations = plan.operations();
    let mut index = 0;
    while let Ok(Some(op)) = operations.next_op() {
        if let Op::LandlockAllow { path, access } = op {
            allow(ruleset, path, access).map_err(|errno| Failure {
                step: Step::Landlock,
                operation: index,
                errno: errno.0,
            })?;
        }
        index += 1;
    }
    sys::landlock_enforce(ruleset).map_err(&failed)?;
    sys::close(ruleset);
    Ok(())
}

fn allow(ruleset: i32, path: &core::ffi::CStr, access: u64) -> Result<(), Errno> {
    let beneath = sys::open(libc::AT_FDCWD, path, libc::O_PATH | libc::O_CLOEXEC, 0)?;
    let answer = sys::landlock_allow(ruleset, beneath, access);
    sys::close(beneath);
    answer
}

fn install_filters(plan: &Plan<'_>) -> Result<(), Failure> {
    let mut operations = plan.operations();
    while let Ok(Some(op)) = operations.next_op() {
        if let Op::Seccomp { program } = op {
            sys::seccomp_filter(program).map_err(Failure::at(Step::Seccomp))?;
        }
    }
    Ok(())
}

/// In a sandbox without a PID namespace: whatever runs inside cannot signal its supervisor.
///
/// KERNEL: every Landlock domain denies links and renames between directories, whether it handles that right or not.
/// This one allows them everywhere, so that the domain of the plan alone decides.
pub(crate) fn scope_signals(plan: &Plan<'_>) -> Result<(), Errno> {
    const SCOPE_SIGNAL: u64 = 2;
    const REFER: u64 = 1 << 13;
    match first_ruleset(plan) {
        Some((_, _, scoped)) if scoped & SCOPE_SIGNAL != 0 => {
            let ruleset = sys::landlock_create(REFER, 0, SCOPE_SIGNAL)?;
            let answer = allow(ruleset, c"/", REFER).and_then(|()| sys::landlock_enforce(ruleset));
            sys::close(ruleset);
            answer
        }
        _ => Ok(()),
    }
}
