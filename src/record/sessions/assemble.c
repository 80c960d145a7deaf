/* From the spool of an agent to a capture, with what was printed and logged while it ran
 * (docs/reference/capture-format.md). */
#include "record/sessions/assemble_outputs.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "core/files/file.h"
#include "core/items.h"
#include "core/tensors/sha256.h"
#include "core/text/strbuf.h"
#include "devices/agent/spool/spool.h"
#include "devices/launch.h"
#include "devices/phones/remote.h"
#include "npudiff/capture/logs.h"
#include "record/sessions/capture_run.h"

/* The tensors and nodes of a capture: what the model said of them, joined with what the agent saw. */

struct nd_assembled_graph {
    struct nd_tensor *tensors; /* with the type and shape that the first run produced */
    size_t n_tensors;
    const char **providers;        /* of each tensor, in the pass that recorded it; "" when unknown */
    struct nd_capture_node *nodes; /* placement of pass 0 */
    size_t n_nodes;
    struct nd_capture_node *later_nodes; /* of the other passes */
    size_t n_later_nodes;
};

/* A log, and what it says. */
static enum nd_status write_log(struct nd_capture_writer *writer, const char *name, const char *text, size_t n,
                                struct nd_log_findings *findings, struct nd_error *err)
{
    struct nd_log_summary summary;
    const struct nd_log_options options = {
        .struct_size = sizeof options, .name = name, .visit = nd_log_findings_add, .context = findings};
    ND_TRY(nd_capture_writer_log(writer, name, text, n, err));
    ND_TRY(nd_log_read_bytes(text, n, &options, &summary, err));
    return findings->failed ? nd_fail_memory(err) : ND_OK;
}

static enum nd_status write_runtime_log(struct nd_capture_writer *writer, const struct nd_spool_index *index,
                                        struct nd_log_findings *findings, struct nd_error *err)
{
    static const char *const severities[] = {"verbose", "info", "warning", "error", "fatal"};
    struct nd_strbuf text = {0};
    for (size_t i = 0; i < index->n_logs; i++) {
        uint64_t severity = 0;
        char *location = nd_fields_text(&index->logs[i], "location");
        char *message = nd_fields_text(&index->logs[i], "message");
        nd_fields_get_u64(&index->logs[i], "severity", &severity);
        if (location != NULL && message != NULL)
            nd_strbuf_printf(&text, "[%s] %s: %s\n", severity < 5 ? severities[severity] : "?", location,
                             message);
        else
            text.failed = true;
        ND_FREE_ALL(location, message);
    }
    size_t n = text.len;
    ND_FREED char *log = nd_strbuf_take(&text);
    ND_TRY_MEMORY(log != NULL, err);
    char runner[8];
    nd_fields_copy(&index->runtime, "runner", runner, sizeof runner);
    const char *name = runner[0] != '\0' ? "runner" : "onnxruntime";
    return n > 0 ? write_log(writer, name, log, n, findings, err) : ND_OK;
}

/* What was printed; of very much, the end, which says why it ended. *out is NULL when there is nothing. */
static enum nd_status read_stdout(const char *path, char **out, size_t *n, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    long size = 0;
    int fd = path != NULL ? nd_file_open_regular(path, O_RDONLY) : -1;
    FILE *file = fd >= 0 ? fdopen(fd, "rb") : NULL;
    if (file == NULL && fd >= 0)
        close(fd);
    *out = NULL;
    if (file != NULL && fseek(file, 0, SEEK_END) == 0)
        size = ftell(file);
    if (size > 0) {
        long kept = size < ND_KEPT_PRINTED_BYTES ? size : ND_KEPT_PRINTED_BYTES;
        *out = malloc((size_t)kept);
        if (*out == NULL)
            status = nd_fail_memory(err);
        *n =
            status == ND_OK && fseek(file, size - kept, SEEK_SET) == 0 ? fread(*out, 1, (size_t)kept, file) : 0;
    }
    nd_stdio_close(&file);
    return status;
}

