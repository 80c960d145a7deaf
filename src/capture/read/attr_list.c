/* Attributes of a capture that is being made: added, replaced, found. */
#include "capture/read/attr_list.h"

#include <stdlib.h>

#include "core/memory.h"

static struct nd_attr *add(struct nd_attr_list *provenance, const char *group, const char *key)
{
    if (!nd_grow((void **)&provenance->attrs, &provenance->capacity, provenance->n + 1,
                 sizeof *provenance->attrs))
        return NULL;
    struct nd_attr *attr = &provenance->attrs[provenance->n++];
    *attr = (struct nd_attr){.group = nd_strdup(group), .key = nd_strdup(key)};
    return attr->group != NULL && attr->key != NULL ? attr : NULL;
}

bool nd_attr_list_add_text(struct nd_attr_list *provenance, const char *group, const char *key,
                           const char *text)
{
    struct nd_attr *attr = add(provenance, group, key);
    if (attr == NULL)
        return false;
    attr->type = ND_ATTR_STRING;
    attr->string = nd_strdup(text != NULL ? text : "");
    return attr->string != NULL;
}

bool nd_attr_list_add_number(struct nd_attr_list *provenance, const char *group, const char *key,
                             int64_t number)
{
    struct nd_attr *attr = add(provenance, group, key);
    if (attr == NULL)
        return false;
    attr->type = ND_ATTR_I64;
    attr->i64 = number;
    return true;
}

bool nd_attr_list_add_real(struct nd_attr_list *provenance, const char *group, const char *key, double real)
{
    struct nd_attr *attr = add(provenance, group, key);
    if (attr == NULL)
        return false;
    attr->type = ND_ATTR_F64;
    attr->f64 = real;
    return true;
}

void nd_attr_list_deinit(struct nd_attr_list *provenance)
{
    for (size_t i = 0; i < provenance->n; i++) {
        free(provenance->attrs[i].group);
        free(provenance->attrs[i].key);
        free(provenance->attrs[i].string);
    }
    free(provenance->attrs);
    *provenance = (struct nd_attr_list){0};
}
