/* A prepared folder, made under a temporary name beside its own, and renamed when it is whole. */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "core/text/strbuf.h"
#include "npudiff/devices/device.h"
#include "record/probes/loader.h"
#include "record/qnn/prepare_internal.h"

static enum nd_status nd_prepare_manifest(const struct nd_prepare_work *work, struct nd_error *err);

/* What qnn-net-run and the person who starts it need besides the data. */

/* Not synced one by one: a folder of thousands of inputs would take minutes, and one that lost its power is
 * made again. */
static enum nd_status nd_prepare_put(const struct nd_prepare_work *work, const char *name, const void *data,
                                     size_t n, struct nd_error *err)
{
    ND_FREED char *path = nd_path_join(work->folder, name);
    ND_FREED char *folder = path != NULL ? nd_path_dir(path) : NULL;
    enum nd_status status = folder != NULL ? nd_dir_make(folder, err) : nd_fail_memory(err);
    FILE *file = status == ND_OK ? fopen(path, "wbe") : NULL;
    bool is_written = file != NULL && (n == 0 || fwrite(data, 1, n, file) == n);
    int problem = errno;
    if (file != NULL && fclose(file) != 0) {
        is_written = false;
        problem = errno;
    }
    if (status == ND_OK && !is_written)
        status = nd_fail(err, ND_E_FILE_WRITE, path, "cannot write '%s': %s", path, strerror(problem));
    return status;
}

static enum nd_status put_text(const struct nd_prepare_work *work, const char *name, struct nd_strbuf *buf,
                               struct nd_error *err)
{
    size_t n = buf->len;
    ND_FREED char *text = nd_strbuf_take(buf);
    return text != NULL ? nd_prepare_put(work, name, text, n, err) : nd_fail_memory(err);
}

/* ---- configuration of the backend ---- */

static enum nd_status put_config(const struct nd_prepare_work *work, struct nd_error *err)
{
    static const char outer[] = "{\n"
                                " \"backend_extensions\": {\n"
                                "  \"shared_library_path\": \"libQnnHtpNetRunExtensions.so\",\n"
                                "  \"config_file_path\": \"htp.json\"\n"
                                " }\n"
                                "}\n";
    struct nd_strbuf inner = {0};
    enum nd_status status = nd_prepare_put(work, "config.json", outer, sizeof outer - 1, err);
    nd_strbuf_printf(&inner,
                     "{\n \"devices\": [\n  {\n   \"device_id\": 0,\n   \"soc_model\": %d,\n"
                     "   \"dsp_arch\": \"%s\",\n   \"pd_session\": \"unsigned\"\n  }\n ]\n}\n",
                     work->device->chipset->soc_model, work->device->chipset->arch);
    if (status == ND_OK)
        return put_text(work, "htp.json", &inner, err);
    nd_strbuf_deinit(&inner);
    return status;
}

/* ---- run.sh ---- */

static const char script_head[] =
    "#!/bin/sh\n"
    "# Runs qnn-net-run on this folder: ./run.sh, on the device. POSIX sh; Android's does.\n"
    "#\n"
    "# QNN_FOLDER   where qnn-net-run and its libraries are (this folder)\n"
    "# QNN_NET_RUN  qnn-net-run itself (the one there, else the one in PATH)\n"
    "# QNN_OUTPUT   where output/, stdout.txt, stderr.txt and, last of all, exit_code come (this folder)\n"
    "cd \"$(dirname \"$0\")\" || exit 2\n"
    "here=$(pwd) || exit 2\n"
    "qnn=${QNN_FOLDER:-$here}\n"
    "out=${QNN_OUTPUT:-$here}\n"
    "rm -rf \"$out/output\"\n"
    "rm -f \"$out/stdout.txt\" \"$out/stderr.txt\" \"$out/exit_code\" \"$out/exit_code.part\"\n"
    "finish() {\n"
    "    echo \"$1\" >\"$out/exit_code.part\" && mv \"$out/exit_code.part\" \"$out/exit_code\"\n"
    "    exit \"$1\"\n"
    "}\n"
    "run=${QNN_NET_RUN:-$qnn/qnn-net-run}\n"
    "if [ -z \"${QNN_NET_RUN:-}\" ] && [ ! -f \"$run\" ]; then\n"
    "    run=$(command -v qnn-net-run) || run=\n"
    "fi\n"
    "if [ -z \"$run\" ] || [ ! -f \"$run\" ]; then\n"
    "    echo \"run.sh: no qnn-net-run in '$qnn' or PATH; README.txt says what belongs there\" |\n"
    "        tee \"$out/stderr.txt\" >&2\n"
    "    finish 2\n"
    "fi\n";

