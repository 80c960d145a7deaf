#include "cli/output.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/options.h"

int cli_write_text(const char *path, const char *text, bool replace)
{
    size_t size = strlen(path) + 32;
    char *temporary = malloc(size);
    if (temporary == NULL)
        return ND_EXIT_TROUBLE;
    snprintf(temporary, size, "%s.tmp-%ld", path, (long)getpid());
    FILE *file = fopen(temporary, "we");
    bool is_written = file != NULL && fputs(text, file) >= 0 && fflush(file) == 0 && fsync(fileno(file)) == 0;
    int problem = errno;
    if (file != NULL && fclose(file) != 0)
        is_written = false;
    if (is_written && (replace ? rename(temporary, path) : link(temporary, path)) != 0) {
        problem = errno;
        is_written = false;
    }
    unlink(temporary);
    if (!is_written)
        fprintf(stderr, "npudiff: cannot write '%s': %s\n", path, strerror(problem));
    free(temporary);
    return is_written ? 0 : ND_EXIT_TROUBLE;
}
