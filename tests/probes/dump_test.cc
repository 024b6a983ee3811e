#include "isoloss/probes/dump.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/formats/mx_block.h"
#include "isoloss/probes/graph_columns.h"
#include "isoloss/probes/tensor_probe.h"
#include "isoloss/runlog/tensor_dump.h"
#include "probes/probe_runs.h"
#include "support/sample_graph.h"
#include "support/temporary_folder.h"

namespace isoloss::probes::dump_test {
namespace {

namespace fs = std::filesystem;
using runlog::DumpedTensor;
using runlog::TensorDump;
using test_support::Process;
using test_support::RunProcesses;
using test_support::Setting;

runlog::ModelGraph ProbedGraph() {
  const model::Graph graph = model::GraphOf(test_support::ProbedConfig());
  return ColumnsOf(graph, precision::ResolvedRecipe(
                              precision::RecipeByName("bf16"), graph.Sites()));
}

class DumpTest : public ::testing::Test {
 protected:
  TensorDump DumpOf(const Setting& setting,
                    const std::vector<std::string>& patterns,
                    const precision::Recipe& recipe =
                        precision::RecipeByName("mxfp8_e5m2_grads")) const {
    const ProbeOptions options = {.dump_tensors = patterns,
                                  .dump_steps = {120},
                                  .dump_folder = folder_,
                                  .run_name = "arm-1",
                                  .graph = ProbedGraph()};
    RunProcesses(setting, recipe, [&](Process& process) {
      TensorProbe probe(options, process.mesh, process.executor);
      runlog::RunLog rows;
      probe.BeginStep(120);
      process.Step(probe);
      probe.EndStep(rows);
      EXPECT_TRUE(rows.tensors.step.empty());
    });
    return runlog::ReadTensorDump(folder_ / "arm-1.dump-000120.h5");
  }

  const test_support::TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
};

/// One step keeps what is announced under one name.
struct Keeper : model::TapSink {
  void OnTensor(const model::Tensor& tensor) override {
    ++order;
    if (tensor.Name() != name) return;
    place = order - 1;
    for (size_t row = 0; row < tensor.values.rows(); ++row) {
      values.insert(values.end(), tensor.values.Row(row),
                    tensor.values.Row(row) + tensor.values.cols());
    }
  }
  void OnRouting(std::string_view, MatrixView<const int32_t>, size_t) override {
  }

