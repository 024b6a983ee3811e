// DeepSpeed's stdout: deepspeedai/DeepSpeed, runtime/pipe/engine.py and
// runtime/engine.py.
//   steps: 10 loss: 5.1234 iter time (s): 0.512 samples/sec: 31.2
//   ... [Rank 0] step=10, skipped=4, lr=[0.0001], mom=[(0.9, 0.95)]
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "isoloss/foreign/line_format.h"
#include "isoloss/foreign/text.h"

namespace isoloss::foreign {
namespace {

class Reader : public LineReader {
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
  bool ReadPipeline(std::string_view line) {
    const auto step = NumberAfter(line, "steps:");
    const auto at = step ? ParseWhole(step->text) : std::nullopt;
    const auto loss = NumberAfter(line, "loss:");
    if (!at || *at < 1 || !loss) return false;
    run().Of("loss").Add(*at, loss->value, loss->text);
    if (const auto time = NumberAfter(line, "iter time (s):")) {
      run().Of("step_seconds").Add(*at, time->value, time->text);
    }
    if (const auto rate = NumberAfter(line, "samples/sec:")) {
      run().Of("samples/sec").Add(*at, rate->value, rate->text);
    }
    return true;
  }

  bool ReadEngine(std::string_view line) {
    const auto step = NumberAfter(line, "step=");
    if (!step) return false;
    std::string_view text = step->text;
    if (text.ends_with(',')) text.remove_suffix(1);
    const auto at = ParseWhole(text);
    const auto lr = NumberAfter(line, "lr=[");
    if (!at || *at < 1 || !lr) return false;
    run().Of("lr").Add(*at, lr->value, lr->text);
    if (const auto skipped = NumberAfter(line, "skipped=")) {
      skipped_ = std::max(skipped_, CountOf(*skipped));
    }
    return true;
  }

  int64_t skipped_ = 0;  ///< since the start of the run
};

}  // namespace

extern const LineFormat kLineFormat_deepspeed = {
    "deepspeed", "DeepSpeed's stdout",
    [] { return std::unique_ptr<LineReader>(std::make_unique<Reader>()); }};

}  // namespace isoloss::foreign
