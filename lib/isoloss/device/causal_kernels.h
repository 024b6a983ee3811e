// Kernels of causal attention do what kernels/causal_products.h says, and the
// causal softmax of kernels/rowwise.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "isoloss/base/matrix.h"
#include "isoloss/device/element_kernels.h"
#include "isoloss/device/gemm_tiles.h"
#include "isoloss/device/kernel.h"
#include "isoloss/device/quads.h"
#include "isoloss/device/row_kernels.h"
#include "isoloss/device/softmax_kernels.h"
#include "isoloss/device/table.h"
#include "isoloss/kernels/rounding.h"
#include "isoloss/kernels/rowwise.h"
#include "isoloss/kernels/score_plan.h"

namespace isoloss::device {

using kernels::ScoreBlock;

inline constexpr uint32_t kBlockQueries = kernels::kQueryBlock;
/// A task has all queries of a block, or so many keys. Each warp has 16
/// columns.
template <uint32_t kColumns>
using CausalTile =
    TileShape<kBlockQueries, kColumns, 2, 1, 512 / (2 * kColumns)>;

/// One side of products consists of columns of a head.
struct CausalSide {
  kernels::HeadColumns<const float> columns;
  bool has_quads;  ///< they are aligned, and so is each row

  /// Returns rows as rows of an operand, whose steps are the columns.
  constexpr Side Rows(size_t first, size_t count, size_t head) const {
    return {.values = {columns.Row(first, head), columns.matrix.stride(), 1},
            .readable_rows = count};
  }
  /// Returns columns as rows of an operand, whose steps are the rows.
  constexpr Side Columns(size_t first, size_t head) const {
    return {.values = {columns.Row(first, head), 1, columns.matrix.stride()},
            .readable_rows = columns.width,
            .has_quads = has_quads};
  }
};

/// Computes scores of a block against kQueryBlock keys.
struct CausalScoreTiles : ProductTile<CausalTile<kBlockQueries>> {
  Table<ScoreBlock, &ScoreBlock::score_tiles_end> of;
  CausalSide left;
  CausalSide right;
  float* scores;

  size_t blocks() const { return of.total; }
  template <typename Block>
  constexpr void operator()(Block& block) const {
    const auto [entry, number] = of.Find(block.index());
    const size_t keys = entry->keys();
    const size_t first = number * kBlockQueries;
    const TileExtent tile = {static_cast<uint32_t>(entry->rows),
                             Clipped(keys - first, kBlockQueries)};
    const Side a =
        left.Rows(entry->begin + entry->first, entry->rows, entry->head);
    const Side b = right.Rows(entry->begin + first, tile.cols, entry->head);
    typename Block::template PerThread<Sums> sums;
    SumSteps(block, a, 0, b, 0, tile, 0,
             static_cast<uint32_t>(left.columns.width), sums);
    float* const to = scores + entry->place + first;
    block.Each([&sums, &tile, to, keys](size_t thread) {
      ForEachElementAt(
          to, keys, tile, thread,
          [of = &sums[thread]](uint32_t i, uint32_t j, float& score) {
            score = of->of[i][j];
          });
    });
  }
};

/// Computes columns of the outputs of a block.
template <uint32_t kColumns>
struct CausalOutputTiles : ProductTile<CausalTile<kColumns>> {
  using Tile = ProductTile<CausalTile<kColumns>>;
  using typename Tile::Shape;
  using typename Tile::Sums;

  const ScoreBlock* of;
  size_t count;
  const float* scores;
  CausalSide right;
  kernels::HeadColumns<float> out;
  kernels::Rounding rounding;

  constexpr size_t tiles() const { return CeilOf(out.width, Shape::kCols); }
  size_t blocks() const { return count * tiles(); }
  template <typename Block>
  constexpr void operator()(Block& block) const {
    // The longest chains are begun first.
    const auto [place, number] = PlaceOf(block.index(), tiles());
    const ScoreBlock& entry = of[count - 1 - place];
    const auto keys = static_cast<uint32_t>(entry.keys());
    const auto first = static_cast<uint32_t>(number) * Shape::kCols;
    const TileExtent tile = {static_cast<uint32_t>(entry.rows),
                             Clipped(out.width - first, Shape::kCols)};
    const Side a = {.values = {scores + entry.place, keys, 1},
                    .readable_rows = tile.rows};
    typename Block::template PerThread<Sums> sums;
    Tile::SumSteps(block, a, 0, right.Columns(entry.begin, entry.head), first,
                   tile, 0, keys, sums);
    float* const to = out.Row(entry.begin + entry.first, entry.head) + first;
    block.Each([this, &sums, &tile, to](size_t thread) {
      Tile::ForEachElementAt(
          to, out.matrix.stride(), tile, thread,
          [this, of = &sums[thread]](uint32_t i, uint32_t j, float& element) {
            element = kernels::Rounded(of->of[i][j], rounding);
          });
    });
  }
};

/// A chain is over at most kQueryBlock queries of a block.
struct QueryChain {
  const ScoreBlock* block;  ///< null: there is none
  uint32_t from;            ///< counted from the document's first token

