// Runs that another program trained, from its logs to a pairing.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "isoloss/campaign/evidence_files.h"
#include "isoloss/compare/pair.h"
#include "isoloss/foreign/align.h"
#include "isoloss/foreign/read.h"
#include "isoloss/runlog/ensemble.h"

namespace isoloss::campaign {

/// A path as a command was given it: ARM=PATH names the arm of the runs in it.
struct ArmPath {
  std::string arm;  ///< "": by the names of the runs
  std::filesystem::path path;
};

/// A path that is there stands for itself, whatever its name holds.
ArmPath SplitArm(const std::filesystem::path& given);

/// Whether another program wrote it: neither HDF5 nor a journal, by its content
/// and its name, or a folder of event files without any NAME.h5.
bool IsForeignLog(const std::filesystem::path& path);

/// The runs of a log, of arm `given.arm`, or else of the arm that the run's
/// name tells (foreign::SplitName). A seed that neither name nor log tells is
/// -1. Errors   as foreign::ReadLog and foreign::RunLogOf, with the file's
/// name.
std::vector<compare::Run> ReadForeignRuns(const ArmPath& given,
                                          const foreign::ReadOptions& options);

/// Gives seeds to runs that ReadForeignRuns has read, whose arm is the one that
/// was given, or the run's name without its seed ("fp8-seed3"): those of the
/// names or of the logs, if every run has one and no arm has one twice; else
/// the runs of each arm count 1, 2, ... in their order.
void NameSeeds(const std::vector<compare::Run*>& runs);

/// foreign::Align of all foreign runs among both. If both sides have foreign
/// runs of one arm only, `approved` gets the arm of `runs`; unless both tell
/// the same seeds, runs of one place in their order are a pair, which an event
/// says.
/// Errors   FormatError if a log has no steps, or not as many losses; as
///          foreign::Align; ConfigError for options if no run is foreign.
void AlignForeignRuns(std::span<compare::Run> runs,
                      std::span<compare::Run> approved,
                      const foreign::AlignOptions& options);

/// Where all runs are foreign and of one arm, and there is an ensemble of such
/// runs: as many good ones of it, its reference first, to judge them against.
/// Else none.
/// Errors   ConfigError if the ensemble has fewer.
std::vector<compare::Run> ApprovedOf(const std::vector<compare::Run>& runs,
                                     const EvidenceFiles& evidence);

/// An ensemble of another program's good runs, against the first of them.
/// Errors   ConfigError for fewer than three, one of isoloss' own, one that
/// does
///          not go as far as the others, a copy of another one, smoothed ones,
///          or a value that is not finite or no loss; as AlignForeignRuns.
runlog::Ensemble EnsembleOfLogs(std::vector<compare::Run> runs,
                                const foreign::AlignOptions& options);

}  // namespace isoloss::campaign
