/* README.txt of a reproducer: all that somebody needs who gets the folder and nothing else. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/files/file.h"
#include "core/files/new_file.h"
#include "core/text/strbuf.h"
#include "improve/reduce/reducer.h"

static void put_difference(struct nd_strbuf *out, const char *what,
                           const struct nd_reduction_difference *difference)
{
    nd_strbuf_printf(out, "%s: ", what);
    if (difference->edge[0] == '\0') {
        nd_strbuf_puts(out, "nothing differs\n");
        return;
    }
    nd_strbuf_printf(out, "'%s' differs in %.4g %% of its elements", difference->edge,
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

static void put_confirmation(struct nd_strbuf *out, const struct nd_reduction *reduction)
{
    if (!reduction->is_confirm_known)
        nd_strbuf_puts(out, "It was not run a second time: there was no session left.\n");
    else if (reduction->is_confirmed)
        nd_strbuf_puts(out, "A second run of it did the same.\n");
    else
        nd_strbuf_puts(out, "A second run of it did NOT do the same: it does not happen every time.\n");
}

static void put_inputs(struct nd_strbuf *out, const struct nd_reduction *reduction,
                       const struct nd_candidate *candidate)
{
    if (strcmp(reduction->inputs, "zeros") == 0)
        nd_strbuf_puts(out, "No reference could run the whole model; what is not an input of it is zero.\n");
    else
        nd_strbuf_printf(out,
                         "The inputs are what '%s' had there when it ran the whole model (%zu samples)%s.\n",
                         reduction->inputs, reduction->n_samples,
                         candidate->is_all_recorded ? "" : "; what it did not hand out is zero");
}

enum nd_status nd_reducer_write_readme(const struct nd_reducer *reducer, const struct nd_candidate *candidate,
                                       const char *path, struct nd_error *err)
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
    put_confirmation(&text, out);
    nd_strbuf_printf(&text, "%s%zu of at most %zu sessions were used.\n",
                     out->is_minimal ? "No part of it could be left out. "
                                     : "The search ended early: a smaller part may do. ",
                     out->n_sessions, out->session_limit);
    nd_strbuf_printf(&text, "model: SHA-256 %s\nnpudiff %s\n", nd_model_sha256(reducer->model), nd_version());
    size_t n = text.len;
    char *whole = nd_strbuf_take(&text);
    if (whole == NULL)
        return nd_fail_memory(err);
    enum nd_status status = nd_file_put(path, whole, n, err);
    free(whole);
    return status;
}
