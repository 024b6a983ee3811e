// Reads the output of nanoGPT and its relatives.
//   karpathy/nanoGPT, train.py:     iter 10: loss 3.1234, time 12.34ms, mfu ..
//                                   step 250: train loss 3.1, val loss 3.2
//   karpathy/llama2.c, train.py:    10 | loss 3.1234 | lr 3.0e-04 | 12.34ms
//   karpathy/build-nanogpt:         step   10 | loss: 3.1234 | lr 2.5e-04 | ..
//     its log.txt:                  10 train 3.1234
//                                   250 val 3.2345
//   karpathy/llm.c, stdout:         step   11/74 | loss 3.1234 (+nanz)| norm ..
//     its main.log:                 s:10 trl:3.1234 lr:0.000600 norm:1.23
//                                   s:10 tel:3.2345
//   karpathy/nanochat, base_train:  step 00010/21400 (0.05%) | loss: 9.1 | ..
//                                   Step 00250 | Validation bpb: 0.9123
//   KellerJordan/modded-nanogpt:    step:11/1480 train_loss:3.1234 ...
//                                   step:125/1480 val_loss:3.2786 ...
// A number before a slash counts finished updates, so the first loss is that of
// step 1, but for nanochat's, which counts from 0. A number without a slash
// counts from 0: the loss of N is that of step N + 1. An evaluation at N has
// seen N updates in all formats.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>

#include "isoloss/foreign/format.h"
#include "isoloss/foreign/text.h"

namespace isoloss::foreign {
namespace {

/// Takes "N<mark>" from the front of `rest`, which then begins after the mark.
std::optional<int64_t> TakeStep(std::string_view& rest, char mark) {
  const size_t end = rest.find(mark);
  if (end == std::string_view::npos) return std::nullopt;
  const auto step = ParseWhole(rest.substr(0, end));
  if (!step || *step < 0) return std::nullopt;
  rest.remove_prefix(end + 1);
  return step;
}

struct Field {
  std::string_view name;
  std::optional<Written> number;
  std::string_view word;  ///< the one that begins with the number
};

/// Reads "name: 1.5 (+0.1z)", with or without the colon. The name is all words
/// up to the first number.
Field FieldOf(std::string_view text) {
  text = Trimmed(text);
  std::string_view rest = text;
  while (!rest.empty()) {
    std::string_view name =
        Trimmed(text.substr(0, static_cast<size_t>(rest.data() - text.data())));
    const std::string_view word = TakeWord(rest);
    const auto number = LeadingNumber(word);
    if (!number) continue;
    if (name.ends_with(':')) name.remove_suffix(1);
    return {name, number, word};
  }
  return {text, std::nullopt, {}};
}

class NanoGptReader : public LineReader {
 public:
  bool Read(std::string_view line) override {
    line = Trimmed(line);
    if (ReadNanochatEvaluation(line)) return true;
    if (ReadBars(line) || ReadThreeWords(line)) return true;
    if (auto rest = After(line, "iter ")) return ReadIteration(*rest);
    if (auto rest = After(line, "step ")) return ReadEvaluation(*rest);
    if (line.starts_with("s:")) return ReadLlmC(line.substr(2));
    if (line.starts_with("step:")) return ReadModded(line.substr(5));
    return false;
  }

  void Finish() override {
    run().step_base = from_zero_.value_or(false) ? 0 : 1;
  }

 private:
  bool Keep(std::string_view name, int64_t step, std::string_view line,
            std::string_view key) {
    auto rest = After(line, key);
    if (!rest) return false;
    const auto number = LeadingNumber(*rest);
    const std::string_view word = TakeWord(*rest);
    if (!number && (name != "loss" || word.empty())) return false;
    run().Of(name).AddWritten(step, number, word);
    return true;
  }

  void TakePlan(std::string_view total) {
    run().steps_planned =
        std::max(run().steps_planned, ParseWhole(total).value_or(0));
  }

  /// Returns the update whose loss stands beside `at`, which counts from 0
  /// unless the first one is 1.
  int64_t Update(int64_t at) {
    if (!from_zero_) from_zero_ = at != 1;
    return *from_zero_ ? at + 1 : at;
  }

  bool ReadIteration(std::string_view rest) {
    const auto at = TakeStep(rest, ':');
    if (!at || !After(rest, "loss ")) return false;
    const int64_t step = Update(*at);
    if (!Keep("loss", step, rest, "loss ")) return false;
    Keep("iteration ms", step, rest, "time ");
    while (!rest.empty()) {
      const size_t end = std::min(rest.find(','), rest.size());
      const Field field = FieldOf(rest.substr(0, end));
      rest.remove_prefix(std::min(end + 1, rest.size()));
      const Quantity quantity = FindName(field.name).quantity;
      if (field.number && (quantity == Quantity::kLearningRate ||
                           quantity == Quantity::kGradNorm)) {
        run().Of(field.name).Add(step, field.number->value, field.number->text);
      }
    }
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
    if (!After(rest, "trl:")) {
      return Keep("hellaswag accuracy", *at, rest, "eval:");
    }
    const int64_t step = Update(*at);
    if (!Keep("loss", step, rest, "trl:")) return false;
    Keep("lr", step, rest, "lr:");
    Keep("norm", step, rest, "norm:");
    return true;
  }