  constexpr uint32_t queries() const {
    return Clipped(block->keys() - from, kBlockQueries);
  }
  constexpr QueryChain Next(const ScoreBlock* wave) const {
    if (from + kBlockQueries < block->keys()) {
      return {block, from + kBlockQueries};
    }
    if (block->next == 0) return {nullptr, 0};
    const ScoreBlock* const next = wave + block->next;
    return {next, static_cast<uint32_t>(next->first)};
  }
};

/// Computes columns of the sums of kQueryBlock keys, over all queries of a
/// wave.
template <uint32_t kColumns>
struct KeySumTiles : ProductTile<CausalTile<kColumns>> {
  using Tile = ProductTile<CausalTile<kColumns>>;
  using typename Tile::Shape;
  using typename Tile::Sums;

  Table<ScoreBlock, &ScoreBlock::key_tiles_end> of;
  const float* scores;
  CausalSide right;
  kernels::HeadColumns<float> sums;
  kernels::Rounding rounding;

  constexpr size_t tiles() const { return CeilOf(sums.width, Shape::kCols); }
  size_t blocks() const { return of.total * tiles(); }
  template <typename Block>
  constexpr void operator()(Block& block) const {
    const auto [share, tile] = PlaceOf(block.index(), tiles());
    const auto [entry, number] = of.Find(share);
    const auto key =
        static_cast<uint32_t>(entry->first_of + number * kBlockQueries);
    const auto first_col = static_cast<uint32_t>(tile) * Shape::kCols;
    const Task task = {
        .key = key,
        .col = first_col,
        .tile = {Clipped(entry->length - key, kBlockQueries),
                 Clipped(sums.width - first_col, Shape::kCols)},
        .to = sums.Row(entry->begin + key, entry->head) + first_col};
    const auto first = static_cast<uint32_t>(entry->first);
    const QueryChain chain = {entry, first < key ? key : first};
    typename Block::template PerThread<Totals> totals;
    Start(block, task, /*is_new=*/chain.from == key, totals);
    const bool is_complete = AddChains(block, task, chain, totals);
    Finish(block, task, is_complete ? rounding : kernels::Rounding::kFp32,
           totals);
  }

 private:
  /// Says which tile of the sums a block has.
  struct Task {
    uint32_t key;
    uint32_t col;
    TileExtent tile;
    float* to;
  };
  struct Totals {
    Sums all;
    Sums chain;
    typename Tile::Operands operands;
  };

  /// Calls use(i, j, element) for each element that the sums have.
  template <typename Use>
  constexpr void ForEachElementOf(const Task& task, size_t thread,
                                  const Use& use) const {
    Tile::ForEachElementAt(task.to, sums.matrix.stride(), task.tile, thread,
                           use);
  }

  template <typename Block, typename PerThread>
  constexpr void Start(Block& block, const Task& task, bool is_new,
                       PerThread& totals) const {
    block.Each([this, &task, &totals, is_new](size_t thread) {
      Sums& all = totals[thread].all;
      Tile::ForEachSum([&all](uint32_t i, uint32_t j) { all.of[i][j] = 0.0f; });
      if (is_new) return;
      ForEachElementOf(task, thread, [&all](uint32_t i, uint32_t j, float of) {
        all.of[i][j] = of;
      });
    });
  }

  template <typename Block, typename PerThread>
  constexpr void Finish(Block& block, const Task& task,
                        kernels::Rounding rounded, PerThread& totals) const {
    block.Each([this, &task, &totals, rounded](size_t thread) {
      const Sums& all = totals[thread].all;
      ForEachElementOf(task, thread,
                       [&all, rounded](uint32_t i, uint32_t j, float& to) {
                         to = kernels::Rounded(all.of[i][j], rounded);
                       });
    });
  }

  /// The next slab to be copied: steps of a chain, which is ahead of the one
  /// that is multiplied.
  struct Ahead {
    QueryChain chain;
    uint32_t step;

    constexpr void GoOn(const ScoreBlock* wave) {
      if (chain.block == nullptr) return;
      step += kSlabSteps;
      if (step < chain.queries()) return;
      chain = chain.Next(wave);
      step = 0;
    }
  };

  /// Returns the scores of a chain, keys as rows of an operand.
  constexpr Side KeysOf(const Task& task, const QueryChain& chain) const {
    const ScoreBlock& block = *chain.block;
    const size_t keys = block.keys();
    const size_t place = block.place + (chain.from - block.first) * keys;
    return {.values = {scores + place, 1, keys},
            .readable_rows = task.key + size_t{task.tile.rows},
            .has_quads = keys % kQuad == 0};
  }

