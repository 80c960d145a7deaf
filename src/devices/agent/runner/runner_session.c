/* runtime/runtime.h, by a program that speaks the runner's protocol (docs/reference/runner.md): an agent that
 * is linked with this in the place of ONNX Runtime is the devices `exec:`. The library of the runtime is the
 * program; the provider's only option is
 *
 *     job=JSON    what device/runner_job.h makes: inputs, tensors, probes and options
 *
 * The program lives as long as the runtime. Each session is a job of its own for it. */
#include <elf.h>
#include <fcntl.h>
#include <gelf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include "core/documents/json_out.h"
#include "core/error.h"
#include "core/files/file.h"
#include "core/items.h"
#include "core/tensors/scales.h"
#include "core/tensors/sha256.h"
#include "core/text/strbuf.h"
#include "devices/agent/runner/asked.h"
#include "devices/agent/runner/connection.h"
#include "devices/agent/runtime/runtime.h"

enum { MAX_BUILD_ID_BYTES = 64 };

static bool read_note(Elf_Data *data, char *hex)
{
    GElf_Nhdr note;
    size_t name, value, at = 0;
    while (data != NULL && (at = gelf_getnote(data, at, &note, &name, &value)) > 0) {
        const unsigned char *bytes = data->d_buf;
        if (note.n_type != NT_GNU_BUILD_ID || note.n_descsz > MAX_BUILD_ID_BYTES)
            continue;
        for (size_t i = 0; i < note.n_descsz; i++)
            snprintf(hex + 2 * i, 3, "%02x", bytes[value + i]);
        return true;
    }
    return false;
}

static void read_build_id(const char *path, char *hex)
{
    size_t n = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    Elf *elf = fd >= 0 ? elf_begin(fd, ELF_C_READ, NULL) : NULL;
    if (elf != NULL && elf_getphdrnum(elf, &n) == 0)
        for (size_t i = 0; i < n; i++) {
            GElf_Phdr segment;
            if (gelf_getphdr(elf, (int)i, &segment) == NULL || segment.p_type != PT_NOTE)
                continue;
            if (read_note(elf_getdata_rawchunk(elf, (int64_t)segment.p_offset, segment.p_filesz, ELF_T_NHDR),
                          hex))
                break;
        }
    elf_end(elf);
    nd_fd_close(&fd);
}

/* Each file with code that the process has mapped: its path, and its build id ("" without one). Best effort. */
static void nd_visit_mapped(pid_t pid, nd_library_visitor visit, void *context)
{
    char name[64], line[4608], last[4352] = "";
    snprintf(name, sizeof name, "/proc/%ld/maps", (long)pid);
    FILE *maps = fopen(name, "re");
    if (maps == NULL || elf_version(EV_CURRENT) == EV_NONE) {
        nd_stdio_close(&maps);
        return;
    }
    while (fgets(line, sizeof line, maps) != NULL) {
        char access[8], path[4352] = "", hex[2 * MAX_BUILD_ID_BYTES + 1] = "";
        line[strcspn(line, "\n")] = '\0';
        if (sscanf(line, "%*s %7s %*s %*s %*s %4351[^\n]", access, path) != 2 || access[2] != 'x' ||
            path[0] != '/' || strcmp(path, last) == 0)
            continue;
        snprintf(last, sizeof last, "%s", path);
        read_build_id(path, hex);
        visit(context, path, hex);
    }
    fclose(maps);
}

enum { MAX_WORDS = 65536 }; /* bytes of a command line that are looked at; chosen */

/* The words of the command line, each with its NUL; how many bytes. */
static size_t read_words(pid_t pid, char *words)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%ld/cmdline", (long)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, words, MAX_WORDS - 1) : -1;
    nd_fd_close(&fd);
    words[n > 0 ? n : 0] = '\0';
    return n > 0 ? (size_t)n : 0;
}

/* The first file among the words behind the program itself, by a path that leads there from here, in new
 * memory; NULL without one. */
static char *find_script(pid_t pid, const char *words, size_t n)
{
    char folder[64];
    struct stat info;
    snprintf(folder, sizeof folder, "/proc/%ld/cwd", (long)pid);
    for (const char *word = words + strlen(words) + 1; word < words + n; word += strlen(word) + 1) {
        char *path = word[0] != '-' && word[0] != '\0' ? nd_path_join(folder, word) : NULL;
        if (path != NULL && stat(path, &info) == 0 && S_ISREG(info.st_mode))
            return path;
        free(path);
    }
    return NULL;
}

