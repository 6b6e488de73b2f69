#include "support/tiny_model.h"

#include "base/half.h"
#include "models/model.h"
#include "support/gguf_writer.h"
#include "support/options.h"
#include "support/scratch.h"
#include "support/test.h"
#include "support/weights.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HIDDEN = 64, HEADS = 4, KV_HEADS = 2, HEAD_DIM = 16, FEED_FORWARD = 96 };
enum { TAPS = 3 };                                   /* short convolutions */
enum { RANK = 32, KEY = 32, ROPE = 16, VALUE = 32 }; /* latent attention */

static const char *const merges[] = {"t h", "th e", "i n", "e r", "a n", "o n", "Ġ t", "r e"};
enum { N_MERGES = sizeof merges / sizeof *merges };

/* The GPT-2 alphabet: printable bytes stand for themselves, the others for code points from 256 on. */
static void byte_texts(char texts[256][4]) {
    int n = 0, next = 256;
    for (int pass = 0; pass < 2; pass++)
        for (int b = 0; b < 256; b++) {
            bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
            if (printable == (pass == 1)) continue;
            int c = printable ? b : next++;
            if (c < 128)
                snprintf(texts[n++], 4, "%c", c);
            else
                snprintf(texts[n++], 4, "%c%c", 0xC0 | c >> 6, 0x80 | (c & 63));
        }
}

static void put_tokenizer(gguf_writer *w, const tiny_options *o) {
    static char bytes[256][4], merged[N_MERGES][12], filler[TINY_VOCAB][12];
    const char *tokens[TINY_VOCAB];
    int32_t types[TINY_VOCAB];
    byte_texts(bytes);
    for (int i = 0; i < TINY_VOCAB; i++) {
        types[i] = 1;
        snprintf(filler[i], sizeof filler[i], "word%d", i);
        tokens[i] = filler[i];
        if (i < 256) tokens[i] = bytes[i];
        if (i >= 256 && i < 256 + N_MERGES) {
            const char *space = strchr(merges[i - 256], ' ');
            snprintf(merged[i - 256], sizeof *merged, "%.*s%s", (int)(space - merges[i - 256]), merges[i - 256],
                     space + 1);
            tokens[i] = merged[i - 256];
        }
    }
    tokens[TINY_IM_START] = "<|im_start|>";
    tokens[TINY_IM_END] = "<|im_end|>";
    tokens[TINY_EOS] = "<|endoftext|>";
    for (int i = TINY_IM_START; i <= TINY_EOS; i++) types[i] = 3;
    int more = TINY_MORE;
    for (const char *const *s = o->special; s && *s; s++, more++) {
        tokens[more] = *s;
        types[more] = 3;
    }
    for (const char *const *s = o->words; s && *s; s++, more++) tokens[more] = *s;
    assert_true(more <= TINY_VOCAB);
    gguf_put_str(w, "tokenizer.ggml.model", "gpt2");
    gguf_put_str(w, "tokenizer.ggml.pre", "smollm");
    gguf_put_strs(w, "tokenizer.ggml.tokens", tokens, TINY_VOCAB);
    gguf_put_i32s(w, "tokenizer.ggml.token_type", types, TINY_VOCAB);
    gguf_put_strs(w, "tokenizer.ggml.merges", merges, N_MERGES);
    gguf_put_u32(w, "tokenizer.ggml.eos_token_id", TINY_EOS);
    if (o->chat_template) gguf_put_str(w, "tokenizer.chat_template", o->chat_template);
}

/* Weights of a size that keeps the activations near 1: the numbers of the blocks alone would grow from layer to layer. */
static void put_matrices(gguf_writer *w, const char *name, ht_weight_type type, int64_t many, int64_t rows, int64_t k,
                         uint64_t *random) {
    enum { BLOCK = 32 };
    int64_t n = many * rows * k;
    unsigned char *stored = malloc((size_t)n * sizeof(float));
    for (int64_t i = 0; type == HT_W_F32 && i < n; i++) {
        float x = 0.35f * test_random_float(random);
        memcpy(stored + (size_t)i * sizeof x, &x, sizeof x);
    }
    for (int64_t b = 0; type == HT_W_Q8_0 && b < n / BLOCK; b++) {
        unsigned char *block = stored + b * (BLOCK + 2);
        uint16_t scale = ht_f32_to_f16(0.0027f);
        memcpy(block, &scale, sizeof scale);
        for (int i = 0; i < BLOCK; i++) block[2 + i] = (unsigned char)(test_random(random) >> 3);
    }
    gguf_put_tensor(w, name, type, many > 1 ? 3 : 2, (int64_t[]){k, rows, many}, stored);
    free(stored);
}

