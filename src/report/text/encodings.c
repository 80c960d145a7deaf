/* The default texts of `npudiff encodings`: the answer first, then the tensors that fit one screen. */
#include <jansson.h>
#include <stdint.h>
#include <string.h>

#include "core/documents/json_out.h"
#include "core/files/file.h"
#include "npudiff/compare/config.h"
#include "npudiff/model/encodings.h"
#include "npudiff/report/report.h"
#include "report/text/tree.h"

/* What encodings are, how they differ, and what a capture uses of them: as a table or as JSON. */

static json_t *scales_of(const struct nd_quant *quant)
{
    json_t *list = json_array();
    for (size_t i = 0; i < quant->n; i++)
        nd_tree_append(list, json_real((double)quant->scale[i]));
    return list;
}

static json_t *zero_points_of(const struct nd_quant *quant)
{
    json_t *list = json_array();
    for (size_t i = 0; i < quant->n; i++)
        nd_tree_append(list, json_integer(quant->zero_point[i]));
    return list;
}

/* "uint8", "int8 of 6 bits". */
static json_t *type_of(const struct nd_encoding *item)
{
    int whole = item->dtype == ND_DTYPE_I4 || item->dtype == ND_DTYPE_U4
                    ? 4
                    : (int)(8 * nd_dtype_size_bytes(item->dtype));
    if (item->unhandled != NULL)
        return json_string("-");
    if (whole == item->bits)
        return json_string(nd_dtype_name(item->dtype));
    return json_sprintf("%s of %d bits", nd_dtype_name(item->dtype), item->bits);
}

/* One scale and zero point in words; of several only how many, and along which axis. */
static json_t *quantisation_text(const struct nd_encoding *item)
{
    const struct nd_quant *quant = &item->quant;
    if (item->unhandled != NULL)
        return json_sprintf("not applied: %s", item->unhandled);
    if (quant->n == 1)
        return json_sprintf("scale %.9g, zero point %lld", (double)quant->scale[0],
                            (long long)quant->zero_point[0]);
    if (item->has_axis)
        return json_sprintf("%zu scales on axis %d", quant->n, quant->axis);
    return json_sprintf("%zu scales, axis not stated", quant->n);
}

/* ---- list ---- */

static json_t *encoding_row(const struct nd_encoding *item)
{
    json_t *row =
        json_pack("{s:o, s:s, s:o, s:i, s:b, s:o, s:o, s:o}", "tensor", nd_json_string(item->name), "role",
                  nd_encoding_role_name(item->role), "type", type_of(item), "bits", item->bits, "symmetric",
                  item->is_symmetric, "quantisation", quantisation_text(item), "scale", scales_of(&item->quant),
                  "zero_point", zero_points_of(&item->quant));
    nd_tree_set(row, "axis", item->has_axis ? json_integer(item->quant.axis) : json_null());
    nd_tree_set(row, "not_applied", item->unhandled != NULL ? nd_json_string(item->unhandled) : json_null());
    return row;
}

static json_t *nd_encoding_rows(const struct nd_encodings *encodings, bool has_texts)
{
    json_t *rows = json_array();
    for (size_t i = 0; i < nd_encodings_n(encodings); i++) {
        json_t *row = encoding_row(nd_encodings_at(encodings, i));
        if (has_texts) {
            /* Seven digits for people: a float32 has no more that matter. */
            const struct nd_encoding *item = nd_encodings_at(encodings, i);
            const struct nd_quant *quant = &item->quant;
            bool is_one = item->unhandled == NULL && quant->n == 1;
            nd_tree_set(row, "scale_text",
                        is_one ? json_sprintf("%.7g", (double)quant->scale[0]) : quantisation_text(item));
            nd_tree_set(row, "zero_point_text", is_one ? json_integer(quant->zero_point[0]) : json_null());
        }
        nd_tree_append(rows, row);
    }
    return rows;
}

enum nd_status nd_report_encodings_json(const struct nd_encodings *encodings, char **out, struct nd_error *err)
{
    return nd_tree_end(ND_DOCUMENT_ENCODINGS,
                       json_pack("{s:o, s:s, s:o}", "path", nd_json_string(nd_encodings_path(encodings)),
                                 "source", nd_encodings_source(encodings), "encodings",
                                 nd_encoding_rows(encodings, false)),
                       out, err);
}

