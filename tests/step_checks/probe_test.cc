#include "isoloss/step_checks/probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/runlog/writer.h"
#include "isoloss/step_checks/known_recipes.h"
#include "isoloss/step_checks/log_check.h"
#include "isoloss/step_checks/probe_cases.h"
#include "step_checks/trial.h"
#include "support/temporary_folder.h"

namespace isoloss::step_checks::probe_test {
namespace {

using ::testing::HasSubstr;

runlog::ProbeLog Probe(const ProbeOptions& options,
                       const std::string& arm = "mxfp8_rceil", int threads = 1,
                       const std::vector<std::string>& overrides = {}) {
  const train::Experiment experiment = Trial(overrides);
  const corpus::Corpus corpus = CorpusOf(experiment);
  Executor executor(threads);
  return ProbeArm(experiment, ArmOf(experiment, arm), 1, corpus, executor,
                  options);
}

int64_t Others(const runlog::ProbeLog& log) {
  const auto sum = [](const std::vector<int64_t>& column) {
    return std::accumulate(column.begin(), column.end(), int64_t{0});
  };
  return sum(log.oracle.other) + sum(log.routing.other);
}

/// Of a row, or of a name: what compares the run's log, not a tensor.
bool IsOfLog(const std::string& name) {
  return name.starts_with(runlog::kLogPrefix);
}
bool IsOfLog(const runlog::ProbeLog& log, size_t row) {
  return IsOfLog(log.tensors[static_cast<size_t>(log.oracle.tensor[row])]);
}
size_t TensorNames(const runlog::ProbeLog& log) {
  return static_cast<size_t>(std::ranges::count_if(
      log.tensors, [](const auto& name) { return !IsOfLog(name); }));
}
/// Rows of tensors in case `probe_case`.
size_t TensorRows(const runlog::ProbeLog& log, size_t probe_case) {
  size_t rows = 0;
  for (size_t row = 0; row < log.oracle.step.size(); ++row) {
    const auto of = static_cast<size_t>(log.oracle.probe_case[row]);
    if (of == probe_case && !IsOfLog(log, row)) ++rows;
  }
  return rows;
}

std::string BytesOf(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// As it is written, but for the number of threads.
std::string BytesOf(runlog::ProbeLog log) {
  log.provenance.workers = 0;
  const test_support::TemporaryFolder folder;
  runlog::WriteProbeLog(log, folder.path() / "log.probe.h5");
  return BytesOf(folder.path() / "log.probe.h5");
}

TEST(Probe, DoesNotDependOnTheThreads) {
  const ProbeOptions options = {.steps = 2, .cases = {"plain", "branches"}};
  const std::vector<std::string> layers = {"model.n_layers=4"};
  const std::string one = BytesOf(Probe(options, "mxfp8_rceil", 1, layers));
  for (const int threads : {2, 3}) {
    EXPECT_TRUE(BytesOf(Probe(options, "mxfp8_rceil", threads, layers)) == one)
        << threads;
  }
  // Another run's log has other bytes.
  EXPECT_FALSE(BytesOf(Probe(options, "mxfp8_floor", 1, layers)) == one);
}

// Also that of the reference, and in cases that have batches of their own.
TEST(Probe, TakesWholeBatches) {
  std::string bytes[2];
  for (const bool shares : {false, true}) {
    std::vector<std::string> overrides = {"parallel.dispatch_units=2",
                                          "data.sequence_length=32"};
    if (shares) overrides.push_back("parallel.micro_batches=2");
    const train::Experiment experiment = Trial(overrides);
    const corpus::Corpus corpus = CorpusOf(experiment);
    Executor executor(1);
    runlog::ProbeLog log = ProbeArm(
        experiment, ArmOf(experiment, "mxfp8_rceil"), 1, corpus, executor,
        {.steps = 2,
         .exchange_steps = 2,
         .cases = {"plain", "tails", "exchange", "evaluation"},
         .reference = &ArmOf(experiment, "bf16"),
         .reference_steps = {1}});
    EXPECT_EQ(Others(log), 0);
    log.provenance.experiment_text = log.provenance.experiment_digest = "";
    bytes[shares ? 1 : 0] = BytesOf(std::move(log));
  }
  EXPECT_TRUE(bytes[1] == bytes[0]);
}

TEST(Probe, FindsNothingInACorrectArm) {
  const runlog::ProbeLog log = Probe({.steps = 2});

  EXPECT_TRUE(log.provenance.complete);
  EXPECT_EQ(log.provenance.arm, "mxfp8_rceil");
  EXPECT_EQ(log.cases.size(), ProbeCases().size());
  EXPECT_EQ(Others(log), 0);
  // Every tensor of every step has its row, in all cases but those that look at
  // the exchange (for as long as the run goes on) or an evaluation alone.
  size_t full_rows = 0;
  size_t full = 0;
  for (size_t i = 0; i < log.cases.size(); ++i) {
    if (ProbeCases()[i].scope == ProbeScope::kSteps) {
      ++full;
      full_rows += TensorRows(log, i);
    } else {
      EXPECT_GT(TensorRows(log, i), 0) << log.cases[i];
    }
  }
  EXPECT_EQ(full, 7);
  // The held-out loss is none of a step's.
  EXPECT_EQ(full_rows, full * 2 * (TensorNames(log) - 1));
  EXPECT_EQ(log.routing.step.size(), full * 2);
}

TEST(Probe, FollowsThePlainCaseForLonger) {
  const runlog::ProbeLog log =
      Probe({.steps = 1, .plain_steps = 2, .cases = {"plain", "zero_block"}});

  EXPECT_EQ(Others(log), 0);
  EXPECT_EQ(TensorRows(log, 0) + TensorRows(log, 1), 3 * TensorNames(log));
  EXPECT_LT(TensorNames(log), log.tensors.size());
}

// Squares of gradients below 1.5e-15 underflow beside 1 - beta2 = 2^-52, so
// that nothing but eps divides the gradient: weights of 1e14, whose products
// FP32 cannot hold, from the first update on.
TEST(Probe, ExplainsNumbersThatOverflow) {
  const std::vector<std::string> overflow = {
      "train.lr=1.0",    "train.warmup_steps=0",
      "train.beta1=0.0", "train.beta2=0.9999999999999998",
      "train.eps=1e-30", "train.clip_norm=1.5e-15"};
  for (const char* arm : {"bf16", "mxfp8_rceil"}) {
    const runlog::ProbeLog log =
        Probe({.steps = 3, .cases = {"plain"}}, arm, 1, overflow);

    EXPECT_FALSE(log.provenance.complete) << arm;
    EXPECT_EQ(log.oracle.step.back(), 2) << arm;
    EXPECT_EQ(Others(log), 0) << arm;
  }
}

TEST(Probe, DoesNotDependOnTheTeam) {
  const ProbeOptions options = {.steps = 1, .cases = {"plain"}};
  const runlog::ProbeLog one = Probe(options, "bf16", 1);
  const runlog::ProbeLog three = Probe(options, "bf16", 3);

  EXPECT_EQ(one.tensors, three.tensors);
  EXPECT_EQ(one.oracle.flips, three.oracle.flips);
  EXPECT_EQ(one.oracle.expected_flips, three.oracle.expected_flips);
  EXPECT_EQ(one.oracle.worst_ratio, three.oracle.worst_ratio);
}

TEST(Probe, RunsTheCallersHooks) {
  std::set<int64_t> heard;
  std::vector<int64_t> finished;
  bool edited = false;
  ProbeOptions options = {.steps = 2, .cases = {"plain"}};
  options.hooks.on_tensor = [&](int64_t step, const model::Tensor&) {
    heard.insert(step);
  };
  options.hooks.on_step = [&](const runlog::StepRow& row) {
    finished.push_back(row.step);
  };
  options.hooks.edit_initial_weights = [&](model::ParameterSet&) {
    edited = true;
  };

  const runlog::ProbeLog log = Probe(options);

  EXPECT_EQ(Others(log), 0);
  EXPECT_TRUE(edited);
  EXPECT_EQ(heard, (std::set<int64_t>{1, 2}));
  EXPECT_EQ(finished, (std::vector<int64_t>{1, 2}));
}

TEST(Probe, MakesHooksAnewForEachCase) {
  std::vector<size_t> widths;
  ProbeOptions options = {.steps = 1, .cases = {"plain", "tails"}};
  options.make_hooks = [&](const train::Experiment& experiment,
                           const train::Arm& arm, uint64_t seed) {
    EXPECT_EQ(arm.name, "mxfp8_rceil");
    EXPECT_EQ(seed, 1);
    widths.push_back(experiment.model.moe_hidden_dim);
    train::RunHooks hooks;
    hooks.before_update = [](int64_t, model::ParameterSet& gradients) {
      gradients.ByName("norm.weight").values(0, 0) += 1.0f;
    };
    return hooks;
  };

  const runlog::ProbeLog log = Probe(options);

  EXPECT_EQ(widths, (std::vector<size_t>{36, 52}));
  EXPECT_EQ(Others(log), 2);  // one in each case
}

// A router that keeps to a recorded routing, and one that does not.
TEST(Probe, HoldsAReplayedRoutingToItsLog) {
  const train::Experiment recorded = Trial({"log.routing=true"});
  const corpus::Corpus corpus = CorpusOf(recorded);
  Executor executor(1);
  const test_support::TemporaryFolder folder;
  const std::string file = (folder.path() / "replayed.h5").string();
  runlog::WriteRunLog(
      train::TrainRun(recorded, ArmOf(recorded, "bf16"), 1, corpus, executor),
      file);
  const train::Experiment experiment =
      Trial({"routing.mode=replay", "routing.replay=\"" + file + "\""});
  const auto probe = [&](model::RoutingEdit edit) {
    ProbeOptions options = {.steps = 2};
    options.hooks.edit_routing = std::move(edit);
    return ProbeArm(experiment, ArmOf(experiment, "mxfp8_rceil"), 1, corpus,
                    executor, options);
  };

  const runlog::ProbeLog kept = probe({});
  EXPECT_EQ(Others(kept), 0);
  EXPECT_EQ(kept.routing.step.size(), size_t{7} * 2);

  const runlog::ProbeLog left = probe([](const model::RoutedToken& decided) {
    if (decided.token == 7)
      std::swap(decided.expert_ids[0], decided.expert_ids[1]);
  });
  for (const int64_t other : left.routing.other) EXPECT_EQ(other, 1);
}

TEST(Probe, FindsAGradientThatIsChangedBehindTheBackwardPass) {
  ProbeOptions options = {.steps = 1, .cases = {"plain"}};
  options.hooks.after_backward = [](int64_t, model::ParameterSet& gradients) {
    gradients.ByName("layers.0.attention.wo.weight").values(0, 0) *= 1.01f;
  };

  const runlog::ProbeLog log = Probe(options);

  ASSERT_EQ(Others(log), 1);
  const auto row =
      std::find(log.oracle.other.begin(), log.oracle.other.end(), 1) -
      log.oracle.other.begin();
  EXPECT_EQ(log.tensors[static_cast<size_t>(
                log.oracle.tensor[static_cast<size_t>(row)])],
            "layers.0.attention.wo_wgrad");
}

TEST(Probe, FindsAWeightThatIsChangedBehindTheUpdate) {
  ProbeOptions options = {.steps = 1, .cases = {"plain"}};
  options.hooks.after_update = [](int64_t, model::ParameterSet& weights,
                                  MatrixView<float>) {
    weights.ByName("norm.weight").values(0, 3) += 0x1p-10f;
  };

  EXPECT_GT(Others(Probe(options)), 0);
}

// Evaluations announce nothing: combine weights that are wrong only there.
TEST(Probe, FindsAnEvaluationThatComputesOtherwise) {
  bool training = false;
  ProbeOptions options = {.steps = 2, .cases = {"plain", "evaluation"}};
  options.hooks.before_step = [&](int64_t) { training = true; };
  options.hooks.after_update = [&](int64_t, model::ParameterSet&,
                                   MatrixView<float>) { training = false; };
  options.hooks.edit_routing = [&](const model::RoutedToken& decided) {
    if (!training && decided.token == 3) decided.weights[0] *= 1.5f;
  };

  const runlog::ProbeLog log = Probe(options);

  // One sequence of each of two batches, and the mean of all.
  EXPECT_EQ(Others(log), 3);
  for (size_t i = 0; i < log.oracle.step.size(); ++i) {
    if (log.oracle.other[i] == 0) continue;
    EXPECT_EQ(log.tensors[static_cast<size_t>(log.oracle.tensor[i])],
              "held_out_loss");
  }
}

TEST(Probe, ChecksWhatTheGivenFunctionTrains) {
  // Trains another recipe than the oracle was told.
  ProbeOptions options = {.steps = 1, .cases = {"plain"}};
  options.train = [](const train::Experiment& experiment, const train::Arm&,
                     uint64_t seed, const corpus::Corpus& corpus,
                     Executor& executor, const train::RunHooks& hooks) {
    return train::TrainRun(experiment, ArmOf(experiment, "mxfp8_floor"), seed,
                           corpus, executor, hooks);
  };

  EXPECT_GT(Others(Probe(options)), 1000);
}

TEST(Probe, DoesNotBelieveTheRegistry) {
  precision::Recipe wrong = precision::RecipeByName("mxfp8_rceil");
  wrong.wgrad.right->scale_rule = formats::ScaleRule::kFloor;
  wrong.dgrad.left.reset();

  const precision::Recipe known = AsKnown(wrong);

  EXPECT_EQ(known.wgrad.right->scale_rule, formats::ScaleRule::kRceil);
  EXPECT_TRUE(known.dgrad.left.has_value());
  EXPECT_EQ(known.include, wrong.include);
}

TEST(Probe, KnowsEveryRegisteredRecipe) {
  for (const precision::Recipe* registered : precision::AllRecipes()) {
    SCOPED_TRACE(registered->name);
    EXPECT_TRUE(AsKnown(*registered).SameContent(*registered));

    // What is not listed, or not wholly, would come out spoilt.
    precision::Recipe spoilt = precision::RecipeByName("mxfp8_e5m2_grads");
    for (const precision::GemmRole role : precision::kGemmRoles) {
      spoilt.For(role).accumulation = {.interval = 7,
                                       .outer = kernels::Rounding::kBf16};
    }
    spoilt.wgrad.left_again = true;
    spoilt.activation = spoilt.weight_gradients = kernels::Rounding::kBf16;
    if (registered->activation == kernels::Rounding::kBf16) {
      spoilt.activation = kernels::Rounding::kFp32;
    }
    spoilt.first_layers = spoilt.last_layers = 3;
    spoilt.width_multiple = 16;
    spoilt.overrides = {{{"wq"}, spoilt}};
    spoilt.name = registered->name;
    spoilt.include = registered->include;
    spoilt.exclude = registered->exclude;

    EXPECT_TRUE(AsKnown(spoilt).SameContent(*registered));
  }
}

TEST(Probe, ARunThatItsNumbersEndIsIncomplete) {
  ProbeOptions options = {.steps = 2, .cases = {"plain"}};
  options.hooks.after_update = [](int64_t, model::ParameterSet& weights,
                                  MatrixView<float>) {
    weights.ByName("norm.weight").values(0, 0) = std::nanf("");
  };

  const runlog::ProbeLog log = Probe(options);

  EXPECT_GT(Others(log), 0);
  EXPECT_FALSE(log.provenance.complete);
}

TEST(Probe, ComparesWithAReferenceIfAsked) {
  const train::Experiment experiment = Trial();
  const corpus::Corpus corpus = CorpusOf(experiment);
  Executor executor(1);

  const runlog::ProbeLog log = ProbeArm(
      experiment, ArmOf(experiment, "mxfp8_rceil"), 1, corpus, executor,
      {.steps = 1,
       .cases = {"plain"},
       .reference = &ArmOf(experiment, "bf16"),
       .reference_steps = {1}});

  EXPECT_EQ(log.reference_recipe, "bf16");
  ASSERT_FALSE(log.precision.step.empty());
  for (const int64_t tensor : log.precision.tensor) {
    ASSERT_LT(static_cast<size_t>(tensor), log.tensors.size());
  }
}

TEST(Probe, NamesTheCasesItKnows) {
  try {
    Probe({.cases = {"plane"}});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    EXPECT_THAT(error.what(), HasSubstr("plain"));
  }
}

TEST(ProbeCases, RouterTiesLeaveExpertsEmptyAndTieOthersExactly) {
  const train::Experiment experiment = Trial();
  model::ParameterSet weights(experiment.model);
  model::InitializeParameters(1, weights);

  ProbeCaseByName("router_ties").edit(experiment.model, weights);

  const Matrix<float>& gate =
      weights.ByName("layers.1.moe.router.gate.weight").values;
  ASSERT_EQ(gate.rows(), 6);
  for (size_t j = 0; j < gate.cols(); ++j) {
    EXPECT_NE(gate(0, j), 0.0f);
    EXPECT_EQ(gate(2, j), gate(0, j));
    EXPECT_EQ(gate(1, j), -gate(0, j));
    EXPECT_EQ(gate(3, j), -gate(0, j));
    EXPECT_EQ(gate(4, j), 0.0f);
    EXPECT_EQ(gate(5, j), 0.0f);
  }
}

TEST(ProbeCases, ScaleEdgeBlocksHaveTheirLargestValueAtTheEdge) {
  const train::Experiment experiment = Trial();
  model::ParameterSet weights(experiment.model);
  model::InitializeParameters(1, weights);

  ProbeCaseByName("scale_edge").edit(experiment.model, weights);

  const Matrix<float>& wq =
      weights.ByName("layers.0.attention.wq.weight").values;
  std::set<float> largest;
  for (size_t i = 0; i < wq.rows(); ++i) {
    float amax = 0.0f;
    for (size_t j = 0; j < 32; ++j) {
      amax = std::max(amax, std::fabs(wq(i, j)));
    }
    largest.insert(amax);
  }
  const float edge = 448.0f * 0x1p-13f;
  const float ulp = 0x1p-12f;  // of BF16 in [2^-5, 2^-4)
  EXPECT_EQ(largest, (std::set<float>{edge - ulp, edge, edge + ulp}));
}

/// 20 steps, of which the last two have delayed scaling: its history begins in
/// steps of another recipe.
train::Experiment ChangingTrial() {
  return SmallTrial(
      9, {"train.steps=20",
          "arms.bf16.then=[{from = 0.9, recipe = \"te_fp8_delayed\"}]"});
}

runlog::ProbeLog ProbeChanging(const ProbeOptions& options) {
  const train::Experiment experiment = ChangingTrial();
  Executor executor(1);
  return ProbeArm(experiment, ArmOf(experiment, "bf16"), 1,
                  CorpusOf(experiment), executor, options);
}

TEST(Probe, LooksAtEachRecipeOfAnArmInAllCasesButPlain) {
  const runlog::ProbeLog log = ProbeChanging(
      {.cases = {"plain", "zero_block", "exchange", "evaluation"}});

  EXPECT_EQ(Others(log), 0);
  EXPECT_TRUE(log.provenance.complete);
  std::vector<int64_t> last(log.cases.size());
  for (size_t row = 0; row < log.oracle.step.size(); ++row) {
    int64_t& of = last[static_cast<size_t>(log.oracle.probe_case[row])];
    of = std::max(of, log.oracle.step[row]);
  }
  EXPECT_THAT(last, ::testing::ElementsAre(3, 4, 20, 4));
}

TEST(Probe, FindsASwitchThatComesAStepLate) {
  ProbeOptions options = {.cases = {"zero_block"}};
  options.train = [](const train::Experiment& experiment, const train::Arm& arm,
                     uint64_t seed, const corpus::Corpus& corpus,
                     Executor& executor, const train::RunHooks& hooks) {
    train::Arm late = arm;
    late.then.front().from += 0.05;  // one of 20 steps
    return train::TrainRun(experiment, late, seed, corpus, executor, hooks);
  };

  const runlog::ProbeLog log = ProbeChanging(options);

  EXPECT_GT(Others(log), 0);
  for (size_t row = 0; row < log.oracle.step.size(); ++row) {
    if (log.oracle.other[row] == 0) continue;
    EXPECT_GE(log.oracle.step[row], 3);
  }
}

}  // namespace
}  // namespace isoloss::step_checks::probe_test
