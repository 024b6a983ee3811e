// Implements `isoloss lab doctor --job`, which examines the nodes of a job
// before its first step.
#pragma once

#include <string>

#include "arguments.h"
#include "isoloss/campaign/experiment_source.h"
#include "json_output.h"

namespace isoloss::cli {

struct DoctorJobArguments {
  campaign::ExperimentSource source;  ///< of no file: no job
  std::string sick_file;
};

void DeclareDoctorJob(CLI::App& app, DoctorJobArguments& arguments);

/// All processes of the job must call this function. If one of them hangs, it
/// ends the job instead of returning.
ExitCode ExamineDoctorJob(const DoctorJobArguments& arguments,
                          const std::string& out, bool json);

}  // namespace isoloss::cli
