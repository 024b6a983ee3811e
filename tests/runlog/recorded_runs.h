// Runs of sample rows that a recorder keeps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "isoloss/runlog/recorder.h"
#include "isoloss/runlog/rows.h"
#include "runlog/sample_log.h"
#include "support/temporary_folder.h"

namespace isoloss::runlog {

inline constexpr int64_t kSteps = 5;

inline RunPaths In(const test_support::TemporaryFolder& folder) {
  return {folder.path(), "mxfp8-seed1"};
}

inline Provenance Named(const std::string& arm) {
  Provenance provenance = SampleLog().provenance;
  provenance.arm = arm;
  provenance.complete = false;
  return provenance;
}

inline Provenance Final(const std::string& arm) {
  Provenance provenance = Named(arm);
  provenance.complete = true;
  return provenance;
}

/// The bytes of a log that has all of `steps` steps, in the order of encoding.
inline std::vector<std::byte> RowsOf(int64_t steps) {
  RunLog log;
  for (int64_t step = 1; step <= steps; ++step) {
    AppendRows(SampleRows(step), log);
  }
  return EncodeRows(log);
}

/// A whole run; calls `acknowledged` after each step.
template <typename Acknowledged>
void RunAll(const RunPaths& paths, const std::string& arm,
            const Acknowledged& acknowledged) {
  Recorder recorder(paths, Named(arm));
  for (int64_t step = 1; step <= kSteps; ++step) {
    recorder.Append(SampleRows(step));
    acknowledged(step);
    if (step == 2) recorder.Refresh(0);
    if (step == 4) recorder.Sync();
  }
  recorder.Finish(Final(arm));
}

inline void RunAll(const RunPaths& paths, const std::string& arm) {
  RunAll(paths, arm, [](int64_t) {});
}

}  // namespace isoloss::runlog
