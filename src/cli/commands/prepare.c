/* `npudiff prepare`: the folder for a run of qnn-net-run. docs/reference/prepared-folder.md. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/options/commands.h"
#include "cli/options/workload.h"
#include "cli/terminal/output.h"
#include "cli/terminal/rows.h"
#include "cli/terminal/signals.h"
#include "cli/terminal/terminal.h"
#include "npudiff/record/prepare.h"

struct values {
    struct cli_list probes, dims, options;
    const char *chipset, *runtime, *output, *tensors, *profiling_level, *agent;
    double time_limit_s;
    bool force, allow_nonfinite;
    struct cli_answer answer;
};

/* "htp-sim:CHIPSET[@RUNTIME][?key=value&...]": the device that makes the context. */
static char *device_uri(const struct values *values)
{
    size_t size = strlen(values->chipset) + (values->runtime != NULL ? strlen(values->runtime) : 0) + 16;
    for (size_t i = 0; i < values->options.n; i++)
        size += strlen(values->options.items[i]) + 1;
    char *uri = malloc(size);
    if (uri == NULL)
        return NULL;
    int n = snprintf(uri, size, "htp-sim:%s%s%s", values->chipset, values->runtime != NULL ? "@" : "",
                     values->runtime != NULL ? values->runtime : "");
    for (size_t i = 0; i < values->options.n; i++)
        n += snprintf(uri + n, size - (size_t)n, "%s%s", i == 0 ? "?" : "&", values->options.items[i]);
    return uri;
}

static enum nd_status prepare(const struct values *values, const struct nd_model *model, struct nd_error *err)
{
    const struct cli_list specs = cli_probes_or_default(&values->probes);
    CLI_OWNED(cli_probes_deinit) struct cli_probes probes = {0};
    CLI_OWNED(nd_device_deinit) struct nd_device device = {0};
    struct nd_prepare_options options;
    struct nd_prepared_summary summary;
    nd_prepare_options_init(&options);
    options.tensors = values->tensors;
    options.agent = values->agent;
    options.replace = values->force;
    options.profiling_level = values->profiling_level;
    if (values->time_limit_s > 0)
        options.time_limit_s = values->time_limit_s;
    options.is_cancelled = cli_signals_came;
    CLI_FREED char *uri = device_uri(values);
    CLI_TRY(uri != NULL ? nd_device_parse(uri, &device, err) : cli_memory_error(err));
    CLI_TRY(nd_model_check_static(model, err));
    CLI_TRY(cli_probes_make(model, &specs, values->allow_nonfinite, &probes, err));
    cli_signals_catch();
    CLI_TRY(nd_prepare(
        &(struct nd_workload){model, &device, (const struct nd_probe *const *)probes.items, probes.n},
        values->output, &options, &summary, err));
    if (values->answer.json) {
        cli_print_json(ND_DOCUMENT_PREPARED,
                       json_pack("{s:o, s:s, s:i, s:s, s:o, s:o, s:o, s:I, s:I, s:I, s:I}", "folder",
                                 cli_text(values->output), "chipset", device.chipset->sm, "soc_model",
                                 device.chipset->soc_model, "arch", device.chipset->arch, "runtime",
                                 cli_text(device.runtime.id), "sdk", cli_text(summary.sdk), "graph",
                                 cli_text(summary.graph), "context_bytes", (json_int_t)summary.context_bytes,
                                 "inputs", (json_int_t)summary.n_inputs, "outputs",
                                 (json_int_t)summary.n_outputs, "inferences", (json_int_t)summary.n_results));
    } else if (!values->answer.quiet) {
        printf("%s: context of %llu bytes for %s (soc_model %d, %s) by SDK %s\n"
               "%zu input%s, %zu output%s, %zu inference%s; README.txt says how to run them\n",
               values->output, (unsigned long long)summary.context_bytes, device.chipset->sm,
               device.chipset->soc_model, device.chipset->arch, summary.sdk, summary.n_inputs,
               summary.n_inputs == 1 ? "" : "s", summary.n_outputs, summary.n_outputs == 1 ? "" : "s",
               summary.n_results, summary.n_results == 1 ? "" : "s");
    }
    return ND_OK;
}

