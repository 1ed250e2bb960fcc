use ringfence_authz::{CommandRules, DangerFlags, net_ceiling};
use ringfence_types::units::{ByteSize, HumanDuration};
use ringfence_types::{Decision, HostPattern, PolicyLayer, Root};

use super::*;

fn ok(flags: &StartupFlags, files: &[PolicyFile]) -> EffectivePolicy {
    merged(flags, files).unwrap_or_else(|error| panic!("{error}"))
}

fn wrong(flags: &StartupFlags, files: &[PolicyFile]) -> Vec<String> {
    lines(&merged(flags, files).expect_err("a mistake"))
}

fn memory(size: &str) -> StartupFlags {
    StartupFlags {
        limits: LimitFlags { memory: Some(size.parse().unwrap()), ..LimitFlags::default() },
        ..flags()
    }
}

fn root(path: &str, access: Access) -> Root {
    Root { path: ByteString::from(path), access }
}

fn asked(effective: &EffectivePolicy) -> Vec<(String, String)> {
    effective.requests.iter().map(|request| (request.what.clone(), request.why.clone())).collect()
}

#[test]
fn c11_a_flag_above_a_file_names_both_places() {
    let file = operator("schema = 1\n\n[limits]\nmemory = \"2g\"\ntimeout = \"1m\"\n").unwrap();
    assert_eq!(
        wrong(&memory("8g"), std::slice::from_ref(&file)),
        [
            "`--memory 8g` is above `limits.memory = \"2g\"` at config.toml:4:10 | lower it, or change the file"
        ]
    );
    assert_eq!(ok(&memory("1g"), std::slice::from_ref(&file)).policy.limits.memory_bytes, 1 << 30);
    assert_eq!(ok(&flags(), std::slice::from_ref(&file)).policy.limits.memory_bytes, 2 << 30);
    let timeout = LimitFlags {
        timeout: Some(HumanDuration(120_000)),
        memory: Some(ByteSize(3 << 30)),
        ..LimitFlags::default()
    };
    assert_eq!(wrong(&StartupFlags { limits: timeout, ..flags() }, &[file]).len(), 2, "all at once");
    assert_eq!(ok(&memory("8g"), &[]).policy.limits.memory_bytes, 8 << 30, "a default is no ceiling");
}

#[test]
fn c3_strict_profiles_keep_their_numbers() {
    for (profile, most) in [(Profile::Strict, "512m"), (Profile::AirGapped, "256m")] {
        let flags = StartupFlags { profile: Some(profile), ..memory("1g") };
        let expected = format!(
            "`--memory 1g` is above the `{most}` of profile `{profile}` | lower it, or change the file"
        );
        assert_eq!(wrong(&flags, &[]), [expected]);
        let generous = operator("commands = \"contained\"\napproval = \"ask\"\nworkspace_access = \"write\"\nnet = \"full\"\nlimits.memory = \"8g\"\nlimits.processes = 5").unwrap();
        let policy = ok(&StartupFlags { profile: Some(profile), ..super::flags() }, &[generous]).policy;
        let promised = Policy::new(profile);
        assert_eq!(
            (policy.commands, policy.approval, policy.access),
            (promised.commands, promised.approval, promised.access)
        );
        assert_eq!(policy.limits, ringfence_types::Limits { processes: 5, ..promised.limits });
        assert_eq!(policy.net, net_ceiling(profile));
    }
    let flags = StartupFlags { profile: Some(Profile::AirGapped), net: Some(NetMode::Filtered), ..flags() };
    assert_eq!(
        wrong(&flags, &[]),
        ["`--net filtered` is above the `none` of profile `air-gapped` | lower it, or change the file"]
    );
}

