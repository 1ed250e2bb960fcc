//! Where keys stand in requests, at servers that are known and at all others.

use ringfence_types::{Host, KeyPlace};

/// Where a server looks for its keys, and nowhere else. `.example` is every host below `example`.
struct Known {
    host: &'static str,
    places: &'static [KeyPlace],
}

const AUTHORIZATION: KeyPlace = KeyPlace::header("authorization");

const KNOWN: &[Known] = &[
    Known { host: "api.openai.com", places: &[AUTHORIZATION] },
    Known { host: "api.anthropic.com", places: &[AUTHORIZATION, KeyPlace::header("x-api-key")] },
    Known {
        host: ".googleapis.com",
        places: &[AUTHORIZATION, KeyPlace::header("x-goog-api-key"), KeyPlace::query("key")],
    },
    Known { host: ".openai.azure.com", places: &[AUTHORIZATION, KeyPlace::header("api-key")] },
    Known { host: "github.com", places: &[AUTHORIZATION] },
    Known { host: ".github.com", places: &[AUTHORIZATION] },
    Known {
        host: "gitlab.com",
        places: &[AUTHORIZATION, KeyPlace::header("private-token"), KeyPlace::header("job-token")],
    },
    Known {
        host: ".amazonaws.com",
        places: &[
            AUTHORIZATION,
            KeyPlace::header("x-amz-security-token"),
            KeyPlace::query("X-Amz-Security-Token"),
        ],
    },
];

/// Headers made for keys, whoever asks for them. Of a query nothing is made for a key unless somebody says so; the token of
/// an AWS session is there in presigned URLs.
const ELSEWHERE: &[KeyPlace] = &[
    AUTHORIZATION,
    KeyPlace::header("x-api-key"),
    KeyPlace::header("api-key"),
    KeyPlace::header("x-goog-api-key"),
    KeyPlace::header("x-auth-token"),
    KeyPlace::header("private-token"),
    KeyPlace::header("x-amz-security-token"),
    KeyPlace::query("X-Amz-Security-Token"),
];

/// Where a key for `host` stands, when its secret declares nothing else.
pub(crate) fn usual(host: &Host) -> &'static [KeyPlace] {
    let Host::Name(name) = host else { return ELSEWHERE };
    let is = |known: &&Known| match known.host.strip_prefix('.') {
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
        assert!(usual("generativelanguage.googleapis.com").contains(&KeyPlace::query("key")));
        for name in ["evil-googleapis.com", "googleapis.com", "api.openai.com.evil.test", "any.test"] {
            assert_eq!(usual(name), ELSEWHERE, "{name}");
        }
        let queries = ELSEWHERE.iter().filter(|place| matches!(place, KeyPlace::Query(_))).count();
        assert_eq!(queries, 1, "a parameter has to be declared");
    }
}
