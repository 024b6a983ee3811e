// Judges a parameter that AdamW's step rounds at random, as torchao's
// optimizers do with weights in BF16 that have no master.
#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "isoloss/operations/adamw.h"
#include "isoloss/operations/neighbours.h"
#include "isoloss/operations/roundings.h"
#include "isoloss/operations/rows.h"

namespace isoloss::operations {
namespace {

using oracle::Comparison;

constexpr const char* kName = "parameter_after";

class RandomParameter {
 public:
  explicit RandomParameter(const OperationCase& given)
      : given_(given),
        after_(*given.operation.Find(kName)),
        grid_(GridOf(after_, kName, given.where)) {}

  /// Holds the comparison with both neighbours of each element, and what was
  /// found of roundings.
  struct Judgement {
    Comparison comparison;
    Roundings roundings = {};

    /// If roundings do not fit, no element is known to be right.
    int64_t wrong() const {
      return comparison.other() > 0 || roundings.fit() ? comparison.other()
                                                       : roundings.elements;
    }
  };

  /// Returns the better one of the ways to compute the step of `rule`.
  Judgement Judge(const AdamWRule& rule) const {
    std::optional<Judgement> best;
    for (const AdamWRule& way : WaysOf(given_, rule)) {
      Judgement found = JudgeWay(way);
      if (!best || found.wrong() < best->wrong()) best = std::move(found);
    }
    return *best;
  }
  Comparison Compared(const AdamWRule& rule) const {
    const Judgement found = Judge(rule);
    return found.comparison.other() > 0 ? found.comparison
                                        : ComparisonOf(found.roundings);
  }

  /// If roundings are to be explained, no element alone is wrong. Then only a
  /// mistake that leaves nothing counts.
  void Explain(const AdamWRule& rule, bool of_roundings,
               Finding& finding) const {
    std::vector<Trial> trials;
    ForEachAdamWMistake(
        given_, rule,
        [&](const char* name, const char* sentence, const AdamWRule& altered) {
          trials.push_back({name, sentence, [this, altered, of_roundings] {
                              std::optional<Comparison> found =
                                  Compared(altered);
                              if (of_roundings && found->other() > 0)
                                found.reset();
                              return found;
                            }});
        });
    operations::Explain(trials, finding,
                        [&] { return FitsOfAdamW(given_, kParts[2], rule); });
  }

 private:
  Judgement JudgeWay(const AdamWRule& rule) const {
    Judgement result = {Comparison(grid_)};
    RoundingGroup group = {.cols = std::max<size_t>(after_.Rows().cols(), 1)};
    const Corrections corrections(rule);
    for (size_t i = 0; i < after_.values.size(); ++i) {
      const Neighbours between(
          grid_, Update(rule, corrections, ElementOf(given_.operation, rule, i))
                     .parameter);
      const float found = after_.values[i];
      AddNeighbour(result.comparison, i / group.cols, i % group.cols, found,
                   between, grid_);
      group.all.push_back(between.RoundingOf(found));
    }
    if (result.comparison.other() == 0) {
      result.roundings = JudgeRoundings({group});
    }
    return result;
  }

  const OperationCase& given_;
  const Floats& after_;
  const oracle::Grid grid_;
};

}  // namespace

bool IsRandomParameter(const Operation& operation, const PartText& part) {
  return part.part == Part::kParameter && IsRoundedAtRandom(operation) &&
         operation.Find(kName)->type != "float32";
}

Comparison CompareRandom(const OperationCase& given, const AdamWRule& rule) {
  return RandomParameter(given).Compared(rule);
}

void CheckRandomParameter(const OperationCase& given, const AdamWRule& rule,
                          std::vector<Finding>& findings) {
  const RandomParameter parameter(given);
  const RandomParameter::Judgement found = parameter.Judge(rule);
  Finding finding = FindingOf(given, kName, kName, found.comparison);
  if (!finding.is_right()) {
    parameter.Explain(rule, false, finding);
    finding.places = PlacesOf(
        finding.comparison, given.operation.Find(kName)->Rows().rows(), "rows");
    findings.push_back(std::move(finding));
    return;
  }
  findings.push_back(std::move(finding));
  Finding roundings = FindingOf(given, kName, found.roundings);
  // A wrong step may hide between two neighbours.
  if (!roundings.is_right() && !roundings.explanation) {
    parameter.Explain(rule, true, roundings);
  }
  findings.push_back(std::move(roundings));
}

Trial TrialOfRandomParameter(const OperationCase& given,
                             const AdamWRule& rule) {
  return {.name = "rounded_stochastically",
          .sentence =
              "each element is a neighbour of the due value, as often "
              "as chance asks, but not always the nearest: if it is "
              "rounded at random, say rounding = \"stochastic\"",
          .compare = [&given, rule]() -> std::optional<Comparison> {
            if (given.operation.Find(kName)->type == "float32") {
              return std::nullopt;
            }
            return CompareRandom(given, rule);
          },
          .is_vague = true};
}

}  // namespace isoloss::operations
