#include "support/main.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "capture/read/view.h"
#include "npudiff/core/parse.h"
#include "support/capture_fixture.h"
#include "support/scratch.h"

static char *golden(const char *name)
{
    const char *root = getenv("GOLDEN");
    assert_non_null(root);
    struct nd_strbuf path = {0};
    nd_strbuf_printf(&path, "%s/bad/captures/%s", root, name);
    return nd_strbuf_take(&path);
}

/* h5py wrote it from docs/reference/capture-format.md alone: the format is not what our
 * writer happens to do. */
static void capture_made_by_h5py_is_read(void **state)
{
    (void)state;
    struct nd_error err;
    struct nd_capture *capture = NULL;
    char *path = golden("valid.h5");
    uint8_t qvalues[24];
    uint16_t halves[10];
    fix_ok(nd_capture_open_unchecked(path, &capture, &err), &err);
    assert_int_equal(nd_capture_n_tensors(capture), 2);
    assert_int_equal(nd_capture_find_tensor(capture, "out/1"), 1);
    assert_string_equal(nd_capture_string(capture, "device", "uri"), "cpu");
    assert_int_equal(nd_capture_tensor(capture, 0)->quant.n, 3);
    assert_f32_bits(nd_capture_tensor(capture, 0)->quant.scale[2], 0.125f);
    fix_ok(nd_capture_read_outputs(&(struct nd_probe_values){capture, 0, 0}, 0, 2, qvalues, &err), &err);
    for (size_t i = 0; i < 24; i++)
        assert_int_equal(qvalues[i], i * 7 % 13);
    fix_ok(nd_capture_read_outputs(&(struct nd_probe_values){capture, 0, 1}, 0, 2, halves, &err), &err);
    assert_int_equal(halves[0], 0xbc00); /* -1 and 1 as IEEE halves */
    assert_int_equal(halves[9], 0x3c00);
    /* It has neither true digests nor a content digest, and verifying says so. */
    struct nd_capture_verification found = {.struct_size = sizeof found};
    fix_ok(nd_capture_verify(capture, &found, &err), &err);
    assert_false(found.content_matches);
    assert_int_equal(found.n_tensors, 4);
    assert_int_equal(found.n_wrong, 4);
    assert_string_equal(found.first_wrong, "probe 'p', tensor 'conv', sample 0");
    nd_capture_close(&capture);
    free(path);
}

