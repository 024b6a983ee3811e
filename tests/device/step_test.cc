// On a device a training step has the bits of the host's step, and a run goes
// on from one to the other.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "executors.h"
#include "isoloss/base/digest.h"
#include "isoloss/base/error.h"
#include "isoloss/checkpoint/checkpoint.h"
#include "isoloss/precision/recipe.h"
#include "isoloss/train/learner.h"
#include "isoloss/train/numerics_digest.h"
#include "model/small_model.h"
#include "support/temporary_folder.h"

namespace isoloss::device::step_test {
namespace {

using test_support::SmallBatch;
using test_support::SmallConfig;
using train::Learner;
using train::Seams;

/// Digests all that a step announces, by name.
class TensorDigests : public model::TapSink {
 public:
  void OnTensor(const model::Tensor& tensor) override {
    Add(tensor.Name(), tensor.values);
  }
  void OnRouting(std::string_view module, MatrixView<const int32_t> expert_ids,
                 size_t /*first_token*/) override {
    Add(std::string(module), expert_ids);
  }

  const std::multimap<std::string, uint64_t>& all() const { return all_; }

 private:
  template <typename T>
  void Add(const std::string& name, MatrixView<const T> values) {
    Digest digest;
    for (size_t row = 0; row < values.rows(); ++row) {
      digest.Update(values.Row(row), values.cols() * sizeof(T));
    }
    all_.emplace(name, digest.Value());
  }

  std::multimap<std::string, uint64_t> all_;
};

/// Trains a small model.
class SmallRun {
 public:
  SmallRun(Executor& executor, const precision::Recipe& recipe,
           const Seams& seams = {})
      : seams_(seams),
        mesh_(config_.num_experts, executor),
        learner_(config_, train_, {{1, recipe}}, /*seed=*/3, executor, seams_,
                 mesh_) {}
  SmallRun(Executor& executor, const std::string& recipe,
           const Seams& seams = {})
      : SmallRun(executor, precision::RecipeByName(recipe), seams) {}

  void Step(int64_t step, model::TapSink* tap = nullptr) {
    const SmallBatch batch(config_, {40, 9, 70},
                           /*seed=*/static_cast<uint64_t>(step));
    const train::StepFigures figures = learner_.Step(step, batch.view(), tap);
    digest_.Update(&figures.loss_nats, sizeof(double));
    digest_.Update(&figures.grad_norm, sizeof(double));
    for (const auto* values :
         {&figures.gradient_squares, &figures.update_ratios}) {
      digest_.Update(values->data(), values->size() * sizeof(double));
    }
  }
  uint64_t Save(int64_t step, const std::filesystem::path& folder) {
    return SaveTrainingState(step, config_, learner_.State(bytes_), mesh_,
                             folder, {});
  }
  void Load(const std::filesystem::path& folder) {
    const checkpoint::Found found = checkpoint::FindNewest(folder);
    ASSERT_TRUE(found.checkpoint);
    learner_.Load(*found.checkpoint, bytes_);
  }
  std::string FirstNonFinite() {
    return FirstNonFiniteTensor(learner_.State(bytes_), mesh_);
  }
  /// Overwrites the last element of a moment. Returns the moment's name.
  std::string SpoilMoment(size_t i, float value, Memory& memory) {
    Matrix<float>& moment = learner_.State(bytes_).adamw.second_moments()[i];
    memory.CopyFromHost(&value, sizeof value,
                        moment.data() + moment.size() - 1);
    return "exp_avg_sq." +
           learner_.State(bytes_).parameters.parameters()[i].name;
  }
  /// Covers the figures of all steps.
  uint64_t digest() const { return digest_.Value(); }
  Learner& learner() { return learner_; }

 private:
  static model::ModelConfig Config() {
    model::ModelConfig config = SmallConfig();
    config.num_expert_groups = 3;
    config.num_limited_groups = 2;
    return config;
  }
  static train::TrainConfig Training() {
    train::TrainConfig train;
    train.steps = 4;
    train.lr = 1e-2;
    train.warmup_steps = 1;
    train.clip_norm = 0.5;
    return train;
  }

