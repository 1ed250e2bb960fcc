#[path = "../../build/seccomp.rs"]
mod compiler;
mod numbers;

use std::fs;

use compiler::profile::{
    ArgCheck, ArgTest, ArgWidth, BuildArch as ProfileArch, SeccompAction, SeccompProfile, SyscallCase,
};
use compiler::program::{audit_arch, return_value};

use super::interpreter::{SeccompData, run};
use super::{SeccompArch, counted_for, entries, filter, filter_for, no_inet_for};

const PROFILE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/profiles/seccomp.toml"));
const ARCHES: [(SeccompArch, ProfileArch); 2] =
    [(SeccompArch::X86_64, ProfileArch::X86_64), (SeccompArch::Aarch64, ProfileArch::Aarch64)];
const HIGH: u64 = 0xffff_ffff_0000_0000;

const ALLOW: u32 = 0x7fff_0000;
const EPERM: u32 = 0x0005_0000 | 1;
const EINVAL: u32 = 0x0005_0000 | 22;
const ENOSYS: u32 = 0x0005_0000 | 38;
const IGNORED: u32 = 0x0005_0000;
const EPROTONOSUPPORT: u32 = 0x0005_0000 | 93;
const EAFNOSUPPORT: u32 = 0x0005_0000 | 97;
const KILL_PROCESS: u32 = 0x8000_0000;

fn profile() -> SeccompProfile {
    SeccompProfile::parse(PROFILE).unwrap()
}

fn answer(program: &[u8], arch: ProfileArch, number: u32, args: [u64; 6]) -> u32 {
    run(program, SeccompData { arch: audit_arch(arch), number, args }).0
}

/// What the main filter answers to the named call on both architectures, which must agree.
fn ask(name: &str, args: &[u64]) -> u32 {
    let profile = profile();
    let governed = profile.syscalls().map(|call| (&call.name, call.numbers));
    let left_open = profile.left_open.iter().map(|call| (&call.name, call.numbers));
    let (_, numbers) = governed.chain(left_open).find(|(known, _)| *known == name).unwrap();
    let mut six = [0; 6];
    six[..args.len()].copy_from_slice(args);
    let answers: Vec<u32> = ARCHES
        .iter()
        .filter_map(|(arch, data)| Some(answer(filter_for(*arch), *data, numbers.on(*data)?, six)))
        .collect();
    assert!(answers.windows(2).all(|pair| pair[0] == pair[1]), "{name}: {answers:x?}");
    answers[0]
}

/// The profile read line by line, without a tree.
fn naive(profile: &SeccompProfile, arch: ProfileArch, number: u32, args: [u64; 6]) -> u32 {
    if !profile.known.contains(arch, number) {
        return ENOSYS;
    }
    let call = profile.syscalls().find(|call| call.numbers.on(arch) == Some(number));
    let case = call.and_then(|call| call.cases.iter().find(|case| holds(case, args)));
    case.map_or(ALLOW, |case| return_value(case.action))
}

fn holds(case: &SyscallCase, args: [u64; 6]) -> bool {
    case.when.iter().all(|test| test_holds(test, args[test.arg as usize]))
}

fn test_holds(test: &ArgTest, arg: u64) -> bool {
    let width = if test.bits == ArgWidth::Low32 { u64::from(u32::MAX) } else { u64::MAX };
    match &test.check {
        ArgCheck::Is { mask, values } => values.contains(&(arg & mask & width)),
        ArgCheck::Not { mask, values } => !values.contains(&(arg & mask & width)),
        ArgCheck::AnyOf(bits) => arg & bits & width != 0,
        ArgCheck::AnyBut(bits) => arg & !bits & width != 0,
    }
}

/// Every constant of the profile, its neighbours, single bits, and all of them with high bits set.
fn interesting() -> Vec<u64> {
    let table: toml::Table = PROFILE.parse().unwrap();
    let constants =
        table["constants"].as_table().unwrap().values().map(|value| value.as_integer().unwrap() as u64);
    let near = constants.flat_map(|value| [value, value.wrapping_add(1), value.wrapping_sub(1)]);
    let all = near.chain((0..64).map(|bit| 1 << bit)).chain([u64::MAX]);
    let mut values: Vec<u64> = all.flat_map(|value| [value, value | HIGH, value | (1 << 32)]).collect();
    values.sort_unstable();
    values.dedup();
    values
}

