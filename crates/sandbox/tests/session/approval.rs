//! A command gets the files that it was approved with, whatever has their names when it opens them.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use ringfence_sandbox::{ApprovedFiles, FilePlace, Sandbox, SandboxCommand, SandboxSpec};
use ringfence_types::{Backend, ByteString};

use crate::{NoRules, World, run};

const BACKENDS: [Backend; 3] = [Backend::Native, Backend::Bubblewrap, Backend::Landlock];

struct Approval {
    files: ApprovedFiles,
}

impl Approval {
    fn of(world: &World, files: &[(&str, &[u8])]) -> Self {
        let mut approval = ApprovedFiles::default();
        approval.remember(&world.path("workspace"));
        for (name, bytes) in files {
            approval.add(&world.path("workspace").join(name), FilePlace::Writable, bytes).unwrap();
        }
        Self { files: approval }
    }

    fn command(self, world: &World, argv: &[&str]) -> SandboxCommand {
        let approved = Some(Arc::new(self.files));
        SandboxCommand {
            argv: argv.iter().map(|word| ByteString::from(*word)).collect(),
            approved,
            ..world.sh("")
        }
    }
}

fn write(world: &World, name: &str, content: impl AsRef<[u8]>) {
    let path = world.path("workspace").join(name);
    fs::write(&path, content).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

fn on(world: &World, backend: Backend) -> Sandbox {
    Sandbox::start(&SandboxSpec { backend, ..world.spec() }, &NoRules).unwrap()
}

fn unapproved(command: &SandboxCommand) -> SandboxCommand {
    SandboxCommand { approved: None, ..command.clone() }
}

#[test]
fn a_script_that_was_replaced_after_it_was_approved_runs_as_it_was_approved() {
    let good: &[u8] = b"#!/bin/sh -e\necho \"good $0 $*\"\n";
    for backend in BACKENDS {
        let world = World::new();
        let mut session = on(&world, backend);
        let full = world.path("workspace/job.sh").to_str().unwrap().to_owned();
        fs::create_dir(world.path("workspace/sub")).unwrap();
        let cases: [(&[&str], &str); 7] = [
            (&["/bin/sh", "job.sh", "a"], "good job.sh a\n"),
            (&["/bin/sh", "./job.sh"], "good ./job.sh \n"),
            (&["sh", &full], &format!("good {full} \n")),
            (&["bash", "sub/../job.sh"], "good sub/../job.sh \n"),
            (&["./job.sh", "a", "b"], "good ./job.sh a b\n"),
            (&["sh", "-c", "exec sh job.sh"], "good job.sh \n"),
            (&["env", "sh", "-c", "cd sub && sh ../job.sh"], "good ../job.sh \n"),
        ];
        for (argv, expected) in cases {
            write(&world, "job.sh", good);
            let command = Approval::of(&world, &[("job.sh", good)]).command(&world, argv);
            write(&world, "job.sh", "#!/bin/sh\necho evil\n");
            let (_, output) = run(&mut session, &unapproved(&command)).unwrap();
            assert_eq!(output, "evil\n", "control: {backend} {argv:?}");
            let (_, output) = run(&mut session, &command).unwrap();
            assert_eq!(output, expected, "{backend} {argv:?}");
        }
    }
}

#[test]
fn other_interpreters_get_the_approved_file_as_well() {
    let world = World::new();
    let mut session = world.start();
    let cases = [("python3", "job.py", "print('good')\n"), ("perl", "job.pl", "print \"good\\n\";\n")];
    for (interpreter, name, good) in cases {
        write(&world, name, good);
        let approval = Approval::of(&world, &[(name, good.as_bytes())]);
        let command = approval.command(&world, &[interpreter, name]);
        write(&world, name, good.replace("good", "evil"));
        let (_, output) = run(&mut session, &unapproved(&command)).unwrap();
        assert_eq!(output, "evil\n", "control: {interpreter}");
        let (_, output) = run(&mut session, &command).unwrap();
        assert_eq!(output, "good\n", "{interpreter}");
    }
}

#[test]
fn a_program_that_was_replaced_after_it_was_approved_runs_as_it_was_approved() {
    let good = fs::read("/bin/echo").unwrap();
    for backend in BACKENDS {
        let world = World::new();
        let mut session = on(&world, backend);
        write(&world, "tool", &good);
        let command = Approval::of(&world, &[("tool", &good)]).command(&world, &["./tool", "good"]);
        write(&world, "evil", "#!/bin/sh\necho evil\n");
        fs::rename(world.path("workspace/evil"), world.path("workspace/tool")).unwrap();
        let (_, output) = run(&mut session, &unapproved(&command)).unwrap();
        assert_eq!(output, "evil\n", "control: {backend}");
        let (_, output) = run(&mut session, &command).unwrap();
        assert_eq!(output, "good\n", "{backend}");
    }
}

/// Through PATH, with nothing in the file, and through a link to a program of the system.
#[test]
fn the_program_of_a_command_is_the_approved_one_however_it_is_named() {
    let world = World::new();
    let mut session = world.start();
    write(&world, "tool", b"#!/bin/sh\necho \"good $0\"\n");
    let good = fs::read(world.path("workspace/tool")).unwrap();
    let mut command = Approval::of(&world, &[("tool", &good)]).command(&world, &["tool"]);
    let path = format!("{}:/usr/bin:/bin", world.path("workspace").display());
    command.env = vec![(ByteString::from("PATH"), ByteString::from(path.as_str()))];
    write(&world, "tool", b"#!/bin/sh\necho evil\n");
    let (_, output) = run(&mut session, &command).unwrap();
    assert_eq!(output, format!("good {}\n", world.path("workspace/tool").display()));

    let empty = Approval::of(&world, &[("tool", b"")]).command(&world, &["./tool"]);
    let (finished, output) = run(&mut session, &empty).unwrap();
    assert_eq!((finished.exit.code(), output.as_str()), (126, ""), "nothing is executed for an empty file");

    let link = world.path("workspace/link");
    std::os::unix::fs::symlink("/bin/echo", &link).unwrap();
    let mut files = ApprovedFiles::default();
    files.add(&link, FilePlace::ReadOnly, &fs::read("/bin/echo").unwrap()).unwrap();
    let command = Approval { files }.command(&world, &["./link", "good"]);
    fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink("tool", &link).unwrap();
    let (_, output) = run(&mut session, &unapproved(&command)).unwrap();
    assert_eq!(output, "evil\n", "control");
    let (_, output) = run(&mut session, &command).unwrap();
    assert_eq!(output, "good\n");
}

#[test]
fn a_replaced_program_that_the_command_executes_by_itself_is_refused() {
    let world = World::new();
    let mut session = world.start();
    let good: &[u8] = b"#!/bin/sh\necho good\n";
    write(&world, "tool", good);
    let approval = || Approval::of(&world, &[("tool", good)]).command(&world, &["sh", "-c", "./tool; true"]);
    let (_, output) = run(&mut session, &approval()).unwrap();
    assert_eq!(output, "good\n", "control");
    let swapped = approval();
    write(&world, "tool", "#!/bin/sh\necho evil\n");
    let (_, output) = run(&mut session, &swapped).unwrap();
    assert_eq!(output, "");
}

#[test]
fn what_the_command_changes_by_itself_is_changed_for_it() {
    let world = World::new();
    let mut session = world.start();
    let good: &[u8] = b"echo good\n";
    for change in [
        "echo 'echo own' >job.sh",
        "sed -i s/good/own/ job.sh",
        "echo 'echo own' >n; mv n job.sh",
        "rm job.sh; cp new job.sh",
    ] {
        write(&world, "new", "echo own\n");
        write(&world, "job.sh", good);
        let script = format!("{change}; sh job.sh");
        let command = Approval::of(&world, &[("job.sh", good)]).command(&world, &["sh", "-c", &script]);
        let (_, output) = run(&mut session, &command).unwrap();
        assert_eq!(output, "own\n", "{change}");
    }
}

#[test]
fn programs_that_only_read_an_approved_file_find_the_file_itself() {
    let world = World::new();
    let mut session = world.start();
    write(&world, "data", "one");
    let script = "cp data copy && cat copy data && test data -ef data";
    let command = Approval::of(&world, &[("data", b"one")]).command(&world, &["sh", "-c", script]);
    let (finished, output) = run(&mut session, &command).unwrap();
    assert_eq!((finished.exit.code(), output.as_str()), (0, "oneone"));
}

/// The attacker is a process of the same session that was there before: it replaces the file, and the directory of the file.
#[test]
fn a_process_of_the_same_session_that_swaps_all_the_time_does_not_get_its_script_executed() {
    const TRIES: usize = 60;
    let swaps = [
        "import os\nwhile True:\n os.link('evil','x'); os.rename('x','d/job.sh')\n os.link('good','x'); os.rename('x','d/job.sh')\n",
        "import os\nwhile True:\n os.rename('d','z'); os.rename('e','d'); os.rename('z','e')\n",
    ];
    for swap in swaps {
        let world = World::new();
        for directory in ["d", "e"] {
            fs::create_dir(world.path("workspace").join(directory)).unwrap();
        }
        for (name, content) in
            [("good", "good"), ("evil", "evil"), ("d/job.sh", "good"), ("e/job.sh", "evil")]
        {
            write(&world, name, format!("echo {content}\n"));
        }
        let mut session = world.start();
        let approved = Arc::new(Approval::of(&world, &[("d/job.sh", b"echo good\n")]).files);
        let attacker =
            SandboxCommand { argv: ["python3", "-c", swap].map(ByteString::from).to_vec(), ..world.sh("") };
        let null = world.output_file("attacker");
        session.spawn(&attacker, &null).unwrap();
        let mut outputs = |approved: Option<Arc<ApprovedFiles>>| -> Vec<String> {
            let argv = ["sh", "d/job.sh"].map(ByteString::from).to_vec();
            let command = SandboxCommand { argv, approved, ..world.sh("") };
            (0..TRIES).map(|_| run(&mut session, &command).unwrap().1).collect()
        };
        let control = outputs(None);
        assert!(
            control.iter().any(|output| output == "evil\n"),
            "control: the swap wins without an approval"
        );
        let fixed = outputs(Some(approved));
        assert!(fixed.iter().all(|output| output == "good\n"), "{fixed:?}");
    }
}

/// The directory that the command runs in is renamed away, so that its name leads to another.
#[test]
fn a_directory_that_is_swapped_under_a_running_command_does_not_change_its_script() {
    let world = World::new();
    let path = world.path("workspace");
    for (directory, word) in [("a", "good"), ("b", "evil")] {
        fs::create_dir(path.join(directory)).unwrap();
        write(&world, &format!("{directory}/job.sh"), format!("echo {word}\n"));
    }
    let mut session = world.start();
    let mut files = ApprovedFiles::default();
    files.remember(&path.join("a"));
    files.add(&path.join("a/job.sh"), FilePlace::Writable, b"echo good\n").unwrap();
    let wait = "while ! test -e ../go; do sleep 0.01; done; exec sh job.sh";
    let mut command = Approval { files }.command(&world, &["sh", "-c", wait]);
    command.cwd = path.join("a");
    let swapper = std::thread::spawn({
        let path = path.clone();
        move || swap(&path)
    });
    let (_, output) = run(&mut session, &command).unwrap();
    swapper.join().unwrap();
    assert_eq!(output, "good\n");
}

fn swap(path: &Path) {
    std::thread::sleep(std::time::Duration::from_millis(300));
    fs::rename(path.join("a"), path.join("old")).unwrap();
    fs::rename(path.join("b"), path.join("a")).unwrap();
    fs::write(path.join("old/job.sh"), "echo evil\n").unwrap();
    fs::write(path.join("go"), "").unwrap();
}

/// A listener of its own gives a command nothing: what the filter of the sandbox refuses is refused before anybody is asked, and
/// below an approved command there is no second one.
#[test]
fn a_listener_of_a_command_lets_nothing_through_that_the_sandbox_refuses() {
    const SCRIPT: &str = "
import ctypes, platform, signal, struct
signal.alarm(20)
libc = ctypes.CDLL(None, use_errno=True)
seccomp, unshare = {'x86_64': (317, 272), 'aarch64': (277, 97)}[platform.machine()]
code = struct.pack('<HBBI', 0x20, 0, 0, 0) + struct.pack('<HBBI', 0x15, 0, 1, unshare)
code += struct.pack('<HBBI', 0x06, 0, 0, 0x7fc00000) + struct.pack('<HBBI', 0x06, 0, 0, 0x7fff0000)
memory = ctypes.create_string_buffer(code)
program = struct.pack('<HxxxxxxQ', 4, ctypes.addressof(memory))
listener = libc.syscall(seccomp, 1, 8, program)
print('listener' if listener >= 0 else ctypes.get_errno())
if listener >= 0:
    libc.syscall(unshare, 0x10000000)
    print(ctypes.get_errno())
";
    let world = World::new();
    let mut session = world.start();
    write(&world, "job.py", SCRIPT);
    let approval = Approval::of(&world, &[("job.py", SCRIPT.as_bytes())]);
    let command = approval.command(&world, &["python3", "job.py"]);
    let (_, output) = run(&mut session, &unapproved(&command)).unwrap();
    assert_eq!(output, format!("listener\n{}\n", libc::EPERM));
    let (_, output) = run(&mut session, &command).unwrap();
    assert_eq!(output, format!("{}\n", libc::EBUSY));
}
