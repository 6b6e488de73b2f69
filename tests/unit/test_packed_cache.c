/* Packed weights kept in a directory: the same answers, and nothing mapped but what belongs to the checkpoint as it is. */
#include "models/model.h"
#include "models/packed_cache.h"
#include "models/weights.h"
#include "support/checkpoints.h"
#include "support/model_run.h"
#include "support/options.h"
#include "support/scratch.h"
#include "support/test.h"
#include "support/warnings.h"

#include <hearth/hearth.h>

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { IDS = 12, VOCAB_MAX = 512 };

static ht_device *device;
static char directory[512];

static int open_all(void **state) {
    (void)state;
    scratch_make();
    snprintf(directory, sizeof directory, "%s", scratch_path("packed"));
    ht_error err = {0};
    return ht_device_open("cpu", OPTIONS_AT(ht_device_options, with.n_threads = 2), &device, &err) != HT_OK;
}

/* The one entry of the directory, as a path; NULL when there is none. More fail the test. */
static const char *cached_file(void) {
    static char path[1024];
    DIR *d = opendir(directory);
    int n = 0;
    for (const struct dirent *e; d && (e = readdir(d));)
        if (*e->d_name != '.') {
            snprintf(path, sizeof path, "%s/%s", directory, e->d_name);
            n++;
        }
    if (d) closedir(d);
    assert_in_range(n, 0, 1);
    return n ? path : NULL;
}

static void empty(void) {
    const char *path = cached_file();
    if (path) assert_int_equal(unlink(path), 0);
    (void)rmdir(directory);
}

static int close_all(void **state) {
    (void)state;
    empty();
    ht_device_free(device);
    scratch_remove();
    return 0;
}

static ht_model_options cached(void) {
    return OPTIONS(ht_model_options, with.device = device, with.packed_cache = directory);
}

static ht_model *load(const char *path, ht_model_options options) {
    ht_error err = {0};
    ht_model *m;
    if (ht_model_load(path, &options, &m, &err)) fail_msg("%s", err.message);
    return m;
}

static bool is_mapped(const ht_model *m) {
    int64_t n;
    ht_matrix *const *matrix = ht_weights_matrices(m->weights, &n);
    FILE *maps = fopen("/proc/self/maps", "r");
    assert_non_null(maps);
    char line[2048];
    bool found = false;
    while (fgets(line, sizeof line, maps)) {
        unsigned long long begin, end, at = (unsigned long long)(uintptr_t)matrix[0]->packed;
        assert_int_equal(sscanf(line, "%llx-%llx", &begin, &end), 2);
        if (at >= begin && at < end) found = strstr(line, ".packed") && strstr(line, "r--s");
    }
    fclose(maps);
    return found;
}

static void logits_of(const ht_model *m, float *out) {
    int32_t ids[IDS];
    for (int i = 0; i < IDS; i++) ids[i] = (i * 7 + 3) % m->vocab;
    assert_true(m->vocab <= VOCAB_MAX);
    model_run run = model_run_open(m, IDS, 5);
    model_run_feed(&run, ids, IDS, out);
    model_run_close(&run);
}

/* Loads with the cache and compares with a load without; says whether the weights were mapped from a file that was there. */
static bool check_answers(const char *path, ht_precision precision) {
    static float expected[IDS * VOCAB_MAX], found[IDS * VOCAB_MAX];
    memset(expected, 0, sizeof expected);
    memset(found, 0, sizeof found);
    struct stat before = {0}, after;
    const char *file = cached_file();
    if (file) assert_int_equal(stat(file, &before), 0);
    ht_model_options plain = DEFAULTS(ht_model_options), kept = cached();
    plain.device = device;
    plain.precision = kept.precision = precision;
    ht_model *m = load(path, plain);
    assert_false(is_mapped(m));
    logits_of(m, expected);
    ht_model_free(m);
    m = load(path, kept);
    assert_true(is_mapped(m));
    logits_of(m, found);
    ht_model_free(m);
    assert_memory_equal(found, expected, sizeof expected);
    assert_non_null(cached_file());
    assert_int_equal(stat(cached_file(), &after), 0);
    return after.st_ino == before.st_ino;
}

