#include "devices/phones/identity.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/text/strbuf.h"
#include "devices/phones/identity_text.h"
#include "devices/phones/identity_warmth.h"
#include "devices/phones/transport.h"

enum {
    MAX_TEXT_BYTES = 256, /* of one fact */
    MAX_ABI_BYTES = 64,
    MAX_ANSWER_BYTES = 1 << 20,    /* of the machine, more is cut */
    MAX_LOGCAT_BYTES = 512 * 1024, /* the end of it is kept */
};

/* ---- questions ---- */

/* Services of a phone may hang: $T ends them where the machine has timeout. */
static const char time_limit[] = "T=; command -v timeout >/dev/null 2>&1 && T='timeout 10'; ";

char *nd_identity_question(const char *marker)
{
    struct nd_strbuf text = {0};
    nd_strbuf_puts(&text, time_limit);
    nd_strbuf_printf(&text,
                     "echo; echo '%s getprop'; $T getprop 2>/dev/null | head -c 524288; "
                     "echo; echo '%s uname'; uname -s; uname -r; uname -m; "
                     "echo; echo '%s linker'; [ -e /system/bin/linker64 ] && echo android; "
                     "echo; echo '%s clock'; date +%%s; "
                     "echo; echo '%s os'; head -c 8192 /etc/os-release 2>/dev/null; "
                     "echo; echo '%s soc'; head -n 1 /sys/devices/soc0/machine 2>/dev/null; "
                     "echo; echo '%s board'; head -c 256 /proc/device-tree/model 2>/dev/null; ",
                     marker, marker, marker, marker, marker, marker, marker);
    nd_warmth_question(&text, marker);
    nd_strbuf_printf(&text, "echo; echo '%s end'", marker);
    return nd_strbuf_take(&text);
}

char *nd_identity_question_after(const char *marker, int64_t since_s)
{
    struct nd_strbuf text = {0};
    nd_strbuf_puts(&text, time_limit);
    nd_warmth_question(&text, marker);
    nd_strbuf_printf(&text, "echo; echo '%s logcat'; ", marker);
    if (since_s > 0) /* head: whatever prints without end */
        nd_strbuf_printf(&text,
                         "$T logcat -d -v threadtime -T %lld.000 2>/dev/null | head -c 67108864 | tail -c %d; ",
                         (long long)since_s, (int)MAX_LOGCAT_BYTES);
    nd_strbuf_printf(&text, "echo; echo '%s end'", marker);
    return nd_strbuf_take(&text);
}

/* ---- facts ---- */

struct facts {
    struct nd_attr_list *out;
    struct nd_piece properties;
    bool is_whole;
};

/* The value of "[key]: [value]"; empty where there is no such line. */
static struct nd_piece property(const struct facts *facts, const char *key)
{
    struct nd_piece rest = facts->properties, line;
    while (nd_piece_line(&rest, &line)) {
        line = nd_piece_trim(line);
        if (!nd_piece_skip(&line, "[") || !nd_piece_skip(&line, key) || !nd_piece_skip(&line, "]: ["))
            continue;
        if (line.n > 0 && line.text[line.n - 1] == ']')
            line.n--;
        return nd_piece_trim(line);
    }
    return (struct nd_piece){0};
}

/* One fact, when there is one. */
static bool put(struct facts *facts, const char *key, struct nd_piece value)
{
    char *text = nd_piece_copy(value, MAX_TEXT_BYTES);
    bool is_there = text != NULL && text[0] != '\0';
    facts->is_whole = facts->is_whole && text != NULL &&
                      (!is_there || nd_attr_list_add_text(facts->out, "device", key, text));
    free(text);
    return is_there;
}

static void put_word(struct facts *facts, const char *key, const char *word)
{
    facts->is_whole = facts->is_whole && nd_attr_list_add_text(facts->out, "device", key, word);
}

/* The value of KEY=value of /etc/os-release, without its quotes. */
static struct nd_piece release_value(struct nd_piece release, const char *key)
{
    struct nd_piece line;
    while (nd_piece_line(&release, &line)) {
        line = nd_piece_trim(line);
        if (!nd_piece_skip(&line, key) || !nd_piece_skip(&line, "="))
            continue;
        if (line.n > 1 && (line.text[0] == '"' || line.text[0] == '\'') &&
            line.text[line.n - 1] == line.text[0])
            line = (struct nd_piece){line.text + 1, line.n - 2};
        return line;
    }
    return (struct nd_piece){0};
}

/* The first of several properties that is there, and where it is from. */
static struct nd_piece first_property(const struct facts *facts, const char *const *keys, const char **key)
{
    struct nd_piece value = {0};
    for (; value.n == 0 && *keys != NULL; keys++) {
        value = property(facts, *keys);
        *key = *keys;
    }
    return value;
}

