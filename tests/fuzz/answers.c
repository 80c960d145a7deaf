/* Captures that were changed: each is refused, or gives every answer that the original gives.
 *
 *   capture_answers SEED N CAPTURE...    N changed copies of each
 *
 * The places of a change are drawn by what lies there: values, which lie where the index says, or the rest,
 * which is structure, attributes and tables. Prints how many copies were refused at opening and at reading, and
 * how many gave the original's answers. A copy with another answer is kept in the working folder, and the exit
 * code is 1. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "capture/read/schema.h"
#include "core/files/file.h"
#include "core/random.h"
#include "fuzz/fuzz.h"
#include "npudiff/capture/capture.h"

enum { MAX_BYTES = 1 << 20, MAX_CHANGES = 3, HANG_S = 120 };

struct bench {
    unsigned char *file, *changed;
    size_t n;
    bool *is_value; /* [n] the byte is of a dataset */
    uint64_t state;
};

struct tally {
    size_t refused, unreadable, same, other;
};

/* ---- the answers ---- */

static void fold(struct nd_digest *sum, const void *data, size_t n_bytes)
{
    struct nd_digest both[2] = {*sum, nd_digest_bytes(data, n_bytes)};
    *sum = nd_digest_bytes(both, sizeof both);
}

static void fold_text(struct nd_digest *sum, const char *text)
{
    fold(sum, text, text != NULL ? strlen(text) : 0);
}

static void fold_shape(struct nd_digest *sum, enum nd_dtype dtype, const struct nd_shape *shape)
{
    int64_t numbers[2 + ND_MAX_RANK] = {dtype, shape->rank};
    for (int i = 0; i < shape->rank; i++)
        numbers[2 + i] = shape->dims[i];
    fold(sum, numbers, sizeof numbers);
}

static void fold_attrs(const struct nd_capture *capture, struct nd_digest *sum)
{
    for (size_t i = 0; i < nd_capture_n_attrs(capture); i++) {
        const struct nd_attr *attr = nd_capture_attr(capture, i);
        fold_text(sum, attr->group);
        fold_text(sum, attr->key);
        fold_text(sum, attr->type == ND_ATTR_STRING ? attr->string : "");
        fold(sum, &attr->i64, sizeof attr->i64);
        fold(sum, &attr->f64, sizeof attr->f64);
    }
    for (size_t i = 0; i < nd_capture_n_logs(capture); i++) {
        fold_text(sum, nd_capture_log_name(capture, i));
        fold_text(sum, nd_capture_log_text(capture, i));
    }
    for (size_t i = 0; i < nd_capture_n_findings(capture); i++) {
        const struct nd_capture_finding *found = nd_capture_finding(capture, i);
        fold_text(sum, found->kind);
        fold_text(sum, found->severity);
        fold_text(sum, found->text);
        fold(sum, &found->line, sizeof found->line);
        fold(sum, &found->code, sizeof found->code);
    }
}

static void fold_graph(const struct nd_capture *capture, struct nd_digest *sum)
{
    for (size_t i = 0; i < nd_capture_n_nodes(capture); i++) {
        const struct nd_capture_node *node = nd_capture_node(capture, i);
        fold_text(sum, node->name);
        fold_text(sum, node->op_type);
        fold_text(sum, node->provider);
        fold(sum, &node->subgraph, sizeof node->subgraph);
    }
    for (size_t i = 0; i < nd_capture_n_tensors(capture); i++) {
        const struct nd_tensor *tensor = nd_capture_tensor(capture, i);
        fold_text(sum, tensor->name);
        fold_text(sum, tensor->onnx_name);
        fold_text(sum, tensor->op_types);
        fold_text(sum, tensor->node);
        fold_text(sum, nd_capture_tensor_provider(capture, i));
        fold_shape(sum, tensor->dtype, &tensor->shape);
        fold(sum, tensor->quant.scale, tensor->quant.n * sizeof *tensor->quant.scale);
        fold(sum, tensor->quant.zero_point, tensor->quant.n * sizeof *tensor->quant.zero_point);
        int64_t facts[] = {tensor->quant.axis, tensor->is_model_input, tensor->is_model_output};
        fold(sum, facts, sizeof facts);
    }
}