static void put_matrix(gguf_writer *w, const char *name, ht_weight_type type, int64_t rows, int64_t k,
                       uint64_t *random) {
    put_matrices(w, name, type, 1, rows, k, random);
}

static void put_vector(gguf_writer *w, const char *name, int64_t n, uint64_t *random) {
    float x[HIDDEN];
    for (int64_t i = 0; i < n; i++) x[i] = 1 + 0.3f * test_random_float(random);
    gguf_put_tensor(w, name, HT_W_F32, 1, &n, x);
}

/* The rows of tokens, one of which may be NaN. */
static void put_embedding(gguf_writer *w, const tiny_options *o, uint64_t *random) {
    if (!o->nan_token) {
        put_matrix(w, "token_embd.weight", o->type, TINY_VOCAB, HIDDEN, random);
        return;
    }
    float *x = malloc((size_t)TINY_VOCAB * HIDDEN * sizeof *x);
    for (int64_t i = 0; i < TINY_VOCAB * HIDDEN; i++)
        x[i] = i / HIDDEN == o->nan_token ? NAN : 0.35f * test_random_float(random);
    gguf_put_tensor(w, "token_embd.weight", HT_W_F32, 2, (int64_t[]){HIDDEN, TINY_VOCAB}, x);
    free(x);
}

static void put_layer(gguf_writer *w, int layer, const tiny_options *o, uint64_t *random) {
    enum { ALL, PLAIN, GEMMA, LATENT, JOINED, APART, CONV, NORMED };
    const bool is_conv = o->recurrent && layer != 1;
    const int kind = is_conv        ? CONV
                     : o->recurrent ? NORMED
                     : o->latent    ? LATENT
                     : o->window    ? GEMMA
                                    : PLAIN,
              attends = is_conv     ? CONV
                        : o->latent ? LATENT
                                    : PLAIN;
    const int heads = o->type == HT_W_Q8_0 ? JOINED : APART; /* as older files have them, or as newer ones */
    static const struct {
        const char *name;
        int64_t rows, k;
        int of;
        int64_t many; /* 0: one */
    } matrices[] = {{"attn_q", HEADS * HEAD_DIM, HIDDEN, PLAIN, 0},
                    {"attn_k", KV_HEADS * HEAD_DIM, HIDDEN, PLAIN, 0},
                    {"attn_v", KV_HEADS * HEAD_DIM, HIDDEN, PLAIN, 0},
                    {"attn_output", HIDDEN, HEADS * HEAD_DIM, PLAIN, 0},
                    {"attn_q_a", RANK, HIDDEN, LATENT, 0},
                    {"attn_q_b", HEADS * (KEY + ROPE), RANK, LATENT, 0},
                    {"attn_kv_a_mqa", RANK + ROPE, HIDDEN, LATENT, 0},
                    {"attn_kv_b", HEADS * (KEY + VALUE), RANK, JOINED, 0},
                    {"attn_k_b", RANK, KEY, APART, HEADS},
                    {"attn_v_b", VALUE, RANK, APART, HEADS},
                    {"attn_output", HIDDEN, HEADS * VALUE, LATENT, 0},
                    {"shortconv.in_proj", 3 * HIDDEN, HIDDEN, CONV, 0},
                    {"shortconv.out_proj", HIDDEN, HIDDEN, CONV, 0},
                    {"ffn_gate", FEED_FORWARD, HIDDEN, ALL, 0},
                    {"ffn_up", FEED_FORWARD, HIDDEN, ALL, 0},
                    {"ffn_down", HIDDEN, FEED_FORWARD, ALL, 0}};
    static const struct {
        const char *name;
        int64_t n;
        int of;
    } vectors[] = {
        {"attn_norm", HIDDEN, ALL},       {"ffn_norm", HIDDEN, ALL},         {"attn_q_norm", HEAD_DIM, GEMMA},
        {"attn_k_norm", HEAD_DIM, GEMMA}, {"attn_q_norm", HEAD_DIM, NORMED}, {"attn_k_norm", HEAD_DIM, NORMED},
        {"attn_q_a_norm", RANK, LATENT},  {"attn_kv_a_norm", RANK, LATENT},  {"post_attention_norm", HIDDEN, GEMMA},
        {"post_ffw_norm", HIDDEN, GEMMA}};
    char name[64];
    for (size_t i = 0; i < sizeof matrices / sizeof *matrices; i++) {
        if (matrices[i].of && matrices[i].of != attends && !(o->latent && matrices[i].of == heads)) continue;
        snprintf(name, sizeof name, "blk.%d.%s.weight", layer, matrices[i].name);
        put_matrices(w, name, o->type, matrices[i].many ? matrices[i].many : 1, matrices[i].rows, matrices[i].k,
                     random);
    }
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        if (vectors[i].of && vectors[i].of != kind) continue;
        snprintf(name, sizeof name, "blk.%d.%s.weight", layer, vectors[i].name);
        put_vector(w, name, vectors[i].n, random);
    }
    snprintf(name, sizeof name, "blk.%d.shortconv.conv.weight", layer);
    if (is_conv) put_matrix(w, name, HT_W_F32, HIDDEN, TAPS, random);
}

