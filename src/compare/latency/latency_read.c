/* Lists of latencies of other tools: text, CSV, NumPy, JSON. docs/science/latency.md. */
#include <jansson.h>
#include <math.h>

#include "compare/placement/profiles.h"
#include "core/files/file.h"
#include "core/memory.h"
#include "core/text/strbuf.h"
#include "npudiff/compare/latency.h"
#include "npudiff/core/parse.h"
#include "record/probes/npz.h"

/* A list of latencies while it is read. */
struct nd_list {
    const char *path;
    const char *column; /* or NULL */
    double unit_us;
    size_t capacity;
    struct nd_latency_list out;
};

static enum nd_status nd_list_read_json(struct nd_list *list, const char *text, size_t n_bytes,
                                        struct nd_error *err);
static enum nd_status read_profile(struct nd_list *list, const char *text, size_t n_bytes,
                                   struct nd_error *err);

enum { MAX_FILE_BYTES = 512 << 20, MAX_COLUMNS = 1024 };

/* Appends value times the unit. `place` and `number` say where it stood ("line 7"). ND_ERR_FORMAT: not
 * positive, or not finite; more than ND_LATENCY_MAX_RUNS. */
static enum nd_status nd_list_add(struct nd_list *list, double value, const char *place, size_t number,
                                  struct nd_error *err)
{
    double us = value * list->unit_us;
    if (!(us > 0) || isinf(us)) {
        char text[32];
        return nd_fail(err, ND_E_LATENCY_VALUE, list->path, "'%s', %s %zu: %s is not a positive time",
                       list->path, place, number, nd_format_double(value, text));
    }
    if (list->out.n == ND_LATENCY_MAX_RUNS)
        return nd_fail(err, ND_E_SIZE_OVERFLOW, list->path, "'%s' has more than %d latencies", list->path,
                       ND_LATENCY_MAX_RUNS);
    ND_TRY_MEMORY(nd_grow((void **)&list->out.us, &list->capacity, list->out.n + 1, sizeof *list->out.us), err);
    list->out.us[list->out.n++] = us;
    return ND_OK;
}

/* Fails for a column that is not there; names is what there is, "'a', 'b'". */
static enum nd_status nd_list_no_column(const struct nd_list *list, const char *names, struct nd_error *err)
{
    if (*names == '\0')
        return nd_fail(err, ND_E_LATENCY_COLUMN, list->path, "'%s' has no list of numbers", list->path);
    if (list->column == NULL)
        return nd_fail(err, ND_E_LATENCY_COLUMN, list->path, "'%s': name one of its columns: %s", list->path,
                       names);
    return nd_fail(err, ND_E_LATENCY_COLUMN, list->path, "'%s' has no column '%s', but %s", list->path,
                   list->column, names);
}

/* ---- text ---- */

struct lines {
    char *next;
    size_t number; /* of the line that was taken last */
};

/* The next line that says something, without blanks around it, or NULL. The text is cut up. */
static char *take_line(struct lines *lines)
{
    while (*lines->next != '\0') {
        char *line = lines->next, *end = line + strcspn(line, "\r\n");
        lines->number++;
        lines->next = end + (end[0] == '\r' && end[1] == '\n' ? 2 : *end != '\0');
        *end = '\0';
        line[strcspn(line, "#")] = '\0';
        line += strspn(line, " \t");
        for (end = line + strlen(line); end > line && (end[-1] == ' ' || end[-1] == '\t');)
            *--end = '\0';
        if (*line != '\0')
            return line;
    }
    return NULL;
}

static enum nd_status add_text(struct nd_list *list, const char *text, size_t line, struct nd_error *err)
{
    double value;
    if (!nd_parse_double(text, &value))
        return nd_fail(err, ND_E_LATENCY_FORMAT, list->path, "'%s', line %zu: '%.40s' is no number", list->path,
                       line, text);
    return nd_list_add(list, value, "line", line, err);
}

