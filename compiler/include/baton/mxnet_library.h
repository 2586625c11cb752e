/*!
 * \file baton/mxnet_library.h
 * \brief The function through which Baton calls a library of mxnet/lib_api.h.
 *
 * A request is the JSON text of a list: a name of `handlers`, then its arguments. Arrays are numbers
 * of the tensors that come with the request. The reply is the JSON text of a list: true and the
 * result, or false and an error's message.
 */
#ifndef BATON_MXNET_LIBRARY_H_
#define BATON_MXNET_LIBRARY_H_

#include <atomic>
#include <mutex>

/*! \brief The version of MXNet that `initialize` is asked about. */
#define BATON_MXNET_VERSION 20000
#define BATON_MXNET_VERSION_TEXT "20000"
/*! \brief Version of the requests; the library and Baton must have the same. */
#define BATON_MXNET_ABI_VERSION 1

/*! \brief An array of the caller: its elements, valid during the request, and MXNet's type code. */
struct BatonMxnetTensor {
  void* data;
  int64_t* shape;
  int32_t ndim;
  int32_t dtype;
};

MX_QUICKLY_COMPILED
#pragma GCC visibility push(hidden)
namespace baton {
namespace mxnet_library {

using namespace ::mxnet::ext;  // NOLINT

/*! rief Raises an error for MX_FAIL, with what the function said. */
inline void require(const char* what, MXReturnValue done) {
  const std::string said = MXerrorMsgs::get()->take();
  if (done != MX_FAIL) return;
  throw std::runtime_error(std::string(what) + " returned MX_FAIL" +
                           (said.empty() ? "" : ": " + said));
}

/*! \brief The arguments of a request. */
class Request {
 public:
  Request(const std::string& text, const BatonMxnetTensor* tensors, MXMemory* memory)
      : value_(JsonVal::parse(text)), tensors_(tensors), memory_(memory) {}

  /*! \brief Memory that lives until the reply was read. */
  void* allocate(size_t bytes) const { return memory_->allocate(bytes); }

  const JsonVal& at(size_t index) const { return value_.list.at(index); }
  const std::string& text(size_t index) const { return at(index).str; }
  int number(size_t index) const { return at(index).num; }
  AttrMap options(size_t index) const {
    AttrMap found;
    for (const auto& each : at(index).map) found[each.first.str] = each.second.str;
    return found;
  }
  Tensors tensors(size_t index) const {
    Tensors found;
    for (const JsonVal& each : at(index).list) found.push_back(tensor(each));
    return found;
  }
  TensorMap named(size_t index) const {
    TensorMap found;
    for (const auto& each : at(index).map) found[each.first.str] = tensor(each.second);
    return found;
  }
  std::unique_ptr<Graph> graph(size_t index) const {
    return std::unique_ptr<Graph>(Graph::fromString(text(index)));
  }