enum nd_status nd_report_encodings_text(const struct nd_encodings *encodings, char **out, struct nd_error *err)
{
    static const struct nd_report_column columns[] = {{"tensor", "TENSOR"},
                                                      {"role", "ROLE"},
                                                      {"type", "TYPE"},
                                                      {"quantisation", "QUANTISATION"},
                                                      {NULL, NULL}};
    json_auto_t *rows = nd_encoding_rows(encodings, false);
    struct nd_strbuf text = {0};
    nd_rows_put(&text, rows, columns);
    return nd_text_end(&text, out, err);
}

/* ---- apply ---- */

enum nd_status nd_report_encodings_applied_json(const struct nd_encodings_match *match,
                                                const struct nd_encodings *encodings, const char *output,
                                                char **out, struct nd_error *err)
{
    json_t *rows = json_array();
    for (size_t i = 0; i < match->n_omitted; i++) {
        const struct nd_encodings_omission *omission = &match->omitted[i];
        nd_tree_append(rows, json_pack("{s:o, s:o, s:b}", "tensor", nd_json_string(omission->name), "why",
                                       nd_json_string(omission->why), "unknown", omission->is_unknown));
    }
    return nd_tree_end(ND_DOCUMENT_ENCODINGS_APPLIED,
                       json_pack("{s:o, s:s, s:I, s:o}", "output",
                                 output != NULL ? nd_json_string(output) : json_null(), "source",
                                 nd_encodings_source(encodings), "applied",
                                 (json_int_t)(output != NULL ? match->n_applicable : 0), "not_applied", rows),
                       out, err);
}

/* ---- diff ---- */

static const char *verdict_of(const struct nd_encoding_difference *item)
{
    if (item->test == NULL)
        return "only in ref";
    if (item->ref == NULL)
        return "only in test";
    return item->is_same ? "same" : "differs";
}

static json_t *ratio_text(const struct nd_encoding_difference *item)
{
    if (!item->is_comparable)
        return json_string("-");
    if (item->min_ratio == item->largest_ratio)
        return json_sprintf("%.9g", item->min_ratio);
    return json_sprintf("%.9g..%.9g", item->min_ratio, item->largest_ratio);
}

static json_t *difference_row(const struct nd_encoding_difference *item)
{
    const struct nd_encoding *any = item->ref != NULL ? item->ref : item->test;
    json_t *row =
        json_pack("{s:o, s:s, s:o, s:o, s:o, s:o, s:o}", "tensor", nd_json_string(any->name), "verdict",
                  verdict_of(item), "ref_type", item->ref != NULL ? type_of(item->ref) : json_null(),
                  "test_type", item->test != NULL ? type_of(item->test) : json_null(), "ref",
                  item->ref != NULL ? quantisation_text(item->ref) : json_null(), "test",
                  item->test != NULL ? quantisation_text(item->test) : json_null(), "ratio", ratio_text(item));
    nd_tree_set(row, "scale_ratio_min", nd_json_number(item->min_ratio));
    nd_tree_set(row, "scale_ratio_largest", nd_json_number(item->largest_ratio));
    nd_tree_set(row, "zero_point_difference",
                item->is_comparable ? json_integer(item->zero_point_difference) : json_null());
    return row;
}

/* Those that are the same are left out. */
static json_t *nd_encoding_difference_rows(const struct nd_encodings_diff *diff, bool has_texts)
{
    json_t *rows = json_array();
    for (size_t i = 0; i < diff->n_items; i++) {
        if (diff->items[i].is_same)
            continue;
        json_t *row = difference_row(&diff->items[i]);
        if (has_texts) {
            /* Four digits of the ratios, and the type as one text. */
            const struct nd_encoding_difference *item = &diff->items[i];
            const char *ref = json_string_value(json_object_get(row, "ref_type"));
            const char *test = json_string_value(json_object_get(row, "test_type"));
            bool is_changed = ref != NULL && test != NULL && strcmp(ref, test) != 0;
            nd_tree_set(row, "what",
                        json_string(item->test == NULL  ? "only in A"
                                    : item->ref == NULL ? "only in B"
                                                        : "differs"));
            nd_tree_set(row, "type",
                        is_changed ? json_sprintf("%s, %s", ref, test) : json_string(ref != NULL ? ref : test));
            if (item->is_comparable)
                nd_tree_set(row, "ratio_text",
                            item->min_ratio == item->largest_ratio
                                ? json_sprintf("%.4g", item->min_ratio)
                                : json_sprintf("%.4g to %.4g", item->min_ratio, item->largest_ratio));
        }
        nd_tree_append(rows, row);
    }
    return rows;
}

