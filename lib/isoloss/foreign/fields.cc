// Reads lines of a step and named numbers, as many trainers print them, such as
// MaxText, MosaicML's Composer, verl and torchtune.
//   completed step: 0, seconds: 0.3, total_weights: 4096, loss: 5.000
//   Epoch 1/2:  8%|#  | 1/12 [00:01<00:12]step:2 - train/loss:4.97
//   Step 1 | loss:6.9 lr:2e-05 tokens_per_second:900
//   [2026-01-01 00:00:00] INFO [train:1, rank=0] [step=1/1000]
//       train/CrossEntropyLoss=5
//       throughput/total_tokens=65,536
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "isoloss/foreign/format.h"
#include "isoloss/foreign/line_rows.h"
#include "isoloss/foreign/table_names.h"
#include "isoloss/foreign/text.h"

namespace isoloss::foreign {
namespace {

constexpr std::string_view kWeights = "total_weights";
/// A longer line holds something else, such as a configuration.
constexpr size_t kLongestLine = 4000;
/// No trainer logs more names, but text that is no log may have any number.
constexpr size_t kMostNames = 1000;

/// The step that a line counts divides the line into two parts.
struct StepOfLine {
  std::string_view word;  ///< "iteration"
  int64_t step = 0;
  int64_t planned = 0;  ///< of "1/1000"; 0: not told
  std::string_view before;
  std::string_view rest;
};

/// Removes the whole number at the front of `rest` and returns it.
std::optional<int64_t> TakeDigits(std::string_view& rest) {
  const size_t end =
      std::min(rest.find_first_not_of("0123456789"), rest.size());
  const auto number = ParseWhole(rest.substr(0, end));
  rest.remove_prefix(end);
  return number;
}

/// Finds "step: 3", "step=3/1000", "Step [3/1000]", "Step 3" followed by " |"
/// or a colon, or, in a line on an evaluation, "step 3" followed by a comma.
std::optional<StepOfLine> StepIn(std::string_view line) {
  constexpr std::string_view kBefore = " \t[](),|;";
  for (const std::string_view word : {"step", "Step", "batch", "iteration"}) {
    for (size_t at = line.find(word); at != std::string_view::npos;
         at = line.find(word, at + 1)) {
      // The word is in no name, and in no string of a program that reads logs.
      if (at > 0 && kBefore.find(line[at - 1]) == std::string_view::npos) {
        continue;
      }
      std::string_view rest = line.substr(at + word.size());
      const bool sign = rest.starts_with(':') || rest.starts_with('=');
      if (sign) rest.remove_prefix(1);
      SkipBlanks(rest);
      const bool bracket = !sign && rest.starts_with('[');
      if (bracket) rest.remove_prefix(1);
      const auto step = TakeDigits(rest);
      if (!step) continue;
      int64_t planned = 0;
      if (Trimmed(rest).starts_with('/')) {
        rest.remove_prefix(rest.find('/') + 1);
        SkipBlanks(rest);
        planned = TakeDigits(rest).value_or(0);
        while (rest.starts_with('?')) rest.remove_prefix(1);  // not known
      }
      const bool bar = Trimmed(rest).starts_with('|');
      const bool colon = rest.starts_with(": ");
      const bool ends = rest.empty() || IsBlank(rest.front()) || colon ||
                        rest.front() == ',' || rest.front() == ']';
      const std::string_view before = line.substr(0, at);
      const bool comma = rest.starts_with(',') && SaysEvaluation(before);
      const bool marked = sign || bracket || bar || colon || comma;
      if (!ends || !marked) continue;
      return StepOfLine{word, *step, planned, before, rest};
    }
  }
  return std::nullopt;
}

/// Returns a name as a program gives it; empty if the text is no name.
std::string_view NameIn(std::string_view text) {
  constexpr std::string_view kAround = " \t,|-;])";
  constexpr size_t kLongest = 120;
  const size_t begin = text.find_first_not_of(kAround);
  if (begin == std::string_view::npos) return {};
  text = text.substr(begin, text.find_last_not_of(" \t") + 1 - begin);
  const bool odd = text.find_first_of("\"'{}[]<>|;%") != std::string_view::npos;
  const auto first = static_cast<unsigned char>(text.front());
  return odd || text.size() > kLongest || std::isalpha(first) == 0
             ? std::string_view()
             : text;
}

/// Removes what a launcher puts before each line: "[rank0]:", "0: " or a time.
std::string_view WithoutPrefix(std::string_view line) {
  std::string_view rest = line;
  const std::string_view word = TakeWord(rest);
  if (word.empty() || word.data() != line.data()) return line;
  const bool number =
      std::isdigit(static_cast<unsigned char>(word.front())) != 0;
  const bool prefix = (word.front() == '[' && word.ends_with("]:")) ||
                      (number && (word.ends_with(':') || word.ends_with('Z')));
  return prefix ? rest : line;
}

class FieldsReader : public LineReader {
 public:
  bool Read(std::string_view line) override {
    if (line.size() > kLongestLine) return false;
    if (in_block_) {
      const std::string_view inner = WithoutPrefix(line);
      if (inner.starts_with("  ")) return ReadFields(inner) > 0;
    }
    in_block_ = false;
    const auto found = StepIn(line);
    if (!found) return false;
    evaluates_ = SaysEvaluation(found->before);
    // "Completed eval step: 3" is a step of an evaluation.
    if (Trimmed(found->before).ends_with("eval")) return false;
    steps_.push_back(found->step);
    const std::string_view rest = Trimmed(found->rest);
    const int fields = ReadFields(rest) + ReadBars(rest);
    in_block_ = rest.ends_with(']') || rest.ends_with("]:");
    if (!in_block_ && fields == 0) {
      steps_.pop_back();
      return false;
    }
    // Steps in brackets may begin again in each epoch.
    if (const auto epoch = NumberAfter(found->before, "Epoch [")) {
      Keep("epoch", epoch, epoch->text);
    }
    if (!evaluates_) Count(found->word, found->step, counters_);
    word_ = found->word;
    run().steps_planned = std::max(run().steps_planned, found->planned);
    return true;
  }

