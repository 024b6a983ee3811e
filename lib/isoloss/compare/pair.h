// Which run of the candidate belongs to which run of the baseline.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/runlog/domain_check.h"
#include "isoloss/runlog/run_log.h"

namespace isoloss::compare {

/// One run and where its log was read from (may be empty).
struct Run {
  std::string file;
  runlog::RunLog log;
  /// What CheckDomains found in the whole log, if a part of it was dropped.
  std::optional<std::vector<runlog::Violation>> violations = {};
};

/// Checks the log, and then frees /tensors, most of its memory: of these
/// columns a verdict on precision reads nothing beside the check. The log
/// counts for less of runlog::ReadLimit then.
void DropTensors(Run& run);

/// The file, or "arm A, seed S" if there is none: how findings name a run.
std::string Label(const Run& run);

/// How the logs of two runs are one and the same.
enum class Sameness { kNone, kBytes, kFile };
/// By the files that they were read from. Runs of a file that holds several are
/// told apart by seed, and by arm unless all losses are equal: one log may be
/// given as two arms.
Sameness SamenessOf(const Run& a, const Run& b);

/// The experiment's first arm, as the log says; of another program's run, which
/// knows no experiment, its own.
std::string BaselineArm(const Run& run);

/// The runs of one arm, in the order given.
std::vector<const Run*> RunsOfArm(std::span<const Run> runs,
                                  std::string_view arm);

struct SeedPair {
  int64_t seed = 0;
  const Run* baseline = nullptr;
  const Run* candidate = nullptr;

  /// Whether both logs know `fact`.
  bool Knows(runlog::Fact fact) const {
    return baseline->log.provenance.Knows(fact) &&
           candidate->log.provenance.Knows(fact);
  }
};

/// Two arms, paired by seed. Points into the runs it was made from.
struct Pairing {
  std::string baseline_arm;
  std::string candidate_arm;
  std::vector<const Run*> baseline;   ///< ascending seed
  std::vector<const Run*> candidate;  ///< ascending seed
  /// Seeds that occur exactly once in either arm, ascending. What is left out
  /// is a finding of integrity rule `seeds`.
  std::vector<SeedPair> pairs;

  /// All runs, the baseline's first.
  std::vector<const Run*> All() const;
  /// Whether all logs know `fact`.
  bool Knows(runlog::Fact fact) const;
};

Pairing PairBySeed(std::string_view baseline_arm,
                   std::vector<const Run*> baseline,
                   std::string_view candidate_arm,
                   std::vector<const Run*> candidate);

}  // namespace isoloss::compare
