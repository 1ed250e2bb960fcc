//! A stream gives what the whole would give, holds back what must not be seen in parts, and stays within its limits whatever
//! comes.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;
use ringfence_scan::rules::{built_in, expand};
use ringfence_scan::{
    Confidence, Encoding, Finding, FindingAction, FingerprintSalt, PauseLength, ScanOutput, ScanStream,
    Scanner,
};

const KIB: usize = 1024;
/// What a window decides about; tests put secrets around its edges.
const WINDOW: usize = 256 * KIB;

fn token(variant: u64) -> Vec<u8> {
    expand("ghp_{alnum:30}{github}", variant).unwrap()
}

fn in_chunks(scanner: &Scanner, input: &[u8], sizes: &[usize]) -> (Vec<u8>, Vec<Finding>) {
    through(scanner.stream(), input, sizes)
}

fn through(mut stream: ScanStream, input: &[u8], sizes: &[usize]) -> (Vec<u8>, Vec<Finding>) {
    let mut output = ScanOutput::default();
    let mut rest = input;
    for size in sizes.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (chunk, later) = rest.split_at((*size).clamp(1, rest.len()));
        stream.push(chunk, &mut output);
        rest = later;
    }
    stream.finish(&mut output);
    (output.clean, output.findings)
}

/// Text with secrets of all kinds in between, plain and encoded.
fn mixture(seed: u64, count: usize) -> Vec<u8> {
    let rules = built_in();
    let mut text = Vec::new();
    for number in 0..count {
        let rule = &rules[(seed as usize * 31 + number * 7) % rules.len()];
        let secret = expand(&rule.examples()[0], seed).unwrap();
        let filler = [b"filler text with words, ".as_slice(), &[0xff, 0x00, 0x1b, b'%', b'\\']].concat();
        text.extend(filler.repeat(1 + (seed as usize + number) % 9));
        match number % 4 {
            0 => text.extend(STANDARD.encode(&secret).into_bytes()),
            1 => text.extend(secret.iter().flat_map(|byte| format!("%{byte:02x}").into_bytes())),
            _ => text.extend(&secret),
        }
        text.push(b'\n');
    }
    text
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_chunking_gives_the_same_as_the_whole(seed in 0_u64..1000, sizes in proptest::collection::vec(1_usize..5000, 1..8)) {
        let input = mixture(seed, 12);
        let whole = Scanner::built_in().redact(&input);
        let (clean, findings) = in_chunks(Scanner::built_in(), &input, &sizes);
        prop_assert_eq!(clean, whole.clean);
        prop_assert_eq!(findings, whole.findings);
    }

    #[test]
    fn arbitrary_bytes_keep_what_is_not_found(input in proptest::collection::vec(any::<u8>(), 0..4096), sizes in proptest::collection::vec(1_usize..200, 1..4)) {
        let whole = Scanner::built_in().redact(&input);
        prop_assert!(whole.findings.iter().all(|f| f.start < f.end && f.end <= input.len()));
        if whole.findings.is_empty() {
            prop_assert_eq!(&whole.clean, &input);
        }
        prop_assert_eq!(in_chunks(Scanner::built_in(), &input, &sizes).0, whole.clean);
    }

    #[test]
    fn a_pause_anywhere_lets_nothing_out(cuts in proptest::collection::vec(1_usize..60, 1..6), seed in 0_u64..500) {
        let secret = token(seed);
        let input = [b"a prompt: ".as_slice(), &secret, b" and more\n"].concat();
        let mut stream = Scanner::built_in().stream();
        let mut output = ScanOutput::default();
        let mut rest = input.as_slice();
        for cut in cuts.iter().cycle() {
            if rest.is_empty() { break }
            let (chunk, later) = rest.split_at((*cut).min(rest.len()));
            stream.push(chunk, &mut output);
            stream.settle(PauseLength::Short, &mut output);
            rest = later;
        }
        stream.finish(&mut output);
        let text = String::from_utf8(output.clean).unwrap();
        prop_assert!(!text.contains(std::str::from_utf8(&secret[4..]).unwrap()), "{}", text);
        prop_assert!(text.starts_with("a prompt: ") && text.ends_with(" and more\n"), "{}", text);
        prop_assert_eq!(output.findings.len(), 1);
    }
}

