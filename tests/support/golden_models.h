/* The models under golden/, loaded. Those of golden/oracle/model and golden/bad/models are made by
 * tools/oracles/make_model_cases.py. */
#ifndef ND_TESTS_GOLDEN_MODELS_H
#define ND_TESTS_GOLDEN_MODELS_H

#include "support/main.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/error.h"
#include "core/files/file.h"
#include "core/tensors/sha256.h"
#include "npudiff/model/model.h"

static inline char *golden_path(const char *name)
{
    const char *golden = getenv("GOLDEN");
    assert_non_null(golden);
    return nd_path_join(golden, name);
}

static inline struct nd_model *load(const char *name)
{
    struct nd_model *model = NULL;
    struct nd_error err = {0};
    char *path = name[0] == '/' ? strdup(name) : golden_path(name);
    if (nd_model_load(path, &model, &err) != ND_OK)
        fail_msg("%s", err.message);
    assert_string_equal(nd_model_path(model), path);
    free(path);
    return model;
}

static inline char *temporary_dir(void)
{
    char *dir = NULL;
    assert_int_equal(nd_dir_make_temporary(&dir, NULL), ND_OK);
    return dir;
}

static inline size_t tensor_index(const struct nd_model *model, const char *name)
{
    for (size_t i = 0; i < nd_model_n_tensors(model); i++)
        if (strcmp(nd_model_tensor(model, i)->name, name) == 0)
            return i;
    fail_msg("no tensor '%s'", name);
    return 0;
}

static inline void assert_quant(const struct nd_model *model, const char *name, float scale, int64_t zero_point)
{
    const struct nd_tensor *tensor = nd_model_tensor(model, tensor_index(model, name));
    assert_int_equal(tensor->quant.n, 1);
    assert_int_equal(tensor->quant.axis, -1);
    assert_f32_bits(tensor->quant.scale[0], scale);
    assert_int_equal(tensor->quant.zero_point[0], zero_point);
}

#endif
