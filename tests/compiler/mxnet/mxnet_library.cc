// What test_mxnet_library.py loads: operators, passes and partitioners by the interface of MXNet 1.8
// to 2.0 and, where it says so, of 1.7, whose header has this name.
#include "lib_api.h"

using namespace mxnet::ext;

namespace {

using Attrs = std::unordered_map<std::string, std::string>;
using Tensors = std::vector<MXTensor>;

std::string text(const Attrs& attrs, const std::string& key, const std::string& otherwise) {
  return attrs.count(key) ? attrs.at(key) : otherwise;
}

template <int inputs, int outputs>
MXReturnValue counts(const Attrs&, int* in, int* out) {
  *in = inputs;
  *out = outputs;
  return MX_SUCCESS;
}

MXReturnValue sameShape(const Attrs&, std::vector<std::vector<unsigned>>* in,
                        std::vector<std::vector<unsigned>>* out) {
  for (auto& each : *out) each = in->at(0);
  return MX_SUCCESS;
}

MXReturnValue sameType(const Attrs&, std::vector<int>* in, std::vector<int>* out) {
  for (int& each : *out) each = in->at(0);
  return MX_SUCCESS;
}

// Positive and negative part, each times "factor".
MXReturnValue parts(const Attrs& attrs, Tensors* in, Tensors* out, const OpResource& resource) {
  const float factor = std::stof(text(attrs, "factor", "1"));
  const int64_t size = in->at(0).size();
  float* scaled = static_cast<float*>(resource.alloc_cpu(size * sizeof(float)));
  for (int64_t i = 0; i < size; ++i) scaled[i] = in->at(0).data<float>()[i] * factor;
  for (int64_t i = 0; i < size; ++i) {
    out->at(0).data<float>()[i] = scaled[i] > 0 ? scaled[i] : 0;
    out->at(1).data<float>()[i] = scaled[i] < 0 ? scaled[i] : 0;
  }
  return MX_SUCCESS;
}

REGISTER_OP(test_parts)
    .setForward(parts, "cpu")
    .setBackward(parts, "cpu")
    .setParseAttrs(counts<1, 2>)
    .setInferType(sameType)
    .setInferShape(sameShape);

// x @ weight.T, where the weight's shape follows from the data and "units".
MXReturnValue denseShape(const Attrs& attrs, std::vector<std::vector<unsigned>>* in,
                         std::vector<std::vector<unsigned>>* out) {
  const unsigned units = std::stoi(attrs.at("units"));
  if (in->at(1).empty()) in->at(1) = {units, in->at(0).at(1)};
  out->at(0) = {in->at(0).at(0), units};
  return MX_SUCCESS;
}

MXReturnValue dense(const Attrs&, Tensors* in, Tensors* out, const OpResource&) {
  const int64_t rows = in->at(0).shape[0], depth = in->at(0).shape[1], units = in->at(1).shape[0];
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t u = 0; u < units; ++u) {
      float sum = 0;
      for (int64_t d = 0; d < depth; ++d) {
        sum += in->at(0).data<float>()[r * depth + d] * in->at(1).data<float>()[u * depth + d];
      }
      out->at(0).data<float>()[r * units + u] = sum;
    }
  }
  return MX_SUCCESS;
}

REGISTER_OP(test_dense)
    .setForward(dense, "cpu")
    .setParseAttrs(counts<2, 1>)
    .setInferType(sameType)
    .setInferShape(denseShape);

// x plus how often this object has run, starting at "start".
class Counter : public CustomStatefulOp {
 public:
  explicit Counter(float start) : count_(start) {}
  MXReturnValue Forward(Tensors* in, Tensors* out, const OpResource&) override {
    for (int64_t i = 0; i < in->at(0).size(); ++i) {
      out->at(0).data<float>()[i] = in->at(0).data<float>()[i] + count_;
    }
    count_ += 1;
    return MX_SUCCESS;
  }

 private:
  float count_;
};

