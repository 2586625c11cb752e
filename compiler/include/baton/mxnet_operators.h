/*!
 * \file baton/mxnet_operators.h
 * \brief What calls the operators of mxnet/lib_api.h.
 */
#ifndef BATON_MXNET_OPERATORS_H_
#define BATON_MXNET_OPERATORS_H_

#include <baton/mxnet_values.h>

#include <mutex>

namespace baton {
namespace mxnet_library {

inline const ext::CustomOp* op_named(const std::string& name) {
  auto* registry = ext::Registry<ext::CustomOp>::get();
  for (int i = 0; i < registry->size(); ++i) {
    if (registry->get(i).name == name) return &registry->get(i);
  }
  return nullptr;
}

inline ext::CustomOp& op_at(int64_t index) {
  return ext::Registry<ext::CustomOp>::get()->get(static_cast<int>(index));
}

inline Numbers counts(int64_t index, const Library::Map& attrs) {
  int inputs = 0, outputs = 0;
  require("parseAttrs", [&] { return op_at(index).parse_attrs(plain(attrs), &inputs, &outputs); });
  return Numbers{inputs, outputs};
}

inline Numbers mutated(int64_t index, const Library::Map& attrs) {
  std::vector<int> found;
  if (auto mutate = op_at(index).mutate_inputs) {
    require("mutateInputs", [&] { return mutate(plain(attrs), &found); });
  }
  return numbers(found);
}

inline Shapes shapes_of(const NumberLists& lists) {
  Shapes shapes;
  for (const Numbers& each : lists) shapes.emplace_back(each.begin(), each.end());
  return shapes;
}

inline NumberLists lists_of(const Shapes& shapes) {
  NumberLists lists;
  for (const auto& each : shapes) lists.push_back(numbers(each));
  return lists;
}

/*! \brief Why the operator does not run on dense arrays, or "". */
inline std::string sparse(int64_t index, const Library::Map& attrs, int64_t inputs,
                          int64_t outputs) {
  const auto infer = op_at(index).infer_storage_type;
  if (!infer) return "";
  std::vector<int> in(inputs, ext::kDefaultStorage), out(outputs, ext::kDefaultStorage);
  try {
    require("inferSType", [&] { return infer(plain(attrs), &in, &out); });
  } catch (const std::exception& error) {
    return error.what();
  }
  const bool is_dense = std::count(in.begin(), in.end(), ext::kDefaultStorage) == inputs &&
                        std::count(out.begin(), out.end(), ext::kDefaultStorage) == outputs;
  return is_dense ? "" : "inferSType takes or makes sparse ones";
}

/*! \brief Shapes of inputs and outputs, types of outputs; an unknown input's shape is empty. */
inline Library::List types(int64_t index, const Library::Map& given, const NumberLists& in_shapes,
                           const Names& in_types, int64_t outputs) {
  const ext::CustomOp& op = op_at(index);
  const AttrMap attrs = plain(given);
  Shapes in = shapes_of(in_shapes), out(outputs);
  std::vector<int> from = types_of(in_types), to(outputs, -1);
  require("inferShape", [&] { return op.infer_shape(attrs, &in, &out); });
  require("inferType", [&] { return op.infer_type(attrs, &from, &to); });
  Names names;
  for (int type : to) names.push_back(name_of(type));
  return Library::List{lists_of(in), lists_of(out), names};
}

/*! \brief One place of an operator in a model. */
class Operator : public Engine {
 public:
  Operator(const ext::CustomOp& op, AttrMap attrs, const Shapes& shapes,
           const std::vector<int>& types)
      : op_(op), attrs_(std::move(attrs)) {
    auto create = op.create_state.find("cpu");
    if (create == op.create_state.end()) {
      if (!op.forward.count("cpu")) throw std::runtime_error("it has no forward for the CPU");
      return;
    }
    ext::CustomStatefulOp* made = nullptr;
    require("createOpState", [&] {
      return create->second(attrs_, ext::MXContext::CPU(), shapes, types, &made);
    });
    if (!made) throw std::runtime_error("createOpState made no operator");
    state_.reset(made);
  }

  void run(const std::vector<Tensor>& inputs, const std::vector<Output>& outputs) override {
    std::vector<MXTensor> in, out;
    for (const Tensor& each : inputs) in.push_back(tensor_of(each));
    for (const Output& each : outputs) out.push_back(tensor_of(each));
    forward(&in, &out);
  }

  void forward(std::vector<MXTensor>* in, std::vector<MXTensor>* out) {
    const ext::OpResource resource;
    if (!state_) {
      require("forward", [&] { return op_.forward.at("cpu")(attrs_, in, out, resource); });
      return;
    }
    std::lock_guard<std::mutex> one_at_a_time(mutex_);
    require("Forward", [&] { return state_->Forward(in, out, resource); });
  }

