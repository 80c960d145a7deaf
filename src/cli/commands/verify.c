/* `npudiff verify`: whether a capture or certificate is whole. docs/reference/certificate.md. */
#include <stdlib.h>
#include <string.h>

#include "cli/options/commands.h"
#include "cli/options/help.h"
#include "cli/options/workload.h"
#include "cli/terminal/output.h"
#include "cli/terminal/progress.h"
#include "cli/terminal/rows.h"
#include "cli/terminal/signals.h"
#include "cli/terminal/terminal.h"
#include "npudiff/explain/audit.h"
#include "npudiff/model/model.h"
#include "npudiff/report/report.h"

struct values {
    const char *model, *float_model;
    struct cli_list devices, probes;
    const char *agent;
    size_t n_threads;
    bool allow_nonfinite, paranoid;
    struct cli_answer answer;
};
/* ---- a certificate ---- */
struct work {
    struct nd_certificate *certificate;
    struct nd_model *aligned, *model, *float_model;
    struct cli_probes probes;
    struct cli_devices devices;
    struct nd_certificate_check *check;
};

/* Whether the file begins as a JSON object does. */
static bool cli_is_json(const char *path)
{
    char start[256]; /* chosen: nobody writes as many blanks before an object */
    size_t n = cli_peek(path, start, sizeof start - 1);
    start[n] = '\0';
    return start[strspn(start, " \t\r\n")] == '{';
}

static void show_progress(void *context, const char *stage, size_t n_done, size_t n_total)
{
    cli_progress_count(context, "verify", stage, "", n_done, n_total > 1 ? n_total : 0);
}

static enum nd_status open_model(const struct work *work, const char *path, struct nd_model **out,
                                 struct nd_error *err)
{
    if (path == NULL)
        return ND_OK;
    CLI_TRY(nd_model_load(path, out, err));
    return nd_certificate_set_dims(work->certificate, *out, err);
}

static enum nd_status open_all(const struct values *values, const char *const *operands, struct work *work,
                               struct nd_error *err)
{
    CLI_TRY(nd_certificate_read(operands[0], &work->certificate, err));
    CLI_TRY(open_model(work, operands[1], &work->aligned, err));
    CLI_TRY(open_model(work, values->model, &work->model, err));
    CLI_TRY(open_model(work, values->float_model, &work->float_model, err));
    CLI_TRY(cli_devices_parse(&values->devices, &work->devices, err));
    return cli_probes_make(work->aligned, &values->probes, values->allow_nonfinite, &work->probes, err);
}

static void close_all(struct work *work)
{
    nd_certificate_check_destroy(&work->check);
    cli_probes_deinit(&work->probes);
    cli_devices_deinit(&work->devices);
    nd_model_destroy(&work->float_model);
    nd_model_destroy(&work->model);
    nd_model_destroy(&work->aligned);
    nd_certificate_destroy(&work->certificate);
}

static int report(const struct values *values, const struct nd_certificate_check *check)
{
    static const int exit_codes[] = {ND_EXIT_SAME, ND_EXIT_INCONCLUSIVE, ND_EXIT_DIFFERS, ND_EXIT_DIFFERS};
    struct nd_error err = {0};
    char *text = NULL;
    int exit_code = exit_codes[check->end];
    enum nd_status status = values->answer.json
                                ? nd_report_certificate_json(check, &text, &err)
                                : nd_report_certificate_brief(check, cli_text_width(0), &text, &err);
    return cli_worse(exit_code, cli_print_answer(status, text, &values->answer, &err));
}

/* operands: the certificate and its model. Checks it and prints what was found; the exit code. */
static int check_certificate(const struct values *values, const char *const *operands)
{
    struct nd_error err = {0};
    CLI_OWNED(close_all) struct work work = {0};
    if (open_all(values, operands, &work, &err) != ND_OK)
        return cli_report_error(&err);
    struct nd_certificate_options options;
    nd_certificate_options_init(&options);
    struct cli_progress *progress = cli_progress_create(1, 1, values->answer.quiet);
    options.model = work.model;
    options.float_model = work.float_model;
    options.probes = (const struct nd_probe *const *)work.probes.items;
    options.n_probes = work.probes.n;
    options.devices = work.devices.items;
    options.n_devices = work.devices.n;
    options.agent = values->agent;
    options.n_threads = values->n_threads;
    options.progress = show_progress;
    options.progress_context = progress;
    options.is_cancelled = cli_signals_came;
    cli_signals_catch();
    enum nd_status status = nd_certificate_verify(work.certificate, work.aligned, &options, &work.check, &err);
    cli_progress_destroy(progress);
    if (cli_signals_came(NULL)) {
        cli_stopped_tell("nothing was changed", NULL);
        return ND_EXIT_TROUBLE;
    }
    return status == ND_OK ? report(values, work.check) : cli_report_error(&err);
}

