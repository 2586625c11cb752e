/*!
 * \file mxnet/lib_api_graph.h
 * \brief Graphs and JSON of MXNet's library interface; part of mxnet/lib_api.h.
 */
#ifndef MXNET_LIB_API_GRAPH_H_
#define MXNET_LIB_API_GRAPH_H_

namespace mxnet {
namespace ext {

enum JsonType { ERR, STR, NUM, LIST, MAP };

/*! \brief A value of JSON. Numbers are integers; `str` has their text too. */
struct JsonVal {
  JsonVal() : JsonVal(ERR, -1, "") {}
  explicit JsonVal(JsonType kind) : JsonVal(kind, -1, "") {}
  explicit JsonVal(std::string text) : JsonVal(STR, -1, std::move(text)) {}
  explicit JsonVal(int number) : JsonVal(NUM, number, std::to_string(number)) {}
  JsonVal(JsonType kind, int number, std::string text)
      : type(kind), num(number), str(std::move(text)) {}

  bool operator<(const JsonVal& other) const {
    if (type != other.type) return type < other.type;
    switch (type) {
      case STR: return str < other.str;
      case NUM: return num < other.num;
      case LIST: return list < other.list;
      case MAP: return map < other.map;
      default: return false;
    }
  }

  /*! \brief Raises an error for a text that is not JSON. */
  static JsonVal parse(const std::string& text) {
    tvm::ffi::String problem;
    tvm::ffi::json::Value found = tvm::ffi::json::Parse(tvm::ffi::String(text), &problem);
    if (problem.size() != 0) throw std::runtime_error("not JSON: " + std::string(problem));
    return of(found);
  }

  /*! \brief The value as JSON text. */
  std::string dump() const { return std::string(tvm::ffi::json::Stringify(value())); }
  /*! \brief For people: the value with its kind. */
  std::string toString() const {
    static const char* const kinds[] = {"ERR", "STR", "NUM", "LIST", "MAP"};
    return std::string("json(") + kinds[type] + ":" + (type == ERR ? "" : dump()) + ")";
  }

  JsonType type;
  int num;
  std::string str;
  std::vector<JsonVal> list;
  std::map<JsonVal, JsonVal> map;

 private:
  static JsonVal of(const tvm::ffi::json::Value& found) {
    namespace json = tvm::ffi::json;
    JsonVal made;
    if (auto text = found.as<tvm::ffi::String>()) return JsonVal(std::string(*text));
    if (auto items = found.as<json::Array>()) {
      made.type = LIST;
      for (const json::Value& each : *items) made.list.push_back(of(each));
    } else if (auto fields = found.as<json::Object>()) {
      made.type = MAP;
      for (const auto& [key, each] : *fields) made.map[of(key)] = of(each);
    } else {
      made.type = NUM;
      made.str = std::string(json::Stringify(found));
      if (auto number = found.as<int64_t>()) made.num = static_cast<int>(*number);
    }
    return made;
  }
  tvm::ffi::json::Value value() const {
    namespace json = tvm::ffi::json;
    if (type == STR) return tvm::ffi::String(str);
    if (type == NUM) return str.empty() ? json::Value(int64_t{num}) : json::Parse(str);
    if (type == LIST) {
      json::Array items;
      for (const JsonVal& each : list) items.push_back(each.value());
      return items;
    }
    if (type == ERR) throw std::runtime_error("a JsonVal without a value can't be written");
    json::Object fields;
    for (const auto& [key, each] : map) fields.Set(tvm::ffi::String(key.str), each.value());
    return fields;
  }
};

/*! \brief What sources of MXNet 1.7 parse with. */
struct JsonParser {
  JsonVal parse_to_json(const std::string& text) { return JsonVal::parse(text); }
  std::string dump(const JsonVal& value) { return value.dump(); }
  void print_json_val(const JsonVal& value) { std::cout << value.toString() << std::endl; }
};

class Node;
class Graph;

/*! \brief Of an input the node that makes it, and which of its outputs; of an output the node that
 *  reads it, and at which of its inputs. */
struct NodeEntry {
  Node* node;
  int entry;
};

/*! \brief An operator, or a variable, whose operator name is "null". */
class Node {
 public:
  void alloc_arg(const std::vector<int64_t>& shape, const MXContext& ctx, MXDType dtype) {
    tensor = resource("alloc_arg").alloc_arg(name, shape, ctx, dtype);
  }
  void alloc_aux(const std::vector<int64_t>& shape, const MXContext& ctx, MXDType dtype) {
    tensor = resource("alloc_aux").alloc_aux(name, shape, ctx, dtype);
  }
  void _setPassResource(PassResource* resource) { resource_ = resource; }

