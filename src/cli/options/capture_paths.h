/* Where captures and datasheets go: files named after their devices, in folders that are made for them. */
#ifndef ND_CLI_CAPTURE_PATHS_H
#define ND_CLI_CAPTURE_PATHS_H

#include "cli/options/fleet.h"

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

#endif
