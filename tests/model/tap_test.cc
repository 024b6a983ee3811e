// What the model announces: as which rows of the whole batch, with which
// formats. Which tensors there are is tested by graph_test.cc.
#include "isoloss/model/tap.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "isoloss/formats/bf16.h"
#include "isoloss/model/announce.h"
#include "model/small_model.h"

namespace isoloss::model::tap_test {
namespace {

using test_support::SmallBatch;
using test_support::SmallConfig;
using test_support::SmallModel;

/// What one announcement said, without its values.
struct Announced {
  std::string name;
  size_t rows;
  size_t cols;
  std::vector<size_t> begins;
  std::vector<size_t> segment_ends;
  size_t first_row;
  const formats::Quantization* rowwise;
  const formats::Quantization* columnwise;
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

TEST(Tap, NoNameIsAnnouncedTwice) {
  const SmallBatch batch(SmallConfig(), {40, 24});
  SmallModel model(SmallConfig(), "mxfp8_rceil");
  Listing listing;

  model.Step(batch, &listing);
  model.transformer.AnnounceWeights(model.weights, model.gradients, listing);

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
  model.transformer.AnnounceWeights(model.weights, model.gradients, listing);

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
  model.transformer.AnnounceWeights(model.weights, model.gradients, listing);

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

  model.transformer.AnnounceWeights(model.weights, model.gradients, sink);
}

}  // namespace
}  // namespace isoloss::model::tap_test
