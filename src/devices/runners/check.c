/* Checks that a program speaks the protocol of runners (docs/reference/runner.md): small models, and answers
 * that must be right. */
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/documents/json_out.h"
#include "core/files/file.h"
#include "core/items.h"
#include "core/text/strbuf.h"
#include "devices/agent/runner/asked.h"
#include "devices/agent/runner/connection.h"
#include "devices/runners/find_runner.h"
#include "model/rewrite/compose.h"
#include "npudiff/devices/device.h"

/* Models of the trials: every input x<i> is a float, which is quantised to q<i> and back to y<i>. Scales are
 * powers of two and inputs lie on the steps, so that every device has to give the same values. */
enum { MAX_TENSORS = 3 };
static const float scale = 0.0625f;

struct trial {
    const char *name;
    bool may_refuse; /* a model that not every device can run: an error that says so is an answer */
    size_t n_tensors, n_samples;
    enum nd_dtype dtypes[MAX_TENSORS];
    struct nd_shape shape;
    enum { ALL_RIGHT, WRONG_NAME, DAMAGED, NOT_A_NUMBER, TWO_JOBS, END } kind;
};

#define SHAPE(n, c, h, w)                                                                                      \
    {                                                                                                          \
        4,                                                                                                     \
        {                                                                                                      \
            (n), (c), (h), (w)                                                                                 \
        }                                                                                                      \
    }
#define BYTES                                                                                                  \
    {                                                                                                          \
        ND_DTYPE_U8, ND_DTYPE_U8, ND_DTYPE_U8                                                                  \
    }
static const struct trial trials[] = {
    {"order of tensors and samples", false, 3, 4, BYTES, SHAPE(1, 4, 8, 8), ALL_RIGHT},
    {"signed values of 8 bits", true, 1, 2, {ND_DTYPE_I8}, SHAPE(1, 4, 8, 8), ALL_RIGHT},
    {"values of 16 bits", true, 2, 2, {ND_DTYPE_U16, ND_DTYPE_I16}, SHAPE(1, 4, 8, 8), ALL_RIGHT},
    {"batches of 4", false, 1, 2, BYTES, SHAPE(4, 3, 8, 8), ALL_RIGHT},
    {"tensors of 4 MiB", false, 1, 2, BYTES, SHAPE(1, 16, 512, 512), ALL_RIGHT},
    {"a second job", false, 2, 2, BYTES, SHAPE(1, 4, 8, 8), TWO_JOBS},
    {"NaN as input", false, 1, 2, BYTES, SHAPE(1, 4, 8, 8), NOT_A_NUMBER},
    {"a tensor that the model lacks", false, 1, 0, BYTES, SHAPE(1, 4, 8, 8), WRONG_NAME},
    {"a damaged model", false, 1, 0, BYTES, SHAPE(1, 4, 8, 8), DAMAGED},
    {"its end", false, 1, 1, BYTES, SHAPE(1, 4, 8, 8), END},
};
enum { N_TRIALS = sizeof trials / sizeof trials[0] };
_Static_assert((int)N_TRIALS <= (int)ND_RUNNER_MAX_TRIALS, "the report has room for all trials");

/* For one answer. Chosen: the largest takes the slowest known runner 6 s. */
static const int answer_limit_ms = 60 * 1000;

/* A runner under test. */
struct test {
    const struct trial *of;
    const char *program;
    const char *folder;
    const struct nd_device *device;
    struct nd_runner_connection connection;
    struct nd_asked asked[MAX_TENSORS];
    float *inputs[MAX_TENSORS];
    size_t n_elems;
};

/* ---- the model and its values ---- */

static int zero_point_of(enum nd_dtype dtype)
{
    return dtype == ND_DTYPE_U8 ? 128 : dtype == ND_DTYPE_U16 ? 32768 : 0;
}

/* Distance from the zero point, in steps: within -120 .. 120, and another one for each tensor and sample. */
static int steps_of(size_t tensor, size_t sample, size_t i)
{
    return (int)((i * 7 + tensor * 31 + sample * 13 + i / 64) % 241) - 120;
}

