//! The built-in rules about files (S000-17, S000-19, C-12).
//!
//! Rules are ordered: exceptions, exact names, extensions, `.env` files, name heuristics; the first that speaks decides.
//! They look at names only. Names are compared without letter case and need not be UTF-8.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use ringfence_types::{Decision, PathDecision, Risk, RuleId};

/// A built-in rule about files.
#[derive(Debug, PartialEq, Eq)]
pub struct BuiltInRule {
    /// As a person would look it up: `path.environment`.
    pub name: RuleId,
    /// The names it speaks about, for people.
    pub pattern: &'static str,
    pub reason: &'static str,
    pub decision: Decision,
    pub risk: Risk,
    /// Whether it shows. One that a person may be asked about does not show until an operator has said yes.
    pub verdict: PathDecision,
}

/// The rule that hides the file at `relative`, if one does. A directory may have any name.
pub(super) fn explain(relative: &Path) -> Option<&'static BuiltInRule> {
    let path = trimmed(relative.as_os_str().as_bytes());
    let (dir, name) = split_last(path, b'/');
    // Some file systems do not see dots and spaces at the end: neither spelling may uncover the other.
    let (rule, strength) = find(dir, strip_backup(name))
        .or_else(|| find(dir, strip_backup(by_editor(name)?)))
        .or_else(|| {
            let bare = Some(bare(name)).filter(|bare| bare.len() < name.len())?;
            find(dir, strip_backup(bare))
        })?;
    let exempt = match strength {
        // git names its own files after branches.
        NameEvidence::Fact => in_git_dir(dir) && rule.pattern != IN_GIT_DIR_HIDDEN,
        NameEvidence::Guess => in_git_dir(dir) || in_generated_dir(dir),
    };
    (!exempt).then_some(rule)
}

/// A whole name, optionally only below a directory of a certain name.
pub(crate) struct NamePattern {
    pub(crate) dir: Option<&'static str>,
    pub(crate) name: &'static str,
    reason: BuiltinReason,
}

#[derive(Clone, Copy)]
enum BuiltinReason {
    Key,
    Login,
    Service,
}

const KEY: BuiltInRule = hidden(RuleId::PathKeyMaterial, "key files", "a private key");
const LOGIN: BuiltInRule = hidden(RuleId::PathLogins, "login files", "it holds logins");
const SERVICE: BuiltInRule =
    hidden(RuleId::PathServiceCredentials, "service credentials", "credentials of a service account");
const KEY_EXTENSION: BuiltInRule =
    hidden(RuleId::PathKeyMaterial, "key extensions", "a private key or key store");
const ENVIRONMENT: BuiltInRule = BuiltInRule {
    risk: Risk::High,
    ..hidden(RuleId::PathEnvironment, ".env*", "environment files hold secrets")
};
const GUESS: BuiltInRule = BuiltInRule {
    decision: Decision::Ask,
    risk: Risk::Medium,
    ..hidden(RuleId::PathNamedSecret, "*secret*, *password*", "its name says that it holds secrets")
};
/// It keeps what it was told, passwords among it, in plain text.
const STATE: BuiltInRule = BuiltInRule {
    decision: Decision::Ask,
    risk: Risk::Medium,
    ..hidden(RuleId::PathState, "*.tfstate", "the state of an infrastructure holds its secrets in plain text")
};
const SETTINGS: BuiltInRule = BuiltInRule {
    verdict: PathDecision::HiddenUnlessPublic,
    risk: Risk::High,
    ..hidden(
        RuleId::PathLogins,
        "package registry settings",
        "it may hold a login; it is visible when it holds none",
    )
};
const IN_SSH: BuiltInRule =
    hidden(RuleId::PathKeyMaterial, ".ssh/*, .gnupg/*", "a directory of private keys");
const IN_GIT_DIR_HIDDEN: &str = ".git/credentials";
const GIT_STORE: BuiltInRule = hidden(RuleId::PathLogins, IN_GIT_DIR_HIDDEN, "it holds logins");
const MAYBE: BuiltInRule = BuiltInRule {
    verdict: PathDecision::HiddenUnlessPublic,
    risk: Risk::High,
    ..hidden(
        RuleId::PathCertificate,
        "certificate extensions",
        "it may hold a private key; it is visible when it holds only certificates or public keys",
    )
};

