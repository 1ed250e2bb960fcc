use std::process::ExitCode;

use ringfence_runtime::ledger::{Listed, Reading, Record, incomplete};
use serde_json::Value;

use super::{Form, LedgerError, Place, line, noted, shown};
use crate::commands::run::print_json;
use crate::output::{note, say};

pub(super) fn run(place: &Place, id: &str, form: Form) -> Result<ExitCode, LedgerError> {
    let found = place.reader()?.find(id)?;
    for listed in &found {
        match form {
            Form::Json => print_json(listed),
            Form::Text => long(listed),
        }
    }
    if form == Form::Text {
        let records: Vec<Record> = found.iter().cloned().filter_map(Listed::whole).collect();
        for transaction in incomplete(&records) {
            say!("{transaction} has no end: it is running now, or it was cut off");
        }
    }
    noted::reading(place, Reading::Show, found.len());
    Ok(ExitCode::SUCCESS)
}

fn long(listed: &Listed) {
    say!("{}", line(listed));
    match listed {
        Listed::Whole(record) => match serde_json::to_value(&record.event) {
            Ok(event) => say!("{}hash {}\n", fields(&event, 1), record.hash),
            Err(error) => note!("ringfence: cannot show record {}: {error}", record.seq),
        },
        Listed::Pruned(pruned) => {
            say!("  what it said was pruned; its SHA-256 was {}\nhash {}\n", pruned.digest, pruned.hash);
        }
    }
}

/// JSON in lines that are safe on a terminal: serde escapes control characters, and nothing else that plays tricks.
fn fields(value: &Value, depth: usize) -> String {
    let indent = "  ".repeat(depth);
    match value {
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| match value {
                Value::Object(inner) if !inner.is_empty() => {
                    format!("{indent}{}:\n{}", shown(key), self::fields(value, depth + 1))
                }
                Value::Array(items) if items.iter().any(Value::is_object) => {
                    let items: String = items
                        .iter()
                        .map(|item| format!("{indent}-\n{}", self::fields(item, depth + 1)))
                        .collect();
                    format!("{indent}{}:\n{items}", shown(key))
                }
                value => format!("{indent}{}: {}\n", shown(key), shown(&value.to_string())),
            })
            .collect(),
        value => format!("{indent}{}\n", shown(&value.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_plays_tricks_is_visible() {
        let value =
            serde_json::json!({ "a": "x\u{202e}y\u{1b}[31m", "b": { "c": [1, 2] }, "d": [{ "e": "f" }] });
        let text = fields(&value, 0);
        assert!(!text.contains('\u{202e}') && !text.contains('\u{1b}'), "{text}");
        assert!(text.contains("b:\n  c: [1,2]\n") && text.contains("e: \"f\""), "{text}");
    }
}
