#include "support/late_device.h"

#include "array/op.h"
#include "base/error.h"
#include "cpu/cpu.h"
#include "cpu/kv.h"
#include "cpu/matrix_ops.h"

#include <hearth/array.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { MOST_INPUTS = 64, MOST_QUEUED = 64 << 20 }; /* bytes of copies in the queue, before it runs */
#define ARENA_BYTES ((size_t)8 << 30)

typedef struct late_device late_device;

/* Work in the queue. */
typedef struct task {
    struct task *next;
    ht_status (*run)(late_device *d, const struct task *t, ht_error *err);
    ht_mark mark; /* behind it */
    bool is_kernel;
    ht_call call; /* of a kernel */
    ht_op_id op;
    ht_view *in;
    _Alignas(8) unsigned char params[HT_MAX_PARAMS];
    void *to; /* of a copy, `bytes` from `from`, or from `data` behind this struct */
    const void *from;
    int byte;
    ht_matrix *matrix; /* rows [row, row + n) of it from `data` */
    int64_t row, n;
    size_t bytes;
    _Alignas(64) char data[];
} task;

/* A piece of the arena that was given back, in a list by address. */
typedef struct piece {
    struct piece *next;
    char *at;
    size_t bytes;
} piece;

struct late_device {
    ht_device base;
    ht_device *cpu; /* whose kernels run */
    ht_memory memory;
    pthread_mutex_t turn; /* held from `begin` to `end` */
    pthread_mutex_t lock; /* of everything below */
    task *first, **last;
    ht_mark submitted;
    int64_t waiting, fail_after;
    size_t queued_bytes;
    ht_mark failed; /* not reported yet; 0: none */
    ht_error failure;
    int64_t lose_after; /* copies, fills and packs until one fails; 0: none does */
    ht_error lost;      /* its failure, which stays */
    char *arena;
    size_t used;
    piece *free;
};

static late_device *late(ht_device *d) { return (late_device *)(void *)d; }

/* Above 0 on the thread that runs the queue, while the memory is open. */
static _Thread_local int inside;

/* ---- the queue ---- */

static void open_memory(late_device *d, bool open) {
    const size_t bytes = (d->used + 4095) & ~(size_t)4095;
    if (bytes && mprotect(d->arena, bytes, open ? PROT_READ | PROT_WRITE : PROT_NONE) != 0) abort();
}

static void free_task(task *t) {
    free(t->in);
    free(t);
}

/* Runs all that is queued; the caller holds the lock. */
static void run_queue(late_device *d) {
    if (!d->first) return;
    open_memory(d, true);
    inside++;
    const unsigned state = d->cpu->begin(d->cpu);
    while (d->first) {
        task *t = d->first;
        ht_error err = {0};
        ht_status status = HT_OK;
        if (!d->lost.status && (!t->is_kernel || !d->failed)) {
            status = t->is_kernel && d->fail_after && --d->fail_after == 0
                         ? ht_fail(&err, HT_ERR_INTERNAL, "%s: the device failed as it was told to", ht_op_name(t->op))
                         : t->run(d, t, &err);
        }
        if (!t->is_kernel && !status && d->lose_after && --d->lose_after == 0)
            status = ht_fail(&err, HT_ERR_INTERNAL, "the device was lost as it was told to");
        if (status && !t->is_kernel && !d->lost.status) d->lost = err;
        if (status && t->is_kernel && !d->failed) {
            d->failed = t->mark;
            d->failure = err;
        }
        d->first = t->next;
        d->queued_bytes -= t->bytes;
        d->waiting--;
        free_task(t);
    }
    d->last = &d->first;
    d->cpu->end(d->cpu, state);
    inside--;
    open_memory(d, false);
}

/* For who reads the memory at once: the queue has run, and the lock is held meanwhile. */
static late_device *open_now(late_device *d) {
    pthread_mutex_lock(&d->lock);
    run_queue(d);
    open_memory(d, true);
    return d;
}

