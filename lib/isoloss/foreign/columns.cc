// Reads tables whose columns are kept apart by blanks, as fastai prints them:
//   epoch     train_loss  valid_loss  accuracy  time
//   0         1.234567    1.123456    0.654321  00:12
#include <algorithm>
#include <cctype>
#include <string>
#include <vector>

#include "isoloss/foreign/format.h"
#include "isoloss/foreign/text.h"

namespace isoloss::foreign {
namespace {

class ColumnsReader : public LineReader {
 public:
  bool Read(std::string_view line) override {
    if (IsHeader(line)) return false;
    if (names_.empty()) return false;
    std::vector<std::string_view> cells;
    while (!Trimmed(line).empty() && cells.size() <= names_.size()) {
      cells.push_back(TakeWord(line));
    }
    const auto step =
        cells.size() == names_.size() ? ParseWhole(cells[0]) : std::nullopt;
    const bool numbers = std::any_of(
        cells.begin() + !cells.empty(), cells.end(), [](std::string_view cell) {
          return ParsePlainNumber(cell).has_value();
        });
    if (!step || *step < 0 || !numbers) return false;  // "7 warnings"
    for (size_t i = 1; i < cells.size(); ++i) {
      const auto number = ParsePlainNumber(cells[i]);
      const bool loss = FindName(names_[i]).quantity == Quantity::kLoss;
      if (!number && !loss) continue;  // a clock
      run().Of(names_[i]).AddWritten(
          *step,
          number ? std::optional(Written{*number, cells[i]}) : std::nullopt,
          cells[i]);
    }
    return true;
  }

 private:
  /// Takes the names of a header, which has a step or epoch first and a loss.
  bool IsHeader(std::string_view line) {
    constexpr size_t kMost = 64;
    constexpr std::string_view kFirst[] = {"epoch", "step", "iter",
                                           "iteration"};
    std::vector<std::string> names;
    bool loss = false;
    while (!Trimmed(line).empty()) {
      const std::string_view word = TakeWord(line);
      const bool letter =
          std::isalpha(static_cast<unsigned char>(word.front())) != 0;
      if (!letter || names.size() == kMost) return false;
      const Quantity quantity = FindName(word).quantity;
      loss |= quantity == Quantity::kLoss || quantity == Quantity::kEvalLoss;
      names.emplace_back(word);
    }
    if (!loss || std::ranges::count(kFirst, names.front()) == 0) return false;
    names_ = std::move(names);
    run().step_unit = names_.front() == "epoch" ? "epoch" : "step";
    return true;
  }

  std::vector<std::string> names_;
};

}  // namespace

extern const Format kFormat_columns = {.name = "columns",
                                       .lines = &MakeReader<ColumnsReader>};

}  // namespace isoloss::foreign
