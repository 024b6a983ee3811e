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

#include "isoloss/foreign/field_rows.h"
#include "isoloss/foreign/format.h"
#include "isoloss/foreign/line_items.h"
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

/// torchtune's bar begins with the epoch, the step and the loss:
/// "1|10|Loss: 4.5:   3%|#  | 10/300 [00:12<1:00".
std::optional<int64_t> TorchtuneStep(std::string_view line) {
  const size_t first = line.find('|');
  const size_t second = line.find('|', first + 1);
  if (second == line.npos || !line.substr(second).starts_with("|Loss: ") ||
      !ParseWhole(line.substr(0, first))) {
    return std::nullopt;
  }
  return ParseWhole(line.substr(first + 1, second - first - 1));
}

/// Returns whether indented lines of the row may follow, since the line ends
/// with the brackets in which the counter stands.
bool OpensBlock(std::string_view line, const LineItem& counter) {
  const std::string_view rest = Trimmed(line.substr(counter.end));
  if (counter.name.empty() || rest.find('[') != rest.npos) return false;
  return rest.ends_with(']') || rest.ends_with("]:") || rest.ends_with("data:");
}

/// A sign tells that a number counts steps, and is not one of a sentence.
bool IsMarked(std::string_view line, const LineItem& counter) {
  const std::string_view rest = line.substr(counter.end);
  return !counter.name.empty() &&
         (counter.has_sign || counter.has_total || rest.starts_with(':') ||
          Trimmed(rest).starts_with('|'));
}

class FieldsReader : public LineReader {
 public:
  bool Read(std::string_view line) override {
    if (line.size() > kLongestLine) return false;
    const std::string_view inner = in_block_ ? WithoutPrefix(line) : "";
    if (inner.starts_with("  ") || inner.starts_with('\t')) {
      const std::vector<LineItem> items = ItemsOf(inner);
      return KeepAll(PartsOf(items)) > 0;
    }
    in_block_ = false;
    if (line.find_first_of("0123456789") == line.npos) return false;
    const std::vector<LineItem> items = ItemsOf(line);
    return !items.empty() && ReadRow(line, items);
  }

  void Finish() override {
    ChooseSteps();
    DropWithoutTokens();
    CountTokens();
    JoinLosses();
    if (!has_second_) return;
    run().notes.emplace_back(
        "Of `Loss 4.5 (4.6)` the first number counts, which is a value or a "
        "median of some. The second is the mean since the epoch began.");
  }

 private:
  bool ReadRow(std::string_view line, const std::vector<LineItem>& items) {
    const RowParts parts = PartsOf(items);
    evaluates_ = SaysEvaluation(line, items, parts);
    FieldRow row{.evaluates = evaluates_};
    if (const auto step = TorchtuneStep(line)) {
      row.step = *step;
      return parts.has_loss && KeepRow(parts, row, "step");
    }
    if (parts.epoch != nullptr) {
      row.epoch = WholeOf(*parts.epoch);
      row.epochs = parts.epoch->total;
    }
    const LineItem* counter = parts.counter();
    if (parts.fields.empty() && counter == nullptr && row.epoch >= 0) {
      heading_ = row;  // "Epoch 1/30" is a line of its own
      return false;
    }
    if (counter == nullptr) return ReadRowWithoutStep(parts, row);
    in_block_ = OpensBlock(line, *counter);
    if (evaluates_ && CountsEvaluation(parts)) {
      const bool last = counter->total == WholeOf(*counter);
      const bool several = std::ranges::any_of(items, &LineItem::has_second);
      if (rows_.empty() || !last || several) return in_block_ = false;
      return KeepRow(parts, {.evaluates = true}, "");
    }
    row.step = WholeOf(*counter);
    row.total = counter->total;
    const bool below = counter == parts.bar && row.epoch < 0;
    if (below && heading_.epoch >= 0) {
      if (line.find(" - ") != line.npos) return ReadKeras(parts, row);
      row.epoch = heading_.epoch;
      row.epochs = heading_.epochs;
    }
    if (!in_block_ && !parts.has_loss && !IsMarked(line, *counter)) {
      return false;
    }
    summarises_ = has_bars_ && parts.bar == nullptr && row.epoch >= 0;
    has_bars_ |= parts.bar != nullptr && parts.has_loss && row.epoch >= 0;
    return KeepRow(parts, row,
                   parts.step != nullptr ? parts.step_word : "batch");
  }

