/*!
 * \file mxnet/lib_api.h
 * \brief Sources written for MXNet's library interface, compiled as libraries that Baton loads.
 *
 * The names and signatures are MXNet's, of versions 1.6 to 2.0; baton/mxnet_library.h has the one
 * function through which Baton calls the library. C++11 and its standard library are enough:
 *
 *   g++ -shared -fPIC -std=c++11 my_lib.cc -o libmy.so -I include/mxnet
 *
 * Inference on the CPU: gradients, memory on GPUs and sparse arrays are errors where a library asks
 * for them. docs/mxnet_libraries.md describes each part.
 */
#ifndef MXNET_LIB_API_H_
#define MXNET_LIB_API_H_

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

/*! \brief For functions with static variables, which two libraries in one process must not share. */
#define MX_OWN __attribute__((visibility("hidden")))

/*! \brief For functions with many callers, which need not be compiled again in each. */
#define MX_CALLED __attribute__((noinline))
/*! \brief Around code that the library runs once for a graph: optimized little, compiled sooner. */
#if defined(__OPTIMIZE__) && !defined(__clang__)
#define MX_QUICKLY_COMPILED _Pragma("GCC push_options") _Pragma("GCC optimize(\"O1\")")
#define MX_AS_ASKED_FOR _Pragma("GCC pop_options")
#else
#define MX_QUICKLY_COMPILED
#define MX_AS_ASKED_FOR
#endif

#define MX_LIBRARY_VERSION 11

#define MX_STR_SUBGRAPH_SYM_JSON "subgraph_sym_json"
#define MX_STR_DTYPE "__ext_dtype__"
#define MX_STR_SHAPE "__ext_shape__"
#define MX_STR_EXTRA_INPUTS "__ext_extra_inputs__"
#define SUBGRAPH_SYM_JSON MX_STR_SUBGRAPH_SYM_JSON  // of 1.6

#define MX_NUM_CPU_RANDOM_STATES 1024
#define MX_NUM_GPU_RANDOM_STATES 32768

#define MXLIB_INITIALIZE_STR "initialize"
typedef int (*initialize_t)(int version);

// DLPack's tensor, unless its header was included before. `device` was called `ctx` in MXNet's time.
#ifndef DLPACK_VERSION
#define DLPACK_VERSION 020
#define DLPACK_DLPACK_H_
extern "C" {
typedef enum { kDLCPU = 1, kDLGPU = 2, kDLCUDA = 2, kDLCPUPinned = 3 } DLDeviceType;
typedef enum { kDLInt = 0, kDLUInt = 1, kDLFloat = 2, kDLBfloat = 4, kDLBool = 6 } DLDataTypeCode;
typedef struct {
  DLDeviceType device_type;
  int device_id;
} DLDevice;
typedef DLDevice DLContext;
typedef struct {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
} DLDataType;
typedef struct {
  void* data;
  union {
    DLDevice device;
    DLContext ctx;
  };
  int ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
} DLTensor;
}
#endif

namespace mxnet {
namespace ext {

using AttrMap = std::unordered_map<std::string, std::string>;

enum MXReturnValue { MX_FAIL = 0, MX_SUCCESS = 1 };

enum MXDType {
  kFloat32 = 0,
  kFloat64 = 1,
  kFloat16 = 2,
  kUint8 = 3,
  kInt32 = 4,
  kInt8 = 5,
  kInt64 = 6,
  kUNSET = 100,
};

enum MXStorageType { kDefaultStorage = 0, kRowSparseStorage = 1, kCSRStorage = 2 };

/*! \brief What MX_ERROR_MSG collects, on each thread; it becomes part of the error. */
class MXerrorMsgs {
 public:
  MX_OWN static MXerrorMsgs* get() {
    static thread_local MXerrorMsgs messages;
    return &messages;
  }
  std::stringstream& add(const char* file, int line) {
    (void)file, (void)line;
    finish();
    ++size_;
    return last_;
  }
  int size() const { return size_; }
  /*! \brief All messages as one text, and none are left. */
  MX_CALLED std::string take() {
    finish();
    const std::string text = text_;
    text_.clear();
    size_ = 0;
    return text;
  }

