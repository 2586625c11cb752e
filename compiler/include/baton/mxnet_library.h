/*!
 * \file baton/mxnet_library.h
 * \brief What stands behind mxnet/lib_api.h: its partitioners become those of baton/partitioner.h,
 * and further entry points call its operators and graph passes.
 */
#ifndef BATON_MXNET_LIBRARY_H_
#define BATON_MXNET_LIBRARY_H_

#include <atomic>
#include <mutex>

/*! \brief The version of MXNet that `initialize` is asked about. */
#define BATON_MXNET_VERSION 20000

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

// Partitioners.

class Selecting : public Selector {
 public:
  Selecting(std::unique_ptr<ext::Graph> graph, ext::CustomOpSelector* made)
      : graph_(std::move(graph)), made_(made) {}
  bool select(int64_t node) override { return made_->Select(node); }
  bool select_input(int64_t node, int64_t input) override { return made_->SelectInput(node, input); }
  bool select_output(int64_t node, int64_t output) override {
    return made_->SelectOutput(node, output);
  }
  std::vector<int64_t> filter(const std::vector<int64_t>& candidates) override {
    std::vector<int> keep;
    made_->Filter(std::vector<int>(candidates.begin(), candidates.end()), &keep);
    return std::vector<int64_t>(keep.begin(), keep.end());
  }
  void reset() override { made_->Reset(); }

 private:
  std::unique_ptr<ext::Graph> graph_;  // the selector may keep pointers into it
  std::unique_ptr<ext::CustomOpSelector> made_;
};

inline bool review(const ext::CustomPartitioner::Strategy& strategy, Review& given) {
  TensorMap args, aux;
  bool accept = false;
  AttrMap attrs;
  auto graph = graph_of(given.subgraph);
  const int id = static_cast<int>(given.id);
  const AttrMap options = plain(given.options);
  if (strategy.text_review) {
    args = tensors_of(given.args), aux = tensors_of(given.aux);
    require("reviewSubgraph", [&] {
      return strategy.text_review(graph->toString(), id, &accept, options, &attrs, args, aux);
    });
  } else {
    for (const Node& node : given.subgraph.nodes) {
      const std::string name = node.attr("argName");
      for (auto [known, values] : {std::pair(&given.args, &args), std::pair(&given.aux, &aux)}) {
        if (known->count(name)) values->emplace(name, tensor_of(known->at(name)));
      }
    }
    graph->_setParams(&args, &aux);
    require("reviewSubgraph", [&] {
      return strategy.review(graph.get(), id, &accept, options, &attrs);
    });
  }
  given.attrs.insert(attrs.begin(), attrs.end());
  return accept;
}

inline Strategy strategy_of(const ext::CustomPartitioner::Strategy& from) {
  Strategy made(from.name, from.op);
  if (from.supported_ops) {
    made.supported_ops([&from](const Graph& graph, std::vector<int64_t>& ids, const Options& given) {
      std::vector<int> marks(ids.begin(), ids.end());
      auto whole = graph_of(graph);
      require("supportedOps", [&] { return from.supported_ops(whole.get(), &marks, plain(given)); });
      ids.assign(marks.begin(), marks.end());
    });
  } else {
    made.selector([&from](const Graph& graph, const Options& given) -> std::unique_ptr<Selector> {
      auto whole = graph_of(graph);
      ext::CustomOpSelector* selector = nullptr;
      require("createSelector",
              [&] { return from.create_selector(whole.get(), &selector, plain(given)); });
      if (!selector) throw std::runtime_error("createSelector made no selector");
      return std::make_unique<Selecting>(std::move(whole), selector);
    });
  }
  if (from.review || from.text_review) {
    made.review([&from](Review& given) { return review(from, given); });
  }
  return made;
}

// Operators.

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

inline void refuse_sparse(const ext::CustomOp& op, const AttrMap& attrs, size_t inputs,
                          size_t outputs) {
  if (!op.infer_storage_type) return;
  std::vector<int> in(inputs, ext::kDefaultStorage), out(outputs, ext::kDefaultStorage);
  require("inferSType of dense arrays, and Baton has no sparse ones,",
          [&] { return op.infer_storage_type(attrs, &in, &out); });
  for (const auto& each : {in, out}) {
    if (std::any_of(each.begin(), each.end(), [](int kind) { return kind != 0; })) {
      throw std::runtime_error("it takes or makes sparse arrays; Baton has dense ones");
    }
  }
}