static void measure_file(const char *path, char hex[static ND_SHA256_HEX_BYTES])
{
    if (path == NULL || nd_sha256_file(path, hex, NULL) != ND_OK)
        nd_sha256_bytes("", 0, hex);
}

/* SHA-256 over the digests of three files: the one that was started, at `path`; the executable that the process
 * is now, such as the interpreter of a script; and the first file that its command line names, such as the
 * script that a wrapper has started. What cannot be read counts as empty; what the program loads later is not
 * in it. */
static void nd_runner_measure(const char *path, pid_t pid, char hex[static ND_SHA256_HEX_BYTES])
{
    char digests[3][ND_SHA256_HEX_BYTES], executable[64];
    ND_FREED char *words = malloc(MAX_WORDS);
    size_t n = words != NULL ? read_words(pid, words) : 0;
    ND_FREED char *script = n > 0 ? find_script(pid, words, n) : NULL;
    snprintf(executable, sizeof executable, "/proc/%ld/exe", (long)pid);
    measure_file(path, digests[0]);
    measure_file(executable, digests[1]);
    measure_file(script, digests[2]);
    nd_sha256_bytes(digests, sizeof digests, hex);
}

struct nd_runtime {
    struct nd_runner_connection connection;
    char *version;
    char program[ND_SHA256_HEX_BYTES];
    json_t *options; /* that it knows; NULL: it does not say */
};

struct nd_runtime_session {
    struct nd_runtime *runtime;
    json_t *ready; /* its answer to the job: placement and what is missing are in it */
    struct nd_session_io *inputs;
    size_t n_inputs;
    struct nd_asked *asked;
    struct nd_session_io *outputs; /* [n_outputs], of asked; names are borrowed from there */
    size_t n_outputs;
    struct nd_answer_rules rules;
    json_int_t sample, repeat;
};

/* ---- the program ---- */

/* "ort 1 (onnxruntime 1.24.1, numpy 2.1)" */
static char *describe(const json_t *hello, const char *name)
{
    struct nd_strbuf text = {0};
    const char *key;
    json_t *value, *versions = json_object_get(hello, "versions");
    nd_strbuf_printf(&text, "%s %s", name, nd_runner_text(hello, "version"));
    const char *before = " (";
    json_object_foreach(versions, key, value) {
        if (json_is_string(value))
            nd_strbuf_printf(&text, "%s%s %s", before, key, json_string_value(value));
        before = ", ";
    }
    if (json_object_size(versions) > 0)
        nd_strbuf_puts(&text, ")");
    return nd_strbuf_take(&text);
}

/* Chosen: an attribute of a capture holds less than 64 KiB. */
enum { MAX_TEXT_BYTES = 16384 };

/* What it has mapped, for nd_runtime_visit_libraries, which knows no runtime. */
static pid_t running;

enum nd_status nd_runtime_create(const struct nd_runtime_options *options, struct nd_runtime **out,
                                 struct nd_error *err)
{
    ND_CLEANUP(nd_runtime_destroy) struct nd_runtime *runtime = nd_calloc(1, sizeof *runtime);
    ND_TRY_MEMORY(runtime != NULL, err);
    runtime->connection.log = options->log;
    runtime->connection.log_context = options->log_context;
    runtime->connection.log_severity = options->log_severity;
    ND_TRY(nd_runner_start(&runtime->connection, options->ort_library, err));
    const json_t *hello = runtime->connection.frame.message;
    runtime->version = describe(hello, runtime->connection.name);
    runtime->options = json_incref(json_object_get(hello, "options"));
    nd_runner_measure(options->ort_library, runtime->connection.pid, runtime->program);
    ND_TRY_MEMORY(runtime->version != NULL, err);
    if (strlen(runtime->version) > MAX_TEXT_BYTES)
        return nd_fail(err, ND_E_RUNNER_PROTOCOL, runtime->connection.name,
                       "runner '%s' says hello with a version and versions of %zu bytes, and %d are the "
                       "most that a capture keeps",
                       runtime->connection.name, strlen(runtime->version), MAX_TEXT_BYTES);
    running = runtime->connection.pid;
    return ND_GIVE(out, runtime);
}

void nd_runtime_destroy(struct nd_runtime **runtime)
{
    if (*runtime == NULL)
        return;
    nd_runner_end(&(*runtime)->connection);
    running = 0;
    json_decref((*runtime)->options);
    ND_FREE_ALL((*runtime)->version, *runtime);
    *runtime = NULL;
}

const char *nd_runtime_version(const struct nd_runtime *runtime)
{
    return runtime->version;
}

