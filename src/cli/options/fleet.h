/* Capturing one model on several devices: at once where asked, interruptible, told as a table. */
#pragma once

#include <stdbool.h>

#include "cli/options/help.h"
#include "npudiff/devices/device.h"

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
