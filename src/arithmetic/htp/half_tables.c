/* Functions of one float16, as the HTP makes them: read out of it, every number, by
 * tools/oracles/read_half_tables.py, which says how a table is written. gen1, gen3 and gen5 make the same. */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "arithmetic/htp/htp_internal.h"
#include "core/memory.h"

enum { N_PATTERNS = 1 << 16 };

#define FUNCTIONS(X) X(Cos) X(Exp) X(Log) X(Pow) X(Reciprocal) X(Sigmoid) X(Sin) X(Softplus) X(Sqrt) X(Tanh)
#define DECLARE(name) extern const unsigned char nd_half_##name##_begin[], nd_half_##name##_end[];
FUNCTIONS(DECLARE)
#define ROW(name) {#name, nd_half_##name##_begin, nd_half_##name##_end, NULL},
static struct function {
    const char *op_type;
    const unsigned char *begin, *end;
    uint16_t *table; /* made when it is asked for first, for as long as the program runs */
} functions[] = {FUNCTIONS(ROW)};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static uint16_t *inflate_table(const struct function *function)
{
    ND_FREED unsigned char *bytes = nd_calloc(N_PATTERNS, 2);
    uint16_t *table = nd_calloc(N_PATTERNS, sizeof *table);
    uLongf n_bytes = 2 * N_PATTERNS;
    if (bytes == NULL || table == NULL ||
        uncompress(bytes, &n_bytes, function->begin, (uLong)(function->end - function->begin)) != Z_OK) {
        free(table);
        return NULL;
    }
    uint16_t value = 0;
    for (size_t i = 0; i < N_PATTERNS; i++)
        table[i] = value = (uint16_t)(value + bytes[2 * i] + (bytes[2 * i + 1] << 8));
    return table;
}

const uint16_t *nd_half_table(const char *op_type)
{
    struct function *found = NULL;
    for (size_t i = 0; i < sizeof functions / sizeof *functions && found == NULL; i++)
        found = strcmp(functions[i].op_type, op_type) == 0 ? &functions[i] : NULL;
    if (found == NULL)
        return NULL;
    pthread_mutex_lock(&lock);
    if (found->table == NULL)
        found->table = inflate_table(found);
    pthread_mutex_unlock(&lock);
    return found->table;
}

bool nd_half_look_up(const uint16_t *table, struct nd_array *halves)
{
    enum { GREATEST = 0x7c00, SIGN = 0x8000, N_MANTISSAS = 1 << 10 };
    for (size_t i = 0; i < halves->n; i++) {
        uint16_t pattern;
        if (table == NULL || !(fabs(halves->x[i]) <= ND_HTP_MAX_OF_HALF))
            return false;
        nd_array_store(ND_DTYPE_F16, &halves->x[i], 1, &pattern);
        pattern = table[pattern];
        if ((pattern & GREATEST) == GREATEST)
            halves->x[i] = ((pattern & SIGN) != 0 ? -1 : 1) * ldexp(N_MANTISSAS + pattern % N_MANTISSAS, 6);
        else
            nd_array_load(ND_DTYPE_F16, &pattern, 1, &halves->x[i]);
    }
    return true;
}