/* ---- what is found ---- */

/* A verdict of the list. */
#define NOT_READ "not read"

static size_t count_verdict(const json_t *rows, const char *verdict)
{
    size_t n = 0, i;
    const json_t *row;
    json_array_foreach(rows, i, row)
        n += strcmp(cli_text_of(row, "verdict"), verdict) == 0;
    return n;
}

static json_t *row_of_checks(const struct nd_audit *audit)
{
    json_t *rows = json_array();
    for (size_t i = 0; i < ND_AUDIT_N_CHECKS; i++) {
        enum nd_audit_kind kind = (enum nd_audit_kind)i;
        const struct nd_audit_check *check = &audit->checks[i];
        const char *verdict = !check->is_done ? "not done" : check->n_wrong > 0 ? "wrong" : "ok";
        json_array_append_new(rows, json_pack("{s:s, s:s, s:s, s:I, s:I, s:o}", "check", nd_audit_name(kind),
                                              "subject", nd_audit_subject(kind), "verdict", verdict,
                                              "looked_at", (json_int_t)check->n, "wrong",
                                              (json_int_t)check->n_wrong, "problem", cli_text(check->text)));
    }
    return rows;
}

/* What is wrong first, of the checks beyond those of nd_capture_verify. */
static const char *first_problem(const struct nd_audit *audit)
{
    for (size_t i = 0; i < ND_AUDIT_N_CHECKS; i++)
        if (audit->checks[i].n_wrong > 0)
            return audit->checks[i].text;
    return "";
}

/* What both ways of looking at a capture find out. */
struct finding {
    struct nd_capture_verification digests;
    struct nd_audit audit; /* with --paranoid */
};

static enum nd_status look_at(const char *path, const struct nd_model *model, bool is_paranoid,
                              struct finding *found, struct nd_error *err)
{
    CLI_OWNED(nd_capture_close) struct nd_capture *capture = NULL;
    CLI_TRY(nd_capture_open_unchecked(path, &capture, err));
    if (!is_paranoid)
        return nd_capture_verify(capture, &found->digests, err);
    CLI_TRY(nd_capture_audit(capture, model, &found->audit, err));
    found->digests.n_tensors = found->audit.checks[ND_AUDIT_VALUES].n;
    found->digests.n_wrong = found->audit.checks[ND_AUDIT_VALUES].n_wrong;
    found->digests.content_matches = found->audit.checks[ND_AUDIT_CONTENT].n_wrong == 0;
    return ND_OK;
}

/* Whether the error says nothing of what is in the file: it is missing, or was not let read. */
static bool is_not_read(const struct nd_error *err)
{
    return err->id == ND_E_FILE_OPEN || err->id == ND_E_FILE_LIMIT || err->id == ND_E_FILE_READ ||
           err->id == ND_E_MEMORY || err->id == ND_E_CANCELLED || err->id == ND_E_FETCH_URL ||
           err->id == ND_E_FETCH_FAILED || err->id == ND_E_FETCH_ANSWER || err->id == ND_E_FETCH_LIBRARY;
}

