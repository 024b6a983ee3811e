// A training step takes no memory from the heap once the first ones have made
// its buffers.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <string>
#include <tuple>
#include <vector>

#include "isoloss/optim/adamw.h"
#include "isoloss/optim/clip.h"
#include "isoloss/optim/expert_bias.h"
#include "small_model.h"

namespace {

std::atomic<int64_t> allocations{0};

// Not inline, lest the compiler sees what it allocates by meet delete.
[[gnu::noinline]] void* Allocate(size_t size, size_t alignment) {
  ++allocations;
  const size_t rounded = (size + alignment - 1) / alignment * alignment;
  void* memory =
      std::aligned_alloc(alignment, rounded > 0 ? rounded : alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

// All other forms of new and delete call these.
void* operator new(size_t size) {
  return Allocate(size, alignof(std::max_align_t));
}
void* operator new(size_t size, std::align_val_t alignment) {
  return Allocate(size, static_cast<size_t>(alignment));
}
// Not inline, lest the compiler sees free() meet what operator new returned.
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t /*size*/) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(
    void* memory, std::align_val_t /*alignment*/) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(
    void* memory, size_t /*size*/, std::align_val_t /*alignment*/) noexcept {
  std::free(memory);
}

namespace isoloss {
namespace {

using isoloss::test_support::SmallBatch;
using isoloss::test_support::SmallConfig;

/// A model with its optimizer, and everything else of a training step.
class TrainingLoop {
 public:
  TrainingLoop(const model::ModelConfig& config, const std::string& recipe,
               int threads)
      : executor_(threads),
        weights_(config),
        gradients_(config),
        transformer_(config, precision::RecipeByName(recipe), executor_),
        adamw_({}, Tensors()),
        bias_(config.n_moe_layers(), config.num_experts) {
    model::InitializeParameters(3, weights_);
    Load();
  }

  void Step(const SmallBatch& batch) {
    transformer_.Forward(batch.view());
    transformer_.Backward(batch.view(), gradients_);
    const double norm = optim::GlobalNorm(adamw_.tensors(), executor_);
    const auto counts = transformer_.tokens_per_expert();
    for (size_t layer = 0; layer < counts.rows(); ++layer) {
      optim::UpdateExpertBias({counts.Row(layer), counts.cols()}, 0.01f,
                              {bias_.Row(layer), bias_.cols()});
    }
    adamw_.Step(1e-3, optim::ClipCoefficient(norm, 1.0), executor_);
    Load();
  }

 private:
  std::vector<optim::Tensor> Tensors() {
    std::vector<optim::Tensor> tensors;
    for (size_t i = 0; i < weights_.parameters().size(); ++i) {
      auto& p = weights_.parameters()[i].values;
      auto& g = gradients_.parameters()[i].values;
      tensors.push_back({{p.data(), p.size()}, {g.data(), g.size()}});
    }
    return tensors;
  }

  void Load() {
    transformer_.LoadWeights(weights_);
    transformer_.LoadExpertBias(bias_.view());
  }

  Executor executor_;
  model::ParameterSet weights_;
  model::ParameterSet gradients_;
  model::Transformer transformer_;
  optim::AdamW adamw_;
  Matrix<float> bias_;
};

class AllocationTest
    : public ::testing::TestWithParam<std::tuple<std::string, int>> {};

TEST_P(AllocationTest, StepsAfterTheFirstTakeNoMemory) {
  const auto& [recipe, threads] = GetParam();
  model::ModelConfig config = SmallConfig();
  config.num_expert_groups = 3;
  config.num_limited_groups = 2;
  const SmallBatch batch(config, {70, 31, 64, 5});
  TrainingLoop loop(config, recipe, threads);
  const int64_t begin = allocations;
  loop.Step(batch);
  const int64_t of_first = allocations - begin;
  for (int step = 0; step < 2; ++step) loop.Step(batch);

  const int64_t before = allocations;
  loop.Step(batch);

  // A thread takes its own memory when it first computes, which on a busy
  // machine is later than the first step; in that step one had to.
  EXPECT_LE(allocations - before, (threads - 1) * of_first);
}

INSTANTIATE_TEST_SUITE_P(Recipes, AllocationTest,
                         ::testing::Combine(::testing::Values("fp32", "bf16",
                                                              "mxfp8_rceil"),
                                            ::testing::Values(1, 2, 3)),
                         [](const auto& pair) {
                           return std::get<0>(pair.param) + "_" +
                                  std::to_string(std::get<1>(pair.param));
                         });

}  // namespace
}  // namespace isoloss
