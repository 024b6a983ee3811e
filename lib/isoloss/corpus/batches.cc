#include "isoloss/corpus/batches.h"

#include <algorithm>

#include "isoloss/base/error.h"
#include "isoloss/base/rng.h"

namespace isoloss::corpus {

Batches::Batches(const Corpus& corpus, size_t sequence_length,
                 size_t held_out_sequences)
    : corpus_(corpus),
      sequence_length_(sequence_length),
      held_out_sequences_(held_out_sequences) {
  ISOLOSS_ASSERT(sequence_length > 0 && held_out_sequences > 0);
  const size_t training = corpus.training().count;
  if (training < sequence_length + 1) {
    ThrowError(ErrorKind::kConfig,
               "corpus: the training share has {} of {} tokens, but one "
               "sequence of {} needs {}. Give more text, a smaller "
               "data.held_out_share or a shorter data.sequence_length.",
               training, corpus.size(), sequence_length, sequence_length + 1);
  }
  const size_t held_out = corpus.held_out().count;
  const size_t needed = held_out_sequences * sequence_length + 1;
  if (held_out < needed) {
    ThrowError(ErrorKind::kConfig,
               "corpus: the held-out share has {} of {} tokens, but {} "
               "sequence{} of {} need{} {}. Give more text, a larger "
               "data.held_out_share, fewer log.eval_sequences or a shorter "
               "data.sequence_length.",
               held_out, corpus.size(), held_out_sequences,
               held_out_sequences == 1 ? "" : "s", sequence_length,
               held_out_sequences == 1 ? "s" : "", needed);
  }
}

void Batches::Training(uint64_t seed, int64_t step, size_t sequences,
                       Batch& batch) const {
  ISOLOSS_ASSERT(step >= 0 && sequences > 0 && sequences >> 32 == 0);
  static const uint64_t kStream = StreamId("batches");
  const CounterRng rng(seed, kStream);
  const Share share = corpus_.training();
  const size_t choices = share.count - sequence_length_;

  std::vector<size_t> starts(sequences);
  const uint64_t base = static_cast<uint64_t>(step) << 32;
  for (size_t b = 0; b < sequences; ++b) {
    starts[b] = share.first + rng.Below(base + b, choices);
  }
  Cut(starts, batch);
}

void Batches::HeldOut(size_t first, size_t count, Batch& batch) const {
  ISOLOSS_ASSERT(first + count <= held_out_sequences_ && count > 0);
  const Share share = corpus_.held_out();
  const size_t last = share.count - sequence_length_ - 1;
  const size_t intervals = std::max<size_t>(held_out_sequences_ - 1, 1);

  std::vector<size_t> starts(count);
  for (size_t i = 0; i < count; ++i) {
    starts[i] = share.first + last * (first + i) / intervals;
  }
  Cut(starts, batch);
}

void Batches::Cut(const std::vector<size_t>& starts, Batch& batch) const {
  const size_t length = sequence_length_;
  const size_t tokens = starts.size() * length;
  batch.tokens.resize(tokens);
  batch.labels.resize(tokens);
  batch.positions.resize(tokens);
  batch.sequence_ends.resize(starts.size());
  std::vector<int32_t> window(length + 1);
  for (size_t b = 0; b < starts.size(); ++b) {
    const size_t first = b * length;
    corpus_.Copy(starts[b], window);
    std::copy_n(window.begin(), length, &batch.tokens[first]);
    std::copy_n(window.begin() + 1, length, &batch.labels[first]);
    for (size_t i = 0; i < length; ++i) {
      batch.positions[first + i] = static_cast<int32_t>(i);
    }
    batch.sequence_ends[b] = first + length;
  }
  batch.document_ends = batch.sequence_ends;
}

}  // namespace isoloss::corpus
