#include "generate/prefix_cache.h"

#include "base/checked.h"
#include "base/digest.h"
#include "base/error.h"
#include "device/device.h"
#include "generate/snapshots.h"

#include <stdlib.h>
#include <string.h>

/* Fewest tokens of a page worth copying it, unless states would have to be computed again. Number of evicted nodes
 * remembered for reports. Lookups after which states are kept with their node. */
enum { FEWEST_TOKENS = 8, GHOSTS = 256, USES = 2 };

/* The nodes of one key. */
typedef struct root {
    char *salt;
    ht_digest *adapter; /* [n] */
    float *scale;
    int n;
    bool is_long;
    ht_prefix_node *child;
    struct root *next;
} root;

struct ht_prefix_node {
    root *root;
    ht_prefix_node *parent; /* NULL: the root's */
    ht_prefix_node *child, *sibling;
    ht_prefix_node *older, *newer; /* by use: a node is newer than its children */
    int32_t n;
    int64_t first; /* position */
    int locks;
    int64_t number; /* while entries are counted */
    int32_t *token; /* [n] */
    ht_prefix_states *states;
    ht_kv_page *page[]; /* [n_layers]; NULL: states, or gone before it could be kept */
};

/* An evicted node, for reports. Separate digests of key and tokens: no tokens can imitate another salt. */
typedef struct ghost {
    ht_digest key, tokens;
    int64_t length; /* 0: none */
} ghost;

struct ht_prefix_cache {
    ht_device *device; /* held */
    int32_t n_layers;
    ht_kv_shape *shape; /* [n_layers] */
    bool has_states;
    int32_t fewest; /* tokens of a page that are shared */
    root *roots;
    ht_prefix_node *oldest, *newest;
    ht_prefix_figures figures;
    ghost ghost[GHOSTS];
    int next_ghost;
};

/* ---- order of use ---- */

static void unlink_use(ht_prefix_cache *c, ht_prefix_node *x) {
    if (x->older)
        x->older->newer = x->newer;
    else if (c->oldest == x)
        c->oldest = x->newer;
    if (x->newer)
        x->newer->older = x->older;
    else if (c->newest == x)
        c->newest = x->older;
    x->older = x->newer = NULL;
}

/* The node and all above it, which become the newest, in this order. */
static void touch(ht_prefix_cache *c, ht_prefix_node *x) {
    for (; x; x = x->parent) {
        unlink_use(c, x);
        x->older = c->newest;
        if (c->newest)
            c->newest->newer = x;
        else
            c->oldest = x;
        c->newest = x;
    }
}

/* ---- keys ---- */

static const char *salt_of(const ht_prefix_key *key) { return key->salt ? key->salt : ""; }

static bool same_adapters(const root *r, const ht_prefix_key *key) {
    if (r->n != key->n_adapters) return false;
    for (int i = 0; i < r->n; i++)
        if (!ht_digest_same(r->adapter[i], key->adapters[i]) || r->scale[i] != (key->scales ? key->scales[i] : 1))
            return false;
    return true;
}

static root *find_root(const ht_prefix_cache *c, const ht_prefix_key *key) {
    for (root *r = c->roots; r; r = r->next)
        if (strcmp(r->salt, salt_of(key)) == 0 && same_adapters(r, key) && r->is_long == key->is_long) return r;
    return NULL;
}

static void free_root(root *r) {
    free(r->adapter);
    free(r->scale);
    free(r->salt);
    free(r);
}

static root *make_root(ht_prefix_cache *c, const ht_prefix_key *key) {
    root *r = find_root(c, key);
    if (r) return r;
    const size_t n = (size_t)key->n_adapters;
    r = calloc(1, sizeof *r);
    if (!r) return NULL;
    r->salt = strdup(salt_of(key));
    r->adapter = calloc(n + 1, sizeof *r->adapter);
    r->scale = calloc(n + 1, sizeof *r->scale);
    if (!r->salt || !r->adapter || !r->scale) {
        free_root(r);
        return NULL;
    }
    for (; r->n < key->n_adapters; r->n++) {
        r->adapter[r->n] = key->adapters[r->n];
        r->scale[r->n] = key->scales ? key->scales[r->n] : 1;
    }
    r->is_long = key->is_long;
    r->next = c->roots;
    c->roots = r;
    return r;
}

