/* One experiment: a device is asked about one operator, and an entry of the datasheet says what came out. All
 * sections are made of them. An experiment goes in this order:
 *
 *     1. it asks: models of one operator (ask.h) and quantised values, and the quantised values that the device
 * gives;
 *     2. it solves: which arithmetics of a family give all those quantised values (the solvers: threshold
 * sweep.h, mean.h ...);
 *     3. it confirms: fresh random quantised values under scales that nothing was solved from;
 *     4. it tells: the verdict, the arithmetics that are left, counts, and what could not be decided.
 *
 * An experiment remembers the first error and the first failure of the device. After either, asking and telling
 * do nothing, so that its steps follow each other without tests between them. What it allocates is freed at its
 * end. One thread per bench. */
#ifndef ND_EXPERIMENT_EXPERIMENT_H
#define ND_EXPERIMENT_EXPERIMENT_H

#include "arithmetic/exact/linear/rounding.h"
#include "core/text/strbuf.h"
#include "lab/experiment/ask.h"
#include <jansson.h>

struct nd_experiment {
    struct nd_bench *bench;            /* borrowed, as the names are */
    const char *operator_name, *types; /* of its entry: "MatMul", "u8 x u8 -> u8" */
    enum nd_status status;             /* the first error, which err has */
    struct nd_error *err;              /* nullable */
    /* Settings that the device refuses, or runs elsewhere than the first, are counted; only the first can fail.
     */
    bool is_patient;
    size_t n_asked, n_refused, n_elsewhere; /* models; of a patient one */
    bool has_failed;                        /* the device did: */
    struct nd_trial_result failure;         /* how, or how it refused last; has no data */
    bool is_on_npu;                         /* in all trials */
    char provider[64];                      /* of the last trial */
    uint64_t n_fresh, n_right; /* fresh quantised values; those that the first arithmetic left gives */
    struct nd_strbuf answers;  /* digests of quantised values */
    void **blocks;             /* what it allocated */
    size_t n_blocks, capacity;
};

struct nd_experiment nd_experiment_begin(struct nd_bench *bench, const char *operator_name, const char *types,
                                         struct nd_error *err);
/* Frees what it allocated; its first error. */
enum nd_status nd_experiment_end(struct nd_experiment *experiment);

/* What a section makes an experiment about. */
struct nd_subject {
    const char *operator_name, *types;
    int kind; /* what the section tells its subjects apart by */
};
/* Steps 1 to 4. */
typedef void nd_experiment_take(struct nd_experiment *experiment, int kind, json_t *entries);
/* All of a section: one experiment for each subject. The first error. */
enum nd_status nd_experiment_take_all(struct nd_bench *bench, const struct nd_subject *subjects,
                                      size_t n_subjects, nd_experiment_take *take, json_t *entries,
                                      struct nd_error *err);

bool nd_experiment_goes_on(const struct nd_experiment *experiment);
/* Notes an error, if it is the first; ND_OK is none. Whether it goes on. */
bool nd_experiment_check(struct nd_experiment *experiment, enum nd_status status);
/* Elements that are zero and live until the end. NULL: memory is out, which is noted; or it does not go on. */
void *nd_experiment_alloc(struct nd_experiment *experiment, size_t n, size_t elem_bytes);
/* Frees pointer (nullable) at the end: what a solver has allocated. Gives it back, or NULL when memory is out.
 */
void *nd_experiment_own(struct nd_experiment *experiment, void *pointer);

/* ---- asking ---- */

/* The device's quantised values, n_samples times ask->y, which live until the end; NULL: it does not go on, or
 * a patient experiment has no answer to this. */
const double *nd_experiment_ask(struct nd_experiment *experiment, const struct nd_ask *ask,
                                const double *qvalues, size_t n_samples);
/* The same of a model that is made otherwise, whose output has n elements in all. The model is destroyed. */
const double *nd_experiment_run(struct nd_experiment *experiment, struct nd_compose *model,
                                const struct nd_trial_input *input, size_t n);
/* Appends a digest of quantised values to the answers. */
void nd_experiment_digest(struct nd_experiment *experiment, const double *qvalues, size_t n);
void nd_experiment_add_digest(struct nd_experiment *experiment, struct nd_digest digest);

/* ---- confirming ---- */

/* Fewer fresh quantised values confirm nothing, nor does a smaller share of right ones. */
enum { ND_CONFIRMING_QVALUES = 100000 };
#define ND_CONFIRMING_SHARE 0.999
bool nd_fresh_is_enough(uint64_t n_fresh, uint64_t n_right);

