// Which batches, experts and meshes several processes can share.
#include "isoloss/train/mesh_setup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "isoloss/transport/process_transport.h"
#include "support/memory_network.h"
#include "train/experiment_text.h"

namespace isoloss::train::mesh_setup_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

/// What CheckProcesses says; "" if it accepts.
std::string Refusal(const Experiment& experiment, size_t processes) {
  try {
    CheckProcesses(experiment, processes);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    return error.what();
  }
  return "";
}

/// An experiment that breaks one rule, and the nearest one that keeps it.
struct Rule {
  const char* name;
  size_t processes;
  std::vector<std::string> broken;
  std::vector<std::string> kept;
  /// What the message says: key and numbers, then the rule.
  const char* finding;
  const char* rule;
};

// The experiment has 8 sequences of 128 tokens, 32 evaluated sequences and one
// layer of 8 experts.
const Rule kRules[] = {
    {"Ranks",
     3,
     {"parallel.ranks=4", "train.sequences_per_batch=12",
      "log.eval_sequences=33"},
     {"parallel.ranks=3", "model.num_experts=6", "model.dim=64",
      "model.moe_hidden_dim=64", "train.sequences_per_batch=12",
      "log.eval_sequences=33"},
     "parallel.ranks gives 4 ranks to 3 processes",
     "each must get"},
    {"WholeGroupsOrPartsOfOne",
     3,
     {"parallel.ranks=12", "parallel.expert_data_parallel=2",
      "parallel.ranks_per_node=2", "parallel.dispatch_units=2",
      "model.num_experts=12", "train.sequences_per_batch=12",
      "log.eval_sequences=33"},
     {"parallel.ranks=12", "parallel.ranks_per_node=2", "model.num_experts=12",
      "train.sequences_per_batch=12", "log.eval_sequences=33"},
     "each of 3 processes would play 4 ranks",
     "whole groups of 6 (ranks / expert_data_parallel)"},
    {"SequencesOfABatchArePowersOfTwo",
     2,
     {"parallel.ranks=2", "train.sequences_per_batch=12"},
     {"parallel.ranks=2", "train.sequences_per_batch=16"},
     "train.sequences_per_batch gives 12 sequences to 2 processes",
     "a power of two"},
    {"EveryProcessHasASequence",
     4,
     {"parallel.ranks=4", "train.sequences_per_batch=2"},
     {"parallel.ranks=4", "train.sequences_per_batch=4"},
     "train.sequences_per_batch gives 2 sequences to 4 processes",
     "a power of two"},
    {"TokensAreWholeLeaves",
     2,
     {"parallel.ranks=2", "train.sequences_per_batch=2",
      "data.sequence_length=24"},
     {"parallel.ranks=2", "train.sequences_per_batch=2",
      "data.sequence_length=32"},
     "data.sequence_length * train.sequences_per_batch gives 48 tokens to 2 "
     "processes",
     "a multiple of 32"},
    {"LeavesArePowersOfTwo",
     2,
     {"parallel.ranks=2", "train.sequences_per_batch=2",
      "data.sequence_length=96"},
     {"parallel.ranks=2", "train.sequences_per_batch=2",
      "data.sequence_length=64"},
     "data.sequence_length * train.sequences_per_batch gives 6 leaves of 32 "
     "tokens to 2 processes",
     "a power of two"},
    {"EvaluatedSequences",
     2,
     {"parallel.ranks=2", "log.eval_sequences=33"},
     {"parallel.ranks=2", "log.eval_sequences=34"},
     "log.eval_sequences gives 33 sequences to 2 processes",
     "each must get"},
    // 4 experts x 36 x 40 values.
    {"ValuesOfExperts",
     2,
     {"parallel.ranks=2", "model.dim=40", "model.moe_hidden_dim=36"},
     {"parallel.ranks=2", "model.dim=32", "model.moe_hidden_dim=32"},
     "each process would hold 5760 values of an expert tensor",
     "a multiple of 1024"},
    {"TiedEmbeddings",
     2,
     {"parallel.ranks=2", "model.tied_embeddings=true"},
     {"parallel.ranks=2", "model.tied_embeddings=false"},
     "model.tied_embeddings is true",
     "with 2 processes"},
};

class ShareRule : public testing::TestWithParam<Rule> {};

TEST_P(ShareRule, IsToldWhereItIsBrokenAndNotWhereItIsKept) {
  const Rule& rule = GetParam();

  EXPECT_THAT(Refusal(With(rule.broken), rule.processes),
              AllOf(StartsWith("folder/experiment.toml: "),
                    HasSubstr(rule.finding), HasSubstr(rule.rule)));
  EXPECT_EQ(Refusal(With(rule.kept), rule.processes), "");
  EXPECT_EQ(Refusal(With(rule.broken), 1), "") << "one process takes anything";
}

