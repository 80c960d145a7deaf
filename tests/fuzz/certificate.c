/* Certificates of the model golden/models/mul.u8.onnx: as they are, and with the digests made right, so that
 * what lies behind them is read. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "core/documents/json_out.h"
#include "core/files/file.h"
#include "fuzz/fuzz.h"
#include "improve/align/certificate/certificate.h"

static struct nd_model *model;

static void check(const char *path)
{
    struct nd_certificate *certificate = NULL;
    struct nd_certificate_check *found = NULL;
    if (nd_certificate_read(path, &certificate, NULL) == ND_OK &&
        nd_certificate_set_dims(certificate, model, NULL) == ND_OK)
        nd_certificate_verify(certificate, model, NULL, &found, NULL);
    nd_certificate_check_destroy(&found);
    nd_certificate_destroy(&certificate);
}

/* The certificate speaks of the model, and its digest is that of its content. */
static bool stamp(json_t *root)
{
    json_t *aligned = json_object_get(json_object_get(root, "files"), "aligned");
    if (json_is_object(aligned))
        json_object_set_new(aligned, "sha256", json_string(nd_model_sha256(model)));
    return json_is_object(root) && nd_json_stamp(root, NULL) == ND_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (model == NULL && nd_model_load(GOLDEN "/models/mul.u8.onnx", &model, NULL) != ND_OK)
        abort();
    check(fuzz_file("x.json", data, size));
    json_t *root = json_loadb((const char *)data, size, JSON_REJECT_DUPLICATES, NULL);
    char *text = stamp(root) ? json_dumps(root, 0) : NULL;
    if (text != NULL)
        check(fuzz_file("x.json", (const uint8_t *)text, strlen(text)));
    free(text);
    json_decref(root);
    return 0;
}
