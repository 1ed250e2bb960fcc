//! Open Cybersecurity Schema Framework, one JSON object per event.

use jiff::Timestamp;
use ringfence_types::{ByteString, Call, ChainId, FileCall, FlowCall, IdentityVerb, Principal};
use serde_json::{Map, Value, json};

use super::{ExportOutcome, ExportSeverity, answer, principal, rule, severity, went_well};
use crate::describe::{of_call, shown, summary};
use crate::event::{Event, RecordedFinding};
use crate::record::{PrunedRecord, Record, RecordOrPruned};

/// The version whose classes are used; `attestation_list` is that of the profile `record_integrity`, which is newer.
const VERSION: &str = "1.8.0";

/// An OCSF class and activity.
struct OcsfClass {
    class: u32,
    name: &'static str,
    activity: u32,
    activity_name: &'static str,
}

const fn place(class: u32, name: &'static str, activity: u32, activity_name: &'static str) -> OcsfClass {
    OcsfClass { class, name, activity, activity_name }
}

/// Converts the records of one chain to OCSF, in order.
#[derive(Debug)]
pub struct OcsfExporter {
    chain: ChainId,
    previous: Option<(u64, String)>,
}

impl OcsfExporter {
    pub fn new(chain: ChainId) -> Self {
        Self { chain, previous: None }
    }

    /// One object, and a second one if the record has findings.
    pub fn events(&mut self, listed: &RecordOrPruned) -> Vec<Value> {
        let events = match listed {
            RecordOrPruned::Whole(record) => self.record(record),
            RecordOrPruned::Pruned(pruned) => vec![self.pruned(pruned)],
        };
        let (seq, hash) = match listed {
            RecordOrPruned::Whole(record) => (record.seq, &record.hash),
            RecordOrPruned::Pruned(pruned) => (pruned.seq, &pruned.hash),
        };
        self.previous = Some((seq, hash.clone()));
        events
    }

    fn record(&self, record: &Record) -> Vec<Value> {
        let event = &record.event;
        let mut object = self.common(&place_of(event), record.seq, &record.time, &record.hash);
        let severity = severity(event);
        object.insert("severity_id".to_owned(), severity_id(severity).into());
        object.insert("severity".to_owned(), format!("{severity:?}").into());
        object.insert("message".to_owned(), summary(event).into());
        if let Some(well) = went_well(event) {
            object.insert("status_id".to_owned(), if well { 1 } else { 2 }.into());
            object.insert("status".to_owned(), if well { "Success" } else { "Failure" }.into());
        }
        add_answer(&mut object, event);
        add_actor(&mut object, event);
        add_target(&mut object, event);
        object.insert("unmapped".to_owned(), serde_json::to_value(event).unwrap_or_default());
        let mut events = vec![Value::Object(object)];
        events.extend(self.findings(record));
        events
    }

    fn findings(&self, record: &Record) -> Option<Value> {
        let findings: &[RecordedFinding] = match &record.event {
            Event::CallIntended { findings, .. }
            | Event::ProposalCreated { findings, .. }
            | Event::SecretsFound { findings, .. } => findings,
            _ => return None,
        };
        let first = findings.first()?;
        let place = place(2006, "Data Security Finding", 1, "Create");
        let mut object = self.common(&place, record.seq, &record.time, &record.hash);
        object.insert("severity_id".to_owned(), severity_id(ExportSeverity::High).into());
        object.insert("severity".to_owned(), "High".into());
        object.insert(
            "finding_info".to_owned(),
            json!({
                "uid": format!("{}:{}:finding", self.chain, record.seq),
                "title": format!("{} in {}", shown(&first.rule), shown(&first.location)),
                "types": findings.iter().map(|finding| shown(&finding.rule)).collect::<Vec<_>>(),
            }),
        );
        object.insert("unmapped".to_owned(), json!({ "findings": findings }));
        Some(Value::Object(object))
    }

    fn pruned(&self, pruned: &PrunedRecord) -> Value {
        let place = place(0, "Base Event", 0, "Unknown");
        let mut object = self.common(&place, pruned.seq, &pruned.time, &pruned.hash);
        object.insert("severity_id".to_owned(), 1.into());
        object.insert("message".to_owned(), format!("{}: pruned", shown(&pruned.kind)).into());
        object.insert("unmapped".to_owned(), serde_json::to_value(pruned).unwrap_or_default());
        Value::Object(object)
    }

