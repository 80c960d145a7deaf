/* Running a small model with a runtime, to see that it works. */
#include <jansson.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/documents/json_out.h"
#include "core/files/file.h"
#include "core/memory.h"
#include "core/tensors/sha256.h"
#include "core/text/strbuf.h"
#include "devices/runtimes/runtimes.h"
#include "devices/runtimes/sdk.h"
#include "model/rewrite/compose.h"
#include "npudiff/capture/capture.h"
#include "npudiff/devices/device.h"

struct nd_runtime_trial {
    const struct nd_runtime_checking *how;
    char *folder; /* temporary */
    struct nd_model *model;
    struct nd_probe *probe;
};

struct nd_runtime_trial_result {
    struct nd_error failure; /* what the device said; id 0: it ran and gave the sums */
    char version[64];        /* of ONNX Runtime, as it says itself */
};

enum { N_ELEMENTS = 64, QVALUE_OF_SUM = 2, TIME_LIMIT_S = 120 };

/* c = a + b, all with the same scale: from quantised values of 1, the probe "ones", quantised values of 2. */
static enum nd_status write_model(const char *path, struct nd_error *err)
{
    const struct nd_shape shape = {.rank = 2, .dims = {1, N_ELEMENTS}};
    float scale = 0.5f;
    int64_t zero_point = 0;
    const struct nd_quant quant = {.n = 1, .axis = -1, .scale = &scale, .zero_point = &zero_point};
    ND_CLEANUP(nd_compose_destroy) struct nd_compose *c = NULL;
    ND_TRY(nd_compose_create(21, &c, err));
    nd_compose_input(c, "a", ND_DTYPE_U8, &shape);
    nd_compose_input(c, "b", ND_DTYPE_U8, &shape);
    nd_compose_dequantize(c, "a", "a_real", &quant, ND_DTYPE_U8);
    nd_compose_dequantize(c, "b", "b_real", &quant, ND_DTYPE_U8);
    nd_compose_node(c, "Add", (const char *[]){"a_real", "b_real", NULL}, "sum");
    nd_compose_quantize(c, "sum", "c", &quant, ND_DTYPE_U8);
    nd_compose_output(c, "c", ND_DTYPE_U8, &shape);
    return nd_compose_write(c, path, err);
}

static void nd_runtime_trial_close(struct nd_runtime_trial *trial)
{
    nd_probe_destroy(&trial->probe);
    nd_model_destroy(&trial->model);
    nd_dir_remove(trial->folder);
    free(trial->folder);
    *trial = (struct nd_runtime_trial){0};
}

/* Writes the model, a sum of two uint8 tensors, and loads it. */
static enum nd_status nd_runtime_trial_open(const struct nd_runtime_checking *how, struct nd_runtime_trial *out,
                                            struct nd_error *err)
{
    static const char *const specs[] = {"ones"};
    ND_CLEANUP(nd_runtime_trial_close) struct nd_runtime_trial trial = {.how = how};
    ND_TRY(nd_dir_make_temporary(&trial.folder, err));
    ND_FREED char *path = nd_path_join(trial.folder, "sum.onnx");
    ND_TRY_MEMORY(path != NULL, err);
    ND_TRY(write_model(path, err));
    ND_TRY(nd_model_load(path, &trial.model, err));
    ND_TRY(nd_probes_for_model(trial.model, specs, 1, &trial.probe, err));
    return ND_GIVE(out, trial);
}

/* Whether the capture holds the sums, and which ONNX Runtime made it. */
static enum nd_status read_capture(const char *path, struct nd_runtime_trial_result *out, struct nd_error *err)
{
    ND_CLEANUP(nd_capture_close) struct nd_capture *capture = NULL;
    uint8_t qvalues[N_ELEMENTS] = {0};
    ND_TRY(nd_capture_open(path, &capture, err));
    const char *found = nd_capture_string(capture, "runtime", "ort_version");
    snprintf(out->version, sizeof out->version, "%s", found != NULL ? found : "unknown");
    size_t tensor = nd_capture_find_tensor(capture, "c");
    if (tensor == SIZE_MAX || nd_capture_tensor(capture, tensor)->dtype != ND_DTYPE_U8)
        nd_fail(&out->failure, ND_E_DEVICE_OUTPUT, "c", "it did not give the sum of two tensors");
    else
        ND_TRY(nd_capture_read_verified(&(struct nd_probe_values){capture, 0, tensor}, 0, 1, qvalues, err));
    for (size_t i = 0; out->failure.id == 0 && i < N_ELEMENTS; i++)
        if (qvalues[i] != QVALUE_OF_SUM)
            nd_fail(&out->failure, ND_E_DEVICE_OUTPUT, "c", "the sum of ones is quantised value %d, not %d",
                    qvalues[i], QVALUE_OF_SUM);
    return ND_OK;
}

