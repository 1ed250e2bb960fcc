//! ArcSight Common Event Format, one line per record.

use ringfence_types::{Call, Principal};

use super::{ExportOutcome, ExportSeverity, answer, principal, rule, severity, went_well};
use crate::describe::{of_call, summary};
use crate::event::Event;
use crate::record::{Record, RecordOrPruned};

/// The record as one line of CEF.
pub fn cef(listed: &RecordOrPruned) -> String {
    match listed {
        RecordOrPruned::Whole(record) => of_record(record),
        RecordOrPruned::Pruned(pruned) => {
            let fields = [
                ("rt", millis(&pruned.time)),
                ("externalId", pruned.seq.to_string()),
                ("cs4Label", "hash".to_owned()),
                ("cs4", pruned.hash.clone()),
                ("reason", "pruned".to_owned()),
            ];
            line(&pruned.kind, 0, &fields)
        }
    }
}

fn of_record(record: &Record) -> String {
    let event = &record.event;
    let mut fields = vec![("rt", millis(&record.time)), ("externalId", record.seq.to_string())];
    match answer(event) {
        ExportOutcome::Allowed => fields.push(("act", "allow".to_owned())),
        ExportOutcome::Denied => fields.push(("act", "deny".to_owned())),
        ExportOutcome::None => {}
    }
    if let Some(well) = went_well(event) {
        fields.push(("outcome", if well { "success" } else { "failure" }.to_owned()));
    }
    if let Some(Principal::Operator { uid, name, .. }) = principal(event) {
        fields.push(("suid", uid.to_string()));
        fields.extend(name.clone().map(|name| ("suser", name)));
    }
    if let Some(Principal::Account { name, .. }) = principal(event) {
        fields.push(("suser", name.clone()));
    }
    let labelled = [
        ("cs1Label", "cs1", "rule", rule(event).map(str::to_owned)),
        ("cs2Label", "cs2", "transaction", event.transaction().map(ToString::to_string)),
        ("cs3Label", "cs3", "session", event.session().map(ToString::to_string)),
        ("cs4Label", "cs4", "hash", Some(record.hash.clone())),
    ];
    for (label, key, name, value) in labelled {
        if let Some(value) = value {
            fields.extend([(label, name.to_owned()), (key, value)]);
        }
    }
    match call(event) {
        Some(Call::File(file)) => fields.push(("filePath", file.path().display())),
        Some(Call::Flow(flow)) => {
            fields.push(("dhost", flow.host.clone()));
            fields.push(("dpt", flow.port.to_string()));
            fields.extend(flow.address.map(|address| ("dst", address.to_string())));
            fields.extend(flow.request.as_ref().map(|request| ("request", request.url.clone())));
        }
        Some(Call::Fetch(fetch)) => fields.push(("request", fetch.url.clone())),
        Some(call) => fields.push(("sproc", of_call(call))),
        None => {}
    }
    fields.push(("msg", summary(event)));
    line(event.kind().word(), number(severity(event)), &fields)
}

fn call(event: &Event) -> Option<&Call> {
    match event {
        Event::CallIntended { call, .. } => Some(call),
        Event::ApprovalRequested(request) => Some(&request.call),
        Event::CallRefused { call, .. } => call.as_ref(),
        _ => None,
    }
}

fn line(kind: &str, severity: u8, fields: &[(&str, String)]) -> String {
    let fields: Vec<String> =
        fields.iter().map(|(key, value)| format!("{key}={}", in_field(value))).collect();
    let version = env!("CARGO_PKG_VERSION");
    format!(
        "CEF:0|Ringfence|ringfence|{version}|{}|{}|{severity}|{}",
        in_header(kind),
        in_header(&kind.replace('-', " ")),
        fields.join(" ")
    )
}

fn number(severity: ExportSeverity) -> u8 {
    match severity {
        ExportSeverity::Informational => 1,
        ExportSeverity::Low => 3,
        ExportSeverity::Medium => 5,
        ExportSeverity::High => 8,
        ExportSeverity::Critical => 10,
    }
}

fn in_header(text: &str) -> String {
    text.replace('\\', "\\\\").replace('|', "\\|").replace(['\r', '\n'], " ")
}

fn in_field(text: &str) -> String {
    text.replace('\\', "\\\\").replace('=', "\\=").replace('\r', "\\r").replace('\n', "\\n")
}

fn millis(time: &str) -> String {
    time.parse::<jiff::Timestamp>().map(|time| time.as_millisecond().to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_separates_is_escaped() {
        assert_eq!(in_header("a|b\\c\nd"), "a\\|b\\\\c d");
        assert_eq!(in_field("a=b\\c\nd|e\r"), "a\\=b\\\\c\\nd|e\\r");
        let made = line("x|y", 3, &[("msg", "act=deny cs1=forged\nCEF:0|evil".to_owned())]);
        assert_eq!(made.lines().count(), 1);
        assert!(made.ends_with("|x\\|y|x\\|y|3|msg=act\\=deny cs1\\=forged\\nCEF:0|evil"), "{made}");
    }
}
