/* Quantised values that the agent makes of floats. */
#include "support/main.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "devices/agent/agent.h"

/* One tensor, of which a session gave n floats. */
static enum nd_status make(const struct nd_job_tensor *tensor, const float *floats, size_t n,
                           struct nd_agent_codes *qvalues, struct nd_error *err)
{
    const struct nd_output_view view = {
        ND_DTYPE_F32, {.rank = 1, .dims = {(int64_t)n}}, floats, n * sizeof *floats};
    struct nd_job_tensor tensors[] = {*tensor};
    const struct nd_agent_job job = {.tensors = tensors, .n_tensors = 1};
    struct nd_agent agent = {.job = &job, .qvalues = qvalues};
    qvalues->floats = &view;
    enum nd_status status = nd_agent_make_codes(&agent, err);
    qvalues->floats = NULL;
    return status;
}

static int64_t code_at(const struct nd_agent_codes *qvalues, size_t i)
{
    switch (qvalues->view.dtype) {
    case ND_DTYPE_U8:
        return ((const uint8_t *)qvalues->view.data)[i];
    case ND_DTYPE_I8:
        return ((const int8_t *)qvalues->view.data)[i];
    case ND_DTYPE_U16:
        return ((const uint16_t *)qvalues->view.data)[i];
    default:
        return ((const int16_t *)qvalues->view.data)[i];
    }
}

static const struct range {
    enum nd_dtype dtype;
    int64_t low, high;
} ranges[] = {
    {ND_DTYPE_U8, 0, 255}, {ND_DTYPE_I8, -128, 127}, {ND_DTYPE_U16, 0, 65535}, {ND_DTYPE_I16, -32768, 32767}};

/* Every quantised value of every type comes back from the float that DequantizeLinear is defined to make of it,
 * and from neither of the floats beside that one. */
static void every_code_comes_back(void **state)
{
    (void)state;
    enum { N = 65536 };
    float *floats = malloc(N * sizeof *floats);
    assert_non_null(floats);
    srandom(20261124);
    for (size_t trial = 0; trial < 40; trial++) {
        const struct range *range = &ranges[trial % 4];
        int64_t span = range->high - range->low + 1;
        size_t n = (size_t)span;
        const struct nd_job_tensor tensor = {
            .output = (char *)"y",
            .dtype = range->dtype,
            .scale = ldexpf(1 + (float)(random() % 8388608) / 8388608, (int)(random() % 40) - 30),
            .zero_point = range->low + random() % span};
        struct nd_agent_codes qvalues = {0};
        struct nd_error err = {0};
        for (size_t i = 0; i < n; i++)
            floats[i] = (float)(range->low + (int64_t)i - tensor.zero_point) * tensor.scale;
        if (make(&tensor, floats, n, &qvalues, &err) != ND_OK)
            fail_msg("%s", err.message);
        assert_int_equal(qvalues.view.dtype, range->dtype);
        assert_int_equal(qvalues.view.size_bytes, n * nd_dtype_size_bytes(range->dtype));
        assert_int_equal(qvalues.view.shape.dims[0], n);
        for (size_t i = 0; i < n; i++)
            assert_int_equal(code_at(&qvalues, i), range->low + (int64_t)i);
        for (int side = 0; side < 2; side++) {
            size_t at = (size_t)random() % n;
            float whole = floats[at];
            floats[at] = nextafterf(whole, side == 0 ? -INFINITY : INFINITY);
            assert_int_equal(make(&tensor, floats, n, &qvalues, &err), ND_ERR_DEVICE);
            assert_non_null(strstr(err.message, "output 'y'"));
            floats[at] = whole;
        }
        free(qvalues.bytes);
    }
    free(floats);
}

static void what_is_no_code_is_refused(void **state)
{
    (void)state;
    const struct nd_job_tensor tensor = {
        .output = (char *)"y", .dtype = ND_DTYPE_U8, .scale = 0.5f, .zero_point = 10};
    static const float bad[] = {-5.5f, 123.0f, 0.25f, NAN, INFINITY, -INFINITY, 1e30f};
    struct nd_agent_codes qvalues = {0};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(make(&tensor, &bad[i], 1, &qvalues, NULL), ND_ERR_DEVICE);
    const float good[] = {-5.0f, 122.5f, -0.0f};
    assert_int_equal(make(&tensor, good, 3, &qvalues, NULL), ND_OK);
    assert_true(code_at(&qvalues, 0) == 0 && code_at(&qvalues, 1) == 255 && code_at(&qvalues, 2) == 10);
    const struct nd_job_tensor wide = {.output = (char *)"y", .dtype = ND_DTYPE_I32, .scale = 0.5f};
    assert_int_equal(make(&wide, good, 3, &qvalues, NULL), ND_ERR_DEVICE);
    free(qvalues.bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_comes_back),
        cmocka_unit_test(what_is_no_code_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
