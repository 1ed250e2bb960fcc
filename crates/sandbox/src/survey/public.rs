//! Whether a file is provably public: certificates, public keys and the like, and nothing else.

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

/// At least one PEM block, each with a public label, and only comments and blank lines around them.
pub(super) fn is_public(content: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(content) else { return false };
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
        assert!(is_public(CERTIFICATE.as_bytes()));
        assert!(is_public(format!("# the chain\n\n{CERTIFICATE}{CERTIFICATE}").as_bytes()));
        assert!(is_public(b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"));
        assert!(is_public(b"-----BEGIN X509 CRL-----\r\nAAAA\r\n-----END X509 CRL-----\r\n"));
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
            assert!(!is_public(content.as_bytes()), "{content}");
        }
        assert!(!is_public(b"\xff\xfe"));
    }
}
