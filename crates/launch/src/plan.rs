//! What the launcher shall do, as a flat list of typed operations.
//!
//! Each operation is `tag: u32, length: u32, payload`; a payload is a row of little-endian `u64`s and of strings,
//! each `length: u32, bytes, NUL`. Strings are used in place as C strings, so a NUL inside one is malformed.
//! An unknown tag, a short payload, a trailing byte or an operation that belongs to an earlier step than the one
//! before it is malformed, and a malformed plan is never half executed: it is checked whole before the first step.

use core::ffi::CStr;

use crate::step::Step;

/// One operation. Targets are relative to the new root until `Pivot`; after it paths are absolute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op<'a> {
    Hostname {
        name: &'a CStr,
    },
    Loopback,
    /// Send netlink messages, which are carried out as they are, all of them or the launch fails.
    Netlink {
        protocol: u64,
        messages: &'a [u8],
    },
    /// Send the descriptor of the network namespace: where PID 1 has no rights over it, another launcher goes there.
    NetNamespace,
    /// Bind a socket to an address (a `struct sockaddr`) and send its descriptor.
    Door {
        kind: u64,
        address: &'a [u8],
    },
    /// Mount the tmpfs that becomes the new root and go there.
    Stage,
    /// Instead of `Stage` and `Pivot`: keep the host's tree, in an own mount namespace.
    WholeMachine,
    Directory {
        path: &'a CStr,
        mode: u64,
    },
    Symlink {
        path: &'a CStr,
        target: &'a CStr,
    },
    File {
        path: &'a CStr,
        mode: u64,
        content: &'a [u8],
    },
    /// Bind a host path (recursively) onto a target that exists.
    Bind {
        source: &'a CStr,
        target: &'a CStr,
    },
    /// Read-only, nosuid, nodev for everything built so far.
    Seal,
    Tmpfs {
        target: &'a CStr,
        bytes: u64,
        mode: u64,
    },
    Device {
        source: &'a CStr,
        target: &'a CStr,
    },
    Proc {
        target: &'a CStr,
    },
    Devpts {
        target: &'a CStr,
    },
    /// Read-only for one mount, without those below it.
    ReadOnly {
        target: &'a CStr,
    },
    /// Bind a root with the access given; nosuid and nodev. The source must still be the object that was judged.
    Root {
        source: &'a CStr,
        target: &'a CStr,
        access: Access,
        identity: Identity,
    },
    /// The directory that the following relative operations are resolved beneath, without following links.
    Beneath {
        target: &'a CStr,
    },
    Pin {
        path: &'a CStr,
    },
    Protect {
        path: &'a CStr,
    },
    /// Make a directory read-only, but not what is mounted inside it.
    Freeze {
        path: &'a CStr,
    },
    /// Show other content (a file of the skeleton) in place of a protected file.
    Replace {
        path: &'a CStr,
        source: &'a CStr,
    },
    /// Mount the hidden file over a file, link or socket, or the hidden directory over a directory.
    Mask {
        path: &'a CStr,
    },
    /// Hide an absolute host path (whole-machine mode): an empty tmpfs over a directory, `/dev/null` over a file.
    Hide {
        path: &'a CStr,
    },
    Pivot,
    Rlimit {
        resource: u64,
        soft: u64,
        hard: u64,
    },
    LandlockRuleset {
        fs: u64,
        net: u64,
        scoped: u64,
    },
    LandlockAllow {
        path: &'a CStr,
        access: u64,
    },
    /// A seccomp program: an array of `struct sock_filter`.
    Seccomp {
        program: &'a [u8],
    },
}

/// Which object of which file system: a path can come to mean another one between judgement and mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    pub device: u64,
    pub inode: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Access {
    Read = 1,
    Write = 2,
    /// Read through an overlay. KERNEL: a socket or FIFO of an overlay is another object than the one below it, so
    /// nothing that the host serves there can be reached, whenever it was made.
    System = 3,
}

/// Where the launcher puts what masks are made of, inside the new root.
pub const HIDDEN_FILE: &CStr = c".ringfence/hidden-file";
pub const HIDDEN_DIRECTORY: &CStr = c".ringfence/hidden-directory";

