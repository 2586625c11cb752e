#include "baton/runtime.h"

#include <sched.h>
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/json.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "library_file.h"

namespace ffi = tvm::ffi;

namespace baton {
namespace {

constexpr std::size_t kAlignment = 64;      // bytes at which kernels expect tensors to begin
constexpr std::int64_t kFormat = 1;         // of the metadata
constexpr std::int64_t kUnknownExtent = -1;
constexpr int kPooledAllocator = 2;         // TVM's number of it
// TVM's mode in which a thread may run on any of the given CPUs; its other modes bind the first
// thread of each pool to the first CPU, which the pools of all threads would share.
constexpr std::int64_t kShareCpus = -3;
constexpr int kMaxThreads = 1024;  // as in compiler/runtime/thread_pool.py

// LLVM's name of each CPU feature that Linux lists, and Linux's; from compiler/runtime/cpu.py.
constexpr const char* kCpuFlags[][2] = {
#include "cpu_flags.inc"
};

struct TensorInfo {
  std::string name, dtype;
  std::vector<std::int64_t> shape;       // kUnknownExtent where running tells
  std::vector<std::string> symbols;      // "" where the extent is known
  std::uint64_t offset = 0;  // of a weight, from the first one
  DLDataType type{};
  std::uint64_t nbytes = 0;  // 0 where an extent is unknown
};

[[noreturn]] void corrupt(const std::string& why) {
  throw std::runtime_error("the library's metadata are corrupt: " + why +
                           "; export the model again");
}

template <typename T>
T field(const ffi::json::Object& object, const char* name) {
  const auto found = object.find(ffi::String(name));
  if (found == object.end()) corrupt(std::string(name) + " is missing");
  auto value = (*found).second.template try_cast<T>();
  if (!value) corrupt(std::string(name) + " is of another type");
  return *std::move(value);
}

std::optional<std::int64_t> number(const ffi::Any& value) {
  const auto found = value.try_cast<std::int64_t>();
  return found ? std::optional<std::int64_t>(*found) : std::nullopt;
}

TensorInfo read_tensor(const ffi::Any& item, bool is_output, bool is_weight) {
  const auto object = item.try_cast<ffi::json::Object>();
  if (!object) corrupt("a tensor has no description");
  TensorInfo info;
  info.name = field<ffi::String>(*object, "name");
  info.dtype = field<ffi::String>(*object, "dtype");
  info.type = ffi::StringToDLDataType(info.dtype);
  std::uint64_t count = 1;
  bool known = true;
  for (const ffi::Any& extent : field<ffi::json::Array>(*object, "shape")) {
    const auto symbol = extent.try_cast<ffi::String>();
    const auto value = symbol ? std::optional<std::int64_t>(kUnknownExtent) : number(extent);
    const bool may_be_unknown = is_output || (symbol && !is_weight);
    if (!value || *value < (may_be_unknown ? kUnknownExtent : 0)) {
      corrupt(info.name + " has no shape");
    }
    info.shape.push_back(*value);
    info.symbols.push_back(symbol ? std::string(*symbol) : std::string());
    known = known && *value >= 0;
    if (known && __builtin_mul_overflow(count, static_cast<std::uint64_t>(*value), &count)) {
      corrupt(info.name + " is too large");
    }
  }
  if (known && __builtin_mul_overflow(count, (info.type.bits * info.type.lanes + 7) / 8u,
                                      &info.nbytes)) {
    corrupt(info.name + " is too large");
  }
  if (is_weight) {
    const std::int64_t offset = field<std::int64_t>(*object, "offset");
    if (offset < 0 || offset % static_cast<std::int64_t>(kAlignment) != 0) {
      corrupt(info.name + " lies at no offset");
    }
    info.offset = static_cast<std::uint64_t>(offset);
  }
  return info;
}

std::vector<TensorInfo> read_tensors(const ffi::json::Object& document, const char* name) {
  std::vector<TensorInfo> found;
  for (const ffi::Any& item : field<ffi::json::Array>(document, name)) {
    found.push_back(read_tensor(item, std::strcmp(name, "outputs") == 0,
                                std::strcmp(name, "params") == 0));
  }
  return found;
}

/// Flags that every processor of this machine has; empty where Linux does not say.
std::unordered_set<std::string> cpu_flags() {
  std::ifstream file("/proc/cpuinfo");
  std::unordered_set<std::string> common;
  bool first = true;
  for (std::string line; std::getline(file, line);) {
    if (line.compare(0, 5, "flags") != 0) continue;
    std::istringstream words(line.substr(line.find(':') + 1));
    std::unordered_set<std::string> flags{std::istream_iterator<std::string>(words), {}};
    if (first) {
      common = std::move(flags);
      first = false;
      continue;
    }
    for (auto it = common.begin(); it != common.end();) {
      it = flags.count(*it) ? std::next(it) : common.erase(it);
    }
  }
  return common;
}

void require_features(const ffi::json::Object& document) {
  static const auto flags = cpu_flags();
  if (flags.empty()) return;
  std::unordered_set<std::string> required;
  for (const ffi::Any& item : field<ffi::json::Array>(document, "cpu_features")) {
    if (const auto name = item.try_cast<ffi::String>()) required.insert(*name);
  }
  std::string missing;
  for (const auto& [feature, flag] : kCpuFlags) {
    if (required.count(feature) && !flags.count(flag)) missing += std::string(" ") + feature;
  }
  if (!missing.empty()) {
    throw std::runtime_error("the library's code uses CPU features that this machine lacks:" +
                             missing + "; build it for this CPU");
  }
}

/// Memory of this process behind a tensor: `owner` goes with the last reference to it.
ffi::Tensor tensor_over(void* data, const TensorInfo& info,
                        const std::vector<std::int64_t>& shape, std::shared_ptr<void> owner) {
  struct Owned {
    std::shared_ptr<void> owner;
    std::vector<std::int64_t> shape, strides;
    DLManagedTensor managed{};
  };
  auto owned = std::make_unique<Owned>();
  owned->owner = std::move(owner);
  owned->shape = shape;
  owned->strides.resize(shape.size());
  std::int64_t step = 1;
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    owned->strides[axis] = step;
    step *= shape[axis];
  }
  DLTensor& tensor = owned->managed.dl_tensor;
  tensor.data = data;
  tensor.device = {kDLCPU, 0};
  tensor.ndim = static_cast<std::int32_t>(shape.size());
  tensor.dtype = info.type;
  tensor.shape = owned->shape.data();
  tensor.strides = owned->strides.data();
  tensor.byte_offset = 0;
  owned->managed.manager_ctx = owned.get();
  owned->managed.deleter = [](DLManagedTensor* self) {
    delete static_cast<Owned*>(self->manager_ctx);
  };
  return ffi::Tensor::FromDLPack(&owned.release()->managed);
}

std::shared_ptr<void> aligned_zeros(std::uint64_t nbytes) {
  const std::size_t size = (nbytes + kAlignment) / kAlignment * kAlignment;
  void* memory = std::aligned_alloc(kAlignment, size);
  if (memory == nullptr) throw std::bad_alloc();
  std::memset(memory, 0, size);
  return {memory, std::free};
}

ffi::Function function_of(const ffi::Module& module, const char* name) {
  auto found = module->GetFunction(name, true);
  if (!found) throw std::runtime_error(std::string("the library has no function ") + name);
  return *found;
}

thread_local std::string last_error;

template <typename Work>
int guarded(Work work) {
  try {
    work();
    return 0;
  } catch (const ffi::Error& error) {
    last_error = std::string(error.kind()) + ": " + std::string(error.message());
  } catch (const std::exception& error) {
    last_error = error.what();
  } catch (...) {
    last_error = "an exception that is not derived from std::exception";
  }
  if (last_error.empty()) last_error = "an error without a message";
  return 1;
}

/// The CPUs on which the calling thread may run, as TVM wants them.
ffi::Array<ffi::String> own_cpus() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  ffi::Array<ffi::String> cpus;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &allowed)) cpus.push_back(std::to_string(cpu));
  }
  return cpus;
}

}  // namespace
}  // namespace baton