const char *nd_runtime_build_info(const struct nd_runtime *runtime)
{
    (void)runtime;
    return "a runner, protocol 2";
}

bool nd_runtime_starts_program(void)
{
    return true;
}

const char *nd_runtime_program(const struct nd_runtime *runtime)
{
    return runtime->program;
}

void nd_runtime_visit_libraries(nd_library_visitor visit, void *context)
{
    if (running > 0)
        nd_visit_mapped(running, visit, context);
}

/* ---- the job ---- */

/* The job's text, of the session's only option. */
static enum nd_status read_job(const struct nd_session_options *options, json_t **out, struct nd_error *err)
{
    json_error_t where;
    for (size_t i = 0; i < options->n_provider_options; i++) {
        if (strcmp(options->provider_options[i].key, "job") != 0)
            continue;
        *out = json_loads(options->provider_options[i].value, JSON_REJECT_DUPLICATES, &where);
        if (json_is_object(*out))
            return ND_OK;
        return nd_fail(err, ND_E_SPOOL_FORMAT, NULL, "the job for the runner is not understood: %s",
                       where.text);
    }
    return nd_fail(err, ND_E_SPOOL_FORMAT, NULL, "there is no job for the runner");
}

static enum nd_status check_options(const struct nd_runtime *runtime, const json_t *job, struct nd_error *err)
{
    const char *key;
    json_t *value, *known;
    size_t i;
    json_object_foreach(json_object_get(job, "options"), key, value) {
        bool is_known = runtime->options == NULL;
        struct nd_strbuf names = {0};
        json_array_foreach(runtime->options, i, known) {
            const char *name = json_string_value(known);
            is_known = is_known || (name != NULL && strcmp(name, key) == 0);
            nd_strbuf_printf(&names, "%s'%s'", i > 0 ? ", " : "", name != NULL ? name : "");
        }
        enum nd_status status = ND_OK;
        if (!is_known)
            status = nd_fail(err, ND_E_RUNNER_REPORT, key, "runner '%s' has no option '%s'; it has %s",
                             runtime->connection.name, key, names.text != NULL ? names.text : "none");
        nd_strbuf_deinit(&names);
        if (status != ND_OK)
            return status;
    }
    return ND_OK;
}

static enum nd_status describe_inputs(struct nd_runtime_session *session, const json_t *job,
                                      struct nd_error *err)
{
    const json_t *list = json_object_get(job, "inputs"), *item;
    size_t i;
    session->inputs = nd_calloc(json_array_size(list), sizeof *session->inputs);
    ND_TRY_MEMORY(session->inputs != NULL, err);
    json_array_foreach(list, i, item) {
        struct nd_asked input;
        enum nd_status status = nd_asked_read(item, &input, err);
        if (status == ND_OK)
            session->inputs[session->n_inputs++] =
                (struct nd_session_io){.name = input.name, .dtype = input.dtype, .shape = input.shape};
        else
            free(input.name);
        nd_quant_deinit(&input.quant);
        if (status != ND_OK)
            return status;
    }
    return ND_OK;
}

/* The job's description of a tensor; one without any knowledge for a tensor that it does not describe. */
static json_t *find_tensor(const json_t *job, const char *name)
{
    size_t i;
    json_t *item;
    json_array_foreach(json_object_get(job, "tensors"), i, item) {
        if (strcmp(nd_runner_text(item, "name"), name) == 0)
            return json_incref(item);
    }
    return json_pack("{s:s}", "name", name);
}

/* What this session is asked for, as "outputs" of the job and as session->asked. */
static enum nd_status choose_outputs(struct nd_runtime_session *session,
                                     const struct nd_session_options *options, json_t *job,
                                     struct nd_error *err)
{
    json_t *outputs = json_array();
    size_t n = options->n_outputs;
    session->asked = nd_calloc(n, sizeof *session->asked);
    session->outputs = nd_calloc(n, sizeof *session->outputs);
    enum nd_status status =
        outputs != NULL && session->asked != NULL && session->outputs != NULL ? ND_OK : nd_fail_memory(err);
    for (size_t i = 0; status == ND_OK && i < n; i++) {
        json_t *tensor = find_tensor(job, options->outputs[i]);
        struct nd_asked *asked = &session->asked[session->n_outputs++];
        status = tensor != NULL ? nd_asked_read(tensor, asked, err) : nd_fail_memory(err);
        session->outputs[i] =
            (struct nd_session_io){.name = asked->name, .dtype = asked->dtype, .shape.rank = -1};
        if (json_array_append_new(outputs, tensor) != 0 && status == ND_OK)
            status = nd_fail_memory(err);
    }
    json_object_del(job, "tensors");
    if (json_object_set_new(job, "outputs", outputs) != 0 && status == ND_OK)
        status = nd_fail_memory(err);
    return status;
}

