/* README.txt of a reproducer: all that somebody needs who gets the folder and nothing else. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/files/file.h"
#include "core/items.h"
#include "core/text/strbuf.h"
#include "improve/reduce/reducer.h"
#include "model/graph/loaded.h"
#include "npudiff/improve/reduce.h"

static void put_difference(struct nd_strbuf *out, const char *what,
                           const struct nd_reduction_difference *difference)
{
    nd_strbuf_printf(out, "%s: ", what);
    if (difference->tensor[0] == '\0') {
        nd_strbuf_puts(out, "nothing differs\n");
        return;
    }
    nd_strbuf_printf(out, "'%s' differs in %.4g %% of its elements", difference->tensor,
                     100 * difference->fraction);
    if (!isnan(difference->max_lsb))
        nd_strbuf_printf(out, ", by up to %.0f LSB", difference->max_lsb);
    nd_strbuf_puts(out, "\n");
}

static void put_failure(struct nd_strbuf *out, const struct nd_reduction_failure *failure)
{
    nd_strbuf_printf(out, "stage: %s\nerror: %s [ND-%d]\n", failure->stage, failure->message, failure->id);
    if (failure->cause[0] != '\0')
        nd_strbuf_printf(out, "reason in the log: %s\n", failure->cause);
    if (failure->qnn_stage[0] != '\0')
        nd_strbuf_printf(out, "stage of the runtime: %s\n", failure->qnn_stage);
    if (failure->has_raw_code)
        nd_strbuf_printf(out, "code of the runtime: %lld %s\n", (long long)failure->raw_code, failure->symbol);
    if (failure->op[0] != '\0')
        nd_strbuf_printf(out, "the device's operator: %s\n", failure->op);
}

static void put_ends(struct nd_strbuf *out, const struct nd_model *model)
{
    char shape[128];
    for (size_t i = 0; i < nd_model_n_inputs(model); i++) {
        const struct nd_model_io *io = nd_model_input(model, i);
        nd_strbuf_printf(out, "  input  %s %s %s\n", io->name, nd_dtype_name(io->dtype),
                         nd_shape_format(&io->shape, shape, sizeof shape));
    }
    for (size_t i = 0; i < nd_model_n_outputs(model); i++) {
        const struct nd_model_io *io = nd_model_output(model, i);
        nd_strbuf_printf(out, "  output %s %s %s\n", io->name, nd_dtype_name(io->dtype),
                         io->shape.rank >= 0 ? nd_shape_format(&io->shape, shape, sizeof shape) : "");
    }
}

static void put_inputs(struct nd_strbuf *out, const struct nd_reduction *reduction,
                       const struct nd_smaller_model *candidate)
{
    if (strcmp(reduction->inputs, "zeros") == 0)
        nd_strbuf_puts(out, "No reference could run the whole model; what is not an input of it is zero.\n");
    else
        nd_strbuf_printf(out,
                         "The inputs are what '%s' had there when it ran the whole model (%zu samples)%s.\n",
                         reduction->inputs, reduction->n_samples,
                         candidate->is_all_recorded ? "" : "; what it did not hand out is zero");
}

/* README.txt in the folder of the reproducer. */
static enum nd_status nd_reducer_write_readme(const struct nd_reducer *reducer,
                                              const struct nd_smaller_model *candidate, const char *path,
                                              struct nd_error *err)
{
    const struct nd_reduction *out = reducer->out;
    struct nd_strbuf text = {0};
    nd_strbuf_printf(&text, "A part of '%s' that still %s.\n\nTo see it, in this folder:\n  %s\n\n",
                     nd_path_base(nd_model_path(reducer->model)),
                     reducer->options->has_difference ? "differs" : "fails in the same way", out->command);
    nd_strbuf_printf(&text, "device: %s\nchipset: %s\nruntime: %s\n", out->device, out->chipset, out->runtime);
    if (reducer->options->has_difference) {
        put_difference(&text, "the whole model", &out->difference);
        put_difference(&text, "this part", &out->left_difference);
    } else {
        put_failure(&text, &out->failure);
    }
    nd_strbuf_printf(&text, "\n%zu of %zu operators are left (without quantisation):\n", out->n_operators_left,
                     out->n_operators);
    for (size_t i = 0; i < out->n_operators_left; i++)
        nd_strbuf_printf(&text, "  %s\n", out->operators[i]);
    nd_strbuf_puts(&text, "It was cut at:\n");
    put_ends(&text, candidate->model);
    put_inputs(&text, out, candidate);
    if (!out->is_confirm_known)
        nd_strbuf_puts(&text, "It was not run a second time: there was no session left.\n");
    else if (out->is_confirmed)
        nd_strbuf_puts(&text, "A second run of it did the same.\n");
    else
        nd_strbuf_puts(&text, "A second run of it did NOT do the same: it does not happen every time.\n");
    nd_strbuf_printf(&text, "%s%zu of at most %zu sessions were used.\n",
                     out->is_minimal ? "No part of it could be left out. "
                                     : "The search ended early: a smaller part may do. ",
                     out->n_sessions, out->session_limit);
    nd_strbuf_printf(&text, "model: SHA-256 %s\nnpudiff %s\n", nd_model_sha256(reducer->model), nd_version());
    size_t n = text.len;
    ND_FREED char *whole = nd_strbuf_take(&text);
    ND_TRY_MEMORY(whole != NULL, err);
    return nd_file_put(path, whole, n, err);
}

