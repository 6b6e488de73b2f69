/* Splitting and merging: the same tensors in files of a size, and in one; logits, metadata and other files stay what they are. */
#include "checkpoint/checkpoint.h"
#include "formats/json.h"
#include "support/checkpoints.h"
#include "support/cpu_device.h"
#include "support/gguf_writer.h"
#include "support/options.h"
#include "support/scratch.h"
#include "support/test.h"

#include <hearth/convert.h>

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

/* ---- splitting ---- */

static ht_status try_split(const char *from, const char *to, int64_t bytes, ht_convert_report *report, ht_error *err) {
    ht_convert_options o = OPTIONS(ht_convert_options, with.max_file_bytes = bytes, with.report = report);
    return ht_convert(from, to, &o, err);
}

static ht_convert_report must_split(const char *from, const char *to, int64_t bytes) {
    ht_error err = {0};
    ht_convert_report report;
    if (try_split(from, to, bytes, &report, &err)) fail_msg("%s: %s", from, err.message);
    return report;
}

/* Name of a part beside `name`.gguf in the scratch directory. */
static const char *part_of(const char *name, int number, int64_t count) {
    static char part[300];
    snprintf(part, sizeof part, "%s-%05d-of-%05d.gguf", name, number, (int)count);
    return scratch_path(part);
}

static int64_t size_of(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 ? (int64_t)st.st_size : -1;
}

/* ---- the same model ---- */

static void same_logits(const char *a, const char *b) { checkpoints_same_logits(a, b, cpu_device, 0); }

/* What is stored under a name: of a quantised weight in several tensors, that tensor alone. */
typedef struct stored {
    const char *type;
    int rank;
    int64_t shape[HT_SAFETENSORS_RANK_MAX];
    const ht_file *file;
    size_t offset, n_bytes;
} stored;

static stored stored_of(const ht_checkpoint_files *c, const ht_stored_tensor *t) {
    stored s = {t->type_name, t->n_dims, {0}, t->file, t->offset, t->n_bytes};
    memcpy(s.shape, t->dims, sizeof s.shape);
    if (c->gguf) return s;
    const ht_safetensor *own = ht_safetensors_at(c->tensors, t->number);
    s = (stored){own->dtype, own->rank, {0}, ht_safetensors_file(c->tensors, own->file), own->offset, own->n_bytes};
    memcpy(s.shape, own->shape, sizeof s.shape);
    return s;
}

static char *bytes_of(const stored *s) {
    ht_error err = {0};
    char *bytes = malloc(s->n_bytes + 1);
    assert_non_null(bytes);
    if (ht_file_read_at(s->file, s->offset, bytes, s->n_bytes, &err)) fail_msg("%s", err.message);
    return bytes;
}

/* Every tensor has the name, type, shape and bytes that it had; in a GGUF file also its place. */
static void same_tensors(const ht_checkpoint_files *a, const ht_checkpoint_files *b) {
    assert_int_equal(ht_checkpoint_n_tensors(a), ht_checkpoint_n_tensors(b));
    for (size_t i = 0; i < ht_checkpoint_n_tensors(a); i++) {
        ht_stored_tensor x, y;
        char name[200];
        ht_checkpoint_tensor_at(a, i, &x);
        snprintf(name, sizeof name, "%.*s", (int)x.name_len, x.name);
        if (!ht_checkpoint_find(b, name, &y)) fail_msg("`%s` is lost", name);
        if (a->gguf) assert_int_equal(y.number, i);
        const stored p = stored_of(a, &x), q = stored_of(b, &y);
        if (strcmp(p.type, q.type) != 0 || p.rank != q.rank || p.n_bytes != q.n_bytes ||
            memcmp(p.shape, q.shape, (size_t)p.rank * sizeof *p.shape) != 0)
            fail_msg("`%s` is %s of %zu bytes", name, q.type, q.n_bytes);
        char *v = bytes_of(&p), *w = bytes_of(&q);
        if (memcmp(v, w, p.n_bytes) != 0) fail_msg("`%s` has other bytes", name);
        free(v);
        free(w);
    }
}

