// Verifies a step's log of the exchange against the routing, the mesh and the
// payloads' sizes (kernels/wire.h).
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/step_checks/figure_comparison.h"
#include "isoloss/step_checks/log_check.h"

namespace isoloss::step_checks {
namespace {

using expert_parallel::Algorithm;
using expert_parallel::Topology;

/// Returns the bytes of a row of `width` values.
int64_t RowBytes(const std::string& payload, oracle::Grid activations,
                 size_t width) {
  const auto n = static_cast<int64_t>(width);
  if (payload == "unquantized")
    return activations == oracle::Grid::kBf16 ? 2 * n : 4 * n;
  if (payload == "mx1x32") return n + (n + 31) / 32;
  return n + 4 * ((n + 127) / 128);
}

/// A token's row goes from rank `source` to rank `owner` of a chosen expert.
struct Assignment {
  size_t token;
  size_t source;
  size_t owner;
};

/// Counts what one rank sends to another: the distinct rows and the
/// assignments.
struct Traffic {
  std::set<size_t> shared_rows;
  int64_t assignments = 0;
};
using Link = std::pair<size_t, size_t>;  // from, to

class Exchange {
 public:
  explicit Exchange(const StepInputs& inputs)
      : inputs_(inputs), mesh_(inputs.mesh.topology) {}

  const Topology& mesh() const { return mesh_; }

  std::vector<Assignment> Assignments(size_t layer) const {
    const ExpertRows& rows = inputs_.expert_rows[layer];
    std::vector<Assignment> all;
    for (size_t expert = 0; expert + 1 < rows.begins.size(); ++expert) {
      for (size_t row = rows.begins[expert]; row < rows.begins[expert + 1];
           ++row) {
        if (rows.token_of_row[row] < 0) continue;
        const auto token = static_cast<size_t>(rows.token_of_row[row]);
        const size_t source = mesh_.RankOfToken(token, inputs_.tokens());
        all.push_back({token, source, mesh_.OwnerOf(expert, source)});
      }
    }
    return all;
  }

  /// Returns the messages of each hop on the way to the experts.
  std::vector<std::map<Link, Traffic>> Hops(
      const std::vector<Assignment>& assignments) const {
    const bool by_node = inputs_.mesh.options.algorithm == Algorithm::kNode;
    std::vector<std::map<Link, Traffic>> hops(by_node ? 2 : 1);
    for (const Assignment& a : assignments) {
      const size_t gateway = mesh_.GatewayOf(a.source, mesh_.NodeOf(a.owner));
      if (by_node) {
        Count({a.source, gateway}, a.token, hops[0]);
        Count({gateway, a.owner}, a.token, hops[1]);
      } else {
        Count({a.source, a.owner}, a.token, hops[0]);
      }
    }
    return hops;
  }

  int64_t RowsOf(const Traffic& traffic) const {
    const Algorithm algorithm = inputs_.mesh.options.algorithm;
    return algorithm == Algorithm::kRank || algorithm == Algorithm::kNode
               ? static_cast<int64_t>(traffic.shared_rows.size())
               : traffic.assignments;
  }

  /// Adds the bytes of the way there and back, forward and backward. The way
  /// back gathers weights' gradients of 4 bytes each; an assignment takes 16
  /// bytes.
  void AddBytes(size_t layer, std::map<Link, int64_t>& bytes) const {
    const auto& options = inputs_.mesh.options;
    const size_t width = inputs_.config.dim;
    const auto row_bytes = [&](const std::string& payload) {
      return RowBytes(payload, inputs_.activations, width);
    };
    const int64_t there =
        row_bytes(options.payload) + row_bytes(options.gradient_payload);
    const int64_t back = 2 * row_bytes("unquantized");
    for (const auto& hop : Hops(Assignments(layer))) {
      for (const auto& [link, traffic] : hop) {
        const int64_t rows = RowsOf(traffic);
        bytes[link] += rows * there + 16 * traffic.assignments;
        bytes[{link.second, link.first}] +=
            rows * back + 4 * traffic.assignments;
      }
    }
  }

 private:
  static void Count(const Link& link, size_t token,
                    std::map<Link, Traffic>& links) {
    Traffic& traffic = links[link];
    traffic.shared_rows.insert(token);
    ++traffic.assignments;
  }

