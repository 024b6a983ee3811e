#include "isoloss/model/graph.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <map>
#include <unordered_map>
#include <utility>

#include "isoloss/base/error.h"

namespace isoloss::model {
namespace {

using Names = std::vector<std::string>;

std::string LayerName(size_t layer) {
  return "layers." + std::to_string(layer);
}

// ---- parameters ------------------------------------------------------------

constexpr double kNever = std::numeric_limits<double>::infinity();
/// torchtitan's trunc_normal_ cuts at +-2, whatever the standard deviation.
constexpr double kCut = 2.0;
constexpr InitRule kNormInit = {0.0, kNever};
constexpr InitRule kLinearInit = {0.02, kCut};

/// Returns the rule for matrices whose product is added to the residual, and
/// for a few more.
InitRule DepthInit(size_t layer) {
  const auto depth = static_cast<double>(layer + 1);
  return {kLinearInit.std / std::sqrt(2.0 * depth), kCut};
}

/// Collects the model's parameters, layer by layer.
class ParameterList {
 public:
  explicit ParameterList(const ModelConfig& config) : c_(config) {
    const double std = 1.0 / std::sqrt(static_cast<double>(c_.dim));
    const InitRule head = {std, 3.0 * std};
    Add("tok_embeddings", {c_.vocab_size, c_.dim},
        c_.tied_embeddings ? head : InitRule{1.0, kNever});
    for (size_t n = 0; n < c_.n_layers; ++n) {
      prefix_ = LayerName(n) + ".";
      deep_ = DepthInit(n);
      AddAttention();
      Add("attention_norm", {c_.dim}, kNormInit);
      Add("ffn_norm", {c_.dim}, kNormInit);
      if (c_.IsMoeLayer(n)) {
        AddMoe();
      } else {
        AddFeedForward("feed_forward", c_.dense_hidden_dim);
      }
    }
    prefix_.clear();
    Add("norm", {c_.dim}, kNormInit);
    if (!c_.tied_embeddings) Add("lm_head", {c_.vocab_size, c_.dim}, head);
  }

  std::vector<ParameterSpec> parameters;

 private:
  void Add(const std::string& module, std::vector<size_t> shape,
           const InitRule& init) {
    parameters.push_back({.name = prefix_ + module + ".weight",
                          .module = prefix_ + module,
                          .shape = std::move(shape),
                          .init = init});
  }
  void AddFeedForward(const std::string& name, size_t hidden) {
    Add(name + ".w1", {hidden, c_.dim}, kLinearInit);
    Add(name + ".w2", {c_.dim, hidden}, deep_);
    Add(name + ".w3", {hidden, c_.dim}, deep_);
  }
  /// `axes` holds torchtitan's letters for expert, model width and hidden
  /// width.
  void AddOfExperts(const std::string& matrix, const std::string& axes,
                    size_t rows, size_t cols, const InitRule& init) {
    const std::string experts = prefix_ + "moe.routed_experts.";
    parameters.push_back(
        {.name = experts + "inner_experts." + matrix + "_" + axes,
         .module = experts + matrix,
         .shape = {c_.num_experts, rows, cols},
         .init = init,
         .of_experts = true});
  }
  void AddAttention() {
    const size_t queries = c_.n_heads * c_.qk_head_dim();
    if (c_.q_lora_rank == 0) {
      Add("attention.wq", {queries, c_.dim}, kLinearInit);
    } else {
      Add("attention.wq_a", {c_.q_lora_rank, c_.dim}, kLinearInit);
      Add("attention.q_norm", {c_.q_lora_rank}, kNormInit);
      Add("attention.wq_b", {queries, c_.q_lora_rank}, kLinearInit);
    }
    Add("attention.wkv_a", {c_.kv_lora_rank + c_.qk_rope_head_dim, c_.dim},
        kLinearInit);
    Add("attention.kv_norm", {c_.kv_lora_rank}, kNormInit);
    Add("attention.wkv_b",
        {c_.n_heads * (c_.qk_nope_head_dim + c_.v_head_dim), c_.kv_lora_rank},
        kLinearInit);
    Add("attention.wo", {c_.dim, c_.n_heads * c_.v_head_dim}, deep_);
  }
  void AddMoe() {
    const size_t hidden = c_.moe_hidden_dim;
    AddOfExperts("w1", "EFD", hidden, c_.dim, kLinearInit);
    AddOfExperts("w2", "EDF", c_.dim, hidden, deep_);
    AddOfExperts("w3", "EFD", hidden, c_.dim, deep_);
    Add("moe.router.gate", {c_.num_experts, c_.dim}, deep_);
    if (c_.num_shared_experts > 0) {
      AddFeedForward("moe.shared_experts", hidden * c_.num_shared_experts);
    }
  }