  std::string op;
  std::string name;
  /*! \brief Of a variable its value, where it is known. */
  MXTensor* tensor = nullptr;
  std::vector<NodeEntry> inputs;
  std::vector<NodeEntry> outputs;
  std::vector<Graph*> subgraphs;
  AttrMap attrs;

 private:
  const PassResource& resource(const char* what) const {
    if (resource_) return *resource_;
    throw std::runtime_error(std::string(what) + " of node " + name + ": outside of a graph pass");
  }
  PassResource* resource_ = nullptr;
};

/*! \brief Owns its nodes, and they their subgraphs. */
class Graph {
 public:
  Graph() = default;
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph() {
    for (Node* node : nodes_) {
      for (Graph* each : node->subgraphs) delete each;
      delete node;
    }
  }

  static Graph* fromString(const std::string& text) { return fromJson(JsonVal::parse(text)); }

  /*! \brief The caller owns the graph. Raises an error where entries name nodes that do not come
   *  before their reader. */
  static Graph* fromJson(const JsonVal& value) {
    auto graph = std::make_unique<Graph>();
    for (const JsonVal& item : field(value, "nodes", LIST).list) {
      Node* node = graph->addNode(field(item, "name", STR).str, field(item, "op", STR).str);
      if (node->op == "null") graph->inputs.push_back(node);
      if (item.map.count(JsonVal("attrs"))) {
        for (const auto& [key, text] : field(item, "attrs", MAP).map) node->attrs[key.str] = text.str;
      }
      if (item.map.count(JsonVal("subgraphs"))) {
        for (const JsonVal& each : field(item, "subgraphs", LIST).list) {
          node->subgraphs.push_back(fromJson(each));
        }
      }
      const size_t before = graph->nodes_.size() - 1;
      for (const JsonVal& each : field(item, "inputs", LIST).list) {
        graph->connect(node, graph->entry(each, before));
      }
    }
    for (const JsonVal& each : field(value, "heads", LIST).list) {
      graph->outputs.push_back(graph->entry(each, graph->nodes_.size()));
    }
    static const std::set<std::string> parts = {"nodes", "heads", "arg_nodes", "node_row_ptr"};
    for (const auto& [key, each] : value.map) {
      if (!parts.count(key.str)) graph->attrs[key.str] = each;
    }
    return graph.release();
  }

  /*! \brief Raises an error where nodes feed each other in a circle. */
  JsonVal toJson() const {
    JsonVal value(MAP), items(LIST), heads(LIST), variables(LIST);
    for (const auto& [key, each] : attrs) value.map[JsonVal(key)] = each;
    std::map<const Node*, int> place;
    for (const Node* node : ordered()) {
      const int index = static_cast<int>(place.size());
      place[node] = index;
      if (node->op == "null") variables.list.push_back(JsonVal(index));
      JsonVal item(MAP), entries(LIST), texts(MAP), bodies(LIST);
      for (const NodeEntry& each : node->inputs) entries.list.push_back(triple(each, place));
      for (const auto& [key, text] : node->attrs) texts.map[JsonVal(key)] = JsonVal(text);
      for (const Graph* each : node->subgraphs) bodies.list.push_back(each->toJson());
      item.map[JsonVal("op")] = JsonVal(node->op);
      item.map[JsonVal("name")] = JsonVal(node->name);
      item.map[JsonVal("inputs")] = std::move(entries);
      item.map[JsonVal("attrs")] = std::move(texts);
      if (!bodies.list.empty()) item.map[JsonVal("subgraphs")] = std::move(bodies);
      items.list.push_back(std::move(item));
    }
    for (const NodeEntry& each : outputs) heads.list.push_back(triple(each, place));
    value.map[JsonVal("nodes")] = std::move(items);
    value.map[JsonVal("heads")] = std::move(heads);
    value.map[JsonVal("arg_nodes")] = std::move(variables);
    return value;
  }
  std::string toString() const { return toJson().dump(); }

  /*! \brief Calls the handler for every node, after all that read it. */
  void DFS(std::function<void(Node*)> handler) const {
    std::vector<Node*> order = ordered();
    std::for_each(order.rbegin(), order.rend(), handler);
  }
  /*! \brief The nodes, readers first: the last one reads nothing. */
  std::vector<Node*> topological_sort() const {
    std::vector<Node*> order = ordered();
    std::reverse(order.begin(), order.end());
    return order;
  }

  void print(int indent = 0) const {
    const std::string space(indent, ' ');
    std::cout << space << "graph of " << nodes_.size() << " nodes, " << inputs.size()
              << " inputs, " << outputs.size() << " outputs\n";
    for (const Node* node : ordered()) {
      std::cout << space << "  " << node->op << " " << node->name << " <-";
      for (const NodeEntry& each : node->inputs) {
        std::cout << " " << each.node->name << ":" << each.entry;
      }
      std::cout << "\n";
      for (const Graph* each : node->subgraphs) each->print(indent + 4);
    }
    std::cout << std::flush;
  }

