//! `ringfence scan` as a person, a hook and a pipeline use it.

use std::path::Path;

use serde_json::Value;

use crate::testkit::{Done, World, finish};

/// Put together here, so that no scanner takes this file for a leak.
fn token() -> String {
    let body: String = "a1B2c3D4e5F6g7H8i9J0".chars().cycle().skip(3).take(36).collect();
    format!("ghp{}{body}", "_")
}

impl World {
    fn scan(&self, arguments: &[&str], input: &str) -> Done {
        finish(self.ringfence().arg("scan").args(arguments), input.as_bytes())
    }

    /// The objects of `--json`, in a stable order.
    fn findings(&self, arguments: &[&str], input: &str) -> Vec<Value> {
        let done = self.scan(&[&["--json"], arguments].concat(), input);
        let mut found: Vec<Value> =
            done.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(done.code, Some(i32::from(!found.is_empty())), "{}", done.err);
        assert!(!done.text().contains(&token()), "the secret is printed");
        found.sort_by_key(|finding| finding["file"].to_string());
        found
    }
}

fn files(findings: &[Value]) -> Vec<&str> {
    findings.iter().filter_map(|finding| finding["file"].as_str()).collect()
}

#[test]
fn standard_input_is_scanned_and_the_secret_is_not_shown() {
    let world = World::new();
    world.scan(&["-"], "nothing to see\n").expect(0);
    let done = world.scan(&["-"], &format!("one\ntwo key={} three\n", token())).expect(1);
    assert!(done.text().starts_with("-:2:9: github-token"), "{}", done.text());
    assert!(done.text().contains("two key=[redacted:github-token]"), "{}", done.text());
    assert!(!done.text().contains(&token()) && !done.err.contains(&token()));
    assert!(done.err.contains("1 finding in 1 file"), "{}", done.err);
}

#[test]
fn json_has_place_encoding_and_fingerprint() {
    let world = World::new();
    let hex: String = token().bytes().map(|byte| format!("{byte:02x}")).collect();
    let found = world.findings(&["-"], &format!("a\nb {hex}\n"));
    let finding = &found[0];
    assert_eq!((&finding["schema"], &finding["rule"]), (&1.into(), &"github-token".into()));
    assert_eq!((&finding["line"], &finding["column"]), (&2.into(), &3.into()));
    assert_eq!((&finding["start"], &finding["end"]), (&4.into(), &(4 + hex.len()).into()));
    assert_eq!(finding["encoding"], "hex");
    assert_eq!(finding["fingerprint"].as_str().unwrap().len(), 32);
    assert!(finding["confidence"].is_string());
}

#[test]
fn directories_are_walked_without_what_git_ignores() {
    let world = World::new();
    let line = format!("TOKEN = {}\n", token());
    for path in ["a/b/c.txt", "target/out.txt", ".env", ".git/x"] {
        world.write(path, &line);
    }
    world.write(".gitignore", "target/\n");
    assert_eq!(files(&world.findings(&["."], "")), [".env", "a/b/c.txt"]);
    assert_eq!(files(&world.findings(&["--no-ignore", "."], "")), [".env", "a/b/c.txt", "target/out.txt"]);
    assert_eq!(files(&world.findings(&["target/out.txt"], "")), ["target/out.txt"], "what is named is read");
}

#[test]
fn what_cannot_be_read_is_a_failure() {
    let world = World::new();
    world.scan(&["missing.txt"], "").expect(125).says("cannot read `missing.txt`");
    world.scan(&[], "").expect(125);
    world.scan(&["--git-diff", "-x"], "").expect(125);
    world.scan(&["--json", "--sarif", "-"], "").expect(125);
    let rules = world.write("rules.toml", "[[rule]]\nid = \"x\"\n");
    world.scan(&["--rules", rules.to_str().unwrap(), "-"], "").expect(125).says("rules.toml");
}

#[test]
fn staged_lines_and_ranges_are_scanned_by_their_place_in_the_file() {
    let world = World::new();
    world.repository();
    world.write("notes", "one\ntwo\nthree\n");
    world.git(&world.workspace, &["add", "notes"]);
    world.git(&world.workspace, &["commit", "-q", "-m", "second"]);
    world.scan(&["--staged"], "").expect(0);
    world.write("notes", format!("one\ntwo\nkey {}\nthree\n", token()));
    world.scan(&["--staged"], "").expect(0);
    world.git(&world.workspace, &["add", "notes"]);
    let found = world.findings(&["--staged"], "");
    assert_eq!((files(&found), &found[0]["line"]), (vec!["notes"], &3.into()));
    world.git(&world.workspace, &["commit", "-q", "-m", "third"]);
    assert_eq!(world.findings(&["--git-diff", "HEAD~1..HEAD"], "")[0]["line"], 3);
    world.scan(&["--git-diff", "HEAD~2..HEAD~1"], "").expect(0);
    world.scan(&["--git-diff", "nowhere..HEAD"], "").expect(125).says("git failed");
    world.write("notes", "one\n");
    world.scan(&["--git-diff", "HEAD"], "").expect(0);
}

