/* Captured tensors that show what a later layer wrote into their buffer. Runtimes use buffers of intermediate
 * tensors again; where such a tensor is declared an output, its capture holds another tensor, and neither the
 * layer that made it nor those that read it did anything wrong. */
#include <math.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/text/strbuf.h"
#include "explain/diagnosis/diagnosis.h"
#include "explain/stages.h"

/* Different samples that the tensor must have, as constant tensors are equal by chance; chosen. */
enum { FEWEST_SAMPLES = 2 };
/* Values that must be equal in all samples together; chosen: that many bytes are equal by chance in one of
 * 2^512 cases. */
enum { FEWEST_VALUES = 64 };
/* Of the values of a layer, from which share on they are plainly not what its inputs give; chosen: the values
 * of two tensors that have nothing to do with one another differ nearly everywhere. */
static const double plainly_off = 0.5;
/* LSB of 8 and of 16 bits that arithmetic nobody knows may be off by (accuse.c). */
static const double of_rounding = 2, of_rounding_wide = 512;

/* The device that is looked at. */
struct device {
    const struct nd_plan *plan;
    const struct nd_plan_source *source;
    struct nd_explained_unit *units; /* [n_steps] */
};

/* Whether the layer's values are none that its inputs give, in the captured form of both. */
static bool is_off(const struct device *device, size_t step)
{
    const struct nd_explained_unit *unit = &device->units[step];
    bool is_wide = nd_plan_is_wide(device->plan, step);
    return unit->is_examined && unit->local.max > (is_wide ? of_rounding_wide : of_rounding) &&
           (double)unit->local.n_differing > plainly_off * (double)unit->n_codes;
}

static struct nd_digest digest_of(const struct nd_plan_source *source, size_t step, size_t sample)
{
    return nd_capture_digest(source->capture, source->probe, source->edges[step], sample, 0);
}

/* Whether both hold the same bytes in every sample, and not one sample throughout. */
static bool is_same(const struct device *device, size_t a, size_t b)
{
    const struct nd_plan_source *source = device->source;
    size_t n_different = device->plan->n_samples > 0;
    if (source->edges[a] == SIZE_MAX || source->edges[b] == SIZE_MAX ||
        source->sample_bytes[a] != source->sample_bytes[b] ||
        nd_plan_edge(device->plan, a)->dtype != nd_plan_edge(device->plan, b)->dtype)
        return false;
    for (size_t i = 0; i < device->plan->n_samples; i++) {
        if (!nd_digest_equal(digest_of(source, a, i), digest_of(source, b, i)))
            return false;
        n_different += i > 0 && !nd_digest_equal(digest_of(source, a, i), digest_of(source, a, i - 1));
    }
    return n_different >= FEWEST_SAMPLES && device->units[a].n_codes >= FEWEST_VALUES;
}

static bool reads(const struct nd_plan *plan, size_t step, size_t edge)
{
    const struct nd_model_unit *unit = nd_plan_unit(plan, step);
    for (size_t i = 0; unit != NULL && i < unit->n_inputs; i++)
        if (unit->inputs[i] == edge)
            return true;
    return false;
}

/* A layer that makes of the captured values what it should has read them: then they are the tensor's own, and a
 * later tensor that equals it is a copy. */
static bool was_read_as_shown(const struct device *device, size_t step)
{
    for (size_t s = step + 1; s < device->plan->n_steps; s++)
        if (device->units[s].is_examined && reads(device->plan, s, device->plan->steps[step].edge) &&
            !is_off(device, s))
            return true;
    return false;
}

/* The first later layer whose values the tensor holds, and which is in order itself, as far as the capture
 * shows what it read: one that works in place writes over its own input. SIZE_MAX: none. */
static size_t find_writer(const struct device *device, size_t step)
{
    const struct nd_explained_unit *units = device->units;
    if (!device->plan->steps[step].is_unit || !is_off(device, step))
        return SIZE_MAX;
    for (size_t s = step + 1; s < device->plan->n_steps; s++)
        if (units[s].is_examined &&
            (!is_off(device, s) || reads(device->plan, s, device->plan->steps[step].edge)) &&
            is_same(device, step, s))
            return was_read_as_shown(device, step) ? SIZE_MAX : s;
    return SIZE_MAX;
}

static enum nd_status name_writer(const struct device *device, size_t step, size_t writer, struct nd_error *err)
{
    struct nd_explained_unit *unit = &device->units[step];
    struct nd_strbuf text = {0}, evidence = {0};
    nd_strbuf_printf(
        &text, "holds the values of '%s': a later layer wrote into its buffer, and the capture shows that",
        device->plan->steps[writer].name);
    nd_strbuf_printf(&evidence,
                     "in all %zu samples its values are those of '%s', bit for bit, and %.3g%% of them are not "
                     "what its own inputs give; the network itself may be right",
                     device->plan->n_samples, device->plan->steps[writer].name,
                     100 * (double)unit->local.n_differing / (double)unit->n_codes);
    unit->fault = (struct nd_explained_fault){.kind = nd_fault_name(ND_FAULT_REUSED_BUFFER),
                                              .text = nd_strbuf_take(&text),
                                              .channel = SIZE_MAX,
                                              .explained = 1};
    unit->evidence = nd_strbuf_take(&evidence);
    unit->certainty = ND_CERTAINTY_PROVEN;
    unit->harm = unit->harmed_share = NAN; /* nothing read it */
    return unit->fault.text != NULL && unit->evidence != NULL ? ND_OK : nd_fail_memory(err);
}

/* What it made cannot be worked out from another tensor's values. */
static enum nd_status leave_reader(const struct device *device, size_t step, const char *input,
                                   struct nd_error *err)
{
    struct nd_explained_unit *unit = &device->units[step];
    struct nd_strbuf why = {0};
    if (!unit->is_examined || unit->fault.kind != NULL)
        return ND_OK;
    nd_strbuf_printf(&why, "the capture of '%s', which it reads, shows what a later layer wrote", input);
    unit->is_examined = false;
    unit->harm = unit->harmed_share = NAN;
    unit->why_not = nd_strbuf_take(&why);
    return unit->why_not != NULL ? ND_OK : nd_fail_memory(err);
}

enum nd_status nd_explain_find_reused(const struct nd_plan *plan, size_t device, struct nd_explanation *out,
                                      struct nd_error *err)
{
    const struct device looked_at = {plan, &plan->sources[device], out->devices[device].units};
    enum nd_status status = ND_OK;
    for (size_t s = 0; s < plan->n_steps && status == ND_OK; s++) {
        size_t writer = find_writer(&looked_at, s);
        if (writer != SIZE_MAX)
            status = name_writer(&looked_at, s, writer, err);
    }
    for (size_t s = 0; s < plan->n_steps && status == ND_OK; s++)
        for (size_t r = s + 1; r < plan->n_steps && status == ND_OK && looked_at.units[s].fault.kind != NULL;
             r++)
            if (reads(plan, r, plan->steps[s].edge))
                status = leave_reader(&looked_at, r, plan->steps[s].name, err);
    return status;
}
