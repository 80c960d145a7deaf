/* The description of a probe: a built-in generator with its parameters, or NAME=PATH. */
#include "npudiff/record/probe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/text/strbuf.h"
#include "npudiff/core/parse.h"
#include "record/probes/build.h"
#include "record/probes/generate.h"
#include "record/probes/user.h"

static const size_t default_samples = 8;
static const uint64_t default_seed = 1;
static const uint64_t max_samples = (uint64_t)1 << 30;

/* The same order as nd_probe_kinds; n_parameters counts SAMPLES and SEED. */
static const struct generator {
    const char *name;
    int n_parameters;
    nd_generate_fn fill;
} generators[] = {
    {"zeros", 0, nd_generate_zeros},     {"ones", 0, nd_generate_ones}, {"ramp", 0, nd_generate_ramp},
    {"uniform", 2, nd_generate_uniform}, {"ties", 1, nd_generate_ties},
};

const struct nd_probe_kind *nd_probe_kinds(void)
{
    static const struct nd_probe_kind kinds[] = {
        {"zeros", "zeros", "one sample of zeros; of a quantised input the value 0"},
        {"ones", "ones", "one sample of ones; of a quantised input the value 1"},
        {"ramp", "ramp",
         "one sample that rises through the range of the input's quantiser, or from -1 to 1 without one"},
        {"uniform", "uniform[:SAMPLES[:SEED]]",
         "random values in the range of the input's quantiser, or in [0, 1) without one (8 samples, seed 1)"},
        {"ties", "ties[:SAMPLES]", "values half-way between two steps of the input's quantiser (8 samples)"},
        {NULL, NULL, NULL},
    };
    return kinds;
}

static const struct generator *find_generator(const char *name, size_t n)
{
    for (size_t i = 0; i < sizeof generators / sizeof generators[0]; i++)
        if (strlen(generators[i].name) == n && memcmp(generators[i].name, name, n) == 0)
            return &generators[i];
    return NULL;
}

/* ---- Built-in probes ---- */

/* ":SAMPLES:SEED", of which each generator takes the first n_parameters; missing ones keep what args has. */
static bool parse_parameters(const char *text, int n_parameters, struct nd_generate_args *args)
{
    uint64_t values[2] = {args->n_samples, args->seed};
    for (int i = 0; *text != '\0'; i++) {
        char number[24];
        size_t n = strcspn(text + 1, ":");
        if (i == n_parameters || n >= sizeof number)
            return false;
        memcpy(number, text + 1, n);
        number[n] = '\0';
        if (!nd_parse_u64(number, &values[i]))
            return false;
        text += 1 + n;
    }
    if (values[0] < 1 || values[0] > max_samples)
        return false;
    args->n_samples = (size_t)values[0];
    args->seed = values[1];
    return true;
}

static enum nd_status fail_parameters(const char *spec, const struct generator *generator, struct nd_error *err)
{
    const struct nd_probe_kind *kind = nd_probe_kinds();
    while (strcmp(kind->name, generator->name) != 0)
        kind++;
    if (generator->n_parameters == 0)
        return nd_fail(err, ND_E_PROBE_SPEC, spec, "probe '%s': '%s' takes no parameters", spec,
                       generator->name);
    return nd_fail(err, ND_E_PROBE_SPEC, spec, "probe '%s': expected %s with SAMPLES from 1 to %llu%s", spec,
                   kind->syntax, (unsigned long long)max_samples,
                   generator->n_parameters > 1 ? " and SEED from 0 to 18446744073709551615" : "");
}

/* The description with every parameter written out: "uniform:8:1". New memory, or NULL. */
static char *full_spec(const struct generator *generator, const struct nd_generate_args *args)
{
    struct nd_strbuf text = {0};
    nd_strbuf_puts(&text, generator->name);
    if (generator->n_parameters > 0)
        nd_strbuf_printf(&text, ":%zu", args->n_samples);
    if (generator->n_parameters > 1)
        nd_strbuf_printf(&text, ":%llu", (unsigned long long)args->seed);
    return nd_strbuf_take(&text);
}

