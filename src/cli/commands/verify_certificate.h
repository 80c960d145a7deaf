/* `npudiff verify CERT.json ALIGNED.onnx`. */
#ifndef ND_CLI_VERIFY_CERTIFICATE_H
#define ND_CLI_VERIFY_CERTIFICATE_H

#include "cli/options/help.h"
#include "cli/terminal/terminal.h"

struct cli_certificate {
    const char *path, *aligned;
    const char *model, *float_model; /* NULL: not given */
    struct cli_list devices, probes;
    const char *agent;
    size_t n_threads;
    bool allow_nonfinite;
    struct cli_answer answer;
};

/* Checks the certificate and prints what was found; the exit code. */
int cli_verify_certificate(const struct cli_certificate *given);

/* Whether the file begins as a JSON object does. */
bool cli_is_json(const char *path);

#endif
