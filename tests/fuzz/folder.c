#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/files/file.h"
#include "fuzz/fuzz.h"

static char *made;

static void remove_made(void)
{
    nd_dir_remove(made);
    free(made);
    made = NULL;
}

const char *fuzz_folder(void)
{
    if (made == NULL && nd_dir_make_temporary(&made, NULL) == ND_OK)
        atexit(remove_made);
    if (made == NULL)
        abort();
    return made;
}

const char *fuzz_file(const char *name, const uint8_t *data, size_t size)
{
    static char path[4096];
    snprintf(path, sizeof path, "%s/%s", fuzz_folder(), name);
    FILE *file = fopen(path, "wb");
    if (file == NULL || fwrite(data, 1, size, file) != size || fclose(file) != 0)
        abort();
    return path;
}