enum nd_status nd_report_encodings_diff_json(const struct nd_encodings_diff *diff,
                                             const struct nd_encodings *ref, const struct nd_encodings *test,
                                             char **out, struct nd_error *err)
{
    json_t *rows = json_array();
    for (size_t i = 0; i < diff->n_items; i++)
        nd_tree_append(rows, difference_row(&diff->items[i]));
    return nd_tree_end(
        ND_DOCUMENT_ENCODINGS_DIFFERENCE,
        json_pack("{s:s, s:o, s:o, s:I, s:I, s:I, s:I, s:o}", "verdict",
                  diff->n_same == diff->n_items ? "same" : "differs", "ref",
                  nd_json_string(nd_encodings_path(ref)), "test", nd_json_string(nd_encodings_path(test)),
                  "same", (json_int_t)diff->n_same, "different", (json_int_t)diff->n_different, "only_ref",
                  (json_int_t)diff->n_only_ref, "only_test", (json_int_t)diff->n_only_test, "tensors", rows),
        out, err);
}

enum nd_status nd_report_encodings_diff_text(const struct nd_encodings_diff *diff,
                                             const struct nd_encodings *ref, const struct nd_encodings *test,
                                             char **out, struct nd_error *err)
{
    static const struct nd_report_column columns[] = {
        {"tensor", "TENSOR"},  {"verdict", "VERDICT"},   {"ref_type", "REF"},
        {"test_type", "TEST"}, {"ratio", "SCALE RATIO"}, {"zero_point_difference", "ZERO POINT"},
        {NULL, NULL}};
    json_t *rows = nd_encoding_difference_rows(diff, false);
    struct nd_strbuf text = {0};
    if (json_array_size(rows) > 0)
        nd_rows_put(&text, rows, columns);
    json_decref(rows);
    nd_strbuf_printf(&text, "%zu same, %zu different, %zu only in '%s', %zu only in '%s'\n", diff->n_same,
                     diff->n_different, diff->n_only_ref, nd_encodings_path(ref), diff->n_only_test,
                     nd_encodings_path(test));
    return nd_text_end(&text, out, err);
}

/* ---- check ---- */

static json_t *percent(double share)
{
    return json_string(ND_PERCENT(share));
}

static const char *use_verdict(const struct nd_encoding_use *use, const struct nd_capture *capture)
{
    if (use->tensor == SIZE_MAX)
        return "not captured";
    if (nd_capture_tensor(capture, use->tensor)->quant.n == 0)
        return "floats";
    return use->is_stated_same ? "same" : "differs";
}

/* Those that are the same are left out. */
static json_t *nd_encoding_use_rows(const struct nd_encodings_check *check, const struct nd_capture *capture)
{
    json_t *rows = json_array();
    for (size_t i = 0; i < check->n_used; i++) {
        const struct nd_encoding_use *use = &check->uses[i];
        bool has = use->has_values;
        json_t *row =
            json_pack("{s:o, s:s, s:o, s:I, s:I}", "tensor", nd_json_string(use->encoding->name), "verdict",
                      use_verdict(use, capture), "encoding", quantisation_text(use->encoding), "elements",
                      (json_int_t)use->n_elements, "nan", (json_int_t)use->n_nan);
        nd_tree_set(row, "lowest", has ? nd_json_number(use->lowest) : json_null());
        nd_tree_set(row, "highest", has ? nd_json_number(use->highest) : json_null());
        nd_tree_set(row, "low_share", has ? nd_json_number(use->low_share) : json_null());
        nd_tree_set(row, "high_share", has ? nd_json_number(use->high_share) : json_null());
        nd_tree_set(row, "used_range", has ? nd_json_number(use->used_range) : json_null());
        nd_tree_set(row, "low", has ? percent(use->low_share) : json_null());
        nd_tree_set(row, "high", has ? percent(use->high_share) : json_null());
        nd_tree_set(row, "used", has ? percent(use->used_range) : json_null());
        nd_tree_set(row, "span", has ? json_sprintf("%.6g..%.6g", use->lowest, use->highest) : json_null());
        nd_tree_append(rows, row);
    }
    return rows;
}

enum nd_status nd_report_encodings_check_json(const struct nd_encodings_check *check,
                                              const struct nd_encodings *encodings,
                                              const struct nd_capture *capture, char **out,
                                              struct nd_error *err)
{
    json_t *without = json_array();
    for (size_t i = 0; i < check->n_without; i++)
        nd_tree_append(without, nd_json_string(nd_capture_tensor(capture, check->without[i])->name));
    return nd_tree_end(ND_DOCUMENT_ENCODINGS_CHECK,
                       json_pack("{s:o, s:o, s:o, s:o}", "encodings",
                                 nd_json_string(nd_encodings_path(encodings)), "capture",
                                 nd_json_string(nd_capture_path(capture)), "tensors",
                                 nd_encoding_use_rows(check, capture), "without_encoding", without),
                       out, err);
}

