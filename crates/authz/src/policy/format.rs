//! The format of a policy file, key by key. The comments here are the reference: `docs/policy.md` and
//! `schema/policy.schema.json` are made from them.

use ringfence_types::units::{Cpus, Duration, Size};
use ringfence_types::{
    Access, ApprovalMode, Backend, CommandMode, Control, ImageName, LeakAction, NetMode, OciRuntime, Profile,
    UnknownHosts,
};
use toml::de::DeValue;

use super::problem::Problems;
use super::read::{
    Fields, FlowCount, Head, Many, Memory, Named, OpenFiles, People, Pool, Processes, Read, Scalar, Table,
    Value, Version, Waiting, Wrong, check_text, empty_list, kind_of, unknown, word,
};
use super::text::{At, Span};
use super::words::split;

/// A struct with optional fields whose keys, reading, schema and documentation cannot drift apart.
macro_rules! table {
    ($(#[$doc:meta])* $name:ident $(: $part:ident: $base:ty;)? { $($(#[$field_doc:meta])* $key:literal $field:ident: $type:ty,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        #[cfg_attr(test, derive(schemars::JsonSchema), schemars(deny_unknown_fields))]
        pub(super) struct $name {
            #[cfg_attr(test, schemars(skip))]
            pub(super) head: Head,
            $(#[cfg_attr(test, schemars(flatten))] pub(super) $part: $base,)?
            $(
                $(#[$field_doc])*
                #[cfg_attr(test, schemars(rename = $key, skip_serializing_if = "Option::is_none"))]
                pub(super) $field: Option<$type>,
            )+
        }

        impl Table for $name {
            fn keys() -> Vec<&'static str> {
                [vec![$($key),+] $(, <$base as Table>::keys())?].concat()
            }

            fn take(fields: &mut Fields<'_, '_, '_>) -> Self {
                // In the order of the text: the head knows what became of the rest.
                Self { $($part: <$base as Table>::take(fields),)? $($field: fields.take($key),)+ head: fields.head() }
            }
        }
    };
}

table! {
    /// What may happen to the work of an agent. One file is one layer.
    Top: body: Body; {
        /// The version of this format.
        "schema" schema: At<Version>,
        /// Other files that this one builds on, relative to it. Their rules come after its own; their values count where
        /// it has none.
        "extends" extends: Many<String>,
        /// The profile to start with where no `--profile` says otherwise.
        "profile" profile: At<Profile>,
        /// Nothing starts below this profile, whatever a flag says.
        "minimum_profile" minimum_profile: At<Profile>,
        /// What holds for one agent only, by its name. It can only narrow.
        "agents" agents: Named<Body>,
        /// What holds for one workspace only, by its absolute path (`~/` is the home). Operator files only.
        "workspaces" workspaces: Named<WorkspaceTable>,
        /// How questions are asked and answered. Operator files only.
        "approvals" approvals: ApprovalsTable,
        /// How `ringfence serve` is reached besides its socket. Operator files only.
        "daemon" daemon: DaemonTable,
        /// Where `ringfence serve` sends traces and logs. Without this it sends nothing. Operator files only.
        "telemetry" telemetry: TelemetryTable,
    }
}

table! {
    /// How `ringfence serve` is reached besides its socket.
    DaemonTable {
        /// Address and port for HTTP. Without this nothing listens. Anything but loopback takes `tls`.
        "listen" listen: At<String>,
        /// What the daemon is called besides its address. A request for any other name is turned away.
        "hosts" hosts: Many<String>,
        /// Sites whose pages may talk to it besides its own: `https://HOST[:PORT]`.
        "origins" origins: Many<String>,
        /// `generated`: with a certificate that is made here and kept; `files`: with `certificate` and `key`.
        "tls" tls: At<TlsWord>,
        /// File with the certificate and what leads to its authority (PEM); absolute or below the home (`~/…`).
        "certificate" certificate: At<String>,
        /// File with its private key (PEM), readable by its owner alone.
        "key" key: At<String>,
    }
}

table! {
    /// Where `ringfence serve` sends traces and logs.
    TelemetryTable {
        /// A collector that takes OTLP over HTTP: `https://HOST[:PORT][/PATH]`, `http://` only to this machine itself, or the path of
        /// a socket (`unix:/…`). `/v1/traces` and `/v1/logs` are added to it. Without this nothing is sent.
        "endpoint" endpoint: At<String>,
        /// What is sent; both without this.
        "signals" signals: Many<SignalWord>,
        /// `metadata`: ids, decisions, rules and numbers; `events`: also what the ledger holds of each event, such as arguments and paths.
        /// `metadata` without this.
        "content" content: At<ContentWord>,
        /// How long one attempt to send may take, up to a minute; 10 seconds without this.
        "timeout" timeout: At<Duration>,
        /// So many requests and calls, and so many events, wait to be sent; 2048 without this. What comes on top is dropped, and counted.
        "queue" queue: At<Waiting>,
        /// File with the authorities (PEM) that may vouch for the collector, instead of those of this machine; absolute or below the
        /// home (`~/…`).
        "authority" authority: At<String>,
        /// What is sent along with every request, such as what proves who sends it.
        "headers" headers: Named<HeaderTable>,
        /// What is said of this daemon with everything that is sent: `NAME=VALUE`, such as `deployment.environment.name=production`.
        "resource" resource: Many<String>,
    }
}

table! {
    /// A header whose value is kept elsewhere: one of `secret` and `file`.
    HeaderTable {
        /// The name of a stored secret (`ringfence secret set NAME`).
        "secret" secret: At<String>,
        /// A file with the value, readable by its owner alone; absolute or below the home (`~/…`).
        "file" file: At<String>,
        /// A word before the value, such as `Bearer`.
        "scheme" scheme: At<String>,
    }
}

table! {
    /// How questions are asked and answered.
    ApprovalsTable {
        /// How long every question waits, instead of 30 seconds to 5 minutes by risk. Then the answer is no.
        "timeout" timeout: At<Duration>,
        /// How many different people it takes.
        "quorum" quorum: QuorumTable,
        /// Whether an answer has to say why.
        "reason" reason: At<ReasonWord>,
        /// How long "always here" holds where the answer does not say it; 30 days without this.
        "grant_expiry" grant_expiry: At<Duration>,
        /// How people who are not at the terminal hear of a question.
        "notify" notify: Many<ChannelWord>,
        /// Where `webhook` sends questions.
        "webhook" webhook: WebhookTable,
    }
}

table! {
    /// How many different people it takes.
    QuorumTable {
        /// To say yes; 1 without this.
        "approve" approve: At<People>,
        /// To say no; 1 without this.
        "deny" deny: At<People>,
    }
}

table! {
    /// A web server that is told of every question.
    WebhookTable {
        /// `https://…`; `http://` only to this machine itself (`127.0.0.1`, `[::1]`, `localhost`).
        "url" url: At<String>,
        /// A file with the secret that signs what is sent, readable by its owner alone; absolute or below the home (`~/…`).
        "secret_file" secret_file: At<String>,
    }
}

table! {
    /// What may happen in one workspace.
    WorkspaceTable: body: Body; {
        /// The profile to start with where no `--profile` says otherwise.
        "profile" profile: At<Profile>,
        /// Nothing starts below this profile, whatever a flag says.
        "minimum_profile" minimum_profile: At<Profile>,
        /// Digests (`sha256:…`) of the policy files of the workspace that an operator has read and approved; one over
        /// all where a file names others.
        "approved" approved: Many<Digest>,
    }
}

table! {
    /// What every part of a file can say.
    Body {
        /// Which commands run without a question: whatever stays inside the fence, or only what is listed. Narrows the
        /// profile.
        "commands" commands: At<CommandMode>,
        /// What becomes of a question: a person answers, or the answer is no. Narrows the profile.
        "approval" approval: At<ApprovalMode>,
        /// What the workspace itself gives; with `none` nothing of it is there, and commands start in its home. Narrows the
        /// profile.
        "access" access: At<Access>,
        /// The most network that a call may ask for.
        "net" net: At<NetMode>,
        /// What becomes of a connection to a host that no rule names, for `net = "filtered"`: a person is asked, or the answer is
        /// no. Without this `ask` in the profiles `workspace` and `danger`.
        "unknown_hosts" unknown_hosts: At<UnknownHosts>,
        /// How the sandbox is made; without it the strongest that the machine has.
        "backend" backend: At<Backend>,
        /// For `backend = "container"`.
        "container" container: ContainerTable,
        /// Controls without which nothing runs, whatever else says so.
        "floor" floor: Many<Control>,
        /// UNSAFE: only these controls are required, instead of all. Operator files only.
        "danger_floor" danger_floor: Many<Control>,
        /// The most a session may use.
        "limits" limits: LimitsTable,
        /// What becomes of secrets on their way out.
        "leaks" leaks: LeaksTable,
        /// Directories besides the workspace, or parts of it with less access.
        "root" root: Vec<RootTable>,
        /// Rules about files. In one file the first that speaks about a path decides; of several files the strictest.
        "path" path: Vec<PathTable>,
        /// Rules about commands. Their order means nothing: deny counts before ask, ask before allow.
        "command" command: Vec<CommandTable>,
        /// Rules about an agent's tools.
        "tool" tool: Vec<ToolTable>,
        /// Rules about variables.
        "env" env: Vec<EnvTable>,
        /// Rules about hosts, for `net = "filtered"`.
        "host" host: Vec<HostTable>,
    }
}

table! {
    /// How sessions in containers are made. A later layer can only shorten the lists and the times, and ask for `runsc`.
    ContainerTable {
        /// Images of `ringfence image list` that may be used; the first of them where no `--image` names one. Without this any of
        /// that list, by `--image`.
        "image" image: Many<Image>,
        /// Only images that `ringfence image add --signature` found signed with one of these keys: `sha256:…` as that command shows it.
        "signed_by" signed_by: Many<Digest>,
        /// What the engine starts containers with; without this its own choice. Where it uses another, nothing runs.
        "runtime" runtime: At<OciRuntime>,
        /// The API socket of Podman or Docker, absolute or below the home (`~/…`). Without this the first of the usual places that
        /// has one. Operator files only.
        "engine" engine: At<String>,
        /// Containers that are made before they are needed, by processes that live long enough (`ringfence mcp`). Operator files
        /// only.
        "pool" pool: At<Pool>,
        /// A container that nothing ran in for so long is removed, with its `/tmp`; the next call makes another. Without this `1d`.
        "idle" idle: At<Duration>,
        /// The same for one that is older than this, before the next call. Without this `7d`.
        "age" age: At<Duration>,
    }
}

table! {
    /// The most a session may use. A flag that asks for more is refused; a later layer can only lower it.
    LimitsTable {
        /// Memory of everything that runs together.
        "memory" memory: At<Memory>,
        /// Processes and threads at once.
        "processes" processes: At<Processes>,
        /// Cores.
        "cpus" cpus: At<Cpus>,
        /// Processor time of each process.
        "cpu_time" cpu_time: At<Duration>,
        /// Open files of one process.
        "open_files" open_files: At<OpenFiles>,
        /// The largest file that may be written.
        "file_size" file_size: At<Size>,
        /// The private `/tmp`.
        "tmp_size" tmp_size: At<Size>,
        /// All that the writable roots and the home hold together. Without this as much as there is room.
        "disk" disk: At<Size>,
        /// Time from start to end of a command.
        "timeout" timeout: At<Duration>,
        /// Captured output per stream.
        "output" output: At<Size>,
        /// Flows of the filtered network at once.
        "flows" flows: At<FlowCount>,
        /// New flows in a second.
        "flow_rate" flow_rate: At<FlowCount>,
        /// Bytes that leave through the filtered network, in all.
        "net_up" net_up: At<Size>,
        /// Bytes that come in through it, in all.
        "net_down" net_down: At<Size>,
    }
}

table! {
    /// What becomes of secrets on their way out. A later layer can only make it stricter: `flag`, `redact`, `block`,
    /// `terminate`.
    LeaksTable {
        /// Values that `ringfence secret` keeps, in every form in which they are known.
        "stored" stored: SinksTable,
        /// What only looks like a secret.
        "shapes" shapes: SinksTable,
    }
}

table! {
    /// `flag` lets it pass and writes it down, `redact` takes it out, `block` stops there, `terminate` also ends what caused
    /// it: the command, for a call the session.
    SinksTable {
        /// Arguments, variables, directories and names of files of a call, before it is made; not `redact`. Without this
        /// `block` for stored secrets, `flag` for shapes.
        "arguments" arguments: At<LeakAction>,
        /// What a command prints, and what is read for an agent. Without this `redact`.
        "output" output: At<LeakAction>,
        /// What is written for an agent; not `redact`. Without this `block` for stored secrets, `flag` for shapes.
        "files" files: At<LeakAction>,
    }
}

table! {
    /// A directory. The nearest one around a path decides about it.
    RootTable {
        /// Absolute, below the home (`~/…`), or relative to the workspace.
        "path" path: At<String>,
        /// What it gives. `none` closes a part of another root.
        "access" access: At<Access>,
        /// Why, for people.
        "reason" reason: At<String>,
    }
}

table! {
    /// A rule about files: one of `deny`, `ask` and `allow`.
    PathTable {
        /// Patterns of files that are neither read nor written; they are not visible inside.
        "deny" deny: Many<String>,
        /// Patterns of files that a person is asked about; not visible inside until then.
        "ask" ask: Many<String>,
        /// Patterns of files that are open although a later or a built-in rule closes them.
        "allow" allow: Many<String>,
        /// Patterns of files that this rule does not speak about.
        "except" except: Many<String>,
        /// Whether it is about reading and writing, or about writing alone. For `write`, `deny` takes only what the kernel can
        /// hold before it exists: a path from the root (`./name`, `dir/name`) or everything in a directory (`dir/**`).
        "operation" operation: At<OperationWord>,
        /// Why, for people.
        "reason" reason: At<String>,
        /// Paths that it must speak about; checked when the file is read.
        "match" examples: Many<String>,
        /// Paths that it must not speak about; checked when the file is read.
        "not_match" counterexamples: Many<String>,
    }
}

table! {
    /// A rule about commands: one of `deny`, `ask`, `allow`, `program` and `manifest`.
    ///
    /// A pattern is a program, then subcommands in order, then options that must be there in any order and spelling; more
    /// arguments may follow. It is written as one would type it (`"git push --force"`), literally. A list is several
    /// commands; a list inside it is one command word by word (`[["git", "push"]]`).
    CommandTable {
        /// Commands that do not run.
        "deny" deny: Commands,
        /// Commands that a person is asked about.
        "ask" ask: Commands,
        /// Commands that run without a question.
        "allow" allow: Commands,
        /// The command has these arguments and no others.
        "exact" exact: At<bool>,
        /// Only where the working directory is this one or below it; relative to the workspace.
        "here" here: At<String>,
        /// With `allow`: only where the call sets exactly these variables, each `NAME=value`.
        "variables" variables: Many<String>,
        /// With `allow`: only where standard input is this: `none`, `terminal` (or none), or `sha256:` and the digest.
        "stdin" stdin: At<String>,
        /// A program that runs without a question, with `allowed` and `blocked` as its restrictions.
        "program" program: At<String>,
        /// Its subcommands that may run; every other one is denied. Without it every one that is not blocked may.
        "allowed" allowed: Many<String>,
        /// Its subcommands, with options where they matter (`push --force`), that are denied.
        "blocked" blocked: Many<String>,
        /// What a program says about itself: its saved `__manifest` (version 2), relative to this file. What is not in it is
        /// denied.
        "manifest" manifest: At<String>,
        /// Why, for people.
        "reason" reason: At<String>,
        /// Commands that it must match (of `program` and `manifest`: allow); checked when the file is read.
        "match" examples: Many<String>,
        /// Commands that it must not match (of `program` and `manifest`: not allow); checked when the file is read.
        "not_match" counterexamples: Many<String>,
    }
}

table! {
    /// A rule about tools: one of `deny`, `ask` and `allow`. A tool without a rule is denied.
    ToolTable {
        /// Tools that do not exist for the agent.
        "deny" deny: Many<String>,
        /// Tools that a person is asked about.
        "ask" ask: Many<String>,
        /// Tools that may be used.
        "allow" allow: Many<String>,
        /// Why, for people.
        "reason" reason: At<String>,
    }
}

table! {
    /// A rule about variables: one of `deny`, `allow` and `pass`. A pattern is a name with `*` at its start, its end or both.
    EnvTable {
        /// Variables that no caller sets and that are not inherited.
        "deny" deny: Many<String>,
        /// Variables that a caller may set although they are closed otherwise.
        "allow" allow: Many<String>,
        /// Variables that are inherited from the host.
        "pass" pass: Many<String>,
        /// Why, for people.
        "reason" reason: At<String>,
    }
}

table! {
    /// A rule about hosts: one of `deny`, `ask` and `allow`. A host without a rule is denied.
    HostTable {
        /// Hosts (`HOST[:PORT]`, `*.example.com` for every name below) that are not reached.
        "deny" deny: Many<String>,
        /// Hosts that a person is asked about.
        "ask" ask: Many<String>,
        /// Hosts that are reached without a question.
        "allow" allow: Many<String>,
        /// Only these HTTP methods.
        "methods" methods: Many<String>,
        /// Only what begins with this path.
        "path" path: At<String>,
        /// Only this scheme.
        "scheme" scheme: At<SchemeWord>,
        /// TLS to it is opened by the proxy, so that every request is judged and scanned. Rules with `methods`, `path` or `scheme`
        /// do that anyway; without either the proxy sees the name and the bytes that pass.
        "inspect" inspect: At<bool>,
        /// An inspected connection may become another protocol, such as a WebSocket, that nobody looks into.
        "upgrade" upgrade: At<bool>,
        /// Its name may lead to this machine or its own network, such as a server inside a company. Without this an allowed name is
        /// a host on the internet, whatever its address turns out to be. Not for patterns.
        "local" local: At<bool>,
        /// Why, for people.
        "reason" reason: At<String>,
    }
}

macro_rules! vocabulary {
    ($($(#[$doc:meta])* $name:ident: $article:literal $what:literal { $($variant:ident = $word:literal),+ })+) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum $name { $($variant),+ }

        impl $name {
            const WORDS: &'static [&'static str] = &[$($word),+];
            const ALL: &'static [Self] = &[$(Self::$variant),+];
        }

        word! { $name: $article $what }
    )+ };
}

vocabulary! {
    ReasonWord: "a" "rule about reasons" { Optional = "optional", Required = "required" }
    ChannelWord: "a" "channel" { Desktop = "desktop", Webhook = "webhook" }
    SignalWord: "a" "signal" { Traces = "traces", Logs = "logs" }
    ContentWord: "a" "content" { Metadata = "metadata", Events = "events" }
    TlsWord: "a" "way of TLS" { Off = "off", Generated = "generated", Files = "files" }
    OperationWord: "an" "operation" { All = "all", Write = "write" }
    SchemeWord: "a" "scheme" { Http = "http", Https = "https" }
}

/// `sha256:` and 64 hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Digest(pub(super) String);

impl Scalar for Digest {
    const EXPECTED: &'static str = "a digest such as \"sha256:…\"";

    fn parse(value: &DeValue<'_>) -> Result<Self, Wrong> {
        let text = value.as_str().ok_or(Wrong::Type)?;
        let hex = |digits: &str| digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        match text.strip_prefix("sha256:") {
            Some(digits) if hex(digits) => Ok(Self(text.to_ascii_lowercase())),
            _ => Err(Wrong::Value {
                message: format!("`{}` is not a digest", super::read::shorten(text)),
                fix: "write `sha256:` and the 64 digits that `sha256sum` shows".to_owned(),
            }),
        }
    }

    #[cfg(test)]
    fn schema() -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "pattern": "^sha256:[0-9a-fA-F]{64}$" })
    }
}