static void close_now(late_device *d) {
    open_memory(d, false);
    pthread_mutex_unlock(&d->lock);
}

static task *new_task(size_t bytes) {
    task *t = aligned_alloc(64, (sizeof(task) + bytes + 63) / 64 * 64);
    if (!t) return NULL;
    memset(t, 0, sizeof *t);
    t->bytes = bytes;
    return t;
}

static ht_status submit(late_device *d, task *t) {
    pthread_mutex_lock(&d->lock);
    t->mark = ++d->submitted;
    *d->last = t;
    d->last = &t->next;
    d->waiting++;
    d->queued_bytes += t->bytes;
    if (d->queued_bytes > MOST_QUEUED) run_queue(d);
    pthread_mutex_unlock(&d->lock);
    return HT_OK;
}

static ht_mark mark(ht_device *device) {
    late_device *d = late(device);
    pthread_mutex_lock(&d->lock);
    const ht_mark m = d->submitted;
    pthread_mutex_unlock(&d->lock);
    return m;
}

static ht_status wait(ht_device *device, ht_mark until, ht_mark *failed, ht_error *err) {
    late_device *d = late(device);
    pthread_mutex_lock(&d->lock);
    run_queue(d);
    if (d->lost.status) {
        *failed = 1;
        if (err) *err = d->lost;
        pthread_mutex_unlock(&d->lock);
        return d->lost.status;
    }
    const bool mine = d->failed && d->failed <= until;
    if (mine) {
        *failed = d->failed;
        if (err) *err = d->failure;
        d->failed = 0;
    }
    pthread_mutex_unlock(&d->lock);
    return mine ? d->failure.status : HT_OK;
}

static const ht_queue_ops queue = {mark, wait};

static unsigned begin(ht_device *d) {
    pthread_mutex_lock(&late(d)->turn);
    return 0;
}

static void end(ht_device *d, unsigned state) {
    (void)state;
    pthread_mutex_unlock(&late(d)->turn);
}

/* ---- memory ---- */

static ht_status do_copy(late_device *d, const task *t, ht_error *err) {
    (void)d, (void)err;
    if (t->from)
        memcpy(t->to, t->from, (size_t)t->n);
    else
        memset(t->to, t->byte, (size_t)t->n);
    return HT_OK;
}

/* From the device, or of what the host has now; without either, of bytes that are all the same. */
static ht_status queue_copy(late_device *d, void *to, const void *from, const void *here, int byte, size_t bytes,
                            ht_error *err) {
    task *t = new_task(here ? bytes : 0);
    if (!t) return ht_fail_memory(err, bytes, "a task");
    if (here) memcpy(t->data, here, bytes);
    t->run = do_copy;
    t->to = to;
    t->from = here ? t->data : from;
    t->byte = byte;
    t->n = (int64_t)bytes;
    return submit(d, t);
}

static ht_status fill(void *user, void *to, int byte, size_t bytes, ht_error *err) {
    return queue_copy(user, to, NULL, NULL, byte, bytes, err);
}

static ht_status write_bytes(void *user, void *to, const void *from, size_t bytes, ht_error *err) {
    return queue_copy(user, to, NULL, from, 0, bytes, err);
}

static ht_status copy_bytes(void *user, void *to, const void *from, size_t bytes, ht_error *err) {
    return queue_copy(user, to, from, NULL, 0, bytes, err);
}

static ht_status read_bytes(void *user, void *to, const void *from, size_t bytes, ht_error *err) {
    late_device *d = open_now(user);
    memcpy(to, from, bytes);
    const ht_status status = d->lost.status;
    if (status && err) *err = d->lost;
    close_now(d);
    return status;
}

