#include "isoloss/compare/dump_difference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "isoloss/base/error.h"

namespace isoloss::compare::dump_difference_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// 3 rows of 40 columns: two blocks a row, the second of 8. Down columns two
/// segments, of 2 rows and of 1. All values, codes and scales distinct.
runlog::DumpedTensor Tensor(const std::string& module, int64_t order) {
  runlog::DumpedTensor tensor{.name = module + "_activation",
                              .module = module,
                              .kind = "activation",
                              .order = order,
                              .rows = 3,
                              .cols = 40,
                              .segment_ends = {2, 3},
                              .format_rowwise = "e4m3",
                              .format_columnwise = "e4m3"};
  for (int i = 0; i < 120; ++i) {
    tensor.values.push_back(1.0F + static_cast<float>(i));
    tensor.codes_rowwise.push_back(static_cast<uint8_t>(i));
    tensor.codes_columnwise.push_back(static_cast<uint8_t>(255 - i));
  }
  for (int i = 0; i < 6; ++i) {
    tensor.scales_rowwise.push_back(static_cast<uint8_t>(120 + i));
  }
  for (int i = 0; i < 80; ++i) {
    tensor.scales_columnwise.push_back(static_cast<uint8_t>(i));
  }
  return tensor;
}

runlog::TensorDump Dump() {
  return {.run = "r",
          .step = 7,
          .tensors = {Tensor("a", 0), Tensor("b", 1), Tensor("c", 2),
                      Tensor("d", 3), Tensor("e", 4)}};
}

TEST(CompareDumps, EqualDumpsHaveNoDifference) {
  const DumpDifference difference = CompareDumps(Dump(), Dump());

  EXPECT_THAT(difference.tensors, IsEmpty());
  EXPECT_EQ(difference.equal, 5);
}

TEST(CompareDumps, NamesTheFirstTensorAndItsElements) {
  auto b = Dump();
  b.tensors[3].values[41] = std::nextafter(42.0F, 43.0F);
  b.tensors[3].values[119] = 124.0F;
  b.tensors[4].values[0] = kNan;

  const DumpDifference difference = CompareDumps(Dump(), b);

  ASSERT_THAT(difference.tensors, SizeIs(2));
  const TensorDifference& first = difference.tensors[0];
  EXPECT_EQ(first.name, "d_activation");
  EXPECT_THAT(difference.agreeing_before_first,
              ElementsAre("a_activation", "b_activation", "c_activation"));
  EXPECT_EQ(difference.equal, 3);
  EXPECT_EQ(first.differing, 2);
  EXPECT_EQ(first.elements, 120);
  EXPECT_EQ(first.max_abs, 4);
  ASSERT_THAT(first.first_elements, SizeIs(2));
  EXPECT_EQ(first.first_elements[0].row, 1);
  EXPECT_EQ(first.first_elements[0].col, 1);
  EXPECT_EQ(first.first_elements[1].row, 2);
  EXPECT_EQ(first.first_elements[1].col, 39);
  EXPECT_FALSE(first.rowwise.has_value());
  EXPECT_TRUE(std::isnan(difference.tensors[1].max_abs));
  EXPECT_TRUE(std::isnan(difference.tensors[1].relative_l2));
}

TEST(CompareDumps, FindsTheFirstBlockAlongRows) {
  auto b = Dump();
  b.tensors[0].codes_rowwise[40 + 35] = 200;  // row 1, column 35: block 3
  b.tensors[0].scales_rowwise[5] = 1;         // row 2, second block

  const DumpDifference difference = CompareDumps(Dump(), b);

  ASSERT_THAT(difference.tensors, SizeIs(1));
  EXPECT_EQ(difference.tensors[0].differing, 0) << "values are equal";
  const auto& block = difference.tensors[0].rowwise;
  ASSERT_TRUE(block.has_value());
  EXPECT_EQ(block->row, 1);
  EXPECT_EQ(block->col, 32);
  EXPECT_EQ(block->scale_a, 123);
  EXPECT_EQ(block->scale_b, 123);
  EXPECT_THAT(block->codes_a, ElementsAre(72, 73, 74, 75, 76, 77, 78, 79));
  EXPECT_THAT(block->codes_b, ElementsAre(72, 73, 74, 200, 76, 77, 78, 79));
  EXPECT_EQ(block->count, 2);
  EXPECT_EQ(block->of, 6);
  EXPECT_FALSE(difference.tensors[0].columnwise.has_value());
}

TEST(CompareDumps, BlocksDownColumnsStartAnewInEachSegment) {
  auto b = Dump();
  b.tensors[0].scales_columnwise[40 + 5] = 99;  // second segment, column 5

  const auto block = CompareDumps(Dump(), b).tensors.at(0).columnwise;

  ASSERT_TRUE(block.has_value());
  EXPECT_EQ(block->row, 2);
  EXPECT_EQ(block->col, 5);
  EXPECT_EQ(block->scale_a, 45);
  EXPECT_EQ(block->scale_b, 99);
  EXPECT_THAT(block->codes_a, ElementsAre(255 - 85));
  EXPECT_EQ(block->of, 80);
}