static void drop_empty_root(ht_prefix_cache *c, root *r) {
    if (r->child) return;
    root **at = &c->roots;
    while (*at != r) at = &(*at)->next;
    *at = r->next;
    free_root(r);
}

/* ---- nodes ---- */

static ht_prefix_node **children(root *r, ht_prefix_node *parent) { return parent ? &parent->child : &r->child; }

static void free_states(ht_prefix_cache *c, ht_prefix_states *s) {
    for (int32_t i = 0; i < c->n_layers; i++) ht_kv_page_release(c->device, &c->shape[i], s->page[i]);
    free(s);
}

static void free_node(ht_prefix_cache *c, ht_prefix_node *x) {
    for (ht_prefix_states *s = x->states, *next; s; s = next) {
        next = s->next;
        free_states(c, s);
    }
    for (int32_t i = 0; i < c->n_layers; i++) ht_kv_page_release(c->device, &c->shape[i], x->page[i]);
    free(x->token);
    free(x);
}

static size_t page_bytes(const ht_prefix_cache *c, int32_t i) { return c->device->kv->page_bytes(&c->shape[i]); }

static bool holds(const ht_prefix_node *x, int32_t i, const ht_kv_page *page) {
    const ht_prefix_states *s = x->states;
    while (s && s->page[i] != page) s = s->next;
    return s || x->page[i] == page;
}

/* Whether another node has this page of layer i: a sibling with the same tokens up to where their sequences parted. */
static bool others_hold(const ht_prefix_node *x, int32_t i, const ht_kv_page *page) {
    if (!ht_kv_page_is_shared(page)) return false; /* only one holder: this node, or the giver */
    for (const ht_prefix_node *y = *children(x->root, x->parent); y; y = y->sibling)
        if (y != x && holds(y, i, page)) return true;
    return false;
}

/* Subtracts pages that the node alone has. */
static void discount(ht_prefix_cache *c, const ht_prefix_node *x, ht_kv_page *const *page) {
    for (int32_t i = 0; i < c->n_layers; i++)
        if (page[i] && !others_hold(x, i, page[i])) c->figures.bytes -= page_bytes(c, i);
}

/* Removes a leaf from the tree. */
static void remove_leaf(ht_prefix_cache *c, ht_prefix_node *x) {
    root *r = x->root;
    ht_prefix_node **at = children(r, x->parent);
    while (*at != x) at = &(*at)->sibling;
    *at = x->sibling;
    unlink_use(c, x);
    discount(c, x, x->page);
    for (const ht_prefix_states *s = x->states; s; s = s->next) discount(c, x, s->page);
    c->figures.nodes--;
    c->figures.tokens -= x->n;
    free_node(c, x);
    drop_empty_root(c, r);
}

/* Adds a page that the node lacked; the node retains it. */
static void give_page(ht_prefix_cache *c, ht_prefix_node *x, int32_t i, ht_kv_page *page) {
    if (!others_hold(x, i, page)) c->figures.bytes += page_bytes(c, i);
    x->page[i] = ht_kv_page_retain(page);
}

/* The link to the states after n tokens or, if there are none, after fewer. */
static ht_prefix_states **states_link(ht_prefix_node *x, int64_t n) {
    ht_prefix_states **at = &x->states;
    while (*at && (*at)->n > n) at = &(*at)->next;
    return at;
}

static ht_prefix_states *find_states(ht_prefix_node *x, int64_t n) {
    ht_prefix_states *s = *states_link(x, n);
    return s && s->n == n ? s : NULL;
}

/* Adds states that the node lacks; it retains their pages. False without memory. */
static bool give_states(ht_prefix_cache *c, ht_prefix_node *x, int32_t n, ht_kv_page *const *page) {
    ht_prefix_states **at = states_link(x, n), *s = calloc(1, sizeof *s + (size_t)c->n_layers * sizeof *s->page);
    if (!s) return false;
    s->n = n;
    for (int32_t i = 0; i < c->n_layers; i++) {
        if (!page[i]) continue;
        if (!others_hold(x, i, page[i])) c->figures.bytes += page_bytes(c, i);
        s->page[i] = ht_kv_page_retain(page[i]);
    }
    s->next = *at;
    *at = s;
    return true;
}

