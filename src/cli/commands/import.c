/* `npudiff import`: captures from files of other tools. docs/reference/import-map.md. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/options/commands.h"
#include "cli/options/workload.h"
#include "cli/terminal/output.h"
#include "cli/terminal/rows.h"
#include "cli/terminal/terminal.h"
#include "npudiff/core/parse.h"
#include "npudiff/record/import.h"

struct values {
    struct nd_import_options import;
    const char *model;
    struct cli_list dims, maps;
    const char *kind, *sdk, *labels, *latencies, *failed;
    struct cli_list facts, repeats, logs;
    const char *samples_axis, *assume;
    struct cli_integer batch;
    bool formats;
    struct cli_answer answer;
};

static int print_formats(bool is_json)
{
    json_t *rows = json_array();
    const struct nd_import_format *format;
    for (size_t i = 0; (format = nd_import_format(i)) != NULL; i++)
        json_array_append_new(rows, json_pack("{s:s, s:s, s:s}", "format", format->name, "paths", format->paths,
                                              "summary", format->summary));
    static const struct nd_report_column columns[] = {
        {"format", "FORMAT"}, {"paths", "PATHS"}, {"summary", "WHAT IS READ"}, {NULL, NULL}};
    return cli_print_rows(ND_DOCUMENT_IMPORT_FORMATS, "formats", rows, columns, is_json);
}

static void print_result(const char *output, const struct nd_import_result *result)
{
    printf("%s: %zu %s, %zu %s", output, result->n_tensors, result->n_tensors == 1 ? "tensor" : "tensors",
           result->n_samples, result->n_samples == 1 ? "sample" : "samples");
    if (result->n_inputs > 0)
        printf(", %zu %s", result->n_inputs, result->n_inputs == 1 ? "input" : "inputs");
    putchar('\n');
    for (size_t i = 0; i < result->n_facts; i++) {
        const char *source = result->facts[i].source;
        for (bool is_first = true; *source != '\0'; is_first = false) {
            size_t n = strcspn(source, "\n");
            printf("  %-13s %.*s\n", is_first ? result->facts[i].kind : "", (int)n, source);
            source += n + (source[n] == '\n');
        }
    }
}

/* Files are told from TENSOR=EDGE by their extension. The short forms move to the front of the list. */
static int sort_maps(struct cli_list *maps, struct nd_import_options *options)
{
    for (size_t i = 0; i < maps->n; i++) {
        const char *text = maps->items[i];
        if (strchr(text, '=') != NULL && !cli_ends_with(text, ".yaml") && !cli_ends_with(text, ".yml"))
            maps->items[options->n_names++] = text;
        else if (options->map != NULL)
            return cli_usage_error("import", "--map takes one file; '%s' is the second", text);
        else
            options->map = text;
    }
    options->names = maps->items;
    return 0;
}

static enum nd_import_samples samples_of(const char *word)
{
    if (word == NULL || strcmp(word, "auto") == 0)
        return ND_IMPORT_SAMPLES_AUTO;
    if (strcmp(word, "file") == 0)
        return ND_IMPORT_SAMPLES_FILE;
    if (strcmp(word, "first") == 0)
        return ND_IMPORT_SAMPLES_FIRST;
    return strcmp(word, "batch") == 0 ? ND_IMPORT_SAMPLES_BATCH : ND_IMPORT_SAMPLES_NONE;
}

/* A chipset has one name everywhere, so that reports see that two captures are of one. */
static bool find_chipset(const char *name, struct nd_import_chipset *out)
{
    const struct nd_chipset *chipset = nd_chipset_find(name);
    if (chipset != NULL)
        *out = (struct nd_import_chipset){chipset->sm, chipset->arch, chipset->marketing, chipset->soc_model};
    return chipset != NULL;
}

/* ---- facts ---- */

/* Options that state facts, and the keys that they are short for. */
enum { MAX_SIMPLE_FACTS = 8 };

