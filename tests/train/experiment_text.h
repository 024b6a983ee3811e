// A complete experiment file, and what becomes of it with changes.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/train/experiment.h"

namespace isoloss::train {

/// A complete experiment. Tests that count lines append to it: 13 lines.
inline constexpr std::string_view kText = R"(name = "trial"
[model]
preset = "dsv3-nano"
[data]
source = "files"
paths = ["text", "${EIGEN3_INCLUDE_DIR}/Eigen"]
[arms.zero]
recipe = "bf16"
[arms.mxfp8]
recipe = "mxfp8_rceil"
exclude = ["lm_head"]
[arms.again]
recipe = "bf16"
)";

inline ExperimentInputs Inputs(std::vector<std::string> overrides = {}) {
  return {.variables = {{"EIGEN3_INCLUDE_DIR", "/usr/include/eigen3"}},
          .overrides = std::move(overrides)};
}

inline Experiment Parse(std::string_view text,
                        std::vector<std::string> overrides = {}) {
  return ParseExperiment(text, "folder/experiment.toml", Inputs(overrides));
}

inline Experiment With(std::vector<std::string> overrides) {
  return Parse(kText, std::move(overrides));
}

/// The message of the error that parsing `text` ends in.
inline std::string ErrorOf(std::string_view text,
                           std::vector<std::string> overrides = {}) {
  try {
    ParseExperiment(text, "experiment.toml", Inputs(std::move(overrides)));
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    return error.what();
  }
  return "no error";
}

/// As ErrorOf, of the complete experiment with lines appended.
inline std::string ErrorOfAppended(std::string_view lines) {
  return ErrorOf(std::string(kText) + std::string(lines));
}

}  // namespace isoloss::train
