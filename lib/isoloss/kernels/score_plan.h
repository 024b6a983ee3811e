// Divides the scores of causal attention into blocks of queries, and these into
// waves.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "isoloss/base/matrix.h"
#include "isoloss/base/memory.h"

namespace isoloss::kernels {

/// A block of this many query rows meets all keys up to the block's end, so
/// about half of the score matrix is never computed. The number is part of the
/// definition, because gradients of keys and values are sums over blocks.
inline constexpr size_t kQueryBlock = 64;

/// A block holds consecutive queries of one document and head. They meet the
/// keys up to the last of these queries: query i sees the first first + i + 1.
struct ScoreBlock {
  size_t number;  ///< of the document and head
  size_t head;
  size_t begin;   ///< first token of the document
  size_t length;  ///< of the document
  size_t first;   ///< first query, counted from `begin`
  size_t rows;
  size_t place;  ///< of its scores, rows x keys() of them, in those of a wave

  /// Its neighbours in a wave are for kernels that divide all of the wave.
  /// Shares of a block end there in the wave's list of all shares.
  size_t next;      ///< later block of the document and head; 0: there is none
  size_t first_of;  ///< keys that no earlier block of the wave meets: the first
  size_t rows_end;
  size_t score_tiles_end;  ///< of kQueryBlock keys
  size_t key_tiles_end;    ///< those from `first_of` on

  constexpr size_t keys() const { return first + rows; }
  constexpr bool is_last() const { return keys() == length; }
  /// Returns its part of the scores of a wave.
  template <typename T>
  MatrixView<T> Of(std::span<T> scores) const {
    return {scores.data() + place, rows, keys()};
  }
};

/// Blocks whose scores are in memory at once. Those of one document and head
/// ascend.
struct ScoreWave {
  std::span<const ScoreBlock> blocks;
  const ScoreBlock* there;  ///< the same list in the executor's memory

  /// Returns how many floats the scores take.
  size_t scores() const;
  /// Errors   ShapeError if so many floats are too few.
  void RequireScores(const char* where, size_t given) const;
};

/// Lists the blocks of a batch. It keeps the list, since all layers of a step
/// need the same one.
class ScorePlan {
 public:
  /// Executors whose kernels read the list have this memory.
  explicit ScorePlan(Memory& memory) : there_(memory) {}

  struct Batch {
    std::span<const size_t> document_ends;
    size_t heads;
    bool whole;  ///< one block has all queries of a document and head
    /// A wave has no more scores unless one block has more.
    size_t most_scores;
  };
  void List(const Batch& batch);

  size_t size() const { return wave_ends_.size(); }
  ScoreWave Wave(size_t wave) const;
  /// Returns the number of scores of the largest wave.
  size_t most_scores() const { return most_scores_; }

 private:
  bool Lists(const Batch& batch) const;
  void ListBlocks();
  void CutIntoWaves();
  void FinishWave(std::span<ScoreBlock> wave);

  Batch batch_ = {};
  std::vector<size_t> document_ends_;
  std::vector<ScoreBlock> blocks_;
  std::vector<size_t> wave_ends_;
  std::vector<ScoreBlock*> last_;  // of each document and head in a wave
  size_t most_scores_ = 0;
  Matrix<ScoreBlock> there_;  // if the memory is not the host's
};

}  // namespace isoloss::kernels
