//! Any bytes are a script, with or without gaps; reading it says the same twice.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringfence_shell::parse;

fuzz_target!(|text: &[u8]| {
    let script = parse(text);
    assert_eq!(script, parse(text));
    for gap in &script.gaps {
        assert!(gap.at <= text.len() && !gap.why.is_empty());
    }
});
