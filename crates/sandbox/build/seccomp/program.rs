//! Assembles a BPF program: architecture check, search tree over call numbers, argument tests at the leaves.
//!
//! BPF jumps only forward, so the program is built from its end: every target exists before the jump to it, and its
//! distance is known. `reversed` holds the instructions last one first; a `Label` is an index into it.

use std::collections::BTreeMap;

use super::profile::{
    ArgCheck, ArgTest, ArgWidth, BuildArch, KnownNumbers, SeccompAction, Syscall, SyscallCase,
};

/// The program as the kernel takes it: an array of `struct sock_filter`, little endian.
pub(crate) fn assemble(arch: BuildArch, known: &KnownNumbers, syscalls: &[&Syscall]) -> Vec<u8> {
    let mut assembler = Assembler::default();
    assembler.program(arch, &segments(arch, known, syscalls));
    assembler.reversed.iter().rev().flat_map(|instruction| instruction.bytes()).collect()
}

/// A run of numbers with one fate starts here and goes on to the next segment.
struct NumberRange<'a> {
    first: u32,
    fate: RangeAction<'a>,
}

#[derive(Clone, Copy)]
enum RangeAction<'a> {
    Return(SeccompAction),
    Cases(&'a [SyscallCase]),
}

fn segments<'a>(arch: BuildArch, known: &KnownNumbers, syscalls: &[&'a Syscall]) -> Vec<NumberRange<'a>> {
    let cases: BTreeMap<u32, &'a [SyscallCase]> =
        syscalls.iter().filter_map(|call| Some((call.numbers.on(arch)?, call.cases.as_slice()))).collect();
    let beyond = known.ranges(arch).last().map_or(0, |(_, last)| last + 1);
    let mut segments: Vec<NumberRange<'a>> = Vec::new();
    for number in 0..=beyond {
        let fate = match cases.get(&number) {
            Some([case]) if case.when.is_empty() => RangeAction::Return(case.action),
            Some(cases) => RangeAction::Cases(cases),
            None if known.contains(arch, number) => RangeAction::Return(SeccompAction::Allow),
            None => RangeAction::Return(SeccompAction::Enosys),
        };
        if !segments.last().is_some_and(|last| last.fate.continues_as(fate)) {
            segments.push(NumberRange { first: number, fate });
        }
    }
    segments
}

impl RangeAction<'_> {
    fn continues_as(self, next: Self) -> bool {
        matches!((self, next), (Self::Return(this), Self::Return(next)) if this == next)
    }
}

#[derive(Default)]
struct Assembler {
    reversed: Vec<BpfInstruction>,
    /// The nearest `return` of each value.
    returns: BTreeMap<u32, Label>,
}

#[derive(Clone, Copy)]
struct Label(usize);

#[derive(Clone, Copy)]
struct BpfInstruction {
    code: u16,
    yes: u8,
    no: u8,
    k: u32,
}

/// Which half of a 64-bit argument.
#[derive(Clone, Copy)]
enum ArgHalf {
    Low,
    High,
}

#[derive(Clone, Copy)]
struct Branch {
    yes: Label,
    no: Label,
}

const LOAD_WORD: u16 = 0x20;
const AND: u16 = 0x54;
const RETURN: u16 = 0x06;
const JUMP: u16 = 0x05;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_AT_LEAST: u16 = 0x35;
const JUMP_ANY_BIT: u16 = 0x45;

const KILL_PROCESS: u32 = 0x8000_0000;
const ERRNO: u32 = 0x0005_0000;
const ALLOW: u32 = 0x7fff_0000;

// Offsets in `struct seccomp_data`.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const ARGUMENTS: u32 = 16;

