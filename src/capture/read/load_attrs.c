/* Attributes and logs: what a capture says about where it comes from. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "capture/read/capture_internal.h"
#include "capture/read/link_names.h"

static enum nd_status set_attr(struct nd_attr *attr, const char *group, const char *path,
                               const struct nd_index_attr *found, struct nd_error *err)
{
    bool is_text = found->dtype == ND_DTYPE_NONE;
    if (!found->is_scalar || (!is_text && found->dtype != ND_DTYPE_I64 && found->dtype != ND_DTYPE_F64))
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, path,
                       "attribute '%s' of '%s' is not text, one int64 or one float64", found->name, path);
    attr->group = nd_strdup(group);
    attr->key = nd_strdup(found->name);
    attr->type = is_text ? ND_ATTR_STRING : found->dtype == ND_DTYPE_I64 ? ND_ATTR_I64 : ND_ATTR_F64;
    if (is_text)
        attr->string = strndup((const char *)found->bytes, found->n_bytes);
    else
        memcpy(attr->type == ND_ATTR_I64 ? (void *)&attr->i64 : (void *)&attr->f64, found->bytes, 8);
    if (attr->group == NULL || attr->key == NULL || (is_text && attr->string == NULL))
        return nd_fail_memory(err);
    return ND_OK;
}

static enum nd_status set_state(struct nd_capture *capture, struct nd_error *err)
{
    const char *found = nd_capture_string(capture, "", "status");
    for (int i = ND_CAPTURE_COMPLETE; found != NULL && i <= ND_CAPTURE_PARTIAL; i++)
        if (strcmp(found, nd_capture_state_name((enum nd_capture_status)i)) == 0) {
            capture->state = (enum nd_capture_status)i;
            return ND_OK;
        }
    return nd_fail(err, ND_E_CAPTURE_SCHEMA, "/",
                   "attribute 'status' is '%s' instead of complete, failed or partial",
                   found != NULL ? found : "missing");
}

/* Three columns of as many lines, the last of numbers. */
static enum nd_status check_truth(const struct nd_capture *capture, struct nd_error *err)
{
    static const char *const keys[] = {"faulty", "kinds", "n_changed"};
    size_t n_lines[3];
    const char *profile = nd_capture_string(capture, "truth", "profile");
    bool is_whole = profile != NULL && strchr(profile, '\n') == NULL;
    for (size_t k = 0; k < 3 && is_whole; k++) {
        const char *text = nd_capture_string(capture, "truth", keys[k]);
        is_whole = text != NULL;
        n_lines[k] = is_whole && *text != '\0';
        for (; is_whole && *text != '\0'; text++) {
            n_lines[k] += *text == '\n';
            is_whole = k < 2 || *text == '\n' || (*text >= '0' && *text <= '9');
        }
        is_whole = is_whole && n_lines[k] == n_lines[0];
    }
    return is_whole ? ND_OK
                    : nd_fail(err, ND_E_CAPTURE_SCHEMA, "/truth",
                              "'/truth' is not profile and as many lines of faulty, kinds and n_changed");
}

enum nd_status nd_capture_load_attrs(struct nd_capture *capture, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    size_t capacity = 0;
    for (size_t g = 0; g < ND_CAPTURE_N_GROUPS; g++) {
        char path[16];
        snprintf(path, sizeof path, "/%s", nd_capture_groups[g]);
        const struct nd_index_object *object = nd_index_find(capture->index, path);
        for (size_t i = 0; object != NULL && i < object->n_attrs && status == ND_OK; i++) {
            if (!nd_grow((void **)&capture->attrs, &capacity, capture->n_attrs + 1, sizeof *capture->attrs))
                return nd_fail_memory(err);
            struct nd_attr *attr = &capture->attrs[capture->n_attrs++];
            *attr = (struct nd_attr){0};
            status = set_attr(attr, nd_capture_groups[g], path, &object->attrs[i], err);
        }
    }
    if (status == ND_OK && nd_index_find(capture->index, "/truth") != NULL)
        status = check_truth(capture, err);
    return status == ND_OK ? set_state(capture, err) : status;
}

enum nd_status nd_capture_load_logs(struct nd_capture *capture, struct nd_error *err)
{
    size_t first, end;
    enum nd_status status = ND_OK;
    nd_index_range(capture->index, "/logs", &first, &end);
    capture->logs = nd_calloc(end - first, sizeof *capture->logs);
    if (capture->logs == NULL)
        return nd_fail_memory(err);
    for (size_t i = first; i < end && status == ND_OK; i++) {
        const char *path = capture->index->objects[i].path;
        struct nd_capture_log *log = &capture->logs[capture->n_logs++];
        const struct nd_wanted bytes = {ND_DTYPE_U8, {.rank = 1, .dims = {-1}}, false};
        void *text = NULL;
        status = nd_name_unescape(path + strlen("/logs/"), path, &log->name, err);
        if (status == ND_OK)
            status = nd_capture_load(capture, path, &bytes, &text, NULL, err);
        log->text = text;
    }
    return status;
}
