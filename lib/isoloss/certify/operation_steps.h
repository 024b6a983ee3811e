// Compares the operation files of two runs, step by step.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "isoloss/base/executor.h"
#include "isoloss/certify/cause.h"
#include "isoloss/certify/operation_pair.h"
#include "isoloss/certify/recorded_run.h"

namespace isoloss::certify {

struct OperationQuestion {
  // Steps before and after these two are not compared.
  int64_t from = 0;
  int64_t until = std::numeric_limits<int64_t>::max();
  std::string recipe = {};
  /// The runs are called so in sentences.
  std::string names[2] = {};
  /// Causes name all state that the first differing step found otherwise.
  bool lists_states = false;
};

struct OperationAnswer {
  std::vector<int64_t> steps = {};
  int64_t operations = 0;
  int64_t tensors = 0;
  int64_t last_update = 0;  ///< last step whose updates were compared; 0: none
  std::vector<std::string> uncertified = {};
  /// The pointers of the difference are null.
  std::optional<OperationDifference> first = {};
  std::vector<std::string> others = {};  ///< as OperationPair has them
  std::vector<Cause> causes = {};
};

/// Compares the files of all steps and ranks that both runs have, up to the
/// first step that differs.
/// Errors   those of ReadOperations; FormatError for a file of another step or
///          rank than its name says.
OperationAnswer CompareOperations(const RecordedRun& first,
                                  const RecordedRun& other,
                                  const OperationQuestion& question,
                                  Executor& executor);

/// Compares what the first run's operations of step `before` left with what the
/// other run's operations of the next step found; empty if there are no files.
std::vector<Cause> CompareStates(const RecordedRun& first,
                                 const RecordedRun& other, int64_t before,
                                 const std::string& name);

}  // namespace isoloss::certify
