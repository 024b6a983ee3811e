#include "isoloss/compare/exchange_summary.h"

#include <gtest/gtest.h>

#include <limits>

namespace isoloss::compare::exchange_summary_test {
namespace {

/// Two steps of 10 tokens, one layer, 4 ranks on 2 nodes, 2 slots.
runlog::RunLog Log() {
  runlog::RunLog log;
  log.provenance.tokens_per_step = 10;
  log.provenance.ranks = 4;
  log.provenance.ranks_per_node = 2;
  auto& exchange = log.exchange;
  exchange.step = {1, 2};
  exchange.ranks = 4;
  exchange.layers = 1;
  exchange.bytes_to_self = {100, 200};
  exchange.bytes_within_nodes = {10, 30};
  exchange.bytes_between_nodes = {1000, 1002};
  exchange.assignments = {20, 20};
  exchange.rank_rows = {18, 17};
  exchange.node_rows = {12, 13};
  exchange.max_rows_per_rank = {10, 15};
  return log;
}

TEST(SummarizeExchange, GivesMeansOverStepsAndLayers) {
  const ExchangeSummary summary = SummarizeExchange(Log()).value();

  EXPECT_EQ(summary.nodes, 2);
  EXPECT_EQ(summary.bytes_to_self, 150);
  EXPECT_EQ(summary.bytes_within_nodes, 20);
  EXPECT_EQ(summary.bytes_between_nodes, 1001);
  EXPECT_EQ(summary.rows_per_token, 2);
  EXPECT_EQ(summary.rank_rows_per_token, 35 / 20.0);
  EXPECT_EQ(summary.node_rows_per_token, 25 / 20.0);
  // 10 and 15 rows over a mean of 20 / 4.
  EXPECT_EQ(summary.busiest_rank_over_mean, 2.5);
}

TEST(SummarizeExchange, CutsNodesAtCopiesOfTheExperts) {
  runlog::RunLog log = Log();
  log.provenance.expert_data_parallel = 4;
  log.provenance.ranks_per_node = 8;

  EXPECT_EQ(SummarizeExchange(log)->nodes, 4);
}

/// A log that nobody judged yet may hold anything.
TEST(SummarizeExchange, SumsOfHugeCountsStayWithinInt64) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  runlog::RunLog log = Log();
  log.exchange.bytes_within_nodes.assign(2, kMost);
  log.exchange.bytes_between_nodes.assign(2, -kMost - 1);

  // Means over two steps of sums that stopped at the ends of int64.
  EXPECT_EQ(SummarizeExchange(log)->bytes_within_nodes, 0x1p62);
  EXPECT_EQ(SummarizeExchange(log)->bytes_between_nodes, -0x1p62);
}

TEST(SummarizeExchange, IsEmptyWithoutAnExchange) {
  runlog::RunLog no_layer = Log();
  no_layer.exchange.layers = 0;
  runlog::RunLog no_column = Log();
  no_column.exchange.node_rows.clear();
  runlog::RunLog no_tokens = Log();
  no_tokens.provenance.tokens_per_step = 0;

  EXPECT_FALSE(SummarizeExchange({}).has_value());
  EXPECT_FALSE(SummarizeExchange(no_layer).has_value());
  EXPECT_FALSE(SummarizeExchange(no_column).has_value());
  EXPECT_FALSE(SummarizeExchange(no_tokens).has_value());
}

}  // namespace
}  // namespace isoloss::compare::exchange_summary_test
