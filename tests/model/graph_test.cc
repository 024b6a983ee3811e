// The model's graph against what a step announces, and against the formulas.
#include "isoloss/model/graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/model/announce.h"
#include "model/small_model.h"

namespace isoloss::model::graph_test {
namespace {

using test_support::SmallBatch;
using test_support::SmallConfig;
using test_support::SmallModel;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

/// What one announcement says that the graph says, too.
struct Announced {
  std::string name;
  RowUnit rows_of = RowUnit::kTokens;
  size_t rows = 0;
  size_t cols = 0;

  bool operator==(const Announced&) const = default;
  friend std::ostream& operator<<(std::ostream& out, const Announced& a) {
    return out << a.name << " [" << RowUnitName(a.rows_of) << " " << a.rows
               << ", " << a.cols << "]";
  }
};

/// Of rows of tokens the graph does not know the number.
constexpr size_t kTokens = 64;

class Listing : public TapSink {
 public:
  void OnTensor(const Tensor& tensor) override {
    Announced announced = {tensor.Name(), RowUnit::kTokens, 0,
                           tensor.values.cols()};
    switch (tensor.kind) {
      case TensorKind::kWeight:
      case TensorKind::kWgrad:
      case TensorKind::kParameter:
      case TensorKind::kUpdate:
        announced.rows_of = RowUnit::kParameter;
        announced.rows = tensor.values.rows();
        break;
      default:
        if (!tensor.rows.begins.empty()) {
          announced.rows_of = RowUnit::kExpertTokens;
        } else {
          EXPECT_EQ(tensor.values.rows(), kTokens) << announced.name;
        }
    }
    all.push_back(announced);
  }
  void OnRouting(std::string_view module, MatrixView<const int32_t> expert_ids,
                 size_t /*first_token*/) override {
    all.push_back({std::string(module) + "_expert_ids", RowUnit::kTokens, 0,
                   expert_ids.cols()});
  }

