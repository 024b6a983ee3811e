// Certifies that runs are equal to the bit: repetitions of one commit, or a run
// that was interrupted and resumed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "isoloss/base/executor.h"
#include "isoloss/certify/cause.h"
#include "isoloss/certify/log_pair.h"
#include "isoloss/certify/operation_pair.h"
#include "isoloss/certify/recorded_run.h"
#include "isoloss/document/document.h"
#include "isoloss/document/result.h"
#include "isoloss/system/exit_code.h"

namespace isoloss::certify {

enum class Gate { kRepeat, kRestart };

/// Says where and why a run parts from the first one.
struct Difference {
  size_t run = 0;  ///< its place in Certificate::runs
  int64_t rank = kAllRanks;
  LogDifference where = {};
  std::optional<OperationDifference> operation = {};  ///< pointers are null
  std::vector<std::string> other_operations = {};     ///< see OperationPair
  std::vector<Cause> causes = {};
  /// Logs differ at this later step; `where` is of the operations.
  std::optional<LogDifference> in_log = {};
  // Operations of the step, and of the one before, were compared.
  bool has_operations = false;
  bool has_operations_before = false;
  std::string next = {};  ///< what to record or to do
};

/// Counts what was compared with the first run, of all other runs together.
struct Compared : LogCounts {
  std::vector<int64_t> operation_steps = {};
  int64_t operations = 0;
  int64_t operation_tensors = 0;
  bool has_weights_at_restart = false;
  bool has_states_at_restart = false;  ///< by operations
};

struct Certificate {
  Gate gate = Gate::kRepeat;
  std::vector<RecordedRun> runs = {};
  std::vector<std::string> names = {};  ///< "run 1", or "the whole run"
  /// Sentences say why nothing can be certified of these files.
  std::vector<std::string> invalid = {};
  std::vector<Difference> differences = {};
  /// Sentences say what was not recorded, but must be.
  std::vector<std::string> lacking = {};
  /// Phrases name what else was not recorded, each once.
  std::vector<std::string> uncertified = {};
  /// Sentences on what else was seen.
  std::vector<std::string> remarks = {};
  std::vector<int64_t> restarts = {};  ///< first steps after a restart
  Compared compared = {};

  /// The worst that was found: invalid, a difference, something lacking.
  system::ExitCode Outcome() const;
};

struct CertifyRequest {
  std::vector<std::filesystem::path> paths;
  std::string recipe = {};  ///< "": as the logs say
};

/// Compares all runs with the first one.
/// Errors   those of ReadRecordedRuns and CompareOperations.
Certificate CertifyRepeat(const CertifyRequest& request, Executor& executor);

/// Compares the runs that follow the first one with it: parts of one run that
/// was interrupted and resumed.
/// Errors   the same; ConfigError if there is no part.
Certificate CertifyRestart(const CertifyRequest& request, Executor& executor);

/// Describes a certificate for people and programs.
document::Document DocumentOf(const Certificate& certificate);
document::Result ResultOf(const Certificate& certificate);

}  // namespace isoloss::certify