/* KEY=VALUE of --fact is cut in place: *buffer owns the copies. */
static int add_facts(const struct values *values, struct nd_import_stated *stated, size_t *n, char **buffer)
{
    const struct {
        const char *key, *value, *option;
    } simple[MAX_SIMPLE_FACTS] = {
        {"kind", values->kind, "--kind"},       {"sdk", values->sdk, "--sdk"},
        {"labels", values->labels, "--labels"}, {"latency_us", values->latencies, "--latencies"},
        {"failed", values->failed, "--failed"},
    };
    for (size_t i = 0; i < MAX_SIMPLE_FACTS; i++)
        if (simple[i].value != NULL)
            stated[(*n)++] = (struct nd_import_stated){simple[i].key, simple[i].value, simple[i].option};
    for (size_t i = 0; i < values->repeats.n; i++)
        stated[(*n)++] = (struct nd_import_stated){"repeat_files", values->repeats.items[i], "--repeat"};
    for (size_t i = 0; i < values->logs.n; i++)
        stated[(*n)++] = (struct nd_import_stated){"logs", values->logs.items[i], "--log"};
    for (size_t i = 0; i < values->facts.n; i++) {
        char *equals = strchr(values->facts.items[i], '=');
        if (equals == NULL || equals == values->facts.items[i])
            return cli_usage_error("import", "--fact takes KEY=VALUE, not '%s'", values->facts.items[i]);
        char *copy = strdup(values->facts.items[i]);
        if (copy == NULL)
            return cli_usage_error("import", "out of memory");
        copy[equals - values->facts.items[i]] = '\0';
        buffer[i] = copy;
        stated[(*n)++] =
            (struct nd_import_stated){copy, copy + (equals - values->facts.items[i]) + 1, "--fact"};
    }
    return 0;
}

/* 0, or the exit code after a message. */
static int check_format(const char *name)
{
    const char *names[16];
    char meant[ND_DID_YOU_MEAN_BYTES];
    size_t n = 0;
    for (; n < sizeof names / sizeof names[0] && nd_import_format(n) != NULL; n++) {
        names[n] = nd_import_format(n)->name;
        if (strcmp(names[n], name) == 0)
            return 0;
    }
    return cli_usage_error_as(CLI_E_OPTION_VALUE, "import", "there is no format '%s'; --formats lists all%s",
                              name, nd_did_you_mean(name, names, n, sizeof names[0], meant));
}

static int run_import(const struct values *values, const struct nd_import_options *options)
{
    struct nd_error err = {0};
    CLI_OWNED(nd_import_result_deinit) struct nd_import_result result = {0};
    size_t n_all = MAX_SIMPLE_FACTS + values->repeats.n + values->logs.n + values->facts.n;
    struct nd_import_options all = *options;
    struct nd_import_stated *stated = calloc(n_all, sizeof *stated);
    char **copies = calloc(values->facts.n + 1, sizeof *copies);
    int problem = stated == NULL || copies == NULL ? cli_usage_error("import", "out of memory") : 0;
    if (problem == 0)
        problem = add_facts(values, stated, &all.n_stated, copies);
    all.stated = stated;
    if (problem == 0 && nd_import(&all, &result, &err) != ND_OK)
        problem = cli_report_error(&err);
    for (size_t i = 0; copies != NULL && i < values->facts.n; i++)
        free(copies[i]);
    free(copies);
    free(stated);
    if (problem != 0)
        return problem;
    if (values->answer.json) {
        json_t *facts = json_object();
        for (size_t i = 0; i < result.n_facts; i++)
            json_object_set_new(facts, result.facts[i].kind, cli_text(result.facts[i].source));
        cli_print_json(ND_DOCUMENT_IMPORT,
                       json_pack("{s:o, s:I, s:I, s:I, s:s, s:o}", "capture", cli_text(options->output),
                                 "tensors", (json_int_t)result.n_tensors, "inputs", (json_int_t)result.n_inputs,
                                 "samples", (json_int_t)result.n_samples, "status",
                                 result.cut_short == NULL ? "complete"
                                 : result.is_failed       ? "failed"
                                                          : "partial",
                                 "facts", facts));
    } else if (!values->answer.quiet)
        print_result(options->output, &result);
    int code = result.cut_short != NULL ? ND_EXIT_DEVICE_FAILED : ND_EXIT_SAME;
    if (result.cut_short != NULL)
        fprintf(stderr, "npudiff: '%s' is %s: %s\n", options->output, result.is_failed ? "failed" : "partial",
                result.cut_short);
    return code;
}

