/*!
 * \file baton/partitioner.h
 * \brief Partitioners in a shared library that Baton loads at run time.
 *
 * A library is built against this header and libtvm_ffi (`tvm-ffi-config`), nothing else of TVM or
 * Baton. It registers partitioners at namespace level:
 *
 *   BATON_REGISTER_PARTITIONER("exp_log")
 *       .add(baton::Strategy("by_name", "exp_log_op").supported_ops(claim).review(accept));
 *
 * Callbacks may throw anything; the error reaches the caller of `partition` with its text, and
 * the module stays as it was. What each callback may do is written in docs/partitioner.md.
 * GCC or Clang, C++17.
 */
#ifndef BATON_PARTITIONER_H_
#define BATON_PARTITIONER_H_

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/map.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/json.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/string.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

/*! \brief Version of the interface between a library and Baton; both must have the same. */
#define BATON_ABI_VERSION 2

namespace baton {

/*! \brief Options of a `partition` call. */
using Options = std::map<std::string, std::string>;
/*! \brief Attributes of a node or of an accepted subgraph. */
using Attrs = std::map<std::string, std::string>;

/*! \brief Marks of supported_ops: outside every subgraph, or in any; else a number from 0 up. */
constexpr int64_t kUnmarked = -2;
constexpr int64_t kAny = -1;

/*! \brief One output of a node. */
struct Entry {
  int64_t node;
  int64_t output;
};

class Graph;

/*! \brief One operator, or a variable, whose operator name is "null". */
struct Node {
  std::string op;
  std::string name;
  Attrs attrs;
  std::vector<Entry> inputs;
  /*! \brief Nodes that read an output of this one, ascending, each once. */
  std::vector<int64_t> readers;
  /*! \brief Of a node of a symbol that stands for subgraphs: what it computes. */
  std::vector<Graph> subgraphs;

  bool is_variable() const { return op == "null"; }
  /*! \brief An attribute, or `fallback` if the node has none of that name. */
  std::string attr(const std::string& key, const std::string& fallback = "") const {
    auto found = attrs.find(key);
    return found == attrs.end() ? fallback : found->second;
  }
};

/*! \brief Nodes in topological order; the position of a node is its id. */
class Graph {
 public:
  std::vector<Node> nodes;
  std::vector<Entry> heads;

  /*! \brief The graph of a JSON text as Baton hands it to callbacks. */
  static Graph parse(const std::string& text) {
    namespace json = tvm::ffi::json;
    tvm::ffi::String problem;
    json::Value root = json::Parse(tvm::ffi::String(text), &problem);
    if (problem.size() != 0) throw std::runtime_error("graph JSON: " + std::string(problem));
    return of(root.cast<json::Object>());
  }

 private:
  static Graph of(const tvm::ffi::json::Object& object) {
    namespace json = tvm::ffi::json;
    Graph graph;
    for (const json::Value& value : object["nodes"].cast<json::Array>()) {
      json::Object fields = value.cast<json::Object>();
      Node node;
      node.op = fields["op"].cast<std::string>();
      node.name = fields["name"].cast<std::string>();
      if (fields.count("attrs")) {
        for (const auto& [key, text] : fields["attrs"].cast<json::Object>()) {
          node.attrs[key.cast<std::string>()] = text.cast<std::string>();
        }
      }
      if (fields.count("subgraphs")) {
        for (const json::Value& inner : fields["subgraphs"].cast<json::Array>()) {
          node.subgraphs.push_back(of(inner.cast<json::Object>()));
        }
      }
      node.inputs = entries(fields["inputs"].cast<json::Array>());
      int64_t id = static_cast<int64_t>(graph.nodes.size());
      for (const Entry& input : node.inputs) {
        std::vector<int64_t>& readers = graph.nodes.at(input.node).readers;
        if (readers.empty() || readers.back() != id) readers.push_back(id);
      }
      graph.nodes.push_back(std::move(node));
    }
    graph.heads = entries(object["heads"].cast<json::Array>());
    return graph;
  }

  static std::vector<Entry> entries(const tvm::ffi::json::Array& pairs) {
    std::vector<Entry> found;
    for (const tvm::ffi::json::Value& pair : pairs) {
      tvm::ffi::json::Array numbers = pair.cast<tvm::ffi::json::Array>();
      found.push_back({numbers[0].cast<int64_t>(), numbers[1].cast<int64_t>()});
    }
    return found;
  }
};

/*! \brief Elements to read: contiguous, on the CPU, valid during the call. */
class Tensor {
 public:
  explicit Tensor(tvm::ffi::Tensor tensor) : tensor_(std::move(tensor)) {}

