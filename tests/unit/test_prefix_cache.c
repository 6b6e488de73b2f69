/* Random operations on a prefix cache beside a plain list of what it is to hold: after each of them nodes, pages, locks, order
 * of use, figures and the account agree, and what was found is the longest that could be used, with the contents it had. What
 * is computed here is a pattern of the tokens: sessions that compute are in test_prefix_reuse.c. */
#include "base/checked.h"
#include "device/device.h"
#include "generate/prefix_cache.h"
#include "support/adapters.h"
#include "support/scratch.h"
#include "support/test.h"
#include "support/tiny_model.h"

#include <stdlib.h>
#include <string.h>

enum {
    MOST = 1000,      /* tokens of a sequence */
    CHUNK = 64,       /* of a step */
    SEQUENCES = 6,    /* at once */
    OPERATIONS = 60,  /* of a case */
    KEYS = 7,         /* two salts, each with adapters and without, and long sequences */
    LAYERS = 6,       /* of a model, at most */
    ENTRIES = 4000,   /* of the list in a case, those that have gone included */
    FEWEST = 8,       /* tokens that are worth a page */
    REMEMBERED = 256, /* nodes that have gone */
    STATES = 24,      /* positions of an entry after which states are kept, at most */
    N_MODELS = 6
};

static ht_model *models[N_MODELS];
static const ht_digest adapters[2] = {{1, 2}, {1, 3}};
static uint64_t seed;

static uint32_t draw(uint32_t n) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33) % n;
}

static int setup(void **state) {
    (void)state;
    scratch_make();
    models[0] = tiny_load(&(tiny_options){0});
    models[1] = tiny_load(&(tiny_options){.window = 40});               /* rings of two pages */
    models[2] = tiny_load(&(tiny_options){.window = 300, .kv = HT_I8}); /* of three */
    models[3] = tiny_load(&(tiny_options){.window = 300, .chunked = true});
    models[4] = tiny_load(&(tiny_options){.latent = true, .kv = HT_I8});
    models[5] = tiny_load(&(tiny_options){.recurrent = true});
    return 0;
}

static int teardown(void **state) {
    (void)state;
    for (int i = 0; i < N_MODELS; i++) ht_model_free(models[i]);
    scratch_remove();
    return 0;
}

static const float one = 1, half = 0.5f;
static const struct {
    const char *salt;
    int adapter; /* -1: none */
    const float *scale;
    bool is_long;
} keys[KEYS] = {{NULL, -1, NULL, false}, {"b", -1, NULL, false}, {"", 0, NULL, false},  {"", 0, &half, false},
                {"b", 0, &one, true},    {NULL, 1, &one, false}, {NULL, -1, NULL, true}};

static ht_prefix_key key_of(int k) {
    const int a = keys[k].adapter;
    return (ht_prefix_key){keys[k].salt, a < 0 ? NULL : &adapters[a], keys[k].scale, a >= 0, keys[k].is_long};
}

static bool same_salt(int a, int b) {
    return strcmp(keys[a].salt ? keys[a].salt : "", keys[b].salt ? keys[b].salt : "") == 0;
}

static bool same_adapters(int a, int b) { return keys[a].adapter == keys[b].adapter && keys[a].scale == keys[b].scale; }

static int number_of(const ht_prefix_key *key) {
    for (int k = 0; k < KEYS; k++) {
        const ht_prefix_key want = key_of(k);
        if (strcmp(key->salt, want.salt ? want.salt : "") == 0 && key->n_adapters == want.n_adapters &&
            key->is_long == want.is_long &&
            (!key->n_adapters || (ht_digest_same(key->adapters[0], want.adapters[0]) &&
                                  *key->scales == (want.scales ? *want.scales : 1)))) /* exact: as they were given */
            return k;
    }
    fail_msg("a key that nobody gave");
    return -1;
}

/* ---- sequences, and what they compute: a pattern of key, layer and all tokens up to a position ---- */

typedef struct sequence {
    int key;
    int32_t token[MOST];
    ht_cache *cache; /* NULL: free */
    ht_prefix_node *lock;
    int locked; /* its entry; -1: none */
} sequence;