/* Verifies one capture and adds its row; the exit code that it alone would give. shown: its name. */
static int verify_as(const char *shown, const char *path, const struct nd_model *model, bool is_paranoid,
                     json_t *rows)
{
    struct nd_error err = {0};
    struct finding found = {.digests.struct_size = sizeof found.digests};
    enum nd_status status = look_at(path, model, is_paranoid, &found, &err);
    if (status != ND_OK && err.id == ND_E_COMPARE_MODEL) /* says nothing of the capture */
        return cli_report_error(&err);
    if (status != ND_OK) {
        json_array_append_new(rows, json_pack("{s:o, s:s, s:o}", "capture", cli_text(shown), "verdict",
                                              is_not_read(&err) ? NOT_READ : "unreadable", "problem",
                                              cli_text(err.message)));
        return cli_report_error(&err);
    }
    const struct nd_capture_verification *digests = &found.digests;
    bool is_sound = digests->n_wrong == 0 && digests->content_matches && found.audit.n_wrong == 0;
    const char *problem = is_paranoid                ? first_problem(&found.audit)
                          : digests->n_wrong > 0     ? digests->first_wrong
                          : digests->content_matches ? ""
                                                     : "a name, shape, attribute or digest was changed";
    json_t *row = json_pack("{s:o, s:s, s:I, s:I, s:b, s:o}", "capture", cli_text(shown), "verdict",
                            is_sound ? "sound" : "damaged", "tensors", (json_int_t)digests->n_tensors, "wrong",
                            (json_int_t)digests->n_wrong, "content_matches", digests->content_matches,
                            "problem", cli_text(problem));
    if (is_paranoid)
        json_object_set_new(row, "checks", row_of_checks(&found.audit));
    json_array_append_new(rows, row);
    return is_sound ? ND_EXIT_SAME : ND_EXIT_DIFFERS;
}

static int verify_one(const char *path, const struct nd_model *model, bool is_paranoid, json_t *rows)
{
    char *shown = nd_capture_shown_name(path);
    int exit_code = shown != NULL ? verify_as(shown, path, model, is_paranoid, rows) : cli_fail_memory();
    free(shown);
    return exit_code;
}

/* What is wrong first, what is sound last. */
static json_t *rows_bad_first(const json_t *rows)
{
    static const char *const last[] = {"not done", "sound", "ok"};
    enum { N_LAST = sizeof last / sizeof *last };
    json_t *sorted = json_array(), *row;
    size_t i;
    for (int wanted = -1; wanted < N_LAST; wanted++) {
        json_array_foreach(rows, i, row) {
            int rank = N_LAST - 1;
            while (rank >= 0 && strcmp(cli_text_of(row, "verdict"), last[rank]) != 0)
                rank--;
            if (rank == wanted)
                json_array_append(sorted, row);
        }
    }
    return sorted;
}

/* ---- certificates of twins ---- */

/* The certificate, if it is one of `npudiff twin check`; else NULL. */
static json_t *twin_certificate(const char *path)
{
    json_t *certificate = json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
    const char *kind = json_string_value(json_object_get(certificate, "kind"));
    if (kind != NULL && strcmp(kind, "twin_check") == 0)
        return certificate;
    json_decref(certificate);
    return NULL;
}

/* The certificate that this capture would get today. */
static enum nd_status check_again(const char *path, struct nd_model *model, const char *twin, size_t n_threads,
                                  json_t **out, struct nd_error *err)
{
    CLI_OWNED(nd_capture_close) struct nd_capture *capture = NULL;
    CLI_OWNED(nd_twin_check_destroy) struct nd_twin_check *check = NULL;
    CLI_FREED char *text = NULL;
    CLI_TRY(nd_capture_open(path, &capture, err));
    CLI_TRY(nd_capture_set_dims(capture, model, err));
    CLI_TRY(nd_twin_check(capture, model, twin, n_threads, &check, err));
    CLI_TRY(nd_report_twin_json((const struct nd_twin_check *const *)&check, 1, model, &text, err));
    *out = json_loads(text, 0, NULL);
    return *out != NULL ? ND_OK : cli_memory_error(err);
}

/* The first thing that the certificate says otherwise; "" where it says all as it is. */
static json_t *contradiction(const json_t *certificate, const json_t *document, const json_t *stated,
                             json_t *found)
{
    const char *key, *const otherwise = "'%s' is not found as the certificate says";
    const json_t *theirs = json_object_get(stated, "tensors"), *tensor, *value;
    size_t i;
    if (!json_equal(json_object_get(certificate, "sha256"), json_object_get(document, "sha256")))
        return json_string("the model is not the one that the certificate is about");
    if (!json_equal(json_object_get(stated, "content_digest"), json_object_get(found, "content_digest")))
        return json_string("the capture is not the one that the certificate is about");
    json_array_foreach(json_object_get(found, "tensors"), i, tensor)
        if (!json_equal(tensor, json_array_get(theirs, i)))
            return json_sprintf(otherwise, cli_text_of(tensor, "tensor"));
    json_object_foreach(found, key, value)
        if (!json_equal(value, json_object_get(stated, key)))
            return json_sprintf(otherwise, key);
    return json_string("");
}

