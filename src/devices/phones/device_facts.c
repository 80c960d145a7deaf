/* What a machine says of itself, its battery and temperatures among it, as Android's services or the kernel's
 * files tell them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "capture/read/environment.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/text/strbuf.h"
#include "devices/phones/device_facts.h"
#include "devices/phones/transport.h"
#include "npudiff/core/parse.h"

/* Whether `at` is where a line of the answer begins. */
static bool begins_line(struct nd_text_piece answer, const char *at)
{
    return at == answer.text || at[-1] == '\n';
}

/* Takes the next line off `rest`, without its end; false when nothing is left. */
static bool nd_piece_line(struct nd_text_piece *rest, struct nd_text_piece *line)
{
    if (rest->n == 0)
        return false;
    const char *end = memchr(rest->text, '\n', rest->n);
    size_t n = end != NULL ? (size_t)(end - rest->text) : rest->n;
    *line = (struct nd_text_piece){rest->text, n};
    n += end != NULL;
    *rest = (struct nd_text_piece){rest->text + n, rest->n - n};
    return true;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '\0';
}

/* Without the blanks at both ends. */
static struct nd_text_piece nd_piece_trim(struct nd_text_piece piece)
{
    while (piece.n > 0 && is_blank(piece.text[0])) {
        piece.text++;
        piece.n--;
    }
    while (piece.n > 0 && is_blank(piece.text[piece.n - 1]))
        piece.n--;
    return piece;
}

/* Whether it begins with `text`, which is then taken off. */
static bool nd_piece_skip(struct nd_text_piece *piece, const char *text)
{
    size_t n = strlen(text);
    if (piece->n < n || memcmp(piece->text, text, n) != 0)
        return false;
    *piece = (struct nd_text_piece){piece->text + n, piece->n - n};
    return true;
}

/* Whether it is this text. */
static bool nd_piece_is(struct nd_text_piece piece, const char *text)
{
    return nd_piece_skip(&piece, text) && piece.n == 0;
}

/* What follows the line "<marker> <name>", up to the next line that begins with the marker. */
static struct nd_text_piece nd_piece_part(struct nd_text_piece answer, const char *marker, const char *name)
{
    size_t n_marker = strlen(marker);
    struct nd_text_piece found = {0}, rest = answer;
    while (rest.n > 0) {
        const char *at = memmem(rest.text, rest.n, marker, n_marker);
        if (at == NULL)
            break;
        bool is_line = begins_line(answer, at);
        if (found.text != NULL && is_line) {
            found.n = (size_t)(at - found.text);
            return found;
        }
        struct nd_text_piece line, left = {at + n_marker, (size_t)(answer.text + answer.n - at) - n_marker};
        rest = left;
        if (is_line && nd_piece_line(&left, &line) && nd_piece_is(nd_piece_trim(line), name))
            rest = found = left;
    }
    if (found.text != NULL)
        found.n = (size_t)(answer.text + answer.n - found.text);
    return found;
}

/* Bytes of the character that begins here, 0 when it is no UTF-8 (overlong forms, surrogates and what is beyond
 * U+10FFFF are none). */
static size_t utf8_bytes(const unsigned char *at, size_t n)
{
    unsigned char c = at[0];
    size_t size = c < 0x80                ? 1
                  : c >= 0xc2 && c < 0xe0 ? 2
                  : c >= 0xe0 && c < 0xf0 ? 3
                  : c >= 0xf0 && c < 0xf5 ? 4
                                          : 0;
    if (size == 0 || size > n)
        return 0;
    for (size_t i = 1; i < size; i++)
        if ((at[i] & 0xc0) != 0x80)
            return 0;
    if ((c == 0xe0 && at[1] < 0xa0) || (c == 0xed && at[1] > 0x9f) || (c == 0xf0 && at[1] < 0x90) ||
        (c == 0xf4 && at[1] > 0x8f))
        return 0;
    return size;
}

