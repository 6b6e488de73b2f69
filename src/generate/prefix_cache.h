/* Prefix cache: KV pages of computed tokens, shared by sequences that begin with the same tokens.
 *
 * Each key has a radix tree. A node holds the 256 tokens of a page, or fewer at the end, and its pages in all
 * layers, if sliding layers still had them, and the states of recurrent layers after some of the tokens: a sequence can
 * share the positions up to such states alone. Tokens are compared, never hashed. A sequence may share part of a node,
 * and copies the page to continue. Nodes of running sequences are locked; eviction takes the least recently used
 * other leaf. One thread at a time. */
#ifndef HT_GENERATE_PREFIX_CACHE_H
#define HT_GENERATE_PREFIX_CACHE_H

#include "base/digest.h"
#include "generate/cache.h"

#include <hearth/engine.h>

typedef struct ht_prefix_cache ht_prefix_cache;
typedef struct ht_prefix_node ht_prefix_node;

/* States after the first n tokens of a node. */
typedef struct ht_prefix_states {
    struct ht_prefix_states *next; /* after fewer tokens */
    int32_t n;
    int uses;           /* by lookups */
    ht_kv_page *page[]; /* [n_layers]; NULL: the layer has none */
} ht_prefix_states;

/* Everything but tokens on which keys and values depend, and a salt: other salts share nothing. Adapters are
 * compared by content, so that files can name them. Lent, and copied when kept. */
typedef struct ht_prefix_key {
    const char *salt;          /* NULL: "" */
    const ht_digest *adapters; /* [n_adapters], of ht_adapter_digest */
    const float *scales;       /* [n_adapters]; NULL: 1 */
    int n_adapters;
    bool is_long; /* of long sequences (ht_model_is_long) */
} ht_prefix_key;

/* Result of a lookup. */
typedef struct ht_prefix_found {
    int64_t matched;      /* leading tokens that are cached */
    int64_t used;         /* positions that the sequence shares */
    ht_reuse_end end;     /* why no more; never HT_REUSE_OFF */
    int32_t token, kept;  /* with HT_REUSE_DIFFERS: token `matched`, and the cached token there */
    ht_prefix_node *lock; /* NULL: none; to be unlocked */
} ht_prefix_found;

typedef struct ht_prefix_figures {
    size_t bytes, budget;
    int64_t nodes, tokens;                         /* kept now */
    int64_t lookups, hits, reused_tokens, evicted; /* so far */
} ht_prefix_figures;

/* Keeps pages of at most `budget` bytes. */
ht_status ht_prefix_cache_new(const ht_model *m, size_t budget, ht_prefix_cache **out, ht_error *err);
void ht_prefix_cache_free(ht_prefix_cache *c); /* NULL is fine */

/* Shares the cached prefix of the tokens, at most n - 1 positions, with an empty cache. */
ht_status ht_prefix_cache_find(ht_prefix_cache *c, const ht_prefix_key *key, const int32_t *tokens, int64_t n,
                               ht_cache *into, ht_prefix_found *out, ht_error *err);
void ht_prefix_cache_unlock(ht_prefix_cache *c, ht_prefix_node *lock); /* NULL is fine */

/* Keeps the first n positions of a cache, computed from these tokens, with its snapshots; `tail`: even an incomplete
 * page, and the states after all positions. It then removes earlier states along the tokens, unless a cache would keep
 * them (generate/snapshots.h) or two lookups have used them. It may keep nothing. */
void ht_prefix_cache_keep(ht_prefix_cache *c, const ht_prefix_key *key, const int32_t *tokens, int64_t n,
                          const ht_cache *cache, bool tail);

/* Evicts the least recently used unlocked leaf; false when there is none. */
bool ht_prefix_cache_evict(ht_prefix_cache *c);
/* Removes all nodes except those of running sequences; returns the number of removed tokens. None counts as evicted. */
int64_t ht_prefix_cache_clear(ht_prefix_cache *c);
ht_prefix_figures ht_prefix_cache_get_figures(const ht_prefix_cache *c);

/* ---- for files ---- */

/* A node of the tree; all of it is lent. */
typedef struct ht_prefix_entry {
    const ht_prefix_key *key;
    int64_t parent; /* number of its parent among the entries; -1: none */
    const int32_t *token;
    int32_t n;
    int64_t first; /* position of its first token */
    int locks;
    ht_kv_page *const *page; /* [n_layers]; NULL: no page */
    const ht_prefix_states *states;
} ht_prefix_entry;
typedef ht_status ht_prefix_entry_fn(const ht_prefix_entry *entry, void *user, ht_error *err);
/* Calls fn for each node, the most recently used one first, parents before their children, until one fails. */
ht_status ht_prefix_cache_each(const ht_prefix_cache *c, ht_prefix_entry_fn *fn, void *user, ht_error *err);
/* Adds a node, or its missing pages, under the full node `parent` (NULL: the root), as the least recently used;
 * evicts nothing. *out: the node that begins with these tokens, NULL over budget. `page` NULL: only looks it up. */
ht_status ht_prefix_cache_add(ht_prefix_cache *c, const ht_prefix_key *key, ht_prefix_node *parent,
                              const int32_t *token, int32_t n, ht_kv_page *const *page, ht_prefix_node **out,
                              ht_error *err);
/* Adds states [n_layers] after the first n tokens of a node, unless it has them or they exceed the budget. */
ht_status ht_prefix_cache_add_states(ht_prefix_cache *c, ht_prefix_node *x, int32_t n, ht_kv_page *const *page,
                                     ht_error *err);

#endif
