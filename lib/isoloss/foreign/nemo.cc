// Reads what NeMo 2 prints: NVIDIA/NeMo, progress_printer.py. The iteration is
// one of the epoch, and counts from 0 or 1, as the version does. `global_step`
// counts the updates that were made before.
//   Training epoch 0, iteration 5/99 | lr: 1e-05 | global_step: 5 | ...
#include <algorithm>
#include <string>

#include "isoloss/foreign/format.h"
#include "isoloss/foreign/text.h"

namespace isoloss::foreign {
namespace {

class NemoReader : public LineReader {
 public:
  bool Read(std::string_view line) override {
    const auto epoch = After(line, "Training epoch ");
    if (!epoch) return false;
    const size_t bar = epoch->find(" | ");
    const std::string_view front = epoch->substr(0, bar);
    const auto iteration = NumberAfter(front, "iteration ");
    const size_t slash = front.find('/');
    if (bar == std::string_view::npos || !iteration ||
        slash == std::string_view::npos) {
      return false;
    }
    const std::string_view fields = epoch->substr(bar);
    const auto before = NumberAfter(fields, "global_step: ");
    const auto at = ParseWhole(before ? before->text : iteration->text);
    if (!at || *at < 0) return false;
    if (before) {
      run().step_base = 0;
      const int64_t offset = *at - ParseWhole(iteration->text).value_or(*at);
      const auto last = LeadingNumber(front.substr(slash + 1));
      // More epochs may follow, so the plan goes at least as far.
      run().steps_planned = std::max(run().steps_planned,
                                     (last ? CountOf(*last) : 0) + 1 + offset);
    }
    ReadFields(fields, before ? *at + 1 : *at);
    return true;
  }

  void Finish() override {
    for (Series& series : run().series) {
      if (SpacingOf(series.step).stride > 1) {
        series.averaging = Averaging::kIntervalMean;
      }
    }
  }

 private:
  void ReadFields(std::string_view rest, int64_t step) {
    while (!rest.empty()) {
      const size_t end = rest.find(" | ");
      const std::string_view field = Trimmed(rest.substr(0, end));
      rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 3);
      const size_t colon = field.find(": ");
      if (colon == std::string_view::npos) continue;
      const std::string_view word = Trimmed(field.substr(colon + 1));
      const std::string_view name = field.substr(0, colon);
      const auto number = LeadingNumber(word);
      if (name == "global_step") continue;
      if (number || FindName(name).quantity == Quantity::kLoss) {
        run().Of(name).AddWritten(step, number, word);
      }
    }
  }
};

}  // namespace

extern const Format kFormat_nemo = {.name = "nemo",
                                    .lines = &MakeReader<NemoReader>};

}  // namespace isoloss::foreign