#[test]
fn profiles_are_chosen_above_the_minimum() {
    let file = operator("minimum_profile = \"guarded\"").unwrap();
    let files = std::slice::from_ref(&file);
    assert_eq!(ok(&flags(), files).policy.profile, Profile::Guarded, "nobody chose one");
    let choose = |profile| StartupFlags { profile: Some(profile), ..flags() };
    assert_eq!(ok(&choose(Profile::Strict), files).policy.profile, Profile::Strict);
    assert_eq!(
        wrong(&choose(Profile::Workspace), files),
        [
            "`--profile workspace` is below `minimum_profile = \"guarded\"` at config.toml:1:19 | use `--profile guarded` or a stricter one"
        ]
    );
    let danger = DangerFlags { danger: true, ..DangerFlags::default() };
    assert_eq!(wrong(&StartupFlags { danger, ..choose(Profile::Danger) }, files).len(), 1);
    let higher = workspace("minimum_profile = \"strict\"").unwrap();
    assert_eq!(ok(&flags(), &[file.clone(), higher]).policy.profile, Profile::Strict);
    let lower = workspace("minimum_profile = \"workspace\"").unwrap();
    assert_eq!(ok(&flags(), &[file, lower]).policy.profile, Profile::Guarded, "a minimum is not lowered");
}

#[test]
fn c10_a_workspace_file_narrows_and_asks_for_the_rest() {
    let operator = operator("profile = \"guarded\"\nnet = \"filtered\"\nlimits.memory = \"2g\"\n").unwrap();
    let narrowing = "approval = \"never\"\nworkspace_access = \"read\"\nnet = \"none\"\nbackend = \"native\"\nlimits.memory = \"1g\"\nlimits.timeout = \"5s\"\n";
    let effective = ok(&flags(), &[operator.clone(), workspace(narrowing).unwrap()]);
    let policy = &effective.policy;
    assert_eq!(
        (policy.approval, policy.access, policy.net),
        (ApprovalMode::Never, Access::Read, NetMode::None)
    );
    assert_eq!(
        (policy.backend, policy.limits.memory_bytes, policy.limits.wall_ms),
        (Some(Backend::Native), 1 << 30, Some(5000))
    );
    assert_eq!(effective.requests, []);

    let widening = "profile = \"workspace\"\ncommands = \"contained\"\nnet = \"full\"\nbackend = \"landlock\"\nlimits.memory = \"4g\"\n";
    let effective = ok(&flags(), &[operator.clone(), workspace(widening).unwrap()]);
    assert_eq!(effective.policy, ok(&flags(), &[operator]).policy, "no effect");
    assert_eq!(
        asked(&effective),
        [
            ("`profile = \"workspace\"`", "it is above `profile = \"guarded\"` at config.toml:1:11"),
            ("`commands = \"contained\"`", "it is above the `listed` of profile `guarded`"),
            ("`net = \"full\"`", "it is above `net = \"filtered\"` at config.toml:2:7"),
            ("`backend = \"landlock\"`", "it is above the default `the strongest there is`"),
            ("`limits.memory = \"4g\"`", "it is above `limits.memory = \"2g\"` at config.toml:3:17"),
        ]
        .map(|(what, why)| (what.to_owned(), why.to_owned()))
    );
    assert_eq!(effective.requests[4].origin.to_string(), ".ringfence/policy.toml:5:17");
}

const OPENINGS: &str = "\
[[command]]
allow = \"make\"
[[command]]
program = \"go\"
[[path]]
allow = \"notes.secret.txt\"
[[tool]]
allow = \"mcp__x\"
[[env]]
inherit = \"FOO\"
[[host]]
allow = \"a.example\"
[[host]]
ask = \"b.example\"
[[root]]
path = \"/srv/data\"
access = \"read\"
";

