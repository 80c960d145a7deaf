#include "support/main.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "capture/logs/log_read.h"
#include "core/text/strbuf.h"
#include "npudiff/core/parse.h"

/* ---- reading ---- */

static struct nd_log_summary read_pieces(const void *bytes, size_t n, size_t piece, struct nd_log_findings *out)
{
    struct nd_log_summary summary;
    struct nd_log_reader *reader = NULL;
    const struct nd_log_options options = {
        .struct_size = sizeof options, .name = "a.log", .visit = nd_log_findings_add, .context = out};
    *out = (struct nd_log_findings){0};
    assert_int_equal(nd_log_reader_create(&options, &reader, NULL), ND_OK);
    for (size_t i = 0; i < n; i += piece)
        nd_log_reader_feed(reader, (const char *)bytes + i, n - i < piece ? n - i : piece);
    nd_log_reader_end(reader, &summary);
    nd_log_reader_destroy(&reader);
    assert_false(out->failed);
    return summary;
}

static struct nd_log_summary read_text(const char *text, struct nd_log_findings *out)
{
    return read_pieces(text, strlen(text), strlen(text) + 1, out);
}

/* ---- the table ---- */

static const struct {
    const char *yes, *no;
} lines[] = {
#define ND_LOG_LINE(yes, no) {yes, no},
#include "capture/log_lines.def"
#undef ND_LOG_LINE
};

/* A line of the table is taken for the pattern that it stands beside, or for an earlier one of the same kind.
 */
static void every_pattern_matches_its_line_and_not_the_other(void **state)
{
    (void)state;
    assert_int_equal(sizeof lines / sizeof lines[0], nd_log_n_patterns);
    for (size_t i = 0; i < nd_log_n_patterns; i++) {
        const char *line = lines[i].yes, *other = lines[i].no;
        const struct nd_log_pattern *pattern = &nd_log_patterns[i];
        struct nd_log_match match;
        struct nd_log_findings findings;
        bool yes = nd_log_matches(pattern->pattern, line, strlen(line), &match);
        bool no = nd_log_matches(pattern->pattern, other, strlen(other), &match);
        if (!yes || no || pattern->pattern[0] == '{')
            print_message("# pattern %zu: \"%s\"\n", i, pattern->pattern);
        assert_true(yes);
        assert_false(no);
        assert_true(pattern->pattern[0] != '{');
        struct nd_log_summary summary = read_text(line, &findings);
        if (summary.n_findings != 1 || findings.items[0].kind != pattern->kind ||
            findings.items[0].severity != pattern->severity)
            print_message("# \"%s\" is taken for another\n", line);
        assert_int_equal(summary.n_findings, 1);
        assert_int_equal(findings.items[0].kind, pattern->kind);
        assert_int_equal(findings.items[0].severity, pattern->severity);
        nd_log_findings_deinit(&findings);
    }
}

static void captures_are_what_the_line_says(void **state)
{
    (void)state;
    struct nd_log_findings findings;
    read_text("x\n"
              "graph_prepare.cc:213::ERROR:Op creation failure, op id=0x40ff00000050 (q::QNN_LSTM_FAIL) "
              "total_inputs=39\n"
              "Failed to finalize QNN graph. Error: QNN_COMMON_ERROR_MEM_ALLOC: Memory allocation related "
              "error., Code: "
              "1002\r\n"
              "QnnGraph_finalize done. status 0x3ea\n"
              "Quantization params for conv1: scale: 7.8125e-3 offset: -128\n"
              "Op needs VTCM. Requires 9437184 bytes, but only 8388608 bytes are available\n"
              "<W> Arch 68 set by custom config is different from arch associated with SoC 57, will overwrite "
              "it to 75",
              &findings);
    assert_int_equal(findings.n, 6);
    const struct nd_log_finding *f = findings.items;
    assert_string_equal(f[0].op, "q::QNN_LSTM_FAIL");
    assert_string_equal(f[0].op_id, "0x40ff00000050");
    assert_int_equal(f[0].line, 2);
    assert_int_equal(f[1].code, 1002);
    assert_string_equal(f[1].symbol, "QNN_COMMON_ERROR_MEM_ALLOC");
    assert_int_equal(f[1].stage, ND_LOG_STAGE_FINALIZE);
    assert_int_equal(f[2].code, 1002);
    assert_string_equal(f[3].tensor, "conv1");
    assert_f64_bits(f[3].amounts[0].value, 7.8125e-3);
    assert_f64_bits(f[3].amounts[1].value, -128);
    assert_string_equal(f[4].amounts[0].name, "needed");
    assert_f64_bits(f[4].amounts[0].value, 9437184);
    assert_f64_bits(f[4].amounts[1].value, 8388608);
    assert_int_equal(f[5].line, 7);
    assert_string_equal(f[5].amounts[2].name, "used");
    assert_f64_bits(f[5].amounts[2].value, 75);
    nd_log_findings_deinit(&findings);
}