#[test]
fn every_line_of_the_profile_is_enforced_on_both_architectures() {
    let profile = profile();
    for (arch, data) in ARCHES {
        for call in profile.syscalls() {
            let (Some(number), [case]) = (call.numbers.on(data), call.cases.as_slice()) else { continue };
            if case.when.is_empty() {
                assert_ne!(case.action, SeccompAction::Allow, "{}: a line without effect", call.name);
                let got = answer(filter_for(arch), data, number, [0; 6]);
                assert_eq!(got, return_value(case.action), "{} on {data}", call.name);
            }
        }
    }
}

#[test]
fn every_other_known_number_is_allowed() {
    let profile = profile();
    for (arch, data) in ARCHES {
        let governed: Vec<u32> = profile.syscalls().filter_map(|call| call.numbers.on(data)).collect();
        let others =
            (0..1024).filter(|number| profile.known.contains(data, *number) && !governed.contains(number));
        let mut count = 0;
        for number in others {
            assert_eq!(answer(filter_for(arch), data, number, [u64::MAX; 6]), ALLOW, "{number} on {data}");
            count += 1;
        }
        assert!(count > 200, "{count} on {data}");
    }
}

#[test]
fn the_tree_equals_a_reading_line_by_line() {
    let profile = profile();
    let values = interesting();
    for (arch, data) in ARCHES {
        for number in (0..1024).chain([0x3fff_ffff, 0x4000_0000, 0x4000_0029, u32::MAX]) {
            for (index, first) in values.iter().enumerate() {
                let pick = |step: usize| values[(index * step + step) % values.len()];
                let args = [*first, pick(7), pick(11), pick(13), pick(17), pick(19)];
                let expected = naive(&profile, data, number, args);
                assert_eq!(
                    answer(filter_for(arch), data, number, args),
                    expected,
                    "{number} {args:x?} on {data}"
                );
            }
        }
    }
}

#[test]
fn every_pair_of_arguments_of_a_conditional_call_is_read_rightly() {
    let profile = profile();
    let values = interesting();
    for (arch, data) in ARCHES {
        for call in profile.syscalls().filter(|call| call.cases.iter().any(|case| case.when.len() > 1)) {
            let Some(number) = call.numbers.on(data) else { continue };
            for first in &values {
                for second in &values {
                    for args in [[*first, *second, 0, 0, 0, 0], [*first, 1, *second, 0, 0, 0]] {
                        let expected = naive(&profile, data, number, args);
                        let got = answer(filter_for(arch), data, number, args);
                        assert_eq!(got, expected, "{} {args:x?} on {data}", call.name);
                    }
                }
            }
        }
    }
}

#[test]
fn a_foreign_architecture_is_killed() {
    const I386: u32 = 0x4000_0003;
    const ARM: u32 = 0x4000_0028;
    for (arch, data) in ARCHES {
        let other = if data == ProfileArch::X86_64 { ProfileArch::Aarch64 } else { ProfileArch::X86_64 };
        for foreign in [I386, ARM, audit_arch(other), 0, u32::MAX] {
            for number in [0, 1, 39, 102, u32::MAX] {
                let call = SeccompData { arch: foreign, number, args: [0; 6] };
                assert_eq!(run(filter_for(arch), call).0, KILL_PROCESS);
                assert_eq!(run(no_inet_for(arch), call).0, KILL_PROCESS);
            }
        }
    }
}