pub(crate) const NAMES: &[NamePattern] = &[
    named("id_rsa", BuiltinReason::Key),
    named("id_dsa", BuiltinReason::Key),
    named("id_ecdsa", BuiltinReason::Key),
    named("id_ecdsa_sk", BuiltinReason::Key),
    named("id_ed25519", BuiltinReason::Key),
    named("id_ed25519_sk", BuiltinReason::Key),
    named("secring.gpg", BuiltinReason::Key),
    named("wallet.dat", BuiltinReason::Key),
    named(".netrc", BuiltinReason::Login),
    named("_netrc", BuiltinReason::Login),
    named(".pgpass", BuiltinReason::Login),
    named(".my.cnf", BuiltinReason::Login),
    named(".git-credentials", BuiltinReason::Login),
    named(".pypirc", BuiltinReason::Login),
    named(".htpasswd", BuiltinReason::Login),
    named(".dockercfg", BuiltinReason::Login),
    named(".s3cfg", BuiltinReason::Login),
    named(".boto", BuiltinReason::Login),
    named(".vault-token", BuiltinReason::Login),
    named(".databrickscfg", BuiltinReason::Login),
    named("credentials.json", BuiltinReason::Service),
    named("application_default_credentials.json", BuiltinReason::Service),
    named("service-account.json", BuiltinReason::Service),
    named("service_account.json", BuiltinReason::Service),
    named("serviceaccount.json", BuiltinReason::Service),
    named("kubeconfig", BuiltinReason::Service),
    named(".kubeconfig", BuiltinReason::Service),
    below(".aws", "credentials", BuiltinReason::Service),
    below(".kube", "config", BuiltinReason::Service),
    below(".docker", "config.json", BuiltinReason::Login),
    below("gh", "hosts.yml", BuiltinReason::Login),
    below(".cargo", "credentials", BuiltinReason::Login),
    below(".cargo", "credentials.toml", BuiltinReason::Login),
    below(".gem", "credentials", BuiltinReason::Login),
];

pub(crate) const KEY_EXTENSIONS: &[&str] =
    &["key", "p12", "pfx", "p8", "pk8", "ppk", "jks", "jceks", "keystore", "kdb", "kdbx", "keytab", "agekey"];

pub(crate) const MAYBE_EXTENSIONS: &[&str] = &["pem", "crt", "cer", "cert", "der"];

/// Settings in which some people keep a login.
pub(crate) const SETTINGS_NAMES: &[&str] = &[".npmrc"];

pub(crate) const STATE_EXTENSIONS: &[&str] = &["tfstate"];

/// `X.example` is there to be read. Also before an extension that is a data format: `credentials.sample.json`.
pub(crate) const EXCEPTIONS: &[&str] = &["example", "sample", "template", "dist", "pub"];

/// Formats that hold data: a name heuristic hides these and names without an extension.
pub(crate) const DATA_EXTENSIONS: &[&str] = &[
    "7z",
    "age",
    "asc",
    "b64",
    "bak",
    "bin",
    "bz2",
    "cfg",
    "cnf",
    "conf",
    "config",
    "csv",
    "dat",
    "data",
    "db",
    "enc",
    "env",
    "gpg",
    "gz",
    "hcl",
    "ini",
    "json",
    "json5",
    "jsonc",
    "kv",
    "list",
    "log",
    "lst",
    "ndjson",
    "ods",
    "pgp",
    "plist",
    "prefs",
    "properties",
    "sops",
    "sqlite",
    "sqlite3",
    "tar",
    "tfstate",
    "tfvars",
    "tgz",
    "toml",
    "tsv",
    "txt",
    "vault",
    "xls",
    "xlsx",
    "xml",
    "xz",
    "yaml",
    "yml",
    "zip",
    "zst",
];

/// Written by tools, named after packages: guesses by name would hide a library called `libsecret`.
pub(crate) const GENERATED_DIRS: &[&str] =
    &["target", "node_modules", "__pycache__", "site-packages", "dist-packages"];

const BACKUPS: &[&str] =
    &["~", ".bak", ".backup", ".old", ".orig", ".save", ".swp", ".swo", ".copy", ".lock"];

