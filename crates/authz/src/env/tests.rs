use proptest::prelude::*;

use ringfence_types::{PolicyLayer, Profile};

use super::*;
use crate::judgement::RuleSource;

/// Verbatim from appendix C and S002-7. Kept apart from the table on purpose: the table may be rewritten, this may not.
const ALWAYS_BLOCKED: &str = "NODE_OPTIONS NODE_PATH PYTHONHOME PYTHONPATH PERL5LIB PERL5OPT RUBYLIB RUBYOPT BASH_ENV ENV BROWSER GIT_EDITOR GIT_EXTERNAL_DIFF GIT_DIR GIT_WORK_TREE GIT_COMMON_DIR GIT_EXEC_PATH GIT_INDEX_FILE GIT_OBJECT_DIRECTORY GIT_ALTERNATE_OBJECT_DIRECTORIES GIT_NAMESPACE GIT_SEQUENCE_EDITOR GIT_TEMPLATE_DIR GIT_SSL_NO_VERIFY GIT_SSL_CAINFO GIT_SSL_CAPATH KUBECONFIG GOOGLE_APPLICATION_CREDENTIALS AWS_SHARED_CREDENTIALS_FILE AWS_WEB_IDENTITY_TOKEN_FILE AZURE_AUTH_LOCATION CC CXX CARGO_BUILD_RUSTC CARGO_BUILD_RUSTC_WRAPPER RUSTC_WRAPPER CARGO_HOME CMAKE_C_COMPILER CMAKE_CXX_COMPILER HELM_HOME DOCKER_HOST SHELL SHELLOPTS PS4 GCONV_PATH IFS SSLKEYLOGFILE JAVA_OPTS JAVA_TOOL_OPTIONS _JAVA_OPTIONS JDK_JAVA_OPTIONS PYTHONBREAKPOINT DOTNET_STARTUP_HOOKS DOTNET_ADDITIONAL_DEPS GLIBC_TUNABLES MAVEN_OPTS MAKEFLAGS MFLAGS SBT_OPTS GRADLE_OPTS ANT_OPTS HGRCPATH DYLD_X LD_X BASH_FUNC_X";
const BLOCKED_AS_OVERRIDE: &str = "HOME GRADLE_USER_HOME ZDOTDIR GIT_SSH_COMMAND GIT_SSH GIT_PROXY_COMMAND GIT_ASKPASS SSH_ASKPASS LESSOPEN LESSCLOSE PAGER MANPAGER GIT_PAGER EDITOR VISUAL FCEDIT SUDO_EDITOR PROMPT_COMMAND HISTFILE PERL5DB PERL5DBCMD OPENSSL_CONF OPENSSL_ENGINES PYTHONSTARTUP WGETRC CURL_HOME CLASSPATH CGO_CFLAGS CGO_LDFLAGS GOFLAGS CORECLR_PROFILER_PATH PHPRC PHP_INI_SCAN_DIR DENO_DIR BUN_CONFIG_REGISTRY YARN_RC_FILENAME HTTP_PROXY HTTPS_PROXY ALL_PROXY NO_PROXY NODE_TLS_REJECT_UNAUTHORIZED NODE_EXTRA_CA_CERTS SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE CURL_CA_BUNDLE DOCKER_TLS_VERIFY DOCKER_CERT_PATH DOCKER_CONTEXT PIP_INDEX_URL PIP_PYPI_URL PIP_EXTRA_INDEX_URL PIP_CONFIG_FILE PIP_FIND_LINKS PIP_TRUSTED_HOST UV_INDEX UV_INDEX_URL UV_PYTHON UV_EXTRA_INDEX_URL UV_DEFAULT_INDEX LIBRARY_PATH CPATH C_INCLUDE_PATH CPLUS_INCLUDE_PATH OBJC_INCLUDE_PATH GOPROXY GONOSUMCHECK GONOSUMDB GONOPROXY GOPRIVATE GOENV GOPATH PYTHONUSERBASE RUSTFLAGS VIRTUAL_ENV LUA_PATH LUA_CPATH GEM_HOME GEM_PATH BUNDLE_GEMFILE COMPOSER_HOME XDG_CONFIG_HOME AWS_CONFIG_FILE GIT_CONFIG_X NPM_CONFIG_X CARGO_REGISTRIES_X";
const S002_7: &str = "LD_PRELOAD LD_LIBRARY_PATH DYLD_INSERT_LIBRARIES DYLD_LIBRARY_PATH PYTHONPATH PYTHONSTARTUP NODE_OPTIONS RUBYOPT PERL5OPT PERL5LIB BASH_ENV ENV";
const S000_32: &str = "AWS_REGION GCP_PROJECT AZURE_X DATABASE_URL REDIS_URL SSH_AUTH_SOCK GPG_AGENT_INFO";
const S004_16: &str = "AWS_X API_KEY MY_APIKEY MY_TOKEN MY_SECRET MY_PASSWORD MY_PASS MY_PWD GITHUB_TOKEN ANTHROPIC_API_KEY OPENAI_API_KEY";
const SANDBOX_LIST: &str = "TELEGRAM_BOT_TOKEN SLACK_APP_TOKEN AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN GH_TOKEN MY_PRIVATE_KEY X_API_KEY_2";

