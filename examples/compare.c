/* Compares captures with libnpudiff: prints which tensors differ, by how much, and where the first difference
 * is.
 *
 * Build and run, once libnpudiff is installed:
 *
 *     cc examples/compare.c $(pkg-config --cflags --libs npudiff) -o compare
 *     npudiff capture model.onnx -d cpu -d htp-sim:gen3 -p uniform:16 -o captures
 *     ./compare captures/cpu.h5 captures/gen3.h5
 *
 * The exit code is that of `npudiff compare`: 0 when nothing differs, 1 when something does. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <npudiff/npudiff.h>

/* One line for each tensor that differs between the reference and this device. */
static void print_device(const struct nd_comparison *comparison, size_t device)
{
    const struct nd_compared_device *of = &comparison->devices[device];
    printf("%s against %s:\n", of->label, comparison->devices[0].label);
    if (of->first_tensor == SIZE_MAX)
        printf("  all %zu tensors are equal bit for bit\n", comparison->n_tensors);
    for (size_t e = 0; e < comparison->n_tensors; e++) {
        const struct nd_compared_tensor *tensor = &comparison->tensors[e];
        const struct nd_difference *difference = &tensor->pairs[device - 1].total.difference;
        if (difference->n_samples_differing == 0)
            continue;
        printf("  %s (%s): ", tensor->name, tensor->op_types);
        if (difference->has_values)
            printf("%" PRIu64 " of %" PRIu64 " values differ", difference->n_differing, difference->n_elems);
        else /* captures that hold digests only (capture --store digest) */
            printf("%" PRIu64 " of %" PRIu64 " samples differ", difference->n_samples_differing,
                   difference->n_samples);
        if (e == of->first_tensor)
            printf(", the first that does");
        if (difference->has_values && difference->is_integer)
            printf(", by at most %" PRIu64 " LSB", difference->max_lsb);
        putchar('\n');
    }
}

int main(int argc, char **argv)
{
    struct nd_error err = {0};
    struct nd_comparison *comparison = NULL;
    struct nd_compare_options options = nd_compare_options_default();
    int exit_code = ND_EXIT_TROUBLE;
    size_t n = (size_t)(argc - 1), n_open = 0;
    if (argc < 3) {
        fprintf(stderr, "usage: compare REF.h5 TEST.h5...\n");
        return ND_EXIT_TROUBLE;
    }
    struct nd_capture **captures = calloc(n, sizeof(struct nd_capture *));
    enum nd_status status = captures != NULL ? ND_OK : ND_ERR_MEMORY;
    while (status == ND_OK && n_open < n) {
        status = nd_capture_open(argv[1 + n_open], &captures[n_open], &err);
        n_open += status == ND_OK;
    }
    if (status == ND_OK)
        status =
            nd_compare_captures((const struct nd_capture *const *)captures, n, &options, &comparison, &err);
    if (status == ND_OK) {
        for (size_t device = 1; device < n; device++)
            print_device(comparison, device);
        exit_code = (int)nd_verdict_exit_code(comparison->verdict);
    } else {
        fprintf(stderr, "compare: %s [ND-%d]\n", err.message, err.id);
        exit_code = (int)nd_status_exit_code(status);
    }
    nd_comparison_destroy(&comparison);
    while (n_open > 0)
        nd_capture_close(&captures[--n_open]);
    free(captures);
    return exit_code;
}
