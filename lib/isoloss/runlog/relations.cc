#include "isoloss/runlog/relations.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "isoloss/base/portable_math.h"
#include "isoloss/runlog/recording.h"
#include "isoloss/runlog/relation_numbers.h"

namespace isoloss::runlog {
namespace {

/// Programs with FP32 buffers round statistics some ten times; ours are good to
/// 1e-15.
constexpr double kStatistic = 1e-5;

// ---- routing ---------------------------------------------------------------

/// Calls visit(row, layer, place of the first expert) until it returns a text.
template <typename Visit>
std::string ForEachLayer(const MoeColumns& moe, const Visit& visit) {
  for (size_t row = 0; row < moe.step.size(); ++row) {
    for (size_t layer = 0; layer < Size(moe.layers); ++layer) {
      std::string text = visit(row, row * Size(moe.layers) + layer);
      if (text.empty()) continue;
      return fmt::format("{} in MoE layer {} at step {}", text, layer,
                         moe.step[row]);
    }
  }
  return "";
}

int64_t Most(const MoeColumns& moe, size_t at) {
  const auto* first = moe.tokens_per_expert.data() + at * Size(moe.experts);
  return *std::max_element(first, first + moe.experts);
}

int64_t Zeros(const MoeColumns& moe, size_t at) {
  const auto* first = moe.tokens_per_expert.data() + at * Size(moe.experts);
  return std::count(first, first + moe.experts, 0);
}

double Routed(const MoeColumns& moe, size_t at) {
  return Sum(moe.tokens_per_expert, at * Size(moe.experts), Size(moe.experts));
}

/// True if /moe says for each step how many tokens each expert got.
bool HasCounts(const RunLog& log) {
  return !log.moe.tokens_per_expert.empty() &&
         log.moe.step.size() == log.steps.step.size();
}

}  // namespace

std::string WrongLoad(const RunLog& log) {
  const auto& loads = log.steps.expert_load_max_over_mean;
  const auto layers = Size(log.moe.layers);
  const Recording recording(log.provenance);
  for (size_t row = 0; row < loads.size(); ++row) {
    double expected = std::nan("");
    if (HasCounts(log)) {
      for (size_t at = row * layers; at < (row + 1) * layers; ++at) {
        expected =
            std::fmax(expected, static_cast<double>(Most(log.moe, at)) *
                                    static_cast<double>(log.moe.experts) /
                                    Routed(log.moe, at));
      }
      if (Near(loads[row], expected)) continue;
    } else if (!recording.missing_keys().empty()) {
      // The log lacks the numbers from which this one follows.
      if (std::isnan(loads[row]) == std::isnan(loads[0]) &&
          (log.moe.layers == 0 || !std::isnan(loads[0]))) {
        continue;
      }
    } else if (recording.moe_layers() == 0
                   ? std::isnan(loads[row])
                   : loads[row] <= static_cast<double>(recording.experts())) {
      continue;
    }
    return fmt::format(
        "/steps/expert_load_max_over_mean is {} at step {}, {}", loads[row],
        log.steps.step[row],
        HasCounts(log)
            ? fmt::format("by /moe/tokens_per_expert {}", expected)
            : fmt::format("of {} experts in {} MoE layers", recording.experts(),
                          recording.moe_layers()));
  }
  return "";
}

std::string WrongDeadExperts(const RunLog& log) {
  const auto& dead = log.steps.dead_experts;
  const auto layers = Size(log.moe.layers);
  const Recording recording(log.provenance);
  // Each token has an expert in each layer.
  const int64_t most =
      recording.moe_layers() * std::max<int64_t>(0, recording.experts() - 1);
  for (size_t row = 0; row < dead.size(); ++row) {
    if (!HasCounts(log)) {
      if (!recording.missing_keys().empty() || dead[row] <= most) continue;
      return fmt::format("/steps/dead_experts is {} at step {}, at most {}",
                         dead[row], log.steps.step[row], most);
    }
    int64_t expected = 0;
    for (size_t at = row * layers; at < (row + 1) * layers; ++at) {
      expected += Zeros(log.moe, at);
    }
    if (dead[row] == expected) continue;
    return fmt::format(
        "/steps/dead_experts is {} at step {}, by "
        "/moe/tokens_per_expert {}",
        dead[row], log.steps.step[row], expected);
  }
  return "";
}

std::string WrongDroppedTokens(const RunLog& log) {
  const auto dropped = std::ranges::find_if(
      log.moe.dropped_tokens, [](int64_t count) { return count != 0; });
  if (dropped == log.moe.dropped_tokens.end()) return "";
  return fmt::format("/moe/dropped_tokens is {}", *dropped);
}

std::string WrongRoutedTokens(const RunLog& log) {
  const MoeColumns& moe = log.moe;
  if (moe.tokens_per_expert.empty()) return "";
  const auto tokens = static_cast<double>(log.provenance.tokens_per_step);
  const auto of = [&](size_t at) {
    const auto dropped =
        moe.dropped_tokens.empty() ? 0 : moe.dropped_tokens[at];
    return Routed(moe, at) + static_cast<double>(dropped);
  };
  const Recording recording(log.provenance);
  const bool known = recording.missing_keys().empty();
  if (known && (moe.layers != recording.moe_layers() ||
                moe.experts != recording.experts())) {
    return fmt::format(
        "/moe has {} layers of {} experts, by experiment_text {} of {}",
        moe.layers, moe.experts, recording.moe_layers(), recording.experts());
  }
  if (!WrongDroppedTokens(log).empty()) return "";  // another rule's
  // Old logs without expert_ids do not say how many slots a token has.
  const double slots = known           ? static_cast<double>(recording.top_k())
                       : moe.top_k > 0 ? static_cast<double>(moe.top_k)
                                       : of(0) / tokens;
  return ForEachLayer(moe, [&](size_t, size_t at) -> std::string {
    const double found = of(at);
    if (found == tokens * slots && slots == std::floor(slots) && slots >= 1 &&
        slots <= static_cast<double>(moe.experts)) {
      return "";
    }
    return fmt::format("{} (token, slot) pairs of {} tokens with {} slots",
                       found, tokens, slots);
  });
}

std::string WrongExpertIds(const RunLog& log) {
  const MoeColumns& moe = log.moe;
  if (moe.expert_ids.empty()) return "";
  const size_t pairs = Size(moe.tokens) * Size(moe.top_k);
  std::vector<int64_t> tally(Size(moe.experts));
  return ForEachLayer(moe, [&](size_t, size_t at) -> std::string {
    std::ranges::fill(tally, 0);
    for (size_t i = at * pairs; i < (at + 1) * pairs; ++i) {
      const int32_t expert = moe.expert_ids[i];
      if (expert < 0 || expert >= moe.experts) {
        return fmt::format("/moe/expert_ids has expert {} of {}", expert,
                           moe.experts);
      }
      ++tally[Size(expert)];
    }
    for (size_t e = 0; e < tally.size() && !moe.tokens_per_expert.empty();
         ++e) {
      const int64_t count = moe.tokens_per_expert[at * tally.size() + e];
      if (count == tally[e]) continue;
      return fmt::format(
          "/moe/tokens_per_expert is {} for expert {}, which "
          "stands {} times in expert_ids",
          count, e, tally[e]);
    }
    return "";
  });
}

std::string WrongEntropy(const RunLog& log) {
  const MoeColumns& moe = log.moe;
  if (moe.router_entropy.empty() || moe.experts == 0) return "";
  // Scores are FP32.
  const double most =
      portable::Log(static_cast<double>(moe.experts)) * (1 + kStatistic);
  return ForEachLayer(moe, [&](size_t, size_t at) -> std::string {
    if (moe.router_entropy[at] <= most) return "";
    return fmt::format("/moe/router_entropy is {} of {} experts",
                       moe.router_entropy[at], moe.experts);
  });
}

std::string WrongFlips(const RunLog& log) {
  const MoeColumns& moe = log.moe;
  if (moe.routing_flips.empty() || moe.tokens_per_expert.empty()) return "";
  return ForEachLayer(moe, [&](size_t, size_t at) -> std::string {
    const double pairs = Routed(moe, at);
    if (static_cast<double>(moe.routing_flips[at]) <= pairs) return "";
    return fmt::format("/moe/routing_flips is {} of {} pairs",
                       moe.routing_flips[at], pairs);
  });
}

namespace {

// ---- exchange --------------------------------------------------------------

/// Does the same as ForEachLayer, for logs whose /exchange has the rows of
/// /moe.
template <typename Visit>
std::string ForEachExchange(const RunLog& log, const Visit& visit) {
  const MoeColumns& moe = log.moe;
  if (!HasCounts(log) || log.exchange.step != moe.step ||
      log.exchange.layers != moe.layers) {
    return "";
  }
  return ForEachLayer(moe, visit);
}

}  // namespace

std::string WrongAssignments(const RunLog& log) {
  const auto& assignments = log.exchange.assignments;
  if (assignments.empty()) return "";
  return ForEachExchange(log, [&](size_t, size_t at) -> std::string {
    const double routed = Routed(log.moe, at);
    if (static_cast<double>(assignments[at]) == routed) return "";
    return fmt::format(
        "/exchange/assignments is {}, tokens_per_expert sums to "
        "{}",
        assignments[at], routed);
  });
}

std::string WrongRowOrder(const RunLog& log) {
  const auto& x = log.exchange;
  if (x.node_rows.empty() || x.rank_rows.empty() || x.assignments.empty() ||
      x.dispatch_rows.empty()) {
    return "";
  }
  for (size_t at = 0; at < x.assignments.size(); ++at) {
    const int64_t travelled = x.dispatch_rows[at];
    if (x.node_rows[at] <= x.rank_rows[at] &&
        x.rank_rows[at] <= x.assignments[at] &&
        (travelled == x.node_rows[at] || travelled == x.rank_rows[at] ||
         travelled == x.assignments[at])) {
      continue;
    }
    return fmt::format(
        "/exchange has {} node_rows, {} rank_rows, {} "
        "assignments and {} dispatch_rows in MoE layer {} at "
        "step {}",
        x.node_rows[at], x.rank_rows[at], x.assignments[at], travelled,
        at % Size(x.layers), x.step[at / Size(x.layers)]);
  }
  return "";
}

std::string WrongBusiest(const RunLog& log) {
  const auto& x = log.exchange;
  return ForEachExchange(log, [&](size_t, size_t at) -> std::string {
    const auto wrong = [&](const std::vector<int64_t>& column, double least,
                           double most) {
      if (column.empty()) return false;
      const auto value = static_cast<double>(column[at]);
      return !(least <= value && value <= most);
    };
    const double routed = Routed(log.moe, at);
    const auto most = static_cast<double>(Most(log.moe, at));
    const auto zeros = static_cast<double>(Zeros(log.moe, at));
    if (wrong(x.max_rows_per_expert, most, most)) {
      return fmt::format(
          "/exchange/max_rows_per_expert is {}, the most of "
          "tokens_per_expert {}",
          x.max_rows_per_expert[at], most);
    }
    if (wrong(x.empty_experts, zeros, zeros)) {
      return fmt::format(
          "/exchange/empty_experts is {}, tokens_per_expert has "
          "{} zeros",
          x.empty_experts[at], zeros);
    }
    if (wrong(x.max_rows_per_rank, routed / static_cast<double>(x.ranks),
              routed)) {
      return fmt::format(
          "/exchange/max_rows_per_rank is {} of {} rows over {} "
          "ranks",
          x.max_rows_per_rank[at], routed, x.ranks);
    }
    return "";
  });
}

std::string WrongBytes(const RunLog& log) {
  const auto& x = log.exchange;
  if (x.bytes_sent.empty() || x.bytes_received.empty() ||
      x.bytes_to_self.empty() || x.bytes_within_nodes.empty() ||
      x.bytes_between_nodes.empty()) {
    return "";
  }
  if (x.ranks != log.provenance.ranks && !ChangedMesh(log)) {
    return fmt::format("/exchange has {} ranks, by attribute ranks {}", x.ranks,
                       log.provenance.ranks);
  }
  const size_t ranks = Size(x.ranks);
  for (size_t row = 0; row < x.step.size(); ++row) {
    const double sent = Sum(x.bytes_sent, row * ranks, ranks);
    const double received = Sum(x.bytes_received, row * ranks, ranks);
    const double parts = static_cast<double>(x.bytes_to_self[row]) +
                         static_cast<double>(x.bytes_within_nodes[row]) +
                         static_cast<double>(x.bytes_between_nodes[row]);
    if (sent == received && sent == parts) continue;
    return fmt::format(
        "/exchange has {} bytes sent, {} received and {} in its "
        "three parts at step {}",
        sent, received, parts, x.step[row]);
  }
  return "";
}

std::string WrongPairs(const RunLog& log) {
  const auto& x = log.exchange;
  const size_t ranks = Size(x.ranks);
  if (x.bytes_by_pair.empty() || x.bytes_sent.empty() ||
      x.bytes_received.empty()) {
    return "";
  }
  // Bytes by pair are written at evaluations, the last time at the last
  // evaluation within these steps.
  const auto& evaluated = log.eval.step;
  const auto behind = x.step.empty()
                          ? evaluated.begin()
                          : std::ranges::upper_bound(evaluated, x.step.back());
  const int64_t last = behind == evaluated.begin() ? 0 : *(behind - 1);
  for (size_t rank = 0; rank < ranks; ++rank) {
    double sent = 0;
    double received = 0;
    for (size_t row = 0; row < x.step.size() && x.step[row] <= last; ++row) {
      sent += static_cast<double>(x.bytes_sent[row * ranks + rank]);
      received += static_cast<double>(x.bytes_received[row * ranks + rank]);
    }
    double to_others = 0;
    double from_others = 0;
    for (size_t i = 0; i < ranks; ++i) {
      to_others += static_cast<double>(x.bytes_by_pair[rank * ranks + i]);
      from_others += static_cast<double>(x.bytes_by_pair[i * ranks + rank]);
    }
    if (sent == to_others && received == from_others) continue;
    return fmt::format(
        "rank {} sent {} and received {} bytes up to step {}, by "
        "/exchange_pairs/bytes_by_pair {} and {}",
        rank, sent, received, last, to_others, from_others);
  }
  return "";
}

namespace {

constexpr RelationRule kRules[] = {
#define ISOLOSS_RELATION(relation, broken, fault, rule) \
  {Relation::relation, rule, Fault::fault, &broken},
#include "isoloss/runlog/relations.def"
#undef ISOLOSS_RELATION
};

}  // namespace

std::span<const RelationRule> RelationRules() { return kRules; }

}  // namespace isoloss::runlog