 private:
  /*! \brief The tensor under a number that no other has had. */
  MXTensor tensor(const JsonVal& number) const {
    static std::atomic<size_t> version{1};
    const BatonMxnetTensor& raw = tensors_[number.num];
    return MXTensor(raw.data, std::vector<int64_t>(raw.shape, raw.shape + raw.ndim),
                    static_cast<MXDType>(raw.dtype), version++);
  }
  JsonVal value_;
  const BatonMxnetTensor* tensors_;
  MXMemory* memory_;
};

inline JsonVal list(std::initializer_list<JsonVal> items) {
  JsonVal made(LIST);
  made.list = items;
  return made;
}
template <typename Numbers>
JsonVal list_of(const Numbers& numbers) {
  JsonVal made(LIST);
  for (auto each : numbers) made.list.push_back(JsonVal::integer(each));
  return made;
}
inline Integers numbers_of(const JsonVal& list) {
  Integers found;
  for (const JsonVal& each : list.list) found.push_back(each.num);
  return found;
}
inline JsonVal lists_of(const Shapes& shapes) {
  JsonVal made(LIST);
  for (const auto& each : shapes) made.list.push_back(list_of(each));
  return made;
}
inline Shapes shapes_of(const JsonVal& lists) {
  Shapes found(lists.list.size());
  for (size_t i = 0; i < found.size(); ++i) {
    for (const JsonVal& each : lists.list[i].list) {
      found[i].push_back(static_cast<unsigned>(each.integer()));
    }
  }
  return found;
}
inline JsonVal flag(bool value) { return JsonVal(value ? 1 : 0); }

/*! \brief An object that Baton refers to by its address, and frees. */
template <typename Object>
JsonVal handle(Object* object) {
  return JsonVal::integer(reinterpret_cast<intptr_t>(object));
}
template <typename Object>
Object* object_of(const Request& given) {
  return reinterpret_cast<Object*>(given.at(1).integer());
}
template <typename Object>
JsonVal free_object(const Request& given) {
  delete object_of<Object>(given);
  return JsonVal(0);
}

// Operators.

inline CustomOp& op_of(const Request& given) {
  return Registry<CustomOp>::get()->get(given.number(1));
}

/*! \brief [operator, attrs] -> numbers of inputs and outputs */
inline JsonVal counts(const Request& given) {
  int inputs = 0, outputs = 0;
  require("parseAttrs",
          op_of(given).parse_attrs(given.options(2), &inputs, &outputs));
  return list({JsonVal(inputs), JsonVal(outputs)});
}

/*! \brief [operator, attrs] -> positions of inputs that it writes to */
inline JsonVal mutated(const Request& given) {
  Integers found;
  if (const auto& mutate = op_of(given).mutate_inputs) {
    require("mutateInputs", mutate(given.options(2), &found));
  }
  return list_of(found);
}

/*! \brief [operator, attrs, inputs, outputs] -> why it does not run on dense arrays, or "" */
inline JsonVal sparse(const Request& given) {
  const auto& infer = op_of(given).infer_storage_type;
  if (!infer) return JsonVal(std::string());
  Integers in(given.number(3), kDefaultStorage), out(given.number(4), kDefaultStorage);
  const Integers dense_in = in, dense_out = out;
  try {
    require("inferSType", infer(given.options(2), &in, &out));
  } catch (const std::exception& error) {
    return JsonVal(std::string(error.what()));
  }
  const bool is_dense = in == dense_in && out == dense_out;
  return JsonVal(std::string(is_dense ? "" : "inferSType takes or makes sparse ones"));
}

/*! \brief [operator, attrs, input shapes, input types, outputs] -> shapes of inputs and outputs, types
 *  of outputs; the shape of an unknown input is empty. */
inline JsonVal types(const Request& given) {
  const CustomOp& op = op_of(given);
  const AttrMap attrs = given.options(2);
  Shapes in = shapes_of(given.at(3)), out(given.number(5));
  Integers from = numbers_of(given.at(4)), to(given.number(5), -1);
  require("inferShape", op.infer_shape(attrs, &in, &out));
  require("inferType", op.infer_type(attrs, &from, &to));
  return list({lists_of(in), lists_of(out), list_of(to)});
}

/*! \brief One place of an operator in a model. */
class Operator {
 public:
  Operator(const CustomOp& op, AttrMap attrs, const Shapes& shapes, const Integers& types)
      : op_(op), attrs_(std::move(attrs)) {
    auto create = op.create_state.find("cpu");
    if (create == op.create_state.end()) {
      if (!op.forward.count("cpu")) throw std::runtime_error("it has no forward for the CPU");
      return;
    }
    CustomStatefulOp* made = nullptr;
    require("createOpState",
            create->second(attrs_, MXContext::CPU(), shapes, types, &made));
    if (!made) throw std::runtime_error("createOpState made no operator");
    state_.reset(made);
  }

  void forward(Tensors* in, Tensors* out) {
    MXMemory memory;
    const OpResource resource(&memory);
    if (!state_) {
      require("forward", op_.forward.at("cpu")(attrs_, in, out, resource));
      return;
    }
    std::lock_guard<std::mutex> one_at_a_time(mutex_);
    require("Forward", state_->Forward(in, out, resource));
  }

