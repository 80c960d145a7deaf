#include "devices/phones/identity_warmth.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LIST_BYTES = 2000, MAX_SENSORS = 64 };

void nd_warmth_question(struct nd_strbuf *question, const char *marker)
{
    nd_strbuf_printf(question,
                     "echo; echo '%s battery'; $T dumpsys battery 2>/dev/null | head -c 16384; "
                     "echo; echo '%s thermal'; $T dumpsys thermalservice 2>/dev/null | head -c 65536; "
                     "echo; echo '%s supplies'; for d in /sys/class/power_supply/*; do p=; c=; s=; "
                     "read -r p <$d/capacity; read -r c <$d/temp; read -r s <$d/status; "
                     "echo \"${p:--} ${c:--} ${d##*/} ${s:--}\"; done 2>/dev/null | head -n 16 | head -c 4096; "
                     "echo; echo '%s zones'; for d in /sys/class/thermal/thermal_zone*; do c=; k=; "
                     "read -r c <$d/temp; read -r k <$d/type; echo \"${c:--} ${k:--}\"; done 2>/dev/null | "
                     "head -n 128 | head -c 8192; ",
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

static void put_text(struct sink *sink, const char *what, const char *name, struct nd_piece value)
{
    char key[64];
    char *text = nd_piece_copy(value, MAX_LIST_BYTES);
    sink->is_whole = sink->is_whole && text != NULL &&
                     nd_attr_list_add_text(sink->out, "device", name_key(key, sink, what, name), text);
    free(text);
}

static void put_word(struct sink *sink, const char *what, const char *name, const char *word)
{
    put_text(sink, what, name, (struct nd_piece){word, strlen(word)});
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

static void read_battery_line(struct nd_piece line, struct battery *battery)
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
        struct nd_piece value = line;
        if (*numbers[i].value == INT64_MIN && nd_piece_skip(&value, numbers[i].key))
            nd_piece_i64(value, numbers[i].value);
    }
}

/* "dumpsys battery": lines "  key: value"; makers add lines of their own, which are left alone. False when it
 * says nothing. */
static bool read_service_battery(struct nd_piece part, struct sink *sink)
{
    /* BatteryManager.BATTERY_STATUS_* of Android. */
    static const char *const states[] = {"", "unknown", "charging", "discharging", "not charging", "full"};
    struct battery battery = {INT64_MIN, INT64_MIN, INT64_MIN, INT64_MIN, "none"};
    struct nd_piece line;
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
static struct nd_piece take_word(struct nd_piece *line)
{
    *line = nd_piece_trim(*line);
    size_t n = 0;
    while (n < line->n && line->text[n] != ' ')
        n++;
    struct nd_piece word = {line->text, n};
    *line = (struct nd_piece){line->text + n, line->n - n};
    return word;
}

/* Lines "PERCENT TENTHS NAME STATE" of /sys/class/power_supply; chargers have no percentage. */
static void read_supplies(struct nd_piece part, struct sink *sink)
{
    struct nd_piece line;
    while (nd_piece_line(&part, &line)) {
        int64_t percent, tenths;
        struct nd_piece level = take_word(&line), heat = take_word(&line), name = take_word(&line);
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
        struct nd_piece name;
        double celsius;
    } items[MAX_SENSORS];
};

static void add_sensor(struct sensors *sensors, struct nd_piece name, double celsius)
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
    char *text = nd_strbuf_take(&list);
    sink->is_whole = sink->is_whole && text != NULL;
    if (sensors->n > 0 && text != NULL) {
        put_real(sink, "thermal", "celsius", sensors->items[hottest].celsius);
        put_text(sink, "thermal", "sensor", sensors->items[hottest].name);
        put_word(sink, "thermal", "sensors", text);
        put_word(sink, "thermal", "source", source);
    }
    free(text);
}

/* "Temperature{mValue=37.2, mType=3, mName=skin, mStatus=0}". Types 6 to 8 are volts, amperes and percent. */
static void read_temperature(struct nd_piece line, struct sensors *sensors)
{
    struct nd_piece name = {0};
    double celsius = -1000;
    int64_t type = -1;
    if (!nd_piece_skip(&line, "Temperature{"))
        return;
    while (line.n > 0) {
        const char *comma = memchr(line.text, ',', line.n);
        size_t n = comma != NULL ? (size_t)(comma - line.text) : line.n;
        struct nd_piece field = nd_piece_trim((struct nd_piece){line.text, n});
        if (nd_piece_skip(&field, "mValue="))
            nd_piece_double(field, &celsius);
        else if (nd_piece_skip(&field, "mType="))
            nd_piece_i64(field, &type);
        else if (nd_piece_skip(&field, "mName="))
            name = field;
        n += comma != NULL;
        line = (struct nd_piece){line.text + n, line.n - n};
    }
    if (type < 6 || type > 8)
        add_sensor(sensors, name, celsius);
}

/* "dumpsys thermalservice": the cached temperatures first, then those that the hardware says now, which count
 * where there are any. False when there is no such service. */
static bool read_service_thermal(struct nd_piece part, struct sink *sink)
{
    struct sensors cached = {0}, now = {0}, *at = &cached;
    struct nd_piece line;
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
static void read_zones(struct nd_piece part, struct sink *sink)
{
    struct sensors sensors = {0};
    struct nd_piece line;
    while (nd_piece_line(&part, &line)) {
        int64_t milli;
        struct nd_piece number = take_word(&line);
        if (nd_piece_i64(number, &milli) && milli > -1000000 && milli < 1000000)
            add_sensor(&sensors, line, (double)milli / 1000);
    }
    put_sensors(sink, &sensors, "/sys/class/thermal");
}

bool nd_warmth_parse(const char *marker, struct nd_piece answer, const char *when, struct nd_attr_list *out)
{
    struct sink sink = {.out = out, .when = when, .is_whole = true};
    if (!read_service_battery(nd_piece_part(answer, marker, "battery"), &sink))
        read_supplies(nd_piece_part(answer, marker, "supplies"), &sink);
    if (!read_service_thermal(nd_piece_part(answer, marker, "thermal"), &sink))
        read_zones(nd_piece_part(answer, marker, "zones"), &sink);
    return sink.is_whole;
}
