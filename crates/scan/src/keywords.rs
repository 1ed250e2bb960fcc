//! All keywords in one pass: three bytes of each, the rarest that it has, are a number, and a table says for each place of the
//! text whether any keyword has what stands there, and what kinds of bytes follow that in keywords.
//!
//! WHY NOT an automaton: its next step depends on the last one and its table on the number of keywords. Here neither does: the
//! numbers of many places are computed at once, and keywords are too rare for the comparison that follows a hit to
//! matter.

use std::ops::Range;

use zeroize::Zeroize as _;

/// Bytes of a keyword that are looked for.
const ANCHOR: usize = 3;
/// How far into a keyword its anchor may lie.
const DEEPEST: usize = 16;
const NUMBERS: usize = 1 << u16::BITS;
/// Numbers that share a place in `begin`.
const SHARED: usize = 64;
/// Places whose numbers are computed together, and of those how many are asked about together.
const BLOCK: usize = 256;
const GROUP: usize = 8;

/// Pairs of letters by how often they stand in text and programs, the most frequent first.
const COMMON: &[u8] = b"  e inerre tt anths te aonoratn es cseenst sd lehecoed ideit ftimantneasparoal olir toetarecmeisndng dom nio m p rrifi \
    wut llassveil bnochsihaloracetry o genspecttaeladusproueaspllopncacfouncl udike ecaulotpompl g osexrttsofamf odemhonaa h \
    icdalsmorsocurmignniigimowefckapdobesorgddshcrauiaaisummnubuhifr h gryptolupplwhblwildavabttidrragieviuetlrmewifbyc  vgisaovo\
    oruirm eyibevwonnvaeerntuepixw puumsclycircwatyipubpiogffppbirdlfdsfeuifabaivltweak";

/// What may follow an anchor with which its keyword ends.
const ANY_KIND: u8 = u8::MAX;
/// The kind of each byte, one of eight bits; the same for a letter in either case.
const KINDS: [u8; 256] = kinds();

pub(crate) struct KeywordSet {
    /// The kinds of bytes that follow a number in keywords; 0 if no keyword has it.
    known: Box<[u8; NUMBERS]>,
    /// Where in `order` the anchors begin whose number divided by [`SHARED`] is the index.
    begin: Vec<u32>,
    /// By their number.
    order: Vec<KeywordAnchor>,
    keywords: Vec<Vec<u8>>,
}

struct KeywordAnchor {
    number: u16,
    /// Where in the keyword it lies.
    offset: u32,
    keyword: u32,
}

/// Some keywords are beginnings of secrets, so they are wiped.
impl Drop for KeywordSet {
    fn drop(&mut self) {
        self.keywords.zeroize();
    }
}

impl KeywordSet {
    /// In lower case, each at least three bytes long; shorter ones are never found.
    pub(crate) fn new(keywords: Vec<Vec<u8>>) -> Self {
        let anchor = |(at, keyword): (usize, &Vec<u8>)| {
            let (offset, number) = rarest(keyword)?;
            Some(KeywordAnchor { number, offset: offset as u32, keyword: at as u32 })
        };
        let mut order: Vec<KeywordAnchor> = keywords.iter().enumerate().filter_map(anchor).collect();
        order.sort_unstable_by_key(|anchor| (anchor.number, anchor.keyword));
        let mut known = Box::new([0; NUMBERS]);
        for anchor in &order {
            let keyword = keywords.get(anchor.keyword as usize);
            let next = keyword.and_then(|keyword| keyword.get(anchor.offset as usize + ANCHOR));
            if let Some(known) = known.get_mut(usize::from(anchor.number)) {
                *known |= next.map_or(ANY_KIND, |next| kind(*next));
            }
        }
        let before =
            |share: usize| order.partition_point(|anchor| usize::from(anchor.number) < share * SHARED) as u32;
        let begin = (0..=NUMBERS / SHARED).map(before).collect();
        Self { known, begin, order, keywords }
    }

    /// Every place of every keyword, in whatever case, from the first to the last.
    pub(crate) fn each(&self, bytes: &[u8], mut found: impl FnMut(usize, Range<usize>)) {
        let mut hits: Vec<(usize, u32)> = Vec::new();
        let mut give = |hits: &mut Vec<(usize, u32)>, before: usize| {
            hits.sort_unstable();
            let decided = hits.partition_point(|(start, _)| *start < before);
            for (start, keyword) in hits.drain(..decided) {
                let length = self.keywords.get(keyword as usize).map_or(0, Vec::len);
                found(keyword as usize, start..start + length);
            }
        };
        for from in (0..bytes.len()).step_by(BLOCK) {
            self.block(bytes, from, &mut hits);
            if !hits.is_empty() {
                // What begins behind this may still be preceded by what is found in the next block.
                give(&mut hits, (from + BLOCK).saturating_sub(DEEPEST));
            }
        }
        give(&mut hits, usize::MAX);
    }

    pub(crate) fn is_in(&self, bytes: &[u8]) -> bool {
        let mut any = false;
        self.each(bytes, |_, _| any = true);
        any
    }