static struct {
    const ht_model *m;
    ht_prefix_cache *c;
    ht_kv_account account;
    sequence sequence[SEQUENCES];
} now;

static bool is_state(int32_t layer) { return now.m->kv[layer].shape.state > 0; }

static bool has_states(void) { return is_state(0); }

/* Fewest tokens that are worth a node. */
static int64_t fewest(void) { return has_states() ? 1 : FEWEST; }

/* Sequences part at a few places, near the ends of pages and far from them, and have messages of many lengths. */
static void draw_tokens(int32_t *token, int64_t from) {
    static const int64_t parts[] = {0, 4, 30, 200, 250, 256, 270, 500, 515, 700, 768, MOST},
                         message_ends[] = {20, 90, 100, 230, 256, 275, 400, 512, 520, 640, 650, 700, 900};
    for (size_t j = 0; j + 1 < sizeof parts / sizeof *parts; j++) {
        const int32_t way = (int32_t)(draw(3) ? 0 : draw(3));
        for (int64_t i = parts[j]; i < parts[j + 1]; i++)
            if (i >= from) token[i] = (int32_t)((i * 13 + 7 * (int64_t)j) % 200) + way;
    }
    for (size_t j = 0; j < sizeof message_ends / sizeof *message_ends; j++)
        if (message_ends[j] > from && draw(3)) token[message_ends[j] - 1] = TINY_IM_END;
}

static void make_pattern(unsigned char *out, const sequence *q, int32_t layer, int64_t first, int64_t n, size_t each) {
    uint64_t h = (uint64_t)q->key * 77 + (uint64_t)layer;
    for (int64_t i = 0; i < first + n; i++) {
        h = (h ^ (uint64_t)q->token[i]) * 0x9e3779b97f4a7c15u;
        h ^= h >> 29;
        for (size_t b = 0; i >= first && b < each; b++) *out++ = (unsigned char)(h >> 8 * (b % 8)) & 0x3F;
    }
}

/* The pattern of a state after n positions is that of the last of them. A step writes it to the second page. */
static void write_state(const sequence *q, int32_t l, int64_t n) {
    static unsigned char bytes[1 << 16];
    ht_device *d = now.m->device;
    const ht_kv_layer *layer = &q->cache->layer[l];
    assert_false(ht_kv_page_is_shared(layer->pages[1]));
    make_pattern(bytes, q, l, n - 1, 1, ht_kv_saved_bytes(&layer->shape));
    assert_int_equal(d->kv->write(d, &layer->shape, layer->pages[1], 0, 1, bytes, NULL), HT_OK);
}

static void check_state(const sequence *q, int32_t l, int64_t n) {
    static unsigned char want[1 << 16], got[1 << 16];
    ht_device *d = now.m->device;
    const ht_kv_shape *shape = &q->cache->layer[l].shape;
    make_pattern(want, q, l, n - 1, 1, ht_kv_saved_bytes(shape));
    assert_int_equal(d->kv->read(d, shape, ht_cache_page(q->cache, l, n), 0, 1, got, NULL), HT_OK);
    assert_memory_equal(got, want, ht_kv_saved_bytes(shape));
}

static void write_positions(const sequence *q, int64_t first, int64_t end) {
    static unsigned char bytes[HT_KV_PAGE * 1024];
    ht_device *d = now.m->device;
    for (int32_t l = 0; l < q->cache->n_layers; l++) {
        const ht_kv_layer *layer = &q->cache->layer[l];
        const size_t each = ht_kv_saved_bytes(&layer->shape);
        if (is_state(l)) {
            write_state(q, l, end);
            continue;
        }
        for (int64_t pos = first, n; pos < end; pos += n) {
            n = ht_min_i64(HT_KV_PAGE - pos % HT_KV_PAGE, end - pos);
            make_pattern(bytes, q, l, pos, n, each);
            assert_int_equal(d->kv->write(d, &layer->shape, layer->pages[ht_kv_page_of(layer, pos)], pos % HT_KV_PAGE,
                                          n, bytes, NULL),
                             HT_OK);
        }
    }
}

static int64_t first_needed(const ht_kv_layer *l, int64_t n) {
    if (l->chunked) return ht_max_i64(0, n % l->window ? n / l->window * l->window : n - 1);
    return l->ring_pages ? ht_max_i64(0, n - ht_max_i64(1, l->window - 1)) : 0;
}

