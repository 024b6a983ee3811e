// Declares options of commands that end with a verdict. A CI system gets the
// verdict in its own format (docs/ci.md).
#pragma once

#include <filesystem>
#include <string>

#include "arguments.h"
#include "isoloss/document/result.h"
#include "isoloss/system/exit_code.h"
#include "isoloss/verdicts/ci_files.h"

namespace isoloss::cli {

/// Writes reports for CI systems. A command calls Begin before its work, Write
/// once it has its results and before it prints any, and Annotate last.
class CiArguments {
 public:
  /// `command` is the name of the command, such as "verify".
  void Declare(CLI::App& app, const std::string& command);

  bool Asked() const { return targets_.Any() || github_; }

  /// Refuses targets that could not be written at the end. Replaces reports of
  /// earlier runs by reports which say that there is no verdict. Only process 0
  /// of a job does so.
  /// Errors   as verdicts::CheckCiTargets; ConfigError for --github outside of
  ///          GitHub Actions.
  void Begin();

  /// Writes `report` to all targets.
  /// Errors   as verdicts::WriteCiFiles.
  void Write(const document::Report& report) const;
  /// Prints annotations if --github is given.
  void Annotate(const document::Report& report) const;

  /// Returns the full name, such as "isoloss verify".
  std::string command() const { return "isoloss " + command_; }

 private:
  std::string command_;
  verdicts::CiTargets targets_;
  bool github_ = false;
};

/// Puts the reason why a command line ended without a verdict into all reports
/// that it names. Reports that can't be written are named on standard error.
/// Reads the words themselves, since an error may come before they are parsed.
void ReportErrorToCi(int argc, char** argv, const std::string& kind,
                     const std::string& message, system::ExitCode code);

}  // namespace isoloss::cli
