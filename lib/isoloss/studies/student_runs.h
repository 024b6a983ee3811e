// Declares cells of a claim that train students in place of experiments.
#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "isoloss/estimators/claim.h"
#include "isoloss/estimators/claim_judge.h"
#include "isoloss/studies/plan.h"

namespace isoloss::studies {

/// Returns a cell that trains the student of `cell`, with seeds from 1 on, and
/// leaves a JSON file of each run; an unfinished run leaves none. The number of
/// runs side by side is limited by the free processors and by a GiB of memory.
/// Errors   ConfigError if a student has no such arm, or its format is no MX
///          format that rounds to nearest.
Cell StudentCell(const estimators::ClaimCell& cell,
                 const std::set<std::string>& arms);

/// Returns TOML with all that a student's runs depend on except their seeds.
std::string StudentText(const estimators::ClaimCell& cell);

/// Fills in the seconds of the students' cells, which are `cells` in the same
/// order. It measures how many operations a small student does here in a
/// second.
void EstimateStudents(const std::vector<estimators::ClaimCell>& cells,
                      std::vector<Cell>& of_study);

/// Returns the finished runs of the cell's seeds, by arm.
/// Errors   as system::JsonFile; FormatError if a file is of another seed, or
///          lacks a loss after a tenth of the steps though its run has not
///          diverged.
std::map<std::string, std::vector<estimators::RunCurve>> ReadStudents(
    const Cell& cell, const std::filesystem::path& folder);

}  // namespace isoloss::studies