char *nd_piece_copy(struct nd_text_piece piece, size_t max_bytes)
{
    struct nd_strbuf out = {0};
    piece = nd_piece_trim(piece);
    for (size_t i = 0; i < piece.n;) {
        size_t n = utf8_bytes((const unsigned char *)piece.text + i, piece.n - i);
        unsigned char c = (unsigned char)piece.text[i];
        /* C1 controls (U+0080 to U+009F) steer terminals like the others. */
        bool is_control = (n == 1 && (c < 0x20 || c == 0x7f)) ||
                          (n == 2 && c == 0xc2 && (unsigned char)piece.text[i + 1] < 0xa0);
        if (out.len + (n > 0 ? n : 1) > max_bytes)
            break;
        bool is_space = is_control || piece.text[i] == ' ';
        if (n == 0)
            nd_strbuf_puts(&out, "?");
        else if (is_space && out.len > 0)
            nd_strbuf_puts(&out, " ");
        else if (!is_space)
            nd_strbuf_append(&out, piece.text + i, n);
        i += n > 0 ? n : 1;
    }
    while (out.len > 0 && out.text[out.len - 1] == ' ')
        out.text[--out.len] = '\0';
    return nd_strbuf_take(&out);
}

/* As text of its own; false when it is too long for a number. */
static bool take_number(struct nd_text_piece piece, char text[48])
{
    piece = nd_piece_trim(piece);
    if (piece.n == 0 || piece.n >= 48 || memchr(piece.text, '\0', piece.n) != NULL)
        return false;
    memcpy(text, piece.text, piece.n);
    text[piece.n] = '\0';
    return true;
}

/* A whole number, or a decimal one, and nothing else but blanks around it. */
static bool nd_piece_i64(struct nd_text_piece piece, int64_t *out)
{
    char text[48];
    return take_number(piece, text) && nd_parse_i64(text, out);
}

static bool nd_piece_double(struct nd_text_piece piece, double *out)
{
    char text[48];
    return take_number(piece, text) && nd_parse_double(text, out);
}

/* ---- battery and temperatures, as android's services or the kernel's files tell them ---- */

enum { MAX_LIST_BYTES = 2000, MAX_SENSORS = 64 };

/* Appends the commands that ask for them; each part begins with a line of the marker. Uses $T, what a command
 * that may hang is started with. */
static void nd_warmth_question(struct nd_strbuf *question, const char *marker)
{
    nd_strbuf_printf(
        question,
        "echo; echo '%s battery'; $T dumpsys battery 2>/dev/null | head -c 16384; echo; echo '%s thermal'; $T "
        "dumpsys thermalservice 2>/dev/null | head -c 65536; echo; echo '%s supplies'; for d in "
        "/sys/class/power_supply/*; do p=; c=; s=; read -r p <$d/capacity; read -r c <$d/temp; read -r s "
        "<$d/status; echo \"${p:--} ${c:--} ${d##*/} ${s:--}\"; done 2>/dev/null | head -n 16 | head -c 4096; "
        "echo; echo '%s zones'; for d in /sys/class/thermal/thermal_zone*; do c=; k=; read -r c <$d/temp; read "
        "-r k <$d/type; echo \"${c:--} ${k:--}\"; done 2>/dev/null | head -n 128 | head -c 8192; ",
        marker, marker, marker, marker);
}

/* ---- attributes ---- */

struct sink {
    struct nd_attr_list *out;
    const char *when;
    bool is_whole;
};

static const char *name_key(char key[64], const struct sink *sink, const char *what, const char *name)
{
    snprintf(key, 64, "%s_%s_%s", what, sink->when, name);
    return key;
}

static void put_text(struct sink *sink, const char *what, const char *name, struct nd_text_piece value)
{
    char key[64];
    ND_FREED char *text = nd_piece_copy(value, MAX_LIST_BYTES);
    sink->is_whole = sink->is_whole && text != NULL &&
                     nd_attr_list_add_text(sink->out, "device", name_key(key, sink, what, name), text);
}

static void put_word(struct sink *sink, const char *what, const char *name, const char *word)
{
    put_text(sink, what, name, (struct nd_text_piece){word, strlen(word)});
}

static void put_number(struct sink *sink, const char *what, const char *name, int64_t number)
{
    char key[64];
    sink->is_whole =
        sink->is_whole && nd_attr_list_add_number(sink->out, "device", name_key(key, sink, what, name), number);
}

