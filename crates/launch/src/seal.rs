//! The second half of a launch: limits, capabilities, no_new_privs, Landlock, seccomp. Afterwards the process has no right that a
//! command inside lacks.

use ringfence_launch::plan::{Plan, PlanOp};
use ringfence_launch::step::LaunchStep;
use ringfence_launch::wire::LaunchReport;

use crate::sys::{self, Errno, PrctlOption};
use crate::{InitState, LaunchFailure, is_init, network};

// PRIVILEGE: drops from all rights inside the namespaces to none.
/// Returns what each command of a sandbox without a PID namespace takes on besides.
pub(crate) fn seal(plan: &Plan<'_>) -> Result<Option<SignalScope>, LaunchFailure> {
    set_limits(plan)?;
    drop_capabilities().map_err(LaunchFailure::at(LaunchStep::Capabilities))?;
    sys::prctl(PrctlOption::SetNoNewPrivileges, 1).map_err(LaunchFailure::at(LaunchStep::NoNewPrivileges))?;
    // Made before the filters, one of which refuses rulesets. A process in a PID namespace needs none.
    let scope = if is_init() { None } else { SignalScope::of(plan)? };
    enforce_landlock(plan)?;
    install_filters(plan)?;
    Ok(scope)
}

/// Reads back from the kernel what this process achieved.
pub(crate) fn achieved(plan: &Plan<'_>, prepared: &InitState) -> Result<LaunchReport, LaunchFailure> {
    let failed = LaunchFailure::at(LaunchStep::Report);
    let no_new_privs = sys::prctl(PrctlOption::NoNewPrivileges, 0).map_err(&failed)? as u64;
    let seccomp_mode = sys::prctl(PrctlOption::SeccompMode, 0).map_err(&failed)? as u64;
    let empty = sys::capabilities_empty().map_err(&failed)? && !any_capability_left();
    let landlock = u64::from(has_landlock(plan));
    Ok(LaunchReport {
        no_new_privs,
        seccomp_mode,
        capabilities_empty: u64::from(empty),
        landlock,
        cgroups: prepared.cgroups,
        socket_bytes: network::socket_bytes().unwrap_or(0),
    })
}

fn set_limits(plan: &Plan<'_>) -> Result<(), LaunchFailure> {
    let mut operations = plan.operations();
    while let Ok(Some(op)) = operations.next_op() {
        if let PlanOp::Rlimit { resource, soft, hard } = op {
            sys::set_limit(resource, soft, hard).map_err(|errno| LaunchFailure {
                step: LaunchStep::Limits,
                operation: resource,
                errno: errno.0,
            })?;
        }
    }
    Ok(())
}

/// KERNEL: numbers above the last capability return EINVAL; 63 is the highest that the interface supports.
fn drop_capabilities() -> Result<(), Errno> {
    sys::prctl(PrctlOption::Ambient, libc::PR_CAP_AMBIENT_CLEAR_ALL as usize)?;
    for capability in 0..64 {
        match sys::prctl(PrctlOption::DropBounding, capability) {
            Ok(_) => {}
            Err(Errno(libc::EINVAL)) => break,
            // Without namespaces and CAP_SETPCAP the bounding set cannot be lowered. `achieved` reads it back, and no_new_privs
            // makes it ineffective.
            Err(Errno(libc::EPERM)) => break,
            Err(errno) => return Err(errno),
        }
    }
    sys::clear_capabilities()
}

fn any_capability_left() -> bool {
    let mut known = (0..64).map_while(|capability| sys::prctl(PrctlOption::Bounding, capability).ok());
    known.any(|present| present == 1)
}

pub(crate) fn has_landlock(plan: &Plan<'_>) -> bool {
    first_ruleset(plan).is_some()
}

fn first_ruleset(plan: &Plan<'_>) -> Option<(u64, u64, u64)> {
    let mut operations = plan.operations();
    while let Ok(Some(op)) = operations.next_op() {
        if let PlanOp::LandlockRuleset { fs, net, scoped } = op {
            return Some((fs, net, scoped));
        }
    }
    None
}

fn enforce_landlock(plan: &Plan<'_>) -> Result<(), LaunchFailure> {
    let Some((fs, net, scoped)) = first_ruleset(plan) else { return Ok(()) };
    let failed = LaunchFailure::at(LaunchStep::Landlock);
    let ruleset = sys::landlock_create(fs, net, scoped).map_err(&failed)?;
    let mut operations = plan.operations();
    let mut index = 0;
    while let Ok(Some(op)) = operations.next_op() {
        if let PlanOp::LandlockAllow { path, access } = op {
            allow(ruleset, path, access).map_err(|errno| LaunchFailure {
                step: LaunchStep::Landlock,
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

fn install_filters(plan: &Plan<'_>) -> Result<(), LaunchFailure> {
    let mut operations = plan.operations();
    while let Ok(Some(op)) = operations.next_op() {
        if let PlanOp::Seccomp { program } = op {
            sys::seccomp_filter(program).map_err(LaunchFailure::at(LaunchStep::Seccomp))?;
        }
    }
    Ok(())
}

/// A Landlock ruleset for the commands of a sandbox without a PID namespace: they cannot signal the supervisor.
#[derive(Clone, Copy)]
pub(crate) struct SignalScope(i32);

impl SignalScope {
    /// KERNEL: every Landlock domain denies links and renames between directories, whether it handles that right or not. This one
    /// allows them everywhere, so that only the domain of the plan decides.
    fn of(plan: &Plan<'_>) -> Result<Option<Self>, LaunchFailure> {
        const SCOPE_SIGNAL: u64 = 2;
        const REFER: u64 = 1 << 13;
        let failed = LaunchFailure::at(LaunchStep::Landlock);
        match first_ruleset(plan) {
            Some((_, _, scoped)) if scoped & SCOPE_SIGNAL != 0 => {
                let ruleset = sys::landlock_create(REFER, 0, SCOPE_SIGNAL).map_err(&failed)?;
                allow(ruleset, c"/", REFER).map_err(&failed)?;
                Ok(Some(Self(ruleset)))
            }
            _ => Ok(None),
        }
    }

    pub(crate) fn enter(self) -> Result<(), Errno> {
        sys::landlock_enforce(self.0)
    }
}