/// What sessions share.
struct Code {
  std::string metadata;
  std::vector<baton::TensorInfo> inputs, outputs, params;
  std::vector<baton_tensor_info> input_infos, output_infos;
  std::unordered_map<std::string, std::int64_t> bounds;  // the largest extents of symbols
  std::optional<ffi::Module> module;
  std::vector<ffi::Tensor> weights;

  explicit Code(const char* path) {
    const baton::LibraryFile file = baton::open_library(path);
    metadata = file.metadata;
    ffi::String problem;
    const ffi::Any parsed = ffi::json::Parse(metadata, &problem);
    const auto document = parsed.try_cast<ffi::json::Object>();
    if (!document) baton::corrupt("they are not a JSON object");
    if (baton::field<std::int64_t>(*document, "format") != baton::kFormat) {
      throw std::runtime_error(std::string(path) + " was exported by another version of Baton");
    }
    for (const ffi::Any& device : baton::field<ffi::json::Array>(*document, "devices")) {
      const auto kind = device.try_cast<ffi::String>();
      if (!kind || *kind != "cpu") {
        throw std::runtime_error(std::string(path) + " is not for the CPU alone; load it in Python");
      }
    }
    baton::require_features(*document);
    inputs = baton::read_tensors(*document, "inputs");
    outputs = baton::read_tensors(*document, "outputs");
    params = baton::read_tensors(*document, "params");
    if (document->count(ffi::String("bounds"))) {
      for (const auto& [name, most] : baton::field<ffi::json::Object>(*document, "bounds")) {
        const auto symbol = name.try_cast<ffi::String>();
        const auto value = baton::number(most);
        if (!symbol || !value) baton::corrupt("a bound is not a number");
        bounds[*symbol] = *value;
      }
    }
    describe(inputs, &input_infos);
    describe(outputs, &output_infos);
    unsigned char* start = file.file->data() + file.weights_offset;
    for (const baton::TensorInfo& info : params) {
      if (info.offset > file.weights_nbytes || info.nbytes > file.weights_nbytes - info.offset) {
        throw std::runtime_error(std::string(path) + " holds no weight " + info.name +
                                 "; export the library with its weights");
      }
      weights.push_back(baton::tensor_over(start + info.offset, info, info.shape, file.file));
    }
    // Module::LoadFromFile needs a suffix, which paths of descriptors lack.
    const auto load = ffi::Function::GetGlobalRequired("ffi.Module.load_from_file.so");
    module = load(file.file->path_for_loader(), "so").cast<ffi::Module>();
    file.file->close();
  }