static ht_prefix_node *new_node(ht_prefix_cache *c, root *r, ht_prefix_node *parent, const int32_t *token, int32_t n) {
    ht_prefix_node *x = calloc(1, sizeof *x + (size_t)c->n_layers * sizeof *x->page);
    if (x) x->token = malloc((size_t)n * sizeof *x->token);
    if (!x || !x->token) {
        free(x);
        return NULL;
    }
    memcpy(x->token, token, (size_t)n * sizeof *token);
    x->n = n;
    x->root = r;
    x->parent = parent;
    x->first = parent ? parent->first + parent->n : 0;
    ht_prefix_node **at = children(r, parent);
    x->sibling = *at;
    *at = x;
    c->figures.nodes++;
    c->figures.tokens += n;
    return x;
}

/* Length of the common prefix of n tokens and the node's. */
static int32_t common(const ht_prefix_node *x, const int32_t *token, int64_t n) {
    int32_t i = 0;
    while (i < x->n && i < n && x->token[i] == token[i]) i++;
    return i;
}

/* The child with the longest common prefix with n tokens, the longer one on ties; NULL: none. */
static ht_prefix_node *best_child(root *r, ht_prefix_node *parent, const int32_t *token, int64_t n, int32_t *most) {
    ht_prefix_node *best = NULL;
    *most = 0;
    for (ht_prefix_node *x = *children(r, parent); x; x = x->sibling) {
        const int32_t m = common(x, token, n);
        if (m > *most || (best && m == *most && x->n > best->n)) {
            *most = m;
            best = x;
        }
    }
    return best;
}

/* ---- life ---- */

ht_status ht_prefix_cache_new(const ht_model *m, size_t budget, ht_prefix_cache **out, ht_error *err) {
    ht_prefix_cache *c = *out = calloc(1, sizeof *c);
    if (c) c->shape = calloc((size_t)m->n_cache_layers + 1, sizeof *c->shape);
    if (!c || !c->shape) {
        free(c);
        *out = NULL;
        return ht_fail_memory(err, sizeof *c, "a prefix cache");
    }
    c->device = ht_device_retain(m->device);
    c->n_layers = m->n_cache_layers;
    for (int32_t i = 0; i < c->n_layers; i++) {
        c->shape[i] = m->kv[i].shape;
        c->has_states |= m->kv[i].shape.state > 0;
    }
    c->fewest = c->has_states ? 1 : FEWEST_TOKENS;
    c->figures.budget = budget;
    return HT_OK;
}

void ht_prefix_cache_free(ht_prefix_cache *c) {
    if (!c) return;
    while (c->oldest) remove_leaf(c, c->oldest);
    ht_device_free(c->device);
    free(c->shape);
    free(c);
}

ht_prefix_figures ht_prefix_cache_get_figures(const ht_prefix_cache *c) { return c->figures; }

/* ---- digests of evicted nodes ---- */

static ht_digest key_digest(const char *salt, const ht_digest *adapter, const float *scale, int n, bool is_long) {
    ht_digest d = {21, 22};
    ht_digest_text(&d, salt);
    ht_digest_word(&d, is_long);
    for (int i = 0; i < n; i++) {
        const float factor = scale ? scale[i] : 1;
        ht_digest_word(&d, adapter[i].a);
        ht_digest_word(&d, adapter[i].b);
        ht_digest_bytes(&d, &factor, sizeof factor);
    }
    return d;
}

static const ht_digest no_tokens = {23, 24};

static void add_tokens(ht_digest *d, const ht_prefix_node *x) {
    if (x->parent) add_tokens(d, x->parent);
    for (int32_t i = 0; i < x->n; i++) ht_digest_word(d, (uint32_t)x->token[i]);
}

static void remember(ht_prefix_cache *c, const ht_prefix_node *x) {
    const root *r = x->root;
    ghost *g = &c->ghost[c->next_ghost];
    *g = (ghost){key_digest(r->salt, r->adapter, r->scale, r->n, r->is_long), no_tokens, x->first + x->n};
    add_tokens(&g->tokens, x);
    c->next_ghost = (c->next_ghost + 1) % GHOSTS;
}