  const ModelConfig& c_;
  std::string prefix_;
  InitRule deep_ = {};
};

// ---- tensors ---------------------------------------------------------------

/// Says whether rows are those of tokens or of the experts of a MoE layer.
struct Rows {
  RowUnit of = RowUnit::kTokens;
  std::string moe = {};
};

/// Walks through a step as the model does. Tensors are named as they are
/// announced; a name that was not announced before can't be read.
class Walk {
 public:
  explicit Walk(const ModelConfig& config)
      : c_(config), graph_{.parameters = ParametersOf(config)} {
    for (size_t i = 0; i < graph_.parameters.size(); ++i) {
      parameters_[graph_.parameters[i].module] = i;
    }
  }

  Graph Run() {
    AddOfParameters(TensorKind::kWeight);
    Output("tok_embeddings", c_.dim, {"tok_embeddings_weight"});
    for (size_t n = 0; n < c_.n_layers; ++n) BlockForward(n);
    Norm("norm", Stream(c_.n_layers));
    Products({"lm_head"}, {"norm_output"});
    Output("loss", 1, {"lm_head_output"});

    ProductGradients("lm_head", {"lm_head_output"});
    NormGradient("norm", {"lm_head_dgrad"}, Stream(c_.n_layers));
    for (size_t n = c_.n_layers; n-- > 0;) BlockBackward(n);
    Gradient("tok_embeddings", c_.dim, StreamGradient(0));
    read_by_wgrad_["tok_embeddings"].push_back("tok_embeddings_gradient");

    AddOfParameters(TensorKind::kWgrad);
    AddOfParameters(TensorKind::kParameter);
    AddOfParameters(TensorKind::kUpdate);
    for (const ParameterSpec& parameter : graph_.parameters) {
      // The optimizer's sum is announced before its addend.
      graph_.tensors[places_.at(parameter.module + "_parameter")].inputs = {
          places_.at(parameter.module + "_update")};
    }
    return std::move(graph_);
  }

 private:
  // ---- parts of the table

  void Add(GraphTensor tensor, const Names& inputs) {
    for (const std::string& input : inputs) {
      const auto place = places_.find(input);
      ISOLOSS_ASSERT(place != places_.end());
      tensor.inputs.push_back(place->second);
    }
    const bool is_new =
        places_.emplace(tensor.Name(), graph_.tensors.size()).second;
    ISOLOSS_ASSERT(is_new);
    graph_.tensors.push_back(std::move(tensor));
  }

  void Add(TensorKind kind, const std::string& module, size_t cols,
           const Names& inputs, const Rows& rows, const std::string& site) {
    Add({.module = module,
         .kind = kind,
         .rows_of = rows.of,
         .cols = cols,
         .site = site,
         .moe = rows.moe},
        inputs);
  }
  void Output(const std::string& module, size_t cols, const Names& inputs,
              const Rows& rows = {}) {
    Add(TensorKind::kOutput, module, cols, inputs, rows, "");
  }
  void Gradient(const std::string& module, size_t cols, const Names& inputs,
                const Rows& rows = {}) {
    Add(TensorKind::kGradient, module, cols, inputs, rows, "");
  }

