//! One command for PID 1 to run: where, what, with which environment.
//!
//! `flags: u32, rows: u32, columns: u32, argc: u32, envc: u32, cwd, argv…, env…`, strings as in a plan.

use core::ffi::CStr;

use crate::plan::{Malformed, Reader};

/// Open a terminal inside and make it the controlling one; its master end is sent to the parent.
pub const TERMINAL_IN: u32 = 1;
pub const TERMINAL_OUT: u32 = 2;
pub const TERMINAL_ERR: u32 = 4;
const KNOWN_FLAGS: u32 = TERMINAL_IN | TERMINAL_OUT | TERMINAL_ERR;

#[derive(Clone, Debug)]
pub struct Command<'a> {
    pub flags: u32,
    pub rows: u32,
    pub columns: u32,
    pub argc: u32,
    pub envc: u32,
    pub cwd: &'a CStr,
    /// `argc` arguments, then `envc` variables.
    pub strings: Reader<'a>,
}

impl<'a> Command<'a> {
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader { bytes };
        let command = Self {
            flags: reader.short()?,
            rows: reader.short()?,
            columns: reader.short()?,
            argc: reader.short()?,
            envc: reader.short()?,
            cwd: reader.string()?,
            strings: reader,
        };
        if command.argc == 0 || command.flags & !KNOWN_FLAGS != 0 {
            return Err(Malformed);
        }
        let mut strings = command.strings.clone();
        for _ in 0..u64::from(command.argc) + u64::from(command.envc) {
            strings.string()?;
        }
        if strings.bytes.is_empty() { Ok(command) } else { Err(Malformed) }
    }
}