/* Whether more of the n tokens than `matched` were cached once. */
static bool was_evicted(const ht_prefix_cache *c, const ht_prefix_key *key, const int32_t *token, int64_t n,
                        int64_t matched) {
    const ht_digest k = key_digest(salt_of(key), key->adapters, key->scales, key->n_adapters, key->is_long);
    const ghost *maybe[GHOSTS];
    int n_maybe = 0;
    for (int g = 0; g < GHOSTS; g++)
        if (c->ghost[g].length > matched && c->ghost[g].length <= n && ht_digest_same(c->ghost[g].key, k))
            maybe[n_maybe++] = &c->ghost[g];
    ht_digest d = no_tokens;
    for (int64_t i = 0; i < n && n_maybe; i++) {
        ht_digest_word(&d, (uint32_t)token[i]);
        for (int g = 0; g < n_maybe; g++)
            if (maybe[g]->length == i + 1 && ht_digest_same(maybe[g]->tokens, d)) return true;
    }
    return false;
}

/* The least recently used node that may be evicted; NULL: none. */
static ht_prefix_node *oldest_free(const ht_prefix_cache *c) {
    ht_prefix_node *x = c->oldest;
    while (x && (x->locks || x->child)) x = x->newer;
    return x;
}

bool ht_prefix_cache_evict(ht_prefix_cache *c) {
    ht_prefix_node *x = oldest_free(c);
    if (!x) return false;
    remember(c, x);
    remove_leaf(c, x);
    c->figures.evicted++;
    return true;
}

int64_t ht_prefix_cache_clear(ht_prefix_cache *c) {
    const int64_t before = c->figures.tokens;
    for (ht_prefix_node *x = oldest_free(c); x; x = oldest_free(c)) remove_leaf(c, x);
    return before - c->figures.tokens;
}

static void keep_budget(ht_prefix_cache *c) {
    while (c->figures.bytes > c->figures.budget && ht_prefix_cache_evict(c)) {}
}

/* ---- finding ---- */

/* The nodes from the first position to the deepest match. */
typedef struct path {
    const ht_prefix_cache *c;
    ht_prefix_node **node; /* [n] */
    int64_t n;
} path;

/* The states after n positions; NULL: none. */
static ht_prefix_states *states_of(const path *p, int64_t n) {
    ht_prefix_node *x = (n - 1) / HT_KV_PAGE < p->n ? p->node[(n - 1) / HT_KV_PAGE] : NULL;
    return x ? find_states(x, n - x->first) : NULL;
}

static ht_kv_page *page_of(void *user, int32_t layer, int64_t index) {
    const path *p = user;
    if (p->c->shape[layer].state) {
        const ht_prefix_states *s = states_of(p, index);
        return s ? s->page[layer] : NULL;
    }
    return index < p->n ? p->node[index]->page[layer] : NULL;
}

/* Follows the tokens. The path has capacity for a node per page. */
static int64_t match(root *r, const int32_t *token, int64_t n, path *p) {
    ht_prefix_node *at = NULL;
    int64_t matched = 0;
    while (matched < n) {
        int32_t some;
        ht_prefix_node *x = best_child(r, at, token + matched, n - matched, &some);
        if (!x) break;
        p->node[p->n++] = x;
        matched += some;
        if (some < HT_KV_PAGE) break;
        at = x;
    }
    return matched;
}

/* The most of n tokens of a node after which a sequence can continue as far as states are concerned. */
static int64_t most_of(const ht_prefix_cache *c, ht_prefix_node *x, int64_t n) {
    if (!c->has_states) return n;
    const ht_prefix_states *s = *states_link(x, n);
    return s ? s->n : 0;
}

/* The most of `most` matched positions from which a sequence can continue; the path then leads there. A shorter
 * match may have pages of sliding layers that its sibling lacks. */
static int64_t usable(const ht_cache *into, root *r, const int32_t *token, int64_t most, path *p) {
    for (int64_t at = ht_ceil_div_i64(most, HT_KV_PAGE) - 1; at >= 0; at--) {
        const int64_t first = at * HT_KV_PAGE;
        ht_prefix_node *best = NULL, *x = *children(r, at ? p->node[at - 1] : NULL);
        int64_t n = 0;
        for (; x; x = x->sibling) {
            const int64_t some = most_of(p->c, x, common(x, token + first, most - first));
            if (some < p->c->fewest || first + some <= n) continue;
            p->node[at] = x;
            if (!ht_cache_can_adopt(into, first + some, page_of, p)) continue;
            best = x;
            n = first + some;
        }
        p->node[at] = best;
        if (best) return n;
    }
    return 0;
}