  const model::ModelConfig config_ = Config();
  const train::TrainConfig train_ = Training();
  const Seams seams_;
  expert_parallel::Mesh mesh_;
  Learner learner_;
  std::vector<int64_t> bytes_;
  Digest digest_;
};

using RecipeOnDevice = std::tuple<std::string, NamedExecutor>;

std::string Name(const testing::TestParamInfo<RecipeOnDevice>& test) {
  return std::get<0>(test.param) + "_" + std::get<1>(test.param).name;
}

std::vector<std::string> Recipes() {
  std::vector<std::string> names;
  for (const precision::Recipe* recipe : precision::AllRecipes()) {
    names.push_back(recipe->name);
  }
  return names;
}

class StepTest : public testing::TestWithParam<RecipeOnDevice> {
 protected:
  const std::string& recipe() const { return std::get<0>(GetParam()); }
  Executor& device() const { return *std::get<1>(GetParam()).executor; }

  Executor host_{2};
};

TEST_P(StepTest, HasTheBitsOfTheHost) {
  train::Arm arm;
  arm.recipe = recipe();
  EXPECT_EQ(NumericsDigest(arm, device()), NumericsDigest(arm, host_));
}

INSTANTIATE_TEST_SUITE_P(Recipes, StepTest,
                         testing::Combine(testing::ValuesIn(Recipes()),
                                          testing::ValuesIn(DeviceExecutors())),
                         Name);

class TapTest : public StepTest {};

TEST_P(TapTest, AnnouncesTheTensorsOfTheHost) {
  TensorDigests expected;
  TensorDigests found;
  SmallRun on_host(host_, recipe());
  SmallRun on_device(device(), recipe());
  for (int64_t step = 1; step <= 2; ++step) {
    on_host.Step(step, &expected);
    on_device.Step(step, &found);
  }
  EXPECT_EQ(found.all(), expected.all());
  EXPECT_EQ(on_device.digest(), on_host.digest());
}

INSTANTIATE_TEST_SUITE_P(
    Recipes, TapTest,
    testing::Combine(testing::Values("bf16", "mxfp4_rht_sr", "te_fp8_delayed"),
                     testing::ValuesIn(DeviceExecutors())),
    Name);

/// Recipes whose sums are those of tensor cores.
class TensorCoreTest : public StepTest {
 protected:
  void SetUp() override {
    if (!AddAs(Hopper())) GTEST_SKIP() << "this GPU adds in another way";
  }
  static const kernels::Accumulator& Hopper() {
    return kernels::AccumulatorByName("hopper_bf16");
  }
  precision::Recipe OnTensorCores() const {
    precision::Recipe of = precision::RecipeByName(recipe());
    if (of.include.empty()) of.include = {"layers"};
    for (const precision::GemmRole role : precision::kGemmRoles) {
      of.For(role).accumulation.accumulator = &Hopper();
    }
    return of;
  }
};

TEST_P(TensorCoreTest, HasTheBitsOfTheHost) {
  SmallRun on_host(host_, OnTensorCores());
  SmallRun on_device(device(), OnTensorCores());
  SmallRun with_chains(host_, recipe());
  for (int64_t step = 1; step <= 2; ++step) {
    on_host.Step(step);
    on_device.Step(step);
    with_chains.Step(step);
  }
  EXPECT_EQ(on_device.digest(), on_host.digest());
  EXPECT_NE(on_device.digest(), with_chains.digest());
}

INSTANTIATE_TEST_SUITE_P(Recipes, TensorCoreTest,
                         testing::Combine(testing::Values("bf16", "mxfp8_rceil",
                                                          "deepseek_v3_fp8"),
                                          testing::ValuesIn(DeviceExecutors())),
                         Name);

class LearnerTest : public testing::TestWithParam<NamedExecutor> {
 protected:
  Executor& device() const { return *GetParam().executor; }

  /// Trains two steps on one executor and two on the other, and expects the
  /// state of the host's run.
  void ExpectToGoOn(Executor& from, Executor& to) {
    const test_support::TemporaryFolder folder;
    SmallRun whole(host_, kRecipe);
    SmallRun first(from, kRecipe);
    SmallRun second(to, kRecipe);
    for (int64_t step = 1; step <= 2; ++step) {
      whole.Step(step);
      first.Step(step);
    }
    EXPECT_EQ(first.Save(2, folder.path() / "first"),
              whole.Save(2, folder.path() / "whole"));
    second.Load(folder.path() / "first");
    for (int64_t step = 3; step <= 4; ++step) {
      whole.Step(step);
      second.Step(step);
    }
    EXPECT_EQ(second.Save(4, folder.path() / "second"),
              whole.Save(4, folder.path() / "whole"));
  }

