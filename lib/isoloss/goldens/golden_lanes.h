// Compares the two runs of a golden in the lanes of a check, and describes each
// result on one line.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "isoloss/compare/golden.h"
#include "isoloss/compare/pair.h"
#include "isoloss/gate/verdict.h"
#include "isoloss/runlog/probe_log.h"

namespace isoloss::goldens {

/// The lane `exact` of one golden asks whether its content is reproduced to the
/// bit.
struct ExactLane {
  std::string golden;
  compare::ContentDifference content;
  /// Says where the run first differs from the golden. It is "" if they are
  /// equal, or if nothing that differs is compared by steps.
  std::string where;
  size_t steps = 0;         ///< of the golden
  size_t tensors = 0;       ///< that it has digests of
  size_t tensor_steps = 0;  ///< in which it has them

  bool Reproduced() const { return content.differing.empty(); }
  /// Describes what differs, on one line.
  std::string Drift() const;
};

ExactLane CompareExactly(const compare::Run& golden, const compare::Run& run);

/// Describes a difference of the run's file that no rounding can cause: a
/// property of the whole run that differs, or a dataset or attribute that is
/// missing. Returns "" if there is none.
///
/// Errors   as runlog::LayoutOf for the files of both.
std::string OtherDescription(const compare::Run& golden,
                             const compare::Run& run, const ExactLane& lane);

/// Describes the first difference between `runs` and `others`, which are the
/// same runs executed in another way; "" if there is none.
std::string FirstDifference(const std::vector<compare::Run>& runs,
                            const std::vector<compare::Run>& others);

/// Describes the first tensor of a probe with values that no order of summation
/// explains; "" if there is none.
std::string FirstUnexplained(const runlog::ProbeLog& probe);

/// Returns "pass", "fail", … and what each level found, on one line.
std::string LaneText(const gate::Judgement& judgement);

}  // namespace isoloss::goldens
