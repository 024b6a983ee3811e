#include "isoloss/probes/tensor_probe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "isoloss/model/operand_states.h"
#include "isoloss/probes/graph_columns.h"
#include "isoloss/runlog/relations.h"
#include "probes/probe_runs.h"

namespace isoloss::probes::tensor_probe_test {
namespace {

using runlog::TensorColumns;
using test_support::Process;
using test_support::RunProcesses;
using test_support::Setting;

const ProbeOptions kEverything = {.statistics = {.first = 1, .every = 0},
                                  .digests = {.first = 1, .every = 0}};

/// The row of one step, of process 0.
TensorColumns ColumnsOf(
    const Setting& setting, const ProbeOptions& options = kEverything,
    int64_t step = 1,
    const precision::Recipe& recipe = precision::RecipeByName("mxfp8_rceil")) {
  runlog::RunLog rows;
  RunProcesses(setting, recipe, [&](Process& process) {
    TensorProbe probe(options, process.mesh, process.executor);
    runlog::RunLog mine;
    probe.BeginStep(step);
    process.Step(probe);
    probe.EndStep(mine);
    if (process.mesh.process() == 0) rows = std::move(mine);
    if (process.mesh.process() != 0) {
      EXPECT_TRUE(mine.tensors.step.empty());
    }
  });
  return rows.tensors;
}

/// Equal to the bit, but for payloads of NaN.
void ExpectEqual(const TensorColumns& a, const TensorColumns& b) {
  ASSERT_EQ(a.names, b.names);
  EXPECT_EQ(a.step, b.step);
  for (size_t i = 0; i < a.names.size(); ++i) {
    EXPECT_EQ(a.digest[i], b.digest[i]) << a.names[i];
  }
  for (size_t s = 0; s < a.statistics.size(); ++s) {
    ASSERT_EQ(a.statistics[s].size(), b.statistics[s].size());
    for (size_t i = 0; i < a.statistics[s].size(); ++i) {
      const double x = a.statistics[s][i];
      const double y = b.statistics[s][i];
      EXPECT_TRUE(std::memcmp(&x, &y, sizeof(x)) == 0 ||
                  (std::isnan(x) && std::isnan(y)))
          << a.names[i] << " " << runlog::kTensorStatistics[s].name << ": " << x
          << " against " << y;
    }
  }
  EXPECT_EQ(a.e8m0_histogram, b.e8m0_histogram);
  EXPECT_EQ(a.e8m0_histogram_columnwise, b.e8m0_histogram_columnwise);
}

std::ptrdiff_t PlaceOf(const TensorColumns& columns, const std::string& name) {
  const auto found =
      std::find(columns.names.begin(), columns.names.end(), name);
  EXPECT_NE(found, columns.names.end()) << name;
  return found - columns.names.begin();
}

TEST(StepChoice, IncludesTheFirstAndEveryNth) {
  const StepChoice choice = {.first = 2, .every = 5};

  EXPECT_TRUE(choice.Includes(1));
  EXPECT_TRUE(choice.Includes(2));
  EXPECT_FALSE(choice.Includes(3));
  EXPECT_TRUE(choice.Includes(5));
  EXPECT_TRUE(choice.Includes(10));
  EXPECT_FALSE(choice.Includes(0));
  EXPECT_FALSE(StepChoice{}.Includes(1));
  EXPECT_FALSE(StepChoice{}.any());
}

TEST(TensorProbe, RowsDoNotDependOnRanksProcessesOrThreads) {
  const TensorColumns expected = ColumnsOf({});
  ASSERT_GT(expected.count, 100);

  for (const Setting& setting :
       {Setting{.threads = 3}, Setting{.ranks = 2}, Setting{.ranks = 4},
        Setting{.ranks = 2, .processes = 2},
        Setting{.ranks = 4, .processes = 2},
        Setting{.ranks = 4, .processes = 4}}) {
    SCOPED_TRACE(::testing::Message()
                 << setting.ranks << " ranks, " << setting.processes
                 << " processes, " << setting.threads << " threads");
    ExpectEqual(ColumnsOf(setting), expected);
  }
}

TEST(TensorProbe, RowsDoNotDependOnCopiesOfExperts) {
  const TensorColumns expected = ColumnsOf({.ranks = 4, .units = 4});

  for (const Setting& setting :
       {Setting{.ranks = 4, .copies = 2, .units = 4},
        Setting{.ranks = 4, .processes = 2, .units = 4},
        Setting{.ranks = 4, .processes = 2, .copies = 2, .units = 4},
        Setting{.ranks = 4, .processes = 4, .copies = 2, .units = 4},
        Setting{.ranks = 4, .processes = 4, .copies = 4, .units = 4}}) {
    SCOPED_TRACE(::testing::Message() << setting.processes << " processes, "
                                      << setting.copies << " copies");
    ExpectEqual(ColumnsOf(setting), expected);
  }
}

TEST(TensorProbe, GeneralOperandsDoNotDependOnProcessesOrCopies) {
  const precision::Recipe recipe = test_support::GeneralRecipe();
  const auto columns = [&](const Setting& setting) {
    return ColumnsOf(setting, kEverything, 1, recipe);
  };

  ExpectEqual(columns({.ranks = 4, .processes = 4, .threads = 2}), columns({}));
  ExpectEqual(columns({.ranks = 4, .processes = 4, .copies = 2, .units = 4}),
              columns({.ranks = 4, .units = 4}));
}

TEST(TensorProbe, GeneralOperandsObeyTheRulesOfTheirDescriptions) {
  const precision::Recipe recipe = test_support::GeneralRecipe();
  runlog::RunLog log;
  log.tensors = ColumnsOf({}, kEverything, 1, recipe);
  const model::Graph graph = model::GraphOf(test_support::ProbedConfig());
  log.provenance.graph = probes::ColumnsOf(
      graph, precision::ResolvedRecipe(recipe, graph.Sites()));
  const auto wrong = [&] {
    return runlog::UndefinedStatistic(log) + runlog::WrongMoments(log) +
           runlog::WrongShares(log) + runlog::WrongScales(log) +
           runlog::WrongErrors(log);
  };
  EXPECT_EQ(wrong(), "");

  // A log that says it is of MX blocks may not have these numbers.
  const auto described = log.provenance.graph;
  log.provenance.graph = {};
  EXPECT_NE(runlog::UndefinedStatistic(log), "");
  EXPECT_NE(runlog::WrongScales(log), "");
  log.provenance.graph = described;
  const auto at = static_cast<size_t>(
      PlaceOf(log.tensors, "layers.0.attention.wo_activation"));
  log.tensors.e8m0_histogram[at * runlog::kScaleBytes + 120] = 1;
  EXPECT_NE(runlog::WrongScales(log), "");
  log.tensors.e8m0_histogram[at * runlog::kScaleBytes + 120] = 0;
  auto& largest = log.tensors.statistics[runlog::kStat_scale_inv_max];
  largest[at] = std::nan("");
  EXPECT_NE(runlog::UndefinedStatistic(log), "");
}

/// What operands of products draw from, by site, product and side.
using Streams = std::map<std::string, std::vector<uint64_t>>;

void Note(const kernels::OperandState* state, const std::string& name,
          Streams& streams) {
  if (state == nullptr) return;
  for (const uint64_t bits : {state->common.seed, state->common.stream,
                              state->common.transform_key}) {
    streams[name].push_back(bits);
  }
  streams[name].push_back(state->first_tensor);
}

struct StateTap : model::TapSink {
  void OnTensor(const model::Tensor& tensor) override {
    for (const auto& state : tensor.rowwise_states) {
      Note(&state, tensor.Name(), rowwise);
    }
    for (const auto& state : tensor.columnwise_states) {
      Note(&state, tensor.Name(), columnwise);
    }
  }
  void OnRouting(std::string_view, MatrixView<const int32_t>, size_t) override {
  }

