use super::*;

#[test]
fn runs_are_all_long_runs_and_only_those() {
    let long = "a".repeat(24);
    let text = format!("{} short {long} {}{long}", "b".repeat(23), "é");
    let found: Vec<Range<usize>> = Runs::new(text.as_bytes()).collect();
    assert_eq!(found.len(), 2);
    assert!(found.iter().all(|run| text.get(run.clone()) == Some(long.as_str())));
}