static enum nd_status run_device(struct nd_runtime_trial *trial, const struct nd_device *device,
                                 const char *path, struct nd_error *failure, struct nd_error *err)
{
    const struct nd_probe *const probes[] = {trial->probe};
    struct nd_capture_outcome outcome = {0};
    struct nd_capture_options options;
    nd_capture_options_init(&options);
    options.agent = trial->how->agent;
    options.time_limit_s = TIME_LIMIT_S;
    options.replace = options.skips_untouched = true;
    options.is_cancelled = trial->how->is_cancelled;
    options.cancel_context = trial->how->cancel_context;
    ND_TRY(
        nd_capture_run(&(struct nd_workload){trial->model, device, probes, 1}, path, &options, &outcome, err));
    if (outcome.has_failed)
        *failure = outcome.failure;
    if (outcome.has_failed && failure->id == 0)
        nd_fail(failure, ND_E_DEVICE_CRASH, NULL, "it failed at stage '%s'", outcome.stage);
    return ND_OK;
}

/* Runs the model in an agent process, on the CPU or, with a chipset, on its simulator. Errors are what is not
 * the runtime's fault (no space, cancelled). */
static enum nd_status nd_runtime_trial_run(struct nd_runtime_trial *trial, const char *id,
                                           const struct nd_chipset *chipset,
                                           struct nd_runtime_trial_result *out, struct nd_error *err)
{
    *out = (struct nd_runtime_trial_result){0};
    ND_CLEANUP(nd_device_deinit) struct nd_device device = {0};
    ND_FREED char *text = nd_text("%s%s@%s", chipset != NULL ? "htp-sim:" : "cpu",
                                  chipset != NULL ? chipset->sm : "", id),
                  *path = nd_path_join(trial->folder, "trial.h5");
    ND_TRY(text != NULL && path != NULL ? nd_device_parse(text, &device, err) : nd_fail_memory(err));
    ND_TRY(run_device(trial, &device, path, &out->failure, err));
    return out->failure.id == 0 ? read_capture(path, out, err) : ND_OK;
}

/* One runtime being looked at; `row` is its part of the report. */
struct check {
    const struct nd_runtime_checking *how;
    const struct nd_runtime_info *info;
    json_t *row, *problems, *files, *needs, *digests;
    bool must_be_recorded; /* the manifest has digests, or should have them: of every file */
};

static void add_problem(struct check *check, const char *fmt, ...) ND_PRINTF(2, 3);
static void add_problem(struct check *check, const char *fmt, ...)
{
    char text[1536];
    ND_PRINT_ARGUMENTS(text, fmt);
    nd_tree_append(check->problems, nd_json_string(text));
}

static void tell(const struct check *check, const char *what)
{
    if (check->how->progress != NULL)
        check->how->progress(check->how->progress_context, check->info->id, what);
}

/* ---- files ---- */

/* The path below the runtime's folder, which the manifest uses. */
static const char *relative_to(const char *folder, const char *path)
{
    size_t n = strlen(folder);
    return strncmp(path, folder, n) == 0 && path[n] == '/' ? path + n + 1 : path;
}

/* Whether the runtime brings the library itself. */
static bool is_own(const struct nd_runtime_info *info, const char *library)
{
    for (size_t i = 0; i < info->n_files; i++)
        if (strcmp(nd_path_base(info->files[i]), library) == 0)
            return nd_path_exists(info->files[i]);
    return false;
}

/* Skeletons take theirs from the NPU's own system, which is no library of the device that could be missing. */
static void note_needs(struct check *check, const struct nd_elf_facts *facts)
{
    if (facts->abi == NULL || strcmp(facts->abi, "hexagon") == 0)
        return;
    for (size_t i = 0; i < facts->n_needed; i++) {
        bool is_known = is_own(check->info, facts->needed[i]);
        for (size_t k = 0; !is_known && k < json_array_size(check->needs); k++)
            is_known = strcmp(json_string_value(json_array_get(check->needs, k)), facts->needed[i]) == 0;
        if (!is_known)
            nd_tree_append(check->needs, nd_json_string(facts->needed[i]));
    }
}