    fn common(&self, place: &OcsfClass, seq: u64, time: &str, hash: &str) -> Map<String, Value> {
        let millis = time.parse::<Timestamp>().map_or(0, Timestamp::as_millisecond);
        let fingerprint = |value: &str| json!({ "algorithm": "SHA-256", "algorithm_id": 3, "value": value });
        let uid = |seq: u64| format!("{}:{seq}", self.chain);
        let mut attestation = json!({
            "uid": uid(seq), "chain_uid": self.chain.as_str(), "fingerprint": fingerprint(hash),
        });
        if let Some((before, hash)) = self.previous.as_ref().filter(|(before, _)| *before + 1 == seq) {
            put(
                &mut attestation,
                "prev_event",
                json!({ "uid": uid(*before), "fingerprint": fingerprint(hash) }),
            );
        }
        let object = json!({
            "class_uid": place.class,
            "class_name": place.name,
            "category_uid": place.class / 1000,
            "activity_id": place.activity,
            "activity_name": place.activity_name,
            "type_uid": u64::from(place.class) * 100 + u64::from(place.activity),
            "time": millis,
            "metadata": {
                "version": VERSION,
                "uid": uid(seq),
                "sequence": seq,
                "original_time": time,
                "log_name": "ledger",
                "product": { "name": "Ringfence", "vendor_name": "Ringfence", "version": env!("CARGO_PKG_VERSION") },
                "profiles": ["security_control", "record_integrity"],
            },
            "attestation_list": [attestation],
        });
        match object {
            Value::Object(object) => object,
            _ => Map::new(),
        }
    }
}

const NETWORK: &str = "Network Activity";

fn place_of(event: &Event) -> OcsfClass {
    match event {
        Event::CallIntended { call, .. } => of_call_place(Some(call)),
        Event::CallRefused { call, .. } => of_call_place(call.as_ref()),
        Event::CallSettled { outcome: Some(_), .. } | Event::CallInterrupted { .. } => {
            place(1007, "Process Activity", 2, "Terminate")
        }
        Event::FlowOpened { .. } => place(4001, NETWORK, 1, "Open"),
        Event::FlowEnded { .. } => place(4001, NETWORK, 2, "Close"),
        Event::SandboxStarted { .. } => place(1007, "Process Activity", 99, "Contain"),
        Event::CallSettled { .. }
        | Event::ProposalCreated { .. }
        | Event::ProposalConflicted { .. }
        | Event::ProposalDiscarded { .. } => place(1001, "File System Activity", 99, "Settle"),
        Event::LayerDiscarded { .. } => place(1001, "File System Activity", 99, "Settle"),
        Event::ChangesLanded { .. } => place(1001, "File System Activity", 3, "Update"),
        Event::ApprovalRequested(_) => place(3003, "Authorize Session", 99, "Request"),
        Event::ApprovalNotified { .. } => place(3003, "Authorize Session", 99, "Notify"),
        Event::ApprovalOrphaned { .. } => place(3003, "Authorize Session", 99, "Leave"),
        Event::ApprovalVoted(_) => place(3003, "Authorize Session", 99, "Vote"),
        Event::ApprovalDecided(_) => place(3003, "Authorize Session", 1, "Assign Privileges"),
        Event::GrantCreated(_) => place(3004, "Entity Management", 1, "Create"),
        Event::GrantRevoked { .. } => place(3004, "Entity Management", 4, "Delete"),
        Event::SecretReleased { .. } => place(3003, "Authorize Session", 1, "Assign Privileges"),
        Event::PolicyChanged { .. } => place(3004, "Entity Management", 3, "Update"),
        Event::AuthenticationAttempted { .. } => place(3002, "Authentication", 1, "Logon"),
        Event::IdentityChanged { change, .. } => of_identity_place(change.verb),
        Event::LimitReached { .. }
        | Event::LoopDetected { .. }
        | Event::SecretsFound { .. }
        | Event::ChangesHeld { .. } => place(2004, "Detection Finding", 1, "Create"),
        Event::BatteryFinished { .. } => place(2003, "Compliance Finding", 1, "Create"),
        Event::SessionStarted { .. } => place(6002, "Application Lifecycle", 3, "Start"),
        Event::SessionEnded { .. } => place(6002, "Application Lifecycle", 4, "Stop"),
        Event::ActivityReported { .. } => place(6002, "Application Lifecycle", 99, "Report"),
        Event::LedgerRead { .. } => place(6005, "Datastore Activity", 1, "Read"),
        Event::LedgerPruned { .. } => place(6005, "Datastore Activity", 7, "Delete"),
        Event::ChainStarted { .. } => place(6005, "Datastore Activity", 6, "Create"),
        Event::CheckpointSigned(_)
        | Event::LedgerKeyRotated { .. }
        | Event::ChainWitnessed { .. }
        | Event::ChainWitnessRefused { .. }
        | Event::ChainAcknowledged { .. } => place(6005, "Datastore Activity", 2, "Update"),
    }
}