static void bad_file_is_refused_with_its_reason(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        enum nd_status status;
        int id;
        const char *words; /* in the message */
    } cases[] = {
        {"no such file.h5", ND_ERR_IO, 204, "No such file"},
        {".", ND_ERR_IO, 207, "not a regular file"},
        {"empty.h5", ND_ERR_FORMAT, 703, "the file is empty"},
        {"text.h5", ND_ERR_FORMAT, 703, "not an HDF5 file"},
        {"foreign.h5", ND_ERR_FORMAT, 703, "not a capture"},
        {"cut.h5", ND_ERR_FORMAT, 713, "cut off"},
        {"newer.h5", ND_ERR_UNSUPPORTED, 706, "format version 2 is newer than 1"},
        {"version_zero.h5", ND_ERR_FORMAT, 709, "format version 0"},
        {"status.h5", ND_ERR_FORMAT, 709, "'finished'"},
        {"same_name.h5", ND_ERR_FORMAT, 709, "two tensors are named 'conv'"},
        {"unknown_type.h5", ND_ERR_FORMAT, 709, "unknown type 'float8'"},
        {"quant_count.h5", ND_ERR_FORMAT, 709, "2 scales on axis 0"},
        {"quant_axis.h5", ND_ERR_FORMAT, 709, "3 scales on axis 1"},
        {"too_many_samples.h5", ND_ERR_FORMAT, 709, "3 of 2 samples"},
        {"digests_short.h5", ND_ERR_FORMAT, 709, "has shape 1x1x2 instead of 2x1x2"},
        {"other_type.h5", ND_ERR_FORMAT, 709, "int8 2x3x4 instead of uint8 2x3x4"},
        {"other_shape.h5", ND_ERR_FORMAT, 709, "2x4x3 instead of uint8 2x3x4"},
        {"big_endian.h5", ND_ERR_FORMAT, 709, "neither a number nor"},
        {"compound.h5", ND_ERR_FORMAT, 709, "neither a number nor"},
        {"checksum_filter.h5", ND_ERR_FORMAT, 709, "uses filter 3"},
        {"lzf_filter.h5", ND_ERR_FORMAT, 709, "uses filter 32000"},
        {"odd_chunks.h5", ND_ERR_FORMAT, 709, "not blocks of samples"},
        {"missing_chunk.h5", ND_ERR_FORMAT, 709, "chunk 1 of '/probes/p/outputs/conv' is missing"},
        {"external_data.h5", ND_ERR_FORMAT, 709, "in a different file"},
        {"virtual_data.h5", ND_ERR_FORMAT, 709, "neither contiguous nor chunked"},
        {"never_written.h5", ND_ERR_FORMAT, 709, "the data of '/probes/p/outputs/conv' is missing"},
        {"soft_link.h5", ND_ERR_FORMAT, 709, "link 'name' in '/edges'"},
        {"external_link.h5", ND_ERR_FORMAT, 709, "only hard links"},
        {"vlen_attribute.h5", ND_ERR_FORMAT, 709, "attribute 'note' of '/device'"},
        {"vlen_column.h5", ND_ERR_FORMAT, 709, "'/edges/name'"},
        {"no_digests.h5", ND_ERR_FORMAT, 709, "'/probes/p/digests/conv' is missing"},
        {"no_edges.h5", ND_ERR_FORMAT, 709, "'/edges/name' is missing"},
        {"no_probes.h5", ND_ERR_FORMAT, 709, "group '/probes' is missing"},
        {"stranger.h5", ND_ERR_FORMAT, 709, "3 datasets in 'outputs', but only 2"},
        {"group_for_data.h5", ND_ERR_FORMAT, 709, "is not a dataset"},
        {"scale_attribute.h5", ND_ERR_FORMAT, 709, "contradict the table"},
        {"user_block.h5", ND_ERR_FORMAT, 709, "user block"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct nd_error err = {0};
        struct nd_capture *capture = NULL;
        char *path = golden(cases[i].name);
        enum nd_status status = nd_capture_open(path, &capture, &err);
        if (status != cases[i].status || err.id != cases[i].id || strstr(err.message, cases[i].words) == NULL ||
            strstr(err.message, path) == NULL)
            fail_msg("%s: status %d, id %d, '%s'", cases[i].name, (int)status, err.id, err.message);
        assert_null(capture);
        free(path);
    }
}

/* A file in memory that is changed and put back again. */
struct specimen {
    char *path;
    unsigned char *bytes;
    size_t n_bytes;
    char *dump; /* of the original */
    size_t dump_bytes;
};

static void specimen_init(struct specimen *specimen, int level)
{
    struct nd_error err;
    struct nd_capture *capture = NULL;
    struct nd_strbuf dump = {0};
    void *bytes = NULL;
    specimen->path = nd_path_join(folder, "specimen.h5");
    fix_write(specimen->path, &(struct fix_options){.level = level});
    fix_ok(nd_file_read(specimen->path, 1 << 30, &bytes, &specimen->n_bytes, &err), &err);
    specimen->bytes = bytes;
    fix_ok(nd_capture_open(specimen->path, &capture, &err), &err);
    fix_ok(fix_dump(capture, &dump, &err), &err);
    nd_capture_close(&capture);
    specimen->dump_bytes = dump.len;
    specimen->dump = nd_strbuf_take(&dump);
}

static void specimen_deinit(struct specimen *specimen)
{
    free(specimen->path);
    free(specimen->bytes);
    free(specimen->dump);
}

static void write_bytes(const char *path, const void *bytes, size_t n_bytes)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n_bytes, file), n_bytes);
    assert_int_equal(fclose(file), 0);
}

/* How many mutants ended how. In memory that the children share. */
enum outcome { REFUSED, UNREADABLE, SAME, REPORTED, SILENT, DISAGREEING, N_OUTCOMES };
enum { N_LANES = 4 }; /* processes at once: each waits most of the time */
struct tally {
    size_t at; /* the mutant that is being looked at */
    size_t n[N_OUTCOMES];
    size_t n_library_crashes;
    size_t n_own_crashes;
    size_t n_hangs;
};

