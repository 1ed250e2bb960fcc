//! Key locations: where requests carry keys, for known providers and for all other hosts.

use ringfence_types::{CredentialLocation, Host};

/// The only key locations of a provider. `.example` matches every host below `example`.
struct KnownServer {
    host: &'static str,
    places: &'static [CredentialLocation],
}

const AUTHORIZATION: CredentialLocation = CredentialLocation::header("authorization");

const KNOWN: &[KnownServer] = &[
    KnownServer { host: "api.openai.com", places: &[AUTHORIZATION] },
    KnownServer {
        host: "api.anthropic.com",
        places: &[AUTHORIZATION, CredentialLocation::header("x-api-key")],
    },
    KnownServer {
        host: ".googleapis.com",
        places: &[
            AUTHORIZATION,
            CredentialLocation::header("x-goog-api-key"),
            CredentialLocation::query("key"),
        ],
    },
    KnownServer {
        host: ".openai.azure.com",
        places: &[AUTHORIZATION, CredentialLocation::header("api-key")],
    },
    KnownServer { host: "github.com", places: &[AUTHORIZATION] },
    KnownServer { host: ".github.com", places: &[AUTHORIZATION] },
    KnownServer {
        host: "gitlab.com",
        places: &[
            AUTHORIZATION,
            CredentialLocation::header("private-token"),
            CredentialLocation::header("job-token"),
        ],
    },
    KnownServer {
        host: ".amazonaws.com",
        places: &[
            AUTHORIZATION,
            CredentialLocation::header("x-amz-security-token"),
            CredentialLocation::query("X-Amz-Security-Token"),
        ],
    },
];

/// Headers made for keys, for all other hosts. No query parameter counts unless the secret declares it, except for the session
/// token of presigned AWS URLs.
const ELSEWHERE: &[CredentialLocation] = &[
    AUTHORIZATION,
    CredentialLocation::header("x-api-key"),
    CredentialLocation::header("api-key"),
    CredentialLocation::header("x-goog-api-key"),
    CredentialLocation::header("x-auth-token"),
    CredentialLocation::header("private-token"),
    CredentialLocation::header("x-amz-security-token"),
    CredentialLocation::query("X-Amz-Security-Token"),
];

/// Key locations of `host` for a secret that declares none.
pub(crate) fn usual(host: &Host) -> &'static [CredentialLocation] {
    let Host::Name(name) = host else { return ELSEWHERE };
    let is = |known: &&KnownServer| match known.host.strip_prefix('.') {
        Some(_) => name.ends_with(known.host),
        None => name == known.host,
    };
    KNOWN.iter().find(is).map_or(ELSEWHERE, |known| known.places)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_server_has_places_of_its_own() {
        let usual = |name: &str| usual(&Host::Name(name.to_owned()));
        assert_eq!(usual("api.openai.com"), [AUTHORIZATION]);
        assert!(usual("generativelanguage.googleapis.com").contains(&CredentialLocation::query("key")));
        for name in ["evil-googleapis.com", "googleapis.com", "api.openai.com.evil.test", "any.test"] {
            assert_eq!(usual(name), ELSEWHERE, "{name}");
        }
        let queries = ELSEWHERE.iter().filter(|place| matches!(place, CredentialLocation::Query(_))).count();
        assert_eq!(queries, 1, "a parameter has to be declared");
    }
}
