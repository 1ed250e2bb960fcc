//! Any chunking gives what the whole gives; what is not found is kept; what was found is not found again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringfence_scan::{Output, Pause, Scanner};

fuzz_target!(|input: (u8, &[u8])| {
    let (size, bytes) = input;
    let scanner = Scanner::built_in();
    let whole = scanner.redact(bytes);
    assert!(whole.findings.iter().all(|finding| finding.start < finding.end && finding.end <= bytes.len()));
    assert!(whole.findings.windows(2).all(|pair| pair[0].end <= pair[1].start));
    if whole.findings.is_empty() {
        assert_eq!(whole.clean, bytes);
    }
    let (mut stream, mut output) = (scanner.stream(), Output::default());
    for chunk in bytes.chunks(usize::from(size) + 1) {
        stream.push(chunk, &mut output);
    }
    stream.finish(&mut output);
    assert_eq!(output.clean, whole.clean);
    assert_eq!(output.findings, whole.findings);
    let (mut stream, mut output) = (scanner.stream(), Output::default());
    for chunk in bytes.chunks(usize::from(size) + 1) {
        stream.push(chunk, &mut output);
        stream.settle(Pause::Short, &mut output);
    }
    stream.finish(&mut output);
    if whole.findings.is_empty() && output.findings.is_empty() {
        assert_eq!(output.clean, bytes);
    }
});
