//! The plan: a flat list of typed operations for the launcher.
//!
//! Each operation is `tag: u32, length: u32, payload`; a payload is a sequence of little-endian `u64`s and of strings, each
//! `length: u32, bytes, NUL`. Strings are used in place as C strings, so a NUL inside one is malformed. An unknown tag, a short
//! payload, a trailing byte, or an operation of an earlier step than its predecessor is malformed. The launcher checks the whole
//! plan before the first step, so a malformed plan is never executed in part.

use core::ffi::CStr;

use crate::step::LaunchStep;

/// One operation. Targets are relative to the new root until `Pivot`; after it paths are absolute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanOp<'a> {
    Hostname {
        name: &'a CStr,
    },
    Loopback,
    /// Send netlink messages. All must succeed or the launch fails.
    Netlink {
        protocol: u64,
        messages: &'a [u8],
    },
    /// Send a descriptor of the network namespace. Used where PID 1 has no rights over it and another launcher enters it.
    NetNamespace,
    /// Bind a socket to an address (a `struct sockaddr`) and send its descriptor.
    Door {
        kind: u64,
        address: &'a [u8],
    },
    /// Mount the tmpfs that becomes the new root and enter it.
    Stage,
    /// Instead of `Stage` and `Pivot`: keep the host's tree in a separate mount namespace.
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
    /// Make everything built so far read-only, nosuid and nodev.
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
    /// Make one mount read-only, without the mounts below it.
    ReadOnly {
        target: &'a CStr,
    },
    /// Bind a root with the given access; nosuid and nodev. The source must still be the evaluated object.
    Root {
        source: &'a CStr,
        target: &'a CStr,
        access: MountAccess,
        identity: FileIdentity,
    },
    /// Mount a copy-on-write view of a root; nosuid and nodev. What is changed in it is written to `upper`. The source must still be
    /// the evaluated object.
    LayeredRoot {
        source: &'a CStr,
        target: &'a CStr,
        identity: FileIdentity,
        upper: &'a CStr,
        work: &'a CStr,
    },
    /// Directory beneath which the following relative operations resolve, without following links.
    Beneath {
        target: &'a CStr,
    },
    Pin {
        path: &'a CStr,
    },
    Protect {
        path: &'a CStr,
    },
    /// Make a directory read-only, but not the mounts inside it.
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
    /// As `Mask`, in a copy-on-write view, where the host's file may be hidden already: what is not there needs no mask.
    MaskVisible {
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
    /// A program around the launcher has mounted a root at `path`: it must be the object that was evaluated.
    Expect {
        path: &'a CStr,
        identity: FileIdentity,
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

/// Identity of an object: a path may mean another object between evaluation and mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileIdentity {
    pub device: u64,
    pub inode: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum MountAccess {
    Read = 1,
    Write = 2,
    /// Read through an overlay. KERNEL: a socket or FIFO in an overlay is another object than the one below it, so sockets of host
    /// programs are unreachable, whenever they were created.
    System = 3,
}

/// Objects inside the new root that the launcher mounts as masks.
pub const HIDDEN_FILE: &CStr = c".ringfence/hidden-file";
pub const HIDDEN_DIRECTORY: &CStr = c".ringfence/hidden-directory";

pub const MAGIC: u64 = 0x31_6e61_6c70_6672; // "rfplan1"

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MalformedPlan;

impl PlanOp<'_> {
    pub fn step(&self) -> LaunchStep {
        match self {
            Self::Hostname { .. } => LaunchStep::Hostname,
            Self::Loopback => LaunchStep::Loopback,
            Self::Netlink { .. } | Self::NetNamespace => LaunchStep::Network,
            Self::Door { .. } => LaunchStep::Doors,
            Self::Stage | Self::WholeMachine => LaunchStep::Stage,
            Self::Directory { .. } | Self::Symlink { .. } | Self::File { .. } | Self::Bind { .. } => {
                LaunchStep::Skeleton
            }
            Self::Seal => LaunchStep::Seal,
            Self::Tmpfs { .. }
            | Self::Device { .. }
            | Self::Proc { .. }
            | Self::Devpts { .. }
            | Self::ReadOnly { .. } => LaunchStep::Devices,
            Self::Root { access: MountAccess::System, .. } => LaunchStep::System,
            Self::Root { .. } | Self::LayeredRoot { .. } | Self::Expect { .. } => LaunchStep::Roots,
            Self::Pin { .. } | Self::Beneath { .. } => LaunchStep::Pins,
            Self::Protect { .. } | Self::Freeze { .. } | Self::Replace { .. } => LaunchStep::Protect,
            Self::Mask { .. } | Self::MaskVisible { .. } | Self::Hide { .. } => LaunchStep::Masks,
            Self::Pivot => LaunchStep::Pivot,
            Self::Rlimit { .. } => LaunchStep::Limits,
            Self::LandlockRuleset { .. } | Self::LandlockAllow { .. } => LaunchStep::Landlock,
            Self::Seccomp { .. } => LaunchStep::Seccomp,
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
            Self::Expect { .. } => 31,
            Self::LayeredRoot { .. } => 32,
            Self::MaskVisible { .. } => 33,
        }
    }
}

/// A plan that was checked completely.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    operations: &'a [u8],
}