/* Cuts a row into its cells in place; the number of cells, at most MAX_COLUMNS. */
static size_t cut_row(char *row, char separator, char **cells)
{
    size_t n = 0;
    for (bool is_last = false; !is_last && n < MAX_COLUMNS; n++) {
        bool is_quoted = *row == '"';
        char *out = row += is_quoted;
        cells[n] = out;
        while (*row != '\0' && (is_quoted || *row != separator)) {
            if (is_quoted && row[0] == '"' && row[1] != '"') {
                is_quoted = false;
                row++;
                continue;
            }
            row += is_quoted && *row == '"';
            *out++ = *row++;
        }
        is_last = *row == '\0';
        row += !is_last;
        *out = '\0';
        cells[n] += strspn(cells[n], " ");
        while (out > cells[n] && out[-1] == ' ')
            *--out = '\0';
    }
    return n;
}

static enum nd_status choose_column(const struct nd_list *list, char *const *names, size_t n, size_t *column,
                                    struct nd_error *err)
{
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf all = {0};
    double value;
    *column = list->column == NULL && n == 1 ? 0 : SIZE_MAX;
    for (size_t i = 0; i < n; i++) {
        nd_strbuf_printf(&all, "%s'%.60s'", i > 0 ? ", " : "", names[i]);
        if (list->column != NULL && *column == SIZE_MAX && strcmp(names[i], list->column) == 0)
            *column = i;
    }
    if (*column == SIZE_MAX && nd_parse_double(names[0], &value))
        return nd_fail(err, ND_E_LATENCY_FORMAT, list->path,
                       "'%s' has several numbers a line and no header that names its columns", list->path);
    return *column == SIZE_MAX ? nd_list_no_column(list, all.text != NULL ? all.text : "", err) : ND_OK;
}

static enum nd_status read_csv(struct nd_list *list, char *header, struct lines *lines, struct nd_error *err)
{
    char separator = strchr(header, ',') != NULL ? ',' : strchr(header, ';') != NULL ? ';' : '\t';
    ND_FREED char **cells = nd_calloc(MAX_COLUMNS, sizeof *cells);
    ND_TRY_MEMORY(cells != NULL, err);
    size_t column, n = cut_row(header, separator, cells);
    ND_TRY(choose_column(list, cells, n, &column, err));
    list->out.format = "csv";
    for (char *row; (row = take_line(lines)) != NULL;) {
        size_t n_cells = cut_row(row, separator, cells);
        if (n_cells <= column)
            return nd_fail(err, ND_E_LATENCY_FORMAT, list->path,
                           "'%s', line %zu: %zu cells, and column %zu is asked for", list->path, lines->number,
                           n_cells, column + 1);
        ND_TRY(add_text(list, cells[column], lines->number, err));
    }
    return ND_OK;
}

static enum nd_status read_lines(struct nd_list *list, char *text, struct nd_error *err)
{
    struct lines lines = {text, 0};
    char *line = take_line(&lines);
    double value;
    if (line == NULL)
        return ND_OK;
    if (!nd_parse_double(line, &value)) /* no number: the names of columns */
        return read_csv(list, line, &lines, err);
    if (list->column != NULL)
        return nd_fail(err, ND_E_LATENCY_COLUMN, list->path, "'%s' is a plain list: it has no column '%s'",
                       list->path, list->column);
    for (; line != NULL; line = take_line(&lines))
        ND_TRY(add_text(list, line, lines.number, err));
    return ND_OK;
}

/* Whether the bytes are UTF-8 as far as it takes to tell text from other encodings. */
static bool is_text(const unsigned char *bytes, size_t n)
{
    for (size_t i = 0; i < n;) {
        unsigned char c = bytes[i++];
        size_t more = c < 0x80                ? 0
                      : c >= 0xf0 && c < 0xf5 ? 3
                      : c >= 0xe0 && c < 0xf0 ? 2
                      : c >= 0xc2 && c < 0xe0 ? 1
                                              : n;
        if (c == 0 || more > n - i)
            return false;
        for (; more > 0; more--)
            if ((bytes[i++] & 0xc0) != 0x80)
                return false;
    }
    return true;
}

