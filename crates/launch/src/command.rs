//! A command for PID 1: directory, arguments, environment.
//!
//! `flags: u32, rows: u32, columns: u32, argc: u32, envc: u32, cwd, approval?, argv…, env…`, strings as in a plan. `approval` is
//! present with the flag [`APPROVED`]: `filter: blob, program, program_length: u64`.

use core::ffi::CStr;

use crate::plan::{MalformedPlan, PlanReader};

/// Open a terminal inside and make it the controlling one; its master end is sent to the parent.
pub const TERMINAL_IN: u32 = 1;
pub const TERMINAL_OUT: u32 = 2;
pub const TERMINAL_ERR: u32 = 4;
/// An approval is bound to files that this command opens or executes.
pub const APPROVED: u32 = 8;
/// With [`APPROVED`]: a sealed copy of the program is the last descriptor of the request.
pub const SEALED_PROGRAM: u32 = 16;
pub const TERMINAL: u32 = TERMINAL_IN | TERMINAL_OUT | TERMINAL_ERR;
const KNOWN_FLAGS: u32 = TERMINAL | APPROVED | SEALED_PROGRAM;

/// How a command gets the approved files instead of those that have their names now.
#[derive(Clone, Copy, Debug)]
pub struct ApprovalSetup<'a> {
    /// Seccomp filter that asks the supervisor about files.
    pub filter: &'a [u8],
    /// Program to execute instead of looking up the first argument. Empty if the approval does not bind the program.
    pub program: &'a CStr,
    /// Length of the sealed copy. Without a copy the program is executed in place.
    pub program_length: u64,
}

#[derive(Clone, Debug)]
pub struct WireCommand<'a> {
    pub flags: u32,
    pub rows: u32,
    pub columns: u32,
    pub argc: u32,
    pub envc: u32,
    pub cwd: &'a CStr,
    pub approved: Option<ApprovalSetup<'a>>,
    /// `argc` arguments, then `envc` variables.
    pub strings: PlanReader<'a>,
}

impl<'a> WireCommand<'a> {
    pub fn parse(bytes: &'a [u8]) -> Result<Self, MalformedPlan> {
        let mut reader = PlanReader { bytes };
        let (flags, rows, columns) = (reader.short()?, reader.short()?, reader.short()?);
        let (argc, envc) = (reader.short()?, reader.short()?);
        let cwd = reader.string()?;
        let approved = match flags & APPROVED {
            0 => None,
            _ => Some(ApprovalSetup {
                filter: reader.blob()?,
                program: reader.string()?,
                program_length: reader.number()?,
            }),
        };
        let command = Self { flags, rows, columns, argc, envc, cwd, approved, strings: reader };
        if command.argc == 0 || command.flags & !KNOWN_FLAGS != 0 {
            return Err(MalformedPlan);
        }
        let mut strings = command.strings.clone();
        for _ in 0..u64::from(command.argc) + u64::from(command.envc) {
            strings.string()?;
        }
        if strings.bytes.is_empty() { Ok(command) } else { Err(MalformedPlan) }
    }
}
