/*
 * Everything the fence does, as fast as C can do it: the floor the launcher is measured against.
 *
 * A cgroup where root has one, seven namespaces, one-id maps, no nested user namespaces, limits, loopback, a constructed root behind pivot_root (read-only /usr and some /etc
 * files, minimal /dev, devpts, /proc, private /tmp and /dev/shm, the workspace), placeholders and read-only
 * re-binds for protected paths, no capabilities, no_new_privs, Landlock, a seccomp search tree.
 *
 * This is a yardstick and not a sandbox: it reads no policy, and a failed step just ends it.
 */
#ifndef FENCE_H
#define FENCE_H
#include "sys.h"
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/fcntl.h>
#include <linux/landlock.h>
#include <linux/mount.h>
#include <linux/prctl.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <linux/securebits.h>

#define O_CREAT_ 0100
#define O_WRONLY_ 01
#define O_CLOEXEC_ 02000000
#define O_PATH_ 010000000
#define MNT_DETACH_ 2
#define NOSUID_NODEV (MS_NOSUID | MS_NODEV)
#define SIGCHLD_ 17
#define LAST_CAPABILITY 40
#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

static const char *const ETC_FILES[] = {
    "/etc/passwd",        "/etc/group",       "/etc/nsswitch.conf", "/etc/hosts",      "/etc/hostname",
    "/etc/resolv.conf",   "/etc/ld.so.cache", "/etc/ld.so.conf",    "/etc/localtime",  "/etc/protocols",
    "/etc/services",      "/etc/mime.types",  "/etc/profile",       "/etc/bash.bashrc", "/etc/inputrc",
    "/etc/host.conf",     "/etc/gai.conf",    "/etc/shells",        "/etc/timezone",   "/etc/os-release",
    "/etc/debian_version", "/etc/networks",   "/etc/rpc",           "/etc/ethertypes", "/etc/login.defs",
};
static const char *const ETC_DIRECTORIES[] = {"/etc/ssl", "/etc/alternatives", "/etc/ld.so.conf.d"};
static const char *const DEVICES[] = {"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"};

/* The bench workspace has the first ten; the last ten are missing and get a placeholder. */
static const char *const PROTECTED[] = {
    "/.git/config", "/.git/hooks", "/.git/info", "/.gitmodules", "/.bashrc",
    "/.profile",    "/.vscode",    "/.claude",   "/.envrc",      "/.mcp.json",
};
static const char *const PLACEHOLDERS[] = {
    "/.codex", "/.agents",   "/.cursor",       "/.idea",      "/.ripgreprc",
    "/.zshrc", "/.zprofile", "/.bash_profile", "/.gitconfig", "/.ringfence",
};

/* Sorted: the tree is built by halving. Numbers of x86_64. */
static const uint16_t DENIED[] = {
    __NR_ptrace,          __NR_syslog,            __NR_uselib,            __NR_personality,     __NR_ustat,
    __NR_sysfs,           __NR_pivot_root,        __NR__sysctl,           __NR_adjtimex,        __NR_chroot,
    __NR_acct,            __NR_settimeofday,      __NR_mount,             __NR_umount2,         __NR_swapon,
    __NR_swapoff,         __NR_reboot,            __NR_sethostname,       __NR_setdomainname,   __NR_iopl,
    __NR_ioperm,          __NR_create_module,     __NR_init_module,       __NR_delete_module,   __NR_get_kernel_syms,
    __NR_query_module,    __NR_quotactl,          __NR_nfsservctl,        __NR_lookup_dcookie,  __NR_clock_settime,
    __NR_vserver,         __NR_mbind,             __NR_set_mempolicy,     __NR_kexec_load,      __NR_add_key,
    __NR_request_key,     __NR_keyctl,            __NR_migrate_pages,     __NR_unshare,         __NR_move_pages,
    __NR_perf_event_open, __NR_fanotify_init,     __NR_name_to_handle_at, __NR_open_by_handle_at, __NR_clock_adjtime,
    __NR_setns,           __NR_process_vm_readv,  __NR_process_vm_writev, __NR_kcmp,            __NR_finit_module,
    __NR_kexec_file_load, __NR_bpf,               __NR_userfaultfd,       __NR_io_uring_setup,  __NR_io_uring_enter,
    __NR_io_uring_register, __NR_open_tree,       __NR_move_mount,        __NR_fsopen,          __NR_fsconfig,
    __NR_fsmount,         __NR_fspick,            __NR_pidfd_getfd,       __NR_process_madvise, __NR_mount_setattr,
    __NR_quotactl_fd,
};
/* A path below the new root or below the workspace. */
struct path {
    char text[512];
};