  /// Returns whether the words before the numbers, or a phase, say that a row
  /// is of an evaluation.
  bool SaysEvaluation(std::string_view line, const std::vector<LineItem>& items,
                      const RowParts& parts) const {
    const LineItem& first = items.front();
    const bool counts = &first == parts.counter() || &first == parts.epoch ||
                        (first.is_count && parts.bar != nullptr);
    const auto is_of_evaluation = [](const LineItem* counter) {
      return counter != nullptr &&
             PhaseBefore(*counter) == LinePhase::kEvaluation;
    };
    // The word before a name may tell that it is of a run: "run=test iter: 3".
    const auto whole_name = [line](const LineItem& item) {
      const size_t end = item.begin + item.name.size();
      const size_t blank = line.substr(0, item.begin).find_last_of(" \t");
      const size_t begin = blank == line.npos ? 0 : blank + 1;
      return line.substr(begin, end - begin);
    };
    return under_evaluation() ||
           NamesEvaluation(line.substr(
               0, first.begin + (counts ? first.name.size() : 0))) ||
           is_of_evaluation(parts.counter()) || is_of_evaluation(parts.epoch) ||
           EndsInEvaluation(line.substr(items.back().end)) ||
           (parts.step != nullptr &&
            NamesEvaluation(whole_name(*parts.step))) ||
           std::ranges::any_of(items, [](const LineItem& item) {
             return !item.number && IsPhaseName(item.name) &&
                    !PhasePrefix(item.word).empty();
           });
  }

  /// Reads a line on an evaluation or on an epoch as a whole.
  bool ReadRowWithoutStep(const RowParts& parts, FieldRow row) {
    if (!parts.has_loss) return false;
    if (row.epoch >= 0 && !counts_steps_) {
      row.step = std::exchange(row.epoch, -1);
      row.total = row.epochs;
      return KeepRow(parts, row, "epoch");
    }
    const bool told =
        row.epoch >= 0 || evaluates_ ||
        std::ranges::all_of(parts.fields, [](const LineItem* field) {
          return NamesEvaluation(field->name);
        });
    if (rows_.empty() || !told) return false;
    summarises_ = row.epoch >= 0;
    return KeepRow(parts, {.evaluates = true}, "");
  }

  /// Keras shows the mean since the epoch began, so that of its end counts.
  bool ReadKeras(const RowParts& parts, const FieldRow& row) {
    if (!parts.has_loss) return false;
    if (row.step != row.total) return true;
    return KeepRow(parts, {.step = heading_.epoch, .total = heading_.epochs},
                   "epoch");
  }

  bool KeepRow(const RowParts& parts, const FieldRow& row,
               std::string_view word) {
    rows_.push_back(row);
    const int fields = KeepAll(parts);
    const bool summary = std::exchange(summarises_, false);
    if (fields == 0 && !in_block_) {
      rows_.pop_back();
      return false;
    }
    if (row.epoch >= 0) {
      run().Of("epoch").Add(std::ssize(rows_) - 1,
                            static_cast<double>(row.epoch),
                            std::to_string(row.epoch));
    }
    if (row.step < 0 || evaluates_ || summary) return true;
    word_ = word;
    Count(word, row.step, counters_);
    counts_steps_ |= word != "epoch";
    return true;
  }

  /// Keeps all fields in the last row. Returns how many there are.
  int KeepAll(const RowParts& parts) {
    int fields = 0;
    bool evaluation = evaluates_;
    bool below = evaluates_;  // behind a phase: "val: loss 2 acc 9"
    std::vector<std::string> keys;
    for (const LineItem* field : parts.fields) {
      std::string_view name = field->name;
      for (const std::string_view prefix : {"Train ", "Eval "}) {  // Composer
        if (in_block_ && name.starts_with(prefix)) {
          name.remove_prefix(prefix.size());
        }
      }
      const LinePhase phase = PhaseBefore(*field);
      if (phase == LinePhase::kEvaluation) below = true;
      if (phase == LinePhase::kTraining) evaluation = below = evaluates_;
      const bool loss = FindName(name).quantity == Quantity::kLoss;
      if (!field->number && !loss) continue;
      // The second acc of "train loss 2 acc 9 | test loss 2 acc 8" is of a
      // test.
      evaluation |= below || NamesEvaluation(name);
      const bool again = std::ranges::count(keys, name) != 0;
      if (again && !evaluation) continue;
      std::string key = KeyOf(name, below || again);
      if (std::ranges::count(keys, key) != 0) continue;
      ++fields;
      has_second_ |= loss && field->has_second;
      Keep(key, *field);
      keys.push_back(std::move(key));
    }
    return fields;
  }

