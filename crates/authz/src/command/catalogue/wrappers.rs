//! Programs that run another command: where in their arguments it begins.

use ringfence_types::Risk;

use crate::command::options::OptionEffect::{Body, Clear, Enter, Unclear, Unset};
use crate::command::options::{
    OperandSpec, OptionGroup, OptionValue, ProgramSpec, executes, flags, glued, reads, unclear, values, with,
    writes,
};
use crate::command::wrappers::{InnerCommandStart, Wrapper, WrapperEffect};

const HELP: OptionGroup = flags("", "help version");

pub(in crate::command) static LOADER: Wrapper = Wrapper {
    names: "ld.so",
    program: first(
        "loader",
        &[
            flags("", "list verify inhibit-cache list-tunables list-diagnostics help version"),
            values("", "library-path inhibit-rpath argv0 glibc-hwcaps-prepend glibc-hwcaps-mask"),
            executes("", "preload audit"),
        ],
    ),
    inner: InnerCommandStart::Rest,
    manner: WrapperEffect::Asks(Risk::High, "the dynamic loader runs any file as a program"),
};

pub(super) static WRAPPERS: &[Wrapper] = &[
    clear(
        "env",
        InnerCommandStart::Environment,
        &[
            flags("0v", "null debug list-signal-handling help version"),
            glued("", "block-signal default-signal ignore-signal"),
            with(Clear, OptionValue::None, "i", "ignore-environment"),
            with(Unset, OptionValue::Required, "u", "unset"),
            with(Enter, OptionValue::Required, "C", "chdir"),
            with(Body, OptionValue::Required, "S", "split-string"),
        ],
    ),
    clear("nice", InnerCommandStart::Rest, &[flags("0123456789", "help version"), values("n", "adjustment")]),
    clear(
        "ionice",
        InnerCommandStart::Rest,
        &[
            flags("tVh", "ignore help version"),
            values("cn", "class classdata"),
            with(Unclear, OptionValue::Required, "pPu", "pid pgid uid"),
        ],
    ),
    clear(
        "timeout",
        InnerCommandStart::Number,
        &[flags("fpv", "foreground preserve-status verbose help version"), values("ks", "kill-after signal")],
    ),
    clear("stdbuf", InnerCommandStart::Rest, &[values("ioe", "input output error"), HELP]),
    clear("setsid", InnerCommandStart::Rest, &[flags("cfwhV", "ctty fork wait help version")]),
    clear(
        "taskset",
        InnerCommandStart::Number,
        &[flags("chV", "cpu-list help version"), unclear("ap", "all-tasks pid")],
    ),
    clear(
        "chrt",
        InnerCommandStart::Number,
        &[
            flags("bdfiorRvhVm", "batch deadline fifo idle other rr reset-on-fork verbose max help version"),
            values("TPD", "sched-runtime sched-period sched-deadline"),
            unclear("ap", "all-tasks pid"),
        ],
    ),
    clear(
        "prlimit",
        InnerCommandStart::Rest,
        &[
            flags("hV", "noheadings raw verbose help version"),
            values("o", "output"),
            glued(
                "cdefilmnqrstuvxy",
                "core data nice fsize sigpending memlock rss nofile msgqueue rtprio stack cpu nproc as locks rttime",
            ),
            with(Unclear, OptionValue::Required, "p", "pid"),
        ],
    ),
    clear("setarch", InnerCommandStart::Architecture, ARCH),
    clear("linux32 linux64 i386 i486 i586 i686 x86_64 uname26 aarch64 armv7l", InnerCommandStart::Rest, ARCH),
    clear(
        "time gtime",
        InnerCommandStart::Rest,
        &[
            flags("apqvV", "append portability quiet verbose help version"),
            values("f", "format"),
            writes("o", "output"),
        ],
    ),
    clear(
        "xargs gxargs",
        InnerCommandStart::Appended,
        &[
            flags(
                "0oprtx",
                "null open-tty interactive no-run-if-empty verbose exit show-limits help version",
            ),
            glued("el", "eof"),
            values("dELnPs", "delimiter max-lines max-args max-procs max-chars"),
            reads("a", "arg-file"),
            with(Body, OptionValue::Required, "I", ""),
            with(Body, OptionValue::Glued, "i", "replace"),
            with(Unclear, OptionValue::Required, "", "process-slot-var"),
        ],
    ),
    clear(
        "busybox toybox busybox.static",
        InnerCommandStart::Applet,
        &[flags("", "help"), with(Unclear, OptionValue::Glued, "", "list list-full install")],
    ),
    clear(
        "coreutils",
        InnerCommandStart::Applet,
        &[HELP, with(Body, OptionValue::Glued, "", "coreutils-prog coreutils-prog-shebang")],
    ),
    asks(
        "nohup",
        InnerCommandStart::Rest,
        Risk::Low,
        "at a terminal it appends what is shown to `nohup.out`, wherever that leads",
        &[HELP],
    ),
    asks(
        "flock",
        InnerCommandStart::Locked,
        Risk::Medium,
        "it creates a lock file",
        &[
            flags("sxunoFeVhp", "shared exclusive unlock nonblock close no-fork nb verbose help version"),
            values("wE", "timeout wait conflict-exit-code"),
            with(Body, OptionValue::Required, "c", "command"),
        ],
    ),
    asks(
        "sudo doas sudoedit",
        InnerCommandStart::Environment,
        Risk::Critical,
        "it asks for the rights of another user, which the fence never gives",
        &[values(
            "ugpCDhRrtTUa",
            "user group prompt close-from chdir host chroot role type command-timeout other-user",
        )],
    ),
    Wrapper {
        names: "su sg",
        program: ProgramSpec::new("", OperandSpec::Text, SU).dangers_only(),
        inner: InnerCommandStart::Body,
        manner: WrapperEffect::Asks(
            Risk::Critical,
            "it asks for the rights of another user, which the fence never gives",
        ),
    },
    asks(
        "runuser",
        InnerCommandStart::BodyOrRest,
        Risk::Critical,
        "it asks for the rights of another user, which the fence never gives",
        SU,
    ),
    asks(
        "pkexec gosu su-exec setuidgid",
        InnerCommandStart::After(1),
        Risk::Critical,
        "it asks for the rights of another user, which the fence never gives",
        &[with(Unclear, OptionValue::Required, "", "user")],
    ),
    asks(
        "chroot",
        InnerCommandStart::After(1),
        Risk::High,
        "it changes the root directory",
        &[values("", "groups userspec")],
    ),
    asks(
        "unshare",
        InnerCommandStart::Rest,
        Risk::High,
        "it makes namespaces",
        &[
            glued("muinpUCT", "mount uts ipc net pid user cgroup time kill-child mount-proc mount-binfmt"),
            values(
                "RwSG",
                "root wd setuid setgid map-user map-group map-users map-groups propagation setgroups monotonic boottime load-interp",
            ),
        ],
    ),
    asks(
        "nsenter",
        InnerCommandStart::Rest,
        Risk::High,
        "it enters namespaces",
        &[
            glued("muinpCUTrw", "mount uts ipc net pid cgroup user time root wd"),
            values("tSGWN", "target setuid setgid wdns net-socket"),
        ],
    ),
    asks(
        "strace ltrace",
        InnerCommandStart::Rest,
        Risk::High,
        "it controls another program",
        &[
            values("abeEIOPSsuUX", "user trace signal status"),
            writes("o", "output"),
            with(Unclear, OptionValue::Required, "p", "attach"),
        ],
    ),
    asks(
        "gdb lldb gdbserver",
        InnerCommandStart::Rest,
        Risk::High,
        "it controls another program",
        &[
            flags("qn", "args quiet silent nx nh batch"),
            executes("x", "command ex iex eval-command init-command init-eval-command"),
        ],
    ),
    asks(
        "watch",
        InnerCommandStart::Joined,
        Risk::Medium,
        "it does not end by itself",
        &[
            flags("bcegptwxCr", "beep color errexit chgexit precise no-title no-wrap exec no-color no-rerun"),
            glued("d", "differences"),
            values("nqs", "interval equexit shotsdir"),
        ],
    ),
    Wrapper {
        names: "script",
        program: ProgramSpec::new("", OperandSpec::Write, SCRIPT).dangers_only(),
        inner: InnerCommandStart::Body,
        manner: WrapperEffect::Asks(Risk::Medium, "it writes what is shown to a file"),
    },
    asks(
        "parallel",
        InnerCommandStart::Joined,
        Risk::High,
        "it runs many commands at once",
        &[values(
            "jaIdEnNLPsS",
            "jobs arg-file delimiter max-args max-procs sshlogin joblog results tmpdir workdir colsep retries delay timeout",
        )],
    ),
    asks(
        "systemd-run setpriv capsh fakeroot fakechroot proot firejail bwrap cgexec numactl choom uclampset cpulimit \
         trickle faketime rlwrap unbuffer xvfb-run eatmydata catchsegv proxychains proxychains4 torsocks torify tsocks \
         dbus-run-session dbus-launch valgrind perf rr ts-node entr chpst softlimit envdir runcon chronic ifne pee \
         direnv dotenv with-contenv tini dumb-init catatonit prime-run gamemoderun optirun",
        InnerCommandStart::Rest,
        Risk::High,
        "it runs another program in its own way",
        &[],
    ),
];