/* Stores the logs of the runtime, of the agent's output, of the transfer and of the device's system, and the
 * profiles. Adds what the logs say to findings. */
static enum nd_status nd_assemble_logs(struct nd_capture_writer *writer, const struct nd_assembly *assembly,
                                       const struct nd_spool_index *index, struct nd_log_findings *findings,
                                       struct nd_error *err)
{
    ND_TRY(write_runtime_log(writer, index, findings, err));
    ND_FREED char *text = NULL;
    size_t n = 0;
    ND_TRY(read_stdout(assembly->stdout_path, &text, &n, err));
    if (text != NULL)
        ND_TRY(write_log(writer, "stdout", text, n, findings, err));
    if (assembly->transfer != NULL)
        ND_TRY(nd_capture_writer_log(writer, "transfer", assembly->transfer, strlen(assembly->transfer), err));
    if (assembly->logcat != NULL)
        ND_TRY(write_log(writer, "logcat", assembly->logcat, assembly->logcat_bytes, findings, err));
    if (index->profile.kind != 0)
        ND_TRY(nd_capture_writer_log(writer, "profile", index->profile.payload, index->profile.payload_bytes,
                                     err));
    if (index->provider_profile.kind != 0)
        ND_TRY(nd_capture_writer_log(writer, "qnn-profile", index->provider_profile.payload,
                                     index->provider_profile.payload_bytes, err));
    return ND_OK;
}

static void free_nodes(struct nd_capture_node *nodes, size_t n)
{
    for (size_t i = 0; nodes != NULL && i < n; i++)
        ND_FREE_ALL(nodes[i].name, nodes[i].op_type, nodes[i].domain, nodes[i].provider);
    free(nodes);
}

static enum nd_status read_nodes(const struct nd_record *records, size_t n, struct nd_capture_node **out,
                                 struct nd_error *err)
{
    struct nd_capture_node *nodes = nd_calloc(n, sizeof *nodes);
    bool is_whole = nodes != NULL;
    for (size_t i = 0; is_whole && i < n; i++) {
        nodes[i].name = nd_fields_get(&records[i], "name");
        nodes[i].op_type = nd_fields_get(&records[i], "op_type");
        nodes[i].domain = nd_fields_get(&records[i], "domain");
        nodes[i].provider = nd_fields_get(&records[i], "provider");
        uint64_t subgraph;
        if (nd_fields_get_u64(&records[i], "subgraph", &subgraph) && subgraph <= INT32_MAX)
            nodes[i].subgraph = (int64_t)subgraph;
        is_whole = nodes[i].name != NULL && nodes[i].op_type != NULL && nodes[i].domain != NULL &&
                   nodes[i].provider != NULL;
    }
    if (!is_whole) {
        free_nodes(nodes, n);
        return nd_fail_memory(err);
    }
    *out = nodes;
    return ND_OK;
}

/* While a tensor's rank is unknown its axis counts from the end. What a capture says of axes must hold without
 * that; parameters that no axis can be told for are left out. */
static void settle_axis(struct nd_tensor *tensor)
{
    struct nd_quant *quant = &tensor->quant;
    if (quant->n > 1 && quant->axis < 0 && tensor->shape.rank >= 0)
        quant->axis += tensor->shape.rank;
    bool is_known = tensor->shape.rank >= 0;
    bool has_axis = quant->axis >= 0 && (!is_known || (quant->axis < tensor->shape.rank &&
                                                       tensor->shape.dims[quant->axis] == (int64_t)quant->n));
    if (quant->n <= 1 && !has_axis)
        quant->axis = -1;
    if (quant->n <= 1 || has_axis)
        return;
    ND_FREE_ALL(quant->scale, quant->zero_point);
    *quant = (struct nd_quant){.axis = -1};
}

