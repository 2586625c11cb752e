/*!
 * The C++ interface of TVM's runtime up to 0.18 (Module, PackedFunc, NDArray, Registry), over that
 * of today: programs that deploy a library compile as they are with this folder's parent in front
 * of TVM's headers, and link libtvm_runtime and libtvm_ffi. docs/cpp.md has the command.
 *
 * Sources that a code generator wrote compile with it, too: TVM_DLL_EXPORT_TYPED_FUNC,
 * TVM_DLL_EXPORT_PACKED_FUNC, and functions of the former C calling convention, for which Baton
 * adds BATON_EXPORT_C_FUNC. docs/port_a_byoc_back_end.md describes them.
 */
#ifndef BATON_TVM_0_18_REGISTRY_H_
#define BATON_TVM_0_18_REGISTRY_H_

#include <dlpack/dlpack.h>
#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>
#include <tvm/runtime/base.h>
#include <tvm/runtime/logging.h>

#include <map>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#ifndef ICHECK
#define ICHECK(condition) TVM_FFI_ICHECK(condition)
#define ICHECK_EQ(x, y) TVM_FFI_ICHECK_EQ(x, y)
#define ICHECK_NE(x, y) TVM_FFI_ICHECK_NE(x, y)
#define ICHECK_LT(x, y) TVM_FFI_ICHECK_LT(x, y)
#define ICHECK_GE(x, y) TVM_FFI_ICHECK_GE(x, y)
#endif
#ifndef CHECK
#define CHECK(condition) TVM_FFI_ICHECK(condition)
#define CHECK_EQ(x, y) TVM_FFI_ICHECK_EQ(x, y)
#endif

using DLContext = DLDevice;
using TVMContext = DLDevice;
using TVMArrayHandle = DLTensor*;

/*! \brief An argument or result of the former C calling convention. */
typedef union {
  int64_t v_int64;
  double v_float64;
  void* v_handle;
  const char* v_str;
  DLDataType v_type;
  DLDevice v_device;
} TVMValue;

/*! \brief Type codes beside those of DLPack: 0 integers, 2 floats. */
typedef enum {
  kTVMArgInt = 0,
  kTVMArgFloat = 2,
  kTVMOpaqueHandle = 3,
  kTVMNullptr = 4,
  kTVMDLTensorHandle = 7,
  kTVMStr = 11,
  kTVMNDArrayHandle = 13,
} TVMArgTypeCode;

namespace tvm {
namespace runtime {

/*! \brief A function of TVM's runtime. */
inline ffi::Function RuntimeFunction(const char* name) {
  return ffi::Function::GetGlobalRequired(std::string("runtime.TVMTensor") + name);
}

/*! \brief A tensor on a device. */
class NDArray : public ffi::Tensor {
 public:
  NDArray() = default;
  NDArray(ffi::Tensor tensor) : ffi::Tensor(std::move(tensor)) {}  // NOLINT(*)
  static NDArray Empty(ffi::Shape shape, DLDataType dtype, DLDevice device) {
    return RuntimeFunction("AllocWithScope")(shape, dtype, device, nullptr).cast<ffi::Tensor>();
  }
  const DLTensor* operator->() const { return this->GetDLTensorPtr(); }
  ffi::Shape Shape() const { return ffi::Shape(this->shape().begin(), this->shape().end()); }
  DLDataType DataType() const { return this->dtype(); }
  void CopyFromBytes(const void* data, size_t nbytes) {
    RuntimeFunction("CopyFromBytes")(*this, const_cast<void*>(data), static_cast<int64_t>(nbytes));
  }
  void CopyToBytes(void* data, size_t nbytes) const {
    RuntimeFunction("CopyToBytes")(*this, data, static_cast<int64_t>(nbytes));
  }
  void CopyFrom(const NDArray& other) { RuntimeFunction("CopyFromTo")(other, *this); }
  void CopyTo(const NDArray& other) const { RuntimeFunction("CopyFromTo")(*this, other); }
};

/*! \brief What a function returned; becomes what it is assigned to. */
class TVMRetValue {
 public:
  TVMRetValue() = default;
  template <typename T>
  TVMRetValue& operator=(T value) {
    value_ = ffi::Any(std::move(value));
    return *this;
  }
  ffi::Any Take() { return std::move(value_); }
  explicit TVMRetValue(ffi::Any value) : value_(std::move(value)) {}
  template <typename T>
  operator T() const {  // NOLINT(*)
    if constexpr (std::is_constructible_v<T, ffi::Module>) {
      return T(value_.cast<ffi::Module>());
    } else if constexpr (std::is_base_of_v<ffi::Tensor, T>) {
      return T(value_.cast<ffi::Tensor>());
    } else {
      return value_.cast<T>();
    }
  }

 private:
  ffi::Any value_;
};

/*! \brief An argument of a packed function; becomes what it is assigned to. */
class TVMArgValue {
 public:
  explicit TVMArgValue(ffi::AnyView value) : value_(value) {}
  template <typename T>
  operator T() const {  // NOLINT(*)
    if constexpr (std::is_base_of_v<ffi::Tensor, T>) {
      return T(value_.cast<ffi::Tensor>());
    } else {
      return value_.cast<T>();
    }
  }

