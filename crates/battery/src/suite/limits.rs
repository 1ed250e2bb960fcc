//! Attempts to exceed limits. Every attempt stops by itself at a harmless amount.

use std::fs::{self, File};
use std::io::{self, Write};
use std::time::{Duration, Instant};

use ringfence_types::Control::Limits as LimitsControl;
use ringfence_types::Limits;
use rustix::io::Errno;
use rustix::process::{Pid, Resource, Rlimit, Signal};

use crate::arena::Arena;
use crate::attempt::{Attempt, AttemptBody, AttemptClass, BASE};
use crate::evidence::{AttemptLog, TrialEvidence};
use crate::judge::ObservedEffect;
use crate::sys;
use crate::world::AttackWorld;

const MIB: u64 = 1024 * 1024;

const SHARE: Attempt = Attempt {
    class: AttemptClass::System,
    controls: &[LimitsControl],
    from: "S9",
    judge: went_all_the_way,
    ..BASE
};

pub(super) const ATTEMPTS: &[Attempt] = &[
    Attempt {
        id: "S9-cpu-time",
        title: "use more processor time than allowed",
        limits: |limits| Limits { cpu_seconds: 1, ..limits },
        body: AttemptBody::Code(spin),
        ..SHARE
    },
    Attempt {
        id: "S9-memory",
        title: "use more memory than allowed",
        from: "S9, B-A25",
        limits: |limits| Limits { memory_bytes: 64 * MIB, ..limits },
        body: AttemptBody::Code(hoard),
        ..SHARE
    },
    Attempt {
        id: "S9-memory-together",
        title: "use more memory than allowed in several processes, each below the limit",
        limits: |limits| Limits { memory_bytes: 96 * MIB, ..limits },
        body: AttemptBody::Code(hoard_together),
        ..SHARE
    },
    Attempt {
        id: "S9-shared-memory",
        title: "use more memory than allowed in files that are memory and that no process maps",
        limits: |limits| Limits { memory_bytes: 96 * MIB, ..limits },
        body: AttemptBody::Code(hoard_in_files),
        ..SHARE
    },
    Attempt {
        id: "S9-processes",
        title: "make more processes than allowed",
        from: "S9, B-O13",
        limits: |limits| Limits { processes: 16, ..limits },
        body: AttemptBody::Code(multiply),
        ..SHARE
    },
    Attempt {
        id: "S9-open-files",
        title: "open more files than allowed, after raising one's own limit",
        limits: |limits| Limits { open_files: 64, ..limits },
        body: AttemptBody::Code(open_many),
        ..SHARE
    },
    Attempt {
        id: "S9-file-size",
        title: "write a larger file than allowed",
        limits: |limits| Limits { file_size_bytes: MIB, ..limits },
        body: AttemptBody::Code(|arena, log| {
            log.step("all", fill(&arena.inside("large"), 4));
        }),
        judge: |world, _| {
            let len = fs::metadata(world.workspace().join("large")).map_or(0, |file| file.len());
            vec![ObservedEffect { what: "the file is larger than allowed".to_owned(), happened: len > MIB }]
        },
        ..SHARE
    },
    Attempt {
        id: "S9-tmp",
        title: "fill /tmp beyond what is allowed",
        limits: |limits| Limits { tmp_bytes: 8 * MIB, ..limits },
        body: AttemptBody::Code(|arena, log| {
            let paths = [arena.shared("/tmp", "fill-a"), arena.shared("/tmp", "fill-b")];
            let filled = paths.iter().try_for_each(|path| fill(path, 8));
            log.step("all", filled);
            paths.iter().for_each(|path| drop(fs::remove_file(path)));
        }),
        ..SHARE
    },
    Attempt {
        id: "S9-output",
        title: "flood the output",
        limits: |limits| Limits { output_bytes: 64 * 1024, ..limits },
        body: AttemptBody::Code(|_, log| (0..64).for_each(|_| log.loot(&[b'x'; 64 * 1024]))),
        judge: |_, evidence| {
            vec![ObservedEffect {
                what: "all of it was delivered".to_owned(),
                happened: evidence.stdout.len() as u64 > 2 * MIB,
            }]
        },
        ..SHARE
    },
];

