/* A run on another machine, which is this one behind a fake link. */
#ifndef ND_TESTS_REMOTE_BENCH_H
#define ND_TESTS_REMOTE_BENCH_H

#include "support/main.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/files/file.h"
#include "devices/phones/remote.h"
#include "support/fake_run.h"
#include "support/process_end.h"
#include "support/scratch.h"

/* "Another machine" is this one, by the transport sh. Agents are small scripts, which do what real ones do when
 * they go wrong; those that work hand over a spool that was made before. */
struct bench {
    struct nd_capture_options options;
    struct nd_device device;
    struct nd_remote remote;
    struct nd_job_pass pass;
    struct nd_agent_job job;
    char *root, *agent, *model, *here;
    struct nd_agent_exit exit;
    struct nd_error err;
};

static inline char *write_file(const char *name, const char *text, mode_t mode)
{
    char *path = in_folder(name);
    char *dir = nd_path_dir(path);
    assert_int_equal(nd_dir_make(dir, NULL), ND_OK);
    assert_int_equal(nd_file_put(path, text, strlen(text), NULL), ND_OK);
    assert_int_equal(chmod(path, mode), 0);
    free(dir);
    return path;
}

static inline void bench_open(struct bench *bench, const char *script)
{
    char text[4096];
    *bench = (struct bench){0};
    snprintf(text, sizeof text, "#!/bin/sh\nhere='%s'\n%s\n", folder, script);
    bench->root = in_folder("device's folder");
    setenv("NPUDIFF_DEVICE_FOLDER", bench->root, 1);
    unsetenv("NPUDIFF_AGENTS");
    bench->agent = write_file("agent", text, 0700);
    bench->model = write_file("model.onnx", "a model", 0600);
    bench->here = in_folder("here");
    bench->device.label = (char *)(uintptr_t) "dev";
    bench->device.runtime.ort_library = write_file("lib/libort.so", "a library", 0600);
    bench->pass.model = bench->model;
    bench->job = (struct nd_agent_job){.ort_library = bench->device.runtime.ort_library,
                                       .n_repeats = 1,
                                       .passes = &bench->pass,
                                       .n_passes = 1};
    nd_capture_options_init(&bench->options);
    bench->options.agent = bench->agent;
    bench->options.link_limit_s = 1;
    expect_ok(nd_remote_open(&bench->remote, &bench->device, &bench->options, &bench->err), &bench->err);
}

static inline enum nd_status bench_run(struct bench *bench)
{
    const struct nd_remote_run run = {.job = &bench->job,
                                      .device = &bench->device,
                                      .folder = bench->here,
                                      .options = &bench->options,
                                      .samples_total = 6};
    bench->exit = (struct nd_agent_exit){0};
    nd_dir_remove(bench->here);
    return nd_remote_run(&bench->remote, &run, &bench->exit, &bench->err);
}

static inline void bench_close(struct bench *bench)
{
    nd_remote_close(&bench->remote);
    free(bench->root);
    free(bench->agent);
    free(bench->model);
    free(bench->here);
    free(bench->device.runtime.ort_library);
}

/* How many there are in a folder of the device, without ".complete". */
static inline int count_in(const struct bench *bench, const char *name)
{
    char command[1024], line[32];
    snprintf(command, sizeof command, "ls \"%s/%s\" 2>/dev/null | wc -l", bench->root, name);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    assert_non_null(fgets(line, sizeof line, pipe));
    pclose(pipe);
    return atoi(line);
}

static inline bool cancel_late(void *context)
{
    uint64_t *until = context;
    return nd_clock_ns() > *until;
}

#endif
