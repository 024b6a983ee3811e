// The matrix of (case, recipe, execution) in which all runs of a case and
// recipe have one content, and a share of it that meets every pair of values.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "mesh_runs.h"

namespace isoloss::train {

/// One case with one recipe, and how to execute it.
struct Cell {
  const Case* what;
  std::string recipe;
  std::vector<Execution> executions;
};

/// Every case and recipe with all executions that suit it.
std::vector<Cell> FullMatrix();

/// Runs of the full matrix in which each value of case, recipe, ranks,
/// transport with processes, and workers meets each value of the others: again
/// and again the run that adds most new pairs for its cost.
std::vector<Cell> CoveringSubset();

/// For names of parameterised tests.
inline std::string NameOf(const ::testing::TestParamInfo<Cell>& info) {
  return info.param.what->label + "_" + info.param.recipe;
}

/// For messages of GoogleTest.
inline void PrintTo(const Cell& cell, std::ostream* out) {
  *out << cell.what->label << " " << cell.recipe;
}

/// Executions of one training: equal parts of WithoutMesh, and on equally many
/// ranks every part of the log.
void ExpectOneContent(std::span<const Execution> executions,
                      const std::function<Content(const Execution&)>& run);
/// The same of `cell`, executed plainly and as it says.
void ExpectOneContent(const Cell& cell);

}  // namespace isoloss::train