static void put_real(struct sink *sink, const char *what, const char *name, double real)
{
    char key[64];
    sink->is_whole =
        sink->is_whole && nd_attr_list_add_real(sink->out, "device", name_key(key, sink, what, name), real);
}

/* Sensors that are not there say 0 K, or numbers of their own. */
static bool is_plausible(double celsius)
{
    return celsius > -60 && celsius < 200;
}

/* ---- battery ---- */

struct battery {
    int64_t level, scale, tenths, state; /* INT64_MIN: not said */
    const char *power;
};

static void read_battery_line(struct nd_text_piece line, struct battery *battery)
{
    static const struct {
        const char *key, *power;
    } sources[] = {{"AC powered: true", "ac"},
                   {"USB powered: true", "usb"},
                   {"Wireless powered: true", "wireless"},
                   {"Dock powered: true", "dock"}};
    const struct {
        const char *key;
        int64_t *value;
    } numbers[] = {{"level:", &battery->level},
                   {"scale:", &battery->scale},
                   {"temperature:", &battery->tenths},
                   {"status:", &battery->state}};
    for (size_t i = 0; i < sizeof sources / sizeof sources[0]; i++)
        if (nd_piece_is(line, sources[i].key))
            battery->power = sources[i].power;
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        struct nd_text_piece value = line;
        if (*numbers[i].value == INT64_MIN && nd_piece_skip(&value, numbers[i].key))
            nd_piece_i64(value, numbers[i].value);
    }
}

/* "dumpsys battery": lines "  key: value"; makers add lines of their own, which are left alone. False when it
 * says nothing. */
static bool read_service_battery(struct nd_text_piece part, struct sink *sink)
{
    /* BatteryManager.BATTERY_STATUS_* of Android. */
    static const char *const states[] = {"", "unknown", "charging", "discharging", "not charging", "full"};
    struct battery battery = {INT64_MIN, INT64_MIN, INT64_MIN, INT64_MIN, "none"};
    struct nd_text_piece line;
    while (nd_piece_line(&part, &line))
        read_battery_line(nd_piece_trim(line), &battery);
    if (battery.level < 0 || battery.level > 1000000)
        return false;
    int64_t scale = battery.scale > 0 ? battery.scale : 100;
    if (battery.level <= scale)
        put_number(sink, "battery", "percent", battery.level * 100 / scale);
    if (battery.tenths != INT64_MIN && is_plausible((double)battery.tenths / 10))
        put_real(sink, "battery", "celsius", (double)battery.tenths / 10);
    if (battery.state >= 1 && battery.state <= 5)
        put_word(sink, "battery", "state", states[battery.state]);
    put_word(sink, "battery", "power", battery.power);
    put_word(sink, "battery", "source", "dumpsys battery");
    return true;
}

/* Takes a word off the line. */
static struct nd_text_piece take_word(struct nd_text_piece *line)
{
    *line = nd_piece_trim(*line);
    size_t n = 0;
    while (n < line->n && line->text[n] != ' ')
        n++;
    struct nd_text_piece word = {line->text, n};
    *line = (struct nd_text_piece){line->text + n, line->n - n};
    return word;
}

/* Lines "PERCENT TENTHS NAME STATE" of /sys/class/power_supply; chargers have no percentage. */
static void read_supplies(struct nd_text_piece part, struct sink *sink)
{
    struct nd_text_piece line;
    while (nd_piece_line(&part, &line)) {
        int64_t percent, tenths;
        struct nd_text_piece level = take_word(&line), heat = take_word(&line), name = take_word(&line);
        if (!nd_piece_i64(level, &percent) || percent < 0 || percent > 100 || name.n == 0 || name.n > 40)
            continue;
        put_number(sink, "battery", "percent", percent);
        if (nd_piece_i64(heat, &tenths) && is_plausible((double)tenths / 10))
            put_real(sink, "battery", "celsius", (double)tenths / 10);
        line = nd_piece_trim(line);
        if (line.n > 0 && !nd_piece_is(line, "-"))
            put_text(sink, "battery", "state", line);
        char source[96];
        snprintf(source, sizeof source, "/sys/class/power_supply/%.*s", (int)name.n, name.text);
        put_word(sink, "battery", "source", source);
        return;
    }
}

/* ---- temperatures ---- */