  std::vector<int64_t> shape() const {
    return std::vector<int64_t>(tensor_.shape().begin(), tensor_.shape().end());
  }
  int64_t size() const { return tensor_.numel(); }
  /*! \brief Name of the type, e.g. "float32". */
  std::string dtype() const { return std::string(tvm::ffi::DLDataTypeToString(tensor_.dtype())); }
  /*! \brief The elements; throws if T does not have their number of bits. */
  template <typename T>
  const T* data() const {
    return static_cast<const T*>(checked(8 * sizeof(T)));
  }
  /*! \brief The tensor as DLPack describes it, valid as long as this object. */
  const DLTensor* dlpack() const { return tensor_.GetDLTensorPtr(); }

 protected:
  void* checked(size_t bits) const {
    if (tensor_.dtype().bits != bits || tensor_.dtype().lanes != 1) {
      throw std::runtime_error("the tensor holds " + dtype() + ", taken for another type");
    }
    return tensor_.data_ptr();
  }

 private:
  tvm::ffi::Tensor tensor_;
};

/*! \brief Elements to write. */
class Output : public Tensor {
 public:
  using Tensor::Tensor;
  template <typename T>
  T* data() const {
    return static_cast<T*>(checked(8 * sizeof(T)));
  }
};

/*! \brief Values of parameters by name. Each is fetched when it is asked for, all by iterating. */
class Tensors {
 public:
  using Map = std::map<std::string, Tensor>;
  using Iterator = Map::const_iterator;
  /*! \brief The function returns a map of those of the names it is given, or of all. */
  explicit Tensors(tvm::ffi::Function fetch) : fetch_(std::move(fetch)) {}

  Iterator find(const std::string& name) const {
    if (!has_all_ && !known_.count(name)) add(fetch_(tvm::ffi::String(name)));
    return known_.find(name);
  }
  size_t count(const std::string& name) const { return find(name) == known_.end() ? 0 : 1; }
  const Tensor& at(const std::string& name) const {
    auto found = find(name);
    if (found == known_.end()) throw std::out_of_range("no parameter is named " + name);
    return found->second;
  }
  Iterator begin() const { return all().begin(); }
  Iterator end() const { return known_.end(); }
  size_t size() const { return all().size(); }

 private:
  const Map& all() const {
    if (!has_all_) add(fetch_());
    has_all_ = true;
    return known_;
  }
  void add(tvm::ffi::Any found) const {
    using Found = tvm::ffi::Map<tvm::ffi::String, tvm::ffi::Tensor>;
    for (const auto& [name, value] : found.cast<Found>()) {
      known_.emplace(std::string(name), Tensor(value));
    }
  }

  tvm::ffi::Function fetch_;
  mutable Map known_;
  mutable bool has_all_ = false;
};

/*! \brief What a review callback looks at and says. */
struct Review {
  const Graph& subgraph;
  /*! \brief Number of the subgraph among the candidates of its strategy. */
  int64_t id;
  const Options& options;
  /*! \brief Known values of all parameters; the subgraph's variables name theirs ("argName"). */
  const Tensors& args;
  const Tensors& aux;
  /*! \brief Becomes attributes of an accepted subgraph; a rejection may put a "reason" here. */
  Attrs& attrs;
};

/*! \brief What a compile callback gets of an accepted subgraph. */
struct Compilation {
  const Graph& subgraph;
  /*! \brief Variables of the subgraph that an engine gets as its inputs, in this order. */
  const std::vector<int64_t>& inputs;
  /*! \brief Values of its other variables, constants among them, by the names of their nodes. */
  const Tensors& params;
  /*! \brief What the review callback set. */
  const Attrs& attrs;
  const Options& options;
};

/*! \brief What travels in the library that Baton builds, from a compile callback to its engine. */
struct Code {
  std::string bytes;
  Attrs attrs;
  Options options;
};

/*! \brief Runs a compiled subgraph. Several threads may call `run` at once. */
class Engine {
 public:
  virtual ~Engine() = default;
  /*! \brief Computes the outputs, in the order of the subgraph's heads, from the inputs. */
  virtual void run(const std::vector<Tensor>& inputs, const std::vector<Output>& outputs) = 0;
};

/*! \brief Grows subgraphs node by node; see compiler.partition.Selector for the rules. */
class Selector {
 public:
  virtual ~Selector() = default;
  virtual bool select(int64_t node) = 0;
  virtual bool select_input(int64_t node, int64_t input_node) {
    (void)node, (void)input_node;
    return false;
  }
  virtual bool select_output(int64_t node, int64_t output_node) {
    (void)node, (void)output_node;
    return false;
  }
  virtual std::vector<int64_t> filter(const std::vector<int64_t>& candidates) {
    return candidates;
  }
  virtual void reset() {}
};

/*! \brief Marks nodes: `ids` has one kUnmarked per node. */
using SupportedOps = std::function<void(const Graph&, std::vector<int64_t>& ids, const Options&)>;
/*! \brief Returns why a node can be in no subgraph, or "" if it can be in any. */
using Check = std::function<std::string(const Graph&, int64_t node, const Options&)>;
using MakeSelector = std::function<std::unique_ptr<Selector>(const Graph&, const Options&)>;
using ReviewSubgraph = std::function<bool(Review&)>;
/*! \brief Returns the reason why it refuses the options, or "". */
using CheckOptions = std::function<std::string(const Options&)>;
/*! \brief Returns code, any bytes, of which `MakeEngine` makes an engine in the process that runs. */
using Compile = std::function<std::string(const Compilation&)>;
using MakeEngine = std::function<std::unique_ptr<Engine>(const Code&)>;

/*! \brief One pass over the graph; with one of supported_ops, a check and a selector. */
class Strategy {
 public:
  explicit Strategy(std::string name, std::string subgraph_op = "_custom_subgraph_op")
      : name_(std::move(name)), subgraph_op_(std::move(subgraph_op)) {}

