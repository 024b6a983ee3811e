#include "isoloss/kernels/causal_products.h"

#include <algorithm>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/kernels/row_tasks.h"

namespace isoloss::kernels {
namespace {

void RequireWidth(const char* where, size_t width, size_t expected) {
  if (width == expected) return;
  ThrowError(ErrorKind::kShape,
             "{}: heads have {} columns on one side and {} on the other. Pass "
             "columns of equal width.",
             where, width, expected);
}

void RequireQueryBlocks(const char* where, const ScoreWave& wave) {
  for (const ScoreBlock& block : wave.blocks) {
    if (block.rows <= kQueryBlock) continue;
    ThrowError(ErrorKind::kShape,
               "{}: a block has {} queries. Pass blocks of at most {}.", where,
               block.rows, kQueryBlock);
  }
}

/// Collects the products of the calling thread's call. Keeps its memory.
std::vector<GemmProblem>& EmptyBatch() {
  static thread_local std::vector<GemmProblem> problems;
  problems.clear();
  return problems;
}

/// Returns zeros for a block of keys of each sum.
MatrixView<const float> Zeros(std::span<const KeySum> sums) {
  static thread_local Matrix<float> zeros;
  size_t width = 0;
  for (const KeySum& sum : sums) width = std::max(width, sum.sums.width);
  if (zeros.cols() < width) zeros.Resize(kQueryBlock, width);
  return zeros.view();
}

/// Adds the chain over the block of queries that begins at `from`.
void AddChain(const KeySum& sum, const ScoreBlock& block, size_t from,
              MatrixView<const float> zeros,
              std::vector<GemmProblem>& problems) {
  const size_t rows = std::min(kQueryBlock, block.keys() - from);
  const MatrixView<const float> queries =
      block.Of(sum.scores).Rows(from - block.first, rows);
  const auto add = [&](size_t key, size_t count,
                       MatrixView<const float> addend) {
    problems.push_back(
        {.a = {queries.Cols(key, count), Contraction::kRows},
         .b = {sum.right.Of(block.head, block.begin + from, rows),
               Contraction::kRows},
         .c = sum.sums.Of(block.head, block.begin + key, count),
         .addend = addend});
  };
  if (from > 0) add(0, from, sum.sums.Of(block.head, block.begin, from));
  add(from, rows, zeros.Rows(0, rows).Cols(0, sum.sums.width));
}

/// The sums wait for each other chain by chain; the first ones are computed
/// together with what `problems` holds already.
void AddChains(const ScoreWave& wave, std::span<const KeySum> sums,
               std::vector<GemmProblem>& problems, Executor& executor) {
  const MatrixView<const float> zeros = Zeros(sums);
  size_t end = 0;
  for (const ScoreBlock& block : wave.blocks) end = std::max(end, block.keys());
  for (size_t from = wave.blocks.front().first; from < end;
       from += kQueryBlock) {
    for (const ScoreBlock& block : wave.blocks) {
      if (from < block.first || from >= block.keys()) continue;
      for (const KeySum& sum : sums) {
        AddChain(sum, block, from, zeros, problems);
      }
    }
    GemmBatch(problems, executor);
    problems.clear();
  }
}

/// Rounds the sums that are complete.
void RoundSums(const ScoreWave& wave, std::span<const KeySum> sums,
               Rounding rounding, Executor& executor) {
  if (rounding == Rounding::kFp32) return;
  for (const ScoreBlock& block : wave.blocks) {
    if (!block.is_last()) continue;
    for (const KeySum& sum : sums) {
      const MatrixView<float> all = KeysOf(sum.sums, block);
      Cast(all, rounding, all, executor);
    }
  }
}

}  // namespace

void CausalScores(const ScoreWave& wave, std::span<const ScoreProduct> products,
                  Executor& executor) {
  constexpr const char* kWhere = "CausalScores";
  RequireQueryBlocks(kWhere, wave);
  for (const ScoreProduct& product : products) {
    wave.RequireScores(kWhere, product.scores.size());
    RequireWidth(kWhere, product.right.width, product.left.width);
  }
  if (RanElsewhere(&CausalScores, wave, products, executor)) return;
  std::vector<GemmProblem>& problems = EmptyBatch();
  for (const auto& [left, right, packed, scores] : products) {
    for (const ScoreBlock& block : wave.blocks) {
      GemmProblem& problem = problems.emplace_back();
      problem.a = {QueriesOf(left, block)};
      problem.c = block.Of(scores);
      if (packed.empty()) {
        problem.b = {KeysOf(right, block)};
      } else {
        problem.packed_b = &packed[block.number];
      }
    }
  }
  GemmBatch(problems, executor);
}

void CausalProducts(const ScoreWave& wave, const CausalProductList& products,
                    Executor& executor) {
  constexpr const char* kWhere = "CausalProducts";
  if (!products.of_queries.empty()) RequireQueryBlocks(kWhere, wave);
  for (const QueryProduct& product : products.of_queries) {
    wave.RequireScores(kWhere, product.scores.size());
    RequireWidth(kWhere, product.out.width, product.right.width);
  }
  for (const KeySum& sum : products.of_keys) {
    wave.RequireScores(kWhere, sum.scores.size());
    RequireWidth(kWhere, sum.sums.width, sum.right.width);
  }
  if (wave.blocks.empty()) return;
  if (RanElsewhere(&CausalProducts, wave, products, executor)) return;
  std::vector<GemmProblem>& problems = EmptyBatch();
  for (const auto& [scores, right, out] : products.of_queries) {
    for (const ScoreBlock& block : wave.blocks) {
      problems.push_back({.a = {block.Of(scores)},
                          .b = {KeysOf(right, block), Contraction::kRows},
                          .c = QueriesOf(out, block),
                          .rounding = products.rounding});
    }
  }
  if (products.of_keys.empty()) return GemmBatch(problems, executor);
  AddChains(wave, products.of_keys, problems, executor);
  RoundSums(wave, products.of_keys, products.rounding, executor);
}

}  // namespace isoloss::kernels
