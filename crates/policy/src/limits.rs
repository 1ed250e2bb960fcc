//! The limits of a session, one by one.

use ringfence_types::Limits;
use ringfence_types::units::{ByteSize, CpuCount, HumanDuration};

use super::format::LimitsTable;
use super::source_text::{TextSpan, WithSpan};

/// Startup flags about limits. `None`: the flag was not given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitFlags {
    pub memory: Option<ByteSize>,
    pub processes: Option<u64>,
    pub cpus: Option<CpuCount>,
    pub cpu_time: Option<HumanDuration>,
    pub max_open_files: Option<u64>,
    pub file_size: Option<ByteSize>,
    pub tmp_size: Option<ByteSize>,
    pub disk: Option<ByteSize>,
    pub timeout: Option<HumanDuration>,
    pub max_output: Option<ByteSize>,
    pub max_flows: Option<u64>,
    pub max_flow_rate: Option<u64>,
    pub max_bytes_out: Option<ByteSize>,
    pub max_bytes_in: Option<ByteSize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LimitKey {
    Memory,
    Processes,
    Cpus,
    CpuTime,
    OpenFiles,
    FileSize,
    TmpSize,
    Disk,
    Timeout,
    Output,
    Flows,
    FlowRate,
    NetUp,
    NetDown,
}

/// How much at most. `Unlimited` is more than any number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LimitAmount {
    Of(u64),
    Unlimited,
}

impl LimitKey {
    pub(super) const ALL: [Self; 14] = [
        Self::Memory,
        Self::Processes,
        Self::Cpus,
        Self::CpuTime,
        Self::OpenFiles,
        Self::FileSize,
        Self::TmpSize,
        Self::Disk,
        Self::Timeout,
        Self::Output,
        Self::Flows,
        Self::FlowRate,
        Self::NetUp,
        Self::NetDown,
    ];

    /// Whether it is held by the proxy of a filtered network, and by nothing else.
    pub(super) fn is_of_network(self) -> bool {
        matches!(self, Self::Flows | Self::FlowRate | Self::NetUp | Self::NetDown)
    }