#[test]
fn x32_numbers_and_numbers_not_yet_known_do_not_exist() {
    for (arch, data) in ARCHES {
        let x32 = (0..1024).map(|number| number | 0x4000_0000);
        for number in x32.chain([472, 512, 547, 1000, 0x7fff_ffff, 0x8000_0000, u32::MAX]) {
            assert_eq!(answer(filter_for(arch), data, number, [0; 6]), ENOSYS, "{number:#x} on {data}");
            assert_eq!(answer(no_inet_for(arch), data, number, [0; 6]), ENOSYS, "{number:#x} on {data}");
        }
    }
    assert_eq!(answer(filter_for(SeccompArch::X86_64), ProfileArch::X86_64, 337, [0; 6]), ENOSYS);
    assert_eq!(answer(filter_for(SeccompArch::X86_64), ProfileArch::X86_64, 423, [0; 6]), ENOSYS);
    assert_eq!(answer(filter_for(SeccompArch::X86_64), ProfileArch::X86_64, 424, [0; 6]), ALLOW);
}

#[test]
fn terminal_injection_is_refused_also_with_high_bits() {
    const TCGETS: u64 = 0x5401;
    for request in [0x5412, 0x541c, 0x541d, 0x5423] {
        assert_eq!(ask("ioctl", &[0, request]), EPERM);
        assert_eq!(ask("ioctl", &[0, request | HIGH]), EPERM);
    }
    assert_eq!(ask("ioctl", &[0, TCGETS]), ALLOW);
    assert_eq!(ask("ioctl", &[0x5412, TCGETS]), ALLOW);
}

/// Whatever the size and direction that a request says its argument has.
#[test]
fn files_are_not_reached_by_number_or_snapshot() {
    const SIZES: [u64; 4] = [0, 0x4000_0000, 0x5000_0000, 0xc018_0000];
    let btrfs = (0..=0xff).map(|number| 0x9400 | number);
    let xfs = [0x65, 0x66, 0x67, 0x68, 0x69, 0x6a, 0x6b, 0x6c, 0x6d, 0x7a, 0x7b, 0x7f, 0x80, 0x3e, 0x3f];
    let others = [0x660f, 0x6611, 0x6602, 0x5820, 0xbc10, 0xcf06, 0x89e0];
    for request in btrfs.chain(xfs.map(|number| 0x5800 | number)).chain(others) {
        for size in SIZES {
            let request = request | size;
            let copies = [0x4004_9409, 0x4020_940d, 0xc018_9436].contains(&request);
            assert_eq!(ask("ioctl", &[3, request]), if copies { ALLOW } else { EPERM }, "{request:#x}");
        }
    }
    const FS_IOC_GETFLAGS: u64 = 0x8008_6601;
    for request in [0x4004_9409, 0x4020_940d, 0xc018_9436, 0x4004_cf03, FS_IOC_GETFLAGS] {
        assert_eq!(ask("ioctl", &[3, request]), ALLOW, "{request:#x}");
    }
}

#[test]
fn namespaces_are_refused_and_threads_are_not() {
    const THREAD: u64 = 0x003d_0f00;
    const SIGCHLD: u64 = 17;
    for flag in [0x0002_0000, 0x0200_0000, 0x0400_0000, 0x0800_0000, 0x1000_0000, 0x2000_0000, 0x4000_0000] {
        assert_eq!(ask("clone", &[flag | SIGCHLD]), EPERM);
        assert_eq!(ask("clone", &[flag | HIGH]), EPERM);
        assert_eq!(ask("unshare", &[flag]), EPERM);
    }
    assert_eq!(ask("clone", &[THREAD]), ALLOW);
    assert_eq!(ask("clone", &[SIGCHLD]), ALLOW);
    assert_eq!(ask("clone3", &[0]), ENOSYS);
    const CLONE_NEWTIME: u64 = 0x80;
    assert_eq!(ask("unshare", &[CLONE_NEWTIME]), EPERM);
    assert_eq!(ask("unshare", &[1 << 37]), EPERM);
    assert_eq!(ask("unshare", &[0x600]), ALLOW);
}

