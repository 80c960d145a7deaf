#include "devices/watch.h"

#include <stdio.h>
#include <string.h>

#include "core/files/file.h"

void nd_watch_begin(struct nd_watch *watch, const struct nd_capture_options *options, const char *label,
                    const char *spool, size_t samples_total, uint64_t begun_ns)
{
    uint64_t now = nd_clock_awake_ns();
    *watch = (struct nd_watch){.options = options,
                               .label = label,
                               .spool = spool,
                               .samples_total = samples_total,
                               .started_ns = now,
                               .begun_ns = begun_ns != 0 ? begun_ns : now,
                               .progress_ns = now,
                               .follower = {.fd = -1},
                               .stage = "load"};
}

void nd_watch_end(struct nd_watch *watch)
{
    nd_spool_follower_close(&watch->follower);
}

/* The stage shown follows from the kinds of record. */
void nd_watch_follow(struct nd_watch *watch)
{
    struct nd_record record;
    while (nd_spool_follow(&watch->follower, watch->spool, &record)) {
        watch->progress_ns = nd_clock_awake_ns();
        if (record.kind == ND_RECORD_ACK) {
            if (record.index[0] != watch->probe)
                watch->samples_before += watch->samples_probe;
            watch->probe = record.index[0];
            watch->samples_probe = record.index[1];
        } else if (record.kind == ND_RECORD_PASS) {
            watch->samples_before += watch->samples_probe;
            watch->samples_probe = 0;
            snprintf(watch->stage, sizeof watch->stage, "session");
        } else if (record.kind == ND_RECORD_NODE) {
            snprintf(watch->stage, sizeof watch->stage, "placement");
        } else if (record.kind == ND_RECORD_OUTPUT || record.kind == ND_RECORD_CHUNK) {
            snprintf(watch->stage, sizeof watch->stage, "run");
        }
    }
}

/* Below 0 where this process was stopped just before `ns` was read, and that was noted afterwards. */
static double seconds_since(uint64_t ns)
{
    return (double)(int64_t)(nd_clock_awake_ns() - ns) * 1e-9;
}

double nd_watch_elapsed_s(const struct nd_watch *watch)
{
    return seconds_since(watch->started_ns);
}

bool nd_watch_has_samples(const struct nd_watch *watch)
{
    return watch->samples_before + watch->samples_probe > 0;
}

bool nd_watch_is_cancelled(const struct nd_watch *watch)
{
    const struct nd_capture_options *options = watch->options;
    return options->is_cancelled != NULL && options->is_cancelled(options->cancel_context);
}

enum nd_status nd_watch_check(const struct nd_watch *watch, size_t resident_bytes, struct nd_error *err)
{
    const struct nd_capture_options *options = watch->options;
    const char *label = watch->label;
    if (nd_watch_is_cancelled(watch))
        return nd_fail(err, ND_E_CANCELLED, label, "device '%s' was stopped on request", label);
    if (options->time_limit_s > 0 && seconds_since(watch->begun_ns) > options->time_limit_s)
        return nd_fail(err, ND_E_DEVICE_TIME, label, "device '%s' was stopped after its time limit of %g s",
                       label, options->time_limit_s);
    if (options->stall_limit_s > 0 && seconds_since(watch->progress_ns) > options->stall_limit_s)
        return nd_fail(err, ND_E_DEVICE_TIME, label, "device '%s' was stopped: no progress for %g s", label,
                       options->stall_limit_s);
    if (options->session_limit_s > 0 && strcmp(watch->stage, "session") == 0 &&
        seconds_since(watch->progress_ns) > options->session_limit_s)
        return nd_fail(err, ND_E_DEVICE_TIME, label,
                       "device '%s' was stopped: its session did not come to be in %.3g s", label,
                       options->session_limit_s);
    if (options->memory_limit_bytes > 0 && resident_bytes > options->memory_limit_bytes)
        return nd_fail(err, ND_E_DEVICE_MEMORY, label,
                       "device '%s' was stopped: %zu MiB resident are over its limit of %zu MiB", label,
                       resident_bytes >> 20, options->memory_limit_bytes >> 20);
    return ND_OK;
}

void nd_watch_report(const struct nd_watch *watch)
{
    const struct nd_capture_options *options = watch->options;
    if (options->progress == NULL)
        return;
    const struct nd_capture_progress progress = {
        .device = watch->label,
        .stage = watch->stage,
        .samples_done = (size_t)(watch->samples_before + watch->samples_probe),
        .samples_total = watch->samples_total,
        .elapsed_s = nd_watch_elapsed_s(watch),
    };
    options->progress(options->progress_context, &progress);
}

void nd_watch_describe_death(const char *label, int exit_code, int signal, struct nd_error *error)
{
    if (signal != 0)
        nd_fail(error, ND_E_DEVICE_CRASH, label, "the agent of device '%s' was killed by signal %d (%s)", label,
                signal, strsignal(signal));
    else
        nd_fail(error, ND_E_DEVICE_CRASH, label, "the agent of device '%s' ended early with exit code %d",
                label, exit_code);
}
