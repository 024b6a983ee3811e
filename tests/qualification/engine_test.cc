// The engine that mutants change computes, unchanged, what production computes.
#include "qualification/engine.h"

#include <gtest/gtest.h>

#include <utility>

#include "qualification/nano_run.h"

namespace isoloss::qualification::engine_test {
namespace {

using testing::Nano;
using testing::RunOf;
using testing::TraceOf;

class EngineTest : public ::testing::TestWithParam<size_t> {
 protected:
  void ExpectBitsOfProduction(EngineEdits edits,
                              std::vector<std::string> overrides = {}) {
    overrides.emplace_back("train.steps=3");
    const train::Experiment experiment = Nano(std::move(overrides));
    const runlog::RunLog expected = RunOf(experiment, {}, GetParam());
    train::RunHooks hooks;
    hooks.gemm_engine = MakeEngine(std::move(edits));

    const runlog::RunLog log = RunOf(experiment, hooks, GetParam());

    EXPECT_EQ(log.provenance.final_weights_digest,
              expected.provenance.final_weights_digest);
    for (int64_t step = 1; step <= 3; ++step) {
      EXPECT_EQ(TraceOf(log, step), TraceOf(expected, step));
    }
  }
};

TEST_P(EngineTest, UnchangedHasTheBitsOfProduction) {
  ExpectBitsOfProduction({});
}

TEST_P(EngineTest, UnchangedHasTheBitsOfProductionWithDispatchUnits) {
  ExpectBitsOfProduction({}, {"parallel.ranks=4", "parallel.dispatch_units=2"});
}

/// Scales and elements apart are the definition of a block.
TEST_P(EngineTest, ScalesThenElementsAreQuantiseDequantise) {
  ExpectBitsOfProduction(
      {.elements = [](const Place& place, uint8_t scale,
                      std::span<const float> in, std::span<float> out) {
        QuantizeUnderScale(*place.spec().element, scale, in, out);
      }});
}

/// Operands of linear layers but the gates' are BF16, whose products are exact
/// in FP32: a chain of FMAs is one of additions.
TEST_P(EngineTest, FoldedProductsAreTheChainOfFmas) {
  ExpectBitsOfProduction(
      {.touches =
           [](const model::GemmTask& task) {
             return !AtSite(task, "router.gate");
           },
       .product =
           [](const Product& product) {
             SumSegments(product, [](MatrixView<const float> a,
                                     MatrixView<const float> b,
                                     MatrixView<float> sums) {
               FoldProducts<float>(
                   a, b, {}, [](float acc, float term) { return acc + term; },
                   sums);
             });
           }});
}

INSTANTIATE_TEST_SUITE_P(Arms, EngineTest, ::testing::Values(0, 1));

TEST(BlocksOf, BeginAnewAtEverySegment) {
  const size_t ends[] = {40, 40, 72};

  const std::vector<Block> blocks = BlocksOf(ends);

  ASSERT_EQ(blocks.size(), 3u);
  EXPECT_EQ(blocks[0].end, 32u);
  EXPECT_EQ(blocks[1].begin, 32u);
  EXPECT_EQ(blocks[1].end, 40u);
  EXPECT_EQ(blocks[2].begin, 40u);
  EXPECT_EQ(blocks[2].end, 72u);
}

}  // namespace
}  // namespace isoloss::qualification::engine_test