fn check(name: &str, value: &str) -> Result<(), Refusal> {
    check_addition(&ByteString::from(name), &ByteString::from(value), &EnvRules::default())
}

#[test]
fn s002_7_every_listed_name_is_refused_by_name() {
    let lists = [ALWAYS_BLOCKED, BLOCKED_AS_OVERRIDE, S002_7, S000_32, S004_16, SANDBOX_LIST];
    for name in lists.iter().flat_map(|list| list.split(' ')) {
        for spelled in [name.to_owned(), name.to_ascii_lowercase()] {
            let refusal = check(&spelled, "x").expect_err(&spelled);
            assert_eq!(refusal.code, RefusalCode::Environment);
            assert!(refusal.message.contains(&format!("`{spelled}`")), "{refusal}");
        }
    }
}

#[test]
fn ordinary_names_are_allowed() {
    for name in [
        "FOO",
        "_x",
        "RUST_LOG",
        "RUST_BACKTRACE",
        "NODE_ENV",
        "DEBUG",
        "PORT",
        "TERM",
        "LANG",
        "LC_ALL",
        "CI",
        "TZ",
        "GIT_AUTHOR_NAME",
        "GIT_COMMITTER_DATE",
        "CARGO_TARGET_DIR",
        "CARGO_TERM_COLOR",
        "CARGO_NET_OFFLINE",
        "TOKENIZERS_PARALLELISM",
        "MAX_TOKENS",
        "PYTHONUNBUFFERED",
        "PYTHONDONTWRITEBYTECODE",
        "CFLAGS",
        "VERBOSE",
        "DEBIAN_FRONTEND",
        "NO_COLOR",
        "GOMAXPROCS",
        "GOOS",
        "PASSING",
        "LDFLAGS",
    ] {
        assert_eq!(check(name, "1"), Ok(()), "{name}");
    }
}

#[test]
fn s000_33_our_own_names_are_reserved() {
    for name in ["RINGFENCE_SESSION_ID", "RINGFENCE_X", "ringfence_x"] {
        assert_eq!(check(name, "x").unwrap_err().rule, "env.reserved");
    }
}

#[test]
fn malformed_names_and_values_are_refused() {
    for name in ["", "A=B", "A\0", "1A", "A B", "A-B", "é", "A\n"] {
        assert_eq!(check(name, "x").unwrap_err().rule, "env.name", "{name:?}");
    }
    assert_eq!(check("A", "x\0y").unwrap_err().rule, "env.value");
    assert_eq!(check("A", &"x".repeat(MAX_VALUE + 1)).unwrap_err().rule, "env.value");
    assert_eq!(check("A", &"x".repeat(MAX_VALUE)), Ok(()));
}

#[test]
fn s000_28_only_the_allowlist_passes_from_the_host() {
    let host: EnvVars = [
        ("USER", "u"),
        ("LANG", "de_DE.UTF-8"),
        ("LC_TIME", "C"),
        ("TERM", "xterm"),
        ("PATH", "/evil"),
        ("HOME", "/home/u"),
        ("ANTHROPIC_API_KEY", "sk"),
        ("LD_PRELOAD", "/x.so"),
        ("SSH_AUTH_SOCK", "/s"),
        ("RINGFENCE_SESSION_ID", "old"),
        ("SHELL", "/bin/zsh"),
        ("TZ", "a\u{1b}[2J"),
        ("LC_A=B", "x"),
        ("lang", "x"),
    ]
    .map(|(name, value)| (ByteString::from(name), ByteString::from(value)))
    .to_vec();
    let names = |variables: &EnvVars| variables.iter().map(|(name, _)| name.display()).collect::<Vec<_>>();
    assert_eq!(
        names(&base(&host, ApproverPresence::Terminal, &EnvRules::default())),
        ["USER", "LANG", "LC_TIME", "TERM", "PATH", "SHELL", "GIT_TERMINAL_PROMPT"]
    );
    let unattended = base(&host, ApproverPresence::Unattended, &EnvRules::default());
    assert!(unattended.contains(&(ByteString::from("CI"), ByteString::from("true"))));
    assert!(unattended.contains(&(ByteString::from("PATH"), ByteString::from(FIXED[0].1))));
}

