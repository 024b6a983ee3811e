// Holds a run as another program's log tells it: named series over steps, and
// what must be known of them before they are judged.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/foreign/text.h"

namespace isoloss::foreign {

/// A value is that of one step, or a mean over several.
enum class Averaging {
  kInstant,       ///< of that step alone
  kIntervalMean,  ///< mean over the steps since the previous value
  kBucketMean,    ///< mean of points that a chart merged
  kSmoothed,      ///< of earlier steps as well: an exponential or moving mean
};
/// Returns "value of the step", "mean over the interval", ...
std::string_view AveragingText(Averaging averaging);

/// The finest value of a series tells how precisely all were written, since a
/// writer may drop trailing zeros.
struct Digits {
  int decimals = 0;     ///< after the point, in fixed notation
  int significant = 0;  ///< without leading zeros
  bool scientific = false;

  /// Returns whether no digit of an FP32 value was rounded away.
  bool exact() const;
  /// Takes the digits of one more number, as it was written, into account.
  void Include(std::string_view number);
  /// Returns half a unit of the last place of `value`; 0 if the digits are
  /// exact or `value` is not finite.
  double HalfUnit(double value) const;
};

/// A series is one of these quantities of a run. kOther has only a name.
enum class Quantity {
  kLoss,
  kEvalLoss,
  kGradNorm,
  kLearningRate,
  kTokensSeen,
  kTokensPerSecond,
  kStepSeconds,
  kOther,
};
/// Returns "loss", "eval loss", ...; "" for kOther.
std::string_view QuantityName(Quantity quantity);

/// A series is known by the names that programs use for it; rates and gradient
/// norms are also known by their words. If a run has several series of a
/// quantity, the most usual name, of the least `rank`, counts.
struct KnownName {
  Quantity quantity = Quantity::kOther;
  int rank = 0;
};
/// A name that is known by its words has this rank at least.
inline constexpr int kRankByWords = 8;
KnownName FindName(std::string_view name);

struct Series {
  std::string name;  ///< as the log has it
  Quantity quantity = Quantity::kOther;
  Averaging averaging = Averaging::kInstant;
  std::vector<int64_t> step;  ///< from 1, ascending once Finish() has run
  std::vector<double> value;  ///< NaN and infinities as they were written
  Digits digits;
  bool thinned = false;      ///< the exporting program left points out
  int64_t repeated = 0;      ///< steps written again, another value: a resume
  int64_t copies = 0;        ///< steps written again, the same value
  int64_t first_repeat = 0;  ///< the first step with another value; 0: none
  /// Rows of ranks or micro-batches repeat a step at once, one row after
  /// another. Such steps are part of `repeated`.
  int64_t neighbours = 0;
  /// The steps began this many times with the first one, with other values: a
  /// run was started anew, or there are several runs. Only the last one is
  /// kept, unless it ends before an earlier one.
  int64_t attempts = 1;
  int64_t last_attempt_ends = 0;

  /// This many losses are text that is no number; each counts as NaN.
  int64_t unreadable = 0;
  std::string unreadable_text;  ///< the first one
  int64_t first_unreadable = 0;
  /// Finish() counts how often steps began again after equally many, as a
  /// counter within an epoch does.
  int64_t restarts = 0;

  void Add(int64_t at, double number) {
    step.push_back(at);
    value.push_back(number);
  }
  void Add(int64_t at, double number, std::string_view written) {
    Add(at, number);
    digits.Include(written);
  }
  /// Adds `number` if `text` begins with one; else counts it as unreadable.
  void AddWritten(int64_t at, const std::optional<Written>& number,
                  std::string_view text);
};

/// Each series takes some 300 bytes, even with one value.
inline constexpr size_t kMostSeries = 100'000;

struct ForeignRun {
  std::string name;  ///< if a file has several runs; "" if the file is the run
  std::string format;  ///< "torchtitan", "wandb_csv", ...
  /// The unit differs if steps count no optimizer steps: "log calls".
  std::string step_unit = "step";
  int64_t step_base = 1;  ///< what the log calls its first step
  std::optional<int64_t> seed;
  int64_t steps_planned = 0;  ///< the last step that is due; 0: not told
  /// These numbers hold for the whole run, by the log's names.
  std::map<std::string, double, std::less<>> settings;
  std::vector<Series> series;
  std::vector<std::string> notes;  ///< whole sentences
  /// The log tells of an update in these steps, but of no loss. Finish() keeps
  /// only the steps at which a loss was due.
  std::vector<int64_t> without_loss;
  /// The steps of a table are in this column or key; "" for any other log.
  std::string step_name;
  std::vector<std::string> rising;  ///< columns that may count them instead
  /// The epoch's number rises where steps begin again. Finish() sets this.
  bool counts_within_epoch = false;
  /// This line says that the program broke off after the last step, or is "".
  std::string broke_off;

  /// Returns the series of that name, which it makes on demand.
  /// Errors   FormatError if there would be more than kMostSeries.
  Series& Of(std::string_view name);
  const Series* Find(std::string_view name) const;
  /// Returns the series that is the run's `quantity`; null if it has none.
  const Series* Main(Quantity quantity) const;

  /// Sorts each series by step. If a step occurs several times, as after a
  /// resume, its last value counts, and the series counts the step as repeated.
  /// Series without a value are removed.
  void Finish();

 private:
  std::map<std::string, size_t, std::less<>> places_;
};

/// The `stride` is the most frequent distance between steps, or 1 if there are
/// fewer than 2 steps.
struct Spacing {
  int64_t stride = 1;
  int64_t gaps = 0;       ///< places where steps are missing
  int64_t first_gap = 0;  ///< step before the first gap
  int64_t missing = 0;    ///< steps that the stride leads one to expect
};
/// Returns the spacing of steps in any order, with repetitions.
Spacing SpacingOf(std::vector<int64_t> steps);

}  // namespace isoloss::foreign