  Strategy& supported_ops(SupportedOps callback) {
    supported_ops_ = std::move(callback);
    return *this;
  }
  /*! \brief Called for each operator; its reasons are shown by `baton partition --explain`. */
  Strategy& check(Check callback) {
    check_ = std::move(callback);
    return *this;
  }
  Strategy& selector(MakeSelector callback) {
    selector_ = std::move(callback);
    return *this;
  }
  Strategy& review(ReviewSubgraph callback) {
    review_ = std::move(callback);
    return *this;
  }

 private:
  friend struct Library;
  std::string name_, subgraph_op_;
  SupportedOps supported_ops_;
  Check check_;
  MakeSelector selector_;
  ReviewSubgraph review_;
};

/*! \brief A name and its strategies, which run in the order they were added. */
class Partitioner {
 public:
  explicit Partitioner(std::string name) : name_(std::move(name)) {}

  Partitioner& add(Strategy strategy) {
    strategies_.push_back(std::move(strategy));
    return *this;
  }
  Partitioner& check_options(CheckOptions callback) {
    check_options_ = std::move(callback);
    return *this;
  }
  /*! \brief Compiles and runs accepted subgraphs in place of Baton. */
  Partitioner& compile(Compile compile, MakeEngine engine) {
    compile_ = std::move(compile);
    engine_ = std::move(engine);
    return *this;
  }

 private:
  friend struct Library;
  std::string name_;
  std::vector<Strategy> strategies_;
  CheckOptions check_options_;
  Compile compile_;
  MakeEngine engine_;
};

/*! \brief What this library registered, and the entry points through which Baton calls it. */
struct Library {
  std::vector<std::unique_ptr<Partitioner>> partitioners;
  /*! \brief Gets Baton's version as 10000 * major + 100 * minor + patch. */
  std::function<std::string(int64_t)> initialize;

  // Hidden: the partitioners of two libraries in one process must never be mixed up.
  __attribute__((visibility("hidden"))) static Library& get() {
    static Library library;
    return library;
  }

  Partitioner& add(std::string name) {
    partitioners.push_back(std::make_unique<Partitioner>(std::move(name)));
    return *partitioners.back();
  }

  using Map = tvm::ffi::Map<tvm::ffi::String, tvm::ffi::String>;
  using Fetch = tvm::ffi::Function;
  using List = tvm::ffi::Array<tvm::ffi::Any>;

  /*! \brief Per partitioner its name, whether it checks options and compiles, its strategies. */
  List describe() const {
    List all;
    for (const auto& partitioner : partitioners) {
      List strategies;
      for (const Strategy& each : partitioner->strategies_) {
        strategies.push_back(List{tvm::ffi::String(each.name_), tvm::ffi::String(each.subgraph_op_),
                                  each.supported_ops_ || each.check_,
                                  static_cast<bool>(each.selector_),
                                  static_cast<bool>(each.review_)});
      }
      all.push_back(List{tvm::ffi::String(partitioner->name_),
                         static_cast<bool>(partitioner->check_options_),
                         static_cast<bool>(partitioner->compile_), strategies});
    }
    return all;
  }

  std::string check_options(int64_t partitioner, const Map& options) const {
    return partitioners.at(partitioner)->check_options_(plain(options));
  }

