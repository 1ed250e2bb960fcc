//! Repetitive output, such as zeros or repeated lines, is scanned once.

use memchr::memmem;

/// Longer periods are not looked for. Far less than a window sees before and behind itself, so that every place of a
/// repetition has been seen with all that surrounds it.
const LONGEST: usize = 2 << 10;
/// So much has to come again before it is compared to the end.
const SAMPLE: usize = 64;

/// After how many bytes all of `window` comes again, if it does.
pub(crate) fn period(window: &[u8]) -> Option<usize> {
    let sample = window.get(..SAMPLE)?;
    let behind = window.get(1..LONGEST + SAMPLE)?;
    let period = memmem::find(behind, sample)? + 1;
    repeats(window, period).then_some(period)
}

/// Whether every byte is the one that stands `period` bytes before it.
pub(crate) fn repeats(window: &[u8], period: usize) -> bool {
    match (window.get(period..), window.len().checked_sub(period)) {
        (Some(later), Some(length)) => window.get(..length) == Some(later),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_repeats_is_known_and_what_differs_in_one_byte_is_not() {
        for unit in [&b"y\n"[..], b"a line of text\n", &[0], &[7; 2048]] {
            let mut window = unit.repeat((300 << 10) / unit.len());
            let period = period(&window).unwrap();
            assert!(unit.len().is_multiple_of(period) && repeats(&window, period));
            for at in [0, 1, window.len() / 2, window.len() - 1] {
                window[at] ^= 1;
                assert!(!repeats(&window, period), "{at}");
                window[at] ^= 1;
            }
        }
        assert_eq!(period(b"short"), None);
        let counted: Vec<u8> = (0..100_000_u32).flat_map(|n| format!("{n}\n").into_bytes()).collect();
        assert_eq!(period(&counted), None);
    }
}