/* Whether sequences with the same salt but other adapters have these tokens. */
static bool is_there_for_others(const ht_prefix_cache *c, const ht_prefix_key *key, const int32_t *token, int64_t n) {
    int32_t some;
    for (root *r = c->roots; r; r = r->next)
        if (strcmp(r->salt, salt_of(key)) == 0 && !same_adapters(r, key) && best_child(r, NULL, token, n, &some) &&
            some >= ht_min_i64(n, FEWEST_TOKENS))
            return true;
    return false;
}

/* Reports why the match ended where it did, in `last`. */
static void explain(const ht_prefix_cache *c, const ht_prefix_key *key, const int32_t *token, int64_t n,
                    const ht_prefix_node *last, int64_t usable_most, ht_prefix_found *out) {
    if (out->used == n - 1 || (out->matched >= n - 1 && out->used == usable_most)) {
        out->end = n - 1 < c->fewest ? HT_REUSE_SHORT : HT_REUSE_ALL;
    } else if (out->used < usable_most) {
        out->end = c->has_states ? HT_REUSE_STATE : HT_REUSE_WINDOW;
    } else if (was_evicted(c, key, token, n, out->matched)) {
        out->end = HT_REUSE_EVICTED;
    } else if (!last) {
        out->end = n - 1 < c->fewest                       ? HT_REUSE_SHORT
                   : is_there_for_others(c, key, token, n) ? HT_REUSE_ADAPTER
                                                           : HT_REUSE_NEW;
    } else if (out->matched - last->first < last->n) {
        out->end = HT_REUSE_DIFFERS;
        out->token = token[out->matched];
        out->kept = last->token[out->matched - last->first];
    } else if (last->child) {
        out->end = HT_REUSE_DIFFERS;
        out->token = token[out->matched];
        out->kept = last->child->token[0];
    } else {
        out->end = HT_REUSE_ENDS;
    }
}

ht_status ht_prefix_cache_find(ht_prefix_cache *c, const ht_prefix_key *key, const int32_t *tokens, int64_t n,
                               ht_cache *into, ht_prefix_found *out, ht_error *err) {
    *out = (ht_prefix_found){0};
    path p = {.c = c, .node = malloc((size_t)(n / HT_KV_PAGE + 1) * sizeof *p.node)};
    if (!p.node) return ht_fail_memory(err, (size_t)n, "looking up a prefix");
    root *r = find_root(c, key);
    if (r) out->matched = match(r, tokens, n, &p);
    const ht_prefix_node *last = p.n ? p.node[p.n - 1] : NULL;
    int64_t most = ht_min_i64(out->matched, n - 1);
    if (most % HT_KV_PAGE < c->fewest) most -= most % HT_KV_PAGE;
    out->used = most > 0 ? usable(into, r, tokens, most, &p) : 0;
    explain(c, key, tokens, n, last, most, out);
    ht_status status = HT_OK;
    if (out->used) status = ht_cache_adopt(into, out->used, page_of, &p, err);
    if (status) out->used = 0;
    c->figures.lookups++;
    if (out->used) {
        const int64_t whole = out->used / HT_KV_PAGE;
        ht_prefix_states *states = states_of(&p, out->used);
        if (states) states->uses++;
        c->figures.hits++;
        c->figures.reused_tokens += out->used;
        touch(c, p.node[(out->used - 1) / HT_KV_PAGE]);
        if (whole) out->lock = p.node[whole - 1];
        if (out->lock) out->lock->locks++;
    }
    free(p.node);
    return status;
}

void ht_prefix_cache_unlock(ht_prefix_cache *c, ht_prefix_node *lock) {
    if (!lock) return;
    lock->locks--;
    keep_budget(c);
}

/* ---- keeping ---- */

static void fill_pages(ht_prefix_cache *c, ht_prefix_node *x, const ht_cache *cache) {
    for (int32_t i = 0; i < c->n_layers; i++) {
        if (c->shape[i].state) continue; /* keep_states */
        ht_kv_page *page = x->page[i] ? NULL : ht_cache_page(cache, i, x->first / HT_KV_PAGE);
        if (page) give_page(c, x, i, page);
    }
}

