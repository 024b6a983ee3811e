// What the model announces: which tensors, in which order, as which rows of the
// whole batch.
#include "isoloss/model/tap.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "isoloss/formats/bf16.h"
#include "isoloss/model/announce.h"
#include "model/small_model.h"

namespace isoloss::model {
namespace {

using testing::SmallBatch;
using testing::SmallConfig;
using testing::SmallModel;

/// What one announcement said, without its values.
struct Announced {
  std::string name;
  size_t rows;
  size_t cols;
  std::vector<size_t> begins;
  std::vector<size_t> segment_ends;
  size_t first_row;
  const formats::MxSpec* rowwise;
  const formats::MxSpec* columnwise;
};

class Listing : public TapSink {
 public:
  void OnTensor(const Tensor& tensor) override {
    const TensorRows& rows = tensor.rows;
    all.push_back({tensor.Name(),
                   tensor.values.rows(),
                   tensor.values.cols(),
                   {rows.begins.begin(), rows.begins.end()},
                   {rows.segment_ends.begin(), rows.segment_ends.end()},
                   rows.first_row,
                   tensor.rowwise,
                   tensor.columnwise});
  }
  void OnRouting(std::string_view module, MatrixView<const int32_t> expert_ids,
                 size_t first_token) override {
    all.push_back({std::string(module) + " (routing)",
                   expert_ids.rows(),
                   expert_ids.cols(),
                   {},
                   {},
                   first_token,
                   nullptr,
                   nullptr});
  }

  const Announced& ByName(const std::string& name) const {
    return *std::find_if(
        all.begin(), all.end(),
        [&](const Announced& announced) { return announced.name == name; });
  }

  std::vector<Announced> all;
};

/// One name per line, each after a line break.
std::string NamesOf(const Listing& listing) {
  std::string names;
  for (const Announced& announced : listing.all) names += "\n" + announced.name;
  return names;
}

// A tap that gets lost is seen here: everything that one step of a dense and a
// mixture-of-experts layer announces, in the order of computation.
constexpr const char* kForward = R"(
tok_embeddings_output
layers.0.attention_norm_output
layers.0.attention.wkv_a_activation
layers.0.attention.wq_a_activation
layers.0.attention.wkv_a_output
layers.0.attention.wq_a_output
layers.0.attention.q_norm_output
layers.0.attention.wq_b_activation
layers.0.attention.wq_b_output
layers.0.attention.kv_norm_output
layers.0.attention.wkv_b_activation
layers.0.attention.wkv_b_output
layers.0.attention.q_pe_rotated_output
layers.0.attention.k_pe_rotated_output
layers.0.attention.inner_attention_output
layers.0.attention.wo_activation
layers.0.attention.wo_output
layers.0.attention_residual_output
layers.0.ffn_norm_output
layers.0.feed_forward.w1_activation
layers.0.feed_forward.w3_activation
layers.0.feed_forward.w1_output
layers.0.feed_forward.w3_output
layers.0.feed_forward.w2_activation
layers.0.feed_forward.w2_output
layers.0_output
layers.1.attention_norm_output
layers.1.attention.wkv_a_activation
layers.1.attention.wq_a_activation
layers.1.attention.wkv_a_output
layers.1.attention.wq_a_output
layers.1.attention.q_norm_output
layers.1.attention.wq_b_activation
layers.1.attention.wq_b_output
layers.1.attention.kv_norm_output
layers.1.attention.wkv_b_activation
layers.1.attention.wkv_b_output
layers.1.attention.q_pe_rotated_output
layers.1.attention.k_pe_rotated_output
layers.1.attention.inner_attention_output
layers.1.attention.wo_activation
layers.1.attention.wo_output
layers.1.attention_residual_output
layers.1.ffn_norm_output
layers.1.moe.router.gate_activation
layers.1.moe.router.gate_output
layers.1.moe.router.scores_output
layers.1.moe.router (routing)
layers.1.moe.router.topk_weights_output
layers.1.moe.routed_experts.w1_activation
layers.1.moe.routed_experts.w3_activation
layers.1.moe.routed_experts.w1_output
layers.1.moe.routed_experts.w3_output
layers.1.moe.routed_experts.w2_activation
layers.1.moe.routed_experts.w2_output
layers.1.moe.routed_experts_output
layers.1.moe.shared_experts.w1_activation
layers.1.moe.shared_experts.w3_activation
layers.1.moe.shared_experts.w1_output
layers.1.moe.shared_experts.w3_output
layers.1.moe.shared_experts.w2_activation
layers.1.moe.shared_experts.w2_output
layers.1.moe_output
layers.1_output
norm_output
lm_head_activation
lm_head_output
loss_output)";

constexpr const char* kBackward = R"(
lm_head_gradient
lm_head_dgrad
norm_gradient
layers.1_gradient
layers.1.moe.routed_experts.w2_gradient
layers.1.moe.routed_experts.w2_dgrad
layers.1.moe.routed_experts.w1_gradient
layers.1.moe.routed_experts.w1_dgrad
layers.1.moe.routed_experts.w3_gradient
layers.1.moe.routed_experts.w3_dgrad
layers.1.moe.router.topk_weights_gradient
layers.1.moe.router.gate_gradient
layers.1.moe.router.gate_dgrad
layers.1.moe.shared_experts.w2_gradient
layers.1.moe.shared_experts.w2_dgrad
layers.1.moe.shared_experts.w1_gradient
layers.1.moe.shared_experts.w1_dgrad
layers.1.moe.shared_experts.w3_gradient
layers.1.moe.shared_experts.w3_dgrad
layers.1.ffn_norm_gradient
layers.1.attention.wo_gradient
layers.1.attention.wo_dgrad
layers.1.attention.inner_attention.q_gradient
layers.1.attention.inner_attention.k_gradient
layers.1.attention.wkv_b_gradient
layers.1.attention.wkv_b_dgrad
layers.1.attention.wq_b_gradient
layers.1.attention.wq_b_dgrad
layers.1.attention.wq_a_gradient
layers.1.attention.wq_a_dgrad
layers.1.attention.wkv_a_gradient
layers.1.attention.wkv_a_dgrad
layers.1.attention_norm_gradient
layers.0_gradient
layers.0.feed_forward.w2_gradient
layers.0.feed_forward.w2_dgrad
layers.0.feed_forward.w1_gradient
layers.0.feed_forward.w1_dgrad
layers.0.feed_forward.w3_gradient
layers.0.feed_forward.w3_dgrad
layers.0.ffn_norm_gradient
layers.0.attention.wo_gradient
layers.0.attention.wo_dgrad
layers.0.attention.inner_attention.q_gradient
layers.0.attention.inner_attention.k_gradient
layers.0.attention.wkv_b_gradient
layers.0.attention.wkv_b_dgrad
layers.0.attention.wq_b_gradient
layers.0.attention.wq_b_dgrad
layers.0.attention.wq_a_gradient
layers.0.attention.wq_a_dgrad
layers.0.attention.wkv_a_gradient
layers.0.attention.wkv_a_dgrad
layers.0.attention_norm_gradient
tok_embeddings_gradient)";

