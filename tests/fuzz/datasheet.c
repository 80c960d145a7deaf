/* A datasheet, or a part of one: merged, and compared with another; as it is, and with the digest made right.
 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "core/documents/json_out.h"
#include "core/files/file.h"
#include "fuzz/fuzz.h"
#include "npudiff/lab/fingerprint.h"

static void read_sheet(const char *text)
{
    static void *other;
    size_t n;
    if (other == NULL && nd_file_read(GOLDEN "/fuzz/datasheet/other.json", 1 << 20, &other, &n, NULL) != ND_OK)
        abort();
    const struct nd_datasheet sheet = {text, "x"}, beside = {other, "y"};
    char *made = NULL;
    bool is_same;
    if (nd_fingerprint_merge(&sheet, 1, &made, NULL) == ND_OK)
        free(made);
    if (nd_fingerprint_diff(&sheet, &beside, &made, &is_same, NULL) == ND_OK)
        free(made);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = calloc(size + 1, 1);
    if (text == NULL)
        abort();
    memcpy(text, data, size);
    read_sheet(text);
    free(text);
    json_t *root = json_loadb((const char *)data, size, JSON_REJECT_DUPLICATES, NULL);
    text = json_is_object(root) && nd_json_stamp(root, NULL) == ND_OK ? json_dumps(root, 0) : NULL;
    if (text != NULL)
        read_sheet(text);
    free(text);
    json_decref(root);
    return 0;
}
