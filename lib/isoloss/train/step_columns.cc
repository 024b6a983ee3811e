#include "isoloss/train/step_columns.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "isoloss/base/digest.h"
#include "isoloss/expert_parallel/collectives.h"
#include "isoloss/expert_parallel/topology.h"
#include "isoloss/runlog/schema.h"
#include "isoloss/transport/transport.h"

namespace isoloss::train {
namespace {

using expert_parallel::DispatchCounts;
using expert_parallel::Topology;

constexpr double kNanosecond = 1e-9;

/// Returns the counters of this process as integers, laid end to end, so that
/// processes can add them up: V * V bytes, V waits in nanoseconds, the
/// messages.
std::vector<int64_t> Pack(const transport::Counters& counters) {
  std::vector<int64_t> values(counters.bytes.data(),
                              counters.bytes.data() + counters.bytes.size());
  for (const double seconds : counters.wait_seconds) {
    values.push_back(std::llround(seconds / kNanosecond));
  }
  values.push_back(counters.messages);
  return values;
}

void RecordBytes(const Topology& mesh, MatrixView<const int64_t> bytes,
                 std::vector<int64_t>& by_pair, runlog::ExchangeColumns& x) {
  int64_t to_self = 0;
  int64_t within = 0;
  int64_t between = 0;
  for (size_t from = 0; from < mesh.ranks; ++from) {
    int64_t sent = 0;
    int64_t received = 0;
    for (size_t to = 0; to < mesh.ranks; ++to) {
      sent += bytes(from, to);
      received += bytes(to, from);
      int64_t& kind = from == to                             ? to_self
                      : mesh.NodeOf(from) == mesh.NodeOf(to) ? within
                                                             : between;
      kind += bytes(from, to);
    }
    x.bytes_sent.push_back(sent);
    x.bytes_received.push_back(received);
  }
  x.bytes_to_self.push_back(to_self);
  x.bytes_within_nodes.push_back(within);
  x.bytes_between_nodes.push_back(between);
  by_pair.resize(mesh.ranks * mesh.ranks);
  for (size_t i = 0; i < by_pair.size(); ++i) by_pair[i] += bytes.data()[i];
}

}  // namespace

int64_t BatchDigest(const corpus::Batch& batch) {
  Digest digest;
  for (const std::vector<int32_t>* ids : {&batch.tokens, &batch.labels}) {
    digest.Update(ids->data(), ids->size() * sizeof(int32_t));
  }
  return std::bit_cast<int64_t>(digest.Value());
}

void RecordMoe(int64_t step, const model::Transformer& transformer,
               MatrixView<const float> expert_bias, bool with_ids,
               bool with_flips, expert_parallel::Mesh& mesh,
               runlog::MoeColumns& moe) {
  const MatrixView<const int64_t> counts = transformer.tokens_per_expert();
  if (counts.rows() == 0) return;
  moe.step.push_back(step);
  moe.layers = static_cast<int64_t>(counts.rows());
  moe.experts = static_cast<int64_t>(counts.cols());
  for (const model::RouterFigures& figures : transformer.MergeRouterFigures()) {
    moe.router_entropy.push_back(figures.entropy_nats);
    moe.routing_digest.push_back(std::bit_cast<int64_t>(figures.digest));
    if (with_flips) moe.routing_flips.push_back(figures.flips);
  }
  for (size_t layer = 0; layer < counts.rows(); ++layer) {
    moe.tokens_per_expert.insert(moe.tokens_per_expert.end(), counts.Row(layer),
                                 counts.Row(layer) + counts.cols());
    moe.expert_bias.insert(moe.expert_bias.end(), expert_bias.Row(layer),
                           expert_bias.Row(layer) + expert_bias.cols());
    moe.dropped_tokens.push_back(0);
    moe.padding_rows.push_back(transformer.dispatch_counts(layer).padding_rows);
    if (!with_ids) continue;
    const HostRows<int32_t> rows = transformer.expert_ids(layer);
    const MatrixView<const int32_t> mine = rows.view();
    const std::vector<int32_t> ids =
        expert_parallel::Gather(mesh, {mine.data(), mine.rows() * mine.cols()});
    moe.expert_ids.insert(moe.expert_ids.end(), ids.begin(), ids.end());
    moe.top_k = static_cast<int64_t>(mine.cols());
    moe.tokens = static_cast<int64_t>(ids.size() / mine.cols());
  }
}

void RecordExchange(int64_t step, const model::Transformer& transformer,
                    expert_parallel::Mesh& mesh,
                    std::vector<int64_t>& bytes_by_pair,
                    runlog::ExchangeColumns& x) {
  if (mesh.transport() == nullptr) return;
  const Topology& topology = mesh.config().topology;
  const std::vector<int64_t> values =
      expert_parallel::SumToFirst(mesh, Pack(mesh.exchanges().TakeCounters()));
  const size_t ranks = topology.ranks;
  x.step.push_back(step);
  x.ranks = static_cast<int64_t>(ranks);
  RecordBytes(topology, {values.data(), ranks, ranks}, bytes_by_pair, x);
  const int64_t* next = values.data() + ranks * ranks;
  for (size_t source = 0; source < ranks; ++source) {
    x.wait_seconds.push_back(static_cast<double>(*next++) * kNanosecond);
  }
  x.messages.push_back(*next++);

  const size_t layers = transformer.tokens_per_expert().rows();
  x.layers = static_cast<int64_t>(layers);
  for (size_t layer = 0; layer < layers; ++layer) {
    const DispatchCounts& counts = transformer.dispatch_counts(layer);
    x.assignments.push_back(counts.assignments);
    x.dispatch_rows.push_back(counts.dispatch_rows);
    x.rank_rows.push_back(counts.rank_rows);
    x.node_rows.push_back(counts.node_rows);
    x.max_rows_per_rank.push_back(counts.max_rows_per_rank);
    x.max_rows_per_expert.push_back(counts.max_rows_per_expert);
    x.empty_experts.push_back(counts.empty_experts);
  }
}

void RecordParameters(int64_t step, const model::ParameterSet& parameters,
                      std::span<const double> gradient_squares,
                      std::span<const double> update_ratios,
                      runlog::ParameterColumns& columns) {
  columns.step.push_back(step);
  columns.count = static_cast<int64_t>(gradient_squares.size());
  columns.names.clear();
  for (const model::Parameter& parameter : parameters.parameters()) {
    columns.names.push_back(parameter.name);
  }
  for (const double squares : gradient_squares) {
    columns.grad_norm.push_back(std::sqrt(squares));
  }
  columns.update_ratio.insert(columns.update_ratio.end(), update_ratios.begin(),
                              update_ratios.end());
}

runlog::StepRow RowAt(const runlog::StepColumns& steps, size_t index) {
  runlog::StepRow row{};
  const runlog::MutableView to(row);
  for (const auto& column : runlog::ColumnsOf<runlog::StepColumns>()) {
    runlog::View(steps).WithValues(
        column, [&]<typename T>(const std::vector<T>& values) {
          if (index < values.size()) to.At<T>(column.in_row) = values[index];
        });
  }
  return row;
}

runlog::StepRow LastRow(const runlog::StepColumns& steps) {
  return RowAt(steps, steps.step.size() - 1);
}

double LoadMaxOverMean(MatrixView<const int64_t> counts) {
  double worst = std::numeric_limits<double>::quiet_NaN();
  for (size_t layer = 0; layer < counts.rows(); ++layer) {
    int64_t sum = 0;
    int64_t busiest = 0;
    for (size_t e = 0; e < counts.cols(); ++e) {
      sum += counts(layer, e);
      busiest = std::max(busiest, counts(layer, e));
    }
    const double ratio = static_cast<double>(busiest) *
                         static_cast<double>(counts.cols()) /
                         static_cast<double>(sum);
    worst = std::fmax(worst, ratio);
  }
  return worst;
}

int64_t DeadExperts(MatrixView<const int64_t> counts) {
  int64_t dead = 0;
  for (size_t layer = 0; layer < counts.rows(); ++layer) {
    dead += std::count(counts.Row(layer), counts.Row(layer) + counts.cols(), 0);
  }
  return dead;
}

}  // namespace isoloss::train