fn of_identity_place(verb: IdentityVerb) -> OcsfClass {
    const ACCOUNT: &str = "Account Change";
    match verb {
        IdentityVerb::OperatorAdded | IdentityVerb::Minted | IdentityVerb::Attenuated => {
            place(3001, ACCOUNT, 1, "Create")
        }
        IdentityVerb::PasswordSet => place(3001, ACCOUNT, 3, "Password Change"),
        IdentityVerb::OperatorRemoved | IdentityVerb::Revoked => place(3001, ACCOUNT, 6, "Delete"),
        IdentityVerb::PairingAsked => place(3003, "Authorize Session", 99, "Request"),
        IdentityVerb::PairingRefused => place(3003, "Authorize Session", 99, "Refuse"),
        IdentityVerb::PairingApproved => place(3003, "Authorize Session", 1, "Assign Privileges"),
        IdentityVerb::Rotated | IdentityVerb::Refreshed => place(3001, ACCOUNT, 99, "Renew"),
    }
}

fn of_call_place(call: Option<&Call>) -> OcsfClass {
    const FILE: &str = "File System Activity";
    match call {
        Some(Call::Exec(_)) => place(1007, "Process Activity", 1, "Launch"),
        Some(Call::File(FileCall::Read { .. } | FileCall::Send { .. } | FileCall::List { .. })) => {
            place(1001, FILE, 2, "Read")
        }
        Some(Call::File(FileCall::Stat { .. })) => place(1001, FILE, 8, "Get Attributes"),
        Some(Call::File(FileCall::Move { .. })) => place(1001, FILE, 5, "Rename"),
        Some(Call::File(FileCall::Remove { .. })) => place(1001, FILE, 4, "Delete"),
        Some(Call::File(FileCall::Symlink { .. })) => place(1001, FILE, 1, "Create"),
        Some(Call::File(FileCall::Write { .. }) | Call::Apply(_) | Call::Land(_)) => {
            place(1001, FILE, 3, "Update")
        }
        Some(Call::Flow(_) | Call::Fetch(_)) => place(4001, NETWORK, 1, "Open"),
        Some(Call::Tool(_)) => place(6003, "API Activity", 99, "Call"),
        None => place(3003, "Authorize Session", 99, "Refuse"),
    }
}

fn add_answer(object: &mut Map<String, Value>, event: &Event) {
    let (id, action, disposition) = match answer(event) {
        ExportOutcome::Allowed => (1, "Allowed", "Allowed"),
        ExportOutcome::Denied => (2, "Denied", "Blocked"),
        ExportOutcome::None => return,
    };
    object.insert("action_id".to_owned(), id.into());
    object.insert("action".to_owned(), action.into());
    object.insert("disposition_id".to_owned(), id.into());
    object.insert("disposition".to_owned(), disposition.into());
    if let Some(rule) = rule(event) {
        object.insert("policy".to_owned(), json!({ "name": shown(rule) }));
    }
}

