/* Cases of golden/oracle/compare as tools/oracles/make_compare_oracle.py writes them: pairs of tensors, given
 * or by recipe. */
#ifndef ND_TESTS_ORACLE_CASE_H
#define ND_TESTS_ORACLE_CASE_H

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compare/metrics/block.h"
#include "core/memory.h"

enum { MAX_SAMPLES = 8, MAX_CHANNELS = 300 };

static inline json_t *load(const char *name)
{
    char path[4096];
    json_error_t error;
    snprintf(path, sizeof path, "%s/oracle/compare/%s.json", getenv("GOLDEN"), name);
    json_t *rows = json_load_file(path, 0, &error);
    if (rows == NULL)
        fail_msg("%s: %s", path, error.text);
    assert_true(json_array_size(rows) > 10);
    return rows;
}

static const char *text_at(const json_t *array, size_t i)
{
    const char *text = json_string_value(json_array_get(array, i));
    assert_non_null(text);
    return text;
}

static inline int64_t integer_of(const json_t *row, const char *key)
{
    const json_t *value = json_object_get(row, key);
    assert_true(json_is_integer(value));
    return json_integer_value(value);
}

static inline uint64_t hex_of(const json_t *row, const char *key)
{
    const char *text = json_string_value(json_object_get(row, key));
    assert_non_null(text);
    return strtoull(text, NULL, 16);
}

