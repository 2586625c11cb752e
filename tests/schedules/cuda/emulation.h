// Runs the CUDA C that TVM generates on the host: one fibre per thread of a block, real barriers.
// Between barriers the threads run one after the other, in the order that is asked for; shared
// memory is full of NaN when a block begins.
// Only what TVM's code generator emits for the scheduled kernels is declared here.
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __restrict__ __restrict
#define __shared__ static __attribute__((section("emulation_shared")))
#define alignas(bytes) __attribute__((aligned(bytes)))
#define uint unsigned int
#define uchar unsigned char
// Each kernel is compiled with this header: standard headers of C++ would take most of the time.
template <typename T>
static inline T max(const T& a, const T& b) { return a < b ? b : a; }
template <typename T>
static inline T min(const T& a, const T& b) { return b < a ? b : a; }

struct Index3 {
  unsigned x, y, z;
};
static Index3 blockIdx, threadIdx;

template <typename T, int N>
struct Vector;
template <typename T>
struct Vector<T, 2> {
  T x, y;
};
template <typename T>
struct Vector<T, 3> {
  T x, y, z;
};
template <typename T>
struct Vector<T, 4> {
  T x, y, z, w;
};
typedef Vector<float, 2> float2;
typedef Vector<float, 4> float4;
typedef Vector<int, 2> int2;
typedef Vector<int, 4> int4;
static inline float2 make_float2(float x, float y) { return {x, y}; }
static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
static inline int2 make_int2(int x, int y) { return {x, y}; }
static inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline float __ldg(const float* p) { return *p; }

// The linker's names for where the section begins and ends; there is none without such memory.
extern "C" __attribute__((weak, visibility("hidden"))) char __start_emulation_shared[];
extern "C" __attribute__((weak, visibility("hidden"))) char __stop_emulation_shared[];

namespace emulation {

alignas(128) static uchar dynamic_shared[227 * 1024];
static bool reversed;

enum State { kReady, kAtBlockBarrier, kAtWarpBarrier, kDone };
struct Fibre {
  ucontext_t context;
  Index3 index;
  State state;
  int line;
};
static const int kWarp = 32, kStack = 128 * 1024, kMaxThreads = 1024;
static Fibre fibres[kMaxThreads];
static char* stacks;
static ucontext_t scheduler;
static int current, num_threads;
static void (*kernel_body)(void**);
static void** kernel_args;
static uint64_t lanes[kMaxThreads];

static void fail(const char* what, int line) {
  fprintf(stderr, "emulation: %s (generated line %d)\n", what, line);
  abort();
}

static void wait(State state, int line) {
  fibres[current].state = state;
  fibres[current].line = line;
  swapcontext(&fibres[current].context, &scheduler);
}

template <typename T>
static T shuffle(T value, int source_lane, int line) {
  memcpy(&lanes[current], &value, sizeof(T));
  wait(kAtWarpBarrier, line);
  int first = current / kWarp * kWarp;
  T result = value;
  if (source_lane >= 0 && source_lane < kWarp && first + source_lane < num_threads)
    memcpy(&result, &lanes[first + source_lane], sizeof(T));
  wait(kAtWarpBarrier, line);
  return result;
}

static void fibre_main() {
  kernel_body(kernel_args);
  fibres[current].state = kDone;
  swapcontext(&fibres[current].context, &scheduler);
}

static void run_ready() {
  for (int i = 0; i < num_threads; ++i) {
    current = reversed ? num_threads - 1 - i : i;
    if (fibres[current].state != kReady) continue;
    threadIdx = fibres[current].index;
    swapcontext(&scheduler, &fibres[current].context);
  }
}

// A warp whose live threads all wait goes on once they wait at the same place.
static bool release_warps() {
  bool released = false;
  for (int first = 0; first < num_threads; first += kWarp) {
    int line = -1;
    for (int i = first; i < min(first + kWarp, num_threads); ++i) {
      if (fibres[i].state != kAtWarpBarrier) continue;
      if (line >= 0 && fibres[i].line != line) fail("a warp diverges at a shuffle", line);
      line = fibres[i].line;
      fibres[i].state = kReady;
      released = true;
    }
  }
  return released;
}

static bool release_block() {
  int line = -1, waiting = 0;
  for (int i = 0; i < num_threads; ++i) {
    if (fibres[i].state != kAtBlockBarrier) continue;
    if (line >= 0 && fibres[i].line != line) fail("threads wait at different barriers", line);
    line = fibres[i].line;
    ++waiting;
  }
  if (waiting == 0) return false;
  if (waiting != num_threads) fail("some threads left before a barrier", line);
  for (int i = 0; i < num_threads; ++i) fibres[i].state = kReady;
  return true;
}

static void run_block(Index3 block) {
  num_threads = 0;
  memset(dynamic_shared, 0xff, sizeof dynamic_shared);
  if (__start_emulation_shared)
    memset(__start_emulation_shared, 0xff, __stop_emulation_shared - __start_emulation_shared);
  for (unsigned z = 0; z < block.z; ++z)
    for (unsigned y = 0; y < block.y; ++y)
      for (unsigned x = 0; x < block.x; ++x) {
        Fibre& fibre = fibres[num_threads];
        fibre.index = {x, y, z};
        fibre.state = kReady;
        getcontext(&fibre.context);
        fibre.context.uc_stack.ss_sp = stacks + (size_t)num_threads * kStack;
        fibre.context.uc_stack.ss_size = kStack;
        fibre.context.uc_link = &scheduler;
        makecontext(&fibre.context, fibre_main, 0);
        ++num_threads;
      }
  do {
    run_ready();
  } while (release_warps() || release_block());
}

struct Pointer {
  void* address;
  template <typename T>
  operator T*() const {
    return (T*)address;
  }
};

static void launch(void (*body)(void**), void** args, Index3 grid, Index3 block) {
  if (block.x * block.y * block.z > kMaxThreads) fail("more than 1024 threads in a block", 0);
  if (stacks == nullptr) stacks = (char*)malloc((size_t)kMaxThreads * kStack);
  kernel_body = body;
  kernel_args = args;
  for (unsigned z = 0; z < grid.z; ++z)
    for (unsigned y = 0; y < grid.y; ++y)
      for (unsigned x = 0; x < grid.x; ++x) {
        blockIdx = {x, y, z};
        if (EMULATION_BARRIERS) {
          run_block(block);
          continue;
        }
        for (threadIdx.z = 0; threadIdx.z < block.z; ++threadIdx.z)
          for (threadIdx.y = 0; threadIdx.y < block.y; ++threadIdx.y)
            for (threadIdx.x = 0; threadIdx.x < block.x; ++threadIdx.x) body(args);
      }
}

}  // namespace emulation