static void put_property(struct facts *facts, const char *name, const char *key)
{
    char source[64];
    char with_source[64];
    snprintf(source, sizeof source, "getprop %s", key);
    snprintf(with_source, sizeof with_source, "%s_source", name);
    if (put(facts, name, property(facts, key)))
        put_word(facts, with_source, source);
}

/* Which SoC: phones say it by a property, Linux on a Snapdragon by a file. */
static void put_soc(struct facts *facts, struct nd_piece machine, struct nd_identity *identity)
{
    static const char *const keys[] = {"ro.soc.model", "ro.vendor.qti.soc_model", NULL};
    const char *key = NULL;
    char source[64];
    struct nd_piece soc = first_property(facts, keys, &key), line = {0};
    snprintf(source, sizeof source, "getprop %s", key);
    if (soc.n == 0) {
        machine = nd_piece_trim(machine);
        nd_piece_line(&machine, &line);
        soc = line;
        snprintf(source, sizeof source, "/sys/devices/soc0/machine");
    }
    char *text = nd_piece_copy(soc, 64);
    facts->is_whole = facts->is_whole && text != NULL;
    if (text == NULL || text[0] == '\0') {
        free(text);
        return;
    }
    identity->soc = text;
    identity->chipset = nd_chipset_find(text);
    put_word(facts, "machine_soc", text);
    put_word(facts, "machine_soc_source", source);
    put(facts, "machine_soc_manufacturer", property(facts, "ro.soc.manufacturer"));
    if (identity->chipset != NULL)
        put_word(facts, "machine_chipset", identity->chipset->sm);
}

/* "samsung SM-S928B": who made it and what it is called. */
static void put_phone(struct facts *facts)
{
    struct nd_piece maker = property(facts, "ro.product.manufacturer"),
                    model = property(facts, "ro.product.model");
    struct nd_strbuf name = {0};
    nd_strbuf_append(&name, maker.text != NULL ? maker.text : "", maker.n);
    nd_strbuf_puts(&name, maker.n > 0 && model.n > 0 ? " " : "");
    nd_strbuf_append(&name, model.text != NULL ? model.text : "", model.n);
    struct nd_piece both = {name.text, name.len};
    if (put(facts, "phone", both))
        put_word(facts, "phone_source", "getprop ro.product.manufacturer, ro.product.model");
    facts->is_whole = facts->is_whole && !name.failed;
    nd_strbuf_deinit(&name);
    put(facts, "phone_device", property(facts, "ro.product.device"));
    put(facts, "phone_platform", property(facts, "ro.board.platform"));
    put(facts, "android_release", property(facts, "ro.build.version.release"));
    put(facts, "android_sdk", property(facts, "ro.build.version.sdk"));
}

static void put_firmware(struct facts *facts, struct nd_piece release)
{
    if (property(facts, "ro.build.fingerprint").n > 0)
        put_property(facts, "firmware", "ro.build.fingerprint");
    else if (put(facts, "firmware", release_value(release, "PRETTY_NAME")))
        put_word(facts, "firmware_source", "/etc/os-release");
}

/* ---- what runs there ---- */

/* Android says it by a property: its kernel may be of more bits than its programs. */
static void find_abi(struct facts *facts, struct nd_piece machine, struct nd_identity *identity)
{
    struct nd_piece abi = property(facts, "ro.product.cpu.abi");
    const char *name = NULL;
    if (abi.n == 0)
        abi = nd_piece_trim(machine);
    identity->said_abi = nd_piece_copy(abi, MAX_ABI_BYTES);
    facts->is_whole = facts->is_whole && identity->said_abi != NULL;
    if (nd_piece_is(abi, "arm64-v8a") || nd_piece_is(abi, "aarch64"))
        name = identity->is_android ? "aarch64-android" : "aarch64-linux";
    else if (nd_piece_is(abi, "x86_64") && !identity->is_android)
        name = "x86_64-linux";
    if (name == NULL)
        return;
    identity->abi = nd_strdup(name);
    facts->is_whole = facts->is_whole && identity->abi != NULL;
    put_word(facts, "machine_abi", name);
}

static void put_system(struct facts *facts, struct nd_piece part, struct nd_identity *identity)
{
    struct nd_piece system = {0}, kernel = {0}, machine = {0};
    part = nd_piece_trim(part);
    if (nd_piece_line(&part, &system) && nd_piece_line(&part, &kernel))
        nd_piece_line(&part, &machine);
    put(facts, "machine_system", system);
    put(facts, "machine_kernel", kernel);
    put(facts, "machine_architecture", machine);
    find_abi(facts, machine, identity);
}