 private:
  ffi::AnyView value_;
};

/*! \brief The arguments of a packed function. */
class TVMArgs {
 public:
  TVMArgs(const TVMFFIAny* values, int count)
      : num_args(count), values_(reinterpret_cast<const ffi::AnyView*>(values)) {}
  int size() const { return num_args; }
  TVMArgValue operator[](int index) const { return TVMArgValue(values_[index]); }
  const int num_args;

 private:
  const ffi::AnyView* values_;
};

template <typename T>
using Array = ffi::Array<T>;
using String = ffi::String;

/*! \brief A function by name; equal to nullptr where there is none. */
class PackedFunc {
 public:
  PackedFunc() = default;
  PackedFunc(std::nullptr_t) {}  // NOLINT(*)
  explicit PackedFunc(ffi::Function function) : function_(std::move(function)) {}
  template <typename... Args>
  TVMRetValue operator()(Args&&... args) const {
    return TVMRetValue(function_(std::forward<Args>(args)...));
  }
  bool operator==(std::nullptr_t) const { return function_ == nullptr; }
  bool operator!=(std::nullptr_t) const { return function_ != nullptr; }

 private:
  ffi::Function function_{nullptr};
};

/*! \brief A library, or an executor that a library's function made. */
class Module {
 public:
  Module() = default;
  explicit Module(ffi::Module module) : module_(std::move(module)) {}
  static Module LoadFromFile(const std::string& path, const std::string& = "") {
    return Module(ffi::Module::LoadFromFile(path));
  }
  PackedFunc GetFunction(const std::string& name, bool query_imports = false) const {
    const auto found = module_.value()->GetFunction(name, query_imports);
    return found.has_value() ? PackedFunc(found.value()) : PackedFunc();
  }
  operator ffi::Module() const { return module_.value(); }  // NOLINT(*)

 private:
  ffi::Optional<ffi::Module> module_;
};

/*! \brief Functions that are registered in the process. */
class Registry {
 public:
  /*! \return nullptr where there is no such function. */
  static const PackedFunc* Get(const std::string& name) {
    static std::map<std::string, PackedFunc> known;
    const bool is_system = name == "runtime.SystemLib";
    const auto found = ffi::Function::GetGlobal(is_system ? "ffi.SystemLib" : name);
    if (!found.has_value()) return nullptr;
    return &known.insert_or_assign(name, PackedFunc(found.value())).first->second;
  }
};

}  // namespace runtime
}  // namespace tvm

#define TVM_DLL_EXPORT_TYPED_FUNC(Name, Function) TVM_FFI_DLL_EXPORT_TYPED_FUNC(Name, Function)

#define TVM_DLL_EXPORT_PACKED_FUNC(Name, Function)                                            \
  extern "C" TVM_FFI_DLL_EXPORT int __tvm_ffi_##Name(void*, const TVMFFIAny* args, int32_t count, \
                                                     TVMFFIAny* result) {                     \
    TVM_FFI_SAFE_CALL_BEGIN();                                                                \
    tvm::runtime::TVMRetValue returned;                                                       \
    Function(tvm::runtime::TVMArgs(args, count), &returned);                                  \
    *reinterpret_cast<tvm::ffi::Any*>(result) = returned.Take();                              \
    TVM_FFI_SAFE_CALL_END();                                                                  \
  }

/*! \brief Call a function of the former C convention; an error if it does not return 0. */
inline void BatonCallC(const char* name,
                       int (*function)(TVMValue*, int*, int, TVMValue*, int*, void*),
                       const TVMFFIAny* args, int count) {
  std::vector<TVMValue> values(count + 1);
  std::vector<int> codes(count + 1);
  for (int i = 0; i < count; ++i) {
    const auto& value = reinterpret_cast<const tvm::ffi::AnyView*>(args)[i];
    values[i].v_handle = value.cast<DLTensor*>();
    codes[i] = kTVMDLTensorHandle;
  }
  TVMValue returned{};
  int code = kTVMNullptr;
  const int status = function(values.data(), codes.data(), count, &returned, &code, nullptr);
  TVM_FFI_ICHECK_EQ(status, 0) << "external function " << name << " returned " << status;
}

#define BATON_EXPORT_C_FUNC(Name)                                                                 \
  extern "C" int Name(TVMValue*, int*, int, TVMValue*, int*, void*);                              \
  extern "C" TVM_FFI_DLL_EXPORT int __tvm_ffi_##Name(void*, const TVMFFIAny* args, int32_t count, \
                                                     TVMFFIAny*) {                            \
    TVM_FFI_SAFE_CALL_BEGIN();                                                                \
    BatonCallC(#Name, Name, args, count);                                                     \
    TVM_FFI_SAFE_CALL_END();                                                                  \
  }

inline int TVMArrayAlloc(const int64_t* shape, int ndim, int code, int bits, int lanes,
                         int device_type, int device_id, TVMArrayHandle* out) {
  const DLDataType dtype{static_cast<uint8_t>(code), static_cast<uint8_t>(bits),
                         static_cast<uint16_t>(lanes)};
  const DLDevice device{static_cast<DLDeviceType>(device_type), device_id};
  const auto made =
      tvm::runtime::NDArray::Empty(tvm::ffi::Shape(shape, shape + ndim), dtype, device);
  *out = &made.ToDLPack()->dl_tensor;
  return 0;
}

inline int TVMArrayFree(TVMArrayHandle tensor) {
  auto* managed = reinterpret_cast<DLManagedTensor*>(tensor);  // which begins with it
  managed->deleter(managed);
  return 0;
}

#endif  // BATON_TVM_0_18_REGISTRY_H_
