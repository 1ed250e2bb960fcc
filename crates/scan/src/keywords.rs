//! All keywords in one pass: the first three bytes of each are a number, and a table that fits the first cache says for each
//! place of the text whether any keyword begins with what stands there.
//!
//! WHY NOT an automaton: its next step depends on the last one and its table on the number of keywords. Here neither does,
//! and keywords are too rare for the comparison that follows a hit to matter.

use std::ops::Range;

use zeroize::Zeroize as _;

const START: usize = 3;
const BITS: u32 = 16;
const NUMBERS: usize = 1 << BITS;
const WORDS: usize = NUMBERS / 64;

pub(crate) struct Keywords {
    /// Whether any keyword has the number.
    known: Box<[u64; WORDS]>,
    /// Where in `order` the keywords of each number begin; one more than there are numbers.
    begin: Vec<u32>,
    /// Keywords by their number.
    order: Vec<u32>,
    keywords: Vec<Vec<u8>>,
}

/// Among them are beginnings of secrets.
impl Drop for Keywords {
    fn drop(&mut self) {
        self.keywords.zeroize();
    }
}

impl Keywords {
    /// Each at least three bytes long; shorter ones are never found.
    pub(crate) fn new(keywords: Vec<Vec<u8>>) -> Self {
        let mut numbered: Vec<(usize, u32)> = Vec::with_capacity(keywords.len());
        for (at, keyword) in keywords.iter().enumerate() {
            if let [a, b, c, ..] = keyword.as_slice() {
                numbered.push((number(folded(folded(folded(0, *a), *b), *c)), at as u32));
            }
        }
        numbered.sort_unstable();
        let mut known = Box::new([0; WORDS]);
        for (number, _) in &numbered {
            if let Some(word) = known.get_mut(number / 64) {
                *word |= 1 << (number % 64);
            }
        }
        let begin = (0..=NUMBERS).map(|number| numbered.partition_point(|(other, _)| *other < number) as u32);
        let begin = begin.collect();
        Self { known, begin, order: numbered.into_iter().map(|(_, at)| at).collect(), keywords }
    }

    /// Every place of every keyword, in whatever case.
    pub(crate) fn each(&self, bytes: &[u8], mut found: impl FnMut(usize, Range<usize>)) {
        let mut last = 0;
        for (at, byte) in bytes.iter().enumerate() {
            last = folded(last, *byte);
            let number = number(last);
            let is_known = self.known.get(number / 64).is_some_and(|word| word >> (number % 64) & 1 == 1);
            if is_known && at + 1 >= START {
                self.at(bytes, at + 1 - START, number, &mut found);
            }
        }
    }

    pub(crate) fn is_in(&self, bytes: &[u8]) -> bool {
        let mut any = false;
        self.each(bytes, |_, _| any = true);
        any
    }

    #[cold]
    fn at(&self, bytes: &[u8], start: usize, number: usize, found: &mut impl FnMut(usize, Range<usize>)) {
        let range = self.begin.get(number).zip(self.begin.get(number + 1));
        let candidates = range.and_then(|(from, to)| self.order.get(*from as usize..*to as usize));
        for at in candidates.into_iter().flatten().map(|at| *at as usize) {
            let Some(keyword) = self.keywords.get(at) else { continue };
            let range = start..start + keyword.len();
            if bytes.get(range.clone()).is_some_and(|there| there.eq_ignore_ascii_case(keyword)) {
                found(at, range);
            }
        }
    }
}

/// The last three bytes, letters in lower case; other bytes may fall together, and are told apart by the comparison.
fn folded(last: u32, byte: u8) -> u32 {
    (last << 8 | u32::from(byte | 0x20)) & 0x00ff_ffff
}

/// Spread over the table, because the bytes of texts are not.
fn number(last: u32) -> usize {
    (last.wrapping_mul(0x9e37_79b1) >> (u32::BITS - BITS)) as usize
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn naive(keywords: &[Vec<u8>], bytes: &[u8]) -> Vec<(usize, Range<usize>)> {
        let mut found = Vec::new();
        for start in 0..bytes.len() {
            for (at, keyword) in keywords.iter().enumerate() {
                let range = start..start + keyword.len();
                if bytes.get(range.clone()).is_some_and(|there| there.eq_ignore_ascii_case(keyword)) {
                    found.push((at, range));
                }
            }
        }
        found
    }

    proptest! {
        #[test]
        fn every_place_of_every_keyword_is_found(
            keywords in proptest::collection::vec("[a-c_]{3,6}", 1..20),
            text in "[a-cA-C_\x7f@]{0,80}",
        ) {
            let keywords: Vec<Vec<u8>> = keywords.into_iter().map(String::into_bytes).collect();
            let mut found = Vec::new();
            Keywords::new(keywords.clone()).each(text.as_bytes(), |at, range| found.push((at, range)));
            let mut expected = naive(&keywords, text.as_bytes());
            found.sort_by_key(|(at, range)| (range.start, *at));
            expected.sort_by_key(|(at, range)| (range.start, *at));
            prop_assert_eq!(found, expected);
        }
    }
}
