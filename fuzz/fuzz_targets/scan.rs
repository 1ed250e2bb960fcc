//! Any chunking gives what the whole gives, with threads or without; what is not found is kept; after a pause that was too long
//! nothing is held back; a registered secret does not come out.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use ringfence_scan::{PauseLength, ScanOutput, Scanner};

const STORED: &[u8] = b"Zq8-hunter2/stapleX91";

static SCANNER: LazyLock<Scanner> =
    LazyLock::new(|| Scanner::builder().secret("KEY", STORED).expect("it is long enough").build());

fuzz_target!(|input: (u8, u8, &[u8])| {
    let (size, repeats, bytes) = input;
    let size = usize::from(size) + 1;
    // So that windows end in the middle of things.
    let long = bytes.repeat(1 + usize::from(repeats) * 16);
    whole(bytes, size);
    if repeats % 16 == 0 {
        whole(&long, size * 300);
    }
    paused(bytes, size);
});

fn whole(bytes: &[u8], size: usize) {
    let whole = SCANNER.redact(bytes);
    assert!(whole.findings.iter().all(|finding| finding.start < finding.end && finding.end <= bytes.len()));
    assert!(whole.findings.windows(2).all(|pair| pair[0].end <= pair[1].start));
    if whole.findings.is_empty() {
        assert_eq!(whole.clean, bytes);
    }
    assert!(!contains(&whole.clean, STORED));
    for mut stream in [SCANNER.stream(), SCANNER.stream().with_threads()] {
        let mut output = ScanOutput::default();
        for chunk in bytes.chunks(size) {
            stream.push(chunk, &mut output);
        }
        stream.finish(&mut output);
        assert_eq!(output.clean, whole.clean);
        assert_eq!(output.findings, whole.findings);
    }
}

fn paused(bytes: &[u8], size: usize) {
    for pause in [PauseLength::Short, PauseLength::Long, PauseLength::TooLong] {
        let (mut stream, mut output) = (SCANNER.stream(), ScanOutput::default());
        for chunk in bytes.chunks(size) {
            stream.push(chunk, &mut output);
            stream.settle(pause, &mut output);
            if pause == PauseLength::TooLong && output.findings.is_empty() {
                let given = output.clean.len();
                assert_eq!(output.clean, bytes[..given]);
                assert_eq!(stream.decided(), given);
            }
        }
        stream.finish(&mut output);
        assert!(!contains(&output.clean, STORED));
        if output.findings.is_empty() {
            assert_eq!(output.clean, bytes);
        }
    }
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}
