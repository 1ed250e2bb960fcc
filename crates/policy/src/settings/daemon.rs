//! `[daemon]`: how `ringfence serve` is reached besides its socket.

use std::path::{Path, PathBuf};

use ringfence_types::{BindAddress, BindError, BindTransport, Host, HostPattern};

use super::super::file::PolicyDocument;
use super::super::format::{DaemonTable, TlsWord};
use super::super::problem::FileProblems;
use super::super::source_text::WithSpan;
use super::super::toml_reader::{ReadStatus, shorten};
use super::{check_place, expanded, first};

/// How the daemon is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DaemonSettings {
    /// `None`: by its socket alone.
    pub listen: Option<BindAddress>,
    pub hosts: Vec<String>,
    pub origins: Vec<String>,
    pub tls: TlsSettings,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TlsSettings {
    #[default]
    Off,
    Generated,
    Files {
        certificate: PathBuf,
        key: PathBuf,
    },
}

impl TlsSettings {
    fn transport(&self) -> BindTransport {
        match self {
            Self::Off => BindTransport::Plain,
            Self::Generated | Self::Files { .. } => BindTransport::Tls,
        }
    }
}

pub(super) fn settings(documents: &[&PolicyDocument], home: Option<&Path>) -> DaemonSettings {
    // What belongs together comes from one file: an address with the TLS that was written beside it.
    let Some(table) = first(documents, |document| document.daemon.listen.as_ref().map(|_| &document.daemon))
    else {
        return DaemonSettings::default();
    };
    // Without the files of its TLS nothing listens: never in the clear instead.
    let Some(tls) = tls(table, home) else { return DaemonSettings::default() };
    let text = |listen: &WithSpan<String>| BindAddress::parse(&listen.value, tls.transport()).ok();
    DaemonSettings {
        listen: table.listen.as_ref().and_then(text),
        hosts: table.hosts.iter().flat_map(|list| &list.items).map(|host| host.value.clone()).collect(),
        origins: table
            .origins
            .iter()
            .flat_map(|list| &list.items)
            .map(|origin| origin.value.clone())
            .collect(),
        tls,
    }
}

fn tls(table: &DaemonTable, home: Option<&Path>) -> Option<TlsSettings> {
    let path = |path: &Option<WithSpan<String>>| path.as_ref().and_then(|path| expanded(&path.value, home));
    match table.tls.as_ref().map(|word| word.value) {
        None | Some(TlsWord::Off) => Some(TlsSettings::Off),
        Some(TlsWord::Generated) => Some(TlsSettings::Generated),
        // Without a home `~` leads nowhere.
        Some(TlsWord::Files) => {
            Some(TlsSettings::Files { certificate: path(&table.certificate)?, key: path(&table.key)? })
        }
    }
}

pub(super) fn check(table: &DaemonTable, problems: &mut FileProblems<'_>) {
    check_listen(table, problems);
    check_files(table, problems);
    for host in table.hosts.iter().flat_map(|list| &list.items) {
        let plain = HostPattern::parse(&host.value).is_ok_and(|rule| !matches!(rule.host(), Host::Below(_)));
        if !plain {
            let message = format!("`{}` is not the name of one host", shorten(&host.value));
            problems.add(host.span, message, "write `HOST` or `HOST:PORT`, without `*`");
        }
    }
    for origin in table.origins.iter().flat_map(|list| &list.items) {
        if !is_origin(&origin.value) {
            let message = format!("`{}` is not a site", shorten(&origin.value));
            problems.add(origin.span, message, "write `https://HOST` or `https://HOST:PORT`, without a path");
        }
    }
}

fn check_listen(table: &DaemonTable, problems: &mut FileProblems<'_>) {
    let transport = match table.tls.as_ref().map(|word| word.value) {
        None | Some(TlsWord::Off) => BindTransport::Plain,
        Some(TlsWord::Generated | TlsWord::Files) => BindTransport::Tls,
    };
    match &table.listen {
        Some(listen) => {
            if let Err(error) = BindAddress::parse(&listen.value, transport) {
                let fix = match error {
                    BindError::InTheClear(_) => {
                        "write `tls = \"generated\"` beside it, or listen on `127.0.0.1`"
                    }
                    _ => error.hint(),
                };
                problems.add(listen.span, error.to_string(), fix);
            }
        }
        None if table.head.reading == ReadStatus::Whole => {
            problems.add(
                table.head.span,
                "nothing listens without `listen`",
                "write `listen = \"127.0.0.1:7420\"`",
            );
        }
        None => {}
    }
}

fn check_files(table: &DaemonTable, problems: &mut FileProblems<'_>) {
    let files = [("certificate", &table.certificate), ("key", &table.key)];
    files.iter().filter_map(|(_, file)| file.as_ref()).for_each(|file| check_place(file, problems));
    let wants = table.tls.as_ref().is_some_and(|word| word.value == TlsWord::Files);
    for (name, file) in files {
        match (wants, file) {
            (true, None) if table.head.reading == ReadStatus::Whole => {
                problems.add(
                    table.head.span,
                    format!("`tls = \"files\"` without `{name}`"),
                    format!("write `{name} = \"/…\"`"),
                );
            }
            (false, Some(file)) => {
                let message = format!("nothing uses `{name}` without `tls = \"files\"`");
                problems.add(file.span, message, "write `tls = \"files\"`, or leave it out");
            }
            _ => {}
        }
    }
}

fn is_origin(text: &str) -> bool {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    rest.is_some_and(|rest| {
        HostPattern::parse(rest).is_ok_and(|rule| rule.to_string() == rest && !rest.contains('*'))
    })
}
