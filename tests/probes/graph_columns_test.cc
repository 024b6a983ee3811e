#include "isoloss/probes/graph_columns.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "model/small_model.h"
#include "support/outside_recipes.h"

namespace isoloss::probes::graph_columns_test {
namespace {

runlog::ModelGraph ColumnsFor(const model::ModelConfig& config,
                              const char* recipe) {
  const model::Graph graph = model::GraphOf(config);
  return ColumnsOf(graph, precision::ResolvedRecipe(
                              precision::RecipeByName(recipe), graph.Sites()));
}

TEST(GraphColumns, AreWhole) {
  model::ModelConfig config = test_support::SmallConfig();
  EXPECT_EQ(WrongGraph(ColumnsFor(config, "bf16")), "");
  config.tied_embeddings = true;
  config.num_shared_experts = 0;
  EXPECT_EQ(WrongGraph(ColumnsFor(config, "mxfp8_rceil")), "");
  config.q_lora_rank = config.q_lora_rank == 0 ? 16 : 0;
  EXPECT_EQ(WrongGraph(ColumnsFor(config, "bf16")), "");
  config.n_dense_layers = 0;
  EXPECT_EQ(WrongGraph(ColumnsFor(config, "bf16")), "");
  config.n_dense_layers = config.n_layers = 1;
  EXPECT_EQ(WrongGraph(ColumnsFor(config, "bf16")), "");
}

// ---- beside the GEMM sites

runlog::ModelGraph ColumnsFor(const precision::Recipe& recipe) {
  const model::Graph graph = model::GraphOf(test_support::SmallConfig());
  return ColumnsOf(graph, precision::ResolvedRecipe(recipe, graph.Sites()));
}

TEST(GraphColumns, TellQuantisedAttentionAndGainsApart) {
  std::vector<runlog::RecipeColumns> seen = {
      ColumnsFor(test_support::SmallConfig(), "bf16").recipe};
  for (const precision::Recipe& recipe : test_support::OutsideRecipes()) {
    const runlog::ModelGraph columns = ColumnsFor(recipe);

    EXPECT_EQ(WrongGraph(columns), "") << recipe.name;
    EXPECT_EQ(std::ranges::count(seen, columns.recipe), 0) << recipe.name;
    seen.push_back(columns.recipe);
  }
}

TEST(GraphColumns, HaveTheProductsOfQuantisedAttention) {
  const runlog::RecipeColumns recipe =
      ColumnsFor(test_support::RecipeFrom(test_support::kTeAttention)).recipe;
  const std::string e4m3 = "e4m3·te·fp32·0x0·te";
  const std::string e5m2 = "e5m2·te·fp32·0x0·te";

  const auto row = std::ranges::find(
      recipe.site, "layers.1.attention.inner_attention.values");
  ASSERT_NE(row, recipe.site.end());
  const auto i = static_cast<size_t>(row - recipe.site.begin());
  EXPECT_EQ(recipe.groups[i], 1);
  EXPECT_EQ(recipe.fprop_x[i], e4m3);
  EXPECT_EQ(recipe.fprop_w[i], e4m3);
  EXPECT_EQ(recipe.dgrad_dy[i], e5m2);
  EXPECT_EQ(recipe.wgrad_dy[i], e5m2);
  EXPECT_EQ(recipe.wgrad_x[i], e4m3);
  // Scores and values in each of two layers.
  EXPECT_EQ(
      recipe.site.size(),
      ColumnsFor(test_support::SmallConfig(), "bf16").recipe.site.size() + 4);
}

/// Whether a row of it goes from tokens to experts or back.
bool CarriesRows(const runlog::ModelGraph& graph, size_t input) {
  const auto rows_of = [&](int64_t tensor) {
    return graph.tensors.rows_of[static_cast<size_t>(tensor)];
  };
  const std::string to = rows_of(graph.inputs.tensor[input]);
  const std::string from = rows_of(graph.inputs.input[input]);
  return to != from && to != "parameter" && from != "parameter";
}

TEST(GraphColumns, NoRowThatAnExchangeCarriesCanBeMissing) {
  const runlog::ModelGraph whole =
      ColumnsFor(test_support::SmallConfig(), "bf16");
  int dropped = 0;
  for (size_t i = 0; i < whole.inputs.tensor.size(); ++i) {
    // The gradient of what comes back has another input of the kind.
    const auto reader = static_cast<size_t>(whole.inputs.tensor[i]);
    if (!CarriesRows(whole, i) ||
        whole.tensors.name[reader].ends_with("w2_gradient")) {
      continue;
    }
    runlog::ModelGraph graph = whole;
    const auto at = static_cast<ptrdiff_t>(i);
    graph.inputs.tensor.erase(graph.inputs.tensor.begin() + at);
    graph.inputs.input.erase(graph.inputs.input.begin() + at);
    EXPECT_NE(WrongGraph(graph), "") << whole.tensors.name[reader];
    ++dropped;
  }
  EXPECT_GT(dropped, 0);
}

TEST(GraphColumns, NoTensorOfASiteParameterOrRouterCanBeMissing) {
  const runlog::ModelGraph whole =
      ColumnsFor(test_support::SmallConfig(), "bf16");
  const runlog::GraphColumns& all = whole.tensors;
  for (size_t gone = 0; gone < all.name.size(); ++gone) {
    if (all.site[gone].empty() && all.parameter[gone].empty() &&
        all.moe[gone].empty()) {
      continue;
    }
    runlog::ModelGraph graph = whole;
    const auto drop = [](auto& column, size_t at) {
      column.erase(column.begin() + static_cast<ptrdiff_t>(at));
    };
    auto& t = graph.tensors;
    for (auto* texts : {&t.name, &t.module, &t.kind, &t.phase, &t.parameter,
                        &t.site, &t.moe, &t.rows_of}) {
      drop(*texts, gone);
    }
    drop(t.rows, gone);
    drop(t.columns, gone);
    drop(t.initial_std, gone);
    drop(t.initial_cut, gone);
    const auto place = static_cast<int64_t>(gone);
    graph.inputs = {};
    for (size_t i = 0; i < whole.inputs.tensor.size(); ++i) {
      const int64_t to = whole.inputs.tensor[i];
      const int64_t from = whole.inputs.input[i];
      if (to == place || from == place) continue;
      graph.inputs.tensor.push_back(to - (to > place ? 1 : 0));
      graph.inputs.input.push_back(from - (from > place ? 1 : 0));
    }
    EXPECT_NE(WrongGraph(graph), "") << all.name[gone];
  }
}

TEST(GraphColumns, SayWhatATensorIs) {
  const runlog::ModelGraph columns =
      ColumnsFor(test_support::SmallConfig(), "mxfp8_rceil");
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
      ColumnsFor(test_support::SmallConfig(), "mxfp8_e5m2_grads").recipe;
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

TEST(GraphColumns, SayHowProductsAreSummedThatAreNotQuantised) {
  precision::Recipe recipe = precision::RecipeByName("mxfp8_rceil");
  const runlog::GemmCounts plain = CountGemms(ColumnsFor(recipe).recipe);
  recipe.dgrad = {};
  recipe.dgrad.accumulation.interval = 64;
  recipe.weight_gradients = kernels::Rounding::kBf16;

  const runlog::RecipeColumns columns = ColumnsFor(recipe).recipe;

  EXPECT_EQ(columns.site.front(), "layers.0.attention.wq_a");
  EXPECT_EQ(columns.dgrad_dy.front(), " in promote64");
  EXPECT_TRUE(columns.wgrad_dy.front().ends_with(runlog::kRoundedGradient));
  EXPECT_EQ(columns.wgrad_dy.back(), runlog::kRoundedGradient);
  EXPECT_EQ(CountGemms(columns).quantized, plain.quantized / 3 * 2);
}

}  // namespace
}  // namespace isoloss::probes::graph_columns_test
