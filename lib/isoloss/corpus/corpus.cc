#include "isoloss/corpus/corpus.h"

#include <zlib.h>

#include <algorithm>
#include <limits>
#include <new>
#include <utility>

#include "isoloss/base/digest.h"
#include "isoloss/base/error.h"
#include "isoloss/base/portable_math.h"

namespace isoloss::corpus {
namespace {

constexpr size_t kChunk = 1 << 14;  // tokens are read at a time

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

/// Returns the entropy of pairs less that of their first tokens.
double BigramEntropyNats(const Corpus& corpus) {
  const size_t vocabulary = corpus.vocab_size();
  const size_t count = corpus.training().count;
  if (vocabulary > kMaxBigramVocabulary || count < 2) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  std::vector<uint64_t> pairs(vocabulary * vocabulary);
  std::vector<uint64_t> firsts(vocabulary);
  std::vector<int32_t> chunk;
  size_t before = 0;
  for (size_t first = 0; first < count; first += kChunk) {
    chunk.resize(std::min(kChunk, count - first));
    corpus.Copy(first, chunk);
    for (size_t i = 0; i < chunk.size(); ++i) {
      const auto token = static_cast<size_t>(chunk[i]);
      if (first + i > 0) {
        ++pairs[before * vocabulary + token];
        ++firsts[before];
      }
      before = token;
    }
  }
  // For a source without noise, rounding may give a number below zero.
  return std::max(
      0.0, EntropyNats(pairs, count - 1) - EntropyNats(firsts, count - 1));
}

/// Returns the bits per token.
template <typename T>
double DeflatedBits(std::span<const T> tokens) {
  const auto bytes = std::as_bytes(
      tokens.first(std::min(tokens.size(), kMaxDeflated / sizeof(T))));
  if (bytes.empty()) return std::numeric_limits<double>::quiet_NaN();
  uLongf size = compressBound(bytes.size());
  std::vector<Bytef> deflated(size);
  const int result =
      compress(deflated.data(), &size,
               reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
  if (result == Z_MEM_ERROR) throw std::bad_alloc();
  ISOLOSS_ASSERT(result == Z_OK);  // the buffer was large enough
  constexpr double kBitsPerByte = 8;
  return kBitsPerByte * static_cast<double>(size) /
         (static_cast<double>(bytes.size()) / sizeof(T));
}

}  // namespace

Corpus::Corpus(TokenVector tokens, size_t vocab_size, std::string description,
               double held_out_share, double entropy_floor_nats)
    : tokens_(std::move(tokens)),
      vocab_size_(vocab_size),
      description_(std::move(description)),
      entropy_floor_nats_(entropy_floor_nats) {
  ISOLOSS_ASSERT(vocab_size <= size_t{1} << 31);
  ISOLOSS_ASSERT(held_out_share >= 0 && held_out_share <= 1);
  held_out_.count =
      static_cast<size_t>(held_out_share * static_cast<double>(size()));
  training_.count = size() - held_out_.count;
  held_out_.first = training_.count;

  Digest digest;
  const uint64_t vocabulary = vocab_size;
  digest.Update(&vocabulary, sizeof(vocabulary));
  std::vector<uint64_t> counts(vocab_size);
  std::vector<int32_t> chunk;
  for (size_t first = 0; first < size(); first += kChunk) {
    chunk.resize(std::min(kChunk, size() - first));
    Copy(first, chunk);
    digest.Update(chunk.data(), chunk.size() * sizeof(int32_t));
    for (size_t i = 0; i < chunk.size(); ++i) {
      ISOLOSS_ASSERT(chunk[i] >= 0 &&
                     static_cast<size_t>(chunk[i]) < vocab_size);
      if (first + i < training_.count) ++counts[chunk[i]];
    }
  }
  digest_ = digest.Value();
  unigram_entropy_nats_ = EntropyNats(counts, training_.count);
  bigram_entropy_nats_ = BigramEntropyNats(*this);
  deflated_bits_ = std::visit(
      [this](const auto& stored) {
        return DeflatedBits(std::span(stored).first(training_.count));
      },
      tokens_);
}

size_t Corpus::size() const {
  return std::visit([](const auto& tokens) { return tokens.size(); }, tokens_);
}

void Corpus::Copy(size_t first, std::span<int32_t> out) const {
  ISOLOSS_ASSERT(first <= size() && out.size() <= size() - first);
  std::visit(
      [&](const auto& tokens) {
        for (size_t i = 0; i < out.size(); ++i) {
          out[i] = static_cast<int32_t>(tokens[first + i]);
        }
      },
      tokens_);
}

}  // namespace isoloss::corpus