static enum nd_status write_model(const struct test *test, const char *path, struct nd_error *err)
{
    ND_CLEANUP(nd_compose_destroy) struct nd_compose *model = NULL;
    ND_TRY(nd_compose_create(nd_dtype_size_bytes(test->of->dtypes[0]) > 1 ? 21 : 19, &model, err));
    for (size_t t = 0; t < test->of->n_tensors; t++) {
        char x[8], q[8], y[8];
        float step = scale;
        int64_t zero_point = zero_point_of(test->of->dtypes[t]);
        const struct nd_quant quant = {.n = 1, .axis = -1, .scale = &step, .zero_point = &zero_point};
        snprintf(x, sizeof x, "x%zu", t);
        snprintf(q, sizeof q, "q%zu", t);
        snprintf(y, sizeof y, "y%zu", t);
        nd_compose_input(model, x, ND_DTYPE_F32, &test->of->shape);
        nd_compose_quantize(model, x, q, &quant, test->of->dtypes[t]);
        nd_compose_dequantize(model, q, y, &quant, test->of->dtypes[t]);
        nd_compose_output(model, y, ND_DTYPE_F32, &test->of->shape);
        nd_compose_output(model, q, test->of->dtypes[t], &test->of->shape);
    }
    return nd_compose_write(model, path, err);
}

static json_t *describe(const char *name, const char *type, const struct nd_shape *shape)
{
    return json_pack("{s:s, s:s, s:[I,I,I,I]}", "name", name, "type", type, "shape", (json_int_t)shape->dims[0],
                     (json_int_t)shape->dims[1], (json_int_t)shape->dims[2], (json_int_t)shape->dims[3]);
}

/* The job, whose tensors are asked for from the last to the first. Owned by the caller. */
static json_t *make_job(const struct test *test, const char *model)
{
    json_t *inputs = json_array(), *outputs = json_array(), *options = json_object();
    for (size_t t = 0; t < test->of->n_tensors; t++) {
        char x[8], q[8];
        enum nd_dtype dtype = test->of->dtypes[t];
        snprintf(x, sizeof x, "x%zu", t);
        snprintf(q, sizeof q, test->of->kind == WRONG_NAME ? "none%zu" : "q%zu", t);
        json_t *tensor = describe(q, nd_dtype_name(dtype), &test->of->shape);
        nd_tree_set(tensor, "scale", json_pack("[f]", (double)scale));
        nd_tree_set(tensor, "zero_point", json_pack("[i]", zero_point_of(dtype)));
        json_array_insert_new(outputs, 0, tensor);
        nd_tree_append(inputs, describe(x, "float32", &test->of->shape));
    }
    for (size_t i = 0; i < test->device->n_options; i++)
        nd_tree_set(options, test->device->option_keys[i], json_string(test->device->option_values[i]));
    return json_pack("{s:s, s:i, s:s, s:o, s:o, s:[{s:s, s:i}], s:i, s:i, s:o}", "message", "job", "protocol",
                     ND_RUNNER_PROTOCOL, "model", model, "inputs", inputs, "outputs", outputs, "probes", "name",
                     "check", "samples", (int)test->of->n_samples, "repeats", 1, "threads",
                     test->device->n_threads, "options", options);
}

/* ---- what is said ---- */

static enum nd_status send_job(struct test *test, const char *model, struct nd_error *err)
{
    json_auto_t *job = make_job(test, model);
    const struct nd_runner_question question = {
        .message = job, .answer = "ready", .timeout_ms = answer_limit_ms, .doing = "load the model"};
    enum nd_status status =
        job != NULL ? nd_runner_ask(&test->connection, &question, err) : nd_fail_memory(err);
    json_t *outputs = json_object_get(job, "outputs"), *output;
    size_t i;
    json_array_foreach(outputs, i, output) {
        nd_asked_deinit(&test->asked[i]);
        if (status == ND_OK)
            status = nd_asked_read(output, &test->asked[i], err);
    }
    return status;
}

static enum nd_status run_sample(struct test *test, size_t sample, bool with_nan, struct nd_output_view *views,
                                 struct nd_error *err)
{
    struct nd_frame_part parts[MAX_TENSORS];
    json_t *inputs = json_array();
    for (size_t t = 0; t < test->of->n_tensors; t++) {
        char x[8];
        snprintf(x, sizeof x, "x%zu", t);
        nd_tree_append(inputs, describe(x, "float32", &test->of->shape));
        for (size_t i = 0; i < test->n_elems; i++)
            test->inputs[t][i] = with_nan ? NAN : (float)steps_of(t, sample, i) * scale;
        parts[t] = (struct nd_frame_part){test->inputs[t], test->n_elems * sizeof(float)};
    }
    json_auto_t *message = json_pack("{s:s, s:i, s:i, s:o}", "message", "run", "sample", (int)sample, "repeat",
                                     0, "inputs", inputs);
    const struct nd_runner_question question = {
        .message = message,
        .parts = parts,
        .n_parts = test->of->n_tensors,
        .answer = "result",
        .max_data_bytes = nd_asked_max_bytes(test->asked, test->of->n_tensors),
        .timeout_ms = answer_limit_ms,
        .doing = "run a sample",
    };
    const struct nd_answer_rules rules = {.runner = test->connection.name, .rounds_off_grid = with_nan};
    ND_TRY(message != NULL ? nd_runner_ask(&test->connection, &question, err) : nd_fail_memory(err));
    return nd_answer_take(&test->connection.frame, &rules, test->asked, test->of->n_tensors, views, err);
}

