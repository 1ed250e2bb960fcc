use std::io::Write as _;

use flate2::Compression;
use flate2::{GzBuilder, write};
use proptest::prelude::*;

use super::*;

#[test]
fn runs_are_all_long_runs_and_only_those() {
    let long = "a".repeat(24);
    let text = format!("{} short {long} {}{long}", "b".repeat(23), "é");
    let found: Vec<Range<usize>> = Runs::new(text.as_bytes()).collect();
    assert_eq!(found.len(), 2);
    assert!(found.iter().all(|run| text.get(run.clone()) == Some(long.as_str())));
}

/// Reference implementation: longest runs of letters, byte by byte.
fn naive(text: &[u8], shortest: usize, is_letter: impl Fn(u8) -> bool) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut start = 0;
    for part in text.split(|byte| !is_letter(*byte)) {
        found.extend((part.len() >= shortest).then_some(start..start + part.len()));
        start += part.len() + 1;
    }
    found
}

/// Text whose words are about as long as what is looked for, with every byte between them that a first look may take for a
/// letter.
fn words(letters: &'static str, longest: usize) -> impl Strategy<Value = Vec<u8>> {
    let gap =
        prop_oneof![Just(b' '), Just(b'\n'), Just(b'.'), Just(b'['), Just(b'`'), Just(b'y'), any::<u8>()];
    let word = proptest::collection::vec(proptest::sample::select(letters.as_bytes()), 0..longest);
    proptest::collection::vec((word, gap), 0..20).prop_map(|words| {
        words.into_iter().flat_map(|(word, gap)| word.into_iter().chain([gap])).collect::<Vec<u8>>()
    })
}

proptest! {
    #[test]
    fn runs_are_what_a_look_at_every_byte_finds(text in words("azAZ09+/-_", 60)) {
        let found: Vec<Range<usize>> = Runs::new(&text).collect();
        prop_assert_eq!(found, naive(&text, runs::SHORTEST, is_encoded_letter));
    }

    #[test]
    fn spaced_digits_are_found_wherever_they_begin(before in words("az 09", 40), after in words("az 09", 40)) {
        let secret = b"sk-ant-a letter or two";
        let digits: Vec<String> = secret.iter().map(|byte| format!("{byte:02x}")).collect();
        let text = [&before, &b"!"[..], digits.join(" ").as_bytes(), b"!", &after].concat();
        let mut found = Vec::new();
        spaced_hex::pieces(&text, &mut found, &mut DecodeBudget::new(1 << 20));
        let start = before.len() + 1;
        let is_it = |piece: &DecodedPiece| {
            piece.bytes == secret && piece.places.source(0..1) == Some(start..start + 2)
        };
        prop_assert!(found.iter().any(is_it));
    }

    #[test]
    fn digits_of_hex_are_found_wherever_they_begin(before in words("gzGZ09af", 50), after in words("gz09", 50)) {
        let secret = b"sk-ant-a letter or two";
        let digits: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
        let text = [&before, &b"z"[..], digits.as_bytes(), b"z", &after].concat();
        let start = before.len() + 1;
        let mut found = Vec::new();
        for run in Runs::new(&text) {
            hex::pieces(&text, run, &mut found, &mut DecodeBudget::new(1 << 20));
        }
        let is_it = |piece: &DecodedPiece| {
            piece.bytes == secret && piece.places.source(0..1) == Some(start..start + 2)
        };
        prop_assert!(found.iter().any(is_it));
    }
}

#[test]
fn compressed_data_with_a_name_and_a_comment_is_read_as_far_as_a_decoder_reads_them() {
    let inflated = |name: usize, comment: usize| {
        let builder =
            GzBuilder::new().filename(vec![b'n'; name]).comment(vec![b'c'; comment]).extra(vec![7; 300]);
        let mut encoder: write::GzEncoder<Vec<u8>> = builder.write(Vec::new(), Compression::default());
        encoder.write_all(b"what is inside").unwrap();
        let compressed = encoder.finish().unwrap();
        let mut found = Vec::new();
        gzip::raw(&compressed, &mut found, &mut DecodeBudget::new(1 << 20));
        found.iter().map(|piece| piece.bytes.clone()).collect::<Vec<_>>()
    };
    for (name, comment) in [(1, 1), (65_535, 1), (1, 65_535)] {
        assert_eq!(inflated(name, comment), [b"what is inside"], "{name} {comment}");
    }
    assert!(inflated(65_536, 1).is_empty());
}

#[test]
fn a_name_without_end_costs_what_a_decoder_would_have_read_of_it() {
    let header = [0x1f, 0x8b, 8, 1 << 3, 0, 0, 0, 0, 0, 0];
    for length in [0, 1, 65_535, 65_536, 100_000] {
        let text = [&header[..], &vec![b'x'; length]].concat();
        let mut allowance = DecodeBudget::new(1 << 20);
        assert!(gzip::inflate(&text, &mut allowance).is_none());
        let mut rest = &text[..];
        // By the decoder itself.
        let _no_end = flate2::bufread::GzDecoder::new(&mut rest);
        assert_eq!((1 << 20) - allowance.left(), (1 << 10) + text.len() - rest.len(), "{length}");
    }
}