/// Runs `git diff` by hand where `ringfence scan --git-diff` is to run nothing.
fn hostile(world: &World, arguments: &[&str]) {
    let canary = world.workspace.join("canary");
    world.scan(&["--git-diff", "HEAD"], "");
    world.scan(&["--staged"], "");
    assert!(!canary.exists(), "a program of the repository ran");
    finish(world.host("git").args(arguments), b"");
    assert!(canary.exists(), "the control runs it");
}

#[test]
fn filters_of_a_hostile_repository_do_not_run() {
    for (name, part) in [("x", "clean"), ("a=b.c", "process")] {
        let world = World::new();
        world.repository();
        world.write("notes", "one\n");
        world.git(&world.workspace, &["add", "notes"]);
        world.git(&world.workspace, &["commit", "-q", "-m", "second"]);
        world.write(".gitattributes", format!("notes filter={name}\n"));
        let program = format!("touch '{}'; cat", world.workspace.join("canary").display());
        world.git(&world.workspace, &["config", &format!("filter.{name}.{part}"), &program]);
        world.git(&world.workspace, &["config", &format!("filter.{name}.required"), "true"]);
        world.write("notes", format!("one\nkey {}\n", token()));
        let found = world.findings(&["--git-diff", "HEAD"], "");
        assert_eq!((files(&found), &found[0]["line"]), (vec!["notes"], &2.into()));
        hostile(&world, &["diff", "HEAD"]);
    }
}

#[test]
fn what_a_partial_clone_lacks_is_not_fetched() {
    let world = World::new();
    world.repository();
    world.write("notes", "one\n");
    world.git(&world.workspace, &["add", "notes"]);
    world.git(&world.workspace, &["commit", "-q", "-m", "second"]);
    let blob = world.git(&world.workspace, &["rev-parse", "HEAD:notes"]);
    let (first, rest) = blob.trim().split_at(2);
    std::fs::remove_file(world.workspace.join(format!(".git/objects/{first}/{rest}"))).unwrap();
    world.write("notes", "two\n");
    let program = format!("touch '{}'; false", world.workspace.join("canary").display());
    for (key, value) in [
        ("core.repositoryFormatVersion", "1"),
        ("extensions.partialClone", "o"),
        ("remote.o.url", "."),
        ("remote.o.promisor", "true"),
        ("remote.o.uploadpack", &program),
    ] {
        world.git(&world.workspace, &["config", key, value]);
    }
    world.scan(&["--git-diff", "HEAD"], "").expect(125).says("git failed");
    hostile(&world, &["diff", "HEAD"]);
}

#[test]
fn a_git_that_complains_a_lot_is_waited_for() {
    let world = World::new();
    world.repository();
    let name = |number: usize| format!("{number}-{}", "long".repeat(50));
    (0..600).for_each(|number| drop(world.write(&name(number), "one\n")));
    world.git(&world.workspace, &["add", "."]);
    world.git(&world.workspace, &["commit", "-q", "-m", "second"]);
    (0..600).for_each(|number| drop(world.write(&name(number), "two\n")));
    world.git(&world.workspace, &["config", "core.autocrlf", "true"]);
    let complaints = finish(world.host("git").args(["diff", "HEAD", "--stat"]), b"").expect(0).err;
    assert!(complaints.len() > 128 << 10, "more than a pipe holds: {}", complaints.len());
    world.scan(&["--git-diff", "HEAD"], "").expect(0).says("in 600 files");
}

#[test]
fn a_limit_that_was_reached_is_no_clean_result() {
    let world = World::new();
    world.repository();
    let hostile = [0x1f, 0x8b, 0x08].repeat(10_000);
    world.write("bomb", &hostile);
    world.git(&world.workspace, &["add", "bomb"]);
    for arguments in [&["bomb"][..], &["--staged"], &["--git-diff", "HEAD"]] {
        world.scan(arguments, "").expect(125).says("not all were scanned");
    }
    world.write("bomb", [hostile.as_slice(), b"\n", token().as_bytes()].concat());
    world.git(&world.workspace, &["add", "bomb"]);
    world.scan(&["bomb"], "").expect(1).says("not all were scanned");
    world.scan(&["--staged"], "").expect(1).says("not all were scanned");
}

