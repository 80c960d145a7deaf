/* Holding a capture against the entry that stands nearest, and two entries against each other. */
#include <math.h>

#include "core/memory.h"
#include "judge/accuracy/fleet_accuracy.h"
#include "judge/golden/store.h"
#include "npudiff/compare/compare.h"

/* How much a tensor differs from that of an entry: its digests only say that it does. */

static bool is_listed(const struct nd_golden_tensor *tensor, const char *probe)
{
    for (size_t i = 0; i < tensor->n_probes; i++)
        if (strcmp(tensor->probes[i], probe) == 0)
            return true;
    return false;
}

/* Fills how much each of the tensors differs that differ (of plain records). It is not known without ref
 * (nullable), or where a side keeps digests only. ND_ERR_MEMORY. */
static enum nd_status nd_store_measure(const struct nd_capture *ref, const struct nd_capture *test,
                                       struct nd_golden_difference *difference, struct nd_error *err)
{
    const struct nd_capture *const sides[] = {ref, test};
    struct nd_comparison *compared = NULL;
    struct nd_compare_options options = nd_compare_options_default();
    options.n_worst = 0;
    if (ref == NULL || difference->n_different == 0)
        return ND_OK;
    enum nd_status status = nd_compare_captures(sides, 2, &options, &compared, err);
    /* What cannot be compared in numbers leaves them unknown; the digests still count. */
    if (status != ND_OK)
        return status == ND_ERR_MEMORY ? status : ND_OK;
    for (size_t i = 0; i < difference->n_different; i++) {
        /* Unknown as soon as one of the probes is: the largest of the others would say too little. */
        struct nd_golden_tensor *tensor = &difference->different[i];
        size_t e = 0;
        while (e < compared->n_tensors && strcmp(compared->tensors[e].name, tensor->name) != 0)
            e++;
        tensor->is_known = e < compared->n_tensors;
        for (size_t p = 0; tensor->is_known && p < compared->n_probes; p++) {
            if (!is_listed(tensor, compared->probes[p].name))
                continue;
            const struct nd_compared_part *part = &compared->tensors[e].pairs[0].probes[p];
            const struct nd_difference *d = &part->difference;
            tensor->is_known = part->coverage != ND_COVERAGE_NONE && d->has_values && !d->is_mixed;
            tensor->has_lsb = d->is_integer;
            tensor->n_elems += d->n_elems;
            tensor->n_differing += d->n_differing;
            tensor->max_lsb = d->max_lsb > tensor->max_lsb ? d->max_lsb : tensor->max_lsb;
            tensor->has_error = tensor->has_error || d->has_errors;
            tensor->max_abs = d->has_errors ? fmax(tensor->max_abs, d->abs.max) : tensor->max_abs;
        }
        tensor->is_known = tensor->is_known && tensor->n_elems > 0;
    }
    nd_comparison_destroy(&compared);
    return ND_OK;
}

/* ---- the nearest entry ---- */

struct candidate {
    size_t entry; /* SIZE_MAX: none */
    size_t weight;
    struct nd_golden_difference difference;
};

static bool has_axis(const char *const *axes, size_t n, const char *axis)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(axes[i], axis) == 0)
            return true;
    return false;
}

/* The tensor in graph order on which they part, SIZE_MAX when on none. */
static size_t first_of(const struct nd_golden_difference *d)
{
    return d->n_different > 0 ? d->different[0].index : SIZE_MAX;
}

/* Whether a, which is not older than b, stands nearer. An entry of the very chipset stands before those of
 * others, whatever they compute: a chip that computes like another one is a finding. No other chipset is the
 * one before another: that which computes most alike is taken. Of several that were accepted for exactly these
 * axes one that is equal. Else the newer. */
static bool is_nearer(const struct candidate *a, const struct candidate *b)
{
    const struct nd_golden_difference *x = &a->difference, *y = &b->difference;
    if (b->entry == SIZE_MAX)
        return true;
    if (x->is_same_chipset != y->is_same_chipset)
        return x->is_same_chipset;
    if (x->n_axes != y->n_axes)
        return x->n_axes < y->n_axes;
    if (a->weight != b->weight)
        return a->weight < b->weight;
    if (has_axis(x->axes, x->n_axes, "chipset") && x->n_equal != y->n_equal)
        return x->n_equal > y->n_equal;
    if (has_axis(x->axes, x->n_axes, "chipset") && first_of(x) != first_of(y))
        return first_of(x) > first_of(y);
    return x->n_axes > 0 || nd_record_is_equal(x) || !nd_record_is_equal(y);
}

