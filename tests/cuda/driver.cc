/* A CUDA driver that runs on the host, as libcuda.so.1: the calls that src/cuda makes, with its kernels compiled as C++. What it
 * tells of itself is a GPU of two multiprocessors. Any of its calls can be made to fail. */
#include "on_host.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cuda.h>
#include <mutex>
#include <sys/mman.h>
#include <unordered_map>
#include <vector>
#include <xmmintrin.h>

#define API extern "C" __attribute__((visibility("default")))

on_host_dim threadIdx, blockIdx, blockDim, gridDim;
alignas(64) unsigned char on_host_shared[227 << 10];

static on_host_kernel *kernels;
on_host_kernel::on_host_kernel(const char *n, on_host_body *b, size_t s) : name(n), body(b), bytes(s), next(kernels) {
    kernels = this;
}

/* ---- fibers ---- */

enum wait_kind { RUNS, WAITS_BLOCK, WAITS_WARP, ENDED };
enum { MOST_THREADS = 1024, WARP = 32, STACK = 128 << 10 };

struct fiber {
    void *stack_pointer;
    char *stack;
    wait_kind state;
    unsigned exchanges; /* that it has begun in this block */
    on_host_dim index;
};

/* What the lanes of a warp give each other. Two take turns: a lane begins the next exchange when all have left the one before. */
struct exchange {
    alignas(16) unsigned char given[WARP * ON_HOST_GATHERED];
    unsigned number, lanes; /* of those that gave something, a bit each */
};

static fiber fibers[MOST_THREADS];
static exchange exchanges[MOST_THREADS / WARP][2];
static fiber *current;
static void *scheduler_stack;
static const on_host_kernel *kernel;
static const void *arguments;

/* Saves what a call has to keep, and goes on where the other stack left off. */
extern "C" void on_host_switch(void **save, void *to);
__asm__(".text\n.type on_host_switch,@function\non_host_switch:\n"
        "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
        "movq %rsp, (%rdi)\nmovq %rsi, %rsp\n"
        "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n"
        ".size on_host_switch,.-on_host_switch\n");

static void go_on(void **save, fiber *f) {
    current = f;
    threadIdx = f->index;
    on_host_switch(save, f->stack_pointer);
}

unsigned on_host_lane(void) { return (unsigned)(current - fibers) % WARP; }

/* Goes on with the next lane of the warp that can run. */
static void yield(wait_kind kind) {
    fiber *mine = current, *const end = mine - on_host_lane() + WARP;
    mine->state = kind;
    for (fiber *next = mine + 1; next < end; next++)
        if (next->state == RUNS) return go_on(&mine->stack_pointer, next);
    on_host_switch(&mine->stack_pointer, scheduler_stack);
}

static void fiber_main(void) {
    kernel->body(arguments);
    yield(ENDED);
    abort();
}

void __syncthreads(void) { yield(WAITS_BLOCK); }
void __syncwarp(unsigned) { yield(WAITS_WARP); }

/* Returns when all lanes have given `bytes` bytes. */
static exchange *give(const void *mine, size_t bytes) {
    const unsigned number = ++current->exchanges;
    exchange *x = &exchanges[(current - fibers) / WARP][number % 2];
    if (x->number != number) x->number = number, x->lanes = 0;
    x->lanes |= 1u << on_host_lane();
    memcpy(x->given + on_host_lane() * bytes, mine, bytes);
    yield(WAITS_WARP);
    return x;
}

uint64_t on_host_exchange(uint64_t mine, int from) {
    const exchange *x = give(&mine, sizeof mine);
    if (from >= 0 && from < WARP && (x->lanes >> from & 1))
        memcpy(&mine, x->given + (size_t)from * sizeof mine, sizeof mine);
    return mine;
}

const void *on_host_gather(const void *mine, size_t bytes) {
    if (bytes > ON_HOST_GATHERED) abort();
    exchange *x = give(mine, bytes);
    if (x->lanes != 0xffffffffu)
        for (unsigned lane = 0; lane < WARP; lane++)
            if (!(x->lanes >> lane & 1)) memset(x->given + lane * bytes, 0, bytes);
    return x->given;
}

