/* How fast this machine can read files that lie in the page cache: two threads, each half of every file, added
 * up 8 bytes at a time and done nothing else with. Prints the seconds of the fastest of ROUNDS.
 *
 * usage: read_limit ROUNDS FILE...
 *
 * Reading is done both ways, by maps and by pread into a block that stays in the cache of the core; which one
 * is faster depends on what a page fault costs. Opening and closing the files, mapping and starting threads
 * count. */
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/files/file.h"
#include "npudiff/core/parse.h"

enum { N_THREADS = 2, N_LANES = 16, BLOCK_BYTES = 256 * 1024 };

struct part {
    char **paths;
    int n_paths;
    int index; /* of the thread */
    bool by_map;
    uint64_t sum;
    bool is_read;
};

/* Lanes, so that the compiler can use whatever width the machine has. */
static uint64_t add_up(const uint64_t *words, size_t n_words)
{
    uint64_t lanes[N_LANES] = {0}, sum = 0;
    for (size_t i = 0; i + N_LANES <= n_words; i += N_LANES)
        for (size_t k = 0; k < N_LANES; k++)
            lanes[k] += words[i + k];
    for (size_t k = 0; k < N_LANES; k++)
        sum += lanes[k];
    return sum;
}

static bool read_map(struct part *part, int fd, size_t from, size_t n_bytes)
{
    void *map = mmap(NULL, n_bytes, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, (off_t)from);
    if (map == MAP_FAILED)
        return false;
    part->sum += add_up(map, n_bytes / sizeof(uint64_t));
    return munmap(map, n_bytes) == 0;
}

static bool read_blocks(struct part *part, int fd, size_t from, size_t n_bytes)
{
    static _Thread_local _Alignas(64) uint64_t block[BLOCK_BYTES / sizeof(uint64_t)];
    while (n_bytes > 0) {
        size_t want = n_bytes < BLOCK_BYTES ? n_bytes : BLOCK_BYTES;
        ssize_t got = pread(fd, block, want, (off_t)from);
        if (got <= 0)
            return false;
        part->sum += add_up(block, (size_t)got / sizeof(uint64_t));
        from += (size_t)got;
        n_bytes -= (size_t)got;
    }
    return true;
}

static bool read_part(struct part *part, const char *path)
{
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool is_read = fstat(fd, &info) == 0;
    /* Halves that begin on a page. */
    size_t size = is_read ? (size_t)info.st_size : 0, half = size / N_THREADS / BLOCK_BYTES * BLOCK_BYTES;
    size_t from = part->index == 0 ? 0 : half, n_bytes = part->index == 0 ? half : size - half;
    if (is_read && n_bytes > 0)
        is_read = part->by_map ? read_map(part, fd, from, n_bytes) : read_blocks(part, fd, from, n_bytes);
    close(fd);
    return is_read;
}

static void *run_part(void *context)
{
    struct part *part = context;
    part->is_read = true;
    for (int i = 0; i < part->n_paths && part->is_read; i++)
        part->is_read = read_part(part, part->paths[i]);
    return NULL;
}

/* Nanoseconds, or 0 when a file cannot be read. *sum keeps the work from being optimised away. */
static uint64_t read_once(char **paths, int n_paths, bool by_map, uint64_t *sum)
{
    struct part parts[N_THREADS];
    pthread_t threads[N_THREADS];
    bool is_read = true;
    uint64_t start = nd_clock_ns();
    for (int i = 0; i < N_THREADS; i++) {
        parts[i] = (struct part){.paths = paths, .n_paths = n_paths, .index = i, .by_map = by_map};
        if (pthread_create(&threads[i], NULL, run_part, &parts[i]) != 0)
            abort();
    }
    for (int i = 0; i < N_THREADS; i++) {
        pthread_join(threads[i], NULL);
        is_read = is_read && parts[i].is_read;
        *sum += parts[i].sum;
    }
    return is_read ? nd_clock_ns() - start : 0;
}

int main(int argc, char **argv)
{
    uint64_t n_rounds, fastest_ns = UINT64_MAX, sum = 0;
    if (argc < 3 || !nd_parse_u64(argv[1], &n_rounds) || n_rounds == 0) {
        fprintf(stderr, "usage: read_limit ROUNDS FILE...\n");
        return 2;
    }
    for (uint64_t i = 0; i < 2 * n_rounds; i++) {
        uint64_t elapsed_ns = read_once(argv + 2, argc - 2, i % 2 == 0, &sum);
        if (elapsed_ns == 0) {
            fprintf(stderr, "read_limit: cannot read all of the files\n");
            return 2;
        }
        fastest_ns = elapsed_ns < fastest_ns ? elapsed_ns : fastest_ns;
    }
    printf("%.6f\n", (double)fastest_ns / 1e9);
    return sum == 1; /* the sum has to be used for something */
}