MXReturnValue makeCounter(const Attrs& attrs, const MXContext& ctx,
                          const std::vector<std::vector<unsigned>>& shapes,
                          const std::vector<int> types, CustomStatefulOp** op) {
  if (ctx.dev_type != "cpu" || shapes.size() != 1 || types != std::vector<int>{kFloat32}) {
    MX_ERROR_MSG << "a counter is of one float32 array on the CPU";
    return MX_FAIL;
  }
  *op = CustomStatefulOp::create<Counter>(std::stof(text(attrs, "start", "0")));
  return MX_SUCCESS;
}

REGISTER_OP(test_counter)
    .setCreateOpState(makeCounter, "cpu")
    .setParseAttrs(counts<1, 1>)
    .setInferType(sameType)
    .setInferShape(sameShape);

// Fails as "how" says.
MXReturnValue fails(const Attrs& attrs, Tensors*, Tensors*, const OpResource& resource) {
  const std::string how = attrs.at("how");
  if (how == "throw") throw std::runtime_error("thrown in forward");
  if (how == "throw int") throw 42;
  if (how == "gpu memory") resource.alloc_gpu(8);
  MX_ERROR_MSG << "first message";
  MX_ERROR_MSG << "second message" << std::endl;
  return MX_FAIL;
}

REGISTER_OP(test_fails)
    .setForward(fails, "cpu")
    .setParseAttrs(counts<1, 1>)
    .setInferType(sameType)
    .setInferShape(sameShape);

MXReturnValue wantsSparse(const Attrs&, std::vector<int>* in, std::vector<int>* out) {
  out->at(0) = kCSRStorage;
  return in->at(0) == kDefaultStorage ? MX_SUCCESS : MX_FAIL;
}

REGISTER_OP(test_sparse)
    .setForward(fails, "cpu")
    .setParseAttrs(counts<1, 1>)
    .setInferType(sameType)
    .setInferSType(wantsSparse)
    .setInferShape(sameShape);

MXReturnValue writesFirst(const Attrs&, std::vector<int>* inputs) {
  inputs->push_back(0);
  return MX_SUCCESS;
}

REGISTER_OP(test_writes)
    .setForward(fails, "cpu")
    .setParseAttrs(counts<1, 1>)
    .setInferType(sameType)
    .setMutateInputs(writesFirst)
    .setInferShape(sameShape);

REGISTER_OP(test_gpu)
    .setForward(fails, "gpu")
    .setParseAttrs(counts<1, 1>)
    .setInferType(sameType)
    .setInferShape(sameShape);

MXReturnValue noise(const Attrs&, Tensors*, Tensors* out, const OpResource& resource) {
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < out->at(0).size(); ++i) {
    mx_cpu_rand_t& state = resource.get_cpu_rand_states()[i % MX_NUM_CPU_RANDOM_STATES];
    out->at(0).data<float>()[i] = normal(state);
  }
  return MX_SUCCESS;
}

REGISTER_OP(test_noise)
    .setForward(noise, "cpu")
    .setParseAttrs(counts<1, 1>)
    .setInferType(sameType)
    .setInferShape(sameShape);

// A subgraph of exp, elemwise_add and elemwise_mul, or of Relay's "add"; 100 is added to the result,
// so that it differs from what Baton would compute. State of MXNet 1.7.
class Interpreter : public CustomStatefulOp {
 public:
  explicit Interpreter(const Attrs& attrs)
      : graph_(Graph::fromString(attrs.at(MX_STR_SUBGRAPH_SYM_JSON))),
        mark_(text(attrs, "mark", "0")) {}

