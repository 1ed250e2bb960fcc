//! Runs a seccomp program as the kernel would, for tests: only what the kernel accepts, and a panic on anything else.

/// `struct seccomp_data`.
#[derive(Debug, Clone, Copy)]
pub(super) struct SeccompData {
    pub(super) arch: u32,
    pub(super) number: u32,
    pub(super) args: [u64; 6],
}

/// The value that the program returns, and how many instructions it took.
pub(super) fn run(program: &[u8], call: SeccompData) -> (u32, usize) {
    let data = call.bytes();
    let (mut at, mut accumulator, mut steps) = (0_usize, 0_u32, 0_usize);
    loop {
        let instruction = decode(program, at);
        steps += 1;
        at += 1;
        match instruction.code {
            0x20 => accumulator = word(&data, instruction.k),
            0x54 => accumulator &= instruction.k,
            0x06 => return (instruction.k, steps),
            0x05 => at += usize::try_from(instruction.k).unwrap(),
            _ => at += instruction.offset(accumulator),
        }
    }
}

struct BpfInsn {
    code: u16,
    yes: u8,
    no: u8,
    k: u32,
}

impl BpfInsn {
    /// How far a conditional jump goes.
    fn offset(&self, accumulator: u32) -> usize {
        let taken = match self.code {
            0x15 => accumulator == self.k,
            0x35 => accumulator >= self.k,
            0x45 => accumulator & self.k != 0,
            other => panic!("code {other:#x}"),
        };
        usize::from(if taken { self.yes } else { self.no })
    }
}

fn decode(program: &[u8], at: usize) -> BpfInsn {
    let [code_low, code_high, yes, no, a, b, c, d] = program[at * 8..at * 8 + 8].try_into().unwrap();
    let (code, k) = (u16::from_le_bytes([code_low, code_high]), u32::from_le_bytes([a, b, c, d]));
    BpfInsn { code, yes, no, k }
}

fn word(data: &[u8; 64], offset: u32) -> u32 {
    let offset = usize::try_from(offset).unwrap();
    assert_eq!(offset % 4, 0, "the kernel takes aligned loads only");
    u32::from_le_bytes(data[offset..offset + 4].try_into().unwrap())
}

impl SeccompData {
    fn bytes(self) -> [u8; 64] {
        let mut data = [0; 64];
        data[0..4].copy_from_slice(&self.number.to_le_bytes());
        data[4..8].copy_from_slice(&self.arch.to_le_bytes());
        for (index, arg) in self.args.iter().enumerate() {
            data[16 + 8 * index..24 + 8 * index].copy_from_slice(&arg.to_le_bytes());
        }
        data
    }
}