#[test]
fn c10_rules_of_a_workspace_file_open_nothing_until_it_is_approved() {
    let file = workspace(OPENINGS).unwrap();
    let effective = ok(&flags(), std::slice::from_ref(&file));
    assert_eq!(effective.requests.len(), 8, "{:#?}", effective.requests);
    assert_eq!((effective.policy.rules.commands, effective.roots), (CommandRules::default(), Vec::new()));
    assert_eq!(effective.policy.rules.paths.reading(Path::new("notes.secret.txt")).decision(), Decision::Ask);

    let approve = |digest: &str| {
        operator(&format!("[workspaces.\"{WORKSPACE}\"]\napproved_digests = \"{digest}\"")).unwrap()
    };
    let files = [approve(&file.seal()), file];
    assert_eq!(trust(&flags(), &files, &files[1]), FileAuthority::Approved);
    let effective = ok(&flags(), &files);
    assert_eq!(effective.requests, []);
    assert_eq!(effective.roots, [root("/srv/data", Access::Read)]);
    assert_eq!(
        effective.policy.rules.paths.reading(Path::new("notes.secret.txt")).decision(),
        Decision::Allow
    );
    let layer = |key: &str| effective.settings.iter().find(|setting| setting.key == key).unwrap().layer;
    assert_eq!((layer("command.allow"), layer("host.ask")), (PolicyLayer::Operator, PolicyLayer::Operator));

    let changed = workspace(&format!("{OPENINGS}# changed\n")).unwrap();
    assert_eq!(trust(&flags(), &[files[0].clone(), changed.clone()], &changed), FileAuthority::Unapproved);
    let elsewhere = StartupFlags { workspace: PathBuf::from("/home/ann/other"), ..flags() };
    assert_eq!(trust(&elsewhere, &files, &files[1]), FileAuthority::Unapproved);
}

#[test]
fn an_approval_covers_every_file_of_a_policy() {
    let base = ("/home/ann/web/.ringfence/base.toml", "[[command]]\nallow = \"make\"\n");
    let path = Path::new("/home/ann/web/.ringfence/policy.toml");
    let file = PolicyFile::load(PolicyFileRole::Workspace, path, b"extends = \"base.toml\"", &disk(&[base]))
        .unwrap();
    let [own, other] = file.digests() else { panic!("{:?}", file.digests()) };
    let approve =
        |list: &str| operator(&format!("[workspaces.\"{WORKSPACE}\"]\napproved_digests = [{list}]")).unwrap();
    for (list, expected) in [
        (format!("\"{own}\", \"{other}\""), FileAuthority::Unapproved),
        (format!("\"{}\"", file.seal()), FileAuthority::Approved),
    ] {
        let files = [approve(&list), file.clone()];
        assert_eq!(trust(&flags(), &files, &file), expected);
    }
    let alone = PolicyFile::parse(PolicyFileRole::Workspace, path, base.1.as_bytes()).unwrap();
    let files = [approve(&format!("\"{}\"", file.seal())), alone.clone()];
    assert_eq!(
        trust(&flags(), &files, &alone),
        FileAuthority::Unapproved,
        "a part is not approved by itself"
    );
}

#[test]
fn an_approved_file_still_narrows_and_never_silences_the_operator() {
    let text = "[[path]]\nallow = \"a.bin\"\n[[path]]\ndeny = \"b.bin\"\n";
    let digest = workspace(text).unwrap().seal();
    let config = format!(
        "[[path]]\ndeny = \"a.bin\"\n[[path]]\nallow = \"b.bin\"\n[workspaces.\"{WORKSPACE}\"]\napproved_digests = \"{digest}\""
    );
    let files = [operator(&config).unwrap(), workspace(text).unwrap()];
    assert_eq!(trust(&flags(), &files, &files[1]), FileAuthority::Approved);
    let rules = ok(&flags(), &files).policy.rules.paths;
    assert_eq!(rules.reading(Path::new("a.bin")).decision(), Decision::Deny, "the operator said no");
    assert_eq!(rules.reading(Path::new("b.bin")).decision(), Decision::Deny, "the file said no");
}

#[test]
fn c11_a_session_that_wants_more_is_an_error() {
    let operator = operator("profile = \"guarded\"\nlimits.processes = 20\n").unwrap();
    let session = |text| session(text).unwrap();
    assert_eq!(
        wrong(&flags(), &[operator.clone(), session("limits.processes = 30")]),
        [
            "1:20: `limits.processes = \"30\"` is above `limits.processes = \"20\"` at config.toml:2:20 | lower it, or leave it out: this part only narrows"
        ]
    );
    assert_eq!(
        wrong(&flags(), &[operator.clone(), session("profile = \"workspace\"\nnet = \"full\"")]).len(),
        2
    );
    assert_eq!(
        wrong(&flags(), &[operator.clone(), session("[[root]]\npath = \"/srv\"\naccess = \"read\"")]).len(),
        1
    );
    let narrowed = ok(
        &flags(),
        &[operator, session("limits.processes = 10\nprofile = \"strict\"\n[[command]]\ndeny = \"git\"")],
    );
    assert_eq!((narrowed.policy.limits.processes, narrowed.policy.profile), (10, Profile::Strict));
}

