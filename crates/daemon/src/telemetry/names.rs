//! Every name under which something leaves, in one place.
//!
//! Those of `gen_ai` follow the semantic conventions of OpenTelemetry for generative AI, which are at *Development* there and may
//! change: [`SCHEMA`] says which edition is meant. `docs/telemetry.md` is made from this file.

/// The edition of the semantic conventions.
pub(super) const SCHEMA: &str = "https://opentelemetry.io/schemas/1.38.0";
/// Who made the spans and records.
pub(super) const SCOPE: &str = "ringfence.daemon";
pub(super) const SERVICE: &str = "ringfence";
/// Of what is executed for an agent.
pub(super) const EXECUTE_TOOL: &str = "execute_tool";

/// What something is said of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum On {
    /// The daemon: with everything.
    Resource,
    /// A request to a method.
    Request,
    /// A call.
    Tool,
    /// A state of a call.
    Stage,
    /// An event of the ledger.
    Log,
}

impl On {
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

/// The name of something that is said. There are no others: only these make an attribute.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attribute {
    pub(super) key: &'static str,
    #[cfg_attr(not(test), expect(dead_code, reason = "for the documentation"))]
    pub(super) on: &'static [On],
    #[cfg_attr(not(test), expect(dead_code, reason = "for the documentation"))]
    pub(super) meaning: &'static str,
}

macro_rules! attributes {
    ($($name:ident $key:literal [$($on:ident),+] $meaning:literal;)+) => {
        $(pub(super) const $name: Attribute = Attribute { key: $key, on: &[$(On::$on),+], meaning: $meaning };)+

        #[cfg(test)]
        pub(super) const ALL: &[Attribute] = &[$($name),+];
    };
}

attributes! {
    SERVICE_NAME "service.name" [Resource] "`ringfence`, unless `resource` says otherwise";
    SERVICE_VERSION "service.version" [Resource] "of Ringfence";
    SERVICE_INSTANCE "service.instance.id" [Resource] "random, another with each start";
    METHOD "rpc.method" [Request] "the method, as in `GET /v1/openapi.json`";
    OPERATION "gen_ai.operation.name" [Tool] "`execute_tool`";
    TOOL "gen_ai.tool.name" [Tool, Log] "`exec`, `read_file`, `write_file`, `fetch` …";
    CALL_ID "gen_ai.tool.call.id" [Tool, Log] "the transaction; of a call that began none, the session and its number";
    SESSION "session.id" [Request, Tool, Log] "the session";
    CALL "ringfence.call.number" [Tool] "the number of the call in its session";
    STAGE "ringfence.stage" [Stage] "`authenticate`, `decide`, `ask`, `admit`, `run` or `settle`";
    DECISION "ringfence.decision" [Tool, Log] "`allow`, `ask` or `deny`: what policy said; of a question that was answered, the answer";
    RULE "ringfence.rule" [Request, Tool, Log] "the rule that decided; of a call, the one that refused it";
    LAYER "ringfence.layer" [Tool, Log] "whose rule it is";
    REFUSAL "ringfence.refusal.code" [Tool, Log] "why the answer was no";
    ERROR "error.type" [Request, Tool] "the code of the error; of a call `refused` or `failed`; `cancelled` where whoever asked went away";
    EXIT "process.exit.code" [Tool, Log] "of a command";
    LEAKS "ringfence.leaks" [Tool] "how many secrets were on their way out";
    KIND "ringfence.event.kind" [Log] "the kind of the event";
    SEQUENCE "ringfence.event.sequence" [Log] "its number in the ledger";
    HASH "ringfence.event.hash" [Log] "its hash in the chain: `ringfence ledger show` has the same";
    PROFILE "ringfence.profile" [Log] "of a session";
    WORKSPACE "ringfence.workspace.id" [Log] "of a session; its path is content";
}

/// Of a record of an event.
pub(super) fn event(kind: &str) -> String {
    format!("ringfence.{kind}")
}