impl Assembler {
    fn program(&mut self, arch: BuildArch, segments: &[NumberRange<'_>]) {
        self.tree(segments);
        let dispatch = self.push(LOAD_WORD, NUMBER);
        let kill = self.give(KILL_PROCESS, 0);
        self.jump(JUMP_EQUAL, audit_arch(arch), Branch { yes: dispatch, no: kill });
        self.push(LOAD_WORD, ARCHITECTURE);
    }

    fn tree(&mut self, segments: &[NumberRange<'_>]) -> Label {
        match segments {
            [] => self.give(return_value(SeccompAction::Enosys), 0),
            [only] => self.leaf(only.fate),
            _ => {
                let (below, above) = segments.split_at(segments.len() / 2);
                let split = above.first().map_or(u32::MAX, |segment| segment.first);
                let yes = self.tree(above);
                let no = self.tree(below);
                self.jump(JUMP_AT_LEAST, split, Branch { yes, no })
            }
        }
    }

    fn leaf(&mut self, fate: RangeAction<'_>) -> Label {
        match fate {
            RangeAction::Return(action) => self.give(return_value(action), 0),
            RangeAction::Cases(cases) => {
                let allow = self.give(ALLOW, 0);
                cases.iter().rev().fold(allow, |otherwise, case| self.case(case, otherwise))
            }
        }
    }

    fn case(&mut self, case: &SyscallCase, otherwise: Label) -> Label {
        let hit = self.give(return_value(case.action), 0);
        case.when.iter().rev().fold(hit, |yes, test| self.test(test, Branch { yes, no: otherwise }))
    }

    fn test(&mut self, test: &ArgTest, to: Branch) -> Label {
        match &test.check {
            ArgCheck::Is { mask, values } => self.one_of(test, *mask, values, to),
            ArgCheck::Not { mask, values } => {
                self.one_of(test, *mask, values, Branch { yes: to.no, no: to.yes })
            }
            ArgCheck::AnyOf(bits) => self.any_bit(test, *bits, to),
            ArgCheck::AnyBut(bits) => self.any_bit(test, !bits, to),
        }
    }

    fn one_of(&mut self, test: &ArgTest, mask: u64, values: &[u64], to: Branch) -> Label {
        match test.bits {
            ArgWidth::Low32 => {
                self.chain(values.iter().map(|value| ArgHalf::Low.of(*value)), to);
                self.load(test.arg, ArgHalf::Low, mask)
            }
            ArgWidth::All64 => values.iter().rev().fold(to.no, |no, value| {
                self.jump(JUMP_EQUAL, ArgHalf::Low.of(*value), Branch { yes: to.yes, no });
                let low = self.load(test.arg, ArgHalf::Low, mask);
                self.jump(JUMP_EQUAL, ArgHalf::High.of(*value), Branch { yes: low, no });
                self.load(test.arg, ArgHalf::High, mask)
            }),
        }
    }

    fn chain(&mut self, values: impl DoubleEndedIterator<Item = u32>, to: Branch) {
        values.rev().fold(to.no, |no, value| self.jump(JUMP_EQUAL, value, Branch { yes: to.yes, no }));
    }

    fn any_bit(&mut self, test: &ArgTest, bits: u64, to: Branch) -> Label {
        self.jump(JUMP_ANY_BIT, ArgHalf::Low.of(bits), to);
        let low = self.load(test.arg, ArgHalf::Low, u64::MAX);
        match test.bits {
            ArgWidth::Low32 => low,
            ArgWidth::All64 => {
                self.jump(JUMP_ANY_BIT, ArgHalf::High.of(bits), Branch { yes: to.yes, no: low });
                self.load(test.arg, ArgHalf::High, u64::MAX)
            }
        }
    }

    /// Loads half an argument for the instruction that was pushed last.
    fn load(&mut self, arg: u32, half: ArgHalf, mask: u64) -> Label {
        if half.of(mask) != u32::MAX {
            self.push(AND, half.of(mask));
        }
        self.push(LOAD_WORD, ARGUMENTS + 8 * arg + half.offset())
    }

    fn jump(&mut self, code: u16, k: u32, to: Branch) -> Label {
        // Bringing `no` near may add one instruction, which `yes` must still reach across.
        let yes = self.near(to.yes, 1);
        let no = self.near(to.no, 0);
        let (yes, no) = (self.distance(yes), self.distance(no));
        self.reversed.push(BpfInstruction { code, yes, no, k });
        Label(self.reversed.len() - 1)
    }

    /// A label with the same effect that a conditional jump can reach: its offsets have eight bits.
    fn near(&mut self, target: Label, slack: usize) -> Label {
        if self.reaches(target, slack) {
            return target;
        }
        match self.reversed.get(target.0).copied() {
            Some(BpfInstruction { code: RETURN, k, .. }) => self.give(k, slack),
            _ => {
                let distance = self.reversed.len() - target.0 - 1;
                self.push(JUMP, u32::try_from(distance).unwrap_or(u32::MAX))
            }
        }
    }

    fn give(&mut self, value: u32, slack: usize) -> Label {
        match self.returns.get(&value) {
            Some(label) if self.reaches(*label, slack) => *label,
            _ => {
                let label = self.push(RETURN, value);
                self.returns.insert(value, label);
                label
            }
        }
    }

    fn reaches(&self, target: Label, slack: usize) -> bool {
        self.reversed.len() + slack - target.0 - 1 <= usize::from(u8::MAX)
    }

    fn distance(&self, target: Label) -> u8 {
        u8::try_from(self.reversed.len() - target.0 - 1).unwrap_or(u8::MAX)
    }

    fn push(&mut self, code: u16, k: u32) -> Label {
        self.reversed.push(BpfInstruction { code, yes: 0, no: 0, k });
        Label(self.reversed.len() - 1)
    }
}

impl BpfInstruction {
    fn bytes(self) -> [u8; 8] {
        let [code_low, code_high] = self.code.to_le_bytes();
        let [a, b, c, d] = self.k.to_le_bytes();
        [code_low, code_high, self.yes, self.no, a, b, c, d]
    }
}

impl ArgHalf {
    fn of(self, value: u64) -> u32 {
        let [a, b, c, d, e, f, g, h] = value.to_le_bytes();
        match self {
            Self::Low => u32::from_le_bytes([a, b, c, d]),
            Self::High => u32::from_le_bytes([e, f, g, h]),
        }
    }

    fn offset(self) -> u32 {
        match self {
            Self::Low => 0,
            Self::High => 4,
        }
    }
}

pub(crate) fn return_value(action: SeccompAction) -> u32 {
    match action {
        SeccompAction::Allow => ALLOW,
        SeccompAction::Eperm => ERRNO | 1,
        SeccompAction::Einval => ERRNO | 22,
        SeccompAction::Enosys => ERRNO | 38,
        SeccompAction::Ignored => ERRNO,
        SeccompAction::Eprotonosupport => ERRNO | 93,
        SeccompAction::Eafnosupport => ERRNO | 97,
    }
}

pub(crate) fn audit_arch(arch: BuildArch) -> u32 {
    match arch {
        BuildArch::X86_64 => 0xc000_003e,
        BuildArch::Aarch64 => 0xc000_00b7,
    }
}
