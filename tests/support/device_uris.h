/* Devices by their URIs. */
#ifndef ND_TESTS_DEVICE_URIS_H
#define ND_TESTS_DEVICE_URIS_H

#include "support/main.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/files/file.h"
#include "npudiff/devices/device.h"
#include "support/scratch.h"

static inline void put_text(const char *name, const char *text)
{
    char *path = in_folder(name), *dir = nd_path_dir(path);
    assert_int_equal(nd_dir_make(dir, NULL), ND_OK);
    assert_int_equal(nd_file_put(path, text, strlen(text), NULL), ND_OK);
    free(path);
    free(dir);
}

static inline void use_runtimes(const char *name)
{
    char *path = in_folder(name);
    assert_int_equal(setenv("NPUDIFF_RUNTIMES", path, 1), 0);
    free(path);
}

static inline const struct nd_runtime_info *find(const struct nd_runtime_list *list, const char *id)
{
    for (size_t i = 0; i < list->n; i++)
        if (strcmp(list->items[i].id, id) == 0)
            return &list->items[i];
    fail_msg("runtime '%s' is not listed", id);
    return NULL;
}

static const char manifest[] =
    "{\"onnxruntime\": \"9.8\", \"onnxruntime_qnn\": \"7.6\", \"ort_library\": \"o.so\","
    " \"provider_library\": \"sub/p.so\", \"backend_library\": \"b.so\"}";

static inline void put_runtime(const char *root, const char *id, const char *missing)
{
    static const char *const files[] = {"o.so", "sub/p.so", "b.so"};
    char name[256];
    snprintf(name, sizeof name, "%s/%s/runtime.json", root, id);
    put_text(name, manifest);
    for (size_t i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "%s/%s/%s", root, id, files[i]);
        if (missing == NULL || strcmp(files[i], missing) != 0)
            put_text(name, "");
    }
}

static inline int use_fake_runtime(void **state)
{
    (void)state;
    put_runtime("uris", "qairt-2.48.40", NULL);
    put_runtime("uris", "qairt-2.47.0", NULL);
    use_runtimes("uris");
    return 0;
}

static inline int use_real_runtimes(void **state)
{
    (void)state;
    return unsetenv("NPUDIFF_RUNTIMES");
}

enum { N_TASKS = 9 };

#endif
