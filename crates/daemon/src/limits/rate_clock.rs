//! The clock of the rate limits, which the `governor` crate counts.

use std::num::NonZeroU32;

/// In tests the time stands still unless the test moves it.
#[cfg(test)]
pub(crate) use governor::clock::FakeRelativeClock as RateClock;
#[cfg(not(test))]
pub(crate) use governor::clock::MonotonicClock as RateClock;

/// The number, or one instead of zero.
pub(crate) const fn at_least_one(number: u32) -> NonZeroU32 {
    match NonZeroU32::new(number) {
        Some(number) => number,
        None => NonZeroU32::MIN,
    }
}