static enum nd_status find_nearest(const struct nd_golden *store, const json_t *record,
                                   struct candidate *nearest, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    *nearest = (struct candidate){.entry = SIZE_MAX};
    for (size_t i = 0; status == ND_OK && i < store->n; i++) {
        const json_t *ref = store->entries[i].json;
        struct candidate next = {.entry = i};
        status = nd_record_compare(ref, record, ref, &next.difference, err);
        /* Of two entries that differ in as many axes, the one whose difference is asked about more rarely
         * stands nearer: the question is what a new SDK changed on this chipset, not what this chipset does
         * otherwise. */
        static const char *const by_weight[] = {"host", "sdk", "options", "probes", "chipset"};
        size_t weight = 0;
        for (size_t w = 0; w < sizeof by_weight / sizeof by_weight[0]; w++)
            if (has_axis(next.difference.axes, next.difference.n_axes, by_weight[w]))
                weight += (size_t)1 << (2 * w);
        next.weight = weight;
        bool is_found =
            status == ND_OK && nd_record_is_comparable(&next.difference) && is_nearer(&next, nearest);
        nd_record_difference_deinit(is_found ? &nearest->difference : &next.difference);
        if (is_found)
            *nearest = next;
    }
    return status;
}

/* ---- the verdict ---- */

/* The axes that can be why tensors differ: only probes with the same inputs were compared, and so other probes
 * are no reason while there is another. */
static void suspect(struct nd_golden_check *check)
{
    const struct nd_golden_difference *d = &check->difference;
    check->n_blamed = 0;
    for (size_t i = 0; i < d->n_axes; i++)
        if (d->n_axes == 1 || strcmp(d->axes[i], nd_axis_name(ND_AXIS_PROBES)) != 0)
            check->blamed[check->n_blamed++] = d->axes[i];
}

/* Samples of the probes of a record that differ from run to run. */
static size_t sum_unstable(const json_t *record)
{
    const json_t *probe;
    size_t i, n = 0;
    json_array_foreach(json_object_get(record, "probes"), i, probe)
        n += (size_t)json_integer_value(json_object_get(probe, "unstable"));
    return n;
}

static void decide(struct nd_golden_check *check, const json_t *ref, const json_t *test, bool blame)
{
    const struct nd_golden_difference *d = &check->difference;
    bool has_failed = strcmp(nd_record_text(test, "status"), "failed") == 0;
    check->n_unstable[0] = sum_unstable(ref);
    check->n_unstable[1] = sum_unstable(test);
    suspect(check);
    check->failure = nd_record_failure(test);
    check->verdict = "differs";
    check->exit_code = ND_EXIT_DIFFERS;
    if (!nd_record_is_comparable(d)) {
        check->verdict = "not comparable";
        check->exit_code = ND_EXIT_NOT_COMPARABLE;
    } else if (nd_record_is_equal(d)) {
        check->verdict = "same";
        check->exit_code = ND_EXIT_SAME;
    } else if (has_failed && !d->is_same_end) {
        check->verdict = "failed";
        check->exit_code = ND_EXIT_DEVICE_FAILED;
    } else if (check->n_unstable[0] + check->n_unstable[1] > 0 || (check->n_blamed > 1 && !blame)) {
        check->verdict = "inconclusive";
        check->exit_code = ND_EXIT_INCONCLUSIVE;
    }
    bool is_blamed = check->exit_code == ND_EXIT_DIFFERS || check->exit_code == ND_EXIT_DEVICE_FAILED;
    if (!is_blamed || (check->n_blamed > 1 && !blame))
        check->n_blamed = 0;
}

/* The capture that an entry keeps, if it does; NULL is no error: its digests still count. ND_ERR_MEMORY. */
static enum nd_status open_kept(const struct nd_golden *store, size_t entry, struct nd_capture **out,
                                struct nd_error *err)
{
    enum nd_status status = nd_store_open_object(store, &store->entries[entry], out, err);
    if (status != ND_OK)
        *out = NULL;
    return status == ND_ERR_MEMORY ? status : ND_OK;
}

/* Why the capture cannot be right; NULL where nothing says so. A capture that is not kept (NULL), or whose
 * values cannot be read here, is judged by its digests alone. ND_ERR_MEMORY. */
static enum nd_status find_broken(const struct nd_capture *capture, char **why, struct nd_error *err)
{
    enum nd_status status = capture != NULL ? nd_broken_find(capture, why, err) : ND_OK;
    if (status != ND_OK)
        *why = NULL;
    return status == ND_ERR_MEMORY ? status : ND_OK;
}

static void call_reference_broken(struct nd_golden_check *check)
{
    check->exit_code = ND_EXIT_NOT_COMPARABLE;
    check->verdict = "reference broken";
}

/* Two captures that are equal and cannot be right are not the same for whoever asks: both were made with the
 * same broken inputs, labels or runtime. */
static enum nd_status note_broken(const struct nd_capture *capture, struct nd_golden_check *check,
                                  struct nd_error *err)
{
    enum nd_status status = find_broken(check->exit_code == ND_EXIT_SAME ? capture : NULL, &check->broken, err);
    if (check->broken != NULL)
        call_reference_broken(check);
    return status;
}

/* Of two entries each may be broken: what is equal to a broken one, or differs from it, is no measure. Where
 * they are equal one that is kept speaks for both. */
