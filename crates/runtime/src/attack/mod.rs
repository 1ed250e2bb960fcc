//! The escape battery: what someone inside the fence would try, tried on this machine.
//!
//! Each [`Attempt`] runs twice, in two fresh [`World`]s: once as a plain child process (the control, which must
//! get through, or the attempt proves nothing) and once inside the fence (where nothing may get through).
//! What happened is read from the host: bytes in a listener, a changed file, a dead process, a secret in the
//! output. Only where a system call leaves no trace is the attempt's own word taken, and then the control
//! shows that the word differs without the fence.
//!
//! INVARIANT: nothing here changes the machine. Attempts aim at what their world made; calls that could do
//! harm are made with arguments the kernel must refuse; traffic goes to loopback only.

mod arena;
mod attempt;
mod battery;
mod entry;
mod evidence;
mod fence;
mod host;
mod judge;
mod suite;
mod world;

pub use arena::Arena;
pub use attempt::{Attempt, Class};
pub use battery::{AttemptResult, BatteryError, BatteryReport, Setup, Verdict, run_battery};
pub use entry::attempt_main;
pub use fence::{Answer, Fence, NoFence, Output, Request};
pub use suite::attempts;
pub use world::World;