static int run(const void *context, const char *const *operands, size_t n_operands)
{
    struct values values = *(const struct values *)context;
    struct nd_error err = {0};
    CLI_OWNED(nd_model_destroy) struct nd_model *model = NULL;
    int code;
    if (values.formats)
        return print_formats(values.answer.json);
    struct nd_import_options *import = &values.import;
    bool may_lack_paths = values.failed != NULL || values.facts.n > 0 || import->facts != NULL;
    if (n_operands < 1 || (n_operands < 2 && !may_lack_paths))
        return cli_usage_error("import", "FORMAT and PATH are missing; --formats lists the formats");
    if ((code = check_format(operands[0])) != 0)
        return code;
    if (import->output == NULL)
        return cli_usage_error("import", "--output is missing");
    if (cli_check_output(import->output, import->replace, "--force overwrites it") != 0)
        return ND_EXIT_TROUBLE;
    import->struct_size = sizeof *import;
    import->format = operands[0];
    import->paths = operands + 1;
    import->n_paths = n_operands - 1;
    import->find_chipset = find_chipset;
    import->samples = samples_of(values.samples_axis);
    import->batch = (size_t)values.batch.value;
    import->assumes_float32 = values.assume != NULL;
    if (import->runner != NULL && strcmp(import->format, "polygraphy") != 0)
        return cli_usage_error("import", "--runner is for polygraphy");
    if (import->samples == ND_IMPORT_SAMPLES_FILE && strcmp(import->format, "numpy") != 0)
        return cli_usage_error("import", "--samples-axis file is for numpy; other formats keep samples apart");
    bool is_qnn = import->graph != NULL || import->context_json != NULL || import->input_list != NULL ||
                  import->layout != NULL || values.assume != NULL || values.batch.is_given || import->strict;
    if (is_qnn && strcmp(import->format, "qnn-net-run") != 0)
        return cli_usage_error("import",
                               "--graph, --context-json, --input-list, --layout, --batch, --assume and "
                               "--strict are for qnn-net-run");
    if (values.dims.n > 0 && values.model == NULL)
        return cli_usage_error("import", "--dim needs --model");
    if (sort_maps(&values.maps, import) != 0)
        return ND_EXIT_TROUBLE;
    if (cli_model_load(values.model, &values.dims, &model, &err) != ND_OK)
        return cli_report_error(&err);
    import->model = model;
    return run_import(&values, import);
}

static const char *const layouts[] = {"NCHW", "NHWC", NULL};
static const char *const assumptions[] = {"float32", NULL};
static const char *const axes[] = {"auto", "first", "batch", "none", "file", NULL};
static const char *const kinds[] = {"npu", "cpu", "gpu", "reference", NULL};

