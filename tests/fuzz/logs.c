/* Logs of ONNX Runtime, QNN, qnn-net-run and logcat, whole and cut into pieces. */
#include "npudiff/capture/logs.h"
#include "fuzz/fuzz.h"

static bool ignore(void *context, const struct nd_log_finding *finding)
{
    (void)context;
    return finding != NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct nd_log_options options = {.struct_size = sizeof options, .name = "x", .visit = ignore};
    struct nd_log_summary summary;
    struct nd_log_reader *reader = NULL;
    nd_log_read_bytes(data, size, &options, &summary, NULL);
    if (nd_log_reader_create(&options, &reader, NULL) != ND_OK)
        return 0;
    for (size_t at = 0, n; at < size; at += n) {
        n = 1 + data[at] % 37u;
        n = n < size - at ? n : size - at;
        nd_log_reader_feed(reader, data + at, n);
    }
    nd_log_reader_end(reader, &summary);
    nd_log_reader_destroy(&reader);
    return 0;
}
