// Compares the loss with the oracle's: mean cross entropy, log-sum-exp in FP32.
#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include "isoloss/kernels/elementary.h"
#include "isoloss/operations/check.h"
#include "isoloss/operations/estimates.h"

namespace isoloss::operations {
namespace {

using oracle::Comparison;
using oracle::Estimate;
using oracle::Grid;

struct LossRule {
  bool mean = true;
  bool count_ignored = false;
  bool bf16 = false;  ///< log-softmax rounded to BF16
  int shift = 0;      ///< labels are those of the row `shift` further on
  bool shift_wraps = false;
  double factor = 1.0;
};

class CrossEntropy {
 public:
  explicit CrossEntropy(const OperationCase& given)
      : logits_(*given.operation.Find("logits")),
        labels_(*given.operation.FindIntegers("labels")),
        loss_(*given.operation.Find("loss")),
        grid_(GridOf(loss_, "loss", given.where)),
        ignored_(static_cast<int64_t>(
            given.operation.Number("ignore_index", -100))) {
    for (size_t t = 0; t < labels_.values.size(); ++t) {
      rows_.push_back(LogSumExp(t));
    }
  }

  Comparison Compare(const LossRule& rule) const {
    Comparison comparison(grid_);
    comparison.Add(0, 0, loss_.values[0], Loss(rule));
    return comparison;
  }

  /// Tries factors. One value has no spread, so any factor explains it. The
  /// only factors are numbers by which a trainer divides: small whole ones,
  /// which 8 bits tell apart, and counts of the file.
  std::vector<Trial> Factors() const {
    std::vector<Trial> trials;
    std::set<int64_t> numbers = {
        static_cast<int64_t>(labels_.values.size()),
        static_cast<int64_t>(logits_.extent[1]),
        static_cast<int64_t>(labels_.values.size()) -
            std::ranges::count(labels_.values, ignored_)};
    constexpr int64_t kMostWhole = 64;
    constexpr int64_t kMostWholeOfFewBits = 16;
    const int64_t most =
        grid_ == Grid::kFp32 ? kMostWhole : kMostWholeOfFewBits;
    for (int64_t whole = 2; whole <= most; ++whole) numbers.insert(whole);
    for (const int64_t number : numbers) {
      if (number < 2) continue;
      const auto times = static_cast<double>(number);
      AddFactor(times, "multiplied by " + std::to_string(number), trials);
      AddFactor(1 / times, "divided by " + std::to_string(number), trials);
    }
    AddFactor(kBitsPerNat, "given in bits, not in nats", trials);
    return trials;
  }

 private:
  static constexpr double kBitsPerNat = 0x1.71547652b82fep+0;  // 1 / log 2

  void AddFactor(double factor, const std::string& what,
                 std::vector<Trial>& trials) const {
    LossRule rule;
    rule.factor = factor;
    const Comparison comparison = Compare(rule);
    if (comparison.other() > 0) return;
    trials.push_back({"loss_scaled",
                      "the loss may have been " + what +
                          ", which is only a possibility, since some factor "
                          "fits any single value",
                      [comparison] { return std::optional(comparison); }});
  }

  /// Computes max + log(sum exp(x - max)). A difference d is rounded once,
  /// which moves exp(d) by |d| of it. exp within 2 ulp is 4 roundings, and V
  /// additions follow. So the sum is off by (V + 4) roundings of itself and
  /// those of d, and its logarithm is off by the same absolute amount. log
  /// takes 4 roundings, and the sum with max is rounded.
  Estimate LogSumExp(size_t row) const {
    const size_t vocabulary = logits_.extent[1];
    const float* x = logits_.Rows().Row(row);
    double most = -HUGE_VAL;
    for (size_t v = 0; v < vocabulary; ++v) {
      most = std::max(most, static_cast<double>(x[v]));
    }
    double sum = 0.0;
    double moved = 0.0;
    for (size_t v = 0; v < vocabulary; ++v) {
      const double d = static_cast<double>(x[v]) - most;
      sum += kernels::Exp(d);
      moved += std::fabs(d) * kernels::Exp(d) * oracle::kUnitRoundoff;
    }
    const double log = kernels::Log(sum);
    Estimate result = Around(most + log, std::fabs(most) + std::fabs(log), 5);
    result.bound += oracle::Gamma(vocabulary + 4) + moved / sum;
    return result;
  }

