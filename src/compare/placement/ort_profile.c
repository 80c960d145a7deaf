/* Reads ONNX Runtime's profile, a JSON array of events. The format is described in ort_profile.h. */
#include "compare/placement/ort_profile.h"

#include <jansson.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"

enum { MAX_EVENT_BYTES = 1 << 20, MAX_KERNELS = 1 << 20 };
static const char suffix[] = "_kernel_time";

struct reader {
    const char *log;
    const char *at, *end;
    size_t n_events;
    struct nd_ort_profile *profile;
};

static enum nd_status fail(const struct reader *reader, const char *what, struct nd_error *err)
{
    return nd_fail(err, ND_E_PROFILE_FORMAT, reader->log, "profile '%s', event %zu: %s", reader->log,
                   reader->n_events + 1, what);
}

static void skip_space(struct reader *reader)
{
    while (reader->at < reader->end && memchr(" \t\r\n", *reader->at, 4) != NULL)
        reader->at++;
}

/* The bytes of the object that starts here, its braces counted outside of strings; 0 when it does not end. */
static size_t object_bytes(const struct reader *reader)
{
    size_t depth = 0;
    bool is_text = false;
    for (const char *at = reader->at; at < reader->end; at++) {
        if (is_text && *at == '\\' && at + 1 < reader->end)
            at++;
        else if (*at == '"')
            is_text = !is_text;
        else if (!is_text && *at == '{')
            depth++;
        else if (!is_text && *at == '}' && --depth == 0)
            return (size_t)(at - reader->at) + 1;
    }
    return 0;
}

static enum nd_status find_kernel(struct nd_ort_profile *profile, const char *provider, const char *name,
                                  size_t name_len, struct nd_kernel **out, struct nd_error *err)
{
    size_t provider_len = strlen(provider);
    char *key = malloc(provider_len + name_len + 2);
    ND_TRY_MEMORY(key != NULL, err);
    memcpy(key, provider, provider_len);
    key[provider_len] = '\x1f';
    memcpy(key + provider_len + 1, name, name_len);
    key[provider_len + 1 + name_len] = '\0';
    size_t found = nd_names_find(&profile->keys, key);
    if (found != SIZE_MAX) {
        free(key);
        *out = &profile->kernels[found];
        return ND_OK;
    }
    char *owned = nd_strdup(provider);
    if (owned == NULL || profile->n_kernels == MAX_KERNELS ||
        !nd_grow((void **)&profile->kernels, &profile->capacity, profile->n_kernels + 1,
                 sizeof *profile->kernels) ||
        !nd_names_add(&profile->keys, key, profile->n_kernels)) {
        ND_FREE_ALL(owned, key);
        return nd_fail_memory(err);
    }
    *out = &profile->kernels[profile->n_kernels++];
    **out = (struct nd_kernel){.key = key, .provider = owned, .name = key + provider_len + 1};
    return ND_OK;
}

static bool read_duration(const json_t *event, double *us)
{
    const json_t *dur = json_object_get(event, "dur");
    *us = json_is_number(dur) ? json_number_value(dur) : -1;
    return *us >= 0 && isfinite(*us);
}

static enum nd_status take_run(struct nd_ort_profile *profile, const json_t *event, struct nd_error *err)
{
    double us;
    bool has_time = read_duration(event, &us);
    if (!nd_grow((void **)&profile->run_us, &profile->runs_capacity, profile->n_runs + 1,
                 sizeof *profile->run_us))
        return nd_fail_memory(err);
    profile->run_us[profile->n_runs++] = has_time ? us : NAN;
    profile->n_unfinished = 0;
    return ND_OK;
}

