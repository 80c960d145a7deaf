/* A spool. Its records have checksums, behind which no change would come far: each record of the bytes is
 * written again with the right one. */
#include <string.h>

#include "core/files/file.h"
#include "devices/agent/spool/job_file.h"
#include "devices/agent/spool/spool.h"
#include "fuzz/fuzz.h"
#include "record/sessions/assemble_outputs.h"

#include <stdio.h>
#include <unistd.h>

/* As in the file: magic, kind, four indices, bytes, checksum (src/devices/agent/spool/spool.c). */
enum { HEADER_BYTES = 56, KIND_AT = 4, INDEX_AT = 8, SIZE_AT = 40 };

static uint64_t number(const uint8_t *at, size_t n_bytes)
{
    uint64_t value = 0;
    memcpy(&value, at, n_bytes);
    return value;
}

static void write_again(const char *path, const uint8_t *data, size_t size)
{
    struct nd_spool_writer writer;
    unlink(path);
    if (nd_spool_writer_open(&writer, path, NULL) != ND_OK)
        return;
    for (size_t at = 0; size - at >= HEADER_BYTES;) {
        uint64_t left = size - at - HEADER_BYTES, n = number(data + at + SIZE_AT, 8);
        struct nd_record record = {.kind = (uint32_t)number(data + at + KIND_AT, 4),
                                   .payload = data + at + HEADER_BYTES,
                                   .payload_bytes = n < left ? (size_t)n : (size_t)left};
        for (size_t i = 0; i < 4; i++)
            record.index[i] = number(data + at + INDEX_AT + 8 * i, 8);
        nd_spool_append(&writer, &record, NULL);
        at += HEADER_BYTES + record.payload_bytes;
    }
    nd_spool_writer_close(&writer, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const size_t samples[] = {6}, passes[] = {0, 0};
    static const struct nd_spool_request request = {.samples = samples,
                                                    .n_probes = 1,
                                                    .pass_of_tensor = passes,
                                                    .n_tensors = 2,
                                                    .n_passes = 1,
                                                    .n_repeats = 1};
    char path[4096];
    struct nd_spool_index index;
    struct nd_spool_kept kept;
    struct nd_agent_job job;
    snprintf(path, sizeof path, "%s/again.nds", fuzz_folder());
    write_again(path, data, size);
    if (nd_spool_index_open(path, &request, &index, NULL) == ND_OK)
        nd_spool_index_close(&index);
    nd_spool_keep(path, &kept, NULL);
    if (nd_job_read(path, &job, NULL) == ND_OK)
        nd_job_deinit(&job);
    const char *as_it_is = fuzz_file("x.nds", data, size);
    if (nd_spool_index_open(as_it_is, &request, &index, NULL) == ND_OK)
        nd_spool_index_close(&index);
    return 0;
}
