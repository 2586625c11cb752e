// A partitioner that looks at parameter values: it takes products and sums whose parameters all
// lie within [-limit, limit], as a device with a small fixed-point range would.
#include <baton/partitioner.h>

#include <cmath>

namespace {

void claim(const baton::Graph& graph, std::vector<int64_t>& ids, const baton::Options&) {
  for (size_t id = 0; id < graph.nodes.size(); ++id) {
    const std::string& op = graph.nodes[id].op;
    if (op == "multiply" || op == "add" || op == "nn.dense" || op == "transpose") ids[id] = baton::kAny;
  }
}

bool accept(baton::Review& review) {
  auto given = review.options.find("limit");
  const double limit = given == review.options.end() ? 1.0 : std::stod(given->second);
  double largest = 0.0;
  for (const baton::Node& node : review.subgraph.nodes) {
    const std::string name = node.attr("argName");
    if (!review.args.count(name)) continue;
    const baton::Tensor& tensor = review.args.at(name);
    if (tensor.dtype() != "float32") continue;
    for (int64_t i = 0; i < tensor.size(); ++i) {
      const double magnitude = std::fabs(tensor.data<float>()[i]);
      if (magnitude > limit) {
        review.attrs["reason"] = name + " has the value " + std::to_string(magnitude);
        return false;
      }
      largest = std::max(largest, magnitude);
    }
  }
  review.attrs["largest"] = std::to_string(largest);
  return true;
}

BATON_REGISTER_PARTITIONER("small_weights")
    .add(baton::Strategy("by_value", "fixed_point").supported_ops(claim).review(accept));

}  // namespace