/* Marks what it says that it cannot give. */
static enum nd_status take_missing(struct nd_runtime_session *session, struct nd_error *err)
{
    const json_t *item;
    size_t i, k;
    json_array_foreach(json_object_get(session->ready, "missing"), i, item) {
        const char *name = nd_runner_text(item, "name");
        for (k = 0; k < session->n_outputs && strcmp(session->asked[k].name, name) != 0; k++)
            ;
        if (k == session->n_outputs)
            return nd_fail(err, ND_E_RUNNER_PROTOCOL, name,
                           "runner '%s' says that the tensor '%s' is missing, which nobody asked for",
                           session->runtime->connection.name, name);
        session->asked[k].missing = nd_runner_text(item, "reason");
    }
    return ND_OK;
}

/* What it says of tensors and nodes has to fit into the capture, which is written at the end. */
static enum nd_status check_texts(const struct nd_runtime_session *session, const char *list,
                                  struct nd_error *err)
{
    const json_t *item, *text;
    const char *key;
    size_t i;
    json_array_foreach(json_object_get(session->ready, list), i, item) {
        json_object_foreach((json_t *)(uintptr_t)item, key, text) {
            if (json_string_length(text) > MAX_TEXT_BYTES)
                return nd_fail(err, ND_E_RUNNER_PROTOCOL, list,
                               "runner '%s' says in '%s' a '%s' of %zu bytes, and %d are the most",
                               session->runtime->connection.name, list, key, json_string_length(text),
                               MAX_TEXT_BYTES);
        }
    }
    return ND_OK;
}

enum nd_status nd_session_create(struct nd_runtime *runtime, const struct nd_session_options *options,
                                 struct nd_runtime_session **out, struct nd_error *err)
{
    json_auto_t *job = NULL;
    ND_CLEANUP(nd_session_destroy) struct nd_runtime_session *session = nd_calloc(1, sizeof *session);
    ND_TRY_MEMORY(session != NULL, err);
    session->runtime = runtime;
    session->sample = -1;
    ND_TRY(read_job(options, &job, err));
    ND_TRY(check_options(runtime, job, err));
    if (json_object_set_new(job, "message", json_string("job")) != 0 ||
        json_object_set_new(job, "protocol", json_integer(ND_RUNNER_PROTOCOL)) != 0 ||
        json_object_set_new(job, "model", json_string(options->model_path)) != 0)
        return nd_fail_memory(err);
    ND_TRY(describe_inputs(session, job, err));
    ND_TRY(choose_outputs(session, options, job, err));
    struct nd_runner_connection *connection = &session->runtime->connection;
    const struct nd_runner_question question = {.message = job, .answer = "ready", .doing = "load the model"};
    ND_TRY(nd_runner_ask(connection, &question, err));
    session->ready = json_incref(connection->frame.message);
    ND_TRY(check_texts(session, "missing", err));
    ND_TRY(check_texts(session, "placement", err));
    ND_TRY(take_missing(session, err));
    session->rules = (struct nd_answer_rules){
        .runner = runtime->connection.name,
        .rounds_off_grid = json_is_true(json_object_get(job, "rounds_off_grid")),
    };
    *out = session;
    session = NULL;
    return ND_OK;
}

/* How many values were no codes, where they are accepted: a line of the log for each tensor. */
static void tell_off_grid(const struct nd_runtime_session *session)
{
    const struct nd_runner_connection *connection = &session->runtime->connection;
    for (size_t i = 0; i < session->n_outputs; i++) {
        const struct nd_asked *asked = &session->asked[i];
        char text[512];
        if (asked->off.n == 0 || connection->log == NULL)
            continue;
        snprintf(text, sizeof text,
                 "tensor '%.200s': %zu of %zu values are no quantised values; they are up to %.3g steps away "
                 "from one, and became the nearest",
                 asked->name, asked->off.n, asked->n_values, asked->off.largest);
        connection->log(connection->log_context, 2, "npudiff", text);
    }
}

void nd_session_destroy(struct nd_runtime_session **session)
{
    struct nd_runtime_session *s = *session;
    if (s == NULL)
        return;
    if (s->asked != NULL)
        tell_off_grid(s);
    for (size_t i = 0; i < s->n_inputs; i++)
        free(s->inputs[i].name);
    ND_DEINIT_EACH(nd_asked_deinit, s->asked, s->n_outputs);
    ND_FREE_ALL(s->inputs, s->outputs);
    json_decref(s->ready);
    free(s);
    *session = NULL;
}