pub const MAGIC: u64 = 0x31_6e61_6c70_6672; // "rfplan1"

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl Op<'_> {
    pub fn step(&self) -> Step {
        match self {
            Self::Hostname { .. } => Step::Hostname,
            Self::Loopback => Step::Loopback,
            Self::Netlink { .. } | Self::NetNamespace => Step::Network,
            Self::Door { .. } => Step::Doors,
            Self::Stage | Self::WholeMachine => Step::Stage,
            Self::Directory { .. } | Self::Symlink { .. } | Self::File { .. } | Self::Bind { .. } => {
                Step::Skeleton
            }
            Self::Seal => Step::Seal,
            Self::Tmpfs { .. }
            | Self::Device { .. }
            | Self::Proc { .. }
            | Self::Devpts { .. }
            | Self::ReadOnly { .. } => Step::Devices,
            Self::Root { access: Access::System, .. } => Step::System,
            Self::Root { .. } => Step::Roots,
            Self::Pin { .. } | Self::Beneath { .. } => Step::Pins,
            Self::Protect { .. } | Self::Freeze { .. } | Self::Replace { .. } => Step::Protect,
            Self::Mask { .. } | Self::Hide { .. } => Step::Masks,
            Self::Pivot => Step::Pivot,
            Self::Rlimit { .. } => Step::Limits,
            Self::LandlockRuleset { .. } | Self::LandlockAllow { .. } => Step::Landlock,
            Self::Seccomp { .. } => Step::Seccomp,
        }
    }

    #[cfg(feature = "encode")]
    fn tag(&self) -> u32 {
        match self {
            Self::Hostname { .. } => 1,
            Self::Loopback => 2,
            Self::Stage => 3,
            Self::WholeMachine => 4,
            Self::Directory { .. } => 5,
            Self::Symlink { .. } => 6,
            Self::File { .. } => 7,
            Self::Bind { .. } => 8,
            Self::Seal => 9,
            Self::Tmpfs { .. } => 10,
            Self::Device { .. } => 11,
            Self::Proc { .. } => 12,
            Self::Devpts { .. } => 13,
            Self::ReadOnly { .. } => 14,
            Self::Root { .. } => 15,
            Self::Beneath { .. } => 16,
            Self::Pin { .. } => 17,
            Self::Protect { .. } => 18,
            Self::Replace { .. } => 19,
            Self::Mask { .. } => 20,
            Self::Hide { .. } => 21,
            Self::Pivot => 22,
            Self::Rlimit { .. } => 23,
            Self::LandlockRuleset { .. } => 24,
            Self::LandlockAllow { .. } => 25,
            Self::Seccomp { .. } => 26,
            Self::Freeze { .. } => 27,
            Self::Netlink { .. } => 28,
            Self::NetNamespace => 29,
            Self::Door { .. } => 30,
        }
    }
}

/// A plan that has been checked whole.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    operations: &'a [u8],
}

impl<'a> Plan<'a> {
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader { bytes };
        if reader.number()? != MAGIC {
            return Err(Malformed);
        }
        let plan = Self { operations: reader.bytes };
        let mut operations = plan.operations();
        let mut reached = Order::default();
        while let Some(op) = operations.next_op()? {
            reached.advance(&op)?;
        }
        Ok(plan)
    }

    pub fn operations(&self) -> Operations<'a> {
        Operations { reader: Reader { bytes: self.operations } }
    }
}

/// Steps never go backwards, except that each root repeats pins, protections and masks, and that mount points may
/// be made in the private places (`/tmp`, `/dev`) after these have been mounted. Directories of the system are mounted
/// among the roots, because one may lie inside the other.
#[derive(Default)]
struct Order {
    reached: u32,
}

impl Order {
    fn advance(&mut self, op: &Op<'_>) -> Result<(), Malformed> {
        let step = op.step() as u32;
        let mount_point = matches!(op, Op::Directory { .. } | Op::Symlink { .. } | Op::File { .. });
        if mount_point && (Step::Stage as u32..=Step::Roots as u32).contains(&self.reached) {
            return Ok(());
        }
        if step == Step::System as u32 && self.reached == Step::Roots as u32 {
            return Ok(());
        }
        let next_root = matches!(op, Op::Beneath { .. }) && self.reached <= Step::Masks as u32;
        if step < self.reached && !next_root {
            return Err(Malformed);
        }
        self.reached = step;
        Ok(())
    }
}

