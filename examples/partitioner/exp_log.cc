// A partitioner that claims exp and log, and whatever the option "ops" names on top of that.
#include <baton/partitioner.h>

#include <set>
#include <sstream>

namespace {

std::set<std::string> wanted(const baton::Options& options) {
  // The last two are what MXNet calls those of its numpy functions.
  std::set<std::string> names = {"exp", "log", "_npi_exp", "_npi_log"};
  auto given = options.find("ops");
  if (given != options.end()) {
    std::istringstream list(given->second);
    for (std::string name; std::getline(list, name, ',');) names.insert(name);
  }
  return names;
}

void claim(const baton::Graph& graph, std::vector<int64_t>& ids, const baton::Options& options) {
  const std::set<std::string> names = wanted(options);
  for (size_t id = 0; id < graph.nodes.size(); ++id) {
    if (names.count(graph.nodes[id].op)) ids[id] = baton::kAny;
  }
}

std::string check(const baton::Options& options) {
  auto given = options.find("ops");
  return given != options.end() && given->second.empty() ? "ops names no operator" : "";
}

bool accept(baton::Review& review) {
  review.attrs["operators"] = std::to_string(review.subgraph.nodes.size());
  return true;
}

BATON_REGISTER_PARTITIONER("exp_log")
    .check_options(check)
    .add(baton::Strategy("by_name", "exp_log_op").supported_ops(claim).review(accept));

}  // namespace

BATON_INITIALIZE(version) { return version < 100 ? "it needs Baton 0.1.0 or newer" : ""; }
