// Reads what Hugging Face's Trainer prints, and those that build on it: TRL,
// Axolotl, LLaMA-Factory, Unsloth. A line is a Python dictionary without the
// step. transformers, src/transformers/trainer_callback.py.
//   {'loss': 8.3368, 'grad_norm': nan, 'learning_rate': 5e-05, 'epoch': 0.01}
//   {'loss': '8.337', 'grad_norm': '1.5', 'epoch': '0.01'}  since version 5
// The step is that of the progress bar that is drawn again after the line, or a
// multiple of one interval that fits the epochs. Else the lines are counted.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/foreign/format.h"
#include "isoloss/foreign/hugging_face.h"
#include "isoloss/foreign/line_rows.h"
#include "isoloss/foreign/text.h"

namespace isoloss::foreign {
namespace {

struct DictField {
  std::string_view name;
  std::string_view word;  ///< without quotes or the name of a type
};

/// Takes "'name': value" from the front of a dictionary's inside.
std::optional<DictField> TakeField(std::string_view& rest) {
  const size_t begin = rest.find('\'');
  if (begin == std::string_view::npos) return std::nullopt;
  const size_t end = rest.find('\'', begin + 1);
  if (end == std::string_view::npos || !rest.substr(end).starts_with("': ")) {
    return std::nullopt;
  }
  DictField field{rest.substr(begin + 1, end - begin - 1), {}};
  rest.remove_prefix(end + 3);
  if (rest.starts_with('\'')) {
    const size_t close = rest.find('\'', 1);
    if (close == std::string_view::npos) return std::nullopt;
    field.word = rest.substr(1, close - 1);
    rest.remove_prefix(close + 1);
    return field;
  }
  rest = WithoutType(rest);
  field.word = rest.substr(0, rest.find_first_of(",})"));
  rest.remove_prefix(field.word.size());
  return field;
}

struct PrintedRow {
  int64_t told = -1;  ///< a step that the line itself has
  std::string epoch_text;
  double epoch_value = 0;
  bool trains = false;  ///< has a loss of training
  /// Each bar showed this number first after the line. The bar's total is the
  /// key.
  std::map<int64_t, int64_t> bars;
};

class HuggingFaceReader : public LineReader {
 public:
  bool Read(std::string_view line) override {
    constexpr size_t kLongest = 20'000;
    if (line.size() > kLongest) return false;
    if (ReadOpenDict(line, kLongest)) return true;
    const size_t begin = line.find("{'");
    if (begin == std::string_view::npos || !Trimmed(line).ends_with('}')) {
      ReadBar(line);
      if (const auto total = NumberAfter(line, "Total optimization steps = ")) {
        total_ = static_cast<int64_t>(std::clamp(total->value, 0.0, 1e9));
      }
      return false;
    }
    ReadBar(line.substr(0, begin));
    return ReadRow(line.substr(begin), begin > 0);
  }

  void Finish() override;

 private:
  /// Collects the lines of a dictionary that is printed one field a line, as
  /// EasyLM does. Returns whether this line ends one that is a row.
  bool ReadOpenDict(std::string_view line, size_t longest) {
    const bool begins = line.starts_with("{'");
    const bool ends = Trimmed(line).ends_with('}');
    if (begins) dict_.clear();
    if (begins ? ends : dict_.empty() || !line.starts_with(" '")) {
      dict_.clear();
      return false;
    }
    dict_ += line;
    if (dict_.size() > longest) dict_.clear();
    return ends && ReadRow(std::exchange(dict_, {}), false);
  }

  bool ReadRow(std::string_view dict, bool prefixed);
  void ReadBar(std::string_view line);
  bool IsCopy(const PrintedRow& row, double loss, bool prefixed);
  std::vector<int64_t> ToldSteps() const;
  std::vector<int64_t> BarSteps() const;
  std::vector<int64_t> EpochSteps() const;
  std::vector<int64_t> CountLines();
  bool AreRegular(const std::vector<int64_t>& steps, int64_t total) const;
  bool FitsEpochs(const std::vector<int64_t>& steps, double slope) const;