 private:
  static void describe(const std::vector<baton::TensorInfo>& from,
                       std::vector<baton_tensor_info>* to) {
    for (const baton::TensorInfo& info : from) {
      to->push_back({info.name.c_str(), info.dtype.c_str(),
                     static_cast<std::int32_t>(info.shape.size()), info.shape.data()});
    }
  }
};

struct baton_library {
  std::shared_ptr<const Code> code;
};

struct baton_session {
  std::shared_ptr<const Code> code;  // first: its code outlives what runs it
  std::int64_t num_threads;
  ffi::Function configure_threads, entry;
  std::optional<ffi::Module> machine;
  std::vector<std::shared_ptr<void>> memory;
  std::vector<std::uint64_t> nbytes;
  std::vector<std::vector<std::int64_t>> shapes;
  std::vector<std::optional<ffi::Tensor>> inputs;  // none before an open shape is given
  std::vector<ffi::Tensor> outputs;
  std::vector<std::string> output_dtypes;

  baton_session(std::shared_ptr<const Code> of, int threads)
      : code(std::move(of)), num_threads(threads) {
    if (threads < 0 || threads > baton::kMaxThreads) {
      throw std::runtime_error("num_threads must be from 0 to " +
                               std::to_string(baton::kMaxThreads) + ", not " +
                               std::to_string(threads));
    }
    configure_threads = ffi::Function::GetGlobalRequired("runtime.config_threadpool");
    machine = baton::function_of(*code->module, "vm_load_executable")().cast<ffi::Module>();
    const int cpu = static_cast<int>(kDLCPU);
    baton::function_of(*machine, "vm_initialization")(cpu, 0, baton::kPooledAllocator);
    const bool is_static = (*code->module)->ImplementsFunction("main_static", true);
    std::vector<ffi::Any> arguments = {ffi::String(is_static ? "main_static" : "main"),
                                       ffi::String("entry"), true};
    for (const ffi::Tensor& weight : code->weights) arguments.push_back(weight);
    if (is_static) {
      const ffi::Any kept = baton::function_of(*machine, "workspace")();
      for (const ffi::Any& each : kept.cast<ffi::Array<ffi::Any>>()) arguments.push_back(each);
    }
    std::vector<ffi::AnyView> views(arguments.begin(), arguments.end());
    ffi::Any nothing;
    baton::function_of(*machine, "save_function")
        .CallPacked(views.data(), static_cast<std::int32_t>(views.size()), &nothing);
    entry = baton::function_of(*machine, "entry");
    const std::size_t count = code->inputs.size();
    memory.resize(count);
    nbytes.resize(count);
    shapes.resize(count);
    inputs.resize(count);
    for (std::size_t index = 0; index < count; ++index) {
      const auto& shape = code->inputs[index].shape;
      const bool is_open = std::count(shape.begin(), shape.end(), baton::kUnknownExtent) > 0;
      if (!is_open) reshape(index, shape);
    }
  }