#[test]
fn an_agent_has_less() {
    let text = "limits.processes = 20\n[agents.codex]\nlimits.processes = 5\nnet = \"none\"\n[[agents.codex.command]]\ndeny = \"git push\"\n[agents.greedy]\nlimits.processes = 50\n";
    let file = operator(text).unwrap();
    let agent = |name: &str| StartupFlags { agent: Some(name.to_owned()), ..flags() };
    let files = std::slice::from_ref(&file);
    assert_eq!(ok(&agent("codex"), files).policy.limits.processes, 5);
    assert!(!ok(&agent("codex"), files).policy.rules.commands.is_empty());
    let nobody = Policy { agent: Some("other".to_owned()), ..ok(&flags(), files).policy };
    assert_eq!(ok(&agent("other"), files).policy, nobody);
    assert_eq!(
        wrong(&agent("greedy"), files),
        [
            "8:20: `limits.processes = \"50\"` is above `limits.processes = \"20\"` at config.toml:1:20 | lower it, or leave it out: this part only narrows"
        ]
    );
}

#[test]
fn an_agents_part_of_a_workspace_file_asks_like_the_rest_of_it() {
    let file = workspace("[agents.codex]\nlimits.memory = \"8g\"\nlimits.processes = 5\n").unwrap();
    let effective = ok(&StartupFlags { agent: Some("codex".to_owned()), ..flags() }, &[file]);
    assert_eq!((effective.policy.limits.processes, effective.requests.len()), (5, 1));
}

#[test]
fn a_part_for_a_workspace_counts_there_alone() {
    let text = "profile = \"guarded\"\nlimits.memory = \"1g\"\n[workspaces.\"~/web\"]\nprofile = \"workspace\"\nlimits.memory = \"4g\"\n[[workspaces.\"~/web\".path]]\nallow = \"x.bin\"\n[[path]]\ndeny = \"*.bin\"\n";
    let file = operator(text).unwrap();
    let here = ok(&flags(), std::slice::from_ref(&file));
    assert_eq!((here.policy.profile, here.policy.limits.memory_bytes), (Profile::Workspace, 4 << 30));
    assert_eq!(
        here.policy.rules.paths.reading(Path::new("x.bin")).decision(),
        Decision::Allow,
        "the nearer rule first"
    );
    let there = ok(&StartupFlags { workspace: PathBuf::from("/home/ann/web2"), ..flags() }, &[file]);
    assert_eq!((there.policy.profile, there.policy.limits.memory_bytes), (Profile::Guarded, 1 << 30));
    assert_eq!(there.policy.rules.paths.reading(Path::new("x.bin")).decision(), Decision::Deny);
}

#[test]
fn roots_are_what_they_lead_to() {
    let to_etc = |path: &Path| if path.ends_with("link") { PathBuf::from("/etc") } else { path.to_owned() };
    let linked = workspace("[[root]]\npath = \"link\"\naccess = \"read\"\n").unwrap();
    let found = effective(&flags(), &[linked], &to_etc).unwrap();
    assert_eq!((found.roots.len(), found.requests.len()), (0, 1), "a link out of the workspace is a request");
    let inside = workspace("workspace_access = \"read\"\n[[root]]\npath = \"out\"\naccess = \"write\"\n[[root]]\npath = \"keys\"\naccess = \"none\"\n").unwrap();
    let found = ok(&flags(), &[inside]);
    assert_eq!(found.policy.access, Access::Read);
    let expected = [root("/home/ann/web/out", Access::Write), root("/home/ann/web/keys", Access::None)];
    assert_eq!(found.roots, expected, "all that was writable before is");
    let again = [
        workspace("workspace_access = \"read\"").unwrap(),
        session("[[root]]\npath = \"out\"\naccess = \"write\"").unwrap(),
    ];
    assert_eq!(wrong(&flags(), &again).len(), 1, "what one file closed the next does not open");
    let other = [
        workspace("workspace_access = \"read\"\n[[root]]\npath = \"out\"\naccess = \"write\"").unwrap(),
        session("workspace_access = \"read\"").unwrap(),
    ];
    assert_eq!(
        ok(&flags(), &other).roots,
        [root("/home/ann/web/out", Access::Read)],
        "and what the next closes it does not keep"
    );
}