static const char script_tail[] = "rm -rf output stdout.txt stderr.txt exit_code exit_code.part\n"
                                  "LD_LIBRARY_PATH=\"$qnn${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}\"\n"
                                  "ADSP_LIBRARY_PATH=\"$qnn;/system/lib/rfsa/adsp;/vendor/lib/rfsa/adsp\"\n"
                                  "export LD_LIBRARY_PATH ADSP_LIBRARY_PATH\n";

static enum nd_status put_script(const struct nd_prepare_work *work, struct nd_error *err)
{
    const char *arch = work->device->chipset->arch; /* "v75" */
    const char *level = work->options->profiling_level;
    struct nd_strbuf text = {0};
    nd_strbuf_puts(&text, script_head);
    nd_strbuf_printf(&text,
                     "for library in libQnnHtp.so libQnnHtpNetRunExtensions.so libQnnSystem.so "
                     "libQnnHtpV%sStub.so libQnnHtpV%sSkel.so; do\n"
                     "    [ -f \"$qnn/$library\" ] || echo \"run.sh: no $library in '$qnn': the system's own "
                     "is tried\" >&2\n"
                     "done\n",
                     arch + (arch[0] == 'v'), arch + (arch[0] == 'v'));
    nd_strbuf_puts(&text, script_tail);
    nd_strbuf_puts(&text, "\"$run\" --retrieve_context " ND_PREPARED_BINARY
                          " --backend libQnnHtp.so --input_list input_list.txt \\\n"
                          "    --use_native_input_files --use_native_output_files \\\n"
                          "    --output_dir \"$out/output\" \\\n");
    if (level != NULL)
        nd_strbuf_printf(&text, "    --profiling_level %s \\\n", level);
    nd_strbuf_puts(
        &text, "    --config_file config.json \"$@\" >\"$out/stdout.txt\" 2>\"$out/stderr.txt\" </dev/null\n"
               "code=$?\n"
               "cat \"$out/stderr.txt\" >&2\n"
               "finish $code\n");
    enum nd_status status = put_text(work, "run.sh", &text, err);
    ND_FREED char *path = nd_path_join(work->folder, "run.sh");
    if (status == ND_OK && (path == NULL || chmod(path, 0755) != 0))
        status = nd_fail(err, ND_E_FILE_WRITE, path, "cannot make '%s' executable", path != NULL ? path : "");
    return status;
}

/* ---- README.txt ---- */

