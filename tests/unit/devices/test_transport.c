#include "support/main.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "core/tensors/sha256.h"
#include "devices/phones/transport.h"
#include "support/scratch.h"

/* `sh` on this machine, and for what only a tool can do wrong a stand-in of ssh: a script that gets the words
 * that ssh would get, runs the command here and then does to its outputs what a link does that breaks. */
static struct nd_capture_options options;

static struct nd_transport *open_kind(enum nd_transport_kind kind, const char *address)
{
    struct nd_transport *transport = NULL;
    struct nd_error err = {0};
    nd_capture_options_init(&options);
    options.link_limit_s = 1;
    expect_ok(nd_transport_open(kind, address, &options, &transport, &err), &err);
    return transport;
}

static void write_program(const char *path, const char *text)
{
    assert_int_equal(nd_file_put(path, text, strlen(text), NULL), ND_OK);
    assert_int_equal(chmod(path, 0700), 0);
}

/* Makes $NPUDIFF_SSH a script; the last of its words is the command. */
static void stand_in_for_ssh(const char *body)
{
    char *path = in_folder("ssh");
    char text[4096];
    snprintf(text, sizeof text,
             "#!/bin/sh\n# A stand-in for ssh.\nhere=$(dirname \"$0\")\nfor c in \"$@\"; do :; done\n"
             "case $1 in -G) [ ! -f \"$here/settings\" ] || cat \"$here/settings\"; exit 0;; "
             "-O) echo \"$@\" >> \"$here/left\"; exit 0;; esac\n%s\n",
             body);
    write_program(path, text);
    setenv("NPUDIFF_SSH", path, 1);
    free(path);
}

static void check_command(struct nd_transport *transport, const char *text, int exit_code, const char *out,
                          const char *errors)
{
    struct nd_remote_reply reply = {0};
    struct nd_error err = {0};
    expect_ok(nd_transport_run_once(transport, &(struct nd_remote_command){.text = text}, &reply, &err), &err);
    assert_int_equal(reply.exit_code, exit_code);
    assert_string_equal(reply.out, out);
    assert_string_equal(reply.errors, errors);
    nd_remote_reply_deinit(&reply);
}

static void commands_give_exit_code_and_both_outputs(void **state)
{
    (void)state;
    struct nd_transport *sh = open_kind(ND_TRANSPORT_NONE, NULL);
    check_command(sh, "echo a; echo b >&2; exit 5", 5, "a\n", "b\n");
    check_command(sh, "true", 0, "", "");
    check_command(sh, "printf x >&2; false", 1, "", "x");
    check_command(sh, "sh -c 'kill -9 $$'", 137, "", "Killed\n");
    nd_transport_close(&sh);
    assert_null(sh);
}

static void words_are_quoted_whatever_they_hold(void **state)
{
    (void)state;
    static const char *const words[] = {"",
                                        "plain",
                                        "two words",
                                        "it's",
                                        "'",
                                        "''",
                                        "\"$HOME\" `id` \\ !x; rm -rf *",
                                        "a\nb",
                                        "\303\274ml\303\244ut \360\237\223\261",
                                        "-n",
                                        "~",
                                        "'a'b'"};
    struct nd_transport *sh = open_kind(ND_TRANSPORT_NONE, NULL);
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        struct nd_strbuf text = {0};
        nd_strbuf_puts(&text, "printf '%s.' ");
        nd_shell_quote(&text, words[i]);
        char *command = nd_strbuf_take(&text), expected[200];
        snprintf(expected, sizeof expected, "%s.", words[i]);
        check_command(sh, command, 0, expected, "");
        free(command);
    }
    nd_transport_close(&sh);
}

static void a_login_that_talks_is_not_heard(void **state)
{
    (void)state;
    stand_in_for_ssh("echo 'Welcome to the board'; printf 'no newline'; exec sh -c \"$c\"");
    struct nd_transport *ssh = open_kind(ND_TRANSPORT_SSH, "board");
    check_command(ssh, "echo a; exit 2", 2, "a\n", "");
    check_command(ssh, "exit 2", 2, "", "");
    nd_transport_close(&ssh);
}

/* A command that ends in the middle of the link is told from one that fails. */
static void check_lost(struct nd_transport *transport, const char *text, const char *out)
{
    struct nd_remote_reply reply = {0};
    struct nd_error err = {0};
    assert_int_equal(nd_transport_run_once(transport, &(struct nd_remote_command){.text = text}, &reply, &err),
                     ND_ERR_DEVICE);
    assert_int_equal(err.id, ND_E_LINK_LOST);
    assert_string_equal(reply.out, out);
    assert_int_equal(reply.exit_code, -1);
    nd_remote_reply_deinit(&reply);
}