/// The name of an image on the operator's list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Image(pub(super) ImageName);

impl Scalar for Image {
    const EXPECTED: &'static str = "the name of an image";

    fn parse(value: &DeValue<'_>) -> Result<Self, Wrong> {
        let text = value.as_str().ok_or(Wrong::Type)?;
        text.parse().map(Self).map_err(|wrong: ringfence_types::NotAnImageName| Wrong::Value {
            message: format!("`{}` is not the name of an image: {wrong}", super::read::shorten(text)),
            fix: "write a name of `ringfence image list`".to_owned(),
        })
    }

    #[cfg(test)]
    fn schema() -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "pattern": ImageName::PATTERN })
    }
}

/// Commands, each as its words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Commands {
    pub(super) items: Vec<At<Vec<String>>>,
    pub(super) span: Span,
}

impl Read for Commands {
    fn read(key: &'static str, value: &Value<'_>, problems: &mut Problems<'_>) -> Option<Self> {
        let span: Span = value.span().into();
        let Some(list) = value.get_ref().as_array() else {
            return command(key, value, problems).map(|item| Self { items: vec![item], span });
        };
        if list.is_empty() {
            empty_list(key, span, problems);
            return None;
        }
        let items: Vec<At<Vec<String>>> =
            list.iter().filter_map(|item| command(key, item, problems)).collect();
        if items.len() < list.len() {
            return None;
        }
        let flat = list.iter().all(|item| item.get_ref().is_str());
        if flat && items.len() > 1 && items.iter().all(|item| item.value.len() == 1) {
            return words_or_commands(items, span, problems);
        }
        Some(Self { items, span })
    }
}

