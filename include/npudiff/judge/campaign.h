/* Campaigns cut into tasks, for engines that run them on many machines: what there is to do, how long it takes,
 * and doing one of it. npudiff/report.h writes the tasks as a script for an engine. nd_qualify
 * (npudiff/judge.h) does all of it in one process, with the same result.
 *
 * A task makes one file in the folder of results, which all machines share. It can be repeated, killed and run
 * twice at a time: a file that is there, whole, and made of the same things is not made again.
 *
 * Example:
 *
 *     static int run_all(const char *campaign, const struct nd_qualify_options *options, struct nd_error *err)
 *     {
 *         struct nd_plan_of_campaign plan;
 *         struct nd_qualify_result result = {0};
 *         if (nd_campaign_plan(campaign, NULL, 0, options, &plan, err) != ND_OK)
 *             return ND_EXIT_TROUBLE;
 *         enum nd_status status = ND_OK;
 *         for (size_t i = 0; status == ND_OK && i < plan.n; i++) {
 *             const struct nd_task_name name = {plan.tasks[i].file, plan.tasks[i].key};
 *             nd_qualify_result_deinit(&result);
 *             status = nd_campaign_task(campaign, &name, options, &result, err);
 *         }
 *         int exit_code = status == ND_OK ? (int)result.found.exit_code : ND_EXIT_TROUBLE;
 *         nd_qualify_result_deinit(&result);
 *         nd_plan_of_campaign_deinit(&plan);
 *         return exit_code;
 *     }
 *
 * Stability: unstable. Until version 1.0 every minor version may change what is declared here; programs
 * that use it are compiled again. */
#ifndef NPUDIFF_CAMPAIGN_H
#define NPUDIFF_CAMPAIGN_H

#include "npudiff/devices/device.h"
#include "npudiff/judge/judge.h"

#ifdef __cplusplus
extern "C" {
#endif

enum nd_task_kind {
    ND_TASK_CAPTURE,
    ND_TASK_COMPARE,
    ND_TASK_EXPLAIN_PART, /* only with nd_qualify_options.n_explain_parts */
    ND_TASK_EXPLAIN,
    ND_TASK_JUDGE,
};
enum { ND_TASK_N_KINDS = 5 };
/* "capture", "compare", "explain_part", "explain", "judge". Static. */
ND_PUBLIC const char *nd_task_kind_name(enum nd_task_kind kind);

/* One task. Texts live as long as the plan; what a task does not have is "". */
struct nd_task {
    enum nd_task_kind kind;
    const char *file;  /* that it makes, as a path from the folder of results */
    const char *key;   /* "0.2.0/0123456789abcdef": the version, and a digest of all that the task depends on */
    const char *model; /* name */
    const char *device;         /* label; of a comparison that of the reference */
    const char *kind_of_device; /* of a capture: "cpu", "htp-sim", ... (nd_device_kind_name) */
    enum nd_transport_kind transport;
    const char *address; /* adb's serial, ssh's host; "" on this machine */
    size_t n_needs;
    const size_t *needs; /* tasks that come before it: indices below its own */
    bool is_done;        /* its file is there and need not be made again; never true of the one that judges */
    size_t n_runs;       /* of samples; of a comparison or explanation over all captures that it reads */
    /* Estimated. */
    double seconds;
    uint64_t bytes;        /* of its file */
    uint64_t memory_bytes; /* resident, of npudiff and its agent */
    const char *source;    /* the file from whose making this is known, or "default" */
};

/* What a campaign comes to, in an order in which all of it can be done. */
struct nd_plan_of_campaign {
    const char *campaign;   /* its name */
    const char *path;       /* of the campaign's file, as it was given */
    const char *folder;     /* of results */
    const char *version;    /* of npudiff */
    size_t n_explain_parts; /* of every explanation; 1: it is one task */
    size_t n;
    struct nd_task *tasks;
    size_t n_done;
    double seconds, seconds_left; /* one after the other: of all tasks, of those that are not done */
    double longest_s;             /* of those not done the longest chain: with machines without end */
    uint64_t bytes, bytes_left;   /* of all files */
    uint64_t memory_bytes;        /* of the largest task */
    size_t n_measured;            /* tasks whose estimate is known from an earlier one */
    struct nd_arena *owner;       /* of the texts and lists */
};
ND_PUBLIC void nd_plan_of_campaign_deinit(struct nd_plan_of_campaign *plan);

/* Lists the tasks of a campaign and estimates each. from[n_from]: folders of results of earlier campaigns,
 * whose times are used, too. options: as of nd_qualify; folder, force, without_policy and
 * n_explain_parts count. Makes the
 * folder, and writes nothing into it but .digests. Errors are those of nd_qualify for the campaign.
 */
ND_PUBLIC enum nd_status nd_campaign_plan(const char *campaign, const char *const *from, size_t n_from,
                                          const struct nd_qualify_options *options,
                                          struct nd_plan_of_campaign *out, struct nd_error *err);

/* Which task: the file, and the key that it had when the plan was made (NULL: any). */
struct nd_task_name {
    const char *file, *key;
};

/* Does one task, unless it is done. Of the one that judges *out is the result, as nd_qualify makes it, and the
 * exit code; of all others out->found is empty (its exit_code 0), also where a device failed: that is a result.
 * ND_E_QUALIFY_TASK: no such task; ND_E_QUALIFY_WORKER: the key is another one here (another npudiff, model,
 * probe, runtime or campaign); ND_E_QUALIFY_NEEDS: a task that comes before is not done; ND_E_QUALIFY_BUSY: an
 * nd_qualify runs in the folder. Several processes and machines may call it at once for one folder; two calls
 * for one task take turns. Free *out with nd_qualify_result_deinit, on success only. */
ND_PUBLIC enum nd_status nd_campaign_task(const char *campaign, const struct nd_task_name *name,
                                          const struct nd_qualify_options *options,
                                          struct nd_qualify_result *out, struct nd_error *err);

#ifdef __cplusplus
}
#endif
#endif