    /// In a file.
    pub(super) fn key(self) -> &'static str {
        match self {
            Self::Memory => "limits.memory",
            Self::Processes => "limits.processes",
            Self::Cpus => "limits.cpus",
            Self::CpuTime => "limits.cpu_time",
            Self::OpenFiles => "limits.max_open_files",
            Self::FileSize => "limits.file_size",
            Self::TmpSize => "limits.tmp_size",
            Self::Disk => "limits.disk",
            Self::Timeout => "limits.timeout",
            Self::Output => "limits.max_output",
            Self::Flows => "limits.max_flows",
            Self::FlowRate => "limits.max_flow_rate",
            Self::NetUp => "limits.max_bytes_out",
            Self::NetDown => "limits.max_bytes_in",
        }
    }

    pub(super) fn flag(self) -> &'static str {
        match self {
            Self::Memory => "--memory",
            Self::Processes => "--pids",
            Self::Cpus => "--cpus",
            Self::CpuTime => "--cpu-time",
            Self::OpenFiles => "--max-open-files",
            Self::FileSize => "--file-size",
            Self::TmpSize => "--tmp-size",
            Self::Disk => "--disk",
            Self::Timeout => "--timeout",
            Self::Output => "--max-output",
            Self::Flows => "--max-flows",
            Self::FlowRate => "--max-flow-rate",
            Self::NetUp => "--max-bytes-out",
            Self::NetDown => "--max-bytes-in",
        }
    }

    pub(super) fn of(self, limits: &Limits) -> LimitAmount {
        match self {
            Self::Memory => LimitAmount::Of(limits.memory_bytes),
            Self::Processes => LimitAmount::Of(limits.processes),
            Self::Cpus => limits.millicpus.map_or(LimitAmount::Unlimited, LimitAmount::Of),
            Self::CpuTime => LimitAmount::Of(limits.cpu_seconds),
            Self::OpenFiles => LimitAmount::Of(limits.open_files),
            Self::FileSize => LimitAmount::Of(limits.file_size_bytes),
            Self::TmpSize => LimitAmount::Of(limits.tmp_bytes),
            Self::Disk => limits.disk_bytes.map_or(LimitAmount::Unlimited, LimitAmount::Of),
            Self::Timeout => limits.wall_ms.map_or(LimitAmount::Unlimited, LimitAmount::Of),
            Self::Output => LimitAmount::Of(limits.output_bytes),
            Self::Flows => LimitAmount::Of(limits.max_flows),
            Self::FlowRate => LimitAmount::Of(limits.max_flow_rate),
            Self::NetUp => LimitAmount::Of(limits.max_bytes_out),
            Self::NetDown => LimitAmount::Of(limits.max_bytes_in),
        }
    }

    pub(super) fn set(self, limits: &mut Limits, amount: LimitAmount) {
        let number = if let LimitAmount::Of(number) = amount { Some(number) } else { None };
        let target = match self {
            Self::Memory => &mut limits.memory_bytes,
            Self::Processes => &mut limits.processes,
            Self::CpuTime => &mut limits.cpu_seconds,
            Self::OpenFiles => &mut limits.open_files,
            Self::FileSize => &mut limits.file_size_bytes,
            Self::TmpSize => &mut limits.tmp_bytes,
            Self::Output => &mut limits.output_bytes,
            Self::Flows => &mut limits.max_flows,
            Self::FlowRate => &mut limits.max_flow_rate,
            Self::NetUp => &mut limits.max_bytes_out,
            Self::NetDown => &mut limits.max_bytes_in,
            Self::Cpus => return limits.millicpus = number,
            Self::Timeout => return limits.wall_ms = number,
            Self::Disk => return limits.disk_bytes = number,
        };
        *target = number.unwrap_or(u64::MAX);
    }

    pub(super) fn in_table(self, table: &LimitsTable) -> Option<WithSpan<LimitAmount>> {
        let at = |number: u64, span: TextSpan| WithSpan { value: LimitAmount::Of(number), span };
        match self {
            Self::Memory => table.memory.as_ref().map(|found| at(found.value.0.0, found.span)),
            Self::Processes => table.processes.as_ref().map(|found| at(found.value.0, found.span)),
            Self::Cpus => table.cpus.as_ref().map(|found| at(found.value.0, found.span)),
            Self::CpuTime => table.cpu_time.as_ref().map(|found| at(found.value.whole_seconds(), found.span)),
            Self::OpenFiles => table.max_open_files.as_ref().map(|found| at(found.value.0, found.span)),
            Self::FileSize => table.file_size.as_ref().map(|found| at(found.value.0, found.span)),
            Self::TmpSize => table.tmp_size.as_ref().map(|found| at(found.value.0, found.span)),
            Self::Disk => table.disk.as_ref().map(|found| at(found.value.0, found.span)),
            Self::Timeout => table.timeout.as_ref().map(|found| at(found.value.0, found.span)),
            Self::Output => table.max_output.as_ref().map(|found| at(found.value.0, found.span)),
            Self::Flows => table.max_flows.as_ref().map(|found| at(found.value.0, found.span)),
            Self::FlowRate => table.max_flow_rate.as_ref().map(|found| at(found.value.0, found.span)),
            Self::NetUp => table.max_bytes_out.as_ref().map(|found| at(found.value.0, found.span)),
            Self::NetDown => table.max_bytes_in.as_ref().map(|found| at(found.value.0, found.span)),
        }
    }

    pub(super) fn in_flags(self, flags: &LimitFlags) -> Option<LimitAmount> {
        let number = match self {
            Self::Memory => flags.memory.map(|size| size.0),
            Self::Processes => flags.processes,
            Self::Cpus => flags.cpus.map(|cpus| cpus.0),
            Self::CpuTime => flags.cpu_time.map(HumanDuration::whole_seconds),
            Self::OpenFiles => flags.max_open_files,
            Self::FileSize => flags.file_size.map(|size| size.0),
            Self::TmpSize => flags.tmp_size.map(|size| size.0),
            Self::Disk => flags.disk.map(|size| size.0),
            Self::Timeout => flags.timeout.map(|time| time.0),
            Self::Output => flags.max_output.map(|size| size.0),
            Self::Flows => flags.max_flows,
            Self::FlowRate => flags.max_flow_rate,
            Self::NetUp => flags.max_bytes_out.map(|size| size.0),
            Self::NetDown => flags.max_bytes_in.map(|size| size.0),
        };
        number.map(LimitAmount::Of)
    }

    /// As it is written in a file, without quotes.
    pub(super) fn show(self, amount: LimitAmount) -> String {
        let LimitAmount::Of(number) = amount else { return "unlimited".to_owned() };
        match self {
            Self::Memory
            | Self::FileSize
            | Self::TmpSize
            | Self::Disk
            | Self::Output
            | Self::NetUp
            | Self::NetDown => ByteSize(number).to_string(),
            Self::Processes | Self::OpenFiles | Self::Flows | Self::FlowRate => number.to_string(),
            Self::Cpus => CpuCount(number).to_string(),
            Self::CpuTime => HumanDuration(number.saturating_mul(1000)).to_string(),
            Self::Timeout => HumanDuration(number).to_string(),
        }
    }
}