static void a_broken_link_never_looks_like_a_failed_command(void **state)
{
    (void)state;
    stand_in_for_ssh("if [ -f \"$here/break\" ]; then . \"$here/break\"; else exec sh -c \"$c\"; fi");
    char *how = in_folder("break");
    struct nd_transport *ssh = open_kind(ND_TRANSPORT_SSH, "board");
    check_command(ssh, "echo whole; exit 3", 3, "whole\n", "");
    /* ssh's own exit code, and adb's; a success that nobody confirms; a trailer cut off within its number. */
    static const char *const breaks[] = {"sh -c \"$c\" 2>/dev/null; exit 255",
                                         "sh -c \"$c\" 2>/dev/null; exit 1", "sh -c \"$c\" 2>/dev/null; exit 0",
                                         "sh -c \"$c\" 2>&1 >&3 3>&- | head -c 27 >&2; exit 3"};
    for (size_t i = 0; i < sizeof breaks / sizeof breaks[0]; i++) {
        char text[300];
        snprintf(text, sizeof text, "exec 3>&1; %s", breaks[i]);
        assert_int_equal(nd_file_put(how, text, strlen(text), NULL), ND_OK);
        check_lost(ssh, "echo whole; exit 3", "whole\n");
    }
    /* The trailer came, but the tool says that standard output did not come to its end. */
    static const char late[] = "sh -c \"$c\" | head -c 27; exit 255";
    assert_int_equal(nd_file_put(how, late, strlen(late), NULL), ND_OK);
    check_lost(ssh, "echo whole; exit 0", "wh");
    unlink(how);
    check_command(ssh, "echo whole; exit 3", 3, "whole\n", "");
    nd_transport_close(&ssh);
    free(how);
}

static void a_link_that_comes_back_is_used_again(void **state)
{
    (void)state;
    /* The second command loses its link: the first is that of opening. */
    stand_in_for_ssh("n=$(cat \"$here/n\" 2>/dev/null || echo 0); echo $((n+1)) > \"$here/n\"\n"
                     "if [ $n = 1 ]; then echo 'Connection closed' >&2; exit 255; fi\n"
                     "exec sh -c \"$c\"");
    struct nd_transport *ssh = open_kind(ND_TRANSPORT_SSH, "board");
    struct nd_remote_reply reply = {0};
    struct nd_error err = {0};
    expect_ok(nd_transport_shell(ssh, "echo again", &reply, &err), &err);
    assert_string_equal(reply.out, "again\n");
    assert_int_equal(ssh->traffic.n_lost, 1);
    nd_remote_reply_deinit(&reply);
    nd_transport_close(&ssh);
}

static void a_link_that_stays_away_is_given_up(void **state)
{
    (void)state;
    stand_in_for_ssh(
        "[ -f \"$here/down\" ] && { echo 'connect to host board port 22: No route' >&2; exit 255; }\n"
        "exec sh -c \"$c\"");
    char *down = in_folder("down");
    struct nd_error err = {0};
    struct nd_transport *ssh = open_kind(ND_TRANSPORT_SSH, "board");
    assert_int_equal(nd_file_put(down, "", 0, NULL), ND_OK);
    uint64_t begun = nd_clock_ns();
    assert_int_equal(nd_transport_shell(ssh, "echo", NULL, &err), ND_ERR_DEVICE);
    assert_int_equal(err.id, ND_E_LINK_LOST);
    assert_non_null(strstr(err.message, "the link to 'ssh:board' was lost and did not come back within 1 s: "));
    assert_non_null(strstr(err.message, "No route"));
    assert_true(nd_clock_ns() - begun < 10u * 1000000000u);
    ssh->link_limit_s = 0;
    assert_int_equal(nd_transport_shell(ssh, "echo", NULL, &err), ND_ERR_DEVICE);
    assert_int_equal(err.id, ND_E_LINK_LOST);
    nd_transport_close(&ssh);
    /* From the start it is the machine that cannot be reached. */
    assert_int_equal(nd_transport_open(ND_TRANSPORT_SSH, "board", &options, &ssh, &err), ND_ERR_DEVICE);
    assert_int_equal(err.id, ND_E_DEVICE_CONNECT);
    free(down);
}