/* All keys that the next token looks back on are there, and those of these tokens, and so are states. */
static void check_contents(const sequence *q) {
    static unsigned char want[HT_KV_PAGE * 1024], got[HT_KV_PAGE * 1024];
    ht_device *d = now.m->device;
    const int64_t length = q->cache->length;
    for (int32_t l = 0; l < q->cache->n_layers; l++) {
        const ht_kv_layer *layer = &q->cache->layer[l];
        const size_t each = ht_kv_saved_bytes(&layer->shape);
        if (is_state(l)) {
            if (length > 0) check_state(q, l, length);
            for (int64_t i = 0; i < ht_cache_snapshots(q->cache); i++)
                check_state(q, l, ht_cache_snapshot_at(q->cache, i));
            continue;
        }
        for (int64_t p = 0; p * HT_KV_PAGE < length; p++) {
            const int64_t n = ht_min_i64(HT_KV_PAGE, length - p * HT_KV_PAGE);
            const ht_kv_page *page = ht_cache_page(q->cache, l, p);
            if (!page) {
                assert_true(p < first_needed(layer, length) / HT_KV_PAGE);
                continue;
            }
            make_pattern(want, q, l, p * HT_KV_PAGE, n, each);
            assert_int_equal(d->kv->read(d, &layer->shape, page, 0, n, got, NULL), HT_OK);
            assert_memory_equal(got, want, (size_t)n * each);
        }
    }
}

/* ---- the plain list ---- */

typedef struct states {
    int64_t position;
    int uses;
    ht_kv_page *page[LAYERS];
} states;

typedef struct entry {
    bool there;
    int key, locks;
    int64_t first, end;
    int32_t token[MOST]; /* [end] from the beginning on */
    ht_kv_page *page[LAYERS];
    int64_t used; /* when, by a clock that counts */
    int n_states;
    states states[STATES]; /* [n_states] */
} entry;

typedef struct remembered {
    int key;
    int64_t end;
    int32_t token[MOST];
} remembered;

static struct {
    entry *entry; /* [n] as they were made */
    int n;
    remembered *gone; /* [n_gone], of which the last are remembered */
    int n_gone;
    int64_t clock;
    ht_prefix_figures figures;
} list;

static size_t bytes_of(int32_t layer) { return now.m->device->kv->page_bytes(&now.m->kv[layer].shape); }

static int by_address(const void *a, const void *b) {
    const uintptr_t x = (uintptr_t) * (ht_kv_page *const *)a, y = (uintptr_t) * (ht_kv_page *const *)b;
    return (x > y) - (x < y);
}

/* Bytes of all pages that the list and so many of the sequences hold, each once. */
static size_t bytes_held(int sequences) {
    static ht_kv_page *page[ENTRIES * 4];
    size_t bytes = 0;
    for (int32_t l = 0; l < now.m->n_cache_layers; l++) {
        size_t n = 0;
        for (int i = 0; i < list.n; i++) {
            const entry *x = &list.entry[i];
            if (x->there && x->page[l]) page[n++] = x->page[l];
            for (int k = 0; x->there && is_state(l) && k < x->n_states; k++) page[n++] = x->states[k].page[l];
        }
        for (int i = 0; i < sequences; i++) {
            const ht_cache *c = now.sequence[i].cache;
            for (int64_t p = 0; c && p < c->layer[l].n_pages; p++) page[n++] = c->layer[l].pages[p];
            for (int64_t k = 0; c && is_state(l) && k < ht_cache_snapshots(c); k++)
                page[n++] = ht_cache_page(c, l, ht_cache_snapshot_at(c, k));
        }
        assert_true(n <= sizeof page / sizeof *page);
        qsort(page, n, sizeof *page, by_address);
        for (size_t i = 0; i < n; i++) bytes += i == 0 || page[i] != page[i - 1] ? bytes_of(l) : 0;
    }
    return bytes;
}

static bool is_parent(const entry *p, const entry *x) {
    return p->there && p->key == x->key && p->end == x->first &&
           memcmp(p->token, x->token, (size_t)p->end * sizeof *p->token) == 0;
}

