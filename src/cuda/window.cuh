/* Windows of attention in kernels: device/window.h. */
#ifndef HT_CUDA_WINDOW_CUH
#define HT_CUDA_WINDOW_CUH

#ifdef __CUDACC__
#define static static __device__
#endif
#include "device/window.h"
#ifdef __CUDACC__
#undef static
#endif

#endif