/* What was found: run once more, and put into a folder with all that reproduces it. */

/* ---- what is in it ---- */

static enum nd_status list_operators(struct nd_reduction *out, const struct nd_model *model,
                                     struct nd_error *err)
{
    size_t n = nd_model_n_nodes(model);
    out->operators = nd_calloc(n, sizeof *out->operators);
    ND_TRY_MEMORY(out->operators != NULL, err);
    for (size_t i = 0; i < n; i++) {
        if (!nd_node_is_operator(model, i))
            continue;
        char *text = nd_text("%s '%s'", nd_model_node(model, i)->op_type, nd_model_node(model, i)->name);
        ND_TRY_MEMORY(text != NULL, err);
        out->operators[out->n_operators_left++] = text;
    }
    return ND_OK;
}

/* In the folder of the reproducer. URIs may hold what a shell would take, but no quotes. */
static enum nd_status make_command(struct nd_reducer *reducer, const struct nd_smaller_model *candidate,
                                   struct nd_error *err)
{
    struct nd_strbuf text = {0};
    const char *probe = nd_model_n_inputs(candidate->model) > 0 ? "inputs=inputs.npz" : "zeros";
    bool has_difference = reducer->options->has_difference;
    nd_strbuf_printf(&text, "npudiff capture reproducer.onnx -d '%s' -p %s --tensors %s%s -o again.h5",
                     reducer->device->uri, probe,
                     has_difference ? "outputs" : nd_reducer_plain_tensors(reducer),
                     reducer->options->allow_fallback ? " --allow-fallback" : "");
    if (has_difference)
        nd_strbuf_puts(&text, " && npudiff compare reference.h5 again.h5");
    reducer->out->command = nd_strbuf_take(&text);
    return reducer->out->command != NULL ? ND_OK : nd_fail_memory(err);
}

/* ---- once more ---- */

/* The reproducer on a reference: what it should give. It may well be that nobody can run it. */
static enum nd_status expect(struct nd_reducer *reducer, const struct nd_smaller_model *candidate,
                             struct nd_error *err)
{
    const struct nd_device *device = reducer->reference != NULL ? reducer->reference : &reducer->cpu;
    ND_CLEANUP(nd_run_deinit) struct nd_run run = {0};
    struct nd_error problem = {0};
    const struct nd_session session = nd_candidate_session(candidate, device, "outputs", "reference.h5");
    ND_FREED char *path = nd_path_join(candidate->folder, "reference.h5");
    ND_TRY_MEMORY(path != NULL, err);
    enum nd_status status = ND_OK;
    if (!nd_path_exists(path) && reducer->out->n_sessions < reducer->options->session_limit)
        status = nd_reducer_run(reducer, &session, &run, &problem);
    if (status != ND_OK && problem.id != ND_E_CANCELLED)
        status = ND_OK;
    else if (status != ND_OK && err != NULL)
        *err = problem;
    return status;
}