static int parent_of(const entry *x) {
    int p = 0;
    if (x->first == 0) return -1;
    while (!is_parent(&list.entry[p], x)) assert_true(++p < list.n);
    return p;
}

static bool has_child(const entry *x) {
    for (int i = 0; i < list.n; i++)
        if (list.entry[i].there && is_parent(x, &list.entry[i])) return true;
    return false;
}

static int64_t common(const entry *x, const int32_t *token, int64_t n) {
    int64_t i = 0;
    while (i < n && i < x->end && x->token[i] == token[i]) i++;
    return i;
}

static void use(int i) {
    for (; i >= 0; i = parent_of(&list.entry[i])) list.entry[i].used = ++list.clock;
}

static void take_out(entry *x) {
    x->there = false;
    list.figures.nodes--;
    list.figures.tokens -= x->end - x->first;
}

static entry *list_oldest(void) {
    entry *oldest = NULL;
    for (int i = 0; i < list.n; i++) {
        entry *x = &list.entry[i];
        if (x->there && !x->locks && (!oldest || x->used < oldest->used) && !has_child(x)) oldest = x;
    }
    return oldest;
}

static int64_t list_clear(void) {
    const int64_t before = list.figures.tokens;
    for (entry *x = list_oldest(); x; x = list_oldest()) take_out(x);
    return before - list.figures.tokens;
}

static bool list_evict(void) {
    entry *oldest = list_oldest();
    if (!oldest) return false;
    remembered *g = &list.gone[list.n_gone++];
    g->key = oldest->key;
    g->end = oldest->end;
    memcpy(g->token, oldest->token, sizeof g->token);
    take_out(oldest);
    list.figures.evicted++;
    return true;
}

static void list_keep_budget(void) {
    while (bytes_held(0) > list.figures.budget && list_evict()) {}
}

static bool is_whole(const entry *x) {
    for (int32_t l = 0; l < now.m->n_cache_layers; l++)
        if (!x->page[l] && !is_state(l)) return false;
    return true;
}

static states *find_states(entry *x, int64_t position) {
    for (int k = 0; k < x->n_states; k++)
        if (x->states[k].position == position) return &x->states[k];
    return NULL;
}

static void add_states(entry *x, const states *s) {
    if (find_states(x, s->position)) return;
    assert_true(x->n_states < STATES);
    x->states[x->n_states++] = *s;
}

static void list_drop_shorter(entry *x) {
    for (int i = 0; i < list.n; i++) {
        entry *y = &list.entry[i];
        if (!y->there || y->key != x->key || y->first != x->first || y->end >= x->end ||
            common(y, x->token, x->end) < y->end)
            continue;
        bool has_all = true;
        for (int32_t l = 0; l < now.m->n_cache_layers; l++) has_all = has_all && (x->page[l] || !y->page[l]);
        if (!has_all) continue;
        for (int k = 0; k < y->n_states; k++) add_states(x, &y->states[k]);
        take_out(y);
    }
}

/* The entry of tokens [first, end), or one with more; made if need be. */
static int list_node(int key, const int32_t *token, int64_t first, int64_t end) {
    for (int i = list.n - 1; i >= 0; i--) {
        const entry *x = &list.entry[i];
        if (x->there && x->key == key && x->first == first && common(x, token, end) == end &&
            (x->end == end || is_whole(x)))
            return i;
    }
    assert_true(list.n < ENTRIES);
    entry *x = &list.entry[list.n];
    *x = (entry){.there = true, .key = key, .first = first, .end = end};
    memcpy(x->token, token, (size_t)end * sizeof *token);
    list.figures.nodes++;
    list.figures.tokens += end - first;
    return list.n++;
}

/* The sequence's states after some of the entry's positions. */
static void list_keep_states(entry *x, const sequence *q, int64_t position) {
    states s = {.position = position};
    if (position <= x->first || position > x->end) return;
    for (int32_t l = 0; l < now.m->n_cache_layers; l++)
        if (is_state(l)) assert_non_null(s.page[l] = ht_cache_page(q->cache, l, position));
    add_states(x, &s);
}

