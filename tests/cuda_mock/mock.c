// Poses as libcuda.so.1 (-DDRIVER) and libcudart.so.13: what TVM's CUDA runtime asks of a GPU, with
// memory that code of the host can't touch but in copies and launches. Launches go to whom `mock_on_launch` names (see device.py), else nowhere.
// Launches and attributes are written to $MOCK_CUDA_LOG.
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifdef DRIVER

static void note(const char* format, ...) {
  const char* path = getenv("MOCK_CUDA_LOG");
  FILE* file = path ? fopen(path, "a") : NULL;
  va_list arguments;
  if (!file) return;
  va_start(arguments, format);
  vfprintf(file, format, arguments);
  va_end(arguments);
  fclose(file);
}

struct Function {
  const char* image;
  char* name;
};
static void (*on_launch)(const char* image, const char* name, const unsigned* config, void** arguments);
void mock_on_launch(void* callback) { on_launch = callback; }

int cuInit(unsigned flags) { return 0; }
int cuDriverGetVersion(int* version) { return *version = 13000, 0; }
int cuDeviceGetCount(int* count) { return *count = 1, 0; }
int cuDeviceGet(int* device, int index) { return *device = index, 0; }
int cuDeviceGetName(char* name, int size, int device) { return strncpy(name, "mock H100", size), 0; }
int cuDeviceGetAttribute(int* value, int attribute, int device) {
  switch (attribute) {
    case 1: return *value = 1024, 0;
    case 8: return *value = 49152, 0;
    case 12: case 82: return *value = 65536, 0;
    case 16: return *value = 114, 0;
    case 39: return *value = 2048, 0;
    case 75: return *value = 9, 0;
    case 76: return *value = 0, 0;
    case 81: return *value = 233472, 0;
    case 97: return *value = 232448, 0;
    case 106: return *value = 32, 0;
    case 111: return *value = 1024, 0;
  }
  return 1;
}
int cuGetErrorName(int error, const char** text) { return *text = "mock", 0; }
int cuGetErrorString(int error, const char** text) { return *text = "mock", 0; }
// The PTX inside a fatbin that nvcc did not compress; other images as they are.
static const void* ptx_of(const void* image) {
  static const unsigned char magic[] = {0x50, 0xed, 0x55, 0xba};
  if (memcmp(image, magic, sizeof magic)) return image;
  size_t size = *(const unsigned short*)((const char*)image + 6) +
                *(const unsigned long long*)((const char*)image + 8);
  const char* text = memmem(image, size, ".version ", 9);
  return text ? strndup(text, size - (text - (const char*)image)) : image;
}
int cuModuleLoadData(void** module, const void* image) {
  note("module %02x%02x%02x%02x\n", ((unsigned char*)image)[0], ((unsigned char*)image)[1],
       ((unsigned char*)image)[2], ((unsigned char*)image)[3]);
  return *module = (void*)ptx_of(image), 0;  // TVM keeps what it gave
}
int cuModuleUnload(void* module) { return 0; }
int cuModuleGetFunction(void** function, void* module, const char* name) {
  struct Function* found = malloc(sizeof *found);
  found->image = module;
  found->name = strdup(name);
  return *function = found, 0;
}
int cuFuncSetAttribute(struct Function* function, int attribute, int value) {
  note("attribute %s %d %d\n", function->name, attribute, value);
  return 0;
}
int cuLaunchKernelEx(const unsigned* config, struct Function* function, void** arguments, void** extra) {
  note("launch %s shared %u\n", function->name, config[6]);
  if (on_launch) on_launch(function->image, function->name, config, arguments);
  return 0;
}
int cuTensorMapEncodeTiled(void) { return 801; }

#else

