// Knows what Hugging Face's Trainer prints, a Python dictionary on a line
// without the step, so that the message can say which file to give instead.
//   {'loss': 8.3368, 'grad_norm': nan, 'learning_rate': 5e-05, 'epoch': 0.01}
#include <memory>

#include "isoloss/base/error.h"
#include "isoloss/foreign/format.h"
#include "isoloss/foreign/text.h"

namespace isoloss::foreign {
namespace {

class HuggingFaceReader : public LineReader {
 public:
  bool Read(std::string_view line) override {
    line = Trimmed(line);
    return line.starts_with("{'") && line.ends_with('}') &&
           line.find("'epoch':") != std::string_view::npos &&
           (line.find("'loss':") != std::string_view::npos ||
            line.find("'eval_loss':") != std::string_view::npos);
  }

  /// These lines have a loss, so they go before DeepSpeed's lines between them.
  bool has_loss() const override { return true; }

  void Finish() override {
    ThrowError(ErrorKind::kFormat,
               "the lines that Hugging Face's Trainer prints have an epoch, "
               "but no step, and values need one. Give trainer_state.json of "
               "the run's last checkpoint.");
  }
};

}  // namespace

extern const Format kFormat_hugging_face_stdout = {
    .name = "hugging_face_stdout", .lines = &MakeReader<HuggingFaceReader>};

}  // namespace isoloss::foreign
