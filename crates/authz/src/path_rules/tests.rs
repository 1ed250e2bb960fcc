use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use proptest::prelude::*;
use ringfence_types::PathDecision::{Hidden, HiddenUnlessPublic, Open};

use super::*;

mod files;

fn judge(path: &str) -> PathDecision {
    PathRules::default().judge(Path::new(path))
}

#[test]
fn s000_17_the_deny_list() {
    for path in [
        ".env",
        ".env.local",
        ".env.production",
        "a/b/.env",
        "a/.env.test",
        "credentials.json",
        "a/credentials.json",
        "x/server.key",
        "client_secret_1.json",
        "secrets.yml",
        "db_password.txt",
        "PASSWORDS",
        ".secrets",
        "my-secret",
        "my.secret",
        "app.password",
        "a/b.PASSWORDS",
        "secrets.tar.gz",
        "passwords.zip",
        "secrets.age",
        "a/secret",
        "terraform.tfstate",
        "a/prod.tfstate.backup",
    ] {
        assert_eq!(judge(path), Hidden, "{path}");
    }
    for path in ["a/cert.pem", "ca.crt", "x.cer", "tls.CERT", "a.der", ".npmrc", "a/.NPMRC", ".npmrc.bak"] {
        assert_eq!(judge(path), HiddenUnlessPublic, "{path}");
    }
}

#[test]
fn key_files_and_login_files_are_hidden() {
    for path in [
        "id_rsa",
        "keys/id_ed25519",
        "id_ecdsa",
        "id_dsa",
        "a.p12",
        "a.pfx",
        "a.jks",
        "release.keystore",
        "x.kdbx",
        ".netrc",
        "_netrc",
        ".pgpass",
        ".git-credentials",
        ".pypirc",
        ".aws/credentials",
        "home/.docker/config.json",
        ".kube/config",
        ".ssh/work",
        ".gnupg/x",
        ".cargo/credentials.toml",
        ".key",
        ".envrc",
        "production.env",
        ".env-prod",
        ".env_prod",
        "AuthKey_ABC.p8",
        ".git/credentials",
    ] {
        assert_eq!(judge(path), Hidden, "{path}");
    }
}

#[test]
fn backups_and_letter_case_do_not_uncover() {
    for path in [
        ".ENV",
        "Server.KEY",
        ".Env.Local",
        "ID_RSA",
        ".env~",
        ".env.bak",
        "id_rsa.old",
        "server.key.orig.bak",
        "id_rsa~",
        "#.env#",
        ".#id_rsa",
        ".id_rsa.swp",
        "..netrc.swp",
        ".git-credentials.lock",
    ] {
        assert_eq!(judge(path), Hidden, "{path}");
    }
}

#[test]
fn keys_with_names_of_peoples_own_are_hidden() {
    for path in [
        "id_rsa2",
        "id_rsa_backup",
        "a/id_ed25519_github",
        "id_ecdsa-work",
        "ssh_host_rsa_key",
        ".ssh/client/key",
    ] {
        assert_eq!(judge(path), Hidden, "{path}");
    }
    for path in [
        "id_rsa_parser.rs",
        "id_ed25519_github.pub",
        "id_rsakey",
        "ssh_host_rsa_key.pub",
        ".ssh/config",
        "Cargo.lock",
        ".main.rs.swp",
    ] {
        assert_eq!(judge(path), Open, "{path}");
    }
}

#[test]
fn dots_and_spaces_at_the_end_do_not_uncover() {
    for path in [
        ".env.",
        ".env ",
        "id_rsa.",
        "id_rsa. .",
        "x.key.",
        ".ssh./work",
        "a/.ssh/./work",
        ".ssh//work",
        "a/./.env/.",
    ] {
        assert_eq!(judge(path), Hidden, "{path:?}");
    }
    assert_eq!(judge("ca.pem."), HiddenUnlessPublic);
    assert_eq!(judge("main.rs."), Open);
}

#[test]
fn s000_19_examples_are_open() {
    for path in [
        ".env.example",
        ".env.sample",
        ".env.template",
        ".env.dist",
        ".env.local.example",
        "a/.env-example",
        "secrets.example.yml",
        "credentials.sample.json",
        "password.txt.template",
        "example.env",
        "id_rsa.pub",
        "server.key.example",
        ".ENV.EXAMPLE",
        "secret.json.dist",
    ] {
        assert_eq!(judge(path), Open, "{path}");
    }
}

