#include "isoloss/report/dump_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace isoloss::report::dump_text_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

runlog::DumpedTensor Tensor(int64_t rows) {
  return {.name = "m_activation",
          .module = "m",
          .kind = "activation",
          .rows = rows,
          .cols = 1,
          .values = std::vector<float>(static_cast<size_t>(rows), 1)};
}

TEST(DumpText, TensorsOfDifferentShapeShowBothShapes) {
  const runlog::TensorDump a{.step = 1, .tensors = {Tensor(3)}};
  const runlog::TensorDump b{.step = 1, .tensors = {Tensor(5)}};

  EXPECT_THAT(RenderDumpDifference(compare::CompareDumps(a, b)),
              HasSubstr("[3, 1] against [5, 1]  m_activation"));
}

TEST(DumpText, BlocksShowWhatCodesStandFor) {
  runlog::DumpedTensor tensor = Tensor(1);
  tensor.format_rowwise = "e4m3";
  tensor.codes_rowwise = {0x3c};
  tensor.scales_rowwise = {127};
  const runlog::TensorDump a{.step = 1, .tensors = {tensor}};
  tensor.codes_rowwise = {0x40};
  const runlog::TensorDump b{.step = 1, .tensors = {tensor}};

  EXPECT_THAT(RenderDumpDifference(compare::CompareDumps(a, b)),
              AllOf(HasSubstr("scale A 0x7f (2^0)  B 0x7f (2^0)\n"),
                    HasSubstr("values   A             1.5\n"),
                    HasSubstr("values   B               2\n")));
}

TEST(DumpText, CountsInUnitsOfTheFormatThatTheTensorHas) {
  const auto shown = [](float x, float y) {
    runlog::DumpedTensor tensor = Tensor(1);
    tensor.values = {x};
    const runlog::TensorDump a{.step = 1, .tensors = {tensor}};
    tensor.values = {y};
    const runlog::TensorDump b{.step = 1, .tensors = {tensor}};
    return RenderDumpDifference(compare::CompareDumps(a, b));
  };
  // BF16 has 8 bits of significand: 1/128 is one unit above 1.
  EXPECT_THAT(shown(1, 1 + 3.0F / 128),
              AllOf(HasSubstr("BF16 ulps\n"), HasSubstr("           3\n")));
  EXPECT_THAT(shown(1, 1 + 0x1p-22F),
              AllOf(HasSubstr("FP32 ulps\n"), HasSubstr("           2\n")));
}

TEST(DumpText, SaysWhatIsLeftOutAndWhy) {
  compare::ErrorGrowth growth;
  growth.left_out = {{"layers.1.moe", "expert_ids of 3 of 64 tokens differ"}};

  EXPECT_THAT(RenderErrorGrowth(growth),
              AllOf(HasSubstr("Left out of layers.1.moe: expert_ids of 3"),
                    HasSubstr("layers.1.moe.routed_experts_output")));

  growth.unmeasured = "two models";
  EXPECT_EQ(RenderErrorGrowth(growth),
            "Errors of operations are not measured: two models\n");
  growth.unmeasured.clear();

  growth.left_out[0].rows = false;
  EXPECT_THAT(RenderErrorGrowth(growth), Not(HasSubstr("other tokens")));
}

}  // namespace
}  // namespace isoloss::report::dump_text_test
