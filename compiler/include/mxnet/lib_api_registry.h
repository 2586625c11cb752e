/*!
 * \file mxnet/lib_api_registry.h
 * \brief Operators, graph passes and partitioners of MXNet's library interface; part of
 * mxnet/lib_api.h.
 *
 * Each callback has the signature of MXNet 2.0, or one of earlier versions, which is converted to it.
 * The functions for earlier ones are templates, so that only sources that call them pay for them.
 */
#ifndef MXNET_LIB_API_REGISTRY_H_
#define MXNET_LIB_API_REGISTRY_H_

namespace baton {
namespace mxnet_library {
struct MX_OWN Handler;
}
}  // namespace baton

namespace mxnet {
namespace ext {

using TensorMap = std::unordered_map<std::string, MXTensor>;
using Tensors = std::vector<MXTensor>;
using Integers = std::vector<int>;
using Shapes = std::vector<std::vector<unsigned int>>;
/*! \brief Attributes and tensors in 1.6. */
using SortedAttrs = std::map<std::string, std::string>;
using SortedTensors = std::map<std::string, MXTensor>;

template <typename Attrs>
SortedAttrs sorted(const Attrs& attrs) {
  return SortedAttrs(attrs.begin(), attrs.end());
}

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

/*! \brief An operator with a state: one object for each place that it has in a model. A class has
 *  one of the two `Forward`. */
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

  virtual MXReturnValue Forward(Tensors* inputs, Tensors* outputs, const OpResource& resource) {
    return Forward(*inputs, *outputs, resource);
  }
  /*! \brief The signature of 1.6. */
  virtual MXReturnValue Forward(Tensors, Tensors, OpResource) {
    MX_ERROR_MSG << "the class of the operator's state has no Forward";
    return MX_FAIL;
  }
  /*! \brief Never called: Baton computes inference. */
  virtual MXReturnValue Backward(Tensors*, Tensors*, const OpResource&) { return MX_FAIL; }
  virtual MXReturnValue Backward(Tensors, Tensors, OpResource) { return MX_FAIL; }

  bool ignore_warn = false;

 private:
  bool created_ = false;
};

typedef MXReturnValue (*fcomp_t)(const AttrMap& attrs, Tensors* inputs, Tensors* outputs,
                                 const OpResource& resource);
typedef MXReturnValue (*parseAttrs_t)(const AttrMap& attrs, int* num_inputs, int* num_outputs);
typedef MXReturnValue (*inferType_t)(const AttrMap& attrs, Integers* in_types, Integers* out_types);
typedef MXReturnValue (*inferSType_t)(const AttrMap& attrs, Integers* in_storage,
                                      Integers* out_storage);
typedef MXReturnValue (*inferShape_t)(const AttrMap& attrs, Shapes* in_shapes, Shapes* out_shapes);
typedef MXReturnValue (*mutateInputs_t)(const AttrMap& attrs, Integers* input_indices);
typedef MXReturnValue (*createOpState_t)(const AttrMap& attrs, const MXContext& ctx,
                                         const Shapes& in_shapes, const Integers in_types,
                                         CustomStatefulOp** op);
typedef MXReturnValue (*createOpState_1_7_t)(const AttrMap& attrs, CustomStatefulOp** op);

typedef MXReturnValue (*fcomp_1_6_t)(SortedAttrs, Tensors, Tensors, OpResource);
typedef MXReturnValue (*parseAttrs_1_6_t)(SortedAttrs, int*, int*);
typedef MXReturnValue (*inferType_1_6_t)(SortedAttrs, Integers&, Integers&);
typedef MXReturnValue (*inferShape_1_6_t)(SortedAttrs, Shapes&, Shapes&);
typedef MXReturnValue (*mutateInputs_1_6_t)(SortedAttrs, Integers&);
typedef MXReturnValue (*createOpState_1_6_t)(SortedAttrs, CustomStatefulOp**);

/*! \brief What REGISTER_OP registers. */
class CustomOp {
 public:
  using Compute = std::function<MXReturnValue(const AttrMap&, Tensors*, Tensors*, const OpResource&)>;
  using ParseAttrs = std::function<MXReturnValue(const AttrMap&, int*, int*)>;
  using InferType = std::function<MXReturnValue(const AttrMap&, Integers*, Integers*)>;
  using InferShape = std::function<MXReturnValue(const AttrMap&, Shapes*, Shapes*)>;
  using MutateInputs = std::function<MXReturnValue(const AttrMap&, Integers*)>;
  using CreateState = std::function<MXReturnValue(const AttrMap&, const MXContext&, const Shapes&,
                                                  const Integers&, CustomStatefulOp**)>;

  explicit CustomOp(const char* op_name) : name(op_name) {}

