// Tells the counters of a printed line from its other numbers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/foreign/line_items.h"

namespace isoloss::foreign {

/// A line has counters and other numbers. All point into `items`.
struct RowParts {
  const LineItem* step = nullptr;  ///< named: "step 3", "Iter(train) [3/90]"
  std::string_view step_word;      ///< "step", as isoloss spells it
  const LineItem* bar = nullptr;   ///< "10/500" without a name
  const LineItem* epoch = nullptr;
  std::vector<const LineItem*> fields;
  bool has_loss = false;  ///< of training or an evaluation

  /// The counter of steps; null if there is none.
  const LineItem* counter() const { return step != nullptr ? step : bar; }
};
RowParts PartsOf(const std::vector<LineItem>& items);

/// Text before a name, or behind the last number, may tell what the number is
/// of: "val: loss 5.9", "[train] loss 5", "loss 5 on the test set".
enum class LinePhase { kNotTold, kTraining, kEvaluation };
LinePhase PhaseBefore(const LineItem& item);
/// Returns whether `rest`, behind the last item, tells an evaluation.
bool EndsInEvaluation(std::string_view rest);

/// Returns the whole number of an item that `is_count`.
int64_t WholeOf(const LineItem& item);

/// Returns whether the counter is one of the batches of an evaluation, if the
/// line is on an evaluation: "Test: [10/20]", "[Eval batch=1/4]".
bool CountsEvaluation(const RowParts& parts);

/// A row has its place in the run once all rows are read.
struct FieldRow {
  int64_t step = -1;   ///< below 0: that of the row before
  int64_t total = 0;   ///< of "3/90": of the epoch or the run; 0: not told
  int64_t epoch = -1;  ///< below 0: not told
  int64_t epochs = 0;  ///< of "Epoch 1/30"
  bool evaluates = false;
};

/// Makes steps that begin again in each epoch steps of the run, if the lengths
/// of epochs are told or seen. Returns the last step that the totals promise; 0
/// if they promise none.
int64_t AddEpochs(std::vector<FieldRow>& rows);

}  // namespace isoloss::foreign
