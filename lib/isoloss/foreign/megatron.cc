// Reads Megatron-LM's stdout: NVIDIA/Megatron-LM,
// megatron/training/training.py, training_log. Fields stand between bars and
// are known by their names, since versions and flags change the fields and
// their order.
//   [time] iteration       10/ 100 | ... | lm loss: 1.0E+01 | ... |
//    validation loss at iteration 50 | lm loss value: 8.8E+00 | ...
#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>

#include "isoloss/foreign/format.h"
#include "isoloss/foreign/text.h"

namespace isoloss::foreign {
namespace {

/// GPT-NeoX writes lm_loss, and MindSpeed writes loss.
bool IsLoss(std::string_view name) {
  return name == "lm loss" || name == "lm-loss" || name == "lm_loss" ||
         name == "loss";
}

/// A line of Megatron-LM ends with this field; some forks have more.
constexpr std::string_view kLastField = "number of nan iterations";

class MegatronReader : public LineReader {
 public:
  bool Read(std::string_view line) override {
    const bool wraps = std::exchange(wraps_, false);
    // Lines with `global_step` are of trainers whose iteration is of an epoch.
    if (line.find('|') == std::string_view::npos ||
        line.find("global_step") != std::string_view::npos) {
      return false;
    }
    if (const auto rest = After(line, "loss at iteration")) {
      return ReadValidation(*rest);
    }
    const auto rest = After(line, "iteration");
    const auto at = rest ? LeadingNumber(*rest) : std::nullopt;
    const auto step = at ? ParseWhole(at->text) : std::nullopt;
    if (!step) return wraps && ReadFields(line) > 0;
    const std::string_view behind = Trimmed(rest->substr(
        static_cast<size_t>(at->text.data() + at->text.size() - rest->data())));
    if (*step < 0 || !behind.starts_with('/')) return false;
    EndIteration();
    iteration_ = *step;
    if (const auto plan = LeadingNumber(behind.substr(1))) {
      run().steps_planned = ParseWhole(plan->text).value_or(0);
    }
    interval_ = last_ >= 0 && iteration_ > last_ ? iteration_ - last_ : 1;
    ReadFields(behind);
    // A fork wraps the fields over two lines; the second line follows at once.
    wraps_ = behind.find(kLastField) == std::string_view::npos;
    return true;
  }

  bool has_loss() const override {
    return !loss_text_.empty() || LineReader::has_loss();
  }

  void Finish() override {
    EndIteration();
    const Series* loss = run().Main(Quantity::kLoss);
    if (loss == nullptr) return;
    const int64_t stride = SpacingOf(loss->step).stride;
    for (Series& series : run().series) {
      if (series.quantity == Quantity::kLoss && stride > 1) {
        series.averaging = Averaging::kIntervalMean;
      }
    }
    if (lost_ > 0) {
      run().notes.push_back(fmt::format(
          "{} lines, the first at iteration {}, have no loss although no "
          "iteration was skipped. Megatron-LM leaves the field out when the "
          "loss is NaN or negative, so these count as NaN.",
          lost_, first_lost_));
    }
    if (skipped_ > 0) {
      run().notes.push_back(
          fmt::format("{} iterations were skipped (the loss scale fell). A "
                      "mean does not hold them.",
                      skipped_));
    }
    if (stride > 1) {
      run().notes.push_back(fmt::format(
          "The loss is the mean over {} iterations. Some versions count "
          "iteration 1 in the second line again.",
          stride));
    }
  }

 private:
  bool ReadValidation(std::string_view rest) {
    const auto at = LeadingNumber(rest);
    const auto step = at ? ParseWhole(at->text) : std::nullopt;
    if (!step) return false;
    const auto loss = NumberAfter(rest, "lm loss value:");
    if (!loss) return false;
    // A test set has a line "... at iteration 50 on test set | lm loss value:
    // ...".
    const bool test =
        rest.substr(0, rest.find('|')).find(" test") != std::string_view::npos;
    run()
        .Of(test ? "lm loss test" : "lm loss validation")
        .Add(*step, loss->value, loss->text);
    return true;
  }

  /// Reads the fields of the current iteration. Returns how many there were.
  int ReadFields(std::string_view line) {
    int fields = 0;
    while (!line.empty()) {
      const size_t end = line.find('|');
      const std::string_view field = Trimmed(line.substr(0, end));
      line.remove_prefix(end == std::string_view::npos ? line.size() : end + 1);
      const size_t colon = field.rfind(": ");
      if (colon == std::string_view::npos) continue;
      const std::string_view name = Trimmed(field.substr(0, colon));
      const std::string_view text = Trimmed(field.substr(colon + 1));
      auto number = LeadingNumber(text);
      if (number && IsLoss(name) && HasUnit(*number, text)) number.reset();
      if (!number && !IsLoss(name)) continue;
      ++fields;
      Keep(name, number.value_or(Written{std::nan(""), text}));
      loss_is_number_ = IsLoss(name) ? number.has_value() : loss_is_number_;
    }
    return fields;
  }

  void Keep(std::string_view name, const Written& number) {
    if (name == "number of skipped iterations") {
      skipped_now_ = CountOf(number);
      whole_ = true;
    }
    if (IsLoss(name)) {
      loss_ = number.value;
      loss_text_ = number.text;
      loss_name_ = name;
      return;
    }
    run().Of(name).Add(iteration_, number.value, number.text);
  }

  void EndIteration() {
    if (iteration_ == kNone) return;
    const bool all_skipped = skipped_now_ > 0 && skipped_now_ >= interval_;
    if (!loss_text_.empty() && !(all_skipped && loss_ == 0)) {
      run()
          .Of(loss_name_)
          .AddWritten(iteration_,
                      loss_is_number_
                          ? std::optional(Written{loss_, loss_text_})
                          : std::nullopt,
                      loss_text_);
    } else if (whole_ && !all_skipped) {
      run().Of(loss_name_).Add(iteration_, std::nan(""));
      if (lost_++ == 0) first_lost_ = iteration_;
    }
    skipped_ += skipped_now_;
    last_ = iteration_;
    iteration_ = kNone;
    skipped_now_ = 0;
    whole_ = false;
    loss_text_.clear();
  }

  static constexpr int64_t kNone = -1;

  int64_t iteration_ = kNone;  ///< whose fields are being read
  int64_t last_ = kNone;       ///< the previous one
  int64_t interval_ = 1;
  bool wraps_ = false;  ///< the previous line has not all fields
  int64_t skipped_now_ = 0;
  bool whole_ = false;  ///< a field after the loss was read: no cut line
  double loss_ = 0;
  bool loss_is_number_ = true;
  std::string loss_text_;
  std::string loss_name_ = "lm loss";
  int64_t skipped_ = 0;
  int64_t lost_ = 0;
  int64_t first_lost_ = 0;
};

}  // namespace

extern const Format kFormat_megatron = {.name = "megatron",
                                        .lines = &MakeReader<MegatronReader>};

}  // namespace isoloss::foreign