  void Finish() override {
    ChooseSteps();
    DropWithoutTokens();
    CountTokens();
    JoinLosses();
  }

 private:
  /// Takes another field for the step where the word of the lines begins again,
  /// as within an epoch, and the field rises: "iteration 0/9 | global_step:
  /// 19".
  void ChooseSteps() {
    std::string name(step_name());
    if (const auto own = counters_.find(word_);
        name.empty() && own != counters_.end() &&
        (own->second.restarts() > 0 || own->second.stands_still())) {
      name = ChooseStep(counters_, run());
      run().rising = RisingNames(counters_, word_);
    }
    const Series* chosen = run().Find(name);
    if (chosen != nullptr && name != word_) {
      run().rising.clear();
      run().step_name = name;
      run().steps_planned = 0;  // of one epoch
      TakeSteps(*chosen);
    }
    SetSteps(steps_, run());
  }

  /// A row that lacks the field, as of an evaluation, belongs to the row
  /// before.
  void TakeSteps(const Series& chosen) {
    std::vector<int64_t> steps(steps_.size(), -1);
    for (size_t i = 0; i < chosen.step.size(); ++i) {
      const double value = chosen.value[i];
      if (!(std::abs(value) <= static_cast<double>(kMostWhole))) continue;
      steps[static_cast<size_t>(chosen.step[i])] = static_cast<int64_t>(value);
    }
    for (size_t i = 1; i < steps.size(); ++i) {
      if (steps[i] < 0) steps[i] = steps[i - 1];
    }
    steps_ = std::move(steps);
  }

  /// Reads the fields of the last row. Returns how many there are.
  int ReadFields(std::string_view rest) {
    int fields = 0;
    while (true) {
      const size_t sign = rest.find_first_of(":=");
      if (sign == std::string_view::npos) return fields;
      std::string_view name = NameIn(rest.substr(0, sign));
      rest.remove_prefix(sign + 1);
      if (name.empty()) continue;
      if (name.starts_with("Train ")) name.remove_prefix(6);  // Composer
      const bool loss = FindName(name).quantity == Quantity::kLoss;
      rest = WithoutType(rest);
      const auto number = LeadingNumber(rest);
      std::string_view after = rest;
      const std::string_view word = TakeWord(after);
      if (!number && !loss) {
        if (!IsPhaseName(name)) continue;
        evaluates_ |= !PhasePrefix(word).empty();
        rest = after;
        continue;
      }
      if (number && IsClock(*number, rest)) {
        rest = after;
        continue;
      }
      ++fields;
      Keep(name, number, word);
      rest = number
                 ? rest.substr(static_cast<size_t>(
                       number->text.data() + number->text.size() - rest.data()))
                 : after;
    }
  }