static void same_answers(void **state) {
    (void)state;
    static const char *const models[] = {
        "llama-q4_1.gguf", "gemma3-q5_1.gguf",  "gemma4-experts-q8_0.gguf", "llama-f16.gguf", "llama-fp8-blocks",
        "llama-mlx4-bf16", "gemma2-f16-shards", "gemma4-experts-fp8-rows",  "qwen2-nvfp4",    "llama-llama3-q8_0.gguf"};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        const char *path = tiny_checkpoint(models[i]);
        empty();
        assert_false(check_answers(path, HT_PRECISION_HIGH));
        assert_true(check_answers(path, HT_PRECISION_HIGH));
        assert_true(check_answers(path, HT_PRECISION_FAST)); /* shares the packed form */
    }
    struct stat st;
    assert_int_equal(stat(directory, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    empty();
}

/* ---- a cached file that does not belong to the checkpoint as it is ---- */

static const char *own_model(void) {
    size_t size;
    char *data = file_bytes("tests/golden/tiny/llama-q4_1.gguf", &size);
    scratch_write("model.gguf", data, size);
    free(data);
    return scratch_path("model.gguf");
}

static void overwrite(const char *path, off_t at, const void *bytes, size_t n) {
    int fd = open(path, O_WRONLY);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes, n, at), n);
    close(fd);
}

/* Every kind of change of the checkpoint packs it anew; the answers are always those of the file as it is. */
static void changed_checkpoints(void **state) {
    (void)state;
    const char *path = own_model();
    empty();
    assert_false(check_answers(path, HT_PRECISION_HIGH));
    assert_true(check_answers(path, HT_PRECISION_HIGH));
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    const struct timespec later[2] = {st.st_atim, {st.st_mtim.tv_sec + 1, st.st_mtim.tv_nsec}};
    assert_int_equal(utimensat(AT_FDCWD, path, later, 0), 0);
    assert_false(check_answers(path, HT_PRECISION_HIGH));
    /* Another file in its place, with its size and time: another inode. */
    const char *moved = scratch_path("model.gguf.old");
    assert_int_equal(rename(path, moved), 0);
    own_model();
    assert_int_equal(utimensat(AT_FDCWD, path, later, 0), 0);
    assert_false(check_answers(path, HT_PRECISION_HIGH));
    assert_int_equal(unlink(moved), 0);
    /* The same inode, size and time, other weights: told by sampled rows. */
    size_t size;
    char *data = file_bytes(path, &size);
    for (size_t i = size / 2; i < size; i++) data[i] ^= 1;
    overwrite(path, (off_t)(size / 2), data + size / 2, size - size / 2);
    free(data);
    assert_int_equal(utimensat(AT_FDCWD, path, later, 0), 0);
    assert_false(check_answers(path, HT_PRECISION_HIGH));
    assert_true(check_answers(path, HT_PRECISION_HIGH));
    empty();
}

/* A file with any byte of its header changed, cut short, too long, or with a link or a directory in its place, is not
 * mapped but replaced. */
static void damaged_files(void **state) {
    (void)state;
    const char *path = own_model();
    char file[1024];
    empty();
    assert_false(check_answers(path, HT_PRECISION_HIGH));
    snprintf(file, sizeof file, "%s", cached_file());
    for (off_t at = 0; at < HT_PACKED_HEADER; at += TEST_SLOW ? 1021 : 131) {
        char byte;
        int fd = open(file, O_RDWR);
        assert_true(fd >= 0);
        assert_int_equal(pread(fd, &byte, 1, at), 1);
        byte ^= 4;
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
        close(fd);
        assert_false(check_answers(path, HT_PRECISION_HIGH));
    }
    struct stat st;
    assert_int_equal(stat(file, &st), 0);
    static const off_t lengths[] = {0, 1, HT_PACKED_HEADER, HT_PACKED_AT, -1, 1};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        assert_int_equal(truncate(file, i < 4 ? lengths[i] : st.st_size + lengths[i]), 0);
        assert_false(check_answers(path, HT_PRECISION_HIGH));
    }
    /* A link is replaced itself, and what it leads to stays as it is. */
    const char *elsewhere = scratch_path("elsewhere");
    assert_int_equal(rename(file, elsewhere), 0);
    assert_int_equal(stat(elsewhere, &st), 0);
    ino_t inode = st.st_ino;
    assert_int_equal(symlink(elsewhere, file), 0);
    ht_model_options kept = cached();
    ht_model *m = load(path, kept);
    assert_true(is_mapped(m));
    ht_model_free(m);
    assert_int_equal(lstat(file, &st), 0);
    assert_true(S_ISREG(st.st_mode) && st.st_ino != inode);
    assert_int_equal(unlink(file), 0);
    assert_int_equal(unlink(elsewhere), 0);
    /* Something that cannot be replaced: the model loads all the same, and says why it is not kept. */
    assert_int_equal(mkdir(file, 0700), 0);
    warnings_begin();
    m = load(path, kept);
    assert_false(is_mapped(m));
    ht_model_free(m);
    assert_non_null(strstr(warnings_end(1), "not cached"));
    assert_int_equal(rmdir(file), 0);
    empty();
}

/* ---- the directory ---- */