static enum nd_status complete_tensors(struct nd_assembled_graph *graph, const struct nd_assembly *assembly,
                                       const struct nd_spool_index *index, struct nd_error *err)
{
    graph->tensors = nd_calloc(assembly->n_tensors, sizeof *graph->tensors);
    graph->providers = nd_calloc(assembly->n_tensors, sizeof *graph->providers);
    ND_TRY_MEMORY(graph->tensors != NULL && graph->providers != NULL, err);
    for (size_t e = 0; e < assembly->n_tensors; e++) {
        graph->n_tensors = e + 1;
        ND_TRY(nd_tensor_copy(assembly->tensors[e], &graph->tensors[e], err));
        if (index->outputs[e].is_known) {
            graph->tensors[e].dtype = index->outputs[e].dtype;
            graph->tensors[e].shape = index->outputs[e].shape;
        }
        settle_axis(&graph->tensors[e]);
    }
    return ND_OK;
}

/* The providers of the nodes of one pass. */
struct pass_providers {
    struct nd_names names;               /* of the nodes, with their places in `nodes` */
    const struct nd_capture_node *nodes; /* of pass 0, or of all others */
    const char *common;                  /* where all that computes ran on one; else "" */
};

/* Of two nodes of one name the first counts. */
static enum nd_status find_providers(const struct nd_assembled_graph *graph, const struct nd_spool_index *index,
                                     size_t pass, struct pass_providers *out, struct nd_error *err)
{
    struct pass_providers found = {.nodes = pass == 0 ? graph->nodes : graph->later_nodes};
    size_t n = pass == 0 ? graph->n_nodes : graph->n_later_nodes;
    bool is_common = true;
    for (size_t i = 0; i < n; i++) {
        const struct nd_capture_node *node = &found.nodes[i];
        if (pass != 0 && index->later_nodes[i].index[0] != pass)
            continue;
        if (nd_names_find(&found.names, node->name) == SIZE_MAX && !nd_names_add(&found.names, node->name, i)) {
            nd_names_deinit(&found.names);
            return nd_fail_memory(err);
        }
        if (strcmp(node->op_type, "QuantizeLinear") == 0 || strcmp(node->op_type, "DequantizeLinear") == 0)
            continue;
        is_common = is_common && (found.common == NULL || strcmp(found.common, node->provider) == 0);
        found.common = node->provider;
    }
    if (found.common == NULL || !is_common)
        found.common = "";
    *out = found;
    return ND_OK;
}

/* A provider's layout pass may have replaced the node by one of another name: then, where all that computes in
 * the session ran on one provider, so did it; else "" (unknown). */
static const char *provider_of(const struct pass_providers *providers, const char *name)
{
    size_t node = name != NULL ? nd_names_find(&providers->names, name) : SIZE_MAX;
    return node != SIZE_MAX ? providers->nodes[node].provider : providers->common;
}

/* The first pass of any tensor that is not before `from`; SIZE_MAX: none. */
static size_t next_pass(const struct nd_assembly *assembly, size_t n_tensors, size_t from)
{
    size_t next = SIZE_MAX;
    for (size_t e = 0; e < n_tensors; e++)
        if (assembly->pass_of_tensor[e] >= from && assembly->pass_of_tensor[e] < next)
            next = assembly->pass_of_tensor[e];
    return next;
}

static enum nd_status find_all_providers(struct nd_assembled_graph *graph, const struct nd_assembly *assembly,
                                         const struct nd_spool_index *index, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t e = 0; e < graph->n_tensors; e++)
        graph->providers[e] = "";
    for (size_t pass = next_pass(assembly, graph->n_tensors, 0); pass != SIZE_MAX && status == ND_OK;
         pass = next_pass(assembly, graph->n_tensors, pass + 1)) {
        struct pass_providers providers = {0};
        status = find_providers(graph, index, pass, &providers, err);
        for (size_t e = 0; status == ND_OK && e < graph->n_tensors; e++)
            if (assembly->pass_of_tensor[e] == pass)
                graph->providers[e] = provider_of(&providers, graph->tensors[e].node);
        nd_names_deinit(&providers.names);
    }
    return status;
}

static void nd_assembled_graph_deinit(struct nd_assembled_graph *graph)
{
    ND_DEINIT_EACH(nd_tensor_deinit, graph->tensors, graph->n_tensors);
    free(graph->providers);
    free_nodes(graph->nodes, graph->n_nodes);
    free_nodes(graph->later_nodes, graph->n_later_nodes);
    *graph = (struct nd_assembled_graph){0};
}

