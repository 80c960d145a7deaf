/* Reads profiles; their formats are described in profiles.h. */
#include "compare/placement/profiles.h"

#include <jansson.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>

#include "core/memory.h"
#include "npudiff/core/parse.h"

/* ---- the CSV that Qualcomm's provider writes ---- */

enum { N_COLUMNS = 7, MAX_EVENTS = 100000, MAX_FIELD_BYTES = 4096, MAX_UNKNOWN_BYTES = 400 };

static const char header[] =
    "Msg Timestamp,Message,Time,Unit of Measurement,Timing Source,Event Level,Event Identifier";

static const char *const messages[] = {"INIT",
                                       "FINALIZE",
                                       "EXECUTE",
                                       "NODE",
                                       "EXECUTE QUEUE WAIT",
                                       "EXECUTE PREPROCESS",
                                       "EXECUTE DEVICE",
                                       "EXECUTE POSTPROCESS",
                                       "DE-INIT",
                                       "BACKEND",
                                       "UNKNOWN",
                                       NULL};
static const char *const units[] = {"US", "BYTES", "CYCLES", "COUNT", "OBJECT", "BACKEND", "UNKNOWN", NULL};

struct view {
    const char *at;
    size_t n;
};

struct csv {
    struct nd_qnn_csv *csv;
    struct nd_strbuf unknown;
    size_t line;
};

static bool is_in(const char *const *list, struct view word)
{
    for (; *list != NULL; list++)
        if (strlen(*list) == word.n && memcmp(*list, word.at, word.n) == 0)
            return true;
    return false;
}

/* Notes a word once; what no known version has is said, not guessed. */
static void note_unknown(struct csv *csv, const char *what, struct view word)
{
    char text[96];
    snprintf(text, sizeof text, "%s '%.*s'", what, (int)(word.n < 48 ? word.n : 48), word.at);
    bool is_known = csv->unknown.text != NULL && strstr(csv->unknown.text, text) != NULL;
    if (!is_known && csv->unknown.len < MAX_UNKNOWN_BYTES)
        nd_strbuf_printf(&csv->unknown, "%s%s", csv->unknown.len > 0 ? ", " : "", text);
}

static bool split(struct view line, struct view fields[N_COLUMNS])
{
    for (size_t i = 0; i + 1 < N_COLUMNS; i++) {
        const char *comma = memchr(line.at, ',', line.n);
        if (comma == NULL)
            return false;
        fields[i] = (struct view){line.at, (size_t)(comma - line.at)};
        line.n -= fields[i].n + 1;
        line.at = comma + 1;
    }
    fields[N_COLUMNS - 1] = line;
    return true;
}

static bool parse_number(struct view word, double *out)
{
    char text[64];
    if (word.n == 0 || word.n >= sizeof text)
        return false;
    memcpy(text, word.at, word.n);
    text[word.n] = '\0';
    return nd_parse_double(text, out) && isfinite(*out);
}

static char *copy(struct view word)
{
    return strndup(word.at, word.n < MAX_FIELD_BYTES ? word.n : MAX_FIELD_BYTES);
}

static bool add_event(struct nd_qnn_csv *csv, char *key, struct view message, struct view unit,
                      struct view name)
{
    if (!nd_grow((void **)&csv->events, &csv->capacity, csv->n_events + 1, sizeof *csv->events))
        return false;
    struct nd_qnn_event *event = &csv->events[csv->n_events];
    *event = (struct nd_qnn_event){
        .key = key, .message = copy(message), .unit = copy(unit), .identifier = copy(name)};
    if (event->message != NULL && event->unit != NULL && event->identifier != NULL &&
        nd_names_add(&csv->keys, key, csv->n_events)) {
        csv->n_events++;
        return true;
    }
    ND_FREE_ALL(event->message, event->unit, event->identifier);
    return false;
}

/* False: out of memory. */
static bool count_row(struct nd_qnn_csv *csv, const struct view fields[N_COLUMNS], double time)
{
    struct view message = fields[1], unit = fields[3], name = fields[6];
    if (name.n == 4 && memcmp(name.at, "NULL", 4) == 0)
        name.n = 0;
    struct nd_strbuf text = {0};
    const struct view parts[] = {message, unit, name};
    for (size_t i = 0; i < 3; i++) {
        nd_strbuf_append(&text, parts[i].at, parts[i].n < MAX_FIELD_BYTES ? parts[i].n : MAX_FIELD_BYTES);
        nd_strbuf_append(&text, "\x1f", 1);
    }
    char *key = nd_strbuf_take(&text);
    if (key == NULL)
        return false;
    size_t found = nd_names_find(&csv->keys, key);
    bool is_full = found == SIZE_MAX && csv->n_events == MAX_EVENTS;
    bool is_new = found == SIZE_MAX && !is_full && add_event(csv, key, message, unit, name);
    if (!is_new)
        free(key);
    if (found == SIZE_MAX && !is_full && !is_new)
        return false;
    csv->n_dropped += is_full;
    if (is_full)
        return true;
    struct nd_qnn_event *event = &csv->events[is_new ? csv->n_events - 1 : found];
    event->n++;
    event->total += time;
    return true;
}

