#include "isoloss/corpus/corpus.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <new>
#include <utility>

#include "isoloss/base/digest.h"
#include "isoloss/base/error.h"
#include "isoloss/base/portable_math.h"
#include "isoloss/corpus/tokens.h"

namespace isoloss::corpus {
namespace {

/// Returns the entropy of token counts.
double EntropyNats(std::span<const uint64_t> counts, size_t total) {
  double entropy = 0;
  for (const uint64_t count : counts) {
    if (count == 0) continue;
    const double p = static_cast<double>(count) / static_cast<double>(total);
    entropy -= p * portable::Log(p);
  }
  return total > 0 ? entropy : std::numeric_limits<double>::quiet_NaN();
}

/// Counts the tokens of a training share that are given piece by piece.
class Counts {
 public:
  Counts(size_t vocab_size, size_t training)
      : vocab_size_(vocab_size), left_(training), tokens_(vocab_size) {
    if (vocab_size > kMaxBigramVocabulary || training < 2) return;
    pairs_.resize(vocab_size * vocab_size);
    firsts_.resize(vocab_size);
  }

  void Add(std::span<const int32_t> piece) {
    piece = piece.first(std::min(piece.size(), left_));
    for (const int32_t token : piece) ++tokens_[token];
    if (!pairs_.empty()) AddPairs(piece);
    left_ -= piece.size();
    count_ += piece.size();
  }

  double UnigramEntropyNats() const { return EntropyNats(tokens_, count_); }

  /// Returns the entropy of pairs less that of their first tokens.
  double BigramEntropyNats() const {
    if (pairs_.empty()) return std::numeric_limits<double>::quiet_NaN();
    // For a source without noise, rounding may give a number below zero.
    return std::max(0.0, EntropyNats(pairs_, count_ - 1) -
                             EntropyNats(firsts_, count_ - 1));
  }

 private:
  void AddPairs(std::span<const int32_t> piece) {
    for (const int32_t token : piece) {
      if (before_ >= 0) {
        ++pairs_[static_cast<size_t>(before_) * vocab_size_ +
                 static_cast<size_t>(token)];
        ++firsts_[before_];
      }
      before_ = token;
    }
  }

  size_t vocab_size_;
  size_t left_;
  size_t count_ = 0;
  std::vector<uint64_t> tokens_;
  std::vector<uint64_t> pairs_;  // empty where they are too rare
  std::vector<uint64_t> firsts_;
  int32_t before_ = -1;
};

/// Returns the first `count` tokens as they are stored.
std::vector<Bytef> StoredBytes(const Tokens& tokens, size_t count) {
  std::vector<int32_t> wide(count);
  tokens.Copy(0, wide);
  const size_t width = tokens.width();
  std::vector<Bytef> bytes(count * width);
  for (size_t i = 0; i < count; ++i) {
    std::memcpy(&bytes[i * width], &wide[i], width);
  }
  return bytes;
}

/// Returns the bits per token.
double DeflatedBits(const Tokens& tokens, size_t training) {
  const size_t count = std::min(training, kMaxDeflated / tokens.width());
  if (count == 0) return std::numeric_limits<double>::quiet_NaN();
  const std::vector<Bytef> bytes = StoredBytes(tokens, count);
  uLongf size = compressBound(bytes.size());
  std::vector<Bytef> deflated(size);
  const int result =
      compress(deflated.data(), &size, bytes.data(), bytes.size());
  if (result == Z_MEM_ERROR) throw std::bad_alloc();
  ISOLOSS_ASSERT(result == Z_OK);  // the buffer was large enough
  constexpr double kBitsPerByte = 8;
  return kBitsPerByte * static_cast<double>(size) / static_cast<double>(count);
}

size_t HeldOut(const Tokens& tokens, double share) {
  ISOLOSS_ASSERT(share >= 0 && share <= 1);
  return static_cast<size_t>(share * static_cast<double>(tokens.size()));
}

}  // namespace

Corpus::Corpus(TokenVector tokens, size_t vocab_size, std::string description,
               double held_out_share, double entropy_floor_nats)
    : Corpus(InMemory(std::move(tokens)), vocab_size, std::move(description),
             held_out_share, entropy_floor_nats) {}

Corpus::Corpus(std::shared_ptr<Tokens> tokens, size_t vocab_size,
               std::string description, double held_out_share,
               double entropy_floor_nats)
    : Corpus(tokens, vocab_size, std::move(description),
             HeldOut(*tokens, held_out_share), entropy_floor_nats) {}

Corpus::Corpus(std::shared_ptr<Tokens> tokens, size_t vocab_size,
               std::string description, size_t held_out,
               double entropy_floor_nats)
    : tokens_(tokens),
      vocab_size_(vocab_size),
      description_(std::move(description)),
      training_{0, tokens->size() - held_out},
      held_out_{training_.count, held_out},
      entropy_floor_nats_(entropy_floor_nats) {
  ISOLOSS_ASSERT(vocab_size <= size_t{1} << 31);
  Digest digest;
  const uint64_t vocabulary = vocab_size;
  digest.Update(&vocabulary, sizeof(vocabulary));
  Counts counts(vocab_size, training_.count);
  tokens->ReadThrough([&](std::span<const int32_t> piece) {
    digest.Update(piece.data(), piece.size_bytes());
    for (const int32_t token : piece) {
      ISOLOSS_ASSERT(token >= 0 && static_cast<size_t>(token) < vocab_size);
    }
    counts.Add(piece);
  });
  digest_ = digest.Value();
  unigram_entropy_nats_ = counts.UnigramEntropyNats();
  bigram_entropy_nats_ = counts.BigramEntropyNats();
  deflated_bits_ = DeflatedBits(*tokens_, training_.count);
}

Corpus Corpus::HoldingOut(std::vector<int32_t> held_out) const {
  const size_t count = held_out.size();
  return Corpus(Joined(tokens_, training_.count, std::move(held_out)),
                vocab_size_, description_, count, entropy_floor_nats_);
}

void Corpus::Copy(size_t first, std::span<int32_t> out) const {
  ISOLOSS_ASSERT(first <= size() && out.size() <= size() - first);
  tokens_->Copy(first, out);
}

}  // namespace isoloss::corpus