/* Values of `a` are those of `b`, which has `n_more` besides. */
static void same_metadata(const ht_gguf *a, const ht_gguf *b, size_t n_more) {
    assert_int_equal(ht_gguf_n_values(a) + n_more, ht_gguf_n_values(b));
    for (size_t i = 0; i < ht_gguf_n_values(a); i++) {
        const ht_gguf_value *v = ht_gguf_value_at(a, i);
        char key[200];
        snprintf(key, sizeof key, "%.*s", (int)v->key.len, v->key.data);
        const ht_gguf_value *w = ht_gguf_find(b, key);
        if (!w || v->type != w->type || v->item_type != w->item_type || v->items_bytes != w->items_bytes ||
            memcmp(v->items, w->items, v->items_bytes) != 0)
            fail_msg("`%s` is not what it was", key);
    }
}

static void same_checkpoint(const char *before, const char *after) {
    ht_checkpoint_files *a = checkpoint_files(before), *b = checkpoint_files(after);
    same_tensors(a, b);
    if (a->gguf) same_metadata(a->gguf, b->gguf, 1); /* the mark */
    ht_checkpoint_close(a);
    ht_checkpoint_close(b);
}

/* ---- sizes of files ---- */

/* No file is larger than it may be, but for one that holds a single tensor, or of a GGUF file the metadata alone. */
static void check_sizes(const char *path, int64_t most, int64_t n_files) {
    ht_checkpoint_files *c = checkpoint_files(path);
    const int n = c->gguf ? ht_gguf_set_n_parts(c->parts) : ht_safetensors_n_files(c->tensors);
    assert_int_equal(n, n_files);
    for (int i = 0; i < n; i++) {
        const char *file = c->gguf ? ht_gguf_set_part(c->parts, i)->path : ht_safetensors_file(c->tensors, i)->path;
        size_t tensors = 0;
        for (size_t k = 0; k < ht_checkpoint_n_tensors(c); k++) {
            ht_stored_tensor t;
            ht_checkpoint_tensor_at(c, k, &t);
            tensors += !strcmp(stored_of(c, &t).file->path, file);
        }
        if (size_of(file) > most && tensors > 1)
            fail_msg("%s: %d bytes of at most %d, in %d tensors", file, (int)size_of(file), (int)most, (int)tensors);
        assert_true(tensors > 0 || (c->gguf && i == 0));
    }
    ht_checkpoint_close(c);
}

static int64_t bytes_in(const char *path) {
    ht_checkpoint_files *c = checkpoint_files(path);
    int64_t n = 0;
    for (size_t i = 0; i < ht_checkpoint_n_tensors(c); i++) {
        ht_stored_tensor t;
        ht_checkpoint_tensor_at(c, i, &t);
        n += (int64_t)stored_of(c, &t).n_bytes;
    }
    ht_checkpoint_close(c);
    return n;
}

/* ---- every checkpoint ---- */

/* Through parts, smaller parts in a directory, and one file. */
static void there_and_back(const char *from, int64_t most, bool is_file) {
    const char *parts = scratch_path(is_file ? "parts.gguf" : "parts"),
               *whole = scratch_path(is_file ? "whole.gguf" : "whole"), *again = scratch_path("again");
    const ht_convert_report report = must_split(from, parts, most);
    if (report.n_files < 2) fail_msg("%s: one file of at most %d bytes", from, (int)most);
    assert_int_equal(report.n_rounded + report.n_floats + report.n_inexact, 0);
    const char *load = is_file ? part_of("parts", 1, report.n_files) : parts;
    check_sizes(load, most, report.n_files);
    same_logits(from, load);
    assert_int_equal(must_split(load, again, most / 2 + 1).n_files > report.n_files, true);
    assert_int_equal(must_split(again, whole, HT_ONE_FILE).n_files, 1);
    same_checkpoint(from, whole);
}

static void split(const char *name, bool is_file, void *state) {
    static int turn;
    if (!test_takes_today(turn++, 5)) return;
    assert_int_equal(scratch_start(state), 0);
    there_and_back(tiny_checkpoint(name), bytes_in(tiny_checkpoint(name)) / 2, is_file);
    (void)scratch_finish(state);
}

static void every_tiny_checkpoint(void **state) { tiny_checkpoints_each(split, state); }

/* ---- one tensor a file, and one file ---- */

