// `default` of a library that `export_library(..., standalone=True)` wrote: an executor that needs
// nothing but TVM's runtime. Code, weights and description are in the library itself; the files
// that the macros name are only read while this is compiled.
//
// The library is the root module, which TVM's loader gives the kernels of; the virtual machine's
// code imports it here, instead of the other way round, so that `library["default"]` is found.

#include <dlpack/dlpack.h>
#include <tvm/ffi/cast.h>
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/dtype.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#define BATON_EMBED(name, file)                                   \
  asm(".pushsection .rodata\n.balign 64\n" #name ":\n.incbin \"" file "\"\n" #name "_end:\n" \
      ".byte 0\n.popsection\n");                                  \
  extern "C" __attribute__((visibility("hidden"))) const char name[], name##_end[]

BATON_EMBED(baton_code, BATON_CODE);
BATON_EMBED(baton_weights, BATON_WEIGHTS);
BATON_EMBED(baton_description, BATON_DESCRIPTION);

// TVM's loader puts the module here; kernels that look functions up define it as well.
extern "C" __attribute__((weak, visibility("default"))) void* __tvm_ffi__library_ctx = nullptr;

namespace {

namespace ffi = tvm::ffi;

constexpr DLDevice kHost{kDLCPU, 0};
constexpr std::int64_t kOpen = -1;  // an extent that an input's value tells
constexpr int kPooledAllocator = 2;

struct HostMemory {
  void AllocData(DLTensor* tensor) {
    const std::size_t size = (ffi::GetDataSize(*tensor) + 63) / 64 * 64;
    tensor->data = std::aligned_alloc(64, size == 0 ? 64 : size);
    if (tensor->data == nullptr) TVM_FFI_THROW(MemoryError) << "no memory for " << size << " bytes";
    std::memset(tensor->data, 0, size);
  }
  void FreeData(DLTensor* tensor) { std::free(tensor->data); }
};

struct TensorInfo {
  std::string name;
  DLDataType type;
  std::vector<std::int64_t> shape;
};

/// What the exporter wrote: numbers of 64 bits, and texts behind their lengths.
class Reader {
 public:
  explicit Reader(const char* at) : at_(at) {}

  std::int64_t number() {
    std::int64_t value;
    std::memcpy(&value, at_, sizeof value);
    at_ += sizeof value;
    return value;
  }

  TensorInfo tensor() {
    TensorInfo info{text(), ffi::StringToDLDataType(text()), {}};
    info.shape.resize(number());
    for (std::int64_t& extent : info.shape) extent = number();
    return info;
  }

 private:
  std::string text() {
    const std::int64_t size = number();
    at_ += size;
    return std::string(at_ - size, size);
  }

  const char* at_;
};

/// A weight, where it lies in the library.
ffi::Tensor weight(const TensorInfo& info, std::int64_t offset) {
  struct Owned {
    DLManagedTensor managed{};
    std::vector<std::int64_t> shape;
  };
  Owned* owned = new Owned{{}, info.shape};
  DLTensor& tensor = owned->managed.dl_tensor;
  tensor.data = const_cast<char*>(baton_weights) + offset;
  tensor.device = kHost;
  tensor.ndim = static_cast<int>(info.shape.size());
  tensor.dtype = info.type;
  tensor.shape = owned->shape.data();
  owned->managed.manager_ctx = owned;
  owned->managed.deleter = [](DLManagedTensor* each) { delete static_cast<Owned*>(each->manager_ctx); };
  return ffi::Tensor::FromDLPack(&owned->managed);
}

void copy(ffi::TensorView from, ffi::TensorView to) {
  if (from.device().device_type != kDLCPU || to.device().device_type != kDLCPU) {
    TVM_FFI_THROW(ValueError) << "the library takes tensors in the CPU's memory";
  }
  if (!from.IsContiguous() || !to.IsContiguous()) {
    TVM_FFI_THROW(ValueError) << "the library takes contiguous tensors";
  }
  const std::size_t size = ffi::GetDataSize(from.numel(), from.dtype());
  if (from.dtype() != to.dtype() || size != ffi::GetDataSize(to.numel(), to.dtype())) {
    TVM_FFI_THROW(ValueError) << "a tensor of " << ffi::DLDataTypeToString(from.dtype()) << " and "
                              << from.numel() << " elements does not fit one of "
                              << ffi::DLDataTypeToString(to.dtype()) << " and " << to.numel();
  }
  const char* source = static_cast<const char*>(from.data_ptr());
  std::memcpy(to.data_ptr(), source, size);
}

class Executor : public ffi::ModuleObj {
 public:
  explicit Executor(ffi::Module library) : library_(std::move(library)) {
    Reader reader(baton_description);
    inputs_.resize(reader.number());
    for (TensorInfo& info : inputs_) info = reader.tensor();
    values_.resize(inputs_.size());
    output_count_ = reader.number();
    std::vector<ffi::Any> arguments = {ffi::String("main"), ffi::String("entry"), true};
    for (std::int64_t left = reader.number(); left > 0; --left) {
      const TensorInfo info = reader.tensor();
      arguments.push_back(weight(info, reader.number()));
    }
    const ffi::Bytes code(baton_code, baton_code_end - baton_code);
    ffi::Module executable =
        ffi::Function::GetGlobalRequired("ffi.Module.load_from_bytes.relax.VMExecutable")(code)
            .cast<ffi::Module>();
    executable->ImportModule(library_);
    machine_ = function_of(executable, "vm_load_executable")().cast<ffi::Module>();
    function_of(*machine_, "vm_initialization")(static_cast<int>(kDLCPU), 0, kPooledAllocator);
    // Saving a function binds its last arguments, the weights, inside of the virtual machine.
    std::vector<ffi::AnyView> views(arguments.begin(), arguments.end());
    ffi::Any nothing;
    function_of(*machine_, "save_function")
        .CallPacked(views.data(), static_cast<std::int32_t>(views.size()), &nothing);
    entry_ = function_of(*machine_, "entry");
  }

