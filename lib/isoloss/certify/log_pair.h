// Compares the logs of one rank of two runs bit by bit, and says what they do
// not tell.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "isoloss/certify/cause.h"
#include "isoloss/runlog/run_log.h"

namespace isoloss::certify {

struct LogDifference {
  int64_t step = 0;  ///< 0: before the first step
  std::string quantity = {};
  std::string name = {};  ///< of a tensor or parameter; may be empty
  std::string first = {};
  std::string other = {};
  std::optional<int64_t> last_equal_step = {};
  std::string after = {};  ///< the nearest tensor before it that is equal
};

/// Counts what was compared.
struct LogCounts {
  // All common steps lie between these two.
  int64_t steps = 0;
  int64_t first_step = 0;
  int64_t last_step = 0;
  std::vector<std::string> quantities = {};
  std::vector<int64_t> tensor_steps = {};
  int64_t tensors = 0;
  int64_t digests = 0;
  bool has_weights_before = false;  ///< were compared
  bool has_weights_after = false;
};

struct LogPair : LogCounts {
  /// Each tensor of the last step has a digest in both logs, parameters too.
  bool has_tensors_at_end = false;
  std::optional<LogDifference> first = {};
  /// Phrases name what was not recorded.
  std::vector<std::string> uncertified = {};
  /// Sentences say what forbids a certificate.
  std::vector<std::string> lacking = {};
};

/// Compares all that is reproducible at all common steps. `same_beginning`: the
/// weights before the first step must be equal, too.
LogPair CompareLogs(const runlog::RunLog& first, const runlog::RunLog& other,
                    bool same_beginning);

/// Says what of a step could be the reason of a difference in it: other
/// batches, another learning rate. In sentences the other run is `name`.
std::vector<Cause> StepCauses(const runlog::RunLog& first,
                              const runlog::RunLog& other, int64_t step,
                              const std::string& name);

/// Returns the value of a column at a step; nothing if it is not recorded.
template <typename T>
std::optional<T> At(const runlog::StepColumns& steps,
                    const std::vector<T>& column, int64_t step);

}  // namespace isoloss::certify
