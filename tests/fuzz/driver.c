/* Where there is no libFuzzer: runs the target with each file that is named, or that is in a folder that is
 * named.
 *
 *   fuzz_NAME [--mutate SEED N | --seconds SEED N] PATH...
 *     --mutate: then also N times with one of them changed at random; --seconds: so often as N seconds allow.
 *     $FUZZ_SEED goes before the SEED of --seconds. The seed is printed: --mutate repeats the run.
 */
#include <ftw.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fuzz/fuzz.h"

enum { MAX_INPUTS = 20000, MAX_BYTES = 1 << 20, MAX_CHANGES = 8 };

static struct input {
    uint8_t *data;
    size_t size;
} inputs[MAX_INPUTS];
static size_t n_inputs;
static uint64_t state;

/* SplitMix64. */
static uint64_t draw(uint64_t below)
{
    uint64_t z = state += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return (z ^ (z >> 31)) % below;
}

static int take(const char *path, const struct stat *info, int type, struct FTW *walk)
{
    (void)info;
    (void)walk;
    FILE *file = type == FTW_F && n_inputs < MAX_INPUTS ? fopen(path, "rb") : NULL;
    uint8_t *data = file != NULL ? malloc(MAX_BYTES) : NULL;
    if (data != NULL)
        inputs[n_inputs++] = (struct input){data, fread(data, 1, MAX_BYTES, file)};
    if (file != NULL)
        fclose(file);
    return 0;
}

/* Bytes set, flipped, made extreme, removed, doubled, or taken from another input. */
static size_t change(uint8_t *data, size_t n, size_t room)
{
    static const uint8_t extreme[] = {0, 1, 0x7f, 0x80, 0xff, '\n', '"', '-'};
    size_t at = n > 0 ? draw(n) : 0, length = 1 + draw(n - at > 64 ? 64 : n - at + 1);
    const struct input *other = &inputs[draw(n_inputs)];
    switch (n == 0 ? 5 : draw(7)) {
    case 0:
        data[at] = (uint8_t)draw(256);
        return n;
    case 1:
        data[at] ^= (uint8_t)(1u << draw(8));
        return n;
    case 2:
        for (size_t i = at; i < n && i < at + length; i++)
            data[i] = extreme[draw(sizeof extreme)];
        return n;
    case 3:
        length = length < n - at ? length : n - at;
        memmove(data + at, data + at + length, n - at - length);
        return n - length;
    case 4:
        length = length < n - at ? length : n - at;
        length = length < room - n ? length : room - n;
        memmove(data + at + length, data + at, n - at);
        return n + length;
    case 5:
        length = length < other->size ? length : other->size;
        length = length < room - at ? length : room - at;
        if (length > 0)
            memcpy(data + at, other->data + draw(other->size - length + 1), length);
        return at + length > n ? at + length : n;
    default:
        return at;
    }
}

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t room)
{
    return change(data, size, room);
}

#pragma weak LLVMFuzzerCustomMutator

static size_t change_somehow(uint8_t *data, size_t n, size_t room)
{
    return LLVMFuzzerCustomMutator != NULL ? LLVMFuzzerCustomMutator(data, n, room, (unsigned)draw(UINT32_MAX))
                                           : change(data, n, room);
}

/* How often it did. */
static unsigned long mutate(unsigned long n_runs, time_t end)
{
    uint8_t *data = malloc(2 * MAX_BYTES);
    unsigned long i = 0;
    for (; data != NULL && n_inputs > 0 && i < n_runs && (end == 0 || time(NULL) < end); i++) {
        const struct input *from = &inputs[draw(n_inputs)];
        size_t n = from->size;
        memcpy(data, from->data, n);
        for (uint64_t changes = 1 + draw(MAX_CHANGES); changes > 0; changes--)
            n = change_somehow(data, n, 2 * MAX_BYTES);
        uint8_t *exact = malloc(n > 0 ? n : 1); /* so that a byte too far is seen */
        if (exact == NULL)
            abort();
        memcpy(exact, data, n);
        LLVMFuzzerTestOneInput(exact, n);
        free(exact);
    }
    free(data);
    return i;
}

int main(int argc, char **argv)
{
    bool has_seconds = argc > 3 && strcmp(argv[1], "--seconds") == 0;
    int first = has_seconds || (argc > 3 && strcmp(argv[1], "--mutate") == 0) ? 4 : 1;
    for (int i = first; i < argc; i++)
        if (nftw(argv[i], take, 16, FTW_PHYS) != 0)
            return 2;
    for (size_t i = 0; i < n_inputs; i++)
        LLVMFuzzerTestOneInput(inputs[i].data, inputs[i].size);
    if (first == 4) {
        const char *seed = has_seconds && getenv("FUZZ_SEED") != NULL ? getenv("FUZZ_SEED") : argv[2];
        unsigned long n = strtoul(argv[3], NULL, 0);
        state = strtoull(seed, NULL, 0);
        printf("seed %s\n", seed);
        fflush(stdout);
        n = mutate(has_seconds ? ULONG_MAX : n, has_seconds ? time(NULL) + (time_t)n : 0);
        printf("%lu changed inputs\n", n);
    }
    printf("%zu inputs\n", n_inputs);
    for (size_t i = 0; i < n_inputs; i++)
        free(inputs[i].data);
    return n_inputs > 0 ? 0 : 1;
}
