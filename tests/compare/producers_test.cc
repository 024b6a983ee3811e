#include "isoloss/compare/producers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace isoloss::compare {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

/// Layer 0 is dense with a query of full rank, layer 1 has experts, shared ones
/// too, and a query of low rank.
std::vector<std::string> Of(const std::string& name) {
  const Producers producers(
      {"layers.0.attention.wq_activation", "layers.0.feed_forward.w1_output",
       "layers.1.attention.wq_a_output", "layers.1.moe_output",
       "layers.1.moe.shared_experts.w1_output"});
  const size_t kind = name.rfind('_');
  const auto inputs = producers.Of(name.substr(0, kind), name.substr(kind + 1));
  if (!inputs) return {"unknown"};
  return *inputs;
}

TEST(Producers, ForwardFollowsTheModel) {
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
  EXPECT_THAT(Of("layers.0.attention.inner_attention_output"),
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

TEST(Producers, BackwardFollowsTheModel) {
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

TEST(Producers, WeightsAreSourcesAndTheOptimizerReadsItsOwn) {
  EXPECT_THAT(Of("layers.0.attention.wq_weight"), IsEmpty());
  EXPECT_THAT(Of("layers.0.attention.wq_wgrad"),
              ElementsAre("layers.0.attention.wq_gradient",
                          "layers.0.attention.wq_activation"));
  EXPECT_THAT(Of("layers.0.attention.wq_update"),
              ElementsAre("layers.0.attention.wq_wgrad"));
  EXPECT_THAT(Of("layers.0.attention.wq_parameter"),
              ElementsAre("layers.0.attention.wq_update"));
}

TEST(Producers, WhatTheModelDoesNotHaveIsUnknown) {
  EXPECT_THAT(Of("layers.0.other_output"), ElementsAre("unknown"));
  EXPECT_THAT(Of("x_activation"), ElementsAre("unknown"));
}

}  // namespace
}  // namespace isoloss::compare
