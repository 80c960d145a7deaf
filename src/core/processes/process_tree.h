/* What a process has started, and what that has started. Known on Linux, by /proc; elsewhere there is nothing.
 */
#ifndef ND_BASE_PROCESS_TREE_H
#define ND_BASE_PROCESS_TREE_H

#include <sys/types.h>

/* Every process below root, those that were started first before what they have started. */
void nd_process_tree_visit(pid_t root, void (*visit)(void *context, pid_t pid), void *context);

/* From now on processes below this one whose parent ends come under this one, and so are found. */
void nd_process_tree_keep(void);

/* Kills every process below root, also those that start while it looks. Root itself stays. Where root is this
 * process, all its children are waited for: nobody else may wait for one. */
void nd_process_tree_kill(pid_t root);

#endif
