// The same bits whatever executes the model: threads, instruction set, history.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "isoloss/base/digest.h"
#include "isoloss/kernels/targets.h"
#include "model/reference.h"
#include "model/small_model.h"

namespace isoloss::model::determinism_test {
namespace {

using test_support::SmallBatch;
using test_support::SmallConfig;
using test_support::SmallModel;

/// Documents shorter and longer than an attention block, packed three to two
/// sequences.
SmallBatch Batch() {
  SmallBatch batch(SmallConfig(), {37, 80, 51});
  batch.sequence_ends = {117, 168};
  return batch;
}

/// Digest of loss and all gradients.
uint64_t DigestOfStep(SmallModel& model, const SmallBatch& batch,
                      TapSink* tap = nullptr) {
  const double loss = model.Step(batch, tap);
  Digest digest;
  digest.Update(&loss, sizeof(loss));
  const uint64_t gradients = model.gradients.Digest();
  digest.Update(&gradients, sizeof(gradients));
  return digest.Value();
}

class DeterminismTest : public ::testing::TestWithParam<const char*> {
 protected:
  ~DeterminismTest() override { kernels::ForceTarget(""); }
};

TEST_P(DeterminismTest, BitsDoNotDependOnThreads) {
  SmallModel one(SmallConfig(), GetParam(), 1);
  const uint64_t expected = DigestOfStep(one, Batch());

  for (const int threads : {2, 3, 8}) {
    SmallModel several(SmallConfig(), GetParam(), threads);
    EXPECT_EQ(DigestOfStep(several, Batch()), expected) << threads;
  }
}

TEST_P(DeterminismTest, BitsDoNotDependOnTheInstructionSet) {
  kernels::ForceTarget("scalar");
  SmallModel scalar(SmallConfig(), GetParam());
  const uint64_t expected = DigestOfStep(scalar, Batch());

  for (const std::string& target : kernels::SupportedTargets()) {
    kernels::ForceTarget(target);
    SmallModel model(SmallConfig(), GetParam(), 2);
    EXPECT_EQ(DigestOfStep(model, Batch()), expected) << target;
  }
}

TEST_P(DeterminismTest, BitsDoNotDependOnWhatRanBefore) {
  SmallModel fresh(SmallConfig(), GetParam());
  const uint64_t expected = DigestOfStep(fresh, Batch());

  SmallModel used(SmallConfig(), GetParam());
  DigestOfStep(used, SmallBatch(SmallConfig(), {300, 20}, 6));
  used.transformer.Forward(SmallBatch(SmallConfig(), {5}, 7).view());

  EXPECT_EQ(DigestOfStep(used, Batch()), expected);
  EXPECT_EQ(DigestOfStep(used, Batch()), expected) << "second time";
}

TEST_P(DeterminismTest, BitsDoNotDependOnListening) {
  SmallModel model(SmallConfig(), GetParam());
  test_support::Recorder recorder;

  const uint64_t listened = DigestOfStep(model, Batch(), &recorder);

  EXPECT_FALSE(recorder.tensors.empty());
  EXPECT_EQ(DigestOfStep(model, Batch()), listened);
}

TEST_P(DeterminismTest, DigestSeesTheInput) {
  SmallModel model(SmallConfig(), GetParam());
  SmallBatch other = Batch();
  other.tokens[100] = (other.tokens[100] + 1) % 37;

  EXPECT_NE(DigestOfStep(model, Batch()), DigestOfStep(model, other));
}

INSTANTIATE_TEST_SUITE_P(
    Recipes, DeterminismTest,
    ::testing::Values("fp32", "bf16", "mxfp8_rceil", "mxfp8_e5m2_grads"),
    [](const ::testing::TestParamInfo<const char*>& recipe) {
      return std::string(recipe.param);
    });

}  // namespace
}  // namespace isoloss::model::determinism_test