impl<'a> Plan<'a> {
    pub fn parse(bytes: &'a [u8]) -> Result<Self, MalformedPlan> {
        let mut reader = PlanReader { bytes };
        if reader.number()? != MAGIC {
            return Err(MalformedPlan);
        }
        let plan = Self { operations: reader.bytes };
        let mut operations = plan.operations();
        let mut reached = StepOrder::default();
        while let Some(op) = operations.next_op()? {
            reached.advance(&op)?;
        }
        Ok(plan)
    }

    pub fn operations(&self) -> PlanOps<'a> {
        PlanOps { reader: PlanReader { bytes: self.operations } }
    }
}

/// Steps never go backwards, with two exceptions: each root repeats pins, protections and masks, and mount points may be created in
/// private places (`/tmp`, `/dev`) after these are mounted. System directories are mounted among the roots, because one may be
/// inside the other.
#[derive(Default)]
struct StepOrder {
    reached: u32,
}

impl StepOrder {
    fn advance(&mut self, op: &PlanOp<'_>) -> Result<(), MalformedPlan> {
        let step = op.step() as u32;
        let mount_point =
            matches!(op, PlanOp::Directory { .. } | PlanOp::Symlink { .. } | PlanOp::File { .. });
        if mount_point && (LaunchStep::Stage as u32..=LaunchStep::Roots as u32).contains(&self.reached) {
            return Ok(());
        }
        if step == LaunchStep::System as u32 && self.reached == LaunchStep::Roots as u32 {
            return Ok(());
        }
        let next_root = matches!(op, PlanOp::Beneath { .. }) && self.reached <= LaunchStep::Masks as u32;
        if step < self.reached && !next_root {
            return Err(MalformedPlan);
        }
        self.reached = step;
        Ok(())
    }
}

#[derive(Clone, Debug)]
pub struct PlanOps<'a> {
    reader: PlanReader<'a>,
}

impl<'a> PlanOps<'a> {
    pub fn next_op(&mut self) -> Result<Option<PlanOp<'a>>, MalformedPlan> {
        if self.reader.bytes.is_empty() {
            return Ok(None);
        }
        let tag = self.reader.short()?;
        let length = self.reader.short()?;
        let mut payload = PlanReader { bytes: self.reader.take(length as usize)? };
        let op = payload.op(tag)?;
        if payload.bytes.is_empty() { Ok(Some(op)) } else { Err(MalformedPlan) }
    }
}

/// Reads numbers and strings from the front of a slice.
#[derive(Clone, Debug)]
pub struct PlanReader<'a> {
    pub bytes: &'a [u8],
}

impl<'a> PlanReader<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], MalformedPlan> {
        let (front, rest) = self.bytes.split_at_checked(length).ok_or(MalformedPlan)?;
        self.bytes = rest;
        Ok(front)
    }

    pub fn short(&mut self) -> Result<u32, MalformedPlan> {
        let (front, rest) = self.bytes.split_first_chunk::<4>().ok_or(MalformedPlan)?;
        self.bytes = rest;
        Ok(u32::from_le_bytes(*front))
    }

    pub fn number(&mut self) -> Result<u64, MalformedPlan> {
        let (front, rest) = self.bytes.split_first_chunk::<8>().ok_or(MalformedPlan)?;
        self.bytes = rest;
        Ok(u64::from_le_bytes(*front))
    }

    pub fn blob(&mut self) -> Result<&'a [u8], MalformedPlan> {
        let length = self.short()? as usize;
        self.take(length)
    }

    pub fn string(&mut self) -> Result<&'a CStr, MalformedPlan> {
        let length = (self.short()? as usize).checked_add(1).ok_or(MalformedPlan)?;
        CStr::from_bytes_with_nul(self.take(length)?).map_err(|_error| MalformedPlan)
    }

    fn access(&mut self) -> Result<MountAccess, MalformedPlan> {
        match self.number()? {
            1 => Ok(MountAccess::Read),
            2 => Ok(MountAccess::Write),
            3 => Ok(MountAccess::System),
            _ => Err(MalformedPlan),
        }
    }

    fn identity(&mut self) -> Result<FileIdentity, MalformedPlan> {
        Ok(FileIdentity { device: self.number()?, inode: self.number()? })
    }

    fn op(&mut self, tag: u32) -> Result<PlanOp<'a>, MalformedPlan> {
        Ok(match tag {
            1 => PlanOp::Hostname { name: self.string()? },
            2 => PlanOp::Loopback,
            3 => PlanOp::Stage,
            4 => PlanOp::WholeMachine,
            5 => PlanOp::Directory { path: self.string()?, mode: self.number()? },
            6 => PlanOp::Symlink { path: self.string()?, target: self.string()? },
            7 => PlanOp::File { path: self.string()?, mode: self.number()?, content: self.blob()? },
            8 => PlanOp::Bind { source: self.string()?, target: self.string()? },
            9 => PlanOp::Seal,
            10 => PlanOp::Tmpfs { target: self.string()?, bytes: self.number()?, mode: self.number()? },
            11 => PlanOp::Device { source: self.string()?, target: self.string()? },
            12 => PlanOp::Proc { target: self.string()? },
            13 => PlanOp::Devpts { target: self.string()? },
            14 => PlanOp::ReadOnly { target: self.string()? },
            15 => PlanOp::Root {
                source: self.string()?,
                target: self.string()?,
                access: self.access()?,
                identity: self.identity()?,
            },
            16 => PlanOp::Beneath { target: self.string()? },
            17 => PlanOp::Pin { path: self.string()? },
            18 => PlanOp::Protect { path: self.string()? },
            19 => PlanOp::Replace { path: self.string()?, source: self.string()? },
            20 => PlanOp::Mask { path: self.string()? },
            21 => PlanOp::Hide { path: self.string()? },
            22 => PlanOp::Pivot,
            23 => PlanOp::Rlimit { resource: self.number()?, soft: self.number()?, hard: self.number()? },
            24 => PlanOp::LandlockRuleset { fs: self.number()?, net: self.number()?, scoped: self.number()? },
            25 => PlanOp::LandlockAllow { path: self.string()?, access: self.number()? },
            26 => PlanOp::Seccomp { program: self.blob()? },
            27 => PlanOp::Freeze { path: self.string()? },
            28 => PlanOp::Netlink { protocol: self.number()?, messages: self.blob()? },
            29 => PlanOp::NetNamespace,
            30 => PlanOp::Door { kind: self.number()?, address: self.blob()? },
            31 => PlanOp::Expect { path: self.string()?, identity: self.identity()? },
            32 => PlanOp::LayeredRoot {
                source: self.string()?,
                target: self.string()?,
                identity: self.identity()?,
                upper: self.string()?,
                work: self.string()?,
            },
            33 => PlanOp::MaskVisible { path: self.string()? },
            _ => return Err(MalformedPlan),
        })
    }
}