  /// Give an input the extents of its next values.
  void reshape(std::size_t index, const std::vector<std::int64_t>& shape) {
    const baton::TensorInfo& info = code->inputs[index];
    std::uint64_t size = (info.type.bits * info.type.lanes + 7) / 8u;
    for (std::size_t axis = 0; axis < shape.size(); ++axis) {
      const std::string& symbol = info.symbols[axis];
      const auto bound = code->bounds.find(symbol);
      std::string expected;
      if (symbol.empty() && shape[axis] != info.shape[axis]) {
        expected = std::to_string(info.shape[axis]);
      } else if (!symbol.empty() && bound != code->bounds.end() && shape[axis] > bound->second) {
        expected = "at most " + std::to_string(bound->second) + ": it is " + symbol;
      } else if (shape[axis] < 0 ||
                 __builtin_mul_overflow(size, static_cast<std::uint64_t>(shape[axis]), &size)) {
        expected = "one that memory can hold";
      }
      if (!expected.empty()) {
        throw std::runtime_error("input " + info.name + " has the extent " +
                                 std::to_string(shape[axis]) + " along axis " +
                                 std::to_string(axis) + ", expected " + expected);
      }
    }
    if (!memory[index] || size > nbytes[index]) memory[index] = baton::aligned_zeros(size);
    nbytes[index] = size;
    shapes[index] = shape;
    inputs[index] = baton::tensor_over(memory[index].get(), info, shape, memory[index]);
  }

  void bind(std::size_t index, void* data) {
    const baton::TensorInfo& info = code->inputs[at(index)];
    if (reinterpret_cast<std::uintptr_t>(data) % baton::kAlignment != 0) {
      throw std::runtime_error("the memory of input " + info.name +
                               " does not begin at a multiple of 64 bytes");
    }
    require_shape(index);
    std::shared_ptr<void> owner = data == nullptr ? memory[index] : nullptr;
    void* place = data == nullptr ? memory[index].get() : data;
    inputs[index] = baton::tensor_over(place, info, shapes[index], owner);
  }

  std::size_t at(std::size_t index) const {
    if (index >= inputs.size()) {
      throw std::runtime_error("there is no input " + std::to_string(index));
    }
    return index;
  }

  void require_shape(std::size_t index) const {
    if (!inputs[index]) {
      throw std::runtime_error("input " + code->inputs[index].name +
                               " has extents that running tells; give it a shape first");
    }
  }

  /// Raise where two inputs disagree on the extent of a symbol.
  void require_equal_symbols() const {
    std::unordered_map<std::string, std::int64_t> known;
    for (std::size_t index = 0; index < inputs.size(); ++index) {
      for (std::size_t axis = 0; axis < shapes[index].size(); ++axis) {
        const std::string& symbol = code->inputs[index].symbols[axis];
        if (symbol.empty()) continue;
        const auto [found, is_new] = known.emplace(symbol, shapes[index][axis]);
        if (!is_new && found->second != shapes[index][axis]) {
          throw std::runtime_error("input " + code->inputs[index].name + " has the extent " +
                                   std::to_string(shapes[index][axis]) + " along axis " +
                                   std::to_string(axis) + ", expected " +
                                   std::to_string(found->second) + ": it is " + symbol);
        }
      }
    }
  }

