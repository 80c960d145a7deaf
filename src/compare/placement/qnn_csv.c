/* Reads the CSV that Qualcomm's provider writes of a profile. The format is described in qnn_csv.h. */
#include "compare/placement/qnn_csv.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "npudiff/core/parse.h"

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

struct reader {
    struct nd_qnn_csv csv;
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
static void note_unknown(struct reader *reader, const char *what, struct view word)
{
    char text[96];
    snprintf(text, sizeof text, "%s '%.*s'", what, (int)(word.n < 48 ? word.n : 48), word.at);
    bool is_known = reader->unknown.text != NULL && strstr(reader->unknown.text, text) != NULL;
    if (!is_known && reader->unknown.len < MAX_UNKNOWN_BYTES)
        nd_strbuf_printf(&reader->unknown, "%s%s", reader->unknown.len > 0 ? ", " : "", text);
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

static bool take_line(struct reader *reader, struct view line)
{
    struct view fields[N_COLUMNS];
    double timestamp, time;
    if (line.n == 0 || (line.n >= sizeof header - 1 && memcmp(line.at, header, sizeof header - 1) == 0))
        return true; /* a second header: files are appended to */
    bool is_row = memchr(line.at, '\0', line.n) == NULL && split(line, fields);
    bool is_untimed = is_row && fields[0].n == 7 && memcmp(fields[0].at, "UNKNOWN", 7) == 0;
    is_row = is_row && (is_untimed || parse_number(fields[0], &timestamp)) && parse_number(fields[2], &time);
    if (!is_row) {
        if (reader->csv.n_malformed++ == 0)
            reader->csv.first_malformed = reader->line;
        return true;
    }
    if (!is_in(messages, fields[1]))
        note_unknown(reader, "message", fields[1]);
    if (!is_in(units, fields[3]))
        note_unknown(reader, "unit", fields[3]);
    reader->csv.n_untimed += is_untimed;
    reader->csv.n_rows++;
    return count_row(&reader->csv, fields, time);
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
static enum nd_status take_header(struct reader *reader, const char *name, struct view line,
                                  struct nd_error *err)
{
    size_t n = sizeof header - 1;
    if (line.n < n || memcmp(line.at, header, n) != 0 || (line.n > n && line.at[n] != ','))
        return nd_fail(err, ND_E_PROFILE_FORMAT, name,
                       "profile '%s' has the header '%.*s', which no known version of the provider's CSV has "
                       "(expected '%s')",
                       name, (int)(line.n < 160 ? line.n : 160), line.at, header);
    struct view more = {line.at + n + 1, line.n > n ? line.n - n - 1 : 0};
    if (more.n > 0 && !(more.n == 15 && memcmp(more.at, "ONNX Source Ops", 15) == 0))
        note_unknown(reader, "column", more);
    return ND_OK;
}

enum nd_status nd_qnn_csv_read(const char *name, const char *text, size_t n_bytes, struct nd_qnn_csv *out,
                               struct nd_error *err)
{
    struct reader reader = {.line = 1};
    struct view line = {text, 0};
    bool is_whole = false;
    const char *at = text, *end = text + n_bytes;
    next_line(&at, end, &line, &is_whole);
    enum nd_status status = take_header(&reader, name, line, err);
    while (status == ND_OK && next_line(&at, end, &line, &is_whole)) {
        reader.line++;
        if (!is_whole)
            reader.csv.is_truncated = true;
        else if (!take_line(&reader, line))
            status = nd_fail_memory(err);
    }
    reader.csv.unknown = nd_strbuf_take(&reader.unknown);
    if (status == ND_OK && reader.csv.unknown == NULL)
        status = nd_fail_memory(err);
    if (status != ND_OK) {
        nd_qnn_csv_deinit(&reader.csv);
        return status;
    }
    *out = reader.csv;
    return ND_OK;
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
