/*!
 * \file mxnet/lib_api_graph.h
 * \brief Graphs and JSON of MXNet's library interface; part of mxnet/lib_api.h.
 */
#ifndef MXNET_LIB_API_GRAPH_H_
#define MXNET_LIB_API_GRAPH_H_

MX_QUICKLY_COMPILED
namespace mxnet {
namespace ext {

enum JsonType { ERR, STR, NUM, LIST, MAP };

/*! \brief A value of JSON. Numbers are integers; `str` has their text too. */
struct JsonVal {
  JsonVal() : JsonVal(ERR, -1, "") {}
  explicit JsonVal(JsonType kind) : JsonVal(kind, -1, "") {}
  explicit JsonVal(std::string text) : JsonVal(STR, -1, std::move(text)) {}
  explicit JsonVal(int number) : JsonVal(NUM, number, std::to_string(number)) {}
  MX_CALLED JsonVal(JsonType kind, int number, std::string text)
      : type(kind), num(number), str(std::move(text)) {}

  MX_CALLED ~JsonVal() = default;
  MX_CALLED JsonVal(const JsonVal&) = default;
  MX_CALLED JsonVal(JsonVal&&) = default;
  MX_CALLED JsonVal& operator=(const JsonVal&) = default;
  MX_CALLED JsonVal& operator=(JsonVal&&) = default;

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

  /*! \brief An integer of any size; `num` is its low 32 bits. */
  static JsonVal integer(int64_t number) {
    return JsonVal(NUM, static_cast<int>(number), std::to_string(number));
  }
  int64_t integer() const { return std::stoll(str); }
  /*! \brief The value of a field; throws if there is none. */
  const JsonVal& at(const char* key) const {
    auto found = map.find(JsonVal(std::string(key)));
    if (found == map.end()) throw std::runtime_error(std::string("JSON: no field ") + key);
    return found->second;
  }

  /*! \brief Raises an error for a text that is not JSON. */
  static JsonVal parse(const std::string& text) { return Reader(text).all(); }

  /*! \brief The value as JSON text. */
  std::string dump() const {
    std::string text;
    write(&text);
    return text;
  }
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
  void write(std::string* text) const {
    if (type == ERR) throw std::runtime_error("a JsonVal without a value can't be written");
    if (type == NUM) *text += str.empty() ? std::to_string(num) : str;
    if (type == STR) write(str, text);
    if (type == LIST) {
      *text += '[';
      for (const JsonVal& each : list) {
        if (&each != &list[0]) *text += ',';
        each.write(text);
      }
      *text += ']';
    }
    if (type == MAP) {
      *text += '{';
      for (const auto& each : map) {
        if (text->back() != '{') *text += ',';
        write(each.first.str, text);
        *text += ':';
        each.second.write(text);
      }
      *text += '}';
    }
  }
  static void write(const std::string& from, std::string* text) {
    static const char* const digits = "0123456789abcdef";
    *text += '"';
    for (char each : from) {
      if (each == '"' || each == '\\') *text += '\\';
      if (static_cast<unsigned char>(each) < 0x20) {
        *text += "\\u00";
        *text += digits[each >> 4];
        each = digits[each & 15];
      }
      *text += each;
    }
    *text += '"';
  }

  /*! \brief A recursive-descent parser. */
  class Reader {
   public:
    explicit Reader(const std::string& text) : text_(text) {}
    JsonVal all() {
      JsonVal found = value(0);
      if (next() != '\0' || at_ < text_.size()) fail("more than one value");
      return found;
    }

