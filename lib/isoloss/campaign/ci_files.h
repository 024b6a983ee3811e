// Files for CI systems: where they go, and that none of them ever looks green
// without a verdict.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "isoloss/document/result.h"

namespace isoloss::campaign {

/// What was asked for; empty paths were not.
struct CiTargets {
  std::filesystem::path junit = {};
  std::filesystem::path markdown = {};
  /// A file to which Markdown is appended ($GITHUB_STEP_SUMMARY).
  std::filesystem::path summary = {};

  bool Any() const;
};

/// Errors   ConfigError if two targets are one file, a target's folder is not
///          there, or it is there and no such report of ours.
void CheckCiTargets(const CiTargets& targets);

/// Writes all reports, each completely or not at all. CheckCiTargets comes
/// first.
/// Errors   IoError naming the path and the system's reason.
void WriteCiFiles(const CiTargets& targets, const document::Report& report);

/// Replaces what earlier runs left by a report that is red, until there is a
/// verdict: whoever kills the program leaves that. Appends no summary.
void BeginCiFiles(const CiTargets& targets, const std::string& command);

/// Of a command that ends without a verdict: as WriteCiFiles, as far as targets
/// are sound. Returns what could not be written, and why.
std::vector<std::string> WriteCiError(const CiTargets& targets,
                                      const document::Report& report);

/// `path` as a repository names it that the program was started in: relative,
/// without `./`; as it is if it lies elsewhere.
std::string RepositoryPath(const std::filesystem::path& path);

}  // namespace isoloss::campaign