/* New memory holds no zeros by chance. */
static void *take(void *user, size_t bytes) {
    late_device *d = user;
    char *p = NULL;
    pthread_mutex_lock(&d->lock);
    for (piece **at = &d->free; *at && !p; at = &(*at)->next) {
        piece *f = *at;
        if (f->bytes < bytes) continue;
        p = f->at;
        f->at += bytes;
        f->bytes -= bytes;
        if (f->bytes) break;
        *at = f->next;
        free(f);
        break;
    }
    if (!p && bytes <= ARENA_BYTES - d->used) {
        p = d->arena + d->used;
        d->used += bytes;
    }
    pthread_mutex_unlock(&d->lock);
    if (p && fill(d, p, 0xFB, bytes, NULL)) p = NULL;
    return p;
}

static void give_back(void *user, void *p, size_t bytes) {
    late_device *d = user;
    piece *f = malloc(sizeof *f), **at = &d->free;
    pthread_mutex_lock(&d->lock);
    run_queue(d);
    while (*at && (*at)->at < (char *)p) at = &(*at)->next;
    if (f) *f = (piece){*at, p, bytes};
    if (f) *at = f;
    for (piece *a = d->free; a && a->next;) { /* neighbours become one */
        piece *b = a->next;
        if (a->at + a->bytes != b->at) {
            a = b;
            continue;
        }
        a->bytes += b->bytes;
        a->next = b->next;
        free(b);
    }
    pthread_mutex_unlock(&d->lock);
}

static bool left(void *user, size_t *bytes) {
    const late_device *d = user;
    *bytes = ARENA_BYTES - d->used;
    return true;
}

static const ht_memory_ops memory_ops = {.take = take,
                                         .give_back = give_back,
                                         .write = write_bytes,
                                         .read = read_bytes,
                                         .copy = copy_bytes,
                                         .fill = fill,
                                         .left = left};

/* ---- kernels ---- */

static void must_be_here(const late_device *d, ht_op_id op, const void *p, const char *what) {
    const char *at = p;
    if (!p || (at >= d->arena && at < d->arena + ARENA_BYTES)) return;
    fprintf(stderr, "late device: %s of %s is no memory of the device\n", what, ht_op_name(op));
    abort();
}

static ht_status attend_here(late_device *d, const ht_call *call, ht_error *err);

static ht_status do_kernel(late_device *d, const task *t, ht_error *err) {
    ht_call call = t->call;
    call.device = d->cpu;
    return t->op == HT_OP_ATTEND ? attend_here(d, &call, err) : d->cpu->kernels[t->op].run(&call, err);
}

static ht_status submit_kernel(ht_op_id op, const ht_call *call, ht_error *err) {
    late_device *d = late(call->device);
    if (ht_view_size(&call->out) == 0 && !ht_op_info_of(op)->effect) return HT_OK; /* there is nothing to do */
    task *t = new_task(0);
    if (!t || !(t->in = malloc(((size_t)call->n_in + 1) * sizeof *t->in))) {
        free(t);
        return ht_fail_memory(err, sizeof *t, "a task");
    }
    t->run = do_kernel;
    t->is_kernel = true;
    t->op = op;
    t->call = *call;
    for (int i = 0; i < call->n_in; i++) {
        t->in[i] = call->in[i];
        if (!ht_view_absent(&call->in[i]) && ht_view_size(&call->in[i]))
            must_be_here(d, op, call->in[i].data, "an operand");
    }
    if (ht_view_size(&call->out)) must_be_here(d, op, call->out.data, "the result");
    must_be_here(d, op, call->scratch, "the scratch memory");
    t->call.in = t->in;
    const size_t bytes = ht_op_info_of(op)->params_bytes;
    if (bytes) memcpy(t->params, call->params, bytes);
    t->call.params = t->params;
    return submit(d, t);
}

static size_t scratch_of(ht_op_id op, const ht_call *call) {
    late_device *d = late(call->device);
    ht_call there = *call;
    there.device = d->cpu;
    return d->cpu->kernels[op].scratch(&there);
}

#define WRAPPERS(id, name)                                                                                             \
    static ht_status run_##name(const ht_call *call, ht_error *err) { return submit_kernel(HT_OP_##id, call, err); }   \
    static size_t scratch_##name(const ht_call *call) { return scratch_of(HT_OP_##id, call); }
