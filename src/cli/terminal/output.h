/* Files that a command reads or writes itself. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* nd_document_write. 0, or exit code 2 with the reason on stderr. */
int cli_write_text(const char *path, const char *text, bool replace);

/* What would stop the writing at the end, found before anything runs: 0 when the file can be made there, else 2
 * with the reason on stderr. With is_forced a regular file that exists is replaced. remedy says what helps
 * where it exists: "--force overwrites it". */
int cli_check_output(const char *path, bool is_forced, const char *remedy);

/* What the command reads. cli_check_output refuses it, and what it has checked before, by whatever path. */
void cli_note_file(const char *path);

/* The same for cli_write_text, which can also write into a pipe or a device such as /dev/stdout. */
int cli_check_text_output(const char *path, bool is_forced, const char *remedy);

/* The same for a folder that is made, and replaced, as a whole. What may be replaced is for those to say who
 * made it.
 */
int cli_check_output_folder(const char *path, bool is_forced, const char *remedy);

/* The first bytes of a regular file, at most n_bytes; how many there are. 0 for everything else: what is read
 * from a pipe is lost to whoever reads it then. */
size_t cli_peek(const char *path, char *start, size_t n_bytes);

/* The file begins as HDF5 does. Needs no memory: a capture must not be taken for a text because there is none.
 */
bool cli_is_hdf5(const char *path);

/* Whether text ends in `end`, such as ".h5". */
bool cli_ends_with(const char *text, const char *end);

/* The path without its folders. */
const char *cli_file_name(const char *path);
