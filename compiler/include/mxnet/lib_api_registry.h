/*!
 * \file mxnet/lib_api_registry.h
 * \brief Operators, graph passes and partitioners of MXNet's library interface; part of
 * mxnet/lib_api.h.
 */
#ifndef MXNET_LIB_API_REGISTRY_H_
#define MXNET_LIB_API_REGISTRY_H_

namespace mxnet {
namespace ext {

using TensorMap = std::unordered_map<std::string, MXTensor>;
using Shapes = std::vector<std::vector<unsigned int>>;

/*! \brief Grows subgraphs node by node; compiler.partition.Selector has the rules. */
class CustomOpSelector {
 public:
  virtual ~CustomOpSelector() = default;
  virtual bool Select(int node) = 0;
  virtual bool SelectInput(int node, int input_node) = 0;
  virtual bool SelectOutput(int node, int output_node) = 0;
  virtual void Filter(const std::vector<int>& candidates, std::vector<int>* keep) {
    *keep = candidates;
  }
  virtual void Reset() {}
};

/*! \brief An operator with a state: one object for each place that it has in a model. */
class CustomStatefulOp {
 public:
  virtual ~CustomStatefulOp() = default;

  template <class Made, typename... Arguments>
  static CustomStatefulOp* create(Arguments... arguments) {
    CustomStatefulOp* made = new Made(arguments...);
    made->created_ = true;
    return made;
  }
  bool wasCreated() const { return created_; }

  virtual MXReturnValue Forward(std::vector<MXTensor>* inputs, std::vector<MXTensor>* outputs,
                                const OpResource& resource) = 0;
  /*! \brief Never called: Baton computes inference. */
  virtual MXReturnValue Backward(std::vector<MXTensor>* inputs, std::vector<MXTensor>* outputs,
                                 const OpResource& resource) {
    (void)inputs, (void)outputs, (void)resource;
    return MX_FAIL;
  }

  bool ignore_warn = false;

 private:
  bool created_ = false;
};

typedef MXReturnValue (*fcomp_t)(const AttrMap& attrs, std::vector<MXTensor>* inputs,
                                 std::vector<MXTensor>* outputs, const OpResource& resource);
typedef MXReturnValue (*parseAttrs_t)(const AttrMap& attrs, int* num_inputs, int* num_outputs);
typedef MXReturnValue (*inferType_t)(const AttrMap& attrs, std::vector<int>* in_types,
                                     std::vector<int>* out_types);
typedef MXReturnValue (*inferSType_t)(const AttrMap& attrs, std::vector<int>* in_storage,
                                      std::vector<int>* out_storage);
typedef MXReturnValue (*inferShape_t)(const AttrMap& attrs, Shapes* in_shapes, Shapes* out_shapes);
typedef MXReturnValue (*mutateInputs_t)(const AttrMap& attrs, std::vector<int>* input_indices);
typedef MXReturnValue (*createOpState_t)(const AttrMap& attrs, const MXContext& ctx,
                                         const Shapes& in_shapes, const std::vector<int> in_types,
                                         CustomStatefulOp** op);
typedef MXReturnValue (*createOpState_1_7_t)(const AttrMap& attrs, CustomStatefulOp** op);

/*! \brief What REGISTER_OP registers. */
class CustomOp {
 public:
  explicit CustomOp(const char* op_name) : name(op_name) {}