/* One tensor of a probe, values and digests. false: a reading was refused. */
static bool fold_values(const struct nd_probe_values *item, void *room, struct nd_digest *sum)
{
    const struct nd_capture_probe *probe = nd_capture_probe(item->capture, item->probe);
    const struct nd_tensor *tensor = nd_capture_tensor(item->capture, item->tensor);
    size_t bytes;
    bool is_stored = nd_capture_has_outputs(item->capture, item->probe, item->tensor) &&
                     nd_shape_size_bytes(&tensor->shape, tensor->dtype, &bytes, NULL) == ND_OK &&
                     bytes <= MAX_BYTES;
    for (size_t s = 0; s < probe->n_samples; s++)
        for (size_t r = 0; r < nd_capture_n_runs(item->capture, item->probe, item->tensor, s); r++) {
            struct nd_digest digest = nd_capture_digest(item->capture, item->probe, item->tensor, s, r);
            fold(sum, &digest, sizeof digest);
            if (!is_stored)
                continue;
            enum nd_status status = r == 0 ? nd_capture_read_verified(item, s, 1, room, NULL)
                                           : nd_capture_read_repeat_verified(item, s, r, room, NULL);
            if (status != ND_OK)
                return false;
            fold(sum, room, bytes);
        }
    return true;
}

static bool fold_probe(const struct nd_capture *capture, size_t p, void *room, struct nd_digest *sum)
{
    const struct nd_capture_probe *probe = nd_capture_probe(capture, p);
    int64_t counts[] = {(int64_t)probe->n_samples, (int64_t)probe->n_samples_expected,
                        (int64_t)probe->n_repeats};
    fold_text(sum, probe->name);
    fold_text(sum, probe->source);
    fold(sum, counts, sizeof counts);
    fold(sum, probe->latency_us, probe->n_samples * probe->n_repeats * sizeof *probe->latency_us);
    if (probe->labels != NULL)
        fold(sum, probe->labels, probe->n_samples_expected * sizeof *probe->labels);
    for (size_t i = 0; i < probe->n_inputs; i++) {
        const struct nd_capture_input *input = &probe->inputs[i];
        const struct nd_probe_values tensor = {capture, p, i};
        size_t bytes;
        fold_text(sum, input->name);
        fold_shape(sum, input->dtype, &input->shape);
        if (nd_shape_size_bytes(&input->shape, input->dtype, &bytes, NULL) != ND_OK || bytes > MAX_BYTES)
            continue;
        for (size_t s = 0; s < probe->n_samples_expected; s++) {
            if (nd_capture_read_inputs(&tensor, s, 1, room, NULL) != ND_OK)
                return false;
            fold(sum, room, bytes);
        }
    }
    for (size_t e = 0; e < nd_capture_n_tensors(capture); e++)
        if (!fold_values(&(struct nd_probe_values){capture, p, e}, room, sum))
            return false;
    return true;
}

/* Everything that the file answers to an arithmetic that checks what it reads. */
static bool answer(const char *path, void *room, bool *is_open, struct nd_digest *sum)
{
    struct nd_capture *capture = NULL;
    *is_open = nd_capture_open(path, &capture, NULL) == ND_OK;
    if (!*is_open)
        return false;
    int64_t state = nd_capture_state(capture);
    fold(sum, &state, sizeof state);
    fold_attrs(capture, sum);
    fold_graph(capture, sum);
    bool is_read = true;
    for (size_t p = 0; p < nd_capture_n_probes(capture) && is_read; p++)
        is_read = fold_probe(capture, p, room, sum);
    nd_capture_close(&capture);
    return is_read;
}

/* ---- the changes ---- */

static uint64_t draw(struct bench *bench, uint64_t below)
{
    return nd_splitmix_next(&bench->state) % below;
}

/* A place among the values, or among the rest. */
static size_t draw_place(struct bench *bench)
{
    bool wants_value = draw(bench, 2) == 0;
    size_t at = draw(bench, bench->n);
    for (int i = 0; i < 64 && bench->is_value[at] != wants_value; i++)
        at = draw(bench, bench->n);
    return at;
}

