// Compares the weights of a model with the FP32 masters of its optimizer.
#include <algorithm>
#include <cmath>
#include <string>

#include "isoloss/operations/check.h"
#include "isoloss/operations/neighbours.h"
#include "isoloss/operations/roundings.h"
#include "isoloss/operations/rows.h"

namespace isoloss::operations {
namespace {

using oracle::Comparison;
using oracle::Grid;

class CopyCheck {
 public:
  CopyCheck(const OperationCase& given, const Floats& weight,
            const Floats& master)
      : given_(given),
        weight_(weight),
        master_(master),
        grid_(GridOf(weight, "weight_after", given.where)) {}

  void Run(std::vector<Finding>& findings) const {
    if (IsRoundedAtRandom(given_.operation)) {
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
  oracle::Estimate MasterAt(size_t i) const {
    return {.exact = static_cast<double>(master_.values[i])};
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
          AddNeighbour(comparison, row, col, weight_.values[i],
                       Neighbours(grid_, MasterAt(i)), grid_);
        });
  }
  Comparison TowardZero() const {
    return Compare([&](Comparison& comparison, size_t row, size_t col,
                       size_t i) {
      const Neighbours between(grid_, MasterAt(i));
      comparison.AddExact(row, col, weight_.values[i],
                          master_.values[i] < 0 ? between.high : between.low);
    });
  }
  Finding Shares() const {
    RoundingGroup group = {.cols = std::max<size_t>(weight_.Rows().cols(), 1)};
    for (size_t i = 0; i < weight_.values.size(); ++i) {
      group.all.push_back(
          Neighbours(grid_, MasterAt(i)).RoundingOf(weight_.values[i]));
    }
    return FindingOf(given_, "weight_after", JudgeRoundings({group}));
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
