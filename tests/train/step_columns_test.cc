// What the run log says about the exchange, against loops over the routing that
// it holds too.
#include "isoloss/train/step_columns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <string>
#include <vector>

#include "isoloss/base/digest.h"
#include "isoloss/corpus/batches.h"
#include "isoloss/train/trainer.h"

namespace isoloss::train::step_columns_test {
namespace {

using testing::Each;

// Four ranks on two nodes; each rank has 16 tokens and two experts. Every
// sequence is a rank's.
constexpr size_t kRanks = 4;
constexpr size_t kNodeRanks = 2;
constexpr size_t kNodes = kRanks / kNodeRanks;
constexpr size_t kTokens = 64;
constexpr size_t kSlots = 3;
constexpr size_t kExperts = 8;
constexpr size_t kLayers = 2;
constexpr size_t kSteps = 3;
constexpr std::string_view kText = R"(name = "trial"
[model]
vocab_size = 23
dim = 40
n_layers = 3
n_dense_layers = 1
qk_nope_head_dim = 10
moe_hidden_dim = 36
num_experts = 8
top_k = 3
[data]
source = "synthetic"
sequence_length = 16
noise_levels = 4
tokens = 4000
[train]
steps = 3
sequences_per_batch = 4
seeds = [1]
warmup_steps = 2
lr = 0.01
[log]
eval_every = 1000
eval_sequences = 8
routing = true
[parallel]
ranks = 4
ranks_per_node = 2
[arms.trial]
recipe = "bf16"
)";

runlog::RunLog RunOf(const std::vector<std::string>& overrides) {
  const Experiment experiment = ParseExperiment(
      kText, "experiment.toml", {.variables = {}, .overrides = overrides});
  const corpus::Corpus corpus =
      LoadCorpus(experiment.corpus_source, experiment.data.held_out_share);
  Executor executor(1);
  return TrainRun(experiment, experiment.arms.front(), 1, corpus, executor);
}

// What a message holds (docs/distributed.md, "What travels"): BF16 rows; 16
// bytes for each assignment of a dispatch and 4 for its weight's gradient. The
// counts exchanged before a dispatch are no payload.
constexpr int64_t kRowBytes = 2 * 40;
constexpr int64_t kAssignmentBytes = 16;
constexpr int64_t kWeightBytes = 4;

/// Bytes and rows of one step, or of one layer of it.
struct Traffic {
  int64_t bytes[kRanks][kRanks] = {};
  int64_t dispatch_rows = 0;
  int64_t rank_rows = 0;
  int64_t node_rows = 0;

