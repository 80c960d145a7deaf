/* The tensors that a capture lacks, with its own reasons. */
#include "cli/terminal/left_out.h"

#include <stdlib.h>
#include <string.h>

#include "cli/terminal/errors.h"
#include "cli/terminal/rows.h"

/* The first n bytes as a text of JSON. */
static json_t *text_of(const char *from, size_t n)
{
    char *copy = strndup(from, n);
    json_t *text = copy != NULL ? cli_text(copy) : NULL;
    if (copy == NULL)
        cli_errors_lost_memory();
    free(copy);
    return text;
}

/* The attribute has a line for each tensor: its name, a tab, the reason. */
json_t *cli_left_out_rows(const struct nd_capture *capture)
{
    json_t *rows = json_array();
    const char *line = nd_capture_string(capture, "runtime", "left_out");
    while (line != NULL && *line != '\0') {
        size_t n = strcspn(line, "\n"), n_name = strcspn(line, "\t\n");
        size_t begin = n_name < n ? n_name + 1 : n;
        json_array_append_new(rows, json_pack("{s:o, s:o}", "tensor", text_of(line, n_name), "reason",
                                              text_of(line + begin, n - begin)));
        line += n + (line[n] == '\n');
    }
    return rows;
}