static enum nd_status read_text(struct nd_list *list, struct nd_error *err)
{
    ND_FREED void *data = NULL;
    size_t n = 0;
    ND_TRY(nd_file_read(list->path, MAX_FILE_BYTES, &data, &n, err));
    char *text = data;
    if (!is_text(data, n))
        return nd_fail(err, ND_E_LATENCY_FORMAT, list->path,
                       "'%s' is not UTF-8 text: neither a list of numbers, nor CSV, nor JSON", list->path);
    size_t mark = strncmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    size_t blank = mark + strspn(text + mark, " \t\r\n");
    size_t second = blank + (text[blank] == '[') + strspn(text + blank + (text[blank] == '['), " \t\r\n");
    if (text[blank] == '[' && text[second] == '{' && list->column == NULL)
        return read_profile(list, text + mark, n - mark, err);
    if (text[blank] == '[' || text[blank] == '{')
        return nd_list_read_json(list, text + mark, n - mark, err);
    return read_lines(list, text + mark, err);
}

/* ---- NumPy ---- */

static double element(const void *data, enum nd_dtype dtype, size_t i)
{
    switch (dtype) {
    case ND_DTYPE_F32:
        return (double)((const float *)data)[i];
    case ND_DTYPE_F64:
        return ((const double *)data)[i];
    case ND_DTYPE_I32:
        return ((const int32_t *)data)[i];
    case ND_DTYPE_U32:
        return ((const uint32_t *)data)[i];
    case ND_DTYPE_I64:
        return (double)((const int64_t *)data)[i];
    case ND_DTYPE_U64:
        return (double)((const uint64_t *)data)[i];
    default:
        return NAN;
    }
}

static bool is_numeric(enum nd_dtype dtype)
{
    return dtype == ND_DTYPE_F32 || dtype == ND_DTYPE_F64 || dtype == ND_DTYPE_I32 || dtype == ND_DTYPE_U32 ||
           dtype == ND_DTYPE_I64 || dtype == ND_DTYPE_U64;
}

static enum nd_status read_array(struct nd_list *list, struct nd_source *source, struct nd_error *err)
{
    struct nd_npy npy;
    char type[64];
    ND_TRY(nd_npy_open(source, &npy, err));
    if (!is_numeric(npy.dtype))
        return nd_fail(err, ND_E_LATENCY_FORMAT, list->path,
                       "%s: %s is none of float32, float64, (u)int32, (u)int64", source->what,
                       nd_npy_format_dtype(&npy, type, sizeof type));
    if (npy.n_elems > ND_LATENCY_MAX_RUNS)
        return nd_fail(err, ND_E_SIZE_OVERFLOW, list->path, "%s has more than %d latencies", source->what,
                       ND_LATENCY_MAX_RUNS);
    ND_FREED void *data = nd_tensor_alloc(npy.size_bytes);
    ND_TRY_MEMORY(data != NULL, err);
    ND_TRY(nd_npy_read(source, &npy, data, err));
    for (size_t i = 0; i < npy.n_elems; i++)
        ND_TRY(nd_list_add(list, element(data, npy.dtype, i), "element", i, err));
    return ND_OK;
}

static enum nd_status read_npy(struct nd_list *list, struct nd_error *err)
{
    ND_CLEANUP(nd_source_close) struct nd_source source = {0};
    list->out.format = "npy";
    if (list->column != NULL)
        return nd_fail(err, ND_E_LATENCY_COLUMN, list->path, "'%s' is a plain array: it has no '%s'",
                       list->path, list->column);
    ND_TRY(nd_source_open(&source, list->path, err));
    return read_array(list, &source, err);
}

