#include "isoloss/model/transformer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/formats/bf16.h"
#include "model/reference.h"
#include "model/small_model.h"

namespace isoloss::model::transformer_test {
namespace {

using test_support::Recorder;
using test_support::SmallBatch;
using test_support::SmallConfig;
using test_support::SmallModel;
using ::testing::HasSubstr;

/// Rows [first, first + count) of a recorded [tokens, width] tensor.
std::vector<float> Rows(const std::vector<float>& tensor, size_t tokens,
                        size_t first, size_t count) {
  const size_t width = tensor.size() / tokens;
  const auto begin =
      tensor.begin() + static_cast<std::ptrdiff_t>(first * width);
  return {begin, begin + static_cast<std::ptrdiff_t>(count * width)};
}

class TransformerRecipeTest : public ::testing::TestWithParam<const char*> {};

TEST_P(TransformerRecipeTest, PackedDocumentsDoNotSeeEachOther) {
  const std::vector<size_t> lengths = {9, 70, 1};
  const SmallBatch packed(SmallConfig(), lengths);
  SmallModel model(SmallConfig(), GetParam());
  Recorder together;
  model.transformer.Forward(packed.view(), &together);

  size_t begin = 0;
  for (const size_t length : lengths) {
    SmallBatch alone = packed;
    const auto keep = [&](std::vector<int32_t>& values) {
      const auto first = values.begin() + static_cast<std::ptrdiff_t>(begin);
      values.assign(first, first + static_cast<std::ptrdiff_t>(length));
    };
    keep(alone.tokens);
    keep(alone.labels);
    keep(alone.positions);
    alone.labels[0] = 0;  // at least one label must count
    alone.document_ends = alone.sequence_ends = {length};
    Recorder by_itself;
    model.transformer.Forward(alone.view(), &by_itself);

    // Rows don't mix anywhere else either, so the bits agree.
    EXPECT_EQ(Rows(together.tensors.at("lm_head_output"), packed.tokens.size(),
                   begin, length),
              by_itself.tensors.at("lm_head_output"));
    begin += length;
  }
}

TEST_P(TransformerRecipeTest, ExecutesTheGemmsItAnnounces) {
  const SmallBatch batch(SmallConfig(), {40, 24});
  SmallModel model(SmallConfig(), GetParam());

  model.Step(batch);

  const Transformer& transformer = model.transformer;
  EXPECT_EQ(transformer.gemms(), transformer.gemms_per_step());
  EXPECT_EQ(transformer.quantized_gemms(),
            transformer.quantized_gemms_per_step());
  // Two layers of wq_a, wq_b, wkv_a, wkv_b, wo; dense and shared w1, w3, w2;
  // those of six experts; gate and head. Three products each.
  EXPECT_EQ(transformer.gemms(), 3 * (2 * 5 + 3 + 3 + 6 * 3 + 1 + 1));
}

INSTANTIATE_TEST_SUITE_P(
    Recipes, TransformerRecipeTest,
    ::testing::Values("fp32", "bf16", "mxfp8_rceil"),
    [](const ::testing::TestParamInfo<const char*>& recipe) {
      return std::string(recipe.param);
    });

TEST(Transformer, QuantisesTheGemmsOfTheRecipeOnly) {
  const auto quantized = [](const char* recipe) {
    return SmallModel(SmallConfig(), recipe)
        .transformer.quantized_gemms_per_step();
  };

  EXPECT_EQ(quantized("bf16"), 0);
  // All but gate and head …
  EXPECT_EQ(quantized("mxfp8_rceil"), 3 * (2 * 5 + 3 + 3 + 6 * 3));
  // … of which a third are weight gradients.
  EXPECT_EQ(quantized("mxfp8_rceil_wgrad_with_hp"),
            2 * (2 * 5 + 3 + 3 + 6 * 3));
}

TEST(Transformer, QuantisationChangesTheLossALittle) {
  const SmallBatch batch(SmallConfig(), {64, 64});

  const double bf16 = SmallModel(SmallConfig(), "bf16").Step(batch);
  const double mxfp8 = SmallModel(SmallConfig(), "mxfp8_rceil").Step(batch);

  EXPECT_NE(bf16, mxfp8);
  // E4M3 keeps 4 significant bits: 2^-4 relative at worst per element, about
  // 2 % after averaging over the few layers of a loss near 4.
  EXPECT_NEAR(mxfp8, bf16, 0.1);
}

TEST(Transformer, RoundsEverythingButTheRouterAndTheLossInBf16) {
  SmallModel model(SmallConfig(), "bf16");
  Recorder recorder;

  model.Step(SmallBatch(SmallConfig(), {50, 14}), &recorder);

  const std::string router = "layers.1.moe.router.";
  const std::set<std::string> not_rounded = {"loss_output",
                                             router + "gate_output",
                                             router + "gate_gradient",
                                             router + "scores_output",
                                             router + "topk_weights_output",
                                             router + "topk_weights_gradient"};
  for (const auto& [name, values] : recorder.tensors) {
    const bool rounded = std::all_of(values.begin(), values.end(), [](float v) {
      return formats::RoundToBf16(v) == v;
    });
    EXPECT_EQ(rounded, !not_rounded.contains(name)) << name;
  }
}

/// a + b, rounded to BF16 element by element.
std::vector<float> Bf16Sum(const std::vector<float>& a,
                           const std::vector<float>& b) {
  std::vector<float> sum(a.size());
  for (size_t i = 0; i < a.size(); ++i) {
    sum[i] = formats::RoundToBf16(a[i] + b.at(i));
  }
  return sum;
}

TEST(Transformer, RoundsTheResidualStreamAtEachAdd) {
  SmallModel model(SmallConfig(), "bf16");
  Recorder recorder;

  model.Step(SmallBatch(SmallConfig(), {50, 14}), &recorder);

  const auto output = [&](const std::string& module) {
    return recorder.tensors.at(module + "_output");
  };
  const auto mid0 =
      Bf16Sum(output("tok_embeddings"), output("layers.0.attention.wo"));
  EXPECT_EQ(output("layers.0.attention_residual"), mid0);
  EXPECT_EQ(output("layers.0"),
            Bf16Sum(mid0, output("layers.0.feed_forward.w2")));
  const auto mid1 =
      Bf16Sum(output("layers.0"), output("layers.1.attention.wo"));
  const auto moe = Bf16Sum(output("layers.1.moe.routed_experts"),
                           output("layers.1.moe.shared_experts.w2"));
  EXPECT_EQ(output("layers.1.moe"), moe);
  EXPECT_EQ(output("layers.1"), Bf16Sum(mid1, moe));
}

TEST(Transformer, IgnoredLabelsTakeNoPart) {
  SmallBatch batch(SmallConfig(), {30, 20});
  SmallModel model(SmallConfig());
  Recorder recorder;

  const double loss = model.Step(batch, &recorder);

  double sum = 0.0;
  double counted = 0.0;
  for (size_t t = 0; t < batch.labels.size(); ++t) {
    const float token_loss = model.transformer.token_losses()[t];
    const auto dlogits = Rows(recorder.tensors.at("lm_head_gradient"),
                              batch.labels.size(), t, 1);
    const bool zero = std::all_of(dlogits.begin(), dlogits.end(),
                                  [](float g) { return g == 0.0f; });
    EXPECT_EQ(batch.labels[t] == -100, token_loss == 0.0f);
    EXPECT_EQ(batch.labels[t] == -100, zero);
    sum += static_cast<double>(token_loss);
    counted += batch.labels[t] == -100 ? 0 : 1;
  }
  // 50 additions of values below 16 in FP64.
  EXPECT_NEAR(loss, sum / counted, 50 * 16 * 0x1p-53);
}

TEST(Transformer, AnExpertWithoutTokensGetsZeroGradients) {
  const SmallBatch batch(SmallConfig(), {33});
  SmallModel model(SmallConfig(), "mxfp8_rceil");
  Matrix<float> bias(1, SmallConfig().num_experts);
  bias(0, 4) = -10;
  model.transformer.LoadExpertBias(bias.view());
  // What a previous step left must not shine through.
  for (auto& gradient : model.gradients.parameters()) {
    std::fill_n(gradient.values.data(), gradient.values.size(), 7.0f);
  }

  model.Step(batch);

  EXPECT_EQ(model.transformer.tokens_per_expert()(0, 4), 0);
  const auto& gradient = model.gradients.ByName(
      "layers.1.moe.routed_experts.inner_experts.w2_EDF");
  const size_t size = gradient.values.size() / SmallConfig().num_experts;
  const std::span<const float> of_expert(gradient.values.data() + 4 * size,
                                         size);
  EXPECT_THAT(of_expert, ::testing::Each(0.0f));
}

TEST(Transformer, CountsAddUpToTokensTimesSlots) {
  const SmallBatch batch(SmallConfig(), {21, 12});
  SmallModel model(SmallConfig());

  model.Step(batch);

  const auto counts = model.transformer.tokens_per_expert();
  int64_t sum = 0;
  for (size_t e = 0; e < counts.cols(); ++e) sum += counts(0, e);
  EXPECT_EQ(counts.rows(), 1u);
  EXPECT_EQ(sum, 2 * 33);
}

template <typename Body>
std::string MessageOf(const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kShape);
    return error.what();
  }
  return "nothing was thrown";
}

