/* Options structs of callers that were compiled against another version of the public headers (options.h has
 * the rules). */
#include "core/text/options.h"

#include <assert.h>
#include <string.h>

#include "core/error.h"

enum nd_status nd_options_read(void *own, size_t own_bytes, const void *given, struct nd_error *err)
{
    size_t given_bytes;
    if (given == NULL)
        return ND_OK;
    memcpy(&given_bytes, given, sizeof given_bytes);
    if (given_bytes < sizeof given_bytes)
        return nd_fail(err, ND_E_OPTION_STRUCT, NULL,
                       "struct_size of the options is %zu; set it to the size of the struct", given_bytes);
    for (size_t i = own_bytes; i < given_bytes; i++)
        if (((const unsigned char *)given)[i] != 0)
            return nd_fail(err, ND_E_OPTION_NEWER, NULL,
                           "the options set a member at byte %zu; libnpudiff %s knows only the first %zu bytes",
                           i, nd_version(), own_bytes);
    memcpy(own, given, given_bytes < own_bytes ? given_bytes : own_bytes);
    memcpy(own, &own_bytes, sizeof own_bytes);
    return ND_OK;
}

void nd_options_write(void *given, size_t given_bytes, const void *own, size_t own_bytes)
{
    assert(given_bytes >= sizeof given_bytes);
    memset(given, 0, given_bytes);
    memcpy(given, own, given_bytes < own_bytes ? given_bytes : own_bytes);
    memcpy(given, &given_bytes, sizeof given_bytes);
}