/* Views show what reads give, or fail where they fail. */
static bool do_views_agree(const struct nd_capture *capture)
{
    struct nd_error err;
    struct nd_view_scratch scratch = {0};
    bool do_agree = true;
    for (size_t p = 0; p < nd_capture_n_probes(capture); p++)
        for (size_t e = 0; e < nd_capture_n_tensors(capture) && nd_capture_has_outputs(capture, p, e); e++) {
            const struct nd_tensor *tensor = nd_capture_tensor(capture, e);
            size_t n = nd_capture_probe(capture, p)->n_samples, n_bytes = 0;
            const struct nd_probe_values item = {capture, p, e};
            const unsigned char *view = NULL;
            if (nd_shape_size_bytes(&tensor->shape, tensor->dtype, &n_bytes, &err) != ND_OK)
                continue;
            unsigned char *read = malloc(n * n_bytes + 1);
            bool is_read = read != NULL && nd_capture_read_outputs(&(struct nd_probe_values){capture, p, e}, 0,
                                                                   n, read, &err) == ND_OK;
            bool is_seen = nd_capture_view_outputs(&item, 0, n * n_bytes, &scratch, &view, &err) == ND_OK;
            do_agree = do_agree && is_read == is_seen && (!is_read || memcmp(read, view, n * n_bytes) == 0);
            free(read);
        }
    nd_view_scratch_deinit(&scratch);
    return do_agree;
}

static enum outcome examine(const struct specimen *specimen, const char *path)
{
    struct nd_error err;
    struct nd_capture *capture = NULL;
    struct nd_strbuf dump = {0};
    struct nd_capture_verification found = {.struct_size = sizeof found};
    enum outcome outcome = REFUSED;
    if (nd_capture_open_unchecked(path, &capture, &err) != ND_OK)
        return REFUSED;
    bool is_read = fix_dump(capture, &dump, &err) == ND_OK;
    bool is_same = dump.len == specimen->dump_bytes && memcmp(dump.text, specimen->dump, dump.len) == 0;
    bool is_verified = nd_capture_verify(capture, &found, &err) == ND_OK;
    if (!is_read)
        outcome = UNREADABLE;
    else if (is_same)
        outcome = SAME;
    else
        outcome = !is_verified || found.n_wrong > 0 || !found.content_matches ? REPORTED : SILENT;
    if (!do_views_agree(capture))
        outcome = DISAGREEING;
    nd_strbuf_deinit(&dump);
    nd_capture_close(&capture);
    return outcome;
}

enum { EXIT_LIBRARY_CRASH = 77, EXIT_OWN_CRASH = 78, EXIT_HANG = 79 };
/* libhdf5 may be busy with a mutant for ever (with some values of memory that it does not initialise): it is
 * stopped after 5 s of processor time, which take long on a busy machine. */
enum { MAX_MUTANT_S = 240 };

/* Whose crash was it? libhdf5 works in a process of its own (hdf5/reading.h), so none may be its. */
static int blame(void)
{
    void *frames[64];
    int n = backtrace(frames, 64);
    for (int i = 0; i < n; i++) {
        Dl_info info;
        if (dladdr(frames[i], &info) != 0 && info.dli_fname != NULL &&
            strstr(info.dli_fname, "libhdf5") != NULL)
            return EXIT_LIBRARY_CRASH;
    }
    return EXIT_OWN_CRASH;
}

static void on_crash(int number)
{
    _exit(number == SIGALRM ? EXIT_HANG : blame());
}

/* AddressSanitizer, when the tests are built with it, calls this before it reports. */
void __asan_on_error(void);
void __asan_on_error(void)
{
    if (blame() == EXIT_LIBRARY_CRASH)
        _exit(EXIT_LIBRARY_CRASH);
}

/* Every N_LANES-th mutant, from tally->at on. Never returns. */
static void run_mutants(const struct specimen *specimen, struct tally *tally, size_t n_mutants, uint64_t seed)
{
    static const int signals[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGALRM};
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++)
        signal(signals[i], on_crash);
    char name[32];
    snprintf(name, sizeof name, "mutant%zu.h5", tally->at % N_LANES);
    char *path = nd_path_join(folder, name);
    unsigned char *mutant = malloc(specimen->n_bytes);
    if (path == NULL || mutant == NULL)
        _exit(EXIT_OWN_CRASH);
    for (; tally->at < n_mutants; tally->at += N_LANES) {
        uint64_t random = seed + tally->at;
        memcpy(mutant, specimen->bytes, specimen->n_bytes);
        size_t n_flips = 1 + fix_random(&random) % 2;
        for (size_t i = 0; i < n_flips; i++) {
            size_t at = fix_random(&random) % specimen->n_bytes;
            if (fix_random(&random) % 2 == 0)
                mutant[at] ^= (unsigned char)(1u << (fix_random(&random) % 8));
            else
                mutant[at] = (unsigned char)fix_random(&random);
        }
        write_bytes(path, mutant, specimen->n_bytes);
        alarm(MAX_MUTANT_S);
        enum outcome outcome = examine(specimen, path);
        alarm(0);
        if (outcome == SILENT)
            print_message("# mutant %zu is wrong and not reported\n", tally->at);
        tally->n[outcome]++;
    }
    free(path);
    _exit(0);
}

