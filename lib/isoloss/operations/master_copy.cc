// Compares the weights of a model with the FP32 masters of its optimizer.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "isoloss/operations/check.h"
#include "isoloss/operations/rows.h"

namespace isoloss::operations {
namespace {

using oracle::Comparison;
using oracle::Grid;

/// A master lies between two neighbours of the weight's type.
struct Neighbours {
  Neighbours(Grid grid, float master) {
    const auto exact = static_cast<double>(master);
    const float nearest = RoundTo(grid, exact);
    low = high = nearest;
    if (nearest < master) high = Neighbour(grid, nearest, true);
    if (nearest > master) low = Neighbour(grid, nearest, false);
  }

  float low;
  float high;
};

class CopyCheck {
 public:
  CopyCheck(const OperationCase& given, const Floats& weight,
            const Floats& master)
      : given_(given),
        weight_(weight),
        master_(master),
        grid_(GridOf(weight, "weight_after", given.where)) {}

  void Run(std::vector<Finding>& findings) const {
    const auto rounding = given_.operation.texts.find("rounding");
    if (rounding != given_.operation.texts.end() &&
        rounding->second == "stochastic") {
      findings.push_back(
          FindingOf(given_, "weight_after", "weight_after", Either()));
      if (findings.back().is_right()) findings.push_back(Shares());
      return;
    }
    Finding finding =
        FindingOf(given_, "weight_after", "weight_after", Nearest(master_));
    if (!finding.is_right()) {
      Explain(Trials(), finding);
      finding.places =
          PlacesOf(finding.comparison, weight_.Rows().rows(), "rows");
    }
    findings.push_back(std::move(finding));
  }

 private:
  template <typename Due>
  Comparison Compare(const Due& due) const {
    Comparison comparison(grid_);
    const size_t cols = std::max<size_t>(weight_.Rows().cols(), 1);
    for (size_t i = 0; i < weight_.values.size(); ++i) {
      due(comparison, i / cols, i % cols, i);
    }
    return comparison;
  }
  /// Either neighbour of a tie is right: kernels that keep the lower half of a
  /// master's bits round it away from zero.
  Comparison Nearest(const Floats& master) const {
    return Compare(
        [&](Comparison& comparison, size_t row, size_t col, size_t i) {
          const auto exact = static_cast<double>(master.values[i]);
          comparison.Add(row, col, weight_.values[i], exact,
                         0x1p-40 * std::fabs(exact), 0.0);
        });
  }
  Comparison Either() const {
    return Compare(
        [&](Comparison& comparison, size_t row, size_t col, size_t i) {
          const Neighbours between(grid_, master_.values[i]);
          const float found = weight_.values[i];
          const bool is_one = found == between.low || found == between.high;
          comparison.AddExact(row, col, found, is_one ? found : between.low);
        });
  }
  Comparison TowardZero() const {
    return Compare([&](Comparison& comparison, size_t row, size_t col,
                       size_t i) {
      const Neighbours between(grid_, master_.values[i]);
      comparison.AddExact(row, col, weight_.values[i],
                          master_.values[i] < 0 ? between.high : between.low);
    });
  }
  /// Roundings upwards, and those away from zero, must be as many as remainders
  /// say. Their number has the variance sum f (1 - f); beyond six deviations
  /// are 2e-9 of normal ones.
  Finding Shares() const {
    double up = 0.0;
    double away = 0.0;
    double variance = 0.0;
    for (size_t i = 0; i < weight_.values.size(); ++i) {
      const Neighbours between(grid_, master_.values[i]);
      if (between.low == between.high) continue;
      const auto low = static_cast<double>(between.low);
      const double share = (static_cast<double>(master_.values[i]) - low) /
                           (static_cast<double>(between.high) - low);
      const double excess =
          (weight_.values[i] == between.high ? 1.0 : 0.0) - share;
      up += excess;
      away += master_.values[i] < 0 ? -excess : excess;
      variance += share * (1 - share);
    }
    constexpr double kDeviations = 6.0;
    Comparison comparison(Grid::kFp32);
    const double excess = std::fabs(up) > std::fabs(away) ? up : away;
    const double most = kDeviations * std::sqrt(variance);
    if (std::fabs(excess) > most) {
      comparison.AddOther(0, 0, static_cast<float>(excess), 0.0);
    } else {
      comparison.AddExact(0, 0, 0.0f, 0.0f);
    }
    Finding finding =
        FindingOf(given_, "weight_after share", "weight_share", comparison);
    if (!finding.is_right()) {
      finding.explanation = {
          .name = "shares_off",
          .sentence =
              fmt::format("{:.0f} weights too {} were rounded {}, where chance "
                          "allows {:.0f}",
                          std::fabs(excess), excess > 0 ? "many" : "few",
                          excess == up ? "upwards" : "away from zero", most)};
    }
    return finding;
  }
  std::vector<Trial> Trials() const {
    std::vector<Trial> trials;
    const auto add = [&](const char* name, const char* sentence, auto compare) {
      trials.push_back(
          {name, sentence, [compare] { return std::optional(compare()); }});
    };
    const Floats& before = *given_.operation.Find("parameter_before");
    add("weight_not_copied", "the model kept the weight from before the update",
        [this, &before] { return Nearest(before); });
    add("truncated", "the master was rounded toward zero",
        [this] { return TowardZero(); });
    add("rounded_stochastically",
        "each weight is a neighbour of its master, but not always the nearest: "
        "if it is rounded at random, say rounding = \"stochastic\"",
        [this] { return Either(); });
    trials.back().is_vague = true;
    return trials;
  }

  const OperationCase& given_;
  const Floats& weight_;
  const Floats& master_;
  const Grid grid_;
};

}  // namespace

void CheckCopy(const OperationCase& given, std::vector<Finding>& findings) {
  const Floats* weight = given.operation.Find("weight_after");
  const Floats* master = given.operation.Find("parameter_after");
  if (weight == nullptr || master == nullptr) return;
  CopyCheck(given, *weight, *master).Run(findings);
}

}  // namespace isoloss::operations
