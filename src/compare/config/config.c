/* What captures say of how their results were made, and in what they differ. */
#include "compare/config/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "npudiff/core/parse.h"

enum nd_status nd_config_add(struct nd_config_list *list, char *key, char *value, struct nd_error *err)
{
    if (key == NULL || value == NULL ||
        !nd_grow((void **)&list->items, &list->capacity, list->n + 1, sizeof *list->items)) {
        free(key);
        free(value);
        return nd_fail_memory(err);
    }
    list->items[list->n++] =
        (struct nd_config_item){.key = key, .value = value, .effect = nd_config_effect_of(key)};
    return ND_OK;
}

char *nd_config_join(const char *group, const char *between, const char *key)
{
    size_t n = strlen(group) + strlen(between) + strlen(key) + 1;
    char *text = nd_calloc(n, 1);
    if (text != NULL)
        snprintf(text, n, "%s%s%s", group, between, key);
    return text;
}

static char *value_text(const struct nd_attr *attr)
{
    char buf[32];
    if (attr->type == ND_ATTR_STRING)
        return nd_strdup(attr->string);
    if (attr->type == ND_ATTR_I64)
        snprintf(buf, sizeof buf, "%lld", (long long)attr->i64);
    else
        nd_format_double(attr->f64, buf);
    return nd_strdup(buf);
}

/* Names of the same thing in other words, what is told elsewhere, and what counts or dates a run. */
static bool is_setting(const struct nd_attr *attr)
{
    static const char *const left_out[] = {
        "uri", "label", "marketing", ND_CONFIG_HTP_INNER, ND_CONFIG_HTP_OUTER, "passes", "option_profile_text"};
    for (size_t i = 0; i < sizeof left_out / sizeof left_out[0]; i++)
        if (strcmp(attr->key, left_out[i]) == 0)
            return false;
    if (strcmp(attr->group, "host") == 0)
        return strcmp(attr->key, "processor") == 0 || strcmp(attr->key, "machine") == 0;
    if (strcmp(attr->group, "runtime") == 0)
        return strncmp(attr->key, "library_", 8) != 0;
    return strcmp(attr->group, "device") == 0;
}

/* "library_000_path" and its build id or digest: as "library.<file name>". */
static enum nd_status add_library(const struct nd_capture *capture, const struct nd_attr *attr,
                                  struct nd_config_list *list, struct nd_error *err)
{
    static const char *const ids[] = {"build_id", "sha256"};
    size_t n = strlen(attr->key);
    if (strcmp(attr->group, "runtime") != 0 || attr->type != ND_ATTR_STRING ||
        strncmp(attr->key, "library_", 8) != 0 || n < 5 || strcmp(attr->key + n - 5, "_path") != 0)
        return ND_OK;
    const char *id = "";
    for (size_t i = 0; i < sizeof ids / sizeof ids[0] && id[0] == '\0'; i++) {
        char key[64];
        snprintf(key, sizeof key, "%.*s%s", (int)(n - 4 < 40 ? n - 4 : 40), attr->key, ids[i]);
        const char *found = nd_capture_string(capture, "runtime", key);
        id = found != NULL ? found : "";
    }
    return nd_config_add(list, nd_config_join("library.", "", nd_path_base(attr->string)), nd_strdup(id), err);
}

static int by_key(const void *a, const void *b)
{
    const struct nd_config_item *x = a, *y = b;
    return strcmp(x->key, y->key);
}

enum nd_status nd_config_of_capture(const struct nd_capture *capture, struct nd_config *out,
                                    struct nd_error *err)
{
    struct nd_config_list list = {0};
    enum nd_status status = ND_OK;
    for (size_t i = 0; status == ND_OK && i < nd_capture_n_attrs(capture); i++) {
        const struct nd_attr *attr = nd_capture_attr(capture, i);
        status = add_library(capture, attr, &list, err);
        if (status == ND_OK && is_setting(attr))
            status = nd_config_add(&list, nd_config_join(attr->group, ".", attr->key), value_text(attr), err);
    }
    static const char *const texts[][2] = {{ND_CONFIG_HTP_INNER, "htp"}, {ND_CONFIG_HTP_OUTER, "htp_outer"}};
    for (size_t i = 0; status == ND_OK && i < 2; i++) {
        const char *text = nd_capture_string(capture, "runtime", texts[i][0]);
        if (text != NULL)
            status = nd_config_flatten(&list, texts[i][1], text, nd_capture_path(capture), err);
    }
    struct nd_config config = {.n = list.n, .items = list.items};
    if (status != ND_OK) {
        nd_config_deinit(&config);
        return status;
    }
    if (config.n > 0)
        qsort(config.items, config.n, sizeof *config.items, by_key);
    *out = config;
    return ND_OK;
}