static void a_byte_is_a_tensor_each(void **state) {
    (void)state;
    const char *out = scratch_path("each.gguf");
    const ht_convert_report r = must_split(tiny_checkpoint("llama-q8_0.gguf"), out, 1);
    assert_int_equal(r.n_files, r.n_tensors + 1);
    ht_checkpoint_files *c = checkpoint_files(part_of("each", 1, r.n_files));
    for (int i = 0; i < (int)r.n_files; i++)
        assert_int_equal(ht_gguf_n_tensors(ht_gguf_set_part(c->parts, i)->gguf), i > 0);
    /* Each part says which it is; the first alone has the model's metadata. */
    const ht_gguf *last = ht_gguf_set_part(c->parts, (int)r.n_files - 1)->gguf;
    uint64_t no = 0, count = 0, tensors = 0;
    assert_int_equal(ht_gguf_n_values(last), 4);
    assert_true(ht_gguf_get_u64(last, "split.no", &no) && ht_gguf_get_u64(last, "split.count", &count) &&
                ht_gguf_get_u64(last, "split.tensors.count", &tensors));
    assert_int_equal(no, r.n_files - 1);
    assert_int_equal(count, r.n_files);
    assert_int_equal(tensors, r.n_tensors);
    assert_int_equal(ht_gguf_find(last, "split.no")->type, HT_GGUF_U16);
    assert_int_equal(ht_gguf_find(last, "split.count")->type, HT_GGUF_U16);
    assert_int_equal(ht_gguf_find(last, "split.tensors.count")->type, HT_GGUF_I32);
    ht_checkpoint_close(c);
    same_logits(tiny_checkpoint("llama-q8_0.gguf"), part_of("each", 1, r.n_files));
    const char *single = scratch_path("each");
    const ht_convert_report s = must_split(tiny_checkpoint("llama-f32"), single, 1);
    assert_int_equal(s.n_files, s.n_tensors);
    same_logits(tiny_checkpoint("llama-f32"), single);
}

/* What fits is one file under the name itself, without keys of parts. */
static void what_fits_is_one_file(void **state) {
    (void)state;
    const char *out = scratch_path("one.gguf"), *merged = scratch_path("merged.gguf");
    assert_int_equal(must_split(tiny_checkpoint("llama-q8_0.gguf"), merged, HT_ONE_FILE).n_files, 1);
    assert_int_equal(must_split(tiny_checkpoint("llama-q8_0.gguf"), out, size_of(merged) + 200).n_files, 1);
    assert_int_equal(size_of(out), size_of(merged));
    ht_checkpoint_files *c = checkpoint_files(out);
    assert_null(ht_gguf_find(c->gguf, "split.count"));
    ht_checkpoint_close(c);
    assert_int_equal(
        must_split(tiny_checkpoint("llama-q8_0.gguf"), scratch_path("two.gguf"), size_of(merged) - 1).n_files, 2);
}

static void alignment_is_kept(void **state) {
    (void)state;
    gguf_writer w = gguf_writer_new();
    w.alignment = 128;
    gguf_put_str(&w, "general.architecture", "nobody's");
    for (int i = 0; i < 6; i++) {
        char name[16];
        const float values[3] = {(float)i, 1, 2};
        snprintf(name, sizeof name, "t%d", i);
        gguf_put_tensor(&w, name, HT_W_F32, 1, (int64_t[]){3}, values);
    }
    gguf_write(&w, "from.gguf");
    const char *from = scratch_path("from.gguf"), *to = scratch_path("to.gguf"), *back = scratch_path("back.gguf");
    const ht_convert_report r = must_split(from, to, 700); /* of a model that nobody knows */
    assert_true(r.n_files > 1);
    check_sizes(part_of("to", 1, r.n_files), 700, r.n_files);
    ht_checkpoint_files *c = checkpoint_files(part_of("to", 1, r.n_files));
    for (int i = 0; i < (int)r.n_files; i++) {
        uint64_t alignment = 0;
        assert_true(ht_gguf_get_u64(ht_gguf_set_part(c->parts, i)->gguf, "general.alignment", &alignment));
        assert_int_equal(alignment, 128);
    }
    for (size_t i = 0; i < 6; i++) {
        ht_stored_tensor t;
        ht_checkpoint_tensor_at(c, i, &t);
        assert_int_equal(t.offset % 128, 0);
    }
    ht_checkpoint_close(c);
    (void)must_split(part_of("to", 2, r.n_files), back, HT_ONE_FILE); /* any part is the model */
    same_checkpoint(from, back);
}

