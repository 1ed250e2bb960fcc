//! The checklists of `docs/lessons.md`: every id has one row, and each row shows a test or says why there is none.

use std::collections::BTreeMap;

use crate::requirements::Names;

pub(crate) const PAGE: &str = "docs/lessons.md";
/// Lists that others wrote, with the first and the last number that has a row here.
const NUMBERED: &[(&str, u32, u32)] = &[("B-A", 1, 27), ("D", 1, 12), ("C-", 28, 38)];
/// One entry of a list that is several attacks.
const LETTERED: &[(&str, &str)] = &[("B-14", "abcdef")];
/// How a row without a test begins its last cell; a reason follows.
const WITHOUT_TEST: &[&str] = &["does not apply: ", "not tried: "];

pub(crate) fn violations(page: &str, names: &Names) -> Vec<String> {
    let rows: Vec<(&str, &str)> = page.lines().filter_map(row).collect();
    let mut seen: BTreeMap<&str, u32> = BTreeMap::new();
    for (id, _) in &rows {
        *seen.entry(id).or_default() += 1;
    }
    let wanted = wanted();
    let count = |id: &String| seen.get(id.as_str()).copied().unwrap_or_default();
    let miscounted = wanted.iter().filter(|id| count(id) != 1).map(|id| format!("{id}: {} rows", count(id)));
    let listed = rows.iter().filter(|(id, _)| wanted.iter().any(|wanted| wanted == id));
    let unshown = listed.filter_map(|(id, shown)| Some(format!("{id}: {}", flaw(shown, names)?)));
    miscounted.chain(unshown).collect()
}

fn wanted() -> Vec<String> {
    let numbered = NUMBERED
        .iter()
        .flat_map(|(list, first, last)| (*first..=*last).map(move |number| format!("{list}{number}")));
    let lettered = LETTERED
        .iter()
        .flat_map(|(entry, letters)| letters.chars().map(move |letter| format!("{entry}{letter}")));
    numbered.chain(lettered).collect()
}

/// `| id | flaw | in Ringfence | test |`
fn row(line: &str) -> Option<(&str, &str)> {
    let inner = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    let (id, rest) = inner.split_once('|')?;
    let (_, shown) = rest.rsplit_once('|')?;
    Some((id.trim(), shown.trim()))
}

/// What is in parentheses behind the tests is a remark: what they leave open.
fn flaw(shown: &str, names: &Names) -> Option<String> {
    if WITHOUT_TEST.iter().any(|words| shown.strip_prefix(words).is_some_and(|reason| !reason.is_empty())) {
        return None;
    }
    let tests = shown.split(" (").next().unwrap_or(shown);
    let cited: Vec<&str> = tests.split('`').skip(1).step_by(2).collect();
    if cited.is_empty() {
        return Some(format!("neither a test nor a reason ({WITHOUT_TEST:?})"));
    }
    cited.iter().find(|name| !names.contains(name)).map(|name| format!("no test `{name}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        let mut names = Names::default();
        names.add("#[test] fn it_is_refused() {} const A: &str = \"S3-x32\";");
        names
    }

    fn page(last: &str) -> String {
        wanted().iter().map(|id| format!("| {id} | flaw | answer | {last} |\n")).collect()
    }

    fn found(last: &str) -> usize {
        violations(&page(last), &names()).len()
    }

    #[test]
    fn a_row_has_a_test_or_a_reason() {
        let all = wanted().len();
        assert_eq!(found("`it_is_refused`, `S3` (not tried: `elsewhere`)"), 0);
        assert_eq!(found("does not apply: there is none"), 0);
        assert_eq!(found("not tried: it takes `another` machine"), 0);
        for bad in ["", "no test of its own", "not tried: ", "`it_was_refused`", "`it_is_refused`, `gone`"] {
            assert_eq!(found(bad), all, "{bad}");
        }
    }

    #[test]
    fn every_id_has_one_row() {
        let page = page("`S3`");
        let (first, rest) = page.split_once('\n').unwrap();
        assert_eq!(violations(rest, &names()), ["B-A1: 0 rows"]);
        assert_eq!(violations(&format!("{page}{first}\n"), &names()), ["B-A1: 2 rows"]);
        assert_eq!(violations(&format!("{page}| what | else | | there |\n"), &names()), Vec::<String>::new());
    }
}