/* What is wrong with the file is a problem of the runtime, unless memory is out, or a file that may be read
 * cannot be opened now: that is returned. */
static enum nd_status take_problem(struct check *check, const char *path, const struct nd_error *why,
                                   struct nd_error *err)
{
    if (why->status != ND_ERR_MEMORY && (!nd_file_is_unopened(why) || access(path, R_OK) != 0)) {
        add_problem(check, "%s", why->message);
        return ND_OK;
    }
    if (err != NULL)
        *err = *why;
    return why->status;
}

/* *state: "ok", or what is wrong with the bytes. */
static enum nd_status find_state_of_bytes(struct check *check, const char *path, const char *relative,
                                          const char **state, struct nd_error *err)
{
    const char *recorded = json_string_value(json_object_get(check->digests, relative));
    struct nd_error why = {0};
    char hex[ND_SHA256_HEX_BYTES];
    if (recorded == NULL) {
        *state = "not recorded";
        if (check->must_be_recorded)
            add_problem(check, ND_RUNTIME_MANIFEST " has no digest of '%s'", relative);
        return ND_OK;
    }
    if (nd_sha256_file(path, hex, &why) != ND_OK) {
        *state = "damaged";
        return take_problem(check, path, &why, err);
    }
    *state = strcmp(hex, recorded) == 0 ? "ok" : "changed";
    if (strcmp(hex, recorded) != 0)
        add_problem(check, "'%s' is not what was added: its digest differs", relative);
    return ND_OK;
}

/* What the file is as a library. */
static enum nd_status check_library(struct check *check, const char *path, const char *relative, bool *is_elf,
                                    struct nd_elf_facts *facts, const char **state, struct nd_error *err)
{
    struct nd_error why = {0};
    const char *abi = check->info->abi;
    if (nd_elf_read(path, is_elf, facts, &why) != ND_OK) {
        *state = "damaged";
        return take_problem(check, path, &why, err);
    }
    if (!*is_elf) {
        *state = "damaged";
        add_problem(check, "'%s' is no library", relative);
    } else if (facts->abi == NULL || (strcmp(facts->abi, abi) != 0 && strcmp(facts->abi, "hexagon") != 0)) {
        add_problem(check, "'%s' is for %s, not for %s", relative, facts->machine, abi);
    }
    return ND_OK;
}

static enum nd_status check_file(struct check *check, const char *path, struct nd_error *err)
{
    const struct nd_runtime_info *info = check->info;
    const char *relative = relative_to(info->folder, path), *state = "gone";
    ND_CLEANUP(nd_elf_deinit) struct nd_elf_facts facts = {0};
    struct stat file;
    bool is_elf = false;
    enum nd_status status = ND_OK;
    json_t *row = json_pack("{s:o}", "path", nd_json_string(relative));
    nd_tree_append(check->files, row);
    if (stat(path, &file) == 0) {
        nd_tree_set(row, "bytes", json_integer((json_int_t)file.st_size));
        status = find_state_of_bytes(check, path, relative, &state, err);
        if (status == ND_OK)
            status = check_library(check, path, relative, &is_elf, &facts, &state, err);
    } else {
        add_problem(check, "'%s' is gone", relative);
    }
    nd_tree_set(row, "machine", is_elf ? json_string(facts.machine) : json_null());
    nd_tree_set(row, "gnu_build_id", facts.build_id != NULL ? json_string(facts.build_id) : json_null());
    nd_tree_set(row, "state", json_string(state));
    note_needs(check, &facts);
    return status;
}

static enum nd_status check_build(struct check *check, struct nd_error *err)
{
    const struct nd_runtime_info *info = check->info;
    ND_FREED char *found = NULL;
    if (info->backend_library != NULL)
        ND_TRY(nd_elf_find_qnn_build(info->backend_library, &found, err));
    if (info->build_id != NULL && (found == NULL || strcmp(found, info->build_id) != 0))
        add_problem(check, "its backend is build %s, not %s", found != NULL ? found : "(none)", info->build_id);
    nd_tree_set(check->row, "build_id", found != NULL ? json_string(found) : json_null());
    return ND_OK;
}