  /// Returns the parameter of a GEMM site; a tied head has the embedding's.
  size_t ParameterOf(const std::string& site) const {
    const auto found = parameters_.find(site);
    return found != parameters_.end() ? found->second
                                      : parameters_.at("tok_embeddings");
  }

  /// Adds a site unless it is there already.
  void AddSite(const std::string& site) {
    // Weights are the first tensors, in the order of their parameters.
    std::string& of_weight = graph_.tensors[ParameterOf(site)].site;
    if (of_weight == site) return;
    of_weight = site;
    graph_.sites.push_back({site, ParameterOf(site)});
  }

  /// y = x W^T at each of `sites`, which are computed together.
  void Products(const Names& sites, const Names& inputs,
                const Rows& rows = {}) {
    for (const std::string& site : sites) {
      AddSite(site);
      Add(TensorKind::kActivation, site,
          graph_.parameters[ParameterOf(site)].cols(), inputs, rows, site);
    }
    for (const std::string& site : sites) {
      const ParameterSpec& weight = graph_.parameters[ParameterOf(site)];
      Add(TensorKind::kOutput, site, weight.rows(),
          {site + "_activation", weight.module + "_weight"}, rows, site);
    }
  }

  /// dx = dy W + `addend`; dW is announced later with all weight gradients.
  void ProductGradients(const std::string& site, const Names& inputs,
                        const Names& addend = {}, const Rows& rows = {}) {
    const ParameterSpec& weight = graph_.parameters[ParameterOf(site)];
    Add(TensorKind::kGradient, site, weight.rows(), inputs, rows, site);
    Names read = {site + "_gradient", weight.module + "_weight"};
    read.insert(read.end(), addend.begin(), addend.end());
    Add(TensorKind::kDgrad, site, weight.cols(), read, rows, site);
    Names& by_wgrad = read_by_wgrad_[weight.module];
    by_wgrad.push_back(site + "_gradient");
    by_wgrad.push_back(site + "_activation");
  }

  void Norm(const std::string& module, const std::string& input) {
    Output(module, graph_.parameters[ParameterOf(module)].cols(),
           {input, module + "_weight"});
  }
  /// Adds the gradient of the norm's output, if it is announced under this
  /// name.
  void NormGradient(const std::string& module, const Names& inputs,
                    const std::string& norm_input) {
    Gradient(module, graph_.parameters[ParameterOf(module)].cols(), inputs);
    read_by_wgrad_[module] = {module + "_gradient", norm_input};
  }

  void AddOfParameters(TensorKind kind) {
    for (size_t i = 0; i < graph_.parameters.size(); ++i) {
      const ParameterSpec& parameter = graph_.parameters[i];
      GraphTensor tensor = {.module = parameter.module,
                            .kind = kind,
                            .rows_of = RowUnit::kParameter,
                            .rows = parameter.groups() * parameter.rows(),
                            .cols = parameter.cols(),
                            .parameter = parameter.name};
      Names inputs;
      if (kind == TensorKind::kWgrad) {
        inputs = read_by_wgrad_.at(parameter.module);
        tensor.site = graph_.tensors[i].site;  // of its weight
        tensor.moe = graph_.tensors[places_.at(inputs.front())].moe;
      }
      if (kind == TensorKind::kUpdate) inputs = {parameter.module + "_wgrad"};
      Add(std::move(tensor), inputs);
    }
  }

  // ---- the residual stream

  /// Returns the name of the residual stream before layer n.
  static std::string Stream(size_t n) {
    return n == 0 ? "tok_embeddings_output" : LayerName(n - 1) + "_output";
  }
  /// Returns the tensors from which the stream's gradient before layer n is
  /// computed. The next branch and its norm add to it.
  Names StreamGradient(size_t n) const {
    if (n == c_.n_layers) return {"norm_gradient", Stream(n), "norm_weight"};
    const std::string layer = LayerName(n);
    return {layer + ".attention.wo_gradient",
            layer + ".attention_norm_gradient", Stream(n),
            layer + ".attention_norm_weight"};
  }

  // ---- layers

