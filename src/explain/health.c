#include "explain/health.h"

#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/strbuf.h"

/* ---- words ---- */

const char *nd_health_name(enum nd_health health)
{
    static const char *const names[] = {[ND_HEALTH_HEALTHY] = "healthy",
                                        [ND_HEALTH_INCONCLUSIVE] = "inconclusive",
                                        [ND_HEALTH_UNEXPLAINED] = "unexplained",
                                        [ND_HEALTH_FAULTY] = "faulty",
                                        [ND_HEALTH_FAILED] = "failed"};
    return names[health];
}

enum nd_exit nd_health_exit_code(enum nd_health health)
{
    static const enum nd_exit codes[] = {[ND_HEALTH_HEALTHY] = ND_EXIT_SAME,
                                         [ND_HEALTH_INCONCLUSIVE] = ND_EXIT_INCONCLUSIVE,
                                         [ND_HEALTH_UNEXPLAINED] = ND_EXIT_DIFFERS,
                                         [ND_HEALTH_FAULTY] = ND_EXIT_DIFFERS,
                                         [ND_HEALTH_FAILED] = ND_EXIT_DEVICE_FAILED};
    return codes[health];
}

const char *nd_layer_state_name(enum nd_layer_state state)
{
    static const char *const names[] = {[ND_LAYER_NOT_EXAMINED] = "not-examined",
                                        [ND_LAYER_FOLLOWS] = "follows",
                                        [ND_LAYER_UNEXPLAINED] = "unexplained",
                                        [ND_LAYER_FAULTY] = "faulty"};
    return names[state];
}

double nd_explain_badness(const struct nd_explained_unit *unit)
{
    return isnan(unit->harm) ? unit->local.energy : unit->harm;
}

/* ---- layers that known arithmetic explains ---- */

/* Of a layer that is examined, or NULL. */
static const char *find_why(const struct nd_explain_job *job, size_t device, size_t step)
{
    const struct nd_explained_unit *unit = &job->out->devices[device].units[step];
    const struct nd_explain_habit *habit = &job->habits[device * job->n_steps + step];
    if (habit->is_suspect)
        return NULL;
    if (unit->local.n_differing == 0)
        return "exact";
    if (unit->program != NULL)
        return "arithmetic";
    if (unit->is_within_step)
        return "float-rounding";
    return NULL;
}

static void settle_layer(struct nd_explain_job *job, size_t device, size_t step)
{
    struct nd_explained_unit *unit = &job->out->devices[device].units[step];
    unit->state = unit->is_examined ? ND_LAYER_UNEXPLAINED : ND_LAYER_NOT_EXAMINED;
    if (!unit->is_examined)
        return;
    unit->why_follows = find_why(job, device, step);
    if (unit->why_follows != NULL)
        unit->state = ND_LAYER_FOLLOWS;
}

bool nd_explain_needs_exam(const struct nd_explain_job *job, size_t device, size_t step)
{
    return job->out->steps[step].is_unit &&
           job->out->devices[device].units[step].state == ND_LAYER_UNEXPLAINED;
}

enum nd_status nd_explain_settle_layers(struct nd_explain_job *job, struct nd_error *err)
{
    (void)err;
    for (size_t d = 0; d < job->n_devices; d++)
        for (size_t s = 0; s < job->n_steps && !job->sources[d].is_failed; s++)
            settle_layer(job, d, s);
    return ND_OK;
}

/* ---- the sum ---- */

/* The worst first; of equals the earlier. */
static void sort_by_effect(const struct nd_explained_device *device, size_t *steps, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        size_t step = steps[i], at = i;
        double badness = nd_explain_badness(&device->units[step]);
        for (; at > 0 && nd_explain_badness(&device->units[steps[at - 1]]) < badness; at--)
            steps[at] = steps[at - 1];
        steps[at] = step;
    }
}

static enum nd_status say_evidence(struct nd_explained_unit *unit, struct nd_error *err)
{
    struct nd_strbuf text = {0};
    if (unit->evidence != NULL || unit->state != ND_LAYER_UNEXPLAINED)
        return ND_OK;
    double share = unit->n_codes > 0 ? 100 * (double)unit->n_unexplained / (double)unit->n_codes : 0;
    nd_strbuf_printf(&text, "%.3g%% of its values differ from known arithmetic; they are off exact rounding by up to %g LSB",
                     share, unit->local.max);
    unit->evidence = nd_strbuf_take(&text);
    return unit->evidence != NULL ? ND_OK : nd_fail_memory(err);
}

static enum nd_health health_of(const struct nd_explained_device *device)
{
    if (device->failure != NULL)
        return ND_HEALTH_FAILED;
    if (device->n_faulty > 0)
        return ND_HEALTH_FAULTY;
    if (device->n_unexplained > 0)
        return ND_HEALTH_UNEXPLAINED;
    return device->n_examined == 0 || device->n_not_examined > 0 ? ND_HEALTH_INCONCLUSIVE : ND_HEALTH_HEALTHY;
}

static enum nd_status sum_up(struct nd_explain_job *job, size_t d, struct nd_error *err)
{
    struct nd_explained_device *device = &job->out->devices[d];
    enum nd_status status = ND_OK;
    device->faulty = nd_calloc(job->n_steps, sizeof *device->faulty);
    device->unexplained = nd_calloc(job->n_steps, sizeof *device->unexplained);
    if (device->faulty == NULL || device->unexplained == NULL)
        return nd_fail_memory(err);
    for (size_t s = 0; s < job->n_steps && device->failure == NULL && status == ND_OK; s++) {
        struct nd_explained_unit *unit = &device->units[s];
        unit->is_faulty = unit->state == ND_LAYER_FAULTY;
        device->n_follow += unit->state == ND_LAYER_FOLLOWS;
        if (unit->state == ND_LAYER_FAULTY)
            device->faulty[device->n_faulty++] = s;
        if (unit->state == ND_LAYER_UNEXPLAINED)
            device->unexplained[device->n_unexplained++] = s;
        status = say_evidence(unit, err);
    }
    sort_by_effect(device, device->faulty, device->n_faulty);
    sort_by_effect(device, device->unexplained, device->n_unexplained);
    device->health = health_of(device);
    return status;
}

enum nd_status nd_explain_find_health(struct nd_explain_job *job, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t d = 0; d < job->n_devices && status == ND_OK; d++) {
        status = sum_up(job, d, err);
        if (job->out->devices[d].health > job->out->health)
            job->out->health = job->out->devices[d].health;
    }
    return status;
}