/* A child ended before its last mutant: why. */
static void note_end(struct tally *tally, int rc)
{
    int code = WIFEXITED(rc) ? WEXITSTATUS(rc) : 0;
    tally->n_library_crashes += code == EXIT_LIBRARY_CRASH;
    tally->n_hangs += code == EXIT_HANG;
    if (code != EXIT_LIBRARY_CRASH && code != EXIT_HANG) {
        tally->n_own_crashes++;
        print_message("# mutant %zu: wait status %#x\n", tally->at, (unsigned)rc);
    }
    tally->at += N_LANES;
}

/* Children look at the mutants; after a crash a new child goes on with the next one. */
static void look_at_mutants(const struct specimen *specimen, struct tally *lanes, size_t n_mutants,
                            uint64_t seed)
{
    size_t n_running = 0;
    pid_t children[N_LANES] = {0}; /* not in memory that they share */
    for (size_t i = 0; i < N_LANES; i++)
        lanes[i].at = i;
    do {
        for (size_t i = 0; i < N_LANES; i++)
            if (children[i] == 0 && lanes[i].at < n_mutants) {
                fflush(NULL);
                children[i] = fork();
                assert_true(children[i] >= 0);
                if (children[i] == 0)
                    run_mutants(specimen, &lanes[i], n_mutants, seed);
                n_running++;
            }
        int rc = 0;
        pid_t child = wait(&rc);
        assert_true(child > 0);
        n_running--;
        for (size_t i = 0; i < N_LANES; i++)
            if (children[i] == child) {
                children[i] = 0;
                if (!WIFEXITED(rc) || WEXITSTATUS(rc) != 0)
                    note_end(&lanes[i], rc);
            }
    } while (n_running > 0);
}

static void add_tally(struct tally *sum, const struct tally *lane)
{
    for (size_t k = 0; k < N_OUTCOMES; k++)
        sum->n[k] += lane->n[k];
    sum->n_library_crashes += lane->n_library_crashes;
    sum->n_own_crashes += lane->n_own_crashes;
    sum->n_hangs += lane->n_hangs;
}