static void validation_takes_its_node_and_reason_from_the_lines_behind(void **state)
{
    (void)state;
    struct nd_log_findings findings;
    struct nd_log_summary summary =
        read_text("Validation FAILED for 1 nodes in OrtNodeUnit (QuantizeLinear) :\n"
                  "\tOperator type: QuantizeLinear Node name: x_q Node index: 0\n"
                  "\tREASON : QNN EP is configured to not take Q nodes that consume a graph input.\n"
                  "Validation FAILED for 3 nodes in OrtNodeUnit (LRN) :\n"
                  "\tOperator type: DequantizeLinear Node name: d Node index: 24\n"
                  "\tOperator type: LRN Node name: norm/1 Node index: 16\n"
                  "\tREASON : Failed to add node.\n",
                  &findings);
    assert_int_equal(findings.n, 2);
    assert_int_equal(findings.items[0].severity, ND_LOG_NOTE);
    assert_string_equal(findings.items[0].node, "x_q");
    assert_int_equal(findings.items[1].severity, ND_LOG_WARNING);
    assert_string_equal(findings.items[1].node, "norm/1");
    assert_int_equal(findings.items[1].line, 4);
    assert_int_equal(summary.n_unknown, 0);
    nd_log_findings_deinit(&findings);
}

static void logcat_is_matched_by_text_and_not_by_tag(void **state)
{
    (void)state;
    struct nd_log_findings findings;
    read_text("11-21 20:33:01.123  1234  1235 E QnnDsp  : Unsupported SoC model (SnapdragonModel): 66\n"
              "E/QnnDsp  ( 1234): Unsupported SoC model (SnapdragonModel): 67\n"
              "11-21 20:33:01.123  1234  1235 I Fusing operation: nothing here\n"
              "I/Fusing operation( 1234): nothing here\n",
              &findings);
    assert_int_equal(findings.n, 2);
    assert_f64_bits(findings.items[0].amounts[0].value, 66);
    assert_f64_bits(findings.items[1].amounts[0].value, 67);
    nd_log_findings_deinit(&findings);
}

/* ---- bytes ---- */

static void colours_control_bytes_and_foreign_bytes_do_no_harm(void **state)
{
    (void)state;
    struct nd_log_findings findings;
    static const char text[] =
        "\x1b[31;1mFusing \x1b[0moperation a\0b\r\n\xff\xfa\x80 Fusing operation \xc3\n\x1b[";
    struct nd_log_summary summary = read_pieces(text, sizeof text - 1, 7, &findings);
    assert_int_equal(findings.n, 2);
    assert_string_equal(findings.items[0].text, "Fusing operation ab");
    assert_int_equal(summary.n_lines, 3);
    assert_int_equal(summary.n_unknown, 1);
    nd_log_findings_deinit(&findings);
}

static void utf16_is_recognised_by_its_mark_however_it_is_cut(void **state)
{
    (void)state;
    static const char line[] = "Fusing operation a\nb\n";
    unsigned char wide[2 * sizeof line];
    for (int is_big = 0; is_big < 2; is_big++) {
        size_t n = 0;
        wide[n++] = is_big ? 0xfe : 0xff;
        wide[n++] = is_big ? 0xff : 0xfe;
        for (size_t i = 0; i + 1 < sizeof line; i++) {
            wide[n++] = is_big ? 0 : (unsigned char)line[i];
            wide[n++] = is_big ? (unsigned char)line[i] : 0;
        }
        for (size_t piece = 1; piece < 5; piece++) {
            struct nd_log_findings findings;
            struct nd_log_summary summary = read_pieces(wide, n, piece, &findings);
            assert_string_equal(summary.encoding, is_big ? "utf-16be" : "utf-16le");
            assert_int_equal(findings.n, 1);
            assert_int_equal(summary.n_lines, 2);
            nd_log_findings_deinit(&findings);
        }
    }
}

