#include "isoloss/goldens/golden_dumps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "isoloss/formats/mx_block.h"
#include "isoloss/runlog/tensor_dump.h"
#include "support/sample_graph.h"
#include "support/temporary_folder.h"

namespace isoloss::goldens::golden_dumps_test {
namespace {

using ::testing::HasSubstr;

constexpr size_t kRows = 3;
constexpr size_t kCols = 40;  // a whole block and a part of one

/// An operand of a GEMM, quantised along its rows.
runlog::TensorDump Sample(const std::string& module) {
  runlog::DumpedTensor tensor = {.name = module + "_activation",
                                 .module = module,
                                 .kind = "activation",
                                 .rows = kRows,
                                 .cols = kCols};
  for (size_t i = 0; i < kRows * kCols; ++i) {
    tensor.values.push_back(std::sin(static_cast<float>(i)) * 3);
  }
  tensor.segment_ends = {kRows};
  const formats::MxMatrix mx = formats::QuantizeMx(
      {tensor.values.data(), kRows, kCols},
      {&formats::FormatByName("e4m3"), formats::ScaleRule::kRceil});
  tensor.format_rowwise = "e4m3";
  tensor.codes_rowwise.assign(mx.codes.data(),
                              mx.codes.data() + mx.codes.size());
  tensor.scales_rowwise.assign(mx.scales.data(),
                               mx.scales.data() + mx.scales.size());
  return {.run = "mxfp8-seed1",
          .step = 1,
          .tensors = {tensor},
          .graph = test_support::SampleGraph("", module, "layers.1.moe")};
}

/// What is found of one lane that dumps this.
std::string FaultOf(const runlog::TensorDump& dump) {
  const test_support::TemporaryFolder out;
  std::filesystem::create_directory(out.path() / runlog::kDumpFolder);
  runlog::WriteTensorDump(
      dump, out.path() / runlog::kDumpFolder / "mxfp8-seed1.dump-000001.h5");
  return GoldenDumps().Add(out.path(), {});
}

TEST(GoldenDumps, WhatQuantizeMxMakesIsRight) {
  EXPECT_EQ(FaultOf(Sample("layers.0.attention.wq")), "");
}

TEST(GoldenDumps, ACodeThatIsNotTheNearestOneIsFound) {
  runlog::TensorDump dump = Sample("layers.0.attention.wq");
  ++dump.tensors[0].codes_rowwise[5];
  EXPECT_THAT(FaultOf(dump), HasSubstr("element 5 is"));
}

TEST(GoldenDumps, AScaleOfAnotherBlockIsFound) {
  runlog::TensorDump dump = Sample("layers.0.attention.wq");
  dump.tensors[0].scales_rowwise[1] += 3;
  EXPECT_THAT(FaultOf(dump), HasSubstr("a block along a row"));
}

TEST(GoldenDumps, RowsOfExpertsNeedTheExpertIds) {
  runlog::TensorDump dump = Sample("layers.1.moe.routed_experts.w1");
  EXPECT_THAT(FaultOf(dump), HasSubstr("the expert ids of layers.1.moe"));
  runlog::DumpedTensor ids = {.name = "layers.1.moe.router_expert_ids",
                              .module = "layers.1.moe.router",
                              .kind = "expert_ids",
                              .rows = 1,
                              .cols = 1,
                              .values = {0},
                              .segment_ends = {1}};
  ids.order = 1;
  dump.tensors.push_back(ids);
  EXPECT_EQ(FaultOf(dump), "");
}

TEST(GoldenDumps, TwoLanesDumpTheSameBits) {
  const test_support::TemporaryFolder folder;
  GoldenDumps dumps;
  runlog::TensorDump dump = Sample("layers.0.attention.wq");
  for (const std::string lane : {"a", "b"}) {
    const auto out = folder.path() / lane / runlog::kDumpFolder;
    std::filesystem::create_directories(out);
    runlog::WriteTensorDump(dump, out / "mxfp8-seed1.dump-000001.h5");
    const std::string fault = dumps.Add(folder.path() / lane, {});
    if (lane == "a") {
      EXPECT_EQ(fault, "");
    } else {
      EXPECT_THAT(fault, HasSubstr("another lane dumped other bits"));
    }
    float& value = dump.tensors[0].values[1];
    value = std::nextafter(value, 9.0F);  // its code is the same
  }
}

}  // namespace
}  // namespace isoloss::goldens::golden_dumps_test
