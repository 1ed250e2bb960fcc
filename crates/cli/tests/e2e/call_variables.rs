//! A variable is judged the same way wherever it comes from: a shell, a flag, a call or a session.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use ringfence_api::{CallState, CreateSession, ExecRequest};
use serde_json::json;

use crate::approvals::configure;
use crate::daemon_fixture::Served;
use crate::exec_server::Client;
use crate::testkit::{Done, World, finish, script};

/// GNU tar runs the program at every record that it reads.
const OPTIONS: &str = "--checkpoint=1 --checkpoint-action=exec=./go.sh";

/// The operator lets `tar -tf` run without a question, and no approver is available.
const POLICY: &str = "approval = \"never\"\n[[command]]\nallow = [\"tar -tf\"]\n";

/// A workspace with an archive, and a program that leaves a mark when it runs.
fn world(profile: &str) -> World {
    let world = World::new();
    configure(&world, &format!("profile = \"{profile}\"\n{POLICY}"));
    world.write("big", vec![0; 200_000]);
    script(&world.workspace.join("go.sh"), "#!/bin/sh\ntouch made\n");
    let packed = world.host("tar").args(["cf", "x.tar", "big"]).status().unwrap();
    assert!(packed.success());
    world
}

fn made(world: &World) -> bool {
    fs::remove_file(world.workspace.join("made")).is_ok()
}

fn run(world: &World, flags: &[&str]) -> Done {
    world.run(flags, &["tar", "-tf", "x.tar"])
}

#[test]
fn a_variable_of_run_is_judged_in_every_profile_with_a_list() {
    let variable = format!("TAR_OPTIONS={OPTIONS}");
    for profile in ["guarded", "strict", "air-gapped"] {
        let world = world(profile);
        run(&world, &["--env", &variable]).expect(126).says("env.steering").says("TAR_OPTIONS");
        assert!(!made(&world), "{profile}");
        let prefixed = format!("TAR_OPTIONS='{OPTIONS}' tar -tf x.tar");
        world.sh(&prefixed).expect(126);
        assert!(!made(&world), "{profile}");
        assert_eq!(run(&world, &["--env", "LC_ALL=C"]).expect(0).text(), "big\n", "{profile}");
    }
    // The control: where anything may run inside, the same call runs the program.
    let contained = world("workspace");
    run(&contained, &["--env", &variable]).expect(0);
    assert!(made(&contained));
}

/// A name that no list has: make expands the value of any variable that its Makefile uses.
#[test]
fn a_variable_that_is_not_known_to_be_harmless_is_a_question_in_every_profile_with_a_list() {
    const MAKE: &str = "approval = \"never\"\n[[command]]\nallow = [\"make\"]\n";
    let world = |profile: &str| {
        let world = World::new();
        configure(&world, &format!("profile = \"{profile}\"\n{MAKE}"));
        world.write("Makefile", "all:\n\t@echo hello $(GREETED)\n");
        world
    };
    let greeted = "GREETED=$(shell touch made)";
    for profile in ["guarded", "strict", "air-gapped"] {
        let world = world(profile);
        world.run(&["--env", greeted], &["make"]).expect(126).says("env.unlisted").says("GREETED");
        assert!(!made(&world), "{profile}");
        world.run(&["--env", "LC_ALL=$(shell touch made)"], &["make"]).expect(126);
        assert_eq!(world.run(&["--env", "LC_ALL=C"], &["make"]).expect(0).text(), "hello\n", "{profile}");
        assert!(!made(&world), "{profile}");
    }
    let contained = world("workspace");
    contained.run(&["--env", greeted], &["make"]).expect(0);
    assert!(made(&contained), "the control");
    let opened = world("guarded");
    configure(&opened, &format!("profile = \"guarded\"\n{MAKE}[[env]]\nallow = [\"GREETED\"]\n"));
    assert_eq!(opened.run(&["--env", "GREETED=you"], &["make"]).expect(0).text(), "hello you\n");
}

/// The operator opens the name, and the same call runs.
#[test]
fn an_operator_opens_a_variable_by_its_name() {
    let world = world("guarded");
    configure(&world, &format!("profile = \"guarded\"\n{POLICY}[[env]]\nallow = [\"TAR_OPTIONS\"]\n"));
    run(&world, &["--env", &format!("TAR_OPTIONS={OPTIONS}")]).expect(0);
    assert!(made(&world));
}

