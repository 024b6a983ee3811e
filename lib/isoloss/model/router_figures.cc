#include "isoloss/model/router_figures.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <type_traits>

#include "isoloss/base/digest.h"
#include "isoloss/expert_parallel/collectives.h"
#include "isoloss/kernels/elementary.h"
#include "isoloss/kernels/rowwise.h"
#include "isoloss/kernels/tree.h"

namespace isoloss::model {
namespace {

constexpr size_t kLanes = 4;

/// Logarithms of floats by table: m in [1, 2) is c (1 + r), c the middle of one
/// of 512 equal intervals, |r| <= 2^-10, ln(1 + r) = r - r^2 / 2 + r^3 / 3. The
/// rest of the series and the FP64 operations lose less than 3e-13.
class ScoreLog {
 public:
  ScoreLog() {
    for (size_t i = 0; i < kIntervals; ++i) {
      const double middle = 1.0 + (static_cast<double>(i) + 0.5) /
                                      static_cast<double>(kIntervals);
      intervals_[i] = {1.0 / middle, kernels::Log(middle)};
    }
  }

  /// ln x of a normal number; of zero, subnormal and not finite ones a finite
  /// number.
  double operator()(float x) const {
    constexpr double kLn2 = 0.693147180559945309417;
    constexpr uint32_t kMantissa = 0x007fffff;
    constexpr uint32_t kOne = 0x3f800000;
    const auto bits = std::bit_cast<uint32_t>(x);
    const Interval& interval =
        intervals_[(bits & kMantissa) >> (23 - kIntervalBits)];
    const auto mantissa =
        static_cast<double>(std::bit_cast<float>((bits & kMantissa) | kOne));
    const auto exponent = static_cast<int32_t>(bits >> 23 & 0xff) - 127;
    const double r = mantissa * interval.reciprocal - 1.0;
    return (static_cast<double>(exponent) * kLn2 + interval.log) +
           (r - r * r * (0.5 - r * (1.0 / 3.0)));
  }

 private:
  static constexpr int kIntervalBits = 9;
  static constexpr size_t kIntervals = size_t{1} << kIntervalBits;
  struct Interval {
    double reciprocal;
    double log;
  };
  std::array<Interval, kIntervals> intervals_;
};

double SumOfLanes(const std::array<double, kLanes>& lanes) {
  return (lanes[0] + lanes[2]) + (lanes[1] + lanes[3]);
}

/// Of one token's choice.
uint64_t RoutingDigest(size_t token, std::span<const int32_t> expert_ids) {
  const std::array<uint64_t, 2> words = {
      token, DigestOf(expert_ids.data(), expert_ids.size_bytes())};
  return DigestOf(words.data(), sizeof(words));
}

}  // namespace

double ScoreEntropy(std::span<const float> scores) {
  static const ScoreLog log;
  std::array<double, kLanes> sums{};
  std::array<double, kLanes> products{};
  const size_t whole = scores.size() / kLanes * kLanes;
  const auto add = [&](size_t lane, float score) {
    const auto value = static_cast<double>(score);
    sums[lane] += value;
    products[lane] += value * log(score);
  };
  for (size_t e = 0; e < whole; e += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) add(lane, scores[e + lane]);
  }
  for (size_t e = whole; e < scores.size(); ++e) add(e - whole, scores[e]);
  const double sum = SumOfLanes(sums);
  return kernels::Log(sum) - SumOfLanes(products) / sum;
}

void RouterSums::Begin(size_t tokens) {
  leaves_.assign((tokens + kernels::kTokenLeaf - 1) / kernels::kTokenLeaf, {});
}

void RouterSums::Add(size_t token, size_t global_token,
                     std::span<const float> scores,
                     std::span<const int32_t> expert_ids, int64_t flips) {
  Totals& leaf = leaves_[token / kernels::kTokenLeaf];
  leaf.entropy += ScoreEntropy(scores);
  leaf.digest += RoutingDigest(global_token, expert_ids);
  leaf.flips += flips;
  ++leaf.tokens;
}

RouterSums::Totals RouterSums::Sum() const {
  Totals totals;
  for (const Totals& leaf : leaves_) {
    totals.digest += leaf.digest;
    totals.flips += leaf.flips;
    totals.tokens += leaf.tokens;
  }
  totals.entropy = kernels::AlignedTreeSum(
      0, leaves_.size(), [&](size_t leaf) { return leaves_[leaf].entropy; });
  return totals;
}

std::vector<RouterFigures> MergeRouterFigures(
    std::span<const RouterSums::Totals> layers, expert_parallel::Mesh& mesh) {
  using Totals = RouterSums::Totals;
  static_assert(std::is_trivially_copyable_v<Totals>);
  static_assert(sizeof(Totals) % sizeof(int32_t) == 0);
  std::vector<int32_t> words(layers.size_bytes() / sizeof(int32_t));
  if (!layers.empty()) {
    std::memcpy(words.data(), layers.data(), layers.size_bytes());
    words = expert_parallel::Gather(mesh, words);
  }
  std::vector<Totals> all(mesh.processes() * layers.size());
  if (!all.empty()) {
    std::memcpy(static_cast<void*>(all.data()), words.data(),
                all.size() * sizeof(Totals));
  }

  std::vector<RouterFigures> figures(layers.size());
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    const auto of = [&](size_t process) -> const Totals& {
      return all[process * layers.size() + layer];
    };
    int64_t tokens = 0;
    for (size_t process = 0; process < mesh.processes(); ++process) {
      figures[layer].digest += of(process).digest;
      figures[layer].flips += of(process).flips;
      tokens += of(process).tokens;
    }
    figures[layer].entropy_nats =
        kernels::AlignedTreeSum(
            0, mesh.processes(),
            [&](size_t process) { return of(process).entropy; }) /
        static_cast<double>(tokens);
    // Of one expert it is zero but for rounding.
    if (figures[layer].entropy_nats < 0) figures[layer].entropy_nats = 0;
  }
  return figures;
}

}  // namespace isoloss::model