/// `["git", "push", "--force"]` can only be one command, because no program is called `--force`. `["git", "status"]`
/// could be two, and whoever reads it the other way gets a rule that is not theirs.
fn words_or_commands(
    items: Vec<At<Vec<String>>>,
    span: Span,
    problems: &mut Problems<'_>,
) -> Option<Commands> {
    let words: Vec<String> = items.into_iter().flat_map(|item| item.value).collect();
    if words.iter().skip(1).any(|word| word.starts_with('-')) {
        return Some(Commands { items: vec![At { value: words, span }], span });
    }
    let several: Vec<String> = words.iter().map(|word| format!("[\"{word}\"]")).collect();
    let fix = format!("write \"{}\" for one command, [{}] for several", words.join(" "), several.join(", "));
    problems.add(span, "this list could be one command or several", fix);
    None
}

fn command(key: &'static str, value: &Value<'_>, problems: &mut Problems<'_>) -> Option<At<Vec<String>>> {
    let span: Span = value.span().into();
    let words = match value.get_ref() {
        DeValue::String(text) if !check_text(key, text, span, problems) => return None,
        DeValue::String(text) => match split(text) {
            Ok(words) => words,
            Err(error) => {
                problems.add(span, error.to_string(), error.fix());
                return None;
            }
        },
        DeValue::Array(_) => {
            Many::<String>::read(key, value, problems)?.items.into_iter().map(|item| item.value).collect()
        }
        other => {
            let message = format!("`{key}` is a command, not {}", kind_of(other));
            problems.add(span, message, "write it as you would type it, for example \"git push --force\"");
            return None;
        }
    };
    Some(At { value: words, span })
}

