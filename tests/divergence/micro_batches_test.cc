// A run's log, dumps and checkpoints do not tell in how many shares its steps
// were computed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/probes/dump.h"
#include "isoloss/runlog/tensor_dump.h"
#include "kept_runs.h"
#include "support/temporary_folder.h"

namespace isoloss::train::micro_batches_test {
namespace {

using isoloss::test_support::TemporaryFolder;
using ::testing::HasSubstr;

/// Returns the overrides of a run in `shares`, with `more`.
std::vector<std::string> InShares(int shares,
                                  std::vector<std::string> more = {}) {
  more.push_back("parallel.dispatch_units=4");
  more.push_back("parallel.micro_batches=" + std::to_string(shares));
  return more;
}

struct Case {
  std::string label;
  std::string arm;
  size_t ranks = 1;
  std::vector<std::string> overrides = {};
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.label; }

class MicroBatchesTest : public testing::TestWithParam<Case> {
 protected:
  runlog::RunLog Train(const TemporaryFolder& folder, int shares,
                       int64_t stop_after = kSteps, bool resume = false,
                       const RunHooks& hooks = {}) {
    std::vector<std::string> overrides = GetParam().overrides;
    overrides.push_back("log.dump_tensors=[\"*\"]");
    return Execute({.folder = folder.path(),
                    .manner = {.workers = 2, .ranks = GetParam().ranks},
                    .resume = resume,
                    .stop_after = stop_after,
                    .arm = GetParam().arm,
                    .overrides = InShares(shares, overrides),
                    .hooks = hooks});
  }
  static runlog::TensorDump DumpIn(const TemporaryFolder& folder) {
    return runlog::ReadTensorDump(folder.path() / runlog::kDumpFolder /
                                  probes::DumpFileName("kept", 1));
  }
};

TEST_P(MicroBatchesTest, ChangeNoBit) {
  const TemporaryFolder whole;
  const runlog::RunLog expected = Train(whole, 1);
  for (const int shares : {2, 4}) {
    SCOPED_TRACE(shares);
    const TemporaryFolder folder;
    ExpectSame(Train(folder, shares), expected, folder.path());
    EXPECT_TRUE(DumpIn(folder) == DumpIn(whole));
  }
}

TEST_P(MicroBatchesTest, GoOnInAnotherNumber) {
  const TemporaryFolder whole;
  const runlog::RunLog expected = Train(whole, 1);
  const TemporaryFolder folder;
  Train(folder, 2, 4);
  ExpectSame(Train(folder, 4, kSteps, true), expected, folder.path());
}

/// The event names the place of the first value in the whole batch.
TEST_P(MicroBatchesTest, FindTheSameNonFiniteValue) {
  RunHooks hooks;
  hooks.after_update = [](int64_t step, model::ParameterSet& weights,
                          MatrixView<float>) {
    if (step != 3) return;
    Matrix<float>& w1 =
        weights.ByName("layers.1.moe.routed_experts.inner_experts.w1_EFD")
            .values;
    w1(w1.rows() - 1, 0) = std::numeric_limits<float>::quiet_NaN();
  };
  const TemporaryFolder whole;
  const runlog::RunLog expected = Train(whole, 1, kSteps, false, hooks);
  ASSERT_EQ(expected.events.back().kind, "abort");
  const TemporaryFolder folder;
  const runlog::RunLog found = Train(folder, 4, kSteps, false, hooks);
  EXPECT_EQ(found.events.back().text, expected.events.back().text);
}

INSTANTIATE_TEST_SUITE_P(
    Arms, MicroBatchesTest,
    testing::Values(
        Case{"bf16", "bf16"}, Case{"mxfp8", "mxfp8"},
        Case{"mxfp4_rht_sr", "mxfp4_rht_sr"}, Case{"te_nvfp4", "te_nvfp4"},
        Case{"te_fp8_delayed", "te_fp8_delayed"},
        // The last batch of an evaluation can't be cut in four.
        Case{"evaluation", "te_nvfp4", 1, {"log.eval_sequences=6"}},
        Case{"ranks",
             "mxfp8",
             4,
             {"parallel.ranks_per_node=2", "parallel.exchange=node",
              "parallel.expert_padding=32", "parallel.payload=mx1x32"}},
        // A rank has half a unit.
        Case{"replicas",
             "te_nvfp4",
             8,
             {"parallel.expert_data_parallel=2", "parallel.exchange=rank"}}),
    [](const auto& test) { return test.param.label; });

/// Returns the error of an experiment with these overrides.
std::string ErrorOf(std::vector<std::string> overrides,
                    const Manner& manner = {}) {
  try {
    KeptExperiment(manner, std::move(overrides));
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(MicroBatches, MustBeNodesOfAllTrees) {
  EXPECT_EQ(ErrorOf(InShares(2)), "");
  EXPECT_THAT(ErrorOf({"parallel.micro_batches=2"}),
              HasSubstr("`parallel.micro_batches` is 2, but each must get a "
                        "power of two of the 1 parallel.dispatch_units"));
  EXPECT_THAT(ErrorOf(InShares(2, {"train.sequences_per_batch=12"})),
              HasSubstr("of the 12 train.sequences_per_batch"));
  EXPECT_THAT(ErrorOf(InShares(2, {"data.sequence_length=48"})),
              HasSubstr("of the 6 leaves of 32 tokens"));
  EXPECT_THAT(ErrorOf(InShares(2, {"data.sequence_length=4"})),
              HasSubstr("each must get a multiple of 32 of the 16 tokens"));
}

TEST(MicroBatches, AreRefusedByNameWhereWholeBatchesAreNeeded) {
  EXPECT_THAT(ErrorOf(InShares(2), {.transport = "threads"}),
              HasSubstr("transport `threads` moves the rows of whole batches"));
  EXPECT_THAT(ErrorOf(InShares(2, {"model.tied_embeddings=true"})),
              HasSubstr("model.tied_embeddings is true"));
  const TemporaryFolder folder;
  RunHooks hooks;
  hooks.on_tensor = [](int64_t, const model::Tensor&) {};
  try {
    Execute(
        {.folder = folder.path(), .overrides = InShares(2), .hooks = hooks});
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("parallel.micro_batches is 2, but"));
  }
}

}  // namespace
}  // namespace isoloss::train::micro_batches_test