/// In Big5, GBK and Shift JIS a letter may end with the byte of a backslash.
#[test]
fn a_character_set_that_hides_ascii_is_a_question_and_reaches_no_judged_shell() {
    for plain in ["", "C", "POSIX", "C.UTF-8", "en_US.utf8", "de_DE.UTF-8@euro", "zh_TW.UTF-8"] {
        for name in ["LANG", "LC_ALL", "LC_CTYPE"] {
            assert!(is_harmless(name.as_bytes(), plain.as_bytes()), "{name}={plain}");
        }
    }
    for foreign in
        ["zh_TW", "zh_TW.BIG5", "zh_CN.GBK", "ja_JP.SJIS", "C.GBK", "UTF-8", "zh_TW.BIG5@UTF-8", "big5"]
    {
        for name in ["LANG", "LC_ALL", "LC_CTYPE"] {
            assert!(!is_harmless(name.as_bytes(), foreign.as_bytes()), "{name}={foreign}");
        }
        assert!(is_harmless(b"LC_TIME", foreign.as_bytes()), "{foreign}");
    }
    let pairs = |pairs: &[(&str, &str)]| -> EnvVars {
        pairs.iter().map(|(name, value)| (ByteString::from(*name), ByteString::from(*value))).collect()
    };
    let host =
        pairs(&[("LANG", "zh_TW.BIG5"), ("LC_CTYPE", "zh_TW"), ("LC_TIME", "zh_TW"), ("TERM", "xterm")]);
    let policy = |profile| Policy::new(profile);
    assert_eq!(without_foreign_character_sets(host.clone(), &policy(Profile::Workspace)), host);
    assert_eq!(
        without_foreign_character_sets(host, &policy(Profile::Guarded)),
        pairs(&[("LC_TIME", "zh_TW"), ("TERM", "xterm"), ("LANG", "C.UTF-8")])
    );
}

#[test]
fn an_empty_host_still_gives_a_locale() {
    assert!(
        base(&[], ApproverPresence::Terminal, &EnvRules::default())
            .contains(&(ByteString::from("LANG"), ByteString::from("C.UTF-8")))
    );
}

#[test]
fn s000_29_the_command_is_told_where_it_runs() {
    let (session, workspace) =
        (SessionId::random().unwrap(), WorkspaceId::of_canonical_path(Path::new("/w")));
    let names: Vec<_> =
        injected(&session, &workspace, Path::new("/w")).into_iter().map(|(n, _)| n.display()).collect();
    assert_eq!(names, ["RINGFENCE_SESSION_ID", "RINGFENCE_WORKSPACE_ID", "RINGFENCE_WORKSPACE_DIR"]);
}

#[test]
fn additions_replace_what_they_name() {
    let base = vec![
        (ByteString::from("TERM"), ByteString::from("dumb")),
        (ByteString::from("A"), ByteString::from("1")),
    ];
    let merged = merge(
        base,
        &[
            (ByteString::from("TERM"), ByteString::from("xterm")),
            (ByteString::from("TERM"), ByteString::from("vt100")),
        ],
    );
    assert_eq!(merged.len(), 2);
    assert!(merged.contains(&(ByteString::from("TERM"), ByteString::from("vt100"))));
}

#[test]
fn no_rule_is_shadowed_by_an_earlier_one() {
    let mut seen = std::collections::BTreeSet::new();
    for name in FAMILIES.iter().flat_map(|family| family.names) {
        assert!(seen.insert(name.to_string()), "{name} is listed twice");
    }
}

fn rule(effect: EnvEffect, pattern: &str, layer: PolicyLayer) -> EnvRule {
    EnvRule {
        effect,
        pattern: EnvPattern::parse(pattern).unwrap(),
        source: RuleSource { layer, origin: None, reason: None },
    }
}

fn operator(rules: &[(EnvEffect, &str)]) -> EnvRules {
    EnvRules::new(
        rules.iter().map(|(effect, pattern)| rule(*effect, pattern, PolicyLayer::Operator)).collect(),
    )
}

fn accepted(rules: &EnvRules, name: &str) -> bool {
    check_addition(&ByteString::from(name), &ByteString::from("x"), rules).is_ok()
}