static enum nd_status read_npz(struct nd_list *list, struct nd_error *err)
{
    ND_CLEANUP(nd_npz_close) struct nd_npz *npz = NULL;
    ND_CLEANUP(nd_source_close) struct nd_source source = {0};
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf names = {0};
    list->out.format = "npz";
    ND_TRY(nd_npz_open(list->path, &npz, err));
    size_t n = nd_npz_n_arrays(npz), chosen = list->column == NULL && n == 1 ? 0 : SIZE_MAX;
    for (size_t i = 0; i < n; i++) {
        nd_strbuf_printf(&names, "%s'%s'", i > 0 ? ", " : "", nd_npz_name(npz, i));
        if (list->column != NULL && strcmp(nd_npz_name(npz, i), list->column) == 0)
            chosen = i;
    }
    if (chosen == SIZE_MAX)
        return nd_list_no_column(list, names.text != NULL ? names.text : "", err);
    ND_TRY(nd_npz_source(npz, chosen, &source, err));
    return read_array(list, &source, err);
}

/* ---- all of them ---- */

static bool has_extension(const char *path, const char *extension)
{
    size_t n = strlen(path), k = strlen(extension);
    return n > k && strcmp(path + n - k, extension) == 0;
}

static enum nd_status set_unit(struct nd_list *list, const char *unit, struct nd_error *err)
{
    static const struct {
        const char *name;
        double us;
    } units[] = {{"ns", 1e-3}, {"us", 1}, {"ms", 1e3}, {"s", 1e6}};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strcmp(unit != NULL ? unit : "us", units[i].name) == 0) {
            list->unit_us = units[i].us;
            return ND_OK;
        }
    return nd_fail(err, ND_E_OPTION_VALUE, NULL, "unit '%s' is none of ns, us, ms, s", unit);
}

enum nd_status nd_latency_read(const char *path, const char *column, const char *unit,
                               struct nd_latency_list *out, struct nd_error *err)
{
    struct nd_list list = {.path = path, .column = column, .out.format = "text"};
    ND_TRY(set_unit(&list, unit, err));
    enum nd_status status = has_extension(path, ".npy")   ? read_npy(&list, err)
                            : has_extension(path, ".npz") ? read_npz(&list, err)
                                                          : read_text(&list, err);
    if (status == ND_OK && list.out.n == 0)
        status = nd_fail(err, ND_E_LATENCY_FORMAT, path, "'%s' has no latencies", path);
    if (status == ND_OK)
        *out = list.out;
    else
        nd_latency_list_deinit(&list.out);
    return status;
}

void nd_latency_list_deinit(struct nd_latency_list *list)
{
    ND_FREE_ALL(list->us, list->where);
    *list = (struct nd_latency_list){0};
}

/* ---- ONNX Runtime's profile ---- */

/* "fallback of kernels but quantisers: 2 of 40 ran on CPUExecutionProvider, beside QNNExecutionProvider: 'erf',
 * 'norm'". Quantisers on the CPU are no fallback where a different provider ran kernels. */
static char *where_text(const struct nd_ort_profile *profile)
{
    enum { MOST = 3 };
    struct nd_strbuf text = {0}, names = {0};
    const char *other = NULL, *cpu = "CPUExecutionProvider";
    size_t n_on_cpu = 0, n = 0;
    for (size_t i = 0; i < profile->n_kernels && other == NULL; i++)
        if (strcmp(profile->kernels[i].provider, cpu) != 0)
            other = profile->kernels[i].provider;
    for (size_t i = 0; i < profile->n_kernels; i++) {
        const struct nd_kernel *kernel = &profile->kernels[i];
        bool is_counted = other == NULL || !kernel->is_quantiser;
        n += is_counted;
        if (is_counted && strcmp(kernel->provider, cpu) == 0 && n_on_cpu++ < MOST)
            nd_strbuf_printf(&names, "%s '%s'", names.len > 0 ? "," : ":", kernel->name);
    }
    nd_strbuf_printf(&text, "%skernels%s: %zu of %zu ran on %s",
                     n_on_cpu > 0 && other != NULL ? "fallback of " : "",
                     other != NULL ? " but quantisers" : "", n_on_cpu, n, cpu);
    if (other != NULL)
        nd_strbuf_printf(&text, ", beside %s%s%s", other, names.len > 0 ? names.text : "",
                         n_on_cpu > MOST ? ", ..." : "");
    text.failed = text.failed || names.failed;
    nd_strbuf_deinit(&names);
    return nd_strbuf_take(&text);
}