#[test]
fn secrets_around_every_edge_of_a_window_are_found() {
    let secret = token(1);
    for edge in [WINDOW, WINDOW + 16 * KIB, 2 * WINDOW] {
        for before in [0, 1, 3, 20, 39, 40, 41] {
            let mut input = vec![b'.'; edge - before];
            input.extend(&secret);
            input.extend(vec![b' '; WINDOW]);
            let redacted = Scanner::built_in().redact(&input);
            assert_eq!(redacted.findings.len(), 1, "{edge} - {before}");
            let finding = &redacted.findings[0];
            assert_eq!(&input[finding.start..finding.end], secret.as_slice());
            assert_eq!(redacted.clean.len(), input.len() - secret.len() + "[redacted:github-token]".len());
        }
    }
}

/// Some windows of text that does not repeat itself, of text that does, and of a private key that goes on from window to
/// window, with secrets in between.
fn long_mixture() -> Vec<u8> {
    let counted = |from: usize| -> Vec<u8> {
        (from..from + 40_000).flat_map(|n| format!("line {n} of {}\n", n * 7919).into_bytes()).collect()
    };
    let kind = concat!("RSA PRIV", "ATE KEY");
    let key = expand(&"{b64:64}\n".repeat(50), 1).unwrap().repeat(300);
    let repeated = b"the same again\n".repeat(4 * WINDOW / 15);
    [
        mixture(1, 40),
        counted(0),
        token(1),
        repeated.clone(),
        token(2),
        repeated,
        format!("\n-----BEGIN {kind}-----\n").into_bytes(),
        key,
        format!("-----END {kind}-----\n").into_bytes(),
        counted(90_000),
        mixture(2, 40),
    ]
    .concat()
}

#[test]
fn threads_change_nothing() {
    let input = long_mixture();
    let whole = Scanner::built_in().redact(&input);
    assert!(whole.findings.len() > 50 && input.len() > 12 * WINDOW);
    for sizes in [&[64 * KIB][..], &[1, 100_000, 7], &[3 * WINDOW], &[4096]] {
        let (clean, findings) = through(Scanner::built_in().stream().with_threads(), &input, sizes);
        assert!(clean == whole.clean, "{sizes:?}");
        assert_eq!(findings, whole.findings, "{sizes:?}");
    }
}

#[test]
fn a_pause_waits_for_what_threads_have_not_done() {
    let input = long_mixture();
    let text = [&input[..2 * WINDOW], b" the end of it. "].concat();
    let (mut stream, mut output) = (Scanner::built_in().stream().with_threads(), ScanOutput::default());
    stream.push(&text, &mut output);
    stream.settle(PauseLength::Short, &mut output);
    assert!(output.clean.ends_with(b" the end of it. "));
    assert_eq!(output.clean, Scanner::built_in().redact(&text).clean);
}

#[test]
fn a_private_key_of_any_length_is_one_finding() {
    for lines in [1, 30, 300, 2000, 9000] {
        let body = expand(&"{b64:64}\n".repeat(lines.min(50)), 1).unwrap().repeat(lines.div_ceil(50));
        let kind = concat!("RSA PRIV", "ATE KEY");
        let block = [
            format!("-----BEGIN {kind}-----\n").into_bytes(),
            body,
            format!("-----END {kind}-----").into_bytes(),
        ]
        .concat();
        let input = [vec![b' '; WINDOW - 100], block.clone(), b"\nafter".to_vec()].concat();
        let redacted = Scanner::built_in().redact(&input);
        if block.len() < 60 * KIB {
            assert_eq!(redacted.findings.len(), 1, "{lines} lines: {:?}", redacted.findings);
            assert!(redacted.clean.ends_with(b"[redacted:private-key]\nafter"), "{lines}");
        }
        let left = String::from_utf8_lossy(&redacted.clean).into_owned();
        assert!(!left.contains("RSA PRIV"), "{lines}: a header is left");
    }
}