static void check_mutants(int level, size_t n_mutants)
{
    struct specimen specimen;
    uint64_t seed = 7001;
    const char *given = getenv("ND_SEED");
    if (given != NULL)
        assert_true(nd_parse_u64(given, &seed));
    print_message("# seed %llu\n", (unsigned long long)seed);
    specimen_init(&specimen, level);
    struct tally sum = {0}, *tally = &sum;
    struct tally *lanes =
        mmap(NULL, N_LANES * sizeof *lanes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    void *frame;
    assert_true(lanes != MAP_FAILED);
    assert_true(backtrace(&frame, 1) >= 0); /* its first call allocates, which a handler must not */
    look_at_mutants(&specimen, lanes, n_mutants, seed);
    for (size_t i = 0; i < N_LANES; i++)
        add_tally(&sum, &lanes[i]);
    munmap(lanes, N_LANES * sizeof *lanes);
    size_t n_seen = sum.n_library_crashes + sum.n_own_crashes + sum.n_hangs;
    for (size_t k = 0; k < N_OUTCOMES; k++)
        n_seen += sum.n[k];
    assert_int_equal(n_seen, n_mutants);
    print_message("# level %d, %zu bytes: %zu refused, %zu unreadable, %zu the same, %zu reported, %zu silent; "
                  "libhdf5 crashed %zu times, hung %zu times\n",
                  level, specimen.n_bytes, tally->n[REFUSED], tally->n[UNREADABLE], tally->n[SAME],
                  tally->n[REPORTED], tally->n[SILENT], tally->n_library_crashes, tally->n_hangs);
    assert_int_equal(tally->n_own_crashes, 0);
    assert_int_equal(tally->n_library_crashes, 0);
    assert_int_equal(tally->n_hangs, 0);
    assert_int_equal(tally->n[SILENT], 0);
    assert_int_equal(tally->n[DISAGREEING], 0);
    /* Most of a small HDF5 file is empty space of its trees; but each way of noticing must have been seen. */
    assert_true(tally->n[REPORTED] > 0 && tally->n[REFUSED] > n_mutants / 50 && tally->n[SAME] > 0);
    assert_true(level == 0 || tally->n[UNREADABLE] > 0);
    specimen_deinit(&specimen);
}

static void bytes_flipped_in_plain_capture_are_noticed(void **state)
{
    (void)state;
    check_mutants(0, 1500);
}

static void bytes_flipped_in_deflated_capture_are_noticed(void **state)
{
    (void)state;
    check_mutants(6, 1500);
}

/* Every byte that a tensor, a table or an attribute is stored in: none may change unnoticed. */
static void byte_of_every_tensor_is_covered_by_a_digest(void **state)
{
    (void)state;
    struct specimen specimen;
    specimen_init(&specimen, 0);
    size_t n_found = 0;
    for (size_t p = 0; p < FIX_PROBES; p++)
        for (size_t e = 0; e < FIX_BIG; e++) {
            unsigned char tensor[64];
            size_t n_bytes = fix_sample_bytes(&fix_tensors[e]);
            fix_output(tensor, p, e, 1, 0);
            unsigned char *at = memmem(specimen.bytes, specimen.n_bytes, tensor, n_bytes);
            assert_non_null(at);
            for (size_t i = 0; i < n_bytes; i++) {
                struct nd_error err;
                struct nd_capture *capture = NULL;
                struct nd_capture_verification found = {.struct_size = sizeof found};
                char want[256];
                at[i] ^= 0x10;
                write_bytes(specimen.path, specimen.bytes, specimen.n_bytes);
                fix_ok(nd_capture_open(specimen.path, &capture, &err), &err);
                fix_ok(nd_capture_verify(capture, &found, &err), &err);
                assert_int_equal(found.n_wrong, 1);
                assert_true(found.content_matches);
                snprintf(want, sizeof want, "probe '%s', tensor '%s', sample 1", fix_probes[p].name,
                         fix_tensors[e].name);
                assert_string_equal(found.first_wrong, want);
                nd_capture_close(&capture);
                at[i] ^= 0x10;
                n_found++;
            }
        }
    assert_true(n_found > 50);
    specimen_deinit(&specimen);
}

static void text_changed_in_a_table_or_attribute_is_reported(void **state)
{
    (void)state;
    static const char *const texts[] = {"htp-sim:sm8650", "MatMul",           "com.microsoft",
                                        "/data/p 2.npz",  "0123456789abcdef", "line 1",
                                        "conv/1",         "q::linearclip",    "could not"};
    struct specimen specimen;
    specimen_init(&specimen, 6);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct nd_error err;
        struct nd_capture *capture = NULL;
        struct nd_capture_verification found = {.struct_size = sizeof found};
        unsigned char *at = memmem(specimen.bytes, specimen.n_bytes, texts[i], strlen(texts[i]));
        assert_non_null(at);
        at[1] ^= 1;
        write_bytes(specimen.path, specimen.bytes, specimen.n_bytes);
        assert_int_equal(nd_capture_open(specimen.path, &capture, &err), ND_ERR_FORMAT);
        assert_int_equal(err.id, ND_E_CAPTURE_DIGEST);
        fix_ok(nd_capture_open_unchecked(specimen.path, &capture, &err), &err);
        fix_ok(nd_capture_verify(capture, &found, &err), &err);
        assert_false(found.content_matches);
        nd_capture_close(&capture);
        at[1] ^= 1;
    }
    specimen_deinit(&specimen);
}