/* Compares what the certificate says of its capture i, which lies there, and adds its row; the exit code that
 * it alone would give. */
static int verify_twin_of(const json_t *certificate, size_t i, const char *path, struct nd_model *model,
                          size_t n_threads, json_t *rows)
{
    struct nd_error err = {0};
    const json_t *stated = json_array_get(json_object_get(certificate, "devices"), i);
    json_auto_t *document = NULL;
    if (check_again(path, model, cli_text_of(stated, "twin"), n_threads, &document, &err) != ND_OK) {
        bool is_other = err.id == ND_E_COMPARE_MODEL;
        cli_row_append(rows, json_pack("{s:o, s:s, s:o}", "capture", cli_text(path), "verdict",
                                       is_other ? "refused" : NOT_READ, "problem", cli_text(err.message)));
        return is_other ? ND_EXIT_DIFFERS : cli_report_error(&err);
    }
    json_t *found = json_array_get(json_object_get(document, "devices"), 0);
    json_object_set(found, "capture", json_object_get(stated, "capture"));
    json_t *problem = contradiction(certificate, document, stated, found);
    bool holds = json_string_length(problem) == 0;
    const char *result = cli_text_of(found, "result");
    int exit_code = !holds || strcmp(result, "differs") == 0 ? ND_EXIT_DIFFERS
                    : strcmp(result, "equal") == 0           ? ND_EXIT_SAME
                                                             : ND_EXIT_INCONCLUSIVE;
    cli_row_append(rows, json_pack("{s:o, s:s, s:s, s:o}", "capture", cli_text(path), "verdict",
                                   holds ? "holds" : "refused", "result", result, "problem", problem));
    return exit_code;
}

/* words: the certificate, the model, and where the captures lie, if not where they lay. */
static int verify_twin(const struct values *values, const json_t *certificate, const char *const *words,
                       size_t n_words)
{
    static const struct nd_report_column columns[] = {{"capture", "CAPTURE"},
                                                      {"verdict", "VERDICT"},
                                                      {"result", "TWIN IS"},
                                                      {"problem", "PROBLEM"},
                                                      {NULL, NULL}};
    const json_t *devices = json_object_get(certificate, "devices");
    size_t n = json_array_size(devices);
    if (n == 0)
        return cli_fail(CLI_E_CERTIFICATE_FORMAT, words[0], "'%s' is no certificate: it is about no capture",
                        words[0]);
    if (n_words != 2 && n_words != 2 + n)
        return cli_usage_error("verify", "'%s' is about %zu captures: give all of them, in its order, or none",
                               words[0], n);
    struct nd_error err = {0};
    CLI_OWNED(nd_model_destroy) struct nd_model *model = NULL;
    if (nd_model_load(words[1], &model, &err) != ND_OK)
        return cli_report_error(&err);
    json_auto_t *rows = json_array();
    int exit_code = ND_EXIT_SAME;
    for (size_t i = 0; i < n; i++) {
        const char *path = n_words > 2 ? words[2 + i] : cli_text_of(json_array_get(devices, i), "capture");
        exit_code = cli_worse(exit_code, verify_twin_of(certificate, i, path, model, values->n_threads, rows));
    }
    /* What it says of the whole is the worst of what it says of its captures. */
    const char *whole = exit_code == ND_EXIT_SAME           ? "equal"
                        : exit_code == ND_EXIT_INCONCLUSIVE ? "not-known"
                                                            : "differs";
    if (count_verdict(rows, "holds") == n && strcmp(cli_text_of(certificate, "result"), whole) != 0) {
        cli_row_append(rows, json_pack("{s:o, s:s, s:s}", "capture", cli_text(words[0]), "verdict", "refused",
                                       "problem", "'result' is not found as the certificate says"));
        exit_code = ND_EXIT_DIFFERS;
    }
    if (values->answer.quiet)
        return exit_code;
    return cli_worse(exit_code, cli_print_rows(ND_DOCUMENT_VERIFICATION, "captures", json_incref(rows), columns,
                                               values->answer.json));
}

/* ---- certificates ---- */

static size_t count_certificates(const char *const *operands, size_t n_operands)
{
    size_t n = 0;
    for (size_t i = 0; i < n_operands; i++)
        n += cli_is_json(operands[i]);
    return n;
}

