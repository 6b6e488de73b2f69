/* Answers one prompt with the installed library:
 *
 *     cc generate.c $(pkg-config --cflags --libs hearth) -o generate
 *     ./generate model.gguf "What is the capital of Germany?" */
#include <hearth/hearth.h>

#include <stdio.h>

/* Called with each piece of the answer; returning false would end it. Thoughts and calls of tools are not shown here. */
static bool print_text(const ht_answer_piece *piece, void *user) {
    (void)user;
    if (piece->part != HT_ANSWER_TEXT) return true;
    return fwrite(piece->text, 1, piece->n, stdout) == piece->n && fflush(stdout) == 0;
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: %s MODEL PROMPT\n", argv[0]);
        return 2;
    }
    ht_error err = {0};
    ht_model *model = NULL;
    ht_session *session = NULL;
    ht_chat *chat = NULL;
    ht_metrics metrics = {0};
    ht_generate_options options;
    ht_generate_options_init(&options, sizeof options);
    options.max_tokens = 128;

    ht_status st = ht_model_load(argv[1], NULL, &model, &err);
    if (!st) st = ht_session_new(model, NULL, &session, &err);
    if (!st) st = ht_chat_new(&chat, &err);
    if (!st) st = ht_chat_add(chat, "user", argv[2], &err);
    if (!st) st = ht_generate_chat(session, chat, &options, print_text, NULL, &metrics, &err);
    if (st)
        fprintf(stderr, "%s\n", err.message);
    else
        printf("\n(%lld tokens in %.2f s)\n", (long long)metrics.generated_tokens,
               metrics.first_token_seconds + metrics.decode_seconds);
    ht_chat_free(chat);
    ht_session_free(session);
    ht_model_free(model);
    return st ? 1 : 0;
}