static void empty_logs_and_single_bytes_are_read(void **state)
{
    (void)state;
    struct nd_log_findings findings;
    assert_int_equal(read_pieces("", 0, 1, &findings).n_lines, 0);
    assert_int_equal(read_pieces("\n", 1, 1, &findings).n_lines, 1);
    assert_int_equal(read_pieces("\xff", 1, 1, &findings).n_lines, 1);
    struct nd_log_summary summary = read_pieces("\xff\xfe", 2, 2, &findings);
    assert_int_equal(summary.n_lines, 0);
    assert_string_equal(summary.encoding, "utf-16le");
}

static void long_lines_are_cut_and_counted(void **state)
{
    (void)state;
    struct nd_log_findings findings;
    size_t n = 1 << 20;
    char *text = malloc(n);
    memset(text, 'x', n);
    memcpy(text, "Fusing operation ", 17);
    text[n / 2] = '\n';
    memcpy(text + n / 2 + 1, "Fusing operation ", 17);
    struct nd_log_summary summary = read_pieces(text, n, 4096, &findings);
    assert_int_equal(summary.n_lines, 2);
    assert_int_equal(summary.n_cut, 2);
    assert_int_equal(findings.n, 2);
    assert_int_equal(strlen(findings.items[1].text), 4096);
    nd_log_findings_deinit(&findings);
    free(text);
}

static uint64_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

/* Lines of the table with bytes changed, cut, doubled and moved: none crashes, and cutting the bytes otherwise
 * finds the same. */
static void mutated_lines_are_read_alike_however_they_are_cut(void **state)
{
    (void)state;
    enum { N_LINES = 100000 };
    const char *given = getenv("ND_SEED");
    uint64_t seed = 20261121;
    if (given != NULL)
        assert_true(nd_parse_u64(given, &seed));
    uint64_t random = seed;
    print_message("# seed %llu\n", (unsigned long long)seed);
    struct nd_strbuf log = {0};
    for (size_t i = 0; i < N_LINES; i++) {
        size_t pattern = next_random(&random) % nd_log_n_patterns;
        const char *line =
            next_random(&random) % 4 != 0 ? lines[pattern].yes : nd_log_patterns[pattern].pattern;
        size_t n = strlen(line), first = log.len;
        size_t from = next_random(&random) % 3 == 0 ? next_random(&random) % n : 0;
        nd_strbuf_append(&log, line + from, n - from);
        if (next_random(&random) % 3 == 0)
            nd_strbuf_append(&log, line, next_random(&random) % n);
        for (size_t k = next_random(&random) % 4; k > 0 && log.len > first; k--)
            log.text[first + next_random(&random) % (log.len - first)] = (char)next_random(&random);
        nd_strbuf_append(&log, "\n", 1);
    }
    struct nd_log_findings whole, parts;
    struct nd_log_summary a = read_pieces(log.text, log.len, log.len, &whole);
    struct nd_log_summary b = read_pieces(log.text, log.len, 1 + next_random(&random) % 5000, &parts);
    assert_true(a.n_lines >= N_LINES && a.n_findings > N_LINES / 4 && a.n_unknown > N_LINES / 100);
    assert_memory_equal(&a, &b, sizeof a);
    assert_int_equal(whole.n, parts.n);
    for (size_t i = 0; i < whole.n; i++)
        assert_string_equal(whole.items[i].text, parts.items[i].text);
    nd_log_findings_deinit(&whole);
    nd_log_findings_deinit(&parts);
    nd_strbuf_deinit(&log);
}

static bool count(void *context, const struct nd_log_finding *finding)
{
    (void)finding;
    ++*(size_t *)context;
    return true;
}

