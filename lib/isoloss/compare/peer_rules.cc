#include "isoloss/compare/peer_rules.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "isoloss/stats/student_t.h"

namespace isoloss::compare {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// ---- Megatron-LM ------------------------------------------------------------

/// Rounds as Megatron-LM's golden files do: 5 decimals, NaN becomes infinity.
double MegatronValue(std::span<const double> curve, size_t step) {
  if (step >= curve.size() || std::isnan(curve[step])) return kInfinity;
  return std::round(curve[step] * 1e5) / 1e5;
}

/// Compares as math.isclose does: equal infinities are close.
bool IsClose(double value, double golden, double relative) {
  if (value == golden) return true;
  return std::abs(value - golden) <= relative * std::abs(golden) &&
         std::isfinite(golden);
}

size_t MegatronMisses(const PeerPair& pair, double relative) {
  size_t misses = 0;
  for (size_t i = 0; i < pair.reference.size(); ++i) {
    if (!IsClose(MegatronValue(pair.candidate, i),
                 MegatronValue(pair.reference, i), relative)) {
      ++misses;
    }
  }
  return misses;
}

bool MegatronExact(const PeerPair& pair) {
  return MegatronMisses(pair, 0.0) == 0;
}

bool MegatronApproximate(const PeerPair& pair) {
  const size_t allowed =
      std::min(std::max<size_t>(pair.reference.size() / 100, 1), size_t{50});
  return MegatronMisses(pair, 0.05) <= allowed;
}

// ---- Megatron-Bridge --------------------------------------------------------

double Mean(std::span<const double> values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

double Correlation(std::span<const double> a, std::span<const double> b) {
  const double mean_a = Mean(a);
  const double mean_b = Mean(b);
  double ab = 0;
  double aa = 0;
  double bb = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    ab += (a[i] - mean_a) * (b[i] - mean_b);
    aa += (a[i] - mean_a) * (a[i] - mean_a);
    bb += (b[i] - mean_b) * (b[i] - mean_b);
  }
  return ab / std::sqrt(aa * bb);
}

/// Returns the share of points whose relative difference exceeds their limit.
double ShareOutsideTolerance(const PeerPair& pair) {
  size_t outside = 0;
  for (size_t i = 0; i < pair.reference.size(); ++i) {
    const double loss = pair.reference[i];
    const double limit = loss > 2 ? 0.10 : loss > 0.5 ? 0.05 : 0.02;
    if (std::abs(pair.candidate[i] - loss) / loss > limit) ++outside;
  }
  return static_cast<double>(outside) /
         static_cast<double>(pair.reference.size());
}

double ShareOfOutliers(const PeerPair& pair) {
  std::vector<double> residuals;
  for (size_t i = 0; i < pair.reference.size(); ++i) {
    residuals.push_back(pair.candidate[i] - pair.reference[i]);
  }
  const double mean = Mean(residuals);
  double square = 0;
  for (const double r : residuals) square += (r - mean) * (r - mean);
  const double sd = std::sqrt(square / static_cast<double>(residuals.size()));
  const auto beyond =
      std::count_if(residuals.begin(), residuals.end(),
                    [&](double r) { return std::abs(r - mean) > 3 * sd; });
  return static_cast<double>(beyond) / static_cast<double>(residuals.size());
}

/// This rule only looks at the common steps, and each test refuses by a
/// comparison that a NaN makes false.
bool MegatronBridge(const PeerPair& pair) {
  const size_t common = std::min(pair.reference.size(), pair.candidate.size());
  if (common == 0) return false;
  const PeerPair cut{pair.reference.first(common),
                     pair.candidate.first(common)};
  const double last = cut.reference.back();
  const bool refused = Correlation(cut.reference, cut.candidate) < 0.95 ||
                       ShareOutsideTolerance(cut) > 0.10 ||
                       std::abs(cut.candidate.back() - last) / last > 0.03 ||
                       ShareOfOutliers(cut) > 0.10;
  return !refused;
}

// ---- torchtitan -------------------------------------------------------------

/// Compares FP32 values, since TensorBoard keeps float32.
bool TorchtitanEqual(const PeerPair& pair) {
  return std::equal(pair.reference.begin(), pair.reference.end(),
                    pair.candidate.begin(), pair.candidate.end(),
                    [](double a, double b) {
                      return std::bit_cast<uint32_t>(static_cast<float>(a)) ==
                             std::bit_cast<uint32_t>(static_cast<float>(b));
                    });
}

bool TorchtitanClose(const PeerPair& pair) {
  return std::equal(
      pair.reference.begin(), pair.reference.end(), pair.candidate.begin(),
      pair.candidate.end(), [](double expected, double value) {
        return std::abs(value - expected) <= 1e-5 + 1e-4 * std::abs(expected);
      });
}

constexpr PeerRule kPeerRules[] = {
    {"megatron_exact", "every step equal after rounding to 5 decimals",
     "NVIDIA/Megatron-LM d98e8a6, tests/functional_tests, deterministic lane",
     &MegatronExact},
    {"megatron_approximate",
     "every step within 5 %, but for max(1, 1 % of the steps)",
     "NVIDIA/Megatron-LM d98e8a6, tests/functional_tests, approximate lane",
     &MegatronApproximate},
    {"megatron_bridge",
     "r >= 0.95; at most 10 % of points outside 10/5/2 %; last within 3 %; at "
     "most 10 % of residuals beyond 3 sigma",
     "NVIDIA-NeMo/Megatron-Bridge 067f987, scripts/performance/utils/"
     "evaluate.py",
     &MegatronBridge},
    {"torchtitan_equal", "same steps, same float32 losses",
     "pytorch/torchtitan b5bcd76, scripts/loss_compare.py --assert-equal",
     &TorchtitanEqual},
    {"torchtitan_close", "every step within 1e-5 + 1e-4 of the loss",
     "pytorch/torchtitan b5bcd76, experiments/graph_trainer/tests/"
     "test_numerics.py",
     &TorchtitanClose},
};

// ---- MLPerf -----------------------------------------------------------------

std::optional<double> StepsToTarget(std::span<const double> curve,
                                    const RcpTarget& target) {
  for (size_t end = target.window; end <= curve.size(); ++end) {
    const double mean = Mean(curve.subspan(end - target.window, target.window));
    if (mean <= target.target) return static_cast<double>(end);
  }
  return std::nullopt;
}

/// Returns the steps of the runs that reach the target, ascending.
std::vector<double> AllStepsToTarget(
    std::span<const std::span<const double>> curves, const RcpTarget& target) {
  std::vector<double> steps;
  for (const auto& curve : curves) {
    if (const auto reached = StepsToTarget(curve, target)) {
      steps.push_back(*reached);
    }
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

}  // namespace

std::span<const PeerRule> PeerRules() { return kPeerRules; }

bool MlperfRcpAccepts(std::span<const std::span<const double>> references,
                      std::span<const std::span<const double>> submission,
                      const RcpTarget& target) {
  const std::vector<double> known = AllStepsToTarget(references, target);
  const std::vector<double> given = AllStepsToTarget(submission, target);
  if (given.size() + 1 < submission.size() || given.empty()) return false;
  if (known.size() < 3) return true;
  const auto trimmed = std::span(known).subspan(1, known.size() - 2);
  const double all = Mean(known);
  double square = 0;
  for (const double steps : known) square += (steps - all) * (steps - all);
  // The checker takes the population's deviation, over all references.
  const double sd = std::sqrt(square / static_cast<double>(known.size()));
  const auto n = static_cast<double>(trimmed.size());
  const auto m = static_cast<double>(given.size());
  const double degrees = std::max(1.0, n + m - 2);
  const double fastest =
      Mean(trimmed) -
      stats::StudentTQuantile(0.95, degrees) * sd * std::sqrt(1 / n + 1 / m);
  return Mean(given) >= fastest;
}

}  // namespace isoloss::compare
