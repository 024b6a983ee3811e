// The text that is trained on: tokens, where they came from, and their split.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "isoloss/corpus/source.h"

namespace isoloss::corpus {

/// Tokens in the narrowest type their source offers.
using TokenVector = std::variant<std::vector<uint8_t>, std::vector<uint16_t>,
                                 std::vector<uint32_t>>;

inline constexpr size_t kMaxBigramVocabulary = 1024;
/// A corpus is held in memory; small models see far less of it.
inline constexpr size_t kMaxBytes = size_t{4} << 30;
/// Enough for a ratio, less than a second of work.
inline constexpr size_t kMaxDeflated = size_t{4} << 20;

/// Positions [first, first + count) of a corpus.
struct Share {
  size_t first = 0;
  size_t count = 0;
};

/// Immutable tokens with their split: the tail is held out.
class Corpus {
 public:
  /// Every token must be below `vocab_size` <= 2^31. floor(held_out_share *
  /// size) tokens are held out.
  Corpus(TokenVector tokens, size_t vocab_size, std::string description,
         double held_out_share, double entropy_floor_nats);

  size_t size() const;
  size_t vocab_size() const { return vocab_size_; }
  /// One line for people: kind, number of files and tokens, where from.
  const std::string& description() const { return description_; }
  /// Of vocab_size and the tokens, whatever width they are stored in.
  uint64_t digest() const { return digest_; }
  Share training() const { return training_; }
  Share held_out() const { return held_out_; }

  /// -sum p ln p over the token frequencies p of the training share: the loss
  /// of a model that knows nothing else. NaN if the share is empty.
  double unigram_entropy_nats() const { return unigram_entropy_nats_; }
  /// The same of a token given the one before it: what counting pairs comes to.
  /// NaN if the share has fewer than two tokens, or the vocabulary more than
  /// kMaxBigramVocabulary: pairs are too rare there to count.
  double bigram_entropy_nats() const { return bigram_entropy_nats_; }
  /// Bits per token that deflate (zlib, level 6, gzip's default) leaves of the
  /// training share's first kMaxDeflated bytes, as they are stored: one, two or
  /// four a token. NaN if the share is empty. Another version of zlib may give
  /// others.
  double deflated_bits() const { return deflated_bits_; }
  /// Conditional entropy of a token given all before it; NaN if unknown.
  double entropy_floor_nats() const { return entropy_floor_nats_; }

  /// Writes tokens [first, first + out.size()) to `out`.
  void Copy(size_t first, std::span<int32_t> out) const;

 private:
  TokenVector tokens_;
  size_t vocab_size_;
  std::string description_;
  Share training_;
  Share held_out_;
  double entropy_floor_nats_;
  uint64_t digest_ = 0;
  double unigram_entropy_nats_ = 0;
  double bigram_entropy_nats_ = 0;
  double deflated_bits_ = 0;
};

/// Reads or makes the tokens of `source`.
/// Errors   IoError if a file or folder can't be read; ConfigError if a pattern
///          matches no file, or the source holds no byte or more than
///          kMaxBytes; FormatError if a token file breaks its format or holds a
///          token outside the vocabulary (with file and position).
Corpus LoadCorpus(const Source& source, double held_out_share);

}  // namespace isoloss::corpus