  CustomOp& setForward(fcomp_t function, const char* ctx) { return set(&forward, ctx, function); }
  /*! \brief Kept for a look at what a library has; Baton computes inference. */
  CustomOp& setBackward(fcomp_t function, const char* ctx) { return set(&backward, ctx, function); }
  CustomOp& setParseAttrs(parseAttrs_t function) { return set(&parse_attrs, function); }
  CustomOp& setInferType(inferType_t function) { return set(&infer_type, function); }
  CustomOp& setInferSType(inferSType_t function) { return set(&infer_storage_type, function); }
  CustomOp& setInferShape(inferShape_t function) { return set(&infer_shape, function); }
  CustomOp& setMutateInputs(mutateInputs_t function) { return set(&mutate_inputs, function); }
  CustomOp& setCreateOpState(createOpState_t function, const char* ctx) {
    return set(&create_state, ctx, CreateState(function));
  }
  CustomOp& setCreateOpState(createOpState_1_7_t function, const char* ctx) {
    return set(&create_state, ctx,
               CreateState([function](const AttrMap& attrs, const MXContext&, const Shapes&,
                                      const std::vector<int>&, CustomStatefulOp** op) {
                 return function(attrs, op);
               }));
  }
  CustomOp& setIsSubgraphOp() { return set(&isSGop, true); }

  using CreateState = std::function<MXReturnValue(
      const AttrMap&, const MXContext&, const Shapes&, const std::vector<int>&, CustomStatefulOp**)>;

  const char* name;
  parseAttrs_t parse_attrs = nullptr;
  inferType_t infer_type = nullptr;
  inferSType_t infer_storage_type = nullptr;
  inferShape_t infer_shape = nullptr;
  mutateInputs_t mutate_inputs = nullptr;
  bool isSGop = false;
  /*! \brief By the name of the device. */
  std::map<std::string, fcomp_t> forward, backward;
  std::map<std::string, CreateState> create_state;
  /*! \brief What is wrong with the registration, for an error when the library is loaded. */
  std::string problem;

 private:
  template <typename Value>
  CustomOp& set(Value* member, Value value) {
    *member = value;
    return *this;
  }
  template <typename Function>
  CustomOp& set(std::map<std::string, Function>* functions, const char* ctx, Function function) {
    if (!functions->emplace(ctx, std::move(function)).second) {
      problem = std::string("two functions of one kind for the device ") + ctx;
    }
    return *this;
  }
};

typedef MXReturnValue (*graphPass_t)(Graph* graph, const AttrMap& options);
typedef MXReturnValue (*graphPass_1_7_t)(const std::string& graph, const std::string** result,
                                         const AttrMap& options, const TensorMap& args,
                                         const TensorMap& aux, const PassResource& resource);

/*! \brief What REGISTER_PASS registers. */
class CustomPass {
 public:
  explicit CustomPass(const char* pass_name) : name(pass_name) {}

  CustomPass& setBody(graphPass_t function) {
    pass = function;
    return *this;
  }
  CustomPass& setBody(graphPass_1_7_t function) {
    text_pass = function;
    return *this;
  }

  const char* name;
  graphPass_t pass = nullptr;
  graphPass_1_7_t text_pass = nullptr;
};

typedef MXReturnValue (*supportedOps_t)(const Graph* graph, std::vector<int>* ids,
                                        const AttrMap& options);
typedef MXReturnValue (*createSelector_t)(const Graph* graph, CustomOpSelector** selector,
                                          const AttrMap& options);
typedef MXReturnValue (*reviewSubgraph_t)(const Graph* subgraph, int subgraph_id, bool* accept,
                                          const AttrMap& options, AttrMap* attrs);
typedef MXReturnValue (*supportedOps_1_7_t)(const std::string& graph, std::vector<int>* ids,
                                            const AttrMap& options);
typedef MXReturnValue (*createSelector_1_7_t)(const std::string& graph,
                                              CustomOpSelector** selector, const AttrMap& options);
typedef MXReturnValue (*reviewSubgraph_1_7_t)(const std::string& subgraph, int subgraph_id,
                                              bool* accept, const AttrMap& options, AttrMap* attrs,
                                              const TensorMap& args, const TensorMap& aux);

/*! \brief What REGISTER_PARTITIONER registers. */
class CustomPartitioner {
 public:
  /*! \brief The callbacks of a strategy; those of MXNet 1.7 get the graph as text. */
  struct Strategy {
    std::string name, op;
    std::function<MXReturnValue(const Graph*, std::vector<int>*, const AttrMap&)> supported_ops;
    std::function<MXReturnValue(const Graph*, CustomOpSelector**, const AttrMap&)> create_selector;
    reviewSubgraph_t review = nullptr;
    reviewSubgraph_1_7_t text_review = nullptr;
  };