/* The last odd multiple of a power of two before `end` that is `position` or follows it; 0: none. */
static int64_t next_divider(int64_t position, int64_t end) {
    int64_t next = 0;
    for (int64_t unit = HT_KV_PAGE; unit < end; unit *= 2) {
        int64_t last = (end - 1) / unit * unit;
        if (last / unit % 2 == 0) last -= unit;
        if (last >= position && (!next || last < next)) next = last;
    }
    return next;
}

/* Whether states stay among those after n positions: at a divider, or as the last of an interval of dividers that are at no
 * page end, unless a lookup needed them twice. Such a last one stands for the divider, if it is not the last of all. */
static bool states_stay(const int64_t *position, int n, int at, int64_t end) {
    const int64_t here = position[at], divider = next_divider(here, end);
    bool is_last = true, is_last_of_all = true, stood_for = false;
    for (int k = 0; k < n; k++) {
        const bool same = next_divider(position[k], end) == divider;
        if (position[k] % HT_KV_PAGE == 0) continue;
        is_last_of_all = is_last_of_all && position[k] <= here;
        is_last = is_last && (!same || position[k] <= here);
        stood_for = stood_for || (same && position[k] < here);
    }
    return here % HT_KV_PAGE ? is_last : here == divider && (!stood_for || is_last_of_all);
}

/* Removes states before the end of a sequence of n tokens, whose last entry is `last`. */
static void list_thin(int last, int64_t n) {
    int64_t position[4 * STATES];
    bool stays[4 * STATES];
    int n_states = 0, at = 0;
    for (int i = last; i >= 0; i = parent_of(&list.entry[i]))
        for (int k = 0; k < list.entry[i].n_states; k++)
            if (list.entry[i].states[k].position < n) position[n_states++] = list.entry[i].states[k].position;
    for (int k = 0; k < n_states; k++) stays[k] = states_stay(position, n_states, k, n);
    for (int i = last; i >= 0; i = parent_of(&list.entry[i])) {
        entry *x = &list.entry[i];
        int left = 0;
        for (int k = 0; k < x->n_states; k++)
            if (x->states[k].position >= n || stays[at++] || x->states[k].uses > 1) x->states[left++] = x->states[k];
        x->n_states = left;
    }
}

static void list_keep(const sequence *q, bool tail) {
    int64_t n = q->cache->length;
    int last = -1;
    if (!tail || n % HT_KV_PAGE < fewest()) n -= n % HT_KV_PAGE;
    for (int64_t pos = 0; pos < n; pos += HT_KV_PAGE) {
        const int64_t end = ht_min_i64(n, pos + HT_KV_PAGE);
        last = list_node(q->key, q->token, pos, end);
        entry *x = &list.entry[last];
        for (int32_t l = 0; l < now.m->n_cache_layers && x->end == end; l++)
            if (!x->page[l] && !is_state(l)) x->page[l] = ht_cache_page(q->cache, l, pos / HT_KV_PAGE);
        if (x->end == end) list_drop_shorter(x);
        for (int64_t i = 0; i < ht_cache_snapshots(q->cache); i++)
            if (ht_cache_snapshot_at(q->cache, i) <= end) list_keep_states(x, q, ht_cache_snapshot_at(q->cache, i));
        if (tail && has_states() && end == n) list_keep_states(x, q, n);
    }
    if (has_states()) list_thin(last, n);
    use(last);
    list_keep_budget();
}

/* ---- what is to be found ---- */

typedef struct expected {
    int64_t matched, used;
    int last; /* the entry in which `used` ends; -1: none */
    ht_reuse_end end;
} expected;

/* Whether a sequence can go on from n positions, the last of them in entry `last`. */
static bool can_go_on(const sequence *q, int64_t n, entry *last) {
    if (has_states() && !find_states(last, n)) return false;
    for (int32_t l = 0; l < q->cache->n_layers; l++)
        for (int64_t p = is_state(l) ? n : first_needed(&q->cache->layer[l], n) / HT_KV_PAGE; p * HT_KV_PAGE < n; p++) {
            const entry *x = last;
            while (x->first > p * HT_KV_PAGE) x = &list.entry[parent_of(x)];
            if (!x->page[l]) return false;
        }
    return true;
}

