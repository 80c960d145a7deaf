/* The output folder of qnn-net-run. The bytes are its files: name, NUL, size as decimal text, NUL, content,
 * again and again. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/files/file.h"
#include "fuzz/fuzz.h"
#include "npudiff/record/import.h"

static bool is_name(const char *text, size_t n)
{
    return n > 0 && n < 200 && text[0] != '/' && strstr(text, "..") == NULL && text[n - 1] != '/';
}

/* False at the end. */
static bool write_next(const char *folder, const uint8_t **at, size_t *left)
{
    const char *name = (const char *)*at;
    size_t n_name = strnlen(name, *left),
           n_size = n_name < *left ? strnlen(name + n_name + 1, *left - n_name - 1) : 0;
    if (n_name + 1 + n_size + 1 > *left)
        return false;
    size_t rest = *left - n_name - n_size - 2, n = strtoul(name + n_name + 1, NULL, 10);
    const uint8_t *content = *at + n_name + n_size + 2;
    n = n < rest ? n : rest;
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    char *dir = nd_path_dir(path);
    if (is_name(name, n_name) && dir != NULL && nd_dir_make(dir, NULL) == ND_OK) {
        FILE *file = fopen(path, "wb");
        if (file != NULL) {
            fwrite(content, 1, n, file);
            fclose(file);
        }
    }
    free(dir);
    *at = content + n;
    *left = rest - n;
    return *left > 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char folder[3000], output[3100];
    snprintf(folder, sizeof folder, "%s/out", fuzz_folder());
    snprintf(output, sizeof output, "%s/x.h5", fuzz_folder());
    nd_dir_remove(folder);
    if (nd_dir_make(folder, NULL) != ND_OK)
        abort();
    while (size > 0 && write_next(folder, &data, &size))
        ;
    const char *const paths[] = {folder};
    const struct nd_import_options options = {.struct_size = sizeof options,
                                              .format = "qnn-net-run",
                                              .paths = paths,
                                              .n_paths = 1,
                                              .output = output,
                                              .replace = true,
                                              .assumes_float32 = true};
    struct nd_import_result result;
    if (nd_import(&options, &result, NULL) == ND_OK)
        nd_import_result_deinit(&result);
    return 0;
}
