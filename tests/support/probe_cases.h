/* Oracle cases of golden/oracle/probe, as tools/oracles/make_probe_oracle.py writes them: a description, the
 * inputs of a model, and the bytes that must come out. Include after main.h. */
#ifndef ND_TESTS_PROBE_CASES_H
#define ND_TESTS_PROBE_CASES_H

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "core/tensors/sha256.h"
#include "npudiff/record/probe.h"

enum { CASE_MAX_TARGETS = 32 };

struct case_targets {
    struct nd_probe_target items[CASE_MAX_TARGETS];
    struct nd_quant quants[CASE_MAX_TARGETS];
    size_t n;
};

/* The path under the golden folder, in new memory. */
static inline char *golden_path(const char *name)
{
    const char *golden = getenv("GOLDEN");
    assert_non_null(golden);
    char *path = nd_path_join(golden, name);
    assert_non_null(path);
    return path;
}

static inline void read_quant(const json_t *json, struct nd_probe_target *target, struct nd_quant *quant)
{
    const json_t *scale = json_object_get(json, "scale"), *zero_point = json_object_get(json, "zero_point");
    quant->n = json_array_size(scale);
    quant->axis = (int)json_integer_value(json_object_get(json, "axis"));
    quant->scale = nd_calloc(quant->n, sizeof *quant->scale);
    quant->zero_point = nd_calloc(quant->n, sizeof *quant->zero_point);
    for (size_t i = 0; i < quant->n; i++) {
        quant->scale[i] = (float)json_number_value(json_array_get(scale, i));
        quant->zero_point[i] = json_integer_value(json_array_get(zero_point, i));
    }
    target->quant = quant;
    target->quant_dtype = nd_dtype_from_name(json_string_value(json_object_get(json, "dtype")));
}

static inline void read_targets(const json_t *json, struct case_targets *targets)
{
    memset(targets, 0, sizeof *targets);
    targets->n = json_array_size(json);
    assert_in_range(targets->n, 1, CASE_MAX_TARGETS);
    for (size_t i = 0; i < targets->n; i++) {
        const json_t *item = json_array_get(json, i), *shape = json_object_get(item, "shape");
        struct nd_probe_target *target = &targets->items[i];
        target->name = json_string_value(json_object_get(item, "name"));
        target->dtype = nd_dtype_from_name(json_string_value(json_object_get(item, "dtype")));
        target->shape.rank = (int)json_array_size(shape);
        for (size_t d = 0; d < json_array_size(shape); d++)
            target->shape.dims[d] = json_integer_value(json_array_get(shape, d));
        if (json_is_object(json_object_get(item, "quant")))
            read_quant(json_object_get(item, "quant"), target, &targets->quants[i]);
    }
}

static inline void targets_deinit(struct case_targets *targets)
{
    for (size_t i = 0; i < targets->n; i++) {
        free(targets->quants[i].scale);
        free(targets->quants[i].zero_point);
    }
}

/* Whether data are the bytes that expected gives in hexadecimal, or as "sha256:...". */
static inline bool is_expected_data(const char *expected, const void *data, size_t n)
{
    char sum[ND_SHA256_HEX_BYTES];
    if (strncmp(expected, "sha256:", 7) == 0) {
        nd_sha256_bytes(data, n, sum);
        return strcmp(sum, expected + 7) == 0;
    }
    if (strlen(expected) != 2 * n)
        return false;
    for (size_t i = 0; i < n; i++) {
        char byte[3];
        snprintf(byte, sizeof byte, "%02x", ((const unsigned char *)data)[i]);
        if (memcmp(byte, expected + 2 * i, 2) != 0)
            return false;
    }
    return true;
}

static inline void check_labels(const json_t *expected, const struct nd_probe *probe)
{
    if (!json_is_array(expected)) {
        assert_null(probe->labels);
        return;
    }
    assert_non_null(probe->labels);
    assert_int_equal(json_array_size(expected), probe->n_samples);
    for (size_t i = 0; i < probe->n_samples; i++)
        assert_int_equal(probe->labels[i], json_integer_value(json_array_get(expected, i)));
}

static inline void check_probe(const json_t *expected, const struct case_targets *targets,
                               const struct nd_probe *probe)
{
    assert_string_equal(probe->name, json_string_value(json_object_get(expected, "name")));
    assert_int_equal(probe->n_samples, json_integer_value(json_object_get(expected, "samples")));
    assert_int_equal(probe->n_inputs, targets->n);
    for (size_t i = 0; i < targets->n; i++) {
        const struct nd_probe_input *input = &probe->inputs[i];
        size_t sample_bytes = 0;
        assert_string_equal(input->name, targets->items[i].name);
        assert_int_equal(input->dtype, targets->items[i].dtype);
        assert_true(nd_shape_equal(&input->shape, &targets->items[i].shape));
        assert_int_equal(nd_shape_size_bytes(&input->shape, input->dtype, &sample_bytes, NULL), ND_OK);
        assert_int_equal(input->sample_bytes, sample_bytes);
        const char *hex = json_string_value(json_array_get(json_object_get(expected, "inputs"), i));
        if (!is_expected_data(hex, input->data, probe->n_samples * sample_bytes))
            fail_msg("case '%s': input '%s' has other bytes than the oracle",
                     json_string_value(json_object_get(expected, "spec")), input->name);
    }
    check_labels(json_object_get(expected, "labels"), probe);
}

/* The cases of one file, to be given back with json_decref. */
static inline json_t *load_cases(const char *name)
{
    char *path = golden_path(name);
    json_error_t error;
    json_t *cases = json_load_file(path, 0, &error);
    if (cases == NULL)
        fail_msg("%s:%d: %s", path, error.line, error.text);
    assert_true(json_array_size(cases) > 0);
    free(path);
    return cases;
}

#endif
