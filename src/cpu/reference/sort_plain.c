/* Elements in order for machines without a vector form: the same source, compiled for any of them. */
#define HT_ISA reference
#include "cpu/reference/reference.h"
#include "cpu/vector/sort.c"

ht_status ht_plain_sort(const ht_call *call, ht_error *err) { return sort(call, err); }
ht_status ht_plain_argsort(const ht_call *call, ht_error *err) { return argsort(call, err); }
ht_status ht_plain_partition(const ht_call *call, ht_error *err) { return partition(call, err); }
ht_status ht_plain_argpartition(const ht_call *call, ht_error *err) { return argpartition(call, err); }

size_t ht_plain_sort_scratch(const ht_call *call) { return sort_scratch(call); }
size_t ht_plain_argsort_scratch(const ht_call *call) { return argsort_scratch(call); }
size_t ht_plain_partition_scratch(const ht_call *call) { return partition_scratch(call); }
size_t ht_plain_argpartition_scratch(const ht_call *call) { return argpartition_scratch(call); }