#[test]
fn sockets_are_unix_inet_and_route_netlink() {
    const CLOEXEC_NONBLOCK: u64 = 0o2_004_000;
    for family in [1, 2, 10] {
        assert_eq!(ask("socket", &[family, 1 | CLOEXEC_NONBLOCK, 0]), ALLOW);
        assert_eq!(ask("socket", &[family | HIGH, 2, 0]), ALLOW);
    }
    assert_eq!(ask("socket", &[16, 3, 0]), ALLOW);
    assert_eq!(ask("socket", &[16, 3, 12]), EPROTONOSUPPORT);
    for family in (0..64).filter(|family| ![1, 2, 10, 16].contains(family)) {
        assert_eq!(ask("socket", &[family, 1, 0]), EAFNOSUPPORT);
        assert_eq!(ask("socket", &[family | (1 << 32), 1, 0]), EAFNOSUPPORT);
    }
    assert_eq!(ask("socket", &[2, 3, 1]), EPERM);
    assert_eq!(ask("socket", &[2, 10 | CLOEXEC_NONBLOCK, 0x0300]), EPERM);
    assert_eq!(ask("socket", &[2, 1, 262]), EPROTONOSUPPORT);
    assert_eq!(ask("socketpair", &[1, 1, 0]), ALLOW);
    assert_eq!(ask("socketpair", &[30, 1, 0]), EAFNOSUPPORT);
}

/// The machine sets huge pages aside for its databases and virtual machines. Neither a control group nor the count has them.
#[test]
fn huge_pages_of_the_machine_are_refused() {
    const PRIVATE_ANONYMOUS: u64 = 0x22;
    const MAP_HUGETLB: u64 = 0x4_0000;
    const OF_ONE_GIB: u64 = 30 << 26;
    const CLOEXEC_SEALING: u64 = 3;
    const MFD_HUGETLB: u64 = 4;
    const IPC_CREAT: u64 = 0o1600;
    const SHM_HUGETLB: u64 = 0o4000;
    assert_eq!(ask("mmap", &[0, 4096, 3, PRIVATE_ANONYMOUS]), ALLOW);
    assert_eq!(ask("memfd_create", &[0, CLOEXEC_SEALING]), ALLOW);
    assert_eq!(ask("shmget", &[0, 4096, IPC_CREAT]), ALLOW);
    for more in [0, OF_ONE_GIB, HIGH] {
        assert_eq!(ask("mmap", &[0, 4096, 3, PRIVATE_ANONYMOUS | MAP_HUGETLB | more]), EPERM);
        assert_eq!(ask("memfd_create", &[0, CLOEXEC_SEALING | MFD_HUGETLB | more]), EPERM);
        assert_eq!(ask("shmget", &[0, 4096, IPC_CREAT | SHM_HUGETLB | more]), EPERM);
    }
}

#[test]
fn device_nodes_are_refused_and_fifos_are_not() {
    for (name, before) in [("mknod", 1), ("mknodat", 2)] {
        let with_mode = |mode: u64| [vec![0; before], vec![mode]].concat();
        for device in [0o020_666, 0o060_600] {
            assert_eq!(ask(name, &with_mode(device)), EPERM);
            assert_eq!(ask(name, &with_mode(device | 0xffff_0000)), EPERM);
        }
        for ordinary in [0o010_600, 0o140_600, 0o100_600, 0o600] {
            assert_eq!(ask(name, &with_mode(ordinary)), ALLOW);
        }
    }
}

#[test]
fn the_other_conditions_hold() {
    assert_eq!(ask("personality", &[0]), ALLOW);
    assert_eq!(ask("personality", &[0xffff_ffff]), ALLOW);
    assert_eq!(ask("personality", &[u64::MAX]), ALLOW);
    assert_eq!(ask("personality", &[0x0040_0000]), EPERM);
    assert_eq!(ask("prctl", &[35, 13]), EPERM);
    assert_eq!(ask("prctl", &[38, 1]), ALLOW);
    assert_eq!(ask("prlimit64", &[0, 7, 0xdead_0000_0000]), ALLOW);
    assert_eq!(ask("prlimit64", &[42, 7, 0]), ALLOW);
    assert_eq!(ask("prlimit64", &[42, 7, 0xdead_0000_0000]), EPERM);
    assert_eq!(ask("move_pages", &[0]), ALLOW);
    assert_eq!(ask("move_pages", &[HIGH]), ALLOW);
    assert_eq!(ask("move_pages", &[42]), EPERM);
}