 private:
  const ext::CustomOp& op_;
  AttrMap attrs_;
  std::unique_ptr<ext::CustomStatefulOp> state_;
  std::mutex mutex_;
};

/*! \brief An operator of subgraphs on what is claimed of a module: the subgraph as JSON, and the
 *  values of the variables that it does not get as inputs. */
class Claimed : public Engine {
 public:
  static std::string pack(const Compilation& given) {
    ext::JsonVal header(ext::MAP), params(ext::LIST);
    std::string content;
    const auto& inputs = given.inputs;
    for (size_t id = 0; id < given.subgraph.nodes.size(); ++id) {
      const Node& node = given.subgraph.nodes[id];
      if (!node.is_variable()) continue;
      auto input = std::find(inputs.begin(), inputs.end(), static_cast<int64_t>(id));
      ext::JsonVal param(ext::LIST);
      if (input != inputs.end()) {
        param.list.push_back(ext::JsonVal(static_cast<int>(input - inputs.begin())));
      } else {
        MXTensor value = tensor_of(given.params.at(node.name));
        const size_t bytes = value.size() * (value.dltensor.dtype.bits / 8);
        param.list.push_back(ext::JsonVal(-1));
        param.list.push_back(ext::JsonVal(value.dtype));
        for (int64_t extent : value.shape) {
          param.list.push_back(ext::JsonVal(static_cast<int>(extent)));
        }
        content.append(value.data<char>(), bytes);
      }
      params.list.push_back(std::move(param));
    }
    header.map[ext::JsonVal("params")] = std::move(params);
    header.map[ext::JsonVal("graph")] = ext::JsonVal(graph_of(given.subgraph)->toString());
    const std::string text = header.dump();
    return std::to_string(text.size()) + " " + text + content;
  }

  Claimed(const ext::CustomOp& op, const Code& code) : op_(op), attrs_(plain(code.attrs)) {
    const size_t start = code.bytes.find(' ') + 1;
    const size_t size = std::stoul(code.bytes);
    ext::JsonVal header = ext::JsonVal::parse(code.bytes.substr(start, size));
    const char* content = code.bytes.data() + start + size;
    for (const ext::JsonVal& each : header.map.at(ext::JsonVal("params")).list) {
      sources_.push_back(each.list.at(0).num);
      if (sources_.back() >= 0) continue;
      std::vector<int64_t> shape;
      for (size_t i = 2; i < each.list.size(); ++i) shape.push_back(each.list[i].num);
      MXTensor value(nullptr, shape, static_cast<ext::MXDType>(each.list.at(1).num), 1,
                     ext::MXContext::CPU());
      const size_t bytes = value.size() * (value.dltensor.dtype.bits / 8);
      value.data_ptr = memory_.emplace_back(new max_align_t[bytes / sizeof(max_align_t) + 1]).get();
      memcpy(value.data_ptr, content, bytes);
      value.setDLTensor();
      content += bytes;
      values_.push_back(value);
    }
    attrs_[MX_STR_SUBGRAPH_SYM_JSON] = header.map.at(ext::JsonVal("graph")).str;
  }

  void run(const std::vector<Tensor>& inputs, const std::vector<Output>& outputs) override {
    std::vector<MXTensor> given, made;
    size_t value = 0;
    for (int source : sources_) {
      given.push_back(source < 0 ? values_[value++] : tensor_of(inputs.at(source)));
    }
    for (const Output& each : outputs) made.push_back(tensor_of(each));
    std::call_once(is_made_, [&] {
      Shapes shapes;
      std::vector<int> types;
      for (const MXTensor& each : given) {
        shapes.emplace_back(each.shape.begin(), each.shape.end());
        types.push_back(each.dtype);
      }
      operator_ = std::make_unique<Operator>(op_, attrs_, shapes, types);
    });
    operator_->forward(&given, &made);
  }

 private:
  const ext::CustomOp& op_;
  AttrMap attrs_;
  std::vector<int> sources_;  // per variable of the subgraph the input, or -1 for a value
  std::vector<MXTensor> values_;
  std::vector<std::unique_ptr<max_align_t[]>> memory_;
  std::once_flag is_made_;
  std::unique_ptr<Operator> operator_;
};

/*! \brief Lets the library's operator of subgraphs run what is claimed of a module. Of a symbol its
 *  node does, without this; a module has no node that says which of several operators. */
inline void run_claimed(const ext::CustomPartitioner& from, Partitioner* made) {
  const ext::CustomOp* op = op_named(from.strategies[0].op);
  if (!op || !op->isSGop) return;
  const bool is_one = std::all_of(from.strategies.begin(), from.strategies.end(),
                                  [&](const auto& each) { return each.op == op->name; });
  made->compile(
      [is_one](const Compilation& given) {
        if (is_one) return Claimed::pack(given);
        throw std::runtime_error("its strategies have several subgraph operators; use a symbol");
      },
      [op](const Code& code) { return std::make_unique<Claimed>(*op, code); });
}

inline tvm::ffi::Function engine(int64_t index, const Library::Map& attrs,
                                 const NumberLists& shapes, const Names& types) {
  using Tensors = tvm::ffi::Array<tvm::ffi::Tensor>;
  auto made = std::make_shared<Operator>(op_at(index), plain(attrs), shapes_of(shapes),
                                         types_of(types));
  return tvm::ffi::Function::FromTyped([made](const Tensors& inputs, const Tensors& outputs) {
    guarded([&] {
      made->run(std::vector<Tensor>(inputs.begin(), inputs.end()),
                std::vector<Output>(outputs.begin(), outputs.end()));
    });
  });
}

}  // namespace mxnet_library
}  // namespace baton

#endif  // BATON_MXNET_OPERATORS_H_
