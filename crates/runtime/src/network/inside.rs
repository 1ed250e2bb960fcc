//! What tells programs inside where the proxy is and whom to trust.

use std::fs;

use ringfence_egress::{Ca, Provider, SYSTEM_ROOTS};
use ringfence_sandbox::{PROXY_PORT, SkeletonFile};
use ringfence_types::Bytes;

use crate::environment::Ground;

/// The roots of the system and the authority of the session.
const BUNDLE: &str = "/etc/ringfence-ca-bundle.pem";

/// Programs read one of these, some only in small letters, some only in capitals. The proxy is plain HTTP for all of them: a
/// program that cannot speak SOCKS breaks when it is told to, and what speaks neither is led to the proxy anyway.
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

/// What is inside itself.
const DIRECT: &[&str] = &["no_proxy", "NO_PROXY", "npm_config_noproxy"];

/// What says whom to trust.
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
    // These add to the roots that a program brings along.
    "NODE_EXTRA_CA_CERTS",
    "DENO_CERT",
];

/// The file that the variables name.
pub(crate) fn bundle(ca: &Ca) -> SkeletonFile {
    let roots = SYSTEM_ROOTS.iter().find_map(|path| fs::read(path).ok()).unwrap_or_default();
    let content = [roots.as_slice(), b"\n", ca.pem().as_bytes()].concat();
    SkeletonFile { path: BUNDLE.into(), content }
}

/// Nothing of the host's own proxy is in it: the environment was cleared.
/// Where the provider of a secret is found inside.
pub fn provider_url(secret: &str) -> String {
    format!("http://127.0.0.1:{PROXY_PORT}/ringfence/provider/{secret}")
}

pub(crate) fn variables(ground: Ground, providers: &[Provider]) -> Vec<(Bytes, Bytes)> {
    let proxy = format!("http://127.0.0.1:{PROXY_PORT}");
    let each = |names: &[&str], value: &str| -> Vec<(Bytes, Bytes)> {
        names.iter().map(|name| (Bytes::from(*name), Bytes::from(value))).collect()
    };
    let mut variables = each(PROXY, &proxy);
    variables.extend(each(DIRECT, "localhost,127.0.0.1,::1"));
    variables.extend(each(&["NODE_USE_ENV_PROXY"], "1"));
    for Provider { name, .. } in providers {
        let variable = format!("RINGFENCE_PROVIDER_{}", name.to_ascii_uppercase().replace('-', "_"));
        variables.push((Bytes::from(variable.as_str()), Bytes::from(provider_url(name).as_str())));
    }
    // Only a tree of its own has a place for the files.
    if ground == Ground::Constructed {
        variables.extend(each(ROOTS, BUNDLE));
    }
    variables
}
