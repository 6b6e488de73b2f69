#include "array/flat_program_layout.h"

#include "array/fuse_elementwise.h"
#include "array/node_map.h"
#include "array/op.h"
#include "array/topological_order.h"
#include "base/error.h"
#include "base/grow.h"

#include <stdlib.h>
#include <string.h>

/* Base of a view's address: index of an argument or result, or BLOCK. Constants have fixed addresses. */
enum { BLOCK = -1 };

/* Address patched into a view at every run. */
typedef struct address {
    void **at;
    int32_t from;
    int64_t offset_bytes;
} address;

typedef struct instruction {
    const ht_kernel *kernel; /* NULL: an elementwise program */
    ht_program *program;
    ht_call call;
    ht_view *view; /* [n_in + n_out] */
    int n_in, n_out;
    ht_array **array; /* [n_in + n_out], arrays of the views; only during construction */
} instruction;

struct ht_flat_list {
    ht_device *device; /* lent */
    instruction *instruction;
    address *address;
    int64_t n, n_addresses;
    size_t block_bytes, scratch_bytes;
};

/* A value computed by an instruction. */
typedef struct made {
    ht_array *node;
    int64_t from, to; /* lifetime: the producing instruction and the last reader */
    int32_t result;   /* index of the result; -1: an intermediate value in the block */
    size_t offset, bytes;
    bool passed_on; /* its memory was donated to a later value */
} made;

typedef struct builder {
    ht_flat_list *l;
    ht_worklist list;
    uint64_t visit;
    ht_fused fused;
    made *made; /* that of a node is made[node->slot - 1] */
    int64_t n_made;
    ht_node_map begins; /* address bases of arguments and results */
    ht_error *err;
} builder;

/* ---- instructions ---- */

static size_t bytes_of(const ht_array *a) { return (size_t)ht_array_size(a) * ht_dtype_bytes(a->dtype); }

static ht_status out_of_memory(builder *b) { return ht_fail_memory(b->err, 64, "the list of a compiled function"); }

static instruction *new_instruction(builder *b, ht_array *const *in, int n_in, ht_array *const *out, int n_out) {
    ht_flat_list *l = b->l;
    if (!HT_GROW_ONE(l->instruction, l->n)) return NULL;
    instruction *i = &l->instruction[l->n];
    *i = (instruction){.n_in = n_in, .n_out = n_out};
    i->view = calloc((size_t)(n_in + n_out), sizeof *i->view);
    i->array = calloc((size_t)(n_in + n_out), sizeof(ht_array *));
    l->n++;
    if (!i->view || !i->array) return NULL;
    if (n_in) memcpy(i->array, in, (size_t)n_in * sizeof(ht_array *));
    memcpy(i->array + n_in, out, (size_t)n_out * sizeof(ht_array *));
    return i;
}

static ht_status add_kernel(void *user, ht_array *a) {
    builder *b = user;
    instruction *i = new_instruction(b, a->in, a->n_in, &a, 1);
    if (!i) return out_of_memory(b);
    i->kernel = &b->l->device->kernels[a->op];
    i->call.params = a->params;
    a->slot = HT_FUSED_DONE;
    return HT_OK;
}

static ht_status add_elementwise(builder *b, size_t at) {
    ht_fused *f = &b->fused;
    ht_status st = ht_fused_gather(f, b->l->device, &b->list, b->visit, &at, add_kernel, b);
    if (st) return st;
    if (f->program.n_steps < 2 || ht_fused_close(f, b->l->device) < 2) return add_kernel(b, b->list.order[at]);
    instruction *i = new_instruction(b, f->in, f->program.n_in, f->out, f->program.n_out);
    if (!i || !(i->program = malloc(sizeof *i->program))) return out_of_memory(b);
    *i->program = f->program;
    for (int k = 0; k < f->program.n_steps; k++) f->member[k]->slot = HT_FUSED_DONE;
    return HT_OK;
}

static void count_uses(builder *b, ht_array *const *results, int n_results) {
    for (size_t i = 0; i < b->list.n; i++) {
        ht_array *a = b->list.order[i];
        a->slot = a->op == HT_OP_LEAF ? HT_FUSED_DONE : HT_FUSED_TO_DO;
        if (a->base) continue;
        for (int k = 0; k < a->n_in; k++)
            if (a->in[k] != HT_NONE && ht_storage(a->in[k])->visit == b->visit) ht_storage(a->in[k])->kernel_uses++;
    }
    for (int i = 0; i < n_results; i++) results[i]->keep = true;
}

static ht_status make_instructions(builder *b) {
    const ht_device *d = b->l->device;
    ht_status st = HT_OK;
    for (size_t i = 0; st == HT_OK && i < b->list.n; i++) {
        ht_array *a = b->list.order[i];
        if (a->base || a->slot == HT_FUSED_DONE) continue;
        st = d->programs && ht_fused_supports(a->op) ? add_elementwise(b, i) : add_kernel(b, a);
    }
    return st;
}

