//! Tables between marks in a file of `docs/`. Tests of the crate `policy` include this file too.

use std::path::Path;

pub(crate) fn check(file: &str, tables: &[(&str, String)]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(file);
    let found = std::fs::read_to_string(&path).unwrap();
    let expected = tables.iter().fold(found.clone(), |text, (name, table)| replaced(&text, name, table));
    if found != expected {
        let fresh = std::env::temp_dir().join(format!("ringfence-docs-{file}"));
        std::fs::write(&fresh, expected).unwrap();
        panic!("a table in docs/{file} is out of date; to update it: cp {} docs/{file}", fresh.display());
    }
}

/// `text` with `table` between the marks called `name`.
fn replaced(text: &str, name: &str, table: &str) -> String {
    let (begin, end) = (format!("<!-- begin: {name} -->\n"), format!("<!-- end: {name} -->"));
    let (before, rest) = text.split_once(&begin).unwrap_or_else(|| panic!("no mark {begin}"));
    let (_, after) = rest.split_once(&end).unwrap_or_else(|| panic!("no mark {end}"));
    format!("{before}{begin}{table}{end}{after}")
}