#[cfg(test)]
mod schema {
    use std::borrow::Cow;

    use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

    use super::{At, Commands, Many, Named, Scalar};

    impl<T: Scalar> JsonSchema for At<T> {
        fn inline_schema() -> bool {
            true
        }

        fn schema_name() -> Cow<'static, str> {
            T::EXPECTED.into()
        }

        fn json_schema(_generator: &mut SchemaGenerator) -> Schema {
            T::schema()
        }
    }

    impl<T: Scalar> JsonSchema for Many<T> {
        fn inline_schema() -> bool {
            true
        }

        fn schema_name() -> Cow<'static, str> {
            format!("{}, or several", T::EXPECTED).into()
        }

        fn json_schema(_generator: &mut SchemaGenerator) -> Schema {
            json_schema!({ "anyOf": [T::schema(), { "type": "array", "items": T::schema(), "minItems": 1 }] })
        }
    }

    impl<T: JsonSchema> JsonSchema for Named<T> {
        fn inline_schema() -> bool {
            true
        }

        fn schema_name() -> Cow<'static, str> {
            format!("{}, by name", T::schema_name()).into()
        }

        fn json_schema(generator: &mut SchemaGenerator) -> Schema {
            json_schema!({ "type": "object", "additionalProperties": generator.subschema_for::<T>() })
        }
    }

    impl JsonSchema for Commands {
        fn schema_name() -> Cow<'static, str> {
            "Commands".into()
        }

        fn json_schema(_generator: &mut SchemaGenerator) -> Schema {
            let text = json_schema!({ "type": "string", "minLength": 1 });
            let words = json_schema!({ "type": "array", "items": text, "minItems": 1 });
            json_schema!({
                "description": "A command as one would type it, or a list of them; a list inside the list is one command word by word.",
                "anyOf": [text, { "type": "array", "items": { "anyOf": [text, words] }, "minItems": 1 }]
            })
        }
    }
}
