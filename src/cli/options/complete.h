/* Candidates for the completion of shells: `npudiff --complete KIND [FILE ...]`, which no help shows. The
 * scripts that tools/make_shell_files makes call it. */
#ifndef ND_CLI_COMPLETE_H
#define ND_CLI_COMPLETE_H

#include <stddef.h>

/* Prints the candidates of the kind, one per line: the word, a tab, what it is. Tensors and names of probes are
 * those of the first file that is a model or a capture. Nothing for what cannot be read, and never an error:
 * the person is typing. 0. */
int cli_complete(const char *kind, const char *const *files, size_t n_files);

#endif