/* "SM8350.h5": the label as far as a file name should hold it. */
static enum nd_status name_capture(const struct nd_reducer *reducer, const struct nd_smaller_model *candidate,
                                   struct nd_error *err)
{
    char name[64];
    size_t n = 0;
    for (const char *at = reducer->device->label; *at != '\0' && n < sizeof name - 4; at++)
        name[n++] = isalnum((unsigned char)*at) || strchr("._@-", *at) != NULL ? *at : '-';
    memcpy(name + n, ".h5", 4);
    ND_FREED char *from = nd_path_join(candidate->folder, "device.h5"),
                  *to = nd_path_join(candidate->folder, name);
    ND_TRY_MEMORY(from != NULL && to != NULL, err);
    if (strcmp(name, "reference.h5") != 0 && nd_path_exists(from) && rename(from, to) != 0)
        return nd_fail(err, ND_E_FILE_WRITE, to, "cannot write '%s': %s", to, strerror(errno));
    return ND_OK;
}

/* ---- its place ---- */

static enum nd_status publish(const struct nd_reducer *reducer, struct nd_error *err)
{
    const char *folder = reducer->options->folder;
    ND_FREED char *old = nd_text("%s.old", reducer->staging);
    ND_TRY_MEMORY(old != NULL, err);
    bool is_moved = reducer->options->replace && rename(folder, old) == 0;
    enum nd_status status = nd_dir_publish(reducer->staging, folder, err);
    if (is_moved && status == ND_OK)
        nd_dir_remove(old);
    else if (is_moved && rename(old, folder) != 0)
        nd_error_context(err, "what was in '%s' is now in '%s'", folder, old);
    return status;
}

/* Runs what was found once more, and puts the reproducer into its folder. */
static enum nd_status nd_reducer_finish(struct nd_reducer *reducer, struct nd_error *err)
{
    ND_CLEANUP(nd_candidate_deinit) struct nd_smaller_model candidate = {0};
    enum nd_trial trial = ND_TRIAL_STOP;
    ND_FREED size_t *nodes = NULL;
    size_t n_nodes = 0;
    ND_FREED char *readme = NULL, *folder = reducer->staging != NULL ? nd_strdup(reducer->staging)
                                                                     : nd_path_join(reducer->folder, "found");
    reducer->step = "confirm";
    ND_TRY_MEMORY(folder != NULL, err);
    ND_TRY(nd_pieces_nodes(&reducer->pieces, reducer->left, reducer->n_left, &nodes, &n_nodes, err));
    ND_TRY(nd_candidate_init(&candidate, reducer, &(struct nd_model_cut){.nodes = nodes, .n_nodes = n_nodes},
                             folder, err));
    ND_TRY(list_operators(reducer->out, candidate.model, err));
    ND_TRY(make_command(reducer, &candidate, err));
    enum nd_status status =
        nd_candidate_try(reducer, &candidate, 0, &trial, &reducer->out->left_difference, err);
    reducer->out->is_confirm_known = trial != ND_TRIAL_STOP;
    reducer->out->is_confirmed = trial == ND_TRIAL_SAME;
    ND_TRY(status);
    if (reducer->staging != NULL)
        ND_TRY(expect(reducer, &candidate, err));
    ND_TRY(name_capture(reducer, &candidate, err));
    readme = nd_path_join(folder, "README.txt");
    ND_TRY_MEMORY(readme != NULL, err);
    ND_TRY(nd_reducer_write_readme(reducer, &candidate, readme, err));
    return reducer->staging != NULL ? publish(reducer, err) : ND_OK;
}

/* The whole model: what is wrong with it, and what a reference makes of it. */

static enum nd_status run_whole(struct nd_reducer *reducer, const struct nd_device *device, const char *tensors,
                                struct nd_run *run, struct nd_error *err)
{
    const struct nd_session session = {.model = reducer->model,
                                       .device = device,
                                       .probes = reducer->recorded.probes,
                                       .n_probes = reducer->recorded.n_probes,
                                       .tensors = tensors,
                                       .folder = reducer->folder,
                                       .name = "whole.h5"};
    return nd_reducer_run(reducer, &session, run, err);
}

