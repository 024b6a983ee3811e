// Compares two layouts of one model and batch, tensor by tensor.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "isoloss/base/executor.h"
#include "isoloss/document/chart.h"
#include "isoloss/layouts/recording.h"
#include "isoloss/operations/check.h"
#include "isoloss/system/exit_code.h"

namespace isoloss::layouts {

enum class Status { kEqual, kExplained, kNotJudged, kNotExplained };
/// Returns "equal", "explained", "not judged" or "not explained".
const char* StatusName(Status status);

/// A result is about one tensor of the whole batch.
struct TensorResult {
  int64_t step = 0;
  std::string type = {};
  std::string module = {};
  std::string tensor = {};
  Status status = Status::kEqual;
  int64_t elements = 0;
  int64_t different = 0;
  double relative = 0.0;  ///< ||B - A|| / ||A||
  /// The difference that everything before it explains; NaN: the operation's
  /// own inputs do.
  double bound = 0.0;
  std::string mistake = {};  ///< "all_reduce_missing"; "": none is known
  std::string where = {};    ///< "columns 64..127 of 128 = rank 1 of tp"
  std::string text = {};     ///< whole sentences
};

struct LayoutsRequest {
  std::filesystem::path a;
  std::filesystem::path b;
  std::string recipe;  ///< "": that of the files, or else bf16
  operations::CheckOptions options = {};
};

struct LayoutsComparison {
  Recording a;
  Recording b;
  std::string recipe;
  std::vector<int64_t> steps = {};  ///< that both have
  std::vector<TensorResult> tensors = {};
  std::vector<std::string> notes = {};  ///< whole sentences

  /// Returns the first tensor that is not explained; null if all are.
  const TensorResult* First() const;
  int64_t Count(Status status) const;
  /// FAIL if a tensor is not explained; INCONCLUSIVE if one was not judged, or
  /// if there is none.
  system::ExitCode Outcome() const;
};

/// Errors   those of ReadRecording and operations::CheckOperations; ConfigError
///          if no step is common, or recipes differ.
LayoutsComparison CompareLayouts(const LayoutsRequest& request,
                                 Executor& executor);

/// Says in whole sentences how the comparison ends.
std::string SummaryOf(const LayoutsComparison& comparison);

/// Prints tensors that are not explained or not judged, a chart of the
/// differences, and a summary. With `all` it lists the other tensors, too.
std::string RenderLayouts(const LayoutsComparison& comparison, bool all,
                          const document::TextStyle& style);

}  // namespace isoloss::layouts