static enum nd_status put_readme(const struct nd_prepare_work *work, struct nd_error *err)
{
    const struct nd_chipset *chipset = work->device->chipset;
    const char *arch = chipset->arch + (chipset->arch[0] == 'v');
    size_t n_samples = 0;
    char soc[32] = ""; /* as the SDK's tools write it: "sm8650" */
    struct nd_strbuf text = {0};
    for (size_t i = 0; i + 1 < sizeof soc && chipset->sm[i] != '\0'; i++)
        soc[i] = (char)tolower((unsigned char)chipset->sm[i]);
    for (size_t p = 0; p < work->n_probes; p++)
        n_samples += work->probes[p]->n_samples;
    nd_strbuf_printf(
        &text,
        "%s for %s (%s, soc_model %d, Hexagon %s)\n"
        "%zu inference%s, %zu output%s each. Made by npudiff %s; npudiff.json says what every file is.\n\n",
        nd_path_base(nd_model_path(work->model)), chipset->sm, chipset->marketing, chipset->soc_model,
        chipset->arch, n_samples, n_samples == 1 ? "" : "s", work->n_outputs, work->n_outputs == 1 ? "" : "s",
        nd_version());
    nd_strbuf_printf(
        &text,
        "1. Take these from Qualcomm's SDK (QAIRT), build %s or newer (an older one refuses the context), and\n"
        "   put them into one folder on the device, this one or another:\n"
        "       bin/<target>/qnn-net-run\n"
        "       lib/<target>/libQnnHtp.so libQnnSystem.so libQnnHtpNetRunExtensions.so libQnnHtpV%sStub.so\n"
        "       lib/hexagon-v%s/unsigned/libQnnHtpV%sSkel.so\n"
        "   <target> is aarch64-android on a phone, aarch64-oe-linux-gcc11.2 or the like on a board.\n"
        "2. Push this folder:         adb push <this folder> /data/local/tmp/prepared\n"
        "3. Run it:                   adb shell sh /data/local/tmp/prepared/run.sh\n"
        "   with the SDK elsewhere:   adb shell QNN_FOLDER=/data/local/tmp/qnn sh "
        "/data/local/tmp/prepared/run.sh\n"
        "4. Fetch it back:            adb pull /data/local/tmp/prepared\n"
        "5. Make a capture of it:     npudiff import qnn-net-run prepared --model %s -o phone.h5\n\n",
        work->context.build_id, arch, arch, arch, nd_path_base(nd_model_path(work->model)));
    nd_strbuf_printf(
        &text,
        "run.sh keeps what qnn-net-run says in stdout.txt and stderr.txt, its results in output/, and its exit "
        "code in\nexit_code. It gives further options on to qnn-net-run (sh run.sh --log_level info).\n\n"
        "Inputs and outputs are codes (native): quantisation is outside of the context, so that what is "
        "compared\n"
        "is what the NPU computed. The context is for %s alone: another Hexagon architecture gives\n"
        "indeterminate results or refuses it.\n\n"
        "snpe-net-run takes a .dlc instead, which only the SDK's own converters make (snpe-onnx-to-dlc, then\n"
        "snpe-dlc-graph-prepare --htp_socs %s). 'npudiff import qnn-net-run' reads what it writes, too.\n",
        chipset->sm, soc);
    return put_text(work, "README.txt", &text, err);
}

/* The samples of the probes as files of the codes that the context takes. */

char *nd_prepare_input_path(const struct nd_prepare_work *work, size_t probe, size_t sample, size_t input)
{
    /* An item of an input list ends at a space: the probe's own name may hold anything. */
    ND_FREED char *name = nd_native_name(work->probes[probe]->name);
    if (name == NULL)
        return NULL;
    return nd_text("inputs/%zu_%.60s/%06zu/%s.raw", probe, name, sample, work->inputs[input].context_name);
}

/* ---- codes ---- */

void nd_prepare_quantise(const float *values, size_t n, const struct nd_quant *quant, size_t n_inner,
                         enum nd_dtype dtype, void *qvalues)
{
    const struct nd_qvalue_range range = nd_qvalue_range_of(dtype);
    const float lowest = (float)range.min, highest = (float)((int64_t)range.max);
    for (size_t i = 0; i < n; i++) {
        size_t channel = (i / n_inner) % quant->n;
        float zero_point = (float)quant->zero_point[channel];
        float scaled = values[i] / quant->scale[channel];
        /* Clipped before it is rounded, so that the conversion cannot overflow; NaN fails every comparison. */
        if (!(scaled > lowest - zero_point))
            scaled = lowest - zero_point;
        if (scaled > highest - zero_point)
            scaled = highest - zero_point;
        int64_t qvalue = (int64_t)nearbyintf(scaled) + quant->zero_point[channel];
        if (nd_dtype_size_bytes(dtype) == 1)
            ((uint8_t *)qvalues)[i] = (uint8_t)qvalue;
        else
            ((uint16_t *)qvalues)[i] = (uint16_t)qvalue;
    }
}

static enum nd_status quantise_sample(const struct nd_prepare_work *work,
                                      const struct nd_prepared_tensor *tensor, const void *data, void *qvalues,
                                      struct nd_error *err)
{
    const struct nd_model_io *input = nd_model_input(work->model, tensor->index);
    const struct nd_probe_target target = {.name = input->name,
                                           .dtype = input->dtype,
                                           .shape = input->shape,
                                           .quant = tensor->quant,
                                           .quant_dtype = tensor->dtype};
    struct nd_probe_quantiser quantiser;
    size_t n = 0;
    if (input->dtype != ND_DTYPE_F32 || tensor->quant == NULL)
        return nd_fail(
            err, ND_E_PREPARE_INPUT, input->name,
            "input '%s' is %s and quantised in a way that is not handled here: float32 with constant scales is",
            input->name, nd_dtype_name(input->dtype));
    ND_TRY(nd_quantiser_init(&quantiser, &target, err));
    ND_TRY(nd_shape_n_elems(&input->shape, &n, err));
    nd_prepare_quantise(data, n, tensor->quant, quantiser.n_inner, tensor->dtype, qvalues);
    return ND_OK;
}