static bool has_pages_of(const ht_prefix_cache *c, const ht_prefix_node *x, const ht_prefix_node *y) {
    for (int32_t i = 0; i < c->n_layers; i++)
        if (y->page[i] && !x->page[i]) return false;
    return true;
}

/* Moves states to a node with the same tokens that lacks them. */
static void move_states(ht_prefix_node *from, ht_prefix_node *to) {
    for (ht_prefix_states **at = &from->states; *at;) {
        ht_prefix_states *s = *at, **link = states_link(to, s->n);
        if (*link && (*link)->n == s->n) {
            at = &s->next;
            continue;
        }
        *at = s->next;
        s->next = *link;
        *link = s;
    }
}

/* Removes shorter nodes whose tokens and pages this node includes. */
static void drop_shorter(ht_prefix_cache *c, ht_prefix_node *x) {
    for (ht_prefix_node *y = *children(x->root, x->parent), *next; y; y = next) {
        next = y->sibling;
        if (y->n >= x->n || y->child || y->locks || common(y, x->token, x->n) < y->n || !has_pages_of(c, x, y))
            continue;
        move_states(y, x);
        remove_leaf(c, y);
    }
}

static bool is_whole(const ht_prefix_cache *c, const ht_prefix_node *x) {
    for (int32_t i = 0; i < c->n_layers; i++)
        if (!x->page[i] && !c->shape[i].state) return false;
    return true;
}

/* The node of these n tokens, or a longer one with all pages; NULL: none. */
static ht_prefix_node *node_of(const ht_prefix_cache *c, root *r, ht_prefix_node *parent, const int32_t *token,
                               int32_t n) {
    ht_prefix_node *x = *children(r, parent);
    while (x && (common(x, token, n) < n || (x->n > n && !is_whole(c, x)))) x = x->sibling;
    return x;
}

/* Keeps the cache's states after n positions, which the node has. */
static void keep_states(ht_prefix_cache *c, ht_prefix_node *x, const ht_cache *cache, int64_t n, ht_kv_page **page) {
    if (n <= x->first || n > x->first + x->n || find_states(x, n - x->first)) return;
    bool has_all = true;
    for (int32_t i = 0; i < c->n_layers; i++) {
        page[i] = c->shape[i].state ? ht_cache_page(cache, i, n) : NULL;
        has_all = has_all && (page[i] || !c->shape[i].state);
    }
    if (has_all) (void)give_states(c, x, (int32_t)(n - x->first), page);
}

/* Goes to the states before *s in the sequence that ends in node *x; false: there are none. */
static bool previous_states(ht_prefix_node **x, ht_prefix_states **s) {
    *s = *s ? (*s)->next : NULL;
    while (!*s && (*x = (*x)->parent)) *s = (*x)->states;
    return *s;
}

/* Removes states before the end of a sequence of `end` tokens, in node `at`, that a cache would not keep. */
static void thin_states(ht_prefix_cache *c, ht_prefix_node *at, int64_t end) {
    int64_t after = -1;
    ht_prefix_node *x = at;
    ht_prefix_states *s = *states_link(at, end - 1 - at->first); /* the node may be of a longer sequence */
    for (bool more = s || previous_states(&x, &s); more;) {
        ht_prefix_node *lower = x;
        ht_prefix_states *lower_states = s;
        const int64_t position = x->first + s->n;
        int64_t before = -1;
        while (before < 0 && previous_states(&lower, &lower_states))
            if (!ht_snapshot_is_page_end(lower->first + lower_states->n)) before = lower->first + lower_states->n;
        ht_prefix_node *const of = x;
        const bool stays = s->uses >= USES || ht_snapshot_stays(position, before, after, end);
        if (stays && !ht_snapshot_is_page_end(position)) after = position;
        ht_prefix_states **link = states_link(x, s->n), *gone = s;
        more = previous_states(&x, &s);
        if (stays) continue;
        discount(c, of, gone->page);
        *link = gone->next;
        free_states(c, gone);
    }
}