  MXReturnValue Forward(Tensors* in, Tensors* out, const OpResource&) override {
    std::map<const Node*, std::vector<float>> values;
    size_t next = 0;
    for (size_t i = 0; i < graph_->size(); ++i) {
      const Node* node = graph_->getNode(i);
      if (node->op == "null") {
        const MXTensor& given = in->at(next++);
        values[node].assign(given.data<float>(), given.data<float>() + given.size());
        continue;
      }
      std::vector<float> made = values.at(node->inputs.at(0).node);
      if (node->op == "exp") {
        for (float& each : made) each = std::exp(each);
      } else {
        const std::vector<float>& other = values.at(node->inputs.at(1).node);
        for (size_t k = 0; k < made.size(); ++k) {
          const float operand = other[other.size() == 1 ? 0 : k];
          made[k] = node->op.find("mul") == std::string::npos ? made[k] + operand : made[k] * operand;
        }
      }
      values[node] = made;
    }
    for (size_t k = 0; k < graph_->outputs.size(); ++k) {
      const std::vector<float>& result = values.at(graph_->outputs[k].node);
      for (size_t i = 0; i < result.size(); ++i) {
        out->at(k).data<float>()[i] = result[i] + 100 + std::stof(mark_);
      }
      for (; next < in->size(); ++next) {  // extra inputs
        out->at(k).data<float>()[0] += in->at(next).data<float>()[0];
      }
    }
    return MX_SUCCESS;
  }

 private:
  std::unique_ptr<Graph> graph_;
  std::string mark_;
};

MXReturnValue makeInterpreter(const Attrs& attrs, CustomStatefulOp** op) {
  *op = new Interpreter(attrs);
  return MX_SUCCESS;
}

REGISTER_OP(_test_subgraph).setIsSubgraphOp().setCreateOpState(makeInterpreter, "cpu");

bool isClaimed(const std::string& op, const Attrs& options) {
  const std::string wanted = text(options, "ops", "exp,elemwise_add,elemwise_mul,add");
  return op != "null" && ("," + wanted + ",").find("," + op + ",") != std::string::npos;
}

MXReturnValue supported(const Graph* graph, std::vector<int>* ids, const Attrs& options) {
  if (options.count("fail")) {
    MX_ERROR_MSG << "not with fail=" << options.at("fail");
    return MX_FAIL;
  }
  for (size_t i = 0; i < graph->size(); ++i) {
    if (isClaimed(graph->getNode(i)->op, options)) ids->at(i) = -1;
  }
  return MX_SUCCESS;
}

// Accepts where the value of "w" is known and positive, or not asked for.
MXReturnValue review(const Graph* subgraph, int id, bool* accept, const Attrs& options,
                     Attrs* attrs) {
  std::string seen;
  *accept = !options.count("positive");
  for (const Node* input : subgraph->inputs) {
    if (!input->tensor) continue;
    const float* values = input->tensor->data<float>();
    seen += input->attrs.at("argName") + "=" + std::to_string(static_cast<int>(values[0])) + " ";
    if (input->attrs.at("argName") == "w") *accept = values[0] > 0;
  }
  attrs->emplace("id", std::to_string(id));
  attrs->emplace("seen", seen);
  attrs->emplace("mark", text(options, "mark", "0"));
  return MX_SUCCESS;
}

REGISTER_PARTITIONER(test_claims)
    .addStrategy("all", "_test_subgraph")
    .setSupportedOps("all", supported)
    .setReviewSubgraph("all", review);

class Chosen : public CustomOpSelector {
 public:
  Chosen(const Graph* graph, Attrs options) : graph_(graph), options_(std::move(options)) {}
  bool Select(int node) override { return isClaimed(graph_->getNode(node)->op, options_); }
  bool SelectInput(int, int input) override { return Select(input); }
  bool SelectOutput(int, int output) override { return Select(output); }
  void Filter(const std::vector<int>& candidates, std::vector<int>* keep) override {
    if (candidates.size() > 1) *keep = candidates;  // no subgraphs of one operator
  }

 private:
  const Graph* graph_;
  Attrs options_;
};

MXReturnValue choose(const Graph* graph, CustomOpSelector** selector, const Attrs& options) {
  *selector = new Chosen(graph, options);
  return MX_SUCCESS;
}

REGISTER_PARTITIONER(test_selects)
    .addStrategy("chosen", "_test_subgraph")
    .setCreateSelector("chosen", choose);