struct sensors {
    size_t n;
    struct {
        struct nd_text_piece name;
        double celsius;
    } items[MAX_SENSORS];
};

static void add_sensor(struct sensors *sensors, struct nd_text_piece name, double celsius)
{
    name = nd_piece_trim(name);
    if (sensors->n == MAX_SENSORS || name.n == 0 || name.n > 64 || !is_plausible(celsius))
        return;
    sensors->items[sensors->n].name = name;
    sensors->items[sensors->n++].celsius = celsius;
}

static void put_sensors(struct sink *sink, const struct sensors *sensors, const char *source)
{
    struct nd_strbuf list = {0};
    size_t hottest = 0;
    for (size_t i = 0; i < sensors->n; i++) {
        if (sensors->items[i].celsius > sensors->items[hottest].celsius)
            hottest = i;
        nd_strbuf_printf(&list, "%s%.*s=%.1f", i > 0 ? " " : "", (int)sensors->items[i].name.n,
                         sensors->items[i].name.text, sensors->items[i].celsius);
    }
    ND_FREED char *text = nd_strbuf_take(&list);
    sink->is_whole = sink->is_whole && text != NULL;
    if (sensors->n > 0 && text != NULL) {
        put_real(sink, "thermal", "celsius", sensors->items[hottest].celsius);
        put_text(sink, "thermal", "sensor", sensors->items[hottest].name);
        put_word(sink, "thermal", "sensors", text);
        put_word(sink, "thermal", "source", source);
    }
}

/* "Temperature{mValue=37.2, mType=3, mName=skin, mStatus=0}". Types 6 to 8 are volts, amperes and percent. */
static void read_temperature(struct nd_text_piece line, struct sensors *sensors)
{
    struct nd_text_piece name = {0};
    double celsius = -1000;
    int64_t type = -1;
    if (!nd_piece_skip(&line, "Temperature{"))
        return;
    while (line.n > 0) {
        const char *comma = memchr(line.text, ',', line.n);
        size_t n = comma != NULL ? (size_t)(comma - line.text) : line.n;
        struct nd_text_piece field = nd_piece_trim((struct nd_text_piece){line.text, n});
        if (nd_piece_skip(&field, "mValue="))
            nd_piece_double(field, &celsius);
        else if (nd_piece_skip(&field, "mType="))
            nd_piece_i64(field, &type);
        else if (nd_piece_skip(&field, "mName="))
            name = field;
        n += comma != NULL;
        line = (struct nd_text_piece){line.text + n, line.n - n};
    }
    if (type < 6 || type > 8)
        add_sensor(sensors, name, celsius);
}

/* "dumpsys thermalservice": the cached temperatures first, then those that the hardware says now, which count
 * where there are any. False when there is no such service. */
static bool read_service_thermal(struct nd_text_piece part, struct sink *sink)
{
    struct sensors cached = {0}, now = {0}, *at = &cached;
    struct nd_text_piece line;
    int64_t status = -1;
    while (nd_piece_line(&part, &line)) {
        line = nd_piece_trim(line);
        if (nd_piece_is(line, "Current temperatures from HAL:"))
            at = &now;
        else if (status < 0 && nd_piece_skip(&line, "Thermal Status:"))
            nd_piece_i64(line, &status);
        else
            read_temperature(line, at);
    }
    if (status >= 0 && status <= 6)
        put_number(sink, "thermal", "throttling", status);
    put_sensors(sink, now.n > 0 ? &now : &cached, "dumpsys thermalservice");
    return now.n > 0 || cached.n > 0;
}

/* Lines "MILLIDEGREES NAME" of /sys/class/thermal. */
static void read_zones(struct nd_text_piece part, struct sink *sink)
{
    struct sensors sensors = {0};
    struct nd_text_piece line;
    while (nd_piece_line(&part, &line)) {
        int64_t milli;
        struct nd_text_piece number = take_word(&line);
        if (nd_piece_i64(number, &milli) && milli > -1000000 && milli < 1000000)
            add_sensor(&sensors, line, (double)milli / 1000);
    }
    put_sensors(sink, &sensors, "/sys/class/thermal");
}

/* Adds what the answer says as attributes "battery_<when>_..." and "thermal_<when>_..." of /device. when:
 * "before", "after". False when out of memory. */
