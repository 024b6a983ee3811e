#include "isoloss/step_checks/moe_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "isoloss/base/error.h"
#include "step_checks/recorded_step.h"

namespace isoloss::step_checks::moe_check_test {
namespace {

using expert_parallel::Algorithm;
using expert_parallel::MeshConfig;
using expert_parallel::WeightSite;
using isoloss::test_support::ExpectFound;
using isoloss::test_support::ExpectNoOthers;
using isoloss::test_support::OneRank;
using isoloss::test_support::RecordedStep;
using isoloss::test_support::SmallConfig;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kExperts = "layers.1.moe.routed_experts";

model::ModelConfig MoeConfig() {
  model::ModelConfig config = SmallConfig();
  config.num_experts = 8;
  config.top_k = 4;
  return config;
}

/// Four ranks on nodes of two.
MeshConfig FourRanks(expert_parallel::ExchangeOptions options,
                     size_t units = 1) {
  return {.topology = {.experts = 8, .ranks = 4, .ranks_per_node = 2},
          .options = std::move(options),
          .dispatch_units = units};
}

std::function<void(ReportSink&)> CheckOf(const RecordedStep& step) {
  return [&step](ReportSink& sink) {
    CheckMoe(step.record, step.config, 1, step.mesh, step.grid, sink);
  };
}

RecordedStep Step(const MeshConfig& mesh, const std::string& recipe) {
  return {MoeConfig(), mesh, recipe, {32, 32, 32, 32}};
}

TEST(MoeCheck, FindsNothingInCorrectStepsOfOneRank) {
  for (const char* recipe : {"bf16", "mxfp8_rceil", "fp32"}) {
    const RecordedStep step = Step(OneRank(MoeConfig()), recipe);

    ExpectNoOthers(CheckOf(step), recipe);
  }
}

TEST(MoeCheck, FindsNothingInAnyExchange) {
  const auto check = [](const MeshConfig& mesh, const std::string& what) {
    for (const char* recipe : {"bf16", "fp32"}) {
      const RecordedStep step = Step(mesh, recipe);
      ExpectNoOthers(CheckOf(step), what + " " + recipe);
    }
  };

  check(FourRanks({}), "flat");
  check(FourRanks({.weight_site = WeightSite::kExpertOut}), "flat expert_out");
  for (const Algorithm algorithm : {Algorithm::kFlat, Algorithm::kRank,
                                    Algorithm::kNode, Algorithm::kTitanBf16}) {
    for (const WeightSite site :
         {WeightSite::kExpertOut, WeightSite::kBeforeFc2}) {
      check(FourRanks({.algorithm = algorithm, .weight_site = site}),
            "algorithm " + std::to_string(static_cast<int>(algorithm)) +
                ", site " + std::to_string(static_cast<int>(site)));
    }
  }
  check(FourRanks({.padding = 32}, /*units=*/4), "padding and units");
  for (const char* payload : {"mx1x32", "e4m3_1x128_fp32", "e4m3_1x128_pow2"}) {
    check(FourRanks({.payload = payload, .gradient_payload = payload}),
          payload);
  }
}

TEST(MoeCheck, TellsExchangesApart) {
  // What one algorithm computes is no rounding of what another one does.
  const RecordedStep flat =
      Step(FourRanks({.weight_site = WeightSite::kExpertOut}), "bf16");
  const auto others = [&](const MeshConfig& mesh) {
    ReportSink sink;
    CheckMoe(flat.record, flat.config, 1, mesh, flat.grid, sink);
    return isoloss::test_support::Others(sink);
  };

  EXPECT_EQ(others(flat.mesh), 0);
  EXPECT_GT(others(FourRanks({})), 0);
  EXPECT_GT(others(FourRanks({.weight_site = WeightSite::kBeforeFc2})), 0);
  for (const Algorithm algorithm :
       {Algorithm::kRank, Algorithm::kNode, Algorithm::kTitanBf16}) {
    EXPECT_GT(others(FourRanks({.algorithm = algorithm,
                                .weight_site = WeightSite::kExpertOut})),
              0);
  }
  for (const char* payload : {"mx1x32", "e4m3_1x128_fp32", "e4m3_1x128_pow2"}) {
    EXPECT_GT(others(FourRanks(
                  {.weight_site = WeightSite::kExpertOut, .payload = payload})),
              0);
    EXPECT_GT(others(FourRanks({.weight_site = WeightSite::kExpertOut,
                                .gradient_payload = payload})),
              0);
  }
  EXPECT_GT(others(FourRanks({.weight_site = WeightSite::kExpertOut}, 4)), 0);
}

TEST(MoeCheck, FindsAChangeOfEveryTensor) {
  for (const WeightSite site : {WeightSite::kSource, WeightSite::kBeforeFc2}) {
    RecordedStep step = Step(FourRanks({.weight_site = site}), "bf16");
    std::vector<std::string> tensors = {
        "layers.1.ffn_norm_output",
        kExperts + ".w1_activation",
        kExperts + ".w3_activation",
        kExperts + ".w2_output",
        kExperts + "_output",
        "layers.1_gradient",
        kExperts + ".w2_gradient",
        "layers.1.moe.router.topk_weights_gradient",
        kExperts + ".w3_dgrad",
        "layers.1.moe.router.gate_dgrad",
        "layers.1.moe.shared_experts.w3_dgrad",
        "layers.1.ffn_norm_gradient"};
    if (site == WeightSite::kSource) {
      tensors.push_back("layers.1.moe.router.topk_weights_output");
    } else {
      tensors.push_back(kExperts + ".w2_dgrad");
      tensors.push_back(kExperts + ".w1_output");
      tensors.push_back(kExperts + ".w3_output");
    }

    for (const std::string& tensor : tensors) {
      ExpectFound(step.record, tensor, 50, 2, CheckOf(step));
    }
  }
}

TEST(MoeCheck, FindsAnExpertsRowsInAnotherOrder) {
  RecordedStep step = Step(OneRank(MoeConfig()), "bf16");
  Matrix<float>& rows =
      step.record.MutableAt(kExperts + ".w1_activation").values;
  std::swap_ranges(rows.Row(3), rows.Row(4), rows.Row(4));
  ReportSink sink;

  CheckOf(step)(sink);

  EXPECT_GE(sink.comparisons().at(kExperts + ".w1_activation").Row().other,
            static_cast<int64_t>(rows.cols()));
}

TEST(MoeCheck, FindsPaddingThatIsNotZero) {
  RecordedStep step = Step(FourRanks({.padding = 128}), "bf16");
  const RecordedTensor& list = step.record.At(kExperts + ".w1_activation");
  ExpectNoOthers(CheckOf(step), "padded");

  // No expert has 128 rows of 128 tokens.
  ExpectFound(step.record, list.name, list.begins[1] - 1, 0, CheckOf(step));
}

TEST(MoeCheck, FindsListsOfAnotherLength) {
  RecordedStep step = Step(OneRank(MoeConfig()), "bf16");
  step.record.MutableAt(kExperts + ".w1_activation").begins[1] += 1;
  ReportSink sink;

  CheckOf(step)(sink);

  EXPECT_GT(isoloss::test_support::Others(sink), 0);
}

TEST(PlaceRows, OrdersByExpertUnitTokenAndSlotAndPads) {
  Matrix<int32_t> ids(4, 2);
  const std::vector<int32_t> values = {2, 0, 0, 3, 3, 0, 0, 2};
  std::copy(values.begin(), values.end(), ids.data());
  MeshConfig mesh = {.topology = {.experts = 4}, .options = {}};
  mesh.dispatch_units = 2;
  mesh.options.padding = 8;

  const ExpertRows rows = PlaceRows(ids.view(), 4, mesh);

  // Expert 1 has no row, not even of padding; 2 and 3 one in each unit.
  EXPECT_THAT(rows.begins, ElementsAre(0, 16, 16, 32, 48));
  EXPECT_THAT(rows.unit_ends, ElementsAre(8, 16, 0, 0, 8, 16, 8, 16));
  EXPECT_THAT(std::vector<int32_t>(rows.row_of_slot.data(),
                                   rows.row_of_slot.data() + 8),
              ElementsAre(16, 0, 1, 32, 40, 8, 9, 24));
  EXPECT_EQ(rows.token_of_row[9], 3);
  EXPECT_EQ(rows.slot_of_row[9], 0);
  EXPECT_EQ(rows.token_of_row[10], -1);
}

TEST(PlaceRows, RejectsAnExpertThatIsNone) {
  Matrix<int32_t> ids(1, 1);
  ids(0, 0) = 4;

  EXPECT_THROW(
      PlaceRows(ids.view(), 4, {.topology = {.experts = 4}, .options = {}}),
      Error);
}

TEST(AfterPayload, RejectsAPayloadThatItDoesNotKnow) {
  const Matrix<float> rows(1, 4);
  try {
    AfterPayload(rows.view(), "e5m2_1x16", oracle::Grid::kBf16);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    EXPECT_THAT(error.what(), HasSubstr("`e5m2_1x16`"));
  }
}

}  // namespace
}  // namespace isoloss::step_checks::moe_check_test
