// Reads progress bars with numbers behind them, as tqdm draws them for
// Lightning, NeMo 1, diffusers and others, and those of Levanter. A bar is
// drawn again and again; of each step its last state counts. A bar that has a
// loss at 0 gets its numbers before it counts a batch on.
//   Epoch 0:  1%|#  | 10/500 [00:12<09:58, reduced_train_loss=9.1,
//   global_step=9.000]
//   Progress on:train 19.0it/70.0it rate:1.2s/it ... postfix:loss=9.12
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "isoloss/foreign/format.h"
#include "isoloss/foreign/text.h"

namespace isoloss::foreign {
namespace {

struct Bar {
  std::string_view title;  ///< "Epoch 0:  1%"
  std::optional<int64_t> epoch;
  int64_t done = 0;
  int64_t total = 0;
  std::string_view numbers;  ///< "loss=3.1, v_num=0"
};

/// Returns the number of "Epoch 3", "epoch: 3" or "Epoch [3/90]".
std::optional<int64_t> EpochIn(std::string_view title) {
  const size_t at = title.find("poch");
  if (at == std::string_view::npos) return std::nullopt;
  title.remove_prefix(at + 4);
  title.remove_prefix(std::min(title.size(), title.find_first_not_of(" :[")));
  const auto number = LeadingNumber(title);
  // The percentage of the bar stands behind a title without a number.
  const size_t end = number ? number->text.size() : 0;
  if (!number || (end < title.size() && title[end] == '%')) return std::nullopt;
  return CountOf(*number);
}

/// Reads "10/500 [00:12<09:58, loss=9.1]" behind the bar itself.
std::optional<Bar> BarIn(std::string_view line) {
  const size_t edge = line.rfind("| ");
  if (edge == std::string_view::npos) return std::nullopt;
  const std::string_view title = line.substr(0, line.find('|'));
  std::string_view rest = line.substr(edge + 2);
  const size_t slash = rest.find('/');
  const size_t open = rest.find(" [");
  const size_t clock = rest.find(", ");
  if (slash == std::string_view::npos || open == std::string_view::npos ||
      clock == std::string_view::npos || clock < open || open < slash ||
      NamesEvaluation(title)) {
    return std::nullopt;
  }
  const auto done = ParseWhole(rest.substr(0, slash));
  const auto total = ParseWhole(rest.substr(slash + 1, open - slash - 1));
  constexpr int64_t kMost = int64_t{1} << 32;
  if (!done || !total || *done < 0 || *done > kMost || *total < 0 ||
      *total > kMost) {
    return std::nullopt;
  }
  return Bar{title, EpochIn(title), *done, *total, rest.substr(clock + 1)};
}

/// Returns the letters of a bar's title, which tell it from other bars.
std::string TitleLettersOf(std::string_view title) {
  std::string letters;
  for (const Word& word : WordsOf(title)) letters += word.letters + ' ';
  return letters;
}

class ProgressBarReader : public LineReader {
 public:
  bool Read(std::string_view line) override {
    if (const auto rest = After(line, "Progress on:train ")) {
      return ReadLevanter(*rest);
    }
    const auto bar = BarIn(line);
    if (!bar || !TakeNumbers(bar->numbers)) return false;
    // A bar of epochs may show a loss, too.
    if (!title_) title_ = TitleLettersOf(bar->title);
    if (*title_ != TitleLettersOf(bar->title)) return false;
    if (!bar->epoch && !IsTold()) {
      if (first_total_ == 0) first_total_ = bar->total;
      if (first_total_ != bar->total) {
        ++others_;
        return true;
      }
    }
    if (!lags_) lags_ = bar->done == 0 && !IsTold();
    const auto step = StepOf(*bar);
    if (!step) {
      ++rounded_;
      return true;
    }
    // At the end of such a bar stands the last batch's loss once more.
    if (*lags_ && bar->done == bar->total) return true;
    // More epochs may follow, so the plan goes at least as far.
    run().steps_planned = std::max(
        run().steps_planned, *step - bar->done + bar->total - (*lags_ ? 1 : 0));
    Keep(*step);
    return true;
  }

  void Finish() override {
    Flush();
    if (run().step_base == 1 && several_epochs_) {
      run().notes.emplace_back(
          "The bars count batches within an epoch. Steps are those of all "
          "epochs, and each batch counts as one.");
    }
    if (others_ > 0) {
      run().notes.push_back(fmt::format(
          "Bars without an epoch that do not end at {}, as the first one does, "
          "may be of an evaluation and were left out: {}.",
          first_total_, others_));
    }
    if (rounded_ == 0) return;
    run().notes.push_back(fmt::format(
        "Bars whose step is rounded or too large were left out: {}.",
        rounded_));
  }

 private:
  struct Number {
    std::string name;
    std::string text;
  };

