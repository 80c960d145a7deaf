/* What qnn-net-run and the person who starts it need besides the data. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "core/text/strbuf.h"
#include "record/qnn/prepare_internal.h"

static enum nd_status put_text(const struct nd_prepare_work *work, const char *name, struct nd_strbuf *buf,
                               struct nd_error *err)
{
    size_t n = buf->len;
    char *text = nd_strbuf_take(buf);
    enum nd_status status = text != NULL ? nd_prepare_put(work, name, text, n, err) : nd_fail_memory(err);
    free(text);
    return status;
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
    nd_strbuf_printf(
        &text,
        "for library in libQnnHtp.so libQnnHtpNetRunExtensions.so libQnnSystem.so libQnnHtpV%sStub.so "
        "libQnnHtpV%sSkel.so; do\n"
        "    [ -f \"$qnn/$library\" ] || echo \"run.sh: no $library in '$qnn': the system's own is tried\" "
        ">&2\n"
        "done\n",
        arch + (arch[0] == 'v'), arch + (arch[0] == 'v'));
    nd_strbuf_puts(&text, script_tail);
    nd_strbuf_puts(&text, "\"$run\" --retrieve_context " ND_PREPARED_BINARY
                          " --backend libQnnHtp.so --input_list input_list.txt \\\n"
                          "    --use_native_input_files --use_native_output_files \\\n"
                          "    --output_dir \"$out/output\" \\\n");
    if (level != NULL)
        nd_strbuf_printf(&text, "    --profiling_level %s \\\n", level);
    nd_strbuf_puts(&text, "    --config_file config.json \"$@\" >\"$out/stdout.txt\" 2>\"$out/stderr.txt\" "
                          "</dev/null\n"
                          "code=$?\n"
                          "cat \"$out/stderr.txt\" >&2\n"
                          "finish $code\n");
    enum nd_status status = put_text(work, "run.sh", &text, err);
    char *path = nd_path_join(work->folder, "run.sh");
    if (status == ND_OK && (path == NULL || chmod(path, 0755) != 0))
        status = nd_fail(err, ND_E_FILE_WRITE, path, "cannot make '%s' executable", path != NULL ? path : "");
    free(path);
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
        "%zu inference%s, %zu output%s each. Made by npudiff %s; npudiff.json says what every file "
        "is.\n\n",
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

enum nd_status nd_prepare_files(const struct nd_prepare_work *work, struct nd_error *err)
{
    enum nd_status status = put_config(work, err);
    if (status == ND_OK)
        status = put_script(work, err);
    return status == ND_OK ? put_readme(work, err) : status;
}
