// Every mutant does what its class says, and does it from its onset on.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/ensembles/benign_variants.h"
#include "qualification/mutant.h"
#include "qualification/nano_run.h"
#include "support/temporary_folder.h"

namespace isoloss::qualification::mutants_test {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using testing::Nano;
using testing::RunOf;
using testing::TraceOf;

train::Experiment NanoOf(int64_t steps) {
  return Nano({fmt::format("train.steps={}", steps)});
}

/// The original run of the quantised arm, made once for each length.
const runlog::RunLog& Original(int64_t steps) {
  static std::map<int64_t, runlog::RunLog> runs;
  const auto found = runs.find(steps);
  if (found != runs.end()) return found->second;
  return runs.emplace(steps, RunOf(NanoOf(steps), {})).first->second;
}

runlog::RunLog Planted(const Mutant& mutant, int64_t steps) {
  const train::Experiment experiment = NanoOf(steps);
  return RunOf(experiment, Plant(mutant, experiment, experiment.arms[1], 1));
}

int64_t StepsFor(const Mutant& mutant) {
  return std::max<int64_t>(4, mutant.onset + mutant.period - 1);
}

/// The first step that differs; 0 if none does.
int64_t FirstDifference(const runlog::RunLog& log, const runlog::RunLog& other,
                        int64_t steps) {
  for (int64_t step = 1; step <= steps; ++step) {
    if (TraceOf(log, step) != TraceOf(other, step)) return step;
  }
  return 0;
}

class PlantedMutant : public ::testing::TestWithParam<std::string> {
 protected:
  const Mutant mutant_ = MutantByName(GetParam());
};

/// What a log declares is what was asked for; one event tells the truth.
void ExpectDeclaredAsOriginal(const Mutant& mutant, const runlog::RunLog& log,
                              const runlog::RunLog& original) {
  EXPECT_EQ(log.provenance.resolved_recipe,
            original.provenance.resolved_recipe);
  EXPECT_EQ(log.provenance.routing, original.provenance.routing);
  EXPECT_EQ(log.provenance.numerics_digest,
            original.provenance.numerics_digest);
  ASSERT_GE(log.events.size(), 2u);
  EXPECT_EQ(log.events[1].kind, "mutant");
  EXPECT_THAT(log.events[1].text, HasSubstr(mutant.name));
}

TEST_P(PlantedMutant, ChangesBitsAsItsClassSays) {
  const int64_t steps = StepsFor(mutant_);
  const runlog::RunLog& original = Original(steps);

  const runlog::RunLog log = Planted(mutant_, steps);

  const int64_t first = FirstDifference(log, original, steps);
  if (mutant_.kind == Class::kEquivalent || mutant_.only_in_probes) {
    EXPECT_EQ(first, 0);
    EXPECT_FALSE(mutant_.note.empty());
  } else {
    EXPECT_GE(first, mutant_.onset);
  }
  ExpectDeclaredAsOriginal(mutant_, log, original);
}

std::vector<std::string> NamesOf(bool planted) {
  std::vector<std::string> names;
  for (const Mutant& mutant : AllMutants()) {
    if ((mutant.plant != nullptr) == planted) names.push_back(mutant.name);
  }
  return names;
}

std::string NameOf(const ::testing::TestParamInfo<std::string>& info) {
  return info.param;
}

INSTANTIATE_TEST_SUITE_P(All, PlantedMutant, ::testing::ValuesIn(NamesOf(true)),
                         NameOf);

class LogMutant : public ::testing::TestWithParam<std::string> {};

TEST_P(LogMutant, ChangesWhatTheLogSays) {
  static const runlog::RunLog kWhole = RunOf(
      Nano({"log.statistics_every=1", "log.statistics_tensors=['*']"}), {});
  runlog::RunLog log = kWhole;
  const auto summary = [&log] {
    const auto& variance = log.tensors.statistics[runlog::kStat_variance];
    return fmt::format(
        "{} {} {} {}", log.provenance.arm, fmt::join(log.steps.step, ","),
        fmt::join(log.steps.loss_nats, ","), fmt::join(variance, ","));
  };
  const std::string before = summary();

  MutantByName(GetParam()).edit_log(log);

  EXPECT_NE(summary(), before);
  EXPECT_EQ(log.steps.step.size(), log.steps.loss_nats.size());
  EXPECT_EQ(log.steps.step.size(), log.steps.quantized_gemms.size());
}

INSTANTIATE_TEST_SUITE_P(All, LogMutant, ::testing::ValuesIn(NamesOf(false)),
                         NameOf);

TEST(Mutants, HaveUniqueNamesAndOneThingToDo) {
  std::set<std::string> names;
  std::set<int> catalogued;
  std::set<std::string> groups;
  for (const Mutant& mutant : AllMutants()) {
    EXPECT_TRUE(names.insert(mutant.name).second) << mutant.name;
    EXPECT_NE(mutant.plant == nullptr, mutant.edit_log == nullptr)
        << mutant.name;
    EXPECT_FALSE(mutant.what.empty() || mutant.group.empty()) << mutant.name;
    if (mutant.catalogue > 0) catalogued.insert(mutant.catalogue);
    groups.insert(mutant.group);
  }
  EXPECT_GE(catalogued.size(), 44u);
  EXPECT_EQ(groups.size(), 10u);
}

TEST(MutantByName, SuggestsTheNearestName) {
  try {
    MutantByName("scale_flor");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    EXPECT_THAT(error.what(), HasSubstr("Did you mean `scale_floor`?"));
  }
}

/// Two variants of each family, both far from the first: 1e-4 is what they may
/// cost. Their perturbations are of the last bit of FP32 sums (2^-24), which
/// rounding to BF16 turns into 2^-9 in about one element of 2^15.
TEST(BenignMutant, ChangesBitsAndHardlyTheLoss) {
  const int64_t steps = 4;
  const runlog::RunLog& original = Original(steps);
  std::set<std::string> digests = {original.provenance.final_weights_digest};
  for (size_t index = 0; index < 3 * ensembles::kBenignFamilies; ++index) {
    const Mutant variant = BenignMutant(index);

    const runlog::RunLog log = Planted(variant, steps);

    EXPECT_TRUE(digests.insert(log.provenance.final_weights_digest).second)
        << variant.name;
    EXPECT_NEAR(log.steps.loss_nats[2], original.steps.loss_nats[2], 1e-4)
        << variant.name;
  }
}

TEST(Plant, DoesTheSameOnAnyNumberOfThreads) {
  const train::Experiment experiment = NanoOf(2);
  for (const char* name : {"uninitialised", "third_expert", "token_drop"}) {
    const Mutant mutant = MutantByName(std::string(name) == "uninitialised"
                                           ? "scale_padding_uninitialised"
                                           : name);
    const auto digest = [&](int threads) {
      return RunOf(experiment, Plant(mutant, experiment, experiment.arms[1], 1),
                   1, threads)
          .provenance.final_weights_digest;
    };

    EXPECT_EQ(digest(1), digest(3)) << mutant.name;
  }
}

TEST(Plant, RefusesAnArmWithoutWhatTheMutantChanges) {
  const train::Experiment experiment = Nano();
  try {
    Plant(MutantByName("truncation"), experiment, experiment.arms[0], 1);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    EXPECT_THAT(error.what(), HasSubstr("arm bf16 quantises nothing"));
  }
}

/// No digest of a run knows what was planted in it; its event does.
TEST(Plant, IsNotResumedAsAnotherRun) {
  const train::Experiment experiment = Nano();
  const isoloss::test_support::TemporaryFolder folder;
  train::RunFiles files = {{folder.path(), "run"}};
  std::atomic<bool> stop{true};
  train::RunHooks hooks = Plant(MutantByName("bf16_master_weights"), experiment,
                                experiment.arms[1], 1);
  hooks.stop = &stop;
  RunOf(experiment, hooks, 1, 1, files);
  stop = false;
  files.resume = true;

  try {
    RunOf(experiment, {}, 1, 1, files);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    EXPECT_THAT(error.what(), HasSubstr("bf16_master_weights"));
  }
  EXPECT_TRUE(RunOf(experiment, hooks, 1, 1, files).provenance.complete);
}

/// Padding rows are what these two are about.
TEST(Plant, PaddingMattersWhereTheExchangePads) {
  const train::Experiment experiment =
      Nano({"parallel.ranks=4", "parallel.expert_padding=32"});
  const runlog::RunLog original = RunOf(experiment, {});
  for (const char* name : {"padding_uninitialised", "padding_nan"}) {
    const runlog::RunLog log =
        RunOf(experiment,
              Plant(MutantByName(name), experiment, experiment.arms[1], 1));

    EXPECT_NE(log.provenance.final_weights_digest,
              original.provenance.final_weights_digest)
        << name;
  }
}

}  // namespace
}  // namespace isoloss::qualification::mutants_test
