// Reads runs that another program trained, and pairs them.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "isoloss/compare/pair.h"
#include "isoloss/foreign/align.h"
#include "isoloss/foreign/read.h"
#include "isoloss/logs/evidence_files.h"
#include "isoloss/runlog/ensemble.h"

namespace isoloss::logs {

/// A command may be given ARM=PATH, which names the arm of the runs in the
/// path.
struct ArmPath {
  std::string arm;  ///< "": by the names of the runs
  std::filesystem::path path;
};

/// A path that exists stands for itself, even if its name has a "=".
ArmPath SplitArm(const std::filesystem::path& given);

/// Returns whether another program wrote it. Such a log is by content and name
/// neither HDF5 nor a journal, or it is a folder of event files without any
/// NAME.h5.
bool IsForeignLog(const std::filesystem::path& path);

/// Returns the runs of a log. Their arm is `given.arm`, or else the arm in the
/// run's name (foreign::SplitName). The seed is -1 if neither name nor log has
/// it.
/// Errors   as foreign::ReadLog and foreign::RunLogOf, with the file's name.
std::vector<compare::Run> ReadForeignRuns(const ArmPath& given,
                                          const foreign::ReadOptions& options);

/// Gives seeds to runs that ReadForeignRuns has read. The seeds of names or
/// logs stay if every run has one and no arm has one twice. Else the runs of
/// each arm count 1, 2, ... in their order.
void NameSeeds(const std::vector<compare::Run*>& runs);

/// Aligns all foreign runs of both sides by foreign::Align. If both sides have
/// foreign runs of one arm only, `approved` gets the arm of `runs`. Then runs
/// with the same place in their order are a pair, unless both sides have the
/// same seeds. An event says so.
/// Errors   FormatError if a log has no steps, or not as many losses; as
///          foreign::Align; ConfigError for options if no run is foreign.
void AlignForeignRuns(std::span<compare::Run> runs,
                      std::span<compare::Run> approved,
                      const foreign::AlignOptions& options);

/// Returns good runs of an ensemble, its reference first, to judge `runs`
/// against, one for each. All `runs` must be foreign and of one arm, and the
/// ensemble of foreign runs. Else returns none.
/// Errors   ConfigError if the ensemble has fewer.
std::vector<compare::Run> ApprovedOf(const std::vector<compare::Run>& runs,
                                     const EvidenceFiles& evidence);

/// Makes an ensemble of another program's good runs, which are compared with
/// the first of them.
/// Errors   ConfigError for fewer than three runs, and for a run that isoloss
///          trained, that is shorter than the rest, or that is a copy. Also for
///          smoothed losses, and for a value that is not finite or no loss. As
///          AlignForeignRuns.
runlog::Ensemble EnsembleOfLogs(std::vector<compare::Run> runs,
                                const foreign::AlignOptions& options);

}  // namespace isoloss::logs
