/* What is stated of the tensors of a run: kept, found, and held against what something else states. */
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/tensors/scales.h"
#include "record/qnn/net_run.h"

void nd_qnr_stated_deinit(struct nd_qnr_stated *stated)
{
    free(stated->file);
    free(stated->name);
    nd_quant_deinit(&stated->quant);
    *stated = (struct nd_qnr_stated){0};
}

static void list_deinit(struct nd_qnr_list *list)
{
    for (size_t i = 0; i < list->n; i++)
        nd_qnr_stated_deinit(&list->items[i]);
    free(list->items);
}

void nd_qnr_source_deinit(struct nd_qnr_source *source)
{
    list_deinit(&source->outputs);
    list_deinit(&source->inputs);
    free(source->path);
    free(source->build_id);
    json_decref(source->root);
    *source = (struct nd_qnr_source){0};
}

const struct nd_qnr_stated *nd_qnr_find(const struct nd_qnr_list *list, const char *file)
{
    for (size_t i = 0; i < list->n; i++)
        if (strcmp(list->items[i].file, file) == 0)
            return &list->items[i];
    return NULL;
}

enum nd_status nd_qnr_add(struct nd_qnr_list *list, struct nd_qnr_stated *stated, const char *path,
                          struct nd_error *err)
{
    enum nd_status status = ND_OK;
    if (stated->file[0] != '\0' && nd_qnr_find(list, stated->file) != NULL)
        status =
            nd_fail(err, ND_E_QNN_STATED, stated->file, "'%s' describes tensor '%s' twice", path, stated->file);
    else if (!nd_grow((void **)&list->items, &list->capacity, list->n + 1, sizeof *list->items))
        status = nd_fail_memory(err);
    if (status == ND_OK)
        list->items[list->n++] = *stated;
    else
        nd_qnr_stated_deinit(stated);
    return status;
}

/* ---- agreement ---- */

/* Both state a quantisation. */
static enum nd_status agree_on_quant(const struct nd_qnr_stated *a, const char *a_from,
                                     const struct nd_qnr_stated *b, const char *b_from, struct nd_error *err)
{
    const struct nd_quant *x = &a->quant, *y = &b->quant;
    if (x->n != y->n)
        return nd_fail(err, ND_E_QNN_STATED, a->file, "tensor '%s' has %zu scales in '%s', but %zu in '%s'",
                       a->file, x->n, a_from, y->n, b_from);
    if (x->n > 1 && x->axis != y->axis)
        return nd_fail(err, ND_E_QNN_STATED, a->file,
                       "tensor '%s' has its %zu scales along dimension %d in '%s', but along dimension %d in "
                       "'%s'",
                       a->file, x->n, x->axis, a_from, y->axis, b_from);
    for (size_t i = 0; i < x->n; i++)
        if (memcmp(&x->scale[i], &y->scale[i], sizeof *x->scale) != 0 || x->zero_point[i] != y->zero_point[i])
            return nd_fail(err, ND_E_QNN_STATED, a->file,
                           "tensor '%s' has scale %.9g, zero point %lld in '%s', but scale %.9g, zero point "
                           "%lld in '%s' (channel %zu)",
                           a->file, (double)x->scale[i], (long long)x->zero_point[i], a_from,
                           (double)y->scale[i], (long long)y->zero_point[i], b_from, i);
    return ND_OK;
}

enum nd_status nd_qnr_agree(const struct nd_qnr_stated *a, const char *a_from, const struct nd_qnr_stated *b,
                            const char *b_from, struct nd_error *err)
{
    char left[128], right[128];
    if (a->dtype != ND_DTYPE_NONE && b->dtype != ND_DTYPE_NONE && a->dtype != b->dtype)
        return nd_fail(err, ND_E_QNN_STATED, a->file, "tensor '%s' is %s in '%s', but %s in '%s'", a->file,
                       nd_dtype_name(a->dtype), a_from, nd_dtype_name(b->dtype), b_from);
    if (a->shape.rank >= 0 && b->shape.rank >= 0 && !nd_shape_equal(&a->shape, &b->shape))
        return nd_fail(err, ND_E_QNN_STATED, a->file, "tensor '%s' has shape %s in '%s', but %s in '%s'",
                       a->file, nd_shape_format(&a->shape, left, sizeof left), a_from,
                       nd_shape_format(&b->shape, right, sizeof right), b_from);
    if (a->quant.n == 0 || b->quant.n == 0)
        return ND_OK;
    return agree_on_quant(a, a_from, b, b_from, err);
}
