// isoloss lab doctor --job: are the nodes of this job fit, before its first
// step?
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

/// To be called by all processes of the job. Does not return if one hangs: then
/// the job is ended.
ExitCode ExamineDoctorJob(const DoctorJobArguments& arguments,
                          const std::string& out, bool json);

}  // namespace isoloss::cli