/* ---- safetensors ---- */

static void groups_stay_together(void **state) {
    (void)state;
    static const char *const names[] = {"llama-mlx4-bf16", "gemma4-experts-mlx8-bf16", "qwen3-moe-mlx4-bf16",
                                        "qwen3-moe-mxfp8"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        int n = 0;
        const char *out = scratch_path(names[i]);
        assert_true(must_split(tiny_checkpoint(names[i]), out, bytes_in(tiny_checkpoint(names[i])) / 5).n_files > 3);
        ht_checkpoint_files *c = checkpoint_files(out);
        for (size_t k = 0; k < ht_checkpoint_n_tensors(c); k++) {
            const ht_safetensor *weight = ht_safetensors_at(c->tensors, k), *scales;
            const char *end = strstr(weight->name, ".weight");
            char name[200];
            if (!end) continue;
            snprintf(name, sizeof name, "%.*s.scales", (int)(end - weight->name), weight->name);
            if (!(scales = ht_safetensors_find(c->tensors, name))) continue;
            assert_int_equal(weight->file, scales->file);
            n++;
        }
        assert_true(n > 3);
        ht_checkpoint_close(c);
    }
}

/* The index of several files; other files are kept, and a merged checkpoint has none. */
static void directories_keep_their_files(void **state) {
    (void)state;
    const char *from = scratch_path("from"), *to = scratch_path("to"), *back = scratch_path("back");
    (void)must_split(tiny_checkpoint("gemma2-f16-shards"), from, HT_ONE_FILE);
    scratch_write("from/README.md", "read me", 7);
    static const char stale[] =
        "{\"metadata\": {\"total_parameters\": 7}, \"weight_map\": {\"x\": \"gone.safetensors\"}}";
    scratch_write("from/model.safetensors.index.json", stale, sizeof stale - 1);
    const ht_convert_report r = must_split(from, to, 25000);
    assert_int_equal(r.n_files, 5);
    ht_json *index;
    ht_error err = {0};
    if (ht_json_read(scratch_path("to/model.safetensors.index.json"), 1 << 20, &index, &err))
        fail_msg("%s", err.message);
    ht_json *metadata = ht_json_object_get(index, "metadata"), *map = ht_json_object_get(index, "weight_map");
    assert_int_equal(ht_json_integer_value(ht_json_object_get(metadata, "total_size")), r.bytes);
    assert_int_equal(ht_json_integer_value(ht_json_object_get(metadata, "total_parameters")), 7);
    assert_int_equal(ht_json_object_size(map), r.n_tensors);
    ht_checkpoint_files *c = checkpoint_files(to);
    const char *name;
    ht_json *file;
    ht_json_object_foreach(map, name, file) {
        const ht_safetensor *t = ht_safetensors_find(c->tensors, name);
        assert_non_null(t);
        assert_string_equal(ht_base_name(ht_safetensors_file(c->tensors, t->file)->path), ht_json_string_value(file));
    }
    assert_string_equal(ht_safetensors_metadata(c->tensors, "format"), "pt");
    ht_checkpoint_close(c);
    ht_json_decref(index);
    size_t n;
    char *text = scratch_read("to/README.md", &n);
    assert_memory_equal(text, "read me", 7);
    free(text);
    assert_true(size_of(scratch_path("to/model-00005-of-00005.safetensors")) > 0);
    (void)must_split(to, back, HT_ONE_FILE);
    assert_true(size_of(scratch_path("back/model.safetensors")) > 0);
    assert_int_equal(size_of(scratch_path("back/model.safetensors.index.json")), -1);
    assert_int_equal(size_of(scratch_path("back/model-00001-of-00005.safetensors")), -1);
    same_checkpoint(tiny_checkpoint("gemma2-f16-shards"), back);
}

/* ---- with other work ---- */

