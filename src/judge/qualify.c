#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json_out.h"
#include "base/memory.h"
#include "base/options.h"
#include "judge/qualify.h"

enum { MAX_RESULT_BYTES = 1 << 30 };

void nd_qualify_result_deinit(struct nd_qualify_result *result)
{
    nd_qualified_deinit(&result->found);
    free(result->json);
    free(result->folder);
    *result = (struct nd_qualify_result){0};
}

/* Two at once would capture over one another. The lock goes with the process that holds it. */
static enum nd_status lock_folder(const char *folder, int *out, struct nd_error *err)
{
    char *path = nd_path_join(folder, ".lock");
    int fd = path != NULL ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666) : -1;
    enum nd_status status = ND_OK;
    if (path == NULL)
        status = nd_fail_memory(err);
    else if (fd < 0)
        status = nd_fail(err, ND_E_FILE_OPEN, path, "cannot open '%s': %s", path, strerror(errno));
    else if (flock(fd, LOCK_EX | LOCK_NB) != 0)
        status = nd_fail(err, ND_E_QUALIFY_BUSY, folder, "another process qualifies into '%s'", folder);
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

/* Takes the result in the folder when it is the one that would be made. */
static bool find_result(struct nd_qualification *q, struct nd_qualify_result *out)
{
    char *path = nd_path_join(q->folder, "result.json");
    void *bytes = NULL;
    size_t n_bytes;
    bool is_found = false;
    nd_qualify_make_key(q);
    if (path != NULL && nd_path_exists(path) &&
        nd_file_read(path, MAX_RESULT_BYTES, &bytes, &n_bytes, NULL) == ND_OK) {
        struct nd_qualified found = {0};
        is_found = nd_qualified_read(bytes, &found, NULL) == ND_OK && strcmp(found.key, q->key) == 0 &&
                   json_is_integer(json_object_get(found.owner, "exit_code")) && found.suggestion[0] != '\0';
        if (is_found) {
            out->found = found;
            out->json = bytes;
            bytes = NULL;
        } else {
            nd_qualified_deinit(&found);
        }
    }
    free(bytes);
    free(path);
    out->is_cached = is_found;
    return is_found;
}

/* ---- a new one ---- */

static enum nd_status judge(struct nd_qualification *q, struct nd_qualify_result *out, struct nd_error *err)
{
    enum nd_status status = nd_qualify_open(q, err);
    if (status == ND_OK)
        status = nd_qualify_compare(q, err);
    for (size_t m = 0; status == ND_OK && m < q->campaign.n_models; m++)
        status = nd_qualify_study(q, &q->models[m], err);
    if (status == ND_OK)
        nd_qualify_read_last(q);
    for (size_t m = 0; status == ND_OK && m < q->campaign.n_models; m++)
        status = nd_qualify_find_broken(q, &q->models[m], err);
    for (size_t m = 0; status == ND_OK && m < q->campaign.n_models; m++)
        status = nd_qualify_measure_targets(q, &q->models[m], err);
    for (size_t m = 0; status == ND_OK && q->campaign.explain && m < q->campaign.n_models; m++)
        status = nd_qualify_explain(q, &q->models[m], err);
    if (status != ND_OK)
        return status;
    enum nd_exit exit_code;
    json_t *suggested = NULL;
    char *suggestion = nd_qualify_suggest(q, &suggested);
    json_t *root = nd_qualify_result(q, &exit_code);
    bool is_whole = root != NULL && suggestion != NULL &&
                    json_object_set_new(root, "suggestion", json_string(suggestion)) == 0 &&
                    json_object_set(root, "suggested", suggested) == 0;
    json_decref(suggested);
    free(suggestion);
    out->json = is_whole ? nd_json_dump(root, 1) : NULL;
    if (out->json != NULL)
        return nd_qualified_take(root, &out->found, err);
    json_decref(root);
    return nd_fail_memory(err);
}

static enum nd_status qualify(struct nd_qualification *q, struct nd_qualify_result *out, struct nd_error *err)
{
    int lock = -1;
    enum nd_status status = nd_qualify_plan(q, err);
    if (status == ND_OK)
        status = nd_dir_make(q->folder, err);
    if (status == ND_OK)
        status = lock_folder(q->folder, &lock, err);
    if (status == ND_OK)
        status = nd_qualify_check_fresh(q, err);
    if (status == ND_OK && !(all_fresh(q) && find_result(q, out))) {
        status = nd_qualify_capture(q, err);
        if (status == ND_OK)
            status = judge(q, out, err);
    }
    out->n_captured = q->n_captured;
    if (lock >= 0)
        close(lock);
    return status;
}

enum nd_status nd_qualify(const char *campaign, const struct nd_qualify_options *options,
                          struct nd_qualify_result *out, struct nd_error *err)
{
    struct nd_qualify_options own = {.struct_size = sizeof own};
    enum nd_status status = nd_options_read(&own, sizeof own, options, err);
    if (status != ND_OK)
        return status;
    options = &own;
    struct nd_qualification q = {.options = options};
    struct nd_qualify_result result = {0};
    struct nd_error why = {0};
    err = err != NULL ? err : &why; /* reasons are read from it */
    status = nd_campaign_read(campaign, options->without_policy, &q.campaign, err);
    if (status == ND_OK) {
        const char *folder = options->folder != NULL ? options->folder : q.campaign.output;
        nd_policy_today(q.today);
        if (folder == NULL)
            status = nd_fail(err, ND_E_OPTION_CONFLICT, campaign,
                             "'%s' names no 'output', and no folder was given (-o DIR)", campaign);
        else if ((q.folder = nd_strdup(folder)) == NULL)
            status = nd_fail_memory(err);
    }
    if (status == ND_OK)
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
