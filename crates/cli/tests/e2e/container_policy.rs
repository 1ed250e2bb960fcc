//! Containers that a policy asks for: chosen without a flag, not left by one, signed, and shown to whoever is asked.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::approval::session;
use crate::podman::Podman;
use crate::terminal::Terminal;
use crate::testkit::{World, collect, finish};

/// The operator's file, with the engine of this test.
pub(crate) fn configure(world: &World, podman: &Podman, before: &str, container: &str) {
    let socket = podman.socket();
    let directory = world.home.join(".config/ringfence");
    fs::create_dir_all(&directory).unwrap();
    let text = format!("{before}\n[container]\nengine_socket = \"{}\"\n{container}\n", socket.display());
    fs::write(directory.join("config.toml"), text).unwrap();
}

fn backend(object: &Value) -> &str {
    object["posture"]["backend"].as_str().unwrap_or_default()
}

/// C-24: the operator's file chooses the backend and the image. Nothing leaves it, in either direction, by a flag or because
/// it cannot be had.
#[test]
fn a_policy_chooses_the_container_and_nothing_leaves_it() {
    let mut podman = Podman::start();
    let (world, _) = podman.world();
    let ran = || world.workspace.join("ran").exists();
    let script = ["sh", "-c", "echo ran >ran"];
    // With an engine and an image at hand, but without being asked for, nothing runs in a container.
    configure(&world, &podman, "", "image = \"dev\"");
    assert_eq!(backend(&world.json(&[], &["true"])), "native");

    configure(&world, &podman, "backend = \"container\"", "image = \"dev\"");
    let inside = world.json(&[], &["sh", "-c", "test -e /.ringfence && echo inside"]);
    assert_eq!((backend(&inside), &inside["stdout"]), ("container", &"inside\n".into()));
    world.run(&["--backend", "native"], &script).expect(126).says("is above `backend = \"container\"`");
    world.run(&["--image", "other"], &script).expect(126).says("`--image other` is above");
    world.run(&["--engine", "/other"], &script).expect(126).says("--engine /other");
    let narrowed = world.workspace.join(".ringfence/policy.toml");
    fs::create_dir_all(narrowed.parent().unwrap()).unwrap();
    fs::write(&narrowed, "backend = \"native\"\n").unwrap();
    assert_eq!(backend(&world.json(&[], &["true"])), "container");
    fs::remove_file(&narrowed).unwrap();

    podman.stop();
    world.run(&[], &script).expect(125).says("podman system service");
    assert!(!ran(), "what cannot be had in a container is not had");
    podman.start_again();

    // One agent only.
    configure(&world, &podman, "[agents.codex]\nbackend = \"container\"", "image = \"dev\"");
    assert_eq!(backend(&world.json(&["--agent", "codex"], &["true"])), "container");
    assert_eq!(backend(&world.json(&[], &["true"])), "native");
    world.run(&["--agent", "codex", "--backend", "native"], &script).expect(126);
    assert!(!ran());
}

/// S004-2: the profiles of document 004, in the containers of document 004: listed commands on a read-only workspace.
#[test]
fn strict_profiles_run_in_containers() {
    let podman = Podman::start();
    let (world, _) = podman.world();
    world.write("readme", "read me\n");
    for profile in ["strict", "air-gapped"] {
        let profile = format!("profile = \"{profile}\"\nbackend = \"container\"");
        configure(&world, &podman, &profile, "image = \"dev\"");
        let object = world.json(&[], &["cat", "readme"]);
        assert_eq!((backend(&object), &object["stdout"]), ("container", &"read me\n".into()), "{object}");
        world.run(&[], &["touch", "made"]).expect(126);
        world.run(&[], &["./readme"]).expect(126);
        world.run(&["--backend", "native"], &["cat", "readme"]).expect(126);
        assert!(!world.workspace.join("made").exists());
    }
}