#[test]
fn an_example_that_was_filled_in_is_hidden() {
    for path in [".env.sample.local", ".env.example.prod", "server.example.key"] {
        assert_eq!(judge(path), Hidden, "{path}");
    }
}

#[test]
fn c12_source_code_and_documents_are_open() {
    for path in [
        "src/password_reset.rs",
        "secret_test.go",
        "docs/secrets.md",
        "password.html",
        "img/secret.png",
        "migrations/1_add_password.sql",
        "Secret.java",
        "usePassword.tsx",
        "main.rs",
        "README",
        "Cargo.toml",
        "env",
        "bin/env",
        ".environment",
        ".envoy.yaml",
        "key",
        "pem",
        "keys.rs",
        "config",
        "config.json",
        "credentials",
        ".ssh/config",
        "known_hosts",
        "..foo",
        "",
    ] {
        assert_eq!(judge(path), Open, "{path}");
    }
}

#[test]
fn names_in_git_and_build_directories_are_not_guessed_about() {
    for path in [
        ".git/refs/heads/fix-password",
        ".git/logs/refs/heads/server.key",
        "sub/.git/refs/tags/secret",
        "mirror.git/refs/heads/fix-password",
        "target/debug/.fingerprint/secret-service-1/lib-secret_service",
        "node_modules/secret/secret.json",
        "lib/python3/site-packages/password.txt",
    ] {
        assert_eq!(judge(path), Open, "{path}");
    }
    for path in ["node_modules/x/.env", "target/id_rsa", "targets/secret.json", "mirror.git/.env"] {
        assert_eq!(judge(path), Hidden, "{path}");
    }
}

#[test]
fn every_refusal_has_a_reason() {
    let rule = built_in::explain(Path::new("a/.env")).unwrap();
    assert_eq!((rule.name.word(), rule.pattern, rule.verdict), ("path.environment", ".env*", Hidden));
}

#[test]
fn a_walk_of_100k_names_costs_little() {
    let names: Vec<String> =
        (0..1000).map(|n| format!("crates/part_{n}/src/module_{n}/file_{n}.rs")).collect();
    let start = std::time::Instant::now();
    let open = (0..100).flat_map(|_| &names).filter(|name| judge(name) == Open).count();
    let elapsed = start.elapsed();
    assert_eq!(open, 100_000);
    // Unoptimised, on a shared machine: a guard against a quadratic mistake, not a benchmark.
    assert!(elapsed.as_secs() < 5, "{elapsed:?}");
    println!("{:?} per name", elapsed / 100_000);
}

proptest! {
    #[test]
    fn any_bytes_are_judged(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        let path = Path::new(OsStr::from_bytes(&bytes));
        let rules = PathRules::default();
        prop_assert_eq!(rules.judge(path) == Open, built_in::explain(path).is_none());
    }

    #[test]
    fn no_directory_uncovers_a_fact(dir in "[a-zA-Z0-9._/ -]{0,20}") {
        prop_assume!(!dir.to_ascii_lowercase().split('/').any(|part| part == ".git"));
        for name in [".env", "id_rsa", "x.key", ".netrc", "credentials.json"] {
            let path = [&dir, "/", name].concat();
            prop_assert_eq!(judge(&path), Hidden);
        }
    }

    #[test]
    fn letter_case_never_matters(path in "[a-zA-Z._]{0,6}(env|ENV|key|Pem|Secret|example|json|rs)?[.~]?[a-zA-Z]{0,4}") {
        prop_assert_eq!(judge(&path), judge(&path.to_ascii_uppercase()));
        prop_assert_eq!(judge(&path), judge(&path.to_ascii_lowercase()));
    }

    #[test]
    fn a_name_around_undecodable_bytes_is_still_seen(junk in proptest::collection::vec(128_u8..=255, 1..8)) {
        let mut name = junk;
        name.extend_from_slice(b".key");
        prop_assert_eq!(PathRules::default().judge(Path::new(OsStr::from_bytes(&name))), Hidden);
    }
}
