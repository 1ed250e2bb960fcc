//! The format of a policy file, key by key. The comments here are the reference: `docs/policy.md` and
//! `schema/policy.schema.json` are made from them.

use ringfence_types::units::{ByteSize, CpuCount, HumanDuration};
use ringfence_types::{
    Access, ApprovalMode, Backend, CommandMode, Control, ImageName, LeakAction, NetMode, OciRuntime, Profile,
    UnlistedHosts,
};
use toml::de::DeValue;

use super::command_words::split;
use super::problem::FileProblems;
use super::source_text::{TextSpan, WithSpan};
use super::toml_reader::{
    FlowCount, MemorySize, NamedTables, OneOrMany, OpenFiles, People, Pool, Processes, ReadToml, TomlFields,
    TomlMismatch, TomlScalar, TomlTable, TomlTableHead, TomlValue, Version, Waiting, check_text, empty_list,
    kind_of, unknown, word,
};

/// A struct with optional fields whose keys, reading, schema and documentation cannot drift apart.
macro_rules! table {
    ($(#[$doc:meta])* $name:ident $(: $part:ident: $base:ty;)? { $($(#[$field_doc:meta])* $key:literal $field:ident: $type:ty,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        #[cfg_attr(test, derive(schemars::JsonSchema), schemars(deny_unknown_fields))]
        pub(super) struct $name {
            #[cfg_attr(test, schemars(skip))]
            pub(super) head: TomlTableHead,
            $(#[cfg_attr(test, schemars(flatten))] pub(super) $part: $base,)?
            $(
                $(#[$field_doc])*
                #[cfg_attr(test, schemars(rename = $key, skip_serializing_if = "Option::is_none"))]
                pub(super) $field: Option<$type>,
            )+
        }

        impl TomlTable for $name {
            fn keys() -> Vec<&'static str> {
                [vec![$($key),+] $(, <$base as TomlTable>::keys())?].concat()
            }

            fn take(fields: &mut TomlFields<'_, '_, '_>) -> Self {
                // In the order of the text: the head knows what became of the rest.
                Self { $($part: <$base as TomlTable>::take(fields),)? $($field: fields.take($key),)+ head: fields.head() }
            }
        }
    };
}

table! {
    /// A policy file. One file is one policy layer.
    Top: body: Body; {
        /// The version of this format.
        "schema" schema: WithSpan<Version>,
        /// Other files that this file builds on, relative to it. Their rules come after its own. Their values count
        /// if it has none.
        "extends" extends: OneOrMany<String>,
        /// The default profile, used without `--profile`.
        "profile" profile: WithSpan<Profile>,
        /// No looser profile starts, whatever a flag says.
        "minimum_profile" minimum_profile: WithSpan<Profile>,
        /// Settings of one agent, by its name. They can only narrow.
        "agents" agents: NamedTables<Body>,
        /// Settings of one workspace, by its absolute path (`~/` is the home). Operator files only.
        "workspaces" workspaces: NamedTables<WorkspaceTable>,
        /// How approvals are requested and answered. Operator files only.
        "approvals" approvals: ApprovalsTable,
        /// Listeners of `ringfence serve` besides its Unix socket. Operator files only.
        "daemon" daemon: DaemonTable,
        /// Where `ringfence serve` sends traces and logs. Default: nowhere. Operator files only.
        "telemetry" telemetry: TelemetryTable,
    }
}

table! {
    /// Listeners of `ringfence serve` besides its Unix socket.
    DaemonTable {
        /// Address and port for HTTP. Default: no TCP listener. Addresses other than loopback need `tls`.
        "listen" listen: WithSpan<String>,
        /// Names of the daemon besides its address. Requests for other names are refused.
        "hosts" hosts: OneOrMany<String>,
        /// Sites besides its own whose pages may send requests: `https://HOST[:PORT]`.
        "origins" origins: OneOrMany<String>,
        /// `generated`: a certificate that the daemon creates and keeps. `files`: `certificate` and `key`.
        "tls" tls: WithSpan<TlsWord>,
        /// File with the certificate chain (PEM); absolute or below the home (`~/…`).
        "certificate" certificate: WithSpan<String>,
        /// File with the private key (PEM), readable by its owner only.
        "key" key: WithSpan<String>,
    }
}

table! {
    /// Where `ringfence serve` sends traces and logs.
    TelemetryTable {
        /// A collector for OTLP over HTTP: `https://HOST[:PORT][/PATH]`, `http://` only to this machine, or the path
        /// of a socket (`unix:/…`). `/v1/traces` and `/v1/logs` are appended. Without an endpoint nothing is sent.
        "endpoint" endpoint: WithSpan<String>,
        /// What is sent. Default: both.
        "signals" signals: OneOrMany<SignalWord>,
        /// `metadata` (default): ids, decisions, rules and numbers. `events`: also the contents of each ledger event,
        /// such as arguments and paths.
        "detail" detail: WithSpan<ContentWord>,
        /// Time limit of one attempt to send, up to a minute. Default: 10 seconds.
        "timeout" timeout: WithSpan<HumanDuration>,
        /// Maximum number of requests and calls, and of events, that wait to be sent. Default: 2048. Others are
        /// dropped and counted.
        "queue_size" queue_size: WithSpan<Waiting>,
        /// File with trusted authorities (PEM) for the collector, instead of those of this machine; absolute or below
        /// the home (`~/…`).
        "ca_file" ca_file: WithSpan<String>,
        /// Headers of every request, for example for authentication.
        "headers" headers: NamedTables<HeaderTable>,
        /// Resource attributes of this daemon: `NAME=VALUE`, such as `deployment.environment.name=production`.
        "resource_attributes" resource_attributes: OneOrMany<String>,
    }
}

table! {
    /// A header with a value from `secret` or `file`.
    HeaderTable {
        /// The name of a stored secret (`ringfence secret set NAME`).
        "secret" secret: WithSpan<String>,
        /// A file with the value, readable by its owner only; absolute or below the home (`~/…`).
        "file" file: WithSpan<String>,
        /// A word before the value, such as `Bearer`.
        "prefix" prefix: WithSpan<String>,
    }
}

table! {
    /// How approvals are requested and answered.
    ApprovalsTable {
        /// How long every request waits for an answer, instead of 30 seconds to 5 minutes by risk. Then it is denied.
        "timeout" timeout: WithSpan<HumanDuration>,
        /// How many different people must answer.
        "quorum" quorum: QuorumTable,
        /// Whether an answer needs a reason. Default: `false`.
        "require_reason" require_reason: WithSpan<bool>,
        /// Default lifetime of "always here" grants. Default: 30 days.
        "grant_lifetime" grant_lifetime: WithSpan<HumanDuration>,
        /// How people who are not at the terminal are notified.
        "notify" notify: OneOrMany<ChannelWord>,
        /// Where `webhook` sends requests.
        "webhook" webhook: WebhookTable,
    }
}

table! {
    /// How many different people must answer.
    QuorumTable {
        /// Votes to approve. Default: 1.
        "approve" approve: WithSpan<People>,
        /// Votes to deny. Default: 1.
        "deny" deny: WithSpan<People>,
    }
}

table! {
    /// A web server that gets every approval request.
    WebhookTable {
        /// `https://…`; `http://` only to this machine (`127.0.0.1`, `[::1]`, `localhost`).
        "url" url: WithSpan<String>,
        /// A file with the signing secret, readable by its owner only; absolute or below the home (`~/…`).
        "secret_file" secret_file: WithSpan<String>,
    }
}

table! {
    /// Settings of one workspace.
    WorkspaceTable: body: Body; {
        /// The default profile, used without `--profile`.
        "profile" profile: WithSpan<Profile>,
        /// No looser profile starts, whatever a flag says.
        "minimum_profile" minimum_profile: WithSpan<Profile>,
        /// Digests (`sha256:…`) of approved policy files of the workspace. A file that names others has one digest
        /// over all of them.
        "approved_digests" approved_digests: OneOrMany<DigestKey>,
    }
}

table! {
    /// Settings that every section can have.
    Body {
        /// Which commands run without approval: `contained`: all, inside the fence. `listed`: only listed commands.
        /// Narrows the profile.
        "commands" commands: WithSpan<CommandMode>,
        /// `ask`: a person is asked. `never`: the call is refused instead. Narrows the profile.
        "approval" approval: WithSpan<ApprovalMode>,
        /// Access to the workspace. With `none` it is absent, and commands start in their home. Narrows the profile.
        "workspace_access" workspace_access: WithSpan<Access>,
        /// The widest network mode that a call may request.
        "net" net: WithSpan<NetMode>,
        /// Connections to hosts that no rule names, for `net = "filtered"`: a person is asked, or they are refused.
        /// Default: `ask` in the profiles `workspace` and `danger`, otherwise `deny`.
        "unlisted_hosts" unlisted_hosts: WithSpan<UnlistedHosts>,
        /// The backend. Default: the strongest that the machine supports.
        "backend" backend: WithSpan<Backend>,
        /// Settings for `backend = "container"`.
        "container" container: ContainerTable,
        /// Required controls. Nothing runs without them.
        "required_controls" required_controls: OneOrMany<Control>,
        /// UNSAFE: only these controls are required, instead of all. Operator files only.
        "danger_required_controls" danger_required_controls: OneOrMany<Control>,
        /// Resource limits of a session.
        "limits" limits: LimitsTable,
        /// What happens to secrets that are about to leave.
        "leaks" leaks: LeaksTable,
        /// Directories besides the workspace, or parts of it with less access.
        "root" root: Vec<RootTable>,
        /// Rules about files. In one file the first matching rule decides. Between files the strictest does.
        "path" path: Vec<PathTable>,
        /// Rules about commands, in any order: deny counts before ask, ask before allow.
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
    /// Settings for containers. A later layer can only shorten the lists and the times, and request `runsc`.
    ContainerTable {
        /// Allowed images of `ringfence image list`; the first is the default. Without this, any image of that list,
        /// by `--image`.
        "image" image: OneOrMany<ImageKey>,
        /// Only images signed with one of these keys: `sha256:…`, as `ringfence image add --signature` prints it.
        "trusted_keys" trusted_keys: OneOrMany<DigestKey>,
        /// The OCI runtime. Default: the engine's choice. If the engine uses another, nothing runs.
        "runtime" runtime: WithSpan<OciRuntime>,
        /// The API socket of Podman or Docker, absolute or below the home (`~/…`). Default: the first of the usual
        /// sockets. Operator files only.
        "engine_socket" engine_socket: WithSpan<String>,
        /// Number of containers that long-lived processes (`ringfence mcp`, `ringfence serve`) keep ready. Operator
        /// files only.
        "warm_containers" warm_containers: WithSpan<Pool>,
        /// An idle container is removed after this time, with its `/tmp`. The next call creates another. Default:
        /// `1d`.
        "max_idle" max_idle: WithSpan<HumanDuration>,
        /// A container that is older than this is replaced before the next call. Default: `7d`.
        "max_age" max_age: WithSpan<HumanDuration>,
    }
}

table! {
    /// Resource limits of a session. A flag that asks for more is refused. A later layer can only lower them.
    LimitsTable {
        /// Memory of all processes together.
        "memory" memory: WithSpan<MemorySize>,
        /// Processes and threads at once.
        "processes" processes: WithSpan<Processes>,
        /// CPU cores.
        "cpus" cpus: WithSpan<CpuCount>,
        /// CPU time of each process.
        "cpu_time" cpu_time: WithSpan<HumanDuration>,
        /// Open files of one process.
        "max_open_files" max_open_files: WithSpan<OpenFiles>,
        /// The largest file that may be written.
        "file_size" file_size: WithSpan<ByteSize>,
        /// The private `/tmp`.
        "tmp_size" tmp_size: WithSpan<ByteSize>,
        /// Total size of the writable roots and the home. Default: unlimited.
        "disk" disk: WithSpan<ByteSize>,
        /// Wall-clock time of a command.
        "timeout" timeout: WithSpan<HumanDuration>,
        /// Captured output per stream.
        "max_output" max_output: WithSpan<ByteSize>,
        /// Flows of the filtered network at once.
        "max_flows" max_flows: WithSpan<FlowCount>,
        /// New flows per second.
        "max_flow_rate" max_flow_rate: WithSpan<FlowCount>,
        /// Total bytes sent through the filtered network.
        "max_bytes_out" max_bytes_out: WithSpan<ByteSize>,
        /// Total bytes received through the filtered network.
        "max_bytes_in" max_bytes_in: WithSpan<ByteSize>,
    }
}

table! {
    /// What happens to secrets that are about to leave. A later layer can only make it stricter: `flag`, `redact`,
    /// `block`, `terminate`.
    LeaksTable {
        /// Values stored with `ringfence secret`, in every supported encoding.
        "stored_secrets" stored_secrets: SinksTable,
        /// Text that looks like a secret.
        "patterns" patterns: SinksTable,
    }
}

table! {
    /// `flag` records it, `redact` removes it, `block` refuses the call or ends the stream, `terminate` also ends the
    /// command, for a call the session.
    SinksTable {
        /// Arguments, variables, directories and file names of a call, before it runs; not `redact`. Default: `block`
        /// for stored secrets, `flag` for patterns.
        "arguments" arguments: WithSpan<LeakAction>,
        /// Output of commands, and files that are read for an agent. Default: `redact`.
        "output" output: WithSpan<LeakAction>,
        /// Files that are written for an agent; not `redact`. Default: `block` for stored secrets, `flag` for patterns.
        "files" files: WithSpan<LeakAction>,
    }
}

table! {
    /// A directory. The nearest one around a path decides about it.
    RootTable {
        /// Absolute, below the home (`~/…`), or relative to the workspace.
        "path" path: WithSpan<String>,
        /// Access. `none` closes a part of another root.
        "access" access: WithSpan<Access>,
        /// A reason, shown to people.
        "reason" reason: WithSpan<String>,
    }
}

table! {
    /// A rule about files: one of `deny`, `ask` and `allow`.
    PathTable {
        /// Patterns of files that are neither readable nor writable; they are hidden inside.
        "deny" deny: OneOrMany<String>,
        /// Patterns of files that need an approval; they are hidden inside.
        "ask" ask: OneOrMany<String>,
        /// Patterns of files that are open although a later or a built-in rule would close them.
        "allow" allow: OneOrMany<String>,
        /// Patterns of files that this rule does not cover.
        "except" except: OneOrMany<String>,
        /// Reading and writing, or writing alone. With `write`, `deny` accepts only patterns that the kernel can
        /// enforce for missing files: a path from the root (`./name`, `dir/name`) or everything in a directory
        /// (`dir/**`).
        "operation" operation: WithSpan<OperationWord>,
        /// A reason, shown to people.
        "reason" reason: WithSpan<String>,
        /// Paths that this rule must match; checked when the file is read.
        "match" examples: OneOrMany<String>,
        /// Paths that this rule must not match; checked when the file is read.
        "not_match" counterexamples: OneOrMany<String>,
    }
}

table! {
    /// A rule about commands: one of `deny`, `ask`, `allow`, `program` and `manifest`.
    ///
    /// A pattern is a program, then subcommands in order, then options that must be there in any order and spelling; more
    /// arguments may follow. It is written as one would type it (`"git push --force"`), literally. A list is several
    /// commands; a list inside it is one command word by word (`[["git", "push"]]`).
    CommandTable {
        /// Commands that are refused.
        "deny" deny: CommandList,
        /// Commands that need an approval.
        "ask" ask: CommandList,
        /// Commands that run without approval.
        "allow" allow: CommandList,
        /// The command has these arguments and no others.
        "exact" exact: WithSpan<bool>,
        /// Only if the working directory is this one or below it; relative to the workspace.
        "within" within: WithSpan<String>,
        /// With `allow`: only if the call sets exactly these variables, each `NAME=value`.
        "variables" variables: OneOrMany<String>,
        /// With `allow`: only with this standard input: `none`, `terminal` (or none), or `sha256:` and the digest.
        "stdin" stdin: WithSpan<String>,
        /// With `allow`: only in a session without secrets that has no more than this: `net MODE`, `host HOST`, `read PATH`,
        /// `write PATH`, `workspace ACCESS`, `agent NAME`, `image ID`. An empty list: no network and no other root.
        "with" with: OneOrMany<String>,
        /// A program that runs without approval, restricted by `allow_subcommands` and `deny_subcommands`.
        "program" program: WithSpan<String>,
        /// Subcommands that may run. All others are denied. Without this, all that `deny_subcommands` does not name.
        "allow_subcommands" allow_subcommands: OneOrMany<String>,
        /// Subcommands that are denied, with options where they matter (`push --force`).
        "deny_subcommands" deny_subcommands: OneOrMany<String>,
        /// The saved `__manifest` (version 2) of a program, relative to this file. Commands that it does not name are
        /// denied.
        "manifest" manifest: WithSpan<String>,
        /// A reason, shown to people.
        "reason" reason: WithSpan<String>,
        /// Commands that it must match (of `program` and `manifest`: allow); checked when the file is read.
        "match" examples: OneOrMany<String>,
        /// Commands that it must not match (of `program` and `manifest`: not allow); checked when the file is read.
        "not_match" counterexamples: OneOrMany<String>,
    }
}

table! {
    /// A rule about tools: one of `deny`, `ask` and `allow`. A tool without a rule is denied.
    ToolTable {
        /// Tools that are unavailable.
        "deny" deny: OneOrMany<String>,
        /// Tools that need an approval.
        "ask" ask: OneOrMany<String>,
        /// Tools that may be used.
        "allow" allow: OneOrMany<String>,
        /// A reason, shown to people.
        "reason" reason: WithSpan<String>,
    }
}

table! {
    /// A rule about variables: one of `deny`, `allow` and `inherit`. A pattern is a name with `*` at its start, its end or both.
    EnvTable {
        /// Variables that are not inherited and that no caller may set.
        "deny" deny: OneOrMany<String>,
        /// Variables that a caller may set although they are refused otherwise.
        "allow" allow: OneOrMany<String>,
        /// Variables that are inherited from the host.
        "inherit" inherit: OneOrMany<String>,
        /// A reason, shown to people.
        "reason" reason: WithSpan<String>,
    }
}

table! {
    /// A rule about hosts: one of `deny`, `ask` and `allow`. A host without a rule is denied.
    HostTable {
        /// Refused hosts (`HOST[:PORT]`, `*.example.com` for every name below).
        "deny" deny: OneOrMany<String>,
        /// Hosts that need an approval.
        "ask" ask: OneOrMany<String>,
        /// Hosts that are allowed without approval.
        "allow" allow: OneOrMany<String>,
        /// Only these HTTP methods.
        "methods" methods: OneOrMany<String>,
        /// Only paths below this one.
        "path" path: WithSpan<String>,
        /// Only this scheme.
        "scheme" scheme: WithSpan<SchemeWord>,
        /// The proxy terminates TLS, so every request is evaluated and scanned. Rules with `methods`, `path` or
        /// `scheme` imply this. Otherwise the proxy sees only the name and the number of bytes.
        "inspect" inspect: WithSpan<bool>,
        /// An inspected connection may upgrade to another protocol, such as a WebSocket, whose content is not
        /// inspected.
        "allow_upgrade" allow_upgrade: WithSpan<bool>,
        /// The name may resolve to this machine or a private network, such as a server inside a company. Otherwise an
        /// allowed name must resolve to a public address. Not for patterns.
        "allow_private_addresses" allow_private_addresses: WithSpan<bool>,
        /// A reason, shown to people.
        "reason" reason: WithSpan<String>,
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
    ChannelWord: "a" "channel" { Desktop = "desktop", Webhook = "webhook" }
    SignalWord: "a" "signal" { Traces = "traces", Logs = "logs" }
    ContentWord: "a" "content" { Metadata = "metadata", Events = "events" }
    TlsWord: "a" "way of TLS" { Off = "off", Generated = "generated", Files = "files" }
    OperationWord: "an" "operation" { All = "all", Write = "write" }
    SchemeWord: "a" "scheme" { Http = "http", Https = "https" }
}

/// `sha256:` and 64 hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DigestKey(pub(super) String);

impl TomlScalar for DigestKey {
    const EXPECTED: &'static str = "a digest such as \"sha256:…\"";

    fn parse(value: &DeValue<'_>) -> Result<Self, TomlMismatch> {
        let text = value.as_str().ok_or(TomlMismatch::Type)?;
        let hex = |digits: &str| digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        match text.strip_prefix("sha256:") {
            Some(digits) if hex(digits) => Ok(Self(text.to_ascii_lowercase())),
            _ => Err(TomlMismatch::Value {
                message: format!("`{}` is not a digest", super::toml_reader::shorten(text)),
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
pub(super) struct ImageKey(pub(super) ImageName);

impl TomlScalar for ImageKey {
    const EXPECTED: &'static str = "the name of an image";

    fn parse(value: &DeValue<'_>) -> Result<Self, TomlMismatch> {
        let text = value.as_str().ok_or(TomlMismatch::Type)?;
        text.parse().map(Self).map_err(|wrong: ringfence_types::NotAnImageName| TomlMismatch::Value {
            message: format!("`{}` is not the name of an image: {wrong}", super::toml_reader::shorten(text)),
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
pub(super) struct CommandList {
    pub(super) items: Vec<WithSpan<Vec<String>>>,
    pub(super) span: TextSpan,
}

impl ReadToml for CommandList {
    fn read(key: &'static str, value: &TomlValue<'_>, problems: &mut FileProblems<'_>) -> Option<Self> {
        let span: TextSpan = value.span().into();
        let Some(list) = value.get_ref().as_array() else {
            return command(key, value, problems).map(|item| Self { items: vec![item], span });
        };
        if list.is_empty() {
            empty_list(key, span, problems);
            return None;
        }
        let items: Vec<WithSpan<Vec<String>>> =
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
/// could be two, and an author who means two would get a rule about one.
fn words_or_commands(
    items: Vec<WithSpan<Vec<String>>>,
    span: TextSpan,
    problems: &mut FileProblems<'_>,
) -> Option<CommandList> {
    let words: Vec<String> = items.into_iter().flat_map(|item| item.value).collect();
    if words.iter().skip(1).any(|word| word.starts_with('-')) {
        return Some(CommandList { items: vec![WithSpan { value: words, span }], span });
    }
    let several: Vec<String> = words.iter().map(|word| format!("[\"{word}\"]")).collect();
    let fix = format!("write \"{}\" for one command, [{}] for several", words.join(" "), several.join(", "));
    problems.add(span, "this list could be one command or several", fix);
    None
}

fn command(
    key: &'static str,
    value: &TomlValue<'_>,
    problems: &mut FileProblems<'_>,
) -> Option<WithSpan<Vec<String>>> {
    let span: TextSpan = value.span().into();
    let words = match value.get_ref() {
        DeValue::String(text) if !check_text(key, text, span, problems) => return None,
        DeValue::String(text) => match split(text) {
            Ok(words) => words,
            Err(error) => {
                problems.add(span, error.to_string(), error.fix());
                return None;
            }
        },
        DeValue::Array(_) => OneOrMany::<String>::read(key, value, problems)?
            .items
            .into_iter()
            .map(|item| item.value)
            .collect(),
        other => {
            let message = format!("`{key}` is a command, not {}", kind_of(other));
            problems.add(span, message, "write it as you would type it, for example \"git push --force\"");
            return None;
        }
    };
    Some(WithSpan { value: words, span })
}

#[cfg(test)]
mod schema {
    use std::borrow::Cow;

    use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

    use super::{CommandList, NamedTables, OneOrMany, TomlScalar, WithSpan};

    impl<T: TomlScalar> JsonSchema for WithSpan<T> {
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

    impl<T: TomlScalar> JsonSchema for OneOrMany<T> {
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

    impl<T: JsonSchema> JsonSchema for NamedTables<T> {
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

    impl JsonSchema for CommandList {
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