#[derive(Clone, Copy)]
enum NameEvidence {
    Fact,
    Guess,
}

fn find(dir: &[u8], name: &[u8]) -> Option<(&'static BuiltInRule, NameEvidence)> {
    let (stem, extension) = split_last(name, b'.');
    let fact = |rule| Some((rule, NameEvidence::Fact));
    if is_exception(stem, extension) {
        return None;
    }
    if let Some(rule) = by_name(dir, name) {
        return fact(rule);
    }
    let dotted = extension.len() < name.len();
    if dotted && one_of(KEY_EXTENSIONS, extension) {
        return fact(&KEY_EXTENSION);
    }
    if dotted && is_environment(name, extension) {
        return fact(&ENVIRONMENT);
    }
    if dotted && one_of(MAYBE_EXTENSIONS, extension) {
        return fact(&MAYBE);
    }
    if dotted && one_of(STATE_EXTENSIONS, extension) {
        return fact(&STATE);
    }
    let sounds = |name: &[u8]| contains(name, b"secret") || contains(name, b"password");
    let data = stem.is_empty() || one_of(DATA_EXTENSIONS, extension) || sounds(extension);
    (data && sounds(name)).then_some((&GUESS, NameEvidence::Guess))
}

/// `stem` is empty for a name without a dot or with only a leading one: such a name has no extension.
fn is_exception(stem: &[u8], extension: &[u8]) -> bool {
    if stem.is_empty() {
        return false;
    }
    if one_of(EXCEPTIONS, extension) {
        return true;
    }
    let (_, before) = split_last(stem, b'.');
    one_of(EXCEPTIONS, before) && one_of(DATA_EXTENSIONS, extension)
}

fn by_name(dir: &[u8], name: &[u8]) -> Option<&'static BuiltInRule> {
    let parent = bare(split_last(trimmed(dir), b'/').1);
    let of_keys = |name: &[u8]| is(name, ".ssh") || is(name, ".gnupg");
    if dir.split(|byte| *byte == b'/').map(bare).any(of_keys) {
        let harmless = ["known_hosts", "config", "authorized_keys", "pubring.kbx"];
        return (!one_of(&harmless, name)).then_some(&IN_SSH);
    }
    if is(name, "credentials") && is(parent, ".git") {
        return Some(&GIT_STORE);
    }
    if is_named_key(name) {
        return Some(&KEY);
    }
    if one_of(SETTINGS_NAMES, name) {
        return Some(&SETTINGS);
    }
    let found =
        NAMES.iter().find(|rule| is(name, rule.name) && rule.dir.is_none_or(|dir| is(parent, dir)))?;
    Some(match found.reason {
        BuiltinReason::Key => &KEY,
        BuiltinReason::Login => &LOGIN,
        BuiltinReason::Service => &SERVICE,
    })
}

/// `.env`, `.envrc`, `.env.local`, `.env-prod`, `production.env`; not `.environment`, not `.env-example`.
fn is_environment(name: &[u8], extension: &[u8]) -> bool {
    let Some(rest) = strip_prefix(name, ".env") else { return is(extension, "env") };
    match rest.first() {
        None => true,
        Some(byte) if byte.is_ascii_alphanumeric() => is(rest, "rc"),
        Some(_) => {
            let last = rest.rsplit(|byte| matches!(byte, b'.' | b'-' | b'_')).next();
            !last.is_some_and(|last| one_of(EXCEPTIONS, last))
        }
    }
}

/// Where git names files after branches and objects. Anything else below a `.git` is judged by its name: a directory
/// that a command moved there is not git's.
fn in_git_dir(dir: &[u8]) -> bool {
    const NAMED_BY_GIT: &[&[u8]] =
        &[b"refs", b"logs", b"objects", b"worktrees", b"modules", b"rebase-merge", b"lfs"];
    let mut below = dir.split(|byte| *byte == b'/').skip_while(|component| !is(component, ".git")).skip(1);
    below.next().is_some_and(|first| NAMED_BY_GIT.contains(&first))
}

/// Bare repositories (`x.git`) among them: a reference called `fix-password` is no password there either.
fn in_generated_dir(dir: &[u8]) -> bool {
    let generated = |name: &[u8]| one_of(GENERATED_DIRS, name) || strip_suffix(name, ".git").is_some();
    dir.split(|byte| *byte == b'/').any(generated)
}

