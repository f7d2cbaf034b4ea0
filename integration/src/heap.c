/*
 * Counts what a process has allocated and not freed. Loaded before its C library (LD_PRELOAD). Pages do not tell
 * that: one small allocation keeps a page, with everything that was freed around it.
 *
 * OVN_HEAP_FILE=FILE   two 64-bit numbers: the process that counts there (0: none yet), and its bytes
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* The GNU C library's own names of the functions that are replaced here. */
extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

/* Counts until start() has mapped the file, and for ever without one. */
static int64_t before_start[2];
static int64_t *counted = before_start;

__attribute__((constructor)) static void start(void)
{
    const char *file = getenv("OVN_HEAP_FILE");
    if (!file)
        return;
    int fd = open(file, O_RDWR | O_CLOEXEC);
    void *page = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof before_start, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED) {
        fprintf(stderr, "heap: cannot map %s: %s\n", file, strerror(errno));
        _exit(125);
    }
    close(fd);
    int64_t *numbers = page, nobody = 0, own = getpid();
    /* A child inherits the file and does not count in it. After exec(2) the same process counts anew. */
    if (!__atomic_compare_exchange_n(&numbers[0], &nobody, own, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED) && nobody != own)
        return;
    numbers[1] = before_start[1];
    counted = numbers;
}

static void *come(void *block)
{
    if (block)
        __atomic_fetch_add(&counted[1], (int64_t)malloc_usable_size(block), __ATOMIC_RELAXED);
    return block;
}

static int64_t size_of(void *block)
{
    return block ? (int64_t)malloc_usable_size(block) : 0;
}

void *malloc(size_t size)
{
    return come(__libc_malloc(size));
}

void *calloc(size_t count, size_t size)
{
    return come(__libc_calloc(count, size));
}

void *realloc(void *block, size_t size)
{
    int64_t old = size_of(block);
    void *moved = __libc_realloc(block, size);
    /* A realloc that fails keeps the old block; one to size 0 frees it. */
    if (moved || size == 0)
        __atomic_fetch_sub(&counted[1], old, __ATOMIC_RELAXED);
    return come(moved);
}

void *memalign(size_t alignment, size_t size)
{
    return come(__libc_memalign(alignment, size));
}

void *aligned_alloc(size_t alignment, size_t size)
{
    return memalign(alignment, size);
}

int posix_memalign(void **place, size_t alignment, size_t size)
{
    void *block = memalign(alignment, size);
    if (!block)
        return ENOMEM;
    *place = block;
    return 0;
}

void free(void *block)
{
    __atomic_fetch_sub(&counted[1], size_of(block), __ATOMIC_RELAXED);
    __libc_free(block);
}