/* ---- memory layout of the block ---- */

static made *made_of(const builder *b, const ht_array *a) {
    return a->visit == b->visit && a->slot > 0 ? &b->made[a->slot - 1] : NULL;
}

static ht_status find_lifetimes(builder *b) {
    ht_flat_list *l = b->l;
    for (size_t i = 0; i < b->list.n; i++) b->list.order[i]->slot = 0;
    b->made = calloc(b->list.n + 1, sizeof *b->made);
    if (!b->made) return out_of_memory(b);
    for (int64_t i = 0; i < l->n; i++) {
        const instruction *in = &l->instruction[i];
        for (int k = 0; k < in->n_in; k++) {
            made *m = in->array[k] == HT_NONE ? NULL : made_of(b, ht_storage(in->array[k]));
            if (m) m->to = i;
        }
        for (int k = 0; k < in->n_out; k++) {
            ht_array *a = in->array[in->n_in + k];
            const int64_t begins = ht_node_map_get(&b->begins, a);
            b->made[b->n_made++] =
                (made){.node = a, .from = i, .to = i, .result = (int32_t)begins, .bytes = bytes_of(a)};
            a->slot = (int32_t)b->n_made;
        }
    }
    return HT_OK;
}

/* Buffer donation: the input whose memory the output of a kernel may reuse, as in an evaluation. */
static made *donor(const builder *b, const instruction *in, int64_t at) {
    const ht_array *a = in->array[in->n_in];
    const ht_op_info *info = ht_op_info_of(a->op);
    const int candidates = !in->kernel ? 0 : info->in_place ? in->n_in : info->updates ? 1 : 0;
    for (int i = 0; i < candidates; i++) {
        const ht_array *x = in->array[i];
        made *m = x == HT_NONE || x->base ? NULL : made_of(b, x);
        bool free = m && m->to == at && m->result < 0 && m->bytes == bytes_of(a) && x->dtype == a->dtype;
        for (int k = 0; free && k < in->n_in; k++)
            free = k == i || in->array[k] == HT_NONE || ht_storage(in->array[k]) != x;
        if (free) return m;
    }
    return NULL;
}

/* Values alive in the block, sorted by offset. */
typedef struct living {
    made **m;
    int64_t n;
} living;

static void insert(living *all, made *m) {
    const size_t size = (m->bytes + 63) / 64 * 64 + (m->bytes == 0 ? 64 : 0);
    int64_t at = 0;
    m->offset = 0;
    for (; at < all->n; at++) {
        const made *next = all->m[at];
        if (next->offset >= m->offset + size) break;
        m->offset = next->offset + (next->bytes + 63) / 64 * 64 + (next->bytes == 0 ? 64 : 0);
    }
    memmove(all->m + at + 1, all->m + at, (size_t)(all->n - at) * sizeof *all->m);
    all->m[at] = m;
    all->n++;
}

static void drop_dead(living *all, int64_t at) {
    int64_t n = 0;
    for (int64_t i = 0; i < all->n; i++)
        if (all->m[i]->to > at && !all->m[i]->passed_on) all->m[n++] = all->m[i];
    all->n = n;
}

static ht_status place_all(builder *b) {
    ht_flat_list *l = b->l;
    living all = {.m = calloc((size_t)b->n_made + 1, sizeof(made *))};
    if (!all.m) return out_of_memory(b);
    for (int64_t i = 0, next = 0; i < l->n; i++) {
        const instruction *in = &l->instruction[i];
        for (int k = 0; k < in->n_out; k++) {
            made *m = &b->made[next++], *from = m->result < 0 ? donor(b, in, i) : NULL;
            if (m->result >= 0) continue;
            if (from) {
                from->passed_on = true;
                m->offset = from->offset;
                for (int64_t j = 0; j < all.n; j++)
                    if (all.m[j] == from) all.m[j] = m;
            } else
                insert(&all, m);
            if (m->offset + m->bytes > l->block_bytes) l->block_bytes = m->offset + m->bytes;
        }
        drop_dead(&all, i);
    }
    free(all.m);
    return HT_OK;
}

/* ---- views ---- */

static ht_status make_view(builder *b, ht_view *view, ht_array *a) {
    if (a == HT_NONE) {
        *view = ht_array_view(a, NULL);
        return HT_OK;
    }
    ht_array *storage = ht_storage(a);
    const made *m = made_of(b, storage);
    const int64_t begins = m ? m->result : ht_node_map_get(&b->begins, storage);
    if (!m && begins < 0) { /* a constant */
        if (!storage->buffer) return ht_fail(b->err, HT_ERR_MEMORY, "a constant of a compiled function has no value");
        *view = ht_array_view(a, storage->buffer->data);
        return HT_OK;
    }
    *view = ht_array_view(a, NULL);
    b->l->address[b->l->n_addresses++] =
        (address){&view->data, begins >= 0 ? (int32_t)begins : BLOCK,
                  (begins >= 0 ? 0 : (int64_t)m->offset) + a->offset * (int64_t)ht_dtype_bytes(a->dtype)};
    return HT_OK;
}

