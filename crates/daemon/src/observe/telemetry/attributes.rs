//! Every exported attribute name, in one place.
//!
//! The `gen_ai` names follow OpenTelemetry's semantic conventions for generative AI. Their status is *Development* and
//! they may change: [`SCHEMA`] names the version. The table in `docs/telemetry.md` comes from this file.

/// Version of the semantic conventions.
pub(super) const SCHEMA: &str = "https://opentelemetry.io/schemas/1.38.0";
/// Instrumentation scope of spans and records.
pub(super) const SCOPE: &str = "ringfence.daemon";
pub(super) const SERVICE: &str = "ringfence";
/// Operation name of a call.
pub(super) const EXECUTE_TOOL: &str = "execute_tool";

/// What an attribute describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AttributeTarget {
    /// The daemon, in every export.
    Resource,
    /// A request to a method.
    Request,
    Tool,
    /// A stage of a call in the pipeline.
    Stage,
    /// A record of the ledger.
    Log,
}

impl AttributeTarget {
    #[cfg(test)]
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Resource => "everything",
            Self::Request => "request",
            Self::Tool => "call",
            Self::Stage => "stage",
            Self::Log => "event",
        }
    }
}

/// An attribute name. Attributes with fixed names are made from these only.
#[derive(Clone, Copy, Debug)]
pub(super) struct AttributeName {
    pub(super) key: &'static str,
    #[cfg_attr(not(test), expect(dead_code, reason = "for the documentation"))]
    pub(super) on: &'static [AttributeTarget],
    #[cfg_attr(not(test), expect(dead_code, reason = "for the documentation"))]
    pub(super) meaning: &'static str,
}

macro_rules! attributes {
    ($($name:ident $key:literal [$($on:ident),+] $meaning:literal;)+) => {
        $(pub(super) const $name: AttributeName = AttributeName { key: $key, on: &[$(AttributeTarget::$on),+], meaning: $meaning };)+

        #[cfg(test)]
        pub(super) const ALL: &[AttributeName] = &[$($name),+];
    };
}

attributes! {
    SERVICE_NAME "service.name" [Resource] "`ringfence`, unless `resource_attributes` says otherwise";
    SERVICE_VERSION "service.version" [Resource] "of Ringfence";
    SERVICE_INSTANCE "service.instance.id" [Resource] "random, another with each start";
    METHOD "rpc.method" [Request] "the method, as in `GET /v1/openapi.json`";
    OPERATION "gen_ai.operation.name" [Tool] "`execute_tool`";
    TOOL "gen_ai.tool.name" [Tool, Log] "`exec`, `read_file`, `write_file`, `fetch` …";
    CALL_ID "gen_ai.tool.call.id" [Tool, Log] "the transaction; of a call that began none, the session and its number";
    SESSION "session.id" [Request, Tool, Log] "the session";
    CALL "ringfence.call.number" [Tool] "the number of the call in its session";
    STAGE "ringfence.stage" [Stage] "`authenticate`, `decide`, `ask`, `admit`, `run` or `settle`";
    DECISION "ringfence.decision" [Tool, Log] "`allow`, `ask` or `deny`: the decision of the policy; after an approval, its answer";
    RULE "ringfence.rule" [Request, Tool, Log] "the rule that decided; of a call, the one that refused it";
    LAYER "ringfence.layer" [Tool, Log] "whose rule it is";
    REFUSAL "ringfence.refusal.code" [Tool, Log] "why the answer was no";
    ERROR "error.type" [Request, Tool] "the code of the error; of a call `refused` or `failed`; `cancelled` if the client disconnected";
    EXIT "process.exit.code" [Tool, Log] "of a command";
    LEAKS "ringfence.leaks" [Tool] "how many secrets were on their way out";
    KIND "ringfence.event.kind" [Log] "the kind of the event";
    SEQUENCE "ringfence.event.sequence" [Log] "its number in the ledger";
    HASH "ringfence.event.hash" [Log] "its hash in the chain: `ringfence ledger show` has the same";
    PROFILE "ringfence.profile" [Log] "of a session";
    WORKSPACE "ringfence.workspace.id" [Log] "of a session; its path is content";
}

/// Event name of a log record.
pub(super) fn event(kind: &str) -> String {
    format!("ringfence.{kind}")
}