static void converting_splits_too(void **state) {
    (void)state;
    static const struct {
        const char *from, *to, *type;
        ht_container container;
    } cases[] = {
        {"llama-f32", "a", NULL, HT_CONTAINER_GGUF},
        {"llama-mlx4-bf16", "b", NULL, HT_CONTAINER_GGUF},
        {"llama-q8_0.gguf", "c", NULL, HT_CONTAINER_MLX},
        {"llama-f32.gguf", "d", NULL, HT_CONTAINER_SAFETENSORS},
        {"llama-f32.gguf", "e.gguf", "Q4_0", HT_CONTAINER_SAME},
        {"llama-f32", "f", "8:32", HT_CONTAINER_SAME},
        {"qwen3-moe-q4_1.gguf", "g", "8:32", HT_CONTAINER_SAME},
        {"llama-f32", "h.gguf", NULL, HT_CONTAINER_GGUF},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ht_error err = {0};
        ht_convert_report report;
        ht_convert_options o = OPTIONS(ht_convert_options, with.container = cases[i].container, with.n_threads = 2,
                                       with.type = cases[i].type, with.report = &report);
        assert_int_equal(scratch_start(state), 0);
        const bool file = cases[i].container == HT_CONTAINER_GGUF || strstr(cases[i].to, ".gguf");
        const char *whole = scratch_path(file ? "whole.gguf" : "whole"), *parts = scratch_path(cases[i].to);
        if (ht_convert(tiny_checkpoint(cases[i].from), whole, &o, &err)) fail_msg("%s: %s", cases[i].from, err.message);
        assert_int_equal(report.n_files, 1);
        o.max_file_bytes = report.bytes / 3;
        if (ht_convert(tiny_checkpoint(cases[i].from), parts, &o, &err)) fail_msg("%s: %s", cases[i].from, err.message);
        assert_true(report.n_files > 2);
        char stem[32];
        snprintf(stem, sizeof stem, "%.*s", (int)strcspn(cases[i].to, "."), cases[i].to);
        const char *load = strchr(cases[i].to, '.') ? part_of(stem, 1, report.n_files) : parts;
        check_sizes(load, o.max_file_bytes, report.n_files);
        same_logits(whole, load);
        ht_checkpoint_files *a = checkpoint_files(whole), *b = checkpoint_files(load);
        assert_int_equal(ht_checkpoint_n_tensors(a), ht_checkpoint_n_tensors(b));
        if (a->gguf) same_metadata(a->gguf, b->gguf, 3);
        ht_checkpoint_close(a);
        ht_checkpoint_close(b);
        (void)scratch_finish(state);
    }
}

/* ---- what is refused, and what fails ---- */

static void refuse(const char *from, const char *to, int64_t bytes, ht_status status, const char *says) {
    const int entries = scratch_count();
    assert_fails(status, says, try_split, from, to, bytes, NULL);
    assert_int_equal(scratch_count(), entries);
}

static void places(void **state) {
    (void)state;
    static const char q8[] = "tests/golden/tiny/llama-q8_0.gguf";
    const char *out = scratch_path("a.gguf");
    refuse(tiny_checkpoint("llama-f32"), out, 9000, HT_ERR_ARGUMENT, "is the name of a GGUF file");
    refuse(q8, scratch_path("a-00001-of-00002.gguf"), 9000, HT_ERR_ARGUMENT, "is the name of one part");
    refuse(q8, out, -1, HT_ERR_ARGUMENT, "at most -1 bytes");
    refuse(q8, out, 0, HT_ERR_ARGUMENT, "type of the weights is missing");
    refuse(q8, scratch_path("no/a.gguf"), 9000, HT_ERR_IO, "No such file");
    const ht_convert_report r = must_split(q8, out, 9000);
    const char *first = part_of("a", 1, r.n_files);
    assert_int_equal(scratch_count(), r.n_files);
    (void)must_split(q8, out, 9000); /* what was written here is replaced */
    assert_int_equal(scratch_count(), r.n_files);
    same_logits(q8, first);
    refuse(first, out, 9000, HT_ERR_ARGUMENT, "is the checkpoint that is read");
    refuse(part_of("a", 2, r.n_files), out, 9000, HT_ERR_ARGUMENT, "is the checkpoint that is read");
    refuse(first, first, HT_ONE_FILE, HT_ERR_ARGUMENT, "is the checkpoint that is read");
    /* Parts of another number, and the whole, are others. */
    (void)must_split(first, out, HT_ONE_FILE);
    const ht_convert_report more = must_split(out, out, 1);
    assert_int_equal(scratch_count(), r.n_files + 1 + more.n_files);
    same_logits(q8, first);
    same_logits(q8, part_of("a", 1, more.n_files));
    /* A part that is alone, and not the first one, is told as ours; a file of somebody's is not. */
    assert_int_equal(remove(first), 0);
    (void)must_split(q8, out, 9000);
    scratch_write(part_of("a", 2, r.n_files) + strlen(scratch_directory()) + 1, "mine", 4);
    refuse(q8, out, 9000, HT_ERR_ARGUMENT, "is not replaced");
    assert_int_equal(size_of(part_of("a", 2, r.n_files)), 4);
}

