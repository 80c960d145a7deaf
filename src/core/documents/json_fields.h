/* Tables that say which member of a struct has which key in JSON. One writer and one reader serve all structs.
 *
 *     #define S struct pair
 *     ND_MEMBERS(pair_members, ND_FIELD("reference", TEXT, reference), ND_FIELD("samples", COUNT, n_samples));
 *     #undef S
 */
#pragma once

#include "core/documents/json_out.h"
#include "core/memory.h"

/* The type of the member, and the value that stands for "not known": null in JSON. Where none is named, the
 * member is always known. */
enum nd_field_kind {
    ND_FIELD_WORD,    /* const char * */
    ND_FIELD_TEXT,    /* const char *; not known: "" */
    ND_FIELD_INT,     /* int; not known: INT_MIN */
    ND_FIELD_COUNT,   /* size_t; not known: SIZE_MAX */
    ND_FIELD_REAL,    /* double; NaN and infinities are texts */
    ND_FIELD_REAL_IF, /* double; not known: NaN */
    ND_FIELD_RANGE,   /* double low, high: a list of two */
    ND_FIELD_TEXTS,   /* struct {size_t n; const char **items} */
    ND_FIELD_PART,    /* a struct that has a table of its own */
    ND_FIELD_PART_IF, /* the same, and its first member is a double; not known: that one is NaN */
    ND_FIELD_LIST,    /* struct {size_t n; struct ... *items}: structs that have a table of their own */
    ND_FIELD_COUNTS,  /* struct {size_t n; struct nd_named_count *items}: an object of counts */
};

struct nd_named_count {
    const char *name;
    size_t n;
};

struct nd_json_field {
    const char *key;
    enum nd_field_kind kind;
    size_t offset;
    const struct nd_members *members; /* of PART, PART_IF and LIST */
};
struct nd_members {
    size_t bytes;
    const struct nd_json_field *fields; /* ends with a NULL key */
    bool is_sparse;                     /* what is null or an empty list is left out when writing */
};

/* A member of struct S; one that has a table of its own, or whose items have; and an object that JSON has
 * around members of S itself. */
#define ND_FIELD(key_, kind_, member_)                                                                         \
    {                                                                                                          \
        .key = (key_), .kind = ND_FIELD_##kind_, .offset = offsetof(S, member_)                                \
    }
#define ND_FIELD_OF(key_, kind_, member_, members_)                                                            \
    {                                                                                                          \
        .key = (key_), .kind = ND_FIELD_##kind_, .offset = offsetof(S, member_), .members = &(members_)        \
    }
#define ND_FIELD_AROUND(key_, members_)                                                                        \
    {                                                                                                          \
        .key = (key_), .kind = ND_FIELD_PART, .members = &(members_)                                           \
    }
#define ND_MEMBERS(name_, ...)                                                                                 \
    static const struct nd_json_field name_##_fields[] = {__VA_ARGS__, {.key = NULL}};                         \
    static const struct nd_members name_ = {.bytes = sizeof(S), .fields = name_##_fields}

/* Appends the members of a struct to the object that is open. */
void nd_json_put_members(struct nd_json *json, const struct nd_members *members, const void *object);

/* Fills a struct with what the tree, nullable, says of its members; all other values are unknown. Texts and
 * lists are copies in the arena, which remembers where memory was out. */
void nd_json_get_members(const json_t *tree, const struct nd_members *members, void *object,
                         struct nd_arena *arena);
