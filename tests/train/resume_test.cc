// A run that was stopped, and maybe damaged, goes on to the bits of one that
// never was; as another run it does not go on.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/runlog/journal.h"
#include "kept_runs.h"
#include "support/temporary_folder.h"

namespace isoloss::train::resume_test {
namespace {

namespace fs = std::filesystem;
using isoloss::test_support::TemporaryFolder;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

/// The run that nothing happens to.
runlog::RunLog Uninterrupted(const Manner& manner, const std::string& arm) {
  const TemporaryFolder folder;
  return Execute({.folder = folder.path(), .manner = manner, .arm = arm});
}

const runlog::RunLog& Whole() {
  static const runlog::RunLog log = Uninterrupted({.ranks = 4}, "mxfp8");
  return log;
}

runlog::RunLog StopAfter(int64_t step, const fs::path& folder,
                         const Manner& manner = {.ranks = 4},
                         bool resume = false) {
  const runlog::RunLog log = Execute({.folder = folder,
                                      .manner = manner,
                                      .resume = resume,
                                      .stop_after = step});
  EXPECT_FALSE(log.provenance.complete);
  EXPECT_EQ(log.steps.step.back(), step);
  EXPECT_TRUE(fs::exists(PathsIn(folder).Journal()));
  return log;
}

runlog::RunLog Resume(const fs::path& folder,
                      const Manner& manner = {.ranks = 4}) {
  return Execute({.folder = folder, .manner = manner, .resume = true});
}

fs::path CheckpointIn(const fs::path& folder, int64_t step) {
  return PathsIn(folder).Checkpoints() / fmt::format("step-{:06}", step);
}

/// Flips one bit in the middle of a file.
void Damage(const fs::path& file) {
  ASSERT_TRUE(fs::exists(file)) << file;
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  const auto place = static_cast<std::streamoff>(fs::file_size(file) / 2);
  stream.seekg(place);
  const int byte = stream.get();
  stream.seekp(place);
  stream.put(static_cast<char>(byte ^ 1));
}

// Executed in another way -----------------------------------------------------

class StoppedAtTest : public ::testing::TestWithParam<int64_t> {};

TEST_P(StoppedAtTest, GoesOnToTheSameBits) {
  const TemporaryFolder folder;
  StopAfter(GetParam(), folder.path());

  const runlog::RunLog log = Resume(folder.path());

  ExpectSame(log, Whole(), folder.path());
  EXPECT_THAT(EventsOf(log, "resume"),
              ElementsAre(HasSubstr(
                  fmt::format("from step {0}; {0} steps", GetParam()))));
  EXPECT_THAT(EventsOf(log, "damage"), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Steps, StoppedAtTest, ::testing::Range<int64_t>(1, 8));

struct Handover {
  std::string label;
  std::vector<Manner> manners;
  bool same_mesh = true;  ///< so that all moves the same bytes
};
void PrintTo(const Handover& handover, std::ostream* out) {
  *out << handover.label;
}

class HandoverTest : public ::testing::TestWithParam<Handover> {};

/// Each manner goes on after three steps of the one before, the last of which
/// it computes again, as if a kill had come before its checkpoint.
TEST_P(HandoverTest, ComputesAgainWhatAnotherComputed) {
  const TemporaryFolder folder;
  const std::vector<Manner>& manners = GetParam().manners;
  int64_t step = 0;
  for (size_t i = 0; i + 1 < manners.size(); ++i) {
    StopAfter(step += i == 0 ? 4 : 3, folder.path(), manners[i],
              /*resume=*/i > 0);
    fs::remove_all(CheckpointIn(folder.path(), step));
  }

  const runlog::RunLog log = Resume(folder.path(), manners.back());

  ExpectSame(log, Whole(), folder.path(), GetParam().same_mesh);
  EXPECT_THAT(EventsOf(log, "resume").front(),
              HasSubstr("from step 3; 4 steps"));
}

/// Each manner goes on after two steps of the one before.
TEST_P(HandoverTest, GoesOnToTheSameBits) {
  const TemporaryFolder folder;
  const std::vector<Manner>& manners = GetParam().manners;
  int64_t step = 0;
  for (size_t i = 0; i + 1 < manners.size(); ++i) {
    StopAfter(step += 2, folder.path(), manners[i], /*resume=*/i > 0);
  }

  const runlog::RunLog log = Resume(folder.path(), manners.back());

  ExpectSame(log, Whole(), folder.path(), GetParam().same_mesh);
  EXPECT_THAT(EventsOf(log, "resume"), SizeIs(manners.size() - 1));
  EXPECT_EQ(log.provenance.workers, manners.back().workers);
  EXPECT_EQ(log.provenance.ranks, static_cast<int64_t>(manners.back().ranks));
}

Manner Ranks(size_t ranks, std::string_view transport = "loop") {
  return {.ranks = ranks, .transport = transport};
}
Manner Processes(size_t count) {
  return {.ranks = 4, .transport = "memory", .processes = count};
}

INSTANTIATE_TEST_SUITE_P(
    Manners, HandoverTest,
    ::testing::Values(
        Handover{"twice", {Ranks(4), Ranks(4), Ranks(4)}},
        Handover{"workers",
                 {{.workers = 1, .ranks = 4}, {.workers = 3, .ranks = 4}}},
        Handover{"fewer_workers",
                 {{.workers = 3, .ranks = 4}, {.workers = 1, .ranks = 4}}},
        Handover{"transports",
                 {Ranks(4), Ranks(4, "threads"), Ranks(4, "shuffled")}},
        Handover{"ranks", {Ranks(1), Ranks(4), Ranks(2)}, false},
        Handover{"fewer_ranks", {Ranks(4), Ranks(1)}, false},
        Handover{"ranks_and_back", {Ranks(4), Ranks(2), Ranks(4)}, false},
        Handover{"ranks_and_transports",
                 {Ranks(2, "shuffled"), Ranks(16, "threads"), Ranks(16)},
                 false},
        Handover{"processes", {Processes(1), Processes(2), Processes(1)}},
        Handover{"processes_from_none", {Ranks(4), Processes(2), Ranks(4)}},
        Handover{"processes_again", {Processes(2), Processes(2)}}),
    [](const auto& handover) { return handover.param.label; });

/// Recipes with random bits, random signs or a history of magnitudes.
class RecipeWithStateTest : public ::testing::TestWithParam<std::string> {};

TEST_P(RecipeWithStateTest, GoesOnToTheSameBitsInOtherWays) {
  const TemporaryFolder folder;
  Execution execution{
      .folder = folder.path(), .manner = Ranks(1), .arm = GetParam()};
  execution.stop_after = 2;
  Execute(execution);
  execution.resume = true;
  execution.manner = Ranks(16, "shuffled");
  execution.stop_after = 5;
  Execute(execution);
  execution.manner = Processes(2);
  execution.stop_after = kSteps;

  const runlog::RunLog log = Execute(execution);

  ExpectSame(log, Uninterrupted({.workers = 3, .ranks = 4}, GetParam()),
             folder.path(), /*exchange=*/false);
}

INSTANTIATE_TEST_SUITE_P(Recipes, RecipeWithStateTest,
                         ::testing::Values("mxfp4_rht_sr", "te_fp8_delayed",
                                           "te_nvfp4"),
                         [](const auto& test) { return test.param; });

TEST(Resume, TellsWhereTheTrafficOfOneMeshEnds) {
  const TemporaryFolder folder;
  StopAfter(4, folder.path());

  const runlog::RunLog log = Resume(folder.path(), Ranks(2));

  EXPECT_THAT(log.exchange.step, ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(EventsOf(log, "mesh"),
              ElementsAre(AllOf(HasSubstr("4 ranks"), HasSubstr("2 ranks"))));
}

// Damaged in between ----------------------------------------------------------

/// Executes `run` in one go, and to step 4 and then in the manner `other`,
/// which comes to the same bits. Returns the log of the latter.
runlog::RunLog GoOnAs(const Manner& other, Execution run) {
  const TemporaryFolder whole_folder;
  run.folder = whole_folder.path();
  const runlog::RunLog whole = Execute(run);
  const TemporaryFolder folder;
  run.folder = folder.path();
  run.stop_after = 4;
  Execute(run);
  run.manner = other;
  run.resume = true;
  run.stop_after = kSteps;
  runlog::RunLog log = Execute(run);
  ExpectSame(log, whole, folder.path());
  return log;
}

/// Random bits are a step's, whoever computes it.
TEST(Resume, GoesOnToTheBitsOfQuantisedAttentionAndGains) {
  const Execution run = {
      .manner = Ranks(4),
      .overrides = {"recipes.own.operands.r.element=e4m3",
                    "recipes.own.operands.r.rounding=stochastic",
                    "recipes.own.operands.r.random_bits=8",
                    "recipes.own.attention.q=r", "recipes.own.attention.p=r",
                    "recipes.own.attention.ds=r", "recipes.own.norm_gains=r",
                    "arms.mxfp8.recipe=own"}};

  const runlog::RunLog log = GoOnAs(Processes(2), run);

  EXPECT_NE(log.steps.loss_nats, Whole().steps.loss_nats);
  EXPECT_EQ(log.steps.quantized_gemms.back(),
            log.provenance.quantized_gemms_per_step);
}

TEST(Resume, GoesOnToTheBitsOfPerturbedWeightsInOtherWays) {
  Manner other = Processes(2);
  other.workers = 2;

  const runlog::RunLog log = GoOnAs(
      other, {.manner = Ranks(4), .overrides = {"arms.mxfp8.perturb=one_ulp"}});

  EXPECT_EQ(log.provenance.perturbation, "one_ulp, draw 1");
  EXPECT_NE(log.provenance.initial_weights_digest,
            Whole().provenance.initial_weights_digest);
  // In so small a model rounding may hide it from the losses of 8 steps.
  EXPECT_NE(log.provenance.final_weights_digest,
            Whole().provenance.final_weights_digest);
}

TEST(Resume, StartsAtTheFirstStepWithoutACheckpoint) {
  const TemporaryFolder folder;
  StopAfter(5, folder.path());
  fs::remove_all(PathsIn(folder.path()).Checkpoints());

  const runlog::RunLog log = Resume(folder.path());

  ExpectSame(log, Whole(), folder.path());
  EXPECT_THAT(EventsOf(log, "resume"),
              ElementsAre(HasSubstr("from step 0; 5 steps")));
}

TEST(Resume, FallsBackToTheCheckpointBeforeADamagedOne) {
  for (const char* file : {"tensors.safetensors", "manifest.json"}) {
    const TemporaryFolder folder;
    StopAfter(5, folder.path());
    Damage(CheckpointIn(folder.path(), 5) / file);

    const runlog::RunLog log = Resume(folder.path());

    ExpectSame(log, Whole(), folder.path());
    EXPECT_THAT(EventsOf(log, "resume"),
                ElementsAre(HasSubstr("from step 3; 5 steps")));
    EXPECT_THAT(EventsOf(log, "damage"), ElementsAre(HasSubstr("step-000005")));
  }
}

TEST(Resume, TakesAJournalThatIsTornAtItsEnd) {
  const TemporaryFolder folder;
  StopAfter(5, folder.path());
  const fs::path journal = PathsIn(folder.path()).Journal();
  fs::resize_file(journal, fs::file_size(journal) - 7);

  const runlog::RunLog log = Resume(folder.path());

  ExpectSame(log, Whole(), folder.path());
  EXPECT_THAT(EventsOf(log, "damage"), ElementsAre(HasSubstr("cut off")));
}

TEST(Resume, TakesWhatStandsBeforeDamageInAJournal) {
  const TemporaryFolder folder;
  StopAfter(5, folder.path());
  Damage(PathsIn(folder.path()).Journal());

  const runlog::RunLog log = Resume(folder.path());

  ExpectSame(log, Whole(), folder.path());
  EXPECT_THAT(EventsOf(log, "damage"), Contains(HasSubstr("CRC32C is wrong")));
}

TEST(Resume, StartsAnewWithoutAJournal) {
  const TemporaryFolder folder;
  StopAfter(5, folder.path());
  fs::remove(PathsIn(folder.path()).Journal());

  const runlog::RunLog log = Resume(folder.path());

  ExpectSame(log, Whole(), folder.path());
}

TEST(Resume, ReturnsAnEndedRunAsItIs) {
  const TemporaryFolder folder;
  Execute({.folder = folder.path(), .manner = Ranks(4)});
  bool trained = false;
  RunHooks hooks;
  hooks.after_backward = [&](int64_t, model::ParameterSet&) { trained = true; };

  const runlog::RunLog log = Execute({.folder = folder.path(),
                                      .manner = Ranks(4),
                                      .resume = true,
                                      .hooks = hooks});

  ExpectSame(log, Whole(), folder.path());
  EXPECT_FALSE(trained);
  EXPECT_THAT(EventsOf(log, "resume"), IsEmpty());
}

TEST(Resume, StopsWhereAStepComesOutDifferently) {
  const TemporaryFolder folder;
  StopAfter(5, folder.path());
  fs::remove_all(CheckpointIn(folder.path(), 5));
  RunHooks hooks;
  hooks.before_update = [](int64_t step, model::ParameterSet& gradients) {
    if (step == 4) gradients.ByName("norm.weight").values.data()[0] *= 2;
  };

  EXPECT_THAT(
      [&] {
        Execute({.folder = folder.path(),
                 .manner = Ranks(4),
                 .resume = true,
                 .hooks = hooks});
      },
      ::testing::ThrowsMessage<Error>(AllOf(
          HasSubstr("differs from the recorded one"), HasSubstr("at step 4"))));

  ExpectSame(Resume(folder.path()), Whole(), folder.path());
}

// As another run --------------------------------------------------------------

/// Expects that the stopped run in `folder` is refused, with the difference in
/// words, and can still go on as itself.
void ExpectRefused(Execution other, const std::vector<std::string>& words) {
  const TemporaryFolder folder;
  StopAfter(4, folder.path());
  other.folder = folder.path();
  other.manner.ranks = 4;
  other.resume = true;
  std::string message;

  try {
    Execute(other);
  } catch (const Error& error) {
    // Of several processes one may be the first, and the others tell its words.
    EXPECT_THAT(error.kind(), AnyOf(ErrorKind::kConfig, ErrorKind::kTransport));
    message = error.what();
  }

  EXPECT_THAT(message, HasSubstr("it was begun as another run"));
  for (const std::string& word : words) EXPECT_THAT(message, HasSubstr(word));
  ExpectSame(Resume(folder.path()), Whole(), folder.path());
}

TEST(ResumeAsAnotherRun, IsRefusedWithTheDifference) {
  ExpectRefused({.overrides = {"train.lr=0.02"}},
                {"train.lr: 0.01 before, 0.02 now"});
  ExpectRefused({.overrides = {"data.sequence_length=64"}},
                {"data.sequence_length: 32 before, 64 now"});
  ExpectRefused({.overrides = {"data.seed=7"}},
                {"data.seed: 0 before, 7 now", "corpus: "});
  ExpectRefused({.overrides = {"arms.mxfp8.recipe=mxfp8_floor"}},
                {"recipe: mxfp8_rceil before, mxfp8_floor now"});
  ExpectRefused(
      {.overrides = {"arms.mxfp8.exclude=[\"lm_head\", \"attention.wo\"]"}},
      {"recipe of a GEMM site: `layers.0.attention.wo"});
  ExpectRefused({.arm = "bf16"}, {"arm: mxfp8 before, bf16 now"});
  ExpectRefused({.overrides = {"arms.mxfp8.exchange=rank"}},
                {"exchange: exchange = \"flat\"", "exchange = \"rank\""});
  ExpectRefused({.seed = 2}, {"seed: 1 before, 2 now"});
  ExpectRefused({.overrides = {"arms.mxfp8.perturb=one_ulp"}},
                {"perturbation: none before, one_ulp, draw 1 now"});
  ExpectRefused({.overrides = {"routing.mode=forced_balance"}},
                {"routing: learned before, forced_balance now"});
}

TEST(ResumeAsAnotherRun, IsRefusedWithOtherInitialWeights) {
  RunHooks hooks;
  hooks.edit_initial_weights = [](model::ParameterSet& weights) {
    weights.ByName("norm.weight").values.data()[0] += 1;
  };

  ExpectRefused({.hooks = hooks}, {"initial weights: "});
}

TEST(ResumeAsAnotherRun, IsRefusedByEveryProcess) {
  ExpectRefused({.manner = Processes(2), .overrides = {"train.lr=0.02"}},
                {"train.lr: 0.01 before, 0.02 now"});
}

TEST(ResumeAsAnotherRun, IsRefusedWithOtherCodeNumerics) {
  const TemporaryFolder folder;
  runlog::Provenance provenance = StopAfter(4, folder.path()).provenance;
  provenance.numerics_digest = "0123456789abcdef";
  runlog::JournalWriter::Continue(PathsIn(folder.path()).Journal())
      .Append(provenance);

  EXPECT_THAT([&] { Resume(folder.path()); },
              ::testing::ThrowsMessage<Error>(
                  HasSubstr("code numerics: 0123456789abcdef (isoloss ")));
}

TEST(ResumeAsAnotherRun, IsRefusedAfterItsEnd) {
  const TemporaryFolder folder;
  Execute({.folder = folder.path(), .manner = Ranks(4)});

  EXPECT_THAT(
      [&] {
        Execute({.folder = folder.path(),
                 .manner = Ranks(4),
                 .resume = true,
                 .overrides = {"train.weight_decay=0"}});
      },
      ::testing::ThrowsMessage<Error>(HasSubstr("train.weight_decay: ")));
}

TEST(ResumeAsAnotherRun, IsNotWhatOnlyTheLogKeeps) {
  const TemporaryFolder folder;
  StopAfter(4, folder.path());

  const runlog::RunLog log = Execute({.folder = folder.path(),
                                      .manner = Ranks(4),
                                      .resume = true,
                                      .overrides = {"log.checkpoint_every=1"}});

  ExpectSame(log, Whole(), folder.path());
}

}  // namespace
}  // namespace isoloss::train::resume_test