enum nd_status nd_report_encodings_check_text(const struct nd_encodings_check *check,
                                              const struct nd_encodings *encodings,
                                              const struct nd_capture *capture, char **out,
                                              struct nd_error *err)
{
    static const struct nd_report_column columns[] = {
        {"tensor", "TENSOR"},   {"verdict", "STATED"},  {"span", "VALUES"}, {"low", "AT LOWEST"},
        {"high", "AT HIGHEST"}, {"used", "RANGE USED"}, {NULL, NULL}};
    (void)encodings;
    json_t *rows = nd_encoding_use_rows(check, capture);
    struct nd_strbuf text = {0};
    nd_rows_put(&text, rows, columns);
    json_decref(rows);
    for (size_t i = 0; i < check->n_without; i++)
        nd_strbuf_printf(&text, "tensor '%s' is quantised and has no encoding\n",
                         nd_capture_tensor(capture, check->without[i])->name);
    return nd_text_end(&text, out, err);
}

static const char lists_all[] = "-v lists all";

/* ---- list ---- */

enum nd_status nd_report_encodings_brief(const struct nd_encodings *encodings, size_t width, char **out,
                                         struct nd_error *err)
{
    static const struct nd_report_column columns[] = {{"tensor", "TENSOR"},
                                                      {"role", "ROLE"},
                                                      {"type", "TYPE"},
                                                      {"scale_text", "SCALE"},
                                                      {"zero_point_text", "ZERO POINT"},
                                                      {NULL, NULL}},
                                         without_role[] = {{"tensor", "TENSOR"},
                                                           {"type", "TYPE"},
                                                           {"scale_text", "SCALE"},
                                                           {"zero_point_text", "ZERO POINT"},
                                                           {NULL, NULL}};
    struct nd_report_screen *screen = nd_report_screen_create(width);
    size_t n = nd_encodings_n(encodings), n_listed = 0, n_roles = 0;
    for (size_t i = 0; i < n; i++) {
        const struct nd_encoding *item = nd_encodings_at(encodings, i);
        n_listed += item->unhandled != NULL;
        n_roles += item->role != ND_ENCODING_UNSTATED;
    }
    nd_report_screen_put(screen, "%s (%s): %zu encoding%s\n", nd_path_base(nd_encodings_path(encodings)),
                         nd_encodings_source(encodings), n, nd_plural(n));
    if (n_listed > 0)
        nd_report_screen_put(screen, "'npudiff encodings apply' leaves out %zu of them (-v says why).\n",
                             n_listed);
    nd_report_screen_put(screen, "\n");
    nd_screen_rows(screen, nd_encoding_rows(encodings, true), n_roles > 0 ? columns : without_role, lists_all);
    const char *next[] = {
        "npudiff", "encodings", "check", nd_encodings_path(encodings), "captures/cpu.h5",
    };
    nd_report_screen_next(screen, "to see which values reach the end of their range", next,
                          sizeof next / sizeof next[0]);
    return nd_report_screen_end(&screen, out, err);
}

/* ---- diff ---- */

/* The tensor whose scale changes by the largest factor. */
static const struct nd_encoding_difference *find_largest(const struct nd_encodings_diff *diff)
{
    const struct nd_encoding_difference *largest = NULL;
    double most = 1;
    for (size_t i = 0; i < diff->n_items; i++) {
        const struct nd_encoding_difference *item = &diff->items[i];
        double up = item->largest_ratio, down = 1 / item->min_ratio, factor = up > down ? up : down;
        if (item->is_comparable && factor > most) {
            most = factor;
            largest = item;
        }
    }
    return largest;
}

