/* What was printed and logged while the agent ran, into the capture. */
#include "record/sessions/assemble_logs.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "devices/launch.h"
#include "devices/agent/spool/record_fields.h"

/* A log, and what it says. */
static enum nd_status write_log(struct nd_capture_writer *writer, const char *name, const char *text, size_t n,
                                struct nd_log_findings *findings, struct nd_error *err)
{
    struct nd_log_summary summary;
    const struct nd_log_options options = {
        .struct_size = sizeof options, .name = name, .visit = nd_log_findings_add, .context = findings};
    enum nd_status status = nd_capture_writer_log(writer, name, text, n, err);
    if (status == ND_OK)
        status = nd_log_read_bytes(text, n, &options, &summary, err);
    return status == ND_OK && findings->failed ? nd_fail_memory(err) : status;
}

static enum nd_status write_runtime_log(struct nd_capture_writer *writer, const struct nd_spool_index *index,
                                        struct nd_log_findings *findings, struct nd_error *err)
{
    static const char *const severities[] = {"verbose", "info", "warning", "error", "fatal"};
    struct nd_strbuf text = {0};
    for (size_t i = 0; i < index->n_logs; i++) {
        uint64_t severity = 0;
        char *location = nd_fields_text(&index->logs[i], "location");
        char *message = nd_fields_text(&index->logs[i], "message");
        nd_fields_get_u64(&index->logs[i], "severity", &severity);
        if (location != NULL && message != NULL)
            nd_strbuf_printf(&text, "[%s] %s: %s\n", severity < 5 ? severities[severity] : "?", location,
                             message);
        else
            text.failed = true;
        free(location);
        free(message);
    }
    size_t n = text.len;
    char *log = nd_strbuf_take(&text);
    if (log == NULL)
        return nd_fail_memory(err);
    char runner[8];
    nd_fields_copy(&index->runtime, "runner", runner, sizeof runner);
    const char *name = runner[0] != '\0' ? "runner" : "onnxruntime";
    enum nd_status status = n > 0 ? write_log(writer, name, log, n, findings, err) : ND_OK;
    free(log);
    return status;
}

/* What was printed; of very much, the end, which says why it ended. *out is NULL when there is nothing. */
static enum nd_status read_stdout(const char *path, char **out, size_t *n, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    long size = 0;
    int fd = path != NULL ? nd_file_open_regular(path, O_RDONLY) : -1;
    FILE *file = fd >= 0 ? fdopen(fd, "rb") : NULL;
    if (file == NULL && fd >= 0)
        close(fd);
    *out = NULL;
    if (file != NULL && fseek(file, 0, SEEK_END) == 0)
        size = ftell(file);
    if (size > 0) {
        long kept = size < ND_KEPT_PRINTED_BYTES ? size : ND_KEPT_PRINTED_BYTES;
        *out = malloc((size_t)kept);
        if (*out == NULL)
            status = nd_fail_memory(err);
        *n =
            status == ND_OK && fseek(file, size - kept, SEEK_SET) == 0 ? fread(*out, 1, (size_t)kept, file) : 0;
    }
    if (file != NULL)
        fclose(file);
    return status;
}

enum nd_status nd_assemble_logs(struct nd_capture_writer *writer, const struct nd_assembly *assembly,
                                const struct nd_spool_index *index, struct nd_log_findings *findings,
                                struct nd_error *err)
{
    enum nd_status status = write_runtime_log(writer, index, findings, err);
    char *text = NULL;
    size_t n = 0;
    if (status == ND_OK)
        status = read_stdout(assembly->stdout_path, &text, &n, err);
    if (status == ND_OK && text != NULL)
        status = write_log(writer, "stdout", text, n, findings, err);
    free(text);
    if (status == ND_OK && assembly->transfer != NULL)
        status = nd_capture_writer_log(writer, "transfer", assembly->transfer, strlen(assembly->transfer), err);
    if (status == ND_OK && assembly->logcat != NULL)
        status = write_log(writer, "logcat", assembly->logcat, assembly->logcat_bytes, findings, err);
    if (status == ND_OK && index->profile.kind != 0)
        status =
            nd_capture_writer_log(writer, "profile", index->profile.payload, index->profile.payload_bytes, err);
    if (status == ND_OK && index->provider_profile.kind != 0)
        status = nd_capture_writer_log(writer, "qnn-profile", index->provider_profile.payload,
                                       index->provider_profile.payload_bytes, err);
    return status;
}