/// Whoever is asked sees the image and its digest, not a program of this machine; the answer is bound to them.
#[test]
fn a_question_names_the_image() {
    let podman = Podman::start();
    let (world, flags) = podman.world();
    let terminal = Terminal::new(60, 200);
    let words = flags.with(&["--profile", "guarded", "--", "touch", "made"]).join(" ");
    let child = session(&world, &terminal, &format!("exec \"$RINGFENCE\" run {words}"));
    terminal.wait_for("[e]xplain > ");
    let id = podman.id(&world);
    let prompt = terminal.seen();
    assert!(prompt.contains(&format!("touch of the image `dev`, {id}")), "{prompt}");
    assert!(!prompt.contains("/usr/bin/touch"), "{prompt}");
    terminal.type_in(b"o");
    collect(child).expect(0);
    assert!(world.workspace.join("made").exists());
    let records = world.records();
    let asked =
        records.iter().find(|record| record["event"]["kind"] == "approval-requested").unwrap().to_string();
    assert!(
        asked.contains(&format!(r#"{{"kind":"image","path":"/usr/bin/touch","sha256":"{id}"}}"#)),
        "{asked}"
    );
}

/// An image is the programs: an answer that was stored for one says nothing about another, nor about this machine.
#[test]
fn an_answer_that_is_stored_for_one_image_is_for_no_other() {
    let podman = Podman::start();
    let (world, flags) = podman.world();
    let recipe = world.beside("recipe");
    fs::write(recipe.join("Dockerfile"), "FROM localhost/ringfence/dev:latest\nLABEL other=1\n").unwrap();
    let tag = "localhost/other:1";
    podman.podman(&["build", "--pull=never", "--tag", tag, recipe.to_str().unwrap()]).expect(0);
    podman.images(&world, &["add", "other", tag]).expect(0);
    let terminal = Terminal::new(60, 200);
    let words = flags.with(&["--profile", "guarded", "--", "touch", "made"]).join(" ");
    let child = session(&world, &terminal, &format!("exec \"$RINGFENCE\" run {words}"));
    terminal.wait_for("[e]xplain > ");
    terminal.type_in(b"a");
    terminal.wait_for("anything else goes back > ");
    terminal.type_in(b"1");
    collect(child).expect(0);
    let made = world.workspace.join("made");
    let run = |flags: &[&str], profile: &str| {
        let _absent = fs::remove_file(&made);
        let code = world.run(&[flags, &["--profile", profile]].concat(), &["touch", "made"]).code;
        (code, made.exists())
    };
    let other: Vec<&str> =
        flags.with(&[]).into_iter().map(|word| if word == "dev" { "other" } else { word }).collect();
    for elsewhere in [&other[..], &[]] {
        assert_eq!(run(elsewhere, "guarded"), (Some(126), false), "{elsewhere:?}");
        assert_eq!(run(elsewhere, "workspace"), (Some(0), true), "control: {elsewhere:?} without a question");
    }
    assert_eq!(run(&flags.with(&[]), "guarded"), (Some(0), true), "control: the image of the answer");
}

fn openssl(arguments: &[&str]) {
    finish(Command::new("openssl").args(arguments), b"").expect(0);
}

struct Key {
    private: PathBuf,
    public: PathBuf,
}

impl Key {
    fn new(directory: &Path, name: &str) -> Self {
        let (private, public) =
            (directory.join(format!("{name}.key")), directory.join(format!("{name}.pub")));
        let curve = "ec_paramgen_curve:P-256";
        openssl(&[
            "genpkey",
            "-quiet",
            "-algorithm",
            "EC",
            "-pkeyopt",
            curve,
            "-out",
            private.to_str().unwrap(),
        ]);
        openssl(&["pkey", "-in", private.to_str().unwrap(), "-pubout", "-out", public.to_str().unwrap()]);
        Self { private, public }
    }

    /// What `cosign sign` would make for this digest, as `cosign download signature` writes it.
    fn sign(&self, digest: &str) -> PathBuf {
        let payload = json!({
            "critical": {
                "identity": { "docker-reference": "localhost/ringfence/dev" },
                "image": { "docker-manifest-digest": digest },
                "type": "cosign container image signature",
            },
            "optional": null,
        });
        let [text, signature, file] =
            ["payload", "signature", "json"].map(|end| self.private.with_extension(end));
        fs::write(&text, payload.to_string()).unwrap();
        let paths = [&self.private, &signature, &text].map(|path| path.to_str().unwrap().to_owned());
        openssl(&["dgst", "-sha256", "-sign", &paths[0], "-out", &paths[1], &paths[2]]);
        let line = json!({
            "Base64Signature": STANDARD.encode(fs::read(&signature).unwrap()),
            "Payload": STANDARD.encode(payload.to_string()),
            "Cert": null, "Chain": null, "Bundle": null,
        });
        fs::write(&file, format!("{line}\n")).unwrap();
        file
    }
}

/// S003-20, C-24: an image that the policy wants signed is refused without a signature, with another's, with one for another image,
/// and with one that was changed on the list.
#[test]
fn a_policy_can_ask_for_a_signature() {
    let podman = Podman::start();
    let (world, _) = podman.world();
    let id = podman.id(&world);
    let inspected: Value = serde_json::from_str(&podman.podman(&["image", "inspect", &id]).text()).unwrap();
    let digest = inspected[0]["Digest"].as_str().unwrap().to_owned();
    let (own, other) = (Key::new(&world.home, "own"), Key::new(&world.home, "other"));
    let add = |signature: &Path, key: &Path| {
        let (signature, key) = (signature.to_str().unwrap(), key.to_str().unwrap());
        podman.images(&world, &["add", "dev", &id, "--signature", signature, "--key", key])
    };
    let elsewhere = format!("sha256:{}", "0".repeat(64));
    add(&own.sign(&elsewhere), &own.public).expect(125).says(&format!("is for {elsewhere}"));
    add(&other.sign(&digest), &own.public).expect(125).says("no signature in");
    add(&own.public, &own.public).expect(125).says("cosign download signature");
    add(&own.sign(&digest), &own.private).expect(125).says("no public key");

    let fingerprint = {
        let der = finish(
            Command::new("openssl").args(["pkey", "-pubin", "-outform", "DER", "-in"]).arg(&own.public),
            b"",
        );
        let sum = finish(&mut Command::new("sha256sum"), &der.expect(0).out).expect(0).text();
        format!("sha256:{}", sum.split(' ').next().unwrap())
    };
    let wanted = format!("image = \"dev\"\ntrusted_keys = \"{fingerprint}\"");
    configure(&world, &podman, "backend = \"container\"", &wanted);
    world.run(&[], &["true"]).expect(126).says("has no signature").says("--signature FILE");
    add(&other.sign(&digest), &other.public).expect(0);
    world.run(&[], &["true"]).expect(126).says("which the policy does not name");
    let added = add(&own.sign(&digest), &own.public).expect(0).text();
    assert!(added.contains(&format!("signed with the key {fingerprint} for {digest}")), "{added}");
    world.run(&[], &["true"]).expect(0);

    let list = world.home.join(".config/ringfence/images.toml");
    let text = fs::read_to_string(&list).unwrap();
    let at = text.find("payload = \"").unwrap() + 40;
    let mut changed = text.into_bytes();
    changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
    fs::write(&list, changed).unwrap();
    world.run(&[], &["true"]).expect(126).says("does not hold");
}
