#include "isoloss/optim/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "isoloss/base/error.h"
#include "support/h5_file.h"

namespace isoloss::optim::schedule_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<double> Factors(const ScheduleConfig& config) {
  const Schedule schedule(config);
  std::vector<double> factors;
  for (int64_t step = 0; step < config.total_steps; ++step) {
    factors.push_back(schedule.Factor(step));
  }
  return factors;
}

std::string ErrorOf(const ScheduleConfig& config) {
  try {
    const Schedule schedule(config);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

ScheduleConfig ReadCase(const test_support::H5File& file,
                        const std::string& name) {
  ScheduleConfig config;
  config.base_lr = file.Attribute<double>("base_lr", name);
  config.total_steps = file.Attribute<int64_t>("total_steps", name);
  config.warmup_steps = file.Attribute<int64_t>("warmup_steps", name);
  const auto ratio = file.Attribute<double>("decay_ratio", name);
  if (ratio >= 0) config.decay_ratio = ratio;
  config.decay =
      static_cast<DecayShape>(file.Attribute<int64_t>("decay_type", name));
  config.min_lr_factor = file.Attribute<double>("min_lr_factor", name);
  return config;
}

TEST(Schedule, EqualsTorchtitanInEveryReferenceCase) {
  const test_support::H5File file(
      test_support::GoldenPath("reference", "lr_schedule.h5"));
  int cases = 0;
  for (; file.Has("case" + std::to_string(cases)); ++cases) {
    const std::string name = "case" + std::to_string(cases);
    const ScheduleConfig config = ReadCase(file, name);
    const auto factors = file.Read<double>(name + "/factor").values;
    const auto rates = file.Read<double>(name + "/lr").values;
    ASSERT_EQ(factors.size(), static_cast<size_t>(config.total_steps));
    // Both sides round at most five times, each time by at most 2^-54 of a
    // value of at most 1. A cosine adds 1e-14: half of it from SinCos (halved
    // by the formula), the rest far above the rounding of pi * p and libm.
    const double tolerance = 10 * std::ldexp(1.0, -54) +
                             (config.decay == DecayShape::kCosine ? 1e-14 : 0);

    const Schedule schedule(config);

    for (size_t n = 0; n < factors.size(); ++n) {
      const auto step = static_cast<int64_t>(n);
      EXPECT_NEAR(schedule.Factor(step), factors[n], tolerance)
          << name << " step " << n;
      // One more rounding on each side.
      EXPECT_NEAR(schedule.LearningRate(step), rates[n],
                  config.base_lr * (tolerance + std::ldexp(1.0, -52)))
          << name << " step " << n;
    }
  }
  EXPECT_GT(cases, 0);
}

TEST(Schedule, WarmsUpHoldsAndDecaysAboveTheFloor) {
  EXPECT_THAT(Factors({.total_steps = 8,
                       .warmup_steps = 2,
                       .decay_ratio = 0.5,
                       .min_lr_factor = 0.5}),
              ElementsAre(0.5, 1, 1, 1, 1, 0.875, 0.75, 0.625));
}

TEST(Schedule, RoundsTheDecayHalfToEven) {
  // 5 * 0.5 = 2.5 steps of decay are 2, of which the last one is virtual.
  EXPECT_THAT(Factors({.total_steps = 5, .decay_ratio = 0.5}),
              ElementsAre(1, 1, 1, 1, 0.5));
}

TEST(Schedule, CutsTheWarmUpAtTheLastStep) {
  EXPECT_THAT(Factors({.total_steps = 4, .warmup_steps = 9}),
              ElementsAre(0.25, 0.5, 0.75, 1));
}

TEST(Schedule, RejectsWhatHasNoMeaning) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

  EXPECT_THAT(ErrorOf({.total_steps = 0}), HasSubstr("0 steps"));
  EXPECT_THAT(ErrorOf({.total_steps = 1, .warmup_steps = -3}),
              HasSubstr("-3 of warm-up"));
  EXPECT_THAT(ErrorOf({.base_lr = 0, .total_steps = 1}),
              HasSubstr("the learning rate is 0"));
  EXPECT_THAT(ErrorOf({.base_lr = kNan, .total_steps = 1}),
              HasSubstr("the learning rate is nan"));
  EXPECT_THAT(ErrorOf({.total_steps = 1, .decay_ratio = 1.5}),
              HasSubstr("decay_ratio is 1.5"));
  EXPECT_THAT(ErrorOf({.total_steps = 1, .min_lr_factor = kNan}),
              HasSubstr("min_lr_factor is nan"));
}

}  // namespace
}  // namespace isoloss::optim::schedule_test
