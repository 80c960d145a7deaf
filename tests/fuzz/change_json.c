/* Changes documents: members and items are replaced, removed, put elsewhere, or doubled. Now and then bytes. */
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz/fuzz.h"

static unsigned state;

static unsigned draw(unsigned below)
{
    state = state * 1664525u + 1013904223u;
    return (unsigned)((uint64_t)state * below >> 32);
}

/* A value of the same type, or of any. */
static json_t *other_value(const json_t *value)
{
    static const char *const texts[] = {"",       "x",   "NaN",          "-Infinity",           "same",
                                        "failed", "<b>", "\xe2\x80\xae", "99999999999999999999"};
    static const json_int_t numbers[] = {0, 1, 2, -1, 7, 1000, INT64_MAX, INT64_MIN};
    json_type type = draw(8) > 0 ? json_typeof(value) : (json_type)draw(8);
    switch (type) {
    case JSON_OBJECT:
        return json_object();
    case JSON_ARRAY:
        return json_array();
    case JSON_STRING:
        return json_string(texts[draw(sizeof texts / sizeof texts[0])]);
    case JSON_INTEGER:
        return json_integer(numbers[draw(sizeof numbers / sizeof numbers[0])]);
    case JSON_REAL:
        return json_real((double)numbers[draw(sizeof numbers / sizeof numbers[0])] * 1e300 / (1 + draw(9)));
    case JSON_NULL:
        return json_null();
    default:
        return json_boolean(draw(2));
    }
}

/* One change somewhere below: members and items are replaced, removed, put elsewhere, or doubled. */
static void change(json_t *tree)
{
    size_t n = json_is_object(tree) ? json_object_size(tree) : json_array_size(tree),
           at = n > 0 ? draw((unsigned)n) : 0;
    void *item = json_object_iter(tree);
    for (size_t i = 0; i < at && item != NULL; i++)
        item = json_object_iter_next(tree, item);
    const char *key = item != NULL ? json_object_iter_key(item) : "";
    json_t *child = item != NULL ? json_object_iter_value(item) : json_array_get(tree, at);
    bool has_more = json_object_size(child) + json_array_size(child) > 0;
    if (child == NULL)
        return;
    if (has_more && draw(8) > 0) {
        change(child);
    } else if (json_is_object(tree)) {
        if (draw(3) == 0)
            json_object_del(tree, key);
        else
            json_object_set_new(tree, key, other_value(child));
    } else {
        unsigned how = draw(4);
        if (how == 0)
            json_array_remove(tree, at);
        else if (how == 1)
            json_array_insert_new(tree, draw((unsigned)n), json_deep_copy(child));
        else
            json_array_set_new(tree, at, other_value(child));
    }
}

/* Sometimes of another version, in which members may be missing. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed)
{
    json_t *tree = json_loadb((const char *)data, size, 0, NULL);
    state = seed;
    if (!json_is_object(tree) || draw(20) == 0) {
        json_decref(tree);
        return LLVMFuzzerMutate(data, size, room);
    }
    for (unsigned n = 1 + draw(4); n > 0; n--)
        change(tree);
    if (draw(2) == 0)
        json_object_set_new(tree, "npudiff", json_string("0.1"));
    char *text = json_dumps(tree, JSON_COMPACT);
    size_t n = text != NULL ? strlen(text) : 0;
    if (n > 0 && n <= room)
        memcpy(data, text, n);
    free(text);
    json_decref(tree);
    return n > 0 && n <= room ? n : size;
}
