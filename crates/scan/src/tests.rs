use proptest::prelude::*;

use super::*;

fn text(input: &str) -> String {
    String::from_utf8(redact(input.as_bytes()).clean).unwrap()
}

/// Built from parts, so that no scanner takes this file for a leak.
fn fake(prefix: &str, length: usize) -> String {
    let body = "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8s9T0";
    prefix.chars().chain(body.chars().cycle().take(length)).collect()
}

#[test]
fn s002_10_and_the_misses_of_a2_and_a3_are_found() {
    let upper: String = fake("AKIA", 16).to_ascii_uppercase();
    let jwt = [fake("eyJ", 20), fake("eyJ", 30), fake("", 30)].join(".");
    for (rule, secret) in [
        ("anthropic-key", fake("sk-ant-api03-", 80)),
        ("openai-project-key", fake("sk-proj-", 48)),
        ("openai-key", fake("sk-", 48)),
        ("openrouter-key", fake("sk-or-v1-", 64)),
        ("github-token", fake("ghp_", 36)),
        ("github-oauth-token", fake("gho_", 36)),
        ("github-fine-grained-token", fake("github_pat_", 82)),
        ("aws-key-id", upper),
        ("gitlab-token", fake("glpat-", 20)),
        ("slack-token", fake("xoxb-1234567890-", 24)),
        ("slack-token", fake("xoxp-1234567890-", 24)),
        ("npm-token", fake("npm_", 36)),
        ("huggingface-token", fake("hf_", 34)),
        ("google-key", fake("AIza", 35)),
        ("stripe-key", fake("sk_live_", 24)),
        ("stripe-key", fake("rk_live_", 24)),
        ("telegram-token", fake("1234567890:AA", 33)),
        ("jwt", jwt),
    ] {
        for around in [("", ""), ("x=", " y"), ("\"", "\""), ("é ", "\n")] {
            let input = format!("{}{secret}{}", around.0, around.1);
            assert_eq!(text(&input), format!("{}[redacted:{rule}]{}", around.0, around.1));
        }
    }
}

#[test]
fn aws_secret_keys_are_found_by_their_name() {
    let secret = fake("", 40);
    let shown = text(&format!("AWS_SECRET_ACCESS_KEY={secret} aws s3 ls"));
    assert!(!shown.contains(&secret) && shown.ends_with(" aws s3 ls"), "{shown}");
}

#[test]
fn a_private_key_goes_as_a_whole_block() {
    for kind in ["RSA ", "", "ENCRYPTED ", "OPENSSH ", "EC ", "PGP "] {
        let tail = if kind == "PGP " { " BLOCK" } else { "" };
        let block =
            format!("-----BEGIN {kind}PRIVATE KEY{tail}-----\nMIIabc\n-----END {kind}PRIVATE KEY{tail}-----");
        assert_eq!(text(&format!("a {block} b")), "a [redacted:private-key] b");
        let cut = block.get(..block.len() - 30).unwrap();
        assert_eq!(text(&format!("a {cut}")), "a [redacted:private-key]");
    }
}

#[test]
fn values_in_context_are_taken_out_and_the_context_stays() {
    let token = fake("", 24);
    for (input, expected) in [
        (format!("Authorization: Bearer {token}"), "Authorization: Bearer [redacted:bearer-token]"),
        ("Authorization: Basic dXNlcjpwYXNz".to_owned(), "Authorization: Basic [redacted:authorization]"),
        ("postgres://app:hunter2@db/x".to_owned(), "postgres://app:[redacted:url-password]@db/x"),
        ("https://u:p@ss@w@host/path@x".to_owned(), "https://u:[redacted:url-password]@host/path@x"),
        ("redis://:pw@h:1".to_owned(), "redis://:[redacted:url-password]@h:1"),
        (format!("https://{token}@git.example/x"), "https://[redacted:url-token]@git.example/x"),
        ("tool --password=abc x".to_owned(), "tool --password=[redacted:option] x"),
        ("tool --db-token 'hunter22' x".to_owned(), "tool --db-token '[redacted:option]' x"),
        (format!("DB_PASSWORD={token}"), "DB_PASSWORD=[redacted:assignment]"),
        (format!("\"api_key\": \"{token}\""), "\"api_key\": \"[redacted:assignment]\""),
    ] {
        assert_eq!(text(&input), expected);
    }
}

#[test]
fn ordinary_text_is_left_alone() {
    for input in [
        "550e8400-e29b-41d4-a716-446655440000",
        "da39a3ee5e6b4b0d3255bfef95601890afd80709",
        "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "sk-learn",
        "sk-internationalization-of-things",
        "task-1234567890abcdef1234567890abcdef",
        "1700000000:abcdefghijklmnopqrstuvwxyz012345678",
        "BSAabcdefghijklmnopqrstuvwxyz",
        "https://example.org/a@b",
        "https://user@host/x",
        "git@github.com:owner/name.git",
        "http://h:8080/x@y",
        "https://u:$PASS@host",
        "bearer authentication-documentation",
        "token=$TOKEN",
        "password: <password>",
        "the secret: never tell anybody",
        "npm_config_registry=https://registry.example.com",
        "xoxo-hugs-and-kisses",
        "cargo test -p ringfence-scan --all-features",
        "add the option --password to the tool",
        "tool --token-file=/run/t1 --token=$TOKEN --password <password1>",
        "-----BEGIN PUBLIC KEY-----\nMFkw\n-----END PUBLIC KEY-----",
        "-----BEGIN CERTIFICATE-----",
        "AKIAshort",
        "eyJhbGciOi.no",
        "hf_transfer",
        "",
        "é",
    ] {
        assert_eq!(text(input), input);
    }
}