// Tensor cores: every lane of a warp holds whole matrices and computes whole products.
namespace nvcuda {
namespace wmma {
struct matrix_a;
struct matrix_b;
struct accumulator;
struct row_major;
struct col_major;
enum layout_t { mem_row_major, mem_col_major };
template <typename Use, int M, int N, int K, typename T, typename Layout = void>
struct fragment {
  T at[16][16];
};
template <typename F>
static void fill_fragment(F& f, float value) {
  for (auto& row : f.at)
    for (auto& element : row) element = value;
}
template <typename U, typename T>
static void load_matrix_sync(fragment<U, 16, 16, 16, T, row_major>& f, const T* p, unsigned stride) {
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 16; ++j) f.at[i][j] = p[i * stride + j];
}
template <typename U, typename T>
static void load_matrix_sync(fragment<U, 16, 16, 16, T, col_major>& f, const T* p, unsigned stride) {
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 16; ++j) f.at[i][j] = p[j * stride + i];
}
template <typename C, typename A, typename B>
static void mma_sync(C& d, const A& a, const B& b, const C& c) {
  C sum = c;
  for (int i = 0; i < 16; ++i)
    for (int k = 0; k < 16; ++k)
      for (int j = 0; j < 16; ++j) sum.at[i][j] += a.at[i][k] * b.at[k][j];
  d = sum;
}
template <typename T, typename F>
static void store_matrix_sync(T* p, const F& f, unsigned stride, layout_t) {
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 16; ++j) p[i * stride + j] = f.at[i][j];
}
}  // namespace wmma
}  // namespace nvcuda

#define __syncthreads() emulation::wait(emulation::kAtBlockBarrier, __LINE__)
#define __activemask() 0xffffffffu
#define __shfl_sync(mask, value, lane, width) emulation::shuffle((value), (lane) % 32, __LINE__)
#define __shfl_down_sync(mask, value, delta, width) \
  emulation::shuffle((value), emulation::current % 32 + (delta), __LINE__)
