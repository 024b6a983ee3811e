// Arguments of commands that train many experiments in one folder.
#pragma once

#include <cstdio>
#include <optional>
#include <string>

#include "arguments.h"
#include "isoloss/campaign/exit_code.h"
#include "isoloss/studies/study.h"
#include "run_choice_arguments.h"

namespace isoloss::cli {

using campaign::ExitCode;

struct StudyArguments {
  std::string out;
  std::string part;  ///< "K/N"
  bool dry_run = false;
  bool no_train = false;
  bool json = false;
  RunChoiceArguments runs;

  /// Costs need not be measured again by each of many processes.
  bool estimates() const { return !no_train && !runs.chosen(); }

  /// `kind`: "ladder", of which the files are named; `folder`: what --out
  /// stands for by default, or "" for runs/<name>-<kind>.
  void Declare(CLI::App& app, const std::string& kind,
               const std::string& folder = {});
};

/// Shows what the study costs, and trains it as far as it is asked to. Returns
/// a code if the command ends with that: a dry run, a list, a part, or a
/// signal. Errors   as studies::PrepareStudy, ParseStudyPart and TrainStudy.
std::optional<ExitCode> TrainAsAsked(const studies::Study& study,
                                     const std::string& description,
                                     const StudyArguments& arguments);

/// Says how to go on, and returns the code of a command that a signal ended.
ExitCode Interrupted(const studies::Study& study);

/// Prints it with sentences wrapped; rows of tables stay.
void PrintProse(std::FILE* file, const std::string& text);

/// Prints one of both, and where both and the picture have been written.
void PrintResult(const studies::Study& study, const std::string& text,
                 const std::string& json, bool as_json);

}  // namespace isoloss::cli