void nd_config_deinit(struct nd_config *config)
{
    for (size_t i = 0; i < config->n; i++) {
        free(config->items[i].key);
        free(config->items[i].value);
    }
    free(config->items);
    *config = (struct nd_config){0};
}

/* ---- differences ---- */

static enum nd_status add_change(struct nd_config_diff *diff, const struct nd_config_item *ref,
                                 const struct nd_config_item *test, struct nd_error *err)
{
    const struct nd_config_item *any = ref != NULL ? ref : test;
    struct nd_config_change *change = &diff->changes[diff->n++];
    *change = (struct nd_config_change){.key = nd_strdup(any->key),
                                        .ref = ref != NULL ? nd_strdup(ref->value) : NULL,
                                        .test = test != NULL ? nd_strdup(test->value) : NULL,
                                        .effect = any->effect};
    diff->n_bits += change->effect == ND_CONFIG_BITS;
    bool is_whole =
        change->key != NULL && (ref == NULL || change->ref != NULL) && (test == NULL || change->test != NULL);
    return is_whole ? ND_OK : nd_fail_memory(err);
}

static int rank_of(enum nd_config_effect effect)
{
    return effect == ND_CONFIG_BITS ? 0 : effect == ND_CONFIG_UNKNOWN ? 1 : 2;
}

static int by_effect(const void *a, const void *b)
{
    const struct nd_config_change *x = a, *y = b;
    int order = rank_of(x->effect) - rank_of(y->effect);
    return order != 0 ? order : strcmp(x->key, y->key);
}

/* Both are sorted; a key that is there several times (a library of one name in two places) is paired in order.
 */
static enum nd_status merge(const struct nd_config *ref, const struct nd_config *test,
                            struct nd_config_diff *diff, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t r = 0, t = 0; status == ND_OK && (r < ref->n || t < test->n);) {
        int order = r == ref->n ? 1 : t == test->n ? -1 : strcmp(ref->items[r].key, test->items[t].key);
        const struct nd_config_item *left = order <= 0 ? &ref->items[r] : NULL;
        const struct nd_config_item *right = order >= 0 ? &test->items[t] : NULL;
        if (order != 0 || strcmp(left->value, right->value) != 0)
            status = add_change(diff, left, right, err);
        r += order <= 0;
        t += order >= 0;
    }
    return status;
}

enum nd_status nd_config_diff(const struct nd_capture *ref, const struct nd_capture *test,
                              struct nd_config_diff *out, struct nd_error *err)
{
    struct nd_config left = {0}, right = {0};
    struct nd_config_diff diff = {0};
    enum nd_status status = nd_config_of_capture(ref, &left, err);
    if (status == ND_OK)
        status = nd_config_of_capture(test, &right, err);
    if (status == ND_OK) {
        diff.changes = nd_calloc(left.n + right.n, sizeof *diff.changes);
        status = diff.changes != NULL ? merge(&left, &right, &diff, err) : nd_fail_memory(err);
    }
    nd_config_deinit(&left);
    nd_config_deinit(&right);
    if (status != ND_OK) {
        nd_config_diff_deinit(&diff);
        return status;
    }
    if (diff.n > 0)
        qsort(diff.changes, diff.n, sizeof *diff.changes, by_effect);
    *out = diff;
    return ND_OK;
}

void nd_config_diff_deinit(struct nd_config_diff *diff)
{
    for (size_t i = 0; i < diff->n; i++) {
        free(diff->changes[i].key);
        free(diff->changes[i].ref);
        free(diff->changes[i].test);
    }
    free(diff->changes);
    *diff = (struct nd_config_diff){0};
}
