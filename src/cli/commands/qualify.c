/* `npudiff qualify`: a campaign, its plan and its parts. docs/reference/campaign.md. */
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "cli/commands/report_documents.h"
#include "cli/options/commands.h"
#include "cli/options/workload.h"
#include "cli/terminal/progress.h"
#include "cli/terminal/rows.h"
#include "cli/terminal/signals.h"
#include "cli/terminal/terminal.h"
#include "npudiff/capture/capture.h"
#include "npudiff/capture/captured_model.h"
#include "npudiff/judge/campaign.h"
#include "npudiff/judge/judge.h"
#include "npudiff/report/report.h"

struct values {
    bool plan;
    const char *output, *emit, *task, *key;
    struct cli_list from;
    size_t explain_parts, jobs, n_threads;
    bool force, suggest, verbose;
    struct cli_answer answer;
    const char *report;
};

/* Lines for a log; on a terminal bars under them, made when the number of captures is known. */
struct shown {
    pthread_mutex_t lock;
    struct cli_progress *progress;
    bool has_bars;
};

static void say(void *context, const char *text)
{
    struct shown *shown = context;
    pthread_mutex_lock(&shown->lock);
    cli_progress_clear(shown->progress);
    pthread_mutex_unlock(&shown->lock);
    fprintf(stderr, "npudiff: %s\n", text);
}

static void show_progress(void *context, const struct nd_qualify_progress *state)
{
    struct shown *shown = context;
    if (!shown->has_bars)
        return;
    pthread_mutex_lock(&shown->lock);
    if (shown->progress == NULL)
        shown->progress = cli_progress_create(state->n, 1, false);
    struct cli_progress *progress = shown->progress;
    pthread_mutex_unlock(&shown->lock);
    if (state->is_done)
        cli_progress_done(progress, state->index);
    else
        cli_progress_show(progress, state->index,
                          &(struct cli_progress_state){.label = state->label,
                                                       .stage = state->stage,
                                                       .unit = "samples",
                                                       .done = state->done,
                                                       .total = state->total});
}

/* What was asked for: the policy, or the result. */
static int print(const struct values *values, const struct nd_qualify_result *result)
{
    struct nd_error err = {0};
    char *text = NULL;
    enum nd_status status = ND_OK;
    if (!values->answer.json && values->suggest)
        fputs(result->found.suggestion, stdout);
    else if (values->suggest)
        status = nd_report_suggestion_json(&result->found, &text, &err);
    else if (values->answer.json)
        status = nd_report_qualification_json(&result->found, &text, &err);
    else if (values->verbose)
        status = nd_report_qualification_text(&result->found, &text, &err);
    else {
        /* With the model of the first failure, where its capture says where that is. */
        const char *quantised, *name;
        CLI_OWNED(nd_capture_close) struct nd_capture *capture = NULL;
        struct nd_qualification_place place = {.folder = result->folder};
        CLI_FREED char *path = nd_report_first_failure(&result->found, &quantised, &name)
                                   ? cli_path_in(result->folder, name)
                                   : NULL;
        if (path != NULL && nd_capture_open(path, &capture, NULL) == ND_OK)
            place.model = nd_capture_model_path(capture);
        status = nd_report_qualification_brief(&result->found, &place, cli_text_width(values->answer.width),
                                               &text, &err);
    }
    return status == ND_OK && text == NULL ? 0 : cli_print_answer(status, text, &values->answer, &err);
}

/* The campaign, and a comparison of each model's captures. */
static int report(const struct values *values, const struct nd_qualify_result *result)
{
    struct nd_error err = {0};
    if (values->report == NULL)
        return 0;
    CLI_OWNED(report_documents_deinit) struct report_documents documents = {0};
    const struct report_sources sources = {.n_threads = values->n_threads, .quiet = values->answer.quiet};
    if (report_documents_of_campaign(&documents, result->folder, &sources, &err) != ND_OK)
        return cli_report_error(&err);
    return cli_report_write(values->report, documents.items, documents.n, NULL);
}

/* ---- the tasks of a campaign ---- */

