// Reads statistics of tensors that Transformer Engine's debug features log:
// NVIDIA/TransformerEngine, transformer_engine/debug/features. There is one
// file for each rank, without a loss.
//   INFO - decoder.1.mlp.fc1_activation_mean   iteration=000002   value=0.0123
#include <memory>
#include <string>

#include "isoloss/foreign/format.h"
#include "isoloss/foreign/text.h"

namespace isoloss::foreign {
namespace {

class TransformerEngineReader : public LineReader {
 public:
  bool Read(std::string_view line) override {
    auto fields = After(line, "INFO - ");
    if (!fields) return false;
    const std::string_view name = TakeWord(*fields);
    std::string_view step = TakeWord(*fields);
    std::string_view value = TakeWord(*fields);
    if (name.empty() || !step.starts_with("iteration=") ||
        !value.starts_with("value=")) {
      return false;
    }
    step.remove_prefix(step.find('=') + 1);
    value.remove_prefix(value.find('=') + 1);
    const auto at = ParseWhole(step);
    const auto number = ParsePlainNumber(value);
    if (!at || *at < 0 || !number) return false;
    run().Of(name).Add(*at, *number, value);
    return true;
  }

  void Finish() override {
    run().notes.emplace_back(
        "The log has statistics of tensors and no loss. Each rank writes a "
        "file; the values are already those of all ranks.");
  }
};

}  // namespace

extern const Format kFormat_transformer_engine = {
    .name = "transformer_engine",
    .lines = &MakeReader<TransformerEngineReader>};

}  // namespace isoloss::foreign
