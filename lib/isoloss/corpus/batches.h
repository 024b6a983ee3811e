// Selects the windows of the corpus that a step trains on and an evaluation
// reads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "isoloss/corpus/corpus.h"

namespace isoloss::corpus {

/// Sequences have equal length and are flattened to T tokens in a row; each
/// sequence is one document.
struct Batch {
  std::vector<int32_t> tokens;     ///< [T]
  std::vector<int32_t> labels;     ///< [T], the token that follows
  std::vector<int32_t> positions;  ///< [T], 0 .. sequence_length-1 repeated
  std::vector<size_t> document_ends;
  std::vector<size_t> sequence_ends;
};

/// Cuts windows of sequence_length + 1 tokens out of a corpus. It keeps a
/// reference to the corpus.
class Batches {
 public:
  /// Errors   ConfigError if the training share is shorter than one window or
  ///          the held-out share can't give `held_out_sequences` windows that
  ///          share no label.
  Batches(const Corpus& corpus, size_t sequence_length,
          size_t held_out_sequences);

  size_t held_out_sequences() const { return held_out_sequences_; }

  /// Makes the global batch of a step, a pure function of (corpus,
  /// sequence_length, seed, step). Sequence b starts at a uniform place of the
  /// training share, drawn at index step * 2^32 + b of stream "batches". So a
  /// larger batch begins with the smaller one's sequences. step >= 0.
  void Training(uint64_t seed, int64_t step, size_t sequences,
                Batch& batch) const;

  /// Makes a batch of held-out sequences [first, first + count). They are the
  /// same for every seed, evenly spaced from the first to the last window of
  /// the held-out share.
  void HeldOut(size_t first, size_t count, Batch& batch) const;

 private:
  /// Shapes `batch` and gives it the windows that start at `starts`.
  void Cut(const std::vector<size_t>& starts, Batch& batch) const;

  const Corpus& corpus_;
  size_t sequence_length_;
  size_t held_out_sequences_;
};

}  // namespace isoloss::corpus
