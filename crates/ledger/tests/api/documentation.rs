//! `docs/ledger.md` lists every kind of event, and the class of each.

use ringfence_ledger::{Kind, RetentionClass};

const TEXT: &str = include_str!("../../../../docs/ledger.md");

/// The words in backticks of one cell.
fn words(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// The cells of the table with this heading.
fn rows(heading: &str) -> Vec<Vec<&str>> {
    let table = TEXT.lines().skip_while(|line| !line.starts_with(heading)).skip(2);
    let rows = table.take_while(|line| line.starts_with('|'));
    rows.map(|line| line.trim_matches('|').split(" | ").collect()).collect()
}

#[test]
fn every_kind_is_in_the_table_of_events() {
    let listed: Vec<&str> = rows("| kind | written |").iter().flat_map(|row| words(row[0])).collect();
    let missing: Vec<&str> =
        Kind::ALL.iter().map(|kind| kind.word()).filter(|word| !listed.contains(word)).collect();
    assert_eq!(missing, Vec::<&str>::new(), "kinds without a row");
    let unknown: Vec<&&str> = listed.iter().filter(|word| Kind::of_word(word).is_none()).collect();
    assert_eq!(unknown, Vec::<&&str>::new(), "rows without a kind");
}

#[test]
fn every_class_has_the_kinds_that_the_table_of_classes_gives_it() {
    let table = rows("| class | kinds |");
    let patterns = |class: &str| -> Vec<&str> {
        table.iter().filter(|row| row[0].contains(class)).flat_map(|row| words(row[1])).collect()
    };
    let is_listed = |class: &str, kind: &str| {
        patterns(class).iter().any(|pattern| match pattern.strip_suffix('*') {
            Some(start) => kind.starts_with(start),
            None => *pattern == kind,
        })
    };
    for kind in Kind::ALL {
        let class = kind.class();
        let (consent, ledger) = (is_listed("consent", kind.word()), is_listed("ledger", kind.word()));
        let expected = (class == RetentionClass::Consent, class == RetentionClass::Ledger);
        assert_eq!((consent, ledger), expected, "{}", kind.word());
    }
}
