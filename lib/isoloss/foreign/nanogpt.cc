// nanoGPT and its relatives.
//   karpathy/nanoGPT, train.py:     iter 10: loss 3.1234, time 12.34ms, mfu ..
//                                   step 250: train loss 3.1, val loss 3.2
//   karpathy/llm.c, llmc/logger.h:  s:10 trl:3.1234 lr:0.000600 norm:1.23
//                                   s:10 tel:3.2345
//   KellerJordan/modded-nanogpt:    step:125/1480 val_loss:3.2786 ...
// All count from 0: the loss of iteration N is that of step N + 1, and an
// evaluation at N has seen N updates.
#include <memory>

#include "isoloss/foreign/line_format.h"
#include "isoloss/foreign/text.h"

namespace isoloss::foreign {
namespace {

/// "N<mark>" at the front of `rest`, which then begins behind the mark.
std::optional<int64_t> TakeStep(std::string_view& rest, char mark) {
  const size_t end = rest.find(mark);
  if (end == std::string_view::npos) return std::nullopt;
  const auto step = ParseWhole(rest.substr(0, end));
  if (!step || *step < 0) return std::nullopt;
  rest.remove_prefix(end + 1);
  return step;
}

class Reader : public LineReader {
 public:
  Reader() { run().step_base = 0; }

  bool Read(std::string_view line) override {
    line = Trimmed(line);
    if (auto rest = After(line, "iter ")) return ReadIteration(*rest);
    if (auto rest = After(line, "step ")) return ReadEvaluation(*rest);
    if (line.starts_with("s:")) return ReadLlmC(line.substr(2));
    if (line.starts_with("step:")) return ReadModded(line.substr(5));
    return false;
  }

 private:
  bool Keep(std::string_view name, int64_t step, std::string_view line,
            std::string_view key) {
    const auto number = NumberAfter(line, key);
    if (!number) return false;
    run().Of(name).Add(step, number->value, number->text);
    return true;
  }

  bool ReadIteration(std::string_view rest) {
    const auto at = TakeStep(rest, ':');
    if (!at || !Keep("loss", *at + 1, rest, "loss ")) return false;
    Keep("iteration ms", *at + 1, rest, "time ");
    return true;
  }

  bool ReadEvaluation(std::string_view rest) {
    const auto at = TakeStep(rest, ':');
    if (!at || !Keep("val loss", *at, rest, "val loss ")) return false;
    Keep("eval of train loss", *at, rest, "train loss ");
    return true;
  }

  bool ReadLlmC(std::string_view rest) {
    const auto at = TakeStep(rest, ' ');
    if (!at) return false;
    if (Keep("val loss", *at, rest, "tel:")) return true;
    if (!Keep("loss", *at + 1, rest, "trl:")) {
      return Keep("hellaswag accuracy", *at, rest, "eval:");
    }
    Keep("lr", *at + 1, rest, "lr:");
    Keep("norm", *at + 1, rest, "norm:");
    return true;
  }

  bool ReadModded(std::string_view rest) {
    const auto at = TakeStep(rest, '/');
    if (!at) return false;
    const bool evaluated = Keep("val loss", *at, rest, "val_loss:");
    return Keep("loss", *at + 1, rest, "train_loss:") || evaluated;
  }
};

}  // namespace

extern const LineFormat kLineFormat_nanogpt = {
    "nanogpt", "text as of nanoGPT, llm.c or modded-nanogpt",
    [] { return std::unique_ptr<LineReader>(std::make_unique<Reader>()); }};

}  // namespace isoloss::foreign
