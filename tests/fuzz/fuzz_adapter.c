/* Adapters without a model: adapter_config.json and the header of a safetensors file with a NUL between them, or a GGUF file.
 * The first byte says which format it is. What is accepted is whole, and what is written of it can be read again. */
#include "files.h"
#include "models/adapter.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void check_finite(const float *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) check(isfinite(x[i]));
}

static void check_adapter(const ht_adapter *a) {
    check(a->n >= 1);
    for (int64_t i = 0; i < a->n; i++) {
        const ht_lora *l = &a->lora[i];
        check(l->rank >= 1 && l->n_in >= 1 && l->n_out >= 1 && l->n_experts >= 0 && isfinite(l->scale));
        check(!i || strcmp(a->lora[i - 1].slot, l->slot) < 0);
        check(ht_adapter_find(a, l->slot) == l);
        int64_t n = l->n_experts ? l->n_experts : 1;
        check_finite(l->a, n * l->rank * l->n_in);
        check_finite(l->b, n * l->rank * l->n_out);
    }
}

/* The directory that a save has left, or not. */
static void remove_saved(const char *directory) {
    static const char *const names[] = {"adapter_config.json", "adapter_model.safetensors", "adapters.safetensors"};
    char path[160];
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", directory, names[i]);
        unlink(path);
    }
    rmdir(directory);
}

static void save_and_load(const ht_adapter *a, ht_adapter_format format) {
    char path[96];
    ht_error err = {0};
    ht_adapter *again;
    snprintf(path, sizeof path, "%s/saved", files_directory);
    ht_status status = ht_adapter_save(a, NULL, path, format, &err);
    if (status) {
        check(err.status == status && err.message[0]);
    } else if (!ht_adapter_load(path, NULL, NULL, &again, &err)) {
        check_adapter(again);
        ht_adapter_free(again);
    } else {
        check(err.message[0]); /* scales and values can leave the range of f32 when they are folded */
    }
    remove_saved(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    uint8_t format = *data++ % 3;
    size--;
    const char *path = files_begin();
    char gguf[96];
    if (format == HT_ADAPTER_GGUF) {
        snprintf(gguf, sizeof gguf, "%s/lora.gguf", path);
        files_write("lora.gguf", data, size);
        path = gguf;
    } else {
        size_t n;
        const uint8_t *config = files_part(&data, &size, &n);
        files_write("adapter_config.json", config, n);
        files_write_safetensors(format == HT_ADAPTER_MLX ? "adapters.safetensors" : "adapter_model.safetensors", data,
                                size);
    }
    ht_adapter *a;
    ht_error err = {0};
    ht_status status = ht_adapter_load(path, NULL, NULL, &a, &err);
    if (refused(status, &err, a)) return 0;
    check_adapter(a);
    save_and_load(a, HT_ADAPTER_PEFT);
    save_and_load(a, HT_ADAPTER_MLX);
    ht_adapter_free(a);
    return 0;
}