static enum nd_status read_profile(struct nd_list *list, const char *text, size_t n_bytes, struct nd_error *err)
{
    ND_CLEANUP(nd_ort_profile_deinit) struct nd_ort_profile profile = {0};
    ND_TRY(nd_ort_profile_read(list->path, text, n_bytes, &profile, err));
    list->out.format = "ort-profile";
    list->unit_us = 1;
    for (size_t i = 0; i < profile.n_runs; i++)
        ND_TRY(nd_list_add(list, profile.run_us[i], "run", i, err));
    if (profile.n_kernels > 0)
        ND_TRY_MEMORY((list->out.where = where_text(&profile)) != NULL, err);
    return ND_OK;
}

/* ---- JSON ---- */

static const char ai_hub_path[] = "execution_summary.all_inference_times";

/* The member at a dotted path; a key with dots of its own is found first. NULL: there is none. */
static const json_t *find(const json_t *value, const char *path)
{
    const json_t *whole = json_object_get(value, path);
    const char *dot = strchr(path, '.');
    if (whole != NULL || dot == NULL)
        return whole;
    char key[256];
    size_t n = (size_t)(dot - path);
    if (n >= sizeof key)
        return NULL;
    memcpy(key, path, n);
    key[n] = '\0';
    return find(json_object_get(value, key), dot + 1);
}

static void name_arrays(const json_t *object, const char *prefix, struct nd_strbuf *out, int depth)
{
    const char *key;
    const json_t *value;
    json_object_foreach((json_t *)object, key, value) {
        char path[256];
        snprintf(path, sizeof path, "%s%s%s", prefix, *prefix != '\0' ? "." : "", key);
        if (json_is_array(value) && json_is_number(json_array_get(value, 0)))
            nd_strbuf_printf(out, "%s'%s'", out->len > 0 ? ", " : "", path);
        else if (json_is_object(value) && depth > 0)
            name_arrays(value, path, out, depth - 1);
    }
}

static enum nd_status no_array(const struct nd_list *list, const json_t *root, struct nd_error *err)
{
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf names = {0};
    name_arrays(root, "", &names, 3);
    return nd_list_no_column(list, names.text != NULL ? names.text : "", err);
}

static enum nd_status read_array_of_latency_json(struct nd_list *list, const json_t *array,
                                                 struct nd_error *err)
{
    for (size_t i = 0; i < json_array_size(array); i++) {
        const json_t *value = json_array_get(array, i);
        if (!json_is_number(value))
            return nd_fail(err, ND_E_LATENCY_FORMAT, list->path, "'%s': element %zu is no number", list->path,
                           i);
        ND_TRY(nd_list_add(list, json_number_value(value), "element", i, err));
    }
    return ND_OK;
}

/* Reads JSON text. */
static enum nd_status nd_list_read_json(struct nd_list *list, const char *text, size_t n_bytes,
                                        struct nd_error *err)
{
    json_error_t problem;
    json_auto_t *root = json_loadb(text, n_bytes, 0, &problem);
    if (root == NULL)
        return nd_fail(err, ND_E_LATENCY_FORMAT, list->path, "'%s' is no whole JSON: line %d: %s", list->path,
                       problem.line, problem.text);
    list->out.format = "json";
    if (json_is_array(root) && list->column == NULL)
        return read_array_of_latency_json(list, root, err);
    if (json_is_array(root))
        return nd_fail(err, ND_E_LATENCY_COLUMN, list->path, "'%s' is a plain array: it has no '%s'",
                       list->path, list->column);
    const json_t *array = find(root, list->column != NULL ? list->column : ai_hub_path);
    if (!json_is_array(array))
        return no_array(list, root, err);
    if (find(root, ai_hub_path) == array)
        list->out.format = "ai-hub";
    return read_array_of_latency_json(list, array, err);
}
