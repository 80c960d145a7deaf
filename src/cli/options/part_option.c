#include "cli/options/part_option.h"

#include <string.h>

#include "cli/terminal/errors.h"
#include "npudiff/core/parse.h"

enum { MAX_PARTS = 65536 };

bool cli_parse_part(const char *text, size_t *part, size_t *n_parts)
{
    char first[32];
    uint64_t k, n;
    size_t n_bytes = strcspn(text, "/");
    if (text[n_bytes] != '/' || n_bytes >= sizeof first)
        return false;
    memcpy(first, text, n_bytes);
    first[n_bytes] = '\0';
    if (!nd_parse_u64(first, &k) || !nd_parse_u64(text + n_bytes + 1, &n) || k < 1 || k > n || n > MAX_PARTS)
        return false;
    *part = (size_t)k - 1;
    *n_parts = (size_t)n;
    return true;
}

int cli_part_error(const char *command, const char *text)
{
    return cli_usage_error(command, "--part takes K/N with K from 1 to N, N at most %d, not '%s'", MAX_PARTS,
                           text);
}