  explicit CustomPartitioner(const char* backend_name) : name(backend_name) {}

  CustomPartitioner& addStrategy(const char* strategy, const char* subgraph_op) {
    strategies.emplace_back();
    strategies.back().name = strategy;
    strategies.back().op = subgraph_op;
    return *this;
  }
  CustomPartitioner& setSupportedOps(const char* strategy, supportedOps_t function) {
    return set(strategy, [=](Strategy* each) { each->supported_ops = function; });
  }
  CustomPartitioner& setSupportedOps(const char* strategy, supportedOps_1_7_t function) {
    return set(strategy, [=](Strategy* each) {
      each->supported_ops = [=](const Graph* graph, std::vector<int>* ids, const AttrMap& options) {
        return function(graph->toString(), ids, options);
      };
    });
  }
  CustomPartitioner& setCreateSelector(const char* strategy, createSelector_t function) {
    return set(strategy, [=](Strategy* each) { each->create_selector = function; });
  }
  CustomPartitioner& setCreateSelector(const char* strategy, createSelector_1_7_t function) {
    return set(strategy, [=](Strategy* each) {
      each->create_selector = [=](const Graph* graph, CustomOpSelector** made,
                                  const AttrMap& options) {
        return function(graph->toString(), made, options);
      };
    });
  }
  CustomPartitioner& setReviewSubgraph(const char* strategy, reviewSubgraph_t function) {
    return set(strategy, [=](Strategy* each) { each->review = function; });
  }
  CustomPartitioner& setReviewSubgraph(const char* strategy, reviewSubgraph_1_7_t function) {
    return set(strategy, [=](Strategy* each) { each->text_review = function; });
  }

  const char* name;
  std::vector<Strategy> strategies;
  /*! \brief What is wrong with the registration, for an error when the library is loaded. */
  std::string problem;

 private:
  template <typename Change>
  CustomPartitioner& set(const std::string& strategy, Change change) {
    for (Strategy& each : strategies) {
      if (each.name == strategy) {
        change(&each);
        return *this;
      }
    }
    problem = "no strategy is named " + strategy + "; call addStrategy first";
    return *this;
  }
};

/*! \brief All that one library registered of a kind. */
template <class Entry>
class Registry {
 public:
  // Hidden: what two libraries in one process register must never be mixed up.
  __attribute__((visibility("hidden"))) static Registry* get() {
    static Registry registry;
    return &registry;
  }
  Entry& add(const char* name) { return *entries_.emplace_back(std::make_unique<Entry>(name)); }
  int size() const { return static_cast<int>(entries_.size()); }
  Entry& get(int index) { return *entries_.at(index); }

 private:
  std::vector<std::unique_ptr<Entry>> entries_;
};

}  // namespace ext
}  // namespace mxnet

#define MX_STRINGIFY(text) #text
#define MX_TOSTRING(text) MX_STRINGIFY(text)
#define MX_REGISTER(Class, Name)                                                                 \
  [[maybe_unused]] static ::mxnet::ext::Class& BATON_CONCAT(mxnet_registered_, __COUNTER__) =    \
      ::mxnet::ext::Registry<::mxnet::ext::Class>::get()->add(MX_TOSTRING(Name))

#define REGISTER_OP(Name) MX_REGISTER(CustomOp, Name)
#define REGISTER_PASS(Name) MX_REGISTER(CustomPass, Name)
#define REGISTER_PARTITIONER(Name) MX_REGISTER(CustomPartitioner, Name)

#endif  // MXNET_LIB_API_REGISTRY_H_
