/* The least a program does with llama.cpp to get one token: load, tokenize, one step over the prompt, the most likely
 * token. bench/start.py compiles it against the library that llama-cpp-python brings along.
 *
 *   llama_start MODEL.gguf PROMPT THREADS
 *
 * Prints the number of tokens of the prompt and the token picked. */
#include <llama.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONTEXT = 256 };

static void be_silent(enum ggml_log_level level, const char *text, void *user) { (void)level, (void)text, (void)user; }

static int failed(const char *what) {
    fprintf(stderr, "llama_start: %s failed\n", what);
    return 1;
}

static llama_token most_likely(const float *logits, int32_t n) {
    llama_token best = 0;
    for (int32_t i = 1; i < n; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

int main(int argc, char **argv) {
    if (argc != 4) return failed("reading the arguments");
    llama_log_set(be_silent, NULL);
    llama_backend_init();
    struct llama_model *model = llama_model_load_from_file(argv[1], llama_model_default_params());
    if (!model) return failed("loading the model");
    const struct llama_vocab *vocab = llama_model_get_vocab(model);
    llama_token ids[CONTEXT];
    int32_t n = llama_tokenize(vocab, argv[2], (int32_t)strlen(argv[2]), ids, CONTEXT, true, true);
    if (n < 1) return failed("tokenizing");
    struct llama_context_params how = llama_context_default_params();
    how.n_ctx = CONTEXT;
    how.n_batch = how.n_ubatch = (uint32_t)n;
    how.n_threads = how.n_threads_batch = atoi(argv[3]);
    struct llama_context *context = llama_init_from_model(model, how);
    if (!context) return failed("making a context");
    if (llama_decode(context, llama_batch_get_one(ids, n)) != 0) return failed("computing");
    printf("%d %d\n", (int)n, (int)most_likely(llama_get_logits_ith(context, -1), llama_vocab_n_tokens(vocab)));
    llama_free(context);
    llama_model_free(model);
    llama_backend_free();
    return 0;
}