#[test]
fn a_pause_gives_out_what_is_no_beginning_of_a_secret() {
    for (text, given) in [
        ("Continue? [y/N] ", "Continue? [y/N] "),
        (">>> ", ">>> "),
        ("Password: ", "Password: "),
        ("user@host:~$ ", "user@host:~$ "),
        ("compiling 42%", "compiling 42%"),
    ] {
        let mut stream = Scanner::built_in().stream();
        let mut output = ScanOutput::default();
        stream.push(text.as_bytes(), &mut output);
        assert!(output.clean.is_empty(), "a window waits for more");
        stream.settle(PauseLength::Short, &mut output);
        assert_eq!(String::from_utf8_lossy(&output.clean), given);
        stream.finish(&mut output);
        assert_eq!(String::from_utf8_lossy(&output.clean), text);
    }
}

#[test]
fn exact_values_are_found_in_every_form() {
    let value = b"correct horse \"battery\" / staple+42";
    let scanner = Scanner::builder()
        .secret("DEPLOY", value)
        .unwrap()
        .salt(FingerprintSalt::new(*b"salt and pepper"))
        .build();
    let reversed: Vec<u8> = value.iter().rev().copied().collect();
    let hex: String = value.iter().map(|byte| format!("{byte:02X}")).collect();
    let spaced =
        |between: &str| value.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(between);
    let json = b"correct horse \\\"battery\\\" / staple+42";
    let forms: Vec<(Option<Encoding>, Vec<u8>)> = vec![
        (None, value.to_vec()),
        (Some(Encoding::Reversed), reversed),
        (Some(Encoding::Hex), hex.into_bytes()),
        (Some(Encoding::Hex), spaced(" ").into_bytes()),
        (Some(Encoding::Hex), spaced(":").into_bytes()),
        (Some(Encoding::Hex), format!("{{ 0x{} }}", spaced(", 0x")).into_bytes()),
        (Some(Encoding::Escaped), format!("\\x{}", spaced("\\x")).into_bytes()),
        (Some(Encoding::Escaped), json.to_vec()),
        (Some(Encoding::Url), b"correct%20horse%20%22battery%22%20%2f%20staple%2B42".to_vec()),
        (Some(Encoding::Base64), STANDARD.encode(value).into_bytes()),
        (Some(Encoding::Base64), STANDARD.encode([b"x".as_slice(), value, b"yz"].concat()).into_bytes()),
        (
            Some(Encoding::Base64),
            STANDARD.encode([b"\xff\xfe".as_slice(), value, b"\x80"].concat()).into_bytes(),
        ),
    ];
    let mut prints = Vec::new();
    for (encoding, form) in forms {
        let input = [b"\x80\x81 ".as_slice(), &form, b"\n"].concat();
        let redacted = scanner.redact(&input);
        let finding = redacted.findings.first().unwrap_or_else(|| panic!("{encoding:?}"));
        assert_eq!(
            (&*finding.rule, finding.confidence),
            ("secret/DEPLOY", Confidence::Exact),
            "{encoding:?}"
        );
        assert_eq!(finding.layers.iter().last(), encoding);
        prints.push(finding.fingerprint.unwrap());
    }
    prints.dedup();
    assert_eq!(prints.len(), 1, "one secret, one fingerprint");
    let other = Scanner::builder()
        .secret("DEPLOY", value)
        .unwrap()
        .salt(FingerprintSalt::new(*b"other salt"))
        .build();
    assert_ne!(other.scan(value)[0].fingerprint, Some(prints[0]));
    assert_eq!(Scanner::built_in().scan(value), []);
}

#[test]
fn short_values_are_found_between_blanks_and_colons() {
    let scanner = Scanner::builder().secret("PIN", b"hunter").unwrap().build();
    for between in [" ", ":", "-", "\\x", ",0x", ", 0x"] {
        let digits = b"hunter".iter().map(|byte| format!("{byte:02X}")).collect::<Vec<_>>().join(between);
        let redacted = scanner.redact(format!("so {digits} is it").as_bytes());
        assert_eq!(String::from_utf8_lossy(&redacted.clean), "so [redacted:secret/PIN] is it");
    }
}

