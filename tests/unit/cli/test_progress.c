/* The lines of a progress fit every terminal. */
#include "support/main.h"

#include <stdio.h>
#include <string.h>

#include "cli/terminal/progress.h"

static size_t columns_of(const char *line)
{
    size_t n = 0;
    for (; *line != '\0'; line++)
        n += ((unsigned char)*line & 0xc0) != 0x80;
    return n;
}

static void a_line_says_as_much_as_fits(void **state)
{
    (void)state;
    const struct cli_progress_track track = {
        .label = "gen3", .stage = "run", .unit = "samples", .done = 350, .total = 700, .elapsed_s = 7};
    static const struct {
        size_t columns;
        const char *line;
    } cases[] = {
        {79, "gen3 run [##########..........] 350/700 samples  50/s  0:07 left"},
        {60, "gen3 run [######......] 350/700  50/s  0:07 left"},
        {39, "gen3 run [#####.....] 350/700 0:07 left"},
        {34, "gen3 run 50% 0:07 left"},
        {20, "gen3 50% 0:07 left"},
        {10, "gen3 50%"},
        {6, "gen3 5"},
    };
    char line[CLI_PROGRESS_LINE_BYTES];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        cli_progress_compose(&track, cases[i].columns, line);
        assert_string_equal(line, cases[i].line);
    }
}

static void no_line_is_wider_than_the_terminal(void **state)
{
    (void)state;
    static const char *const labels[] = {
        "cpu", "emu:htp-v73,stale@residual/conv,zero@logits,permute@pool,flip@stem/relu=0.5",
        "adb:R5CX10ABCDEFGHIJKLMNOPQR/htp@qairt-2.51.0", "ssh:wächter-größe-ünïcödé.example/htp", ""};
    static const size_t totals[] = {0, 1, 700, 100000000};
    char line[CLI_PROGRESS_LINE_BYTES];
    for (size_t l = 0; l < sizeof labels / sizeof labels[0]; l++)
        for (size_t t = 0; t < sizeof totals / sizeof totals[0]; t++)
            for (size_t columns = 1; columns < 200; columns++) {
                struct cli_progress_track track = {.stage = "placement",
                                                   .unit = "samples",
                                                   .total = totals[t],
                                                   .done = totals[t] / 3,
                                                   .elapsed_s = 100};
                snprintf(track.label, sizeof track.label, "%s", labels[l]);
                cli_progress_compose(&track, columns, line);
                assert_in_range(columns_of(line), 0, columns);
                assert_null(strchr(line, '\n'));
            }
}

static void rate_and_rest_count_from_the_beginning_of_the_stage(void **state)
{
    (void)state;
    /* 600 of 700 samples were there already: the 10 new ones took 100 seconds. */
    const struct cli_progress_track track = {
        .label = "cpu", .stage = "run", .done = 610, .done_before = 600, .total = 700, .elapsed_s = 100};
    const struct cli_progress_track young = {
        .label = "cpu", .stage = "run", .done = 1, .total = 700, .elapsed_s = 0.5};
    const struct cli_progress_track slow = {
        .label = "cpu", .stage = "run", .done = 1, .total = 61, .elapsed_s = 120};
    char line[CLI_PROGRESS_LINE_BYTES];
    cli_progress_compose(&track, 79, line);
    assert_string_equal(line, "cpu run [#################...] 610/700  0.1/s  15:00 left");
    cli_progress_compose(&young, 79, line);
    assert_string_equal(line, "cpu run [....................] 1/700");
    cli_progress_compose(&slow, 79, line);
    assert_string_equal(line, "cpu run [....................] 1/61  0.5/min  2:00:00 left");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_says_as_much_as_fits),
        cmocka_unit_test(no_line_is_wider_than_the_terminal),
        cmocka_unit_test(rate_and_rest_count_from_the_beginning_of_the_stage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
