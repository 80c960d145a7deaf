/* What a process has started, and what that has started: by /proc of Linux; elsewhere there is nothing. */
#include "core/files/file.h"
#include "core/processes/process.h"

#include <dirent.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifdef __linux__
#include <sys/prctl.h>
#endif

enum { MAX_DEPTH = 64 }; /* chosen: beyond it somebody starts processes to hide */

struct visit {
    void (*call)(void *context, pid_t pid);
    void *context;
};

static void visit_below(const struct visit *visit, pid_t parent, int depth);

static void visit_children(const struct visit *visit, const char *list, int depth)
{
    long child;
    FILE *children = fopen(list, "re");
    while (children != NULL && fscanf(children, "%ld", &child) == 1) {
        visit->call(visit->context, (pid_t)child);
        visit_below(visit, (pid_t)child, depth + 1);
    }
    nd_stdio_close(&children);
}

/* Each thread has its own children. */
static void visit_below(const struct visit *visit, pid_t parent, int depth)
{
    char path[400];
    snprintf(path, sizeof path, "/proc/%ld/task", (long)parent);
    DIR *threads = depth < MAX_DEPTH ? opendir(path) : NULL;
    for (struct dirent *thread = NULL; threads != NULL && (thread = readdir(threads)) != NULL;) {
        snprintf(path, sizeof path, "/proc/%ld/task/%s/children", (long)parent, thread->d_name);
        if (thread->d_name[0] != '.')
            visit_children(visit, path, depth);
    }
    nd_dir_close(&threads);
}

void nd_process_tree_visit(pid_t root, void (*visit)(void *context, pid_t pid), void *context)
{
    visit_below(&(struct visit){visit, context}, root, 0);
}

void nd_process_tree_keep(void)
{
#ifdef PR_SET_CHILD_SUBREAPER
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
#endif
}

static void kill_one(void *context, pid_t pid)
{
    bool *has_any = context;
    *has_any = kill(pid, SIGKILL) == 0 || *has_any;
}

void nd_process_tree_kill(pid_t root)
{
    enum {
        ROUNDS = 50
    }; /* of 2 ms: chosen. A process that was killed is found until its parent has waited for it */
    bool has_any = true;
    for (int i = 0; i < ROUNDS && has_any; i++) {
        has_any = false;
        nd_process_tree_visit(root, kill_one, &has_any);
        if (has_any)
            nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
        while (root == getpid() && waitpid(-1, NULL, WNOHANG) > 0) /* those that came under this process */
            ;
    }
}
