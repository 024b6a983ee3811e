// Cells of a claim that are students in place of experiments.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "isoloss/claims/claim.h"
#include "isoloss/claims/judge.h"

namespace isoloss::studies {

struct StudentCell {
  std::string name;
  claims::Student student = {};
  std::vector<std::string> arms = {};
  double seconds = 0;  ///< that all of its runs are expected to take
};

/// Errors   ConfigError if a student has no such arm, or its format is no MX
///          format that rounds to nearest, or needs more than a GiB.
void CheckStudentCell(const StudentCell& cell);

/// TOML: all that its runs depend on but their seeds.
std::string StudentText(const StudentCell& cell);

/// Fills in the seconds, by training a few steps.
void EstimateStudent(StudentCell& cell);

/// Trains what the folder lacks, a file of each run, with a line of progress.
/// Returns false if a signal came: finished runs are kept.
bool TrainStudents(const StudentCell& cell,
                   const std::filesystem::path& folder);

/// The finished runs. Errors   as campaign::JsonFile.
claims::CellCurves ReadStudents(const StudentCell& cell,
                                const std::filesystem::path& folder);

}  // namespace isoloss::studies
