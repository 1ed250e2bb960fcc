use std::process::ExitCode;

use ringfence_ledger::{LedgerReadKind, Record, RecordOrPruned, incomplete};
use serde_json::Value;

use super::{LedgerCommandError, LedgerSource, OutputFormat, audit_read, line, shown};
use crate::commands::run::print_json;
use crate::output::{note, say};

pub(super) fn run(
    place: &LedgerSource,
    id: &str,
    form: OutputFormat,
) -> Result<ExitCode, LedgerCommandError> {
    let found = place.reader()?.find(id)?;
    for listed in &found {
        match form {
            OutputFormat::Json => print_json(listed),
            OutputFormat::Text => long(listed),
        }
    }
    if form == OutputFormat::Text {
        let records: Vec<Record> = found.iter().cloned().filter_map(RecordOrPruned::whole).collect();
        for transaction in incomplete(&records) {
            say!("{transaction} has no end: it is running now, or it was cut off");
        }
    }
    audit_read::reading(place, LedgerReadKind::Show, found.len());
    Ok(ExitCode::SUCCESS)
}

fn long(listed: &RecordOrPruned) {
    say!("{}", line(listed));
    match listed {
        RecordOrPruned::Whole(record) => match serde_json::to_value(&record.event) {
            Ok(event) => say!("{}hash {}\n", fields(&event, 1), record.hash),
            Err(error) => note!("ringfence: cannot show record {}: {error}", record.seq),
        },
        RecordOrPruned::Pruned(pruned) => {
            say!("  what it said was pruned; its SHA-256 was {}\nhash {}\n", pruned.digest, pruned.hash);
        }
    }
}

/// JSON in lines that are safe on a terminal: serde escapes only control characters.
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