  /// Reads "| loss 4.5 | lr 1e-5 |", whose fields have no sign.
  int ReadBars(std::string_view rest) {
    int fields = 0;
    if (!rest.starts_with('|')) return fields;
    while (!rest.empty()) {
      rest.remove_prefix(1);
      std::string_view part = rest.substr(0, rest.find('|'));
      rest.remove_prefix(part.size());
      if (part.find_first_of(":=") != std::string_view::npos) continue;
      part = Trimmed(part);
      const size_t blank = part.find_first_of(" \t");
      if (blank == std::string_view::npos) continue;
      const std::string_view name = NameIn(part.substr(0, blank));
      std::string_view after = part.substr(blank);
      const auto number = LeadingNumber(after);
      const bool loss = FindName(name).quantity == Quantity::kLoss;
      if (name.empty() || (!number && !loss)) continue;
      ++fields;
      Keep(name, number, TakeWord(after));
    }
    return fields;
  }

  /// Keeps a field of the last row.
  void Keep(std::string_view name, const std::optional<Written>& number,
            std::string_view word) {
    if (number && !evaluates_) {
      const auto whole = ParseWhole(number->text);
      if (whole) Count(name, *whole, counters_);
    }
    const std::string key =
        (evaluates_ ? "validation " : "") + std::string(name);
    if (run().series.size() < kMostNames || run().Find(key) != nullptr) {
      run().Of(key).AddWritten(std::ssize(steps_) - 1, number, word);
    }
  }

  /// Returns whether the number is a part of a time: "eta=1:23:45".
  static bool IsClock(const Written& number, std::string_view text) {
    const size_t end = static_cast<size_t>(number.text.data() +
                                           number.text.size() - text.data());
    return end + 1 < text.size() && text[end] == ':' &&
           std::isdigit(static_cast<unsigned char>(text[end + 1])) != 0;
  }

  /// Drops losses over no tokens, since a mean over none is no loss.
  void DropWithoutTokens() {
    const Series* weights = run().Find(kWeights);
    if (weights == nullptr) return;
    std::vector<int64_t> empty;
    for (size_t i = 0; i < weights->step.size(); ++i) {
      if (weights->value[i] == 0) empty.push_back(weights->step[i]);
    }
    if (empty.empty()) return;
    std::ranges::sort(empty);
    for (Series& series : run().series) {
      if (series.quantity != Quantity::kLoss) continue;
      size_t kept = 0;
      for (size_t i = 0; i < series.step.size(); ++i) {
        if (std::ranges::binary_search(empty, series.step[i])) continue;
        series.step[kept] = series.step[i];
        series.value[kept++] = series.value[i];
      }
      series.step.resize(kept);
      series.value.resize(kept);
    }
    run().notes.push_back(fmt::format(
        "Losses beside 0 tokens are no losses and were left out: {}, the first "
        "at {}.",
        empty.size(), empty.front()));
  }

  /// Adds up the tokens of all steps, from the first step on.
  void CountTokens() {
    const Series* weights = run().Find(kWeights);
    if (weights == nullptr || run().Main(Quantity::kTokensSeen) != nullptr ||
        weights->step.front() > 1) {
      return;
    }
    const Series told = *weights;
    Series& seen = run().Of("tokens_seen");
    double sum = 0;
    for (size_t i = 0; i < told.step.size(); ++i) {
      // After a resume or a lost line, the sum is not known.
      if (i > 0 && told.step[i] != told.step[i - 1] + 1) {
        seen.step.clear();
        seen.value.clear();
        return;
      }
      sum += told.value[i];
      seen.Add(told.step[i], sum);
    }
  }

  /// Joins the two parts of a loss that changes its name within the run.
  void JoinLosses() {
    std::vector<Series*> losses;
    for (Series& series : run().series) {
      if (series.quantity != Quantity::kLoss || series.step.empty()) continue;
      losses.push_back(&series);
    }
    for (size_t i = 1; i < losses.size(); ++i) {
      Series& first = *losses[0];
      Series& next = *losses[i];
      if (next.step.front() <= std::ranges::max(first.step)) continue;
      run().notes.push_back(fmt::format(
          "From step {} on the loss is called `{}`, and before that `{}`. "
          "Check that both mean the same.",
          next.step.front(), next.name, first.name));
      std::ranges::copy(next.step, std::back_inserter(first.step));
      std::ranges::copy(next.value, std::back_inserter(first.value));
      first.digits.decimals =
          std::max(first.digits.decimals, next.digits.decimals);
      next.quantity = Quantity::kOther;
    }
  }

  std::vector<int64_t> steps_;  ///< of rows, as the lines have them
  std::string word_;            ///< of the last row
  Counters counters_;           ///< of the lines' words, and of whole fields
  bool in_block_ = false;       ///< indented lines of the last row may follow
  bool evaluates_ = false;      ///< the last row
};

}  // namespace

extern const Format kFormat_fields = {
    .name = "fields", .lines = &MakeReader<FieldsReader>, .last_resort = true};

}  // namespace isoloss::foreign