#[test]
fn values_that_a_line_break_cuts_are_found_and_neighbours_are_not_taken() {
    let secret = expand("sk-ant-api03-{b64url:93}AA", 5).unwrap();
    for width in [12, 20, 40, 60, 79] {
        let wrapped = secret.chunks(width).collect::<Vec<_>>().join(&b"\r\n"[..]);
        let redacted =
            Scanner::built_in().redact(&[b"key: ".as_slice(), &wrapped, b"\r\nnext line\n"].concat());
        let left = String::from_utf8_lossy(&redacted.clean).into_owned();
        assert!(left.ends_with("]\r\nnext line\n"), "{width}: {left}");
        assert!(left.starts_with("key: [redacted:"), "{width}: {left}");
    }
    let list = [
        token(5),
        expand("sk-ant-api03-{b64url:93}AA", 6).unwrap(),
        expand("sk-{alnum:48}", 7).unwrap(),
        token(8),
    ];
    assert_eq!(Scanner::built_in().scan(&list.join(&b'\n')).len(), list.len(), "one per line");
    let input = [token(3), b"\nordinary words\n".to_vec(), token(4), b"\nsrc/main.rs\n".to_vec()].concat();
    let left = String::from_utf8(Scanner::built_in().redact(&input).clean).unwrap();
    assert_eq!(left, "[redacted:github-token]\nordinary words\n[redacted:github-token]\nsrc/main.rs\n");
}

#[test]
fn findings_carry_no_secret() {
    let secret = token(9);
    let finding = &Scanner::built_in().scan(&secret)[0];
    let shown = format!("{finding:?}");
    assert!(!shown.contains(std::str::from_utf8(&secret[4..12]).unwrap()), "{shown}");
}

#[test]
fn an_invalid_checksum_is_still_found_and_a_valid_one_is_certain() {
    let valid = &Scanner::built_in().scan(&token(1))[0];
    assert_eq!(valid.confidence, Confidence::Checksum);
    let invalid = &Scanner::built_in().scan(&expand("ghp_{alnum:36}", 1).unwrap())[0];
    assert_eq!(invalid.confidence, Confidence::Shape);
    let glued = [b"prefix".as_slice(), &token(2)].concat();
    assert_eq!(Scanner::built_in().scan(&glued).len(), 1, "a right checksum needs no edge");
}

/// A value and how it may be spelled.
fn spellings(value: &str) -> Vec<Vec<u8>> {
    let spelled = |spell: fn(u8) -> String| value.bytes().map(spell).collect::<String>().into_bytes();
    vec![
        value.into(),
        value.bytes().rev().collect(),
        STANDARD.encode(value).into_bytes(),
        spelled(|byte| format!("{byte:02X}")),
        spelled(|byte| format!("%{byte:02x}")),
        spelled(|byte| format!("\\u{byte:04x}")),
        spelled(|byte| format!("{}\x1b[3{}m", byte as char, byte % 8)),
        value.bytes().flat_map(|byte| [byte, 0]).collect(),
    ]
}

fn dripped(scanner: &Scanner, bytes: &[u8], size: usize, pauses: &[PauseLength]) -> (String, Vec<Finding>) {
    let (mut stream, mut output) = (scanner.stream(), ScanOutput::default());
    for chunk in bytes.chunks(size) {
        stream.push(chunk, &mut output);
        pauses.iter().for_each(|pause| stream.settle(*pause, &mut output));
    }
    stream.finish(&mut output);
    (String::from_utf8_lossy(&output.clean).into_owned(), output.findings)
}

/// However long the pauses are: what is left to be seen of a registered secret is less than half of it, and nobody waits for
/// what is there.
#[test]
fn too_long_a_pause_gives_a_mark_for_what_has_begun_and_swallows_the_rest() {
    let value = "Zq8-hunter2/stapleX91";
    let scanner = Scanner::builder().secret("KEY", value.as_bytes()).unwrap().build();
    for spelling in spellings(value) {
        for size in [1, 2, 3, 5, 7] {
            let text = [b"so: ".as_slice(), &spelling, b" and on\n"].concat();
            let (clean, findings) =
                dripped(&scanner, &text, size, &[PauseLength::Short, PauseLength::TooLong]);
            let (seen, rest) = clean.split_once("[redacted:secret/KEY]").unwrap_or_default();
            assert!(seen.len() - 4 < spelling.len() / 2, "{size}: {clean:?}");
            assert!(rest.ends_with(" and on\n") && rest.len() < 16, "{size}: {clean:?}");
            assert_eq!(findings.len(), 1, "{size}: {clean:?}");
        }
    }
}