  std::vector<Announced> all;
};

/// Low ranks, experts and shared experts, as they come or with parts left out.
std::vector<std::pair<std::string, ModelConfig>> Variants() {
  std::vector<std::pair<std::string, ModelConfig>> variants;
  const auto add = [&](const char* name, auto edit) {
    variants.emplace_back(name, SmallConfig());
    edit(variants.back().second);
  };
  add("all", [](ModelConfig&) {});
  add("no low rank", [](ModelConfig& c) { c.q_lora_rank = 0; });
  add("no shared experts", [](ModelConfig& c) { c.num_shared_experts = 0; });
  add("two shared experts", [](ModelConfig& c) { c.num_shared_experts = 2; });
  add("dense", [](ModelConfig& c) { c.n_dense_layers = 2; });
  add("experts only", [](ModelConfig& c) { c.n_dense_layers = 0; });
  add("tied head", [](ModelConfig& c) { c.tied_embeddings = true; });
  add("one layer", [](ModelConfig& c) { c.n_layers = 1; });
  add("deep", [](ModelConfig& c) { c.n_layers = 4; });
  return variants;
}

// A tensor that a layer announces and the graph does not know, or the other way
// round, is named here.
TEST(Graph, IsWhatAStepAnnouncesInItsOrder) {
  for (const auto& [name, config] : Variants()) {
    SCOPED_TRACE(name);
    SmallModel model(config, "bf16");
    Listing listing;

    model.transformer.AnnounceWeights(model.weights, model.gradients, listing);
    model.Step(SmallBatch(config, {40, 24}), &listing);
    Executor executor(1);
    expert_parallel::Mesh mesh(config.num_experts, executor);
    for (const TensorKind kind :
         {TensorKind::kWgrad, TensorKind::kParameter, TensorKind::kUpdate}) {
      AnnounceParameters(kind, model.weights, mesh, listing);
    }

    std::vector<Announced> graph;
    for (const GraphTensor& tensor : GraphOf(config).tensors) {
      graph.push_back(
          {tensor.Name(), tensor.rows_of, tensor.rows, tensor.cols});
    }
    EXPECT_EQ(graph, listing.all);
  }
}

TEST(Graph, EachParameterAndSiteHasItsTensors) {
  for (const auto& [name, config] : Variants()) {
    SCOPED_TRACE(name);
    const Graph graph = GraphOf(config);
    const ParameterSet parameters(config);
    ASSERT_EQ(graph.parameters.size(), parameters.parameters().size());
    for (size_t i = 0; i < graph.parameters.size(); ++i) {
      EXPECT_EQ(graph.parameters[i].name, parameters.parameters()[i].name);
      EXPECT_EQ(std::ranges::count(graph.tensors, graph.parameters[i].name,
                                   &GraphTensor::parameter),
                4);
    }
    for (const GemmSite& site : graph.sites) {
      // W, x, y, dy, dx and dW.
      EXPECT_EQ(
          std::ranges::count(graph.tensors, site.name, &GraphTensor::site), 6)
          << site.name;
    }
  }
}

// The resolved recipe lists sites in this order, which its digest covers.
std::vector<std::string> NamesOf(const std::vector<precision::Site>& sites) {
  std::vector<std::string> names;
  for (const precision::Site& site : sites) names.push_back(site.name);
  return names;
}

TEST(Graph, ListsSitesAsRecipesDo) {
  ModelConfig config = SmallConfig();
  config.n_layers = 1;
  const std::string attention = "layers.0.attention.";
  const std::string ffn = "layers.0.feed_forward.";
  EXPECT_THAT(
      NamesOf(GemmSites(config)),
      ElementsAre(attention + "wq_a", attention + "wq_b", attention + "wkv_a",
                  attention + "wkv_b", attention + "wo", ffn + "w1", ffn + "w3",
                  ffn + "w2", "lm_head"));
  config.q_lora_rank = 0;
  config.n_dense_layers = 0;
  const std::string moe = "layers.0.moe.";
  EXPECT_THAT(NamesOf(GemmSites(config)),
              ElementsAre(attention + "wq", attention + "wkv_a",
                          attention + "wkv_b", attention + "wo",
                          moe + "router.gate", moe + "routed_experts.w1",
                          moe + "routed_experts.w3", moe + "routed_experts.w2",
                          moe + "shared_experts.w1", moe + "shared_experts.w3",
                          moe + "shared_experts.w2", "lm_head"));
}

TEST(Graph, NamesASiteThatItDoesNotHave) {
  EXPECT_THROW(GraphOf(SmallConfig()).SiteIndex("layers.0.attention.wx"),
               Error);
}

/// Layer 0 is dense, layer 1 has experts, shared ones too.
std::vector<std::string> InputsOf(const std::string& name,
                                  const ModelConfig& config) {
  const Graph graph = GraphOf(config);
  for (const GraphTensor& tensor : graph.tensors) {
    if (tensor.Name() != name) continue;
    std::vector<std::string> inputs;
    for (const size_t input : tensor.inputs) {
      inputs.push_back(graph.tensors[input].Name());
    }
    return inputs;
  }
  return {"unknown"};
}

std::vector<std::string> Of(const std::string& name) {
  return InputsOf(name, SmallConfig());
}

std::vector<std::string> OfFullRank(const std::string& name) {
  ModelConfig config = SmallConfig();
  config.q_lora_rank = 0;
  return InputsOf(name, config);
}

TEST(Graph, ForwardFollowsTheModel) {
  EXPECT_THAT(Of("tok_embeddings_output"),
              ElementsAre("tok_embeddings_weight"));
  EXPECT_THAT(
      Of("layers.0.attention_norm_output"),
      ElementsAre("tok_embeddings_output", "layers.0.attention_norm_weight"));
  EXPECT_THAT(Of("layers.1.attention_norm_output"),
              ElementsAre("layers.0_output", "layers.1.attention_norm_weight"));
  EXPECT_THAT(Of("layers.1.attention.wq_b_output"),
              ElementsAre("layers.1.attention.wq_b_activation",
                          "layers.1.attention.wq_b_weight"));
  EXPECT_THAT(OfFullRank("layers.0.attention.inner_attention_output"),
              ElementsAre("layers.0.attention.q_pe_rotated_output",
                          "layers.0.attention.k_pe_rotated_output",
                          "layers.0.attention.wq_output",
                          "layers.0.attention.wkv_b_output"));
  EXPECT_THAT(Of("layers.0_output"),
              ElementsAre("layers.0.attention_residual_output",
                          "layers.0.feed_forward.w2_output"));
  EXPECT_THAT(
      Of("layers.1_output"),
      ElementsAre("layers.1.attention_residual_output", "layers.1.moe_output"));
  EXPECT_THAT(Of("layers.1.moe.routed_experts.w1_activation"),
              ElementsAre("layers.1.ffn_norm_output"));
  EXPECT_THAT(Of("layers.1.moe.routed_experts_output"),
              ElementsAre("layers.1.moe.routed_experts.w2_output",
                          "layers.1.moe.router.topk_weights_output"));
  EXPECT_THAT(Of("layers.1.moe.shared_experts.w2_activation"),
              ElementsAre("layers.1.moe.shared_experts.w1_output",
                          "layers.1.moe.shared_experts.w3_output"));
  EXPECT_THAT(Of("norm_output"), ElementsAre("layers.1_output", "norm_weight"));
}

TEST(Graph, BackwardFollowsTheModel) {
  EXPECT_THAT(Of("layers.0.feed_forward.w3_dgrad"),
              ElementsAre("layers.0.feed_forward.w3_gradient",
                          "layers.0.feed_forward.w3_weight",
                          "layers.0.feed_forward.w1_dgrad"));
  EXPECT_THAT(Of("layers.1.attention.wkv_a_dgrad"),
              ElementsAre("layers.1.attention.wkv_a_gradient",
                          "layers.1.attention.wkv_a_weight",
                          "layers.1.attention.wq_a_dgrad"));
  EXPECT_THAT(Of("layers.1.moe.routed_experts.w1_gradient"),
              ElementsAre("layers.1.moe.routed_experts.w2_dgrad",
                          "layers.1.moe.routed_experts.w1_output",
                          "layers.1.moe.routed_experts.w3_output"));
  EXPECT_THAT(Of("layers.1.ffn_norm_gradient"),
              UnorderedElementsAre("layers.1.moe.routed_experts.w3_dgrad",
                                   "layers.1.moe.router.gate_dgrad",
                                   "layers.1.moe.shared_experts.w3_dgrad"));
  EXPECT_THAT(Of("layers.1_gradient"),
              ElementsAre("norm_gradient", "layers.1_output", "norm_weight"));
  EXPECT_THAT(Of("layers.0_gradient"),
              ElementsAre("layers.1.attention.wo_gradient",
                          "layers.1.attention_norm_gradient", "layers.0_output",
                          "layers.1.attention_norm_weight"));
  EXPECT_THAT(
      Of("tok_embeddings_gradient"),
      ElementsAre("layers.0.attention.wo_gradient",
                  "layers.0.attention_norm_gradient", "tok_embeddings_output",
                  "layers.0.attention_norm_weight"));
}

TEST(Graph, WeightsAreSourcesAndTheOptimizerReadsItsOwn) {
  EXPECT_THAT(OfFullRank("layers.0.attention.wq_weight"), IsEmpty());
  EXPECT_THAT(OfFullRank("layers.0.attention.wq_wgrad"),
              ElementsAre("layers.0.attention.wq_gradient",
                          "layers.0.attention.wq_activation"));
  EXPECT_THAT(OfFullRank("layers.0.attention.wq_update"),
              ElementsAre("layers.0.attention.wq_wgrad"));
  EXPECT_THAT(OfFullRank("layers.0.attention.wq_parameter"),
              ElementsAre("layers.0.attention.wq_update"));
}

TEST(Graph, WeightGradientsWithoutAGemmReadWhatTheirOperationRead) {
  EXPECT_THAT(Of("layers.1.attention.q_norm_wgrad"),
              ElementsAre("layers.1.attention.wq_b_dgrad",
                          "layers.1.attention.wq_a_output"));
  EXPECT_THAT(Of("layers.1.attention.kv_norm_wgrad"),
              ElementsAre("layers.1.attention.wkv_b_dgrad",
                          "layers.1.attention.wkv_a_output"));
  EXPECT_THAT(
      Of("layers.1.attention_norm_wgrad"),
      ElementsAre("layers.1.attention_norm_gradient", "layers.0_output"));
  EXPECT_THAT(Of("norm_wgrad"),
              ElementsAre("norm_gradient", "layers.1_output"));
  EXPECT_THAT(Of("tok_embeddings_wgrad"),
              ElementsAre("tok_embeddings_gradient"));
  ModelConfig tied = SmallConfig();
  tied.tied_embeddings = true;
  EXPECT_THAT(InputsOf("tok_embeddings_wgrad", tied),
              ElementsAre("lm_head_gradient", "lm_head_activation",
                          "tok_embeddings_gradient"));
  EXPECT_THAT(InputsOf("lm_head_output", tied),
              ElementsAre("lm_head_activation", "tok_embeddings_weight"));
}

}  // namespace
}  // namespace isoloss::model::graph_test
