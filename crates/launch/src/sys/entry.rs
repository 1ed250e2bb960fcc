//! Entry point, exit and panic handler: a panic exits.

use super::raw;

#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".globl _start",
    "_start:",
    "xor %ebp, %ebp",
    "and $-16, %rsp",
    "call {entry}",
    "ud2",
    entry = sym entry,
    options(att_syntax)
);

#[cfg(target_arch = "aarch64")]
core::arch::global_asm!(".globl _start", "_start:", "mov x29, #0", "mov x30, #0", "bl {entry}", "brk #1", entry = sym entry);

extern "C" fn entry() -> ! {
    exit(crate::launch())
}

#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    exit(125)
}

pub(crate) fn exit(code: i32) -> ! {
    loop {
        // SAFETY: exit_group takes an integer and does not return.
        let _never = unsafe { raw(libc::SYS_exit_group, [code as usize, 0, 0, 0, 0, 0]) };
    }
}