  bool ReadModded(std::string_view rest) {
    const auto at = TakeStep(rest, '/');
    if (!at) return false;
    const auto plan = LeadingNumber(rest);
    const bool evaluated = Keep("val loss", *at, rest, "val_loss:");
    if (!Keep("loss", *at, rest, "train_loss:") && !evaluated) return false;
    TakePlan(plan ? plan->text : "");
    return true;
  }

  /// Reads "[step|iter] N[/TOTAL] | field | field".
  bool ReadBars(std::string_view line) {
    const size_t bar = line.find('|');
    if (bar == std::string_view::npos) return false;
    std::string_view front = Trimmed(line.substr(0, bar));
    for (const std::string_view word : {"step ", "iter ", "Step "}) {
      if (front.starts_with(word)) front.remove_prefix(word.size());
    }
    // nanochat writes the share of all steps, and means over earlier steps.
    const size_t share = front.ends_with("%)") ? front.find(" (") : front.npos;
    const bool smooths = share != front.npos;
    front = Trimmed(front.substr(0, share));
    const size_t slash = front.find('/');
    const auto at = ParseWhole(front.substr(0, slash));
    if (!at || *at < 0) return false;
    const bool counts_done = slash != std::string_view::npos;
    const std::string_view plan = counts_done ? front.substr(slash + 1) : "";
    if (counts_done && !ParseWhole(plan)) return false;
    std::string_view rest = line.substr(bar + 1);
    if (!HasLossField(rest)) return false;
    TakePlan(plan);
    // nanochat's chat_sft counts from 0 or 1, as the version does.
    const bool from_zero = smooths || line.starts_with("Step ")
                               ? smooths && counts_done
                               : !counts_done;
    const int64_t step = from_zero ? Update(*at) : *at;
    while (!rest.empty()) {
      const size_t end = rest.find('|');
      const Field field = FieldOf(rest.substr(0, end));
      rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
      if (!field.number || field.name.empty() || field.name == "(") continue;
      const bool loss = IsTrainLoss(field.name);
      run()
          .Of(loss ? "loss" : field.name)
          .AddWritten(step, field.number, field.word);
    }
    if (smooths) run().Of("loss").averaging = Averaging::kSmoothed;
    return true;
  }

  /// Reads "Step 00250 | Validation bpb: 0.9123", also of a CORE metric.
  bool ReadNanochatEvaluation(std::string_view line) {
    if (!line.starts_with("Step ")) return false;
    line.remove_prefix(5);
    const auto at = ParseWhole(TakeWord(line));
    if (!at || *at < 0 || TakeWord(line) != "|") return false;
    const Field field = FieldOf(line);
    if (!field.number || !(field.name.starts_with("Validation") ||
                           field.name.starts_with("CORE"))) {
      return false;
    }
    const bool loss = field.name == "Validation loss";
    run()
        .Of(loss ? "val loss" : field.name)
        .AddWritten(*at, field.number, field.word);
    return true;
  }

  static bool HasLossField(std::string_view rest) {
    const size_t end = rest.find('|');
    const Field first = FieldOf(rest.substr(0, end));
    return first.number && (first.name == "loss" || IsTrainLoss(first.name));
  }

  static bool IsTrainLoss(std::string_view name) {
    return name == "train loss" || name == "Training loss";
  }

  /// Reads "N train 3.1", "N val 3.2", "N hella 0.25".
  bool ReadThreeWords(std::string_view line) {
    const auto at = ParseWhole(TakeWord(line));
    if (!at || *at < 0) return false;
    const std::string_view word = TakeWord(line);
    const auto number = ParsePlainNumber(line);
    if (!number) return false;
    const std::string_view text = Trimmed(line);
    if (word == "train") {
      run().Of("loss").Add(Update(*at), *number, text);
    } else if (word == "val") {
      run().Of("val loss").Add(*at, *number, text);
    } else if (word == "hella") {
      run().Of("hellaswag accuracy").Add(*at, *number, text);
    } else {
      return false;
    }
    return true;
  }

  std::optional<bool> from_zero_;
};

}  // namespace

extern const Format kFormat_nanogpt = {.name = "nanogpt",
                                       .lines = &MakeReader<NanoGptReader>};

}  // namespace isoloss::foreign