/* ---- files ---- */

static enum nd_status write_input(struct nd_prepare_work *work, size_t probe, size_t sample, size_t input,
                                  struct nd_digest *digest, struct nd_error *err)
{
    const struct nd_prepared_tensor *tensor = &work->inputs[input];
    const struct nd_probe_input *from = &work->probes[probe]->inputs[tensor->index];
    const char *data = (const char *)from->data + sample * from->sample_bytes;
    ND_FREED void *qvalues = NULL;
    ND_FREED char *path = nd_prepare_input_path(work, probe, sample, input);
    ND_TRY_MEMORY(path != NULL, err);
    if (tensor->is_quantised_here) {
        qvalues = nd_tensor_alloc(tensor->size_bytes);
        ND_TRY(qvalues != NULL ? quantise_sample(work, tensor, data, qvalues, err) : nd_fail_memory(err));
        data = qvalues;
    }
    *digest = nd_digest_bytes(data, tensor->size_bytes);
    return nd_prepare_put(work, path, data, tensor->size_bytes, err);
}

static enum nd_status add_line(struct nd_prepare_work *work, size_t probe, size_t sample,
                               struct nd_digest *digests, struct nd_strbuf *list, struct nd_error *err)
{
    for (size_t i = 0; i < work->n_inputs; i++) {
        ND_TRY(write_input(work, probe, sample, i, &digests[i], err));
        ND_FREED char *path = nd_prepare_input_path(work, probe, sample, i);
        ND_TRY_MEMORY(path != NULL, err);
        nd_strbuf_printf(list, "%s%s:=%s", i > 0 ? " " : "", work->inputs[i].context_name, path);
    }
    nd_strbuf_puts(list, "\n");
    return ND_OK;
}

/* prepare.c: the input files and input_list.txt; fills digests. */
static enum nd_status nd_prepare_inputs(struct nd_prepare_work *work, struct nd_error *err)
{
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf list = {0};
    size_t n_samples = 0, n = 0, at = 0;
    for (size_t p = 0; p < work->n_probes; p++)
        n_samples += work->probes[p]->n_samples;
    if (work->n_inputs == 0)
        return nd_fail(err, ND_E_PREPARE_INPUT, nd_model_path(work->model),
                       "'%s' has no inputs, and qnn-net-run needs some to run it", nd_model_path(work->model));
    ND_TRY_MEMORY(nd_size_mul(n_samples, work->n_inputs, &n) &&
                      (work->digests = nd_calloc(n, sizeof *work->digests)) != NULL,
                  err);
    for (size_t p = 0; p < work->n_probes; p++)
        for (size_t s = 0; s < work->probes[p]->n_samples; s++) {
            ND_TRY(add_line(work, p, s, &work->digests[at], &list, err));
            at += work->n_inputs;
        }
    size_t n_bytes = list.len;
    ND_FREED char *text = nd_strbuf_take(&list);
    ND_TRY_MEMORY(text != NULL, err);
    return nd_prepare_put(work, "input_list.txt", text, n_bytes, err);
}

void nd_prepare_options_init_sized(struct nd_prepare_options *options, size_t struct_size)
{
    const struct nd_prepare_options own = {.time_limit_s = 3600};
    nd_options_write(options, struct_size, &own, sizeof own);
}

/* ---- what was asked ---- */

static bool has_manifest(const char *folder)
{
    enum { MAX_BYTES = 64 << 20 };
    ND_FREED char *path = nd_path_join(folder, "npudiff.json");
    ND_FREED void *text = NULL;
    size_t n = 0;
    bool is_read =
        path != NULL && nd_path_exists(path) && nd_file_read(path, MAX_BYTES, &text, &n, NULL) == ND_OK;
    json_auto_t *root = is_read ? json_loadb(text, n, 0, NULL) : NULL;
    return json_is_integer(json_object_get(root, ND_PREPARED_KEY));
}