/* Findings of a log that is not there, and of no known severity. */
static void contradictory_findings_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *changed, *said;
    } cases[] = {{"qnn/htp.log", "qnn/htp.lag", "which is not stored"},
                 {"failure", "failurf", "severity 'failurf'"}};
    struct specimen specimen;
    specimen_init(&specimen, 6);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct nd_error err;
        struct nd_capture *capture = NULL;
        size_t n = strlen(cases[i].text), n_refused = 0;
        /* It stands in several places; only one of them is the table. */
        for (unsigned char *at = specimen.bytes;
             (at = memmem(at, specimen.n_bytes - (size_t)(at - specimen.bytes), cases[i].text, n)) != NULL;
             at += n) {
            memcpy(at, cases[i].changed, n);
            write_bytes(specimen.path, specimen.bytes, specimen.n_bytes);
            n_refused += nd_capture_open(specimen.path, &capture, &err) == ND_ERR_FORMAT &&
                         strstr(err.message, cases[i].said) != NULL;
            nd_capture_close(&capture);
            memcpy(at, cases[i].text, n);
        }
        assert_int_equal(n_refused, 1);
    }
    specimen_deinit(&specimen);
}

/* Every opening waits for a process of its own: several children, so that they wait at the same time (no
 * threads: a fork beside them is not safe under a sanitizer). Each has a file that only becomes shorter, which
 * costs nothing to write. */
enum { N_CUTTERS = 8, MAX_CUTS = 2048 + 4096 };
struct cutting {
    size_t lengths[MAX_CUTS]; /* falling */
    size_t n;
    unsigned char is_cut[MAX_CUTS];
};

static bool is_refused_when_cut(const char *path, size_t length, unsigned char *is_cut)
{
    struct nd_error why = {0};
    struct nd_capture *capture = NULL;
    if (truncate(path, (off_t)length) != 0)
        return false;
    enum nd_status status = nd_capture_open(path, &capture, &why);
    *is_cut = why.id == 713;
    nd_capture_close(&capture);
    if (status == ND_ERR_FORMAT && why.message[0] != '\0')
        return true;
    fprintf(stderr, "# of %zu bytes: status %d, '%s'\n", length, (int)status, why.message);
    return false;
}

static void run_cutter(const struct specimen *specimen, struct cutting *cutting, size_t cutter)
{
    char name[16];
    bool is_right = true;
    snprintf(name, sizeof name, "cut%zu.h5", cutter);
    char *path = in_folder(name);
    write_bytes(path, specimen->bytes, specimen->n_bytes);
    for (size_t i = cutter; i < cutting->n; i += N_CUTTERS)
        is_right = is_refused_when_cut(path, cutting->lengths[i], &cutting->is_cut[i]) && is_right;
    _exit(is_right ? 0 : 1);
}

static void file_cut_off_is_refused(void **state)
{
    (void)state;
    struct specimen specimen;
    size_t n_cut = 0, n_right = 0;
    specimen_init(&specimen, 6);
    struct cutting *cutting =
        mmap(NULL, sizeof *cutting, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(cutting != MAP_FAILED);
    for (size_t n = 0; n < specimen.n_bytes; n += n < 2048 ? 1 : 61)
        cutting->n++;
    assert_in_range(cutting->n, 2049, MAX_CUTS);
    for (size_t i = cutting->n, n = 0; i-- > 0; n += n < 2048 ? 1 : 61)
        cutting->lengths[i] = n;
    for (size_t i = 0; i < N_CUTTERS; i++) {
        fflush(NULL);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0)
            run_cutter(&specimen, cutting, i);
    }
    for (size_t i = 0; i < N_CUTTERS; i++) {
        int rc = 0;
        assert_true(wait(&rc) > 0);
        n_right += WIFEXITED(rc) && WEXITSTATUS(rc) == 0;
    }
    assert_int_equal(n_right, N_CUTTERS);
    for (size_t i = 0; i < cutting->n; i++)
        n_cut += cutting->is_cut[i];
    print_message("# %zu lengths, of %zu libhdf5 says that the file is cut off\n", cutting->n, n_cut);
    assert_true(n_cut > 100);
    munmap(cutting, sizeof *cutting);
    specimen_deinit(&specimen);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(capture_made_by_h5py_is_read),
        cmocka_unit_test(bad_file_is_refused_with_its_reason),
        cmocka_unit_test(bytes_flipped_in_plain_capture_are_noticed),
        cmocka_unit_test(bytes_flipped_in_deflated_capture_are_noticed),
        cmocka_unit_test(byte_of_every_tensor_is_covered_by_a_digest),
        cmocka_unit_test(text_changed_in_a_table_or_attribute_is_reported),
        cmocka_unit_test(contradictory_findings_are_refused),
        cmocka_unit_test(file_cut_off_is_refused),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
