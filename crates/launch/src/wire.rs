//! What is said over the control socket (`SOCK_SEQPACKET`, one message per packet, every message one size).
//!
//! ```text
//!  parent                                launcher
//!    Start  + [cgroup fds]          →      close fds, enter cgroup, namespaces, clone PID 1
//!           ←  Started + [pidfd]           (the outer process is gone after this)
//!    Plan   + [plan memfd]          →      PID 1: root, masks, caps, Landlock, seccomp
//!           ←  UserNamespace, MountNamespace, NetNamespace, Door + [fd]
//!           ←  Ready | Failed
//!    Run    + [command memfd, stdio] →     fork the call's leader, which forks the command
//!           ←  Terminal + [pty master]     (when asked for)
//!           ←  Listener + [fd]             (when an approval is bound to files)
//!           ←  NotExecuted                 (execve failed)
//!           ←  Exited
//!    Signal | Kill                  →
//!    (end of file)                  →      PID 1 exits, the kernel kills everything in the namespace
//! ```
//!
//! A second launcher may be sent into a running sandbox to mount again what the host has replaced:
//! `Repair` + [user namespace, mount namespace, plan memfd], answered by `Repaired` or `Failed`. And where another
//! program has made the namespaces, one goes there to set up the network: `Outfit` + [network namespace, plan memfd],
//! answered by `Door`s and `Outfitted`, or `Failed`.

pub const MESSAGE_SIZE: usize = 64;

/// Path of the control socket for PID 1 of a container: an engine does not pass descriptors.
pub const CONTROL_INSIDE: &core::ffi::CStr = c"/.ringfence/control";

/// Name prefix of leaders in /proc, by which the supervisor assigns processes to calls.
pub const LEADER: &str = "rf-call-";

/// [`LEADER`] and the last digits of the call's number, as the kernel takes a name: 15 characters and a zero.
pub fn leader_name(id: u64) -> [u8; 16] {
    let mut name = [0; 16];
    let prefix = LEADER.as_bytes();
    let mut rest = id;
    for (index, place) in name.iter_mut().enumerate().take(15).rev() {
        *place = match prefix.get(index) {
            Some(letter) => *letter,
            None => {
                let digit = b'0' + (rest % 10) as u8;
                rest /= 10;
                digit
            }
        };
    }
    name
}

/// State that PID 1 reads back from the kernel before it reports `Ready`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaunchReport {
    /// 1: `prctl(PR_GET_NO_NEW_PRIVS)` says so.
    pub no_new_privs: u64,
    /// 2: `prctl(PR_GET_SECCOMP)` says filter mode.
    pub seccomp_mode: u64,
    /// 1: effective, permitted, inheritable, ambient and bounding sets read back empty.
    pub capabilities_empty: u64,
    /// 1: a Landlock domain is in force.
    pub landlock: u64,
    /// How many control groups were entered.
    pub cgroups: u64,
    /// The most that one TCP socket keeps; 0 where that could not be read.
    pub socket_bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlMessage {
    /// `namespaces` are `CLONE_NEW*` flags; `uid` and `gid` are who the launcher's own user and group are inside.
    Start {
        namespaces: u64,
        uid: u64,
        gid: u64,
        cgroups: u64,
    },
    Plan {
        length: u64,
    },
    Run {
        id: u64,
        length: u64,
    },
    Signal {
        id: u64,
        signal: u64,
    },
    Kill {
        id: u64,
    },
    Started {
        pid: u64,
    },
    Ready(LaunchReport),
    Failed {
        step: u64,
        operation: u64,
        errno: u64,
    },
    Terminal {
        id: u64,
    },
    NotExecuted {
        id: u64,
        errno: u64,
    },
    /// `status` as from wait(2); times in microseconds, memory in KiB; `tmp_full` is 1 when /tmp has no room left.
    Exited {
        id: u64,
        status: u64,
        user_us: u64,
        system_us: u64,
        max_rss_kib: u64,
        tmp_full: u64,
    },
    /// A process inside killed the leader of a call: cleanup can no longer be guaranteed, and the session ends.
    LeaderLost {
        id: u64,
    },
    /// With the descriptor of the namespace, for repairs.
    UserNamespace,
    MountNamespace,
    Repair {
        length: u64,
    },
    Repaired,
    /// With the descriptor of the namespace, for outfitting it.
    NetNamespace,
    /// With a socket of the sandbox's network, in the order of the plan.
    Door,
    Outfit {
        length: u64,
    },
    Outfitted,
    /// With the descriptor on which the kernel asks about the files of an approved command.
    Listener {
        id: u64,
    },
}

