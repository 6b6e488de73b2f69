/* Lines of mlx_lm's child process: whatever they hold, there is an event that keeps what its header says, or an error. */
#include "backends/mlx_message.h"
#include "tokens.h"

static void check_keys(const ht_backend_keys *k) {
    float sum = 0;
    for (int64_t i = 0; i < k->n_tokens * k->head_dim; i++) sum += k->keys[i] + k->values[i];
    check(k->layer < k->n_layers && k->head < k->n_heads && k->n_tokens > 0 && k->head_dim > 0);
    check(sum <= 0 || sum > 0 || sum != sum);
}

static void check_event(const ht_mlx_event *e) {
    check(e->id >= 0 && ht_mlx_event_name(e->kind) != NULL);
    switch (e->kind) {
    case HT_MLX_INFO: check(e->info.architecture && e->info.engine && e->info.device && e->info.vocab >= 0); break;
    case HT_MLX_BEGIN: check(e->reused >= 0); break;
    case HT_MLX_TOKENS:
        check(e->n_tokens > 0 && e->n_tokens <= HT_MLX_TOKENS_MAX);
        for (int i = 0; i < e->n_tokens; i++) check(e->tokens[i] >= 0);
        break;
    case HT_MLX_KEYS: check_keys(&e->keys); break;
    case HT_MLX_DONE: check(e->finish >= HT_FINISH_STOP && e->finish <= HT_FINISH_CALLBACK); break;
    case HT_MLX_ERROR: check(e->status != HT_OK && e->message); break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    ht_mlx_event e;
    ht_error err = {0};
    char *line = malloc(size + 1);
    if (!line) return 0;
    memcpy(line, data, size);
    line[size] = '\0';
    const ht_status status = ht_mlx_event_read(line, size, &e, &err);
    if (status)
        check(err.status == status && err.message[0]);
    else
        check_event(&e);
    ht_mlx_event_free(&e);
    free(line);
    return 0;
}
