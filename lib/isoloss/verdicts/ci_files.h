// Writes files for CI systems. None of them ever looks green without a verdict.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "isoloss/document/result.h"

namespace isoloss::verdicts {

/// An empty path means that the report was not asked for.
struct CiTargets {
  std::filesystem::path junit = {};
  std::filesystem::path markdown = {};
  /// Markdown is appended to this file ($GITHUB_STEP_SUMMARY).
  std::filesystem::path summary = {};

  bool Any() const;
};

/// Checks that all targets can be written.
/// Errors   ConfigError if two targets are one file, a target's folder is not
///          there, or it is there and no such report of ours.
void CheckCiTargets(const CiTargets& targets);

/// Writes all reports, each completely or not at all. Call CheckCiTargets
/// first.
/// Errors   IoError naming the path and the system's reason.
void WriteCiFiles(const CiTargets& targets, const document::Report& report);

/// Replaces reports of earlier runs by one that is red until there is a
/// verdict, so that a killed program leaves a red one. Appends no summary.
void BeginCiFiles(const CiTargets& targets, const std::string& command);

/// Writes the reports of a command that ends without a verdict, as far as
/// targets are sound. Returns what could not be written, and why.
std::vector<std::string> WriteCiError(const CiTargets& targets,
                                      const document::Report& report);

/// Returns `path` relative to the folder that the program was started in,
/// without `./`, as CI systems name files of a repository. A path elsewhere
/// stays as it is.
std::string RepositoryPath(const std::filesystem::path& path);

}  // namespace isoloss::verdicts
