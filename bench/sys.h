/* Raw system calls for programs without a C library. x86_64 only. */
#ifndef SYS_H
#define SYS_H
#include <asm/unistd.h>
#include <stddef.h>
#include <stdint.h>

static inline long sys6(long n, long a, long b, long c, long d, long e, long f) {
    long result;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}

#define SYS_ARG(x) ((long)(x))
#define sys0(n) sys6(n, 0, 0, 0, 0, 0, 0)
#define sys1(n, a) sys6(n, SYS_ARG(a), 0, 0, 0, 0, 0)
#define sys2(n, a, b) sys6(n, SYS_ARG(a), SYS_ARG(b), 0, 0, 0, 0)
#define sys3(n, a, b, c) sys6(n, SYS_ARG(a), SYS_ARG(b), SYS_ARG(c), 0, 0, 0)
#define sys4(n, a, b, c, d) sys6(n, SYS_ARG(a), SYS_ARG(b), SYS_ARG(c), SYS_ARG(d), 0, 0)
#define sys5(n, a, b, c, d, e) sys6(n, SYS_ARG(a), SYS_ARG(b), SYS_ARG(c), SYS_ARG(d), SYS_ARG(e), 0)

/* Hands `main_with(argc, argv)` the stack the kernel made. */
#define START(main_with)                                                                     \
    __attribute__((used)) static void start_c(long *sp) {                                    \
        sys1(__NR_exit_group, main_with((int)sp[0], (char **)(sp + 1)));                     \
        __builtin_unreachable();                                                             \
    }                                                                                        \
    __asm__(".globl _start\n_start:\n\txor %ebp,%ebp\n\tmov %rsp,%rdi\n\tand $-16,%rsp\n\tcall start_c\n");

/* The compiler may ask for these two even in a freestanding program. */
void *memset(void *at, int byte, size_t n) {
    void *start = at;
    __asm__ volatile("rep stosb" : "+D"(at), "+c"(n) : "a"(byte) : "memory");
    return start;
}

void *memcpy(void *to, const void *from, size_t n) {
    void *start = to;
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n) : : "memory");
    return start;
}

static inline size_t length(const char *s) {
    size_t n = 0;
    while (s[n]) n++;
    return n;
}

static inline char *append(char *to, const char *from) {
    while (*from) *to++ = *from++;
    *to = 0;
    return to;
}

static inline char *append_number(char *to, unsigned long n) {
    char digits[24];
    int i = 0;
    do digits[i++] = (char)('0' + n % 10);
    while (n /= 10);
    while (i) *to++ = digits[--i];
    *to = 0;
    return to;
}

__attribute__((noreturn)) static void die(const char *what, long error) {
    char line[256];
    char *end = append(append(append(line, "bench: "), what), ": errno ");
    end = append(append_number(end, (unsigned long)-error), "\n");
    sys3(__NR_write, 2, line, end - line);
    sys1(__NR_exit_group, 125);
    __builtin_unreachable();
}

static inline long must(const char *what, long result) {
    if (result < 0) die(what, result);
    return result;
}
#endif
