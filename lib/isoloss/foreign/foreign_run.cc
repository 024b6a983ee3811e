#include "isoloss/foreign/foreign_run.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/foreign/batch_names.h"
#include "isoloss/foreign/due_losses.h"

namespace isoloss::foreign {
namespace {

/// FP32 needs up to nine significant digits to keep its bits in text.
constexpr int kFp32Digits = 9;

/// Returns whether the comma of "2,413" may stand for a point. A loss of some
/// thousands is rarer than a log that writes decimals so.
bool MayHaveDecimalComma(std::string_view number) {
  return std::ranges::count(number, ',') == 1 &&
         number.find('.') == std::string_view::npos;
}

/// Returns whether both values have the same bits, or are NaN.
bool Same(double a, double b) {
  return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

/// Returns how often the steps begin again where the first piece began, in
/// pieces of equal length, as the counter of an epoch does. Returns 0 for
/// attempts of a run that was started again, which differ in length.
int64_t RestartsOf(const std::vector<int64_t>& step) {
  const int64_t stride = step.size() > 1 ? step[1] - step[0] : 1;
  std::vector<size_t> begins;
  for (size_t i = 1; i < step.size(); ++i) {
    if (step[i] >= step[i - 1]) continue;
    if (step[i] > step[0] + std::max<int64_t>(stride, 1)) return 0;
    begins.push_back(i);
  }
  if (begins.size() < 2) return 0;
  constexpr size_t kTwentieth = 20;  // a last batch that is left out, or not
  const size_t length = begins[0];
  for (size_t i = 1; i < begins.size(); ++i) {
    const size_t own = begins[i] - begins[i - 1];
    const size_t apart = own > length ? own - length : length - own;
    if (apart > std::max<size_t>(1, length / kTwentieth)) return 0;
  }
  return static_cast<int64_t>(begins.size());
}

/// Returns the rows at which the steps begin again at the first row's step or
/// before it. A resume goes back to a later step.
std::vector<size_t> BeginsOf(const std::vector<int64_t>& step) {
  std::vector<size_t> begins;
  for (size_t i = 1; i < step.size(); ++i) {
    if (step[i] < step[i - 1] && step[i] <= step[0]) begins.push_back(i);
  }
  return begins;
}

/// Returns whether a number of epochs rises where the steps begin again.
bool RisesAtRestarts(const Series& epochs) {
  const std::vector<size_t> begins = BeginsOf(epochs.step);
  return std::ranges::any_of(begins, [&](size_t at) {
    return epochs.value[at] > epochs.value[at - 1];
  });
}

/// Sorts by step. If a step occurs several times, its last value counts.
void SortRows(Series& series) {
  std::vector<size_t> order(series.step.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {},
                           [&series](size_t at) { return series.step[at]; });
  std::vector<int64_t> step;
  std::vector<double> value;
  step.reserve(order.size());
  value.reserve(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    const size_t at = order[i];
    if (step.empty() || step.back() != series.step[at]) {
      step.push_back(series.step[at]);
      value.push_back(series.value[at]);
      continue;
    }
    if (Same(value.back(), series.value[at])) {
      ++series.copies;
      continue;
    }
    if (series.repeated++ == 0) series.first_repeat = step.back();
    series.neighbours += at == order[i - 1] + 1 ? 1 : 0;
    value.back() = series.value[at];
  }
  series.step = std::move(step);
  series.value = std::move(value);
}

/// Sorts a series. If several attempts each began with the first step, the last
/// attempt alone is the run, if it got as far as the attempts before it.
void Sort(Series& series) {
  series.restarts = RestartsOf(series.step);
  const std::vector<size_t> begins = BeginsOf(series.step);
  if (begins.empty()) return SortRows(series);
  const auto from = static_cast<std::ptrdiff_t>(begins.back());
  Series last = series;
  last.step.erase(last.step.begin(), last.step.begin() + from);
  last.value.erase(last.value.begin(), last.value.begin() + from);
  SortRows(series);
  if (series.repeated == 0) return;  // several ranks, one after another
  SortRows(last);
  series.attempts = last.attempts = std::ssize(begins) + 1;
  series.last_attempt_ends = last.last_attempt_ends = last.step.back();
  if (last.step.back() >= series.step.back()) series = std::move(last);
}

/// Applies the unit that a name tells: "train/lr(1e-3)", "loss(1e-3)".
void TakeUnit(Series& series) {
  const size_t open = series.name.rfind('(');
  if (open == std::string::npos || !series.name.ends_with(')')) return;
  const std::string_view name = series.name;
  if (name.find('e', open) == name.npos) return;  // "loss (2)" is a second one
  const auto unit =
      ParsePlainNumber(name.substr(open + 1, name.size() - open - 2));
  const Quantity quantity = FindName(Trimmed(name.substr(0, open))).quantity;
  if (!unit || !(*unit > 0) ||
      (quantity != Quantity::kLearningRate && quantity != Quantity::kLoss &&
       quantity != Quantity::kEvalLoss)) {
    return;
  }
  series.quantity = quantity;
  for (double& value : series.value) value *= *unit;
  series.digits.decimals -= static_cast<int>(std::lround(std::log10(*unit)));
}

}  // namespace

std::string_view AveragingText(Averaging averaging) {
  switch (averaging) {
    case Averaging::kInstant:
      return "value of the step";
    case Averaging::kIntervalMean:
      return "mean over the interval";
    case Averaging::kBucketMean:
      return "mean of a chart's bucket";
    case Averaging::kSmoothed:
      break;
  }
  return "smoothed";
}

std::string_view QuantityName(Quantity quantity) {
  constexpr std::string_view kQuantityNames[] = {
      "loss",        "eval loss",         "gradient norm", "learning rate",
      "tokens seen", "tokens per second", "step seconds",  ""};
  return kQuantityNames[static_cast<size_t>(quantity)];
}

bool Digits::exact() const { return significant >= kFp32Digits; }

void Digits::Include(std::string_view number) {
  int after_point = 0;
  int digits = 0;
  bool point = false;
  for (const char c : number) {
    if (c == '.') {
      point = true;
    } else if (c == 'e' || c == 'E') {
      scientific = true;
      break;
    } else if (c >= '0' && c <= '9') {
      after_point += point ? 1 : 0;
      digits += digits > 0 || c != '0' ? 1 : 0;
    } else if (c != '-' && c != '+' && c != ',') {
      return;  // nan, inf
    }
  }
  decimals = std::max(decimals, after_point);
  significant = std::max(significant, digits);
}

double Digits::HalfUnit(double value) const {
  if (exact() || !std::isfinite(value)) return 0;
  if (!scientific) return 0.5 * std::pow(10.0, -decimals);
  if (value == 0) return 0;
  const double exponent = std::floor(std::log10(std::abs(value)));
  return 0.5 * std::pow(10.0, exponent - (significant - 1));
}

void Series::AddWritten(int64_t at, const std::optional<Written>& number,
                        std::string_view text) {
  const bool is_loss =
      quantity == Quantity::kLoss || quantity == Quantity::kEvalLoss;
  if (number && !(is_loss && (HasUnit(*number, text) ||
                              MayHaveDecimalComma(number->text)))) {
    return Add(at, number->value, number->text);
  }
  Add(at, std::nan(""));
  if (unreadable++ > 0) return;
  constexpr size_t kShown = 40;
  unreadable_text = text.substr(0, kShown);
  first_unreadable = at;
}

Series& ForeignRun::Of(std::string_view series_name) {
  const auto found = places_.find(series_name);
  if (found != places_.end()) return series[found->second];
  if (series.size() == kMostSeries) {
    ThrowError(ErrorKind::kFormat,
               "the log has values of more than {} names, but no run has. Give "
               "the log of a training run.",
               kMostSeries);
  }
  places_.emplace(series_name, series.size());
  Series& made = series.emplace_back();
  made.name = series_name;
  made.quantity = FindName(series_name).quantity;
  return made;
}

const Series* ForeignRun::Find(std::string_view series_name) const {
  const auto found = std::ranges::find(series, series_name, &Series::name);
  return found == series.end() ? nullptr : &*found;
}

const Series* ForeignRun::Main(Quantity quantity) const {
  const Series* best = nullptr;
  int best_rank = std::numeric_limits<int>::max();
  for (const Series& candidate : series) {
    if (candidate.quantity != quantity) continue;
    int rank = FindName(candidate.name).rank;
    // A frozen part's rate is 0 throughout; it comes after the rest.
    constexpr int kFrozen = 32;
    if (rank >= kRankByWords &&
        std::ranges::count(candidate.value, 0) == std::ssize(candidate.value)) {
      rank += kFrozen;
    }
    if (rank >= best_rank) continue;
    best = &candidate;
    best_rank = rank;
  }
  return best;
}

void ForeignRun::Finish() {
  std::erase_if(series, [](const Series& one) { return one.step.empty(); });
  std::ranges::for_each(series, TakeUnit);
  places_.clear();
  for (size_t i = 0; i < series.size(); ++i) {
    places_.emplace(series[i].name, i);
    if (BatchNamed(series[i].name).fact == kEpochsSeen) {
      counts_within_epoch |= RisesAtRestarts(series[i]);
    }
    Sort(series[i]);
  }
  const Series* loss = Main(Quantity::kLoss);
  if (loss == nullptr) return without_loss.clear();
  AppendLost(loss->step, without_loss);
  KeepDue(*this, without_loss);
}

Spacing SpacingOf(std::vector<int64_t> steps) {
  Spacing spacing;
  std::ranges::sort(steps);
  steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
  if (steps.size() < 2) return spacing;
  // The stride is the most frequent difference, which sorted differences show.
  std::vector<int64_t> gaps(steps.size() - 1);
  for (size_t i = 0; i < gaps.size(); ++i) gaps[i] = steps[i + 1] - steps[i];
  std::vector<int64_t> sorted = gaps;
  std::ranges::sort(sorted);
  size_t most = 0;
  for (size_t begin = 0, end = 0; begin < sorted.size(); begin = end) {
    while (end < sorted.size() && sorted[end] == sorted[begin]) ++end;
    if (end - begin <= most) continue;
    most = end - begin;
    spacing.stride = sorted[begin];
  }
  for (size_t i = 0; i < gaps.size(); ++i) {
    // After step 1, the first multiple of the stride has a shorter gap.
    if (gaps[i] == spacing.stride || (i == 0 && gaps[i] < spacing.stride)) {
      continue;
    }
    // The last step of a run is often logged, even off the stride.
    if (i + 1 == gaps.size() && gaps[i] < spacing.stride) continue;
    if (spacing.gaps++ == 0) spacing.first_gap = steps[i];
    spacing.missing += std::max<int64_t>(gaps[i] / spacing.stride - 1, 0);
  }
  return spacing;
}

}  // namespace isoloss::foreign