static int run(const void *context, const char *const *operands, size_t n_operands)
{
    (void)n_operands;
    const struct values *values = context;
    struct nd_error err = {0};
    CLI_OWNED(nd_model_destroy) struct nd_model *model = NULL;
    if (values->chipset == NULL || values->output == NULL)
        return cli_usage_error("prepare", "%s is missing",
                               values->chipset == NULL ? "--chipset NAME" : "-o DIR");
    if (cli_check_output_folder(values->output, values->force, "--force overwrites a prepared folder") != 0)
        return ND_EXIT_TROUBLE;
    if (cli_model_load(operands[0], &values->dims, &model, &err) != ND_OK ||
        prepare(values, model, &err) != ND_OK)
        return cli_report_error(&err);
    return ND_EXIT_SAME;
}

static const char *const level_choices[] = {"basic", "detailed", "backend", "client", NULL};

static const struct cli_option options[] = {
    OPT_TEXT('c', "chipset", struct values, chipset, CLI_A_CHIPSET("NAME"),
             "the chipset of the phone or board: gen3, SM8650, ...; 'npudiff devices' lists them"),
    OPT_TEXT('o', "output", struct values, output, CLI_A_FOLDER("DIR"), "the folder to make"),
    OPT_FORCE(struct values, "overwrite a prepared folder"),
    OPT_LIST('p', "probe", struct values, probes, CLI_A_PROBE,
             "inputs, as for 'npudiff capture'; may be repeated (zeros, ones, ramp and uniform)"),
    OPT_ALLOW_NONFINITE(struct values),
    OPT_TENSORS(struct values,
                "tensors that the device returns: all, outputs, or name patterns separated by commas (all)"),
    OPT_TEXT(0, "runtime", struct values, runtime, CLI_A_RUNTIME("ID"),
             "make the context binary with the SDK of this runtime; it must not be newer than the SDK on the "
             "device; 'npudiff runtimes' lists them (the newest)"),
    OPT_LIST(0, "option", struct values, options, CLI_A_TEXT("KEY=VALUE"),
             "an option of the provider, such as vtcm_mb=4; may be repeated"),
    OPT_CHOICE(0, "profiling-level", struct values, profiling_level, "basic|detailed|backend|client",
               level_choices, "let qnn-net-run write a profile"),
    OPT_DIM(struct values),
    OPT_TIME_LIMIT(struct values, "give up after S seconds (3600)"),
    OPT_AGENT(struct values),
    OPT_ANSWER_PLAIN(struct values),
    {.name = NULL},
};

static const struct cli_example examples[] = {
    {"npudiff prepare model.onnx --chipset gen3 -o prepared",
     "Makes a folder for a phone with a Snapdragon 8 Gen 3; its README says how to run it there."},
    {"npudiff prepare model.onnx --chipset SM8550 -p digits=test.npz --tensors outputs -o prepared-outputs",
     "With your own samples; the device returns the model's outputs only."},
};

const struct cli_command cmd_prepare = {
    .name = "prepare",
    .role = CLI_FILES,
    .summary = "make a folder that qnn-net-run runs on a device",
    .synopsis = "MODEL.onnx --chipset NAME -o DIR [-p PROBE ...]",
    .details = "Makes the context binary that a phone loads, with the SDK of an installed runtime, and writes "
               "everything that qnn-net-run needs beside it: every sample as a native file, the input list, "
               "the configuration, a script for Android or Linux, and a README. qnn-net-run and its libraries "
               "come from Qualcomm's SDK.\n"
               "Afterwards 'npudiff import qnn-net-run DIR' turns the results into a capture. The file "
               "npudiff.json in the folder says which file holds which tensor. In tensor names every character "
               "except letters, digits and '_' becomes '_'.\n"
               "The whole model must run on the NPU as one graph; 'npudiff placement' says whether it does. If "
               "it does so only without inner tensors, give --tensors outputs.\n"
               "Exit code 0: made; 2: wrong usage or a file problem; 5: the provider refuses the model or "
               "leaves nodes to the CPU.",
    CLI_TABLES(struct values),
    CLI_OPERANDS(CLI_VALUE_MODEL, 1, 1),
};
