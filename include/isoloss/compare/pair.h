// Finds the run of the baseline that belongs to each run of the candidate.
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

/// A run comes with the file from which its log was read (may be empty).
struct Run {
  std::string file;
  runlog::RunLog log;
  /// CheckDomains found these in the whole log, if a part of it was dropped.
  std::optional<std::vector<runlog::Violation>> violations = {};
};

/// Checks the log, and then frees /tensors, which takes most of its memory. A
/// verdict on precision reads these columns only for the check. After that, the
/// log counts for less of hdf5::ReadLimit.
void DropTensors(Run& run);

/// Returns a run's name in findings: the file or, without one, "arm A, seed S".
std::string Label(const Run& run);

/// The logs of two runs may be the same file, or two files of the same bytes.
enum class Sameness { kNone, kBytes, kFile };
/// Compares the files from which the runs were read. If a file holds several
/// runs, the seed tells them apart, and so does the arm, unless all losses are
/// equal: one log may be given as two arms.
Sameness SamenessOf(const Run& a, const Run& b);

/// Returns the experiment's first arm, as the log says. Another program's run
/// knows no experiment, and its own arm is returned.
std::string BaselineArm(const Run& run);

/// Returns the runs of one arm, in the order given.
std::vector<const Run*> RunsOfArm(std::span<const Run> runs,
                                  std::string_view arm);

struct SeedPair {
  int64_t seed = 0;
  const Run* baseline = nullptr;
  const Run* candidate = nullptr;

  /// Returns whether both logs know `fact`.
  bool Knows(runlog::Fact fact) const {
    return baseline->log.provenance.Knows(fact) &&
           candidate->log.provenance.Knows(fact);
  }
};

/// Two arms are paired by seed. The pointers are to the runs that were given.
struct Pairing {
  std::string baseline_arm;
  std::string candidate_arm;
  std::vector<const Run*> baseline;   ///< ascending seed
  std::vector<const Run*> candidate;  ///< ascending seed
  /// Seeds that occur exactly once in either arm, ascending. Integrity rule
  /// `seeds` has a finding about every run that is left out.
  std::vector<SeedPair> pairs;

  /// Returns all runs, the baseline's first.
  std::vector<const Run*> All() const;
  /// Returns whether all logs know `fact`.
  bool Knows(runlog::Fact fact) const;
};

Pairing PairBySeed(std::string_view baseline_arm,
                   std::vector<const Run*> baseline,
                   std::string_view candidate_arm,
                   std::vector<const Run*> candidate);

}  // namespace isoloss::compare
