/* How a run elsewhere is, and the copy of its spool that grows here. */
#include "devices/phones/remote_session.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/files/file.h"
#include "core/memory.h"

enum { MAX_SPOOL_PIECE = 4 << 20, MAX_STDOUT_PIECE = 256 << 10, MAX_HEAD = 4096 };

/* The copy begins anew, as the spool there does. */
static enum nd_status forget_copy(struct nd_remote_session *session, struct nd_error *err)
{
    if (ftruncate(session->spool_fd, 0) != 0)
        return nd_fail(err, ND_E_FILE_WRITE, session->spool, "cannot cut '%s': %s", session->spool,
                       strerror(errno));
    session->spool_bytes = 0;
    nd_spool_follower_close(&session->watch.follower);
    session->watch.follower = (struct nd_spool_follower){.fd = -1};
    session->watch.samples_before = 0;
    session->watch.samples_probe = 0;
    return ND_OK;
}

/* Takes over what came, also of an answer that broke off: bytes of a spool never change. */
static enum nd_status take_bytes(struct nd_remote_session *session, const char *answer, size_t n,
                                 struct nd_error *err)
{
    const struct nd_run_look *look = &session->look;
    size_t left = n - (size_t)(look->bytes - answer);
    size_t n_spool = look->n_spool < left ? look->n_spool : left;
    size_t n_out = look->n_stdout < left - n_spool ? look->n_stdout : left - n_spool;
    enum nd_status status = nd_file_write_all(session->spool_fd, look->bytes, n_spool, session->spool, err);
    if (status == ND_OK)
        status = nd_file_write_all(session->out_fd, look->bytes + n_spool, n_out, session->out, err);
    if (status == ND_OK) {
        session->spool_bytes += n_spool;
        session->out_bytes += n_out;
    }
    return status;
}

/* An agent that goes on first cuts the spool back; until it has written there, its bytes may still change. */
static enum nd_status release(struct nd_remote_session *session, struct nd_error *err)
{
    const struct nd_run_look *look = &session->look;
    if (session->is_holding && (look->spool_bytes != session->held_bytes || look->state == ND_RUN_ENDED))
        session->is_holding = false;
    /* A machine that died may have lost what is here already. */
    bool is_cut = look->state == ND_RUN_RUNNING || look->state == ND_RUN_ENDED;
    return is_cut && look->spool_bytes < session->spool_bytes ? forget_copy(session, err) : ND_OK;
}

static enum nd_status look_once(struct nd_remote_session *session, struct nd_error *err)
{
    struct nd_remote_reply reply = {0};
    struct nd_error local = {0}, ignored = {0};
    uint64_t begun_ns = nd_clock_ns();
    char *text =
        nd_script_look(session->folder, session->spool_bytes, session->is_holding ? 0 : MAX_SPOOL_PIECE,
                       session->out_bytes, MAX_STDOUT_PIECE);
    if (text == NULL)
        return nd_fail_memory(err);
    const struct nd_remote_command command = {
        .text = text, .stdout_limit_bytes = MAX_SPOOL_PIECE + MAX_STDOUT_PIECE + MAX_HEAD};
    enum nd_status status = nd_transport_run_once(session->remote->transport, &command, &reply, &local);
    free(text);
    bool is_understood = reply.out_bytes > 0 && nd_run_look_parse(reply.out, reply.out_bytes, &session->look);
    if (is_understood) {
        enum nd_status taken =
            take_bytes(session, reply.out, reply.out_bytes, status == ND_OK ? &local : &ignored);
        status = status == ND_OK ? taken : status;
        session->look.bytes = NULL;
    } else if (status == ND_OK) {
        status =
            nd_fail(&local, ND_E_DEVICE_COMMAND, session->run->device->label,
                    "device '%s' does not say how its run is: '%.80s'", session->run->device->label, reply.out);
    }
    nd_remote_reply_deinit(&reply);
    session->look_s = (double)(nd_clock_ns() - begun_ns) * 1e-9;
    if (status == ND_OK)
        status = release(session, &local);
    if (status != ND_OK && err != NULL)
        *err = local;
    return status;
}

enum nd_status nd_remote_look(struct nd_remote_session *session, struct nd_error *err)
{
    struct nd_error local = {0};
    enum nd_status status = look_once(session, &local);
    uint64_t lost_ns = nd_clock_ns();
    while (status != ND_OK && local.id == ND_E_LINK_LOST) {
        nd_watch_follow(&session->watch);
        snprintf(session->watch.stage, sizeof session->watch.stage, "link lost");
        session->remote->stage = "link lost";
        if ((double)(nd_clock_ns() - lost_ns) * 1e-9 > session->run->options->link_limit_s)
            break;
        status = nd_transport_reconnect(session->remote->transport, &local);
        if (status != ND_OK)
            break;
        status = look_once(session, &local);
        session->watch.progress_ns = nd_clock_awake_ns();
        if (status == ND_OK)
            snprintf(session->watch.stage, sizeof session->watch.stage, "run");
    }
    session->remote->stage = NULL;
    if (status != ND_OK && err != NULL)
        *err = local;
    return status;
}