#[test]
fn after_too_long_a_pause_nothing_is_held_back() {
    let value = "Zq8-hunter2/stapleX91";
    let scanner = Scanner::builder().secret("KEY", value.as_bytes()).unwrap().build();
    let begin = concat!("-----BEGIN RSA PRIV", "ATE KEY-----");
    for (text, given) in [
        ("Continue? [y/N] ".to_owned(), "Continue? [y/N] ".to_owned()),
        ("api_key=".to_owned(), "api_key=".to_owned()),
        ("Name: Zq8-hun".to_owned(), "Name: Zq8-hun".to_owned()),
        ("Name: Zq8-hunt".to_owned(), "Name: [redacted:secret/KEY]".to_owned()),
        (begin.to_owned(), begin.to_owned()),
        (format!("{begin}\nMIIEpAIBAAKCAQEA1c7"), "[redacted:private-key]".to_owned()),
    ] {
        let (mut stream, mut output) = (scanner.stream(), ScanOutput::default());
        stream.push(text.as_bytes(), &mut output);
        stream.settle(PauseLength::Short, &mut output);
        stream.settle(PauseLength::TooLong, &mut output);
        assert_eq!(String::from_utf8_lossy(&output.clean), given);
        stream.push(b"? no", &mut output);
        stream.settle(PauseLength::TooLong, &mut output);
        assert_eq!(String::from_utf8_lossy(&output.clean), format!("{given}? no"));
    }
}

#[test]
fn a_private_key_in_drops_is_one_finding_and_what_follows_is_seen() {
    let kind = concat!("RSA PRIV", "ATE KEY");
    for lines in [4, 50, 300] {
        let body = expand(&"{b64:64}\n".repeat(50), 1).unwrap();
        let body: Vec<u8> = body.iter().cycle().take(65 * lines).copied().collect();
        let text = [
            format!("-----BEGIN {kind}-----\n").into_bytes(),
            body.clone(),
            format!("-----END {kind}-----\nContinue? ").into_bytes(),
        ]
        .concat();
        for size in [40, 65, 1000] {
            let scanner = Scanner::built_in();
            let (clean, findings) =
                dripped(scanner, &text, size, &[PauseLength::Short, PauseLength::TooLong]);
            let left = clean.split('\n').filter(|line| line.len() > 16 && !line.contains("BEGIN"));
            assert_eq!(left.collect::<Vec<_>>(), ["[redacted:private-key]"], "{lines} {size}: {clean:?}");
            assert!(clean.ends_with("\nContinue? "), "{clean:?}");
            assert_eq!(findings.len(), 1, "{lines} {size}");
        }
    }
}

/// What would stop the stream is held back until it is whole.
#[test]
fn a_beginning_stops_nothing() {
    let scanner = Scanner::builder().secret("KEY", b"Zq8-hunter2/stapleX91").unwrap().build();
    let (mut stream, mut output) = (scanner.stream(), ScanOutput::judged_by(|_| FindingAction::Stop));
    for part in ["Name: Zq8-hun", "ter2/sta"] {
        stream.push(part.as_bytes(), &mut output);
        stream.settle(PauseLength::TooLong, &mut output);
    }
    assert!(!output.is_stopped() && output.findings.is_empty());
    assert_eq!(String::from_utf8_lossy(&output.clean), "Name: Zq8-hun");
    stream.push(b"pleX91 and", &mut output);
    stream.settle(PauseLength::TooLong, &mut output);
    assert!(output.is_stopped());
    assert_eq!(String::from_utf8_lossy(&output.clean), "Name: Zq8-hun[redacted:secret/KEY]");
}

/// Where nobody waits: more than three letters of a registered secret are not seen.
#[test]
fn a_registered_secret_is_held_across_long_pauses_in_any_spelling() {
    let value = "Zq8-hunter2/stapleX91";
    let scanner = Scanner::builder().secret("KEY", value.as_bytes()).unwrap().build();
    for spelling in spellings(value) {
        for size in [1, 2, 3, 5, 7] {
            let input = [b"so: ".as_slice(), &spelling, b" and on\n"].concat();
            let (text, _) = dripped(&scanner, &input, size, &[PauseLength::Short, PauseLength::Long]);
            assert!(text.contains("[redacted:secret/KEY]") && text.ends_with(" and on\n"), "{text:?}");
            assert!(text.len() < 4 + 32 + 21 + 8, "{size}: {text:?}");
        }
    }
}