/* Longrope: the original context, and divisors for sequences within it and for longer ones. */
static void put_longrope(gguf_writer *w, const char *architecture, int64_t short_length) {
    static const int64_t n = HEAD_DIM / 2;
    float divisors[2][HEAD_DIM / 2];
    char key[64];
    if (!short_length) return;
    for (int i = 0; i < HEAD_DIM / 2; i++) {
        divisors[0][i] = 1 + 0.1f * (float)i;
        divisors[1][i] = 1.25f + 0.7f * (float)i;
    }
    snprintf(key, sizeof key, "%s.rope.scaling.original_context_length", architecture);
    gguf_put_u32(w, key, (uint32_t)short_length);
    snprintf(key, sizeof key, "%s.rope.scaling.attn_factor", architecture);
    gguf_put_f32(w, key, 1.2f);
    gguf_put_tensor(w, "rope_factors_short.weight", HT_W_F32, 1, &n, divisors[0]);
    gguf_put_tensor(w, "rope_factors_long.weight", HT_W_F32, 1, &n, divisors[1]);
}

/* What embeddings and reranking need beyond the model, after all else, so that its weights stay the same. */
static void put_modules(gguf_writer *w, const char *architecture, const tiny_options *o, uint64_t *random) {
    static const char *const poolings[] = {"none", "mean", "cls", "last", "rank"}, *const labels[] = {"yes", "no"};
    char key[64];
    snprintf(key, sizeof key, "%s.pooling_type", architecture);
    for (uint32_t i = 0; o->pooling && i < 5; i++)
        if (!strcmp(o->pooling, poolings[i])) gguf_put_u32(w, key, i);
    snprintf(key, sizeof key, "%s.classifier.output_labels", architecture);
    if (o->classifier == 2) gguf_put_strs(w, key, labels, 2);
    if (o->rerank_prompt) gguf_put_str(w, "tokenizer.chat_template.rerank", o->rerank_prompt);
    if (o->dense) put_matrix(w, "dense_2.weight", HT_W_F32, 48, HIDDEN, random);
    if (o->dense) put_matrix(w, "dense_3.weight", HT_W_F32, 40, 48, random);
    if (o->classifier) put_matrix(w, "cls.output.weight", HT_W_F32, o->classifier, HIDDEN, random);
}