/* ---- recording ---- */

static enum nd_status record_with(struct nd_reducer *reducer, const struct nd_device *device,
                                  struct nd_error *err)
{
    ND_CLEANUP(nd_run_deinit) struct nd_run run = {0};
    struct nd_error problem = {0};
    enum nd_status status = run_whole(reducer, device, "all", &run, &problem);
    if (status == ND_OK && !run.outcome.has_failed && run.capture != NULL) {
        reducer->reference = device;
        snprintf(reducer->out->inputs, sizeof reducer->out->inputs, "%s", nd_device_kind_name(device->kind));
        status = nd_recorded_add(&reducer->recorded, &run.capture, false, err);
    } else if (status == ND_ERR_USAGE || status == ND_ERR_UNSUPPORTED || status == ND_ERR_FORMAT ||
               status == ND_ERR_NOT_FOUND) {
        /* A device that is not for such models is no trouble: there is another one. */
        status = ND_OK;
        reducer->out->n_sessions--; /* no agent was started */
    } else if (status != ND_OK && err != NULL) {
        *err = problem;
    }
    return status;
}

/* Runs a reference over the whole model and keeps what it recorded. */
static enum nd_status nd_reducer_record(struct nd_reducer *reducer, struct nd_error *err)
{
    const struct nd_reduce_options *options = reducer->options;
    /* A difference from the quantised reference is held against its codes, so its codes are what is fed. */
    const struct nd_device *first = &reducer->cpu, *second = &reducer->exact;
    if (options->has_difference) {
        first = options->against != NULL ? options->against : &reducer->exact;
        second = NULL;
    }
    reducer->step = "reference";
    ND_TRY(record_with(reducer, first, err));
    if (reducer->reference == NULL && second != NULL)
        ND_TRY(record_with(reducer, second, err));
    if (reducer->reference == NULL && options->has_difference)
        return nd_fail(err, ND_E_REDUCE_REFERENCE, nd_model_path(reducer->model),
                       "'%s' cannot run '%s', so nothing can differ from it", first->label,
                       nd_model_path(reducer->model));
    if (reducer->reference == NULL)
        snprintf(reducer->out->inputs, sizeof reducer->out->inputs, "zeros");
    return ND_OK;
}

/* ---- what is wrong ---- */

static bool is_looked_at(const struct nd_reducer *reducer, const struct nd_tensor *tensor)
{
    return reducer->wanted_tensor != NULL ? strcmp(tensor->onnx_name, reducer->wanted_tensor) == 0
                                          : tensor->is_model_output;
}

/* The first tensor that is off by more than asked for is where to look first; the worst that is looked at is
 * what has to be seen again. */
static enum nd_status examine_tensors(struct nd_reducer *reducer, const struct nd_capture *capture,
                                      unsigned *score, struct nd_reduction_difference *inner,
                                      struct nd_error *err)
{
    const struct nd_graph *graph = &reducer->model->graph;
    struct nd_reduction_difference *worst = &reducer->out->difference;
    bool has_first = false, has_worst = false;
    *worst = *inner = (struct nd_reduction_difference){.max_lsb = NAN};
    for (size_t e = 0; e < nd_capture_n_tensors(capture); e++) {
        struct nd_reduction_difference one;
        const struct nd_tensor *tensor = nd_capture_tensor(capture, e);
        ND_TRY(nd_difference_of_tensor(&reducer->recorded, capture, e, false, &one, err));
        if (isnan(one.fraction))
            continue;
        if (is_looked_at(reducer, tensor) && (!has_worst || nd_difference_is_worse(&one, worst))) {
            *worst = one;
            has_worst = true;
        }
        if (nd_difference_is_worse(&one, inner))
            *inner = one;
        size_t item = nd_names_find(&graph->names, tensor->onnx_name);
        if (!has_first && nd_difference_exceeds(&one, reducer->options) && item != ND_NO_INDEX &&
            graph->tensors[item].producer != ND_NO_INDEX) {
            score[graph->tensors[item].producer] = ND_FAILURE_BEST_SCORE;
            has_first = true;
        }
    }
    return ND_OK;
}