static enum nd_status check_files(struct check *check, struct nd_error *err)
{
    const struct nd_runtime_info *info = check->info;
    json_t *manifest = NULL;
    char *problem = NULL;
    enum nd_status status = nd_runtime_manifest_load(info->folder, &manifest, &problem, err);
    if (status != ND_OK)
        return status;
    check->digests = json_object_get(manifest, "sha256");
    check->must_be_recorded = check->digests != NULL || info->is_added;
    for (size_t i = 0; status == ND_OK && i < info->n_files; i++)
        status = check_file(check, info->files[i], err);
    if (info->missing != NULL && json_array_size(check->problems) == 0)
        add_problem(check, "%s", info->missing);
    check->digests = NULL;
    json_decref(manifest);
    free(problem);
    return status;
}

/* ---- running ---- */

/* The reason without the lines of a stack that follow. */
static json_t *reason_of(const struct nd_error *failure)
{
    char line[sizeof failure->message];
    snprintf(line, sizeof line, "%.*s", (int)strcspn(failure->message, "\n"), failure->message);
    return nd_json_string(line);
}

static enum nd_status run_cpu(struct check *check, struct nd_runtime_trial *trial, bool *loads,
                              struct nd_error *err)
{
    struct nd_runtime_trial_result result;
    const char *said = check->info->ort_version;
    tell(check, "cpu");
    ND_TRY(nd_runtime_trial_run(trial, check->info->id, NULL, &result, err));
    *loads = result.failure.id == 0;
    if (!*loads)
        add_problem(check, "a small model does not run on the CPU: %s", result.failure.message);
    else if (strcmp(said, "unknown") != 0 && strcmp(said, result.version) != 0)
        add_problem(check, "its ONNX Runtime is version %s, not %s", result.version, said);
    return ND_OK;
}

static enum nd_status run_chipsets(struct check *check, struct nd_runtime_trial *trial, json_t *rows,
                                   struct nd_error *err)
{
    size_t n, n_running = 0;
    const struct nd_chipset *chipsets = nd_chipsets(&n);
    for (size_t i = 0; i < n; i++) {
        struct nd_runtime_trial_result result;
        tell(check, chipsets[i].sm);
        ND_TRY(nd_runtime_trial_run(trial, check->info->id, &chipsets[i], &result, err));
        bool runs = result.failure.id == 0;
        n_running += runs;
        nd_tree_append(rows, json_pack("{s:s, s:s, s:s, s:o}", "chipset", chipsets[i].sm, "arch",
                                       chipsets[i].arch, "state", runs ? "runs" : "fails", "reason",
                                       runs ? json_null() : reason_of(&result.failure)));
    }
    if (n_running == 0)
        add_problem(check, "no chipset runs on its simulator");
    return ND_OK;
}

static enum nd_status run_here(struct check *check, json_t *chipsets, struct nd_error *err)
{
    ND_CLEANUP(nd_runtime_trial_close) struct nd_runtime_trial trial = {0};
    bool loads = false;
    ND_TRY(nd_runtime_trial_open(check->how, &trial, err));
    ND_TRY(run_cpu(check, &trial, &loads, err));
    nd_tree_set(check->row, "loads", json_boolean(loads));
    if (loads && check->info->provider_library != NULL && check->info->backend_library != NULL &&
        strcmp(check->info->abi, ND_ABI_DEFAULT) == 0)
        ND_TRY(run_chipsets(check, &trial, chipsets, err));
    return ND_OK;
}

/* Of an NPU that is elsewhere: which chipsets there is code for. */
static void list_chipsets(const struct check *check, json_t *chipsets)
{
    size_t n;
    const struct nd_chipset *known = nd_chipsets(&n);
    for (size_t i = 0; check->info->backend_library != NULL && i < n; i++) {
        char skeleton[64], stub[64];
        const char *arch = known[i].arch + 1; /* behind the v */
        snprintf(skeleton, sizeof skeleton, "libQnnHtpV%sSkel.so", arch);
        snprintf(stub, sizeof stub, "libQnnHtpV%sStub.so", arch);
        bool has_skeleton = is_own(check->info, skeleton), has_stub = is_own(check->info, stub);
        char reason[128] = "";
        if (!has_skeleton || !has_stub)
            snprintf(reason, sizeof reason, "%s is not there", has_skeleton ? stub : skeleton);
        nd_tree_append(chipsets, json_pack("{s:s, s:s, s:s, s:o}", "chipset", known[i].sm, "arch",
                                           known[i].arch, "state", reason[0] == '\0' ? "has code" : "no code",
                                           "reason", reason[0] == '\0' ? json_null() : json_string(reason)));
    }
}

