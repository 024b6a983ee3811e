#include "isoloss/probes/graph_columns.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "model/small_model.h"

namespace isoloss::probes {
namespace {

runlog::ModelGraph ColumnsFor(const model::ModelConfig& config,
                              const char* recipe) {
  const model::Graph graph = model::GraphOf(config);
  return ColumnsOf(graph, precision::ResolvedRecipe(
                              precision::RecipeByName(recipe), graph.Sites()));
}

TEST(GraphColumns, AreWhole) {
  model::ModelConfig config = testing::SmallConfig();
  EXPECT_EQ(WrongGraph(ColumnsFor(config, "bf16")), "");
  config.tied_embeddings = true;
  config.num_shared_experts = 0;
  EXPECT_EQ(WrongGraph(ColumnsFor(config, "mxfp8_rceil")), "");
}

TEST(GraphColumns, SayWhatATensorIs) {
  const runlog::ModelGraph columns =
      ColumnsFor(testing::SmallConfig(), "mxfp8_rceil");
  const runlog::GraphIndex graph(columns);
  const runlog::GraphColumns& tensors = columns.tensors;

  const size_t wgrad = *graph.Find("layers.1.moe.routed_experts.w1_wgrad");
  EXPECT_EQ(tensors.phase[wgrad], "backward");
  EXPECT_EQ(tensors.parameter[wgrad],
            "layers.1.moe.routed_experts.inner_experts.w1_EFD");
  EXPECT_EQ(tensors.site[wgrad], "layers.1.moe.routed_experts.w1");
  EXPECT_EQ(tensors.moe[wgrad], "layers.1.moe");
  EXPECT_EQ(tensors.rows_of[wgrad], "parameter");
  EXPECT_EQ(tensors.rows[wgrad], 6 * 22);
  EXPECT_EQ(tensors.columns[wgrad], 40);
  EXPECT_TRUE(std::isnan(tensors.initial_std[wgrad]));
  const size_t ids = *graph.Find("layers.1.moe.router_expert_ids");
  EXPECT_EQ(tensors.phase[ids], "forward");
  EXPECT_EQ(tensors.columns[ids], 2);
  const size_t activation =
      *graph.Find("layers.1.moe.routed_experts.w2_activation");
  EXPECT_EQ(tensors.rows_of[activation], "expert_tokens");
  EXPECT_EQ(tensors.rows[activation], 0);
  EXPECT_EQ(tensors.phase[*graph.Find("norm_update")], "optimizer");
  EXPECT_EQ(tensors.initial_std[*graph.Find("norm_weight")], 0);
}

TEST(GraphColumns, SayWhatTheRecipeGivesEachOperand) {
  const auto columns =
      ColumnsFor(testing::SmallConfig(), "mxfp8_e5m2_grads").recipe;
  const auto at = [&](const std::string& site) {
    return static_cast<size_t>(std::ranges::find(columns.site, site) -
                               columns.site.begin());
  };
  const size_t routed = at("layers.1.moe.routed_experts.w2");
  EXPECT_EQ(columns.groups[routed], 6);
  EXPECT_EQ(columns.fprop_x[routed].substr(0, 4), "e4m3");
  EXPECT_EQ(columns.dgrad_dy[routed].substr(0, 4), "e5m2");
  EXPECT_EQ(columns.wgrad_dy[routed].substr(0, 4), "e5m2");
  EXPECT_EQ(columns.wgrad_x[routed].substr(0, 4), "e4m3");
  const size_t head = at("lm_head");
  EXPECT_EQ(columns.groups[head], 1);
  EXPECT_EQ(columns.fprop_w[head], "");
}

}  // namespace
}  // namespace isoloss::probes