static enum nd_status find_difference(struct nd_reducer *reducer, const struct nd_run *run, unsigned *score,
                                      struct nd_error *err)
{
    struct nd_reduction_difference inner = {.max_lsb = NAN};
    enum nd_status status = examine_tensors(reducer, run->capture, score, &inner, err);
    if (status != ND_OK || nd_difference_exceeds(&reducer->out->difference, reducer->options))
        return status;
    reducer->out->end = ND_REDUCTION_NOTHING;
    reducer->out->left_difference = inner;
    return ND_OK;
}

/* The whole model: sets what is to be seen again, out->end where there is nothing to do, and score[node]. */
static enum nd_status nd_reducer_try_whole(struct nd_reducer *reducer, unsigned *score, struct nd_error *err)
{
    bool has_difference = reducer->options->has_difference;
    ND_CLEANUP(nd_run_deinit) struct nd_run run = {0};
    reducer->step = "whole model";
    ND_TRY(run_whole(reducer, reducer->device, has_difference ? "all" : nd_reducer_plain_tensors(reducer), &run,
                     err));
    if (run.outcome.has_failed) {
        nd_failure_read(&run.outcome, run.capture, &reducer->out->failure);
        if (strcmp(run.outcome.stage, "load") == 0)
            reducer->out->end = ND_REDUCTION_NO_MODEL;
        else if (has_difference)
            return nd_fail(err, ND_E_REDUCE_REFERENCE, reducer->device->label,
                           "device '%s' fails on the whole model, which is no difference: %s",
                           reducer->device->label, reducer->out->failure.message);
        else
            return nd_failure_score_nodes(reducer->model, &reducer->out->failure, run.capture, score, err);
    } else if (has_difference) {
        return find_difference(reducer, &run, score, err);
    } else {
        reducer->out->end = ND_REDUCTION_NOTHING;
    }
    return ND_OK;
}

void nd_reduce_options_init_sized(struct nd_reduce_options *options, size_t struct_size)
{
    const struct nd_reduce_options own = {
        .session_limit = 60, .n_samples = 4, .lsb = NAN, .fraction = NAN, .time_limit_s = 300};
    nd_options_write(options, struct_size, &own, sizeof own);
}

void nd_reduction_destroy(struct nd_reduction **reduction)
{
    struct nd_reduction *old = *reduction;
    if (old == NULL)
        return;
    ND_FREE_ITEMS(old->operators, old->n_operators_left);
    ND_FREE_ALL(old->device, old->chipset, old->runtime, old->command, old);
    *reduction = NULL;
}

/* ---- before anything runs ---- */

static enum nd_status check_options(const struct nd_reduce_options *options, struct nd_error *err)
{
    if (options->session_limit < ND_REDUCE_MIN_SESSIONS)
        return nd_fail(err, ND_E_OPTION_VALUE, NULL, "a reduction needs at least %d sessions, not %zu",
                       ND_REDUCE_MIN_SESSIONS, options->session_limit);
    if (options->n_samples < 1 || options->n_samples > ND_REDUCE_MAX_SAMPLES)
        return nd_fail(err, ND_E_OPTION_VALUE, NULL, "1 to %d samples can be fed, not %zu",
                       ND_REDUCE_MAX_SAMPLES, options->n_samples);
    if (options->has_difference && isnan(options->lsb) && isnan(options->fraction))
        return nd_fail(err, ND_E_OPTION_CONFLICT, NULL, "a difference needs an amount");
    if (!options->has_difference && (options->tensor != NULL || options->against != NULL))
        return nd_fail(err, ND_E_OPTION_CONFLICT, NULL,
                       "a tensor, and a device to compare with, are for differences only");
    return ND_OK;
}