static bool is_remembered(const sequence *q, int64_t n, int64_t matched) {
    for (int i = ht_max_i32(0, list.n_gone - REMEMBERED); i < list.n_gone; i++) {
        const remembered *g = &list.gone[i];
        if (g->key == q->key && g->end > matched && g->end <= n &&
            memcmp(g->token, q->token, (size_t)g->end * sizeof *g->token) == 0)
            return true;
    }
    return false;
}

static bool others_have(const sequence *q, int64_t n) {
    for (int i = 0; i < list.n; i++) {
        const entry *x = &list.entry[i];
        if (x->there && x->first == 0 && !same_adapters(x->key, q->key) && same_salt(x->key, q->key) &&
            common(x, q->token, n) >= ht_min_i64(n, FEWEST)) /* of any model */
            return true;
    }
    return false;
}

static ht_reuse_end end_of(const sequence *q, int64_t n, const expected *x) {
    int64_t most = ht_min_i64(x->matched, n - 1);
    if (most % HT_KV_PAGE < fewest()) most -= most % HT_KV_PAGE;
    const ht_reuse_end none = n - 1 < fewest() ? HT_REUSE_SHORT : HT_REUSE_NEW;
    if (x->used == most && x->matched >= n - 1) return n - 1 < fewest() ? HT_REUSE_SHORT : HT_REUSE_ALL;
    if (x->used < most) return has_states() ? HT_REUSE_STATE : HT_REUSE_WINDOW;
    if (is_remembered(q, n, x->matched)) return HT_REUSE_EVICTED;
    if (x->matched == 0) return none == HT_REUSE_NEW && others_have(q, n) ? HT_REUSE_ADAPTER : none;
    for (int i = 0; i < list.n; i++)
        if (list.entry[i].there && list.entry[i].key == q->key && list.entry[i].end > x->matched &&
            common(&list.entry[i], q->token, n) == x->matched)
            return HT_REUSE_DIFFERS;
    return HT_REUSE_ENDS;
}

static expected expect(const sequence *q, int64_t n) {
    static int64_t shared[ENTRIES];
    expected x = {.last = -1};
    for (int i = 0; i < list.n; i++) {
        const entry *e = &list.entry[i];
        shared[i] = e->there && e->key == q->key ? common(e, q->token, n) : 0;
        x.matched = ht_max_i64(x.matched, shared[i]);
    }
    for (int64_t most = ht_min_i64(x.matched, n - 1); most > 0 && x.last < 0; most--) {
        if ((most - 1) % HT_KV_PAGE + 1 < fewest()) continue;
        for (int i = list.n - 1; i >= 0 && x.last < 0; i--)
            if (shared[i] >= most && list.entry[i].first == (most - 1) / HT_KV_PAGE * HT_KV_PAGE &&
                can_go_on(q, most, &list.entry[i])) {
                x.last = i;
                x.used = most;
            }
    }
    x.end = end_of(q, n, &x);
    return x;
}

/* ---- operations ---- */

static void find(sequence *q, int64_t n) {
    const ht_prefix_key key = key_of(q->key);
    const expected want = expect(q, n);
    ht_prefix_found got;
    assert_int_equal(ht_prefix_cache_find(now.c, &key, q->token, n, q->cache, &got, NULL), HT_OK);
    assert_int_equal(got.matched, want.matched);
    assert_int_equal(got.used, want.used);
    assert_int_equal(got.end, want.end);
    assert_int_equal(q->cache->length, want.used);
    check_contents(q);
    if (got.end == HT_REUSE_DIFFERS) {
        bool is_kept = false;
        assert_int_equal(got.token, q->token[got.matched]);
        for (int i = 0; i < list.n; i++) {
            const entry *e = &list.entry[i];
            is_kept = is_kept || (e->there && e->key == q->key && e->end > got.matched &&
                                  common(e, q->token, n) == got.matched && e->token[got.matched] == got.kept);
        }
        assert_true(is_kept);
    }
    list.figures.lookups++;
    if (!want.used) {
        assert_null(got.lock);
        return;
    }
    list.figures.hits++;
    list.figures.reused_tokens += want.used;
    if (has_states()) find_states(&list.entry[want.last], want.used)->uses++;
    use(want.last);
    q->lock = got.lock;
    q->locked = want.used % HT_KV_PAGE ? parent_of(&list.entry[want.last]) : want.last;
    assert_true((q->locked < 0) == !got.lock);
    if (q->locked >= 0) list.entry[q->locked].locks++;
}