static const struct cli_option options[] = {
    OPT_TEXT('o', "output", struct values, import.output, CLI_A_FILE("OUT.h5"), "the capture to make"),
    OPT_TEXT(0, "model", struct values, model, CLI_A_MODEL("M.onnx"),
             "the model that was run: every tensor must fit it in name, shape, type and scale"),
    OPT_DIM(struct values),
    OPT_LIST(0, "map", struct values, maps, CLI_A_FILE("FILE.yaml|NAME=TENSOR"),
             "what the files do not say: names, layout, scale and zero point, type. NAME=TENSOR renames one "
             "tensor, and may be repeated"),
    OPT_TEXT(0, "inputs", struct values, import.inputs, CLI_A_FILE("PATH"),
             "the inputs of the run, so that compare can check that they are the same: with --model as in "
             "'capture --probe NAME=PATH', otherwise .npz, .npy or a folder, or an .h5 of AI Hub"),
    OPT_TEXT('p', "probe", struct values, import.probe, CLI_A_PROBE_NAME,
             "name of the probe in the capture; give it the name that it has in the capture to compare with "
             "(the format's name)"),
    OPT_CHOICE(0, "samples-axis", struct values, samples_axis, "WHICH", axes,
               "where an array has its samples: 'first', in a dimension before those of the tensor; 'batch', "
               "in the tensor's first dimension, which is 1 in the model; 'none', the array is one sample; "
               "'file', every PATH is one sample; 'auto', as the model says, otherwise 'first' (auto)"),
    OPT_TEXT(0, "label", struct values, import.label, CLI_A_TEXT("TEXT"),
             "the device's name in reports (the name of the file)"),
    OPT_TEXT('c', "chipset", struct values, import.chipset, CLI_A_CHIPSET("NAME"),
             "the chipset, if you know it (SM8750, gen4); without it the capture says 'not stated'"),
    OPT_CHOICE(0, "kind", struct values, kind, "WHAT", kinds,
               "what computed the values: npu, cpu, gpu, or reference (a different framework, a float run); "
               "without it npudiff assumes nothing and looks for no fallback"),
    OPT_TEXT(0, "sdk", struct values, sdk, CLI_A_TEXT("VERSION"),
             "the version of the SDK, if you know it (2.31.0)"),
    OPT_LIST(0, "repeat", struct values, repeats, CLI_A_FILE("PATH"),
             "a second run of the same samples, in the form of PATH; may be repeated"),
    OPT_TEXT(0, "labels", struct values, labels, CLI_A_FILE("FILE"),
             "the right class of every sample: a .npy, or numbers in a text file"),
    OPT_TEXT(0, "latencies", struct values, latencies, CLI_A_FILE("FILE"),
             "microseconds of every sample and repeat: a .npy, or numbers in a text file"),
    OPT_LIST(0, "log", struct values, logs, CLI_A_FILE("FILE"),
             "a log of the run; npudiff stores it and searches it for failures and fallbacks; may be repeated"),
    OPT_TEXT(0, "failed", struct values, failed, CLI_A_TEXT("REASON"),
             "the run failed: make a failed capture of the samples that there are, or of none (without PATH)"),
    OPT_LIST(0, "fact", struct values, facts, CLI_A_TEXT("KEY=VALUE"),
             "any other fact: failed_stage, outputs, phone, provider, ...; docs/reference/import-facts.md "
             "lists them; may be repeated"),
    OPT_TEXT(0, "facts", struct values, import.facts, CLI_A_FILE("FILE.yaml"),
             "a file of facts; a --map may hold the same keys at its top level"),
    OPT_TEXT(0, "runner", struct values, import.runner, CLI_A_TEXT("NAME"),
             "polygraphy: the runner to import, if there are several"),
    OPT_TEXT(0, "context-json", struct values, import.context_json, CLI_A_FILE("FILE"),
             "qnn-net-run: the output of qnn-context-binary-utility, with types, shapes and scales"),
    OPT_TEXT(0, "graph", struct values, import.graph, CLI_A_TEXT("NAME"),
             "qnn-net-run: the graph to import, if there are several"),
    OPT_TEXT(0, "input-list", struct values, import.input_list, CLI_A_FILE("FILE"),
             "qnn-net-run: the input list of the run; its paths are relative to the list"),
    OPT_CHOICE(0, "layout", struct values, import.layout, "WHICH", layouts,
               "qnn-net-run: the layout of the tensors that --map does not mention: NHWC, channels last; NCHW, "
               "as in the model"),
    OPT_INTEGER(0, "batch", struct values, batch, "N", 1, 1000000, "qnn-net-run: samples in every file (1)"),
    OPT_CHOICE(
        0, "assume", struct values, assume, "TYPE", assumptions,
        "qnn-net-run: float32: read a .raw file as one dimension of float32 when its shape is not known"),
    OPT_FLAG(0, "strict", struct values, import.strict,
             "qnn-net-run: make it an error when the model lacks a tensor; without this option the tensor is "
             "kept as it is"),
    OPT_FLAG('f', "force", struct values, import.replace, "overwrite OUT.h5"),
    OPT_FLAG(0, "formats", struct values, formats, "list the formats, and what npudiff reads of each"),
    OPT_ANSWER_PLAIN(struct values),
    {.name = NULL},
};