  /*! \brief A mark for each node, or the text of a reason. */
  List supported_ops(int64_t partitioner, int64_t strategy, const std::string& text,
                     const Map& options) const {
    Graph graph = Graph::parse(text);
    const Strategy& chosen = at(partitioner, strategy);
    std::vector<int64_t> ids(graph.nodes.size(), kUnmarked);
    if (!chosen.check_) {
      chosen.supported_ops_(graph, ids, plain(options));
      return List(ids.begin(), ids.end());
    }
    Options given = plain(options);
    List marks;
    for (size_t id = 0; id < graph.nodes.size(); ++id) {
      std::string reason;
      bool asked = !graph.nodes[id].is_variable();
      if (asked) reason = chosen.check_(graph, static_cast<int64_t>(id), given);
      if (reason.empty()) {
        marks.push_back(asked ? kAny : kUnmarked);
      } else {
        marks.push_back(tvm::ffi::String(reason));
      }
    }
    return marks;
  }

  List review(int64_t partitioner, int64_t strategy, const std::string& text, int64_t id,
              const Map& options, const Fetch& args, const Fetch& aux) const {
    Graph graph = Graph::parse(text);
    Options given = plain(options);
    Tensors arguments(args), auxiliary(aux);
    Attrs attrs;
    Review review{graph, id, given, arguments, auxiliary, attrs};
    bool accepted = at(partitioner, strategy).review_(review);
    Map set;
    for (const auto& [key, value] : attrs) set.Set(key, value);
    return List{accepted, set};
  }

  tvm::ffi::Bytes compile(int64_t partitioner, const std::string& text,
                          const tvm::ffi::Array<int64_t>& inputs, const Fetch& params,
                          const Map& attrs, const Map& options) const {
    Graph graph = Graph::parse(text);
    std::vector<int64_t> variables(inputs.begin(), inputs.end());
    Tensors values(params);
    return tvm::ffi::Bytes(partitioners.at(partitioner)
                               ->compile_({graph, variables, values, plain(attrs), plain(options)}));
  }

  /*! \brief The function that runs an engine, which lives as long; gets inputs and outputs. */
  tvm::ffi::Function engine(int64_t partitioner, const tvm::ffi::Bytes& code, const Map& attrs,
                            const Map& options) const;

  /*! \brief The methods of a new selector, which lives as long as one of them. */
  List selector(int64_t partitioner, int64_t strategy, const std::string& text,
                const Map& options) const;

 private:
  const Strategy& at(int64_t partitioner, int64_t strategy) const {
    return partitioners.at(partitioner)->strategies_.at(strategy);
  }
  static Options plain(const Map& map) {
    Options found;
    for (const auto& [key, value] : map) found[std::string(key)] = std::string(value);
    return found;
  }
};

/*! \brief Runs user code; what it throws that is not a std::exception becomes one. */
template <typename Call>
auto guarded(Call call) -> decltype(call()) {
  try {
    return call();
  } catch (const std::exception&) {
    throw;
  } catch (...) {
    throw std::runtime_error("an exception that is not a std::exception");
  }
}

inline Library::List Library::selector(int64_t partitioner, int64_t strategy,
                                       const std::string& text, const Map& options) const {
  using tvm::ffi::Function;
  std::shared_ptr<Selector> made =
      at(partitioner, strategy).selector_(Graph::parse(text), plain(options));
  if (!made) throw std::runtime_error("the selector callback returned a null pointer");
  return List{
      Function::FromTyped([made](int64_t node) -> bool {
        return guarded([&] { return made->select(node); });
      }),
      Function::FromTyped([made](int64_t node, int64_t other) -> bool {
        return guarded([&] { return made->select_input(node, other); });
      }),
      Function::FromTyped([made](int64_t node, int64_t other) -> bool {
        return guarded([&] { return made->select_output(node, other); });
      }),
      Function::FromTyped([made](const tvm::ffi::Array<int64_t>& nodes) {
        std::vector<int64_t> candidates(nodes.begin(), nodes.end());
        std::vector<int64_t> kept = guarded([&] { return made->filter(candidates); });
        return tvm::ffi::Array<int64_t>(kept.begin(), kept.end());
      }),
      Function::FromTyped([made]() { guarded([&] { return made->reset(); }); }),
  };
}

inline tvm::ffi::Function Library::engine(int64_t partitioner, const tvm::ffi::Bytes& code,
                                          const Map& attrs, const Map& options) const {
  std::shared_ptr<Engine> made = partitioners.at(partitioner)
                                     ->engine_({std::string(code.data(), code.size()),
                                                plain(attrs), plain(options)});
  if (!made) throw std::runtime_error("the engine callback returned a null pointer");
  using Tensors = tvm::ffi::Array<tvm::ffi::Tensor>;
  return tvm::ffi::Function::FromTyped([made](const Tensors& inputs, const Tensors& outputs) {
    guarded([&] {
      made->run(std::vector<Tensor>(inputs.begin(), inputs.end()),
                std::vector<Output>(outputs.begin(), outputs.end()));
    });
  });
}

/*! \brief Calls a function with the arguments of a foreign call; errors go back as TVM errors. */
template <typename Callable>
int enter(const TVMFFIAny* args, int32_t count, TVMFFIAny* result, Callable callable) {
  TVM_FFI_SAFE_CALL_BEGIN();
  tvm::ffi::Function function = tvm::ffi::Function::FromTyped(std::move(callable));
  tvm::ffi::Any returned;
  guarded([&] {
    function.CallPacked(reinterpret_cast<const tvm::ffi::AnyView*>(args), count, &returned);
  });
  *reinterpret_cast<tvm::ffi::Any*>(result) = std::move(returned);
  TVM_FFI_SAFE_CALL_END();
}

}  // namespace baton