#[test]
fn a_variable_of_a_call_or_a_session_of_the_daemon_is_judged() {
    for (profile, is_run) in [("guarded", false), ("workspace", true)] {
        let served = Served::with(world(profile), &[]);
        let variables = || [("TAR_OPTIONS".to_owned(), OPTIONS.to_owned())].into_iter().collect();
        let tar = |session: &str| -> ExecRequest {
            serde_json::from_value(json!({ "session": session, "argv": ["tar", "-tf", "x.tar"] })).unwrap()
        };
        let plain = served.session();
        let ended = |exec: &ExecRequest| served.client().call(exec).unwrap();
        assert_eq!(ended(&tar(plain.session.as_str())).state, CallState::Done, "{profile}: without it");
        assert!(!made(&served.world));
        let call = ExecRequest { environment: variables(), ..tar(plain.session.as_str()) };
        let of_call = ended(&call);
        assert_eq!(made(&served.world), is_run, "{profile}: {of_call:?}");
        let wanted = CreateSession { environment: variables(), ..served.wanted() };
        let session = served.client().call(&wanted).unwrap();
        let of_session = ended(&tar(session.session.as_str()));
        assert_eq!(made(&served.world), is_run, "{profile}: {of_session:?}");
        for info in [of_call, of_session].iter().filter(|_| !is_run) {
            assert!(format!("{info:?}").contains("env.steering"), "{info:?}");
        }
    }
}

/// Codex hands over its whole environment with each command. What would be a question is left out, and the command runs.
#[test]
fn a_variable_that_codex_hands_over_is_left_out_where_it_would_be_a_question() {
    for (profile, is_run) in [("guarded", false), ("workspace", true)] {
        let world = world(profile);
        let mut client = Client::new(&world);
        let more =
            json!({ "argv": ["tar", "-tf", "x.tar"], "env": { "TAR_OPTIONS": OPTIONS, "ORDINARY": "1" } });
        client.begin(&world, "1", "", &more);
        assert_eq!(client.finished("1"), ("big\n".to_owned(), 0), "{profile}");
        assert_eq!(made(&world), is_run, "{profile}");
    }
}

/// In GBK a letter may end with the byte of a backslash: the judge sees an escaped quote, and bash the end of the quotes.
const HIDDEN: &[u8] = b"echo \"\x81\\\" ; touch made ; echo \"\x81\\\"";

#[test]
fn a_character_set_in_which_bash_reads_another_script_is_a_question() {
    let hidden = OsStr::from_bytes(HIDDEN);
    for profile in ["guarded", "strict"] {
        let world = World::new();
        configure(&world, &format!("profile = \"{profile}\"\napproval = \"never\"\n"));
        for set in ["zh_CN.GBK", "zh_TW.BIG5", "zh_TW", "ja_JP.SJIS"] {
            for name in ["LANG", "LC_ALL", "LC_CTYPE"] {
                let variable = format!("{name}={set}");
                let mut run = world.ringfence();
                run.args(["run", "--env", &variable, "--", "bash", "-c"]).arg(hidden);
                finish(&mut run, b"").expect(126).says("env.unlisted");
                let mut run = world.ringfence();
                run.args(["run", "--", "env", &variable, "bash", "-c"]).arg(hidden);
                finish(&mut run, b"").expect(126).says("env.unlisted");
            }
        }
        let mut run = world.ringfence();
        run.args(["run", "--env", "LC_ALL=C.UTF-8", "--", "bash", "-c"]).arg(hidden);
        finish(&mut run, b"").expect(0);
        assert!(!made(&world), "{profile}");
    }
    let world = World::new();
    if let Some(locales) = compiled_locale(&world) {
        let mut bash = world.host("bash");
        bash.env("LOCPATH", locales).env("LC_ALL", "zh_CN.GBK").arg("-c").arg(hidden);
        finish(&mut bash, b"");
        assert!(made(&world), "the control");
    }
}

/// `None` where the machine has no sources of locales.
fn compiled_locale(world: &World) -> Option<PathBuf> {
    let locales = world.beside("locales");
    let mut localedef = world.host("localedef");
    localedef.args(["-c", "-i", "zh_CN", "-f", "GBK", "--no-archive"]).arg(locales.join("zh_CN.GBK"));
    localedef.output().ok()?;
    locales.join("zh_CN.GBK/LC_CTYPE").is_file().then_some(locales)
}

#[test]
fn a_character_set_of_the_host_reaches_no_shell_whose_text_is_judged() {
    let world = World::new();
    let sees = |profile: &str| {
        configure(&world, &format!("profile = \"{profile}\"\n[[command]]\nallow = [\"printenv\"]\n"));
        let mut run = world.ringfence();
        run.env("LANG", "zh_CN.GBK").env("LC_CTYPE", "zh_TW.BIG5").env("LC_TIME", "zh_TW.BIG5");
        finish(run.args(["run", "--", "printenv"]), b"").expect(0).text()
    };
    for profile in ["guarded", "strict"] {
        let seen = sees(profile);
        assert!(seen.contains("LANG=C.UTF-8\n") && seen.contains("LC_TIME=zh_TW.BIG5\n"), "{seen}");
        assert!(!seen.contains("GBK") && !seen.contains("LC_CTYPE"), "{seen}");
    }
    let seen = sees("workspace");
    assert!(
        seen.contains("LANG=zh_CN.GBK\n") && seen.contains("LC_CTYPE=zh_TW.BIG5\n"),
        "the control: {seen}"
    );
}