  int64_t LabelOf(size_t row, const LossRule& rule) const {
    const auto count = static_cast<int64_t>(labels_.values.size());
    int64_t place = static_cast<int64_t>(row) + rule.shift;
    if (rule.shift_wraps) place = (place + count) % count;
    if (place < 0 || place >= count) return ignored_;
    return labels_.values[static_cast<size_t>(place)];
  }

  /// Rounds each row's log-sum-exp less its logit; then T additions and a
  /// division follow. The mean may also be a sum of quotients.
  Estimate Loss(const LossRule& rule) const {
    Estimate sum;
    double size = 0.0;
    size_t count = 0;
    for (size_t t = 0; t < rows_.size(); ++t) {
      const int64_t label = LabelOf(t, rule);
      if (label == ignored_) continue;
      const double logit =
          static_cast<double>(logits_.Rows()(t, static_cast<size_t>(label)));
      double nats = rows_[t].exact - logit;
      if (rule.bf16) {
        nats = static_cast<double>(RoundTo(Grid::kBf16, nats));
      }
      const Estimate row = Around(nats, std::fabs(nats), 2);
      sum.exact += nats;
      sum.bound += rows_[t].bound + row.bound;
      sum.noise = oracle::RootOfSquares(
          sum.noise, oracle::RootOfSquares(rows_[t].noise, row.noise));
      size += std::fabs(nats);
      ++count;
    }
    sum.bound += Around(sum.exact, size, count + 2).bound;
    if (rule.count_ignored) count = rows_.size();
    const double divisor = rule.mean ? static_cast<double>(count) : 1.0;
    return count == 0 ? Estimate{.exact = std::nan("")}
                      : sum * (rule.factor / divisor);
  }

  const Floats& logits_;
  const Integers& labels_;
  const Floats& loss_;
  const Grid grid_;
  const int64_t ignored_;
  std::vector<Estimate> rows_;
};

struct LossMistake {
  const char* name;
  const char* sentence;
  LossRule rule;
};
constexpr LossMistake kLossMistakes[] = {
    {"mean_over_ignored",
     "the mean was taken over ignored labels, too",
     {.count_ignored = true}},
    {"sum",
     "the losses were added up and not divided by their number",
     {.mean = false}},
    {"bf16", "log-softmax was rounded to BF16", {.bf16 = true}},
    {"label_shifted", "each label is that of the row after it", {.shift = 1}},
    {"label_shifted_back",
     "each label is that of the row before it",
     {.shift = -1}},
    {"label_rolled",
     "each label is that of the row after it, the last one "
     "that of the first",
     {.shift = 1, .shift_wraps = true}},
    {"label_rolled_back",
     "each label is that of the row before it, the first "
     "one that of the last",
     {.shift = -1, .shift_wraps = true}},
};

}  // namespace

void CheckLoss(const OperationCase& given, std::vector<Finding>& findings) {
  const CrossEntropy loss(given);
  Finding finding = FindingOf(given, "loss", "loss", loss.Compare({}));
  std::vector<Trial> trials;
  for (const LossMistake& mistake : kLossMistakes) {
    trials.push_back({mistake.name, mistake.sentence, [&loss, &mistake] {
                        return std::optional(loss.Compare(mistake.rule));
                      }});
  }
  Explain(trials, finding, [&loss] { return loss.Factors(); });
  findings.push_back(std::move(finding));
}

}  // namespace isoloss::operations