/* A folder is only replaced when it is empty or one of ours: what else is in it is nobody's to remove. */
static bool is_replaceable(const char *folder)
{
    struct stat info;
    if (has_manifest(folder))
        return lstat(folder, &info) == 0 && S_ISDIR(info.st_mode);
    return rmdir(folder) == 0 && mkdir(folder, 0777) == 0; /* which it lets happen to empty ones alone */
}

static enum nd_status check_request(const struct nd_prepare_work *work, const char *folder,
                                    struct nd_error *err)
{
    const struct nd_prepare_options *options = work->options;
    struct stat info;
    if (work->device->kind != ND_DEVICE_HTP_SIM || work->device->transport != ND_TRANSPORT_NONE)
        return nd_fail(err, ND_E_OPTION_VALUE, work->device->label,
                       "device '%s' makes no context: a 'htp-sim:CHIPSET' does", work->device->label);
    if (options->tensors != NULL && strcmp(options->tensors, "none") == 0)
        return nd_fail(err, ND_E_OPTION_VALUE, "none",
                       "tensors 'none' leave the model untouched, and a context gives codes: use 'outputs'");
    if (lstat(folder, &info) == 0 && !options->replace)
        return nd_fail(err, ND_E_FILE_EXISTS, folder, "'%s' exists already", folder);
    if (lstat(folder, &info) == 0 && !is_replaceable(folder))
        return nd_fail(err, ND_E_FILE_EXISTS, folder,
                       "'%s' exists already and is not a prepared folder: it is not replaced", folder);
    for (size_t i = 0; i < work->n_probes; i++)
        for (size_t k = 0; k < i; k++)
            if (strcmp(work->probes[i]->name, work->probes[k]->name) == 0)
                return nd_fail(err, ND_E_OPTION_CONFLICT, work->probes[i]->name, "two probes are called '%s'",
                               work->probes[i]->name);
    return nd_model_check_static(work->model, err);
}

/* A tensor that is the codes of an input stays outside: it is what the context is fed. */
static enum nd_status choose_tensors(struct nd_prepare_work *work, struct nd_error *err)
{
    const char *spec = work->options->tensors != NULL ? work->options->tensors : "all";
    ND_FREED size_t *selected = NULL;
    size_t n = 0;
    ND_TRY(nd_model_select_tensors(work->model, spec, &selected, &n, err));
    work->tensors = nd_calloc(n, sizeof *work->tensors);
    work->fed = nd_calloc(n, sizeof *work->fed);
    ND_TRY_MEMORY(work->tensors != NULL && work->fed != NULL, err);
    for (size_t i = 0; i < n; i++) {
        const struct nd_tensor *tensor = nd_model_tensor(work->model, selected[i]);
        if (tensor->is_model_input && strcmp(tensor->op_types, "input") == 0)
            work->fed[work->n_fed++].tensor = selected[i];
        else
            work->tensors[work->n_tensors++] = selected[i];
    }
    if (work->n_tensors == 0)
        return nd_fail(err, ND_E_MODEL_NO_TENSOR, spec,
                       "tensors '%s' are inputs of '%s': a context has to compute something", spec,
                       nd_model_path(work->model));
    return ND_OK;
}

/* ---- the folder ---- */

/* Beside the final place, so that one rename ends it. *full: the final path, absolute. */
static enum nd_status make_folders(struct nd_prepare_work *work, const char *folder, char **final_path,
                                   struct nd_error *err)
{
    size_t n = strlen(folder);
    while (n > 1 && folder[n - 1] == '/')
        n--;
    *final_path = strndup(folder, n);
    ND_FREED char *parent = *final_path != NULL ? nd_path_dir(*final_path) : NULL;
    ND_TRY_MEMORY(parent != NULL, err);
    ND_FREED char *full_parent = realpath(parent, NULL); /* the agent works elsewhere */
    if (full_parent == NULL)
        return nd_fail(err, ND_E_FILE_WRITE, parent, "cannot find folder '%s': %s", parent, strerror(errno));
    ND_FREED char *template = nd_text("%s/.npudiff-prepare-XXXXXX", full_parent);
    ND_TRY_MEMORY(template != NULL, err);
    if (mkdtemp(template) == NULL)
        return nd_fail(err, ND_E_FILE_WRITE, folder, "cannot make folder '%s': %s", folder, strerror(errno));
    work->folder = template;
    template = NULL;
    work->scratch = nd_text("%s/.context", work->folder);
    return work->scratch != NULL ? nd_dir_make(work->scratch, err) : nd_fail_memory(err);
}

