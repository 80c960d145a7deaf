/* The default texts of `npudiff encodings`: the answer first, then the tensors that fit one screen. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/files/file.h"
#include "core/documents/json_out.h"
#include "core/memory.h"
#include "npudiff/report/report.h"
#include "report/text/encoding_rows.h"
#include "report/text/summary.h"
#include "report/text/tree.h"

static const char lists_all[] = "-v lists all";

static const char *plural(size_t n)
{
    return n == 1 ? "" : "s";
}

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
                         nd_encodings_source(encodings), n, plural(n));
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
        double up = item->largest_ratio, down = 1 / item->least_ratio, factor = up > down ? up : down;
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
                             largest->largest_ratio > 1 / largest->least_ratio ? largest->largest_ratio
                                                                               : largest->least_ratio);
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
        if (use->edge != SIZE_MAX && nd_capture_edge(capture, use->edge)->quant.n > 0) {
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
            plural(n), n == 1 ? "has" : "have", nd_capture_edge(capture, check->without[0])->name);
    if (fullest != NULL)
        nd_report_screen_put(screen, "'%s' has the most values at the highest value of its range: %.3g%%.\n",
                             fullest->encoding->name, 100 * fullest->high_share);
    nd_report_screen_put(screen, "\n");
    nd_screen_rows(screen, nd_encoding_use_rows(check, capture), columns, lists_all);
    if (n_different + n > 0) {
        const char *next[] = {"npudiff", "encodings", "diff", nd_encodings_path(encodings),
                              nd_capture_path(capture)};
        nd_report_screen_next(screen, "to see how the encodings differ", next, sizeof next / sizeof next[0]);
    }
    return nd_report_screen_end(&screen, out, err);
}