fn went_all_the_way(_: &AttackWorld, evidence: &TrialEvidence) -> Vec<ObservedEffect> {
    let all = evidence.steps.iter().any(|step| step.what == "all" && step.errno.is_none());
    vec![ObservedEffect { what: "it got all it wanted".to_owned(), happened: all }]
}

/// One and a half times the limit.
const SPIN: Duration = Duration::from_millis(1500);

fn spin(_: &Arena, log: &mut AttemptLog<'_>) {
    let clock = || rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let begun = Instant::now();
    let used = || Duration::new(clock().tv_sec.cast_unsigned(), u32::try_from(clock().tv_nsec).unwrap_or(0));
    while used() < SPIN && begun.elapsed() < Duration::from_secs(60) {
        std::hint::black_box((0..100_000_u64).fold(0, u64::wrapping_add));
    }
    log.step("all", if used() >= SPIN { Ok(()) } else { Err(io::Error::other("slow")) });
}

fn hoard(_: &Arena, log: &mut AttemptLog<'_>) {
    const BLOCK: usize = 16 * 1024 * 1024;
    let hoard: Vec<Vec<u8>> = (0..10).map(|_| vec![1_u8; BLOCK]).collect();
    std::hint::black_box(&hoard);
    log.step("all", Ok::<(), io::Error>(()));
}

/// Longer than the memory accounting takes to notice.
const HELD: Duration = Duration::from_millis(800);

fn hoard_together(_: &Arena, log: &mut AttemptLog<'_>) {
    const EACH: usize = 64 * 1024 * 1024;
    let hoard = || {
        let hoard = vec![1_u8; EACH];
        std::thread::sleep(HELD);
        u8::from(std::hint::black_box(&hoard).is_empty())
    };
    let children: Vec<i32> = (0..3).filter_map(|_| sys::fork(hoard).ok()).collect();
    let lived = children.iter().filter(|child| sys::wait(**child).is_ok_and(|code| code == Some(0))).count();
    log.step("all", if lived == 3 { Ok(()) } else { Err(Errno::NOMEM) });
}

fn hoard_in_files(_: &Arena, log: &mut AttemptLog<'_>) {
    let kept = (0..3).map(|_| -> io::Result<File> {
        let mut file = File::from(rustix::fs::memfd_create("hoard", rustix::fs::MemfdFlags::CLOEXEC)?);
        let block = vec![1_u8; 1024 * 1024];
        (0..64).try_for_each(|_| file.write_all(&block))?;
        Ok(file)
    });
    let kept: io::Result<Vec<File>> = kept.collect();
    std::thread::sleep(HELD);
    log.step("all", kept);
}

fn multiply(_: &Arena, log: &mut AttemptLog<'_>) {
    const WANTED: usize = 48;
    let idle = || {
        std::thread::sleep(Duration::from_secs(2));
        0
    };
    let children: Vec<i32> = (0..WANTED).map_while(|_| sys::fork(idle).ok()).collect();
    if children.is_empty() {
        log.broken("not even one process can be made");
    }
    log.step("all", if children.len() == WANTED { Ok(()) } else { Err(io::Error::from_raw_os_error(11)) });
    for child in children {
        let _ = Pid::from_raw(child).map(|pid| rustix::process::kill_process(pid, Signal::KILL));
        let _ = sys::wait(child);
    }
}

fn open_many(_: &Arena, log: &mut AttemptLog<'_>) {
    const WANTED: usize = 200;
    let hard = rustix::process::getrlimit(Resource::Nofile).maximum;
    let _ = rustix::process::setrlimit(Resource::Nofile, Rlimit { current: hard, maximum: hard });
    let wish = Rlimit { current: Some(4096), maximum: Some(4096) };
    let _ = rustix::process::setrlimit(Resource::Nofile, wish);
    let files: Result<Vec<File>, io::Error> = (0..WANTED).map(|_| File::open("/dev/null")).collect();
    log.step("all", files);
}

fn fill(path: &std::path::Path, mebibytes: usize) -> io::Result<()> {
    let block = vec![1_u8; 1024 * 1024];
    let mut file = File::create(path)?;
    (0..mebibytes).try_for_each(|_| file.write_all(&block))
}