fn inherited(rules: &EnvRules, name: &str) -> bool {
    let host = [(ByteString::from(name), ByteString::from("from the host"))];
    base(&host, ApproverPresence::Unattended, rules).contains(&host[0])
}

#[test]
fn c14_an_operator_opens_steering_names_one_by_one() {
    let rules = operator(&[
        (EnvEffect::Allow, "NODE_OPTIONS"),
        (EnvEffect::Allow, "RUSTFLAGS"),
        (EnvEffect::Allow, "GITHUB_TOKEN"),
        (EnvEffect::Allow, "GO*"),
        (EnvEffect::Allow, "*_PROXY"),
    ]);
    for name in ["NODE_OPTIONS", "RUSTFLAGS", "GITHUB_TOKEN", "FOO"] {
        assert!(accepted(&rules, name), "{name}");
    }
    for name in ["node_options", "NODE_PATH", "GOFLAGS", "HTTPS_PROXY", "GITLAB_TOKEN", "RUSTDOCFLAGS"] {
        assert!(!accepted(&rules, name), "{name}");
    }
}

#[test]
fn c14_the_floor_is_not_for_sale() {
    for name in [
        "LD_PRELOAD",
        "BASH_ENV",
        "ENV",
        "IFS",
        "GIT_CONFIG_COUNT",
        "GIT_SSH_COMMAND",
        "PATH",
        "HOME",
        "GIT_PAGER",
        "PAGER",
        "EDITOR",
        "GCONV_PATH",
        "BASH_FUNC_x",
        "RINGFENCE_SESSION_ID",
        "XDG_CONFIG_HOME",
    ] {
        let rules = operator(&[(EnvEffect::Allow, name), (EnvEffect::Inherit, name)]);
        assert!(!accepted(&rules, name), "{name}");
        assert!(!inherited(&rules, name), "{name}");
        let refused = rule(EnvEffect::Allow, name, PolicyLayer::Operator).check();
        assert!(matches!(refused, Err(EnvRuleError::Floor(..))), "{name}: {refused:?}");
    }
}

#[test]
fn s004_16_denials_hold_for_what_the_host_the_operator_and_a_call_bring() {
    let rules = operator(&[
        (EnvEffect::Deny, "*_TOKENS"),
        (EnvEffect::Deny, "ACME_*"),
        (EnvEffect::Deny, "*internal*"),
        (EnvEffect::Deny, "TZ"),
        (EnvEffect::Inherit, "ACME_URL"),
        (EnvEffect::Allow, "ACME_API_KEY"),
    ]);
    for name in
        ["MAX_TOKENS", "max_tokens", "ACME_X", "acme_x", "MY_INTERNAL_URL", "TZ", "ACME_API_KEY", "ACME_URL"]
    {
        assert!(!accepted(&rules, name), "{name}");
        assert!(!inherited(&rules, name), "{name}");
    }
    assert!(accepted(&rules, "OTHER") && inherited(&rules, "TERM"));
    let refusal = check_addition(&ByteString::from("ACME_X"), &ByteString::from("x"), &rules).unwrap_err();
    assert_eq!((refusal.rule.as_str(), refusal.layer), ("env.ACME_*", PolicyLayer::Operator));
    assert!(refusal.hint.is_some());
}

#[test]
fn s000_32_the_host_passes_on_what_the_operator_names() {
    let rules = operator(&[
        (EnvEffect::Inherit, "MYAPP_*"),
        (EnvEffect::Inherit, "GITHUB_TOKEN"),
        (EnvEffect::Inherit, "VIRTUAL_ENV"),
    ]);
    for name in ["MYAPP_MODE", "GITHUB_TOKEN", "VIRTUAL_ENV"] {
        assert!(inherited(&rules, name), "{name}");
        assert!(!inherited(&EnvRules::default(), name), "{name}");
    }
    for name in
        ["MYAPP_SECRET", "MYAPP_API_KEY", "MYAPP_KEY", "github_token", "OTHER", "MYAPP_A=B", "GITLAB_TOKEN"]
    {
        assert!(!inherited(&rules, name), "{name}");
    }
    let fixed = [(ByteString::from("CI"), ByteString::from("no"))];
    let ours = base(&fixed, ApproverPresence::Unattended, &operator(&[(EnvEffect::Inherit, "CI")]));
    let values: Vec<_> =
        ours.iter().filter(|(name, _)| name.as_slice() == b"CI").map(|(_, value)| value).collect();
    assert_eq!(values, [&ByteString::from("true")], "what the fence sets stays");
    let long = [(ByteString::from("MYAPP_MODE"), ByteString::from("x".repeat(MAX_VALUE + 1).as_str()))];
    assert!(!base(&long, ApproverPresence::Unattended, &rules).contains(&long[0]));
}

