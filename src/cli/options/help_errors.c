#include "cli/options/help_errors.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "cli/terminal/errors.h"
#include "cli/options/help.h"
#include "npudiff/core/parse.h"

/* The names of the two tables tie them together: a help without an error does not compile. */
static const struct {
    int id;
    enum nd_status status;
    const char *summary;
} errors[] = {
#define ND_ERROR(name, number, status, summary) {number, status, summary},
#include "npudiff/core/error_ids.def"
#undef ND_ERROR
};

static const struct {
    int id;
    const char *cause;
    const char *action;
} helps[] = {
#define ND_ERROR_HELP(name, cause, action) {ND_E_##name, cause, action},
#include "npudiff/core/error_help.def"
#undef ND_ERROR_HELP
};

enum { N_ERRORS = sizeof errors / sizeof errors[0], N_HELPS = sizeof helps / sizeof helps[0] };

static const char *digits_of(const char *word)
{
    if (strncasecmp(word, "ND", 2) != 0)
        return word;
    word += 2;
    return word + (word[0] == '-');
}

bool cli_is_error_id(const char *word)
{
    uint64_t number;
    return nd_parse_u64(digits_of(word), &number);
}

static void print_part(const char *title, const char *text)
{
    enum { INDENT = 12 };
    printf("%-*s", INDENT, title);
    cli_print_wrapped(text, INDENT);
}

int cli_print_error_help(const char *word)
{
    uint64_t number = 0;
    size_t i = 0, k = 0;
    nd_parse_u64(digits_of(word), &number);
    while (i < N_ERRORS && (uint64_t)errors[i].id != number)
        i++;
    if (i == N_ERRORS)
        return cli_fail(CLI_E_OPTION_UNKNOWN, word, "there is no error '%s'; 'npudiff help errors' lists all",
                        word);
    while (k < N_HELPS && helps[k].id != errors[i].id)
        k++;
    int used = printf("ND-%d: ", errors[i].id);
    cli_print_wrapped(errors[i].summary, used > 0 ? (size_t)used : 0);
    putchar('\n');
    if (k < N_HELPS) {
        print_part("cause", helps[k].cause);
        print_part("what to do", helps[k].action);
    }
    printf("%-12s%d\n", "exit code", (int)nd_status_exit_code(errors[i].status));
    return 0;
}

int cli_print_errors(void)
{
    for (size_t i = 0; i < N_ERRORS; i++) {
        char id[16];
        snprintf(id, sizeof id, "ND-%d", errors[i].id);
        printf("%-8s ", id);
        cli_print_wrapped(errors[i].summary, 9);
    }
    printf("\n'npudiff help ND-%d' says what one of them means, its cause, and what to do.\n", errors[0].id);
    return 0;
}
