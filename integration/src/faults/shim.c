/*
 * Simulates, for one process, a kernel that is short of something. Loaded before its C library (LD_PRELOAD).
 *
 * OVN_SHIM_NETLINK=TYPE:NTH:ERRNO  the NTH netlink message of that type does nothing; the answer is ERRNO
 * OVN_SHIM_NETLINK=recv:NTH:ERRNO  the NTH call that receives from a netlink socket fails with ERRNO
 * OVN_SHIM_CONTROL=FILE            four 64-bit numbers: seconds that the wall clock is ahead, and whether
 *                                  threads are refused (EAGAIN), which may change at any time; how many were
 *                                  refused, which is written here; nanoseconds that all clocks are behind
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/netlink.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* A type that no subsystem knows: the kernel refuses such a message and does nothing. */
#define UNKNOWN_TYPE 0x7ffe

static volatile int64_t *control;
static int wanted_type = -1, on_receipt, countdown, wanted_errno;
static uint32_t spoilt_seq;

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

__attribute__((constructor)) static void start(void)
{
    const char *file = getenv("OVN_SHIM_CONTROL");
    if (file) {
        int fd = open(file, O_RDWR | O_CLOEXEC);
        void *page = fd < 0 ? MAP_FAILED : mmap(NULL, 32, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (page == MAP_FAILED) {
            fprintf(stderr, "fault shim: cannot map %s: %s\n", file, strerror(errno));
            _exit(125);
        }
        control = page;
        close(fd);
    }
    const char *netlink = getenv("OVN_SHIM_NETLINK");
    if (netlink) {
        on_receipt = strncmp(netlink, "recv:", 5) == 0;
        if (on_receipt ? sscanf(netlink, "recv:%d:%d", &countdown, &wanted_errno) != 2
                       : sscanf(netlink, "%d:%d:%d", &wanted_type, &countdown, &wanted_errno) != 3) {
            fprintf(stderr, "fault shim: OVN_SHIM_NETLINK=%s\n", netlink);
            _exit(125);
        }
    }
}

static int is_netlink(int fd)
{
    int domain = 0;
    socklen_t length = sizeof domain;
    return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) == 0 && domain == AF_NETLINK;
}

/* The message of a datagram to be refused, or NULL. No locks: one thread of the process uses netlink. */
static struct nlmsghdr *spoilt(int fd, void *buffer, size_t length)
{
    if (wanted_type < 0 || countdown <= 0 || !is_netlink(fd))
        return NULL;
    int left = (int)length;
    for (struct nlmsghdr *header = buffer; NLMSG_OK(header, left); header = NLMSG_NEXT(header, left))
        if (header->nlmsg_type == wanted_type && --countdown == 0)
            return header;
    return NULL;
}

ssize_t sendto(int fd, const void *buffer, size_t length, int flags, const struct sockaddr *to, socklen_t to_length)
{
    /* A copy, because the buffer is const and the type of the message changes. */
    void *copy = malloc(length);
    memcpy(copy, buffer, length);
    struct nlmsghdr *header = spoilt(fd, copy, length);
    if (header) {
        header->nlmsg_type = UNKNOWN_TYPE;
        spoilt_seq = header->nlmsg_seq;
    }
    ssize_t sent = REAL(sendto)(fd, copy, length, flags, to, to_length);
    int error = errno;
    free(copy);
    errno = error;
    return sent;
}

ssize_t send(int fd, const void *buffer, size_t length, int flags)
{
    return sendto(fd, buffer, length, flags, NULL, 0);
}

ssize_t recvfrom(int fd, void *restrict buffer, size_t length, int flags, struct sockaddr *restrict from, socklen_t *restrict from_length)
{
    ssize_t received = REAL(recvfrom)(fd, buffer, length, flags, from, from_length);
    if (received <= 0 || !(on_receipt || spoilt_seq) || !is_netlink(fd))
        return received;
    if (on_receipt && countdown > 0 && --countdown == 0) {
        errno = wanted_errno;
        return -1;
    }
    /* The kernel has refused the unknown type with an error of its own: put the wanted one in its place. */
    struct nlmsghdr *header = buffer;
    struct nlmsgerr *error = NLMSG_DATA(header);
    if (spoilt_seq && received >= (ssize_t)NLMSG_LENGTH(sizeof *error) && header->nlmsg_type == NLMSG_ERROR
        && header->nlmsg_seq == spoilt_seq) {
        error->error = -wanted_errno;
        spoilt_seq = 0;
    }
    return received;
}

ssize_t recv(int fd, void *buffer, size_t length, int flags)
{
    return recvfrom(fd, buffer, length, flags, NULL, NULL);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*body)(void *), void *argument)
{
    if (control && control[1]) {
        __atomic_fetch_add(&control[2], 1, __ATOMIC_RELAXED);
        return EAGAIN;
    }
    return REAL(pthread_create)(thread, attributes, body, argument);
}

#define SECOND 1000000000LL

static void put_ahead(struct timespec *time, int64_t nanoseconds)
{
    int64_t sum = time->tv_sec * SECOND + time->tv_nsec + nanoseconds;
    time->tv_sec = sum / SECOND;
    time->tv_nsec = sum % SECOND;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int outcome = REAL(clock_gettime)(clock, now);
    if (outcome != 0 || !control)
        return outcome;
    switch (clock) {
    case CLOCK_REALTIME:
    case CLOCK_REALTIME_COARSE:
        now->tv_sec += control[0];
        /* fall through */
    case CLOCK_MONOTONIC:
    case CLOCK_MONOTONIC_COARSE:
    case CLOCK_MONOTONIC_RAW:
    case CLOCK_BOOTTIME:
        put_ahead(now, -control[3]);
    }
    return outcome;
}

/* Rust's standard library waits until a moment of CLOCK_MONOTONIC, and the kernel goes by its own. */
long syscall(long number, ...)
{
    static __typeof__(&syscall) real;
    long a[6];
    va_list arguments;
    va_start(arguments, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(arguments, long);
    va_end(arguments);
    if (!real)
        real = REAL(syscall);
    struct timespec until;
    if (number == SYS_futex && control && control[3] && a[3]
        && (a[1] & (FUTEX_CMD_MASK | FUTEX_CLOCK_REALTIME)) == FUTEX_WAIT_BITSET) {
        until = *(struct timespec *)a[3];
        put_ahead(&until, control[3]);
        a[3] = (long)&until;
    }
    return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    int outcome = REAL(gettimeofday)(now, zone);
    if (outcome == 0 && control) {
        struct timespec precise = {now->tv_sec + control[0], now->tv_usec * 1000};
        put_ahead(&precise, -control[3]);
        *now = (struct timeval){precise.tv_sec, precise.tv_nsec / 1000};
    }
    return outcome;
}

time_t time(time_t *now)
{
    /* The C library's own time() does not call the clock_gettime() above. */
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    if (now)
        *now = precise.tv_sec;
    return precise.tv_sec;
}