  Node* addNode(const std::string& name, const std::string& op) {
    nodes_.push_back(new Node());
    nodes_.back()->name = name;
    nodes_.back()->op = op;
    nodes_.back()->_setPassResource(resource_);
    return nodes_.back();
  }
  Node* getNode(size_t index) { return nodes_.at(index); }
  const Node* getNode(size_t index) const { return nodes_.at(index); }
  const JsonVal& getAttr(const std::string& key) const { return attrs.at(key); }
  size_t size() const { return nodes_.size(); }

  /*! \brief Lets `node` read one more entry. */
  void connect(Node* node, NodeEntry from) {
    from.node->outputs.push_back({node, static_cast<int>(node->inputs.size())});
    node->inputs.push_back(from);
  }
  void _setPassResource(PassResource* resource) {
    resource_ = resource;
    for (Node* node : nodes_) node->_setPassResource(resource);
  }
  /*! \brief Gives variables their values: by the name of the argument that they stand for, if they
   *  say one, else by their own. */
  void _setParams(std::unordered_map<std::string, MXTensor>* args,
                  std::unordered_map<std::string, MXTensor>* aux) {
    for (Node* node : inputs) {
      auto named = node->attrs.find("argName");
      if (named == node->attrs.end() && node->attrs.count("isArg")) continue;
      const std::string& name = named == node->attrs.end() ? node->name : named->second;
      for (auto* values : {args, aux}) {
        auto found = values->find(name);
        if (found != values->end()) node->tensor = &found->second;
      }
    }
  }

  std::vector<Node*> inputs;
  std::vector<NodeEntry> outputs;
  std::map<std::string, JsonVal> attrs;

 private:
  static const JsonVal& field(const JsonVal& value, const char* key, JsonType type) {
    auto found = value.map.find(JsonVal(key));
    if (value.type == MAP && found != value.map.end() && found->second.type == type) {
      return found->second;
    }
    throw std::runtime_error(std::string("graph JSON: '") + key + "' is missing or of another kind");
  }
  NodeEntry entry(const JsonVal& triple, size_t bound) const {
    const bool fits = triple.list.size() >= 2 && triple.list[0].num >= 0 &&
                      static_cast<size_t>(triple.list[0].num) < bound && triple.list[1].num >= 0;
    if (!fits) throw std::runtime_error("graph JSON: an entry names a node that is not there");
    return {nodes_[triple.list[0].num], triple.list[1].num};
  }
  static JsonVal triple(const NodeEntry& entry, const std::map<const Node*, int>& place) {
    JsonVal value(LIST);
    auto found = place.find(entry.node);
    if (found == place.end()) throw std::runtime_error("an output of the graph is not a node of it");
    for (int number : {found->second, entry.entry, 0}) value.list.push_back(JsonVal(number));
    return value;
  }
  /*! \brief The nodes, those that others read first, else in the order in which they were added. */
  std::vector<Node*> ordered() const {
    std::vector<Node*> order;
    std::map<const Node*, bool> done;  // false while the inputs are visited
    for (Node* root : nodes_) {
      std::vector<std::pair<Node*, size_t>> path;
      if (done.emplace(root, false).second) path.push_back({root, 0});
      while (!path.empty()) {
        auto& [node, next] = path.back();
        if (next == node->inputs.size()) {
          done[node] = true;
          order.push_back(node);
          path.pop_back();
          continue;
        }
        Node* before = node->inputs[next++].node;
        if (!before) throw std::runtime_error("node " + node->name + ": an input has no node");
        auto [known, is_new] = done.emplace(before, false);
        if (is_new) path.push_back({before, 0});
        else if (!known->second) throw std::runtime_error("node " + before->name + " feeds itself");
      }
    }
    return order;
  }

  std::vector<Node*> nodes_;
  PassResource* resource_ = nullptr;
};

inline std::string getShapeAt(const std::string& shapes, unsigned index) {
  size_t start = shapes.find('[', 1);
  for (unsigned i = 0; i < index && start != std::string::npos; ++i) {
    start = shapes.find('[', start + 1);
  }
  if (start == std::string::npos) return "";
  return shapes.substr(start, shapes.find(']', start) + 1 - start);
}

inline std::string getDtypeAt(const std::string& dtypes, unsigned index) {
  std::stringstream items(dtypes.substr(std::min<size_t>(1, dtypes.size())));
  std::string item;
  for (unsigned i = 0; i <= index; ++i) {
    if (!std::getline(items, item, ',')) return "";
  }
  return item.substr(0, item.find(']'));
}

}  // namespace ext
}  // namespace mxnet

#endif  // MXNET_LIB_API_GRAPH_H_