static enum nd_status note_both_broken(const struct nd_capture *ref, const struct nd_capture *test,
                                       struct nd_golden_check *check, struct nd_error *err)
{
    bool is_same = check->exit_code == ND_EXIT_SAME;
    if (!is_same && check->exit_code != ND_EXIT_DIFFERS)
        return ND_OK;
    enum nd_status status = find_broken(is_same && ref == NULL ? test : ref, &check->broken, err);
    if (status == ND_OK)
        status = find_broken(is_same && test == NULL ? ref : test, &check->test_broken, err);
    if (check->broken != NULL)
        call_reference_broken(check);
    return status;
}

void nd_golden_check_deinit(struct nd_golden_check *check)
{
    nd_golden_entry_deinit(&check->entry);
    nd_golden_entry_deinit(&check->test);
    nd_record_difference_deinit(&check->difference);
    ND_FREE_ALL(check->broken, check->test_broken);
    *check = (struct nd_golden_check){0};
}

/* ---- check ---- */

/* By how much, and against which entry. */
static enum nd_status judge(const struct nd_golden *store, size_t entry, const struct nd_capture *capture,
                            struct nd_golden_check *check, struct nd_error *err)
{
    ND_CLEANUP(nd_capture_close) struct nd_capture *kept = NULL;
    check->has_entry = true;
    ND_TRY(open_kept(store, entry, &kept, err));
    ND_TRY(nd_store_measure(kept, capture, &check->difference, err));
    ND_TRY(note_broken(capture, check, err));
    return nd_golden_entry(store, entry, &check->entry, err);
}

enum nd_status nd_golden_check(const struct nd_golden *store, const char *capture, bool blame,
                               struct nd_golden_check *out, struct nd_error *err)
{
    ND_CLEANUP(nd_capture_close) struct nd_capture *opened = NULL;
    struct candidate nearest = {.entry = SIZE_MAX};
    ND_CLEANUP(nd_golden_check_deinit)
    struct nd_golden_check check = {
        .verdict = "not comparable", .exit_code = ND_EXIT_NOT_COMPARABLE, .capture = capture};
    ND_TRY(nd_capture_open(capture, &opened, err));
    json_auto_t *record = nd_record_of_capture(opened);
    ND_TRY(record != NULL ? find_nearest(store, record, &nearest, err) : nd_fail_memory(err));
    check.difference = nearest.difference;
    if (nearest.entry != SIZE_MAX) {
        decide(&check, store->entries[nearest.entry].json, record, blame);
        ND_TRY(judge(store, nearest.entry, opened, &check, err));
    }
    return ND_GIVE(out, check);
}

/* ---- diff ---- */

/* A whole label, else the start of a name or of a label. */
static enum nd_status find_entry(const struct nd_golden *store, const char *wanted, size_t *out,
                                 struct nd_error *err)
{
    for (int by_prefix = 0; by_prefix < 2; by_prefix++) {
        size_t n_found = 0;
        for (size_t i = 0; i < store->n; i++) {
            const char *label = nd_record_text(store->entries[i].json, "label");
            size_t n = strlen(wanted);
            bool fits = by_prefix
                            ? strncmp(store->entries[i].id, wanted, n) == 0 || strncmp(label, wanted, n) == 0
                            : strcmp(label, wanted) == 0;
            if (fits)
                *out = i;
            n_found += fits;
        }
        if (n_found == 1)
            return ND_OK;
        if (n_found > 1)
            return nd_fail(err, ND_E_STORE_ENTRY, wanted, "'%s' fits %zu entries; expected one ('%s')", wanted,
                           n_found, "npudiff golden list");
    }
    return nd_fail(err, ND_E_STORE_ENTRY, wanted, "no name or label of an entry starts with '%s'", wanted);
}

enum nd_status nd_golden_diff(const struct nd_golden *store, const char *ref, const char *test,
                              struct nd_golden_check *out, struct nd_error *err)
{
    size_t a = 0, b = 0;
    ND_CLEANUP(nd_golden_check_deinit) struct nd_golden_check check = {.has_entry = true};
    ND_CLEANUP(nd_capture_close) struct nd_capture *kept_ref = NULL, *kept_test = NULL;
    ND_TRY(find_entry(store, ref, &a, err));
    ND_TRY(find_entry(store, test, &b, err));
    const json_t *left = store->entries[a].json, *right = store->entries[b].json;
    ND_TRY(nd_record_compare(left, right, left, &check.difference, err));
    ND_TRY(nd_golden_entry(store, a, &check.entry, err));
    ND_TRY(nd_golden_entry(store, b, &check.test, err));
    ND_TRY(open_kept(store, a, &kept_ref, err));
    ND_TRY(open_kept(store, b, &kept_test, err));
    ND_TRY(nd_store_measure(kept_test != NULL ? kept_ref : NULL, kept_test, &check.difference, err));
    decide(&check, left, right, true);
    ND_TRY(note_both_broken(kept_ref, kept_test, &check, err));
    if (check.exit_code == ND_EXIT_DEVICE_FAILED) /* both were accepted, failed or not */
        check.exit_code = ND_EXIT_DIFFERS;
    return ND_GIVE(out, check);
}