static bool nd_warmth_parse(const char *marker, struct nd_text_piece answer, const char *when,
                            struct nd_attr_list *out)
{
    struct sink sink = {.out = out, .when = when, .is_whole = true};
    if (!read_service_battery(nd_piece_part(answer, marker, "battery"), &sink))
        read_supplies(nd_piece_part(answer, marker, "supplies"), &sink);
    if (!read_service_thermal(nd_piece_part(answer, marker, "thermal"), &sink))
        read_zones(nd_piece_part(answer, marker, "zones"), &sink);
    return sink.is_whole;
}

enum {
    MAX_TEXT_BYTES = 256, /* of one fact */
    MAX_ABI_BYTES = 64,
    MAX_ANSWER_BYTES = 1 << 20,    /* of the machine, more is cut */
    MAX_LOGCAT_BYTES = 512 * 1024, /* the end of it is kept */
};

/* ---- questions ---- */

/* Services of a phone may hang: $T ends them where the machine has timeout. */
static const char time_limit[] = "T=; command -v timeout >/dev/null 2>&1 && T='timeout 10'; ";

char *nd_device_facts_question(const char *marker)
{
    struct nd_strbuf text = {0};
    nd_strbuf_puts(&text, time_limit);
    nd_strbuf_printf(&text,
                     "echo; echo '%s getprop'; $T getprop 2>/dev/null | head -c 524288; echo; echo '%s uname'; "
                     "uname -s; uname -r; uname -m; echo; echo '%s linker'; [ -e /system/bin/linker64 ] && "
                     "echo android; echo; echo '%s clock'; date +%%s; echo; echo '%s os'; head -c 8192 "
                     "/etc/os-release 2>/dev/null; echo; echo '%s soc'; head -n 1 /sys/devices/soc0/machine "
                     "2>/dev/null; echo; echo '%s board'; head -c 256 /proc/device-tree/model 2>/dev/null; ",
                     marker, marker, marker, marker, marker, marker, marker);
    nd_warmth_question(&text, marker);
    nd_strbuf_printf(&text, "echo; echo '%s end'", marker);
    return nd_strbuf_take(&text);
}

char *nd_device_facts_question_after(const char *marker, int64_t since_s)
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
    struct nd_text_piece properties;
    bool is_whole;
};

/* The value of "[key]: [value]"; empty where there is no such line. */
static struct nd_text_piece property(const struct facts *facts, const char *key)
{
    struct nd_text_piece rest = facts->properties, line;
    while (nd_piece_line(&rest, &line)) {
        line = nd_piece_trim(line);
        if (!nd_piece_skip(&line, "[") || !nd_piece_skip(&line, key) || !nd_piece_skip(&line, "]: ["))
            continue;
        if (line.n > 0 && line.text[line.n - 1] == ']')
            line.n--;
        return nd_piece_trim(line);
    }
    return (struct nd_text_piece){0};
}

/* One fact, when there is one. */
static bool put(struct facts *facts, const char *key, struct nd_text_piece value)
{
    ND_FREED char *text = nd_piece_copy(value, MAX_TEXT_BYTES);
    bool is_there = text != NULL && text[0] != '\0';
    facts->is_whole = facts->is_whole && text != NULL &&
                      (!is_there || nd_attr_list_add_text(facts->out, "device", key, text));
    return is_there;
}

static void put_word_of_device_facts(struct facts *facts, const char *key, const char *word)
{
    facts->is_whole = facts->is_whole && nd_attr_list_add_text(facts->out, "device", key, word);
}

/* The value of KEY=value of /etc/os-release, without its quotes. */
static struct nd_text_piece release_value(struct nd_text_piece release, const char *key)
{
    struct nd_text_piece line;
    while (nd_piece_line(&release, &line)) {
        line = nd_piece_trim(line);
        if (!nd_piece_skip(&line, key) || !nd_piece_skip(&line, "="))
            continue;
        if (line.n > 1 && (line.text[0] == '"' || line.text[0] == '\'') &&
            line.text[line.n - 1] == line.text[0])
            line = (struct nd_text_piece){line.text + 1, line.n - 2};
        return line;
    }
    return (struct nd_text_piece){0};
}

