/* Attributes of a capture in the making: what it says of its device, model, runtime and host. */
#ifndef ND_CAPTURE_ATTR_LIST_H
#define ND_CAPTURE_ATTR_LIST_H

#include "npudiff/capture/capture.h"

struct nd_attr_list {
    struct nd_attr *attrs;
    size_t n;
    size_t capacity;
};

/* Add one attribute to a group ("" for the root). text may be NULL, which is "". False when out of memory: the
 * provenance is then only good for nd_attr_list_deinit. */
bool nd_attr_list_add_text(struct nd_attr_list *provenance, const char *group, const char *key,
                           const char *text);
bool nd_attr_list_add_number(struct nd_attr_list *provenance, const char *group, const char *key,
                             int64_t number);
bool nd_attr_list_add_real(struct nd_attr_list *provenance, const char *group, const char *key, double real);

void nd_attr_list_deinit(struct nd_attr_list *provenance);

#endif
