#include "isoloss/compare/exchange_summary.h"

#include <algorithm>
#include <initializer_list>
#include <numeric>
#include <vector>

#include "isoloss/base/saturating.h"

namespace isoloss::compare {
namespace {

using Column = std::vector<int64_t>;

int64_t Sum(const Column& values) {
  return std::accumulate(values.begin(), values.end(), int64_t{0},
                         &SaturatingAdd);
}

double Real(int64_t value) { return static_cast<double>(value); }

bool IsComplete(const runlog::ExchangeColumns& exchange) {
  const size_t steps = exchange.step.size();
  const size_t cells = steps * static_cast<size_t>(exchange.layers);
  const auto all_have = [](std::initializer_list<const Column*> columns,
                           size_t size) {
    return std::all_of(
        columns.begin(), columns.end(),
        [size](const Column* column) { return column->size() == size; });
  };
  return cells > 0 &&
         all_have({&exchange.bytes_to_self, &exchange.bytes_within_nodes,
                   &exchange.bytes_between_nodes},
                  steps) &&
         all_have({&exchange.assignments, &exchange.rank_rows,
                   &exchange.node_rows, &exchange.max_rows_per_rank},
                  cells);
}

/// Returns the nodes. No node holds ranks of two copies of the experts.
int64_t Nodes(const runlog::Provenance& p) {
  const int64_t group = p.ranks / std::max<int64_t>(1, p.expert_data_parallel);
  const int64_t node =
      std::clamp<int64_t>(p.ranks_per_node, 1, std::max<int64_t>(1, group));
  return p.ranks / node;
}

double BusiestOverMean(const runlog::ExchangeColumns& exchange) {
  double sum = 0;
  for (size_t i = 0; i < exchange.assignments.size(); ++i) {
    const double mean = Real(exchange.assignments[i]) /
                        Real(std::max<int64_t>(1, exchange.ranks));
    if (mean > 0) sum += Real(exchange.max_rows_per_rank[i]) / mean;
  }
  return sum / static_cast<double>(exchange.assignments.size());
}

}  // namespace

std::optional<ExchangeSummary> SummarizeExchange(const runlog::RunLog& log) {
  const runlog::ExchangeColumns& exchange = log.exchange;
  const runlog::Provenance& p = log.provenance;
  if (!IsComplete(exchange) || p.tokens_per_step < 1) return std::nullopt;
  const double steps = static_cast<double>(exchange.step.size());
  const double tokens = steps * Real(exchange.layers) * Real(p.tokens_per_step);
  return ExchangeSummary{
      .nodes = Nodes(p),
      .bytes_to_self = Real(Sum(exchange.bytes_to_self)) / steps,
      .bytes_within_nodes = Real(Sum(exchange.bytes_within_nodes)) / steps,
      .bytes_between_nodes = Real(Sum(exchange.bytes_between_nodes)) / steps,
      .rows_per_token = Real(Sum(exchange.assignments)) / tokens,
      .rank_rows_per_token = Real(Sum(exchange.rank_rows)) / tokens,
      .node_rows_per_token = Real(Sum(exchange.node_rows)) / tokens,
      .busiest_rank_over_mean = BusiestOverMean(exchange)};
}

}  // namespace isoloss::compare
