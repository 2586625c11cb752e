// Libraries that Baton exported, in C++17: `runtime.h` with owners and exceptions.
//
//     baton::Session session(baton::Library("resnet18.so"), /*num_threads=*/2);
//     std::copy(image.begin(), image.end(), session.input<float>("data").begin());
//     session.run();
//     for (float score : session.output<float>(0)) ...
#ifndef BATON_RUNTIME_HPP_
#define BATON_RUNTIME_HPP_

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "runtime.h"

namespace baton {

/// What every function of this header throws; the message is that of `baton_last_error`.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Elements that belong to somebody else.
template <typename T>
class Span {
 public:
  Span(T* data, std::size_t size) : data_(data), size_(size) {}
  T* data() const { return data_; }
  std::size_t size() const { return size_; }
  T* begin() const { return data_; }
  T* end() const { return data_ + size_; }
  T& operator[](std::size_t index) const { return data_[index]; }

 private:
  T* data_;
  std::size_t size_;
};

/// Name, dtype and shape of an input or output.
struct TensorInfo {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> shape;
};

namespace detail {

inline void require(int status) {
  if (status != 0) throw Error(baton_last_error());
}

inline TensorInfo info(const baton_tensor_info& tensor) {
  return {tensor.name, tensor.dtype, {tensor.shape, tensor.shape + tensor.ndim}};
}

/// TVM's name of a C++ type.
template <typename T>
const char* dtype();
template <> inline const char* dtype<float>() { return "float32"; }
template <> inline const char* dtype<double>() { return "float64"; }
template <> inline const char* dtype<std::int8_t>() { return "int8"; }
template <> inline const char* dtype<std::int16_t>() { return "int16"; }
template <> inline const char* dtype<std::int32_t>() { return "int32"; }
template <> inline const char* dtype<std::int64_t>() { return "int64"; }
template <> inline const char* dtype<std::uint8_t>() { return "uint8"; }
template <> inline const char* dtype<std::uint16_t>() { return "uint16"; }
template <> inline const char* dtype<std::uint32_t>() { return "uint32"; }
template <> inline const char* dtype<std::uint64_t>() { return "uint64"; }
template <> inline const char* dtype<bool>() { return "bool"; }

template <typename T>
void require_dtype(const std::string& name, const char* actual) {
  if (std::string(actual) != dtype<T>()) {
    throw Error(name + " is " + actual + ", not " + dtype<T>());
  }
}

}  // namespace detail

/// A loaded library; copies share it.
class Library {
 public:
  /// Throws Error if the file is not a whole library for this CPU.
  explicit Library(const std::string& path) {
    baton_library* made = nullptr;
    detail::require(baton_library_load(path.c_str(), &made));
    handle_.reset(made, baton_library_destroy);
  }

  std::vector<TensorInfo> inputs() const {
    std::vector<TensorInfo> found;
    for (std::size_t i = 0; i < baton_library_num_inputs(get()); ++i) {
      found.push_back(detail::info(*baton_library_input(get(), i)));
    }
    return found;
  }

  std::vector<TensorInfo> outputs() const {
    std::vector<TensorInfo> found;
    for (std::size_t i = 0; i < baton_library_num_outputs(get()); ++i) {
      found.push_back(detail::info(*baton_library_output(get(), i)));
    }
    return found;
  }

  /// The metadata as JSON.
  std::string metadata() const { return baton_library_metadata(get()); }

  const baton_library* get() const { return handle_.get(); }

 private:
  std::shared_ptr<baton_library> handle_;
};

/// Runs a library; one thread at a time may use it.
class Session {
 public:
  /// `num_threads` threads work on a run; 0 means TVM_NUM_THREADS, else all cores.
  explicit Session(Library library, int num_threads = 0) : library_(std::move(library)) {
    baton_session* made = nullptr;
    detail::require(baton_session_create(library_.get(), num_threads, &made));
    handle_.reset(made);
  }

  const Library& library() const { return library_; }

  /// Give an input with extents of -1 the shape of its next values.
  void set_input_shape(std::size_t index, const std::vector<std::int64_t>& shape) {
    const baton_tensor_info* info = baton_library_input(library_.get(), index);
    if (info == nullptr || static_cast<std::size_t>(info->ndim) != shape.size()) {
      throw Error("input " + std::to_string(index) + " does not exist or has another rank");
    }
    detail::require(baton_session_set_input_shape(handle_.get(), index, shape.data()));
  }

  /// Memory of an input of dtype T, to be filled before a run.
  template <typename T>
  Span<T> input(std::size_t index) {
    const baton_tensor_info* info = baton_library_input(library_.get(), index);
    if (info == nullptr) throw Error("there is no input " + std::to_string(index));
    detail::require_dtype<T>(std::string("input ") + info->name, info->dtype);
    return {static_cast<T*>(baton_session_input(handle_.get(), index)),
            baton_session_input_nbytes(handle_.get(), index) / sizeof(T)};
  }

  template <typename T>
  Span<T> input(const std::string& name) {
    const std::int64_t index = baton_library_find_input(library_.get(), name.c_str());
    if (index < 0) throw Error("there is no input '" + name + "'");
    return input<T>(static_cast<std::size_t>(index));
  }

  void run() { detail::require(baton_session_run(handle_.get())); }

  /// A result of dtype T; valid until the next run.
  template <typename T>
  Span<const T> output(std::size_t index) const {
    const baton_tensor tensor = raw_output(index);
    detail::require_dtype<T>("output " + std::to_string(index), tensor.dtype);
    return {static_cast<const T*>(tensor.data), tensor.nbytes / sizeof(T)};
  }

  /// Extents of a result, known after a run.
  std::vector<std::int64_t> output_shape(std::size_t index) const {
    const baton_tensor tensor = raw_output(index);
    return {tensor.shape, tensor.shape + tensor.ndim};
  }

 private:
  struct Destroy {
    void operator()(baton_session* session) const { baton_session_destroy(session); }
  };

  baton_tensor raw_output(std::size_t index) const {
    baton_tensor tensor;
    detail::require(baton_session_output(handle_.get(), index, &tensor));
    return tensor;
  }

  Library library_;
  std::unique_ptr<baton_session, Destroy> handle_;
};

}  // namespace baton

#endif  // BATON_RUNTIME_HPP_
