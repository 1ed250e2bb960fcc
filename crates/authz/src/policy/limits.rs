//! The limits of a session, one by one.

use ringfence_types::Limits;
use ringfence_types::units::{Cpus, Duration, Size};

use super::format::LimitsTable;
use super::text::{At, Span};

/// Startup flags about limits. `None`: the flag was not given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitFlags {
    pub memory: Option<Size>,
    pub processes: Option<u64>,
    pub cpus: Option<Cpus>,
    pub cpu_time: Option<Duration>,
    pub open_files: Option<u64>,
    pub file_size: Option<Size>,
    pub tmp_size: Option<Size>,
    pub disk: Option<Size>,
    pub timeout: Option<Duration>,
    pub output: Option<Size>,
    pub flows: Option<u64>,
    pub flow_rate: Option<u64>,
    pub net_up: Option<Size>,
    pub net_down: Option<Size>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limit {
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
pub(super) enum Amount {
    Of(u64),
    Unlimited,
}

impl Limit {
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
            Self::OpenFiles => "limits.open_files",
            Self::FileSize => "limits.file_size",
            Self::TmpSize => "limits.tmp_size",
            Self::Disk => "limits.disk",
            Self::Timeout => "limits.timeout",
            Self::Output => "limits.output",
            Self::Flows => "limits.flows",
            Self::FlowRate => "limits.flow_rate",
            Self::NetUp => "limits.net_up",
            Self::NetDown => "limits.net_down",
        }
    }

    pub(super) fn flag(self) -> &'static str {
        match self {
            Self::Memory => "--memory",
            Self::Processes => "--pids",
            Self::Cpus => "--cpus",
            Self::CpuTime => "--cpu-time",
            Self::OpenFiles => "--open-files",
            Self::FileSize => "--file-size",
            Self::TmpSize => "--tmp-size",
            Self::Disk => "--disk",
            Self::Timeout => "--timeout",
            Self::Output => "--output",
            Self::Flows => "--flows",
            Self::FlowRate => "--flow-rate",
            Self::NetUp => "--net-up",
            Self::NetDown => "--net-down",
        }
    }

    pub(super) fn of(self, limits: &Limits) -> Amount {
        match self {
            Self::Memory => Amount::Of(limits.memory_bytes),
            Self::Processes => Amount::Of(limits.processes),
            Self::Cpus => limits.millicpus.map_or(Amount::Unlimited, Amount::Of),
            Self::CpuTime => Amount::Of(limits.cpu_seconds),
            Self::OpenFiles => Amount::Of(limits.open_files),
            Self::FileSize => Amount::Of(limits.file_size_bytes),
            Self::TmpSize => Amount::Of(limits.tmp_bytes),
            Self::Disk => limits.disk_bytes.map_or(Amount::Unlimited, Amount::Of),
            Self::Timeout => limits.wall_ms.map_or(Amount::Unlimited, Amount::Of),
            Self::Output => Amount::Of(limits.output_bytes),
            Self::Flows => Amount::Of(limits.flows),
            Self::FlowRate => Amount::Of(limits.flows_per_second),
            Self::NetUp => Amount::Of(limits.up_bytes),
            Self::NetDown => Amount::Of(limits.down_bytes),
        }
    }

    pub(super) fn set(self, limits: &mut Limits, amount: Amount) {
        let number = if let Amount::Of(number) = amount { Some(number) } else { None };
        let target = match self {
            Self::Memory => &mut limits.memory_bytes,
            Self::Processes => &mut limits.processes,
            Self::CpuTime => &mut limits.cpu_seconds,
            Self::OpenFiles => &mut limits.open_files,
            Self::FileSize => &mut limits.file_size_bytes,
            Self::TmpSize => &mut limits.tmp_bytes,
            Self::Output => &mut limits.output_bytes,
            Self::Flows => &mut limits.flows,
            Self::FlowRate => &mut limits.flows_per_second,
            Self::NetUp => &mut limits.up_bytes,
            Self::NetDown => &mut limits.down_bytes,
            Self::Cpus => return limits.millicpus = number,
            Self::Timeout => return limits.wall_ms = number,
            Self::Disk => return limits.disk_bytes = number,
        };
        *target = number.unwrap_or(u64::MAX);
    }

    pub(super) fn in_table(self, table: &LimitsTable) -> Option<At<Amount>> {
        let at = |number: u64, span: Span| At { value: Amount::Of(number), span };
        match self {
            Self::Memory => table.memory.as_ref().map(|found| at(found.value.0.0, found.span)),
            Self::Processes => table.processes.as_ref().map(|found| at(found.value.0, found.span)),
            Self::Cpus => table.cpus.as_ref().map(|found| at(found.value.0, found.span)),
            Self::CpuTime => table.cpu_time.as_ref().map(|found| at(found.value.whole_seconds(), found.span)),
            Self::OpenFiles => table.open_files.as_ref().map(|found| at(found.value.0, found.span)),
            Self::FileSize => table.file_size.as_ref().map(|found| at(found.value.0, found.span)),
            Self::TmpSize => table.tmp_size.as_ref().map(|found| at(found.value.0, found.span)),
            Self::Disk => table.disk.as_ref().map(|found| at(found.value.0, found.span)),
            Self::Timeout => table.timeout.as_ref().map(|found| at(found.value.0, found.span)),
            Self::Output => table.output.as_ref().map(|found| at(found.value.0, found.span)),
            Self::Flows => table.flows.as_ref().map(|found| at(found.value.0, found.span)),
            Self::FlowRate => table.flow_rate.as_ref().map(|found| at(found.value.0, found.span)),
            Self::NetUp => table.net_up.as_ref().map(|found| at(found.value.0, found.span)),
            Self::NetDown => table.net_down.as_ref().map(|found| at(found.value.0, found.span)),
        }
    }

    pub(super) fn in_flags(self, flags: &LimitFlags) -> Option<Amount> {
        let number = match self {
            Self::Memory => flags.memory.map(|size| size.0),
            Self::Processes => flags.processes,
            Self::Cpus => flags.cpus.map(|cpus| cpus.0),
            Self::CpuTime => flags.cpu_time.map(Duration::whole_seconds),
            Self::OpenFiles => flags.open_files,
            Self::FileSize => flags.file_size.map(|size| size.0),
            Self::TmpSize => flags.tmp_size.map(|size| size.0),
            Self::Disk => flags.disk.map(|size| size.0),
            Self::Timeout => flags.timeout.map(|time| time.0),
            Self::Output => flags.output.map(|size| size.0),
            Self::Flows => flags.flows,
            Self::FlowRate => flags.flow_rate,
            Self::NetUp => flags.net_up.map(|size| size.0),
            Self::NetDown => flags.net_down.map(|size| size.0),
        };
        number.map(Amount::Of)
    }

    /// As it is written in a file, without quotes.
    pub(super) fn show(self, amount: Amount) -> String {
        let Amount::Of(number) = amount else { return "unlimited".to_owned() };
        match self {
            Self::Memory
            | Self::FileSize
            | Self::TmpSize
            | Self::Disk
            | Self::Output
            | Self::NetUp
            | Self::NetDown => Size(number).to_string(),
            Self::Processes | Self::OpenFiles | Self::Flows | Self::FlowRate => number.to_string(),
            Self::Cpus => Cpus(number).to_string(),
            Self::CpuTime => Duration(number.saturating_mul(1000)).to_string(),
            Self::Timeout => Duration(number).to_string(),
        }
    }
}