/* The first of several properties that is there, and where it is from. */
static struct nd_text_piece first_property(const struct facts *facts, const char *const *keys, const char **key)
{
    struct nd_text_piece value = {0};
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
        put_word_of_device_facts(facts, with_source, source);
}

/* Which SoC: phones say it by a property, Linux on a Snapdragon by a file. */
static void put_soc(struct facts *facts, struct nd_text_piece machine, struct nd_device_facts *device_facts)
{
    static const char *const keys[] = {"ro.soc.model", "ro.vendor.qti.soc_model", NULL};
    const char *key = NULL;
    char source[64];
    struct nd_text_piece soc = first_property(facts, keys, &key), line = {0};
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
    device_facts->soc = text;
    device_facts->chipset = nd_chipset_find(text);
    put_word_of_device_facts(facts, "machine_soc", text);
    put_word_of_device_facts(facts, "machine_soc_source", source);
    put(facts, "machine_soc_manufacturer", property(facts, "ro.soc.manufacturer"));
    if (device_facts->chipset != NULL)
        put_word_of_device_facts(facts, "machine_chipset", device_facts->chipset->sm);
}

/* "samsung SM-S928B": who made it and what it is called. */
static void put_phone(struct facts *facts)
{
    struct nd_text_piece maker = property(facts, "ro.product.manufacturer"),
                         model = property(facts, "ro.product.model");
    struct nd_strbuf name = {0};
    nd_strbuf_append(&name, maker.text != NULL ? maker.text : "", maker.n);
    nd_strbuf_puts(&name, maker.n > 0 && model.n > 0 ? " " : "");
    nd_strbuf_append(&name, model.text != NULL ? model.text : "", model.n);
    struct nd_text_piece both = {name.text, name.len};
    if (put(facts, "phone", both))
        put_word_of_device_facts(facts, "phone_source", "getprop ro.product.manufacturer, ro.product.model");
    facts->is_whole = facts->is_whole && !name.failed;
    nd_strbuf_deinit(&name);
    put(facts, "phone_device", property(facts, "ro.product.device"));
    put(facts, "phone_platform", property(facts, "ro.board.platform"));
    put(facts, "android_release", property(facts, "ro.build.version.release"));
    put(facts, "android_sdk", property(facts, "ro.build.version.sdk"));
}

/* ---- what runs there ---- */

/* Android says it by a property: its kernel may be of more bits than its programs. */
static void find_abi(struct facts *facts, struct nd_text_piece machine, struct nd_device_facts *device_facts)
{
    struct nd_text_piece abi = property(facts, "ro.product.cpu.abi");
    const char *name = NULL;
    if (abi.n == 0)
        abi = nd_piece_trim(machine);
    device_facts->said_abi = nd_piece_copy(abi, MAX_ABI_BYTES);
    facts->is_whole = facts->is_whole && device_facts->said_abi != NULL;
    if (nd_piece_is(abi, "arm64-v8a") || nd_piece_is(abi, "aarch64"))
        name = device_facts->is_android ? "aarch64-android" : "aarch64-linux";
    else if (nd_piece_is(abi, "x86_64") && !device_facts->is_android)
        name = "x86_64-linux";
    if (name == NULL)
        return;
    device_facts->abi = nd_strdup(name);
    facts->is_whole = facts->is_whole && device_facts->abi != NULL;
    put_word_of_device_facts(facts, "machine_abi", name);
}