static int verify_certificate(const struct values *values, const char *const *operands, size_t n_operands)
{
    if (n_operands != 2 || !cli_is_json(operands[0]) || cli_is_json(operands[1]))
        return cli_usage_error("verify", "a certificate is checked with its model: CERT.json ALIGNED.onnx");
    if (values->devices.n == 1)
        return cli_usage_error("verify", "-d needs two devices or more, which are compared");
    if (values->devices.n > 0 && values->probes.n == 0)
        return cli_usage_error("verify", "-d needs -p PROBE: what the devices are fed");
    if (values->model != NULL && values->probes.n == 0)
        return cli_usage_error("verify",
                               "--model needs -p PROBE: the inputs that the accuracy cost was measured with");
    if (values->float_model != NULL && values->model == NULL)
        return cli_usage_error("verify", "--float needs --model MODEL.onnx: both measure the accuracy cost");
    return check_certificate(values, operands);
}

/* ---- captures ---- */

/* What was checked: of one capture with --paranoid each check, else in words. */
static void put_checks(struct nd_report_screen *screen, const json_t *rows, bool is_paranoid)
{
    static const struct nd_report_column columns[] = {{"subject", "CHECKED"}, {"verdict", "RESULT"},
                                                      {"looked_at", "OF"},    {"wrong", "WRONG"},
                                                      {"problem", "PROBLEM"}, {NULL, NULL}};
    size_t i;
    const json_t *row;
    if (!is_paranoid && count_verdict(rows, NOT_READ) < json_array_size(rows))
        nd_report_screen_put(
            screen, "\nChecked: every value against its digest, all else against the content digest.\n");
    json_array_foreach(rows, i, row) {
        const json_t *checks = json_object_get(row, "checks");
        if (checks == NULL)
            continue;
        nd_report_screen_put(screen, "\n%s\n", cli_text_of(row, "capture"));
        cli_screen_rows(screen, rows_bad_first(checks), columns, "--json lists all");
    }
}

static int verify_captures(const struct values *values, const char *const *operands, size_t n_operands)
{
    struct nd_error err = {0};
    CLI_OWNED(nd_model_destroy) struct nd_model *model = NULL;
    if (values->model != NULL && nd_model_load(values->model, &model, &err) != ND_OK) {
        cli_report_error(&err);
        return ND_EXIT_TROUBLE;
    }
    json_auto_t *rows = json_array();
    int exit_code = ND_EXIT_SAME;
    for (size_t i = 0; i < n_operands; i++)
        exit_code = cli_worse(exit_code, verify_one(operands[i], model, values->paranoid, rows));
    static const struct nd_report_column columns[] = {{"capture", "CAPTURE"}, {"verdict", "VERDICT"},
                                                      {"tensors", "TENSORS"}, {"wrong", "WRONG"},
                                                      {"problem", "PROBLEM"}, {NULL, NULL}};
    if (values->answer.quiet || (!values->answer.json && json_array_size(rows) == 0))
        return exit_code;
    int printed;
    if (values->answer.json) {
        printed = cli_print_rows(ND_DOCUMENT_VERIFICATION, "captures", json_incref(rows), columns, true);
    } else {
        struct nd_report_screen *screen = nd_report_screen_create(cli_text_width(0));
        /* A file that could not be read is not damaged, as far as is known. */
        size_t n = json_array_size(rows), n_not_read = count_verdict(rows, NOT_READ);
        size_t n_damaged = n - n_not_read - count_verdict(rows, "sound");
        if (n_damaged > 0 && n_not_read > 0)
            nd_report_screen_put(screen, "DAMAGED: %zu of %zu captures; %zu cannot be read\n\n", n_damaged, n,
                                 n_not_read);
        else if (n_damaged > 0)
            nd_report_screen_put(screen, "DAMAGED: %zu of %zu captures\n\n", n_damaged, n);
        else if (n_not_read > 0)
            nd_report_screen_put(screen, "NOT READ: %zu of %zu captures\n\n", n_not_read, n);
        else
            nd_report_screen_put(screen, "OK: %zu capture%s as stored\n\n", n, n == 1 ? " is" : "s are");
        cli_screen_rows(screen, rows_bad_first(rows), columns, "--json lists all");
        put_checks(screen, rows, values->paranoid);
        printed = cli_print_screen(screen);
    }
    return printed != 0 ? printed : exit_code;
}