/* ---- what it has ---- */

struct nd_session_ends nd_session_ends(const struct nd_runtime_session *session)
{
    return (struct nd_session_ends){session->inputs, session->n_inputs, session->outputs, session->n_outputs};
}

void nd_session_missing(const struct nd_runtime_session *session, nd_missing_visit *visit, void *context)
{
    for (size_t i = 0; i < session->n_outputs; i++)
        if (session->asked[i].missing != NULL)
            visit(context, session->asked[i].name, session->asked[i].missing);
}

enum nd_status nd_session_placement(const struct nd_runtime_session *session, struct nd_placement **out,
                                    size_t *n, struct nd_error *err)
{
    const json_t *list = json_object_get(session->ready, "placement"), *item;
    struct nd_placement *nodes = nd_calloc(json_array_size(list), sizeof *nodes);
    size_t i;
    ND_TRY_MEMORY(nodes != NULL, err);
    json_array_foreach(list, i, item) {
        nodes[i] = (struct nd_placement){nd_runner_text(item, "where"), nd_runner_text(item, "name"),
                                         nd_runner_text(item, "op_type"), nd_runner_text(item, "domain"), 0};
    }
    *out = nodes;
    *n = json_array_size(list);
    return ND_OK;
}

/* ---- runs ---- */

void nd_session_repeat(struct nd_runtime_session *session)
{
    session->repeat++;
    session->sample--;
}

static enum nd_status put_inputs(const struct nd_runtime_session *session, const void *const *inputs,
                                 json_t *message, struct nd_frame_part *parts, struct nd_error *err)
{
    json_t *list = json_array();
    enum nd_status status = list != NULL ? ND_OK : nd_fail_memory(err);
    for (size_t i = 0; status == ND_OK && i < session->n_inputs; i++) {
        const struct nd_session_io *io = &session->inputs[i];
        json_t *dims = json_array();
        for (int d = 0; d < io->shape.rank; d++)
            nd_tree_append(dims, json_integer(io->shape.dims[d]));
        if (json_array_append_new(list, json_pack("{s:s, s:s, s:o}", "name", io->name, "type",
                                                  nd_dtype_name(io->dtype), "shape", dims)) != 0)
            status = nd_fail_memory(err);
        parts[i].data = inputs[i];
        if (status == ND_OK)
            status = nd_shape_size_bytes(&io->shape, io->dtype, &parts[i].n_bytes, err);
    }
    if (json_object_set_new(message, "inputs", list) != 0 && status == ND_OK)
        status = nd_fail_memory(err);
    return status;
}

size_t nd_session_ahead(struct nd_runtime_session *session, const void *const *inputs, size_t n)
{
    (void)session, (void)inputs, (void)n;
    return 0;
}

enum nd_status nd_session_run(struct nd_runtime_session *session, const void *const *inputs,
                              struct nd_output_view *views, struct nd_error *err)
{
    struct nd_runner_connection *connection = &session->runtime->connection;
    ND_FREED struct nd_frame_part *parts = nd_calloc(session->n_inputs, sizeof *parts);
    session->sample++;
    json_auto_t *message =
        json_pack("{s:s, s:I, s:I}", "message", "run", "sample", session->sample, "repeat", session->repeat);
    session->repeat = 0;
    ND_TRY(parts != NULL && message != NULL ? put_inputs(session, inputs, message, parts, err)
                                            : nd_fail_memory(err));
    const struct nd_runner_question question = {
        .message = message,
        .parts = parts,
        .n_parts = session->n_inputs,
        .answer = "result",
        .max_data_bytes = nd_asked_max_bytes(session->asked, session->n_outputs),
        .doing = "run a sample",
    };
    ND_TRY(nd_runner_ask(connection, &question, err));
    return nd_answer_take(&connection->frame, &session->rules, session->asked, session->n_outputs, views, err);
}

enum nd_status nd_session_end_profile(struct nd_runtime_session *session, char **path, struct nd_error *err)
{
    (void)session;
    (void)path;
    return nd_fail(err, ND_E_OPTION_CONFLICT, NULL, "a runner has no profile");
}

enum nd_status nd_session_truth(const struct nd_runtime_session *session, nd_truth_visit *visit, void *context,
                                struct nd_error *err)
{
    (void)session;
    (void)visit;
    (void)context;
    (void)err;
    return ND_OK;
}