TEST(CompareDumps, OtherFormatsAreAChoiceOtherShapesADifference) {
  auto b = Dump();
  b.tensors[0].format_rowwise = "";
  b.tensors[0].codes_rowwise.clear();
  b.tensors[0].scales_rowwise.clear();
  EXPECT_THAT(CompareDumps(Dump(), b).tensors, IsEmpty());

  b.tensors[0].rows = 40;
  b.tensors[0].cols = 3;
  EXPECT_THAT(CompareDumps(Dump(), b).tensors.at(0).shape_b,
              ElementsAre(40, 3));
}

/// The same values in cells of one row and 16 columns, segments of 2 rows and
/// 1; down columns in whole tensors.
runlog::DumpedTensor WithCells() {
  runlog::DumpedTensor tensor = Tensor("a", 0);
  tensor.format_rowwise = "e2m1·te·e4m3·1x16·two_level";
  tensor.format_columnwise = "fp16·none";
  tensor.codes_rowwise = tensor.codes_columnwise = {};
  tensor.scales_rowwise = tensor.scales_columnwise = {};
  tensor.cells_rowwise = {.extents = {1, 16, 1},
                          .codes = std::vector<int32_t>(120, 2),
                          .scales = std::vector<float>(9, 0.5F),
                          .tensor_scales = {3, 5}};
  tensor.cells_columnwise = {.extents = {0, 0, 1},
                             .codes = std::vector<int32_t>(120, 15),
                             .scales = {1, 1},
                             .tensor_scales = {1, 1}};
  return tensor;
}

TEST(CompareDumps, FindsTheFirstCell) {
  auto a = Dump();
  a.tensors[0] = WithCells();
  auto b = a;
  EXPECT_THAT(CompareDumps(a, b).tensors, IsEmpty());
  b.tensors[0].cells_rowwise.codes[40 + 37] = 6;  // row 1, third cell
  b.tensors[0].cells_rowwise.scales[7] = 0.25F;   // row 2, second cell
  b.tensors[0].cells_columnwise.tensor_scales[1] = 2;

  const DumpDifference difference = CompareDumps(a, b);

  ASSERT_THAT(difference.tensors, SizeIs(1));
  const auto& row = difference.tensors[0].cells_rowwise;
  ASSERT_TRUE(row.has_value());
  EXPECT_EQ(row->segment, 0);
  EXPECT_EQ(row->row, 1);
  EXPECT_EQ(row->col, 37);
  EXPECT_EQ(row->code_a, 2);
  EXPECT_EQ(row->code_b, 6);
  EXPECT_EQ(row->scale_a, 1.5F);
  EXPECT_EQ(row->scale_b, 1.5F);
  EXPECT_EQ(row->count, 2);
  EXPECT_EQ(row->of, 9);
  const auto& column = difference.tensors[0].cells_columnwise;
  ASSERT_TRUE(column.has_value());
  EXPECT_EQ(column->segment, 1);
  EXPECT_EQ(column->code_a, 15);
  EXPECT_EQ(column->scale_a, 1);
  EXPECT_EQ(column->scale_b, 2);
  EXPECT_EQ(column->count, 1);
  EXPECT_EQ(column->of, 2);
  EXPECT_FALSE(difference.tensors[0].rowwise.has_value());
}

TEST(CompareDumps, CellsAndBlocksAreNotCompared) {
  auto b = Dump();
  b.tensors[0] = WithCells();
  EXPECT_THAT(CompareDumps(Dump(), b).tensors, IsEmpty());
  EXPECT_THAT(CompareDumps(b, Dump()).tensors, IsEmpty());

  auto other = b;
  other.tensors[0].format_rowwise = "e2m1·torchao·e4m3·1x16·two_level";
  other.tensors[0].cells_rowwise.codes[0] = 1;
  EXPECT_THAT(CompareDumps(b, other).tensors, IsEmpty());
}

TEST(CompareDumps, ShowsOperandsWithCellsDecoded) {
  auto a = Dump();
  a.tensors[0] = WithCells();
  auto b = Dump();
  runlog::DumpedTensor output = Tensor("a", 9);
  output.name = "a_output";
  output.kind = "output";
  a.tensors.push_back(output);
  output.values[2 * 40] = -1;
  b.tensors.push_back(output);

  const DumpDifference difference = CompareDumps(a, b);

  ASSERT_THAT(difference.operands, SizeIs(2));
  const OperandBlock& block = difference.operands[0];
  EXPECT_EQ(block.tensor, "a_activation");
  EXPECT_EQ(block.row, 2);
  EXPECT_THAT(block.a.codes, IsEmpty());
  // E2M1's code 2 is 1, times 0.5, times 5 of the second segment.
  EXPECT_EQ(block.a.values, std::vector<float>(32, 2.5F));
  EXPECT_EQ(block.b.format, "e4m3");
}