enum { MAX_FINDINGS = 50000 }; /* that are kept in memory; the table takes fewer */

/* ---- attributes ---- */

static enum nd_status write_string(struct nd_capture_writer *writer, const char *group, const char *key,
                                   const char *value, struct nd_error *err)
{
    /* The writer only reads the attribute. */
    const struct nd_attr attr = {.group = (char *)(uintptr_t)group,
                                 .key = (char *)(uintptr_t)key,
                                 .type = ND_ATTR_STRING,
                                 .string = (char *)(uintptr_t)(value != NULL ? value : "")};
    return nd_capture_writer_attr(writer, &attr, err);
}

/* "unreadable" is a library that is gone or whose file nobody may read; other trouble is this machine's. */
static enum nd_status digest_library(const struct nd_assembly *assembly, const char *path,
                                     char hex[static ND_SHA256_HEX_BYTES], struct nd_error *err)
{
    snprintf(hex, ND_SHA256_HEX_BYTES, "unreadable");
    if (!assembly->is_elsewhere)
        return access(path, R_OK) == 0 ? nd_sha256_file_once(path, hex, err) : ND_OK;
    for (size_t i = 0; i < assembly->n_libraries; i++)
        if (strcmp(assembly->libraries[i].path, path) == 0 && assembly->libraries[i].sha256[0] != '\0')
            memcpy(hex, assembly->libraries[i].sha256, ND_SHA256_HEX_BYTES);
    return ND_OK;
}

/* Every library that was loaded: path, SHA-256 and build id, in order of path. */
static enum nd_status write_library(struct nd_capture_writer *writer, const struct nd_assembly *assembly,
                                    size_t number, const char *line, struct nd_error *err)
{
    char key[64], hex[ND_SHA256_HEX_BYTES];
    const char *build_id = line + strlen(line) + 1; /* "path\0build id\0" */
    ND_TRY(digest_library(assembly, line, hex, err));
    snprintf(key, sizeof key, "library_%03zu_path", number);
    ND_TRY(write_string(writer, "runtime", key, line, err));
    snprintf(key, sizeof key, "library_%03zu_sha256", number);
    ND_TRY(write_string(writer, "runtime", key, hex, err));
    snprintf(key, sizeof key, "library_%03zu_build_id", number);
    return write_string(writer, "runtime", key, build_id, err);
}

static enum nd_status write_libraries(struct nd_capture_writer *writer, const struct nd_assembly *assembly,
                                      const struct nd_spool_index *index, struct nd_error *err)
{
    ND_FREED char **lines = nd_calloc(index->n_libraries, sizeof *lines);
    enum nd_status status = lines != NULL ? ND_OK : nd_fail_memory(err);
    for (size_t i = 0; status == ND_OK && i < index->n_libraries; i++) {
        char *path = nd_fields_text(&index->libraries[i], "path");
        char *build_id = nd_fields_text(&index->libraries[i], "build_id");
        if (path != NULL && build_id != NULL)
            lines[i] = nd_text("%s%c%s", path, '\0', build_id);
        ND_FREE_ALL(path, build_id);
        if (lines[i] == NULL)
            status = nd_fail_memory(err);
    }
    if (status == ND_OK)
        qsort(lines, index->n_libraries, sizeof *lines, nd_compare_texts);
    for (size_t i = 0; status == ND_OK && i < index->n_libraries; i++)
        status = write_library(writer, assembly, i, lines[i], err);
    for (size_t i = 0; lines != NULL && i < index->n_libraries; i++)
        free(lines[i]);
    return status;
}