/* What files suffer, and fields of eight bytes made extreme. The size afterwards. */
static size_t change(struct bench *bench, size_t n)
{
    static const uint64_t extreme[] = {0, 1, 0x7f, 0xffff, UINT32_MAX, INT64_MAX, UINT64_MAX, UINT64_MAX - 7};
    size_t at = draw_place(bench), from = draw_place(bench), length = 1 + draw(bench, 64);
    if (at >= n || from >= n)
        return n;
    size_t room = n - (at > from ? at : from);
    length = length < room ? length : room;
    uint64_t value = extreme[draw(bench, sizeof extreme / sizeof *extreme)];
    switch (draw(bench, 8)) {
    case 0:
        bench->changed[at] = (unsigned char)draw(bench, 256);
        return n;
    case 1:
    case 2:
        bench->changed[at] ^= (unsigned char)(1u << draw(bench, 8));
        return n;
    case 3:
        at = at / 8 * 8;
        memcpy(bench->changed + at, &value, n - at < 8 ? n - at : 8);
        return n;
    case 4:
        memset(bench->changed + at, (int)(value & 0xff), length);
        return n;
    case 5:
        memmove(bench->changed + at, bench->changed + from, length);
        return n;
    case 6:
        memmove(bench->changed + at, bench->changed + at + length, n - at - length);
        return n - length;
    default:
        return draw(bench, 8) == 0 ? at : n; /* cut off */
    }
}

/* Where the values of datasets lie. */
static void mark_values(struct bench *bench, const char *path)
{
    struct nd_index *index = NULL;
    if (nd_index_open(path, &nd_capture_schema, &index, NULL) != ND_OK)
        abort();
    for (size_t i = 0; i < index->n_objects; i++) {
        const struct nd_index_object *object = &index->objects[i];
        if (!object->is_group && object->chunks == NULL)
            memset(bench->is_value + object->offset, true, object->stored_bytes);
        for (size_t c = 0; object->chunks != NULL && c < object->layout.n_chunks; c++)
            memset(bench->is_value + object->chunks[c].offset, true, object->chunks[c].stored_bytes);
    }
    nd_index_close(&index);
}

/* ---- the study ---- */

static void keep(const struct bench *bench, size_t n, uint64_t seed)
{
    char name[64];
    snprintf(name, sizeof name, "other-%" PRIu64 ".h5", seed);
    if (nd_file_put(name, bench->changed, n, NULL) == ND_OK)
        printf("another answer: %s\n", name);
}

static void try_one(struct bench *bench, uint64_t seed, struct nd_digest original, struct tally *tally)
{
    static unsigned char room[MAX_BYTES];
    struct nd_digest sum = {0};
    size_t n = bench->n;
    bool is_open;
    bench->state = seed;
    memcpy(bench->changed, bench->file, n);
    for (uint64_t changes = 1 + draw(bench, MAX_CHANGES); changes > 0; changes--)
        n = change(bench, n);
    if (n == bench->n && memcmp(bench->changed, bench->file, n) == 0)
        bench->changed[draw_place(bench)] ^= 1;
    alarm(HANG_S);
    bool is_answer = answer(fuzz_file("x.h5", bench->changed, n), room, &is_open, &sum);
    alarm(0);
    if (!is_answer)
        *(is_open ? &tally->unreadable : &tally->refused) += 1;
    else if (nd_digest_equal(sum, original))
        tally->same++;
    else {
        tally->other++;
        keep(bench, n, seed);
    }
}

static bool study(const char *path, uint64_t seed, size_t n_copies)
{
    static unsigned char room[MAX_BYTES];
    struct bench bench = {0};
    struct tally tally = {0};
    struct nd_digest original = {0};
    bool is_open;
    void *data = NULL;
    if (nd_file_read(path, MAX_BYTES, &data, &bench.n, NULL) != ND_OK ||
        !answer(path, room, &is_open, &original)) {
        fprintf(stderr, "%s: no sound capture of at most 1 MiB\n", path);
        free(data);
        return false;
    }
    bench.file = data;
    bench.changed = malloc(bench.n);
    bench.is_value = calloc(bench.n, sizeof *bench.is_value);
    if (bench.changed == NULL || bench.is_value == NULL)
        abort();
    mark_values(&bench, path);
    for (size_t i = 0; i < n_copies; i++)
        try_one(&bench, seed + i, original, &tally);
    printf("%s: %zu copies: %zu refused, %zu not read, %zu with the same answers, %zu with others\n", path,
           n_copies, tally.refused, tally.unreadable, tally.same, tally.other);
    fflush(stdout);
    free(bench.file);
    free(bench.changed);
    free(bench.is_value);
    return tally.other == 0;
}

int main(int argc, char **argv)
{
    bool is_sound = argc > 3;
    for (int i = 3; i < argc; i++)
        is_sound &= study(argv[i], strtoull(argv[1], NULL, 0), strtoul(argv[2], NULL, 0));
    return is_sound ? 0 : 1;
}