static void refused(const char *where, const char *word) {
    ht_model *m;
    ht_model_options kept = cached();
    kept.packed_cache = where;
    assert_fails(HT_ERR_IO, word, ht_model_load, "tests/golden/tiny/llama-q4_1.gguf", &kept, &m);
}

static void directories(void **state) {
    (void)state;
    empty();
    assert_int_equal(mkdir(directory, 0755), 0);
    assert_int_equal(chmod(directory, 0755), 0);
    refused(directory, "chmod 700");
    assert_int_equal(chmod(directory, 0720), 0);
    refused(directory, "chmod 700");
    assert_int_equal(rmdir(directory), 0);
    scratch_write("plain", "x", 1);
    refused(scratch_path("plain"), "no directory");
    char below[1024];
    snprintf(below, sizeof below, "%s/below", scratch_path("plain"));
    refused(below, "plain/below");
    refused("/proc/none/here", "cannot be made");
    /* Parents are made, too. */
    snprintf(below, sizeof below, "%s/one/two//", directory);
    ht_model_options kept = cached();
    kept.packed_cache = below;
    ht_model_free(load("tests/golden/tiny/llama-q4_1.gguf", kept));
    struct stat st;
    assert_int_equal(stat(below, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    DIR *d = opendir(below);
    assert_non_null(d);
    int n = 0;
    for (const struct dirent *e; (e = readdir(d));)
        if (*e->d_name != '.') {
            assert_int_equal(unlinkat(dirfd(d), e->d_name, 0), 0);
            n++;
        }
    assert_int_equal(n, 1);
    closedir(d);
    assert_int_equal(rmdir(below), 0);
    snprintf(below, sizeof below, "%s/one", directory);
    assert_int_equal(rmdir(below), 0);
    assert_int_equal(rmdir(directory), 0);
}

/* ---- writing ---- */

/* A disk that is full, as far as a process can make it so: nothing is left behind, and the model loads. */
static void full_disk(void **state) {
    (void)state;
    empty();
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        signal(SIGXFSZ, SIG_IGN);
        const struct rlimit limit = {HT_PACKED_AT + 1000, HT_PACKED_AT + 1000};
        ht_error err = {0};
        ht_model *m;
        ht_model_options kept = DEFAULTS(ht_model_options);
        kept.packed_cache = directory;
        bool good = setrlimit(RLIMIT_FSIZE, &limit) == 0 &&
                    ht_model_load("tests/golden/tiny/llama-q4_1.gguf", &kept, &m, &err) == HT_OK;
        _exit(good ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_null(cached_file());
}

static void cancel_in_second_half(double done, void *user) {
    if (done > 0.5) ht_cancel_request(user);
}

static void cancelled(void **state) {
    (void)state;
    empty();
    ht_cancel flag = {0};
    ht_model_options kept = cached();
    kept.progress = cancel_in_second_half;
    kept.user = &flag;
    kept.cancel = &flag;
    ht_error err = {0};
    ht_model *m;
    assert_int_equal(ht_model_load("tests/golden/tiny/llama-q4_1.gguf", &kept, &m, &err), HT_ERR_CANCELLED);
    assert_null(cached_file());
}

/* What a killed process has left goes with the next writing; what another one is writing stays. */
static void left_over(void **state) {
    (void)state;
    static const char model[] = "tests/golden/tiny/llama-q4_1.gguf";
    empty();
    assert_false(check_answers(model, HT_PRECISION_HIGH));
    char file[1024], dead[1100], alive[1100], other[1100];
    snprintf(file, sizeof file, "%s", cached_file());
    snprintf(dead, sizeof dead, "%s.1-1.tmp", file);
    snprintf(alive, sizeof alive, "%s.2-1.tmp", file);
    snprintf(other, sizeof other, "%s/other.packed.3-1.tmp", directory);
    const char *const all[] = {dead, alive, other};
    int fd = -1;
    for (int i = 0; i < 3; i++) {
        int made = open(all[i], O_CREAT | O_WRONLY, 0600);
        assert_true(made >= 0);
        if (i == 1)
            assert_int_equal(flock(fd = made, LOCK_EX), 0);
        else
            close(made);
    }
    assert_int_equal(unlink(file), 0);
    ht_model_free(load(model, cached()));
    assert_int_not_equal(access(dead, F_OK), 0);
    assert_int_equal(access(alive, F_OK), 0);
    assert_int_equal(access(other, F_OK), 0);
    close(fd);
    unlink(alive);
    unlink(other);
    empty();
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_answers),  cmocka_unit_test(changed_checkpoints),
                                       cmocka_unit_test(damaged_files), cmocka_unit_test(directories),
                                       cmocka_unit_test(full_disk),     cmocka_unit_test(cancelled),
                                       cmocka_unit_test(left_over)};
    return cmocka_run_group_tests(tests, open_all, close_all);
}