 private:
  MX_CALLED void finish() {
    std::string line = last_.str();
    while (!line.empty() && isspace(static_cast<unsigned char>(line.back()))) line.pop_back();
    if (!line.empty()) text_ += (text_.empty() ? "" : "; ") + line;
    last_.str("");
  }
  std::stringstream last_;
  std::string text_;
  int size_ = 0;
};

#define MX_ERROR_MSG ::mxnet::ext::MXerrorMsgs::get()->add(__FILE__, __LINE__)

struct MXContext {
  MXContext() : MXContext("cpu", 0) {}
  explicit MXContext(std::string type, int id) : dev_type(std::move(type)), dev_id(id) {}
  MXContext(const char* type, int id) : dev_type(type), dev_id(id) {}
  static MXContext CPU(int id = 0) { return MXContext("cpu", id); }
  static MXContext GPU(int id = 0) { return MXContext("gpu", id); }

  std::string dev_type;
  int dev_id;
};

/*! \brief The parts of a sparse array; Baton hands out none. */
struct MXSparse {
  void set(void* values, const int64_t* dims, int ndims, void* idx, int64_t num_idx,
           void* idx_ptr = nullptr, int64_t num_idx_ptr = 0) {
    data = values;
    indices = static_cast<int64_t*>(idx);
    indices_len = num_idx;
    indptr = static_cast<int64_t*>(idx_ptr);
    indptr_len = num_idx_ptr;
    data_len = num_idx;  // of csr; a row of row_sparse has all further extents
    for (int i = 1; idx_ptr == nullptr && i < ndims; ++i) data_len *= dims[i];
  }

  void* data = nullptr;
  int64_t data_len = 0;
  int64_t* indices = nullptr;
  int64_t indices_len = 0;
  int64_t* indptr = nullptr;
  int64_t indptr_len = 0;
};

/*! \brief An array that belongs to somebody else: contiguous, on the CPU. */
struct MXTensor {
  MXTensor() { setDLTensor(); }
  MXTensor(void* data, std::vector<int64_t> extents, MXDType type, size_t version,
           MXContext device = MXContext(), MXStorageType storage = kDefaultStorage)
      : data_ptr(data), shape(std::move(extents)), dtype(type), verID(version),
        ctx(std::move(device)), stype(storage) {
    setDLTensor();
  }
  MX_CALLED ~MXTensor() = default;
  MX_CALLED MXTensor(const MXTensor& other)
      : MXTensor(other.data_ptr, other.shape, other.dtype, other.verID, other.ctx, other.stype) {}
  MX_CALLED MXTensor& operator=(const MXTensor& other) {
    data_ptr = other.data_ptr, shape = other.shape, dtype = other.dtype;
    verID = other.verID, ctx = other.ctx, stype = other.stype;
    setDLTensor();
    return *this;
  }

  void setTensor(void* data, MXDType type, const int64_t* dims, int ndims, size_t version,
                 MXContext device = MXContext(), MXStorageType storage = kDefaultStorage) {
    *this = MXTensor(data, std::vector<int64_t>(dims, dims + ndims), type, version,
                     std::move(device), storage);
  }
  /*! \brief Brings `dltensor` in line with the other members. */
  void setDLTensor() {
    dltensor.data = data_ptr;
    dltensor.device.device_type = ctx.dev_type == "gpu" ? kDLCUDA : kDLCPU;
    dltensor.device.device_id = ctx.dev_id;
    dltensor.ndim = static_cast<int>(shape.size());
    dltensor.dtype = dlpackType(dtype);
    dltensor.shape = shape.data();
    dltensor.strides = nullptr;
    dltensor.byte_offset = 0;
  }

  template <typename T>
  T* data() const {
    return reinterpret_cast<T*>(data_ptr);
  }
  int64_t size() const {
    int64_t count = 1;
    for (int64_t extent : shape) count *= extent;
    return count;
  }
  bool isSame(const MXTensor& other) const {
    return data_ptr == other.data_ptr && shape == other.shape && dtype == other.dtype &&
           verID == other.verID && stype == other.stype && ctx.dev_type == other.ctx.dev_type &&
           ctx.dev_id == other.ctx.dev_id;
  }

  /*! \brief DLPack's type. Types that MXDType has no name for have the codes of MXNet's files. */
  static DLDataType dlpackType(int code) {
    static const DLDataType types[] = {
        {kDLFloat, 32, 1}, {kDLFloat, 64, 1}, {kDLFloat, 16, 1}, {kDLUInt, 8, 1},
        {kDLInt, 32, 1},   {kDLInt, 8, 1},    {kDLInt, 64, 1},   {kDLBool, 8, 1},
        {kDLInt, 16, 1},   {kDLUInt, 16, 1},  {kDLUInt, 32, 1},  {kDLUInt, 64, 1},
        {kDLBfloat, 16, 1}};
    const DLDataType unknown = {3, 0, 0};  // DLPack's opaque handle
    return code >= 0 && code < 13 ? types[code] : unknown;
  }

