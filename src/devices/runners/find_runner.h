/* Where the programs are that run models for npudiff (docs/reference/runner.md): npudiff-runner-NAME in the
 * folders of runners or in $PATH. A URI may come from a stranger's campaign, so that a name is all that it can
 * say: it has no '/', and folders of $PATH that are not absolute do not count. */
#pragma once

#include <stdbool.h>

#include "core/error.h"

/* Small letters, digits, '-' and '_', the first a letter or digit; at most 64. */
bool nd_runner_is_name(const char *text);

/* The full path of the runner called `name`, in new memory. ND_E_RUNNER_MISSING: there is none (the message
 * lists those there are); ND_E_RUNNER_START: its file may not be executed. */
enum nd_status nd_runner_find(const char *name, char **path, struct nd_error *err);

/* The same for a path, from which its name follows: *name and *path are in new memory. */
enum nd_status nd_runner_use_path(const char *file, char **name, char **path, struct nd_error *err);