#[test]
fn s001_18_no_file_makes_a_root_of_a_credential_store() {
    for path in ["~/.ssh", "/home/ann/.aws/x", "~/.config/gcloud"] {
        let file = operator(&format!("[[root]]\npath = \"{path}\"\naccess = \"read\"")).unwrap();
        let found = wrong(&flags(), std::slice::from_ref(&file));
        assert!(found[0].contains("is in the sensitive root"), "{found:?}");
        let danger = DangerFlags { danger: true, allow_sensitive_roots: true, ..DangerFlags::default() };
        assert!(merged(&StartupFlags { danger, ..flags() }, &[file]).is_ok());
    }
    let linked = operator("[[root]]\npath = \"/srv/x\"\naccess = \"read\"").unwrap();
    let found = effective(&flags(), &[linked], &|_| PathBuf::from("/home/ann/.ssh/keys")).unwrap_err();
    assert!(found.to_string().contains("sensitive root"), "{found}");
}

#[test]
fn flags_open_roots_only_where_no_file_closed_them() {
    let file = operator("workspace_access = \"read\"\n[[root]]\npath = \"/srv\"\naccess = \"read\"\n[[root]]\npath = \"/srv/private\"\naccess = \"none\"").unwrap();
    let flag = |path: &str, access| StartupFlags { roots: vec![root(path, access)], ..flags() };
    let files = std::slice::from_ref(&file);
    for (path, access, expected) in [
        ("/srv/out", Access::Write, "`--write /srv/out` is above `root = \"read\"` at config.toml:3:8"),
        (
            "/srv/private/x",
            Access::Read,
            "`--read /srv/private/x` is above `root = \"none\"` at config.toml:6:8",
        ),
        (
            "/home/ann/web/out",
            Access::Write,
            "`--write /home/ann/web/out` is above `workspace_access = \"read\"` at config.toml:1:20",
        ),
    ] {
        let found = wrong(&flag(path, access), files);
        assert!(found[0].starts_with(expected), "{found:?}");
    }
    assert_eq!(ok(&flag("/data", Access::Write), files).roots.len(), 3);
    assert_eq!(ok(&flag("/srv/public", Access::Read), files).roots.len(), 3);
}

#[test]
fn the_floor_is_lowered_by_the_operator_alone() {
    let lowered =
        operator("danger_required_controls = [\"net\", \"env\"]\nrequired_controls = \"pid\"").unwrap();
    let files = std::slice::from_ref(&lowered);
    assert_eq!(ok(&flags(), files).policy.floor, [Control::Net, Control::Pid, Control::Env]);
    let raised = workspace("required_controls = [\"fs-read\"]").unwrap();
    assert!(ok(&flags(), &[lowered.clone(), raised]).policy.floor.contains(&Control::FsRead));
    let flag = |floor: &[Control]| StartupFlags { floor: Some(floor.to_vec()), ..flags() };
    assert_eq!(ok(&flag(&[Control::Env]), &[]).policy.floor, [Control::Env], "the flag alone");
    assert_eq!(
        wrong(&flag(&[Control::Net, Control::Env]), files),
        [
            "`--danger-required-controls net,env` leaves out `pid`, which is required at config.toml:2:21 | add `pid`, or change the file"
        ]
    );
    assert_eq!(wrong(&flag(&[Control::Pid, Control::Env]), files).len(), 1, "lower than the operator went");
    let strict = StartupFlags { profile: Some(Profile::Strict), ..flags() };
    assert_eq!(ok(&strict, files).policy.floor, Control::ALL);
    assert_eq!(
        wrong(&StartupFlags { profile: Some(Profile::Strict), ..flag(&[Control::Env]) }, &[]).len(),
        1
    );
}