/* What the agent said of the runtime: ONNX Runtime, or a runner. */
static enum nd_status write_runtime(struct nd_capture_writer *writer, const struct nd_record *runtime,
                                    struct nd_error *err)
{
    static const char *const keys[][2] = {{"version", "ort_version"},
                                          {"build_info", "ort_build_info"},
                                          {"runner", "runner"},
                                          {"confined", "confined"}};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        ND_FREED char *value = nd_fields_text(runtime, keys[i][0]);
        if (value == NULL)
            return nd_fail_memory(err);
        else if (value[0] != '\0')
            ND_TRY(write_string(writer, "runtime", keys[i][1], value, err));
    }
    return ND_OK;
}

static enum nd_status write_attributes(struct nd_capture_writer *writer, const struct nd_assembly *assembly,
                                       const struct nd_spool_index *index, struct nd_error *err)
{
    for (size_t i = 0; i < assembly->n_attrs; i++)
        ND_TRY(nd_capture_writer_attr(writer, &assembly->attrs[i], err));
    if (index->runtime.kind != 0)
        ND_TRY(write_runtime(writer, &index->runtime, err));
    const struct nd_attr resumed = {.group = (char *)"runtime",
                                    .key = (char *)"resumed",
                                    .type = ND_ATTR_I64,
                                    .i64 = (int64_t)index->n_resumed};
    if (index->n_resumed > 0)
        ND_TRY(nd_capture_writer_attr(writer, &resumed, err));
    static const char *const truths[][2] = {{"truth", "profile"},     {"truth", "faulty"},
                                            {"truth", "kinds"},       {"truth", "n_changed"},
                                            {"runtime", "not_known"}, {"runtime", "behind_not_known"}};
    for (size_t i = 0; index->truth.kind != 0 && i < sizeof truths / sizeof truths[0]; i++) {
        ND_FREED char *value = nd_fields_text(&index->truth, truths[i][1]);
        ND_TRY_MEMORY(value != NULL, err);
        if (nd_fields_has(&index->truth, truths[i][1]))
            ND_TRY(write_string(writer, truths[i][0], truths[i][1], value, err));
    }
    return write_libraries(writer, assembly, index, err);
}

/* ---- failure ---- */

/* Bytes of the path that ends at "/pass0.onnx" (at) and of all of it: the copy of the model that a session was
 * given (device/capture_passes.c), on whatever machine. 0: it is none. */
static size_t copy_bytes(const char *text, const char *at, const char **begin)
{
    size_t n_digits = strspn(at + strlen("/pass"), "0123456789");
    const char *end = at + strlen("/pass") + n_digits;
    if (n_digits == 0 || strncmp(end, ".onnx", strlen(".onnx")) != 0)
        return 0;
    for (*begin = at; *begin > text && strchr(" '\"", (*begin)[-1]) == NULL;)
        (*begin)--;
    return (size_t)(end - *begin) + strlen(".onnx");
}

/* A message of the agent names the user's model where it names the copy, of which the user knows nothing. */
static void name_model(const struct nd_model *model, struct nd_error *failure)
{
    struct nd_strbuf text = {0};
    const char *rest = failure->message, *begin;
    for (const char *at = rest; (at = strstr(at, "/pass")) != NULL;) {
        size_t n = copy_bytes(rest, at, &begin);
        at++;
        if (n == 0)
            continue;
        nd_strbuf_append(&text, rest, (size_t)(begin - rest));
        nd_strbuf_puts(&text, nd_model_path(model));
        rest = at = begin + n;
    }
    nd_strbuf_puts(&text, rest);
    ND_FREED char *named = nd_strbuf_take(&text);
    if (named != NULL)
        snprintf(failure->message, sizeof failure->message, "%s", named);
}

/* Why the device failed, from the agent itself when it could still say it, else from the host that saw it die.
 * What an agent says whose link was lost is not its last word. */
