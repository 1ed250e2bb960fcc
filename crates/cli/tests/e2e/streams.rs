//! Standard input, output and error: byte for byte, whatever is on the other end.

use std::fs::{self, File};
use std::io::Read as _;
use std::process::Stdio;
use std::time::Duration;

use crate::test_timeouts::Patient;
use crate::testkit::{World, collect, finish};

fn all_bytes(times: usize) -> Vec<u8> {
    (0..times).flat_map(|_| 0..=255).collect()
}

#[test]
fn input_arrives_whole_and_ends() {
    let world = World::new();
    world.run(&[], &["cat"]).expect(0);
    for input in [Vec::new(), b"no newline".to_vec(), all_bytes(1), all_bytes(4096)] {
        let done = finish(world.ringfence().args(["run", "--", "cat"]), &input).expect(0);
        assert_eq!(done.out.len(), input.len());
        assert!(done.out == input, "the bytes differ");
    }
    let done = finish(world.ringfence().args(["run", "--", "wc", "-c"]), &vec![0; 1 << 20]).expect(0);
    assert_eq!(done.text().trim(), "1048576");
    // A command that does not read does not hold anybody up.
    finish(world.ringfence().args(["run", "--", "true"]), &vec![1; 1 << 20]).expect(0);
}

/// S000-27: every byte of both streams, unchanged and apart, in the order in which they were written.
#[test]
fn output_is_streamed_byte_exact() {
    let world = World::new();
    fs::write(world.workspace.join("bytes"), all_bytes(64)).unwrap();
    let done = world.run(&[], &["cat", "bytes"]).expect(0);
    assert!(done.out == all_bytes(64));
    let done = world.sh("printf 'a\\000b'; printf 'c\\000d' >&2").expect(0);
    assert_eq!((done.out.as_slice(), done.err.as_str()), (&b"a\0b"[..], "c\0d"));
    let done = world.sh("i=0; while [ $i -lt 200 ]; do echo $i; i=$((i+1)); done 2>&1").expect(0);
    let lines: Vec<usize> = done.text().lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(lines, (0..200).collect::<Vec<_>>());
    let done = world.sh("head -c 10485760 /dev/zero").expect(0);
    assert_eq!(done.out.len(), 10 << 20);
}

#[test]
fn output_comes_while_the_command_runs() {
    let world = World::new();
    let script = "echo early; while [ ! -e go ]; do sleep 0.05; done; echo late";
    let mut child = world
        .ringfence()
        .args(["run", "--", "sh", "-c", script])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut first = [0; 6];
    Patient(child.stdout.as_mut().unwrap()).read_exact(&mut first).unwrap();
    assert_eq!(&first, b"early\n");
    world.write("go", "");
    assert_eq!(collect(child).expect(0).text(), "late\n");
}

#[test]
fn a_reader_that_leaves_ends_the_command() {
    let world = World::new();
    let done = finish(
        world.host("sh").args([
            "-c",
            "\"$RINGFENCE\" run -- sh -c 'while echo line; do :; done; echo ended >status' | head -1",
        ]),
        b"",
    )
    .expect(0);
    assert_eq!(done.text(), "line\n");
    let done = finish(
        world.host("bash").args(["-c", "\"$RINGFENCE\" run -- yes | head -1; exit ${PIPESTATUS[0]}"]),
        b"",
    );
    assert_eq!(done.code, Some(141), "as without ringfence: {}", done.err);
}

#[test]
fn closed_standard_streams_do_no_harm() {
    let world = World::new();
    for closed in ["<&-", ">&-", "2>&-", "<&- >&-", "<&- >&- 2>&-"] {
        let script = format!(
            "\"$RINGFENCE\" run -- sh -c 'cat >/dev/null; echo x; echo y >&2; echo done >ran' {closed}"
        );
        let _ = fs::remove_file(world.workspace.join("ran"));
        let done = finish(world.host("sh").args(["-c", &script]), b"input");
        assert_eq!(done.signal, None, "{closed}: {}", done.err);
        assert!(!done.err.contains("panicked"), "{closed}: {}", done.err);
        assert_eq!(world.read("ran").as_deref(), Some("done\n"), "{closed}: {:?} {}", done.code, done.err);
    }
}

/// A descriptor of the caller is never the command's: a directory on standard input would be a way out.
#[test]
fn a_directory_as_standard_input_is_no_way_out() {
    let world = World::new();
    let outside = world.beside("outside");
    fs::write(outside.join("secret"), "top").unwrap();
    let script =
        "cat; ls -la /proc/self/fd; cat /proc/self/fd/0/secret; cd /proc/self/fd/0 && cat secret; exit 0";
    let child = |mut command: std::process::Command| {
        let directory = File::open(&outside).unwrap();
        collect(command.stdin(directory).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    };
    let mut control = world.host("sh");
    control.args(["-c", script]);
    assert!(child(control).text().contains("top"), "without ringfence the attempt succeeds");
    let mut fenced = world.ringfence();
    fenced.args(["run", "--", "sh", "-c", script]);
    let done = child(fenced).expect(0);
    assert!(!done.text().contains("top"), "{}", done.text());
    assert!(!done.text().contains("outside"), "{}", done.text());
}

/// S002-27: what goes beyond the cap is dropped, marked and counted, and the command is not held up.
#[test]
fn output_cap_is_marked() {
    let world = World::new();
    let done =
        world.sh_with(&["--max-output", "1000"], "head -c 5000 /dev/zero | tr '\\0' x; echo e >&2").expect(0);
    let text = done.text();
    assert!(text.starts_with(&"x".repeat(1000)));
    assert!(text.contains("[ringfence: stdout truncated after 1000 bytes]"), "{text}");
    assert_eq!(text.matches('x').count(), 1000);
    assert!(done.err.starts_with("e\n"), "{}", done.err);
    assert!(done.err.contains("--max-output"), "{}", done.err);
    let object = world.json(&["--max-output", "1000"], &["sh", "-c", "head -c 5000 /dev/zero | tr '\\0' x"]);
    assert_eq!(object["outcome"]["stdout"]["bytes"], 1000);
    assert_eq!(object["outcome"]["stdout"]["dropped"], 4000);
    assert_eq!(object["outcome"]["limit_hit"], "output");
}

#[test]
fn a_consumer_that_does_not_read_cannot_stop_the_clock() {
    let world = World::new();
    let mut child = world
        .ringfence()
        .args(["run", "--timeout", "500ms", "--", "yes"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let unread = child.stdout.take().unwrap();
    let done = collect(child).expect(124);
    assert!(done.took < Duration::from_secs(60), "{:?}", done.took);
    drop(unread);
}