  std::string name;
  std::vector<float> values;
  int64_t order = 0;
  int64_t place = -1;
};

TEST_F(DumpTest, HoldsTheAnnouncedTensor) {
  const std::string name = "layers.1.moe.routed_experts.w2_gradient";
  Keeper keeper;
  keeper.name = name;
  RunProcesses({}, "mxfp8_e5m2_grads",
               [&](Process& process) { process.Step(keeper); });

  const TensorDump dump = DumpOf({}, {name});

  EXPECT_EQ(dump.run, "arm-1");
  EXPECT_EQ(dump.step, 120);
  ASSERT_FALSE(dump.tensors.empty());
  for (const DumpedTensor& other : dump.tensors) {
    EXPECT_TRUE(other.name == name || other.kind == "expert_ids") << other.name;
  }
  const DumpedTensor& tensor = dump.tensors.back();
  EXPECT_EQ(tensor.name, name);
  EXPECT_EQ(tensor.module, "layers.1.moe.routed_experts.w2");
  EXPECT_EQ(tensor.kind, "gradient");
  EXPECT_EQ(tensor.order, keeper.place);
  EXPECT_EQ(tensor.rows, 256 * 3);
  EXPECT_EQ(tensor.cols, 40);
  EXPECT_EQ(tensor.values, keeper.values);
  EXPECT_EQ(tensor.format_rowwise, "e5m2");
  EXPECT_EQ(tensor.format_columnwise, "e5m2");
}

TEST_F(DumpTest, CodesAreThoseOfTheGemms) {
  const TensorDump dump = DumpOf({}, {"layers.0.attention.wo_activation"});

  const DumpedTensor& tensor = dump.tensors.at(0);
  const formats::Quantization spec = {&formats::FormatByName("e4m3")};
  const MatrixView<const float> values(tensor.values.data(), 256, 36);
  const formats::MxMatrix rowwise = formats::QuantizeMx(values, spec);
  EXPECT_TRUE(std::equal(tensor.codes_rowwise.begin(),
                         tensor.codes_rowwise.end(), rowwise.codes.data(),
                         rowwise.codes.data() + rowwise.codes.size()));
  EXPECT_TRUE(std::equal(tensor.scales_rowwise.begin(),
                         tensor.scales_rowwise.end(), rowwise.scales.data(),
                         rowwise.scales.data() + rowwise.scales.size()));

  // Four sequences of two blocks each.
  EXPECT_EQ(tensor.segment_ends, (std::vector<int64_t>{64, 128, 192, 256}));
  ASSERT_EQ(tensor.scales_columnwise.size(), 8u * 36);
  for (size_t block = 0; block < 8; ++block) {
    for (size_t col = 0; col < 36; ++col) {
      std::vector<float> column(32);
      for (size_t i = 0; i < 32; ++i) column[i] = values(32 * block + i, col);
      EXPECT_EQ(tensor.scales_columnwise[block * 36 + col],
                formats::MxScale(column, spec));
      const formats::MxMatrix mx =
          formats::QuantizeMx({column.data(), 1, 32}, spec);
      for (size_t i = 0; i < 32; ++i) {
        EXPECT_EQ(tensor.codes_columnwise[(32 * block + i) * 36 + col],
                  mx.codes(0, i));
      }
    }
  }
}

TEST_F(DumpTest, DoesNotDependOnProcesses) {
  // Tokens, experts' rows, weights of both kinds, their gradients.
  const std::vector<std::string> patterns = {"wo_", "routed_experts.w2_",
                                             "norm_output"};
  const TensorDump expected = DumpOf({}, patterns);
  ASSERT_GE(expected.tensors.size(), 12u);

  for (const Setting& setting : {Setting{.ranks = 2, .processes = 2},
                                 Setting{.ranks = 4, .processes = 4}}) {
    EXPECT_TRUE(DumpOf(setting, patterns) == expected) << setting.processes;
  }
}

/// Keeps what an operand of general descriptions is announced with.
struct StateKeeper : model::TapSink {
  void OnTensor(const model::Tensor& tensor) override {
    if (tensor.Name() != name) return;
    rowwise = *tensor.rowwise;
    columnwise = *tensor.columnwise;
    again = tensor.columnwise_again;
    states = {tensor.rowwise_states.begin(), tensor.rowwise_states.end()};
  }
  void OnRouting(std::string_view, MatrixView<const int32_t>, size_t) override {
  }