  bool IsLowRank() const { return c_.q_lora_rank > 0; }
  bool HasShared() const { return c_.num_shared_experts > 0; }

  void BlockForward(size_t n) {
    const std::string layer = LayerName(n);
    Norm(layer + ".attention_norm", Stream(n));
    AttentionForward(layer + ".attention", layer + ".attention_norm_output");
    Output(layer + ".attention_residual", c_.dim,
           {Stream(n), layer + ".attention.wo_output"});
    Norm(layer + ".ffn_norm", layer + ".attention_residual_output");
    std::string branch = layer + ".feed_forward.w2_output";
    if (c_.IsMoeLayer(n)) {
      branch = MoeForward(layer + ".moe", layer + ".ffn_norm_output");
    } else {
      FeedForward(layer + ".feed_forward", layer + ".ffn_norm_output");
    }
    Output(layer, c_.dim, {layer + ".attention_residual_output", branch});
  }

  void AttentionForward(const std::string& name, const std::string& input) {
    const std::string query = IsLowRank() ? ".wq_b" : ".wq";
    // Recipes list queries first, although queries and latent are computed
    // together.
    if (IsLowRank()) AddSite(name + ".wq_a");
    AddSite(name + query);
    Products({name + ".wkv_a", name + (IsLowRank() ? ".wq_a" : ".wq")},
             {input});
    if (IsLowRank()) {
      Norm(name + ".q_norm", name + ".wq_a_output");
      Products({name + ".wq_b"}, {name + ".q_norm_output"});
    }
    Norm(name + ".kv_norm", name + ".wkv_a_output");
    Products({name + ".wkv_b"}, {name + ".kv_norm_output"});
    Output(name + ".q_pe_rotated", c_.n_heads * c_.qk_rope_head_dim,
           {name + query + "_output"});
    Output(name + ".k_pe_rotated", c_.qk_rope_head_dim,
           {name + ".wkv_a_output"});
    Output(name + ".inner_attention", c_.n_heads * c_.v_head_dim, Core(name));
    Products({name + ".wo"}, {name + ".inner_attention_output"});
  }
  /// Returns the tensors that make up queries, keys and values.
  Names Core(const std::string& name) const {
    return {name + ".q_pe_rotated_output", name + ".k_pe_rotated_output",
            name + (IsLowRank() ? ".wq_b_output" : ".wq_output"),
            name + ".wkv_b_output"};
  }

  void FeedForward(const std::string& name, const std::string& input,
                   const Rows& rows = {}) {
    Products({name + ".w1", name + ".w3"}, {input}, rows);
    Products({name + ".w2"}, {name + ".w1_output", name + ".w3_output"}, rows);
  }

  /// Returns the name of the tensor that is added to the residual.
  std::string MoeForward(const std::string& name, const std::string& input) {
    const std::string router = name + ".router";
    Products({router + ".gate"}, {input});
    Output(router + ".scores", c_.num_experts, {router + ".gate_output"});
    const Rows of_choice = {RowUnit::kTokens, name};
    Add(TensorKind::kExpertIds, router, c_.top_k, {router + ".scores_output"},
        of_choice, "");
    Output(router + ".topk_weights", c_.top_k, {router + ".scores_output"},
           of_choice);
    FeedForward(name + ".routed_experts", input,
                {RowUnit::kExpertTokens, name});
    Output(
        name + ".routed_experts", c_.dim,
        {name + ".routed_experts.w2_output", router + ".topk_weights_output"});
    if (!HasShared()) return name + ".routed_experts_output";
    FeedForward(name + ".shared_experts", input);
    Output(
        name, c_.dim,
        {name + ".routed_experts_output", name + ".shared_experts.w2_output"});
    return name + "_output";
  }

