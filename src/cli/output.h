/* Files that a command reads or writes itself. */
#ifndef ND_CLI_OUTPUT_H
#define ND_CLI_OUTPUT_H

#include <stdbool.h>

/* Writes the text under a temporary name first: the file is whole or not there. With replace false one that
 * exists stays, and that is an error. 0, or exit code 2 with the reason on stderr. */
int cli_write_text(const char *path, const char *text, bool replace);

/* The file begins as HDF5 does. Needs no memory: a capture must not be taken for a text because there is none.
 */
bool cli_is_hdf5(const char *path);

#endif
