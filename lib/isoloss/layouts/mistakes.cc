#include "isoloss/layouts/mistakes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <ranges>

namespace isoloss::layouts {
namespace {

/// Wrong shards are told for the largest count that divides the columns.
const RankCount* ShardCountOf(const Evidence& evidence) {
  const RankCount* best = nullptr;
  for (const RankCount& count : evidence.counts) {
    if (evidence.found.cols() % count.count != 0) continue;
    if (best == nullptr || count.count > best->count) best = &count;
  }
  return best;
}

std::string RowsText(const Region& region, size_t rows) {
  if (region.rows.size() == rows || region.rows.empty()) return "";
  const size_t first = region.rows.front();
  const size_t last = region.rows.back();
  if (last - first + 1 == region.rows.size()) {
    return fmt::format("rows {}..{} of {}", first, last, rows);
  }
  const size_t shown = std::min<size_t>(region.rows.size(), 4);
  return fmt::format(
      "{} of {} rows ({}{})", region.rows.size(), rows,
      fmt::join(region.rows.begin(),
                region.rows.begin() + static_cast<ptrdiff_t>(shown), ", "),
      shown < region.rows.size() ? ", ..." : "");
}

std::string ColumnsText(const Region& region, size_t columns,
                        const RankCount* shards) {
  if (region.columns == columns || shards == nullptr) return "";
  const size_t width = columns / shards->count;
  const size_t first = region.first_column / width;
  const size_t last = (region.first_column + region.columns) / width - 1;
  return fmt::format("columns {}..{} of {} = rank {} of {}",
                     region.first_column,
                     region.first_column + region.columns - 1, columns,
                     first == last ? std::to_string(first)
                                   : fmt::format("{}..{}", first, last),
                     shards->name);
}

std::string WhereOf(const Evidence& evidence, const Region& region,
                    const RankCount* shards) {
  const std::string rows = RowsText(region, evidence.found.rows());
  const std::string columns =
      ColumnsText(region, evidence.found.cols(), shards);
  return rows + (rows.empty() || columns.empty() ? "" : ", ") + columns;
}

/// Returns ||found - values|| / ||found|| in the region.
double RestOf(const Evidence& evidence, MatrixView<const float> values,
              const Region& region) {
  double difference = 0.0;
  double size = 0.0;
  for (const size_t i : region.rows) {
    for (size_t j = region.first_column;
         j < region.first_column + region.columns; ++j) {
      const auto y = static_cast<double>(evidence.found(i, j));
      const double d = y - static_cast<double>(values(i, j));
      difference += d * d;
      size += y * y;
    }
  }
  return size > 0.0 ? std::sqrt(difference / size)
                    : (difference > 0.0 ? HUGE_VAL : 0.0);
}

/// A factor of this kind is no rounding.
bool IsNear(double value, double of, double bound) {
  return std::fabs(value - of) <= std::max(bound, 1e-6) * of;
}

std::optional<Mistake> FactorMistake(const Evidence& evidence,
                                     const Region& region) {
  const FactorFit fit = FitFactor(evidence.expected, evidence.found, region);
  if (fit.factor == 0.0 && fit.rest == 0.0) {
    const bool all = region.rows.size() == evidence.found.rows();
    return Mistake{
        all ? "zero" : "rows_zero",
        all ? "it is zero" : "these rows are zero: they were dropped"};
  }
  if (!(fit.rest <= evidence.bound && fit.factor > 0.0)) return std::nullopt;
  for (const RankCount& count : evidence.counts) {
    const auto n = static_cast<double>(count.count);
    if (IsNear(fit.factor, n, evidence.bound)) {
      return Mistake{
          "counted_on_each_rank",
          fmt::format("it is {} times as large: counted once on each "
                      "of {} ({}), or summed where a mean is due",
                      count.count, count.count, count.name)};
    }
    if (IsNear(fit.factor, 1.0 / n, evidence.bound)) {
      return Mistake{"divided_by_ranks",
                     fmt::format("it is 1/{} as large: a mean over {} ({}) "
                                 "where a sum is due, or divided twice",
                                 count.count, count.count, count.name)};
    }
  }
  if (IsNear(fit.factor, 1.0, evidence.bound)) return std::nullopt;
  return Mistake{"scaled",
                 fmt::format("it is {:.6g} times as large", fit.factor)};
}

std::optional<Mistake> CandidateMistake(const Evidence& evidence,
                                        const Region& region) {
  const Candidate* best = nullptr;
  // Half of what the right values leave is no coincidence.
  double least = std::min(evidence.bound,
                          0.5 * RestOf(evidence, evidence.expected, region));
  for (const Candidate& candidate : evidence.candidates) {
    const double rest = RestOf(evidence, candidate.values.view(), region);
    if (!(rest < least)) continue;  // it may be NaN
    least = rest;
    best = &candidate;
  }
  if (best == nullptr) return std::nullopt;
  return Mistake{best->name, best->sentence};
}

/// Finds blocks of columns, or of rows, that stand in another order, or are
/// those of another shard.
std::optional<Mistake> OrderMistake(const Evidence& evidence, bool columns) {
  const size_t extent = columns ? evidence.found.cols() : evidence.found.rows();
  for (const RankCount& count : evidence.counts) {
    const size_t n = count.count;
    constexpr size_t kMostBlocks = 64;
    if (n > kMostBlocks || extent % n != 0 || extent == n) continue;
    const size_t width = extent / n;
    const auto block = [&](MatrixView<const float> matrix, size_t at) {
      return columns ? matrix.Cols(at * width, width)
                     : matrix.Rows(at * width, width);
    };
    std::vector<size_t> order;
    for (size_t i = 0; i < n; ++i) {
      size_t best = n;
      double least = evidence.bound;
      for (size_t j = 0; j < n; ++j) {
        const double off =
            Differ(block(evidence.expected, j), block(evidence.found, i))
                .relative;
        if (off > least) continue;
        least = off;
        best = j;
      }
      if (best == n) break;
      order.push_back(best);
    }
    const auto is_own = [&](size_t i) { return order[i] == i; };
    if (order.size() != n ||
        std::ranges::all_of(std::views::iota(size_t{0}, n), is_own)) {
      continue;
    }
    return Mistake{"shard_order",
                   fmt::format("its {} blocks of {} are those of {} {}", n,
                               columns ? "columns" : "rows", count.name,
                               fmt::join(order, ", "))};
  }
  return std::nullopt;
}

}  // namespace

std::vector<RankCount> RankCountsOf(const Recording& recording,
                                    size_t micro_batches) {
  std::vector<RankCount> counts;
  const auto add = [&](size_t count, const std::string& name) {
    const bool is_known = std::ranges::any_of(
        counts, [&](const RankCount& known) { return known.count == count; });
    if (count > 1 && !is_known) counts.push_back({count, name});
  };
  for (const operations::MeshAxis& axis : recording.mesh) {
    add(axis.size, axis.name);
  }
  add(recording.replicas(), "ranks of one part of the batch");
  add(static_cast<size_t>(recording.data_ranks()), "data ranks");
  add(static_cast<size_t>(recording.ranks()), "ranks");
  add(micro_batches, "micro-batches");
  add(micro_batches * static_cast<size_t>(recording.data_ranks()),
      "micro-batches of all data ranks");
  return counts;
}

Mistake NameMistake(const Evidence& evidence) {
  const RankCount* shards = ShardCountOf(evidence);
  const Region region =
      WrongRegion(evidence.expected, evidence.found, evidence.bound,
                  shards == nullptr ? 1 : shards->count);
  Mistake mistake;
  if (auto named = CandidateMistake(evidence, region)) {
    mistake = *named;
  } else if (auto scaled = FactorMistake(evidence, region)) {
    mistake = *scaled;
  } else if (auto columns = OrderMistake(evidence, /*columns=*/true)) {
    mistake = *columns;
  } else if (auto rows = OrderMistake(evidence, /*columns=*/false)) {
    mistake = *rows;
  } else if (const size_t n = ShardsWithFactors(
                 evidence.expected, evidence.found, evidence.counts)) {
    mistake = {"norm_per_shard",
               fmt::format("each row has another factor in each of {} blocks "
                           "of columns: a norm was computed by shards",
                           n)};
  }
  mistake.where = WhereOf(evidence, region, shards);
  return mistake;
}

size_t ShardsWithFactors(MatrixView<const float> a, MatrixView<const float> b,
                         const std::vector<RankCount>& counts) {
  // Rounding errors are independent, so that factors of blocks of 16 columns
  // explain a sixteenth of their squares.
  constexpr size_t kFewestColumns = 16;
  for (const RankCount& count : counts) {
    if (a.cols() / count.count < kFewestColumns) continue;
    if (ShareOfShardFactors(a, b, count.count) > 0.5) return count.count;
  }
  return 0;
}

}  // namespace isoloss::layouts
