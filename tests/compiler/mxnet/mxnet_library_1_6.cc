// Signatures of MXNet 1.6 to 1.8 that test_mxnet_library.py loads; C++11, without a namespace.
#include <cmath>

#include "lib_api.h"

using Attrs = std::map<std::string, std::string>;
using Options = std::unordered_map<std::string, std::string>;

// An operator: x times "factor".
MXReturnValue parse(Attrs, int* inputs, int* outputs) {
  *inputs = *outputs = 1;
  return MX_SUCCESS;
}
MXReturnValue types(Attrs, std::vector<int>& in, std::vector<int>& out) {
  out[0] = in[0];
  return MX_SUCCESS;
}
MXReturnValue shapes(Attrs, std::vector<std::vector<unsigned int>>& in,
                     std::vector<std::vector<unsigned int>>& out) {
  out[0] = in[0];
  return MX_SUCCESS;
}
MXReturnValue none(Attrs, std::vector<int>&) { return MX_SUCCESS; }
MXReturnValue scale(Attrs attrs, std::vector<MXTensor> in, std::vector<MXTensor> out,
                    OpResource resource) {
  float* factor = static_cast<float*>(resource.alloc(sizeof(float)));
  *factor = std::stof(attrs["factor"]);
  for (int64_t i = 0; i < in[0].size(); ++i) {
    out[0].data<float>()[i] = *factor * in[0].data<float>()[i];
  }
  return MX_SUCCESS;
}
REGISTER_OP(old_scale)
    .setForward(scale)
    .setBackward(scale)
    .setParseAttrs(parse)
    .setInferType(types)
    .setInferShape(shapes)
    .setMutateInputs(none);

// Runs subgraphs of exp, elemwise_mul and elemwise_add, and adds 7.
class Interpreter : public CustomStatefulOp {
 public:
  explicit Interpreter(std::string graph) : graph_(graph) {}
  MXReturnValue Forward(std::vector<MXTensor> in, std::vector<MXTensor> out, OpResource) override {
    JsonParser parser;
    JsonVal nodes = parser.parse_to_json(graph_).map[JsonVal("nodes")];
    std::vector<std::vector<float>> values;
    size_t next = 0;
    for (JsonVal& node : nodes.list) {
      const std::string op = node.map[JsonVal("op")].str;
      if (op == "null") {
        values.emplace_back(in[next].data<float>(), in[next].data<float>() + in[next].size());
        ++next;
        continue;
      }
      JsonVal inputs = node.map[JsonVal("inputs")];
      std::vector<float> made = values[inputs.list[0].list[0].num];
      for (size_t i = 0; i < made.size(); ++i) {
        if (op == "exp") made[i] = std::exp(made[i]);
        if (op == "elemwise_mul") made[i] *= values[inputs.list[1].list[0].num][i];
        if (op == "elemwise_add") made[i] += values[inputs.list[1].list[0].num][i];
      }
      values.push_back(made);
    }
    for (int64_t i = 0; i < out[0].size(); ++i) out[0].data<float>()[i] = values.back()[i] + 7;
    return MX_SUCCESS;
  }

 private:
  std::string graph_;
};
MXReturnValue create(Attrs attrs, CustomStatefulOp** op) {
  *op = new Interpreter(attrs.at(SUBGRAPH_SYM_JSON));
  return MX_SUCCESS;
}
REGISTER_OP(_old_subgraph).setIsSubgraphOp().setCreateOpState(create);

// Marks exp, elemwise_mul and elemwise_add of float32.
template <typename Ids>
MXReturnValue mark(const std::string& json, size_t count, Ids& ids) {
  JsonParser parser;
  JsonVal nodes = parser.parse_to_json(json).map[JsonVal("nodes")];
  if (nodes.list.size() != count) return MX_FAIL;
  for (size_t i = 0; i < count; ++i) {
    const std::string op = nodes.list[i].map[JsonVal("op")].str;
    JsonVal attrs = nodes.list[i].map[JsonVal("attrs")];
    const bool is_float = std::stoi(attrs.map[JsonVal("dtype")].str) == kFloat32 &&
                          attrs.map[JsonVal("__shape__")].str == "[2,3]";
    ids[i] = is_float && (op == "exp" || op == "elemwise_mul" || op == "elemwise_add");
  }
  return MX_SUCCESS;
}
bool isAccepted(Options& options) { return options["reject"] != "True"; }

MXReturnValue supported(std::string json, const int num_ids, int* ids, Options&) {
  return mark(json, num_ids, ids);
}
MXReturnValue accept(std::string, int subgraph_id, bool* accept, Options& options, Options& attrs) {
  *accept = isAccepted(options);
  attrs["my_key"] = std::to_string(subgraph_id);
  return MX_SUCCESS;
}
REGISTER_PARTITIONER(old_accept)
    .addStrategy("strategy1", supported, "_old_subgraph")
    .setAcceptSubgraph("strategy1", accept);

MXReturnValue acceptArgs(std::string json, int, bool* accept, Options& options, Options& attrs,
                         std::map<std::string, MXTensor>& args) {
  *accept = isAccepted(options);
  std::string seen;
  for (const char* name : {"x", "w"}) {
    if (json.find(std::string("\"argName\":\"") + name) == std::string::npos) continue;
    seen += name + ("=" + std::to_string(static_cast<int>(args[name].data<float>()[0]))) + " ";
  }
  attrs["my_key"] = seen;
  return MX_SUCCESS;
}
REGISTER_PARTITIONER(old_args)
    .addStrategy("strategy1", supported, "_old_subgraph")
    .setAcceptSubgraph("strategy1", acceptArgs);

MXReturnValue flagged(std::string json, std::vector<bool>& ids, Options&) {
  return mark(json, ids.size(), ids);
}
MXReturnValue reviewFlagged(std::string, int, bool* accept, Options& options, Options& attrs,
                            std::map<std::string, MXTensor>& args,
                            std::map<std::string, MXTensor>& aux) {
  *accept = isAccepted(options);
  attrs["my_key"] = std::to_string(args.size()) + " " + std::to_string(aux.size());
  return MX_SUCCESS;
}
REGISTER_PARTITIONER(old_flags)
    .addStrategy("strategy1", flagged, "_old_subgraph")
    .setReviewSubgraph("strategy1", reviewFlagged);

MXReturnValue review(const mxnet::ext::Graph*, int, bool* accept, const Options& options) {
  *accept = options.at("reject") != "True";
  return MX_SUCCESS;
}
REGISTER_PARTITIONER(old_review)
    .addStrategy("strategy1", supported, "_old_subgraph")
    .setReviewSubgraph("strategy1", review);

MXReturnValue initialize(int version) { return version >= 10400 ? MX_SUCCESS : MX_FAIL; }