static const struct cli_example examples[] = {
    {"npudiff import --formats", "Lists the formats."},
    {"npudiff import numpy outputs.npz --model model.onnx -p digits -o imported.h5",
     "Makes a capture of arrays that are named like the model's tensors."},
    {"npudiff import qnn-net-run prepared -o phone.h5",
     "Reads a folder that 'npudiff prepare' made and a phone has run."},
};

const struct cli_command cmd_import = {
    .name = "import",
    .role = CLI_FILES,
    .summary = "make a capture from the files of a different tool",
    .synopsis = "FORMAT PATH... -o OUT.h5 [--model M.onnx] [--map FILE.yaml]",
    .details =
        "Reads outputs that a different tool wrote (NumPy, raw files, ONNX test data, AI Hub, Polygraphy, "
        "qnn-net-run; see --formats) and writes a capture with the same bits. Every other command can read it. "
        "To compare it with a capture, give --probe the name of the probe there, and --inputs the inputs.\n"
        "With --model every tensor must be a tensor of the model, by its name, its ONNX name or its sanitised "
        "name, with the same shape and type. A name that fits several tensors is an error. Integers get the "
        "model's scales. Floats that are all exactly real values of quantised values become quantised values "
        "(--fact floats=keep prevents that). Without --model the names, types and shapes are those of the "
        "files, and scales are unknown unless --map gives them.\n"
        "A map is a YAML file with 'tensors:' (and 'inputs:'), a list of items such as {name: conv1_out, edge: "
        "conv1, layout: NHWC, dtype: uint8, scale: 0.02, zero_point: 3}. 'axis: 1' goes with a list of scales, "
        "'offset: -3' with 'convention: qnn' (real = scale * (value + offset)); 'skip: yes' leaves a tensor "
        "out. A raw list is YAML, too, with items such as {name: conv1, dtype: uint8, shape: [1, 8, 14, 14], "
        "files: 'Result_{}/conv1.raw', samples: 8}, where {} is the number of the sample, or 'file:' for all "
        "samples in one file.\n"
        "You state as facts what the files do not hold: --kind, --chipset, --sdk, --label, --labels, "
        "--latencies, --repeat, --log, --failed, --fact KEY=VALUE, or a --facts FILE. A fact that contradicts "
        "a file, the model or a different fact is an error. 'npudiff info' shows where each fact came from.\n"
        "For qnn-net-run PATH is its output folder (with Result_0), or a folder that 'npudiff prepare' made "
        "and run.sh filled. The native file of a tensor counts; a float file beside it must agree with it. "
        "Missing results make a partial capture, and an exit code of the tool other than 0 makes a failed "
        "one.\n"
        "Exit code 0: done; 2: something is missing, damaged or contradicts itself, and nothing was written; "
        "5: the capture is partial or failed.",
    CLI_TABLES(struct values),
    CLI_OPERANDS(CLI_VALUE_FILE, 0, CLI_ANY_NUMBER),
};
