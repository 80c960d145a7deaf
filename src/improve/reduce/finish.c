/* What was found: run once more, and put into a folder with all that reproduces it. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "core/text/strbuf.h"
#include "model/graph/loaded.h"
#include "improve/reduce/reducer.h"

/* ---- what is in it ---- */

static enum nd_status list_operators(struct nd_reduction *out, const struct nd_model *model,
                                     struct nd_error *err)
{
    size_t n = nd_model_n_nodes(model);
    out->operators = nd_calloc(n, sizeof *out->operators);
    if (out->operators == NULL)
        return nd_fail_memory(err);
    for (size_t i = 0; i < n; i++) {
        struct nd_strbuf text = {0};
        if (!nd_node_is_operator(model, i))
            continue;
        nd_strbuf_printf(&text, "%s '%s'", nd_model_node(model, i)->op_type, nd_model_node(model, i)->name);
        if ((out->operators[out->n_operators_left] = nd_strbuf_take(&text)) == NULL)
            return nd_fail_memory(err);
        out->n_operators_left++;
    }
    return ND_OK;
}

static const char *fallback_flag(const struct nd_reducer *reducer)
{
    return reducer->options->allow_fallback ? " --allow-fallback" : "";
}

/* In the folder of the reproducer. URIs may hold what a shell would take, but no quotes. */
static enum nd_status make_command(struct nd_reducer *reducer, const struct nd_candidate *candidate,
                                   struct nd_error *err)
{
    struct nd_strbuf text = {0};
    const char *probe = nd_model_n_inputs(candidate->model) > 0 ? "inputs=inputs.npz" : "zeros";
    bool has_difference = reducer->options->has_difference;
    nd_strbuf_printf(&text, "npudiff capture reproducer.onnx -d '%s' -p %s --tensors %s%s -o again.h5",
                     reducer->device->uri, probe,
                     has_difference ? "outputs" : nd_reducer_plain_tensors(reducer), fallback_flag(reducer));
    if (has_difference)
        nd_strbuf_puts(&text, " && npudiff compare reference.h5 again.h5");
    reducer->out->command = nd_strbuf_take(&text);
    return reducer->out->command != NULL ? ND_OK : nd_fail_memory(err);
}

/* ---- once more ---- */

/* The reproducer on a reference: what it should give. It may well be that nobody can run it. */
static enum nd_status expect(struct nd_reducer *reducer, const struct nd_candidate *candidate,
                             struct nd_error *err)
{
    const struct nd_device *device = reducer->reference != NULL ? reducer->reference : &reducer->cpu;
    struct nd_run run = {0};
    struct nd_error problem = {0};
    const struct nd_session session = nd_candidate_session(candidate, device, "outputs", "reference.h5");
    char *path = nd_path_join(candidate->folder, "reference.h5");
    if (path == NULL)
        return nd_fail_memory(err);
    enum nd_status status = ND_OK;
    if (!nd_path_exists(path) && reducer->out->n_sessions < reducer->options->session_limit)
        status = nd_reducer_run(reducer, &session, &run, &problem);
    if (status != ND_OK && problem.id != ND_E_CANCELLED)
        status = ND_OK;
    else if (status != ND_OK && err != NULL)
        *err = problem;
    nd_run_deinit(&run);
    free(path);
    return status;
}

/* "SM8350.h5": the label as far as a file name should hold it. */
static enum nd_status name_capture(const struct nd_reducer *reducer, const struct nd_candidate *candidate,
                                   struct nd_error *err)
{
    char name[64];
    size_t n = 0;
    for (const char *at = reducer->device->label; *at != '\0' && n < sizeof name - 4; at++)
        name[n++] = isalnum((unsigned char)*at) || strchr("._@-", *at) != NULL ? *at : '-';
    memcpy(name + n, ".h5", 4);
    char *from = nd_path_join(candidate->folder, "device.h5"), *to = nd_path_join(candidate->folder, name);
    enum nd_status status = from != NULL && to != NULL ? ND_OK : nd_fail_memory(err);
    if (status == ND_OK && strcmp(name, "reference.h5") != 0 && nd_path_exists(from) && rename(from, to) != 0)
        status = nd_fail(err, ND_E_FILE_WRITE, to, "cannot write '%s': %s", to, strerror(errno));
    free(from);
    free(to);
    return status;
}

/* ---- its place ---- */

static enum nd_status publish(const struct nd_reducer *reducer, struct nd_error *err)
{
    const char *folder = reducer->options->folder;
    struct nd_strbuf text = {0};
    nd_strbuf_printf(&text, "%s.old", reducer->staging);
    char *old = nd_strbuf_take(&text);
    if (old == NULL)
        return nd_fail_memory(err);
    bool is_moved = reducer->options->replace && rename(folder, old) == 0;
    enum nd_status status = nd_dir_publish(reducer->staging, folder, err);
    if (is_moved && status == ND_OK)
        nd_dir_remove(old);
    else if (is_moved && rename(old, folder) != 0)
        nd_error_context(err, "what was in '%s' is now in '%s'", folder, old);
    free(old);
    return status;
}

enum nd_status nd_reducer_finish(struct nd_reducer *reducer, struct nd_error *err)
{
    struct nd_candidate candidate = {0};
    enum nd_trial trial = ND_TRIAL_STOP;
    size_t *nodes = NULL, n_nodes = 0;
    char *readme = NULL, *folder = reducer->staging != NULL ? nd_strdup(reducer->staging)
                                                            : nd_path_join(reducer->folder, "found");
    reducer->step = "confirm";
    enum nd_status status = folder != NULL ? nd_pieces_nodes(&reducer->pieces, reducer->left, reducer->n_left,
                                                             &nodes, &n_nodes, err)
                                           : nd_fail_memory(err);
    if (status == ND_OK)
        status = nd_candidate_init(&candidate, reducer,
                                   &(struct nd_model_cut){.nodes = nodes, .n_nodes = n_nodes}, folder, err);
    if (status == ND_OK)
        status = list_operators(reducer->out, candidate.model, err);
    if (status == ND_OK)
        status = make_command(reducer, &candidate, err);
    if (status == ND_OK)
        status = nd_candidate_try(reducer, &candidate, 0, &trial, &reducer->out->left_difference, err);
    reducer->out->is_confirm_known = trial != ND_TRIAL_STOP;
    reducer->out->is_confirmed = trial == ND_TRIAL_SAME;
    if (status == ND_OK && reducer->staging != NULL)
        status = expect(reducer, &candidate, err);
    if (status == ND_OK)
        status = name_capture(reducer, &candidate, err);
    readme = status == ND_OK ? nd_path_join(folder, "README.txt") : NULL;
    if (status == ND_OK)
        status =
            readme != NULL ? nd_reducer_write_readme(reducer, &candidate, readme, err) : nd_fail_memory(err);
    if (status == ND_OK && reducer->staging != NULL)
        status = publish(reducer, err);
    nd_candidate_deinit(&candidate);
    free(readme);
    free(nodes);
    free(folder);
    return status;
}
