/* Modules of sentence-transformers: what is accepted makes vectors. The first byte's lowest bit chooses a text encoder, the
 * next one a GGUF file; then come the files of the directory, name and content by turns, each up to a NUL. Of safetensors
 * the content is the header. */
#include "checkpoint/modules.h"
#include "files.h"
#include "generate/pooling.h"

#include <math.h>

enum { HIDDEN = 4, VOCAB = 64 };

static void write_files(const uint8_t *data, size_t size) {
    static const char tensors[] = ".safetensors";
    while (size) {
        size_t n_name, n;
        const char *name = (const char *)files_part(&data, &size, &n_name);
        const uint8_t *content = files_part(&data, &size, &n);
        const size_t n_end = sizeof tensors - 1;
        const int fd = files_open(name, n_name);
        if (fd < 0) continue;
        if (n_name >= n_end && !memcmp(name + n_name - n_end, tensors, n_end))
            files_put_safetensors(fd, content, n);
        else
            files_put(fd, content, n);
        close(fd);
    }
}

/* Each layer takes what the one before it makes. */
static void use_layers(const ht_dense_stack *s) {
    double *x = calloc(HIDDEN, sizeof *x);
    check(x && s->n >= 0 && s->n <= HT_DENSE_MOST);
    for (int i = 0; i < s->n; i++) {
        check(s->layer[i].n_in == (i ? s->layer[i - 1].n_out : HIDDEN) && s->layer[i].n_out >= 1);
        for (int64_t k = 0; s->layer[i].bias && k < s->layer[i].n_out; k++) (void)isnan(s->layer[i].bias[k]);
    }
    check(ht_dense_apply(s, &x));
    free(x);
}

static void use(const ht_checkpoint_files *c, bool two_sided) {
    static ht_config config = {.hidden = HIDDEN, .vocab = VOCAB};
    const char *pooling;
    ht_modules m;
    ht_error err = {0};
    config.two_sided = two_sided;
    ht_status status = ht_modules_pooling(c, &pooling, &err);
    if (status) check(err.status == status && err.message[0]);
    check(pooling != NULL);
    status = ht_modules_read(c, &config, &m, &err);
    if (status) {
        check(err.status == status && err.message[0]);
    } else {
        bool has_default = !m.default_prompt;
        use_layers(&m.dense);
        use_layers(&m.classifier);
        for (size_t i = 0; i < m.n_prompts; i++) {
            check(m.prompt[i].name && m.prompt[i].text);
            has_default = has_default || m.prompt[i].name == m.default_prompt;
        }
        check(has_default && m.max_tokens >= 0 && memchr(m.unsupported, 0, sizeof m.unsupported));
        check(m.yes_token >= -1 && m.yes_token < VOCAB && m.no_token >= -1 && m.no_token < VOCAB);
    }
    ht_modules_free(&m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    const uint8_t choice = *data++;
    const char *directory = files_begin();
    char path[96];
    size--;
    if (choice & 2)
        files_write("model.gguf", data, size);
    else
        write_files(data, size);
    snprintf(path, sizeof path, "%s%s", directory, choice & 2 ? "/model.gguf" : "");
    ht_checkpoint_files *c;
    ht_error err = {0};
    if (refused(ht_checkpoint_open(path, &c, &err), &err, c)) return 0;
    use(c, choice & 1);
    ht_checkpoint_close(c);
    return 0;
}