/* 64 MiB piece by piece, nothing kept. */
static void large_logs_are_read_in_bounded_memory(void **state)
{
    (void)state;
    size_t n_found = 0, n_fed = 0;
    struct nd_log_summary summary;
    struct nd_log_reader *reader = NULL;
    const struct nd_log_options options = {.struct_size = sizeof options, .visit = count, .context = &n_found};
    assert_int_equal(nd_log_reader_create(&options, &reader, NULL), ND_OK);
    struct nd_strbuf block = {0};
    for (size_t i = 0; block.len < 1 << 20; i++)
        nd_strbuf_printf(&block,
                         "[verbose] graph_transformer.cc:15 Apply: GraphTransformer %zu modified: 0\n%s", i,
                         i % 50 == 0 ? "Fusing operation Conv_1\n" : "");
    clock_t from = clock();
    for (; n_fed < (size_t)64 << 20; n_fed += block.len)
        nd_log_reader_feed(reader, block.text, block.len);
    nd_log_reader_end(reader, &summary);
    print_message("# %.0f MB/s\n", (double)n_fed / 1e6 / ((double)(clock() - from) / CLOCKS_PER_SEC));
    assert_int_equal(summary.n_findings, n_found);
    assert_true(n_found > 1000 && summary.n_unknown > 500000);
    nd_log_reader_destroy(&reader);
    nd_strbuf_deinit(&block);
}

/* ---- cascades ---- */

enum { N_FOLLOWERS = 129 };

/* Of a chain of nodes n0 -> n1 -> ... with one side branch that is independent of it ("side"). */
static void fail_node(struct nd_strbuf *log, unsigned int id, const char *op, const char *node,
                      unsigned int input)
{
    nd_strbuf_printf(log, "graph_prepare.cc:203:ERROR:could not create op: %s\n", op);
    nd_strbuf_printf(
        log, "graph_prepare.cc:213::ERROR:Op creation failure, op id=0x1028%08x (%s) total_inputs=1\n", id, op);
    if (input != 0)
        nd_strbuf_printf(log, "graph_prepare.cc:199:  Input 0: id=[0x1028%08x] op=[%s] output0=[x]\n", input,
                         op);
    nd_strbuf_printf(log, "graph_prepare.cc:1187:ERROR:Op 0x1028%08x preparation failed with err:-1\n", id);
    if (node != NULL)
        nd_strbuf_printf(log, "QnnDsp <E> \"%s\" generated: could not create op\n", node);
}

struct chain {
    char texts[N_FOLLOWERS + 2][16];
    const char *names[N_FOLLOWERS + 2];
    size_t links[N_FOLLOWERS + 1][2];
    struct nd_failure_graph graph;
};

static void make_chain(struct chain *chain)
{
    for (size_t i = 0; i < N_FOLLOWERS + 2; i++) {
        snprintf(chain->texts[i], sizeof chain->texts[i], "n%zu", i);
        chain->names[i] = chain->texts[i];
    }
    chain->names[N_FOLLOWERS + 1] = "side";
    for (size_t i = 0; i < N_FOLLOWERS; i++) {
        chain->links[i][0] = i;
        chain->links[i][1] = i + 1;
    }
    chain->graph = (struct nd_failure_graph){.names = chain->names,
                                             .n_nodes = N_FOLLOWERS + 2,
                                             .links = (const size_t(*)[2])chain->links,
                                             .n_links = N_FOLLOWERS};
}

/* The shape of the known case: 130 operators fail, of which 129 only read what q::linearclip would have made.
 */