static void begin(sequence *q) {
    *q = (sequence){.key = draw(4) ? 0 : (int)draw(KEYS), .locked = -1};
    draw_tokens(q->token, 0);
    assert_int_equal(ht_cache_new(now.m, CHUNK, &q->cache, NULL), HT_OK);
    ht_cache_set_account(q->cache, &now.account);
    if (draw(8) == 0) /* an empty cache may have pages */
        assert_int_equal(ht_cache_reserve(q->cache, 1 + draw(CHUNK), NULL), HT_OK);
    find(q, 1 + (int64_t)draw(draw(3) ? MOST : 20));
}

static void keep(const sequence *q, bool tail) {
    const ht_prefix_key key = key_of(q->key);
    list_keep(q, tail);
    ht_prefix_cache_keep(now.c, &key, q->token, q->cache->length, q->cache, tail);
}

/* Some steps; what a step takes is known before. */
static void grow(sequence *q) {
    const int64_t end = ht_min_i64(MOST, q->cache->length + 1 + draw(400));
    const bool keeps = draw(3) > 0;
    while (q->cache->length < end) {
        const int64_t begin_at = q->cache->length, most = ht_min_i64(end, begin_at + 1 + draw(CHUNK)),
                      to = ht_cache_plan(q->cache, now.m, q->token, end, end, most);
        const size_t before = now.account.bytes, growth = ht_cache_growth(q->cache, to);
        assert_int_equal(ht_cache_reserve(q->cache, to, NULL), HT_OK);
        if (has_states()) { /* at most */
            assert_true(now.account.bytes <= before + growth);
        } else {
            assert_int_equal(now.account.bytes, before + growth);
            assert_int_equal(ht_cache_growth(q->cache, to), 0);
        }
        write_positions(q, begin_at, to);
        ht_cache_advance(q->cache, to - begin_at);
        if (has_states()) assert_true(ht_cache_held_bytes(q->cache) <= ht_cache_bytes(now.m, to, CHUNK));
        if (keeps) keep(q, false);
    }
    check_contents(q);
}

/* Goes back, if the rings can, or to states before, and on in another way. */
static void go_back(sequence *q) {
    const int64_t place = draw((uint32_t)q->cache->length + 1), n = ht_cache_kept(q->cache, place);
    if (n < place && !has_states()) return;
    ht_cache_truncate(q->cache, n);
    draw_tokens(q->token, n);
    check_contents(q);
}

static void fork_of(const sequence *q, sequence *other) {
    *other = *q;
    other->lock = NULL;
    other->locked = -1;
    assert_int_equal(ht_cache_share(q->cache, &other->cache, NULL), HT_OK);
    draw_tokens(other->token, other->cache->length);
}

static void unlock(sequence *q) {
    if (q->locked >= 0) {
        list.entry[q->locked].locks--;
        list_keep_budget();
    }
    ht_prefix_cache_unlock(now.c, q->lock);
    q->lock = NULL;
    q->locked = -1;
}

static void end(sequence *q) {
    if (draw(4)) keep(q, draw(4) > 0);
    unlock(q);
    ht_cache_free(q->cache);
    q->cache = NULL;
}

static void operate(void) {
    sequence *q = &now.sequence[draw(SEQUENCES)];
    if (!q->cache) {
        sequence *other = &now.sequence[draw(SEQUENCES)];
        if (other->cache && draw(4) == 0)
            fork_of(other, q);
        else
            begin(q);
        return;
    }
    if (draw(40) == 0) {
        assert_int_equal(ht_prefix_cache_clear(now.c), list_clear());
        return;
    }
    switch (draw(12)) {
    case 0: go_back(q); break;
    case 1: keep(q, true); break;
    case 2: unlock(q); break;
    case 3: assert_int_equal(ht_prefix_cache_evict(now.c), list_evict()); break;
    case 4:
    case 5:
    case 6: end(q); break;
    default: grow(q); break;
    }
}

/* ---- everything is as the list has it ---- */