#[test]
fn findings_point_at_the_secret_in_the_input() {
    let secret = fake("ghp_", 36);
    let input = format!("a {secret} b {secret}");
    let findings = redact(input.as_bytes()).findings;
    assert_eq!(findings.len(), 2);
    assert!(findings.iter().all(|f| input.get(f.start..f.end) == Some(secret.as_str())));
}

fn argv(args: &[&str]) -> Vec<String> {
    redact_argv(args).0.into_iter().map(|arg| String::from_utf8(arg).unwrap()).collect()
}

#[test]
fn s004_17_secrets_in_options_are_taken_out() {
    for (given, expected) in [
        (&["x", "--password=abc", "y"][..], &["x", "--password=[redacted:option]", "y"][..]),
        (&["x", "--token", "abc", "y"], &["x", "--token", "[redacted:option]", "y"]),
        (&["x", "--db-password", "a"], &["x", "--db-password", "[redacted:option]"]),
        (&["x", "--API_KEY=a"], &["x", "--API_KEY=[redacted:option]"]),
        (&["/usr/bin/curl", "-u", "me:pw", "h"], &["/usr/bin/curl", "-u", "me:[redacted:option]", "h"]),
        (&["sshpass", "-p", "pw", "ssh"], &["sshpass", "-p", "[redacted:option]", "ssh"]),
    ] {
        assert_eq!(argv(given), expected);
    }
}

#[test]
fn other_options_are_left_alone() {
    for given in [
        &["x", "--password", "--verbose"][..],
        &["x", "--token=$TOKEN"],
        &["x", "--token-file", "/run/t"],
        &["docker", "run", "-u", "1000:1000", "-p", "80:80"],
        &["x", "--no-password", "db"],
        &["x", "--password="],
        &["--token", "x"],
        &["x", "--tokenizer", "bpe"],
        &["curl", "-u", "me"],
        &[],
    ] {
        assert_eq!(argv(given), given);
    }
}

#[test]
fn a_finding_in_argv_names_its_argument() {
    let (_, findings) = redact_argv(&["x", "y", "--token", "abc"]);
    let [(3, finding)] = findings.as_slice() else { panic!("{findings:?}") };
    assert_eq!((&*finding.rule, finding.start, finding.end), ("option", 0, 3));
}

proptest! {
    #[test]
    fn what_is_outside_the_findings_is_kept(input in proptest::collection::vec(any::<u8>(), 0..256)) {
        let redacted = redact(&input);
        if redacted.findings.is_empty() {
            prop_assert_eq!(redacted.clean, input);
        } else {
            prop_assert!(redacted.findings.iter().all(|f| f.start < f.end && f.end <= input.len()));
        }
    }

    // What is assigned to a mark (`[redacted:github-token]: …`) is judged like any value with such a name: no `:=,(` here.
    #[test]
    fn a_second_pass_finds_nothing(before in "[ -~]{0,30}", after in "[ -~&&[^:=,(]]{0,30}", n in 36_usize..60) {
        let input = format!("{before} {} {after}", fake("ghp_", n));
        let once = redact(input.as_bytes()).clean;
        prop_assert_eq!(&redact(&once).clean, &once);
        prop_assert!(!String::from_utf8(once).unwrap().contains("ghp_a1B2"));
    }
}

/// Bodies of requests are shared between the threads of a server.
#[test]
fn streams_can_be_sent_and_shared() {
    fn is_shared<T: Send + Sync>(_: &T) {}
    is_shared(&Scanner::built_in().stream().with_threads());
    is_shared(&LazyScanner::default().stream_with_threads());
}

#[test]
fn a_value_that_is_cut_over_arguments_is_found() {
    let token = fake(concat!("gh", "p_"), 36);
    let stored = "correct horse battery";
    let scanner = LazyScanner::new([("KEY", stored.as_bytes())], || None).unwrap();
    let encoded: String = stored.bytes().map(|byte| format!("{byte:02x}")).collect();
    for (argv, shown) in [
        (vec!["join", token.get(..9).unwrap(), token.get(9..).unwrap(), "x"], vec!["join", "*", "*", "x"]),
        (vec!["echo", "a=correct", "horse", "battery!"], vec!["echo", "a=*", "*", "*!"]),
        (
            vec!["sh", encoded.get(..11).unwrap(), encoded.get(11..20).unwrap(), encoded.get(20..).unwrap()],
            vec!["sh", "*", "*", "*"],
        ),
        (vec!["echo", "correct", "horses", "battery"], vec!["echo", "correct", "horses", "battery"]),
        (vec!["git", "commit", "-m", "token", "handling"], vec!["git", "commit", "-m", "token", "handling"]),
    ] {
        let (clean, findings) = scanner.redact_argv(&argv);
        let clean: Vec<String> = clean.into_iter().map(|arg| String::from_utf8(arg).unwrap()).collect();
        let rule = findings.first().map(|(_, finding)| format!("[redacted:{}]", finding.rule));
        let shown: Vec<String> =
            shown.iter().map(|arg| arg.replace('*', rule.as_deref().unwrap_or_default())).collect();
        assert_eq!(clean, shown);
        assert_eq!(findings.len(), usize::from(clean != argv), "{argv:?}");
    }
}