 private:
  const CustomOp& op_;
  AttrMap attrs_;
  std::unique_ptr<CustomStatefulOp> state_;
  std::mutex mutex_;
};

/*! \brief [operator, attrs, input shapes, input types] -> an engine */
inline JsonVal engine(const Request& given) {
  return handle(new Operator(op_of(given), given.options(2), shapes_of(given.at(3)),
                             numbers_of(given.at(4))));
}

/*! \brief [engine, inputs, outputs] */
inline JsonVal run(const Request& given) {
  Tensors in = given.tensors(2), out = given.tensors(3);
  object_of<Operator>(given)->forward(&in, &out);
  return JsonVal(0);
}

// Partitioners.

inline const CustomPartitioner::Strategy& strategy_of(const Request& given) {
  return Registry<CustomPartitioner>::get()->get(given.number(1)).strategies.at(given.number(2));
}

/*! \brief [partitioner, strategy, graph, options] -> one mark per node */
inline JsonVal supported_ops(const Request& given) {
  const auto graph = given.graph(3);
  Integers ids(graph->size(), -2);
  require("supportedOps",
          strategy_of(given).supported_ops(graph.get(), &ids, given.options(4)));
  return list_of(ids);
}

/*! \brief [partitioner, strategy, graph, number, options, args, aux] -> whether it is accepted, attrs */
inline JsonVal review(const Request& given) {
  const auto graph = given.graph(3);
  TensorMap args = given.named(6), aux = given.named(7);
  graph->_setParams(&args, &aux);
  bool accept = false;
  AttrMap attrs;
  require("reviewSubgraph", strategy_of(given).review(graph.get(), given.number(4), &accept, given.options(5),
                                     &attrs, args, aux));
  JsonVal set(MAP);
  for (const auto& each : attrs) set.map[JsonVal(each.first)] = JsonVal(each.second);
  return list({flag(accept), set});
}

struct Selection {
  std::unique_ptr<Graph> graph;  // the selector may keep pointers into it
  std::unique_ptr<CustomOpSelector> selector;
};

inline CustomOpSelector& selector_of(const Request& given) {
  return *object_of<Selection>(given)->selector;
}

/*! \brief [partitioner, strategy, graph, options] -> a selector */
inline JsonVal selector(const Request& given) {
  std::unique_ptr<Selection> made(new Selection());
  made->graph = given.graph(3);
  CustomOpSelector* found = nullptr;
  require("createSelector", strategy_of(given).create_selector(made->graph.get(), &found, given.options(4)));
  if (!found) throw std::runtime_error("createSelector made no selector");
  made->selector.reset(found);
  return handle(made.release());
}

// [selector, ...] as the methods of CustomOpSelector
inline JsonVal select(const Request& given) { return flag(selector_of(given).Select(given.number(2))); }
inline JsonVal select_input(const Request& given) {
  return flag(selector_of(given).SelectInput(given.number(2), given.number(3)));
}
inline JsonVal select_output(const Request& given) {
  return flag(selector_of(given).SelectOutput(given.number(2), given.number(3)));
}
inline JsonVal filter(const Request& given) {
  Integers keep;
  selector_of(given).Filter(numbers_of(given.at(2)), &keep);
  return list_of(keep);
}
inline JsonVal reset(const Request& given) {
  selector_of(given).Reset();
  return JsonVal(0);
}

// Graph passes.

inline MXTensor allocated(const Request& given, const std::string& name,
                          const std::vector<int64_t>& shape, const MXContext& ctx, MXDType type) {
  if (ctx.dev_type != "cpu") {
    throw std::runtime_error("a pass allocates " + name + " on " + ctx.dev_type + ", not the CPU");
  }
  MXTensor tensor(nullptr, shape, type, 1);
  const size_t item = tensor.dltensor.dtype.bits / 8;
  if (item == 0 || tensor.size() < 0) {
    throw std::runtime_error("a pass allocates " + name + " of an unknown type or shape");
  }
  tensor.data_ptr = given.allocate(tensor.size() * item);
  tensor.setDLTensor();
  return tensor;
}

/*! \brief [pass, graph, options, args, aux] -> the graph as JSON, new arrays: name, shape, type,
 *  address of elements that Baton copies while it reads the reply, whether it is a state */
inline JsonVal run_pass(const Request& given) {
  const CustomPass& pass = Registry<CustomPass>::get()->get(given.number(1));
  TensorMap args = given.named(4), aux = given.named(5);
  JsonVal made(LIST);
  PassResource resource([&](const std::string& name, const std::vector<int64_t>& shape,
                            const MXContext& ctx, MXDType type, bool is_aux) {
    const MXTensor tensor = allocated(given, name, shape, ctx, type);
    made.list.push_back(list({JsonVal(name), list_of(shape), JsonVal(static_cast<int>(type)),
                              JsonVal::integer(reinterpret_cast<intptr_t>(tensor.data_ptr)),
                              flag(is_aux)}));
    return tensor;
  });
  if (pass.text_pass) {
    const std::string* result = nullptr;
    require("the pass",
            pass.text_pass(given.text(2), &result, given.options(3), args, aux, resource));
    if (!result) throw std::runtime_error("the pass made no graph");
    std::unique_ptr<const std::string> owned(result == &given.text(2) ? nullptr : result);
    return list({JsonVal(*result), made});
  }
  const auto graph = given.graph(2);
  graph->_setParams(&args, &aux);
  graph->_setPassResource(&resource);
  require("the pass", pass.pass(graph.get(), given.options(3)));
  return list({JsonVal(graph->toString()), made});
}

// The library.

inline std::string problem_of(const CustomOp& op) {
  if (!op.problem.empty()) return op.problem;
  if (op.forward.empty() && op.create_state.empty()) return "it has no forward and no state";
  if (op.isSGop) return op.create_state.empty() ? "an operator of subgraphs needs a state" : "";
  if (!op.parse_attrs) return "setParseAttrs is missing";
  if (!op.infer_shape) return "setInferShape is missing";
  return op.infer_type ? "" : "setInferType is missing";
}

inline std::string problem_of(const CustomPass& pass) {
  return pass.pass || pass.text_pass ? "" : "setBody is missing";
}

inline std::string problem_of(const CustomPartitioner& partitioner) {
  if (!partitioner.problem.empty()) return partitioner.problem;
  if (partitioner.strategies.empty()) return "it has no strategy";
  for (const auto& each : partitioner.strategies) {
    if (!each.supported_ops && !each.create_selector) {
      return "strategy " + each.name + " needs setSupportedOps or setCreateSelector";
    }
  }
  return "";
}

/*! \brief Checks the registrations of a kind, and describes them. */
template <typename Entry, typename Describe>
JsonVal described(const char* what, Describe describe) {
  JsonVal all(LIST);
  auto* registry = Registry<Entry>::get();
  for (int i = 0; i < registry->size(); ++i) {
    const Entry& entry = registry->get(i);
    const std::string problem = problem_of(entry);
    if (!problem.empty()) {
      throw std::runtime_error(std::string(what) + " " + entry.name + ": " + problem);
    }
    all.list.push_back(describe(entry));
  }
  return all;
}

/*! \brief [] -> of each operator its name, whether it runs subgraphs, has a state */
inline JsonVal operators(const Request&) {
  return described<CustomOp>("operator", [](const CustomOp& op) {
    return list({JsonVal(std::string(op.name)), flag(op.isSGop), flag(!op.create_state.empty())});
  });
}

/*! \brief [] -> names */
inline JsonVal passes(const Request&) {
  return described<CustomPass>(
      "pass", [](const CustomPass& pass) { return JsonVal(std::string(pass.name)); });
}

/*! \brief [] -> of each partitioner its name, strategies (name, operator, whether it marks, selects,
 *  reviews, reviews all values) */
inline JsonVal partitioners(const Request&) {
  return described<CustomPartitioner>("partitioner", [](const CustomPartitioner& p) {
    JsonVal strategies(LIST);
    for (const auto& each : p.strategies) {
      // As in MXNet, marks come before a selector.
      const bool marks = static_cast<bool>(each.supported_ops);
      strategies.list.push_back(list({JsonVal(each.name), JsonVal(each.op), flag(marks),
                                      flag(!marks), flag(static_cast<bool>(each.review)),
                                      flag(each.reviews_all_values)}));
    }
    return list({JsonVal(std::string(p.name)), strategies});
  });
}

struct Handler {
  const char* name;
  JsonVal (*handle)(const Request&);
};

}  // namespace mxnet_library
}  // namespace baton