  std::string name;
  formats::Quantization rowwise;
  formats::Quantization columnwise;
  bool again = false;
  std::vector<kernels::OperandState> states;
};

TEST_F(DumpTest, OperandsWithCellsAreThoseOfTheGemms) {
  const std::string name = "layers.0.attention.wo_activation";
  StateKeeper keeper;
  keeper.name = name;
  RunProcesses({}, test_support::GeneralRecipe(),
               [&](Process& process) { process.Step(keeper); });

  const TensorDump dump = DumpOf({}, {name}, test_support::GeneralRecipe());

  const DumpedTensor& tensor = dump.tensors.at(0);
  EXPECT_EQ(tensor.format_rowwise, "e2m1·te·e4m3·1x16·two_level·stochastic8");
  EXPECT_EQ(tensor.format_columnwise,
            "e4m3·rceil of e2m1·te·e4m3·1x16·two_level·stochastic8");
  EXPECT_TRUE(keeper.again);
  ASSERT_EQ(keeper.states.size(), 1u);
  const runlog::DumpedCells& cells = tensor.cells_rowwise;
  EXPECT_EQ(cells.extents, (std::vector<int64_t>{1, 16, 1}));
  ASSERT_EQ(cells.tensor_scales.size(), 4u);
  const runlog::DumpedCells& down = tensor.cells_columnwise;
  for (size_t sequence = 0; sequence < 4; ++sequence) {
    const MatrixView<const float> rows(&tensor.values[sequence * 64 * 36], 64,
                                       36);
    const formats::QuantizedTensor expected =
        formats::Quantize(rows, keeper.rowwise, keeper.states[0].Of(sequence));
    EXPECT_EQ(cells.tensor_scales[sequence], expected.tensor_scale);
    for (size_t i = 0; i < expected.codes.size(); ++i) {
      ASSERT_EQ(cells.codes[sequence * 64 * 36 + i],
                static_cast<int32_t>(expected.codes.data()[i]));
    }
    for (size_t i = 0; i < expected.scales.size(); ++i) {
      ASSERT_EQ(cells.scales[sequence * 64 * 3 + i], expected.scales.data()[i]);
    }
    const Matrix<float> once = formats::Dequantize(expected, keeper.rowwise);
    Matrix<float> columns(36, 64);
    for (size_t i = 0; i < 64; ++i) {
      for (size_t j = 0; j < 36; ++j) columns(j, i) = once(i, j);
    }
    const formats::QuantizedTensor twice =
        formats::Quantize(columns.view(), keeper.columnwise);
    for (size_t i = 0; i < twice.codes.size(); ++i) {
      ASSERT_EQ(down.codes[sequence * 64 * 36 + i],
                static_cast<int32_t>(twice.codes.data()[i]));
    }
  }
}

TEST_F(DumpTest, OperandsWithCellsDoNotDependOnProcesses) {
  const std::vector<std::string> patterns = {"wo_", "routed_experts.w2_"};
  const precision::Recipe recipe = test_support::GeneralRecipe();
  const TensorDump expected = DumpOf({}, patterns, recipe);
  const auto with_cells =
      std::ranges::count_if(expected.tensors, [](const DumpedTensor& tensor) {
        return !tensor.cells_rowwise.codes.empty() &&
               !tensor.cells_columnwise.codes.empty();
      });
  EXPECT_EQ(with_cells, 2 * 3 + 3);

  EXPECT_TRUE(DumpOf({.ranks = 4, .processes = 4}, patterns, recipe) ==
              expected);
}

TEST_F(DumpTest, DoesNotDependOnCopiesOfExperts) {
  const std::vector<std::string> patterns = {"routed_experts.w2_"};
  const TensorDump expected = DumpOf({.ranks = 4, .units = 4}, patterns);

  EXPECT_TRUE(DumpOf({.ranks = 4, .processes = 4, .copies = 2, .units = 4},
                     patterns) == expected);
}

/// Passes tensors and choices of experts on to a dumper.
struct DumperTap : model::TapSink {
  DumperTap(TensorDumper& to, expert_parallel::Mesh& of)
      : dumper(to), mesh(of) {}
  void OnTensor(const model::Tensor& tensor) override {
    dumper.Add(tensor, mesh);
  }
  void OnRouting(std::string_view module, MatrixView<const int32_t> expert_ids,
                 size_t first_token) override {
    dumper.AddRouting(module, expert_ids, first_token, mesh);
    if (ids.empty()) {
      ids.assign(expert_ids.Row(0),
                 expert_ids.Row(0) + expert_ids.rows() * expert_ids.cols());
    }
  }