  Streams rowwise;
  Streams columnwise;
};

TEST(TensorProbe, OperandsAreAnnouncedWithTheStatesOfTheirProducts) {
  precision::Recipe recipe = test_support::GeneralRecipe();
  recipe.wgrad.left = formats::QuantizationByName("e5m2.rceil.stochastic3");
  StateTap tap;
  Streams rowwise;
  Streams columnwise;
  RunProcesses({}, recipe, [&](Process& process) {
    const auto engine = [&](std::span<const model::GemmTask> tasks,
                            Executor& executor) {
      std::vector<kernels::GemmProblem> problems;
      for (const model::GemmTask& task : tasks) {
        problems.push_back(task.problem);
        const std::string site(task.site);
        using precision::GemmRole;
        if (task.role == GemmRole::kWgrad) {
          Note(task.problem.a.state, site + "_gradient", columnwise);
        } else {
          Note(task.problem.a.state,
               site + (task.role == GemmRole::kFprop ? "_activation"
                                                     : "_gradient"),
               rowwise);
        }
      }
      kernels::GemmBatch(problems, executor);
    };
    process.transformer.SetStep({.seed = 11, .step = 7});
    process.transformer.SetGemmEngine(engine);
    process.Step(tap);
  });

  EXPECT_GT(rowwise.size(), 20u);
  for (const auto& [name, bits] : rowwise) {
    EXPECT_EQ(tap.rowwise[name], bits) << name;
  }
  for (const auto& [name, bits] : columnwise) {
    EXPECT_EQ(tap.columnwise[name], bits) << name;
  }
  // Weights, which products get packed.
  const std::string site = "layers.1.moe.routed_experts.w2";
  Streams weights;
  for (size_t group = 0; group < 8; ++group) {
    const auto state = model::StateOf({.seed = 11, .step = 7}, site,
                                      precision::GemmRole::kDgrad,
                                      model::OperandSide::kRight, group, 0);
    Note(&state, site + "_weight", weights);
  }
  EXPECT_EQ(tap.columnwise[site + "_weight"], weights[site + "_weight"]);
  EXPECT_TRUE(tap.rowwise[site + "_weight"].empty());
}

TEST(TensorProbe, EveryTensorHasADigestOfItsOwn) {
  const TensorColumns columns = ColumnsOf({});

  for (const int64_t digest : columns.digest) EXPECT_NE(digest, 0);
  const auto digest = [&](const std::string& name) {
    return columns.digest[static_cast<size_t>(PlaceOf(columns, name))];
  };
  // The same rows, so the same digest, under any name …
  EXPECT_EQ(digest("layers.0.ffn_norm_output"),
            digest("layers.0.feed_forward.w1_activation"));
  // … and other ones.
  EXPECT_NE(digest("layers.0.feed_forward.w1_output"),
            digest("layers.0.feed_forward.w3_output"));
  EXPECT_NE(digest("layers.1.moe.router_expert_ids"), 0);
}

TEST(TensorProbe, ElementsAreThoseOfTheWholeBatch) {
  const TensorColumns columns = ColumnsOf({.ranks = 2, .processes = 2});
  const auto numel = [&](const std::string& name) {
    return columns.statistics[runlog::kStat_numel]
                             [static_cast<size_t>(PlaceOf(columns, name))];
  };

  EXPECT_EQ(numel("norm_output"), 256 * 40);
  EXPECT_EQ(numel("layers.1.moe.routed_experts.w1_activation"), 256 * 3 * 40);
  EXPECT_EQ(numel("layers.1.moe.routed_experts.w1_weight"), 8 * 22 * 40);
  EXPECT_EQ(numel("layers.1.moe.routed_experts.w1_wgrad"), 8 * 22 * 40);
  EXPECT_EQ(numel("norm_wgrad"), 40);
  EXPECT_TRUE(std::isnan(numel("layers.1.moe.router_expert_ids")));
}

TEST(TensorProbe, ColumnsAreTheSameAtStepsOfEitherKind) {
  const ProbeOptions options = {.statistics = {.first = 0, .every = 2},
                                .statistics_tensors = {"wo_"},
                                .digests = {.first = 1, .every = 0}};

  const TensorColumns digests = ColumnsOf({}, options, 1);
  const TensorColumns statistics = ColumnsOf({}, options, 2);

  EXPECT_EQ(digests.names, statistics.names);
  EXPECT_EQ(digests.digest.size(), digests.names.size());
  EXPECT_EQ(statistics.digest.size(), digests.names.size());
  EXPECT_EQ(digests.e8m0_histogram.size(), statistics.e8m0_histogram.size());
  const auto wo =
      static_cast<size_t>(PlaceOf(digests, "layers.0.attention.wo_activation"));
  EXPECT_NE(digests.digest[wo], 0);
  EXPECT_EQ(statistics.digest[wo], 0);
  EXPECT_TRUE(std::isnan(digests.statistics[runlog::kStat_max][wo]));
  EXPECT_GT(statistics.statistics[runlog::kStat_max][wo], 0);
  EXPECT_TRUE(std::isnan(statistics.statistics[runlog::kStat_max][wo + 2]));
}

TEST(TensorProbe, WithoutDigestsOnlyMatchingTensorsHaveColumns) {
  const TensorColumns columns =
      ColumnsOf({}, {.statistics = {.first = 1, .every = 0},
                     .statistics_tensors = {"norm_output"}});

  // Two in each block, q_norm and kv_norm in each, and the last.
  EXPECT_EQ(columns.count, 2 * 4 + 1);
  EXPECT_TRUE(columns.digest.empty());
  EXPECT_EQ(columns.scale_bytes, 256);
}

TEST(TensorProbe, WithoutStatisticsThereAreNoHistograms) {
  const TensorColumns columns =
      ColumnsOf({}, {.digests = {.first = 1, .every = 0}});

  EXPECT_EQ(columns.digest.size(), columns.names.size());
  EXPECT_EQ(columns.scale_bytes, 0);
  EXPECT_TRUE(columns.e8m0_histogram.empty());
  EXPECT_TRUE(columns.statistics[runlog::kStat_max].empty());
}

TEST(TensorProbe, ForgetsTheStepBefore) {
  RunProcesses({}, "mxfp8_rceil", [&](Process& process) {
    TensorProbe probe({.statistics = {.first = 2, .every = 0},
                       .digests = {.first = 2, .every = 0}},
                      process.mesh, process.executor);
    runlog::RunLog rows[2];
    for (int step = 1; step <= 2; ++step) {
      probe.BeginStep(step);
      process.Step(probe);
      probe.EndStep(rows[step - 1]);
    }

    EXPECT_EQ(rows[1].tensors.step, (std::vector<int64_t>{2}));
    rows[1].tensors.step = {1};
    ExpectEqual(rows[1].tensors, rows[0].tensors);
    EXPECT_EQ(probe.steps(), 2);
    EXPECT_GT(probe.seconds(), 0.0);
  });
}

TEST(TensorProbe, ListeningChangesNoBit) {
  struct Deaf : model::TapSink {
    void OnTensor(const model::Tensor&) override {}
    void OnRouting(std::string_view, MatrixView<const int32_t>,
                   size_t) override {}
  } deaf;
  const auto gradients = [&](bool listen) {
    uint64_t digest = 0;
    RunProcesses({}, "mxfp8_rceil", [&](Process& process) {
      TensorProbe probe(kEverything, process.mesh, process.executor);
      probe.BeginStep(1);
      process.Step(listen ? static_cast<model::TapSink&>(probe) : deaf);
      digest = process.gradients.Digest();
    });
    return digest;
  };

  EXPECT_EQ(gradients(true), gradients(false));
}

TEST(TensorProbe, WantsTheStepsOfItsOptions) {
  RunProcesses({}, "bf16", [](Process& process) {
    const TensorProbe probe({.statistics = {.first = 0, .every = 10},
                             .digests = {.first = 3, .every = 0},
                             .dump_tensors = {"wo"},
                             .dump_steps = {7}},
                            process.mesh, process.executor);

    std::vector<int64_t> wanted;
    for (int64_t step = 0; step <= 20; ++step) {
      if (probe.Wants(step)) wanted.push_back(step);
    }

    EXPECT_EQ(wanted, (std::vector<int64_t>{1, 2, 3, 7, 10, 20}));
  });
}

}  // namespace
}  // namespace isoloss::probes::tensor_probe_test
