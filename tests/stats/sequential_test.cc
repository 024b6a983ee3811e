#include "isoloss/stats/sequential.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "isoloss/base/error.h"
#include "simulation.h"

namespace isoloss::stats {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// z = 1, 1, -2, 3: S = 0.5, 1, 0, 2.5; of -z: 0, 0, 1.5, 0.
TEST(Cusum, MatchesAHandCalculation) {
  Cusum two_sided(false);
  Cusum one_sided(true);
  const std::vector<double> two = {0.5, 1, 1.5, 2.5};
  const std::vector<double> one = {0.5, 1, 0, 2.5};
  const std::vector<double> z = {1, 1, -2, 3};

  for (size_t i = 0; i < z.size(); ++i) {
    two_sided.Add(z[i]);
    one_sided.Add(z[i]);

    EXPECT_EQ(two_sided.value(), two[i]);
    EXPECT_EQ(one_sided.value(), one[i]);
  }
}

TEST(Cusum, NeverForgetsWhatIsNotANumber) {
  for (const double bad : {kNan, kInfinity}) {
    Cusum cusum(true);
    cusum.Add(bad);
    cusum.Add(-kInfinity);
    cusum.Add(-5);

    EXPECT_EQ(cusum.value(), kInfinity);
  }
}

/// The mixture integral of one side by the midpoint rule over lambda, in units
/// of the scale rho / sd: 2 phi(l) exp(lambda x - lambda^2 n sd^2 / 2).
double MixtureOneSide(double excess, double n, double sd, double rho) {
  const int intervals = 400000;
  const double h = 12.0 / intervals;
  double sum = 0;
  for (int i = 0; i < intervals; ++i) {
    const double l = (i + 0.5) * h;
    const double lambda = l * rho / sd;
    sum += std::exp(lambda * excess - lambda * lambda * n * sd * sd / 2 -
                    l * l / 2);
  }
  return sum * h * std::sqrt(2 / std::numbers::pi);
}

// Midpoint rule: the error is h^2 / 24 * |f'| at 0 = 1e-10 * |excess| / sd,
// relative to an integral that for excess / sd = -60 is about 1 / 60: 1e-6.
TEST(SequentialMonitor, EValueIsTheMixtureIntegral) {
  const double alpha = 0.01;
  const double rho = std::sqrt(
      (-2 * std::log(alpha) + std::log(1 - 2 * std::log(alpha))) / 20);
  for (const double mean : {-3.0, -0.4, 0.0, 0.7, 1.5}) {
    SequentialOptions options{.margin = 0.5, .alpha = alpha, .sd = 0.7};
    SequentialMonitor two_sided(options);
    options.one_sided = true;
    SequentialMonitor one_sided(options);
    for (int i = 0; i < 12; ++i) {
      two_sided.Add(mean);
      one_sided.Add(mean);
    }
    const double above = MixtureOneSide(12 * (mean - 0.5), 12, 0.7, rho);
    const double below = MixtureOneSide(12 * (-mean - 0.5), 12, 0.7, rho);

    EXPECT_NEAR(std::exp(one_sided.state().log_e.value()), above, 1e-6 * above);
    EXPECT_NEAR(std::exp(two_sided.state().log_e.value()), (above + below) / 2,
                1e-6 * (above + below));
  }
}

// Far below the margin the closed form takes its expansion; at y = -20 both
// agree to 15 / 20^6 = 2.3e-7. Seen as a smooth sequence: the second difference
// over steps of y that straddle -20 stays that of log(1 / -y), 1 / y^2 h^2.
TEST(SequentialMonitor, EValueIsSmoothWhereTheExpansionTakesOver) {
  const double rho_squared =
      (-2 * std::log(0.01) + std::log(1 - 2 * std::log(0.01))) / 20;
  const double width = std::sqrt(1 + 1 / rho_squared);
  const auto log_e = [&](double y) {
    SequentialMonitor monitor({.margin = 1, .one_sided = true, .sd = 1.0});
    return monitor.Add(1 + y * width).log_e.value();
  };
  const double h = 0.01;

  EXPECT_NEAR(log_e(-20 - h) - 2 * log_e(-20) + log_e(-20 + h), h * h / 400,
              5e-7);
}

TEST(SequentialMonitor, RaisesTheEValueAlarmOnceOneOverAlphaIsReached) {
  SequentialMonitor monitor({.margin = 0.25, .alpha = 0.01, .sd = 0.1});
  bool reached = false;
  for (int64_t batch = 1; batch <= 20; ++batch) {
    const SequentialState& state = monitor.Add(-0.4);
    reached = reached || *state.log_e >= std::log(100.0);
    EXPECT_EQ(state.alarm, reached ? Alarm::kEProcess : Alarm::kNone) << batch;
    EXPECT_FALSE(reached && batch == 1);
  }

  EXPECT_TRUE(reached);
  EXPECT_EQ(monitor.state().batches, 20);
}

TEST(SequentialMonitor, OneSidedOnlyMindsWorse) {
  SequentialMonitor known(
      {.margin = 0.25, .one_sided = true, .sd = 0.1, .cusum_limit = 5.0});
  SequentialMonitor unknown({.margin = 0.25, .one_sided = true});
  Normal normal("better");
  for (int batch = 0; batch < 100; ++batch) {
    const double value = -2 + 0.1 * normal.Next();
    known.Add(value);
    unknown.Add(value);
  }

  EXPECT_EQ(known.state().alarm, Alarm::kNone);
  EXPECT_EQ(unknown.state().alarm, Alarm::kNone);
}

// Values alternate 1 and 3: after 20 the mean is 2 and s^2 = 20 / 19.
TEST(SequentialMonitor, ConfidenceSequenceMatchesItsFormula) {
  const double alpha = 0.05;
  SequentialMonitor monitor(
      {.margin = 9, .alpha = alpha, .tuned_for = 30, .first_look = 20});
  for (int batch = 0; batch < 19; ++batch) {
    monitor.Add(batch % 2 == 0 ? 1 : 3);
    EXPECT_EQ(monitor.state().lower, -kInfinity);
    EXPECT_EQ(monitor.state().upper, kInfinity);
  }
  monitor.Add(3);

  const double r =
      (-2 * std::log(alpha) + std::log(-2 * std::log(alpha) + 1)) / 30;
  const double t = 20;
  const double half_width =
      std::sqrt(20.0 / 19 * 2 * (t * r + 1) / (t * t * r) *
                std::log(std::sqrt(t * r + 1) / alpha));
  // Some 20 roundings.
  EXPECT_NEAR(monitor.state().lower, 2 - half_width, 1e-13);
  EXPECT_NEAR(monitor.state().upper, 2 + half_width, 1e-13);
  EXPECT_FALSE(monitor.state().log_e.has_value());
}

TEST(SequentialMonitor, WithoutSdTheConfidenceSequenceDecides) {
  for (const double mean : {-2.0, 2.0}) {
    SequentialMonitor monitor({.margin = 1, .first_look = 10});
    Normal normal("decides");
    for (int batch = 1; batch <= 60; ++batch) {
      monitor.Add(mean + 0.5 * normal.Next());
      if (batch < 10) {
        EXPECT_EQ(monitor.state().alarm, Alarm::kNone);
      }
    }

    EXPECT_EQ(monitor.state().alarm, Alarm::kConfidenceSequence);
  }
}

// A jump after a long good stretch: the mean is still within the margin.
TEST(SequentialMonitor, CusumFindsAJump) {
  SequentialMonitor monitor(
      {.margin = 1, .sd = 0.1, .null_mean = 0.2, .cusum_limit = 5.0});
  for (int batch = 0; batch < 50; ++batch) monitor.Add(0.2);
  EXPECT_EQ(monitor.state().cusum, 0);
  monitor.Add(0.5);  // z = 3: 2.5
  monitor.Add(0.5);  // 5, not above
  EXPECT_EQ(monitor.state().alarm, Alarm::kNone);
  monitor.Add(0.5);

  EXPECT_EQ(monitor.state().alarm, Alarm::kCusum);
}

TEST(SequentialMonitor, AbortsAtOnceOnWhatIsNotFinite) {
  for (const double bad : {kNan, kInfinity, -kInfinity}) {
    SequentialMonitor monitor({.margin = 1, .sd = 0.1});
    monitor.Add(0);
    EXPECT_EQ(monitor.state().alarm, Alarm::kNone);
    EXPECT_EQ(monitor.Add(bad).alarm, Alarm::kNotFinite);
    monitor.Add(0);

    EXPECT_EQ(monitor.state().alarm, Alarm::kNotFinite);
    EXPECT_EQ(monitor.state().batches, 3);
  }
}

TEST(SequentialMonitor, RejectsOptionsOutOfRange) {
  const std::vector<SequentialOptions> bad = {
      {.margin = 0},
      {.margin = kNan},
      {.margin = 1, .alpha = 0.5},
      {.margin = 1, .sd = 0.0},
      {.margin = 1, .null_mean = kNan},
      {.margin = 1, .sd = 1.0, .cusum_limit = 0.0},
      {.margin = 1, .cusum_limit = 5.0},
      {.margin = 1, .tuned_for = 0},
      {.margin = 1, .first_look = 1}};
  for (const SequentialOptions& options : bad) {
    EXPECT_THROW(SequentialMonitor{options}, Error);
  }
}

}  // namespace
}  // namespace isoloss::stats