#[test]
fn what_is_left_open_is_open() {
    for call in profile().left_open {
        assert_eq!(ask(&call.name, &[u64::MAX; 6]), ALLOW, "{}", call.name);
    }
}

#[test]
fn no_inet_closes_internet_sockets_only() {
    let profile = profile();
    for (arch, data) in ARCHES {
        let socket = profile.no_inet[0].numbers.on(data).unwrap();
        for number in (0..336).filter(|number| profile.known.contains(data, *number)) {
            for family in [1, 2, 10, 16, 2 | HIGH, 10 | HIGH] {
                let inet = number == socket && matches!(family & 0xff, 2 | 10);
                let expected = if inet { EPERM } else { ALLOW };
                assert_eq!(answer(no_inet_for(arch), data, number, [family; 6]), expected);
            }
        }
    }
}

#[test]
fn programs_are_small_and_fast() {
    for (arch, data) in ARCHES {
        let program = filter_for(arch);
        assert!(program.len() / 8 < 400, "{} instructions", program.len() / 8);
        let steps = |number| run(program, SeccompData { arch: audit_arch(data), number, args: [0; 6] }).1;
        let worst = (0..1024).map(steps).max().unwrap();
        assert!(worst <= 27, "{worst} instructions for one call on {data}");
    }
}

/// A policy for each page of a shared file is memory that no control group counts.
#[test]
fn pages_of_shared_files_have_no_policy() {
    assert_eq!(ask("mbind", &[0x7000_0000_0000, 4096, 2]), EPERM);
    assert_eq!(ask("set_mempolicy", &[3]), ALLOW);
}

/// Threads share the open files of their process, and segments are small, where memory is counted from outside.
#[test]
fn what_is_counted_cannot_be_hidden() {
    const THREAD: u64 = 0x003d_0f00;
    const CLONE_FILES: u64 = 0x400;
    let profile = profile();
    for (arch, data) in ARCHES {
        let ask = |name: &str, args: &[u64]| {
            let call = profile.counted.iter().find(|call| call.name == name).unwrap();
            let mut six = [0; 6];
            six[..args.len()].copy_from_slice(args);
            answer(counted_for(arch), data, call.numbers.on(data).unwrap(), six)
        };
        assert_eq!((ask("clone", &[THREAD]), ask("clone", &[17])), (ALLOW, ALLOW));
        assert_eq!(ask("clone", &[THREAD & !CLONE_FILES]), EPERM);
        assert_eq!((ask("unshare", &[CLONE_FILES]), ask("unshare", &[0x200])), (EPERM, ALLOW));
        assert_eq!((ask("close_range", &[3, 9, 2]), ask("close_range", &[3, 9, 4])), (EPERM, ALLOW));
        assert_eq!((ask("prctl", &[4, 0]), ask("prctl", &[4, 1])), (EPERM, ALLOW));
        assert_eq!((ask("vmsplice", &[]), ask("landlock_create_ruleset", &[])), (ENOSYS, ENOSYS));
        assert!(["splice", "tee", "sendfile"].iter().all(|name| ask(name, &[]) == EINVAL));
        assert_eq!((ask("setsockopt", &[3, 1, 7]), ask("setsockopt", &[3, 1, 8])), (IGNORED, IGNORED));
        assert_eq!((ask("setsockopt", &[3, 1, 2]), ask("setsockopt", &[3, 6, 7])), (ALLOW, ALLOW));
        assert_eq!((ask("shmget", &[0, 56]), ask("shmget", &[0, 1 << 18])), (ALLOW, EPERM));
        assert_eq!(ask("shmget", &[0, 1 << 40]), EPERM);
        assert_eq!((ask("semget", &[0, 20]), ask("semget", &[0, 128])), (ALLOW, EPERM));
    }
}

