#include "isoloss/operations/probed_product.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

namespace isoloss::operations {
namespace {

constexpr size_t kProbes = 128;

/// Returns how far a number is from the middle between two numbers of the grid,
/// in spacings.
double DistanceFromMiddle(oracle::Grid grid, double exact) {
  const float value = RoundTo(grid, exact);
  const double up = oracle::Boundary(grid, value, true);
  const double down = oracle::Boundary(grid, value, false);
  return std::min(up - exact, exact - down) / (up - down);
}

/// Returns the arithmetic with each order and rounding of parts.
std::vector<Arithmetic> OrdersOf(const Arithmetic& arithmetic) {
  std::vector<Arithmetic> orders;
  for (const kernels::Rounding rounding :
       {kernels::Rounding::kFp32, kernels::Rounding::kBf16}) {
    for (const SplitK::Order order :
         {SplitK::Order::kAscending, SplitK::Order::kDescending,
          SplitK::Order::kNeighbours, SplitK::Order::kHalves}) {
      Arithmetic& last = orders.emplace_back(arithmetic);
      last.split.order = order;
      last.split.rounding = rounding;
    }
  }
  return orders;
}

}  // namespace

const PredictedSums& ProbedProduct::SumsOf(size_t group,
                                           const Arithmetic& arithmetic) {
  const auto known = sums_.find(group);
  if (known != sums_.end() && known->second.Use(arithmetic)) {
    return known->second;
  }
  return sums_
      .insert_or_assign(group,
                        PredictedSums(product_.groups[group], arithmetic))
      .first->second;
}

double ProbedProduct::ExactResult(const PredictedSums& sums,
                                  const Probe& probe) const {
  const double sum = sums.Exact(probe.row, probe.col);
  return product_.bias == nullptr
             ? sum
             : sum + static_cast<double>(product_.bias[probe.col]);
}

bool ProbedProduct::Matches(const Probe& probe, float sum) const {
  const float result =
      ResultOf(product_, sum,
               product_.groups[probe.group].first_row + probe.row, probe.col);
  return result == probe.found ||
         (std::isnan(result) && std::isnan(probe.found));
}

void ProbedProduct::ChooseProbes(const Arithmetic& arithmetic) {
  constexpr double kMostMultiplyAdds = 0x1p28;
  constexpr size_t kMostGroups = 8;
  // On a grid of FP32 every element hangs on the order of sums.
  const bool all_hang = product_.grid == oracle::Grid::kFp32;
  std::vector<std::pair<double, Probe>> close;
  const size_t stride =
      (product_.groups.size() + kMostGroups - 1) / kMostGroups;
  const auto add = [&](const Probe& probe, double exact) {
    if (!std::isfinite(exact) || exact == 0.0 || !std::isfinite(probe.found)) {
      return;
    }
    close.emplace_back(
        all_hang ? 0.0 : DistanceFromMiddle(product_.grid, exact), probe);
  };
  for (size_t g = 0; g < product_.groups.size(); g += stride) {
    if (product_.groups[g].left.values.empty()) continue;
    const PredictedSums& sums = SumsOf(g, arithmetic);
    const size_t count = sums.rows() * sums.cols();
    const double most =
        kMostMultiplyAdds /
        static_cast<double>(std::min(kMostGroups, product_.groups.size()) *
                            std::max<size_t>(1, sums.depth()));
    // An odd stride meets all columns of a power of two.
    const size_t step =
        static_cast<size_t>(static_cast<double>(count) / most) | 1;
    for (size_t i = 0; i < count; i += step) {
      Probe probe = {g, i / sums.cols(), i % sums.cols(), 0.0f};
      probe.found =
          product_.output(product_.groups[g].first_row + probe.row, probe.col);
      add(probe, ExactResult(sums, probe));
    }
  }
  const size_t spread =
      std::min(all_hang ? kProbes : kProbes / 4, close.size());
  for (size_t i = 0; i < spread; ++i) {
    // Fractions of multiples of the golden ratio meet all rows and columns.
    const double place = std::fmod(static_cast<double>(i) * 0.6180339887, 1.0);
    const auto at =
        static_cast<size_t>(place * static_cast<double>(close.size()));
    probes_.push_back(close[close.size() > kProbes ? at : i].second);
  }
  const size_t closest = std::min(kProbes - spread, close.size());
  std::ranges::nth_element(close,
                           close.begin() + static_cast<ptrdiff_t>(closest), {},
                           [](const auto& entry) { return entry.first; });
  for (size_t i = 0; i < closest; ++i) probes_.push_back(close[i].second);
  for (Probe& probe : probes_) {
    const PredictedSums& sums = SumsOf(probe.group, arithmetic);
    const double exact = ExactResult(sums, probe);
    exact_matches_ += RoundTo(product_.grid, exact) == probe.found ? 1 : 0;
    const double error = sums.LargestError(probe.row, probe.col);
    probe.is_possible = probe.found >= RoundTo(product_.grid, exact - error) &&
                        probe.found <= RoundTo(product_.grid, exact + error);
  }
}

int64_t ProbedProduct::Fp32Matches(std::span<const Arithmetic> ways) {
  int64_t most = exact_matches_;
  for (const Arithmetic& way : ways) {
    int64_t exact = 0;
    int64_t chain = 0;
    for (const Probe& probe : probes_) {
      const PredictedSums& sums = SumsOf(probe.group, way);
      exact += Matches(probe, sums.ExactAt(probe.row, probe.col)) ? 1 : 0;
      chain += Matches(probe, sums.ChainAt(probe.row, probe.col)) ? 1 : 0;
    }
    most = std::max({most, exact, chain});
  }
  return most;
}

Score ProbedProduct::ScoreOf(const Arithmetic& arithmetic) {
  Score score;
  for (const Probe& probe : probes_) {
    const float sum = SumsOf(probe.group, arithmetic).At(probe.row, probe.col);
    if (Matches(probe, sum)) {
      ++score.matches;
    } else if (probe.is_possible) {
      ++score.misses;
    }
  }
  return score;
}

std::vector<Arithmetic> ProbedProduct::FindSplits(const Arithmetic& of_others) {
  constexpr size_t kFirstProbes = 4;
  constexpr int64_t kAllBut = 32;  // all but one of so many must match
  if (probes_.size() < kProbes) return {};
  Arithmetic split = of_others;
  if (split.scale == ResultScale::kNone &&
      PredictedSums::ScalesRows(product_.groups.front())) {
    split.scale = ResultScale::kProduct;
  }
  const auto count = static_cast<int64_t>(probes_.size());
  const Arithmetic ways[] = {split};
  int64_t most = std::max(count - count / kAllBut, Fp32Matches(ways) + 1) - 1;
  std::vector<Arithmetic> best;
  const size_t depth = SumsOf(probes_[0].group, split).depth();
  // Files may be made to be slow.
  constexpr double kMostMultiplyAdds = 0x1p32;
  double multiply_adds = 0;
  for (const SplitK& way : SplitsOf(depth)) {
    if (multiply_adds > kMostMultiplyAdds) break;
    split.split = way;
    std::vector<Arithmetic> orders = OrdersOf(split);
    for (size_t i = 0; i < kFirstProbes && !orders.empty(); ++i) {
      const Probe& probe = probes_[probes_.size() - 1 - i];
      multiply_adds += static_cast<double>(depth);
      const auto parts =
          SumsOf(probe.group, split).PartsAt(probe.row, probe.col);
      std::erase_if(orders, [&](const Arithmetic& order) {
        const PredictedSums& sums = SumsOf(probe.group, order);
        return !Matches(probe, sums.Finished(probe.row, probe.col, parts));
      });
    }
    for (const Arithmetic& order : orders) {
      multiply_adds += static_cast<double>(depth * probes_.size());
      const int64_t matches = ScoreOf(order).matches;
      if (matches > most) best.clear();
      if (matches > most || (matches == most && !best.empty())) {
        best.push_back(order);
        most = matches;
      }
    }
  }
  return best;
}

}  // namespace isoloss::operations
