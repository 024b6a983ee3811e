#include "isoloss/foreign/foreign_run.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <span>
#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/base/named.h"
#include "isoloss/foreign/told.h"

namespace isoloss::foreign {
namespace {

/// FP32 needs up to nine significant digits to be read back to the same bits.
constexpr int kFp32Digits = 9;

constexpr size_t kFewestForCorrelation = 50;

constexpr Named<KnownName> kNames[] = {
    {"lm loss", {Quantity::kLoss, 0}},
    {"loss_metrics/global_avg_loss", {Quantity::kLoss, 0}},
    {"loss", {Quantity::kLoss, 1}},
    {"train_loss_step", {Quantity::kLoss, 1}},
    {"reduced_train_loss", {Quantity::kLoss, 1}},
    {"train_loss", {Quantity::kLoss, 2}},
    {"train/loss", {Quantity::kLoss, 2}},
    {"train loss", {Quantity::kLoss, 3}},
    {"lm-loss", {Quantity::kLoss, 3}},
    {"training_loss", {Quantity::kLoss, 3}},
    {"lm_loss", {Quantity::kLoss, 3}},
    {"Loss/train", {Quantity::kLoss, 3}},
    {"loss_nats", {Quantity::kLoss, 3}},
    {"loss/train", {Quantity::kLoss, 3}},
    {"training loss", {Quantity::kLoss, 3}},
    {"train/CrossEntropyLoss", {Quantity::kLoss, 3}},
    {"CrossEntropyLoss", {Quantity::kLoss, 3}},
    {"train/CE loss", {Quantity::kLoss, 3}},
    {"train/cross_entropy", {Quantity::kLoss, 3}},
    {"loss/train/total", {Quantity::kLoss, 3}},
    {"main_model_loss", {Quantity::kLoss, 4}},
    {"train/cross_entropy_loss", {Quantity::kLoss, 3}},
    {"train/ce_loss", {Quantity::kLoss, 3}},
    {"cross_entropy_loss", {Quantity::kLoss, 3}},
    {"ce_loss", {Quantity::kLoss, 3}},
    {"loss_mean", {Quantity::kLoss, 4}},
    {"mean_loss", {Quantity::kLoss, 4}},
    {"loss_avg", {Quantity::kLoss, 4}},
    {"avg_loss", {Quantity::kLoss, 4}},
    {"val_loss", {Quantity::kEvalLoss, 1}},
    {"val loss", {Quantity::kEvalLoss, 1}},
    {"val/loss", {Quantity::kEvalLoss, 1}},
    {"eval_loss", {Quantity::kEvalLoss, 1}},
    {"eval/loss", {Quantity::kEvalLoss, 1}},
    {"validation loss", {Quantity::kEvalLoss, 1}},
    {"validation_loss", {Quantity::kEvalLoss, 1}},
    {"validation_metrics/loss", {Quantity::kEvalLoss, 0}},
    {"lm loss validation", {Quantity::kEvalLoss, 0}},
    {"validation/loss", {Quantity::kEvalLoss, 1}},
    {"valid/loss", {Quantity::kEvalLoss, 1}},
    {"eval/cross_entropy_loss", {Quantity::kEvalLoss, 2}},
    {"val/cross_entropy_loss", {Quantity::kEvalLoss, 2}},
    {"loss/val", {Quantity::kEvalLoss, 2}},
    {"Loss/val", {Quantity::kEvalLoss, 2}},
    {"loss/validation", {Quantity::kEvalLoss, 2}},
    {"Loss/validation", {Quantity::kEvalLoss, 2}},
    {"valid_loss", {Quantity::kEvalLoss, 2}},
    {"eval/CrossEntropyLoss", {Quantity::kEvalLoss, 2}},
    {"val/CrossEntropyLoss", {Quantity::kEvalLoss, 2}},
    {"grad_norm", {Quantity::kGradNorm, 0}},
    {"grad norm", {Quantity::kGradNorm, 0}},
    {"grad-norm", {Quantity::kGradNorm, 0}},
    {"train/grad_norm", {Quantity::kGradNorm, 1}},
    {"gradient_norm", {Quantity::kGradNorm, 1}},
    {"total_grad_norm", {Quantity::kGradNorm, 2}},
    {"global_grad_norm", {Quantity::kGradNorm, 2}},
    {"total_norm", {Quantity::kGradNorm, 2}},
    {"gnorm", {Quantity::kGradNorm, 2}},
    {"norm", {Quantity::kGradNorm, 2}},
    {"lr", {Quantity::kLearningRate, 0}},
    {"learning rate", {Quantity::kLearningRate, 0}},
    {"learning_rate", {Quantity::kLearningRate, 0}},
    {"learning-rate", {Quantity::kLearningRate, 0}},
    {"train/learning_rate", {Quantity::kLearningRate, 1}},
    {"train/lr", {Quantity::kLearningRate, 1}},
    {"lr-AdamW", {Quantity::kLearningRate, 1}},
    {"consumed tokens", {Quantity::kTokensSeen, 0}},
    {"tokens_seen", {Quantity::kTokensSeen, 0}},
    {"n_tokens_seen", {Quantity::kTokensSeen, 0}},
    {"ntokens_seen", {Quantity::kTokensSeen, 0}},
    {"num_tokens", {Quantity::kTokensSeen, 1}},
    {"total_tokens", {Quantity::kTokensSeen, 1}},
    {"throughput/total_tokens", {Quantity::kTokensSeen, 1}},
    {"num_input_tokens_seen", {Quantity::kTokensSeen, 1}},
    {"tps", {Quantity::kTokensPerSecond, 0}},
    {"throughput(tps)", {Quantity::kTokensPerSecond, 0}},
    {"tokens_per_second", {Quantity::kTokensPerSecond, 0}},
    {"step_seconds", {Quantity::kStepSeconds, 0}},
};

/// What trainers put before the names of its norm and rate.
constexpr std::string_view kOptimizers[] = {
    "optim", "optimizer", "actor", "train", "training", "learning", "opt"};

/// Whether both are the same value: bits, but any NaN equals another one.
bool Same(double a, double b) {
  return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

/// Pieces of equally many steps, each from where the first one began: an
/// epoch's counter. Attempts of a run that was started again are not equal.
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

/// Rows from which on the steps begin again where the first row began, or
/// before: a resume goes back to a later one.
std::vector<size_t> BeginsOf(const std::vector<int64_t>& step) {
  std::vector<size_t> begins;
  for (size_t i = 1; i < step.size(); ++i) {
    if (step[i] < step[i - 1] && step[i] <= step[0]) begins.push_back(i);
  }
  return begins;
}

/// Whether a number of epochs goes on where the steps begin again.
bool RisesAtRestarts(const Series& epochs) {
  const std::vector<size_t> begins = BeginsOf(epochs.step);
  return std::ranges::any_of(begins, [&](size_t at) {
    return epochs.value[at] > epochs.value[at - 1];
  });
}

/// By step. Of a step that occurs several times the last value counts.
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

/// Of several attempts that each began with the first step the last one alone
/// is the run, if it got as far as the others.
void Sort(Series& series) {
  series.restarts = RestartsOf(series.step);
  const std::vector<size_t> begins = BeginsOf(series.step);
  if (begins.empty()) return SortRows(series);
  const auto from = static_cast<std::ptrdiff_t>(begins.back());
  Series last = series;
  last.step.erase(last.step.begin(), last.step.begin() + from);
  last.value.erase(last.value.begin(), last.value.begin() + from);
  SortRows(series);
  if (series.repeated == 0) return;  // several ranks, one after the other
  SortRows(last);
  series.attempts = last.attempts = std::ssize(begins) + 1;
  series.last_attempt_ends = last.last_attempt_ends = last.step.back();
  if (last.step.back() >= series.step.back()) series = std::move(last);
}

/// Takes away the parabola of least squares, by polynomials that are orthogonal
/// on equal distances.
void RemoveParabola(std::span<double> values) {
  std::vector<std::vector<double>> basis;
  const auto remove = [](std::span<const double> direction,
                         std::span<double> from) {
    double square = 0;
    double product = 0;
    for (size_t i = 0; i < from.size(); ++i) {
      square += direction[i] * direction[i];
      product += direction[i] * from[i];
    }
    for (size_t i = 0; i < from.size(); ++i) {
      from[i] -= product / square * direction[i];
    }
  };
  for (int power = 0; power <= 2; ++power) {
    std::vector<double>& next = basis.emplace_back();
    for (size_t i = 0; i < values.size(); ++i) {
      const double x =
          2 * static_cast<double>(i) / static_cast<double>(values.size() - 1) -
          1;
      next.push_back(std::pow(x, power));
    }
    for (int below = 0; below < power; ++below) {
      remove(basis[static_cast<size_t>(below)], next);
    }
    remove(next, values);
  }
}

/// "train/lr(1e-3)": the name of a rate tells the unit of its numbers.
void TakeUnit(Series& series) {
  const size_t open = series.name.rfind('(');
  if (open == std::string::npos || !series.name.ends_with(')')) return;
  const std::string_view name = series.name;
  const auto unit =
      ParsePlainNumber(name.substr(open + 1, name.size() - open - 2));
  const Quantity quantity = FindName(Trimmed(name.substr(0, open))).quantity;
  if (!unit || !(*unit > 0) || quantity != Quantity::kLearningRate) return;
  series.quantity = quantity;
  for (double& value : series.value) value *= *unit;
  series.digits.decimals -= static_cast<int>(std::lround(std::log10(*unit)));
}

/// Of steps without a loss those at which one was due: between losses, or right
/// after the last, at their distance. Programs also log a norm at each step and
/// a loss at each tenth.
void KeepDue(const std::vector<int64_t>& with_loss,
             std::vector<int64_t>& steps) {
  std::ranges::sort(steps);
  steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
  const int64_t stride = std::max<int64_t>(1, SpacingOf(with_loss).stride);
  std::erase_if(steps, [&](int64_t step) {
    const auto next = std::ranges::lower_bound(with_loss, step);
    if (with_loss.size() < 2 || next == with_loss.begin() ||
        (next != with_loss.end() && *next == step)) {
      return true;
    }
    return (step - *(next - 1)) % stride != 0;
  });
}

/// Steps that are missing between losses which stand at one distance before and
/// after: lines that were lost.
void AppendLost(const std::vector<int64_t>& with_loss,
                std::vector<int64_t>& steps) {
  constexpr size_t kAround = 5;          // gaps on each side
  constexpr size_t kFewest = 4;          // gaps of that distance
  constexpr int64_t kMostLost = 10'000;  // a longer gap is no lost line
  const size_t count = with_loss.size();
  for (size_t i = 1; i < count; ++i) {
    const int64_t gap = with_loss[i] - with_loss[i - 1];
    std::vector<int64_t> around;
    for (size_t j = i - std::min(i - 1, kAround); j <= i + kAround; ++j) {
      if (j == i || j >= count) continue;
      around.push_back(with_loss[j] - with_loss[j - 1]);
    }
    if (around.size() < kFewest) continue;
    std::ranges::nth_element(around, around.begin() + around.size() / 2);
    const int64_t usual = around[around.size() / 2];
    const bool regular =
        std::ranges::count(around, usual) >= std::ssize(around) * 4 / 5;
    if (!regular || gap <= usual || gap % usual != 0 || gap > kMostLost) {
      continue;
    }
    for (int64_t step = with_loss[i - 1] + usual; step < with_loss[i];
         step += usual) {
      steps.push_back(step);
    }
  }
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

KnownName FindName(std::string_view name) {
  const auto known = [](std::string_view part) {
    const auto* found =
        std::ranges::find(kNames, part, &Named<KnownName>::name);
    return found == std::end(kNames) ? KnownName{} : found->value;
  };
  const KnownName whole = known(name);
  if (whole.quantity != Quantity::kOther) return whole;
  // "optim/learning_rate_group0"; the same of a module is of no whole run.
  const size_t path = name.find('/');
  if (path != std::string_view::npos) {
    if (std::ranges::count(kOptimizers, name.substr(0, path)) == 0) return {};
    name.remove_prefix(path + 1);
  }
  bool of_group = false;
  for (const std::string_view first : {"_group0", "_0"}) {
    if (!name.ends_with(first)) continue;
    name.remove_suffix(first.size());
    of_group = true;
  }
  const KnownName part = known(name);
  const bool is_norm = part.quantity == Quantity::kGradNorm && !of_group;
  if (!is_norm && part.quantity != Quantity::kLearningRate) return {};
  constexpr int kLast = 8;
  return {part.quantity, part.rank + kLast};
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
  if (number) return Add(at, number->value, number->text);
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
    const int rank = FindName(candidate.name).rank;
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
    if (BatchFactNamed(series[i].name) == kEpochsSeen) {
      counts_within_epoch |= RisesAtRestarts(series[i]);
    }
    Sort(series[i]);
  }
  const Series* loss = Main(Quantity::kLoss);
  if (loss == nullptr) return without_loss.clear();
  AppendLost(loss->step, without_loss);
  KeepDue(loss->step, without_loss);
}

Spacing SpacingOf(std::vector<int64_t> steps) {
  Spacing spacing;
  std::ranges::sort(steps);
  steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
  if (steps.size() < 2) return spacing;
  // The most frequent difference, found among sorted ones.
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
    // Step 1, then every multiple of the stride: the first one is shorter.
    if (gaps[i] == spacing.stride || (i == 0 && gaps[i] < spacing.stride)) {
      continue;
    }
    // The last step of a run is often logged, wherever it falls.
    if (i + 1 == gaps.size() && gaps[i] < spacing.stride) continue;
    if (spacing.gaps++ == 0) spacing.first_gap = steps[i];
    spacing.missing += std::max<int64_t>(gaps[i] / spacing.stride - 1, 0);
  }
  return spacing;
}

namespace {

/// The median in place of differences that are further from it than 4.45 times
/// the median distance, three standard deviations of a normal distribution. The
/// few of a spike, hump or step would outweigh all others.
void RemoveJumps(std::span<double> differences) {
  constexpr double kMedians = 4.45;
  const auto median = [](std::vector<double> values) {
    const auto middle = values.begin() + std::ssize(values) / 2;
    std::ranges::nth_element(values, middle);
    return *middle;
  };
  const double center = median({differences.begin(), differences.end()});
  std::vector<double> distances;
  for (const double x : differences) distances.push_back(std::fabs(x - center));
  const double most = kMedians * median(distances);
  if (most == 0) return;  // of few digits
  for (double& x : differences) {
    if (std::fabs(x - center) > most) x = center;
  }
}

/// Between neighbours, a parabola removed.
double LagCorrelation(std::vector<double> values) {
  RemoveParabola(values);
  double square = 0;
  double product = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    square += values[i] * values[i];
    if (i > 0) product += values[i] * values[i - 1];
  }
  return square > 0 ? product / square : std::nan("");
}

}  // namespace

DifferenceCorrelation CorrelationOfDifferences(
    const std::vector<double>& values) {
  std::vector<double> differences;
  for (size_t i = 1; i < values.size(); ++i) {
    const double difference = values[i] - values[i - 1];
    if (std::isfinite(difference)) differences.push_back(difference);
  }
  const size_t n = differences.size();
  if (n < kFewestForCorrelation) return {.value = std::nan("")};
  // Robust against a steep start: only the later half.
  std::vector<double> later(
      differences.begin() + static_cast<std::ptrdiff_t>(n / 2),
      differences.end());
  const double with_jumps = LagCorrelation(later);
  RemoveJumps(later);
  return {std::min(with_jumps, LagCorrelation(later)),
          1 / std::sqrt(2 * static_cast<double>(later.size()))};
}

}  // namespace isoloss::foreign
