/* What earlier tasks of a campaign left: the statistics of a comparison, as they are and with the digest made
 * right, so that what lies behind it is read; and what a task took. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "core/documents/json_out.h"
#include "fuzz/fuzz.h"
#include "judge/tasks/task.h"
#include "npudiff/compare/compare.h"

static void read_part(const char *path)
{
    struct nd_parts *parts = NULL;
    if (nd_parts_read(&path, 1, &parts, NULL) == ND_OK)
        nd_parts_destroy(&parts);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct nd_took_list took = {0};
    read_part(fuzz_file("result.json.took", data, size));
    nd_took_read_folder(fuzz_folder(), &took, NULL);
    nd_took_list_deinit(&took);
    json_t *root = json_loadb((const char *)data, size, JSON_REJECT_DUPLICATES, NULL);
    char *text = json_is_object(root) && nd_json_stamp(root, NULL) == ND_OK ? json_dumps(root, 0) : NULL;
    if (text != NULL)
        read_part(fuzz_file("result.json.took", (const uint8_t *)text, strlen(text)));
    free(text);
    json_decref(root);
    return 0;
}
