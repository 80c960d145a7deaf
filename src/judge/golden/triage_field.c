#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "core/text/strbuf.h"
#include "judge/golden/triage.h"

/* ---- bundles ---- */

enum nd_status nd_bundle_make(const struct nd_capture *capture, char **text, struct nd_error *err)
{
    json_t *record = nd_record_of_capture(capture);
    json_t *hidden = record != NULL ? nd_record_hidden(record) : NULL;
    json_decref(record);
    bool is_whole =
        hidden != NULL && json_object_set_new(hidden, "npudiff_bundle", json_integer(ND_BUNDLE_VERSION)) == 0;
    char *dumped = is_whole ? json_dumps(hidden, JSON_INDENT(2)) : NULL;
    json_decref(hidden);
    if (dumped == NULL)
        return nd_fail_memory(err);
    struct nd_strbuf out = {0};
    nd_strbuf_printf(&out, "%s\n", dumped);
    free(dumped);
    char *made = nd_strbuf_take(&out);
    if (made == NULL)
        return nd_fail_memory(err);
    *text = made;
    return ND_OK;
}

static enum nd_status read_bundle(const char *path, json_t **record, struct nd_error *err)
{
    void *data = NULL;
    size_t n = 0;
    json_error_t where;
    enum nd_status status = nd_file_read(path, ND_BUNDLE_MAX_BYTES, &data, &n, err);
    if (status != ND_OK)
        return status;
    json_t *bundle = json_loadb(data, n, JSON_REJECT_DUPLICATES, &where);
    const json_t *version = json_object_get(bundle, "npudiff_bundle");
    const char *problem = NULL;
    free(data);
    if (bundle == NULL)
        status = nd_fail(err, ND_E_BUNDLE_FORMAT, path, "'%s' is damaged: line %d, column %d: %s", path,
                         where.line, where.column, where.text);
    else if (!json_is_integer(version))
        status = nd_fail(err, ND_E_BUNDLE_FORMAT, path,
                         "'%s' is no bundle: expected a JSON object with the number 'npudiff_bundle'", path);
    else if (json_integer_value(version) != ND_BUNDLE_VERSION)
        status = nd_fail(err, ND_E_BUNDLE_FORMAT, path,
                         "'%s' is of bundle format %" JSON_INTEGER_FORMAT ", expected format %d", path,
                         json_integer_value(version), (int)ND_BUNDLE_VERSION);
    else if ((problem = nd_record_problem(bundle)) != NULL)
        status = nd_fail(err, ND_E_BUNDLE_FORMAT, path, "'%s' is damaged: %s", path, problem);
    if (status == ND_OK)
        *record = bundle;
    else
        json_decref(bundle);
    return status;
}

static bool starts_like_json(const char *path)
{
    char start[256] = ""; /* chosen: nobody writes as many blanks before an object */
    int fd;
    if (nd_file_open(path, &fd, NULL, NULL) != ND_OK)
        return false;
    ssize_t n = read(fd, start, sizeof start - 1);
    close(fd);
    return n > 0 && start[strspn(start, " \t\r\n")] == '{';
}

enum nd_status nd_field_read(const char *path, json_t **record, struct nd_capture **capture,
                             struct nd_error *err)
{
    struct nd_capture *opened = NULL;
    if (starts_like_json(path))
        return read_bundle(path, record, err);
    enum nd_status status = nd_capture_open(path, &opened, err);
    json_t *made = status == ND_OK ? nd_record_of_capture(opened) : NULL;
    if (status == ND_OK && made == NULL)
        status = nd_fail_memory(err);
    if (status != ND_OK) {
        nd_capture_close(&opened);
        return status;
    }
    *record = made;
    *capture = opened;
    return ND_OK;
}

/* ---- share of differing elements ---- */

struct counted {
    double n_elems, n_differing;
    char *ref, *test; /* one sample of each */
};