  /// Takes "loss=3.1, v_num=0". Returns whether a loss is among them.
  bool TakeNumbers(std::string_view rest) {
    numbers_.clear();
    bool has_loss = false;
    while (!rest.empty()) {
      const size_t end = rest.find(", ");
      std::string_view field = Trimmed(rest.substr(0, end));
      rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 2);
      if (field.ends_with(']')) field.remove_suffix(1);
      const size_t sign = field.find('=');
      if (sign == std::string_view::npos) continue;
      const std::string_view name = field.substr(0, sign);
      const std::string_view text = field.substr(sign + 1);
      is_lightning_ |= name == "v_num";
      if (name == "v_num" || text.empty()) continue;
      const Quantity quantity = FindName(name).quantity;
      has_loss |= quantity == Quantity::kLoss;
      numbers_.push_back({std::string(name), std::string(text)});
    }
    return has_loss;
  }

  /// Returns whether the numbers tell the step.
  bool IsTold() const {
    return std::ranges::count(numbers_, "global_step", &Number::name) != 0;
  }

  /// Returns the epoch, counted from 0. Lightning counts so, and has a `v_num`;
  /// other bars that begin with epoch 1 count from 1. A bar without an epoch is
  /// the next one's where it begins again after its end.
  int64_t EpochOf(const Bar& bar) {
    if (!bar.epoch) {
      if (done_ >= total_ - 1 && bar.done < done_) return epoch_ + 1;
      return epoch_;
    }
    if (!epoch_base_) epoch_base_ = *bar.epoch == 1 && !is_lightning_ ? 1 : 0;
    return std::max<int64_t>(*bar.epoch - *epoch_base_, 0);
  }

  /// `global_step` counts the updates before. Beyond four digits it may be
  /// rounded (1e+4), and then the bar's own number tells the step.
  std::optional<int64_t> StepOf(const Bar& bar) {
    const auto told = std::ranges::find(numbers_, "global_step", &Number::name);
    const int64_t epoch = EpochOf(bar);
    done_ = bar.done;
    if (told == numbers_.end()) {
      several_epochs_ |= epoch > 0;
      // The last epoch may be shorter than those before it.
      if (epoch_ + 1 == epoch && total_ > 0) {
        before_ += total_;
      } else if (epoch_ != epoch || total_ == 0) {
        before_ = epoch * bar.total;
      }
      epoch_ = epoch;
      total_ = bar.total;
      const int64_t step = before_ + bar.done + (*lags_ ? 1 : 0);
      return step <= kMostWhole ? std::optional(step) : std::nullopt;
    }
    run().step_base = 0;
    const auto before = ParsePlainNumber(told->text);
    const bool rounded = told->text.find('e') != std::string::npos;
    numbers_.erase(told);
    if (epoch_ != epoch) offset_.reset();
    epoch_ = epoch;
    if (rounded || !before || !(*before >= 0 && *before < 0x1p53)) {
      return offset_ ? std::optional(bar.done + *offset_) : std::nullopt;
    }
    const int64_t step = static_cast<int64_t>(*before) + 1;
    // A bar is drawn before its numbers are, so some lag behind by one.
    offset_ = std::max(offset_.value_or(step - bar.done), step - bar.done);
    return step;
  }

  /// Reads "19.0it/70.0it rate:... postfix:loss=9.12". The number of steps has
  /// three digits, so it is rounded from a thousand on: "1.23kit".
  bool ReadLevanter(std::string_view rest) {
    const auto done = LeadingNumber(rest);
    const auto numbers = After(rest, "postfix:");
    if (!done || !numbers || !TakeNumbers(*numbers)) return false;
    const std::string_view unit = rest.substr(static_cast<size_t>(
        done->text.data() + done->text.size() - rest.data()));
    if (!unit.starts_with("it/")) {
      ++rounded_;
    } else if (done->value >= 1 && done->value < 1000) {
      Keep(static_cast<int64_t>(done->value));
    }
    return true;
  }

  void Keep(int64_t step) {
    if (step != kept_step_) Flush();
    kept_step_ = step;
    kept_ = numbers_;
  }

  void Flush() {
    for (const Number& one : kept_) {
      const auto number = LeadingNumber(one.text);
      run().Of(one.name).AddWritten(kept_step_, number, one.text);
    }
    kept_.clear();
  }

  std::vector<Number> numbers_;
  std::vector<Number> kept_;
  int64_t kept_step_ = -1;
  std::optional<std::string> title_;   ///< of the first bar with a loss
  std::optional<bool> lags_;           ///< the first bar has a loss at 0
  std::optional<int64_t> epoch_base_;  ///< what the bars call the first epoch
  bool is_lightning_ = false;
  std::optional<int64_t> offset_;
  int64_t epoch_ = 0;
  int64_t done_ = 0;
  int64_t first_total_ = 0;  ///< of bars without an epoch
  int64_t others_ = 0;       ///< bars without an epoch that end elsewhere
  int64_t total_ = 0;        ///< of the epoch
  int64_t before_ = 0;       ///< batches of the epochs before
  int64_t rounded_ = 0;
  bool several_epochs_ = false;
};

}  // namespace

extern const Format kFormat_progress_bars = {
    .name = "progress_bars", .lines = &MakeReader<ProgressBarReader>};

}  // namespace isoloss::foreign
