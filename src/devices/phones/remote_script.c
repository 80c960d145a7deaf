#include "devices/phones/remote_script.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "devices/agent/confine.h"
#include "devices/phones/transport.h"

/* What is printed beyond that is dropped; the agent must not stop for it. */
enum { MAX_PRINTED = 8 << 20 };

char *nd_script_run(const char *folder, const char *agent, const char *libraries)
{
    struct nd_strbuf text = {0};
    nd_strbuf_puts(&text, "# Written by npudiff. Arguments: those of the agent.\ncd ");
    nd_shell_quote(&text, folder);
    nd_strbuf_puts(&text, " || exit 1\nlibraries=");
    nd_shell_quote(&text, libraries);
    nd_strbuf_puts(&text, "\nagent=");
    nd_shell_quote(&text, agent);
    const char *confine = getenv(ND_CONFINE_VARIABLE); /* the agent reads it there */
    if (confine != NULL && strcmp(confine, ND_CONFINE_OFF) == 0)
        nd_strbuf_puts(&text, "\nexport " ND_CONFINE_VARIABLE "=" ND_CONFINE_OFF);
    nd_strbuf_printf(
        &text,
        "\nulimit -c 0\n"
        "echo \"$$ $(cat /proc/sys/kernel/random/boot_id 2>/dev/null)\" > pid.part && mv pid.part pid\n"
        "{\n"
        "  LD_LIBRARY_PATH=\"$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}\" \\\n"
        "  ADSP_LIBRARY_PATH=\"$libraries;/system/lib/rfsa/adsp;/vendor/lib/rfsa/adsp;/dsp\" \\\n"
        "  sh -c 'echo $$ > agent.pid; cd work || exit 1; exec $NPUDIFF_LAUNCHER \"$0\" \"$@\"' \"$agent\" "
        "\"$@\"\n"
        "  echo $? > exit.part\n"
        "} < /dev/null 2>&1 | { head -c %d; cat > /dev/null; } >> stdout.txt\n"
        "mv exit.part exit\n",
        MAX_PRINTED);
    return nd_strbuf_take(&text);
}

/* "cd FOLDER", whose failure is up to what follows. */
static void enter(struct nd_strbuf *text, const char *folder)
{
    nd_strbuf_puts(text, "cd ");
    nd_shell_quote(text, folder);
}

/* The group of run.sh; where there is no setsid, its processes. A process id that a restart made another's is
 * not touched. */
static void add_stop(struct nd_strbuf *text)
{
    nd_strbuf_puts(text,
                   "if [ -f pid ]; then read p b < pid; a=; [ -f agent.pid ] && read a < agent.pid; "
                   /* A file that is not whole may hold 1, and -1 is everybody. */
                   "case $p in ''|*[!0-9]*|0|1) p=;; esac; case $a in *[!0-9]*|0|1) a=;; esac; "
                   "if [ -n \"$p\" ] && [ \"$b\" = \"$(cat /proc/sys/kernel/random/boot_id 2>/dev/null)\" ] && "
                   "[ ! -f exit ]; then kill -9 -$p $p $a 2>/dev/null; fi; fi; ");
}

char *nd_script_make(const char *folder)
{
    struct nd_strbuf text = {0};
    nd_strbuf_puts(&text, "if ");
    enter(&text, folder);
    nd_strbuf_puts(&text, " 2>/dev/null; then ");
    add_stop(&text);
    nd_strbuf_puts(&text, "cd /; fi; rm -rf ");
    nd_shell_quote(&text, folder);
    nd_strbuf_puts(&text, " && mkdir -p ");
    nd_shell_quote(&text, folder);
    nd_strbuf_puts(&text, "/work");
    return nd_strbuf_take(&text);
}

char *nd_script_revive(const char *folder)
{
    struct nd_strbuf text = {0};
    enter(&text, folder);
    nd_strbuf_puts(&text, " && { ");
    add_stop(&text);
    nd_strbuf_puts(&text, "rm -rf started pid agent.pid exit exit.part; }");
    return nd_strbuf_take(&text);
}

char *nd_script_start(const char *folder, bool is_resuming)
{
    struct nd_strbuf text = {0};
    enter(&text, folder);
    nd_strbuf_printf(&text,
                     " || exit 1; [ -d started ] && exit 0; mkdir started || exit 1; s=$(command -v setsid); "
                     "$s sh run.sh %s../job.nds spool.nds < /dev/null > /dev/null 2>&1 &",
                     is_resuming ? "--resume " : "");
    return nd_strbuf_take(&text);
}

char *nd_script_stop(const char *folder)
{
    struct nd_strbuf text = {0};
    enter(&text, folder);
    nd_strbuf_puts(&text, " 2>/dev/null || exit 0; ");
    add_stop(&text);
    nd_strbuf_puts(&text, ":");
    return nd_strbuf_take(&text);
}

