// A partitioner that brings its own engine: chains of relu and of products with a constant run in
// C++ of this file, wherever the library that Baton built is loaded.
#include <baton/partitioner.h>

#include <algorithm>
#include <cstring>

namespace {

// What one operator does to every element: a product with `factor`, then, if wanted, relu.
struct Step {
  float factor;
  int32_t is_relu;
};

const baton::Node* constant(const baton::Graph& graph, const baton::Node& node) {
  if (node.op != "multiply" || node.inputs.size() != 2) return nullptr;
  const baton::Node& operand = graph.nodes[node.inputs[1].node];
  return operand.is_variable() && operand.attr("shape") == "[]" ? &operand : nullptr;
}

// Of each node its only reader, so that what it claims are chains.
void claim(const baton::Graph& graph, std::vector<int64_t>& ids, const baton::Options&) {
  int64_t chain = -1;
  for (size_t id = 0; id < graph.nodes.size(); ++id) {
    const baton::Node& node = graph.nodes[id];
    if (node.attr("dtype") != "float32") continue;
    if (node.op != "nn.relu" && constant(graph, node) == nullptr) continue;
    const int64_t before = node.inputs[0].node;
    const bool goes_on = ids[before] >= 0 && graph.nodes[before].readers.size() == 1;
    ids[id] = goes_on ? ids[before] : ++chain;
  }
}

bool accept(baton::Review& review) {
  review.attrs["steps"] = std::to_string(review.subgraph.nodes.size());
  return review.subgraph.heads.size() == 1;
}

std::string compile(const baton::Compilation& given) {
  std::string code;
  for (const baton::Node& node : given.subgraph.nodes) {
    if (node.is_variable()) continue;
    Step step = {1.0f, node.op == "nn.relu"};
    if (const baton::Node* operand = constant(given.subgraph, node)) {
      step.factor = *given.params.at(operand->name).data<float>();
    }
    code.append(reinterpret_cast<const char*>(&step), sizeof(step));
  }
  return code;
}

class Chain : public baton::Engine {
 public:
  explicit Chain(const std::string& code) : steps_(code.size() / sizeof(Step)) {
    std::memcpy(steps_.data(), code.data(), steps_.size() * sizeof(Step));
  }

  void run(const std::vector<baton::Tensor>& inputs,
           const std::vector<baton::Output>& outputs) override {
    const float* from = inputs[0].data<float>();
    float* to = outputs[0].data<float>();
    for (int64_t i = 0; i < outputs[0].size(); ++i) {
      float value = from[i];
      for (const Step& step : steps_) {
        value *= step.factor;
        if (step.is_relu && value < 0) value = 0;  // NaN stays
      }
      to[i] = value;
    }
  }

 private:
  std::vector<Step> steps_;
};

BATON_REGISTER_PARTITIONER("own_engine")
    .add(baton::Strategy("chains", "chain").supported_ops(claim).review(accept))
    .compile(compile, [](const baton::Code& code) { return std::make_unique<Chain>(code.bytes); });

}  // namespace