/// A backup of a key is a key.
fn strip_backup(mut name: &[u8]) -> &[u8] {
    while let Some(shorter) = BACKUPS.iter().find_map(|suffix| strip_suffix(name, suffix)) {
        name = shorter;
    }
    name
}

/// The file that an editor has written this one for: `#NAME#` and `.#NAME` of Emacs, `.NAME.swp` of Vim.
fn by_editor(name: &[u8]) -> Option<&[u8]> {
    const SWAP: &[&str] = &[".swp", ".swo", ".swn"];
    let emacs = name.strip_prefix(b"#").and_then(|rest| rest.strip_suffix(b"#"));
    let lock = || name.strip_prefix(b".#");
    let vim = || {
        let rest = name.strip_prefix(b".")?;
        SWAP.iter().find_map(|suffix| strip_suffix(rest, suffix))
    };
    emacs.or_else(lock).or_else(vim)
}

/// Keys of ssh under names of people's own: `id_rsa2`, `id_ed25519_github`, `ssh_host_rsa_key`. With an extension it is source
/// code or text about them.
fn is_named_key(name: &[u8]) -> bool {
    const KINDS: &[&str] = &["id_rsa", "id_dsa", "id_ecdsa", "id_ed25519"];
    let goes_on = |kind: &&str| {
        strip_prefix(name, kind)
            .is_some_and(|rest| rest.first().is_some_and(|byte| !byte.is_ascii_alphabetic()))
    };
    let of_host = || strip_prefix(name, "ssh_host_").is_some_and(|rest| strip_suffix(rest, "_key").is_some());
    !name.contains(&b'.') && (KINDS.iter().any(goes_on) || of_host())
}

/// Without trailing slashes and `/.`, so that the last component is a name.
fn trimmed(mut path: &[u8]) -> &[u8] {
    while let Some(shorter) = path.strip_suffix(b"/").or_else(|| path.strip_suffix(b"/.")) {
        path = shorter;
    }
    path
}

/// Without dots and spaces at the end.
pub(super) fn bare(name: &[u8]) -> &[u8] {
    let end = name.iter().rposition(|byte| !matches!(byte, b'.' | b' ')).map_or(0, |last| last + 1);
    name.get(..end).unwrap_or_default()
}

/// What is before and after the last `separator`; everything is after where there is none.
fn split_last(bytes: &[u8], separator: u8) -> (&[u8], &[u8]) {
    match bytes.iter().rposition(|byte| *byte == separator) {
        Some(at) => (bytes.get(..at).unwrap_or_default(), bytes.get(at + 1..).unwrap_or_default()),
        None => (&[], bytes),
    }
}

fn contains(name: &[u8], word: &[u8]) -> bool {
    name.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word))
}

fn one_of(words: &[&str], name: &[u8]) -> bool {
    words.iter().any(|word| is(name, word))
}

pub(super) fn is(name: &[u8], word: &str) -> bool {
    name.eq_ignore_ascii_case(word.as_bytes())
}

fn strip_prefix<'a>(name: &'a [u8], prefix: &str) -> Option<&'a [u8]> {
    let (start, rest) = name.split_at_checked(prefix.len())?;
    is(start, prefix).then_some(rest)
}

fn strip_suffix<'a>(name: &'a [u8], suffix: &str) -> Option<&'a [u8]> {
    let (start, rest) = name.split_at_checked(name.len().checked_sub(suffix.len())?)?;
    (!start.is_empty() && is(rest, suffix)).then_some(start)
}

const fn hidden(name: RuleId, pattern: &'static str, reason: &'static str) -> BuiltInRule {
    BuiltInRule {
        name,
        pattern,
        reason,
        decision: Decision::Deny,
        risk: Risk::Critical,
        verdict: PathDecision::Hidden,
    }
}

const fn named(name: &'static str, reason: BuiltinReason) -> NamePattern {
    NamePattern { dir: None, name, reason }
}

const fn below(dir: &'static str, name: &'static str, reason: BuiltinReason) -> NamePattern {
    NamePattern { dir: Some(dir), name, reason }
}
