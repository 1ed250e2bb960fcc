//! Whether a file is provably public: certificates, public keys and the like, or settings without a login, and nothing else.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// Larger files are not read and so not public.
pub(super) const MAX: u64 = 2 * 1024 * 1024;

const LABELS: [&str; 9] = [
    "CERTIFICATE",
    "TRUSTED CERTIFICATE",
    "X509 CERTIFICATE",
    "PUBLIC KEY",
    "RSA PUBLIC KEY",
    "EC PARAMETERS",
    "X509 CRL",
    "DH PARAMETERS",
    "X9.42 DH PARAMETERS",
];

/// Words in the name of a setting that holds a login.
const LOGIN_WORDS: [&str; 6] = ["auth", "password", "passwd", "token", "secret", "key"];

/// By what is expected under this name.
pub(super) fn is_public(path: &Path, content: &[u8]) -> bool {
    const SETTINGS: &[u8] = b".npmrc";
    let Ok(text) = std::str::from_utf8(content) else { return false };
    let name = path.file_name().unwrap_or_default().as_bytes();
    // A backup has more behind the name.
    let is_settings = name.get(..SETTINGS.len()).is_some_and(|start| start.eq_ignore_ascii_case(SETTINGS));
    if is_settings { text.lines().all(is_without_login) } else { is_public_pem(text) }
}

/// `registry=…`, `always-auth=true`, `//host/:_authToken=${TOKEN}`. Comments are looked at like settings.
fn is_without_login(line: &str) -> bool {
    let (name, value) = line.split_once('=').unwrap_or(("", line));
    let lower = name.to_ascii_lowercase();
    let value = value.trim().trim_matches('"');
    let is_reference = value.strip_prefix("${").is_some_and(|rest| rest.find('}') == Some(rest.len() - 1));
    let names_login = || LOGIN_WORDS.iter().any(|word| lower.contains(word));
    let says_little = matches!(value, "" | "true" | "false" | "null") || is_reference;
    // `https://user:password@host/`.
    let is_address_of_user =
        || line.split("//").skip(1).any(|rest| rest.split('/').next().is_some_and(|host| host.contains('@')));
    says_little || !names_login() && !is_address_of_user()
}

/// At least one PEM block, each with a public label, and only comments and blank lines around them.
fn is_public_pem(text: &str) -> bool {
    let mut open: Option<&str> = None;
    let mut blocks = 0_usize;
    for line in text.lines().map(str::trim) {
        match open {
            Some(label) if closes(line, label) => {
                open = None;
                blocks += 1;
            }
            Some(_) if is_body(line) => {}
            Some(_) => return false,
            None if line.is_empty() => {}
            None if is_comment(line) => {}
            None => match opened(line) {
                Some(label) => open = Some(label),
                None => return false,
            },
        }
    }
    open.is_none() && blocks > 0
}

fn opened(line: &str) -> Option<&'static str> {
    let label = line.strip_prefix("-----BEGIN ")?.strip_suffix("-----")?;
    LABELS.into_iter().find(|known| *known == label)
}

fn closes(line: &str, label: &str) -> bool {
    line.strip_prefix("-----END ").and_then(|rest| rest.strip_suffix("-----")) == Some(label)
}

fn is_body(line: &str) -> bool {
    line.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'='))
}

/// A comment could hold anything, so it must not look like a key either.
fn is_comment(line: &str) -> bool {
    line.starts_with('#') && line.len() <= 200 && !line.contains("PRIVATE") && !line.contains("-----")
}

#[cfg(test)]
mod tests {
    use super::*;

    const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\nMIIB+/=\n-----END CERTIFICATE-----\n";

    #[test]
    fn certificates_and_public_keys_are_public() {
        assert!(is_public(Path::new("a.pem"), CERTIFICATE.as_bytes()));
        assert!(is_public(
            Path::new("a.pem"),
            format!("# the chain\n\n{CERTIFICATE}{CERTIFICATE}").as_bytes()
        ));
        assert!(is_public(
            Path::new("a.pem"),
            b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"
        ));
        assert!(is_public(
            Path::new("a.pem"),
            b"-----BEGIN X509 CRL-----\r\nAAAA\r\n-----END X509 CRL-----\r\n"
        ));
    }

    #[test]
    fn anything_else_is_not() {
        let key = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
        for content in [
            String::new(),
            "# only a comment\n".to_owned(),
            key.to_owned(),
            format!("{CERTIFICATE}{key}"),
            format!("{CERTIFICATE}token=abc\n"),
            "-----BEGIN CERTIFICATE-----\nMIIB\n".to_owned(),
            "-----BEGIN CERTIFICATE-----\npassword: x\n-----END CERTIFICATE-----\n".to_owned(),
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END PUBLIC KEY-----\n".to_owned(),
        ] {
            assert!(!is_public(Path::new("a.pem"), content.as_bytes()), "{content}");
        }
        assert!(!is_public(Path::new("a.pem"), b"\xff\xfe"));
    }
    #[test]
    fn settings_are_public_unless_they_hold_a_login() {
        for content in [
            "",
            "registry=https://registry.example.org/\nsave-exact=true\n",
            "@a:registry=https://npm.example.org/\n//npm.example.org/:_authToken=${NPM_TOKEN}\n",
            "always-auth=true\n; a comment\n# //npm.example.org/:_authToken=\n",
        ] {
            assert!(is_public(Path::new("a/.npmrc"), content.as_bytes()), "{content}");
        }
        for content in [
            "//npm.example.org/:_authToken=npm_abc\n",
            "//npm.example.org/:_authToken=${A}abc\n",
            "//npm.example.org/:_authToken=${A}${B\n",
            "_auth = \"YWJj\"\n",
            "//npm.example.org/:_PASSWORD=YWJj\n",
            "registry=https://u:p@npm.example.org/\n",
            "# //npm.example.org/:_authToken=npm_abc\n",
            "key=-----BEGIN PRIVATE KEY-----\n",
        ] {
            for name in [".npmrc", ".NPMRC", ".npmrc.bak"] {
                assert!(!is_public(Path::new(name), content.as_bytes()), "{name}: {content}");
            }
        }
        assert!(!is_public(Path::new(".npmrc"), b"\xff"));
    }
}