  const StepInputs& inputs_;
  const Topology& mesh_;
};

std::string ExchangeColumn(const char* column) {
  return std::string(runlog::kLogPrefix) + "/exchange/" + column;
}

/// Returns the bytes that all MoE layers send over each link.
std::map<Link, int64_t> BytesOfLinks(const StepInputs& inputs,
                                     const Exchange& exchange) {
  std::map<Link, int64_t> bytes;
  for (size_t layer = 0; layer < inputs.expert_rows.size(); ++layer) {
    exchange.AddBytes(layer, bytes);
  }
  return bytes;
}

ExchangeBytes ByKind(const std::map<Link, int64_t>& bytes,
                     const Topology& mesh) {
  ExchangeBytes kinds;
  for (const auto& [link, count] : bytes) {
    if (link.first == link.second) {
      kinds.to_self += count;
    } else if (mesh.NodeOf(link.first) == mesh.NodeOf(link.second)) {
      kinds.within_nodes += count;
    } else {
      kinds.between_nodes += count;
    }
  }
  return kinds;
}

void CheckBytes(const StepInputs& inputs, const Exchange& exchange,
                const runlog::ExchangeColumns& x, ReportSink& sink) {
  const Topology& mesh = exchange.mesh();
  const std::map<Link, int64_t> bytes = BytesOfLinks(inputs, exchange);
  std::vector<int64_t> sent(mesh.ranks);
  std::vector<int64_t> received(mesh.ranks);
  for (const auto& [link, count] : bytes) {
    sent[link.first] += count;
    received[link.second] += count;
  }
  FigureComparison of_sent(ExchangeColumn("bytes_sent"), sink);
  FigureComparison of_received(ExchangeColumn("bytes_received"), sink);
  for (size_t rank = 0; rank < mesh.ranks; ++rank) {
    of_sent.AddCount(x.bytes_sent[rank], sent[rank]);
    of_received.AddCount(x.bytes_received[rank], received[rank]);
  }
  const ExchangeBytes kinds = ByKind(bytes, mesh);
  FigureComparison of_kinds(ExchangeColumn("bytes_by_kind"), sink);
  of_kinds.AddCount(x.bytes_to_self.back(), kinds.to_self);
  of_kinds.AddCount(x.bytes_within_nodes.back(), kinds.within_nodes);
  of_kinds.AddCount(x.bytes_between_nodes.back(), kinds.between_nodes);
}

int64_t Largest(const std::map<size_t, int64_t>& counts) {
  int64_t largest = 0;
  for (const auto& [place, count] : counts) largest = std::max(largest, count);
  return largest;
}

void CheckRows(const StepInputs& inputs, const Exchange& exchange,
               const runlog::ExchangeColumns& x, ReportSink& sink) {
  const Topology& mesh = exchange.mesh();
  FigureComparison counts(ExchangeColumn("rows"), sink);
  for (size_t layer = 0; layer < inputs.expert_rows.size(); ++layer) {
    const auto assignments = exchange.Assignments(layer);
    std::set<Link> by_rank;
    std::set<Link> by_node;
    std::map<size_t, int64_t> of_rank;
    for (const Assignment& a : assignments) {
      by_rank.insert({a.token, a.owner});
      by_node.insert({a.token, mesh.NodeOf(a.owner)});
      ++of_rank[a.owner];
    }
    const ExpertRows& rows = inputs.expert_rows[layer];
    std::map<size_t, int64_t> of_expert;
    int64_t empty = 0;
    for (size_t e = 0; e + 1 < rows.begins.size(); ++e) {
      const int64_t load =
          std::count_if(rows.token_of_row.begin() +
                            static_cast<std::ptrdiff_t>(rows.begins[e]),
                        rows.token_of_row.begin() +
                            static_cast<std::ptrdiff_t>(rows.begins[e + 1]),
                        [](int32_t token) { return token >= 0; });
      of_expert[e] = load;
      empty += load == 0 ? 1 : 0;
    }
    const auto all = static_cast<int64_t>(assignments.size());
    const auto ranks = static_cast<int64_t>(by_rank.size());
    const auto nodes = static_cast<int64_t>(by_node.size());
    const Algorithm algorithm = inputs.mesh.options.algorithm;
    counts.AddCount(x.assignments[layer], all);
    counts.AddCount(x.dispatch_rows[layer],
                    algorithm == Algorithm::kRank   ? ranks
                    : algorithm == Algorithm::kNode ? nodes
                                                    : all);
    counts.AddCount(x.rank_rows[layer], ranks);
    counts.AddCount(x.node_rows[layer], nodes);
    counts.AddCount(x.max_rows_per_rank[layer], Largest(of_rank));
    counts.AddCount(x.max_rows_per_expert[layer], Largest(of_expert));
    counts.AddCount(x.empty_experts[layer], empty);
  }
}

}  // namespace

ExchangeBytes CountExchangeBytes(const StepInputs& inputs) {
  const Exchange exchange(inputs);
  return ByKind(BytesOfLinks(inputs, exchange), exchange.mesh());
}

void CheckLoggedExchange(const StepInputs& inputs,
                         const runlog::ExchangeColumns& exchange,
                         ReportSink& sink) {
  if (exchange.step.empty()) return;
  const Exchange expected(inputs);
  CheckBytes(inputs, expected, exchange, sink);
  CheckRows(inputs, expected, exchange, sink);
}

}  // namespace isoloss::step_checks