static size_t count_differing(const char *ref, const char *test, size_t n_bytes, size_t elem_bytes)
{
    size_t n = 0;
    for (size_t i = 0; i < n_bytes; i += elem_bytes)
        n += memcmp(ref + i, test + i, elem_bytes) != 0;
    return n;
}

/* One edge of one probe, sample by sample; samples with equal digests are not read. */
static enum nd_status count_edge(const struct nd_capture *const sides[2], const size_t probe[2],
                                 const size_t edge[2], struct counted *counted, struct nd_error *err)
{
    const struct nd_edge *ref = nd_capture_edge(sides[0], edge[0]), *test = nd_capture_edge(sides[1], edge[1]);
    size_t n_ref = nd_capture_probe(sides[0], probe[0])->n_samples, n_bytes = 0;
    size_t n_test = nd_capture_probe(sides[1], probe[1])->n_samples;
    size_t n_samples = n_ref < n_test ? n_ref : n_test;
    enum nd_status status = nd_shape_size_bytes(&ref->shape, ref->dtype, &n_bytes, err);
    size_t elem_bytes = nd_dtype_size_bytes(ref->dtype);
    if (status != ND_OK || n_bytes == 0 || elem_bytes == 0)
        return status;
    double n_elems = (double)(n_bytes / elem_bytes);
    counted->n_elems += n_elems * (double)n_samples;
    if (ref->dtype != test->dtype || !nd_shape_equal(&ref->shape, &test->shape)) {
        counted->n_differing += n_elems * (double)n_samples;
        return ND_OK;
    }
    counted->ref = nd_calloc(n_bytes, 1);
    counted->test = nd_calloc(n_bytes, 1);
    if (counted->ref == NULL || counted->test == NULL)
        status = nd_fail_memory(err);
    for (size_t s = 0; status == ND_OK && s < n_samples; s++) {
        if (nd_digest_equal(nd_capture_digest(sides[0], probe[0], edge[0], s, 0),
                            nd_capture_digest(sides[1], probe[1], edge[1], s, 0)))
            continue;
        status = nd_capture_read_verified(&(struct nd_capture_tensor){sides[0], probe[0], edge[0]}, s, 1,
                                          counted->ref, err);
        if (status == ND_OK)
            status = nd_capture_read_verified(&(struct nd_capture_tensor){sides[1], probe[1], edge[1]}, s, 1,
                                              counted->test, err);
        if (status == ND_OK)
            counted->n_differing += (double)count_differing(counted->ref, counted->test, n_bytes, elem_bytes);
    }
    free(counted->ref);
    free(counted->test);
    counted->ref = counted->test = NULL;
    return status;
}

static enum nd_status count_probe(const struct nd_capture *const sides[2], const size_t probe[2],
                                  struct counted *counted, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t e = 0; status == ND_OK && e < nd_capture_n_edges(sides[0]); e++) {
        size_t edge[2] = {e, nd_capture_find_edge(sides[1], nd_capture_edge(sides[0], e)->name)};
        if (edge[1] != SIZE_MAX && nd_capture_edge(sides[0], e)->shape.rank >= 0 &&
            nd_capture_has_outputs(sides[0], probe[0], e) &&
            nd_capture_has_outputs(sides[1], probe[1], edge[1]))
            status = count_edge(sides, probe, edge, counted, err);
    }
    return status;
}

enum nd_status nd_field_share(const struct nd_capture *ref, const struct nd_capture *test, double *out,
                              struct nd_error *err)
{
    const struct nd_capture *const sides[2] = {ref, test};
    struct counted counted = {0};
    enum nd_status status = ND_OK;
    for (size_t p = 0; status == ND_OK && p < nd_capture_n_probes(ref); p++) {
        size_t probe[2] = {p, nd_capture_find_probe(test, nd_capture_probe(ref, p)->name)};
        if (probe[1] != SIZE_MAX)
            status = count_probe(sides, probe, &counted, err);
    }
    if (status == ND_OK)
        *out = counted.n_elems > 0 ? counted.n_differing / counted.n_elems : (double)NAN;
    return status;
}