constexpr const char* kWeights = R"(
tok_embeddings_weight
layers.0.attention.wq_a_weight
layers.0.attention.q_norm_weight
layers.0.attention.wq_b_weight
layers.0.attention.wkv_a_weight
layers.0.attention.kv_norm_weight
layers.0.attention.wkv_b_weight
layers.0.attention.wo_weight
layers.0.attention_norm_weight
layers.0.ffn_norm_weight
layers.0.feed_forward.w1_weight
layers.0.feed_forward.w2_weight
layers.0.feed_forward.w3_weight
layers.1.attention.wq_a_weight
layers.1.attention.q_norm_weight
layers.1.attention.wq_b_weight
layers.1.attention.wkv_a_weight
layers.1.attention.kv_norm_weight
layers.1.attention.wkv_b_weight
layers.1.attention.wo_weight
layers.1.attention_norm_weight
layers.1.ffn_norm_weight
layers.1.moe.routed_experts.w1_weight
layers.1.moe.routed_experts.w2_weight
layers.1.moe.routed_experts.w3_weight
layers.1.moe.router.gate_weight
layers.1.moe.shared_experts.w1_weight
layers.1.moe.shared_experts.w2_weight
layers.1.moe.shared_experts.w3_weight
norm_weight
lm_head_weight)";

TEST(Tap, ForwardAnnouncesEveryTensorInOrder) {
  SmallModel model(SmallConfig(), "mxfp8_rceil");
  Listing listing;

  model.transformer.Forward(SmallBatch(SmallConfig(), {40, 24}).view(),
                            &listing);

  EXPECT_EQ(NamesOf(listing), kForward);
}