static void start(fiber *f) {
    if (!f->stack)
        f->stack =
            (char *)mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    void **top = (void **)(void *)(f->stack + STACK);
    *--top = NULL; /* so that the stack is aligned as behind a call */
    *--top = (void *)fiber_main;
    for (int i = 0; i < 6; i++) *--top = NULL;
    f->stack_pointer = top;
    f->state = RUNS;
    f->exchanges = 0;
}

static void fail_to_meet(void) {
    fprintf(stderr, "%s: its threads wait at different places for each other\n", kernel->name);
    abort();
}

/* Runs a warp until its threads wait for the block or have ended; whether some wait. */
static bool run_warp(fiber *warp) {
    for (;;) {
        fiber *first = NULL; /* that waits for the warp */
        bool of_block = false;
        for (fiber *f = warp; f < warp + WARP; f++) {
            if (f->state == RUNS) go_on(&scheduler_stack, f);
            of_block |= f->state == WAITS_BLOCK;
            if (f->state != WAITS_WARP) continue;
            if (!first) first = f;
            if (f->exchanges != first->exchanges) fail_to_meet();
        }
        if (!first) return of_block;
        if (of_block) fail_to_meet();
        for (fiber *f = first; f < warp + WARP; f++)
            if (f->state == WAITS_WARP) f->state = RUNS;
    }
}

/* The threads of a launch; those that fill the last warp have ended. */
static void place(unsigned n) {
    for (unsigned i = 0; i < n; i++)
        fibers[i].index = {i % blockDim.x, i / blockDim.x % blockDim.y, i / (blockDim.x * blockDim.y)};
    for (unsigned i = n; i % WARP; i++) fibers[i].state = ENDED;
}

static void run_block(unsigned n) {
    for (unsigned i = 0; i < n; i++) start(&fibers[i]);
    for (unsigned w = 0; w < n; w += WARP) exchanges[w / WARP][0].number = exchanges[w / WARP][1].number = 0;
    for (bool waits = true; waits;) {
        waits = false;
        for (unsigned w = 0; w < n; w += WARP) waits |= run_warp(&fibers[w]);
        for (unsigned i = 0; i < n; i++)
            if (fibers[i].state == WAITS_BLOCK) fibers[i].state = RUNS;
    }
}

/* ---- failures on demand ---- */

static std::atomic<long> fail_after{0}, calls{0};
static std::atomic<int> fail_with{0}, sticky{0};

/* Makes the k-th call from now fail with a result, k from 1; 0: none. A sticky failure fails all calls after it, too. */
API void on_host_fail(long k, int result, int stays) {
    calls = 0;
    fail_with = result;
    sticky = stays;
    fail_after = k;
}
API long on_host_calls(void) { return calls; }
API size_t on_host_bytes(void);

static CUresult call(void) {
    const long now = ++calls, k = fail_after;
    if (k && (now == k || (sticky && now > k))) return (CUresult)(int)fail_with;
    return CUDA_SUCCESS;
}
#define CALL()                                                                                                         \
    if (const CUresult failed_ = call()) return failed_
/* Of calls that need a context. */
static thread_local int contexts;
static CUresult call_inside(void) { return contexts == 0 ? CUDA_ERROR_INVALID_CONTEXT : call(); }
#define CALL_INSIDE()                                                                                                  \
    if (const CUresult failed_ = call_inside()) return failed_

template <typename T> static CUresult give(CUresult result, T *out, T value) {
    if (!result) *out = value;
    return result;
}

/* ---- the driver ---- */

static std::mutex turn;
struct memory_kind {
    std::unordered_map<void *, size_t> bytes;
    size_t held;
};
static memory_kind memory, page_locked;
static size_t most = (size_t)16 << 30; /* bytes that the device has */
static std::atomic<long> events{0};