enum nd_status nd_report_encodings_diff_brief(const struct nd_encodings_diff *diff,
                                              const struct nd_encodings *ref, const struct nd_encodings *test,
                                              size_t width, char **out, struct nd_error *err)
{
    static const struct nd_report_column columns[] = {{"tensor", "TENSOR"},
                                                      {"what", "VERDICT"},
                                                      {"type", "TYPE"},
                                                      {"ratio_text", "SCALE B / A"},
                                                      {"zero_point_difference", "ZERO POINT B - A"},
                                                      {NULL, NULL}};
    struct nd_report_screen *screen = nd_report_screen_create(width);
    const struct nd_encoding_difference *largest = find_largest(diff);
    bool is_same = diff->n_same == diff->n_items;
    if (is_same)
        nd_report_screen_put(screen, "SAME: all %zu encodings are equal\n", diff->n_items);
    else
        nd_report_screen_put(screen, "DIFFERS: %zu of %zu encodings\n", diff->n_items - diff->n_same,
                             diff->n_items);
    const char *a = nd_path_base(nd_encodings_path(ref)), *b = nd_path_base(nd_encodings_path(test));
    bool is_clear = strcmp(a, b) != 0; /* without the folders */
    nd_report_screen_put(screen, "A: %s (%s)\nB: %s (%s)\n", is_clear ? a : nd_encodings_path(ref),
                         nd_encodings_source(ref), is_clear ? b : nd_encodings_path(test),
                         nd_encodings_source(test));
    if (diff->n_only_ref > 0)
        nd_report_screen_put(screen, "Only A has %zu of the tensors.\n", diff->n_only_ref);
    if (diff->n_only_test > 0)
        nd_report_screen_put(screen, "Only B has %zu of the tensors.\n", diff->n_only_test);
    if (largest != NULL)
        nd_report_screen_put(screen, "The scale of '%s' changes most: the one of B is %.4g times that of A.\n",
                             largest->ref->name,
                             largest->largest_ratio > 1 / largest->min_ratio ? largest->largest_ratio
                                                                             : largest->min_ratio);
    if (!is_same) {
        const char *next[] = {"npudiff", "encodings", "check", nd_encodings_path(test), "captures/cpu.h5"};
        nd_report_screen_put(screen, "\n");
        nd_screen_rows(screen, nd_encoding_difference_rows(diff, true), columns, lists_all);
        nd_report_screen_next(screen, "to see which values reach the end of their range in B", next,
                              sizeof next / sizeof next[0]);
    }
    return nd_report_screen_end(&screen, out, err);
}

/* ---- check ---- */

static void count_uses(const struct nd_encodings_check *check, const struct nd_capture *capture, size_t *n_same,
                       size_t *n_different, const struct nd_encoding_use **fullest)
{
    for (size_t i = 0; i < check->n_used; i++) {
        const struct nd_encoding_use *use = &check->uses[i];
        if (use->tensor != SIZE_MAX && nd_capture_tensor(capture, use->tensor)->quant.n > 0) {
            *n_same += use->is_stated_same;
            *n_different += !use->is_stated_same;
        }
        if (use->has_values && use->high_share > (*fullest != NULL ? (*fullest)->high_share : 0))
            *fullest = use;
    }
}

enum nd_status nd_report_encodings_check_brief(const struct nd_encodings_check *check,
                                               const struct nd_encodings *encodings,
                                               const struct nd_capture *capture, size_t width, char **out,
                                               struct nd_error *err)
{
    static const struct nd_report_column columns[] = {{"tensor", "TENSOR"},   {"verdict", "ENCODING"},
                                                      {"low", "AT LOWEST"},   {"high", "AT HIGHEST"},
                                                      {"used", "RANGE USED"}, {NULL, NULL}};
    struct nd_report_screen *screen = nd_report_screen_create(width);
    const struct nd_encoding_use *fullest = NULL;
    size_t n_same = 0, n_different = 0, n = check->n_without;
    count_uses(check, capture, &n_same, &n_different, &fullest);
    if (n_different + n == 0)
        nd_report_screen_put(screen, "OK: the capture has the same encodings, on all %zu tensors in common\n",
                             n_same);
    else
        nd_report_screen_put(screen,
                             "DIFFERS: %zu tensors have a different encoding in the capture, %zu the same\n",
                             n_different, n_same);
    nd_report_screen_put(screen, "%s (%s) against %s\n", nd_path_base(nd_encodings_path(encodings)),
                         nd_encodings_source(encodings), nd_path_base(nd_capture_path(capture)));
    if (n > 0)
        nd_report_screen_put(
            screen, "%zu quantised tensor%s of the capture %s no encoding in the file, such as '%s'.\n", n,
            nd_plural(n), n == 1 ? "has" : "have", nd_capture_tensor(capture, check->without[0])->name);
    if (fullest != NULL)
        nd_report_screen_put(screen, "'%s' has the most values at the highest value of its range: %s.\n",
                             fullest->encoding->name, ND_PERCENT(fullest->high_share));
    nd_report_screen_put(screen, "\n");
    nd_screen_rows(screen, nd_encoding_use_rows(check, capture), columns, lists_all);
    if (n_different + n > 0) {
        const char *next[] = {"npudiff", "encodings", "diff", nd_encodings_path(encodings),
                              nd_capture_path(capture)};
        nd_report_screen_next(screen, "to see how the encodings differ", next, sizeof next / sizeof next[0]);
    }
    return nd_report_screen_end(&screen, out, err);
}