fn add_actor(object: &mut Map<String, Value>, event: &Event) {
    let mut actor = Map::new();
    match principal(event) {
        Some(Principal::Operator { uid, name, .. }) => {
            let name = name.as_deref().map(shown);
            actor.insert("user".to_owned(), json!({ "uid": uid.to_string(), "name": name }));
        }
        Some(Principal::Account { name, credential, .. }) => {
            let user = json!({ "name": shown(name), "credential_uid": shown(credential) });
            actor.insert("user".to_owned(), user);
        }
        Some(Principal::Stranger { source }) => {
            object.insert("src_endpoint".to_owned(), json!({ "name": shown(source) }));
        }
        Some(Principal::Agent { session, name }) => {
            let name = name.as_deref().map(shown);
            object.insert("ai_agent".to_owned(), json!({ "instance_uid": session.as_str(), "name": name }));
        }
        Some(Principal::System) => {
            actor.insert("app_name".to_owned(), "ringfence".into());
        }
        None => {}
    }
    if let Some(session) = event.session() {
        actor.insert("session".to_owned(), json!({ "uid": session.as_str() }));
    }
    if let Some(transaction) = event.transaction() {
        object.insert("transaction_uid".to_owned(), transaction.as_str().into());
    }
    if !actor.is_empty() {
        object.insert("actor".to_owned(), Value::Object(actor));
    }
}

fn add_target(object: &mut Map<String, Value>, event: &Event) {
    let call = match event {
        Event::CallIntended { call, .. } => Some(call),
        Event::ApprovalRequested(request) => Some(&request.call),
        Event::CallRefused { call, .. } => call.as_ref(),
        _ => None,
    };
    match call {
        Some(Call::Exec(exec)) => {
            let program = exec.argv.first().map(ByteString::display).unwrap_or_default();
            let process = json!({
                "cmd_line": call.map(of_call),
                "name": program,
                "working_directory": exec.cwd.display(),
            });
            object.insert("process".to_owned(), process);
        }
        Some(Call::File(file)) => {
            let mut target = json!({ "path": file.path().display(), "type_id": 1 });
            if let FileCall::Write { sha256, .. } = file {
                let hash = json!({ "algorithm": "SHA-256", "algorithm_id": 3, "value": sha256 });
                put(&mut target, "hashes", json!([hash]));
            }
            object.insert("file".to_owned(), target);
        }
        Some(Call::Flow(flow)) => add_endpoint(object, flow),
        Some(Call::Fetch(fetch)) => {
            object.insert("url".to_owned(), json!({ "url_string": shown(&fetch.url) }));
        }
        Some(Call::Tool(tool)) => {
            object.insert("api".to_owned(), json!({ "operation": shown(&tool.name) }));
        }
        Some(Call::Apply(_) | Call::Land(_)) | None => {}
    }
    if let Event::FlowOpened { address, .. } = event {
        object.insert("dst_endpoint".to_owned(), json!({ "ip": address.to_string() }));
    }
    if let Event::FlowEnded { bytes_out, bytes_in, duration_ms, .. } = event {
        object.insert("traffic".to_owned(), json!({ "bytes_out": bytes_out, "bytes_in": bytes_in }));
        object.insert("duration".to_owned(), (*duration_ms).into());
    }
    if let Event::CallSettled { outcome: Some(outcome), .. } = event {
        object.insert("exit_code".to_owned(), outcome.exit.code().into());
        object.insert("duration".to_owned(), outcome.duration_ms.into());
    }
}

fn add_endpoint(object: &mut Map<String, Value>, flow: &FlowCall) {
    let mut endpoint = json!({ "hostname": shown(&flow.host), "port": flow.port });
    if let Some(address) = flow.address {
        put(&mut endpoint, "ip", address.to_string().into());
    }
    object.insert("dst_endpoint".to_owned(), endpoint);
    if let Some(request) = &flow.request {
        object.insert("url".to_owned(), json!({ "url_string": shown(&request.url) }));
    }
}

fn put(object: &mut Value, key: &str, value: Value) {
    if let Value::Object(object) = object {
        object.insert(key.to_owned(), value);
    }
}

fn severity_id(severity: ExportSeverity) -> u8 {
    match severity {
        ExportSeverity::Informational => 1,
        ExportSeverity::Low => 2,
        ExportSeverity::Medium => 3,
        ExportSeverity::High => 4,
        ExportSeverity::Critical => 5,
    }
}