/* A folder is only replaced when it is empty or one of ours: what else is in it is nobody's to remove. */
static bool is_replaceable(const char *folder)
{
    struct stat info;
    char *model = nd_path_join(folder, "reproducer.onnx"), *readme = nd_path_join(folder, "README.txt");
    bool is_ours = model != NULL && readme != NULL && nd_path_exists(model) && nd_path_exists(readme);
    ND_FREE_ALL(model, readme);
    if (is_ours)
        return lstat(folder, &info) == 0 && S_ISDIR(info.st_mode);
    return rmdir(folder) == 0 && mkdir(folder, 0777) == 0; /* which it lets happen to empty ones alone */
}

static enum nd_status make_staging(struct nd_reducer *reducer, struct nd_error *err)
{
    const char *folder = reducer->options->folder;
    if (folder == NULL)
        return ND_OK;
    if (nd_path_exists(folder) && !reducer->options->replace)
        return nd_fail(err, ND_E_FILE_EXISTS, folder, "'%s' exists already", folder);
    if (nd_path_exists(folder) && !is_replaceable(folder))
        return nd_fail(err, ND_E_FILE_EXISTS, folder,
                       "'%s' exists already and is not the folder of a reproducer: it is not replaced", folder);
    size_t n = strlen(folder);
    while (n > 1 && folder[n - 1] == '/')
        n--;
    ND_FREED char *parent = nd_path_dir(folder);
    ND_FREED char *staging = nd_text("%.*s.tmp-%ld", (int)n, folder, (long)getpid());
    ND_TRY_MEMORY(parent != NULL && staging != NULL, err);
    ND_TRY(nd_dir_make(parent, err));
    if (mkdir(staging, 0777) != 0)
        return nd_fail(err, ND_E_FILE_WRITE, folder, "cannot create '%s': %s", staging, strerror(errno));
    return ND_GIVE(&reducer->staging, staging);
}

static enum nd_status find_wanted(struct nd_reducer *reducer, struct nd_error *err)
{
    const char *name = reducer->options->tensor;
    reducer->wanted_node = SIZE_MAX;
    for (size_t e = 0; name != NULL && e < nd_model_n_tensors(reducer->model); e++) {
        const struct nd_tensor *tensor = nd_model_tensor(reducer->model, e);
        if (strcmp(tensor->name, name) != 0)
            continue;
        size_t item = nd_names_find(&reducer->model->graph.names, tensor->onnx_name);
        reducer->wanted_tensor = tensor->onnx_name;
        reducer->wanted_node = reducer->model->graph.tensors[item].producer;
    }
    if (name != NULL && reducer->wanted_node == SIZE_MAX)
        return nd_fail(err, ND_E_MODEL_NO_TENSOR, name, "'%s' makes no tensor '%s'",
                       nd_model_path(reducer->model), name);
    return ND_OK;
}

static enum nd_status parse_references(struct nd_reducer *reducer, struct nd_error *err)
{
    const struct nd_runtime_info *runtime = &reducer->device->runtime;
    struct nd_strbuf text = {0};
    nd_strbuf_puts(&text, "cpu");
    /* An emulated device has npudiff's own version there, which is no runtime that a CPU could have. */
    if (runtime->id != NULL && runtime->id[0] != '\0' && runtime->ort_library != NULL &&
        runtime->ort_library[0] != '\0')
        nd_strbuf_printf(&text, "@%s", runtime->id);
    ND_FREED char *uri = nd_strbuf_take(&text);
    ND_TRY(uri != NULL ? nd_device_parse(uri, &reducer->cpu, err) : nd_fail_memory(err));
    return nd_device_parse("exact", &reducer->exact, err);
}

static enum nd_status describe(struct nd_reducer *reducer, struct nd_error *err)
{
    const struct nd_device *device = reducer->device;
    struct nd_reduction *out = reducer->out;
    out->difference.max_lsb = out->left_difference.max_lsb = NAN;
    out->session_limit = reducer->options->session_limit;
    out->device = nd_strdup(device->uri);
    out->chipset = nd_strdup(device->chipset != NULL ? device->chipset->sm : "");
    out->runtime = nd_strdup(device->runtime.id != NULL ? device->runtime.id : "");
    for (size_t n = 0; n < nd_model_n_nodes(reducer->model); n++)
        out->n_operators += nd_node_is_operator(reducer->model, n);
    for (size_t p = 0; p < reducer->recorded.n_probes; p++)
        out->n_samples += reducer->recorded.probes[p]->n_samples;
    if (out->n_samples > reducer->options->n_samples)
        out->n_samples = reducer->options->n_samples;
    reducer->recorded.n_samples = out->n_samples;
    return out->device != NULL && out->chipset != NULL && out->runtime != NULL ? ND_OK : nd_fail_memory(err);
}