static struct path join(const char *base, const char *name) {
    struct path path;
    append(append(path.text, base), name);
    return path;
}

static void write_file(const char *path, const char *text) {
    long fd = must(path, sys4(__NR_openat, AT_FDCWD, path, O_WRONLY_ | O_CLOEXEC_, 0));
    must(path, sys3(__NR_write, fd, text, length(text)));
    sys1(__NR_close, fd);
}

/* Control groups of version 1, which only root can make: one per controller, as the product does. */
static const char *const CONTROLLERS[][3] = {
    {"/sys/fs/cgroup/memory/bench-", "/memory.limit_in_bytes", "4294967296"},
    {"/sys/fs/cgroup/pids/bench-", "/pids.max", "50"},
    {"/sys/fs/cgroup/cpu/bench-", 0, 0},
};
struct cgroups {
    struct path paths[COUNT(CONTROLLERS)];
    long tasks[COUNT(CONTROLLERS)];
};

static void make_cgroups(struct cgroups *groups) {
    for (size_t i = 0; i < COUNT(CONTROLLERS); i++) {
        char *path = groups->paths[i].text;
        append_number(append(path, CONTROLLERS[i][0]), (unsigned long)sys0(__NR_getpid));
        groups->tasks[i] = -1;
        if (sys2(__NR_mkdir, path, 0755) < 0) continue;
        if (CONTROLLERS[i][1]) write_file(join(path, CONTROLLERS[i][1]).text, CONTROLLERS[i][2]);
        /* Not cgroup.procs: only a thread that moves itself skips the global lock, which costs a grace period. */
        struct path tasks = join(path, "/tasks");
        groups->tasks[i] = must("cgroup", sys4(__NR_openat, AT_FDCWD, tasks.text, O_WRONLY_ | O_CLOEXEC_, 0));
    }
}

static void enter_cgroups(const struct cgroups *groups) {
    for (size_t i = 0; i < COUNT(CONTROLLERS); i++)
        if (groups->tasks[i] >= 0) must("enter cgroup", sys3(__NR_write, groups->tasks[i], "0", 1));
    /* Only now, so that the namespace's root is the group just entered. */
    must("cgroup namespace", sys1(__NR_unshare, CLONE_NEWCGROUP));
}

static void remove_cgroups(const struct cgroups *groups) {
    for (size_t i = 0; i < COUNT(CONTROLLERS); i++)
        if (groups->tasks[i] >= 0) sys1(__NR_rmdir, groups->paths[i].text);
}

static void limits(void) {
    static const uint64_t values[][2] = {{0, 3600}, {1, 100 << 20}, {4, 0}, {7, 256}, {12, 819200}};
    for (size_t i = 0; i < COUNT(values); i++) {
        uint64_t limit[2] = {values[i][1], values[i][1]};
        must("limit", sys4(__NR_prlimit64, 0, values[i][0], limit, 0));
    }
}

static void map_one_id(const char *file, unsigned long id) {
    char line[64];
    append(append_number(append(append_number(line, id), " "), id), " 1");
    write_file(file, line);
}

/* struct ifreq, without the header that drags in the C library. */
struct interface_request {
    char name[16];
    short flags;
    char rest[22];
};
#define SIOCSIFFLAGS_ 0x8914

static void loopback_up(void) {
    struct interface_request request = {.name = "lo", .flags = 1};
    long fd = must("socket", sys3(__NR_socket, 2, 2 | O_CLOEXEC_, 0));
    must("loopback", sys3(__NR_ioctl, fd, SIOCSIFFLAGS_, &request));
    sys1(__NR_close, fd);
}