static int64_t element(const struct nd_output_view *view, size_t i)
{
    return view->dtype == ND_DTYPE_U8    ? ((const uint8_t *)view->data)[i]
           : view->dtype == ND_DTYPE_I8  ? ((const int8_t *)view->data)[i]
           : view->dtype == ND_DTYPE_U16 ? ((const uint16_t *)view->data)[i]
                                         : ((const int16_t *)view->data)[i];
}

/* Views stand in the order of the question, the last tensor first. */
static enum nd_status check_values(const struct test *test, size_t sample, const struct nd_output_view *views,
                                   struct nd_error *err)
{
    for (size_t k = 0; k < test->of->n_tensors; k++) {
        size_t t = test->of->n_tensors - 1 - k;
        int zero_point = zero_point_of(test->of->dtypes[t]);
        for (size_t i = 0; views[k].data != NULL && i < test->n_elems; i++) {
            int64_t want = steps_of(t, sample, i) + zero_point, have = element(&views[k], i);
            if (want != have)
                return nd_fail(err, ND_E_RUNNER_PROTOCOL, test->asked[k].name,
                               "sample %zu: element %zu of '%s' is %lld and should be %lld", sample, i,
                               test->asked[k].name, (long long)have, (long long)want);
        }
    }
    return ND_OK;
}

static enum nd_status run_samples(struct test *test, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    if (test->of->kind == NOT_A_NUMBER) {
        struct nd_output_view views[MAX_TENSORS] = {0};
        status = run_sample(test, 0, true, views, err);
        if (status == ND_ERR_DEVICE && err->id == ND_E_RUNNER_REPORT)
            status = ND_OK; /* it may refuse the sample, but must go on */
    }
    for (size_t s = 0; status == ND_OK && s < test->of->n_samples; s++) {
        struct nd_output_view views[MAX_TENSORS] = {0};
        status = run_sample(test, s, false, views, err);
        if (status == ND_OK)
            status = check_values(test, s, views, err);
    }
    return status;
}

/* ---- trials ---- */

/* Whether it said itself that it cannot: by an error, or by naming the tensor as missing. */
static bool has_refused(const struct test *test, enum nd_status status, const struct nd_error *err)
{
    if (status == ND_ERR_DEVICE && err->id == ND_E_RUNNER_REPORT)
        return true;
    return status == ND_OK && json_array_size(json_object_get(test->connection.frame.message, "missing")) > 0;
}

static enum nd_status try_job(struct test *test, const char *model, struct nd_runner_trial *out,
                              struct nd_error *err)
{
    enum nd_status status = send_job(test, model, err);
    bool is_refused = has_refused(test, status, err);
    if (test->of->kind == WRONG_NAME || test->of->kind == DAMAGED) {
        if (is_refused)
            return ND_OK;
        return status != ND_OK
                   ? status
                   : nd_fail(err, ND_E_RUNNER_PROTOCOL, NULL, "it says 'ready' for what it cannot give");
    }
    if (is_refused && test->of->may_refuse) {
        out->state = ND_TRIAL_REFUSED;
        snprintf(out->said, sizeof out->said, "%s",
                 status != ND_OK ? err->message : "it cannot give the tensors");
        return ND_OK;
    }
    if (is_refused && status == ND_OK)
        return nd_fail(err, ND_E_RUNNER_TENSORS, NULL, "it cannot give the tensors of a plain model");
    if (status == ND_OK)
        status = run_samples(test, err);
    if (status == ND_OK && test->of->kind == TWO_JOBS && (status = send_job(test, model, err)) == ND_OK)
        status = run_samples(test, err);
    return status;
}

