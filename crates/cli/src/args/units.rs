//! Numbers with units, and `NAME=VALUE`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::str::FromStr;

use ringfence_types::Bytes;

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum UnitError {
    #[error("`{0}` is not a size; write for example 512m or 2g")]
    Size(String),
    #[error("`{0}` is too little memory to start anything; the least is 8m")]
    Memory(String),
    #[error("`{0}` is not a time; write for example 30s, 5m or 500ms")]
    Duration(String),
    #[error("`{0}` is not a number of cores; write for example 2 or 0.5")]
    Cpus(String),
    #[error("`{0}` is not NAME=VALUE")]
    Variable(String),
}

/// Bytes, from `512`, `512k`, `512m`, `2g`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size(pub(crate) u64);

impl FromStr for Size {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let wrong = || UnitError::Size(text.to_owned());
        let lower = text.to_ascii_lowercase();
        let lower = lower.strip_suffix("ib").or_else(|| lower.strip_suffix('b')).unwrap_or(&lower);
        let (digits, factor) = match lower.chars().last() {
            Some('k') => (lower.trim_end_matches('k'), 1 << 10),
            Some('m') => (lower.trim_end_matches('m'), 1 << 20),
            Some('g') => (lower.trim_end_matches('g'), 1 << 30),
            _ => (lower, 1),
        };
        let number: u64 = digits.parse().map_err(|_not_a_number| wrong())?;
        number.checked_mul(factor).filter(|bytes| *bytes > 0).map(Self).ok_or_else(wrong)
    }
}

/// Less than this does not even start a program.
pub(crate) fn memory(text: &str) -> Result<Size, UnitError> {
    const LEAST: u64 = 8 << 20;
    text.parse::<Size>()
        .and_then(|size| if size.0 < LEAST { Err(UnitError::Memory(text.to_owned())) } else { Ok(size) })
}

/// Milliseconds, from `500ms`, `30s`, `5m`, `1h`, or plain seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Duration(pub(crate) u64);

impl FromStr for Duration {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let wrong = || UnitError::Duration(text.to_owned());
        let units = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000)];
        let (digits, factor) = units
            .into_iter()
            .find_map(|(unit, factor)| text.strip_suffix(unit).map(|digits| (digits, factor)))
            .unwrap_or((text, 1000));
        let number: u64 = digits.parse().map_err(|_not_a_number| wrong())?;
        number.checked_mul(factor).filter(|ms| *ms > 0).map(Self).ok_or_else(wrong)
    }
}

/// Thousandths of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cpus(pub(crate) u64);

impl FromStr for Cpus {
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

/// A variable for a command; whether the name is allowed is policy, not syntax.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Variable(pub(crate) Bytes, pub(crate) Bytes);

impl TryFrom<OsString> for Variable {
    type Error = UnitError;

    fn try_from(text: OsString) -> Result<Self, UnitError> {
        let bytes = text.as_bytes();
        let wrong = || UnitError::Variable(Bytes::from(bytes).display());
        let at = bytes.iter().position(|byte| *byte == b'=').ok_or_else(wrong)?;
        let (name, value) = bytes.split_at(at);
        Ok(Self(Bytes::from(name), Bytes::from(value.get(1..).unwrap_or_default())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!("512m".parse(), Ok(Size(512 << 20)));
        assert_eq!("2GiB".parse(), Ok(Size(2 << 30)));
        assert_eq!("4096".parse(), Ok(Size(4096)));
        for wrong in ["", "m", "-1", "1.5g", "0", "99999999999999999999", "18446744073709551615g"] {
            assert!(wrong.parse::<Size>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn durations() {
        assert_eq!("500ms".parse(), Ok(Duration(500)));
        assert_eq!("30".parse(), Ok(Duration(30_000)));
        assert_eq!("2m".parse(), Ok(Duration(120_000)));
        for wrong in ["", "s", "0", "-3s", "1d", "1.5s"] {
            assert!(wrong.parse::<Duration>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn cores() {
        assert_eq!("0.5".parse(), Ok(Cpus(500)));
        assert_eq!("2".parse(), Ok(Cpus(2000)));
        for wrong in ["", "0", ".5", "1.", "x", "0.0001", "2000"] {
            assert!(wrong.parse::<Cpus>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn variables() {
        let Variable(name, value) = OsString::from("A=b=c").try_into().unwrap();
        assert_eq!((name.as_slice(), value.as_slice()), (&b"A"[..], &b"b=c"[..]));
        assert!(Variable::try_from(OsString::from("A")).is_err());
    }
}
