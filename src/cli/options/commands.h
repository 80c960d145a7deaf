/* The commands, one file each (cmd_<name>.c). */
#pragma once

#include "cli/options/help.h"

extern const struct cli_command cmd_align;
extern const struct cli_command cmd_capture;
extern const struct cli_command cmd_compare;
extern const struct cli_command cmd_devices;
extern const struct cli_command cmd_encodings;
extern const struct cli_command cmd_explain;
extern const struct cli_command cmd_export;
extern const struct cli_command cmd_golden;
extern const struct cli_command cmd_import;
extern const struct cli_command cmd_info;
extern const struct cli_command cmd_init;
extern const struct cli_command cmd_latency;
extern const struct cli_command cmd_lint;
extern const struct cli_command cmd_logs;
extern const struct cli_command cmd_placement;
extern const struct cli_command cmd_prepare;
extern const struct cli_command cmd_probes;
extern const struct cli_command cmd_promote;
extern const struct cli_command cmd_qualify;
extern const struct cli_command cmd_reduce;
extern const struct cli_command cmd_report;
extern const struct cli_command cmd_run;
extern const struct cli_command cmd_runtimes;
extern const struct cli_command cmd_sweep;
extern const struct cli_command cmd_triage;
extern const struct cli_command cmd_twin;
extern const struct cli_command cmd_verify;
