/* Configurations while they are collected. */
#pragma once

#include "core/error.h"
#include "npudiff/compare/config.h"

/* Attributes of /runtime that hold the whole files of an HTP configuration. */
#define ND_CONFIG_HTP_INNER "htp_config"
#define ND_CONFIG_HTP_OUTER "htp_config_outer"

struct nd_config_list {
    struct nd_config_item *items;
    size_t n, capacity;
};

/* Adds every leaf of a JSON object as "<prefix>.graphs[0].O"; `graphs` as an object (very old SDKs) counts as a
 * list of one. path is for messages. */
enum nd_status nd_config_flatten(struct nd_config_list *list, const char *prefix, const char *text,
                                 const char *path, struct nd_error *err);