  TensorDumper& dumper;
  expert_parallel::Mesh& mesh;
  std::vector<float> ids;  // of the first layer with experts
};

TEST_F(DumpTest, ExpertIdsStandBesideRowsOfExpertsWhateverTheProcesses) {
  std::vector<float> ids;
  const runlog::ModelGraph graph = ProbedGraph();
  for (const Setting& setting :
       {Setting{}, Setting{.ranks = 2, .processes = 2}}) {
    RunProcesses(setting, "bf16", [&](Process& process) {
      TensorDumper dumper(graph);
      dumper.Begin(7, {"layers.1.moe.routed_experts.w1_activation"});
      DumperTap tap(dumper, process.mesh);
      process.Step(tap);
      dumper.Write(folder_, "x");
      if (setting.processes == 1) ids = tap.ids;
    });
    const TensorDump dump =
        runlog::ReadTensorDump(folder_ / DumpFileName("x", 7));
    ASSERT_EQ(dump.tensors.size(), 2u);
    EXPECT_EQ(dump.tensors[0].name, "layers.1.moe.router_expert_ids");
    EXPECT_EQ(dump.tensors[0].module, "layers.1.moe.router");
    EXPECT_EQ(dump.tensors[0].kind, "expert_ids");
    EXPECT_EQ(dump.tensors[0].values, ids);
  }
}

/// A dump with a tensor of each kind.
TensorDump Sample() {
  DumpedTensor plain = {.name = "a.b_output",
                        .module = "a.b",
                        .kind = "output",
                        .order = 3,
                        .rows = 2,
                        .cols = 3,
                        .values = {1, -2, 3, 0.5f, -0.0f, 6},
                        .segment_ends = {2}};
  DumpedTensor operand = plain;
  operand.name = "a.b_weight";
  operand.kind = "weight";
  operand.format_rowwise = "e4m3";
  operand.codes_rowwise = {1, 2, 3, 4, 5, 255};
  operand.scales_rowwise = {127, 128};
  operand.format_columnwise = "e5m2";
  operand.codes_columnwise = {6, 5, 4, 3, 2, 1};
  operand.scales_columnwise = {1, 2, 3};
  DumpedTensor cells = plain;
  cells.name = "a.b_activation";
  cells.kind = "activation";
  cells.segment_ends = {1, 2};
  cells.format_rowwise = "fp16·none";
  cells.cells_rowwise = {{1, 32, 1}, {1, 2, 0x7fff, 4, 5, 6}, {1, 1}, {1, 1}};
  // Columns of one row each, filled up to 16, in cells of two and one.
  cells.format_columnwise = "e4m3·te·fp32·2x0·hadamard16";
  cells.cells_columnwise = {
      {2, 0, 16}, std::vector<int32_t>(2 * 3 * 16, 7), {1, 2, 3, 4}, {1, 1}};
  DumpedTensor empty = {
      .name = "a.b_dgrad", .module = "a.b", .kind = "dgrad", .cols = 5};
  return {.run = "run",
          .step = 7,
          .tensors = {plain, operand, cells, empty},
          .graph = test_support::GemmGraph("a.b")};
}

TEST_F(DumpTest, ReadsWhatWasWritten) {
  const fs::path path = folder_ / "sample.h5";

  runlog::WriteTensorDump(Sample(), path);

  EXPECT_TRUE(runlog::ReadTensorDump(path) == Sample());
}

TEST_F(DumpTest, RejectsArraysThatDoNotFit) {
  TensorDump dump = Sample();
  dump.tensors[1].scales_columnwise.push_back(0);

  EXPECT_THROW(runlog::WriteTensorDump(dump, folder_ / "sample.h5"), Error);
  EXPECT_FALSE(fs::exists(folder_ / "sample.h5"));
}

TEST_F(DumpTest, RejectsCellsThatDoNotFit) {
  const auto rejected = [&](auto spoil) {
    TensorDump dump = Sample();
    spoil(dump.tensors[2].cells_columnwise);
    EXPECT_THROW(runlog::WriteTensorDump(dump, folder_ / "sample.h5"), Error);
  };

  rejected([](auto& cells) { cells.codes.pop_back(); });
  rejected([](auto& cells) { cells.scales.push_back(1); });
  rejected([](auto& cells) { cells.tensor_scales.pop_back(); });
  rejected([](auto& cells) { cells.extents = {}; });
  rejected([](auto& cells) { cells.extents[2] = 0; });
  rejected([](auto& cells) { cells.extents[1] = -1; });
  rejected([](auto& cells) { cells.extents[0] = int64_t{1} << 62; });
}

TEST_F(DumpTest, RejectsSegmentsThatDoNotCoverTheRows) {
  TensorDump dump = Sample();
  dump.tensors[0].segment_ends = {1};

  EXPECT_THROW(runlog::WriteTensorDump(dump, folder_ / "sample.h5"), Error);
}

TEST_F(DumpTest, RefusesAGraphThatDoesNotKnowItsTensors) {
  const fs::path path = folder_ / "sample.h5";
  const auto refused = [&](auto spoil) {
    TensorDump dump = Sample();
    spoil(dump);
    runlog::WriteTensorDump(dump, path);
    EXPECT_THROW(runlog::ReadTensorDump(path), Error);
  };

  refused([](auto& dump) { dump.graph = {}; });
  refused([](auto& dump) { dump.tensors[1].kind = "wgrad"; });
  refused([](auto& dump) { dump.graph.tensors.phase[0] = "later"; });
  refused([](auto& dump) { dump.graph.tensors.name[0] = "a.b_output"; });
  for (const int64_t place : {int64_t{-1}, int64_t{0}, int64_t{3}}) {
    refused([place](auto& dump) {
      dump.graph.inputs = {.tensor = {0}, .input = {place}};
    });
  }
}

TEST_F(DumpTest, EveryDamagedByteIsSeen) {
  const fs::path path = folder_ / "sample.h5";
  runlog::WriteTensorDump(Sample(), path);
  std::ifstream in(path, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(in)),
                    std::istreambuf_iterator<char>());
  for (size_t at = 0; at < bytes.size(); at += 131) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 16);
    std::ofstream(path, std::ios::binary | std::ios::trunc) << damaged;

    EXPECT_THROW(runlog::ReadTensorDump(path), Error) << at;
  }
}

}  // namespace
}  // namespace isoloss::probes::dump_test