char *nd_script_remove(const char *folder)
{
    struct nd_strbuf text = {0};
    nd_strbuf_puts(&text, "rm -rf ");
    nd_shell_quote(&text, folder);
    return nd_strbuf_take(&text);
}

/* Sets the variable `to` to how many bytes after the offset are sent now, of `from` in all. The arithmetic of
 * mksh, Android's shell, has 32 bits: millions and the rest are reckoned with apart. */
static void add_piece(struct nd_strbuf *text, char to, char from, uint64_t offset, size_t max)
{
    const uint64_t million = 1000000;
    assert(max < 1000 * million);
    nd_strbuf_printf(text,
                     "case $%c in ???????*) h=${%c%%??????}; l=1${%c#$h};; *) h=0; l=$((1000000+%c));; esac; "
                     "h=$((h-%llu)); if [ $h -gt 1000 ]; then %c=%zu; elif [ $h -lt -1 ]; then %c=0; else "
                     "%c=$((h*1000000+l-%llu)); [ $%c -gt %zu ] && %c=%zu; [ $%c -lt 0 ] && %c=0; fi; ",
                     from, from, from, from, (unsigned long long)(offset / million), to, max, to, to,
                     (unsigned long long)(million + offset % million), to, max, to, max, to, to);
}

char *nd_script_look(const char *folder, uint64_t spool_offset, size_t max_spool, uint64_t stdout_offset,
                     size_t max_stdout)
{
    struct nd_strbuf text = {0};
    enter(&text, folder);
    nd_strbuf_puts(
        &text,
        " 2>/dev/null || { echo none 0 0 0 0 0; exit 0; }; "
        "e=made; a=0; p=; b=; [ -f pid ] && read p b < pid; [ -f agent.pid ] && read a < agent.pid; "
        "if [ -f exit ]; then read e < exit; elif [ -n \"$p\" ]; then e=running; "
        /* A dead process may wait for ever for somebody to take note of it. */
        "s=$(cat /proc/$p/stat 2>/dev/null); case \"$s\" in ''|*') Z '*) e=dead;; esac; "
        "[ \"$b\" = \"$(cat /proc/sys/kernel/random/boot_id 2>/dev/null)\" ] || e=restarted; "
        "if [ $e != running ] && [ -f exit ]; then read e < exit; fi; fi; "
        "m=0; [ -r /proc/$a/statm ] && read x m y < /proc/$a/statm; "
        "m=${m:-0}; " /* it may be gone before it is read */
        "n=0; [ -f work/spool.nds ] && [ ! -L work/spool.nds ] && set -- $(wc -c < work/spool.nds) && n=$1; "
        "o=0; [ -f stdout.txt ] && set -- $(wc -c < stdout.txt) && o=$1; ");
    add_piece(&text, 'k', 'n', spool_offset, max_spool);
    add_piece(&text, 'j', 'o', stdout_offset, max_stdout);
    nd_strbuf_printf(&text,
                     "echo \"$e $m $n $o $k $j\"; "
                     "[ $k -gt 0 ] && { tail -c +%llu work/spool.nds | head -c $k; }; "
                     "[ $j -gt 0 ] && { tail -c +%llu stdout.txt | head -c $j; }; :",
                     (unsigned long long)spool_offset + 1, (unsigned long long)stdout_offset + 1);
    return nd_strbuf_take(&text);
}

bool nd_run_look_parse(const char *answer, size_t n, struct nd_run_look *out)
{
    static const struct {
        const char *word;
        enum nd_run_state state;
    } words[] = {{"none", ND_RUN_NONE},
                 {"made", ND_RUN_MADE},
                 {"running", ND_RUN_RUNNING},
                 {"dead", ND_RUN_DEAD},
                 {"restarted", ND_RUN_RESTARTED}};
    struct nd_run_look look = {.state = ND_RUN_ENDED};
    unsigned long long pages, spool_bytes, stdout_bytes;
    char word[16];
    const char *end = memchr(answer, '\n', n);
    if (end == NULL || sscanf(answer, "%15s %llu %llu %llu %zu %zu", word, &pages, &spool_bytes, &stdout_bytes,
                              &look.n_spool, &look.n_stdout) != 6)
        return false;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcmp(word, words[i].word) == 0)
            look.state = words[i].state;
    if (look.state == ND_RUN_ENDED && sscanf(word, "%d", &look.exit_code) != 1)
        return false;
    look.resident_pages = pages;
    look.spool_bytes = spool_bytes;
    look.stdout_bytes = stdout_bytes;
    look.bytes = end + 1;
    *out = look;
    return true;
}