  // It has a history of magnitudes.
  static constexpr const char* kRecipe = "te_fp8_delayed";
  Executor host_{2};
};

TEST_P(LearnerTest, GoesOnOnTheHost) { ExpectToGoOn(device(), host_); }
TEST_P(LearnerTest, GoesOnOnTheDevice) { ExpectToGoOn(host_, device()); }

TEST_P(LearnerTest, TakesItsStateFromARunOnTheHost) {
  SmallRun on_host(host_, kRecipe);
  SmallRun on_device(device(), kRecipe);
  on_host.Step(1);
  std::vector<int64_t> bytes;
  on_device.learner().GoOnFrom(on_host.learner().State(bytes));
  const test_support::TemporaryFolder folder;
  EXPECT_EQ(on_device.Save(1, folder.path() / "device"),
            on_host.Save(1, folder.path() / "host"));
}

TEST_P(LearnerTest, FindsWhatIsNotFinite) {
  using Limits = std::numeric_limits<float>;
  SmallRun run(device(), kRecipe);
  run.SpoilMoment(2, Limits::max(), device().memory());
  EXPECT_EQ(run.FirstNonFinite(), "");
  for (const float bad : {Limits::quiet_NaN(), -Limits::infinity()}) {
    const std::string name = run.SpoilMoment(3, bad, device().memory());
    EXPECT_EQ(run.FirstNonFinite(), name);
    run.SpoilMoment(3, 1.0f, device().memory());
  }
}

/// Doubles the first value of each parameter.
void Double(model::ParameterSet& set) {
  for (model::Parameter& parameter : set.parameters()) {
    parameter.values(0, 0) *= 2;
  }
}

TEST_P(LearnerTest, SeamsGetCopies) {
  Seams seams;
  seams.after_backward = [](int64_t, model::ParameterSet& gradients) {
    Double(gradients);
  };
  seams.before_update = seams.after_backward;
  seams.after_update = [](int64_t, model::ParameterSet& weights,
                          MatrixView<float> bias) {
    Double(weights);
    bias(0, 0) += 0.25f;
  };
  seams.edit_routing = [](const model::RoutedToken& decided) {
    std::swap(decided.expert_ids[0], decided.expert_ids[1]);
    decided.weights[0] += decided.scores[0] + decided.bias[0];
  };
  SmallRun on_host(host_, "bf16", seams);
  SmallRun on_device(device(), "bf16", seams);
  for (SmallRun* run : {&on_host, &on_device}) {
    run->learner().EditInitialWeights(Double);
    run->Step(1);
    run->Step(2);
  }
  EXPECT_EQ(on_device.digest(), on_host.digest());
  EXPECT_EQ(on_device.learner().parameters().Digest(),
            on_host.learner().parameters().Digest());
}

TEST_P(LearnerTest, TakesExpertsFromElsewhere) {
  const model::ForcedBalance balance(SmallConfig().num_experts);
  SmallRun on_host(host_, "bf16");
  SmallRun on_device(device(), "bf16");
  for (SmallRun* run : {&on_host, &on_device}) {
    run->learner().transformer().SetRouting(&balance);
    run->Step(1);
  }
  EXPECT_EQ(on_device.digest(), on_host.digest());
}

TEST_P(LearnerTest, RefusesSeamsThatComputeOnTheHost) {
  const auto expect_refused = [&](const Seams& seams, const char* name) {
    try {
      const SmallRun run(device(), "bf16", seams);
      ADD_FAILURE() << name << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig);
      EXPECT_NE(std::string(error.what()).find(name), std::string::npos)
          << error.what();
    }
  };
  expect_refused({.gemm_engine = [](auto&&...) {}}, "gemm_engine");
  expect_refused(
      {.decorate_exchange = [](size_t, auto exchange) { return exchange; }},
      "decorate_exchange");
  expect_refused({.before_optimizer = [](auto&&...) {}}, "before_optimizer");
}

INSTANTIATE_TEST_SUITE_P(Devices, LearnerTest,
                         testing::ValuesIn(DeviceExecutors()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace isoloss::device::step_test
