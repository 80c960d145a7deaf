/* Cases of golden/oracle/exact_ops.bin.gz and exact_ops_more.bin.gz as tools/oracles/make_exact_ops_oracle.py
 * writes them: one node, its inputs and outputs. */
#ifndef ND_TESTS_EXACT_CASES_H
#define ND_TESTS_EXACT_CASES_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "arithmetic/operators/ops.h"

enum { MAX_TENSORS = 9 };

struct tensor_list {
    size_t n;
    struct nd_array arrays[MAX_TENSORS];
    bool is_present[MAX_TENSORS];
};

struct exact_case {
    char name[512];
    int64_t opset;
    bool is_exact;
    Onnx__NodeProto *node;
    struct tensor_list inputs, outputs;
};

struct exact_cases {
    gzFile file;
    uint32_t n_left;
    bool is_second; /* of the two files */
};

static inline void read_bytes(struct exact_cases *cases, void *to, size_t n)
{
    assert_int_equal(gzread(cases->file, to, (unsigned)n), (int)n);
}

static inline uint32_t read_number(struct exact_cases *cases, size_t n_bytes)
{
    unsigned char bytes[4] = {0};
    read_bytes(cases, bytes, n_bytes);
    return bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

static inline void read_list(struct exact_cases *cases, struct tensor_list *list)
{
    list->n = read_number(cases, 1);
    assert_in_range(list->n, 0, MAX_TENSORS);
    for (size_t i = 0; i < list->n; i++) {
        list->is_present[i] = read_number(cases, 1) != 0;
        if (!list->is_present[i])
            continue;
        struct nd_shape shape = {0};
        enum nd_dtype dtype = (enum nd_dtype)read_number(cases, 1);
        shape.rank = (int)read_number(cases, 1);
        for (int axis = 0; axis < shape.rank; axis++)
            shape.dims[axis] = read_number(cases, 4);
        assert_int_equal(nd_array_make(&list->arrays[i], dtype, &shape, NULL), ND_OK);
        if (list->arrays[i].n > 0)
            read_bytes(cases, list->arrays[i].x, list->arrays[i].n * sizeof(double));
    }
}

static inline void exact_cases_open_file(struct exact_cases *cases)
{
    char path[4096], magic[8];
    snprintf(path, sizeof path, "%s/oracle/exact_ops%s.bin.gz", getenv("GOLDEN"),
             cases->is_second ? "_more" : "");
    cases->file = gzopen(path, "rb");
    assert_non_null(cases->file);
    read_bytes(cases, magic, sizeof magic);
    assert_memory_equal(magic, "NDOPS001", sizeof magic);
    cases->n_left = read_number(cases, 4);
}

static inline void exact_cases_open(struct exact_cases *cases)
{
    *cases = (struct exact_cases){0};
    exact_cases_open_file(cases);
}

static inline void exact_cases_close(struct exact_cases *cases)
{
    gzclose_r(cases->file);
}

/* The next case, to be freed; false after the last one. */
static inline bool exact_cases_next(struct exact_cases *cases, struct exact_case *out)
{
    unsigned char bytes[8192];
    *out = (struct exact_case){0};
    if (cases->n_left == 0 && !cases->is_second) {
        gzclose_r(cases->file);
        cases->is_second = true;
        exact_cases_open_file(cases);
    }
    if (cases->n_left == 0)
        return false;
    cases->n_left--;
    size_t n = read_number(cases, 2);
    assert_true(n < sizeof out->name);
    read_bytes(cases, out->name, n);
    out->opset = read_number(cases, 2);
    out->is_exact = read_number(cases, 1) != 0;
    n = read_number(cases, 4);
    assert_true(n <= sizeof bytes);
    read_bytes(cases, bytes, n);
    out->node = onnx__node_proto__unpack(NULL, n, bytes);
    assert_non_null(out->node);
    read_list(cases, &out->inputs);
    read_list(cases, &out->outputs);
    return true;
}

static inline void exact_case_free(struct exact_case *one)
{
    for (size_t i = 0; i < MAX_TENSORS; i++) {
        nd_array_deinit(&one->inputs.arrays[i]);
        nd_array_deinit(&one->outputs.arrays[i]);
    }
    onnx__node_proto__free_unpacked(one->node, NULL);
}

/* Runs the node of a case; made has an array per output, those that are not omitted are to be freed. */
static inline enum nd_status exact_case_run(const struct exact_case *one, struct nd_array made[MAX_TENSORS],
                                            struct nd_error *err)
{
    const struct nd_array *inputs[MAX_TENSORS] = {0};
    struct nd_array *outputs[MAX_TENSORS] = {0};
    for (size_t i = 0; i < one->inputs.n; i++)
        inputs[i] = one->inputs.is_present[i] ? &one->inputs.arrays[i] : NULL;
    for (size_t i = 0; i < one->outputs.n; i++)
        outputs[i] = one->outputs.is_present[i] ? &made[i] : NULL;
    struct nd_op_call call = {.node = one->node,
                              .opset = one->opset,
                              .n_inputs = one->inputs.n,
                              .n_outputs = one->outputs.n,
                              .inputs = inputs,
                              .outputs = outputs};
    return nd_op_run(&call, err);
}

#endif