#[derive(Clone, Debug)]
pub struct Operations<'a> {
    reader: Reader<'a>,
}

impl<'a> Operations<'a> {
    pub fn next_op(&mut self) -> Result<Option<Op<'a>>, Malformed> {
        if self.reader.bytes.is_empty() {
            return Ok(None);
        }
        let tag = self.reader.short()?;
        let length = self.reader.short()?;
        let mut payload = Reader { bytes: self.reader.take(length as usize)? };
        let op = payload.op(tag)?;
        if payload.bytes.is_empty() { Ok(Some(op)) } else { Err(Malformed) }
    }
}

/// Reads numbers and strings off the front of a slice.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    pub bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (front, rest) = self.bytes.split_at_checked(length).ok_or(Malformed)?;
        self.bytes = rest;
        Ok(front)
    }

    pub fn short(&mut self) -> Result<u32, Malformed> {
        let (front, rest) = self.bytes.split_first_chunk::<4>().ok_or(Malformed)?;
        self.bytes = rest;
        Ok(u32::from_le_bytes(*front))
    }

    pub fn number(&mut self) -> Result<u64, Malformed> {
        let (front, rest) = self.bytes.split_first_chunk::<8>().ok_or(Malformed)?;
        self.bytes = rest;
        Ok(u64::from_le_bytes(*front))
    }

    pub fn blob(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.short()? as usize;
        self.take(length)
    }

    pub fn string(&mut self) -> Result<&'a CStr, Malformed> {
        let length = (self.short()? as usize).checked_add(1).ok_or(Malformed)?;
        CStr::from_bytes_with_nul(self.take(length)?).map_err(|_error| Malformed)
    }

    fn access(&mut self) -> Result<Access, Malformed> {
        match self.number()? {
            1 => Ok(Access::Read),
            2 => Ok(Access::Write),
            3 => Ok(Access::System),
            _ => Err(Malformed),
        }
    }

    fn op(&mut self, tag: u32) -> Result<Op<'a>, Malformed> {
        Ok(match tag {
            1 => Op::Hostname { name: self.string()? },
            2 => Op::Loopback,
            3 => Op::Stage,
            4 => Op::WholeMachine,
            5 => Op::Directory { path: self.string()?, mode: self.number()? },
            6 => Op::Symlink { path: self.string()?, target: self.string()? },
            7 => Op::File { path: self.string()?, mode: self.number()?, content: self.blob()? },
            8 => Op::Bind { source: self.string()?, target: self.string()? },
            9 => Op::Seal,
            10 => Op::Tmpfs { target: self.string()?, bytes: self.number()?, mode: self.number()? },
            11 => Op::Device { source: self.string()?, target: self.string()? },
            12 => Op::Proc { target: self.string()? },
            13 => Op::Devpts { target: self.string()? },
            14 => Op::ReadOnly { target: self.string()? },
            15 => Op::Root {
                source: self.string()?,
                target: self.string()?,
                access: self.access()?,
                identity: Identity { device: self.number()?, inode: self.number()? },
            },
            16 => Op::Beneath { target: self.string()? },
            17 => Op::Pin { path: self.string()? },
            18 => Op::Protect { path: self.string()? },
            19 => Op::Replace { path: self.string()?, source: self.string()? },
            20 => Op::Mask { path: self.string()? },
            21 => Op::Hide { path: self.string()? },
            22 => Op::Pivot,
            23 => Op::Rlimit { resource: self.number()?, soft: self.number()?, hard: self.number()? },
            24 => Op::LandlockRuleset { fs: self.number()?, net: self.number()?, scoped: self.number()? },
            25 => Op::LandlockAllow { path: self.string()?, access: self.number()? },
            26 => Op::Seccomp { program: self.blob()? },
            27 => Op::Freeze { path: self.string()? },
            28 => Op::Netlink { protocol: self.number()?, messages: self.blob()? },
            29 => Op::NetNamespace,
            30 => Op::Door { kind: self.number()?, address: self.blob()? },
            _ => return Err(Malformed),
        })
    }
}

#[cfg(feature = "encode")]
pub use encode::{Encoder, NulInside, Writer};

