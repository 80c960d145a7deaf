#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "core/text/options.h"
#include "judge/campaign/keyed.h"
#include "judge/release/qualify.h"

enum { MAX_RESULT_BYTES = 1 << 30 };

void nd_qualify_result_deinit(struct nd_qualify_result *result)
{
    nd_qualified_deinit(&result->found);
    free(result->folder);
    *result = (struct nd_qualify_result){0};
}

/* Two at once would capture over one another. The lock goes with the process that holds it. */
enum nd_status nd_qualify_lock(const char *folder, bool is_shared, int *out, struct nd_error *err)
{
    char *path = nd_path_join(folder, ".lock");
    int fd = path != NULL ? open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666) : -1;
    enum nd_status status = ND_OK;
    if (path == NULL)
        status = nd_fail_memory(err);
    else if (fd < 0)
        status = nd_fail(err, ND_E_FILE_OPEN, path, "cannot open '%s': %s", path, strerror(errno));
    else if (flock(fd, (is_shared ? LOCK_SH : LOCK_EX) | LOCK_NB) != 0)
        status = nd_fail(err, ND_E_QUALIFY_BUSY, folder, "a different process already runs a campaign in '%s'",
                         folder);
    free(path);
    if (status == ND_OK)
        *out = fd;
    else if (fd >= 0)
        close(fd);
    return status;
}

/* ---- a result that was made before ---- */

static bool all_fresh(const struct nd_qualification *q)
{
    for (size_t m = 0; m < q->campaign.n_models; m++)
        for (size_t c = 0; c < q->models[m].n_cells; c++)
            if (!q->models[m].cells[c].is_fresh)
                return false;
    return true;
}

/* Fills q->last, unless everything is to be judged anew. A file that is no result is none; one that cannot be
 * read just now is an error: the result would be judged without the last one's baseline. */
static enum nd_status read_last(struct nd_qualification *q, struct nd_error *err)
{
    void *bytes = NULL;
    size_t n_bytes;
    struct nd_qualified last;
    if (q->options->force)
        return ND_OK;
    char *path = nd_path_join(q->folder, "result.json");
    enum nd_status status = path != NULL ? ND_OK : nd_fail_memory(err);
    if (status == ND_OK && !nd_keyed_is_missing(path))
        status = nd_file_read(path, MAX_RESULT_BYTES, &bytes, &n_bytes, err);
    enum nd_status parsed = bytes != NULL ? nd_qualified_read(bytes, &last, NULL) : ND_OK;
    if (bytes != NULL && parsed == ND_OK)
        q->last = last;
    free(bytes);
    free(path);
    return parsed == ND_ERR_MEMORY ? nd_fail_memory(err) : status;
}

/* Whether the result in the folder is the one that would be made. */
static bool is_last_current(struct nd_qualification *q)
{
    return all_fresh(q) && q->last.owner != NULL && strcmp(q->last.key, q->key) == 0 &&
           q->last.exit_code >= 0 && q->last.suggestion[0] != '\0';
}

/* ---- a new one ---- */

static enum nd_status judge(struct nd_qualification *q, struct nd_qualify_result *out, struct nd_error *err)
{
    enum nd_status status = nd_qualify_open(q, err);
    if (status == ND_OK)
        status = nd_qualify_compare(q, err);
    for (size_t m = 0; status == ND_OK && m < q->campaign.n_models; m++)
        status = nd_qualify_study(q, &q->models[m], err);
    for (size_t m = 0; status == ND_OK && m < q->campaign.n_models; m++)
        status = nd_qualify_find_broken(q, &q->models[m], err);
    for (size_t m = 0; status == ND_OK && m < q->campaign.n_models; m++)
        status = nd_qualify_measure_targets(q, &q->models[m], err);
    for (size_t m = 0; status == ND_OK && q->campaign.explain && m < q->campaign.n_models; m++)
        status = nd_qualify_explain(q, &q->models[m], err);
    if (status != ND_OK)
        return status;
    struct nd_qualified made;
    q->arena = nd_arena_create();
    if (q->arena == NULL)
        return nd_fail_memory(err);
    nd_qualify_fill(q, &made);
    made.owner = q->arena;
    if (nd_arena_has_failed(q->arena)) {
        nd_qualified_deinit(&made);
        return nd_fail_memory(err);
    }
    out->found = made;
    return ND_OK;
}

enum nd_status nd_qualify_end_result(struct nd_qualification *q, struct nd_qualify_result *out,
                                     struct nd_error *err)
{
    enum nd_status status = read_last(q, err);
    if (status != ND_OK)
        return status;
    nd_qualify_make_key(q);
    if (!is_last_current(q))
        return judge(q, out, err);
    out->found = q->last;
    out->is_cached = true;
    q->last = (struct nd_qualified){0};
    return ND_OK;
}

static enum nd_status qualify(struct nd_qualification *q, struct nd_qualify_result *out, struct nd_error *err)
{
    int lock = -1;
    enum nd_status status = nd_qualify_plan(q, err);
    if (status == ND_OK)
        status = nd_dir_make(q->folder, err);
    if (status == ND_OK)
        status = nd_qualify_lock(q->folder, false, &lock, err);
    if (status == ND_OK)
        status = nd_qualify_check_fresh(q, err);
    if (status == ND_OK)
        status = nd_qualify_capture(q, err);
    if (status == ND_OK)
        status = nd_qualify_end_result(q, out, err);
    out->n_captured = q->n_captured;
    if (lock >= 0)
        close(lock);
    return status;
}

enum nd_status nd_qualify_begin(const char *campaign, const struct nd_qualify_options *options,
                                struct nd_qualification *q, struct nd_error *err)
{
    *q = (struct nd_qualification){.options = options};
    enum nd_status status = nd_campaign_read(campaign, options->without_policy, &q->campaign, err);
    if (status != ND_OK)
        return status;
    const char *folder = options->folder != NULL ? options->folder : q->campaign.output;
    nd_policy_today(q->today);
    if (folder == NULL)
        status = nd_fail(err, ND_E_OPTION_CONFLICT, campaign,
                         "'%s' names no 'output', and no folder was given (-o DIR)", campaign);
    else if ((q->folder = nd_strdup(folder)) == NULL)
        status = nd_fail_memory(err);
    if (status != ND_OK)
        nd_campaign_deinit(&q->campaign);
    return status;
}

enum nd_status nd_qualify(const char *campaign, const struct nd_qualify_options *options,
                          struct nd_qualify_result *out, struct nd_error *err)
{
    struct nd_qualify_options own = {.struct_size = sizeof own};
    enum nd_status status = nd_options_read(&own, sizeof own, options, err);
    if (status != ND_OK)
        return status;
    struct nd_qualification q;
    struct nd_qualify_result result = {0};
    struct nd_error why = {0};
    err = err != NULL ? err : &why; /* reasons are read from it */
    status = nd_qualify_begin(campaign, &own, &q, err);
    if (status != ND_OK)
        return status;
    status = qualify(&q, &result, err);
    nd_qualify_plan_deinit(&q);
    nd_campaign_deinit(&q.campaign);
    result.folder = q.folder;
    if (status == ND_OK)
        *out = result;
    else
        nd_qualify_result_deinit(&result);
    return status;
}
