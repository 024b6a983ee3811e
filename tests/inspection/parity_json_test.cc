#include "isoloss/inspection/parity_json.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

namespace isoloss::inspection::parity_json_test {
namespace {

train::ParityReport EqualRuns() {
  train::ParityReport found;
  found.arm = "mxfp8";
  found.seed = 7;
  found.ranks = 8;
  found.replicas = 2;
  found.transport = "loop";
  found.steps = 2;
  found.gradients = 40;
  return found;
}

TEST(ParityJson, OfEqualRunsHasNoDifference) {
  EXPECT_EQ(ParityJson(EqualRuns()).dump(),
            R"({"outcome":"PASS","arm":"mxfp8","seed":7,"ranks":8,)"
            R"("expert_data_parallel":2,"transport":"loop","processes":1,)"
            R"("steps":2,"gradients_per_step":40,"first_difference":null})");
}

TEST(ParityJson, NamesTheFirstDifference) {
  train::ParityReport found = EqualRuns();
  found.first = {.step = 1,
                 .what = "gradient of lm_head.weight",
                 .of_tensor = true,
                 .one_rank = 2,
                 .meshed = std::numeric_limits<double>::quiet_NaN(),
                 .process = 3};

  const document::Json json = ParityJson(found);
  const document::Json& first = json["first_difference"];

  EXPECT_EQ(json["outcome"], "FAIL");
  EXPECT_EQ(first["step"], 1);
  EXPECT_EQ(first["what"], "gradient of lm_head.weight");
  EXPECT_EQ(first["of_tensor"], true);
  EXPECT_EQ(first["one_rank"], 2.0);
  EXPECT_FALSE(first["meshed"].is_number()) << "JSON has no NaN";
  EXPECT_EQ(first["process"], 3);
  EXPECT_EQ(first["message"], found.first->Describe());
}

}  // namespace
}  // namespace isoloss::inspection::parity_json_test
