//! Numbers with units, as in command lines and policy files.

use std::ops::RangeInclusive;
use std::str::FromStr;

/// Valid limits for processes.
pub const PROCESSES: RangeInclusive<u64> = 1..=4_000_000;

/// Valid limits for open files. With fewer, a program cannot load its libraries.
pub const OPEN_FILES: RangeInclusive<u64> = 16..=1_048_576;

/// Valid limits for flows, concurrent and per second.
pub const FLOWS: RangeInclusive<u64> = 1..=1_000_000;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    #[error("`{0}` is not a size; write for example 512m or 2g")]
    Size(String),
    #[error("`{0}` is too little memory to start anything; the least is 8m")]
    Memory(String),
    #[error("`{0}` is not a time; write for example 30s, 5m or 7d")]
    Duration(String),
    #[error("`{0}` is not a number of cores; write for example 2 or 0.5")]
    Cpus(String),
}

/// Bytes, from `512`, `512k`, `512m`, `2g`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

impl ByteSize {
    /// A memory limit. No program starts with less than 8m.
    pub fn memory(text: &str) -> Result<Self, UnitError> {
        const LEAST: u64 = 8 << 20;
        text.parse::<Self>()
            .and_then(|size| if size.0 < LEAST { Err(UnitError::Memory(text.to_owned())) } else { Ok(size) })
    }
}

impl FromStr for ByteSize {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let wrong = || UnitError::Size(text.to_owned());
        let lower = text.to_ascii_lowercase();
        let lower = lower.strip_suffix("ib").or_else(|| lower.strip_suffix('b')).unwrap_or(&lower);
        let units = [("k", 1 << 10), ("m", 1 << 20), ("g", 1 << 30)];
        let (digits, factor) = split_unit(lower, &units).unwrap_or((lower, 1));
        let number: u64 = digits.parse().map_err(|_not_a_number| wrong())?;
        number.checked_mul(factor).filter(|bytes| *bytes > 0).map(Self).ok_or_else(wrong)
    }
}

/// Uses the largest unit that gives a whole number.
impl std::fmt::Display for ByteSize {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let units = [("g", 1 << 30), ("m", 1 << 20), ("k", 1 << 10)];
        display_with_unit(f, self.0, &units)
    }
}

/// Milliseconds, from `500ms`, `30s`, `5m`, `1h`, `7d`, or plain seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HumanDuration(pub u64);

impl HumanDuration {
    /// Rounded up, so that a short time does not become zero.
    pub fn whole_seconds(self) -> u64 {
        self.0.div_ceil(1000)
    }
}

impl FromStr for HumanDuration {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let wrong = || UnitError::Duration(text.to_owned());
        let units = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
        let (digits, factor) = split_unit(text, &units).unwrap_or((text, 1000));
        let number: u64 = digits.parse().map_err(|_not_a_number| wrong())?;
        number.checked_mul(factor).filter(|ms| *ms > 0).map(Self).ok_or_else(wrong)
    }
}

impl std::fmt::Display for HumanDuration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let units = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];
        display_with_unit(f, self.0, &units)
    }
}

/// Thousandths of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CpuCount(pub u64);

impl FromStr for CpuCount {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let wrong = || UnitError::Cpus(text.to_owned());
        let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
        if fraction.is_empty() || fraction.len() > 3 || !fraction.bytes().all(|b| b.is_ascii_digit()) {
            return Err(wrong());
        }
        let whole: u64 = whole.parse().map_err(|_not_a_number| wrong())?;
        let thousandths: u64 = format!("{fraction:0<3}").parse().map_err(|_not_a_number| wrong())?;
        let total = whole.checked_mul(1000).and_then(|n| n.checked_add(thousandths)).ok_or_else(wrong)?;
        if (10..=1_024_000).contains(&total) { Ok(Self(total)) } else { Err(wrong()) }
    }
}

impl std::fmt::Display for CpuCount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (whole, thousandths) = (self.0 / 1000, self.0 % 1000);
        if thousandths == 0 {
            return write!(f, "{whole}");
        }
        let fraction = format!("{thousandths:03}");
        write!(f, "{whole}.{}", fraction.trim_end_matches('0'))
    }
}

fn split_unit<'a>(text: &'a str, units: &[(&str, u64)]) -> Option<(&'a str, u64)> {
    units.iter().find_map(|(unit, factor)| text.strip_suffix(unit).map(|digits| (digits, *factor)))
}

fn display_with_unit(
    f: &mut std::fmt::Formatter<'_>,
    number: u64,
    units: &[(&str, u64)],
) -> std::fmt::Result {
    match units.iter().find(|(_, factor)| number.is_multiple_of(*factor)) {
        Some((unit, factor)) if number > 0 => write!(f, "{}{unit}", number / factor),
        _ => write!(f, "{number}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!("512m".parse(), Ok(ByteSize(512 << 20)));
        assert_eq!("2GiB".parse(), Ok(ByteSize(2 << 30)));
        assert_eq!("4096".parse(), Ok(ByteSize(4096)));
        for wrong in ["", "m", "-1", "1.5g", "0", "99999999999999999999", "18446744073709551615g", "5mm"] {
            assert!(wrong.parse::<ByteSize>().is_err(), "{wrong}");
        }
        assert_eq!(ByteSize::memory("8m"), Ok(ByteSize(8 << 20)));
        assert_eq!(ByteSize::memory("7m"), Err(UnitError::Memory("7m".into())));
    }

    #[test]
    fn durations() {
        assert_eq!("500ms".parse(), Ok(HumanDuration(500)));
        assert_eq!("30".parse(), Ok(HumanDuration(30_000)));
        assert_eq!("2m".parse(), Ok(HumanDuration(120_000)));
        assert_eq!("7d".parse(), Ok(HumanDuration(7 * 86_400_000)));
        assert_eq!(HumanDuration(86_400_000).to_string(), "1d");
        for wrong in ["", "s", "0", "-3s", "1w", "1.5s"] {
            assert!(wrong.parse::<HumanDuration>().is_err(), "{wrong}");
        }
        assert_eq!(HumanDuration(1).whole_seconds(), 1);
    }

    #[test]
    fn cores() {
        assert_eq!("0.5".parse(), Ok(CpuCount(500)));
        assert_eq!("2".parse(), Ok(CpuCount(2000)));
        for wrong in ["", "0", ".5", "1.", "x", "0.0001", "2000"] {
            assert!(wrong.parse::<CpuCount>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_shown_reads_back() {
        for text in ["512m", "2g", "1k", "7", "1025"] {
            assert_eq!(text.parse::<ByteSize>().unwrap().to_string(), text);
        }
        for text in ["500ms", "30s", "5m", "1h", "90s"] {
            assert_eq!(text.parse::<HumanDuration>().unwrap().to_string(), text);
        }
        for text in ["2", "0.5", "1.25", "0.125", "10"] {
            assert_eq!(text.parse::<CpuCount>().unwrap().to_string(), text);
        }
    }
}
