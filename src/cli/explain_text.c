#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/explain_report.h"

enum { N_WORST = 3, N_LISTED = 12, CELL_BYTES = 512 };

/* Of the first two columns of the table. */
struct widths {
    int name, op;
};

/* ---- pieces ---- */

/* Names come from files: nothing of them may steer a terminal. */
static void clean(char *text)
{
    for (; *text != '\0'; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            *text = '?';
}

/* Prints a paragraph behind `indent` blanks, broken at blanks; lines that follow are indented by two more. */
ND_PRINTF(3, 4) static void print_wrapped(size_t width, size_t indent, const char *fmt, ...)
{
    char *text = NULL;
    va_list arguments;
    va_start(arguments, fmt);
    int n = vasprintf(&text, fmt, arguments);
    va_end(arguments);
    if (n < 0)
        return;
    clean(text);
    size_t column = 0;
    char *rest = NULL;
    for (char *word = strtok_r(text, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest)) {
        if (column > 0 && column + 1 + strlen(word) > width) {
            putchar('\n');
            column = 0;
            indent += indent < 4 ? 2 : 0;
        }
        column += (size_t)(column == 0 ? printf("%*s%s", (int)indent, "", word) : printf(" %s", word));
    }
    putchar('\n');
    free(text);
}

/* "12.3%", "<0.01%" for anything above zero. */
static char *format_share(uint64_t n, uint64_t total, char buf[static 32])
{
    double percent = total > 0 ? 100 * (double)n / (double)total : 0;
    if (n == 0 || n == total)
        snprintf(buf, 32, "%.0f%%", percent);
    else if (percent < 0.01)
        snprintf(buf, 32, "<0.01%%");
    else
        snprintf(buf, 32, percent < 1 ? "%.2f%%" : "%.1f%%", fmin(percent, 99.9));
    return buf;
}

static char *format_real(double value, char buf[static 32])
{
    if (isnan(value))
        snprintf(buf, 32, "-");
    else
        snprintf(buf, 32, "%.3g", value);
    return buf;
}

/* A copy of at most `max` characters that lost its middle; bytes of UTF-8 are not cut apart. */
static void shorten(const char *text, size_t max, char out[static CELL_BYTES])
{
    size_t n = strlen(text);
    max = max < CELL_BYTES - 1 ? max : CELL_BYTES - 1;
    if (n <= max) {
        memcpy(out, text, n + 1);
    } else {
        size_t head = (max - 2) / 2, tail = n - (max - 2 - head);
        while (head > 0 && ((unsigned char)text[head] & 0xc0) == 0x80)
            head--;
        while (((unsigned char)text[tail] & 0xc0) == 0x80)
            tail++;
        memcpy(out, text, head);
        memcpy(out + head, "..", 2);
        memcpy(out + head + 2, text + tail, n - tail + 1);
    }
    clean(out);
}

/* ---- sentences ---- */

static void print_sentence(const struct nd_explanation *e, const struct nd_explained_device *device,
                           size_t width)
{
    if (device->output.n_codes == 0 || isnan(device->own_share))
        return;
    char interval[64] = "", made[CELL_BYTES] = "";
    if (!isnan(device->own_share_interval.low))
        snprintf(interval, sizeof interval, " [95%%: %.2f to %.2f%%]", 100 * device->own_share_interval.low,
                 100 * device->own_share_interval.high);
    if (device->n_sources > 0) {
        const struct nd_explained_step *first = &e->steps[device->sources[0]];
        snprintf(made, sizeof made, ", made first in '%.300s' (%.80s)", first->name, first->op_types);
    }
    print_wrapped(width, 2,
                  "%.2f%% of its output error is quantisation and common to all; %.2f%%%s is its own%s",
                  100 * (1 - device->own_share), 100 * device->own_share, interval, made);
    const struct nd_decomposition *o = &device->output;
    char q[32], d[32], c[32], rho[32], bias[32], nf[32], sqnr[32];
    print_wrapped(
        width, 2,
        "output, in steps^2: quantisation %s, divergence %s, interaction %s (correlation %s); bias %s; SQNR of "
        "the quantisation %s dB, noise figure %s dB",
        format_real(o->quantisation, q), format_real(o->divergence, d), format_real(o->interaction, c),
        format_real(o->correlation, rho), format_real(o->bias, bias), format_real(o->sqnr_db, sqnr),
        format_real(o->noise_figure_db, nf));
}

static void print_sources(const struct nd_explanation *e, const struct nd_explained_device *device,
                          size_t width)
{
    for (size_t i = 0; i < device->n_sources && i < N_WORST; i++) {
        const struct nd_explained_step *step = &e->steps[device->sources[i]];
        const struct nd_explained_unit *unit = &device->units[device->sources[i]];
        char share[32], max[32], mean[32];
        print_wrapped(width, 2,
                      "%s '%s' (%s): %s of its codes are not what its own inputs give, by at most %s, "
                      "%s on average",
                      i == 0 ? "begins in" : "begins apart in", step->name, step->op_types,
                      format_share(unit->local.n_differing, unit->n_codes, share),
                      format_real(unit->local.max, max), format_real(unit->local.mean, mean));
    }
    if (device->n_sources > N_WORST)
        printf("  and begins apart in %zu more\n", device->n_sources - N_WORST);
}

/* The next step in order of falling local energy after `last` (SIZE_MAX: the first); of equals the earlier. */
static size_t next_worst(const struct nd_explanation *e, const struct nd_explained_device *device, size_t last)
{
    size_t best = SIZE_MAX;
    for (size_t s = 0; s < e->n_steps; s++) {
        const struct nd_explained_unit *unit = &device->units[s];
        if (!unit->is_examined || unit->local.n_differing == 0 || unit->is_within_step)
            continue;
        double x = unit->local.energy, limit = last != SIZE_MAX ? device->units[last].local.energy : HUGE_VAL;
        if ((x < limit || (x == limit && s > last)) &&
            (best == SIZE_MAX || x > device->units[best].local.energy))
            best = s;
    }
    return best;
}

static void print_worst(const struct nd_explanation *e, const struct nd_explained_device *device, size_t width)
{
    size_t s = SIZE_MAX;
    for (size_t i = 0; i < N_WORST && (s = next_worst(e, device, s)) != SIZE_MAX; i++) {
        const struct nd_explained_unit *unit = &device->units[s];
        char share[32], max[32], mean[32], local[32];
        print_wrapped(
            width, i == 0 ? 2 : 9, "%s'%s' (%s): local energy %s, %s of its codes, at most %s, bias %s",
            i == 0 ? "worst: " : "", e->steps[s].name, e->steps[s].op_types,
            format_real(unit->local.energy, local), format_share(unit->local.n_differing, unit->n_codes, share),
            format_real(unit->local.max, max), format_real(unit->local.mean, mean));
    }
}

static void print_not_examined(const struct nd_explanation *e, const struct nd_explained_device *device,
                               size_t width)
{
    size_t n = 0;
    for (size_t s = 0; s < e->n_steps; s++) {
        if (device->units[s].is_examined)
            continue;
        if (++n <= N_LISTED)
            print_wrapped(width, 2, "not examined: '%s' (%s): %s", e->steps[s].name, e->steps[s].op_types,
                          device->units[s].why_not);
    }
    if (n > N_LISTED)
        printf("  and %zu more not examined\n", n - N_LISTED);
}

static void print_within(const struct nd_explanation *e, const struct nd_explained_device *device, size_t width)
{
    for (size_t s = 0; s < e->n_steps; s++) {
        char share[32];
        if (device->units[s].is_within_step)
            print_wrapped(width, 2, "within one step of a double evaluation: '%s' (%s), %s of its codes",
                          e->steps[s].name, e->steps[s].op_types,
                          format_share(device->units[s].local.n_differing, device->units[s].n_codes, share));
    }
}

/* ---- the table ---- */

static const char *remark(const struct nd_explained_step *step, const struct nd_explained_unit *unit)
{
    if (!unit->is_examined)
        return "not examined";
    if (unit->is_source)
        return "source";
    if (unit->is_within_step)
        return "within one step";
    return step->is_double ? "double" : "";
}

static void print_row(const char *name, const char *op, struct widths widths, const char *const cells[static 7])
{
    printf("  %-*s  %-*s  %7s  %5s  %9s  %7s  %7s  %8s", widths.name, name, widths.op, op, cells[0], cells[1],
           cells[2], cells[3], cells[4], cells[5]);
    printf(cells[6][0] != '\0' ? "  %s\n" : "%s\n", cells[6]);
}

static void print_unit(const struct nd_explained_step *step, const struct nd_explained_unit *unit,
                       struct widths widths)
{
    char name[CELL_BYTES], op[CELL_BYTES], local[32] = "-", max[32], mean[32], inherited[32] = "-",
                                           total[32] = "-";
    char gain[32];
    shorten(step->name, (size_t)widths.name, name);
    shorten(step->op_types, (size_t)widths.op, op);
    if (unit->is_examined) {
        format_share(unit->local.n_differing, unit->n_codes, local);
        format_share(unit->inherited.n_differing, unit->n_codes, inherited);
    }
    if (unit->has_total)
        format_share(unit->total.n_differing, unit->n_codes, total);
    const char *cells[7] = {local,
                            format_real(unit->is_examined ? unit->local.max : NAN, max),
                            format_real(unit->is_examined ? unit->local.mean : NAN, mean),
                            inherited,
                            total,
                            format_real(unit->gain, gain),
                            remark(step, unit)};
    print_row(name, op, widths, cells);
}

static void print_units(const struct nd_explanation *e, const struct nd_explained_device *device, size_t width)
{
    static const char *const titles[7] = {"local", "max", "bias", "inherit", "total", "gain", ""};
    size_t longest = strlen("unit"), op = width < 116 ? 10 : 16, limit = width - 76 - op;
    for (size_t s = 0; s < e->n_steps; s++)
        longest = strlen(e->steps[s].name) > longest ? strlen(e->steps[s].name) : longest;
    const struct widths widths = {(int)(longest < limit ? longest : limit), (int)op};
    print_row("unit", "op", widths, titles);
    for (size_t s = 0; s < e->n_steps; s++)
        print_unit(&e->steps[s], &device->units[s], widths);
}

/* ---- the report ---- */

static void print_device(const struct nd_explanation *e, const struct nd_explained_device *device, size_t width)
{
    printf("\n");
    print_wrapped(width, 0, "%s: %s (%s)", device->uri, nd_verdict_name(device->verdict), device->capture);
    if (device->failure != NULL) {
        print_wrapped(width, 2, "%s", device->failure);
        return;
    }
    print_sentence(e, device, width);
    print_sources(e, device, width);
    print_worst(e, device, width);
    print_within(e, device, width);
    print_not_examined(e, device, width);
    if (device->n_sources == 0 && device->n_examined > 0)
        print_wrapped(width, 2, "no code of the %zu steps that were examined is the device's own doing",
                      device->n_examined);
    if (device->n_examined == 0)
        print_wrapped(width, 2,
                      "nothing can be told apart without the codes of all edges: capture with --edges all");
    else if (device->verdict != ND_VERDICT_SAME)
        print_units(e, device, width);
}

void explain_print_text(const struct nd_explanation *e, size_t width)
{
    print_wrapped(width, 0, "%s, probe '%s', %zu sample%s, %zu device%s%s%s", e->model,
                  e->probe != NULL ? e->probe : "", e->n_samples, e->n_samples == 1 ? "" : "s", e->n_devices,
                  e->n_devices == 1 ? "" : "s", e->float_model != NULL ? ", float reference " : "",
                  e->float_model != NULL ? e->float_model : "");
    if (e->float_model == NULL)
        printf("without --float nothing can be said of the quantisation\n");
    for (size_t d = 0; d < e->n_devices; d++)
        print_device(e, &e->devices[d], width);
    printf("\nverdict: %s\n", nd_verdict_name(e->verdict));
}