const ARCH: &[OptionGroup] = &[
    flags(
        "BFILRSTXZvhV",
        "32bit fdpic-funcptrs short-inode addr-compat-layout addr-no-randomize whole-seconds sticky-timeouts \
         read-implies-exec mmap-page-zero uname-2.6 verbose help version show",
    ),
    glued("3", "4gb 3gb"),
];

const SCRIPT: &[OptionGroup] = &[
    flags("aefq", "append return flush force quiet"),
    values("EmO", "echo logging-format output-limit"),
    writes("IBT", "log-in log-out log-io log-timing"),
    glued("t", "timing"),
    with(Body, OptionValue::Required, "c", "command"),
];

const SU: &[OptionGroup] = &[
    flags("lmpPf", "login preserve-environment fast pty no-pty"),
    values("gGsuwT", "group supp-group shell user whitelist-environment"),
    with(Body, OptionValue::Required, "c", "command session-command"),
];

/// It changes how the command runs, not what it may do.
const fn clear(names: &'static str, inner: InnerCommandStart, groups: &'static [OptionGroup]) -> Wrapper {
    let program = ProgramSpec::new("", OperandSpec::Text, groups).options_first();
    Wrapper { names, program, inner, manner: WrapperEffect::Transparent }
}

const fn asks(
    names: &'static str,
    inner: InnerCommandStart,
    risk: Risk,
    why: &'static str,
    groups: &'static [OptionGroup],
) -> Wrapper {
    Wrapper {
        names,
        program: first("", groups).dangers_only(),
        inner,
        manner: WrapperEffect::Asks(risk, why),
    }
}

const fn first(name: &'static str, groups: &'static [OptionGroup]) -> ProgramSpec {
    ProgramSpec::new(name, OperandSpec::Text, groups).options_first()
}