static enum nd_status publish(struct nd_prepare_work *work, const char *final_path, struct nd_error *err)
{
    /* mkdtemp lets nobody else in; the scratch folder is as open as a new folder is. umask() cannot be asked
     * without setting it, for all threads. */
    struct stat made;
    bool is_open = stat(work->scratch, &made) == 0 && chmod(work->folder, made.st_mode & 0777) == 0;
    char *old = nd_text("%s.old", work->folder);
    ND_TRY_MEMORY(old != NULL, err);
    bool is_moved = is_open && work->options->replace && rename(final_path, old) == 0;
    enum nd_status status = ND_OK;
    if (is_open)
        nd_dir_remove(work->scratch);
    if (!is_open || rename(work->folder, final_path) != 0)
        status = nd_fail(err, errno == ENOTEMPTY || errno == EEXIST ? ND_E_FILE_EXISTS : ND_E_FILE_WRITE,
                         final_path, "cannot make folder '%s': %s", final_path, strerror(errno));
    if (is_moved && status == ND_OK)
        nd_dir_remove(old);
    else if (is_moved && rename(old, final_path) != 0)
        nd_error_context(err, "what was in '%s' is now in '%s'", final_path, old);
    free(old);
    if (status != ND_OK)
        return status;
    free(work->folder);
    work->folder = NULL;
    return ND_OK;
}

void nd_prepare_work_deinit(struct nd_prepare_work *work)
{
    nd_dir_remove(work->folder);
    nd_native_deinit(&work->native);
    ND_FREE_ALL(work->folder, work->scratch, work->tensors, work->fed, work->inputs, work->outputs,
                work->digests);
}

static void summarise(const struct nd_prepare_work *work, struct nd_prepared_summary *summary)
{
    *summary = (struct nd_prepared_summary){
        .context_bytes = work->context.size_bytes, .n_inputs = work->n_inputs, .n_outputs = work->n_outputs};
    snprintf(summary->graph, sizeof summary->graph, "%s", work->context.graph);
    snprintf(summary->sdk, sizeof summary->sdk, "%s", work->context.build_id);
    for (size_t p = 0; p < work->n_probes; p++)
        summary->n_results += work->probes[p]->n_samples;
}

enum nd_status nd_prepare_folder(struct nd_prepare_work *work, const char *folder, struct nd_error *err)
{
    ND_FREED char *final_path = NULL;
    ND_TRY(check_request(work, folder, err));
    ND_TRY(choose_tensors(work, err));
    ND_TRY(make_folders(work, folder, &final_path, err));
    ND_TRY(nd_prepare_context(work, err));
    /* Which input each fed tensor is; the context may not have it after all (nothing reads it). */
    size_t n = 0;
    for (size_t i = 0; i < work->n_fed; i++)
        for (size_t k = 0; k < work->n_inputs; k++)
            if (strcmp(nd_model_tensor(work->model, work->fed[i].tensor)->onnx_name,
                       work->inputs[k].onnx_name) == 0)
                work->fed[n++] = (struct nd_fed){.tensor = work->fed[i].tensor, .input = k};
    work->n_fed = n;
    ND_TRY(nd_prepare_inputs(work, err));
    ND_TRY(nd_prepare_manifest(work, err));
    /* prepare.c: config.json, htp.json, run.sh, README.txt. */
    ND_TRY(put_config(work, err));
    ND_TRY(put_script(work, err));
    ND_TRY(put_readme(work, err));
    return publish(work, final_path, err);
}

enum nd_status nd_prepare(const struct nd_workload *workload, const char *folder,
                          const struct nd_prepare_options *options, struct nd_prepared_summary *summary,
                          struct nd_error *err)
{
    struct nd_prepare_options own;
    nd_prepare_options_init(&own);
    ND_TRY(nd_options_read(&own, sizeof own, options, err));
    options = &own;
    ND_CLEANUP(nd_prepare_work_deinit)
    struct nd_prepare_work work = {.model = workload->model,
                                   .device = workload->device,
                                   .probes = workload->probes,
                                   .n_probes = workload->n_probes,
                                   .options = options};
    ND_TRY(nd_prepare_folder(&work, folder, err));
    if (summary != NULL)
        summarise(&work, summary);
    return ND_OK;
}