HT_OP_KERNELS(WRAPPERS)
HT_OP_PACKED(WRAPPERS)

static void wrap_kernels(late_device *d) {
#define WRAP(id, name)                                                                                                 \
    if (d->cpu->kernels[HT_OP_##id].run) d->base.kernels[HT_OP_##id].run = run_##name;                                 \
    if (d->cpu->kernels[HT_OP_##id].scratch) d->base.kernels[HT_OP_##id].scratch = scratch_##name;
    HT_OP_KERNELS(WRAP)
    HT_OP_PACKED(WRAP)
}

/* ---- cache pages: saved positions, the last one first ---- */

static char *position(const ht_kv_shape *shape, const ht_kv_page *page, int64_t pos) {
    const int64_t n = shape->state ? 1 : HT_KV_PAGE; /* of a page */
    return (char *)page->data + (size_t)(n - 1 - pos) * ht_kv_saved_bytes(shape);
}

static ht_status read_positions(ht_device *device, const ht_kv_shape *shape, const ht_kv_page *page, int64_t first,
                                int64_t n, void *out, ht_error *err) {
    const size_t bytes = ht_kv_saved_bytes(shape);
    ht_status status = HT_OK;
    for (int64_t i = 0; i < n && status == HT_OK; i++)
        status =
            read_bytes(late(device), (char *)out + (size_t)i * bytes, position(shape, page, first + i), bytes, err);
    return status;
}

static ht_status write_positions(ht_device *device, const ht_kv_shape *shape, ht_kv_page *page, int64_t first,
                                 int64_t n, const void *from, ht_error *err) {
    const size_t bytes = ht_kv_saved_bytes(shape);
    ht_status status = HT_OK;
    for (int64_t i = 0; i < n && status == HT_OK; i++)
        status = write_bytes(late(device), position(shape, page, first + i), (const char *)from + (size_t)i * bytes,
                             bytes, err);
    return status;
}

static const ht_kv_ops kv = {ht_kv_saved_page_bytes, read_positions, write_positions, .keys_only = true};

/* The layer of a sequence with pages in the CPU's form, which hold what its pages do. */
static void to_cpu(late_device *d, const ht_kv_layer *from, ht_kv_layer *to) {
    const size_t bytes = ht_kv_saved_bytes(&from->shape);
    char *saved = malloc(HT_KV_PAGE * bytes + 1);
    *to = *from;
    to->pages = calloc((size_t)from->n_pages + 1, sizeof *to->pages);
    for (int64_t p = 0; p < from->n_pages; p++) {
        to->pages[p] = calloc(1, sizeof *to->pages[p]);
        to->pages[p]->data = aligned_alloc(64, (ht_kv_saved_page_bytes(&from->shape) + 63) / 64 * 64);
        for (int64_t i = 0; i < HT_KV_PAGE; i++)
            memcpy(saved + (size_t)i * bytes, position(&from->shape, from->pages[p], i), bytes);
        d->cpu->kv->write(d->cpu, &from->shape, to->pages[p], 0, HT_KV_PAGE, saved, NULL);
    }
    free(saved);
}

static void free_cpu(ht_kv_layer *l) {
    for (int64_t p = 0; p < l->n_pages; p++) free(l->pages[p]->data), free(l->pages[p]);
    free(l->pages);
}

/* Attends in the CPU's form, and takes back what was appended. */
static ht_status attend_here(late_device *d, const ht_call *call, ht_error *err) {
    const ht_attend_params *p = call->params;
    const ht_batch *b = call->step->batch;
    const size_t n = (size_t)b->n_seq;
    ht_kv_layer *layer = calloc(n, sizeof *layer);
    ht_cache *cache = calloc(n, sizeof *cache), **pointer = calloc(n, sizeof *pointer);
    for (size_t s = 0; s < n; s++) {
        to_cpu(d, &call->step->kv[s]->layer[p->layer], &layer[s]);
        cache[s] = (ht_cache){.n_layers = 1, .layer = &layer[s], .length = call->step->kv[s]->length};
        pointer[s] = &cache[s];
    }
    ht_step step = *call->step;
    ht_attend_params params = *p;
    ht_call there = *call;
    step.kv = pointer;
    params.layer = 0;
    there.step = &step;
    there.params = &params;
    ht_status status = d->cpu->kernels[HT_OP_ATTEND].run(&there, err);
    const bool appends = status == HT_OK && call->n_in > 1 && !ht_view_absent(&call->in[1]);
    for (size_t s = 0; s < n; s++) {
        ht_kv_layer *own = &call->step->kv[s]->layer[p->layer];
        for (int32_t row = b->seq_start[s]; appends && row < b->seq_start[s + 1]; row++) {
            const int64_t page = ht_kv_page_of(own, b->pos[row]), at = b->pos[row] % HT_KV_PAGE;
            d->cpu->kv->read(d->cpu, &own->shape, layer[s].pages[page], at, 1,
                             position(&own->shape, own->pages[page], at), NULL);
        }
        free_cpu(&layer[s]);
    }
    free(layer), free(cache), free(pointer);
    return status;
}

/* ---- weights: the CPU's form, in this memory ---- */

typedef struct late_ops {
    ht_cpu_ops cpu; /* what the kernels look at */
    const ht_matrix_ops *plain;
} late_ops;

static const ht_matrix_ops *plain_of(const ht_matrix *m) { return ((const late_ops *)(const void *)m->ops)->plain; }

static ht_status do_pack(late_device *d, const task *t, ht_error *err) {
    (void)d;
    return plain_of(t->matrix)->pack(t->matrix, t->row, t->n, t->data, err);
}

static ht_status pack(ht_matrix *m, int64_t row, int64_t n, const void *stored, ht_error *err) {
    const ht_weight_type_info *info = ht_weight_type_info_of(m->type);
    const size_t bytes = (size_t)n * (size_t)(m->k / info->block) * info->block_bytes;
    if (!m->device) return plain_of(m)->pack(m, row, n, stored, err);
    task *t = new_task(bytes);
    if (!t) return ht_fail_memory(err, bytes, "a task");
    memcpy(t->data, stored, bytes);
    t->run = do_pack;
    t->matrix = m;
    t->row = row;
    t->n = n;
    return submit(late(m->device), t);
}

static ht_status row_of(const ht_matrix *m, int64_t row, float *out, ht_error *err) {
    if (inside) return plain_of(m)->row(m, row, out, err);
    late_device *d = open_now(late(m->device));
    const ht_status status = plain_of(m)->row(m, row, out, err);
    close_now(d);
    return status;
}

static const ht_matrix_ops *matrix_ops(const ht_device *device, ht_weight_type type, ht_precision precision) {
    enum { PRECISIONS = 3 };
    static late_ops all[HT_W_COUNT][PRECISIONS];
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    const late_device *d = (const late_device *)(const void *)device;
    const ht_matrix_ops *plain = d->cpu->matrix_ops(d->cpu, type, precision);
    if (!plain) return NULL;
    pthread_mutex_lock(&lock);
    late_ops *ops = &all[type][precision];
    if (!ops->plain) {
        ops->cpu = *(const ht_cpu_ops *)(const void *)plain;
        ops->cpu.base.pack = pack;
        ops->cpu.base.row = row_of;
        ops->plain = plain;
    }
    pthread_mutex_unlock(&lock);
    return &ops->cpu.base;
}

static const ht_matrix_ops *head_ops(const ht_device *d, ht_weight_type type, ht_precision precision, int64_t n_rows,
                                     int64_t k) {
    (void)n_rows, (void)k;
    return matrix_ops(d, type, precision);
}

/* ---- life ---- */

static void run_on_host(ht_device *d, int64_t n, int64_t grain, ht_block_fn *fn, void *arg) {
    (void)d; /* whose threads the queue may need meanwhile */
    for (int64_t i = 0; i < n; i += grain) fn(arg, i, i + grain < n ? i + grain : n, 0);
}

static void destroy(ht_device *device) {
    late_device *d = late(device);
    pthread_mutex_lock(&d->lock);
    run_queue(d);
    pthread_mutex_unlock(&d->lock);
    ht_memory_destroy(&d->memory);
    for (piece *f = d->free, *next; f; f = next) {
        next = f->next;
        free(f);
    }
    munmap(d->arena, ARENA_BYTES);
    ht_device_free(d->cpu);
    pthread_mutex_destroy(&d->base.run_lock);
    pthread_mutex_destroy(&d->turn);
    pthread_mutex_destroy(&d->lock);
    free(d);
}

ht_status late_device_open(const ht_device_options *options, ht_device **out, ht_error *err) {
    (void)options;
    *out = NULL;
    late_device *d = calloc(1, sizeof *d);
    if (!d) return ht_fail_memory(err, sizeof *d, "the late device");
    ht_status status = ht_cpu_device_new(1, "reference", &d->cpu, err);
    if (!status) {
        d->arena = mmap(NULL, ARENA_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (d->arena == MAP_FAILED) status = ht_fail_memory(err, ARENA_BYTES, "the late device");
    }
    if (status) {
        ht_device_free(d->cpu);
        free(d);
        return status;
    }
    d->last = &d->first;
    d->base = (ht_device){.name = "late",
                          .instruction_set = d->cpu->instruction_set,
                          .memory = &d->memory,
                          .queue = &queue,
                          .begin = begin,
                          .end = end,
                          .step_rows = 2 * HT_LEAST_STEP_ROWS, /* not the CPU's */
                          .matrix_ops = matrix_ops,
                          .head_ops = head_ops,
                          .kv = &kv,
                          .n_threads = 1,
                          .run_on_host = run_on_host,
                          .row_ops = d->cpu->row_ops,
                          .destroy = destroy,
                          .refs = 1};
    pthread_mutex_init(&d->base.run_lock, NULL);
    pthread_mutex_init(&d->turn, NULL);
    pthread_mutex_init(&d->lock, NULL);
    ht_memory_init(&d->memory, "late", &memory_ops, d, &d->base);
    d->memory.cache_limit = 10 << 20; /* all memory ever used is opened and closed with every wait */
    wrap_kernels(d);
    *out = &d->base;
    return HT_OK;
}

static ht_status open_late(const ht_device_options *options, int index, ht_device **out, ht_error *err) {
    (void)index;
    return late_device_open(options, out, err);
}

int64_t late_device_waiting(ht_device *d) { return late(d)->waiting; }

static void set(late_device *d, int64_t *to, int64_t k) {
    pthread_mutex_lock(&d->lock);
    *to = k;
    pthread_mutex_unlock(&d->lock);
}

void late_device_fail(ht_device *d, int64_t k) { set(late(d), &late(d)->fail_after, k); }
void late_device_lose(ht_device *d, int64_t k) { set(late(d), &late(d)->lose_after, k); }

/* As there is one graphics card however often it is opened. */
static ht_status open_the_one(const ht_device_options *options, int index, ht_device **out, ht_error *err) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static ht_device *one;
    (void)index;
    pthread_mutex_lock(&lock);
    ht_status status = one ? HT_OK : late_device_open(options, &one, err);
    *out = status ? NULL : ht_device_retain(one); /* kept to the end of the process */
    pthread_mutex_unlock(&lock);
    return status;
}

/* The GPU in the place of the CPU: the tests of the operations then are its own. */
static ht_status open_cuda(const ht_device_options *options, int index, ht_device **out, ht_error *err) {
    (void)index;
    return ht_device_open("cuda", options, out, err);
}

__attribute__((constructor)) static void register_device(void) {
    const char *wanted = getenv("HEARTH_TEST_DEVICE");
    ht_device_register("late", open_late);
    if (wanted && strcmp(wanted, "late") == 0) ht_device_register("cpu", open_the_one);
    if (wanted && strcmp(wanted, "cuda") == 0) ht_device_register("cpu", open_cuda);
}