static void one_root_and_its_followers_are_told_apart_by_the_graph(void **state)
{
    (void)state;
    struct chain chain;
    struct nd_strbuf log = {0};
    struct nd_log_findings findings;
    struct nd_failure_cascade cascade;
    make_chain(&chain);
    for (unsigned int i = 0; i <= N_FOLLOWERS; i++) {
        char node[32];
        snprintf(node, sizeof node, "n%u_token_%u", i, i + 400);
        fail_node(&log, i + 1, i == 0 ? "q::linearclip" : "q::flat_to_vtcm", node, 0);
    }
    fail_node(&log, 5000, "q::QNN_Elu", "side", 0);
    read_pieces(log.text, log.len, log.len, &findings);
    assert_int_equal(nd_failure_cascade_find(findings.items, findings.n, &chain.graph, &cascade, NULL), ND_OK);
    assert_int_equal(cascade.n, N_FOLLOWERS + 2);
    assert_int_equal(cascade.n_roots, 2);
    assert_int_equal(cascade.n_followers, N_FOLLOWERS);
    assert_int_equal(cascade.n_unplaced, 0);
    assert_string_equal(cascade.failures[0].op, "q::linearclip");
    assert_string_equal(cascade.failures[0].model_node, "n0");
    for (size_t i = 1; i <= N_FOLLOWERS; i++) {
        assert_int_equal(cascade.failures[i].role, ND_FAILURE_FOLLOWER);
        assert_int_equal(cascade.failures[i].root, 0);
    }
    assert_string_equal(cascade.failures[N_FOLLOWERS + 1].model_node, "side");
    assert_int_equal(cascade.failures[N_FOLLOWERS + 1].role, ND_FAILURE_ROOT);
    nd_failure_cascade_deinit(&cascade);

    /* Without the graph nothing says what follows what. */
    assert_int_equal(nd_failure_cascade_find(findings.items, findings.n, NULL, &cascade, NULL), ND_OK);
    assert_int_equal(cascade.n_roots, 0);
    assert_int_equal(cascade.n_unplaced, N_FOLLOWERS + 2);
    nd_failure_cascade_deinit(&cascade);
    nd_log_findings_deinit(&findings);
    nd_strbuf_deinit(&log);
}

static void root_is_found_although_a_follower_is_logged_first(void **state)
{
    (void)state;
    struct chain chain;
    struct nd_strbuf log = {0};
    struct nd_log_findings findings;
    struct nd_failure_cascade cascade;
    make_chain(&chain);
    fail_node(&log, 7, "q::b", "n9", 0);
    fail_node(&log, 3, "q::a", "n2", 0);
    read_pieces(log.text, log.len, log.len, &findings);
    assert_int_equal(nd_failure_cascade_find(findings.items, findings.n, &chain.graph, &cascade, NULL), ND_OK);
    assert_int_equal(cascade.n, 2);
    assert_int_equal(cascade.failures[0].role, ND_FAILURE_FOLLOWER);
    assert_int_equal(cascade.failures[0].root, 1);
    assert_int_equal(cascade.failures[1].role, ND_FAILURE_ROOT);
    nd_failure_cascade_deinit(&cascade);
    nd_log_findings_deinit(&findings);
    nd_strbuf_deinit(&log);
}

static void ids_in_the_log_tell_followers_without_a_graph(void **state)
{
    (void)state;
    struct nd_strbuf log = {0};
    struct nd_log_findings findings;
    struct nd_failure_cascade cascade;
    fail_node(&log, 1, "q::linearclip", NULL, 900);
    fail_node(&log, 2, "q::add", NULL, 1);
    fail_node(&log, 3, "q::add", NULL, 2);
    fail_node(&log, 4, "q::mul", NULL, 901);
    read_pieces(log.text, log.len, log.len, &findings);
    assert_int_equal(nd_failure_cascade_find(findings.items, findings.n, NULL, &cascade, NULL), ND_OK);
    assert_int_equal(cascade.n, 4);
    assert_int_equal(cascade.n_roots, 2);
    assert_int_equal(cascade.n_followers, 2);
    assert_int_equal(cascade.failures[2].root, 0);
    assert_string_equal(cascade.failures[3].op, "q::mul");
    nd_failure_cascade_deinit(&cascade);
    nd_log_findings_deinit(&findings);
    nd_strbuf_deinit(&log);
}

/* Hostile or merely long: neither time nor memory runs away. */
static void very_many_failures_are_cut_off(void **state)
{
    (void)state;
    struct nd_strbuf log = {0};
    struct nd_log_findings findings;
    struct nd_failure_cascade cascade;
    for (unsigned int i = 1; i <= 20000; i++)
        fail_node(&log, i, "q::a", NULL, i == 1 ? 900000 : i - 1);
    read_pieces(log.text, log.len, log.len, &findings);
    assert_int_equal(nd_failure_cascade_find(findings.items, findings.n, NULL, &cascade, NULL), ND_OK);
    assert_int_equal(cascade.n, 5000);
    assert_int_equal(cascade.n_roots, 1);
    assert_int_equal(cascade.n_followers, 4999);
    nd_failure_cascade_deinit(&cascade);
    nd_log_findings_deinit(&findings);
    nd_strbuf_deinit(&log);
}