#[test]
fn it_is_a_pre_commit_hook() {
    let world = World::new();
    world.repository();
    let hook = world.write(".git/hooks/pre-commit", "#!/bin/sh\nexec \"$RINGFENCE\" scan --staged\n");
    finish(world.host("chmod").arg("+x").arg(&hook), b"").expect(0);
    let commit = |name: &str| {
        let identity = ["-c", "user.name=Host", "-c", "user.email=host@example.test"];
        finish(world.host("git").args(identity).args(["commit", "-q", "-m", name]), b"")
    };
    world.write("clean", "words\n");
    world.git(&world.workspace, &["add", "clean"]);
    commit("clean").expect(0);
    world.write("leak", token());
    world.git(&world.workspace, &["add", "leak"]);
    commit("leak").expect(1);
    assert!(world.git(&world.workspace, &["log", "--format=%s"]).starts_with("clean"));
}

#[test]
fn sarif_names_rules_and_places() {
    let world = World::new();
    world.write("a b.txt", format!("x\n{}\n", token()));
    let done = world.scan(&["--sarif", "."], "").expect(1);
    let document = done.json();
    assert_eq!(document["version"], "2.1.0");
    let result = &document["runs"][0]["results"][0];
    assert_eq!(result["ruleId"], "github-token");
    let place = &result["locations"][0]["physicalLocation"];
    assert_eq!(place["artifactLocation"]["uri"], "a%20b.txt");
    assert_eq!(place["region"]["startLine"], 2);
    let rules = document["runs"][0]["tool"]["driver"]["rules"].as_array().unwrap();
    assert!(rules.iter().any(|rule| rule["id"] == "github-token"));
    assert!(!done.text().contains(&token()));
    world.scan(&["--sarif", "-"], "nothing").expect(0);
}

#[test]
fn an_allowlist_silences_what_it_names_until_it_expires() {
    let world = World::new();
    world.write("leak.txt", token());
    let list = |entry: &str| {
        let text = format!("version = 1\nsalt = \"of this test\"\n{entry}");
        world.write("allow/list.toml", text).display().to_string()
    };
    let empty = list("");
    let found = world.findings(&["--allowlist", &empty, "leak.txt"], "");
    let print = found[0]["fingerprint"].as_str().unwrap().to_owned();
    assert_eq!(world.findings(&["--allowlist", &empty, "leak.txt"], "")[0]["fingerprint"], print.as_str());
    for (entry, code) in [
        (format!("fingerprint = \"{print}\""), 0),
        ("path = \"leak.txt\"".to_owned(), 0),
        ("path = \"other.txt\"".to_owned(), 1),
    ] {
        let dated = |date: &str| format!("[[allow]]\n{entry}\nreason = \"a test\"\nexpires = \"{date}\"\n");
        world.scan(&["--allowlist", &list(&dated("2999-01-01")), "leak.txt"], "").expect(code);
        world.scan(&["--allowlist", &list(&dated("2001-01-01")), "leak.txt"], "").expect(1).says("expired");
    }
    let broken = list("[[allow]]\nreason = \"nothing\"\nexpires = \"2999-01-01\"\n");
    world.scan(&["--allowlist", &broken, "leak.txt"], "").expect(125).says("entry 1");
    assert!(Path::new(&broken).exists());
}

#[test]
fn own_rules_are_checked_and_used() {
    let world = World::new();
    let rule = |example: &str| {
        format!(
            "[[rule]]\nid = \"acme-key\"\nabout = \"Acme\"\nkeywords = [\"acme_\"]\nshape = 'acme_[a-z0-9]{{16}}'\nmatch = ['{example}']\n"
        )
    };
    let file = world.write("acme.toml", rule("acme_{lownum:16}")).display().to_string();
    let input = "key acme_9f8e7d6c5b4a3928 end";
    world.scan(&["-"], input).expect(0);
    let found = world.findings(&["--rules", &file, "-"], input);
    assert_eq!(found[0]["rule"], "acme-key");
    let file = world.write("acme.toml", rule("acme_{upper:16}")).display().to_string();
    world.scan(&["--rules", &file, "-"], input).expect(125).says("does not find its example");
}

#[test]
fn hostile_names_are_escaped() {
    let world = World::new();
    world.write("a\x1b[31m\nb", token());
    let done = world.scan(&["."], "").expect(1);
    assert!(!done.text().contains('\x1b') && done.text().lines().count() == 2, "{:?}", done.text());
}
