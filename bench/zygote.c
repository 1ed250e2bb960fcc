/*
 * zygote WORKSPACE COUNT COMMAND ARGS…: the warm floor. One process goes behind the fence once, then forks and
 * execs on request over a SEQPACKET socket; each request carries the command's three standard descriptors.
 * Prints the duration of every call in nanoseconds, one per line.
 */
#include "fence.h"
#include <linux/time_types.h>

struct iovec_ { void *base; size_t length; };
struct message {
    void *name; unsigned name_length;
    struct iovec_ *parts; size_t part_count;
    void *control; size_t control_length;
    int flags;
};
struct rights { size_t length; int level, type; int fds[4]; };
#define RIGHTS_LENGTH (sizeof(size_t) + 2 * sizeof(int) + 3 * sizeof(int))

static void serve_one(int fds[3], char **command, int *status) {
    long child = vfork_here();
    if (child == 0) {
        for (int i = 0; i < 3; i++) sys3(__NR_dup3, fds[i], i, 0);
        exec_or_exit(command);
    }
    must("fork", child);
    must("wait", sys4(__NR_wait4, child, status, 0, 0));
}

static int serve(long socket, char **command) {
    for (;;) {
        char byte;
        struct rights rights;
        struct iovec_ part = {&byte, 1};
        struct message message = {0, 0, &part, 1, &rights, sizeof rights, 0};
        long got = sys3(__NR_recvmsg, socket, &message, 0x40000000);
        if (got <= 0) return 0;
        int status = 0;
        serve_one(rights.fds, command, &status);
        for (int i = 0; i < 3; i++) sys1(__NR_close, rights.fds[i]);
        must("reply", sys6(__NR_sendto, socket, SYS_ARG(&status), sizeof status, 0, 0, 0));
    }
}

static uint64_t now(void) {
    struct __kernel_timespec t;
    sys2(__NR_clock_gettime, 1, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int call(long socket) {
    char byte = 1;
    struct rights rights = {RIGHTS_LENGTH, 1, 1, {0, 1, 2, 0}};
    struct iovec_ part = {&byte, 1};
    struct message message = {0, 0, &part, 1, &rights, RIGHTS_LENGTH, 0};
    must("request", sys3(__NR_sendmsg, socket, &message, 0));
    int status = 0;
    if (must("answer", sys6(__NR_recvfrom, socket, SYS_ARG(&status), sizeof status, 0, 0, 0)) == 0) die("zygote gone", 0);
    return exit_code(status);
}

static int measure(long socket, unsigned long count) {
    int worst = call(socket);
    while (count--) {
        char line[32];
        uint64_t start = now();
        int code = call(socket);
        char *end = append(append_number(line, now() - start), "\n");
        sys3(__NR_write, 1, line, end - line);
        if (code > worst) worst = code;
    }
    return worst;
}

static unsigned long number(const char *s) {
    unsigned long n = 0;
    while (*s >= '0' && *s <= '9') n = n * 10 + (unsigned long)(*s++ - '0');
    return n;
}

static int run(int argc, char **argv) {
    if (argc < 4) die("usage: zygote WORKSPACE COUNT COMMAND", 0);
    int pair[2];
    unsigned long uid = (unsigned long)sys0(__NR_getuid);
    unsigned long gid = (unsigned long)sys0(__NR_getgid);
    must("socketpair", sys4(__NR_socketpair, 1, 5 | O_CLOEXEC_, 0, pair));
    struct cgroups groups;
    make_cgroups(&groups);
    long child = clone_fenced();
    if (child == 0) {
        enter_cgroups(&groups);
        sys1(__NR_close, pair[0]);
        enter_fence(argv[1], uid, gid);
        return serve(pair[1], argv + 3);
    }
    sys1(__NR_close, pair[1]);
    int code = measure(pair[0], number(argv[2]));
    sys1(__NR_close, pair[0]);
    sys4(__NR_wait4, child, 0, 0, 0);
    remove_placeholders(argv[1]);
    remove_cgroups(&groups);
    return code;
}

START(run)