  void run() {
    // Workers belong to the thread that calls, which may be another one each time.
    thread_local std::int64_t configured = 0;
    if (num_threads > 0 && configured != num_threads) {
      configure_threads(baton::kShareCpus, num_threads, baton::own_cpus());
      configured = num_threads;
    }
    std::vector<ffi::AnyView> views;
    for (std::size_t index = 0; index < inputs.size(); ++index) {
      require_shape(index);
      views.emplace_back(*inputs[index]);
    }
    require_equal_symbols();
    ffi::Any result;
    entry.CallPacked(views.data(), static_cast<std::int32_t>(views.size()), &result);
    outputs.clear();
    if (auto one = result.try_cast<ffi::Tensor>()) {
      outputs.push_back(*one);
    } else {
      for (const ffi::Any& each : result.cast<ffi::Array<ffi::Any>>()) {
        outputs.push_back(each.cast<ffi::Tensor>());
      }
    }
    output_dtypes.clear();
    for (const ffi::Tensor& output : outputs) {
      output_dtypes.push_back(ffi::DLDataTypeToString(output.dtype()));
    }
  }

  void get(std::size_t index, baton_tensor* output) const {
    if (index >= outputs.size()) {
      throw std::runtime_error(outputs.empty() ? "the session has not run yet"
                                               : "there is no output " + std::to_string(index));
    }
    const DLTensor* tensor = outputs[index].GetDLTensorPtr();
    std::size_t count = 1;
    for (int axis = 0; axis < tensor->ndim; ++axis) {
      count *= static_cast<std::size_t>(tensor->shape[axis]);
    }
    *output = {static_cast<const char*>(tensor->data) + tensor->byte_offset,
               output_dtypes[index].c_str(), tensor->ndim, tensor->shape,
               (count * tensor->dtype.bits * tensor->dtype.lanes + 7) / 8};
  }
};

extern "C" {

const char* baton_last_error(void) { return baton::last_error.c_str(); }

int baton_library_load(const char* path, baton_library** library) {
  return baton::guarded([&] { *library = new baton_library{std::make_shared<Code>(path)}; });
}

void baton_library_destroy(baton_library* library) { delete library; }

size_t baton_library_num_inputs(const baton_library* library) {
  return library->code->inputs.size();
}

size_t baton_library_num_outputs(const baton_library* library) {
  return library->code->outputs.size();
}

const baton_tensor_info* baton_library_input(const baton_library* library, size_t index) {
  const auto& infos = library->code->input_infos;
  return index < infos.size() ? &infos[index] : nullptr;
}

const baton_tensor_info* baton_library_output(const baton_library* library, size_t index) {
  const auto& infos = library->code->output_infos;
  return index < infos.size() ? &infos[index] : nullptr;
}

int64_t baton_library_find_input(const baton_library* library, const char* name) {
  const auto& inputs = library->code->inputs;
  for (std::size_t index = 0; index < inputs.size(); ++index) {
    if (inputs[index].name == name) return static_cast<int64_t>(index);
  }
  return -1;
}

const char* baton_library_metadata(const baton_library* library) {
  return library->code->metadata.c_str();
}

int baton_session_create(const baton_library* library, int num_threads, baton_session** session) {
  return baton::guarded([&] { *session = new baton_session(library->code, num_threads); });
}

void baton_session_destroy(baton_session* session) { delete session; }

void* baton_session_input(baton_session* session, size_t index) {
  return index < session->memory.size() ? session->memory[index].get() : nullptr;
}

size_t baton_session_input_nbytes(const baton_session* session, size_t index) {
  return index < session->nbytes.size() ? session->nbytes[index] : 0;
}

int baton_session_set_input_shape(baton_session* session, size_t index, const int64_t* shape) {
  return baton::guarded([&] {
    const std::size_t rank = session->code->inputs[session->at(index)].shape.size();
    session->reshape(index, {shape, shape + rank});
  });
}

int baton_session_bind_input(baton_session* session, size_t index, void* data) {
  return baton::guarded([&] { session->bind(index, data); });
}

int baton_session_run(baton_session* session) {
  return baton::guarded([&] { session->run(); });
}

int baton_session_output(const baton_session* session, size_t index, baton_tensor* output) {
  return baton::guarded([&] { session->get(index, output); });
}

}  // extern "C"