static ht_status make_views(builder *b) {
    ht_flat_list *l = b->l;
    int64_t n = 0;
    for (int64_t i = 0; i < l->n; i++) n += l->instruction[i].n_in + l->instruction[i].n_out;
    l->address = calloc((size_t)n + 1, sizeof *l->address);
    ht_status st = l->address ? HT_OK : out_of_memory(b);
    for (int64_t i = 0; st == HT_OK && i < l->n; i++) {
        instruction *in = &l->instruction[i];
        for (int k = 0; st == HT_OK && k < in->n_in + in->n_out; k++) st = make_view(b, &in->view[k], in->array[k]);
        free(in->array);
        in->array = NULL;
        if (st || !in->kernel) continue;
        in->call.n_in = in->n_in;
        in->call.in = in->view;
        in->call.out = in->view[in->n_in];
        in->call.device = l->device;
        size_t scratch = in->kernel->scratch ? in->kernel->scratch(&in->call) : 0;
        if (scratch > l->scratch_bytes) l->scratch_bytes = scratch;
    }
    return st;
}

static ht_status number_beginnings(builder *b, ht_array *const *in, int n_in, ht_array *const *results, int n_results) {
    bool ok = true;
    for (int i = 0; ok && i < n_in; i++) ok = ht_node_map_set(&b->begins, in[i], i);
    for (int i = 0; ok && i < n_results; i++) ok = ht_node_map_set(&b->begins, results[i], n_in + i);
    return ok ? HT_OK : out_of_memory(b);
}

ht_status ht_flat_list_new(ht_device *d, ht_array *const *in, int n_in, ht_array *const *results, int n_results,
                           ht_flat_list **list, ht_error *err) {
    *list = NULL;
    builder *b = calloc(1, sizeof *b);
    ht_flat_list *l = calloc(1, sizeof *l);
    ht_status st = HT_OK;
    if (!b || !l)
        st = ht_fail_memory(err, sizeof *b, "the list of a compiled function");
    else {
        l->device = d;
        b->l = l;
        b->err = err;
        st = ht_topological_order(&b->list, results, n_results, &b->visit, err);
        if (st == HT_OK) count_uses(b, results, n_results);
        if (st == HT_OK) st = number_beginnings(b, in, n_in, results, n_results);
        if (st == HT_OK) st = make_instructions(b);
        if (st == HT_OK) st = find_lifetimes(b);
        if (st == HT_OK) st = place_all(b);
        if (st == HT_OK) st = make_views(b);
        ht_worklist_free(&b->list);
        ht_node_map_free(&b->begins);
        free(b->made);
    }
    free(b);
    if (st == HT_OK)
        *list = l;
    else
        ht_flat_list_free(l);
    return st;
}

void ht_flat_list_free(ht_flat_list *l) {
    if (!l) return;
    for (int64_t i = 0; i < l->n; i++) {
        free(l->instruction[i].view);
        free(l->instruction[i].array);
        free(l->instruction[i].program);
    }
    free(l->instruction);
    free(l->address);
    free(l);
}

size_t ht_flat_list_scratch(const ht_flat_list *l) { return l->scratch_bytes; }

/* ---- running ---- */

static ht_status run_all(ht_flat_list *l, void *scratch, ht_error *err) {
    ht_status st = HT_OK;
    for (int64_t i = 0; st == HT_OK && i < l->n; i++) {
        instruction *in = &l->instruction[i];
        if (in->program) {
            st =
                l->device->programs->run(&(ht_program_run){in->program, in->view, in->view + in->n_in, l->device}, err);
            continue;
        }
        in->call.out.data = in->view[in->n_in].data;
        in->call.scratch = scratch;
        st = in->kernel->run(&in->call, err);
    }
    return st;
}

ht_status ht_flat_list_run(ht_flat_list *l, void *const *data, void *scratch, ht_error *err) {
    void *block = NULL;
    ht_status st = l->block_bytes ? ht_memory_alloc(l->device->memory, l->block_bytes,
                                                    "what a compiled function makes on its way", &block, err)
                                  : HT_OK;
    if (st) return st;
    for (int64_t i = 0; i < l->n_addresses; i++) {
        const address *a = &l->address[i];
        char *from = a->from == BLOCK ? block : data[a->from]; /* NULL: no elements */
        *a->at = from ? from + a->offset_bytes : NULL;
    }
    st = run_all(l, scratch, err);
    ht_memory_free(l->device->memory, block, l->block_bytes);
    return st;
}