namespace mxnet {
namespace ext {

// The requests about each kind; the first one describes what is registered. Only a library that
// registers something of a kind refers to them, so that no other spends time on compiling them.

inline const baton::mxnet_library::Handler* handlers_of(CustomOp*) {
  using namespace baton::mxnet_library;  // NOLINT
  static const Handler handlers[] = {
      {"", operators},  {"counts", counts}, {"mutated", mutated},
      {"sparse", sparse}, {"types", types},   {"engine", engine},
      {"run", run},     {"free_engine", free_object<Operator>}, {nullptr, nullptr}};
  return handlers;
}
inline const baton::mxnet_library::Handler* handlers_of(CustomPass*) {
  using namespace baton::mxnet_library;  // NOLINT
  static const Handler handlers[] = {{"", passes}, {"pass", run_pass}, {nullptr, nullptr}};
  return handlers;
}
inline const baton::mxnet_library::Handler* handlers_of(CustomPartitioner*) {
  using namespace baton::mxnet_library;  // NOLINT
  static const Handler handlers[] = {
      {"", partitioners},
      {"supported_ops", supported_ops},
      {"review", review},
      {"selector", selector},
      {"select", select},
      {"select_input", select_input},
      {"select_output", select_output},
      {"filter", filter},
      {"reset", reset},
      {"free_selector", free_object<Selection>},
      {nullptr, nullptr}};
  return handlers;
}

}  // namespace ext
}  // namespace mxnet