enum nd_status nd_device_facts_parse(const char *marker, const char *answer, size_t n,
                                     struct nd_device_facts *out, struct nd_error *err)
{
    struct nd_device_facts device_facts = {0};
    struct nd_text_piece whole = {answer, n};
    struct facts facts = {
        .out = &device_facts.facts, .properties = nd_piece_part(whole, marker, "getprop"), .is_whole = true};
    device_facts.is_android = nd_piece_is(nd_piece_trim(nd_piece_part(whole, marker, "linker")), "android");
    put_phone(&facts);
    if (put(&facts, "board", nd_piece_part(whole, marker, "board")))
        put_word_of_device_facts(&facts, "board_source", "/proc/device-tree/model");
    put_soc(&facts, nd_piece_part(whole, marker, "soc"), &device_facts);
    struct nd_text_piece release = nd_piece_part(whole, marker, "os");
    if (property(&facts, "ro.build.fingerprint").n > 0)
        put_property(&facts, "firmware", "ro.build.fingerprint");
    else if (put(&facts, "firmware", release_value(release, "PRETTY_NAME")))
        put_word_of_device_facts(&facts, "firmware_source", "/etc/os-release");
    put_property(&facts, "serial", "ro.serialno");
    struct nd_text_piece part = nd_piece_part(whole, marker, "uname");
    struct nd_text_piece system = {0}, kernel = {0}, machine = {0};
    part = nd_piece_trim(part);
    if (nd_piece_line(&part, &system) && nd_piece_line(&part, &kernel))
        nd_piece_line(&part, &machine);
    put(&facts, "machine_system", system);
    put(&facts, "machine_kernel", kernel);
    put(&facts, "machine_architecture", machine);
    find_abi(&facts, machine, &device_facts);
    if (!nd_piece_i64(nd_piece_part(whole, marker, "clock"), &device_facts.clock_s) || device_facts.clock_s < 0)
        device_facts.clock_s = 0;
    if (!facts.is_whole || !nd_warmth_parse(marker, whole, "before", &device_facts.warmth)) {
        nd_device_facts_deinit(&device_facts);
        return nd_fail_memory(err);
    }
    *out = device_facts;
    return ND_OK;
}

/* Lines of logcat, and nothing else that went wrong there; the first is cut where the end was kept. */
static bool keep_logcat(struct nd_text_piece part, struct nd_device_facts *device_facts)
{
    while (part.n > 0 && (part.text[0] == '\n' || part.text[0] == '\r'))
        part = (struct nd_text_piece){part.text + 1, part.n - 1};
    while (part.n > 0 && (part.text[part.n - 1] == '\n' || part.text[part.n - 1] == '\r'))
        part.n--;
    if (part.n >= MAX_LOGCAT_BYTES - 2) {
        struct nd_text_piece line;
        nd_piece_line(&part, &line);
    }
    if (part.n == 0)
        return true;
    char *text = malloc(part.n + 2);
    if (text == NULL)
        return false;
    memcpy(text, part.text, part.n);
    memcpy(text + part.n, "\n", 2);
    device_facts->logcat = text;
    device_facts->logcat_bytes = part.n + 1;
    return true;
}

enum nd_status nd_device_facts_parse_after(const char *marker, const char *answer, size_t n,
                                           struct nd_device_facts *device_facts, struct nd_error *err)
{
    struct nd_text_piece whole = {answer, n};
    ND_TRY_MEMORY(nd_warmth_parse(marker, whole, "after", &device_facts->warmth), err);
    return device_facts->logcat != NULL || keep_logcat(nd_piece_part(whole, marker, "logcat"), device_facts)
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

enum nd_status nd_device_facts_read(struct nd_transport *transport, struct nd_device_facts *out,
                                    struct nd_error *err)
{
    ND_FREED char *question = nd_device_facts_question(transport->nonce);
    ND_CLEANUP(nd_remote_reply_deinit) struct nd_remote_reply reply = {0};
    ND_TRY(ask(transport, question, &reply, err));
    return nd_device_facts_parse(transport->nonce, reply.out, reply.out_bytes, out, err);
}

enum nd_status nd_device_facts_finish(struct nd_transport *transport, struct nd_device_facts *device_facts,
                                      struct nd_error *err)
{
    ND_FREED char *question = nd_device_facts_question_after(transport->nonce, device_facts->clock_s);
    ND_CLEANUP(nd_remote_reply_deinit) struct nd_remote_reply reply = {0};
    ND_TRY(ask(transport, question, &reply, err));
    return nd_device_facts_parse_after(transport->nonce, reply.out, reply.out_bytes, device_facts, err);
}

void nd_device_facts_deinit(struct nd_device_facts *device_facts)
{
    ND_FREE_ALL(device_facts->soc, device_facts->abi, device_facts->said_abi, device_facts->logcat);
    nd_attr_list_deinit(&device_facts->facts);
    nd_attr_list_deinit(&device_facts->warmth);
    *device_facts = (struct nd_device_facts){0};
}