static void circles_in_a_log_end(void **state)
{
    (void)state;
    struct nd_strbuf log = {0};
    struct nd_log_findings findings;
    struct nd_failure_cascade cascade;
    fail_node(&log, 1, "q::a", NULL, 2);
    fail_node(&log, 2, "q::b", NULL, 1);
    read_pieces(log.text, log.len, log.len, &findings);
    assert_int_equal(nd_failure_cascade_find(findings.items, findings.n, NULL, &cascade, NULL), ND_OK);
    assert_int_equal(cascade.n, 2);
    assert_int_equal(cascade.n_roots + cascade.n_followers + cascade.n_unplaced, 2);
    nd_failure_cascade_deinit(&cascade);
    nd_log_findings_deinit(&findings);
    nd_strbuf_deinit(&log);
}

static void lines_of_one_operator_are_one_failure(void **state)
{
    (void)state;
    struct nd_log_findings findings;
    struct nd_failure_cascade cascade;
    read_text("op_registry_prepare.cc:132:WARNING:No constructible op for 0x404c00000014 "
              "'q::ForceFormat_Crouton' (42 c)\n"
              "graph_prepare.cc:211::ERROR:could not create op: q::ForceFormat_Crouton\n"
              "graph_prepare.cc:213::ERROR:Op creation failure, op id=0x404c00000014 (q::ForceFormat_Crouton) "
              "total_inputs=1\n"
              "graph_prepare.cc:1878::ERROR:Op 0x404c00000014 preparation failed with err:-1\n"
              "<E> \"DequantizeLinear_token_11\" generated: could not create op\n"
              "<E> RouterX86 graph prepare failed 12\n",
              &findings);
    assert_int_equal(findings.n, 6);
    assert_int_equal(nd_failure_cascade_find(findings.items, findings.n, NULL, &cascade, NULL), ND_OK);
    assert_int_equal(cascade.n, 1);
    assert_int_equal(cascade.n_roots, 1);
    assert_string_equal(cascade.failures[0].op, "q::ForceFormat_Crouton");
    assert_string_equal(cascade.failures[0].log_node, "DequantizeLinear_token_11");
    nd_failure_cascade_deinit(&cascade);
    nd_log_findings_deinit(&findings);
}

static void nodes_are_found_only_where_their_name_is_certain(void **state)
{
    (void)state;
    static const char *const names[] = {"conv", "conv_1", "norm", "block/lstm"};
    static const struct {
        const char *log_node;
        size_t node;
    } cases[] = {{"conv", 0},
                 {"conv_1", 1},
                 {"conv_token_7", 0},
                 {"conv_1_token_12", 1},
                 {"conv_elu", 0},
                 {"norm_elu", 2},
                 {"block/lstm_cell0_fwd", 3},
                 {"conv_1_elu", SIZE_MAX},
                 {"node_token_15", SIZE_MAX},
                 {"", SIZE_MAX},
                 {"normal", SIZE_MAX}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_true(nd_failure_find_node(names, 4, cases[i].log_node) == cases[i].node);
}

static void unknown_lines_with_an_error_code_are_errors(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        int64_t code; /* 0: the line has none */
        enum nd_log_severity severity;
    } rows[] = {
        {"nobody knows: something failed with err 0x138b", 0x138b, ND_LOG_BAD},
        {"[ERROR] new thing: Error code: 4711 at here.cc:3", 4711, ND_LOG_BAD},
        {"E tag: cannot do it, error = -22", -22, ND_LOG_BAD},
        {"QnnNew_call done. status 0x1771", 0x1771, ND_LOG_BAD},
        {"[WARNING] [Qnn ExecuTorch]:  <W> Failed to create new env handle with error 1100", 1100,
         ND_LOG_WARNING},
    };
    static const char *const harmless[] = {
        "QnnDevice_getFuture done with status 0x0",
        "done, err: 0",
        "no error 404.5 found",
        "largest error 1e-07 of 3",
        "error 5 % of values",
        "HTTP status 200",
        "terror 1002",
        "error 12ms late",
        "mean error: 0.25",
        "QNN_COMMON_NO_ERROR",
    };
    struct nd_log_findings findings;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        read_text(rows[i].line, &findings);
        assert_int_equal(findings.n, 1);
        assert_int_equal(findings.items[0].kind, ND_LOG_ERROR);
        assert_int_equal(findings.items[0].severity, rows[i].severity);
        assert_true(findings.items[0].has_code);
        assert_int_equal(findings.items[0].code, rows[i].code);
        nd_log_findings_deinit(&findings);
    }
    read_text("unheard of: QNN_COMMON_ERROR_SYSTEM_COMMUNICATION", &findings);
    assert_int_equal(findings.items[0].kind, ND_LOG_ERROR);
    nd_log_findings_deinit(&findings);
    for (size_t i = 0; i < sizeof harmless / sizeof harmless[0]; i++) {
        read_text(harmless[i], &findings);
        if (findings.n > 0)
            fail_msg("an error: %s", harmless[i]);
        nd_log_findings_deinit(&findings);
    }
}

