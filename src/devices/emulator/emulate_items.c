/* The items of an emulated device: read from text, and written as text. The words: emulate.h. */
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/items.h"
#include "devices/emulator/emulate_internal.h"
#include "npudiff/core/parse.h"

enum place { NOWHERE, ON_TENSOR, ON_TENSOR_OR_ALL };

enum value {
    NO_VALUE,
    A_ARITHMETIC,
    AN_OPERATOR,
    CHANNEL_AND_AMOUNT,
    CHANNEL_AND_FACTOR,
    N_BITS,
    A_SEED,
    A_PROBABILITY,
    FIRST_AND_COUNT,
    LOW_AND_HIGH,
    A_NUMBER,
    A_SHIFT,
};

static const struct word {
    const char *name;
    enum place place;
    enum value value;
    const char *usage;
} words[] = {
    [ND_EMU_ROUND] = {"round", ON_TENSOR_OR_ALL, A_ARITHMETIC, "round[.OPTYPE][@TENSOR]=ARITHMETIC"},
    [ND_EMU_FALLBACK] = {"fallback", ON_TENSOR_OR_ALL, AN_OPERATOR, "fallback=OPTYPE or fallback@TENSOR"},
    [ND_EMU_FUSE] = {"fuse", ON_TENSOR, NO_VALUE, "fuse@TENSOR"},
    [ND_EMU_STALE] = {"stale", ON_TENSOR, NO_VALUE, "stale@TENSOR"},
    [ND_EMU_ZERO_POINT] = {"zero-point", ON_TENSOR, CHANNEL_AND_AMOUNT,
                           "zero-point@TENSOR=CHANNEL:AMOUNT, CHANNEL a number or '*', AMOUNT not 0"},
    [ND_EMU_SCALE] = {"scale", ON_TENSOR, CHANNEL_AND_FACTOR,
                      "scale@TENSOR=CHANNEL:FACTOR, CHANNEL a number or '*', FACTOR above 0"},
    [ND_EMU_SATURATE] = {"saturate", ON_TENSOR, N_BITS, "saturate@TENSOR=BITS, 2 to 52"},
    [ND_EMU_WRAP] = {"wrap", ON_TENSOR, N_BITS, "wrap@TENSOR=BITS, 2 to 52"},
    [ND_EMU_PERMUTE] = {"permute", ON_TENSOR, A_SEED, "permute@TENSOR=SEED"},
    [ND_EMU_FLIP] = {"flip", ON_TENSOR, A_PROBABILITY, "flip@TENSOR=PROBABILITY, above 0 to 1"},
    [ND_EMU_WINDOW] = {"window", ON_TENSOR, FIRST_AND_COUNT, "window@TENSOR=FIRST:COUNT, COUNT at least 1"},
    [ND_EMU_ZERO] = {"zero", ON_TENSOR, NO_VALUE, "zero@TENSOR"},
    [ND_EMU_SHIFT] = {"shift", ON_TENSOR, A_SHIFT, "shift@TENSOR=N, not 0"},
    [ND_EMU_TRANSPOSE] = {"transpose", ON_TENSOR, NO_VALUE, "transpose@TENSOR"},
    [ND_EMU_CLAMP] = {"clamp", ON_TENSOR, LOW_AND_HIGH, "clamp@TENSOR=LOW:HIGH, LOW not above HIGH"},
    [ND_EMU_CLIFF] = {"cliff", ON_TENSOR, A_NUMBER, "cliff@TENSOR=VALUE"},
    [ND_EMU_SEED] = {"seed", NOWHERE, A_SEED, "seed=N"},
};
enum { N_WORDS = sizeof words / sizeof words[0] };

const char *nd_emu_word_name(enum nd_emu_word word)
{
    return words[word].name;
}

static bool parse_arithmetic(const char *text, struct nd_emu_arithmetic *out)
{
    static const char stochastic[] = "stochastic:";
    *out = (struct nd_emu_arithmetic){.layer = nd_layer_arithmetic_from_name(text)};
    if (out->layer != NULL)
        return true;
    out->is_stochastic = strncmp(text, stochastic, strlen(stochastic)) == 0;
    if (out->is_stochastic)
        return nd_parse_u64(text + strlen(stochastic), &out->seed);
    if (nd_rounding_rule_from_name(text, &out->rule))
        return true;
    /* `fuse` is the device of what needs values with unrounded inputs. */
    out->is_of_table =
        nd_arithmetic_from_name(text, &out->arithmetic) && !nd_arithmetic_needs_fused(&out->arithmetic);
    return out->is_of_table;
}

/* "A:B"; false where there is no ':' or A is too long for a number. */
static bool split(const char *value, char first[32], const char **second)
{
    const char *colon = strchr(value, ':');
    if (colon == NULL || colon - value >= 32)
        return false;
    memcpy(first, value, (size_t)(colon - value));
    first[colon - value] = '\0';
    *second = colon + 1;
    return true;
}

static bool parse_channel(const char *text, int64_t *channel)
{
    *channel = -1;
    return strcmp(text, "*") == 0 || (nd_parse_i64(text, channel) && *channel >= 0);
}