static void set_attributes(const char *target, uint64_t attributes) {
    struct mount_attr attr = {.attr_set = attributes};
    must(target, sys5(__NR_mount_setattr, AT_FDCWD, target, AT_RECURSIVE, &attr, sizeof attr));
}

static void bind_mount(const char *source, const char *target, uint64_t attributes) {
    must(source, sys5(__NR_mount, source, target, 0, MS_BIND | MS_REC, 0));
    set_attributes(target, attributes);
}

static void touch(const char *path) {
    long fd = must(path, sys4(__NR_openat, AT_FDCWD, path, O_CREAT_ | O_WRONLY_ | O_CLOEXEC_, 0444));
    sys1(__NR_close, fd);
}

static void make_directory(const char *path) { must(path, sys2(__NR_mkdir, path, 0755)); }

#define READ_ONLY (MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)

/* The new root is the current directory, so "/etc/x" becomes "etc/x". */
static void system_runtime(void) {
    make_directory("usr");
    bind_mount("/usr", "usr", READ_ONLY);
    sys2(__NR_symlink, "usr/bin", "bin");
    sys2(__NR_symlink, "usr/sbin", "sbin");
    sys2(__NR_symlink, "usr/lib", "lib");
    sys2(__NR_symlink, "usr/lib64", "lib64");
    make_directory("etc");
    for (size_t i = 0; i < COUNT(ETC_FILES); i++) {
        if (sys2(__NR_access, ETC_FILES[i], 0) < 0) continue;
        touch(ETC_FILES[i] + 1);
        bind_mount(ETC_FILES[i], ETC_FILES[i] + 1, READ_ONLY);
    }
    for (size_t i = 0; i < COUNT(ETC_DIRECTORIES); i++) {
        if (sys2(__NR_access, ETC_DIRECTORIES[i], 0) < 0) continue;
        make_directory(ETC_DIRECTORIES[i] + 1);
        bind_mount(ETC_DIRECTORIES[i], ETC_DIRECTORIES[i] + 1, READ_ONLY);
    }
}

static void devices(void) {
    make_directory("dev");
    for (size_t i = 0; i < COUNT(DEVICES); i++) {
        touch(DEVICES[i] + 1);
        must(DEVICES[i], sys5(__NR_mount, DEVICES[i], DEVICES[i] + 1, 0, MS_BIND, 0));
    }
    make_directory("dev/pts");
    must("devpts", sys5(__NR_mount, "devpts", "dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620"));
    sys2(__NR_symlink, "pts/ptmx", "dev/ptmx");
    sys2(__NR_symlink, "/proc/self/fd", "dev/fd");
    sys2(__NR_symlink, "/proc/self/fd/0", "dev/stdin");
    sys2(__NR_symlink, "/proc/self/fd/1", "dev/stdout");
    sys2(__NR_symlink, "/proc/self/fd/2", "dev/stderr");
    make_directory("dev/shm");
    must("shm", sys5(__NR_mount, "tmpfs", "dev/shm", "tmpfs", NOSUID_NODEV, "mode=1777,size=64m"));
}

static void private_places(void) {
    make_directory("proc");
    must("proc", sys5(__NR_mount, "proc", "proc", "proc", NOSUID_NODEV | MS_NOEXEC, 0));
    make_directory("tmp");
    must("tmp", sys5(__NR_mount, "tmpfs", "tmp", "tmpfs", NOSUID_NODEV, "mode=1777,size=1g"));
}

/* Makes every directory of an absolute path below the current directory. */
static void make_parents(const char *absolute) {
    char path[512];
    append(path, absolute + 1);
    for (char *at = path; *at; at++) {
        if (*at != '/') continue;
        *at = 0;
        sys2(__NR_mkdir, path, 0755);
        *at = '/';
    }
    sys2(__NR_mkdir, path, 0755);
}

