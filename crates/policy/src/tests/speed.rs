use std::fmt::Write as _;

use super::*;

/// Processor time of this thread: other programs on the machine do not count.
fn spent() -> std::time::Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    std::time::Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

/// A thousand rules of all kinds, each with its examples.
fn thousand() -> String {
    let mut text = "schema = 1\nprofile = \"guarded\"\n".to_owned();
    for at in 0..250 {
        write!(
            text,
            "[[command]]\nallow = \"tool{at} build --release\"\nmatch = \"tool{at} build --release x\"\nnot_match = \"tool{at} test\"\n\
             [[command]]\ndeny = \"tool{at} push --force\"\nmatch = \"tool{at} push -f\"\nnot_match = \"tool{at} push\"\n\
             [[path]]\ndeny = \"dir{at}/**/*.x{at}\"\nmatch = \"dir{at}/a/b.x{at}\"\nnot_match = \"b.y\"\n\
             [[host]]\nallow = \"h{at}.example.com:443\"\nmethods = [\"GET\"]\n"
        )
        .unwrap();
    }
    text
}

#[test]
fn a_thousand_rules_load_soon() {
    let text = thousand();
    let best = (0..5)
        .map(|_| {
            let start = spent();
            let file = operator(&text).unwrap_or_else(|error| panic!("{error}"));
            let loaded = spent() - start;
            let effective = merged(&flags(), &[file]).unwrap();
            assert!(effective.settings.len() > 1000);
            (spent() - start, loaded)
        })
        .min()
        .unwrap();
    println!("1000 rules with examples: loaded in {:?}, with the policy in {:?}", best.1, best.0);
    // The goal is 20 ms; this is for a loaded machine, and without optimisation.
    let most = if cfg!(debug_assertions) { 2000 } else { 60 };
    assert!(best.0.as_millis() < most, "{best:?}");
}
