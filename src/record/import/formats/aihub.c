/* Datasets of Qualcomm AI Hub: /data/<i> with the attributes name, batch_count and order, and in it batch_<k>,
 * one array for each sample. libhdf5 reads them in a confined child, which sends the samples through a pipe: a
 * file that breaks libhdf5 breaks that child alone, and one that keeps it busy for ever is given up. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "core/text/strbuf.h"
#include "capture/hdf5/reading.h"
#include "record/import/formats/aihub_walk.h"
#include "record/import/formats/formats.h"

/* A record; after it the name, the place in the file, and the data. Every member is 8 bytes wide, so that it
 * has no padding. */
struct sent_sample {
    uint64_t dtype;
    struct nd_sent_shape shape;
    uint64_t sample;
    uint64_t name_bytes;
    uint64_t what_bytes;
    uint64_t n_bytes;
};

/* ---- the child ---- */

static enum nd_status send_sample(void *context, const struct nd_aihub_sample *sample, struct nd_error *err)
{
    struct nd_reading_child *child = context;
    const struct sent_sample sent = {.dtype = (uint64_t)sample->dtype,
                                     .shape = nd_sent_shape(&sample->shape),
                                     .sample = sample->sample,
                                     .name_bytes = strlen(sample->name),
                                     .what_bytes = strlen(sample->what),
                                     .n_bytes = sample->n_bytes};
    const struct {
        const void *bytes;
        size_t n;
    } parts[] = {{&sent, sizeof sent},
                 {sample->name, sent.name_bytes},
                 {sample->what, sent.what_bytes},
                 {sample->data, sample->n_bytes}};
    enum nd_status status = nd_reading_send_record(child, err);
    for (size_t i = 0; status == ND_OK && i < sizeof parts / sizeof parts[0]; i++)
        status = nd_reading_send(child, parts[i].bytes, parts[i].n, err);
    return status;
}

static enum nd_status send_samples(void *context, struct nd_reading_child *child, struct nd_error *err)
{
    const int *fd = context;
    const struct nd_aihub_source source = {child->path, *fd, child->max_cpu_s};
    return nd_aihub_walk(&source, send_sample, child, err);
}

/* ---- the parent ---- */

struct receiver {
    struct nd_imported *imported;
    enum nd_imported_side side;
    struct nd_reading reading;
};

/* Gives room for a sample, whose place in the file 'what' names; *data. */
static enum nd_status add_sample(struct receiver *r, struct nd_imported_new *sample, const char *what,
                                 void **data, struct nd_error *err)
{
    struct nd_strbuf buf = {0};
    nd_strbuf_printf(&buf, "%s of '%s' (tensor '%.200s')", what, r->reading.path, sample->name);
    char *where = nd_strbuf_take(&buf);
    if (where == NULL)
        return nd_fail_memory(err);
    sample->where = where;
    enum nd_status status = nd_imported_add(r->imported, sample, data, err);
    free(where);
    return status;
}

static enum nd_status receive_sample(struct receiver *r, struct nd_error *err)
{
    struct sent_sample sent;
    size_t n_bytes = 0;
    void *data = NULL;
    char *name = NULL, *what = NULL;
    enum nd_status status = nd_reading_take(&r->reading, &sent, sizeof sent, err);
    struct nd_imported_new sample = {.side = r->side};
    if (status == ND_OK) {
        sample.dtype = (enum nd_dtype)sent.dtype;
        sample.sample = sent.sample;
        nd_shape_from_sent(&sent.shape, &sample.shape);
        if (sample.shape.rank < 0 || sample.shape.rank >= ND_MAX_RANK ||
            nd_dtype_size_bytes(sample.dtype) == 0 ||
            nd_shape_size_bytes(&sample.shape, sample.dtype, &n_bytes, NULL) != ND_OK ||
            n_bytes != sent.n_bytes)
            status = nd_reading_fail(&r->reading, err);
    }
    if (status == ND_OK)
        status = nd_reading_take_text(&r->reading, sent.name_bytes, &name, err);
    if (status == ND_OK)
        status = nd_reading_take_text(&r->reading, sent.what_bytes, &what, err);
    sample.name = name;
    if (status == ND_OK)
        status = add_sample(r, &sample, what, &data, err);
    if (status == ND_OK)
        status = nd_reading_take(&r->reading, data, n_bytes, err);
    free(what);
    free(name);
    return status;
}

static enum nd_status receive_all(struct receiver *r, struct nd_error *err)
{
    bool has_record = true;
    enum nd_status status = ND_OK;
    while (status == ND_OK && has_record) {
        status = nd_reading_next(&r->reading, &has_record, err);
        if (status == ND_OK && has_record)
            status = receive_sample(r, err);
    }
    return status;
}

enum nd_status nd_aihub_add(struct nd_imported *imported, enum nd_imported_side side, const char *path,
                            struct nd_error *err)
{
    struct receiver receiver = {
        .imported = imported, .side = side, .reading = {.path = path, .damaged = ND_E_IMPORT_FORMAT}};
    int fd;
    enum nd_status status = nd_file_open(path, &fd, &receiver.reading.file_bytes, err);
    if (status != ND_OK)
        return status;
    status = nd_reading_begin(&receiver.reading, send_samples, &fd, err);
    if (status == ND_OK) {
        status = receive_all(&receiver, err);
        nd_reading_end(&receiver.reading);
    }
    close(fd);
    return status;
}

static enum nd_status read_aihub(const struct nd_import_options *options, struct nd_imported *imported,
                                 struct nd_error *err)
{
    static const char *const facts[][2] = {{"names", "attribute 'name'"},
                                           {"types", "HDF5 type"},
                                           {"shapes", "HDF5 dataset"},
                                           {"samples", "one of each batch_N"}};
    enum nd_status status = ND_OK;
    for (size_t i = 0; status == ND_OK && i < options->n_paths; i++)
        status = nd_aihub_add(imported, ND_IMPORTED_OUTPUT, options->paths[i], err);
    for (size_t i = 0; status == ND_OK && i < sizeof facts / sizeof facts[0]; i++)
        status = nd_imported_fact(imported, facts[i][0], NULL, facts[i][1], err);
    return status;
}

const struct nd_import_reader nd_import_aihub = {
    .format = {"aihub", "DATASET.h5...",
               "datasets of Qualcomm AI Hub (output data of an inference job, as downloaded): "
               "each batch_N is a sample"},
    .read = read_aihub,
};