static enum nd_status make_files(struct test *test, const char *model, struct nd_error *err)
{
    enum nd_status status = nd_shape_n_elems(&test->of->shape, &test->n_elems, err);
    for (size_t t = 0; status == ND_OK && t < test->of->n_tensors; t++)
        if ((test->inputs[t] = nd_calloc(test->n_elems, sizeof(float))) == NULL)
            status = nd_fail_memory(err);
    if (status == ND_OK)
        status = write_model(test, model, err);
    FILE *file = status == ND_OK && test->of->kind == DAMAGED ? fopen(model, "we") : NULL;
    if (file != NULL) {
        fputs("this is no model", file);
        fclose(file);
    }
    return status;
}

static enum nd_status try_once(struct test *test, struct nd_runner_trial *out, struct nd_error *err)
{
    ND_FREED char *model = nd_path_join(test->folder, "check.onnx");
    enum nd_status status = model != NULL ? make_files(test, model, err) : nd_fail_memory(err);
    test->connection.is_quiet = true;
    test->connection.folder = test->folder;
    if (status == ND_OK)
        status = nd_runner_start(&test->connection, test->program, err);
    if (status == ND_OK)
        status = try_job(test, model, out, err);
    if (status == ND_OK && test->of->kind == END)
        status = nd_runner_leave(&test->connection, err);
    nd_runner_end(&test->connection);
    for (size_t t = 0; t < test->of->n_tensors; t++) {
        free(test->inputs[t]);
        nd_asked_deinit(&test->asked[t]);
    }
    return status;
}

enum nd_status nd_runner_check(const struct nd_device *device, struct nd_runner_report *report,
                               struct nd_error *err)
{
    ND_FREED char *folder = NULL;
    *report = (struct nd_runner_report){.has_passed = true};
    if (device->kind != ND_DEVICE_EXEC)
        return nd_fail(err, ND_E_DEVICE_UNKNOWN, device->uri, "'%s' is no runner; one is written exec:NAME",
                       device->label);
    enum nd_status status = nd_dir_make_temporary(&folder, err);
    for (size_t i = 0; status == ND_OK && i < N_TRIALS; i++) {
        struct nd_error why = {0};
        struct nd_runner_trial *trial = &report->trials[report->n++];
        struct test test = {
            .of = &trials[i], .program = device->runtime.ort_library, .folder = folder, .device = device};
        *trial = (struct nd_runner_trial){.name = trials[i].name};
        enum nd_status result = try_once(&test, trial, &why);
        trial->said[strcspn(trial->said, "\n")] = '\0';
        if (result == ND_ERR_MEMORY || result == ND_ERR_IO) {
            status = result;
            if (err != NULL)
                *err = why;
        } else if (result != ND_OK) {
            trial->state = ND_TRIAL_FAILED;
            report->has_passed = false;
            snprintf(trial->said, sizeof trial->said, "%s", why.message);
        }
    }
    nd_dir_remove(folder);
    return status;
}

/* ---- which runners there are ---- */

static const char prefix[] = "npudiff-runner-";
enum { MAX_NAME = 64 };

bool nd_runner_is_name(const char *text)
{
    size_t n = strlen(text);
    return n > 0 && n <= MAX_NAME && text[0] != '-' && text[0] != '_' &&
           strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-_") == n;
}

/* ---- folders ---- */

/* The folders of runners, then $PATH, separated by ':'; in new memory, or NULL when out of memory. */
static char *all_folders(void)
{
    struct nd_strbuf text = {0};
    const char *own = getenv("NPUDIFF_RUNNERS"), *path = getenv("PATH");
    bool has_own = own != NULL && own[0] != '\0';
    char *cached = has_own ? NULL : nd_cache_folder("runners");
    if (!has_own && cached == NULL)
        return NULL;
    nd_strbuf_printf(&text, "%s:%s", has_own ? own : cached, path != NULL ? path : "");
    free(cached);
    return nd_strbuf_take(&text);
}

/* The next absolute folder of the list; NULL at its end. */
static const char *next_folder(char **rest)
{
    const char *folder;
    while ((folder = strsep(rest, ":")) != NULL)
        if (folder[0] == '/')
            return folder;
    return NULL;
}

/* ---- the list ---- */

struct list {
    struct nd_runner *items;
    size_t n, capacity;
};

static bool has(const struct list *list, const char *name)
{
    return nd_find_text(list->items, list->n, sizeof *list->items, name) != NULL;
}