  template <typename Block>
  constexpr void CopySlab(Block& block, const Task& task, const Ahead& ahead,
                          uint32_t slab, uint32_t thread,
                          typename Tile::Operands& operands) const {
    if (const ScoreBlock* const from = ahead.chain.block; from != nullptr) {
      if (ahead.step == 0) {
        operands.a = {KeysOf(task, ahead.chain), task.key, 0, thread};
        operands.b = {right.Columns(from->begin + ahead.chain.from, from->head),
                      task.col, 0, thread};
      }
      const uint32_t steps = ahead.chain.queries() - ahead.step;
      auto& to = block.shared().slabs[slab];
      operands.a.Begin(block, thread, steps, to.a);
      operands.b.Begin(block, thread, steps, to.b);
    }
    block.CommitCopies();
  }

  /// Adds the chains of `task` from `chain` on, and tells whether the document
  /// has no query after them. Slabs of the next chain are on their way before
  /// this one ends.
  template <typename Block, typename PerThread>
  constexpr bool AddChains(Block& block, const Task& task, QueryChain chain,
                           PerThread& totals) const {
    constexpr uint32_t kSlabs = Tile::kSlabs;
    Ahead ahead = {chain, 0};
    for (uint32_t i = 0; i + 1 < kSlabs; ++i) {
      block.Each([this, &block, &task, &ahead, &totals, i](size_t thread) {
        CopySlab(block, task, ahead, i, static_cast<uint32_t>(thread),
                 totals[thread].operands);
        if (i + 2 == kSlabs) block.template AwaitCopies<kSlabs - 2>();
      });
      ahead.GoOn(of.entries);
    }
    bool is_complete = false;
    uint32_t now = 0;
    for (; chain.block != nullptr; chain = chain.Next(of.entries)) {
      is_complete = chain.block->is_last();
      const uint32_t queries = chain.queries();
      for (uint32_t step = 0; step < queries; step += kSlabSteps) {
        const uint32_t free = now == 0 ? kSlabs - 1 : now - 1;
        block.Each([this, &block, &task, &ahead, &totals, queries, step, now,
                    free](size_t thread) {
          const auto number = static_cast<uint32_t>(thread);
          auto& [all, sums, operands] = totals[thread];
          CopySlab(block, task, ahead, free, number, operands);
          if (step == 0) Tile::SetZero(sums, operands.factors);
          if (Tile::HasElements(task.tile, number)) {
            Tile::MultiplySlab(block.shared().slabs[now], queries - step,
                               number, operands.factors, sums);
          }
          if (step + kSlabSteps >= queries) {
            Tile::Multiply(operands.factors, sums);
            Add(sums, all);
          }
          block.template AwaitCopies<kSlabs - 2>();
        });
        ahead.GoOn(of.entries);
        now = now + 1 == kSlabs ? 0 : now + 1;
      }
    }
    return is_complete;
  }

  static constexpr void Add(const Sums& chain, Sums& all) {
    Tile::ForEachSum([&chain, &all](uint32_t i, uint32_t j) {
      all.of[i][j] = all.of[i][j] + chain.of[i][j];
    });
  }
};

/// Finds queries of a wave.
struct CausalRows {
  Table<ScoreBlock, &ScoreBlock::rows_end> of;
  size_t most_keys;

  struct Row {
    size_t place;   ///< of its scores
    size_t length;  ///< of the keys that it sees
    size_t width;
  };
  constexpr size_t count() const { return of.total; }
  constexpr size_t width() const { return most_keys; }
  constexpr Row Find(size_t number) const {
    const auto [block, row] = of.Find(number);
    return {block->place + row * block->keys(), block->first + row + 1,
            block->keys()};
  }
};

struct CausalSoftmaxRows : CausalRows {
  float* scores;

  constexpr SoftmaxRow Of(size_t number) const {
    const auto [place, length, width] = Find(number);
    return {scores + place, scores + place, length, width};
  }
};

struct CausalSoftmaxBackwardRows : RowKernel {
  CausalRows rows;
  const float* p;
  const float* read;
  float* dp;
  float scale;

  size_t blocks() const { return CeilOf(rows.count(), kRowsOfBlock); }
  template <typename Block>
  constexpr void operator()(Block& block) const {
    FoldRows(
        block, rows.count(),
        [this](size_t number, size_t lane) {
          const auto row = rows.Find(number);
          return kernels::SumOfLane<float>(
              lane, row.length,
              [values = dp + row.place](size_t i) { return values[i]; },
              [values = read + row.place](size_t i) { return values[i]; });
        },
        [&block](size_t, size_t local, float sum) {
          block.shared().first[local] = sum;
        });
    block.Each([this, &block](size_t thread) {
      const auto [local, lane, number] = RowPlaceOf(block, thread);
      if (number >= rows.count()) return;
      const auto row = rows.Find(number);
      const float mean = block.shared().first[local];
      float* const to = dp + row.place;
      for (size_t j = lane; j < row.width; j += kLanes) {
        to[j] =
            j < row.length ? scale * (p[row.place + j] * (to[j] - mean)) : 0.0f;
      }
    });
  }
};

}  // namespace isoloss::device