enum nd_status nd_identity_parse(const char *marker, const char *answer, size_t n, struct nd_identity *out,
                                 struct nd_error *err)
{
    struct nd_identity identity = {0};
    struct nd_piece whole = {answer, n};
    struct facts facts = {
        .out = &identity.facts, .properties = nd_piece_part(whole, marker, "getprop"), .is_whole = true};
    identity.is_android = nd_piece_is(nd_piece_trim(nd_piece_part(whole, marker, "linker")), "android");
    put_phone(&facts);
    if (put(&facts, "board", nd_piece_part(whole, marker, "board")))
        put_word(&facts, "board_source", "/proc/device-tree/model");
    put_soc(&facts, nd_piece_part(whole, marker, "soc"), &identity);
    put_firmware(&facts, nd_piece_part(whole, marker, "os"));
    put_property(&facts, "serial", "ro.serialno");
    put_system(&facts, nd_piece_part(whole, marker, "uname"), &identity);
    if (!nd_piece_i64(nd_piece_part(whole, marker, "clock"), &identity.clock_s) || identity.clock_s < 0)
        identity.clock_s = 0;
    if (!facts.is_whole || !nd_warmth_parse(marker, whole, "before", &identity.warmth)) {
        nd_identity_deinit(&identity);
        return nd_fail_memory(err);
    }
    *out = identity;
    return ND_OK;
}

/* Lines of logcat, and nothing else that went wrong there; the first is cut where the end was kept. */
static bool keep_logcat(struct nd_piece part, struct nd_identity *identity)
{
    while (part.n > 0 && (part.text[0] == '\n' || part.text[0] == '\r'))
        part = (struct nd_piece){part.text + 1, part.n - 1};
    while (part.n > 0 && (part.text[part.n - 1] == '\n' || part.text[part.n - 1] == '\r'))
        part.n--;
    if (part.n >= MAX_LOGCAT_BYTES - 2) {
        struct nd_piece line;
        nd_piece_line(&part, &line);
    }
    if (part.n == 0)
        return true;
    char *text = malloc(part.n + 2);
    if (text == NULL)
        return false;
    memcpy(text, part.text, part.n);
    memcpy(text + part.n, "\n", 2);
    identity->logcat = text;
    identity->logcat_bytes = part.n + 1;
    return true;
}

enum nd_status nd_identity_parse_after(const char *marker, const char *answer, size_t n,
                                       struct nd_identity *identity, struct nd_error *err)
{
    struct nd_piece whole = {answer, n};
    if (!nd_warmth_parse(marker, whole, "after", &identity->warmth))
        return nd_fail_memory(err);
    return identity->logcat != NULL || keep_logcat(nd_piece_part(whole, marker, "logcat"), identity)
               ? ND_OK
               : nd_fail_memory(err);
}

/* ---- asking ---- */

static enum nd_status ask(struct nd_transport *transport, const char *question, struct nd_remote_reply *reply,
                          struct nd_error *err)
{
    const struct nd_remote_command command = {
        .text = question, .stdout_limit_bytes = MAX_ANSWER_BYTES, .time_limit_s = 60};
    return question != NULL ? nd_transport_run(transport, &command, reply, err) : nd_fail_memory(err);
}

enum nd_status nd_identity_read(struct nd_transport *transport, struct nd_identity *out, struct nd_error *err)
{
    char *question = nd_identity_question(transport->nonce);
    struct nd_remote_reply reply = {0};
    enum nd_status status = ask(transport, question, &reply, err);
    if (status == ND_OK)
        status = nd_identity_parse(transport->nonce, reply.out, reply.out_bytes, out, err);
    nd_remote_reply_deinit(&reply);
    free(question);
    return status;
}

enum nd_status nd_identity_finish(struct nd_transport *transport, struct nd_identity *identity,
                                  struct nd_error *err)
{
    char *question = nd_identity_question_after(transport->nonce, identity->clock_s);
    struct nd_remote_reply reply = {0};
    enum nd_status status = ask(transport, question, &reply, err);
    if (status == ND_OK)
        status = nd_identity_parse_after(transport->nonce, reply.out, reply.out_bytes, identity, err);
    nd_remote_reply_deinit(&reply);
    free(question);
    return status;
}

void nd_identity_deinit(struct nd_identity *identity)
{
    free(identity->soc);
    free(identity->abi);
    free(identity->said_abi);
    free(identity->logcat);
    nd_attr_list_deinit(&identity->facts);
    nd_attr_list_deinit(&identity->warmth);
    *identity = (struct nd_identity){0};
}