static void a_command_that_does_not_answer_is_a_lost_link(void **state)
{
    (void)state;
    struct nd_transport *sh = open_kind(ND_TRANSPORT_NONE, NULL);
    struct nd_remote_reply reply = {0};
    struct nd_error err = {0};
    const struct nd_remote_command command = {.text = "echo early; sleep 60", .time_limit_s = 2};
    assert_int_equal(nd_transport_run_once(sh, &command, &reply, &err), ND_ERR_DEVICE);
    assert_int_equal(err.id, ND_E_LINK_LOST);
    assert_non_null(strstr(err.message, "no answer in time"));
    assert_string_equal(reply.out, "early\n");
    nd_remote_reply_deinit(&reply);
    nd_transport_close(&sh);
}

static void endless_output_is_cut(void **state)
{
    (void)state;
    struct nd_transport *sh = open_kind(ND_TRANSPORT_NONE, NULL);
    struct nd_remote_reply reply = {0};
    struct nd_error err = {0};
    const struct nd_remote_command command = {.text = "yes", .stdout_limit_bytes = 5000};
    expect_ok(nd_transport_run_once(sh, &command, &reply, &err), &err);
    assert_true(reply.is_truncated);
    assert_int_equal(reply.exit_code, -1);
    assert_int_equal(reply.out_bytes, 5000);
    nd_remote_reply_deinit(&reply);
    assert_int_equal(nd_transport_shell(sh, "yes", NULL, &err), ND_ERR_DEVICE);
    assert_int_equal(err.id, ND_E_DEVICE_COMMAND);
    nd_transport_close(&sh);
}

#define SSH_OPTIONS                                                                                            \
    "-T\n-oBatchMode=yes\n-oConnectTimeout=10\n-oServerAliveInterval=5\n-oServerAliveCountMax=3\n"
#define SSH_SHARED "-oControlMaster=auto\n-oControlPath=SOCKET\n-oControlPersist=30\n"

/* The words that ssh got without the last, the command; the path of the socket, which differs each time, as
 * SOCKET. */
static char *words_of_ssh(const char *address)
{
    char *words = in_folder("words");
    void *text = NULL;
    size_t n = 0;
    struct nd_transport *ssh = open_kind(ND_TRANSPORT_SSH, address);
    struct nd_strbuf seen = {0};
    assert_int_equal(nd_file_read(words, 10000, &text, &n, NULL), ND_OK);
    char *path = ssh->shared_folder != NULL ? strstr(text, ssh->shared_folder) : NULL;
    if (path != NULL)
        nd_strbuf_printf(&seen, "%.*sSOCKET%s", (int)(path - (char *)text), (char *)text, strchr(path, '\n'));
    else
        nd_strbuf_puts(&seen, text);
    nd_transport_close(&ssh);
    free(text);
    free(words);
    return nd_strbuf_take(&seen);
}

static void record_words(void)
{
    stand_in_for_ssh(
        "for w in \"$@\"; do echo \"$w\"; done | head -n $(($# - 1)) > \"$here/words\"; exec sh -c \"$c\"");
}

static void ssh_gets_host_and_port_and_never_asks(void **state)
{
    (void)state;
    record_words();
    static const char *const addresses[][2] = {
        {"me@board", SSH_OPTIONS SSH_SHARED "--\nme@board\n"},
        {"board:2222", SSH_OPTIONS "-p\n2222\n" SSH_SHARED "--\nboard\n"},
        {"::1", SSH_OPTIONS SSH_SHARED "--\n::1\n"},
        {"-oProxyCommand=x", SSH_OPTIONS SSH_SHARED "--\n-oProxyCommand=x\n"},
    };
    for (size_t i = 0; i < sizeof addresses / sizeof addresses[0]; i++) {
        char *seen = words_of_ssh(addresses[i][0]);
        assert_string_equal(seen, addresses[i][1]);
        free(seen);
    }
}

static void a_connection_that_the_user_shares_is_left_to_ssh(void **state)
{
    (void)state;
    static const struct {
        const char *settings, *words;
    } known[] = {
        {"host board\ncontrolpath /home/me/.ssh/m-%C\nport 22\n", SSH_OPTIONS "--\nboard\n"},
        {"host board\ncontrolpath none\nport 22\n", SSH_OPTIONS SSH_SHARED "--\nboard\n"},
    };
    char *settings = in_folder("settings");
    record_words();
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        assert_int_equal(nd_file_put(settings, known[i].settings, strlen(known[i].settings), NULL), ND_OK);
        char *seen = words_of_ssh("board");
        assert_string_equal(seen, known[i].words);
        free(seen);
    }
    unlink(settings);
    free(settings);
}