  CustomOp& setForward(fcomp_t function, const char* ctx) { return set(&forward, ctx, function); }
  template <typename = void>
  CustomOp& setForward(fcomp_1_6_t function, const char* ctx = "cpu") {
    return set(&forward, ctx, computing(function));
  }
  /*! \brief Kept for a look at what a library has; Baton computes inference. */
  CustomOp& setBackward(fcomp_t function, const char* ctx) { return set(&backward, ctx, function); }
  template <typename = void>
  CustomOp& setBackward(fcomp_1_6_t function, const char* ctx = "cpu") {
    return set(&backward, ctx, computing(function));
  }
  CustomOp& setParseAttrs(parseAttrs_t function) { return set(&parse_attrs, function); }
  template <typename = void>
  CustomOp& setParseAttrs(parseAttrs_1_6_t function) {
    return set(&parse_attrs, [=](const AttrMap& attrs, int* inputs, int* outputs) {
      return function(sorted(attrs), inputs, outputs);
    });
  }
  CustomOp& setInferType(inferType_t function) { return set(&infer_type, function); }
  template <typename = void>
  CustomOp& setInferType(inferType_1_6_t function) {
    return set(&infer_type, [=](const AttrMap& attrs, Integers* in, Integers* out) {
      return function(sorted(attrs), *in, *out);
    });
  }
  CustomOp& setInferSType(inferSType_t function) { return set(&infer_storage_type, function); }
  CustomOp& setInferShape(inferShape_t function) { return set(&infer_shape, function); }
  template <typename = void>
  CustomOp& setInferShape(inferShape_1_6_t function) {
    return set(&infer_shape, [=](const AttrMap& attrs, Shapes* in, Shapes* out) {
      return function(sorted(attrs), *in, *out);
    });
  }
  CustomOp& setMutateInputs(mutateInputs_t function) { return set(&mutate_inputs, function); }
  template <typename = void>
  CustomOp& setMutateInputs(mutateInputs_1_6_t function) {
    return set(&mutate_inputs, [=](const AttrMap& attrs, Integers* inputs) {
      return function(sorted(attrs), *inputs);
    });
  }
  CustomOp& setCreateOpState(createOpState_t function, const char* ctx) {
    return set(&create_state, ctx, function);
  }
  template <typename = void>
  CustomOp& setCreateOpState(createOpState_1_7_t function, const char* ctx) {
    return set(&create_state, ctx,
               [=](const AttrMap& attrs, const MXContext&, const Shapes&, const Integers&,
                   CustomStatefulOp** op) { return function(attrs, op); });
  }
  template <typename = void>
  CustomOp& setCreateOpState(createOpState_1_6_t function, const char* ctx = "cpu") {
    return set(&create_state, ctx,
               [=](const AttrMap& attrs, const MXContext&, const Shapes&, const Integers&,
                   CustomStatefulOp** op) { return function(sorted(attrs), op); });
  }
  CustomOp& setIsSubgraphOp() { return set(&isSGop, true); }

  const char* name;
  ParseAttrs parse_attrs;
  InferType infer_type, infer_storage_type;
  InferShape infer_shape;
  MutateInputs mutate_inputs;
  bool isSGop = false;
  /*! \brief By the name of the device. */
  std::map<std::string, Compute> forward, backward;
  std::map<std::string, CreateState> create_state;
  /*! \brief What is wrong with the registration, for an error when the library is loaded. */
  std::string problem;

