// What the oracle finds in the last of some operations.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "isoloss/base/threads.h"
#include "isoloss/operations/check.h"
#include "isoloss/precision/recipe.h"

namespace isoloss::operations {

inline std::vector<Finding> Check(const std::vector<Operation>& operations) {
  ThreadTeam team(1);
  const std::vector<OperationFile> files = {
      {.path = "f", .operations = operations}};
  CheckExtents(files[0]);
  std::vector<Finding> findings =
      CheckOperations(files, precision::RecipeByName("mxfp8_rceil"), {}, team);
  std::erase_if(findings, [&](const Finding& f) {
    return f.operation + 1 != operations.size();
  });
  return findings;
}

inline void ExpectRight(const std::vector<Operation>& operations) {
  for (const Finding& finding : Check(operations)) {
    EXPECT_TRUE(finding.is_right())
        << finding.part << " " << finding.comparison.other() << " of "
        << finding.comparison.elements() << ": worst ratio "
        << finding.comparison.Row().worst_ratio;
  }
}

inline void ExpectNamed(const std::vector<Operation>& operations,
                        const std::string& part, const std::string& name) {
  for (const Finding& finding : Check(operations)) {
    if (finding.part != part) continue;
    EXPECT_GT(finding.comparison.other(), 0) << name;
    ASSERT_TRUE(finding.explanation) << name;
    EXPECT_EQ(finding.explanation->name, name);
    EXPECT_FALSE(finding.explanation->is_ambiguous)
        << name << " or " << finding.explanation->runner_up;
    return;
  }
  FAIL() << "no finding of " << part;
}

}  // namespace isoloss::operations
