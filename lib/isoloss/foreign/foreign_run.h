// A run as another program's log tells it: named series over steps, and what
// one must know of them before they are judged.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/foreign/text.h"

namespace isoloss::foreign {

/// What a value stands for.
enum class Averaging {
  kInstant,       ///< of that step alone
  kIntervalMean,  ///< mean over the steps since the value before
  kBucketMean,    ///< mean of points that a chart put together
  kSmoothed,      ///< of earlier steps as well: an exponential or moving mean
};
/// "value of the step", "mean over the interval", ...
std::string_view AveragingText(Averaging averaging);

/// How precisely the values of a series were written. A writer drops trailing
/// zeros or not; so this is the finest value of the series.
struct Digits {
  int decimals = 0;     ///< behind the point, of fixed notation
  int significant = 0;  ///< without leading zeros
  bool scientific = false;

  /// Nothing was rounded away from an FP32 value.
  bool exact() const;
  /// Takes in the digits of one more number, as it was written.
  void Include(std::string_view number);
  /// Half a unit of the last place of `value`; 0 if exact, and of a value that
  /// is not finite.
  double HalfUnit(double value) const;
};

/// Which of a run's quantities a series is. kOther has a name only.
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
/// "loss", "eval loss", ...; "" of kOther.
std::string_view QuantityName(Quantity quantity);

/// By the names that programs use for it, and those of rates and gradient norms
/// by their words; kOther if none is known. `rank` is how usual the name is, 0
/// the most, where a run has several such series.
struct KnownName {
  Quantity quantity = Quantity::kOther;
  int rank = 0;
};
KnownName FindName(std::string_view name);

struct Series {
  std::string name;  ///< as the log has it
  Quantity quantity = Quantity::kOther;
  Averaging averaging = Averaging::kInstant;
  std::vector<int64_t> step;  ///< from 1, ascending once Finish() has run
  std::vector<double> value;  ///< NaN and infinities as they were written
  Digits digits;
  bool thinned = false;      ///< points were left out by whoever exported it
  int64_t repeated = 0;      ///< steps written again, another value: a resume
  int64_t copies = 0;        ///< steps written again, the same value
  int64_t first_repeat = 0;  ///< the first step with another value; 0: none
  /// Of the repeated ones those that were written at once, one row after the
  /// other, as by ranks or for micro-batches.
  int64_t neighbours = 0;
  /// Times that the steps began with the first one, with other values: a run
  /// that was started anew, or several runs. The last one is kept alone, unless
  /// it ends before another one.
  int64_t attempts = 1;
  int64_t last_attempt_ends = 0;

  /// What stands where the loss of a step should, and is no number: it counts
  /// as NaN.
  int64_t unreadable = 0;
  std::string unreadable_text;  ///< the first one
  int64_t first_unreadable = 0;
  /// Times that steps began again after equally many, as a counter within an
  /// epoch does. Set by Finish().
  int64_t restarts = 0;

  void Add(int64_t at, double number) {
    step.push_back(at);
    value.push_back(number);
  }
  void Add(int64_t at, double number, std::string_view written) {
    Add(at, number);
    digits.Include(written);
  }
  /// Of `number` if `text` begins with one; else as unreadable.
  void AddWritten(int64_t at, const std::optional<Written>& number,
                  std::string_view text);
};

/// Each takes some 300 bytes, even with one value.
inline constexpr size_t kMostSeries = 100'000;

struct ForeignRun {
  std::string name;    ///< of several in a file; "" if the file is the run
  std::string format;  ///< "torchtitan", "wandb_csv", ...
  /// What steps count, where that is no optimizer step: "log calls".
  std::string step_unit = "step";
  int64_t step_base = 1;  ///< what the log calls its first step
  std::optional<int64_t> seed;
  int64_t steps_planned = 0;  ///< the last step that is due; 0: not told
  /// Numbers that hold for the whole run, by the log's names.
  std::map<std::string, double, std::less<>> settings;
  std::vector<Series> series;
  std::vector<std::string> notes;  ///< whole sentences
  /// Steps of which the log tells something else about the update. Once
  /// Finish() has run: only those at which a loss was due.
  std::vector<int64_t> without_loss;
  /// What counts the steps, of tables: a column or key; else "".
  std::string step_name;
  std::vector<std::string> rising;  ///< what else may count them
  /// The number of the epoch rises where the steps begin again. Set by
  /// Finish().
  bool counts_within_epoch = false;
  /// What says that the program broke off after the last step; "": nothing.
  std::string broke_off;

  /// Made on demand.
  /// Errors   FormatError if there would be more than kMostSeries.
  Series& Of(std::string_view name);
  const Series* Find(std::string_view name) const;
  /// The series that is the run's `quantity`; null if it has none.
  const Series* Main(Quantity quantity) const;

  /// Sorts each series by step. Of a step that occurs several times the last
  /// value counts, as after a resume, and is counted in the series.
  /// Series without a value are removed.
  void Finish();

 private:
  std::map<std::string, size_t, std::less<>> places_;
};

/// Every `stride`-th step, or irregular (0); 1 if there are fewer than 2.
/// `first_gap` is the gap after the first value where it is another one.
struct Spacing {
  int64_t stride = 1;
  int64_t gaps = 0;       ///< places where steps are missing
  int64_t first_gap = 0;  ///< step before the first of them
  int64_t missing = 0;    ///< steps that the stride leads one to expect
};
/// Of steps in any order, also several times.
Spacing SpacingOf(std::vector<int64_t> steps);

}  // namespace isoloss::foreign