#[test]
fn c10_layers_below_the_operator_only_narrow() {
    for layer in [PolicyLayer::Workspace, PolicyLayer::Session, PolicyLayer::Call] {
        let rules = EnvRules::new(vec![
            rule(EnvEffect::Allow, "NODE_OPTIONS", layer),
            rule(EnvEffect::Inherit, "MYAPP_MODE", layer),
            rule(EnvEffect::Deny, "FOO", layer),
        ]);
        assert!(!accepted(&rules, "NODE_OPTIONS") && !inherited(&rules, "MYAPP_MODE"));
        assert!(!accepted(&rules, "FOO"));
    }
}

#[test]
fn rules_without_effect_are_mistakes() {
    let check = |effect, pattern: &str| rule(effect, pattern, PolicyLayer::Operator).check();
    for pattern in ["*_TOKEN", "AWS_*", "*_KEY", "*SECRET*", "GO*", "*FLAGS", "NODE_*", "LD_*", "GIT_*"] {
        for effect in [EnvEffect::Allow, EnvEffect::Inherit] {
            let error = check(effect, pattern).expect_err(pattern);
            assert!(matches!(error, EnvRuleError::Pattern(_)), "{pattern}: {error}");
        }
        assert_eq!(check(EnvEffect::Deny, pattern), Ok(()));
    }
    assert_eq!(check(EnvEffect::Inherit, "MYAPP_*"), Ok(()));
    assert_eq!(check(EnvEffect::Inherit, "GITHUB_TOKEN"), Ok(()));
    assert_eq!(check(EnvEffect::Allow, "RUSTFLAGS"), Ok(()));
    assert_eq!(check(EnvEffect::Allow, "FOO"), Ok(()), "no question about it where commands are listed");
}

#[test]
fn patterns_are_names_with_a_star_at_either_end() {
    for text in ["", "A*B", "A-B", "A B", "1A", "é", "A=B", "**", "*A*B*", "A\0"] {
        assert!(EnvPattern::parse(text).is_err(), "{text:?}");
    }
    for text in ["A", "A*", "*A", "*A*", "*1", "_"] {
        assert_eq!(EnvPattern::parse(text).unwrap().to_string(), text);
    }
    assert_eq!(EnvPattern::parse("*"), Err(EnvPatternError::Everything));
}

proptest! {
    /// Whatever a lower layer adds, nothing more is accepted or inherited.
    #[test]
    fn c10_a_lower_layer_never_opens(rules in proptest::collection::vec((0..3_usize, 0..6_usize), 0..6), name in 0..6_usize) {
        const EFFECTS: [EnvEffect; 3] = [EnvEffect::Allow, EnvEffect::Deny, EnvEffect::Inherit];
        const NAMES: [&str; 6] = ["NODE_OPTIONS", "FOO", "AWS_REGION", "LD_PRELOAD", "TERM", "RUSTFLAGS"];
        let mut with = vec![rule(EnvEffect::Allow, "RUSTFLAGS", PolicyLayer::Operator), rule(EnvEffect::Inherit, "FOO", PolicyLayer::Operator)];
        let before = EnvRules::new(with.clone());
        with.extend(rules.iter().map(|(effect, name)| rule(EFFECTS[*effect], NAMES[*name], PolicyLayer::Workspace)));
        let after = EnvRules::new(with);
        prop_assert!(accepted(&before, NAMES[name]) >= accepted(&after, NAMES[name]));
        prop_assert!(inherited(&before, NAMES[name]) >= inherited(&after, NAMES[name]));
    }

    #[test]
    fn whatever_is_accepted_is_a_plain_name(
        name in proptest::collection::vec(any::<u8>(), 0..24),
        value in proptest::collection::vec(any::<u8>(), 0..24),
    ) {
        if check_addition(&ByteString::from(name.clone()), &ByteString::from(value.clone()), &EnvRules::default()).is_ok() {
            prop_assert!(!name.is_empty() && name.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'_'));
            prop_assert!(!value.contains(&0));
        }
    }

    #[test]
    fn nothing_behind_a_steering_prefix_is_accepted(rest in "[A-Za-z0-9_]{0,12}") {
        for prefix in ["LD_", "DYLD_", "BASH_FUNC_", "GIT_CONFIG_", "NPM_CONFIG_", "npm_config_", "AWS_", "RINGFENCE_"] {
            let name = [prefix, &rest].concat();
            prop_assert!(check(&name, "x").is_err());
        }
    }
}