namespace baton {
namespace mxnet_library {

/*! \brief Lists the library's operators, passes and partitioners, after it agreed to work; or handles
 *  a request about one of them. */
inline JsonVal answer_to(const Request& given) {
  const Handler* const kinds[] = {Registry<CustomOp>::get()->handlers,
                                  Registry<CustomPass>::get()->handlers,
                                  Registry<CustomPartitioner>::get()->handlers};
  if (given.text(0) == "initialize") {
    require("initialize(" BATON_MXNET_VERSION_TEXT ")", ::initialize(BATON_MXNET_VERSION));
    JsonVal all(LIST);
    for (const Handler* each : kinds) all.list.push_back(each ? each->handle(given) : list({}));
    return all;
  }
  for (const Handler* each : kinds) {
    for (; each && each->name; ++each) {
      if (given.text(0) == each->name) return each->handle(given);
    }
  }
  throw std::runtime_error("no request is called " + given.text(0));
}

}  // namespace mxnet_library
}  // namespace baton
#pragma GCC visibility pop

// Weak, so that several files of one library may include this header.
extern "C" {

__attribute__((weak, used, visibility("default"))) int baton_mxnet_abi_version() {
  return BATON_MXNET_ABI_VERSION;
}

/*! \brief Handles a request; calls `reply` once, before it returns. */
__attribute__((weak, used, visibility("default"))) void baton_mxnet_call(
    const char* request, size_t size, const BatonMxnetTensor* tensors,
    void (*reply)(const char* text, size_t size)) {
  using namespace baton::mxnet_library;  // NOLINT
  MXMemory memory;                       // outlives the reply, which has addresses in it
  JsonVal answer;
  try {
    MXerrorMsgs::get()->take();
    answer = list({JsonVal(1), answer_to(Request(std::string(request, size), tensors, &memory))});
  } catch (const std::exception& error) {
    answer = list({JsonVal(0), JsonVal(std::string(error.what()))});
  } catch (...) {
    answer = list({JsonVal(0), JsonVal(std::string("an exception that is not a std::exception"))});
  }
  const std::string text = answer.dump();
  reply(text.data(), text.size());
}

}

MX_AS_ASKED_FOR

#endif  // BATON_MXNET_LIBRARY_H_