#[test]
fn rules_about_hosts_need_a_network_that_holds_them() {
    let file = operator("[[host]]\ndeny = \"*.internal\"\n[[host]]\nallow = \"a.example\"").unwrap();
    let net = |net| StartupFlags { net: Some(net), ..flags() };
    assert!(
        wrong(&net(NetMode::Full), std::slice::from_ref(&file))[0]
            .starts_with("2:8: with network mode `full` nothing holds")
    );
    assert_eq!(ok(&net(NetMode::Filtered), std::slice::from_ref(&file)).policy.net, NetMode::Filtered);
    let host = |name: &str| StartupFlags { hosts: vec![HostPattern::parse(name).unwrap()], ..flags() };
    assert_eq!(ok(&host("b.example"), std::slice::from_ref(&file)).policy.net, NetMode::Filtered);
    assert_eq!(
        wrong(&host("db.internal:5432"), std::slice::from_ref(&file)),
        [
            "`--allow-host db.internal:5432` is denied at config.toml:2:8 | leave the flag out, or change the file"
        ]
    );
    assert_eq!(
        wrong(&host("b.example"), &[operator("net = \"none\"").unwrap()]),
        [
            "`--allow-host b.example` is above `net = \"none\"` at config.toml:1:7 | lower it, or change the file"
        ]
    );
    assert_eq!(wrong(&StartupFlags { net: Some(NetMode::Full), ..host("b.example") }, &[]).len(), 1);
}

#[test]
fn every_value_knows_where_it_comes_from() {
    let files = [
        operator("profile = \"guarded\"\nlimits.memory = \"2g\"").unwrap(),
        workspace("limits.memory = \"1g\"\n[[path]]\ndeny = \"x\"").unwrap(),
    ];
    let flags =
        StartupFlags { limits: LimitFlags { processes: Some(7), ..LimitFlags::default() }, ..flags() };
    let settings = ok(&flags, &files).settings;
    let find = |key: &str| {
        let found = settings.iter().find(|setting| setting.key == key).unwrap_or_else(|| panic!("{key}"));
        (found.value.clone(), found.layer, found.origin.as_ref().map(ToString::to_string))
    };
    let place = |text: &str| Some(text.to_owned());
    assert_eq!(find("profile"), ("guarded".into(), PolicyLayer::Operator, place("config.toml:1:11")));
    assert_eq!(
        find("limits.memory"),
        ("1g".into(), PolicyLayer::Workspace, place(".ringfence/policy.toml:1:17"))
    );
    assert_eq!(find("limits.processes"), ("7".into(), PolicyLayer::Flags, None));
    assert_eq!(find("limits.timeout"), ("unlimited".into(), PolicyLayer::Floor, None));
    assert_eq!(find("path.deny"), ("x".into(), PolicyLayer::Workspace, place(".ringfence/policy.toml:3:8")));
    assert_eq!(find("commands"), ("listed".into(), PolicyLayer::Floor, None));
}

#[test]
fn a_stricter_profile_keeps_the_promises_of_the_one_before() {
    let files = [session("profile = \"strict\"").unwrap(), session("profile = \"review\"").unwrap()];
    let policy = ok(&flags(), &files).policy;
    assert_eq!((policy.profile, policy.approval), (Profile::Review, ApprovalMode::Never));
    assert_eq!(policy.limits, Policy::new(Profile::Strict).limits);
}

/// C-15: what an operator chooses holds; what is below makes it stricter, and asks for the rest.
#[test]
fn c15_actions_for_leaks_only_get_stricter_below_the_operator() {
    use ringfence_types::LeakAction;
    let default = ok(&flags(), &[]).policy.leaks;
    assert_eq!(
        (default.stored_secrets.arguments, default.stored_secrets.output),
        (LeakAction::Block, LeakAction::Redact)
    );
    assert_eq!((default.patterns.arguments, default.patterns.output), (LeakAction::Flag, LeakAction::Redact));
    let milder = operator("[leaks.stored_secrets]\noutput = \"flag\"\n").unwrap();
    assert_eq!(
        ok(&flags(), std::slice::from_ref(&milder)).policy.leaks.stored_secrets.output,
        LeakAction::Flag
    );
    let asks = workspace("[leaks.stored_secrets]\noutput = \"flag\"\nfiles = \"terminate\"\n").unwrap();
    let effective = ok(&flags(), &[asks]);
    assert_eq!(effective.policy.leaks.stored_secrets.output, LeakAction::Redact);
    assert_eq!(effective.policy.leaks.stored_secrets.files, LeakAction::Terminate);
    assert_eq!(effective.requests.len(), 1, "{:?}", effective.requests);
    let strict = workspace("[leaks.stored_secrets]\noutput = \"block\"\n").unwrap();
    assert_eq!(ok(&flags(), &[milder, strict]).policy.leaks.stored_secrets.output, LeakAction::Block);
}