static const char *trouble_of(const char *path)
{
    struct stat info;
    if (stat(path, &info) != 0)
        return "it is a link to a file that is not there";
    if (!S_ISREG(info.st_mode))
        return "it is not a file";
    return access(path, X_OK) == 0 ? NULL : "it may not be executed: 'chmod +x' allows it";
}

static enum nd_status add(struct list *list, const char *folder, const char *file, struct nd_error *err)
{
    if (strncmp(file, prefix, strlen(prefix)) != 0)
        return ND_OK;
    const char *name = file + strlen(prefix);
    if (!nd_runner_is_name(name) || has(list, name))
        return ND_OK;
    ND_TRY_MEMORY(nd_grow((void **)&list->items, &list->capacity, list->n + 1, sizeof *list->items), err);
    struct nd_runner *item = &list->items[list->n++];
    *item = (struct nd_runner){.name = nd_strdup(name), .path = nd_path_join(folder, file)};
    ND_TRY_MEMORY(item->name != NULL && item->path != NULL, err);
    item->trouble = trouble_of(item->path);
    return ND_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct nd_runner *)a)->name, ((const struct nd_runner *)b)->name);
}

enum nd_status nd_runners_list(struct nd_runner **out, size_t *n, struct nd_error *err)
{
    struct list list = {0};
    char *folders = all_folders(), *rest = folders;
    const char *folder;
    enum nd_status status = folders != NULL ? ND_OK : nd_fail_memory(err);
    while (status == ND_OK && (folder = next_folder(&rest)) != NULL) {
        DIR *dir = opendir(folder);
        const struct dirent *entry;
        while (dir != NULL && status == ND_OK && (entry = readdir(dir)) != NULL)
            status = add(&list, folder, entry->d_name, err);
        nd_dir_close(&dir);
    }
    free(folders);
    if (status != ND_OK) {
        nd_runners_free(list.items, list.n);
        return status;
    }
    if (list.n > 0)
        qsort(list.items, list.n, sizeof *list.items, by_name);
    *out = list.items;
    *n = list.n;
    return ND_OK;
}

void nd_runners_free(struct nd_runner *runners, size_t n)
{
    ND_FREE_BOTH(runners, n, .name, .path);
}

/* ---- one ---- */

static enum nd_status check_file(const char *name, const char *path, const char *trouble, struct nd_error *err)
{
    return trouble == NULL ? ND_OK
                           : nd_fail(err, ND_E_RUNNER_START, path, "runner '%s' cannot be started: '%s': %s",
                                     name, path, trouble);
}

static enum nd_status fail_missing(const char *name, const struct nd_runner *runners, size_t n,
                                   struct nd_error *err)
{
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf known = {0};
    for (size_t i = 0; i < n; i++)
        nd_strbuf_printf(&known, "%s'%s'", i > 0 ? ", " : "", runners[i].name);
    nd_fail(err, ND_E_RUNNER_MISSING, name,
            "there is no runner '%s': no %s%s in the folder of runners or in PATH; runners here: %s", name,
            prefix, name, known.text != NULL ? known.text : "none");
    return ND_ERR_NOT_FOUND;
}

enum nd_status nd_runner_find(const char *name, char **path, struct nd_error *err)
{
    struct nd_runner *runners = NULL;
    size_t n = 0, i = 0;
    ND_TRY(nd_runners_list(&runners, &n, err));
    while (i < n && strcmp(runners[i].name, name) != 0)
        i++;
    enum nd_status status = i < n ? check_file(name, runners[i].path, runners[i].trouble, err)
                                  : fail_missing(name, runners, n, err);
    if (status == ND_OK) {
        *path = runners[i].path;
        runners[i].path = NULL;
    }
    nd_runners_free(runners, n);
    return status;
}

enum nd_status nd_runner_use_path(const char *file, char **name, char **path, struct nd_error *err)
{
    const char *base = nd_path_base(file);
    char *full = realpath(file, NULL);
    if (full == NULL)
        return nd_fail(err, ND_E_RUNNER_MISSING, file, "there is no runner '%s': %s", file, strerror(errno));
    enum nd_status status = check_file(base, full, trouble_of(full), err);
    char *short_name = nd_strdup(strncmp(base, prefix, strlen(prefix)) == 0 ? base + strlen(prefix) : base);
    if (status == ND_OK && short_name == NULL)
        status = nd_fail_memory(err);
    if (status != ND_OK) {
        ND_FREE_ALL(short_name, full);
        return status;
    }
    *name = short_name;
    *path = full;
    return ND_OK;
}