static void directories_are_replaced_whole(void **state) {
    (void)state;
    const char *out = scratch_path("out");
    const ht_convert_report r = must_split(tiny_checkpoint("llama-f32"), out, 30000);
    (void)must_split(tiny_checkpoint("llama-f32"), out, 30000);
    refuse(tiny_checkpoint("llama-f32"), out, 20000, HT_ERR_ARGUMENT, "which this command does not write");
    check_sizes(out, 30000, r.n_files);
    refuse(out, out, 30000, HT_ERR_ARGUMENT, "is the checkpoint that is read");
    refuse(out, scratch_path("out/in"), 30000, HT_ERR_ARGUMENT, "is the checkpoint that is read");
}

static void more_parts_than_numbers(void **state) {
    (void)state;
    enum { N = 65536 };
    gguf_writer w = gguf_writer_new();
    gguf_put_str(&w, "general.architecture", "many");
    for (int i = 0; i < N; i++) {
        char name[16];
        snprintf(name, sizeof name, "t%d", i);
        gguf_put_tensor(&w, name, HT_W_F32, 1, (int64_t[]){1}, NULL);
    }
    gguf_write(&w, "many.gguf");
    const char *many = scratch_path("many.gguf");
    refuse(many, many, 1, HT_ERR_LIMIT, "would be 65537 files of at most 1 bytes, and there can be 65535");
    refuse(many, scratch_path("out"), 1, HT_ERR_LIMIT, "take more bytes");
    assert_int_equal(must_split(many, many, 3 << 20).n_files, 2);
}

static void stop(double done, void *user) {
    if (done > 0.6) ht_cancel_request(user);
}

static void what_fails_leaves_nothing(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"llama-q8_0.gguf", "a.gguf"}, {"llama-q8_0.gguf", "directory"}, {"llama-f32", "directory"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *out = scratch_path(cases[i][1]);
        ht_cancel cancel = {0};
        ht_convert_options o = OPTIONS(ht_convert_options, with.max_file_bytes = 9000, with.cancel = &cancel,
                                       with.progress = stop, with.user = &cancel);
        assert_fails(HT_ERR_CANCELLED, "splitting was cancelled", ht_convert, tiny_checkpoint(cases[i][0]), out, &o);
        assert_int_equal(scratch_count(), 0);
        struct rlimit old, low; /* as on a full disk, in the file of the largest tensor */
        assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
        low = old;
        low.rlim_cur = 3000;
        void (*before)(int) = signal(SIGXFSZ, SIG_IGN);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
        refuse(tiny_checkpoint(cases[i][0]), out, 9000, HT_ERR_IO, "cannot be written");
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
        signal(SIGXFSZ, before);
        assert_int_equal(scratch_count(), 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_tiny_checkpoint),    in_scratch(a_byte_is_a_tensor_each),
        in_scratch(what_fits_is_one_file),          in_scratch(alignment_is_kept),
        in_scratch(groups_stay_together),           in_scratch(directories_keep_their_files),
        cmocka_unit_test(converting_splits_too),    in_scratch(places),
        in_scratch(directories_are_replaced_whole), in_scratch(more_parts_than_numbers),
        in_scratch(what_fails_leaves_nothing)};
    return cmocka_run_group_tests(tests, cpu_device_open, cpu_device_close);
}