static int capturing;  // a graph
static int allocations;  // of device memory, so far
int mock_allocations(void) { return allocations; }
int cudaGetDeviceCount(int* count) { return *count = 1, 0; }
int cudaGetDevice(int* device) { return *device = 0, 0; }
int cudaSetDevice(int device) { return 0; }
int cudaDeviceGetAttribute(int* value, int attribute, int device) {
  switch (attribute) {
    case 1: return *value = 1024, 0;   // threads of a block
    case 8: return *value = 49152, 0;  // static shared memory of a block
    case 10: return *value = 32, 0;    // threads of a warp
    case 16: return *value = 114, 0;   // multiprocessors
    case 75: return *value = 9, 0;     // compute capability
    case 76: return *value = 0, 0;
  }
  return *value = 1024, 0;
}
int cudaGetDeviceProperties(void* properties, int device) {
  return memset(properties, 0, 512), strcpy(properties, "mock H100"), 0;
}
// What is allocated, so that a kernel's pointers can be told from one another.
static struct Block {
  char* start;
  size_t size;
  struct Block* next;
}* blocks;
int mock_block(const char* inside, char** start, size_t* size) {
  for (struct Block* block = blocks; block; block = block->next)
    if (block->start <= inside && inside < block->start + block->size)
      return *start = block->start, *size = block->size, 1;
  return 0;
}
// Let the process touch the GPU's memory, or end it where it does.
void mock_open(int open) {
  static int depth;
  if (open ? depth++ : --depth) return;
  for (struct Block* block = blocks; block; block = block->next)
    mprotect(block->start, block->size, open ? PROT_READ | PROT_WRITE : PROT_NONE);
}
int cudaMalloc(void** memory, size_t size) {
  struct Block* block = malloc(sizeof *block);
  if (capturing) return 900;
  *memory = mmap(NULL, size + !size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (*memory == MAP_FAILED) return 2;
  ++allocations;
  memset(*memory, 0xff, size);  // NaN
  mprotect(*memory, size, PROT_NONE);
  *block = (struct Block){*memory, size, blocks};
  blocks = block;
  return 0;
}
int cudaFree(void* memory) {
  for (struct Block** at = &blocks; *at; at = &(*at)->next)
    if ((*at)->start == memory) {
      munmap(memory, (*at)->size + !(*at)->size);
      *at = (*at)->next;
      break;
    }
  return 0;
}
int cudaMallocHost(void** memory, size_t size) { return (*memory = malloc(size)) ? 0 : 2; }
int cudaFreeHost(void* memory) { return free(memory), 0; }
int cudaMemGetInfo(size_t* left, size_t* total) { return *left = *total = 1ul << 33, 0; }
int cudaMemcpyAsync(void* to, const void* from, size_t size, int kind, void* stream) {
  if (capturing) return 900;  // graphs of copies are not known here
  mock_open(1);
  memcpy(to, from, size);
  return mock_open(0), 0;
}
int cudaMemcpyPeerAsync(void* to, int a, const void* from, int b, size_t size, void* stream) {
  return cudaMemcpyAsync(to, from, size, 3, stream);
}
int cudaStreamCreate(void** stream) { return *stream = malloc(1), 0; }
int cudaStreamCreateWithFlags(void** stream, unsigned flags) { return *stream = malloc(1), 0; }
int cudaEventCreate(void** event) { return *event = malloc(1), 0; }
int cudaEventElapsedTime(float* ms, void* a, void* b) { return *ms = 1, 0; }
const char* cudaGetErrorName(int error) { return "mock"; }
const char* cudaGetErrorString(int error) { return "mock"; }
#define NOTHING(name) \
  int name(void) { return 0; }
NOTHING(cudaStreamDestroy)
NOTHING(cudaStreamSynchronize)
NOTHING(cudaStreamWaitEvent)
NOTHING(cudaEventDestroy)
NOTHING(cudaEventRecord)
NOTHING(cudaEventSynchronize)
NOTHING(cudaGetLastError)
NOTHING(cudaPeekAtLastError)
// A graph is a number that `on_end` gives; its callbacks keep what was launched.
static void (*on_begin)(void*), (*on_graph)(size_t);
static size_t (*on_end)(void);
void mock_on_graphs(void* begin, void* end, void* launch) {
  on_begin = begin;
  on_end = end;
  on_graph = launch;
}
int cudaStreamBeginCapture(void* stream, int mode) {
  capturing = 1;
  if (on_begin) on_begin(stream);
  return 0;
}
int cudaStreamEndCapture(void* stream, void** graph) {
  capturing = 0;
  return *graph = (void*)(on_end ? on_end() : 1), 0;
}
int cudaGraphInstantiate(void** executable, void* graph, unsigned long long flags) {
  return *executable = graph, 0;
}
int cudaGraphLaunch(void* executable, void* stream) {
  if (on_graph) on_graph((size_t)executable);
  return 0;
}
NOTHING(cudaGraphDestroy)
NOTHING(cudaGraphExecDestroy)

#endif