static int run(const void *context, const char *const *operands, size_t n_operands)
{
    const struct values *values = context;
    bool has_certificate = count_certificates(operands, n_operands) > 0;
    if (has_certificate && values->paranoid)
        return cli_usage_error("verify", "--paranoid is for captures");
    json_auto_t *twin = has_certificate && n_operands > 1 ? twin_certificate(operands[0]) : NULL;
    if (twin != NULL) {
        bool is_other =
            values->devices.n + values->probes.n > 0 || values->model != NULL || values->float_model != NULL;
        return is_other
                   ? cli_usage_error("verify", "-d, -p, --model and --float are for certificates of 'align'")
                   : verify_twin(values, twin, operands, n_operands);
    }
    if (has_certificate)
        return verify_certificate(values, operands, n_operands);
    if (values->float_model != NULL || values->devices.n + values->probes.n > 0)
        return cli_usage_error("verify", "--float, -d and -p are for certificates");
    if (values->model != NULL && !values->paranoid)
        return cli_usage_error("verify", "--model is for certificates, or goes with --paranoid");
    return verify_captures(values, operands, n_operands);
}

static const struct cli_option options[] = {
    OPT_LIST('d', "device", struct values, devices, CLI_A_DEVICE,
             "run the certificate's model on this device, too, and compare all tensors; at least two; may be "
             "repeated"),
    OPT_LIST('p', "probe", struct values, probes, CLI_A_PROBE,
             "inputs for -d and --model; see 'npudiff probes'; may be repeated"),
    OPT_ALLOW_NONFINITE(struct values),
    OPT_TEXT(0, "model", struct values, model, CLI_A_MODEL("MODEL.onnx"),
             "of a certificate, the model before 'align': measure the accuracy cost again, too; with "
             "--paranoid, the model that was captured"),
    OPT_TEXT(0, "float", struct values, float_model, CLI_A_MODEL("FLOAT.onnx"),
             "the float model that the accuracy cost was measured against"),
    OPT_FLAG(0, "paranoid", struct values, paranoid,
             "hold every statement of a capture against the others, and with --model against the model; "
             "compute the values of 'exact' and 'float64' again"),
    OPT_THREADS(struct values),
    OPT_AGENT(struct values),
    OPT_ANSWER_PLAIN(struct values),
    {.name = NULL},
};

static const struct cli_example examples[] = {
    {"npudiff verify captures/*.h5", "Checks captures after a copy."},
    {"npudiff verify captures/gen3.h5 --paranoid --model model.onnx",
     "Also checks a capture whose digests fit: against itself and its model."},
    {"npudiff verify cert.json proven.onnx",
     "Proves again that the model gives the same bits on all chips of the certificate."},
};

const struct cli_command cmd_verify = {
    .name = "verify",
    .role = CLI_FILES,
    .summary = "check captures for damage, and certificates from nothing",
    .synopsis = "CAPTURE.h5 ... [--paranoid [--model MODEL.onnx]] | CERT.json ALIGNED.onnx [-d DEVICE... -p "
                "PROBE...] [--model MODEL.onnx] | TWIN.json MODEL.onnx [CAPTURE.h5 ...]",
    .details =
        "Reads every tensor again and compares it with the digest that was stored when it was captured. It "
        "checks names, shapes, types and attributes in the same way.\n"
        "--paranoid also finds what digests cannot, as they were made of it: it lists its checks, what each "
        "looked at, and which could not be done.\n"
        "A certificate of 'npudiff align' is checked with its model. 'verify' believes none of it. It compares "
        "the digests of the content and of the model, finds out whether each arithmetic of this npudiff still "
        "gives the same values, and proves each layer again. -d runs the model on devices again, which layers "
        "need that are as tested. --model, with --float and the same -p, measures the accuracy cost again.\n"
        "A certificate of 'npudiff twin check' is checked with its model and its captures, which are where "
        "they were or are named: every value is compared again.\n"
        "Exit code 0: sound, or the certificate holds and every layer is equal; 1: damaged, or the certificate "
        "is refused or says itself that layers differ; 2: cannot be read, or wrong usage; 4: the certificate "
        "holds, but layers are unknown, or as tested and did not run again; 5: a device failed.",
    CLI_TABLES(struct values),
    CLI_OPERANDS(CLI_VALUE_CAPTURE, 1, CLI_ANY_NUMBER),
};
