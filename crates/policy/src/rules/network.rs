//! `[[host]]`.

use ringfence_authz::hosts::{HostRule, HttpMethods, PathPrefix, UrlScheme};
use ringfence_types::{HostPattern, HostPatternError};

use super::super::format::{HostTable, SchemeWord};
use super::super::source_text::WithSpan;
use super::super::toml_reader::shorten;
use super::{DuplicateCheck, EntryClaim, RuleConverter, decision};

impl RuleConverter<'_, '_> {
    pub(super) fn hosts(&mut self, tables: &[HostTable]) -> Vec<HostRule> {
        let mut seen = DuplicateCheck::default();
        let mut entries = Vec::new();
        for table in tables {
            entries.extend(self.host(table, &mut seen).unwrap_or_default());
        }
        entries
    }

    fn host(&mut self, table: &HostTable, seen: &mut DuplicateCheck) -> Option<Vec<HostRule>> {
        let keys =
            [("deny", table.deny.as_ref()), ("ask", table.ask.as_ref()), ("allow", table.allow.as_ref())];
        let (key, hosts) = self.one("rule about hosts", table.head, keys)?;
        if key == "allow" && !self.may_open(key, hosts.span) {
            return None;
        }
        let methods = self.methods(table);
        let path_prefix = self.path_prefix(table);
        let scheme = table.scheme.as_ref().map(|scheme| match scheme.value {
            SchemeWord::Http => UrlScheme::Http,
            SchemeWord::Https => UrlScheme::Https,
        });
        let (inspect, upgrade, local) = self.treatment(table, &hosts.items);
        let mut entries = Vec::new();
        for name in &hosts.items {
            let Some(host) = self.host_name(name) else { continue };
            let limits = [
                methods.as_ref().map(ToString::to_string),
                path_prefix.as_ref().map(ToString::to_string),
                scheme.map(|scheme| scheme.to_string()),
            ];
            if !seen.add(
                EntryClaim {
                    key,
                    about: format!("{host} {limits:?}"),
                    shown: &host.to_string(),
                    span: name.span,
                },
                self.problems,
            ) {
                continue;
            }
            let entry = HostRule {
                decision: decision(key),
                host,
                scheme,
                methods: methods.clone(),
                path_prefix: path_prefix.clone(),
                inspect,
                upgrade,
                local,
                source: self.source(name.span, table.reason.as_ref()),
            };
            match entry.check() {
                Ok(()) => entries.push(entry),
                Err(error) => self.problems.add(name.span, error.to_string(), "leave it out"),
            }
        }
        Some(entries)
    }

    fn host_name(&mut self, name: &WithSpan<String>) -> Option<HostPattern> {
        match HostPattern::parse(&name.value) {
            Ok(host) => Some(host),
            Err(HostPatternError::Ambiguous(_, address)) => {
                let message =
                    format!("host `{}` is an unusual spelling of `{address}`", shorten(&name.value));
                self.problems.add(name.span, message, format!("write `{address}`"));
                None
            }
            Err(error) => {
                self.split_problem(name, &error.to_string(), "write `HOST`, `HOST:PORT` or `*.HOST`");
                None
            }
        }
    }

    /// Whether the proxy looks inside, and what may pass it there.
    fn treatment(&mut self, table: &HostTable, hosts: &[WithSpan<String>]) -> (bool, bool, bool) {
        let said = |key: &Option<WithSpan<bool>>| key.as_ref().map(|given| given.value);
        let narrow = table.methods.is_some() || table.path.is_some() || table.scheme.is_some();
        if let Some(given) = table.inspect.as_ref().filter(|given| !given.value && narrow) {
            let message = "`methods`, `path` and `scheme` are seen only where the proxy inspects";
            self.problems.add(given.span, message, "leave `inspect` out, or the restriction");
        }
        for (key, given) in [
            ("allow_upgrade", &table.allow_upgrade),
            ("allow_private_addresses", &table.allow_private_addresses),
        ] {
            if let Some(given) = given.as_ref().filter(|given| given.value && table.deny.is_some()) {
                let message = format!("`{key}` opens, and `deny` closes");
                self.problems.add(given.span, message, "leave one of them out");
            }
        }
        let pattern = hosts.iter().any(|host| host.value.starts_with("*."));
        if let Some(given) = table.allow_private_addresses.as_ref().filter(|given| given.value && pattern) {
            let message = "`allow_private_addresses` needs one host, and this is a pattern";
            self.problems.add(given.span, message, "name each host");
        }
        let is = |key: &Option<WithSpan<bool>>| said(key) == Some(true);
        (is(&table.inspect), is(&table.allow_upgrade), is(&table.allow_private_addresses))
    }

    fn methods(&mut self, table: &HostTable) -> Option<HttpMethods> {
        let given = table.methods.as_ref()?;
        let words: Vec<&str> = given.items.iter().map(|method| method.value.as_str()).collect();
        for method in given.items.iter().filter(|method| method.value != method.value.to_ascii_uppercase()) {
            let message = format!("methods are written in capitals, and `{}` is not", shorten(&method.value));
            self.problems.add(method.span, message, format!("write `{}`", method.value.to_ascii_uppercase()));
        }
        match HttpMethods::parse(&words) {
            Ok(methods) => Some(methods),
            Err(error) => {
                self.problems.add(given.span, error.to_string(), "write for example `methods = [\"GET\"]`");
                None
            }
        }
    }

    fn path_prefix(&mut self, table: &HostTable) -> Option<PathPrefix> {
        let given = table.path.as_ref()?;
        match PathPrefix::parse(&given.value) {
            Ok(prefix) => Some(prefix),
            Err(error) => {
                self.split_problem(given, &error.to_string(), "write for example `path = \"/v1/\"`");
                None
            }
        }
    }
}