/* Prints what the tasks take or, with --emit, the tasks as a script. */
static int plan(const struct values *values, const char *campaign, const struct nd_qualify_options *options)
{
    struct nd_error err = {0};
    struct nd_plan_of_campaign plan;
    char *text = NULL;
    enum nd_status status =
        nd_campaign_plan(campaign, values->from.items, values->from.n, options, &plan, &err);
    if (status != ND_OK)
        return cli_report_error(&err);
    status = values->emit != NULL  ? nd_report_plan_script(&plan, values->emit, &text, &err)
             : values->answer.json ? nd_report_plan_json(&plan, &text, &err)
             : values->verbose     ? nd_report_plan_text(&plan, &text, &err)
                               : nd_report_plan_brief(&plan, cli_text_width(values->answer.width), &text, &err);
    nd_plan_of_campaign_deinit(&plan);
    return cli_print_made(status, text, values->answer.json, &err);
}

static int check(const struct values *values)
{
    if (values->key != NULL && values->task == NULL)
        return cli_usage_error("qualify", "--key needs --task");
    if (values->from.n > 0 && values->emit == NULL && !values->plan)
        return cli_usage_error("qualify", "--from needs --plan or --emit");
    if (values->explain_parts > 0 && values->emit == NULL && values->task == NULL && !values->plan)
        return cli_usage_error("qualify", "--explain-parts needs --plan, --emit or --task");
    if (values->emit != NULL && (values->plan || values->task != NULL || values->suggest ||
                                 values->answer.json || values->report != NULL))
        return cli_usage_error("qualify",
                               "--emit goes with --output, --from, --explain-parts and --force only");
    if (values->plan && (values->task != NULL || values->force || values->jobs > 0 || values->n_threads > 0 ||
                         values->report != NULL || values->answer.color != NULL ||
                         values->answer.format != NULL || values->answer.quiet))
        return cli_usage_error(
            "qualify",
            "--plan goes with --output, --from, --explain-parts, --suggest, --json, -v and --width only");
    if (values->task != NULL && values->suggest)
        return cli_usage_error("qualify", "--task and --suggest cannot be given together");
    return cli_report_check(values->report);
}

/* Everything, or one task. Of a task that does not judge the result stays empty. */
static enum nd_status qualify(const struct values *values, const char *campaign,
                              const struct nd_qualify_options *options, struct nd_qualify_result *result,
                              struct nd_error *err)
{
    const struct nd_task_name name = {values->task, values->key};
    return values->task != NULL ? nd_campaign_task(campaign, &name, options, result, err)
                                : nd_qualify(campaign, options, result, err);
}

/* Writes the files of a result and prints what was asked for. */
static int tell(const struct values *values, const struct nd_qualify_result *result)
{
    struct nd_error err = {0};
    /* Written again where nothing has changed, too: one of the files may have been lost. */
    if (nd_report_qualification_write(result, &err) != ND_OK)
        return cli_report_error(&err);
    /* It was not asked whether today's policy holds. */
    int exit_code = values->suggest ? ND_EXIT_SAME : (int)result->found.exit_code;
    if (!values->answer.quiet || values->suggest)
        exit_code = cli_worse(exit_code, print(values, result));
    return cli_worse(exit_code, report(values, result));
}

static int run(const void *context, const char *const *operands, size_t n_operands)
{
    (void)n_operands;
    const struct values *values = context;
    struct nd_error err = {0};
    CLI_OWNED(nd_qualify_result_deinit) struct nd_qualify_result result = {0};
    /* Elsewhere the lines are enough: one for each capture that begins or ends. */
    struct shown shown = {.lock = PTHREAD_MUTEX_INITIALIZER,
                          .has_bars = !values->answer.quiet && isatty(STDERR_FILENO) == 1};
    const struct nd_qualify_options options = {.struct_size = sizeof options,
                                               .folder = values->output,
                                               .force = values->force,
                                               .without_policy = values->suggest,
                                               .n_jobs = values->jobs,
                                               .n_threads = values->n_threads,
                                               .n_explain_parts = values->explain_parts,
                                               .say = values->answer.quiet ? NULL : say,
                                               .say_context = &shown,
                                               .progress = show_progress,
                                               .progress_context = &shown,
                                               .is_cancelled = cli_signals_came};
    int exit_code = check(values);
    if (exit_code != 0)
        return exit_code;
    if (values->plan || values->emit != NULL)
        return plan(values, operands[0], &options);
    cli_signals_catch();
    enum nd_status status = qualify(values, operands[0], &options, &result, &err);
    cli_progress_destroy(shown.progress);
    if (status == ND_OK && result.found.owner != NULL)
        exit_code = tell(values, &result);
    if (status != ND_OK && !cli_signals_came(NULL))
        exit_code = cli_report_error(&err);
    cli_stopped_tell("complete captures are kept", "");
    return exit_code;
}