TEST(Transformer, RefusesBatchesThatBreakARule) {
  SmallModel model(SmallConfig());
  const SmallBatch good(SmallConfig(), {8, 8});
  const auto forward = [&](const SmallBatch& batch) {
    return MessageOf([&] { model.transformer.Forward(batch.view()); });
  };

  SmallBatch batch = good;
  batch.tokens[3] = 37;
  EXPECT_THAT(forward(batch), HasSubstr("token 3 is 37, but vocab_size is 37"));
  batch = good;
  batch.labels.pop_back();
  EXPECT_THAT(forward(batch), HasSubstr("16 tokens, 15 labels"));
  batch = good;
  batch.document_ends = {8, 15};
  EXPECT_THAT(forward(batch), HasSubstr("document_ends"));
  batch = good;
  batch.sequence_ends = {8, 8, 16};
  EXPECT_THAT(forward(batch), HasSubstr("sequence_ends"));
  batch = good;
  std::fill(batch.labels.begin(), batch.labels.end(), -100);
  EXPECT_THAT(forward(batch), HasSubstr("none of 16 labels counts"));
  batch = good;
  batch.positions[0] = -1;
  EXPECT_THAT(forward(batch), HasSubstr("position 0 is -1"));
}

TEST(Transformer, RefusesBackwardWithoutForward) {
  SmallModel model(SmallConfig());
  const SmallBatch batch(SmallConfig(), {8});
  const auto backward = [&] {
    model.transformer.Backward(batch.view(), model.gradients);
  };

  EXPECT_THAT(MessageOf(backward), HasSubstr("is missing or used up"));
  model.Step(batch);
  EXPECT_THAT(MessageOf(backward), HasSubstr("is missing or used up"));
}

TEST(ParameterSet, SuggestsTheNearestName) {
  const ParameterSet parameters(SmallConfig());

  try {
    parameters.ByName("layers.0.attention.wkv_c.weight");
    FAIL() << "an unknown name was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    EXPECT_THAT(error.what(),
                HasSubstr("Did you mean `layers.0.attention.wkv_"));
  }
}

}  // namespace
}  // namespace isoloss::model::transformer_test
