/* A tree of files that is searched for checkpoints: a name, a NUL, two bytes of length, so many bytes of content, and so on.
 * Files called *.safetensors are given as their headers. Every find is whole, or broken with a reason. */
#include "files.h"

#include <hearth/discover.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool ends_with(const uint8_t *s, size_t n, const char *end) {
    size_t m = strlen(end);
    return n >= m && !memcmp(s + n - m, end, m);
}

static void check_info(const ht_model_info *i) {
    check(i->architecture[0] && i->name && i->format[0] && i->quantization[0]);
    check(i->n_files >= 1 && i->file_bytes >= 0 && i->n_parameters >= 0);
    check(i->weight_bytes >= 0 && i->weight_bytes <= i->file_bytes);
    check(i->n_tensor_types >= 0 && !i->n_tensor_types == !i->tensor_types && isfinite(i->bits_per_weight));
    for (int32_t t = 0; t < i->n_tensor_types; t++) check(i->tensor_types[t].name[0] && i->tensor_types[t].bytes >= 0);
    if (!i->runs) return;
    check(i->n_layers >= 1 && i->hidden >= 1 && i->n_heads >= 1 && i->vocab >= 1 && i->context >= 1);
    check(i->layers && ht_model_info_kv_bytes_per_position(i, HT_F16) >= 0);
    check(ht_model_info_kv_bytes(i, HT_F16, i->context) >= ht_model_info_kv_bytes(i, HT_F16, 1));
}

static bool look(const ht_find *find, void *user) {
    ++*(int *)user;
    check(!strncmp(find->path, files_directory, strlen(files_directory)));
    check((find->info == NULL) != (find->problem == NULL));
    if (find->info)
        check_info(find->info);
    else
        check(find->problem->status && find->problem->message[0]);
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *directory = files_begin();
    for (int i = 0; i < FILES_MAX && size; i++) {
        size_t n_name, n;
        const uint8_t *name = files_part(&data, &size, &n_name), *content = data + 2;
        if (size < 2) break;
        n = data[0] | (size_t)data[1] << 8;
        if (n > size - 2) n = size - 2;
        data += 2 + n;
        size -= 2 + n;
        int fd = files_open((const char *)name, n_name);
        if (fd < 0) continue;
        if (ends_with(name, n_name, ".safetensors"))
            files_put_safetensors(fd, content, n);
        else
            files_put(fd, content, n);
        close(fd);
    }
    int n_finds = 0;
    ht_error err = {0};
    check(ht_discover(directory, look, &n_finds, &err) == HT_OK && n_finds <= FILES_MAX);
    return 0;
}