/* What speaks of an error, and what only looks like it. */
static void words_for_errors_count_unless_they_are_denied(void **state)
{
    (void)state;
    static const char *const errors[] = {
        "[acme] level=error graph 0: gave up",
        "[acme] graph 0 could not be placed",
        "E RKNN: [01:19:04.510] 6, 1",
        "E0612 10:00:00.1 42 runner.cc:7] stuck",
        "11-21 20:33:01.123  1234  1235 E acme  : no tiles left",
        "[ ERROR ] 0 of 5 tiles placed",
        "2026-01-01 10:00:00,1 - ERROR - tiles",
        "ValueError: bad shape",
        "java.lang.IllegalStateException: closed",
        "load returned ACME_ERR_TILES",
        "kAcmeStatusErrorNotFound returned",
        "graph 0 failed",
        "3 errors seen",
        "load_error: no such model",
        "error_code=5",
        "ret=-22 from open",
        "device does not support int4",
    };
    static const char *const harmless[] = {
        "12 runs, 0 errors, 0 failed",
        "errors: 0, failed=0, fail: none",
        "no error, no failure",
        "without any error",
        "non-fatal notice",
        "error_code=0",
        "error code: 0x0",
        "on_error=stop, error_handler=log",
        "wrote /data/error/out.bin",
        "see error_log.txt",
        "errors.cc:30] ready",
        "max error 3 LSB, mean error: 0.1",
        "perplexity error +/- 0.04",
        "Fallback to CPU: disabled",
        "cpu fallback is off",
        "may fall back to CPU if no NPU is there",
        "ret=0",
        "failsafe mode on, failover ready",
        "I am fine: stderr is empty",
    };
    struct nd_log_findings findings;
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
        read_text(errors[i], &findings);
        if (findings.n != 1 || findings.items[0].kind != ND_LOG_ERROR)
            fail_msg("no error: %s", errors[i]);
        nd_log_findings_deinit(&findings);
    }
    for (size_t i = 0; i < sizeof harmless / sizeof harmless[0]; i++) {
        read_text(harmless[i], &findings);
        if (findings.n > 0)
            fail_msg("%s: %s", nd_log_kind_name(findings.items[0].kind), harmless[i]);
    }
}