const char *tiny_write(const tiny_options *o) {
    static const int32_t attending[] = {0, KV_HEADS, 0};
    const char *architecture = o->recurrent ? "lfm2" : o->latent ? "deepseek2" : o->window ? "gemma3" : "llama";
    const struct {
        const char *key;
        uint32_t value;
    } latents[] = {{"attention.q_lora_rank", RANK},
                   {"attention.kv_lora_rank", RANK},
                   {"attention.key_length_mla", KEY + ROPE},
                   {"attention.value_length_mla", VALUE},
                   {"rope.dimension_count", ROPE}},
      values[] = {{"block_count", o->recurrent ? 3
                                  : o->window  ? 6
                                               : 2},
                  {"embedding_length", HIDDEN},
                  {"attention.head_count", HEADS},
                  {o->recurrent ? "shortconv.l_cache" : "attention.head_count_kv", o->recurrent ? TAPS : KV_HEADS},
                  {"attention.key_length", HEAD_DIM},
                  {"attention.value_length", HEAD_DIM},
                  {"feed_forward_length", FEED_FORWARD},
                  {"attention.sliding_window", (uint32_t)o->window},
                  {"context_length", o->context ? (uint32_t)o->context : 4096}};
    gguf_writer w = gguf_writer_new();
    uint64_t random = 20240229;
    char key[64];
    gguf_put_str(&w, "general.architecture", architecture);
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        snprintf(key, sizeof key, "%s.%s", architecture, values[i].key);
        gguf_put_u32(&w, key, values[i].value);
    }
    if (o->recurrent) gguf_put_i32s(&w, "lfm2.attention.head_count_kv", attending, 3);
    for (size_t i = 0; o->latent && i < sizeof latents / sizeof *latents; i++) {
        snprintf(key, sizeof key, "%s.%s", architecture, latents[i].key);
        gguf_put_u32(&w, key, latents[i].value);
    }
    if (!o->unsettled) { /* the temperature's alone would not do where a test sets one */
        gguf_put_f32(&w, "general.sampling.temp", 0);
        gguf_put_f32(&w, "general.sampling.top_p", 1);
        gguf_put_f32(&w, "general.sampling.min_p", 0);
    }
    put_longrope(&w, architecture, o->short_length);
    put_tokenizer(&w, o);
    put_embedding(&w, o, &random);
    put_matrix(&w, "output.weight", o->type, TINY_VOCAB, HIDDEN, &random);
    put_vector(&w, o->recurrent ? "token_embd_norm.weight" : "output_norm.weight", HIDDEN, &random);
    for (int i = 0; i < (int)values[0].value; i++) put_layer(&w, i, o, &random);
    put_modules(&w, architecture, o, &random);
    size_t size;
    unsigned char *file = gguf_finish(&w, &size);
    remove(scratch_path("tiny.gguf")); /* a model that is loaded keeps the file it has */
    scratch_write("tiny.gguf", file, size);
    free(file);
    return scratch_path("tiny.gguf");
}

ht_model *tiny_load(const tiny_options *o) {
    static const tiny_options defaults;
    ht_error err = {0};
    ht_device *device;
    ht_model *m = NULL;
    if (!o) o = &defaults;
    ht_device_options threads = OPTIONS(ht_device_options, with.n_threads = o->n_threads ? o->n_threads : 2);
    if (ht_device_open(o->device ? o->device : "cpu", &threads, &device, &err)) fail_msg("%s", err.message);
    ht_model_options how = OPTIONS(ht_model_options, with.device = device);
    if (o->kv) how.kv_dtype = o->kv;
    if (o->reference) how.precision = HT_PRECISION_REFERENCE;
    if (ht_model_load(tiny_write(o), &how, &m, &err)) fail_msg("%s", err.message);
    for (int32_t i = 0; i < m->n_cache_layers; i++) m->kv[i].chunked = o->chunked && m->kv[i].window;
    ht_device_free(device);
    return m;
}

int tiny_teardown(void **state) {
    ht_model_free(*state);
    scratch_remove();
    return 0;
}

void tiny_ids(int32_t *ids, int n, uint64_t seed) {
    for (int i = 0; i < n; i++) ids[i] = (int32_t)(test_random(&seed) % TINY_IM_START);
}

ht_session *tiny_session(ht_model *m, int32_t chunk) {
    ht_session *s;
    ht_error err = {0};
    if (ht_session_new(m, OPTIONS_AT(ht_session_options, with.chunk = chunk), &s, &err)) fail_msg("%s", err.message);
    return s;
}

ht_grammar *tiny_regex(ht_model *m, const char *pattern) {
    ht_grammar *g;
    ht_error err = {0};
    if (ht_grammar_from_regex(m, pattern, strlen(pattern), &g, &err)) fail_msg("%s: %s", pattern, err.message);
    return g;
}

float *tiny_rows(int n) {
    float *rows = calloc((size_t)n * TINY_VOCAB, sizeof *rows);
    assert_non_null(rows);
    return rows;
}

bool tiny_copy_rows(const float *logits, int64_t first, int64_t n_rows, int32_t vocab, void *user) {
    assert_int_equal(vocab, TINY_VOCAB);
    memcpy((float *)user + first * vocab, logits, (size_t)(n_rows * vocab) * sizeof *logits);
    return true;
}

void tiny_forward(ht_session *s, const int32_t *ids, size_t n, bool all, float *rows) {
    ht_error err = {0};
    if (ht_session_forward(s, ids, n, OPTIONS_AT(ht_forward_options, with.all_rows = all), rows ? tiny_copy_rows : NULL,
                           rows, &err))
        fail_msg("%s", err.message);
}