/* ---- one runtime, all runtimes ---- */

static enum nd_status check_one(const struct nd_runtime_checking *how, const struct nd_runtime_info *info,
                                json_t *runtimes, bool *is_fine, struct nd_error *err)
{
    json_t *chipsets = json_array();
    struct check check = {
        .how = how, .info = info, .problems = json_array(), .files = json_array(), .needs = json_array()};
    bool is_here = strcmp(info->abi, nd_abi_here()) == 0;
    check.row =
        json_pack("{s:s, s:s, s:o, s:s, s:s, s:n, s:o, s:n, s:o, s:o, s:o, s:o}", "runtime", info->id, "abi",
                  info->abi, "folder", nd_json_string(info->folder), "onnxruntime", info->ort_version,
                  "onnxruntime_qnn", info->provider_version, "build_id", "uses", nd_runtime_uses(info), "loads",
                  "needs", check.needs, "files", check.files, "chipsets", chipsets, "problems", check.problems);
    ND_TRY_MEMORY(check.row != NULL, err);
    nd_tree_append(runtimes, check.row);
    tell(&check, "files");
    enum nd_status status = check_files(&check, err);
    if (status == ND_OK)
        status = check_build(&check, err);
    if (status == ND_OK && is_here && info->missing == NULL && info->ort_library != NULL && !how->files_only)
        status = run_here(&check, chipsets, err);
    else if (status == ND_OK && !is_here)
        list_chipsets(&check, chipsets);
    bool is_ok = json_array_size(check.problems) == 0;
    nd_tree_set(check.row, "state", json_string(is_ok ? "ok" : "failed"));
    *is_fine = *is_fine && is_ok;
    return status;
}

static enum nd_status check_all(const char *id, const struct nd_runtime_checking *how, json_t *runtimes,
                                bool *is_fine, struct nd_error *err)
{
    ND_CLEANUP(nd_runtimes_deinit) struct nd_runtime_list list = {0};
    const char *missing = NULL;
    ND_TRY(nd_runtimes_list(&list, err));
    for (size_t i = 0; i < list.n; i++) {
        const struct nd_runtime_info *info = &list.items[i];
        if (id != NULL && strcmp(info->id, id) != 0)
            continue;
        missing = info->missing;
        if (nd_path_exists(info->folder)) /* else it is only known */
            ND_TRY(check_one(how, info, runtimes, is_fine, err));
    }
    if (json_array_size(runtimes) > 0)
        return ND_OK;
    if (id == NULL)
        return nd_fail(err, ND_E_RUNTIME_MISSING, NULL,
                       "no runtime is installed; install one with 'tools/setup'");
    return missing != NULL
               ? nd_fail(err, ND_E_RUNTIME_MISSING, id, "runtime '%s' cannot be checked: %s", id, missing)
               : nd_runtime_fail_unknown(&list, id, err);
}

enum nd_status nd_runtimes_check(const char *id, const struct nd_runtime_checking *how, char **report,
                                 enum nd_exit *exit_code, struct nd_error *err)
{
    struct nd_runtime_checking own = {.struct_size = sizeof own};
    ND_TRY(nd_options_read(&own, sizeof own, how, err));
    how = &own;
    bool is_fine = true;
    json_auto_t *runtimes = json_array();
    ND_TRY_MEMORY(runtimes != NULL, err);
    ND_TRY(check_all(id, how, runtimes, &is_fine, err));
    json_auto_t *root = json_pack("{s:O}", "runtimes", runtimes);
    char *text = root != NULL ? nd_json_dumps(root, JSON_INDENT(2)) : NULL;
    ND_TRY_MEMORY(text != NULL, err);
    *report = text;
    *exit_code = is_fine ? ND_EXIT_SAME : ND_EXIT_DEVICE_FAILED;
    return ND_OK;
}