static enum nd_status create_generated(const char *spec, const struct generator *generator,
                                       const struct nd_probe_target *targets, size_t n_targets,
                                       struct nd_probe **out, struct nd_error *err)
{
    const char *parameters = spec + strlen(generator->name);
    struct nd_generate_args args = {generator->n_parameters > 0 ? default_samples : 1, default_seed};
    if (!parse_parameters(parameters, generator->n_parameters, &args))
        return fail_parameters(spec, generator, err);
    enum nd_status status = ND_OK;
    if (generator->fill == nd_generate_ties)
        status = nd_generate_check_ties(targets, n_targets, err);
    if (status != ND_OK)
        return status;
    struct nd_probe *probe = NULL;
    char *source = full_spec(generator, &args);
    if (source == NULL)
        return nd_fail_memory(err);
    status = nd_probe_create_empty(generator->name, source, targets, n_targets, &probe, err);
    if (status == ND_OK)
        status = nd_probe_set_samples(probe, args.n_samples, err);
    for (size_t i = 0; i < n_targets && status == ND_OK; i++) {
        status = nd_probe_alloc_input(probe, i, err);
        if (status == ND_OK)
            status = generator->fill(&targets[i], &args, probe->inputs[i].data, err);
    }
    if (status == ND_OK) {
        *out = probe;
        probe = NULL;
    }
    nd_probe_destroy(&probe);
    free(source);
    return status;
}

/* ---- User data ---- */

static enum nd_status check_name(const char *spec, const char *name, struct nd_error *err)
{
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-";
    if (name[0] == '\0' || name[strspn(name, allowed)] != '\0')
        return nd_fail(err, ND_E_PROBE_SPEC, spec,
                       "probe '%s': the name '%s' needs one or more of A-Z a-z 0-9 _ . -", spec, name);
    enum { MAX_NAME_BYTES = 255 }; /* chosen: as of a file */
    if (strlen(name) > MAX_NAME_BYTES)
        return nd_fail(err, ND_E_PROBE_SPEC, NULL, "the name of a probe has %zu bytes; at most %d are accepted",
                       strlen(name), (int)MAX_NAME_BYTES);
    if (find_generator(name, strlen(name)) != NULL)
        return nd_fail(err, ND_E_PROBE_SPEC, spec,
                       "probe '%s': '%s' is a built-in probe; give your data a different name", spec, name);
    return ND_OK;
}

/* The last ",labels=" in text, so that a path before it may contain the word too. */
static char *find_labels(char *text)
{
    char *found = NULL;
    for (char *at = text; (at = strstr(at, ",labels=")) != NULL; at++)
        found = at;
    return found;
}

static enum nd_status create_user(const char *spec, size_t name_bytes, const struct nd_probe_target *targets,
                                  size_t n_targets, struct nd_probe **out, struct nd_error *err)
{
    enum nd_status status;
    struct nd_probe *probe = NULL;
    char *text = nd_strdup(spec);
    if (text == NULL)
        return nd_fail_memory(err);
    text[name_bytes] = '\0';
    char *path = text + name_bytes + 1, *labels_path = NULL;
    status = check_name(spec, text, err);
    if (status == ND_OK)
        status = nd_probe_create_empty(text, path, targets, n_targets, &probe, err);
    if (status != ND_OK)
        goto out;
    char *labels = find_labels(path);
    if (labels != NULL) {
        *labels = '\0';
        labels_path = labels + strlen(",labels=");
    }
    if (path[0] == '\0' || (labels_path != NULL && labels_path[0] == '\0')) {
        status = nd_fail(err, ND_E_PROBE_SPEC, spec, "probe '%s': expected NAME=PATH[,labels=PATH]", spec);
        goto out;
    }
    if (n_targets == 0) {
        status = nd_fail(err, ND_E_PROBE_SPEC, spec, "probe '%s': the model has no inputs to feed", spec);
        goto out;
    }
    status = nd_user_load(probe, path, labels_path, err);
    if (status != ND_OK)
        goto out;
    *out = probe;
    probe = NULL;
out:
    nd_probe_destroy(&probe);
    free(text);
    return status;
}

enum nd_status nd_probe_create(const char *spec, const struct nd_probe_target *targets, size_t n_targets,
                               struct nd_probe **out, struct nd_error *err)
{
    const char *equals = strchr(spec, '=');
    if (equals != NULL)
        return create_user(spec, (size_t)(equals - spec), targets, n_targets, out, err);
    size_t n = strcspn(spec, ":");
    const struct generator *generator = find_generator(spec, n);
    if (generator == NULL) {
        char word[64], meant[ND_DID_YOU_MEAN_BYTES];
        snprintf(word, sizeof word, "%.*s", (int)n, spec);
        return nd_fail(err, ND_E_PROBE_SPEC, spec,
                       "unknown probe '%s'; probes are zeros, ones, ramp, uniform, ties and NAME=PATH%s", spec,
                       nd_did_you_mean(word, &generators[0].name, sizeof generators / sizeof generators[0],
                                       sizeof generators[0], meant));
    }
    return create_generated(spec, generator, targets, n_targets, out, err);
}