static void workspace(const char *root, long tree) {
    const char *inside = root + 1;
    make_parents(root);
    must("move workspace", sys5(__NR_move_mount, tree, "", AT_FDCWD, inside, MOVE_MOUNT_F_EMPTY_PATH));
    set_attributes(inside, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
    /* The pin: a directory that is a mount point cannot be renamed. */
    struct path git = join(inside, "/.git");
    must("pin", sys5(__NR_mount, git.text, git.text, 0, MS_BIND, 0));
    for (size_t i = 0; i < COUNT(PROTECTED); i++) {
        struct path path = join(inside, PROTECTED[i]);
        bind_mount(path.text, path.text, READ_ONLY);
    }
    for (size_t i = 0; i < COUNT(PLACEHOLDERS); i++) {
        struct path path = join(inside, PLACEHOLDERS[i]);
        make_directory(path.text);
        bind_mount(path.text, path.text, READ_ONLY);
    }
}

/* Placeholders are on the host's file system: whoever made them takes them away. */
static void remove_placeholders(const char *root) {
    for (size_t i = 0; i < COUNT(PLACEHOLDERS); i++) {
        struct path path = join(root, PLACEHOLDERS[i]);
        sys1(__NR_rmdir, path.text);
    }
}

static void enter_root(const char *root) {
    must("private", sys5(__NR_mount, 0, "/", 0, MS_REC | MS_PRIVATE, 0));
    long tree = must("workspace", sys3(__NR_open_tree, AT_FDCWD, root,
                                       OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE));
    must("root", sys5(__NR_mount, "tmpfs", "/tmp", "tmpfs", NOSUID_NODEV, "mode=0755,size=1m"));
    must("chdir", sys1(__NR_chdir, "/tmp"));
    system_runtime();
    devices();
    private_places();
    workspace(root, tree);
    sys1(__NR_close, tree);
    must("pivot_root", sys2(__NR_pivot_root, ".", "."));
    must("detach", sys2(__NR_umount2, ".", MNT_DETACH_));
    must("chdir /", sys1(__NR_chdir, "/"));
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_RDONLY};
    must("read-only root", sys5(__NR_mount_setattr, AT_FDCWD, "/", 0, &attr, sizeof attr));
    must("chdir workspace", sys1(__NR_chdir, root));
}