  std::string KeyOf(std::string_view name, bool evaluates) const {
    if (NamesEvaluation(name)) return std::string(name);
    if (evaluates) return "validation " + std::string(name);
    return (summarises_ ? "epoch " : "") + std::string(name);
  }

  void Keep(const std::string& key, const LineItem& field) {
    if (field.is_count && !evaluates_) Count(key, WholeOf(field), counters_);
    if (run().series.size() < kMostNames || run().Find(key) != nullptr) {
      run().Of(key).AddWritten(std::ssize(rows_) - 1, field.number, field.word);
    }
  }

  /// Takes another field for the step where the word of the lines begins again,
  /// as within an epoch, and the field rises: "iteration 0/9 | global_step:
  /// 19". If there is none, adds the steps of the epochs before.
  void ChooseSteps() {
    std::string name(step_name());
    if (const auto own = counters_.find(word_);
        name.empty() && own != counters_.end() &&
        (own->second.restarts() > 0 || own->second.stands_still())) {
      name = ChooseStep(counters_, run());
      run().rising = RisingNames(counters_, word_);
    }
    if (word_ == "epoch") run().step_unit = "epoch";
    const Series* chosen = run().Find(name);
    if (chosen != nullptr && name != word_) {
      run().rising.clear();
      run().step_name = name;
      TakeSteps(*chosen);
    } else {
      run().steps_planned = AddEpochs(rows_);
      if (const int64_t first = rows_.empty() ? 0 : rows_.front().epoch;
          first > 1 && word_ == "batch") {
        run().notes.push_back(fmt::format(
            "The log begins in epoch {}. Its steps do not count those of the "
            "epochs before.",
            first));
      }
    }
    TakePlaces();
  }

  void TakeSteps(const Series& chosen) {
    for (FieldRow& row : rows_) row.step = -1;
    for (size_t i = 0; i < chosen.step.size(); ++i) {
      const double value = chosen.value[i];
      if (!(std::abs(value) <= static_cast<double>(kMostWhole))) continue;
      rows_[static_cast<size_t>(chosen.step[i])].step =
          static_cast<int64_t>(value);
    }
  }

  /// Gives each row its step. A row without one, as of an evaluation, belongs
  /// to the row before; if steps count from 0, that has made one update more.
  void TakePlaces() {
    std::vector<int64_t> trained;
    for (const FieldRow& row : rows_) {
      if (row.step >= 0 && !row.evaluates) trained.push_back(row.step);
    }
    const int64_t more = CountsFromZero(trained) ? 1 : 0;
    std::vector<int64_t> steps;
    int64_t last = -1;
    for (const FieldRow& row : rows_) {
      if (row.step >= 0) last = row.step;
      const bool own = row.step >= 0 || last < 0 || !row.evaluates;
      steps.push_back(own ? last : last + more);
    }
    SetSteps(steps, run());
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
        weights->step.empty() || weights->step.front() > 1) {
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

  /// Joins the two parts of a loss that changes its name within the run. A
  /// single value is no part: it may be the mean of all.
  void JoinLosses() {
    std::vector<Series*> losses;
    for (Series& series : run().series) {
      if (series.quantity != Quantity::kLoss || series.step.empty()) continue;
      losses.push_back(&series);
    }
    for (size_t i = 1; i < losses.size(); ++i) {
      Series& first = *losses[0];
      Series& next = *losses[i];
      if (next.step.size() < 2 ||
          next.step.front() <= std::ranges::max(first.step)) {
        continue;
      }
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

  std::vector<FieldRow> rows_;
  FieldRow heading_;           ///< "Epoch 1/30"
  std::string word_;           ///< of the last row
  Counters counters_;          ///< of the lines' words, and of whole fields
  bool in_block_ = false;      ///< indented lines of the last row may follow
  bool evaluates_ = false;     ///< the last row
  bool summarises_ = false;    ///< this row tells means of an epoch
  bool has_bars_ = false;      ///< "10/100" stands in lines of steps
  bool counts_steps_ = false;  ///< lines of steps have been read
  bool has_second_ = false;    ///< losses have a number in parentheses
};

}  // namespace

extern const Format kFormat_fields = {
    .name = "fields", .lines = &MakeReader<FieldsReader>, .last_resort = true};

}  // namespace isoloss::foreign
