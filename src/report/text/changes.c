/* What changed between two captures, for people: the values of one axis. */
#include <string.h>

#include "report/text/report_golden.h"
#include "report/text/summary.h"

enum { MAX_KEYS_TOLD = 3 };

/* Where two values begin to differ, at the start of a character. */
static size_t first_difference(const char *ref, const char *test)
{
    size_t at = 0;
    while (ref[at] != '\0' && ref[at] == test[at])
        at++;
    while (at > 0 && ((unsigned char)ref[at] & 0xc0) == 0x80)
        at--;
    return at;
}

/* At most n bytes from `at`, whole characters, with dots where something is left out. */
static void put_window(struct nd_strbuf *out, const char *text, size_t at, size_t n)
{
    size_t rest = strlen(text + at), end = at + (rest < n ? rest : n);
    while (end > at && ((unsigned char)text[end] & 0xc0) == 0x80)
        end--;
    nd_strbuf_printf(out, "%s%.*s%s", at > 0 ? "..." : "", (int)(end - at), text + at,
                     text[end] != '\0' ? "..." : "");
}

/* Digests and build strings say little to people, so long values are cut, --json has them whole; never so that
 * two different values look alike: the window is moved to where they part. */
static void put_values(struct nd_strbuf *out, const struct nd_golden_change *change)
{
    enum { MAX_VALUE_BYTES = 40, BYTES_BEFORE = 12 };
    const char *ref = change->ref != NULL ? change->ref : "(none)";
    const char *test = change->test != NULL ? change->test : "(none)";
    size_t parts = first_difference(ref, test), at = 0;
    if (parts + BYTES_BEFORE > MAX_VALUE_BYTES)
        at = parts - BYTES_BEFORE;
    while (at > 0 && ((unsigned char)ref[at] & 0xc0) == 0x80)
        at--;
    put_window(out, ref, at, MAX_VALUE_BYTES);
    nd_strbuf_puts(out, " -> ");
    put_window(out, test, at, MAX_VALUE_BYTES);
}

/* What stands first: 0 the id and the name of the chipset, 1 versions, 2 the rest, 3 libraries, which follow
 * from the id. */
static int rank_of(const char *key)
{
    if (strcmp(key, "id") == 0 || strcmp(key, "chipset") == 0)
        return 0;
    size_t n = strlen(key), n_version = strlen("_version");
    if (n > n_version && strcmp(key + n - n_version, "_version") == 0)
        return 1;
    return strncmp(key, "library ", 8) == 0 ? 3 : 2;
}

bool nd_golden_has_changed(const struct nd_golden_difference *d, const char *key)
{
    for (size_t i = 0; i < d->n_changes; i++)
        if (strcmp(d->changes[i].key, key) == 0)
            return true;
    return false;
}

/* What people call an axis. One runtime holds two programs, each with a version. */
const char *nd_golden_axis_name(const char *axis)
{
    return strcmp(axis, "sdk") == 0 ? "runtime" : axis;
}

/* "QAIRT 2.50.40 -> 2.51.0": the versions of a runtime by the names of what they are of. */
static void put_change(struct nd_strbuf *out, const struct nd_golden_change *change)
{
    static const char qairt[] = "qairt-";
    size_t n = strlen(qairt);
    bool is_id = strcmp(change->key, "id") == 0 && change->ref != NULL && change->test != NULL &&
                 strncmp(change->ref, qairt, n) == 0 && strncmp(change->test, qairt, n) == 0;
    if (is_id) {
        nd_strbuf_printf(out, "QAIRT %s -> %s", change->ref + n, change->test + n);
        return;
    }
    nd_strbuf_printf(out, "%s ",
                     strcmp(change->key, "ort_version") == 0        ? "ONNX Runtime"
                     : strcmp(change->key, "provider_version") == 0 ? "its QNN provider"
                                                                    : change->key);
    put_values(out, change);
}

/* "  runtime changed: QAIRT 2.50.40 -> 2.51.0, ONNX Runtime 1.29.0 -> 1.31.1, and 7 more (--json has all)". */
void nd_golden_put_axis(struct nd_strbuf *text, const char *axis, const struct nd_golden_difference *d,
                        size_t width)
{
    size_t n_told = 0, n = 0;
    struct nd_strbuf line = {0}, *out = &line;
    nd_strbuf_printf(out, "%s changed: ", nd_golden_axis_name(axis));
    for (int rank = 0; rank < 4; rank++) {
        for (size_t i = 0; i < d->n_changes; i++) {
            const struct nd_golden_change *change = &d->changes[i];
            if (strcmp(change->axis, axis) != 0 || rank_of(change->key) != rank || change->follows_from != NULL)
                continue;
            n++;
            if (n_told >= MAX_KEYS_TOLD)
                continue;
            nd_strbuf_puts(out, n_told > 0 ? ", " : "");
            put_change(out, change);
            n_told++;
        }
    }
    if (n > n_told)
        nd_strbuf_printf(out, ", and %zu more (--json has all)", n - n_told);
    nd_summary_put(text, width, 2, 4, "%s", line.text != NULL ? line.text : "");
    text->failed = text->failed || line.failed;
    nd_strbuf_deinit(&line);
}