/* nodes, on_cpu and total: as the verdict has them. */
static void logs_are_judged_altogether(void **state)
{
    (void)state;
    static const struct {
        const char *log;
        enum nd_log_outcome outcome;
        double on_cpu, total;
        size_t n_refused;
    } rows[] = {
        {"nothing known\n", ND_LOG_NOT_UNDERSTOOD, 0, 0, 0},
        {"Replacing 9 out of 12 node(s) with delegate (TfLiteXNNPackDelegate)\n", ND_LOG_ON_CPU, 9, 12, 0},
        {"loading libQnnHtp.so\nReplacing 9 out of 12 node(s) with delegate (TfLiteXNNPackDelegate)\n",
         ND_LOG_FELL_BACK, 9, 12, 0},
        {"Replacing 9 out of 12 node(s) with delegate (TfLiteQnnDelegate)\n", ND_LOG_FELL_BACK, 3, 12, 0},
        {"Replacing 12 out of 12 node(s) with delegate (TfLiteQnnDelegate)\n", ND_LOG_OK, 0, 0, 0},
        {"number of nodes in the graph: 60, number of nodes supported by QNN: 58\n", ND_LOG_ON_CPU, 2, 60, 0},
        {"number of nodes in the graph: 60, number of nodes supported by QNN: 20\n", ND_LOG_FELL_BACK, 40, 60,
         0},
        {"op a will fall back to the CPU\n", ND_LOG_FELL_BACK, 0, 0, 0},
        {"backendValidateOpConfig() failed for node `a` of type `Lrn` with error code 3110\n"
         "Failed to validate op a with error 0xc26\n"
         "backendValidateOpConfig() failed for node `b` of type `Lrn` with error code 3110\n",
         ND_LOG_FELL_BACK, 0, 0, 2},
        {"backendValidateOpConfig() failed for node `a` of type `Lrn` with error code 3110\n"
         " All nodes placed on [QNNExecutionProvider]. Number of nodes: 1\n",
         ND_LOG_OK, 0, 0, 0},
        {"acme failed\n", ND_LOG_UNKNOWN_ERRORS, 0, 0, 0},
        {"acme failed\nrknn_run fail! ret=-1\n", ND_LOG_FAILED, 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct nd_log_findings findings;
        struct nd_log_verdict verdict;
        read_text(rows[i].log, &findings);
        nd_log_judge(findings.items, findings.n, findings.n > 0, &verdict);
        if (verdict.outcome != rows[i].outcome)
            fail_msg("%s: %s", nd_log_outcome_name(verdict.outcome), rows[i].log);
        assert_f64_bits(verdict.on_cpu, rows[i].on_cpu);
        assert_f64_bits(verdict.total, rows[i].total);
        assert_int_equal(verdict.n_refused, rows[i].n_refused);
        nd_log_findings_deinit(&findings);
    }
}

static void codes_have_the_names_of_the_headers(void **state)
{
    (void)state;
    assert_string_equal(nd_log_code_symbol(1002), "QNN_COMMON_ERROR_MEM_ALLOC");
    assert_string_equal(nd_log_code_symbol(6020), "QNN_GRAPH_ERROR_CREATE_FAILED");
    assert_string_equal(nd_log_code_symbol(7), "");
    for (int k = 0; k < ND_LOG_N_KINDS; k++) {
        enum nd_log_kind kind;
        assert_true(nd_log_kind_from_name(nd_log_kind_name((enum nd_log_kind)k), &kind));
        assert_int_equal(kind, k);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pattern_matches_its_line_and_not_the_other),
        cmocka_unit_test(captures_are_what_the_line_says),
        cmocka_unit_test(validation_takes_its_node_and_reason_from_the_lines_behind),
        cmocka_unit_test(logcat_is_matched_by_text_and_not_by_tag),
        cmocka_unit_test(colours_control_bytes_and_foreign_bytes_do_no_harm),
        cmocka_unit_test(utf16_is_recognised_by_its_mark_however_it_is_cut),
        cmocka_unit_test(empty_logs_and_single_bytes_are_read),
        cmocka_unit_test(long_lines_are_cut_and_counted),
        cmocka_unit_test(mutated_lines_are_read_alike_however_they_are_cut),
        cmocka_unit_test(large_logs_are_read_in_bounded_memory),
        cmocka_unit_test(one_root_and_its_followers_are_told_apart_by_the_graph),
        cmocka_unit_test(root_is_found_although_a_follower_is_logged_first),
        cmocka_unit_test(ids_in_the_log_tell_followers_without_a_graph),
        cmocka_unit_test(very_many_failures_are_cut_off),
        cmocka_unit_test(circles_in_a_log_end),
        cmocka_unit_test(lines_of_one_operator_are_one_failure),
        cmocka_unit_test(nodes_are_found_only_where_their_name_is_certain),
        cmocka_unit_test(unknown_lines_with_an_error_code_are_errors),
        cmocka_unit_test(words_for_errors_count_unless_they_are_denied),
        cmocka_unit_test(logs_are_judged_altogether),
        cmocka_unit_test(codes_have_the_names_of_the_headers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
