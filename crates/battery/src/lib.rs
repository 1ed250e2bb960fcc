//! The escape battery: tries on this machine what an attacker inside the fence would try.
//!
//! Each [`Attempt`] runs twice, in two fresh [`AttackWorld`]s. The control runs as a plain child process and
//! must get through, or the attempt proves nothing. The other run is inside the fence, where nothing may get
//! through. The host shows the result: bytes in a listener, a changed file, a dead process, a secret in the
//! output. Only if a system call leaves no trace does the attempt's own report count, and then the control
//! shows that it differs without the fence.
//!
//! INVARIANT: the battery does not change the machine. Attempts aim at what their world made, dangerous calls
//! have arguments that the kernel must refuse, and traffic goes to loopback only.
//!
//! It does not know the fence that it tests: [`FenceUnderTest`] is all it asks of one, and the command line gives it the whole
//! pipeline. It has no policy, no ledger and no sandbox, and it reads no environment.

mod arena;
mod attempt;
mod battery;
mod entry;
mod evidence;
mod fence;
mod host;
mod judge;
mod suite;
mod sys;
mod world;

pub use arena::Arena;
pub use attempt::{Attempt, AttemptClass};
pub use battery::{AttemptResult, AttemptVerdict, BatteryError, BatteryReport, BatterySetup, run_battery};
pub use entry::attempt_main;
pub use fence::{FenceOutput, FenceRequest, FenceResponse, FenceUnderTest, NoFence};
pub use suite::attempts;
pub use world::AttackWorld;