typedef struct visit {
    int place[ENTRIES]; /* [n] of the list */
    int64_t n, used;    /* the latter: of the last one */
} visit;

static ht_status check_entry(const ht_prefix_entry *e, void *user, ht_error *err) {
    visit *v = user;
    (void)err;
    int i = 0;
    const int key = number_of(e->key);
    const int parent = e->parent < 0 ? -1 : v->place[e->parent];
    assert_true(e->parent < v->n);
    for (; i < list.n; i++) {
        const entry *x = &list.entry[i];
        if (x->there && x->key == key && x->first == e->first && x->end == e->first + e->n && parent_of(x) == parent &&
            memcmp(x->token + x->first, e->token, (size_t)e->n * sizeof *e->token) == 0)
            break;
    }
    assert_true(i < list.n);
    const entry *x = &list.entry[i];
    assert_int_equal(e->locks, x->locks);
    for (int32_t l = 0; l < now.m->n_cache_layers; l++) assert_ptr_equal(e->page[l], x->page[l]);
    int n_states = 0;
    for (const ht_prefix_states *s = e->states; s; s = s->next, n_states++) {
        const states *want = find_states(&list.entry[i], e->first + s->n);
        assert_non_null(want);
        assert_int_equal(s->uses, want->uses);
        for (int32_t l = 0; l < now.m->n_cache_layers; l++) assert_ptr_equal(s->page[l], want->page[l]);
    }
    assert_int_equal(n_states, x->n_states);
    assert_true(v->n == 0 || x->used < v->used);
    v->used = x->used;
    v->place[v->n++] = i;
    return HT_OK;
}

static void check_all(void) {
    static visit v;
    const ht_prefix_figures is = ht_prefix_cache_get_figures(now.c), *want = &list.figures;
    v.n = 0;
    assert_int_equal(ht_prefix_cache_each(now.c, check_entry, &v, NULL), HT_OK);
    assert_int_equal(v.n, want->nodes);
    assert_int_equal(is.nodes, want->nodes);
    assert_int_equal(is.tokens, want->tokens);
    assert_int_equal(is.bytes, bytes_held(0));
    assert_int_equal(is.budget, want->budget);
    assert_int_equal(is.lookups, want->lookups);
    assert_int_equal(is.hits, want->hits);
    assert_int_equal(is.reused_tokens, want->reused_tokens);
    assert_int_equal(is.evicted, want->evicted);
    assert_int_equal(now.account.bytes, bytes_held(SEQUENCES));
}

static void random_case(const ht_model *m, size_t budget) {
    now.m = m;
    list.n = list.n_gone = 0;
    list.clock = 0;
    list.figures = (ht_prefix_figures){.budget = budget};
    assert_int_equal(ht_prefix_cache_new(m, budget, &now.c, NULL), HT_OK);
    for (int i = 0; i < OPERATIONS; i++) {
        operate();
        check_all();
    }
    for (int i = 0; i < SEQUENCES; i++)
        if (now.sequence[i].cache) end(&now.sequence[i]);
    check_all();
    assert_int_equal(now.account.bytes, bytes_held(0));
    assert_true(now.account.bytes <= budget);
    ht_prefix_cache_free(now.c);
    assert_int_equal(now.account.bytes, 0);
}

UNIT_TEST(random_operations) {
    list.entry = malloc(ENTRIES * sizeof *list.entry);
    list.gone = malloc(ENTRIES * sizeof *list.gone);
    assert_true(list.entry && list.gone);
    int64_t hits = 0, evicted = 0;
    for (int i = 0, n = test_cases(TEST_SLOW ? 60 : 300, 30000); i < n; i++) {
        const ht_model *m = models[i % N_MODELS];
        size_t page = 0;
        for (int32_t l = 0; l < m->n_cache_layers; l++) page += m->device->kv->page_bytes(&m->kv[l].shape);
        static const size_t pages[] = {0, 1, 4, 10, 30, 1000};
        seed = (uint64_t)i;
        random_case(m, pages[draw(6)] * page + draw(3) * page / 3);
        hits += list.figures.hits;
        evicted += list.figures.evicted;
    }
    assert_true(hits > 0 && evicted > 0);
    free(list.entry);
    free(list.gone);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_operations)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