// Of MXNet 1.7: graphs as text, values by name.
MXReturnValue supportedText(const std::string& json, std::vector<int>* ids, const Attrs& options) {
  JsonParser parser;
  JsonVal nodes = parser.parse_to_json(json).map[JsonVal("nodes")];
  for (size_t i = 0; i < nodes.list.size(); ++i) {
    if (isClaimed(nodes.list[i].map[JsonVal("op")].str, options)) ids->at(i) = -1;
  }
  return MX_SUCCESS;
}

MXReturnValue reviewText(const std::string& json, int, bool* accept, const Attrs&, Attrs* attrs,
                         const std::unordered_map<std::string, MXTensor>& args,
                         const std::unordered_map<std::string, MXTensor>& aux) {
  attrs->emplace("args", std::to_string(args.size()) + " " + std::to_string(aux.size()));
  *accept = JsonVal::parse(json).map.count(JsonVal("heads")) == 1;
  return MX_SUCCESS;
}

REGISTER_PARTITIONER(test_text)
    .addStrategy("text", "_test_subgraph")
    .setSupportedOps("text", supportedText)
    .setReviewSubgraph("text", reviewText);

// Gives every node of _test_subgraph another input with the value 1000, an argument or, with
// state=True, a state.
MXReturnValue addInput(Graph* graph, const Attrs& options) {
  for (size_t i = 0; i < graph->size(); ++i) {
    Node* node = graph->getNode(i);
    if (node->op != "_test_subgraph") continue;
    node->attrs[MX_STR_EXTRA_INPUTS] = "1";
    Node* input = graph->addNode(node->name + "_more", "null");
    graph->inputs.push_back(input);
    input->outputs.push_back({node, static_cast<int>(node->inputs.size())});
    node->inputs.push_back({input, 0});
    if (text(options, "state", "") == "True") {
      input->alloc_aux({1}, MXContext::CPU(0), kFloat32);
    } else {
      input->alloc_arg({1}, MXContext::CPU(0), kFloat32);
    }
    input->tensor->data<float>()[0] = 1000;
  }
  return MX_SUCCESS;
}

REGISTER_PASS(test_add_input).setBody(addInput);

// Damages the graph as the option "how" says.
MXReturnValue damage(Graph* graph, const Attrs& options) {
  const std::string how = text(options, "how", "");
  if (how == "fail") {
    MX_ERROR_MSG << "no pass today";
    return MX_FAIL;
  }
  if (how == "throw") throw std::runtime_error("thrown in a pass");
  if (how == "allocate") graph->getNode(0)->alloc_arg({1}, MXContext::GPU(0), kFloat32);
  if (how == "out of range") graph->getNode(100);
  Node* last = graph->outputs.at(0).node;
  if (how == "cycle") last->inputs.at(0) = {last, 0};
  if (how == "output") last->inputs.at(0).entry = 70000;
  if (how == "operator") last->op = "no_such_operator";
  if (how == "log") last->op = "log";
  return MX_SUCCESS;
}

REGISTER_PASS(test_damage).setBody(damage);

// Of MXNet 1.7.
MXReturnValue textPass(const std::string& json, const std::string** result, const Attrs& options,
                       const std::unordered_map<std::string, MXTensor>& args,
                       const std::unordered_map<std::string, MXTensor>&, const PassResource& made) {
  MXTensor* sum = made.alloc_arg("total", {1}, MXContext::CPU(0), kFloat32);
  for (const auto& [name, value] : args) sum->data<float>()[0] += value.data<float>()[0];
  *result = new std::string(options.count("json") ? options.at("json") : json);
  return MX_SUCCESS;
}

REGISTER_PASS(test_text_pass).setBody(textPass);

}  // namespace

MXReturnValue initialize(int version) {
  if (getenv("TEST_REFUSE_MXNET") == nullptr) return version >= 10700 ? MX_SUCCESS : MX_FAIL;
  MX_ERROR_MSG << "refused by the environment";
  return MX_FAIL;
}
