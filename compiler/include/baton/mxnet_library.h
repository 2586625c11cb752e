/*!
 * \file baton/mxnet_library.h
 * \brief What stands behind mxnet/lib_api.h: its partitioners become those of baton/partitioner.h,
 * and further entry points call its operators and graph passes.
 */
#ifndef BATON_MXNET_LIBRARY_H_
#define BATON_MXNET_LIBRARY_H_

#include <baton/mxnet_operators.h>

/*! \brief The version of MXNet that `initialize` is asked about. */
#define BATON_MXNET_VERSION 20000

namespace baton {
namespace mxnet_library {

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
BATON_ENTRY(mxnet_sparse, (::baton::mxnet_library::sparse))
BATON_ENTRY(mxnet_types, (::baton::mxnet_library::types))
BATON_ENTRY(mxnet_engine, (::baton::mxnet_library::engine))
BATON_ENTRY(mxnet_pass, (::baton::mxnet_library::run_pass))

#endif  // BATON_MXNET_LIBRARY_H_