INSTANTIATE_TEST_SUITE_P(Rules, ShareRule, testing::ValuesIn(kRules),
                         [](const auto& rule) {
                           return std::string(rule.param.name);
                         });

TEST(CheckProcesses, ValuesOfExpertsMatterOnlyWhereAGroupIsParted) {
  const std::vector<std::string> awkward = {"parallel.ranks=2", "model.dim=40",
                                            "model.moe_hidden_dim=36"};
  const auto also = [&](std::vector<std::string> more) {
    more.insert(more.begin(), awkward.begin(), awkward.end());
    return With(std::move(more));
  };

  EXPECT_NE(Refusal(also({}), 2), "");
  EXPECT_EQ(Refusal(also({"parallel.expert_data_parallel=2",
                          "parallel.dispatch_units=2"}),
                    2),
            "");
  EXPECT_EQ(Refusal(also({"model.n_dense_layers=2"}), 2), "");
}

TEST(CheckProcesses, CountsTheValuesOfAProcessNotOfARank) {
  // A rank holds one expert of 24 x 32 = 768 values, two processes hold 4 each
  // and four processes 2 each.
  const Experiment experiment =
      With({"parallel.ranks=8", "model.dim=32", "model.moe_hidden_dim=24"});

  EXPECT_EQ(Refusal(experiment, 2), "");
  EXPECT_THAT(Refusal(experiment, 4), HasSubstr("would hold 1536 values"));
}

TEST(CheckProcesses, UnitsArePowersOfTwoForThoseThatHoldTheSameExperts) {
  // A file cannot say this: units divide sequences, which are a power of two.
  Experiment experiment =
      With({"parallel.ranks=4", "parallel.expert_data_parallel=2",
            "parallel.dispatch_units=2"});
  const auto with_units = [&](size_t units, size_t processes) {
    experiment.parallel.dispatch_units = units;
    return Refusal(experiment, processes);
  };

  // Both ways to have two copies: in two processes, or in two pairs of them.
  for (const size_t processes : {2, 4}) {
    EXPECT_EQ(with_units(2, processes), "");
    EXPECT_EQ(with_units(8, processes), "");
    EXPECT_THAT(
        with_units(6, processes),
        AllOf(HasSubstr("parallel.dispatch_units is 6"),
              HasSubstr("each of 2 processes"), HasSubstr("a power of two")));
    EXPECT_THAT(with_units(3, processes),
                HasSubstr("parallel.dispatch_units is 3"));
  }
  experiment.parallel.mesh.replicas = 1;
  EXPECT_EQ(with_units(6, 2), "") << "one copy";
}

TEST(CheckProcesses, TakesEveryDivisorOfTheRanks) {
  const Experiment experiment = With({"parallel.ranks=8"});

  for (const size_t processes : {1, 2, 4, 8}) {
    EXPECT_EQ(Refusal(experiment, processes), "") << processes;
  }
}

TEST(MakeMesh, ChecksTheProcessesThatItsTransportConnects) {
  // The second process never comes; the first does not wait long for its
  // farewell.
  const Experiment experiment =
      With({"parallel.ranks=4", "model.tied_embeddings=true",
            "parallel.deadline_seconds=0.01"});
  Executor executor(1);
  const auto mesh_over = [&](int processes) {
    transport::MemoryNetwork network(processes);
    const auto link = [&](const transport::TransportOptions& options,
                          Executor& workers) {
      return std::make_unique<transport::ProcessTransport>(
          "memory", options, workers, /*run_id=*/1, &network.endpoint(0));
    };
    return MakeMesh(experiment, experiment.arms[0], "", executor, link)
        ->transport()
        ->ranks();
  };

  EXPECT_EQ(mesh_over(1), 4);
  EXPECT_THAT([&] { mesh_over(2); },
              testing::ThrowsMessage<Error>(
                  AllOf(HasSubstr("model.tied_embeddings is true"),
                        HasSubstr("with 2 processes"))));
}

TEST(MakeMesh, MakesNoTransportWhereNothingTravels) {
  const Experiment experiment = Parse(kText);
  Executor executor(1);

  const auto mesh = MakeMesh(experiment, experiment.arms[0], "", executor);

  EXPECT_EQ(mesh->transport(), nullptr);
}

}  // namespace
}  // namespace isoloss::train::mesh_setup_test