 private:
  template <typename Function>
  static Compute computing(Function function) {
    return [=](const AttrMap& attrs, Tensors* in, Tensors* out, const OpResource& resource) {
      return function(sorted(attrs), *in, *out, resource);
    };
  }
  template <typename Member, typename Value>
  CustomOp& set(Member* member, Value value) {
    *member = value;
    return *this;
  }
  template <typename Function, typename Value>
  CustomOp& set(std::map<std::string, Function>* functions, const char* ctx, Value function) {
    if (!functions->emplace(ctx, function).second) {
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

typedef MXReturnValue (*supportedOps_t)(const Graph* graph, Integers* ids, const AttrMap& options);
typedef MXReturnValue (*createSelector_t)(const Graph* graph, CustomOpSelector** selector,
                                          const AttrMap& options);
typedef MXReturnValue (*reviewSubgraph_t)(const Graph* subgraph, int subgraph_id, bool* accept,
                                          const AttrMap& options, AttrMap* attrs);
typedef MXReturnValue (*reviewSubgraph_1_8_t)(const Graph* subgraph, int subgraph_id, bool* accept,
                                              const AttrMap& options);

typedef MXReturnValue (*supportedOps_1_7_t)(const std::string& graph, Integers* ids,
                                            const AttrMap& options);
typedef MXReturnValue (*createSelector_1_7_t)(const std::string& graph,
                                              CustomOpSelector** selector, const AttrMap& options);
typedef MXReturnValue (*reviewSubgraph_1_7_t)(const std::string& subgraph, int subgraph_id,
                                              bool* accept, const AttrMap& options, AttrMap* attrs,
                                              const TensorMap& args, const TensorMap& aux);

// Between 1.6 and 1.7: ids are 0, or another number for nodes that a subgraph may have.
typedef MXReturnValue (*supportedOps_flags_t)(std::string graph, std::vector<bool>& ids,
                                              AttrMap& options);
typedef MXReturnValue (*supportedOps_1_6_t)(std::string graph, int num_ids, int* ids,
                                            AttrMap& options);
typedef MXReturnValue (*acceptSubgraph_t)(std::string subgraph, int subgraph_id, bool* accept,
                                          AttrMap& options, AttrMap& attrs);
typedef MXReturnValue (*acceptSubgraph_args_t)(std::string subgraph, int subgraph_id, bool* accept,
                                               AttrMap& options, AttrMap& attrs,
                                               SortedTensors& args);
typedef MXReturnValue (*acceptSubgraph_aux_t)(std::string subgraph, int subgraph_id, bool* accept,
                                              AttrMap& options, AttrMap& attrs, SortedTensors& args,
                                              SortedTensors& aux);

/*! \brief What REGISTER_PARTITIONER registers. */
class CustomPartitioner {
 public:
  /*! \brief The callbacks of a strategy. */
  struct Strategy {
    std::string name, op;
    std::function<MXReturnValue(const Graph*, Integers*, const AttrMap&)> supported_ops;
    std::function<MXReturnValue(const Graph*, CustomOpSelector**, const AttrMap&)> create_selector;
    std::function<MXReturnValue(const Graph*, int, bool*, const AttrMap&, AttrMap*,
                                const TensorMap& args, const TensorMap& aux)> review;
    /*! \brief Whether `review` reads all values, and not those of the subgraph's inputs alone. */
    bool reviews_all_values = false;
  };

  explicit CustomPartitioner(const char* backend_name) : name(backend_name) {}

  CustomPartitioner& addStrategy(const char* strategy, const char* subgraph_op) {
    strategies.emplace_back();
    strategies.back().name = strategy;
    strategies.back().op = subgraph_op;
    return *this;
  }
  /*! \brief Until 1.7 a strategy was added with its function. */
  template <typename SupportedOps>
  CustomPartitioner& addStrategy(const char* strategy, SupportedOps function,
                                 const char* subgraph_op) {
    return addStrategy(strategy, subgraph_op).setSupportedOps(strategy, function);
  }

  CustomPartitioner& setSupportedOps(const char* strategy, supportedOps_t function) {
    return set(strategy, &Strategy::supported_ops, function);
  }
  template <typename = void>
  CustomPartitioner& setSupportedOps(const char* strategy, supportedOps_1_7_t function) {
    return set(strategy, &Strategy::supported_ops,
               [=](const Graph* graph, Integers* ids, const AttrMap& options) {
                 return function(graph->toString(), ids, options);
               });
  }
  template <typename = void>
  CustomPartitioner& setSupportedOps(const char* strategy, supportedOps_flags_t function) {
    return set(strategy, &Strategy::supported_ops,
               [=](const Graph* graph, Integers* ids, AttrMap options) {
                 std::vector<bool> flags(ids->size());
                 const MXReturnValue done = function(graph->toText1_6(), flags, options);
                 return mark(flags, ids), done;
               });
  }
  template <typename = void>
  CustomPartitioner& setSupportedOps(const char* strategy, supportedOps_1_6_t function) {
    return set(strategy, &Strategy::supported_ops,
               [=](const Graph* graph, Integers* ids, AttrMap options) {
                 Integers flags(ids->size());
                 const MXReturnValue done = function(
                     graph->toText1_6(), static_cast<int>(flags.size()), flags.data(), options);
                 return mark(flags, ids), done;
               });
  }

  CustomPartitioner& setCreateSelector(const char* strategy, createSelector_t function) {
    return set(strategy, &Strategy::create_selector, function);
  }
  template <typename = void>
  CustomPartitioner& setCreateSelector(const char* strategy, createSelector_1_7_t function) {
    return set(strategy, &Strategy::create_selector,
               [=](const Graph* graph, CustomOpSelector** made, const AttrMap& options) {
                 return function(graph->toString(), made, options);
               });
  }

  CustomPartitioner& setReviewSubgraph(const char* strategy, reviewSubgraph_t function) {
    return setReview(strategy, false,
                     [=](const Graph* graph, int id, bool* accept, const AttrMap& options,
                         AttrMap* attrs, const TensorMap&, const TensorMap&) {
                       return function(graph, id, accept, options, attrs);
                     });
  }
  template <typename = void>
  CustomPartitioner& setReviewSubgraph(const char* strategy, reviewSubgraph_1_8_t function) {
    return setReview(strategy, false,
                     [=](const Graph* graph, int id, bool* accept, const AttrMap& options,
                         AttrMap*, const TensorMap&, const TensorMap&) {
                       return function(graph, id, accept, options);
                     });
  }
  template <typename = void>
  CustomPartitioner& setReviewSubgraph(const char* strategy, reviewSubgraph_1_7_t function) {
    return setReview(strategy, true,
                     [=](const Graph* graph, int id, bool* accept, const AttrMap& options,
                         AttrMap* attrs, const TensorMap& args, const TensorMap& aux) {
                       return function(graph->toString(), id, accept, options, attrs, args, aux);
                     });
  }
  template <typename = void>
  CustomPartitioner& setReviewSubgraph(const char* strategy, acceptSubgraph_t function) {
    return setReview(strategy, false,
                     [=](const Graph* graph, int id, bool* accept, AttrMap options, AttrMap* attrs,
                         const TensorMap&, const TensorMap&) {
                       return function(graph->toText1_6(), id, accept, options, *attrs);
                     });
  }
  template <typename = void>
  CustomPartitioner& setReviewSubgraph(const char* strategy, acceptSubgraph_args_t function) {
    return setReview(strategy, true,
                     [=](const Graph* graph, int id, bool* accept, AttrMap options, AttrMap* attrs,
                         const TensorMap& args, const TensorMap&) {
                       SortedTensors values(args.begin(), args.end());
                       return function(graph->toText1_6(), id, accept, options, *attrs, values);
                     });
  }
  template <typename = void>
  CustomPartitioner& setReviewSubgraph(const char* strategy, acceptSubgraph_aux_t function) {
    return setReview(
        strategy, true,
        [=](const Graph* graph, int id, bool* accept, AttrMap options, AttrMap* attrs,
            const TensorMap& args, const TensorMap& aux) {
          SortedTensors values(args.begin(), args.end()), states(aux.begin(), aux.end());
          return function(graph->toText1_6(), id, accept, options, *attrs, values, states);
        });
  }
  /*! \brief The name until February 2020. */
  template <typename Review>
  CustomPartitioner& setAcceptSubgraph(const char* strategy, Review function) {
    return setReviewSubgraph(strategy, function);
  }

  const char* name;
  std::vector<Strategy> strategies;
  /*! \brief What is wrong with the registration, for an error when the library is loaded. */
  std::string problem;

 private:
  template <typename Flags>
  static void mark(const Flags& flags, Integers* ids) {
    for (size_t i = 0; i < flags.size(); ++i) ids->at(i) = flags[i] ? -1 : -2;
  }
  template <typename Review>
  CustomPartitioner& setReview(const char* strategy, bool reviews_all_values, Review review) {
    return set(strategy, &Strategy::reviews_all_values, reviews_all_values)
        .set(strategy, &Strategy::review, review);
  }
  template <typename Member, typename Value>
  CustomPartitioner& set(const std::string& strategy, Member Strategy::* member, Value value) {
    for (Strategy& each : strategies) {
      if (each.name == strategy) {
        each.*member = value;
        return *this;
      }
    }
    problem = "no strategy is named " + strategy + "; call addStrategy first";
    return *this;
  }
};

/*! \brief All that one library registered of a kind. */
template <class Entry>
class MX_OWN Registry {
 public:
  static Registry* get() {
    static Registry registry;
    return &registry;
  }
  Entry& add(const char* name) {
    entries_.emplace_back(new Entry(name));
    handlers = handlers_of(static_cast<Entry*>(nullptr));
    return *entries_.back();
  }
  int size() const { return static_cast<int>(entries_.size()); }
  Entry& get(int index) { return *entries_.at(index); }

  /*! \brief Baton's requests about entries of this kind, from the first entry on. */
  const baton::mxnet_library::Handler* handlers = nullptr;

 private:
  std::vector<std::unique_ptr<Entry>> entries_;
};

}  // namespace ext
}  // namespace mxnet

#define MX_STRINGIFY(text) #text
#define MX_TOSTRING(text) MX_STRINGIFY(text)
#define MX_CONCAT_(a, b) a##b
#define MX_CONCAT(a, b) MX_CONCAT_(a, b)
#define MX_REGISTER(Class, Name)                                                               \
  __attribute__((unused)) static ::mxnet::ext::Class& MX_CONCAT(mxnet_registered_, __COUNTER__) = \
      ::mxnet::ext::Registry<::mxnet::ext::Class>::get()->add(MX_TOSTRING(Name))

#define REGISTER_OP(Name) MX_REGISTER(CustomOp, Name)
#define REGISTER_PASS(Name) MX_REGISTER(CustomPass, Name)
#define REGISTER_PARTITIONER(Name) MX_REGISTER(CustomPartitioner, Name)

#endif  // MXNET_LIB_API_REGISTRY_H_
