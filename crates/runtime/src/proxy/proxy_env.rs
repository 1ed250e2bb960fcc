//! Variables that tell programs inside where the proxy is and which CA to trust.

use std::fs;

use ringfence_egress::{ProviderRoute, SYSTEM_ROOTS, SessionCa};
use ringfence_sandbox::SkeletonFile;
use ringfence_types::{ByteString, PROXY_PORT};

use crate::command_env::RootKind;

/// The system's roots and the session's CA.
const BUNDLE: &str = "/etc/ringfence-ca-bundle.pem";

/// Programs read one of these, in lower or upper case. All name a plain HTTP proxy: some programs fail with
/// SOCKS, and connections of programs that support neither reach the proxy transparently.
const PROXY: &[&str] = &[
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "npm_config_proxy",
    "npm_config_https_proxy",
    "YARN_HTTP_PROXY",
    "YARN_HTTPS_PROXY",
];

/// Addresses inside the sandbox, reached directly.
const DIRECT: &[&str] = &["no_proxy", "NO_PROXY", "npm_config_noproxy"];

/// Variables that name the trusted roots.
const ROOTS: &[&str] = &[
    "SSL_CERT_FILE",
    "CURL_CA_BUNDLE",
    "REQUESTS_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "PIP_CERT",
    "CARGO_HTTP_CAINFO",
    "AWS_CA_BUNDLE",
    "NIX_SSL_CERT_FILE",
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
    "npm_config_cafile",
    // These add to the program's own roots.
    "NODE_EXTRA_CA_CERTS",
    "DENO_CERT",
];

/// The file that the variables name.
pub(crate) fn bundle(ca: &SessionCa) -> SkeletonFile {
    let roots = SYSTEM_ROOTS.iter().find_map(|path| fs::read(path).ok()).unwrap_or_default();
    let content = [roots.as_slice(), b"\n", ca.pem().as_bytes()].concat();
    SkeletonFile { path: BUNDLE.into(), content }
}

/// The base URL of a secret's provider inside.
pub fn provider_url(secret: &str) -> String {
    format!("http://127.0.0.1:{PROXY_PORT}/ringfence/provider/{secret}")
}

pub(crate) fn variables(ground: RootKind, providers: &[ProviderRoute]) -> Vec<(ByteString, ByteString)> {
    let proxy = format!("http://127.0.0.1:{PROXY_PORT}");
    let each = |names: &[&str], value: &str| -> Vec<(ByteString, ByteString)> {
        names.iter().map(|name| (ByteString::from(*name), ByteString::from(value))).collect()
    };
    let mut variables = each(PROXY, &proxy);
    variables.extend(each(DIRECT, "localhost,127.0.0.1,::1"));
    variables.extend(each(&["NODE_USE_ENV_PROXY"], "1"));
    for ProviderRoute { name, .. } in providers {
        let variable = format!("RINGFENCE_PROVIDER_{}", name.to_ascii_uppercase().replace('-', "_"));
        variables.push((ByteString::from(variable.as_str()), ByteString::from(provider_url(name).as_str())));
    }
    // Only a constructed tree has a place for the files.
    if ground == RootKind::Constructed {
        variables.extend(each(ROOTS, BUNDLE));
    }
    variables
}