void ht_prefix_cache_keep(ht_prefix_cache *c, const ht_prefix_key *key, const int32_t *tokens, int64_t n,
                          const ht_cache *cache, bool tail) {
    ht_prefix_node *at = NULL;
    if (!tail || n % HT_KV_PAGE < c->fewest) n -= n % HT_KV_PAGE; /* fewer are never reused */
    ht_kv_page **page = calloc((size_t)c->n_layers, sizeof(ht_kv_page *));
    root *r = n > 0 && page ? make_root(c, key) : NULL;
    if (!r) {
        free(page);
        return;
    }
    for (int64_t pos = 0; pos < n; pos += HT_KV_PAGE) {
        const int32_t some = (int32_t)ht_min_i64(HT_KV_PAGE, n - pos);
        ht_prefix_node *x = node_of(c, r, at, tokens + pos, some);
        if (!x && !(x = new_node(c, r, at, tokens + pos, some))) break;
        if (x->n == some) {
            fill_pages(c, x, cache);
            drop_shorter(c, x);
        }
        for (int64_t i = 0; i < ht_cache_snapshots(cache); i++)
            if (ht_cache_snapshot_at(cache, i) <= pos + some)
                keep_states(c, x, cache, ht_cache_snapshot_at(cache, i), page);
        if (tail && c->has_states && pos + some == n) keep_states(c, x, cache, n, page);
        at = x;
    }
    free(page);
    if (at && c->has_states) thin_states(c, at, n);
    if (at)
        touch(c, at);
    else
        drop_empty_root(c, r);
    keep_budget(c);
}

/* ---- for files ---- */

ht_status ht_prefix_cache_each(const ht_prefix_cache *c, ht_prefix_entry_fn *fn, void *user, ht_error *err) {
    ht_status status = HT_OK;
    int64_t number = 0;
    for (ht_prefix_node *x = c->newest; x && !status; x = x->older) {
        const root *r = x->root;
        const ht_prefix_key key = {r->salt, r->adapter, r->scale, r->n, r->is_long};
        const ht_prefix_entry entry = {
            &key, x->parent ? x->parent->number : -1, x->token, x->n, x->first, x->locks, x->page, x->states};
        x->number = number++;
        status = fn(&entry, user, err);
    }
    return status;
}

static void make_oldest(ht_prefix_cache *c, ht_prefix_node *x) {
    x->newer = c->oldest;
    if (c->oldest)
        c->oldest->older = x;
    else
        c->newest = x;
    c->oldest = x;
}

ht_status ht_prefix_cache_add(ht_prefix_cache *c, const ht_prefix_key *key, ht_prefix_node *parent,
                              const int32_t *token, int32_t n, ht_kv_page *const *page, ht_prefix_node **out,
                              ht_error *err) {
    root *r = parent ? parent->root : make_root(c, key);
    *out = NULL;
    if (!r) return ht_fail_memory(err, sizeof *r, "a prefix cache");
    ht_prefix_node *x = node_of(c, r, parent, token, n);
    const bool has_more = x && x->n > n;
    size_t bytes = 0;
    for (int32_t i = 0; i < c->n_layers && page; i++)
        if (page[i] && !(x && x->page[i])) bytes += page_bytes(c, i);
    const bool fits = c->figures.bytes <= c->figures.budget && bytes <= c->figures.budget - c->figures.bytes;
    const bool adds = page && fits && !has_more;
    ht_status status = HT_OK;
    if (adds && !x) {
        x = new_node(c, r, parent, token, n);
        if (x)
            make_oldest(c, x);
        else
            status = ht_fail_memory(err, (size_t)n * sizeof *token, "a prefix cache");
    }
    if (adds && x) {
        for (int32_t i = 0; i < c->n_layers; i++)
            if (page[i] && !x->page[i]) give_page(c, x, i, page[i]);
        drop_shorter(c, x);
    }
    *out = x;
    drop_empty_root(c, r);
    return status;
}

ht_status ht_prefix_cache_add_states(ht_prefix_cache *c, ht_prefix_node *x, int32_t n, ht_kv_page *const *page,
                                     ht_error *err) {
    size_t bytes = 0;
    if (find_states(x, n)) return HT_OK;
    for (int32_t i = 0; i < c->n_layers; i++)
        if (page[i]) bytes += page_bytes(c, i);
    if (c->figures.bytes > c->figures.budget || bytes > c->figures.budget - c->figures.bytes) return HT_OK;
    return give_states(c, x, n, page) ? HT_OK : ht_fail_memory(err, sizeof(ht_prefix_states), "a prefix cache");
}
