// A run's state goes through a checkpoint to the bit, whoever holds its parts.
#include "isoloss/train/training_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/base/rng.h"
#include "isoloss/transport/process_transport.h"
#include "support/memory_network.h"
#include "support/temporary_folder.h"

namespace isoloss::train::training_state_test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr size_t kRanks = 4;

/// One dense layer and one of 4 experts.
model::ModelConfig Config() {
  return {.vocab_size = 16,
          .dim = 8,
          .n_layers = 2,
          .n_dense_layers = 1,
          .n_heads = 2,
          .q_lora_rank = 4,
          .kv_lora_rank = 4,
          .qk_nope_head_dim = 4,
          .qk_rope_head_dim = 2,
          .v_head_dim = 4,
          .dense_hidden_dim = 8,
          .moe_hidden_dim = 4,
          .num_experts = 4,
          .num_shared_experts = 1,
          .top_k = 2};
}

/// One process's part of a state.
class Part {
 public:
  explicit Part(expert_parallel::Mesh& mesh)
      : config_(Config()),
        mesh_(mesh),
        parameters_(config_, mesh.experts()),
        gradients_(config_, mesh.experts()),
        bias_(config_.n_moe_layers(), config_.num_experts),
        adamw_({}, Pair()) {}

  /// As after `steps` steps of a run: gradients are functions of the place in
  /// the whole model.
  void Train(int steps) {
    model::InitializeParameters(/*seed=*/3, parameters_);
    for (int step = 0; step < steps; ++step) {
      for (model::Parameter& gradient : gradients_.parameters()) {
        const CounterRng rng(static_cast<uint64_t>(step),
                             StreamId(gradient.name));
        for (size_t i = 0; i < gradient.values.size(); ++i) {
          gradient.values.data()[i] =
              static_cast<float>(rng.Uniform(gradient.first_element + i) - 0.5);
        }
      }
      adamw_.Step(1e-2, 1.0, executor_);
    }
    for (size_t e = 0; e < config_.num_experts; ++e) {
      bias_(0, e) = 0.25F * static_cast<float>(e) - 0.375F;
    }
    bytes_.assign(kRanks * kRanks, int64_t{1} << 40);
  }

  TrainingState state() {
    return {parameters_, adamw_, bias_.view(), {}, bytes_, executor_};
  }
  uint64_t Save(const fs::path& folder, int64_t step = 5) {
    return SaveTrainingState(step, config_, state(), mesh_, folder, {});
  }
  void Load(const fs::path& folder) {
    const checkpoint::Found found = checkpoint::FindNewest(folder);
    ASSERT_TRUE(found.checkpoint);
    LoadTrainingState(*found.checkpoint, config_, state(), mesh_);
  }
  void ExpectEqual(Part& other) {
    EXPECT_EQ(parameters_.Digest(), other.parameters_.Digest());
    for (size_t i = 0; i < parameters_.parameters().size(); ++i) {
      const auto same = [](const Matrix<float>& a, const Matrix<float>& b) {
        return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
      };
      const std::string& name = parameters_.parameters()[i].name;
      EXPECT_TRUE(
          same(adamw_.first_moments()[i], other.adamw_.first_moments()[i]))
          << name;
      EXPECT_TRUE(
          same(adamw_.second_moments()[i], other.adamw_.second_moments()[i]))
          << name;
    }
    EXPECT_EQ(adamw_.steps(), other.adamw_.steps());
    EXPECT_EQ(std::memcmp(bias_.data(), other.bias_.data(),
                          bias_.size() * sizeof(float)),
              0);
    EXPECT_EQ(bytes_, other.bytes_);
  }

  model::ParameterSet& parameters() { return parameters_; }
  optim::AdamW& adamw() { return adamw_; }
  Matrix<float>& bias() { return bias_; }
  std::vector<int64_t>& bytes() { return bytes_; }

 private:
  std::vector<optim::Tensor> Pair() {
    std::vector<optim::Tensor> tensors;
    for (size_t i = 0; i < parameters_.parameters().size(); ++i) {
      Matrix<float>& values = parameters_.parameters()[i].values;
      Matrix<float>& gradient = gradients_.parameters()[i].values;
      tensors.push_back(
          {{values.data(), values.size()}, {gradient.data(), gradient.size()}});
    }
    return tensors;
  }

