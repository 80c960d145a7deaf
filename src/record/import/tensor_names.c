#include "record/import/tensor_names.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* Whether a converter may have written `name` for `original`. */
static bool may_be_written(const char *name, const char *original)
{
    size_t i = 0;
    if (name[0] == '_' && isdigit((unsigned char)original[0]))
        name++;
    for (; original[i] != '\0'; i++) {
        unsigned char c = (unsigned char)original[i];
        char written = c < 128 && isalnum(c) ? (char)c : '_';
        if (name[i] != written)
            return false;
    }
    return name[i] == '\0';
}

/* What has names: tensors, or inputs. */
struct named {
    const struct nd_model *model;
    size_t n;
    const char *(*name)(const struct nd_model *model, size_t i);
    const char *(*onnx_name)(const struct nd_model *model, size_t i);
    const char *what;
};

static const char *tensor_name(const struct nd_model *model, size_t i)
{
    return nd_model_tensor(model, i)->name;
}

static const char *tensor_onnx_name(const struct nd_model *model, size_t i)
{
    return nd_model_tensor(model, i)->onnx_name;
}

static const char *input_name(const struct nd_model *model, size_t i)
{
    return nd_model_input(model, i)->name;
}

static enum nd_status find_sanitised(const struct named *named, const char *name, size_t *out,
                                     struct nd_error *err)
{
    size_t n_found = 0;
    char list[512] = "";
    for (size_t i = 0; i < named->n; i++) {
        const char *own = named->name(named->model, i), *onnx = named->onnx_name(named->model, i);
        if (!may_be_written(name, own) && !may_be_written(name, onnx))
            continue;
        size_t at = strlen(list);
        snprintf(list + at, sizeof list - at, "%s'%s'", n_found > 0 ? ", " : "", named->name(named->model, i));
        n_found++;
        *out = i;
    }
    if (n_found == 0)
        return nd_fail(err, ND_E_IMPORT_NOTHING, name, "the model has no %s '%s'", named->what, name);
    if (n_found > 1)
        return nd_fail(
            err, ND_E_IMPORT_MISMATCH, name,
            "'%s' may be any of the model's %ss %s, whose sanitised names are equal; --map says which", name,
            named->what, list);
    return ND_OK;
}

static enum nd_status find(const struct named *named, const char *name, bool is_sanitised, size_t *out,
                           enum nd_name_method *method, struct nd_error *err)
{
    const char *(*const names[])(const struct nd_model *, size_t) = {named->name, named->onnx_name};
    for (size_t w = 0; w < 2 && !is_sanitised; w++)
        for (size_t i = 0; i < named->n; i++)
            if (strcmp(names[w](named->model, i), name) == 0) {
                *out = i;
                *method = w == 0 ? ND_NAME_AS_IT_IS : ND_NAME_ONNX;
                return ND_OK;
            }
    enum nd_status status = find_sanitised(named, name, out, err);
    if (status == ND_OK)
        *method = strcmp(named->name(named->model, *out), name) == 0 ? ND_NAME_AS_IT_IS : ND_NAME_SANITISED;
    return status;
}

enum nd_status nd_name_find_tensor(const struct nd_model *model, const char *name, bool is_sanitised,
                                   size_t *tensor, enum nd_name_method *method, struct nd_error *err)
{
    const struct named tensors = {model, nd_model_n_tensors(model), tensor_name, tensor_onnx_name, "tensor"};
    return find(&tensors, name, is_sanitised, tensor, method, err);
}

enum nd_status nd_name_find_input(const struct nd_model *model, const char *name, bool is_sanitised,
                                  size_t *input, enum nd_name_method *method, struct nd_error *err)
{
    const struct named inputs = {model, nd_model_n_inputs(model), input_name, input_name, "input"};
    return find(&inputs, name, is_sanitised, input, method, err);
}
