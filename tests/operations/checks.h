// What the oracle finds in the last of some operations.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/base/executor.h"
#include "isoloss/operations/check.h"
#include "isoloss/precision/recipe.h"

namespace isoloss::operations {

inline std::vector<Finding> Check(const std::vector<Operation>& operations,
                                  const std::string& recipe = "mxfp8_rceil") {
  Executor executor(1);
  const std::vector<OperationFile> files = {
      {.path = "f", .operations = operations}};
  CheckExtents(files[0]);
  std::vector<Finding> findings =
      CheckOperations(files, precision::RecipeByName(recipe), {}, executor);
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

inline const Finding& Part(const std::vector<Finding>& findings,
                           const std::string& part) {
  for (const Finding& finding : findings) {
    if (finding.part == part) return finding;
  }
  throw Error(ErrorKind::kFormat, "no finding of " + part);
}

/// That `part` has others and they are named so.
inline void ExpectNamed(const std::vector<Finding>& findings,
                        const std::string& part, const std::string& name) {
  const Finding& finding = Part(findings, part);
  EXPECT_GT(finding.comparison.other(), 0) << part;
  ASSERT_TRUE(finding.explanation) << part;
  EXPECT_EQ(finding.explanation->name, name) << part;
  EXPECT_EQ(finding.explanation->other, 0) << part;
  EXPECT_FALSE(finding.explanation->is_ambiguous)
      << part << ": or " << finding.explanation->runner_up;
}

inline void ExpectNamed(const std::vector<Operation>& operations,
                        const std::string& part, const std::string& name) {
  ExpectNamed(Check(operations), part, name);
}

}  // namespace isoloss::operations
