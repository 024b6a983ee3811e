// Reads torchtitan's stdout: pytorch/torchtitan, components/metrics.py.
//   [titan] <time> - root - INFO - step:  1  loss:  3.86442  grad_norm: ...
//   validate step: 100  loss:  3.5012  ...
#include <algorithm>
#include <cctype>
#include <memory>
#include <string>

#include "isoloss/foreign/format.h"
#include "isoloss/foreign/table_names.h"
#include "isoloss/foreign/text.h"

namespace isoloss::foreign {
namespace {

/// Takes "name:" from the front of `rest`, without the colon; empty if none.
std::string_view TakeName(std::string_view& rest) {
  std::string_view word = TakeWord(rest);
  if (!word.ends_with(':')) return {};
  word.remove_suffix(1);
  return word;
}

/// Returns whether the last word is "validate", "[valid]", "Test:" or the like,
/// and not a machine's name such as "test-3:".
bool EndsWithEvaluation(std::string_view before) {
  const size_t end = before.find_last_not_of(" \t:])");
  if (end == std::string_view::npos) return false;
  before = before.substr(0, end + 1);
  const size_t edge = before.find_last_of(" \t:[(");
  const std::string_view word =
      before.substr(edge == std::string_view::npos ? 0 : edge + 1);
  return IsEvaluationWord(word);
}

class TorchTitanReader : public LineReader {
 public:
  bool Read(std::string_view line) override {
    auto fields = After(line, "step:");
    if (!fields) return false;
    const std::string_view before =
        line.substr(0, static_cast<size_t>(fields->data() - line.data()) - 5);
    // Without a blank, the word is in a string of a program that reads logs.
    if (!before.empty() && before.back() != ' ') return false;
    bool validation = under_evaluation() || EndsWithEvaluation(before);
    const auto step = ParseWhole(TakeWord(*fields));
    if (!step || *step < 0) return false;
    std::string_view total = *fields;
    if (TakeWord(total) == "/") {
      run().steps_planned = std::max(run().steps_planned,
                                     ParseWhole(TakeWord(total)).value_or(0));
    }
    bool found = false;
    while (!Trimmed(*fields).empty()) {
      const std::string_view name = TakeName(*fields);
      if (name.empty()) continue;  // a unit, such as "(12.3%)"
      std::string_view ahead = *fields;
      const std::string_view word = TakeWord(ahead);
      const auto number = LeadingNumber(word);
      if (!number && IsPhaseName(name)) {
        validation |= !PhasePrefix(word).empty();
      }
      // `mfu: N/A` has no number; in older logs a sentence may end the line.
      if (!number && name != "loss") continue;
      *fields = ahead;
      found = true;
      const std::string key =
          (validation ? "validation " : "") + std::string(name);
      run().Of(key).AddWritten(*step, number, word);
    }
    return found;
  }

  void Finish() override {
    for (Series& series : run().series) {
      if (series.quantity == Quantity::kTokensPerSecond) {
        series.averaging = Averaging::kIntervalMean;
      }
    }
  }
};

}  // namespace

extern const Format kFormat_torchtitan = {
    .name = "torchtitan", .lines = &MakeReader<TorchTitanReader>};

}  // namespace isoloss::foreign
