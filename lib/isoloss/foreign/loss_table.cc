// Reads torchtitan's golden losses, and other plain tables: a step and a loss
// on each line, or a step, a loss and a gradient norm. pytorch/torchtitan,
// scripts/loss_compare.py. Lines that begin with # are comments.
#include <memory>

#include "isoloss/foreign/format.h"
#include "isoloss/foreign/text.h"

namespace isoloss::foreign {
namespace {

class LossTableReader : public LineReader {
 public:
  bool Read(std::string_view line) override {
    line = Trimmed(line);
    if (line.empty() || line.starts_with('#')) return false;
    ++lines_;
    if (!ReadRow(line)) return false;
    ++rows_;
    return true;
  }

  void Finish() override {
    // Any text may have lines of two numbers, so most lines must be rows.
    if (rows_ < lines_ - rows_) run().series.clear();
    // In a table that counts from 0, the first loss is from before any update.
    for (const Series& series : run().series) {
      if (series.step.empty() || series.step.front() != 0) continue;
      run().step_base = 0;
    }
    if (run().step_base != 0) return;
    for (Series& series : run().series) {
      for (int64_t& step : series.step) ++step;
    }
  }

 private:
  bool ReadRow(std::string_view line) {
    const auto step = ParseWhole(TakeWord(line));
    if (!step || *step < 0) return false;
    const std::string_view loss = TakeWord(line);
    const std::string_view norm = TakeWord(line);
    if (!Trimmed(line).empty()) return false;
    const auto loss_value = ParseNumber(loss);
    const auto norm_value = ParseNumber(norm);
    if (!loss_value || (!norm.empty() && !norm_value)) return false;
    run().Of("loss").Add(*step, *loss_value, loss);
    if (norm_value) run().Of("grad_norm").Add(*step, *norm_value, norm);
    return true;
  }

  int64_t lines_ = 0;  ///< neither empty nor comments
  int64_t rows_ = 0;
};

}  // namespace

extern const Format kFormat_loss_table = {
    .name = "loss_table", .lines = &MakeReader<LossTableReader>};

}  // namespace isoloss::foreign