#[cfg(feature = "encode")]
mod encode {
    use super::{CStr, MAGIC, Op};
    use alloc::vec::Vec;

    /// A string for the launcher contains a NUL byte.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct NulInside;

    /// Writes what `Reader` reads.
    #[derive(Clone, Debug, Default)]
    pub struct Writer {
        pub bytes: Vec<u8>,
    }

    impl Writer {
        pub fn short(&mut self, value: u32) {
            self.bytes.extend_from_slice(&value.to_le_bytes());
        }

        pub fn number(&mut self, value: u64) {
            self.bytes.extend_from_slice(&value.to_le_bytes());
        }

        pub fn blob(&mut self, value: &[u8]) {
            self.short(u32::try_from(value.len()).unwrap_or(u32::MAX));
            self.bytes.extend_from_slice(value);
        }

        pub fn string(&mut self, value: &CStr) {
            self.blob(value.to_bytes());
            self.bytes.push(0);
        }

        /// A string whose bytes may come from anywhere.
        pub fn string_bytes(&mut self, value: &[u8]) -> Result<(), NulInside> {
            if value.contains(&0) {
                return Err(NulInside);
            }
            self.blob(value);
            self.bytes.push(0);
            Ok(())
        }
    }

    /// Builds the bytes of a plan.
    #[derive(Clone, Debug)]
    pub struct Encoder {
        writer: Writer,
    }

    impl Default for Encoder {
        fn default() -> Self {
            let mut writer = Writer::default();
            writer.number(MAGIC);
            Self { writer }
        }
    }

    impl Encoder {
        pub fn push(&mut self, op: &Op<'_>) {
            self.writer.short(op.tag());
            self.writer.short(0);
            let start = self.writer.bytes.len();
            write_payload(&mut self.writer, op);
            let length = u32::try_from(self.writer.bytes.len() - start).unwrap_or(u32::MAX).to_le_bytes();
            for (slot, byte) in self.writer.bytes.iter_mut().skip(start - length.len()).zip(length) {
                *slot = byte;
            }
        }

        pub fn reserve(&mut self, bytes: usize) {
            self.writer.bytes.reserve(bytes);
        }

        pub fn finish(self) -> Vec<u8> {
            self.writer.bytes
        }
    }

    fn write_payload(out: &mut Writer, op: &Op<'_>) {
        match *op {
            Op::Loopback | Op::NetNamespace | Op::Stage | Op::WholeMachine | Op::Seal | Op::Pivot => {}
            Op::Hostname { name } => out.string(name),
            Op::Netlink { protocol, messages } => {
                out.number(protocol);
                out.blob(messages);
            }
            Op::Door { kind, address } => {
                out.number(kind);
                out.blob(address);
            }
            Op::Directory { path, mode } => {
                out.string(path);
                out.number(mode);
            }
            Op::Symlink { path, target } => {
                out.string(path);
                out.string(target);
            }
            Op::File { path, mode, content } => {
                out.string(path);
                out.number(mode);
                out.blob(content);
            }
            Op::Bind { source, target } | Op::Device { source, target } => {
                out.string(source);
                out.string(target);
            }
            Op::Tmpfs { target, bytes, mode } => {
                out.string(target);
                out.number(bytes);
                out.number(mode);
            }
            Op::Proc { target }
            | Op::Devpts { target }
            | Op::ReadOnly { target }
            | Op::Beneath { target } => {
                out.string(target);
            }
            Op::Root { source, target, access, identity } => {
                out.string(source);
                out.string(target);
                out.number(access as u64);
                out.number(identity.device);
                out.number(identity.inode);
            }
            Op::Pin { path }
            | Op::Protect { path }
            | Op::Freeze { path }
            | Op::Mask { path }
            | Op::Hide { path } => out.string(path),
            Op::Replace { path, source } => {
                out.string(path);
                out.string(source);
            }
            Op::Rlimit { resource, soft, hard } => {
                out.number(resource);
                out.number(soft);
                out.number(hard);
            }
            Op::LandlockRuleset { fs, net, scoped } => {
                out.number(fs);
                out.number(net);
                out.number(scoped);
            }
            Op::LandlockAllow { path, access } => {
                out.string(path);
                out.number(access);
            }
            Op::Seccomp { program } => out.blob(program),
        }
    }
}
