#include "isoloss/compare/error_growth.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "isoloss/model/graph.h"
#include "isoloss/probes/graph_columns.h"
#include "support/sample_graph.h"

namespace isoloss::compare::error_growth_test {
namespace {

using ::testing::ElementsAre;

/// Tensors of two elements: {1, 0} in A and {1, error} in B, so that
/// ||a - b|| / ||a|| is `error` to the bit where that is a float.
class Dumps {
 public:
  /// Of a model with a dense layer and one of experts.
  Dumps() {
    const model::Graph graph = model::GraphOf(model::ModelConfig());
    a.graph = b.graph = probes::ColumnsOf(
        graph, precision::ResolvedRecipe(precision::RecipeByName("bf16"),
                                         graph.Sites()));
  }

  void Add(const std::string& module, const std::string& kind, float error) {
    runlog::DumpedTensor tensor{.name = module + "_" + kind,
                                .module = module,
                                .kind = kind,
                                .order = order_++,
                                .rows = 1,
                                .cols = 2,
                                .values = {1, 0}};
    a.tensors.push_back(tensor);
    tensor.values[1] = error;
    b.tensors.push_back(tensor);
  }

  OperationError Of(const std::string& result) const {
    for (const OperationError& operation :
         MeasureErrorGrowth(a, b).operations) {
      if (operation.result == result) return operation;
    }
    ADD_FAILURE() << result << " is no operation";
    return {};
  }

  size_t Count() const { return MeasureErrorGrowth(a, b).operations.size(); }

  runlog::TensorDump a;
  runlog::TensorDump b;

