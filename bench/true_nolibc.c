/* A program that only exits: what fork + exec + exit cost without a C library's start-up. x86_64 only. */
void _start(void) { __asm__ volatile("syscall" : : "a"(231), "D"(0) : "rcx", "r11", "memory"); }
