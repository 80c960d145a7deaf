/* A probe under construction: an empty one for targets, its number of samples, the target tensors that say what
 * an output should be (docs/reference/probes.md), and which arrays of a user are what. */

#include "core/items.h"
#include "record/probes/loader.h"

static const char prefix[] = "target:";

size_t nd_loader_find_input(const struct nd_loader *loader, const char *name)
{
    for (size_t i = 0; i < loader->probe->n_inputs; i++)
        if (strcmp(loader->probe->inputs[i].name, name) == 0)
            return i;
    return SIZE_MAX;
}

bool nd_loader_is_goal_name(const struct nd_loader *loader, const char *name)
{
    return strncmp(name, prefix, sizeof prefix - 1) == 0 && nd_loader_find_input(loader, name) == SIZE_MAX;
}

static enum nd_status check_header(const struct nd_source *source, const struct nd_npy *npy,
                                   struct nd_error *err)
{
    char found[256];
    if (npy->dtype != ND_DTYPE_F32 && npy->dtype != ND_DTYPE_F64)
        return nd_fail(err, ND_E_PROBE_TYPE, source->path, "%s is %s, expected float32 or float64",
                       source->what, nd_npy_format_dtype(npy, found, sizeof found));
    if (npy->rank < 1 || npy->n_elems == 0)
        return nd_fail(err, ND_E_PROBE_SHAPE, source->path,
                       "%s has shape %s, expected elements behind a dimension of samples", source->what,
                       nd_npy_format_shape(npy, found, sizeof found));
    return ND_OK;
}

/* Values as doubles. Those of float32 are widened from the back: the places overlap. */
static enum nd_status read_values(struct nd_source *source, const struct nd_npy *npy, double **out,
                                  struct nd_error *err)
{
    ND_FREED double *values = nd_calloc(npy->n_elems, sizeof *values);
    ND_TRY(values != NULL ? nd_npy_read(source, npy, values, err) : nd_fail_memory(err));
    for (size_t i = npy->n_elems; npy->dtype == ND_DTYPE_F32 && i-- > 0;) {
        float value;
        memcpy(&value, (const unsigned char *)values + i * sizeof value, sizeof value);
        values[i] = (double)value;
    }
    return ND_GIVE(out, values);
}

/* ND_PROBE_MAX_BYTES, or the memory of this machine if that is less. */
static size_t nd_probe_max_bytes(void)
{
    size_t memory = nd_machine_memory();
    return memory < ND_PROBE_MAX_BYTES ? memory : (size_t)ND_PROBE_MAX_BYTES;
}

/* Before any of it is read: one for each sample, and no more values than a probe may have. */
static enum nd_status check_number(const struct nd_probe *probe, const char *output, const struct nd_npy *npy,
                                   const struct nd_source *source, struct nd_error *err)
{
    size_t n_bytes;
    if ((size_t)npy->dims[0] != probe->n_samples)
        return nd_fail(err, ND_E_PROBE_SHAPE, probe->name,
                       "probe '%s' has %zu targets of output '%s' for %zu samples", probe->name,
                       (size_t)npy->dims[0], output, probe->n_samples);
    if (!nd_size_mul(npy->n_elems, sizeof(double), &n_bytes) || n_bytes > nd_probe_max_bytes())
        return nd_fail(err, ND_E_SIZE_OVERFLOW, source->path, "%s takes more than the %zu bytes accepted here",
                       source->what, nd_probe_max_bytes());
    return ND_OK;
}

enum nd_status nd_loader_read_goal(struct nd_loader *loader, const char *name, struct nd_source *source,
                                   struct nd_error *err)
{
    struct nd_probe *probe = loader->probe;
    struct nd_npy npy;
    ND_TRY(nd_npy_open(source, &npy, err));
    ND_TRY(check_header(source, &npy, err));
    ND_TRY(check_number(probe, name + sizeof prefix - 1, &npy, source, err));
    struct nd_probe_goal *grown = realloc(probe->goals, (probe->n_goals + 1) * sizeof *grown);
    ND_TRY_MEMORY(grown != NULL, err);
    probe->goals = grown;
    struct nd_probe_goal *goal = &grown[probe->n_goals];
    *goal = (struct nd_probe_goal){.output = nd_strdup(name + sizeof prefix - 1),
                                   .n_samples = (size_t)npy.dims[0],
                                   .n_elems = npy.n_elems / (size_t)npy.dims[0]};
    probe->n_goals++;
    return goal->output != NULL ? read_values(source, &npy, &goal->values, err) : nd_fail_memory(err);
}

const struct nd_probe_goal *nd_probe_find_goal(const struct nd_probe *probe, const char *output)
{
    return nd_find_text(probe->goals, probe->n_goals, sizeof *probe->goals, output);
}

/* Frees the target tensors. */
static void nd_probe_goals_deinit(struct nd_probe *probe)
{
    ND_FREE_BOTH(probe->goals, probe->n_goals, .output, .values);
}

enum nd_status nd_probe_set_samples(struct nd_probe *probe, size_t n_samples, struct nd_error *err)
{
    size_t total = 0;
    for (size_t i = 0; i < probe->n_inputs; i++) {
        size_t bytes;
        if (!nd_size_mul(n_samples, probe->inputs[i].sample_bytes, &bytes) ||
            !nd_size_add(total, bytes, &total) || total > nd_probe_max_bytes())
            return nd_fail(err, ND_E_SIZE_OVERFLOW, probe->name,
                           "probe '%s': %zu samples take more than the %zu bytes accepted here", probe->name,
                           n_samples, nd_probe_max_bytes());
    }
    probe->n_samples = n_samples;
    return ND_OK;
}

enum nd_status nd_probe_alloc_input(const struct nd_probe *probe, size_t input, struct nd_error *err)
{
    struct nd_probe_input *made = &probe->inputs[input];
    made->data = nd_tensor_alloc(probe->n_samples * made->sample_bytes); /* nd_probe_set_samples checked it */
    return made->data != NULL ? ND_OK : nd_fail_memory(err);
}

void nd_probe_destroy(struct nd_probe **probe)
{
    if (*probe == NULL)
        return;
    ND_FREE_BOTH((*probe)->inputs, (*probe)->n_inputs, .name, .data);
    free((*probe)->labels);
    nd_probe_goals_deinit(*probe);
    ND_FREE_ALL((*probe)->name, (*probe)->source, *probe);
    *probe = NULL;
}
