/* The entry of an experiment. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "lab/experiment/experiment.h"

void nd_tell(struct nd_experiment *e, json_t *object, const char *key, json_t *value)
{
    if (json_object_set_new(object, key, value) != 0) /* also of NULL */
        nd_experiment_check(e, nd_fail_memory(e->err));
}

void nd_tell_text(struct nd_experiment *e, json_t *object, const char *key, const char *text)
{
    nd_tell(e, object, key, json_string(text));
}

void nd_tell_int(struct nd_experiment *e, json_t *object, const char *key, int64_t value)
{
    nd_tell(e, object, key, json_integer(value));
}

void nd_tell_bool(struct nd_experiment *e, json_t *object, const char *key, bool value)
{
    nd_tell(e, object, key, json_boolean(value));
}

void nd_tell_rounding(struct nd_experiment *e, json_t *object, const char *key, enum nd_rounding rounding)
{
    nd_tell_text(e, object, key, nd_rounding_name(rounding));
}

static json_t *member(struct nd_experiment *e, json_t *object, const char *key, json_t *(*make)(void))
{
    if (json_object_get(object, key) == NULL)
        nd_tell(e, object, key, make());
    return json_object_get(object, key);
}

json_t *nd_tell_object(struct nd_experiment *e, json_t *object, const char *key)
{
    return member(e, object, key, json_object);
}

static void append(struct nd_experiment *e, json_t *list, json_t *value)
{
    if (json_array_append_new(list, value) != 0)
        nd_experiment_check(e, nd_fail_memory(e->err));
}

void nd_tell_listed(struct nd_experiment *e, json_t *object, const char *key, const char *text)
{
    json_t *list = member(e, object, key, json_array);
    if (text != NULL)
        append(e, list, json_string(text));
}

void nd_tell_line(struct nd_experiment *e, json_t *entry, const char *fmt, ...)
{
    char line[240];
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    nd_tell_listed(e, entry, "text", line);
}

void nd_tell_counts(struct nd_experiment *e, json_t *entry, const struct nd_count *counts)
{
    json_t *evidence = nd_tell_object(e, entry, "evidence");
    for (; counts->key != NULL; counts++)
        nd_tell_int(e, evidence, counts->key, (int64_t)counts->n);
}

json_t *nd_experiment_tell_verdict(struct nd_experiment *e, json_t *entries, const char *verdict)
{
    json_t *entry = json_object();
    if (json_array_append_new(entries, entry) != 0)
        nd_experiment_check(e, nd_fail_memory(e->err));
    if (e->status != ND_OK)
        return NULL;
    nd_tell_text(e, entry, "operator", e->operator_name);
    nd_tell_text(e, entry, "types", e->types);
    nd_tell_text(e, entry, "verdict", e->has_failed ? "failed" : verdict);
    if (e->provider[0] != '\0')
        nd_tell_text(e, entry, "provider", e->provider);
    if (!e->has_failed)
        return entry;
    nd_tell_text(e, entry, "failure", e->failure.failure.message);
    nd_tell_text(e, entry, "stage", e->failure.stage);
    return NULL;
}

json_t *nd_experiment_tell(struct nd_experiment *e, json_t *entries, bool is_known)
{
    return nd_experiment_tell_verdict(e, entries,
                                      !e->is_on_npu ? "not on the NPU"
                                      : is_known    ? "identified"
                                                    : "not identified");
}

void nd_tell_undecided(struct nd_experiment *e, json_t *entry, const char *what, const char *probe)
{
    append(e, member(e, entry, "undecided", json_array), json_pack("{s:s, s:s}", "what", what, "probe", probe));
}

static bool differ(const struct nd_issue *issue, const void *arithmetics, size_t n_arithmetics,
                   size_t arithmetic_bytes)
{
    const unsigned char *first = arithmetics;
    for (const struct nd_field *f = issue->fields; f->size_bytes > 0; f++)
        for (size_t i = 1; i < n_arithmetics; i++)
            if (memcmp(first + f->offset, first + i * arithmetic_bytes + f->offset, f->size_bytes) != 0)
                return true;
    return false;
}

void nd_tell_issues(struct nd_experiment *e, json_t *entry, const struct nd_issue *issues,
                    const void *arithmetics, size_t n_arithmetics, size_t arithmetic_bytes)
{
    for (; issues->what != NULL; issues++)
        if (differ(issues, arithmetics, n_arithmetics, arithmetic_bytes))
            nd_tell_undecided(e, entry, issues->what, issues->probe);
}

void nd_tell_nearest(struct nd_experiment *e, json_t *entry, const char *name, uint64_t n_wrong)
{
    nd_tell_text(e, entry, "nearest", name);
    nd_tell_int(e, entry, "nearest_wrong", (int64_t)n_wrong);
}

void nd_tell_unknown(struct nd_experiment *e, json_t *entry)
{
    nd_tell_undecided(e, entry, "the arithmetic", "a family that this version does not know");
}
