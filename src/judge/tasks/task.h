/* The tasks of a campaign while they are listed or one is done: tasks.c; took.c keeps what each took. */
#pragma once

#include "judge/release/qualify.h"
#include "npudiff/judge/campaign.h"

/* ---- tasks.c ---- */

/* Beside result.json, which the task that judges makes. */
#define ND_TASK_RESULT "result.json"

/* Where a task stands in the campaign. */
struct nd_task_place {
    enum nd_task_kind kind;
    size_t model; /* SIZE_MAX: of the one that judges */
    size_t cell;  /* that is captured, or the reference of a comparison; else SIZE_MAX */
    size_t part;  /* of an explanation; else 0 */
};

/* All tasks of a qualification whose cells are planned, with the captures first: in new memory. *files[i] is
 * the file of places[i], in new memory, too. */
struct nd_task_places {
    size_t n;
    struct nd_task_place *items;
    char **files;
};

/* ---- took.c ---- */

/* What it took to make a file: written beside it as "<file>.took". */
struct nd_took {
    enum nd_task_kind kind;
    char model[65];  /* SHA-256 */
    char device[64]; /* kind of device, of a capture */
    char uri[512];   /* of a capture */
    uint64_t n_runs;
    double seconds;
    uint64_t memory_bytes, bytes;
    char *file; /* that it is about; owned. Only of those that were read */
};

struct nd_took_list {
    size_t n, capacity;
    struct nd_took *items;
};

/* Fills the fields about the machine (memory_bytes, bytes) and writes the file beside `path`. That it cannot be
 * written is no error: only an estimate is missing then. */
void nd_took_write(const char *path, struct nd_took *took);

/* Adds those of all files of a folder of results. What is damaged or not there is not added; what cannot be
 * read just now is an error. */
enum nd_status nd_took_read_folder(const char *folder, struct nd_took_list *list, struct nd_error *err);
void nd_took_list_deinit(struct nd_took_list *list);

/* What is known of a task before it is done. */
struct nd_task_size {
    const char *model;  /* SHA-256 */
    const char *device; /* kind; "" of what is no capture */
    const char *uri;
    uint64_t n_runs;
    uint64_t raw_bytes; /* of the values that are recorded, or read */
    uint64_t work;      /* values of all tensors of the model, times the runs */
};

void nd_task_measure(const struct nd_qualification *q, const struct nd_task_place *place,
                     struct nd_task_size *out);
