// Options of commands that end with a verdict, by which a CI system gets it in
// its own format (docs/ci.md).
#pragma once

#include <filesystem>
#include <string>

#include "arguments.h"
#include "isoloss/campaign/ci_files.h"
#include "isoloss/campaign/exit_code.h"
#include "isoloss/document/result.h"

namespace isoloss::cli {

/// Reports for CI systems. A command calls Begin before its work, Write once it
/// has its results and before it prints any, and Annotate last.
class CiArguments {
 public:
  /// `command` is its name, "verify".
  void Declare(CLI::App& app, const std::string& command);

  bool Asked() const { return targets_.Any() || github_; }

  /// Refuses what could not be written at the end, and replaces what earlier
  /// runs left by reports that say that there is no verdict. Only the process
  /// that speaks for the job does.
  /// Errors   as campaign::CheckCiTargets; ConfigError for --github outside of
  ///          GitHub Actions.
  void Begin();

  /// Errors   as campaign::WriteCiFiles.
  void Write(const document::Report& report) const;
  /// With --github prints annotations.
  void Annotate(const document::Report& report) const;

  /// "isoloss verify".
  std::string command() const { return "isoloss " + command_; }

 private:
  std::string command_;
  campaign::CiTargets targets_;
  bool github_ = false;
};

/// For a command line, of whatever command, that ends without a verdict: puts
/// the reason into all reports that it names. What can't be written is said on
/// standard error. Looks at the words themselves, since an error may come
/// before they are parsed.
void ReportErrorToCi(int argc, char** argv, const std::string& kind,
                     const std::string& message, campaign::ExitCode code);

}  // namespace isoloss::cli