  void* data_ptr = nullptr;
  std::vector<int64_t> shape;
  MXDType dtype = kUNSET;
  /*! \brief Another number where the elements may be others. */
  size_t verID = 0;
  MXContext ctx;
  DLTensor dltensor;
  MXStorageType stype = kDefaultStorage;
};

#if defined(__NVCC__)
typedef cudaStream_t mx_stream_t;
typedef curandStatePhilox4_32_10_t mx_gpu_rand_t;
#else
typedef void* mx_stream_t;
typedef void* mx_gpu_rand_t;
#endif
typedef std::mt19937 mx_cpu_rand_t;

/*! \brief Makes new arguments and auxiliary states while a graph pass runs. */
class PassResource {
 public:
  using Allocate = std::function<MXTensor(const std::string& name, const std::vector<int64_t>& shape,
                                          const MXContext& ctx, MXDType dtype, bool is_aux)>;
  explicit PassResource(Allocate allocate) : allocate_(std::move(allocate)) {}

  MXTensor* alloc_arg(const std::string& name, const std::vector<int64_t>& shape,
                      const MXContext& ctx, MXDType dtype) const {
    return &(args_[name] = allocate_(name, shape, ctx, dtype, false));
  }
  MXTensor* alloc_aux(const std::string& name, const std::vector<int64_t>& shape,
                      const MXContext& ctx, MXDType dtype) const {
    return &(aux_[name] = allocate_(name, shape, ctx, dtype, true));
  }

 private:
  Allocate allocate_;
  mutable std::unordered_map<std::string, MXTensor> args_, aux_;
};

/*! \brief Blocks of memory that live as long as this object. */
class MXMemory {
 public:
  MXMemory() = default;
  MXMemory(const MXMemory&) = delete;
  MXMemory& operator=(const MXMemory&) = delete;
  ~MXMemory() {
    for (void* block : blocks_) free(block);
  }
  /*! \brief Zeros, aligned for any type. */
  void* allocate(size_t bytes) {
    void* block = calloc(bytes + 1, 1);
    if (!block) throw std::runtime_error("no memory for " + std::to_string(bytes) + " bytes");
    blocks_.push_back(block);
    return block;
  }

 private:
  std::vector<void*> blocks_;
};

/*! \brief What an operator may ask for while it runs. Memory is the operator's until it returns. */
class OpResource {
 public:
  explicit OpResource(MXMemory* memory) : memory_(memory) {}

  void* alloc_cpu(int size) const {
    if (size < 0) throw std::runtime_error("alloc_cpu of " + std::to_string(size) + " bytes");
    return memory_->allocate(size);
  }
  /*! \brief The name in 1.6. */
  void* alloc(int size) const { return alloc_cpu(size); }
  void* alloc_gpu(int) const {
    throw std::runtime_error("alloc_gpu: operators of libraries run on the CPU");
  }
  void alloc_sparse(MXSparse*, int, int, int = 0) const {
    throw std::runtime_error("alloc_sparse: Baton has no sparse arrays");
  }
  mx_stream_t get_cuda_stream() const { return nullptr; }
  /*! \brief MX_NUM_CPU_RANDOM_STATES generators per thread. */
  mx_cpu_rand_t* get_cpu_rand_states() const { return generators(); }
  mx_gpu_rand_t* get_gpu_rand_states() const { return nullptr; }

 private:
  MX_OWN static mx_cpu_rand_t* generators() {
    static thread_local std::unique_ptr<mx_cpu_rand_t[]> states;
    if (!states) {
      states.reset(new mx_cpu_rand_t[MX_NUM_CPU_RANDOM_STATES]);
      for (unsigned i = 0; i < MX_NUM_CPU_RANDOM_STATES; ++i) states[i].seed(i + 1);
    }
    return states.get();
  }
  MXMemory* memory_;
};

/*! \brief Text of the shape, or the type's code, of one output in a list such as [[2,3],[3]]. */
std::string getShapeAt(const std::string& shapes, unsigned index);
std::string getDtypeAt(const std::string& dtypes, unsigned index);

}  // namespace ext
}  // namespace mxnet

#include "lib_api_graph.h"
#include "lib_api_registry.h"

/*! \brief Every library defines it: whether it works with that version of MXNet. */
extern "C" __attribute__((weak, visibility("default"))) mxnet::ext::MXReturnValue initialize(
    int version);

#include "../baton/mxnet_library.h"

// Until 1.7 the names were in no namespace, and `-I include/mxnet` found the header.
#if !__has_include(<mxnet/lib_api.h>)
#include "lib_api_names.h"
#endif

#endif  // MXNET_LIB_API_H_