static bool parse_pair(enum value kind, const char *value, struct nd_emu_item *item)
{
    char first[32];
    const char *second;
    if (!split(value, first, &second))
        return false;
    if (kind == CHANNEL_AND_AMOUNT)
        return parse_channel(first, &item->channel) && nd_parse_i64(second, &item->first) && item->first != 0;
    if (kind == CHANNEL_AND_FACTOR)
        return parse_channel(first, &item->channel) && nd_parse_double(second, &item->real) && item->real > 0;
    return nd_parse_i64(first, &item->first) && nd_parse_i64(second, &item->second) &&
           (kind == FIRST_AND_COUNT ? item->first >= 0 && item->second >= 1 : item->first <= item->second);
}

static bool parse_value(enum value kind, const char *value, struct nd_emu_item *item)
{
    if (kind == A_ARITHMETIC)
        return parse_arithmetic(value, &item->arithmetic);
    if (kind == A_SEED)
        return nd_parse_u64(value, &item->seed);
    if (kind == A_PROBABILITY)
        return nd_parse_double(value, &item->real) && item->real > 0 && item->real <= 1;
    if (kind == N_BITS)
        return nd_parse_i64(value, &item->first) && item->first >= 2 && item->first <= 52;
    if (kind == A_NUMBER || kind == A_SHIFT)
        return nd_parse_i64(value, &item->first) && (kind == A_NUMBER || item->first != 0);
    return kind != NO_VALUE && kind != AN_OPERATOR && parse_pair(kind, value, item);
}

static enum nd_status fail_usage(const struct nd_emu_item *item, const struct word *word, struct nd_error *err)
{
    return nd_fail(err, ND_E_DEVICE_PROFILE, item->text, "item '%s' is not of the form %s", item->text,
                   word->usage);
}

static enum nd_status fail_program(const struct nd_emu_item *item, const char *value, struct nd_error *err)
{
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf names = {0};
    size_t n;
    const struct nd_rounding_rule *arithmetics = nd_rounding_rules(&n);
    for (size_t i = 0; i < n; i++) {
        char name[ND_ROUNDING_RULE_NAME_BYTES];
        if (arithmetics[i].kind != ND_ROUNDED_TWICE)
            nd_strbuf_printf(&names, "%s, ", nd_rounding_rule_name(&arithmetics[i], name));
    }
    const struct nd_layer_arithmetic *layer_arithmetics = nd_layer_arithmetics(&n);
    for (size_t i = 0; i < n; i++)
        nd_strbuf_printf(&names, "%s, ", layer_arithmetics[i].name);
    return nd_fail(
        err, ND_E_DEVICE_PROFILE, item->text,
        "item '%s': no arithmetic '%s'; there are %sdouble:1 to double:%d, stochastic:SEED and others of the "
        "table of arithmetics, such as value-fp16, gemmlowp, drop-bits:4 and multiplier:11+rounding:half-up",
        item->text, value, names.text != NULL ? names.text : "", (int)ND_ROUNDING_RULE_MAX_BITS);
}

static enum nd_status find_word(const struct nd_emu_item *item, const char *name, size_t *out,
                                struct nd_error *err)
{
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf names = {0};
    for (size_t w = 0; w < N_WORDS; w++) {
        if (strcmp(name, words[w].name) == 0) {
            *out = w;
            return ND_OK;
        }
        nd_strbuf_printf(&names, "%s%s", w > 0 ? ", " : "", words[w].name);
    }
    return nd_fail(err, ND_E_DEVICE_PROFILE, item->text, "item '%s': no word '%s'; there are %s", item->text,
                   name, names.text != NULL ? names.text : "");
}

/* fallback has either a tensor or an operator; its arithmetic is float32. */
static bool parse_fallback(const char *value, struct nd_emu_item *item)
{
    item->arithmetic.rule.kind = ND_ROUNDED_AS_FLOAT32;
    if ((item->tensor != NULL) == (value != NULL) || item->op_type != NULL || (value != NULL && *value == '\0'))
        return false;
    return value == NULL || (item->op_type = nd_strdup(value)) != NULL;
}

/* head is "word[.OPTYPE][@TENSOR]" and is taken apart. */
static enum nd_status parse_parts(char *head, const char *value, struct nd_emu_item *item, struct nd_error *err)
{
    char *tensor = strchr(head, '@');
    if (tensor != NULL)
        *tensor++ = '\0';
    char *op_type = strchr(head, '.');
    if (op_type != NULL)
        *op_type++ = '\0';
    size_t w = 0;
    ND_TRY(find_word(item, head, &w, err));
    const struct word *word = &words[w];
    item->word = (enum nd_emu_word)w;
    bool is_placed = word->place == ON_TENSOR_OR_ALL || (tensor != NULL) == (word->place == ON_TENSOR);
    bool is_fitting = is_placed && (tensor == NULL || *tensor != '\0') &&
                      (op_type == NULL || (item->word == ND_EMU_ROUND && tensor == NULL && *op_type != '\0'));
    if (!is_fitting)
        return fail_usage(item, word, err);
    item->tensor = nd_strdup(tensor);
    item->op_type = nd_strdup(op_type);
    ND_TRY_MEMORY((tensor == NULL || item->tensor != NULL) && (op_type == NULL || item->op_type != NULL), err);
    if (item->word == ND_EMU_FALLBACK)
        return parse_fallback(value, item) ? ND_OK : fail_usage(item, word, err);
    if (word->value == NO_VALUE)
        return value == NULL ? ND_OK : fail_usage(item, word, err);
    if (value == NULL || *value == '\0' || strchr(value, '=') != NULL)
        return fail_usage(item, word, err);
    if (parse_value(word->value, value, item))
        return ND_OK;
    return word->value == A_ARITHMETIC ? fail_program(item, value, err) : fail_usage(item, word, err);
}