static const char *const engines[] = {"tasks", "slurm", "snakemake", "make", "github", NULL};

static const struct cli_option options[] = {
    OPT_TEXT('o', "output", struct values, output, CLI_A_FOLDER("DIR"),
             "the folder for captures and results (the campaign's 'output')"),
    OPT_FLAG(0, "plan", struct values, plan,
             "capture nothing; print what the campaign takes: tasks, time, disk, memory, and which tasks are "
             "done; with -v every task with its estimate, and where that is from"),
    OPT_FLAG(0, "suggest", struct values, suggest,
             "print the strictest policy that the captures pass, as YAML for the campaign; the campaign needs "
             "no policy; the exit code is 0"),
    OPT_FORCE(struct values, "capture and judge everything again"),
    OPT_CHOICE(0, "emit", struct values, emit, "ENGINE", engines,
               "print the tasks that are not done as a script for many machines, and run nothing: lines for a "
               "shell, jobs for Slurm, a Snakefile, a Makefile, a workflow of GitHub Actions"),
    OPT_LIST(0, "from", struct values, from, CLI_A_FOLDER("DIR"),
             "with --plan or --emit: use also the times of an earlier campaign's folder; may be repeated"),
    OPT_NUMBER(0, "explain-parts", struct values, explain_parts, "N", 1, 1000,
               "with --plan or --emit: make each explanation of N tasks, each with a part of the samples, and "
               "one that merges them; with --task: as the task was printed (1)"),
    OPT_TEXT(0, "task", struct values, task, CLI_A_TEXT("FILE"),
             "do one task: make this file of DIR; the lines that --emit prints have this"),
    OPT_TEXT(0, "key", struct values, key, CLI_A_TEXT("KEY"),
             "with --task: end with an error if the task is not the one that was printed, because npudiff, a "
             "model, a probe, a runtime or the campaign is a different one here"),
    OPT_JOBS(struct values, "run N devices of this computer at the same time; their latencies are then less "
                            "exact (1). Phones and boards always run at the same time"),
    OPT_THREADS(struct values),
    OPT_VERBOSE(
        struct values,
        "print all tables: accuracy with intervals, every gate that does not hold; result.txt has them, too"),
    OPT_REPORT(struct values),
    OPT_ANSWER_SCREEN(struct values),
    {.name = NULL},
};

static const struct cli_example examples[] = {
    {"npudiff qualify campaign.yaml -o results",
     "Runs the campaign. The same command continues after an interruption."},
    {"npudiff qualify campaign.yaml -o results --plan", "Estimates time and disk of the campaign."},
    {"npudiff qualify campaign.yaml -o results --emit make > Makefile.npudiff",
     "Writes the campaign as a Makefile; then: make -f Makefile.npudiff -j 8."},
};

const struct cli_command cmd_qualify = {
    .name = "qualify",
    .role = CLI_JUDGE,
    .summary = "run a campaign: capture, compare, explain, and check its policy",
    .synopsis = "CAMPAIGN.yaml [-o DIR] [--plan] [--suggest] [--force] [-j N]",
    .details =
        "A campaign is a YAML file that names models, devices, inputs and a policy: the limits that every "
        "device must keep. docs/reference/campaign.md describes it; 'npudiff init' writes a first one.\n"
        "qualify makes the captures that DIR/captures lacks, or that are of an old model, probe, runtime or "
        "option. It compares every device with the reference, judges accuracy, and checks each gate of the "
        "policy for each device. It writes DIR/result.json, result.txt, result.csv and junit.xml. If nothing "
        "has changed, the result is that of the last run. After an interruption the same command continues.\n"
        "--emit cuts the campaign into tasks for many machines that share DIR: a line for each capture, "
        "comparison and explanation, and one that judges. The result is, byte for byte, that of one 'npudiff "
        "qualify' with these captures. docs/guides/cluster.md has examples.\n"
        "--plan says what the tasks take. An estimate is what the same task took before, in DIR or in a folder "
        "of --from: the same model on the same device, else on a device of the same kind, by the number of "
        "samples. For a model that was never captured it is a default, which may be far off.\n"
        "Exit code 0: every gate passed; 1: a gate failed; 2: wrong usage, a file problem, or a campaign with "
        "a mistake; 3: something cannot be compared; 4: too few samples for a question; 5: a device failed. Of "
        "several results the worst decides, in the order 2, 5, 3, 1, 4.",
    CLI_TABLES(struct values),
    CLI_OPERANDS(CLI_VALUE_FILE, 1, 1),
};