TEST(Tap, BackwardAnnouncesEveryTensorInOrder) {
  const SmallBatch batch(SmallConfig(), {40, 24});
  SmallModel model(SmallConfig(), "mxfp8_rceil");
  Listing listing;

  model.transformer.Forward(batch.view());
  model.transformer.Backward(batch.view(), model.gradients, &listing);

  EXPECT_EQ(NamesOf(listing), kBackward);
}

TEST(Tap, WeightsAreAnnouncedInTheOrderOfParameters) {
  SmallModel model(SmallConfig(), "mxfp8_rceil");
  Listing listing;

  model.transformer.AnnounceWeights(model.weights, listing);

  EXPECT_EQ(NamesOf(listing), kWeights);
}

TEST(Tap, NoNameIsAnnouncedTwice) {
  const SmallBatch batch(SmallConfig(), {40, 24});
  SmallModel model(SmallConfig(), "mxfp8_rceil");
  Listing listing;

  model.Step(batch, &listing);
  model.transformer.AnnounceWeights(model.weights, listing);

  std::set<std::string> names;
  for (const Announced& announced : listing.all) {
    EXPECT_TRUE(names.insert(announced.name).second) << announced.name;
  }
}

TEST(Tap, OperandsCarryTheFormatsOfTheProductsThatReadThem) {
  const SmallBatch batch(SmallConfig(), {40, 24});
  SmallModel model(SmallConfig(), "mxfp8_e5m2_grads");
  Listing listing;

  model.Step(batch, &listing);
  model.transformer.AnnounceWeights(model.weights, listing);

  const auto expect = [&](const std::string& name, const char* format) {
    SCOPED_TRACE(name);
    const Announced& announced = listing.ByName(name);
    if (format == nullptr) {
      EXPECT_EQ(announced.rowwise, nullptr);
      EXPECT_EQ(announced.columnwise, nullptr);
      return;
    }
    ASSERT_NE(announced.rowwise, nullptr);
    ASSERT_NE(announced.columnwise, nullptr);
    EXPECT_EQ(announced.rowwise->element, &formats::FormatByName(format));
    EXPECT_EQ(announced.columnwise->element, &formats::FormatByName(format));
  };
  for (const std::string site :
       {"layers.0.attention.wo", "layers.1.moe.routed_experts.w2"}) {
    expect(site + "_activation", "e4m3");
    expect(site + "_weight", "e4m3");
    expect(site + "_gradient", "e5m2");
    expect(site + "_output", nullptr);
    expect(site + "_dgrad", nullptr);
  }
  expect("lm_head_activation", nullptr);
  expect("norm_weight", nullptr);
}

TEST(Tap, RowsSayWhoseTheyAre) {
  const SmallBatch batch(SmallConfig(), {40, 24});
  SmallModel model(SmallConfig(), "bf16");
  Listing listing;

  model.Step(batch, &listing);
  model.transformer.AnnounceWeights(model.weights, listing);

  const Announced& tokens = listing.ByName("layers.1.attention.wo_activation");
  EXPECT_TRUE(tokens.begins.empty());
  EXPECT_EQ(tokens.segment_ends, (std::vector<size_t>{40, 64}));
  const Announced& experts =
      listing.ByName("layers.1.moe.routed_experts.w2_gradient");
  EXPECT_EQ(experts.begins.size(), 6u + 1);
  EXPECT_EQ(experts.begins.back(), 64u * 2);
  EXPECT_EQ(experts.rows, 64u * 2);
  const Announced& weights =
      listing.ByName("layers.1.moe.routed_experts.w2_weight");
  EXPECT_EQ(weights.begins,
            (std::vector<size_t>{0, 40, 80, 120, 160, 200, 240}));
}

TEST(Tap, WeightsAreAnnouncedAsTheyAreComputedWith) {
  SmallModel model(SmallConfig(), "bf16");
  struct Rounded : TapSink {
    void OnTensor(const Tensor& tensor) override {
      EXPECT_EQ(tensor.kind, TensorKind::kWeight);
      for (size_t row = 0; row < tensor.values.rows(); ++row) {
        for (size_t col = 0; col < tensor.values.cols(); ++col) {
          const float value = tensor.values(row, col);
          ASSERT_EQ(formats::RoundToBf16(value), value) << tensor.Name();
        }
      }
    }
    void OnRouting(std::string_view, MatrixView<const int32_t>,
                   size_t) override {}
  } sink;

  model.transformer.AnnounceWeights(model.weights, sink);
}

}  // namespace
}  // namespace isoloss::model
