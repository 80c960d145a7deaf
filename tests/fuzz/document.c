/* A result that a command printed with --json, which a report or node data are made of, or a baseline: each
 * kind of document, damaged, or as its description allows it. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "fuzz/fuzz.h"
#include "npudiff/judge/judge.h"
#include "npudiff/model/model.h"
#include "npudiff/report/report.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = calloc(size + 1, 1), *page = NULL;
    if (text == NULL)
        abort();
    memcpy(text, data, size);
    const struct nd_report_document document = {.json = text, .name = "x.json"};
    nd_report_page(&document, 1, NULL, &page, NULL);
    static struct nd_model *model;
    struct nd_node_data nodes = {0};
    struct nd_qualified qualified;
    if (model == NULL && nd_model_load(GOLDEN "/models/mul.u8.onnx", &model, NULL) != ND_OK)
        abort();
    if (nd_report_node_data(model, &document, 1, &nodes, NULL) == ND_OK)
        nd_node_data_deinit(&nodes);
    if (nd_qualified_read(text, &qualified, NULL) == ND_OK)
        nd_qualified_deinit(&qualified);
    free(page);
    free(text);
    return 0;
}