#define BATON_CONCAT_(a, b) a##b
#define BATON_CONCAT(a, b) BATON_CONCAT_(a, b)

/*! \brief Registers a partitioner; chain `.add(strategy)` and `.check_options(callback)`. */
#define BATON_REGISTER_PARTITIONER(name)                                                   \
  [[maybe_unused]] static ::baton::Partitioner& BATON_CONCAT(baton_partitioner_, __COUNTER__) = \
      ::baton::Library::get().add(name)

/*! \brief Defines what runs first: `BATON_INITIALIZE(version) { return ""; }`, or the reason why
 *  the library does not work with that version of Baton. */
#define BATON_INITIALIZE(version)                                              \
  static std::string baton_initialize(int64_t version);                        \
  [[maybe_unused]] static const bool baton_has_initialize =                    \
      (::baton::Library::get().initialize = baton_initialize, true);           \
  static std::string baton_initialize([[maybe_unused]] int64_t version)

// Weak, so that several files of one library may include this header.
#define BATON_ENTRY(Name, ...)                                                               \
  extern "C" __attribute__((weak, used, visibility("default"))) int __tvm_ffi_baton_##Name(     \
      void*, const TVMFFIAny* args, int32_t count, TVMFFIAny* result) {                         \
    return ::baton::enter(args, count, result, __VA_ARGS__);                                         \
  }

BATON_ENTRY(abi_version, ([]() -> int64_t { return BATON_ABI_VERSION; }))
BATON_ENTRY(initialize, ([](int64_t version) -> std::string {
              const auto& initialize = ::baton::Library::get().initialize;
              return initialize ? initialize(version) : std::string();
            }))
BATON_ENTRY(describe, ([]() { return ::baton::Library::get().describe(); }))
BATON_ENTRY(check_options, ([](int64_t partitioner, const ::baton::Library::Map& options) {
              return ::baton::Library::get().check_options(partitioner, options);
            }))
BATON_ENTRY(supported_ops, ([](int64_t partitioner, int64_t strategy, const std::string& graph,
                               const ::baton::Library::Map& options) {
              return ::baton::Library::get().supported_ops(partitioner, strategy, graph, options);
            }))
BATON_ENTRY(selector, ([](int64_t partitioner, int64_t strategy, const std::string& graph,
                          const ::baton::Library::Map& options) {
              return ::baton::Library::get().selector(partitioner, strategy, graph, options);
            }))
BATON_ENTRY(review, ([](int64_t partitioner, int64_t strategy, const std::string& graph,
                        int64_t id, const ::baton::Library::Map& options,
                        const ::baton::Library::Fetch& args,
                        const ::baton::Library::Fetch& aux) {
              return ::baton::Library::get().review(partitioner, strategy, graph, id, options,
                                                    args, aux);
            }))
BATON_ENTRY(compile, ([](int64_t partitioner, const std::string& graph,
                         const tvm::ffi::Array<int64_t>& inputs,
                         const ::baton::Library::Fetch& params,
                         const ::baton::Library::Map& attrs,
                         const ::baton::Library::Map& options) {
              return ::baton::Library::get().compile(partitioner, graph, inputs, params, attrs,
                                                     options);
            }))
BATON_ENTRY(engine, ([](int64_t partitioner, const tvm::ffi::Bytes& code,
                        const ::baton::Library::Map& attrs,
                        const ::baton::Library::Map& options) {
              return ::baton::Library::get().engine(partitioner, code, attrs, options);
            }))

#endif  // BATON_PARTITIONER_H_