 private:
  int64_t order_ = 0;
};

/// A GEMM site, and one that reads what comes of it.
const std::string kQuery = "layers.0.attention.wq";
const std::string kOut = "layers.0.attention.wo";

/// One GEMM, forward and backward.
Dumps Gemm() {
  Dumps dumps;
  dumps.Add(kQuery, "weight", 0.5F);
  dumps.Add(kQuery, "activation", 0.375F);
  dumps.Add(kQuery, "output", 0.625F);
  dumps.Add(kQuery, "gradient", 0.25F);
  dumps.Add(kQuery, "dgrad", 1.0F);
  dumps.Add(kQuery, "wgrad", 0.375F);
  return dumps;
}

TEST(ErrorGrowth, HoldsEachProductOfAGemmAgainstItsOperands) {
  const Dumps dumps = Gemm();

  const OperationError output = dumps.Of(kQuery + "_output");
  EXPECT_THAT(output.inputs,
              ElementsAre(kQuery + "_activation", kQuery + "_weight"));
  EXPECT_EQ(output.input_error, 0.5);
  EXPECT_EQ(output.growth, 1.25);
  EXPECT_EQ(output.added, 0.375);  // 5/8, 4/8, 3/8: a right triangle
  EXPECT_THAT(dumps.Of(kQuery + "_dgrad").inputs,
              ElementsAre(kQuery + "_gradient", kQuery + "_weight"));
  EXPECT_EQ(dumps.Of(kQuery + "_dgrad").growth, 2);
  EXPECT_THAT(dumps.Of(kQuery + "_wgrad").inputs,
              ElementsAre(kQuery + "_gradient", kQuery + "_activation"));
  EXPECT_EQ(dumps.Of(kQuery + "_wgrad").growth, 1);
  EXPECT_EQ(dumps.Of(kQuery + "_wgrad").added, 0);
}

TEST(ErrorGrowth, SortsByWhatIsAddedNotByTheErrorThatIsPassedOn) {
  Dumps dumps;
  dumps.Add(kQuery, "activation", 0.0F);
  dumps.Add(kQuery, "output", 0.5F);  // adds
  dumps.Add(kOut, "activation", 0.5F);
  dumps.Add(kOut, "output", 0.5F);  // passes on

  const ErrorGrowth growth = MeasureErrorGrowth(dumps.a, dumps.b);

  EXPECT_EQ(growth.operations[0].result, kQuery + "_output");
  EXPECT_EQ(growth.operations[0].added, 0.5);
  EXPECT_EQ(growth.operations[1].added, 0);
  ASSERT_TRUE(growth.first_source.has_value());
  EXPECT_EQ(growth.first_source->result, kQuery + "_output");
  EXPECT_TRUE(std::isinf(growth.first_source->growth));
}

TEST(ErrorGrowth, WhatTheGraphDoesNotKnowIsLeftOut) {
  Dumps dumps = Gemm();
  dumps.Add("x", "output", 0.25F);
  EXPECT_EQ(dumps.Count(), Gemm().Count());

  dumps.a.graph = dumps.b.graph = {};
  EXPECT_EQ(dumps.Count(), 0u);
}

TEST(ErrorGrowth, DumpsOfTwoModelsAreNotMeasured) {
  const auto unmeasured = [](auto spoil) {
    Dumps dumps = Gemm();
    spoil(dumps.b.graph);
    const ErrorGrowth growth = MeasureErrorGrowth(dumps.a, dumps.b);
    EXPECT_EQ(growth.operations.empty(), !growth.unmeasured.empty());
    return growth.unmeasured;
  };

  EXPECT_EQ(unmeasured([](auto& g) { g.recipe.fprop_x[0] = "e4m3"; }), "");
  EXPECT_NE(unmeasured([](auto& g) { g.tensors.name.pop_back(); }), "");
  EXPECT_NE(unmeasured([](auto& g) { g.tensors.name[3] += "x"; }), "");
  EXPECT_NE(unmeasured([](auto& g) { g.tensors.moe[3] = "x"; }), "");
  EXPECT_NE(unmeasured([](auto& g) { g.tensors.rows_of[3] = "x"; }), "");
  EXPECT_NE(unmeasured([](auto& g) { ++g.inputs.input[3]; }), "");
}

/// Of a forward pass of `length` outputs one after another, each of which reads
/// `width` outputs before it, and what makes that a model.
runlog::ModelGraph Chain(int64_t length, int64_t width) {
  runlog::ModelGraph graph = test_support::GemmGraph("w");
  const auto first = static_cast<int64_t>(graph.tensors.name.size());
  for (int64_t i = 0; i < length; ++i) {
    test_support::AddTensor(
        {.module = "x" + std::to_string(i), .kind = "output"}, graph);
    for (int64_t j = 1; j <= width; ++j) {
      graph.inputs.tensor.push_back(first + i);
      // The first ones read the output of the GEMM.
      graph.inputs.input.push_back(i < j ? 2 : first + i - j);
    }
  }
  return graph;
}

// A walk from each of 10000 tensors that are dumped through 30000 that are not,
// of 30 inputs each, would take 10^10 steps.
TEST(ErrorGrowth, LooksAtEachInputOnce) {
  constexpr int64_t kLength = 40000;
  runlog::TensorDump dump;
  dump.graph = Chain(kLength, 30);
  ASSERT_EQ(WrongGraph(dump.graph), "");
  const auto add = [&dump](const std::string& module) {
    dump.tensors.push_back({.name = module + "_output",
                            .module = module,
                            .kind = "output",
                            .rows = 1,
                            .cols = 1,
                            .values = {1}});
  };
  add("w");
  for (int64_t i = kLength / 2; i < kLength; i += 2) {
    add("x" + std::to_string(i));
  }

  const ErrorGrowth growth = MeasureErrorGrowth(dump, dump);

  EXPECT_EQ(growth.operations.size(), kLength / 4);
  EXPECT_EQ(growth.operations.back().inputs.size(), 16);
}

TEST(ErrorGrowth, AQuantisedGemmIsTheSourceAndUpdatesAreApart) {
  // What bf16 against a recipe for w1 alone looks like: w1 adds, all behind it
  // passes on or halves, and Adam makes a sign of it.
  Dumps dumps;
  const std::string layer = "layers.0";
  const std::string ffn = layer + ".feed_forward";
  dumps.Add(layer + ".ffn_norm", "weight", 0);
  dumps.Add(layer + ".attention_residual", "output", 0);
  dumps.Add(layer + ".ffn_norm", "output", 0);
  dumps.Add(ffn + ".w1", "activation", 0);
  dumps.Add(ffn + ".w1", "output", 0.5F);
  dumps.Add(ffn + ".w3", "output", 0);
  dumps.Add(ffn + ".w2", "activation", 0.5F);
  dumps.Add(ffn + ".w2", "output", 0.5F);
  dumps.Add(layer, "output", 0.25F);
  dumps.Add(layer + ".ffn_norm", "gradient", 0.5F);
  dumps.Add(layer + ".ffn_norm", "update", 2.0F);
  dumps.Add(layer + ".ffn_norm", "parameter", 2.0F);

  const ErrorGrowth growth = MeasureErrorGrowth(dumps.a, dumps.b);

  EXPECT_EQ(growth.operations[0].result, ffn + ".w1_output");
  ASSERT_TRUE(growth.first_source.has_value());
  EXPECT_EQ(growth.first_source->result, ffn + ".w1_output");
  for (const OperationError& operation : growth.operations) {
    EXPECT_FALSE(operation.result.ends_with("_update")) << operation.result;
    if (operation.result == ffn + ".w1_output") continue;
    if (operation.result.ends_with("_gradient")) continue;
    EXPECT_EQ(operation.added, 0) << operation.result;
  }
  ASSERT_EQ(growth.optimizer.size(), 2u);
  EXPECT_THAT(growth.optimizer[0].inputs,
              ElementsAre(layer + ".ffn_norm_gradient",
                          layer + ".attention_residual_output"));
}

TEST(ErrorGrowth, AnUpdateIsTheSourceOnlyIfAllBeforeItIsEqual) {
  Dumps dumps;
  dumps.Add(kQuery, "activation", 0);
  dumps.Add(kQuery, "gradient", 0);
  dumps.Add(kQuery, "wgrad", 0);
  dumps.Add(kQuery, "update", 0.5F);
  EXPECT_EQ(MeasureErrorGrowth(dumps.a, dumps.b).first_source->result,
            kQuery + "_update");

  dumps.b.tensors[0].values[1] = 0.5F;
  EXPECT_FALSE(MeasureErrorGrowth(dumps.a, dumps.b).first_source.has_value());
}

TEST(ErrorGrowth, ForATensorThatIsNotDumpedStandWhatItIsComputedFrom) {
  Dumps dumps;
  dumps.Add("layers.0.ffn_norm", "output", 0.25F);
  dumps.Add("layers.0.feed_forward.w3", "output", 0.125F);
  dumps.Add("layers.0.feed_forward.w2", "activation", 0.5F);
  dumps.Add("layers.0.attention.wo", "dgrad", 0.5F);

  EXPECT_THAT(dumps.Of("layers.0.feed_forward.w2_activation").inputs,
              ElementsAre("layers.0.ffn_norm_output",
                          "layers.0.feed_forward.w3_output"));
  for (const auto& operation :
       MeasureErrorGrowth(dumps.a, dumps.b).operations) {
    EXPECT_NE(operation.result, "layers.0.attention.wo_dgrad")
        << "nothing that its gradient comes from is there";
  }
}

/// A layer with experts: two tokens, whose rows swap experts.
Dumps Experts() {
  Dumps dumps;
  const std::string moe = "layers.1.moe";
  dumps.Add("layers.1.ffn_norm", "output", 0.125F);
  dumps.Add(moe + ".router.scores", "output", 0.125F);
  dumps.Add(moe + ".router", "expert_ids", 0);
  dumps.Add(moe + ".router.topk_weights", "output", 4);
  dumps.Add(moe + ".routed_experts.w1", "activation", 4);
  dumps.Add(moe + ".routed_experts.w2", "output", 4);
  dumps.Add(moe + ".routed_experts", "output", 0.25F);
  dumps.Add(moe + ".routed_experts.w1", "wgrad", 4);
  return dumps;
}

TEST(ErrorGrowth, RowsOfExpertsAreLeftOutWhereRoutingDiffers) {
  Dumps dumps = Experts();
  dumps.b.tensors[2].values = {2, 0};  // of A {1, 0}

  const ErrorGrowth growth = MeasureErrorGrowth(dumps.a, dumps.b);

  ASSERT_EQ(growth.left_out.size(), 1u);
  EXPECT_EQ(growth.left_out[0].module, "layers.1.moe");
  EXPECT_EQ(growth.left_out[0].reason, "expert_ids of 1 of 1 tokens differ");
  for (const OperationError& operation : growth.operations) {
    EXPECT_LT(operation.error, 1) << operation.result;
  }
  EXPECT_THAT(dumps.Of("layers.1.moe.routed_experts_output").inputs,
              ElementsAre("layers.1.ffn_norm_output",
                          "layers.1.moe.router.scores_output"));
}

TEST(ErrorGrowth, AnotherOrderOfSlotsLeavesOutTheirWeightsOnly) {
  Dumps dumps = Experts();
  dumps.b.tensors[2].values = {0, 1};

  const ErrorGrowth growth = MeasureErrorGrowth(dumps.a, dumps.b);

  ASSERT_EQ(growth.left_out.size(), 1u);
  EXPECT_EQ(dumps.Of("layers.1.moe.routed_experts.w1_activation").error, 4);
  for (const OperationError& operation : growth.operations) {
    EXPECT_NE(operation.result, "layers.1.moe.router.topk_weights_output");
  }
}

TEST(ErrorGrowth, WithoutExpertIdsSegmentsTellThatRoutingDiffers) {
  Dumps dumps = Experts();
  for (auto* dump : {&dumps.a, &dumps.b}) {
    dump->tensors.erase(dump->tensors.begin() + 2);
  }
  EXPECT_TRUE(MeasureErrorGrowth(dumps.a, dumps.b).left_out.empty());

  dumps.b.tensors[3].segment_ends = {1};
  EXPECT_EQ(MeasureErrorGrowth(dumps.a, dumps.b).left_out.size(), 1u);
}

TEST(ErrorGrowth, NanComesFirstAndShapesThatDifferAreLeftOut) {
  Dumps dumps = Gemm();
  dumps.b.tensors[5].values[0] = std::nanf("");
  dumps.b.tensors[2].rows = 2;
  dumps.b.tensors[2].cols = 1;

  const ErrorGrowth growth = MeasureErrorGrowth(dumps.a, dumps.b);

  EXPECT_EQ(growth.operations[0].result, kQuery + "_wgrad");
  EXPECT_TRUE(std::isnan(growth.operations[0].added));
  for (const OperationError& operation : growth.operations) {
    EXPECT_NE(operation.result, kQuery + "_output");
  }
}

TEST(ErrorGrowth, EqualDumpsAddNothing) {
  const Dumps dumps = Gemm();

  const ErrorGrowth growth = MeasureErrorGrowth(dumps.a, dumps.a);

  EXPECT_FALSE(growth.first_source.has_value());
  for (const OperationError& operation : growth.operations) {
    EXPECT_EQ(operation.added, 0);
    EXPECT_EQ(operation.growth, 1);
  }
}

}  // namespace
}  // namespace isoloss::compare::error_growth_test