/* npudiff.json: docs/reference/prepared-folder.md says what every key means. */

enum { MANIFEST_VERSION = 1 };

/* jansson refuses NULL values, so that a failed allocation anywhere ends as a failed member. */
struct json {
    bool has_failed;
};

static void put(struct json *json, json_t *object, const char *key, json_t *value)
{
    if (json_object_set_new(object, key, value) != 0)
        json->has_failed = true;
}

static void append(struct json *json, json_t *array, json_t *value)
{
    if (json_array_append_new(array, value) != 0)
        json->has_failed = true;
}

/* JSON is UTF-8; what is not (names of files may be anything) has its strange bytes replaced. */
static json_t *text_of(const char *text)
{
    json_t *value = json_string(text);
    if (value != NULL)
        return value;
    ND_FREED char *plain = nd_strdup(text);
    for (char *at = plain; at != NULL && *at != '\0'; at++)
        if ((unsigned char)*at >= 0x80)
            *at = '?';
    value = plain != NULL ? json_string(plain) : NULL;
    return value;
}

static json_t *count_of(uint64_t n)
{
    return json_integer((json_int_t)n);
}

static json_t *describe_shape(struct json *json, const struct nd_shape *shape)
{
    json_t *array = json_array();
    for (int d = 0; d < shape->rank; d++)
        append(json, array, json_integer(shape->dims[d]));
    return array;
}

static void put_quant(struct json *json, json_t *object, const struct nd_quant *quant)
{
    json_t *scales = quant != NULL ? json_array() : json_null();
    json_t *zero_points = quant != NULL ? json_array() : json_null();
    for (size_t i = 0; quant != NULL && i < quant->n; i++) {
        append(json, scales, json_real((double)quant->scale[i]));
        append(json, zero_points, json_integer(quant->zero_point[i]));
    }
    put(json, object, "scale", scales);
    put(json, object, "zero_point", zero_points);
    put(json, object, "axis", quant != NULL && quant->n > 1 ? json_integer(quant->axis) : json_null());
}

static json_t *describe_tensors(struct json *json, const struct nd_prepared_tensor *tensors, size_t n)
{
    json_t *array = json_array();
    for (size_t i = 0; i < n; i++) {
        const struct nd_prepared_tensor *tensor = &tensors[i];
        json_t *object = json_object();
        put(json, object, "name", text_of(tensor->name));
        put(json, object, "onnx_name", text_of(tensor->onnx_name));
        put(json, object, "context_name", text_of(tensor->context_name));
        put(json, object, "dtype", json_string(nd_dtype_name(tensor->dtype)));
        put(json, object, "qnn_dtype", json_string(nd_qnn_type_name(tensor->qnn_type)));
        put(json, object, "shape", describe_shape(json, &tensor->shape));
        put(json, object, "layout", json_string("onnx"));
        put_quant(json, object, tensor->quant);
        put(json, object, "size_bytes", count_of(tensor->size_bytes));
        append(json, array, object);
    }
    return array;
}

static json_t *describe_runtime(struct json *json, const struct nd_prepare_work *work)
{
    const struct nd_device *device = work->device;
    json_t *object = json_object(), *options = json_object();
    put(json, object, "id", text_of(device->runtime.id));
    put(json, object, "onnxruntime", text_of(device->runtime.ort_version));
    put(json, object, "provider", text_of(device->runtime.provider_version));
    put(json, object, "sdk", text_of(work->context.build_id));
    for (size_t i = 0; i < device->n_options; i++)
        if (strcmp(device->option_keys[i], "backend_path") != 0) /* where it lies on this machine */
            put(json, options, device->option_keys[i], text_of(device->option_values[i]));
    put(json, object, "options", options);
    return object;
}

static json_t *describe_context(struct json *json, const struct nd_prepared_context *context)
{
    json_t *object = json_object();
    put(json, object, "binary", json_string(ND_PREPARED_BINARY));
    put(json, object, "onnx", json_string(ND_PREPARED_ONNX));
    put(json, object, "sha256", json_string(context->sha256));
    put(json, object, "size_bytes", count_of(context->size_bytes));
    put(json, object, "graph", text_of(context->graph));
    put(json, object, "backend", count_of(context->backend));
    put(json, object, "core_api", json_string(context->core_api));
    put(json, object, "backend_api", json_string(context->backend_api));
    return object;
}

