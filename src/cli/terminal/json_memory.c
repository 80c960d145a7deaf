/* Counts the memory of JSON trees, so that a lack of it is an error. */
#include "cli/terminal/json_memory.h"

#include <jansson.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

/* Blocks of 64 bytes to 1 MiB, each twice the one before: the report of an error needs a few small ones.
 * Chosen. */
enum { N_BLOCKS = 15, MIN_BYTES = 64 };

/* Blocks of malloc, as who gets one gives it to free. NULL: taken. */
static _Atomic(void *) reserve[N_BLOCKS];
static void (*tell_lost)(void);

static void *allocate(size_t size_bytes)
{
    static const char message[] = "npudiff: out of memory\n";
    void *memory = malloc(size_bytes);
    if (memory != NULL)
        return memory;
    tell_lost();
    for (int i = 0; i < N_BLOCKS; i++)
        if (size_bytes <= (size_t)MIN_BYTES << i && (memory = atomic_exchange(&reserve[i], NULL)) != NULL)
            return memory;
    ssize_t n = write(STDERR_FILENO, message, sizeof message - 1);
    (void)n;
    _exit(2);
}

void cli_reserve_json_memory(void (*lost)(void))
{
    tell_lost = lost;
    for (int i = 0; i < N_BLOCKS; i++)
        if (atomic_load(&reserve[i]) == NULL)
            atomic_store(&reserve[i], malloc((size_t)MIN_BYTES << i));
    json_set_alloc_funcs(allocate, free);
}
