#include "isoloss/gate/sequential_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "isoloss/base/error.h"
#include "sample_evidence.h"

namespace isoloss::gate {
namespace {

using ::testing::HasSubstr;

/// Feeds steps with this difference in % until the watch aborts.
std::optional<Abort> Watch(SequentialWatch watch, int64_t steps,
                           const std::function<double(int64_t)>& percent) {
  for (int64_t step = 1; step <= steps; ++step) {
    const double loss = 3 + 1 / static_cast<double>(step);
    if (watch.Add({.step = step, .loss_nats = loss, .grad_norm = 1},
                  {.step = step,
                   .loss_nats = loss * (1 + percent(step) / 100),
                   .grad_norm = 1})) {
      break;
    }
  }
  return watch.abort();
}

constexpr BatchSpread kSpread = {.mean_percent = 0.05, .sd_percent = 0.05};

TEST(SequentialWatch, LetsAGoodRunGoOn) {
  const auto good = [](int64_t step) { return step % 2 == 0 ? 0.1 : 0.0; };

  EXPECT_FALSE(Watch(SequentialWatch({}, kSpread), 2000, good));
  EXPECT_FALSE(Watch(SequentialWatch(Policy{}), 2000, good));
}

TEST(SequentialWatch, StopsARunBeyondTheMargin) {
  const auto bad = [](int64_t) { return 0.5; };

  const auto abort = Watch(SequentialWatch({}, kSpread), 2000, bad);

  ASSERT_TRUE(abort.has_value());
  EXPECT_LT(abort->step, 200);
  EXPECT_EQ(abort->step % 20, 0) << "only whole batches are judged";
}

TEST(SequentialWatch, StopsAJumpWithinTheMargin) {
  // 0.1 % off the null mean is 2 sd of a batch mean: z - 0.5 = 1.5 a batch,
  // above the limit of 8 with the sixth batch after the jump.
  const auto jump = [](int64_t step) { return step <= 200 ? 0.05 : 0.15; };

  const auto abort = Watch(SequentialWatch({}, kSpread), 2000, jump);

  ASSERT_TRUE(abort.has_value());
  EXPECT_EQ(abort->alarm, stats::Alarm::kCusum);
  EXPECT_EQ(abort->step, 200 + 6 * 20);
  EXPECT_THAT(abort->reason, HasSubstr("jumped"));
}

TEST(SequentialWatch, StopsAtOnceAtWhatIsNotFinite) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const runlog::StepRow good{.step = 1, .loss_nats = 3, .grad_norm = 1};
  runlog::StepRow bad_loss = good;
  bad_loss.loss_nats = nan;
  runlog::StepRow bad_norm = good;
  bad_norm.grad_norm = 1 / 0.0;
  runlog::StepRow bad_gradient = good;
  bad_gradient.nonfinite_gradients = 1;

  for (const auto& bad : {bad_loss, bad_norm, bad_gradient}) {
    for (const bool swap : {false, true}) {
      SequentialWatch watch(Policy{});
      const auto abort = swap ? watch.Add(bad, good) : watch.Add(good, bad);
      ASSERT_TRUE(abort.has_value());
      EXPECT_EQ(abort->step, 1);
      EXPECT_EQ(abort->alarm, stats::Alarm::kNotFinite);
      EXPECT_THAT(abort->reason, HasSubstr(swap ? "baseline" : "candidate"));
    }
  }
}

TEST(SequentialWatch, RefusesStepsThatDoNotBelongTogether) {
  SequentialWatch watch(Policy{});
  watch.Add({.step = 1, .loss_nats = 3}, {.step = 1, .loss_nats = 3});

  EXPECT_THROW(watch.Add({.step = 2, .loss_nats = 3}, {.step = 3}), Error);
  EXPECT_THROW(watch.Add({.step = 1, .loss_nats = 3}, {.step = 1}), Error);
}

// Members differ by some 0.02 % between seeds, which is no spread of batches,
// and by 1e-4 sd in each step: a mean of 20 has sd 100 * 1e-4 / sqrt(20) =
// 0.00224 %. 40 members with 2 batches less one each leave 40 degrees of
// freedom; the estimate is within 50 % but for one case in 10 000.
TEST(SpreadOfBatches, IsThatWithinRuns) {
  const auto spread = SpreadOfBatches(SeedsEnsemble(40), {});

  ASSERT_TRUE(spread.has_value());
  EXPECT_NEAR(spread->sd_percent, 0.00224, 0.5 * 0.00224);
  EXPECT_NEAR(spread->mean_percent, 0.05, 0.01);
}

TEST(SpreadOfBatches, IsUnknownFromFewOrShortMembers) {
  NullEnsemble cut = SeedsEnsemble(40);
  for (auto& member : cut.ensemble.members) member.steps.loss_nats.resize(39);

  EXPECT_FALSE(SpreadOfBatches(SeedsEnsemble(39), {}).has_value());
  EXPECT_FALSE(SpreadOfBatches(cut, {}).has_value());
}

TEST(SequentialLevel, ReportsWhereAWatchWouldHaveStopped) {
  TwoArms arms(1);
  const NullEnsemble seeds = SeedsEnsemble(40);
  auto& losses = arms.Candidate(0).log.steps.loss_nats;
  for (size_t i = 0; i < losses.size(); ++i) losses[i] *= 1.01;
  const compare::Pairing pairing = arms.Pair();
  Policy policy;
  policy.levels = {"L5"};

  const Judgement judgement = Judge({.pairing = &pairing, .seeds = &seeds},
                                    policy, {.climb_all = true});

  const auto measure = std::find_if(
      judgement.measures.begin(), judgement.measures.end(),
      [](const Measure& m) { return m.name == "sequential_abort"; });
  ASSERT_NE(measure, judgement.measures.end());
  EXPECT_EQ(measure->value, 20);
}

}  // namespace
}  // namespace isoloss::gate