#[cfg(feature = "encode")]
pub use encode::{Encoder, NulInside, Writer};

#[cfg(feature = "encode")]
mod encode {
    use super::{CStr, MAGIC, PlanOp};
    use alloc::vec::Vec;

    /// A string for the launcher contains a NUL byte.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct NulInside;

    /// Writes the format that `PlanReader` reads.
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
        pub fn push(&mut self, op: &PlanOp<'_>) {
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

    fn write_payload(out: &mut Writer, op: &PlanOp<'_>) {
        match *op {
            PlanOp::Loopback
            | PlanOp::NetNamespace
            | PlanOp::Stage
            | PlanOp::WholeMachine
            | PlanOp::Seal
            | PlanOp::Pivot => {}
            PlanOp::Hostname { name } => out.string(name),
            PlanOp::Netlink { protocol, messages } => {
                out.number(protocol);
                out.blob(messages);
            }
            PlanOp::Door { kind, address } => {
                out.number(kind);
                out.blob(address);
            }
            PlanOp::Directory { path, mode } => {
                out.string(path);
                out.number(mode);
            }
            PlanOp::Symlink { path, target } => {
                out.string(path);
                out.string(target);
            }
            PlanOp::File { path, mode, content } => {
                out.string(path);
                out.number(mode);
                out.blob(content);
            }
            PlanOp::Bind { source, target } | PlanOp::Device { source, target } => {
                out.string(source);
                out.string(target);
            }
            PlanOp::Tmpfs { target, bytes, mode } => {
                out.string(target);
                out.number(bytes);
                out.number(mode);
            }
            PlanOp::Proc { target }
            | PlanOp::Devpts { target }
            | PlanOp::ReadOnly { target }
            | PlanOp::Beneath { target } => {
                out.string(target);
            }
            PlanOp::Root { source, target, access, identity } => {
                out.string(source);
                out.string(target);
                out.number(access as u64);
                out.number(identity.device);
                out.number(identity.inode);
            }
            PlanOp::Expect { path, identity } => {
                out.string(path);
                out.number(identity.device);
                out.number(identity.inode);
            }
            PlanOp::LayeredRoot { source, target, identity, upper, work } => {
                out.string(source);
                out.string(target);
                out.number(identity.device);
                out.number(identity.inode);
                out.string(upper);
                out.string(work);
            }
            PlanOp::Pin { path }
            | PlanOp::Protect { path }
            | PlanOp::Freeze { path }
            | PlanOp::Mask { path }
            | PlanOp::MaskVisible { path }
            | PlanOp::Hide { path } => out.string(path),
            PlanOp::Replace { path, source } => {
                out.string(path);
                out.string(source);
            }
            PlanOp::Rlimit { resource, soft, hard } => {
                out.number(resource);
                out.number(soft);
                out.number(hard);
            }
            PlanOp::LandlockRuleset { fs, net, scoped } => {
                out.number(fs);
                out.number(net);
                out.number(scoped);
            }
            PlanOp::LandlockAllow { path, access } => {
                out.string(path);
                out.number(access);
            }
            PlanOp::Seccomp { program } => out.blob(program),
        }
    }
}
