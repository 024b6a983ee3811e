#include "isoloss/compare/peer_rules.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace isoloss::compare::peer_rules_test {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Falls from 5.2 to about 2.5 nats.
std::vector<double> Curve(size_t steps = 200) {
  std::vector<double> curve;
  for (size_t i = 0; i < steps; ++i) {
    curve.push_back(2.5 + 2.7 * std::exp(-static_cast<double>(i) / 60));
  }
  return curve;
}

std::vector<double> Times(std::vector<double> curve, double factor) {
  for (double& loss : curve) loss *= factor;
  return curve;
}

bool Accepts(std::string_view name, const std::vector<double>& candidate,
             const std::vector<double>& reference = Curve()) {
  for (const PeerRule& rule : PeerRules()) {
    if (rule.name == name) return rule.accepts({reference, candidate});
  }
  ADD_FAILURE() << "no rule " << name;
  return false;
}

TEST(PeerRules, AcceptTheSameCurve) {
  for (const PeerRule& rule : PeerRules()) {
    EXPECT_TRUE(Accepts(rule.name, Curve())) << rule.name;
  }
}

TEST(PeerRules, RefuseACurveTwiceAsHigh) {
  for (const PeerRule& rule : PeerRules()) {
    EXPECT_FALSE(Accepts(rule.name, Times(Curve(), 2))) << rule.name;
  }
}

// Defects of the rules that running them has shown.

TEST(MegatronApproximate, AcceptsFivePercentEverywhereAndALastInfinity) {
  std::vector<double> last_infinite = Curve();
  last_infinite.back() = kInfinity;

  EXPECT_TRUE(Accepts("megatron_approximate", Times(Curve(), 1.049)));
  EXPECT_FALSE(Accepts("megatron_approximate", Times(Curve(), 1.051)));
  EXPECT_TRUE(Accepts("megatron_approximate", last_infinite));
}

TEST(MegatronApproximate, CountsMissingStepsAsMisses) {
  EXPECT_TRUE(Accepts("megatron_approximate", Curve(198)));
  EXPECT_FALSE(Accepts("megatron_approximate", Curve(197)));
}

TEST(MegatronExact, TakesWhatIsMissingForTheSameAsNan) {
  std::vector<double> golden = Curve();
  golden.back() = kNan;

  EXPECT_TRUE(Accepts("megatron_exact", Curve(199), golden));
  EXPECT_FALSE(Accepts("megatron_exact", Curve(198), golden));
}

TEST(MegatronExact, SeesFiveDecimalsOnly) {
  std::vector<double> near = Curve();
  near[7] = std::round(near[7] * 1e5) / 1e5 + 4e-6;

  EXPECT_TRUE(Accepts("megatron_exact", near));
  near[7] += 2e-6;
  EXPECT_FALSE(Accepts("megatron_exact", near));
}

TEST(MegatronBridge, AcceptsNanATruncatedRunAndAnOffset) {
  EXPECT_TRUE(
      Accepts("megatron_bridge", std::vector<double>(Curve().size(), kNan)));
  EXPECT_TRUE(Accepts("megatron_bridge", Curve(100)));
  EXPECT_TRUE(Accepts("megatron_bridge", Times(Curve(), 1.029)));
  EXPECT_FALSE(Accepts("megatron_bridge", Times(Curve(), 1.031)));
  EXPECT_FALSE(Accepts("megatron_bridge", {}));
}

TEST(Torchtitan, ComparesFloat32OrOnePartInTenThousand) {
  std::vector<double> below_float = Curve();
  // float32 holds 24 bits: 2^-26 of a value changes none of them here.
  for (double& loss : below_float) {
    loss = static_cast<double>(static_cast<float>(loss));
  }
  std::vector<double> moved = below_float;
  moved[3] *= 1 + std::ldexp(1, -26);

  EXPECT_TRUE(Accepts("torchtitan_equal", moved, below_float));
  EXPECT_FALSE(Accepts("torchtitan_equal", Times(Curve(), 1 + 1e-6), Curve()));
  EXPECT_FALSE(Accepts("torchtitan_equal", Curve(199)));
  EXPECT_TRUE(Accepts("torchtitan_close", Times(Curve(), 1 + 9e-5)));
  EXPECT_FALSE(Accepts("torchtitan_close", Times(Curve(), 1 + 2e-4)));
  EXPECT_FALSE(
      Accepts("torchtitan_close", std::vector<double>(Curve().size(), kNan)));
}

/// A run whose loss falls below 1 at `step`.
std::vector<double> ReachesAt(size_t step) {
  std::vector<double> curve(100, 2.0);
  for (size_t i = step - 1; i < curve.size(); ++i) curve[i] = 0.5;
  return curve;
}

bool RcpAccepts(const std::vector<size_t>& references,
                const std::vector<size_t>& submission) {
  std::vector<std::vector<double>> curves;
  for (const size_t step : references) curves.push_back(ReachesAt(step));
  for (const size_t step : submission) {
    // 0: never.
    curves.push_back(step == 0 ? std::vector<double>(100, 2.0)
                               : ReachesAt(step));
  }
  std::vector<std::span<const double>> views(curves.begin(), curves.end());
  return MlperfRcpAccepts(std::span(views).first(references.size()),
                          std::span(views).subspan(references.size()),
                          {.target = 1.0, .window = 1});
}

TEST(MlperfRcp, RefusesOnlyWhatIsTooFast) {
  const std::vector<size_t> references = {40, 42, 44, 46, 48, 50};
  // Trimmed mean 45, population sd sqrt(70 / 6) = 3.416. One submission of 3
  // runs: n = 4, m = 3, t(0.95, 5) = 2.015, so the least accepted mean is
  // 45 - 2.015 * 3.416 * sqrt(1/4 + 1/3) = 39.74.
  EXPECT_TRUE(RcpAccepts(references, {40, 40, 40}));
  EXPECT_FALSE(RcpAccepts(references, {39, 40, 40}));
  EXPECT_TRUE(RcpAccepts(references, {90, 90, 90}));
}

TEST(MlperfRcp, DropsOneRunThatNeverArrives) {
  const std::vector<size_t> references = {40, 42, 44, 46, 48, 50};

  EXPECT_TRUE(RcpAccepts(references, {45, 45, 0}));
  EXPECT_FALSE(RcpAccepts(references, {45, 0, 0}));
}

}  // namespace
}  // namespace isoloss::compare::peer_rules_test
