/* How npudiff and npudiff-lab begin and end. */
#pragma once

/* What main returns: the exit code of run, or that of an error that came before or after it. */
int cli_program(int argc, char **argv, int (*run)(int argc, char **argv));

/* The memory of JSON trees. libjansson 2.14 writes beyond a text that it reads when the buffer of the text
 * cannot grow, and it drops what it cannot store. So it never sees an allocation fail. */

/* From now on, libjansson gets a block of a small reserve when there is no other memory. Each time, `lost` is
 * called, from any thread: the command goes on, and must end as one that failed. When no block is large enough,
 * the process ends with a message on standard error and exit code 2. Before the first tree; again, it fills the
 * reserve.
 */
void cli_reserve_json_memory(void (*lost)(void));