static void describe_failure(const struct nd_assembly *assembly, const struct nd_spool_index *index,
                             struct nd_assembled *out)
{
    bool is_last_word = index->failure.kind != 0 && !assembly->can_resume;
    const char *first_stage = assembly->death_stage != NULL ? assembly->death_stage : "start";
    out->state = assembly->can_resume && out->samples_done > 0 ? ND_CAPTURE_PARTIAL : ND_CAPTURE_FAILED;
    snprintf(out->stage, sizeof out->stage, "%s", index->stage[0] != '\0' ? index->stage : first_stage);
    uint64_t code = ND_E_DEVICE_CRASH;
    if (is_last_word) {
        nd_fields_get_u64(&index->failure, "code", &code);
        out->failure = (struct nd_error){.status = ND_ERR_DEVICE, .id = (int)code};
        nd_fields_copy(&index->failure, "message", out->failure.message, sizeof out->failure.message);
        nd_fields_copy(&index->failure, "object", out->failure.object, sizeof out->failure.object);
        if (out->failure.message[0] == '\0' && assembly->death != NULL)
            out->failure = *assembly->death;
        else if (out->failure.message[0] == '\0')
            snprintf(out->failure.message, sizeof out->failure.message,
                     "the agent failed at stage '%s', and does not say why", out->stage);
        if (assembly->model != NULL)
            name_model(assembly->model, &out->failure);
        if (assembly->model != NULL && code == ND_E_DEVICE_FALLBACK)
            nd_fallback_say(index, assembly->model, &out->failure);
    } else if (assembly->death != NULL) {
        out->failure = *assembly->death;
    } else {
        nd_fail(&out->failure, ND_E_SPOOL_FORMAT, assembly->spool_path,
                index->has_ended ? "the agent ended without all samples"
                                 : "the agent's spool ends before its end");
    }
}

/* A provider whose backend lacks a library takes no node, and says why only in the log. */
static void explain_placement(const struct nd_spool_index *index, struct nd_assembled *assembled)
{
    static const char key[] = "Unable to load backend, error:";
    bool is_said = strcmp(assembled->stage, "placement") != 0;
    for (size_t i = 0; i < index->n_logs && !is_said; i++) {
        char *message = nd_fields_get(&index->logs[i], "message");
        const char *found = message != NULL ? strstr(message, key) : NULL;
        if (found != NULL) {
            found += strlen(key);
            found += strspn(found, " ");
            nd_error_context(&assembled->failure, "the provider's backend cannot be loaded: %.*s",
                             (int)strcspn(found, "\r\n"), found);
            is_said = true;
        }
        free(message);
    }
}

static enum nd_status write_failure(struct nd_capture_writer *writer, const struct nd_assembly *assembly,
                                    const struct nd_log_findings *findings, struct nd_assembled *assembled,
                                    struct nd_error *err)
{
    const struct nd_attr code = {
        .group = (char *)"failure", .key = (char *)"code", .type = ND_ATTR_I64, .i64 = assembled->failure.id};
    ND_TRY(nd_capture_writer_attr(writer, &code, err));
    ND_TRY(write_string(writer, "failure", "stage", assembled->stage, err));
    ND_TRY(write_string(writer, "failure", "message", assembled->failure.message, err));
    ND_TRY(write_string(writer, "failure", "object", assembled->failure.object, err));
    /* A refused placement is told whole by its message; refused nodes are no failed graph. */
    if (strcmp(assembled->stage, "placement") != 0)
        return nd_failure_write(writer, findings, assembly->model, &assembled->failure, err);
    return ND_OK;
}

/* ---- probes ---- */

