#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/dim_options.h"
#include "cli/output.h"
#include "cli/rows.h"
#include "npudiff/device.h"
#include "npudiff/import.h"

struct values {
    const char *output;
    const char *model;
    struct cli_list dims;
    struct cli_list maps;
    const char *inputs;
    const char *probe;
    const char *label;
    const char *chipset;
    const char *kind;
    const char *sdk;
    const char *facts_file;
    const char *labels;
    const char *latencies;
    const char *failed;
    struct cli_list facts;
    struct cli_list repeats;
    struct cli_list logs;
    const char *samples_axis;
    const char *runner;
    const char *graph;
    const char *context_json;
    const char *input_list;
    const char *layout;
    const char *assume;
    struct cli_integer batch;
    bool strict;
    bool force;
    bool formats;
    bool json;
    bool quiet;
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
    return cli_print_rows("formats", rows, columns, is_json);
}

static void print_result(const char *output, const struct nd_import_result *result)
{
    printf("%s: %zu %s, %zu %s", output, result->n_edges, result->n_edges == 1 ? "tensor" : "tensors",
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

static void print_json(const char *output, const struct nd_import_result *result)
{
    json_t *facts = json_object();
    for (size_t i = 0; i < result->n_facts; i++)
        json_object_set_new(facts, result->facts[i].kind, cli_text(result->facts[i].source));
    json_t *root = json_pack("{s:o, s:I, s:I, s:I, s:s, s:o}", "capture", cli_text(output), "tensors",
                             (json_int_t)result->n_edges, "inputs", (json_int_t)result->n_inputs, "samples",
                             (json_int_t)result->n_samples, "status",
                             result->cut_short == NULL ? "complete"
                             : result->is_failed       ? "failed"
                                                       : "partial",
                             "facts", facts);
    cli_print_json(root);
    json_decref(root);
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

static bool is_format(const char *name)
{
    const struct nd_import_format *format;
    for (size_t i = 0; (format = nd_import_format(i)) != NULL; i++)
        if (strcmp(format->name, name) == 0)
            return true;
    return false;
}

static int import(const struct values *values, const struct nd_import_options *options)
{
    struct nd_error err = {0};
    struct nd_import_result result = {0};
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
    if (values->json)
        print_json(options->output, &result);
    else if (!values->quiet)
        print_result(options->output, &result);
    int code = result.cut_short != NULL ? ND_EXIT_DEVICE_FAILED : ND_EXIT_SAME;
    if (result.cut_short != NULL)
        fprintf(stderr, "npudiff: '%s' is %s: %s\n", options->output, result.is_failed ? "failed" : "partial",
                result.cut_short);
    nd_import_result_deinit(&result);
    return code;
}

static int run(const void *context, const char *const *operands, size_t n_operands)
{
    struct values values = *(const struct values *)context;
    struct nd_error err = {0};
    struct nd_model *model = NULL;
    int code = 0;
    if (values.formats)
        return print_formats(values.json);
    bool may_lack_paths = values.failed != NULL || values.facts.n > 0 || values.facts_file != NULL;
    if (n_operands < 1 || (n_operands < 2 && !may_lack_paths))
        return cli_usage_error("import", "FORMAT and PATH are needed; --formats lists the formats");
    if (!is_format(operands[0]))
        return cli_usage_error("import", "there is no format '%s'; --formats lists those there are",
                               operands[0]);
    if (values.output == NULL)
        return cli_usage_error("import", "--output is needed");
    if (cli_check_output(values.output, values.force, "--force replaces it") != 0)
        return ND_EXIT_TROUBLE;
    struct nd_import_options options = {.struct_size = sizeof options,
                                        .format = operands[0],
                                        .paths = operands + 1,
                                        .n_paths = n_operands - 1,
                                        .output = values.output,
                                        .replace = values.force,
                                        .label = values.label,
                                        .chipset = values.chipset,
                                        .facts = values.facts_file,
                                        .find_chipset = find_chipset,
                                        .probe = values.probe,
                                        .inputs = values.inputs,
                                        .samples = samples_of(values.samples_axis),
                                        .runner = values.runner,
                                        .graph = values.graph,
                                        .context_json = values.context_json,
                                        .input_list = values.input_list,
                                        .layout = values.layout,
                                        .batch = (size_t)values.batch.value,
                                        .assumes_float32 = values.assume != NULL,
                                        .strict = values.strict};
    if (values.runner != NULL && strcmp(options.format, "polygraphy") != 0)
        return cli_usage_error("import", "--runner is for polygraphy");
    if (options.samples == ND_IMPORT_SAMPLES_FILE && strcmp(options.format, "numpy") != 0)
        return cli_usage_error("import", "--samples-axis file is for numpy; other formats keep samples apart");
    bool is_qnn = values.graph != NULL || values.context_json != NULL || values.input_list != NULL ||
                  values.layout != NULL || values.assume != NULL || values.batch.is_given || values.strict;
    if (is_qnn && strcmp(options.format, "qnn-net-run") != 0)
        return cli_usage_error("import",
                               "--graph, --context-json, --input-list, --layout, --batch, --assume and "
                               "--strict are for qnn-net-run");
    if (values.dims.n > 0 && values.model == NULL)
        return cli_usage_error("import", "--dim needs --model");
    if (sort_maps(&values.maps, &options) != 0)
        return ND_EXIT_TROUBLE;
    if (values.model != NULL && nd_model_load(values.model, &model, &err) != ND_OK)
        return cli_report_error(&err);
    if (model != NULL && cli_set_dims("import", model, &values.dims, &code, &err) != ND_OK)
        code = code != 0 ? code : cli_report_error(&err);
    options.model = model;
    if (code == 0)
        code = import(&values, &options);
    nd_model_destroy(&model);
    return code;
}

static const char *const layouts[] = {"NCHW", "NHWC", NULL};
static const char *const assumptions[] = {"float32", NULL};
static const char *const axes[] = {"auto", "first", "batch", "none", "file", NULL};
static const char *const kinds[] = {"npu", "cpu", "gpu", "reference", NULL};

static const struct cli_option options[] = {
    OPT_TEXT('o', "output", struct values, output, CLI_A_FILE("OUT.h5"), "the capture to make"),
    OPT_TEXT(0, "model", struct values, model, CLI_A_MODEL("M.onnx"),
             "the model whose edges the tensors are: names, shapes, types and scales are held against it"),
    OPT_LIST(0, "dim", struct values, dims, CLI_A_TEXT("NAME=N"),
             "size of a dynamic dimension of the model's inputs; may be repeated"),
    OPT_LIST(0, "map", struct values, maps, CLI_A_TEXT("FILE.yaml|TENSOR=EDGE"),
             "what the files do not say: names, layout, scale and zero point or offset, type; TENSOR=EDGE only "
             "names one and may be repeated"),
    OPT_TEXT(0, "inputs", struct values, inputs, CLI_A_FILE("PATH"),
             "what was fed, so that compare can check it: with --model as 'capture --probe NAME=PATH' reads "
             "it, else .npz, .npy or a folder; or an .h5 of AI Hub"),
    OPT_TEXT(0, "probe", struct values, probe, CLI_A_PROBE_NAME,
             "name of the probe in the capture: that of the capture to compare with (default: FORMAT)"),
    OPT_CHOICE(0, "samples-axis", struct values, samples_axis, "WHICH", axes,
               "where an array has its samples: 'first' dimension, which the tensor lacks; 'batch', the first "
               "dimension, which is 1 in the tensor; 'none', the array is one sample; 'file', every PATH is "
               "one sample; 'auto' (default) as the model says, else 'first'"),
    OPT_TEXT(0, "label", struct values, label, CLI_A_TEXT("TEXT"),
             "what reports call it (default: the file's name)"),
    OPT_TEXT(0, "chipset", struct values, chipset, CLI_A_CHIPSET("NAME"),
             "which chipset it was, if you know it (SM8750, gen4); without it the capture says 'not stated'"),
    OPT_CHOICE(0, "kind", struct values, kind, "WHAT", kinds,
               "what computed it: npu, cpu, gpu, or reference (another framework, a float run); without it "
               "nothing is assumed, and no fallback is looked for"),
    OPT_TEXT(0, "sdk", struct values, sdk, CLI_A_TEXT("VERSION"), "which SDK it was, if you know it (2.31.0)"),
    OPT_LIST(0, "repeat", struct values, repeats, CLI_A_FILE("PATH"),
             "another run of the same samples, as PATH has the first; may be repeated"),
    OPT_TEXT(0, "labels", struct values, labels, CLI_A_FILE("FILE"),
             "class of every sample: a .npy, or numbers in a text file"),
    OPT_TEXT(0, "latencies", struct values, latencies, CLI_A_FILE("FILE"),
             "microseconds of every sample and repeat: a .npy, or numbers in a text file"),
    OPT_LIST(0, "log", struct values, logs, CLI_A_FILE("FILE"),
             "a log of the run, kept and read for failures and fallbacks; may be repeated"),
    OPT_TEXT(0, "failed", struct values, failed, CLI_A_TEXT("REASON"),
             "the run failed: makes a failed capture of the samples that there are, or of none (no PATH)"),
    OPT_LIST(0, "fact", struct values, facts, CLI_A_TEXT("KEY=VALUE"),
             "any other fact: failed_stage, outputs, phone, provider, ... (docs/reference/import-facts.md); "
             "may be repeated"),
    OPT_TEXT(0, "facts", struct values, facts_file, CLI_A_FILE("FILE.yaml"),
             "a file of facts; the same keys may stand at the top level of a --map"),
    OPT_TEXT(0, "runner", struct values, runner, CLI_A_TEXT("NAME"),
             "polygraphy: which runner, if there are several"),
    OPT_TEXT(
        0, "context-json", struct values, context_json, CLI_A_FILE("FILE"),
        "qnn-net-run: what qnn-context-binary-utility prints of the context binary: types, shapes, scales"),
    OPT_TEXT(0, "graph", struct values, graph, CLI_A_TEXT("NAME"),
             "qnn-net-run: which graph, if there are several"),
    OPT_TEXT(0, "input-list", struct values, input_list, CLI_A_FILE("FILE"),
             "qnn-net-run: the input list that it was given; paths in it are relative to it"),
    OPT_CHOICE(0, "layout", struct values, layout, "WHICH", layouts,
               "qnn-net-run: NHWC, channels are last in the files; NCHW, they are where the model has them; of "
               "all tensors of which --map says nothing"),
    OPT_INTEGER(0, "batch", struct values, batch, "N", 1, 1000000,
                "qnn-net-run: samples in every file (default: 1)"),
    OPT_CHOICE(0, "assume", struct values, assume, "TYPE", assumptions,
               "qnn-net-run: float32: a .raw of which nothing states a shape is one dimension of float32"),
    OPT_FLAG(0, "strict", struct values, strict,
             "qnn-net-run: a tensor that the model lacks is an error; without it it stays an edge of its own"),
    OPT_FORCE(struct values, "replace OUT.h5"),
    OPT_FLAG(0, "formats", struct values, formats, "list the formats and what is read of each"),
    OPT_QUIET(struct values),
    OPT_JSON(struct values),
    {.name = NULL},
};

const struct cli_command cmd_import = {
    .name = "import",
    .summary = "make a capture of what another tool wrote",
    .synopsis = "FORMAT PATH... -o OUT.h5 [--model M.onnx] [--map FILE.yaml]",
    .details =
        "Reads outputs that were made elsewhere (NumPy, raw files, ONNX test data, AI Hub, Polygraphy; "
        "--formats lists all) into a capture, bit for bit, which every other command takes. Give --probe the "
        "name of the probe in the capture to compare with, and --inputs what was fed.\nWith --model every "
        "tensor must be an edge of it: by its name, its ONNX name or its sanitised name (what fits several "
        "edges is an error), with its shape and type; integer codes get its scales. Floats that are all "
        "exactly real values of codes become those codes (--fact floats=keep: they stay), others are real "
        "values. Without it names, types and shapes are those of the files, and scales are unknown unless a "
        "--map states them; compare then notes that the models are not known to be the same.\nA map is YAML: "
        "under 'tensors:' (and 'inputs:') a list of items such as {name: conv1_out, edge: conv1, layout: NHWC, "
        "dtype: uint8, scale: 0.02, zero_point: 3}; 'axis: 1' goes with a list of scales, 'offset: -3' with "
        "'convention: qnn' (real = scale * (code + offset)), 'skip: yes' leaves a tensor out. A raw list is "
        "YAML, too: under 'tensors:' (and 'inputs:') items such as {name: conv1, dtype: uint8, shape: [1, 8, "
        "14, 14], files: 'Result_{}/conv1.raw', samples: 8}, where {} is the number of the sample, or 'file:' "
        "with all samples in one.\nWhat the files do not hold is stated as facts: --kind, --chipset, --sdk, "
        "--label, --labels, --latencies, --repeat, --log, --failed, any other as --fact KEY=VALUE, or all of "
        "them in a --facts FILE. A fact that contradicts a file, the model or another fact is an error that "
        "names both.\nThe capture records where every fact came from ('npudiff info' shows it under import); "
        "what nobody states stays unknown. Tensors without elements and scalars are read; what has no sample "
        "at all is an error.\nOf qnn-net-run PATH is its output folder (with Result_0) or one that 'npudiff "
        "prepare' made and run.sh filled. The native file of a tensor counts; a float one beside it is held "
        "against it. Fewer results than inferences asked for make a partial capture, an exit code of the tool "
        "other than 0 a failed one.\nExit code 0; 2 when something is missing, damaged or contradicts itself: "
        "then nothing is written; 5 when the capture is partial or failed.",
    .options = options,
    .min_operands = 0,
    .max_operands = CLI_ANY_NUMBER,
    .values_bytes = sizeof(struct values),
    .run = run,
};