/* What has not been given back; an event counts as a byte. */
API size_t on_host_bytes(void) {
    const std::lock_guard<std::mutex> mine(turn);
    return memory.held + page_locked.held + (size_t)events;
}
/* Bytes of memory that the device has from now on; 0: as at first. */
API void on_host_limit(size_t bytes) {
    const std::lock_guard<std::mutex> mine(turn);
    most = bytes ? bytes : (size_t)16 << 30;
}

API CUresult cuInit(unsigned) { return call(); }
API CUresult cuGetErrorName(CUresult result, const char **out) {
    *out = result == CUDA_ERROR_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_OF_THE_TEST";
    return CUDA_SUCCESS;
}
API CUresult cuGetErrorString(CUresult result, const char **out) {
    *out = result == CUDA_ERROR_OUT_OF_MEMORY ? "out of memory" : "it failed as it was told to";
    return CUDA_SUCCESS;
}
API CUresult cuDriverGetVersion(int *out) { return give(call(), out, 12040); }
API CUresult cuDeviceGetCount(int *n) { return give(call(), n, 1); }
API CUresult cuDeviceGet(CUdevice *out, int) { return give(call(), out, 0); }
API CUresult cuDeviceGetName(char *name, int n, CUdevice) {
    CALL();
    snprintf(name, (size_t)n, "a GPU on the host");
    return CUDA_SUCCESS;
}
API CUresult cuDeviceGetAttribute(int *out, CUdevice_attribute what, CUdevice) {
    CALL();
    switch (what) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *out = 8; break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *out = 2; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: *out = 164 << 10; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *out = 163 << 10; break;
    default: *out = 0;
    }
    return CUDA_SUCCESS;
}
API CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice) { return give(call(), out, (CUcontext)1); }
API CUresult cuDevicePrimaryCtxRelease(CUdevice) { return CUDA_SUCCESS; }
API CUresult cuCtxPushCurrent(CUcontext) {
    contexts++;
    return CUDA_SUCCESS;
}
API CUresult cuCtxPopCurrent(CUcontext *out) {
    if (contexts == 0) return CUDA_ERROR_INVALID_CONTEXT;
    contexts--;
    *out = (CUcontext)1;
    return CUDA_SUCCESS;
}
API CUresult cuModuleLoadData(CUmodule *out, const void *) { return give(call_inside(), out, (CUmodule)1); }
API CUresult cuModuleUnload(CUmodule) { return CUDA_SUCCESS; }
API CUresult cuModuleGetFunction(CUfunction *out, CUmodule, const char *name) {
    CALL_INSIDE();
    for (on_host_kernel *k = kernels; k; k = k->next)
        if (strcmp(k->name, name) == 0) {
            *out = (CUfunction)k;
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_NOT_FOUND;
}
/* Shared memory that each kernel may have is kept in its entry, as a block has 48 KB of it unless it is asked for. */
API CUresult cuFuncSetAttribute(CUfunction f, CUfunction_attribute what, int value) {
    CALL_INSIDE();
    if (what != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || value < 0 || (size_t)value > sizeof on_host_shared)
        return CUDA_ERROR_INVALID_VALUE;
    ((on_host_kernel *)f)->shared_bytes = (unsigned)value;
    return CUDA_SUCCESS;
}
API CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void **parameters, void **) {
    CALL_INSIDE();
    const unsigned gx = c->gridDimX, gy = c->gridDimY, gz = c->gridDimZ, bx = c->blockDimX, by = c->blockDimY,
                   bz = c->blockDimZ, shared = c->sharedMemBytes;
    if (bx * by * bz > MOST_THREADS || bx * by * bz == 0 || gx == 0 || gy > 65535 || gz > 65535 ||
        shared > ((const on_host_kernel *)f)->shared_bytes)
        return CUDA_ERROR_INVALID_VALUE;
    const std::lock_guard<std::mutex> mine(turn);
    const unsigned mode = _mm_getcsr();
    _mm_setcsr(mode | 0x8040); /* denormals are flushed, as the kernels are compiled to */
    kernel = (const on_host_kernel *)f;
    arguments = parameters[0];
    gridDim = {gx, gy, gz};
    blockDim = {bx, by, bz};
    place(bx * by * bz);
    for (blockIdx.z = 0; blockIdx.z < gz; blockIdx.z++)
        for (blockIdx.y = 0; blockIdx.y < gy; blockIdx.y++)
            for (blockIdx.x = 0; blockIdx.x < gx; blockIdx.x++) {
                memset(on_host_shared, 0xFB, shared);
                run_block(bx * by * bz);
            }
    _mm_setcsr(mode);
    return CUDA_SUCCESS;
}
API CUresult cuStreamCreate(CUstream *out, unsigned) { return give(call_inside(), out, (CUstream)1); }
API CUresult cuStreamDestroy(CUstream) { return CUDA_SUCCESS; }
API CUresult cuStreamSynchronize(CUstream) { return call_inside(); }
/* Memory that holds no zeros by chance. */
static CUresult take(void **out, size_t bytes, size_t alignment, memory_kind &of, size_t limit) {
    CALL_INSIDE();
    if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    const std::lock_guard<std::mutex> mine(turn);
    if (bytes > limit || of.held > limit - bytes) return CUDA_ERROR_OUT_OF_MEMORY;
    if (!(*out = aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    memset(*out, 0xFB, bytes);
    of.bytes[*out] = bytes;
    of.held += bytes;
    return CUDA_SUCCESS;
}
static CUresult give_back(void *p, memory_kind &of) {
    const std::lock_guard<std::mutex> mine(turn);
    const auto found = of.bytes.find(p);
    if (found == of.bytes.end()) return CUDA_ERROR_INVALID_VALUE;
    of.held -= found->second;
    of.bytes.erase(found);
    free(p);
    return CUDA_SUCCESS;
}
API CUresult cuMemAlloc(CUdeviceptr *out, size_t bytes) { return take((void **)out, bytes, 256, memory, most); }
API CUresult cuMemFree(CUdeviceptr p) { return give_back((void *)p, memory); }
API CUresult cuMemHostAlloc(void **out, size_t bytes, unsigned) {
    return take(out, bytes, 4096, page_locked, SIZE_MAX);
}
API CUresult cuMemFreeHost(void *p) { return give_back(p, page_locked); }
API CUresult cuMemGetInfo(size_t *left, size_t *all) {
    CALL_INSIDE();
    const std::lock_guard<std::mutex> mine(turn);
    const char *size = getenv("ON_HOST_MEMORY"); /* in MB */
    *all = size ? (size_t)strtoull(size, NULL, 10) << 20 : most;
    *left = memory.held < *all ? *all - memory.held : 0;
    return CUDA_SUCCESS;
}
/* Work is done when it has been submitted, and so is what events wait for. */
API CUresult cuEventCreate(CUevent *out, unsigned) {
    CALL_INSIDE();
    *out = (CUevent)1;
    events++;
    return CUDA_SUCCESS;
}
API CUresult cuEventDestroy(CUevent) {
    events--;
    return CUDA_SUCCESS;
}
API CUresult cuEventRecord(CUevent, CUstream) { return call_inside(); }
API CUresult cuEventQuery(CUevent) { return call_inside(); }
API CUresult cuEventSynchronize(CUevent) { return call_inside(); }
static CUresult copy(void *to, const void *from, size_t n) {
    CALL_INSIDE();
    memmove(to, from, n);
    return CUDA_SUCCESS;
}
API CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t n, CUstream) {
    return copy((void *)to, from, n);
}
API CUresult cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t n, CUstream) { return copy(to, (void *)from, n); }
API CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t n, CUstream) {
    return copy((void *)to, (void *)from, n);
}
API CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char byte, size_t n, CUstream) {
    CALL_INSIDE();
    memset((void *)to, byte, n);
    return CUDA_SUCCESS;
}
