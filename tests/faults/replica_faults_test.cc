// Copies of one tensor in several processes that part company: the replica
// check (docs/distributed.md, "Faults").
#include <gtest/gtest.h>

#include "stage.h"

namespace isoloss::faults::replica_faults_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// What process `process` thinks the gradients are once they were reduced.
Scene WithGradients(
    int process, Scene scene,
    const std::function<void(int64_t, model::ParameterSet&)>& edit) {
  scene.hooks[process].before_update = edit;
  return scene;
}

constexpr const char* kReplicated =
    "replica check: replicated weights and expert biases of process 1";

// Case 4.
TEST(ReplicaFaults, ExpertsThatWereNotReducedAreNoticed) {
  Injection injection;
  Scene scene;
  // Clipping would spread what differs to the other tensors.
  scene.overrides = {"parallel.expert_data_parallel=2",
                     "parallel.dispatch_units=2", "train.clip_norm=1e9"};
  scene.processes = 4;

  ExpectDetected(
      WithGradients(2, scene,
                    [&](int64_t, model::ParameterSet& gradients) {
                      for (model::Parameter& gradient :
                           gradients.parameters()) {
                        if (gradient.of_experts) gradient.values.SetZero();
                      }
                      injection.Strike();
                    }),
      injection,
      AllOf(HasSubstr("step 2, replica check: weights of experts of process 2"),
            HasSubstr("not those of process 0")));
}

// Case 6.
TEST(ReplicaFaults, ARouterThatWasNotReducedIsNoticed) {
  Injection injection;
  Scene scene;
  scene.processes = 2;

  ExpectDetected(
      WithGradients(1, scene,
                    [&](int64_t, model::ParameterSet& gradients) {
                      gradients.ByName("layers.1.moe.router.gate.weight")
                          .values.SetZero();
                      injection.Strike();
                    }),
      injection, AllOf(HasSubstr("step 2, "), HasSubstr(kReplicated)));
}

// Case 3: norms that differ clip differently.
TEST(ReplicaFaults, ANormOfItsOwnIsNoticed) {
  Injection injection;
  Scene scene;
  scene.processes = 2;
  scene.overrides = {"train.clip_norm=1e-3"};
  scene.faults[1] = NormOfOwnExperts(injection);

  ExpectDetected(scene, injection,
                 AllOf(HasSubstr("step 2, "), HasSubstr(kReplicated)));
}

// Section 4.1: silent corruption of what a process computes.
TEST(ReplicaFaults, AFlippedBitOfAWeightIsNoticed) {
  Injection injection;
  Scene scene;
  scene.processes = 2;
  scene.hooks[1].after_update = [&](int64_t step, model::ParameterSet& weights,
                                    MatrixView<float>) {
    if (step != 2) return;
    auto* bits = reinterpret_cast<std::byte*>(
        weights.ByName("norm.weight").values.data());
    bits[0] ^= std::byte{1};
    injection.Strike();
  };

  ExpectDetected(scene, injection,
                 AllOf(HasSubstr("step 2, "), HasSubstr(kReplicated)));
}

// Case 19: biases of counts that were not reduced.
TEST(ReplicaFaults, ABiasOfItsOwnIsNoticed) {
  Injection injection;
  Scene scene;
  scene.processes = 2;
  scene.hooks[1].after_update = [&](int64_t step, model::ParameterSet&,
                                    MatrixView<float> bias) {
    if (step != 2) return;
    bias(1, 3) += 0.01F;
    injection.Strike();
  };

  ExpectDetected(scene, injection,
                 AllOf(HasSubstr("step 2, "), HasSubstr(kReplicated)));
}

}  // namespace
}  // namespace isoloss::faults::replica_faults_test