  std::vector<PrintedRow> rows_;
  std::map<int64_t, int64_t> bars_;  ///< what each bar showed last
  int64_t total_ = 0;                ///< steps, as a line says
  double end_epoch_ = 0;             ///< of the last row; 0: not seen
  std::string dict_;                 ///< not yet closed
  double last_loss_ = 0;
  bool last_prefixed_ = false;
  int64_t filtered_ = 0;
};

/// A logger and a progress bar may print the same row, one rounded.
bool HuggingFaceReader::IsCopy(const PrintedRow& row, double loss,
                               bool prefixed) {
  constexpr double kRounded = 5.1e-5;  // half a unit of the fourth decimal
  const bool copy = row.trains && !rows_.empty() && rows_.back().trains &&
                    prefixed != last_prefixed_ &&
                    std::abs(loss - last_loss_) <= kRounded &&
                    std::abs(row.epoch_value - rows_.back().epoch_value) < 0.01;
  last_loss_ = loss;
  last_prefixed_ = prefixed;
  return copy;
}

bool HuggingFaceReader::ReadRow(std::string_view dict, bool prefixed) {
  std::vector<DictField> fields;
  PrintedRow row;
  bool ends = false;
  bool known = false;
  double loss = 0;
  std::optional<double> norm;
  while (const auto field = TakeField(dict)) {
    const auto number = ParsePlainNumber(field->word);
    if (field->name == "epoch" && number) {
      row.epoch_text = field->word;
      row.epoch_value = *number;
      known = true;
    }
    if (field->name == "step" || field->name == "global_step" ||
        field->name == "current_steps" ||
        field->name == "global_step/max_steps") {
      const size_t slash = field->word.find('/');
      row.told = ParseWhole(field->word.substr(0, slash)).value_or(-1);
      known |= row.told >= 0;
      continue;
    }
    row.trains |= FindName(field->name).quantity == Quantity::kLoss;
    if (field->name == "loss") {
      loss = number.value_or(std::nan(""));
    }
    if (field->name == "grad_norm") norm = number;
    ends |= field->name == "train_runtime";
    if (number || field->name == "loss") fields.push_back(*field);
  }
  const bool evaluates = std::ranges::any_of(fields, [](const DictField& one) {
    return one.name.starts_with("eval_");
  });
  if (!known || (!row.trains && !evaluates && !ends)) return false;
  // The last row has means over the whole run.
  if (ends) end_epoch_ = row.epoch_value;
  if (ends || IsCopy(row, loss, prefixed)) return true;
  const auto at = std::ssize(rows_);
  rows_.push_back(std::move(row));
  for (const DictField& field : fields) {
    const bool filtered = field.name == "loss" && IsFilteredLoss(loss, norm);
    filtered_ += filtered ? 1 : 0;
    const auto number = filtered ? Written{std::nan(""), field.word}
                                 : LeadingNumber(field.word);
    run().Of(field.name).AddWritten(at, number, field.word);
  }
  return true;
}

/// Reads "| 10/1000 [00:05<08:15, 2.0it/s]".
void HuggingFaceReader::ReadBar(std::string_view line) {
  constexpr size_t kMostBars = 16;
  const size_t edge = line.rfind("| ");
  if (edge == std::string_view::npos) return;
  const std::string_view rest = line.substr(edge + 2);
  const size_t open = rest.find(" [");
  const size_t slash = rest.find('/');
  if (open == std::string_view::npos || slash > open) return;
  const auto done = ParseWhole(rest.substr(0, slash));
  const auto total = ParseWhole(rest.substr(slash + 1, open - slash - 1));
  if (!done || !total) return;
  if (bars_.size() == kMostBars && !bars_.contains(*total)) return;
  bars_[*total] = *done;
  if (!rows_.empty()) rows_.back().bars.emplace(*total, *done);
}

std::vector<int64_t> HuggingFaceReader::ToldSteps() const {
  std::vector<int64_t> steps;
  for (const PrintedRow& row : rows_) {
    if (row.told < 0) return {};
    steps.push_back(row.told);
  }
  return steps;
}

/// Returns whether rows of training are printed at each multiple of one number,
/// but for the first and the last step of all.
bool HuggingFaceReader::AreRegular(const std::vector<int64_t>& steps,
                                   int64_t total) const {
  std::vector<int64_t> printed;
  for (size_t i = 0; i < rows_.size(); ++i) {
    if (rows_[i].trains) printed.push_back(steps[i]);
  }
  const int64_t stride = SpacingOf(printed).stride;
  return std::ranges::all_of(printed, [stride, total](int64_t step) {
    return step % stride == 0 || step == 1 || step == total;
  });
}

/// Returns whether the epochs are proportional to the steps, and rows of
/// training in a row have steps of their own.
bool HuggingFaceReader::FitsEpochs(const std::vector<int64_t>& steps,
                                   double slope) const {
  int64_t last = -1;
  for (size_t i = 0; i < rows_.size(); ++i) {
    if (!rows_[i].trains) continue;
    if (steps[i] == std::exchange(last, steps[i])) return false;
  }
  for (size_t i = 0; i < rows_.size(); ++i) {
    Digits digits;
    digits.Include(rows_[i].epoch_text);
    // The rounding of the epoch that gives the slope counts as much again.
    const double rounding = digits.scientific
                                ? digits.HalfUnit(rows_[i].epoch_value)
                                : 0.5 * std::pow(10.0, -digits.decimals);
    const double due = slope * static_cast<double>(steps[i]);
    const double batch = slope;  // an epoch's last batches may be left out
    if (std::abs(due - rows_[i].epoch_value) > 2 * rounding + batch) {
      return false;
    }
  }
  return true;
}

/// Returns the steps by the bar of training; empty if no bar fits all rows.
std::vector<int64_t> HuggingFaceReader::BarSteps() const {
  for (const auto& [total, last] : bars_) {
    std::vector<int64_t> steps;
    for (const PrintedRow& row : rows_) {
      const auto shown = row.bars.find(total);
      if (shown == row.bars.end()) break;
      steps.push_back(shown->second);
    }
    if (steps.size() != rows_.size() || steps.back() <= 0) continue;
    const double slope =
        rows_.back().epoch_value / static_cast<double>(steps.back());
    if (AreRegular(steps, total) && FitsEpochs(steps, slope)) return steps;
  }
  return {};
}

/// Returns multiples of the one interval that fits the number of all steps and
/// the epochs of a run that ended; else nothing.
std::vector<int64_t> HuggingFaceReader::EpochSteps() const {
  const auto count = std::ranges::count(rows_, true, &PrintedRow::trains);
  if (total_ <= 0 || count == 0 || !(end_epoch_ > 0)) return {};
  const double slope = end_epoch_ / static_cast<double>(total_);
  std::vector<int64_t> found;
  for (int64_t every = total_ / (count + 1) + 1; every <= total_ / count;
       ++every) {
    std::vector<int64_t> steps;
    int64_t step = 0;
    for (const PrintedRow& row : rows_) {
      if (row.trains) step += every;
      steps.push_back(step);
    }
    if (!FitsEpochs(steps, slope)) continue;
    if (!found.empty()) return {};
    found = std::move(steps);
  }
  return found;
}

/// Counts rows of training. An evaluation has seen those before it.
std::vector<int64_t> HuggingFaceReader::CountLines() {
  std::vector<int64_t> steps;
  int64_t line = 0;
  double epoch = 0;
  for (const PrintedRow& row : rows_) {
    if (row.trains) ++line;
    steps.push_back(line);
    // The epoch may be rounded.
    if (row.epoch_value < epoch - 0.01) {
      ThrowError(ErrorKind::kFormat,
                 "the epoch falls from {} to {}, so the lines are of several "
                 "starts, and neither they nor a progress bar tell their "
                 "steps. Give trainer_state.json of the last checkpoint.",
                 epoch, row.epoch_value);
    }
    epoch = row.epoch_value;
  }
  run().step_unit = "log line";
  run().notes.emplace_back(
      "The lines have no step, and no progress bar tells it, so they are "
      "counted: they are updates only if the trainer prints each. "
      "trainer_state.json has the steps.");
  return steps;
}

void HuggingFaceReader::Finish() {
  if (rows_.empty()) return;
  std::vector<int64_t> steps = ToldSteps();
  if (steps.empty()) {
    steps = BarSteps();
    if (!steps.empty()) {
      for (const auto& [total, last] : bars_) {
        if (last == steps.back() && total >= last) run().steps_planned = total;
      }
    }
  }
  if (steps.empty()) steps = EpochSteps();
  if (steps.empty()) steps = CountLines();
  SetSteps(steps, run());
  if (const Series* loss = run().Find("loss");
      loss != nullptr && SpacingOf(loss->step).stride > 1) {
    run().Of("loss").averaging = Averaging::kIntervalMean;
  }
  AddFilterNotes(filtered_, run());
}

}  // namespace

extern const Format kFormat_hugging_face_stdout = {
    .name = "hugging_face_stdout", .lines = &MakeReader<HuggingFaceReader>};

}  // namespace isoloss::foreign