   private:
    void fail(const char* what) const {
      throw std::runtime_error("not JSON: " + std::string(what) + " at character " +
                               std::to_string(at_));
    }
    /*! \brief The next character that is no space; 0 at the end. */
    char next() {
      at_ = std::min(text_.find_first_not_of(" \t\r\n", at_), text_.size());
      return at_ < text_.size() ? text_[at_] : '\0';
    }
    void expect(char wanted) {
      if (next() != wanted) fail((std::string("no '") + wanted + "'").c_str());
      ++at_;
    }
    bool skip(char optional) {
      if (next() != optional) return false;
      ++at_;
      return true;
    }
    JsonVal value(int depth) {
      if (depth > 1000) fail("more than 1000 nested values");
      if (next() == '"') return JsonVal(string());
      if (skip('[')) {
        JsonVal made(LIST);
        while (!skip(']')) {
          if (!made.list.empty()) expect(',');
          made.list.push_back(value(depth + 1));
        }
        return made;
      }
      if (skip('{')) {
        JsonVal made(MAP);
        while (!skip('}')) {
          if (!made.map.empty()) expect(',');
          if (next() != '"') fail("no name of a field");
          JsonVal key(string());
          expect(':');
          made.map[key] = value(depth + 1);
        }
        return made;
      }
      return word();
    }
    /*! \brief A number, true, false or null, whose text is kept. */
    JsonVal word() {
      const size_t end = std::min(text_.find_first_of(" \t\r\n,]}", at_), text_.size());
      const std::string found = text_.substr(at_, end - at_);
      const bool is_name = found == "true" || found == "false" || found == "null";
      char* rest = nullptr;
      const bool is_plain = found.find_first_not_of("0123456789+-.eE") == std::string::npos;
      if (!is_name && is_plain) strtod(found.c_str(), &rest);
      if (!is_name && (found.empty() || !rest || *rest)) fail("no value");
      at_ = end;
      const bool is_integer = found.find_first_not_of("-0123456789") == std::string::npos;
      return JsonVal(NUM, is_integer ? static_cast<int>(strtoll(found.c_str(), nullptr, 10)) : -1,
                     found);
    }
    std::string string() {
      std::string made;
      for (++at_; at_ < text_.size() && text_[at_] != '"'; ++at_) {
        if (text_[at_] != '\\') {
          made += text_[at_];
          continue;
        }
        const char code = ++at_ < text_.size() ? text_[at_] : '\0';
        static const std::string names = "\"\\/bfnrt", values = "\"\\/\b\f\n\r\t";
        const size_t known = names.find(code);
        if (code == 'u') {
          append(unicode(), &made);
        } else if (code != '\0' && known != std::string::npos) {
          made += values[known];
        } else {
          fail("an unknown escape");
        }
      }
      if (at_ >= text_.size()) fail("a text without an end");
      ++at_;
      return made;
    }
    /*! \brief The character of \\uXXXX, or of a surrogate pair; ends at its last digit. */
    unsigned unicode() {
      const unsigned high = hex();
      const bool is_pair = high >= 0xd800 && high < 0xdc00 && text_.compare(at_ + 1, 2, "\\u") == 0;
      if (!is_pair) return high;
      at_ += 2;
      return 0x10000 + ((high - 0xd800) << 10) + ((hex() - 0xdc00) & 0x3ff);
    }
    unsigned hex() {
      const std::string digits = text_.substr(std::min(at_ + 1, text_.size()), 4);
      const bool fits = digits.size() == 4 &&
                        digits.find_first_not_of("0123456789abcdefABCDEF") == std::string::npos;
      if (!fits) fail("an unknown escape");
      at_ += 4;
      return static_cast<unsigned>(std::stoul(digits, nullptr, 16));
    }
    /*! \brief Adds a character in UTF-8. */
    static void append(unsigned character, std::string* made) {
      static const unsigned char leads[] = {0, 0xc0, 0xe0, 0xf0};
      const int more = character < 0x80 ? 0 : character < 0x800 ? 1 : character < 0x10000 ? 2 : 3;
      *made += static_cast<char>(leads[more] | (character >> (6 * more)));
      for (int i = more - 1; i >= 0; --i) {
        *made += static_cast<char>(0x80 | ((character >> (6 * i)) & 0x3f));
      }
    }

    const std::string& text_;
    size_t at_ = 0;
  };
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
    std::unique_ptr<Graph> graph(new Graph());
    for (const JsonVal& item : field(value, "nodes", LIST).list) {
      Node* node = graph->addNode(field(item, "name", STR).str, field(item, "op", STR).str);
      if (node->op == "null") graph->inputs.push_back(node);
      if (item.map.count(JsonVal("attrs"))) {
        for (const auto& each : field(item, "attrs", MAP).map) {
          node->attrs[each.first.str] = each.second.str;
        }
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
    graph->attrs = attributes(value);
    return graph.release();
  }

  /*! \brief Raises an error where nodes feed each other in a circle. */
  JsonVal toJson() const {
    JsonVal value(MAP), items(LIST), heads(LIST), variables(LIST);
    for (const auto& each : attrs) value.map[JsonVal(each.first)] = each.second;
    std::map<const Node*, int> place;
    for (const Node* node : ordered()) {
      const int index = static_cast<int>(place.size());
      place[node] = index;
      if (node->op == "null") variables.list.push_back(JsonVal(index));
      JsonVal item(MAP), entries(LIST), texts(MAP), bodies(LIST);
      for (const NodeEntry& each : node->inputs) entries.list.push_back(triple(each, place));
      for (const auto& each : node->attrs) texts.map[JsonVal(each.first)] = JsonVal(each.second);
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
  /*! \brief With shapes and types under their names until 1.7, of the first output of each node. */
  std::string toText1_6() const {
    std::unique_ptr<Graph> copy(fromJson(toJson()));
    for (Node* node : copy->nodes_) {
      for (const char* key : {"shape", "dtype"}) {
        auto found = node->attrs.find(std::string("__ext_") + key + "__");
        if (found == node->attrs.end()) continue;
        const std::string first =
            *key == 's' ? getShapeAt(found->second, 0) : getDtypeAt(found->second, 0);
        node->attrs.emplace(key, first);
        node->attrs.emplace(std::string("__") + key + "__", first);
      }
    }
    return copy->toString();
  }

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
  /*! \brief The fields of a graph that are no part of its structure. */
  static std::map<std::string, JsonVal> attributes(const JsonVal& value) {
    std::map<std::string, JsonVal> found;
    for (const auto& each : value.map) found[each.first.str] = each.second;
    for (const char* part : {"nodes", "heads", "arg_nodes", "node_row_ptr"}) found.erase(part);
    return found;
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
    std::vector<Node*> order, path;
    std::map<const Node*, int> next;  // input to visit next; -1 of nodes in `order`
    for (Node* root : nodes_) {
      if (next.emplace(root, 0).second) path.push_back(root);
      while (!path.empty()) {
        Node* node = path.back();
        int& input = next[node];
        if (input == static_cast<int>(node->inputs.size())) {
          input = -1;
          order.push_back(node);
          path.pop_back();
          continue;
        }
        Node* before = node->inputs[input++].node;
        if (!before) throw std::runtime_error("node " + node->name + ": an input has no node");
        const auto known = next.emplace(before, 0);
        if (known.second) path.push_back(before);
        else if (known.first->second >= 0) throw std::runtime_error("node " + before->name + " feeds itself");
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
MX_AS_ASKED_FOR

#endif  // MXNET_LIB_API_GRAPH_H_