/* ssh ends with an error where it cannot make its socket: then every command logs in, as without. */
static void where_no_socket_can_be_every_command_logs_in(void **state)
{
    (void)state;
    static const char *const names[] = {("a-folder-whose-name-is-so-long-that-no-socket-in-it-has-a-path-that-"
                                         "fits-into-an-address-of-unix-domain"),
                                        "100%", "two words"};
    const char *before = getenv("TMPDIR");
    char *kept = before != NULL ? strdup(before) : NULL;
    record_words();
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char *place = in_folder(names[i]);
        assert_int_equal(nd_dir_make(place, NULL), ND_OK);
        setenv("TMPDIR", place, 1);
        char *seen = words_of_ssh("board");
        assert_string_equal(seen, SSH_OPTIONS "--\nboard\n");
        free(seen);
        assert_int_equal(rmdir(place), 0); /* nothing is left in it */
        free(place);
    }
    if (kept != NULL)
        setenv("TMPDIR", kept, 1);
    else
        unsetenv("TMPDIR");
    free(kept);
}

static void the_shared_connection_ends_with_the_transport(void **state)
{
    (void)state;
    void *text = NULL;
    size_t n = 0;
    char *left = in_folder("left"), expected[300];
    unlink(left);
    record_words();
    struct nd_transport *ssh = open_kind(ND_TRANSPORT_SSH, "board:2222");
    char *place = strdup(ssh->shared_folder);
    struct stat info;
    assert_int_equal(stat(place, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0700);
    assert_int_not_equal(access(left, F_OK), 0);
    nd_transport_close(&ssh);
    assert_int_not_equal(access(place, F_OK), 0);
    assert_int_equal(nd_file_read(left, 10000, &text, &n, NULL), ND_OK);
    snprintf(expected, sizeof expected, "-O exit -oControlPath=%s/m -p 2222 -- board\n", place);
    assert_string_equal(text, expected);
    free(text);
    free(place);
    free(left);
}

static void tools_that_are_missing_are_named(void **state)
{
    (void)state;
    struct nd_transport *transport = NULL;
    struct nd_error err = {0};
    struct nd_adb_devices devices;
    nd_capture_options_init(&options);
    setenv("NPUDIFF_ADB", "/no/such/adb", 1);
    setenv("NPUDIFF_SSH", "/no/such/ssh", 1);
    assert_int_equal(nd_transport_open(ND_TRANSPORT_ADB, "S", &options, &transport, &err), ND_ERR_IO);
    assert_int_equal(err.id, ND_E_TRANSPORT_TOOL);
    assert_non_null(strstr(err.message, "/no/such/adb"));
    assert_non_null(strstr(err.message, "apt install adb"));
    assert_int_equal(nd_adb_devices_list(NULL, &devices, &err), ND_ERR_IO);
    assert_int_equal(err.id, ND_E_TRANSPORT_TOOL);
    assert_int_equal(nd_transport_open(ND_TRANSPORT_SSH, "h", &options, &transport, &err), ND_ERR_IO);
    assert_int_equal(err.id, ND_E_TRANSPORT_TOOL);
    assert_non_null(strstr(err.message, "/no/such/ssh"));
    assert_null(transport);
}

/* What adb prints, by a stand-in. */
static void stand_in_for_adb(const char *devices)
{
    char *path = in_folder("adb");
    char text[2048];
    snprintf(text, sizeof text, "#!/bin/sh\n# A stand-in for adb.\ncat <<'END'\n%s\nEND\n", devices);
    write_program(path, text);
    setenv("NPUDIFF_ADB", path, 1);
    free(path);
}

static void phones_are_listed_in_every_state(void **state)
{
    (void)state;
    static const char *const expected[][3] = {{"R5CX10ABCDE", "device", "SM_S928B"},
                                              {"localhost:6501", "offline", ""},
                                              {"0123456789ABCDEF", "unauthorized", ""},
                                              {"????????????", "no permissions", ""},
                                              {"HT7", "bootloader", ""}};
    stand_in_for_adb(
        "* daemon not running; starting now at tcp:5037\n* daemon started successfully\n"
        "List of devices attached\n"
        "R5CX10ABCDE            device usb:1-2 product:e3q model:SM_S928B device:e3q transport_id:4\n"
        "localhost:6501         offline transport_id:5\n"
        "0123456789ABCDEF       unauthorized usb:1-3 transport_id:6\n"
        "????????????           no permissions (user in plugdev group; are your udev rules wrong?); see "
        "[http://developer.android.com/tools/device.html] usb:1-4 transport_id:7\n"
        "HT7\tbootloader\n");
    struct nd_adb_devices devices = {0};
    struct nd_error err = {0};
    expect_ok(nd_adb_devices_list(NULL, &devices, &err), &err);
    assert_int_equal(devices.n, 5);
    for (size_t i = 0; i < devices.n; i++) {
        assert_string_equal(devices.items[i].serial, expected[i][0]);
        assert_string_equal(devices.items[i].state, expected[i][1]);
        assert_string_equal(devices.items[i].model, expected[i][2]);
        assert_int_equal(nd_adb_state_trouble(devices.items[i].state) == NULL, i == 0);
    }
    static const char *const why[][2] = {{"localhost:65", "there is no phone 'localhost:65'"},
                                         {"0123456789ABCDEF", "accept the dialog"},
                                         {"????????????", "udev"},
                                         {"nobody", "adb knows R5CX10ABCDE, localhost:6501, 0123456789ABCDEF"}};
    for (size_t i = 1; i < sizeof why / sizeof why[0]; i++) {
        struct nd_transport *adb = NULL;
        nd_capture_options_init(&options);
        assert_int_equal(nd_transport_open(ND_TRANSPORT_ADB, why[i][0], &options, &adb, &err), ND_ERR_DEVICE);
        assert_int_equal(err.id, ND_E_DEVICE_CONNECT);
        assert_non_null(strstr(err.message, why[i][1]));
    }
    nd_adb_devices_deinit(&devices);
}

/* ---- files ---- */

static void push(struct nd_transport *transport, const char *local, const char *remote)
{
    char hex[ND_SHA256_HEX_BYTES];
    struct nd_error err = {0};
    assert_int_equal(nd_sha256_file(local, hex, NULL), ND_OK);
    expect_ok(nd_transport_push(transport, local, hex, remote, false, &err), &err);
}

static void check_same(const char *a, const char *b)
{
    void *x = NULL, *y = NULL;
    size_t n = 0, m = 0;
    assert_int_equal(nd_file_read(a, (size_t)1 << 30, &x, &n, NULL), ND_OK);
    assert_int_equal(nd_file_read(b, (size_t)1 << 30, &y, &m, NULL), ND_OK);
    assert_int_equal(n, m);
    assert_memory_equal(x, y, n);
    free(x);
    free(y);
}

static char *write_noise(const char *name, size_t n)
{
    char *path = in_folder(name);
    unsigned char *bytes = malloc(n + 1);
    assert_non_null(bytes);
    for (size_t i = 0; i < n; i++)
        bytes[i] = (unsigned char)((i * 2654435761u) >> 13);
    assert_int_equal(nd_file_put(path, bytes, n, NULL), ND_OK);
    free(bytes);
    return path;
}

static void check_files(struct nd_transport *transport)
{
    static const size_t sizes[] = {0, 1, 65536, 3000001};
    static const char *const names[] = {"plain", "two words", "it's \"quoted\" $HOME",
                                        "\346\251\237\346\242\260 \303\266"};
    for (size_t i = 0; i < 4; i++) {
        char *local = write_noise("local", sizes[i]), *there = in_folder(names[i]);
        push(transport, local, there);
        check_same(local, there);
        unlink(local);
        free(local);
        free(there);
    }
}

static void files_arrive_as_they_were(void **state)
{
    (void)state;
    struct nd_transport *sh = open_kind(ND_TRANSPORT_NONE, NULL);
    check_files(sh);
    nd_transport_close(&sh);
    stand_in_for_ssh("exec sh -c \"$c\"");
    struct nd_transport *ssh = open_kind(ND_TRANSPORT_SSH, "board");
    check_files(ssh);
    nd_transport_close(&ssh);
}

static void a_file_that_is_cut_on_its_way_is_sent_again(void **state)
{
    (void)state;
    /* The first file loses its end, and the command succeeds. */
    stand_in_for_ssh(
        "case \"$c\" in *'cat >'*) if [ ! -f \"$here/done\" ]; then touch \"$here/done\"; head -c 1000 | sh -c "
        "\"$c\"; exit; fi;; esac; exec sh -c \"$c\"");
    struct nd_transport *ssh = open_kind(ND_TRANSPORT_SSH, "board");
    char *local = write_noise("local", 50000), *there = in_folder("there");
    push(ssh, local, there);
    check_same(local, there);
    assert_int_equal(ssh->traffic.bytes_sent, 100000);
    nd_transport_close(&ssh);
    free(local);
    free(there);
}

static void a_file_that_cannot_be_put_says_why(void **state)
{
    (void)state;
    struct nd_transport *sh = open_kind(ND_TRANSPORT_NONE, NULL);
    char hex[ND_SHA256_HEX_BYTES];
    struct nd_error err = {0};
    char *local = write_noise("local", 50000), *there = in_folder("none/there");
    assert_int_equal(nd_sha256_file(local, hex, NULL), ND_OK);
    assert_int_equal(nd_transport_push(sh, local, hex, there, false, &err), ND_ERR_DEVICE);
    assert_int_equal(err.id, ND_E_DEVICE_PUSH);
    assert_non_null(strstr(err.message, "cannot put 'local' on 'sh:this machine'"));
    if (access("/dev/full", W_OK) == 0) {
        assert_int_equal(nd_transport_push(sh, local, hex, "/dev/full/x", false, &err), ND_ERR_DEVICE);
        assert_int_equal(err.id, ND_E_DEVICE_PUSH);
    }
    assert_int_equal(nd_transport_push(sh, "/no/such/file", hex, there, false, &err), ND_ERR_IO);
    nd_transport_close(&sh);
    free(local);
    free(there);
}

struct pusher {
    const char *local, *there;
    enum nd_status status;
    struct nd_error err;
};

static void *push_often(void *context)
{
    struct pusher *pusher = context;
    struct nd_capture_options own;
    struct nd_transport *sh = NULL;
    char hex[ND_SHA256_HEX_BYTES];
    nd_capture_options_init(&own);
    pusher->status = nd_transport_open(ND_TRANSPORT_NONE, NULL, &own, &sh, &pusher->err);
    if (pusher->status == ND_OK)
        pusher->status = nd_sha256_file(pusher->local, hex, &pusher->err);
    for (int i = 0; i < 10 && pusher->status == ND_OK; i++)
        pusher->status = nd_transport_push(sh, pusher->local, hex, pusher->there, false, &pusher->err);
    nd_transport_close(&sh);
    return NULL;
}

/* Two devices on one phone, or two hosts, that need the same library. */
static void files_sent_twice_at_once_do_not_meet(void **state)
{
    (void)state;
    char *local = write_noise("local", 2000000), *there = in_folder("there");
    struct pusher pushers[2] = {{.local = local, .there = there}, {.local = local, .there = there}};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, push_often, &pushers[i]), 0);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 2; i++)
        expect_ok(pushers[i].status, &pushers[i].err);
    check_same(local, there);
    free(local);
    free(there);
}

