#include "isoloss/gate/foreign_relations.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <numbers>
#include <utility>

#include "isoloss/base/named.h"
#include "isoloss/compare/final_window.h"
#include "isoloss/stats/summary.h"

namespace isoloss::gate {
namespace {

double MedianOf(std::vector<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::ranges::nth_element(values, middle);
  return *middle;
}

/// Returns "1/ln 2, bits in place of nats"; "" if no unit explains the factor.
std::string UnitText(double factor) {
  constexpr Named<double> kUnits[] = {
      {"1/ln 2, so that one is in bits and one in nats", std::numbers::log2e},
      {"ln 2, so that one is in nats and one in bits", std::numbers::ln2},
      {"1/ln 10, as of decimal logarithms", std::numbers::log10e},
      {"ln 10, as of decimal logarithms", std::numbers::ln10},
  };
  constexpr double kNear = 0.005;
  const auto is_near = [](double value, double other) {
    return std::fabs(value / other - 1) < kNear;
  };
  for (const Named<double>& unit : kUnits) {
    if (is_near(factor, unit.value)) return std::string(unit.name);
  }
  const double whole = std::round(std::max(factor, 1 / factor));
  // Larger whole numbers are so dense that any factor is near one of them.
  constexpr double kLargest = 64;
  const double power = std::exp2(std::round(std::log2(whole)));
  const double divisor = whole > kLargest ? power : whole;
  if (whole < 2 || !is_near(std::max(factor, 1 / factor), divisor)) return "";
  return fmt::format(
      "{}{:.0f}, as of a sum in place of a mean over {}",
      factor < 1 ? "1/" : "", divisor,
      divisor > kLargest ? "tokens or sequences" : "micro-batches or ranks");
}

std::vector<double> GapsOf(const compare::SeedPair& pair) {
  std::vector<double> gaps;
  std::ranges::transform(pair.candidate->log.steps.loss_nats,
                         pair.baseline->log.steps.loss_nats,
                         std::back_inserter(gaps), std::minus<>());
  return gaps;
}

/// A gap that is constant from the first step on is no effect of training,
/// because training makes runs part little by little.
Relation ConstantRelation(const compare::Pairing& pairing) {
  constexpr double kLeastShift = 5;  // percent of the loss: no recipe begins so
  constexpr double kConstant = 0.05;  // scatter, of what is constant
  double factor = 0;
  double offset = 0;
  double factor_scatter = 0;
  double offset_scatter = 0;
  for (const compare::SeedPair& pair : pairing.pairs) {
    const auto times = stats::Summarize(PercentsOf(pair));
    const auto more = stats::Summarize(GapsOf(pair));
    if (!(std::fabs(times.mean) > kLeastShift)) return {};
    const auto pairs = static_cast<double>(pairing.pairs.size());
    factor += (1 + times.mean / 100) / pairs;
    offset += more.mean / pairs;
    factor_scatter = std::max(factor_scatter, times.sd / std::fabs(times.mean));
    offset_scatter = std::max(offset_scatter, more.sd / std::fabs(more.mean));
  }
  // If losses hardly fall, a factor and an offset look the same.
  if (factor_scatter < kConstant && factor_scatter <= 2 * offset_scatter) {
    const std::string unit = UnitText(factor);
    return {fmt::format("each loss of {} is {:.5g} times that of {}, from the "
                        "first step on{}",
                        pairing.candidate_arm, factor, pairing.baseline_arm,
                        unit.empty() ? "" : ": " + unit),
            "log the losses of both arms in one unit"};
  }
  if (!(offset_scatter < kConstant)) return {};
  return {fmt::format("each loss of {} is {:.5g} {} than that of {}, from the "
                      "first step on, as if a term were added to it",
                      pairing.candidate_arm, std::fabs(offset),
                      offset > 0 ? "larger" : "smaller", pairing.baseline_arm),
          "log the losses of both arms with the same terms"};
}

/// Returns the median of |percent| over all pairs and steps where row i of the
/// candidate stands beside row i + shift of the baseline.
double MedianGap(const compare::Pairing& pairing, std::ptrdiff_t shift) {
  std::vector<double> gaps;
  for (const compare::SeedPair& pair : pairing.pairs) {
    const auto& a = pair.baseline->log.steps.loss_nats;
    const auto& b = pair.candidate->log.steps.loss_nats;
    for (std::ptrdiff_t i = 0; i < std::ssize(b); ++i) {
      const std::ptrdiff_t at = i + shift;
      if (at < 0 || at >= std::ssize(a)) continue;
      const double gap = compare::PercentDifference(b[static_cast<size_t>(i)],
                                                    a[static_cast<size_t>(at)]);
      if (std::isfinite(gap)) gaps.push_back(std::fabs(gap));
    }
  }
  return gaps.empty() ? std::numeric_limits<double>::infinity()
                      : MedianOf(std::move(gaps));
}

/// Finds logs that count the same steps from different numbers.
Relation ShiftRelation(const compare::Pairing& pairing) {
  constexpr double kNearer = 3;
  const double here = MedianGap(pairing, 0);
  for (const std::ptrdiff_t shift : {1, -1}) {
    if (!(kNearer * MedianGap(pairing, shift) < here)) continue;
    return {fmt::format("the losses of {} are those that {} has one row {}: "
                        "the two logs count steps differently",
                        pairing.candidate_arm, pairing.baseline_arm,
                        shift > 0 ? "later" : "earlier"),
            "number the steps of both logs from the same one"};
  }
  return {};
}

/// Finds perplexities beside losses.
Relation PowerRelation(const compare::Pairing& pairing) {
  constexpr double kNear = 0.02;  // of the loss
  const auto is_power = [&](auto of, auto exponent, double per_unit) {
    return std::ranges::all_of(
        pairing.pairs, [&](const compare::SeedPair& pair) {
          const auto& high = (pair.*of)->log.steps.loss_nats;
          const auto& low = (pair.*exponent)->log.steps.loss_nats;
          for (size_t i = 0; i < std::min(high.size(), low.size()); ++i) {
            const double logarithm = std::log(high[i]) / per_unit;
            if (!(std::fabs(logarithm - low[i]) < kNear * low[i])) return false;
          }
          return true;
        });
  };
  const auto a = &compare::SeedPair::baseline;
  const auto b = &compare::SeedPair::candidate;
  for (const auto& [base, per_unit] :
       {std::pair{"e", 1.0}, std::pair{"2", std::numbers::ln2}}) {
    for (const bool candidate : {true, false}) {
      if (!is_power(candidate ? b : a, candidate ? a : b, per_unit)) continue;
      return {
          fmt::format("each loss of {} is {} to the power of that of {}: "
                      "one is a perplexity",
                      candidate ? pairing.candidate_arm : pairing.baseline_arm,
                      base,
                      candidate ? pairing.baseline_arm : pairing.candidate_arm),
          "log the loss of both arms, not its power"};
    }
  }
  return {};
}

}  // namespace

std::vector<double> PercentsOf(const compare::SeedPair& pair) {
  const auto& a = pair.baseline->log.steps.loss_nats;
  const auto& b = pair.candidate->log.steps.loss_nats;
  std::vector<double> percent;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    percent.push_back(compare::PercentDifference(b[i], a[i]));
  }
  return percent;
}

Relation RelationOf(const compare::Pairing& pairing) {
  for (const auto find : {&ShiftRelation, &PowerRelation, &ConstantRelation}) {
    Relation relation = find(pairing);
    if (!relation.text.empty()) return relation;
  }
  return {};
}

}  // namespace isoloss::gate