TEST(CompareDumps, ListsTensorsOfOneDumpOnlyAndRefusesWhatHasNothingInCommon) {
  auto b = Dump();
  b.tensors.erase(b.tensors.begin());
  b.tensors[0].name = "x_activation";
  const DumpDifference difference = CompareDumps(Dump(), b);
  EXPECT_THAT(difference.only_a, ElementsAre("a_activation", "b_activation"));
  EXPECT_THAT(difference.only_b, ElementsAre("x_activation"));

  b.step = 8;
  EXPECT_THROW(CompareDumps(Dump(), b), Error);
  b.step = 7;
  b.tensors.resize(1);
  EXPECT_THROW(CompareDumps(Dump(), b), Error);
}

TEST(UlpDistance, CountsRepresentableValuesAcrossZero) {
  const float least = std::numeric_limits<float>::denorm_min();

  EXPECT_EQ(UlpDistance(1.0F, std::nextafter(1.0F, 2.0F)), 1);
  EXPECT_EQ(UlpDistance(-least, least), 2);
  EXPECT_EQ(UlpDistance(0.0F, -0.0F), 0);
  EXPECT_EQ(UlpDistance(1.0F, 2.0F), 1 << 23);
  EXPECT_FALSE(UlpDistance(kNan, 1.0F).has_value());
}

TEST(RelativeL2, IsExactWhereTheArithmeticIs) {
  EXPECT_EQ(RelativeL2({3, 4}, {3, 4}), 0);
  EXPECT_EQ(RelativeL2({3, 4}, {6, 8}), 1);
  EXPECT_EQ(RelativeL2({kNan, 4}, {kNan, 2}), 0.5) << "equal bits count as 0";
  EXPECT_TRUE(std::isinf(RelativeL2({0, 0}, {1, 0})));
  EXPECT_TRUE(std::isnan(RelativeL2({1, 0}, {kNan, 0})));
}

TEST(DumpDifference, ShowsTheOperandsOfAProductThatOneRunQuantises) {
  // 1.5 * 2^(127 - 127): e4m3 code 0x3c is 1.5, 0x40 is 2.
  runlog::DumpedTensor activation{.name = "m_activation",
                                  .module = "m",
                                  .kind = "activation",
                                  .rows = 1,
                                  .cols = 2,
                                  .values = {1.5F, 2.0625F}};
  runlog::DumpedTensor output{.name = "m_output",
                              .module = "m",
                              .kind = "output",
                              .order = 1,
                              .rows = 1,
                              .cols = 1,
                              .values = {1}};
  const runlog::TensorDump a{.step = 1, .tensors = {activation, output}};
  activation.format_rowwise = "e4m3";
  activation.codes_rowwise = {0x3c, 0x40};
  activation.scales_rowwise = {127};
  output.values = {2};
  const runlog::TensorDump b{.step = 1, .tensors = {activation, output}};

  const DumpDifference difference = CompareDumps(a, b);

  ASSERT_EQ(difference.operands.size(), 1u);
  const OperandBlock& block = difference.operands[0];
  EXPECT_EQ(block.tensor, "m_activation");
  EXPECT_TRUE(block.a.codes.empty());
  EXPECT_EQ(block.a.values, (std::vector<float>{1.5F, 2.0625F}));
  EXPECT_EQ(block.b.codes, (std::vector<uint8_t>{0x3c, 0x40}));
  EXPECT_EQ(block.b.values, (std::vector<float>{1.5F, 2.0F}));
}

TEST(DumpDifference, BlocksAreDecoded) {
  runlog::DumpedTensor tensor{.name = "m_activation",
                              .module = "m",
                              .kind = "activation",
                              .rows = 1,
                              .cols = 2,
                              .values = {1.5F, 2},
                              .format_rowwise = "e4m3",
                              .codes_rowwise = {0x3c, 0x40},
                              .scales_rowwise = {127}};
  const runlog::TensorDump a{.step = 1, .tensors = {tensor}};
  tensor.scales_rowwise = {128};
  const runlog::TensorDump b{.step = 1, .tensors = {tensor}};

  const auto difference = CompareDumps(a, b);

  ASSERT_EQ(difference.tensors.size(), 1u);
  ASSERT_TRUE(difference.tensors[0].rowwise.has_value());
  EXPECT_EQ(difference.tensors[0].rowwise->decoded_a,
            (std::vector<float>{1.5F, 2}));
  EXPECT_EQ(difference.tensors[0].rowwise->decoded_b,
            (std::vector<float>{3, 4}));
}

}  // namespace
}  // namespace isoloss::compare::dump_difference_test