static void drop_capabilities(void) {
    for (long cap = 0; cap <= LAST_CAPABILITY; cap++)
        must("bounding set", sys5(__NR_prctl, PR_CAPBSET_DROP, cap, 0, 0, 0));
    must("ambient", sys5(__NR_prctl, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0));
    must("securebits", sys5(__NR_prctl, PR_SET_SECUREBITS, SECBIT_NOROOT | SECBIT_NOROOT_LOCKED, 0, 0, 0));
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[2];
    memset(none, 0, sizeof none);
    must("capset", sys2(__NR_capset, &header, none));
    must("no_new_privs", sys5(__NR_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
}

/* ABI 6 and 7 fields are not in every distribution's header. */
struct ruleset {
    uint64_t fs, net, scoped;
};
#define LANDLOCK_READ ((1ULL << 0) | (1ULL << 2) | (1ULL << 3))
#define LANDLOCK_ALL_FS ((1ULL << 16) - 1)

static void landlock_rule(long ruleset, const char *path, uint64_t access) {
    long fd = sys4(__NR_openat, AT_FDCWD, path, O_PATH_ | O_CLOEXEC_, 0);
    if (fd < 0) return;
    struct landlock_path_beneath_attr rule = {.allowed_access = access, .parent_fd = (int)fd};
    must(path, sys4(__NR_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0));
    sys1(__NR_close, fd);
}

static void landlock(const char *root) {
    struct ruleset handled = {.fs = LANDLOCK_ALL_FS, .net = 0, .scoped = 3};
    long ruleset = must("landlock", sys3(__NR_landlock_create_ruleset, &handled, sizeof handled, 0));
    landlock_rule(ruleset, "/usr", LANDLOCK_READ);
    landlock_rule(ruleset, "/etc", LANDLOCK_READ);
    landlock_rule(ruleset, "/", 1ULL << 3);
    landlock_rule(ruleset, "/proc", LANDLOCK_READ | (1ULL << 1));
    landlock_rule(ruleset, "/dev", LANDLOCK_ALL_FS & ~(1ULL << 0));
    landlock_rule(ruleset, "/dev/shm", LANDLOCK_ALL_FS);
    landlock_rule(ruleset, "/tmp", LANDLOCK_ALL_FS);
    landlock_rule(ruleset, root, LANDLOCK_ALL_FS);
    must("landlock restrict", sys2(__NR_landlock_restrict_self, ruleset, 0));
    sys1(__NR_close, ruleset);
}

static struct sock_filter program[512];
static unsigned program_length;

static void emit(uint16_t code, uint8_t yes, uint8_t no, uint32_t k) {
    program[program_length++] = (struct sock_filter){code, yes, no, k};
}

/* Binary search over DENIED[low..high): each leaf is one equality test and two returns. */
static void tree(size_t low, size_t high) {
    if (high - low == 1) {
        emit(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, DENIED[low]);
        emit(BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | 1);
        emit(BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW);
        return;
    }
    size_t middle = low + (high - low) / 2;
    emit(BPF_JMP | BPF_JGE | BPF_K, 0, 1, DENIED[middle]);
    unsigned jump = program_length;
    emit(BPF_JMP | BPF_JA, 0, 0, 0);
    tree(low, middle);
    program[jump].k = program_length - jump - 1;
    tree(middle, high);
}

static void seccomp(void) {
    program_length = 0;
    emit(BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(struct seccomp_data, arch));
    emit(BPF_JMP | BPF_JEQ | BPF_K, 1, 0, AUDIT_ARCH_X86_64);
    emit(BPF_RET | BPF_K, 0, 0, SECCOMP_RET_KILL_PROCESS);
    emit(BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(struct seccomp_data, nr));
    emit(BPF_JMP | BPF_JGE | BPF_K, 0, 1, 0x40000000);
    emit(BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | 38);
    /* The C library falls back to clone only when clone3 is unknown. */
    emit(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, __NR_clone3);
    emit(BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | 38);
    tree(0, COUNT(DENIED));
    struct sock_fprog filter = {.len = (unsigned short)program_length, .filter = program};
    must("seccomp", sys3(__NR_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter));
}

#define FENCE_NAMESPACES \
    (CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWNET)

/* Clones a child that is PID 1 of everything new; returns its pid to the parent and 0 to the child. */
static long clone_fenced(void) { return must("clone", sys5(__NR_clone, FENCE_NAMESPACES | SIGCHLD_, 0, 0, 0, 0)); }

/* Everything between the new namespaces and the exec. The ids were read before the clone. */
static void enter_fence(const char *root, unsigned long uid, unsigned long gid) {
    write_file("/proc/self/setgroups", "deny");
    map_one_id("/proc/self/uid_map", uid);
    map_one_id("/proc/self/gid_map", gid);
    write_file("/proc/sys/user/max_user_namespaces", "0");
    must("session", sys0(__NR_setsid));
    loopback_up();
    must("hostname", sys2(__NR_sethostname, "fence", 5));
    enter_root(root);
    limits();
    drop_capabilities();
    landlock(root);
    seccomp();
}

static inline __attribute__((always_inline)) long vfork_here(void) {
    return sys5(__NR_clone, CLONE_VM | CLONE_VFORK | SIGCHLD_, 0, 0, 0, 0);
}

/* Runs on the parent's stack below its frame; never returns, so the parent's frame stays whole. */
__attribute__((noinline, noreturn)) static void exec_or_exit(char **argv) {
    static char *const environment[] = {"PATH=/usr/bin:/bin", "LANG=C.UTF-8", 0};
    sys3(__NR_execve, argv[0], argv, environment);
    sys1(__NR_exit_group, 127);
    __builtin_unreachable();
}

static int exit_code(int status) { return (status & 0x7f) ? 128 + (status & 0x7f) : (status >> 8) & 0xff; }
#endif
