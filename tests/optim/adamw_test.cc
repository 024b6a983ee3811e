#include "isoloss/optim/adamw.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/base/rng.h"
#include "isoloss/kernels/rowwise.h"

namespace isoloss::optim::adamw_test {
namespace {

/// The formula of docs/model.md, section 11, as it stands there, on one element
/// in double.
class AdamWInDouble {
 public:
  AdamWInDouble(const AdamWConfig& config, double parameter)
      : config_(config), p_(parameter) {}

  double Step(double lr, double g) {
    ++t_;
    p_ *= 1 - lr * config_.weight_decay;
    m_ = config_.beta1 * m_ + (1 - config_.beta1) * g;
    v_ = config_.beta2 * v_ + (1 - config_.beta2) * g * g;
    const double m_hat = m_ / (1 - std::pow(config_.beta1, t_));
    const double root =
        std::sqrt(v_) / std::sqrt(1 - std::pow(config_.beta2, t_));
    return p_ -= lr * m_hat / (root + config_.eps);
  }

 private:
  AdamWConfig config_;
  double p_;
  double m_ = 0;
  double v_ = 0;
  int t_ = 0;
};

TEST(AdamW, FirstStepMovesByTheLearningRateAgainstTheSign) {
  std::vector<float> parameter = {1.0f, 1.0f, 0.0f};
  std::vector<float> gradient = {3.0f, -0.02f, 0.0f};
  Executor executor(1);
  AdamW adamw({.eps = 0x1p-40, .weight_decay = 0.5},
              {{.parameter = parameter, .gradient = gradient}});

  adamw.Step(/*lr=*/0.125, /*grad_scale=*/1.0, executor);

  // p (1 - lr wd) - lr sign(g); the update comes from 8 roundings and five
  // rounded scalars, the subtraction adds one; eps / |g| is below 2^-34.
  const double tolerance = 0.125 * 13 * 0x1p-24 + 0x1p-24 + 0x1p-34;
  EXPECT_NEAR(parameter[0], 0.9375 - 0.125, tolerance);
  EXPECT_NEAR(parameter[1], 0.9375 + 0.125, tolerance);
  EXPECT_EQ(parameter[2], 0.0f);
}

TEST(AdamW, FollowsTheFormulaInDouble) {
  // A large eps, so that its place in the formula matters.
  const AdamWConfig config{
      .beta1 = 0.8, .beta2 = 0.95, .eps = 0.1, .weight_decay = 0.25};
  constexpr int kSteps = 20;
  constexpr double kLr = 0x1p-7;
  constexpr double kGradScale = 0.5;
  std::vector<float> first = {1.0f, -0.5f};
  std::vector<float> second = {0.25f};
  std::vector<float> first_gradient(2);
  std::vector<float> second_gradient(1);
  std::vector<AdamWInDouble> expected = {
      {config, 1.0}, {config, -0.5}, {config, 0.25}};
  Executor executor(2);
  AdamW adamw(config, {{.parameter = first, .gradient = first_gradient},
                       {.parameter = second, .gradient = second_gradient}});

  double bound = 0;
  for (int t = 1; t <= kSteps; ++t) {
    first_gradient = {1.0f + 0.125f * static_cast<float>(t % 5), 2.0f};
    second_gradient = {3.0f - 0.25f * static_cast<float>(t % 7)};
    adamw.Step(kLr, kGradScale, executor);
    const double p0 = expected[0].Step(
        kLr, kGradScale * static_cast<double>(first_gradient[0]));
    const double p1 = expected[1].Step(
        kLr, kGradScale * static_cast<double>(first_gradient[1]));
    const double p2 = expected[2].Step(
        kLr, kGradScale * static_cast<double>(second_gradient[0]));

    // In units of 2^-24. The parameter, below 1: two roundings and one of the
    // decay factor. The update: gradients are positive, so relative errors of
    // the moments add up without cancellation, by at most 3 (m) and 4 (v,
    // halved by the root) per step; 7 more roundings follow. |update| <= lr *
    // max g / min g < 3 lr.
    bound += (3 + 3 * kLr * (5 * t + 7)) * 0x1p-24;
    EXPECT_NEAR(first[0], p0, bound) << "step " << t;
    EXPECT_NEAR(first[1], p1, bound) << "step " << t;
    EXPECT_NEAR(second[0], p2, bound) << "step " << t;
  }
}

TEST(AdamW, CarriesNanToTheWeights) {
  std::vector<float> parameter = {1.0f, 1.0f};
  std::vector<float> gradient = {std::numeric_limits<float>::quiet_NaN(), 1.0f};
  Executor executor(1);
  AdamW adamw({}, {{.parameter = parameter, .gradient = gradient}});

  adamw.Step(1e-3, 1.0, executor);

  EXPECT_TRUE(std::isnan(parameter[0]));
  EXPECT_FALSE(std::isnan(parameter[1]));
}

std::vector<float> Noise(size_t size, uint64_t stream) {
  const CounterRng rng(/*seed=*/1, stream);
  std::vector<float> values(size);
  for (size_t i = 0; i < size; ++i) {
    values[i] = static_cast<float>(rng.Uniform(i) - 0.5);
  }
  return values;
}

TEST(AdamW, SquaresAreThoseOfTheParameterBeforeAndOfItsChange) {
  // Two runs of threads and a part of a leaf; and less than a leaf.
  constexpr size_t kSizes[] = {20 * kernels::kSquaresLeaf + 7, 5};
  Executor executor(2);
  std::vector<std::vector<float>> watched;
  std::vector<std::vector<float>> gradients;
  for (const size_t size : kSizes) {
    watched.push_back(Noise(size, 1));
    gradients.push_back(Noise(size, 2));
  }
  std::vector<std::vector<float>> plain = watched;
  AdamW with({}, {{watched[0], gradients[0]}, {watched[1], gradients[1]}});
  AdamW without({}, {{plain[0], gradients[0]}, {plain[1], gradients[1]}});

  std::vector<UpdateSquares> squares(2);
  for (int step = 0; step < 3; ++step) {
    const std::vector<std::vector<float>> before = watched;
    with.Step(1e-2, 0.5, executor, squares);
    without.Step(1e-2, 0.5, executor);

    EXPECT_EQ(watched, plain) << "step " << step;
    for (size_t i = 0; i < before.size(); ++i) {
      std::vector<float> change(before[i].size());
      for (size_t j = 0; j < change.size(); ++j) {
        change[j] = watched[i][j] - before[i][j];
      }
      std::vector<double> leaves(squares[i].parameter.size());
      kernels::SumOfSquaresLeaves(before[i], leaves, executor);
      EXPECT_EQ(squares[i].parameter, leaves) << "tensor " << i;
      kernels::SumOfSquaresLeaves(change, leaves, executor);
      EXPECT_EQ(squares[i].update, leaves) << "tensor " << i;
    }
  }
}

TEST(AdamW, CanLeaveParametersWhereTheirGradientsWere) {
  constexpr size_t kSizes[] = {20 * kernels::kSquaresLeaf + 7, 5};
  Executor executor(2);
  std::vector<std::vector<float>> keeping;
  std::vector<std::vector<float>> gradients;
  for (const size_t size : kSizes) {
    keeping.push_back(Noise(size, 1));
    gradients.push_back(Noise(size, 2));
  }
  std::vector<std::vector<float>> plain = keeping;
  std::vector<std::vector<float>> kept = gradients;
  AdamW with({}, {{keeping[0], kept[0]}, {keeping[1], kept[1]}});
  AdamW without({}, {{plain[0], gradients[0]}, {plain[1], gradients[1]}});
  std::vector<UpdateSquares> squares(2);
  for (int step = 0; step < 3; ++step) {
    const std::vector<std::vector<float>> before = plain;
    kept[0] = gradients[0];
    kept[1] = gradients[1];

    with.StepKeepingParameters(1e-2, 0.5, executor, squares);
    without.Step(1e-2, 0.5, executor);

    EXPECT_EQ(keeping, plain) << "step " << step;
    EXPECT_EQ(kept, before) << "step " << step;
  }
}

TEST(AdamW, GoesOnToTheBitFromWhatItHandsOut) {
  Executor executor(1);
  std::vector<float> gradient = Noise(100, 3);
  std::vector<float> straight = Noise(100, 4);
  AdamW first({}, {{straight, gradient}});
  // Enough steps for pow(beta, t) to differ from the product in its last bits.
  for (int step = 0; step < 37; ++step) first.Step(1e-2, 1.0, executor);

  std::vector<float> resumed = straight;
  AdamW second({}, {{resumed, gradient}});
  second.first_moments()[0].CopyFrom(first.first_moments()[0]);
  second.second_moments()[0].CopyFrom(first.second_moments()[0]);
  second.Restore(first.steps());
  for (int step = 0; step < 3; ++step) {
    first.Step(1e-2, 1.0, executor);
    second.Step(1e-2, 1.0, executor);
  }

  EXPECT_EQ(second.steps(), 40);
  EXPECT_EQ(resumed, straight);
}

TEST(AdamW, RejectsWhatHasNoMeaning) {
  std::vector<float> parameter(3);
  std::vector<float> gradient(2);

  EXPECT_THROW(AdamW({}, {{.parameter = parameter, .gradient = gradient}}),
               Error);
  EXPECT_THROW(AdamW({.beta1 = 1.0}, {}), Error);
  EXPECT_THROW(AdamW({.beta2 = -0.1}, {}), Error);
  EXPECT_THROW(AdamW({.eps = std::numeric_limits<double>::infinity()}, {}),
               Error);
  EXPECT_THROW(AdamW({.weight_decay = -1.0}, {}), Error);
  AdamW none({}, {});
  Executor executor(1);
  std::vector<UpdateSquares> squares(1);
  EXPECT_THROW(none.Step(1e-3, 1.0, executor, squares), Error);
  EXPECT_THROW(none.Restore(-1), Error);
  EXPECT_THROW(none.Restore(AdamW::kMaxSteps + 1), Error);
}

}  // namespace
}  // namespace isoloss::optim::adamw_test