    /// Hits whose anchors lie in one block.
    fn block(&self, bytes: &[u8], from: usize, hits: &mut Vec<(usize, u32)>) {
        let mut numbers = [0_u16; BLOCK];
        let rest = bytes.get(from..).unwrap_or_default();
        let places = number_each(rest, &mut numbers);
        let groups = numbers.as_chunks::<GROUP>().0.iter().take(places.div_ceil(GROUP));
        for (group, at) in groups.zip((from..).step_by(GROUP)) {
            let next = bytes.get(at + ANCHOR..).and_then(|rest| rest.first_chunk::<GROUP>());
            let hit = match next {
                Some(next) => {
                    group.iter().zip(next).fold(0, |hit, (n, next)| hit | self.knows(*n) & kind(*next))
                }
                // At the end of the text.
                None => group.iter().fold(0, |hit, number| hit | self.knows(*number)),
            };
            if hit != 0 {
                self.group(bytes, at, group, hits);
            }
        }
    }

    /// The kinds of bytes that follow it.
    fn knows(&self, number: u16) -> u8 {
        self.known.get(usize::from(number)).copied().unwrap_or_default()
    }

    #[cold]
    fn group(&self, bytes: &[u8], at: usize, group: &[u16; GROUP], hits: &mut Vec<(usize, u32)>) {
        let is_hit = |(number, at): &(&u16, usize)| {
            let next = bytes.get(at + ANCHOR).map_or(ANY_KIND, |next| kind(*next));
            self.knows(**number) & next != 0
        };
        for (number, at) in group.iter().zip(at..).filter(is_hit) {
            let share = usize::from(*number) / SHARED;
            let range = self.begin.get(share).zip(self.begin.get(share + 1));
            let anchors = range.and_then(|(from, to)| self.order.get(*from as usize..*to as usize));
            for anchor in anchors.into_iter().flatten().filter(|anchor| anchor.number == *number) {
                let Some(start) = at.checked_sub(anchor.offset as usize) else { continue };
                let Some(keyword) = self.keywords.get(anchor.keyword as usize) else { continue };
                let there = bytes.get(start..start + keyword.len());
                if there.is_some_and(|there| there.eq_ignore_ascii_case(keyword)) {
                    hits.push((start, anchor.keyword));
                }
            }
        }
    }
}

/// The place of the three bytes of a keyword that stand least often in a text, and their number.
fn rarest(keyword: &[u8]) -> Option<(usize, u16)> {
    let frequency = |pair: &[u8]| {
        let rank = COMMON.as_chunks::<2>().0.iter().position(|common| common == pair);
        rank.map_or(0, |rank| COMMON.len() / 2 - rank)
    };
    // With what follows, where something does.
    let windows = keyword.windows((ANCHOR + 1).min(keyword.len().max(ANCHOR))).take(DEEPEST + 1).enumerate();
    let frequencies = windows.map(|(at, anchor)| {
        let frequency: usize = anchor.windows(2).map(frequency).sum();
        (frequency, at, anchor)
    });
    let (_, at, anchor) = frequencies.min_by_key(|(frequency, at, _)| (*frequency, *at))?;
    let [a, b, c, ..] = anchor else { return None };
    Some((at, number([*a, *b, *c])))
}

/// For how many places there was a number. Computed for many at once: no step depends on the one before.
fn number_each(text: &[u8], numbers: &mut [u16; BLOCK]) -> usize {
    let places = text.len().saturating_sub(ANCHOR - 1).min(BLOCK);
    let from = |at: usize| text.get(at..at + places).unwrap_or_default();
    for (((a, b), c), into) in from(0).iter().zip(from(1)).zip(from(2)).zip(numbers) {
        *into = number([*a, *b, *c]);
    }
    places
}

/// Of three bytes, letters in lower case; other bytes may fall together, and are told apart by the comparison.
fn number([a, b, c]: [u8; ANCHOR]) -> u16 {
    let folded = |byte: u8| u16::from(byte | 0x20);
    let first = (folded(a) | folded(b) << 8).wrapping_mul(0x9e35);
    (first ^ first >> 9).wrapping_add(folded(c).wrapping_mul(0xd6e9))
}

fn kind(byte: u8) -> u8 {
    KINDS.get(usize::from(byte)).copied().unwrap_or(ANY_KIND)
}

#[expect(clippy::indexing_slicing, reason = "computed by the compiler, which refuses what is out of bounds")]
const fn kinds() -> [u8; 256] {
    let mut kinds = [0; 256];
    let mut byte = 0;
    while byte < kinds.len() {
        let folded = byte | 0x20;
        kinds[byte] = 1 << ((folded ^ folded >> 3) % 8);
        byte += 1;
    }
    kinds
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
            keywords in proptest::collection::vec("[a-c_]{3,24}", 1..20),
            text in "[a-cA-C_\x7f@]{0,2100}",
        ) {
            let keywords: Vec<Vec<u8>> = keywords.into_iter().map(String::into_bytes).collect();
            let mut found = Vec::new();
            KeywordSet::new(keywords.clone()).each(text.as_bytes(), |at, range| found.push((at, range)));
            let mut expected = naive(&keywords, text.as_bytes());
            expected.sort_by_key(|(at, range)| (range.start, *at));
            prop_assert_eq!(found, expected);
        }
    }
}
