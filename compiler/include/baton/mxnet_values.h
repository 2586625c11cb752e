/*!
 * \file baton/mxnet_values.h
 * \brief Tensors, types, graphs and errors on their way between Baton and mxnet/lib_api.h.
 */
#ifndef BATON_MXNET_VALUES_H_
#define BATON_MXNET_VALUES_H_

#include <atomic>

namespace baton {
namespace mxnet_library {

namespace ext = ::mxnet::ext;
using ext::AttrMap;
using ext::MXTensor;
using ext::Shapes;
using ext::TensorMap;
using Numbers = tvm::ffi::Array<int64_t>;
using NumberLists = tvm::ffi::Array<Numbers>;

/*! \brief Calls a function of the library; MX_FAIL becomes an error with what it said. */
template <typename Call>
void require(const std::string& what, Call call) {
  ext::MXerrorMsgs::get()->take();
  if (call() != ext::MX_FAIL) return;
  std::string said = ext::MXerrorMsgs::get()->take();
  throw std::runtime_error(what + " returned MX_FAIL" + (said.empty() ? "" : ": " + said));
}

using Names = tvm::ffi::Array<tvm::ffi::String>;

inline ext::MXDType type_of(const DLDataType& dtype) {
  const auto& types = MXTensor::dlpackTypes();
  for (size_t code = 0; code < types.size(); ++code) {
    if (types[code].code == dtype.code && types[code].bits == dtype.bits) {
      return static_cast<ext::MXDType>(code);
    }
  }
  throw std::runtime_error("MXNet has no type for " +
                           std::string(tvm::ffi::DLDataTypeToString(dtype)));
}

inline std::vector<int> types_of(const Names& names) {
  std::vector<int> types;
  for (const auto& name : names) types.push_back(type_of(tvm::ffi::StringToDLDataType(name)));
  return types;
}

/*! \brief Name of a type; "" of one that was left open. */
inline tvm::ffi::String name_of(int type) {
  const DLDataType found = MXTensor::dlpackType(type);
  return found.bits == 0 ? "" : std::string(tvm::ffi::DLDataTypeToString(found));
}

/*! \brief The tensor under a number that no other has had. */
inline MXTensor tensor_of(const Tensor& tensor) {
  static std::atomic<size_t> version{1};
  const DLTensor* raw = tensor.dlpack();
  return MXTensor(static_cast<char*>(raw->data) + raw->byte_offset, tensor.shape(),
                  type_of(raw->dtype), version++, ext::MXContext::CPU());
}

inline TensorMap tensors_of(const Tensors& tensors) {
  TensorMap found;
  for (const auto& [name, value] : tensors) found.emplace(name, tensor_of(value));
  return found;
}

template <typename Items>
Numbers numbers(const Items& items) {
  std::vector<int64_t> wide(items.begin(), items.end());
  return Numbers(wide.begin(), wide.end());
}

template <typename Map>
AttrMap plain(const Map& map) {
  AttrMap found;
  for (const auto& [key, value] : map) found[std::string(key)] = std::string(value);
  return found;
}

inline std::unique_ptr<ext::Graph> graph_of(const Graph& graph) {
  auto made = std::make_unique<ext::Graph>();
  for (const Node& each : graph.nodes) {
    ext::Node* node = made->addNode(each.name, each.op);
    node->attrs = plain(each.attrs);
    if (each.is_variable()) made->inputs.push_back(node);
    for (const Entry& input : each.inputs) {
      made->connect(node, {made->getNode(input.node), static_cast<int>(input.output)});
    }
    for (const Graph& body : each.subgraphs) node->subgraphs.push_back(graph_of(body).release());
  }
  for (const Entry& head : graph.heads) {
    made->outputs.push_back({made->getNode(head.node), static_cast<int>(head.output)});
  }
  return made;
}

}  // namespace mxnet_library
}  // namespace baton

#endif  // BATON_MXNET_VALUES_H_
