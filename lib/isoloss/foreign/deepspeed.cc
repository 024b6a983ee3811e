// Reads DeepSpeed's stdout: deepspeedai/DeepSpeed, runtime/pipe/engine.py and
// runtime/engine.py.
//   steps: 10 loss: 5.1234 iter time (s): 0.512 samples/sec: 31.2
//   steps: 10 loss: 5.5 lm loss: 5.4 moe loss: 0.1 iter time (s): 0.512 ...
//   ... [Rank 0] step=10, skipped=4, lr=[0.0001], mom=[(0.9, 0.95)]
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "isoloss/foreign/format.h"
#include "isoloss/foreign/text.h"

namespace isoloss::foreign {
namespace {

class DeepSpeedReader : public LineReader {
 public:
  bool Read(std::string_view line) override {
    return ReadPipeline(line) || ReadEngine(line);
  }

  void Finish() override {
    if (skipped_ == 0) return;
    run().notes.push_back(fmt::format(
        "{} steps were skipped (the loss scale fell). They count as steps.",
        skipped_));
  }

 private:
  /// Reads a line that may have more losses between the loss and the time.
  bool ReadPipeline(std::string_view line) {
    const auto after = After(line, "steps:");
    const auto step = after ? LeadingNumber(*after) : std::nullopt;
    const auto at = step ? ParseWhole(step->text) : std::nullopt;
    if (!at || *at < 0) return false;
    std::string_view rest = Behind(*after, *step);
    if (!Trimmed(rest).starts_with("loss:")) return false;
    while (true) {
      const size_t colon = rest.find(':');
      if (colon == std::string_view::npos) return true;
      const std::string_view name = Trimmed(rest.substr(0, colon));
      rest.remove_prefix(colon + 1);
      const auto number = LeadingNumber(rest);
      if (name.empty() || (!number && name != "loss")) return true;
      std::string_view after = rest;
      run()
          .Of(name == "iter time (s)" ? "step_seconds" : name)
          .AddWritten(*at, number, TakeWord(after));
      rest = number ? Behind(rest, *number) : after;
    }
  }

  static std::string_view Behind(std::string_view text, const Written& number) {
    return text.substr(static_cast<size_t>(number.text.data() +
                                           number.text.size() - text.data()));
  }

  bool ReadEngine(std::string_view line) {
    const auto step = NumberAfter(line, "step=");
    if (!step) return false;
    std::string_view text = step->text;
    if (text.ends_with(',')) text.remove_suffix(1);
    const auto at = ParseWhole(text);
    const auto lr = NumberAfter(line, "lr=[");
    if (!at || *at < 0 || !lr) return false;
    run().Of("lr").Add(*at, lr->value, lr->text);
    if (const auto skipped = NumberAfter(line, "skipped=")) {
      const int64_t count = CountOf(*skipped);
      skipped_ = std::max(skipped_, count);
      run().Of("skipped").Add(*at, static_cast<double>(count));
    }
    return true;
  }

  int64_t skipped_ = 0;  ///< since the start of the run
};

}  // namespace

extern const Format kFormat_deepspeed = {.name = "deepspeed",
                                         .lines = &MakeReader<DeepSpeedReader>};

}  // namespace isoloss::foreign