#[test]
fn far_jumps_are_bridged() {
    let many: String = (0..300)
        .map(|number| {
            let family = number % 5;
            format!(
                "call{number} = {{ x86_64 = {}, aarch64 = {}, cases = [ {{ when = [{{ arg = {family}, bits = 64, \
                 any_of = [\"ODD\"] }}, {{ arg = 1, bits = 64, not = [\"BIG\", \"ODD\"] }}], action = \"EPERM\", \
                 reason = \"r\" }} ] }}\n",
                number * 2,
                number * 2
            )
        })
        .collect();
    let text = format!(
        "[known]\nx86_64 = [[0, 700]]\naarch64 = [[0, 700]]\n[constants]\nODD = 0x1_0000_0001\nBIG = 0x7_0000_0007\n\
         [[group]]\ntitle = \"g\"\n[group.syscalls]\n{many}[no_inet]\n[counted]\n[left_open]\n"
    );
    let profile = SeccompProfile::parse(&text).unwrap();
    let calls: Vec<_> = profile.syscalls().collect();
    let program = compiler::program::assemble(ProfileArch::X86_64, &profile.known, &calls);
    assert!(program.len() / 8 > 2000, "long enough to need bridges");
    let values = [0, 1, 1 << 32, 0x1_0000_0001, 0x7_0000_0007, u64::MAX];
    for number in 0..720 {
        for first in values {
            for second in values {
                let args = [first, second, first, first, first, 0];
                let expected = naive(&profile, ProfileArch::X86_64, number, args);
                assert_eq!(
                    answer(&program, ProfileArch::X86_64, number, args),
                    expected,
                    "{number} {args:x?}"
                );
            }
        }
    }
}

#[test]
fn numbers_are_those_of_libc() {
    let profile = profile();
    let governed = profile
        .syscalls()
        .chain(&profile.no_inet)
        .chain(&profile.counted)
        .map(|call| (&call.name, call.numbers));
    let left_open = profile.left_open.iter().map(|call| (&call.name, call.numbers));
    for (name, numbers) in governed.chain(left_open) {
        let expected = numbers::LIBC.iter().find(|(known, _)| known == name).map(|(_, number)| *number);
        let number = if cfg!(target_arch = "x86_64") { numbers.x86_64 } else { numbers.aarch64 };
        if !numbers::NOT_IN_LIBC.contains(&name.as_str()) {
            assert_eq!(number.map(i64::from), expected, "{name}");
        }
    }
}

#[test]
fn entries_show_the_whole_profile() {
    let profile = profile();
    let lines: usize = profile.syscalls().map(|call| call.cases.len()).sum();
    assert_eq!(entries().len(), lines);
    let sti = entries().iter().find(|entry| entry.condition.contains("TIOCSTI")).unwrap();
    assert_eq!((sti.syscall, sti.action, sti.x86_64, sti.aarch64), ("ioctl", "EPERM", Some(16), Some(29)));
    assert_eq!(filter(), filter_for(SeccompArch::TARGET));
}

#[test]
fn the_documentation_is_current() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/seccomp.md");
    let rendered = concat!(env!("OUT_DIR"), "/seccomp.md");
    let current = fs::read_to_string(page).unwrap_or_default() == fs::read_to_string(rendered).unwrap();
    assert!(current, "docs/seccomp.md is not what the profile says; to renew it: cp {rendered} {page}");
}

fn problem(text: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bad.toml");
    fs::write(&path, text).unwrap();
    let error = compiler::compile(&path, dir.path()).unwrap_err();
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "a bad profile leaves no filter");
    error.to_string().replace(&format!("{}:", dir.path().join("bad.toml").display()), "")
}