/*! \brief Shapes of inputs and outputs, types of outputs; an unknown input's shape is empty. */
inline Library::List types(int64_t index, const Library::Map& given, const NumberLists& in_shapes,
                           const Names& in_types, int64_t outputs) {
  const ext::CustomOp& op = op_at(index);
  const AttrMap attrs = plain(given);
  Shapes in = shapes_of(in_shapes), out(outputs);
  std::vector<int> from = types_of(in_types), to(outputs, -1);
  refuse_sparse(op, attrs, in.size(), out.size());
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

// Graph passes.

/*! \brief The graph that a pass makes, as JSON. `allocate` makes arrays of a name, shape, type. */
inline std::string run_pass(int64_t index, const std::string& text, const Library::Map& options,
                            const Library::Fetch& given_args, const Library::Fetch& given_aux,
                            const tvm::ffi::Function& allocate) {
  const ext::CustomPass& pass =
      ext::Registry<ext::CustomPass>::get()->get(static_cast<int>(index));
  TensorMap args = tensors_of(Tensors(given_args)), aux = tensors_of(Tensors(given_aux));
  ext::PassResource resource([&](const std::string& name, const std::vector<int64_t>& shape,
                                 const ext::MXContext& ctx, ext::MXDType type, bool is_aux) {
    if (ctx.dev_type != "cpu") {
      throw std::runtime_error("a pass allocates " + name + " on " + ctx.dev_type + ", not the CPU");
    }
    tvm::ffi::Any made = allocate(tvm::ffi::String(name), numbers(shape), name_of(type), is_aux);
    return tensor_of(Tensor(made.cast<tvm::ffi::Tensor>()));
  });
  if (pass.text_pass) {
    const std::string* result = nullptr;
    require("the pass", [&] {
      return pass.text_pass(text, &result, plain(options), args, aux, resource);
    });
    if (!result) throw std::runtime_error("the pass made no graph");
    std::unique_ptr<const std::string> owned(result == &text ? nullptr : result);
    return *result;
  }
  std::unique_ptr<ext::Graph> graph(ext::Graph::fromString(text));
  graph->_setParams(&args, &aux);
  graph->_setPassResource(&resource);
  require("the pass", [&] { return pass.pass(graph.get(), plain(options)); });
  return graph->toString();
}

// The library.

inline std::string problem_of(const ext::CustomOp& op) {
  if (!op.problem.empty()) return op.problem;
  if (op.forward.empty() && op.create_state.empty()) return "it has no forward and no state";
  if (op.isSGop) return op.create_state.empty() ? "an operator of subgraphs needs a state" : "";
  if (!op.parse_attrs) return "setParseAttrs is missing";
  if (!op.infer_shape) return "setInferShape is missing";
  return op.infer_type ? "" : "setInferType is missing";
}

inline std::string problem_of(const ext::CustomPass& pass) {
  return pass.pass || pass.text_pass ? "" : "setBody is missing";
}

inline std::string problem_of(const ext::CustomPartitioner& partitioner) {
  if (!partitioner.problem.empty()) return partitioner.problem;
  if (partitioner.strategies.empty()) return "it has no strategy";
  for (const auto& each : partitioner.strategies) {
    if (!each.supported_ops && !each.create_selector) {
      return "strategy " + each.name + " needs setSupportedOps or setCreateSelector";
    }
  }
  return "";
}

template <typename Entry>
void check(const char* what) {
  auto* registry = ext::Registry<Entry>::get();
  for (int i = 0; i < registry->size(); ++i) {
    std::string problem = problem_of(registry->get(i));
    if (problem.empty()) continue;
    throw std::runtime_error(std::string(what) + " " + registry->get(i).name + ": " + problem);
  }
}

/*! \brief Asks the library whether it works here; returns why it does not, or "". */
inline std::string start(int64_t) {
  try {
    require("initialize(" + std::to_string(BATON_MXNET_VERSION) + ")",
            [] { return initialize(BATON_MXNET_VERSION); });
    check<ext::CustomOp>("operator");
    check<ext::CustomPass>("pass");
    check<ext::CustomPartitioner>("partitioner");
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "initialize throws an exception that is not a std::exception";
  }
  Library::get().partitioners.clear();  // of an earlier load
  auto* registry = ext::Registry<ext::CustomPartitioner>::get();
  for (int i = 0; i < registry->size(); ++i) {
    Partitioner& made = Library::get().add(registry->get(i).name);
    for (const auto& each : registry->get(i).strategies) made.add(strategy_of(each));
    run_claimed(registry->get(i), &made);
  }
  return "";
}

/*! \brief Per operator its name, whether it runs subgraphs and whether it has a state; names of
 *  the passes. */
inline Library::List describe() {
  Library::List operators, passes;
  auto* ops = ext::Registry<ext::CustomOp>::get();
  for (int i = 0; i < ops->size(); ++i) {
    const ext::CustomOp& op = ops->get(i);
    operators.push_back(
        Library::List{tvm::ffi::String(op.name), op.isSGop, !op.create_state.empty()});
  }
  auto* all = ext::Registry<ext::CustomPass>::get();
  for (int i = 0; i < all->size(); ++i) passes.push_back(tvm::ffi::String(all->get(i).name));
  return Library::List{operators, passes};
}

[[maybe_unused]] static const bool has_start = (Library::get().initialize = start, true);

}  // namespace mxnet_library
}  // namespace baton

BATON_ENTRY(mxnet_describe, (::baton::mxnet_library::describe))
BATON_ENTRY(mxnet_counts, (::baton::mxnet_library::counts))
BATON_ENTRY(mxnet_mutated, (::baton::mxnet_library::mutated))
BATON_ENTRY(mxnet_types, (::baton::mxnet_library::types))
BATON_ENTRY(mxnet_engine, (::baton::mxnet_library::engine))
BATON_ENTRY(mxnet_pass, (::baton::mxnet_library::run_pass))

#endif  // BATON_MXNET_LIBRARY_H_