static enum nd_status take_kernel(struct reader *reader, const json_t *event, const char *name, size_t name_len,
                                  struct nd_error *err)
{
    const json_t *args = json_object_get(event, "args");
    const char *provider = json_string_value(json_object_get(args, "provider"));
    const char *op = json_string_value(json_object_get(args, "op_name"));
    double us = 0;
    if (provider == NULL)
        return fail(reader, "a kernel without 'args.provider'", err);
    if (!read_duration(event, &us))
        return fail(reader, "a kernel whose 'dur' is not a number of microseconds", err);
    struct nd_kernel *kernel = NULL;
    ND_TRY(find_kernel(reader->profile, provider, name, name_len, &kernel, err));
    reader->profile->n_unfinished++;
    kernel->is_quantiser =
        op != NULL && (strcmp(op, "QuantizeLinear") == 0 || strcmp(op, "DequantizeLinear") == 0);
    if (reader->profile->n_runs == 0) {
        kernel->first_us += us;
    } else {
        kernel->total_us += us;
        kernel->n++;
    }
    return ND_OK;
}

static enum nd_status take_event(struct reader *reader, const json_t *event, struct nd_error *err)
{
    const char *category = json_string_value(json_object_get(event, "cat"));
    const json_t *text = json_object_get(event, "name");
    const char *name = json_string_value(text);
    size_t n = name != NULL ? json_string_length(text) : 0, n_suffix = sizeof suffix - 1;
    if (category == NULL || name == NULL)
        return fail(reader, "no 'cat' and 'name'", err);
    if (strcmp(category, "Session") == 0 && strcmp(name, "model_run") == 0)
        return take_run(reader->profile, event, err);
    if (strcmp(category, "Node") != 0 || n <= n_suffix || strcmp(name + n - n_suffix, suffix) != 0)
        return ND_OK;
    return take_kernel(reader, event, name, n - n_suffix, err);
}

static enum nd_status read_event(struct reader *reader, struct nd_error *err)
{
    size_t n = *reader->at == '{' ? object_bytes(reader) : 1;
    if (n == 0)
        return fail(reader, "the profile is cut off", err);
    if (*reader->at != '{')
        return fail(reader, "not an object", err);
    if (n > MAX_EVENT_BYTES)
        return fail(reader, "larger than 1 MiB", err);
    json_error_t problem;
    json_t *event = json_loadb(reader->at, n, 0, &problem);
    if (event == NULL)
        return fail(reader, problem.text, err);
    enum nd_status status = take_event(reader, event, err);
    json_decref(event);
    reader->at += n;
    reader->n_events++;
    return status;
}

static enum nd_status read_array(struct reader *reader, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    skip_space(reader);
    if (reader->at == reader->end || *reader->at++ != '[')
        return nd_fail(err, ND_E_PROFILE_FORMAT, reader->log,
                       "profile '%s' is not a JSON array of events, as ONNX Runtime writes it", reader->log);
    for (bool is_first = true; status == ND_OK; is_first = false) {
        skip_space(reader);
        if (reader->at < reader->end && *reader->at == ']')
            break;
        if (!is_first && reader->at < reader->end && *reader->at++ != ',')
            return fail(reader, "no comma in front of it", err);
        skip_space(reader);
        if (reader->at == reader->end)
            return fail(reader, "the profile is cut off", err);
        if (*reader->at == ']') /* some versions leave a comma behind the last */
            break;
        status = read_event(reader, err);
    }
    if (status != ND_OK)
        return status;
    reader->at++;
    skip_space(reader);
    return reader->at == reader->end ? ND_OK : fail(reader, "something follows the end of the array", err);
}

enum nd_status nd_ort_profile_read(const char *name, const char *text, size_t n_bytes,
                                   struct nd_ort_profile *out, struct nd_error *err)
{
    ND_CLEANUP(nd_ort_profile_deinit) struct nd_ort_profile profile = {0};
    struct reader reader = {.log = name, .at = text, .end = text + n_bytes, .profile = &profile};
    ND_TRY(read_array(&reader, err));
    *out = profile;
    profile = (struct nd_ort_profile){0};
    return ND_OK;
}

void nd_ort_profile_deinit(struct nd_ort_profile *profile)
{
    for (size_t i = 0; i < profile->n_kernels; i++)
        ND_FREE_ALL(profile->kernels[i].key, profile->kernels[i].provider);
    ND_FREE_ALL(profile->kernels, profile->run_us);
    nd_names_deinit(&profile->keys);
    *profile = (struct nd_ort_profile){0};
}