/// A good profile with one line exchanged; the line is number 10.
fn with_line(line: &str) -> String {
    format!(
        "[known]\nx86_64 = [[0, 9]]\naarch64 = [[0, 9]]\n[constants]\nONE = 1\n[[group]]\ntitle = \"g\"\n\
         [group.syscalls]\nfirst = {{ x86_64 = 1, aarch64 = 1, action = \"EPERM\", reason = \"r\" }}\n{line}\n\
         used = {{ x86_64 = 9, aarch64 = 9, cases = [{{ when = [{{ arg = 0, bits = 32, is = [\"ONE\"] }}], \
         action = \"EPERM\", reason = \"r\" }}] }}\n[no_inet]\n[counted]\n[left_open]\n"
    )
}

#[test]
fn a_malformed_profile_fails_with_file_and_line() {
    assert!(SeccompProfile::parse(&with_line("")).is_ok());
    let case = |test: &str| {
        let when = format!("when = [{{ {test} }}], action = \"EPERM\", reason = \"r\"");
        format!("bad = {{ x86_64 = 2, aarch64 = 2, cases = [{{ {when} }}] }}")
    };
    for (line, expected) in [
        (
            "bad = { x86_64 = 2, aarch64 = 2, action = \"EPERM\" }",
            "needs either `action` and `reason`, or `cases`",
        ),
        ("bad = { x86_64 = 2, aarch64 = 2, action = \"EPERM\", reason = \" \" }", "the reason is empty"),
        ("bad = { x86_64 = 2, aarch64 = 2, action = \"MAYBE\", reason = \"r\" }", "unknown variant `MAYBE`"),
        ("bad = { x86_64 = 2, aarch64 = 2, action = \"EPERM\", why = \"r\" }", "unknown field `why`"),
        ("bad = { x86_64 = 2, action = \"EPERM\", reason = \"r\" }", "needs both numbers"),
        (
            "bad = { x86_64 = 1, aarch64 = 2, action = \"EPERM\", reason = \"r\" }",
            "`first` and `bad` have the same number",
        ),
        (
            "bad = { x86_64 = 10, aarch64 = 2, action = \"EPERM\", reason = \"r\" }",
            "number 10 is outside `known` on x86_64",
        ),
        ("first = { x86_64 = 2, aarch64 = 2, action = \"EPERM\", reason = \"r\" }", "duplicate key"),
        (&case("arg = 0, bits = 32, is = [\"TWO\"]"), "`TWO` is not in `constants`"),
        (&case("arg = 6, bits = 32, is = [\"ONE\"]"), "arguments 0 to 5"),
        (&case("arg = 0, bits = 16, is = [\"ONE\"]"), "`bits` is 32 or 64"),
        (&case("arg = 0, bits = 32"), "exactly one of"),
        (&case("arg = 0, bits = 32, is = [\"ONE\"], not = [\"ONE\"]"), "exactly one of"),
        (&case("arg = 0, bits = 32, mask = \"ONE\", any_of = [\"ONE\"]"), "`mask` goes with"),
        (
            "bad = { x86_64 = 2, aarch64 = 2, cases = [{ when = [], action = \"EPERM\", reason = \"r\" }] }",
            "at least one test",
        ),
    ] {
        let message = problem(&with_line(line));
        assert!(message.starts_with("10: ") && message.contains(expected), "{line}\n{message}");
    }
}

#[test]
fn lines_that_contradict_each_other_fail() {
    let second = "[[group]]\ntitle = \"h\"\n[group.syscalls]\nfirst = { x86_64 = 3, aarch64 = 3, action = \"EPERM\", reason = \"r\" }";
    let text = with_line("").replace("[no_inet]", &format!("{second}\n[no_inet]"));
    assert_eq!(problem(&text), "15: `first` has a second line");
    let open = "[left_open]\nused = { x86_64 = 9, aarch64 = 9, reason = \"r\" }";
    assert_eq!(problem(&with_line("").replace("[left_open]", open)), "15: `used` has a second line");
    let unused = with_line("").replace("ONE = 1", "ONE = 1\nTWO = 2");
    assert_eq!(problem(&unused), "6: constant `TWO` is not used");
    let ranges = with_line("").replace("x86_64 = [[0, 9]]", "x86_64 = [[0, 4], [5, 9]]");
    assert_eq!(problem(&ranges), "2: ranges of `known` must ascend and not touch");
}