  model::ModelConfig config_;
  expert_parallel::Mesh& mesh_;
  model::ParameterSet parameters_;
  model::ParameterSet gradients_;
  Matrix<float> bias_;
  std::vector<int64_t> bytes_;
  optim::AdamW adamw_;
  Executor executor_{1};
};

/// Calls `body` in each of `processes`, which are threads joined by memory
/// links, and returns what each of them threw.
std::vector<std::optional<Error>> InProcesses(
    size_t processes,
    const std::function<void(size_t process, expert_parallel::Mesh& mesh)>&
        body) {
  transport::MemoryNetwork network(static_cast<int>(processes));
  std::vector<std::optional<Error>> errors(processes);
  std::vector<std::thread> threads;
  for (size_t process = 0; process < processes; ++process) {
    threads.emplace_back([&, process] {
      Executor executor(1);
      expert_parallel::MeshConfig config;
      config.topology.experts = Config().num_experts;
      config.topology.ranks = kRanks;
      const transport::TransportOptions options = {
          .ranks = static_cast<int>(kRanks), .deadline_seconds = 10};
      expert_parallel::Mesh mesh(
          config,
          std::make_unique<transport::ProcessTransport>(
              "memory", options, executor, /*run_id=*/1,
              &network.endpoint(static_cast<int>(process))),
          executor);
      try {
        body(process, mesh);
      } catch (const Error& error) {
        errors[process] = error;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

void ExpectNoErrors(const std::vector<std::optional<Error>>& errors) {
  for (const auto& error : errors) EXPECT_FALSE(error) << error->what();
}

TEST(TrainingState, GoesThroughACheckpointWhateverTheProcesses) {
  std::vector<uint64_t> digests;
  for (const size_t savers : {1, 2, 4}) {
    const test_support::TemporaryFolder folder;
    ExpectNoErrors(
        InProcesses(savers, [&](size_t process, expert_parallel::Mesh& mesh) {
          Part part(mesh);
          part.Train(5);
          const uint64_t digest = part.Save(folder.path());
          static std::mutex mutex;
          const std::lock_guard lock(mutex);
          digests.push_back(digest);
          if (process != 0) return;
          const checkpoint::Checkpoint read(folder.path() / "step-000005");
          EXPECT_EQ(read.state_digest(), digest);
        }));
    for (const size_t loaders : {1, 2, 4}) {
      ExpectNoErrors(
          InProcesses(loaders, [&](size_t, expert_parallel::Mesh& mesh) {
            Part expected(mesh);
            expected.Train(5);
            Part part(mesh);
            part.Load(folder.path());
            part.ExpectEqual(expected);
          }));
    }
  }
  ASSERT_EQ(digests.size(), 7u);
  for (const uint64_t digest : digests) EXPECT_EQ(digest, digests[0]);
}

TEST(TrainingState, DigestChangesWithEveryPartOfTheState) {
  InProcesses(1, [](size_t, expert_parallel::Mesh& mesh) {
    const test_support::TemporaryFolder folder;
    Part part(mesh);
    part.Train(5);
    std::vector<uint64_t> digests = {part.Save(folder.path())};
    const std::vector<std::function<void()>> changes = {
        [&] { part.parameters().parameters()[0].values(0, 0) += 1; },
        [&] { part.adamw().first_moments()[3](0, 0) += 1; },
        [&] { part.adamw().second_moments()[3](0, 0) += 1; },
        [&] { part.adamw().Restore(6); },
        [&] { part.bias()(0, 2) += 1; },
        [&] { part.bytes()[2] += 1; },
        [&] { part.bytes().clear(); }};

    for (const auto& change : changes) {
      change();
      digests.push_back(part.Save(folder.path()));
    }

    std::sort(digests.begin(), digests.end());
    EXPECT_EQ(std::unique(digests.begin(), digests.end()), digests.end());
    Part loaded(mesh);
    loaded.Train(1);
    loaded.Load(folder.path());
    loaded.ExpectEqual(part);  // no bytes
  });
}

TEST(TrainingState, WhatIsNotFiniteIsNeverSavedAndAllProcessesSayTheSame) {
  constexpr float kBad[] = {std::numeric_limits<float>::quiet_NaN(),
                            -std::numeric_limits<float>::infinity()};
  for (const float bad : kBad) {
    const test_support::TemporaryFolder folder;
    const auto errors =
        InProcesses(2, [&](size_t process, expert_parallel::Mesh& mesh) {
          Part part(mesh);
          part.Train(5);
          part.Save(folder.path());
          EXPECT_EQ(FirstNonFiniteTensor(part.state(), mesh), "");
          // Of experts that only process 1 holds.
          const size_t experts = part.parameters().IndexOf(
              "layers.1.moe.routed_experts.inner_experts.w2_EDF");
          if (process == 1) part.adamw().second_moments()[experts](0, 1) = bad;
          EXPECT_EQ(FirstNonFiniteTensor(part.state(), mesh),
                    "exp_avg_sq.layers.1.moe.routed_experts.inner_experts."
                    "w2_EDF");
          part.Save(folder.path(), 6);
        });
    for (const auto& error : errors) {
      ASSERT_TRUE(error);
      EXPECT_EQ(error->kind(), ErrorKind::kFormat);
      EXPECT_THAT(error->what(),
                  HasSubstr("tensor `exp_avg_sq.layers.1.moe.routed_experts."
                            "inner_experts.w2_EDF` holds a NaN"));
    }
    EXPECT_EQ(checkpoint::FindNewest(folder.path()).checkpoint->step(), 5);
  }
}

TEST(TrainingState, AllProcessesLearnThatTheFirstCannotWrite) {
  const auto errors = InProcesses(2, [](size_t, expert_parallel::Mesh& mesh) {
    Part part(mesh);
    part.Train(1);
    part.Save("/proc/none/checkpoints");
  });

  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    EXPECT_EQ(error->kind(), ErrorKind::kIo);
    EXPECT_THAT(error->what(), HasSubstr("/proc/none/checkpoints: "));
  }
  EXPECT_THAT(errors[1]->what(), HasSubstr("process 0 can't write the "
                                           "checkpoint of step 5"));
}

TEST(TrainingState, AStateThatDoesNotFitIsRefusedAndTheOldOneStays) {
  InProcesses(1, [](size_t, expert_parallel::Mesh& mesh) {
    const test_support::TemporaryFolder folder;
    Part part(mesh);
    part.Train(5);
    part.Save(folder.path());
    const checkpoint::Checkpoint saved(folder.path() / "step-000005");
    const auto error_of = [&](const model::ModelConfig& config) {
      model::ParameterSet parameters(config);
      std::vector<optim::Tensor> tensors;
      for (model::Parameter& parameter : parameters.parameters()) {
        const std::span<float> values(parameter.values.data(),
                                      parameter.values.size());
        tensors.push_back({values, values});
      }
      optim::AdamW adamw({}, tensors);
      Matrix<float> bias(config.n_moe_layers(), config.num_experts);
      std::vector<int64_t> bytes;
      const uint64_t before = parameters.Digest();
      Executor executor(1);
      try {
        LoadTrainingState(saved, config,
                          {parameters, adamw, bias.view(), {}, bytes, executor},
                          mesh);
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::kFormat);
        EXPECT_EQ(parameters.Digest(), before);
        EXPECT_EQ(adamw.steps(), 0);
        return std::string(error.what());
      }
      return std::string("no error");
    };

    model::ModelConfig deeper = Config();
    deeper.n_layers = 3;
    model::ModelConfig shallower = Config();
    shallower.num_shared_experts = 0;
    model::ModelConfig wider = Config();
    wider.vocab_size = 17;

    EXPECT_EQ(error_of(Config()), "no error");
    EXPECT_THAT(error_of(deeper),
                HasSubstr("`weights.layers.2.attention.wq_a.weight` of shape "
                          "[4, 8] is needed, but not in it"));
    EXPECT_THAT(error_of(shallower),
                HasSubstr("`weights.layers.1.moe.shared_experts.w1.weight` of "
                          "shape [4, 8] has no place in this run"));
    EXPECT_THAT(error_of(wider),
                HasSubstr("`weights.tok_embeddings.weight` of shape [17, 8]"));
  });
}

}  // namespace
}  // namespace isoloss::train::training_state_test
