/* What a command line names: models, and --dim NAME=N: sizes of their dynamic dimensions; probes, and devices;
 * and where the files go that a command writes. */
#pragma once

#include <stdbool.h>

#include "cli/options/help.h"
#include "npudiff/capture/capture.h"
#include "npudiff/capture/captured_model.h"
#include "npudiff/devices/device.h"
#include "npudiff/model/model.h"

/* ---- capturing one model on several devices: at once where asked, interruptible, told as a table ---- */

/* One device and what came of it. */
struct cli_cell {
    struct nd_device device;
    char *path;            /* of its capture */
    bool is_kept;          /* is there already: not run */
    bool replace;          /* also without options.replace */
    enum nd_status status; /* of nd_capture_run */
    struct nd_error error;
    struct nd_capture_outcome outcome;
};

struct cli_fleet {
    const struct nd_model *model;
    const struct nd_probe *const *probes;
    size_t n_probes;
    struct nd_capture_options options; /* but for progress and cancelling, which the fleet sets */
    struct cli_cell *cells;
    size_t n_cells;
    size_t n_threads; /* devices of this machine at once; others run beside them */
    bool is_quiet;    /* no progress, no table */
    bool has_no_table;
    bool is_json;
    bool trusts_options; /* options of devices may name files and libraries; before cli_fleet_set_devices */
    bool is_resumable;   /* the command has --resume, which continues after Ctrl-C */
};

/* Makes a cell of every device that the URIs name, "adb:*" of every phone; a device on another machine that is
 * named twice is one, one of this machine is an error. After a failure the cells are good for cli_fleet_deinit
 * only. */
enum nd_status cli_fleet_set_devices(struct cli_fleet *fleet, const struct cli_list *uris,
                                     struct nd_error *err);

/* Captures on every device, shows progress, and prints the table. SIGINT and SIGTERM stop the agents and clean
 * up. The exit code. */
int cli_fleet_capture(struct cli_fleet *fleet);

/* Frees what the cells own. */
void cli_fleet_deinit(struct cli_fleet *fleet);

/* Of the cells whose captures are there: marks those that are complete as kept, with their outcome, and the
 * others as to be replaced. ND_E_FILE_EXISTS (ND_ERR_IO): a capture is complete, or holds samples, but of
 * something else than is asked for now; what nd_capture_open fails with. */
enum nd_status cli_resume(struct cli_fleet *fleet, struct nd_error *err);

/* Sets all of them. Errors: nd_model_set_dim. */
enum nd_status cli_set_dims(struct nd_model *model, const struct cli_list *dims, struct nd_error *err);

/* Loads the model, if a path is given, and sets them. *out: the model, which the caller destroys after a
 * failure, too; untouched without a path. Errors: nd_model_load, cli_set_dims. */
enum nd_status cli_model_load(const char *path, const struct cli_list *dims, struct nd_model **out,
                              struct nd_error *err);

/* The model of the first capture whose model is found (nd_capture_load_model), with the dimensions set; dims:
 * nullable. The message of ND_ERR_NOT_FOUND names the option --quantised. */
enum nd_status cli_captured_model(struct nd_capture *const *captures, size_t n, const struct cli_list *dims,
                                  struct nd_model **out, struct nd_error *err);

struct cli_probes {
    struct nd_probe **items;
    size_t n;
};

/* The probes given, or those of a command that was given none: zeros, ones, ramp, uniform. */
struct cli_list cli_probes_or_default(const struct cli_list *specs);

/* Makes the probes of the specs for the model's inputs; values that are not finite only where allowed. After a
 * failure, too, *out is good for cli_probes_deinit. Errors: nd_probes_for_model. */
enum nd_status cli_probes_make(const struct nd_model *model, const struct cli_list *specs, bool allow_nonfinite,
                               struct cli_probes *out, struct nd_error *err);
void cli_probes_deinit(struct cli_probes *probes);

struct cli_devices {
    struct nd_device *all;
    const struct nd_device **items; /* to each of all */
    size_t n;
};

/* After a failure, too, *out is good for cli_devices_deinit. Errors: nd_device_parse. */
enum nd_status cli_devices_parse(const struct cli_list *uris, struct cli_devices *out, struct nd_error *err);
void cli_devices_deinit(struct cli_devices *devices);

/* What a command runs. The options of cli_load_rows fill it, and rows of the command's own the texts. */
struct cli_load {
    const char *float_model, *agent;
    struct cli_list devices, probes, dims;
    size_t n_threads;
    bool allow_nonfinite;
};

/* Options that fill the member `load` of a command's struct: --allow-nonfinite, --dim, --threads, --agent. */
extern const struct cli_option cli_load_rows[];
#define OPT_LOAD(s) OPT_GROUP(s, load, struct cli_load, cli_load_rows)

struct cli_work {
    struct nd_model *model, *float_model; /* float_model: NULL without one */
    struct cli_probes probes;
    struct cli_devices devices;
};

/* Opens the model at `path`, whose dimensions must be fixed then, and all that `load` names. After a failure,
 * too, *out is good for cli_work_close. */
enum nd_status cli_work_open(const char *path, const struct cli_load *load, struct cli_work *out,
                             struct nd_error *err);
void cli_work_close(struct cli_work *work);

/* ---- the scales of a model that a command wrote, for other quantisers ---- */

struct cli_exports {
    const char *encodings, *overrides; /* files; NULL: not wanted */
    bool force;
};

/* Before anything is done: 0, or the exit code of what is wrong. output: the model that is going to be written;
 * NULL: none, then nothing can be exported. option: how it is asked for. */
int cli_check_exports(const char *command, const struct cli_exports *exports, const char *output,
                      const char *option);

/* Writes the files: 0, or the exit code of the error, which is reported. */
int cli_export_scales(const char *model, const struct cli_exports *exports);

/* ---- where captures and datasheets go: files named after their devices, in folders that are made for them
 * ---- */

/* Gives every cell the path "<folder>/<label><suffix>", where what a file name had better not hold becomes '-',
 * and digits follow where two labels would be one file. suffix: ".h5" or ".json". False when out of memory. */
bool cli_name_files(struct cli_fleet *fleet, const char *folder, const char *suffix);

/* Makes the folder and its parents; *n_old: how many bytes of the path are that of a folder that was there.
 * False, and said on stderr, when it cannot. */
bool cli_make_folder(const char *path, size_t *n_old);

/* "<folder>/<name>" in new memory; NULL when out of memory. */
char *cli_path_in(const char *folder, const char *name);

/* What cli_make_folder made goes again where nothing came into it. */
void cli_remove_empty_folder(const char *path, size_t n_old);
