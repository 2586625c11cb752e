// A partitioner with a selector: a subgraph begins at a dense layer, a batch_matmul or a conv2d, and
// takes the sums and activations behind it. One that is nothing but the product itself is not worth
// the trouble.
#include <baton/partitioner.h>

#include <set>

namespace {

class ProductAndActivation : public baton::Selector {
 public:
  explicit ProductAndActivation(baton::Graph graph) : graph_(std::move(graph)) {}

  bool select(int64_t node) override { return is_product(node); }

  bool select_output(int64_t, int64_t output_node) override {
    static const std::set<std::string> cheap = {"add", "nn.bias_add", "nn.relu", "tanh", "sigmoid"};
    return cheap.count(graph_.nodes.at(output_node).op) > 0;
  }

  std::vector<int64_t> filter(const std::vector<int64_t>& candidates) override {
    return candidates.size() > 1 ? candidates : std::vector<int64_t>();
  }

 private:
  bool is_product(int64_t node) const {
    const std::string& op = graph_.nodes.at(node).op;
    return op == "nn.dense" || op == "nn.batch_matmul" || op == "nn.conv2d";
  }

  baton::Graph graph_;
};

BATON_REGISTER_PARTITIONER("activations")
    .add(baton::Strategy("grow", "product_and_activation")
             .selector([](const baton::Graph& graph, const baton::Options&) {
               return std::make_unique<ProductAndActivation>(graph);
             }));

}  // namespace
