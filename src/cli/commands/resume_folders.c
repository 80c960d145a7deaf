/* Which captures --resume continues, keeps, or refuses. */
#include "cli/commands/resume_folders.h"

#include <string.h>
#include <unistd.h>

#include "npudiff/capture/capture.h"

/* The input that the capture holds is the one that is asked for, every sample of it. */
static bool has_input(const struct nd_capture *capture, size_t p, const struct nd_probe_input *input)
{
    const struct nd_capture_probe *probe = nd_capture_probe(capture, p);
    size_t i = 0;
    while (i < probe->n_inputs && strcmp(probe->inputs[i].name, input->name) != 0)
        i++;
    if (i == probe->n_inputs || probe->inputs[i].dtype != input->dtype)
        return false;
    for (size_t s = 0; s < probe->n_samples_expected; s++) {
        const char *bytes = (const char *)input->data + s * input->sample_bytes;
        struct nd_digest here = nd_digest_bytes(bytes, input->sample_bytes);
        struct nd_digest there = nd_capture_input_digest(capture, p, i, s);
        if (here.low != there.low || here.high != there.high)
            return false;
    }
    return true;
}

static bool has_probe(const struct nd_capture *capture, const struct nd_probe *probe, size_t n_repeats)
{
    size_t p = nd_capture_find_probe(capture, probe->name);
    if (p == SIZE_MAX)
        return false;
    const struct nd_capture_probe *there = nd_capture_probe(capture, p);
    bool is_so =
        there->n_samples_expected == probe->n_samples && there->n_repeats == (n_repeats > 0 ? n_repeats : 1);
    for (size_t i = 0; is_so && i < probe->n_inputs; i++)
        is_so = has_input(capture, p, &probe->inputs[i]);
    return is_so;
}

static bool is_text(const struct nd_capture *capture, const char *group, const char *key, const char *wanted)
{
    const char *text = nd_capture_string(capture, group, key);
    return text != NULL && strcmp(text, wanted) == 0;
}

/* Options that change what a capture holds or where it comes from. */
static const char *find_other_option(const struct nd_capture_options *options, const struct nd_capture *capture)
{
    if (is_text(capture, "runtime", "edges_in", "prefixes") != options->prefixes)
        return options->prefixes ? "a run without --prefixes" : "a run with --prefixes";
    if (is_text(capture, "runtime", "store", "digest") != options->store_digests_only)
        return options->store_digests_only ? "whole tensors" : "digests alone";
    if (nd_capture_integer(capture, "runtime", "fallback_allowed", 0) != options->allow_fallback)
        return options->allow_fallback ? "a run without --allow-fallback" : "a run with --allow-fallback";
    return NULL;
}

/* What differs from what is asked for, in words; NULL when nothing does. The URI of a device on another machine
 * names what only that machine knew: there the label counts. */
static const char *find_difference(const struct cli_fleet *fleet, const struct cli_cell *cell,
                                   const struct nd_capture *capture)
{
    bool is_here = cell->device.transport == ND_TRANSPORT_NONE;
    const char *tensors = fleet->options.tensors != NULL ? fleet->options.tensors : "all";
    if (!is_text(capture, "model", "sha256", nd_model_sha256(fleet->model)))
        return "a different model";
    if (is_here ? !is_text(capture, "device", "uri", cell->device.uri)
                : !is_text(capture, "device", "label", cell->device.label))
        return "a different device";
    if (!is_text(capture, "model", "edges", tensors))
        return "other tensors";
    if (nd_capture_n_probes(capture) != fleet->n_probes)
        return "other probes";
    for (size_t p = 0; p < fleet->n_probes; p++)
        if (!has_probe(capture, fleet->probes[p], fleet->options.n_repeats))
            return "other probes";
    return find_other_option(&fleet->options, capture);
}

static size_t count_samples(const struct nd_capture *capture)
{
    size_t n = 0;
    for (size_t p = 0; p < nd_capture_n_probes(capture); p++)
        n += nd_capture_probe(capture, p)->n_samples;
    return n;
}

static void keep(struct cli_cell *cell, const struct nd_capture *capture)
{
    cell->is_kept = true;
    for (size_t p = 0; p < nd_capture_n_probes(capture); p++) {
        cell->outcome.samples_done += nd_capture_probe(capture, p)->n_samples;
        cell->outcome.samples_total += nd_capture_probe(capture, p)->n_samples_expected;
    }
}

/* An error of the command's own, as the library would give it. */
static enum nd_status refuse(const struct cli_cell *cell, const char *difference, bool is_complete,
                             struct nd_error *err)
{
    return cli_error(err, ND_ERR_IO, CLI_E_FILE_EXISTS, cell->path,
                     "'%s' exists already and %s, but of %s; --force overwrites it", cell->path,
                     is_complete ? "is complete" : "holds samples", difference);
}

enum nd_status cli_resume(struct cli_fleet *fleet, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t i = 0; status == ND_OK && i < fleet->n_cells; i++) {
        struct cli_cell *cell = &fleet->cells[i];
        struct nd_capture *capture = NULL;
        if (access(cell->path, F_OK) != 0)
            continue;
        status = nd_capture_open(cell->path, &capture, err);
        if (status != ND_OK)
            break;
        bool is_complete = nd_capture_state(capture) == ND_CAPTURE_COMPLETE;
        /* What failed before its first sample is nothing to lose. */
        const char *difference =
            is_complete || count_samples(capture) > 0 ? find_difference(fleet, cell, capture) : NULL;
        cell->replace = !is_complete;
        if (difference != NULL)
            status = refuse(cell, difference, is_complete, err);
        else if (is_complete)
            keep(cell, capture);
        nd_capture_close(&capture);
    }
    return status;
}