fn of(directory: &str, text: &str) -> PolicyFile {
    let path = Path::new(directory).join(".ringfence/policy.toml");
    PolicyFile::parse(PolicyFileRole::Workspace, &path, text.as_bytes()).unwrap()
}

/// The workspace is `/home/ann/project/src`; what was written for `/home/ann/project` holds in it.
#[test]
fn what_is_written_for_a_directory_holds_below_it() {
    let flags = StartupFlags { workspace: Path::new(WORKSPACE).join("src"), ..flags() };
    let around = of(
        WORKSPACE,
        "profile = \"guarded\"\nnet = \"full\"\nlimits.memory = \"1g\"\n\
         [[command]]\ndeny = [\"touch\"]\n[[command]]\nallow = [\"make\"]\n\
         [[path]]\ndeny = [\"src/closed\", \"other\"]\n[[env]]\ndeny = [\"FOO\"]\n",
    );
    let own = of(&format!("{WORKSPACE}/src"), "[[path]]\nallow = [\"**\"]\n");
    let effective = ok(&flags, &[own, around]);
    let policy = &effective.policy;
    assert_eq!((policy.profile, policy.net), (Profile::Guarded, NetMode::None));
    assert_eq!(policy.limits.memory_bytes, 1 << 30);
    let hidden =
        |path: &str| policy.rules.paths.judge(Path::new(path)) != ringfence_types::PathDecision::Open;
    assert!(hidden("closed") && hidden("other") && !hidden("src/closed") && !hidden("x"));
    let keys: Vec<&str> = effective.settings.iter().map(|setting| setting.key.as_str()).collect();
    assert!(keys.contains(&"command.deny") && keys.contains(&"env.deny"), "{keys:?}");
    assert!(!keys.contains(&"command.allow"), "what opens is meant for the whole: {keys:?}");
    assert_eq!(
        asked(&effective).len(),
        1,
        "only what the own file asks for is told: {:?}",
        asked(&effective)
    );
}

#[test]
fn a_part_of_the_operator_holds_below_its_directory_and_opens_nothing_there() {
    let file = operator(&format!(
        "[workspaces.{WORKSPACE:?}]\nminimum_profile = \"guarded\"\nworkspace_access = \"read\"\nnet = \"filtered\"\n\
         [[workspaces.{WORKSPACE:?}.root]]\npath = \"src/out\"\naccess = \"write\"\n\
         [[workspaces.{WORKSPACE:?}.root]]\npath = \"src/none\"\naccess = \"none\"\n"
    ))
    .unwrap();
    let files = std::slice::from_ref(&file);
    let below = |path: &str| StartupFlags { workspace: Path::new(WORKSPACE).join(path), ..flags() };
    let src = ok(&below("src"), files);
    assert_eq!(
        (src.policy.profile, src.policy.access, src.policy.net),
        (Profile::Guarded, Access::Read, NetMode::None)
    );
    let expected = |path: &str, access| root(&format!("{WORKSPACE}/src/{path}"), access);
    assert_eq!(
        src.roots,
        [expected("out", Access::Write), expected("none", Access::None)],
        "nothing above it is opened"
    );
    assert_eq!(ok(&below("src/out"), files).policy.access, Access::Write);
    assert_eq!(ok(&below("src/none/deep"), files).policy.access, Access::None);
    let elsewhere = StartupFlags { workspace: "/home/ann/other".into(), ..flags() };
    assert_eq!(ok(&elsewhere, files).policy.profile, Profile::Workspace);
    let loose = StartupFlags { profile: Some(Profile::Workspace), ..below("src") };
    assert!(wrong(&loose, files)[0].contains("minimum_profile"));
}