static inline double double_of_bits(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* "x" and the first of the 16 hexadecimal digits. */
static inline double double_of_word(const char *word)
{
    char digits[17] = "0000000000000000";
    assert_true(word[0] == 'x');
    memcpy(digits, word + 1, strcspn(word + 1, " "));
    return double_of_bits(strtoull(digits, NULL, 16));
}

/* The inputs. */

struct side {
    struct nd_tensor tensor;
    float scale[MAX_CHANNELS];
    int64_t zero_point[MAX_CHANNELS];
    size_t elem_bytes;
    const json_t *specials;
    uint64_t special, base, span; /* of the recipe */
    unsigned char *bytes[MAX_SAMPLES];
};

struct oracle_case {
    struct side ref, test;
    size_t n_elems, n_samples;
    struct nd_compare_options options;
    struct nd_gate_values gate;
};

static inline uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

static inline uint64_t make_element(const struct side *side, uint64_t *random)
{
    uint64_t method = next_random(random), bits = next_random(random);
    uint64_t sign = (uint64_t)1 << (8 * side->elem_bytes - 1);
    if (method % 256 < side->special)
        return strtoull(text_at(side->specials, (method >> 8) % json_array_size(side->specials)), NULL, 16);
    bits = (side->base + (side->span != 0 ? bits % side->span : bits)) & (sign | (sign - 1));
    return bits | (nd_dtype_is_float(side->tensor.dtype) && method >> 63 != 0 ? sign : 0);
}

static inline void put(const struct side *side, size_t sample, size_t i, uint64_t bits)
{
    for (size_t b = 0; b < side->elem_bytes; b++)
        side->bytes[sample][i * side->elem_bytes + b] = (unsigned char)(bits >> 8 * b);
}

/* As fill() of the Python script. */
static inline void follow_recipe(struct oracle_case *c, const json_t *make)
{
    uint64_t random = hex_of(make, "seed");
    struct side *const sides[] = {&c->ref, &c->test};
    for (size_t s = 0; s < 2; s++) {
        const json_t *recipe = json_object_get(make, s == 0 ? "ref" : "test");
        sides[s]->special = (uint64_t)integer_of(recipe, "special");
        sides[s]->base = hex_of(recipe, "base");
        sides[s]->span = hex_of(recipe, "span");
    }
    for (size_t s = 0; s < c->n_samples; s++) {
        const json_t *method_of = json_array_get(json_object_get(make, "ways"), s);
        uint64_t equal = (uint64_t)json_integer_value(json_array_get(method_of, 0));
        uint64_t near = (uint64_t)json_integer_value(json_array_get(method_of, 1));
        for (size_t i = 0; i < c->n_elems; i++) {
            uint64_t ref = make_element(&c->ref, &random), method = next_random(&random);
            put(&c->ref, s, i, ref);
            put(&c->test, s, i,
                method % 256 < equal          ? ref
                : method % 256 < equal + near ? ref + (method >> 8) % 7 - 3
                                              : make_element(&c->test, &random));
        }
    }
}

static inline uint64_t checksum(const struct oracle_case *c)
{
    const struct side *const sides[] = {&c->ref, &c->test};
    uint64_t value = 0xcbf29ce484222325;
    for (size_t s = 0; s < c->n_samples; s++)
        for (size_t k = 0; k < 2; k++)
            for (size_t i = 0; i < c->n_elems * sides[k]->elem_bytes; i++)
                value = (value ^ sides[k]->bytes[s][i]) * 0x100000001b3;
    return value;
}

static inline void read_hex(const struct side *side, size_t sample, size_t n_elems, const char *hex)
{
    assert_int_equal(strlen(hex), 2 * n_elems * side->elem_bytes);
    for (size_t i = 0; hex[2 * i] != '\0'; i++) {
        char digits[3] = {hex[2 * i], hex[2 * i + 1]};
        side->bytes[sample][i] = (unsigned char)strtoul(digits, NULL, 16);
    }
}

static inline void read_side(struct side *side, const json_t *row, const json_t *shape, const json_t *specials)
{
    const char *dtype = json_string_value(json_object_get(row, "dtype"));
    const json_t *scales = json_object_get(row, "scales");
    side->tensor = (struct nd_tensor){.name = (char *)"e", .dtype = nd_dtype_from_name(dtype)};
    assert_true(side->tensor.dtype != ND_DTYPE_NONE);
    side->elem_bytes = nd_dtype_size_bytes(side->tensor.dtype);
    side->specials = json_object_get(specials, dtype);
    side->tensor.shape.rank = (int)json_array_size(shape);
    for (size_t i = 0; i < json_array_size(shape); i++)
        side->tensor.shape.dims[i] = json_integer_value(json_array_get(shape, i));
    side->tensor.quant = (struct nd_quant){
        .n = json_array_size(scales), .axis = -1, .scale = side->scale, .zero_point = side->zero_point};
    assert_true(side->tensor.quant.n <= MAX_CHANNELS);
    if (scales != NULL)
        side->tensor.quant.axis = (int)integer_of(row, "axis");
    for (size_t i = 0; i < side->tensor.quant.n; i++) {
        uint32_t bits = (uint32_t)strtoul(text_at(scales, i), NULL, 16);
        memcpy(&side->scale[i], &bits, sizeof bits);
        side->zero_point[i] = json_integer_value(json_array_get(json_object_get(row, "zero_points"), i));
    }
}

static inline uint64_t gate_number(const json_t *gate, const char *key, bool *has)
{
    const char *text = json_string_value(json_object_get(gate, key));
    *has = text != NULL;
    return text != NULL ? strtoull(text, NULL, 10) : 0;
}

static inline void read_gate(struct nd_gate_values *gate, const json_t *row)
{
    gate->bitwise = json_object_get(row, "bitwise") != NULL;
    gate->lsb = gate_number(row, "lsb", &gate->has_lsb);
    gate->ulp = gate_number(row, "ulp", &gate->has_ulp);
    gate->has_tolerance = json_object_get(row, "atol") != NULL;
    if (gate->has_tolerance) {
        gate->atol = double_of_word(json_string_value(json_object_get(row, "atol")));
        gate->rtol = double_of_word(json_string_value(json_object_get(row, "rtol")));
    }
}

static inline struct oracle_case *read_case(const json_t *row, const json_t *head)
{
    struct oracle_case *c = calloc(1, sizeof *c);
    assert_non_null(c);
    const json_t *shape = json_object_get(row, "shape"), *specials = json_object_get(head, "specials");
    const json_t *make = json_object_get(row, "make"), *samples = json_object_get(row, "samples");
    read_side(&c->ref, json_object_get(row, "ref"), shape, specials);
    read_side(&c->test, json_object_get(row, "test"), shape, specials);
    c->n_elems = 1;
    for (int i = 0; i < c->ref.tensor.shape.rank; i++)
        c->n_elems *= (size_t)c->ref.tensor.shape.dims[i];
    c->n_samples = json_array_size(make != NULL ? json_object_get(make, "ways") : samples);
    assert_true(c->n_samples > 0 && c->n_samples <= MAX_SAMPLES);
    for (size_t s = 0; s < c->n_samples; s++) {
        c->ref.bytes[s] = nd_tensor_alloc(c->n_elems * c->ref.elem_bytes);
        c->test.bytes[s] = nd_tensor_alloc(c->n_elems * c->test.elem_bytes);
        assert_true(c->ref.bytes[s] != NULL && c->test.bytes[s] != NULL);
    }
    if (make != NULL) {
        follow_recipe(c, make);
        assert_true(checksum(c) == hex_of(make, "checksum"));
    }
    for (size_t s = 0; make == NULL && s < c->n_samples; s++) {
        read_hex(&c->ref, s, c->n_elems, text_at(json_array_get(samples, s), 0));
        read_hex(&c->test, s, c->n_elems, text_at(json_array_get(samples, s), 1));
    }
    c->options = nd_compare_options_default();
    c->options.n_worst = (size_t)integer_of(row, "n_worst");
    if (json_object_get(row, "ulp_in") != NULL)
        c->options.ulp_in = nd_dtype_from_name(json_string_value(json_object_get(row, "ulp_in")));
    read_gate(&c->gate, json_object_get(row, "gate"));
    return c;
}

static inline void free_case(struct oracle_case *c)
{
    for (size_t s = 0; s < c->n_samples; s++) {
        free(c->ref.bytes[s]);
        free(c->test.bytes[s]);
    }
    free(c);
}

#endif