static void free_item(struct nd_emu_item *item)
{
    ND_FREE_ALL(item->text, item->tensor, item->op_type);
}

/* An arithmetic alone is the arithmetic of all layers. */
static char *spell_out(const char *text)
{
    struct nd_emu_arithmetic arithmetic;
    bool is_short = strchr(text, '=') == NULL && parse_arithmetic(text, &arithmetic);
    return nd_text("%s%s", is_short ? "round=" : "", text);
}

enum nd_status nd_emulation_add(struct nd_emulation *emulation, const char *text, struct nd_error *err)
{
    ND_CLEANUP(free_item) struct nd_emu_item item = {.text = spell_out(text)};
    ND_FREED char *head = nd_strdup(item.text);
    ND_TRY_MEMORY(head != NULL, err);
    if (emulation->n == 0 && emulation->capacity == 0)
        emulation->seed = 1;
    if (*text == '\0')
        return nd_fail(err, ND_E_DEVICE_PROFILE, text, "an item is empty");
    if (strchr(text, ',') != NULL)
        return nd_fail(err, ND_E_DEVICE_PROFILE, text, "item '%s' holds a comma", text);
    char *value = strchr(head, '=');
    if (value != NULL)
        *value++ = '\0';
    ND_TRY(parse_parts(head, value, &item, err));
    ND_TRY_MEMORY(
        nd_grow((void **)&emulation->items, &emulation->capacity, emulation->n + 1, sizeof *emulation->items),
        err);
    if (item.word == ND_EMU_SEED)
        emulation->seed = item.seed;
    struct nd_emu_item *added = &emulation->items[emulation->n++];
    return ND_GIVE(added, item);
}

enum nd_status nd_emulation_parse(const char *text, struct nd_emulation *out, struct nd_error *err)
{
    ND_CLEANUP(nd_emulation_deinit) struct nd_emulation emulation = {0};
    ND_FREED char *copy = nd_strdup(text);
    char *rest = copy, *item;
    ND_TRY_MEMORY(copy != NULL, err);
    while ((item = strsep(&rest, ",")) != NULL)
        ND_TRY(nd_emulation_add(&emulation, item, err));
    return ND_GIVE(out, emulation);
}

char *nd_emulation_text(const struct nd_emulation *emulation)
{
    struct nd_strbuf text = {0};
    for (size_t i = 0; i < emulation->n; i++)
        nd_strbuf_printf(&text, "%s%s", i > 0 ? "," : "", emulation->items[i].text);
    return nd_strbuf_take(&text);
}

void nd_emulation_deinit(struct nd_emulation *emulation)
{
    ND_DEINIT_EACH(free_item, emulation->items, emulation->n);
    *emulation = (struct nd_emulation){0};
}

bool nd_emu_is_same_arithmetic(const struct nd_emu_arithmetic *a, const struct nd_emu_arithmetic *b)
{
    static const struct nd_emu_arithmetic half_even;
    a = a != NULL ? a : &half_even;
    b = b != NULL ? b : &half_even;
    if (a->layer != NULL || b->layer != NULL)
        return a->layer == b->layer;
    if (a->is_stochastic || b->is_stochastic)
        return a->is_stochastic == b->is_stochastic && a->seed == b->seed;
    if (a->is_of_table || b->is_of_table)
        return a->is_of_table == b->is_of_table && nd_arithmetic_is_same(&a->arithmetic, &b->arithmetic);
    return a->rule.kind == b->rule.kind && a->rule.rounding == b->rule.rounding &&
           a->rule.n_bits == b->rule.n_bits;
}

bool nd_emu_is_of_qvalues(enum nd_emu_word word)
{
    return word != ND_EMU_SCALE && word != ND_EMU_ZERO_POINT && word != ND_EMU_SATURATE && word != ND_EMU_WRAP;
}

bool nd_emu_has_operator(const char *op_types, const char *op_type)
{
    size_t n = strlen(op_type);
    if (strcmp(op_types, op_type) == 0)
        return true;
    for (const char *at = op_types; at != NULL; at = strchr(at, '+')) {
        at += *at == '+';
        if (strncmp(at, op_type, n) == 0 && (at[n] == '\0' || at[n] == '+'))
            return true;
    }
    return false;
}