/* Of n arithmetics, of which arithmetic i gave n_right[i] fresh quantised values, only those that gave the most
 * stay, in their order, at the front. How many; *most is what they gave, 0 without any. */
size_t nd_fresh_keep_best(void *arithmetics, size_t arithmetic_bytes, size_t n, const uint64_t *n_right,
                          uint64_t *most);

struct nd_confirmation {
    size_t n_models;
    uint64_t seed;
    /* Asks about model i; how many quantised values came back, 0 where it does not go on. */
    size_t (*ask)(struct nd_experiment *experiment, void *context, size_t i, uint64_t *seed);
    /* How many of these quantised values the arithmetic gives. */
    uint64_t (*count_right)(const void *context, const void *arithmetic);
};
/* The arithmetics that findings are left with. */
struct nd_left {
    void *arithmetics;
    size_t arithmetic_bytes, *n_arithmetics;
};
#define ND_LEFT(findings)                                                                                      \
    ((struct nd_left){(findings)->arithmetics, sizeof *(findings)->arithmetics, &(findings)->n_arithmetics})
/* Holds arithmetics against fresh codes: those that give fewer than the best of them are dropped. n_fresh and
 * n_right are counted anew. */
void nd_experiment_confirm(struct nd_experiment *experiment, const struct nd_confirmation *confirmation,
                           void *context, struct nd_left left);
/* Enough fresh quantised values, and enough of them right. */
bool nd_experiment_is_confirmed(const struct nd_experiment *experiment, size_t n_arithmetics);

/* ---- telling ---- */

/* A new entry with operator, types, verdict and provider, borrowed from entries. NULL: there is nothing more to
 * tell, because the device failed, which the entry then says, or because of an error. */
json_t *nd_experiment_tell(struct nd_experiment *experiment, json_t *entries, bool is_known);
/* The same with a verdict of its own. */
json_t *nd_experiment_tell_verdict(struct nd_experiment *experiment, json_t *entries, const char *verdict);

/* Members of an entry, or of an object in it. value is taken over; NULL, and a NULL object: memory is out. */
void nd_tell(struct nd_experiment *experiment, json_t *object, const char *key, json_t *value);
void nd_tell_text(struct nd_experiment *experiment, json_t *object, const char *key, const char *text);
void nd_tell_int(struct nd_experiment *experiment, json_t *object, const char *key, int64_t value);
void nd_tell_bool(struct nd_experiment *experiment, json_t *object, const char *key, bool value);
void nd_tell_rounding(struct nd_experiment *experiment, json_t *object, const char *key,
                      enum nd_rounding rounding);
/* The member, an object, which is made where it is not there. */
json_t *nd_tell_object(struct nd_experiment *experiment, json_t *object, const char *key);
/* Adds text to the member, an array, which is made where it is not there; NULL adds nothing. */
void nd_tell_listed(struct nd_experiment *experiment, json_t *object, const char *key, const char *text);
/* A line of "text". */
void nd_tell_line(struct nd_experiment *experiment, json_t *entry, const char *fmt, ...) ND_PRINTF(3, 4);

struct nd_count {
    const char *key; /* NULL: the end */
    uint64_t n;
};
/* Members of "evidence". */
void nd_tell_counts(struct nd_experiment *experiment, json_t *entry, const struct nd_count *counts);
#define ND_COUNTS(...) ((const struct nd_count[]){__VA_ARGS__, {NULL, 0}})

void nd_tell_undecided(struct nd_experiment *experiment, json_t *entry, const char *what, const char *probe);
/* What arithmetics may differ in: if those that are left do in one of the fields, it is undecided. */
struct nd_issue {
    const char *what, *probe; /* NULL: the end of a list */
    struct nd_tell_field {
        size_t offset, size_bytes;
    } fields[10]; /* up to the first of 0 bytes */
};
#define ND_FIELD(type, member)                                                                                 \
    {                                                                                                          \
        offsetof(type, member), sizeof((type *)0)->member                                                      \
    }
void nd_tell_issues(struct nd_experiment *experiment, json_t *entry, const struct nd_issue *issues,
                    const void *arithmetics, size_t n_arithmetics, size_t arithmetic_bytes);
/* No arithmetic of the family gives the quantised values; the nearest one does not give n_wrong of them. */
void nd_tell_nearest(struct nd_experiment *experiment, json_t *entry, const char *name, uint64_t n_wrong);
void nd_tell_unknown(struct nd_experiment *experiment, json_t *entry);

#endif
