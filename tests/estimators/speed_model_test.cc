#include "isoloss/estimators/speed_model.h"

#include <gtest/gtest.h>

#include <vector>

#include "isoloss/base/error.h"

namespace isoloss::estimators::speed_model_test {
namespace {

/// Two kinds; numbers to calculate with by hand.
ModelWork SmallWork() {
  return {.name = "small",
          .kinds = {{"a", {{{8e9, 100, 300}, {2e9, 100, 0}, {2e9, 50, 50}}}},
                    {"routed_experts.w1",
                     {{{4e9, 100, 100}, {2e9, 100, 0}, {2e9, 50, 50}}}}},
          .moe_layers = 2,
          .dim = 1000,
          .experts = 64,
          .top_k = 2};
}
constexpr Hardware kSlow = {"slow", 1e14, 1e12, 1e9, 8};
constexpr SpeedAssumptions kAssumed = {.gemm_share = 0.5, .memory_share = 0.5};

TEST(SpeedModel, SharesAreThoseOfTheShapes) {
  const ModelWork work = SmallWork();

  EXPECT_EQ(work.Flops(), 20e9);
  EXPECT_EQ(work.OperandBytes(), 2 * 1000);
  const ModelShare share = ShareOfModel(work, {"a", 0, kMxfp8});
  EXPECT_DOUBLE_EQ(share.flops, 8.0 / 20);
  // 400 values of 2 bytes become 8.25 bits each.
  EXPECT_DOUBLE_EQ(share.bytes_saved, 400 * (2 - 8.25 / 8) / 2000);
  EXPECT_EQ(ShareOfModel(work, {"none", 0, kMxfp8}).flops, 0);
  double all = 0;
  for (const KindWork& kind : work.kinds) {
    for (size_t product = 0; product < kProductRoles; ++product) {
      all += ShareOfModel(work, {kind.kind, product, kMxfp8}).flops;
    }
  }
  EXPECT_NEAR(all, 1, 6 * 1.2e-16);  // six roundings
}

TEST(SpeedModel, PartsAreThoseOfAHandCalculation) {
  const SpeedModel model(SmallWork(), kSlow, kAssumed);

  // 20e9 / (0.5 * 1e14) s.
  EXPECT_DOUBLE_EQ(model.GemmSeconds(), 4e-4);
  // 2 layers, 2 experts of which 3 of 4 nodes are others, 1000 values of 2
  // bytes, 6 times, over 1e9 bytes/s.
  EXPECT_DOUBLE_EQ(model.ExchangeSeconds(Dispatch::kStandard),
                   2 * 2 * 0.75 * 1000 * 2 * 6 / 1e9);
  // Of a node with 16 of 64 experts: none of 2 with 48/64 * 47/63.
  EXPECT_NEAR(model.ExchangeSeconds(Dispatch::kDeepep),
              2 * 3 * (1 - 48.0 * 47 / 64 / 63) * 1000 * 2 * 6 / 1e9, 1e-18);
  EXPECT_DOUBLE_EQ(model.ExchangeSeconds(Dispatch::kDeepep, Spread::kOneRank),
                   2 * 0.75 * 1000 * 2 * 6 / 1e9);
  // Half of the GEMM's time less 400 values of 2 + 8.25 / 8 bytes.
  EXPECT_DOUBLE_EQ(model.SavedSeconds({"a", 0, kMxfp8}),
                   8e9 / 5e13 / 2 - 400 * (2 + 8.25 / 8) / 5e11);
  // Of one operand alone, casts cost and nothing is gained.
  EXPECT_DOUBLE_EQ(model.SavedSeconds({"a", 0, {8.25, 16, 16}}),
                   -100 * (2 + 8.25 / 8) / 5e11);
  // Four bits are twice as fast again.
  EXPECT_DOUBLE_EQ(model.SavedSeconds({"a", 1, {4.25, 4.25, 4}}),
                   0.75 * 2e9 / 5e13 - 100 * (2 + 4.25 / 8) / 5e11);
}

TEST(SpeedModel, FitsOnePublishedRunAndTriesTheOthers) {
  const SpeedModel model(SmallWork(), kSlow, kAssumed);

  const std::vector<SpeedTry> tries = model.Tries();

  ASSERT_EQ(tries.size(), 3U);
  EXPECT_TRUE(tries[0].fitted);
  EXPECT_NEAR(tries[0].predicted, 651, 651 * 1e-14);
  EXPECT_FALSE(tries[1].fitted);
  EXPECT_GT(tries[1].predicted, tries[0].predicted);
  EXPECT_GT(tries[2].predicted, tries[1].predicted);
  const std::vector<QuantizedProduct> experts = {
      {"routed_experts.w1", 0, kMxfp8},
      {"routed_experts.w1", 1, kMxfp8},
      {"routed_experts.w1", 2, kMxfp8}};
  EXPECT_DOUBLE_EQ(tries[2].predicted / tries[1].predicted,
                   model.SpeedUp(experts));
  EXPECT_EQ(model.SpeedUp({}), 1);
}

TEST(SpeedModel, RefusesARunThatIsSlowerThanItsParts) {
  constexpr Hardware kTooSlow = {"too slow", 1e13, 1e12, 1e9, 8};

  EXPECT_THROW(SpeedModel(SmallWork(), kTooSlow, kAssumed), Error);
}

}  // namespace
}  // namespace isoloss::estimators::speed_model_test