impl ControlMessage {
    pub fn encode(&self) -> [u8; MESSAGE_SIZE] {
        let words: [u64; 8] = match *self {
            Self::Start { namespaces, uid, gid, cgroups } => [1, namespaces, uid, gid, cgroups, 0, 0, 0],
            Self::Plan { length } => [2, length, 0, 0, 0, 0, 0, 0],
            Self::Run { id, length } => [3, id, length, 0, 0, 0, 0, 0],
            Self::Signal { id, signal } => [4, id, signal, 0, 0, 0, 0, 0],
            Self::Kill { id } => [5, id, 0, 0, 0, 0, 0, 0],
            Self::Started { pid } => [6, pid, 0, 0, 0, 0, 0, 0],
            Self::Ready(a) => {
                let LaunchReport { no_new_privs, seccomp_mode, capabilities_empty, .. } = a;
                [7, no_new_privs, seccomp_mode, capabilities_empty, a.landlock, a.cgroups, a.socket_bytes, 0]
            }
            Self::Failed { step, operation, errno } => [8, step, operation, errno, 0, 0, 0, 0],
            Self::Terminal { id } => [9, id, 0, 0, 0, 0, 0, 0],
            Self::NotExecuted { id, errno } => [10, id, errno, 0, 0, 0, 0, 0],
            Self::Exited { id, status, user_us, system_us, max_rss_kib, tmp_full } => {
                [11, id, status, user_us, system_us, max_rss_kib, tmp_full, 0]
            }
            Self::LeaderLost { id } => [12, id, 0, 0, 0, 0, 0, 0],
            Self::UserNamespace => [13, 0, 0, 0, 0, 0, 0, 0],
            Self::MountNamespace => [14, 0, 0, 0, 0, 0, 0, 0],
            Self::Repair { length } => [15, length, 0, 0, 0, 0, 0, 0],
            Self::Repaired => [16, 0, 0, 0, 0, 0, 0, 0],
            Self::NetNamespace => [17, 0, 0, 0, 0, 0, 0, 0],
            Self::Door => [18, 0, 0, 0, 0, 0, 0, 0],
            Self::Outfit { length } => [19, length, 0, 0, 0, 0, 0, 0],
            Self::Outfitted => [20, 0, 0, 0, 0, 0, 0, 0],
            Self::Listener { id } => [21, id, 0, 0, 0, 0, 0, 0],
        };
        let mut bytes = [0; MESSAGE_SIZE];
        for (slot, word) in bytes.chunks_exact_mut(8).zip(words) {
            slot.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; MESSAGE_SIZE] = bytes.try_into().ok()?;
        let mut words = [0_u64; 8];
        for (word, chunk) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_le_bytes(chunk.try_into().ok()?);
        }
        let [tag, a, b, c, d, e, f, _] = words;
        Some(match tag {
            1 => Self::Start { namespaces: a, uid: b, gid: c, cgroups: d },
            2 => Self::Plan { length: a },
            3 => Self::Run { id: a, length: b },
            4 => Self::Signal { id: a, signal: b },
            5 => Self::Kill { id: a },
            6 => Self::Started { pid: a },
            7 => Self::Ready(LaunchReport {
                no_new_privs: a,
                seccomp_mode: b,
                capabilities_empty: c,
                landlock: d,
                cgroups: e,
                socket_bytes: f,
            }),
            8 => Self::Failed { step: a, operation: b, errno: c },
            9 => Self::Terminal { id: a },
            10 => Self::NotExecuted { id: a, errno: b },
            11 => Self::Exited { id: a, status: b, user_us: c, system_us: d, max_rss_kib: e, tmp_full: f },
            12 => Self::LeaderLost { id: a },
            13 => Self::UserNamespace,
            14 => Self::MountNamespace,
            15 => Self::Repair { length: a },
            16 => Self::Repaired,
            17 => Self::NetNamespace,
            18 => Self::Door,
            19 => Self::Outfit { length: a },
            20 => Self::Outfitted,
            21 => Self::Listener { id: a },
            _ => return None,
        })
    }
}