  void BlockBackward(size_t n) {
    const std::string layer = LayerName(n);
    const std::string dy = layer + "_gradient";
    Gradient(layer, c_.dim, StreamGradient(n + 1));
    Names ffn = {layer + ".feed_forward.w3_dgrad"};
    if (c_.IsMoeLayer(n)) {
      ffn = MoeBackward(layer + ".moe", dy);
    } else {
      FeedForwardBackward(layer + ".feed_forward", {dy});
    }
    NormGradient(layer + ".ffn_norm", ffn,
                 layer + ".attention_residual_output");
    AttentionBackward(
        layer + ".attention",
        {dy, layer + ".ffn_norm_gradient", layer + ".attention_residual_output",
         layer + ".ffn_norm_weight"});
    NormGradient(layer + ".attention_norm", {layer + ".attention.wkv_a_dgrad"},
                 Stream(n));
  }

  void FeedForwardBackward(const std::string& name, const Names& dy,
                           const Rows& rows = {}) {
    const Names hidden = {name + ".w2_dgrad", name + ".w1_output",
                          name + ".w3_output"};
    ProductGradients(name + ".w2", dy, {}, rows);
    ProductGradients(name + ".w1", hidden, {}, rows);
    ProductGradients(name + ".w3", hidden, {name + ".w1_dgrad"}, rows);
  }

  /// Returns the tensors from which the gradient of the layer's input is
  /// computed.
  Names MoeBackward(const std::string& name, const std::string& dy) {
    const std::string routed = name + ".routed_experts";
    const std::string router = name + ".router";
    FeedForwardBackward(routed, {dy, router + ".topk_weights_output"},
                        {RowUnit::kExpertTokens, name});
    Gradient(router + ".topk_weights", c_.top_k, {dy, routed + ".w2_output"},
             {RowUnit::kTokens, name});
    ProductGradients(router + ".gate", {router + ".topk_weights_gradient",
                                        router + ".scores_output"});
    Names inputs = {routed + ".w3_dgrad", router + ".gate_dgrad"};
    if (HasShared()) {
      FeedForwardBackward(name + ".shared_experts", {dy});
      inputs.push_back(name + ".shared_experts.w3_dgrad");
    }
    return inputs;
  }

  void AttentionBackward(const std::string& name, const Names& dy) {
    ProductGradients(name + ".wo", dy);
    Names core = Core(name);
    core.insert(core.begin(), name + ".wo_dgrad");
    const std::string q = name + ".inner_attention.q";
    const std::string k = name + ".inner_attention.k";
    const size_t width = c_.n_heads * c_.qk_head_dim();
    Gradient(q, width, core);
    Gradient(k, width, core);
    core.insert(core.begin(), k + "_gradient");
    ProductGradients(name + ".wkv_b", core);
    read_by_wgrad_[name + ".kv_norm"] = {name + ".wkv_b_dgrad",
                                         name + ".wkv_a_output"};
    std::string query = ".wq";
    if (IsLowRank()) {
      ProductGradients(name + ".wq_b", {q + "_gradient"});
      read_by_wgrad_[name + ".q_norm"] = {name + ".wq_b_dgrad",
                                          name + ".wq_a_output"};
      query = ".wq_a";
      ProductGradients(name + ".wq_a",
                       {name + ".wq_b_dgrad", name + ".wq_a_output",
                        name + ".q_norm_weight"});
    } else {
      ProductGradients(name + ".wq", {q + "_gradient"});
    }
    ProductGradients(name + ".wkv_a",
                     {name + ".wkv_b_dgrad", k + "_gradient",
                      name + ".wkv_a_output", name + ".kv_norm_weight"},
                     {name + query + "_dgrad"});
  }

  const ModelConfig& c_;
  Graph graph_;
  std::map<std::string, size_t> parameters_;        // by module
  std::unordered_map<std::string, size_t> places_;  // by name
  std::map<std::string, Names> read_by_wgrad_;      // by the weight's module
};

}  // namespace

Graph GraphOf(const ModelConfig& config) { return Walk(config).Run(); }

std::vector<ParameterSpec> ParametersOf(const ModelConfig& config) {
  return ParameterList(config).parameters;
}

std::vector<precision::Site> GemmSites(const ModelConfig& config) {
  return GraphOf(config).Sites();
}

}  // namespace isoloss::model
