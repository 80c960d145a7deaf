/* How many samples are read at once, and by how many threads, so that the evaluation stays within its memory.
 */
#include "core/processes/parallel.h"
#include "explain/evaluate/packed.h"
#include "explain/plan/plan.h"
#include "explain/plan/reader.h"

/* What one thread keeps of the sample at hand, and of each sample of a block that it reads. */
struct need {
    double thread_bytes, sample_bytes;
    double single_bytes; /* of a sample, where devices are read one after another */
};

bool nd_plan_reads_together(const struct nd_plan *plan, size_t step)
{
    return plan->steps[step].is_model_output || plan->steps[step].taken_from != SIZE_MAX;
}

static void add_codes(const struct nd_plan *plan, size_t step, struct need *need)
{
    double most = 0, sum = 0;
    for (size_t d = 0; d < plan->n_devices; d++) {
        const struct nd_plan_source *source = &plan->sources[d];
        if (source->same_as != d || source->edges == NULL || source->edges[step] == SIZE_MAX)
            continue;
        double bytes = (double)source->sample_bytes[step];
        sum += bytes;
        most = bytes > most ? bytes : most;
    }
    need->sample_bytes += sum;
    need->single_bytes += nd_plan_reads_together(plan, step) ? sum : most;
}

static struct need need_of(const struct nd_plan *plan)
{
    /* The reference, and the reference with a device's error, both packed; of floats arrays of doubles, which
     * the examination of floats has besides. The error of quantisation is doubles. Those of the step at hand
     * (the values of the graph, of programs) are as large as some steps together: the largest 16 times,
     * measured with three convolutions of one size (tests/e2e/test_explain_memory.py: 20 MiB more for each
     * thread). */
    enum { PACKED = 2, OF_FLOATS = 3, OF_LARGEST = 16 };
    struct need need = {.thread_bytes = 0};
    double largest = 0;
    for (size_t s = 0; s < plan->n_steps; s++) {
        size_t n = 0;
        if (nd_shape_n_elems(&plan->shapes[s], &n, NULL) != ND_OK)
            continue;
        double bytes = (double)n * sizeof(double);
        size_t width = nd_packed_width(nd_plan_edge(plan, s)->dtype);
        need.thread_bytes += plan->steps[s].has_float ? bytes : 0;
        need.thread_bytes += width < sizeof(double) ? (double)(n * width * PACKED) : bytes * OF_FLOATS;
        largest = bytes > largest ? bytes : largest;
        add_codes(plan, s, &need);
    }
    need.thread_bytes += OF_LARGEST * largest;
    return need;
}

static size_t most_of(const struct need *need)
{
    double most = ND_READER_BLOCK_BYTES / (need->sample_bytes > 1 ? need->sample_bytes : 1);
    return most < ND_READER_BLOCK ? ND_READER_BLOCK : most > ND_READER_MOST ? ND_READER_MOST : (size_t)most;
}

void nd_plan_take_memory(struct nd_plan *plan, const struct nd_explain_options *options)
{
    const size_t default_bytes = (size_t)1 << 30;
    plan->memory_bytes = (double)(options->memory_bytes > 0 ? options->memory_bytes : default_bytes);
}

size_t nd_plan_share(const struct nd_plan *plan, size_t n)
{
    return (size_t)(plan->memory_bytes / (double)n);
}

static double kept_bytes(const struct nd_exact_graph *graph)
{
    return graph != NULL ? (double)nd_exact_graph_kept_bytes(graph) : 0;
}

/* The part of the memory for what need_of does not count: weights as programs of units take them, libraries,
 * gaps between arrays. Of 1024 MiB it was 48 (PP-OCR recognition W8A8), 80 (YOLOv8n W8A8) and 174 MiB (YOLOv8n
 * W8A16), 2026-11-23. */
static const double not_counted = 3.0 / 16;

/* Tensors of captures that are decoded once: of what is left at most this part of the memory. Chosen. */
enum { OF_HELD = 16 };

void nd_plan_fit(struct nd_plan *plan, const struct nd_explain_options *options)
{
    double limit =
        plan->memory_bytes * (1 - not_counted) - kept_bytes(plan->graph) - kept_bytes(plan->float_graph);
    size_t n = options->n_threads > 0 ? options->n_threads : nd_parallel_n_threads();
    const struct need need = need_of(plan);
    n = n > plan->n_samples ? plan->n_samples : n;
    n = n > 0 ? n : 1;
    size_t block = (plan->n_samples + n - 1) / n; /* every thread gets some */
    size_t most = most_of(&need);
    block = block < 1 ? 1 : block > most ? most : block;
    while (n > 1 && (double)n * (need.thread_bytes + need.single_bytes) > limit)
        n--;
    while (block > 1 && (double)n * (need.thread_bytes + (double)block * need.sample_bytes) > limit)
        block--;
    plan->block = block;
    plan->n_threads = n;
    plan->reads_singly = block == 1;
    double codes = block == 1 ? need.single_bytes : (double)block * need.sample_bytes;
    double left = limit - (double)n * (need.thread_bytes + codes);
    plan->held_bytes = left < plan->memory_bytes / OF_HELD ? left : plan->memory_bytes / OF_HELD;
}
