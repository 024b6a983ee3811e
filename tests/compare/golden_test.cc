#include "isoloss/compare/golden.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "../runlog/sample_log.h"
#include "isoloss/runlog/schema.h"

namespace isoloss::compare::golden_test {
namespace {

using runlog::RunLog;
using runlog::SampleLog;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

/// Another value whose bits differ in the last place.
void ChangeLastBit(int32_t& value) { value ^= 1; }
void ChangeLastBit(int64_t& value) { value ^= 1; }
void ChangeLastBit(std::string& value) { value += "x"; }
void ChangeLastBit(double& value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  bits ^= 1;
  std::memcpy(&value, &bits, sizeof(bits));
}

TEST(ContentDigest, DependsOnTheLastBitOfEveryReproducibleDataset) {
  const std::string original = ContentDigest(SampleLog());
  int changed = 0;

  for (const runlog::Group& group : runlog::RowGroups()) {
    for (const runlog::Column& column : group.columns) {
      if (!column.IsRecorded()) continue;
      RunLog log = SampleLog();
      const bool empty = runlog::View(log).Count(column) == 0;
      runlog::MutableView(log).WithValues(column, [&](auto& values) {
        if (!empty) ChangeLastBit(values.back());
      });
      const std::string name = group.PathOf(column);

      if (empty || !column.field.reproducible) {
        EXPECT_EQ(ContentDigest(log), original) << name;
        continue;
      }
      ++changed;
      EXPECT_NE(ContentDigest(log), original) << name;
      EXPECT_THAT(CompareContent(SampleLog(), log).differing,
                  ElementsAre(name));
    }
  }

  EXPECT_GT(changed, 60);
}

TEST(ContentDigest, IgnoresWhoComputedItWhenAndOnHowManyThreads) {
  RunLog log = SampleLog();
  log.provenance.tool_version = "another";
  log.provenance.commit = "another";
  log.provenance.compiler = "another";
  log.provenance.cpu_target = "another";
  log.provenance.workers += 1;
  log.provenance.processes += 1;
  log.provenance.transport = "another";
  log.provenance.corpus_description = "the same text in another folder";
  log.steps.step_seconds[0] += 1;
  log.events.push_back({0, "finish", "later"});

  EXPECT_EQ(ContentDigest(log), ContentDigest(SampleLog()));
  EXPECT_THAT(CompareContent(SampleLog(), log).differing, IsEmpty());
}

TEST(ContentDigest, DependsOnWhatTheRunWas) {
  const auto changed = [](auto change) {
    RunLog log = SampleLog();
    change(log.provenance);
    return CompareContent(SampleLog(), log).differing;
  };

  EXPECT_THAT(changed([](auto& p) { p.final_weights_digest += "x"; }),
              ElementsAre("final_weights_digest"));
  EXPECT_THAT(changed([](auto& p) { p.numerics_digest += "x"; }),
              ElementsAre("numerics_digest"));
  EXPECT_THAT(changed([](auto& p) { p.seed += 1; }), ElementsAre("seed"));
  EXPECT_THAT(changed([](auto& p) { p.complete = !p.complete; }),
              ElementsAre("complete"));
}

TEST(CompareContent, TellsADescriptionFromWhatRoundingChanges) {
  const auto description = [](auto change) {
    RunLog log = SampleLog();
    change(log);
    return CompareContent(SampleLog(), log).description;
  };

  EXPECT_THAT(description([](RunLog& log) {
                ++log.provenance.quantized_gemms_per_step;
                log.provenance.graph.recipe.site.back() += "x";
              }),
              ElementsAre("quantized_gemms_per_step", "/recipe/site"));
  EXPECT_THAT(description([](RunLog& log) {
                log.provenance.numerics_digest += "x";
                log.provenance.final_weights_digest += "x";
                log.provenance.complete = !log.provenance.complete;
                log.steps.loss_nats[0] += 1;
              }),
              IsEmpty());
  // Another library's logarithm, and another entropy.
  EXPECT_THAT(description([](RunLog& log) {
                log.provenance.unigram_entropy_nats *= 1 + 1e-12;
              }),
              IsEmpty());
  EXPECT_THAT(description([](RunLog& log) {
                log.provenance.unigram_entropy_nats *= 1 + 1e-6;
              }),
              ElementsAre("unigram_entropy_nats"));
  EXPECT_THAT(description([](RunLog& log) {
                log.provenance.unigram_entropy_nats = std::nan("");
              }),
              ElementsAre("unigram_entropy_nats"));
}

TEST(ContentDigest, TellsZerosAndExtentsApart) {
  RunLog zero = SampleLog();
  zero.steps.loss_nats[0] = 0.0;
  RunLog minus_zero = zero;
  minus_zero.steps.loss_nats[0] = -0.0;
  RunLog turned = SampleLog();
  std::swap(turned.moe.layers, turned.moe.experts);

  EXPECT_NE(ContentDigest(zero), ContentDigest(minus_zero));
  EXPECT_NE(ContentDigest(SampleLog()), ContentDigest(turned));
}

TEST(CompareContent, TakesAColumnThatOnlyTheRunHasForNews) {
  RunLog golden = SampleLog();
  golden.steps.batch_digest.clear();

  const ContentDifference newer = CompareContent(golden, SampleLog());
  const ContentDifference older = CompareContent(SampleLog(), golden);

  EXPECT_THAT(newer.differing, IsEmpty());
  EXPECT_THAT(newer.added, ElementsAre("/steps/batch_digest"));
  EXPECT_THAT(older.differing, ElementsAre("/steps/batch_digest"));
}

TEST(GoldenText, HasALineForEachStepWithTheExactLoss) {
  RunLog log = SampleLog();
  log.steps.loss_nats[1] = 5.0 + 1.0 / 3.0;
  log.steps.grad_norm[1] = 0.1;

  const std::string text = GoldenText(log, "mxfp8-seed1");

  EXPECT_THAT(text, HasSubstr("# mxfp8-seed1.h5 as text"));
  EXPECT_THAT(text, HasSubstr("\ncontent         " + ContentDigest(log)));
  EXPECT_THAT(text, HasSubstr("\n    2    5.333333  0x1.5555555555555p+2    "
                              "0x1.999999999999ap-4"));
  EXPECT_EQ(text.find("\n    6 "), std::string::npos);
}

TEST(GoldenText, ShowsATensorThatChangedInTheLineOfItsStep) {
  RunLog log = SampleLog();
  ASSERT_FALSE(log.tensors.digest.empty());
  log.tensors.digest.back() ^= 1;
  const std::string before = GoldenText(SampleLog(), "x");
  const std::string after = GoldenText(log, "x");

  std::vector<std::string> changed;
  for (size_t begin = 0; begin < before.size();) {
    const size_t end = before.find('\n', begin);
    if (before.substr(begin, end - begin) != after.substr(begin, end - begin)) {
      changed.push_back(before.substr(begin, 12));
    }
    begin = end + 1;
  }

  ASSERT_EQ(changed.size(), 2U);  // the content digest and the step
  EXPECT_EQ(changed[0], "content     ");
  EXPECT_EQ(std::stoll(changed[1]), log.tensors.step.back());
}

TEST(GoldenText, ShowsNumbersThatAreNotFinite) {
  RunLog log = SampleLog();
  log.steps.loss_nats[0] = std::numeric_limits<double>::quiet_NaN();
  log.steps.grad_norm[0] = -std::numeric_limits<double>::infinity();

  const std::string text = GoldenText(log, "x");

  EXPECT_THAT(text, HasSubstr("\n    1         nan  nan                     "
                              "-inf"));
  EXPECT_THAT(text, Not(HasSubstr("e+308")));
}

}  // namespace
}  // namespace isoloss::compare::golden_test
