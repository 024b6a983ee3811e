#include "isoloss/train/presets.h"

#include <gtest/gtest.h>

#include <string>

#include "isoloss/base/error.h"
#include "isoloss/model/parameters.h"
#include "isoloss/train/experiment.h"

namespace isoloss::train {
namespace {

class PresetConformance : public testing::TestWithParam<std::string> {};

TEST_P(PresetConformance, IsAValidModelWhoseSizeIsEstimatedExactly) {
  const Preset& preset = PresetByName(GetParam());

  model::Validate(preset.model, "preset");

  const model::ParameterSet parameters(preset.model);
  EXPECT_EQ(EstimatedParameters(preset.model),
            static_cast<double>(parameters.value_count()));
}

TEST_P(PresetConformance, WarmsUpAndBalancesFastEnoughNotToCollapse) {
  const TrainConfig& train = PresetByName(GetParam()).train;

  // Faster than DeepSeek-V3's rate, with which models of this size collapsed.
  EXPECT_GT(train.load_balance_coeff, 0.001);
  EXPECT_GE(train.warmup_steps, 100);
  EXPECT_GE(train.steps, 300);
  EXPECT_GE(train.seeds.size(), 4u);
}

INSTANTIATE_TEST_SUITE_P(All, PresetConformance,
                         testing::ValuesIn(PresetNames()));

TEST(Presets, SuggestTheNearestName) {
  try {
    PresetByName("dsv3-smal");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "unknown preset `dsv3-smal`. Known presets: dsv3-nano, "
                 "dsv3-small, torchtitan-debug. Did you mean `dsv3-small`?");
  }
}

}  // namespace
}  // namespace isoloss::train
