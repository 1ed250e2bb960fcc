//! Any text is a file of cases or an error inside the text.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringfence_policy::test_cases::parse;

fuzz_target!(|text: &str| {
    match parse(text) {
        Ok(file) => assert!(!file.cases.is_empty()),
        Err(error) => {
            let lines = text.split('\n').count();
            assert!(error.at.line >= 1 && error.at.line as usize <= lines, "{error}");
            assert!(!error.to_string().contains(char::is_control), "{error}");
        }
    }
});