/* ---- the reduction ---- */

static enum nd_status work(struct nd_reducer *reducer, struct nd_error *err)
{
    struct nd_reduction *out = reducer->out;
    bool has_difference = reducer->options->has_difference;
    ND_FREED unsigned *score = nd_calloc(nd_model_n_nodes(reducer->model), sizeof *score);
    ND_TRY_MEMORY(score != NULL, err);
    out->end = ND_REDUCTION_REDUCED;
    /* A difference is from what was recorded; of a failure the whole model comes first, as it may not fail. */
    if (has_difference)
        ND_TRY(nd_reducer_record(reducer, err));
    ND_TRY(nd_reducer_try_whole(reducer, score, err));
    bool has_work = out->end == ND_REDUCTION_REDUCED;
    if (has_work && !has_difference)
        ND_TRY(nd_reducer_record(reducer, err));
    if (has_work)
        ND_TRY(nd_reducer_search(reducer, score, err));
    if (has_work && out->n_same == 0)
        out->end = ND_REDUCTION_WHOLE;
    return has_work && out->n_same > 0 ? nd_reducer_finish(reducer, err) : ND_OK;
}

/* default_probe: what is fed where the workload has no probes. */
static enum nd_status reduce(struct nd_reducer *reducer, struct nd_probe **default_probe, struct nd_error *err)
{
    const char *zeros[] = {"zeros"};
    ND_TRY(check_options(reducer->options, err));
    ND_TRY(nd_model_check_static(reducer->model, err));
    if (reducer->recorded.n_probes == 0) {
        ND_TRY(nd_probes_for_model(reducer->model, zeros, 1, default_probe, err));
        reducer->recorded.probes = (const struct nd_probe *const *)default_probe;
        reducer->recorded.n_probes = 1;
    }
    ND_TRY(describe(reducer, err));
    ND_TRY(find_wanted(reducer, err));
    ND_TRY(parse_references(reducer, err));
    ND_TRY(make_staging(reducer, err));
    ND_TRY(nd_dir_make_temporary(&reducer->folder, err));
    return work(reducer, err);
}

enum nd_status nd_reduce(const struct nd_workload *workload, const struct nd_reduce_options *options,
                         struct nd_reduction **out, struct nd_error *err)
{
    struct nd_reduce_options own;
    nd_reduce_options_init(&own);
    ND_TRY(nd_options_read(&own, sizeof own, options, err));
    struct nd_reducer reducer = {.model = workload->model,
                                 .device = workload->device,
                                 .options = &own,
                                 .out = nd_calloc(1, sizeof *reducer.out),
                                 .recorded = {.probes = workload->probes, .n_probes = workload->n_probes},
                                 .start_ns = nd_clock_ns()};
    ND_CLEANUP(nd_probe_destroy) struct nd_probe *default_probe = NULL;
    ND_TRY_MEMORY(reducer.out != NULL, err);
    enum nd_status status = reduce(&reducer, &default_probe, err);
    reducer.out->elapsed_s = (double)(nd_clock_ns() - reducer.start_ns) / 1e9;
    nd_dir_remove(reducer.folder);
    nd_dir_remove(reducer.staging);
    nd_recorded_deinit(&reducer.recorded);
    nd_pieces_deinit(&reducer.pieces);
    nd_trials_deinit(&reducer.trials);
    nd_device_deinit(&reducer.cpu);
    nd_device_deinit(&reducer.exact);
    ND_FREE_ALL(reducer.left, reducer.folder, reducer.staging);
    if (status != ND_OK)
        nd_reduction_destroy(&reducer.out);
    else
        *out = reducer.out;
    return status;
}
