#include "support/main.h"

/* Files that libhdf5 writes while writes fail: it must not notice, as it does not survive it. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "capture/hdf5/libhdf5.h"
#include "core/files/file.h"

enum { N_SETS = 8, N_VALUES = 700, MAX_BYTES = 64 * 1024, STEP_BYTES = 512 };

static int32_t value_of(int set, int i)
{
    return set * 100003 + i * 7919;
}

static void put_sets(hid_t file)
{
    const hsize_t dims[1] = {N_VALUES};
    int32_t values[N_VALUES];
    for (int set = 0; set < N_SETS; set++) {
        char name[32];
        snprintf(name, sizeof name, "a set with a long name %d", set);
        for (int i = 0; i < N_VALUES; i++)
            values[i] = value_of(set, i);
        hid_t group = H5Gcreate2(file, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
        hid_t space = H5Screate_simple(1, dims, NULL);
        hid_t data = H5Dcreate2(group, "x", H5T_STD_I32LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
        assert_true(group >= 0 && space >= 0 && data >= 0);
        assert_true(H5Dwrite(data, H5T_NATIVE_INT32, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
        assert_true(H5Dclose(data) >= 0 && H5Sclose(space) >= 0 && H5Gclose(group) >= 0);
        assert_true(set % 3 != 1 || H5Fflush(file, H5F_SCOPE_GLOBAL) >= 0);
    }
}

/* Of a file that is not whole only the structure is there. */
static void expect_sets(hid_t file, bool is_whole)
{
    int32_t values[N_VALUES];
    for (int set = 0; set < N_SETS; set++) {
        char name[40];
        snprintf(name, sizeof name, "a set with a long name %d/x", set);
        hid_t data = H5Dopen2(file, name, H5P_DEFAULT);
        assert_true(data >= 0);
        assert_true(H5Dread(data, H5T_NATIVE_INT32, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
        for (int i = 0; is_whole && i < N_VALUES; i++)
            assert_int_equal(values[i], value_of(set, i));
        assert_true(H5Dclose(data) >= 0);
    }
}

/* Whether a write failed, of a file that may have so many bytes. One that is whole is opened again as a writer
 * does. */
static int write_limited(const char *path, size_t n_bytes)
{
    struct rlimit before, limit;
    struct nd_write_target target;
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = (struct rlimit){n_bytes, before.rlim_max};
    nd_write_target_init(&target, fd);
    nd_hdf5_lock();
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    assert_true(access >= 0 && nd_write_driver_set(access, &target) >= 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, access);
    assert_true(file >= 0);
    put_sets(file);
    expect_sets(file, target.error == 0);
    assert_true(H5Fclose(file) >= 0);
    if (target.error == 0) {
        file = H5Fopen(path, H5F_ACC_RDWR, access);
        assert_true(file >= 0);
        expect_sets(file, true);
        assert_true(H5Fclose(file) >= 0);
    }
    assert_true(H5Pclose(access) >= 0);
    nd_hdf5_unlock();
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    int error = target.error;
    nd_write_target_deinit(&target);
    close(fd);
    return error;
}

static void libhdf5_does_not_hear_of_writes_that_fail(void **state)
{
    (void)state;
    char *folder = NULL;
    struct stat whole, limited;
    assert_int_equal(nd_dir_make_temporary(&folder, NULL), ND_OK);
    char *path = nd_path_join(folder, "x.h5");
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(write_limited(path, MAX_BYTES), 0);
    assert_int_equal(stat(path, &whole), 0);
    for (size_t n = 0; n < (size_t)whole.st_size; n += STEP_BYTES) {
        assert_int_equal(write_limited(path, n), EFBIG);
        assert_int_equal(stat(path, &limited), 0);
        assert_true((size_t)limited.st_size <= n);
    }
    /* What libhdf5 reads by itself. */
    assert_int_equal(write_limited(path, (size_t)whole.st_size), 0);
    nd_hdf5_lock();
    hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    assert_true(file >= 0);
    expect_sets(file, true);
    H5Fclose(file);
    nd_hdf5_unlock();
    nd_dir_remove(folder);
    free(folder);
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(libhdf5_does_not_hear_of_writes_that_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
