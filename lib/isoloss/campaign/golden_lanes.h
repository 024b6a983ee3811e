// What a check of goldens asks of two runs, and how it is said on one line.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "isoloss/compare/golden.h"
#include "isoloss/compare/pair.h"
#include "isoloss/gate/verdict.h"
#include "isoloss/runlog/probe_log.h"

namespace isoloss::campaign {

/// Lane `exact` of one golden: is its content reproduced to the bit?
struct ExactLane {
  std::string golden;
  compare::ContentDifference content;
  /// Where the run parts from the golden first, in words; "" if it does not, or
  /// in nothing that is compared by steps.
  std::string where;
  size_t steps = 0;         ///< of the golden
  size_t tensors = 0;       ///< that it has digests of
  size_t tensor_steps = 0;  ///< in which it has them

  bool Reproduced() const { return content.differing.empty(); }
  /// What differs, on one line.
  std::string Drift() const;
};

ExactLane CompareExactly(const compare::Run& golden, const compare::Run& run);

/// What the run's file has otherwise though no rounding can change it, in
/// words, or "" if nothing: what is said of the run as a whole, or a dataset or
/// attribute that is missing.
///
/// Errors   as runlog::LayoutOf for the files of both.
std::string OtherDescription(const compare::Run& golden,
                             const compare::Run& run, const ExactLane& lane);

/// How `runs` differ from `others`, the same runs executed otherwise: the first
/// difference in words, "" if none.
std::string FirstDifference(const std::vector<compare::Run>& runs,
                            const std::vector<compare::Run>& others);

/// The first tensor of a probe that holds values which no order of summation
/// explains, in words; "" if there is none.
std::string FirstUnexplained(const runlog::ProbeLog& probe);

/// "pass", "fail", … and what each level found, on one line.
std::string LaneText(const gate::Judgement& judgement);

}  // namespace isoloss::campaign