static json_t *describe_probes(struct json *json, const struct nd_prepare_work *work)
{
    json_t *array = json_array();
    for (size_t p = 0; p < work->n_probes; p++) {
        const struct nd_probe *probe = work->probes[p];
        json_t *object = json_object(), *labels = probe->labels != NULL ? json_array() : json_null();
        put(json, object, "name", text_of(probe->name));
        put(json, object, "source", text_of(probe->source));
        put(json, object, "n_samples", count_of(probe->n_samples));
        for (size_t s = 0; probe->labels != NULL && s < probe->n_samples; s++)
            append(json, labels, json_integer(probe->labels[s]));
        put(json, object, "labels", labels);
        append(json, array, object);
    }
    return array;
}

static json_t *describe_result(struct json *json, const struct nd_prepare_work *work, size_t probe,
                               size_t sample, const struct nd_digest *digests)
{
    json_t *object = json_object(), *inputs = json_array();
    put(json, object, "probe", count_of(probe));
    put(json, object, "sample", count_of(sample));
    for (size_t i = 0; i < work->n_inputs; i++) {
        char digest[33];
        char *path = nd_prepare_input_path(work, probe, sample, i);
        json_t *input = json_object();
        snprintf(digest, sizeof digest, "%016" PRIx64 "%016" PRIx64, digests[i].high, digests[i].low);
        put(json, input, "file", path != NULL ? json_string(path) : NULL);
        put(json, input, "xxh3", json_string(digest));
        append(json, inputs, input);
        free(path);
    }
    put(json, object, "inputs", inputs);
    return object;
}

static json_t *describe_results(struct json *json, const struct nd_prepare_work *work)
{
    json_t *array = json_array();
    size_t at = 0;
    for (size_t p = 0; p < work->n_probes; p++)
        for (size_t s = 0; s < work->probes[p]->n_samples; s++) {
            append(json, array, describe_result(json, work, p, s, &work->digests[at]));
            at += work->n_inputs;
        }
    return array;
}

static json_t *describe(struct json *json, const struct nd_prepare_work *work)
{
    const struct nd_chipset *chipset = work->device->chipset;
    const char *tensors = work->options->tensors;
    json_t *root = json_object(), *model = json_object(), *chip = json_object(), *fed = json_array();
    put(json, root, ND_PREPARED_KEY, json_integer(MANIFEST_VERSION));
    put(json, root, "npudiff", json_string(nd_version()));
    put(json, model, "file", text_of(nd_path_base(nd_model_path(work->model))));
    put(json, model, "sha256", json_string(nd_model_sha256(work->model)));
    put(json, model, "edges", text_of(tensors != NULL ? tensors : "all"));
    put(json, root, "model", model);
    put(json, chip, "sm", json_string(chipset->sm));
    put(json, chip, "soc_model", json_integer(chipset->soc_model));
    put(json, chip, "arch", json_string(chipset->arch));
    put(json, root, "chipset", chip);
    put(json, root, "runtime", describe_runtime(json, work));
    put(json, root, "context", describe_context(json, &work->context));
    put(json, root, "inputs", describe_tensors(json, work->inputs, work->n_inputs));
    put(json, root, "outputs", describe_tensors(json, work->outputs, work->n_outputs));
    for (size_t i = 0; i < work->n_fed; i++) {
        json_t *object = json_object();
        put(json, object, "edge", text_of(nd_model_tensor(work->model, work->fed[i].tensor)->name));
        put(json, object, "input", count_of(work->fed[i].input));
        append(json, fed, object);
    }
    put(json, root, "fed", fed);
    put(json, root, "probes", describe_probes(json, work));
    put(json, root, "results", describe_results(json, work));
    return root;
}

static enum nd_status nd_prepare_manifest(const struct nd_prepare_work *work, struct nd_error *err)
{
    struct json json = {0};
    json_auto_t *root = describe(&json, work);
    ND_FREED char *text = json.has_failed ? NULL : json_dumps(root, JSON_INDENT(1) | JSON_REAL_PRECISION(17));
    return text != NULL ? nd_prepare_put(work, "npudiff.json", text, strlen(text), err) : nd_fail_memory(err);
}