  /// `rows` with `assignments` go one way twice, for tokens and gradients, and
  /// as many come back twice.
  void Add(size_t from, size_t to, int64_t rows, int64_t assignments) {
    bytes[from][to] += 2 * rows * kRowBytes + assignments * kAssignmentBytes;
    bytes[to][from] += 2 * rows * kRowBytes + assignments * kWeightBytes;
  }
};

/// The way of one token of `source` to the experts `ids`.
void AddToken(const std::string& exchange, size_t source, const int32_t* ids,
              Traffic& traffic) {
  int64_t at_rank[kRanks] = {};  // assignments
  int64_t at_node[kNodes] = {};
  for (size_t k = 0; k < kSlots; ++k) {
    const size_t rank = static_cast<size_t>(ids[k]) / (kExperts / kRanks);
    ++at_rank[rank];
    ++at_node[rank / kNodeRanks];
  }
  for (size_t node = 0; node < kNodes; ++node) {
    const size_t gateway = node * kNodeRanks + source % kNodeRanks;
    if (at_node[node] == 0) continue;
    ++traffic.node_rows;
    if (exchange == "node") {
      ++traffic.dispatch_rows;
      traffic.Add(source, gateway, 1, at_node[node]);
    }
    for (size_t i = 0; i < kNodeRanks; ++i) {
      const size_t rank = node * kNodeRanks + i;
      if (at_rank[rank] == 0) continue;
      ++traffic.rank_rows;
      const int64_t rows = exchange == "flat" ? at_rank[rank] : 1;
      if (exchange != "node") traffic.dispatch_rows += rows;
      traffic.Add(exchange == "node" ? gateway : source, rank, rows,
                  at_rank[rank]);
    }
  }
}

/// Of the layers of step number `step`, from 0.
Traffic TrafficOf(const std::string& exchange, const runlog::RunLog& log,
                  size_t step, size_t first_layer, size_t end_layer) {
  Traffic traffic;
  for (size_t layer = first_layer; layer < end_layer; ++layer) {
    const int32_t* ids =
        &log.moe.expert_ids[(step * kLayers + layer) * kTokens * kSlots];
    for (size_t t = 0; t < kTokens; ++t) {
      AddToken(exchange, t / (kTokens / kRanks), ids + t * kSlots, traffic);
    }
  }
  return traffic;
}

class ExchangeLog : public testing::TestWithParam<const char*> {
 protected:
  const std::string exchange_ = GetParam();
  const runlog::RunLog log_ = RunOf({"parallel.exchange=" + exchange_});
};

TEST_P(ExchangeLog, HoldsTheBytesThatTheLoggedRoutingMakes) {
  const runlog::ExchangeColumns& x = log_.exchange;
  ASSERT_THAT(x.step, testing::ElementsAre(1, 2, 3));
  ASSERT_EQ(x.bytes_sent.size(), kSteps * kRanks);
  ASSERT_EQ(log_.moe.expert_ids.size(), kSteps * kLayers * kTokens * kSlots);

  std::vector<int64_t> by_pair(kRanks * kRanks, 0);
  for (size_t step = 0; step < kSteps; ++step) {
    const Traffic expected = TrafficOf(exchange_, log_, step, 0, kLayers);
    int64_t to_self = 0;
    int64_t within = 0;
    int64_t between = 0;
    for (size_t a = 0; a < kRanks; ++a) {
      int64_t sent = 0;
      int64_t received = 0;
      for (size_t b = 0; b < kRanks; ++b) {
        sent += expected.bytes[a][b];
        received += expected.bytes[b][a];
        by_pair[a * kRanks + b] += expected.bytes[a][b];
        if (a == b) {
          to_self += expected.bytes[a][b];
        } else if (a / kNodeRanks == b / kNodeRanks) {
          within += expected.bytes[a][b];
        } else {
          between += expected.bytes[a][b];
        }
      }
      EXPECT_EQ(x.bytes_sent[step * kRanks + a], sent);
      EXPECT_EQ(x.bytes_received[step * kRanks + a], received);
    }
    EXPECT_EQ(x.bytes_to_self[step], to_self);
    EXPECT_EQ(x.bytes_within_nodes[step], within);
    EXPECT_EQ(x.bytes_between_nodes[step], between);
    EXPECT_NE(within, between);
  }
  EXPECT_EQ(x.bytes_by_pair, by_pair);
}

TEST_P(ExchangeLog, HoldsTheRowsAndLoadsThatTheLoggedRoutingMakes) {
  const runlog::ExchangeColumns& x = log_.exchange;
  ASSERT_EQ(x.dispatch_rows.size(), kSteps * kLayers);

  for (size_t i = 0; i < kSteps * kLayers; ++i) {
    const size_t layer = i % kLayers;
    const Traffic expected =
        TrafficOf(exchange_, log_, i / kLayers, layer, layer + 1);
    const auto tokens = log_.moe.tokens_per_expert.begin() +
                        static_cast<std::ptrdiff_t>(i * kExperts);
    const std::vector<int64_t> loads(tokens, tokens + kExperts);
    int64_t busiest_rank = 0;
    for (size_t e = 0; e < kExperts; e += 2) {
      busiest_rank = std::max(busiest_rank, loads[e] + loads[e + 1]);
    }
    EXPECT_EQ(x.assignments[i], static_cast<int64_t>(kTokens * kSlots));
    EXPECT_EQ(x.dispatch_rows[i], expected.dispatch_rows);
    EXPECT_EQ(x.rank_rows[i], expected.rank_rows);
    EXPECT_EQ(x.node_rows[i], expected.node_rows);
    EXPECT_EQ(x.max_rows_per_rank[i], busiest_rank);
    EXPECT_EQ(x.max_rows_per_expert[i],
              *std::max_element(loads.begin(), loads.end()));
    EXPECT_EQ(x.empty_experts[i], std::count(loads.begin(), loads.end(), 0));
  }
  EXPECT_EQ(x.dispatch_rows, exchange_ == "flat"   ? x.assignments
                             : exchange_ == "rank" ? x.rank_rows
                                                   : x.node_rows);
}

TEST_P(ExchangeLog, IsTheSameWithRanksAsThreads) {
  const runlog::RunLog threads =
      RunOf({"parallel.exchange=" + exchange_, "parallel.transport=threads"});

  EXPECT_EQ(threads.exchange.bytes_sent, log_.exchange.bytes_sent);
  EXPECT_EQ(threads.exchange.bytes_by_pair, log_.exchange.bytes_by_pair);
  EXPECT_EQ(threads.exchange.messages, log_.exchange.messages);
}

TEST_P(ExchangeLog, CountsTrainingAloneHoweverOftenOneEvaluates) {
  const runlog::RunLog often =
      RunOf({"parallel.exchange=" + exchange_, "log.eval_every=1"});
  ASSERT_GT(often.eval.step.size(), log_.eval.step.size());

  EXPECT_EQ(often.exchange.bytes_sent, log_.exchange.bytes_sent);
  EXPECT_EQ(often.exchange.bytes_received, log_.exchange.bytes_received);
  EXPECT_EQ(often.exchange.bytes_by_pair, log_.exchange.bytes_by_pair);
  EXPECT_EQ(often.exchange.messages, log_.exchange.messages);
  EXPECT_EQ(often.exchange.dispatch_rows, log_.exchange.dispatch_rows);
  EXPECT_EQ(often.moe.tokens_per_expert, log_.moe.tokens_per_expert);
  EXPECT_EQ(often.moe.expert_ids, log_.moe.expert_ids);
  EXPECT_EQ(often.steps.loss_nats, log_.steps.loss_nats);
}

INSTANTIATE_TEST_SUITE_P(Exchanges, ExchangeLog,
                         testing::Values("flat", "rank", "node"),
                         [](const auto& exchange) {
                           return std::string(exchange.param);
                         });

TEST(ExchangeLogTest, HierarchiesSendLessBetweenNodesThanFlat) {
  const auto between = [](const char* exchange) {
    const auto log = RunOf({std::string("parallel.exchange=") + exchange,
                            "train.steps=1", "train.warmup_steps=0"});
    return log.exchange.bytes_between_nodes.front();
  };
  const int64_t flat = between("flat");
  const int64_t rank = between("rank");
  const int64_t node = between("node");

  // The first step routes alike with all of them.
  EXPECT_LT(rank, flat);
  EXPECT_LT(node, rank);
}

TEST(ExchangeLogTest, IsEmptyWhereNothingTravels) {
  const runlog::RunLog log = RunOf({"parallel.ranks=1"});

  EXPECT_TRUE(log.exchange.step.empty());
  EXPECT_TRUE(log.exchange.bytes_by_pair.empty());
  EXPECT_EQ(log.moe.step.size(), kSteps);
}

TEST(BatchDigest, IsOfTheWholeBatchHoweverManyRanksShareIt) {
  const Experiment experiment = ParseExperiment(kText, "experiment.toml");
  const corpus::Corpus corpus =
      LoadCorpus(experiment.corpus_source, experiment.data.held_out_share);
  const corpus::Batches batches(corpus, experiment.data.sequence_length,
                                experiment.log.eval_sequences);
  std::vector<int64_t> expected;
  for (int64_t step = 1; step <= static_cast<int64_t>(kSteps); ++step) {
    corpus::Batch batch;
    batches.Training(1, step, experiment.train.sequences_per_batch, batch);
    std::vector<int32_t> ids = batch.tokens;
    ids.insert(ids.end(), batch.labels.begin(), batch.labels.end());
    expected.push_back(std::bit_cast<int64_t>(
        DigestOf(ids.data(), ids.size() * sizeof(int32_t))));
  }

  EXPECT_EQ(RunOf({}).steps.batch_digest, expected);
  EXPECT_EQ(RunOf({"parallel.ranks=1"}).steps.batch_digest, expected);
  EXPECT_NE(expected[0], expected[1]);
}

TEST(ForcedBalance, GivesEveryExpertAsManyTokensInEvaluationsToo) {
  const runlog::RunLog learned = RunOf({});
  const runlog::RunLog forced = RunOf({"routing.mode=forced_balance"});

  EXPECT_THAT(forced.moe.tokens_per_expert, Each(kTokens * kSlots / kExperts));
  EXPECT_NE(learned.moe.tokens_per_expert, forced.moe.tokens_per_expert);
  for (const int32_t experts : {0, 1, 2}) {
    EXPECT_EQ(forced.moe.expert_ids[static_cast<size_t>(experts)], experts);
  }
  // Before any step both have the same weights: only the evaluation's routing
  // can differ.
  ASSERT_EQ(learned.provenance.initial_weights_digest,
            forced.provenance.initial_weights_digest);
  ASSERT_EQ(forced.eval.step.front(), 0);
  EXPECT_NE(learned.eval.loss_nats.front(), forced.eval.loss_nats.front());
}

}  // namespace
}  // namespace isoloss::train::step_columns_test