static bool take_line(struct csv *csv, struct view line)
{
    struct view fields[N_COLUMNS];
    double timestamp, time;
    if (line.n == 0 || (line.n >= sizeof header - 1 && memcmp(line.at, header, sizeof header - 1) == 0))
        return true; /* a second header: files are appended to */
    bool is_row = memchr(line.at, '\0', line.n) == NULL && split(line, fields);
    bool is_untimed = is_row && fields[0].n == 7 && memcmp(fields[0].at, "UNKNOWN", 7) == 0;
    is_row = is_row && (is_untimed || parse_number(fields[0], &timestamp)) && parse_number(fields[2], &time);
    if (!is_row) {
        if (csv->csv->n_malformed++ == 0)
            csv->csv->first_malformed = csv->line;
        return true;
    }
    if (!is_in(messages, fields[1]))
        note_unknown(csv, "message", fields[1]);
    if (!is_in(units, fields[3]))
        note_unknown(csv, "unit", fields[3]);
    csv->csv->n_untimed += is_untimed;
    csv->csv->n_rows++;
    return count_row(csv->csv, fields, time);
}

static bool next_line(const char **at, const char *end, struct view *line, bool *is_whole)
{
    if (*at == end)
        return false;
    const char *newline = memchr(*at, '\n', (size_t)(end - *at));
    *is_whole = newline != NULL;
    *line = (struct view){*at, (size_t)((newline != NULL ? newline : end) - *at)};
    *at = newline != NULL ? newline + 1 : end;
    if (line->n > 0 && line->at[line->n - 1] == '\r')
        line->n--;
    return true;
}

/* The first line: seven columns that are known; what follows them belongs to a newer version. */
static enum nd_status take_header(struct csv *csv, const char *name, struct view line, struct nd_error *err)
{
    size_t n = sizeof header - 1;
    if (line.n < n || memcmp(line.at, header, n) != 0 || (line.n > n && line.at[n] != ','))
        return nd_fail(err, ND_E_PROFILE_FORMAT, name,
                       "profile '%s' has the header '%.*s', which no known version of the provider's CSV has "
                       "(expected '%s')",
                       name, (int)(line.n < 160 ? line.n : 160), line.at, header);
    struct view more = {line.at + n + 1, line.n > n ? line.n - n - 1 : 0};
    if (more.n > 0 && !(more.n == 15 && memcmp(more.at, "ONNX Source Ops", 15) == 0))
        note_unknown(csv, "column", more);
    return ND_OK;
}

enum nd_status nd_qnn_csv_read(const char *name, const char *text, size_t n_bytes, struct nd_qnn_csv *out,
                               struct nd_error *err)
{
    ND_CLEANUP(nd_qnn_csv_deinit) struct nd_qnn_csv made = {0};
    struct csv csv = {.csv = &made, .line = 1};
    struct view line = {text, 0};
    bool is_whole = false;
    const char *at = text, *end = text + n_bytes;
    next_line(&at, end, &line, &is_whole);
    enum nd_status status = take_header(&csv, name, line, err);
    while (status == ND_OK && next_line(&at, end, &line, &is_whole)) {
        csv.line++;
        if (!is_whole)
            made.is_truncated = true;
        else if (!take_line(&csv, line))
            status = nd_fail_memory(err);
    }
    made.unknown = nd_strbuf_take(&csv.unknown);
    ND_TRY(status);
    ND_TRY_MEMORY(made.unknown != NULL, err);
    return ND_GIVE(out, made);
}

void nd_qnn_csv_deinit(struct nd_qnn_csv *csv)
{
    for (size_t i = 0; i < csv->n_events; i++)
        ND_FREE_ALL(csv->events[i].key, csv->events[i].message, csv->events[i].unit, csv->events[i].identifier);
    ND_FREE_ALL(csv->events, csv->unknown);
    nd_names_deinit(&csv->keys);
    *csv = (struct nd_qnn_csv){0};
}

size_t nd_qnn_node_name(const char *identifier)
{
    const char *last = NULL;
    for (const char *at = strstr(identifier, ":OpId_"); at != NULL; at = strstr(at + 1, ":OpId_"))
        last = at;
    return last != NULL ? (size_t)(last - identifier) : 0;
}

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
    return ND_GIVE(out, profile);
}

void nd_ort_profile_deinit(struct nd_ort_profile *profile)
{
    for (size_t i = 0; i < profile->n_kernels; i++)
        ND_FREE_ALL(profile->kernels[i].key, profile->kernels[i].provider);
    ND_FREE_ALL(profile->kernels, profile->run_us);
    nd_names_deinit(&profile->keys);
    *profile = (struct nd_ort_profile){0};
}