static enum nd_status write_probe(struct nd_capture_writer *writer, const struct nd_assembly *assembly,
                                  const struct nd_spool_index *index, size_t p,
                                  const struct nd_assembled_graph *graph, struct nd_untouched *untouched,
                                  struct nd_error *err)
{
    const struct nd_probe *source = assembly->probes[p];
    const struct nd_spool_probe *run = &index->probes[p];
    struct nd_capture_probe probe = {
        .name = source->name,
        .source = source->source,
        .n_samples = run->n_complete,
        .n_samples_expected = source->n_samples,
        .n_repeats = index->n_repeats,
        .n_inputs = source->n_inputs,
        .labels = source->labels,
        .latency_us = run->latency_us,
    };
    for (size_t i = 0; assembly->is_reproducible && i < run->n_complete * index->n_repeats; i++)
        run->latency_us[i] = NAN;
    probe.inputs = nd_calloc(source->n_inputs, sizeof *probe.inputs);
    ND_TRY_MEMORY(probe.inputs != NULL, err);
    for (size_t i = 0; i < source->n_inputs; i++)
        probe.inputs[i] = (struct nd_capture_input){
            .name = source->inputs[i].name, .dtype = source->inputs[i].dtype, .shape = source->inputs[i].shape};
    enum nd_status status = nd_capture_writer_probe(writer, &probe, err);
    for (size_t i = 0; status == ND_OK && i < source->n_inputs; i++)
        status = nd_capture_writer_input(writer, &probe, i, source->inputs[i].data, err);
    if (status == ND_OK)
        status = nd_assemble_reruns(writer, &probe, index, p, err);
    size_t first_sample = 0;
    for (size_t i = 0; i < p; i++)
        first_sample += index->probes[i].n_samples;
    for (size_t e = 0; status == ND_OK && e < assembly->n_tensors && run->n_complete > 0; e++) {
        const struct nd_output_source output = {.index = index,
                                                .probe = p,
                                                .tensor = e,
                                                .deflate_level = assembly->deflate_level,
                                                .untouched = untouched,
                                                .first_sample = first_sample};
        status = nd_assemble_digests(writer, &probe, &graph->tensors[e], &output, err);
        if (status == ND_OK && !assembly->store_digests_only)
            status = nd_assemble_outputs(writer, &probe, &graph->tensors[e], graph->providers[e], &output, err);
        if (status != ND_OK)
            nd_error_context(err, "probe '%s', tensor '%s'", probe.name, graph->tensors[e].name);
    }
    free(probe.inputs);
    return status;
}

/* Opens the run of the untouched model, where there is one. What gives other values when it is run again says
 * nothing of recording. */
static enum nd_status open_untouched(const struct nd_assembly *assembly, const struct nd_spool_index *index,
                                     const struct nd_assembled_graph *graph, struct nd_untouched *out,
                                     struct nd_error *err)
{
    size_t n_samples = 0;
    for (size_t p = 0; p < index->n_probes; p++)
        n_samples += index->probes[p].n_samples;
    if (assembly->untouched == NULL)
        return ND_OK;
    ND_TRY(nd_untouched_open(assembly->untouched, graph->tensors, graph->n_tensors, n_samples, out, err));
    for (size_t i = 0; i < index->repeats.n; i++)
        out->is_unsteady = out->is_unsteady || graph->tensors[index->repeats.items[i].tensor].is_model_output;
    return ND_OK;
}

static enum nd_status write_all(struct nd_capture_writer *writer, const struct nd_assembly *assembly,
                                const struct nd_spool_index *index, struct nd_assembled *out,
                                struct nd_error *err)
{
    ND_CLEANUP(nd_assembled_graph_deinit) struct nd_assembled_graph graph = {0};
    ND_CLEANUP(nd_log_findings_deinit) struct nd_log_findings findings = {.max = MAX_FINDINGS};
    ND_CLEANUP(nd_untouched_deinit) struct nd_untouched untouched = {0};
    bool is_short = false; /* an acknowledged sample without all its records: a damaged spool */
    ND_TRY(complete_tensors(&graph, assembly, index, err));
    ND_TRY(read_nodes(index->nodes, index->n_nodes, &graph.nodes, err));
    graph.n_nodes = index->n_nodes;
    ND_TRY(read_nodes(index->later_nodes, index->n_later_nodes, &graph.later_nodes, err));
    graph.n_later_nodes = index->n_later_nodes;
    ND_TRY(find_all_providers(&graph, assembly, index, err));
    ND_TRY(write_attributes(writer, assembly, index, err));
    ND_TRY(nd_capture_writer_tensors(writer, graph.tensors, graph.providers, graph.n_tensors, err));
    ND_TRY(nd_capture_writer_nodes(writer, graph.nodes, graph.n_nodes, err));
    ND_TRY(open_untouched(assembly, index, &graph, &untouched, err));
    for (size_t p = 0; p < assembly->n_probes; p++) {
        ND_TRY(write_probe(writer, assembly, index, p, &graph, &untouched, err));
        out->samples_done += index->probes[p].n_complete;
        is_short = is_short || index->probes[p].n_complete < index->probes[p].n_samples;
    }
    bool has_failed = !index->has_ended || is_short;
    if (!has_failed)
        ND_TRY(nd_untouched_write(&untouched, assembly->untouched_why, writer, &out->is_changed, err));
    if (has_failed || !assembly->is_reproducible)
        ND_TRY(nd_assemble_logs(writer, assembly, index, &findings, err));
    ND_TRY(nd_findings_write(writer, &findings, err));
    if (!has_failed)
        return ND_OK;
    describe_failure(assembly, index, out);
    explain_placement(index, out);
    return write_failure(writer, assembly, &findings, out, err);
}

