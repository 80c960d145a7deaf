/* What the user says of the tensors of a foreign file: docs/reference/import-map.md. */
#pragma once

#include "record/import/imported.h"

/* One tensor. */
struct nd_map_item {
    char *name;                       /* as the file has it */
    char *tensor;                     /* what it is called in the capture; NULL: not said */
    int layout_rank;                  /* 0: not said; else of the layout's word ("NHWC": 4) */
    bool is_channel_last;             /* the file has channels last, the model channels second */
    enum nd_dtype dtype;              /* ND_DTYPE_NONE: not said */
    struct nd_quant quant;            /* n 0: not said; axis in the model's layout */
    enum nd_dtype qvalues;            /* what quantised values the values stand for; ND_DTYPE_NONE: not said */
    bool holds_qvalues;               /* the values are the quantised values themselves, in a wider type */
    int batch_axis;                   /* dimension of the array along which the samples lie; -1: not said */
    size_t n_samples;                 /* how many samples share the first dimension; 0: not said */
    char *op_types, *node, *provider; /* NULL: not said */
    bool is_skipped;
    char *where;  /* "map.yaml:3:5", or "--map a=b" */
    bool is_used; /* set by who finds its tensor */
};

struct nd_map_list {
    size_t n;
    size_t capacity;
    struct nd_map_item *items;
};

struct nd_map {
    struct nd_map_list sides[2]; /* by enum nd_imported_side */
};

/* Reads the file (NULL: none), then the short forms NAME=EDGE, which add to it. ND_E_IMPORT_MAP: unknown keys,
 * what contradicts itself, a tensor or tensor that is there twice; ND_ERR_IO. The caller frees *out. */
enum nd_status nd_map_read(const char *path, const char *const *short_forms, size_t n_short_forms,
                           struct nd_map *out, struct nd_error *err);
void nd_map_deinit(struct nd_map *map);

/* The item of that tensor, or NULL. */
struct nd_map_item *nd_map_find(const struct nd_map *map, enum nd_imported_side side, const char *name);