  const char* kind() const final { return "baton_executor"; }

  ffi::Optional<ffi::Function> GetFunction(const ffi::String& name) final {
    ffi::ObjectPtr<Executor> self = ffi::GetObjectPtr<Executor>(this);
    if (name == "set_input" || name == "set_input_zero_copy") {
      return ffi::Function::FromTyped([self](ffi::Any which, ffi::TensorView value) {
        self->set_input(self->index_of(which), value);
      });
    }
    if (name == "run") return ffi::Function::FromTyped([self]() { self->run(); });
    if (name == "get_output") {
      return ffi::Function::FromPacked([self](ffi::PackedArgs args, ffi::Any* result) {
        const ffi::Tensor output = self->output(args[0].cast<std::int64_t>());
        if (args.size() > 1) {
          copy(output, args[1].cast<ffi::TensorView>());
        } else {
          *result = output;
        }
      });
    }
    if (name == "get_input") {
      return ffi::Function::FromTyped(
          [self](ffi::Any which) { return self->value(self->index_of(which)); });
    }
    if (name == "get_input_index") {
      return ffi::Function::FromTyped([self](ffi::String which) { return self->find(which); });
    }
    if (name == "get_num_inputs") {
      return ffi::Function::FromTyped([self]() { return (std::int64_t)self->inputs_.size(); });
    }
    if (name == "get_num_outputs") {
      return ffi::Function::FromTyped([self]() { return self->output_count_; });
    }
    return std::nullopt;
  }

 private:
  static ffi::Function function_of(const ffi::Module& module, const char* name) {
    return module->GetFunction(name).value();
  }

  std::int64_t find(const std::string& name) const {
    for (std::size_t index = 0; index < inputs_.size(); ++index) {
      if (inputs_[index].name == name) return static_cast<std::int64_t>(index);
    }
    return -1;
  }

  std::size_t index_of(const ffi::Any& which) const {
    const auto name = which.as<ffi::String>();
    const std::int64_t index = name ? find(*name) : which.cast<std::int64_t>();
    if (index < 0 || index >= static_cast<std::int64_t>(inputs_.size())) {
      TVM_FFI_THROW(ValueError) << "the library has no input "
                                << (name ? std::string(*name) : std::to_string(index));
    }
    return static_cast<std::size_t>(index);
  }

  void set_input(std::size_t index, ffi::TensorView given) {
    const TensorInfo& info = inputs_[index];
    bool fits = given.ndim() == static_cast<int>(info.shape.size());
    for (std::size_t axis = 0; fits && axis < info.shape.size(); ++axis) {
      fits = info.shape[axis] == kOpen || info.shape[axis] == given.size(axis);
    }
    if (!fits || given.dtype() != info.type) {
      TVM_FFI_THROW(ValueError) << "input " << info.name << " is of another shape or dtype";
    }
    values_[index] = ffi::Tensor::FromNDAlloc(HostMemory(), given.shape(), info.type, kHost);
    const ffi::Tensor own = *values_[index];
    copy(given, own);
  }

  /// An input's value, of zeros where none was set, as TVM's executor had it.
  ffi::Tensor value(std::size_t index) {
    const TensorInfo& info = inputs_[index];
    if (!values_[index].has_value()) {
      for (const std::int64_t extent : info.shape) {
        if (extent == kOpen) TVM_FFI_THROW(ValueError) << "input " << info.name << " is not set";
      }
      const ffi::Shape shape(info.shape.begin(), info.shape.end());
      values_[index] = ffi::Tensor::FromNDAlloc(HostMemory(), shape, info.type, kHost);
    }
    return *values_[index];
  }

  void run() {
    std::vector<ffi::Any> arguments;
    for (std::size_t index = 0; index < inputs_.size(); ++index) arguments.push_back(value(index));
    std::vector<ffi::AnyView> views(arguments.begin(), arguments.end());
    entry_.CallPacked(views.data(), static_cast<std::int32_t>(views.size()), &result_);
  }

  ffi::Tensor output(std::int64_t index) const {
    if (result_ == nullptr) TVM_FFI_THROW(ValueError) << "call run() first";
    if (index < 0 || index >= output_count_) {
      TVM_FFI_THROW(ValueError) << "the library has no output " << index;
    }
    if (const auto several = result_.as<ffi::Array<ffi::Any>>()) {
      return (*several)[index].cast<ffi::Tensor>();
    }
    return result_.cast<ffi::Tensor>();
  }

  ffi::Module library_;
  ffi::Optional<ffi::Module> machine_;
  ffi::Function entry_;
  std::vector<TensorInfo> inputs_;
  std::vector<ffi::Optional<ffi::Tensor>> values_;
  std::int64_t output_count_ = 0;
  ffi::Any result_;
};

ffi::Module make_executor(DLDevice device) {
  if (device.device_type != kDLCPU) TVM_FFI_THROW(ValueError) << "the library is for the CPU";
  auto* library = static_cast<ffi::ModuleObj*>(__tvm_ffi__library_ctx);
  ffi::Module kernels(ffi::GetObjectPtr<ffi::ModuleObj>(library));
  return ffi::Module(ffi::make_object<Executor>(kernels));
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(default, make_executor);