/* Bytes of all values that will be stored. Of the content alone: two runs that have the same content give the
 * same file, however large their spools are. */
static uint64_t count_value_bytes(const struct nd_assembly *assembly, const struct nd_spool_index *index)
{
    uint64_t n_samples = 0, per_sample = 0;
    for (size_t p = 0; p < index->n_probes; p++)
        n_samples += index->probes[p].n_complete;
    for (size_t e = 0; e < index->n_tensors; e++) {
        size_t n_bytes = 0;
        if (index->outputs[e].is_known &&
            nd_shape_size_bytes(&index->outputs[e].shape, index->outputs[e].dtype, &n_bytes, NULL) == ND_OK)
            per_sample += n_bytes;
    }
    return assembly->store_digests_only ? 0 : n_samples * per_sample;
}

static enum nd_status write_capture(const struct nd_assembly *assembly, const struct nd_spool_index *index,
                                    struct nd_assembled *out, struct nd_error *err)
{
    ND_CLEANUP(nd_capture_writer_destroy) struct nd_capture_writer *writer = NULL;
    ND_TRY(nd_capture_writer_create_large(assembly->path, assembly->replace, count_value_bytes(assembly, index),
                                          &writer, err));
    nd_capture_writer_level(writer, assembly->deflate_level);
    ND_TRY(write_all(writer, assembly, index, out, err));
    return nd_capture_writer_commit(writer, out->state, err);
}

/* A run that came less far than the one before it says why, and leaves what is there. */
static void keep_old(const struct nd_assembly *assembly, const struct nd_spool_index *index,
                     struct nd_assembled *out)
{
    describe_failure(assembly, index, out);
    explain_placement(index, out);
    nd_error_context(&out->failure, "'%s' stays with its %zu samples", assembly->path, assembly->n_kept);
    out->samples_done = assembly->n_kept;
}

enum nd_status nd_capture_assemble(const struct nd_assembly *assembly, struct nd_assembled *out,
                                   struct nd_error *err)
{
    ND_CLEANUP(nd_spool_index_close) struct nd_spool_index index = {0};
    struct nd_assembled assembled = {.state = ND_CAPTURE_COMPLETE};
    size_t n_done = 0;
    ND_FREED size_t *samples = nd_calloc(assembly->n_probes, sizeof *samples);
    ND_TRY_MEMORY(samples != NULL, err);
    for (size_t p = 0; p < assembly->n_probes; p++)
        samples[p] = assembly->probes[p]->n_samples;
    const struct nd_spool_request request = {.samples = samples,
                                             .n_probes = assembly->n_probes,
                                             .pass_of_tensor = assembly->pass_of_tensor,
                                             .n_tensors = assembly->n_tensors,
                                             .n_passes = assembly->n_passes,
                                             .n_repeats = assembly->n_repeats,
                                             .has_reruns = assembly->has_reruns};
    ND_TRY(nd_spool_index_open(assembly->spool_path, &request, &index, err));
    for (size_t p = 0; p < assembly->n_probes; p++)
        n_done += index.probes[p].n_complete;
    if (n_done < assembly->n_kept)
        keep_old(assembly, &index, &assembled);
    else
        ND_TRY(write_capture(assembly, &index, &assembled, err));
    *out = assembled;
    return ND_OK;
}