static void what_a_machine_says_does_not_steer_the_terminal(void **state)
{
    (void)state;
    char line[40];
    nd_transport_last_line("a\n\033[2Jb\tc\n\n", line, sizeof line);
    assert_string_equal(line, " [2Jb c");
}

int main(void)
{
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(commands_give_exit_code_and_both_outputs),
        cmocka_unit_test(words_are_quoted_whatever_they_hold),
        IN_FOLDER(a_login_that_talks_is_not_heard),
        IN_FOLDER(a_broken_link_never_looks_like_a_failed_command),
        IN_FOLDER(a_link_that_comes_back_is_used_again),
        IN_FOLDER(a_link_that_stays_away_is_given_up),
        cmocka_unit_test(a_command_that_does_not_answer_is_a_lost_link),
        cmocka_unit_test(endless_output_is_cut),
        IN_FOLDER(ssh_gets_host_and_port_and_never_asks),
        IN_FOLDER(a_connection_that_the_user_shares_is_left_to_ssh),
        IN_FOLDER(where_no_socket_can_be_every_command_logs_in),
        IN_FOLDER(the_shared_connection_ends_with_the_transport),
        cmocka_unit_test(tools_that_are_missing_are_named),
        IN_FOLDER(phones_are_listed_in_every_state),
        IN_FOLDER(files_arrive_as_they_were),
        IN_FOLDER(a_file_that_is_cut_on_its_way_is_sent_again),
        IN_FOLDER(a_file_that_cannot_be_put_says_why),
        IN_FOLDER(files_sent_twice_at_once_do_not_meet),
        cmocka_unit_test(what_a_machine_says_does_not_steer_the_terminal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
