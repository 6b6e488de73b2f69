/* Answers eight prompts at once with the installed library, and prints each answer when it is finished:
 *
 *     cc engine.c $(pkg-config --cflags --libs hearth) -o engine
 *     ./engine model.gguf */
#include <hearth/hearth.h>

#include <stdio.h>
#include <string.h>

static const char *const countries[] = {"Germany", "France", "Italy", "Spain", "Japan", "Egypt", "Peru", "Canada"};
enum { N_PROMPTS = sizeof countries / sizeof *countries };

typedef struct answer {
    char prompt[64], text[4096];
    size_t length;
    bool failed;
} answer;

/* Called with each piece of an answer, on a thread of the engine's; returning false would end this answer. */
static bool add_text(const ht_answer_piece *piece, int32_t number, void *user) {
    answer *a = user;
    (void)number; /* 0: a request may ask for several answers */
    if (piece->part != HT_ANSWER_TEXT) return true;
    if (piece->n >= sizeof a->text - a->length) return false;
    memcpy(a->text + a->length, piece->text, piece->n);
    a->length += piece->n;
    return true;
}

/* Called when an answer has ended. Answers end in any order, also two at once: a single call prints one. */
static void print_answer(const ht_answer_report *report, void *user) {
    answer *a = user;
    a->failed = report->status != HT_OK;
    printf("%s\n    %s\n", a->prompt, a->failed ? report->message : a->text);
}

/* Asks for an answer, which comes through the callbacks. */
static ht_status ask(ht_engine *engine, answer *a, ht_error *err) {
    ht_chat *chat = NULL;
    ht_generate_options options;
    ht_generate_options_init(&options, sizeof options);
    options.max_tokens = 64;
    ht_request request;
    ht_request_init(&request, sizeof request);
    request.options = &options;
    request.piece = add_text;
    request.end = print_answer;
    request.user = a;

    ht_status st = ht_chat_new(&chat, err);
    if (!st) st = ht_chat_add(chat, "user", a->prompt, err);
    request.chat = chat;
    if (!st) st = ht_engine_submit(engine, &request, NULL, err);
    ht_chat_free(chat); /* the engine has a hold on it */
    return st;
}

int main(int argc, char **argv) {
    static answer answers[N_PROMPTS];
    ht_error err = {0};
    ht_model *model = NULL;
    ht_engine *engine = NULL;
    ht_status st = ht_model_load(argc == 2 ? argv[1] : "model.gguf", NULL, &model, &err);
    if (!st) st = ht_engine_open(model, NULL, &engine, &err);
    for (int i = 0; i < N_PROMPTS && !st; i++) {
        snprintf(answers[i].prompt, sizeof answers[i].prompt, "What is the capital of %s?", countries[i]);
        st = ask(engine, &answers[i], &err);
    }
    if (st) fprintf(stderr, "%s\n", err.message);
    if (!st) ht_engine_wait(engine, 0); /* for all answers */
    ht_engine_close(engine);
    ht_model_free(model);
    for (int i = 0; i < N_PROMPTS; i++)
        if (answers[i].failed) st = HT_ERR_INTERNAL;
    return st ? 1 : 0;
}
